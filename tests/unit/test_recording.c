/* White-box. Recordings: what goes into a store comes out of mr_recording_load(), ours and exports
 * of Nsight Systems alike. */
#include "recording_make.h"

#include "recording/store.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/millrace-recording-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/a.sqlite", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const char *text(const struct mr_recording *r, uint32_t number)
{
    assert_true(number < r->n_strings);
    return r->strings[number];
}

static void test_round_trip(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, path);
    make_device(&m, 0, "Test GPU");
    make_stream(&m, 7, 3);
    make_thread(&m, 100, "main");
    make_thread(&m, 101, "loader");
    make_kernel(&m, 7, "_ZN2at6native6kernelILi4EEEvPfi", 300000, 900000);
    make_copy(&m, 13, 100000, 300000, 1 << 20, MR_COPY_H2D, MR_MEM_PAGEABLE);
    make_copy(&m, 13, 900000, 950000, 1 << 10, MR_COPY_D2H, MR_MEM_PINNED);
    make_set(&m, 7, 960000, 970000, 64, MR_MEM_DEVICE);
    make_sync(&m, 7, 310000, 905000);
    make_range(&m, "step", 0, 1000000);
    make_range(&m, "forward", 10000, 500000);
    make_range_of(&m, "loader", MR_RANGE_START_END, "wait", 20000, 40000);
    m.tid = 101;
    make_os(&m, "read", 50000, 60000, 4096);
    make_note(&m, "no_metrics", 0, "not permitted");
    make_note(&m, "dropped", 5, NULL);
    make_note(&m, "exit", MAKE_BASE + 2000000, NULL);
    make_end(&m);

    struct mr_recording *r = make_load(path);
    sqlite3_stmt *bus;
    assert_int_equal(
        sqlite3_prepare_v2(r->db, "SELECT busLocation FROM TARGET_INFO_GPU", -1, &bus, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(bus), SQLITE_ROW);
    assert_int_equal(sqlite3_column_type(bus, 0), SQLITE_NULL); /* nobody told */
    sqlite3_finalize(bus);
    assert_true(r->ours);
    assert_int_equal(r->origin_ns, MAKE_BASE);
    assert_int_equal(r->end_ns, 2000000);
    assert_int_equal(r->n_dropped, 5);
    assert_int_equal(r->n_ops, 4);
    const struct mr_rec_op *copy = &r->ops[0], *kernel = &r->ops[1], *back = &r->ops[2],
                           *set = &r->ops[3];
    assert_int_equal(copy->kind, MR_OP_COPY);
    assert_int_equal(copy->start_ns, 100000);
    assert_int_equal(copy->end_ns, 300000);
    assert_int_equal(copy->bytes, 1 << 20);
    assert_int_equal(copy->copy_kind, MR_COPY_H2D);
    assert_int_equal(copy->src, MR_MEM_PAGEABLE);
    assert_int_equal(copy->dst, MR_MEM_DEVICE);
    assert_int_equal(copy->stream, 13);
    assert_int_equal(back->copy_kind, MR_COPY_D2H);
    assert_int_equal(back->dst, MR_MEM_PINNED);
    assert_int_equal(set->kind, MR_OP_SET);
    assert_int_equal(set->dst, MR_MEM_DEVICE);
    assert_int_equal(kernel->kind, MR_OP_KERNEL);
    assert_non_null(strstr("kernel _ZN2at6native6kernelILi4EEEvPfi", text(r, kernel->name)));
    assert_int_equal(r->n_apis, 5);
    const struct mr_rec_api *call = &r->apis[copy->api];
    assert_string_equal(text(r, call->name), "cudaMemcpyAsync_v3020");
    assert_int_equal(call->class, MR_CALL_COPY);
    assert_int_equal(call->end_ns, 301000);
    assert_int_equal(call->n_ops, 1);
    assert_int_equal(r->op_of_api[call->first_op], 0);
    assert_int_equal(r->n_syncs, 1);
    assert_int_equal(r->apis[r->syncs[0].api].class, MR_CALL_SYNC);
    assert_int_equal(r->n_ranges, 3);
    assert_string_equal(text(r, r->ranges[0].text), "step");
    assert_int_equal(r->ranges[1].parent, 0);
    assert_int_equal(r->ranges[2].parent, 1);
    assert_int_equal(r->ranges[2].depth, 2);
    assert_string_equal(text(r, r->ranges[2].domain), "loader");
    assert_int_equal(r->n_os, 1);
    assert_int_equal(r->os[0].bytes, 4096);
    assert_string_equal(text(r, r->threads[r->os[0].thread].name), "loader");
    assert_int_equal(r->n_processes, 1);
    assert_int_equal(r->processes[0].killed, 0);
    assert_string_equal(text(r, r->processes[0].command), "python3 train.py");
    assert_int_equal(r->n_devices, 1);
    assert_string_equal(text(r, r->devices[0].name), "Test GPU");
    assert_int_equal(r->devices[0].n_copy_engines, 3);
    assert_int_equal(r->n_notes, 3);
    assert_int_equal(mr_recording_load(r), 0);
    mr_recording_close(r);
}

