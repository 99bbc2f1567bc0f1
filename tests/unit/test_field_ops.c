/* Ops that change which fields a batch has: drop, keep, copy, attention_mask. */
#include "pictures.h"
#include "run_loader.h"

#define N       400
#define LONGEST 20

/* ids: 0 to 20 numbers; x: 3 numbers; label. */
static uint64_t length_of(uint64_t index)
{
    return index * 7 % (LONGEST + 1);
}

static int32_t id_of(uint64_t index, uint64_t k)
{
    return (int32_t)(index * 100 + k);
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    dim[0][0] = length_of(index);
    for (uint64_t k = 0; k < dim[0][0]; k++)
        ((int32_t *)row[0])[k] = id_of(index, k);
    for (int k = 0; k < 3; k++)
        ((float *)row[1])[k] = (float)index + (float)k / 4;
    *(int64_t *)row[2] = (int64_t)(index % 10);
    return 0;
}

static struct mr_dataset *open_set(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds = NULL;
    mr_callback_opts_init(&o);
    o.name = "words";
    o.n = N;
    o.n_fields = 3;
    o.field[0] = (struct mr_spec){
        .name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {LONGEST}};
    o.field[1] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {3}};
    o.field[2] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    o.get = get;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static struct mr_transform *make(const char *text)
{
    struct mr_transform *chain = NULL;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, text));
    return chain;
}

/* Calls check for each batch of an epoch. */
static void each_batch(const char *text, enum mr_collate collate, const char *device,
                       void (*check)(const struct mr_loader *ld, const struct mr_batch *b))
{
    struct mr_dataset *ds = open_set();
    struct mr_transform *chain = make(text);
    struct mr_device *dev;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    opts.batch_size = 32;
    opts.collate = collate;
    must(mr_device_open(device, &dev));
    must(mr_loader_open(ds, NULL, chain, dev, &opts, &ld));
    int rc, n = 0;
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        check(ld, &b);
        must(mr_loader_release(ld, &b, NULL));
        n++;
    }
    must(rc);
    assert_int_equal(n, (N + 31) / 32);
    mr_loader_close(ld);
    mr_device_close(dev);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
}

static void has_fields(const struct mr_loader *ld, const struct mr_batch *b, int n,
                       const char *const names[])
{
    assert_int_equal(b->n_fields, n);
    assert_null(mr_loader_field(ld, n));
    for (int f = 0; f < n; f++) {
        assert_string_equal(mr_loader_field(ld, f)->name, names[f]);
        assert_string_equal(b->field[f].spec.name, names[f]);
    }
}

static void is_label(const struct mr_batch *b, int f)
{
    for (uint64_t r = 0; r < b->n; r++)
        assert_int_equal(((const int64_t *)b->field[f].data)[r], b->indices[r] % 10);
}

static void is_x(const struct mr_batch *b, int f, double factor)
{
    for (uint64_t r = 0; r < b->n; r++)
        for (uint64_t k = 0; k < 3; k++)
            assert_true(((const float *)b->field[f].data)[3 * r + k] ==
                        (float)(factor * ((double)b->indices[r] + (double)k / 4)));
}

static void check_drop(const struct mr_loader *ld, const struct mr_batch *b)
{
    has_fields(ld, b, 2, (const char *const[]){"x", "label"});
    is_x(b, 0, 2);
    is_label(b, 1);
}

static void check_keep(const struct mr_loader *ld, const struct mr_batch *b)
{
    has_fields(ld, b, 2, (const char *const[]){"label", "x"});
    is_label(b, 0);
    is_x(b, 1, 1);
}

static void test_drop_and_keep(void **state)
{
    (void)state;
    each_batch("ids.drop,scale(2)", MR_COLLATE_STACK, "cpu", check_drop);
    each_batch("x.scale(2),ids.drop", MR_COLLATE_STACK, "sim:", check_drop);
    each_batch("label+x.keep", MR_COLLATE_STACK, "cpu", check_keep);
    each_batch("label+x.keep", MR_COLLATE_STACK, "sim:", check_keep);
}

/* A field and its copies: untouched, changed, and as it was when it was copied. */
static void check_copies(const struct mr_loader *ld, const struct mr_batch *b)
{
    has_fields(ld, b, 5, (const char *const[]){"x", "label", "before", "same", "twice"});
    is_x(b, 0, 2);
    is_label(b, 1);
    is_x(b, 2, 1);
    is_x(b, 3, 1);
    is_x(b, 4, 4);
}

