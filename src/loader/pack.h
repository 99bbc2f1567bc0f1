/*
 * Packing: samples of varying length end to end in rows of one length.
 *
 * Where each sample goes is decided when its batch is complete: by the batch sampler's items, or
 * else next-fit, a sample begins a new row if the current one has no space for it. All fields that
 * vary are packed alike, and added fields say what is where (added.h).
 */
#ifndef MR_LOADER_PACK_H
#define MR_LOADER_PACK_H

#include "base/base.h"

struct mr_loader;
struct mr_slot;

/* A sample in a packed batch: its elements [from, from + count) are at `at` of row `row`. */
struct mr_part {
    uint32_t row, at, from, count;
};

/* A packed batch. */
struct mr_packing {
    struct mr_part *part; /* of each sample; NULL: batches are not packed */
    uint64_t n_rows;      /* of the batch; before it is planned: by the sampler, or 0 */
    uint64_t n_sequences; /* samples, and ends of rows that are padding */
};

/* Is field f packed? */
bool mr_pack_takes(const struct mr_loader *ld, int f);
/* Checks the options for it. Returns 0, MR_EOPTION, MR_ESHAPE. */
int mr_pack_check(struct mr_loader *ld);
/* Notes how many rows the sampler made, before bad samples are left out. */
void mr_pack_begin(const struct mr_loader *ld, struct mr_slot *slot);
/* Decides about a complete batch. Returns 0, MR_ESHAPE: a sample does not fit, its fields differ in
 * length, or the sampler says what cannot be; MR_ELIMIT. */
int mr_pack_plan(struct mr_loader *ld, struct mr_slot *slot);

/* Walks over a packed batch's elements in order. */
struct mr_pack_step {
    uint64_t cell, n; /* elements [cell, cell + n) of the rows, end to end, in one row */
    uint64_t row;     /* of the slot: the sample; UINT64_MAX: it is padding */
    uint32_t from;    /* in the sample */
    uint32_t segment; /* number in its row, from 1; 0: padding */
};
struct mr_pack_walk {
    const struct mr_slot *slot;
    uint64_t length, next, cell; /* of rows; the next sample; the next element */
    uint32_t segment, row;
};
void mr_pack_walk_begin(const struct mr_loader *ld, const struct mr_slot *slot,
                        struct mr_pack_walk *walk);
/* false: that was all. */
bool mr_pack_walk_next(struct mr_pack_walk *walk, struct mr_pack_step *out);

#endif
