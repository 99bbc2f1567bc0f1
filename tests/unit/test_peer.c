/* Copies between two devices that are not GPUs: bytes, order, rates' limit, and what is refused. */
#include "run_loader.h"

static struct mr_device *open_device(const char *uri)
{
    struct mr_device *dev = NULL;
    must(mr_device_open(uri, &dev));
    return dev;
}

static unsigned char *take(struct mr_device *dev, enum mr_memory kind, uint64_t bytes)
{
    void *ptr = NULL;
    must(mr_memory_acquire(dev, kind, bytes, &ptr));
    return ptr;
}

/* host -> one -> other -> one -> host, on streams of either, with odd sizes and offsets. */
static void bytes_arrive(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 63, 4097, 1000003};
    for (unsigned c = 0; c < 4 * MR_COUNT(sizes); c++) {
        struct mr_device *dev[2] = {open_device("sim:latency=1us"),
                                    open_device("sim:peer=20,latency=1us")};
        uint64_t n = sizes[c / 4], skip = c % 5;
        struct mr_stream *stream[2];
        unsigned char *far[2], *src = take(dev[0], MR_PINNED, n), *dst = take(dev[0], MR_PINNED, n);
        for (int i = 0; i < 2; i++) {
            must(mr_stream_create(dev[i], "s", &stream[i]));
            far[i] = take(dev[i], MR_DEVICE, n + 16);
        }
        for (uint64_t k = 0; k < n; k++)
            src[k] = (unsigned char)mr_mix64(c * 1000003 + k);
        memset(dst, 0, n);
        must(mr_copy_async(stream[0], far[0] + skip, MR_DEVICE, src, MR_PINNED, n));
        must(mr_stream_synchronize(stream[0]));
        must(mr_copy_peer_async(stream[c & 1], far[1] + 3, dev[1], far[0] + skip, dev[0], n));
        must(mr_stream_synchronize(stream[c & 1]));
        must(mr_memset_async(stream[0], far[0], MR_DEVICE, 0, n + 16));
        must(mr_stream_synchronize(stream[0]));
        must(mr_copy_peer_async(stream[c >> 1 & 1], far[0] + 1, dev[0], far[1] + 3, dev[1], n));
        must(mr_stream_synchronize(stream[c >> 1 & 1]));
        must(mr_copy_async(stream[0], dst, MR_PINNED, far[0] + 1, MR_DEVICE, n));
        must(mr_stream_synchronize(stream[0]));
        assert_memory_equal(dst, src, n);
        mr_memory_release(dev[0], MR_PINNED, src, NULL);
        mr_memory_release(dev[0], MR_PINNED, dst, NULL);
        for (int i = 0; i < 2; i++) {
            mr_memory_release(dev[i], MR_DEVICE, far[i], NULL);
            mr_stream_destroy(stream[i]);
            mr_device_close(dev[i]);
        }
    }
}

/* 1 MiB at the slower device's 2 GB/s takes at least 524 us, and stands in the stream's order. */
static void the_slower_rate_counts(void **state)
{
    (void)state;
    struct mr_device *fast = open_device("sim:peer=1000"), *slow = open_device("sim:peer=2");
    struct mr_stream *stream;
    struct mr_event *start, *end;
    int64_t ns = 0;
    unsigned char *a = take(fast, MR_DEVICE, 1 << 20), *b = take(slow, MR_DEVICE, 1 << 20);
    struct mr_device_info info = {.size = sizeof info};
    must(mr_device_query(slow, &info));
    assert_true(info.peer_gb_per_s == 2);
    must(mr_stream_create(fast, "s", &stream));
    must(mr_event_create(fast, 1, &start));
    must(mr_event_create(fast, 1, &end));
    must(mr_memset_async(stream, a, MR_DEVICE, 7, 1 << 20));
    must(mr_event_record(start, stream));
    must(mr_copy_peer_async(stream, b, slow, a, fast, 1 << 20));
    must(mr_event_record(end, stream));
    must(mr_event_synchronize(end));
    must(mr_event_elapsed(start, end, &ns));
    assert_true(ns >= 524288);
    assert_true(b[0] == 7 && b[(1 << 20) - 1] == 7);
    mr_event_destroy(start);
    mr_event_destroy(end);
    mr_stream_destroy(stream);
    mr_memory_release(fast, MR_DEVICE, a, NULL);
    mr_memory_release(slow, MR_DEVICE, b, NULL);
    mr_device_close(fast);
    mr_device_close(slow);
}

