/*
 * millrace._core: the library's objects as Python's.
 *
 * In the limited API of Python 3.10, so that one file serves all later ones. Each object is a thin
 * shell around one of the library's. What must live longer than a Python object, and what ends on
 * threads that Python does not know, is plain C with a count of its own: struct core_engine,
 * struct core_lease (lease.h).
 *
 * Threads: all functions are called with the GIL unless they say otherwise.
 */
#ifndef MILLRACE_PYTHON_CORE_H
#define MILLRACE_PYTHON_CORE_H

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The headers of 3.12 and later take None for immortal, which it is not in 3.10 and 3.11. */
#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_NewRef(Py_None)

#include <millrace/dlpack.h>
#include <millrace/millrace.h>

enum { CORE_KINDS = 16 };

/* What is known of a type of object (view.h). */
enum core_how {
    CORE_OTHER,
    CORE_BOOL,
    CORE_INT,
    CORE_FLOAT,
    CORE_STR,
    CORE_BUFFER,
    CORE_NUMPY,    /* and the buffer protocol, where numpy.c does not know a dtype */
    CORE_EXCHANGE, /* DLPack's exchange API, in C */
    CORE_DLPACK    /* __dlpack__() */
};
struct core_kind {
    PyTypeObject *type;
    enum core_how how;
    int (*look)(void *object, struct mr_dlpack_tensor *out); /* CORE_EXCHANGE */
    int has_bits;                                            /* torch: is_conj() and is_neg() */
};

/* The module's state. */
struct core {
    PyTypeObject *dataset, *sampler, *loader, *batch, *field, *chain, *attached, *shm_pool,
        *shm_ring;
    PyObject *error, *format_error, *bad_samples, *cancelled;
    PyObject *spec; /* the named tuple */
    struct core_kind kinds[CORE_KINDS];
    unsigned next_kind;
};

/* ---- module.c ---- */

/* The state of the module that an object's type belongs to. */
struct core *core_of(PyObject *self);

/* A new object of a type, all of its own members 0. */
void *core_new(PyTypeObject *type);

/* Frees an object of a heap type. */
void core_free(void *self);

/* ---- errors.c ---- */

int core_errors_init(PyObject *module, struct core *core);

/* Raises the exception for an error of the library. text NULL: mr_last_error(). Returns NULL. */
PyObject *core_fail(const struct core *core, int rc, const char *text);

/* Takes the pending exception's type and text: "ValueError: too long". Returns mr_error_set(rc). */
int core_catch(int rc);

/* ---- spec.c ---- */

int core_spec_init(PyObject *module, struct core *core);

/* Reads a sequence of Specs or tuples. Returns how many there are, or -1 with an exception. */
int core_specs_read(PyObject *fields, struct mr_spec out[MR_MAX_FIELDS]);

/* Makes a Spec; a list of them. */
PyObject *core_spec_make(const struct core *core, const struct mr_spec *spec);
PyObject *core_specs_make(const struct core *core, int n,
                          const struct mr_spec *(*get)(const void *, int), const void *of);

/* The name of a dtype, and "string" and "bytes" for texts. */
const char *core_dtype_name(const struct mr_spec *spec);

/* A shape as a tuple of ints. */
PyObject *core_shape_make(const uint64_t dim[], int rank);

/* Unsigned numbers as a list of ints. */
PyObject *core_uints_make(const uint64_t values[], Py_ssize_t n);

/* Reads a sequence of ints. [out] out: malloc'd. Returns 0, or -1 with an exception. */
int core_uints_read(PyObject *values, uint64_t **out, uint64_t *n);

/* ---- recording.c ---- */

/* Adds the type Recording. */
int core_recording_init(PyObject *module);

/* ---- shm.c ---- */

/* Adds the types ShmBlock, ShmPool and ShmRing. */
int core_shm_init(PyObject *module, struct core *core);

/* ---- arrow.c ---- */

/* Adds the functions arrow_...(). */
int core_arrow_init(PyObject *module);

/* ---- trace.c ---- */

/* Adds the functions trace_...(). */
int core_trace_init(PyObject *module);

/* ---- types ---- */

extern PyType_Spec core_dataset_spec, core_sampler_spec, core_loader_spec, core_batch_spec,
    core_field_spec, core_chain_spec;

#endif
