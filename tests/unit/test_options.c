/* Option tables: values of each type, errors, argument lists, command lines, help, JSON. */
#include "unit.h"

#include <math.h>
#include <millrace/options.h>

enum { COLOR_RED, COLOR_GREEN, COLOR_BLUE };
static const char *const colors[] = {"red", "green", "light-blue", NULL};

struct values {
    int verbose, cache, color, dtype;
    int64_t offset;
    uint64_t workers, bytes, delay;
    double rate, share;
    char *name;
    struct mr_doubles mean;
    struct mr_shape shape;
};

#define AT(member) offsetof(struct values, member)
static const struct mr_option table[] = {
    {"verbose", 'v', MR_OPT_FLAG, AT(verbose), .help = "Say more"},
    {"cache", 0, MR_OPT_FLAG, AT(cache), "1", .help = "Keep bytes"},
    {"color", 0, MR_OPT_ENUM, AT(color), "green", .choices = colors, .help = "Which colour"},
    {"dtype", 0, MR_OPT_DTYPE, AT(dtype), "f32", .help = "Element type"},
    {"offset", 0, MR_OPT_INT, AT(offset), "-3", .help = "Where to start"},
    {"workers", 'w', MR_OPT_UINT, AT(workers), "4", 1, 512, "threads", .help = "How many",
     .group = "Engine"},
    {"max-bytes", 0, MR_OPT_BYTES, AT(bytes), "64KiB", 0, 0x1p40, .help = "Ceiling",
     .group = "Engine"},
    {"delay", 0, MR_OPT_DURATION, AT(delay), "2ms", 0, 60e9, .help = "Latency"},
    {"rate", 0, MR_OPT_DOUBLE, AT(rate), "1/255", .help = "Factor"},
    {"share", 0, MR_OPT_PERCENT, AT(share), "10%", 0, 1, .help = "Part"},
    {"name", 'n', MR_OPT_STRING, AT(name), "nobody", .help = "Whose"},
    {"mean", 0, MR_OPT_DOUBLES, AT(mean), "0.5", .help = "Means"},
    {"shape", 0, MR_OPT_SHAPE, AT(shape), "3x224x224", .help = "Shape"},
    {NULL},
};

static void defaults_are_parsed(void **state)
{
    (void)state;
    struct values v;
    memset(&v, 0xAB, sizeof v);
    assert_int_equal(mr_options_init(table, &v), 0);
    assert_int_equal(v.verbose, 0);
    assert_int_equal(v.cache, 1);
    assert_int_equal(v.color, COLOR_GREEN);
    assert_int_equal(v.dtype, MR_F32);
    assert_int_equal(v.offset, -3);
    assert_int_equal(v.workers, 4);
    assert_int_equal(v.bytes, 65536);
    assert_int_equal(v.delay, 2000000);
    assert_true(v.rate == 1.0 / 255);
    assert_true(v.share == 0.1);
    assert_string_equal(v.name, "nobody");
    assert_int_equal(v.mean.n, 1);
    assert_int_equal(v.shape.rank, 3);
    assert_int_equal(v.shape.dim[2], 224);
    mr_options_free(table, &v);
    assert_null(v.name);
}

static void texts_become_exact_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        uint64_t want;
    } cases[] = {
        {"workers", "12", 12},
        {"workers", "1e2", 100},
        {"workers", "0x10", 16},
        {"workers", "0.4k", 400},
        {"max-bytes", "4096", 4096},
        {"max-bytes", "64KiB", 65536},
        {"max_bytes", "2GB", 2000000000},
        {"max-bytes", "1.5GiB", 1610612736},
        {"max-bytes", "3k", 3072},
        {"max-bytes", "7B", 7},
        {"max-bytes", "1M", 1 << 20},
        {"delay", "2", 2000000},
        {"delay", "300us", 300000},
        {"delay", "0.1us", 100},
        {"delay", "1.5s", 1500000000},
        {"delay", "10ns", 10},
        {"delay", "1min", 60000000000},
        {"delay", "0", 0},
    };
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *name = cases[i].name;
        if (mr_options_set(table, &v, "--", name, cases[i].text) != 0)
            fail_msg("%s", mr_last_error());
        uint64_t got = name[0] == 'w' ? v.workers : name[0] == 'm' ? v.bytes : v.delay;
        if (got != cases[i].want)
            fail_msg("%s %s: %llu", name, cases[i].text, (unsigned long long)got);
    }
    mr_options_free(table, &v);
}

