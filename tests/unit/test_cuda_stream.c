/* Streams and events of other libraries, on a driver that is not there. */
#include "run_loader.h"

#include "fake.h"

#define BYTES 4096

/* The driver's calls as a user's program makes them. */
struct native;
static int (*stream_create)(struct native **out, unsigned flags);
static int (*stream_destroy)(struct native *stream);
static int (*stream_synchronize)(struct native *stream);
static int (*event_create)(struct native **out, unsigned flags);
static int (*event_destroy)(struct native *event);
static int (*event_record)(struct native *event, struct native *stream);
static int (*event_query)(struct native *event);
static int (*begin_capture)(struct native *stream, int mode);
static int (*end_capture)(struct native *stream, struct native **out);
static int (*instantiate)(struct native **out, struct native *graph, unsigned long long flags);
static int (*graph_launch)(struct native *exec, struct native *stream);
static int (*graph_destroy)(struct native *graph);
static int (*exec_destroy)(struct native *exec);
static int (*context_create)(void **out, unsigned flags, int device);
static int (*context_retain)(void **out, int device);
static int (*context_release)(int device);

#define FIND(pointer, symbol) *(void **)(void *)&(pointer) = dlsym(RTLD_DEFAULT, symbol)
static void find_driver(void)
{
    FIND(stream_create, "cuStreamCreate");
    FIND(stream_destroy, "cuStreamDestroy_v2");
    FIND(stream_synchronize, "cuStreamSynchronize");
    FIND(event_create, "cuEventCreate");
    FIND(event_destroy, "cuEventDestroy_v2");
    FIND(event_record, "cuEventRecord");
    FIND(event_query, "cuEventQuery");
    FIND(begin_capture, "cuStreamBeginCapture_v2");
    FIND(end_capture, "cuStreamEndCapture");
    FIND(instantiate, "cuGraphInstantiateWithFlags");
    FIND(graph_launch, "cuGraphLaunch");
    FIND(graph_destroy, "cuGraphDestroy");
    FIND(exec_destroy, "cuGraphExecDestroy");
    FIND(context_create, "cuCtxCreate_v2");
    FIND(context_retain, "cuDevicePrimaryCtxRetain");
    FIND(context_release, "cuDevicePrimaryCtxRelease_v2");
}

static struct mr_device *dev;
static struct native *native;     /* a stream in the primary context of cuda:0 */
static struct mr_stream *wrapped; /* that one */
static unsigned char *host, *far;
static volatile uint32_t *flag;

static int open_all(void **state)
{
    (void)state;
    void *context = NULL, *ptr = NULL;
    must(mr_device_open("cuda", &dev));
    assert_int_equal(context_retain(&context, 0), 0);
    fake_set_current(context);
    assert_int_equal(stream_create(&native, 1), 0);
    must(mr_stream_wrap(dev, native, &wrapped));
    must(mr_memory_acquire(dev, MR_PINNED, 3 * BYTES, &ptr));
    host = ptr;
    must(mr_memory_acquire(dev, MR_DEVICE, BYTES, &ptr));
    far = ptr;
    flag = (volatile uint32_t *)(void *)(host + 2 * BYTES);
    *flag = 0;
    for (uint64_t i = 0; i < BYTES; i++)
        host[i] = (unsigned char)mr_mix64(i);
    memset(host + BYTES, 0, BYTES);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_stream_destroy(wrapped);
    assert_int_equal(stream_destroy(native), 0);
    mr_device_close(dev);
    context_release(0);
    fake_set_current(NULL);
    if (fake_left())
        fail_msg("%s", fake_left());
    return 0;
}

/* Occupies a stream until release_stream(). */
static void hold(struct mr_stream *stream)
{
    const volatile uint32_t *p = flag;
    *flag = 0;
    must(mr_launch(stream, "wait", &p, sizeof p));
}

static void let_go(void)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void there_and_back(struct mr_stream *stream)
{
    struct mr_copy both[2] = {{far, host, BYTES / 2, MR_DEVICE, MR_PINNED},
                              {far + BYTES / 2, host + BYTES / 2, BYTES / 2, MR_DEVICE, MR_PINNED}};
    memset(host + BYTES, 0, BYTES);
    must(mr_copy_batch_async(stream, both, 2));
    must(mr_copy_async(stream, host + BYTES, MR_PINNED, far, MR_DEVICE, BYTES));
    must(mr_stream_synchronize(stream));
    assert_memory_equal(host, host + BYTES, BYTES);
}

