/* What a Loader is opened from. */
#ifndef CORE_OPENING_H
#define CORE_OPENING_H

#include "field.h"

struct core_parts {
    struct mr_dataset *ds;
    struct mr_sampler *sampler;
    const char *transform, *device;
    struct mr_loader_opts opts;
};

/* Sets options from a mapping of names to values. Returns 0, or -1 with an exception. */
int core_options_set(const struct core *core, struct mr_loader_opts *opts, PyObject *options);
/* Opens all but the data set, without the GIL. Returns 0 or a negative error of millrace. */
int core_engine_open(const struct core_parts *parts, struct mr_transform **chain,
                     struct core_engine **out);

#endif
