/* White-box for the checksum only. TFRecord files: what was written is read; what is damaged is
 * named; an index is used only while it fits. */
#include "base/crc32c.h"
#include "record_write.h"
#include "run_loader.h"
#include "samples.h"

#include <errno.h>

static const char *uri(const char *name, const char *options)
{
    static char texts[4][1400];
    static int next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "tfrecord:%s%s", test_path(name), options);
    return text;
}

static void write_bytes(const char *name, struct bytes *b)
{
    test_write(name, b->data, b->n);
    free_bytes(b);
}

/* ---- checksums ---- */

static void checksums_are_right_in_every_way(void **state)
{
    static uint8_t data[7000];
    (void)state;
    test_random_bytes(1, data, sizeof data);
    assert_int_equal(mr_crc32c("123456789", 9), 0xe3069283);
    for (size_t n = 0; n < sizeof data; n += n < 100 ? 1 : 997) {
        assert_int_equal(mr_crc32c(data + 3, n), record_crc(data + 3, n));
        assert_int_equal(mr_crc32c_plain(data + 3, n), record_crc(data + 3, n));
    }
}

/* ---- Examples ---- */

/* One pixel, of 1, 2, 3. */
static const unsigned char png[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00,
    0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0x9c, 0x63, 0x60, 0x64, 0x62, 0x06, 0x00, 0x00, 0x0e, 0x00, 0x07, 0xd7, 0x6f, 0xe4,
    0x78, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

#define EXAMPLES 60

/* Sample i: a label, three floats, i % 5 tokens, a caption of i bytes, 4 raw u16. */
static struct bytes example(int64_t i, int packed)
{
    struct bytes map = {0};
    float box[3] = {(float)i, (float)i / 2, -1.5F};
    int64_t label = i - 7, tokens[4] = {i, i * i * i, -i, INT64_MIN};
    uint16_t raw[4] = {(uint16_t)i, 1, 2, 65535};
    char caption[EXAMPLES];
    memset(caption, 'a' + (int)(i % 26), sizeof caption);
    put_feature(&map, "caption", text_of(caption, (size_t)i));
    put_feature(&map, "a/long/path/to/the/label", ints_of(&label, 1, packed));
    put_feature(&map, "box", floats_of(box, 3, packed));
    put_feature(&map, "tokens", ints_of(tokens, (size_t)(i % 5), packed));
    put_feature(&map, "raw", text_of(raw, sizeof raw));
    return map;
}

static void write_examples(const char *name, int64_t from, int64_t n, int packed)
{
    struct bytes file = {0};
    for (int64_t i = from; i < from + n; i++)
        put_example(&file, example(i, packed));
    write_bytes(name, &file);
}

#define FEATURES                                                                                   \
    ",features=[label=a/long/path/to/the/label:i64,box:f32[3],tokens:i64[<=4],caption:string,"     \
    "raw:u16[2,2]]"

static void check_example(const struct mr_dataset *ds, uint64_t at, int64_t i)
{
    int64_t label = 0, tokens[4] = {0};
    float box[3] = {0};
    uint16_t raw[4] = {0};
    static uint8_t caption[1 << 16];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    assert_true(test_field_bytes(ds, 3) <= sizeof caption);
    test_works(mr_dataset_read(ds, at, (void *const[]){&label, box, tokens, caption, raw}, dim));
    assert_int_equal(label, i - 7);
    assert_true(box[0] == (float)i && box[1] == (float)i / 2 && box[2] == -1.5F);
    assert_int_equal(dim[2][0], i % 5);
    const int64_t want[4] = {i, i * i * i, -i, INT64_MIN};
    assert_memory_equal(tokens, want, (size_t)(i % 5) * 8);
    assert_int_equal(dim[3][0], i);
    for (int64_t k = 0; k < i; k++)
        assert_int_equal(caption[k], 'a' + (int)(i % 26));
    assert_int_equal(raw[0], i);
    assert_int_equal(raw[3], 65535);
}

static void examples_are_read(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        write_examples("e.tfrecord", 0, EXAMPLES, packed);
        struct mr_dataset *ds = test_open(uri("e.tfrecord", FEATURES));
        assert_non_null(strstr(mr_dataset_text(ds), FEATURES + 1));
        assert_int_equal(mr_dataset_length(ds), EXAMPLES);
        test_field_is(ds, 0, "label i64");
        test_field_is(ds, 1, "box f32[3]");
        test_field_is(ds, 2, "tokens i64[<=4]");
        test_field_is(ds, 4, "raw u16[2,2]");
        for (int64_t i = 0; i < EXAMPLES; i++)
            check_example(ds, (uint64_t)i, i);
        mr_dataset_close(ds);
    }
}

