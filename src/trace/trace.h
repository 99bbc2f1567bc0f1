/* The recorder's records, as the writers see them. */
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
    uint64_t arg; /* MR_TRACE_COUNTER: the value's bits */
    uint32_t kind;
};

/* A thread that recorded something, and what is left of it in its ring, oldest first: two runs of records. */
struct mr_trace_thread {
    char name[32];
    int32_t tid;
    const struct mr_trace_record *run[2];
    uint64_t n[2];
};

/* Writes a Perfetto trace, under a temporary name that is then renamed. Returns 0, -errno. */
int mr_trace_write_perfetto(const char *path, const struct mr_trace_thread *threads,
                            uint64_t n_threads);

/* The profiler's recorder in this process; NULL: none. Found at the first call, cheap afterwards. Any thread. */
const struct mr_recorder *mr_trace_recorder(void);

#endif
