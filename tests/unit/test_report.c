/* Reports against sums that are made here of the same events; exports of other versions are made by
 * hand. */
#include "recording_make.h"

#include <math.h>
#include <sqlite3.h>

#define N     3000
#define PATH  "test_report.sqlite"
#define OTHER "test_report_other.sqlite"
#define SPAN  1000000000ull

enum what { KERNEL, H2D, D2H, SET, OS, RANGE, N_WHAT };

struct event {
    enum what what;
    uint64_t start, end, bytes;
    char name[48];
};

static struct event events[N];

static struct event draw_event(uint32_t i)
{
    static const char *const formats[] = {"kernel_%u",
                                          "[CUDA memcpy Host-to-Device]",
                                          "[CUDA memcpy Device-to-Host]",
                                          "[CUDA memset]",
                                          "call_%u",
                                          ":range_%u"};
    uint64_t r = test_u64(i), s = test_u64(i + N);
    struct event e = {.what = (enum what)(r % N_WHAT)};
    e.start = 10000 + (r >> 8) % SPAN;
    e.end = e.start + s % (s % 3 ? 5000 : 6000000000); /* some last longer than 32 bits of ns */
    e.bytes = 1 + (s >> 20) % 100000000;
    snprintf(e.name, sizeof e.name, formats[e.what], (unsigned)(s % 7));
    return e;
}

static void put_event(struct make *m, const struct event *e)
{
    switch (e->what) {
    case KERNEL:
        make_kernel(m, 7, e->name, e->start, e->end);
        break;
    case H2D:
    case D2H:
        make_copy(m, 13, e->start, e->end, e->bytes, e->what == H2D ? MR_COPY_H2D : MR_COPY_D2H,
                  MR_MEM_PINNED);
        break;
    case SET:
        make_set(m, 7, e->start, e->end, e->bytes, MR_MEM_DEVICE);
        break;
    case OS:
        make_os(m, e->name, e->start, e->end, e->bytes);
        break;
    default:
        make_range(m, e->name + 1, e->start, e->end);
    }
}

static int make_events(void **state)
{
    struct make m;
    (void)state;
    make_begin(&m, PATH);
    make_device(&m, 0, "Some GPU");
    for (uint32_t i = 0; i < N; i++) {
        events[i] = draw_event(i);
        if (i == N / 2)
            make_process(&m, 200, "python3 other.py");
        put_event(&m, &events[i]);
    }
    make_end(&m);
    return 0;
}

static struct mr_recording *open_at(const char *path)
{
    struct mr_recording *recording = NULL;
    if (mr_recording_open(path, &recording) < 0)
        fail_msg("%s", mr_last_error());
    return recording;
}

static struct mr_table *report(struct mr_recording *recording, const char *name,
                               const struct mr_report_opts *opts)
{
    struct mr_table *table = NULL;
    if (mr_report_make(recording, name, opts, &table) < 0)
        fail_msg("%s", mr_last_error());
    return table;
}

static uint32_t column(const struct mr_table *table, const char *name)
{
    for (uint32_t c = 0; c < mr_table_columns(table); c++)
        if (strcmp(mr_table_column(table, c)->name, name) == 0)
            return c;
    fail_msg("no column %s", name);
    return 0;
}

static double number(const struct mr_table *table, uint64_t row, const char *name)
{
    struct mr_cell cell = mr_table_cell(table, row, column(table, name));
    assert_true(cell.type == MR_CELL_INT || cell.type == MR_CELL_REAL);
    return cell.real;
}

static const char *text(const struct mr_table *table, uint64_t row, const char *name)
{
    struct mr_cell cell = mr_table_cell(table, row, column(table, name));
    return cell.type == MR_CELL_TEXT ? cell.text : "";
}

/* The row of this text; UINT64_MAX: none. */
static uint64_t row_of(const struct mr_table *table, const char *head, const char *name)
{
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (strcmp(text(table, r, head), name) == 0)
            return r;
    return UINT64_MAX;
}

static double sum_of(const struct mr_table *table, const char *name)
{
    double sum = 0;
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        sum += number(table, r, name);
    return sum;
}

/* ---- sums ---- */

