/* Fields of bytes and strings: each sample's text arrives as it is, by every collation, on the host
 * and through sim. */
#include "run_loader.h"
#include "unit.h"

#define N    203
#define MOST 40 /* bytes of a text */

/* Sample i's text: any bytes, of any length; every seventh is empty. */
static uint64_t text_of(uint64_t i, char out[MOST])
{
    uint64_t n = i % 7 == 0 ? 0 : test_u64((uint32_t)i) % (MOST + 1);
    for (uint64_t k = 0; k < n; k++)
        out[k] = (char)(k % 5 == 2 ? 0 : test_u64((uint32_t)(1000 + i * MOST + k)));
    return n;
}

static uint64_t bad_every;

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    if (bad_every && index % bad_every == 3)
        return mr_error_set(MR_EFORMAT, "bad on purpose");
    dim[0][0] = text_of(index, row[0]);
    dim[1][0] = 1 + index % 6;
    for (uint64_t k = 0; k < dim[1][0]; k++)
        ((int32_t *)row[1])[k] = (int32_t)(index + k);
    *(int64_t *)row[2] = (int64_t)index;
    return 0;
}

static struct mr_callback_opts callback_opts(enum mr_kind kind)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "captions";
    o.n = N;
    o.n_fields = 3;
    o.field[0] = (struct mr_spec){
        .name = "caption", .dtype = MR_U8, .rank = 1, .var_dims = 1, .kind = kind, .dim = {MOST}};
    o.field[1] =
        (struct mr_spec){.name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {6}};
    o.field[2] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    o.get = get;
    return o;
}

static struct mr_dataset *captions(enum mr_kind kind)
{
    struct mr_callback_opts o = callback_opts(kind);
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

/* What one run is made of. */
struct how {
    const char *device, *chain;
    enum mr_collate collate;
    uint32_t workers;
    enum mr_bad_policy bad;
    uint32_t rank, world;
};

static struct mr_loader_opts loader_opts(const struct how *how)
{
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.collate = how->collate;
    opts.workers = how->workers;
    opts.pad_value = how->collate == MR_COLLATE_PAD ? -1 : 0; /* which no u8 can hold */
    opts.pack_length = how->collate == MR_COLLATE_PACK ? 16 : 0;
    opts.bad = how->bad;
    opts.max_bad_fraction = 1;
    opts.rank = how->rank;
    opts.world = how->world ? how->world : 1;
    opts.remainder = MR_REMAINDER_PAD;
    return opts;
}

/* The accessor, the host's bytes and the device's bytes agree with the source. */
static void check_texts(const struct mr_batch *b, struct mr_stream *stream, uint64_t most)
{
    const struct mr_batch_field *bf = &b->field[0];
    char *back = malloc(bf->bytes + 1), want[MOST];
    assert_int_equal(bf->spec.rank, 1);
    assert_int_equal(bf->spec.dtype, MR_U8);
    assert_int_equal(bf->offsets[b->n], bf->bytes);
    assert_int_equal(bf->spec.dim[0], bf->bytes);
    must(mr_copy_async(stream, back, MR_PAGEABLE, bf->data, MR_DEVICE, bf->bytes));
    must(mr_stream_synchronize(stream));
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t n = MR_MIN(text_of(b->indices[i], want), most), have = 99;
        const char *text = mr_batch_text(b, 0, i, &have);
        assert_non_null(text);
        assert_int_equal(have, n);
        assert_int_equal(bf->lengths[i], n);
        assert_memory_equal(text, want, n);
        assert_memory_equal(back + bf->offsets[i], want, n);
    }
    free(back);
}

/* mr_batch_text() of what is no text. */
static void check_refused(const struct mr_batch *b)
{
    const struct {
        int field;
        uint64_t i;
        const char *text;
    } bad[] = {{-1, 0, "field -1"}, {b->n_fields, 0, "field"}, {1, 0, "'ids'"},
               {2, 0, "'label'"},   {0, b->n, "sample"},       {0, UINT64_MAX, "sample"}};
    for (size_t k = 0; k < MR_COUNT(bad); k++) {
        uint64_t n = 99;
        assert_null(mr_batch_text(b, bad[k].field, bad[k].i, &n));
        assert_int_equal(n, 0);
        assert_non_null(strstr(mr_last_error(), bad[k].text));
    }
}