/* The driver's call inside a runtime call has the same correlation: whichever comes first, the
 * runtime's is the parent. */
static void test_runtime_is_parent(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, path);
    make_call_of(&m, 1, "cuLaunchKernel", 110, 190);
    make_call_of(&m, 1, "cudaLaunchKernel_v7000", 100, 200);
    make_call_of(&m, 2, "cudaLaunchKernel_v7000", 300, 400);
    make_call_of(&m, 2, "cuLaunchKernel", 310, 390);
    make_call_of(&m, 3, "cuLaunchKernel", 500, 600); /* a driver-API program */
    make_call_of(&m, 0, "cudaGetDevice", 610, 620);
    make_kernel_of(&m, 1, 7, "a", 150, 160);
    make_kernel_of(&m, 2, 7, "a", 350, 360);
    make_kernel_of(&m, 3, 7, "a", 550, 560);
    make_kernel_of(&m, 77, 7, "a", 650, 660); /* its call was not recorded */
    make_kernel_of(&m, 0, 7, "a", 670, 680);
    make_end(&m);
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_ops, 5);
    assert_int_equal(r->apis[r->ops[0].api].start_ns, 100);
    assert_int_equal(r->apis[r->ops[1].api].start_ns, 300);
    assert_int_equal(r->apis[r->ops[2].api].driver, 1);
    assert_int_equal(r->ops[3].api, MR_NONE);
    assert_int_equal(r->ops[4].api, MR_NONE);
    mr_recording_close(r);
}

/* Every process begins its correlations at 1. */
static void test_processes(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, path);
    for (uint32_t p = 0; p < 3; p++) {
        if (p)
            make_process(&m, 100 + p, "worker");
        for (uint64_t i = 0; i < 4; i++)
            make_kernel(&m, 7, "k", 10000 + i * 20000 + p * 100, 15000 + i * 20000 + p * 100);
    }
    make_end(&m);
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_processes, 3);
    assert_int_equal(r->n_ops, 12);
    for (uint64_t i = 0; i < 12; i++) {
        const struct mr_rec_op *op = &r->ops[i];
        assert_int_not_equal(op->api, MR_NONE);
        assert_int_equal(r->apis[op->api].process, op->process);
        assert_int_equal(r->apis[op->api].start_ns, op->start_ns - MAKE_LATENCY);
        assert_int_equal(r->processes[op->process].pid, 100 + i % 3);
    }
    mr_recording_close(r);
}