struct sum_report {
    const char *name, *total, *count, *label;
    unsigned what; /* bits */
    bool sizes;
};
static const struct sum_report sum_reports[] = {
    {"nvtx_sum", "Total Time", "Instances", "Range", 1u << RANGE, false},
    {"osrt_sum", "Total Time", "Num Calls", "Name", 1u << OS, false},
    {"cuda_gpu_kern_sum", "Total Time", "Instances", "Name", 1u << KERNEL, false},
    {"cuda_gpu_mem_time_sum", "Total Time", "Count", "Operation", 1u << H2D | 1u << D2H | 1u << SET,
     false},
    {"cuda_gpu_mem_size_sum", "Total", "Count", "Operation", 1u << H2D | 1u << D2H | 1u << SET,
     true},
    {"cuda_gpu_sum", "Total Time", "Instances", "Operation",
     1u << KERNEL | 1u << H2D | 1u << D2H | 1u << SET, false},
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The row of a name against the values sorted and added up here. Returns how many there are. */
static uint64_t check_row(const struct mr_table *table, const struct sum_report *kind,
                          const char *name, uint64_t from, uint64_t to)
{
    static uint64_t values[N];
    uint64_t n = 0;
    double total = 0, squares = 0;
    for (uint32_t i = 0; i < N; i++) {
        const struct event *e = &events[i];
        if ((kind->what >> e->what & 1) && strcmp(e->name, name) == 0 && e->start >= from &&
            e->start < to) {
            values[n] = kind->sizes ? e->bytes : e->end - e->start;
            total += (double)values[n++];
        }
    }
    uint64_t r = row_of(table, kind->label, name);
    if (n == 0) {
        assert_true(r == UINT64_MAX);
        return 0;
    }
    assert_true(r != UINT64_MAX);
    qsort(values, n, sizeof *values, by_value);
    for (uint64_t i = 0; i < n; i++)
        squares +=
            ((double)values[i] - total / (double)n) * ((double)values[i] - total / (double)n);
    double deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    uint64_t half = n / 2;
    double median =
        n % 2 ? (double)values[half] : ((double)values[half - 1] + (double)values[half]) / 2;
    assert_true(number(table, r, kind->count) == (double)n);
    assert_true(number(table, r, kind->total) == total);
    assert_true(number(table, r, "Avg") == total / (double)n);
    assert_true(number(table, r, "Med") == median);
    assert_true(number(table, r, "Min") == (double)values[0]);
    assert_true(number(table, r, "Max") == (double)values[n - 1]);
    assert_true(fabs(number(table, r, "StdDev") - deviation) <= deviation * 1e-9);
    return n;
}

static void check_sums(uint64_t from, uint64_t to)
{
    struct mr_recording *recording = open_at(PATH);
    struct mr_report_opts opts;
    mr_report_opts_init(&opts);
    opts.from_ns = from;
    opts.to_ns = to;
    for (size_t k = 0; k < sizeof sum_reports / sizeof *sum_reports; k++) {
        const struct sum_report *kind = &sum_reports[k];
        struct mr_table *table = report(recording, kind->name, &opts);
        uint64_t n = 0, rows = mr_table_rows(table);
        for (uint64_t r = 0; r < rows; r++)
            n += check_row(table, kind, text(table, r, kind->label), from, to ? to : UINT64_MAX);
        uint64_t want = 0;
        for (uint32_t i = 0; i < N; i++)
            want += (kind->what >> events[i].what & 1) && events[i].start >= from &&
                    (!to || events[i].start < to);
        assert_int_equal(n, want);
        for (uint64_t r = 1; r < rows; r++)
            assert_true(number(table, r - 1, kind->total) >= number(table, r, kind->total));
        if (!kind->sizes && rows)
            assert_true(fabs(sum_of(table, "Time") - 100) < 1e-6);
        mr_table_destroy(table);
    }
    mr_recording_close(recording);
}

static void sums_are_exact(void **state)
{
    (void)state;
    check_sums(0, 0);
}

static void windows_and_their_complements_make_the_whole(void **state)
{
    (void)state;
    check_sums(0, SPAN / 3);
    check_sums(SPAN / 3, 0);
    check_sums(SPAN / 3, SPAN / 2);
}

/* Whether a kernel, or the call that launched it, began inside of a range: of any process, or of
 * its own. */
static bool is_inside(uint32_t kernel, const char *range, bool by_time)
{
    uint64_t at = events[kernel].start - (by_time ? 0 : MAKE_LATENCY);
    for (uint32_t k = 0; k < N; k++)
        if (events[k].what == RANGE && strcmp(events[k].name, range) == 0 &&
            at >= events[k].start && at < events[k].end &&
            (by_time || (k < N / 2) == (kernel < N / 2)))
            return true;
    return false;
}

static void ranges_take_what_begins_inside(void **state)
{
    static const char *const ranges[] = {"range_3", "@range_3"};
    (void)state;
    struct mr_recording *recording = open_at(PATH);
    struct mr_report_opts opts;
    mr_report_opts_init(&opts);
    for (int k = 0; k < 4; k++) {
        uint64_t want = 0;
        opts.range = ranges[k % 2];
        opts.by_time = k / 2;
        for (uint32_t i = 0; i < N; i++)
            want += events[i].what == KERNEL && is_inside(i, ":range_3", opts.by_time);
        struct mr_table *table = report(recording, "cuda_gpu_kern_sum", &opts);
        assert_non_null(
            strstr(mr_table_title(table), opts.by_time ? ": begun inside" : ": launched inside"));
        assert_int_equal(sum_of(table, "Instances"), want);
        mr_table_destroy(table);
    }
    struct mr_table *table;
    opts.range = "no such";
    assert_int_equal(mr_report_make(recording, "cuda_gpu_kern_sum", &opts, &table), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "nvtx_sum"));
    mr_recording_close(recording);
}

