/* White-box. Ops on several fields: built-in ones with the same draws, and a user's. */
#include "transform/transform.h"

#include "run_loader.h"

#include <errno.h>
#include <millrace/random.h>

#define SIDE    16
#define N       300
#define LONGEST 12

static struct mr_transform *make(const char *text)
{
    struct mr_transform *chain = NULL;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, text));
    return chain;
}

/* Pictures of height x width up to SIDE; the mask is made of the picture by a threshold. */
static void write_pair(uint64_t index, uint64_t h, uint64_t w, uint8_t *image, uint8_t *mask)
{
    for (uint64_t i = 0; i < h * w; i++) {
        uint8_t v = (uint8_t)mr_mix64(index * 1000 + i);
        image[3 * i] = image[3 * i + 1] = image[3 * i + 2] = v;
        mask[i] = v > 127;
    }
}

static void check_pair(const char *text, bool varies, bool plain)
{
    struct mr_spec fields[2] = {
        {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {SIDE, SIDE, 3}},
        {.name = "mask", .dtype = MR_U8, .rank = 2, .dim = {SIDE, SIDE}},
    };
    if (varies)
        fields[0].var_dims = fields[1].var_dims = 3;
    struct mr_transform *chain = make(text);
    assert_string_equal(mr_transform_text(chain), text);
    if (mr_transform_bind_as(chain, fields, 2, plain) < 0)
        fail_msg("%s: %s", text, mr_last_error());
    void *scratch = aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(chain) + 1, 64));
    int changed = 0;
    for (uint64_t index = 0; index < 60; index++) {
        uint8_t image[SIDE * SIDE * 3], mask[SIDE * SIDE], to[4 * SIDE * SIDE * 3],
            to_mask[4 * SIDE * SIDE];
        uint64_t h = varies ? 12 + index % 5 : SIDE, w = varies ? 12 + index % 3 : SIDE;
        const void *in[2] = {image, mask};
        void *out[2] = {to, to_mask};
        const uint64_t in_dim[2][MR_MAX_RANK] = {{h, w, 3}, {h, w}};
        uint64_t out_dim[2][MR_MAX_RANK];
        write_pair(index, h, w, image, mask);
        if (mr_transform_apply_all(chain, 3, 1, index, in, in_dim, out, out_dim, scratch) < 0)
            fail_msg("%s: %s", text, mr_last_error());
        assert_int_equal(out_dim[0][0], out_dim[1][0]);
        assert_int_equal(out_dim[0][1], out_dim[1][1]);
        for (uint64_t i = 0; i < out_dim[1][0] * out_dim[1][1]; i++)
            assert_int_equal(to_mask[i], to[3 * i] > 127);
        changed += memcmp(to, image, 16) != 0;
    }
    assert_true(changed > 10); /* a test of nothing passes, too */
    free(scratch);
    mr_transform_destroy(chain);
}

static void test_same_geometry(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "image+mask.random_crop(9,8)",
        "image+mask.hflip,image+mask.vflip(0.3)",
        "image + mask.pad(2),image+mask.random_crop(12,11),image+mask.hflip",
        "image+mask.hflip,image+mask.crop(7,9,1,2)",
        "image+mask.resize(24,filter=nearest)",
        "image+mask.random_resized_crop(10,filter=nearest),image+mask.hflip",
        "mask+image.random_crop(10,10),mask+image.center_crop(8)",
    };
    for (size_t i = 0; i < MR_COUNT(chains); i++)
        for (int k = 0; k < 4; k++)
            if (i != 4 || k < 2) /* a bound of 24 times 16 pixels is too much for the buffers */
                check_pair(chains[i], k / 2, k % 2);
}

