/* The front of the devices: which there are, URIs, checks of what callers pass. */
#include "device/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Best first. "auto" takes the first usable one: sim, which is never the best, stands after cpu,
 * which always works. */
static const struct mr_device_ops *const devices[] = {&mr_device_cuda, &mr_device_cpu,
                                                      &mr_device_sim};

const char *mr_memory_name(enum mr_memory kind)
{
    static const char *const names[MR_N_MEMORY] = {"pageable", "pinned", "device"};
    return (unsigned)kind < MR_N_MEMORY ? names[kind] : "unknown";
}

static int check_ops(const struct mr_device_ops *ops)
{
    bool whole = ops->probe && ops->open && ops->close && ops->query && ops->memory_create &&
                 ops->memory_destroy && ops->stream_open && ops->stream_close &&
                 ops->stream_synchronize && ops->event_open && ops->event_close &&
                 ops->event_record && ops->event_record_any && ops->event_wait &&
                 ops->event_query && ops->event_synchronize && ops->event_elapsed &&
                 ops->copy_async && ops->launch && ops->launch_simple && ops->memset_async &&
                 ops->memory_register && ops->memory_unregister;
    if (!whole)
        return mr_error_set(MR_EMISUSE, "device %s: its vtable lacks a required hook", ops->name);
    return 0;
}

static int unknown_device(const char *name, size_t length)
{
    char known[256] = "auto", word[65];
    const char *names[MR_COUNT(devices) + 2] = {"auto"};
    for (size_t i = 0; i < MR_COUNT(devices); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", devices[i]->name);
        names[i + 1] = devices[i]->name;
    }
    snprintf(word, sizeof word, "%.*s", (int)MR_MIN(length, sizeof word - 1), name);
    const char *nearest = mr_nearest(word, names);
    mr_error_set(MR_EOPTION, "device \"%s\": not known to this build; %s%s%sknown are %s", word,
                 nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "",
                 known);
    return MR_EOPTION;
}

static int best_device(const struct mr_device_ops **out)
{
    for (size_t i = 0; i < MR_COUNT(devices); i++) {
        if (devices[i]->probe && !devices[i]->probe()) {
            *out = devices[i];
            return 0;
        }
    }
    return mr_error_set(MR_ENODEVICE,
                        "device auto: none of the devices known to this build is usable here");
}

static int find_device(const char *name, size_t length, const struct mr_device_ops **out)
{
    if (length == 4 && !memcmp(name, "auto", 4))
        return best_device(out);
    if (length == 3 && !memcmp(name, "gpu", 3)) {
        name = "cuda";
        length = 4;
    }
    for (size_t i = 0; i < MR_COUNT(devices); i++) {
        if (strlen(devices[i]->name) == length && !memcmp(devices[i]->name, name, length)) {
            *out = devices[i];
            return 0;
        }
    }
    return unknown_device(name, length);
}

/* text: what follows the ':', or NULL. [out] values: to be freed by mr_options_free and free; NULL
 * without options. */
static int parse_options(const struct mr_device_ops *ops, const char *text, void **out)
{
    char who[80];
    snprintf(who, sizeof who, "%s:", ops->name);
    if (!ops->options) {
        if (text && *text)
            return mr_error_set(MR_EOPTION, "%s%s: the device \"%s\" has no options", who, text,
                                ops->name);
        *out = NULL;
        return 0;
    }
    void *values = calloc(1, ops->opts_size);
    if (!values)
        return mr_error_nomem("device options", ops->opts_size);
    int rc = mr_options_init(ops->options, values);
    if (rc < 0)
        goto fail;
    if (text && *text)
        rc = mr_options_parse(ops->options, values, who, text, ops->positional);
    if (rc < 0)
        goto fail;
    *out = values;
    return 0;
fail:
    mr_options_free(ops->options, values);
    free(values);
    return rc;
}

