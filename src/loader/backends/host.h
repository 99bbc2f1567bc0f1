/* What other backends use of the host's: decoding on this thread, and the chain's part for workers.
 */
#ifndef MR_LOADER_BACKENDS_HOST_H
#define MR_LOADER_BACKENDS_HOST_H

#include "loader/backends/backend.h"
#include "transform/transform.h"

/* A sample between decoding and its row. */
struct mr_decoding {
    const struct mr_loader *ld;
    struct mr_at at;
    struct mr_sample sample;
    uint64_t start_ns, decoded_ns; /* of a timed row */
};

/* Decodes a sample. stored: not NULL: pictures stay as they are stored, and where they are goes
 * there. Returns 0 or the sample's error. */
int mr_host_decode(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                   struct mr_bytes *stored, struct mr_decoding *out);
/* A mr_window_choice, of a struct mr_decoding: what the chain wants of a picture. */
int mr_host_window(void *user, uint32_t width, uint32_t height, struct mr_window *out);
/* Transforms what was decoded into the row's host half. skip: a bit for each field that another
 * backend writes. Returns 0 or the sample's error. */
int mr_host_write(struct mr_worker *w, const struct mr_row *row, struct mr_decoding *d,
                  uint32_t skip);

#endif
