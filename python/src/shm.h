/*
 * Memory that processes share: blocks, pools and rings of millrace/shm.h.
 *
 * A pool or ring keeps its block, and a tensor its pool, in plain C: arrays made of a tensor may
 * outlive all Python objects, and end on any thread without the GIL. A tensor that this process
 * holds is a lease (lease.h), whose end gives it back.
 *
 *   shm.c         blocks, and the types
 *   shm_parts.c   pools and rings
 */
#ifndef MILLRACE_PYTHON_SHM_H
#define MILLRACE_PYTHON_SHM_H

#include "core.h"
#include <stdatomic.h>

struct core_device;

struct core_shm {
    atomic_uint refs;
    struct mr_shm *shm;
    struct core_device *device; /* that it is page-locked for, or NULL */
};

/* A pool or a ring. */
struct core_shm_part {
    atomic_uint refs;
    struct core_shm *block;
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
};

struct core_shm_object {
    PyObject_HEAD struct core_shm_part *part;
};

struct core_shm_part *core_shm_share(struct core_shm_part *part);
void core_shm_put(struct core_shm_part *part);

/* Raises the exception for the library's latest error. Returns NULL. */
PyObject *core_shm_fail(PyObject *self, int64_t rc);

extern PyMethodDef core_shm_pool_methods[], core_shm_ring_methods[];

#endif
