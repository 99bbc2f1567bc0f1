/* Copies between two real GPUs: bytes both ways, on streams of either. With one GPU there is
 * nothing to test. */
#include "gpu.h"

#include <stdbool.h>

#define BYTES (LESS(64u << 20) + 12345)

/* Of ten copies after one, in GB/s. stream: of `to`. */
static double rate(struct mr_stream *stream, struct mr_device *to, unsigned char *dst,
                   struct mr_device *from, const unsigned char *src)
{
    struct mr_event *start = NULL, *end = NULL;
    int64_t ns = 0;
    must(mr_event_create(to, 1, &start));
    must(mr_event_create(to, 1, &end));
    must(mr_copy_peer_async(stream, dst, to, src, from, BYTES));
    must(mr_event_record(start, stream));
    for (int i = 0; i < 10; i++)
        must(mr_copy_peer_async(stream, dst, to, src, from, BYTES));
    must(mr_event_record(end, stream));
    must(mr_event_synchronize(end));
    must(mr_event_elapsed(start, end, &ns));
    mr_event_destroy(end);
    mr_event_destroy(start);
    return 10.0 * BYTES / (double)(ns > 0 ? ns : 1);
}

static void test_peer(struct mr_device *dev)
{
    struct mr_device_info info = {.size = sizeof info};
    struct mr_device *peer = NULL;
    must(mr_device_query(dev, &info));
    if (info.n_devices < 2) {
        printf("  SKIP there is one GPU\n");
        return;
    }
    must(mr_device_open("cuda:1", &peer));
    struct mr_stream *stream[2] = {gpu_stream(dev, "s0"), gpu_stream(peer, "s1")};
    unsigned char *src = gpu_take(dev, MR_PINNED, BYTES), *dst = gpu_take(dev, MR_PINNED, BYTES);
    unsigned char *here = gpu_take(dev, MR_DEVICE, BYTES),
                  *there = gpu_take(peer, MR_DEVICE, BYTES);
    int direct = mr_device_reach(dev, peer);
    check(direct == 0 || direct == 1);
    for (unsigned c = 0; c < 4; c++) {
        gpu_fill(src, BYTES, c + 1);
        memset(dst, 0, BYTES);
        must(mr_copy_async(stream[0], here, MR_DEVICE, src, MR_PINNED, BYTES));
        must(mr_stream_synchronize(stream[0]));
        must(mr_copy_peer_async(stream[c & 1], there, peer, here, dev, BYTES));
        must(mr_stream_synchronize(stream[c & 1]));
        must(mr_memset_async(stream[0], here, MR_DEVICE, 0, BYTES));
        must(mr_stream_synchronize(stream[0]));
        must(mr_copy_peer_async(stream[c >> 1], here, dev, there, peer, BYTES));
        must(mr_stream_synchronize(stream[c >> 1]));
        must(mr_copy_async(stream[0], dst, MR_PINNED, here, MR_DEVICE, BYTES));
        must(mr_stream_synchronize(stream[0]));
        check(memcmp(src, dst, BYTES) == 0);
    }
    printf("  %s; %.1f GB/s from the peer, NVLinks %.0f GB/s\n",
           direct ? "direct" : "through the host's memory", rate(stream[0], dev, here, peer, there),
           info.peer_gb_per_s);
    mr_memory_release(peer, MR_DEVICE, there, NULL);
    mr_memory_release(dev, MR_DEVICE, here, NULL);
    mr_memory_release(dev, MR_PINNED, dst, NULL);
    mr_memory_release(dev, MR_PINNED, src, NULL);
    mr_stream_destroy(stream[1]);
    mr_stream_destroy(stream[0]);
    mr_device_close(peer);
}

int main(void)
{
    static const struct gpu_test tests[] = {{"peer", test_peer}};
    return gpu_main(tests, COUNT(tests));
}
