/* White-box. How batches get to the device: who enqueues them, what that costs, which are timed,
 * what a trace shows of it. */
#include "device/device.h"
#include "read_trace.h"
#include "run_loader.h"

#include "fake.h"

static void finish_clean(void)
{
    if (fake_left())
        fail_msg("%s", fake_left());
}

/* Many workers with tiny batches: most find the shipper busy. Nothing is lost, doubled or out of
 * order. */
static void test_many_shippers(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:latency=1us", "cuda"};
    struct run want = {0};
    for (unsigned i = 0; i < 3 * MR_COUNT(devices); i++) {
        struct run_config c = run_config("synthetic:n=3000,shape=16,dtype=u8");
        c.device = devices[i % MR_COUNT(devices)];
        c.sampler = "random";
        c.opts.batch_size = 2;
        c.opts.workers = i == 0 ? 1 : 12;
        c.opts.prefetch = i / MR_COUNT(devices) == 1 ? 2 : 17;
        c.opts.streams = 1 + i % 3;
        c.opts.blocking = i / MR_COUNT(devices) == 2;
        struct run got = run_loader(&c);
        assert_int_equal(got.rc, 0);
        assert_int_equal(got.batches, 1500);
        if (i == 0)
            want = got;
        assert_same_rows(&want, &got);
        if (i > 0)
            run_free(&got);
    }
    run_free(&want);
    finish_clean();
}

struct quick {
    uint64_t batches, consumer_calls, all_calls, from_ns, to_ns;
    struct mr_loader_stats stats;
};

/* A consumer that does `step_ns` of work with each batch, and looks at nothing. Calls: of the
 * driver, after 100 batches. */
