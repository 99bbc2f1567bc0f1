/* millrace._core.Attached: batches of a loader in another process (millrace/serve.h). */
#include "attached.h"
#include "field.h"
#include "lease.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* Waits look at signals so often. */
#define SLICE_NS  50000000u
#define ATTACH_NS 500000000 /* a server that is busy may take so long to answer */

/* A trainer's end with a count: its owner and the batches that are out. */
struct trainer {
    atomic_uint refs, held;
    struct mr_attached *attached;
    struct core_device *device;
    pthread_mutex_t lock; /* of the leases */
    uint64_t ahead;
};

struct attached {
    PyObject_HEAD struct trainer *trainer; /* NULL: closed */
    PyObject *fields;
};

/* ---- life ---- */

/* Without the GIL if it is the last: it may wait for copies. */
static void put(struct trainer *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    mr_attached_close(t->attached);
    core_device_put(t->device);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static void shut(struct attached *a)
{
    struct trainer *t = a->trainer;
    a->trainer = NULL;
    if (!t)
        return;
    mr_attached_cancel(t->attached);
    Py_BEGIN_ALLOW_THREADS;
    put(t);
    Py_END_ALLOW_THREADS;
}

static void attached_dealloc(PyObject *self)
{
    struct attached *a = (struct attached *)self;
    shut(a);
    Py_CLEAR(a->fields);
    core_free(self);
}

static PyObject *attached_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    shut((struct attached *)self);
    Py_RETURN_NONE;
}

/* ---- attaching ---- */

static int is_absent(int rc)
{
    return rc == -ENOENT || rc == -ECONNREFUSED || rc == -ETIMEDOUT;
}

/* Tries until the time is over. Returns what mr_loader_attach() does, or INT_MIN with an
 * exception. */
static int attach(const char *address, struct mr_attach_opts *opts, uint64_t left_ns,
                  struct mr_attached **out)
{
    for (;;) {
        uint64_t slice = left_ns < ATTACH_NS ? left_ns : ATTACH_NS;
        opts->timeout_ns = (int64_t)slice;
        int rc;
        Py_BEGIN_ALLOW_THREADS;
        rc = mr_loader_attach(address, opts, out);
        Py_END_ALLOW_THREADS;
        left_ns -= left_ns == UINT64_MAX ? 0 : slice;
        if (!is_absent(rc) || left_ns == 0)
            return rc;
        if (PyErr_CheckSignals() < 0)
            return INT_MIN;
    }
}

static int open_trainer(struct trainer *t, const char *address, const char *device,
                        uint32_t prefetch, uint64_t timeout_ns)
{
    struct mr_attach_opts opts;
    struct mr_attached_info info = {.size = sizeof info};
    mr_attach_opts_init(&opts);
    if (prefetch > 0)
        opts.prefetch = prefetch;
    int rc = 0;
    if (device && strcmp(device, "cpu") != 0)
        rc = core_device_get(device, &t->device);
    if (rc < 0)
        return rc;
    opts.device = core_device_of(t->device);
    rc = attach(address, &opts, timeout_ns, &t->attached);
    if (rc == 0)
        rc = mr_attached_query(t->attached, &info);
    t->ahead = info.ahead;
    return rc;
}

static const struct mr_spec *get_field(const void *of, int f)
{
    return mr_attached_field(of, f);
}

static int describe(struct attached *a)
{
    const struct mr_attached *of = a->trainer->attached;
    int n = 0;
    while (n < MR_MAX_FIELDS && mr_attached_field(of, n))
        n++;
    a->fields = core_specs_make(core_of((PyObject *)a), n, get_field, of);
    return a->fields ? 0 : -1;
}

static PyObject *attached_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"address", "device", "prefetch", "timeout", NULL};
    const char *address, *device = NULL;
    unsigned prefetch = 0;
    PyObject *timeout = Py_None;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, named, "s|$zIO:Attached", names, &address, &device,
                                     &prefetch, &timeout) ||
        core_timeout_read(timeout, &timeout_ns) < 0)
        return NULL;
    struct attached *a = core_new(type);
    struct trainer *t = a ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        Py_XDECREF((PyObject *)a);
        return PyErr_NoMemory();
    }
    a->trainer = t;
    atomic_init(&t->refs, 1);
    pthread_mutex_init(&t->lock, NULL);
    int rc = open_trainer(t, address, device, prefetch, timeout_ns);
    if (rc < 0 && rc != INT_MIN)
        core_fail(core_of((PyObject *)a), rc, NULL);
    if (rc == 0 && describe(a) == 0)
        return (PyObject *)a;
    Py_DECREF((PyObject *)a);
    return NULL;
}

/* ---- batches ---- */

/* What a lease gives back. */
struct held {
    struct trainer *trainer;
    struct core_lease *lease;
};

/* Behind the stream that used it or, if that is being captured, behind all streams. */
static void end_held(void *user)
{
    struct held *held = user;
    struct trainer *t = held->trainer;
    struct core_lease *lease = held->lease;
    int rc = mr_attached_release(t->attached, &lease->batch, lease->used);
    if (rc < 0 && lease->used)
        mr_attached_release(t->attached, &lease->batch, mr_stream_any(core_device_of(t->device)));
    atomic_fetch_sub(&t->held, 1);
    put(t);
    free(held);
}

