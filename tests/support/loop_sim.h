/*
 * A training loop in a few lines of arithmetic, and the recording that a profiler would have made
 * of it: what a fault costs is known, since the same loop runs without it.
 *
 * The host's thread loads (or waits for workers), copies, launches, perhaps waits; the device has
 * one engine for copies from the host and streams in order. The host runs at most two steps ahead.
 * Times are ns.
 */
#ifndef MR_TEST_LOOP_SIM_H
#define MR_TEST_LOOP_SIM_H

#include "recording_make.h"

#define LOOP_MAX_STEPS 512

struct loop {
    uint32_t n_steps;
    uint64_t load_ns;   /* one worker, one batch */
    uint32_t n_workers; /* 0: the launching thread loads */
    uint64_t bytes;
    double pinned_rate, pageable_rate; /* bytes/ns */
    bool pageable, copy_sync, copy_stream;
    uint32_t n_kernels;
    uint64_t kernel_ns, launch_ns;
    const char *kernel;
    bool graph; /* one call launches all kernels */
    bool sync_each;
    uint64_t pin_ns, alloc_ns, own_ns, set_ns; /* of calls or code in each step; 0: none */
    uint32_t n_small;                          /* copies of 4 KiB */
    bool ranges, os, driver_api;               /* what is recorded */
    uint64_t at_ns;                            /* when it begins */
    const char *device;
};

struct loop_state {
    struct make *m;
    const struct loop *l;
    uint64_t host, stream[2], engine, ready[LOOP_MAX_STEPS], done[LOOP_MAX_STEPS], copied;
};

static inline struct loop loop_plain(void)
{
    return (struct loop){.n_steps = 40,
                         .load_ns = 1000000,
                         .n_workers = 8,
                         .bytes = 8u << 20,
                         .pinned_rate = 25,
                         .pageable_rate = 5,
                         .copy_stream = true,
                         .n_kernels = 20,
                         .kernel_ns = 150000,
                         .launch_ns = 6000,
                         .kernel = "sm90_xmma_gemm_bf16bf16_tensorop",
                         .ranges = true,
                         .os = true,
                         .at_ns = 1000000,
                         .device = "Some GPU"};
}

static inline uint64_t loop_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint32_t loop_call(struct loop_state *s, const char *runtime, const char *driver,
                                 uint64_t ns)
{
    uint32_t call = make_call(s->m, s->l->driver_api ? driver : runtime, s->host, s->host + ns);
    s->host += ns;
    return call;
}

static inline void loop_os(struct loop_state *s, const char *name, uint64_t ns)
{
    if (s->l->os && ns > 0)
        make_os(s->m, name, s->host, s->host + ns, 0);
    s->host += ns;
}

static inline void loop_load(struct loop_state *s, uint32_t i)
{
    uint64_t begin = s->host;
    const struct loop *l = s->l;
    if (l->n_workers == 0) {
        loop_os(s, "read", l->load_ns / 10);
        s->host += l->load_ns - l->load_ns / 10;
    } else {
        /* a worker makes each n-th batch, at most two ahead of what was taken: ready[] of what is
         * not yet taken is made here */
        uint64_t start = i >= l->n_workers ? s->ready[i - l->n_workers] : l->at_ns;
        if (i >= 2 * l->n_workers)
            start = loop_max(start, s->done[i - 2 * l->n_workers]);
        s->ready[i] = start + l->load_ns;
        loop_os(s, "poll", s->ready[i] > s->host ? s->ready[i] - s->host : 0);
        s->host += 15000;
    }
    if (l->ranges)
        make_range(s->m, "data", begin, s->host);
}

static inline void loop_copy(struct loop_state *s)
{
    const struct loop *l = s->l;
    uint32_t stream = l->copy_stream ? 13 : 7;
    uint64_t *free_ns = &s->stream[l->copy_stream];
    uint64_t start,
        ns = (uint64_t)((double)l->bytes / (l->pageable ? l->pageable_rate : l->pinned_rate)),
        call = s->host;
    if (l->bytes == 0)
        return;
    start = loop_max(loop_max(s->host + (l->pageable ? 40000 : 5000), *free_ns), s->engine);
    s->host = l->pageable ? start + ns + 4000 : s->host + 5000;
    uint32_t correlation = make_call(
        s->m, l->driver_api ? "cuMemcpyHtoDAsync_v2" : "cudaMemcpyAsync_v3020", call, s->host);
    make_copy_of(s->m, correlation, stream, start, start + ns, l->bytes, MR_COPY_H2D,
                 l->pageable ? MR_MEM_PAGEABLE : MR_MEM_PINNED);
    *free_ns = s->engine = s->copied = start + ns;
    if (!l->copy_sync)
        return;
    call = s->host;
    s->host = loop_max(s->host, *free_ns) + 4000;
    make_call(s->m, l->driver_api ? "cuStreamSynchronize" : "cudaStreamSynchronize_v3020", call,
              s->host);
}