#define refused(code, says, call)                                                                  \
    do {                                                                                           \
        assert_int_equal(call, code);                                                              \
        if (!strstr(mr_last_error(), says))                                                        \
            fail_msg("%s: \"%s\" does not say \"%s\"", #call, mr_last_error(), says);              \
    } while (0)

static void misuse_is_refused(void **state)
{
    (void)state;
    struct mr_device *one = open_device("sim"), *two = open_device("sim"),
                     *third = open_device("sim");
    struct mr_device *cpu = open_device("cpu"), *cpu2 = open_device("cpu");
    struct mr_stream *s;
    unsigned char *a = take(one, MR_DEVICE, 4096), *b = take(two, MR_DEVICE, 4096);
    must(mr_stream_create(one, "mine", &s));
    assert_int_equal(mr_device_reach(one, two), 1);
    assert_int_equal(mr_device_reach(one, one), 1);
    refused(MR_EMISUSE, "NULL", mr_device_reach(one, NULL));
    refused(MR_EUNSUPPORTED, "sim and cpu", mr_device_reach(one, cpu));
    assert_int_equal(mr_device_reach(cpu2, cpu), 1);
    refused(MR_EUNSUPPORTED, "host memory", mr_copy_peer_async(s, a, one, b, cpu, 1));
    refused(MR_EMISUSE, "\"mine\" belongs to neither", mr_copy_peer_async(s, a, two, b, third, 1));
    refused(MR_EMISUSE, "the source is NULL", mr_copy_peer_async(s, a, one, NULL, two, 1));
    refused(MR_EMISUSE, "the destination is NULL", mr_copy_peer_async(s, NULL, one, b, two, 1));
    refused(MR_EDEVICE, "source",
            mr_copy_peer_async(s, a, one, b + 4096, two, 1)); /* past its end */
    refused(MR_EDEVICE, "destination",
            mr_copy_peer_async(s, b, one, a, two, 1)); /* the wrong way round */
    assert_int_equal(mr_copy_peer_async(s, a, one, b, two, 0), 0);
    assert_int_equal(mr_copy_peer_async(s, a + 8, one, a, one, 8), 0); /* one device alone */
    must(mr_stream_synchronize(s));
    mr_memory_release(one, MR_DEVICE, a, NULL);
    mr_memory_release(two, MR_DEVICE, b, NULL);
    mr_stream_destroy(s);
    mr_device_close(one);
    mr_device_close(two);
    mr_device_close(third);
    mr_device_close(cpu);
    mr_device_close(cpu2);
}

#define ROUNDS 40

/* Two devices take turns, each waiting for the other's event: a round's byte is set on one, copied
 * to the other, and brought back before the next one overwrites it. */
static void events_order_devices(void **state)
{
    (void)state;
    struct mr_device *dev[2] = {open_device("sim:latency=1us"), open_device("sim:latency=1us")};
    struct mr_stream *stream[2];
    struct mr_event *turn[2];
    unsigned char *far[2], *seen = take(dev[1], MR_PINNED, ROUNDS);
    uint64_t ns = 50000;
    for (int i = 0; i < 2; i++) {
        must(mr_stream_create(dev[i], "s", &stream[i]));
        must(mr_event_create(dev[i], 0, &turn[i]));
        far[i] = take(dev[i], MR_DEVICE, 64);
    }
    memset(seen, 0, ROUNDS);
    for (int k = 0; k < ROUNDS; k++) {
        int slow = k & 1; /* which of the two would be late, were it not waited for */
        must(mr_stream_wait(stream[0], turn[1]));
        must(mr_launch(stream[slow], "busy", &ns, sizeof ns));
        must(mr_memset_async(stream[0], far[0], MR_DEVICE, k + 1, 64));
        must(mr_event_record(turn[0], stream[0]));
        must(mr_stream_wait(stream[1], turn[0]));
        must(mr_copy_peer_async(stream[1], far[1], dev[1], far[0], dev[0], 64));
        must(mr_copy_async(stream[1], seen + k, MR_PINNED, far[1] + k, MR_DEVICE, 1));
        must(mr_event_record(turn[1], stream[1]));
    }
    must(mr_stream_synchronize(stream[1]));
    for (int k = 0; k < ROUNDS; k++)
        assert_int_equal(seen[k], k + 1);
    mr_memory_release(dev[1], MR_PINNED, seen, NULL);
    for (int i = 0; i < 2; i++) {
        mr_event_destroy(turn[i]);
        mr_memory_release(dev[i], MR_DEVICE, far[i], NULL);
        mr_stream_destroy(stream[i]);
        mr_device_close(dev[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive),
        cmocka_unit_test(the_slower_rate_counts),
        cmocka_unit_test(events_order_devices),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
