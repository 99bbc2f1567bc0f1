/*
 * A slot: the place that a batch is made in.
 *
 * It has memory in two halves (layout.h), arrays with a number for each row, the events that order
 * its copy and its use, and what row backends keep for it. The ring has n_slots of them at a time
 * and says which batch is in which (ring.h). Slots that a ring begins with are cut from one piece
 * of memory; one that is made later has memory of its own.
 *
 * Slots stay in a list of all until the loader is closed: a pointer to one is never stale.
 */
#ifndef MR_LOADER_SLOT_H
#define MR_LOADER_SLOT_H

#include "base/base.h"
#include "base/shared_memory.h"
#include "device/device.h"
#include "loader/layout.h"
#include "loader/pack.h"
#include "loader/plan.h"
#include "loader/rows.h"
#include "transform/device_part.h"

#define MR_MAX_BACKENDS 8
/* In n_found: the batch is the last one of its epoch; or a run's rows are missing, so no row is
 * used. */
#define MR_FOUND_LAST   (1ull << 63)
#define MR_RUN_FAILED   (1ull << 32)

struct mr_bad;

/* Events with timing around one batch's copy and use (times.c). A slot has two sets, used in turn
 * by its batches that are timed, so that a batch's times can be read two rounds later, when they
 * have almost certainly passed, without waiting. */
struct mr_slot_clock {
    struct mr_event *copy_start, *copy_end; /* copy stream: around the copy */
    struct mr_event *use_start, *use_end;   /* consumer's stream: around its work on the batch */
    uint64_t t;
    int stream;
    bool lead; /* see struct mr_batch_times */
    _Atomic bool copy_recorded, start_recorded, end_recorded;
};

/* Memory that slots are cut from: of all slots that a ring begins with, or of one. A slot that may
 * grow has memory of its own. */
struct mr_slot_memory {
    struct mr_device *device;
    enum mr_memory host_kind;
    unsigned char *host;      /* all host halves, host_bytes apart */
    unsigned char *on_device; /* all device halves, slot_bytes apart; behind these all outputs */
    uint64_t host_bytes, device_bytes;
    struct mr_shared_memory *shared; /* the host halves are a block of it; NULL: the pool's */
    struct mr_shared_block block;
    bool registered;  /* the block is page-locked */
    bool kept;        /* another process may read the block after this one has unmapped it */
    uint32_t n_users; /* slots; the last one's end gives it back */
};

struct mr_slot {
    /* The ring's. */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t rows_left; /* of the batch being written */
    /* If the plan finds them (plan.h): rows found so far, and MR_FOUND_LAST, MR_RUN_FAILED. */
    _Atomic uint64_t n_found;
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t open_for; /* may be written; UINT64_MAX: none yet */
    _Atomic bool host_busy;     /* the copy of the batch before may still read the host half */
    _Atomic bool lacks_host;    /* it has no host half yet; host_busy is set */
    _Atomic bool asking;        /* one worker asks the device about that: the others wait for it */
    _Atomic uint64_t claim_ns;  /* when its first run was started; 0: not yet */
    _Atomic uint64_t ready_for; /* ready to be handed out; UINT64_MAX: none */
    _Atomic uint32_t hold;      /* who holds its batch (hold.h); 0: not held */
    struct mr_slot *next_released;
    struct mr_leases *leases;
    uint32_t n_ends; /* [leases.lock] ends of holds of this batch that `released` is behind */
    _Atomic bool host_read;   /* the consumer's work reads the host half, too */
    uint32_t id;              /* slots are numbered as they are made */
    struct mr_slot *next_all; /* one made before this one */
    uint64_t late_t;          /* its batch, while it is on the list of late ones */
    struct mr_slot *next_late;
    struct mr_slot_memory *memory;
    /* With in_order = 0: */
    _Atomic uint64_t arrival;   /* its batch's (arrive.h) */
    uint64_t unfinished;        /* [lock] its batch; UINT64_MAX: it is handed out */
    struct mr_slot *next_later; /* ready, of a later epoch */
    /* Read for each row: not on a line that is written for each batch. */
    _Alignas(MR_CACHE_LINE) unsigned char *host;
    unsigned char *device;
    unsigned char *output; /* on the device: of device parts of chains; NULL: none */

