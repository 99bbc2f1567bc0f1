/*
 * Sums over ranks. comm.c is what all engines share: options, the comparison of configurations,
 * statistics, the first error. An engine moves bytes.
 *
 * A new engine is one file with a const struct mr_comm_engine, and one line in the table of
 * comm.c.
 */
#ifndef MR_COMM_ENGINE_H
#define MR_COMM_ENGINE_H

#include "base/base.h"
#include <millrace/comm.h>

#define MR_COMM_PHASE 48         /* bytes of mr_comm_phase()'s text */
#define MR_COMM_ALL   UINT32_MAX /* no single rank */

/* What is added up. */
struct mr_comm_array {
    uint64_t n;
    enum mr_dtype dtype, wire;
    enum mr_sum_order order;
};

/* The same in parts, one of each rank: first[r] to first[r + 1] - 1. */
struct mr_comm_parts {
    const uint64_t *first; /* world + 1 numbers */
    enum mr_dtype dtype, wire;
    enum mr_sum_order order;
};

/* What goes to another rank, and what comes from one. 0 bytes: nothing. */
struct mr_comm_message {
    const void *out;
    void *in;
    uint64_t out_bytes, in_bytes;
    uint32_t to, from;
};

struct mr_comm_engine {
    const char *name;
    /* mr_comm_find(); NULL: there is nothing to look for. */
    int (*find)(void);
    /* mr_comm_library(); NULL: there is none. */
    int (*library)(char *out, size_t cap);
    /* Joins the ranks; sets impl and library. */
    int (*open)(struct mr_comm *c);
    /* clean: no call failed, so the other ranks leave, too. impl may be NULL. Returns false where
     * messages are still on their way: then c and what it sends stay until the process ends. */
    bool (*close)(struct mr_comm *c, bool clean);
    /* In place, of host memory. The order is one that fits the world. */
    int (*sum)(struct mr_comm *c, void *data, const struct mr_comm_array *array);
    /* Of device memory; in may be data: only enqueues, also to a stream that is recorded. NULL:
     * such sums go through host memory. */
    int (*sum_device)(struct mr_comm *c, const void *in, void *data,
                      const struct mr_comm_array *array, struct mr_stream *stream);
    /* Of parts, in place, as sum and sum_device: sums of this rank's; all ranks' from their own.
     * Those of device memory are there where sum_device is. */
    int (*scatter)(struct mr_comm *c, void *data, const struct mr_comm_parts *parts);
    int (*scatter_device)(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                          struct mr_stream *stream);
    int (*share)(struct mr_comm *c, void *data, const struct mr_comm_parts *parts);
    int (*share_device)(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                        struct mr_stream *stream);
    int (*pass)(struct mr_comm *c, const struct mr_comm_message *message);
    int (*pass_device)(struct mr_comm *c, const struct mr_comm_message *message,
                       struct mr_stream *stream);
    /* Blocks of `bytes` from every rank to the root. [out] all: there, world blocks. After MR_EPEER
     * the engine may still read or write what any of these calls was given. */
    int (*gather)(struct mr_comm *c, const void *mine, uint64_t bytes, uint32_t root, void *all);
    /* A block from the root to every rank. */
    int (*spread)(struct mr_comm *c, void *data, uint64_t bytes, uint32_t root);
    void (*phase)(struct mr_comm *c, const char *what);
    /* mr_comm_watch() and mr_comm_check(); NULL: nothing goes on behind a call. */
    int (*watch)(struct mr_comm *c, struct mr_stream *stream);
    int (*check)(struct mr_comm *c);
    void (*abort)(struct mr_comm *c, int status);
};

extern const struct mr_comm_engine mr_comm_alone, mr_comm_mpi, mr_comm_nccl;

struct mr_comm {
    const struct mr_comm_engine *engine;
    void *impl; /* the engine's */
    struct mr_comm_opts opts;
    struct mr_process process;
    uint32_t rank, world;
    uint64_t sequence; /* collective calls begun */
    const char *call;  /* the one that runs, for errors: "sum" */
    uint32_t peer;     /* that it waits for; MR_COMM_ALL: for all */
    uint64_t call_ns;  /* when it began: the time limit is for the whole call */
    char library[64];
    uint64_t sums, bytes, ns;
    uint32_t speaker;
    int failed; /* the first error; 0: none */
    struct mr_error_kept *error;
    /* What collective calls send of their own, not on the stack: see gather. */
    uint64_t mine_bytes, most_bytes;
    void *left[3]; /* blocks of a collect() that ended in MR_EPEER */
    char verdict[512];
    /* Page-locked memory that sums of device memory go through. */
    struct mr_device *stage_device;
    void *stage;
    uint64_t stage_bytes;
};

static inline bool mr_comm_is_power_of_two(uint64_t n)
{
    return n && (n & (n - 1)) == 0;
}

/* x += y. wire: as of mr_comm_sum(). */
void mr_comm_add(void *x, const void *y, uint64_t n, enum mr_dtype dtype, enum mr_dtype wire);

/* comm.c: copies a sum's input to where the sum is made, if that is elsewhere. */
int mr_comm_place(const void *in, void *out, const struct mr_comm_array *a,
                  struct mr_stream *stream);

static inline uint64_t mr_comm_part_length(const struct mr_comm_parts *p, uint32_t rank)
{
    return p->first[rank + 1] - p->first[rank];
}

/* Ranks begin .. begin + n - 1 of an addition by halves: a rank keeps one half of the parts and
 * gives its partner the other. The order of the additions is the tree's. */
struct mr_comm_half {
    uint32_t partner;
    uint64_t keep, n_keep, give, n_give; /* elements */
};
/* h: ranks of each half: world / 2, a quarter, ... 1. The world is a power of two. */
struct mr_comm_half mr_comm_half_of(const struct mr_comm *c, const struct mr_comm_parts *p,
                                    uint32_t h);

/* comm.c. The same parts of an array that begins with element first[0]. [out] out: on success; its
 * numbers are to be freed. Returns 0, -ENOMEM. */
int mr_comm_shift_parts(const struct mr_comm *c, const struct mr_comm_parts *p,
                        struct mr_comm_parts *out);

/* stage.c. Calls on device memory by an engine that knows host memory alone. */
int mr_comm_stage_sum(struct mr_comm *c, void *data, const struct mr_comm_array *array,
                      struct mr_stream *stream);
int mr_comm_stage_scatter(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                          struct mr_stream *stream);
int mr_comm_stage_share(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                        struct mr_stream *stream);
int mr_comm_stage_pass(struct mr_comm *c, const struct mr_comm_message *message,
                       struct mr_stream *stream);
void mr_comm_stage_free(struct mr_comm *c);

/* config.c. What differs between rank 0's lines "name=value" and those of others, for at most three
 * ranks that differ. texts: by rank. Returns a text to be freed, "": nothing differs; NULL: no
 * memory. */
char *mr_comm_differences(char *const *texts, uint32_t world);
/* The reasons in texts "=reason", of at most three ranks, in the same way. */
char *mr_comm_refusals(char *const *texts, uint32_t world);
/* Returns 0 or MR_EOPTION: a line without "=". */
int mr_comm_check_config(const char *text);

#endif
