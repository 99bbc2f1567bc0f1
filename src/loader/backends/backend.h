/*
 * Row backends: the ways in which a row of a batch gets its bytes.
 *
 *   host      read by the storage, decoded and transformed by a worker into the host half; one copy
 *             ships the slot
 *   gds       plain ranges of files, read by a worker straight into the device half (GPUDirect)
 *   resident  the whole data set is in device memory: a worker writes an index, a kernel gathers
 *   jpeg      a worker keeps a picture's compressed bytes, the device decodes those of a batch at
 * once
 *
 * Each is a const vtable in a file of its own and a line in mr_row_backends (list.c), best first.
 * When a loader opens, each of them plans: it says whether it is asked for and can serve this data
 * set, chain and device. A loader uses those that can, up to the first one that takes every sample:
 * in practice one, or one with `host` behind it. A used backend may add per-row parts to the slot's
 * layout and memory to the sum.
 *
 * Each sample belongs to one backend. `takes` decides when the sample is located: a function of the
 * sample alone, or else batches would depend on timing. `make` may still decline, and the next
 * backend makes it. The slot notes the maker of each row. When all rows are made, `complete` does
 * what is better done for a batch than for a row; collating then moves rows up over bad ones, which
 * `move` follows; `enqueue` adds the work on the copy stream that turns host halves into batches.
 *
 * Order, state, bad samples, replacements and statistics are the engine's. A backend only returns
 * the error of a sample that it could not make.
 */
#ifndef MR_LOADER_BACKENDS_BACKEND_H
#define MR_LOADER_BACKENDS_BACKEND_H

#include "base/base.h"
#include "dataset/dataset.h"
#include "loader/run.h"
#include "loader/slot.h"

struct mr_loader;
struct mr_loader_stats;
struct mr_slot;
struct mr_stream;
struct mr_worker;
struct mr_backend;

/* A row that is being made. */
struct mr_row {
    struct mr_slot *slot; /* open */
    uint64_t t, epoch;
    uint32_t at;     /* in the slot */
    uint32_t n_next; /* samples behind this one in its run: s[1] .. s[n_next]; 0: it stands alone */
    bool timed;      /* decoding and transforming are timed */
};

struct mr_row_backend {
    const char *name;
    size_t state_size;
    bool reads;         /* its samples are located and, as far as they are not in memory, read */
    bool writes_device; /* make writes fields marked `direct` in the device half: they are not read
                           ahead, and slots open only behind the consumer's work */
    bool deep; /* some rows of a batch are made much later than others: more batches under way */
    const char *read_advice; /* when reading is the bottleneck; NULL: the storage's */
    /* Required. Is it to be used? It may set note, flags of fields, and state. 1; 0: no, the reason
     * is in note if it was asked for; or the error that refuses what was asked for. */
    int (*plan)(struct mr_backend *b);
    /* Adds its per-row parts to a slot, in front of the fields (moves *at). May set host_bytes:
     * nothing behind is in the host half. */
    void (*lay_out)(struct mr_backend *b, uint64_t *at);
    /* What it holds beside n_slots slots, for the sum: device memory, host memory. */
    void (*bytes)(const struct mr_backend *b, uint64_t n_slots, uint64_t *device, uint64_t *host);
    /* Memory and whatever else it needs, once there are slots; no worker runs yet. 0 or an error.
     */
    int (*open)(struct mr_backend *b);
    /* What it keeps for each slot, of slot_size zeroed bytes (mr_backend_own): of the first ones
     * before open, of one that is made later while workers run. slot_close: also after a failure,
     * when nothing uses the slot any more. */
    size_t slot_size;
    int (*slot_open)(struct mr_backend *b, struct mr_slot *slot, void *own);
    void (*slot_close)(struct mr_backend *b, void *own);
    /* Is this sample its own? at: where its n extents are; NULL: they have been read into host
     * memory. NULL: it takes all samples, and no backend behind it is used. */
    bool (*takes)(const struct mr_backend *b, uint64_t epoch, uint64_t index,
                  const struct mr_extent *at, int n);
    /* Required. Makes a sample, whose reads have landed, into its row. 1; 0: it declines; or the
     * error that makes it a bad sample. MR_EDEVICE of a backend that writes_device ends the run. */
    int (*make)(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                struct mr_run_sample *s);
    /* All rows of the batch are made. Is it still to work on some? Then `complete` would wait. */
    bool (*late)(const struct mr_backend *b, const struct mr_slot *slot, uint64_t t);
    void (*complete)(struct mr_backend *b, struct mr_worker *w, struct mr_slot *slot, uint64_t t);
    /* Row `from` becomes row `to` < from, as a bad one is left out. */
    void (*move)(struct mr_backend *b, struct mr_slot *slot, uint64_t to, uint64_t from);
    /* Enqueues its part of shipping; those of the last backend come first. copied: adds the bytes
     * that are copied to the device. [ship.lock] */
    int (*enqueue)(struct mr_backend *b, struct mr_slot *slot, struct mr_stream *stream,
                   uint64_t *copied);
    /* Adds its figures; also of a backend that is not used, for its note. */
    void (*stats)(const struct mr_backend *b, struct mr_loader_stats *out);
    /* Workers are gone and all that was enqueued has passed. Ends threads of its own, before what
     * it keeps for slots is closed. Also after a failed plan or open. */
    void (*stop)(struct mr_backend *b);
    /* Slots still exist, if they ever did. Also after a failed plan or open. */
    void (*close)(struct mr_backend *b);
};

