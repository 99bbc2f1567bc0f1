/* White-box: sampled stacks, against sums that are made here of the same samples, and as text for
 * flame graphs; recordings that lost frames or were altered. */
#include "recording_make.h"

#include "recording/stacks.h"

#include <sqlite3.h>

#define PATH    "test_stacks.sqlite"
#define FOLDED  "test_stacks.folded"
#define N       4000
#define N_NODES 200
#define TICK    1000000ull

/* Of node i (numbers from 1): its parent, and one of 40 lines in 10 functions. */
static uint32_t parents[N_NODES + 1], lines[N_NODES + 1];

struct seen {
    uint32_t tid, stack, n;
    uint64_t start, end, cpu;
};
static struct seen samples[N];

static void put_stack(struct make *m, uint32_t id, uint32_t parent, const char *function,
                      const char *file, uint32_t line)
{
    make_put(m, MR_PART_STACK,
             &(struct mr_part_stack){id, parent, make_name(m, function), make_name(m, file), line});
}

static void put_sample(struct make *m, const struct seen *s)
{
    make_put(m, MR_PART_SAMPLE,
             &(struct mr_part_sample){.start_ns = MAKE_BASE + s->start,
                                      .end_ns = MAKE_BASE + s->end,
                                      .cpu_ns = s->cpu,
                                      .stack = s->stack,
                                      .tid = s->tid,
                                      .n = s->n});
}

/* Two processes with the same stacks. */
static int make_samples(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    for (int process = 0; process < 2; process++) {
        if (process)
            make_process(&m, 200, "python3 worker.py");
        for (uint32_t i = 1; i <= N_NODES; i++) {
            char function[16];
            parents[i] = (uint32_t)(test_u64(i) % i);
            lines[i] = (uint32_t)(test_u64(i + N_NODES) % 40);
            snprintf(function, sizeof function, "f%u", lines[i] / 4);
            put_stack(&m, i, parents[i], function, "/a/b/c.py", lines[i]);
        }
        for (uint32_t i = 0; i < N / 2; i++) {
            uint64_t r = test_u64(i + 1000u * (unsigned)(process + 1)), k = i + process * N / 2u;
            samples[k] = (struct seen){.tid = (process ? 200 : 100) + (uint32_t)(r & 1),
                                       .stack = 1 + (uint32_t)((r >> 8) % N_NODES),
                                       .n = 1 + (uint32_t)((r >> 32) % 20),
                                       .start = i * TICK};
            samples[k].end = samples[k].start + 1 + (r >> 40) % TICK;
            samples[k].cpu = (samples[k].end - samples[k].start) / 2;
            put_sample(&m, &samples[k]);
        }
    }
    make_end(&m);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    remove(PATH);
    remove(FOLDED);
    return 0;
}

static struct mr_recording *open_it(void)
{
    struct mr_recording *recording = NULL;
    if (mr_recording_open(PATH, &recording) < 0)
        fail_msg("%s", mr_last_error());
    return recording;
}

/* What the sum of this thread and line or function must be, by going through all samples. */
static struct mr_stack_sum expected(uint32_t tid, uint32_t of, bool by_function, uint64_t to)
{
    struct mr_stack_sum sum = {0};
    for (int i = 0; i < N; i++) {
        const struct seen *s = &samples[i];
        uint64_t end = s->end < to ? s->end : to;
        bool through = false;
        if (s->tid != tid || s->start >= end)
            continue;
        for (uint32_t node = s->stack; node; node = parents[node])
            through |= (by_function ? lines[node] / 4 : lines[node]) == of;
        sum.total_ns += through ? end - s->start : 0;
        sum.self_ns +=
            (by_function ? lines[s->stack] / 4 : lines[s->stack]) == of ? end - s->start : 0;
    }
    return sum;
}

