/* What collation adds to a batch, against a plain computation: pad values of single fields, padding
 * to a multiple, masks, cumulative lengths, packed rows. And what is refused. */
#include "run_loader.h"

#include <errno.h>

#define N     700
#define BOUND 40
#define LABEL (-100)
#define BATCH 23

static uint64_t hash_of(uint64_t index, uint64_t what)
{
    const uint64_t key[] = {index, what};
    return mr_hash(MR_HASH_START, key, sizeof key);
}

static uint64_t longest_sample = BOUND;

static uint64_t length_of(uint64_t index)
{
    return hash_of(index, 1) % (longest_sample + 1);
}

static int32_t id_of(uint64_t index, uint64_t i)
{
    return (int32_t)(1 + index * 50 + i);
}

static bool is_bad(uint64_t index)
{
    return hash_of(index, 2) % 13 == 0;
}

static bool uneven; /* labels are one shorter than ids, now and then */

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    int32_t *ids = row[0];
    int64_t *labels = row[1];
    if (user && is_bad(index))
        return -EIO;
    dim[0][0] = dim[1][0] = length_of(index);
    if (uneven && dim[0][0] > 0 && index % 50 == 49)
        dim[1][0]--;
    for (uint64_t i = 0; i < dim[0][0]; i++)
        ids[i] = id_of(index, i);
    for (uint64_t i = 0; i < dim[1][0]; i++)
        labels[i] = -id_of(index, i);
    *(uint16_t *)row[2] = (uint16_t)index;
    return 0;
}

static struct mr_dataset *open_set(bool with_bad)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "pairs";
    o.n = N;
    o.n_fields = 3;
    o.field[0] =
        (struct mr_spec){.name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {BOUND}};
    o.field[1] = (struct mr_spec){
        .name = "labels", .dtype = MR_I64, .rank = 1, .var_dims = 1, .dim = {BOUND}};
    o.field[2] = (struct mr_spec){.name = "n", .dtype = MR_U16};
    o.get = get;
    o.user = with_bad ? &uneven : NULL;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

/* ---- a batch in host memory ---- */

struct seen {
    const struct mr_batch *b;
    void *field[MR_MAX_FIELDS];
};

static void fetch(struct seen *s, const struct mr_batch *b, struct mr_stream *stream)
{
    s->b = b;
    for (int f = 0; f < b->n_fields; f++) {
        s->field[f] = malloc(b->field[f].bytes + 1);
        must(mr_copy_async(stream, s->field[f], MR_PAGEABLE, b->field[f].data, MR_DEVICE,
                           b->field[f].bytes));
        must(mr_stream_synchronize(stream));
        assert_memory_equal(s->field[f], b->field[f].host, b->field[f].bytes);
    }
}

static void drop(struct seen *s)
{
    for (int f = 0; f < s->b->n_fields; f++)
        free(s->field[f]);
}

static void expect_shape(const struct seen *s, int f, const char *name, int rank, uint64_t first,
                         uint64_t second)
{
    const struct mr_spec *spec = &s->b->field[f].spec;
    uint64_t bytes;
    assert_string_equal(spec->name, name);
    assert_int_equal(spec->rank, rank);
    assert_int_equal(spec->var_dims, 0);
    assert_int_equal(spec->dim[0], first);
    if (rank > 1)
        assert_int_equal(spec->dim[1], second);
    must(mr_spec_bytes(spec, &bytes));
    assert_int_equal(s->b->field[f].bytes, bytes);
}

static void check_sums(const struct seen *s, int f)
{
    const int32_t *sums = s->field[f];
    int32_t sum = 0;
    expect_shape(s, f, "cu_seqlens", 1, s->b->n + 1, 0);
    for (uint64_t i = 0; i <= s->b->n; i++) {
        assert_int_equal(sums[i], sum);
        sum += i < s->b->n ? (int32_t)length_of(s->b->indices[i]) : 0;
    }
}

