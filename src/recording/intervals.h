/*
 * Sets of time as lists of intervals [start, end) in ns.
 *
 * A united list is sorted, its intervals do not touch and none is empty; all functions but
 * mr_intervals_add() want and make such lists. Memory that ran out is remembered in `lost`, passes
 * from what a list was made of, and is looked at once at the end. Zeroed memory is an empty list.
 * Threads: none of its own.
 */
#ifndef MR_RECORDING_INTERVALS_H
#define MR_RECORDING_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_interval {
    uint64_t start_ns, end_ns;
};

struct mr_intervals {
    struct mr_interval *at;
    uint64_t n, capacity;
    bool lost;
};

/* Appends; what is empty or ends before it starts is left out. The list is not united after it. */
void mr_intervals_add(struct mr_intervals *list, uint64_t start_ns, uint64_t end_ns);
/* Sorts and joins what overlaps or touches. */
void mr_intervals_unite(struct mr_intervals *list);
void mr_intervals_free(struct mr_intervals *list);

/* [out] out: an empty list before, neither a nor b. */
void mr_intervals_or(const struct mr_intervals *a, const struct mr_intervals *b,
                     struct mr_intervals *out);
void mr_intervals_and(const struct mr_intervals *a, const struct mr_intervals *b,
                      struct mr_intervals *out);
void mr_intervals_without(const struct mr_intervals *a, const struct mr_intervals *b,
                          struct mr_intervals *out);

uint64_t mr_intervals_measure(const struct mr_intervals *list);
/* The time of both together. */
uint64_t mr_intervals_common(const struct mr_intervals *a, const struct mr_intervals *b);
/* The list's time in [from_ns, to_ns). */
uint64_t mr_intervals_within(const struct mr_intervals *list, uint64_t from_ns, uint64_t to_ns);
/* The first interval that ends after time_ns; n when none does. */
size_t mr_intervals_find(const struct mr_intervals *list, uint64_t time_ns);

#endif
