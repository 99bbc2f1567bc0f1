/* White-box. Tables: what was put in is read, sorted, cut and written; CSV and JSON are read back
 * with other readers. */
#include "recording/recording.h"
#include "unit.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static const struct mr_column columns[] = {
    {"Total Time", MR_UNIT_NS, MR_CELL_INT},     {"Avg", MR_UNIT_NS, MR_CELL_REAL},
    {"Num Calls", MR_UNIT_COUNT, MR_CELL_INT},   {"Bytes", MR_UNIT_BYTES, MR_CELL_INT},
    {"Rate", MR_UNIT_BYTES_PER_S, MR_CELL_REAL}, {"Time", MR_UNIT_PERCENT, MR_CELL_REAL},
    {"Pid", MR_UNIT_NONE, MR_CELL_INT},          {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
};
enum { TOTAL, AVG, CALLS, BYTES, RATE, TIME, PID, NAME, N_COLUMNS };

static struct mr_table *make(uint32_t rows, uint32_t names)
{
    struct mr_table *table = mr_table_create("things", columns, N_COLUMNS), *out;
    char name[64];
    for (uint32_t i = 0; i < rows; i++) {
        uint64_t draw = test_u64(i);
        mr_table_row(table);
        mr_table_int(table, (int64_t)(draw >> 1 >> draw % 50));
        mr_table_real(table, (double)(draw % 1000) / 8);
        mr_table_int(table, (int64_t)(draw % 7));
        if (draw % 5 == 0)
            mr_table_empty(table);
        else
            mr_table_int(table, (int64_t)(draw % 4000000));
        mr_table_real(table, (double)(draw % 100000) * 1000);
        mr_table_real(table, (double)(draw % 800) / 8);
        mr_table_int(table, (int64_t)(draw % 100000));
        snprintf(name, sizeof name, "name %u", (unsigned)(draw % names));
        mr_table_text(table, name);
    }
    assert_int_equal(mr_table_finish(table, &out), 0);
    return out;
}

static char *written(const struct mr_table *table, int format, uint32_t width)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    int rc = format < 0 ? mr_table_write_text(table, width, to)
                        : mr_table_write(table, (enum mr_table_format)format, to);
    assert_int_equal(rc, 0);
    fclose(to);
    return text;
}

static void cells_are_what_was_put(void **state)
{
    (void)state;
    char name[64];
    struct mr_table *table = make(5000, 100);
    assert_int_equal(mr_table_rows(table), 5000);
    assert_int_equal(mr_table_columns(table), N_COLUMNS);
    for (uint32_t i = 0; i < 5000; i++) {
        uint64_t draw = test_u64(i);
        snprintf(name, sizeof name, "name %u", (unsigned)(draw % 100));
        assert_true(mr_table_cell(table, i, TOTAL).integer == (int64_t)(draw >> 1 >> draw % 50));
        assert_true(mr_table_cell(table, i, AVG).real == (double)(draw % 1000) / 8);
        assert_string_equal(mr_table_cell(table, i, NAME).text, name);
        assert_int_equal(mr_table_cell(table, i, BYTES).type,
                         draw % 5 ? MR_CELL_INT : MR_CELL_EMPTY);
        if (draw % 5)
            assert_int_equal(mr_table_cell(table, i, BYTES).integer, draw % 4000000);
    }
    assert_int_equal(mr_table_cell(table, 5000, 0).type, MR_CELL_EMPTY);
    assert_int_equal(mr_table_cell(table, 0, N_COLUMNS).type, MR_CELL_EMPTY);
    mr_table_destroy(table);
}

