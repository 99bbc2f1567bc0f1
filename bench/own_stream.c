/*
 * A consumer with a stream and a kernel of its own, as bench/own_stream.sh compares it with feed's:
 * the stream is made by the driver, found by dlopen, and wrapped; the kernel reads every byte of
 * each batch.
 *
 * usage: own_stream DATASET BATCH_SIZE EPOCHS [MODE...]
 *   builtin: a stream of the library's and no kernel; none: the own stream and no kernel; launch: a
 *   kernel that ends at once; touch (default): the kernel; hold: and the last 8 batches are held;
 *   any: and batches are released in the stream that stands for all; link, link-touch: driver calls
 *   alone copy as many bytes from page-locked memory, without and with the kernel
 * Runs one after the other as millrace feed DATASET --cache host --shuffle does, with one device.
 * Prints a line of JSON for each, with the processor time of a batch in this thread and in all.
 * WORKERS: the loader's, else as many as it takes. Exit code 77: there is no GPU here.
 */
#include <dlfcn.h>
#include <millrace/millrace.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Each thread adds up words of 4 bytes, and writes only if the sum is a number that it is not. */
static const char ptx[] = ".version 7.0\n"
                          ".target sm_50\n"
                          ".address_size 64\n"
                          ".visible .entry touch(.param .u64 in, .param .u64 n)\n"
                          "{\n"
                          "    .reg .u64 %in, %n, %i, %stride, %at, %t;\n"
                          "    .reg .u32 %r<8>;\n"
                          "    .reg .pred %p1;\n"
                          "    ld.param.u64 %in, [in];\n"
                          "    ld.param.u64 %n, [n];\n"
                          "    mov.u32 %r1, %ctaid.x;\n"
                          "    mov.u32 %r2, %ntid.x;\n"
                          "    mov.u32 %r3, %tid.x;\n"
                          "    mov.u32 %r4, %nctaid.x;\n"
                          "    mul.wide.u32 %i, %r1, %r2;\n"
                          "    cvt.u64.u32 %t, %r3;\n"
                          "    add.u64 %i, %i, %t;\n"
                          "    mul.wide.u32 %stride, %r4, %r2;\n"
                          "    mov.u32 %r6, 0;\n"
                          "next:\n"
                          "    setp.ge.u64 %p1, %i, %n;\n"
                          "    @%p1 bra done;\n"
                          "    shl.b64 %at, %i, 2;\n"
                          "    add.u64 %at, %in, %at;\n"
                          "    ld.global.u32 %r5, [%at];\n"
                          "    or.b32 %r6, %r6, %r5;\n"
                          "    add.u64 %i, %i, %stride;\n"
                          "    bra next;\n"
                          "done:\n"
                          "    setp.ne.u32 %p1, %r6, 4294967295;\n"
                          "    @%p1 bra end;\n"
                          "    st.global.u32 [%in], %r6;\n"
                          "end:\n"
                          "    ret;\n"
                          "}\n";

static int (*context_retain)(void **out, int device);
static int (*context_set)(void *context);
static int (*stream_create)(void **out, unsigned flags);
static int (*stream_destroy)(void *stream);
static int (*module_load)(void **out, const void *image);
static int (*function_get)(void **out, void *module, const char *name);
static int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                     void **extra);
static int (*host_alloc)(void **out, size_t bytes, unsigned flags);
static int (*host_free)(void *memory);
static int (*device_alloc)(uint64_t *out, size_t bytes);
static int (*device_free)(uint64_t memory);
static int (*copy_in)(uint64_t to, const void *from, size_t bytes, void *stream);
static int (*event_create)(void **out, unsigned flags);
static int (*event_destroy)(void *event);
static int (*event_record)(void *event, void *stream);
static int (*stream_wait)(void *stream, void *event, unsigned flags);
static int (*stream_synchronize)(void *stream);

static void fail(const char *what)
{
    fprintf(stderr, "own_stream: %s\n", what);
    exit(1);
}

static void must(int rc)
{
    if (rc < 0)
        fail(mr_last_error());
}

static void driver(int result, const char *call)
{
    char text[96];
    snprintf(text, sizeof text, "%s: CUDA error %d", call, result);
    if (result != 0)
        fail(text);
}