static void test_graphs(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, path);
    uint32_t launch = make_call(&m, "cudaGraphLaunch_v10000", 100, 150);
    for (uint64_t i = 0; i < 20; i++) {
        struct mr_part_kernel node = {.start_ns = MAKE_BASE + 2000 - i * 50,
                                      .end_ns = MAKE_BASE + 2040 - i * 50,
                                      .graph_node = (3ull << 32) + i,
                                      .graph = 3,
                                      .stream = 7,
                                      .correlation = launch};
        make_put(&m, MR_PART_KERNEL, &node);
    }
    struct mr_part_graph whole = {.start_ns = MAKE_BASE + 5000,
                                  .end_ns = MAKE_BASE + 6000,
                                  .graph = 4,
                                  .correlation = launch + 1};
    make_call_of(&m, launch + 1, "cudaGraphLaunch_v10000", 4000, 4100);
    make_put(&m, MR_PART_GRAPH, &whole);
    make_end(&m);
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_ops, 21);
    assert_int_equal(r->apis[0].class, MR_CALL_GRAPH_LAUNCH);
    assert_int_equal(r->apis[0].n_ops, 20);
    for (uint32_t i = 0; i < 20; i++) { /* in order of their start */
        assert_int_equal(r->op_of_api[r->apis[0].first_op + i], i);
        assert_int_equal(r->ops[i].api, 0);
        assert_int_not_equal(r->ops[i].graph_node, 0);
    }
    assert_string_equal(text(r, r->ops[20].name), "CUDA graph");
    assert_int_equal(r->ops[20].api, 1);
    mr_recording_close(r);
}

static const struct mr_rec_range *range_named(const struct mr_recording *r, const char *name)
{
    for (uint64_t i = 0; i < r->n_ranges; i++)
        if (!strcmp(text(r, r->ranges[i].text), name))
            return &r->ranges[i];
    fail_msg("no range %s", name);
    return NULL;
}

static void expect_range(const struct mr_recording *r, const char *name, const char *parent,
                         uint16_t depth)
{
    const struct mr_rec_range *range = range_named(r, name);
    assert_int_equal(range->depth, depth);
    if (parent)
        assert_string_equal(text(r, r->ranges[range->parent].text), parent);
    else
        assert_int_equal(range->parent, MR_NONE);
}

static void test_ranges(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, path);
    make_range(&m, "second", 100, 200);
    make_range(&m, "inner", 10, 20);
    make_range(&m, "outer", 10, 100); /* begins with its inner one; ends as the second begins */
    make_range(&m, "never ended", 150, 0);
    make_range_of(&m, "lib", MR_RANGE_PUSH_POP, "of another domain", 15, 150);
    make_range_of(&m, NULL, MR_RANGE_MARK, "mark", 12, 0);
    make_range_of(&m, NULL, MR_RANGE_START_END, "across", 50, 500);
    m.tid = 101;
    make_range(&m, "other thread", 11, 19);
    make_range_of(&m, NULL, MR_RANGE_PUSH_POP_EXTENDED, "extended", 12,
                  13); /* as exports of newer programs have it */
    make_range_of(&m, NULL, MR_RANGE_START_END_EXTENDED, "extended across", 14, 600);
    make_note(&m, "exit", MAKE_BASE + 1000, NULL);
    make_end(&m);
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_ranges, 10);
    expect_range(r, "extended", "other thread", 1);
    assert_int_equal(range_named(r, "extended across")->type, MR_RANGE_START_END);
    expect_range(r, "outer", NULL, 0);
    expect_range(r, "inner", "outer", 1);
    expect_range(r, "mark", "inner", 2);
    expect_range(r, "of another domain", NULL, 0);
    expect_range(r, "across", NULL, 0);
    expect_range(r, "second", NULL, 0);
    expect_range(r, "never ended", NULL, 0);
    expect_range(r, "other thread", NULL, 0);
    assert_int_equal(range_named(r, "never ended")->open, 1);
    assert_int_equal(range_named(r, "never ended")->end_ns, 1000);
    assert_int_equal(range_named(r, "mark")->open, 0);
    assert_int_equal(r->n_unbalanced, 1);
    for (uint64_t i = 1; i < r->n_ranges; i++)
        assert_true(r->ranges[i].start_ns > r->ranges[i - 1].start_ns ||
                    (r->ranges[i].start_ns == r->ranges[i - 1].start_ns &&
                     r->ranges[i].end_ns <= r->ranges[i - 1].end_ns));
    mr_recording_close(r);
}

