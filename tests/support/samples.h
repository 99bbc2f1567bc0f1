/* What the tests of data sets share: files in a folder of their own, and samples read and
 * compared. */
#ifndef MR_TEST_SAMPLES_H
#define MR_TEST_SAMPLES_H

/* cmocka.h needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include <dirent.h>
#include <ftw.h>
#include <millrace/dataset.h>
#include <millrace/system.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_dir[256];

/* Group fixtures: a fresh folder, gone afterwards with the files in it. */
static inline int test_dir_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(test_dir, sizeof test_dir, "%s/millrace-dataset-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(test_dir) ? 0 : -1;
}

static inline void test_dir_clear(void)
{
    DIR *d = opendir(test_dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", test_dir, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
}

static inline int test_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int test_dir_drop(void **state)
{
    (void)state;
    return nftw(test_dir, test_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* test_dir/name; the text is good until the eighth call after this one. */
static inline const char *test_path(const char *name)
{
    static char paths[8][600];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", test_dir, name);
    return path;
}

static inline const char *test_write(const char *name, const void *bytes, size_t n)
{
    const char *path = test_path(name);
    unlink(path); /* some file systems flush a file that replaces what was in it */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

#if MILLRACE_HAVE_ZLIB /* not in the core build */
#include <zlib.h>

static inline const char *test_write_gz(const char *name, const void *bytes, size_t n)
{
    const char *path = test_path(name);
    unlink(path);
    gzFile f = gzopen(path, "wb1");
    assert_non_null(f);
    assert_int_equal(gzfwrite(bytes, 1, n, f), n);
    assert_int_equal(gzclose(f), Z_OK);
    return path;
}
#endif

/* The i-th of a fixed stream of numbers. */
static inline uint64_t test_random(uint32_t i)
{
    const uint32_t counter[4] = {i, 1, 0, 0}, key[2] = {0x6473, 0x6574};
    uint32_t out[4];
    mr_philox(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1];
}

static inline void test_random_bytes(uint32_t seed, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(test_random(seed + (uint32_t)(i / 8)) >> i % 8 * 8);
}

static inline void test_reverse(uint8_t *bytes, size_t n, size_t width)
{
    for (size_t at = 0; at < n; at += width)
        for (size_t i = 0; i < width / 2; i++) {
            uint8_t t = bytes[at + i];
            bytes[at + i] = bytes[at + width - 1 - i];
            bytes[at + width - 1 - i] = t;
        }
}

/* The call gave this code, and the text holds all of the parts (NULL ends them). */
#define test_fails(rc, code, ...)                                                                  \
    test_fails_at(rc, code, (const char *[]){__VA_ARGS__, NULL}, __FILE__, __LINE__)
static inline void test_fails_at(int rc, int code, const char *const *parts, const char *file,
                                 int line)
{
    if (rc != code) {
        print_error("%d: %s\n", rc, rc < 0 ? mr_last_error() : "no error");
        _assert_int_equal((uintmax_t)rc, (uintmax_t)code, file, line);
    }
    for (; *parts; parts++)
        if (!strstr(mr_last_error(), *parts)) {
            print_error("'%s' is not in '%s'\n", *parts, mr_last_error());
            _fail(file, line);
        }
}

#define test_works(rc) test_works_at(rc, __FILE__, __LINE__)
static inline void test_works_at(int rc, const char *file, int line)
{
    if (rc >= 0)
        return;
    print_error("%d: %s\n", rc, mr_last_error());
    _fail(file, line);
}

static inline struct mr_dataset *test_open(const char *uri)
{
    struct mr_dataset *ds = NULL;
    test_works(mr_dataset_open(uri, &ds));
    return ds;
}

/* Opening must fail, and must not touch its output. */
static inline int test_open_fails(const char *uri)
{
    struct mr_dataset *ds = (struct mr_dataset *)&ds;
    int rc = mr_dataset_open(uri, &ds);
    assert_ptr_equal(ds, &ds);
    return rc;
}

static inline size_t test_field_bytes(const struct mr_dataset *ds, int f)
{
    uint64_t bytes;
    test_works(mr_spec_bytes(mr_dataset_field(ds, f), &bytes));
    return bytes;
}

/* Sample `index`, field after field, malloc'd. */
static inline uint8_t *test_read(const struct mr_dataset *ds, uint64_t index)
{
    void *row[MR_MAX_FIELDS] = {NULL};
    size_t total = 0, at = 0;
    for (int f = 0; f < mr_dataset_fields(ds); f++)
        total += test_field_bytes(ds, f);
    uint8_t *out = malloc(total + 1);
    assert_non_null(out);
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        row[f] = out + at;
        at += test_field_bytes(ds, f);
    }
    test_works(mr_dataset_read(ds, index, row, NULL));
    return out;
}

/* A one-field data set's samples are these bytes, one after the other. */
static inline void test_content(const struct mr_dataset *ds, const uint8_t *want, size_t bytes)
{
    size_t record = test_field_bytes(ds, 0);
    assert_int_equal(mr_dataset_length(ds) * record, bytes);
    for (uint64_t i = 0; i < mr_dataset_length(ds); i++) {
        uint8_t *got = test_read(ds, i);
        assert_memory_equal(got, want + i * record, record);
        free(got);
    }
}

static inline void test_field_is(const struct mr_dataset *ds, int f, const char *text)
{
    char got[256];
    assert_non_null(mr_dataset_field(ds, f));
    assert_string_equal(mr_spec_format(mr_dataset_field(ds, f), got, sizeof got), text);
}

/* A file of the real inputs, or NULL after saying that it is not there. */
static inline const char *test_data(const char *name)
{
    static char paths[8][1024];
    static int next;
    const char *root = getenv("MILLRACE_TEST_DATA");
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root ? root : "(MILLRACE_TEST_DATA is not set)", name);
    if (access(path, R_OK) == 0)
        return path;
    print_message("SKIP %s: not there\n", path);
    return NULL;
}

#endif
