/* The kernels "wait" and "copy", as every device that has them must run them: for tests with and
 * without a GPU. */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include <millrace/millrace.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

struct kernels_parts {
    struct mr_stream *stream;
    struct mr_event *event;
    void *flag, *host, *far;
};

#define KERNELS_BYTES 100003 /* whole vectors and a rest */

/* Copies to the device and back behind a gate: nothing passes before the flag is set, and then the
 * bytes are the same. */
static inline const char *kernels_run(const struct kernels_parts *p)
{
    unsigned char *from = p->host, *back = from + (1 << 17);
    struct mr_kernel_copy to_device = {p->far, from, KERNELS_BYTES},
                          to_host = {back, p->far, KERNELS_BYTES};
    _Atomic uint32_t *flag = p->flag;
    for (int i = 0; i < KERNELS_BYTES; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    memset(back, 0, KERNELS_BYTES + 1);
    atomic_store(flag, 0);
    int bad = mr_launch(p->stream, "wait", &flag, sizeof flag);
    bad |= mr_launch(p->stream, "copy", &to_device, sizeof to_device);
    bad |= mr_launch(p->stream, "copy", &to_host, sizeof to_host);
    bad |= mr_event_record(p->event, p->stream);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    int early = mr_event_query(p->event);
    unsigned char seen = back[1];
    atomic_store(flag, 1);
    bad |= mr_stream_synchronize(p->stream);
    if (bad)
        return mr_last_error();
    if (early || seen)
        return "work passed a gate that was closed";
    if (mr_event_query(p->event) != 1 || memcmp(from, back, KERNELS_BYTES) || back[KERNELS_BYTES])
        return "the copy kernel's bytes are not those that were sent";
    if (mr_launch(p->stream, "wait", &flag, 4) != MR_EMISUSE ||
        mr_launch(p->stream, "copy", &to_host, 8) != MR_EMISUSE)
        return "arguments of the wrong size are taken";
    return NULL;
}

/* NULL: right; else what is wrong. */
static inline const char *kernels_wrong(struct mr_device *dev)
{
    struct kernels_parts p = {0};
    const char *wrong = NULL;
    int bad = mr_stream_create(dev, "kernels", &p.stream) | mr_event_create(dev, 0, &p.event) |
              mr_memory_acquire(dev, MR_PINNED, 4096, &p.flag) |
              mr_memory_acquire(dev, MR_PINNED, 1 << 18, &p.host) |
              mr_memory_acquire(dev, MR_DEVICE, 1 << 17, &p.far);
    wrong = bad ? mr_last_error() : kernels_run(&p);
    mr_event_destroy(p.event);
    mr_stream_destroy(p.stream);
    if (p.flag)
        mr_memory_release(dev, MR_PINNED, p.flag, NULL);
    if (p.host)
        mr_memory_release(dev, MR_PINNED, p.host, NULL);
    if (p.far)
        mr_memory_release(dev, MR_DEVICE, p.far, NULL);
    return wrong;
}

#endif
