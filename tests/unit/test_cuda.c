/* The device "cuda" on a driver that is not there (tests/support/fake_cuda.c). */
#include "run_loader.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"
#include "kernels.h"

static struct mr_device *must_open(const char *uri)
{
    struct mr_device *dev = NULL;
    if (mr_device_open(uri, &dev) != 0)
        fail_msg("%s: %s", uri, mr_last_error());
    return dev;
}

static void close_clean(struct mr_device *dev)
{
    mr_device_close(dev);
    if (fake_left())
        fail_msg("%s", fake_left());
}

static void test_info(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cuda:1");
    struct mr_device_info info = {.size = sizeof info};
    assert_int_equal(mr_device_query(dev, &info), 0);
    assert_string_equal(info.name, "cuda:1");
    assert_string_equal(info.model, "Fake GPU 1");
    assert_string_equal(info.uuid, "GPU-b1b1b1b1-b1b1-b1b1-b1b1-b1b1b1b1b1b1");
    assert_string_equal(info.pci_id, "ffff:01:00.0");
    assert_string_equal(info.driver, "580.1.fake");
    assert_true(info.unified == 0 && info.ordinal == 1 && info.n_devices == 2 &&
                info.copy_engines == 3);
    assert_true(info.driver_api == 13000 && info.compute_capability == 90 && info.numa_node == -1);
    assert_true(info.link_generation == 1 && info.link_generation_max == 5);
    assert_true(info.link_width == 16 && info.link_width_max == 16);
    assert_true(info.h2d_gb_per_s > 54 && info.h2d_gb_per_s < 63 &&
                info.bar1_bytes == 256ull << 20);
    assert_true(info.memory_bytes == 1ull << 30 && info.free_bytes == 1ull << 30);
    assert_true(info.context_bytes == 310ull << 20 && info.peer_gb_per_s == 50);
    struct mr_device_process process[2] = {{0}};
    assert_int_equal(mr_device_processes(dev, process, 2), 3);
    assert_true(process[0].pid == (uint64_t)getpid() && process[0].bytes == 310ull << 20);
    assert_true(process[1].pid == 4242 && process[1].bytes == 0);
    assert_int_equal(mr_device_processes(dev, NULL, 0), 3);
    assert_int_equal(mr_device_processes(dev, NULL, 1), MR_EMISUSE);
    struct mr_device *sim = must_open("sim");
    assert_int_equal(mr_device_processes(sim, process, 2), MR_EUNSUPPORTED);
    mr_device_close(sim);
    close_clean(dev);
}

static void test_bad_uris(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        int code;
        const char *says;
    } bad[] = {
        {"cuda:2", MR_ENODEVICE, "2 are here: cuda:0 to cuda:1"},
        {"cuda:-1", MR_ENODEVICE, "2 are here"},
        {"cuda:x", MR_EOPTION, "x"},
        {"cuda:0,pinned=magic", MR_EOPTION, "magic"},
        {"cuda:0,1", MR_EOPTION, "1"},
    };
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        struct mr_device *dev = NULL;
        int rc = mr_device_open(bad[i].uri, &dev);
        if (rc != bad[i].code || !strstr(mr_last_error(), bad[i].says))
            fail_msg("%s: %d \"%s\", expected %d and \"%s\"", bad[i].uri, rc, mr_last_error(),
                     bad[i].code, bad[i].says);
    }
    assert_null(fake_left());
}

/* The caller's current context is the same after every call; a real program's other libraries count
 * on it. */
static void test_context_is_kept(void **state)
{
    (void)state;
    static char foreign;
    fake_set_current(&foreign);
    struct mr_device *dev = must_open("cuda");
    assert_ptr_equal(fake_current(), &foreign);
    struct mr_stream *stream = NULL;
    struct mr_event *event = NULL;
    void *far = NULL, *host = NULL;
    uint64_t ns = 1000;
    must(mr_stream_create(dev, "s", &stream));
    must(mr_event_create(dev, 1, &event));
    must(mr_memory_acquire(dev, MR_DEVICE, 4096, &far));
    must(mr_memory_acquire(dev, MR_PINNED, 4096, &host));
    must(mr_memset_async(stream, far, MR_DEVICE, 0, 4096));
    must(mr_copy_async(stream, host, MR_PINNED, far, MR_DEVICE, 4096));
    must(mr_launch(stream, "busy", &ns, sizeof ns));
    must(mr_event_record(event, stream));
    must(mr_event_synchronize(event));
    assert_ptr_equal(fake_current(), &foreign);
    assert_true(mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, 1 << 20) <
                0); /* out of bounds: our test's doing */
    assert_ptr_equal(fake_current(), &foreign);
    mr_memory_release(dev, MR_DEVICE, far, event);
    mr_memory_release(dev, MR_PINNED, host, event);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    assert_ptr_equal(fake_current(), &foreign);
    fake_set_current(NULL);
}