static void handles_are_those(void **state)
{
    (void)state;
    void *handles[] = {NULL, (void *)1, (void *)2, native}, *got = &got;
    for (size_t i = 0; i < MR_COUNT(handles); i++) {
        struct mr_stream *stream = NULL;
        must(mr_stream_wrap(dev, handles[i], &stream));
        must(mr_stream_native(stream, &got));
        assert_ptr_equal(got, handles[i]);
        there_and_back(stream);
        mr_stream_destroy(stream);
    }
    struct mr_stream *own = NULL;
    must(mr_stream_create(dev, "own", &own));
    must(mr_stream_native(own, &got));
    assert_int_equal(stream_synchronize(got), 0); /* it is one that the driver knows */
    mr_stream_destroy(own);
}

static void borrowed_is_left_alone(void **state)
{
    (void)state;
    struct fake_cuda_report r[2];
    struct mr_stream *stream = NULL;
    struct mr_event *event = NULL;
    struct native *mark = NULL;
    uint64_t calls, blocking[2];
    void *got = NULL;
    assert_int_equal(event_create(&mark, 2), 0);
    must(mr_stream_wrap(dev, native, &stream));
    must(mr_event_wrap(dev, mark, 0, &event));
    must(mr_event_native(event, &got));
    assert_ptr_equal(got, mark);
    hold(stream);
    must(mr_event_record(event, stream));
    fake_report(&r[0]);
    fake_thread(&calls, &blocking[0]);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
    fake_thread(&calls, &blocking[1]);
    fake_report(&r[1]);
    assert_int_equal(blocking[1], blocking[0]);
    assert_true(r[1].streams == r[0].streams && r[1].events == r[0].events);
    assert_int_equal(event_query(mark), 600); /* the work is still there: not ready */
    let_go();
    assert_int_equal(stream_synchronize(native), 0);
    assert_int_equal(event_query(mark), 0);
    assert_int_equal(event_destroy(mark), 0);
}

static void refused(int rc, int code, const char *says)
{
    if (rc != code || !strstr(mr_last_error(), says))
        fail_msg("%d \"%s\", expected %d and \"%s\"", rc, mr_last_error(), code, says);
}

static void foreign_ones_are_refused(void **state)
{
    (void)state;
    struct native *other = NULL, *gone = NULL;
    struct mr_stream *stream = NULL;
    struct mr_event *event = NULL;
    void *home = fake_current(), *context = NULL;
    assert_int_equal(context_retain(&context, 1), 0);
    fake_set_current(context);
    assert_int_equal(stream_create(&other, 1), 0);
    refused(mr_stream_wrap(dev, other, &stream), MR_EMISUSE, "opened as cuda:1");
    assert_ptr_equal(fake_current(), context);
    assert_int_equal(stream_destroy(other), 0);
    assert_int_equal(context_create(&context, 0, 0), 0);
    assert_int_equal(stream_create(&other, 1), 0);
    refused(mr_stream_wrap(dev, other, &stream), MR_EMISUSE, "primary");
    assert_int_equal(stream_destroy(other), 0);
    fake_set_current(home);
    assert_int_equal(context_release(1), 0);
    assert_int_equal(stream_create(&gone, 1), 0);
    assert_int_equal(stream_destroy(gone), 0);
    refused(mr_stream_wrap(dev, gone, &stream), MR_EDEVICE, "cuStreamGetCtx");
    refused(mr_event_wrap(dev, NULL, 0, &event), MR_EMISUSE, "NULL");
    assert_null(stream);
    assert_null(event);
}

/* A user's event that is gone while its wrapper is there, as the driver notices it: each call
 * fails, none blocks, and memory that was released behind it is freed with the device. */
