/* White-box. Rows wait for others of their table: they come whole, in their order, and with the
 * columns that only some need, however many there are. */
#include "recording/store.h"
#include "recording_make.h"

#include <sqlite3.h>
#include <unistd.h>

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/millrace-store-%d.sqlite", (int)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static bool has_id(uint32_t i)
{
    return i == 70 || i == 200;
}

/* In this order each range needs more columns than those before. */
static struct mr_part_range range_of(struct make *m, uint32_t i)
{
    char text[32];
    snprintf(text, sizeof(text), "numbered %u", i % 3);
    return (struct mr_part_range){.start_ns = MAKE_BASE + 10ull * i,
                                  .end_ns = MAKE_BASE + 10ull * i + 5,
                                  .text = i % 2 ? make_name(m, text) : 0,
                                  .tid = 100,
                                  .end_tid = 101,
                                  .category = i == 20 || i == 210 ? i : 0,
                                  .color = i == 40 || i == 220 ? i : 0,
                                  .id = has_id(i) ? i : 0,
                                  .type = has_id(i) ? MR_RANGE_START_END : MR_RANGE_PUSH_POP,
                                  .payload_type = i == 100 || i == 230 ? 1 : 0,
                                  .payload = i};
}

/* Every second one with a text of its own, now and then one that is longer than a batch's room. */
static void put_ranges(struct make *m, uint32_t n)
{
    static char text[80 << 10];
    for (uint32_t i = 0; i < n; i++) {
        struct mr_part_range range = range_of(m, i);
        memset(text, 'x', sizeof(text));
        int bytes = snprintf(text, 32, "own %u", i);
        if (i % 50 == 4) {
            text[bytes] = ' ';
            bytes = sizeof(text);
        }
        if (i % 2)
            make_put(m, MR_PART_RANGE, &range);
        else
            assert_int_equal(mr_store_put_range(m->store, &range, text, (size_t)bytes), 0);
    }
}

static int64_t value(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL ? -1 : sqlite3_column_int64(row, column);
}

static void expect_range(sqlite3_stmt *row, uint32_t i)
{
    char text[32];
    snprintf(text, sizeof(text), i % 2 ? "numbered %u" : "own %u", i % 2 ? i % 3 : i);
    const char *got = (const char *)sqlite3_column_text(row, 2);
    assert_int_equal(value(row, 0), 10 * i);
    assert_int_equal(value(row, 1), 10 * i + 5);
    assert_int_equal(strncmp(got, text, strlen(text)), 0);
    assert_int_equal(strlen(got), i % 50 == 4 ? 80 << 10 : strlen(text));
    assert_int_equal(value(row, 3), i == 20 || i == 210 ? (int)i : -1);
    assert_int_equal(value(row, 4), i == 40 || i == 220 ? (int)i : -1);
    assert_int_equal(value(row, 5), has_id(i) ? (int)i : -1);
    assert_int_equal(value(row, 6), has_id(i) ? 100 << 24 | 101 : -1);
    assert_int_equal(value(row, 7), i == 100 || i == 230 ? (int)i : -1);
}

static void expect_ranges(uint32_t n)
{
    sqlite3 *db;
    sqlite3_stmt *row;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT start, end, coalesce(text, (SELECT value FROM StringIds WHERE "
                           "id = textId)), category, color, rangeId, endGlobalTid, uint64Value "
                           "FROM NVTX_EVENTS ORDER BY rowid",
                           -1, &row, NULL),
        SQLITE_OK);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(sqlite3_step(row), SQLITE_ROW);
        expect_range(row, i);
    }
    assert_int_equal(sqlite3_step(row), SQLITE_DONE);
    sqlite3_finalize(row);
    sqlite3_close(db);
}

/* Numbers below, at and above what one statement takes. */
static void test_ranges(void **state)
{
    static const uint32_t counts[] = {0, 1, 15, 63, 64, 65, 128, 300};
    (void)state;
    for (size_t i = 0; i < MR_COUNT(counts); i++) {
        struct make m;
        make_begin(&m, path);
        put_ranges(&m, counts[i]);
        make_end(&m);
        expect_ranges(counts[i]);
    }
}

/* Rows of several processes that come by turns, so that a batch has them of both. */
static void test_processes(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, path);
    struct mr_store_process *first = m.store->now;
    make_process(&m, 200, "worker");
    struct mr_store_process *second = m.store->now;
    for (uint32_t i = 0; i < 100; i++) {
        struct mr_part_os os = {
            .start_ns = MAKE_BASE + i, .end_ns = MAKE_BASE + i + 1, .tid = 7, .bytes = i};
        mr_store_select(m.store, i % 3 ? first : second);
        os.name = make_name(&m, "read");
        make_put(&m, MR_PART_OS, &os);
    }
    make_end(&m);
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_os, 100);
    for (uint32_t i = 0; i < 100; i++) {
        const struct mr_rec_thread *thread = &r->threads[r->os[i].thread];
        assert_int_equal(r->os[i].bytes, i);
        assert_int_equal(r->processes[thread->process].pid, i % 3 ? 100 : 200);
    }
    mr_recording_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
