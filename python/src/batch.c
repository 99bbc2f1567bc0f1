/* millrace._core.Batch */
#include "field.h"

struct batch {
    PyObject_HEAD struct core_lease *lease; /* NULL: released */
};

PyObject *core_batch_create(const struct core *core, struct core_lease *lease)
{
    struct batch *b = core_new(core->batch);
    if (b)
        b->lease = lease;
    else
        core_lease_put(lease);
    return (PyObject *)b;
}

static void batch_dealloc(PyObject *self)
{
    core_lease_put(((struct batch *)self)->lease);
    core_free(self);
}

static const struct mr_batch *batch_of(PyObject *self)
{
    const struct core_lease *lease = ((struct batch *)self)->lease;
    if (lease)
        return &lease->batch;
    PyErr_SetString(PyExc_ValueError, "the batch was released");
    return NULL;
}

static int find(const struct mr_batch *batch, PyObject *key)
{
    if (PyUnicode_Check(key)) {
        for (int f = 0; f < batch->n_fields; f++)
            if (PyUnicode_CompareWithASCIIString(key, batch->field[f].spec.name) == 0)
                return f;
        PyErr_SetObject(PyExc_KeyError, key);
        return -1;
    }
    long f = PyLong_AsLong(key);
    if (f == -1 && PyErr_Occurred())
        return -1;
    if (f >= 0 && f < batch->n_fields)
        return (int)f;
    PyErr_Format(PyExc_IndexError, "field %ld, expected 0 to %d", f, batch->n_fields - 1);
    return -1;
}

static PyObject *batch_field(PyObject *self, PyObject *key)
{
    const struct mr_batch *batch = batch_of(self);
    int f = batch ? find(batch, key) : -1;
    if (f < 0)
        return NULL;
    struct core_lease *lease = ((struct batch *)self)->lease;
    const struct mr_batch_field *field = &batch->field[f];
    struct core_field_view view = {.data = field->data,
                                   .spec = field->spec,
                                   .on_device = field->data != field->host,
                                   .read_only = lease->read_only && field->data == field->host,
                                   .text = f};
    return core_field_create(core_of(self), lease, &view);
}

static PyObject *batch_release(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"stream", NULL};
    PyObject *object = Py_None;
    struct batch *b = (struct batch *)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O:release", names, &object))
        return NULL;
    struct core_lease *lease = b->lease;
    if (lease && object != Py_None && core_device_ordinal(lease->device) >= 0) {
        struct mr_stream *stream;
        void *native = PyLong_AsVoidPtr(object);
        if (!native && PyErr_Occurred())
            return NULL;
        int rc = core_device_stream(lease->device, native, &stream);
        if (rc < 0)
            return core_fail(core_of(self), rc, NULL);
        core_lease_use(lease, stream);
    }
    b->lease = NULL;
    core_lease_put(lease);
    Py_RETURN_NONE;
}

static Py_ssize_t batch_length(PyObject *self)
{
    const struct mr_batch *batch = batch_of(self);
    return batch ? batch->n_fields : -1;
}

/* Numbers of the samples, as a memoryview that keeps the batch. */
static PyObject *numbers(PyObject *self, const uint64_t *values, const char *name)
{
    struct core_lease *lease = ((struct batch *)self)->lease;
    struct core_field_view view = {.read_only = 1, .text = -1};
    view.spec = (struct mr_spec){.dtype = MR_U64, .rank = 1, .dim = {lease->batch.n}};
    strcpy(view.spec.name, name);
    memcpy(&view.data, &values, sizeof values);
    PyObject *field = core_field_create(core_of(self), lease, &view);
    PyObject *memory = field ? PyMemoryView_FromObject(field) : NULL;
    Py_XDECREF(field);
    return memory;
}

static PyObject *names_of(const struct mr_batch *batch)
{
    PyObject *list = PyList_New(0);
    for (int f = 0; list && f < batch->n_fields; f++) {
        PyObject *name = PyUnicode_FromString(batch->field[f].spec.name);
        if (!name || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

enum attribute { N, EPOCH, INDEX, LAST, INDICES, POSITIONS, NAMES };

static PyObject *batch_get(PyObject *self, void *which)
{
    const struct mr_batch *batch = batch_of(self);
    if (!batch)
        return NULL;
    switch ((enum attribute)(intptr_t)which) {
    case N:
        return PyLong_FromUnsignedLongLong(batch->n);
    case EPOCH:
        return PyLong_FromUnsignedLongLong(batch->epoch);
    case INDEX:
        return PyLong_FromUnsignedLongLong(batch->index);
    case LAST:
        return PyBool_FromLong(batch->last);
    case INDICES:
        return numbers(self, batch->indices, "indices");
    case POSITIONS:
        return numbers(self, batch->positions, "positions");
    default:
        return names_of(batch);
    }
}

static PyGetSetDef attributes[] = {
    {"n", batch_get, NULL, "Samples.", (void *)N},
    {"epoch", batch_get, NULL, "From 0.", (void *)EPOCH},
    {"index", batch_get, NULL, "Of this batch in its epoch, from 0.", (void *)INDEX},
    {"last", batch_get, NULL, "Whether all others of its epoch have been returned.", (void *)LAST},
    {"indices", batch_get, NULL, "Each sample's index in the data set: a memoryview of u64.",
     (void *)INDICES},
    {"positions", batch_get, NULL, "Each sample's position in the epoch: a memoryview of u64.",
     (void *)POSITIONS},
    {"names", batch_get, NULL, "The fields' names.", (void *)NAMES},
    {NULL, NULL, NULL, NULL, NULL}};

#define CALL(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"field", batch_field, METH_O, "field(i): a Field, by its number or name."},
    {"release", CALL(batch_release), METH_VARARGS | METH_KEYWORDS,
     "release(stream=None): gives the batch back, behind the work in a native CUDA stream. Fields "
     "and tensors that were made of it keep it."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, batch_dealloc},
                              {Py_sq_length, batch_length},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {Py_tp_doc, "A batch. It is held until it, and all that was made of "
                                          "it, is gone."},
                              {0, NULL}};
PyType_Spec core_batch_spec = {"millrace._core.Batch", sizeof(struct batch), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
