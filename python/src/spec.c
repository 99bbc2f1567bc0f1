/* What a field is, as a named tuple: Spec(name, dtype, shape, var_dims). */
#include "core.h"
#include <stdlib.h>

int core_spec_init(PyObject *module, struct core *core)
{
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *make = collections ? PyObject_GetAttrString(collections, "namedtuple") : NULL;
    PyObject *args = Py_BuildValue("(s(ssss))", "Spec", "name", "dtype", "shape", "var_dims");
    PyObject *named = Py_BuildValue("{s:(i),s:s}", "defaults", 0, "module", "millrace");
    if (make && args && named)
        core->spec = PyObject_Call(make, args, named);
    Py_XDECREF(named);
    Py_XDECREF(args);
    Py_XDECREF(make);
    Py_XDECREF(collections);
    if (!core->spec)
        return -1;
    PyObject *doc = PyUnicode_FromString(
        "A field of a sample or batch: name, dtype (\"u8\", \"f32\", ...; \"string\" and \"bytes\" "
        "for texts), shape, and var_dims: bit d is set if dimension d varies up to shape[d].");
    int rc = doc ? PyObject_SetAttrString(core->spec, "__doc__", doc) : -1;
    Py_XDECREF(doc);
    return rc < 0 ? rc : PyModule_AddObjectRef(module, "Spec", core->spec);
}

const char *core_dtype_name(const struct mr_spec *spec)
{
    return spec->kind == MR_KIND_STRING  ? "string"
           : spec->kind == MR_KIND_BYTES ? "bytes"
                                         : mr_dtype_name(spec->dtype);
}

PyObject *core_shape_make(const uint64_t dim[], int rank)
{
    PyObject *shape = PyTuple_New(rank);
    for (int d = 0; shape && d < rank; d++) {
        PyObject *n = PyLong_FromUnsignedLongLong(dim[d]);
        if (!n || PyTuple_SetItem(shape, d, n) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

PyObject *core_uints_make(const uint64_t values[], Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (!value || PyList_SetItem(list, i, value) < 0)
            Py_CLEAR(list);
    }
    return list;
}

int core_uints_read(PyObject *values, uint64_t **out, uint64_t *n)
{
    PyObject *list = PySequence_List(values);
    Py_ssize_t count = list ? PyList_Size(list) : -1;
    if (count < 0)
        return -1;
    uint64_t *all = malloc(((size_t)count + 1) * sizeof *all);
    if (!all)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; all && i < count; i++) {
        PyObject *value = PyNumber_Index(PyList_GetItem(list, i));
        all[i] = value ? PyLong_AsUnsignedLongLong(value) : 0;
        Py_XDECREF(value);
        if (PyErr_Occurred()) {
            free(all);
            all = NULL;
        }
    }
    Py_DECREF(list);
    if (!all)
        return -1;
    *out = all;
    *n = (uint64_t)count;
    return 0;
}

PyObject *core_spec_make(const struct core *core, const struct mr_spec *spec)
{
    PyObject *shape = core_shape_make(spec->dim, spec->rank);
    return PyObject_CallFunction(core->spec, "ssNI", spec->name, core_dtype_name(spec), shape,
                                 spec->var_dims);
}

PyObject *core_specs_make(const struct core *core, int n,
                          const struct mr_spec *(*get)(const void *, int), const void *of)
{
    PyObject *list = PyList_New(0);
    for (int f = 0; list && f < n; f++) {
        PyObject *spec = core_spec_make(core, get(of, f));
        if (!spec || PyList_Append(list, spec) < 0)
            Py_CLEAR(list);
        Py_XDECREF(spec);
    }
    return list;
}

static int dtype_read(const char *text, struct mr_spec *out)
{
    if (strcmp(text, "string") == 0 || strcmp(text, "bytes") == 0) {
        out->kind = text[0] == 's' ? MR_KIND_STRING : MR_KIND_BYTES;
        out->dtype = MR_U8;
        out->var_dims = 1;
        return 0;
    }
    return mr_dtype_parse(text, &out->dtype);
}

static int shape_read(PyObject *shape, struct mr_spec *out)
{
    uint64_t *dims, n;
    if (core_uints_read(shape, &dims, &n) < 0)
        return -1;
    if (n > MR_MAX_RANK) {
        free(dims);
        PyErr_Format(PyExc_ValueError, "field %s: %llu dimensions, expected at most %d", out->name,
                     (unsigned long long)n, MR_MAX_RANK);
        return -1;
    }
    memcpy(out->dim, dims, n * sizeof *dims);
    out->rank = (int32_t)n;
    free(dims);
    return 0;
}

static int spec_read(PyObject *item, struct mr_spec *out)
{
    const char *name, *dtype;
    PyObject *shape;
    unsigned var_dims = 0;
    PyObject *tuple = PySequence_Tuple(item);
    if (!tuple)
        return -1;
    memset(out, 0, sizeof *out);
    int ok = PyArg_ParseTuple(tuple, "ssO|I;expected (name, dtype, shape, var_dims)", &name, &dtype,
                              &shape, &var_dims);
    if (ok && (strlen(name) >= MR_NAME_BYTES || !name[0])) {
        PyErr_Format(PyExc_ValueError, "field \"%s\": expected a name of 1 to %d bytes", name,
                     MR_NAME_BYTES - 1);
        ok = 0;
    }
    if (ok) {
        strcpy(out->name, name);
        out->var_dims = var_dims;
        if (dtype_read(dtype, out) < 0) {
            PyErr_Format(PyExc_ValueError, "field %s: %s", name, mr_last_error());
            ok = 0;
        }
    }
    ok = ok && shape_read(shape, out) == 0;
    Py_DECREF(tuple);
    return ok ? 0 : -1;
}

int core_specs_read(PyObject *fields, struct mr_spec out[MR_MAX_FIELDS])
{
    Py_ssize_t n = PySequence_Size(fields);
    if (n < 0)
        return -1;
    if (n < 1 || n > MR_MAX_FIELDS) {
        PyErr_Format(PyExc_ValueError, "%zd fields, expected 1 to %d", n, MR_MAX_FIELDS);
        return -1;
    }
    for (Py_ssize_t f = 0; f < n; f++) {
        PyObject *item = PySequence_GetItem(fields, f);
        int rc = item ? spec_read(item, &out[f]) : -1;
        Py_XDECREF(item);
        if (rc < 0)
            return rc;
    }
    return (int)n;
}
