/* White-box. Kineto traces become recordings: each event's row, to the nanosecond. Damaged files
 * give what can be read, with a warning, or an error that says where. */
#include "unit.h"

#include "recording/json_stream.h"
#include "recording/recording.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64], path[128], warning[1024];
static int n_warnings;

static void keep_warning(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    if (level != MR_LOG_WARNING)
        return;
    snprintf(warning, sizeof warning, "%s", text);
    n_warnings++;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/millrace-kineto-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.json", folder);
    mr_log_set(keep_warning, NULL);
    setenv("TMPDIR", folder, 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    mr_log_set(NULL, NULL);
    unlink(path);
    return rmdir(folder); /* also tells whether a temporary file was left */
}

static void write_bytes(const char *text, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    warning[0] = 0;
    n_warnings = 0;
}

static struct mr_recording *open_text(const char *text)
{
    struct mr_recording *r = NULL;
    write_bytes(text, strlen(text));
    if (mr_recording_open(path, &r) < 0 || mr_recording_load(r) < 0)
        fail_msg("%s", mr_last_error());
    return r;
}

static char *fixture(size_t *n)
{
    FILE *file = fopen(TEST_KINETO "/train.json", "rb");
    assert_non_null(file);
    char *text = malloc(1 << 16);
    assert_non_null(text);
    *n = fread(text, 1, (1 << 16) - 1, file);
    text[*n] = 0;
    fclose(file);
    return text;
}

static const char *text(const struct mr_recording *r, uint32_t number)
{
    assert_true(number < r->n_strings);
    return r->strings[number];
}

static int64_t meta(const struct mr_recording *r, const char *name)
{
    sqlite3_stmt *statement;
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT value FROM MILLRACE_META WHERE name = '%s'", name);
    assert_int_equal(sqlite3_prepare_v2(r->db, sql, -1, &statement, NULL), SQLITE_OK);
    int64_t value = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : -1;
    sqlite3_finalize(statement);
    return value;
}

static void check_ops(const struct mr_recording *r)
{
    /* relative to the first event that counts, the step's at 1000100 us */
    static const struct mr_rec_op wanted[] = {
        {.start_ns = 540123,
         .end_ns = 552124,
         .bytes = 92928,
         .kind = MR_OP_COPY,
         .copy_kind = MR_COPY_H2D,
         .src = MR_MEM_PAGEABLE,
         .dst = MR_MEM_DEVICE},
        {.start_ns = 610001, .end_ns = 810004, .kind = MR_OP_KERNEL},
        {.start_ns = 830000, .end_ns = 840000, .kind = MR_OP_KERNEL},
        {.start_ns = 850000,
         .end_ns = 851500,
         .bytes = 64,
         .kind = MR_OP_SET,
         .dst = MR_MEM_DEVICE},
        {.start_ns = 860000,
         .end_ns = 862000,
         .bytes = 4,
         .kind = MR_OP_COPY,
         .copy_kind = MR_COPY_D2H,
         .src = MR_MEM_DEVICE,
         .dst = MR_MEM_UNKNOWN},
    };
    assert_int_equal(r->n_ops, MR_COUNT(wanted));
    for (uint64_t i = 0; i < r->n_ops; i++) {
        const struct mr_rec_op *op = &r->ops[i], *want = &wanted[i];
        assert_int_equal(op->start_ns, want->start_ns);
        assert_int_equal(op->end_ns, want->end_ns);
        assert_int_equal(op->bytes, want->bytes);
        assert_int_equal(op->kind, want->kind);
        assert_int_equal(op->copy_kind, want->copy_kind);
        assert_int_equal(op->src, want->src);
        assert_int_equal(op->dst, want->dst);
        assert_int_equal(op->stream, 7);
        assert_int_equal(r->devices[op->device].id, 0);
    }
    assert_string_equal(text(r, r->apis[r->ops[0].api].name), "cudaMemcpyAsync");
    assert_string_equal(text(r, r->apis[r->ops[1].api].name), "cudaLaunchKernel");
    assert_string_equal(text(r, r->apis[r->ops[2].api].name), "cuLaunchKernel");
    assert_true(r->apis[r->ops[2].api].driver);
    assert_int_equal(r->ops[3].api, MR_NONE); /* no such call in the file */
}

static void check_host(const struct mr_recording *r)
{
    assert_int_equal(r->n_apis, 3);
    assert_int_equal(r->n_ranges, 3);
    assert_string_equal(text(r, r->ranges[0].text), "ProfilerStep#1");
    assert_int_equal(r->ranges[1].start_ns, 10001);
    assert_int_equal(r->ranges[1].end_ns, 510003);
    assert_int_equal(r->ranges[1].parent, 0);
    assert_string_equal(text(r, r->ranges[2].text), "aten::copy_");
    assert_string_equal(text(r, r->ranges[2].domain), "cpu_op");
    assert_string_equal(text(r, r->ranges[0].domain), "");
    assert_int_equal(r->n_syncs, 1);
    assert_int_equal(r->syncs[0].type, 3);
    assert_int_equal(r->n_os, 0);
    assert_int_equal(r->traced, MR_TRACE_CUDA | MR_TRACE_NVTX);
    assert_int_equal(r->n_processes, 1);
    assert_int_equal(r->processes[0].pid, 4242);
    assert_int_equal(r->processes[0].killed, 0);
    assert_string_equal(text(r, r->processes[0].name), "python3");
    const struct mr_rec_thread *main_thread = &r->threads[r->ranges[0].thread];
    assert_int_equal(main_thread->tid, 4242);
    assert_string_equal(text(r, main_thread->name), "python3");
    const struct mr_rec_thread *odd = &r->threads[r->apis[r->ops[2].api].thread];
    assert_string_equal(text(r, odd->name), "-1559");
    assert_int_equal(r->n_devices, 1);
    assert_string_equal(text(r, r->devices[0].name), "Test GPU");
    assert_int_equal(r->devices[0].n_sms, 132);
}

static void test_every_event(void **state)
{
    (void)state;
    size_t n;
    char *json = fixture(&n);
    struct mr_recording *r = open_text(json);
    check_ops(r);
    check_host(r);
    assert_string_equal(r->source, "Kineto trace");
    assert_int_equal(r->end_ns, 1000000);
    assert_int_equal(meta(r, "rank"), 3);
    assert_int_equal(meta(r, "world_size"), 8);
    assert_int_equal(meta(r, "origin_ns"), 1700000000000000000 + 1000100000);
    assert_int_equal(r->n_cores, 0);
    assert_int_equal(n_warnings, 0);
    /* what is usually left out; the process's exit, its rank, how many there are */
    assert_int_equal(r->n_notes, 4);
    mr_recording_close(r);
    free(json);
}

static void test_kernel_details(void **state)
{
    (void)state;
    size_t n;
    char *json = fixture(&n);
    struct mr_recording *r = open_text(json);
    sqlite3_stmt *statement;
    assert_int_equal(
        sqlite3_prepare_v2(r->db,
                           "SELECT gridX, gridZ, blockX, registersPerThread, dynamicSharedMemory, "
                           "d.value, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL "
                           "JOIN StringIds d ON d.id = demangledName "
                           "JOIN StringIds s ON s.id = shortName ORDER BY start",
                           -1, &statement, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    static const int wanted[] = {5, 2, 128, 40, 512};
    for (int i = 0; i < (int)MR_COUNT(wanted); i++)
        assert_int_equal(sqlite3_column_int(statement, i), wanted[i]);
    assert_string_equal((const char *)sqlite3_column_text(statement, 5),
                        "void at::native::k<float, \"x\\y\xc3\xa9\">(int)");
    assert_string_equal((const char *)sqlite3_column_text(statement, 6), "k");
    sqlite3_finalize(statement);
    mr_recording_close(r);
    free(json);
}

static void test_gzip(void **state)
{
    (void)state;
    size_t n;
    char *json = fixture(&n);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, json, (unsigned)n), n);
    assert_int_equal(gzclose(file), Z_OK);
    struct mr_recording *r;
    assert_int_equal(mr_recording_open(path, &r), 0);
    assert_int_equal(mr_recording_load(r), 0);
    check_ops(r);
    mr_recording_close(r);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 200), 0);
    n_warnings = 0;
    assert_int_equal(mr_recording_open(path, &r), 0);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "only the events before the damage are read"));
    assert_non_null(strstr(warning, "gzip"));
    mr_recording_close(r);
    free(json);
}

