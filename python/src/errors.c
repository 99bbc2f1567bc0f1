/* Errors of the library as Python's exceptions. */
#include "core.h"
#include <errno.h>

/* Adds an exception class to the module. */
static PyObject *add_class(PyObject *module, const char *name, const char *doc, PyObject *bases)
{
    char full[64];
    PyOS_snprintf(full, sizeof full, "millrace.%s", name);
    PyObject *class = PyErr_NewExceptionWithDoc(full, doc, bases, NULL);
    if (class && PyModule_AddObjectRef(module, name, class) < 0)
        Py_CLEAR(class);
    return class;
}

int core_errors_init(PyObject *module, struct core *core)
{
    core->error = add_class(module, "Error",
                            "An error of the engine. `code`: its number, one of the MR_E* of "
                            "millrace/error.h.",
                            NULL);
    if (!core->error)
        return -1;
    PyObject *bases = PyTuple_Pack(2, core->error, PyExc_ValueError);
    if (!bases)
        return -1;
    core->format_error =
        add_class(module, "FormatError", "Data that is malformed or truncated.", bases);
    Py_DECREF(bases);
    core->bad_samples =
        add_class(module, "BadSamples", "More bad samples than the loader may skip.", core->error);
    core->cancelled = add_class(module, "Cancelled", "The loader was cancelled.", core->error);
    return core->format_error && core->bad_samples && core->cancelled ? 0 : -1;
}

static PyObject *class_of(const struct core *core, int rc)
{
    switch (rc) {
    case MR_EFORMAT:
    case MR_ETRUNCATED:
        return core->format_error;
    case MR_EBADSAMPLES:
        return core->bad_samples;
    case MR_ECANCELLED:
        return core->cancelled;
    case MR_EOPTION:
    case MR_ESHAPE:
    case MR_ESTATE:
        return PyExc_ValueError;
    case MR_EUNSUPPORTED:
        return PyExc_NotImplementedError;
    case MR_ELIMIT:
    case MR_EDEVICEMEM:
    case -ENOMEM:
        return PyExc_MemoryError;
    case MR_EDEVICE:
    case MR_ENODEVICE:
    case MR_ECALLBACK:
    case MR_EMISUSE:
        return PyExc_RuntimeError;
    default:
        return rc > MR_EFORMAT ? PyExc_OSError : core->error;
    }
}

PyObject *core_fail(const struct core *core, int rc, const char *text)
{
    PyObject *class = class_of(core, rc);
    if (!text)
        text = mr_last_error();
    if (!text[0])
        text = mr_strerror(rc);
    PyObject *shown = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (!shown)
        return NULL;
    PyObject *error = class == PyExc_OSError ? PyObject_CallFunction(class, "iO", -rc, shown)
                                             : PyObject_CallFunctionObjArgs(class, shown, NULL);
    PyObject *code = PyLong_FromLong(rc);
    if (error && code && PyObject_SetAttrString(error, "code", code) == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(code);
    Py_XDECREF(error);
    Py_DECREF(shown);
    return NULL;
}

int core_catch(int rc)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *name = type ? PyObject_GetAttrString(type, "__name__") : NULL;
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *name_text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const char *value_text = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    rc = mr_error_set(rc, "%s%s%s", name_text ? name_text : "an exception",
                      value_text && value_text[0] ? ": " : "", value_text ? value_text : "");
    PyErr_Clear(); /* of a __str__ that failed */
    Py_XDECREF(text);
    Py_XDECREF(name);
    Py_XDECREF(trace);
    Py_XDECREF(value);
    Py_XDECREF(type);
    return rc;
}
