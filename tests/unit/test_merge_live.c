/*
 * White-box. A recording that is written while its parts grow has the rows of one that is merged
 * afterwards, whatever the order of records, the moments of the steps, and where a process was
 * killed.
 */
#include "part_bytes.h"
#include "recording/part_read.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/profile.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_PARTS  4
#define N_CHUNKS 60
#define N_NAMES  40
#define BEGIN_NS 1000

static char folder[64], live[128], after[128];
static uint64_t seed;

static uint32_t chance(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/millrace-live-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(live, sizeof(live), "%s/live.sqlite", folder);
    snprintf(after, sizeof(after), "%s/after.sqlite", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

/* ---- parts of any records, in memory ---- */

static void add_name(struct bytes *b, uint32_t id)
{
    static const char *const notes[] = {"exit", "dropped", "warning"};
    char text[32];
    snprintf(text, sizeof(text), id <= 3 ? "%s" : "%s name %u", notes[(id - 1) % 3], id);
    add_string(b, id, text);
}

static void add_range_text(struct bytes *records, uint64_t time_ns)
{
    char text[40];
    struct mr_part_range_text head = {.range = {.start_ns = time_ns,
                                                .end_ns = time_ns + 5,
                                                .domain = chance(3) ? 0 : 4 + chance(N_NAMES - 4),
                                                .tid = 7 + chance(2),
                                                .type = MR_RANGE_PUSH_POP}};
    snprintf(text, sizeof(text), chance(30) ? "op_id = %u" : "op_id = %u\xff", chance(3000));
    head.bytes = (uint32_t)strlen(text);
    add(records, &head, sizeof(head));
    add_text(records, text, head.bytes);
}

/* A record of a type that has times, names and numbers where these structs have them. */
static void add_record(struct bytes *records, enum mr_part_type type, uint64_t time_ns)
{
    struct mr_part_record r;
    uint32_t name = 4 + chance(N_NAMES - 4); /* some of which come later, or never */
    memset(&r, 0, sizeof(r));
    switch (type) {
    case MR_PART_THREAD:
        r.as.of_MR_PART_THREAD = (struct mr_part_thread){7 + chance(2), name};
        break;
    case MR_PART_CONTEXT:
        r.as.of_MR_PART_CONTEXT = (struct mr_part_context){1 + chance(3), 1, 7, 0};
        break;
    case MR_PART_DEVICE:
        r.as.of_MR_PART_DEVICE = (struct mr_part_device){.name = 4};
        break;
    case MR_PART_SYNC:
        r.as.of_MR_PART_SYNC = (struct mr_part_sync){
            time_ns, time_ns + 9, 3, chance(5) ? 1 + chance(3) : UINT32_MAX, 7, 0, 1, 0};
        break;
    case MR_PART_METRIC:
        r.as.of_MR_PART_METRIC = (struct mr_part_metric){time_ns, 1.5, name, 0};
        break;
    case MR_PART_NOTE:
        r.as.of_MR_PART_NOTE = (struct mr_part_note){chance(9), 2 + chance(2), name};
        break;
    case MR_PART_RANGE:
        r.as.of_MR_PART_RANGE = (struct mr_part_range){.start_ns = time_ns,
                                                       .end_ns = time_ns + 3,
                                                       .text = name,
                                                       .tid = 7,
                                                       .category = chance(2),
                                                       .category_name = name,
                                                       .type = MR_RANGE_START_END,
                                                       .end_tid = 8};
        break;
    case MR_PART_API:
        r.as.of_MR_PART_API = (struct mr_part_api){
            .start_ns = time_ns, .end_ns = time_ns + 4, .name = name, .tid = 7};
        break;
    default:
        r.as.of_MR_PART_OS = (struct mr_part_os){time_ns, time_ns + 2, 0, 0, name, 7};
        break;
    }
    add(records, &r, mr_part_bytes(type));
}

static void add_records(struct bytes *b, uint64_t time_ns)
{
    static const uint8_t types[] = {MR_PART_THREAD, MR_PART_CONTEXT,   MR_PART_DEVICE,
                                    MR_PART_SYNC,   MR_PART_METRIC,    MR_PART_NOTE,
                                    MR_PART_RANGE,  MR_PART_API,       MR_PART_OS,
                                    MR_PART_API,    MR_PART_RANGE_TEXT};
    enum mr_part_type type = types[chance(MR_COUNT(types))];
    struct bytes records = {0};
    uint32_t n = 1 + chance(20);
    for (uint32_t i = 0; i < n; i++) {
        if (type == MR_PART_RANGE_TEXT)
            add_range_text(&records, time_ns + i);
        else
            add_record(&records, type, time_ns + i);
    }
    add_chunk(b, type, type == MR_PART_RANGE_TEXT ? 0 : mr_part_bytes(type), n, records.data,
              records.n);
    free(records.data);
}

/* Every third process was killed: its part ends anywhere. */
static struct bytes part_of(uint32_t i)
{
    struct bytes b = {0};
    uint64_t start_ns = 2000 + 500ull * i;
    /* pairs: one process, before an exec and after */
    add_header(&b, 70 + i / 2, start_ns, MR_TRACE_NVTX);
    uint32_t id = 1;
    for (uint32_t k = 0; k < N_CHUNKS; k++) {
        while (id < N_NAMES && chance(3))
            add_name(&b, id++);
        add_records(&b, start_ns + 10ull * k);
    }
    if (chance(3) == 0)
        b.n -= chance((uint32_t)(b.n - sizeof(struct mr_part_header)));
    return b;
}

/* ---- what a recording says, without its own numbers ---- */

static void say_columns(sqlite3 *db, const char *table, char *sql, size_t room)
{
    static const char *const names[] = {"nameId",    "domainId",  "mangledName",  "demangledName",
                                        "shortName", "commandId", "executableId", "metricId"};
    sqlite3_stmt *statement;
    size_t n = (size_t)snprintf(sql, room, "SELECT ''");
    char pragma[96];
    snprintf(pragma, sizeof(pragma), "PRAGMA table_info(%s)", table);
    assert_int_equal(sqlite3_prepare_v2(db, pragma, -1, &statement, NULL), SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(statement, 1), *form = "\"%s\"";
        for (size_t i = 0; i < MR_COUNT(names); i++)
            if (strcmp(column, names[i]) == 0)
                form = "(SELECT value FROM StringIds WHERE id = \"%s\")";
        if (strcmp(column, "textId") == 0)
            form = strcmp(table, "NVTX_EVENTS") == 0
                       ? "coalesce(text, (SELECT value FROM StringIds WHERE id = \"%s\"))"
                       : "(SELECT value FROM StringIds WHERE id = \"%s\")";
        if (strcmp(column, "text") == 0)
            continue;
        n += (size_t)snprintf(sql + n, room - n, " || '|' || ifnull(");
        n += (size_t)snprintf(sql + n, room - n, form, column);
        n += (size_t)snprintf(sql + n, room - n, ", 'NULL')");
    }
    sqlite3_finalize(statement);
    snprintf(sql + n, room - n, " FROM %s ORDER BY 1", table);
}

static void say_table(sqlite3 *db, const char *table, struct bytes *out)
{
    static char sql[8192];
    sqlite3_stmt *statement;
    say_columns(db, table, sql, sizeof(sql));
    add(out, table, strlen(table));
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        add(out, "\n", 1);
        add(out, sqlite3_column_text(statement, 0), (size_t)sqlite3_column_bytes(statement, 0));
    }
    add(out, "\n", 1);
    sqlite3_finalize(statement);
}

static struct bytes say(const char *path)
{
    struct bytes out = {0};
    sqlite3 *db;
    sqlite3_stmt *tables;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT name FROM sqlite_master WHERE type = 'table' AND "
                                        "name != 'StringIds' ORDER BY name",
                                        -1, &tables, NULL),
                     SQLITE_OK);
    while (sqlite3_step(tables) == SQLITE_ROW)
        say_table(db, (const char *)sqlite3_column_text(tables, 0), &out);
    sqlite3_finalize(tables);
    sqlite3_close(db);
    add(&out, "", 1);
    return out;
}