static struct core_lease *lease_create(struct trainer *t, struct mr_batch *batch,
                                       struct mr_stream *stream)
{
    struct held *held = calloc(1, sizeof *held);
    struct core_lease *lease = held ? core_lease_borrow(end_held, held) : NULL;
    if (!lease) {
        free(held);
        mr_attached_release(t->attached, batch, stream);
        return NULL;
    }
    held->trainer = t;
    held->lease = lease;
    atomic_fetch_add(&t->refs, 1);
    atomic_fetch_add(&t->held, 1);
    lease->batch = *batch;
    lease->read_only = 1;
    lease->device = t->device;
    lease->lock = &t->lock;
    lease->arrived = lease->used = stream;
    return lease;
}

static int read_stream(const struct core *core, struct core_device *device, PyObject *object,
                       struct mr_stream **out)
{
    *out = NULL;
    if (object == Py_None || core_device_ordinal(device) < 0)
        return 0;
    void *native = PyLong_AsVoidPtr(object);
    if (!native && PyErr_Occurred())
        return -1;
    int rc = core_device_stream(device, native, out);
    if (rc < 0)
        core_fail(core, rc, NULL);
    return rc;
}

/* The next one waits for the oldest of them, which only the caller can give back. */
static int check_held(const struct trainer *t)
{
    unsigned held = atomic_load(&t->held);
    if (held <= t->ahead)
        return 0;
    PyErr_Format(PyExc_RuntimeError,
                 "this program holds %u batches, and the server's `ahead` of %llu allows no more: "
                 "drop them, copy what is kept, or serve with a larger `ahead`",
                 held, (unsigned long long)t->ahead);
    return -1;
}

/* Waits for a batch, and for signals. Returns what mr_attached_next() does, or INT_MIN with an
 * exception. */
static int wait_for(struct trainer *t, struct mr_stream *stream, uint64_t left_ns,
                    struct mr_batch *batch)
{
    for (;;) {
        uint64_t slice = left_ns < SLICE_NS ? left_ns : SLICE_NS;
        int rc;
        Py_BEGIN_ALLOW_THREADS;
        rc = mr_attached_next_for(t->attached, stream, slice, batch);
        Py_END_ALLOW_THREADS;
        if (rc != -ETIMEDOUT)
            return rc;
        if (PyErr_CheckSignals() < 0)
            return INT_MIN;
        left_ns -= left_ns == UINT64_MAX ? 0 : slice;
        if (left_ns == 0) {
            PyErr_SetString(PyExc_TimeoutError, mr_last_error());
            return INT_MIN;
        }
    }
}

static PyObject *next_batch(const struct core *core, struct trainer *t, PyObject *stream_object,
                            uint64_t timeout_ns)
{
    struct mr_stream *stream;
    struct mr_batch batch = {.size = sizeof batch};
    if (check_held(t) < 0 || read_stream(core, t->device, stream_object, &stream) < 0)
        return NULL;
    int rc = wait_for(t, stream, timeout_ns, &batch);
    if (rc == INT_MIN)
        return NULL;
    if (rc < 0)
        return core_fail(core, rc, NULL);
    if (rc == 0)
        Py_RETURN_NONE;
    struct core_lease *lease = lease_create(t, &batch, stream);
    return lease ? core_batch_create(core, lease) : PyErr_NoMemory();
}

static struct trainer *trainer_of(PyObject *self)
{
    struct trainer *t = ((struct attached *)self)->trainer;
    if (!t)
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
    return t;
}

static PyObject *attached_next(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"stream", "timeout", NULL};
    PyObject *stream = Py_None, *timeout = Py_None;
    uint64_t timeout_ns;
    struct trainer *t = trainer_of(self);
    if (!t || !PyArg_ParseTupleAndKeywords(args, named, "|OO:next", names, &stream, &timeout) ||
        core_timeout_read(timeout, &timeout_ns) < 0)
        return NULL;
    atomic_fetch_add(&t->refs, 1); /* another thread may close it meanwhile */
    PyObject *batch = next_batch(core_of(self), t, stream, timeout_ns);
    Py_BEGIN_ALLOW_THREADS;
    put(t);
    Py_END_ALLOW_THREADS;
    return batch;
}

/* ---- attributes ---- */

static PyObject *attached_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct mr_attached_info info = {.size = sizeof info};
    struct trainer *t = trainer_of(self);
    if (!t)
        return NULL;
    int rc = mr_attached_query(t->attached, &info);
    if (rc < 0)
        return core_fail(core_of(self), rc, NULL);
    return Py_BuildValue("(KKKKKKL)", (unsigned long long)info.batches,
                         (unsigned long long)info.samples, (unsigned long long)info.ahead,
                         (unsigned long long)info.missed, (unsigned long long)info.taken,
                         (unsigned long long)info.wait_ns, (long long)info.server);
}

static PyObject *get_fields(PyObject *self, void *unused)
{
    (void)unused;
    return PySequence_List(((struct attached *)self)->fields);
}

static PyGetSetDef attributes[] = {
    {"fields", get_fields, NULL, "A Spec for each field, of one sample.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

#define CALL(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"next", CALL(attached_next), METH_VARARGS | METH_KEYWORDS,
     "next(stream=None, timeout=None): the next Batch; None after the last one. As Loader.next()."},
    {"info", attached_info, METH_NOARGS,
     "info(): (batches, samples, ahead, missed, taken, wait_ns, the server's process)."},
    {"close", attached_close, METH_NOARGS,
     "close(): next() raises from now on. Detaches when the last batch is gone."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, attached_new},
                              {Py_tp_dealloc, attached_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {Py_tp_doc, "Attached(address, *, device=None, prefetch=0, "
                                          "timeout=None): batches that another process serves."},
                              {0, NULL}};
PyType_Spec core_attached_spec = {"millrace._core.Attached", sizeof(struct attached), 0,
                                  Py_TPFLAGS_DEFAULT, slots};
