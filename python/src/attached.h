/* millrace._core.Attached: batches of a loader in another process. */
#ifndef MILLRACE_PYTHON_ATTACHED_H
#define MILLRACE_PYTHON_ATTACHED_H

#include "core.h"

extern PyType_Spec core_attached_spec;

/* Of Loader: a server of its batches. */
PyObject *core_loader_serve(PyObject *self, PyObject *args, PyObject *named);
PyObject *core_loader_serve_wait(PyObject *self, PyObject *args);
PyObject *core_loader_serve_info(PyObject *self, PyObject *unused);
PyObject *core_loader_serve_cancel(PyObject *self, PyObject *unused);

/* ---- loader.c ---- */

struct core_engine *core_loader_engine(PyObject *self);

/* Seconds, or None, as nanoseconds; UINT64_MAX: no limit. Returns 0, or -1 with an exception. */
int core_timeout_read(PyObject *object, uint64_t *out);

#endif