/* Events in any order come out sorted, each with its own call. */
static void test_any_order(void **state)
{
    (void)state;
    struct make m;
    const uint32_t n = 3000;
    make_begin(&m, path);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = 10000 + test_u64(i) % 100000000;
        make_kernel(&m, 7, i % 3 ? "x" : "y", at, at + 1 + i % 5000);
    }
    make_end(&m);
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_ops, n);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(i == 0 || r->ops[i].start_ns >= r->ops[i - 1].start_ns);
        assert_true(i == 0 || r->apis[i].start_ns >= r->apis[i - 1].start_ns);
        assert_int_equal(r->apis[r->ops[i].api].start_ns, r->ops[i].start_ns - MAKE_LATENCY);
        assert_int_equal(r->op_of_api[r->apis[r->ops[i].api].first_op], i);
        sum += r->ops[i].end_ns - r->ops[i].start_ns;
    }
    uint64_t expected = 0;
    for (uint32_t i = 0; i < n; i++)
        expected += 1 + i % 5000;
    assert_int_equal(sum, expected);
    mr_recording_close(r);
}

static void make_database(const char *sql)
{
    sqlite3 *db;
    unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    sqlite3_close(db);
}

/* The same program as three files tell it: ours, an export of an old exporter, one of a new one.
 * Process 100, thread 101. */
#define EXPORT_PID "1677721600"
#define EXPORT_TID "1677721701"
static const char export_names[] =
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
    "INSERT INTO StringIds VALUES (10, 'cudaMemcpyAsync_v3020'), (11, 'cudaLaunchKernel_v7000'),"
    " (12, 'gemm'), (13, 'void ns::gemm<float>(int)'), (14, 'pthread_cond_wait'), (15, 'step');";

static const char old_export[] =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL, eventClass "
    "INT NOT NULL,"
    " globalTid INT, correlationId INT, nameId INT NOT NULL, returnValue INT NOT NULL);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90000, 205000, 0, " EXPORT_TID ", 1, 10, 0),"
    " (210000, 213000, 0, " EXPORT_TID ", 2, 11, 0);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, "
    "streamId INT,"
    " correlationId INT, demangledName INT, shortName INT, gridX INT);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (215000, 300000, 0, 1, 7, 2, 13, 12, 1);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, contextId INT, "
    "streamId INT,"
    " correlationId INT, bytes INT, copyKind INT, srcKind INT, dstKind INT);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100000, 200000, 0, 1, 13, 1, 4096, 1, 0, 2);"
    "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT);"
    "INSERT INTO NVTX_EVENTS VALUES (80000, 310000, 59, 'step', " EXPORT_TID ");"
    "CREATE TABLE OSRT_API (start INT, end INT, eventClass INT, globalTid INT, nameId INT, "
    "returnValue INT);"
    "INSERT INTO OSRT_API VALUES (81000, 85000, 27, " EXPORT_TID ", 14, 0);";

