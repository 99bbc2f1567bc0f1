/* Objects' memory, by the buffer protocol or DLPack. */
#include "view.h"
#include <dlfcn.h>

static int (*get_buffer)(PyObject *object, struct core_buffer *out, int flags);
static void (*release_buffer)(struct core_buffer *buffer);
static int (*has_buffer)(PyObject *object);

/* DLPackExchangeAPI, of version 1. */
struct exchange {
    uint32_t major, minor;
    struct exchange *older;
    int (*allocate)(void);
    int (*from_object)(void *object, struct mr_dlpack_versioned **out);
    int (*to_object)(struct mr_dlpack_versioned *tensor, void **out);
    int (*look)(void *object, struct mr_dlpack_tensor *out);
};

int core_view_init(void)
{
    *(void **)&get_buffer = dlsym(RTLD_DEFAULT, "PyObject_GetBuffer");
    *(void **)&release_buffer = dlsym(RTLD_DEFAULT, "PyBuffer_Release");
    *(void **)&has_buffer = dlsym(RTLD_DEFAULT, "PyObject_CheckBuffer");
    if (get_buffer && release_buffer && has_buffer)
        return 0;
    PyErr_SetString(PyExc_ImportError, "this Python has no buffer protocol");
    return -1;
}

/* ---- what a type offers ---- */

static void find_exchange(struct core_kind *kind)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)kind->type, "__dlpack_c_exchange_api__");
    struct exchange *api = capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")
                               ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
                               : NULL;
    while (api && api->major > 1)
        api = api->older;
    if (api && api->major == 1 && api->look) {
        kind->how = CORE_EXCHANGE;
        kind->look = api->look;
        kind->has_bits = PyObject_HasAttrString((PyObject *)kind->type, "is_neg") &&
                         PyObject_HasAttrString((PyObject *)kind->type, "is_conj");
    }
    PyErr_Clear();
    Py_XDECREF(capsule);
}

static int view_buffer(PyObject *object, struct core_view *out);

static int is_numpy(PyTypeObject *type, PyObject *object)
{
    struct core_view view;
    view.owner = NULL;
    int seen = view_buffer(object, &view) == 0 && core_numpy_fits(type, object, &view);
    core_view_end(&view);
    PyErr_Clear();
    return seen;
}

static void find_how(struct core_kind *kind, PyObject *object)
{
    PyObject *type = (PyObject *)kind->type;
    if (PyBool_Check(object))
        kind->how = CORE_BOOL;
    else if (PyLong_Check(object))
        kind->how = CORE_INT;
    else if (PyFloat_Check(object))
        kind->how = CORE_FLOAT;
    else if (PyUnicode_Check(object))
        kind->how = CORE_STR;
    else if (has_buffer(object))
        kind->how = is_numpy(kind->type, object) ? CORE_NUMPY : CORE_BUFFER;
    else
        find_exchange(kind);
    if (kind->how != CORE_OTHER)
        return;
    if (PyObject_HasAttrString(type, "__dlpack__"))
        kind->how = CORE_DLPACK;
    else if (PyIndex_Check(object))
        kind->how = CORE_INT;
    else if (PyObject_HasAttrString(type, "__float__"))
        kind->how = CORE_FLOAT;
}

struct core_kind core_kind_of(struct core *core, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    for (unsigned i = 0; i < CORE_KINDS; i++)
        if (core->kinds[i].type == type)
            return core->kinds[i];
    struct core_kind kind = {.type = type};
    find_how(&kind, object);
    unsigned at = core->next_kind++ % CORE_KINDS;
    PyTypeObject *old = core->kinds[at].type;
    Py_INCREF((PyObject *)type);
    core->kinds[at] = kind;
    Py_XDECREF((PyObject *)old);
    return kind;
}

void core_kinds_clear(struct core *core)
{
    for (unsigned i = 0; i < CORE_KINDS; i++) {
        PyTypeObject *type = core->kinds[i].type;
        core->kinds[i] = (struct core_kind){NULL};
        Py_XDECREF((PyObject *)type);
    }
}

/* ---- dtypes ---- */