static void test_round_trips(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 4097, 100003};
    static const char *const uris[] = {"cuda", "cuda:0,pinned=alloc"};
    for (unsigned c = 0; c < 2 * MR_COUNT(sizes) * 4; c++) {
        struct mr_device *dev = must_open(uris[c / 4 / MR_COUNT(sizes)]);
        uint64_t n = sizes[c / 4 % MR_COUNT(sizes)];
        enum mr_memory from = c & 1 ? MR_PINNED : MR_PAGEABLE, to = c & 2 ? MR_PINNED : MR_PAGEABLE;
        struct mr_stream *stream = NULL;
        unsigned char *src = NULL, *dst = NULL, *far = NULL, *away = NULL;
        must(mr_stream_create(dev, "copy", &stream));
        must(mr_memory_acquire(dev, from, n, (void **)&src));
        must(mr_memory_acquire(dev, to, n, (void **)&dst));
        must(mr_memory_acquire(dev, MR_DEVICE, n + 7, (void **)&far));
        must(mr_memory_acquire(dev, MR_DEVICE, n, (void **)&away));
        for (uint64_t k = 0; k < n; k++)
            src[k] = (unsigned char)mr_mix64(c * 1000003 + k);
        must(mr_copy_async(stream, far + 7, MR_DEVICE, src, from, n));
        must(mr_copy_async(stream, away, MR_DEVICE, far + 7, MR_DEVICE, n));
        must(mr_copy_async(stream, dst, to, away, MR_DEVICE, n));
        must(mr_stream_synchronize(stream));
        assert_memory_equal(src, dst, n);
        memset(dst, 0, n);
        must(mr_copy_async(stream, dst, to, src, from, n)); /* host to host: done on return */
        assert_memory_equal(src, dst, n);
        mr_memory_release(dev, MR_DEVICE, away, NULL);
        mr_memory_release(dev, MR_DEVICE, far, NULL);
        mr_memory_release(dev, to, dst, NULL);
        mr_memory_release(dev, from, src, NULL);
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

/* Many small copies take few driver calls; memory of the caller's own counts as page-locked once
 * registered. */
static void test_batch(void **state)
{
    (void)state;
    enum { N = 1300, PIECE = 64 };
    struct mr_device *dev = must_open("cuda");
    struct mr_stream *stream = NULL;
    static struct mr_copy there[N], back[N];
    unsigned char *src = calloc(N, PIECE), *dst = NULL, *far = NULL;
    struct fake_cuda_report before, after;
    must(mr_stream_create(dev, "copy", &stream));
    must(mr_memory_acquire(dev, MR_DEVICE, N * PIECE, (void **)&far));
    must(mr_memory_acquire(dev, MR_PINNED, N * PIECE, (void **)&dst));
    must(mr_memory_register(dev, src, N * PIECE));
    assert_true(mr_memory_register(dev, src, N * PIECE) == MR_EDEVICE);
    for (int i = 0; i < N * PIECE; i++)
        src[i] = (unsigned char)mr_mix64((uint64_t)i);
    for (int i = 0; i < N; i++) {
        there[i] = (struct mr_copy){far + i * PIECE, src + (N - 1 - i) * PIECE, PIECE, MR_DEVICE,
                                    MR_PINNED};
        back[i] = (struct mr_copy){dst + (N - 1 - i) * PIECE, far + i * PIECE, PIECE, MR_PINNED,
                                   MR_DEVICE};
    }
    fake_report(&before);
    must(mr_copy_batch_async(stream, there, N));
    must(mr_copy_batch_async(stream, back, N));
    fake_report(&after);
    assert_true(after.batches - before.batches == 6 && after.calls - before.calls < 20);
    must(mr_stream_synchronize(stream));
    assert_memory_equal(src, dst, N * PIECE);
    setenv("FAKE_CUDA_NO_BATCH", "1", 1); /* a driver that has the call but not for this GPU */
    memset(dst, 0, N * PIECE);
    must(mr_copy_batch_async(stream, back, N));
    unsetenv("FAKE_CUDA_NO_BATCH");
    must(mr_stream_synchronize(stream));
    assert_memory_equal(src, dst, N * PIECE);
    must(mr_memory_unregister(dev, src, N * PIECE));
    mr_memory_release(dev, MR_PINNED, dst, NULL);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    free(src);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cuda");
    void *ptr = NULL, *kept = NULL;
    must(mr_memory_acquire(dev, MR_DEVICE, 600 << 20, &kept));
    assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, 1ull << 29, &ptr), MR_EDEVICEMEM);
    assert_non_null(
        strstr(mr_last_error(),
               "cuMemAlloc_v2(536870912 bytes) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: out of"));
    assert_non_null(
        strstr(mr_last_error(), "444596224 of 1073741824 bytes are free; lower --batch-size"));
    assert_null(ptr);
    mr_memory_release(dev, MR_DEVICE, kept, NULL);
    must(mr_memory_acquire(dev, MR_DEVICE, 1ull << 29, &ptr)); /* the cached block makes room */
    mr_memory_release(dev, MR_DEVICE, ptr, NULL);
    mr_device_close(dev);
}

