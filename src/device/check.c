/* What every call on a device checks first: that there is one, and that this process may use it. */
#include "device/device.h"

int mr_device_check(const struct mr_device *dev, const char *call)
{
    return dev ? mr_device_ready(dev) : mr_error_null(call, "a device");
}

int mr_stream_check(const struct mr_stream *stream, const char *call)
{
    return stream ? mr_device_ready(stream->dev) : mr_error_null(call, "a stream");
}

int mr_event_check(const struct mr_event *event, const char *call)
{
    return event ? mr_device_ready(event->dev) : mr_error_null(call, "an event");
}

int mr_out_check(const void *out, const char *call)
{
    return out ? 0 : mr_error_null(call, "a place for the result");
}
