/*
 * The device vtable. device.c is the front (checks, pool); each back is one file: cpu.c, sim.c.
 */
#ifndef MR_DEVICE_H
#define MR_DEVICE_H

#include "base/base.h"
#include <millrace/device.h>
#include <millrace/options.h>

struct mr_device_ops {
    const char *name;
    const char *summary;
    const struct mr_option *options; /* of the URI; NULL: none */
    size_t opts_size, state_size;
    const char *(*probe)(void); /* NULL: usable; else why not. Required. */
    /* Required, all of these. */
    int (*open)(struct mr_device *dev, const void *opts);
    void (*close)(struct mr_device *dev);
    int (*info)(struct mr_device *dev, struct mr_device_info *out);
    /* Memory straight from the system; pool.c caches it. [out] locked: bytes really page-locked. */
    int (*memory_make)(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out, uint64_t *out_locked);
    void (*memory_drop)(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes);
    int (*stream_open)(struct mr_stream *stream);
    void (*stream_close)(struct mr_stream *stream);
    int (*stream_synchronize)(struct mr_stream *stream);
    int (*event_open)(struct mr_event *event);
    void (*event_close)(struct mr_event *event);
    int (*event_record)(struct mr_event *event, struct mr_stream *stream);
    int (*event_wait)(struct mr_stream *stream, struct mr_event *event);
    int (*event_query)(struct mr_event *event);
    int (*event_synchronize)(struct mr_event *event);
    int (*event_elapsed)(struct mr_event *start, struct mr_event *end, int64_t *out_ns);
    int (*copy_async)(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                      enum mr_memory src_kind, uint64_t bytes);
    int (*launch)(struct mr_stream *stream, const char *kernel, const void *args, size_t arg_bytes);
    size_t stream_size, event_size; /* of stream->state and event->state */
};

struct mr_pool;

struct mr_device {
    const struct mr_device_ops *ops;
    void *state;
    struct mr_pool *pool;
    atomic_bool lock_warned; /* the one warning about page-locking was given */
};

struct mr_stream {
    struct mr_device *dev;
    void *state;
    char name[24];
};

struct mr_event {
    struct mr_device *dev;
    void *state;
    int timing;
};

struct mr_pool *mr_pool_create(struct mr_device *dev);
void mr_pool_destroy(struct mr_pool *pool);
/* The event has passed and goes away: blocks that were released with it are free, and the pool asks it no more. */
void mr_pool_forget(struct mr_pool *pool, const struct mr_event *event);

/*
 * Memory of the host, for backs that have no driver to ask: anonymous pages, touched when kind is MR_PINNED or MR_DEVICE,
 * and locked when it is MR_PINNED.
 * When locking is refused, the memory is given all the same, with one warning a device. bytes: a multiple of 4,096.
 * [out] out, out_locked: on success. Returns 0, -ENOMEM.
 */
int mr_host_memory_make(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out, uint64_t *out_locked);
void mr_host_memory_drop(void *ptr, uint64_t bytes);

/* Sleeps until mr_time_ns() has reached the time; waits of less than 30 us are spun. */
void mr_sleep_until(uint64_t time_ns);

/* The kernel "busy" of mr_launch(). Returns 0, MR_EUNSUPPORTED for another name, MR_EMISUSE for wrong arguments. */
int mr_busy_args(const char *device, const char *kernel, const void *args, size_t arg_bytes, uint64_t *out_ns);

extern const struct mr_device_ops mr_device_cpu, mr_device_sim;

#endif
