/* Python's samples into rows of a batch. */
#ifndef MILLRACE_PYTHON_ROWS_H
#define MILLRACE_PYTHON_ROWS_H

#include "view.h"

/* Copies that wait until the GIL is released: of 64 KiB and more. */
struct core_copies {
    int n;
    struct {
        struct core_view view;
        void *to;
        PyObject *object;
    } copy[32];
};

/*
 * Writes a sample: a tuple of leaves, one for each field or, with one field, the leaf itself. Large
 * arrays are put on the list of copies; when that is full, it is emptied.
 * Returns 0, or a negative error with mr_error_set().
 */
int core_row_write(struct core *core, int n_fields, const struct mr_spec field[], PyObject *sample,
                   void *const row[], uint64_t (*dim)[MR_MAX_RANK], struct core_copies *copies);

/* Does the copies without the GIL. */
void core_copies_run(struct core_copies *copies);

/* Gives them up. */
void core_copies_drop(struct core_copies *copies);

#endif
