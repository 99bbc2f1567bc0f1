/*
 * Time between events that are far apart. The driver gives it as a float of milliseconds: after a
 * minute that is exact to 4 us, after an hour to 0.25 ms, and a copy takes 20 us. So anchors,
 * events in a stream of their own, are recorded once a second while events are; each timed event
 * remembers the anchor before it, and long times are summed in nanoseconds from anchor to anchor.
 * Without anchors (making one failed) the driver's float serves.
 *
 * All of it runs with the context current. c->lock guards it.
 */
#include "device/cuda/cuda.h"

#define EVERY_NS 1000000000ull
#define NEAR_MS  1000 /* the driver's float is exact to 0.06 us up to here */

struct cuda_anchor {
    struct CUevent_st *handle;
    uint64_t made_ns; /* mr_time_ns */
    int users;        /* the device, events, and the anchor after it while that is not placed */
    bool placed;
    int64_t at_ns;              /* after the first anchor, once placed */
    struct cuda_anchor *before; /* until placed */
};

static void leave_anchor(const struct mr_cuda *c, struct cuda_anchor *anchor)
{
    while (anchor && --anchor->users == 0) {
        struct cuda_anchor *before = anchor->before;
        c->cu->cuEventDestroy_v2(anchor->handle);
        free(anchor);
        anchor = before;
    }
}

static int driver_elapsed(const struct mr_cuda *c, struct CUevent_st *from, struct CUevent_st *to,
                          double *out_ms)
{
    float ms = 0;
    int result = c->cu->cuEventElapsedTime_v2 ? c->cu->cuEventElapsedTime_v2(&ms, from, to)
                                              : c->cu->cuEventElapsedTime(&ms, from, to);
    *out_ms = (double)ms;
    return result;
}

/* Gives an anchor its place when it and the one before have passed. */
static bool place(const struct mr_cuda *c, struct cuda_anchor *anchor)
{
    double ms = 0;
    if (anchor->placed)
        return true;
    if (anchor->before &&
        (!place(c, anchor->before) ||
         driver_elapsed(c, anchor->before->handle, anchor->handle, &ms) != CUDA_SUCCESS))
        return false;
    anchor->at_ns = anchor->before ? anchor->before->at_ns + (int64_t)(ms * 1e6) : 0;
    anchor->placed = true;
    leave_anchor(c, anchor->before);
    anchor->before = NULL;
    return true;
}

static struct cuda_anchor *make_anchor(struct mr_cuda *c)
{
    struct cuda_anchor *anchor = calloc(1, sizeof *anchor);
    if (!anchor)
        return NULL;
    if (!c->clock_stream &&
        c->cu->cuStreamCreate(&c->clock_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        c->clock_stream = NULL;
    if (!c->clock_stream || c->cu->cuEventCreate(&anchor->handle, 0) != CUDA_SUCCESS) {
        free(anchor);
        return NULL;
    }
    if (c->cu->cuEventRecord(anchor->handle, c->clock_stream) != CUDA_SUCCESS) {
        c->cu->cuEventDestroy_v2(anchor->handle);
        free(anchor);
        return NULL;
    }
    anchor->users = 1;
    return anchor;
}

void mr_cuda_clock_mark(struct mr_cuda *c, struct cuda_event *e)
{
    pthread_mutex_lock(&c->lock);
    uint64_t now = mr_time_ns();
    struct cuda_anchor *last = c->anchor;
    if (!last || (now - last->made_ns > EVERY_NS && place(c, last))) {
        struct cuda_anchor *anchor = make_anchor(c);
        if (anchor) {
            anchor->made_ns = now;
            anchor->before = last; /* the device's use of it passes on */
            c->anchor = anchor;
        }
    }
    if (e->anchor != c->anchor) {
        leave_anchor(c, e->anchor);
        e->anchor = c->anchor;
        if (e->anchor)
            e->anchor->users++;
    }
    pthread_mutex_unlock(&c->lock);
}

void mr_cuda_clock_forget(struct mr_cuda *c, struct cuda_event *e)
{
    pthread_mutex_lock(&c->lock);
    leave_anchor(c, e->anchor);
    e->anchor = NULL;
    pthread_mutex_unlock(&c->lock);
}

void mr_cuda_clock_close(struct mr_cuda *c)
{
    leave_anchor(c, c->anchor);
    c->anchor = NULL;
    if (c->clock_stream)
        c->cu->cuStreamDestroy_v2(c->clock_stream);
    c->clock_stream = NULL;
}

int mr_cuda_clock_elapsed(struct mr_cuda *c, const struct cuda_event *from,
                          const struct cuda_event *to, int64_t *out_ns)
{
    double ms = 0, from_ms = 0, to_ms = 0;
    int result = driver_elapsed(c, from->handle, to->handle, &ms);
    if (result != CUDA_SUCCESS)
        return result;
    *out_ns = (int64_t)(ms * 1e6);
    if (ms < NEAR_MS && ms > -NEAR_MS)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&c->lock);
    if (from->anchor && to->anchor && place(c, from->anchor) && place(c, to->anchor) &&
        driver_elapsed(c, from->anchor->handle, from->handle, &from_ms) == CUDA_SUCCESS &&
        driver_elapsed(c, to->anchor->handle, to->handle, &to_ms) == CUDA_SUCCESS)
        *out_ns = to->anchor->at_ns - from->anchor->at_ns + (int64_t)(to_ms * 1e6) -
                  (int64_t)(from_ms * 1e6);
    pthread_mutex_unlock(&c->lock);
    return CUDA_SUCCESS;
}
