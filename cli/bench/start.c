/* How long a start takes: the first batch of MNIST's files, and a state of 10^9 samples. */
#include "bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes the images and labels of a set as plain IDX files into a fresh folder. was_gz: they are
 * compressed now. */
static int write_plain(const char *mnist, char *dir, bool *was_gz)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
    struct mr_dataset *ds;
    int rc = mr_dataset_open(mnist, &ds);
    if (rc < 0)
        return rc;
    uint64_t n = mr_dataset_length(ds);
    *was_gz = strstr(mr_dataset_text(ds), ".gz") != NULL;
    FILE *file[2] = {NULL, NULL};
    for (int f = 0; f < 2 && rc == 0; f++) {
        char path[256];
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        snprintf(path, sizeof path, "%s/%s", dir, names[f]);
        file[f] = spec ? fopen(path, "wb") : NULL;
        if (!file[f]) {
            rc = mr_error_set(-errno, "%s: %s", path, strerror(errno));
            break;
        }
        unsigned char head[16] = {0, 0, 8, (unsigned char)(spec->rank + 1)};
        for (int d = 0; d <= spec->rank; d++) {
            uint64_t dim = d ? spec->dim[d - 1] : n;
            for (int k = 0; k < 4; k++)
                head[4 + 4 * d + k] = (unsigned char)(dim >> (24 - 8 * k));
        }
        fwrite(head, 1, 8 + 4 * (size_t)spec->rank, file[f]);
    }
    unsigned char image[65536], label;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        uint64_t bytes = 0;
        mr_spec_bytes(mr_dataset_field(ds, 0), &bytes);
        rc = bytes <= sizeof image ? mr_dataset_read(ds, i, (void *const[]){image, &label}, NULL)
                                   : MR_ELIMIT;
        if (rc == 0 &&
            (fwrite(image, 1, bytes, file[0]) != bytes || fwrite(&label, 1, 1, file[1]) != 1))
            rc = mr_error_set(-EIO, "%s: could not be written", dir);
    }
    for (int f = 0; f < 2; f++)
        if (file[f])
            fclose(file[f]);
    mr_dataset_close(ds);
    return rc;
}

static void remove_plain(const char *dir)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
    char path[256];
    for (int f = 0; f < 2; f++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[f]);
        unlink(path);
    }
    rmdir(dir);
}

/* Milliseconds from opening a data set to its first shuffled batch. all: read the last sample
 * first, which for .gz takes as long as inflating does; then *all_ms says how long that took. */
static int first_batch(const char *uri, const struct bench_opts *o, double *out_ms, double *all_ms)
{
    struct mr_dataset *ds;
    uint64_t start = mr_time_ns();
    int rc = mr_dataset_open(uri, &ds);
    if (rc < 0)
        return rc;
    unsigned char image[65536], label;
    if (all_ms) {
        rc = mr_dataset_read(ds, mr_dataset_length(ds) - 1, (void *const[]){image, &label}, NULL);
        *all_ms = (double)(mr_time_ns() - start) * 1e-6;
    }
    struct bench_set set = {
        .ds = ds, .chain = "cast(f32),scale(1/255),normalize(0.1307,0.3081)", .batch_size = 64};
    struct bench_ours ours = {0};
    uint64_t opened = mr_time_ns();
    if (rc == 0)
        rc = bench_ours(&set, o, 0.001, &ours);
    *out_ms = (double)(opened - start) * 1e-6 + ours.first_batch_ms;
    mr_dataset_close(ds);
    return rc;
}

int bench_first_batch(const struct bench_opts *o, double *out)
{
    char dir[] = "/tmp/millrace-bench-XXXXXX";
    double v[3][BENCH_MAX_ROUNDS];
    if (!mkdtemp(dir))
        return mr_error_set(-errno, "%s: %s", dir, strerror(errno));
    bool gz = false;
    int rc = write_plain(o->mnist, dir, &gz);
    for (uint64_t r = 0; r < o->rounds && rc == 0; r++) {
        double unused;
        rc = first_batch(dir, o, &v[0][r], NULL);
        if (rc == 0 && gz)
            rc = first_batch(o->mnist, o, &v[1][r], NULL);
        if (rc == 0 && gz)
            rc = first_batch(o->mnist, o, &unused, &v[2][r]);
    }
    remove_plain(dir);
    if (rc < 0)
        return rc;
    out[LOADER_FIRST_BATCH] = bench_median(v[0], o->rounds);
    if (gz) {
        out[LOADER_GZ_FIRST_BATCH] = bench_median(v[1], o->rounds);
        out[LOADER_INFLATE] = bench_median(v[2], o->rounds);
    }
    return 0;
}

static int open_billion(const char *state, struct mr_dataset *ds, struct mr_sampler *sampler,
                        struct mr_loader **out)
{
    struct mr_loader_opts lo;
    mr_loader_opts_init(&lo);
    lo.state = state;
    lo.epochs = 0;
    return mr_loader_open(ds, sampler, NULL, NULL, &lo, out);
}

/* The same state somewhere else in the epoch. */
static void move_state(const char *state, uint64_t position, char *out, size_t cap)
{
    const char *at = strstr(state, "\"position\": "), *rest = at ? strchr(at, ',') : NULL;
    snprintf(out, cap, "%.*s\"position\": %" PRIu64 "%s", at ? (int)(at - state) : 0, state,
             position, rest ? rest : "");
}

int bench_billion(const struct bench_opts *o, double *out)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_loader *ld = NULL;
    struct mr_host_memory_info before, after;
    struct mr_batch b;
    char state[1024] = "", moved[1200];
    double save[BENCH_MAX_ROUNDS], load[BENCH_MAX_ROUNDS];
    mr_host_memory_query(&before);
    int rc = mr_dataset_open("synthetic:n=1e9,shape=16", &ds);
    if (rc == 0)
        rc = mr_sampler_open("random", mr_dataset_length(ds), 1, &sampler);
    if (rc == 0)
        rc = open_billion(NULL, ds, sampler, &ld);
    for (uint64_t r = 0; r < o->rounds && rc >= 0; r++) {
        rc = mr_loader_next(ld, NULL, &b);
        uint64_t start = mr_time_ns();
        if (rc >= 0)
            rc = mr_loader_state(ld, state, sizeof state);
        save[r] = (double)(mr_time_ns() - start) * 1e-6;
        mr_loader_close(ld);
        ld = NULL;
        move_state(state, 64 * (1 + r * 15625000 / o->rounds), moved, sizeof moved);
        start = mr_time_ns();
        if (rc >= 0)
            rc = open_billion(moved, ds, sampler, &ld);
        load[r] = (double)(mr_time_ns() - start) * 1e-6;
    }
    mr_host_memory_query(&after);
    mr_loader_close(ld);
    if (sampler)
        mr_sampler_destroy(sampler);
    if (ds)
        mr_dataset_close(ds);
    if (rc < 0)
        return rc;
    out[LOADER_SAVE] = bench_median(save, o->rounds);
    out[LOADER_LOAD] = bench_median(load, o->rounds);
    out[LOADER_GROWTH] = (double)after.resident_bytes - (double)before.resident_bytes;
    return 0;
}
