/*
 * White-box. Rules that explain and the depth of queues: each on a recording that is made for it,
 * and on one that only looks alike.
 */
#include "loop_sim.h"

#include "recording/queue.h"

#include <unistd.h>

#define PATH "test_explain.sqlite"

static struct mr_recording *finish(struct make *m)
{
    make_end(m);
    return make_load(PATH);
}

static void begin(struct make *m)
{
    make_begin(m, PATH);
    make_device(m, 0, "Some GPU");
}

/* Closes the recording. */
static enum mr_verdict verdict(struct mr_recording *rec, const char *rule, const char *says)
{
    struct mr_advice *advice = NULL;
    enum mr_verdict is = MR_FINE;
    bool known = false;
    if (mr_analyze(rec, NULL, &advice) < 0)
        fail_msg("%s", mr_last_error());
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (strcmp(f->rule, rule) != 0)
            continue;
        known = true;
        is = f->verdict;
        if (!strstr(f->title, says) && !strstr(f->why, says) &&
            !(f->advice && strstr(f->advice, says)))
            fail_msg("%s: not \"%s\" but: %s: %s %s", rule, says, f->title, f->why,
                     f->advice ? f->advice : "");
        assert_true(is != MR_FOUND || (f->saving_ms == 0 && mr_table_rows(f->evidence) > 0));
    }
    assert_true(known);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
    return is;
}

/* What a rule that is found is sure of, in percent of what the steps allow. Closes the
 * recording. */
static int saves(struct mr_recording *rec, const char *rule, const char *says)
{
    struct mr_advice *advice = NULL;
    int sure = -1;
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (strcmp(f->rule, rule) != 0)
            continue;
        if (!strstr(f->why, says))
            fail_msg("%s: not \"%s\" but: %s", rule, says, f->why);
        assert_int_equal(f->verdict, MR_FOUND);
        sure = (int)(100 * f->confidence / 0.95 + 0.5); /* of steps with a known name */
    }
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
    return sure;
}

static void launch(struct make *m, uint64_t call, uint32_t stream, uint64_t start, uint64_t end)
{
    make_kernel_of(m, make_call(m, "cudaLaunchKernel_v7000", call, call + 3000), stream, "k", start,
                   end);
}

/* ---- critical_path ---- */

/* 1 ms of own code beside 600 us of a kernel, which nothing waits for; or which is waited for. */
static struct mr_recording *beside(bool waits)
{
    struct make m;
    begin(&m);
    for (uint64_t at = 1000000; at < 41000000; at += 1000000) {
        make_range(&m, "step", at, at + 1000000);
        launch(&m, at + 10000, 7, at + 15000, at + 615000);
        if (waits)
            make_sync(&m, 7, at + 20000, at + 618000);
    }
    return finish(&m);
}

static void off_the_path(void **state)
{
    (void)state;
    assert_int_equal(verdict(beside(false), "critical_path", "Shorten host code first"), MR_FOUND);
    assert_int_equal(verdict(beside(false), "critical_path", "save nothing now"), MR_FOUND);
    assert_int_equal(verdict(beside(true), "critical_path", "compute (60%"), MR_FINE);
}

/* The device needs 1.4 ms for each step of 1 ms, and is idle in part of that: the host only runs
 * ahead. */
static void device_falls_behind(void **state)
{
    struct make m;
    (void)state;
    begin(&m);
    for (uint64_t i = 0; i < 40; i++) {
        make_range(&m, "step", 1000000 + i * 1000000, 2000000 + i * 1000000);
        launch(&m, 1010000 + i * 1000000, 7, 1015000 + i * 1400000, 1915000 + i * 1400000);
    }
    assert_int_equal(verdict(finish(&m), "critical_path", "falls behind"), MR_CANNOT_TELL);
}

/* ---- low_use ---- */

/* Steps of 1 ms with 800 us of work; from step 20 on `n` of them with 100 us, in a range. */
static struct mr_recording *with_stretch(uint64_t n, const char *range)
{
    struct make m;
    begin(&m);
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t at = 1000000 + i * 1000000, busy = i >= 20 && i < 20 + n ? 100000 : 800000;
        make_range(&m, "step", at, at + 1000000);
        launch(&m, at + 10000, 7, at + 20000, at + 20000 + busy);
        if (busy == 100000)
            make_range(&m, range, at + 130000, at + 990000);
        make_os(&m, "write", at + 850000, at + 950000, 100);
    }
    return finish(&m);
}

