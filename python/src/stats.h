/* A loader's statistics as a dict. */
#ifndef MILLRACE_PYTHON_STATS_H
#define MILLRACE_PYTHON_STATS_H

#include "core.h"

PyObject *core_stats_make(const struct core *core, struct mr_loader *loader);

#endif
