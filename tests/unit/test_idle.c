/*
 * White-box. Classes of idle time: that they add up, on recordings of chance, of loops and of real
 * programs; and that each case gets the class that it is made for.
 */
#include "chance.h"
#include "fixture.h"
#include "loop_sim.h"

#include "recording/comm.h"
#include "recording/idle.h"

#include <unistd.h>

#define PATH "test_idle.sqlite"

static const char *const fixtures[] = {"mnist_w0", "mnist_w2", "mnist_w2pin", "cupy"};

static struct mr_table *report(struct mr_recording *rec, const char *name)
{
    struct mr_table *table = NULL;
    if (mr_report_make(rec, name, NULL, &table) < 0)
        fail_msg("%s", mr_last_error());
    return table;
}

static struct mr_cell cell(const struct mr_table *table, uint64_t row, const char *name)
{
    for (uint32_t c = 0; c < mr_table_columns(table); c++)
        if (strcmp(mr_table_column(table, c)->name, name) == 0)
            return mr_table_cell(table, row, c);
    fail_msg("no column %s", name);
    return (struct mr_cell){0};
}

/* The total of a class in the first place of the table. */
static uint64_t total(const struct mr_table *table, const char *class)
{
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (strcmp(cell(table, r, "Class").text, class) == 0)
            return (uint64_t)cell(table, r, "Total").integer;
    fail_msg("no row %s", class);
    return 0;
}

/* Pieces are in order, do not overlap, and are the idle time, all of it. */
static void check_pieces(const struct mr_look *look, const struct mr_idle *idle)
{
    struct mr_intervals all = {0};
    uint64_t ns[MR_N_IDLE] = {0}, sum = 0;
    for (uint64_t i = 0; i < idle->n; i++) {
        const struct mr_idle_piece *p = &idle->at[i];
        assert_true(p->end_ns > p->start_ns && p->class < MR_N_IDLE);
        assert_true(i == 0 || p->start_ns >= idle->at[i - 1].end_ns);
        assert_true(p->call == MR_NONE || p->call < look->rec->n_apis);
        mr_intervals_add(&all, p->start_ns, p->end_ns);
    }
    mr_intervals_unite(&all);
    assert_int_equal(all.n, look->idle.n);
    for (size_t i = 0; i < all.n; i++)
        assert_memory_equal(&all.at[i], &look->idle.at[i], sizeof all.at[i]);
    mr_idle_add_up(idle, 0, UINT64_MAX, ns);
    for (int i = 0; i < MR_N_IDLE; i++)
        sum += ns[i];
    assert_int_equal(sum, mr_intervals_measure(&look->idle));
    mr_intervals_free(&all);
}

static void check_places(struct mr_recording *rec)
{
    struct mr_place *places = NULL;
    uint32_t n = 0;
    assert_int_equal(mr_places_find(rec, &places, &n), 0);
    for (uint32_t i = 0; i < n; i++) {
        struct mr_look look;
        struct mr_data_waits data;
        struct mr_idle idle;
        assert_int_equal(mr_look_make(rec, &places[i], NULL, i % 2, &look), 0);
        assert_int_equal(mr_data_waits_find(&look, NULL, &data), 0);
        assert_int_equal(mr_idle_sort(&look, &data, &idle), 0);
        check_pieces(&look, &idle);
        /* what is waited for data is that, whatever else holds */
        uint64_t ns[MR_N_IDLE] = {0};
        mr_idle_add_up(&idle, 0, UINT64_MAX, ns);
        assert_int_equal(ns[MR_IDLE_LOADER], mr_intervals_common(&look.idle, &data.at));
        mr_idle_free(&idle);
        mr_data_waits_free(&data);
        mr_look_free(&look);
    }
    free(places);
}

/* The same figure of step_breakdown, for the place of a row; without steps it has none. */
static void check_other(const struct mr_table *idle, uint64_t row, const struct mr_table *steps,
                        const char *column)
{
    for (uint64_t r = 0; r < mr_table_rows(steps); r++)
        if (strcmp(cell(steps, r, "Step").text, "sum") == 0 &&
            cell(steps, r, "PID").integer == cell(idle, row, "PID").integer &&
            cell(steps, r, "Device").integer == cell(idle, row, "Device").integer)
            assert_int_equal(cell(steps, r, column).integer, cell(idle, row, "Total").integer);
}

