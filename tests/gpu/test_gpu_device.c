/* The device "cuda" on a real GPU: bytes, order, overlap, memory, and living beside other users of
 * the GPU. */
#include "../support/kernels.h"
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_info(struct mr_device *dev)
{
    struct mr_device_info info = {.size = sizeof info};
    must(mr_device_query(dev, &info));
    printf("  %s: %s, %s, %s, driver %s (CUDA %d.%d), compute capability %d.%d\n", info.name,
           info.model, info.uuid, info.pci_id, info.driver[0] ? info.driver : "?",
           info.driver_api / 1000, info.driver_api % 1000 / 10, info.compute_capability / 10,
           info.compute_capability % 10);
    printf("  %.1f of %.1f GiB free, %d copy engines, link %d.0 x%d now, %d.0 x%d at most (%.1f "
           "GB/s), NUMA node %d\n",
           (double)info.free_bytes * 0x1p-30, (double)info.memory_bytes * 0x1p-30,
           info.copy_engines, info.link_generation, info.link_width, info.link_generation_max,
           info.link_width_max, info.h2d_gb_per_s, info.numa_node);
    check(!info.unified && info.model[0] && info.n_devices >= 1 && info.ordinal == 0);
    check(strlen(info.uuid) == 40 && strlen(info.pci_id) == 12);
    check(info.free_bytes > 0 && info.free_bytes <= info.memory_bytes);
    check(info.driver_api >= 11040 && info.compute_capability >= 50 && info.copy_engines >= 1);
    char uri[32];
    struct mr_device *other = NULL;
    snprintf(uri, sizeof uri, "cuda:%d", info.n_devices);
    check(mr_device_open(uri, &other) == MR_ENODEVICE);
    check(mr_device_open("cuda:-1", &other) == MR_ENODEVICE);
}

/* What goes there and comes back is the same: every pair of kinds, odd sizes and offsets. */
static void round_trip(struct mr_device *dev, struct mr_stream *stream, uint64_t n, unsigned c)
{
    enum mr_memory from = c & 1 ? MR_PINNED : MR_PAGEABLE, to = c & 2 ? MR_PINNED : MR_PAGEABLE;
    uint64_t skip = c % 5 * 3;
    unsigned char *src = gpu_take(dev, from, n + 16), *dst = gpu_take(dev, to, n + 16);
    unsigned char *far = gpu_take(dev, MR_DEVICE, n + 16), *away = gpu_take(dev, MR_DEVICE, n + 16);
    gpu_fill(src, n + 16, c + 1);
    memset(dst, 0xee, n + 16);
    must(mr_copy_async(stream, far + skip, MR_DEVICE, src + 1, from, n));
    must(mr_copy_async(stream, away + 5, MR_DEVICE, far + skip, MR_DEVICE, n));
    must(mr_copy_async(stream, dst + 3, to, away + 5, MR_DEVICE, n));
    must(mr_stream_synchronize(stream));
    check(memcmp(dst + 3, src + 1, n) == 0);
    for (uint64_t i = 0; i < 16; i++)
        check(dst[i < 3 ? i : n + i] == 0xee); /* nothing beside it */
    mr_memory_release(dev, MR_DEVICE, away, NULL);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, to, dst, NULL);
    mr_memory_release(dev, from, src, NULL);
}

static void test_round_trips(struct mr_device *dev)
{
    static const uint64_t sizes[] = {1, 2, 63, 4095, 65537, (1 << 20) - 1, LESS(33 << 20) + 12345};
    struct mr_stream *stream = gpu_stream(dev, "copy");
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (unsigned c = 0; c < 8; c++)
            round_trip(dev, stream, sizes[i], (unsigned)i * 8 + c);
    mr_stream_destroy(stream);
}

static void test_pinned_by_alloc(struct mr_device *dev)
{
    (void)dev;
    struct mr_device *other = NULL;
    struct mr_memory_counters count = {.size = sizeof count};
    must(mr_device_open("cuda:0,pinned=alloc", &other));
    struct mr_stream *stream = gpu_stream(other, "copy");
    for (unsigned c = 0; c < 4; c++)
        round_trip(other, stream, 1000001, c);
    mr_memory_query(other, MR_PINNED, &count);
    check(count.held_bytes > 0 && count.locked_bytes == count.held_bytes);
    mr_stream_destroy(stream);
    mr_device_close(other);
}