/* A day after the first event, times between later ones are still exact: the driver's float would
 * be off by 8 ms. */
static void test_long_times(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cuda");
    struct mr_stream *stream = NULL;
    struct mr_event *base = NULL, *from = NULL, *to = NULL;
    uint64_t busy_ns = 3000000;
    int64_t at_from = 0, at_to = 0, direct = 0, back = 0;
    must(mr_stream_create(dev, "s", &stream));
    must(mr_event_create(dev, 1, &base));
    must(mr_event_create(dev, 1, &from));
    must(mr_event_create(dev, 1, &to));
    must(mr_event_record(base, stream));
    must(mr_stream_synchronize(stream));
    fake_advance(86400ull * 1000000000);
    usleep(1100000); /* anchors come once a second */
    int good = 0;    /* a loaded machine may be late with an anchor, not for ever */
    for (int round = 0; round < 50 && good < 3; round++) {
        must(mr_event_record(from, stream));
        must(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns));
        must(mr_event_record(to, stream));
        must(mr_event_synchronize(to));
        must(mr_event_elapsed(base, from, &at_from));
        must(mr_event_elapsed(base, to, &at_to));
        must(mr_event_elapsed(from, to, &direct));
        must(mr_event_elapsed(to, base, &back));
        assert_true(direct >= 3000000 && back == -at_to);
        good += llabs(at_to - at_from - direct) < 1000;
        if (good <= round)
            usleep(100000);
    }
    assert_int_equal(good, 3);
    assert_true(at_from > 86400ll * 1000000000);
    mr_event_destroy(to);
    mr_event_destroy(from);
    mr_event_destroy(base);
    mr_stream_destroy(stream);
    close_clean(dev);
}

static int n_warnings;
static void note(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    n_warnings += level == MR_LOG_WARNING && strstr(text, "page-lock") != NULL;
}

/* The system may refuse to lock: then memory serves that is not locked, with one warning. */
static void test_lock_refused(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cuda");
    struct mr_memory_counters count = {.size = sizeof count};
    void *a = NULL, *b = NULL;
    mr_log_set(note, NULL);
    fake_fail("cuMemHostRegister_v2", 1, 2, 0);
    must(mr_memory_acquire(dev, MR_PINNED, 8192, &a));
    mr_memory_query(dev, MR_PINNED, &count);
    assert_true(n_warnings == 1 && count.held_bytes == 8192 && count.locked_bytes == 0);
    fake_fail("cuMemHostRegister_v2", 1, 304, 0);
    assert_int_equal(mr_memory_register(dev, &count, sizeof count), MR_ELIMIT);
    fake_fail(NULL, 0, 0, 0);
    must(mr_memory_acquire(dev, MR_PINNED, 8192, &b));
    mr_memory_query(dev, MR_PINNED, &count);
    assert_true(n_warnings == 1 && count.locked_bytes == 8192);
    mr_log_set(NULL, NULL);
    mr_memory_release(dev, MR_PINNED, a, NULL);
    mr_memory_release(dev, MR_PINNED, b, NULL);
    mr_device_close(dev);
}

