/* White-box. Graphs on the devices that play their streams themselves: the same on both, and what
 * is refused. */
#include "run_loader.h"

#include "kernels/batch/batch.h"

static const char *const devices[] = {"cpu", "sim:latency=1us"};

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(31, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

#define N     4096
#define PARTS 6

/* One device with its memory: two ranges of pinned memory, PARTS - 2 of the device's. */
struct lab {
    struct mr_device *dev;
    struct mr_stream *stream, *other;
    unsigned char *part[PARTS];
};

static enum mr_memory kind_of(int part)
{
    return part < 2 ? MR_PINNED : MR_DEVICE;
}

static void lab_open(struct lab *lab, const char *uri)
{
    must(mr_device_open(uri, &lab->dev));
    must(mr_stream_create(lab->dev, "first", &lab->stream));
    must(mr_stream_create(lab->dev, "other", &lab->other));
    for (int i = 0; i < PARTS; i++)
        must(mr_memory_acquire(lab->dev, kind_of(i), N, (void **)&lab->part[i]));
}

static void lab_close(struct lab *lab)
{
    for (int i = 0; i < PARTS; i++)
        mr_memory_release(lab->dev, kind_of(i), lab->part[i], NULL);
    mr_stream_destroy(lab->stream);
    mr_stream_destroy(lab->other);
    mr_device_close(lab->dev);
}

/* What a step does, as numbers, so that it can be done again elsewhere. */
struct act {
    uint32_t what, dst, src, at, from, bytes;
};

static struct act random_act(void)
{
    struct act a = {
        .what = draw(4), .dst = draw(PARTS), .src = draw(PARTS), .bytes = 1 + draw(N / 2)};
    a.at = draw(N - a.bytes);
    a.from = draw(N - a.bytes);
    if (a.what == 0 || kind_of((int)a.dst) != MR_DEVICE) /* something in it is the device's */
        a.src = 2 + a.src % (PARTS - 2);
    if (a.dst == a.src)
        a.dst = (a.dst + 1) % PARTS;
    if (kind_of((int)a.dst) != MR_DEVICE && kind_of((int)a.src) != MR_DEVICE)
        a.dst = 2;
    return a;
}

static void act(struct lab *lab, struct mr_stream *stream, const struct act *a)
{
    uint64_t ns = 1000;
    unsigned char *dst = lab->part[a->dst], *src = lab->part[a->src];
    if (a->what == 3)
        must(mr_launch(stream, "busy", &ns, sizeof ns));
    if (a->what == 2 && kind_of((int)a->dst) == MR_DEVICE)
        must(mr_memset_async(stream, dst + a->at, MR_DEVICE, (int)a->from & 255, a->bytes));
    else
        must(mr_copy_async(stream, dst + a->at, kind_of((int)a->dst), src + a->from,
                           kind_of((int)a->src), a->bytes));
}

static void fill(struct lab *lab, uint64_t seed)
{
    for (int i = 0; i < PARTS; i++) {
        unsigned char *p = lab->part[i];
        for (uint64_t k = 0; k < N && kind_of(i) != MR_DEVICE; k++)
            p[k] = (unsigned char)mr_mix64(seed * 1000 + (uint64_t)i * N + k);
        if (kind_of(i) == MR_DEVICE)
            must(mr_memset_async(lab->stream, p, MR_DEVICE, (int)seed + i, N));
    }
    must(mr_stream_synchronize(lab->stream));
}

static uint64_t hash(struct lab *lab)
{
    uint64_t h = 0;
    unsigned char seen[N];
    must(mr_stream_synchronize(lab->stream));
    must(mr_stream_synchronize(lab->other));
    for (int i = 0; i < PARTS; i++) {
        must(mr_copy_async(lab->stream, seen, MR_PAGEABLE, lab->part[i], kind_of(i), N));
        must(mr_stream_synchronize(lab->stream));
        for (uint64_t k = 0; k < N; k++)
            h = mr_mix64(h ^ seen[k]);
    }
    return h;
}

/* Any step, launched any number of times, leaves what the same calls leave; recording alone changes
 * nothing. */
static void a_launch_is_the_step(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct act acts[12];
        uint64_t n = draw(MR_COUNT(acts)), times = draw(4), want[2] = {0}, got[2] = {0};
        for (uint64_t i = 0; i < n; i++)
            acts[i] = random_act();
        for (size_t d = 0; d < MR_COUNT(devices); d++) {
            struct lab lab;
            struct mr_graph *graph = NULL;
            lab_open(&lab, devices[d]);
            fill(&lab, (uint64_t)round);
            uint64_t before = hash(&lab);
            must(mr_graph_begin(lab.stream));
            for (uint64_t i = 0; i < n; i++)
                act(&lab, lab.stream, &acts[i]);
            must(mr_graph_end(lab.stream, &graph));
            assert_true(hash(&lab) == before);
            for (uint64_t t = 0; t < times; t++)
                must(mr_graph_launch(graph,
                                     t & 1 ? lab.other : lab.stream)); /* one after the other */
            got[d] = hash(&lab);
            mr_graph_destroy(graph);
            fill(&lab, (uint64_t)round);
            for (uint64_t t = 0; t < times; t++)
                for (uint64_t i = 0; i < n; i++)
                    act(&lab, lab.stream, &acts[i]);
            want[d] = hash(&lab);
            lab_close(&lab);
        }
        assert_true(got[0] == want[0] && got[1] == want[1] && got[0] == got[1]);
    }
}