static void test_batch_and_set(struct mr_device *dev)
{
    enum { N = 3000, PIECE = 1009 };
    static struct mr_copy there[N], back[N];
    struct mr_stream *stream = gpu_stream(dev, "copy");
    unsigned char *far = gpu_take(dev, MR_DEVICE, N * PIECE),
                  *dst = gpu_take(dev, MR_PINNED, N * PIECE);
    unsigned char *src = malloc(N * PIECE); /* the caller's own memory, registered */
    check(src);
    gpu_fill(src, N * PIECE, 77);
    must(mr_memory_register(dev, src, N * PIECE));
    for (uint64_t k = 0; k < N; k++) {
        there[k] = (struct mr_copy){far + k * PIECE, src + k * PIECE,
                                    k % 7 == 3 ? 0 : k % 5 * 250 + 1, MR_DEVICE, MR_PINNED};
        back[k] = (struct mr_copy){dst + k * PIECE, far + k * PIECE, PIECE, MR_PINNED, MR_DEVICE};
    }
    for (int round = 0; round < 2;
         round++) { /* with empty copies, and without, when the driver takes them at once */
        must(mr_memset_async(stream, far, MR_DEVICE, 0xa5, N * PIECE));
        must(mr_copy_batch_async(stream, there, N));
        must(mr_copy_batch_async(stream, back, N));
        must(mr_stream_synchronize(stream));
        for (uint64_t k = 0; k < N * PIECE; k++)
            check(dst[k] == (k % PIECE < there[k / PIECE].bytes ? src[k] : 0xa5));
        for (uint64_t k = 0; k < N; k++)
            there[k].bytes += there[k].bytes == 0;
    }
    must(mr_memory_unregister(dev, src, N * PIECE));
    check(mr_memory_unregister(dev, src, N * PIECE) < 0);
    free(src);
    mr_memory_release(dev, MR_PINNED, dst, NULL);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_stream_destroy(stream);
}

static void test_events(struct mr_device *dev)
{
    struct mr_stream *stream = gpu_stream(dev, "compute");
    struct mr_event *from = gpu_event(dev), *to = gpu_event(dev), *plain = NULL;
    int64_t ns = 77;
    must(mr_event_create(dev, 0, &plain));
    check(mr_event_query(from) == 1); /* never recorded: passed */
    must(mr_event_synchronize(from));
    must(mr_stream_wait(stream, from));
    check(mr_event_elapsed(from, to, &ns) == MR_EMISUSE && ns == 77);
    gpu_busy(stream, 1000); /* the kernel is loaded by then */
    must(mr_stream_synchronize(stream));
    uint64_t before = mr_time_ns();
    must(mr_event_record(from, stream));
    gpu_busy(stream, 50 * MS);
    must(mr_event_record(to, stream));
    must(mr_event_record(plain, stream));
    int passed = mr_event_query(to);
    if (mr_time_ns() - before < 50 * MS)
        check(passed == 0);
    check(mr_event_elapsed(from, to, &ns) == MR_EMISUSE || mr_time_ns() - before >= 50 * MS);
    must(mr_event_synchronize(to));
    check(mr_time_ns() - before >= 49 * MS);
    check(mr_event_query(to) == 1);
    check(gpu_between(from, to) >= (int64_t)(49 * MS) &&
          gpu_between(to, from) == -gpu_between(from, to));
    check(mr_event_elapsed(from, plain, &ns) == MR_EMISUSE);
    uint64_t eight = 0;
    check(mr_launch(stream, "fft", &eight, 8) == MR_EUNSUPPORTED &&
          mr_launch(stream, "busy", &eight, 4) == MR_EMISUSE);
    mr_event_destroy(plain);
    mr_event_destroy(to);
    mr_event_destroy(from);
    mr_stream_destroy(stream);
}

/* Kernels that wait and copy, and memory that the host does not cache. */
static void test_kernels(struct mr_device *dev)
{
    void *combined = NULL;
    const char *wrong = kernels_wrong(dev);
    if (wrong)
        fprintf(stderr, "kernels: %s\n", wrong);
    check(wrong == NULL);
    must(mr_memory_make(dev, MR_MAKE_WRITE_COMBINED, 1 << 20, &combined));
    memset(combined, 7, 1 << 20);
    mr_memory_unmake(dev, combined);
}

/* A chain of copies through streams, each after the event of the one before; any missed wait shows
 * in the bytes. */
