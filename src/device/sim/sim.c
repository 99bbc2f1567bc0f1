/* The device "sim": an accelerator that is not there. Options, memory, and the vtable; sim.h says
 * how it works. */
#include "device/sim/sim.h"

#include <string.h>

#define MIN_RATE 1e-4
#define MAX_RATE 1e6

static const struct mr_option options[] = {
    {.name = "h2d",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct sim_options, h2d),
     .initial = "55",
     .min = MIN_RATE,
     .max = MAX_RATE,
     .unit = "GB/s",
     .help = "rate of copies from page-locked memory to the device"},
    {.name = "d2h",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct sim_options, d2h),
     .initial = "55",
     .min = MIN_RATE,
     .max = MAX_RATE,
     .unit = "GB/s",
     .help = "rate of copies from the device to page-locked memory"},
    {.name = "peer",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct sim_options, peer),
     .initial = "100",
     .min = MIN_RATE,
     .max = MAX_RATE,
     .unit = "GB/s",
     .help = "rate of copies between this device and another simulated one; the slower of the two "
             "counts"},
    {.name = "pageable",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct sim_options, pageable),
     .initial = "12",
     .min = MIN_RATE,
     .max = MAX_RATE,
     .unit = "GB/s",
     .help = "rate at which the caller stages copies of memory that is not page-locked"},
    {.name = "latency",
     .type = MR_OPT_DURATION,
     .offset = offsetof(struct sim_options, latency_ns),
     .initial = "10us",
     .min = 0,
     .max = 10e9,
     .unit = "us",
     .help = "time that every copy and kernel takes to start"},
    {.name = "tflops",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct sim_options, tflops),
     .initial = "50",
     .min = MIN_RATE,
     .max = MAX_RATE,
     .unit = "Tflop/s",
     .help = "rate of matrix products"},
    {.name = "step",
     .type = MR_OPT_DURATION,
     .offset = offsetof(struct sim_options, step_ns),
     .initial = "0",
     .min = 0,
     .max = 3600e9,
     .unit = "ms",
     .help = "time of the consumer's work on one batch"},
    {.name = "mem",
     .type = MR_OPT_BYTES,
     .offset = offsetof(struct sim_options, memory_bytes),
     .initial = "16GiB",
     .min = 4096,
     .max = 0x1p50,
     .unit = "bytes",
     .help = "memory of the device"},
    {.name = NULL},
};

static const char *probe(void)
{
    return NULL;
}

static int open_sim(struct mr_device *dev, const void *opts)
{
    struct sim_device *sim = dev->state;
    sim->opts = *(const struct sim_options *)opts;
    int rc = mr_sim_engines_start(dev);
    if (rc >= 0)
        mr_sim_rows_device(dev);
    return rc;
}

/* Its engines are threads, which a forked child does not have. */
static int ready(const struct mr_device *dev)
{
    return mr_process_check(&dev->process, "this simulated device");
}

static int query(struct mr_device *dev, struct mr_device_info *out)
{
    struct sim_device *sim = dev->state;
    out->simulated = 1;
    out->copy_engines = 2;
    out->h2d_gb_per_s = sim->opts.h2d;
    out->d2h_gb_per_s = sim->opts.d2h;
    out->peer_gb_per_s = sim->opts.peer;
    out->pageable_gb_per_s = sim->opts.pageable;
    out->step_ns = sim->opts.step_ns;
    out->memory_bytes = sim->opts.memory_bytes;
    pthread_mutex_lock(&mr_sim_lock);
    out->free_bytes = sim->opts.memory_bytes - sim->used_bytes;
    pthread_mutex_unlock(&mr_sim_lock);
    return 0;
}

/* Claims device memory, before it is allocated. */
static int claim(struct sim_device *sim, uint64_t bytes)
{
    pthread_mutex_lock(&mr_sim_lock);
    uint64_t free_bytes = sim->opts.memory_bytes - sim->used_bytes;
    bool fits = bytes <= free_bytes;
    if (fits)
        sim->used_bytes += bytes;
    pthread_mutex_unlock(&mr_sim_lock);
    if (fits)
        return 0;
    return mr_error_set(MR_EDEVICEMEM,
                        "sim: out of device memory: asked for %llu bytes, %llu of %llu are free; "
                        "lower --prefetch or "
                        "--batch-size, or raise mem= of the device",
                        (unsigned long long)bytes, (unsigned long long)free_bytes,
                        (unsigned long long)sim->opts.memory_bytes);
}

