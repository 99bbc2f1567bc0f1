/*
 * Added fields: what a batch has behind the data set's fields. Masks and cumulative lengths of
 * fields that vary, positions and segments of packed rows. Each is computed when its batch is
 * complete, and is in the slot behind the collated fields.
 */
#ifndef MR_LOADER_ADDED_H
#define MR_LOADER_ADDED_H

#include "base/base.h"

struct mr_loader;
struct mr_slot;

enum mr_added_kind {
    MR_ADDED_MASK,       /* bool [rows, length]: 1 where there is data */
    MR_ADDED_CU_SEQLENS, /* i32: where sequences begin, and the end */
    MR_ADDED_POSITIONS,  /* i32 [rows, length], packed: the element's number in its sample */
    MR_ADDED_SEGMENTS,   /* i32 [rows, length], packed: the sample's number in its row, from 1 */
};

struct mr_added {
    enum mr_added_kind kind;
    int field; /* of the data set: that it is about */
    struct mr_spec spec;
    uint64_t most_bytes; /* of a field that a callback makes */
};

/* Makes the list by the options. Returns 0, MR_EOPTION. */
int mr_added_plan(struct mr_loader *ld);
/* Computes spec and bytes of the k-th added field, once the collated fields are measured. Returns
 * 0, MR_ELIMIT. */
int mr_added_measure(struct mr_loader *ld, struct mr_slot *slot, int k);
/* Writes it to its place in the host half. */
void mr_added_write(struct mr_loader *ld, struct mr_slot *slot, int k);

#endif