static int dtype_of_format(const char *format, Py_ssize_t itemsize, enum mr_dtype *out)
{
    static const char codes[] = "?bBhHiIlLqQnNefd";
    if (!format)
        format = "B";
    int swapped = *format == '>' || *format == '!';
    if (strchr("@=<>!", *format))
        format++;
    if (strcmp(format, "Zf") == 0 || strcmp(format, "Zd") == 0)
        *out = format[1] == 'f' ? MR_C64 : MR_C128;
    else if (!format[0] || format[1] || !strchr(codes, format[0]))
        return -1;
    else if (*format == '?')
        *out = MR_BOOL;
    else if (strchr("efd", *format))
        *out = *format == 'e' ? MR_F16 : *format == 'f' ? MR_F32 : MR_F64;
    else {
        static const enum mr_dtype ints[][2] = {
            {MR_I8, MR_U8}, {MR_I16, MR_U16}, {MR_I32, MR_U32}, {MR_I64, MR_U64}};
        int log2 = itemsize == 1 ? 0 : itemsize == 2 ? 1 : itemsize == 4 ? 2 : 3;
        *out = ints[log2][strchr("BHILQN", *format) != NULL];
    }
    return (swapped && itemsize > 1) || mr_dtype_size(*out) != (size_t)itemsize ? -1 : 0;
}

static int dtype_of_dlpack(const struct mr_dlpack_tensor *t, enum mr_dtype *out)
{
    static const struct {
        uint8_t code, bits;
        enum mr_dtype dtype;
    } known[] = {{6, 8, MR_BOOL}, {1, 8, MR_U8},   {0, 8, MR_I8},    {1, 16, MR_U16},
                 {0, 16, MR_I16}, {1, 32, MR_U32}, {0, 32, MR_I32},  {1, 64, MR_U64},
                 {0, 64, MR_I64}, {2, 16, MR_F16}, {4, 16, MR_BF16}, {2, 32, MR_F32},
                 {2, 64, MR_F64}, {5, 64, MR_C64}, {5, 128, MR_C128}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].code == t->code && known[i].bits == t->bits && t->lanes == 1) {
            *out = known[i].dtype;
            return 0;
        }
    return -1;
}

/* ---- views ---- */

static int refuse_rank(int rank)
{
    PyErr_Format(PyExc_ValueError, "an array of %d dimensions, expected at most %d", rank,
                 MR_MAX_RANK);
    return -1;
}

static int view_buffer(PyObject *object, struct core_view *out)
{
    struct core_buffer *b = &out->buffer;
    if (get_buffer(object, b, CORE_BUFFER_STRIDED | CORE_BUFFER_FORMAT) < 0) {
        b->obj = NULL;
        return -1;
    }
    if (b->ndim > MR_MAX_RANK)
        return refuse_rank(b->ndim);
    if (dtype_of_format(b->format, b->itemsize, &out->dtype) < 0) {
        PyErr_Format(PyExc_TypeError,
                     "an array with elements of format '%s', expected numbers in this machine's "
                     "byte order",
                     b->format);
        return -1;
    }
    out->data = b->buf;
    out->ndim = b->ndim;
    int64_t stride = b->itemsize;
    for (int d = b->ndim - 1; d >= 0; d--) {
        out->shape[d] = b->shape ? b->shape[d] : b->len / b->itemsize;
        out->strides[d] = b->strides ? b->strides[d] : stride; /* ctypes gives none, though asked */
        stride *= out->shape[d];
    }
    return 0;
}

static int view_tensor(const struct mr_dlpack_tensor *t, struct core_view *out)
{
    if (t->ndim > MR_MAX_RANK)
        return refuse_rank(t->ndim);
    if (t->device_type != MR_DLPACK_CPU && t->device_type != 3) { /* page-locked */
        PyErr_Format(PyExc_ValueError,
                     "a tensor of DLPack device type %d, expected one in host "
                     "memory",
                     (int)t->device_type);
        return -1;
    }
    if (dtype_of_dlpack(t, &out->dtype) < 0) {
        PyErr_Format(PyExc_TypeError, "a tensor with elements of DLPack type %d, %d bits", t->code,
                     t->bits);
        return -1;
    }
    int64_t size = (int64_t)mr_dtype_size(out->dtype), stride = size;
    out->data = (char *)t->data + t->byte_offset;
    out->ndim = t->ndim;
    for (int d = t->ndim - 1; d >= 0; d--) {
        out->shape[d] = t->shape[d];
        out->strides[d] = t->strides ? t->strides[d] * size : stride;
        stride *= t->shape[d];
    }
    return 0;
}

static int look(const struct core_kind *kind, PyObject *object, struct core_view *out)
{
    struct mr_dlpack_tensor tensor;
    if (kind->look(object, &tensor) == 0)
        return view_tensor(&tensor, out);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a tensor that DLPack cannot show");
    return -1;
}

