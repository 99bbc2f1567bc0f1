/* White-box. The simulated accelerator: order, overlap, blocking. Times are the model's, from
 * events; never this machine's load. */
#include "base/base.h"
#include <millrace/device.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS 1000000

static struct mr_device *must_open(const char *uri)
{
    struct mr_device *dev = NULL;
    if (mr_device_open(uri, &dev) != 0)
        fail_msg("%s: %s", uri, mr_last_error());
    return dev;
}

static void *take(struct mr_device *dev, enum mr_memory kind, uint64_t bytes)
{
    void *p = NULL;
    if (mr_memory_acquire(dev, kind, bytes, &p) != 0)
        fail_msg("%s", mr_last_error());
    return p;
}

static struct mr_stream *make_stream(struct mr_device *dev)
{
    struct mr_stream *stream = NULL;
    assert_int_equal(mr_stream_create(dev, "test", &stream), 0);
    return stream;
}

static struct mr_event *make_event(struct mr_device *dev)
{
    struct mr_event *event = NULL;
    assert_int_equal(mr_event_create(dev, 1, &event), 0);
    return event;
}

static int64_t between(struct mr_event *from, struct mr_event *to)
{
    int64_t ns = 0;
    if (mr_event_elapsed(from, to, &ns) != 0)
        fail_msg("%s", mr_last_error());
    return ns;
}

static void busy(struct mr_stream *stream, uint64_t ns)
{
    assert_int_equal(mr_launch(stream, "busy", &ns, sizeof ns), 0);
}

/* Some work in a stream, between two events. The first event of an idle stream is when the work was
 * enqueued. */
struct piece {
    struct mr_stream *stream;
    struct mr_event *start, *end;
};

static struct piece make_piece(struct mr_device *dev)
{
    return (struct piece){make_stream(dev), make_event(dev), make_event(dev)};
}

static void drop_piece(struct piece *p)
{
    mr_event_destroy(p->end);
    mr_event_destroy(p->start);
    mr_stream_destroy(p->stream);
}

static void piece_copy(struct piece *p, void *dst, enum mr_memory dst_kind, const void *src,
                       enum mr_memory src_kind, uint64_t bytes)
{
    assert_int_equal(mr_event_record(p->start, p->stream), 0);
    assert_int_equal(mr_copy_async(p->stream, dst, dst_kind, src, src_kind, bytes), 0);
    assert_int_equal(mr_event_record(p->end, p->stream), 0);
}

/* Work takes latency + its time in the model: to the nanosecond where no real bytes move, at least
 * where they do. */
static void test_rate(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:h2d=0.05,d2h=0.1,latency=2ms");
    uint64_t n = 1000000;
    void *host = take(dev, MR_PINNED, n), *far = take(dev, MR_DEVICE, n);
    struct piece in = make_piece(dev), out = make_piece(dev);
    struct mr_event *computed = make_event(dev);
    piece_copy(&in, far, MR_DEVICE, host, MR_PINNED, n);
    assert_int_equal(mr_stream_wait(out.stream, in.end), 0);
    assert_int_equal(mr_copy_async(out.stream, host, MR_PINNED, far, MR_DEVICE, n), 0);
    assert_int_equal(mr_event_record(out.end, out.stream), 0);
    for (int i = 0; i < 3; i++)
        busy(out.stream, 3 * MS);
    assert_int_equal(mr_event_record(computed, out.stream), 0);
    assert_int_equal(mr_event_synchronize(computed), 0);
    assert_true(between(in.start, in.end) >= 22 * MS);
    assert_true(between(in.end, out.end) >= 12 * MS);
    assert_int_equal(between(out.end, computed), 3 * (3 + 2) * MS);
    mr_event_destroy(computed);
    drop_piece(&in);
    drop_piece(&out);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_device_close(dev);
}

/* Two copies in, one out and a kernel, 50 ms each, all let go by one gate. Returns whether the
 * directions overlapped and the kernel, too; that the copies of one direction did not is
 * asserted. */
