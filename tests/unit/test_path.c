/*
 * White-box. The critical path: without a gap and as long as the steps, on recordings of chance, of
 * loops and of real programs; and right, by running a program again with one part of it shortened.
 */
#include "chance.h"
#include "fixture.h"
#include "loop_sim.h"

#include "recording/path.h"

#include <unistd.h>

#define PATH "test_path.sqlite"

/* ---- one piece after the other ---- */

static void check_path(const struct mr_look *look, const struct mr_path *path)
{
    uint64_t at_ns = look->in.n > 0 ? look->in.at[0].start_ns : 0, all[MR_N_PATH] = {0};
    char name[64];
    for (uint64_t i = 0; i < path->n; i++) {
        const struct mr_path_piece *p = &path->at[i];
        assert_int_equal(p->start_ns, at_ns);
        assert_true(p->end_ns > p->start_ns && p->class < MR_N_PATH);
        assert_true(p->op == MR_NONE || p->op < look->rec->n_ops);
        if (p->class >= MR_N_IDLE) { /* work of the device, while it ran */
            const struct mr_rec_op *op = &look->rec->ops[p->op];
            assert_true(op->start_ns <= p->start_ns && p->end_ns <= op->end_ns);
        }
        assert_true(strlen(mr_path_name(look->rec, p, name, sizeof name)) > 0);
        at_ns = p->end_ns;
    }
    assert_int_equal(at_ns, look->in.n > 0 ? look->in.at[look->in.n - 1].end_ns : 0);
    for (uint64_t i = look->n_warm; i < look->steps.n; i++) {
        const struct mr_interval *step = &look->steps.at[i];
        uint64_t ns[MR_N_PATH] = {0}, sum = 0;
        mr_path_add_up(path, step->start_ns, step->end_ns, ns);
        for (int c = 0; c < MR_N_PATH; c++) {
            sum += ns[c];
            all[c] += ns[c];
        }
        assert_int_equal(sum, step->end_ns - step->start_ns);
    }
    /* no more of the device's work than it did */
    assert_true(all[MR_PATH_COMPUTE] + all[MR_PATH_COPY] <= mr_intervals_measure(&look->busy));
}

static void check_places(struct mr_recording *rec)
{
    struct mr_place *places = NULL;
    uint32_t n = 0;
    assert_int_equal(mr_places_find(rec, &places, &n), 0);
    for (uint32_t i = 0; i < n; i++) {
        struct mr_look look;
        struct mr_data_waits data;
        struct mr_path path;
        assert_int_equal(mr_look_make(rec, &places[i], NULL, i % 2, &look), 0);
        assert_int_equal(mr_data_waits_find(&look, NULL, &data), 0);
        assert_int_equal(mr_path_find(&look, &data, &path), 0);
        check_path(&look, &path);
        mr_path_free(&path);
        mr_data_waits_free(&data);
        mr_look_free(&look);
    }
    free(places);
}

/* The report's classes add up to the step, and so do each step's. */
static void check_tables(struct mr_recording *rec)
{
    struct mr_table *table = NULL;
    double share = 0;
    assert_int_equal(mr_report_make(rec, "critical_path", NULL, &table), 0);
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (strcmp(mr_table_cell(table, r, 3).text, "all") == 0)
            share += mr_table_cell(table, r, 5).real;
    assert_true(mr_table_rows(table) == 0 || share > 99.999);
    assert_true(share < 100.001 || strstr(mr_table_note(table), "device"));
    mr_table_destroy(table);
    assert_int_equal(mr_report_make(rec, "critical_path_steps", NULL, &table), 0);
    for (uint64_t r = 0; r < mr_table_rows(table); r++) {
        int64_t sum = 0;
        for (uint32_t c = 5; c < mr_table_columns(table); c++)
            sum += mr_table_cell(table, r, c).integer;
        assert_int_equal(sum, mr_table_cell(table, r, 4).integer);
    }
    mr_table_destroy(table);
}

static void check(struct mr_recording *rec)
{
    check_places(rec);
    check_tables(rec);
    mr_recording_close(rec);
    unlink(PATH);
}

static void by_chance(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 120; round++) {
        chance_record(PATH, round);
        check(make_load(PATH));
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
        check(loop_record(PATH, &l, NULL));
    }
}

static void real_programs(void **state)
{
    static const char *const fixtures[] = {"mnist_w0", "mnist_w2", "mnist_w2pin", "cupy"};
    (void)state;
    for (size_t i = 0; i < MR_COUNT(fixtures); i++) {
        check(fixture(PATH, fixtures[i], NULL));
        check(fixture(PATH, fixtures[i], "DELETE FROM OSRT_API"));
        check(fixture(PATH, fixtures[i], "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME"));
    }
}

