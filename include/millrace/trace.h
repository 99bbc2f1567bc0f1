/*
 * Traces: what every stage and thread did, and when.
 *
 *     mr_trace_start(0);
 *     ... // run the loader
 *     mr_trace_stop("run.perfetto-trace", NULL);
 *
 * While a trace runs, each thread records spans into a ring buffer of its own, without locks. When
 * a ring is full, its oldest spans are overwritten and counted as lost. mr_trace_stop() writes a
 * file in Perfetto's protobuf format, which ui.perfetto.dev and trace_processor open.
 *
 * In a program that runs under `millrace profile`, spans and counters also go into its recording,
 * from the start and without mr_trace_start(); mr_trace_on() is then always 1.
 *
 * Threads: start and stop belong to one thread; the others may be called from any thread. fork: a
 * trace is its process's: in a child none runs until it starts one.
 */
#ifndef MILLRACE_TRACE_H
#define MILLRACE_TRACE_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts a trace of this process. spans_per_thread: the size of each ring; 0: 65,536.
 * Returns 0, MR_EMISUSE if a trace is already running. */
MR_API int mr_trace_start(uint32_t spans_per_thread);

/*
 * Ends the trace and writes it.
 * path: written under a temporary name and renamed, so the file is never partial. NULL: discard the
 * trace. [out] out_lost: spans that were overwritten; may be NULL. Blocks.
 * Returns 0, MR_EMISUSE if no trace is running, -errno of the write.
 */
MR_API int mr_trace_stop(const char *path, uint64_t *out_lost);

/* 1 while a trace runs, else 0. Cheap enough for a hot loop. */
MR_API int mr_trace_on(void);

/* Names the calling thread's track, whether or not a trace is running. name: copied. */
MR_API void mr_trace_thread(const char *name);

/*
 * Records a span on the calling thread's track. Does nothing when no trace is running.
 * name: constant text that outlives the trace. start_ns, end_ns: of mr_time_ns(). arg: a number
 * shown with the span, such as a batch index. arg_name: its name, constant text; NULL: no number.
 */
MR_API void mr_trace_span(const char *name, uint64_t start_ns, uint64_t end_ns,
                          const char *arg_name, uint64_t arg);

/* Records a span on a named track, such as "sim H2D engine". track: constant text. The spans of one
 * track must not overlap. The rest is as for mr_trace_span(). */
MR_API void mr_trace_span_on(const char *track, const char *name, uint64_t start_ns,
                             uint64_t end_ns, const char *arg_name, uint64_t arg);

/* Records a counter's new value. name: constant text, such as "ready batches". time_ns: of
 * mr_time_ns(). */
MR_API void mr_trace_counter(const char *name, uint64_t time_ns, int64_t value);

#ifdef __cplusplus
}
#endif
#endif