static void api_calls_lose_their_version(void **state)
{
    (void)state;
    struct mr_recording *recording = open_at(PATH);
    struct mr_table *table = report(recording, "cuda_api_sum", NULL);
    uint64_t launches = 0;
    for (uint32_t i = 0; i < N; i++)
        launches += events[i].what == KERNEL;
    uint64_t r = row_of(table, "Name", "cudaLaunchKernel");
    assert_true(r != UINT64_MAX);
    assert_int_equal(number(table, r, "Num Calls"), launches);
    mr_table_destroy(table);
    mr_recording_close(recording);
}

/* ---- traces ---- */

static void traces_add_up_to_sums(void **state)
{
    (void)state;
    struct mr_recording *recording = open_at(PATH);
    struct mr_table *trace = report(recording, "cuda_gpu_trace", NULL),
                    *sum = report(recording, "cuda_gpu_sum", NULL);
    assert_true(sum_of(trace, "Duration") == sum_of(sum, "Total Time"));
    assert_true((double)mr_table_rows(trace) == sum_of(sum, "Instances"));
    for (uint64_t r = 1; r < mr_table_rows(trace); r++)
        assert_true(number(trace, r - 1, "Start") <= number(trace, r, "Start"));
    assert_string_equal(text(trace, 0, "Device"), "Some GPU (0)");
    mr_table_destroy(trace);
    mr_table_destroy(sum);
    trace = report(recording, "cuda_api_trace", NULL);
    sum = report(recording, "cuda_api_sum", NULL);
    assert_true(sum_of(trace, "Duration") == sum_of(sum, "Total Time"));
    assert_true((double)mr_table_rows(trace) == sum_of(sum, "Num Calls"));
    mr_table_destroy(trace);
    mr_table_destroy(sum);
    mr_recording_close(recording);
}

/* What SQL leaves out for a limit is what the whole table, sorted and cut, leaves out. */
static void limits_are_those_of_the_whole(void **state)
{
    (void)state;
    struct mr_recording *recording = open_at(PATH);
    for (const char **name = (const char *[]){"cuda_gpu_trace", "mem_ops", "cuda_api_trace", NULL};
         *name; name++) {
        for (const char **sort = (const char *[]){"", "start", "duration", "-duration", NULL};
             *sort; sort++) {
            struct mr_report_opts opts;
            mr_report_opts_init(&opts);
            opts.sort = *sort;
            struct mr_table *whole = report(recording, *name, &opts);
            opts.limit = 10;
            struct mr_table *cut = report(recording, *name, &opts);
            assert_int_equal(mr_table_rows(cut), 10);
            for (uint64_t r = 0; r < 10; r++) {
                assert_true(number(cut, r, "Start") == number(whole, r, "Start"));
                assert_true(number(cut, r, "Duration") == number(whole, r, "Duration"));
            }
            mr_table_destroy(whole);
            mr_table_destroy(cut);
        }
    }
    mr_recording_close(recording);
}

static void lost_times_are_left_out_and_counted(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, OTHER);
    make_kernel(&m, 7, "one", 10000, 20000);
    make_kernel_of(&m, 77, 7, "one", 0, 0);
    make_kernel_of(&m, 78, 7, "two", 0, 0);
    make_end(&m);
    struct mr_recording *recording = open_at(OTHER);
    for (const char **name =
             (const char *[]){"cuda_gpu_kern_sum", "cuda_gpu_trace", "cuda_kern_exec_sum", NULL};
         *name; name++) {
        struct mr_table *table = report(recording, *name, NULL);
        assert_int_equal(mr_table_rows(table), 1);
        assert_non_null(strstr(mr_table_note(table), "2 records without a time left out"));
        mr_table_destroy(table);
    }
    mr_recording_close(recording);
}

/* ---- joins ---- */