static void sums_are_exact(void **state)
{
    (void)state;
    struct mr_recording *recording = open_it();
    struct mr_stacks stacks;
    assert_int_equal(mr_stacks_load(recording, &stacks), 0);
    assert_int_equal(stacks.n_samples, N);
    assert_int_equal(stacks.n_threads, 4);
    assert_int_equal(stacks.n_places, 40);
    for (int k = 0; k < 4; k++) {
        bool by_function = k & 1, windowed = k & 2;
        uint64_t n, all = 0, wanted = 0, to = windowed ? 1000 * TICK + TICK / 3 : UINT64_MAX;
        struct mr_intervals windows = {0};
        struct mr_stack_sum *sums;
        mr_intervals_add(&windows, 0, to);
        assert_int_equal(mr_stacks_sum(&stacks, windowed ? &windows : NULL, by_function, &sums, &n),
                         0);
        for (uint64_t i = 0; i < n; i++) {
            const struct mr_stack_place *place = &stacks.places[sums[i].place];
            uint32_t of =
                by_function ? (uint32_t)atoi(stacks.texts.text[place->function] + 1) : place->line;
            uint32_t tid = stacks.threads[sums[i].thread].global_tid & 0xffffff;
            struct mr_stack_sum want = expected(tid, of, by_function, to);
            assert_int_equal(sums[i].total_ns, want.total_ns);
            assert_int_equal(sums[i].self_ns, want.self_ns);
            assert_true(sums[i].cpu_ns <= sums[i].self_ns);
            all += sums[i].self_ns;
        }
        for (int i = 0; i < N; i++)
            wanted += samples[i].start < to
                          ? (samples[i].end < to ? samples[i].end : to) - samples[i].start
                          : 0;
        assert_int_equal(all, wanted);
        free(sums);
        mr_intervals_free(&windows);
    }
    mr_stacks_free(&stacks);
    mr_recording_close(recording);
}