/* Cut at any byte: as many events as are whole, with a warning, or an error that says why. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    size_t n, n_ops = 0;
    char *json = fixture(&n);
    while (json[n - 1] != '}')
        n--;
    for (size_t cut = 0; cut < n; cut += cut < 1200 || n - cut < 100 ? 1 : 37) {
        struct mr_recording *r = NULL;
        write_bytes(json, cut);
        if (mr_recording_open(path, &r) < 0) {
            assert_non_null(strstr(mr_last_error(), path));
            assert_int_equal(n_ops, 0);
            continue;
        }
        assert_int_equal(mr_recording_load(r), 0);
        assert_int_equal(n_warnings, 1);
        assert_non_null(strstr(warning, "only the events before the damage are read"));
        assert_true(r->n_ops >= n_ops);
        n_ops = r->n_ops;
        mr_recording_close(r);
    }
    assert_int_equal(n_ops, 5);
    free(json);
}

/* With ' for ", which JSON in C would be full of. */
static struct mr_recording *open_quoted(const char *text)
{
    char *json = strdup(text);
    assert_non_null(json);
    for (char *at = strchr(json, '\''); at; at = strchr(at, '\''))
        *at = '"';
    struct mr_recording *r = open_text(json);
    free(json);
    return r;
}

#define CALL   "{'ph':'X','cat':'cuda_runtime','name':'cudaLaunchKernel','pid':9,'tid':9,"
#define KERNEL "{'ph':'X','cat':'kernel','name':'k','pid':0,'tid':7,"

