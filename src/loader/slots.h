/*
 * How many batches ranks in lock step should prepare ahead.
 *
 * With data-parallel training no rank begins a step before the slowest rank has its batch. The more
 * ranks, the more often one of them has just made an unusually slow batch, and the longer the
 * longest run of such batches: batches prepared ahead must cover both.
 */
#ifndef MR_LOADER_SLOTS_H
#define MR_LOADER_SLOTS_H

#include <stdint.h>

/* Assumed when a loader opens and has made no batch yet. */
#define MR_SLOTS_SPREAD 0.5

/*
 * Batches ahead with which `world` ranks in lock step seldom wait for data, if making batches takes
 * 80% of the time of steps on average: 1 for one rank, more with the logarithm of the world.
 * spread: standard deviation of the logarithm of the time that a batch takes to make: about the
 * relative deviation when small; 0 to 2, others are taken as these. Pure.
 */
uint32_t mr_slots_for_ranks(uint32_t world, double spread);

#endif