static void features_are_found(void **state)
{
    (void)state;
    struct bytes file = {0};
    for (int64_t i = 0; i < 20; i++) {
        struct bytes map = example(i, 1);
        put_feature(&map, "pic", text_of(png, sizeof png));
        put_example(&file, map);
    }
    write_bytes("f.tfrecord", &file);
    struct mr_dataset *ds = test_open(test_path("f.tfrecord")); /* the name shows the format */
    assert_string_equal(mr_dataset_format(ds), "tfrecord");
    test_field_is(ds, 0, "pic u8[<=16384,<=16384,3]");
    test_field_is(ds, 1, "/long/path/to/the/label i64");
    test_field_is(ds, 2, "box f32[3]");
    assert_int_equal(mr_dataset_field(ds, 3)->kind, MR_KIND_BYTES);
    assert_string_equal(mr_dataset_field(ds, 5)->name, "tokens");
    assert_int_equal(mr_dataset_field(ds, 5)->var_dims, 1);
    assert_non_null(strstr(mr_dataset_text(ds), "features=[pic:image,"));
    mr_dataset_close(ds);
}

static void pictures_are_decoded(void **state)
{
    (void)state;
    struct bytes file = {0}, map = {0};
    put_feature(&map, "image/encoded", text_of(png, sizeof png));
    put_example(&file, map);
    write_bytes("p.tfrecord", &file);
    struct mr_dataset *ds = test_open(
        uri("p.tfrecord", ",features=image=image/encoded:image,max-height=2,max-width=2"));
    uint8_t pixels[12];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    test_works(mr_dataset_read(ds, 0, (void *const[]){pixels}, dim));
    assert_int_equal(dim[0][0], 1);
    assert_memory_equal(pixels, ((const uint8_t[]){1, 2, 3}), 3);
    struct mr_stored stored[MR_MAX_FIELDS];
    test_works(mr_dataset_read_stored(ds, 0, stored));
    assert_int_equal(stored[0].bytes, sizeof png);
    assert_memory_equal(stored[0].data, png, sizeof png);
    mr_stored_free(stored);
    mr_dataset_close(ds);
}

/* What a record has under a name and what the field says must agree. */
static void wrong_features_are_bad_samples(void **state)
{
    static const struct {
        const char *features, *says;
    } wrong[] = {
        {"box:i64[3]", "feature 'box': floats: expected i64"},
        {"box:f32[4]", "3 floats"},
        {"box:f32[<=2]", "3 floats"},
        {"raw:u16[3]", "elements, as bytes"},
        {"raw:f32[3]", "2 elements, as bytes"},
        {"tokens:f32[<=9]", "integers: expected f32"},
        {"tokens:i32[<=4]", "a value out of range for i32"},
        {"absent:i64", "the record lacks it"},
        {"caption:string[<=3]", "longer than the field"},
        {"caption:image", ""},
        {"tokens:string", "integers: expected bytes"},
    };
    (void)state;
    write_examples("w.tfrecord", 4, 1, 1);
    static uint8_t row[1 << 16];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char options[200];
        snprintf(options, sizeof options, ",max-height=9,max-width=9,features=[%s]",
                 wrong[i].features);
        struct mr_dataset *ds = test_open(uri("w.tfrecord", options));
        int rc = mr_dataset_read(ds, 0, (void *const[]){row}, NULL);
        if (rc >= 0)
            fail_msg("%s: no error", wrong[i].features);
        test_fails(rc, rc, "w.tfrecord: record 0 at byte 0", wrong[i].says);
        mr_dataset_close(ds);
    }
}