static void destroyed_events_are_errors(void **state)
{
    (void)state;
    struct native *gone = NULL;
    struct mr_event *event = NULL;
    struct mr_stream *own = NULL;
    void *ptr = NULL;
    int64_t ns;
    assert_int_equal(event_create(&gone, 0), 0);
    must(mr_event_wrap(dev, gone, 1, &event));
    must(mr_stream_create(dev, "own", &own));
    must(mr_event_record(event, own));
    assert_int_equal(event_destroy(gone), 0);
    refused(mr_event_query(event), MR_EDEVICE, "cuEventQuery");
    refused(mr_event_synchronize(event), MR_EDEVICE, "cuEventSynchronize");
    refused(mr_event_record(event, own), MR_EDEVICE, "cuEventRecord");
    refused(mr_stream_wait(own, event), MR_EDEVICE, "cuStreamWaitEvent");
    assert_true(mr_event_elapsed(event, event, &ns) < 0);
    must(mr_memory_acquire(dev, MR_DEVICE, 3 * BYTES, &ptr));
    mr_memory_release(dev, MR_DEVICE, ptr, event);
    must(mr_copy_async(own, far, MR_DEVICE, host, MR_PINNED, BYTES)); /* the stream goes on */
    must(mr_stream_synchronize(own));
    mr_event_destroy(event);
    mr_stream_destroy(own);
    assert_true(fake_forgive() >= 4);
}

static void others_have_none(void **state)
{
    (void)state;
    static const char *const uris[] = {"cpu", "sim"};
    for (size_t i = 0; i < MR_COUNT(uris); i++) {
        struct mr_device *d = NULL;
        struct mr_stream *stream = NULL, *got = NULL;
        struct mr_event *event = NULL, *mark = NULL;
        void *ptr = NULL;
        must(mr_device_open(uris[i], &d));
        must(mr_stream_create(d, "s", &stream));
        must(mr_event_create(d, 0, &event));
        refused(mr_stream_wrap(d, NULL, &got), MR_EUNSUPPORTED, "mr_stream_create()");
        refused(mr_event_wrap(d, stream, 0, &mark), MR_EUNSUPPORTED, "mr_event_create()");
        refused(mr_stream_native(stream, &ptr), MR_EUNSUPPORTED, uris[i]);
        refused(mr_event_native(event, &ptr), MR_EUNSUPPORTED, uris[i]);
        assert_true(!got && !mark && !ptr);
        mr_event_destroy(event);
        mr_stream_destroy(stream);
        mr_device_close(d);
    }
}

/* An event wrapped twice is one event: what one side records, the other waits for. */
static void events_order(void **state)
{
    (void)state;
    struct native *mark = NULL;
    struct mr_event *event = NULL;
    struct mr_stream *own = NULL;
    assert_int_equal(event_create(&mark, 0), 0);
    must(mr_event_wrap(dev, mark, 1, &event));
    must(mr_stream_create(dev, "own", &own));
    hold(wrapped);
    must(mr_copy_async(wrapped, far, MR_DEVICE, host, MR_PINNED, BYTES));
    assert_int_equal(event_record(mark, native), 0); /* by the user's own call */
    must(mr_stream_wait(own, event));
    must(mr_copy_async(own, host + BYTES, MR_PINNED, far, MR_DEVICE, BYTES));
    assert_int_equal(mr_event_query(event), 0);
    let_go();
    must(mr_stream_synchronize(own));
    assert_int_equal(mr_event_query(event), 1);
    assert_memory_equal(host, host + BYTES, BYTES);
    mr_stream_destroy(own);
    mr_event_destroy(event);
    assert_int_equal(event_destroy(mark), 0);
}

/* Memory behind a wrapped event is not handed out early because the wrapper is gone. */
static void memory_waits_for_it(void **state)
{
    (void)state;
    struct native *mark = NULL;
    struct mr_event *event = NULL;
    struct mr_stream *own = NULL;
    unsigned char *again;
    void *ptr = NULL;
    assert_int_equal(event_create(&mark, 2), 0);
    must(mr_event_wrap(dev, mark, 0, &event));
    must(mr_stream_create(dev, "own", &own));
    hold(own);
    must(mr_event_record(event, own));
    must(mr_memory_acquire(dev, MR_DEVICE, 3 * BYTES, &ptr));
    mr_memory_release(dev, MR_DEVICE, ptr, event);
    let_go();
    mr_event_destroy(event);
    assert_int_equal(event_query(mark), 0); /* it has passed: the wrapper's end waited */
    again = ptr;
    must(mr_memory_acquire(dev, MR_DEVICE, 3 * BYTES, &ptr));
    assert_ptr_equal(ptr, again);
    mr_memory_release(dev, MR_DEVICE, ptr, NULL);
    mr_stream_destroy(own);
    assert_int_equal(event_destroy(mark), 0);
}