static const char new_export[] =
    "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);"
    "CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);"
    "INSERT INTO PROCESSES VALUES (" EXPORT_PID ", 100, 'python3');"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT "
    "NULL,"
    " returnValue INTEGER NOT NULL, callchainId INTEGER, something TEXT);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (210000, 213000, 0, " EXPORT_TID
    ", 2, 11, 0, 5, 'x'),"
    " (210000, 213000, 67, " EXPORT_TID ", 2, 11, 0, 5, 'a stack, not a call'),"
    " (90000, 205000, 0, " EXPORT_TID ", 1, 10, 0, NULL, NULL);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, "
    "contextId INTEGER,"
    " greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
    "demangledName INTEGER,"
    " shortName INTEGER, mangledName INTEGER, graphNodeId INTEGER, graphId INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (215000, 300000, 0, 1, NULL, 7, 2, " EXPORT_PID
    ", 13, 12, NULL, NULL, NULL);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, "
    "contextId INTEGER,"
    " greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes "
    "INTEGER,"
    " copyKind INTEGER, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId "
    "INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100000, 200000, 0, 1, NULL, 13, 1, " EXPORT_PID
    ", 4096, 1, NULL, 0, 2, NULL);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid "
    "INTEGER,"
    " textId INTEGER, domainId INTEGER);"
    "INSERT INTO NVTX_EVENTS VALUES (80000, 310000, 59, NULL, " EXPORT_TID ", 15, 0);"
    "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
    "nameId INTEGER,"
    " returnValue INTEGER, nestingLevel INTEGER, callchainId INTEGER);"
    "INSERT INTO OSRT_API VALUES (81000, 85000, 27, " EXPORT_TID ", 14, 0, 0, 0);";

static void make_same_program(void)
{
    struct make m;
    make_begin(&m, path);
    m.tid = 101;
    make_call_of(&m, 1, "cudaMemcpyAsync_v3020", 90000, 205000);
    make_call_of(&m, 2, "cudaLaunchKernel_v7000", 210000, 213000);
    make_copy_of(&m, 1, 13, 100000, 200000, 4096, MR_COPY_H2D, MR_MEM_PAGEABLE);
    make_kernel_of(&m, 2, 7, "gemm", 215000, 300000);
    make_range(&m, "step", 80000, 310000);
    make_os(&m, "pthread_cond_wait", 81000, 85000, 0);
    make_end(&m);
}

static void expect_same_program(const char *which)
{
    struct mr_recording *r = make_load(path);
    print_message("%s\n", which);
    assert_int_equal(r->n_ops, 2);
    assert_int_equal(r->n_apis, 2);
    assert_int_equal(r->n_ranges, 1);
    assert_int_equal(r->n_os, 1);
    assert_int_equal(r->n_processes, 1);
    assert_int_equal(r->n_threads, 1);
    assert_int_equal(r->n_devices, 1);
    assert_int_equal(r->processes[0].pid, 100);
    assert_int_equal(r->threads[0].tid, 101);
    assert_int_equal(r->end_ns, 310000);
    const struct mr_rec_op *copy = &r->ops[0], *kernel = &r->ops[1];
    assert_int_equal(copy->kind, MR_OP_COPY);
    assert_int_equal(copy->start_ns, 100000);
    assert_int_equal(copy->bytes, 4096);
    assert_int_equal(copy->copy_kind, MR_COPY_H2D);
    assert_int_equal(copy->src, MR_MEM_PAGEABLE);
    assert_int_equal(copy->dst, MR_MEM_DEVICE);
    assert_int_equal(copy->api, 0);
    assert_int_equal(kernel->api, 1);
    assert_int_equal(kernel->stream, 7);
    assert_string_equal(text(r, kernel->name), "gemm");
    assert_int_equal(r->apis[0].class, MR_CALL_COPY);
    assert_int_equal(r->apis[1].class, MR_CALL_LAUNCH);
    assert_int_equal(r->apis[0].driver, 0);
    assert_string_equal(text(r, r->ranges[0].text), "step");
    assert_int_equal(r->ranges[0].end_ns, 310000);
    assert_string_equal(text(r, r->os[0].name), "pthread_cond_wait");
    assert_true(r->traced & MR_TRACE_CUDA && r->traced & MR_TRACE_NVTX &&
                r->traced & MR_TRACE_OSRT);
    mr_recording_close(r);
}

