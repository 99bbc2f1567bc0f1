/* Pools of tensors and rings of handles, in blocks that processes share. */
#include "shm.h"
#include "tensor.h"
#include "view.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLICE_NS = 100 * 1000 * 1000 }; /* of a wait: how late a signal may be seen */

static struct core_shm_part *part_of(PyObject *self)
{
    return ((struct core_shm_object *)self)->part;
}

/* Seconds, or None. [out] out: nanoseconds, -1: without an end. */
static int read_timeout(PyObject *object, void *out)
{
    int64_t *ns = out;
    *ns = -1;
    if (object == Py_None)
        return 1;
    double s = PyFloat_AsDouble(object);
    if (PyErr_Occurred())
        return 0;
    if (s >= 0)
        *ns = s > 9e9 ? -1 : (int64_t)(s * 1e9);
    else
        PyErr_SetString(PyExc_ValueError, "timeout: expected seconds, at least 0");
    return s >= 0;
}

/* ---- waiting ---- */

struct wait {
    int64_t (*call)(const struct wait *wait, int64_t timeout_ns);
    struct core_shm_part *part;
    uint64_t *value;
};

static int64_t call_take(const struct wait *w, int64_t timeout_ns)
{
    return mr_shm_pool_take(w->part->pool, timeout_ns, w->value);
}

static int64_t call_push(const struct wait *w, int64_t timeout_ns)
{
    return mr_shm_ring_push(w->part->ring, w->value, 1, timeout_ns);
}

static int64_t call_pop(const struct wait *w, int64_t timeout_ns)
{
    return mr_shm_ring_pop(w->part->ring, w->value, 1, timeout_ns);
}

/* Calls in slices, without the GIL, and looks at signals in between. Returns 0, MR_END, or -1 with
 * an exception. */
static int wait_for(PyObject *self, struct wait w, int64_t timeout_ns)
{
    int64_t rc, left = timeout_ns;
    do {
        int64_t slice = left < 0 || left > SLICE_NS ? SLICE_NS : left;
        Py_BEGIN_ALLOW_THREADS;
        rc = w.call(&w, slice);
        Py_END_ALLOW_THREADS;
        left -= left < 0 ? 0 : slice;
    } while (rc == -ETIMEDOUT && left != 0 && PyErr_CheckSignals() == 0);
    if (rc == -ETIMEDOUT && !PyErr_Occurred())
        core_fail(core_of(self), -ETIMEDOUT,
                  w.call == call_take   ? "no tensor of the pool became free in time"
                  : w.call == call_push ? "the ring stayed full"
                                        : "nothing came through the ring in time");
    else if (rc < 0 && rc != MR_END && rc != -ETIMEDOUT)
        core_shm_fail(self, rc);
    return rc == MR_END ? MR_END : rc < 0 ? -1 : 0;
}

/* ---- pools ---- */

/* A tensor that this process holds. */
struct held {
    struct core_shm_part *part;
    uint64_t handle;
    pid_t pid; /* a forked child does not give back what its parent holds */
    atomic_int is_sent;
};

static void held_end(void *user)
{
    struct held *held = user;
    if (!atomic_load(&held->is_sent) && held->pid == getpid())
        mr_shm_pool_give(held->part->pool, held->handle); /* stale: it was reclaimed */
    core_shm_put(held->part);
    free(held);
}

/* A Field of a tensor that this process holds now. */
static PyObject *hold(PyObject *self, uint64_t handle)
{
    struct core_shm_part *part = part_of(self);
    struct held *held = malloc(sizeof *held);
    struct core_lease *lease = held ? core_lease_borrow(held_end, held) : NULL;
    if (!lease) {
        free(held);
        mr_shm_pool_give(part->pool, handle);
        return PyErr_NoMemory();
    }
    *held = (struct held){.part = core_shm_share(part), .handle = handle, .pid = getpid()};
    struct core_field_view view = {.data = mr_shm_pool_data(part->pool, handle), .text = -1};
    view.spec = *mr_shm_pool_spec(part->pool);
    PyObject *field = core_field_create(core_of(self), lease, &view);
    core_lease_put(lease);
    return field;
}

static PyObject *pool_take(PyObject *self, PyObject *args)
{
    uint64_t handle = 0;
    int64_t timeout_ns;
    struct wait w = {.call = call_take, .part = part_of(self), .value = &handle};
    if (!PyArg_ParseTuple(args, "O&:take", read_timeout, &timeout_ns) ||
        wait_for(self, w, timeout_ns) < 0)
        return NULL;
    PyObject *field = hold(self, handle);
    return field ? Py_BuildValue("(KN)", (unsigned long long)handle, field) : NULL;
}

static PyObject *pool_accept(PyObject *self, PyObject *args)
{
    unsigned long long handle;
    if (!PyArg_ParseTuple(args, "K:accept", &handle))
        return NULL;
    int rc = mr_shm_pool_accept(part_of(self)->pool, handle);
    return rc < 0 ? core_shm_fail(self, rc) : hold(self, handle);
}

/* From here on, another process gives it back. */
static PyObject *pool_send(PyObject *self, PyObject *field)
{
    struct core *core = core_of(self);
    struct core_lease *lease =
        PyObject_TypeCheck(field, core->field) ? ((struct core_field *)field)->lease : NULL;
    if (!lease || lease->end != held_end) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor of the pool");
        return NULL;
    }
    struct held *held = lease->user;
    if (atomic_exchange(&held->is_sent, 1)) {
        PyErr_SetString(PyExc_ValueError, "the tensor has been sent already");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(held->handle);
}

