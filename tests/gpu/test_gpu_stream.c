/*
 * A user's own stream and kernel, fed by a loader, on a real GPU. The driver is called as such a
 * program calls it, and found by dlopen: no toolkit is needed.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <stdbool.h>

#define N_BATCHES   32
#define BATCH       64
#define SAMPLE      784
#define PREFETCH    8

#define NOT_READY   600
#define GLOBAL_MODE 0

/* Adds byte i times i + 1, as a 32-bit number, to *out. One block. */
static const char ptx[] =
    ".version 7.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry own_sum(.param .u64 in, .param .u64 n, .param .u64 out)\n"
    "{\n"
    "    .reg .u64 %in, %n, %out, %i, %stride, %at;\n"
    "    .reg .u32 %r<6>;\n"
    "    .reg .pred %p1;\n"
    "    ld.param.u64 %in, [in];\n"
    "    ld.param.u64 %n, [n];\n"
    "    ld.param.u64 %out, [out];\n"
    "    mov.u32 %r1, %tid.x;\n"
    "    mov.u32 %r2, %ntid.x;\n"
    "    cvt.u64.u32 %i, %r1;\n"
    "    cvt.u64.u32 %stride, %r2;\n"
    "    mov.u32 %r3, 0;\n"
    "next:\n"
    "    setp.ge.u64 %p1, %i, %n;\n"
    "    @%p1 bra done;\n"
    "    add.u64 %at, %in, %i;\n"
    "    ld.global.u8 %r4, [%at];\n"
    "    cvt.u32.u64 %r5, %i;\n"
    "    add.u32 %r5, %r5, 1;\n"
    "    mad.lo.u32 %r3, %r4, %r5, %r3;\n"
    "    add.u64 %i, %i, %stride;\n"
    "    bra next;\n"
    "done:\n"
    "    red.global.add.u32 [%out], %r3;\n"
    "    ret;\n"
    "}\n";

/* The driver's calls, with its handles as pointers. */
static int (*context_retain)(void **out, int device);
static int (*context_release)(int device);
static int (*context_create)(void **out, unsigned flags, int device);
static int (*context_destroy)(void *context); /* NULL: the driver has none */
static int (*context_set)(void *context);
static int (*stream_create)(void **out, unsigned flags);
static int (*stream_destroy)(void *stream);
static int (*stream_wait)(void *stream, void *event, unsigned flags);
static int (*event_create)(void **out, unsigned flags);
static int (*event_destroy)(void *event);
static int (*event_record)(void *event, void *stream);
static int (*event_query)(void *event);
static int (*module_load)(void **out, const void *image);
static int (*module_unload)(void *module);
static int (*function_get)(void **out, void *module, const char *name);
static int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                     void **extra);
static int (*begin_capture)(void *stream, int mode);
static int (*end_capture)(void *stream, void **out);
static int (*instantiate)(void **out, void *graph, unsigned long long flags);
static int (*graph_launch)(void *exec, void *stream);
static int (*graph_destroy)(void *graph);
static int (*exec_destroy)(void *exec);

