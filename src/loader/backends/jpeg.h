/* What jpeg.c, jpeg_engine.c and jpeg_open.c share. */
#ifndef MR_LOADER_BACKENDS_JPEG_H
#define MR_LOADER_BACKENDS_JPEG_H

#include "kernels/batch/batch.h"
#include "loader/backends/backend.h"
#include "transform/transform.h"
#include <pthread.h>

struct mr_jpeg_slot;

/* The picture of one row. Its bytes stay until the slot's batch has been copied. */
struct mr_kept_picture {
    bool refused;           /* by the decoder, which the host then does */
    uint32_t place;         /* in the slot's `rows` */
    uint32_t width, height; /* as stored */
    uint64_t n_bytes, cap;
    unsigned char *bytes;          /* cap of them, malloc'd; used again */
    struct mr_resample_row window; /* at: relative to the picture */
    struct mr_jpeg_slot *slot;
    struct mr_kept_picture *next; /* that waits */
};

struct mr_jpeg_slot {
    struct mr_kept_picture *kept; /* one for each row */
    struct mr_event *done;        /* what the engine has decoded of it is in `rows` */
    unsigned char *rows; /* on the device: the picture field's rows, as windows leave them */
    uint64_t t;          /* the batch of n and n_left; UINT64_MAX: none yet */
    uint32_t n, n_left;  /* [engine.lock] given to the engine; of these: not decoded yet */
};

#define MR_JPEG_CHUNK 256 /* pictures that the engine decodes at a time, at most */
#define MR_JPEG_AHEAD 512 /* with AUTO: it is given more while fewer wait */

enum mr_jpeg_state_of_engine { MR_JPEG_OPENING, MR_JPEG_WORKS, MR_JPEG_FAILED };

/* The device's decoder and the thread that drives it. */
struct mr_jpeg_engine {
    pthread_mutex_t lock;  /* guards all up to `error`; nothing of ours is locked under it */
    pthread_cond_t wanted; /* there is something to do */
    pthread_cond_t passed; /* a chunk is decoded, or the state is another */
    bool has_lock, started, stop;
    struct mr_kept_picture *first, **last; /* they wait, in the order they came */
    _Atomic uint32_t n_waiting;            /* there, and in `next` */
    _Atomic int state;                     /* enum mr_jpeg_state_of_engine; never goes back */
    struct mr_error_kept error;            /* of MR_JPEG_FAILED */
    pthread_t thread;
    struct mr_jpeg_unit *unit; /* once it works */
    _Atomic bool crowded;      /* its thread could not be put before others: workers step back */
    /* The thread's. Chunks take the halves in turn: windows of one are resampled, in a stream of
     * their own, while the next one is decoded. */
    struct mr_kept_picture *next, **next_end; /* what it has taken off the list above */
    struct mr_stream *stream, *resampling;
    struct mr_event *through; /* the latest chunk: nvJPEG may be called again */
    struct mr_event *done[2]; /* a half may be used again */
    bool recorded, half_recorded[2];
    uint32_t half;
    unsigned char *scratch; /* on the device: decoded pictures, two halves of g->scratch_bytes */
    struct mr_resample_row *rows, *rows_on_device; /* two chunks'; rows: page-locked */
    struct mr_jpeg picture[MR_JPEG_CHUNK];
    struct mr_kept_picture *kept[MR_JPEG_CHUNK];
    /* Read by any thread. */
    _Atomic uint64_t decoded, busy_ns, from_ns, to_ns; /* from: it works; to: its latest chunk */
};

struct mr_jpeg_state {
    int field;
    bool automatic;
    uint32_t ahead; /* MR_JPEG_AHEAD, or fewer where fewer rows are under way */
    double fraction;
    uint64_t below; /* 2^32 * fraction: draws below it */
    uint64_t row_bytes;
    uint64_t from_offset; /* in a slot's halves, a u64 a row: its place in `rows`, or UINT64_MAX */
    uint64_t scratch_bytes; /* for one chunk */
    uint64_t most_pixels;   /* of a picture */
    uint32_t out_w, out_h;
    struct mr_jpeg_engine engine;
    /* Of the pictures that it was asked for, those that the host decodes: because the engine had
     * enough to do, because it damaged them; all of them, also while the engine opened. */
    _Atomic uint64_t declined, refused, by_host, turn;
    _Atomic uint64_t decoded; /* by the device */
};

int mr_jpeg_plan(struct mr_backend *b);
int mr_jpeg_open_all(struct mr_backend *b);
int mr_jpeg_slot_open(struct mr_backend *b, struct mr_slot *slot, void *own);
void mr_jpeg_slot_close(struct mr_backend *b, void *own);
void mr_jpeg_bytes(const struct mr_backend *b, uint64_t n_slots, uint64_t *device, uint64_t *host);
void mr_jpeg_close_all(struct mr_backend *b);

/* Adds to the calling thread's nice value; lowering it mostly needs CAP_SYS_NICE. Returns whether
 * it could. */
bool mr_jpeg_nice(int more);
/* Starts the thread, which opens the decoder. Returns 0, -errno, -ENOMEM. */
int mr_jpeg_engine_start(struct mr_backend *b);
/* Waits until it works. Returns 0, MR_EUNSUPPORTED, MR_EDEVICE, -ENOMEM. */
int mr_jpeg_engine_wait(struct mr_jpeg_engine *e);
/* Ends the thread; what waits is not decoded. The decoder is closed. */
void mr_jpeg_engine_stop(struct mr_jpeg_engine *e);
/* Gives it a row's picture, which is all set. */
void mr_jpeg_engine_push(struct mr_jpeg_engine *e, struct mr_jpeg_slot *slot, uint64_t t,
                         struct mr_kept_picture *kept);
/* Has it pictures of batch t in this slot that it has not decoded yet? */
bool mr_jpeg_engine_has(struct mr_jpeg_engine *e, const struct mr_jpeg_slot *slot, uint64_t t);
/* Waits until it has decoded all of batch t in this slot. Returns 0, MR_EDEVICE; 0 also if there
 * were none. */
int mr_jpeg_engine_finish(struct mr_jpeg_engine *e, struct mr_jpeg_slot *slot, uint64_t t);

#endif