static struct quick consume(const char *uri, uint64_t n, uint64_t step_ns, uint32_t prefetch)
{
    struct quick q = {.from_ns = mr_time_ns(), .stats.size = sizeof q.stats};
    struct mr_device *dev = NULL;
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = NULL;
    struct mr_stream *stream = NULL;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    struct fake_cuda_report r[2] = {{0}, {0}};
    uint64_t calls[2] = {0}, blocking[2] = {0};
    char set[64];
    snprintf(set, sizeof set, "synthetic:n=%llu,shape=64,dtype=f32", (unsigned long long)n * 4);
    must(mr_dataset_open(set, &ds));
    must(mr_device_open(uri, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    mr_loader_opts_init(&opts);
    opts.batch_size = 4;
    opts.workers = 4;
    opts.prefetch = prefetch;
    must(mr_loader_open(ds, NULL, NULL, dev, &opts, &ld));
    while (mr_loader_next(ld, stream, &b) > 0) {
        if (q.batches++ == 100) {
            fake_report(&r[0]);
            fake_thread(&calls[0], &blocking[0]);
        }
        if (step_ns)
            must(mr_launch(stream, "busy", &step_ns, sizeof step_ns));
        must(mr_loader_release(ld, &b, stream));
    }
    fake_thread(&calls[1], &blocking[1]);
    fake_report(&r[1]);
    must(mr_stream_synchronize(stream));
    q.to_ns = mr_time_ns();
    assert_int_equal(q.batches, n);
    assert_int_equal(blocking[0], blocking[1]);
    q.consumer_calls = (calls[1] - calls[0]) / (n - 100);
    q.all_calls = (r[1].calls - r[0].calls) / (n - 100);
    mr_loader_stats(ld, &q.stats);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_dataset_close(ds);
    return q;
}

/* A call on a thread that has the context costs a look at that and itself; one of another thread
 * pushes and pops as well. */
static void test_few_calls(void **state)
{
    (void)state;
    struct quick q = consume("cuda", 4000, 0, 16);
    print_message(
        "%llu calls a batch in all, %llu of them the consumer's; %llu of %llu batches were timed\n",
        (unsigned long long)q.all_calls, (unsigned long long)q.consumer_calls,
        (unsigned long long)q.stats.timed_batches, (unsigned long long)q.batches);
    assert_true(q.consumer_calls <= 4 * 4); /* wait, two for its times, one at release */
    if (q.stats.elapsed_ns / q.batches < 60000) {
        assert_true(q.consumer_calls <= 2 * 4 + 4);
        assert_true(q.stats.timed_batches < q.batches / 2);
    }
    finish_clean();
}

static void test_entered_threads(void **state)
{
    (void)state;
    static char foreign;
    struct mr_device *dev = NULL, *other = NULL;
    struct mr_event *event = NULL, *far = NULL;
    uint64_t calls[3], blocking;
    must(mr_device_open("cuda", &dev));
    must(mr_device_open("cuda:1", &other));
    must(mr_event_create(dev, 0, &event));
    must(mr_event_create(other, 0, &far));
    fake_set_current(&foreign);
    fake_thread(&calls[0], &blocking);
    assert_int_equal(mr_event_query(event), 1);
    fake_thread(&calls[1], &blocking);
    assert_int_equal(calls[1] - calls[0], 4);
    assert_ptr_equal(fake_current(), &foreign);
    must(mr_device_enter(dev));
    void *own = fake_current();
    assert_ptr_not_equal(own, &foreign);
    fake_thread(&calls[0], &blocking);
    assert_int_equal(mr_event_query(event), 1);
    fake_thread(&calls[1], &blocking);
    assert_int_equal(mr_event_query(far), 1); /* of another GPU: there and back */
    fake_thread(&calls[2], &blocking);
    assert_int_equal(calls[1] - calls[0], 2);
    assert_int_equal(calls[2] - calls[1], 4);
    assert_ptr_equal(fake_current(), own);
    mr_device_leave(dev);
    assert_ptr_equal(fake_current(), &foreign);
    fake_set_current(NULL);
    mr_event_destroy(far);
    mr_event_destroy(event);
    mr_device_close(other);
    mr_device_close(dev);
    finish_clean();
}

/* Uses are counted from the start, so that the difference over a while is of that while: a first
 * batch that took long is not in it, and it is no longer than the while was. */
static void test_uses_of_a_while(void **state)
{
    (void)state;
    struct mr_dataset *ds = NULL;
    struct mr_device *dev = NULL;
    struct mr_stream *stream = NULL;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts lo;
    struct mr_loader_stats first = {.size = sizeof first}, last = {.size = sizeof last};
    struct mr_batch b = {.size = sizeof b};
    must(mr_dataset_open("synthetic:n=400,shape=16", &ds));
    must(mr_device_open("sim:latency=1us", &dev));
    must(mr_stream_create(dev, "test", &stream));
    mr_loader_opts_init(&lo);
    lo.batch_size = 4;
    must(mr_loader_open(ds, NULL, NULL, dev, &lo, &ld));
    uint64_t start = 0;
    for (uint64_t i = 0; mr_loader_next(ld, stream, &b) == 1; i++) {
        uint64_t step_ns = i ? 1000000 : 400000000;
        must(mr_launch(stream, "busy", &step_ns, sizeof step_ns));
        must(mr_loader_release(ld, &b, stream));
        must(mr_stream_synchronize(stream));
        if (i > 0)
            continue;
        mr_loader_stats(ld, &first);
        start = mr_time_ns();
    }
    mr_loader_stats(ld, &last);
    uint64_t took = mr_time_ns() - start, n = last.used_batches - first.used_batches;
    assert_int_equal(first.used_batches, 1);
    assert_true(first.used_ns >= 400000000);
    assert_int_equal(n, 99);
    assert_true(last.used_ns - first.used_ns >= n * 1000000 &&
                last.used_ns - first.used_ns <= took + 1000000);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_dataset_close(ds);
}

/* Slow batches are timed one and all; of quick ones some, and their figures still fit the rest. */
static void test_sampled_times(void **state)
{
    (void)state;
    struct quick slow = consume("sim:latency=1us", 200, 500000, 4);
    assert_int_equal(slow.stats.timed_batches, slow.batches);
    assert_true(slow.stats.timed_use_ns >= 200 * 500000ull);
    struct quick fast = consume("sim:latency=1us", 4000, 20000, 8);
    assert_true(fast.stats.timed_batches >= 64 && fast.stats.timed_batches <= fast.batches);
    assert_true(fast.stats.timed_use_ns >= fast.stats.timed_batches * 20000);
    assert_true(fast.stats.timed_both_ns <= fast.stats.timed_copy_ns);
    if (fast.stats.elapsed_ns / fast.batches < 100000)
        assert_true(fast.stats.timed_batches < fast.batches);
    assert_true(fast.stats.copy_ns <= fast.stats.elapsed_ns);
}

/* While a trace runs every batch is timed, and its copy and use lie on tracks of their own, by the
 * host's clock. */
static void test_traced_copies(void **state)
{
    (void)state;
    enum { N = 600 };
    static bool seen[2][N];
    char path[] = "/tmp/millrace-ship-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    memset(seen, 0, sizeof seen);
    must(mr_trace_start(0));
    struct quick q = consume("cuda", N, 20000, 4);
    must(mr_trace_stop(path, NULL));
    decode(path);
    unlink(path);
    const struct track *tracks[2] = {track_named("H2D copy stream"),
                                     track_named("consumer stream")};
    int n[2] = {0, 0};
    for (int i = 0; i < trace.n_events; i++) {
        const struct event *e = &trace.event[i];
        int k = e->track == (int)(tracks[0] - trace.track) ? 0 : 1;
        if (&trace.track[e->track] != tracks[k] || e->type != 1)
            continue;
        assert_true(e->time_ns >= q.from_ns && e->time_ns <= q.to_ns);
        assert_string_equal(e->name, k ? "step" : "copy");
        assert_true(e->arg < N && !seen[k][e->arg]);
        seen[k][e->arg] = true;
        n[k]++;
    }
    assert_int_equal(n[0], N);
    assert_int_equal(n[1], N);
    finish_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_shippers),   cmocka_unit_test(test_few_calls),
        cmocka_unit_test(test_entered_threads), cmocka_unit_test(test_uses_of_a_while),
        cmocka_unit_test(test_sampled_times),   cmocka_unit_test(test_traced_copies),
    };
    fake_load();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
