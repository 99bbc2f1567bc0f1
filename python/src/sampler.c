/* millrace._core.Sampler */
#include "field.h"
#include "source.h"
#include <errno.h>
#include <stdlib.h>

struct sampler {
    PyObject_HEAD struct mr_sampler *sampler;
    PyObject *batches; /* a callable: epoch -> lists of indices */
    PyObject *latest;  /* what it gave for latest_epoch */
    unsigned long long latest_epoch, n;
};

struct mr_sampler *core_sampler_get(PyObject *self)
{
    return ((struct sampler *)self)->sampler;
}

/* ---- batches from Python ---- */

/* The batches of an epoch: a list, kept for the latest one. Returns a new reference. */
static PyObject *batches_of(struct sampler *s, uint64_t epoch)
{
    if (!s->latest || s->latest_epoch != epoch) {
        PyObject *got = PyObject_CallFunction(s->batches, "K", (unsigned long long)epoch);
        PyObject *list = got ? PySequence_List(got) : NULL;
        Py_XDECREF(got);
        if (!list)
            return NULL;
        PyObject *old = s->latest;
        s->latest = list;
        s->latest_epoch = epoch;
        Py_XDECREF(old);
    }
    Py_INCREF(s->latest);
    return s->latest;
}

static uint64_t n_batches(void *user, uint64_t epoch)
{
    PyGILState_STATE gil = core_gil_ensure();
    PyObject *all = batches_of(user, epoch);
    uint64_t n = all ? (uint64_t)PyList_Size(all) : (uint64_t)core_catch(MR_ECALLBACK);
    Py_XDECREF(all);
    PyGILState_Release(gil);
    return n;
}

static int write_items(PyObject *batch, uint64_t max, struct mr_batch_item *items)
{
    uint64_t *indices, n;
    if (core_uints_read(batch, &indices, &n) < 0)
        return core_catch(MR_ECALLBACK);
    int rc = (int)n;
    if (n > max)
        rc = mr_error_set(MR_ECALLBACK, "a batch of %llu samples, expected at most max_batch=%llu",
                          (unsigned long long)n, (unsigned long long)max);
    for (uint64_t i = 0; rc >= 0 && i < n; i++)
        items[i].index = indices[i];
    free(indices);
    return rc;
}

static int batch_items(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                       struct mr_batch_item *items)
{
    PyGILState_STATE gil = core_gil_ensure();
    PyObject *all = batches_of(user, epoch);
    int rc;
    if (!all)
        rc = core_catch(MR_ECALLBACK);
    else if (batch >= (uint64_t)PyList_Size(all))
        rc = mr_error_set(MR_ECALLBACK, "epoch %llu has no batch %llu", (unsigned long long)epoch,
                          (unsigned long long)batch);
    else
        rc = write_items(PyList_GetItem(all, (Py_ssize_t)batch), max, items);
    Py_XDECREF(all);
    PyGILState_Release(gil);
    return rc;
}

/* ---- options ---- */

/* What was read of the arguments, and is freed with free(). */
struct lists {
    uint64_t *indices;
    double *weights;
    uint32_t *lengths;
};

static int read_weights(PyObject *values, struct lists *lists, struct mr_sampler_opts *opts)
{
    PyObject *list = PySequence_List(values);
    Py_ssize_t n = list ? PyList_Size(list) : -1;
    lists->weights = n >= 0 ? malloc(((size_t)n + 1) * sizeof(double)) : NULL;
    for (Py_ssize_t i = 0; lists->weights && i < n; i++)
        lists->weights[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
    Py_XDECREF(list);
    opts->weights = lists->weights;
    opts->n_weights = (uint64_t)n;
    return lists->weights && !PyErr_Occurred() ? 0 : -1;
}

static int read_lengths(PyObject *values, struct lists *lists, struct mr_sampler_opts *opts)
{
    uint64_t *wide, n;
    if (core_uints_read(values, &wide, &n) < 0)
        return -1;
    lists->lengths = malloc((n + 1) * sizeof(uint32_t));
    uint64_t i = 0;
    for (; lists->lengths && i < n && wide[i] <= UINT32_MAX; i++)
        lists->lengths[i] = (uint32_t)wide[i];
    free(wide);
    opts->lengths = lists->lengths;
    opts->n_lengths = n;
    if (lists->lengths && i == n)
        return 0;
    PyErr_SetString(PyExc_ValueError, "lengths: expected at most 4294967295");
    return -1;
}

static int kind_of(const char *text, enum mr_sampler_kind *out)
{
    static const struct {
        const char *name;
        enum mr_sampler_kind kind;
    } kinds[] = {{"sequential", MR_SAMPLER_SEQUENTIAL},
                 {"random", MR_SAMPLER_RANDOM},
                 {"subset", MR_SAMPLER_SUBSET},
                 {"weighted", MR_SAMPLER_WEIGHTED},
                 {"batches", MR_SAMPLER_BATCHES},
                 {"buckets", MR_SAMPLER_BUCKETS},
                 {"pack", MR_SAMPLER_PACK}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, text) == 0) {
            *out = kinds[i].kind;
            return 0;
        }
    PyErr_Format(PyExc_ValueError,
                 "sampler '%s', expected sequential, random, subset, weighted, batches, buckets or "
                 "pack",
                 text);
    return -1;
}