static void check_padded(const struct seen *s, const struct mr_loader_opts *o)
{
    const struct mr_batch *b = s->b;
    const int32_t *ids = s->field[0];
    const int64_t *labels = s->field[1];
    const uint8_t *mask = s->field[3];
    bool fixed = o->collate == MR_COLLATE_FIXED;
    uint64_t length = fixed ? BOUND : 0;
    for (uint64_t i = 0; i < b->n; i++)
        length = MR_MAX(length, length_of(b->indices[i]));
    length = (length + o->pad_to_multiple_of - 1) / o->pad_to_multiple_of * o->pad_to_multiple_of;
    expect_shape(s, 0, "ids", 2, b->n, length);
    expect_shape(s, 1, "labels", 2, b->n, length);
    expect_shape(s, 3, "ids_mask", 2, b->n, length);
    for (uint64_t i = 0; i < b->n * length; i++) {
        uint64_t index = b->indices[i / length], at = i % length;
        bool data = at < length_of(index);
        assert_int_equal(ids[i], data ? id_of(index, at) : 9);
        assert_int_equal(labels[i], data ? -id_of(index, at) : LABEL);
        assert_int_equal(mask[i], data);
    }
    assert_memory_equal(s->field[3], s->field[4], b->n * length);
    assert_string_equal(b->field[4].spec.name, "labels_mask");
    check_sums(s, 5);
}

static void check_ragged(const struct seen *s)
{
    const int32_t *ids = s->field[0];
    uint64_t at = 0;
    for (uint64_t i = 0; i < s->b->n; i++)
        for (uint64_t k = 0; k < length_of(s->b->indices[i]); k++)
            assert_int_equal(ids[at++], id_of(s->b->indices[i], k));
    check_sums(s, 3);
}

/* Next-fit, and what must be at each element. */
static void check_packed(const struct seen *s, uint64_t length)
{
    const struct mr_batch *b = s->b;
    uint64_t row = 0, at = 0, n = 0, rows = b->field[0].spec.dim[0];
    int32_t segment = 0;
    const int32_t *ids = s->field[0], *positions = s->field[3], *segments = s->field[4],
                  *sums = s->field[5];
    const int64_t *labels = s->field[1];
    const uint8_t *mask = s->field[6];
    const char *names[] = {"ids", "labels", NULL, "position_ids", "segment_ids", NULL, "ids_mask"};
    for (int f = 0; f < 7; f++)
        if (names[f])
            expect_shape(s, f, names[f], 2, rows, length);
    uint8_t *used = calloc(rows, length);
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t have = length_of(b->indices[i]);
        if (at + have > length) {
            if (at < length)
                assert_int_equal(sums[n++], row * length + at);
            row++;
            at = 0;
            segment = 0;
        }
        segment++;
        assert_int_equal(sums[n++], row * length + at);
        assert_int_equal(b->field[0].lengths[i], have);
        for (uint64_t k = 0; k < have; k++, at++) {
            uint64_t cell = row * length + at;
            used[cell] = 1;
            assert_int_equal(ids[cell], id_of(b->indices[i], k));
            assert_int_equal(labels[cell], -id_of(b->indices[i], k));
            assert_int_equal(positions[cell], k);
            assert_int_equal(segments[cell], segment);
        }
    }
    if (at < length)
        assert_int_equal(sums[n++], row * length + at);
    assert_int_equal(sums[n++], rows * length);
    expect_shape(s, 5, "cu_seqlens", 1, n, 0);
    assert_int_equal(rows, row + 1);
    for (uint64_t c = 0; c < rows * length; c++) {
        assert_int_equal(mask[c], used[c]);
        if (used[c])
            continue;
        assert_int_equal(ids[c], 9);
        assert_int_equal(labels[c], LABEL);
        assert_int_equal(positions[c], 0);
        assert_int_equal(segments[c], 0);
    }
    free(used);
}

static struct mr_loader_opts options(enum mr_collate collate)
{
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.batch_size = BATCH;
    o.collate = collate;
    o.pad_value = 9;
    if (collate != MR_COLLATE_RAGGED) {
        o.pad_values = "labels=-100";
        o.mask = collate == MR_COLLATE_PACK ? "auto" : "ids,labels";
    }
    if (collate != MR_COLLATE_PACK)
        o.cu_seqlens = "ids";
    return o;
}

