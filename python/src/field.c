/* millrace._core.Field */
#include "tensor.h"
#include "view.h"

PyObject *core_field_create(const struct core *core, struct core_lease *lease,
                            const struct core_field_view *view)
{
    struct core_field *f = core_new(core->field);
    if (!f)
        return NULL;
    f->lease = core_lease_share(lease);
    f->view = *view;
    const struct mr_spec *spec = &view->spec;
    uint64_t stride = mr_dtype_size(spec->dtype);
    for (int d = spec->rank - 1; d >= 0; d--) {
        f->shape[d] = (Py_ssize_t)spec->dim[d];
        f->strides[d] = (Py_ssize_t)stride;
        stride *= spec->dim[d];
    }
    f->bytes = stride;
    return (PyObject *)f;
}

static void field_dealloc(PyObject *self)
{
    core_lease_put(((struct core_field *)self)->lease);
    core_free(self);
}

/* ---- the buffer protocol ---- */

/* None: bf16 has no format. */
static const char *const formats[MR_N_DTYPES] = {"?", "B", "b",  "H", "h", "I",  "i", "Q",
                                                 "q", "e", NULL, "f", "d", "Zf", "Zd"};

static int refuse_buffer(struct core_buffer *out, const char *why)
{
    out->obj = NULL;
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
}

static int field_getbuffer(PyObject *self, struct core_buffer *out, int flags)
{
    struct core_field *f = (struct core_field *)self;
    int type, id;
    core_field_device(f, &type, &id);
    const char *format = formats[f->view.spec.dtype];
    if (type != MR_DLPACK_CPU)
        return refuse_buffer(out, "the field is in device memory: use DLPack");
    if (!format)
        return refuse_buffer(out, "Python's buffers have no format for bf16: use DLPack");
    if (f->view.read_only && (flags & 1)) /* PyBUF_WRITABLE */
        return refuse_buffer(out, "the field must not be written to");
    Py_INCREF(self);
    *out = (struct core_buffer){.buf = f->view.data,
                                .obj = self,
                                .len = (Py_ssize_t)f->bytes,
                                .itemsize = (Py_ssize_t)mr_dtype_size(f->view.spec.dtype),
                                .readonly = f->view.read_only,
                                .ndim = f->view.spec.rank,
                                .shape = f->shape,
                                .strides = f->strides};
    memcpy(&out->format, &format, sizeof format);
    return 0;
}

/* ---- attributes ---- */

/* The batch's field that this one is; NULL: it is none. */
static const struct mr_batch_field *batch_field(const struct core_field *f)
{
    return f->view.text >= 0 ? &f->lease->batch.field[f->view.text] : NULL;
}

static PyObject *other(const struct core_field *f, const void *data, const struct mr_spec *spec)
{
    struct core_field_view view = {.spec = *spec, .read_only = 1, .text = -1};
    if (!data)
        Py_RETURN_NONE;
    memcpy(&view.data, &data, sizeof data);
    strcpy(view.spec.name, f->view.spec.name);
    return core_field_create(core_of((PyObject *)f), f->lease, &view);
}

static PyObject *get_part(const struct core_field *f, enum mr_dlpack_part part)
{
    const struct mr_batch_field *field = batch_field(f);
    if (!field)
        Py_RETURN_NONE;
    if (part == MR_DLPACK_HOST) {
        if (f->lease->device) /* copies out of it may be in any stream */
            core_lease_use(f->lease, mr_stream_any(core_device_of(f->lease->device)));
        return other(f, field->host, &field->spec);
    }
    uint64_t n = f->lease->batch.n + (part == MR_DLPACK_OFFSETS);
    struct mr_spec numbers = {.dtype = MR_I64, .rank = 1, .dim = {n}};
    return other(f, part == MR_DLPACK_OFFSETS ? field->offsets : field->lengths, &numbers);
}

static PyObject *device_text(const struct core_field *f)
{
    int type, id;
    core_field_device(f, &type, &id);
    return type == MR_DLPACK_CPU ? PyUnicode_FromString("cpu")
                                 : PyUnicode_FromFormat("cuda:%d", id);
}

enum attribute { NAME, DTYPE, SHAPE, NBYTES, OFFSETS, LENGTHS, HOST, DEVICE };

static PyObject *field_get(PyObject *self, void *which)
{
    const struct core_field *f = (struct core_field *)self;
    switch ((enum attribute)(intptr_t)which) {
    case NAME:
        return PyUnicode_FromString(f->view.spec.name);
    case DTYPE:
        return PyUnicode_FromString(core_dtype_name(&f->view.spec));
    case SHAPE:
        return core_shape_make(f->view.spec.dim, f->view.spec.rank);
    case NBYTES:
        return PyLong_FromUnsignedLongLong(f->bytes);
    case OFFSETS:
        return get_part(f, MR_DLPACK_OFFSETS);
    case LENGTHS:
        return get_part(f, MR_DLPACK_LENGTHS);
    case HOST:
        return get_part(f, MR_DLPACK_HOST);
    default:
        return device_text(f);
    }
}