/* The table: classes to idle, parts to the step, and both as in step_breakdown. */
static void check_tables(struct mr_recording *rec)
{
    struct mr_table *idle = report(rec, "idle_breakdown"), *steps = report(rec, "step_breakdown");
    int64_t sum = 0;
    for (uint64_t r = 0; r < mr_table_rows(idle); r++) {
        const char *class = cell(idle, r, "Class").text;
        int64_t ns = cell(idle, r, "Total").integer;
        bool is_idle = strcmp(class, "idle") == 0, is_step = strcmp(class, "step") == 0;
        if (is_idle || is_step) {
            assert_int_equal(sum, ns);
            check_other(idle, r, steps, is_idle ? "Idle" : "Duration");
        }
        sum = is_step ? 0 : is_idle ? ns : sum + ns;
    }
    assert_true(mr_table_rows(idle) == 0 || sum == 0);
    mr_table_destroy(idle);
    mr_table_destroy(steps);
}

static void check(struct mr_recording *rec)
{
    check_places(rec);
    check_tables(rec);
    mr_recording_close(rec);
    unlink(PATH);
}

/* ---- sums ---- */

static void real_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(fixtures); i++) {
        check(fixture(PATH, fixtures[i], NULL));
        check(fixture(PATH, fixtures[i], "DELETE FROM NVTX_EVENTS WHERE eventType = 59"));
        check(fixture(PATH, fixtures[i], "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME"));
        check(fixture(PATH, fixtures[i],
                      "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start % 3 = 0"));
    }
}

static void loops(void **state)
{
    (void)state;
    for (int bits = 0; bits < 64; bits++) {
        struct loop l = loop_plain();
        l.pageable = bits & 1;
        l.copy_stream = !(bits & 2);
        l.sync_each = bits & 4;
        l.graph = bits & 8;
        l.n_workers = bits & 16 ? 0 : 2;
        l.ranges = !(bits & 32);
        l.own_ns = (uint64_t)bits * 10000;
        l.n_small = (uint32_t)bits % 7;
        l.pin_ns = bits % 3 ? 0 : 50000;
        check(loop_record(PATH, &l, NULL));
    }
}

static void by_chance(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 120; round++) {
        chance_record(PATH, round);
        check(make_load(PATH));
    }
}

/* ---- one case each: twenty steps of 1 ms, kernels in the first 100 us ---- */

static void begin(struct make *m)
{
    make_begin(m, PATH);
    make_device(m, 0, "Some GPU");
}

