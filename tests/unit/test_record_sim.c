/* A simulated device in a recording: its rows say what the run did, and each belongs to its
 * call. */
#include "record_run.h"

#include <millrace/device.h>
#include <millrace/trace.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 90 + 1;                                                              \
    } while (0)

#define N_COPIES   24
#define N_GRAPHS   3
#define MIB        (1u << 20)
#define LATENCY_NS 20000u
#define BUSY_NS    300000u
#define URI        "sim:h2d=2,d2h=1,pageable=0.5,latency=20us,peer=4"

/* What run_work() asks for: the test knows the same. */
static uint64_t bytes_of(int i)
{
    return 4096 + (uint64_t)i * 150001 % (3 * MIB);
}

static bool to_device(int i)
{
    return i % 3 != 2;
}

static enum mr_memory host_of(int i)
{
    return i % 2 ? MR_PAGEABLE : MR_PINNED;
}

static int run_copies(struct mr_stream *stream, void *const host[2], void *device)
{
    for (int i = 0; i < N_COPIES; i++) {
        enum mr_memory kind = host_of(i);
        int rc = to_device(i)
                     ? mr_copy_async(stream, device, MR_DEVICE, host[kind], kind, bytes_of(i))
                     : mr_copy_async(stream, host[kind], kind, device, MR_DEVICE, bytes_of(i));
        EXPECT(rc == 0);
    }
    return 0;
}

static int run_graph(struct mr_stream *stream, char *device)
{
    uint64_t busy_ns = BUSY_NS;
    struct mr_graph *graph;
    EXPECT(mr_graph_begin(stream) == 0);
    EXPECT(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns) == 0);
    EXPECT(mr_memset_async(stream, device, MR_DEVICE, 1, 777) == 0);
    EXPECT(mr_graph_end(stream, &graph) == 0);
    for (int i = 0; i < N_GRAPHS; i++)
        EXPECT(mr_graph_launch(graph, stream) == 0);
    EXPECT(mr_stream_synchronize(stream) == 0);
    mr_graph_destroy(graph);
    return 0;
}

static int run_rest(struct mr_device *dev, struct mr_stream *stream, char *device)
{
    uint64_t busy_ns = BUSY_NS;
    void *there;
    struct mr_device *other;
    EXPECT(mr_device_open(URI, &other) == 0);
    EXPECT(mr_memory_acquire(other, MR_DEVICE, MIB, &there) == 0);
    EXPECT(mr_copy_async(stream, device, MR_DEVICE, device + MIB, MR_DEVICE, 12345) == 0);
    EXPECT(mr_memset_async(stream, device, MR_DEVICE, 7, 54321) == 0);
    EXPECT(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns) == 0);
    EXPECT(mr_copy_peer_async(stream, there, other, device, dev, MIB) == 0);
    EXPECT(run_graph(stream, device) == 0);
    mr_memory_release(other, MR_DEVICE, there, NULL);
    mr_device_close(other);
    return 0;
}

/* Everything, and as a counter the time that events say the copies took. */
static int run_work(void)
{
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_event *begin, *end;
    void *host[2] = {calloc(1, 4 * MIB), NULL}, *device;
    int64_t elapsed;
    EXPECT(mr_device_open(URI, &dev) == 0 && mr_stream_create(dev, "work", &stream) == 0);
    EXPECT(mr_memory_acquire(dev, MR_PINNED, 4 * MIB, &host[MR_PINNED]) == 0);
    EXPECT(mr_memory_acquire(dev, MR_DEVICE, 4 * MIB, &device) == 0);
    EXPECT(mr_event_create(dev, 1, &begin) == 0 && mr_event_create(dev, 1, &end) == 0);
    EXPECT(mr_event_record(begin, stream) == 0);
    EXPECT(run_copies(stream, host, device) == 0);
    EXPECT(mr_event_record(end, stream) == 0 && mr_event_synchronize(end) == 0);
    EXPECT(mr_event_elapsed(begin, end, &elapsed) == 0);
    mr_trace_counter("elapsed", 1, elapsed);
    EXPECT(run_rest(dev, stream, device) == 0);
    mr_event_destroy(begin);
    mr_event_destroy(end);
    mr_memory_release(dev, MR_PINNED, host[MR_PINNED], NULL);
    mr_memory_release(dev, MR_DEVICE, device, NULL);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    free(host[MR_PAGEABLE]);
    return 0;
}

/* A device of the parent's, then one of the child's, which has a part of its own. */
static int run_fork(void)
{
    struct mr_device *dev;
    int status;
    EXPECT(mr_device_open(URI, &dev) == 0);
    pid_t child = fork();
    if (child == 0)
        exit(run_work());
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    mr_device_close(dev);
    return 0;
}

