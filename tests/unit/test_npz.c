/* numpy's archives: what real ones hold, what is refused, and that damage is an error. */
#include "npy_write.h"
#include "samples.h"

#include <errno.h>
#include <millrace/error.h>

#if MILLRACE_HAVE_ZIP
#include <zip.h>

/* An npy file of one-byte numbers 0, 1, ... Returns its bytes. */
static size_t npy_bytes(uint8_t *out, const char *descr, const char *shape, const char *order,
                        size_t n)
{
    char dict[170];
    snprintf(dict, sizeof dict, "{'descr': %s, 'fortran_order': %s, 'shape': %s, }", descr, order,
             shape);
    size_t head = npy_put_head(out, 1, dict);
    for (size_t i = 0; i < n; i++)
        out[head + i] = (uint8_t)i;
    return head + n;
}

struct member {
    const char *name, *descr, *shape, *order;
    size_t n;
};

static const char *write_npz(const char *file, const struct member *m, int n, int method)
{
    const char *path = test_path(file);
    unlink(path);
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(zip);
    for (int i = 0; i < n; i++) {
        uint8_t *bytes = calloc(1, m[i].n + 256);
        size_t size = npy_bytes(bytes, m[i].descr, m[i].shape, m[i].order, m[i].n);
        zip_int64_t at = zip_file_add(zip, m[i].name, zip_source_buffer(zip, bytes, size, 1), 0);
        assert_true(at >= 0);
        assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t)at, method, 0), 0);
    }
    assert_int_equal(zip_close(zip), 0);
    return path;
}

static struct mr_dataset *open_with(const char *path, const char *options)
{
    char uri[900];
    snprintf(uri, sizeof uri, "%s%s", path, options);
    return test_open(uri);
}

static int fails_with(const char *path, const char *options)
{
    char uri[900];
    snprintf(uri, sizeof uri, "npz:%s%s", path, options);
    return test_open_fails(uri);
}

static const struct member three[] = {
    {"x.npy", "'|u1'", "(4, 2, 3)", "False", 24},
    {"y.npy", "'>i2'", "(4,)", "False", 8},
    {"f.npy", "'|u1'", "(4, 2)", "True", 8},
};

