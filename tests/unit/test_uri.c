/* Data sets by URI: where the path ends, which format it has, and what is said when neither is
 * clear. */
#include "npy_write.h"
#include "samples.h"

#include <errno.h>

static const uint8_t idx_file[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9};

static const char *write_idx(const char *name)
{
    return test_write(name, idx_file, sizeof idx_file);
}

static const char *write_npy(const char *name)
{
    uint8_t file[NPY_HEAD_BYTES + 3];
    size_t head = npy_put(file, "|u1", "False", "3,");
    memcpy(file + head, "\7\x8\x9", 3);
    return test_write(name, file, head + 3);
}

/* Opens, is of this format, and holds 7, 8, 9. */
static void expect(const char *uri, const char *format)
{
    struct mr_dataset *ds = test_open(uri);
    assert_string_equal(mr_dataset_format(ds), format);
    test_content(ds, (const uint8_t *)"\7\x8\x9", 3);
    mr_dataset_close(ds);
}

static const char *with(const char *before, const char *path, const char *behind)
{
    static char uri[900];
    snprintf(uri, sizeof uri, "%s%s%s", before, path, behind);
    return uri;
}

static void formats_are_found_by_prefix_and_by_name(void **state)
{
    (void)state;
    expect(write_idx("a-ubyte"), "idx");
    expect(test_write_gz("a-ubyte.gz", idx_file, sizeof idx_file), "idx");
    expect(write_npy("a.npy"), "npy");
    expect(write_npy("no-suffix"), "npy");
    expect(with("idx:", write_idx("whatever"), ""), "idx");
    expect(with("npy:", write_npy("whatever"), ""), "npy");
    expect(with("raw:", test_write("whatever", "\7\x8\x9", 3), ",shape=1"), "raw");
    expect(
        with("raw:", test_write("whatever", "\7\x8\x9", 3), ",shape=1,dtype=uint8,skip=0,record=1"),
        "raw");
    expect(with("raw:path=", test_write("whatever", "\7\x8\x9", 3), ",shape=1"), "raw");
}

static void paths_may_hold_commas_colons_and_equal_signs(void **state)
{
    (void)state;
    static const char *const names[] = {"a,b", "a,labels=none", "x:y",  "idx:z",
                                        ",",   "p=q,r=s",       "a,b,", "100%,1:2,n=3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        const char *path = write_idx(names[i]);
        expect(with("idx:", path, ""), "idx");
        expect(with("idx:", path, ",labels=none"), "idx");
        expect(with("idx:", path, ",labels=none,split=test"), "idx");
        snprintf(name, sizeof name, "%s-ubyte", names[i]);
        path = write_idx(name);
        expect(path, "idx");
        expect(with("", path, ",labels=none"), "idx");
    }
}

static void relative_paths_that_look_like_formats(void **state)
{
    (void)state;
    char cwd[4096];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(test_dir), 0);
    write_npy("raw:x.npy");
    expect("raw:x.npy", "npy"); /* is on the disk as it stands */
    write_idx("z");
    write_npy("idx:z");
    expect("idx:z", "idx"); /* both are: the format's name counts; ./idx:z is the other */
    expect("./idx:z,labels=none", "npy");
    write_npy("other:x.npy");
    expect("other:x.npy", "npy");
    expect("other:x.npy,labels=none", "npy");
    write_idx("shape=1");
    expect("idx:shape=1", "idx");
    assert_int_equal(chdir(cwd), 0);
}

static void what_is_unclear_is_named(void **state)
{
    (void)state;
    const char *formats = "formats: idx, npy, ";
    test_fails(test_open_fails(""), MR_EOPTION, "empty", formats);
    test_fails(test_open_fails("s3://bucket/x"), MR_EUNSUPPORTED,
               "a URL whose name does not tell the format", formats);
    test_fails(test_open_fails("jpeg:x,y=1"), MR_EOPTION, "unknown format 'jpeg'", formats);
    test_fails(test_open_fails("foldr:x"), MR_EOPTION, "did you mean folder?", formats);
    test_fails(test_open_fails("/nowhere/at/all"), -ENOENT, "/nowhere/at/all", "No such file",
               formats);
    test_fails(test_open_fails("/nowhere/at/all,labels=x"), -ENOENT,
               "/nowhere/at/all: No such file");
    test_fails(test_open_fails("idx:/nowhere,labels=x"), -ENOENT, "/nowhere");
    test_fails(test_open_fails(test_write("plain.txt", "hello", 5)), MR_EUNSUPPORTED,
               test_path("plain.txt"), "a file", formats);
    test_fails(test_open_fails("/"), MR_EUNSUPPORTED, "/: a folder", formats);
    test_fails(test_open_fails("idx:"), MR_EOPTION, "no path", "idx:PATH");
    test_fails(test_open_fails("npy:,labels=x"), MR_EOPTION, "no path", "npy:PATH");
    test_fails(test_open_fails("idx:labels=x"), MR_EOPTION, "no path");
    test_fails(test_open_fails(with("idx:", write_idx("o"), ",lables=x")), MR_EOPTION, "lables",
               "labels");
    test_fails(test_open_fails(with("idx:", write_idx("o"), ",split=3")), MR_EOPTION, "split");
}

static int count_format(void *user, const char *name, const char *summary,
                        const struct mr_option *options)
{
    int *n = user;
    char opts[1024];
    assert_non_null(name);
    assert_true(strlen(summary) > 10);
    assert_non_null(options);
    test_works(mr_options_init(options, opts)); /* every default parses */
    mr_options_free(options, opts);
    return ++*n == 3 ? 33 : 0;
}

static void formats_are_listed(void **state)
{
    (void)state;
    int n = 0;
    assert_int_equal(mr_dataset_each(count_format, &n), 33);
    assert_int_equal(mr_dataset_each(count_format, &n), 0);
    assert_true(n >= 3 + 5);
}

/* Any text: an error with a text, or a data set. */
static void any_text_is_survived(void **state)
{
    (void)state;
    static const char *const parts[] = {"idx:",
                                        "npy:",
                                        "raw:",
                                        "synthetic:",
                                        ",",
                                        "=",
                                        "shape",
                                        "n",
                                        "1e6",
                                        "labels",
                                        "none",
                                        "/",
                                        "..",
                                        "x",
                                        "dtype=f32",
                                        "shape=3",
                                        ":",
                                        "-1",
                                        "99999999999999999999",
                                        "%s",
                                        "\xff",
                                        " ",
                                        "split=test",
                                        "path=",
                                        "(",
                                        "]",
                                        "delay=2ms",
                                        "/dev/null"};
    for (uint32_t seed = 0; seed < 3000; seed++) {
        char uri[400] = "";
        uint64_t r = test_random(seed);
        for (int i = 0; i < 1 + (int)(r % 7); i++)
            strcat(uri, parts[(r >> (8 + 7 * i)) % (sizeof parts / sizeof parts[0])]);
        struct mr_dataset *ds;
        int rc = mr_dataset_open(uri, &ds);
        if (rc == 0)
            mr_dataset_close(ds);
        else
            assert_true(rc < 0 && mr_last_error()[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_are_found_by_prefix_and_by_name),
        cmocka_unit_test(paths_may_hold_commas_colons_and_equal_signs),
        cmocka_unit_test(relative_paths_that_look_like_formats),
        cmocka_unit_test(what_is_unclear_is_named),
        cmocka_unit_test(formats_are_listed),
        cmocka_unit_test(any_text_is_survived),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