static int open_with(const struct mr_device_ops *ops, const void *opts, struct mr_device **out)
{
    struct mr_device *dev = calloc(1, sizeof *dev);
    if (!dev)
        return mr_error_nomem("device", sizeof *dev);
    int rc = -ENOMEM;
    mr_process_note(&dev->process);
    mr_any_init(dev);
    dev->ops = ops;
    dev->state = calloc(1, MR_MAX(ops->state_size, (size_t)1));
    if (!dev->state) {
        mr_error_nomem("device state", ops->state_size);
        goto free_device;
    }
    dev->pool = mr_pool_create(dev);
    if (!dev->pool)
        goto free_state;
    rc = ops->open(dev, opts);
    if (rc < 0)
        goto free_pool;
    *out = dev;
    return 0;
free_pool:
    mr_pool_destroy(dev->pool);
free_state:
    free(dev->state);
free_device:
    mr_any_destroy(dev);
    free(dev);
    return rc;
}

int mr_device_open(const char *uri, struct mr_device **out)
{
    if (!uri || !out)
        return mr_error_set(MR_EMISUSE, "mr_device_open: uri and out must not be NULL");
    const char *colon = strchr(uri, ':');
    bool is_auto = !strncmp(uri, "auto:", 5);
    if (is_auto)
        return mr_error_set(MR_EOPTION, "%s: \"auto\" takes no options; name the device", uri);
    const struct mr_device_ops *ops = NULL;
    int rc = find_device(uri, colon ? (size_t)(colon - uri) : strlen(uri), &ops);
    if (!ops)
        return rc;
    const char *why_not = ops->probe ? ops->probe() : NULL;
    if (why_not)
        return mr_error_set(MR_ENODEVICE, "device %s: not usable here: %s", ops->name, why_not);
    rc = check_ops(ops);
    if (rc < 0)
        return rc;
    void *opts = NULL;
    rc = parse_options(ops, colon ? colon + 1 : NULL, &opts);
    if (rc < 0)
        return rc;
    rc = open_with(ops, opts, out);
    if (opts)
        mr_options_free(ops->options, opts);
    free(opts);
    return rc;
}

void mr_device_close(struct mr_device *dev)
{
    if (!dev || mr_device_ready(dev) < 0) /* nothing of it is this process's own */
        return;
    mr_any_destroy(dev);
    mr_pool_destroy(dev->pool);
    dev->ops->close(dev);
    free(dev->state);
    free(dev);
}

int mr_device_query(struct mr_device *dev, struct mr_device_info *out)
{
    struct mr_device_info info = {.numa_node = -1};
    int rc = mr_device_check(dev, "mr_device_query");
    if (rc < 0)
        return rc;
    rc = mr_info_check("device_info", out, sizeof info);
    if (rc < 0)
        return rc;
    snprintf(info.name, sizeof info.name, "%s", dev->ops->name);
    rc = dev->ops->query(dev, &info);
    if (rc < 0)
        return rc;
    return mr_info_give("device_info", out, &info, sizeof info);
}

int mr_device_processes(struct mr_device *dev, struct mr_device_process *out, int max)
{
    if (!dev || max < 0 || (max && !out))
        return mr_error_set(
            MR_EMISUSE,
            "mr_device_processes: expected a device, and an array for max > 0 processes");
    if (!dev->ops->processes)
        return mr_error_set(MR_EUNSUPPORTED, "device %s: it cannot list the processes that use it",
                            dev->ops->name);
    return dev->ops->processes(dev, out, max);
}

int mr_device_each(int (*fn)(void *user, const char *name, const char *summary,
                             const char *why_not),
                   void *user)
{
    if (!fn)
        return mr_error_set(MR_EMISUSE, "mr_device_each: expected a function, found NULL");
    for (size_t i = 0; i < MR_COUNT(devices); i++) {
        int rc = fn(user, devices[i]->name, devices[i]->summary, devices[i]->probe());
        if (rc)
            return rc;
    }
    return 0;
}

