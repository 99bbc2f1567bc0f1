/*
 * Fields as DLPack tensors, after the array API standard.
 *
 * Not by mr_batch_to_dlpack(): a field may outlive the loader, and be handed on then. Each tensor
 * is a share of the lease, which ends on any thread, without the GIL.
 */
#include "tensor.h"
#include <stdlib.h>

struct tensor {
    struct core_lease *lease;
    int64_t shape[MR_MAX_RANK], strides[MR_MAX_RANK];
    union {
        struct mr_dlpack plain;
        struct mr_dlpack_versioned versioned;
    } as;
};

void core_field_device(const struct core_field *field, int *type, int *id)
{
    int ordinal = field->view.on_device ? core_device_ordinal(field->lease->device) : -1;
    *type = ordinal < 0 ? MR_DLPACK_CPU : MR_DLPACK_CUDA;
    *id = ordinal < 0 ? 0 : ordinal;
}

/* ---- making one ---- */

static void end(struct tensor *t)
{
    core_lease_put(t->lease);
    free(t);
}

static void end_plain(struct mr_dlpack *self)
{
    end(self->manager);
}

static void end_versioned(struct mr_dlpack_versioned *self)
{
    end(self->manager);
}

/* Capsules whose tensor was not taken. */
static void drop_plain(PyObject *capsule)
{
    struct mr_dlpack *t =
        PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (t)
        t->deleter(t);
}

static void drop_versioned(PyObject *capsule)
{
    struct mr_dlpack_versioned *t = PyCapsule_IsValid(capsule, "dltensor_versioned")
                                        ? PyCapsule_GetPointer(capsule, "dltensor_versioned")
                                        : NULL;
    if (t)
        t->deleter(t);
}

static struct mr_dlpack_tensor describe(const struct core_field *f, struct tensor *t)
{
    static const uint8_t codes[MR_N_DTYPES] = {
        MR_DLPACK_BOOL,   MR_DLPACK_UINT,  MR_DLPACK_INT,   MR_DLPACK_UINT,    MR_DLPACK_INT,
        MR_DLPACK_UINT,   MR_DLPACK_INT,   MR_DLPACK_UINT,  MR_DLPACK_INT,     MR_DLPACK_FLOAT,
        MR_DLPACK_BFLOAT, MR_DLPACK_FLOAT, MR_DLPACK_FLOAT, MR_DLPACK_COMPLEX, MR_DLPACK_COMPLEX};
    const struct mr_spec *spec = &f->view.spec;
    int64_t size = (int64_t)mr_dtype_size(spec->dtype);
    int type, id;
    core_field_device(f, &type, &id);
    for (int d = 0; d < spec->rank; d++) {
        t->shape[d] = f->shape[d];
        t->strides[d] = f->strides[d] / size;
    }
    return (struct mr_dlpack_tensor){.data = f->view.data,
                                     .device_type = type,
                                     .device_id = id,
                                     .ndim = spec->rank,
                                     .code = codes[spec->dtype],
                                     .bits = (uint8_t)(8 * size),
                                     .lanes = 1,
                                     .shape = t->shape,
                                     .strides = t->strides};
}

static PyObject *capsule_of(const struct core_field *f, int versioned, struct core_lease *lease,
                            void *copy)
{
    struct tensor *t = calloc(1, sizeof *t);
    if (!t) {
        core_lease_put(lease);
        return PyErr_NoMemory();
    }
    t->lease = lease;
    struct mr_dlpack_tensor shown = describe(f, t);
    if (copy)
        shown.data = copy;
    PyObject *capsule;
    if (versioned) {
        uint64_t flags = f->view.read_only && !copy ? MR_DLPACK_READ_ONLY : 0;
        t->as.versioned = (struct mr_dlpack_versioned){.major = 1,
                                                       .manager = t,
                                                       .deleter = end_versioned,
                                                       .flags = flags | (copy ? 2 : 0),
                                                       .tensor = shown};
        capsule = PyCapsule_New(&t->as.versioned, "dltensor_versioned", drop_versioned);
    } else {
        t->as.plain = (struct mr_dlpack){.tensor = shown, .manager = t, .deleter = end_plain};
        capsule = PyCapsule_New(&t->as.plain, "dltensor", drop_plain);
    }
    if (!capsule)
        end(t);
    return capsule;
}

