/* A latch in front of work on a device. */
#include "bench/latch.h"

#include <string.h>

int latch_check_locked(struct mr_device *dev)
{
    struct mr_memory_counters count = {.size = sizeof count};
    struct mr_device_info info = {.size = sizeof info};
    int rc = mr_device_query(dev, &info);
    mr_memory_query(dev, MR_PINNED, &count);
    if (rc < 0 || !info.pci_id[0] || count.locked_bytes >= count.held_bytes)
        return rc;
    return mr_error_set(
        MR_ELIMIT, "%s: the system refused to page-lock memory; raise RLIMIT_MEMLOCK (ulimit -l)",
        info.name);
}

int latch_create(struct latch *latch, struct mr_device *dev)
{
    void *flag = NULL;
    *latch = (struct latch){.dev = dev};
    int rc = mr_stream_create(dev, "latch", &latch->stream);
    if (rc == 0)
        rc = mr_event_create(dev, 0, &latch->open);
    if (rc == 0)
        rc = mr_memory_acquire(dev, MR_PINNED, 4096, &flag);
    if (rc == 0) {
        latch->flag = flag;
        rc = latch_check_locked(dev);
    }
    if (rc < 0) {
        latch_destroy(latch);
        return rc;
    }
    atomic_store(latch->flag, 1);
    rc = mr_launch(latch->stream, "wait", &flag, sizeof flag); /* loads the kernel, too */
    if (rc == 0)
        rc = mr_stream_synchronize(latch->stream);
    if (rc < 0)
        latch_destroy(latch);
    return rc;
}

void latch_destroy(struct latch *latch)
{
    latch_open(latch);
    mr_event_destroy(latch->open);
    mr_stream_destroy(latch->stream);
    if (latch->flag)
        mr_memory_release(latch->dev, MR_PINNED, (void *)latch->flag, NULL);
    *latch = (struct latch){0};
}

int latch_close(struct latch *latch)
{
    _Atomic uint32_t *flag = latch->flag;
    atomic_store(flag, 0);
    int rc = mr_launch(latch->stream, "wait", &flag, sizeof flag);
    return rc < 0 ? rc : mr_event_record(latch->open, latch->stream);
}

int latch_hold(struct latch *latch, struct mr_stream *stream)
{
    return mr_stream_wait(stream, latch->open);
}

void latch_open(struct latch *latch)
{
    if (latch->flag)
        atomic_store(latch->flag, 1);
}