void *mr_device_object(size_t object_bytes, size_t state_bytes, void **out_state)
{
    size_t at = mr_round_up(object_bytes, _Alignof(max_align_t));
    char *object = calloc(1, at + state_bytes);
    if (!object)
        return NULL;
    *out_state = object + at;
    return object;
}

int mr_stream_create(struct mr_device *dev, const char *name, struct mr_stream **out)
{
    void *state = NULL;
    int rc = mr_device_check(dev, "mr_stream_create");
    if (rc < 0)
        return rc;
    rc = mr_out_check(out, "mr_stream_create");
    if (rc < 0)
        return rc;
    struct mr_stream *stream = mr_device_object(sizeof *stream, dev->ops->stream_size, &state);
    if (!stream)
        return mr_error_nomem("stream", sizeof *stream + dev->ops->stream_size);
    stream->dev = dev;
    stream->state = state;
    snprintf(stream->name, sizeof stream->name, "%s", name ? name : "");
    rc = dev->ops->stream_open(stream);
    if (rc < 0) {
        free(stream);
        return rc;
    }
    *out = stream;
    return 0;
}

void mr_stream_destroy(struct mr_stream *stream)
{
    if (!stream || mr_stream_is_any(stream)) /* that is the device's */
        return;
    if (mr_device_ready(stream->dev) < 0) {
        free(stream);
        return;
    }
    if (atomic_load(&stream->recording))
        mr_graph_end(stream, NULL);
    if (!stream->borrowed)
        stream->dev->ops->stream_close(stream);
    free(stream);
}

static int synchronize_any(struct mr_device *dev)
{
    struct mr_event *event;
    int rc = mr_event_create(dev, 0, &event);
    if (rc < 0)
        return rc;
    rc = mr_any_record(event);
    if (rc >= 0)
        rc = mr_event_synchronize(event);
    mr_event_destroy(event);
    return rc;
}

int mr_stream_synchronize(struct mr_stream *stream)
{
    if (!stream)
        return mr_error_null("mr_stream_synchronize", "a stream");
    if (mr_stream_is_any(stream))
        return synchronize_any(stream->dev);
    int rc = mr_stream_check(stream, "mr_stream_synchronize");
    if (rc < 0)
        return rc;
    rc = mr_stream_check_live(stream, "mr_stream_synchronize");
    return rc < 0 ? rc : stream->dev->ops->stream_synchronize(stream);
}

int mr_event_create(struct mr_device *dev, int timing, struct mr_event **out)
{
    void *state = NULL;
    int rc = mr_device_check(dev, "mr_event_create");
    if (rc < 0)
        return rc;
    rc = mr_out_check(out, "mr_event_create");
    if (rc < 0)
        return rc;
    struct mr_event *event = mr_device_object(sizeof *event, dev->ops->event_size, &state);
    if (!event)
        return mr_error_nomem("event", sizeof *event + dev->ops->event_size);
    event->dev = dev;
    event->state = state;
    event->timing = timing != 0;
    rc = dev->ops->event_open(event);
    if (rc < 0) {
        free(event);
        return rc;
    }
    *out = event;
    return 0;
}

void mr_event_destroy(struct mr_event *event)
{
    if (!event)
        return;
    if (mr_device_ready(event->dev) < 0) {
        free(event);
        return;
    }
    if (!event->borrowed || mr_pool_waits(event->dev->pool, event)) {
        event->dev->ops->event_synchronize(event);
        mr_pool_forget(event->dev->pool, event);
    }
    if (!event->borrowed)
        event->dev->ops->event_close(event);
    free(event);
}

static int check_record(const struct mr_stream *stream, const struct mr_event *event)
{
    if (!stream)
        return mr_error_null("mr_event_record", "a stream");
    bool any = mr_stream_is_any(stream);
    int rc = any ? mr_device_ready(stream->dev) : mr_stream_check(stream, "mr_event_record");
    if (rc < 0)
        return rc;
    rc = mr_event_check(event, "mr_event_record");
    if (rc < 0)
        return rc;
    if (stream->dev != event->dev)
        return mr_error_set(MR_EMISUSE, "stream \"%s\" and the event belong to different devices",
                            stream->name);
    return mr_stream_check_live(stream, "mr_event_record");
}