static void whole_64_bits_are_exact(void **state)
{
    (void)state;
    struct {
        uint64_t u;
        int64_t i;
    } v;
    static const struct mr_option wide[] = {
        {"u", 0, MR_OPT_UINT, 0}, {"i", 0, MR_OPT_INT, 8}, {NULL}};
    assert_int_equal(mr_options_init(wide, &v), 0);
    assert_int_equal(mr_options_set(wide, &v, "--", "u", "18446744073709551615"), 0);
    assert_true(v.u == UINT64_MAX);
    assert_int_equal(mr_options_set(wide, &v, "--", "u", "9007199254740993"), 0);
    assert_true(v.u == 9007199254740993u);
    assert_int_equal(mr_options_set(wide, &v, "--", "u", "0xfedcba9876543210"), 0);
    assert_true(v.u == 0xfedcba9876543210u);
    assert_int_equal(mr_options_set(wide, &v, "--", "i", "-9223372036854775808"), 0);
    assert_true(v.i == INT64_MIN);
    static const char *const bad_u[] = {
        "18446744073709551616", "-1", "1e20", "", " 1", "1 ", "0x", "1x", "1.5", "nan",
        "1000000000000.5"};
    for (size_t i = 0; i < sizeof bad_u / sizeof bad_u[0]; i++)
        if (mr_options_set(wide, &v, "--", "u", bad_u[i]) != MR_EOPTION)
            fail_msg("'%s' was taken", bad_u[i]);
    static const char *const bad_i[] = {"9223372036854775808", "-9223372036854775809", "--1",
                                        "1e19", "inf"};
    for (size_t i = 0; i < sizeof bad_i / sizeof bad_i[0]; i++)
        if (mr_options_set(wide, &v, "--", "i", bad_i[i]) != MR_EOPTION)
            fail_msg("'%s' was taken", bad_i[i]);
}

/* Any double printed with 17 digits reads back; quotients are the compiler's. */
static void doubles_round_trip(void **state)
{
    (void)state;
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        double want = test_double(i);
        char text[64];
        if (!isfinite(want))
            continue;
        snprintf(text, sizeof text, "%.17g", want);
        assert_int_equal(mr_options_set(table, &v, "--", "rate", text), 0);
        assert_memory_equal(&v.rate, &want, sizeof want);
    }
    for (int a = 1; a < 300; a += 7)
        for (int b = 1; b < 300; b++) {
            char text[64];
            snprintf(text, sizeof text, "%d/%d", a, b);
            assert_int_equal(mr_options_set(table, &v, "--", "rate", text), 0);
            assert_true(v.rate == (double)a / b);
        }
    static const char *const bad[] = {"1/0", "1/",    "/2",  "1/2/3", "inf",
                                      "nan", "0x1p3", "1,5", "",      "1e999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (mr_options_set(table, &v, "--", "rate", bad[i]) != MR_EOPTION)
            fail_msg("'%s' was taken", bad[i]);
    mr_options_free(table, &v);
}

static void errors_say_what_is_wanted(void **state)
{
    (void)state;
    static const struct {
        const char *who, *name, *text, *want;
    } cases[] = {
        {"--", "workers", "0", "--workers 0: expected 1..512 threads"},
        {"--", "workers", "513", "--workers 513: expected 1..512 threads"},
        {"--", "workers", "many", "--workers many: expected 1..512 threads"},
        {"synthetic:", "workers", "0", "synthetic:workers=0: expected 1..512 threads"},
        {"--", "workers", NULL, "--workers: needs a value: 1..512 threads"},
        {"--", "max-bytes", "2TiB", "--max-bytes 2TiB: expected 0..1TiB"},
        {"--", "delay", "2h", "--delay 2h: expected 0..1min"},
        {"--", "color", "pink", "--color pink: expected red, green or light-blue"},
        {"--", "share", "110%", "--share 110%: expected a share, like 10% or 0.1, each 0..1"},
        {"--", "wrokers", "1", "--wrokers: no such option; did you mean --workers?"},
        {"synthetic:", "shpae", "1", "synthetic:shpae: no such option; did you mean shape?"},
        {"--", "work", "1", "--work: no such option; did you mean --workers?"},
        {"--", "qqqqqq", "1", "--qqqqqq: no such option; --help lists them"},
        {"--", "num_workers", "4",
         "--num_workers: no such option; --workers is the number of threads; 0 is not the caller's "
         "thread, but as many as processors"},
        {"--", "verbose", "maybe",
         "--verbose maybe: expected no value, or one of 1 0 true false yes no on off"},
    };
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    struct values before = v;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mr_options_set(table, &v, cases[i].who, cases[i].name, cases[i].text),
                         MR_EOPTION);
        assert_string_equal(mr_last_error(), cases[i].want);
    }
    assert_memory_equal(&v, &before, sizeof v); /* a refused text changes nothing */
    mr_options_free(table, &v);
}

