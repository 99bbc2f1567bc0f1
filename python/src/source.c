/*
 * Samples made by Python on the loader's threads.
 *
 * A thread has one thread state of Python from its first sample to its last: making one for each
 * call costs ten times the rest. The GIL is taken once for a run of samples.
 */
#include "source.h"
#include "rows.h"
#include "view.h"
#include <errno.h>

/* ---- the GIL ---- */

struct gil {
    PyThreadState *kept;
    PyGILState_STATE borrowed;
};

/* Threads that have no state of ours: those of Python, and those that begin a pass. */
_Thread_local int core_source_thread;

PyGILState_STATE core_gil_ensure(void)
{
    if (!PyGILState_GetThisThreadState())
        core_source_thread = 1;
    return PyGILState_Ensure();
}

static struct gil gil_take(void *state)
{
    struct gil gil = {.kept = state};
    if (state)
        PyEval_RestoreThread(state);
    else
        gil.borrowed = PyGILState_Ensure();
    return gil;
}

static void gil_give(struct gil *gil)
{
    if (gil->kept)
        PyEval_SaveThread();
    else
        PyGILState_Release(gil->borrowed);
}

int core_source_init(void *user, uint32_t worker, void **state)
{
    const struct core_source *source = user;
    *state = NULL;
    if (worker == MR_NO_WORKER || PyGILState_GetThisThreadState())
        return 0; /* a thread of Python's */
    core_source_thread = 1;
    *state = PyThreadState_New(source->interpreter);
    return *state ? 0 : mr_error_set(-ENOMEM, "a thread state of Python: out of memory");
}

void core_source_exit(void *user, uint32_t worker, void *state)
{
    (void)user, (void)worker;
    if (!state)
        return;
    PyEval_RestoreThread(state);
    PyThreadState_Clear(state);
    PyEval_SaveThread(); /* the limited API has no PyThreadState_DeleteCurrent() */
    PyThreadState_Delete(state);
}

/* ---- runs ---- */

static PyObject *list_of(const struct mr_sample_context context[], Py_ssize_t n, int positions)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *value =
            PyLong_FromUnsignedLongLong(positions ? context[i].position : context[i].index);
        if (!value || PyList_SetItem(list, i, value) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Calls fetch(epoch, seed, indices, positions, worker). Returns a list of n items, or NULL with an
 * exception. */
static PyObject *fetch(const struct core_source *source, Py_ssize_t n,
                       const struct mr_sample_context context[])
{
    int worker = context[0].worker == MR_NO_WORKER ? -1 : (int)context[0].worker;
    PyObject *items =
        PyObject_CallFunction(source->fetch, "KKNNi", (unsigned long long)context[0].epoch,
                              (unsigned long long)context[0].seed, list_of(context, n, 0),
                              list_of(context, n, 1), worker);
    if (items && !PyList_Check(items)) {
        PyObject *list = PySequence_List(items);
        Py_DECREF(items);
        items = list;
    }
    if (items && PyList_Size(items) != n) {
        PyErr_Format(PyExc_ValueError, "fetch gave %zd items for %zd samples", PyList_Size(items),
                     n);
        Py_CLEAR(items);
    }
    return items;
}

/* An exception in a sample's place is why the sample is bad. */
static int refuse(PyObject *error)
{
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    return core_catch(MR_ECALLBACK);
}

/* A run as the library passes it. */
struct run {
    uint64_t n;
    const struct mr_sample_context *context;
    void *const (*row)[MR_MAX_FIELDS];
    uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK];
    int *rc;
};

/* Makes the samples [from, from + n) by one call of fetch. Returns its error. */
static int make(struct core_source *source, const struct run *run, uint64_t from, uint64_t n)
{
    struct core_copies copies;
    PyObject *items = fetch(source, (Py_ssize_t)n, run->context + from);
    if (!items)
        return core_catch(MR_ECALLBACK);
    copies.n = 0;
    for (uint64_t k = 0; k < n; k++) {
        PyObject *item = PyList_GetItem(items, (Py_ssize_t)k);
        uint64_t i = from + k;
        run->rc[i] = PyExceptionInstance_Check(item)
                         ? refuse(item)
                         : core_row_write(source->core, source->n_fields, source->field, item,
                                          run->row[i], run->dim[i], &copies);
    }
    core_copies_run(&copies);
    Py_DECREF(items);
    return 0;
}

/* If fetch raises, its samples are made one by one, so that only those that fail alone are bad. */
int core_source_run(void *user, uint64_t n, const struct mr_sample_context context[],
                    void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                    int rc[])
{
    struct core_source *source = user;
    struct run run = {n, context, row, dim, rc};
    struct gil gil = gil_take(context[0].worker_state);
    int failed = make(source, &run, 0, n);
    if (failed < 0 && n > 1) {
        failed = 0;
        for (uint64_t i = 0; i < n; i++) {
            int alone = make(source, &run, i, 1);
            if (alone < 0)
                rc[i] = alone;
        }
    }
    core_copy_fence();
    gil_give(&gil);
    return failed;
}

/* ---- iterable sets ---- */

/* Takes the pending exception of read(). */
static int end_or_bad(void)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return core_catch(MR_ECALLBACK);
    PyErr_Clear();
    return MR_END;
}

int core_source_read(void *user, const struct mr_sample_context *context, void *const row[],
                     uint64_t (*dim)[MR_MAX_RANK])
{
    struct core_source *source = user;
    struct core_copies copies;
    struct gil gil = gil_take(context->worker_state);
    PyObject *item = PyObject_CallFunction(source->fetch, "K", (unsigned long long)context->index);
    copies.n = 0;
    int rc = !item ? end_or_bad()
             : PyExceptionInstance_Check(item)
                 ? refuse(item)
                 : core_row_write(source->core, source->n_fields, source->field, item, row, dim,
                                  &copies);
    core_copies_run(&copies);
    Py_XDECREF(item);
    gil_give(&gil);
    return rc;
}

int core_source_rewind(void *user, uint64_t epoch)
{
    struct core_source *source = user;
    struct gil gil = gil_take(NULL);
    PyObject *done = PyObject_CallFunction(source->rewind, "K", (unsigned long long)epoch);
    int rc = done ? 0 : core_catch(MR_ECALLBACK);
    Py_XDECREF(done);
    gil_give(&gil);
    return rc;
}
