/*
 * The limit of `millrace bench loader` that a loader of shuffled rows has: plain loops that gather
 * rows of memory in random order into a ring, in as many threads. They know the order ahead and do
 * nothing else. Which one is best differs between processors, so each is tried.
 */
#include "bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LINE      64
#define AHEAD     2 /* rows */
#define RING      (4u << 20)
#define HUGE_PAGE (2u << 20)

static const struct {
    uint32_t lines; /* of a row AHEAD, to be prefetched */
    bool huge;
} loops[BENCH_GATHERS] = {{0, false}, {16, false}, {0, true}, {16, true}};

struct gatherer {
    const unsigned char *src;
    unsigned char *dst;
    const uint32_t *order;
    uint64_t n, n_ring, row_bytes;
    uint32_t lines;
    double seconds;
    double rate, cpu_ns; /* [out] bytes/s; a row */
};

static double thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void prefetch(const unsigned char *row, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(row + at, 0, 2);
}

static void *gather(void *arg)
{
    struct gatherer *g = arg;
    uint64_t ahead = (uint64_t)g->lines * LINE, rows = 0, to = 0;
    double cpu = thread_cpu_ns();
    if (ahead > g->row_bytes)
        ahead = g->row_bytes;
    uint64_t start = mr_time_ns(), now;
    do {
        for (uint64_t i = 0; i < g->n; i++) {
            if (ahead && i + AHEAD < g->n)
                prefetch(g->src + g->order[i + AHEAD] * g->row_bytes, ahead);
            memcpy(g->dst + to * g->row_bytes, g->src + g->order[i] * g->row_bytes, g->row_bytes);
            to = to + 1 < g->n_ring ? to + 1 : 0;
        }
        rows += g->n;
        now = mr_time_ns();
    } while ((double)(now - start) * 1e-9 < g->seconds && !cli_interrupted());
    g->rate = (double)(rows * g->row_bytes) / ((double)(now - start) * 1e-9);
    g->cpu_ns = (thread_cpu_ns() - cpu) / (double)rows;
    return NULL;
}

/* A shuffled list of the rows, each once. */
static uint32_t *order_create(uint64_t n)
{
    uint32_t *order = calloc(n, sizeof *order);
    uint64_t draw = 1;
    for (uint64_t i = 0; order && i < n; i++) {
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        uint64_t j = (draw >> 33) % (i + 1);
        order[i] = order[j];
        order[j] = (uint32_t)i;
    }
    return order;
}

static unsigned char *pages_create(uint64_t bytes, bool huge)
{
    void *p =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes + HUGE_PAGE, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* advice */
    memset(p, 1, bytes);
    return p;
}

static int run_loop(struct gatherer *g, uint32_t threads, struct bench_gathered *out)
{
    pthread_t *ids = calloc(threads, sizeof *ids);
    uint32_t started = 0;
    if (!ids)
        return mr_error_set(-ENOMEM, "gather: no memory for %" PRIu32 " threads", threads);
    while (started < threads && pthread_create(&ids[started], NULL, gather, &g[started]) == 0)
        started++;
    *out = (struct bench_gathered){0};
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(ids[i], NULL);
        out->bytes_per_s += g[i].rate;
        out->cpu_ns_per_row += g[i].cpu_ns / threads;
    }
    free(ids);
    return started == threads
               ? 0
               : mr_error_set(-EAGAIN,
                              "gather: thread %" PRIu32 " of %" PRIu32 " could not be started",
                              started + 1, threads);
}

int bench_gather(uint64_t n, uint64_t row_bytes, uint32_t threads, double seconds,
                 struct bench_gathered out[BENCH_GATHERS])
{
    uint64_t n_ring = RING / threads / row_bytes + 1, ring = n_ring * row_bytes;
    struct gatherer *g = calloc(threads, sizeof *g);
    uint32_t *order = order_create(n);
    int rc = 0;
    for (int k = 0; k < BENCH_GATHERS && rc == 0 && !cli_interrupted(); k++) {
        unsigned char *src = pages_create(n * row_bytes, loops[k].huge),
                      *dst = pages_create(ring * threads, loops[k].huge);
        if (!g || !order || !src || !dst)
            rc =
                mr_error_set(-ENOMEM, "gather: no memory for %" PRIu64 " rows of %" PRIu64 " bytes",
                             n, row_bytes);
        for (uint32_t i = 0; i < threads && rc == 0; i++)
            g[i] = (struct gatherer){.src = src,
                                     .dst = dst + i * ring,
                                     .order = order + n / threads * i,
                                     .n = n / threads,
                                     .n_ring = n_ring,
                                     .row_bytes = row_bytes,
                                     .lines = loops[k].lines,
                                     .seconds = seconds / BENCH_GATHERS};
        if (rc == 0)
            rc = run_loop(g, threads, &out[k]);
        if (src)
            munmap(src, n * row_bytes + HUGE_PAGE);
        if (dst)
            munmap(dst, ring * threads + HUGE_PAGE);
    }
    free(g);
    free(order);
    return rc;
}
