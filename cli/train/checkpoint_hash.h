/* The checksum of a checkpoint's keys and tensors, in their order; the key "checksum" is not yet, or no longer, among them. */
#ifndef CLI_TRAIN_CHECKPOINT_HASH_H
#define CLI_TRAIN_CHECKPOINT_HASH_H

#include "train/checkpoint.h"

/* [out] out: 16 hex digits. Returns 0 or -ENOMEM. */
int checkpoint_hash(const struct checkpoint *c, char out[17]);

#endif
