/* White-box. Overlap of copies with compute, and the reason of each that had none. */
#include "loop_sim.h"

#include "recording/overlap.h"
#include <unistd.h>

#define PATH "test_overlap.sqlite"

static struct mr_table *report_from(const char *path, uint64_t from_ns)
{
    struct mr_report_opts opts;
    struct mr_table *table = NULL;
    struct mr_recording *rec = make_load(path);
    opts = (struct mr_report_opts){.size = sizeof opts, .from_ns = from_ns};
    if (mr_report_overlap.make(rec, &opts, &table) < 0)
        fail_msg("%s", mr_last_error());
    mr_recording_close(rec);
    unlink(path);
    return table;
}

static struct mr_table *report(const char *path)
{
    return report_from(path, 0);
}

/* [out] out_n: Count; UINT64_MAX in vain. */
static uint64_t time_of(const struct mr_table *table, const char *what, uint64_t *out_n)
{
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (strcmp(mr_table_cell(table, r, 2).text, what) == 0) {
            if (out_n)
                *out_n = (uint64_t)mr_table_cell(table, r, 6).integer;
            return (uint64_t)mr_table_cell(table, r, 3).integer;
        }
    return UINT64_MAX;
}

static uint64_t reasons(const struct mr_table *table)
{
    uint64_t n = 0;
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (strstr(mr_table_cell(table, r, 2).text, "copies"))
            n += (uint64_t)mr_table_cell(table, r, 6).integer;
    return n;
}

/* To the end from here: shares are of that time. */
static void a_window(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < 10; i++) {
        make_kernel(&m, 7, "k", i * 1000000, i * 1000000 + 600000);
        make_copy(&m, 13, i * 1000000 + 500000, i * 1000000 + 1000000, 1 << 20, MR_COPY_H2D,
                  MR_MEM_PINNED);
    }
    make_end(&m);
    struct mr_table *table = report_from(PATH, 8000000);
    uint64_t n = 0;
    assert_int_equal(time_of(table, "compute", &n), 1200000);
    assert_int_equal(n, 2);
    assert_int_equal(time_of(table, "H2D with compute", NULL), 200000);
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (strcmp(mr_table_cell(table, r, 2).text, "H2D") == 0) {
            assert_true(mr_table_cell(table, r, 4).real > 49.9 &&
                        mr_table_cell(table, r, 4).real < 50.1);
            assert_string_equal(mr_table_cell(table, r, 5).text, "window");
        }
    mr_table_destroy(table);
}