static void what_a_record_may_lack_is_empty(void **state)
{
    (void)state;
    write_examples("l.tfrecord", 4, 1, 1);
    struct mr_dataset *ds =
        test_open(uri("l.tfrecord", ",features=[no:i64[<=3],none:string[<=5],box:f32[3]]"));
    int64_t no[3];
    char none[5];
    float box[3];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    test_works(mr_dataset_read(ds, 0, (void *const[]){no, none, box}, dim));
    assert_int_equal(dim[0][0], 0);
    assert_int_equal(dim[1][0], 0);
    mr_dataset_close(ds);
}

static void bad_features_are_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"x", "no type"},
        {":i64", "an empty name"},
        {"=x:i64", "an empty name"},
        {"x:i65", "an unknown type"},
        {"x:i64[]", "a shape"},
        {"x:i64[0]", "a shape"},
        {"x:i64[3,]", "a shape"},
        {"x:i64[<=]", "a shape"},
        {"x:i64[1,2,3,4,5,6,7,8,9]", "a shape"},
        {"x:i64[99999999999999999999]", "a shape"},
        {"x:i64[1,4294967296,4294967296]", "too many elements"},
        {"x:string[3]", "no dimension but its maximum length"},
        {"x:image[3]", "a picture has no shape"},
        {"x:image,y:image", "a second picture"},
        {"a_name_of_24_bytes_or_more=x:i64", "more than 23 bytes"},
    };
    (void)state;
    write_examples("b.tfrecord", 0, 1, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char options[200];
        snprintf(options, sizeof options, ",features=[%s]", wrong[i][0]);
        test_fails(test_open_fails(uri("b.tfrecord", options)), MR_EOPTION, wrong[i][1],
                   "expected [FIELD=]FEATURE:TYPE");
    }
}

/* Of a long name the last 23 bytes are the field's: those of two may be the same. */
static void fields_of_one_name_are_refused(void **state)
{
    struct bytes map = {0}, all = {0};
    const int64_t left = 1, right = 2;
    int64_t got[2];
    (void)state;
    put_feature(&map, "left/camera/image/encoded/label", ints_of(&left, 1, 1));
    put_feature(&map, "right/camera/image/encoded/label", ints_of(&right, 1, 1));
    put_example(&all, map);
    write_bytes("names.tfrecord", &all);
    test_fails(test_open_fails(uri("names.tfrecord", "")), MR_EOPTION, "'left/camera/",
               "'right/camera/", "features=[FIELD=FEATURE:TYPE,...]");
    test_fails(test_open_fails(uri("names.tfrecord", ",features=[a/b:i64,a/b:u8]")), MR_EOPTION,
               "both be field 'a/b'");
    struct mr_dataset *ds =
        test_open(uri("names.tfrecord", ",features=[a=left/camera/image/encoded/label:i64,"
                                        "b=right/camera/image/encoded/label:i64]"));
    test_works(mr_dataset_read(ds, 0, (void *const[]){&got[0], &got[1]}, NULL));
    assert_int_equal(got[0], left);
    assert_int_equal(got[1], right);
    mr_dataset_close(ds);
}