static void find_driver(void)
{
    static const struct {
        void *pointer;
        const char *symbol;
    } calls[] = {
        {&context_retain, "cuDevicePrimaryCtxRetain"},
        {&context_release, "cuDevicePrimaryCtxRelease_v2"},
        {&context_create, "cuCtxCreate_v2"},
        {&context_set, "cuCtxSetCurrent"},
        {&stream_create, "cuStreamCreate"},
        {&stream_destroy, "cuStreamDestroy_v2"},
        {&stream_wait, "cuStreamWaitEvent"},
        {&event_create, "cuEventCreate"},
        {&event_destroy, "cuEventDestroy_v2"},
        {&event_record, "cuEventRecord"},
        {&event_query, "cuEventQuery"},
        {&module_load, "cuModuleLoadData"},
        {&module_unload, "cuModuleUnload"},
        {&function_get, "cuModuleGetFunction"},
        {&launch, "cuLaunchKernel"},
        {&begin_capture, "cuStreamBeginCapture_v2"},
        {&end_capture, "cuStreamEndCapture"},
        {&instantiate, "cuGraphInstantiateWithFlags"},
        {&graph_launch, "cuGraphLaunch"},
        {&graph_destroy, "cuGraphDestroy"},
        {&exec_destroy, "cuGraphExecDestroy"},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    check(library);
    for (size_t i = 0; i < COUNT(calls); i++) {
        void *symbol = dlsym(library, calls[i].symbol);
        check(symbol);
        memcpy(calls[i].pointer, &symbol, sizeof symbol);
    }
    *(void **)(void *)&context_destroy = dlsym(library, "cuCtxDestroy_v2");
}

/* What a test needs on both sides. */
struct user {
    struct mr_device *dev;
    void *context, *native, *module, *own_sum;
    struct mr_stream *holder; /* of the library: what is occupied on purpose */
    unsigned char *sums;      /* N_BATCHES numbers on the device */
    uint32_t *back;           /* and in page-locked memory */
    volatile uint32_t *flag;  /* behind them */
    uint32_t want[N_BATCHES]; /* of the batches, by the host */
    struct mr_dataset *ds;
};

static struct mr_loader *open_loader(const struct user *u, struct mr_device *dev)
{
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.prefetch = PREFETCH;
    opts.workers = 4;
    must(mr_loader_open(u->ds, NULL, NULL, dev, &opts, &ld));
    return ld;
}

static void sum_on_host(struct user *u)
{
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader *ld = open_loader(u, NULL);
    for (int n = 0; mr_loader_next(ld, NULL, &b) > 0; n++) {
        const unsigned char *bytes = b.field[0].data;
        check(n < N_BATCHES);
        u->want[n] = 0;
        for (uint64_t i = 0; i < b.field[0].bytes; i++)
            u->want[n] += bytes[i] * (uint32_t)(i + 1);
        must(mr_loader_release(ld, &b, NULL));
    }
    mr_loader_close(ld);
}

/* own_sum of a batch, on a native stream. */
static void sum_batch(const struct user *u, const void *data, uint64_t bytes, int n, void *stream)
{
    uint64_t in = (uintptr_t)data, out = (uintptr_t)(u->sums + 4 * n);
    void *params[] = {&in, &bytes, &out};
    check(launch(u->own_sum, 1, 1, 1, 256, 1, 1, 0, stream, params, NULL) == 0);
}

static void clear_sums(const struct user *u)
{
    must(mr_memset_async(u->holder, u->sums, MR_DEVICE, 0, 4 * N_BATCHES));
    must(mr_stream_synchronize(u->holder));
}

/* Occupies a stream until let_go(), at most 10 s. */
static void hold(const struct user *u, struct mr_stream *stream)
{
    const volatile uint32_t *flag = u->flag;
    *u->flag = 0;
    must(mr_launch(stream, "wait", &flag, sizeof flag));
}

static void let_go(const struct user *u)
{
    __atomic_store_n(u->flag, 1, __ATOMIC_RELEASE);
}

/* Kernels are loaded by their first launch, which may wait for the device: not while it is held. */
static void warm_up(const struct user *u)
{
    void *native = NULL;
    must(mr_stream_native(u->holder, &native));
    hold(u, u->holder);
    let_go(u);
    sum_batch(u, u->sums, 4, 0, native);
    must(mr_stream_synchronize(u->holder));
    clear_sums(u);
}

static void begin(struct user *u, struct mr_device *dev)
{
    char uri[64];
    find_driver();
    *u = (struct user){.dev = dev};
    snprintf(uri, sizeof uri, "synthetic:n=%d,shape=%d,dtype=u8", N_BATCHES * BATCH, SAMPLE);
    must(mr_dataset_open(uri, &u->ds));
    check(context_retain(&u->context, 0) == 0 && context_set(u->context) == 0);
    check(stream_create(&u->native, 1) == 0);
    check(module_load(&u->module, ptx) == 0);
    check(function_get(&u->own_sum, u->module, "own_sum") == 0);
    u->holder = gpu_stream(dev, "holder");
    u->sums = gpu_take(dev, MR_DEVICE, 4 * N_BATCHES);
    u->back = gpu_take(dev, MR_PINNED, 4 * N_BATCHES + 64);
    u->flag = u->back + N_BATCHES;
    sum_on_host(u);
    warm_up(u);
}

static void end(struct user *u)
{
    mr_memory_release(u->dev, MR_DEVICE, u->sums, NULL);
    mr_memory_release(u->dev, MR_PINNED, u->back, NULL);
    mr_stream_destroy(u->holder);
    check(module_unload(u->module) == 0);
    check(stream_destroy(u->native) == 0); /* it is still there: wrappers were borrowed */
    check(context_set(NULL) == 0 && context_release(0) == 0);
    mr_dataset_close(u->ds);
}

static void compare(const struct user *u, struct mr_stream *stream, int n)
{
    memset(u->back, 0, 4 * N_BATCHES);
    must(mr_copy_async(stream, u->back, MR_PINNED, u->sums, MR_DEVICE, 4 * N_BATCHES));
    must(mr_stream_synchronize(stream));
    for (int i = 0; i < n; i++)
        check(u->back[i] == u->want[i]);
}

/* The default streams, too: what they are is the context's. */
static void test_own_kernel(struct mr_device *dev)
{
    struct user u;
    begin(&u, dev);
    void *handles[] = {u.native, NULL, (void *)1, (void *)2};
    for (size_t h = 0; h < COUNT(handles); h++) {
        struct mr_stream *stream = NULL;
        struct mr_batch b = {.size = sizeof b};
        void *got = &got;
        int n = 0;
        clear_sums(&u);
        must(mr_stream_wrap(dev, handles[h], &stream));
        must(mr_stream_native(stream, &got));
        check(got == handles[h]);
        struct mr_loader *ld = open_loader(&u, dev);
        while (mr_loader_next(ld, stream, &b) > 0) {
            sum_batch(&u, b.field[0].data, b.field[0].bytes, n++, handles[h]);
            must(mr_loader_release(ld, &b, stream));
        }
        check(n == N_BATCHES);
        compare(&u, stream, n);
        mr_loader_close(ld);
        mr_stream_destroy(stream);
    }
    end(&u);
}

/* The user's stream stands still, and as many batches as there are slots are taken, summed and
 * released: a call that waited for it would not return before the holder gives up. */
static void test_no_call_waits(struct mr_device *dev)
{
    struct user u;
    struct mr_stream *stream = NULL;
    struct mr_batch b = {.size = sizeof b};
    void *mark = NULL;
    begin(&u, dev);
    check(event_create(&mark, 2) == 0);
    must(mr_stream_wrap(dev, u.native, &stream));
    struct mr_loader *ld = open_loader(&u, dev);
    hold(&u, stream);
    for (int n = 0; n < PREFETCH; n++) {
        check(mr_loader_next(ld, stream, &b) == 1);
        sum_batch(&u, b.field[0].data, b.field[0].bytes, n, u.native);
        must(mr_loader_release(ld, &b, stream));
    }
    check(event_record(mark, u.native) == 0);
    check(event_query(mark) == NOT_READY); /* nothing of all that has run */
    let_go(&u);
    compare(&u, stream, PREFETCH);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    check(event_destroy(mark) == 0);
    end(&u);
}

static void test_foreign_context(struct mr_device *dev)
{
    struct user u;
    struct mr_stream *stream = NULL;
    void *context = NULL, *other = NULL;
    begin(&u, dev);
    check(context_create(&context, 0, 0) == 0);
    check(stream_create(&other, 1) == 0);
    check(mr_stream_wrap(dev, other, &stream) == MR_EMISUSE);
    check(strstr(mr_last_error(), "primary"));
    check(stream_destroy(other) == 0);
    if (context_destroy)
        check(context_destroy(context) == 0);
    check(context_set(u.context) == 0);
    end(&u);
}

static void *end_and_make(const struct user *u)
{
    void *graph = NULL, *exec = NULL;
    check(end_capture(u->native, &graph) == 0); /* else something spoiled the capture */
    check(instantiate(&exec, graph, 0) == 0);
    check(graph_destroy(graph) == 0);
    return exec;
}

/* Each batch's kernel in a graph of its own, captured in the mode that forbids most. */
static void test_batches_in_captures(struct mr_device *dev)
{
    struct user u;
    struct mr_stream *stream = NULL;
    struct mr_batch b = {.size = sizeof b};
    begin(&u, dev);
    must(mr_stream_wrap(dev, u.native, &stream));
    struct mr_loader *ld = open_loader(&u, dev);
    for (int n = 0; n < N_BATCHES; n++) {
        check(begin_capture(u.native, GLOBAL_MODE) == 0);
        check(mr_loader_next(ld, stream, &b) == 1);
        sum_batch(&u, b.field[0].data, b.field[0].bytes, n, u.native);
        check(mr_loader_release(ld, &b, stream) == MR_EMISUSE);
        void *exec = end_and_make(&u);
        check(graph_launch(exec, u.native) == 0);
        must(mr_loader_release(ld, &b, stream));
        must(mr_stream_synchronize(stream));
        check(exec_destroy(exec) == 0);
    }
    compare(&u, stream, N_BATCHES);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    end(&u);
}

/* A wait in a capture for an event that was recorded before, and has not passed. */
static void test_wait_in_a_capture(struct mr_device *dev)
{
    struct user u;
    struct mr_stream *stream = NULL;
    void *mark = NULL, *graph = NULL;
    begin(&u, dev);
    struct mr_event *before = gpu_event(dev), *within = gpu_event(dev);
    must(mr_stream_wrap(dev, u.native, &stream));
    check(event_create(&mark, 2) == 0);
    hold(&u, u.holder);
    must(mr_event_record(before, u.holder));
    check(begin_capture(u.native, GLOBAL_MODE) == 0);
    must(mr_stream_wait(stream, before));
    must(mr_event_record(within, stream));
    must(mr_stream_wait(stream, within));
    check(mr_stream_synchronize(stream) == MR_EMISUSE);
    check(mr_event_query(within) == MR_EMISUSE);
    check(mr_event_query(before) == 0);
    void *exec = end_and_make(&u);
    check(graph_launch(exec, u.native) == 0);
    check(event_record(mark, u.native) == 0);
    check(event_query(mark) == NOT_READY);
    let_go(&u);
    must(mr_stream_synchronize(stream));
    check(event_query(mark) == 0);
    check(exec_destroy(exec) == 0);

    hold(&u, u.holder);
    must(mr_event_record(before, u.holder));
    void *native = NULL;
    must(mr_event_native(before, &native));
    check(begin_capture(u.native, GLOBAL_MODE) == 0);
    int plain = stream_wait(u.native, native, 0), ended = end_capture(u.native, &graph);
    printf("  without the external flag the driver answers %d, and the capture's end %d\n", plain,
           ended);
    if (graph)
        check(graph_destroy(graph) == 0);
    let_go(&u);
    must(mr_stream_synchronize(u.holder));
    mr_event_destroy(before);
    mr_event_destroy(within);
    mr_stream_destroy(stream);
    check(event_destroy(mark) == 0);
    end(&u);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"own kernel", test_own_kernel},
        {"no call waits", test_no_call_waits},
        {"foreign context", test_foreign_context},
        {"batches in captures", test_batches_in_captures},
        {"wait in a capture", test_wait_in_a_capture},
    };
    return gpu_main(tests, COUNT(tests));
}