static void test_copy(void **state)
{
    (void)state;
    static const char chain[] =
        "ids.drop,copy(before),x.copy(same),scale(2),x.copy(twice),twice.scale(2)";
    each_batch(chain, MR_COLLATE_STACK, "cpu", check_copies);
    each_batch(chain, MR_COLLATE_STACK, "sim:", check_copies);
}

/* The usual fields of a language model, by the order of their rows. */
static void check_language(const struct mr_loader *ld, const struct mr_batch *b)
{
    has_fields(ld, b, 3, (const char *const[]){"ids", "labels", "attention_mask"});
    const int32_t *ids = b->field[0].data;
    const int64_t *labels = b->field[1].data;
    const uint8_t *mask = b->field[2].data;
    assert_int_equal(b->field[2].spec.dtype, MR_U8);
    for (uint64_t r = 0; r < b->n; r++)
        for (uint64_t k = 0; k < 12; k++) {
            uint64_t i = b->indices[r], n = MR_MIN(length_of(i), 12), at = r * 12 + k;
            assert_int_equal(ids[at], k < n ? id_of(i, k) : 0);
            assert_int_equal(labels[at], k + 1 < n ? id_of(i, k + 1) : -100);
            assert_int_equal(mask[at], k < n);
        }
}

static void test_language_model(void **state)
{
    (void)state;
    static const char chain[] =
        "x.drop,label.drop,truncate(12),ids.copy(labels),ids.attention_mask,"
        "labels.cast(i64),labels.shift(1,-100),ids.pad_to(12),labels.pad_to(12,-100),"
        "attention_mask.pad_to(12)";
    each_batch(chain, MR_COLLATE_STACK, "cpu", check_language);
    each_batch(chain, MR_COLLATE_STACK, "sim:", check_language);
}

/* Lengths are those before padding, also when the loader pads. */
static void check_masks(const struct mr_loader *ld, const struct mr_batch *b)
{
    has_fields(ld, b, 4, (const char *const[]){"ids", "x", "label", "seen"});
    uint64_t width = b->field[3].spec.dim[1];
    for (uint64_t r = 0; r < b->n; r++) {
        assert_int_equal(b->field[3].lengths[r], length_of(b->indices[r]));
        assert_int_equal(b->field[0].lengths[r], length_of(b->indices[r]));
        for (uint64_t k = 0; k < width; k++)
            assert_int_equal(((const uint8_t *)b->field[3].data)[r * width + k],
                             k < length_of(b->indices[r]));
    }
    is_x(b, 1, 1);
    is_label(b, 2);
}

static void test_mask_of_varying(void **state)
{
    (void)state;
    each_batch("attention_mask(seen)", MR_COLLATE_PAD, "cpu", check_masks);
    each_batch("attention_mask(seen)", MR_COLLATE_PAD, "sim:", check_masks);
}

/* The same bits for any number of workers, and after a resume. */
static void test_any_workers_and_resume(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_set();
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.chain = "ids.copy(labels),label.drop,random_span(9),ids.attention_mask,labels.shift";
    c.sampler = "random";
    c.opts.collate = MR_COLLATE_FIXED;
    c.opts.batch_size = 16;
    c.opts.workers = 1;
    struct run one = run_loader(&c);
    must(one.rc);
    for (uint32_t workers = 2; workers <= 8; workers *= 2) {
        c.opts.workers = workers;
        struct run many = run_loader(&c);
        assert_same_rows(&one, &many);
        run_free(&many);
    }
    c.stop_after = 7;
    struct run first = run_loader(&c);
    assert_non_null(strstr(first.state, "\"chain\": \"ids.copy(labels),label.drop,random_span(9)"));
    c.stop_after = 0;
    c.opts.state = first.state;
    struct run rest = run_loader(&c);
    must(rest.rc);
    assert_int_equal(first.n + rest.n, one.n);
    for (uint64_t i = 0; i < rest.n; i++)
        assert_int_equal(rest.row[i].hash, one.row[first.n + i].hash);
    run_free(&rest);
    c.chain = "ids.copy(labels),label.drop,random_span(8),ids.attention_mask,labels.shift";
    rest = run_loader(&c);
    assert_int_equal(rest.rc, MR_ESTATE);
    assert_non_null(strstr(rest.error, "another transform chain"));
    run_free(&rest);
    run_free(&first);
    run_free(&one);
    mr_dataset_close(ds);
}