static void test_order_across_streams(struct mr_device *dev)
{
    enum { N = 6, ROUNDS = 40 };
    const uint64_t bytes = 4 << 20;
    struct mr_stream *stream[N];
    struct mr_event *done[N];
    unsigned char *far[N], *src = gpu_take(dev, MR_PINNED, bytes),
                           *dst = gpu_take(dev, MR_PINNED, bytes);
    for (int i = 0; i < N; i++) {
        stream[i] = gpu_stream(dev, "hop");
        done[i] = gpu_event(dev);
        far[i] = gpu_take(dev, MR_DEVICE, bytes);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        gpu_fill(src, bytes, round);
        gpu_busy(stream[0], 300000); /* so the others would be early */
        must(mr_copy_async(stream[0], far[0], MR_DEVICE, src, MR_PINNED, bytes));
        must(mr_event_record(done[0], stream[0]));
        for (int i = 1; i < N; i++) {
            must(mr_stream_wait(stream[i], done[i - 1]));
            must(mr_copy_async(stream[i], far[i], MR_DEVICE, far[i - 1], MR_DEVICE, bytes));
            must(mr_event_record(done[i], stream[i]));
        }
        must(mr_stream_wait(stream[0], done[N - 1]));
        must(mr_copy_async(stream[0], dst, MR_PINNED, far[N - 1], MR_DEVICE, bytes));
        must(mr_stream_synchronize(stream[0]));
        check(memcmp(src, dst, bytes) == 0);
        for (int i = 1; i < N; i++)
            check(gpu_between(done[i - 1], done[i]) >= 0);
    }
    for (int i = 0; i < N; i++) {
        mr_memory_release(dev, MR_DEVICE, far[i], NULL);
        mr_event_destroy(done[i]);
        mr_stream_destroy(stream[i]);
    }
    mr_memory_release(dev, MR_PINNED, src, NULL);
    mr_memory_release(dev, MR_PINNED, dst, NULL);
}

/* A copy in one stream ends while a kernel in another runs. Times are the GPU's; tried again, as
 * the host may be slow to enqueue. */
static void test_overlap(struct mr_device *dev)
{
    const uint64_t bytes = 64 << 20;
    struct mr_stream *compute = gpu_stream(dev, "compute"), *up = gpu_stream(dev, "h2d"),
                     *down = gpu_stream(dev, "d2h");
    struct mr_event *e[6];
    void *host = gpu_take(dev, MR_PINNED, bytes), *far = gpu_take(dev, MR_DEVICE, bytes);
    void *host2 = gpu_take(dev, MR_PINNED, bytes), *far2 = gpu_take(dev, MR_DEVICE, bytes);
    bool both = false;
    for (int i = 0; i < 6; i++)
        e[i] = gpu_event(dev);
    uint64_t busy_ns = 50 * MS;
    for (int attempt = 0; attempt < 10 && !both; attempt++) {
        must(mr_event_record(e[0], compute));
        gpu_busy(compute, busy_ns);
        must(mr_event_record(e[1], compute));
        must(mr_event_record(e[2], up));
        must(mr_copy_async(up, far, MR_DEVICE, host, MR_PINNED, bytes));
        must(mr_event_record(e[3], up));
        must(mr_event_record(e[4], down));
        must(mr_copy_async(down, host2, MR_PINNED, far2, MR_DEVICE, bytes));
        must(mr_event_record(e[5], down));
        must(mr_stream_synchronize(compute));
        must(mr_stream_synchronize(up));
        must(mr_stream_synchronize(down));
        busy_ns += 2 * (uint64_t)(gpu_between(e[2], e[3]) +
                                  gpu_between(e[4], e[5])); /* longer than copies take here */
        both = gpu_between(e[3], e[1]) > 0 && gpu_between(e[5], e[1]) > 0 &&
               gpu_between(e[0], e[2]) >= 0;
    }
    printf("  64 MiB up in %.3f ms (%.1f GB/s), down in %.3f ms, under a kernel of %.1f ms\n",
           (double)gpu_between(e[2], e[3]) * 1e-6, (double)bytes / (double)gpu_between(e[2], e[3]),
           (double)gpu_between(e[4], e[5]) * 1e-6, (double)gpu_between(e[0], e[1]) * 1e-6);
    check(both);
    for (int i = 0; i < 6; i++)
        mr_event_destroy(e[i]);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_memory_release(dev, MR_PINNED, host2, NULL);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_DEVICE, far2, NULL);
    mr_stream_destroy(down);
    mr_stream_destroy(up);
    mr_stream_destroy(compute);
}