static void test_left_out(void **state)
{
    (void)state;
    struct mr_recording *r =
        open_quoted("[" KERNEL "'ts':10,'dur':1}," KERNEL "'ts':10,'dur':-1}," KERNEL
                    "'dur':1}," KERNEL "'ts':null,'dur':1}," KERNEL "'ts':1e300,'dur':1},"
                    "{'ph':'Q','name':'x','ts':1},"
                    "{'ph':'X','cat':'new','ts':1,'dur':1},7,'x',null," KERNEL
                    "'ts':11,'dur':5}," KERNEL "'ts':12,'dur':1,'args':{'correlation':-4}}]");
    assert_int_equal(r->n_ops, 3); /* two overlap: they stay */
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "events left out: 3 without a time or a duration, 1 with a "
                                    "negative duration, 1 of an unknown phase, 1 of an unknown "
                                    "category, 3 that are no objects"));
    mr_recording_close(r);
}

/* A file whose events are all there twice, the second time in another order, reads as the one whose
 * events are there once. */
static void test_repeated_events(void **state)
{
    (void)state;
    enum { N = 3000 };
    size_t cap = (size_t)2 * N * 200 + 16, at = 1;
    char *text = malloc(cap);
    assert_non_null(text);
    text[0] = '[';
    for (int i = 0; i < 2 * N; i++) {
        int event = i < N ? i : i * 7 % N;
        at += (size_t)snprintf(text + at, cap - at,
                               "%s" KERNEL "'ts':%d,'dur':1,'args':{'correlation':%d,'stream':7}}",
                               i ? "," : "", 10 + event / 2, event);
    }
    snprintf(text + at, cap - at, "]");
    struct mr_recording *r = open_quoted(text);
    assert_int_equal(r->n_ops, N);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "events left out: 3000 that repeat another word for word"));
    mr_recording_close(r);
    free(text);
}

/* One id for all calls: a kernel is of none of them. */
static void test_one_id_for_all(void **state)
{
    (void)state;
    struct mr_recording *r =
        open_quoted("[" CALL "'ts':10,'dur':1,'args':{'correlation':1}}," CALL
                    "'ts':20,'dur':1,'args':{'correlation':1}}," CALL
                    "'ts':30,'dur':1,'args':{'correlation':2}}," KERNEL
                    "'ts':40,'dur':1,'args':{'correlation':1,'stream':7}}," KERNEL
                    "'ts':50,'dur':1,'args':{'correlation':2,'stream':7}}]");
    assert_int_equal(r->n_ops, 2);
    assert_int_equal(r->ops[0].api, MR_NONE);
    assert_int_equal(r->apis[r->ops[1].api].start_ns, 20000);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "1 call has the correlation id of another call"));
    mr_recording_close(r);
}

/* Large and exact: microseconds since 1970 with three decimals, beyond a double's digits. */
static void test_nanoseconds(void **state)
{
    (void)state;
    struct mr_recording *r =
        open_quoted("{'traceEvents':[" KERNEL "'ts':1712867402348256.001,'dur':0.001}," KERNEL
                    "'ts':'1712867402348256.777','dur':1.5e0}," KERNEL
                    "'ts':17128674023482570.00e-1,'dur':2}]}");
    assert_int_equal(r->n_ops, 3);
    assert_int_equal(r->ops[0].end_ns, 1);
    assert_int_equal(r->ops[1].start_ns, 776);
    assert_int_equal(r->ops[1].end_ns, 2276);
    assert_int_equal(r->ops[2].start_ns, 999);
    mr_recording_close(r);
}

/* Work without length at the very start has a time all the same. */
static void test_empty_at_the_start(void **state)
{
    (void)state;
    struct mr_recording *r = open_quoted("[" KERNEL "'ts':7,'dur':0}," KERNEL "'ts':7.5,'dur':1}]");
    assert_int_equal(r->n_ops, 2);
    assert_int_equal(r->n_lost_times, 0);
    assert_int_equal(r->ops[1].start_ns - r->ops[0].start_ns, 500);
    mr_recording_close(r);
}

