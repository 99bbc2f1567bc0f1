/*
 * What the experiments of `millrace bench` share.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli.h"

struct bench_opts {
    struct cli_common common;
    char *mnist, *cases;
    uint64_t workers, prefetch, rounds, samples;
    uint64_t time_ns;
};

/* A data set as a case uses it. */
struct bench_set {
    struct mr_dataset *ds;
    const char *chain; /* NULL: none */
    uint64_t batch_size;
};

struct bench_ours {
    double samples_per_s, bytes_per_s, cpu_ns_per_sample, heap_growth_per_sample, first_batch_ms;
    uint32_t workers;
};

/* Runs the loader over the shuffled set for `seconds`, after a quarter of that to warm up. Returns 0 or the error. */
int bench_ours(const struct bench_set *set, const struct bench_opts *opts, double seconds, struct bench_ours *out);

/*
 * Copies with plain memcpy in `threads` threads for `seconds`, in pieces, from a source of src_bytes (gone over in order,
 * again and again) to a destination of dst_bytes. Returns 0 or the error.
 */
int bench_memcpy(uint64_t src_bytes, uint64_t dst_bytes, uint64_t piece, uint32_t threads, double seconds,
                 double *out_bytes_per_s);

#endif