static void lists_and_shapes(void **state)
{
    (void)state;
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    static const char *const same[] = {"0.485:0.456:0.406", "[0.485,0.456,0.406]",
                                       "[ 0.485, 0.456, 0.406 ]"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mr_options_set(table, &v, "--", "mean", same[i]), 0);
        assert_int_equal(v.mean.n, 3);
        assert_true(v.mean.v[0] == 0.485 && v.mean.v[1] == 0.456 && v.mean.v[2] == 0.406);
    }
    assert_int_equal(mr_options_set(table, &v, "--", "shape", "1024"), 0);
    assert_int_equal(v.shape.rank, 1);
    assert_int_equal(v.shape.dim[0], 1024);
    static const char *const bad_shapes[] = {"3x",  "x3", "3xx4", "-3", "1x2x3x4x5x6x7x8x9",
                                             "3xa", "3.5"};
    for (size_t i = 0; i < sizeof bad_shapes / sizeof bad_shapes[0]; i++)
        if (mr_options_set(table, &v, "--", "shape", bad_shapes[i]) != MR_EOPTION)
            fail_msg("'%s' was taken", bad_shapes[i]);
    char many[256] = "1";
    for (int i = 1; i < MR_MAX_LIST; i++)
        strcat(many, ":1");
    assert_int_equal(mr_options_set(table, &v, "--", "mean", many), 0);
    assert_int_equal(v.mean.n, MR_MAX_LIST);
    strcat(many, ":1");
    assert_int_equal(mr_options_set(table, &v, "--", "mean", many), MR_EOPTION);
    mr_options_free(table, &v);
}

static void argument_lists(void **state)
{
    (void)state;
    static const char *const positional[] = {"mean", "rate", NULL};
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    assert_int_equal(
        mr_options_parse(table, &v, "op: ", "[1,2], 1/4, verbose, name = a b ", positional), 0);
    assert_int_equal(v.mean.n, 2);
    assert_true(v.rate == 0.25);
    assert_int_equal(v.verbose, 1);
    assert_string_equal(v.name, "a b");
    assert_int_equal(mr_options_parse(table, &v, "x:", "no-cache,shape=2x3,workers=7", NULL), 0);
    assert_int_equal(v.cache, 0);
    assert_int_equal(v.workers, 7);
    assert_int_equal(mr_options_parse(table, &v, "x:", "", NULL), 0);
    assert_int_equal(mr_options_parse(table, &v, "x:", "verbose,,cache", NULL), MR_EOPTION);
    assert_int_equal(mr_options_parse(table, &v, "x:", "verbose,", NULL), MR_EOPTION);
    assert_int_equal(mr_options_parse(table, &v, "x:", "1,2,3", positional), MR_EOPTION);
    assert_string_equal(mr_last_error(), "x:3: one argument too many");
    assert_int_equal(mr_options_parse(table, &v, "x:", "workers", NULL), MR_EOPTION);
    mr_options_free(table, &v);
}

static void command_lines(void **state)
{
    (void)state;
    char text[] =
        "data --workers 3 -v --no-cache -n bob more --name=eve -w9 - -5 --offset -7 -- --verbose";
    char *argv[32];
    int argc = 0;
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " "))
        argv[argc++] = p;
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    assert_int_equal(mr_options_parse_args(table, &v, argc, argv), 5);
    static const char *const kept[] = {"data", "more", "-", "-5", "--verbose"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(argv[i], kept[i]);
    assert_int_equal(v.workers, 9);
    assert_int_equal(v.verbose, 1);
    assert_int_equal(v.cache, 0);
    assert_int_equal(v.offset, -7);
    assert_string_equal(v.name, "eve");
    static const char *const bad[] = {"--workers", "-q",           "--nope",
                                      "-vv",       "--no-workers", "--cache=2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char copy[32];
        char *one[] = {strcpy(copy, bad[i])};
        if (mr_options_parse_args(table, &v, 1, one) != MR_EOPTION)
            fail_msg("'%s' was taken", bad[i]);
    }
    mr_options_free(table, &v);
}