/* Asks object.NAME(). Returns 1, 0, or -1 with an exception. */
static int ask(PyObject *object, const char *name)
{
    PyObject *answer = PyObject_CallMethod(object, name, NULL);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* Whether torch's tensor has its sign in a bit of its own, which what looks at it does not see: of
 * x.conj() and x.conj().imag. */
static int is_lazy(const struct core_view *view, PyObject *object)
{
    int lazy = 0;
    if (view->dtype == MR_C64 || view->dtype == MR_C128)
        lazy = ask(object, "is_conj");
    return lazy != 0 || view->dtype < MR_F16 ? lazy : ask(object, "is_neg");
}

static int view_exchange(const struct core_kind *kind, PyObject *object, struct core_view *out)
{
    int rc = look(kind, object, out);
    int lazy = rc == 0 && kind->has_bits ? is_lazy(out, object) : 0;
    if (lazy <= 0)
        return lazy < 0 ? -1 : rc;
    PyObject *half = PyObject_CallMethod(object, "resolve_conj", NULL);
    out->owner = half ? PyObject_CallMethod(half, "resolve_neg", NULL) : NULL;
    Py_XDECREF(half);
    return out->owner ? look(kind, out->owner, out) : -1;
}

static int view_dlpack(PyObject *object, struct core_view *out)
{
    PyObject *capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
    if (!capsule)
        return -1;
    out->owner = capsule;
    struct mr_dlpack *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    return tensor ? view_tensor(&tensor->tensor, out) : -1;
}

int core_view_begin(const struct core_kind *kind, PyObject *object, struct core_view *out)
{
    int rc = -1;
    out->buffer.obj = out->owner = NULL;
    if (kind->how == CORE_NUMPY && core_numpy_view(object, out))
        rc = 0;
    else if (kind->how == CORE_BUFFER || kind->how == CORE_NUMPY)
        rc = view_buffer(object, out);
    else if (kind->how == CORE_EXCHANGE)
        rc = view_exchange(kind, object, out);
    else if (kind->how == CORE_DLPACK)
        rc = view_dlpack(object, out);
    else
        PyErr_Format(PyExc_TypeError, "%R, expected an array or tensor", (PyObject *)kind->type);
    if (rc < 0)
        core_view_end(out);
    return rc;
}

void core_view_end(struct core_view *view)
{
    if (view->buffer.obj)
        release_buffer(&view->buffer);
    Py_CLEAR(view->owner); /* a capsule that is not consumed ends its tensor */
}

int core_view_is_dense(const struct core_view *view)
{
    int64_t stride = (int64_t)mr_dtype_size(view->dtype);
    for (int d = view->ndim - 1; d >= 0; d--) {
        if (view->shape[d] != 1 && view->strides[d] != stride)
            return view->shape[d] == 0;
        stride *= view->shape[d];
    }
    return 1;
}

uint64_t core_view_bytes(const struct core_view *view)
{
    uint64_t bytes = mr_dtype_size(view->dtype);
    for (int d = 0; d < view->ndim; d++)
        bytes *= (uint64_t)view->shape[d];
    return bytes;
}

/* Copies the dimensions from d on; returns the end of what was written. */
static char *copy_dims(const struct core_view *view, int d, const char *from, char *to)
{
    size_t size = mr_dtype_size(view->dtype);
    if (d == view->ndim)
        return (char *)memcpy(to, from, size) + size;
    int64_t n = view->shape[d];
    if (d == view->ndim - 1 && view->strides[d] == (int64_t)size)
        return (char *)memcpy(to, from, size * (size_t)n) + size * (size_t)n;
    for (int64_t i = 0; i < n; i++, from += view->strides[d])
        to = copy_dims(view, d + 1, from, to);
    return to;
}

void core_view_copy(const struct core_view *view, void *to)
{
    uint64_t bytes = core_view_bytes(view);
    if (bytes == 0)
        return;
    if (core_view_is_dense(view))
        core_copy(to, view->data, bytes);
    else
        copy_dims(view, 0, view->data, to);
}

const char *core_view_format(const struct core_view *view, char *buf, size_t cap)
{
    struct mr_spec spec = {.dtype = view->dtype, .rank = view->ndim};
    for (int d = 0; d < view->ndim; d++)
        spec.dim[d] = (uint64_t)view->shape[d];
    mr_spec_format(&spec, buf, cap);
    return buf[0] == ' ' ? buf + 1 : buf;
}
