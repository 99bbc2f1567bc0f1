/* What jpeg.c and jpeg_open.c share. */
#ifndef MR_LOADER_BACKENDS_JPEG_H
#define MR_LOADER_BACKENDS_JPEG_H

#include "kernels/batch/batch.h"
#include "loader/backends/backend.h"
#include "transform/transform.h"
#include <pthread.h>

/* The picture of one row. Its bytes stay until the slot's batch has been copied. */
struct mr_kept_picture {
    bool used;              /* else the row is the host's */
    uint32_t width, height; /* as stored */
    uint64_t n_bytes, cap;
    unsigned char *bytes;          /* cap of them, malloc'd; used again */
    struct mr_resample_row window; /* at: relative to the picture */
};

/* A decoder context: a decoder and what works with it. One batch's work has passed before the next
 * one's begins. */
struct mr_jpeg_context {
    pthread_mutex_t lock; /* guards all of it; device locks may be taken while it is held */
    struct mr_jpeg_unit *unit;
    struct mr_stream *stream;
    struct mr_event *done;
    bool recorded, has_lock;
    unsigned char *scratch;                        /* on the device: decoded pictures */
    struct mr_resample_row *rows, *rows_on_device; /* batch_size of them; rows: page-locked */
    struct mr_jpeg *picture;
    uint32_t *row; /* of the slot, of each picture */
};

/* One's host part runs beside another's device part. */
#define MR_JPEG_CONTEXTS 2

struct mr_jpeg_slot {
    struct mr_kept_picture *kept; /* one for each row */
    struct mr_event *done;        /* its pictures are in `rows` */
    unsigned char *rows; /* on the device: the picture field's rows, as windows leave them */
    uint32_t n;          /* of the batch in it */
};

struct mr_jpeg_state {
    int field;
    double fraction;
    uint64_t below; /* 2^32 * fraction: draws below it */
    uint64_t row_bytes;
    uint64_t from_offset; /* in a slot's halves, a u64 a row: its place in `rows`, or UINT64_MAX */
    uint64_t scratch_bytes, most_pixels; /* of a context, of a picture */
    uint32_t out_w, out_h;
    struct mr_jpeg_context context[MR_JPEG_CONTEXTS];
    double cpu_rate, gpu_rate; /* pictures/s when the share was chosen; 0: it was given */
    _Atomic uint64_t decoded, refused;
};

int mr_jpeg_plan(struct mr_backend *b);
int mr_jpeg_open_all(struct mr_backend *b);
int mr_jpeg_slot_open(struct mr_backend *b, struct mr_slot *slot, void *own);
void mr_jpeg_slot_close(struct mr_backend *b, void *own);
void mr_jpeg_bytes(const struct mr_backend *b, uint64_t n_slots, uint64_t *device, uint64_t *host);
void mr_jpeg_close_all(struct mr_backend *b);

/* Measures both sides, and sets fraction. Returns 0, MR_EDEVICE, -ENOMEM. */
int mr_jpeg_choose_share(struct mr_backend *b);

/* Keeps a picture's bytes for the device. Returns 1, 0: the host is to decode it; -ENOMEM. */
int mr_jpeg_keep(const struct mr_backend *b, struct mr_kept_picture *to, const struct mr_at *at,
                 const struct mr_bytes *bytes, struct mr_picture *out);
/* Decodes those of n rows that are kept into `out`, which holds as many. from[row] is set to a
 * row's place in out; of those that are refused it stays UINT64_MAX. [out] n_out: rows of out that
 * are written. Returns 0, MR_EDEVICE. The context is locked. */
int mr_jpeg_decode_rows(const struct mr_backend *b, struct mr_jpeg_context *c,
                        struct mr_kept_picture *kept, uint64_t n, unsigned char *out,
                        uint64_t *from, uint32_t *n_out);

#endif
