/* The simulated accelerator's streams, events and engines. sim.h says how time and order work. */
#include "device/sim/sim.h"

#include "trace/trace.h"

#include <string.h>
#include <sys/prctl.h>

pthread_mutex_t mr_sim_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_device *devices; /* that are open; under the lock, as the next */
static uint64_t n_foreign;         /* waits for marks of other devices that have not passed */

static struct sim_device *sim_of(const struct mr_device *dev)
{
    return dev->state;
}

/* The parent's engines may have held the lock at the fork, and do not exist here. Its devices are
 * refused before they get this far; a device that the child opens is the first one. */
static void in_child(void)
{
    pthread_mutex_init(&mr_sim_lock, NULL);
    devices = NULL;
    n_foreign = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* Under the lock, as all that follows up to the engines' threads. */
static struct sim_op *take_op(struct sim_device *sim)
{
    struct sim_op *op = sim->spare_ops;
    if (!op)
        return calloc(1, sizeof *op);
    sim->spare_ops = op->next;
    memset(op, 0, offsetof(struct sim_op, args));
    return op;
}

static void give_op(struct sim_device *sim, struct sim_op *op)
{
    op->next = sim->spare_ops;
    sim->spare_ops = op;
}

static struct sim_mark *take_mark(struct sim_device *sim)
{
    struct sim_mark *mark = sim->spare_marks;
    if (!mark)
        return calloc(1, sizeof *mark);
    sim->spare_marks = mark->next_spare;
    memset(mark, 0, sizeof *mark);
    return mark;
}

static void leave_mark(struct sim_device *sim, struct sim_mark *mark)
{
    if (!mark || --mark->n_users)
        return;
    mark->next_spare = sim->spare_marks;
    sim->spare_marks = mark;
}

static void append(struct sim_device *sim, struct sim_stream *s, struct sim_op *op)
{
    op->order = sim->next_order++;
    op->next = NULL;
    *s->tail = op;
    s->tail = &op->next;
    s->n_enqueued++;
}

static void pop_head(struct sim_device *sim, struct sim_stream *s)
{
    struct sim_op *op = s->head;
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    s->n_done++;
    n_foreign -= op->foreign;
    leave_mark(sim, op->mark);
    give_op(sim, op);
    pthread_cond_broadcast(&sim->done);
}

/* Does the records and the waits at the stream's head that can be done. Returns whether there were
 * any. */
static bool pass_marks(struct sim_device *sim, struct sim_stream *s)
{
    bool any = false;
    while (s->head && s->head->kind != SIM_WORK) {
        struct sim_op *op = s->head;
        if (op->kind == SIM_WAIT && !op->mark->passed)
            break;
        s->end_ns = MR_MAX(s->end_ns, op->ready_ns);
        if (op->kind == SIM_WAIT) {
            s->end_ns = MR_MAX(s->end_ns, op->mark->time_ns);
        } else {
            op->mark->passed = true;
            op->mark->time_ns = s->end_ns;
        }
        pop_head(sim, s);
        any = true;
    }
    return any;
}

/* A mark that passes in one stream may free the head of another. Returns whether any passed. Wakes
 * the engines that can work. */
static bool settle_device(struct sim_device *sim)
{
    bool any = true, passed = false;
    while (any) {
        any = false;
        for (struct sim_stream *s = sim->streams; s; s = s->next)
            any |= pass_marks(sim, s);
        passed |= any;
    }
    for (struct sim_stream *s = sim->streams; s; s = s->next) {
        if (s->head && s->head->kind == SIM_WORK && !s->head->running)
            pthread_cond_signal(&sim->engine[s->head->engine].work);
    }
    return passed;
}

/* After any change of a device. */
static void settle(struct sim_device *sim)
{
    bool any = settle_device(sim);
    while (any && n_foreign > 0) {
        any = false;
        for (struct sim_device *other = devices; other; other = other->next)
            any |= settle_device(other);
    }
}

/* The stream whose head the engine should work on next, or NULL. */
static struct sim_stream *next_for(const struct sim_device *sim, enum sim_engine_kind engine)
{
    struct sim_stream *best = NULL;
    for (struct sim_stream *s = sim->streams; s; s = s->next) {
        const struct sim_op *op = s->head;
        if (op && op->kind == SIM_WORK && op->engine == engine && !op->running &&
            (!best || op->order < best->head->order))
            best = s;
    }
    return best;
}

static const char *span_of(const struct sim_op *op)
{
    static const char *const names[SIM_N_ENGINES] = {"copy H2D", "copy D2H", "busy"};
    if (op->kernel)
        return op->kernel->name;
    if (op->peer)
        return op->engine == SIM_H2D ? "copy from peer" : "copy to peer";
    if (op->bytes && op->engine == SIM_COMPUTE)
        return op->src ? "copy on device" : "set on device";
    return names[op->engine];
}

/* Into a recording as a row of the device, else as a span. */
static void trace_work(struct sim_stream *s, const struct sim_op *op, uint64_t start_ns,
                       uint64_t end_ns)
{
    static const char *const tracks[SIM_N_ENGINES] = {"sim H2D engine", "sim D2H engine",
                                                      "sim compute"};
    const char *arg = op->bytes && !op->kernel ? "bytes" : NULL;
    if (mr_sim_rows_work(s, op, start_ns, end_ns))
        mr_trace_span_here(tracks[op->engine], span_of(op), start_ns, end_ns, arg, op->bytes);
    else
        mr_trace_span_on(tracks[op->engine], span_of(op), start_ns, end_ns, arg, op->bytes);
}

static void wait_for(const volatile uint32_t *flag)
{
    uint64_t until = mr_time_ns() + MR_WAIT_MOST_NS;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0 && mr_time_ns() < until)
        mr_sleep_until(mr_time_ns() + 50000);
}

