/*
 * White-box. Rules against loops whose truth is known: a loop with a fault and the same one without
 * it are both run, and what a rule predicts is compared with the difference.
 */
#include "chance.h"
#include "loop_sim.h"

#include "advice/rules.h"

#include <unistd.h>

#define PATH "test_advice.sqlite"

struct got {
    enum mr_verdict verdict;
    double saving_ms, percent;
    char why[1200], advice[1200], summary[1800];
    uint64_t n_rows;
};

static const struct mr_finding *find(const struct mr_advice *advice, const char *rule)
{
    for (uint32_t i = 0; i < mr_advice_count(advice); i++)
        if (strcmp(mr_advice_get(advice, i)->rule, rule) == 0)
            return mr_advice_get(advice, i);
    fail_msg("no rule %s", rule);
    return NULL;
}

/* What holds of every advice: order, ranges, words. */
static void check_all(const struct mr_advice *advice)
{
    int last = 0;
    double saving = 1e300;
    assert_true(strlen(mr_advice_summary(advice)) > 0);
    assert_null(mr_advice_get(advice, mr_advice_count(advice)));
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        int rank = f->verdict == MR_FOUND ? 0 : f->verdict == MR_CANNOT_TELL ? 1 : 2;
        assert_true(rank >= last);
        last = rank;
        assert_true(strlen(f->title) > 0 && strlen(f->why) > 0);
        assert_true(f->confidence >= 0 && f->confidence <= 1);
        assert_true(f->saving_percent >= 0 && f->saving_percent <= 100.0001);
        if (f->verdict != MR_FOUND) {
            assert_true(f->saving_ms == 0 && !f->advice && !f->evidence);
            continue;
        }
        bool explains = strcmp(f->rule, "critical_path") == 0 || strcmp(f->rule, "low_use") == 0 ||
                        strcmp(f->rule, "same_direction_copies") == 0;
        assert_true(explains ? f->saving_ms == 0 : f->saving_ms > 0);
        assert_true(f->saving_ms * f->confidence <= saving && f->confidence > 0);
        assert_non_null(f->advice);
        assert_true(f->evidence && mr_table_rows(f->evidence) > 0 &&
                    mr_table_rows(f->evidence) <= 50);
        saving = f->saving_ms * f->confidence;
    }
}

static struct got judge_recording(struct mr_recording *rec, const char *rule,
                                  const struct mr_advice_opts *opts)
{
    struct mr_advice *advice = NULL;
    struct got got = {0};
    if (mr_analyze(rec, opts, &advice) < 0)
        fail_msg("%s", mr_last_error());
    check_all(advice);
    const struct mr_finding *f = find(advice, rule);
    got.verdict = f->verdict;
    got.saving_ms = f->saving_ms;
    got.percent = f->saving_percent;
    got.n_rows = f->evidence ? mr_table_rows(f->evidence) : 0;
    snprintf(got.why, sizeof got.why, "%s", f->why);
    snprintf(got.advice, sizeof got.advice, "%s", f->advice ? f->advice : "");
    snprintf(got.summary, sizeof got.summary, "%s", mr_advice_summary(advice));
    if (getenv("SHOW"))
        printf("[%s] %d %.3f ms %.1f%% %s\n    %s\n    %s\n", rule, got.verdict, got.saving_ms,
               got.percent, f->title, got.why, got.summary);
    mr_advice_destroy(advice);
    return got;
}

static struct got judge(const struct loop *l, const char *rule, double *out_step_ms)
{
    double ns;
    struct mr_recording *rec = loop_record(PATH, l, &ns);
    struct got got = judge_recording(rec, rule, NULL);
    mr_recording_close(rec);
    unlink(PATH);
    if (out_step_ms)
        *out_step_ms = ns / 1e6;
    return got;
}

/* The prediction lies within `factor` of what mending saves; the mended loop is not found faulty.
 * Both by both APIs. */
static void predicts(struct loop bad, struct loop good, const char *rule, double factor)
{
    for (int driver = 0; driver < 2; driver++) {
        double before, after;
        bad.driver_api = good.driver_api = driver;
        struct got found = judge(&bad, rule, &before), fine = judge(&good, rule, &after);
        if (found.verdict != MR_FOUND)
            fail_msg("%s is not found: %s", rule, found.why);
        if (fine.verdict == MR_FOUND)
            fail_msg("%s is found where it was mended: %s", rule, fine.why);
        double truth = before - after;
        assert_true(truth > 0.01 * before);
        if (found.saving_ms > truth * factor || found.saving_ms < truth / factor)
            fail_msg("%s predicts %.3f ms, mending saves %.3f ms of %.3f: %s", rule,
                     found.saving_ms, truth, before, found.why);
        double percent = 100 * found.saving_ms / before;
        assert_true(found.percent > percent * 0.9 && found.percent < percent * 1.1);
    }
}

