/* The streams and events of the simulated accelerator: what callers enqueue. sim.h says how time
 * and order work. */
#include "device/sim/order.h"

#include <string.h>

static struct sim_device *sim_of(const struct mr_device *dev)
{
    return dev->state;
}

static void describe(struct sim_op *op, const struct sim_work *work)
{
    op->kind = SIM_WORK;
    op->engine = work->engine;
    op->ready_ns = work->ready_ns;
    op->cost_ns = work->cost_ns;
    op->dst = work->dst;
    op->src = work->src;
    op->bytes = work->bytes;
    op->byte = work->byte;
    op->peer = work->peer;
    op->flag = work->flag;
    op->stop = work->stop;
    op->kernel = work->kernel;
    op->row = work->row;
    if (work->kernel)
        memcpy(op->args, work->args, work->kernel->args_bytes);
}

int mr_sim_enqueue(struct mr_stream *stream, const struct sim_work *work, uint64_t *out_ticket)
{
    struct sim_device *sim = sim_of(stream->dev);
    struct sim_stream *s = stream->state;
    if (atomic_load(&stream->recording)) {
        struct sim_op recorded = {0};
        describe(&recorded, work);
        return mr_op_list_add(&s->recorded, &recorded, sizeof recorded);
    }
    pthread_mutex_lock(&mr_sim_lock);
    struct sim_op *op = mr_sim_op_take(sim);
    if (op) {
        describe(op, work);
        mr_sim_append(sim, s, op);
        if (out_ticket)
            *out_ticket = s->n_enqueued;
        mr_sim_settle(sim);
    }
    pthread_mutex_unlock(&mr_sim_lock);
    return op ? 0 : mr_error_nomem("sim: work of a stream", sizeof *op);
}

void mr_sim_wait_done(struct mr_stream *stream, uint64_t ticket)
{
    struct sim_device *sim = sim_of(stream->dev);
    struct sim_stream *s = stream->state;
    pthread_mutex_lock(&mr_sim_lock);
    while (s->n_done < ticket)
        pthread_cond_wait(&sim->done, &mr_sim_lock);
    pthread_mutex_unlock(&mr_sim_lock);
}

uint64_t mr_sim_last_ticket(struct mr_stream *stream)
{
    struct sim_stream *s = stream->state;
    pthread_mutex_lock(&mr_sim_lock);
    uint64_t ticket = s->n_enqueued;
    pthread_mutex_unlock(&mr_sim_lock);
    return ticket;
}

int mr_sim_stream_open(struct mr_stream *stream)
{
    struct sim_device *sim = sim_of(stream->dev);
    struct sim_stream *s = stream->state;
    s->stream = stream;
    s->tail = &s->head;
    pthread_mutex_init(&s->submit, NULL);
    pthread_mutex_lock(&mr_sim_lock);
    s->number = ++sim->n_streams;
    s->next = sim->streams;
    sim->streams = s;
    pthread_mutex_unlock(&mr_sim_lock);
    mr_sim_rows_stream(sim, s);
    return 0;
}

int mr_sim_stream_synchronize(struct mr_stream *stream)
{
    struct sim_call call = mr_sim_call_begin("simStreamSynchronize");
    mr_sim_wait_done(stream, mr_sim_last_ticket(stream));
    mr_sim_call_end(&call);
    return 0;
}

void mr_sim_stream_close(struct mr_stream *stream)
{
    struct sim_device *sim = sim_of(stream->dev);
    struct sim_stream *s = stream->state;
    mr_sim_wait_done(stream, mr_sim_last_ticket(stream));
    pthread_mutex_lock(&mr_sim_lock);
    struct sim_stream **at = &sim->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&mr_sim_lock);
    pthread_mutex_destroy(&s->submit);
    mr_op_list_clear(&s->recorded);
    free(s->bounce);
}

int mr_sim_event_open(struct mr_event *event)
{
    (void)event;
    return 0;
}

void mr_sim_event_close(struct mr_event *event)
{
    mr_sim_forget(event->dev, event->state);
}

static int record_locked(struct sim_device *sim, struct sim_event *e, struct sim_stream *s,
                         uint64_t now_ns)
{
    struct sim_op *op = mr_sim_op_take(sim);
    if (!op)
        return -1;
    struct sim_mark *mark = mr_sim_mark_take(sim);
    if (!mark) {
        mr_sim_op_give(sim, op);
        return -1;
    }
    mark->n_users = 2; /* the event and the record */
    mark->dev = s->stream->dev;
    mr_sim_mark_leave(sim, e->mark);
    e->mark = mark;
    op->kind = SIM_RECORD;
    op->ready_ns = now_ns;
    op->mark = mark;
    mr_sim_append(sim, s, op);
    mr_sim_settle(sim);
    return 0;
}

int mr_sim_event_record(struct mr_event *event, struct mr_stream *stream)
{
    struct sim_device *sim = sim_of(event->dev);
    struct sim_stream *s = stream->state;
    pthread_mutex_lock(&s->submit);
    pthread_mutex_lock(&mr_sim_lock);
    int rc = record_locked(sim, event->state, s, mr_time_ns());
    pthread_mutex_unlock(&mr_sim_lock);
    pthread_mutex_unlock(&s->submit);
    return rc < 0 ? mr_error_nomem("sim: record of an event", sizeof(struct sim_op)) : 0;
}

static int wait_locked(struct sim_device *sim, struct sim_stream *s, struct sim_mark *mark,
                       uint64_t now_ns)
{
    if (!mark || mark->passed)
        return 0;
    struct sim_op *op = mr_sim_op_take(sim);
    if (!op)
        return -1;
    mark->n_users++;
    op->kind = SIM_WAIT;
    op->ready_ns = now_ns;
    op->mark = mark;
    op->foreign = mark->dev != s->stream->dev;
    mr_sim_append(sim, s, op);
    mr_sim_settle(sim);
    return 0;
}