static void run(const char *device, const struct mr_loader_opts *o)
{
    struct mr_dataset *ds = open_set(o->bad == MR_BAD_SKIP);
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    struct seen s;
    uint64_t n = 0, good = 0;
    must(mr_device_open(device, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    must(mr_loader_open(ds, NULL, NULL, dev, o, &ld));
    int rc;
    while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
        fetch(&s, &b, stream);
        for (int f = 0; f < b.n_fields; f++)
            assert_string_equal(mr_loader_field(ld, f)->name, b.field[f].spec.name);
        assert_null(mr_loader_field(ld, b.n_fields));
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(((uint16_t *)s.field[2])[i], b.indices[i]);
        if (o->collate == MR_COLLATE_PACK)
            check_packed(&s, o->pack_length);
        else if (o->collate == MR_COLLATE_RAGGED)
            check_ragged(&s);
        else
            check_padded(&s, o);
        drop(&s);
        n += b.n;
        must(mr_loader_release(ld, &b, stream));
    }
    must(rc);
    for (uint64_t i = 0; i < N; i++)
        good += o->bad != MR_BAD_SKIP || !is_bad(i);
    assert_int_equal(n, good);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_dataset_close(ds);
}

static void added_fields_are_right(void **state)
{
    (void)state;
    for (int k = 0; k < 48; k++) {
        struct mr_loader_opts o = options((enum mr_collate)(MR_COLLATE_PAD + k % 4));
        o.workers = 1 + (uint32_t)k / 8 % 3;
        o.bad = k / 4 % 2 ? MR_BAD_SKIP : MR_BAD_FAIL;
        o.pad_to_multiple_of = o.collate == MR_COLLATE_PAD ? 1 + (uint64_t)k / 4 % 3 * 7 : 1;
        o.pack_length = o.collate == MR_COLLATE_PACK ? BOUND + (uint64_t)k : 0;
        run(k / 4 % 3 ? "cpu" : "sim:h2d=20,latency=1us", &o);
    }
}

/* ---- packed by the sampler ---- */

#define ROW_LENGTH 16 /* longer documents are split */

static struct mr_sampler *packing_sampler(bool truncate)
{
    uint32_t length[N];
    struct mr_sampler_opts o;
    struct mr_sampler *sampler;
    for (uint64_t i = 0; i < N; i++)
        length[i] = (uint32_t)length_of(i);
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_PACK;
    o.seed = 4;
    o.lengths = length;
    o.n_lengths = N;
    o.row_length = ROW_LENGTH;
    o.rows = 6;
    o.truncate = truncate;
    must(mr_sampler_create(&o, N, &sampler));
    return sampler;
}

/* Counts each element of each document; position, segment and document are what the ids say. */
static void count_packed(const struct seen *s, uint8_t (*times)[BOUND])
{
    const int32_t *ids = s->field[0], *positions = s->field[3], *segments = s->field[4],
                  *sums = s->field[5];
    uint64_t rows = s->b->field[0].spec.dim[0], n = s->b->field[5].spec.dim[0];
    assert_true(rows == 6 || s->b->last);
    expect_shape(s, 0, "ids", 2, rows, ROW_LENGTH);
    assert_int_equal(sums[n - 1], rows * ROW_LENGTH);
    for (uint64_t i = 0; i + 1 < n; i++) {
        for (int32_t c = sums[i]; c < sums[i + 1]; c++) {
            assert_int_equal(c / ROW_LENGTH, sums[i] / ROW_LENGTH);
            assert_int_equal(segments[c], segments[sums[i]]);
            if (segments[c] == 0) {
                assert_int_equal(ids[c], 9);
                continue;
            }
            uint64_t index = (uint64_t)(ids[c] - 1) / 50, at = (uint64_t)(ids[c] - 1) % 50;
            assert_int_equal(positions[c], at);
            assert_int_equal(at - (uint64_t)positions[sums[i]], c - sums[i]);
            times[index][at]++;
        }
    }
}

static void rows_of_the_sampler(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        static uint8_t times[N][BOUND];
        struct mr_dataset *ds = open_set(k / 4);
        struct mr_sampler *sampler = packing_sampler(k / 2 % 2);
        struct mr_device *dev;
        struct mr_stream *stream;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        struct seen s;
        struct mr_loader_opts o = options(MR_COLLATE_PACK);
        char text[1024];
        int rc;
        memset(times, 0, sizeof times);
        o.bad = MR_BAD_SKIP;
        must(mr_device_open(k % 2 ? "cpu" : "sim:h2d=20,latency=1us", &dev));
        must(mr_stream_create(dev, "consumer", &stream));
        must(mr_loader_open(ds, sampler, NULL, dev, &o, &ld));
        for (int taken = 0; (rc = mr_loader_next(ld, stream, &b)) > 0; taken++) {
            fetch(&s, &b, stream);
            count_packed(&s, times);
            drop(&s);
            must(mr_loader_release(ld, &b, stream));
            if (taken != 20)
                continue;
            must(mr_loader_state(ld, text, sizeof text)); /* and on in another loader */
            mr_loader_close(ld);
            o.state = text;
            o.workers = 3;
            must(mr_loader_open(ds, sampler, NULL, dev, &o, &ld));
        }
        must(rc);
        mr_loader_close(ld);
        for (uint64_t i = 0; i < N; i++)
            for (uint64_t at = 0; at < length_of(i); at++)
                assert_int_equal(times[i][at],
                                 !(k / 4 && is_bad(i)) && (at < ROW_LENGTH || k / 2 % 2 == 0));
        mr_stream_destroy(stream);
        mr_device_close(dev);
        mr_sampler_destroy(sampler);
        mr_dataset_close(ds);
    }
}