/* Each refusal is for the same reason; elsewhere the text would be another. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        mr_error_set(MR_EMISUSE, "nothing");                                                       \
        if ((call) >= 0 || !strstr(mr_last_error(), "fork")) {                                     \
            fprintf(stderr, "in a forked child: %s: %s\n", #call, mr_last_error());                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* A child gets an error from every call, and can close what it inherited, without a call of the
 * driver. */
static void run_child(struct mr_device *dev, struct mr_stream *stream, struct mr_event *event,
                      void *far, void *host)
{
    struct fake_cuda_report before, after;
    struct mr_memory_counters count = {.size = sizeof count};
    struct mr_device_info info = {.size = sizeof info};
    struct mr_device *other = NULL;
    struct mr_stream *s = NULL;
    struct mr_event *e = NULL;
    struct mr_copy copies[2] = {{far, host, 8, MR_DEVICE, MR_PINNED},
                                {far, host, 8, MR_DEVICE, MR_PINNED}};
    void *p = NULL;
    uint64_t ns = 5;
    int64_t elapsed;
    fake_report(&before);
    alarm(60);
    REFUSED(mr_device_open("cuda", &other));
    REFUSED(mr_device_query(dev, &info));
    REFUSED(mr_memory_acquire(dev, MR_DEVICE, 1, &p));
    REFUSED(mr_memory_register(dev, &ns, 8));
    REFUSED(mr_memory_unregister(dev, &ns, 8));
    REFUSED(mr_stream_create(dev, "s", &s));
    REFUSED(mr_event_create(dev, 0, &e));
    REFUSED(mr_event_record(event, stream));
    REFUSED(mr_stream_wait(stream, event));
    REFUSED(mr_event_query(event));
    REFUSED(mr_event_synchronize(event));
    REFUSED(mr_event_elapsed(event, event, &elapsed));
    REFUSED(mr_stream_synchronize(stream));
    REFUSED(mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, 4096));
    REFUSED(mr_copy_batch_async(stream, copies, 2));
    REFUSED(mr_memset_async(stream, far, MR_DEVICE, 0, 4096));
    REFUSED(mr_launch(stream, "busy", &ns, sizeof ns));
    mr_memory_query(dev, MR_DEVICE, &count);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_trim(dev);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    fake_report(&after);
    _exit(before.calls == after.calls ? 0 : 2);
}

static void test_fork(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("SKIP fork: the thread sanitizer's own locks may be held in the child of a "
                  "program with threads\n");
    skip();
#endif
    struct mr_device *dev = must_open("cuda");
    struct mr_stream *stream = NULL;
    struct mr_event *event = NULL;
    void *far = NULL, *host = NULL;
    int status = 0;
    must(mr_stream_create(dev, "s", &stream));
    must(mr_event_create(dev, 1, &event));
    must(mr_memory_acquire(dev, MR_DEVICE, 4096, &far));
    must(mr_memory_acquire(dev, MR_PINNED, 4096, &host));
    pid_t pid = fork();
    if (pid == 0)
        run_child(dev, stream, event, far, host);
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
    must(mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, 4096)); /* the parent goes on */
    must(mr_stream_synchronize(stream));
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

/* A kernel of someone else's spoils the context: errors everywhere that say so, and the end of it
 * all still comes. */