/* Marks in seen what arrives. Returns how many samples did. */
static uint64_t feed(struct mr_dataset *ds, const struct how *how, uint64_t most,
                     unsigned char seen[N])
{
    struct mr_loader_opts opts = loader_opts(how);
    struct mr_transform *chain = NULL;
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_loader *ld;
    if (how->chain) {
        must(mr_transform_create(&chain));
        must(mr_transform_add(chain, how->chain));
    }
    must(mr_device_open(how->device, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    must(mr_loader_open(ds, NULL, chain, dev, &opts, &ld));
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc;
    while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
        check_texts(&b, stream, most);
        check_refused(&b);
        n += b.n;
        for (uint64_t i = 0; i < b.n; i++)
            seen[b.indices[i]] = 1;
        must(mr_loader_release(ld, &b, stream));
    }
    must(rc);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_transform_destroy(chain);
    return n;
}

static uint64_t count(const unsigned char seen[N])
{
    uint64_t n = 0;
    for (int i = 0; i < N; i++)
        n += seen[i];
    return n;
}

/* Field 1 varies as well: with STACK it gets one length. */
static const char *chain_for(enum mr_collate collate)
{
    return collate == MR_COLLATE_STACK ? "ids.pad_to(6)" : NULL;
}

static void texts_arrive_by_every_collation(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:h2d=20,latency=1us"};
    for (int c = MR_COLLATE_STACK; c <= MR_COLLATE_PACK; c++) {
        struct mr_dataset *ds = captions(c % 2 ? MR_KIND_BYTES : MR_KIND_STRING);
        for (uint32_t k = 0; k < 6; k++) {
            unsigned char seen[N] = {0};
            struct how how = {.device = devices[k % 2],
                              .chain = chain_for((enum mr_collate)c),
                              .collate = (enum mr_collate)c,
                              .workers = 1u << k / 2};
            assert_int_equal(feed(ds, &how, MOST, seen), N);
            assert_int_equal(count(seen), N);
        }
        mr_dataset_close(ds);
    }
}

static void skipped_samples_leave_no_gap(void **state)
{
    (void)state;
    struct mr_dataset *ds = captions(MR_KIND_STRING);
    bad_every = 7;
    uint64_t bad = 0;
    for (uint64_t i = 0; i < N; i++)
        bad += i % bad_every == 3;
    for (int c = MR_COLLATE_STACK; c <= MR_COLLATE_PACK; c++) {
        unsigned char seen[N] = {0};
        struct how how = {.device = "sim",
                          .chain = chain_for((enum mr_collate)c),
                          .collate = (enum mr_collate)c,
                          .workers = 2,
                          .bad = MR_BAD_SKIP};
        assert_int_equal(feed(ds, &how, MOST, seen), N - bad);
        assert_int_equal(count(seen), N - bad);
    }
    bad_every = 0;
    mr_dataset_close(ds);
}

static void ranks_share_texts(void **state)
{
    (void)state;
    struct mr_dataset *ds = captions(MR_KIND_BYTES);
    for (uint32_t world = 2; world <= 3; world++) {
        unsigned char seen[N] = {0};
        struct how how = {.device = "cpu", .chain = "ids.pad_to(6)", .workers = 2, .world = world};
        for (how.rank = 0; how.rank < world; how.rank++)
            assert_int_equal(feed(ds, &how, MOST, seen), (N + world - 1) / world);
        assert_int_equal(count(seen), N);
    }
    mr_dataset_close(ds);
}

/* ---- specs ---- */

static void specs_say_what_texts_are(void **state)
{
    (void)state;
    char text[80];
    struct mr_callback_opts o = callback_opts(MR_KIND_STRING);
    assert_string_equal(mr_spec_format(&o.field[0], text, sizeof text), "caption string[<=40]");
    o.field[0].kind = MR_KIND_BYTES;
    assert_string_equal(mr_spec_format(&o.field[0], text, sizeof text), "caption bytes[<=40]");
    o.field[0].kind = MR_KIND_TENSOR;
    assert_string_equal(mr_spec_format(&o.field[0], text, sizeof text), "caption u8[<=40]");
}

/* Each of these is no text, for data sets and for chains. */
static void wrong_specs_are_refused(void **state)
{
    (void)state;
    const struct mr_spec good = callback_opts(MR_KIND_STRING).field[0];
    struct mr_spec bad[5] = {good, good, good, good, good};
    bad[0].dtype = MR_I8;
    bad[1].rank = 2;
    bad[1].dim[1] = 3;
    bad[2].var_dims = 0;
    bad[3].kind = MR_KIND_STRING + 1;
    bad[4].rank = 0;
    bad[4].var_dims = 0;
    struct mr_transform *chain;
    must(mr_transform_create(&chain));
    must(mr_transform_bind(chain, &good, 1));
    for (size_t k = 0; k < MR_COUNT(bad); k++) {
        struct mr_callback_opts o = callback_opts(MR_KIND_STRING);
        struct mr_dataset *ds;
        o.field[0] = bad[k];
        assert_int_equal(mr_dataset_open_callback(&o, &ds), MR_EMISUSE);
        assert_non_null(strstr(mr_last_error(), "kind"));
        assert_int_equal(mr_transform_bind(chain, &bad[k], 1), MR_ESHAPE);
        assert_non_null(strstr(mr_last_error(), "kind"));
    }
    mr_transform_destroy(chain);
}

/* Ops that leave bytes of any number keep the kind. */
static void chains_keep_kinds_that_fit(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        enum mr_kind kind;
    } cases[] = {
        {"truncate(5)", MR_KIND_STRING},
        {"random_span(5)", MR_KIND_STRING},
        {"pad_to(40)", MR_KIND_TENSOR},
        {"cast(f32)", MR_KIND_TENSOR},
        {"attention_mask(m),caption.drop", MR_KIND_TENSOR},
    };
    const struct mr_spec spec = callback_opts(MR_KIND_STRING).field[0];
    for (size_t k = 0; k < MR_COUNT(cases); k++) {
        struct mr_transform *chain;
        must(mr_transform_create(&chain));
        must(mr_transform_add(chain, cases[k].chain));
        must(mr_transform_bind(chain, &spec, 1));
        assert_int_equal(mr_transform_specs(chain)[0].kind, cases[k].kind);
        mr_transform_destroy(chain);
    }
    struct mr_dataset *ds = captions(MR_KIND_STRING);
    unsigned char seen[N] = {0};
    struct how how = {.device = "sim", .chain = "ids.pad_to(6),caption.truncate(9)", .workers = 2};
    assert_int_equal(feed(ds, &how, 9, seen), N);
    mr_dataset_close(ds);
}