/* What a batch sampler of one's own may say of rows: garbage ends the run. */
static int garbage;

static uint64_t one_batch(void *user, uint64_t epoch)
{
    (void)user;
    (void)epoch;
    return 1;
}

static int three_items(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                       struct mr_batch_item *items)
{
    (void)user;
    (void)epoch;
    (void)batch;
    (void)max;
    for (uint32_t i = 0; i < 3; i++)
        items[i] = (struct mr_batch_item){.index = 2 + i, .row = i};
    if (garbage == 0)
        items[2].row = 0;
    if (garbage == 1)
        items[1].from = BOUND + 1;
    if (garbage == 2)
        items[1].count = BOUND + 1;
    if (garbage == 3)
        items[2].row = UINT32_MAX;
    return 3;
}

static void garbage_of_a_batch_sampler(void **state)
{
    (void)state;
    static const char *const texts[] = {"behind row 1", "wants 0 from 41", "wants 41 from 0",
                                        "expected a row below 3"};
    struct mr_sampler_opts so;
    struct mr_sampler *sampler;
    struct mr_dataset *ds = open_set(false);
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_BATCHES;
    so.n_batches = one_batch;
    so.batch = three_items;
    so.max_batch = 3;
    must(mr_sampler_create(&so, N, &sampler));
    for (garbage = 0; garbage < 4; garbage++) {
        struct mr_loader_opts o = options(MR_COLLATE_PACK);
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        o.pack_length = BOUND;
        must(mr_loader_open(ds, sampler, NULL, NULL, &o, &ld));
        int rc = mr_loader_next(ld, NULL, &b);
        if (rc >= 0 || !strstr(mr_last_error(), texts[garbage]))
            fail_msg("%d: '%s' is not in '%s'", rc, texts[garbage], mr_last_error());
        mr_loader_close(ld);
    }
    mr_sampler_destroy(sampler);
    sampler = packing_sampler(false);
    struct mr_loader_opts o = options(MR_COLLATE_PAD);
    struct mr_loader *ld;
    assert_int_equal(mr_loader_open(ds, sampler, NULL, NULL, &o, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "the sampler packs rows"));
    o = options(MR_COLLATE_PACK);
    o.pack_length = ROW_LENGTH - 1;
    assert_int_equal(mr_loader_open(ds, sampler, NULL, NULL, &o, &ld), MR_EOPTION);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
}

/* ---- refused ---- */

static int open_set_with(const struct mr_loader_opts *o)
{
    struct mr_dataset *ds = open_set(false);
    struct mr_loader *ld = NULL;
    int rc = mr_loader_open(ds, NULL, NULL, NULL, o, &ld);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return rc;
}

