/* White-box. A loader whose processes want more cores than the machine has, and ones that do
 * not. */
#include "recording_make.h"

#include "advice/rules.h"
#include <sqlite3.h>
#include <unistd.h>

#define PATH      "test_cores.sqlite"
#define MS        1000000ull
#define STEPS     20
#define N_WORKERS 6

/* The device waits 8 of 10 ms for the loader, whose workers wait wait_ns of each 10 ms. */
static struct mr_recording *record(uint64_t wait_ns)
{
    struct make m;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < STEPS; i++) {
        uint64_t at = 10 * MS + i * 10 * MS;
        make_range(&m, "data", at, at + 8 * MS);
        make_os(&m, "poll", at, at + 8 * MS, 0);
        make_kernel(&m, 7, "k", at + 8 * MS + 100000, at + 10 * MS);
    }
    for (uint32_t w = 0; w < N_WORKERS; w++) {
        make_process(&m, 200 + w, "python3 train.py");
        for (uint64_t i = 0; i < STEPS + 2; i++) {
            uint64_t at = i * 10 * MS;
            make_os(&m, "read", at, at + MS / 10, 4096);
            make_os(&m, "futex", at + MS, at + MS + wait_ns, 0);
            make_os(&m, "futex", at + MS + wait_ns / 4, at + MS + wait_ns / 2, 0); /* inside */
        }
    }
    make_end(&m);
    return make_load(PATH);
}

static void advise(uint64_t wait_ns, uint32_t n_cores, char out[1000])
{
    struct mr_recording *rec = record(wait_ns);
    struct mr_advice *advice = NULL;
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.n_cores = n_cores;
    assert_int_equal(mr_analyze(rec, &opts, &advice), 0);
    assert_string_equal(mr_advice_get(advice, 0)->rule, "data_starvation");
    snprintf(out, 1000, "%s", mr_advice_get(advice, 0)->advice);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Six workers that compute nine of ten ms, and the main thread two: 5.6 cores. */
static void crowded(void **state)
{
    (void)state;
    char text[1000];
    advise(MS, 4, text);
    assert_non_null(strstr(text, "want 5.6 cores at once and the machine has 4: workers wait"));
    assert_null(strstr(text, "cores only"));
}

/* The counter-cases: as many cores as are wanted; workers that wait themselves, for a disk. */
static void not_crowded(void **state)
{
    (void)state;
    char text[1000];
    advise(MS, 6, text);
    assert_null(strstr(text, "cores at once"));
    advise(8 * MS, 4, text);
    assert_null(strstr(text, "cores at once"));
    assert_non_null(strstr(text, "workers would keep up"));
}

/* Two ranks, each of which wants 5.6 of 6 cores. boot_ns: when the second one's machine was
 * started, after the first one's. */
static void advise_job(uint64_t boot_ns, char out[1000])
{
    static const char *const ranks[] = {"test_cores0.sqlite", "test_cores1.sqlite"};
    struct mr_recording *rec = NULL;
    struct mr_advice *advice = NULL;
    for (uint64_t r = 0; r < 2; r++) {
        char sql[400];
        sqlite3 *db;
        mr_recording_close(record(MS));
        assert_int_equal(rename(PATH, ranks[r]), 0);
        snprintf(sql, sizeof sql,
                 "INSERT INTO StringIds VALUES (9001, 'rank'), (9002, 'world_size');"
                 "INSERT INTO MILLRACE_NOTES SELECT globalPid, 9001, 0, %d FROM PROCESSES;"
                 "INSERT INTO MILLRACE_NOTES SELECT globalPid, 9002, 0, 2 FROM PROCESSES;"
                 "UPDATE MILLRACE_META SET value = 6 WHERE name = 'n_cores';"
                 "UPDATE MILLRACE_META SET value = value - %llu WHERE name = 'origin_ns'",
                 (int)r, (unsigned long long)(r * boot_ns));
        assert_int_equal(sqlite3_open(ranks[r], &db), SQLITE_OK);
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
            fail_msg("%s", sqlite3_errmsg(db));
        sqlite3_close(db);
    }
    if (mr_recording_open_job(ranks, 2, NULL, &rec) < 0)
        fail_msg("%s", mr_last_error());
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    snprintf(out, 1000, "%s", mr_advice_get(advice, 0)->advice);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(ranks[0]);
    unlink(ranks[1]);
}

static void ranks_of_one_host_share_its_cores(void **state)
{
    (void)state;
    char text[1000];
    advise_job(0, text);
    assert_non_null(strstr(text, "want 11.2 cores at once and the machine has 6: workers wait"));
    advise_job(3600000 * MS, text); /* of another machine */
    assert_null(strstr(text, "cores at once"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowded),
        cmocka_unit_test(not_crowded),
        cmocka_unit_test(ranks_of_one_host_share_its_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
