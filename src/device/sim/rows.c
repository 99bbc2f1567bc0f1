/*
 * The simulated accelerator's work as rows of a recording (trace/recorder.h): its calls, and what
 * its engines did, a copy in pieces as one. While nobody records, a call reads one pointer.
 */
#include "device/sim/sim.h"

#include "trace/trace.h"

#include <dlfcn.h>
#include <stdio.h>

/* Beside CUDA in one process, which may come later: far from the numbers of its calls, and of its
 * GPUs if it is there. */
#define BEHIND_GPUS  64u
#define BEHIND_CALLS 0x40000000u

static atomic_uint n_calls;

uint32_t mr_sim_rows_first(void)
{
    void *cuda = mr_trace_devices() ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!cuda)
        return 0;
    dlclose(cuda);
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
    call.correlation = BEHIND_CALLS + 1 + atomic_fetch_add(&n_calls, 1) % (BEHIND_CALLS - 1);
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

static uint32_t number_of(const struct sim_device *device, uint32_t own)
{
    return device ? device->number : own;
}

/* Of the stream's copy, where it came in pieces. */
static void put(const struct sim_stream *s, const struct sim_row *row, uint64_t end_ns)
{
    uint32_t device = ((const struct sim_device *)s->stream->dev->state)->number;
    struct mr_recorder_work work = {
        .kind = row->kernel ? MR_RECORDER_KERNEL
                : row->copy ? MR_RECORDER_COPY
                            : MR_RECORDER_SET,
        .start_ns = s->copy_start_ns,
        .end_ns = end_ns,
        .bytes = s->copied_bytes,
        .name = row->kernel,
        .device = device,
        .stream = s->number,
        .correlation = row->correlation,
        .graph = row->graph,
        .graph_node = row->graph_node,
        .src_device = number_of(row->src_device, device),
        .dst_device = number_of(row->dst_device, device),
        .copy_kind = (uint8_t)row->copy,
        .src_kind = (uint8_t)(row->src_kind + 1), /* CUPTI counts from 1 */
        .dst_kind = (uint8_t)(row->dst_kind + 1),
    };
    mr_trace_devices()->work(&work);
}

void mr_sim_rows_staged(const struct sim_stream *s, const struct sim_row *row, uint64_t end_ns)
{
    if (mr_trace_devices())
        put(s, row, end_ns);
}

bool mr_sim_rows_work(struct sim_stream *s, const struct sim_op *op, uint64_t start_ns,
                      uint64_t end_ns)
{
    if (!mr_trace_devices())
        return false;
    if (!op->row.later) {
        s->copy_start_ns = op->row.start_ns ? op->row.start_ns : start_ns;
        s->copied_bytes = 0;
    }
    s->copied_bytes += op->bytes;
    if (!op->row.more && !op->row.staged_out)
        put(s, &op->row, end_ns);
    return true;
}
