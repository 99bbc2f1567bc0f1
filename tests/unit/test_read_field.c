/* One field of a sample: the same as in the whole sample, without what only the others need. */
#include "samples.h"

#include "tar_write.h"
#include <errno.h>
#include <millrace/callback.h>

/* Every field of the first samples, alone and with the others. */
static void each_field_is_the_samples(const struct mr_dataset *ds)
{
    void *row[MR_MAX_FIELDS], *alone[MR_MAX_FIELDS];
    int n = mr_dataset_fields(ds);
    for (int f = 0; f < n; f++) {
        row[f] = calloc(1, test_field_bytes(ds, f));
        alone[f] = calloc(1, test_field_bytes(ds, f));
        assert_true(row[f] && alone[f]);
    }
    for (uint64_t i = 0; i < mr_dataset_length(ds) && i < 20; i++) {
        uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], own[MR_MAX_RANK];
        test_works(mr_dataset_read(ds, i, row, dim));
        for (int f = 0; f < n; f++) {
            test_works(mr_dataset_read_field(ds, i, f, alone[f], own));
            size_t bytes = mr_dtype_size(mr_dataset_field(ds, f)->dtype);
            for (int d = 0; d < mr_dataset_field(ds, f)->rank; d++) {
                assert_int_equal(own[d], dim[f][d]);
                bytes *= own[d];
            }
            assert_memory_equal(alone[f], row[f], bytes);
        }
    }
    for (int f = 0; f < n; f++) {
        free(row[f]);
        free(alone[f]);
    }
}

static struct mr_dataset *open_at(const char *format, const char *path)
{
    char uri[1000];
    int n = snprintf(uri, sizeof uri, "%.*s%s", (int)strcspn(format, "%"), format, path);
    snprintf(uri + n, sizeof uri - (size_t)n, "%s", strstr(format, "%s") + 2);
    return test_open(uri);
}

static int64_t label_of(const struct mr_dataset *ds, uint64_t index, int field)
{
    int64_t label = -1;
    test_works(mr_dataset_read_field(ds, index, field, &label, NULL));
    return label;
}

/* Pictures that are none: only what does not look at them can work. */
static void labels_need_no_picture(void **state)
{
    (void)state;
    mkdir(test_path("photos"), 0777);
    mkdir(test_path("photos/a"), 0777);
    mkdir(test_path("photos/b"), 0777);
    test_write("photos/a/1.jpg", "no", 2);
    test_write("photos/b/2.jpg", "no", 2);
    struct mr_dataset *ds = open_at("folder:%s", test_path("photos"));
    assert_int_equal(label_of(ds, 0, 1), 0);
    assert_int_equal(label_of(ds, 1, 1), 1);
    uint8_t pixels[4];
    test_fails(mr_dataset_read_field(ds, 1, 0, pixels, NULL), MR_EFORMAT, "2.jpg");
    assert_int_equal(unlink(test_path("photos/b/2.jpg")), 0);
    assert_int_equal(label_of(ds, 1, 1), 1);
    test_fails(mr_dataset_read_field(ds, 1, 0, pixels, NULL), -ENOENT, "2.jpg");
    mr_dataset_close(ds);
    char uri[1400];
    snprintf(uri, sizeof uri, "mix:1*folder:%s,1*folder:%s", test_path("photos"),
             test_path("photos"));
    test_write("photos/b/2.jpg", "no", 2);
    test_works(mr_dataset_open(uri, &ds));
    for (uint64_t i = 0; i < mr_dataset_length(ds); i++)
        assert_in_range(label_of(ds, i, 1), 0, 1);
    mr_dataset_close(ds);
    test_write("table.csv", "path,grade\nphotos/a/1.jpg,7\nphotos/b/2.jpg,9\n", 45);
    ds = open_at("csv:%s", test_path("table.csv"));
    test_field_is(ds, 1, "label i64");
    assert_int_equal(label_of(ds, 1, 1), 9);
    mr_dataset_close(ds);
}

