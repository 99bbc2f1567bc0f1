/* Texts for people: numbers, tables. */
#include "unit.h"

#include <math.h>
#include <millrace/error.h>
#include <millrace/text.h>

enum { ROWS = 40, COLUMNS = 5, CELL = 40 };

struct cells {
    char text[ROWS][COLUMNS][CELL];
};

static const char *cell(const void *arg, uint64_t row, uint32_t column, char buf[MR_TEXT_CELL])
{
    const struct cells *cells = arg;
    (void)buf;
    return cells->text[row][column];
}

static struct mr_text_table table_of(const struct cells *cells,
                                     const struct mr_text_column *columns)
{
    struct mr_text_table table;
    mr_text_table_init(&table);
    table.columns = columns;
    table.n_columns = COLUMNS;
    table.n_rows = ROWS;
    table.cell = cell;
    table.arg = cells;
    return table;
}

/* The lines of what is written, to be freed by free(lines[0]). */
static uint32_t write_lines(const struct mr_text_table *table, char *lines[ROWS + 2])
{
    char *text = NULL;
    size_t bytes = 0;
    uint32_t n = 0;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    assert_int_equal(mr_text_table_write(table, to), 0);
    assert_int_equal(fclose(to), 0);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        assert_true(n < ROWS + 2);
        lines[n++] = at;
    }
    return n;
}

static uint32_t characters(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Words of 0 to 12 characters, some of two bytes. */
static void draw(struct cells *cells, uint32_t seed)
{
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        uint64_t r = test_u64(seed * ROWS * COLUMNS + i);
        char *at = cells->text[i / COLUMNS][i % COLUMNS];
        for (uint64_t n = r % 13; n > 0; n--, r = r >> 3 | r << 61)
            at = stpcpy(at, r & 1 ? "\xc3\xa9" : "x");
        *at = 0;
    }
}

static const char *past(const char *text, uint32_t n)
{
    for (; n > 0; n--)
        for (text++; ((unsigned char)*text & 0xC0) == 0x80;)
            text++;
    return text;
}

/* Every cell is where its column is, at the left or the right of it; nothing but blanks is
 * between. */
static void columns_are_aligned(void **state)
{
    (void)state;
    static struct cells cells;
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct mr_text_column columns[COLUMNS] = {{0}};
        uint32_t width[COLUMNS] = {0};
        char *lines[ROWS + 2];
        draw(&cells, seed);
        for (uint32_t c = 0; c < COLUMNS; c++) {
            columns[c].right = (int)(seed >> c & 1);
            for (uint32_t r = 0; r < ROWS; r++) {
                uint32_t n = characters(cells.text[r][c]);
                width[c] = n > width[c] ? n : width[c];
            }
        }
        struct mr_text_table table = table_of(&cells, columns);
        table.indent = seed % 3;
        assert_int_equal(write_lines(&table, lines), ROWS);
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t at = table.indent, end = characters(lines[r]);
            for (uint32_t c = 0; c < COLUMNS; at += width[c++] + 2) {
                const char *text = cells.text[r][c];
                uint32_t n = characters(text), pad = columns[c].right ? width[c] - n : 0;
                if (n == 0)
                    continue;
                assert_true(at + pad + n <= end);
                assert_memory_equal(past(lines[r], at + pad), text, strlen(text));
            }
            for (const char *p = lines[r]; p < lines[r] + table.indent; p++)
                assert_int_equal(*p, ' ');
        }
        free(lines[0]);
    }
}

static void lines_fit(void **state)
{
    (void)state;
    static struct cells cells;
    const struct mr_text_column columns[COLUMNS] = {
        {"a", 0, 4}, {"b", 0, 4}, {"c", 0, 4}, {"d", 0, 4}, {"e", 0, 4}};
    draw(&cells, 1);
    for (uint32_t width = 0; width < 80; width++) {
        char *lines[ROWS + 2];
        struct mr_text_table table = table_of(&cells, columns);
        uint32_t most = width < 28 ? 28 : width; /* five columns of 4 and what is between */
        table.width = width ? width : 80;
        table.ruled = 1;
        assert_int_equal(write_lines(&table, lines), ROWS + 2);
        for (uint32_t i = 0; width > 0 && i < ROWS + 2; i++)
            assert_true(characters(lines[i]) <= most);
        assert_int_equal(strspn(lines[1], "- "), strlen(lines[1]));
        free(lines[0]);
    }
}

/* A cut text keeps its beginning and its end; a column that may not be cut is as it was. */
static void what_is_cut(void **state)
{
    (void)state;
    static struct cells cells = {{{"abcdefghijklmnop", "0123456789"}}};
    const struct mr_text_column columns[COLUMNS] = {{"x", 0, 5}, {NULL, 1, 0}};
    char *lines[ROWS + 2];
    struct mr_text_table table = table_of(&cells, columns);
    table.n_rows = 1;
    table.width = 1;
    assert_int_equal(write_lines(&table, lines), 2);
    assert_string_equal(lines[0], "x");
    assert_string_equal(lines[1], "a...p  0123456789");
    free(lines[0]);
}