static void pageable_copies(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good;
    bad.copy_stream = false;
    bad.sync_each = true;
    good = bad;
    bad.pageable = true;
    good.bytes = bad.bytes;
    /* the recording has no page-locked copy to compare with: the rate is given */
    double before, after;
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.link_gbps = good.pinned_rate;
    struct mr_recording *rec = loop_record(PATH, &bad, &before);
    struct got found = judge_recording(rec, "pageable_copies", &opts),
               rateless = judge_recording(rec, "pageable_copies", NULL);
    mr_recording_close(rec);
    rec = loop_record(PATH, &good, &after);
    struct got fine = judge_recording(rec, "pageable_copies", &opts);
    mr_recording_close(rec);
    double truth = (before - after) / 1e6;
    assert_int_equal(found.verdict, MR_FOUND);
    assert_int_equal(fine.verdict, MR_FINE);
    assert_true(found.saving_ms > truth * 0.8 && found.saving_ms < truth * 1.25);
    assert_true(found.n_rows > 0 && found.n_rows <= 50);
    /* without any rate only what is sure is counted, and the text says so */
    assert_true(rateless.saving_ms < truth * 0.2);
    assert_non_null(strstr(rateless.why, "--link-gbps"));
    /* a known device lends its link's usual rate */
    bad.device = "NVIDIA A100-SXM4-80GB";
    struct got named = judge(&bad, "pageable_copies", NULL);
    assert_true(named.saving_ms > truth * 0.8 && named.saving_ms < truth * 1.25);
    unlink(PATH);
}

/* Of one direction no rate is known: of the other the saving is counted, and the text says
 * which. */
/* A step of microseconds is not told in thousandths of a millisecond; what is small is in neither
 * number of the title. */
