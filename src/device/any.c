/*
 * The stream that stands for all streams of a device, those of other libraries too.
 *
 * An event recorded in it passes when all work that was enqueued to the device until then is done.
 * A GPU's driver cannot record such an event while a stream is being captured: it would end the
 * capture with an error. No call tells whether a library captures, so programs announce it, and
 * what would record an event is deferred to the end of the last capture.
 */
#include "device/device.h"

void mr_any_init(struct mr_device *dev)
{
    struct mr_any *any = &dev->any;
    any->stream.dev = dev;
    any->stream.borrowed = true;
    snprintf(any->stream.name, sizeof any->stream.name, "any");
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&any->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

static void run_all(struct mr_deferred *first)
{
    while (first) {
        struct mr_deferred *next = first->next;
        first->run(first);
        first = next;
    }
}

void mr_any_destroy(struct mr_device *dev)
{
    dev->any.n_captures = 0; /* who closes the device has ended them */
    run_all(dev->any.deferred);
    pthread_mutex_destroy(&dev->any.lock);
}

struct mr_stream *mr_stream_any(struct mr_device *dev)
{
    return dev ? &dev->any.stream : NULL;
}

int mr_any_record(struct mr_event *event)
{
    struct mr_any *any = &event->dev->any;
    pthread_mutex_lock(&any->lock);
    int rc =
        any->n_captures > 0
            ? mr_error_set(MR_EMISUSE, "mr_event_record: a stream of the device is being captured "
                                       "(mr_device_capture_begin()): record it after the capture")
            : event->dev->ops->event_record_any(event);
    pthread_mutex_unlock(&any->lock);
    return rc;
}

bool mr_any_enter(struct mr_device *dev, struct mr_deferred *later)
{
    struct mr_any *any = &dev->any;
    pthread_mutex_lock(&any->lock);
    if (any->n_captures == 0)
        return true;
    later->next = any->deferred;
    any->deferred = later;
    pthread_mutex_unlock(&any->lock);
    return false;
}

void mr_any_leave(struct mr_device *dev)
{
    pthread_mutex_unlock(&dev->any.lock);
}

int mr_device_capture_begin(struct mr_device *dev)
{
    int rc = mr_device_check(dev, "mr_device_capture_begin");
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&dev->any.lock);
    dev->any.n_captures++;
    pthread_mutex_unlock(&dev->any.lock);
    return 0;
}

int mr_device_capture_end(struct mr_device *dev)
{
    int rc = mr_device_check(dev, "mr_device_capture_end");
    if (rc < 0)
        return rc;
    struct mr_any *any = &dev->any;
    struct mr_deferred *deferred = NULL;
    pthread_mutex_lock(&any->lock);
    bool begun = any->n_captures > 0;
    if (begun && --any->n_captures == 0) {
        deferred = any->deferred;
        any->deferred = NULL;
    }
    pthread_mutex_unlock(&any->lock);
    run_all(deferred);
    return begun ? 0
                 : mr_error_set(MR_EMISUSE, "mr_device_capture_end: expected a capture that "
                                            "mr_device_capture_begin() announced, found none");
}
