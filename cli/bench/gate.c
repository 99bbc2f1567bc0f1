/* A gate in front of work on a device. */
#include "bench/gate.h"

#include <string.h>

int gate_check_locked(struct mr_device *dev)
{
    struct mr_memory_counters count;
    struct mr_device_info info;
    int rc = mr_device_query(dev, &info);
    mr_memory_query(dev, MR_PINNED, &count);
    if (rc < 0 || !info.pci_id[0] || count.locked_bytes >= count.held_bytes)
        return rc;
    return mr_error_set(MR_ELIMIT, "%s: the system refused to page-lock memory; raise RLIMIT_MEMLOCK (ulimit -l)",
                        info.name);
}

int gate_make(struct gate *gate, struct mr_device *dev)
{
    void *flag = NULL;
    *gate = (struct gate){.dev = dev};
    int rc = mr_stream_create(dev, "gate", &gate->stream);
    if (rc == 0)
        rc = mr_event_create(dev, 0, &gate->open);
    if (rc == 0)
        rc = mr_memory_acquire(dev, MR_PINNED, 4096, &flag);
    if (rc == 0) {
        gate->flag = flag;
        rc = gate_check_locked(dev);
    }
    if (rc < 0) {
        gate_drop(gate);
        return rc;
    }
    atomic_store(gate->flag, 1);
    rc = mr_launch(gate->stream, "wait", &flag, sizeof flag); /* loads the kernel, too */
    if (rc == 0)
        rc = mr_stream_synchronize(gate->stream);
    if (rc < 0)
        gate_drop(gate);
    return rc;
}

void gate_drop(struct gate *gate)
{
    gate_open(gate);
    mr_event_destroy(gate->open);
    mr_stream_destroy(gate->stream);
    if (gate->flag)
        mr_memory_release(gate->dev, MR_PINNED, (void *)gate->flag, NULL);
    *gate = (struct gate){0};
}

int gate_close(struct gate *gate)
{
    _Atomic uint32_t *flag = gate->flag;
    atomic_store(flag, 0);
    int rc = mr_launch(gate->stream, "wait", &flag, sizeof flag);
    return rc < 0 ? rc : mr_event_record(gate->open, gate->stream);
}

int gate_hold(struct gate *gate, struct mr_stream *stream)
{
    return mr_stream_wait(stream, gate->open);
}

void gate_open(struct gate *gate)
{
    if (gate->flag)
        atomic_store(gate->flag, 1);
}
