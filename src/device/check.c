/* What every call on a device checks first: that there is one, and that this process may use it. */
#include "device/device.h"

int mr_device_check(const struct mr_device *dev, const char *call)
{
    return dev ? mr_device_ready(dev) : mr_error_null(call, "a device");
}

int mr_stream_check(const struct mr_stream *stream, const char *call)
{
    if (!stream)
        return mr_error_null(call, "a stream");
    if (mr_stream_is_any(stream))
        return mr_error_set(MR_EMISUSE,
                            "%s: expected a stream, found mr_stream_any(), which stands for all of "
                            "them: events can be recorded in it, batches released in it",
                            call);
    return mr_device_ready(stream->dev);
}

int mr_event_check(const struct mr_event *event, const char *call)
{
    return event ? mr_device_ready(event->dev) : mr_error_null(call, "an event");
}

int mr_out_check(const void *out, const char *call)
{
    return out ? 0 : mr_error_null(call, "a place for the result");
}
