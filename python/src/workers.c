/*
 * Worker processes that make Python's samples.
 *
 * In the parent, the library starts a process by calling Python: on the thread that opens the data
 * set, and later, when a worker has died, on a thread of its own. In a worker, rows are written as
 * those of Dataset.python() are (source.h).
 */
#include "workers.h"
#include "view.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Python is ending: no thread may wait for the GIL. */
static atomic_int ending;

/* ---- the parent ---- */

/* What a call that raised an OSError lacks, and may have later. Another exception: 0. */
static int shortage(void)
{
    static const int all[] = {EAGAIN, EMFILE, ENFILE, ENOMEM};
    PyObject *type, *value, *trace;
    long number = PyErr_ExceptionMatches(PyExc_MemoryError) ? ENOMEM : 0;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *errnum = value && PyErr_GivenExceptionMatches(value, PyExc_OSError)
                           ? PyObject_GetAttrString(value, "errno")
                           : NULL;
    if (errnum && PyLong_Check(errnum))
        number = PyLong_AsLong(errnum);
    Py_XDECREF(errnum);
    PyErr_Restore(type, value, trace);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (number == all[i])
            return -all[i];
    return 0;
}

static int start_error(const struct core *core)
{
    int rc = PyErr_ExceptionMatches(core->cancelled) ? MR_ECANCELLED : shortage();
    return core_catch(rc < 0 ? rc : MR_ECALLBACK);
}

int core_workers_start(void *user, uint32_t worker, int fd, int64_t *out_pid)
{
    struct core_source *source = user;
    if (atomic_load(&ending))
        return mr_error_set(MR_ECANCELLED, "Python is ending");
    PyGILState_STATE gil = core_gil_ensure();
    PyObject *pid = PyObject_CallFunction(source->fetch, "Ii", (unsigned)worker, fd);
    long long value = pid ? PyLong_AsLongLong(pid) : -1;
    int rc = 0;
    if (value == -1 && PyErr_Occurred())
        rc = start_error(source->core);
    Py_XDECREF(pid);
    PyGILState_Release(gil);
    if (rc == 0)
        *out_pid = value;
    return rc;
}

PyObject *core_workers_end(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    atomic_store(&ending, 1);
    Py_RETURN_NONE;
}

/* ---- a worker ---- */

static int run(int fd, struct core_source *source, int copied)
{
    struct mr_worker_opts opts;
    mr_worker_opts_init(&opts);
    opts.get_run = core_source_run;
    opts.init = core_source_init;
    opts.exit = core_source_exit;
    opts.user = source;
    int rc;
    core_copy_stream(copied);
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_worker_run(fd, &opts);
    Py_END_ALLOW_THREADS;
    return rc;
}

PyObject *core_worker_run(PyObject *module, PyObject *args)
{
    int fd, copied;
    PyObject *fields, *fetch;
    if (!PyArg_ParseTuple(args, "iOOp:worker_run", &fd, &fields, &fetch, &copied))
        return NULL;
    struct core_source *source = calloc(1, sizeof *source);
    if (!source)
        return PyErr_NoMemory();
    source->core = PyModule_GetState(module);
    source->interpreter = PyInterpreterState_Get();
    source->fetch = fetch;
    source->n_fields = core_specs_read(fields, source->field);
    int rc = source->n_fields < 0 ? 0 : run(fd, source, copied);
    int ok = source->n_fields >= 0 && rc >= 0;
    if (rc < 0)
        core_fail(source->core, rc, NULL);
    free(source);
    return ok ? Py_BuildValue("") : NULL;
}