/* The event is of one GPU, the stream of the other. */
static void gpus_wait_for_each_other(void **state)
{
    (void)state;
    struct mr_device *peer = NULL;
    struct mr_stream *there = NULL;
    struct mr_event *here = NULL, *after = NULL;
    must(mr_device_open("cuda:1", &peer));
    must(mr_stream_create(peer, "there", &there));
    must(mr_event_create(dev, 0, &here));
    must(mr_event_create(peer, 0, &after));
    hold(wrapped);
    must(mr_event_record(here, wrapped));
    must(mr_stream_wait(there, here));
    must(mr_event_record(after, there));
    assert_int_equal(mr_event_query(after), 0);
    let_go();
    must(mr_event_synchronize(after));
    assert_int_equal(mr_event_query(here), 1);
    refused(mr_event_record(here, there), MR_EMISUSE, "different devices");
    mr_event_destroy(here);
    mr_event_destroy(after);
    mr_stream_destroy(there);
    mr_device_close(peer);
}

static struct mr_loader *open_loader(struct mr_dataset **ds, uint64_t n)
{
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    char uri[64];
    snprintf(uri, sizeof uri, "synthetic:n=%llu,shape=64,dtype=u8", (unsigned long long)n);
    must(mr_dataset_open(uri, ds));
    mr_loader_opts_init(&opts);
    opts.batch_size = 64;
    opts.prefetch = 4;
    opts.workers = 2;
    must(mr_loader_open(*ds, NULL, NULL, dev, &opts, &ld));
    return ld;
}

/* Batches of a loader on the user's stream: the right bytes, and no call that blocks. */
static void loaders_feed_it(void **state)
{
    (void)state;
    static unsigned char want[BYTES];
    struct mr_dataset *ds = NULL;
    struct mr_stream *elsewhere = NULL;
    struct mr_device *peer = NULL;
    struct mr_batch b = {.size = sizeof b};
    uint64_t calls, blocking[2], n = 0;
    struct mr_loader *ld = open_loader(&ds, 20 * 64ull);
    must(mr_device_open("cuda:1", &peer));
    must(mr_stream_create(peer, "elsewhere", &elsewhere));
    refused(mr_loader_next(ld, elsewhere, &b), MR_EMISUSE, "another device");
    fake_thread(&calls, &blocking[0]);
    while (mr_loader_next(ld, wrapped, &b) > 0) {
        must(mr_copy_async(wrapped, host + BYTES, MR_PINNED, b.field[0].data, MR_DEVICE, BYTES));
        if (n++ % 8 == 7) { /* between, a look at the bytes */
            fake_thread(&calls, &blocking[1]);
            assert_int_equal(blocking[1], blocking[0]);
            must(mr_stream_synchronize(wrapped));
            for (uint64_t i = 0; i < 64; i++) {
                void *rows[] = {want + i * 64};
                must(mr_dataset_read(ds, b.indices[i], rows, NULL));
            }
            assert_memory_equal(host + BYTES, want, BYTES);
            fake_thread(&calls, &blocking[0]);
        }
        refused(mr_loader_release(ld, &b, elsewhere), MR_EMISUSE, "another device");
        must(mr_loader_release(ld, &b, wrapped));
    }
    fake_thread(&calls, &blocking[1]);
    assert_int_equal(blocking[1], blocking[0]);
    assert_int_equal(n, 20);
    must(mr_stream_synchronize(wrapped));
    mr_loader_close(ld);
    mr_dataset_close(ds);
    mr_stream_destroy(elsewhere);
    mr_device_close(peer);
}

