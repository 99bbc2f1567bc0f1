/* White-box. Steps, by ranges and by period, and the breakdown of their time. */
#include "loop_sim.h"

#include "recording/big.h"
#include "recording/look.h"
#include <inttypes.h>
#include <unistd.h>

#define PATH "test_steps.sqlite"

static struct mr_table *report(struct mr_recording *rec, const struct mr_report_opts *opts)
{
    struct mr_report_opts plain;
    struct mr_table *table = NULL;
    plain = (struct mr_report_opts){.size = sizeof plain};
    if (mr_report_step_breakdown.make(rec, opts ? opts : &plain, &table) < 0)
        fail_msg("%s", mr_last_error());
    return table;
}

static int64_t cell(const struct mr_table *table, uint64_t row, const char *name)
{
    for (uint32_t c = 0; c < mr_table_columns(table); c++)
        if (strcmp(mr_table_column(table, c)->name, name) == 0)
            return mr_table_cell(table, row, c).integer;
    fail_msg("no column %s", name);
    return 0;
}

static const char *text(const struct mr_table *table, uint64_t row, const char *name)
{
    for (uint32_t c = 0; c < mr_table_columns(table); c++)
        if (strcmp(mr_table_column(table, c)->name, name) == 0)
            return mr_table_cell(table, row, c).text;
    fail_msg("no column %s", name);
    return NULL;
}

/* Parts add up to the step, idle parts to idle, exactly. */
static void check_sums(const struct mr_table *table)
{
    for (uint64_t r = 0; r < mr_table_rows(table); r++) {
        int64_t wall = cell(table, r, "Duration"), idle = cell(table, r, "Idle");
        assert_true(wall > 0);
        assert_true(idle >= 0 && cell(table, r, "Compute Alone") >= 0 &&
                    cell(table, r, "Copy Exposed") >= 0);
        assert_int_equal(cell(table, r, "Compute Alone") + cell(table, r, "Copy Hidden") +
                             cell(table, r, "Copy Exposed") + cell(table, r, "Others Alone") + idle,
                         wall);
        assert_int_equal(cell(table, r, "Idle in API Calls") + cell(table, r, "Idle in OS Calls") +
                             cell(table, r, "Idle in Own Code"),
                         idle);
    }
}

static struct mr_steps steps_of(struct mr_recording *rec, const char *name)
{
    struct mr_place *places = NULL;
    struct mr_steps steps = {0};
    uint32_t n = 0, *ops = NULL;
    uint64_t n_ops = 0;
    assert_int_equal(mr_places_find(rec, &places, &n), 0);
    assert_true(n > 0);
    assert_int_equal(mr_place_ops(rec, &places[0], &ops, &n_ops), 0);
    if (mr_steps_find(rec, &places[0], ops, n_ops, name, &steps) < 0)
        fail_msg("%s", mr_last_error());
    free(places);
    mr_big_free(ops);
    return steps;
}

static void by_known_name(void **state)
{
    struct loop l = loop_plain();
    struct mr_recording *rec = loop_record(PATH, &l, NULL);
    (void)state;
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_KNOWN);
    assert_int_equal(steps.n, l.n_steps);
    for (uint64_t i = 1; i < steps.n; i++)
        assert_true(steps.at[i].start_ns ==
                    steps.at[i - 1].end_ns); /* nothing between them is lost */
    mr_steps_free(&steps);
    steps = steps_of(rec, "data");
    assert_int_equal(steps.method, MR_STEPS_NAMED);
    assert_int_equal(steps.n, l.n_steps);
    mr_steps_free(&steps);
    struct mr_table *table = report(rec, NULL);
    assert_int_equal(mr_table_rows(table), l.n_steps + 4);
    assert_string_equal(text(table, 0, "Step"), "mean");
    assert_string_equal(text(table, 1, "Step"), "sum");
    assert_string_equal(text(table, 2, "Step"), "median");
    assert_string_equal(text(table, 3, "Step"), "p95");
    assert_true(cell(table, 2, "Duration") <= cell(table, 3, "Duration"));
    /* of the steps after warming up, and what a step of them has on average */
    int64_t sum = 0, idle = 0, n = (int64_t)l.n_steps - 1;
    for (uint64_t r = 5; r < mr_table_rows(table); r++) {
        sum += cell(table, r, "Duration");
        idle += cell(table, r, "Idle");
    }
    assert_int_equal(cell(table, 1, "Duration"), sum);
    assert_int_equal(cell(table, 1, "Idle"), idle);
    assert_int_equal(cell(table, 0, "Duration"), (sum + n / 2) / n);
    check_sums(table);
    mr_table_destroy(table);
    mr_recording_close(rec);
    unlink(PATH);
}