/* Numbers of 1 to 10 bytes, side by side in every order. */
static void integers_of_any_length_are_read(void **state)
{
    enum { N = 500 };
    int64_t x[N], got[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        x[i] = (int64_t)(test_random(i) >> test_random(i + N) % 64);
    x[7] = -1;
    x[8] = INT64_MIN;
    for (int packed = 0; packed < 2; packed++) {
        struct bytes file = {0};
        for (size_t n = 1; n <= N; n += n < 20 ? 1 : 160) {
            struct bytes map = {0};
            put_feature(&map, "x", ints_of(x + (N - n), n, packed));
            put_example(&file, map);
        }
        write_bytes("v.tfrecord", &file);
        struct mr_dataset *ds = test_open(uri("v.tfrecord", ",index=none,features=x:i64[<=500]"));
        size_t i = 0;
        for (size_t n = 1; n <= N; n += n < 20 ? 1 : 160, i++) {
            uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
            test_works(mr_dataset_read(ds, i, (void *const[]){got}, dim));
            assert_int_equal(dim[0][0], n);
            assert_memory_equal(got, x + (N - n), n * sizeof *got);
        }
        mr_dataset_close(ds);
    }
}

/* Steps of a SequenceExample are one field, whose first dimension counts them. */
static void sequences_are_read(void **state)
{
    (void)state;
    struct bytes file = {0}, map = {0}, list = {0}, features = {0};
    for (int64_t i = 0; i < 3; i++) {
        const int64_t x[2] = {i, 10 * i};
        struct bytes step = ints_of(x, 2, 1);
        put_field(&list, 1, step.data, step.n);
        free_bytes(&step);
    }
    put_feature(&map, "walk", list);
    features = wrap(2, map);
    put_record(&file, features.data, features.n);
    free_bytes(&features);
    write_bytes("s.tfrecord", &file);
    struct mr_dataset *ds = test_open(uri("s.tfrecord", ",features=walk:i64[<=4,2]"));
    int64_t walk[8];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    test_works(mr_dataset_read(ds, 0, (void *const[]){walk}, dim));
    assert_int_equal(dim[0][0], 3);
    assert_memory_equal(walk, ((const int64_t[]){0, 0, 1, 10, 2, 20}), 48);
    mr_dataset_close(ds);
    ds = test_open(uri("s.tfrecord", ""));
    assert_int_equal(mr_dataset_field(ds, 0)->dim[1], 2);
    mr_dataset_close(ds);
}

/* ---- records of any bytes ---- */

/* A record of a sequence "walk", whose steps have so many values. */
static void put_walk(struct bytes *file, const size_t steps[], int n)
{
    const int64_t x[4] = {1, 2, 3, 4};
    struct bytes map = {0}, list = {0}, features;
    for (int i = 0; i < n; i++) {
        struct bytes step = ints_of(x, steps[i], 1);
        put_field(&list, 1, step.data, step.n);
        free_bytes(&step);
    }
    put_feature(&map, "walk", list);
    features = wrap(2, map);
    put_record(file, features.data, features.n);
    free_bytes(&features);
}

/* The first sample's steps are even; the others would fill whole rows, but not step by step. */
static void uneven_steps_are_bad_samples(void **state)
{
    static const size_t steps[][3] = {{2, 2, 2}, {1, 3, 2}, {4, 0, 2}, {4, 4, 4}};
    struct bytes file = {0};
    int64_t walk[12];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    (void)state;
    for (int i = 0; i < 4; i++)
        put_walk(&file, steps[i], 3);
    write_bytes("uneven.tfrecord", &file);
    struct mr_dataset *ds = test_open(uri("uneven.tfrecord", ",features=walk:i64[<=6,2]"));
    test_works(mr_dataset_read(ds, 0, (void *const[]){walk}, dim));
    assert_int_equal(dim[0][0], 3);
    for (uint64_t i = 1; i < 4; i++)
        test_fails(mr_dataset_read(ds, i, (void *const[]){walk}, dim), MR_EFORMAT, "'walk'",
                   "in 3 steps: expected 2 in each");
    mr_dataset_close(ds);
    ds = test_open(uri("uneven.tfrecord", ",features=walk:i64[<=12]")); /* end to end */
    test_works(mr_dataset_read(ds, 1, (void *const[]){walk}, dim));
    assert_int_equal(dim[0][0], 6);
    mr_dataset_close(ds);
}

static void records_are_their_bytes(void **state)
{
    (void)state;
    struct bytes file = {0};
    static uint8_t data[20000], row[20000];
    const size_t sizes[] = {0, 1, 20000, 17};
    test_random_bytes(5, data, sizeof data);
    data[0] = 0xff;
    for (int i = 0; i < 4; i++)
        put_record(&file, data, sizes[i]);
    write_bytes("r.tfrecord", &file);
    struct mr_dataset *ds = test_open(uri("r.tfrecord", ""));
    test_field_is(ds, 0, "record bytes[<=20000]");
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
        test_works(mr_dataset_read(ds, i, (void *const[]){row}, dim));
        assert_int_equal(dim[0][0], sizes[i]);
        assert_memory_equal(row, data, sizes[i]);
    }
    mr_dataset_close(ds);
    for (int i = 0; i < 3; i++)
        put_record(&file, data + i, 100);
    write_bytes("same.tfrecord", &file);
    for (int check = 0; check < 2; check++) { /* without: the file has the field as it is */
        ds = test_open(uri("same.tfrecord", check ? "" : ",no-check"));
        test_field_is(ds, 0, "record u8[100]");
        test_works(mr_dataset_read(ds, 2, (void *const[]){row}, NULL));
        assert_memory_equal(row, data + 2, 100);
        mr_dataset_close(ds);
    }
}

