/* How long a start takes: the first batch of MNIST's files, that of large samples, and a state of
 * 10^9 samples. */
#include "bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

/* What a start has taken of the system: faults of the process, its CPU time, what it holds. */
struct taken {
    double cpu_s, faults, resident;
};

static struct taken take(void)
{
    struct rusage u;
    struct mr_host_memory_info memory = {.size = sizeof memory};
    getrusage(RUSAGE_SELF, &u);
    mr_host_memory_query(&memory);
    return (struct taken){bench_cpu_seconds(), (double)u.ru_minflt, (double)memory.resident_bytes};
}

/* Opens a loader, takes one batch. [out] v: milliseconds, CPU milliseconds, faults, bytes. */
static int first_large(const struct bench_opts *o, double *v[4], uint64_t round)
{
    struct cli_pipeline p = {0};
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader_opts lo = o->loader;
    lo.batch_size = 256;
    int rc = cli_pipeline_open(&p, "sim:h2d=55",
                               "synthetic:n=1e6,shape=600000,dtype=u8,values=zero", NULL);
    if (rc < 0)
        goto out;
    struct taken before = take();
    rc = cli_pipeline_start(&p, &lo);
    if (rc == 0)
        rc = mr_loader_next(p.loader, p.stream, &b);
    if (rc < 0)
        goto out;
    struct taken after = take();
    v[0][round] = (double)(mr_time_ns() - p.start_ns) * 1e-6;
    v[1][round] = (after.cpu_s - before.cpu_s) * 1e3;
    v[2][round] = after.faults - before.faults;
    v[3][round] = after.resident - before.resident;
    rc = mr_loader_release(p.loader, &b, p.stream);
out:
    cli_pipeline_close(&p);
    return rc;
}

int bench_first_large(const struct bench_opts *o, double *out)
{
    static const int columns[] = {LOADER_FIRST_BATCH, LOADER_FIRST_CPU, LOADER_FIRST_FAULTS,
                                  LOADER_FIRST_RESIDENT};
    double measured[4][BENCH_MAX_ROUNDS], *v[4];
    int rc = 0;
    for (int c = 0; c < 4; c++)
        v[c] = measured[c];
    for (uint64_t r = 0; r < o->rounds && rc >= 0; r++)
        rc = first_large(o, v, r);
    for (int c = 0; c < 4 && rc >= 0; c++)
        out[columns[c]] = bench_median(v[c], o->rounds);
    return rc < 0 ? rc : 0;
}

static int start_billion(struct cli_pipeline *p, const char *state)
{
    struct mr_loader_opts lo;
    mr_loader_opts_init(&lo);
    lo.state = state;
    lo.epochs = 0;
    return cli_pipeline_start(p, &lo);
}

/* The same state somewhere else in the epoch. */
static void move_state(const char *state, uint64_t position, char *out, size_t cap)
{
    const char *at = strstr(state, "\"position\": "), *rest = at ? strchr(at, ',') : NULL;
    snprintf(out, cap, "%.*s\"position\": %" PRIu64 "%s", at ? (int)(at - state) : 0, state,
             position, rest ? rest : "");
}

/* Saves the state after a batch, and loads it at another position. */
static int save_and_load(struct cli_pipeline *p, uint64_t position, double *save, double *load)
{
    struct mr_batch b = {.size = sizeof b};
    char state[1024], moved[1200];
    int rc = mr_loader_next(p->loader, NULL, &b);
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns();
    rc = mr_loader_state(p->loader, state, sizeof state);
    *save = (double)(mr_time_ns() - start) * 1e-6;
    if (rc < 0)
        return rc;
    cli_pipeline_stop(p);
    move_state(state, position, moved, sizeof moved);
    start = mr_time_ns();
    rc = start_billion(p, moved);
    *load = (double)(mr_time_ns() - start) * 1e-6;
    return rc;
}

static int run_billion(struct cli_pipeline *p, uint64_t rounds, double *save, double *load)
{
    int rc = cli_pipeline_open(p, NULL, "synthetic:n=1e9,shape=16", NULL);
    if (rc < 0)
        return rc;
    rc = cli_pipeline_order(p, "random", 1);
    if (rc < 0)
        return rc;
    rc = start_billion(p, NULL);
    for (uint64_t r = 0; r < rounds && rc >= 0; r++)
        rc = save_and_load(p, 64 * (1 + r * 15625000 / rounds), &save[r], &load[r]);
    return rc;
}

int bench_billion(const struct bench_opts *o, double *out)
{
    struct cli_pipeline p = {0};
    struct mr_host_memory_info before = {.size = sizeof before}, after = {.size = sizeof after};
    double save[BENCH_MAX_ROUNDS], load[BENCH_MAX_ROUNDS];
    mr_host_memory_query(&before);
    int rc = run_billion(&p, o->rounds, save, load);
    mr_host_memory_query(&after);
    cli_pipeline_close(&p);
    if (rc < 0)
        return rc;
    out[LOADER_SAVE] = bench_median(save, o->rounds);
    out[LOADER_LOAD] = bench_median(load, o->rounds);
    out[LOADER_GROWTH] = (double)after.resident_bytes - (double)before.resident_bytes;
    return 0;
}
