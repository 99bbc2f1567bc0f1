/*
 * A user's located set beside raw: on the same file, in one run: 4 KiB records in random order.
 * The sets take turns, so that a change of the machine's load touches all of them; rates and
 * processor time a sample are medians. usage: located FILE [ROUNDS] [WORKERS]
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define RECORD   4096
#define MOST     99
#define MEASURED 1000000

static int locate(void *user, uint64_t index, struct mr_range range[], int max)
{
    (void)user, (void)max;
    range[0].offset = index * RECORD;
    range[0].bytes = RECORD;
    return 1;
}

static int decode(void *user, const struct mr_sample_context *context, const struct mr_bytes in[],
                  int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)context, (void)n, (void)dim;
    memcpy(row[0], in[0].data, in[0].n);
    return 0;
}

static int open_located(const char *file, uint64_t n, int decodes, struct mr_dataset **out)
{
    struct mr_located_opts o;
    mr_located_opts_init(&o);
    o.name = "records";
    o.n = n;
    o.n_fields = 1;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {RECORD / sizeof(float)}};
    o.n_files = 1;
    o.file = &file;
    o.locate = locate;
    o.decode = decodes ? decode : NULL;
    return mr_dataset_open_located(&o, out);
}

/* Of all threads. */
static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* So many samples that what starting costs does not show. [out] rate: samples/s, from the second
 * batch on; cost: processor time, ns a sample. */
static int measure(struct mr_dataset *ds, uint32_t workers, double *rate, double *cost)
{
    struct mr_loader_opts o;
    struct mr_sampler *order;
    struct mr_loader *loader = NULL;
    struct mr_batch b = {.size = sizeof b};
    int rc = mr_sampler_open("random", mr_dataset_length(ds), 1, &order);
    if (rc < 0)
        return rc;
    mr_loader_opts_init(&o);
    o.batch_size = 256;
    o.epochs = MEASURED / mr_dataset_length(ds) + 1;
    o.workers = workers;
    rc = mr_loader_open(ds, order, NULL, NULL, &o, &loader);
    uint64_t start = 0, n = 0;
    double spent = processor_s();
    while (rc >= 0 && (rc = mr_loader_next(loader, NULL, &b)) > 0) {
        n += start ? b.n : 0;
        mr_loader_release(loader, &b, NULL);
        start = start ? start : mr_time_ns();
    }
    *rate = (double)n * 1e9 / (double)(mr_time_ns() - start);
    *cost = (processor_s() - spent) * 1e9 / (double)(mr_dataset_length(ds) * o.epochs);
    mr_loader_close(loader);
    mr_sampler_destroy(order);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"raw", "located", "located, decode copies"};
    static double rate[3][MOST], cost[3][MOST];
    struct mr_dataset *ds[3] = {NULL};
    struct stat st;
    int rounds = argc > 2 ? atoi(argv[2]) : 9, rc = 0;
    uint32_t workers = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    if (argc < 2 || stat(argv[1], &st) || st.st_size < RECORD || rounds < 1 || rounds > MOST) {
        fprintf(stderr, "usage: located FILE [ROUNDS] [WORKERS]\n");
        return 2;
    }
    struct mr_raw_opts raw;
    mr_raw_opts_init(&raw);
    raw.path = argv[1];
    raw.dtype = MR_F32;
    raw.shape = (struct mr_shape){.rank = 1, .dim = {RECORD / sizeof(float)}};
    rc = mr_dataset_open_raw(&raw, &ds[0]);
    for (int k = 1; k < 3 && rc >= 0; k++)
        rc = open_located(argv[1], (uint64_t)st.st_size / RECORD, k - 1, &ds[k]);
    for (int i = 0; i < rounds && rc >= 0; i++)
        for (int k = 0; k < 3 && rc >= 0; k++)
            rc = measure(ds[k], workers, &rate[k][i], &cost[k][i]);
    for (int k = 0; k < 3 && rc >= 0; k++) {
        qsort(rate[k], (size_t)rounds, sizeof rate[k][0], by_value);
        qsort(cost[k], (size_t)rounds, sizeof cost[k][0], by_value);
        double r = rate[k][rounds / 2], c = cost[k][rounds / 2];
        printf("%-24s %9.0f samples/s %5.1f%%   %6.0f ns of a processor %5.1f%%\n", names[k], r,
               100 * r / rate[0][rounds / 2], c, 100 * c / cost[0][rounds / 2]);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    for (int k = 0; k < 3; k++)
        mr_dataset_close(ds[k]);
    return rc < 0;
}