/* A flag that is on by default is shown in both forms; its help describes the flag. */
static void flags_that_are_on_show_both_forms(void **state)
{
    (void)state;
    static const struct mr_option flags[] = {
        {"on", 0, MR_OPT_FLAG, 0, "1", .help = "Do it"},
        {"off", 0, MR_OPT_FLAG, sizeof(int), .help = "Do more"},
        {0},
    };
    static const char *const form[][2] = {{"--[no-]on ", "--off "},
                                          {"\\-\\-[no\\-]on\\fR", "\\-\\-off\\fR"}};
    char *text[] = {mr_options_help(flags), mr_options_man(flags)};
    for (int i = 0; i < 2; i++) {
        assert_non_null(text[i]);
        assert_non_null(strstr(text[i], form[i][0]));
        assert_non_null(strstr(text[i], form[i][1]));
        assert_non_null(strstr(text[i], "Do it (default on)"));
        assert_non_null(strstr(text[i], "Do more"));
        assert_null(strstr(text[i], "Do more ("));
        free(text[i]);
    }
}

/* Help and man page name every option and group; help keeps to its width. */
static void help_and_man_are_complete(void **state)
{
    (void)state;
    char *help = mr_options_help(table), *man = mr_options_man(table);
    assert_non_null(help);
    assert_non_null(man);
    for (const struct mr_option *o = table; o->name; o++) {
        char want[64];
        snprintf(want, sizeof want, "--%s%s", strcmp(o->name, "cache") == 0 ? "[no-]" : "",
                 o->name);
        if (!strstr(help, want))
            fail_msg("%s is not in the help", want);
        assert_non_null(strstr(help, o->help));
        assert_non_null(strstr(man, o->help));
    }
    assert_non_null(strstr(help, "Engine:\n"));
    assert_non_null(strstr(help, "(1..512 threads; default 4)"));
    assert_non_null(strstr(man, ".SS Engine\n"));
    assert_non_null(strstr(man, "\\fB\\-\\-max\\-bytes\\fR"));
    for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    free(help);
    free(man);
}

static void json_has_units_in_its_names(void **state)
{
    (void)state;
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    struct mr_json *json = mr_json_create(0);
    mr_json_object(json, NULL);
    mr_options_json(table, &v, json);
    mr_json_object_end(json);
    const char *text;
    assert_true(mr_json_finish(json, &text) > 0);
    assert_string_equal(
        text,
        "{\"verbose\": false, \"cache\": true, \"color\": \"green\", \"dtype\": \"f32\", "
        "\"offset\": -3, \"workers\": 4, \"max_bytes\": 65536, \"delay_ns\": 2000000, "
        "\"rate\": 0.00392156862745098, \"share\": 0.1, \"name\": \"nobody\", \"mean\": [0.5], "
        "\"shape\": [3, 224, 224]}");
    mr_json_destroy(json);
    mr_options_free(table, &v);
}

static void a_bad_default_is_an_error(void **state)
{
    (void)state;
    static const struct mr_option broken[] = {{"n", 0, MR_OPT_UINT, 0, "x"}, {NULL}};
    uint64_t v;
    assert_int_equal(mr_options_init(broken, &v), MR_EOPTION);
}

/* However a switch is negated or misspelt, the one suggested has the same sense. */
static void hints_keep_the_sense(void **state)
{
    (void)state;
    static const char *const no[] = {"non-cache",     "no-cahce",  "nocache",
                                     "un-cache",      "not_cache", "without-cache",
                                     "disable-cache", "uncache",   "no-verbos"};
    static const char *const yes[] = {"cahce", "cach", "verbos", "caches"};
    struct values v;
    assert_int_equal(mr_options_init(table, &v), 0);
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        assert_int_equal(mr_options_set(table, &v, "--", no[i], NULL), MR_EOPTION);
        assert_non_null(strstr(mr_last_error(), "did you mean --no-"));
    }
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        assert_int_equal(mr_options_set(table, &v, "--", yes[i], NULL), MR_EOPTION);
        assert_non_null(strstr(mr_last_error(), "did you mean --"));
        assert_null(strstr(mr_last_error(), "--no-"));
    }
    /* what is no switch cannot be negated */
    assert_int_equal(mr_options_set(table, &v, "--", "no-worker", NULL), MR_EOPTION);
    assert_null(strstr(mr_last_error(), "did you mean"));
    mr_options_free(table, &v);
}

static void nearest_word(void **state)
{
    (void)state;
    static const char *const words[] = {"feed", "inspect", "doctor", "bench", NULL};
    assert_string_equal(mr_nearest("fede", words), "feed");
    assert_string_equal(mr_nearest("docter", words), "doctor");
    assert_string_equal(mr_nearest("insepct", words), "inspect");
    assert_null(mr_nearest("train", words));
    assert_null(mr_nearest("", words));
    static const char *const letters[] = {"n", "k", "bias", NULL};
    assert_null(mr_nearest("q", letters)); /* no letter of it is right */
    assert_string_equal(mr_nearest("nk", letters), "n");
}

