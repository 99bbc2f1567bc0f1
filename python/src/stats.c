/* A loader's statistics as a dict: names as in struct mr_loader_stats. */
#include "stats.h"
#include <stddef.h>

static const struct {
    const char *name;
    size_t offset;
} counts[] = {
#define X(name)                                                                                    \
    {                                                                                              \
#name, offsetof(struct mr_loader_stats, name)                                              \
    }
    X(samples),          X(batches),         X(bytes),         X(bad_samples),
    X(read_bytes),       X(reads),           X(elapsed_ns),    X(first_batch_ns),
    X(read_ahead),       X(read_latency_ns), X(worker_ns),     X(consumer_wait_ns),
    X(consumer_busy_ns), X(warm_samples),    X(warm_ns),       X(copy_ns),
    X(copied_bytes),     X(gpu_decoded),     X(gpu_refused),   X(timed_batches),
    X(timed_copy_ns),    X(timed_use_ns),    X(timed_both_ns), X(used_batches),
    X(used_ns),          X(pageable_bytes),  X(pinned_bytes),  X(device_bytes),
    X(cache_bytes),      X(budget_wait_ns)
#undef X
};

static const struct {
    const char *name;
    size_t offset;
} rates[] = {
#define X(name)                                                                                    \
    {                                                                                              \
#name, offsetof(struct mr_loader_stats, name)                                              \
    }
    X(gpu_decode), X(cpu_decode_rate), X(gpu_decode_rate), X(ready_mean), X(reads_in_flight_mean)
#undef X
};

/* Puts a value, which it takes over, into a dict. Returns 0, or -1 with an exception. */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    int rc = value ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return rc;
}

static int put_numbers(PyObject *dict, const struct mr_loader_stats *stats)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof counts / sizeof counts[0]; i++) {
        uint64_t value;
        memcpy(&value, (const char *)stats + counts[i].offset, sizeof value);
        rc = put(dict, counts[i].name, PyLong_FromUnsignedLongLong(value));
    }
    for (size_t i = 0; rc == 0 && i < sizeof rates / sizeof rates[0]; i++) {
        double value;
        memcpy(&value, (const char *)stats + rates[i].offset, sizeof value);
        rc = put(dict, rates[i].name, PyFloat_FromDouble(value));
    }
    if (rc == 0)
        rc = put(dict, "workers", PyLong_FromUnsignedLong(stats->workers));
    if (rc == 0)
        rc = put(dict, "prefetch", PyLong_FromUnsignedLong(stats->prefetch));
    return rc < 0 ? rc : put(dict, "queue_depth", PyLong_FromUnsignedLong(stats->queue_depth));
}

static int put_texts(PyObject *dict, const struct mr_loader_stats *stats)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"gds", stats->gds},
                 {"direct_refused", stats->direct_refused},
                 {"storage", stats->storage},
                 {"gpu_why_not", stats->gpu_why_not},
                 {"device_ops", stats->device_ops},
                 {"bottleneck", stats->bottleneck},
                 {"reason", stats->reason}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof texts / sizeof texts[0]; i++)
        rc = put(dict, texts[i].name, Py_BuildValue("z", texts[i].text));
    return rc;
}

static PyObject *percentiles(const struct mr_percentiles *p)
{
    return Py_BuildValue("{sKsKsKsKsK}", "n", (unsigned long long)p->n, "p50_ns",
                         (unsigned long long)p->p50_ns, "p95_ns", (unsigned long long)p->p95_ns,
                         "p99_ns", (unsigned long long)p->p99_ns, "max_ns",
                         (unsigned long long)p->max_ns);
}

static int put_rest(PyObject *dict, const struct mr_loader_stats *stats)
{
    PyObject *stages = PyDict_New();
    int rc = stages ? 0 : -1;
    for (int s = 0; rc == 0 && s < MR_N_STAGES; s++)
        rc = put(stages, mr_stage_name((enum mr_stage)s),
                 PyLong_FromUnsignedLongLong(stats->stage_ns[s]));
    if (rc < 0) {
        Py_XDECREF(stages);
        return rc;
    }
    rc = put(dict, "stage_ns", stages);
    if (rc == 0)
        rc = put(dict, "interval", percentiles(&stats->interval));
    if (rc == 0)
        rc = put(dict, "wait", percentiles(&stats->wait));
    return rc < 0 ? rc : put(dict, "make", percentiles(&stats->make));
}

PyObject *core_stats_make(const struct core *core, struct mr_loader *loader)
{
    struct mr_loader_stats stats = {.size = sizeof stats};
    int rc = mr_loader_stats(loader, &stats);
    if (rc < 0)
        return core_fail(core, rc, NULL);
    PyObject *dict = PyDict_New();
    if (dict && (put_numbers(dict, &stats) < 0 || put_texts(dict, &stats) < 0 ||
                 put_rest(dict, &stats) < 0))
        Py_CLEAR(dict);
    return dict;
}
