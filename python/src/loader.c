/* millrace._core.Loader */
#include "attached.h"
#include "opening.h"
#include "source.h"
#include "stats.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* next() looks at signals so often. */
#define SLICE_NS 50000000u

struct loader {
    PyObject_HEAD struct core_engine *engine;
    struct mr_transform *chain;
    PyObject *dataset, *sampler; /* in use until the engine is closed */
    PyObject *fields;
    uint64_t batches, samples;
    pid_t pid;
    int handed; /* another thread closes it */
};

/* ---- opening ---- */

static const struct mr_spec *get_field(const void *of, int f)
{
    return mr_loader_field(of, f);
}

static int describe(struct loader *l)
{
    const struct mr_loader *loader = l->engine->loader;
    int n = 0;
    while (n < MR_MAX_FIELDS && mr_loader_field(loader, n))
        n++;
    l->batches = mr_loader_batches(loader);
    l->samples = mr_loader_samples(loader);
    l->fields = core_specs_make(core_of((PyObject *)l), n, get_field, loader);
    return l->fields ? 0 : -1;
}

static int start(struct loader *l, struct core_parts *parts, PyObject *options)
{
    const struct core *core = core_of((PyObject *)l);
    const char *state = parts->opts.state;
    int rc = core_options_set(core, &parts->opts, options);
    if (rc == 0) {
        parts->opts.state = state;
        Py_BEGIN_ALLOW_THREADS;
        rc = core_engine_open(parts, &l->chain, &l->engine);
        Py_END_ALLOW_THREADS;
        if (rc < 0)
            core_fail(core, rc, NULL);
    }
    mr_options_free(mr_loader_options(), &parts->opts);
    return rc < 0 ? -1 : describe(l);
}

/* Takes the data set and the sampler into use. */
static int take(struct loader *l, PyObject *dataset, PyObject *sampler, struct core_parts *parts)
{
    const struct core *core = core_of((PyObject *)l);
    if (sampler != Py_None && !PyObject_TypeCheck(sampler, core->sampler)) {
        PyErr_SetString(PyExc_TypeError, "sampler: expected a millrace._core.Sampler");
        return -1;
    }
    parts->ds = core_dataset_use(dataset);
    if (!parts->ds)
        return -1;
    Py_INCREF(dataset);
    l->dataset = dataset;
    if (sampler != Py_None) {
        parts->sampler = core_sampler_get(sampler);
        Py_INCREF(sampler);
        l->sampler = sampler;
    }
    return 0;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"dataset", "sampler", "transform", "device", "options", "state", NULL};
    struct loader *l = core_new(type);
    if (!l)
        return NULL;
    l->pid = getpid();
    struct core_parts parts = {NULL};
    mr_loader_opts_init(&parts.opts);
    PyObject *dataset, *sampler = Py_None, *options = NULL, *none = PyDict_New();
    int ok =
        none &&
        PyArg_ParseTupleAndKeywords(args, named, "O!|$OzzOz:Loader", names,
                                    core_of((PyObject *)l)->dataset, &dataset, &sampler,
                                    &parts.transform, &parts.device, &options, &parts.opts.state) &&
        take(l, dataset, sampler, &parts) == 0 && start(l, &parts, options ? options : none) == 0;
    Py_XDECREF(none);
    if (ok)
        return (PyObject *)l;
    Py_DECREF((PyObject *)l);
    return NULL;
}

/* ---- closing ---- */

/* Closes the engine of a loader that has given up what it used, and drops that. With the GIL. */
static void finish(struct loader *used)
{
    if (used->engine) {
        Py_BEGIN_ALLOW_THREADS;
        core_engine_close(used->engine);
        core_engine_put(used->engine);
        Py_END_ALLOW_THREADS;
    }
    mr_transform_destroy(used->chain);
    if (used->dataset)
        core_dataset_unuse(used->dataset);
    Py_XDECREF(used->dataset);
    Py_XDECREF(used->sampler);
}

static void *finish_elsewhere(void *arg)
{
    struct loader *used = arg;
    PyGILState_STATE gil = PyGILState_Ensure();
    finish(used);
    PyGILState_Release(gil);
    free(used);
    return NULL;
}

