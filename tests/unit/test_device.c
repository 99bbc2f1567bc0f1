/* White-box. Devices: names, URIs, misuse, and what must hold on every device. */
#include "base/base.h"
#include <millrace/device.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/kernels.h"

static const char *const every[] = {"cpu", "sim:latency=0"};

static struct mr_device *must_open(const char *uri)
{
    struct mr_device *dev = NULL;
    if (mr_device_open(uri, &dev) != 0)
        fail_msg("%s: %s", uri, mr_last_error());
    return dev;
}

static int note_cuda(void *user, const char *name, const char *summary, const char *why_not)
{
    (void)summary;
    *(bool *)user |= !strcmp(name, "cuda") && !why_not;
    return 0;
}

static void test_auto_is_best(void **state)
{
    (void)state;
    bool has_cuda = false;
    mr_device_each(note_cuda, &has_cuda);
    struct mr_device *dev = must_open("auto");
    struct mr_device_info info = {.size = sizeof info};
    assert_int_equal(mr_device_query(dev, &info), 0);
    assert_string_equal(info.name, has_cuda ? "cuda:0" : "cpu");
    assert_int_equal(info.unified, !has_cuda);
    mr_device_close(dev);
}

static void test_sim_options(void **state)
{
    (void)state;
    struct mr_device *dev =
        must_open("sim:h2d=12.5,d2h=6,pageable=3,latency=20us,step=4ms,mem=1GiB");
    struct mr_device_info info = {.size = sizeof info};
    assert_int_equal(mr_device_query(dev, &info), 0);
    assert_string_equal(info.name, "sim");
    assert_int_equal(info.unified, 0);
    assert_int_equal(info.copy_engines, 2);
    assert_true(info.h2d_gb_per_s == 12.5 && info.d2h_gb_per_s == 6 && info.pageable_gb_per_s == 3);
    assert_true(info.step_ns == 4000000 && info.memory_bytes == 1ull << 30 &&
                info.free_bytes == 1ull << 30);
    mr_device_close(dev);
    dev = must_open("sim");
    assert_int_equal(mr_device_query(dev, &info), 0);
    assert_true(info.h2d_gb_per_s == 55 && info.d2h_gb_per_s == 55 && info.pageable_gb_per_s == 12);
    assert_true(info.step_ns == 0 && info.memory_bytes == 16ull << 30);
    mr_device_close(dev);
}

static void test_bad_uris(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        int code;
        const char *says;
    } bad[] = {
        {"", MR_EOPTION, "known"},
        {"cp", MR_EOPTION, "did you mean cpu?"},
        {"cpux", MR_EOPTION, "cpu"},
        {"tpu:7", MR_EOPTION, "tpu"},
        {"cpu:x=1", MR_EOPTION, "no options"},
        {"auto:h2d=1", MR_EOPTION, "auto"},
        {"sim:h2d=0", MR_EOPTION, "h2d"},
        {"sim:h2d=-3", MR_EOPTION, "h2d"},
        {"sim:h2d=nan", MR_EOPTION, "h2d"},
        {"sim:bandwidth=3", MR_EOPTION, "bandwidth"},
        {"sim:mem=5", MR_EOPTION, "mem"},
        {"sim:latency=fast", MR_EOPTION, "latency"},
    };
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        struct mr_device *dev = NULL;
        int rc = mr_device_open(bad[i].uri, &dev);
        if (rc != bad[i].code || !strstr(mr_last_error(), bad[i].says))
            fail_msg("%s: %d \"%s\", expected %d and \"%s\"", bad[i].uri, rc, mr_last_error(),
                     bad[i].code, bad[i].says);
        assert_null(dev);
    }
}

/* "gpu" is "cuda": what the one says of a machine, so does the other. */
static void test_gpu_is_cuda(void **state)
{
    (void)state;
    struct mr_device *dev[2] = {NULL, NULL};
    char text[1024];
    int rc = mr_device_open("cuda:99", &dev[0]);
    assert_true(rc < 0);
    snprintf(text, sizeof text, "%s", mr_last_error());
    assert_int_equal(mr_device_open("gpu:99", &dev[1]), rc);
    assert_string_equal(mr_last_error(), text);
}

struct seen {
    int n;
    int stop_after;
    bool cpu, sim;
};

static int see(void *user, const char *name, const char *summary, const char *why_not)
{
    struct seen *seen = user;
    assert_true(strlen(summary) > 0);
    assert_true(!strcmp(name, "cuda") || !why_not);
    seen->cpu |= !strcmp(name, "cpu");
    seen->sim |= !strcmp(name, "sim");
    return ++seen->n == seen->stop_after ? 42 : 0;
}