static PyObject *copied(const struct core_field *f, int versioned)
{
    struct core_lease *lease = core_lease_alloc(f->bytes);
    if (!lease)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    memcpy(lease->own, f->view.data, f->bytes);
    Py_END_ALLOW_THREADS;
    return capsule_of(f, versioned, lease, lease->own);
}

/* ---- streams ---- */

/* Makes the consumer's stream wait for the bytes, and the batch's end for its work. Work in a
 * stream that next() was not called with may go on in others, so its end is that of all streams. */
static int hand_over(const struct core_field *f, void *native)
{
    struct core_lease *lease = f->lease;
    struct core_device *device = lease->device;
    struct mr_stream *stream;
    int rc = core_device_stream(device, native, &stream);
    if (rc < 0)
        return rc;
    if (stream == lease->arrived)
        return 0;
    core_lease_use(lease, mr_stream_any(core_device_of(device)));
    return lease->arrived ? core_device_order(device, lease->arrived, stream) : 0;
}

/* The array API's stream: None is the legacy default one, -1 asks for no order. */
static int order(const struct core_field *f, PyObject *stream)
{
    long long value = stream == Py_None ? 1 : PyLong_AsLongLong(stream);
    if (PyErr_Occurred())
        return -1;
    if (value == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "stream=0 is ambiguous: expected None, -1, 1, 2 or a CUDA stream");
        return -1;
    }
    int rc = 0;
    if (value == -1)
        core_lease_use(f->lease, mr_stream_any(core_device_of(f->lease->device)));
    else
        rc = hand_over(f, (void *)(intptr_t)value);
    if (rc < 0)
        core_fail(core_of((PyObject *)f), rc, NULL);
    return rc;
}

/* ---- __dlpack__ ---- */

static int check_device(PyObject *wanted, int type, int id)
{
    int wanted_type, wanted_id;
    if (wanted == Py_None)
        return 0;
    PyObject *tuple = PySequence_Tuple(wanted);
    int ok = tuple &&
             PyArg_ParseTuple(tuple, "ii;dl_device: expected (type, id)", &wanted_type, &wanted_id);
    Py_XDECREF(tuple);
    if (!ok)
        return -1;
    if (wanted_type == type && wanted_id == id)
        return 0;
    PyErr_Format(PyExc_BufferError, "dl_device=(%d, %d): the field is on (%d, %d)", wanted_type,
                 wanted_id, type, id);
    return -1;
}

static int major_of(PyObject *version)
{
    int major = 0, minor = 0;
    if (version == Py_None)
        return 0;
    PyObject *tuple = PySequence_Tuple(version);
    int ok =
        tuple && PyArg_ParseTuple(tuple, "ii;max_version: expected (major, minor)", &major, &minor);
    Py_XDECREF(tuple);
    return ok ? major : -1;
}

PyObject *core_field_dlpack(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    struct core_field *f = (struct core_field *)self;
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    int type, id;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy))
        return NULL;
    core_field_device(f, &type, &id);
    int major = major_of(version);
    if (major < 0 || check_device(device, type, id) < 0)
        return NULL;
    int copies = PyObject_IsTrue(copy);
    if (copies && type != MR_DLPACK_CPU) {
        PyErr_SetString(PyExc_BufferError, "copy=True: a field in device memory is not copied");
        return NULL;
    }
    if (copies)
        return copied(f, major >= 1);
    if (type == MR_DLPACK_CUDA && order(f, stream) < 0)
        return NULL;
    return capsule_of(f, major >= 1, core_lease_share(f->lease), NULL);
}

/* For who uses the batch in next()'s stream: most of __dlpack__() is looking at its arguments. */
PyObject *core_field_capsule(PyObject *self, PyObject *unused)
{
    struct core_field *f = (struct core_field *)self;
    int type, id;
    (void)unused;
    core_field_device(f, &type, &id);
    if (type == MR_DLPACK_CUDA && !f->lease->arrived)
        core_lease_use(f->lease, mr_stream_any(core_device_of(f->lease->device)));
    return capsule_of(f, 0, core_lease_share(f->lease), NULL);
}
