/* numpy's arrays: what numpy wrote reads as numpy reads it, whatever the dtype and the order; what
 * is wrong is named. */
#include "npy_write.h"
#include "samples.h"

#include <errno.h>
#include <stdbool.h>

struct vector {
    const char *path;
    uint64_t n; /* 0: refused */
    const char *text;
    uint32_t crc;
};

static const struct vector vectors[] = {
#include "npy_vectors.h"
};

static void expect_vector(const struct vector *v, const char *path)
{
    char uri[1100];
    snprintf(uri, sizeof uri, "npy:%s", path);
    if (v->n == 0) {
        test_fails(test_open_fails(uri), MR_EUNSUPPORTED, path, v->text);
        return;
    }
    struct mr_dataset *ds = test_open(uri);
    assert_int_equal(mr_dataset_length(ds), v->n);
    test_field_is(ds, 0, v->text);
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t i = 0; i < v->n; i++) {
        uint8_t *sample = test_read(ds, i);
        crc = crc32(crc, sample, (uInt)test_field_bytes(ds, 0));
        free(sample);
    }
    if (crc != v->crc)
        print_error("%s\n", v->path);
    assert_int_equal(crc, v->crc);
    mr_dataset_close(ds);
}

static void numpys_own_files_agree(void **state)
{
    (void)state;
    int found = 0;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char name[300];
        snprintf(name, sizeof name, "formats/npy/%s", vectors[i].path);
        const char *path = test_data(name);
        if (path)
            expect_vector(&vectors[i], path);
        found += path != NULL;
    }
    if (found == 0)
        skip();
}

static const struct {
    const char *descr, *dtype;
    size_t bytes, width; /* of an element; of what turns round in it */
    int length;          /* its own dimension; 0: none */
} types[] = {
    {"b1", "bool", 1, 1, 0},     {"u1", "u8", 1, 1, 0},     {"i1", "i8", 1, 1, 0},
    {"u2", "u16", 2, 2, 0},      {"i2", "i16", 2, 2, 0},    {"u4", "u32", 4, 4, 0},
    {"i4", "i32", 4, 4, 0},      {"u8", "u64", 8, 8, 0},    {"i8", "i64", 8, 8, 0},
    {"f2", "f16", 2, 2, 0},      {"f4", "f32", 4, 4, 0},    {"f8", "f64", 8, 8, 0},
    {"c8", "c64", 8, 4, 0},      {"c16", "c128", 16, 8, 0}, {"S5", "u8", 5, 1, 5},
    {"U3", "u32", 12, 4, 3},     {"V7", "u8", 7, 1, 7},     {"M8[ns]", "i64", 8, 8, 0},
    {"m8[25s]", "i64", 8, 8, 0},
};
#define N_TYPES (sizeof types / sizeof types[0])

struct array {
    size_t type, n, bytes;
    int rank;
    size_t dim[9];
    bool big, fortran;
    uint8_t want[65536]; /* C order, this machine's byte order */
};

static void make_array(uint32_t seed, struct array *a)
{
    uint64_t r = test_random(seed);
    a->type = seed % N_TYPES;
    a->rank = 1 + (int)(r % 7);
    a->big = r >> 8 & 1;
    a->fortran = r >> 9 & 1;
    a->n = 1;
    for (int d = 0; d < a->rank; d++) {
        a->dim[d] = 1 + (r >> (16 + 4 * d)) % 4;
        a->n *= a->dim[d];
    }
    while (a->n * types[a->type].bytes > sizeof a->want)
        a->n /= a->dim[--a->rank];
    a->bytes = a->n * types[a->type].bytes;
    test_random_bytes(seed << 13, a->want, a->bytes);
}

/* Where element i in C order stands in Fortran order. */
static size_t fortran_place(const struct array *a, size_t i)
{
    size_t place = 0, index[9];
    for (int d = a->rank - 1; d >= 0; d--) {
        index[d] = i % a->dim[d];
        i /= a->dim[d];
    }
    for (int d = a->rank - 1; d >= 0; d--)
        place = place * a->dim[d] + index[d];
    return place;
}