static bool overlap_once(struct mr_device *dev, char *host, char *far, uint64_t n)
{
    struct piece in1 = make_piece(dev), in2 = make_piece(dev), out = make_piece(dev),
                 compute = make_piece(dev);
    struct mr_event *go = make_event(dev);
    struct mr_stream *gate = make_stream(dev);
    struct piece *all[] = {&in1, &in2, &out, &compute};
    busy(gate, 60 * MS);
    assert_int_equal(mr_event_record(go, gate), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(mr_stream_wait(all[i]->stream, go), 0);
    piece_copy(&in1, far, MR_DEVICE, host, MR_PINNED, n);
    piece_copy(&in2, far + n, MR_DEVICE, host + n, MR_PINNED, n);
    piece_copy(&out, host + 2 * n, MR_PINNED, far + 2 * n, MR_DEVICE, n);
    busy(compute.stream, 50 * MS);
    assert_int_equal(mr_event_record(compute.end, compute.stream), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(mr_stream_synchronize(all[i]->stream), 0);
    int64_t apart = between(in1.end, in2.end);
    assert_true((apart < 0 ? -apart : apart) >= 50 * MS);
    bool overlapped = between(go, out.end) < 100 * MS && between(go, compute.end) < 100 * MS &&
                      between(go, in1.end) < 100 * MS;
    for (int i = 0; i < 4; i++)
        drop_piece(all[i]);
    mr_event_destroy(go);
    mr_stream_destroy(gate);
    return overlapped;
}

/* Copies of one direction are never at once; different directions and the compute queue are, unless
 * this machine is so busy that its threads stand still for 50 ms, which it is not every time. */
static void test_overlap(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:h2d=0.02,d2h=0.02,latency=0");
    uint64_t n = 1000000;
    void *host = take(dev, MR_PINNED, 3 * n), *far = take(dev, MR_DEVICE, 3 * n);
    bool overlapped = false;
    for (int attempt = 0; attempt < 10 && !overlapped; attempt++)
        overlapped = overlap_once(dev, host, far, n);
    assert_true(overlapped);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_device_close(dev);
}

/* The call returns long before a slow copy of page-locked memory is done; the copy of pageable
 * memory was staged by then, and took the caller the time that staging takes. */
static void test_pageable_blocks(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:h2d=0.005,d2h=0.005,pageable=0.05,latency=0");
    uint64_t n = 2500000; /* 500 ms on the engine; 50 ms to stage */
    void *host = take(dev, MR_PINNED, n), *plain = take(dev, MR_PAGEABLE, n),
         *far = take(dev, MR_DEVICE, n);
    struct piece p = make_piece(dev);
    uint64_t before = mr_time_ns();
    piece_copy(&p, far, MR_DEVICE, host, MR_PINNED, n);
    int passed = mr_event_query(p.end);
    if (mr_time_ns() - before < 500 * MS)
        assert_int_equal(passed, 0);
    assert_int_equal(mr_stream_synchronize(p.stream), 0);

    /* To the device: two chunks of three fit the bounce buffer, so the first must have moved before
     * the call returns. */
    before = mr_time_ns();
    assert_int_equal(mr_copy_async(p.stream, far, MR_DEVICE, plain, MR_PAGEABLE, n), 0);
    assert_true(mr_time_ns() - before >= 50 * MS);
    memset(plain, 1, n); /* the source is ours again */
    assert_int_equal(mr_stream_synchronize(p.stream), 0);
    assert_true(mr_time_ns() - before >= 500 * MS);

    /* From the device: complete on return. */
    before = mr_time_ns();
    assert_int_equal(mr_copy_async(p.stream, plain, MR_PAGEABLE, far, MR_DEVICE, n), 0);
    assert_true(mr_time_ns() - before >= 500 * MS);
    assert_int_equal(memcmp(plain, host, n), 0); /* zeros, from before the memset */
    drop_piece(&p);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_PAGEABLE, plain, NULL);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_device_close(dev);
}

/* A wait is for the record that was there when it was enqueued; the event may move on. */
static void test_record_again(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:latency=0");
    struct mr_stream *a = make_stream(dev), *b = make_stream(dev);
    struct mr_event *moving = make_event(dev), *first = make_event(dev), *after = make_event(dev),
                    *last = make_event(dev);
    busy(a, 20 * MS);
    assert_int_equal(mr_event_record(first, a), 0);
    assert_int_equal(mr_event_record(moving, a), 0);
    assert_int_equal(mr_stream_wait(b, moving), 0);
    assert_int_equal(mr_event_record(after, b), 0);
    busy(a, 200 * MS);
    assert_int_equal(mr_event_record(moving, a), 0);
    assert_int_equal(mr_event_record(last, a), 0);
    assert_int_equal(mr_event_synchronize(after), 0);
    assert_int_equal(mr_event_synchronize(moving), 0);
    assert_true(between(first, after) >= 0 && between(after, last) > 100 * MS);
    assert_int_equal(between(moving, last), 0);
    mr_event_destroy(last);
    mr_event_destroy(after);
    mr_event_destroy(first);
    mr_event_destroy(moving);
    mr_stream_destroy(b);
    mr_stream_destroy(a);
    mr_device_close(dev);
}

/* Random graphs: words are copied from cell to cell over several streams, each read ordered after
 * the write it needs by an event. The host computes what every cell must hold; events must not be
 * earlier than what they came after. */
#define N_STREAMS  5
#define N_CELLS    12
#define N_STEPS    400
#define CELL_WORDS 512

struct cell {
    enum mr_memory kind;
    uint64_t *data;
    uint64_t value;
    struct mr_event *written, *read[N_STREAMS]; /* last write, and the last reads since */
};

static uint64_t pick(uint64_t *seed, uint64_t n)
{
    *seed = mr_mix64(*seed + 0x9e3779b97f4a7c15ull);
    return *seed % n;
}

static void graph_copy(struct mr_stream **stream, unsigned s, struct cell *to, struct cell *from)
{
    assert_int_equal(mr_stream_wait(stream[s], from->written), 0);
    assert_int_equal(mr_stream_wait(stream[s], to->written), 0);
    for (int i = 0; i < N_STREAMS; i++)
        assert_int_equal(mr_stream_wait(stream[s], to->read[i]), 0);
    uint64_t bytes = CELL_WORDS * sizeof(uint64_t);
    assert_int_equal(mr_copy_async(stream[s], to->data, to->kind, from->data, from->kind, bytes),
                     0);
    assert_int_equal(mr_event_record(from->read[s], stream[s]), 0);
    assert_int_equal(mr_event_record(to->written, stream[s]), 0);
    to->value = from->value;
}

static void run_graph(struct mr_device *dev, uint64_t seed)
{
    struct mr_stream *stream[N_STREAMS];
    struct cell cell[N_CELLS];
    struct mr_event *chain[N_STEPS];
    unsigned stream_of[N_STEPS];
    for (int i = 0; i < N_STREAMS; i++)
        stream[i] = make_stream(dev);
    for (int i = 0; i < N_CELLS; i++) {
        struct cell *c = &cell[i];
        c->kind = i < 4 ? MR_PINNED : i < 6 ? MR_PAGEABLE : MR_DEVICE;
        c->data = take(dev, c->kind, CELL_WORDS * sizeof(uint64_t));
        c->written = make_event(dev);
        for (int k = 0; k < N_STREAMS; k++)
            c->read[k] = make_event(dev);
        c->value = mr_mix64(seed + (uint64_t)i);
        for (int k = 0; k < CELL_WORDS; k++)
            c->data[k] =
                c->value; /* device memory too: nothing else runs yet, and sim's is the host's */
    }
    for (int step = 0; step < N_STEPS; step++) {
        unsigned s = stream_of[step] = (unsigned)pick(&seed, N_STREAMS);
        chain[step] = make_event(dev);
        if (pick(&seed, 4) == 0)
            busy(stream[s], pick(&seed, 100000));
        else
            graph_copy(stream, s, &cell[pick(&seed, N_CELLS)], &cell[pick(&seed, N_CELLS)]);
        assert_int_equal(mr_event_record(chain[step], stream[s]), 0);
    }
    for (int i = 0; i < N_STREAMS; i++)
        assert_int_equal(mr_stream_synchronize(stream[i]), 0);
    for (int i = 0; i < N_CELLS; i++) {
        for (int k = 0; k < CELL_WORDS; k++)
            assert_true(cell[i].data[k] == cell[i].value);
    }
    int last[N_STREAMS] = {-1, -1, -1, -1, -1};
    for (int step = 0; step < N_STEPS; step++) {
        int *before = &last[stream_of[step]];
        if (*before >= 0)
            assert_true(between(chain[*before], chain[step]) >= 0);
        *before = step;
    }
    for (int step = 0; step < N_STEPS; step++)
        mr_event_destroy(chain[step]);
    for (int i = 0; i < N_CELLS; i++) {
        for (int k = 0; k < N_STREAMS; k++)
            mr_event_destroy(cell[i].read[k]);
        mr_event_destroy(cell[i].written);
        mr_memory_release(dev, cell[i].kind, cell[i].data, NULL);
    }
    for (int i = 0; i < N_STREAMS; i++)
        mr_stream_destroy(stream[i]);
}

static void test_graphs(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:latency=3us,h2d=1,d2h=2,pageable=4");
    for (uint64_t seed = 1; seed <= 10; seed++)
        run_graph(dev, seed);
    mr_device_close(dev);
}

/* Streams and events may be destroyed with work under way: that waits, and ends. */
static void test_destroy_with_work(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct mr_device *dev = must_open("sim:latency=200us");
        void *host = take(dev, MR_PINNED, 65536), *far = take(dev, MR_DEVICE, 65536);
        struct mr_stream *a = make_stream(dev), *b = make_stream(dev);
        struct mr_event *event = make_event(dev), *other = make_event(dev);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(mr_copy_async(a, far, MR_DEVICE, host, MR_PINNED, 65536), 0);
            assert_int_equal(mr_event_record(event, a), 0);
            assert_int_equal(mr_stream_wait(b, event), 0);
            busy(b, 100000);
            assert_int_equal(mr_event_record(other, b), 0);
            assert_int_equal(mr_stream_wait(a, other), 0);
        }
        mr_memory_release(dev, MR_PINNED, host, event);
        if (round & 1) {
            mr_event_destroy(event);
            mr_event_destroy(other);
            mr_stream_destroy(b);
            mr_stream_destroy(a);
        } else {
            mr_stream_destroy(a);
            mr_stream_destroy(b);
            mr_event_destroy(other);
            mr_event_destroy(event);
        }
        mr_memory_release(dev, MR_DEVICE, far, NULL);
        mr_device_close(dev);
    }
}

