/*
 * The memory of an object: of a numpy array, a torch tensor, or whatever has Python's buffer
 * protocol or DLPack. Neither numpy nor torch is imported: what a type offers is found once.
 *
 * The buffer protocol is in the limited API from Python 3.11 on; 3.10 has the same calls and the
 * same struct, so they are looked up at run time.
 */
#ifndef MILLRACE_PYTHON_VIEW_H
#define MILLRACE_PYTHON_VIEW_H

#include "core.h"
#include <millrace/dlpack.h>

/* Py_buffer. */
struct core_buffer {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
};

enum { CORE_BUFFER_STRIDED = 0x1c, CORE_BUFFER_FORMAT = 4 }; /* PyBUF_STRIDES with PyBUF_ND, ... */

/* A tensor in memory. The object must live until it is ended. */
struct core_view {
    char *data;
    enum mr_dtype dtype;
    int ndim;
    int64_t shape[MR_MAX_RANK], strides[MR_MAX_RANK]; /* in bytes */
    struct core_buffer buffer;                        /* obj is set: to be released */
    PyObject *owner; /* of the memory, if not the object itself; or NULL */
};

/* Looks up the calls of the buffer protocol. */
int core_view_init(void);

/* What an object's type offers. */
struct core_kind core_kind_of(struct core *core, PyObject *object);
void core_kinds_clear(struct core *core);

/* Whether arrays of a type are numpy's, and core_numpy_view() reads them as the buffer protocol
 * does: object is one of them, and view what that says. */
int core_numpy_fits(PyTypeObject *type, PyObject *object, const struct core_view *view);

/* Views a numpy array, without a buffer. Returns 1; 0: not of a plain dtype, or of too many
 * dimensions. */
int core_numpy_view(PyObject *object, struct core_view *out);

/* Views an object in host memory. Returns 0, or -1 with an exception. */
int core_view_begin(const struct core_kind *kind, PyObject *object, struct core_view *out);
void core_view_end(struct core_view *view);

/* Whether elements follow each other in C order. */
int core_view_is_dense(const struct core_view *view);
uint64_t core_view_bytes(const struct core_view *view);

/* Copies the elements in C order. Needs no GIL. */
void core_view_copy(const struct core_view *view, void *to);

/* Copies n bytes. Needs no GIL. */
void core_copy(void *to, const void *from, size_t n);

/* Whether long copies bypass the caches: for memory that this process writes and does not read.
 * For the whole process; call it before other threads copy. Default: 0. */
void core_copy_stream(int on);

/* Orders this thread's copies before its later stores. Call it before signalling another process
 * that the data is ready: streaming stores are not ordered by themselves. */
void core_copy_fence(void);

/* As text, "f32[3,224,224]". */
const char *core_view_format(const struct core_view *view, char *buf, size_t cap);

#endif