static void test_each(void **state)
{
    (void)state;
    struct seen all = {0}, one = {.stop_after = 1};
    assert_int_equal(mr_device_each(see, &all), 0);
    assert_true(all.cpu && all.sim);
    assert_int_equal(mr_device_each(see, &one), 42);
    assert_int_equal(one.n, 1);
}

static void test_misuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(every); i++) {
        struct mr_device *dev = must_open(every[i]),
                         *other = must_open(strcmp(every[i], "cpu") == 0 ? "sim" : "cpu");
        struct mr_stream *stream = NULL;
        struct mr_event *foreign = NULL, *timed = NULL, *plain = NULL;
        assert_int_equal(mr_stream_create(dev, "a name that is longer than the field", &stream), 0);
        assert_int_equal(mr_event_create(other, 1, &foreign), 0);
        assert_int_equal(mr_event_create(dev, 1, &timed), 0);
        assert_int_equal(mr_event_create(dev, 0, &plain), 0);

        void *ptr = NULL;
        assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 0, &ptr), MR_EMISUSE);
        assert_int_equal(mr_memory_acquire(dev, MR_N_MEMORY, 1, &ptr), MR_EMISUSE);
        assert_true(mr_memory_acquire(dev, MR_PAGEABLE, UINT64_MAX, &ptr) < 0);
        assert_null(ptr);
        assert_int_equal(mr_event_record(foreign, stream), MR_EMISUSE);
        assert_int_equal(mr_stream_wait(stream, foreign), MR_EMISUSE);
        assert_int_equal(mr_copy_async(stream, NULL, MR_DEVICE, &ptr, MR_PINNED, 8), MR_EMISUSE);
        assert_int_equal(mr_copy_async(stream, &ptr, MR_N_MEMORY, &ptr, MR_PINNED, 8), MR_EMISUSE);
        assert_int_equal(mr_copy_async(stream, NULL, MR_DEVICE, NULL, MR_PINNED, 0), 0);

        uint64_t ns = 0;
        assert_int_equal(mr_launch(stream, "fft", &ns, sizeof ns), MR_EUNSUPPORTED);
        assert_non_null(strstr(mr_last_error(), "fft"));
        assert_int_equal(mr_launch(stream, "busy", &ns, 4), MR_EMISUSE);
        assert_int_equal(mr_launch(stream, "busy", NULL, 8), MR_EMISUSE);

        int64_t elapsed = 77;
        assert_int_equal(mr_event_elapsed(timed, timed, &elapsed), MR_EMISUSE); /* never recorded */
        assert_int_equal(mr_event_record(timed, stream), 0);
        assert_int_equal(mr_event_record(plain, stream), 0);
        assert_int_equal(mr_event_elapsed(timed, plain, &elapsed), MR_EMISUSE);
        assert_int_equal(elapsed, 77);

        struct mr_copy one[2] = {{&ptr, &ns, 8, MR_PINNED, MR_PINNED},
                                 {NULL, &ns, 8, MR_PINNED, MR_PINNED}};
        assert_int_equal(mr_copy_batch_async(stream, NULL, 1), MR_EMISUSE);
        assert_int_equal(mr_copy_batch_async(stream, one, 2), MR_EMISUSE);
        assert_null(ptr);
        assert_int_equal(mr_copy_batch_async(stream, NULL, 0), 0);
        assert_int_equal(mr_memset_async(stream, NULL, MR_DEVICE, 0, 8), MR_EMISUSE);
        assert_int_equal(mr_memset_async(stream, &ptr, MR_N_MEMORY, 0, 8), MR_EMISUSE);
        assert_int_equal(mr_memory_register(dev, NULL, 8), MR_EMISUSE);
        assert_int_equal(mr_memory_unregister(dev, &ptr, 0), MR_EMISUSE);
        mr_event_destroy(plain);
        mr_event_destroy(timed);
        mr_event_destroy(foreign);
        mr_stream_destroy(stream);
        mr_device_close(other);
        mr_device_close(dev);
    }
}

