/* Data sets over Arrow tables of other libraries, by their capsules. */
#include "source.h"
#include <stdlib.h>

/* The columns as Python gives them: (path, name or None, picture). Their texts belong to it. None
 * of them: all of the table. */
struct columns {
    struct mr_arrow_column column[MR_MAX_FIELDS];
    Py_ssize_t n;
};

static int read_columns(PyObject *list, struct columns *out)
{
    memset(out, 0, sizeof *out);
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "columns: expected a list");
        return -1;
    }
    out->n = PyList_Size(list);
    if (out->n > MR_MAX_FIELDS) {
        PyErr_Format(PyExc_ValueError, "%zd columns: expected 0 (all) to %d", out->n,
                     MR_MAX_FIELDS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < out->n; i++) {
        int picture;
        PyObject *item = PyList_GetItem(list, i);
        struct mr_arrow_column *c = &out->column[i];
        if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "szp;expected (path, name, picture)",
                                                      &c->path, &c->name, &picture)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "columns: expected (path, name, picture) tuples");
            return -1;
        }
        c->picture = picture ? 1 : 0;
    }
    return 0;
}

/* The struct in a capsule; NULL with an exception. */
static void *from_capsule(PyObject *capsule, const char *name)
{
    if (capsule && PyCapsule_IsValid(capsule, name))
        return PyCapsule_GetPointer(capsule, name);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "expected a capsule \"%s\"", name);
    return NULL;
}

/* The array of object.__arrow_c_array__(), which it no longer owns. schema NULL: it stays there. */
static int take_array(PyObject *object, struct ArrowSchema *schema, struct ArrowArray *array)
{
    PyObject *pair = PyObject_CallMethod(object, "__arrow_c_array__", NULL);
    int rc = -1;
    if (pair && (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2))
        PyErr_SetString(PyExc_TypeError, "__arrow_c_array__() gave no pair of capsules");
    else if (pair) {
        struct ArrowSchema *type = from_capsule(PyTuple_GetItem(pair, 0), "arrow_schema");
        struct ArrowArray *values =
            type ? from_capsule(PyTuple_GetItem(pair, 1), "arrow_array") : NULL;
        if (values) {
            *array = *values;
            values->release = NULL;
            rc = 0;
        }
        if (values && schema) {
            *schema = *type;
            type->release = NULL;
        }
    }
    Py_XDECREF(pair);
    return rc;
}

/* ---- tables ---- */

static int open_array(PyObject *table, const struct mr_arrow_opts *opts, struct mr_dataset **out,
                      int *rc)
{
    struct ArrowSchema schema = {.release = NULL};
    struct ArrowArray array = {.release = NULL};
    struct mr_arrow_opts o = *opts;
    if (take_array(table, &schema, &array) < 0)
        return -1;
    o.schema = &schema;
    o.chunk = &array;
    o.n_chunks = 1;
    Py_BEGIN_ALLOW_THREADS;
    *rc = mr_dataset_open_arrow(&o, out);
    if (array.release)
        array.release(&array);
    if (schema.release)
        schema.release(&schema);
    Py_END_ALLOW_THREADS;
    return 0;
}