static void terminals_obey_nothing(void **state)
{
    (void)state;
    static struct cells cells = {{{"\x1b[2J\t\x7f\xff\xe2\x80\xae", "\xc3\xa9"}}};
    const struct mr_text_column columns[COLUMNS] = {{0}};
    char *lines[ROWS + 2];
    struct mr_text_table table = table_of(&cells, columns);
    table.n_rows = 1;
    assert_int_equal(write_lines(&table, lines), 1);
    assert_string_equal(lines[0], "?[2J????  \xc3\xa9");
    free(lines[0]);
}

static void misuse(void **state)
{
    (void)state;
    struct mr_text_table table;
    mr_text_table_init(&table);
    assert_int_equal(mr_text_table_write(&table, stdout), 0); /* nothing in it */
    table.size++;
    assert_int_equal(mr_text_table_write(&table, stdout), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "mr_text_table_init()"));
}

/* Read back, a number is its value to as many figures, and is never shown as a whole step ("1000
 * kB"). */
static void numbers_keep_their_value(void **state)
{
    (void)state;
    static const struct {
        enum mr_text_unit unit;
        double step;
        const char *names[8];
    } units[] = {
        {MR_TEXT_BYTES, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}},
        {MR_TEXT_BYTES_1000, 1000, {"B", "kB", "MB", "GB", "TB", "PB"}},
        {MR_TEXT_BYTES_PER_S, 1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}},
        {MR_TEXT_NS, 1000, {"ns", "us", "ms", "s"}},
        {MR_TEXT_NS_MICRO, 1000, {"ns", "\xc2\xb5s", "ms", "s"}},
        {MR_TEXT_COUNT, 1000, {"", "k", "M", "G", "T"}},
        {MR_TEXT_MILLIONS, 1000, {"M", "G", "T", "P", "E"}},
    };
    for (uint32_t i = 0; i < 70000; i++) {
        size_t u = i % 7;
        int figures = 1 + (int)(i / 7 % 6), digits, name = 0;
        double given = (double)(test_u64(i) >> i % 64) / (i % 3 ? 1 : 1024), value = given, got;
        value = given = i % 5 ? given : -given;
        const char *unit = mr_text_scale(units[u].unit, figures, &value, &digits);
        while (units[u].names[name] && strcmp(units[u].names[name], unit) != 0)
            name++;
        char text[512];
        assert_non_null(units[u].names[name]);
        assert_true(digits >= 0 && digits < figures);
        snprintf(text, sizeof text, "%.*f", digits, value);
        got = strtod(text, NULL);
        assert_true(fabs(value * pow(units[u].step, name) - given) <= 1e-12 * fabs(given));
        assert_true(fabs(got - value) <= fmax(fabs(value) * 5.0001 * pow(10, -figures), 0.5));
        if (units[u].names[name + 1] && figures >= 3)
            assert_true(fabs(got) < units[u].step);
        if (name > 0 && figures <= 3) /* as many digits as were asked for */
            assert_true(digits + (fabs(got) < 10 ? 1 : fabs(got) < 100 ? 2 : 3) >= figures);
    }
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        enum mr_text_unit unit;
        const char *want;
    } cases[] = {
        {0, MR_TEXT_BYTES, "0 B"},
        {1000, MR_TEXT_BYTES, "1000 B"},
        {1023.6 * 1024, MR_TEXT_BYTES, "1.00 MiB"},
        {999.6, MR_TEXT_NS_MICRO, "1.00 \xc2\xb5s"},
        {0.125, MR_TEXT_NS, "0.12 ns"},
        {9995e3, MR_TEXT_NS, "10.0 ms"},
        {1e30, MR_TEXT_NS, "1e+21 s"},
        {-1, MR_TEXT_NS, "-"},
        {1e60, MR_TEXT_NS, "-"},
        {(double)NAN, MR_TEXT_BYTES, "-"},
    };
    char buf[MR_TEXT_NUMBER];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(mr_text_number(cases[i].value, cases[i].unit, buf), cases[i].want);
}

/* An XML reader sees the same text, but for what XML has no form for. */
static void xml(void **state)
{
    (void)state;
    char buf[256];
    FILE *to = fmemopen(buf, sizeof buf, "w");
    assert_non_null(to);
    mr_text_write_xml("a<b> & \"c\" \xc3\xa9\t\x1b\xff&amp;", to);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(buf, "a&lt;b&gt; &amp; &quot;c&quot; \xc3\xa9???&amp;amp;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_keep_their_value),
        cmocka_unit_test(numbers),
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(lines_fit),
        cmocka_unit_test(what_is_cut),
        cmocka_unit_test(terminals_obey_nothing),
        cmocka_unit_test(misuse),
        cmocka_unit_test(xml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