static void test_sticky_error(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cuda");
    struct mr_stream *stream = NULL;
    struct mr_event *event = NULL;
    void *far = NULL, *host = NULL;
    must(mr_stream_create(dev, "s", &stream));
    must(mr_event_create(dev, 1, &event));
    must(mr_memory_acquire(dev, MR_DEVICE, 4096, &far));
    must(mr_memory_acquire(dev, MR_PINNED, 4096, &host));
    fake_fail("cuEventQuery", 1, 700, 1);
    assert_int_equal(mr_event_query(event), MR_EDEVICE);
    assert_non_null(strstr(mr_last_error(), "cuEventQuery on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_non_null(strstr(mr_last_error(), "compute-sanitizer"));
    assert_int_equal(mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, 4096), MR_EDEVICE);
    assert_non_null(
        strstr(mr_last_error(),
               "cuMemcpyHtoDAsync_v2(4096 bytes, pinned to device) in stream \"s\" on cuda:0"));
    assert_int_equal(mr_event_record(event, stream), MR_EDEVICE);
    assert_int_equal(mr_stream_synchronize(stream), MR_EDEVICE);
    mr_memory_release(dev, MR_DEVICE, far, event);
    mr_memory_release(dev, MR_PINNED, host, event);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    fake_fail(NULL, 0, 0, 0);
}

struct delivered {
    uint64_t hash, batches, calls_a_batch, blocking;
};

/* Consumes a set with work in its stream; counts what the consumer's thread asks of the driver in
 * steady state. */
static struct delivered consume(const char *device, bool pageable)
{
    struct delivered out = {.hash = MR_HASH_START};
    struct run_config c = run_config("synthetic:n=4096,shape=64,dtype=u8");
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_device *dev = must_open(device);
    struct mr_device_info info = {.size = sizeof info};
    struct mr_stream *stream = NULL;
    struct mr_loader *ld = NULL;
    struct mr_batch b = {.size = sizeof b};
    static unsigned char seen[4096 * 64];
    void *host = NULL;
    uint64_t calls = 0, blocking = 0, ns = 10000, at = 0;
    c.opts.batch_size = 64;
    c.opts.pin = !pageable;
    must(mr_device_query(dev, &info));
    must(mr_dataset_open(c.dataset, &ds));
    must(mr_sampler_open("random", mr_dataset_length(ds), 7, &sampler));
    must(mr_stream_create(dev, "consumer", &stream));
    must(mr_memory_acquire(dev, MR_PINNED, sizeof seen, &host));
    must(mr_loader_open(ds, sampler, NULL, dev, &c.opts, &ld));
    while (mr_loader_next(ld, stream, &b) > 0) {
        uint64_t bytes = b.field[0].bytes;
        must(mr_copy_async(stream, (char *)host + at, MR_PINNED, b.field[0].data,
                           info.unified ? MR_PAGEABLE : MR_DEVICE, bytes));
        must(mr_launch(stream, "busy", &ns, sizeof ns));
        must(mr_loader_release(ld, &b, stream));
        at += bytes;
        if (++out.batches == 4 && !info.unified)
            fake_thread(&calls, &blocking);
    }
    if (!info.unified) {
        uint64_t calls_now = 0, blocking_now = 0;
        fake_thread(&calls_now, &blocking_now);
        out.calls_a_batch = (calls_now - calls) / (out.batches - 4);
        out.blocking = blocking_now - blocking;
    }
    must(mr_stream_synchronize(stream));
    out.hash = mr_hash(out.hash, host, at);
    mr_loader_close(ld);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return out;
}

static void test_consumer_never_blocks(void **state)
{
    (void)state;
    struct delivered cpu = consume("cpu", false), pinned = consume("cuda", false),
                     pageable = consume("cuda", true);
    assert_int_equal(cpu.batches, 64);
    assert_true(cpu.hash == pinned.hash && cpu.hash == pageable.hash);
    assert_int_equal(pinned.blocking, 0);
    assert_int_equal(pageable.blocking, 0); /* the workers stage */
    assert_true(pinned.calls_a_batch > 0);
}

/* What the tests above left behind on purpose: one copy out of bounds. */
static int check_misuse(void)
{
    struct fake_cuda_report r;
    fake_report(&r);
    if (r.misuse > 1 ||
        r.streams + r.events + r.device_blocks + r.host_registered + r.contexts + r.modules > 0) {
        fprintf(stderr, "%s\n", fake_left());
        return 1;
    }
    return 0;
}

/* Kernels that wait and copy; the driver's own host memory; no cuBLAS is an error that says what to
 * do. */
static void test_kernels(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cuda");
    struct mr_kernel_matmul args = {.n = 16};
    struct mr_stream *stream = NULL;
    void *combined = NULL;
    const char *wrong = kernels_wrong(dev);
    if (wrong)
        fail_msg("%s", wrong);
    must(mr_memory_make(dev, MR_MAKE_WRITE_COMBINED, 12345, &combined));
    memset(combined, 1, 12345);
    mr_memory_unmake(dev, combined);
    must(mr_stream_create(dev, "s", &stream));
    setenv("MILLRACE_CUBLAS", "/nowhere/libcublas.so.13", 1);
    assert_int_equal(mr_launch(stream, "matmul_f32", &args, sizeof args), MR_ENODEVICE);
    assert_non_null(strstr(mr_last_error(), "/nowhere/libcublas.so.13"));
    unsetenv("MILLRACE_CUBLAS");
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_bad_uris),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_long_times),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_lock_refused),
        cmocka_unit_test(test_consumer_never_blocks),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_context_is_kept),
        cmocka_unit_test(test_sticky_error),
    };
    fake_load();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed : check_misuse();
}