/* Kernels keep the arguments that they had, and read the memory as it is at each launch. */
static void kernels_are_recorded(void **state)
{
    (void)state;
    for (size_t d = 0; d < MR_COUNT(devices); d++) {
        struct lab lab;
        struct mr_graph *graph = NULL;
        lab_open(&lab, devices[d]);
        struct mr_one_hot_args a = {.in = lab.part[2],
                                    .out = lab.part[3],
                                    .rows = 4,
                                    .classes = 3,
                                    .label_bytes = 1,
                                    .element_bytes = 1,
                                    .value = {1, 0}};
        must(mr_graph_begin(lab.stream));
        must(mr_copy_async(lab.stream, lab.part[2], MR_DEVICE, lab.part[0], MR_PINNED, 4));
        must(mr_launch(lab.stream, "one_hot", &a, sizeof a));
        must(mr_copy_async(lab.stream, lab.part[1], MR_PINNED, lab.part[3], MR_DEVICE, 12));
        assert_int_equal(mr_launch(lab.stream, "one_hot", &a, sizeof a - 1),
                         MR_EMISUSE); /* checked now, not later */
        assert_int_equal(mr_launch(lab.stream, "no such", &a, sizeof a), MR_EUNSUPPORTED);
        must(mr_graph_end(lab.stream, &graph));
        memset(&a, 0xff, sizeof a);
        for (unsigned char first = 0; first < 3; first++) {
            const unsigned char labels[4] = {first, 2, 1, 0};
            memcpy(lab.part[0], labels, 4);
            must(mr_graph_launch(graph, lab.stream));
            must(mr_stream_synchronize(lab.stream));
            for (int i = 0; i < 12; i++)
                assert_int_equal(lab.part[1][i], i % 3 == labels[i / 3]);
        }
        mr_graph_destroy(graph);
        lab_close(&lab);
    }
}