/* Copies that do not lie in device memory are refused, as a driver would fault. */
/* A hundred years of work are over once the caller says so, work that is queued included. */
static void test_busy_stops(void **state)
{
    static const char *const devices[] = {"sim", "cpu"};
    const uint64_t forever = 100ull * 365 * 86400 * 1000 * MS;
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        struct mr_device *dev = must_open(devices[d]);
        struct mr_stream *stream = make_stream(dev);
        volatile uint32_t stop = d; /* on "cpu" the call itself would sleep */
        const struct mr_kernel_busy busy = {forever, &stop};
        for (int i = 0; i < 3; i++)
            assert_int_equal(mr_launch(stream, "busy", &busy, sizeof busy), 0);
        __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
        assert_int_equal(mr_stream_synchronize(stream), 0);
        assert_int_equal(mr_launch(stream, "busy", &busy, sizeof busy - 1), MR_EMISUSE);
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
}

static void test_bad_ranges(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim");
    struct mr_stream *stream = make_stream(dev);
    char *host = take(dev, MR_PINNED, 8192), *far = take(dev, MR_DEVICE, 4096);
    assert_int_equal(mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, 4097), MR_EDEVICE);
    assert_int_equal(mr_copy_async(stream, far + 1, MR_DEVICE, host, MR_PINNED, 4096), MR_EDEVICE);
    assert_int_equal(mr_copy_async(stream, far - 1, MR_DEVICE, host, MR_PINNED, 2), MR_EDEVICE);
    assert_int_equal(mr_copy_async(stream, host, MR_PINNED, host + 4096, MR_DEVICE, 1), MR_EDEVICE);
    assert_int_equal(mr_copy_async(stream, far + 1, MR_DEVICE, host, MR_PINNED, UINT64_MAX),
                     MR_EDEVICE);
    assert_int_equal(mr_copy_async(stream, far + 1, MR_DEVICE, host, MR_PINNED, 4095), 0);
    mr_stream_destroy(stream);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_device_close(dev);
}