/* The followers' labels stay labels under filters that mix pixels. */
static void test_labels_stay_labels(void **state)
{
    (void)state;
    const struct mr_spec fields[2] = {
        {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {SIDE, SIDE, 3}},
        {.name = "mask", .dtype = MR_U8, .rank = 2, .dim = {SIDE, SIDE}},
    };
    struct mr_transform *chain = make("image+mask.resize(23,layout=nhwc),image+mask.rotate(40),"
                                      "image+mask.random_resized_crop(11)");
    must(mr_transform_bind(chain, fields, 2));
    void *scratch = aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(chain) + 1, 64));
    for (uint64_t index = 0; index < 30; index++) {
        uint8_t image[SIDE * SIDE * 3], mask[SIDE * SIDE], to[11 * 11 * 3], to_mask[11 * 11];
        const void *in[2] = {image, mask};
        void *out[2] = {to, to_mask};
        const uint64_t in_dim[2][MR_MAX_RANK] = {{SIDE, SIDE, 3}, {SIDE, SIDE}};
        uint64_t out_dim[2][MR_MAX_RANK];
        write_pair(index, SIDE, SIDE, image, mask);
        for (int i = 0; i < SIDE * SIDE; i++)
            mask[i] = mask[i] ? 200 : 0;
        must(mr_transform_apply_all(chain, 3, 1, index, in, in_dim, out, out_dim, scratch));
        for (int i = 0; i < 11 * 11; i++)
            assert_true(to_mask[i] == 0 || to_mask[i] == 200);
    }
    free(scratch);
    mr_transform_destroy(chain);
}

/* ids, labels = ids + 1000, of the same length unless index % 50 is `torn`; noise f32[2]. */
static int torn = -1;

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    dim[0][0] = dim[1][0] = 4 + index % (LONGEST - 3);
    for (uint64_t k = 0; k < dim[0][0]; k++) {
        ((int32_t *)row[0])[k] = (int32_t)(index * 100 + k);
        ((int32_t *)row[1])[k] = (int32_t)(index * 100 + k + 100000);
    }
    dim[1][0] -= (int)(index % 50) == torn;
    return 0;
}

static struct mr_dataset *open_set(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds = NULL;
    mr_callback_opts_init(&o);
    o.name = "pairs";
    o.n = N;
    o.n_fields = 2;
    for (int f = 0; f < 2; f++) {
        o.field[f] = (struct mr_spec){.dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {LONGEST}};
        snprintf(o.field[f].name, MR_NAME_BYTES, "%s", f ? "labels" : "ids");
    }
    o.get = get;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

/* Calls check for each row. Returns the last result of mr_loader_next(). */
static int each_row(struct mr_transform *chain, uint32_t workers, const char *device,
                    uint64_t *hash, void (*check)(const struct mr_batch *b, uint64_t r))
{
    struct mr_dataset *ds = open_set();
    struct mr_device *dev;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.workers = workers;
    opts.batch_size = 16;
    opts.collate = MR_COLLATE_PAD;
    must(mr_device_open(device, &dev));
    must(mr_loader_open(ds, NULL, chain, dev, &opts, &ld));
    int rc;
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        for (uint64_t r = 0; r < b.n; r++)
            check(&b, r);
        for (int f = 0; f < b.n_fields; f++)
            *hash = mr_hash(*hash, b.field[f].data, b.field[f].bytes);
        must(mr_loader_release(ld, &b, NULL));
    }
    struct mr_error_kept kept;
    mr_error_keep(rc, &kept);
    mr_loader_close(ld);
    mr_device_close(dev);
    mr_dataset_close(ds);
    return rc < 0 ? mr_error_put(&kept) : rc;
}

static void same_span(const struct mr_batch *b, uint64_t r)
{
    const uint64_t width = b->field[0].spec.dim[1];
    const int32_t *ids = (const int32_t *)b->field[0].data + r * width;
    const int32_t *labels = (const int32_t *)b->field[1].data + r * b->field[1].spec.dim[1];
    assert_int_equal(b->field[0].lengths[r], b->field[1].lengths[r]);
    for (uint64_t k = 0; k < b->field[0].lengths[r]; k++)
        assert_int_equal(labels[k], ids[k] + 100000);
}

static void test_same_span(void **state)
{
    (void)state;
    struct mr_transform *chain = make("ids+labels.truncate(11),ids+labels.random_span(5)");
    uint64_t hash = 0;
    torn = -1;
    must(each_row(chain, 2, "cpu", &hash, same_span));
    torn = 13;
    assert_int_equal(each_row(chain, 2, "cpu", &hash, same_span), MR_ESHAPE);
    assert_non_null(strstr(mr_last_error(), "'ids' has 8 elements, 'labels' has 7"));
    torn = -1;
    mr_transform_destroy(chain);
}

/* A user's op: noise on ids, sums of both fields; drops labels. */
struct mine {
    _Atomic int calls, closed;
    int wrong; /* what it does wrong */
};

