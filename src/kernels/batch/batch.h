/*
 * The module "batch": kernels that finish a batch on the device, after its bytes were copied there.
 * transform/tail.c chooses them for the end of a field's chain, the loader for rows that are
 * gathered or resampled. The host and GPUs give the same bits, so a batch does not depend on where
 * it is made.
 */
#ifndef MR_KERNELS_BATCH_BATCH_H
#define MR_KERNELS_BATCH_BATCH_H

#include "kernels/batch/pointwise.h"
#include "kernels/batch/resample.h"
#include "kernels/batch/rows.h"

extern const struct mr_kernel_module mr_batch_module;

#endif