/* ---- a program that is run again ---- */

#define STEPS     8
#define MOST_ACTS 400
#define RETURN_NS 4000  /* of a call after what it waited for */
#define BLUR_NS   10001 /* what depends on an event is only known if it waits longer */

enum act_kind { OWN, LAUNCH, STREAM_SYNC, DEVICE_SYNC, READ_BACK, MARK };

struct act {
    enum act_kind kind;
    uint32_t stream;
    uint64_t host_ns, work_ns;
    int event; /* LAUNCH: another act whose work it waits for, too; -1 */
    uint64_t start_ns, end_ns, from_ns, to_ns; /* when it ran: on the host, on the device */
};

struct program {
    struct act act[MOST_ACTS];
    int n;
};

static struct program program_of(uint32_t number)
{
    struct program p = {.n = 0};
    uint32_t r = number * 5000;
    for (int step = 0; step < STEPS; step++) {
        p.act[p.n++] = (struct act){.kind = MARK, .event = -1};
        for (int i = 0; i < 40; i++) {
            struct act a = {.stream = 7 + (uint32_t)(test_u64(r + 1) % 3), .event = -1};
            uint64_t what = test_u64(r) % 20;
            a.kind = what < 6     ? OWN
                     : what < 17  ? LAUNCH
                     : what == 17 ? STREAM_SYNC
                     : what == 18 ? DEVICE_SYNC
                                  : READ_BACK;
            a.host_ns = a.kind == LAUNCH ? 3000 + test_u64(r + 2) % 20000
                        : a.kind == OWN  ? test_u64(r + 2) % (number % 2 ? 400000 : 40000) + 1000
                                         : RETURN_NS;
            a.work_ns = 20000 + test_u64(r + 3) % (number % 3 ? 200000 : 40000);
            if (a.kind == LAUNCH && test_u64(r + 4) % 4 == 0)
                for (int k = p.n - 1; k >= 0 && a.event < 0; k--)
                    if (p.act[k].kind == LAUNCH && p.act[k].stream != a.stream)
                        a.event = k;
            p.act[p.n++] = a;
            r += 6;
        }
    }
    p.act[p.n++] = (struct act){.kind = MARK, .event = -1};
    return p;
}

/* Returns when the last step ended. */
static uint64_t run(struct program *p)
{
    uint64_t host = 1000000, free_ns[16] = {0}, last = 0;
    for (int i = 0; i < p->n; i++) {
        struct act *a = &p->act[i];
        uint64_t *stream = &free_ns[a->stream];
        a->start_ns = host;
        if (a->kind == OWN || a->kind == LAUNCH)
            host += a->host_ns;
        if (a->kind == LAUNCH || a->kind == READ_BACK) {
            a->from_ns = loop_max(host, *stream);
            if (a->event >= 0)
                a->from_ns = loop_max(a->from_ns, p->act[a->event].to_ns);
            *stream = a->to_ns = a->from_ns + a->work_ns;
            last = loop_max(last, a->to_ns);
        }
        if (a->kind == STREAM_SYNC || a->kind == READ_BACK)
            host = loop_max(host, *stream) + a->host_ns;
        if (a->kind == DEVICE_SYNC)
            host = loop_max(host, last) + a->host_ns;
        a->end_ns = host;
    }
    return host;
}

/* A wait for an event shows in the times: longer than starts take, and nothing else ended then. */
static bool is_clear(const struct program *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct act *a = &p->act[i];
        uint64_t ready = a->end_ns;
        if (a->event < 0)
            continue;
        for (int k = 0; k < i; k++)
            if (p->act[k].work_ns && p->act[k].stream == a->stream)
                ready = loop_max(ready, p->act[k].to_ns);
        if (a->from_ns > ready && a->from_ns < ready + BLUR_NS)
            return false;
        for (int k = 0; k < p->n && a->from_ns > ready; k++)
            if (k != a->event && (p->act[k].kind == LAUNCH || p->act[k].kind == READ_BACK) &&
                p->act[k].to_ns <= a->from_ns && p->act[k].to_ns + BLUR_NS > a->from_ns)
                return false;
    }
    return true;
}

