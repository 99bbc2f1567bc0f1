/*
 * What the recorder of `millrace profile` (modules/record.h) offers to this library, so that its spans stand in the recording
 * beside those of CUDA and NVTX. The module is found by MILLRACE_RECORD_MODULE, or beside the library, when MILLRACE_RECORD_DIR
 * is set; a module that is in the process already, preloaded or injected, is that one.
 */
#ifndef MR_TRACE_RECORDER_H
#define MR_TRACE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#define MR_RECORDER_VERSION 1
#define MR_RECORDER_SYMBOL  "mr_recorder_get"

/* Any thread; texts are copied. */
struct mr_recorder {
    /* A range of the domain "millrace". track: NULL for the calling thread, else a track of its own, by content. */
    void (*span)(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                 const char *arg_name, uint64_t arg);
    void (*counter)(const char *name, uint64_t time_ns, int64_t value);
    void (*thread)(const char *name); /* the calling one's */
};

/* NULL: another version, or spans are not recorded in this process. */
typedef const struct mr_recorder *mr_recorder_get_fn(uint32_t version);

#endif
