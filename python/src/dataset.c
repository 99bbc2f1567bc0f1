/* millrace._core.Dataset */
#include "field.h"
#include "source.h"
#include "view.h"
#include "workers.h"
#include <errno.h>
#include <stdlib.h>

struct dataset {
    PyObject_HEAD struct mr_dataset *ds; /* NULL: closed */
    struct core_source *source;          /* of callbacks */
    struct core_view *views;             /* of arrays */
    int n_views;
    PyObject *keeps; /* what the views are of */
    unsigned users;  /* loaders, and calls without the GIL */
};

/* ---- life ---- */

struct mr_dataset *core_dataset_use(PyObject *self)
{
    struct dataset *d = (struct dataset *)self;
    if (d->ds)
        d->users++;
    else
        PyErr_SetString(PyExc_ValueError, "the data set is closed");
    return d->ds;
}

void core_dataset_unuse(PyObject *self)
{
    ((struct dataset *)self)->users--;
}

static struct dataset *create(PyTypeObject *type)
{
    return core_new(type);
}

static void close_ds(struct dataset *d)
{
    struct mr_dataset *ds = d->ds;
    d->ds = NULL;
    Py_BEGIN_ALLOW_THREADS;
    mr_dataset_close(ds);
    Py_END_ALLOW_THREADS;
}

static void drop_references(struct dataset *d)
{
    for (int i = 0; i < d->n_views; i++)
        core_view_end(&d->views[i]);
    d->n_views = 0;
    Py_CLEAR(d->keeps);
    if (d->source) {
        Py_CLEAR(d->source->fetch);
        Py_CLEAR(d->source->rewind);
    }
}

static int dataset_clear(PyObject *self)
{
    struct dataset *d = (struct dataset *)self;
    if (d->users > 0) /* its loader is cleared, too, and lets go of it */
        return 0;
    close_ds(d);
    drop_references(d);
    return 0;
}

/* What a loader's threads use is not garbage, even if the loader is: a collection, perhaps on such
 * a thread, would clear the function that the thread calls. */
static int dataset_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct dataset *d = (struct dataset *)self;
    Py_VISIT(Py_TYPE(self));
    if (d->users > 0)
        return 0;
    Py_VISIT(d->keeps);
    if (d->source) {
        Py_VISIT(d->source->fetch);
        Py_VISIT(d->source->rewind);
    }
    return 0;
}

static void dataset_dealloc(PyObject *self)
{
    struct dataset *d = (struct dataset *)self;
    PyObject_GC_UnTrack(self);
    close_ds(d);
    drop_references(d);
    free(d->views);
    free(d->source);
    core_free(self);
}

static PyObject *dataset_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct dataset *d = (struct dataset *)self;
    if (d->users > 0) {
        PyErr_SetString(PyExc_RuntimeError, "the data set is in use: close its loaders first");
        return NULL;
    }
    dataset_clear(self);
    Py_RETURN_NONE;
}

/* ---- constructors ---- */

static PyObject *finish(struct dataset *d, int rc)
{
    if (rc == 0)
        return (PyObject *)d;
    core_fail(core_of((PyObject *)d), rc, NULL);
    Py_DECREF((PyObject *)d);
    return NULL;
}

PyObject *core_dataset_wrap(const struct core *core, struct mr_dataset *ds,
                            struct core_source *source)
{
    struct dataset *d = create(core->dataset);
    if (!d) {
        mr_dataset_close(ds);
        if (source)
            Py_DECREF(source->fetch);
        free(source);
        return NULL;
    }
    d->ds = ds;
    d->source = source;
    return (PyObject *)d;
}

static PyObject *dataset_open(PyObject *class, PyObject *args)
{
    const char *uri;
    if (!PyArg_ParseTuple(args, "s:open", &uri))
        return NULL;
    struct dataset *d = create((PyTypeObject *)class);
    if (!d)
        return NULL;
    int rc;
    struct mr_dataset *ds = NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_dataset_open(uri, &ds);
    Py_END_ALLOW_THREADS;
    d->ds = ds;
    return finish(d, rc);
}

