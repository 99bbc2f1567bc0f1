/* Graphs on a real GPU: launches do what was recorded, with the memory as it is then; small copies
 * become cheap. */
#include "gpu.h"

#include <stdbool.h>

#define PIECES 64
#define PIECE  4096
#define BYTES  (PIECES * PIECE)

struct lab {
    struct mr_device *dev;
    struct mr_stream *stream, *other;
    unsigned char *host, *back, *far, *away;
};

static void lab_open(struct lab *lab, struct mr_device *dev)
{
    *lab = (struct lab){dev,
                        gpu_stream(dev, "first"),
                        gpu_stream(dev, "other"),
                        gpu_take(dev, MR_PINNED, BYTES),
                        gpu_take(dev, MR_PINNED, BYTES),
                        gpu_take(dev, MR_DEVICE, BYTES),
                        gpu_take(dev, MR_DEVICE, BYTES)};
}

static void lab_close(struct lab *lab)
{
    mr_stream_destroy(lab->stream);
    mr_stream_destroy(lab->other);
    mr_memory_release(lab->dev, MR_PINNED, lab->host, NULL);
    mr_memory_release(lab->dev, MR_PINNED, lab->back, NULL);
    mr_memory_release(lab->dev, MR_DEVICE, lab->far, NULL);
    mr_memory_release(lab->dev, MR_DEVICE, lab->away, NULL);
}

static void step(const struct lab *lab)
{
    struct mr_copy in[PIECES];
    struct mr_kernel_copy within = {lab->away, lab->far, BYTES / 2};
    for (int i = 0; i < PIECES; i++)
        in[i] = (struct mr_copy){lab->far + i * PIECE, lab->host + i * PIECE, PIECE, MR_DEVICE,
                                 MR_PINNED};
    must(mr_copy_batch_async(lab->stream, in, PIECES));
    must(mr_memset_async(lab->stream, lab->away, MR_DEVICE, 0, BYTES));
    must(mr_launch(lab->stream, "copy", &within, sizeof within));
    must(mr_copy_async(lab->stream, lab->away + BYTES / 2, MR_DEVICE, lab->far + BYTES / 2,
                       MR_DEVICE, BYTES / 2));
    must(mr_copy_async(lab->stream, lab->back, MR_PINNED, lab->away, MR_DEVICE, BYTES));
}

static uint64_t time_of(const struct lab *lab, struct mr_graph *graph)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t start = mr_time_ns();
        if (graph)
            must(mr_graph_launch(graph, lab->stream));
        else
            step(lab);
        uint64_t took = mr_time_ns() - start;
        best = took < best ? took : best;
        must(mr_stream_synchronize(lab->stream));
    }
    return best;
}

static void test_launches(struct mr_device *dev)
{
    struct lab lab;
    struct mr_graph *graph = NULL;
    lab_open(&lab, dev);
    step(&lab); /* libraries and modules are there from now on */
    must(mr_stream_synchronize(lab.stream));
    must(mr_graph_begin(lab.stream));
    step(&lab);
    must(mr_graph_end(lab.stream, &graph));
    for (unsigned round = 0; round < 6; round++) {
        gpu_fill(lab.host, BYTES, round + 1);
        memset(lab.back, 0, BYTES);
        struct mr_stream *stream = round & 1 ? lab.other : lab.stream;
        must(mr_graph_launch(graph, stream));
        must(mr_stream_synchronize(stream));
        check(memcmp(lab.host, lab.back, BYTES) == 0);
    }
    printf("  enqueueing 68 operations takes the host %.1f us, launching them as a graph %.1f us\n",
           (double)time_of(&lab, NULL) * 1e-3, (double)time_of(&lab, graph) * 1e-3);
    mr_graph_destroy(graph);
    lab_close(&lab);
}

/* The first use of a kernel may be the recorded one. */
static void test_first_use(struct mr_device *dev)
{
    struct mr_device *fresh = NULL;
    struct lab lab;
    struct mr_graph *graph = NULL;
    (void)dev;
    must(mr_device_open("cuda", &fresh));
    lab_open(&lab, fresh);
    gpu_fill(lab.host, BYTES, 9);
    must(mr_graph_begin(lab.stream));
    step(&lab);
    must(mr_graph_end(lab.stream, &graph));
    must(mr_graph_launch(graph, lab.stream));
    must(mr_stream_synchronize(lab.stream));
    check(memcmp(lab.host, lab.back, BYTES) == 0);
    mr_graph_destroy(graph);
    lab_close(&lab);
    mr_device_close(fresh);
}