/* Closes it on a thread of its own. A worker that collects garbage may meet its own loader, and
 * cannot wait for itself. */
static int hand_over(const struct loader *l)
{
    pthread_t thread;
    struct loader *used = malloc(sizeof *used);
    if (used) {
        *used = *l;
        if (pthread_create(&thread, NULL, finish_elsewhere, used) == 0)
            return pthread_detach(thread);
    }
    free(used);
    return 0; /* no thread: the loader, and all that it uses, stays until the process ends */
}

/* elsewhere: does not wait for the samples that are being made. */
static void shut(struct loader *l, int elsewhere)
{
    struct loader used = *l;
    if (l->handed)
        return;
    l->handed = elsewhere;
    l->chain = NULL;
    l->dataset = l->sampler = NULL;
    if (used.engine)
        atomic_fetch_add(&used.engine->refs, 1);
    if (elsewhere)
        hand_over(&used);
    else
        finish(&used);
}

static int loader_clear(PyObject *self)
{
    shut((struct loader *)self, core_source_thread);
    return 0;
}

static int loader_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct loader *l = (struct loader *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(l->dataset);
    Py_VISIT(l->sampler);
    Py_VISIT(l->fields);
    return 0;
}

static void loader_dealloc(PyObject *self)
{
    struct loader *l = (struct loader *)self;
    PyObject_GC_UnTrack(self);
    shut(l, core_source_thread);
    core_engine_put(l->engine);
    Py_CLEAR(l->fields);
    core_free(self);
}

static PyObject *loader_close(PyObject *self, PyObject *args)
{
    struct loader *l = (struct loader *)self;
    PyObject *wait = Py_None;
    uint64_t wait_ns;
    if (!PyArg_ParseTuple(args, "|O:close", &wait) || core_timeout_read(wait, &wait_ns) < 0)
        return NULL;
    int bounded = wait_ns != UINT64_MAX;
    shut(l, core_source_thread || bounded);
    if (bounded && l->engine) {
        Py_BEGIN_ALLOW_THREADS;
        core_engine_wait(l->engine, wait_ns);
        Py_END_ALLOW_THREADS;
    }
    Py_RETURN_NONE;
}

struct core_engine *core_loader_engine(PyObject *self)
{
    return ((struct loader *)self)->engine;
}

/* ---- batches ---- */

/* The loader for one call; NULL: an exception. */
static struct mr_loader *enter(PyObject *self)
{
    struct mr_loader *loader = core_engine_enter(((struct loader *)self)->engine);
    if (!loader)
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
    return loader;
}

static void leave(PyObject *self)
{
    core_engine_leave(((struct loader *)self)->engine);
}

/* Waits for a batch, and for signals, whose handlers may close the loader: *loader is NULL then,
 * and the call has left it. Returns what mr_loader_next() does, or INT_MIN with an exception. */
static int wait_for(const struct core *core, struct core_engine *engine, struct mr_loader **loader,
                    struct mr_stream *stream, uint64_t timeout_ns, struct mr_batch *batch)
{
    for (;;) {
        uint64_t slice = timeout_ns < SLICE_NS ? timeout_ns : SLICE_NS;
        int rc;
        Py_BEGIN_ALLOW_THREADS;
        rc = mr_loader_next_for(*loader, stream, slice, batch);
        Py_END_ALLOW_THREADS;
        if (rc != -ETIMEDOUT)
            return rc;
        char late[512];
        PyOS_snprintf(late, sizeof late, "%s", mr_last_error());
        core_engine_leave(engine);
        int failed = PyErr_CheckSignals() < 0;
        *loader = core_engine_enter(engine);
        if (!*loader && !failed)
            core_fail(core, mr_error_set(MR_ECANCELLED, "the loader is being closed"), NULL);
        if (failed || !*loader)
            return INT_MIN;
        if (timeout_ns != UINT64_MAX)
            timeout_ns -= slice;
        if (timeout_ns == 0) {
            PyErr_SetString(PyExc_TimeoutError, late);
            return INT_MIN;
        }
    }
}

