/* The program's option tables that take rows of the loader's table. */
#include "../../cli/options.c"
#include "unit.h"

struct opts {
    int own;
    struct mr_loader_opts loader;
    int epochs, w;
};

static const char *const without[] = {"cache", "bad", NULL};

static const struct mr_option table[] = {
    {"own", 0, MR_OPT_FLAG, offsetof(struct opts, own), .help = "Own"},
    CLI_LOADER_OPTION(struct opts, loader, "workers", .key = 'j', .initial = "3", .max = 9,
                      .help = "Hands", .group = "Here"),
    CLI_LOADER_REST(struct opts, loader, .choices = without),
    {"epochs", 0, MR_OPT_FLAG, offsetof(struct opts, epochs), .help = "Not the loader's"},
    {"w", 'b', MR_OPT_FLAG, offsetof(struct opts, w), .help = "Takes the key of batch-size"},
    {NULL},
};

static const struct mr_option *find(const struct mr_option *in, const char *name)
{
    while (in->name && strcmp(in->name, name) != 0)
        in++;
    return in->name ? in : NULL;
}

static void a_named_row_is_the_loaders_but_for_what_it_says(void **state)
{
    (void)state;
    const struct mr_option *row = find(cli_options(table), "workers");
    const struct mr_option *of = find(mr_loader_options(), "workers");
    assert_non_null(row);
    assert_int_equal(row->type, of->type);
    assert_int_equal(row->offset, offsetof(struct opts, loader) + of->offset);
    assert_string_equal(row->unit, of->unit);
    assert_int_equal(row->key, 'j');
    assert_string_equal(row->initial, "3");
    assert_true(row->max == 9);
    assert_string_equal(row->help, "Hands");
    assert_string_equal(row->group, "Here");
}

/* Each row of the loader's is in the table once, or excluded, or the command's own. */
static void the_rest_is_all_that_is_not_named(void **state)
{
    (void)state;
    const struct mr_option *all_rows = cli_options(table);
    for (const struct mr_option *of = mr_loader_options(); of->name; of++) {
        const struct mr_option *row = find(all_rows, of->name);
        if (strcmp(of->name, "cache") == 0 || strcmp(of->name, "bad") == 0) {
            assert_null(row);
            continue;
        }
        assert_non_null(row);
        assert_null(find(row + 1, of->name));
        if (strcmp(of->name, "epochs") == 0)
            assert_int_equal(row->offset, offsetof(struct opts, epochs));
        else
            assert_int_equal(row->offset, offsetof(struct opts, loader) + of->offset);
    }
    for (const struct mr_option *a = all_rows; a->name; a++)
        for (const struct mr_option *b = a + 1; a->key && b->name; b++)
            assert_int_not_equal(a->key, b->key);
    assert_int_equal(find(all_rows, "w")->key, 'b');
    assert_ptr_equal(cli_options(table), all_rows);
}

static void defaults_are_the_loaders_also_without_a_row(void **state)
{
    (void)state;
    struct opts o;
    struct mr_loader_opts want;
    memset(&o, 0xAB, sizeof o);
    mr_loader_opts_init(&want);
    assert_int_equal(cli_options_init(table, &o), 0);
    want.workers = 3;
    assert_memory_equal(&o.loader, &want, sizeof want);
    assert_int_equal(o.own, 0);
    char *argv[] = {"-j", "4", "--seed", "7", "--no-pin", "-b", "rest"};
    assert_int_equal(mr_options_parse_args(cli_options(table), &o, 7, argv), 1);
    want.workers = 4;
    want.seed = 7;
    want.pin = 0;
    assert_memory_equal(&o.loader, &want, sizeof want);
    assert_int_equal(o.w, 1);
    assert_int_equal(mr_options_set(cli_options(table), &o, "--", "workers", "10"), MR_EOPTION);
    assert_int_equal(mr_options_set(cli_options(table), &o, "--", "cache", "host"), MR_EOPTION);
}

static void a_table_without_such_rows_is_itself(void **state)
{
    (void)state;
    static const struct mr_option plain[] = {{"a", 0, MR_OPT_FLAG, 0}, {NULL}};
    assert_ptr_equal(cli_options(plain), plain);
}

static int free_tables(void **state)
{
    (void)state;
    for (struct built *next; all; all = next) {
        next = all->next;
        free(all);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_row_is_the_loaders_but_for_what_it_says),
        cmocka_unit_test(the_rest_is_all_that_is_not_named),
        cmocka_unit_test(defaults_are_the_loaders_also_without_a_row),
        cmocka_unit_test(a_table_without_such_rows_is_itself),
    };
    return cmocka_run_group_tests(tests, NULL, free_tables);
}
