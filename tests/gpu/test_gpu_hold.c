/*
 * Batches whose page-locked host memory a program copies from on streams that the loader does not
 * know, as frameworks do: the memory is written again only behind an event that covers all streams.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <stdbool.h>

#define BATCH   64
#define SAMPLE  4096
#define BYTES   (BATCH * SAMPLE)
#define N       (BATCH * 64)
#define HOLD_NS (50 * MS)

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    memset(row[0], (int)(index / BATCH % 251), SAMPLE);
    return 0;
}

static struct mr_loader *open_loader(struct mr_device *dev, int on_host, struct mr_dataset **ds)
{
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    struct mr_loader *ld = NULL;
    mr_callback_opts_init(&o);
    o.name = "numbers";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {SAMPLE}};
    o.get = get;
    must(mr_dataset_open_callback(&o, ds));
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.prefetch = 2;
    opts.workers = 4;
    opts.epochs = 0;
    opts.on_host = on_host;
    must(mr_loader_open(*ds, NULL, NULL, dev, &opts, &ld));
    return ld;
}

/* Copies the host half of a batch on `own`, which is busy for a while, releases the batch in
 * `stream`, lets others take its slot, and returns how many bytes of the copy are not the batch's.
 */
static uint64_t copy_late(struct mr_device *dev, struct mr_loader *ld, struct mr_stream *own,
                          struct mr_stream *stream)
{
    struct mr_batch batch = {.size = sizeof batch};
    unsigned char *far = gpu_take(dev, MR_DEVICE, BYTES), *back = gpu_take(dev, MR_PINNED, BYTES);
    uint64_t wrong = 0;
    must(mr_loader_next(ld, NULL, &batch));
    unsigned char expected = *(const unsigned char *)batch.field[0].host;
    gpu_busy(own, HOLD_NS);
    must(mr_copy_async(own, far, MR_DEVICE, batch.field[0].host, MR_PINNED, BYTES));
    must(mr_loader_release(ld, &batch, stream));
    for (int i = 0; i < 8; i++) {
        must(mr_loader_next(ld, NULL, &batch));
        must(mr_loader_release(ld, &batch, NULL));
    }
    must(mr_copy_async(own, back, MR_PINNED, far, MR_DEVICE, BYTES));
    must(mr_stream_synchronize(own));
    for (uint64_t i = 0; i < BYTES; i++)
        wrong += back[i] != expected;
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_PINNED, back, NULL);
    return wrong;
}

static void check_reopening(struct mr_device *dev, int on_host)
{
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = open_loader(dev, on_host, &ds);
    struct mr_stream *own = gpu_stream(dev, "own");
    for (int i = 0; i < 4; i++)
        check(copy_late(dev, ld, own, mr_stream_any(dev)) == 0);
    /* Without the event the copy reads what workers write meanwhile: so the check above works. */
    check(copy_late(dev, ld, own, NULL) > 0);
    mr_loader_close(ld);
    mr_stream_destroy(own);
    mr_dataset_close(ds);
}

static void reopens_behind_all_streams(struct mr_device *dev)
{
    check_reopening(dev, 0);
    check_reopening(dev, 1);
}

#define FIND(pointer, symbol) *(void **)(void *)&(pointer) = dlsym(driver, symbol)
/* The GPU's primary context is this thread's from now on, as it is of a program that captures. */
static void use_context(void *driver)
{
    int (*retain)(void **out, int device) = NULL;
    int (*set)(void *context) = NULL;
    void *context = NULL;
    FIND(retain, "cuDevicePrimaryCtxRetain");
    FIND(set, "cuCtxSetCurrent");
    check(retain(&context, 0) == 0);
    check(set(context) == 0);
}

/* Released during a capture: the slot is another's until the capture ends, and the capture holds.
 */
static void check_captures(struct mr_device *dev, int on_host)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *native = NULL, *graph = NULL;
    int (*begin)(void *stream, int mode) = NULL;
    int (*end)(void *stream, void **graph) = NULL;
    int (*destroy)(void *graph) = NULL;
    FIND(begin, "cuStreamBeginCapture_v2");
    FIND(end, "cuStreamEndCapture");
    FIND(destroy, "cuGraphDestroy");
    use_context(driver);
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = open_loader(dev, on_host, &ds);
    struct mr_stream *own = gpu_stream(dev, "own"), *captured = gpu_stream(dev, "captured");
    unsigned char *far = gpu_take(dev, MR_DEVICE, BYTES);
    must(mr_stream_native(captured, &native));
    for (int mode = 0; mode < 3; mode++) {
        must(mr_device_capture_begin(dev));
        check(begin(native, mode) == 0);
        must(mr_memset_async(captured, far, MR_DEVICE, 1, BYTES));
        check(copy_late(dev, ld, own, mr_stream_any(dev)) == 0);
        must(mr_memset_async(captured, far, MR_DEVICE, 2, BYTES));
        check(end(native, &graph) == 0);
        must(mr_device_capture_end(dev));
        destroy(graph);
        check(copy_late(dev, ld, own, mr_stream_any(dev)) == 0);
    }
    mr_loader_close(ld);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_stream_destroy(own);
    mr_stream_destroy(captured);
    mr_dataset_close(ds);
    dlclose(driver);
}

static void survives_captures(struct mr_device *dev)
{
    check_captures(dev, 0);
    check_captures(dev, 1);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"reopens behind all streams", reopens_behind_all_streams},
        {"survives captures", survives_captures},
    };
    return gpu_main(tests, COUNT(tests));
}