/* ---- files ---- */

static void many_files_are_one_set(void **state)
{
    (void)state;
    uint64_t fingerprint = 0;
    test_dir_clear();
    write_examples("x-00000-of-00003", 0, 10, 1);
    write_examples("x-00001-of-00003", 10, 1, 1);
    write_examples("x-00002-of-00003", 11, 30, 1);
    struct bytes empty = {0};
    put_bytes(&empty, "", 0);
    char folder[400];
    snprintf(folder, sizeof folder, "tfrecord:%s%s", test_dir, FEATURES);
    const char *const uris[] = {uri("x-{00000..00002}-of-00003", FEATURES),
                                uri("x-0000?-of-*", FEATURES), folder};
    for (int k = 0; k < 3; k++) {
        struct mr_dataset *ds = test_open(uris[k]);
        assert_int_equal(mr_dataset_length(ds), 41);
        for (int64_t i = 0; i < 41; i++)
            check_example(ds, (uint64_t)i, i);
        assert_true(fingerprint == 0 || mr_dataset_fingerprint(ds) == fingerprint);
        fingerprint = mr_dataset_fingerprint(ds);
        mr_dataset_close(ds);
    }
    test_dir_clear();
}

static void packed_files_are_unpacked(void **state)
{
    (void)state;
    struct bytes file = {0};
    for (int64_t i = 0; i < EXAMPLES; i++)
        put_example(&file, example(i, 1));
    test_write_gz("g.tfrecord.gz", file.data, file.n);
    write_bytes("g.tfrecord", &file);
    const char *const options[] = {FEATURES, FEATURES ",memory=1"};
    struct mr_dataset *plain = test_open(uri("g.tfrecord", FEATURES));
    for (int k = 0; k < 2; k++) { /* in memory; in a temporary file */
        struct mr_dataset *ds = test_open(uri("g.tfrecord.gz", options[k]));
        for (int64_t i = 0; i < EXAMPLES; i++)
            check_example(ds, (uint64_t)i, i);
        assert_int_equal(mr_dataset_fingerprint(ds), mr_dataset_fingerprint(plain));
        mr_dataset_close(ds);
    }
    mr_dataset_close(plain);
    test_fails(test_open_fails(uri("g.tfrecord.gz", ",unpacked=100")), MR_ELIMIT, "g.tfrecord.gz");
}