/* What is refused leaves the capture whole, and a stream that is dropped while it records hangs
 * nothing. */
static void test_misuse(struct mr_device *dev)
{
    struct lab lab;
    struct mr_graph *graph = NULL;
    struct mr_event *event = gpu_event(dev);
    unsigned char plain[64];
    lab_open(&lab, dev);
    must(mr_graph_begin(lab.stream));
    must(mr_memset_async(lab.stream, lab.far, MR_DEVICE, 3, BYTES));
    check(mr_stream_synchronize(lab.stream) == MR_EMISUSE);
    check(mr_event_record(event, lab.stream) == MR_EMISUSE);
    check(mr_copy_async(lab.stream, plain, MR_PAGEABLE, lab.far, MR_DEVICE, 64) == MR_EMISUSE);
    check(mr_graph_begin(lab.stream) == MR_EMISUSE);
    void *more = gpu_take(dev, MR_DEVICE, 1 << 20); /* allocating goes on meanwhile */
    mr_memory_release(dev, MR_DEVICE, more, NULL);
    must(mr_graph_end(lab.stream, &graph));
    must(mr_graph_launch(graph, lab.stream));
    must(mr_copy_async(lab.stream, plain, MR_PAGEABLE, lab.far, MR_DEVICE, 64));
    must(mr_stream_synchronize(lab.stream));
    check(plain[0] == 3 && plain[63] == 3);
    must(mr_graph_begin(lab.other));
    must(mr_memset_async(lab.other, lab.far, MR_DEVICE, 4, BYTES));
    mr_graph_destroy(graph);
    mr_event_destroy(event);
    lab_close(&lab);
}

static void test_matmul(struct mr_device *dev)
{
    enum { SIDE = 64 };
    uint64_t bytes = SIDE * SIDE * sizeof(float);
    struct mr_stream *stream = gpu_stream(dev, "product");
    float *host = gpu_take(dev, MR_PINNED, bytes), *far[3];
    struct mr_graph *graph = NULL;
    for (int i = 0; i < 3; i++)
        far[i] = gpu_take(dev, MR_DEVICE, bytes);
    for (int i = 0; i < SIDE * SIDE; i++)
        host[i] = i % (SIDE + 1) == 0 ? 2.0f : 0.0f; /* twice the identity */
    must(mr_copy_async(stream, far[0], MR_DEVICE, host, MR_PINNED, bytes));
    must(mr_copy_async(stream, far[1], MR_DEVICE, host, MR_PINNED, bytes));
    struct mr_kernel_matmul m = {SIDE, far[0], far[1], far[2]};
    int rc = mr_launch(stream, "matmul_f32", &m, sizeof m);
    must(mr_stream_synchronize(stream));
    if (rc < 0) {
        printf("  SKIP %s\n", mr_last_error());
    } else {
        must(mr_graph_begin(stream));
        must(mr_launch(stream, "matmul_f32", &m, sizeof m));
        must(mr_copy_async(stream, far[1], MR_DEVICE, far[2], MR_DEVICE, bytes));
        must(mr_graph_end(stream, &graph));
        for (int i = 0; i < 5; i++)
            must(mr_graph_launch(graph, stream));
        must(mr_copy_async(stream, host, MR_PINNED, far[1], MR_DEVICE, bytes));
        must(mr_stream_synchronize(stream));
        check(host[0] == 64 && host[1] == 0 && host[SIDE * SIDE - 1] == 64); /* 2 * 2^5 */
    }
    mr_graph_destroy(graph);
    for (int i = 0; i < 3; i++)
        mr_memory_release(dev, MR_DEVICE, far[i], NULL);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_stream_destroy(stream);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"launches", test_launches},
        {"first use", test_first_use},
        {"misuse", test_misuse},
        {"matmul", test_matmul},
    };
    return gpu_main(tests, COUNT(tests));
}
