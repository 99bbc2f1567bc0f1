/* The program's numbers for people and its tables. */
#include "../../cli/table.c"
#include "unit.h"

/* What main.c gives them otherwise. */
int cli_fail(const char *fmt, ...)
{
    (void)fmt;
    return CLI_FAILED;
}

int cli_error(int rc)
{
    (void)rc;
    return CLI_FAILED;
}

static void bytes_rates_and_times(void **state)
{
    (void)state;
    char b[CLI_HUMAN];
    assert_string_equal(cli_bytes(0, b), "0 B");
    assert_string_equal(cli_bytes(1000, b), "1000 B");
    assert_string_equal(cli_bytes(1024, b), "1.00 KiB");
    assert_string_equal(cli_bytes(1536ull << 20, b), "1.50 GiB");
    assert_string_equal(cli_bytes((1ull << 20) - 1, b), "1.00 MiB");
    assert_string_equal(cli_bytes(UINT64_MAX, b), "16.0 EiB");
    assert_string_equal(cli_rate(0, b), "0 B/s");
    assert_string_equal(cli_rate(12.34e9, b), "12.3 GB/s");
    assert_string_equal(cli_rate(999.7e6, b), "1.00 GB/s");
    assert_string_equal(cli_rate((double)INFINITY, b), "-");
    assert_string_equal(cli_rate((double)NAN, b), "-");
    assert_string_equal(cli_time(0, b), "0 ns");
    assert_string_equal(cli_time(2345678, b), "2.35 ms");
    assert_string_equal(cli_time(119000000000u, b), "119 s");
    assert_string_equal(cli_time(125000000000u, b), "2 min 05 s");
    assert_string_equal(cli_time(7320000000000u, b), "2 h 02 min");
}

static void counts(void **state)
{
    (void)state;
    char b[CLI_HUMAN];
    assert_string_equal(cli_count(0, b), "0");
    assert_string_equal(cli_count(1.25, b), "1.25");
    assert_string_equal(cli_count(60000, b), "60,000");
    assert_string_equal(cli_count(1000001, b), "1,000,001");
    assert_string_equal(cli_count(9999999, b), "9,999,999");
    assert_string_equal(cli_count(1e9, b), "1.00 G");
    assert_string_equal(cli_count((double)NAN, b), "-");
}

/* Any number has three significant digits of its value, in any unit. */
static void rates_keep_three_digits(void **state)
{
    (void)state;
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    for (uint32_t i = 0; i < 20000; i++) {
        double want = (double)(test_u64(i) >> (i % 50)), got, factor = 0;
        char text[CLI_HUMAN], unit[8] = "";
        if (want < 1 || want > 9e14)
            continue;
        assert_int_equal(sscanf(cli_rate(want, text), "%lf %7s", &got, unit), 2);
        for (int u = 0; u < 5; u++)
            if (strcmp(unit, units[u]) == 0)
                factor = pow(1000, u);
        if (fabs(got * factor - want) > 0.00501 * want)
            fail_msg("%.17g: %s", want, text);
    }
}

static void columns_are_aligned(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    struct cli_table *t = cli_table_create("stage\t>busy\tnote");
    cli_table_row(t, "%s\t%d\t%s", "read", 5, "x");
    cli_table_row(t, "%s\t%d\t",
                  "d\xC3\xA9"
                  "code",
                  12345);
    assert_int_equal(cli_table_print(t, out, 2), CLI_OK);
    fclose(out);
    assert_string_equal(text, "  stage    busy  note\n"
                              "  read        5  x\n"
                              "  d\xC3\xA9"
                              "code  12345\n");
    free(text);
    assert_int_equal(cli_table_print(NULL, stdout, 0), CLI_FAILED);
}

/* Whatever the number, a cell of a column of numbers is short and keeps four digits of its
 * value. */
static void numbers_stay_in_columns(void **state)
{
    (void)state;
    static const double odd[] = {1.27366273573874302976e20, -1e300, 1e7, -9999999.4, 0, 1e-300};
    static const struct {
        const char *cell, *want;
    } cases[] = {
        {"inf", "inf"},
        {"-inf%", "-inf%"},
        {"-nan", "nan"},
        {"12345678.25%", "1.235e+07%"},
        {"1,234.5", "1,234.5"},
        {"18446744073709551615", "18446744073709551615"},
        {"-127366273573874302976.0000x", "-1.274e+20x"},
        {"1234567.125 ms", "1234567.125 ms"},
        {"-", "-"},
        {"", ""},
    };
    char b[CLI_HUMAN], text[512];
    assert_string_equal(cli_fixed(2.34567, 2, " ms", b), "2.35 ms");
    assert_string_equal(cli_fixed((double)NAN, 2, "%", b), "nan");
    assert_string_equal(cli_fixed(-(double)INFINITY, 2, "%", b), "-inf");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct cli_table t = {.column = {{0}, {.right = 1}}};
        snprintf(text, sizeof text, "a\t%.4f\tz", odd[i]);
        double got = strtod(strchr(shorten(&t, text), '\t'), NULL);
        assert_true(strlen(text) < 20 && fabs(got - odd[i]) <= 5.1e-4 * fabs(odd[i]) + 1e-4);
        assert_string_equal(strrchr(text, '\t'), "\tz");
        assert_true(strlen(cli_fixed(odd[i], 4, "", b)) < 16);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cli_table t = {.column = {{.right = 1}}};
        snprintf(text, sizeof text, "%s", cases[i].cell);
        assert_string_equal(shorten(&t, text), cases[i].want);
    }
    assert_string_equal(cli_rate(1e40, b), "1e+28 TB/s");
}

/* No control character, change of direction or byte that is not UTF-8 is left; other characters
 * stay. */
static void printable(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a\033[31mb\r\n\tc\177", "a?[31mb??\tc?"},
        {"\xC2\x80-\xC2\x9B"
         "31m\xC2\x9F",
         "?-?31m?"},
        {"\xC2\xA0\xC3\x9B\xC2\xB5", "\xC2\xA0\xC3\x9B\xC2\xB5"},
        {"\xE2\x82\xAC\xC2\xC2\x85\xC2", "\xE2\x82\xAC???"},
        {"a\xFF\xFE\xC0\x80z\xED\xA0\x80\xF4\x90\x80\x80", "a????z???????"},
        {"\u061C\u200E\u200F\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u2068\u2069",
         "????????????"},
        {"\u061B\u061D\u200D\u2010\u2029\u202F\u2065\u206A\U0001F600",
         "\u061B\u061D\u200D\u2010\u2029\u202F\u2065\u206A\U0001F600"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64], buf[CLI_CLEAN];
        snprintf(text, sizeof text, "%s", cases[i].text);
        assert_string_equal(cli_clean(text, buf), cases[i].want);
        assert_string_equal(text, cases[i].text);
        assert_string_equal(mr_text_printable(text), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_rates_and_times),
        cmocka_unit_test(counts),
        cmocka_unit_test(rates_keep_three_digits),
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(printable),
        cmocka_unit_test(numbers_stay_in_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