static void small_steps_and_copies(void **state)
{
    struct make m;
    struct mr_advice *advice = NULL;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t at = 1000000 + i * 20000;
        make_range(&m, "step", at, at + 20000);
        make_copy(&m, 7, at, at + 12400, 100000, MR_COPY_H2D, MR_MEM_PAGEABLE);
        make_copy(&m, 7, at + 12400, at + 12500, 64, MR_COPY_H2D, MR_MEM_PAGEABLE);
        make_kernel(&m, 7, "k", at + 15000, at + 20000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    assert_non_null(strstr(mr_advice_summary(advice), "(12.500 of 20.000 us) for data"));
    assert_non_null(strstr(mr_advice_summary(advice), "12.500 us for copies to the device"));
    mr_advice_destroy(advice);
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.link_gbps = 50;
    assert_int_equal(mr_analyze(rec, &opts, &advice), 0);
    assert_string_equal(mr_advice_get(advice, 0)->rule, "pageable_copies");
    assert_non_null(strstr(mr_advice_get(advice, 0)->title, "19 of 19 copies of more than 64 KiB"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

/* A clock that went back leaves kernels without length: idle time is then too high, which is
 * said. */
static void clock_goes_back(void **state)
{
    struct make m;
    struct mr_advice *advice = NULL;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t at = 1000000 + i * 1000000;
        make_range(&m, "step", at, at + 1000000);
        make_kernel(&m, 7, "k", at + 100000, i % 7 == 3 ? at + 50000 : at + 900000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    assert_non_null(strstr(mr_advice_summary(advice),
                           "3 records do not end after they begin, so idle time is over"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Confidence is halved from one such record in a thousand on. */
static void few_without_length(void **state)
{
    double sure[3] = {0};
    (void)state;
    for (uint64_t bad = 0; bad < 3; bad++) {
        struct make m;
        struct mr_advice *advice = NULL;
        make_begin(&m, PATH);
        for (uint64_t i = 0; i < 600; i++) {
            uint64_t at = 1000000 + i * 1000000;
            make_range(&m, "step", at, at + 1000000);
            make_copy(&m, 7, at + 10000, at + 400000, 2000000, MR_COPY_H2D, MR_MEM_PAGEABLE);
            make_kernel(&m, 7, "k", at + 500000, i - 100 < bad ? at + 500000 : at + 900000);
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct mr_advice_opts opts;
        mr_advice_opts_init(&opts);
        opts.link_gbps = 50;
        assert_int_equal(mr_analyze(rec, &opts, &advice), 0);
        sure[bad] = find(advice, "pageable_copies")->confidence;
        mr_advice_destroy(advice);
        mr_recording_close(rec);
        unlink(PATH);
    }
    assert_true(sure[0] > 0);
    assert_true(sure[1] == sure[0]);
    assert_true(sure[2] == sure[0] / 2);
}

/* What is usual is a mean of lengths that may be of a few ns: none of them is lost, or all of the
 * first quarter would warm up. */
static void warm_up_of_many_short(void **state)
{
    struct make m;
    struct mr_advice *advice = NULL;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 400; i++) {
        make_range(&m, "step", 1000000 + i * 200, 1000200 + i * 200);
        make_kernel_of(&m, 0, 7, "k", 1000050 + i * 200, 1000150 + i * 200);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    assert_non_null(strstr(mr_advice_summary(advice), "; 399 steps after warming up"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

/* A program that compiles in its third step: the two short ones before it are of the warming up,
 * too. */
static void warm_up(void **state)
{
    struct make m;
    struct mr_advice *advice = NULL;
    uint64_t at = 1000000;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t ns = i == 2 ? 100000000 : 1000000;
        make_range(&m, "step", at, at + ns);
        make_kernel(&m, 7, "k", at + ns - 900000, at + ns);
        at += ns;
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    assert_non_null(strstr(mr_advice_summary(advice), "of 1.000 ms)"));
    assert_non_null(strstr(mr_advice_summary(advice), "; 37 steps after warming up"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

static void pageable_both_ways(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t at = 1000000 + i * 10000000;
        make_range(&m, "step", at, at + 10000000);
        make_copy(&m, 7, at + 1000000, at + 2000000, 5000000, MR_COPY_H2D, MR_MEM_PAGEABLE);
        make_copy(&m, 7, at + 2100000, at + 2300000, 5000000, MR_COPY_H2D, MR_MEM_PINNED);
        make_kernel(&m, 7, "k", at + 2400000, at + 6000000);
        make_copy(&m, 7, at + 6000000, at + 7000000, 5000000, MR_COPY_D2H, MR_MEM_PAGEABLE);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "pageable_copies", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(got.saving_ms > 0.79);
    assert_non_null(strstr(got.why, "25.0 GB/s"));
    assert_non_null(strstr(got.why, "Of 19 of the 38 copies no rate is known"));
    assert_non_null(strstr(got.why, "1.000 ms"));
    assert_non_null(strstr(got.why, "--link-gbps"));
    mr_recording_close(rec);
    unlink(PATH);
}

static void blocking_async(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.copy_stream = false;
    bad.n_kernels = 200;
    bad.kernel_ns = 5000;
    bad.launch_ns = 5500;
    bad.load_ns = 100000;
    bad.sync_each = true;
    struct loop good = bad;
    bad.copy_sync = true;
    double before, after;
    struct got found = judge(&bad, "blocking_async", &before),
               fine = judge(&good, "blocking_async", &after);
    assert_int_equal(found.verdict, MR_FINE); /* 10 us of a step: not worth a finding */
    assert_int_equal(fine.verdict, MR_FINE);
    /* what a pageable copy's call costs is pageable_copies' */
    bad.pageable = true;
    found = judge(&bad, "blocking_async", &before);
    assert_int_equal(found.verdict, MR_FINE);
    assert_int_equal(judge(&bad, "pageable_copies", NULL).verdict, MR_FOUND);
}

/* The thread waits for a copy and then works 60 us before it launches: without the wait that is
 * done when the copy is. */
static void waits_for_a_copy(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct make m;
        make_begin(&m, PATH);
        for (uint64_t i = 0, at = 1000000; i < 30; i++) {
            uint64_t from = at;
            make_copy(&m, 7, at + 5000, at + 305000, 8 << 20, MR_COPY_H2D, MR_MEM_PINNED);
            if (waits)
                make_sync(&m, 7, at + 4000, at + 310000);
            uint64_t call = waits ? at + 370000 : at + 65000;
            at = waits ? at + 375000 : at + 306000;
            make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", call, call + 3000), 7, "k",
                           at, at + 500000);
            at += 501000;
            make_sync(&m, 7, call + 4000, at);
            make_range(&m, "step", from, at);
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct got got = judge_recording(rec, "blocking_async", NULL);
        assert_int_equal(got.verdict, waits ? MR_FOUND : MR_FINE);
        assert_true(!waits || (got.saving_ms > 0.060 && got.saving_ms < 0.080));
        mr_recording_close(rec);
    }
    unlink(PATH);
}

static void copy_on_compute_stream(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.copy_stream = false;
    predicts(bad, good, "copy_on_compute_stream", 1.3);
}

static void starvation_by_ranges(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.n_workers = 2;
    bad.load_ns = 12000000;
    good.load_ns = 12000000;
    predicts(bad, good, "data_starvation", 1.2);
    bad.os = good.os = false;
    predicts(bad, good, "data_starvation", 1.2);
    /* 6 ms a step with 2 workers, 3 ms of compute: 4 workers */
    bad.os = true;
    double before;
    struct got got = judge(&bad, "data_starvation", &before);
    const char *text = strstr(got.advice, "workers would keep up");
    assert_non_null(text);
    assert_true(text[-2] == '4' || text[-2] == '5');
    assert_non_null(strstr(got.summary, "data-bound: the GPU waited"));
    struct loop more = bad;
    more.n_workers = (uint32_t)(text[-2] - '0');
    double after;
    got = judge(&more, "data_starvation", &after);
    assert_int_equal(got.verdict, MR_FINE);
    assert_true(after < before * 0.6);
    assert_true(strncmp(got.summary, "not data-bound:", 15) == 0);
}

static void starvation_by_waits(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.n_workers = 2;
    bad.load_ns = good.load_ns = 12000000;
    bad.ranges = good.ranges = false;
    predicts(bad, good, "data_starvation", 1.2);
    struct got got = judge(&bad, "data_starvation", NULL);
    assert_non_null(strstr(got.summary, "data-bound: the GPU waited"));
    /* neither ranges nor calls of the system: it cannot be told, and the summary says what to
     * record */
    bad.os = false;
    got = judge(&bad, "data_starvation", NULL);
    /* the maker's header says that calls of the system were traced: none are there, so there were
     * none above the threshold */
    assert_true(got.verdict != MR_FOUND);
    assert_true(strncmp(got.summary, "cannot tell:", 12) == 0);
}

static void starvation_loads_itself(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.copy_stream = false;
    bad.n_workers = 0;
    bad.load_ns = 2000000;
    bad.sync_each = true;
    struct got got = judge(&bad, "data_starvation", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_non_null(strstr(got.advice, "loads the data itself"));
    assert_non_null(strstr(got.advice, ": 1 workers"));
    struct loop good = bad;
    good.n_workers = 8;
    predicts(bad, good, "data_starvation", 1.2);
}

static void sync_in_loop(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.kernel_ns = 20000;
    bad.launch_ns = 8000;
    bad.own_ns = 60000;
    bad.load_ns = 500000;
    bad.bytes = 1 << 20;
    struct loop good = bad;
    bad.sync_each = true;
    predicts(bad, good, "sync_in_loop", 1.5);
}

static void pinning_in_loop(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.pin_ns = 900000;
    predicts(bad, good, "pinning_in_loop", 1.3);
    bad.ranges = false;
    bad.n_kernels = 20;
    struct got got = judge(&bad, "pinning_in_loop", NULL);
    assert_int_equal(got.verdict, MR_FOUND); /* steps by period */
}

static void allocation_in_loop(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.alloc_ns = 500000;
    predicts(bad, good, "allocation_in_loop", 1.3);
}

static void memset_sync(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.kernel_ns = 20000;
    bad.own_ns = 60000;
    bad.bytes = 1 << 20;
    struct loop good = bad;
    bad.set_ns = 3000;
    predicts(bad, good, "memset_sync", 1.5);
}

static void small_copies(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.n_small = 200;
    bad.sync_each = good.sync_each = true;
    good.n_small = 1;
    predicts(bad, good, "small_copies", 1.3);
}

static void launch_bound(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.n_kernels = 300;
    bad.kernel_ns = 3000;
    bad.launch_ns = 9000;
    bad.bytes = 1 << 20;
    struct loop good = bad;
    good.graph = true;
    good.launch_ns = 20000;
    predicts(bad, good, "launch_bound", 1.5);
}

static void gpu_gaps(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.sync_each = true;
    struct loop good = bad;
    bad.own_ns = 2000000;
    predicts(bad, good, "gpu_gaps", 1.3);
}

static void link_rate(void **state)
{
    (void)state;
    struct loop bad = loop_plain();
    bad.copy_stream = false;
    bad.device = "NVIDIA A100-SXM4-80GB";
    bad.sync_each = true;
    struct loop good = bad;
    bad.pinned_rate = 6;
    predicts(bad, good, "link_rate", 1.3);
    bad.bytes = 0;
    assert_int_equal(judge(&bad, "link_rate", NULL).verdict, MR_CANNOT_TELL);
}

/* Without a rate of the link, each direction is measured by its own best copy: the text takes the
 * lower one, whichever comes last. */
static void link_rate_each_way(void **state)
{
    (void)state;
    for (int last = 0; last < 2; last++) {
        struct make m;
        make_begin(&m, PATH);
        for (uint64_t i = 0; i < 20; i++) {
            uint64_t at = 1000000 + i * 10000000;
            make_range(&m, "step", at, at + 10000000);
            make_copy(&m, 7, at + 1000000, at + 2000000, last ? 50000000 : 20000000, MR_COPY_H2D,
                      MR_MEM_PINNED);
            make_kernel(&m, 7, "k", at + 2400000, at + 6000000);
            make_copy(&m, 7, at + 6000000, at + 7000000, last ? 20000000 : 50000000, MR_COPY_D2H,
                      MR_MEM_PINNED);
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct got got = judge_recording(rec, "link_rate", NULL);
        assert_non_null(strstr(got.why, "the link's rate is 20.0 GB/s"));
        mr_recording_close(rec);
        unlink(PATH);
    }
}

static void tensor_cores(void **state)
{
    (void)state;
    struct loop bad = loop_plain(), good = bad;
    bad.kernel = "ampere_sgemm_128x64_nn";
    good.kernel_ns /= 2; /* what the rule assumes */
    predicts(bad, good, "tensor_cores", 1.2);
    bad.device = NULL;
    assert_int_equal(judge(&bad, "tensor_cores", NULL).verdict, MR_CANNOT_TELL);
    static const char *const with[] = {"ampere_s16816gemm_bf16",
                                       "sm80_xmma_gemm_f16",
                                       "cutlass_tensorop_gemm",
                                       "vectorized_elementwise_kernel",
                                       "nvjet_tst_128x64",
                                       "gemv2T_kernel_val",
                                       "gemmk1"};
    bad = loop_plain();
    for (int i = 0; i < 6; i++) {
        bad.kernel = with[i];
        assert_int_equal(judge(&bad, "tensor_cores", NULL).verdict, MR_FINE);
    }
    bad.kernel = "cutlass_80_simt_sgemm_128x128";
    assert_int_equal(judge(&bad, "tensor_cores", NULL).verdict, MR_FOUND);
    bad.kernel = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_"
                 "aligna4_alignc4";
    assert_int_equal(judge(&bad, "tensor_cores", NULL).verdict, MR_FOUND);
    bad.kernel = "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_"
                 "execute_segment_k_off";
    assert_int_equal(judge(&bad, "tensor_cores", NULL).verdict, MR_FINE);
}

/* Two processes whose kernels take turns, with the time that a switch takes between them, or run at
 * once. */
static struct got turns(bool two, uint64_t switch_ns, bool together)
{
    struct make m;
    make_begin(&m, PATH);
    make_device(&m, 0, "Some GPU");
    for (uint64_t p = 0; p < 1 + (uint64_t)two; p++) {
        if (p)
            make_process(&m, 300, "python3 other.py");
        for (uint64_t i = 0; i < 400; i++) {
            uint64_t start =
                1000000 + i * 1000000 + (together ? 0 : p * 400000) + (two ? p * switch_ns : 0);
            if (i % 10 == 0 && p == 0)
                make_range(&m, "step", start - 10000, start + 5000000);
            /* given to the device long before */
            make_kernel_of(&m,
                           make_call(&m, "cudaLaunchKernel_v7000", start - 600000, start - 597000),
                           7, "k", start, start + (p ? 300000 : 400000 + (together ? 500000 : 0)));
        }
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "context_switches", NULL);
    mr_recording_close(rec);
    unlink(PATH);
    return got;
}

static void context_switches(void **state)
{
    (void)state;
    assert_int_equal(turns(false, 0, false).verdict, MR_FINE);
    assert_int_equal(turns(true, 100000, true).verdict, MR_FINE);
    struct got got = turns(true, 100000, false);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(got.saving_ms > 1.0 &&
                got.saving_ms < 4.0); /* 10 a step, 0.2 ms before each of ours */
}

/* Three processes: of three changes one is to us, and ours alone are counted. */
static void three_take_turns(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_device(&m, 0, "Some GPU");
    for (uint64_t p = 0; p < 3; p++) {
        if (p)
            make_process(&m, (uint32_t)(300 + p), "python3 other.py");
        for (uint64_t i = 0; i < 200; i++) {
            uint64_t at = 1000000 + i * 1000000 + p * 300000;
            if (p == 0)
                make_range(&m, "step", at, at + 1000000);
            make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", at - 350000, at - 347000), 7,
                           "k", at, at + (p ? 100000 : 60000));
            if (p == 0) /* 40 us are the usual gap; 300 before each change to us */
                make_kernel(&m, 7, "k", at + 100000, at + 160000);
        }
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "context_switches", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(got.saving_ms > 0.255 && got.saving_ms < 0.265);
    mr_recording_close(rec);
    unlink(PATH);
}

/* PyTorch's main thread waits while another one launches the backward pass: the device's gaps then
 * are not for want of data. */
static void waits_for_autograd(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t at = 1000000 + i * 1000000;
        m.tid = 100;
        make_copy(&m, 7, at + 210000, at + 220000, 100000, MR_COPY_H2D, MR_MEM_PINNED);
        make_kernel(&m, 7, "forward", at + 300000, at + 500000);
        make_os(&m, "poll", at + 20000, at + 200000, 0);
        make_os(&m, "pthread_cond_wait", at + 310000, at + 900000, 0);
        m.tid = 101;
        make_os(&m, "pthread_cond_wait", at, at + 450000, 0);
        make_kernel(&m, 7, "backward", at + 800000, at + 1000000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "data_starvation", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(got.saving_ms > 0.17 && got.saving_ms < 0.19);
    mr_recording_close(rec);
    unlink(PATH);
}

/* A training loop that is not in the main thread, and a backward thread that launches more: the
 * loop's ranges tell who waits for data. */
static void trains_in_a_thread(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t at = 1000000 + i * 1000000;
        m.tid = 201;
        make_range(&m, "step", at, at + 990000);
        make_range(&m, "load", at + 10000, at + 210000);
        make_kernel(&m, 7, "forward", at + 300000, at + 500000);
        make_os(&m, "pthread_cond_wait", at + 310000, at + 900000, 0);
        m.tid = 202;
        make_os(&m, "pthread_cond_wait", at, at + 450000, 0);
        make_range(&m, "backward", at + 490000, at + 800000);
        make_kernel(&m, 7, "backward", at + 500000, at + 700000);
        make_kernel(&m, 7, "backward", at + 700000, at + 1000000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "data_starvation", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(got.saving_ms > 0.19 && got.saving_ms < 0.21);
    mr_recording_close(rec);
    unlink(PATH);
}

/*
 * millrace's own loader: its threads copy and transform on the copies' stream, while the consumer,
 * who launches nothing, waits for a batch for 600 of each 1000 us.
 */
static void millraces_own_loader(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t at = 1000000 + i * 1000000;
        m.tid = 100;
        make_range_of(&m, "millrace", MR_RANGE_PUSH_POP, "wait: batch", at, at + 600000);
        make_range_of(&m, "millrace", MR_RANGE_PUSH_POP, "step", at + 600000, at + 610000);
        m.tid = 200 + (uint32_t)(i % 4);
        make_range_of(&m, "millrace", MR_RANGE_PUSH_POP, "samples", at, at + 500000);
        make_os(&m, "pthread_cond_wait", at + 700000, at + 990000, 0);
        make_copy(&m, 14, at + 600000, at + 700000, 200000, MR_COPY_H2D, MR_MEM_PINNED);
        make_kernel(&m, 14, "mr_pointwise", at + 700000, at + 760000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "data_starvation", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(got.saving_ms > 0.57 && got.saving_ms < 0.61);
    assert_null(strstr(got.advice, "DataLoader"));
    assert_non_null(strstr(got.advice, "4 worker threads"));
    got = judge_recording(rec, "copy_on_compute_stream", NULL);
    assert_int_equal(got.verdict, MR_FINE);
    mr_recording_close(rec);
    unlink(PATH);
}

/* The thread runs its own code for most of each step and waits for something a little: whether for
 * data is not known. */
static void mostly_own_code(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t at = 1000000 + i * 1000000;
        make_range(&m, "step", at, at + 900000);
        make_os(&m, "futex", at + 100000, at + 250000, 0);
        make_kernel(&m, 7, "k", at + 900000, at + 980000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct got got = judge_recording(rec, "gpu_gaps", NULL);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_true(strncmp(got.summary, "cannot tell:", 12) == 0);
    mr_recording_close(rec);
    unlink(PATH);
}

/* ---- what must not matter ---- */

struct all {
    uint32_t n;
    struct {
        char rule[40];
        enum mr_verdict verdict;
        double ms, percent, confidence;
    } f[64];
    char summary[1800];
};

static struct all judge_all(struct mr_recording *rec)
{
    static struct all all;
    struct mr_advice *advice = NULL;
    memset(&all, 0, sizeof all);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    check_all(advice);
    all.n = mr_advice_count(advice);
    for (uint32_t i = 0; i < all.n; i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        snprintf(all.f[i].rule, sizeof all.f[i].rule, "%s", f->rule);
        all.f[i].verdict = f->verdict;
        all.f[i].ms = f->saving_ms;
        all.f[i].percent = f->saving_percent;
        all.f[i].confidence = f->confidence;
    }
    snprintf(all.summary, sizeof all.summary, "%s", mr_advice_summary(advice));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    return all;
}

static struct loop faulty(void)
{
    struct loop l = loop_plain();
    l.pageable = true;
    l.copy_stream = false;
    l.sync_each = true;
    l.own_ns = 300000;
    l.pin_ns = 200000;
    l.n_small = 20;
    return l;
}

static void shift_changes_nothing(void **state)
{
    (void)state;
    struct loop l = faulty();
    struct all here = judge_all(loop_record(PATH, &l, NULL));
    l.at_ns += 123456789012;
    struct all there = judge_all(loop_record(PATH, &l, NULL));
    assert_memory_equal(&here, &there, sizeof here);
    unlink(PATH);
}

static void strangers_change_nothing(void **state)
{
    (void)state;
    struct loop l = faulty();
    struct make m;
    l.n_workers = 2;
    make_begin(&m, PATH);
    loop_run(&m, &l);
    make_end(&m);
    struct all alone = judge_all(make_load(PATH));
    make_begin(&m, PATH);
    make_process(&m, 50, "/usr/bin/other");
    for (uint64_t i = 0; i < 500; i++) {
        make_os(&m, "poll", i * 700000, i * 700000 + 600000, 0);
        make_range(&m, "data", i * 700000, i * 700000 + 300000);
        make_range(&m, "step", i * 700000, i * 700000 + 300000);
        make_call(&m, "cudaStreamSynchronize_v3020", i * 700000, i * 700000 + 500000);
    }
    make_process(&m, 100, "python3 train.py");
    loop_run(&m, &l);
    make_end(&m);
    struct all with = judge_all(make_load(PATH));
    assert_memory_equal(&alone, &with, sizeof alone);
    unlink(PATH);
}

/* ---- recordings with little in them ---- */

static void nothing_there(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_note(&m, "no_cuda", 0, "another subscriber holds CUPTI");
    make_end(&m);
    struct all all = judge_all(make_load(PATH));
    assert_true(strncmp(all.summary, "cannot tell:", 12) == 0);
    assert_non_null(strstr(all.summary, "another subscriber"));
    for (uint32_t i = 0; i < all.n; i++)
        assert_int_equal(all.f[i].verdict, MR_CANNOT_TELL);
    unlink(PATH);
}

static void copies_without_kernels(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 50; i++)
        make_copy(&m, 7, 100000 + i * 1000000, 600000 + i * 1000000, 4 << 20, MR_COPY_H2D,
                  MR_MEM_PAGEABLE);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(judge_recording(rec, "data_starvation", NULL).verdict, MR_CANNOT_TELL);
    assert_int_equal(judge_recording(rec, "copy_on_compute_stream", NULL).verdict, MR_CANNOT_TELL);
    assert_int_equal(judge_recording(rec, "launch_bound", NULL).verdict, MR_CANNOT_TELL);
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.link_gbps = 25;
    struct got got = judge_recording(rec, "pageable_copies", &opts);
    assert_int_equal(got.verdict, MR_FOUND);
    assert_non_null(strstr(got.why, "the saving is an upper bound"));
    mr_recording_close(rec);
    unlink(PATH);
}

static void kernels_without_calls(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 50; i++) {
        make_kernel_of(&m, 0, 7, "a", 100000 + i * 1000000, 600000 + i * 1000000);
        make_copy_of(&m, 0, 7, 600000 + i * 1000000, 700000 + i * 1000000, 1 << 20, MR_COPY_H2D,
                     MR_MEM_UNKNOWN);
    }
    make_end(&m);
    static const char *const untold[] = {
        "blocking_async",  "sync_in_loop", "pinning_in_loop", "allocation_in_loop", "memset_sync",
        "pageable_copies", "gpu_gaps",     "launch_bound",    "tensor_cores",       "link_rate"};
    struct mr_recording *rec = make_load(PATH);
    for (size_t i = 0; i < sizeof untold / sizeof *untold; i++)
        assert_int_equal(judge_recording(rec, untold[i], NULL).verdict, MR_CANNOT_TELL);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Advice is made of anything, and keeps its promises. */
static void anything(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        chance_record(PATH, round);
        judge_all(make_load(PATH));
        unlink(PATH);
    }
}

static void wrong_names(void **state)
{
    struct mr_advice *advice = NULL;
    struct mr_advice_opts opts;
    (void)state;
    struct loop l = loop_plain();
    struct mr_recording *rec = loop_record(PATH, &l, NULL);
    mr_advice_opts_init(&opts);
    opts.step = "epok";
    assert_int_equal(mr_analyze(rec, &opts, &advice), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "\"data\""));
    opts.step = "step";
    opts.range = "lode";
    assert_int_equal(mr_analyze(rec, &opts, &advice), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "lode"));
    assert_null(advice);
    opts.range = "data";
    assert_int_equal(mr_analyze(rec, &opts, &advice), 0);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Names alike at their beginnings are other devices. */
static void links_by_name(void **state)
{
    static const struct {
        const char *name;
        double rate;
    } devices[] = {{"NVIDIA H200", 55},
                   {"NVIDIA H20", 55},
                   {"NVIDIA GH200 480GB", 350},
                   {"NVIDIA A100-SXM4-80GB", 25},
                   {"Tesla V100-SXM2-16GB", 12.3},
                   {"Tesla T4", 12.3},
                   {"NVIDIA L40S", 25},
                   {"NVIDIA GeForce RTX 5090", 55},
                   {"NVIDIA GeForce RTX 3060 Ti", 25},
                   {"NVIDIA RTX 5000 Ada Generation", 25},
                   {"NVIDIA RTX A6000", 25},
                   {"Quadro RTX 5000", 0},
                   {"NVIDIA T400 4GB", 0},
                   {"NVIDIA A1000", 0},
                   {"NVIDIA L400", 0},
                   {"", 0}};
    (void)state;
    for (size_t i = 0; i < MR_COUNT(devices); i++)
        if (mr_link_rate_of(devices[i].name) != devices[i].rate)
            fail_msg("%s: %g", devices[i].name, mr_link_rate_of(devices[i].name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_by_name),
        cmocka_unit_test(pageable_copies),
        cmocka_unit_test(pageable_both_ways),
        cmocka_unit_test(small_steps_and_copies),
        cmocka_unit_test(warm_up),
        cmocka_unit_test(warm_up_of_many_short),
        cmocka_unit_test(clock_goes_back),
        cmocka_unit_test(few_without_length),
        cmocka_unit_test(blocking_async),
        cmocka_unit_test(waits_for_a_copy),
        cmocka_unit_test(copy_on_compute_stream),
        cmocka_unit_test(starvation_by_ranges),
        cmocka_unit_test(starvation_by_waits),
        cmocka_unit_test(starvation_loads_itself),
        cmocka_unit_test(sync_in_loop),
        cmocka_unit_test(pinning_in_loop),
        cmocka_unit_test(allocation_in_loop),
        cmocka_unit_test(memset_sync),
        cmocka_unit_test(small_copies),
        cmocka_unit_test(launch_bound),
        cmocka_unit_test(gpu_gaps),
        cmocka_unit_test(link_rate),
        cmocka_unit_test(link_rate_each_way),
        cmocka_unit_test(tensor_cores),
        cmocka_unit_test(context_switches),
        cmocka_unit_test(three_take_turns),
        cmocka_unit_test(shift_changes_nothing),
        cmocka_unit_test(strangers_change_nothing),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(copies_without_kernels),
        cmocka_unit_test(kernels_without_calls),
        cmocka_unit_test(wrong_names),
        cmocka_unit_test(waits_for_autograd),
        cmocka_unit_test(trains_in_a_thread),
        cmocka_unit_test(millraces_own_loader),
        cmocka_unit_test(mostly_own_code),
        cmocka_unit_test(anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