static void unclaim(struct sim_device *sim, uint64_t bytes)
{
    pthread_mutex_lock(&mr_sim_lock);
    sim->used_bytes -= bytes;
    pthread_mutex_unlock(&mr_sim_lock);
}

static int make_device_memory(struct mr_device *dev, uint64_t bytes, void **out,
                              uint64_t *out_locked)
{
    struct sim_device *sim = dev->state;
    int rc = claim(sim, bytes);
    if (rc < 0)
        return rc;
    struct sim_block *b = malloc(sizeof *b);
    rc = b ? mr_host_memory_create(dev, MR_DEVICE, bytes, &b->ptr, out_locked)
           : mr_error_nomem("sim: block of device memory", sizeof *b);
    if (rc < 0) {
        free(b);
        unclaim(sim, bytes);
        return rc;
    }
    *out = b->ptr;
    b->bytes = bytes;
    pthread_mutex_lock(&mr_sim_lock);
    b->next = sim->blocks;
    sim->blocks = b;
    pthread_mutex_unlock(&mr_sim_lock);
    return 0;
}

static int memory_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out,
                         uint64_t *out_locked)
{
    static const char *const calls[MR_N_MEMORY] = {
        [MR_PINNED] = "simHostAlloc", [MR_DEVICE] = "simMalloc"};
    struct sim_call call = {0};
    if (calls[kind])
        call = mr_sim_call_begin(calls[kind]);
    int rc = kind == MR_DEVICE ? make_device_memory(dev, bytes, out, out_locked)
                               : mr_host_memory_create(dev, kind, bytes, out, out_locked);
    mr_sim_call_end(&call);
    return rc;
}

static void memory_destroy(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes)
{
    static const char *const calls[MR_N_MEMORY] = {
        [MR_PINNED] = "simFreeHost", [MR_DEVICE] = "simFree"};
    struct sim_device *sim = dev->state;
    struct sim_call call = {0};
    if (calls[kind])
        call = mr_sim_call_begin(calls[kind]);
    if (kind == MR_DEVICE) {
        pthread_mutex_lock(&mr_sim_lock);
        struct sim_block **at = &sim->blocks;
        while ((*at)->ptr != ptr)
            at = &(*at)->next;
        struct sim_block *b = *at;
        *at = b->next;
        sim->used_bytes -= bytes;
        pthread_mutex_unlock(&mr_sim_lock);
        free(b);
    }
    mr_host_memory_destroy(ptr, bytes);
    mr_sim_call_end(&call);
}

static struct sim_work work_of(struct sim_device *sim, const struct mr_simple_launch *it)
{
    static const char *const names[MR_N_SIMPLE] = {[MR_SIMPLE_BUSY] = "busy",
                                                   [MR_SIMPLE_WAIT] = "wait",
                                                   [MR_SIMPLE_COPY] = "copy",
                                                   [MR_SIMPLE_MATMUL] = "matmul_f32"};
    const struct sim_options *opts = &sim->opts;
    struct sim_work work = {.engine = SIM_COMPUTE, .row.kernel = names[it->kernel]};
    double n = (double)it->matmul.n;
    if (it->kernel == MR_SIMPLE_BUSY) {
        work.cost_ns = it->busy.ns;
        work.stop = it->busy.stop;
    } else if (it->kernel == MR_SIMPLE_WAIT) {
        work.flag = it->flag;
    } else if (it->kernel == MR_SIMPLE_COPY) { /* within the device as fast as it goes */
        double rate = !mr_sim_on_device(sim, it->copy.src)   ? opts->h2d
                      : !mr_sim_on_device(sim, it->copy.dst) ? opts->d2h
                                                             : MAX_RATE;
        work.cost_ns = (uint64_t)((double)it->copy.bytes / rate);
        work.dst = it->copy.dst;
        work.src = it->copy.src;
        work.bytes = it->copy.bytes;
    } else {
        work.cost_ns = (uint64_t)(2 * (double)it->matmul.rows * n * n / (opts->tflops * 1e3));
    }
    return work;
}