/* The real bytes, then the time that the model says; without the lock. Returns the end. */
static uint64_t do_work(struct sim_stream *s, const struct sim_op *op, uint64_t start_ns)
{
    uint64_t end_ns;
    if (!mr_add(start_ns, op->cost_ns, &end_ns))
        end_ns = UINT64_MAX;
    if (op->bytes || op->kernel) {
        if (op->kernel)
            op->kernel->run(op->args);
        else if (op->src)
            memmove(op->dst, op->src, op->bytes);
        else
            memset(op->dst, op->byte, op->bytes);
        end_ns = MR_MAX(end_ns, mr_time_ns());
    }
    if (op->flag) {
        wait_for(op->flag);
        end_ns = MR_MAX(end_ns, mr_time_ns());
    }
    mr_sleep_until(end_ns);
    trace_work(s, op, start_ns, end_ns);
    return end_ns;
}

static void *run_engine(void *arg)
{
    struct sim_engine *engine = arg;
    struct sim_device *sim = sim_of(engine->dev);
    prctl(PR_SET_TIMERSLACK, 1); /* sleep to the microsecond, not to the default 50 */
    pthread_mutex_lock(&mr_sim_lock);
    for (;;) {
        struct sim_stream *s = next_for(sim, engine->kind);
        if (!s && sim->stop)
            break;
        if (!s) {
            pthread_cond_wait(&engine->work, &mr_sim_lock);
            continue;
        }
        struct sim_op *op = s->head;
        op->running = true;
        uint64_t start_ns = MR_MAX(MR_MAX(engine->free_ns, s->end_ns), op->ready_ns);
        pthread_mutex_unlock(&mr_sim_lock);
        uint64_t end_ns = do_work(s, op, start_ns);
        pthread_mutex_lock(&mr_sim_lock);
        engine->free_ns = s->end_ns = end_ns;
        pop_head(sim, s);
        settle(sim);
    }
    pthread_mutex_unlock(&mr_sim_lock);
    return NULL;
}

static void stop_engines(struct sim_device *sim, int n_started)
{
    pthread_mutex_lock(&mr_sim_lock);
    sim->stop = true;
    for (int i = 0; i < SIM_N_ENGINES; i++)
        pthread_cond_broadcast(&sim->engine[i].work);
    pthread_mutex_unlock(&mr_sim_lock);
    for (int i = 0; i < n_started; i++)
        pthread_join(sim->engine[i].thread, NULL);
    for (int i = 0; i < SIM_N_ENGINES; i++)
        pthread_cond_destroy(&sim->engine[i].work);
    pthread_cond_destroy(&sim->done);
}