static void record(const struct program *p)
{
    struct make m;
    uint64_t mark = 0;
    make_begin(&m, PATH);
    make_device(&m, 0, "Some GPU");
    for (int i = 0; i < p->n; i++) {
        const struct act *a = &p->act[i];
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        if (a->kind == MARK && mark)
            make_range(&m, "step", mark, a->start_ns);
        if (a->kind == MARK)
            mark = a->start_ns;
        if (a->kind == LAUNCH)
            make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", a->start_ns, a->end_ns),
                           a->stream, name, a->from_ns, a->to_ns);
        if (a->kind == READ_BACK)
            make_copy_of(&m, make_call(&m, "cudaMemcpy_v3020", a->start_ns, a->end_ns), a->stream,
                         a->from_ns, a->to_ns, 4, MR_COPY_D2H, MR_MEM_PAGEABLE);
        if (a->kind == STREAM_SYNC)
            make_sync(&m, a->stream, a->start_ns, a->end_ns);
        if (a->kind == DEVICE_SYNC)
            make_call(&m, "cudaDeviceSynchronize_v3020", a->start_ns, a->end_ns);
    }
    make_end(&m);
}

/* The time on the path of an act: of its work, or of the host in it. */
static uint64_t on_path(const struct mr_look *look, const struct mr_path *path, const struct act *a,
                        bool work)
{
    uint64_t ns = 0, from = work ? a->from_ns : a->start_ns, to = work ? a->to_ns : a->end_ns;
    for (uint64_t i = mr_path_at(path, from); i < path->n && path->at[i].start_ns < to; i++) {
        const struct mr_path_piece *p = &path->at[i];
        if (work != (p->op != MR_NONE))
            continue;
        const struct mr_rec_op *op = work ? &look->rec->ops[p->op] : NULL;
        if (op && (op->start_ns != a->from_ns || op->end_ns != a->to_ns || op->stream != a->stream))
            continue;
        ns += MR_MIN(p->end_ns, to) - MR_MAX(p->start_ns, from);
    }
    return ns;
}

struct tally {
    int n_on, n_off;
};

/* Shortened to nothing where it is off the path the end stays; by 1 ns where it is on it the end
 * comes 1 ns sooner. */
static void try_act(const struct program *p, int i, bool work, const struct mr_look *look,
                    const struct mr_path *path, uint64_t end, struct tally *tally)
{
    const struct act *a = &p->act[i];
    static struct program other;
    uint64_t ns = on_path(look, path, a, work), whole = work ? a->work_ns : a->host_ns;
    if (a->start_ns < look->in.at[0].start_ns || (!work && a->kind != OWN && a->kind != LAUNCH))
        return;
    other = *p;
    uint64_t *length = work ? &other.act[i].work_ns : &other.act[i].host_ns;
    *length = ns > 0 ? *length - 1 : 1;
    uint64_t sooner = run(&other);
    if (ns == 0 && sooner != end)
        fail_msg("act %d (%s) is off the path, but without it the end is %d ns sooner", i,
                 work ? "work" : "host", (int)(end - sooner));
    if (ns == whole && sooner + 1 != end)
        fail_msg("act %d (%s) is on the path, but 1 ns less is %d ns sooner", i,
                 work ? "work" : "host", (int)(end - sooner));
    assert_true(ns == 0 || ns == whole);
    tally->n_on += ns > 0;
    tally->n_off += ns == 0;
}

static void try_program(struct program *p, uint64_t end, struct tally *tally)
{
    struct mr_place *places = NULL;
    struct mr_look look;
    struct mr_data_waits data;
    struct mr_path path;
    uint32_t n = 0;
    record(p);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_places_find(rec, &places, &n), 0);
    assert_int_equal(mr_look_make(rec, &places[0], NULL, false, &look), 0);
    assert_int_equal(mr_data_waits_find(&look, NULL, &data), 0);
    assert_int_equal(mr_path_find(&look, &data, &path), 0);
    check_path(&look, &path);
    assert_int_equal(look.n_steps, STEPS - 1);
    assert_int_equal(look.in.at[look.in.n - 1].end_ns, end);
    for (int i = 0; i < p->n; i++) {
        if (p->act[i].kind != MARK)
            try_act(p, i, false, &look, &path, end, tally);
        if (p->act[i].kind == LAUNCH || p->act[i].kind == READ_BACK)
            try_act(p, i, true, &look, &path, end, tally);
    }
    mr_path_free(&path);
    mr_data_waits_free(&data);
    mr_look_free(&look);
    free(places);
    mr_recording_close(rec);
    unlink(PATH);
}

static void replayed(void **state)
{
    struct tally tally = {0, 0};
    int n = 0;
    (void)state;
    for (uint32_t number = 0; number < 150; number++) {
        static struct program p;
        p = program_of(number);
        uint64_t end = run(&p);
        if (!is_clear(&p))
            continue;
        n++;
        try_program(&p, end, &tally);
    }
    printf("%d programs, %d acts on the path, %d off it\n", n, tally.n_on, tally.n_off);
    assert_true(n >= 20 && tally.n_on > 1000 && tally.n_off > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_chance),
        cmocka_unit_test(loops),
        cmocka_unit_test(real_programs),
        cmocka_unit_test(replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
