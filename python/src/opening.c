/* Opening the engine of a Loader: options, transform and device. */
#include "opening.h"

static int set_option(const struct core *core, struct mr_loader_opts *opts, PyObject *name,
                      PyObject *value)
{
    if (value == Py_None)
        return 0;
    const char *name_text = PyUnicode_AsUTF8AndSize(name, NULL);
    PyObject *text = !name_text            ? NULL
                     : PyBool_Check(value) ? PyUnicode_FromString(value == Py_True ? "1" : "0")
                                           : PyObject_Str(value);
    const char *value_text = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int rc = -1;
    if (value_text) {
        rc = mr_options_set(mr_loader_options(), opts, "loader:", name_text, value_text);
        if (rc < 0)
            core_fail(core, rc, NULL);
    }
    Py_XDECREF(text);
    return rc;
}

int core_options_set(const struct core *core, struct mr_loader_opts *opts, PyObject *options)
{
    PyObject *items = PyMapping_Items(options);
    Py_ssize_t n = items ? PyList_Size(items) : -1;
    int rc = n < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
        PyObject *pair = PyList_GetItem(items, i);
        rc = set_option(core, opts, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    }
    Py_XDECREF(items);
    return rc;
}

int core_engine_open(const struct core_parts *parts, struct mr_transform **chain,
                     struct core_engine **out)
{
    struct core_device *device = NULL;
    struct mr_loader *loader = NULL;
    int rc = 0;
    if (parts->transform && parts->transform[0]) {
        rc = mr_transform_create(chain);
        if (rc == 0)
            rc = mr_transform_add(*chain, parts->transform);
    }
    if (rc == 0 && parts->device && strcmp(parts->device, "cpu") != 0)
        rc = core_device_get(parts->device, &device);
    if (rc == 0)
        rc = mr_loader_open(parts->ds, parts->sampler, *chain, core_device_of(device), &parts->opts,
                            &loader);
    if (rc < 0) {
        core_device_put(device);
        return rc;
    }
    *out = core_engine_create(loader, device);
    return *out ? 0 : mr_error_set(MR_EMISUSE, "loader: the interpreter is ending");
}