static int read_stream(struct loader *l, PyObject *object, struct mr_stream **out)
{
    *out = NULL;
    if (object == Py_None || core_device_ordinal(l->engine->device) < 0)
        return 0;
    void *native = PyLong_AsVoidPtr(object);
    if (!native && PyErr_Occurred())
        return -1;
    int rc = core_device_stream(l->engine->device, native, out);
    if (rc < 0)
        core_fail(core_of((PyObject *)l), rc, NULL);
    return rc;
}

int core_timeout_read(PyObject *object, uint64_t *out)
{
    *out = UINT64_MAX;
    if (object == Py_None)
        return 0;
    double seconds = PyFloat_AsDouble(object);
    if (PyErr_Occurred())
        return -1;
    if (!(seconds >= 0)) {
        PyErr_SetString(PyExc_ValueError, "timeout: expected seconds, at least 0");
        return -1;
    }
    if (seconds < 1e9)
        *out = (uint64_t)(seconds * 1e9);
    return 0;
}

static PyObject *next_batch(PyObject *self, struct mr_loader **loader, struct mr_stream *stream,
                            uint64_t timeout_ns)
{
    struct core_engine *engine = ((struct loader *)self)->engine;
    struct mr_batch batch; /* 8 KB, of which the call sets a few fields */
    batch.size = sizeof batch;
    int rc = wait_for(core_of(self), engine, loader, stream, timeout_ns, &batch);
    if (rc == INT_MIN)
        return NULL;
    if (rc == 0)
        Py_RETURN_NONE;
    if (rc < 0)
        return core_fail(core_of(self), rc, NULL);
    struct core_lease *lease = core_lease_create(engine, &batch, stream);
    return lease ? core_batch_create(core_of(self), lease) : PyErr_NoMemory();
}

static PyObject *loader_next(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"stream", "timeout", NULL};
    PyObject *stream_object = Py_None, *timeout = Py_None;
    struct mr_stream *stream;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|OO:next", names, &stream_object, &timeout) ||
        core_timeout_read(timeout, &timeout_ns) < 0)
        return NULL;
    struct mr_loader *loader = enter(self);
    if (!loader)
        return NULL;
    PyObject *batch = NULL;
    if (read_stream((struct loader *)self, stream_object, &stream) == 0)
        batch = next_batch(self, &loader, stream, timeout_ns);
    if (loader)
        leave(self);
    return batch;
}

/* ---- state ---- */

static PyObject *state_text(PyObject *self, int (*get)(const struct mr_loader *, char *, size_t))
{
    struct mr_loader *loader = enter(self);
    if (!loader)
        return NULL;
    int rc = MR_ELIMIT;
    char *text = NULL;
    for (size_t cap = 4096; rc == MR_ELIMIT && cap <= 64u << 20; cap *= 4) {
        free(text);
        text = malloc(cap);
        rc = text ? get(loader, text, cap) : mr_error_set(-ENOMEM, "state: out of memory");
    }
    PyObject *state =
        rc < 0 ? core_fail(core_of(self), rc, NULL) : PyUnicode_FromStringAndSize(text, rc);
    free(text);
    leave(self);
    return state;
}

static PyObject *loader_state(PyObject *self, PyObject *unused)
{
    (void)unused;
    return state_text(self, mr_loader_state);
}

static PyObject *loader_state_released(PyObject *self, PyObject *unused)
{
    (void)unused;
    return state_text(self, mr_loader_state_released);
}

static PyObject *loader_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct mr_loader *loader = enter(self);
    if (!loader)
        return NULL;
    PyObject *stats = core_stats_make(core_of(self), loader);
    leave(self);
    return stats;
}