static void find_driver(void)
{
    static const struct {
        void *pointer;
        const char *symbol;
    } calls[] = {
        {&context_retain, "cuDevicePrimaryCtxRetain"},
        {&context_set, "cuCtxSetCurrent"},
        {&stream_create, "cuStreamCreate"},
        {&stream_destroy, "cuStreamDestroy_v2"},
        {&module_load, "cuModuleLoadData"},
        {&function_get, "cuModuleGetFunction"},
        {&launch, "cuLaunchKernel"},
        {&host_alloc, "cuMemHostAlloc"},
        {&host_free, "cuMemFreeHost"},
        {&device_alloc, "cuMemAlloc_v2"},
        {&device_free, "cuMemFree_v2"},
        {&copy_in, "cuMemcpyHtoDAsync_v2"},
        {&event_create, "cuEventCreate"},
        {&event_destroy, "cuEventDestroy_v2"},
        {&event_record, "cuEventRecord"},
        {&stream_wait, "cuStreamWaitEvent"},
        {&stream_synchronize, "cuStreamSynchronize"},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *symbol = library ? dlsym(library, calls[i].symbol) : NULL;
        if (!symbol)
            fail(calls[i].symbol);
        memcpy(calls[i].pointer, &symbol, sizeof symbol);
    }
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#define HELD 8

struct consumer {
    struct mr_stream *stream, *last; /* last: that batches are released in */
    void *native, *touch;            /* touch NULL: no kernel */
    unsigned n_held;                 /* batches held beside the newest */
    bool reads;                      /* the kernel reads the batch; 0: it ends at once */
};

/* Returns the time from the first batch to the end of the last one's work. */
static uint64_t consume(struct mr_loader *loader, const struct consumer *c, uint64_t *out_samples)
{
    static struct mr_batch held[HELD + 1];
    uint64_t from = 0, samples = 0, taken = 0;
    int rc;
    for (unsigned i = 0; i <= HELD; i++)
        held[i].size = sizeof held[i];
    while ((rc = mr_loader_next(loader, c->stream, &held[taken % (c->n_held + 1)])) > 0) {
        struct mr_batch *batch = &held[taken++ % (c->n_held + 1)];
        uint64_t in = (uint64_t)(uintptr_t)batch->field[0].data,
                 n = c->reads ? batch->field[0].bytes / 4 : 0;
        void *params[] = {&in, &n};
        if (from)
            samples += batch->n; /* as feed counts: from the first batch on */
        else
            from = mr_time_ns();
        if (c->touch)
            driver(launch(c->touch, 64, 1, 1, 256, 1, 1, 0, c->native, params, NULL),
                   "cuLaunchKernel");
        if (taken > c->n_held)
            must(mr_loader_release(loader, &held[taken % (c->n_held + 1)], c->last));
    }
    must(rc);
    must(mr_stream_synchronize(c->stream));
    *out_samples = samples;
    return mr_time_ns() - from;
}

/* What all runs share. */
struct bench {
    struct mr_device *device;
    struct mr_dataset *ds;
    struct mr_sampler *sampler;
    struct mr_loader_opts opts;
    struct mr_stream *own, *wrapped;
    void *native, *touch;
};

static void open_bench(struct bench *b, char **argv)
{
    void *context = NULL;
    find_driver();
    driver(context_retain(&context, 0), "cuDevicePrimaryCtxRetain");
    driver(context_set(context), "cuCtxSetCurrent");
    driver(stream_create(&b->native, 1), "cuStreamCreate");
    must(mr_stream_create(b->device, "use", &b->own));
    must(mr_stream_wrap(b->device, b->native, &b->wrapped));
    must(mr_dataset_open(argv[1], &b->ds));
    must(mr_sampler_open("random", mr_dataset_length(b->ds), 0, &b->sampler));
    mr_loader_opts_init(&b->opts);
    b->opts.cache = MR_CACHE_HOST;
    if (getenv("WORKERS"))
        b->opts.workers = (uint32_t)strtoul(getenv("WORKERS"), NULL, 10);
    b->opts.batch_size = strtoull(argv[2], NULL, 10);
    b->opts.epochs = strtoull(argv[3], NULL, 10);
}

static void close_bench(struct bench *b)
{
    mr_stream_destroy(b->own);
    mr_stream_destroy(b->wrapped);
    driver(stream_destroy(b->native), "cuStreamDestroy_v2");
    mr_sampler_destroy(b->sampler);
    mr_dataset_close(b->ds);
    mr_device_close(b->device);
}

static void load_kernel(struct bench *b)
{
    void *module = NULL;
    if (b->touch)
        return;
    driver(module_load(&module, ptx), "cuModuleLoadData");
    driver(function_get(&b->touch, module, "touch"), "cuModuleGetFunction");
}

struct link_slot {
    void *host, *copied, *used;
    uint64_t device;
};

/* The slots take turns: a copy waits for the kernel that read its slot, a kernel for its copy. */
#define LINK_SLOTS 16
static uint64_t link_batches(const struct bench *b, struct link_slot *slot, void *copies,
                             uint64_t bytes, uint64_t batches, bool touches)
{
    uint64_t from = mr_time_ns(), n = bytes / 4;
    for (uint64_t i = 0; i < batches; i++) {
        struct link_slot *s = &slot[i % LINK_SLOTS];
        void *params[] = {&s->device, &n};
        if (i >= LINK_SLOTS)
            driver(stream_wait(copies, s->used, 0), "cuStreamWaitEvent");
        driver(copy_in(s->device, s->host, bytes, copies), "cuMemcpyHtoDAsync");
        driver(event_record(s->copied, copies), "cuEventRecord");
        driver(stream_wait(b->native, s->copied, 0), "cuStreamWaitEvent");
        if (touches)
            driver(launch(b->touch, 64, 1, 1, 256, 1, 1, 0, b->native, params, NULL),
                   "cuLaunchKernel");
        driver(event_record(s->used, b->native), "cuEventRecord");
    }
    driver(stream_synchronize(b->native), "cuStreamSynchronize");
    return mr_time_ns() - from;
}

static void run_link(struct bench *b, const char *mode)
{
    struct link_slot slot[LINK_SLOTS];
    void *copies;
    uint64_t bytes, batches;
    must(mr_spec_bytes(mr_dataset_field(b->ds, 0), &bytes));
    bytes *= b->opts.batch_size;
    batches = mr_dataset_length(b->ds) / b->opts.batch_size * b->opts.epochs;
    load_kernel(b);
    driver(stream_create(&copies, 1), "cuStreamCreate");
    for (int i = 0; i < LINK_SLOTS; i++) {
        driver(host_alloc(&slot[i].host, bytes, 1), "cuMemHostAlloc");
        memset(slot[i].host, i, bytes);
        driver(device_alloc(&slot[i].device, bytes), "cuMemAlloc");
        driver(event_create(&slot[i].copied, 2), "cuEventCreate");
        driver(event_create(&slot[i].used, 2), "cuEventCreate");
    }
    uint64_t ns = link_batches(b, slot, copies, bytes, batches, strcmp(mode, "link") != 0);
    printf("{\"mode\": \"%s\", \"samples\": %llu, \"warm_samples_per_s\": %.0f}\n", mode,
           (unsigned long long)(batches * b->opts.batch_size),
           (double)(batches * b->opts.batch_size) * 1e9 / (double)ns);
    fflush(stdout);
    for (int i = 0; i < LINK_SLOTS; i++) {
        driver(event_destroy(slot[i].copied), "cuEventDestroy");
        driver(event_destroy(slot[i].used), "cuEventDestroy");
        driver(device_free(slot[i].device), "cuMemFree");
        driver(host_free(slot[i].host), "cuMemFreeHost");
    }
    driver(stream_destroy(copies), "cuStreamDestroy");
}

static void run(struct bench *b, const char *mode)
{
    struct mr_loader *loader = NULL;
    bool builtin = strcmp(mode, "builtin") == 0;
    struct consumer c = {.stream = builtin ? b->own : b->wrapped, .native = b->native};
    uint64_t samples = 0;
    if (!builtin && strcmp(mode, "none") != 0) {
        load_kernel(b);
        c.touch = b->touch;
    }
    c.last = strcmp(mode, "any") == 0 ? mr_stream_any(b->device) : c.stream;
    c.n_held = strcmp(mode, "hold") == 0 ? HELD : 0;
    c.reads = strcmp(mode, "launch") != 0;
    must(mr_loader_open(b->ds, b->sampler, NULL, b->device, &b->opts, &loader));
    uint64_t own = clock_ns(CLOCK_THREAD_CPUTIME_ID), all = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t ns = consume(loader, &c, &samples);
    double batches = (double)samples / (double)b->opts.batch_size + 1;
    printf("{\"mode\": \"%s\", \"samples\": %llu, \"warm_samples_per_s\": %.0f, "
           "\"thread_us\": %.2f, \"process_us\": %.2f}\n",
           mode, (unsigned long long)samples, (double)samples * 1e9 / (double)(ns ? ns : 1),
           (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - own) / 1e3 / batches,
           (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - all) / 1e3 / batches);
    fflush(stdout);
    mr_loader_close(loader);
}

int main(int argc, char **argv)
{
    static char *usual[] = {"touch"};
    struct bench b = {0};
    if (argc < 4)
        fail("usage: own_stream DATASET BATCH_SIZE EPOCHS "
             "[builtin|none|launch|touch|hold|any|link|link-touch]...");
    int rc = mr_device_open("cuda", &b.device);
    if (rc == MR_ENODEVICE) {
        printf("%s\n", mr_last_error());
        return 77;
    }
    must(rc);
    open_bench(&b, argv);
    char **mode = argc > 4 ? argv + 4 : usual;
    for (int i = 0; i < (argc > 4 ? argc - 4 : 1); i++) {
        if (strncmp(mode[i], "link", 4) == 0)
            run_link(&b, mode[i]);
        else
            run(&b, mode[i]);
    }
    close_bench(&b);
    return 0;
}