/* An event that was never recorded has passed: nobody waits for it. */
static void test_new_event(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(every); i++) {
        struct mr_device *dev = must_open(every[i]);
        struct mr_stream *stream = NULL;
        struct mr_event *event = NULL;
        assert_int_equal(mr_stream_create(dev, NULL, &stream), 0);
        assert_int_equal(mr_event_create(dev, 0, &event), 0);
        assert_int_equal(mr_event_query(event), 1);
        assert_int_equal(mr_event_synchronize(event), 0);
        assert_int_equal(mr_stream_wait(stream, event), 0);
        assert_int_equal(mr_stream_synchronize(stream), 0);
        mr_event_destroy(event);
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

/* "busy" takes at least its time between two events, and elapsed has a sign. */
static void test_busy_and_elapsed(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(every); i++) {
        struct mr_device *dev = must_open(every[i]);
        struct mr_stream *stream = NULL;
        struct mr_event *from = NULL, *to = NULL;
        assert_int_equal(mr_stream_create(dev, "compute", &stream), 0);
        assert_int_equal(mr_event_create(dev, 1, &from), 0);
        assert_int_equal(mr_event_create(dev, 1, &to), 0);
        uint64_t busy_ns = 3000000;
        int64_t ahead = 0, back = 0;
        assert_int_equal(mr_event_record(from, stream), 0);
        assert_int_equal(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns), 0);
        assert_int_equal(mr_event_record(to, stream), 0);
        assert_int_equal(mr_stream_synchronize(stream), 0);
        assert_int_equal(mr_event_query(to), 1);
        assert_int_equal(mr_event_elapsed(from, to, &ahead), 0);
        assert_int_equal(mr_event_elapsed(to, from, &back), 0);
        assert_true(ahead >= (int64_t)busy_ns);
        assert_int_equal(ahead, -back);
        mr_event_destroy(to);
        mr_event_destroy(from);
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

static void test_wait_and_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(every); i++) {
        struct mr_device *dev = must_open(every[i]);
        struct mr_device_info info = {.size = sizeof info};
        struct mr_stream *stream = NULL;
        void *ptr = &info;
        assert_int_equal(mr_device_query(dev, &info), 0);
        assert_int_equal(mr_stream_create(dev, "compute", &stream), 0);
        const char *wrong = info.unified ? NULL : kernels_wrong(dev);
        if (wrong)
            fail_msg("%s: %s", every[i], wrong);
        if (info.unified)
            assert_int_equal(mr_launch(stream, "wait", &ptr, sizeof ptr), MR_EUNSUPPORTED);
        assert_int_equal(mr_memory_make(dev, MR_MAKE_WRITE_COMBINED, 4096, &ptr), MR_EUNSUPPORTED);
        assert_int_equal(mr_memory_make(dev, 0, 0, &ptr), MR_EMISUSE);
        assert_int_equal(mr_memory_make(dev, 2, 4096, &ptr), MR_EMISUSE);
        mr_memory_unmake(dev, NULL);
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

/* A matrix product on the simulated device takes as long as its rate says. */
static void test_product_takes_its_time(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:tflops=0.002,latency=0");
    struct mr_kernel_matmul args = {.n = 200}; /* 16 Mflop: 8 ms */
    struct mr_stream *stream = NULL;
    struct mr_event *from = NULL, *to = NULL;
    int64_t took = 0;
    assert_int_equal(mr_stream_create(dev, "compute", &stream), 0);
    assert_int_equal(mr_event_create(dev, 1, &from), 0);
    assert_int_equal(mr_event_create(dev, 1, &to), 0);
    assert_int_equal(mr_event_record(from, stream), 0);
    assert_int_equal(mr_launch(stream, "matmul_f32", &args, sizeof args), 0);
    assert_int_equal(mr_event_record(to, stream), 0);
    assert_int_equal(mr_stream_synchronize(stream), 0);
    assert_int_equal(mr_event_elapsed(from, to, &took), 0);
    assert_true(took >= 8000000);
    /* Of half the rows half as long, once no other program comes between; who knows nothing of rows
     * means all of them. */
    int64_t half = 0;
    args.rows = 100;
    for (int i = 0; i < 100 && (i == 0 || half >= 8000000); i++) {
        assert_int_equal(mr_event_record(from, stream), 0);
        assert_int_equal(mr_launch(stream, "matmul_f32", &args, sizeof args), 0);
        assert_int_equal(mr_event_record(to, stream), 0);
        assert_int_equal(mr_stream_synchronize(stream), 0);
        assert_int_equal(mr_event_elapsed(from, to, &half), 0);
        assert_true(half >= 4000000);
    }
    assert_true(half < 8000000);
    assert_int_equal(mr_event_record(from, stream), 0);
    assert_int_equal(
        mr_launch(stream, "matmul_f32", &args, offsetof(struct mr_kernel_matmul, rows)), 0);
    assert_int_equal(mr_event_record(to, stream), 0);
    assert_int_equal(mr_stream_synchronize(stream), 0);
    assert_int_equal(mr_event_elapsed(from, to, &took), 0);
    assert_true(took >= 8000000);
    assert_int_equal(mr_launch(stream, "matmul_f32", &args, sizeof args - 1), MR_EMISUSE);
    mr_event_destroy(to);
    mr_event_destroy(from);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

/* What goes to the device and comes back is the same, for odd sizes and offsets and every pair of
 * kinds. */
static void test_round_trip(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 4095, 65537, (1 << 20) - 1, (1 << 20), (3 << 20) + 12345};
    for (size_t i = 0; i < MR_COUNT(every); i++) {
        struct mr_device *dev = must_open(every[i]);
        struct mr_stream *stream = NULL;
        assert_int_equal(mr_stream_create(dev, "copy", &stream), 0);
        for (unsigned c = 0; c < MR_COUNT(sizes) * 4; c++) {
            uint64_t n = sizes[c / 4];
            enum mr_memory from = c & 1 ? MR_PINNED : MR_PAGEABLE,
                           to = c & 2 ? MR_PINNED : MR_PAGEABLE;
            unsigned char *src = NULL, *dst = NULL, *far = NULL, *away = NULL;
            assert_int_equal(mr_memory_acquire(dev, from, n, (void **)&src), 0);
            assert_int_equal(mr_memory_acquire(dev, to, n, (void **)&dst), 0);
            assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, n + 7, (void **)&far), 0);
            assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, n, (void **)&away), 0);
            for (uint64_t k = 0; k < n; k++)
                src[k] = (unsigned char)mr_mix64(c * 1000003 + k);
            memset(dst, 0, n);
            assert_int_equal(mr_copy_async(stream, far + 7, MR_DEVICE, src, from, n), 0);
            assert_int_equal(mr_copy_async(stream, away, MR_DEVICE, far + 7, MR_DEVICE, n), 0);
            assert_int_equal(mr_copy_async(stream, dst, to, away, MR_DEVICE, n), 0);
            assert_int_equal(mr_stream_synchronize(stream), 0);
            assert_memory_equal(src, dst, n);
            mr_memory_release(dev, MR_DEVICE, away, NULL);
            mr_memory_release(dev, MR_DEVICE, far, NULL);
            mr_memory_release(dev, to, dst, NULL);
            mr_memory_release(dev, from, src, NULL);
        }
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