static void test_pool(struct mr_device *dev)
{
    struct mr_memory_counters count = {.size = sizeof count};
    struct mr_stream *stream = gpu_stream(dev, "copy");
    struct mr_event *event = gpu_event(dev);
    const uint64_t bytes = 8 << 20;
    void *a = gpu_take(dev, MR_PINNED, bytes);
    mr_memory_query(dev, MR_PINNED, &count);
    check(count.requested_bytes == bytes && count.held_bytes == bytes && count.misses == 1 &&
          count.hits == 0);
    if (count.locked_bytes != bytes)
        printf("  this system refuses to page-lock\n");
    gpu_busy(stream, 100 * MS);
    must(mr_event_record(event, stream));
    uint64_t before = mr_time_ns();
    mr_memory_release(dev, MR_PINNED, a, event);
    void *b = gpu_take(dev, MR_PINNED, bytes); /* a is not free yet */
    if (mr_time_ns() - before < 90 * MS)
        check(a != b);
    must(mr_stream_synchronize(stream));
    void *c = gpu_take(dev, MR_PINNED, bytes - 5000); /* now it is */
    mr_memory_query(dev, MR_PINNED, &count);
    check(b == a || (c == a && count.hits == 1 && count.misses == 2));
    mr_memory_release(dev, MR_PINNED, b, NULL);
    mr_memory_release(dev, MR_PINNED, c, NULL);
    mr_memory_set_limit(dev, 3 * bytes);
    void *d = NULL;
    check(mr_memory_acquire(dev, MR_DEVICE, 4 * bytes, &d) == MR_ELIMIT && !d);
    must(mr_memory_acquire(dev, MR_DEVICE, 2 * bytes,
                           &d)); /* cached page-locked memory makes room */
    mr_memory_release(dev, MR_DEVICE, d, NULL);
    mr_memory_trim(dev);
    mr_memory_query(dev, MR_PINNED, &count);
    check(count.held_bytes == 0 && count.requested_bytes == 0);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
}

static void test_out_of_memory(struct mr_device *dev)
{
    struct mr_device_info info = {.size = sizeof info};
    void *p = NULL;
    must(mr_device_query(dev, &info));
    check(mr_memory_acquire(dev, MR_DEVICE, info.memory_bytes + (1ull << 30), &p) ==
              MR_EDEVICEMEM &&
          !p);
    printf("  %s\n", mr_last_error());
    check(strstr(mr_last_error(), "CUDA_ERROR_OUT_OF_MEMORY") &&
          strstr(mr_last_error(), "--batch-size"));
    p = gpu_take(dev, MR_DEVICE, 1 << 20); /* and life goes on */
    mr_memory_release(dev, MR_DEVICE, p, NULL);
}

/* The primary context is shared with whoever else uses this GPU in the process, and callers find
 * their current context unchanged: none stays none, and one that was made current stays. */
static void test_contexts(struct mr_device *dev)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL, *now = NULL;
    int (*get)(void **) = NULL, (*set)(void *) = NULL, (*retain)(void **, int) = NULL,
                    (*drop)(int) = NULL;
    check(cuda);
    *(void **)(void *)&get = dlsym(cuda, "cuCtxGetCurrent");
    *(void **)(void *)&set = dlsym(cuda, "cuCtxSetCurrent");
    *(void **)(void *)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)(void *)&drop = dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
    if (!get || !set) { /* the fake driver of our own tests */
        printf("  this driver has no cuCtxGetCurrent; not checked\n");
        return;
    }
    check(get(&now) == 0 && now == NULL);
    struct mr_stream *stream = gpu_stream(dev, "s");
    gpu_busy(stream, 1000);
    must(mr_stream_synchronize(stream));
    check(get(&now) == 0 && now == NULL);
    check(retain(&context, 0) == 0 && set(context) == 0);
    void *far = gpu_take(dev, MR_DEVICE, 1 << 20);
    must(mr_memset_async(stream, far, MR_DEVICE, 1, 1 << 20));
    must(mr_stream_synchronize(stream));
    check(get(&now) == 0 && now == context);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_stream_destroy(stream);
    struct mr_device *again = NULL;
    must(mr_device_open("cuda", &again));
    mr_device_close(again); /* must not take the context from dev, nor from us */
    far = gpu_take(dev, MR_DEVICE, 3 << 20);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    check(get(&now) == 0 && now == context);
    check(set(NULL) == 0 && drop(0) == 0);
}