static PyObject *loader_bad(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct mr_loader *loader = enter(self);
    if (!loader)
        return NULL;
    struct mr_bad_sample bad = {.size = sizeof bad};
    PyObject *list = PyList_New(0);
    for (uint64_t i = 0; list && mr_loader_bad(loader, i, &bad) > 0; i++) {
        PyObject *one = Py_BuildValue(
            "(KKKsKs)", (unsigned long long)bad.index, (unsigned long long)bad.epoch,
            (unsigned long long)bad.position, bad.file, (unsigned long long)bad.offset, bad.reason);
        if (!one || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    leave(self);
    return list;
}

/* ---- the rest ---- */

static PyObject *loader_cancel(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct mr_loader *loader = core_engine_enter(((struct loader *)self)->engine);
    if (loader) {
        mr_loader_cancel(loader);
        leave(self);
    }
    Py_RETURN_NONE;
}

static PyObject *loader_fileno(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct mr_loader *loader = enter(self);
    if (!loader)
        return NULL;
    int fd = mr_loader_fd(loader);
    PyObject *number = fd < 0 ? core_fail(core_of(self), fd, NULL) : PyLong_FromLong(fd);
    leave(self);
    return number;
}

static PyObject *count(uint64_t n)
{
    return n == MR_UNKNOWN ? Py_BuildValue("") : PyLong_FromUnsignedLongLong(n);
}

static PyObject *get_batches(PyObject *self, void *unused)
{
    (void)unused;
    return count(((struct loader *)self)->batches);
}

static PyObject *get_samples(PyObject *self, void *unused)
{
    (void)unused;
    return count(((struct loader *)self)->samples);
}

static PyObject *get_fields(PyObject *self, void *unused)
{
    (void)unused;
    return PySequence_List(((struct loader *)self)->fields);
}

static PyObject *get_forked(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct loader *)self)->pid != getpid());
}

static PyGetSetDef attributes[] = {
    {"batches", get_batches, NULL, "Batches in an epoch of this rank; None: not known.", NULL},
    {"samples", get_samples, NULL, "Samples in an epoch of this rank; None: not known.", NULL},
    {"fields", get_fields, NULL, "A Spec for each field, of one sample.", NULL},
    {"forked", get_forked, NULL, "Whether the process was forked from the loader's.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

#define CALL(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"next", CALL(loader_next), METH_VARARGS | METH_KEYWORDS,
     "next(stream=None, timeout=None): the next Batch; None after the last one. stream: a native "
     "CUDA stream that will see the bytes; None: they have arrived. timeout: seconds."},
    {"state", loader_state, METH_NOARGS, "state(): JSON, after the last batch returned."},
    {"state_released", loader_state_released, METH_NOARGS,
     "state_released(): JSON, before the oldest batch that is held."},
    {"stats", loader_stats, METH_NOARGS, "stats(): counts, times and the bottleneck."},
    {"bad", loader_bad, METH_NOARGS,
     "bad(): of each bad sample (index, epoch, position, file, offset, reason)."},
    {"cancel", loader_cancel, METH_NOARGS, "cancel(): next() raises Cancelled from now on."},
    {"close", loader_close, METH_VARARGS,
     "close(wait=None): ends the threads; returns when they have ended, or after wait seconds. "
     "Tensors stay valid."},
    {"serve", CALL(core_loader_serve), METH_VARARGS | METH_KEYWORDS,
     "serve(address, ahead=-1, trainers=1): hands the batches out to other processes; next() must "
     "not be called then."},
    {"serve_wait", core_loader_serve_wait, METH_VARARGS,
     "serve_wait(timeout=None): whether all trainers have released the last batch."},
    {"serve_info", core_loader_serve_info, METH_NOARGS,
     "serve_info(): (trainers, attached, dropped, batches, held, ahead, slowest, behind)."},
    {"serve_cancel", core_loader_serve_cancel, METH_NOARGS,
     "serve_cancel(): trainers get Cancelled."},
    {"fileno", loader_fileno, METH_NOARGS, "fileno(): readable while a batch is ready."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, loader_new},
                              {Py_tp_dealloc, loader_dealloc},
                              {Py_tp_traverse, loader_traverse},
                              {Py_tp_clear, loader_clear},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {Py_tp_doc, "Makes batches with threads of its own."},
                              {0, NULL}};
PyType_Spec core_loader_spec = {"millrace._core.Loader", sizeof(struct loader), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
