/*
 * Sums over the ranks of a run, and messages between two of them, with a time limit: no rank waits
 * for ever.
 *
 *     struct mr_comm_opts opts;
 *     mr_comm_opts_init(&opts);
 *     if (mr_place_query(&opts.place) < 0)          // place.h: what mpirun or srun said
 *         return fail(mr_last_error());
 *     opts.config = "batch_size=256\nmodel=mlp\n";  // must be the same on all ranks
 *     mr_comm_open(&opts, &comm);
 *     mr_comm_sum(comm, grads, grads, n, MR_F32, MR_F32, MR_SUM_TREE, stream);
 *     mr_comm_close(comm);
 *
 * Engines: "mpi" talks to Open MPI or MPICH (also Intel MPI and others of MPICH's ABI), which is
 * opened when it is needed and is no dependency of the library; "alone" is one rank. MILLRACE_MPI
 * names another MPI library. What is summed or sent is host memory or a device's; "mpi" copies the
 * latter through page-locked memory.
 *
 * "nccl" is NVIDIA's NCCL, 2.14 or later, for ranks with a GPU each; MILLRACE_NCCL names another
 * file than libnccl.so.2. What concerns device memory is only enqueued. All else goes by MPI if the
 * launcher has it (mpirun, srun), which also spreads NCCL's id; under torchrun its store spreads
 * the id; else NCCL_COMM_ID=host:port does, an address of rank 0's that all ranks know. After the
 * time limit the communicator is aborted; with MPI the error names the ranks that did not come.
 * NCCL chooses what it uses by its own variables (NCCL_DEBUG, NCCL_SOCKET_IFNAME).
 *
 * Collective calls (open, close, sum, sum_scatter, gather, collect) are made by all ranks in the
 * same order; send, recv and send_recv by the ranks that they are between. One that lasts longer
 * than the time limit ends in MR_EPEER on every rank that waits; the text names the ranks that did
 * not come and what they did last (mr_comm_phase()). After that, and after any other of these calls
 * that failed, all of them and mr_comm_check() return the same error again: end the process with
 * mr_comm_abort(). After MR_EPEER, in, out and data stay in use until the process ends: messages
 * may still be on their way. Do not free them.
 *
 * With MPI: one communicator a process, and once: MPI cannot be initialized again. A program that
 * uses MPI itself keeps off the tags 7701 to 7706 of MPI_COMM_WORLD and initializes MPI with
 * MPI_THREAD_SERIALIZED; the library then leaves MPI_Finalize() to it.
 *
 * Threads: one at a time. fork: the child cannot use it. This is part of libmillrace-train.
 */
#ifndef MILLRACE_COMM_H
#define MILLRACE_COMM_H

#include <millrace/device.h>
#include <millrace/error.h>
#include <millrace/place.h>
#include <millrace/tensor.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_comm;

struct mr_comm_opts {
    size_t size; /* of this struct, set by mr_comm_opts_init() */
    const char
        *engine; /* "auto" (default): mpi if place.world is above 1; "mpi", "nccl", "alone" */
    uint64_t timeout_ns; /* of a collective call: 1 ms to 1 day; default 5 minutes */
    /* Lines "name=value", the same on all ranks, at most 64 KiB; NULL (default): none. */
    const char *config;
    struct mr_place place; /* default: alone, 0 of 1 */
    /* nccl: the rank's GPU, no other rank's; open until mr_comm_close(). NULL (default): none. */
    struct mr_device *device;
    /* Why this rank cannot take part, such as an option that is wrong on this rank alone: then
     * mr_comm_open() fails on every rank, instead of waiting. NULL (default): it can. */
    const char *refusal;
};

/* Sets opts to the defaults. C and C++ call mr_comm_opts_init(); see millrace.h. */
MR_API void mr_comm_opts_fill(struct mr_comm_opts *opts, size_t size);
static inline void mr_comm_opts_init(struct mr_comm_opts *opts)
{
    mr_comm_opts_fill(opts, sizeof *opts);
}

/*
 * Looks for what an engine needs on this machine, without joining the ranks: "nccl" opens NCCL,
 * which stays open. The others need nothing, or are looked for when they join. Any thread.
 * Returns 0, MR_EUNSUPPORTED (not found, or too old; the text says where it was looked for),
 * MR_EOPTION (no such engine), MR_EMISUSE (NULL).
 */