static size_t encode(const struct array *a, uint32_t seed, uint8_t *file)
{
    char dict[400];
    size_t size = types[a->type].bytes;
    int at = snprintf(dict, sizeof dict, seed & 1 ? "{'shape': (" : "{\"shape\":(");
    for (int d = 0; d < a->rank; d++)
        at += snprintf(dict + at, sizeof dict - (size_t)at, "%zu%s", a->dim[d],
                       d < a->rank - 1 || a->rank == 1 ? ", " : "");
    snprintf(dict + at, sizeof dict - (size_t)at, "), 'fortran_order': %s, 'descr': '%c%s'%s}",
             a->fortran ? "True" : "False",
             types[a->type].width == 1 ? '|'
             : a->big                  ? '>'
                                       : '<',
             types[a->type].descr, seed & 2 ? ", " : "");
    size_t head = npy_put_head(file, 1 + (int)(seed % 3), dict);
    for (size_t i = 0; i < a->n; i++)
        memcpy(file + head + (a->fortran ? fortran_place(a, i) : i) * size, a->want + i * size,
               size);
    if (a->big)
        test_reverse(file + head, a->bytes, types[a->type].width);
    return head + a->bytes;
}

static void expect_spec(const struct mr_dataset *ds, const struct array *a)
{
    char want[256];
    int length = types[a->type].length;
    bool image = strcmp(types[a->type].descr, "u1") == 0 && a->rank >= 3;
    int at = snprintf(want, sizeof want, "%s %s", image ? "image" : "x", types[a->type].dtype);
    for (int d = 1; d < a->rank; d++)
        at += snprintf(want + at, sizeof want - (size_t)at, "%c%zu", d == 1 ? '[' : ',', a->dim[d]);
    if (length)
        at +=
            snprintf(want + at, sizeof want - (size_t)at, "%c%d", a->rank == 1 ? '[' : ',', length);
    snprintf(want + at, sizeof want - (size_t)at, a->rank > 1 || length ? "]" : "");
    test_field_is(ds, 0, want);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static struct array a;
    static uint8_t file[sizeof a.want + 1024];
    for (uint32_t seed = 0; seed < 40 * N_TYPES; seed++) {
        make_array(seed, &a);
        struct mr_dataset *ds = test_open(test_write("a.npy", file, encode(&a, seed, file)));
        assert_string_equal(mr_dataset_format(ds), "npy");
        expect_spec(ds, &a);
        test_content(ds, a.want, a.bytes);
        mr_dataset_close(ds);
    }
}

/* Larger than the chunk that is turned round at once, so that columns are cut. */
static void large_fortran_arrays_are_turned_round(void **state)
{
    (void)state;
    const size_t n = 70001, width = 3, columns = 5;
    uint8_t *file = malloc(1024 + n * columns * width);
    assert_non_null(file);
    size_t head =
        npy_put_head(file, 1, "{'descr': '|S3', 'fortran_order': True, 'shape': (70001, 5), }");
    test_random_bytes(9, file + head, n * columns * width);
    struct mr_dataset *ds = test_open(test_write("f.npy", file, head + n * columns * width));
    test_field_is(ds, 0, "x u8[5,3]");
    for (size_t i = 0; i < n; i += i < 70 ? 1 : 977) {
        uint8_t *sample = test_read(ds, i);
        for (size_t c = 0; c < columns; c++)
            assert_memory_equal(sample + c * width, file + head + (c * n + i) * width, width);
        free(sample);
    }
    mr_dataset_close(ds);
    free(file);
}

/* An array of this header and 24 zero bytes. */
static int open_dict(const char *dict)
{
    uint8_t file[2048] = {0};
    size_t head = npy_put_head(file, 1, dict);
    memset(file + head, 0, 24);
    return test_open_fails(test_write("h.npy", file, head + 24));
}