static void an_index_is_used_while_it_fits(void **state)
{
    (void)state;
    struct stat st;
    test_dir_clear();
    write_examples("i.tfrecord", 0, 10, 1);
    struct mr_dataset *ds = test_open(uri("i.tfrecord", ",index=beside" FEATURES));
    uint64_t fingerprint = mr_dataset_fingerprint(ds);
    mr_dataset_close(ds);
    assert_int_equal(stat(test_path("i.tfrecord.idx"), &st), 0);
    ds = test_open(uri("i.tfrecord", ",index=beside" FEATURES));
    assert_int_equal(mr_dataset_fingerprint(ds), fingerprint);
    check_example(ds, 9, 9);
    mr_dataset_close(ds);
    write_examples("i.tfrecord", 1, 12, 1);
    ds = test_open(uri("i.tfrecord", ",index=beside" FEATURES));
    assert_int_equal(mr_dataset_length(ds), 12);
    check_example(ds, 11, 12);
    assert_true(mr_dataset_fingerprint(ds) != fingerprint);
    mr_dataset_close(ds);
    test_write("i.tfrecord.idx", "of another program", 18); /* never touched */
    test_fails(test_open_fails(uri("i.tfrecord", ",index=beside")), -EEXIST, "i.tfrecord.idx");
    mr_dataset_close(test_open(uri("i.tfrecord", ",index=none")));
    test_dir_clear();
}

/* The same lengths, other bytes: the fingerprint has the checksums. */
static void contents_are_in_the_fingerprint(void **state)
{
    (void)state;
    uint64_t fingerprint[2];
    for (int k = 0; k < 2; k++) {
        struct bytes file = {0};
        put_record(&file, k ? "abcd" : "abce", 4);
        write_bytes("c.tfrecord", &file);
        struct mr_dataset *ds = test_open(uri("c.tfrecord", ",index=none"));
        fingerprint[k] = mr_dataset_fingerprint(ds);
        mr_dataset_close(ds);
    }
    assert_true(fingerprint[0] != fingerprint[1]);
}

/* ---- damage ---- */

static void a_cut_file_is_refused(void **state)
{
    (void)state;
    struct bytes file = {0};
    for (int64_t i = 0; i < 2; i++)
        put_example(&file, example(i + 3, 1));
    size_t first = 16;
    for (int k = 3; k >= 0; k--)
        first += (size_t)file.data[k] << 8 * k;
    for (size_t n = 1; n < file.n; n++) {
        test_write("t.tfrecord", file.data, n);
        if (n == first) { /* between records: nothing shows it */
            mr_dataset_close(test_open(uri("t.tfrecord", ",index=none")));
            continue;
        }
        test_fails(test_open_fails(uri("t.tfrecord", ",index=none")), MR_ETRUNCATED, "t.tfrecord",
                   "truncated: record", "the file has");
    }
    test_write("t.tfrecord", "", 0);
    test_fails(test_open_fails(uri("t.tfrecord", ",index=none")), MR_EFORMAT, "no records");
    free_bytes(&file);
}

/* Any bit of the bytes makes its record a bad one; any bit of a length ends the opening. */
static void a_changed_bit_is_found(void **state)
{
    (void)state;
    struct bytes file = {0};
    for (int64_t i = 0; i < 3; i++)
        put_example(&file, example(i + 3, 1));
    static uint8_t caption[1 << 16];
    int64_t label, tokens[4];
    float box[3];
    uint16_t raw[4];
    void *row[] = {&label, box, tokens, caption, raw};
    size_t n = file.data[0];
    for (size_t at = 0; at < n + 16; at += 3) {
        file.data[at] ^= 4;
        test_write("d.tfrecord", file.data, file.n);
        file.data[at] ^= 4;
        if (at < 12) {
            int rc = test_open_fails(uri("d.tfrecord", ",index=none" FEATURES));
            test_fails(rc, MR_EFORMAT, "d.tfrecord", "not a TFRecord file");
            continue;
        }
        struct mr_dataset *ds = test_open(uri("d.tfrecord", ",index=none" FEATURES));
        test_fails(mr_dataset_read(ds, 0, row, NULL), MR_EFORMAT, "d.tfrecord: record 0 at byte 0",
                   "checksum is wrong");
        check_example(ds, 1, 4);
        mr_dataset_close(ds);
    }
    file.data[n + 12] ^= 1; /* of the checksum itself */
    test_write("d.tfrecord", file.data, file.n);
    struct mr_dataset *ds = test_open(uri("d.tfrecord", ",no-check" FEATURES));
    check_example(ds, 0, 3);
    mr_dataset_close(ds);
    free_bytes(&file);
}

