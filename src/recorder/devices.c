/* Simulated devices of the library of this project: rows as CUPTI makes them of a GPU's work. */
#include "recorder/record.h"
#include "trace/recorder.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORK (MR_TRACE_CUDA | MR_TRACE_CUDA_LIGHT)

static bool wants(void)
{
    return record_wants(WORK) && !record_is_busy();
}

/* Another device in each process, whatever its number: those of two containers may have the same
 * pid. */
static void make_uuid(uint32_t device, uint8_t uuid[16])
{
    static const uint8_t kind[6] = {'m', 'r', '-', 's', 'i', 'm'};
    static atomic_uint_fast64_t first_ns; /* of the process */
    struct timespec now = {0};
    uint16_t number = (uint16_t)device;
    uint_fast64_t none = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    atomic_compare_exchange_strong(&first_ns, &none,
                                   (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    uint64_t process = atomic_load(&first_ns) ^ (uint64_t)getpid() * 0x9e3779b97f4a7c15ull;
    memcpy(uuid, kind, sizeof kind);
    memcpy(uuid + 6, &number, sizeof number);
    memcpy(uuid + 8, &process, sizeof process);
}

static void put_device(uint32_t device, const char *name, uint64_t memory_bytes,
                       uint32_t n_copy_engines)
{
    if (!record_ever_wants(WORK) || record_is_busy())
        return;
    struct mr_part_device row = {.device = device,
                                 .name = record_string(name),
                                 .n_copy_engines = n_copy_engines,
                                 .memory_bytes = memory_bytes};
    struct mr_part_context context = {.context = device + 1, .device = device};
    make_uuid(device, row.uuid);
    record_put(MR_PART_DEVICE, &row);
    record_put(MR_PART_CONTEXT, &context);
}

static void put_stream(uint32_t device, uint32_t stream)
{
    struct mr_part_stream row = {.stream = stream, .context = device + 1};
    if (record_ever_wants(WORK) && !record_is_busy())
        record_put(MR_PART_STREAM, &row);
}

static void put_call(const char *name, uint64_t start_ns, uint64_t end_ns, uint32_t correlation)
{
    if (!wants())
        return;
    struct mr_part_api row = {.start_ns = start_ns,
                              .end_ns = end_ns > start_ns ? end_ns : start_ns + 1,
                              .correlation = correlation,
                              .tid = record_tid(),
                              .name = record_string(name),
                              .class = MR_PART_RUNTIME};
    record_put(MR_PART_API, &row);
}

#define PLACE(w)                                                                                   \
    .start_ns = (w)->start_ns,                                                                     \
    .end_ns = (w)->end_ns > (w)->start_ns ? (w)->end_ns : (w)->start_ns + 1, .graph = (w)->graph,  \
    .graph_node = (w)->graph_node, .device = (w)->device, .context = (w)->device + 1,              \
    .stream = (w)->stream, .correlation = (w)->correlation

static void put_kernel(const struct mr_recorder_work *work)
{
    struct mr_part_kernel row = {PLACE(work), .name = record_string(work->name), .grid = {1, 1, 1},
                                 .block = {1, 1, 1}};
    if (record_wants(MR_TRACE_CUDA))
        record_put(MR_PART_KERNEL, &row);
}

static void put_work(const struct mr_recorder_work *work)
{
    if (!wants())
        return;
    struct mr_part_copy copy = {PLACE(work),
                                .bytes = work->bytes,
                                .src_device = work->src_device,
                                .dst_device = work->dst_device,
                                .count = 1,
                                .kind = work->copy_kind,
                                .src_kind = work->src_kind,
                                .dst_kind = work->dst_kind,
                                .flags = 1}; /* asynchronous */
    struct mr_part_set set = {PLACE(work), .bytes = work->bytes, .kind = work->dst_kind};
    if (work->kind == MR_RECORDER_KERNEL)
        put_kernel(work);
    else if (work->kind == MR_RECORDER_COPY)
        record_put(MR_PART_COPY, &copy);
    else
        record_put(MR_PART_SET, &set);
}

RECORD_EXPORT mr_recorder_get_devices_fn mr_recorder_get_devices;
RECORD_EXPORT const struct mr_recorder_devices *mr_recorder_get_devices(uint32_t version)
{
    static const struct mr_recorder_devices devices = {wants, put_device, put_stream, put_call,
                                                       put_work};
    return version == MR_RECORDER_DEVICES_VERSION && record_ever_wants(WORK) ? &devices : NULL;
}