static void test_fork(struct mr_device *dev)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct mr_device *other = NULL;
        struct mr_stream *stream = NULL;
        void *p = NULL;
        alarm(20);
        bool refused = mr_stream_create(dev, "s", &stream) < 0 && strstr(mr_last_error(), "fork") &&
                       mr_memory_acquire(dev, MR_DEVICE, 1, &p) < 0 &&
                       mr_device_open("cuda", &other) < 0;
        mr_device_close(dev);
        _exit(refused ? 0 : 1);
    }
    check(pid > 0 && waitpid(pid, &status, 0) == pid);
    check(status == 0);
    struct mr_stream *stream = gpu_stream(dev, "s"); /* the parent goes on */
    gpu_busy(stream, 1000);
    must(mr_stream_synchronize(stream));
    mr_stream_destroy(stream);
}

/* Several threads with a stream each and one in common. */
struct shared {
    struct mr_device *dev;
    struct mr_stream *common;
    uint32_t seed;
};

static void *use_gpu(void *arg)
{
    struct shared *me = arg;
    const uint64_t bytes = 300001;
    struct mr_stream *own = gpu_stream(me->dev, "own");
    struct mr_event *event = gpu_event(me->dev);
    unsigned char *src = gpu_take(me->dev, MR_PINNED, bytes),
                  *dst = gpu_take(me->dev, MR_PAGEABLE, bytes);
    void *far = gpu_take(me->dev, MR_DEVICE, bytes);
    for (uint32_t i = 0; i < 50; i++) {
        gpu_fill(src, bytes, me->seed * 1000 + i);
        must(mr_copy_async(me->common, far, MR_DEVICE, src, MR_PINNED, bytes));
        must(mr_event_record(event, me->common));
        must(mr_stream_wait(own, event));
        must(mr_copy_async(own, dst, MR_PAGEABLE, far, MR_DEVICE, bytes));
        must(mr_stream_synchronize(own));
        check(memcmp(src, dst, bytes) == 0);
    }
    mr_memory_release(me->dev, MR_DEVICE, far, NULL);
    mr_memory_release(me->dev, MR_PAGEABLE, dst, NULL);
    mr_memory_release(me->dev, MR_PINNED, src, NULL);
    mr_event_destroy(event);
    mr_stream_destroy(own);
    return NULL;
}

static void test_threads(struct mr_device *dev)
{
    pthread_t thread[6];
    struct shared shared[6], first = {dev, gpu_stream(dev, "common"), 0};
    for (uint32_t i = 0; i < 6; i++) {
        shared[i] = first;
        shared[i].seed = i;
        check(pthread_create(&thread[i], NULL, use_gpu, &shared[i]) == 0);
    }
    for (int i = 0; i < 6; i++)
        pthread_join(thread[i], NULL);
    mr_stream_destroy(first.common);
}

/* Objects may go away with work under way: that waits. */
static void test_destroy_with_work(struct mr_device *dev)
{
    for (int round = 0; round < 6; round++) {
        void *host = gpu_take(dev, MR_PINNED, 1 << 20), *far = gpu_take(dev, MR_DEVICE, 1 << 20);
        struct mr_stream *a = gpu_stream(dev, "a"), *b = gpu_stream(dev, "b");
        struct mr_event *event = gpu_event(dev);
        for (int i = 0; i < 5; i++) {
            gpu_busy(a, MS);
            must(mr_copy_async(a, far, MR_DEVICE, host, MR_PINNED, 1 << 20));
            must(mr_event_record(event, a));
            must(mr_stream_wait(b, event));
            gpu_busy(b, MS);
        }
        mr_memory_release(dev, MR_PINNED, host, event);
        if (round & 1) {
            mr_event_destroy(event);
            mr_stream_destroy(b);
            mr_stream_destroy(a);
        } else {
            mr_stream_destroy(a);
            mr_stream_destroy(b);
            mr_event_destroy(event);
        }
        mr_memory_release(dev, MR_DEVICE, far, NULL);
    }
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"info", test_info},
        {"round trips", test_round_trips},
        {"pinned by alloc", test_pinned_by_alloc},
        {"batch and set", test_batch_and_set},
        {"events", test_events},
        {"kernels", test_kernels},
        {"order across streams", test_order_across_streams},
        {"overlap", test_overlap},
        {"pool", test_pool},
        {"out of memory", test_out_of_memory},
        {"contexts", test_contexts},
        {"threads", test_threads},
        {"destroy with work", test_destroy_with_work},
        {"fork", test_fork},
    };
    return gpu_main(tests, COUNT(tests));
}
