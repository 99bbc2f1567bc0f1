/*
 * Traces: what every stage and thread did, and when.
 *
 * While a trace runs, each stage records spans into a ring of its own thread, without locks; when a ring is full the
 * oldest spans are lost and counted. mr_trace_stop() writes a file in Perfetto's protobuf format (TrackEvent packets),
 * which ui.perfetto.dev and trace_processor open.
 *
 * In a program that `millrace profile` runs, spans and counters go into its recording too, from the start and without
 * mr_trace_start(): mr_trace_on() is 1 all the time.
 *
 * Threads: spans may be recorded from any thread; start and stop belong to one.
 */
#ifndef MILLRACE_TRACE_H
#define MILLRACE_TRACE_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts recording in this process. spans_per_thread: ring size; 0: 65,536. Returns 0, MR_EMISUSE when one runs. */
MR_API int mr_trace_start(uint32_t spans_per_thread);

/* 1 while a trace runs; cheap enough to ask in a loop. */
MR_API int mr_trace_on(void);

/* Names the calling thread's track ("worker 3"). The text is copied. Works whether or not a trace runs. */
MR_API void mr_trace_thread(const char *name);

/*
 * Records a span on the calling thread's track.
 * name: a constant string that outlives the trace. start_ns, end_ns: mr_time_ns(). arg: a number shown with it (batch
 * index, bytes); arg_name: constant string, NULL for none. Nothing happens when no trace runs.
 */
MR_API void mr_trace_span(const char *name, uint64_t start_ns, uint64_t end_ns, const char *arg_name, uint64_t arg);

/* The same on a named track ("sim H2D engine"); track: a constant string. Spans on one track must not overlap. */
MR_API void mr_trace_span_on(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                             const char *arg_name, uint64_t arg);

/* A counter's new value ("ready batches"); name: a constant string. */
MR_API void mr_trace_counter(const char *name, uint64_t time_ns, int64_t value);

/*
 * Ends recording. path: the file to write (made under a temporary name and renamed, so there is never a partial one), or
 * NULL to throw the trace away. [out] out_lost: spans that did not fit; may be NULL.
 * Returns 0, -errno of the write, MR_EMISUSE when none runs.
 */
MR_API int mr_trace_stop(const char *path, uint64_t *out_lost);

#ifdef __cplusplus
}
#endif
#endif