/* Views one array. Returns 0, or -1 with an exception. */
static int add_array(struct dataset *d, const char *name, PyObject *object,
                     struct mr_array_opts *opts)
{
    struct core_view *view = &d->views[d->n_views];
    struct core_kind kind = core_kind_of(core_of((PyObject *)d), object);
    if (core_view_begin(&kind, object, view) < 0)
        return -1;
    int f = d->n_views++;
    struct mr_spec *spec = &opts->field[f];
    if (view->ndim < 1 || !core_view_is_dense(view) || strlen(name) >= sizeof spec->name) {
        PyErr_Format(PyExc_ValueError,
                     "field %s: expected a C-contiguous array whose first dimension counts "
                     "samples, and a name of at most %d bytes",
                     name, MR_NAME_BYTES - 1);
        return -1;
    }
    if (f > 0 && opts->n != (uint64_t)view->shape[0]) {
        PyErr_Format(PyExc_ValueError, "field %s has %lld samples, field %s %llu", name,
                     (long long)view->shape[0], opts->field[0].name, (unsigned long long)opts->n);
        return -1;
    }
    strcpy(spec->name, name);
    spec->dtype = view->dtype;
    spec->rank = view->ndim - 1;
    for (int k = 0; k < spec->rank; k++)
        spec->dim[k] = (uint64_t)view->shape[k + 1];
    opts->n = (uint64_t)view->shape[0];
    opts->data[f] = view->data;
    return PyList_Append(d->keeps, object);
}

static int add_arrays(struct dataset *d, PyObject *fields, struct mr_array_opts *opts)
{
    Py_ssize_t n = PySequence_Size(fields);
    if (n < 0)
        return -1;
    if (n < 1 || n > MR_MAX_FIELDS) {
        PyErr_Format(PyExc_ValueError, "%zd fields, expected 1 to %d", n, MR_MAX_FIELDS);
        return -1;
    }
    d->keeps = PyList_New(0);
    d->views = calloc((size_t)n, sizeof *d->views);
    if (!d->keeps || !d->views)
        return -1;
    opts->n_fields = (int)n;
    int rc = 0;
    for (Py_ssize_t f = 0; rc == 0 && f < n; f++) {
        const char *name;
        PyObject *object, *item = PySequence_GetItem(fields, f);
        rc = item && PyTuple_Check(item) &&
                     PyArg_ParseTuple(item, "sO;expected (name, array)", &name, &object)
                 ? add_array(d, name, object, opts)
                 : -1;
        Py_XDECREF(item);
    }
    if (rc < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "expected (name, array) tuples");
    return rc;
}

static PyObject *dataset_arrays(PyObject *class, PyObject *args)
{
    PyObject *fields;
    if (!PyArg_ParseTuple(args, "O:arrays", &fields))
        return NULL;
    struct dataset *d = create((PyTypeObject *)class);
    if (!d)
        return NULL;
    struct mr_array_opts opts;
    mr_array_opts_init(&opts);
    if (add_arrays(d, fields, &opts) < 0) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    return finish(d, mr_dataset_open_array(&opts, &d->ds));
}

/* Takes fields and callables over. Returns 0, or -1 with an exception. */
static int source_create(struct dataset *d, PyObject *fields, PyObject *fetch, PyObject *rewind)
{
    struct core_source *source = calloc(1, sizeof *source);
    if (!source) {
        PyErr_NoMemory();
        return -1;
    }
    d->source = source;
    source->core = core_of((PyObject *)d);
    source->interpreter = PyInterpreterState_Get();
    source->n_fields = core_specs_read(fields, source->field);
    if (source->n_fields < 0)
        return -1;
    if (!PyCallable_Check(fetch) || (rewind && !PyCallable_Check(rewind))) {
        PyErr_SetString(PyExc_TypeError, "expected a callable");
        return -1;
    }
    Py_INCREF(fetch);
    source->fetch = fetch;
    Py_XINCREF(rewind);
    source->rewind = rewind;
    return 0;
}

static PyObject *dataset_python(PyObject *class, PyObject *args, PyObject *named)
{
    static char *names[] = {"n", "fields", "fetch", "name", "version", "changes", NULL};
    struct mr_callback_opts opts;
    mr_callback_opts_init(&opts);
    unsigned long long n, version = 0;
    PyObject *fields, *fetch;
    opts.name = "python";
    opts.changes = 1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "KOO|$sKp:python", names, &n, &fields, &fetch,
                                     &opts.name, &version, &opts.changes))
        return NULL;
    struct dataset *d = create((PyTypeObject *)class);
    if (!d)
        return NULL;
    if (source_create(d, fields, fetch, NULL) < 0) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    opts.n = n;
    opts.version = version;
    opts.n_fields = d->source->n_fields;
    memcpy(opts.field, d->source->field, sizeof opts.field);
    opts.get_run = core_source_run;
    opts.init = core_source_init;
    opts.exit = core_source_exit;
    opts.user = d->source;
    return finish(d, mr_dataset_open_callback(&opts, &d->ds));
}

