/*
 * A recording like a small training script's: a main thread that gets a batch from two loader
 * threads, copies it, launches a network's kernels and waits for the loss each step; a copy stream
 * and a compute stream. Times are drawn, always the same.
 */
#ifndef MR_TEST_TRAINING_MAKE_H
#define MR_TEST_TRAINING_MAKE_H

#include "recording_make.h"

struct training {
    struct make m;
    uint32_t draw;
    uint64_t host_ns;            /* the main thread's clock */
    uint64_t copied_ns, done_ns; /* when the streams are free */
};

#define TRAINING_COMPUTE 7
#define TRAINING_COPY    13

/* Within 15 % of what is said. */
static inline uint64_t training_about(struct training *t, uint64_t ns)
{
    return ns * 85 / 100 + test_u64(t->draw++) % (ns * 30 / 100 + 1);
}

static inline void training_call(struct training *t, const char *name, uint64_t ns)
{
    uint64_t end = t->host_ns + training_about(t, ns);
    make_call(&t->m, name, t->host_ns, end);
    t->host_ns = end + training_about(t, 900);
}

static inline void training_kernel(struct training *t, const char *name, uint64_t ns)
{
    training_call(t, "cudaLaunchKernel_v7000", 3500);
    uint64_t start = MR_MAX(t->done_ns + 700, t->host_ns + 2500);
    t->done_ns = start + training_about(t, ns);
    make_kernel_of(&t->m, t->m.correlation, TRAINING_COMPUTE, name, start, t->done_ns);
}

static inline void training_layers(struct training *t, int layers, bool backward)
{
    static const char *const forward[] = {
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_256x128>(Params)",
        "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >(int)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true>(cudnnTensor)"};
    static const char *const back[] = {
        "sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_nhwckrsc_nhwc_tilesize128x128x32",
        "sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f32_f32_nhwckrsc_nhwc",
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)"};
    for (int i = 0; i < layers; i++) {
        training_kernel(t, backward ? back[0] : forward[0], backward ? 190000 : 120000);
        training_kernel(t, backward ? back[1] : forward[1], backward ? 170000 : 14000);
        training_kernel(t, backward ? back[2] : forward[2], backward ? 42000 : 30000);
    }
}

static inline void training_copy(struct training *t, bool pageable)
{
    uint64_t bytes = 1024ull * 3 * 64 * 64, start = t->host_ns + 9000,
             ns = training_about(t, pageable ? 2100000 : 520000);
    uint64_t from = MR_MAX(start, t->copied_ns),
             call = pageable ? from + ns + 4000 - t->host_ns : 6000;
    uint32_t correlation = make_call(&t->m, "cudaMemcpyAsync_v3020", t->host_ns, t->host_ns + call);
    make_copy_of(&t->m, correlation, TRAINING_COPY, from, from + ns, bytes, MR_COPY_H2D,
                 pageable ? MR_MEM_PAGEABLE : MR_MEM_PINNED);
    t->host_ns += call + 1500;
    t->copied_ns = from + ns;
    training_call(t, "cudaEventRecord_v3020", 1800);
    training_call(t, "cudaStreamWaitEvent_v3020", 1500);
    t->done_ns = MR_MAX(t->done_ns, t->copied_ns);
}

static inline void training_item(struct training *t)
{
    uint64_t start = t->host_ns, end = t->done_ns + 21000;
    make_call(&t->m, "cudaMemcpyAsync_v3020", start, start + 5000);
    make_copy_of(&t->m, t->m.correlation, TRAINING_COMPUTE, t->done_ns + 4000, t->done_ns + 6000, 4,
                 MR_COPY_D2H, MR_MEM_PAGEABLE);
    make_sync(&t->m, TRAINING_COMPUTE, start + 5500, MR_MAX(end, start + 9000));
    t->done_ns += 6000;
    t->host_ns = MR_MAX(end, start + 9000) + 3000;
}

static inline void training_step(struct training *t, int step, bool pageable)
{
    char name[32];
    uint64_t begin = t->host_ns, at = begin;
    snprintf(name, sizeof(name), "step %d", step);
    uint64_t wait = training_about(t, step % 9 == 5 ? 6500000 : 1900000);
    make_os(&t->m, "futex", at + 20000, at + wait - 30000, 0);
    make_range(&t->m, "DataLoader.__next__", at, at + wait);
    t->host_ns = at = at + wait + 8000;
    training_copy(t, pageable);
    make_range(&t->m, "copy", at, t->host_ns);
    at = t->host_ns + 2000;
    t->host_ns = at + 3000;
    make_set(&t->m, TRAINING_COMPUTE, MR_MAX(t->done_ns, t->host_ns) + 6000,
             MR_MAX(t->done_ns, t->host_ns) + 9000, 1 << 20, MR_MEM_DEVICE);
    t->host_ns += 9000;
    t->done_ns = MR_MAX(t->done_ns, t->host_ns) + 9000;
    training_layers(t, 9, false);
    make_range(&t->m, "forward", at, t->host_ns);
    at = t->host_ns + 2000;
    t->host_ns = at + 3000;
    training_layers(t, 9, true);
    make_range(&t->m, "backward", at, t->host_ns);
    at = t->host_ns + 2000;
    t->host_ns = at + 3000;
    training_kernel(t,
                    "void at::native::multi_tensor_apply_kernel<FusedSgdMathFunctor<float> "
                    ">(TensorListMetadata)",
                    95000);
    make_range(&t->m, "optimizer.step", at, t->host_ns);
    at = t->host_ns + 2000;
    t->host_ns = at + 3000;
    training_item(t);
    make_range(&t->m, "loss.item", at, t->host_ns);
    t->host_ns += 12000;
    make_range(&t->m, name, begin, t->host_ns - 4000);
}