static void the_export_has_each_stack_whole(void **state)
{
    (void)state;
    sqlite3 *db;
    sqlite3_stmt *rows;
    uint64_t depth = 0;
    for (int i = 0; i < N; i++)
        for (uint32_t node = samples[i].stack; node; node = parents[node])
            depth++;
    assert_int_equal(sqlite3_open(PATH, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT count(*), count(DISTINCT c.id), sum(s.value IS "
                                        "NULL) FROM SAMPLING_CALLCHAINS c LEFT JOIN StringIds s"
                                        " ON s.id = c.symbol",
                                        -1, &rows, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(rows), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int64(rows, 0), depth);
    assert_int_equal(sqlite3_column_int64(rows, 1), N);
    assert_int_equal(sqlite3_column_int64(rows, 2), 0);
    sqlite3_finalize(rows);
    sqlite3_close(db);
}

static void folded_lines_have_all_samples(void **state)
{
    (void)state;
    struct mr_recording *recording = open_it();
    struct mr_timeline_opts opts;
    uint64_t told = 0, wanted = 0, found = 0;
    char line[16384];
    mr_timeline_opts_init(&opts);
    opts.out_events = &told;
    assert_int_equal(mr_timeline_write(recording, FOLDED, MR_TIMELINE_FOLDED, &opts), 0);
    mr_recording_close(recording);
    for (int i = 0; i < N; i++)
        wanted += samples[i].n;
    FILE *file = fopen(FOLDED, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_non_null(strstr(line, ";f"));
        assert_true(strncmp(line, "python3 (", 9) == 0);
        found += strtoull(strrchr(line, ' ') + 1, NULL, 10);
    }
    fclose(file);
    assert_int_equal(found, wanted);
    assert_int_equal(told, wanted);
}

/* The line of the program in what torch's loader calls, not the one that it waits in; without such
 * a loader, of the waiting thread. */
static void a_loaders_line_is_found(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, PATH);
    put_stack(&m, 1, 0, "main", "/home/u/train.py", 7);
    put_stack(&m, 2, 1, "wait", "/usr/lib/python3.12/threading.py", 300);
    put_sample(&m, &(struct seen){100, 2, 100, 0, 1000 * TICK, 0});
    make_process(&m, 200, "python3 worker");
    put_stack(&m, 1, 0, "_MapDatasetFetcher.fetch",
              "/v/site-packages/torch/utils/data/_utils/fetch.py", 52);
    put_stack(&m, 2, 1, "Set.__getitem__", "/home/u/set.py", 42);
    put_stack(&m, 3, 2, "load", "/v/site-packages/PIL/ImageFile.py", 300);
    put_stack(&m, 4, 1, "Set.__getitem__", "/home/u/set.py", 43);
    put_stack(&m, 5, 0, "recv", "/usr/lib/python3.12/multiprocessing/connection.py", 1);
    put_sample(&m, &(struct seen){200, 3, 60, 0, 600 * TICK, 300 * TICK});
    put_sample(&m, &(struct seen){200, 4, 20, 600 * TICK, 800 * TICK, 0});
    put_sample(&m, &(struct seen){200, 5, 200, 800 * TICK, 2800 * TICK, 0});
    make_end(&m);
    struct mr_recording *recording = open_it();
    struct mr_stacks stacks;
    struct mr_stack_hottest hot;
    struct mr_intervals windows = {0};
    char line[64];
    assert_int_equal(mr_stacks_load(recording, &stacks), 0);
    assert_int_equal(mr_stacks_loader(&stacks, NULL, 100u << 24 | 100, NULL, NULL, &hot), 0);
    assert_string_equal(mr_stack_line(&stacks, hot.place, false, line, sizeof line), "set.py:42");
    assert_int_equal(hot.ns, 600 * TICK);
    assert_int_equal(hot.of_ns, 800 * TICK);
    assert_int_equal(hot.cpu_ns, 300 * TICK);
    assert_int_equal(hot.n, 80);
    mr_intervals_add(&windows, 500 * TICK, 800 * TICK);
    assert_int_equal(mr_stacks_loader(&stacks, &windows, 0, NULL, NULL, &hot), 0);
    assert_string_equal(mr_stack_line(&stacks, hot.place, true, line, sizeof line),
                        "/home/u/set.py:43");
    mr_intervals_free(&windows);
    mr_intervals_add(&windows, 900 * TICK, 2000 * TICK);
    assert_int_equal(mr_stacks_loader(&stacks, &windows, 100u << 24 | 100, NULL, NULL, &hot), 0);
    assert_string_equal(mr_stack_line(&stacks, hot.place, false, line, sizeof line), "train.py:7");
    assert_int_equal(mr_stacks_loader(&stacks, &windows, 5, NULL, NULL, &hot), 0);
    assert_true(hot.place == MR_NONE && hot.of_ns == 0);
    mr_intervals_free(&windows);
    mr_stacks_free(&stacks);
    mr_recording_close(recording);
}

/* Frames that were lost, or made to go in circles; times that go backwards; no names. */
static void strange_recordings_do_no_harm(void **state)
{
    static const char *const changes[] = {
        "DELETE FROM MILLRACE_STACKS WHERE id & 3 = 1",
        "UPDATE MILLRACE_STACKS SET parentId = id",
        "UPDATE MILLRACE_STACKS SET parentId = id + 1",
        "UPDATE MILLRACE_STACKS SET functionId = -1, fileId = 1 << 40, line = -1",
        "UPDATE COMPOSITE_EVENTS SET \"end\" = start - 5",
        "UPDATE COMPOSITE_EVENTS SET start = -5, samples = -1, cpuTime = 1 << 62",
        "UPDATE COMPOSITE_EVENTS SET \"end\" = 'x', stackId = 'y', globalTid = 'z'",
        "DELETE FROM StringIds",
        "DELETE FROM PROCESSES",
        "DROP TABLE MILLRACE_STACKS",
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        sqlite3 *db;
        struct mr_table *table = NULL;
        make_samples(state);
        assert_int_equal(sqlite3_open(PATH, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, changes[i], NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        struct mr_recording *recording = open_it();
        assert_int_equal(mr_report_make(recording, "stacks", NULL, &table), 0);
        bool none = (i >= 4 && i <= 6) || i == 9; /* no samples, or no stacks of them */
        assert_int_equal(mr_table_rows(table) == 0, none);
        assert_true(!none || mr_table_note(table));
        mr_table_destroy(table);
        assert_int_equal(mr_report_make(recording, "stacks_func", NULL, &table), 0);
        mr_table_destroy(table);
        assert_int_equal(mr_timeline_write(recording, FOLDED, MR_TIMELINE_FOLDED, NULL), 0);
        mr_recording_close(recording);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(the_export_has_each_stack_whole),
        cmocka_unit_test(folded_lines_have_all_samples),
        cmocka_unit_test(a_loaders_line_is_found),
        cmocka_unit_test(strange_recordings_do_no_harm),
    };
    return cmocka_run_group_tests(tests, make_samples, remove_files);
}
