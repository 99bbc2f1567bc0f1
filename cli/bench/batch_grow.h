/* When the sizes of bench batch-size end, and what memory holds. */
#ifndef CLI_BENCH_BATCH_GROW_H
#define CLI_BENCH_BATCH_GROW_H

#include <stdbool.h>
#include <stdint.h>

/* A large batch's update from smaller ones, whose gradients are added up. */
struct batch_substitute {
    uint64_t of, batch, steps;
    double rate, bytes; /* samples/s; of the net. rate 0: not measured */
};

/* Whether the last two of n rates are each less than 5% above the best before them. */
bool batch_is_flat(const double *rates, int n);

/* The batch that fills free_bytes, by a straight line through the last two sizes' needs. [out]
 * per_sample: its slope. Returns 0 if that is not known. */
double batch_largest(const uint64_t *size, const double *need, int n, double free_bytes,
                     double *per_sample);

/* Whether size[n] fits, by that line, into nine tenths of what is free; true if it is not known. */
bool batch_fits(const uint64_t *size, const double *need, int n, double free_bytes);

#endif