    /* The batch. Rows are their workers' until it is complete, then the completing worker's, then
     * the consumer's. */
    struct mr_plan_batch info;
    struct mr_mixture mixture; /* a chain that mixes rows: how those of this batch */
    uint64_t size;             /* rows delivered: info.rows less the skipped */
    uint64_t *indices, *positions;
    struct mr_batch_item *items; /* of each row, from a batch sampler; else NULL */
    uint8_t *maker;              /* of each row: the number of the backend that made it */
    uint64_t most_rows;
    uint64_t *dims;             /* [field][row][MR_MAX_RANK], when some field varies; else NULL */
    struct mr_rows rows;        /* of collated fields, until the batch is complete */
    const unsigned char **kept; /* [field][row]: where in these; NULL: no field is collated */
    uint64_t capacity;          /* of each half, if a field is collated */
    uint64_t end;               /* of what is collated, in each half */
    struct mr_packing packing;
    /* Of each field. */
    int n_fields;
    uint64_t **lengths, **offsets;
    struct mr_spec *spec; /* of the batch as delivered */
    uint64_t *bytes;
    uint64_t *place;    /* in the halves */
    struct mr_bad *bad; /* [lock while being filled] unordered; the consumer's once ready */
    /* [consumers.lock] of a source: where the batch begins */
    uint64_t from_epoch, from_position;
    uint64_t bad_before; /* bad samples of the batches before; the consumer's, as is: */
    uint64_t n_bad;      /* its own */
    bool bad_lost;       /* [the same] no memory to note one: the batch cannot be handed out */
    void *own[MR_MAX_BACKENDS]; /* what backends keep for each slot; NULL: nothing */

    /* Shipping (ship.c). */
    struct mr_event *copied, *released; /* ends of the last copy, of the consumer's last work */
    bool copy_recorded, release_recorded;
    struct mr_slot_clock clock[2]; /* in turn */
    uint32_t n_clocked;
    struct mr_slot_clock *clocked; /* that of the batch in it; NULL: it is not timed */
    struct mr_slot *next_full;     /* of those left with the shipper */
    uint64_t full_for;             /* the batch it was left for */
};

/* A row of a field in the host half. */
static inline unsigned char *mr_field_row(const struct mr_field *fp, const struct mr_slot *slot,
                                          uint64_t row)
{
    return slot->host + fp->offset + row * fp->row_bytes;
}

/* Neighbouring rows, of several workers, share a cache line: it is written only to change it, which
 * a loader with one backend never does. */
static inline void mr_slot_set_maker(struct mr_slot *slot, uint64_t row, uint8_t maker)
{
    if (slot->maker[row] != maker)
        slot->maker[row] = maker;
}

/* The shape of a row of a field, when some field varies. */
static inline uint64_t *mr_slot_dims(const struct mr_slot *slot, uint64_t row, int f)
{
    return slot->dims + ((uint64_t)f * slot->most_rows + row) * MR_MAX_RANK;
}

/* A row of a collated field, kept until the batch is complete. */
static inline const unsigned char **mr_slot_kept(const struct mr_slot *slot, uint64_t row, int f)
{
    return &slot->kept[(uint64_t)f * slot->most_rows + row];
}

/* Memory for n slots. shared: for processes that write rows; NULL: none. host_kind: MR_PINNED or
 * MR_PAGEABLE; two_halves: on the device as well; later: the host half, of one slot, is still to be
 * acquired. */
int mr_slot_memory_create(struct mr_device *device, struct mr_shared_memory *shared,
                          enum mr_memory host_kind, const struct mr_layout *layout, uint32_t n,
                          bool two_halves, bool later, struct mr_slot_memory **out);
/* Acquires that host half. One thread, before the slot is first written. */
int mr_slot_acquire_host(struct mr_slot *slot, struct mr_shared_memory *shared);
/* Nothing may use it any more, on the device neither. */
void mr_slot_memory_destroy(struct mr_slot_memory *memory);
/* The i-th of the slots that memory has space for n of; `rows`: of a batch. */
int mr_slot_create(struct mr_slot_memory *memory, uint32_t i, uint32_t n,
                   const struct mr_layout *layout, uint64_t rows, struct mr_slot **out);
void mr_slot_destroy(struct mr_slot *slot);
/* Gives a slot that has memory of its own halves of `bytes`; of the host half, what precedes
 * collated fields stays. The worker's that completes a batch: neither workers nor the copy before
 * use the slot any more; the consumer's last work may still use the device half. */
int mr_slot_grow(struct mr_slot *slot, const struct mr_layout *layout, uint64_t bytes);

#endif
