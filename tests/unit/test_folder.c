/* Folders and lists of pictures: which files, in which order, with which labels; what is
 * refused. */
#include "pictures.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <millrace/loader.h>

struct want {
    const char *name;
    int64_t label;
};

static void expect(struct mr_dataset *ds, const struct want *want, size_t n)
{
    assert_int_equal(mr_dataset_length(ds), n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(test_name_of(ds, i), want[i].name);
        if (want[i].label >= 0)
            assert_int_equal(test_label(ds, i), want[i].label);
    }
}

static struct mr_dataset *open_below(const char *format, const char *name, const char *options)
{
    char uri[1000];
    snprintf(uri, sizeof uri, "%s:%s%s", format, test_path(name), options);
    return test_open(uri);
}

static int fails_below(const char *format, const char *name, const char *options)
{
    char uri[1000];
    snprintf(uri, sizeof uri, "%s:%s%s", format, test_path(name), options);
    return test_open_fails(uri);
}

/* torchvision: folders by path as text ("sub", "sub-1", "sub/x": '-' is less than '/'), files by
 * name within each. */
static void order_is_image_folders(void **state)
{
    (void)state;
    static const char *const files[] = {
        "o/b/z.jpg",       "o/b/a.PNG",        "o/b/B.JpEg",    "o/b/sub/a.webp",
        "o/b/sub-1/a.jpg", "o/b/.x.jpg",       "o/b/notes.txt", "o/Z/10.jpg",
        "o/Z/9.jpg",       "o/\xc3\xa9/e.jpg", "o/a b/c.jpg",   "o/.hidden/d.jpg",
        "o/beside.jpg",    "o/b/jpg",          "o/b/.jpg",      "o/b/sub/x/q.jpg"};
    static const struct want want[] = {
        {"o/Z/10.jpg", 0},       {"o/Z/9.jpg", 0},       {"o/a b/c.jpg", 1},
        {"o/b/B.JpEg", 2},       {"o/b/a.PNG", 2},       {"o/b/z.jpg", 2},
        {"o/b/sub/a.webp", 2},   {"o/b/sub-1/a.jpg", 2}, {"o/b/sub/x/q.jpg", 2},
        {"o/\xc3\xa9/e.jpg", 3},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        test_touch(files[i]);
    struct mr_dataset *ds = open_below("folder", "o", "");
    expect(ds, want, sizeof want / sizeof want[0]);
    test_field_is(ds, 1, "label i64");
    assert_int_equal(mr_dataset_classes(ds), 4);
    assert_string_equal(mr_dataset_class_name(ds, 2), "b");
    assert_int_equal(mr_dataset_class_samples(ds, 2), 6);
    assert_null(mr_dataset_class_name(ds, 4));
    char *names;
    test_works(mr_dataset_class_names(ds, &names));
    cJSON *list = cJSON_Parse(names);
    assert_int_equal(cJSON_GetArraySize(list), 4);
    for (int k = 0; k < 4; k++)
        assert_string_equal(cJSON_GetArrayItem(list, k)->valuestring,
                            mr_dataset_class_name(ds, (uint64_t)k));
    cJSON_Delete(list);
    free(names);
    assert_int_equal(mr_dataset_class_samples(ds, 4), 0);
    assert_string_equal(
        mr_dataset_text(ds),
        "folder: o: 10 pictures of 4 classes (left out: 1 beside the classes, 2 other files)");
    mr_dataset_close(ds);
}

/* What no picture of max-pixels can be is not read: a file of holes, here, that would take its
 * time. */
static void absurd_sizes_are_not_read(void **state)
{
    (void)state;
    test_touch("huge/a.jpg");
    assert_int_equal(truncate(test_path("huge/a.jpg"), (64ll << 20) + 8001), 0);
    struct mr_dataset *ds =
        open_below("folder", "huge", ",max-pixels=1000,max-height=10,max-width=10");
    uint8_t row[300];
    int rc = mr_dataset_read(ds, 0, (void *const[]){row}, NULL);
    test_fails(rc, MR_ELIMIT, "huge/a.jpg", "67116865 bytes", "67116864 at most", "max-pixels");
    struct mr_loader_opts lo;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&lo);
    lo.collate = MR_COLLATE_PAD;
    test_works(mr_loader_open(ds, NULL, NULL, NULL, &lo, &ld));
    test_fails(mr_loader_next(ld, NULL, &b), MR_ELIMIT, "huge/a.jpg", "67116864 at most");
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void without_classes_there_is_no_label(void **state)
{
    (void)state;
    static const struct want flat[] = {{"p/a.jpg", -1}, {"p/b.jpg", -1}};
    static const struct want deep[] = {
        {"p/a.jpg", -1}, {"p/b.jpg", -1}, {"p/x/0.jpg", -1}, {"p/x/y/1.jpg", -1}};
    test_touch("p/b.jpg");
    test_touch("p/a.jpg");
    struct mr_dataset *ds = test_open(test_path("p")); /* told by what is in it */
    assert_string_equal(mr_dataset_format(ds), "folder");
    expect(ds, flat, 2);
    assert_int_equal(mr_dataset_fields(ds), 1);
    char *names;
    test_works(mr_dataset_class_names(ds, &names));
    assert_null(names);
    assert_int_equal(mr_dataset_classes(ds), 0);
    assert_string_equal(mr_dataset_text(ds), "folder: p: 2 pictures");
    mr_dataset_close(ds);
    test_fails(fails_below("folder", "p", ",labels=folders"), MR_EFORMAT, "/p: no sub-folders",
               "labels=none");
    test_touch("p/x/y/1.jpg");
    test_touch("p/x/0.jpg");
    ds = open_below("folder", "p", ",labels=none");
    expect(ds, deep, 4);
    assert_int_equal(mr_dataset_fields(ds), 1);
    mr_dataset_close(ds);
    ds = test_open(test_path("p"));
    assert_int_equal(mr_dataset_length(ds), 2);
    assert_int_equal(mr_dataset_classes(ds), 1);
    mr_dataset_close(ds);
}

static void what_cannot_be_a_data_set_is_named(void **state)
{
    (void)state;
    test_touch("e/full/a.jpg");
    test_touch("e/none/readme.txt");
    test_fails(fails_below("folder", "e", ""), MR_EFORMAT, "/e: class 'none' has no pictures",
               "allow-empty");
    test_fails(fails_below("folder", "e", ""), MR_EFORMAT,
               ", 1 other file: videos? video: opens those");
    assert_null(strstr(mr_last_error(), "remove"));
    test_touch("e/none/deep/one.txt");
    test_touch("e/none/deep/two.txt");
    test_fails(fails_below("folder", "e", ""), MR_EFORMAT, ", 3 other files: "); /* each once */
    test_tree_clear("e/none/deep/one.txt");
    test_tree_clear("e/none/deep/two.txt");
    struct mr_dataset *ds = open_below("folder", "e", ",allow-empty");
    assert_int_equal(mr_dataset_classes(ds), 2);
    assert_int_equal(mr_dataset_class_samples(ds, 1), 0);
    assert_int_equal(mr_dataset_length(ds), 1);
    mr_dataset_close(ds);
    test_tree_clear("e/full/a.jpg");
    test_fails(fails_below("folder", "e", ",allow-empty"), MR_EFORMAT, "/e: no pictures");
    test_fails(fails_below("folder", "nowhere", ""), -ENOENT, "/nowhere");
    test_fails(fails_below("folder", "e/none/readme.txt", ""), -ENOTDIR, "readme.txt");
    test_fails(test_open_fails("folder:labels=none"), MR_EOPTION, "no path");
    if (geteuid() == 0) {
        print_message("SKIP folders without read permission: the superuser reads them\n");
        return;
    }
    test_touch("e/full/a.jpg");
    chmod(test_path("e/full"), 0);
    test_fails(fails_below("folder", "e", ""), -EACCES, "/e/full");
    chmod(test_path("e/full"), 0755);
}

static void links_are_followed_but_not_in_circles(void **state)
{
    (void)state;
    test_touch("l/far/a.jpg");
    test_touch("l/set/one/b.jpg");
    assert_int_equal(symlink("../far", test_path("l/set/two")), 0);
    assert_int_equal(symlink("nowhere", test_path("l/set/one/gone.jpg")), 0);
    struct mr_dataset *ds = open_below("folder", "l/set", "");
    assert_int_equal(mr_dataset_classes(ds), 2);
    assert_string_equal(test_name_of(ds, mr_dataset_length(ds) - 1), "l/set/two/a.jpg");
    mr_dataset_close(ds);
    assert_int_equal(symlink("..", test_path("l/set/one/up")), 0);
    test_fails(fails_below("folder", "l/set", ""), MR_EFORMAT,
               "leads back to a folder that contains it", "remove the link");
    test_fails(fails_below("folder", "l/set", ",labels=none"), MR_EFORMAT, "leads back");
}

/* Another name, another label, another order are another data set; another place is not. */
static void fingerprints_tell_sets_apart(void **state)
{
    (void)state;
    uint64_t print[5];
    static const char *const roots[] = {"f0", "f1", "f2", "f3", "f4"};
    static const char *const files[][2] = {{"a/1.jpg", "b/2.jpg"},
                                           {"a/1.jpg", "b/2.jpg"},
                                           {"a/1.jpg", "b/3.jpg"},
                                           {"a/1.jpg", "c/2.jpg"},
                                           {"a/1.jpg", "a/2.jpg"}};
    for (size_t i = 0; i < 5; i++) {
        char name[64];
        for (size_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s/%s", roots[i], files[i][k]);
            test_touch(name);
        }
        struct mr_dataset *ds = open_below("folder", roots[i], "");
        print[i] = mr_dataset_fingerprint(ds);
        mr_dataset_close(ds);
    }
    assert_true(print[0] == print[1]);
    for (size_t i = 1; i < 5; i++)
        for (size_t k = 1; k < i; k++)
            assert_true(print[i] != print[k]);
}

static void pictures_are_read_with_their_labels(void **state)
{
    (void)state;
    if (!test_decodes_png())
        skip();
    char name[64];
    for (unsigned i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "r/class%u/%02u.png", i % 3, i);
        test_png(name, i, 5 + i, 20 - i);
    }
    struct mr_dataset *ds = open_below("folder", "r", ",max-height=64,max-width=64");
    assert_int_equal(mr_dataset_length(ds), 12);
    for (uint64_t s = 0; s < 12; s++) {
        static uint8_t pixels[64 * 64 * 3];
        int64_t label;
        uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
        unsigned key = (unsigned)(s / 4 + s % 4 * 3);
        test_works(mr_dataset_read(ds, s, (void *[]){pixels, &label}, dim));
        assert_int_equal(label, key % 3);
        assert_int_equal(dim[0][0], 5 + key);
        assert_int_equal(dim[0][1], 20 - key);
        for (unsigned i = 0; i < (5 + key) * (20 - key) * 3; i++)
            assert_int_equal(pixels[i],
                             test_pixel(key, i / 3 / (20 - key), i / 3 % (20 - key), i % 3));
    }
    mr_dataset_close(ds);
}

