/*
 * Memory that processes share: blocks, tensors in them that are taken and given back by any
 * process, and rings through which their handles travel.
 *
 *     struct mr_shm *shm;                                  // 64 tensors, a ring of 64 handles
 *     uint64_t bytes = mr_shm_pool_bytes(&spec, 64) + mr_shm_ring_bytes(64);
 *     mr_shm_create(NULL, bytes, 0, &shm);
 *     mr_shm_pool_create(shm, "frames", &spec, 64, &pool);
 *     mr_shm_ring_create(shm, "ready", 64, &ring);
 *     ... fork, or start a process that gets mr_shm_fd(shm) and calls mr_shm_attach() and
 *         mr_shm_pool_attach(shm, "frames", &pool), mr_shm_ring_attach(shm, "ready", &ring)
 *
 *     uint64_t handle;                                     // the producer
 *     mr_shm_pool_take(pool, -1, &handle);
 *     fill(mr_shm_pool_data(pool, handle));
 *     mr_shm_ring_push(ring, &handle, 1, -1);
 *
 *     mr_shm_ring_pop(ring, &handle, 1, -1);               // the consumer
 *     mr_shm_pool_accept(pool, handle);
 *     use(mr_shm_pool_data(pool, handle));
 *     mr_shm_pool_give(pool, handle);
 *
 * Nothing is copied and nothing is serialized. A block is a memfd: it needs no /dev/shm, has no
 * name that could be left behind, and is gone with the last process that has it.
 *
 * Any process may be killed at any instruction; the others go on. What it held of a pool comes back
 * by mr_shm_pool_reclaim(). Processes that share a block trust each other: one that writes where it
 * may not breaks the others. But sizes and offsets are checked before they are used: calls that
 * attach to a damaged block fail with MR_EFORMAT, whose text says what is wrong.
 *
 * timeout_ns, in all calls that wait: -1: as long as it takes; 0: do not wait, -EAGAIN instead;
 * else nanoseconds, then -ETIMEDOUT.
 *
 * Parts (pools, rings, areas) are made by one process at a time; best before others attach.
 *
 * Whether a process has ended is asked by its id (pidfd_open; without a free descriptor kill() and
 * /proc), and by the time at which it started: its id may be another process's by now. Where that
 * time cannot be had (no /proc, no free descriptor, killed just as it took a tensor), a process of
 * the same id counts as the same.
 *
 * Threads: all calls but create, attach and close may be made by any threads at once. fork: a child
 * may use what it inherits, and closes it. Process ids are this process's: use one pid namespace.
 */
#ifndef MILLRACE_SHM_H
#define MILLRACE_SHM_H

#include <millrace/error.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_device;

/* ---- blocks ---- */

struct mr_shm;

enum mr_shm_flags {
    MR_SHM_PINNED = 1, /* page-lock it for `dev`: copies can use it as MR_PINNED */
};

#define MR_SHM_NAME_BYTES 32 /* of a pool's, ring's or area's name, with the 0 */
#define MR_SHM_MAX_PARTS  64 /* pools, rings and areas of a block */

/*
 * Makes a block with space for so many bytes of parts: the sum of mr_shm_pool_bytes(),
 * mr_shm_ring_bytes() and mr_shm_area_bytes(). Its memory is zero.
 * dev: for MR_SHM_PINNED, must outlive the block here; else NULL.
 * Returns 0; -errno: no memfd, no memory; MR_EMISUSE; MR_ELIMIT: too many bytes, or the system's
 * limit of locked memory; MR_EDEVICE.
 */
MR_API int mr_shm_create(struct mr_device *dev, uint64_t bytes, unsigned flags,
                         struct mr_shm **out);
/* Maps a block that another process made. fd: from mr_shm_fd() there, got by fork, exec or
 * SCM_RIGHTS; it is duplicated. dev, flags: as above, for this process. Errors as above;
 * MR_EFORMAT: not a block, of another version, or damaged. */
MR_API int mr_shm_attach(struct mr_device *dev, int fd, unsigned flags, struct mr_shm **out);
/* The descriptor, closed on exec and by mr_shm_close(). -1: shm is NULL. */
MR_API int mr_shm_fd(const struct mr_shm *shm);
/* Unmaps the block here. Close its pools and rings before. NULL: nothing. */
MR_API void mr_shm_close(struct mr_shm *shm);

/* Plain bytes, aligned to 64. The call with a new name makes the area, the others find it, with the
 * same size. Returns 0; MR_EMISUSE: no name, too long a name, another size; MR_ELIMIT: no space,
 * too many parts; MR_EFORMAT. */
