/* Records of the trace, as its writers (perfetto.c) see them.
 *
 * Threads record into rings of their own (trace.c). When a trace is stopped, the rings are passed
 * to a writer as an array of struct mr_trace_thread; nothing records while it runs. recorder.h is
 * the other output: the profiler's recorder, if this process runs under `millrace profile`. */
#ifndef MR_TRACE_TRACE_H
#define MR_TRACE_TRACE_H

#include "base/base.h"
#include "trace/recorder.h"
#include <millrace/trace.h>

enum mr_trace_kind { MR_TRACE_SPAN, MR_TRACE_SPAN_ON, MR_TRACE_COUNTER };

struct mr_trace_record {
    const char *name;
    const char *track; /* MR_TRACE_SPAN_ON */
    const char *arg_name;
    uint64_t start_ns, end_ns;
    uint64_t arg; /* for MR_TRACE_COUNTER: the value's bits */
    uint32_t kind;
};

/* A thread that recorded something, and its ring's contents, oldest first, in two runs of
 * records. */
struct mr_trace_thread {
    char name[32];
    int32_t tid;
    const struct mr_trace_record *run[2];
    uint64_t n[2];
};

/* As mr_trace_span_on(), but not to the profiler's recorder: it has what the span says from
 * mr_trace_devices(). */
void mr_trace_span_here(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                        const char *arg_name, uint64_t arg);

/* Writes a Perfetto trace under a temporary name, which is then renamed. Returns 0 or -errno. */
int mr_trace_write_perfetto(const char *path, const struct mr_trace_thread *threads,
                            uint64_t n_threads);

/* The profiler's recorder in this process; NULL if there is none. Looked up at the first call. Any
 * thread. */
const struct mr_recorder *mr_trace_recorder(void);
/* The same for simulated devices. */
const struct mr_recorder_devices *mr_trace_devices(void);

#endif