static int read_options(struct sampler *s, PyObject *args, PyObject *named, struct lists *lists,
                        struct mr_sampler_opts *opts)
{
    static char *names[] = {
        "kind",        "n",         "seed",    "shuffle",    "indices", "weights",    "replacement",
        "n_draws",     "max_batch", "lengths", "max_tokens", "window",  "row_length", "rows",
        "max_per_row", "truncate",  "batches", "name",       "version", "block",      NULL};
    const char *kind;
    unsigned long long seed = 0, n_draws = 0, max_batch = 0, max_tokens = 0, window = 0,
                       version = 0, block = 0;
    PyObject *indices = Py_None, *weights = Py_None, *lengths = Py_None, *batches = Py_None;
    if (!PyArg_ParseTupleAndKeywords(
            args, named, "sK|$KpOOpKKOKKIIIpOzKK:Sampler", names, &kind, &s->n, &seed,
            &opts->shuffle, &indices, &weights, &opts->replacement, &n_draws, &max_batch, &lengths,
            &max_tokens, &window, &opts->row_length, &opts->rows, &opts->max_per_row,
            &opts->truncate, &batches, &opts->name, &version, &block))
        return -1;
    opts->seed = seed;
    opts->n_draws = n_draws;
    opts->max_batch = max_batch;
    opts->max_tokens = max_tokens;
    opts->window = window;
    opts->block = block;
    opts->version = version;
    if (kind_of(kind, &opts->kind) < 0)
        return -1;
    if (indices != Py_None && core_uints_read(indices, &lists->indices, &opts->n_indices) < 0)
        return -1;
    opts->indices = lists->indices;
    if ((weights != Py_None && read_weights(weights, lists, opts) < 0) ||
        (lengths != Py_None && read_lengths(lengths, lists, opts) < 0))
        return -1;
    if (batches != Py_None) {
        Py_INCREF(batches);
        s->batches = batches;
        opts->n_batches = n_batches;
        opts->batch = batch_items;
        opts->user = s;
    }
    return 0;
}

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    struct sampler *s = core_new(type);
    if (!s)
        return NULL;
    struct lists lists = {NULL, NULL, NULL};
    struct mr_sampler_opts opts;
    mr_sampler_opts_init(&opts);
    int rc = read_options(s, args, named, &lists, &opts);
    if (rc == 0) {
        Py_BEGIN_ALLOW_THREADS;
        rc = mr_sampler_create(&opts, s->n, &s->sampler);
        Py_END_ALLOW_THREADS;
        if (rc < 0)
            core_fail(core_of((PyObject *)s), rc, NULL);
    }
    free(lists.indices);
    free(lists.weights);
    free(lists.lengths);
    if (rc == 0)
        return (PyObject *)s;
    Py_DECREF((PyObject *)s);
    return NULL;
}

/* ---- the rest ---- */

/* Not the callable, which a loader's threads may be in: see dataset_traverse(). */
static int sampler_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct sampler *s = (struct sampler *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->latest);
    return 0;
}

static int sampler_clear(PyObject *self)
{
    Py_CLEAR(((struct sampler *)self)->latest);
    return 0; /* a loader may still ask for batches; dealloc lets go of the callable */
}

static void sampler_dealloc(PyObject *self)
{
    struct sampler *s = (struct sampler *)self;
    PyObject_GC_UnTrack(self);
    mr_sampler_destroy(s->sampler);
    Py_CLEAR(s->batches);
    Py_CLEAR(s->latest);
    core_free(self);
}

static PyObject *sampler_map(PyObject *self, PyObject *args)
{
    unsigned long long epoch, position, count;
    if (!PyArg_ParseTuple(args, "KKK:map", &epoch, &position, &count))
        return NULL;
    struct mr_sampler *sampler = core_sampler_get(self);
    uint64_t length = mr_sampler_length(sampler);
    if (position > length || count > length - position) {
        PyErr_Format(PyExc_IndexError, "positions %llu to %llu, expected at most %llu", position,
                     position + count, (unsigned long long)length);
        return NULL;
    }
    uint64_t *indices = malloc((count + 1) * sizeof *indices);
    if (!indices)
        return PyErr_NoMemory();
    int rc = mr_sampler_map(sampler, epoch, position, count, indices);
    PyObject *list =
        rc < 0 ? core_fail(core_of(self), rc, NULL) : core_uints_make(indices, (Py_ssize_t)count);
    free(indices);
    return list;
}

static PyObject *get_length(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(mr_sampler_length(core_sampler_get(self)));
}

static PyObject *get_text(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(mr_sampler_text(core_sampler_get(self)));
}

static PyGetSetDef attributes[] = {
    {"length", get_length, NULL, "Positions in an epoch, all ranks together.", NULL},
    {"text", get_text, NULL, "Kind and parameters, as saved states record them.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef methods[] = {
    {"map", sampler_map, METH_VARARGS, "map(epoch, position, count): indices, as a list."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, sampler_new},
                              {Py_tp_dealloc, sampler_dealloc},
                              {Py_tp_traverse, sampler_traverse},
                              {Py_tp_clear, sampler_clear},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {Py_tp_doc,
                               "The order of samples in an epoch: a function of seed and "
                               "epoch."},
                              {0, NULL}};
PyType_Spec core_sampler_spec = {"millrace._core.Sampler", sizeof(struct sampler), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