/* auto is the first sequence, not the text before it; a text has no padding. */
static void masks_are_of_sequences(void **state)
{
    (void)state;
    struct mr_dataset *ds = captions(MR_KIND_STRING);
    struct how how = {.device = "cpu", .collate = MR_COLLATE_PAD, .workers = 1};
    struct mr_loader_opts opts = loader_opts(&how);
    struct mr_loader *ld;
    opts.mask = "auto";
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    assert_string_equal(mr_loader_field(ld, 3)->name, "ids_mask");
    mr_loader_close(ld);
    opts.mask = "caption";
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_EOPTION);
    opts.mask = NULL;
    opts.pad_values = "caption=0";
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_EOPTION);
    mr_dataset_close(ds);
}

/* With nothing else to pack, PACK is refused. */
static void texts_are_not_packed(void **state)
{
    (void)state;
    struct mr_callback_opts o = callback_opts(MR_KIND_STRING);
    struct mr_dataset *ds;
    struct mr_loader *ld;
    o.n_fields = 1;
    must(mr_dataset_open_callback(&o, &ds));
    struct how how = {.device = "cpu", .collate = MR_COLLATE_PACK, .workers = 1};
    struct mr_loader_opts opts = loader_opts(&how);
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_ESHAPE);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_arrive_by_every_collation),
        cmocka_unit_test(skipped_samples_leave_no_gap),
        cmocka_unit_test(ranks_share_texts),
        cmocka_unit_test(specs_say_what_texts_are),
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(chains_keep_kinds_that_fit),
        cmocka_unit_test(masks_are_of_sequences),
        cmocka_unit_test(texts_are_not_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
