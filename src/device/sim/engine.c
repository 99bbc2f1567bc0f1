/* The simulated accelerator's engines: threads that do the work at the heads of streams. */
#include "device/sim/order.h"

#include "trace/trace.h"

#include <string.h>
#include <sys/prctl.h>

static struct sim_device *sim_of(const struct mr_device *dev)
{
    return dev->state;
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
    if (op->stop)
        end_ns = mr_device_sleep(start_ns, &(struct mr_kernel_busy){op->cost_ns, op->stop});
    else
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
        mr_sim_pop(sim, s);
        mr_sim_settle(sim);
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

int mr_sim_engines_start(struct mr_device *dev)
{
    static const char *const names[SIM_N_ENGINES] = {"sim-h2d", "sim-d2h", "sim-compute"};
    struct sim_device *sim = sim_of(dev);
    mr_sim_forks_watch();
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
    mr_sim_devices_add(sim, first);
    pthread_mutex_unlock(&mr_sim_lock);
    return 0;
}

void mr_sim_engines_stop(struct mr_device *dev)
{
    struct sim_device *sim = sim_of(dev);
    pthread_mutex_lock(&mr_sim_lock);
    mr_sim_devices_remove(sim);
    pthread_mutex_unlock(&mr_sim_lock);
    stop_engines(sim, SIM_N_ENGINES);
    mr_sim_spares_free(sim);
}