static PyObject *dataset_workers(PyObject *class, PyObject *args, PyObject *named)
{
    static char *names[] = {"n", "fields", "start", "workers", "timeout", "name", "version", NULL};
    struct mr_workers_opts opts;
    mr_workers_opts_init(&opts);
    unsigned long long n, version = 0;
    double timeout_s = 0;
    PyObject *fields, *start;
    opts.name = "python";
    opts.changes = 1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "KOO|$IdsK:workers", names, &n, &fields, &start,
                                     &opts.workers, &timeout_s, &opts.name, &version))
        return NULL;
    struct dataset *d = create((PyTypeObject *)class);
    if (!d)
        return NULL;
    if (source_create(d, fields, start, NULL) < 0) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    opts.n = n;
    opts.version = version;
    opts.timeout_ns = timeout_s > 0 ? (uint64_t)(timeout_s * 1e9) : 0;
    opts.n_fields = d->source->n_fields;
    memcpy(opts.field, d->source->field, sizeof opts.field);
    opts.start = core_workers_start;
    opts.user = d->source;
    int rc;
    Py_BEGIN_ALLOW_THREADS; /* start takes the GIL */
    rc = mr_dataset_open_workers(&opts, &d->ds);
    Py_END_ALLOW_THREADS;
    return finish(d, rc);
}

static PyObject *dataset_iterable(PyObject *class, PyObject *args, PyObject *named)
{
    static char *names[] = {"fields", "read", "rewind", "name", "version", NULL};
    struct mr_iterable_opts opts;
    mr_iterable_opts_init(&opts);
    unsigned long long version = 0;
    PyObject *fields, *read, *rewind;
    opts.name = "python";
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOO|$sK:iterable", names, &fields, &read,
                                     &rewind, &opts.name, &version))
        return NULL;
    struct dataset *d = create((PyTypeObject *)class);
    if (!d)
        return NULL;
    if (source_create(d, fields, read, rewind == Py_None ? NULL : rewind) < 0) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    opts.version = version;
    opts.n_fields = d->source->n_fields;
    memcpy(opts.field, d->source->field, sizeof opts.field);
    opts.read = core_source_read;
    opts.rewind = d->source->rewind ? core_source_rewind : NULL;
    opts.init = core_source_init;
    opts.exit = core_source_exit;
    opts.user = d->source;
    return finish(d, mr_dataset_open_iterable(&opts, &d->ds));
}

/* ---- single samples ---- */

/* A lease with space for each field of a sample. */
static struct core_lease *row_alloc(const struct mr_dataset *ds, void *row[])
{
    uint64_t total = 0, bytes[MR_MAX_FIELDS];
    int n = mr_dataset_fields(ds);
    for (int f = 0; f < n; f++) {
        mr_spec_bytes(mr_dataset_field(ds, f), &bytes[f]);
        bytes[f] = (bytes[f] + 63) & ~(uint64_t)63;
        total += bytes[f];
    }
    struct core_lease *lease = core_lease_alloc(total);
    char *at = lease ? lease->own : NULL;
    for (int f = 0; at && f < n; at += bytes[f++])
        row[f] = at;
    return lease;
}

static PyObject *fields_of(const struct core *core, const struct mr_dataset *ds,
                           struct core_lease *lease, void *const row[],
                           uint64_t (*dim)[MR_MAX_RANK])
{
    PyObject *list = PyList_New(0);
    for (int f = 0; list && f < mr_dataset_fields(ds); f++) {
        struct core_field_view view = {
            .data = row[f], .spec = *mr_dataset_field(ds, f), .text = -1};
        memcpy(view.spec.dim, dim[f], sizeof view.spec.dim);
        view.spec.var_dims = 0;
        PyObject *field = core_field_create(core, lease, &view);
        if (!field || PyList_Append(list, field) < 0)
            Py_CLEAR(list);
        Py_XDECREF(field);
    }
    return list;
}

static PyObject *dataset_read(PyObject *self, PyObject *args)
{
    unsigned long long index;
    if (!PyArg_ParseTuple(args, "K:read", &index))
        return NULL;
    struct mr_dataset *ds = core_dataset_use(self);
    if (!ds)
        return NULL;
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    struct core_lease *lease = row_alloc(ds, row);
    PyObject *list = NULL;
    int rc = lease ? 0 : mr_error_set(-ENOMEM, "out of memory");
    if (lease) {
        Py_BEGIN_ALLOW_THREADS;
        rc = mr_dataset_read(ds, index, row, dim);
        Py_END_ALLOW_THREADS;
    }
    if (rc < 0)
        core_fail(core_of(self), rc, NULL);
    else
        list = fields_of(core_of(self), ds, lease, row, dim);
    core_lease_put(lease);
    core_dataset_unuse(self);
    return list;
}