static void test_exports(void **state)
{
    (void)state;
    char sql[16384];
    make_same_program();
    expect_same_program("ours");
    snprintf(sql, sizeof(sql), "%s%s", export_names, old_export);
    make_database(sql);
    expect_same_program("an old export");
    snprintf(sql, sizeof(sql), "%s%s", export_names, new_export);
    make_database(sql);
    expect_same_program("a new export");
    /* driver's calls as the export tells them, without its names for them */
    make_database(
        "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, "
        "domainId INT,"
        " textId INT); CREATE TABLE StringIds (id INT, value TEXT);"
        "INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, 'a', 1677721701, 3, NULL),"
        " (0, NULL, 75, 'library', 1677721600, 3, NULL), (5, 9, 59, 'b', 3355443300, 3, NULL)");
    struct mr_recording *r = make_load(path);
    assert_string_equal(text(r, range_named(r, "a")->domain), "library");
    assert_string_equal(text(r, range_named(r, "b")->domain),
                        "?"); /* that number is another process's */
    mr_recording_close(r);
}

static void expect_refused(int rc, const char *why)
{
    struct mr_recording *r = NULL;
    int got = mr_recording_open(path, &r);
    if (got == 0) {
        got = mr_recording_load(r);
        mr_recording_close(r);
    }
    assert_int_equal(got, rc);
    assert_non_null(strstr(mr_last_error(), path));
    if (!strstr(mr_last_error(), why))
        fail_msg("\"%s\" has no \"%s\"", mr_last_error(), why);
}

static void write_file(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static char *read_file(size_t *out_bytes)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    *out_bytes = (size_t)st.st_size;
    char *data = malloc(*out_bytes);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(data, 1, *out_bytes, file), *out_bytes);
    fclose(file);
    return data;
}

static void test_bad_files(void **state)
{
    (void)state;
    unlink(path);
    expect_refused(-ENOENT, "cannot be read");
    write_file("QDSTRM report of another tool, long enough to be looked at", 58);
    expect_refused(MR_EFORMAT, "is not a recording");
    write_file("", 0);
    expect_refused(MR_EFORMAT, "is empty");
    make_database("CREATE TABLE songs (title TEXT)");
    expect_refused(MR_EFORMAT, "no table of CUDA calls");
    make_database("CREATE TABLE MILLRACE_META (name TEXT PRIMARY KEY, value INTEGER); INSERT INTO "
                  "MILLRACE_META VALUES"
                  " ('schema', 2)");
    expect_refused(MR_EUNSUPPORTED, "version 2");
    make_database("CREATE TABLE MILLRACE_META (name TEXT PRIMARY KEY, value INTEGER)");
    expect_refused(MR_EUNSUPPORTED, "not finished");
    make_database(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT PRIMARY KEY, end INT) WITHOUT ROWID");
    expect_refused(MR_EFORMAT, "CUPTI_ACTIVITY_KIND_MEMCPY");
    make_database("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (begin INT, end INT)");
    expect_refused(MR_EFORMAT, "no column start");
    make_database("CREATE TABLE MILLRACE_META (name TEXT PRIMARY KEY, value INTEGER); INSERT INTO "
                  "MILLRACE_META VALUES"
                  " ('schema', 1); CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)");
    expect_refused(MR_EFORMAT, "is incomplete");
}

