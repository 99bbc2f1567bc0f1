/* A loader's batches for other processes (millrace/serve.h). */
#include "attached.h"
#include "lease.h"
#include <errno.h>

/* A wait looks at signals so often. */
#define SLICE_NS 50000000

/* The engine for one call, with its server; NULL: an exception. */
static struct core_engine *enter(PyObject *self)
{
    struct core_engine *engine = core_loader_engine(self);
    if (!core_engine_enter(engine)) {
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
        return NULL;
    }
    if (engine->server)
        return engine;
    core_engine_leave(engine);
    PyErr_SetString(PyExc_RuntimeError, "the loader does not serve");
    return NULL;
}

PyObject *core_loader_serve(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"address", "ahead", "trainers", NULL};
    struct mr_serve_opts opts;
    mr_serve_opts_init(&opts);
    long long ahead = -1;
    unsigned trainers = 1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "s|LI:serve", names, &opts.address, &ahead,
                                     &trainers))
        return NULL;
    opts.ahead = ahead;
    opts.wait_for = trainers;
    struct core_engine *engine = core_loader_engine(self);
    struct mr_loader *loader = core_engine_enter(engine);
    if (!loader || engine->server) {
        if (loader)
            core_engine_leave(engine);
        PyErr_SetString(PyExc_ValueError,
                        loader ? "the loader serves already" : "the loader is closed");
        return NULL;
    }
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_loader_serve(loader, &opts, &engine->server);
    Py_END_ALLOW_THREADS;
    core_engine_leave(engine);
    return rc < 0 ? core_fail(core_of(self), rc, NULL) : Py_BuildValue("");
}

PyObject *core_loader_serve_wait(PyObject *self, PyObject *args)
{
    PyObject *timeout = Py_None;
    uint64_t left_ns;
    if (!PyArg_ParseTuple(args, "|O:serve_wait", &timeout) ||
        core_timeout_read(timeout, &left_ns) < 0)
        return NULL;
    for (;;) {
        struct core_engine *engine = enter(self);
        if (!engine)
            return NULL;
        uint64_t slice = left_ns < SLICE_NS ? left_ns : SLICE_NS;
        int rc;
        Py_BEGIN_ALLOW_THREADS;
        rc = mr_server_wait(engine->server, (int64_t)slice);
        Py_END_ALLOW_THREADS;
        core_engine_leave(engine);
        if (rc < 0 && rc != -ETIMEDOUT)
            return core_fail(core_of(self), rc, NULL);
        if (rc == 0)
            return PyBool_FromLong(1);
        if (PyErr_CheckSignals() < 0)
            return NULL;
        if (left_ns != UINT64_MAX)
            left_ns -= slice;
        if (left_ns == 0)
            return PyBool_FromLong(0);
    }
}

PyObject *core_loader_serve_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct mr_server_info info = {.size = sizeof info};
    struct core_engine *engine = enter(self);
    if (!engine)
        return NULL;
    int rc = mr_server_query(engine->server, &info);
    core_engine_leave(engine);
    if (rc < 0)
        return core_fail(core_of(self), rc, NULL);
    return Py_BuildValue("(IKKKKKLK)", info.trainers, (unsigned long long)info.attached,
                         (unsigned long long)info.dropped, (unsigned long long)info.batches,
                         (unsigned long long)info.held, (unsigned long long)info.ahead,
                         (long long)info.slowest, (unsigned long long)info.behind);
}

PyObject *core_loader_serve_cancel(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct core_engine *engine = enter(self);
    if (!engine)
        return NULL;
    mr_server_cancel(engine->server);
    core_engine_leave(engine);
    return Py_BuildValue("");
}
