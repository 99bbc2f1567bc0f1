/*
 * The layout: what a row is made of, and where each part of it is in a slot.
 *
 * A slot has two halves of the same layout: one in host memory, which workers write, and on devices
 * with memory of their own one in device memory. Per-row numbers that a kernel needs (mirrored or
 * not, mixing partners, indices) come first, then the fields, smallest first, so that a single copy
 * up to the last byte used ships the whole slot. Fields that a row backend writes in the device
 * half itself (`direct`) come last, where that copy does not reach them.
 *
 * Collated fields, whose size is known batch by batch, have no place here: mr_collate() puts them
 * one after the other behind all others, and lets the slot grow to what they take. Slots then
 * begin with a guess.
 *
 * If the end of a field's chain runs on the device (device_chain.c), a row in the halves holds what
 * that part starts from, and its results are in the slot's output, on the device alone.
 *
 * A batch's fields are those of the chain's output, which may be others than the data set's: ops
 * drop, copy and add fields. mr_field is of a batch, mr_decoded_field of the data set.
 *
 * layout.c computes all of it when a loader opens. Afterwards it does not change.
 */
#ifndef MR_LOADER_LAYOUT_H
#define MR_LOADER_LAYOUT_H

#include "base/base.h"
#include "loader/added.h"
#include "transform/device_part.h"
#include <millrace/loader.h>

struct mr_field {
    int source; /* the data set's field that it is made from; -1: an op over several made it */
    struct mr_spec in, out; /* of one sample: as decoded, as delivered */
    uint64_t in_bytes, row_bytes;
    uint64_t offset; /* in the slot's halves */
    bool identity;   /* what the workers do leaves it as it is */
    bool varies;
    enum mr_collate collate; /* how, if it varies */
    bool collated;           /* its rows are kept aside (rows.h) until the batch is complete */
    bool direct; /* a backend writes its rows in the device half; the slot's copy leaves it out */
    bool device_only;                   /* a batch's rows are complete on the device alone */
    struct mr_device_part *device_part; /* of its chain; NULL: none */
    unsigned char fill[16];             /* what its rows are padded with */
    uint64_t out_bytes;                 /* of a row as delivered */
    uint64_t out_offset;                /* in the slot's output */
    uint64_t
        flip_offset; /* in the slot's halves: a byte a row, when the device part has an hflip */
};

struct mr_decoded_field {
    uint64_t bytes;
    int row_of; /* the field of the batch in whose row it is decoded; -1: in a worker's memory */
};

struct mr_layout {
    int n_fields, n_decoded;
    struct mr_field field[MR_MAX_FIELDS];
    struct mr_decoded_field decoded[MR_MAX_FIELDS];
    bool rearranged; /* the batch's fields are not the data set's, in its order */
    int n_added;     /* fields of a batch behind these; by_user: instead of these */
    bool by_user;    /* a callback makes the batch's fields */
    struct mr_added added[MR_MAX_FIELDS];
    bool varies;          /* some field does */
    bool collates;        /* some field is collated or added */
    uint64_t fixed_bytes; /* of each half: all but collated fields */
    uint64_t rows_bytes;  /* of a slot's collated rows, at first */
    uint64_t slot_bytes;  /* of each half, at first */
    uint64_t bound_bytes; /* what it would be if all samples were as large as they can be */
    uint64_t
        host_bytes; /* of the host half; less than slot_bytes if a backend ships only indices */
    uint64_t output_bytes;   /* on the device alone: what device parts of chains write */
    uint64_t scratch_bytes;  /* a worker's, for the chain */
    uint64_t partner_offset; /* in the halves, a u32 a row, when device parts mix rows */
    bool mixes;              /* they do */
    bool packs;              /* batches are packed */
    uint64_t pack_length;    /* elements of a packed row */
    bool flips;              /* some device part has an hflip */
    bool items;              /* slots keep the batch sampler's item of each row */
};

/* Of a batch's fields, the first added one; and how many fields it has. */
static inline int mr_layout_first_added(const struct mr_layout *layout)
{
    return layout->by_user ? 0 : layout->n_fields;
}
static inline int mr_layout_n_out(const struct mr_layout *layout)
{
    return mr_layout_first_added(layout) + layout->n_added;
}

/* Is the field decoded straight into its row of the slot? */
static inline bool mr_field_in_row(const struct mr_field *fp)
{
    return fp->identity && !fp->varies && !fp->collated;
}

#endif
