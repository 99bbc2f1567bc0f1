/*
 * One loader process that serves several trainers: each of them gets every batch.
 *
 * Trainers on one machine that want the same batches (a search over hyperparameters, a model and
 * its ablations, ranks of a model that is split) need them made only once:
 *
 *     loader_opts.shared = 1;                         // the process that loads, device "cpu"
 *     mr_loader_open(dataset, sampler, chain, NULL, &loader_opts, &loader);
 *     struct mr_serve_opts opts;
 *     mr_serve_opts_init(&opts);
 *     opts.address = "/run/user/1000/batches";
 *     opts.wait_for = 4;                              // trainers
 *     mr_loader_serve(loader, &opts, &server);
 *     mr_server_wait(server, -1);                     // until the last epoch has been used
 *     mr_server_close(server);
 *
 *     mr_loader_attach("/run/user/1000/batches", NULL, &attached);          // a trainer
 *     struct mr_batch batch = {.size = sizeof batch};
 *     while ((rc = mr_attached_next(attached, stream, &batch)) > 0) {
 *         train_on(batch.field[0].data, batch.n);
 *         mr_attached_release(attached, &batch, stream);
 *     }
 *     mr_attached_close(attached);
 *
 * Batches are in memory that both processes map (a memfd: /dev/shm is not needed): handing one out
 * takes a message of 64 bytes over a Unix socket, and no copy. A trainer on the host reads the
 * loader's slot, which is mapped read-only. A trainer with a device page-locks its view of the slot
 * and copies from there.
 *
 * A slot is used again once every trainer has released its batch. The others wait for a slow
 * trainer when they are `ahead` batches ahead of it. One that ends, by whatever signal, is dropped,
 * and its batches are released. One that attaches during the run begins with the next batch: that
 * batch's epoch and index say which it is. While none is attached, the loader's batches wait.
 * If the server's process ends, trainers get -EPIPE; the batches that they hold stay valid.
 *
 * Threads: each call says. timeout_ns in the server's calls: -1: as long as it takes; 0: do not
 * wait; else nanoseconds.
 *
 * fork: server and attached object belong to the process that made them. In a child every call on
 * an inherited one fails with MR_EMISUSE; close frees the child's memory of an attached object, and
 * does nothing with a server. A child attaches itself. Linux only; 5.3 or later notices the end of
 * a process even if a child of it has inherited the socket.
 */
#ifndef MILLRACE_SERVE_H
#define MILLRACE_SERVE_H

#include <millrace/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_TRAINERS 64   /* attached to a server at a time */
#define MR_MAX_AHEAD    1024 /* batches */

/* ---- the server ---- */

struct mr_server;

/* How a server serves. */
struct mr_serve_opts {
    size_t size; /* of this struct, set by mr_serve_opts_init() */
    /* Of a Unix socket: a path, whose file is made with mode 0600 and removed at the end, or "@"
     * and an abstract name. Only processes of this user and of root can attach. NULL: none;
     * mr_server_add() then brings the trainers. */
    const char *address;
    /* By how many batches a trainer may be ahead of another one: with k the oldest batch that some
     * trainer has not released, batches up to k + ahead are handed out. 0: all have released a
     * batch before any gets the next. At most MR_MAX_AHEAD. -1 (default): half of the loader's
     * prefetch, which takes no more slots than the loader has. */
    int64_t ahead;
    uint32_t wait_for; /* trainers that must be attached before the first batch; 0: 1. Default 1 */
};
MR_API void mr_serve_opts_fill(struct mr_serve_opts *opts, size_t size);
static inline void mr_serve_opts_init(struct mr_serve_opts *opts)
{
    mr_serve_opts_fill(opts, sizeof *opts);
}

/*
 * Starts to serve a loader's batches, on a thread of its own.
 * loader: opened with opts.shared = 1, and with batches on the host: device "cpu", or on_host. It
 * is borrowed until mr_server_close(): take no batches from it meanwhile. Its statistics and states
 * can be read; mr_loader_state_released() is the state before the oldest batch that any trainer has
 * not released.
 * opts: NULL: all defaults.
 * [out] out: on success; close it with mr_server_close().
 * Returns 0; MR_EMISUSE: the loader is not as above; MR_EOPTION; -EADDRINUSE: another process
 * listens there; -errno: no socket, no thread.
 */
MR_API int mr_loader_serve(struct mr_loader *loader, const struct mr_serve_opts *opts,
                           struct mr_server **out);

/*
 * Adds a trainer by one end of socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd). The trainer gives the
 * other end to mr_loader_attach(), in this or any other process.
 * fd: the server's on success: it is closed by it. Any thread.
 * Returns 0; MR_EMISUSE: the server has ended; MR_ELIMIT: MR_MAX_TRAINERS are waiting to be added;
 * -errno: not a socket.
 */
MR_API int mr_server_add(struct mr_server *server, int fd);

/*
 * Waits until the loader's last batch has been handed out and released by all trainers.
 * Returns 0; -ETIMEDOUT; the error that ended the loader's run, which trainers get as well;
 * MR_ECANCELLED after mr_server_cancel(). Any thread.
 */
MR_API int mr_server_wait(struct mr_server *server, int64_t timeout_ns);

