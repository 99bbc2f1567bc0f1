/*
 * The simulated accelerator's work as rows of a recording (trace/recorder.h): its calls, and what
 * its engines did, a copy in pieces as one. While nobody records, a call reads one pointer.
 */
#include "device/sim/sim.h"

#include "trace/trace.h"

#include <dlfcn.h>
#include <stdio.h>

/* Beside CUDA in one process: far from the numbers of its GPUs and its calls. */
#define BEHIND_GPUS  64u
#define BEHIND_CALLS 0x40000000u

/* CUPTI's numbers. */
enum { COPY_H2D = 1, COPY_D2H = 2, COPY_D2D = 8, COPY_P2P = 10 };

static atomic_uint n_calls, first_call;

uint32_t mr_sim_rows_first(void)
{
    void *cuda = mr_trace_devices() ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!cuda)
        return 0;
    dlclose(cuda);
    atomic_store(&first_call, BEHIND_CALLS);
    return BEHIND_GPUS;
}

struct sim_call mr_sim_call_begin(const char *name)
{
    const struct mr_recorder_devices *to = mr_trace_devices();
    struct sim_call call = {0};
    if (!to || !to->wants())
        return call;
    call.name = name;
    call.start_ns = mr_time_ns();
    call.correlation =
        atomic_load(&first_call) + 1 + atomic_fetch_add(&n_calls, 1) % (BEHIND_CALLS - 1);
    return call;
}

void mr_sim_call_end(const struct sim_call *call)
{
    if (call->name)
        mr_trace_devices()->call(call->name, call->start_ns, mr_time_ns(), call->correlation);
}

void mr_sim_rows_device(struct mr_device *dev)
{
    const struct sim_device *sim = dev->state;
    const struct mr_recorder_devices *to = mr_trace_devices();
    char name[128];
    if (!to)
        return;
    /* millrace analyze reads the rates out of the name */
    snprintf(name, sizeof name, "simulated (h2d=%.6g d2h=%.6g pageable=%.6g GB/s)", sim->opts.h2d,
             sim->opts.d2h, sim->opts.pageable);
    to->device(sim->number, name, sim->opts.memory_bytes, 2);
}

void mr_sim_rows_stream(const struct sim_device *sim, const struct sim_stream *s)
{
    const struct mr_recorder_devices *to = mr_trace_devices();
    if (to)
        to->stream(sim->number, s->number);
}

static uint8_t copy_kind(const struct sim_op *op)
{
    if (op->peer)
        return COPY_P2P;
    if (op->engine == SIM_COMPUTE)
        return COPY_D2D;
    return op->engine == SIM_H2D ? COPY_H2D : COPY_D2H;
}

static void describe_copy(const struct sim_op *op, struct mr_recorder_work *row)
{
    const struct sim_row *of = &op->row;
    row->kind = MR_RECORDER_COPY;
    row->copy_kind = copy_kind(op);
    row->src_kind = (uint8_t)(of->src_kind + 1); /* CUPTI counts from 1 */
    row->dst_kind = (uint8_t)(of->dst_kind + 1);
    row->src_device = of->src_device ? of->src_device->number : row->device;
    row->dst_device = of->dst_device ? of->dst_device->number : row->device;
}

bool mr_sim_rows_work(struct sim_stream *s, const struct sim_op *op, uint64_t start_ns,
                      uint64_t end_ns)
{
    const struct mr_recorder_devices *to = mr_trace_devices();
    const struct sim_device *sim = s->stream->dev->state;
    if (!to)
        return false;
    if (!op->row.later)
        s->copy_start_ns = start_ns, s->copied_bytes = 0;
    s->copied_bytes += op->bytes;
    if (op->row.more)
        return true;
    struct mr_recorder_work row = {.start_ns = s->copy_start_ns,
                                   .end_ns = end_ns,
                                   .bytes = s->copied_bytes,
                                   .name = op->row.kernel,
                                   .device = sim->number,
                                   .stream = s->number,
                                   .correlation = op->row.correlation,
                                   .graph = op->row.graph,
                                   .graph_node = op->row.graph_node};
    if (row.name)
        row.kind = MR_RECORDER_KERNEL;
    else if (op->src)
        describe_copy(op, &row);
    else
        row.kind = MR_RECORDER_SET, row.dst_kind = MR_DEVICE + 1;
    to->work(&row);
    return true;
}
