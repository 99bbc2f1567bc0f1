/* Streams and events of other libraries, and the native ones behind ours. */
#include "device/device.h"

static int no_native(const struct mr_device *dev, const char *call, const char *instead)
{
    return mr_error_set(MR_EUNSUPPORTED, "%s: device %s has no native streams and events%s", call,
                        dev->ops->name, instead);
}

int mr_stream_wrap(struct mr_device *dev, void *native, struct mr_stream **out)
{
    void *state = NULL;
    if (!dev || !out)
        return mr_error_set(MR_EMISUSE, "mr_stream_wrap: dev and out must not be NULL");
    if (!dev->ops->stream_wrap)
        return no_native(dev, "mr_stream_wrap", ": use mr_stream_create()");
    struct mr_stream *stream = mr_device_object(sizeof *stream, dev->ops->stream_size, &state);
    if (!stream)
        return mr_error_nomem("stream", sizeof *stream + dev->ops->stream_size);
    stream->dev = dev;
    stream->state = state;
    stream->borrowed = true;
    snprintf(stream->name, sizeof stream->name, "wrapped %p", native);
    int rc = dev->ops->stream_wrap(stream, native);
    if (rc < 0) {
        free(stream);
        return rc;
    }
    *out = stream;
    return 0;
}

int mr_stream_native(struct mr_stream *stream, void **out)
{
    if (!stream || !out)
        return mr_error_set(MR_EMISUSE, "mr_stream_native: stream and out must not be NULL");
    if (mr_stream_is_any(stream))
        return mr_stream_check(stream, "mr_stream_native");
    if (!stream->dev->ops->stream_native)
        return no_native(stream->dev, "mr_stream_native", "");
    *out = stream->dev->ops->stream_native(stream);
    return 0;
}

int mr_event_wrap(struct mr_device *dev, void *native, int timing, struct mr_event **out)
{
    void *state = NULL;
    if (!dev || !out)
        return mr_error_set(MR_EMISUSE, "mr_event_wrap: dev and out must not be NULL");
    if (!dev->ops->event_wrap)
        return no_native(dev, "mr_event_wrap", ": use mr_event_create()");
    if (!native)
        return mr_error_set(MR_EMISUSE, "mr_event_wrap: expected an event, found NULL");
    struct mr_event *event = mr_device_object(sizeof *event, dev->ops->event_size, &state);
    if (!event)
        return mr_error_nomem("event", sizeof *event + dev->ops->event_size);
    event->dev = dev;
    event->state = state;
    event->timing = timing != 0;
    event->borrowed = true;
    int rc = dev->ops->event_wrap(event, native);
    if (rc < 0) {
        free(event);
        return rc;
    }
    *out = event;
    return 0;
}

int mr_event_native(struct mr_event *event, void **out)
{
    if (!event || !out)
        return mr_error_set(MR_EMISUSE, "mr_event_native: event and out must not be NULL");
    if (!event->dev->ops->event_native)
        return no_native(event->dev, "mr_event_native", "");
    *out = event->dev->ops->event_native(event);
    return 0;
}
