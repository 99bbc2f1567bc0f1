/* Texts for people: tables. */
#include "unit.h"

#include <errno.h>
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

/* Every cell is where its column is, at the left or the right of it; nothing but blanks is between. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(lines_fit),
        cmocka_unit_test(what_is_cut),
        cmocka_unit_test(terminals_obey_nothing),
        cmocka_unit_test(misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