static const char *blocked_at(const struct mr_table *table, double start)
{
    for (uint64_t r = 0; r < mr_table_rows(table); r++)
        if (number(table, r, "Start") == start)
            return text(table, r, "Host Blocked");
    fail_msg("no operation at %g", start);
    return NULL;
}

static void mem_ops_know_their_calls(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, OTHER);
    make_device(&m, 0, "Some GPU");
    make_thread(&m, 100, "loader");
    make_copy(&m, 7, 100000, 200000, 1 << 20, MR_COPY_H2D,
              MR_MEM_PAGEABLE); /* returns when it is done */
    make_copy(&m, 7, 300000, 400000, 4 << 20, MR_COPY_H2D,
              MR_MEM_PINNED); /* then a synchronisation */
    make_sync(&m, 7, 301000, 401000);
    make_copy(&m, 7, 500000, 600000, 1 << 20, MR_COPY_H2D,
              MR_MEM_PINNED); /* then a kernel, then one */
    make_kernel(&m, 7, "k", 600000, 700000);
    make_sync(&m, 7, 598500, 701000);
    make_copy(&m, 7, 800000, 900000, 100, MR_COPY_D2H, MR_MEM_PINNED); /* nobody waits */
    make_sync(&m, 7, 950000, 951000);
    uint32_t call = make_call(&m, "cuMemcpyHtoD_v2", 1000000,
                              1100000); /* by name; the runtime's call is preferred */
    make_call_of(&m, call, "cudaMemcpy_v3020", 999000, 1101000);
    make_copy_of(&m, call, 7, 1010000, 1099000, 64, MR_COPY_H2D, MR_MEM_PINNED);
    make_copy_of(&m, 4000, 7, 1200000, 1300000, 64, MR_COPY_H2D, MR_MEM_PINNED); /* of no call */
    make_set(&m, 7, 1400000, 1400500, 64, MR_MEM_DEVICE);
    call = make_call(&m, "cudaMemcpyAsync_v3020", 1600000,
                     1680000); /* staged: returns a little before the end */
    make_copy_of(&m, call, 7, 1610000, 1700000, 1 << 20, MR_COPY_H2D, MR_MEM_PAGEABLE);
    call = make_call(&m, "cudaMemcpyAsync_v3020", 1800000, 1801000); /* small: taken along */
    make_copy_of(&m, call, 7, 1800500, 1801800, 4096, MR_COPY_H2D, MR_MEM_PAGEABLE);
    make_process(&m, 200, "other"); /* with the same numbers of correlation */
    make_copy(&m, 7, 1500000, 1500100, 64, MR_COPY_H2D, MR_MEM_PAGEABLE);
    make_end(&m);
    struct mr_recording *recording = open_at(OTHER);
    struct mr_table *table = report(recording, "mem_ops", NULL);
    assert_int_equal(mr_table_rows(table), 10);
    assert_string_equal(blocked_at(table, 1610000), "in the call");
    assert_string_equal(blocked_at(table, 1800500), "no");
    assert_string_equal(blocked_at(table, 100000), "in the call");
    assert_string_equal(blocked_at(table, 300000), "synchronised");
    assert_string_equal(blocked_at(table, 500000), "no");
    assert_string_equal(blocked_at(table, 800000), "no");
    assert_string_equal(blocked_at(table, 1010000), "in the call");
    assert_string_equal(blocked_at(table, 1200000), "");
    assert_string_equal(blocked_at(table, 1400000), "no");
    assert_string_equal(text(table, 0, "Thread Name"), "loader");
    assert_string_equal(text(table, 0, "SrcMemKd"), "Pageable");
    assert_string_equal(text(table, 1, "SrcMemKd"), "Pinned");
    assert_string_equal(text(table, 4, "API Call"), "cudaMemcpy");
    assert_true(number(table, 7, "Tid") == 200);
    assert_true(number(table, 0, "Of Link") == 25);
    assert_true(number(table, 1, "Of Link") == 100);
    mr_table_destroy(table);
    struct mr_report_opts opts;
    mr_report_opts_init(&opts);
    opts.sort = "duration";
    opts.limit = 1;
    opts.link_gbps = 20;
    table = report(recording, "mem_ops", &opts);
    assert_int_equal(mr_table_rows(table), 1);
    assert_true(number(table, 0, "Duration") == 100000);
    assert_true(fabs(number(table, 0, "Of Link") - 100.0 * (1 << 20) / 100000 / 20) < 1e-9);
    assert_true(number(table, 0, "API Duration") == 200000 + 1000 - 95000);
    mr_table_destroy(table);
    /* of a caller that was built with an older header, and of one that never filled them */
    opts.size = offsetof(struct mr_report_opts, link_gbps);
    table = report(recording, "mem_ops", &opts);
    assert_true(number(table, 0, "Of Link") == 25);
    mr_table_destroy(table);
    opts.size = 0;
    assert_int_equal(mr_report_make(recording, "mem_ops", &opts, &table), MR_EMISUSE);
    opts.size = sizeof opts + 8;
    assert_int_equal(mr_report_make(recording, "mem_ops", &opts, &table), MR_EMISUSE);
    mr_recording_close(recording);
}

