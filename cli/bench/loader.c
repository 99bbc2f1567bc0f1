/* The cases of `millrace bench loader`: our loader and a plain memcpy of the same bytes, taken in
 * turn. */
#include "bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

double bench_cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double seconds_since(uint64_t start)
{
    return (double)(mr_time_ns() - start) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, uint64_t n)
{
    qsort(v, n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- ours ---- */

/* Takes batches for `seconds`, handing each straight back. Returns samples taken, or the error. */
static int64_t take_for(struct mr_loader *ld, double seconds, uint64_t *bytes, double *took)
{
    struct mr_batch b = {.size = sizeof b};
    int64_t samples = 0;
    uint64_t start = mr_time_ns();
    int rc;
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        samples += (int64_t)b.n;
        for (int f = 0; f < b.n_fields; f++)
            *bytes += b.field[f].bytes;
        rc = mr_loader_release(ld, &b, NULL);
        if (rc == 0 && cli_interrupted())
            rc = mr_error_set(MR_ECANCELLED, "interrupted");
        if (rc < 0 || seconds_since(start) >= seconds)
            break;
    }
    *took = seconds_since(start);
    return rc < 0 ? rc : samples;
}

static int run_for(struct mr_loader *ld, double seconds, struct bench_ours *out)
{
    uint64_t bytes = 0;
    double took;
    int64_t n = take_for(ld, seconds / 4, &bytes, &took); /* warms up: page faults, caches */
    if (n <= 0)
        return (int)n;
    struct mallinfo2 before = mallinfo2();
    double cpu = bench_cpu_seconds();
    bytes = 0;
    n = take_for(ld, seconds, &bytes, &took);
    if (n <= 0)
        return (int)n;
    struct mallinfo2 after = mallinfo2();
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(ld, &st);
    out->samples_per_s = (double)n / took;
    out->bytes_per_s = (double)bytes / took;
    out->cpu_ns_per_sample = (bench_cpu_seconds() - cpu) / (double)n * 1e9;
    out->heap_growth_per_sample =
        (double)(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / (double)n;
    out->first_batch_ms = (double)st.first_batch_ns * 1e-6;
    out->workers = st.workers;
    return 0;
}

int bench_ours(const struct bench_set *set, const struct bench_opts *o, double seconds,
               struct bench_ours *out)
{
    struct cli_pipeline p = {.ds = set->ds, .shared = true};
    struct mr_loader_opts lo = o->loader;
    lo.batch_size = set->batch_size;
    lo.epochs = 0;
    int rc = cli_pipeline_chain(&p, set->chain);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_order(&p, "random", 1);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_start(&p, &lo);
    if (rc < 0)
        goto out;
    rc = run_for(p.loader, seconds, out);
out:
    cli_pipeline_close(&p);
    return rc;
}

/* ---- memcpy ---- */

/* Held until all threads are there; go: they all are. */
struct latch {
    pthread_mutex_t lock;
    bool go;
};

struct copier {
    const unsigned char *src;
    unsigned char *dst;
    uint64_t src_bytes, dst_bytes, piece;
    double seconds;
    struct latch *latch;
    double rate;
};

static void *copy_for(void *arg)
{
    struct copier *c = arg;
    uint64_t from = 0, to = 0, done = 0;
    pthread_mutex_lock(&c->latch->lock);
    bool go = c->latch->go;
    pthread_mutex_unlock(&c->latch->lock);
    if (!go)
        return NULL;
    uint64_t start = mr_time_ns();
    do {
        for (int i = 0; i < 64; i++) {
            memcpy(c->dst + to, c->src + from, c->piece);
            done += c->piece;
            from = from + 2 * c->piece <= c->src_bytes ? from + c->piece : 0;
            to = to + 2 * c->piece <= c->dst_bytes ? to + c->piece : 0;
        }
    } while (seconds_since(start) < c->seconds && !cli_interrupted());
    c->rate = (double)done / seconds_since(start);
    return NULL;
}

static int start_copiers(struct copier *c, pthread_t *threads, uint32_t n, struct latch *latch,
                         double *out)
{
    uint32_t started = 0;
    pthread_mutex_lock(&latch->lock);
    while (started < n && pthread_create(&threads[started], NULL, copy_for, &c[started]) == 0)
        started++;
    latch->go = started == n;
    pthread_mutex_unlock(&latch->lock);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        *out += c[i].rate;
    }
    return started == n ? 0
                        : mr_error_set(-EAGAIN, "memcpy: thread %u of %u could not be started",
                                       started + 1, n);
}

int bench_memcpy(uint64_t src_bytes, uint64_t dst_bytes, uint64_t piece, uint32_t threads,
                 double seconds, double *out_bytes_per_s)
{
    struct copier *c = calloc(threads, sizeof *c);
    pthread_t *ids = calloc(threads, sizeof *ids);
    uint64_t src_share = src_bytes / threads / piece * piece + piece,
             dst_share = dst_bytes / threads / piece * piece + piece;
    unsigned char *src = malloc(src_share * threads), *dst = malloc(dst_share * threads);
    struct latch latch = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = c && ids && src && dst
                 ? 0
                 : mr_error_set(-ENOMEM, "memcpy: no memory for %" PRIu64 " bytes", src_bytes);
    if (rc == 0) {
        memset(src, 1, src_share * threads);
        memset(dst, 2, dst_share * threads);
        for (uint32_t i = 0; i < threads; i++)
            c[i] = (struct copier){src + i * src_share,
                                   dst + i * dst_share,
                                   src_share,
                                   dst_share,
                                   piece,
                                   seconds,
                                   &latch,
                                   0};
        *out_bytes_per_s = 0;
        rc = start_copiers(c, ids, threads, &latch, out_bytes_per_s);
    }
    free(c);
    free(ids);
    free(src);
    free(dst);
    return rc;
}