static int enqueue(struct mr_stream *stream, struct sim_work *work)
{
    const struct sim_device *sim = stream->dev->state;
    struct sim_stream *s = stream->state;
    if (!mr_add(work->cost_ns, sim->opts.latency_ns, &work->cost_ns))
        work->cost_ns = UINT64_MAX;
    struct sim_call call = mr_sim_call_begin("simLaunchKernel");
    work->row.correlation = call.correlation;
    pthread_mutex_lock(&s->submit);
    work->ready_ns = mr_time_ns();
    int rc = mr_sim_enqueue(stream, work, NULL);
    pthread_mutex_unlock(&s->submit);
    mr_sim_call_end(&call);
    return rc;
}

/* The compute engine runs the host function: as fast as it goes, or in the time of its flops. */
static int launch(struct mr_stream *stream, const struct mr_kernel *kernel, const void *args,
                  const struct mr_kernel_range ranges[MR_KERNEL_RANGES], const unsigned grid[2])
{
    (void)grid;
    struct sim_work work = {
        .engine = SIM_COMPUTE, .kernel = kernel, .args = args, .row.kernel = kernel->name};
    const struct sim_device *sim = stream->dev->state;
    if (kernel->flops)
        work.cost_ns = (uint64_t)((double)kernel->flops(args) / (sim->opts.tflops * 1e3));
    for (int i = 0; i < MR_KERNEL_RANGES; i++) {
        const struct mr_kernel_range *range = &ranges[i];
        int rc = range->bytes == 0
                     ? 0
                     : mr_sim_check_range(stream->dev, "kernel's memory", range->ptr, range->bytes);
        if (rc < 0)
            return rc;
    }
    return enqueue(stream, &work);
}

static int launch_simple(struct mr_stream *stream, const struct mr_simple_launch *launch)
{
    struct sim_work work = work_of(stream->dev->state, launch);
    return enqueue(stream, &work);
}

const struct mr_device_ops mr_device_sim = {
    .name = "sim",
    .summary = "a simulated accelerator: threads play two copy engines and a compute queue, and "
               "move real bytes",
    .options = options,
    .opts_size = sizeof(struct sim_options),
    .state_size = sizeof(struct sim_device),
    .probe = probe,
    .open = open_sim,
    .close = mr_sim_engines_stop,
    .ready = ready,
    .query = query,
    .memory_create = memory_create,
    .memory_destroy = memory_destroy,
    .memory_register = mr_host_register,
    .memory_unregister = mr_host_unregister,
    .stream_open = mr_sim_stream_open,
    .stream_close = mr_sim_stream_close,
    .stream_synchronize = mr_sim_stream_synchronize,
    .event_open = mr_sim_event_open,
    .event_close = mr_sim_event_close,
    .event_record = mr_sim_event_record,
    .event_record_any = mr_sim_event_record_any,
    .event_wait = mr_sim_event_wait,
    .event_query = mr_sim_event_query,
    .event_synchronize = mr_sim_event_synchronize,
    .event_elapsed = mr_sim_event_elapsed,
    .copy_async = mr_sim_copy_async,
    .memset_async = mr_sim_memset_async,
    .reach = mr_sim_reach,
    .copy_peer = mr_sim_copy_peer,
    .files_open = mr_sim_files_open,
    .files_close = mr_sim_files_close,
    .file_open = mr_sim_file_open,
    .file_close = mr_sim_file_close,
    .file_register = mr_sim_file_register,
    .file_unregister = mr_sim_file_unregister,
    .file_read = mr_sim_file_read,
    .launch = launch,
    .launch_simple = launch_simple,
    .graph_begin = mr_sim_graph_begin,
    .graph_end = mr_sim_graph_end,
    .graph_launch = mr_sim_graph_launch,
    .graph_close = mr_sim_graph_close,
    .graph_size = sizeof(struct sim_graph),
    .n_simple = MR_N_SIMPLE,
    .stream_size = sizeof(struct sim_stream),
    .event_size = sizeof(struct sim_event),
};