static inline void loop_small(struct loop_state *s)
{
    for (uint32_t k = 0; k < s->l->n_small; k++) {
        uint32_t call = loop_call(s, "cudaMemcpyAsync_v3020", "cuMemcpyHtoDAsync_v2", 5000);
        uint64_t start = loop_max(s->host, s->stream[0]);
        make_copy_of(s->m, call, 7, start, start + 1500, 4096, MR_COPY_H2D, MR_MEM_PINNED);
        s->stream[0] = start + 1500;
    }
}

static inline void loop_kernels(struct loop_state *s, uint32_t i)
{
    const struct loop *l = s->l;
    uint64_t held = i >= 2 ? s->done[i - 2] : 0, batch = s->copied;
    uint32_t call = 0;
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        if (k == 0 || !l->graph) {
            uint64_t ns = l->launch_ns + (k == 0 && held > s->host ? held - s->host : 0);
            call = l->graph ? loop_call(s, "cudaGraphLaunch_v10000", "cuGraphLaunch", ns)
                            : loop_call(s, "cudaLaunchKernel_v7000", "cuLaunchKernel", ns);
        }
        uint64_t start = loop_max(loop_max(s->host, s->stream[0]), k == 0 ? batch : 0);
        make_kernel_of(s->m, call, 7, l->kernel, start, start + l->kernel_ns);
        s->stream[0] = start + l->kernel_ns;
    }
    s->done[i] = s->stream[0];
}

static inline void loop_hold(struct loop_state *s, const char *runtime, const char *driver,
                             uint64_t ns, bool drains)
{
    if (ns == 0)
        return;
    uint64_t wait = drains && s->stream[0] > s->host ? s->stream[0] - s->host : 0;
    loop_call(s, runtime, driver, wait + ns);
}

static inline void loop_rest(struct loop_state *s)
{
    const struct loop *l = s->l;
    loop_hold(s, "cudaHostAlloc_v3020", "cuMemHostAlloc", l->pin_ns, true);
    loop_hold(s, "cudaFree_v3020", "cuMemFree_v2", l->alloc_ns, true);
    if (l->set_ns > 0) {
        uint64_t start = loop_max(s->host + 5000, s->stream[0]), call = s->host;
        s->host = start + l->set_ns + 4000;
        uint32_t correlation =
            make_call(s->m, l->driver_api ? "cuMemsetD8_v2" : "cudaMemset_v3020", call, s->host);
        make_put(s->m, MR_PART_SET,
                 &(struct mr_part_set){.start_ns = MAKE_BASE + start,
                                       .end_ns = MAKE_BASE + start + l->set_ns,
                                       .bytes = 1 << 20,
                                       .device = s->m->device,
                                       .context = s->m->context,
                                       .stream = 7,
                                       .correlation = correlation,
                                       .kind = MR_MEM_PINNED});
        s->stream[0] = start + l->set_ns;
    }
    if (l->sync_each)
        loop_hold(s, "cudaStreamSynchronize_v3020", "cuStreamSynchronize", 8000, true);
    s->host += l->own_ns;
}

/* Runs the loop into a recording that was begun; returns what a step takes in the end. */
static inline double loop_run(struct make *m, const struct loop *l)
{
    struct loop_state s = {.m = m, .l = l, .host = l->at_ns};
    uint64_t begin = 0;
    assert_true(l->n_steps > 10 && l->n_steps <= LOOP_MAX_STEPS);
    if (l->device)
        make_device(m, m->device, l->device);
    if (l->copy_stream) { /* the first batch; then each step's while the one before is computed */
        loop_load(&s, 0);
        loop_copy(&s);
    }
    for (uint32_t i = 0; i < l->n_steps; i++) {
        begin = s.host;
        if (!l->copy_stream) {
            loop_load(&s, i);
            loop_copy(&s);
        }
        loop_small(&s);
        loop_kernels(&s, i);
        if (l->copy_stream && i + 1 < l->n_steps) {
            loop_load(&s, i + 1);
            loop_copy(&s);
        }
        loop_rest(&s);
        if (l->ranges)
            make_range(m, "step", begin, s.host);
    }
    return (double)(s.done[l->n_steps - 1] - s.done[l->n_steps / 2]) /
           (l->n_steps - 1 - l->n_steps / 2);
}

/* Makes a recording of one loop; [out] out_step_ns. */
static inline struct mr_recording *loop_record(const char *path, const struct loop *l,
                                               double *out_step_ns)
{
    struct make m;
    make_begin(&m, path);
    double step_ns = loop_run(&m, l);
    for (uint32_t w = 0; w < l->n_workers; w++) {
        make_process(&m, 200 + w, "python3 train.py");
        make_os(&m, "read", l->at_ns, l->at_ns + l->n_steps * (uint64_t)step_ns, 4096);
    }
    make_end(&m);
    if (out_step_ns)
        *out_step_ns = step_ns;
    return make_load(path);
}

#endif
