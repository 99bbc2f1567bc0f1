/* Fields as DLPack tensors of other libraries. */
#ifndef MILLRACE_PYTHON_TENSOR_H
#define MILLRACE_PYTHON_TENSOR_H

#include "field.h"

/* What a Field is made of. */
struct core_field {
    PyObject_HEAD struct core_lease *lease;
    struct core_field_view view;
    uint64_t bytes;
    Py_ssize_t shape[MR_MAX_RANK], strides[MR_MAX_RANK]; /* strides in bytes */
};

/* Where a Field's bytes are: DLPack's device. */
void core_field_device(const struct core_field *field, int *type, int *id);

/* __dlpack__ */
PyObject *core_field_dlpack(PyObject *self, PyObject *args, PyObject *named);
/* capsule() */
PyObject *core_field_capsule(PyObject *self, PyObject *unused);

#endif
