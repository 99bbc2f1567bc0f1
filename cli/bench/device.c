/* The device of an experiment. */
#include "bench/bench.h"

#include <string.h>

int bench_go_on(void)
{
    return cli_interrupted() ? mr_error_set(MR_ECANCELLED, "interrupted") : 0;
}

int bench_acquire(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out)
{
    mr_interruptible(1);
    int rc = mr_memory_acquire(dev, kind, bytes, out);
    mr_interruptible(0);
    return rc;
}

int bench_fill(void *to, const void *from, uint64_t bytes)
{
    enum { PIECE = 16 << 20 };
    int rc = 0;
    for (uint64_t at = 0; at < bytes && rc == 0; at += PIECE) {
        const uint64_t n = bytes - at < PIECE ? bytes - at : PIECE;
        if (from)
            memcpy((char *)to + at, (const char *)from + at, n);
        else
            memset((char *)to + at, 1, n);
        rc = bench_go_on();
    }
    return rc;
}

int bench_open(const char *uri, bool copies, struct mr_device **out, struct mr_device_info *info)
{
    struct mr_device_info own = {.size = sizeof own};
    if (!info)
        info = &own;
    info->size = sizeof *info;
    int rc = mr_device_open(uri, out);
    if (rc < 0)
        return cli_error(rc);
    rc = mr_device_query(*out, info);
    if (rc == 0 && (!copies || !info->unified))
        return CLI_OK;
    mr_device_close(*out);
    *out = NULL;
    return rc < 0                     ? cli_error(rc)
           : strcmp(uri, "auto") == 0 ? cli_misuse("no usable GPU was found (millrace doctor says "
                                                   "why); --device sim simulates one")
                                      : cli_misuse("--device %s: its memory is the host's, so "
                                                   "nothing is copied; give --device cuda or sim",
                                                   uri);
}