/* Best first; ends with NULL. */
extern const struct mr_row_backend *const mr_row_backends[];
extern const struct mr_row_backend mr_row_host, mr_row_gds, mr_row_resident, mr_row_jpeg;

/* A backend in a loader. */
struct mr_backend {
    const struct mr_row_backend *ops;
    struct mr_loader *ld;
    void *state; /* ops->state_size bytes, zeroed before plan */
    int number;  /* in mr_backends.all */
    bool used;
    char note[256]; /* what the statistics say of it */
};

struct mr_backends {
    struct mr_backend all[MR_MAX_BACKENDS]; /* as in mr_row_backends */
    int n_all;
    struct mr_backend *used[MR_MAX_BACKENDS]; /* best first; the last one takes all samples */
    int n_used;
    bool reads, writes_device, deep; /* one of the used ones does, is */
};

/* Plans all of them and chooses those to use. Returns 0 or an error. */
int mr_backends_plan(struct mr_loader *ld);
void mr_backends_lay_out(struct mr_loader *ld, uint64_t *at);
void mr_backends_bytes(const struct mr_loader *ld, uint64_t n_slots, uint64_t *device,
                       uint64_t *host);
int mr_backends_open(struct mr_loader *ld);
/* What they keep for one slot. On failure it is still to be closed. */
int mr_backends_slot_open(struct mr_loader *ld, struct mr_slot *slot);
void mr_backends_slot_close(struct mr_loader *ld, struct mr_slot *slot);
bool mr_backends_late(const struct mr_loader *ld, const struct mr_slot *slot, uint64_t t);
void mr_backends_complete(struct mr_worker *w, struct mr_slot *slot, uint64_t t);
void mr_backends_move(struct mr_loader *ld, struct mr_slot *slot, uint64_t to, uint64_t from);
int mr_backends_enqueue(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream,
                        uint64_t *copied);
void mr_backends_stats(const struct mr_loader *ld, struct mr_loader_stats *out);
void mr_backends_close(struct mr_loader *ld);

/* Does the backend with this number read this extent itself, while it makes the sample? */
bool mr_backend_reads(const struct mr_loader *ld, int maker, const struct mr_extent *at);
/* Was the row made by this backend? */
bool mr_backend_made(const struct mr_backend *b, const struct mr_slot *slot, uint64_t row);
/* What this backend keeps for a slot. */
static inline void *mr_backend_own(const struct mr_backend *b, const struct mr_slot *slot)
{
    return slot->own[b->number];
}

#endif