static void what_is_refused_at_open(void **state)
{
    (void)state;
    static const struct {
        const char *text, *named;
        int rc;
    } cases[] = {
        {"collate=pad,pad-values=(ids=1,labels=-100)", "", 0},
        {"collate=pad,pad-values=ids=0.5", "ids", MR_EOPTION},
        {"collate=pad,pad-values=ids=3e9", "pad_values is 3000000000", MR_EOPTION},
        {"collate=pad,pad-values=word=1", "\"word=1\"", MR_EOPTION},
        {"collate=pad,pad-values=ids", "FIELD=NUMBER", MR_EOPTION},
        {"collate=pad,pad-values=ids=", "FIELD=NUMBER", MR_EOPTION},
        {"collate=pad,pad-values=ids=1x", "FIELD=NUMBER", MR_EOPTION},
        {"collate=pad,pad-values=(ids=1,ids=2)", "two values", MR_EOPTION},
        {"collate=pad,pad-values=n=1", "n is not padded", MR_EOPTION},
        {"collate=ragged,pad-values=ids=1", "ids is not padded", MR_EOPTION},
        {"collate=pad,pad-value=0.5,pad-values=(ids=1,labels=2)", "", 0},
        {"collate=fixed,pad-to-multiple-of=8", "pad_to_multiple_of 8", MR_EOPTION},
        {"collate=pad,mask=n", "mask: \"n\"", MR_EOPTION},
        {"collate=pad,mask=word", "mask: \"word\"", MR_EOPTION},
        {"collate=pad,mask=(ids,ids)", "ids_mask", MR_EOPTION},
        {"collate=ragged,mask=ids", "ragged", MR_EOPTION},
        {"collate=ragged,cu-seqlens=n", "cu_seqlens: \"n\"", MR_EOPTION},
        {"collate=ragged,cu-seqlens=auto", "", 0},
        {"collate=pack", "pack_length 0", MR_EOPTION},
        {"collate=pad,pack-length=5", "pack_length 5", MR_EOPTION},
        {"collate=pack,pack-length=64", "", 0},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_loader_opts o;
        mr_loader_opts_init(&o);
        must(mr_loader_opts_parse(cases[i].text, &o));
        int rc = open_set_with(&o);
        if (rc != cases[i].rc || !strstr(rc < 0 ? mr_last_error() : "", cases[i].named))
            fail_msg("%s: %d: %s", cases[i].text, rc, mr_last_error());
        mr_options_free(mr_loader_options(), &o);
    }
}

/* Strings that a program set are not freed by mr_loader_opts_parse(), nor lost. */
static void text_keeps_strings_of_the_struct(void **state)
{
    (void)state;
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.pad_values = "ids=4";
    must(mr_loader_opts_parse("batch-size=7,mask=ids", &o));
    assert_string_equal(o.pad_values, "ids=4");
    assert_string_equal(o.mask, "ids");
    o.pad_values = NULL;
    assert_int_equal(mr_loader_opts_parse("cu-seqlens=ids,batch-size=0", &o), MR_EOPTION);
    assert_null(o.cu_seqlens);
    mr_options_free(mr_loader_options(), &o);
}

static void run_fails(const struct mr_loader_opts *o, int rc, const char *text)
{
    struct run_config c = run_config(NULL);
    c.ds = open_set(false);
    c.opts = *o;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, rc);
    if (!strstr(run.error, text))
        fail_msg("'%s' is not in '%s'", text, run.error);
    run_free(&run);
    mr_dataset_close(c.ds);
}

static void what_ends_a_run(void **state)
{
    (void)state;
    struct mr_loader_opts o = options(MR_COLLATE_PACK);
    o.pack_length = BOUND / 2;
    run_fails(&o, MR_ESHAPE, "pack_length is 20");
    o.pack_length = BOUND;
    uneven = true;
    run_fails(&o, MR_ESHAPE, "wants the same number");
    uneven = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_fields_are_right),
        cmocka_unit_test(rows_of_the_sampler),
        cmocka_unit_test(garbage_of_a_batch_sampler),
        cmocka_unit_test(what_is_refused_at_open),
        cmocka_unit_test(text_keeps_strings_of_the_struct),
        cmocka_unit_test(what_ends_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