enum { RIGHT, LONG_DIM, POSITIVE, BAD_RANK, NO_NAME, TWICE, MANY, VAR_BITS, SILENT, NO_CODE };

static int infer(void *user, const struct mr_spec in[], int n_in, struct mr_spec out[], int *n_out)
{
    const struct mine *m = user;
    assert_int_equal(n_in, 2);
    assert_int_equal(*n_out, 2);
    assert_string_equal(in[1].name, "labels");
    out[1] = (struct mr_spec){.name = "sum", .dtype = MR_I64};
    out[1].rank = m->wrong == BAD_RANK ? 9 : 0;
    out[1].var_dims = m->wrong == VAR_BITS;
    if (m->wrong == NO_NAME)
        out[1].name[0] = 0;
    if (m->wrong == TWICE)
        out[1] = out[0];
    *n_out = m->wrong == MANY ? MR_MAX_FIELDS + 1 : 2;
    return 0;
}

static int apply(void *user, const struct mr_transform_context *context, const void *const in[],
                 const uint64_t in_dim[][MR_MAX_RANK], void *const out[],
                 uint64_t out_dim[][MR_MAX_RANK])
{
    struct mine *m = user;
    struct mr_rng rng;
    const int32_t *ids = in[0], *labels = in[1];
    int64_t sum = 0;
    assert_int_equal(context->size, sizeof *context);
    assert_int_equal(context->n_out, 2);
    mr_rng_init_op(&rng, context->random);
    m->calls++;
    out_dim[0][0] = m->wrong == LONG_DIM ? LONGEST + 1 : in_dim[0][0];
    for (uint64_t k = 0; k < in_dim[0][0]; k++) {
        int32_t noise = (int32_t)mr_rng_below(&rng, 2);
        ((int32_t *)out[0])[k] = ids[k] + noise;
        sum += labels[k] - 100000 - ids[k] + (int64_t)context->index;
    }
    memcpy(out[1], &sum, sizeof sum);
    return m->wrong == SILENT ? -EIO : m->wrong == NO_CODE ? -123456 : m->wrong == POSITIVE;
}

static void close_mine(void *user)
{
    ((struct mine *)user)->closed++;
}

static const char *const both[] = {"ids", "labels", NULL};

static int add(struct mr_transform *chain, struct mine *m)
{
    struct mr_transform_multi_fn fn = {.size = sizeof fn,
                                       .name = "noisy",
                                       .fields = both,
                                       .infer = infer,
                                       .apply = apply,
                                       .user = m,
                                       .version = 4,
                                       .close = close_mine};
    return mr_transform_add_multi(chain, &fn);
}

static void check_noisy(const struct mr_batch *b, uint64_t r)
{
    const int64_t index = (int64_t)b->indices[r];
    const int32_t *ids = (const int32_t *)b->field[0].data + r * b->field[0].spec.dim[1];
    assert_int_equal(b->n_fields, 3);
    assert_string_equal(b->field[1].spec.name, "sum");
    assert_string_equal(b->field[2].spec.name, "attention_mask");
    uint64_t n = b->field[0].lengths[r], was = MR_MIN(4 + (uint64_t)index % (LONGEST - 3), 9);
    assert_int_equal(n, MR_MIN(was, 7));
    assert_int_equal(((const int64_t *)b->field[1].data)[r], index * (int64_t)was);
    for (uint64_t k = 0; k < n; k++)
        assert_true(ids[k] - index * 100 - (int64_t)k >= 0 &&
                    ids[k] - index * 100 - (int64_t)k < 2);
}

/* Ops before it and behind it, on any device, with any number of workers. */
static void test_users_op(void **state)
{
    (void)state;
    struct mine m = {.wrong = RIGHT};
    struct mr_transform *chain = make("ids+labels.truncate(9)");
    uint64_t first = 0;
    must(add(chain, &m));
    must(mr_transform_add(chain, "ids.truncate(7),ids.attention_mask"));
    assert_string_equal(mr_transform_text(chain), "ids+labels.truncate(9),noisy(version=4),"
                                                  "ids.truncate(7),ids.attention_mask");
    for (uint32_t workers = 1; workers <= 8; workers = workers == 1 ? 2 : workers * 4) {
        uint64_t hash = 0;
        must(each_row(chain, workers, workers == 2 ? "sim:" : "cpu", &hash, check_noisy));
        first = first ? first : hash;
        assert_int_equal(hash, first);
    }
    assert_int_equal(m.calls, 3 * N);
    assert_int_equal(mr_transform_source(chain, 0), -1);
    mr_transform_destroy(chain);
    assert_int_equal(m.closed, 1);
}