/* One copy of each sort, far apart. */
static void a_reason_each(void **state)
{
    struct make m;
    uint64_t n;
    (void)state;
    make_begin(&m, PATH);
    uint64_t at = 1000000; /* overlapped */
    make_copy(&m, 13, at + 100000, at + 200000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    make_kernel(&m, 7, "k", at, at + 500000);
    at = 2000000; /* pageable, though a wait follows */
    make_copy(&m, 13, at, at + 100000, 1 << 20, MR_COPY_H2D, MR_MEM_PAGEABLE);
    make_sync(&m, 13, at + 102000, at + 103000);
    at = 3000000; /* a wait directly after */
    make_copy(&m, 13, at, at + 110000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    make_sync(&m, 13, at + 1000, at + 111000);
    at = 4000000; /* blocking by name */
    make_copy_of(&m, make_launch(&m, "cudaMemcpy_v3020", at, at + 121000), 13, at, at + 120000,
                 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    at = 5000000; /* on the kernels' stream */
    make_copy(&m, 7, at, at + 130000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    make_kernel(&m, 7, "k", at + 200000, at + 300000);
    at = 6000000; /* behind another of its direction, which nothing could overlap */
    make_copy(&m, 14, at, at + 140000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    make_copy_of(&m, make_call(&m, "cudaMemcpyAsync_v3020", at + 2000, at + 5000), 13, at + 141000,
                 at + 300000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    at = 7000000; /* a kernel launched early begins when it has ended */
    make_copy(&m, 13, at, at + 160000, 1 << 20, MR_COPY_H2D, MR_MEM_PINNED);
    make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", at + 10000, at + 15000), 7, "k",
                   at + 161000, at + 400000);
    at = 8000000; /* back to the host, with nothing else to do */
    make_copy(&m, 13, at, at + 170000, 1 << 20, MR_COPY_D2H, MR_MEM_PINNED);
    make_end(&m);
    struct mr_table *table = report(PATH);
    assert_int_equal(time_of(table, "H2D copies: overlapped", &n), 100000);
    assert_int_equal(n, 1);
    assert_int_equal(time_of(table, "H2D copies exposed: pageable memory", &n), 100000);
    assert_int_equal(time_of(table, "H2D copies exposed: synchronizing call directly after", &n),
                     230000);
    assert_int_equal(n, 2);
    assert_int_equal(time_of(table, "H2D copies exposed: on a stream that runs kernels", &n),
                     130000);
    assert_int_equal(time_of(table, "H2D copies exposed: engine busy with the same direction", &n),
                     159000);
    assert_int_equal(time_of(table, "H2D copies exposed: dependency: kernels waited for it", &n),
                     160000);
    assert_int_equal(time_of(table, "H2D copies exposed: nothing else was queued", &n), 140000);
    assert_int_equal(time_of(table, "D2H copies exposed: nothing else was queued", &n), 170000);
    assert_int_equal(reasons(table), 9);
    assert_int_equal(time_of(table, "H2D with compute", NULL), 100000);
    mr_table_destroy(table);
}

/* Whatever the times: each copy has one reason, times are those of bitmaps. */
static void random_work(void **state)
{
    enum { BITS = 4000 };
    static bool bit[4][BITS];
    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        struct make m;
        uint64_t n_copies = 0, ns[4] = {0}, common = 0;
        memset(bit, 0, sizeof bit);
        make_begin(&m, PATH);
        for (uint32_t i = 0; i < 60; i++) {
            uint32_t r = round * 1000 + i * 5;
            uint64_t start = test_u64(r) % (BITS - 200), length = test_u64(r + 1) % 150;
            int side = (int)(test_u64(r + 2) % 4);
            uint32_t stream = 7 + (uint32_t)(test_u64(r + 3) % 3);
            enum mr_mem_kind host = test_u64(r + 4) % 2 ? MR_MEM_PINNED : MR_MEM_PAGEABLE;
            if (start + length == 0)
                continue;
            if (side == 3)
                make_kernel(&m, stream, "k", start * 1000 + 10000, (start + length) * 1000 + 10000);
            else
                make_copy(&m, stream, start * 1000 + 10000, (start + length) * 1000 + 10000,
                          length + 1,
                          side == 0   ? MR_COPY_H2D
                          : side == 1 ? MR_COPY_D2H
                                      : MR_COPY_D2D,
                          side == 2 ? MR_MEM_DEVICE : host);
            n_copies += side < 2;
            for (uint64_t b = start; b < start + length; b++)
                bit[side][b] = true;
        }
        make_end(&m);
        for (int b = 0; b < BITS; b++) {
            for (int s = 0; s < 4; s++)
                ns[s] += bit[s][b] ? 1000 : 0;
            common += bit[0][b] && bit[3][b] ? 1000 : 0;
        }
        struct mr_table *table = report(PATH);
        assert_int_equal(time_of(table, "H2D", NULL), ns[0]);
        assert_int_equal(time_of(table, "D2H", NULL), ns[1]);
        assert_int_equal(time_of(table, "D2D", NULL), ns[2]);
        assert_int_equal(time_of(table, "compute", NULL), ns[3]);
        assert_int_equal(time_of(table, "H2D with compute", NULL), common);
        assert_int_equal(reasons(table), n_copies);
        mr_table_destroy(table);
    }
}

static void loops(void **state)
{
    (void)state;
    struct loop l = loop_plain();
    uint64_t n;
    mr_recording_close(loop_record(PATH, &l, NULL));
    struct mr_table *table = report(PATH);
    assert_true(time_of(table, "H2D copies: overlapped", &n) != UINT64_MAX && n >= l.n_steps - 2);
    mr_table_destroy(table);
    l.copy_stream = false;
    mr_recording_close(loop_record(PATH, &l, NULL));
    table = report(PATH);
    assert_true(time_of(table, "H2D copies exposed: on a stream that runs kernels", &n) !=
                    UINT64_MAX &&
                n == l.n_steps);
    mr_table_destroy(table);
}

static void empty(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_end(&m);
    struct mr_table *table = report(PATH);
    assert_int_equal(mr_table_rows(table), 0);
    assert_non_null(strstr(mr_table_note(table), "has no device work"));
    mr_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window), cmocka_unit_test(a_reason_each), cmocka_unit_test(random_work),
        cmocka_unit_test(loops),    cmocka_unit_test(empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
