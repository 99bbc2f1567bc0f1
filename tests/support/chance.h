/* A recording of chance: anything at any time, in one or two processes on two devices, crossing,
 * nested, of no length. What holds of every recording holds of these. */
#ifndef MR_TEST_CHANCE_H
#define MR_TEST_CHANCE_H

#include "recording_make.h"

#define CHANCE_EVENTS 160

static inline void chance_event(struct make *m, uint32_t i, uint32_t r)
{
    static const char *const calls[] = {"cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020",
                                        "cudaFree_v3020",         "cudaHostAlloc_v3020",
                                        "cuMemcpyDtoHAsync_v2",   "cudaEventQuery_v3020",
                                        "cudaMemset_v3020",       "cuModuleLoadData",
                                        "cuMemcpyHtoDAsync_v2"};
    static const char *const names[] = {
        "step", "data", "ncclDevKernel_AllReduce", "read",
        "poll", "gemm", "nccl:all_reduce",         "DataLoader.__next__"};
    uint64_t start = 10000 + test_u64(r) % 5000000,
             end = start + (i % 7 ? test_u64(r + 1) % 250000 : 0);
    uint32_t pick = (uint32_t)(test_u64(r + 2) % 1000), stream = 7 + pick % 3;
    m->tid = m->pid + (uint32_t)(test_u64(r + 3) % 3);
    m->device = pick % 11 == 0;
    switch (test_u64(r + 4) % 7) {
    case 0:
        make_kernel(m, stream, names[pick % 8], start, end);
        break;
    case 1:
        make_copy(m, stream, start, end, test_u64(r + 5) % (4u << 20),
                  (enum mr_copy_kind)(pick % 11), (enum mr_mem_kind)(pick % 8));
        break;
    case 2:
        make_range_of(m, NULL, pick % 5 ? MR_RANGE_PUSH_POP : MR_RANGE_START_END, names[pick % 8],
                      start, end);
        break;
    case 3:
        make_os(m, names[pick % 8], start, end, pick);
        break;
    case 4:
        make_set(m, stream, start, end, pick, (enum mr_mem_kind)(pick % 8));
        break;
    default:
        make_kernel_of(m, make_call(m, calls[pick % 9], start, end), stream, "k", start, end);
    }
}

/* The same number makes the same recording. */
static inline void chance_record(const char *path, uint32_t number)
{
    struct make m;
    make_begin(&m, path);
    if (number % 4 < 2)
        make_device(&m, 0, "Some GPU");
    for (uint32_t i = 0; i < CHANCE_EVENTS; i++) {
        if (i == CHANCE_EVENTS / 2 && number % 2)
            make_process(&m, 300, "python3 other.py");
        chance_event(&m, i, (number * 300 + i) * 6);
    }
    make_end(&m);
}

#endif
