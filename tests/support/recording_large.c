/*
 * Makes a large recording of a training loop that never ran: for measuring what reads recordings
 * (bench/report.sh), and for tests of the program.
 * usage: recording_make FILE RECORDS [JSON]
 *
 * Of each 100 records 46 are API calls, 40 kernels of 64 names, 6 copies, 2 memsets, 4 NVTX ranges
 * and 2 OS calls. With JSON the same events are written as Chrome's trace format too, an object a
 * line, as other tools do it.
 */
#include "recording/recording.h"

#include <inttypes.h>
#include <string.h>

#define BASE 1000000000000ull

struct make {
    struct mr_store *store;
    FILE *json;
    uint64_t now, n; /* ns, records */
    uint32_t correlation;
    uint32_t kernels[64], launch, copy, set, sync, step, forward, read;
};

static uint64_t draw(struct make *m)
{
    return mr_mix64(m->n + 1);
}

static void check(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "recording_make: %s\n", mr_last_error());
        exit(1);
    }
}

static uint32_t name(struct make *m, const char *text)
{
    return mr_store_string(m->store, text, strlen(text));
}

static void put_json(struct make *m, const char *text, const char *kind, const char *thread,
                     uint64_t start, uint64_t end, const char *args)
{
    if (m->json)
        fprintf(m->json,
                ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":100,\"tid\":%s,\"ts\":%."
                "3f,\"dur\":%.3f,"
                "\"args\":{%s}}",
                kind, text, thread, (double)start / 1e3, (double)(end - start) / 1e3, args);
}

static void put_call(struct make *m, const char *text, uint32_t number, uint64_t start,
                     uint64_t end)
{
    char args[64];
    check(mr_store_put(m->store, MR_PART_API,
                       &(struct mr_part_api){.start_ns = BASE + start,
                                             .end_ns = BASE + end,
                                             .correlation = ++m->correlation,
                                             .tid = 100,
                                             .name = number,
                                             .class = MR_PART_RUNTIME}));
    snprintf(args, sizeof args, "\"correlation\":%u", m->correlation);
    put_json(m, text, "cuda_runtime", "100", start, end, args);
    m->n++;
}

static void put_kernel(struct make *m, uint64_t start)
{
    char args[256], text[160];
    uint32_t k = (uint32_t)(draw(m) % 64);
    uint64_t end = start + 2000 + draw(m) % 30000;
    check(mr_store_put(m->store, MR_PART_KERNEL,
                       &(struct mr_part_kernel){.start_ns = BASE + start,
                                                .end_ns = BASE + end,
                                                .context = 1,
                                                .stream = 7,
                                                .correlation = m->correlation,
                                                .name = m->kernels[k],
                                                .grid = {1024, 1, 1},
                                                .block = {256, 1, 1},
                                                .registers = 40}));
    snprintf(args, sizeof args,
             "\"correlation\":%u,\"device\":0,\"context\":1,\"stream\":7,\"grid\":[1024,1,1],"
             "\"block\":[256,1,1],"
             "\"registers per thread\":40,\"shared memory\":0",
             m->correlation);
    snprintf(text, sizeof text,
             "void at::native::vectorized_elementwise_kernel<4, functor_%u>(int, functor_%u)", k,
             k);
    put_json(m, text, "kernel", "7", start, end, args);
    m->n++;
}

