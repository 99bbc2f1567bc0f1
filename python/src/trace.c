/* Traces of this process: what the loaders' threads did, and the program's own spans. */
#include "core.h"
#include <stdlib.h>

/* Names of spans outlive the trace: each is kept for the process's life. Under the GIL. */
struct name {
    struct name *next;
    char text[];
};
static struct name *names;

static const char *keep(const char *text)
{
    size_t bytes = strlen(text) + 1;
    for (const struct name *n = names; n; n = n->next)
        if (strcmp(n->text, text) == 0)
            return n->text;
    struct name *fresh = malloc(sizeof *fresh + bytes);
    if (!fresh)
        return NULL;
    memcpy(fresh->text, text, bytes);
    fresh->next = names;
    names = fresh;
    return fresh->text;
}

static PyObject *trace_start(PyObject *module, PyObject *unused)
{
    (void)unused;
    int rc = mr_trace_start(0);
    if (rc < 0)
        return core_fail(PyModule_GetState(module), rc, NULL);
    Py_RETURN_NONE;
}

static PyObject *trace_stop(PyObject *module, PyObject *args)
{
    PyObject *path = NULL;
    uint64_t lost = 0;
    int rc;
    if (!PyArg_ParseTuple(args, "|O&:trace_stop", PyUnicode_FSConverter, &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_trace_stop(path ? PyBytes_AsString(path) : NULL, &lost);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(path);
    return rc < 0 ? core_fail(PyModule_GetState(module), rc, NULL)
                  : PyLong_FromUnsignedLongLong(lost);
}

static PyObject *trace_name(PyObject *module, PyObject *args)
{
    const char *text;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:trace_name", &text))
        return NULL;
    const char *kept = keep(text);
    return kept ? PyLong_FromVoidPtr((void *)kept) : PyErr_NoMemory();
}

static PyObject *trace_time(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(mr_trace_on() ? mr_time_ns() : 0);
}

static PyObject *trace_span(PyObject *module, PyObject *args)
{
    unsigned long long start_ns;
    PyObject *name;
    (void)module;
    if (!PyArg_ParseTuple(args, "OK:trace_span", &name, &start_ns))
        return NULL;
    const char *text = PyLong_AsVoidPtr(name);
    if (PyErr_Occurred())
        return NULL;
    if (text && start_ns)
        mr_trace_span(text, start_ns, mr_time_ns(), NULL, 0);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"trace_start", trace_start, METH_NOARGS, "trace_start(): begins a trace of this process."},
    {"trace_stop", trace_stop, METH_VARARGS,
     "trace_stop(path): ends and writes it; the number of spans that were lost."},
    {"trace_name", trace_name, METH_VARARGS, "trace_name(text): what trace_span() takes."},
    {"trace_time", trace_time, METH_NOARGS, "trace_time(): now in ns; 0: no trace is running."},
    {"trace_span", trace_span, METH_VARARGS,
     "trace_span(name, start_ns): a span of this thread that ends now."},
    {NULL, NULL, 0, NULL}};

int core_trace_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
