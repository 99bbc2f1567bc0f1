/* Graphs on a GPU's driver that is not there: what the driver is asked, and what is left when it
 * refuses. */
#include "run_loader.h"

#include "fake.h"

#define N 4096

static struct mr_device *dev;
static struct mr_stream *stream;
static unsigned char *host, *back, *far, *away;

static int open_it(void **state)
{
    (void)state;
    must(mr_device_open("cuda", &dev));
    must(mr_stream_create(dev, "s", &stream));
    must(mr_memory_acquire(dev, MR_PINNED, N, (void **)&host));
    must(mr_memory_acquire(dev, MR_PINNED, N, (void **)&back));
    must(mr_memory_acquire(dev, MR_DEVICE, N, (void **)&far));
    must(mr_memory_acquire(dev, MR_DEVICE, N, (void **)&away));
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    fake_fail(NULL, 0, 0, 0);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_memory_release(dev, MR_PINNED, back, NULL);
    mr_memory_release(dev, MR_DEVICE, far, NULL);
    mr_memory_release(dev, MR_DEVICE, away, NULL);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    if (fake_left())
        fail_msg("%s", fake_left());
    return 0;
}

/* Copy in, copy within in 8 pieces, copy back. */
static int enqueue_step(void)
{
    struct mr_copy pieces[8];
    for (int i = 0; i < 8; i++)
        pieces[i] =
            (struct mr_copy){away + i * (N / 8), far + i * (N / 8), N / 8, MR_DEVICE, MR_DEVICE};
    int rc = mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, N);
    if (rc == 0)
        rc = mr_copy_batch_async(stream, pieces, 8);
    if (rc == 0)
        rc = mr_copy_async(stream, back, MR_PINNED, away, MR_DEVICE, N);
    return rc;
}

static void one_call_a_launch(void **state)
{
    (void)state;
    struct mr_graph *graph = NULL;
    uint64_t calls[2], blocking[2];
    must(mr_graph_begin(stream));
    must(enqueue_step());
    must(mr_graph_end(stream, &graph));
    for (int round = 0; round < 5; round++) {
        memset(host, 17 * round + 1, N);
        memset(back, 0, N);
        fake_thread(&calls[0], &blocking[0]);
        must(mr_graph_launch(graph, stream));
        fake_thread(&calls[1], &blocking[1]);
        assert_true(calls[1] - calls[0] <= 4); /* the context's three and one */
        assert_int_equal(blocking[1], blocking[0]);
        must(mr_stream_synchronize(stream));
        assert_memory_equal(host, back, N);
    }
    mr_graph_destroy(graph);
}

/* Each call of the way fails in turn: an error that names it, a stream that works, nothing left. */
static void every_call_may_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuStreamBeginCapture_v2", "cuStreamEndCapture",
                                        "cuGraphInstantiateWithFlags", "cuGraphLaunch",
                                        "cuMemcpyHtoDAsync_v2"};
    for (size_t i = 0; i < MR_COUNT(calls); i++) {
        struct mr_graph *graph = NULL;
        fake_fail(calls[i], 1, 999, 0);
        int rc = mr_graph_begin(stream), ended;
        if (rc == 0) {
            rc = enqueue_step();
            char text[MR_ERROR_BYTES];
            snprintf(text, sizeof text, "%s", mr_last_error());
            ended = mr_graph_end(stream, rc == 0 ? &graph : NULL);
            if (rc < 0)
                mr_error_set(rc, "%s", text);
            rc = rc < 0 ? rc : ended;
        }
        if (rc == 0)
            rc = mr_graph_launch(graph, stream);
        assert_int_equal(rc, MR_EDEVICE);
        if (!strstr(mr_last_error(), calls[i]) || !strstr(mr_last_error(), "CUDA_ERROR_UNKNOWN"))
            fail_msg("%s: \"%s\"", calls[i], mr_last_error());
        mr_graph_destroy(graph);
        must(enqueue_step());
        must(mr_stream_synchronize(stream));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_call_a_launch, open_it, close_it),
        cmocka_unit_test_setup_teardown(every_call_may_fail, open_it, close_it),
    };
    fake_load();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