static struct native *end_and_make(void)
{
    struct native *graph = NULL, *exec = NULL;
    assert_int_equal(end_capture(native, &graph), 0); /* 901: something spoiled the capture */
    assert_int_equal(instantiate(&exec, graph, 0), 0);
    assert_int_equal(graph_destroy(graph), 0);
    return exec;
}

/* A batch is taken while the stream is captured, in the mode that forbids most. */
static void batches_in_a_capture(void **state)
{
    (void)state;
    struct mr_dataset *ds = NULL;
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader *ld = open_loader(&ds, 20 * 64ull);
    for (int n = 0; n < 20; n++) {
        assert_int_equal(begin_capture(native, 0), 0);
        assert_int_equal(mr_loader_next(ld, wrapped, &b), 1);
        must(mr_copy_async(wrapped, host + BYTES, MR_PINNED, b.field[0].data, MR_DEVICE, BYTES));
        refused(mr_loader_release(ld, &b, wrapped), MR_EMISUSE, "after that");
        struct native *exec = end_and_make();
        assert_int_equal(graph_launch(exec, native), 0);
        must(mr_loader_release(ld, &b, wrapped)); /* it was still held */
        must(mr_stream_synchronize(wrapped));
        assert_int_equal(exec_destroy(exec), 0);
    }
    assert_int_equal(mr_loader_next(ld, wrapped, &b), 0);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

/* An event from before the capture that has not passed: each launch of the graph waits for it. */
static void waits_in_a_capture(void **state)
{
    (void)state;
    struct mr_event *before = NULL, *within = NULL;
    struct mr_stream *own = NULL;
    must(mr_stream_create(dev, "own", &own));
    must(mr_event_create(dev, 0, &before));
    must(mr_event_create(dev, 1, &within));
    hold(own);
    must(mr_copy_async(own, far, MR_DEVICE, host, MR_PINNED, BYTES));
    must(mr_event_record(before, own));
    assert_int_equal(begin_capture(native, 0), 0);
    must(mr_stream_wait(wrapped, before));
    must(mr_event_record(within, wrapped));
    must(mr_stream_wait(wrapped, within));
    refused(mr_event_query(within), MR_EMISUSE, "graph");
    refused(mr_event_synchronize(within), MR_EMISUSE, "graph");
    refused(mr_stream_synchronize(wrapped), MR_EMISUSE, "captured");
    assert_int_equal(mr_event_query(before), 0); /* other streams may be looked at */
    must(mr_copy_async(wrapped, host + BYTES, MR_PINNED, far, MR_DEVICE, BYTES));
    struct native *exec = end_and_make();
    assert_int_equal(graph_launch(exec, native), 0);
    assert_int_equal(host[BYTES + 1], 0);
    let_go();
    must(mr_stream_synchronize(wrapped));
    assert_memory_equal(host, host + BYTES, BYTES);
    must(mr_event_record(within, wrapped)); /* works again outside of a capture */
    must(mr_event_synchronize(within));
    assert_int_equal(exec_destroy(exec), 0);
    mr_event_destroy(within);
    mr_event_destroy(before);
    mr_stream_destroy(own);
}

/* Our own graphs of a wrapped stream. */
static void it_records_graphs(void **state)
{
    (void)state;
    struct mr_graph *graph = NULL;
    must(mr_graph_begin(wrapped));
    must(mr_copy_async(wrapped, far, MR_DEVICE, host, MR_PINNED, BYTES));
    must(mr_copy_async(wrapped, host + BYTES, MR_PINNED, far, MR_DEVICE, BYTES));
    must(mr_graph_end(wrapped, &graph));
    must(mr_graph_launch(graph, wrapped));
    must(mr_stream_synchronize(wrapped));
    assert_memory_equal(host, host + BYTES, BYTES);
    mr_graph_destroy(graph);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_all, close_all)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(handles_are_those),        TEST(borrowed_is_left_alone),
        TEST(foreign_ones_are_refused), TEST(destroyed_events_are_errors),
        TEST(others_have_none),         TEST(events_order),
        TEST(memory_waits_for_it),      TEST(gpus_wait_for_each_other),
        TEST(loaders_feed_it),          TEST(batches_in_a_capture),
        TEST(waits_in_a_capture),       TEST(it_records_graphs),
    };
    fake_load();
    find_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