static struct mr_dataset *open_list(const char *text, const char *options)
{
    test_write("list.txt", text, strlen(text));
    return open_below("list", "list.txt", options);
}

static int list_fails(const char *text, const char *options)
{
    test_write("list.txt", text, strlen(text));
    return fails_below("list", "list.txt", options);
}

static void lists_have_paths_and_labels(void **state)
{
    (void)state;
    static const struct want numbers[] = {{"a.jpg", 7}, {"x y/b, c.png", -3}, {"./d", 0}};
    static const struct want names[] = {{"a", 1}, {"b", 0}, {"c", 1}, {"d", 2}};
    static const struct want bare[] = {{"a.jpg", -1}, {"b.jpg", -1}};
    struct mr_dataset *ds = open_list("\xef\xbb\xbf"
                                      "a.jpg\t7\r\n\r\nx y/b, c.png\t-3\n \t\n./d\t0",
                                      "");
    assert_int_equal(mr_dataset_length(ds), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(test_name_of(ds, i), numbers[i].name);
        assert_int_equal(test_label(ds, i), numbers[i].label);
    }
    assert_int_equal(mr_dataset_classes(ds), 0);
    mr_dataset_close(ds);
    ds = open_list("a\tdog\nb\tcat\nc\tdog\nd\tdogs\n", "");
    expect(ds, names, 4);
    assert_int_equal(mr_dataset_classes(ds), 3);
    assert_string_equal(mr_dataset_class_name(ds, 0), "cat");
    assert_string_equal(mr_dataset_class_name(ds, 2), "dogs");
    assert_int_equal(mr_dataset_class_samples(ds, 1), 2);
    assert_string_equal(mr_dataset_text(ds), "list: list.txt: 4 pictures of 3 classes");
    mr_dataset_close(ds);
    ds = open_list("a.jpg\nb.jpg\n", "");
    expect(ds, bare, 2);
    assert_int_equal(mr_dataset_fields(ds), 1);
    mr_dataset_close(ds);
    ds = open_list("a.jpg\n/data/set/b.jpg\n", ",root=/data/set/");
    assert_string_equal(test_name_of(ds, 0), "/data/set/a.jpg");
    assert_string_equal(test_name_of(ds, 1), "/data/set/b.jpg");
    mr_dataset_close(ds);
}