/* Several threads enqueue to one stream, staged copies among them; all is done, and each event
 * comes to pass. */
struct shared {
    struct mr_device *dev;
    struct mr_stream *stream;
};

static void *enqueue_some(void *arg)
{
    struct shared *shared = arg;
    struct mr_event *event = NULL;
    void *host = NULL, *plain = NULL, *far = NULL;
    intptr_t bad = mr_event_create(shared->dev, 0, &event);
    bad |= mr_memory_acquire(shared->dev, MR_PINNED, 4096, &host);
    bad |= mr_memory_acquire(shared->dev, MR_PAGEABLE, 4096, &plain);
    bad |= mr_memory_acquire(shared->dev, MR_DEVICE, 4096, &far);
    for (int i = 0; i < 100 && !bad; i++) {
        memset(host, i, 4096);
        bad |= mr_copy_async(shared->stream, far, MR_DEVICE, host, MR_PINNED, 4096);
        if (i % 3 == 0)
            bad |= mr_copy_async(shared->stream, plain, MR_PAGEABLE, far, MR_DEVICE, 4096);
        bad |= mr_event_record(event, shared->stream);
        bad |= mr_event_synchronize(event);
        bad |= mr_event_query(event) != 1;
        if (i % 3 == 0)
            bad |= memcmp(plain, host, 4096);
    }
    mr_event_destroy(event);
    mr_memory_release(shared->dev, MR_DEVICE, far, NULL);
    mr_memory_release(shared->dev, MR_PAGEABLE, plain, NULL);
    mr_memory_release(shared->dev, MR_PINNED, host, NULL);
    return (void *)bad;
}

static void test_shared_stream(void **state)
{
    (void)state;
    struct shared shared = {.dev = must_open("sim:latency=2us")};
    shared.stream = make_stream(shared.dev);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, enqueue_some, &shared), 0);
    for (int i = 0; i < 4; i++) {
        void *bad = NULL;
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
    mr_stream_destroy(shared.stream);
    mr_device_close(shared.dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_pageable_blocks),
        cmocka_unit_test(test_record_again),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_destroy_with_work),
        cmocka_unit_test(test_busy_stops),
        cmocka_unit_test(test_bad_ranges),
        cmocka_unit_test(test_shared_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