struct mr_server_info {
    size_t size;       /* of this struct, set by the caller */
    uint32_t trainers; /* attached now */
    uint64_t attached; /* so far */
    uint64_t dropped;  /* that ended without mr_attached_close() */
    uint64_t batches;  /* handed out */
    uint64_t held;     /* of these: not yet released by all */
    uint64_t ahead;    /* as set or computed */
    int64_t slowest;   /* the process with the oldest unreleased batch; 0: none, or not known */
    uint64_t behind;   /* batches handed out that it has not released, from its oldest on */
};
/* Reads the figures. [out] out: on success, all but size. Returns 0, MR_EMISUSE. Any thread. */
MR_API int mr_server_query(struct mr_server *server, struct mr_server_info *out);

/* Ends serving soon: trainers get MR_ECANCELLED after the batches that they were sent. Any thread;
 * async-signal-safe. */
MR_API void mr_server_cancel(struct mr_server *server);

/*
 * Cancels what has not ended, and frees the server. Does not wait for trainers. The batches that
 * they hold then stay valid for them, and stay held in the loader: close it next. NULL is allowed.
 */
MR_API void mr_server_close(struct mr_server *server);

/* ---- trainers ---- */

/* A trainer's side: it gives batches as a loader does. */
struct mr_attached;

/* How a trainer attaches. */
struct mr_attach_opts {
    size_t size; /* of this struct, set by mr_attach_opts_init() */
    /* Where batches go; must outlive the attached object. NULL (default): they stay in host memory,
     * and `data` is the read-only view of the loader's slot. */
    struct mr_device *device;
    /* Devices with memory of their own: batches whose copies are enqueued ahead of the program,
     * 1 to 64; default 2. They count as not released: let `ahead` be as large, at least. */
    uint32_t prefetch;
    int fd; /* a connected socket, see mr_server_add(), instead of an address; default -1: none.
             * It is duplicated. */
    /* How long to wait for a server that is not there yet, or that does not answer. -1: as long as
     * it takes. 0 (default): it must be there, and answer in 10 s. */
    int64_t timeout_ns;
};
MR_API void mr_attach_opts_fill(struct mr_attach_opts *opts, size_t size);
static inline void mr_attach_opts_init(struct mr_attach_opts *opts)
{
    mr_attach_opts_fill(opts, sizeof *opts);
}

/*
 * Attaches to a server.
 * address: as in mr_serve_opts; NULL: opts.fd. opts: NULL: all defaults.
 * [out] out: on success; close it with mr_attached_close().
 * Returns 0; -ENOENT, -ECONNREFUSED: no server is there; -ETIMEDOUT; MR_EFORMAT: what is there is
 * no server, or one of another version; MR_ELIMIT: it has MR_MAX_TRAINERS; -EPIPE: it ended;
 * MR_EOPTION; MR_EMISUSE; -EACCES; -errno; MR_EDEVICE.
 */
MR_API int mr_loader_attach(const char *address, const struct mr_attach_opts *opts,
                            struct mr_attached **out);

/*
 * Waits for the next batch. Like mr_loader_next(), with these differences:
 *
 * `host` and, without a device, `data` must not be written: that ends the process with SIGSEGV, or
 * changes the batch of other trainers. Batches cannot become DLPack tensors. Up to ahead + 1
 * batches can be held; the next one comes when the oldest is released.
 *
 * Returns 1, or 0 after the last epoch, or the error that ended the run, again on later calls:
 * what the server's loader returned, MR_ECANCELLED, MR_EDEVICE, -EPIPE: the server's process has
 * ended. MR_EMISUSE (a wrong out->size, a stream of another device, another thread in this call)
 * ends nothing. One thread at a time.
 */
MR_API int mr_attached_next(struct mr_attached *attached, struct mr_stream *stream,
                            struct mr_batch *out);
/* The same, but not longer than timeout_ns, as mr_loader_next_for(); then -ETIMEDOUT. */
MR_API int mr_attached_next_for(struct mr_attached *attached, struct mr_stream *stream,
                                uint64_t timeout_ns, struct mr_batch *out);

/*
 * Returns a batch, as mr_loader_release(). stream: as there; without a device the call waits for
 * what was enqueued to it. Any thread, in any order. It may wait for another thread that enqueues a
 * copy. It also works after the end of the server.
 * Returns 0, MR_EDEVICE, MR_EMISUSE: it was released before, or (it stays held) the stream is of
 * another device or being captured.
 */
MR_API int mr_attached_release(struct mr_attached *attached, struct mr_batch *batch,
                               struct mr_stream *stream);

/* As mr_loader_field(): of one sample. */
MR_API const struct mr_spec *mr_attached_field(const struct mr_attached *attached, int field);

struct mr_attached_info {
    size_t size;      /* of this struct, set by the caller */
    uint64_t batches; /* as mr_loader_batches() of the server's loader */
    uint64_t samples; /* as mr_loader_samples() */
    uint64_t ahead;   /* the server's */
    uint64_t missed;  /* batches handed out before this trainer attached */
    uint64_t taken;   /* that mr_attached_next() returned */
    uint64_t wait_ns; /* in mr_attached_next() */
    int64_t server;   /* its process; 0: not known */
    int n_fields;
};
/* Reads the figures. [out] out: on success, all but size. Returns 0, MR_EMISUSE. Any thread. */
MR_API int mr_attached_query(const struct mr_attached *attached, struct mr_attached_info *out);

/* Makes mr_attached_next() return MR_ECANCELLED soon, and from now on. Any thread;
 * async-signal-safe. */
MR_API void mr_attached_cancel(struct mr_attached *attached);

/*
 * Detaches. Batches not yet released become invalid. Blocks until copies in progress and the work
 * behind which batches were released have ended. Not while another thread is in a call. NULL is
 * allowed.
 */
MR_API void mr_attached_close(struct mr_attached *attached);

#ifdef __cplusplus
}
#endif
#endif