static void lists_may_have_their_root_in_a_bucket(void **state)
{
    (void)state;
    char uri[1000];
    struct mr_dataset *ds;
    snprintf(uri, sizeof uri, "list:%s,root=s3://bucket/set", test_path("list.txt"));
    test_write("list.txt", "a.jpg\ns3://bucket/set/b.jpg\n", 28);
    int rc = mr_dataset_open(uri, &ds);
    if (rc == MR_EUNSUPPORTED) {
        print_message("SKIP %s\n", mr_last_error());
        skip();
    }
    test_works(rc);
    assert_string_equal(test_name_of(ds, 0), "s3://bucket/set/a.jpg");
    assert_string_equal(test_name_of(ds, 1), "s3://bucket/set/b.jpg");
    mr_dataset_close(ds);
}

static void bad_lists_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options;
        int code;
        const char *error;
    } bad[] = {
        {"", "", MR_EFORMAT, "list.txt: no lines"},
        {"\n\n \n", "", MR_EFORMAT, "list.txt: no lines"},
        {"a\t1\n\nb\n", "", MR_EFORMAT, "list.txt:3: no label"},
        {"a\nb\t1\n", "", MR_EFORMAT, "list.txt:2: a label"},
        {"a\t1\t2\n", "", MR_EFORMAT, "list.txt:1: two tabs"},
        {"a\t\n", "", MR_EFORMAT, "list.txt:1: no label"},
        {"a\n../b\n", "", MR_EFORMAT, "list.txt:2: '../b' is outside the root folder"},
        {"a\nb/../../c\n", "", MR_EFORMAT, "list.txt:2: 'b/../../c' is outside"},
        {"b/..\n", "", MR_EFORMAT, "'b/..' is outside"},
        {"/etc/passwd\n", "", MR_EFORMAT, "'/etc/passwd' is outside"},
        {"/data/settings\n", ",root=/data/set", MR_EFORMAT, "'/data/settings' is outside"},
        {"/data/set/../x\n", ",root=/data/set", MR_EFORMAT,
         "is outside the root folder "
         "'/data/set'"},
        {"/data/set//etc/passwd\n", ",root=/data/set", MR_EFORMAT, "is outside"},
        {"http://host/x.jpg\n", "", MR_EFORMAT, "'http://host/x.jpg' is outside"},
        {"s3://other/x.jpg\n", ",root=s3://bucket", MR_EFORMAT,
         "is outside the root folder "
         "'s3://bucket'"},
        {"s3://bucket/../x.jpg\n", ",root=s3://bucket", MR_EFORMAT, "is outside"},
        {"\xff\xfe"
         "a\n",
         "", MR_EFORMAT, "UTF-16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        test_fails(list_fails(bad[i].text, bad[i].options), bad[i].code, bad[i].error);
    test_write("list.txt", "a\0b\n", 4);
    test_fails(fails_below("list", "list.txt", ""), MR_EFORMAT, "list.txt: a byte 0 at byte 1");
    test_fails(fails_below("list", "gone.txt", ""), -ENOENT, "gone.txt");
    char *text = malloc(10001);
    assert_non_null(text);
    memset(text, 'a', 10000);
    text[10000] = 0;
    test_fails(list_fails(text, ""), MR_ELIMIT, "list.txt:1: 'aaa", "a path of 100");
    free(text);
}

/* A file that is not there is found when it is read, not at open. */
static void missing_pictures_are_bad_samples(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_list("gone.jpg\t5\n", ",max-height=4,max-width=4");
    uint8_t pixels[48];
    int64_t label;
    test_fails(mr_dataset_read(ds, 0, (void *[]){pixels, &label}, NULL), -ENOENT, "gone.jpg");
    mr_dataset_close(ds);
}

/* Of structs, which no parser has seen. */
static void choices_that_are_none_are_refused(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_folder_opts folder;
    struct mr_csv_opts csv;
    mr_folder_opts_init(&folder);
    folder.path = test_dir;
    folder.labels = 3;
    test_fails(mr_dataset_open_folder(&folder, &ds), MR_EOPTION, "labels=3");
    mr_folder_opts_init(&folder);
    folder.path = test_dir;
    folder.picture.color = 1000;
    test_fails(mr_dataset_open_folder(&folder, &ds), MR_EOPTION, "color=1000");
    mr_csv_opts_init(&csv);
    csv.path = test_path("none.csv");
    csv.delimiter = -1;
    test_fails(mr_dataset_open_csv(&csv, &ds), MR_EOPTION, "delimiter=-1");
    struct mr_picture_opts opts = {.alpha = 9};
    void *pixels;
    uint32_t h, w;
    test_fails(mr_picture_decode("x", "", 0, &opts, 0, &pixels, &h, &w), MR_EOPTION, "alpha 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_image_folders),
        cmocka_unit_test(absurd_sizes_are_not_read),
        cmocka_unit_test(without_classes_there_is_no_label),
        cmocka_unit_test(what_cannot_be_a_data_set_is_named),
        cmocka_unit_test(links_are_followed_but_not_in_circles),
        cmocka_unit_test(fingerprints_tell_sets_apart),
        cmocka_unit_test(pictures_are_read_with_their_labels),
        cmocka_unit_test(lists_have_paths_and_labels),
        cmocka_unit_test(lists_may_have_their_root_in_a_bucket),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(missing_pictures_are_bad_samples),
        cmocka_unit_test(choices_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