static void launches_are_followed_to_the_kernels_end(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, OTHER);
    make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", 1000, 3000), 7, "k", 10000,
                   30000); /* waits 7000 */
    make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", 31000, 35000), 7, "k", 34000,
                   50000); /* none */
    make_kernel_of(&m, make_call(&m, "cuLaunchKernel", 60000, 61000), 7, "k", 61500, 70000);
    make_kernel_of(&m, 9999, 7, "k", 80000, 90000);
    make_end(&m);
    struct mr_recording *recording = open_at(OTHER);
    struct mr_table *table = report(recording, "cuda_kern_exec_sum", NULL);
    assert_int_equal(mr_table_rows(table), 2);
    assert_string_equal(text(table, 0, "API Name"), "cudaLaunchKernel");
    assert_true(number(table, 0, "Count") == 2 && number(table, 0, "QCount") == 1);
    assert_true(number(table, 0, "TAvg") == (29000 + 19000) / 2.0 &&
                number(table, 0, "TMin") == 19000);
    assert_true(number(table, 0, "AMed") == 3000 && number(table, 0, "AMax") == 4000);
    assert_true(number(table, 0, "QAvg") == 7000 && number(table, 0, "QStdDev") == 0);
    assert_true(number(table, 0, "KMed") == 18000 && number(table, 0, "PID") == 100);
    assert_true(number(table, 1, "QAvg") == 500);
    assert_non_null(strstr(mr_table_note(table), "1 kernel whose call is not recorded"));
    mr_table_destroy(table);
    mr_recording_close(recording);
}

static void domains_and_open_ranges(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, OTHER);
    make_range_of(&m, "torch", MR_RANGE_PUSH_POP, "step", 1000, 2000);
    make_range_of(&m, "torch", MR_RANGE_START_END, "step", 1000, 4000);
    make_range(&m, "step", 5000, 6000);
    make_range(&m, "forever", 5000, 0);
    make_kernel(&m, 7, "in", 1500, 1600);
    make_kernel(&m, 7, "out", 5500, 5600);
    make_end(&m);
    struct mr_recording *recording = open_at(OTHER);
    struct mr_table *table = report(recording, "nvtx_sum", NULL);
    assert_int_equal(mr_table_rows(table), 3);
    assert_string_equal(text(table, 0, "Range"), "torch:step");
    assert_string_equal(text(table, 0, "Style"), "StartEnd");
    assert_string_equal(text(table, 1, "Style"), "PushPop");
    assert_true(row_of(table, "Range", ":step") != UINT64_MAX);
    assert_non_null(strstr(mr_table_note(table), "1 range never ended"));
    mr_table_destroy(table);
    struct mr_report_opts opts;
    mr_report_opts_init(&opts);
    opts.by_time = 1; /* their calls begin with the recording */
    for (int i = 0; i < 2; i++) {
        opts.range = i ? "step@torch" : "torch@step";
        table = report(recording, "cuda_gpu_kern_sum", &opts);
        assert_int_equal(mr_table_rows(table), 1);
        assert_string_equal(text(table, 0, "Name"), "in");
        mr_table_destroy(table);
    }
    mr_recording_close(recording);
}

/* ---- exports of nsys, by hand ---- */

