/* Python's samples into rows of a batch. */
#include "rows.h"

enum { LARGE = 64 << 10 };

void core_copies_drop(struct core_copies *copies)
{
    for (int i = 0; i < copies->n; i++) {
        core_view_end(&copies->copy[i].view);
        Py_DECREF(copies->copy[i].object);
    }
    copies->n = 0;
}

void core_copies_run(struct core_copies *copies)
{
    if (copies->n == 0)
        return;
    PyThreadState *state = PyEval_SaveThread();
    for (int i = 0; i < copies->n; i++)
        core_view_copy(&copies->copy[i].view, copies->copy[i].to);
    PyEval_RestoreThread(state);
    core_copies_drop(copies);
}

static void copy_later(struct core_copies *copies, PyObject *object, const struct core_view *view,
                       void *to)
{
    if (copies->n == (int)(sizeof copies->copy / sizeof copies->copy[0]))
        core_copies_run(copies);
    int i = copies->n++;
    Py_INCREF(object);
    copies->copy[i].view = *view;
    copies->copy[i].to = to;
    copies->copy[i].object = object;
}

static int refuse(const struct mr_spec *spec, const char *found)
{
    char expected[160];
    mr_spec_format(spec, expected, sizeof expected);
    return mr_error_set(MR_ESHAPE, "%s, expected %s", found, expected);
}

/* ---- numbers ---- */

static int put_float(const struct mr_spec *spec, double value, void *to)
{
    if (spec->dtype == MR_F32)
        *(float *)to = (float)value;
    else if (spec->dtype == MR_F64)
        *(double *)to = value;
    else
        return refuse(spec, "a float");
    return 0;
}

static int put_signed(enum mr_dtype dtype, long long value, void *to)
{
    int bits = 8 * (int)mr_dtype_size(dtype);
    if (bits < 64 && (value < -(1ll << (bits - 1)) || value >= 1ll << (bits - 1)))
        return -1;
    int64_t wide = value;
    memcpy(to, &wide, (size_t)bits / 8); /* the low bytes: this machine is little-endian */
    return 0;
}

static int put_unsigned(enum mr_dtype dtype, unsigned long long value, void *to)
{
    int bits = 8 * (int)mr_dtype_size(dtype);
    if (dtype == MR_BOOL ? value > 1 : bits < 64 && value >> bits)
        return -1;
    memcpy(to, &value, (size_t)bits / 8);
    return 0;
}

static int put_long(const struct mr_spec *spec, PyObject *object, void *to)
{
    int rc;
    switch (spec->dtype) {
    case MR_F32:
    case MR_F64:
        return put_float(spec, PyLong_AsDouble(object), to);
    case MR_I8:
    case MR_I16:
    case MR_I32:
    case MR_I64:
        rc = put_signed(spec->dtype, PyLong_AsLongLong(object), to);
        break;
    case MR_BOOL:
    case MR_U8:
    case MR_U16:
    case MR_U32:
    case MR_U64:
        rc = put_unsigned(spec->dtype, PyLong_AsUnsignedLongLong(object), to);
        break;
    default:
        return refuse(spec, "an int");
    }
    if (rc < 0 && !PyErr_Occurred())
        return refuse(spec, "an int out of its range");
    return 0;
}

static int put_number(const struct core_kind *kind, const struct mr_spec *spec, PyObject *object,
                      void *to)
{
    int rc = 0;
    if (spec->rank != 0 || spec->kind != MR_KIND_TENSOR)
        return refuse(spec, "a number");
    if (kind->how == CORE_FLOAT)
        rc = put_float(spec, PyFloat_AsDouble(object), to);
    else {
        PyObject *number = PyNumber_Index(object);
        if (number)
            rc = put_long(spec, number, to);
        Py_XDECREF(number);
    }
    return rc < 0 ? rc : PyErr_Occurred() ? core_catch(MR_ESHAPE) : 0;
}

/* ---- texts ---- */