static void put_copy(struct make *m, uint64_t start)
{
    char args[256];
    uint64_t bytes = 4096 + draw(m) % 4000000, end = start + 1000 + bytes / 50;
    check(mr_store_put(
        m->store, MR_PART_COPY,
        &(struct mr_part_copy){.start_ns = BASE + start,
                               .end_ns = BASE + end,
                               .bytes = bytes,
                               .context = 1,
                               .stream = 13,
                               .correlation = m->correlation,
                               .count = 1,
                               .kind = draw(m) % 8 ? MR_COPY_H2D : MR_COPY_D2H,
                               .src_kind = draw(m) % 8 ? MR_MEM_PINNED : MR_MEM_DEVICE,
                               .dst_kind = draw(m) % 8 ? MR_MEM_DEVICE : MR_MEM_PINNED}));
    snprintf(args, sizeof args,
             "\"correlation\":%u,\"device\":0,\"context\":1,\"stream\":13,\"bytes\":%" PRIu64,
             m->correlation, bytes);
    put_json(m, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", "13", start, end, args);
    m->n++;
}

static void put_set(struct make *m, uint64_t start)
{
    char args[256];
    check(mr_store_put(m->store, MR_PART_SET,
                       &(struct mr_part_set){.start_ns = BASE + start,
                                             .end_ns = BASE + start + 1500,
                                             .bytes = 4096,
                                             .context = 1,
                                             .stream = 7,
                                             .correlation = m->correlation,
                                             .kind = MR_MEM_DEVICE}));
    snprintf(args, sizeof args,
             "\"correlation\":%u,\"device\":0,\"context\":1,\"stream\":7,\"bytes\":4096",
             m->correlation);
    put_json(m, "Memset (Device)", "gpu_memset", "7", start, start + 1500, args);
    m->n++;
}

static void put_range(struct make *m, uint32_t number, const char *text, uint64_t start,
                      uint64_t end)
{
    check(mr_store_put(m->store, MR_PART_RANGE,
                       &(struct mr_part_range){.start_ns = BASE + start,
                                               .end_ns = BASE + end,
                                               .text = number,
                                               .tid = 100,
                                               .type = MR_RANGE_PUSH_POP}));
    put_json(m, text, "user_annotation", "100", start, end, "");
    m->n++;
}

static void put_os(struct make *m, uint64_t start, uint64_t end)
{
    check(mr_store_put(m->store, MR_PART_OS,
                       &(struct mr_part_os){.start_ns = BASE + start,
                                            .end_ns = BASE + end,
                                            .bytes = 65536,
                                            .name = m->read,
                                            .tid = 101}));
    put_json(m, "read", "os", "101", start, end, "\"bytes\":65536");
    m->n++;
}

/* 100 records: a step. */
static void put_step(struct make *m)
{
    uint64_t begin = m->now, at = begin;
    for (int i = 0; i < 40; i++, at += 9000) {
        put_call(m, "cudaLaunchKernel", m->launch, at, at + 3000 + draw(m) % 2000);
        put_kernel(m, at + 6000);
        if (i % 8 == 3) {
            put_call(m, "cudaMemcpyAsync", m->copy, at + 6000, at + 8000);
            put_copy(m, at + 12000);
        }
    }
    put_copy(m, at);
    put_set(m, at);
    put_set(m, at + 2000);
    put_call(m, "cudaStreamSynchronize", m->sync, at, at + 20000 + draw(m) % 5000);
    put_range(m, m->forward, "forward", begin, begin + 100000);
    put_range(m, m->forward, "forward", begin + 100000, begin + 200000);
    put_range(m, m->forward, "forward", begin + 200000, at);
    put_range(m, m->step, "step", begin, at + 30000);
    put_os(m, begin, begin + 50000);
    put_os(m, begin + 60000, begin + 90000);
    m->now = at + 40000;
}

static void begin(struct make *m, const char *path)
{
    char text[128];
    struct mr_part_header header = {.version = MR_PART_VERSION,
                                    .pid = 100,
                                    .ppid = 1,
                                    .start_ns = BASE,
                                    .traced = MR_TRACE_CUDA | MR_TRACE_NVTX | MR_TRACE_OSRT};
    memcpy(header.magic, MR_PART_MAGIC, sizeof header.magic);
    check(mr_store_create(path, true, &m->store));
    check(mr_store_process(m->store, &header));
    for (uint32_t k = 0; k < 64; k++) {
        snprintf(text, sizeof text,
                 "void at::native::vectorized_elementwise_kernel<4, functor_%u>(int, functor_%u)",
                 k, k);
        m->kernels[k] = name(m, text);
    }
    m->launch = name(m, "cudaLaunchKernel_v7000");
    m->copy = name(m, "cudaMemcpyAsync_v3020");
    m->sync = name(m, "cudaStreamSynchronize_v3020");
    m->step = name(m, "step");
    m->forward = name(m, "forward");
    m->read = name(m, "read");
}

int main(int argc, char **argv)
{
    struct make m = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: recording_make FILE RECORDS [JSON]\n");
        return 2;
    }
    if (argc > 3 && !(m.json = fopen(argv[3], "w"))) {
        perror(argv[3]);
        return 1;
    }
    if (m.json)
        fputs("{\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":100,\"args\":{"
              "\"name\":\"train\"}}",
              m.json);
    begin(&m, argv[1]);
    uint64_t want = strtoull(argv[2], NULL, 10);
    while (m.n < want)
        put_step(&m);
    check(mr_store_finish(m.store));
    if (m.json && (fputs("]}\n", m.json) < 0 || fclose(m.json) != 0)) {
        perror(argv[3]);
        return 1;
    }
    printf("%" PRIu64 " records\n", m.n);
    return 0;
}