static void arrays_are_fields(void **state)
{
    (void)state;
    static const int methods[] = {ZIP_CM_STORE, ZIP_CM_DEFLATE};
    for (int k = 0; k < 2; k++) {
        const char *path = write_npz("a.npz", three, 3, methods[k]);
        struct mr_dataset *ds = open_with(path, "");
        assert_string_equal(mr_dataset_format(ds), "npz");
        assert_int_equal(mr_dataset_length(ds), 4);
        test_field_is(ds, 0, "x u8[2,3]");
        test_field_is(ds, 1, "y i16");
        test_field_is(ds, 2, "f u8[2]");
        for (int i = 0; i < 4; i++) {
            uint8_t *got = test_read(ds, (uint64_t)i);
            int16_t y;
            for (int j = 0; j < 6; j++)
                assert_int_equal(got[j], i * 6 + j);
            memcpy(&y, got + 6, 2);
            assert_int_equal(y, 2 * i << 8 | (2 * i + 1)); /* big-endian bytes */
            assert_int_equal(got[8], i);                   /* by columns */
            assert_int_equal(got[9], i + 4);
            free(got);
        }
        mr_dataset_close(ds);
        ds = open_with(path, ",fields=[f,x]");
        assert_int_equal(mr_dataset_fields(ds), 2);
        test_field_is(ds, 0, "f u8[2]");
        test_field_is(ds, 1, "x u8[2,3]");
        mr_dataset_close(ds);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct member odd[] = {
        {"x.npy", "'|u1'", "(4, 2)", "False", 8},
        {"z.npy", "'|u1'", "(5,)", "False", 5},
        {"o.npy", "'|O'", "(4,)", "False", 9},
        {"s.npy", "'|u1'", "()", "False", 1},
        {"cut.npy", "'<f8'", "(4, 9)", "False", 30},
        {"r.npy", "[('a', '<f4')]", "(4,)", "False", 16},
    };
    const char *path = write_npz("odd.npz", odd, 6, ZIP_CM_DEFLATE);
    test_fails(fails_with(path, ""), MR_EFORMAT, "odd.npz: array 'z' has a first dimension of 5",
               "fields=");
    test_fails(fails_with(path, ",fields=[o]"), MR_EUNSUPPORTED, "odd.npz: o.npy", "pickles");
    test_fails(fails_with(path, ",fields=[s]"), MR_EUNSUPPORTED, "0-dimensional");
    test_fails(fails_with(path, ",fields=[cut]"), MR_ETRUNCATED, "cut.npy", "promises");
    test_fails(fails_with(path, ",fields=[r]"), MR_EUNSUPPORTED, "structured");
    test_fails(fails_with(path, ",fields=[x,no]"), MR_EOPTION, "the name 'no'",
               "there are x, z, o, s, cut, r");
    test_fails(fails_with(path, ",fields=[no]"), MR_EOPTION, "fields=", "the name 'no'");
    struct member many[MR_MAX_FIELDS + 1];
    char names[MR_MAX_FIELDS + 1][16];
    for (int i = 0; i <= MR_MAX_FIELDS; i++) {
        snprintf(names[i], sizeof names[i], "a%d.npy", i);
        many[i] = (struct member){names[i], "'|u1'", "(4,)", "False", 4};
    }
    const char *more = write_npz("many.npz", many, MR_MAX_FIELDS + 1, ZIP_CM_STORE);
    test_fails(fails_with(more, ""), MR_ELIMIT, "33 arrays", "fields=[NAME,...]", "a0, a1, a2");
    test_fails(fails_with(path, ",fields=[x],memory=64"), MR_ELIMIT, "odd.npz: the arrays take ",
               "is 64:", "memory=");
    test_fails(fails_with("/nowhere/a.npz", ""), -ENOENT, "/nowhere/a.npz");
    test_fails(fails_with(test_write("t.npz", "no archive, only text", 21), ""), MR_EFORMAT,
               "t.npz", "zip");
    test_fails(fails_with(test_write("e.npz", "", 0), ""), MR_EFORMAT, "e.npz");
    struct mr_dataset *ds = open_with(path, ",fields=x");
    mr_dataset_close(ds);
}

/* 64 MiB of zeros in 64 KiB: not unpacked beyond what is allowed, whatever the directory says of
 * its size. */
static void bombs_are_limited(void **state)
{
    (void)state;
    struct member m = {"b.npy", "'|u1'", "(67108864,)", "False", 0};
    size_t n = 64u << 20;
    const char *path = test_path("bomb.npz");
    unlink(path);
    zip_t *zip = zip_open(path, ZIP_CREATE, NULL);
    uint8_t *bytes = calloc(1, n + 256);
    size_t size = npy_bytes(bytes, m.descr, m.shape, m.order, 0) + n;
    assert_true(zip_file_add(zip, m.name, zip_source_buffer(zip, bytes, size, 1), 0) >= 0);
    assert_int_equal(zip_close(zip), 0);
    test_fails(fails_with(path, ",memory=16MiB"), MR_ELIMIT, "bomb.npz", "16777216");
    FILE *f = fopen(path, "rb+"); /* a directory that says 1,000 bytes */
    uint8_t tail[200];
    fseek(f, 0, SEEK_END);
    long end = ftell(f), from = end - (long)sizeof tail;
    fseek(f, from, SEEK_SET);
    assert_int_equal(fread(tail, 1, sizeof tail, f), sizeof tail);
    uint8_t *entry = memmem(tail, sizeof tail, "PK\1\2", 4);
    assert_non_null(entry);
    memcpy(entry + 24, "\xe8\3\0\0", 4);
    fseek(f, from, SEEK_SET);
    fwrite(tail, 1, sizeof tail, f);
    fclose(f);
    int rc = fails_with(path, ",memory=16MiB");
    assert_true(rc == MR_EFORMAT);
    f = fopen(path,
              "rb+"); /* one that says 2 GiB: refused by what it says, unless that is allowed */
    memcpy(entry + 24, "\0\0\0\x80", 4);
    fseek(f, from, SEEK_SET);
    fwrite(tail, 1, sizeof tail, f);
    fclose(f);
    test_fails(fails_with(path, ""), MR_ELIMIT, "bomb.npz", "take 2147483648 bytes",
               "memory=", "20 times");
    test_fails(fails_with(path, ",memory=1GiB"), MR_ELIMIT, "most allowed is 1073741824:");
}

/* Any byte changed, any end cut off: an error with a text, or the same values (a byte that nobody
 * reads). */
static void damage_is_survived(void **state)
{
    (void)state;
    static uint8_t whole[2000];
    const char *path = write_npz("d.npz", three, 3, ZIP_CM_DEFLATE);
    FILE *f = fopen(path, "rb");
    size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    int good = 0, bad = 0;
    for (uint32_t r = 0; r < 600; r++) {
        uint8_t copy[2000];
        memcpy(copy, whole, n);
        size_t size = r % 4 ? n : test_random(r) % n;
        if (r % 4)
            copy[test_random(r) % n] ^= (uint8_t)(1 << r % 8);
        struct mr_dataset *ds = NULL;
        int rc = mr_dataset_open(test_write("d2.npz", copy, size), &ds);
        if (rc < 0) {
            assert_true(mr_last_error()[0]);
            bad++;
            continue;
        }
        uint8_t *got = test_read(ds, 1);
        if (strcmp(mr_dataset_field(ds, 0)->name, "x") == 0)
            assert_int_equal(got[0], 6);
        good++;
        free(got);
        mr_dataset_close(ds);
    }
    assert_true(bad > 100 && good > 0);
    print_message("%d damaged files refused, %d good\n", bad, good);
}

static void real_files(void **state)
{
    (void)state;
    const char *path = test_data("formats/npy/libnpy/test.npz"),
               *other = test_data("formats/npy/libnpy/test_compressed.npz");
    if (!path || !other)
        skip();
    struct mr_dataset *a = open_with(path, ""), *b = open_with(other, "");
    assert_int_equal(mr_dataset_fields(a), mr_dataset_fields(b));
    assert_int_equal(mr_dataset_length(a), mr_dataset_length(b));
    size_t bytes = 0;
    for (int f = 0; f < mr_dataset_fields(a); f++)
        bytes += test_field_bytes(a, f);
    for (uint64_t i = 0; i < mr_dataset_length(a); i++) {
        uint8_t *x = test_read(a, i), *y = test_read(b, i);
        assert_memory_equal(x, y, bytes);
        free(x);
        free(y);
    }
    mr_dataset_close(a);
    mr_dataset_close(b);
    const char *pickle = test_data("formats/npy/numpy/py3-objarr.npz");
    if (pickle)
        test_fails(fails_with(pickle, ""), MR_EUNSUPPORTED, "pickles");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_fields), cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(bombs_are_limited), cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(real_files),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}

#else

static void it_says_what_is_missing(void **state)
{
    (void)state;
    test_fails(test_open_fails(test_write("a.npz", "", 0)), MR_EUNSUPPORTED, "libzip");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_says_what_is_missing)};
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}

#endif