/* The first from there on; under the lock. */
static uint32_t free_number(uint32_t number)
{
    for (const struct sim_device *d = devices; d;) {
        bool taken = d->number == number;
        number += taken;
        d = taken ? devices : d->next;
    }
    return number;
}

int mr_sim_engines_start(struct mr_device *dev)
{
    static const char *const names[SIM_N_ENGINES] = {"sim-h2d", "sim-d2h", "sim-compute"};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sim_device *sim = sim_of(dev);
    pthread_once(&once, watch_forks);
    pthread_cond_init(&sim->done, NULL);
    for (int i = 0; i < SIM_N_ENGINES; i++) {
        sim->engine[i].dev = dev;
        sim->engine[i].kind = (enum sim_engine_kind)i;
        pthread_cond_init(&sim->engine[i].work, NULL);
    }
    for (int i = 0; i < SIM_N_ENGINES; i++) {
        int rc = mr_thread_start(&sim->engine[i].thread, names[i], run_engine, &sim->engine[i]);
        if (rc < 0) {
            stop_engines(sim, i);
            return rc;
        }
    }
    uint32_t first = mr_sim_rows_first();
    pthread_mutex_lock(&mr_sim_lock);
    sim->any.stream = &dev->any.stream;
    sim->any.tail = &sim->any.head;
    sim->streams = &sim->any;
    sim->number = free_number(first);
    sim->next = devices;
    devices = sim;
    pthread_mutex_unlock(&mr_sim_lock);
    return 0;
}

void mr_sim_engines_stop(struct mr_device *dev)
{
    struct sim_device *sim = sim_of(dev);
    pthread_mutex_lock(&mr_sim_lock);
    struct sim_device **at = &devices;
    while (*at != sim)
        at = &(*at)->next;
    *at = sim->next;
    pthread_mutex_unlock(&mr_sim_lock);
    stop_engines(sim, SIM_N_ENGINES);
    while (sim->spare_ops) {
        struct sim_op *op = sim->spare_ops;
        sim->spare_ops = op->next;
        free(op);
    }
    while (sim->spare_marks) {
        struct sim_mark *mark = sim->spare_marks;
        sim->spare_marks = mark->next_spare;
        free(mark);
    }
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
    struct sim_op *op = take_op(sim);
    if (op) {
        describe(op, work);
        append(sim, s, op);
        if (out_ticket)
            *out_ticket = s->n_enqueued;
        settle(sim);
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
    struct sim_op *op = take_op(sim);
    if (!op)
        return -1;
    struct sim_mark *mark = take_mark(sim);
    if (!mark) {
        give_op(sim, op);
        return -1;
    }
    mark->n_users = 2; /* the event and the record */
    mark->dev = s->stream->dev;
    leave_mark(sim, e->mark);
    e->mark = mark;
    op->kind = SIM_RECORD;
    op->ready_ns = now_ns;
    op->mark = mark;
    append(sim, s, op);
    settle(sim);
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
    struct sim_op *op = take_op(sim);
    if (!op)
        return -1;
    mark->n_users++;
    op->kind = SIM_WAIT;
    op->ready_ns = now_ns;
    op->mark = mark;
    op->foreign = mark->dev != s->stream->dev;
    n_foreign += op->foreign;
    append(sim, s, op);
    settle(sim);
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
        leave_mark(sim, end.mark);
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

/* Operations for all of it are taken before any is appended. The caller calls settle(). */
static int enqueue_all_locked(struct sim_device *sim, struct sim_stream *s,
                              const struct sim_op *ops, uint64_t n, uint32_t correlation)
{
    uint64_t now_ns = mr_time_ns();
    struct sim_op *taken = NULL;
    for (uint64_t i = 0; i < n; i++) {
        struct sim_op *op = take_op(sim);
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
            append(sim, s, op);
        }
        return 0;
    }
    while (taken) {
        struct sim_op *next = taken->next;
        give_op(sim, taken);
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
    settle(sim);
    pthread_mutex_unlock(&mr_sim_lock);
    return rc < 0 ? mr_error_nomem("sim: launch of a graph", n * sizeof *ops) : 0;
}

void mr_sim_forget(struct mr_device *dev, struct sim_event *event)
{
    struct sim_device *sim = sim_of(dev);
    pthread_mutex_lock(&mr_sim_lock);
    leave_mark(sim, event->mark);
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
        leave_mark(sim, mark);
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
