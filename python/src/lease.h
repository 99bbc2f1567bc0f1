/*
 * Batches that outlive what they came from.
 *
 * A lease is a held batch with a count of who uses it: Python's Batch and Field objects, and each
 * tensor that another library got. The last one to go, on any thread and without the GIL, gives the
 * batch back. An engine is a loader with a count: its owner and its leases.
 *
 * When a loader is closed while batches are out, each of them first gets a DLPack tensor of the
 * library's own (its keeper), which holds the memory until the lease ends. A tensor's end waits for
 * one stream: a batch that is used in another one after the close gets a second keeper, of all.
 */
#ifndef MILLRACE_PYTHON_LEASE_H
#define MILLRACE_PYTHON_LEASE_H

#include <millrace/dlpack.h>
#include <millrace/serve.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* ---- device.c: a device and the foreign streams used on it ---- */

struct core_device;

/* Opens a device, or shares the one that is open by that name. [out] out: core_device_put() it. */
int core_device_get(const char *uri, struct core_device **out);
struct core_device *core_device_share(struct core_device *device);
void core_device_put(struct core_device *device);
struct mr_device *core_device_of(struct core_device *device);

/* The GPU's number; -1: the device's memory is host memory. */
int core_device_ordinal(const struct core_device *device);

/* The wrapper of a native stream, which lives as long as the device. */
int core_device_stream(struct core_device *device, void *native, struct mr_stream **out);

/* Makes `later` wait for what has been enqueued to `earlier`. */
int core_device_order(struct core_device *device, struct mr_stream *earlier,
                      struct mr_stream *later);

/* 1 on a loader's thread (source.c). */
extern _Thread_local int core_source_thread;

/* ---- engine.c ---- */

struct core_lease {
    atomic_uint refs;
    struct core_engine
        *engine; /* NULL: no batch of a loader, but memory of its own, or of others */
    struct core_device *device; /* of the batch; NULL: host memory */
    pthread_mutex_t *lock;      /* of `used`, if there is a device */
    void *own;
    void (*end)(void *user); /* called with the last share, if set */
    void *user;
    int read_only;                     /* the batch's host memory */
    struct mr_stream *arrived;         /* where the bytes arrive; NULL: they are there */
    struct mr_stream *used;            /* where they are used; NULL: nowhere but on the host */
    struct mr_dlpack *keeper, *second; /* since the close, since a use in another stream */
    int lacks_second;                  /* there was no memory for it */
    struct core_lease *next, *before;  /* of the engine's; under its lock */
    struct mr_batch batch;             /* the last member: only its first n_fields are set */
};

struct core_engine {
    atomic_uint refs;
    pid_t pid; /* whose threads it has: in a forked child nothing is given back or waited for */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct mr_loader *loader; /* NULL: closed */
    struct mr_server *server; /* of the loader's batches; NULL: it does not serve */
    int closing;
    unsigned calls; /* in progress, which use the loader */
    struct core_device *device;
    struct core_lease *leases;
    struct core_lease *late; /* that ended on the loader's own threads, which may not release */
    struct core_engine *next, *before; /* all that are open */
};

/* Takes over the loader and the device (both also on failure). NULL: no memory, or the process is
 * ending. */
struct core_engine *core_engine_create(struct mr_loader *loader, struct core_device *device);
void core_engine_put(struct core_engine *engine);

/* The loader for one call; NULL: it is closed. leave ends the call. */
struct mr_loader *core_engine_enter(struct core_engine *engine);
void core_engine_leave(struct core_engine *engine);

/* Ends the loader; batches that are out stay as they are. Blocks: call it without the GIL. */
void core_engine_close(struct core_engine *engine);

/* Waits until another thread has closed it, or so long. Without the GIL. */
void core_engine_wait(struct core_engine *engine, uint64_t timeout_ns);

/* Closes all loaders of the process, and lets no more be opened. Without the GIL. */
void core_engine_close_all(void);

/* A lease of a batch that the engine's loader returned. NULL: no memory, and the batch is given
 * back. */
struct core_lease *core_lease_create(struct core_engine *engine, const struct mr_batch *batch,
                                     struct mr_stream *arrived);
/* A lease of memory of its own, 64-byte aligned. NULL: no memory. */
struct core_lease *core_lease_alloc(uint64_t bytes);
/* A lease of memory that `end` gives back, on any thread and without the GIL. NULL: no memory, and
 * end is not called. */
struct core_lease *core_lease_borrow(void (*end)(void *user), void *user);
struct core_lease *core_lease_share(struct core_lease *lease);
void core_lease_put(struct core_lease *lease);

/* Notes a stream that uses the batch from now on. */
void core_lease_use(struct core_lease *lease, struct mr_stream *stream);

#endif