/* The totals of a recording's classes, per step. */
static void classes(struct make *m, uint64_t ns[MR_N_IDLE])
{
    make_end(m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_table *table = report(rec, "idle_breakdown");
    for (int i = 0; i < MR_N_IDLE; i++)
        ns[i] = total(table, mr_idle_text((enum mr_idle_class)i)) / 19;
    mr_table_destroy(table);
    check(rec);
}

#define EACH_STEP(at)                                                                              \
    for (uint64_t at = 1000000; at < 21000000;                                                     \
         make_range(&m, "step", at, at + 1000000), at += 1000000)

/* A kernel launched at `call`, for 3 us. */
static void launch(struct make *m, uint64_t call, uint64_t start, uint64_t end)
{
    make_kernel_of(m, make_call(m, "cudaLaunchKernel_v7000", call, call + 3000), 7, "k", start,
                   end);
}

static void host_code_and_latency(void **state)
{
    struct make m;
    uint64_t ns[MR_N_IDLE];
    (void)state;
    begin(&m);
    EACH_STEP(at)
    launch(&m, at, at + 10000, at + 100000);
    classes(&m, ns);
    assert_int_equal(ns[MR_IDLE_HOST], 900000);        /* until the call */
    assert_int_equal(ns[MR_IDLE_LAUNCH], 3000 + 7000); /* the call, and latency after it */
}

static void read_back_and_restart(void **state)
{
    struct make m;
    uint64_t ns[MR_N_IDLE];
    (void)state;
    begin(&m);
    EACH_STEP(at)
    {
        launch(&m, at, at + 3000, at + 100000);
        /* 4 bytes: in the call for 500 us, of which the copy runs 1 */
        uint32_t call = make_call(&m, "cudaMemcpyAsync_v3020", at + 50000, at + 550000);
        make_copy_of(&m, call, 7, at + 500000, at + 501000, 4, MR_COPY_D2H, MR_MEM_PAGEABLE);
    }
    classes(&m, ns);
    assert_int_equal(ns[MR_IDLE_SYNC], 500000); /* 449 in it, the rest of its own time after */
    assert_int_equal(ns[MR_IDLE_HOST], 399000);
    assert_int_equal(ns[MR_IDLE_LAUNCH], 3000);
}

static void loader_before_all(void **state)
{
    struct make m;
    uint64_t ns[MR_N_IDLE];
    (void)state;
    begin(&m);
    EACH_STEP(at)
    {
        launch(&m, at, at + 3000, at + 100000);
        make_sync(&m, 7, at + 10000, at + 200000);
        make_range(&m, "load", at + 150000, at + 800000);
        make_os(&m, "poll", at + 160000, at + 850000, 0);
    }
    classes(&m, ns);
    assert_int_equal(ns[MR_IDLE_SYNC], 50000); /* the loader ends the restart, too */
    assert_int_equal(ns[MR_IDLE_LOADER], 650000);
    assert_int_equal(ns[MR_IDLE_OS], 50000);
    assert_int_equal(ns[MR_IDLE_HOST], 150000);
}

static void set_up_and_copies(void **state)
{
    struct make m;
    uint64_t ns[MR_N_IDLE];
    (void)state;
    begin(&m);
    EACH_STEP(at)
    {
        launch(&m, at, at + 3000, at + 100000);
        make_call(&m, "cudaMalloc_v3020", at + 200000, at + 250000);
        uint32_t call = make_call(&m, "cudaMemcpyAsync_v3020", at + 400000, at + 900000);
        make_copy_of(&m, call, 7, at + 600000, at + 890000, 1 << 20, MR_COPY_H2D, MR_MEM_PAGEABLE);
    }
    classes(&m, ns);
    assert_int_equal(ns[MR_IDLE_SETUP], 50000);
    assert_int_equal(ns[MR_IDLE_COPY], 200000 + 10000 + 100000); /* and its restart */
    assert_int_equal(ns[MR_IDLE_HOST], 100000 + 150000);
}

/* Of a burst with 10 us between the launches, also where one takes 90; what is longer is not. */
static void bursts(void **state)
{
    struct make m;
    uint64_t ns[MR_N_IDLE];
    (void)state;
    begin(&m);
    EACH_STEP(at)
    {
        uint64_t time = at;
        for (int i = 0; i < 10; i++, time += i == 5 ? 93000 : 13000)
            launch(&m, time, time + 4000, time + 6000);
    }
    classes(&m, ns);
    assert_int_equal(ns[MR_IDLE_LAUNCH], 8 * 11000 + 91000 + 4000);
    assert_int_equal(ns[MR_IDLE_HOST], 1000000 - 20000 - 8 * 11000 - 91000 - 4000);
}

/* Own code between launches of a slow thread is launch overhead, however long the gaps. */
static void slow_bursts(void **state)
{
    struct make m;
    uint64_t ns[MR_N_IDLE];
    (void)state;
    begin(&m);
    for (uint64_t at = 1000000, i = 0; i < 20; i++, at += 10000000) {
        for (uint64_t k = 0; k < 40; k++)
            launch(&m, at + k * 200000, at + k * 200000 + 4000, at + k * 200000 + 14000);
        make_range(&m, "step", at, at + 10000000);
    }
    classes(&m, ns);
    assert_int_equal(ns[MR_IDLE_LAUNCH], 39 * 190000 + 4000);
    assert_int_equal(ns[MR_IDLE_HOST], 10000000 - 40 * 10000 - 39 * 190000 - 4000);
}

static void communication(void **state)
{
    struct make m;
    (void)state;
    begin(&m);
    EACH_STEP(at)
    {
        launch(&m, at, at + 3000, at + 100000);
        make_range(&m, "nccl:all_reduce", at + 200000, at + 300000);
        make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", at + 310000, at + 320000), 9,
                       "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 320000, at + 420000);
        launch(&m, at + 370000, at + 380000, at + 450000);
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_table *table = report(rec, "idle_breakdown");
    assert_int_equal(total(table, "communication exposed"), 19 * 60000);
    assert_int_equal(total(table, "compute"), 19 * (97000 + 70000));
    assert_int_equal(total(table, "communication"), 19 * 100000);
    mr_table_destroy(table);
    check(rec);
    assert_true(mr_name_communicates("ncclKernel_AllReduce"));
    assert_true(mr_name_communicates("MPI_Allreduce") && mr_name_communicates("c10d::allreduce_"));
    assert_false(mr_name_communicates("gemm_nccl") || mr_name_communicates(""));
}

/* Two processes on one device: what the other one runs is no idle time of this one. */
static void shared_device(void **state)
{
    struct make m;
    (void)state;
    begin(&m);
    EACH_STEP(at)
    {
        launch(&m, at, at + 3000, at + 503000);
        launch(&m, at + 510000, at + 903000, at + 953000); /* given early, after the other's */
    }
    make_process(&m, 300, "python3 other.py");
    for (uint64_t at = 1000000; at < 21000000; at += 1000000)
        launch(&m, at + 400000, at + 403000, at + 803000);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    struct mr_table *table = report(rec, "idle_breakdown");
    assert_int_equal(total(table, "other processes"), 19 * 300000);
    assert_int_equal(total(table, "switch between processes"), 19 * 100000);
    assert_int_equal(total(table, "idle"), 19 * 150000);
    mr_table_destroy(table);
    check(rec);
}

/* Without a record of what the host did nothing is made up; the loader's ranges still count. */
static void unexplained(void **state)
{
    (void)state;
    struct mr_recording *rec = fixture(PATH, "mnist_w2",
                                       "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME;"
                                       "DELETE FROM OSRT_API");
    struct mr_table *table = report(rec, "idle_breakdown");
    assert_true(total(table, "waiting for the loader") > total(table, "idle") * 9 / 10);
    assert_int_equal(total(table, "unexplained"),
                     total(table, "idle") - total(table, "waiting for the loader"));
    mr_table_destroy(table);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Figures of real programs that were computed by SQL as well. */
static void known_figures(void **state)
{
    static const struct {
        const char *name;
        uint64_t idle_us, loader_us, copies_us, step_us;
    } truth[] = {{"mnist_w0", 12189, 11790, 199, 15351},
                 {"mnist_w2", 3985, 3621, 217, 7143},
                 {"mnist_w2pin", 3936, 3833, 88, 6900},
                 {"cupy", 113, 0, 143, 507}};
    (void)state;
    for (size_t i = 0; i < MR_COUNT(truth); i++) {
        struct mr_recording *rec = fixture(PATH, truth[i].name, NULL);
        struct mr_table *table = report(rec, "idle_breakdown");
        double n = i == 3 ? 59 : 19;
        assert_int_equal((uint64_t)((double)total(table, "idle") / n / 1e3 + 0.5),
                         truth[i].idle_us);
        assert_int_equal((uint64_t)((double)total(table, "waiting for the loader") / n / 1e3 + 0.5),
                         truth[i].loader_us);
        assert_int_equal((uint64_t)((double)total(table, "copy exposed") / n / 1e3 + 0.5),
                         truth[i].copies_us);
        assert_int_equal((uint64_t)((double)total(table, "step") / n / 1e3 + 0.5),
                         truth[i].step_us);
        mr_table_destroy(table);
        mr_recording_close(rec);
    }
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_programs),
        cmocka_unit_test(loops),
        cmocka_unit_test(by_chance),
        cmocka_unit_test(host_code_and_latency),
        cmocka_unit_test(read_back_and_restart),
        cmocka_unit_test(loader_before_all),
        cmocka_unit_test(set_up_and_copies),
        cmocka_unit_test(bursts),
        cmocka_unit_test(slow_bursts),
        cmocka_unit_test(communication),
        cmocka_unit_test(shared_device),
        cmocka_unit_test(unexplained),
        cmocka_unit_test(known_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
