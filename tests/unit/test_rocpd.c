/* White-box. rocpd databases become recordings: both layouts give the same rows, to the nanosecond;
 * damaged ones and those of other versions are refused with a reason. tests/data/rocpd is what
 * tests/support/make_rocpd.py writes. */
#include "unit.h"

#include "recording/recording.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#define STEPS 8

static char folder[64], path[128], warning[1024];

static void keep_warning(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    if (level == MR_LOG_WARNING)
        snprintf(warning, sizeof warning, "%s", text);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/millrace-rocpd-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.db", folder);
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

/* A copy of a fixture, changed by SQL. bytes: of it; 0: all. */
static void copy(const char *name, long bytes, const char *sql)
{
    char from[512];
    snprintf(from, sizeof from, "%s/%s", TEST_ROCPD, name);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    assert_non_null(in);
    assert_non_null(out);
    static char buf[1 << 18];
    size_t n = fread(buf, 1, sizeof buf, in);
    assert_true(n > 0 && n < sizeof buf);
    assert_int_equal(fwrite(buf, 1, bytes ? (size_t)bytes : n, out), bytes ? (size_t)bytes : n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    warning[0] = 0;
    if (!sql)
        return;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static struct mr_recording *open_it(void)
{
    struct mr_recording *r = NULL;
    if (mr_recording_open(path, &r) < 0 || mr_recording_load(r) < 0)
        fail_msg("%s", mr_last_error());
    return r;
}

static const char *text(const struct mr_recording *r, uint32_t number)
{
    assert_true(number < r->n_strings);
    return r->strings[number];
}

static const char *call_of(const struct mr_recording *r, const struct mr_rec_op *op)
{
    return op->api == MR_NONE ? "" : text(r, r->apis[op->api].name);
}

/* A step's operations, from 5 ms and 100 us on: loading is before. */
static void check_ops(const struct mr_recording *r)
{
    static const struct {
        uint64_t start_ns, end_ns, bytes;
        uint8_t kind, copy_kind;
        const char *name, *call;
    } wanted[] = {
        {5150000, 5350000, 1 << 20, MR_OP_COPY, MR_COPY_H2D, "", "hipMemcpyAsync"},
        {5430000, 6430000, 0, MR_OP_KERNEL, 0, "gemm", "hipLaunchKernel"},
        {6440000, 6450000, 0, MR_OP_SET, 0, "", "hipMemsetAsync"},
        {6460000, 8600000, 0, MR_OP_KERNEL, 0, "ncclDevKernel_Generic_AllReduce",
         "hipExtLaunchKernel"},
        {8630000, 8650000, 4, MR_OP_COPY, MR_COPY_D2H, "", "hipMemcpy"},
    };
    assert_int_equal(r->n_ops, MR_COUNT(wanted) * STEPS);
    for (uint64_t i = 0; i < r->n_ops; i++) {
        const struct mr_rec_op *op = &r->ops[i];
        uint64_t step = 1000000 + i / MR_COUNT(wanted) * 10000000, k = i % MR_COUNT(wanted);
        assert_int_equal(op->start_ns, step + wanted[k].start_ns);
        assert_int_equal(op->end_ns, step + wanted[k].end_ns);
        assert_int_equal(op->bytes, wanted[k].bytes);
        assert_int_equal(op->kind, wanted[k].kind);
        assert_int_equal(op->copy_kind, wanted[k].copy_kind);
        assert_int_equal(op->stream, 3);
        assert_int_equal(r->devices[op->device].id, 0);
        assert_memory_equal(text(r, op->name), wanted[k].name, strlen(wanted[k].name));
        /* the copy is of HSA's call, which is within HIP's */
        assert_string_equal(call_of(r, op), wanted[k].call);
    }
    assert_int_equal(r->ops[0].src, MR_MEM_UNKNOWN);
    assert_int_equal(r->ops[0].dst, MR_MEM_DEVICE);
}

static void check_ranges(const struct mr_recording *r)
{
    uint32_t n_steps = 0, n_loads = 0, n_rccl = 0, n_marks = 0;
    for (uint64_t i = 0; i < r->n_ranges; i++) {
        const struct mr_rec_range *range = &r->ranges[i];
        const char *name = text(r, range->text), *domain = text(r, range->domain);
        assert_int_equal(r->threads[range->thread].tid, 4242);
        n_steps += strcmp(name, "step") == 0 && !*domain && range->type == MR_RANGE_PUSH_POP;
        n_loads += strcmp(name, "load") == 0 && !*domain && range->depth == 1;
        n_rccl += strcmp(name, "ncclAllReduce") == 0 && strcmp(domain, "RCCL") == 0;
        n_marks += strcmp(name, "done") == 0 && range->type == MR_RANGE_MARK;
    }
    assert_int_equal(n_steps, STEPS);
    assert_int_equal(n_loads, STEPS);
    assert_int_equal(n_rccl, STEPS);
    assert_int_equal(n_marks, 1);
    assert_int_equal(r->n_ranges, 3 * STEPS + 1);
}

static int64_t number(struct mr_recording *r, const char *sql)
{
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(r->db, sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(r->db));
    int64_t value = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
    sqlite3_finalize(stmt);
    return value;
}

static void check_rest(struct mr_recording *r)
{
    assert_string_equal(r->source, "rocpd database");
    assert_int_equal(r->traced, MR_TRACE_CUDA | MR_TRACE_NVTX);
    assert_int_equal(r->n_processes, 1);
    assert_int_equal(r->processes[0].pid, 4242);
    assert_string_equal(text(r, r->processes[0].command), "./train --fast");
    assert_int_equal(r->n_devices, 2);
    assert_string_equal(text(r, r->devices[0].name), "AMD Instinct MI300X");
    assert_int_equal(r->devices[0].n_sms, 304);
    assert_int_equal(r->n_apis, 6 * STEPS);
    assert_int_equal(r->n_cores, 0);
    /* 64 blocks of 256; the 3 KiB of shared memory are 1 fixed and 2 asked for */
    assert_int_equal(number(r, "SELECT gridX * 1000 + blockX FROM CUPTI_ACTIVITY_KIND_KERNEL"),
                     64256);
    assert_int_equal(number(r, "SELECT staticSharedMemory * 10000 + dynamicSharedMemory FROM "
                               "CUPTI_ACTIVITY_KIND_KERNEL"),
                     10242048);
    assert_int_equal(number(r, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE bytes IS "
                               "NULL"),
                     STEPS);
    /* three allocations and a release, of the memory that its address had */
    assert_int_equal(number(r, "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS"), 4);
    assert_int_equal(number(r, "SELECT memKind FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE "
                               "memoryOperationType = 1"),
                     2);
    assert_int_equal(number(r, "SELECT memKind FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE bytes = "
                               "4096"),
                     1);
}

static void both_layouts(void **state)
{
    (void)state;
    static const char *const names[] = {"inline.db", "tracks.db"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        copy(names[i], 0, NULL);
        struct mr_recording *r = open_it();
        check_ops(r);
        check_ranges(r);
        check_rest(r);
        assert_string_equal(warning, "");
        mr_recording_close(r);
    }
}

/* Reports show no size where none is recorded. */
static void unknown_sizes(void **state)
{
    (void)state;
    struct mr_table *table;
    copy("inline.db", 0, "UPDATE \"rocpd_memory_copy_0190_a1\" SET size = NULL WHERE id % 2 = 1");
    struct mr_recording *r = open_it();
    assert_int_equal(mr_report_make(r, "cuda_gpu_mem_size_sum", NULL, &table), 0);
    assert_int_equal(mr_table_rows(table), 1); /* copies from the device alone have sizes */
    assert_non_null(strstr(mr_table_note(table), "16 records whose size is not recorded left out"));
    mr_table_destroy(table);
    assert_int_equal(mr_report_make(r, "mem_ops", NULL, &table), 0);
    for (uint64_t i = 0; i < mr_table_rows(table); i++) {
        bool sized = strcmp(mr_table_cell(table, i, 5).text, "Device-to-Host") == 0;
        assert_int_equal(mr_table_cell(table, i, 2).type, sized ? MR_CELL_INT : MR_CELL_EMPTY);
        assert_int_equal(mr_table_cell(table, i, 3).type, sized ? MR_CELL_REAL : MR_CELL_EMPTY);
    }
    mr_table_destroy(table);
    mr_recording_close(r);
}

/* Ranks of one node, and of two, whose clocks are an hour apart. */
static void several(void **state)
{
    (void)state;
    static const char *const names[] = {"job.db", "nodes.db"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        struct mr_advice *advice;
        copy(names[i], 0, NULL);
        struct mr_recording *r = open_it();
        assert_int_equal(r->n_processes, 2);
        assert_int_equal(r->n_devices, i ? 4 : 2);
        assert_int_equal(r->n_ops, 2 * 5 * STEPS);
        assert_true(r->end_ns < 200000000);
        assert_int_equal(mr_analyze(r, NULL, &advice), 0);
        const char *summary = mr_advice_summary(advice);
        if (!strstr(summary, "rank 1 holds up the job") ||
            !strstr(summary, "1.500 ms in each; cause: waiting for the loader"))
            fail_msg("%s", summary);
        mr_advice_destroy(advice);
        mr_recording_close(r);
    }
}

static void faults(void **state)
{
    (void)state;
    copy("faults.db", 0, NULL);
    struct mr_recording *r = open_it();
    assert_non_null(strstr(warning, "3 without a time, 2 with a negative time or duration"));
    assert_int_equal(r->n_ops, 15);
    assert_true(r->end_ns < 100000000);
    assert_int_equal(number(r, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE bytes IS "
                               "NULL AND copyKind = 1"),
                     1);
    mr_recording_close(r);
}

static void refused(const char *sql, int rc, const char *says)
{
    struct mr_recording *r = NULL;
    copy("tracks.db", 0, sql);
    assert_int_equal(mr_recording_open(path, &r), rc);
    assert_null(r);
    if (!strstr(mr_last_error(), says) || !strstr(mr_last_error(), path))
        fail_msg("%s: expected %s", mr_last_error(), says);
}

static void other_versions(void **state)
{
    (void)state;
    refused("UPDATE \"rocpd_metadata_0190_a1\" SET value = '4.0.0'", MR_EUNSUPPORTED,
            "is a rocpd database of version 4.0.0 of the tables: this millrace reads version 3");
    refused("DELETE FROM \"rocpd_metadata_0190_a1\"", MR_EUNSUPPORTED, "no version at all");
    /* of rocmProfileData, whose tables have the same name */
    refused("CREATE TABLE rocpd_metadata2 AS SELECT * FROM \"rocpd_metadata_0190_a1\"; DROP VIEW "
            "rocpd_metadata; ALTER TABLE rocpd_metadata2 RENAME TO rocpd_metadata; UPDATE "
            "rocpd_metadata SET value = '2'",
            MR_EUNSUPPORTED, "version 2");
}

static void incomplete(void **state)
{
    (void)state;
    refused("DROP TABLE \"rocpd_info_agent_0190_a1\"", MR_EFORMAT,
            "its table rocpd_info_agent_0190_a1 is not there");
    refused("DROP TABLE \"rocpd_timestamp_0190_a1\"", MR_EFORMAT, "rocpd_timestamp_0190_a1");
    refused("CREATE TABLE e AS SELECT * FROM \"rocpd_event_0190_a1\"; DROP TABLE "
            "\"rocpd_event_0190_a1\"; ALTER TABLE e RENAME TO \"rocpd_event_0190_a1\"; INSERT INTO "
            "\"rocpd_event_0190_a1\" SELECT * FROM \"rocpd_event_0190_a1\"",
            MR_EFORMAT, "rocpd_event_0190_a1 has no primary key id");
    refused("DELETE FROM \"rocpd_info_process_0190_a1\"", MR_EFORMAT, "without a process");
    refused("ALTER TABLE \"rocpd_region_0190_a1\" RENAME COLUMN start_id TO begin_id", MR_EFORMAT,
            "has no column start_id");
    refused("ALTER TABLE \"rocpd_memory_copy_0190_a1\" RENAME COLUMN size TO n", MR_EFORMAT,
            "no such column");
}

/* Without the views, and with others of their names: none is used. */
static void views_are_not_used(void **state)
{
    (void)state;
    copy("inline.db", 0,
         "DROP VIEW rocpd_region; DROP VIEW rocpd_kernel_dispatch; DROP VIEW rocpd_string;"
         "CREATE VIEW rocpd_string AS SELECT 1 AS id, 'x' AS string");
    struct mr_recording *r = open_it();
    check_ops(r);
    mr_recording_close(r);
}

/* Whatever is cut off: an error that names the file, or what is left. */
static void cut(void **state)
{
    (void)state;
    uint32_t n_refused = 0;
    for (long bytes = 600; bytes < 24000; bytes += 1531) {
        struct mr_recording *r = NULL;
        copy("inline.db", bytes, NULL);
        int rc = mr_recording_open(path, &r);
        rc = rc ? rc : mr_recording_load(r);
        if (rc < 0) {
            n_refused++;
            assert_non_null(strstr(mr_last_error(), path));
        }
        mr_recording_close(r);
    }
    assert_true(n_refused > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_layouts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(unknown_sizes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(several, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(faults, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_versions, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(incomplete, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(views_are_not_used, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(cut, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