static void stretches(void **state)
{
    (void)state;
    assert_int_equal(verdict(with_stretch(8, "save"), "low_use", "checkpoint (in save"), MR_FOUND);
    assert_int_equal(verdict(with_stretch(8, "evaluate"), "low_use", "validation"), MR_FOUND);
    assert_int_equal(verdict(with_stretch(4, "save"), "low_use", "0 stretches"), MR_FINE);
    assert_int_equal(verdict(with_stretch(0, "save"), "low_use", "0 stretches"), MR_FINE);
}

/* One step in three is long: that is how steps are, and no stretch. */
static void uneven_steps(void **state)
{
    struct make m;
    uint64_t at = 1000000;
    (void)state;
    begin(&m);
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t ns = i % 3 ? 1000000 : 4000000;
        make_range(&m, "step", at, at + ns);
        launch(&m, at + 10000, 7, at + 20000, at + 820000);
        at += ns;
    }
    assert_int_equal(verdict(finish(&m), "low_use", "0 stretches"), MR_FINE);
}

/* A pause between steps, of more than 100 of them, in which nothing runs. */
static void pause_between(void **state)
{
    struct make m;
    uint64_t at = 1000000;
    (void)state;
    begin(&m);
    for (uint64_t i = 0; i < 60; i++) {
        make_range(&m, "step", at, at + 1000000);
        launch(&m, at + 10000, 7, at + 20000, at + 820000);
        at += 1000000;
        if (i == 29) {
            make_range(&m, "DataLoader start", at, at + 300000000);
            at += 300000000;
        }
    }
    assert_int_equal(verdict(finish(&m), "low_use", "epoch start"), MR_FOUND);
}

/* ---- same_direction_copies ---- */

/* Two copies to the device, given at once on two streams; the second waits for the first, or was
 * only given when that had ended. A kernel runs beside both, or not. */
static struct mr_recording *two_copies(bool at_once, bool hidden, enum mr_copy_kind second)
{
    struct make m;
    begin(&m);
    for (uint64_t at = 1000000; at < 41000000; at += 1000000) {
        uint64_t late = at_once ? at + 14000 : at + 215000;
        make_range(&m, "step", at, at + 1000000);
        if (hidden)
            launch(&m, at + 2000, 7, at + 6000, at + 700000);
        make_copy_of(&m, make_call(&m, "cudaMemcpyAsync_v3020", at + 10000, at + 13000), 13,
                     at + 20000, at + 220000, 4u << 20, MR_COPY_H2D, MR_MEM_PINNED);
        make_copy_of(&m, make_call(&m, "cudaMemcpyAsync_v3020", late, late + 4000), 14, at + 220000,
                     at + 420000, 4u << 20, second, MR_MEM_PINNED);
        if (!hidden)
            launch(&m, at + 425000, 7, at + 430000, at + 700000);
    }
    return finish(&m);
}

static void copies_in_line(void **state)
{
    static const char *const rule = "same_direction_copies";
    (void)state;
    assert_int_equal(verdict(two_copies(true, false, MR_COPY_H2D), rule, "0.200 ms a step"),
                     MR_FOUND);
    assert_int_equal(verdict(two_copies(false, false, MR_COPY_H2D), rule, "0.001 ms"), MR_FINE);
    assert_int_equal(verdict(two_copies(true, true, MR_COPY_H2D), rule, "0.000 ms"), MR_FINE);
    assert_int_equal(verdict(two_copies(true, false, MR_COPY_D2H), rule, "0 of 78"), MR_FINE);
}

/* ---- tensor_cores, by counters ---- */

/* Steps of 1 ms with 500 us of a matrix product whose name tells of no tensor cores. percent: of
 * the tensor pipe, in samples while it runs; -1: none are recorded. */
static struct mr_recording *with_counters(int percent, const char *metric)
{
    struct make m;
    begin(&m);
    for (uint64_t at = 1000000; at < 31000000; at += 1000000) {
        make_range(&m, "step", at, at + 1000000);
        make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", at, at + 3000), 7,
                       "ampere_sgemm_128x64_nn", at + 100000, at + 600000);
        for (uint64_t i = 0; i < 10 && percent >= 0; i++) {
            bool runs = i >= 1 && i < 6;
            make_metric(&m, metric, 0, at + i * 100000, runs ? (uint64_t)percent : 0);
            make_metric(&m, "SMs Active [Throughput %]", 0, at + i * 100000, runs ? 90 : 0);
        }
    }
    return finish(&m);
}

