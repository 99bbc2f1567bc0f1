/*
 * numpy's arrays, read in place.
 *
 * The buffer protocol makes a format text and a copy of the shape for each array that is new, which
 * takes longer than to copy a sample of some KB. numpy's own macros read the array's struct in
 * extensions of any version since 1.0, so its first members stay where they are. numpy's headers
 * are not needed here: the type is used so only if an array of it, read by the buffer protocol, has
 * just this memory, these dimensions and this dtype.
 */
#include "view.h"
#include <stdint.h>

/* PyArray_Descr: the members that all versions have. */
struct descr {
    PyObject_HEAD PyTypeObject *type;
    char kind, code, byte_order, flags;
    int number;
};

/* PyArrayObject_fields. */
struct array {
    PyObject_HEAD char *data;
    int ndim;
    intptr_t *shape, *strides;
    PyObject *base;
    struct descr *descr;
};

/* By numpy's number of a type, where int has 32 bits and long 64. */
static int dtype_of(const struct descr *descr, enum mr_dtype *out)
{
    static const enum mr_dtype known[] = {MR_BOOL, MR_I8,  MR_U8,  MR_I16, MR_U16, MR_I32, MR_U32,
                                          MR_I64,  MR_U64, MR_I64, MR_U64, MR_F32, MR_F64};
    enum { HALF = 23 };
    int n = descr->number;
    if (descr->byte_order == '>' ||
        (n != HALF && (n < 0 || n >= (int)(sizeof known / sizeof known[0]))))
        return -1;
    *out = n == HALF ? MR_F16 : known[n];
    return 0;
}

int core_numpy_view(PyObject *object, struct core_view *out)
{
    const struct array *array = (const struct array *)object;
    if (array->ndim > MR_MAX_RANK || dtype_of(array->descr, &out->dtype) < 0)
        return 0;
    out->data = array->data;
    out->ndim = array->ndim;
    for (int d = 0; d < array->ndim; d++) {
        out->shape[d] = array->shape[d];
        out->strides[d] = array->strides[d];
    }
    return 1;
}

/* The members that are pointers are followed once those before them are as expected. */
static int same(const struct array *array, const struct core_view *view)
{
    enum mr_dtype dtype;
    if (array->data != view->data || array->ndim != view->ndim)
        return 0;
    for (int d = 0; d < view->ndim; d++)
        if (array->shape[d] != view->shape[d])
            return 0;
    return memcmp(array->strides, view->strides, (size_t)view->ndim * sizeof(int64_t)) == 0 &&
           dtype_of(array->descr, &dtype) == 0 && dtype == view->dtype;
}

static int is_named(PyTypeObject *type, const char *attribute, const char *expected)
{
    PyObject *text = PyObject_GetAttrString((PyObject *)type, attribute);
    int yes =
        text && PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, expected) == 0;
    Py_XDECREF(text);
    return yes;
}

static int is_large_enough(PyTypeObject *type)
{
    PyObject *size = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    size_t bytes = size ? PyLong_AsSize_t(size) : 0;
    Py_XDECREF(size);
    return bytes != (size_t)-1 && bytes >= sizeof(struct array);
}

int core_numpy_fits(PyTypeObject *type, PyObject *object, const struct core_view *view)
{
    int fits = sizeof(PyObject) == 2 * sizeof(void *) && is_named(type, "__name__", "ndarray") &&
               is_named(type, "__module__", "numpy") && is_large_enough(type) &&
               same((const struct array *)object, view);
    PyErr_Clear();
    return fits;
}
