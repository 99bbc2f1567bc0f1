/*
 * A callback set with a context: samples are random spans of documents, keyed by seed, epoch and
 * document, so the second run, with other workers, draws the same ones. Each worker has a store
 * connection of its own, which is asked for several documents at once.
 *
 *   cc context.c $(pkg-config --cflags --libs millrace) -o context && ./context
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>

#define N      1000
#define SPAN   16
#define LENGTH 500 /* tokens of a document */

/* What stands for a connection to a store. */
struct connection {
    uint32_t worker;
    uint64_t requests;
};

/* On each worker's thread, before its first sample. */
static int connect_worker(void *user, uint32_t worker, void **state)
{
    (void)user;
    struct connection *c = (struct connection *)calloc(1, sizeof *c);
    if (!c)
        return mr_error_set(MR_ECALLBACK, "worker %u: no memory for its connection", worker);
    c->worker = worker;
    *state = c;
    return 0;
}

/* On the same thread, after its last one. */
static void disconnect_worker(void *user, uint32_t worker, void *state)
{
    (void)user;
    (void)worker;
    free(state);
}

/* Token i of a document, as the store has it. */
static int32_t token(uint64_t document, uint64_t i)
{
    return (int32_t)(document * LENGTH + i);
}

/* Makes n neighbours of a batch by one request. */
static int get_run(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[])
{
    (void)user;
    (void)dim; /* no dimension varies */
    struct connection *c = (struct connection *)context[0].worker_state;
    c->requests++;
    for (uint64_t i = 0; i < n; i++) {
        struct mr_rng rng;
        mr_rng_init(&rng, context[i].seed, context[i].epoch, context[i].index, 0);
        uint64_t from = mr_rng_below(&rng, LENGTH - SPAN + 1);
        int32_t *out = (int32_t *)row[i][0];
        for (uint64_t k = 0; k < SPAN; k++)
            out[k] = token(context[i].index, from + k);
        rc[i] = 0; /* or the error that makes this sample a bad one */
    }
    return 0;
}

static int open_dataset(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "spans";
    o.version = 1;
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "tokens", .dtype = MR_I32, .rank = 1, .dim = {SPAN}};
    o.get_run = get_run;
    o.init = connect_worker;
    o.exit = disconnect_worker;
    o.changes = 1; /* each epoch has other spans: decoded samples must not be cached */
    return mr_dataset_open_callback(&o, out);
}

/* Two epochs. [out] sum: of where each epoch's spans begin. */
static int read_epochs(struct mr_dataset *ds, uint32_t workers, uint64_t sum[2])
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch b = {.size = sizeof b};
    sum[0] = sum[1] = 0;
    mr_loader_opts_init(&opts);
    opts.workers = workers;
    opts.epochs = 2;
    opts.seed = 7;
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        return rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        const int32_t *tokens = (const int32_t *)b.field[0].host;
        for (uint64_t i = 0; i < b.n; i++)
            sum[b.epoch] += (uint64_t)tokens[i * SPAN] % LENGTH;
        mr_loader_release(loader, &b, NULL);
    }
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    uint64_t one[2], four[2];
    int rc = open_dataset(&ds);
    if (rc < 0)
        goto done;
    rc = read_epochs(ds, 1, one);
    if (rc < 0)
        goto done;
    rc = read_epochs(ds, 4, four);
    if (rc < 0)
        goto done;
    printf("where spans begin, in the mean: %.1f, in the next epoch %.1f\n", (double)one[0] / N,
           (double)one[1] / N);
    printf("with 4 workers: %.1f and %.1f\n", (double)four[0] / N, (double)four[1] / N);
    if (one[0] != four[0] || one[1] != four[1] || one[0] == one[1])
        rc = mr_error_set(MR_ECALLBACK, "expected the same spans, and others in the next epoch");
done:
    if (rc < 0)
        fprintf(stderr, "context: %s\n", mr_last_error());
    mr_dataset_close(ds);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