#define refused(call, says)                                                                        \
    do {                                                                                           \
        assert_int_equal(call, MR_EMISUSE);                                                        \
        if (!strstr(mr_last_error(), says))                                                        \
            fail_msg("%s: \"%s\" does not say \"%s\"", #call, mr_last_error(), says);              \
    } while (0)

/* Each is refused with a reason, and the recording goes on as if it had not been asked. */
static void misuse_is_refused(void **state)
{
    (void)state;
    for (size_t d = 0; d < MR_COUNT(devices); d++) {
        struct lab lab, elsewhere;
        struct mr_graph *graph = NULL, *second = NULL;
        struct mr_event *event = NULL;
        unsigned char plain[16] = {1};
        lab_open(&lab, devices[d]);
        lab_open(&elsewhere, devices[d]);
        must(mr_event_create(lab.dev, 0, &event));
        refused(mr_graph_end(lab.stream, &graph), "\"first\" is not being recorded");
        must(mr_graph_begin(lab.stream));
        must(mr_memset_async(lab.stream, lab.part[2], MR_DEVICE, 5, N));
        refused(mr_graph_begin(lab.stream), "is being recorded");
        refused(mr_stream_synchronize(lab.stream),
                "mr_stream_synchronize: stream \"first\" is being recorded");
        refused(mr_event_record(event, lab.stream), "mr_event_record");
        refused(mr_stream_wait(lab.stream, event), "mr_stream_wait");
        refused(mr_copy_async(lab.stream, lab.part[2], MR_DEVICE, plain, MR_PAGEABLE, 16),
                "pageable");
        refused(mr_copy_async(lab.stream, plain, MR_PAGEABLE, lab.part[2], MR_DEVICE, 16),
                "pageable");
        refused(mr_copy_async(lab.stream, lab.part[0], MR_PINNED, lab.part[1], MR_PINNED, 16),
                "within host memory");
        refused(mr_memset_async(lab.stream, lab.part[0], MR_PINNED, 0, 16), "host memory");
        struct mr_copy copy = {lab.part[2], plain, 16, MR_DEVICE, MR_PAGEABLE};
        refused(mr_copy_batch_async(lab.stream, &copy, 1), "pageable");
        must(mr_memset_async(lab.other, lab.part[3], MR_DEVICE, 9, N)); /* other streams work on */
        must(mr_stream_synchronize(lab.other));
        must(mr_graph_end(lab.stream, &graph));
        refused(mr_graph_launch(graph, elsewhere.stream), "different devices");
        refused(mr_graph_launch(NULL, lab.stream), "NULL");
        must(mr_graph_begin(lab.other));
        refused(mr_graph_launch(graph, lab.other), "is being recorded");
        must(mr_graph_end(lab.other, &second)); /* empty */
        must(mr_graph_launch(second, lab.other));
        must(mr_graph_launch(graph, lab.stream));
        must(mr_copy_async(lab.stream, plain, MR_PAGEABLE, lab.part[2], MR_DEVICE, 16));
        must(mr_stream_synchronize(lab.stream));
        assert_true(plain[0] == 5 && plain[15] == 5);
        must(mr_graph_begin(lab.other)); /* dropped, once by the end and once by the stream's */
        must(mr_memset_async(lab.other, lab.part[2], MR_DEVICE, 6, N));
        must(mr_graph_end(lab.other, NULL));
        must(mr_graph_begin(lab.other));
        must(mr_memset_async(lab.other, lab.part[2], MR_DEVICE, 7, N));
        mr_graph_destroy(second);
        mr_graph_destroy(graph);
        mr_graph_destroy(NULL);
        mr_event_destroy(event);
        lab_close(&elsewhere);
        lab_close(&lab);
    }
}

/* On the simulated device a launch pays the latency once. */
static void a_launch_starts_once(void **state)
{
    (void)state;
    struct lab lab;
    struct mr_graph *graph = NULL;
    struct mr_event *start, *end;
    int64_t ns = 0;
    lab_open(&lab, "sim:latency=2ms,h2d=1000");
    must(mr_event_create(lab.dev, 1, &start));
    must(mr_event_create(lab.dev, 1, &end));
    must(mr_graph_begin(lab.stream));
    for (int i = 0; i < 20; i++)
        must(mr_copy_async(lab.stream, lab.part[2], MR_DEVICE, lab.part[0], MR_PINNED, 64));
    must(mr_graph_end(lab.stream, &graph));
    for (int round = 0; round < 10;
         round++) { /* the least of some: only real work that is late may lengthen it */
        int64_t once = 0;
        must(mr_event_record(start, lab.stream));
        must(mr_graph_launch(graph, lab.stream));
        must(mr_event_record(end, lab.stream));
        must(mr_event_synchronize(end));
        must(mr_event_elapsed(start, end, &once));
        assert_true(once >= 2000000);
        ns = round == 0 || once < ns ? once : ns;
    }
    assert_true(ns < 40000000);
    mr_event_destroy(start);
    mr_event_destroy(end);
    mr_graph_destroy(graph);
    lab_close(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_is_the_step),
        cmocka_unit_test(kernels_are_recorded),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_launch_starts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