static sqlite3 *start_export(const char *path)
{
    sqlite3 *db;
    remove(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    return db;
}

static void sql(sqlite3 *db, const char *text_)
{
    char *error = NULL;
    if (sqlite3_exec(db, text_, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", text_, error);
}

#define TID(pid, tid) ((1ull << 56) + ((uint64_t)(pid) << 24) + (tid))

static void exports_of_an_older_schema(void **state)
{
    (void)state;
    char row[512];
    sqlite3 *db = start_export(OTHER);
    sql(db,
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
        "INSERT INTO StringIds VALUES (1, 'kernel(int)'), (2, 'kernel'), (3, "
        "'cudaLaunchKernel_v7000'),"
        " (4, 'cudaMemcpyAsync_v3020');"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, "
        "contextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, "
        "shortName INTEGER,"
        " registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, "
        "blockY INTEGER,"
        " blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, "
        "contextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind "
        "INTEGER,"
        " srcKind INTEGER, dstKind INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, "
        "contextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes "
        "INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,"
        " globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, "
        "globalTid INTEGER);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (500, 600, 0, 1, 7, 12, 0, 0, 64);"
        "INSERT INTO NVTX_EVENTS VALUES (0, 1000, 59, 'step', 0), (1000, 3000, 59, 'step', 0);");
    snprintf(row, sizeof row,
             "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 300, 0, 1, 7, 10, %llu, 1, 2, "
             "32, 8, 1, 1, 64, 1, 1, 0, "
             "0); INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (400, 450, 0, 1, 7, 11, %llu, "
             "1000, 1, 0, 2);"
             "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 0, %llu, 10, 3, 0), (390, "
             "460, 0, %llu, 11, 4, 0)",
             TID(42, 0), TID(42, 0), TID(42, 43), TID(42, 43));
    sql(db, row);
    sqlite3_close(db);
    struct mr_recording *recording = open_at(OTHER);
    struct mr_table *table = report(recording, "nvtx_sum", NULL);
    assert_string_equal(text(table, 0, "Range"), ":step");
    assert_true(number(table, 0, "Med") == 1500);
    mr_table_destroy(table);
    table = report(recording, "cuda_gpu_trace", NULL);
    assert_int_equal(mr_table_rows(table), 3);
    assert_string_equal(text(table, 0, "Name"), "kernel(int)");
    assert_true(number(table, 1, "Throughput") == 1000e9 / 50);
    assert_string_equal(text(table, 2, "DstMemKd"), "Unknown");
    mr_table_destroy(table);
    table = report(recording, "mem_ops", NULL);
    assert_string_equal(text(table, 0, "API Call"), "cudaMemcpyAsync");
    assert_string_equal(text(table, 0, "SrcMemKd"), "Pageable");
    assert_true(number(table, 0, "Tid") == 43);
    mr_table_destroy(table);
    table = report(recording, "osrt_sum", NULL);
    assert_int_equal(mr_table_rows(table), 0);
    assert_non_null(strstr(mr_table_note(table), "--trace osrt"));
    mr_table_destroy(table);
    mr_recording_close(recording);
}

/* Every report of an export that has next to nothing is an empty table that says so; none fails. */
static void missing_tables_are_told(void **state)
{
    (void)state;
    const char *name;
    sqlite3 *db = start_export(OTHER);
    sql(db, "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)");
    sqlite3_close(db);
    struct mr_recording *recording = open_at(OTHER);
    for (uint32_t i = 0; (name = mr_report_name(i, NULL)); i++) {
        struct mr_table *table = report(recording, name, NULL);
        assert_int_equal(mr_table_rows(table), 0);
        assert_non_null(mr_table_note(table));
        mr_table_destroy(table);
    }
    mr_recording_close(recording);
}

/* Columns of other types, no strings, negative times, rowids at the ends of their range: no report
 * may fail badly. */
static void strange_exports_do_no_harm(void **state)
{
    (void)state;
    const char *name;
    sqlite3 *db = start_export(OTHER);
    sql(db,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start TEXT, end BLOB, deviceId, contextId, "
        "streamId,"
        " correlationId, globalPid, demangledName, registersPerThread, gridX, gridY, gridZ, "
        "blockX, blockY, blockZ,"
        " staticSharedMemory, dynamicSharedMemory);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (rowid, start, end, demangledName, deviceId) VALUES"
        " (-9223372036854775808, 'x', NULL, NULL, -1), (9223372036854775807, 5, "
        "9223372036854775807, 77, 99),"
        " (3, 10, 5, 1, 1), (4, -10, -5, 1, 1), (5, 1e300, x'00', 'name', 1);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, "
        "correlationId, bytes,"
        " copyKind, srcKind, dstKind);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 3, 4, 5, 6, -7, 800, -9, 1e30);"
        "CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS SELECT 1 AS start, 2 AS end;"
        "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, domainId, globalTid);"
        "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, x'ff00ff', NULL, -1, NULL), (1, 2, 60, NULL, "
        "NULL, 3, 1)");
    sqlite3_close(db);
    struct mr_recording *recording = open_at(OTHER);
    for (uint32_t i = 0; (name = mr_report_name(i, NULL)); i++) {
        struct mr_table *table = NULL;
        int rc = mr_report_make(recording, name, NULL, &table);
        assert_true(rc <= 0);
        if (rc == 0)
            mr_table_destroy(table);
        else
            assert_non_null(strstr(mr_last_error(), OTHER));
    }
    struct mr_table *table = report(recording, "cuda_gpu_kern_sum", NULL);
    assert_non_null(strstr(mr_table_note(table), "end"));
    mr_table_destroy(table);
    mr_recording_close(recording);
}

/* Enough rows that several threads read them; every kernel has its own name, and each comes
 * twice. */
static void a_million_names(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    const uint32_t n = 100000;
#else
    const uint32_t n = 1000000;
#endif
    sqlite3_stmt *string, *kernel;
    char name[64];
    sqlite3 *db = start_export(OTHER);
    sql(db, "PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF; BEGIN;"
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName "
            "INTEGER)");
    sqlite3_prepare_v2(db, "INSERT INTO StringIds VALUES (?, ?)", -1, &string, NULL);
    sqlite3_prepare_v2(db, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", -1, &kernel,
                       NULL);
    for (uint32_t i = 0; i < n; i++) {
        sqlite3_bind_int(string, 1, (int)i);
        sqlite3_bind_text(string, 2, name, snprintf(name, sizeof name, "kernel_%u", i),
                          SQLITE_STATIC);
        sqlite3_step(string);
        sqlite3_reset(string);
    }
    for (uint32_t i = 0; i < 2 * n; i++) {
        sqlite3_bind_int64(kernel, 1, 1000 + i);
        sqlite3_bind_int64(kernel, 2, 2000 + 2 * (int64_t)i);
        sqlite3_bind_int(kernel, 3, (int)(i % n));
        sqlite3_step(kernel);
        sqlite3_reset(kernel);
    }
    sqlite3_finalize(string);
    sqlite3_finalize(kernel);
    sql(db, "COMMIT");
    sqlite3_close(db);
    struct mr_recording *recording = open_at(OTHER);
    struct mr_table *table = report(recording, "cuda_gpu_kern_sum", NULL);
    assert_int_equal(mr_table_rows(table), n);
    char last[64];
    snprintf(last, sizeof last, "kernel_%u", n - 1);
    /* the last kernel's durations: 1000 + i and 1000 + i + n */
    assert_string_equal(text(table, 0, "Name"), last);
    assert_true(number(table, 0, "Total Time") == 2 * (1000.0 + n - 1) + n);
    assert_true(number(table, 0, "Med") == 1000.0 + n - 1 + n / 2.0);
    assert_true(number(table, n - 1, "Total Time") == 2000.0 + n);
    mr_table_destroy(table);
    mr_recording_close(recording);
}

/* ---- comparison ---- */

static void make_run(const char *path, uint64_t gemm, uint64_t copy, bool extra)
{
    struct make m;
    make_begin(&m, path);
    for (uint64_t i = 1; i <= 10; i++) {
        make_kernel(&m, 7, "gemm", i * 100000, i * 100000 + gemm);
        make_copy(&m, 7, i * 100000 + 50000, i * 100000 + 50000 + copy, 4096, MR_COPY_H2D,
                  MR_MEM_PINNED);
        if (extra)
            make_kernel(&m, 7, "extra", i * 100000 + 30000, i * 100000 + 31000);
    }
    make_end(&m);
}

static void comparisons_find_what_got_slower(void **state)
{
    (void)state;
    static const struct {
        double threshold;
        uint64_t gemm, copy;
        bool extra;
        uint64_t slower;
        const char *first;
    } cases[] = {{10, 10000, 5000, false, 0, NULL},   {10, 12000, 5000, false, 1, "slower"},
                 {30, 12000, 5000, false, 0, NULL},   {10, 8000, 5000, false, 0, "faster"},
                 {10, 12000, 6000, false, 2, NULL},   {1000, 10000, 5000, true, 1, "new"},
                 {10, 10001, 5000, false, 0, "same"}, {0, 10000, 5000, false, 0, "same"}};
    make_run(PATH ".before", 10000, 5000, false);
    struct mr_recording *before = open_at(PATH ".before");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mr_table *table;
        uint64_t slower;
        make_run(OTHER, cases[i].gemm, cases[i].copy, cases[i].extra);
        struct mr_recording *after = open_at(OTHER);
        assert_int_equal(mr_report_diff(before, after, cases[i].threshold, &slower, &table), 0);
        /* one more launch a kernel: its calls are slower too */
        if (!cases[i].extra)
            assert_int_equal(slower, cases[i].slower);
        else
            assert_true(slower >= cases[i].slower && row_of(table, "Verdict", "new") != UINT64_MAX);
        if (cases[i].first && !cases[i].extra)
            assert_string_equal(text(table, 0, "Verdict"), cases[i].first);
        mr_table_destroy(table);
        assert_int_equal(mr_report_diff(after, before, cases[i].threshold, NULL, &table), 0);
        assert_int_equal(row_of(table, "Verdict", "gone") != UINT64_MAX, cases[i].extra);
        mr_table_destroy(table);
        mr_recording_close(after);
    }
    struct mr_table *table;
    assert_int_equal(mr_report_diff(before, before, -1, NULL, &table), MR_EOPTION);
    mr_recording_close(before);
    remove(PATH ".before");
}

/* Sums by GPU and metric: the second process's device 0 is the first one's device 1. */
static void gpu_metrics_are_added_up(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, OTHER);
    make_device(&m, 0, "Some GPU");
    make_device(&m, 1, "Some GPU");
    for (uint32_t i = 0; i < 1000; i++) {
        make_metric(&m, "SMs Active [Throughput %]", 0, 1000 * i, i < 500 ? 0 : 50);
        make_metric(&m, "Tensor Active [Throughput %]", 0, 1000 * i, i % 10);
    }
    make_process(&m, 200, "python3 other.py");
    struct mr_part_device other = {.device = 0, .uuid = {[0] = 0x42, [15] = 1}};
    make_put(&m, MR_PART_DEVICE, &other);
    make_metric(&m, "SMs Active [Throughput %]", 0, 5000, 99);
    make_end(&m);
    struct mr_recording *recording = open_at(OTHER);
    struct mr_table *table = report(recording, "gpu_metrics_sum", NULL);
    assert_int_equal(mr_table_rows(table), 3);
    uint64_t n_samples = 0;
    for (uint64_t row = 0; row < 3; row++) {
        bool second = number(table, row, "Device") == 1,
             tensor = text(table, row, "Metric")[0] == 'T';
        n_samples += (uint64_t)number(table, row, "Samples");
        assert_true(fabs(number(table, row, "Avg") - (second ? 99 : tensor ? 4.5 : 25)) < 1e-9);
        assert_true(number(table, row, "Max") == (second ? 99 : tensor ? 9 : 50));
        assert_true(number(table, row, "Min") == (second ? 99 : 0));
    }
    assert_int_equal(n_samples, 2001);
    mr_table_destroy(table);
    struct mr_report_opts opts;
    mr_report_opts_init(&opts);
    opts.from_ns = 500 * 1000;
    table = report(recording, "gpu_metrics_sum", &opts);
    assert_int_equal(mr_table_rows(table), 2);
    for (uint64_t row = 0; row < 2; row++)
        assert_int_equal(number(table, row, "Samples"), 500);
    mr_table_destroy(table);
    mr_recording_close(recording);
    recording = open_at(PATH);
    table = report(recording, "gpu_metrics_sum", NULL);
    assert_int_equal(mr_table_rows(table), 0);
    mr_table_destroy(table);
    mr_recording_close(recording);
}

static void misspellings_are_told(void **state)
{
    (void)state;
    struct mr_recording *recording = open_at(PATH);
    struct mr_table *table;
    struct mr_report_opts opts;
    mr_report_opts_init(&opts);
    assert_int_equal(mr_report_make(recording, "cuda_gpu_kernel_sum", &opts, &table), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "did you mean \"cuda_gpu_kern_sum\""));
    opts.sort = "duraton";
    assert_int_equal(mr_report_make(recording, "mem_ops", &opts, &table), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "did you mean \"Duration\""));
    opts.sort = NULL;
    opts.from_ns = 10;
    opts.to_ns = 10;
    assert_int_equal(mr_report_make(recording, "mem_ops", &opts, &table), MR_EOPTION);
    mr_recording_close(recording);
}

static int remove_files(void **state)
{
    (void)state;
    remove(PATH);
    remove(OTHER);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(windows_and_their_complements_make_the_whole),
        cmocka_unit_test(ranges_take_what_begins_inside),
        cmocka_unit_test(api_calls_lose_their_version),
        cmocka_unit_test(traces_add_up_to_sums),
        cmocka_unit_test(limits_are_those_of_the_whole),
        cmocka_unit_test(lost_times_are_left_out_and_counted),
        cmocka_unit_test(mem_ops_know_their_calls),
        cmocka_unit_test(gpu_metrics_are_added_up),
        cmocka_unit_test(launches_are_followed_to_the_kernels_end),
        cmocka_unit_test(domains_and_open_ranges),
        cmocka_unit_test(exports_of_an_older_schema),
        cmocka_unit_test(missing_tables_are_told),
        cmocka_unit_test(strange_exports_do_no_harm),
        cmocka_unit_test(a_million_names),
        cmocka_unit_test(comparisons_find_what_got_slower),
        cmocka_unit_test(misspellings_are_told),
    };
    return cmocka_run_group_tests(tests, make_events, remove_files);
}
