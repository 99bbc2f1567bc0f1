/* Batch and Field objects, and data sets in use. */
#ifndef MILLRACE_PYTHON_FIELD_H
#define MILLRACE_PYTHON_FIELD_H

#include "core.h"
#include "lease.h"

/* What a Field shows of the memory of its lease. */
struct core_field_view {
    void *data;
    struct mr_spec spec;
    int read_only;
    int on_device;
    int text; /* the number of the batch's field that it is; -1: none */
};

/* A Field. It shares the lease. */
PyObject *core_field_create(const struct core *core, struct core_lease *lease,
                            const struct core_field_view *view);

/* A Batch, which takes the lease over (also on failure). */
PyObject *core_batch_create(const struct core *core, struct core_lease *lease);

/* The data set of a Dataset, which cannot be closed until it is given back. NULL: an exception. */
struct mr_dataset *core_dataset_use(PyObject *self);
void core_dataset_unuse(PyObject *self);

/* The sampler of a Sampler. */
struct mr_sampler *core_sampler_get(PyObject *self);

#endif
