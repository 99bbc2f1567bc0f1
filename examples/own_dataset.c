/*
 * A data set of your own: sequences of varying length from a callback, padded to the longest of
 * each batch. A bad sample is replaced. The run is stopped after 5 batches and resumed from its
 * state.
 *
 *   cc own_dataset.c $(pkg-config --cflags --libs millrace) -o own_dataset && ./own_dataset
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST 50

/* Writes sample `index`: index % LONGEST + 1 numbers. Several threads call it at once. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    if (index == 13)
        return mr_error_set(MR_EFORMAT, "sample %llu cannot be read", (unsigned long long)index);
    float *x = (float *)row[0];
    dim[0][0] = index % LONGEST + 1;
    for (uint64_t i = 0; i < dim[0][0]; i++)
        x[i] = (float)index;
    return 0;
}

/* Reads at most `most` batches, then saves the state. Returns its length, or a negative error. */
static int read_batches(struct mr_dataset *ds, const char *resume_from, int most, char *state,
                        size_t cap)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&opts);
    opts.batch_size = 8;
    opts.collate = MR_COLLATE_PAD;
    opts.bad = MR_BAD_REPLACE;
    opts.state = resume_from;
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        return rc;
    for (int i = 0; i < most && (rc = mr_loader_next(loader, NULL, &b)) > 0; i++) {
        const uint64_t *dim = b.field[0].spec.dim;
        printf("batch %llu: %llu x %llu\n", (unsigned long long)b.index, (unsigned long long)dim[0],
               (unsigned long long)dim[1]);
        mr_loader_release(loader, &b, NULL);
    }
    struct mr_bad_sample bad = {.size = sizeof bad};
    for (uint64_t i = 0; mr_loader_bad(loader, i, &bad); i++)
        printf("replaced: %s\n", bad.reason);
    if (rc >= 0)
        rc = mr_loader_state(loader, state, cap);
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds = NULL;
    char state[1024], end[1024];
    mr_callback_opts_init(&o);
    o.name = "counts";
    o.n = 100;
    o.n_fields = 1;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .var_dims = 1, .dim = {LONGEST}};
    o.get = get;
    int rc = mr_dataset_open_callback(&o, &ds);
    if (rc < 0)
        goto done;
    rc = read_batches(ds, NULL, 5, state, sizeof state);
    if (rc < 0)
        goto done;
    printf("state: %s\n", state);
    rc = read_batches(ds, state, 1000, end, sizeof end);
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_dataset_close(ds);
    return rc < 0;
}
