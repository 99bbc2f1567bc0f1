/* Copies between two GPUs on a driver that is not there. */
#include "run_loader.h"

#include "fake.h"

#define BYTES 100003

static struct mr_device *dev[2];
static struct mr_stream *stream[2];
static unsigned char *far[2];

static int open_both(void **state)
{
    (void)state;
    char uri[16];
    for (int i = 0; i < 2; i++) {
        snprintf(uri, sizeof uri, "cuda:%d", i);
        must(mr_device_open(uri, &dev[i]));
        must(mr_stream_create(dev[i], "s", &stream[i]));
        must(mr_memory_acquire(dev[i], MR_DEVICE, BYTES, (void **)&far[i]));
    }
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    fake_fail(NULL, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        mr_memory_release(dev[i], MR_DEVICE, far[i], NULL);
        mr_stream_destroy(stream[i]);
        mr_device_close(dev[i]);
    }
    if (fake_left())
        fail_msg("%s", fake_left());
    return 0;
}

/* There and back, on either stream; the bytes are those that were sent. */
static void copy_and_check(unsigned seed)
{
    static unsigned char src[BYTES], dst[BYTES];
    for (uint64_t k = 0; k < BYTES; k++)
        src[k] = (unsigned char)mr_mix64(seed * 1000003 + k);
    must(mr_copy_async(stream[0], far[0], MR_DEVICE, src, MR_PAGEABLE, BYTES));
    must(mr_stream_synchronize(stream[0]));
    must(mr_copy_peer_async(stream[seed & 1], far[1], dev[1], far[0], dev[0], BYTES));
    must(mr_stream_synchronize(stream[seed & 1]));
    must(mr_memset_async(stream[0], far[0], MR_DEVICE, 0, BYTES));
    must(mr_stream_synchronize(stream[0]));
    must(mr_copy_peer_async(stream[seed >> 1 & 1], far[0], dev[0], far[1], dev[1], BYTES));
    must(mr_stream_synchronize(stream[seed >> 1 & 1]));
    must(mr_copy_async(stream[0], dst, MR_PAGEABLE, far[0], MR_DEVICE, BYTES));
    assert_memory_equal(src, dst, BYTES);
}

static void copies_are_direct(void **state)
{
    (void)state;
    struct fake_cuda_report before, after;
    fake_report(&before);
    assert_int_equal(mr_device_reach(dev[0], dev[1]), 1);
    assert_int_equal(mr_device_reach(dev[1], dev[0]), 1); /* enabled already: not an error */
    for (unsigned seed = 0; seed < 4; seed++)
        copy_and_check(seed);
    fake_report(&after);
    assert_int_equal(after.peer_direct - before.peer_direct, 8);
    assert_int_equal(after.peer_staged, before.peer_staged);
}

/* What was found out is kept: a copy costs one call of the driver, and the context's three. */
static void asking_is_done_once(void **state)
{
    (void)state;
    uint64_t calls[2], blocking[2];
    assert_int_equal(mr_device_reach(dev[0], dev[1]), 1);
    fake_thread(&calls[0], &blocking[0]);
    assert_int_equal(mr_device_reach(dev[0], dev[1]), 1);
    fake_thread(&calls[1], &blocking[1]);
    assert_int_equal(calls[1], calls[0]);
    assert_int_equal(mr_device_reach(dev[1], dev[0]), 1);
    fake_thread(&calls[0], &blocking[0]);
    must(mr_copy_peer_async(stream[0], far[0], dev[0], far[1], dev[1], BYTES));
    fake_thread(&calls[1], &blocking[1]);
    assert_true(calls[1] - calls[0] <= 4);
    assert_int_equal(blocking[1], blocking[0]);
}

/* A GPU that was closed meanwhile has lost the access; a new opening asks again. */
static void a_new_opening_asks_again(void **state)
{
    (void)state;
    struct fake_cuda_report before, after;
    fake_report(&before);
    copy_and_check(1);
    mr_memory_release(dev[1], MR_DEVICE, far[1], NULL);
    mr_stream_destroy(stream[1]);
    mr_device_close(dev[1]);
    must(mr_device_open("cuda:1", &dev[1]));
    must(mr_stream_create(dev[1], "s", &stream[1]));
    must(mr_memory_acquire(dev[1], MR_DEVICE, BYTES, (void **)&far[1]));
    copy_and_check(2);
    fake_report(&after);
    assert_int_equal(after.peer_staged, before.peer_staged);
}

static void one_gpu_opened_twice(void **state)
{
    (void)state;
    struct mr_device *again = NULL;
    unsigned char *there = NULL;
    must(mr_device_open("cuda:0", &again));
    must(mr_memory_acquire(again, MR_DEVICE, BYTES, (void **)&there));
    assert_int_equal(mr_device_reach(dev[0], again), 1);
    must(mr_copy_peer_async(stream[0], there, again, far[0], dev[0], BYTES));
    must(mr_stream_synchronize(stream[0]));
    mr_memory_release(again, MR_DEVICE, there, NULL);
    mr_device_close(again);
}

static void gpus_that_do_not_reach_each_other_still_copy(void **state)
{
    (void)state;
    struct fake_cuda_report r;
    setenv("FAKE_CUDA_NO_PEER", "1", 1);
    assert_int_equal(mr_device_reach(dev[0], dev[1]), 0);
    copy_and_check(3);
    unsetenv("FAKE_CUDA_NO_PEER");
    fake_report(&r);
    assert_int_equal(r.peer_staged, 2);
}

static void failures_are_told(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess",
                                        "cuMemcpyPeerAsync"};
    for (size_t i = 0; i < MR_COUNT(calls); i++) {
        fake_fail(calls[i], 1, 999, 0);
        assert_int_equal(mr_copy_peer_async(stream[0], far[0], dev[0], far[1], dev[1], BYTES),
                         MR_EDEVICE);
        assert_non_null(strstr(mr_last_error(), calls[i]));
        assert_non_null(strstr(mr_last_error(), "cuda:1"));
        assert_non_null(strstr(mr_last_error(), "CUDA_ERROR_UNKNOWN"));
    }
    must(mr_copy_peer_async(stream[0], far[0], dev[0], far[1], dev[1], BYTES));
    must(mr_stream_synchronize(stream[0]));
    struct mr_device_info info = {.size = sizeof info};
    must(mr_device_query(dev[0], &info));
    assert_true(info.peer_gb_per_s == 50); /* two NVLinks are up */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus_that_do_not_reach_each_other_still_copy, open_both,
                                        close_both),
        cmocka_unit_test_setup_teardown(failures_are_told, open_both, close_both),
        cmocka_unit_test_setup_teardown(copies_are_direct, open_both, close_both),
        cmocka_unit_test_setup_teardown(asking_is_done_once, open_both, close_both),
        cmocka_unit_test_setup_teardown(a_new_opening_asks_again, open_both, close_both),
        cmocka_unit_test_setup_teardown(one_gpu_opened_twice, open_both, close_both),
    };
    fake_load();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