/* Sets, batches of copies with empty ones among them, and the caller's own memory. */
static void test_batch_and_set(void **state)
{
    (void)state;
    enum { N = 70, PIECE = 1001 };
    for (size_t i = 0; i < MR_COUNT(every); i++) {
        struct mr_device *dev = must_open(every[i]);
        struct mr_stream *stream = NULL;
        struct mr_copy there[N], back[N];
        unsigned char *far = NULL, *src = calloc(N, PIECE), *dst = calloc(N, PIECE);
        assert_int_equal(mr_stream_create(dev, "copy", &stream), 0);
        assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, N * PIECE, (void **)&far), 0);
        assert_true(src && dst);
        if (mr_memory_register(dev, src, N * PIECE) != 0)
            fail_msg("%s", mr_last_error());
        for (int k = 0; k < N * PIECE; k++)
            src[k] = (unsigned char)mr_mix64((uint64_t)k);
        for (int k = 0; k < N; k++) {
            uint64_t at = (uint64_t)k * PIECE, bytes = k % 7 == 3 ? 0 : (uint64_t)(k % 5) * 200 + 1;
            there[k] = (struct mr_copy){far + at, src + at, bytes, MR_DEVICE, MR_PINNED};
            back[k] = (struct mr_copy){dst + at, far + at, PIECE, MR_PAGEABLE, MR_DEVICE};
        }
        assert_int_equal(mr_memset_async(stream, far, MR_DEVICE, 0xa5, N * PIECE), 0);
        assert_int_equal(mr_copy_batch_async(stream, there, N), 0);
        assert_int_equal(mr_copy_batch_async(stream, back, N), 0);
        assert_int_equal(mr_stream_synchronize(stream), 0);
        for (int k = 0; k < N * PIECE; k++)
            assert_int_equal(dst[k],
                             (uint64_t)(k % PIECE) < there[k / PIECE].bytes ? src[k] : 0xa5);
        assert_int_equal(mr_memset_async(stream, dst, MR_PAGEABLE, 3, 5), 0);
        assert_true(dst[0] == 3 && dst[4] == 3 && dst[5] == 0xa5);
        assert_int_equal(mr_memory_unregister(dev, src, N * PIECE), 0);
        free(dst);
        free(src);
        mr_memory_release(dev, MR_DEVICE, far, NULL);
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

static void test_memory_names(void **state)
{
    (void)state;
    assert_string_equal(mr_memory_name(MR_PAGEABLE), "pageable");
    assert_string_equal(mr_memory_name(MR_PINNED), "pinned");
    assert_string_equal(mr_memory_name(MR_DEVICE), "device");
    assert_non_null(mr_memory_name((enum mr_memory)77));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_is_best),  cmocka_unit_test(test_sim_options),
        cmocka_unit_test(test_bad_uris),      cmocka_unit_test(test_gpu_is_cuda),
        cmocka_unit_test(test_each),          cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_new_event),     cmocka_unit_test(test_busy_and_elapsed),
        cmocka_unit_test(test_wait_and_copy), cmocka_unit_test(test_product_takes_its_time),
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_memory_names),
        cmocka_unit_test(test_batch_and_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