static void tensor_counters(void **state)
{
    static const char *const rule = "tensor_cores", *const name = "Tensor Active [Throughput %]";
    (void)state;
    assert_int_equal(saves(with_counters(-1, name), rule, "were not recorded"), 40);
    assert_int_equal(saves(with_counters(0, name), rule, "active 0.0% of kernel time"), 80);
    assert_int_equal(saves(with_counters(30, name), rule, "active 30.0% of kernel time"), 40);
    assert_int_equal(saves(with_counters(30, "Tensor Active / FP16 Active [Throughput %]"), rule,
                           "active 30.0% of kernel time"),
                     40);
    assert_int_equal(saves(with_counters(30, "SM Issue [Throughput %]"), rule, "not recorded"), 40);
}

/* ---- queues ---- */

static struct mr_queue queue_of(struct mr_recording *rec, uint32_t number, uint64_t *out_waiting)
{
    struct mr_place *places = NULL;
    struct mr_look look;
    struct mr_streams streams;
    struct mr_queue *queues = NULL, queue;
    struct mr_intervals waiting = {0};
    uint32_t n = 0;
    assert_int_equal(mr_places_find(rec, &places, &n), 0);
    assert_int_equal(mr_look_make(rec, &places[0], NULL, false, &look), 0);
    assert_int_equal(mr_streams_make(&look, &streams), 0);
    assert_int_equal(mr_queues_find(&look, &streams, &queues, &waiting), 0);
    assert_true(number < streams.n);
    queue = queues[number];
    *out_waiting = mr_intervals_measure(&waiting);
    free(queues);
    mr_intervals_free(&waiting);
    mr_streams_free(&streams);
    mr_look_free(&look);
    free(places);
    mr_recording_close(rec);
    unlink(PATH);
    return queue;
}

/* Of four launches in a row three find the stream at work: 1, 2 and 3 deep. */
static void depths(void **state)
{
    struct make m;
    uint64_t waiting;
    (void)state;
    begin(&m);
    for (uint64_t at = 1000000; at < 21000000; at += 1000000) {
        make_range(&m, "step", at, at + 1000000);
        for (uint64_t i = 0; i < 4; i++)
            launch(&m, at + 10000 + i * 5000, 7, at + 15000 + i * 100000, at + 115000 + i * 100000);
        launch(&m, at + 900000, 9, at + 905000, at + 910000);
    }
    struct mr_recording *rec = finish(&m);
    struct mr_table *table = NULL;
    assert_int_equal(mr_report_make(rec, "queue_depth", NULL, &table), 0);
    assert_int_equal(mr_table_rows(table), 2);
    assert_non_null(strstr(mr_table_note(table), "was empty 70% of the time"));
    mr_table_destroy(table);
    struct mr_queue queue = queue_of(rec, 0, &waiting);
    assert_int_equal(queue.n, 19 * 4);
    assert_int_equal(queue.n_empty, 19);
    assert_int_equal(queue.min, 0);
    assert_int_equal(queue.median, 2);
    assert_int_equal(queue.max, 3);
    /* the second's call returns at 18 us, the last one begins at 315 us */
    assert_int_equal(queue.waiting_ns, 19 * 297000);
    assert_int_equal(waiting, queue.waiting_ns);
}

static void launches_tell_the_queue(void **state)
{
    struct loop l = loop_plain();
    struct mr_advice *advice = NULL;
    int percent = -1;
    (void)state;
    l.bytes = 4096; /* or launches queue behind the copy */
    l.n_kernels = 200;
    l.kernel_ns = 2000;
    l.launch_ns = 6000;
    struct mr_recording *rec = loop_record(PATH, &l, NULL);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const char *at = strstr(mr_advice_get(advice, i)->why, "The queue was empty ");
        assert_true(!at || strcmp(mr_advice_get(advice, i)->rule, "launch_bound") == 0);
        percent = at ? atoi(at + strlen("The queue was empty ")) : percent;
    }
    if (percent < 90 || percent > 100)
        fail_msg("%d%%: %s", percent, mr_advice_summary(advice));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_the_path),
        cmocka_unit_test(device_falls_behind),
        cmocka_unit_test(stretches),
        cmocka_unit_test(uneven_steps),
        cmocka_unit_test(pause_between),
        cmocka_unit_test(copies_in_line),
        cmocka_unit_test(tensor_counters),
        cmocka_unit_test(depths),
        cmocka_unit_test(launches_tell_the_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