/* What a terminal would obey: not shown on one, in a file as it is. */
static void csv_is_masked_on_terminals(void **state)
{
    (void)state;
    static const struct mr_column name[] = {{"Name", MR_UNIT_NONE, MR_CELL_TEXT}};
    struct mr_table *table = mr_table_create("t", name, 1), *out;
    mr_table_row(table);
    mr_table_text(table, "a\033]0;x\007\u202eb,\xff");
    assert_int_equal(mr_table_finish(table, &out), 0);
    int main_end = posix_openpt(O_RDWR | O_NOCTTY);
    if (main_end < 0 || grantpt(main_end) || unlockpt(main_end)) {
        mr_table_destroy(out);
        skip();
    }
    FILE *terminal = fopen(ptsname(main_end), "w");
    assert_non_null(terminal);
    assert_int_equal(mr_table_write(out, MR_TABLE_CSV, terminal), 0);
    char got[200] = "";
    for (size_t n = 0; strstr(got, "?\"") == NULL;) { /* a line at a time */
        ssize_t more = read(main_end, got + n, sizeof got - 1 - n);
        assert_true(more > 0);
        n += (size_t)more;
    }
    assert_non_null(strstr(got, "\"a?]0;x??b,?\""));
    fclose(terminal);
    close(main_end);
    char *text = written(out, MR_TABLE_CSV, 0);
    assert_string_equal(text, "Name\r\n\"a\033]0;x\007\u202eb,\xff\"\r\n");
    free(text);
    mr_table_destroy(out);
}

static void a_million_names(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    const uint32_t n = 100000;
#else
    const uint32_t n = 1000000;
#endif
    struct mr_table *table = mr_table_create(
                        "names", (const struct mr_column[]){{"Name", 0, MR_CELL_TEXT}}, 1),
                    *out;
    char name[64];
    for (uint32_t i = 0; i < n; i++) {
        mr_table_row(table);
        snprintf(name, sizeof name, "%llx", (unsigned long long)mr_mix64(i));
        mr_table_text(table, name);
    }
    assert_int_equal(mr_table_finish(table, &out), 0);
    assert_int_equal(mr_table_sort(out, "name", true), 0);
    for (uint32_t i = 1; i < n; i++)
        assert_true(strcmp(mr_table_cell(out, i - 1, 0).text, mr_table_cell(out, i, 0).text) < 0);
    mr_table_destroy(out);
}

static double value_of(struct mr_cell cell)
{
    return cell.type == MR_CELL_REAL ? cell.real : (double)cell.integer;
}

/* By any column, either way: in order, empty cells last, and rows alike stay as they were. */
static void sorts(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < N_COLUMNS; c++) {
        for (int ascending = 0; ascending < 2; ascending++) {
            struct mr_table *table = make(3000, 40);
            assert_int_equal(mr_table_sort(table, "total time", true), 0);
            assert_int_equal(mr_table_sort(table, columns[c].name, ascending), 0);
            double sum = 0, want = 0;
            for (uint32_t i = 0; i < 3000; i++) {
                struct mr_cell cell = mr_table_cell(table, i, c);
                sum += value_of(mr_table_cell(table, i, PID));
                want += (double)(test_u64(i) % 100000);
                if (i == 0)
                    continue;
                struct mr_cell before = mr_table_cell(table, i - 1, c);
                if (before.type == MR_CELL_EMPTY) {
                    assert_int_equal(cell.type, MR_CELL_EMPTY);
                } else if (cell.type != MR_CELL_EMPTY) {
                    int order = cell.type == MR_CELL_TEXT ? strcmp(before.text, cell.text)
                                                          : (value_of(before) > value_of(cell)) -
                                                                (value_of(before) < value_of(cell));
                    assert_true(ascending ? order <= 0 : order >= 0);
                    if (order == 0)
                        assert_true(mr_table_cell(table, i - 1, TOTAL).integer <=
                                    mr_table_cell(table, i, TOTAL).integer);
                }
            }
            assert_true(sum == want);
            mr_table_destroy(table);
        }
    }
}