/* A picture that nothing is made from needs no size, and is not decoded. */
static void test_dropped_pictures(void **state)
{
    (void)state;
    test_tree_clear("dropped");
    test_touch("dropped/a/0.png"); /* no picture at all */
    test_touch("dropped/b/1.png");
    char uri[1000];
    snprintf(uri, sizeof uri, "folder:%s", test_path("dropped"));
    struct run_config c = run_config(uri);
    c.chain = "image.drop";
    struct run run = run_loader(&c);
    must(run.rc);
    assert_int_equal(run.n, 2);
    run_free(&run);
    c.chain = "label.drop";
    run = run_loader(&c);
    assert_int_equal(run.rc, MR_ESHAPE);
    assert_non_null(strstr(run.error, "samples differ in shape"));
    run_free(&run);
}

/* Two windows of one picture: all of it is decoded, so it must have a largest size. */
static void test_copied_pictures(void **state)
{
    (void)state;
    if (!test_decodes_png())
        skip();
    test_tree_clear("copied");
    test_png("copied/a/0.png", 3, 20, 30);
    test_png("copied/a/1.png", 4, 25, 20);
    char uri[1000];
    snprintf(uri, sizeof uri, "folder:%s", test_path("copied"));
    struct mr_dataset *ds = test_open(uri);
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.chain = "image.copy(other),crop(9,8,1,2),other.crop(9,8,1,2)";
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_ESHAPE);
    run_free(&run);
    mr_dataset_close(ds);
    snprintf(uri, sizeof uri, "folder:%s,max-height=64,max-width=64", test_path("copied"));
    ds = test_open(uri);
    struct mr_transform *chain = make(c.chain);
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    must(mr_loader_open(ds, NULL, chain, NULL, &c.opts, &ld));
    assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
    has_fields(ld, &b, 3, (const char *const[]){"image", "label", "other"});
    assert_int_equal(b.field[0].bytes, 2 * 9 * 8 * 3);
    assert_memory_equal(b.field[0].data, b.field[2].data, b.field[0].bytes);
    for (unsigned k = 0; k < 9 * 8 * 3; k++)
        assert_int_equal(((const uint8_t *)b.field[2].data)[k],
                         test_pixel(3, 1 + k / 24, 2 + k / 3 % 8, k % 3));
    must(mr_loader_release(ld, &b, NULL));
    mr_loader_close(ld);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
}

static void refused(const char *text, int code, const char *says)
{
    const struct mr_spec fields[] = {
        {.name = "image", .dtype = MR_F32, .rank = 3, .dim = {8, 8, 3}},
        {.name = "label", .dtype = MR_F32, .rank = 1, .dim = {10}},
        {.name = "points", .dtype = MR_F32, .rank = 2, .dim = {5, 2}},
        {.name = "n", .dtype = MR_I64},
    };
    struct mr_transform *chain;
    must(mr_transform_create(&chain));
    int rc = mr_transform_add(chain, text);
    if (rc == 0)
        rc = mr_transform_bind(chain, fields, (int)MR_COUNT(fields));
    assert_int_equal(rc, code);
    if (!strstr(mr_last_error(), says))
        fail_msg("%s: says '%s', not '%s'", text, mr_last_error(), says);
    assert_int_equal(mr_transform_fields(chain), 0);
    mr_transform_destroy(chain);
}

static void test_refuses(void **state)
{
    (void)state;
    refused("drop", MR_EOPTION, "as in label.drop");
    refused("keep", MR_EOPTION, "as in label.keep");
    refused("copy", MR_EOPTION, "1 to 23 bytes");
    refused("copy(a_name_of_more_than_23_bytes)", MR_EOPTION, "1 to 23 bytes");
    refused("copy(label)", MR_ESHAPE, "a field 'label' already");
    refused("what.drop", MR_ESHAPE, "no field 'what'; there are: image, label, points, n");
    refused("image.drop,label.drop,points.drop,n.drop", MR_ESHAPE, "no field would be left");
    refused("label.drop,label.drop", MR_ESHAPE, "no field 'label'; there are: image, points, n");
    refused("image+image.keep", MR_ESHAPE, "'image' is named twice");
    refused("n.attention_mask", MR_ESHAPE, "needs a first dimension");
    refused("mixup,image.copy(b)", MR_ESHAPE, "must come last");
    refused("mixup,image.drop", MR_ESHAPE, "a later op drops");
    refused("mixup,label.drop", MR_ESHAPE, "no field 'label'");
    refused("hflip,image.drop", MR_ESHAPE, "'points' would not move");
    char many[64 * 12] = "";
    for (int i = 0, at = 0; i < MR_MAX_FIELDS; i++)
        at += snprintf(many + at, sizeof many - (size_t)at, "%scopy(f%d)", i ? "," : "", i);
    refused(many, MR_ELIMIT, "fields");
}

