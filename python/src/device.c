/* Devices by name, shared by the loaders that use them; wrappers of other libraries' streams. */
#include "lease.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct stream {
    void *native;
    struct mr_stream *wrapper;
};

struct core_device {
    unsigned refs; /* under the lock, as all of this is */
    pid_t pid;     /* whose it is */
    struct mr_device *device;
    int ordinal; /* of the GPU; -1: device memory is host memory */
    struct stream *streams;
    size_t n_streams;
    struct core_device *next;
    char uri[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_device *devices;

/* A child has none of its parent's devices, and perhaps a copy of a lock that was held. */
static void begin_child(void)
{
    pthread_mutex_init(&lock, NULL);
    devices = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, begin_child);
}

static struct core_device *find(const char *uri)
{
    struct core_device *device = devices;
    while (device && strcmp(device->uri, uri) != 0)
        device = device->next;
    return device;
}

static int open_one(const char *uri, struct core_device **out)
{
    size_t n = strlen(uri) + 1;
    struct core_device *device = calloc(1, sizeof *device + n);
    if (!device)
        return mr_error_set(-ENOMEM, "device %s: out of memory", uri);
    memcpy(device->uri, uri, n);
    device->pid = getpid();
    struct mr_device_info info = {.size = sizeof info};
    int rc = mr_device_open(uri, &device->device);
    if (rc == 0)
        rc = mr_device_query(device->device, &info);
    if (rc < 0) {
        mr_device_close(device->device);
        free(device);
        return rc;
    }
    device->ordinal = info.unified || info.simulated ? -1 : info.ordinal;
    device->next = devices;
    devices = device;
    *out = device;
    return 0;
}

int core_device_get(const char *uri, struct core_device **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    int rc = 0;
    pthread_mutex_lock(&lock);
    struct core_device *device = find(uri);
    if (!device)
        rc = open_one(uri, &device);
    if (rc == 0) {
        device->refs++;
        *out = device;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

struct core_device *core_device_share(struct core_device *device)
{
    if (device) {
        pthread_mutex_lock(&lock);
        device->refs++;
        pthread_mutex_unlock(&lock);
    }
    return device;
}

static void unlink_one(struct core_device *device)
{
    struct core_device **at = &devices;
    while (*at != device)
        at = &(*at)->next;
    *at = device->next;
}

void core_device_put(struct core_device *device)
{
    if (!device || device->pid != getpid())
        return;
    pthread_mutex_lock(&lock);
    unsigned refs = --device->refs;
    if (refs == 0)
        unlink_one(device);
    pthread_mutex_unlock(&lock);
    if (refs > 0)
        return;
    for (size_t i = 0; i < device->n_streams; i++)
        mr_stream_destroy(device->streams[i].wrapper);
    mr_device_close(device->device);
    free(device->streams);
    free(device);
}

struct mr_device *core_device_of(struct core_device *device)
{
    return device ? device->device : NULL;
}

int core_device_ordinal(const struct core_device *device)
{
    return device ? device->ordinal : -1;
}

static int wrap(struct core_device *device, void *native, struct mr_stream **out)
{
    struct stream *more =
        realloc(device->streams, (device->n_streams + 1) * sizeof *device->streams);
    if (!more)
        return mr_error_set(-ENOMEM, "device %s: out of memory", device->uri);
    device->streams = more;
    int rc = mr_stream_wrap(device->device, native, out);
    if (rc == 0)
        more[device->n_streams++] = (struct stream){native, *out};
    return rc;
}

int core_device_stream(struct core_device *device, void *native, struct mr_stream **out)
{
    if (native == (void *)1) /* another name of the legacy default stream */
        native = NULL;
    int rc = 0;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < device->n_streams && device->streams[i].native != native)
        i++;
    if (i < device->n_streams)
        *out = device->streams[i].wrapper;
    else
        rc = wrap(device, native, out);
    pthread_mutex_unlock(&lock);
    return rc;
}

int core_device_order(struct core_device *device, struct mr_stream *earlier,
                      struct mr_stream *later)
{
    struct mr_event *event;
    int rc = mr_event_create(device->device, 0, &event);
    if (rc < 0)
        return rc;
    rc = mr_event_record(event, earlier);
    if (rc == 0)
        rc = mr_stream_wait(later, event);
    mr_event_destroy(event);
    return rc;
}