static void columns_are_found_as_people_type_them(void **state)
{
    (void)state;
    struct mr_table *table = make(10, 10);
    for (const char **name = (const char *[]){"Total Time", "total_time", "total-time", "TOTAL",
                                              "num_calls", "time", "n", "", "duration", NULL};
         *name; name++) {
        bool unknown = strlen(*name) < 2 || strcmp(*name, "duration") == 0;
        assert_int_equal(mr_table_sort(table, *name, true), unknown ? MR_EOPTION : 0);
    }
    assert_int_equal(mr_table_sort(table, "num_cals", true), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "did you mean \"Num Calls\""));
    assert_non_null(strstr(mr_last_error(), "Total Time, Avg"));
    mr_table_destroy(table);
}

static void limits(void **state)
{
    (void)state;
    struct mr_table *table = make(100, 10);
    assert_int_equal(mr_table_sort(table, "Total Time", false), 0);
    int64_t most = mr_table_cell(table, 0, TOTAL).integer;
    mr_table_limit(table, 3);
    assert_int_equal(mr_table_rows(table), 3);
    assert_true(mr_table_cell(table, 0, TOTAL).integer == most);
    assert_int_equal(mr_table_cell(table, 3, TOTAL).type, MR_CELL_EMPTY);
    mr_table_destroy(table);
}

static struct mr_table *of_texts(const char *const *texts, uint32_t n)
{
    struct mr_table *table = mr_table_create(
        "", (const struct mr_column[]){{"Name", 0, MR_CELL_TEXT}, {"N", 0, MR_CELL_INT}}, 2);
    struct mr_table *out;
    for (uint32_t i = 0; i < n; i++) {
        mr_table_row(table);
        mr_table_text(table, texts[i]);
        mr_table_int(table, i);
    }
    assert_int_equal(mr_table_finish(table, &out), 0);
    return out;
}

static void csv_is_quoted(void **state)
{
    (void)state;
    const char *const texts[] = {"plain", "a,b", "say \"no\"", "two\nlines", ""};
    struct mr_table *table = of_texts(texts, 5);
    char *text = written(table, MR_TABLE_CSV, 0);
    assert_string_equal(
        text,
        "Name,N\r\nplain,0\r\n\"a,b\",1\r\n\"say \"\"no\"\"\",2\r\n\"two\nlines\",3\r\n,4\r\n");
    free(text);
    mr_table_destroy(table);
    table = make(1, 1);
    text = written(table, MR_TABLE_CSV, 0);
    const char *heads =
        "Total Time (ns),Avg (ns),Num Calls,Bytes (MB),Rate (MB/s),Time (%),Pid,Name\r\n";
    assert_memory_equal(text, heads, strlen(heads));
    free(text);
    mr_table_destroy(table);
}

/* JSON's numbers, read by cJSON, are the cells in their heads' units. */
static void json_reads_back(void **state)
{
    (void)state;
    struct mr_table *table = make(500, 50);
    char *text = written(table, MR_TABLE_JSON, 0);
    cJSON *got = cJSON_Parse(text);
    assert_non_null(got);
    assert_int_equal(cJSON_GetArraySize(got), 500);
    uint32_t i = 0;
    for (const cJSON *row = got->child; row; row = row->next, i++) {
        struct mr_cell bytes = mr_table_cell(table, i, BYTES);
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, "Bytes (MB)");
        if (bytes.type == MR_CELL_EMPTY)
            assert_true(cJSON_IsNull(item));
        else
            assert_true(llround(item->valuedouble * 1e6) == bytes.integer);
        item = cJSON_GetObjectItemCaseSensitive(row, "Total Time (ns)");
        assert_true(item->valuedouble == (double)mr_table_cell(table, i, TOTAL).integer);
        item = cJSON_GetObjectItemCaseSensitive(row, "Avg (ns)");
        assert_true(fabs(item->valuedouble - mr_table_cell(table, i, AVG).real) <= 0.0501);
        assert_string_equal(cJSON_GetObjectItemCaseSensitive(row, "Name")->valuestring,
                            mr_table_cell(table, i, NAME).text);
    }
    cJSON_Delete(got);
    free(text);
    mr_table_destroy(table);
    table = of_texts(NULL, 0);
    text = written(table, MR_TABLE_JSON, 0);
    assert_string_equal(text, "[]\n");
    free(text);
    mr_table_destroy(table);
}