MR_API int mr_shm_area(struct mr_shm *shm, const char *name, uint64_t bytes, void **out);
MR_API uint64_t mr_shm_area_bytes(uint64_t bytes); /* what it takes of a block */

/* ---- pools ---- */

/* n tensors of one spec. A tensor is free, or held by one process. */
struct mr_shm_pool;

/* What a pool takes of a block. UINT64_MAX: too much, or no spec. */
MR_API uint64_t mr_shm_pool_bytes(const struct mr_spec *spec, uint64_t n);
/* Makes a pool, 1 <= n < 2^32. name: new in this block. Errors as mr_shm_area(), MR_EMISUSE also
 * for a wrong spec; -ENOMEM. */
MR_API int mr_shm_pool_create(struct mr_shm *shm, const char *name, const struct mr_spec *spec,
                              uint64_t n, struct mr_shm_pool **out);
/* Finds a pool that any process has made. -ENOENT: there is none of that name; MR_EFORMAT. */
MR_API int mr_shm_pool_attach(struct mr_shm *shm, const char *name, struct mr_shm_pool **out);
MR_API void mr_shm_pool_close(struct mr_shm_pool *pool); /* here; NULL: nothing */
MR_API const struct mr_spec *mr_shm_pool_spec(const struct mr_shm_pool *pool);

/* Takes a free tensor: this process holds it. [out] handle: for all processes, never 0. Its bytes
 * are what the last holder left. Returns 0, -EAGAIN, -ETIMEDOUT. */
MR_API int mr_shm_pool_take(struct mr_shm_pool *pool, int64_t timeout_ns, uint64_t *handle);
/* Holds it instead of the process that held it so far. Returns 0; MR_EMISUSE: the handle is stale,
 * as the tensor has been given back or reclaimed. */
MR_API int mr_shm_pool_accept(struct mr_shm_pool *pool, uint64_t handle);
/* Gives a tensor back, whoever holds it. Returns 0; MR_EMISUSE: the handle is stale. */
MR_API int mr_shm_pool_give(struct mr_shm_pool *pool, uint64_t handle);
/* The tensor's bytes in this process, aligned to 64. NULL: the handle is stale. */
MR_API void *mr_shm_pool_data(struct mr_shm_pool *pool, uint64_t handle);
/* Frees the tensors that a process held when it ended, including those that it pushed and that no
 * process has accepted: their handles become stale. pid: what getpid() returned there. Returns how
 * many; -EBUSY: it is running. */
MR_API int64_t mr_shm_pool_reclaim(struct mr_shm_pool *pool, int64_t pid);
/* How many are free now. */
MR_API uint64_t mr_shm_pool_free(const struct mr_shm_pool *pool);

/* ---- rings ---- */

/* A queue of 64-bit values with n places, for any number of producers and consumers. */
struct mr_shm_ring;

/* What a ring takes of a block. UINT64_MAX: n is out of range. */
MR_API uint64_t mr_shm_ring_bytes(uint64_t n);
/* Makes a ring, 1 <= n <= 2^24. Errors as mr_shm_pool_create(). */
MR_API int mr_shm_ring_create(struct mr_shm *shm, const char *name, uint64_t n,
                              struct mr_shm_ring **out);
MR_API int mr_shm_ring_attach(struct mr_shm *shm, const char *name, struct mr_shm_ring **out);
MR_API void mr_shm_ring_close(struct mr_shm_ring *ring); /* here; NULL: nothing */

/* Appends n values, in order, though others' may come between them. Returns how many, less than n
 * if the time is over; -EAGAIN, -ETIMEDOUT: none; -EPIPE: the ring has ended; MR_EFORMAT: another
 * process damaged the ring. */
MR_API int64_t mr_shm_ring_push(struct mr_shm_ring *ring, const uint64_t *v, uint64_t n,
                                int64_t timeout_ns);
/*
 * Takes up to n values; waits for the first one only. Returns how many; -EAGAIN, -ETIMEDOUT;
 * MR_END: the ring has ended and is empty; -EOWNERDEAD, once for each: a producer was killed while
 * it wrote a value, which is lost. Go on then; its tensors can be reclaimed. MR_EFORMAT: another
 * process damaged the ring.
 */
MR_API int64_t mr_shm_ring_pop(struct mr_shm_ring *ring, uint64_t *v, uint64_t n,
                               int64_t timeout_ns);
/* Nothing more comes: push fails, and pop ends when the ring is empty. Call it once the producers
 * are done: what is being pushed meanwhile may be lost. */
MR_API void mr_shm_ring_end(struct mr_shm_ring *ring);

#ifdef __cplusplus
}
#endif
#endif