/* An event of another device will do, if one driver knows both. */
static int check_wait(const struct mr_stream *stream, const struct mr_event *event)
{
    int rc = mr_stream_check(stream, "mr_stream_wait");
    if (rc < 0)
        return rc;
    rc = mr_event_check(event, "mr_stream_wait");
    if (rc < 0)
        return rc;
    if (event->dev->ops == stream->dev->ops)
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "mr_stream_wait: stream \"%s\" is of device %s and the event of device "
                        "%s: expected devices of one kind",
                        stream->name, stream->dev->ops->name, event->dev->ops->name);
}

int mr_event_record(struct mr_event *event, struct mr_stream *stream)
{
    int rc = check_record(stream, event);
    if (rc < 0)
        return rc;
    return mr_stream_is_any(stream) ? mr_any_record(event)
                                    : event->dev->ops->event_record(event, stream);
}

int mr_stream_wait(struct mr_stream *stream, struct mr_event *event)
{
    int rc = check_wait(stream, event);
    if (rc < 0)
        return rc;
    rc = mr_stream_check_live(stream, "mr_stream_wait");
    return rc < 0 ? rc : event->dev->ops->event_wait(stream, event);
}

int mr_event_query(struct mr_event *event)
{
    int rc = mr_event_check(event, "mr_event_query");
    return rc < 0 ? rc : event->dev->ops->event_query(event);
}

int mr_event_synchronize(struct mr_event *event)
{
    int rc = mr_event_check(event, "mr_event_synchronize");
    return rc < 0 ? rc : event->dev->ops->event_synchronize(event);
}

int mr_event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns)
{
    int rc = mr_event_check(start, "mr_event_elapsed");
    if (rc < 0)
        return rc;
    rc = mr_event_check(end, "mr_event_elapsed");
    if (rc < 0)
        return rc;
    rc = mr_out_check(out_ns, "mr_event_elapsed");
    if (rc < 0)
        return rc;
    if (start->dev != end->dev)
        return mr_error_set(MR_EMISUSE, "mr_event_elapsed: the events belong to different devices");
    if (!start->timing || !end->timing)
        return mr_error_set(MR_EMISUSE,
                            "mr_event_elapsed: both events must be created with timing");
    return start->dev->ops->event_elapsed(start, end, out_ns);
}

int mr_memory_register(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    int rc = mr_device_check(dev, "mr_memory_register");
    if (rc < 0)
        return rc;
    if (!ptr || !bytes)
        return mr_error_set(MR_EMISUSE, "mr_memory_register: expected memory of at least one byte");
    return dev->ops->memory_register(dev, ptr, bytes);
}

int mr_memory_unregister(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    int rc = mr_device_check(dev, "mr_memory_unregister");
    if (rc < 0)
        return rc;
    if (!ptr || !bytes)
        return mr_error_set(MR_EMISUSE,
                            "mr_memory_unregister: expected memory of at least one byte");
    return dev->ops->memory_unregister(dev, ptr, bytes);
}

int mr_memory_make(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out)
{
    int rc = mr_device_check(dev, "mr_memory_make");
    if (rc < 0)
        return rc;
    if (!bytes || !out || flags > MR_MAKE_WRITE_COMBINED)
        return mr_error_set(MR_EMISUSE,
                            "mr_memory_make: expected at least one byte and no other flags");
    if (!dev->ops->host_create)
        return mr_error_set(MR_EUNSUPPORTED,
                            "device %s: it has no allocator of its own for host memory",
                            dev->ops->name);
    return dev->ops->host_create(dev, flags, bytes, out);
}

void mr_memory_unmake(struct mr_device *dev, void *ptr)
{
    if (dev && ptr && dev->ops->host_destroy)
        dev->ops->host_destroy(dev, ptr);
}