/* Rows that make no sense are taken as well as they can be. */
static void test_bad_rows(void **state)
{
    (void)state;
    make_database("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, "
                  "streamId, correlationId,"
                  " globalPid, bytes, copyKind, srcKind, dstKind);"
                  "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (-5, 10, -1, -1, -1, -1, -1, -1, "
                  "-1, -1, -1),"
                  " ('soon', 'later', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'),"
                  " (1.5, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300),"
                  " (20, 10, 9223372036854775807, 9223372036854775807, 9223372036854775807, "
                  "9223372036854775807,"
                  "  9223372036854775807, 9223372036854775807, 12, 9223372036854775807, 6),"
                  " (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (x'00', "
                  "x'ff', x'', 1, 1, 1, 1, 1, 1, 1, "
                  "1);"
                  "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT);"
                  "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (7);"
                  "CREATE TABLE StringIds (id, value); INSERT INTO StringIds VALUES (NULL, NULL), "
                  "('a', x'fffe00'), (3, 4.5);"
                  "CREATE TABLE NVTX_EVENTS (start INT, eventType INT, text);"
                  "INSERT INTO NVTX_EVENTS VALUES (3, 59, x'ff'), (4, 60, 12345), (4, 1e300, NULL);"
                  "CREATE VIEW OSRT_API AS SELECT 1 AS start, 2 AS end");
    struct mr_recording *r = make_load(path);
    assert_int_equal(r->n_ops, 3);
    assert_int_equal(r->n_lost_times, 3);
    for (uint64_t i = 0; i < r->n_ops; i++) {
        assert_true(r->ops[i].end_ns >= r->ops[i].start_ns);
        assert_true(r->ops[i].end_ns <= INT64_MAX / 2);
        assert_true(r->ops[i].copy_kind <= MR_COPY_P2P && r->ops[i].src <= MR_MEM_MANAGED_STATIC);
        assert_true(r->ops[i].device < r->n_devices && r->ops[i].process < r->n_processes);
    }
    assert_int_equal(r->n_apis, 1);
    assert_int_equal(r->n_ranges, 2);
    assert_int_equal(r->n_os, 0);
    mr_recording_close(r);
}

/* Cut or overwritten anywhere, a recording is an error that says so, or still one; never a
 * crash. */
static void test_damaged(void **state)
{
    (void)state;
    make_same_program();
    size_t bytes;
    char *data = read_file(&bytes);
    uint32_t n_refused = 0;
    for (uint32_t i = 0; i < 120; i++) {
        char *copy = malloc(bytes);
        memcpy(copy, data, bytes);
        size_t n = i % 2 ? bytes : test_u64(i) % bytes;
        for (uint32_t k = 0; k < 64 && i % 2; k++)
            copy[test_u64(i * 64 + k) % bytes] = (char)test_u64(i * 64 + k + 7);
        write_file(copy, n);
        struct mr_recording *r = NULL;
        int rc = mr_recording_open(path, &r);
        if (rc == 0) {
            rc = mr_recording_load(r);
            mr_recording_close(r);
        }
        assert_true(rc == 0 || rc == MR_EFORMAT || rc == MR_EUNSUPPORTED);
        n_refused += rc != 0;
        free(copy);
    }
    assert_true(n_refused >= 60); /* all that were cut, at least */
    free(data);
}

static void test_store_files(void **state)
{
    (void)state;
    struct mr_store *store;
    make_same_program();
    assert_int_equal(mr_store_create(path, false, &store), -EEXIST);
    unlink(path);
    /* one comes meanwhile */
    assert_int_equal(mr_store_create(path, false, &store), 0);
    write_file("mine", 4);
    assert_int_equal(mr_store_finish(store), -EEXIST);
    size_t bytes;
    free(read_file(&bytes));
    assert_int_equal(bytes, 4);
    /* given up: the old one stays */
    assert_int_equal(mr_store_create(path, true, &store), 0);
    mr_store_abandon(store);
    free(read_file(&bytes));
    assert_int_equal(bytes, 4);
    make_same_program();
    expect_same_program("over another file");
}