int mr_sim_event_wait(struct mr_stream *stream, struct mr_event *event)
{
    struct sim_device *sim = sim_of(stream->dev);
    struct sim_stream *s = stream->state;
    struct sim_event *e = event->state;
    pthread_mutex_lock(&s->submit);
    pthread_mutex_lock(&mr_sim_lock);
    int rc = wait_locked(sim, s, e->mark, mr_time_ns());
    pthread_mutex_unlock(&mr_sim_lock);
    pthread_mutex_unlock(&s->submit);
    return rc < 0 ? mr_error_nomem("sim: wait for an event", sizeof(struct sim_op)) : 0;
}

/* A mark at the end of each stream, for which the stream `any` waits. */
static int record_any_locked(struct sim_device *sim, struct sim_event *e)
{
    uint64_t now_ns = mr_time_ns();
    for (struct sim_stream *s = sim->streams; s; s = s->next) {
        struct sim_event end = {0};
        if (s == &sim->any)
            continue;
        int rc = record_locked(sim, &end, s, now_ns);
        if (rc >= 0)
            rc = wait_locked(sim, &sim->any, end.mark, now_ns);
        mr_sim_mark_leave(sim, end.mark);
        if (rc < 0)
            return rc;
    }
    return record_locked(sim, e, &sim->any, now_ns);
}

int mr_sim_event_record_any(struct mr_event *event)
{
    struct sim_device *sim = sim_of(event->dev);
    pthread_mutex_lock(&mr_sim_lock);
    int rc = record_any_locked(sim, event->state);
    pthread_mutex_unlock(&mr_sim_lock);
    return rc < 0 ? mr_error_nomem("sim: record of an event", sizeof(struct sim_op)) : 0;
}

/* Operations for all of it are taken before any is appended. The caller calls mr_sim_settle(). */
static int enqueue_all_locked(struct sim_device *sim, struct sim_stream *s,
                              const struct sim_op *ops, uint64_t n, uint32_t correlation)
{
    uint64_t now_ns = mr_time_ns();
    struct sim_op *taken = NULL;
    for (uint64_t i = 0; i < n; i++) {
        struct sim_op *op = mr_sim_op_take(sim);
        if (!op)
            break;
        op->next = taken;
        taken = op;
        if (i + 1 < n)
            continue;
        for (uint64_t k = 0; k < n; k++) {
            op = taken;
            taken = op->next;
            *op = ops[k];
            op->ready_ns = now_ns;
            op->row.correlation = correlation;
            mr_sim_append(sim, s, op);
        }
        return 0;
    }
    while (taken) {
        struct sim_op *next = taken->next;
        mr_sim_op_give(sim, taken);
        taken = next;
    }
    return n ? -1 : 0;
}

int mr_sim_enqueue_all(struct mr_stream *stream, const struct sim_op *ops, uint64_t n,
                       uint32_t correlation, struct sim_event *last)
{
    struct sim_device *sim = sim_of(stream->dev);
    struct sim_stream *s = stream->state;
    pthread_mutex_lock(&mr_sim_lock);
    int rc = wait_locked(sim, s, last->mark, mr_time_ns());
    if (rc >= 0)
        rc = enqueue_all_locked(sim, s, ops, n, correlation);
    if (rc >= 0)
        rc = record_locked(sim, last, s, mr_time_ns());
    mr_sim_settle(sim);
    pthread_mutex_unlock(&mr_sim_lock);
    return rc < 0 ? mr_error_nomem("sim: launch of a graph", n * sizeof *ops) : 0;
}

void mr_sim_forget(struct mr_device *dev, struct sim_event *event)
{
    struct sim_device *sim = sim_of(dev);
    pthread_mutex_lock(&mr_sim_lock);
    mr_sim_mark_leave(sim, event->mark);
    event->mark = NULL;
    pthread_mutex_unlock(&mr_sim_lock);
}

int mr_sim_event_query(struct mr_event *event)
{
    struct sim_event *e = event->state;
    pthread_mutex_lock(&mr_sim_lock);
    int passed = !e->mark || e->mark->passed;
    pthread_mutex_unlock(&mr_sim_lock);
    return passed;
}

int mr_sim_event_synchronize(struct mr_event *event)
{
    struct sim_device *sim = sim_of(event->dev);
    struct sim_event *e = event->state;
    struct sim_call call = mr_sim_call_begin("simEventSynchronize");
    pthread_mutex_lock(&mr_sim_lock);
    struct sim_mark *mark = e->mark;
    if (mark) {
        mark->n_users++; /* the event may be recorded again meanwhile */
        while (!mark->passed)
            pthread_cond_wait(&sim->done, &mr_sim_lock);
        mr_sim_mark_leave(sim, mark);
    }
    pthread_mutex_unlock(&mr_sim_lock);
    mr_sim_call_end(&call);
    return 0;
}

int mr_sim_event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns)
{
    struct sim_event *from = start->state, *to = end->state;
    pthread_mutex_lock(&mr_sim_lock);
    bool from_passed = from->mark && from->mark->passed, to_passed = to->mark && to->mark->passed;
    int64_t ns = from_passed && to_passed ? (int64_t)(to->mark->time_ns - from->mark->time_ns) : 0;
    pthread_mutex_unlock(&mr_sim_lock);
    if (!from_passed || !to_passed)
        return mr_error_set(MR_EMISUSE,
                            "mr_event_elapsed: the %s event was not recorded or has not passed yet",
                            from_passed ? "end" : "start");
    *out_ns = ns;
    return 0;
}
