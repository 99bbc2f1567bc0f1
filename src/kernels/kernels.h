/*
 * Kernels: all arithmetic that exists twice, for the host and for a GPU.
 *
 * One struct mr_kernel is all that a device knows of a kernel: its name, the size of its arguments,
 * the function that checks them, and two ways to run it. `run` does the work on the host: the
 * devices "cpu" and "sim" and the tests' driver call it. The other way is the function mr_<name> in
 * the image of the kernel's module, which nvcc compiled from the module's .cu file: the device
 * "cuda" loads the image when it first needs it. mr_launch_kernel() in device/device.h launches all
 * of them.
 *
 * The arithmetic of one element is written once, in a header of MR_HOST_DEVICE functions that the C
 * file and the .cu file of a module both include. In the modules "batch", "optim" and "sum" no
 * compiler may contract a product and a sum into one operation (-ffp-contract=off, -fmad=false), so
 * that the host and every GPU give the same bits. Tests hold one against the other.
 *
 *   batch/   transforms of whole batches: what a loader leaves to the device
 *   optim/   steps of optimizers; a new optimizer is one file and one line there, see optim/list.h
 *   sum/     sums over ranks, and over parts of a batch
 *   nn/      layers of nets. Only GPUs run these: on the host a net is computed by nn/cpu, on top
 *            of a BLAS, and its sums are not bit-equal. They may be contracted.
 *
 * To add a kernel: its arguments and the arithmetic of an element in a header, the host's loop in a
 * .c file, the GPU's in the module's .cu file, and one line in the module's table. Arguments are
 * copied when a kernel is launched; the memory that they point to has to stay until it has run.
 */
#ifndef MR_KERNELS_KERNELS_H
#define MR_KERNELS_KERNELS_H

#include "base/host_device.h"
#include <stddef.h>
#include <stdint.h>

#define MR_KERNEL_ARGS    1024 /* bytes at most */
#define MR_KERNEL_RANGES  12   /* at most: in and out, then those that may be NULL */
#define MR_KERNEL_THREADS 256  /* of a block on a GPU */

struct mr_kernel_range {
    const void *ptr;
    uint64_t bytes;
};

struct mr_kernel_module;

struct mr_kernel {
    const char *name; /* in the image: mr_<name> */
    size_t args_bytes;
    const struct mr_kernel_module *module;
    /*
     * Returns NULL, or which arguments make no sense. [out] out: the memory that the kernel reads
     * and writes; entries that are not needed stay as they are. NULL: the launcher's caller vouches
     * for them.
     */
    const char *(*check)(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES]);
    void (*run)(const void *args); /* on the host; NULL: only GPUs run it */
    /*
     * Blocks in x and y on a GPU; 0 in y: there is nothing to do. args: a copy, which it may
     * rewrite. NULL: the launcher's caller gives the grid.
     */
    void (*grid)(void *args, unsigned grid[2]);
    /* For "sim", which takes so long for it; NULL: as long as `run` takes. */
    uint64_t (*flops)(const void *args);
};

/* Kernels that are loaded together. */
struct mr_kernel_module {
    const char *name;
    const unsigned char *image; /* a fatbin; NULL: this build was made without nvcc */
    const struct mr_kernel *kernels;
    size_t n_kernels;
};

/* The kernels that mr_launch() knows by name. NULL: no such kernel. */
const struct mr_kernel *mr_kernel_find(const char *name);

/* A grid of so many threads for each of `rows`, within the limits of GPUs: kernels loop. */
void mr_kernel_grid(uint64_t threads_per_row, uint64_t rows, unsigned grid[2]);

#endif