static void other_formats_are_named(void **state)
{
    static const uint8_t riegeli[32] = {0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f};
    (void)state;
    test_write("a.tfrecord", riegeli, sizeof riegeli);
    test_fails(test_open_fails(uri("a.tfrecord", "")), MR_EUNSUPPORTED, "ArrayRecord");
    test_fails(test_open_fails("tfrecord:"), MR_EOPTION, "tfrecord");
    test_fails(test_open_fails(uri("nowhere.tfrecord", "")), -ENOENT, "nowhere.tfrecord");
}

/* ---- through the loader ---- */

static void loaders_deliver_the_same(void **state)
{
    (void)state;
    write_examples("L.tfrecord", 0, EXAMPLES, 1);
    struct run_config c = run_config(uri("L.tfrecord", FEATURES));
    c.sampler = "random";
    c.opts.batch_size = 7;
    c.opts.epochs = 2;
    c.opts.collate = MR_COLLATE_RAGGED;
    c.opts.workers = 1;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, 0);
    assert_int_equal(one.n, 2 * EXAMPLES);
    c.opts.workers = 3;
    struct run three = run_loader(&c);
    assert_same_rows(&one, &three);
    run_free(&one);
    run_free(&three);
}

static void bad_records_are_skipped(void **state)
{
    (void)state;
    struct bytes file = {0};
    for (int64_t i = 0; i < EXAMPLES; i++)
        put_example(&file, example(i, 1));
    file.data[30] ^= 1;
    write_bytes("k.tfrecord", &file);
    struct run_config c = run_config(uri("k.tfrecord", FEATURES));
    c.opts.batch_size = 8;
    c.opts.epochs = 1;
    c.opts.collate = MR_COLLATE_RAGGED;
    struct run run = run_loader(&c);
    assert_true(run.rc < 0);
    assert_non_null(strstr(run.error, "record 0 at byte 0"));
    run_free(&run);
    c.opts.bad = MR_BAD_SKIP;
    run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, EXAMPLES - 1);
    run_free(&run);
}

/* ---- what others wrote ---- */

/* torchdata's: record i has 10 integers and floats from 10 * i on, and a text. */
static void others_examples_are_read(void **state)
{
    (void)state;
    const char *path = test_data("formats/torchdata/tfrecord/example.tfrecord");
    char text[1200];
    if (!path)
        skip();
    snprintf(text, sizeof text, "tfrecord:%s,index=none", path);
    struct mr_dataset *ds = test_open(text);
    assert_int_equal(mr_dataset_length(ds), 4);
    test_field_is(ds, 0, "x_byte bytes[<=118]");
    test_field_is(ds, 1, "x_float f32[10]");
    test_field_is(ds, 2, "x_int i64[10]");
    for (uint64_t i = 0; i < 4; i++) {
        char bytes[118];
        float x_float[10];
        int64_t x_int[10];
        uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
        test_works(mr_dataset_read(ds, i, (void *const[]){bytes, x_float, x_int}, dim));
        assert_int_equal(dim[0][0], 8);
        assert_memory_equal(bytes, "test str", 8);
        for (uint64_t k = 0; k < 10; k++) {
            assert_true(x_float[k] == (float)(10 * i + k));
            assert_int_equal(x_int[k], 100 * i + 10 * k);
        }
    }
    mr_dataset_close(ds);
}