MR_API int mr_comm_find(const char *engine);

/*
 * The library that an engine would use in this process, with its version: "Open MPI v4.1.4
 * (libmpi.so.40)", "NCCL 2.28.9". It is opened and stays open; MPI is not started. Any thread.
 * [out] out: cap bytes, on success; cut to fit.
 * Returns 0, MR_EUNSUPPORTED (not found; the text says where it was looked for, or the engine has
 * none), MR_EOPTION (no such engine), MR_EMISUSE (NULL).
 */
MR_API int mr_comm_library(const char *engine, char *out, size_t cap);

/*
 * Joins the other ranks and compares `config`. Collective; blocks.
 * opts: used only during this call.
 * [out] out: on success; free it with mr_comm_close().
 * Returns 0, MR_EOPTION (on every rank: the ranks' configurations differ, or ranks refused, with
 * the differences or reasons of the first three of them, 511 bytes of text at most; or on this one:
 * no such engine, a wrong time limit, a malformed config), MR_EUNSUPPORTED (no MPI library, with
 * the names that were tried; or the library that was found does not know of the launcher's ranks),
 * MR_EPEER (a rank did not come), MR_EMISUSE (NULL, a wrong size, a second communicator), -ENOMEM.
 */
MR_API int mr_comm_open(const struct mr_comm_opts *opts, struct mr_comm **out);

/* Leaves the other ranks. Collective; blocks for at most the time limit. NULL is allowed. */
MR_API void mr_comm_close(struct mr_comm *comm);

enum mr_sum_order {
    /* The engine chooses the order: the same bits on all ranks, others for another world. */
    MR_SUM_FAST,
    /* A fixed binary tree: rank r and r + world / 2 first, then a quarter, ... With the same tree
     * over what each rank adds up itself, the bits do not depend on the number of ranks. The world
     * is a power of two. */
    MR_SUM_TREE
};

/*
 * Adds arrays up, element by element, over all ranks; each gets the sums. Collective.
 * in, out: n elements of this rank's; they may be the same, or must not overlap.
 * dtype: MR_F32 or MR_F64.
 * wire: how the elements travel: dtype, or MR_BF16 for f32, which halves the bytes. Then both sides
 * of each addition are rounded to bf16 before it, and the sum is f32; so a tree still gives bits
 * that do not depend on the world, if each rank adds up what it has in the same way.
 * stream: NULL: host memory; blocks. Else memory (MR_DEVICE) of the stream's device: the sum is in
 * the stream's order. It blocks until the stream's earlier work is done, unless
 * mr_comm_stats.graphs is 1: then it only enqueues, and can be recorded into a graph. The device
 * must stay open until mr_comm_close(). Bits are the same as of host memory.
 * Returns 0, MR_EPEER, MR_EMISUSE (NULL, another dtype or wire, MR_SUM_TREE in a world that is no
 * power of two), MR_EUNSUPPORTED (MR_BF16 by MPI in such a world), MR_EDEVICE, MR_EDEVICEMEM,
 * -ENOMEM.
 */
MR_API int mr_comm_sum(struct mr_comm *comm, const void *in, void *out, uint64_t n,
                       enum mr_dtype dtype, enum mr_dtype wire, enum mr_sum_order order,
                       struct mr_stream *stream);

/*
 * The two halves of a sum, for ranks that each need a part of it: sum_scatter adds up, and each
 * rank gets its part of the sums; gather gives all ranks the parts of all. Together they move as
 * many bytes as mr_comm_sum(), and with MR_SUM_TREE have its bits; with MR_SUM_FAST the order of
 * additions may be another. Collective.
 * data: the array, changed in place. sum_scatter leaves the sums in this rank's part, and the rest
 * undefined; gather reads this rank's part, and writes the others.
 * first: world + 1 ascending numbers, the same on all ranks: rank r's part is the elements
 * first[r] to first[r + 1] - 1, or none. Used only during the call.
 * dtype, wire, order, stream: as of mr_comm_sum(); gather takes any type.
 * Return 0, MR_EPEER, MR_EMISUSE (NULL, another dtype or wire, numbers that do not ascend,
 * MR_SUM_TREE in a world that is no power of two), MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM.
 */