/* What the loaders do all the time. */
static inline void training_loader(struct training *t, uint32_t tid, uint64_t end_ns)
{
    t->m.tid = tid;
    for (uint64_t at = training_about(t, 200000); at + 9000000 < end_ns;) {
        uint64_t begin = at;
        for (int i = 0; i < 6; i++) {
            uint64_t read = training_about(t, 350000), decode = training_about(t, 900000);
            make_os(&t->m, "read", at + 3000, at + read, 110000 + test_u64(t->draw++) % 40000);
            make_range(&t->m, "decode", at + read + 2000, at + read + decode);
            at += read + decode + 10000;
        }
        make_range(&t->m, "collate", at, at + 400000);
        at += 420000;
        make_range(&t->m, "load batch", begin, at);
        make_os(&t->m, "pthread_cond_wait", at + 5000, at + training_about(t, 600000), 0);
        at += 800000;
    }
    t->m.tid = 100;
}

#define TRAINING_PEAK (832ull << 20) /* bytes of the device's memory at most */

/* Weights and their gradients; something large for two steps; and the release of what was there
 * before. */
static inline void training_memory(struct training *t, int step, bool begins)
{
    if (step == 0 && begins) {
        make_memory(&t->m, 2, 0x10000000, 64ull << 20, false, 25000);
        make_memory(&t->m, 2, 0x20000000, 256ull << 20, false, 100000);
        make_memory(&t->m, 1, 0x70000000, 4ull << 20, false, 200000);
        make_memory(&t->m, 2, 0x60000000, 96ull << 20, true, 300000);
    }
    if (step == 2 || step == 4)
        make_memory(&t->m, 2, 0x30000000, 512ull << 20, step == 4, t->host_ns);
}

/* Returns when it ends. */
static inline uint64_t training_make(const char *path, int steps, bool pageable)
{
    struct training t = {.host_ns = 400000};
    make_begin(&t.m, path);
    make_device(&t.m, 0, "NVIDIA H200");
    make_stream(&t.m, TRAINING_COPY, 2);
    make_thread(&t.m, 100, "python3");
    make_thread(&t.m, 101, "loader-0");
    make_thread(&t.m, 102, "loader-1");
    make_call(&t.m, "cudaMalloc_v3020", 20000, 180000);
    make_call(&t.m, "cudaHostAlloc_v3020", 190000, 390000);
    make_thread(&t.m, 103, "cuda-EvtHandlr");
    training_memory(&t, 0, true);
    for (int i = 0; i < steps; i++) {
        training_memory(&t, i, false);
        training_step(&t, i, pageable);
    }
    t.m.tid = 103;
    for (uint64_t at = 100000; at + 5000000 < t.host_ns; at += 5000000)
        make_os(&t.m, "poll", at, at + 4999000, 0);
    t.m.tid = 100;
    training_loader(&t, 101, t.host_ns);
    training_loader(&t, 102, t.host_ns);
    for (uint64_t at = 0; at < t.host_ns; at += 500000)
        make_metric(&t.m, "SM Active [%]", 0, at, (double)(test_u64(t.draw++) % 60 + 30));
    make_note(&t.m, "dropped", 12, NULL);
    make_note(&t.m, "no_metrics", 0,
              "DRAM throughput is not recorded: the driver allows it to administrators only");
    make_note(&t.m, "exit", (int64_t)(MAKE_BASE + t.host_ns), NULL);
    make_end(&t.m);
    return t.host_ns;
}

/* Many events: kernels on four streams, each with its call, in three processes' worth of ranges. */
static inline void training_make_many(const char *path, uint64_t n)
{
    struct make m;
    uint32_t draw = 0;
    char name[48];
    make_begin(&m, path);
    make_device(&m, 0, "NVIDIA H200");
    for (uint64_t i = 0, at = 100000; i < n / 2; i++) {
        uint64_t r = test_u64(draw++), pause = r % 4000 == 0 ? 9000000 : 0;
        snprintf(name, sizeof(name), "kernel_%llu", (unsigned long long)(r >> 20) % 60);
        at += 4000 + r % 9000 + pause;
        if (i % 40 == 17)
            make_copy(&m, 13, at, at + 3000 + (r >> 8) % 20000, 1 << 18,
                      i % 80 == 17 ? MR_COPY_H2D : MR_COPY_D2H, MR_MEM_PINNED);
        else
            make_kernel(&m, 7 + (uint32_t)(i % 4), name, at, at + 2000 + (r >> 8) % 9000);
        if (i % 500 == 0)
            make_range(&m, "step", at, at + 3900000);
    }
    make_end(&m);
}

#endif
