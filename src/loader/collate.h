/*
 * Collation: how the rows of a complete batch become its fields.
 *
 * Fields of one size are written straight into their rows of the slot. Fields that vary are
 * collated: their rows are kept aside, densely, until the batch is complete (rows.h). The worker
 * that completes it then knows how many bytes each of them takes. It puts them one after the other
 * behind the fixed fields, lets the slot grow if they do not fit, and copies each row once, to its
 * place. So a slot takes what its batches take; FIXED alone needs the bound for every row, and is
 * written in place.
 */
#ifndef MR_LOADER_COLLATE_H
#define MR_LOADER_COLLATE_H

#include "base/base.h"
#include <millrace/collate.h>

struct mr_loader;
struct mr_slot;
struct mr_worker;

#define MR_COLLATE_NAME_BYTES 64

/* The user's, if opts.collate_fn was set (layout.by_user). */
struct mr_user_collate {
    struct mr_collate_fn fn;
    char name[MR_COLLATE_NAME_BYTES];
};

/* The batch's spec of a field: rows in front, then `dim`. */
void mr_batch_spec(struct mr_slot *slot, int f, const struct mr_spec *sample, const uint64_t *dim);
/* Computes spec, offsets and bytes of a collated field. Returns 0, MR_ELIMIT. */
int mr_collated_measure(struct mr_loader *ld, struct mr_slot *slot, int f);
/* Writes it to its place in the host half. */
void mr_collated_write(struct mr_loader *ld, struct mr_slot *slot, int f);

/* ---- user_collate.c: all rows are kept aside, and a callback makes all fields ---- */

/* Checks opts.collate_fn and takes it. Returns 0, MR_EOPTION, MR_EMISUSE, MR_ELIMIT. */
int mr_user_collate_plan(struct mr_loader *ld);
/* For states: "collate(pairs,version=2)". */
void mr_user_collate_text(const struct mr_loader *ld, char *out, size_t cap);
/* Makes the fields of a batch, whose bad rows are out. Returns 0, MR_ECALLBACK, or what the
 * callback returned. */
int mr_user_collate(const struct mr_worker *w, struct mr_slot *slot);

#endif
