/*
 * The sampled stacks of a recording: MILLRACE_STACKS and COMPOSITE_EVENTS, of ours only.
 *
 * A node is a frame on top of its parent's stack; equal stacks of different processes are one node.
 * A sample covers the time in which its thread was seen in one stack and nowhere else.
 * Threads: none of its own; a loaded one is only read.
 */
#ifndef MR_RECORDING_STACKS_H
#define MR_RECORDING_STACKS_H

#include "recording/intervals.h"
#include "recording/map.h"
#include "recording/recording.h"

struct mr_stack_place {
    uint32_t function, file; /* of texts */
    uint32_t line;           /* 0: not known */
    bool is_native;          /* compiled code's; else Python's */
    uint32_t module;         /* of texts: its file; MR_NONE: none, as of Python */
};

struct mr_stack_node {
    uint32_t parent; /* of nodes, smaller than its own number; MR_NONE: the outermost frame */
    uint32_t place;  /* of places */
};

struct mr_stack_sample {
    uint64_t start_ns, end_ns, cpu_ns;
    uint32_t node, thread, n;
};

struct mr_stack_thread {
    uint64_t global_tid;
    uint32_t label; /* of texts: "python3 (100): thread 101 loader" */
    bool is_native; /* a thread of which both kinds were sampled is there twice */
    bool is_worker; /* one of our loader's threads */
};

struct mr_stacks {
    struct mr_texts texts;
    struct mr_stack_place *places;
    struct mr_stack_node *nodes;
    struct mr_stack_sample *samples; /* as they stand in the database */
    struct mr_stack_thread *threads;
    uint64_t n_places, n_nodes, n_samples, n_threads;
};

/* [out] out: empty when there are none; free it in any case. Returns 0 or an error. */
int mr_stacks_load(struct mr_recording *recording, struct mr_stacks *out);
void mr_stacks_free(struct mr_stacks *stacks);

/* What a thread did in a place: a line, or with by_function a function (line 0). */
struct mr_stack_sum {
    uint32_t thread, place;
    uint64_t self_ns, cpu_ns; /* as the innermost frame; of it on a processor */
    uint64_t total_ns;        /* with what it called */
    uint64_t n;               /* samples of self_ns */
};

/* Sums in the windows (NULL: at all times), in no order. [out] out: to be freed. Returns 0 or
 * -ENOMEM with the error set. */
int mr_stacks_sum(const struct mr_stacks *stacks, const struct mr_intervals *windows,
                  bool by_function, struct mr_stack_sum **out, uint64_t *out_n);

/* "set.py:42" of a place; "set.py" without a line; the whole path when `whole`. Returns out. */
const char *mr_stack_line(const struct mr_stacks *stacks, uint32_t place, bool whole, char *out,
                          size_t bytes);

/* The line of the program that a loader is in for most of its time in the windows. Loaders are
 * what torch's DataLoader and ours call to fetch samples, in any process that works for the one
 * looked at (globalTid >> 24; NULL: all do), and our loader's own threads; without these, the
 * thread (globalTid) that waits. Python's stacks come before those of compiled code. */
struct mr_stack_hottest {
    uint32_t place;             /* of places; MR_NONE: nothing was sampled there */
    uint64_t ns, cpu_ns, of_ns; /* in this line, of it on a processor; of all the loader's time */
    uint64_t n;                 /* samples in all */
};
int mr_stacks_loader(const struct mr_stacks *stacks, const struct mr_intervals *windows,
                     uint64_t global_tid, bool (*works_for)(const void *state, uint64_t process),
                     const void *state, struct mr_stack_hottest *out);

#endif
