/*
 * The interface of the recorder of `millrace profile` (src/recorder/) for this library, so that its
 * spans appear in the recording beside those of CUDA and NVTX. The module is found by
 * MILLRACE_RECORD_MODULE or beside the library, if MILLRACE_RECORD_DIR is set. If a module is
 * already in the process, preloaded or injected, that one is used.
 */
#ifndef MR_TRACE_RECORDER_H
#define MR_TRACE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#define MR_RECORDER_VERSION 1
#define MR_RECORDER_SYMBOL  "mr_recorder_get"

/* Callable from any thread; texts are copied. */
struct mr_recorder {
    /* A range of the domain "millrace". track: NULL for the calling thread, else the name of a
     * separate track. */
    void (*span)(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                 const char *arg_name, uint64_t arg);
    void (*counter)(const char *name, uint64_t time_ns, int64_t value);
    void (*thread)(const char *name); /* names the calling thread */
};

/* Returns NULL if the version differs or spans are not recorded in this process. */
typedef const struct mr_recorder *mr_recorder_get_fn(uint32_t version);

#endif