static PyObject *dataset_file(PyObject *self, PyObject *args)
{
    unsigned long long index;
    if (!PyArg_ParseTuple(args, "K:file", &index))
        return NULL;
    struct mr_dataset *ds = core_dataset_use(self);
    if (!ds)
        return NULL;
    PyObject *name = Py_BuildValue("z", mr_dataset_file(ds, index));
    core_dataset_unuse(self);
    return name;
}

/* ---- attributes ---- */

enum attribute { LENGTH, FIELDS, TEXT, FORMAT, FINGERPRINT, CLASSES };

static const struct mr_spec *get_field(const void *of, int f)
{
    return mr_dataset_field(of, f);
}

static PyObject *classes_of(const struct mr_dataset *ds)
{
    PyObject *list = PyList_New(0);
    for (uint64_t k = 0; list && k < mr_dataset_classes(ds); k++) {
        const char *text = mr_dataset_class_name(ds, k);
        PyObject *name = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        if (!name || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *attribute_of(const struct core *core, const struct mr_dataset *ds,
                              enum attribute which)
{
    uint64_t n = mr_dataset_length(ds);
    switch (which) {
    case LENGTH:
        return n == MR_UNKNOWN ? Py_BuildValue("") : PyLong_FromUnsignedLongLong(n);
    case FIELDS:
        return core_specs_make(core, mr_dataset_fields(ds), get_field, ds);
    case TEXT:
        return PyUnicode_FromString(mr_dataset_text(ds));
    case FORMAT:
        return PyUnicode_FromString(mr_dataset_format(ds));
    case FINGERPRINT:
        return PyLong_FromUnsignedLongLong(mr_dataset_fingerprint(ds));
    default:
        return classes_of(ds);
    }
}

static PyObject *dataset_get(PyObject *self, void *which)
{
    struct mr_dataset *ds = core_dataset_use(self);
    if (!ds)
        return NULL;
    PyObject *value = attribute_of(core_of(self), ds, (enum attribute)(intptr_t)which);
    core_dataset_unuse(self);
    return value;
}

static PyGetSetDef attributes[] = {
    {"length", dataset_get, NULL, "Samples; None if that is not known.", (void *)LENGTH},
    {"fields", dataset_get, NULL, "A Spec for each field of a sample.", (void *)FIELDS},
    {"text", dataset_get, NULL, "One line that says what was opened.", (void *)TEXT},
    {"format", dataset_get, NULL, "The format's name.", (void *)FORMAT},
    {"fingerprint", dataset_get, NULL, "A hash of the contents.", (void *)FINGERPRINT},
    {"classes", dataset_get, NULL, "Names of classes; may be empty.", (void *)CLASSES},
    {NULL, NULL, NULL, NULL, NULL}};

#define CALL(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"open", dataset_open, METH_VARARGS | METH_CLASS, "open(uri): a data set by its URI."},
    {"arrays", dataset_arrays, METH_VARARGS | METH_CLASS,
     "arrays(fields): (name, array) pairs; the first dimensions count samples. Borrowed."},
    {"python", CALL(dataset_python), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "python(n, fields, fetch, *, name, version, changes): samples that Python makes: "
     "fetch(epoch, seed, indices, positions, worker) gives an item for each index."},
    {"workers", CALL(dataset_workers), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "workers(n, fields, start, *, workers, timeout, name, version): samples that processes make: "
     "start(worker, fd) starts one that calls worker_run(), and returns its pid."},
    {"iterable", CALL(dataset_iterable), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "iterable(fields, read, rewind, *, name, version): samples one after the other: read(number) "
     "gives one or raises StopIteration."},
    {"read", dataset_read, METH_VARARGS, "read(index): one sample, a Field for each field."},
    {"file", dataset_file, METH_VARARGS, "file(index): the file of a sample, or None."},
    {"close", dataset_close, METH_NOARGS, "close(): closes files. Loaders must be closed before."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dataset_dealloc},
                              {Py_tp_traverse, dataset_traverse},
                              {Py_tp_clear, dataset_clear},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {Py_tp_doc, "A data set: what a sample is, and where its bytes are."},
                              {0, NULL}};
PyType_Spec core_dataset_spec = {
    "millrace._core.Dataset", sizeof(struct dataset), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