static void text_has_units_that_fit(void **state)
{
    (void)state;
    struct mr_table *table = mr_table_create("", columns, N_COLUMNS), *out;
    mr_table_row(table);
    mr_table_int(table, 1234567);
    mr_table_real(table, 12.5);
    mr_table_int(table, 1234567);
    mr_table_int(table, 38535168);
    mr_table_real(table, 55.17e9);
    mr_table_real(table, 99.96);
    mr_table_int(table, 12345);
    mr_table_text(table, "x");
    assert_int_equal(mr_table_finish(table, &out), 0);
    char *text = written(out, MR_TABLE_TEXT, 0);
    for (const char **want = (const char *[]){"1.235 ms ", "12.50 ns", " 1,234,567 ", " 38.54 MB",
                                              " 55.17 GB/s", " 100.0%", " 12345 ", NULL};
         *want; want++)
        if (!strstr(text, *want))
            fail_msg("no \"%s\" in\n%s", *want, text);
    free(text);
    mr_table_destroy(out);
}

/* Lines of all rows are equally long up to the last column, and no longer than asked where texts
 * can give way. */
static void text_is_aligned_and_fits(void **state)
{
    (void)state;
    char longest[301];
    memset(longest, 'x', 300);
    longest[300] = 0;
    memcpy(longest, "begin", 5);
    memcpy(longest + 297, "end", 3);
    const char *const texts[] = {longest, "short", "M\xc3\xbcller", "bad \x1b[31m\xff\x9b red"};
    struct mr_table *table = of_texts(texts, 4);
    char *text = written(table, -1, 60);
    size_t n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        size_t length = (size_t)(end - line);
        for (const char *c = line; c < end; c++)
            length -= ((unsigned char)*c & 0xc0) == 0x80;
        n = n ? n : length;
        assert_int_equal(length, n);
        assert_true(length <= 60);
    }
    assert_non_null(strstr(text, "\nbeginx"));
    assert_non_null(strstr(text, "xxx...xxx"));
    assert_non_null(strstr(text, "xend  0\n"));
    assert_non_null(strstr(text, "M\xc3\xbcller"));
    assert_non_null(strstr(text, "bad ?[31m?? red"));
    free(text);
    text = written(table, -1, UINT32_MAX);
    assert_non_null(strstr(text, longest));
    free(text);
    mr_table_destroy(table);
}

static void empty_tables_say_why(void **state)
{
    (void)state;
    struct mr_table *table = mr_table_create("kernels", columns, N_COLUMNS), *out;
    mr_table_set_note(table, "no %s here", "kernels");
    assert_int_equal(mr_table_finish(table, &out), 0);
    assert_string_equal(mr_table_note(out), "no kernels here");
    assert_string_equal(mr_table_title(out), "kernels");
    char *text = written(out, MR_TABLE_TEXT, 0);
    assert_string_equal(text, "kernels\n\nno kernels here\n");
    free(text);
    mr_table_destroy(out);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (!full) {
        print_message("SKIP: no /dev/full\n");
        skip();
    }
    struct mr_table *table = make(5000, 10);
    for (int format = MR_TABLE_TEXT; format <= MR_TABLE_JSON; format++) {
        clearerr(full);
        assert_int_equal(mr_table_write(table, (enum mr_table_format)format, full), -ENOSPC);
    }
    mr_table_destroy(table);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_what_was_put),
        cmocka_unit_test(csv_is_masked_on_terminals),
        cmocka_unit_test(a_million_names),
        cmocka_unit_test(sorts),
        cmocka_unit_test(columns_are_found_as_people_type_them),
        cmocka_unit_test(limits),
        cmocka_unit_test(csv_is_quoted),
        cmocka_unit_test(json_reads_back),
        cmocka_unit_test(text_has_units_that_fit),
        cmocka_unit_test(text_is_aligned_and_fits),
        cmocka_unit_test(empty_tables_say_why),
        cmocka_unit_test(a_full_disk_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