MR_API int mr_comm_sum_scatter(struct mr_comm *comm, void *data, const uint64_t *first,
                               enum mr_dtype dtype, enum mr_dtype wire, enum mr_sum_order order,
                               struct mr_stream *stream);
MR_API int mr_comm_gather(struct mr_comm *comm, void *data, const uint64_t *first,
                          enum mr_dtype dtype, struct mr_stream *stream);

/*
 * Sends bytes to one rank, and receives them there: one call each, in the same order on both. A
 * call may wait for the other rank's, so of two ranks that exchange something one sends first and
 * the other receives first; or both call send_recv, which does both at once, with two ranks or one.
 * out, in: of send_recv: they must not overlap.
 * bytes: the same on both ranks; 0: nothing is moved, and the other rank need not call.
 * stream: as of mr_comm_sum(). "nccl" does one call of a rank after the other, whatever their
 * streams.
 * Return 0, MR_EPEER (the other rank did not come, or by MPI: sent another number of bytes),
 * MR_EMISUSE (NULL, this rank itself or no rank), MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM.
 */
MR_API int mr_comm_send(struct mr_comm *comm, const void *data, uint64_t bytes, uint32_t to,
                        struct mr_stream *stream);
MR_API int mr_comm_recv(struct mr_comm *comm, void *data, uint64_t bytes, uint32_t from,
                        struct mr_stream *stream);
MR_API int mr_comm_send_recv(struct mr_comm *comm, const void *out, uint64_t out_bytes, uint32_t to,
                             void *in, uint64_t in_bytes, uint32_t from, struct mr_stream *stream);

/*
 * Brings each rank's text to one rank. Collective; blocks. For reports: it is not fast.
 * mine: at most 1 MiB. root: 0 to world - 1.
 * [out] texts: on the root the texts by rank, to be freed with free(), which frees all; elsewhere
 * NULL.
 * Returns 0, MR_EPEER, MR_EMISUSE (NULL, a root or text beyond that), -ENOMEM.
 */
MR_API int mr_comm_collect(struct mr_comm *comm, const char *mine, uint32_t root, char ***texts);

/* Says what this rank does now, for errors on other ranks: "waits for data". Cheap.
 * what: constant text, at most 47 bytes of it are used. */
MR_API void mr_comm_phase(struct mr_comm *comm, const char *what);

/*
 * Says that the stream has sums by now, such as those of a graph that was launched: they must end
 * within the time limit. mr_comm_sum() says so itself unless the stream is recorded. After it, the
 * stream's work ends, without a result, and mr_comm_check() returns the error: call that after each
 * wait for the stream. Only "nccl" needs it.
 * Returns 0, MR_EMISUSE (NULL, or a stream of another device), MR_EDEVICE. Does not block.
 */
MR_API int mr_comm_watch(struct mr_comm *comm, struct mr_stream *stream);

/* Returns the first error of a collective call, or 0. Blocks only where an error is found out:
 * seconds, in which the missing ranks are. */
MR_API int mr_comm_check(struct mr_comm *comm);

struct mr_comm_stats {
    size_t size; /* of this struct, set by the caller */
    uint32_t rank, world;
    char engine[16];  /* "mpi", "nccl", "alone" */
    char library[64]; /* "Open MPI v4.1.4"; "": none */
    uint64_t sums;    /* calls of mr_comm_sum() and mr_comm_sum_scatter() */
    uint64_t bytes;   /* that these added up, on this rank */
    double seconds;   /* in these and mr_comm_gather(), waiting for other ranks included */
    uint32_t speaker; /* the rank that should tell people: 0, after MR_EPEER the lowest that came */
    uint32_t graphs;  /* 1: calls on device memory only enqueue, and can be recorded into graphs */
};

/* Reads the statistics. [out] out: on success, all but size. Returns 0, MR_EMISUSE. */
MR_API int mr_comm_stats(const struct mr_comm *comm, struct mr_comm_stats *out);

/*
 * Ends the processes of all ranks, for a rank that cannot go on: the launcher is told, and this
 * call does not return. It waits 0.3 s first, so that the launcher passes on what was printed, and
 * ranks other than the speaker wait a second more.
 * status: exit status, 1 to 125. comm: after "alone" or NULL this process alone exits.
 */
MR_API void mr_comm_abort(struct mr_comm *comm, int status);

#ifdef __cplusplus
}
#endif
#endif