static void test_call_classes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum mr_call_class class;
    } calls[] = {
        {"cudaLaunchKernel_v7000", MR_CALL_LAUNCH},
        {"cudaLaunchKernelExC_v11060", MR_CALL_LAUNCH},
        {"cuLaunchKernel", MR_CALL_LAUNCH},
        {"cuLaunchCooperativeKernel", MR_CALL_LAUNCH},
        {"cudaLaunchHostFunc", MR_CALL_OTHER},
        {"cuLaunchHostFunc", MR_CALL_OTHER},
        {"cudaGraphLaunch_v10000", MR_CALL_GRAPH_LAUNCH},
        {"cuGraphLaunch_ptsz", MR_CALL_GRAPH_LAUNCH},
        {"cudaGraphInstantiate", MR_CALL_OTHER},
        {"cudaMemcpyAsync_v3020", MR_CALL_COPY},
        {"cudaMemcpy2DAsync_ptsz_v7000", MR_CALL_COPY},
        {"cuMemcpyHtoDAsync_v2", MR_CALL_COPY},
        {"cuMemcpyPeerAsync", MR_CALL_COPY},
        {"cudaMemsetAsync_v3020", MR_CALL_SET},
        {"cuMemsetD8Async", MR_CALL_SET},
        {"cudaStreamSynchronize_v3020", MR_CALL_SYNC},
        {"cuCtxSynchronize", MR_CALL_SYNC},
        {"cudaEventSynchronize", MR_CALL_SYNC},
        {"cudaDeviceSynchronize_v3020", MR_CALL_SYNC},
        {"cudaStreamWaitEvent", MR_CALL_OTHER},
        {"cudaMalloc_v3020", MR_CALL_ALLOC},
        {"cudaMallocAsync_v11020", MR_CALL_ALLOC},
        {"cudaMallocManaged", MR_CALL_ALLOC},
        {"cuMemAlloc_v2", MR_CALL_ALLOC},
        {"cudaFree_v3020", MR_CALL_ALLOC},
        {"cuMemFreeAsync", MR_CALL_ALLOC},
        {"cudaMallocHost_v3020", MR_CALL_PIN},
        {"cudaHostAlloc_v3020", MR_CALL_PIN},
        {"cudaFreeHost_v3020", MR_CALL_PIN},
        {"cuMemHostRegister_v2", MR_CALL_PIN},
        {"cuMemAllocHost_v2", MR_CALL_PIN},
        {"cuMemFreeHost", MR_CALL_PIN},
        {"cudaEventQuery_v3020", MR_CALL_QUERY},
        {"cudaStreamQuery", MR_CALL_QUERY},
        {"cudaGetDevice", MR_CALL_QUERY},
        {"cudaDeviceGetAttribute", MR_CALL_QUERY},
        {"cudaPeekAtLastError", MR_CALL_QUERY},
        {"cuModuleLoadData", MR_CALL_MODULE},
        {"cuLibraryLoadData", MR_CALL_MODULE},
        {"cudaEventRecord_v3020", MR_CALL_OTHER},
        {"cudart", MR_CALL_OTHER},
        {"cube", MR_CALL_OTHER},
        {"read", MR_CALL_OTHER},
        {"", MR_CALL_OTHER},
    };
    for (size_t i = 0; i < MR_COUNT(calls); i++)
        if (mr_call_class_of(calls[i].name) != calls[i].class)
            fail_msg("%s is %d", calls[i].name, (int)mr_call_class_of(calls[i].name));
}

static void test_short_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"gemm", "gemm"},
        {"ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"},
        {"kernel(int*, float)", "kernel"},
        {"void kernel<4, float>(float*)", "kernel"},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
         "std::array<char*, 1> "
         ">(int)",
         "vectorized_elementwise_kernel"},
        {"void (anonymous namespace)::softmax<c10::Half>(c10::Half*)", "softmax"},
        {"void at::native::(anonymous namespace)::CatArray<(anonymous namespace)::Op<1>, "
         "2>(unsigned int)",
         "CatArray"},
        {"void outer<int>::inner<float>::run<3>(int) [clone .isra.0]", "run"},
        {"void thrust::a<thrust::b<int, (int)5>, {lambda(int)#1}>(char)", "a"},
        {"std::vector<int> f<g->h>()", "f"},
        {"", ""},
        {"(", "("},
        {"a<b", "a"},
        {"::", "::"},
    };
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        size_t bytes;
        const char *from = mr_short_name(names[i][0], strlen(names[i][0]), &bytes);
        if (bytes != strlen(names[i][1]) || memcmp(from, names[i][1], bytes) != 0)
            fail_msg("%s is %.*s", names[i][0], (int)bytes, from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_runtime_is_parent),
        cmocka_unit_test(test_processes),   cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_ranges),      cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_exports),     cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_rows),    cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_store_files), cmocka_unit_test(test_call_classes),
        cmocka_unit_test(test_short_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