#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static void headers_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *dict;
        int code;
        const char *text;
    } bad[] = {
        {DICT("'<f4'", "False", "(2, 4)"), MR_ETRUNCATED,
         ": truncated: header promises 160 bytes, file has 152"},
        {DICT("'<f4'", "False", "(2, 2)"), MR_EFORMAT,
         ": oversized: header promises 144 bytes, file has 152"},
        {DICT("'<f4'", "False", "(0, 2)"), MR_EFORMAT, "dimension 0 is 0"},
        {DICT("'<f4'", "False", "(2, 0)"), MR_EFORMAT, "dimension 1 is 0"},
        {DICT("'<f4'", "False", "(-1, 2)"), MR_EFORMAT,
         "expected a dimension below 2^64, found '-'"},
        {DICT("'<f4'", "False", "(18446744073709551616,)"), MR_EFORMAT,
         "expected a dimension below 2^64"},
        {DICT("'<f4'", "False", "(4294967296, 4294967296)"), MR_EFORMAT, "overflow"},
        {DICT("'<f4'", "False", "(18446744073709551615,)"), MR_EFORMAT, "overflow"},
        {DICT("'<f4'", "False", "(6)"), MR_EFORMAT, "expected a tuple"},
        {DICT("'<f4'", "False", "(2 3)"), MR_EFORMAT, "expected ',' or ')', found '3'"},
        {DICT("'<f4'", "False", "(2,,3)"), MR_EFORMAT, "found ','"},
        {DICT("'<f4'", "False", "()"), MR_EUNSUPPORTED, "0-dimensional"},
        {DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,1,6)"), MR_EUNSUPPORTED,
         "more than 9 dimensions"},
        {DICT("'|S6'", "False", "(1,1,1,1,1,1,1,1,4)"), MR_EUNSUPPORTED, "samples of 9 dimensions"},
        {DICT("'<f4'", "Maybe", "(6,)"), MR_EFORMAT, "expected True or False, found 'M'"},
        {DICT("'|O'", "False", "(3,)"), MR_EUNSUPPORTED, "holds Python objects (pickles): refused"},
        {DICT("'|O8'", "False", "(3,)"), MR_EUNSUPPORTED,
         "holds Python objects (pickles): refused"},
        {DICT("[('a', '<f4'), ('b', '<i8')]", "False", "(2,)"), MR_EUNSUPPORTED,
         "structured dtype"},
        {DICT("('<f4', (2,))", "False", "(3,)"), MR_EUNSUPPORTED, "subarray dtype"},
        {DICT("'<f16'", "False", "(1,)"), MR_EUNSUPPORTED, "'<f16': long double"},
        {DICT("'<c32'", "False", "(1,)"), MR_EUNSUPPORTED, "'<c32': long double"},
        {DICT("'<i3'", "False", "(8,)"), MR_EUNSUPPORTED, "'<i3': unknown type"},
        {DICT("'<f4,<f4'", "False", "(3,)"), MR_EUNSUPPORTED, "unknown type"},
        {DICT("'|S0'", "False", "(3,)"), MR_EUNSUPPORTED, "'|S0'"},
        {DICT("''", "False", "(3,)"), MR_EUNSUPPORTED, "unknown type"},
        {DICT("'<'", "False", "(3,)"), MR_EUNSUPPORTED, "unknown type"},
        {DICT("'<M8[ns]]'", "False", "(3,)"), MR_EUNSUPPORTED, "unknown type"},
        {DICT("4", "False", "(3,)"), MR_EFORMAT, "expected a dtype in quotes, found '4'"},
        {"{'descr': '<f4', 'fortran_order': False, }", MR_EFORMAT, "header without shape"},
        {"{'fortran_order': False, 'shape': (6,)}", MR_EFORMAT, "header without descr"},
        {"{'descr': '<f4', 'shape': (6,)}", MR_EFORMAT, "header without fortran_order"},
        {"{'descr': '<f4', 'descr': '<f4'}", MR_EFORMAT, "'descr' appears twice"},
        {"{'descr': '<f4', 'dtype': 4}", MR_EFORMAT, "key 'dtype'"},
        {"{'descr': '<f4' 'shape': (6,)}", MR_EFORMAT, "expected ',' or '}'"},
        {"{'descr' '<f4'}", MR_EFORMAT, "expected ':'"},
        {"{'descr': '<f4", MR_EFORMAT, "expected a closing quote"},
        {"['descr']", MR_EFORMAT, "byte 0: expected '{', found '['"},
        {DICT("'<f4'", "False", "(6,)") " or exit()", MR_EFORMAT,
         "expected nothing after '}', found "
         "'o'"},
        {"", MR_EFORMAT, "expected '{', found its end"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        test_fails(open_dict(bad[i].dict), bad[i].code, test_path("h.npy"), bad[i].text);
}