/* ---- growing ---- */

static void part_path(char path[128], uint32_t i)
{
    snprintf(path, 128, "%s/%u.part", folder, i);
}

static void grow(uint32_t i, const struct bytes *part, size_t *at, size_t n)
{
    char path[128];
    part_path(path, i);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    n = MR_MIN(n, part->n - *at);
    assert_int_equal(fwrite(part->data + *at, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    *at += n;
}

static void write_begin(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/begin", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%d %llu\n", BEGIN_NS, (unsigned long long)MAKE_UNIX);
    assert_int_equal(fclose(file), 0);
}

static void ok(int rc)
{
    if (rc != 0)
        fail_msg("%d: %s", rc, mr_last_error());
}

static void expect_same(uint64_t n)
{
    struct bytes a = say(live), b = say(after);
    if (strcmp(a.data, b.data) != 0) {
        size_t i = 0;
        while (a.data[i] == b.data[i])
            i++;
        i = i > 200 ? i - 200 : 0;
        fail_msg("case %llu: live:\n%.600s\nafterwards:\n%.600s", (unsigned long long)n, a.data + i,
                 b.data + i);
    }
    free(a.data);
    free(b.data);
}

static void run_case(uint64_t n)
{
    struct bytes parts[N_PARTS];
    size_t at[N_PARTS] = {0};
    struct mr_merge *merge;
    struct mr_merge_stats stats[2] = {{.size = sizeof(stats[0])}, {.size = sizeof(stats[0])}};
    uint32_t n_left = 0;
    seed = n * 77 + 1;
    write_begin();
    for (uint32_t i = 0; i < N_PARTS; i++) {
        parts[i] = part_of(i);
        n_left += parts[i].n > 0;
    }
    ok(mr_merge_open(folder, live, 1, &merge));
    for (uint32_t k = 0; n_left > 0; k++) {
        uint32_t i = chance(N_PARTS); /* a pair's second begins when its first has something */
        if (at[i] < parts[i].n && (i % 2 == 0 || at[i - 1] >= sizeof(struct mr_part_header))) {
            grow(i, &parts[i], &at[i], 1 + chance(chance(4) ? 300 : 9000));
            n_left -= at[i] == parts[i].n;
        }
        if (k % 3 == 0)
            ok(mr_merge_step(merge));
    }
    ok(mr_merge_finish(merge, &stats[0]));
    mr_merge_close(merge);
    ok(mr_recording_merge(folder, after, 1, &stats[1]));
    stats[0].bytes = stats[1].bytes = 0;
    assert_memory_equal(&stats[0], &stats[1], sizeof(stats[0]));
    expect_same(n);
    for (uint32_t i = 0; i < N_PARTS; i++) {
        char path[128];
        part_path(path, i);
        unlink(path);
        free(parts[i].data);
    }
}

static void test_same(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 60; n++)
        run_case(n);
}

