/* Data sets whose samples Python makes. */
#ifndef MILLRACE_PYTHON_SOURCE_H
#define MILLRACE_PYTHON_SOURCE_H

#include "core.h"
#include "lease.h"

/* What a callback set calls. Its Python references belong to the Dataset object. */
struct core_source {
    struct core *core;
    PyInterpreterState *interpreter;
    PyObject *fetch; /* or, of an iterable set, read */
    PyObject *rewind;
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS];
};

/* A Dataset that owns ds, and source with the references in it; NULL: none. Closes both, and
 * returns NULL with an exception, without memory. */
PyObject *core_dataset_wrap(const struct core *core, struct mr_dataset *ds,
                            struct core_source *source);

/* Takes the GIL on any thread; one that Python does not know is the library's. */
PyGILState_STATE core_gil_ensure(void);

/* The library's callbacks, for mr_callback_opts and mr_iterable_opts; user is a core_source. */
int core_source_init(void *user, uint32_t worker, void **state);
void core_source_exit(void *user, uint32_t worker, void *state);
int core_source_run(void *user, uint64_t n, const struct mr_sample_context context[],
                    void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                    int rc[]);
int core_source_read(void *user, const struct mr_sample_context *context, void *const row[],
                     uint64_t (*dim)[MR_MAX_RANK]);
int core_source_rewind(void *user, uint64_t epoch);

#endif