static void durations(void **state)
{
    (void)state;
    uint64_t ns = 7;
    assert_int_equal(mr_duration_parse("1.5s", "ms", &ns), 0);
    assert_int_equal(ns, 1500000000);
    assert_int_equal(mr_duration_parse("30", "s", &ns), 0);
    assert_int_equal(ns, 30000000000);
    assert_int_equal(mr_duration_parse("30", NULL, &ns), 0);
    assert_int_equal(ns, 30000000);
    assert_int_equal(mr_duration_parse("soon", "s", &ns), MR_EOPTION);
    assert_int_equal(mr_duration_parse("", "s", &ns), MR_EOPTION);
    assert_int_equal(mr_duration_parse("-1s", "s", &ns), MR_EOPTION);
    assert_int_equal(ns, 30000000);
}

/* The text that JSON has for a value is one that reads back as that value. */
static void shares_limits_and_32_bits(void **state)
{
    (void)state;
    struct narrow {
        double share;
        struct mr_limit limit;
        uint32_t n, after;
    } v, again;
    static const struct mr_option narrow[] = {
        {"share", 0, MR_OPT_SHARE, offsetof(struct narrow, share), "off"},
        {"limit", 0, MR_OPT_LIMIT, offsetof(struct narrow, limit), "any"},
        {"n", 0, MR_OPT_UINT32, offsetof(struct narrow, n), "7", .help = "How many"},
        {0},
    };
    static const struct {
        const char *share, *limit;
        double fraction, of;
        uint64_t n;
        const char *json;
    } good[] = {
        {"off", "any", 0, 0, UINT64_MAX, "{\"share\": \"off\", \"limit\": null, \"n\": 7}"},
        {"on", "10", 1, 0, 10, "{\"share\": \"on\", \"limit\": \"10\", \"n\": 7}"},
        {"auto", "7%", -1, 0.07, UINT64_MAX, "{\"share\": \"auto\", \"limit\": \"7%\", \"n\": 7}"},
        {"25%", "0%", 0.25, 0, 0, "{\"share\": \"0.25\", \"limit\": \"0\", \"n\": 7}"},
    };
    static const char *const bad[][2] = {{"share", "-1"}, {"share", "1.5"},   {"share", "maybe"},
                                         {"share", ""},   {"limit", "-1"},    {"limit", "101%"},
                                         {"limit", "%"},  {"limit", "1.5"},   {"limit", "few"},
                                         {"n", "-1"},     {"n", "4294967296"}};
    again.after = v.after = 0xABABABAB;
    assert_int_equal(mr_options_init(narrow, &v), 0);
    assert_int_equal(v.n, 7);
    assert_int_equal(mr_options_set(narrow, &v, "--", "n", "4294967295"), 0);
    assert_int_equal(v.n, UINT32_MAX);
    assert_int_equal(mr_options_set(narrow, &v, "--", "n", "7"), 0);
    assert_int_equal(v.after, 0xABABABAB);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const char *text;
        struct mr_json *json = mr_json_create(0);
        assert_int_equal(mr_options_set(narrow, &v, "--", "share", good[i].share), 0);
        assert_int_equal(mr_options_set(narrow, &v, "--", "limit", good[i].limit), 0);
        assert_true(v.share == good[i].fraction && v.limit.fraction == good[i].of);
        assert_int_equal(v.limit.n, good[i].n);
        mr_json_object(json, NULL);
        mr_options_json(narrow, &v, json);
        mr_json_object_end(json);
        assert_true(mr_json_finish(json, &text) > 0);
        assert_string_equal(text, good[i].json);
        mr_json_destroy(json);
    }
    again = v;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (mr_options_set(narrow, &v, "--", bad[i][0], bad[i][1]) != MR_EOPTION)
            fail_msg("'%s' was taken", bad[i][1]);
    assert_memory_equal(&v, &again, sizeof v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_parsed),
        cmocka_unit_test(texts_become_exact_numbers),
        cmocka_unit_test(whole_64_bits_are_exact),
        cmocka_unit_test(doubles_round_trip),
        cmocka_unit_test(errors_say_what_is_wanted),
        cmocka_unit_test(lists_and_shapes),
        cmocka_unit_test(argument_lists),
        cmocka_unit_test(command_lines),
        cmocka_unit_test(flags_that_are_on_show_both_forms),
        cmocka_unit_test(help_and_man_are_complete),
        cmocka_unit_test(json_has_units_in_its_names),
        cmocka_unit_test(a_bad_default_is_an_error),
        cmocka_unit_test(hints_keep_the_sense),
        cmocka_unit_test(nearest_word),
        cmocka_unit_test(durations),
        cmocka_unit_test(shares_limits_and_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
