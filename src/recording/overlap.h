/* Why copies did not overlap with compute: for the report and for rules. */
#ifndef MR_RECORDING_OVERLAP_H
#define MR_RECORDING_OVERLAP_H

#include "recording/look.h"

enum mr_overlap_reason {
    MR_OVERLAPPED,
    MR_OVERLAP_PAGEABLE,
    MR_OVERLAP_SYNCHRONIZED,
    MR_OVERLAP_SAME_STREAM,
    MR_OVERLAP_ENGINE,
    MR_OVERLAP_DEPENDENCY,
    MR_OVERLAP_NOTHING,
    MR_N_OVERLAP
};
const char *mr_overlap_text(enum mr_overlap_reason reason);

struct mr_kernel_streams { /* those of a place that run kernels */
    uint64_t *key;         /* sorted; for free() */
    uint64_t n;
};
int mr_kernel_streams_make(const struct mr_look *look, struct mr_kernel_streams *out);
bool mr_kernel_streams_has(const struct mr_kernel_streams *streams, const struct mr_rec_op *op);

/* Of the copy look->ops[at]. */
enum mr_overlap_reason mr_overlap_why(const struct mr_look *look,
                                      const struct mr_kernel_streams *streams, uint64_t at);

bool mr_call_named_async(const struct mr_recording *rec, const struct mr_rec_api *api);
/* The waiting call that the copy's thread made directly after issuing it, before it ended; NULL:
 * none. */
const struct mr_rec_api *mr_sync_after(const struct mr_look *look, const struct mr_rec_op *copy);

#endif