static int open_stream(PyObject *table, const struct mr_arrow_opts *o, struct mr_dataset **out,
                       int *rc)
{
    PyObject *capsule = PyObject_CallMethod(table, "__arrow_c_stream__", NULL);
    struct ArrowArrayStream *stream = capsule ? from_capsule(capsule, "arrow_array_stream") : NULL;
    if (stream) {
        Py_BEGIN_ALLOW_THREADS;
        *rc = mr_dataset_open_arrow_stream(o, stream, out);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF(capsule);
    return stream ? 0 : -1;
}

static PyObject *arrow_open(PyObject *module, PyObject *args)
{
    struct mr_arrow_opts o;
    struct columns columns;
    PyObject *table, *list, *rows = Py_None;
    mr_arrow_opts_init(&o);
    if (!PyArg_ParseTuple(args, "OsO|O:arrow_open", &table, &o.name, &list, &rows) ||
        read_columns(list, &columns) < 0)
        return NULL;
    uint64_t *row = NULL;
    if (rows != Py_None && core_uints_read(rows, &row, &o.n_rows) < 0)
        return NULL;
    o.column = columns.n > 0 ? columns.column : NULL;
    o.n_columns = (uint64_t)columns.n;
    o.row = row;
    struct mr_dataset *ds = NULL;
    struct core *core = PyModule_GetState(module);
    int rc = 0, failed = PyObject_HasAttrString(table, "__arrow_c_stream__")
                             ? open_stream(table, &o, &ds, &rc)
                             : open_array(table, &o, &ds, &rc);
    free(row);
    if (failed < 0)
        return NULL;
    return rc < 0 ? core_fail(core, rc, NULL) : core_dataset_wrap(core, ds, NULL);
}

/* ---- groups ---- */

/* Called on the loader's threads, without the GIL. */
static int load_group(void *user, uint64_t group, struct ArrowArray *out)
{
    struct core_source *source = user;
    PyGILState_STATE gil = core_gil_ensure();
    PyObject *made = PyObject_CallFunction(source->fetch, "K", (unsigned long long)group);
    int rc = made && take_array(made, NULL, out) == 0 ? 0 : core_catch(MR_ECALLBACK);
    Py_XDECREF(made);
    PyGILState_Release(gil);
    return rc;
}

static int open_groups(PyObject *type, const struct mr_arrow_opts *table,
                       const struct mr_arrow_groups *groups, struct mr_dataset **out, int *rc)
{
    PyObject *capsule = PyObject_CallMethod(type, "__arrow_c_schema__", NULL);
    struct ArrowSchema *schema = capsule ? from_capsule(capsule, "arrow_schema") : NULL;
    if (schema) {
        struct mr_arrow_opts o = *table;
        o.schema = schema; /* on failure the capsule's */
        *rc = mr_dataset_open_arrow_groups(&o, groups, out);
    }
    Py_XDECREF(capsule);
    return schema ? 0 : -1;
}

static PyObject *arrow_groups(PyObject *module, PyObject *args)
{
    struct mr_arrow_opts o;
    struct mr_arrow_groups groups;
    struct columns columns;
    unsigned long long version, keep, text_bytes, group_bytes;
    PyObject *schema, *list, *counts, *load;
    mr_arrow_opts_init(&o);
    mr_arrow_groups_init(&groups);
    if (!PyArg_ParseTuple(args, "OsOOOKKKK:arrow_groups", &schema, &o.name, &list, &counts, &load,
                          &version, &keep, &text_bytes, &group_bytes) ||
        read_columns(list, &columns) < 0)
        return NULL;
    struct core *core = PyModule_GetState(module);
    struct core_source *source = calloc(1, sizeof *source);
    uint64_t *rows = NULL;
    if (!source)
        return PyErr_NoMemory();
    if (core_uints_read(counts, &rows, &groups.n_groups) < 0) {
        free(source);
        return NULL;
    }
    o.column = columns.n > 0 ? columns.column : NULL;
    o.n_columns = (uint64_t)columns.n;
    groups.rows = rows;
    groups.load = load_group;
    groups.user = source;
    groups.version = version;
    groups.keep = keep;
    groups.text_bytes = text_bytes;
    groups.group_bytes = group_bytes;
    source->core = core;
    source->interpreter = PyInterpreterState_Get();
    Py_INCREF(load);
    source->fetch = load;
    struct mr_dataset *ds = NULL;
    int rc = 0, failed = open_groups(schema, &o, &groups, &ds, &rc);
    free(rows);
    if (failed == 0 && rc == 0)
        return core_dataset_wrap(core, ds, source);
    Py_DECREF(load);
    free(source);
    return failed < 0 ? NULL : core_fail(core, rc, NULL);
}

static PyMethodDef functions[] = {
    {"arrow_open", arrow_open, METH_VARARGS,
     "arrow_open(table, name, columns, rows=None): a Dataset over what __arrow_c_stream__() or "
     "__arrow_c_array__() gives. columns: (path, name, picture) tuples; none: all. rows: those "
     "that are its "
     "samples."},
    {"arrow_groups", arrow_groups, METH_VARARGS,
     "arrow_groups(schema, name, columns, rows, load, version, keep, text_bytes, group_bytes): a "
     "Dataset over groups of rows: load(k) gives group k as a record batch."},
    {NULL, NULL, 0, NULL}};

int core_arrow_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