static void nothing(const struct mr_batch *b, uint64_t r)
{
    (void)b;
    (void)r;
}

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        int wrong, rc;
        const char *says;
    } cases[] = {
        {LONG_DIM, MR_ECALLBACK,
         "gave 'ids' in dimension 0 the length 13: inferred was at most 12"},
        {POSITIVE, MR_ECALLBACK, "noisy(version=4): sample "},
        {POSITIVE, MR_ECALLBACK, "apply returned 1"},
        {SILENT, -EIO, "noisy(version=4): sample "},
        {SILENT, -EIO, "Input/output error"},
        {NO_CODE, MR_ECALLBACK, "apply returned -123456"},
        {BAD_RANK, MR_ESHAPE, "gave 'sum' rank 9"},
        {VAR_BITS, MR_ESHAPE, "gave 'sum' rank 0"},
        {NO_NAME, MR_ESHAPE, "infer gave field 1 no name"},
        {TWICE, MR_ESHAPE, "two fields the name 'ids'"},
        {MANY, MR_ECALLBACK, "infer gave"},
    };
    const struct mr_spec fields[2] = {
        {.name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {LONGEST}},
        {.name = "labels", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {LONGEST}}};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mine m = {.wrong = cases[i].wrong};
        struct mr_transform *chain = make("");
        uint64_t hash = 0;
        must(add(chain, &m));
        int rc = mr_transform_bind(chain, fields, 2);
        if (rc == 0)
            rc = each_row(chain, 2, "cpu", &hash, nothing);
        assert_int_equal(rc, cases[i].rc);
        if (!strstr(mr_last_error(), cases[i].says))
            fail_msg("says '%s', not '%s'", mr_last_error(), cases[i].says);
        mr_transform_destroy(chain);
        assert_int_equal(m.closed, 1);
    }
}

static void refused(const char *text, int code, const char *says)
{
    const struct mr_spec fields[] = {
        {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {8, 8, 3}},
        {.name = "mask", .dtype = MR_U8, .rank = 2, .dim = {8, 9}},
        {.name = "ids", .dtype = MR_I32, .rank = 1, .dim = {10}},
    };
    struct mr_transform *chain;
    must(mr_transform_create(&chain));
    int rc = mr_transform_add(chain, text);
    if (rc == 0)
        rc = mr_transform_bind(chain, fields, (int)MR_COUNT(fields));
    assert_int_equal(rc, code);
    if (!strstr(mr_last_error(), says))
        fail_msg("%s: says '%s', not '%s'", text, mr_last_error(), says);
    mr_transform_destroy(chain);
}

static void test_refuses(void **state)
{
    (void)state;
    struct mr_transform *chain = make("");
    struct mine m = {.wrong = RIGHT};
    struct mr_transform_multi_fn fn = {
        .size = sizeof fn, .name = "x", .close = close_mine, .user = &m};
    assert_int_equal(mr_transform_add_multi(chain, &fn), MR_EOPTION);
    fn.apply = apply;
    fn.size = 8;
    assert_int_equal(mr_transform_add_multi(chain, &fn), MR_EOPTION);
    assert_int_equal(m.closed, 0);
    mr_transform_destroy(chain);
    refused("image+mask.mixup", MR_EOPTION, "several fields at once");
    refused("image+mask.color_jitter(0.1)", MR_EOPTION, "several fields at once");
    refused("image+.hflip", MR_EOPTION, "a field is missing");
    refused("image+mask.hflip", MR_ESHAPE, "'image' has 8 columns, 'mask' has 9");
    refused("image+ids.hflip", MR_ESHAPE, "no height and width");
    refused("image+ids.random_span(4)", MR_ESHAPE, "'image' has 8 elements, 'ids' has 10");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_geometry), cmocka_unit_test(test_labels_stay_labels),
        cmocka_unit_test(test_same_span),     cmocka_unit_test(test_users_op),
        cmocka_unit_test(test_garbage),       cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