static const struct record_mode modes[] = {{"work", run_work}, {"fork", run_fork}};

#define ROW(look, type, record, i)                                                                 \
    do {                                                                                           \
        assert_true((uint64_t)(i) < (look)->n[type]);                                              \
        memcpy(record, (look)->of[type] + (uint64_t)(i) * sizeof *(record), sizeof *(record));     \
    } while (0)

/* The one call of this number. */
static struct mr_part_api call_of(const struct part_look *look, uint32_t correlation)
{
    struct mr_part_api api, found = {0};
    int n = 0;
    for (uint64_t i = 0; i < look->n[MR_PART_API]; i++) {
        ROW(look, MR_PART_API, &api, i);
        if (api.correlation != correlation)
            continue;
        found = api;
        n++;
    }
    assert_int_equal(n, 1);
    return found;
}

static int by_start(const void *a, const void *b)
{
    const struct mr_part_copy *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static void check_copy(const struct part_look *look, const struct mr_part_copy *copy, int i)
{
    struct mr_part_api api = call_of(look, copy->correlation);
    uint64_t rate = to_device(i) ? 2 : 1, ns = copy->end_ns - copy->start_ns;
    uint8_t host = (uint8_t)(host_of(i) == MR_PAGEABLE ? 1 : 2);
    assert_int_equal(copy->bytes, bytes_of(i));
    assert_int_equal(copy->kind, to_device(i) ? 1 : 2);
    assert_int_equal(to_device(i) ? copy->src_kind : copy->dst_kind, host);
    assert_int_equal(to_device(i) ? copy->dst_kind : copy->src_kind, 3);
    assert_true(ns >= LATENCY_NS + copy->bytes / rate);
    if (host == 1) /* the caller's part counts */
        assert_true(ns >= copy->bytes * 2);
    assert_string_equal(text_of(look, api.name), "simMemcpyAsync");
    assert_true(copy->start_ns >= api.start_ns && api.end_ns > api.start_ns);
    assert_true(host == 2 || to_device(i) || api.end_ns >= copy->end_ns);
}

static void check_copies(const struct part_look *look)
{
    struct mr_part_copy copy[N_COPIES + 2];
    struct mr_part_metric elapsed;
    uint64_t sum = 0;
    assert_int_equal(look->n[MR_PART_COPY], N_COPIES + 2);
    for (int i = 0; i < N_COPIES + 2; i++)
        ROW(look, MR_PART_COPY, &copy[i], i);
    qsort(copy, N_COPIES + 2, sizeof copy[0], by_start);
    for (int i = 0; i < N_COPIES; i++) {
        check_copy(look, &copy[i], i);
        sum += copy[i].end_ns - copy[i].start_ns;
        assert_true(i == 0 || copy[i].start_ns >= copy[i - 1].end_ns);
    }
    assert_int_equal(look->n[MR_PART_METRIC], 1);
    ROW(look, MR_PART_METRIC, &elapsed, 0);
    assert_true((double)sum <= elapsed.value);
    assert_true((double)(copy[N_COPIES - 1].end_ns - copy[0].start_ns) <= elapsed.value);
    assert_int_equal(copy[N_COPIES].kind, 8);
    assert_int_equal(copy[N_COPIES].bytes, 12345);
    assert_int_equal(copy[N_COPIES + 1].kind, 10);
    assert_int_equal(copy[N_COPIES + 1].bytes, MIB);
    assert_int_equal(copy[N_COPIES + 1].src_device, 0);
    assert_int_equal(copy[N_COPIES + 1].dst_device, 1);
}

/* Model time is exact where nothing real is done. */
static void check_kernels(const struct part_look *look)
{
    struct mr_part_kernel kernel;
    struct mr_part_set set;
    int n_graph = 0, n_sets = 0;
    assert_int_equal(look->n[MR_PART_KERNEL], 1 + N_GRAPHS);
    for (int i = 0; i < 1 + N_GRAPHS; i++) {
        ROW(look, MR_PART_KERNEL, &kernel, i);
        struct mr_part_api api = call_of(look, kernel.correlation);
        assert_string_equal(text_of(look, kernel.name), "busy");
        assert_int_equal(kernel.end_ns - kernel.start_ns, BUSY_NS + LATENCY_NS);
        assert_int_equal(kernel.graph_node, kernel.graph ? 1 : 0);
        assert_string_equal(text_of(look, api.name),
                            kernel.graph ? "simGraphLaunch" : "simLaunchKernel");
        n_graph += kernel.graph != 0;
    }
    assert_int_equal(n_graph, N_GRAPHS);
    assert_int_equal(look->n[MR_PART_SET], 1 + N_GRAPHS);
    for (int i = 0; i < 1 + N_GRAPHS; i++) {
        ROW(look, MR_PART_SET, &set, i);
        assert_int_equal(set.bytes, set.graph ? 777 : 54321);
        assert_int_equal(set.graph_node, set.graph ? 2 : 0);
        assert_int_equal(set.kind, 3);
        n_sets += set.graph != 0;
    }
    assert_int_equal(n_sets, N_GRAPHS);
}

static void check_devices(const struct part_look *look)
{
    struct mr_part_device device;
    assert_int_equal(look->n[MR_PART_DEVICE], 2);
    for (uint32_t i = 0; i < 2; i++) {
        ROW(look, MR_PART_DEVICE, &device, i);
        assert_int_equal(device.device, i);
        assert_string_equal(text_of(look, device.name),
                            "simulated (h2d=2 d2h=1 pageable=0.5 GB/s)");
    }
}

static bool have_module(void)
{
    if (getenv("MILLRACE_RECORD_MODULE"))
        return true;
    print_message("SKIP: MILLRACE_RECORD_MODULE does not name the recorder's module\n");
    return false;
}

/* With the library's spans: the engines' are not there a second time. */
static void test_rows(void **state)
{
    (void)state;
    struct mr_part_range range;
    if (!have_module())
        skip();
    assert_int_equal(record_run("MODE=work", "MILLRACE_RECORD_TRACE=17", NULL), 0);
    assert_int_equal(n_looks, 1);
    check_copies(&looks[0]);
    check_kernels(&looks[0]);
    check_devices(&looks[0]);
    assert_int_equal(ranges_named(&looks[0], "copy H2D", &range), 0);
    assert_true(ranges_named(&looks[0], "stage pageable", &range) > 0);
}

/* Copies without kernels; spans without rows; neither. */
static void test_kinds(void **state)
{
    (void)state;
    struct mr_part_range range;
    if (!have_module())
        skip();
    assert_int_equal(record_run("MODE=work", "MILLRACE_RECORD_TRACE=2", NULL), 0);
    assert_int_equal(looks[0].n[MR_PART_COPY], N_COPIES + 2);
    assert_int_equal(looks[0].n[MR_PART_KERNEL], 0);
    assert_int_equal(record_teardown(NULL), 0);
    assert_int_equal(record_setup(NULL), 0);
    assert_int_equal(record_run("MODE=work", "MILLRACE_RECORD_TRACE=16", NULL), 0);
    assert_int_equal(looks[0].n[MR_PART_COPY] + looks[0].n[MR_PART_API], 0);
    assert_true(ranges_named(&looks[0], "copy H2D", &range) > 0);
    assert_int_equal(record_teardown(NULL), 0);
    assert_int_equal(record_setup(NULL), 0);
    assert_int_equal(record_run("MODE=work", "MILLRACE_RECORD_TRACE=4", NULL), 0);
    assert_int_equal(n_looks, 0);
}

/* Outside the capture range devices are told of, and nothing that they do. */
static void test_capture(void **state)
{
    (void)state;
    if (!have_module())
        skip();
    assert_int_equal(record_run("MODE=work", "MILLRACE_RECORD_TRACE=1",
                                (const char *const[]){"MILLRACE_RECORD_CAPTURE=nvtx:never", NULL}),
                     0);
    assert_int_equal(n_looks, 1);
    check_devices(&looks[0]);
    assert_int_equal(looks[0].n[MR_PART_COPY] + looks[0].n[MR_PART_KERNEL], 0);
    assert_int_equal(looks[0].n[MR_PART_SET] + looks[0].n[MR_PART_API], 0);
}

static void test_fork(void **state)
{
    (void)state;
    if (!have_module())
        skip();
/* TSan refuses threads in a child of several; gcc 12's ASan hangs on a lock of its own. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("SKIP: sanitizers do not stand a child of several threads\n");
    skip();
#endif
    assert_int_equal(record_run("MODE=fork", "MILLRACE_RECORD_TRACE=17", NULL), 0);
    assert_int_equal(n_looks, 2);
    int child = looks[0].header.ppid == looks[1].header.pid ? 0 : 1;
    assert_int_equal(looks[1 - child].n[MR_PART_DEVICE], 1);
    assert_int_equal(looks[1 - child].n[MR_PART_COPY], 0);
    check_copies(&looks[child]);
    check_kernels(&looks[child]);
    check_devices(&looks[child]);
}

int main(void)
{
    int code = record_main(modes, sizeof modes / sizeof modes[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows, record_setup, record_teardown),
        cmocka_unit_test_setup_teardown(test_kinds, record_setup, record_teardown),
        cmocka_unit_test_setup_teardown(test_capture, record_setup, record_teardown),
        cmocka_unit_test_setup_teardown(test_fork, record_setup, record_teardown),
    };
    return code >= 0 ? code : cmocka_run_group_tests(tests, NULL, NULL);
}