static int check_like(const struct mr_spec *spec, const struct core_view *view)
{
    char want[160], got[160];
    int same = view->dtype == spec->dtype && view->ndim == spec->rank;
    for (int d = 0; same && d < spec->rank; d++)
        same = (uint64_t)view->shape[d] == spec->dim[d];
    if (same)
        return 0;
    struct mr_spec plain = *spec;
    plain.name[0] = 0;
    mr_spec_format(&plain, want, sizeof want);
    PyErr_Format(PyExc_ValueError, "an array of %s, expected %s, as the pool's tensors",
                 core_view_format(view, got, sizeof got), want[0] == ' ' ? want + 1 : want);
    return -1;
}

/* Takes a tensor and copies an array into it. */
static PyObject *pool_put(PyObject *self, PyObject *args)
{
    struct core_shm_part *part = part_of(self);
    uint64_t handle = 0;
    int64_t timeout_ns;
    PyObject *object;
    struct core_view view;
    struct wait w = {.call = call_take, .part = part, .value = &handle};
    if (!PyArg_ParseTuple(args, "OO&:put", &object, read_timeout, &timeout_ns))
        return NULL;
    struct core_kind kind = core_kind_of(core_of(self), object);
    if (core_view_begin(&kind, object, &view) < 0)
        return NULL;
    int rc = check_like(mr_shm_pool_spec(part->pool), &view);
    if (rc == 0)
        rc = wait_for(self, w, timeout_ns);
    if (rc == 0) {
        Py_BEGIN_ALLOW_THREADS;
        core_view_copy(&view, mr_shm_pool_data(part->pool, handle));
        core_copy_fence();
        Py_END_ALLOW_THREADS;
    }
    core_view_end(&view);
    return rc < 0 ? NULL : PyLong_FromUnsignedLongLong(handle);
}

static PyObject *pool_give(PyObject *self, PyObject *args)
{
    unsigned long long handle;
    if (!PyArg_ParseTuple(args, "K:give", &handle))
        return NULL;
    int rc = mr_shm_pool_give(part_of(self)->pool, handle);
    if (rc < 0)
        return core_shm_fail(self, rc);
    Py_RETURN_NONE;
}

static PyObject *pool_reclaim(PyObject *self, PyObject *args)
{
    long long pid;
    if (!PyArg_ParseTuple(args, "L:reclaim", &pid))
        return NULL;
    int64_t n = mr_shm_pool_reclaim(part_of(self)->pool, pid);
    return n < 0 ? core_shm_fail(self, n) : PyLong_FromLongLong(n);
}

static PyObject *pool_free(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(mr_shm_pool_free(part_of(self)->pool));
}

static PyObject *pool_spec(PyObject *self, PyObject *unused)
{
    (void)unused;
    return core_spec_make(core_of(self), mr_shm_pool_spec(part_of(self)->pool));
}

PyMethodDef core_shm_pool_methods[] = {
    {"take", pool_take, METH_VARARGS, "take(timeout): (handle, Field)."},
    {"put", pool_put, METH_VARARGS, "put(array, timeout): the handle of a copy."},
    {"accept", pool_accept, METH_VARARGS, "accept(handle): a Field, held by this process now."},
    {"send", pool_send, METH_O, "send(field): its handle; it is not given back here any more."},
    {"give", pool_give, METH_VARARGS, "give(handle): gives it back, whoever holds it."},
    {"reclaim", pool_reclaim, METH_VARARGS, "reclaim(pid): how many came back."},
    {"free", pool_free, METH_NOARGS, "free(): how many are free."},
    {"spec", pool_spec, METH_NOARGS, "spec(): of a tensor."},
    {NULL, NULL, 0, NULL}};
/* ---- rings ---- */

static PyObject *ring_push(PyObject *self, PyObject *args)
{
    unsigned long long given;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "KO&:push", &given, read_timeout, &timeout_ns))
        return NULL;
    uint64_t value = given;
    struct wait w = {.call = call_push, .part = part_of(self), .value = &value};
    if (wait_for(self, w, timeout_ns) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *ring_pop(PyObject *self, PyObject *args)
{
    uint64_t value;
    int64_t timeout_ns;
    struct wait w = {.call = call_pop, .part = part_of(self), .value = &value};
    if (!PyArg_ParseTuple(args, "O&:pop", read_timeout, &timeout_ns))
        return NULL;
    int rc = wait_for(self, w, timeout_ns);
    if (rc == MR_END)
        Py_RETURN_NONE;
    return rc < 0 ? NULL : PyLong_FromUnsignedLongLong(value);
}

static PyObject *ring_end(PyObject *self, PyObject *unused)
{
    (void)unused;
    mr_shm_ring_end(part_of(self)->ring);
    Py_RETURN_NONE;
}

PyMethodDef core_shm_ring_methods[] = {
    {"push", ring_push, METH_VARARGS, "push(value, timeout)"},
    {"pop", ring_pop, METH_VARARGS, "pop(timeout): a value; None: the ring has ended."},
    {"end", ring_end, METH_NOARGS, "end(): nothing more comes."},
    {NULL, NULL, 0, NULL}};