static int put_bytes(const struct mr_spec *spec, const void *from, uint64_t n, void *to,
                     uint64_t *dim)
{
    char found[64];
    if (n > spec->dim[0]) {
        PyOS_snprintf(found, sizeof found, "a text of %llu bytes", (unsigned long long)n);
        return refuse(spec, found);
    }
    memcpy(to, from, n);
    dim[0] = n;
    return 0;
}

static int put_str(const struct mr_spec *spec, PyObject *object, void *to, uint64_t *dim)
{
    if (spec->kind == MR_KIND_TENSOR)
        return refuse(spec, "a str");
    Py_ssize_t n;
    const char *text = PyUnicode_AsUTF8AndSize(object, &n);
    return text ? put_bytes(spec, text, (uint64_t)n, to, dim) : core_catch(MR_ESHAPE);
}

/* ---- arrays ---- */

static int fits(const struct mr_spec *spec, const struct core_view *view, uint64_t *dim)
{
    if (view->dtype != spec->dtype || view->ndim != spec->rank)
        return 0;
    for (int d = 0; d < view->ndim; d++) {
        uint64_t n = (uint64_t)view->shape[d];
        if (spec->var_dims >> d & 1 ? n > spec->dim[d] : n != spec->dim[d])
            return 0;
        if (spec->var_dims >> d & 1)
            dim[d] = n;
    }
    return 1;
}

static int put_array(const struct core_kind *kind, const struct mr_spec *spec, PyObject *object,
                     void *to, uint64_t *dim, struct core_copies *copies)
{
    struct core_view view;
    if (core_view_begin(kind, object, &view) < 0)
        return core_catch(MR_ESHAPE);
    if (!fits(spec, &view, dim)) {
        char found[160];
        const char *text = core_view_format(&view, found, sizeof found);
        core_view_end(&view);
        return refuse(spec, text);
    }
    if (core_view_bytes(&view) >= LARGE) {
        copy_later(copies, object, &view, to);
        return 0;
    }
    core_view_copy(&view, to);
    core_view_end(&view);
    return 0;
}

static int put_leaf(struct core *core, const struct mr_spec *spec, PyObject *object, void *to,
                    uint64_t *dim, struct core_copies *copies)
{
    struct core_kind kind = core_kind_of(core, object);
    int rc;
    switch (kind.how) {
    case CORE_BOOL:
    case CORE_INT:
    case CORE_FLOAT:
        return put_number(&kind, spec, object, to);
    case CORE_STR:
        return put_str(spec, object, to, dim);
    case CORE_BUFFER:
    case CORE_NUMPY:
    case CORE_EXCHANGE:
    case CORE_DLPACK:
        return put_array(&kind, spec, object, to, dim, copies);
    default:
        PyErr_Format(PyExc_TypeError, "field %s: %R, expected an array, tensor, number or text",
                     spec->name, (PyObject *)kind.type);
        rc = core_catch(MR_ESHAPE);
    }
    return rc;
}

int core_row_write(struct core *core, int n_fields, const struct mr_spec field[], PyObject *sample,
                   void *const row[], uint64_t (*dim)[MR_MAX_RANK], struct core_copies *copies)
{
    int is_tuple = PyTuple_Check(sample);
    if (n_fields == 1 && !is_tuple)
        return put_leaf(core, &field[0], sample, row[0], dim[0], copies);
    Py_ssize_t n = is_tuple ? PyTuple_Size(sample) : 1;
    if (n != n_fields)
        return mr_error_set(MR_ESHAPE, "%d %s, expected a tuple of %d", (int)n,
                            n == 1 ? "value" : "values", n_fields);
    for (int f = 0; f < n_fields; f++) {
        PyObject *leaf = PyTuple_GetItem(sample, f);
        int rc = put_leaf(core, &field[f], leaf, row[f], dim[f], copies);
        if (rc < 0)
            return rc;
    }
    return 0;
}