static PyObject *text_object(enum mr_kind kind, const char *text, uint64_t n)
{
    return kind == MR_KIND_STRING ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace")
                                  : PyBytes_FromStringAndSize(text, (Py_ssize_t)n);
}

static PyObject *no_text(const struct core_field *f)
{
    PyErr_SetString(f->view.spec.kind == MR_KIND_TENSOR ? PyExc_ValueError : PyExc_IndexError,
                    mr_last_error());
    return NULL;
}

static PyObject *field_text(PyObject *self, PyObject *args)
{
    const struct core_field *f = (struct core_field *)self;
    unsigned long long i = 0;
    uint64_t n = f->bytes;
    if (!PyArg_ParseTuple(args, "|K:text", &i))
        return NULL;
    enum mr_kind kind = (enum mr_kind)f->view.spec.kind;
    if (f->view.text < 0 && kind != MR_KIND_TENSOR) /* of one sample */
        return text_object(kind, f->view.data, n);
    if (f->view.text < 0) {
        PyErr_Format(PyExc_ValueError, "field %s has no texts", f->view.spec.name);
        return NULL;
    }
    const char *text = mr_batch_text(&f->lease->batch, f->view.text, i, &n);
    return text ? text_object(kind, text, n) : no_text(f);
}

/* Of all samples, in one call: one for each takes three times as long. */
static PyObject *field_texts(PyObject *self, PyObject *unused)
{
    const struct core_field *f = (struct core_field *)self;
    (void)unused;
    if (f->view.text < 0)
        return PyErr_Format(PyExc_ValueError, "field %s has no texts of a batch",
                            f->view.spec.name);
    const struct mr_batch *batch = &f->lease->batch;
    PyObject *list = PyList_New((Py_ssize_t)batch->n);
    for (uint64_t i = 0; list && i < batch->n; i++) {
        uint64_t n;
        const char *text = mr_batch_text(batch, f->view.text, i, &n);
        PyObject *one = text ? text_object((enum mr_kind)f->view.spec.kind, text, n) : no_text(f);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *field_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    int type, id;
    core_field_device((struct core_field *)self, &type, &id);
    return Py_BuildValue("(ii)", type, id);
}

static PyObject *field_repr(PyObject *self)
{
    const struct core_field *f = (struct core_field *)self;
    char text[160];
    return PyUnicode_FromFormat("<Field %s>", mr_spec_format(&f->view.spec, text, sizeof text));
}

static PyGetSetDef attributes[] = {
    {"name", field_get, NULL, "The field's name.", (void *)NAME},
    {"dtype", field_get, NULL, "\"u8\", \"f32\", ...; \"string\", \"bytes\".", (void *)DTYPE},
    {"shape", field_get, NULL, "Of a batch: the batch dimension is first.", (void *)SHAPE},
    {"nbytes", field_get, NULL, "Bytes of the elements.", (void *)NBYTES},
    {"offsets", field_get, NULL, "i64[n + 1]: where samples begin; None: they are stacked.",
     (void *)OFFSETS},
    {"lengths", field_get, NULL, "i64[n]: first dimensions; None: all are equal.", (void *)LENGTHS},
    {"host", field_get, NULL, "The same bytes in host memory, or None.", (void *)HOST},
    {"device", field_get, NULL, "\"cpu\" or \"cuda:0\".", (void *)DEVICE},
    {NULL, NULL, NULL, NULL, NULL}};

#define CALL(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"capsule", core_field_capsule, METH_NOARGS,
     "capsule(): an unversioned DLPack capsule, used in the stream that next() was called with."},
    {"__dlpack__", CALL(core_field_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None): a capsule."},
    {"__dlpack_device__", field_dlpack_device, METH_NOARGS, "DLPack's device: (type, id)."},
    {"text", field_text, METH_VARARGS, "text(i=0): the text of sample i, str or bytes."},
    {"texts", field_texts, METH_NOARGS, "texts(): the texts of all samples, a list."},
    {NULL, NULL, 0, NULL}};

/* Numbered as in typeslots.h, which shows them from 3.11 on; 3.10 knows them, too. */
enum { BF_GETBUFFER = 1 };

static PyType_Slot slots[] = {{BF_GETBUFFER, field_getbuffer},
                              {Py_tp_dealloc, field_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {Py_tp_repr, field_repr},
                              {Py_tp_doc, "One tensor, by DLPack or Python's buffer protocol."},
                              {0, NULL}};
PyType_Spec core_field_spec = {"millrace._core.Field", sizeof(struct core_field), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
