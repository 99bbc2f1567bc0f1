/* Worker processes that make Python's samples. */
#ifndef MILLRACE_PYTHON_WORKERS_H
#define MILLRACE_PYTHON_WORKERS_H

#include "source.h"

/* mr_workers_opts.start; user is a core_source, whose fetch is start(worker, fd) -> pid. */
int core_workers_start(void *user, uint32_t worker, int fd, int64_t *out_pid);

/* Functions of the module: worker_run(fd, fields, fetch, copied), workers_end(). */
PyObject *core_worker_run(PyObject *module, PyObject *args);
PyObject *core_workers_end(PyObject *module, PyObject *unused);

#endif