static void others_sequences_are_read(void **state)
{
    (void)state;
    const char *path = test_data("formats/torchdata/tfrecord/sequence_example.tfrecord");
    char text[1200];
    static const uint64_t steps[4] = {3, 5, 7, 9};
    if (!path)
        skip();
    snprintf(text, sizeof text,
             "tfrecord:%s,index=none,features=[x_float_seq:f32[<=9,10],x_int_seq:i64[<=9,10],"
             "x_int:i64[10],x_byte_seq:u8[<=9,8]]",
             path);
    struct mr_dataset *ds = test_open(text);
    for (uint64_t i = 0; i < 4; i++) {
        float f[90];
        int64_t x[90], first[10];
        uint8_t bytes[72];
        uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
        test_works(mr_dataset_read(ds, i, (void *const[]){f, x, first, bytes}, dim));
        assert_int_equal(dim[0][0], steps[i]);
        assert_int_equal(dim[1][0], steps[i]);
        assert_int_equal(dim[3][0], steps[i]);
        for (uint64_t k = 0; k < 10 * steps[i]; k++) {
            assert_true(f[k] == (float)(10 * i + k % 10));
            assert_int_equal(x[k], first[k % 10]);
        }
        assert_memory_equal(bytes + 8 * (steps[i] - 1), "test str", 8);
    }
    mr_dataset_close(ds);
}

static void others_records_are_read(void **state)
{
    static const char *const want[] = {"1", "1 1", "2 1", "1 2 1 1", "1 1 1 2 2 1"};
    (void)state;
    const char *path = test_data("formats/grain/morris_sequence_first_5.tfrecord");
    char text[1200], row[16];
    if (!path)
        skip();
    snprintf(text, sizeof text, "tfrecord:%s,index=none", path);
    struct mr_dataset *ds = test_open(text);
    assert_int_equal(mr_dataset_length(ds), 5);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
        test_works(mr_dataset_read(ds, i, (void *const[]){row}, dim));
        assert_int_equal(dim[0][0], strlen(want[i]));
        assert_memory_equal(row, want[i], strlen(want[i]));
    }
    mr_dataset_close(ds);
    path = test_data("formats/grain/digits.array_record-00000-of-00002");
    snprintf(text, sizeof text, "tfrecord:%s,index=none", path ? path : "");
    test_fails(test_open_fails(text), MR_EUNSUPPORTED, "ArrayRecord");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_right_in_every_way),
        cmocka_unit_test(examples_are_read),
        cmocka_unit_test(features_are_found),
        cmocka_unit_test(pictures_are_decoded),
        cmocka_unit_test(wrong_features_are_bad_samples),
        cmocka_unit_test(what_a_record_may_lack_is_empty),
        cmocka_unit_test(bad_features_are_refused),
        cmocka_unit_test(fields_of_one_name_are_refused),
        cmocka_unit_test(integers_of_any_length_are_read),
        cmocka_unit_test(sequences_are_read),
        cmocka_unit_test(uneven_steps_are_bad_samples),
        cmocka_unit_test(records_are_their_bytes),
        cmocka_unit_test(many_files_are_one_set),
        cmocka_unit_test(packed_files_are_unpacked),
        cmocka_unit_test(an_index_is_used_while_it_fits),
        cmocka_unit_test(contents_are_in_the_fingerprint),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(a_changed_bit_is_found),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(loaders_deliver_the_same),
        cmocka_unit_test(bad_records_are_skipped),
        cmocka_unit_test(others_examples_are_read),
        cmocka_unit_test(others_sequences_are_read),
        cmocka_unit_test(others_records_are_read),
    };
    return cmocka_run_group_tests_name("tfrecord", tests, test_dir_make, test_dir_drop);
}
