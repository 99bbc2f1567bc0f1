/* White-box. list: and csv: follow symbolic links below their root, but not out of it, by every way
 * that reads a picture. */
#include "dataset/pictures/photos.h"
#include "pictures.h"
#include "run_loader.h"

#include <errno.h>

/* Names below in/, and whether they lead outside. dirlink/a.png is refused though its own name is
 * no link. */
static const struct {
    const char *name;
    bool outside;
} pictures[] = {
    {"plain.png", false},  {"link.png", false},      {"absolute.png", false},
    {"sub/up.png", false}, {"through/b.png", false}, {"outside.png", true},
    {"far.png", true},     {"dirlink/a.png", true},  {"chain.png", true},
    {"loop.png", true},
};
#define N (sizeof pictures / sizeof pictures[0])

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, test_path(name)), 0);
}

static int make(void **state)
{
    static const char *const names[] = {"in/plain.png", "in/sub/b.png", "out/a.png"};
    char far[700], list[600] = "", csv[600] = "path,v\n";
    if (test_dir_make(state))
        return -1;
    for (unsigned i = 0; i < 3; i++) {
        test_folders(names[i]);
        test_png(names[i], i, 8, 8);
    }
    link_to("plain.png", "in/link.png");
    snprintf(far, sizeof far, "%s", test_path("in/plain.png"));
    link_to(far, "in/absolute.png");
    link_to("../plain.png", "in/sub/up.png");
    link_to("sub", "in/through");
    link_to("../out/a.png", "in/outside.png");
    snprintf(far, sizeof far, "%s", test_path("out/a.png"));
    link_to(far, "in/far.png");
    link_to("../out", "in/dirlink");
    link_to("outside.png", "in/chain.png");
    link_to("loop.png", "in/loop.png");
    link_to("in", "root");
    for (size_t i = 0; i < N; i++) {
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s\n", pictures[i].name);
        snprintf(csv + strlen(csv), sizeof csv - strlen(csv), "%s,1\n", pictures[i].name);
    }
    test_write("in/l.txt", list, strlen(list));
    test_write("in/l.csv", csv, strlen(csv));
    return 0;
}

static struct mr_dataset *open_set(const char *format, const char *file, const char *options)
{
    char uri[1400];
    snprintf(uri, sizeof uri, "%s:%s%s", format, test_path(file), options);
    return test_open(uri);
}

/* Pictures that are read, and not refused. */
static void check(struct mr_dataset *ds, bool follow)
{
    uint8_t picture[8 * 8 * 3];
    int64_t label;
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    void *const row[] = {picture, &label};
    assert_int_equal(mr_dataset_length(ds), N);
    for (uint64_t i = 0; i < N; i++) {
        int rc = mr_dataset_read(ds, i, row, dim);
        if (!pictures[i].outside || (follow && i + 1 < N)) /* the last leads nowhere */
            assert_int_equal(rc, 0);
        else if (i + 1 < N)
            test_fails(rc, MR_EFORMAT, pictures[i].name, "out/a.png', outside the root folder",
                       "links=follow");
        else
            assert_int_equal(rc, -ELOOP);
    }
}

static void refused_and_followed(void **state)
{
    (void)state;
    static const char *const how[] = {"", ",links=follow"}, *const size =
                                                                ",max-height=8,max-width=8";
    for (int follow = 0; follow < 2; follow++) {
        char options[64];
        snprintf(options, sizeof options, "%s%s", how[follow], size);
        struct mr_dataset *list = open_set("list", "in/l.txt", options),
                          *csv = open_set("csv", "in/l.csv", options);
        check(list, follow);
        check(csv, follow);
        mr_dataset_close(list);
        mr_dataset_close(csv);
    }
    struct mr_dataset *ds = open_set("list", "root/l.txt", size); /* the root may be a link */
    check(ds, false);
    mr_dataset_close(ds);
}

static void by_the_loader(void **state)
{
    (void)state;
    static const int kinds[] = {MR_STORAGE_PREAD, MR_STORAGE_AUTO};
    for (size_t k = 0; k < 2; k++) {
        struct run_config c = run_config(NULL);
        c.ds = open_set("list", "in/l.txt", ",max-height=8,max-width=8");
        c.chain = "resize(8,8)";
        c.opts.storage = kinds[k];
        c.opts.batch_size = 1;
        c.opts.bad = MR_BAD_SKIP;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, 5);
        for (uint64_t i = 0; i < run.n; i++)
            assert_false(pictures[run.row[i].index].outside);
        free(run.row);
        mr_dataset_close(c.ds);
    }
}

int main(void)
{
    if (!test_decodes_png())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_and_followed),
        cmocka_unit_test(by_the_loader),
    };
    return cmocka_run_group_tests(tests, make, test_dir_drop);
}
