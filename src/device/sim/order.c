/* The simulated accelerator's lists: open devices, and what their streams still have to do. */
#include "device/sim/order.h"

#include <string.h>

pthread_mutex_t mr_sim_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_device *devices; /* that are open; under the lock, as the next */
static uint64_t n_foreign;         /* waits for marks of other devices that have not passed */

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

void mr_sim_forks_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}

/* The first that no device has, from there on. */
static uint32_t free_number(uint32_t number)
{
    for (const struct sim_device *d = devices; d;) {
        bool taken = d->number == number;
        number += taken;
        d = taken ? devices : d->next;
    }
    return number;
}

void mr_sim_devices_add(struct sim_device *sim, uint32_t first)
{
    sim->number = free_number(first);
    sim->next = devices;
    devices = sim;
}

void mr_sim_devices_remove(struct sim_device *sim)
{
    struct sim_device **at = &devices;
    while (*at != sim)
        at = &(*at)->next;
    *at = sim->next;
}

struct sim_op *mr_sim_op_take(struct sim_device *sim)
{
    struct sim_op *op = sim->spare_ops;
    if (!op)
        return calloc(1, sizeof *op);
    sim->spare_ops = op->next;
    memset(op, 0, offsetof(struct sim_op, args));
    return op;
}

void mr_sim_op_give(struct sim_device *sim, struct sim_op *op)
{
    op->next = sim->spare_ops;
    sim->spare_ops = op;
}

struct sim_mark *mr_sim_mark_take(struct sim_device *sim)
{
    struct sim_mark *mark = sim->spare_marks;
    if (!mark)
        return calloc(1, sizeof *mark);
    sim->spare_marks = mark->next_spare;
    memset(mark, 0, sizeof *mark);
    return mark;
}

void mr_sim_mark_leave(struct sim_device *sim, struct sim_mark *mark)
{
    if (!mark || --mark->n_users)
        return;
    mark->next_spare = sim->spare_marks;
    sim->spare_marks = mark;
}

void mr_sim_append(struct sim_device *sim, struct sim_stream *s, struct sim_op *op)
{
    op->order = sim->next_order++;
    op->next = NULL;
    *s->tail = op;
    s->tail = &op->next;
    s->n_enqueued++;
    n_foreign += op->foreign;
}

void mr_sim_pop(struct sim_device *sim, struct sim_stream *s)
{
    struct sim_op *op = s->head;
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    s->n_done++;
    n_foreign -= op->foreign;
    mr_sim_mark_leave(sim, op->mark);
    mr_sim_op_give(sim, op);
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
        mr_sim_pop(sim, s);
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

void mr_sim_settle(struct sim_device *sim)
{
    bool any = settle_device(sim);
    while (any && n_foreign > 0) {
        any = false;
        for (struct sim_device *other = devices; other; other = other->next)
            any |= settle_device(other);
    }
}

void mr_sim_spares_free(struct sim_device *sim)
{
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