static void members_of_archives_are_read_alone(void **state)
{
    (void)state;
    struct tar_text t = {0};
    float x[200];
    for (int i = 0; i < 200; i++)
        x[i] = (float)i;
    for (int i = 0; i < 3; i++) {
        char name[20];
        snprintf(name, sizeof name, "%d.jpg", i);
        tar_add_text(&t, name, "no picture");
        snprintf(name, sizeof name, "%d.cls", i);
        tar_add_text(&t, name, i == 1 ? "41" : "40");
        snprintf(name, sizeof name, "%d.npy", i);
        tar_add_npy(&t, name, "<f4", "False", "200,", x, sizeof x);
        snprintf(name, sizeof name, "%d.txt", i);
        tar_add_text(&t, name, "text");
    }
    tar_end(&t);
    const char *path = test_write("a.tar", t.data, t.n);
    tar_free(&t);
    struct mr_dataset *ds =
        open_at("tar:%s,fields=[image:jpg,label:cls,x:npy,text:txt],index=none", path);
    assert_int_equal(label_of(ds, 1, 1), 41);
    float got[200] = {0};
    test_works(mr_dataset_read_field(ds, 2, 2, got, NULL));
    assert_memory_equal(got, x, sizeof x);
    char text[16] = "";
    uint64_t dim[MR_MAX_RANK];
    test_works(mr_dataset_read_field(ds, 2, 3, text, dim));
    assert_memory_equal(text, "text", 4);
    uint8_t pixels[4];
    test_fails(mr_dataset_read_field(ds, 2, 0, pixels, NULL), MR_EFORMAT, "2.jpg");
    mr_dataset_close(ds);
    ds = open_at("tar:%s,fields=[label:cls,x:npy,text:txt],index=none", path);
    each_field_is_the_samples(ds);
    mr_dataset_close(ds);
}

static int get_two(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    memset(row[0], (int)index, 1000);
    dim[1][0] = index % 4;
    for (uint64_t i = 0; i < dim[1][0]; i++)
        ((int64_t *)row[1])[i] = (int64_t)(index * i);
    return 0;
}

static struct mr_dataset *two_fields(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.n = 50;
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "a", .dtype = MR_U8, .rank = 1, .dim = {1000}};
    o.field[1] =
        (struct mr_spec){.name = "b", .dtype = MR_I64, .rank = 1, .var_dims = 1, .dim = {3}};
    o.get = get_two;
    test_works(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static int locate_two(void *user, uint64_t index, struct mr_range range[], int max)
{
    (void)user, (void)max;
    range[0] = (struct mr_range){.file = 0, .offset = index * 8, .bytes = 8};
    range[1] = (struct mr_range){.file = 1, .offset = index * 4096, .bytes = 4096};
    return 2;
}

/* Of a located set without decode, only the field's own range: the other file may be gone. */
static void ranges_are_read_alone(void **state)
{
    (void)state;
    enum { N = 600 };
    uint8_t *bytes = malloc(N * 4096);
    assert_non_null(bytes);
    test_random_bytes(9, bytes, N * 4096);
    const char *file[] = {test_write("labels.bin", bytes, N * 8),
                          test_write("rows.bin", bytes, N * 4096)};
    struct mr_located_opts o;
    struct mr_dataset *ds;
    mr_located_opts_init(&o);
    o.n = N;
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    o.field[1] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {4096}};
    o.n_files = 2;
    o.file = file;
    o.locate = locate_two;
    test_works(mr_dataset_open_located(&o, &ds));
    each_field_is_the_samples(ds);
    assert_int_equal(truncate(file[1], 0), 0);
    for (uint64_t i = 0; i < N; i++) {
        int64_t label = label_of(ds, i, 0);
        assert_memory_equal(&label, bytes + i * 8, 8);
    }
    uint8_t row[4096];
    test_fails(mr_dataset_read_field(ds, 599, 1, row, NULL), MR_ETRUNCATED, "rows.bin: shrank");
    mr_dataset_close(ds);
    free(bytes);
}

static void every_kind_of_set_has_fields(void **state)
{
    (void)state;
    struct mr_dataset *ds = two_fields();
    each_field_is_the_samples(ds);
    uint8_t row[1000];
    test_fails(mr_dataset_read_field(ds, 50, 0, row, NULL), MR_EMISUSE,
               "sample 50: expected 0..49");
    test_fails(mr_dataset_read_field(ds, 0, 2, row, NULL), MR_EMISUSE, "field 2: expected 0..1");
    test_fails(mr_dataset_read_field(ds, 0, -1, row, NULL), MR_EMISUSE, "field -1");
    test_fails(mr_dataset_read_field(ds, 0, 0, NULL, NULL), MR_EMISUSE, "and a row");
    mr_dataset_close(ds);
    test_works(mr_dataset_open("synthetic:n=40,shape=3x5,dtype=f32,classes=7,min-length=1", &ds));
    each_field_is_the_samples(ds);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_need_no_picture),
        cmocka_unit_test(members_of_archives_are_read_alone),
        cmocka_unit_test(ranges_are_read_alone),
        cmocka_unit_test(every_kind_of_set_has_fields),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