/* What another part of the library could not serve says so. */
static void test_device_cache_refuses(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=64,shape=8,classes=4");
    c.chain = "label.drop";
    c.device = "sim:";
    c.opts.cache = MR_CACHE_DEVICE;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EOPTION);
    assert_non_null(strstr(run.error, "changes which fields there are"));
    run_free(&run);
}

/* ---- fields that are read from files ---- */

#define PIXELS 3072

struct record {
    unsigned char image[PIXELS];
    int32_t ids[4], labels[4];
};

static int locate_fields(void *user, uint64_t index, struct mr_range range[], int max)
{
    (void)user, (void)max;
    uint64_t at = index * sizeof(struct record);
    range[0] = (struct mr_range){.offset = at, .bytes = PIXELS};
    range[1] = (struct mr_range){.offset = at + offsetof(struct record, ids), .bytes = 16};
    range[2] = (struct mr_range){.offset = at + offsetof(struct record, labels), .bytes = 16};
    return 3;
}

static struct mr_dataset *open_file(void)
{
    static struct record all[N];
    struct mr_located_opts o;
    struct mr_dataset *ds = NULL;
    for (int i = 0; i < N; i++) {
        memset(all[i].image, i, PIXELS);
        for (int k = 0; k < 4; k++) {
            all[i].ids[k] = 10 * i + k;
            all[i].labels[k] = -10 * i - k;
        }
    }
    const char *path = test_write("records.bin", all, sizeof all);
    mr_located_opts_init(&o);
    o.name = "records";
    o.n = N;
    o.n_fields = 3;
    o.field[0] = (struct mr_spec){.name = "image", .dtype = MR_U8, .rank = 1, .dim = {PIXELS}};
    o.field[1] = (struct mr_spec){.name = "ids", .dtype = MR_I32, .rank = 1, .dim = {4}};
    o.field[2] = (struct mr_spec){.name = "labels", .dtype = MR_I32, .rank = 1, .dim = {4}};
    o.n_files = 1;
    o.file = &path;
    o.locate = locate_fields;
    must(mr_dataset_open_located(&o, &ds));
    return ds;
}

/* What is read straight into rows goes into those of the right fields. */
static void test_fields_of_files(void **state)
{
    (void)state;
    static const char *const chains[] = {"image.drop", "labels+ids.keep"};
    struct mr_dataset *ds = open_file();
    for (size_t k = 0; k < MR_COUNT(chains); k++) {
        struct mr_transform *chain = make(chains[k]);
        struct mr_loader_opts opts;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        uint64_t n = 0;
        int rc;
        mr_loader_opts_init(&opts);
        opts.workers = 3;
        opts.batch_size = 32;
        must(mr_loader_open(ds, NULL, chain, NULL, &opts, &ld));
        while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
            assert_int_equal(b.n_fields, 2);
            for (uint64_t i = 0; i < b.n; i++, n++) {
                const int32_t *ids = (const int32_t *)b.field[k].data + 4 * i;
                const int32_t *labels = (const int32_t *)b.field[1 - k].data + 4 * i;
                for (int e = 0; e < 4; e++) {
                    assert_int_equal(ids[e], 10 * (int)n + e);
                    assert_int_equal(labels[e], -10 * (int)n - e);
                }
            }
            must(mr_loader_release(ld, &b, NULL));
        }
        assert_int_equal(rc, 0);
        assert_int_equal(n, N);
        mr_loader_close(ld);
        mr_transform_destroy(chain);
    }
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drop_and_keep),          cmocka_unit_test(test_copy),
        cmocka_unit_test(test_language_model),         cmocka_unit_test(test_mask_of_varying),
        cmocka_unit_test(test_any_workers_and_resume), cmocka_unit_test(test_dropped_pictures),
        cmocka_unit_test(test_copied_pictures),        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_device_cache_refuses),   cmocka_unit_test(test_fields_of_files),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
