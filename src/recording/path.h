/*
 * The critical path: what decided when the steps ended.
 *
 * One chain of work and waits, without a gap, from the end of the last step back to the start of
 * the first: each piece is what the one after it had to wait for. Work off the path was done in
 * time; to shorten it changes nothing. Idea: backward replay of a trace (Yang and Miller 1988;
 * Boehme et al. 2012), for GPUs as Meta's Holistic Trace Analysis has it.
 *
 * Backwards from a time on a thread:
 *   program order   its own code and calls, one after the other
 *   return          of a call that waits for the device: from the operation that it waited for
 *   other thread    it only waits in the system: the launching thread that did something last
 *                   (where the system's calls were not recorded: it makes no calls for longer than
 *                   a pause in a burst of launches, but another launching thread does)
 *   loader          a wait for data belongs to the loader: it stays on the thread
 * from the start of an operation, what was last of
 *   launch          the return of its call, or its start within the call
 *   stream order    the end of the operation before it on its stream
 *   order by event  the end of an operation on another stream, in the last 10 us before it, if
 *                   launch and stream order were over more than 10 us before
 *
 *     struct mr_path path;
 *     mr_path_find(&look, &data, &path);
 *     mr_path_add_up(&path, from_ns, to_ns, ns);
 */
#ifndef MR_RECORDING_PATH_H
#define MR_RECORDING_PATH_H

#include "recording/idle.h"

/* Of a thread, and latency: enum mr_idle_class, as if the device were idle meanwhile; kernels that
 * communicate are MR_IDLE_COMMUNICATION. Of the device's other work: these. */
enum mr_path_class { MR_PATH_COMPUTE = MR_N_IDLE, MR_PATH_COPY, MR_N_PATH };
const char *mr_path_text(int class);

struct mr_path_piece {
    uint64_t start_ns, end_ns;
    uint32_t op;   /* of rec->ops: the work, or what starts late; MR_NONE: a thread's */
    uint32_t name; /* of strings: the call, or for own code the innermost range; 0: none */
    uint8_t class; /* enum mr_idle_class or mr_path_class */
};

struct mr_path {
    struct mr_path_piece *at; /* by time: each begins where the one before it ends */
    uint64_t n, capacity;
};

/* From the end of the last interval of look->in back to the start of its first, pauses between
 * steps included: visit() gets the pieces, the last one first, and returns 0 or an error.
 * burst_ns: of look->logs, as struct mr_idle has it; NULL: it is found. Returns what visit()
 * returned, 0 or -ENOMEM. */
struct mr_streams;
int mr_path_walk(const struct mr_look *look, const struct mr_streams *streams,
                 const struct mr_data_waits *data, const uint64_t *burst_ns,
                 int (*visit)(void *user, const struct mr_path_piece *piece), void *user);
/* The same as a list. [out] out: free it with mr_path_free(). Returns 0 or -ENOMEM. */
int mr_path_find(const struct mr_look *look, const struct mr_data_waits *data, struct mr_path *out);
void mr_path_free(struct mr_path *path);

/* By how much more the device is behind its launches at the end than at the start: then the steps
 * are as long as the host takes, and the path does not show the device's pace. */
uint64_t mr_path_behind_ns(const struct mr_look *look);

/* The time of each class in [from_ns, to_ns), added to ns. */
void mr_path_add_up(const struct mr_path *path, uint64_t from_ns, uint64_t to_ns,
                    uint64_t ns[MR_N_PATH]);
/* The first piece that ends after time_ns; path->n: none. */
uint64_t mr_path_at(const struct mr_path *path, uint64_t time_ns);
/* What a piece is called, for people: a kernel's name, "copy H2D", a call, a range; never "". */
const char *mr_path_name(const struct mr_recording *rec, const struct mr_path_piece *piece,
                         char *buf, size_t bytes);

/* ---- operations by stream (streams.c) ---- */

struct mr_streams {   /* of a look */
    uint32_t *of;     /* of look->ops: the stream's number */
    uint32_t *list;   /* of look->ops, stream by stream, by start */
    uint32_t *before; /* of look->ops: the one before it on its stream; MR_NONE */
    uint64_t *first;  /* of list: n + 1 */
    uint64_t *key;    /* context << 32 | stream */
    uint32_t n;
};
/* [out] out: free it with mr_streams_free(). Returns 0 or -ENOMEM. */
int mr_streams_make(const struct mr_look *look, struct mr_streams *out);
void mr_streams_free(struct mr_streams *streams);
/* Of those that end in (after_ns, until_ns] the one that ends last; MR_NONE: none. stream: its
 * number, or MR_NONE: any; not: one that is left out, or MR_NONE. */
uint32_t mr_streams_ended(const struct mr_look *look, const struct mr_streams *streams,
                          uint32_t stream, uint32_t not, uint64_t after_ns, uint64_t until_ns);

#endif