static uint64_t count(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    uint64_t n = (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return n;
}

/* A text stands in its row the first time, and has a number from the second on. */
static void test_texts(void **state)
{
    (void)state;
    struct bytes part = {0}, records = {0};
    seed = 1;
    add_header(&part, 70, 0, 0);
    static const char *const texts[] = {"op 1", "op 2", "op 1", "op 1", "\xffop 3"};
    for (uint32_t i = 0; i < MR_COUNT(texts); i++) {
        struct mr_part_range_text head = {
            .range = {.start_ns = i + 1, .end_ns = i + 2, .type = MR_RANGE_PUSH_POP, .tid = 7},
            .bytes = (uint32_t)strlen(texts[i])};
        add(&records, &head, sizeof(head));
        add_text(&records, texts[i], head.bytes);
    }
    add_chunk(&part, MR_PART_RANGE_TEXT, 0, MR_COUNT(texts), records.data, records.n);
    size_t at = 0;
    grow(0, &part, &at, part.n);
    ok(mr_recording_merge(folder, after, 1, NULL));
    assert_int_equal(count(after, "SELECT count(*) FROM NVTX_EVENTS WHERE text IN ('op 1', 'op 2') "
                                  "AND textId IS NULL"),
                     2);
    assert_int_equal(count(after, "SELECT count(*) FROM NVTX_EVENTS JOIN StringIds ON id = textId "
                                  "WHERE text IS NULL AND value IN ('op 1', '?op 3')"),
                     3);
    assert_int_equal(count(after, "SELECT count(*) FROM NVTX_EVENTS"), MR_COUNT(texts));
    struct mr_recording *r = make_load(after);
    assert_int_equal(r->n_ranges, MR_COUNT(texts));
    assert_string_equal(r->strings[r->ranges[1].text], "op 2");
    assert_int_equal(r->ranges[0].text, r->ranges[3].text);
    mr_recording_close(r);
    char path[128];
    part_path(path, 0);
    unlink(path);
    free(part.data);
    free(records.data);
}

/* Damage that shows while the program runs ends the steps, and leaves no file. */
static void test_damaged(void **state)
{
    (void)state;
    struct bytes part;
    size_t at = 0;
    struct mr_merge *merge;
    do { /* one that was not cut in its first chunk */
        part = part_of(0);
    } while (part.n < 2000);
    part.data[sizeof(struct mr_part_header)] ^= 1;
    write_begin();
    unlink(live);
    ok(mr_merge_open(folder, live, 0, &merge));
    ok(mr_merge_step(merge));
    grow(0, &part, &at, part.n);
    assert_int_equal(mr_merge_step(merge), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "0.part"));
    mr_merge_close(merge);
    assert_int_not_equal(access(live, F_OK), 0);
    assert_int_equal(mr_merge_open(folder, "/nonexistent/x.sqlite", 0, &merge), -ENOENT);
    assert_null(merge);
    mr_merge_close(NULL);
    char path[128];
    part_path(path, 0);
    unlink(path);
    free(part.data);
}

/* What is finished, whether it went well or not, takes no more. */
static void test_finished(void **state)
{
    (void)state;
    struct mr_merge *merge;
    write_begin();
    for (int bad = 0; bad < 2; bad++) {
        unlink(live);
        ok(mr_merge_open(folder, live, 0, &merge));
        char path[128];
        part_path(path, 0);
        if (bad)
            assert_int_equal(close(creat(path, 0600)) | truncate(path, 100), 0); /* zeros */
        assert_int_equal(mr_merge_finish(merge, NULL), bad ? MR_EFORMAT : 0);
        assert_int_equal(mr_merge_step(merge), MR_EMISUSE);
        assert_non_null(strstr(mr_last_error(), "live.sqlite"));
        assert_int_equal(mr_merge_finish(merge, NULL), MR_EMISUSE);
        mr_merge_close(merge);
        assert_int_equal(access(live, F_OK), bad ? -1 : 0);
        unlink(path);
    }
    assert_int_equal(mr_merge_step(NULL), MR_EMISUSE);
    assert_int_equal(mr_merge_finish(NULL, NULL), MR_EMISUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_finished),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