static void names_with_numbers(void **state)
{
    struct make m;
    char name[32];
    (void)state;
    make_begin(&m, PATH);
    make_range(&m, "epoch 1", 500, 99000000);
    for (uint64_t i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "ProfilerStep#%d", (int)i);
        make_range(&m, name, 1000 + i * 1000000, 800000 + i * 1000000);
        make_kernel(&m, 7, "k", 100000 + i * 1000000, 400000 + i * 1000000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_KNOWN);
    assert_int_equal(steps.n, 20);
    assert_int_equal(steps.at[3].end_ns - steps.at[3].start_ns, 1000000);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

static void make_python(struct make *m, const char *text, uint64_t start, uint64_t end)
{
    make_range_of(m, "python", MR_RANGE_PUSH_POP, text, start, end);
}

/* What millrace profile makes by itself: a batch is a step however irregular it comes, or, with two
 * loaders that take turns, what the optimizer ends. Names that the program gave come first. */
static void python_ranges(void **state)
{
    static const struct {
        int loaders;
        bool own;
        uint64_t expected;
        const char *how;
    } cases[] = {{1, false, 20, "from one NVTX range \"DataLoader\" to the next"},
                 {2, false, 20, "from one NVTX range \"optimizer step\" to the next"},
                 {1, true, 10, "from one NVTX range \"step\" to the next"}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct make m;
        make_begin(&m, PATH);
        for (uint64_t i = 0, at = 1000000; i < 20; at += 1000000 * (1 + i % 4), i++) {
            for (int n = 0; n < cases[c].loaders; n++)
                make_python(&m, "DataLoader", at + (uint64_t)n * 100000,
                            at + (uint64_t)n * 100000 + 90000);
            make_kernel(&m, 7, i % 2 ? "odd" : "even", at + 300000, at + 600000);
            make_python(&m, "backward", at + 400000, at + 500000);
            make_python(&m, "optimizer step", at + 600000, at + 700000);
            make_kernel(&m, 7, "adam", at + 650000, at + 690000);
            if (cases[c].own && i % 2 == 0)
                make_range(&m, "step", at, at + 900000);
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct mr_steps steps = steps_of(rec, NULL);
        assert_int_equal(steps.method, MR_STEPS_KNOWN);
        assert_string_equal(steps.how, cases[c].how);
        assert_int_equal(steps.n, cases[c].expected);
        mr_steps_free(&steps);
        mr_recording_close(rec);
        unlink(PATH);
    }
}

/* To the end from here; and inside of ranges; a range that is not there is said so. */
static void windows(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 10; i++) {
        make_range(&m, "step", 1000000 + i * 1000000, 1900000 + i * 1000000);
        make_kernel(&m, 7, "k", 1100000 + i * 1000000, 1600000 + i * 1000000);
    }
    make_range(&m, "warm", 500000, 3500000);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_report_opts opts;
    opts = (struct mr_report_opts){.size = sizeof opts, .from_ns = 4000000};
    struct mr_table *table = report(rec, &opts);
    assert_int_equal(mr_table_rows(table), 4 + 7);
    assert_int_equal(cell(table, 4, "Start"), 4000000);
    mr_table_destroy(table);
    opts = (struct mr_report_opts){.size = sizeof opts, .range = "warm"};
    table = report(rec, &opts);
    assert_int_equal(mr_table_rows(table), 4 + 3);
    mr_table_destroy(table);
    opts.range = "worm";
    table = NULL;
    assert_int_equal(mr_report_step_breakdown.make(rec, &opts, &table), MR_EOPTION);
    assert_null(table);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Places hold a device's index, people and nvidia-smi its number. */
static void devices(void **state)
{
    struct mr_rec_device two[] = {{.id = 1, .major = 9}, {.id = 0, .major = 6}};
    struct mr_recording known = {.devices = two, .n_devices = 2};
    struct mr_look look = {.rec = &known};
    struct mr_advice *advice = NULL;
    struct make m;
    (void)state;
    assert_ptr_equal(mr_look_device(&look), &two[0]);
    make_begin(&m, PATH); /* without rows for the devices */
    for (m.device = 4; m.device >= 3; m.device--)
        for (uint64_t i = 0; i < 10; i++) {
            make_range(&m, "step", 1000000 + i * 1000000, 1900000 + i * 1000000);
            make_kernel(&m, 7, "k", 1100000 + i * 1000000, 1600000 + i * 1000000 + m.device);
        }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_table *table = report(rec, NULL);
    assert_int_equal(cell(table, 0, "Device"), 4);
    assert_int_equal(cell(table, mr_table_rows(table) - 1, "Device"), 3);
    mr_table_destroy(table);
    struct mr_report_opts opts = {.size = sizeof opts};
    assert_int_equal(mr_report_overlap.make(rec, &opts, &table), 0);
    assert_int_equal(cell(table, 0, "Device"), 4);
    mr_table_destroy(table);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    assert_non_null(strstr(mr_advice_summary(advice), "of 2 devices in use this is device 4 of"));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

static void waiting_calls(void **state)
{
    static const char *const waits[] = {"pthread_cond_wait", "pthread_cond_timedwait", "sem_wait",
                                        "sem_clockwait", "poll"};
    static const char *const others[] = {"pthread_create", "pthread_cond_signal",
                                         "pthread_cond_broadcast", "sem_post", "ioctl"};
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        assert_int_equal(mr_os_waits(waits[i]), 1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(mr_os_waits(others[i]), 0);
    assert_int_equal(mr_os_waits("fread"), 2);
}

/* A process without the range, though it does the most, takes nothing from one that has it. */
static void named_in_one_process(void **state)
{
    struct make m;
    struct mr_report_opts opts = {.size = sizeof opts, .step = "mine"};
    struct mr_table *table = NULL;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 10; i++)
        make_kernel(&m, 7, "k", 1000000 + i * 1000000, 1900000 + i * 1000000);
    make_process(&m, 300, "python3 other.py");
    for (uint64_t i = 0; i < 10; i++) {
        make_range(&m, "mine", 1000000 + i * 1000000, 1900000 + i * 1000000);
        make_kernel(&m, 7, "k", 1100000 + i * 1000000, 1200000 + i * 1000000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    table = report(rec, &opts);
    assert_int_equal(mr_table_rows(table), 4 + 10);
    assert_int_equal(cell(table, 0, "PID"), 300);
    assert_non_null(strstr(mr_table_note(table), "confidence 1.00"));
    mr_table_destroy(table);
    opts.step = "nobody's";
    assert_int_equal(mr_report_step_breakdown.make(rec, &opts, &table), MR_EOPTION);
    mr_recording_close(rec);
    unlink(PATH);
}

/* n steps of 1 ms, each with a range and a kernel, from `at` on; returns their end. */
static uint64_t make_steps(struct make *m, uint64_t at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, at += 1000000) {
        make_range(m, "step", at, at + 900000);
        make_kernel(m, 7, "k", at + 100000, at + 600000);
    }
    return at;
}

/* A loop's last turn that finds no more data is no step; a last step of a loader that launches from
 * other threads is one. */
static void last_turn(void **state)
{
    (void)state;
    for (int every = 1; every <= 3; every += 2) {
        struct make m;
        make_begin(&m, PATH);
        for (uint64_t i = 0; i < 13; i++) {
            uint64_t at = 1000000 + i * 1000000;
            make_range(&m, "step", at, at + 900000);
            make_range(&m, "load", at + 1000, at + 300000);
            if (i < 12 && i % (uint64_t)every == 0)
                make_kernel(&m, 7, "k", at + 400000, at + 1200000); /* runs on into the next */
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        static const char *const names[] = {NULL, "step", "load"};
        for (size_t k = 0; k < MR_COUNT(names); k++) {
            struct mr_steps steps = steps_of(rec, names[k]);
            uint64_t begin = k == 2 ? 1001000 : 1000000, own = k == 2 ? 299000 : 900000;
            assert_int_equal(steps.method, k ? MR_STEPS_NAMED : MR_STEPS_KNOWN);
            assert_int_equal(steps.n, every == 1 ? 12 : 13);
            assert_int_equal(steps.at[steps.n - 1].end_ns,
                             begin + 12000000 + (every == 1 ? 0 : own));
            mr_steps_free(&steps);
        }
        mr_recording_close(rec);
        unlink(PATH);
    }
}

/* The step before a last turn that comes after a pause ends with its own range: the pause is
 * between no steps. */
static void last_turn_after_a_pause(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 13; i++) {
        uint64_t at = 1000000 + i * 1000000 + (i == 12) * 500000000;
        make_range(&m, "step", at, at + 900000);
        if (i < 12)
            make_kernel(&m, 7, "k", at + 400000, at + 800000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.n, 12);
    assert_int_equal(steps.n_pauses, 0);
    assert_int_equal(steps.pause_ns, 0);
    assert_int_equal(steps.at[11].end_ns, 12900000);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/* What the last turn loads slowly is launched after its range, later than a usual step from its
 * begin: it is a step. */
static void slow_last_load(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 13; i++) {
        uint64_t at = 1000000 + i * 1000000, end = at + (i == 12 ? 3000000 : 300000);
        make_range(&m, "load", at, end);
        make_kernel(&m, 7, "k", end + 100000, end + 500000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, "load");
    assert_int_equal(steps.n, 13);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Kernels of the last step that end in the turn which finds no more data do not make a step of
 * it. */
static void queue_ends_in_last_turn(void **state)
{
    (void)state;
    for (int within = 0; within < 2; within++) {
        struct make m;
        make_begin(&m, PATH);
        for (uint64_t i = 0; i < 13; i++) {
            uint64_t at = 1000000 + i * 1000000, next = at + 1000000;
            make_range(&m, "step", at, at + 900000);
            if (i < 12)
                make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", at + 1000, at + 5000), 7,
                               "k", next + 100000, next + (within ? 800000 : 950000));
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct mr_steps steps = steps_of(rec, NULL);
        assert_int_equal(steps.n, 12);
        mr_steps_free(&steps);
        mr_recording_close(rec);
        unlink(PATH);
    }
}

/* A first step that compiles is long, and yet a step. */
static void long_first_step(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_range(&m, "step", 1000, 2000000000);
    make_kernel(&m, 7, "k", 1900000000, 1990000000);
    make_steps(&m, 2000100000, 30);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.n, 31);
    assert_int_equal(steps.n_pauses, 0);
    assert_int_equal(steps.at[0].end_ns, 2000100000);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/* A pause is none of the steps, however few they are; a loader's bursts of batches, even twenty at
 * a time, are no pauses. */
static void pauses(void **state)
{
    static const struct {
        uint64_t steps, times, wait_ns, n_pauses;
    } cases[] = {{20, 2, 5000000000, 1},
                 {3, 2, 150000000, 1},
                 {20, 6, 5000000000, 0},
                 {150, 6, 5000000000, 5},
                 {20, 2, 50000000, 0}};
    (void)state;
    for (size_t c = 0; c < MR_COUNT(cases); c++) {
        struct make m;
        make_begin(&m, PATH);
        uint64_t at = 1000;
        for (uint64_t i = 0; i < cases[c].times; i++)
            at = make_steps(&m, at + (i ? cases[c].wait_ns : 0), cases[c].steps);
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct mr_steps steps = steps_of(rec, NULL);
        assert_int_equal(steps.n, cases[c].steps * cases[c].times);
        assert_int_equal(steps.n_pauses, cases[c].n_pauses);
        assert_true(steps.pause_ns >= cases[c].n_pauses * cases[c].wait_ns);
        assert_true(steps.n_pauses > 0 || steps.pause_ns == 0);
        mr_steps_free(&steps);
        mr_recording_close(rec);
        unlink(PATH);
    }
}

/* Nobody's name: the outermost that repeat, beginning with the first of a step; not the epochs
 * around, nor what is inside. */
static void by_regular_ranges(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 30; i++) {
        uint64_t at = 1000 + i * 1000000;
        make_range(&m, "alpha", at, at + 300000);
        make_range(&m, "beta", at + 310000, at + 900000);
        for (uint64_t k = 0; k < 4; k++) {
            make_range(&m, "layer", at + 320000 + k * 100000, at + 400000 + k * 100000);
            make_kernel(&m, 7, "k", at + 330000 + k * 100000, at + 390000 + k * 100000);
        }
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_RANGE);
    assert_int_equal(steps.n, 30);
    assert_int_equal(steps.at[0].start_ns, 1000);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/*
 * A compiler's passes repeat, are outermost, long and regular, and even run kernels, to choose
 * among them; a library's own ranges repeat without any. Steps launch the same kernels each time.
 */
static void not_by_compilation(void **state)
{
    struct make m;
    char name[32];
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 6; i++) {
        uint64_t at = 1000 + i * 50000000;
        make_range(&m, "Pass:fusion", at, at + 40000000);
        for (uint64_t k = 0; k <= i; k++) {
            snprintf(name, sizeof name, "candidate_%d", (int)(i * 10 + k));
            make_kernel(&m, 7, name, at + 1000000 + k * 300000, at + 1200000 + k * 300000);
        }
    }
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t at = 310000000 + i * 1000000;
        make_range(&m, "tick", at, at + 5000);
        make_range(&m, "Module:jit_step", at + 600000, at + 700000);
        make_kernel(&m, 7, "gemm", at + 650000, at + 690000);
        make_kernel(&m, 7, "update", at + 690000, at + 699000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_RANGE);
    assert_int_equal(steps.n, 100);
    assert_true(steps.at[0].start_ns >= 310000000);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/* A name that frameworks use, of a thread that gives the device nothing, before the device is used
 * at all: no steps of the device. */
static void not_by_idle_names(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 10; i++)
        make_range(&m, "batch", 1000 + i * 1000, 1800 + i * 1000);
    for (uint64_t i = 0; i < 30; i++) {
        make_copy(&m, 7, 1000000 + i * 100000, 1010000 + i * 100000, 1 << 20, MR_COPY_H2D,
                  MR_MEM_PINNED);
        make_kernel(&m, 7, "k", 1020000 + i * 100000, 1060000 + i * 100000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_PERIOD);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Layers repeat within a step, a log is written each tenth: the period is the step's, with copies
 * and without. */
static void by_period(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        struct make m;
        uint64_t at = 1000000;
        make_begin(&m, PATH);
        for (uint64_t i = 0; i < 40; i++) {
            if (copies)
                make_copy(&m, 7, at, at + 100000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
            at += 110000;
            for (int k = 0; k < 12; k++) {
                make_kernel(&m, 7, "gemm", at, at + 20000);
                make_kernel(&m, 7, "relu", at + 21000, at + 30000);
                at += 40000;
            }
            make_kernel(&m, 7, "loss", at, at + 20000);
            make_kernel(&m, 7, "adam", at + 30000, at + 60000);
            at += 100000 + test_u64((uint32_t)i) % 30000;
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct mr_steps steps = steps_of(rec, NULL);
        assert_int_equal(steps.method, MR_STEPS_PERIOD);
        assert_true(steps.n >= 39 && steps.n <= 40);
        assert_true(steps.confidence > 0.5 && steps.confidence < 0.95);
        struct mr_table *table = report(rec, NULL);
        check_sums(table);
        mr_table_destroy(table);
        mr_steps_free(&steps);
        mr_recording_close(rec);
        unlink(PATH);
    }
}

/* A loader's threads copy and cast whenever they are ready, several batches ahead or none: the
 * launching thread has the period. */
/* A host that has given the device all steps before the second one is done: its ranges are not the
 * device's steps; where it waits in each for the device, they are. A range that the caller names
 * stays. */
static void host_runs_ahead(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct make m;
        make_begin(&m, PATH);
        for (uint64_t i = 0; i < 40; i++) {
            uint64_t at = waits ? 10000000 + i * 20000000 : 10000000 + i * 5000;
            uint32_t call;
            make_range(&m, "step", at, at + 4000);
            call = make_call(&m, "cudaLaunchKernel_v7000", at + 1000, at + 3000);
            make_kernel_of(&m, call, 7, "busy", 10004000 + i * 20000000, 30003000 + i * 20000000);
        }
        make_end(&m);
        struct mr_recording *rec = make_load(PATH);
        struct mr_steps steps = steps_of(rec, NULL);
        assert_int_equal(steps.method, waits ? MR_STEPS_KNOWN : MR_STEPS_PERIOD);
        assert_true(steps.n >= 39);
        for (uint64_t i = 0; i + 1 < steps.n; i++)
            assert_int_equal(steps.at[i].end_ns - steps.at[i].start_ns, 20000000);
        mr_steps_free(&steps);
        steps = steps_of(rec, "step");
        assert_int_equal(steps.method, MR_STEPS_NAMED);
        mr_steps_free(&steps);
        mr_recording_close(rec);
    }
}

static void by_period_of_a_thread(void **state)
{
    struct make m;
    uint32_t random = 0;
    char name[16];
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t at = 1000000 + i * 1000000;
        m.tid = 100;
        for (uint64_t k = 0; k < 12; k++) {
            snprintf(name, sizeof name, "k%d", (int)k);
            make_kernel(&m, 7, name, at + k * 50000, at + k * 50000 + 40000);
        }
        for (uint64_t n = test_u64(++random) % 12; n-- > 0;) {
            uint64_t start = at + test_u64(++random) % 900000;
            m.tid = 101 + (uint32_t)(n % 3);
            make_copy(&m, 13, start, start + 3000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
            make_kernel(&m, 13, test_u64(++random) % 2 ? "cast" : "pad", start + 3000,
                        start + 5000);
        }
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_PERIOD);
    assert_int_equal(steps.n, 40);
    assert_non_null(strstr(steps.how, "that one thread launches: 12 operations"));
    assert_int_equal(steps.at[9].end_ns - steps.at[9].start_ns, 1000000);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Work that repeats but takes no time has no steps: not by its period, nor by that of what one
 * thread launches. */
static void no_steps_without_time(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (int i = 0; i < 41; i++) {
        m.tid = i < 40 ? 100 : 101;
        make_kernel(&m, 7, "k", 1000000, 1000000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_NONE);
    assert_int_equal(steps.n, 0);
    mr_steps_free(&steps);
    mr_recording_close(rec);
    unlink(PATH);
}

static void no_steps(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint32_t i = 0; i < 300; i++) { /* no name comes twice */
        char name[16];
        snprintf(name, sizeof name, "k%x", (unsigned)test_u64(i) & 0xffffff);
        make_kernel(&m, 7, name, 100000 + i * 10000, 104000 + i * 10000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.method, MR_STEPS_NONE);
    assert_int_equal(steps.n, 0);
    mr_steps_free(&steps);
    struct mr_table *table = report(rec, NULL);
    assert_int_equal(mr_table_rows(table), 0);
    assert_non_null(strstr(mr_table_note(table), "no steps were found"));
    mr_table_destroy(table);
    mr_recording_close(rec);
    unlink(PATH);
}

static void odd_ranges(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_range(&m, "step", 1000,
               500000); /* crossing, empty, open, inside its like: none may upset anything */
    make_range(&m, "cross", 300000, 900000);
    make_range(&m, "step", 1000000, 1000000);
    make_range(&m, "step", 1000000, 1900000);
    make_range(&m, "step", 1100000, 1200000);
    make_range(&m, "step", 2000000, 0);
    make_range_of(&m, "dom", MR_RANGE_MARK, "step", 2100000, 0);
    make_range_of(&m, "dom", MR_RANGE_START_END, "step", 100000, 2500000);
    make_kernel(&m, 7, "a", 100000, 100000);
    make_kernel(&m, 7, "a", 200000, 1500000);
    make_copy(&m, 8, 1400000, 2200000, 1000, MR_COPY_H2D, MR_MEM_PINNED);
    make_kernel(&m, 7, "a", 2300000, 2400000);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_steps steps = steps_of(rec, NULL);
    assert_int_equal(steps.n, 3);
    mr_steps_free(&steps);
    struct mr_table *table = report(rec, NULL);
    check_sums(table);
    mr_table_destroy(table);
    struct mr_report_opts opts;
    opts = (struct mr_report_opts){.size = sizeof opts};
    opts.step = "step@dom";
    table = report(rec, &opts);
    assert_int_equal(mr_table_rows(table), 5); /* one step: four sums of it, itself */
    mr_table_destroy(table);
    opts.step = "dom@step";
    table = report(rec, &opts);
    assert_int_equal(mr_table_rows(table), 5);
    check_sums(table);
    assert_int_equal(cell(table, 4, "Copy Hidden"), 100000);
    assert_int_equal(cell(table, 4, "Copy Exposed"), 700000);
    mr_table_destroy(table);
    mr_recording_close(rec);
    unlink(PATH);
}

/* The autograd thread launches while the main thread waits for it: that wait is not to blame, its
 * own one is. */
static void blame(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t at = 1000000 + i * 1000000;
        m.tid = 100;
        make_range(&m, "step", at, at + 990000);
        make_range(&m, "load", at + 10000, at + 210000);
        make_os(&m, "poll", at + 20000, at + 200000, 0);
        make_kernel(&m, 7, "forward", at + 300000, at + 500000);
        make_os(&m, "pthread_cond_wait", at + 310000, at + 900000, 0);
        m.tid = 101;
        make_os(&m, "pthread_cond_wait", at, at + 450000, 0);
        make_call(&m, "cudaMalloc_v3020", at + 500000, at + 560000);
        make_kernel(&m, 7, "backward", at + 600000, at + 900000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_table *table = report(rec, NULL);
    check_sums(table);
    const char *why = text(table, 7, "While Idle");
    assert_non_null(strstr(why, "load: poll"));
    assert_non_null(strstr(why, "cudaMalloc"));
    assert_null(strstr(why, "pthread_cond_wait"));
    assert_int_equal(cell(table, 7, "Idle in OS Calls"), 180000);
    mr_table_destroy(table);
    mr_recording_close(rec);
    unlink(PATH);
}

static void shift(void **state)
{
    (void)state;
    struct loop l = loop_plain();
    struct mr_recording *a = loop_record(PATH, &l, NULL);
    l.at_ns += 987654321;
    struct mr_recording *b = loop_record(PATH ".b", &l, NULL);
    struct mr_table *x = report(a, NULL), *y = report(b, NULL);
    assert_int_equal(mr_table_rows(x), mr_table_rows(y));
    for (uint64_t r = 0; r < mr_table_rows(x); r++)
        for (uint32_t c = 0; c < mr_table_columns(x); c++) {
            struct mr_cell p = mr_table_cell(x, r, c), q = mr_table_cell(y, r, c);
            int64_t moved = strcmp(mr_table_column(x, c)->name, "Start") == 0 ? 987654321 : 0;
            assert_int_equal(p.integer + moved, q.integer);
            assert_string_equal(p.text ? p.text : "", q.text ? q.text : "");
        }
    mr_table_destroy(x);
    mr_table_destroy(y);
    mr_recording_close(a);
    mr_recording_close(b);
    unlink(PATH);
    unlink(PATH ".b");
}

/* ---- a million operations, made by hand ---- */

#define MANY 1000000

static void many(void **state)
{
    static const char *names[] = {
        "", "gemm", "relu", "loss", "cudaLaunchKernel", "cudaMemcpyAsync", "python3"};
    struct mr_rec_thread thread = {.process = 0, .tid = 7};
    struct mr_rec_process process = {.pid = 7, .name = 6, .command = 6};
    struct mr_recording rec = {.path = (char *)"by hand",
                               .loaded = true,
                               .strings = names,
                               .n_strings = 7,
                               .threads = &thread,
                               .n_threads = 1,
                               .processes = &process,
                               .n_processes = 1,
                               .n_ops = MANY,
                               .n_apis = MANY,
                               .traced = MR_TRACE_CUDA};
    (void)state;
    rec.ops = calloc(MANY, sizeof *rec.ops);
    rec.apis = calloc(MANY, sizeof *rec.apis);
    rec.op_of_api = calloc(MANY, sizeof *rec.op_of_api);
    assert_true(rec.ops && rec.apis && rec.op_of_api);
    for (uint32_t i = 0; i < MANY; i++) {
        bool copy = i % 100 == 0;
        rec.apis[i] = (struct mr_rec_api){.start_ns = i * 5000ull,
                                          .end_ns = i * 5000ull + 3000,
                                          .name = copy ? 5 : 4,
                                          .correlation = i + 1,
                                          .class = copy ? MR_CALL_COPY : MR_CALL_LAUNCH,
                                          .first_op = i,
                                          .n_ops = 1};
        rec.op_of_api[i] = i;
        rec.ops[i] = (struct mr_rec_op){.start_ns = i * 5000ull + 4000,
                                        .end_ns = i * 5000ull + 7000,
                                        .name = copy            ? 0
                                                : i % 100 == 99 ? 3
                                                                : 1 + i % 2,
                                        .api = i,
                                        .context = 1,
                                        .stream = 7,
                                        .kind = copy ? MR_OP_COPY : MR_OP_KERNEL,
                                        .bytes = copy ? 1 << 20 : 0,
                                        .copy_kind = copy ? MR_COPY_H2D : 0,
                                        .src = MR_MEM_PINNED,
                                        .dst = MR_MEM_DEVICE};
    }
    rec.end_ns = rec.ops[MANY - 1].end_ns;
    uint64_t begin = mr_time_ns();
    struct mr_table *table = report(&rec, NULL);
    struct mr_advice *advice = NULL;
    assert_int_equal(mr_analyze(&rec, NULL, &advice), 0);
    printf("10^6 operations: %.2f s\n", (double)(mr_time_ns() - begin) / 1e9);
    assert_true(mr_table_rows(table) >= MANY / 100 && mr_table_rows(table) <= MANY / 100 + 4);
    check_sums(table);
    mr_advice_destroy(advice);
    mr_table_destroy(table);
    free(rec.ops);
    free(rec.apis);
    free(rec.op_of_api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_known_name),
        cmocka_unit_test(names_with_numbers),
        cmocka_unit_test(python_ranges),
        cmocka_unit_test(pauses),
        cmocka_unit_test(last_turn),
        cmocka_unit_test(last_turn_after_a_pause),
        cmocka_unit_test(slow_last_load),
        cmocka_unit_test(queue_ends_in_last_turn),
        cmocka_unit_test(long_first_step),
        cmocka_unit_test(windows),
        cmocka_unit_test(devices),
        cmocka_unit_test(named_in_one_process),
        cmocka_unit_test(waiting_calls),
        cmocka_unit_test(by_regular_ranges),
        cmocka_unit_test(not_by_compilation),
        cmocka_unit_test(not_by_idle_names),
        cmocka_unit_test(by_period),
        cmocka_unit_test(by_period_of_a_thread),
        cmocka_unit_test(host_runs_ahead),
        cmocka_unit_test(no_steps),
        cmocka_unit_test(no_steps_without_time),
        cmocka_unit_test(odd_ranges),
        cmocka_unit_test(blame),
        cmocka_unit_test(shift),
        cmocka_unit_test(many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
