/*
 * States: JSON of one line. state.c writes them; state_read.c, the only file of the loader that
 * needs cJSON, reads them.
 */
#ifndef MR_LOADER_STATE_H
#define MR_LOADER_STATE_H

#include "base/base.h"

struct mr_loader;

#define MR_STATE_VERSION          2 /* lists unfinished batches: 0.1 would lose these */
#define MR_STATE_VERSION_IN_ORDER 1
#define MR_STATE_CHAIN_SHOWN      160 /* bytes of a chain's text */
#define MR_STATE_CHAIN_BYTES      (MR_STATE_CHAIN_SHOWN + 160)
#define MR_STATE_ORDER_BYTES      64

/* Samples of an epoch; 0: not known. */
uint64_t mr_state_samples(const struct mr_loader *ld);
/* What decides the order of samples: returns text that is in buf or outlives the loader. */
const char *mr_state_order(const struct mr_loader *ld, char buf[MR_STATE_ORDER_BYTES]);
/* The chain's text as a JSON string can hold it. A long one is cut, and has a hash at its end, as
 * has one with characters that JSON would escape. */
void mr_state_chain(const struct mr_loader *ld, char out[MR_STATE_CHAIN_BYTES]);

#endif
