/*
 * What the experiments of `millrace bench` share.
 */
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "pipeline.h"

/* One line of an option table that fills a `type`. */
#define BENCH_OPTION(of, option, kind, member, ...)                                                \
    {                                                                                              \
        .name = option, .type = kind, .offset = offsetof(of, member), __VA_ARGS__                  \
    }

/* --plot, of a command that draws beside its table. */
#define BENCH_PLOT_OPTION(of)                                                                      \
    BENCH_OPTION(of, "plot", MR_OPT_STRING, plot, .meta = "FILE",                                  \
                 .help = "Draw a chart: FILE.svg or FILE.html")

/* --repeats, --time and --threads, of commands where they mean this. */
#define BENCH_REPEATS_OPTION(of, n, most)                                                          \
    BENCH_OPTION(of, "repeats", MR_OPT_UINT, repeats, .initial = n, .min = 1, .max = most,         \
                 .unit = "repeats",                                                                \
                 .help = "Measurements of each row, in turn; medians are shown")
#define BENCH_TIME_OPTION(of, time)                                                                \
    BENCH_OPTION(of, "time", MR_OPT_DURATION, time_ns, .initial = time, .min = 1e6, .max = 3600e9, \
                 .unit = "s", .help = "Duration of each measurement")
#define BENCH_THREADS_OPTION(of)                                                                   \
    BENCH_OPTION(of, "threads", MR_OPT_UINT, threads, .initial = "0", .max = 512,                  \
                 .unit = "threads",                                                                \
                 .help = "Compute threads on cpu; 0: one per processor that this process may use")

struct bench_opts {
    struct cli_common common;
    char *mnist, *cases, *dataset, *plot;
    struct mr_loader_opts loader;
    uint64_t rounds, samples, time_ns;
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

#define BENCH_MAX_ROUNDS 1000

/* The columns of bench loader: medians over the rounds. */
enum bench_loader_column {
    LOADER_CASE,
    LOADER_WORKERS,
    LOADER_RATE,
    LOADER_VARIATION,
    LOADER_OURS,
    LOADER_MEMCPY,
    LOADER_OF_MEMCPY,
    LOADER_TO_MEMORY,
    LOADER_GATHER,
    LOADER_OF_GATHER,
    LOADER_CPU,
    LOADER_GATHER_CPU,
    LOADER_HEAP,
    LOADER_FIRST_BATCH,
    LOADER_FIRST_CPU,
    LOADER_FIRST_FAULTS,
    LOADER_FIRST_RESIDENT,
    LOADER_GZ_FIRST_BATCH,
    LOADER_INFLATE,
    LOADER_SAVE,
    LOADER_LOAD,
    LOADER_GROWTH,
    LOADER_N_COLUMNS
};

/* Opens the device of an experiment that Ctrl-C may end. copies: devices without memory of their
 * own are refused. info may be NULL. [out] out: NULL after a failure. Returns an exit code, the
 * error printed. */
int bench_open(const char *uri, bool copies, struct mr_device **out, struct mr_device_info *info);

/* Between the parts of a long measurement: 0, or MR_ECANCELLED after an interrupt. */
int bench_go_on(void);
/* The same within one part: mr_memory_acquire(), and a copy, or ones (from: NULL). Return 0, or an
 * error, such as MR_ECANCELLED. */
int bench_acquire(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out);
int bench_fill(void *to, const void *from, uint64_t bytes);

/* Of this process, all threads. */
double bench_cpu_seconds(void);

/* Sorts v. */
double bench_median(double *v, uint64_t n);

/* Runs the loader over the shuffled set for `seconds`, after a quarter of that to warm up. Returns
 * 0 or the error. */
int bench_ours(const struct bench_set *set, const struct bench_opts *opts, double seconds,
               struct bench_ours *out);

/*
 * Copies with plain memcpy in `threads` threads for `seconds`, in pieces, from a source of
 * src_bytes (gone over in order, again and again) to a destination of dst_bytes. Returns 0 or the
 * error.
 */
int bench_memcpy(uint64_t src_bytes, uint64_t dst_bytes, uint64_t piece, uint32_t threads,
                 double seconds, double *out_bytes_per_s);

enum { BENCH_GATHERS = 4 }; /* plain, with prefetch, in huge pages, both */

struct bench_gathered {
    double bytes_per_s, cpu_ns_per_row;
};

/*
 * Gathers n rows in random order into a ring, by each of the loops in turn, in `threads` threads
 * (at most n), for `seconds` together. [out] out: of each loop. Returns 0 or the error.
 */
int bench_gather(uint64_t n, uint64_t row_bytes, uint32_t threads, double seconds,
                 struct bench_gathered out[BENCH_GATHERS]);

/* Cases of bench loader that measure a start: to the first batch of MNIST's files, to that of large
 * samples on a simulated device, and of a state of 10^9 samples. [out] out: by column. */
int bench_first_batch(const struct bench_opts *o, double *out);
int bench_first_large(const struct bench_opts *o, double *out);
int bench_billion(const struct bench_opts *o, double *out);

#endif