static void test_two_processes(void **state)
{
    (void)state;
    struct mr_recording *r = open_quoted(
        "{'traceEvents':["
        "{'ph':'X','cat':'cpu_op','name':'a','pid':'odd','tid':'main','ts':1,'dur':9},"
        "{'ph':'M','name':'process_name','pid':'odd','args':{'name':'other'}},"
        "{'ph':'X','cat':'cuda_runtime','name':'cudaLaunchKernel','pid':77,'tid':99999999999,"
        "'ts':2,'dur':1,'args':{'correlation':5}}," KERNEL
        "'ts':4,'dur':1,'args':{'correlation':5,'stream':'0x1f'}}]}");
    assert_int_equal(r->n_processes, 2);
    assert_int_equal(r->processes[r->ops[0].process].pid, 77);
    assert_int_equal(r->ops[0].stream, 31);
    assert_int_equal(r->ops[0].api, 0);
    assert_string_equal(text(r, r->threads[r->apis[0].thread].name), "99999999999");
    const struct mr_rec_thread *thread = &r->threads[r->ranges[0].thread];
    assert_string_equal(text(r, r->processes[thread->process].name), "other");
    assert_string_equal(text(r, thread->name), "main");
    mr_recording_close(r);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"{}", "\"traceEvents\" of events is empty or missing"},
        {"{\"traceEvents\": []}", "is empty or missing"},
        {"{\"traceEvents\": 7}", "is empty or missing"},
        {"{\"traceEvents\": [{\"ph\":\"M\",\"name\":\"process_name\"}]}", "none of its events"},
        {"{\"a\" 1}", "damaged at byte 5: expected :"},
        {"{\"traceEvents\": [", "cut after byte 17"},
        {"\x1f\x8b\x08 no gzip at all", "gzip data is damaged"},
        {"hello", "neither a SQLite database nor JSON"},
    };
    for (size_t i = 0; i < MR_COUNT(wrong); i++) {
        struct mr_recording *r = NULL;
        write_bytes(wrong[i][0], strlen(wrong[i][0]));
        int rc = mr_recording_open(path, &r);
        rc = rc < 0 ? rc : mr_recording_load(r);
        assert_int_equal(rc, MR_EFORMAT);
        if (!strstr(mr_last_error(), wrong[i][1]) || !strstr(mr_last_error(), path))
            fail_msg("%s: %s", wrong[i][0], mr_last_error());
        mr_recording_close(r);
    }
}

/* A value of more than 16 MiB is passed over in pieces. */
static void test_huge_values(void **state)
{
    (void)state;
    const size_t many = 20u << 20;
    char *json = malloc(2 * many + 4096);
    assert_non_null(json);
    size_t n = (size_t)sprintf(json, "{\"huge\": [\"");
    memset(json + n, 'x', many);
    n += many;
    n += (size_t)sprintf(json + n, "]\"], \"traceEvents\": [{\"ph\": \"");
    memset(json + n, 'y', many);
    n += many;
    n += (size_t)sprintf(json + n, "\"}, {\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\","
                                   "\"ts\":1,\"dur\":1}]}");
    struct mr_recording *r;
    write_bytes(json, n);
    free(json);
    assert_int_equal(mr_recording_open(path, &r), 0);
    assert_int_equal(mr_recording_load(r), 0);
    assert_int_equal(r->n_ops, 1);
    assert_non_null(strstr(warning, "2 of more than 16 MiB"));
    mr_recording_close(r);
}

static void test_report_says_what_is_missing(void **state)
{
    (void)state;
    size_t n;
    char *json = fixture(&n);
    struct mr_recording *r = open_text(json);
    struct mr_table *table;
    assert_int_equal(mr_report_make(r, "osrt_sum", NULL, &table), 0);
    assert_int_equal(mr_table_rows(table), 0);
    assert_string_equal(mr_table_note(table), "this Kineto trace records no OS runtime calls");
    mr_table_destroy(table);
    mr_recording_close(r);
    free(json);
}

static void test_no_folder(void **state)
{
    (void)state;
    size_t n;
    char *json = fixture(&n);
    struct mr_recording *r;
    write_bytes(json, n);
    setenv("TMPDIR", "/nonexistent", 1);
    assert_int_equal(mr_recording_open(path, &r), -ENOENT);
    assert_non_null(strstr(mr_last_error(), "set TMPDIR"));
    setenv("TMPDIR", folder, 1);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_event, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_kernel_details, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_gzip, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cut_anywhere, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_left_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_repeated_events, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_one_id_for_all, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_nanoseconds, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_empty_at_the_start, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_two_processes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_huge_values, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_report_says_what_is_missing, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_no_folder, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
