/*
 * Batches in order and as they complete (in_order = 0), in one run: one sample in 1,000 takes
 * 100 ms, all others nearly nothing. The two take turns; rates are medians.
 * usage: unordered [ROUNDS] [WORKERS] [PREFETCH] [BATCH]
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N     160000
#define EVERY 1000
#define SLOW  100000 /* us */
#define MOST  99

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    if (index % EVERY == 0)
        usleep(SLOW);
    *(uint64_t *)row[0] = index;
    return 0;
}

static int open_set(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "slow";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get;
    return mr_dataset_open_callback(&o, out);
}

/* One epoch in random order. [out] rate: samples/s, from opening on. */
static int measure(struct mr_dataset *ds, const struct mr_loader_opts *o, double *rate)
{
    struct mr_sampler *order;
    struct mr_loader *loader = NULL;
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_batch b = {.size = sizeof b};
    int rc = mr_sampler_open("random", N, 1, &order);
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns();
    rc = mr_loader_open(ds, order, NULL, NULL, o, &loader);
    while (rc >= 0 && (rc = mr_loader_next(loader, NULL, &b)) > 0)
        mr_loader_release(loader, &b, NULL);
    *rate = N * 1e9 / (double)(mr_time_ns() - start);
    mr_loader_stats(loader, &st);
    if (rc == 0 && st.samples != N)
        rc = -1;
    mr_loader_close(loader);
    mr_sampler_destroy(order);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static unsigned number(int argc, char **argv, int i, unsigned otherwise)
{
    return argc > i ? (unsigned)atoi(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    static double rate[2][MOST];
    unsigned rounds = number(argc, argv, 1, 3);
    struct mr_dataset *ds = NULL;
    struct mr_loader_opts o;
    if (rounds < 1 || rounds > MOST) {
        fprintf(stderr, "usage: unordered [ROUNDS] [WORKERS] [PREFETCH] [BATCH]\n");
        return 2;
    }
    mr_loader_opts_init(&o);
    o.workers = number(argc, argv, 2, 32);
    o.prefetch = number(argc, argv, 3, 16);
    o.batch_size = number(argc, argv, 4, 32);
    int rc = open_set(&ds);
    for (unsigned i = 0; i < rounds && rc >= 0; i++)
        for (int k = 0; k < 2 && rc >= 0; k++) {
            o.in_order = !k;
            rc = measure(ds, &o, &rate[k][i]);
        }
    for (int k = 0; k < 2 && rc >= 0; k++) {
        qsort(rate[k], rounds, sizeof rate[k][0], by_value);
        printf("in_order = %d   %9.0f samples/s   x %.2f\n", !k, rate[k][rounds / 2],
               rate[k][rounds / 2] / rate[0][rounds / 2]);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_dataset_close(ds);
    return rc < 0;
}