static void preambles_are_checked(void **state)
{
    (void)state;
    uint8_t file[200];
    size_t head = npy_put_head(file, 1, DICT("'<f4'", "False", "(6,)"));
    test_fails(test_open_fails(test_write("p.npy", file, 9)), MR_ETRUNCATED, "/p.npy: truncated",
               "file has 9");
    test_fails(test_open_fails(test_write("p.npy", file, 40)), MR_ETRUNCATED,
               "the header ends at byte", "file has 40");
    file[6] = 4;
    test_fails(test_open_fails(test_write("p.npy", file, head)), MR_EUNSUPPORTED,
               "npy version 4.0: expected 1.0, 2.0 or 3.0");
    file[6] = 2;
    file[10] = file[11] = 0xff;
    test_fails(test_open_fails(test_write("p.npy", file, head)), MR_ELIMIT, "/p.npy: a header of ",
               "at most 65536");
    test_fails(test_open_fails(test_write("p.npy", file, 11)), MR_ETRUNCATED,
               "expected 12 bytes before the header");
    file[0] = 'x';
    test_fails(test_open_fails(test_write("p.npy", file, head)), MR_EFORMAT, "not an npy file",
               "found 78 4e");
    test_fails(test_open_fails("npy:/nowhere.npy"), -ENOENT, "/nowhere.npy");
}

static void labels_come_from_a_second_file(void **state)
{
    (void)state;
    char uri[1400];
    uint8_t file[400] = {0}, labels[400] = {0};
    size_t a = npy_put_head(file, 1, DICT("'>i2'", "False", "(3, 2)")),
           b = npy_put_head(labels, 2, DICT("'<i8'", "True", "(3,)"));
    for (uint8_t i = 0; i < 6; i++)
        file[a + 2 * i + 1] = i;
    labels[b] = 7;
    labels[b + 8] = 8;
    labels[b + 16] = 9;
    test_write("a.npy", file, a + 12);
    test_write("l.npy", labels, b + 24);
    snprintf(uri, sizeof uri, "npy:%s,labels=%s", test_path("a.npy"), test_path("l.npy"));
    struct mr_dataset *ds = test_open(uri);
    test_field_is(ds, 0, "x i16[2]");
    test_field_is(ds, 1, "label i64");
    for (int i = 0; i < 3; i++) {
        int16_t x[2];
        int64_t label;
        test_works(mr_dataset_read(ds, (uint64_t)i, (void *[]){x, &label}, NULL));
        assert_int_equal(x[0], 2 * i);
        assert_int_equal(x[1], 2 * i + 1);
        assert_int_equal(label, 7 + i);
    }
    assert_string_equal(mr_dataset_text(ds), "npy: a.npy + l.npy");
    mr_dataset_close(ds);
    b = npy_put_head(labels, 1, DICT("'<i8'", "False", "(2,)"));
    test_write("l.npy", labels, b + 16);
    test_fails(test_open_fails(uri), MR_EFORMAT, test_path("a.npy"), " has 3 samples",
               test_path("l.npy"), " has 2 labels");
}

/* No byte of a header may crash, and whatever opens must read. */
static void damaged_headers_do_no_harm(void **state)
{
    (void)state;
    uint8_t file[200] = {0}, row[4096];
    size_t head = npy_put_head(file, 1, DICT("'<f4'", "False", "(3, 2)")), opened = 0;
    for (uint32_t seed = 0; seed < 4000; seed++) {
        uint64_t r = test_random(seed);
        size_t at = 8 + r % 80;
        uint8_t was = file[at];
        file[at] = (uint8_t)(r >> 32);
        struct mr_dataset *ds;
        if (mr_dataset_open(test_write("d.npy", file, head + 24), &ds) == 0) {
            opened++;
            assert_true(test_field_bytes(ds, 0) <= sizeof row);
            test_works(mr_dataset_read(ds, mr_dataset_length(ds) - 1, (void *[]){row}, NULL));
            mr_dataset_close(ds);
        } else {
            assert_non_null(strstr(mr_last_error(), "d.npy"));
        }
        file[at] = was;
    }
    assert_in_range(opened, 1, 3999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpys_own_files_agree),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(large_fortran_arrays_are_turned_round),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(preambles_are_checked),
        cmocka_unit_test(labels_come_from_a_second_file),
        cmocka_unit_test(damaged_headers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
