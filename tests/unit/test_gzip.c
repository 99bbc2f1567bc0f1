/* White-box. Gzip: streams in any portions, whole or damaged; and gzip files among the files,
 * inflated while they are viewed. */
#include "codec/codec.h"
#include "storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define HEAD 16
static char dir[] = "/tmp/millrace-gzip-XXXXXX";
static char path[64];
static char logged[MR_ERROR_BYTES];

static void log_keep(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.gz", dir);
    mr_log_set(log_keep, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mr_log_set(NULL, NULL);
    unlink(path);
    return rmdir(dir);
}

/* Half noise, half runs; begins with its own length. */
static uint8_t *data_make(uint64_t bytes, uint64_t seed)
{
    uint8_t *data = malloc(bytes + 8);
    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)mr_mix64(seed + (i & 1024 ? i : i >> 8));
    if (bytes >= 8)
        memcpy(data, &bytes, 8);
    return data;
}

/* Appends one gzip member to out; returns its bytes. */
static size_t deflate_member(const uint8_t *data, size_t bytes, int level, uint8_t *out, size_t cap)
{
    z_stream zs = {0};
    assert_int_equal(deflateInit2(&zs, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    zs.next_in = (uint8_t *)data;
    zs.avail_in = (uInt)bytes;
    zs.next_out = out;
    zs.avail_out = (uInt)cap;
    assert_int_equal(deflate(&zs, Z_FINISH), Z_STREAM_END);
    size_t n = cap - zs.avail_out;
    deflateEnd(&zs);
    return n;
}

static void file_put(const uint8_t *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Inflates in random portions; returns the step's or the end's result, [out] made. */
static int gunzip(const uint8_t *gz, size_t n, uint8_t *out, size_t cap, uint64_t seed,
                  size_t *made)
{
    struct mr_gunzip *z = mr_gunzip_create("stream");
    struct mr_gunzip_io io = {0};
    size_t at = 0, put = 0;
    int rc = 0;
    assert_non_null(z);
    for (uint32_t i = 0; !rc && (at < n || io.n_in); i++) {
        uint32_t x[4];
        mr_draw4(seed, MR_DRAW_VALUES, i, 0, 0, x);
        if (!io.n_in) {
            io.in = gz + at;
            io.n_in = MR_MIN(x[0] % (x[1] % 2 ? 5 : 3000) + 1, n - at);
            at += io.n_in;
        }
        io.out = out + put;
        io.n_out = MR_MIN(x[2] % (x[3] % 2 ? 3 : 5000), cap - put);
        size_t room = io.n_out;
        rc = mr_gunzip_step(z, &io);
        put += room - io.n_out;
        if (put == cap && i > 100000)
            break;
    }
    if (!rc && put < cap) { /* what zlib still holds */
        io.out = out + put;
        io.n_out = cap - put;
        rc = mr_gunzip_step(z, &io);
        put = cap - io.n_out;
    }
    if (!rc)
        rc = mr_gunzip_end(z);
    assert_int_equal(mr_gunzip_made(z), put);
    mr_gunzip_destroy(z);
    *made = put;
    return rc;
}

static void any_portions_and_members_inflate(void **state)
{
    (void)state;
    static uint8_t gz[400000], out[200001];
    for (uint64_t seed = 0; seed < 60; seed++) {
        size_t bytes = seed * seed * 50, n = 0, at = 0, made;
        uint8_t *data = data_make(bytes, seed);
        size_t parts = seed % 4 + 1;
        for (size_t i = 0; i < parts; i++) {
            size_t part = i + 1 == parts ? bytes - at : bytes / parts;
            n += deflate_member(data + at, part, (int)(seed % 10), gz + n, sizeof gz - n);
            at += part;
        }
        assert_int_equal(gunzip(gz, n, out, bytes + 1, seed, &made), 0);
        assert_int_equal(made, bytes);
        assert_memory_equal(out, data, bytes);
        free(data);
    }
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    uint8_t gz[2000], out[2000];
    uint8_t *data = data_make(900, 1);
    size_t n = deflate_member(data, 900, 6, gz, sizeof gz), made;
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(gunzip(gz, cut, out, sizeof out, cut, &made), MR_ETRUNCATED);
        assert_memory_equal(out, data, made);
        assert_non_null(strstr(mr_last_error(), "stream: "));
    }
    free(data);
}

static void every_flipped_bit_is_noticed_or_harmless(void **state)
{
    (void)state;
    uint8_t gz[2000], out[4000];
    uint8_t *data = data_make(900, 2);
    size_t n = deflate_member(data, 900, 9, gz, sizeof gz), made, errors = 0;
    for (size_t bit = 0; bit < n * 8; bit++) {
        gz[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = gunzip(gz, n, out, sizeof out, bit, &made);
        gz[bit / 8] ^= (uint8_t)(1 << bit % 8);
        errors += rc != 0;
        assert_true(rc == 0 || rc == MR_EFORMAT || rc == MR_ETRUNCATED);
        assert_true(rc || (made == 900 && !memcmp(out, data, 900)));
    }
    assert_true(errors >=
                n * 8 - 8 * 8); /* time, extra flags and system in the header say nothing */
    free(data);
}

static void a_tail_is_skipped_with_a_warning(void **state)
{
    (void)state;
    static const char *const tails[] = {"garbage", "\x1f", "\x1f\x8c", "x", "\0\0\0\0\0"};
    static const size_t lengths[] = {7, 1, 2, 1, 5};
    uint8_t gz[3000], out[3000];
    uint8_t *data = data_make(500, 3);
    size_t n = deflate_member(data, 500, 6, gz, sizeof gz), made;
    for (size_t i = 0; i < MR_COUNT(tails); i++) {
        logged[0] = 0;
        memcpy(gz + n, tails[i], lengths[i]);
        assert_int_equal(gunzip(gz, n + lengths[i], out, sizeof out, i, &made), 0);
        assert_int_equal(made, 500);
        assert_memory_equal(out, data, 500);
        assert_true((tails[i][0] == 0) == (logged[0] == 0));
    }
    free(data);
}

/* ---- gzip files among the files ---- */

static int want_own(void *user, const void *head, uint64_t *total)
{
    (void)user;
    memcpy(total, head, 8);
    return 0;
}

static int want_user(void *user, const void *head, uint64_t *total)
{
    (void)head;
    *total = *(uint64_t *)user;
    return 0;
}

static int want_none(void *user, const void *head, uint64_t *total)
{
    (void)user;
    (void)head;
    (void)total;
    return mr_error_set(MR_EUNSUPPORTED, "not mine");
}

/* Views random ranges of file 0 while it is inflated, and compares. */
static void views_equal(struct mr_files *files, const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < 300; i++) {
        uint32_t x[4];
        const void *view;
        mr_draw4(5, MR_DRAW_VALUES, i, 0, 0, x);
        uint64_t offset = x[0] % bytes, n = MR_MIN(x[1] % 5000, bytes - offset);
        assert_int_equal(mr_files_view(files, 0, offset, n, &view), 1);
        assert_memory_equal(view, data + offset, n);
    }
}

static void a_file_is_viewed_while_it_is_inflated(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {8, HEAD - 1, HEAD, HEAD + 1, 4000, 262144, 262145, 5000000};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        const uint64_t bytes = sizes[i];
        uint8_t *data = data_make(bytes, i), *gz = malloc(bytes + 10000), head[HEAD];
        size_t half = bytes / 2;
        size_t n = deflate_member(data, half, 1, gz, bytes + 10000);
        n += deflate_member(data + half, bytes - half, 6, gz + n, bytes + 10000 - n);
        file_put(gz, n);
        struct mr_files *files = mr_files_create();
        assert_int_equal(mr_files_add_gzip(files, path, head, HEAD, want_own, NULL), 0);
        assert_int_equal(mr_files_bytes(files, 0), bytes);
        assert_memory_equal(head, data, MR_MIN(bytes, HEAD));
        views_equal(files, data, bytes);
        assert_int_equal(mr_files_check(files), 0);
        uint8_t *copy = malloc(bytes);
        assert_int_equal(mr_files_read(files, 0, 0, copy, bytes), 0);
        assert_memory_equal(copy, data, bytes);
        const void *view;
        assert_int_equal(mr_files_view(files, 0, bytes, 1, &view), MR_ETRUNCATED);
        mr_files_destroy(files);
        free(copy);
        free(data);
        free(gz);
    }
}

/* Adds x.gz; the first error, of adding or of the check. */
static int add_and_check(struct mr_files *files, int (*want)(void *, const void *, uint64_t *),
                         void *user)
{
    uint8_t head[HEAD];
    int rc = mr_files_add_gzip(files, path, head, HEAD, want, user);
    return rc < 0 ? rc : mr_files_check(files);
}

static void fails_with(int (*want)(void *, const void *, uint64_t *), void *user, int code,
                       const char *text)
{
    struct mr_files *files = mr_files_create();
    assert_int_equal(add_and_check(files, want, user), code);
    assert_non_null(strstr(mr_last_error(), text));
    mr_files_destroy(files);
}

static void a_wrong_promise_is_an_error(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {4000, 3000000};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        uint8_t *data = data_make(sizes[i], i), *gz = malloc(sizes[i] + 10000);
        size_t n = deflate_member(data, sizes[i], 1, gz, sizes[i] + 10000);
        file_put(gz, n);
        uint64_t total = sizes[i] + 1;
        fails_with(want_user, &total, MR_ETRUNCATED, "x.gz: truncated: its header promises");
        total = sizes[i] - 1;
        fails_with(want_user, &total, MR_EFORMAT, "x.gz: too long: its header promises");
        total = HEAD - 1;
        fails_with(want_user, &total, MR_EFORMAT, "x.gz: too long: its header promises 15 bytes");
        total = n * 1032 + 1;
        fails_with(want_user, &total, MR_EFORMAT, "gzip hold at most");
        total = UINT64_MAX;
        fails_with(want_user, &total, MR_EFORMAT, "gzip hold at most");
        fails_with(want_none, NULL, MR_EUNSUPPORTED, "not mine");
        free(data);
        free(gz);
    }
    file_put((const uint8_t *)"plain text", 10);
    fails_with(want_own, NULL, MR_EFORMAT,
               "x.gz: not a gzip file: expected to begin with bytes 1f 8b, found 70 6c");
    file_put((const uint8_t *)"", 0);
    fails_with(want_own, NULL, MR_ETRUNCATED, "x.gz: not a gzip file");
}

/* A stream cut in the middle: all before the cut can be viewed, at any time, and nothing after it.
 * A wrong checksum: all but the last byte. */
static void damage_takes_what_follows_it(void **state)
{
    (void)state;
    const uint64_t bytes = 3000000;
    uint8_t *data = data_make(bytes, 9), *gz = malloc(bytes + 10000), head[HEAD];
    size_t n = deflate_member(data, bytes, 1, gz, bytes + 10000);
    const void *view;
    file_put(gz, n / 2);
    uint64_t good = 0;
    for (int round = 0; round < 2; round++) {
        struct mr_files *files = mr_files_create();
        assert_int_equal(mr_files_add_gzip(files, path, head, HEAD, want_own, NULL), 0);
        assert_int_equal(mr_files_view(files, 0, bytes - 1, 1, &view), MR_ETRUNCATED);
        assert_non_null(strstr(mr_last_error(), "x.gz: truncated"));
        assert_int_equal(mr_files_view(files, 0, bytes / 4, 1000, &view), 1);
        assert_memory_equal(view, data + bytes / 4, 1000);
        uint64_t seen = 0;
        while (mr_files_view(files, 0, seen, 1, &view) == 1)
            seen++;
        assert_true(seen > bytes / 3 && (!round || seen == good));
        good = seen;
        mr_files_destroy(files);
    }
    gz[n - 8] ^= 1; /* the checksum */
    file_put(gz, n);
    struct mr_files *files = mr_files_create();
    assert_int_equal(mr_files_add_gzip(files, path, head, HEAD, want_own, NULL), 0);
    assert_int_equal(mr_files_check(files), MR_EFORMAT);
    assert_int_equal(mr_files_view(files, 0, 0, bytes, &view), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "x.gz: damaged gzip data"));
    assert_int_equal(mr_files_view(files, 0, 0, bytes - 1, &view), 1);
    mr_files_destroy(files);
    free(data);
    free(gz);
}

static void destroying_stops_the_inflating(void **state)
{
    (void)state;
    static uint8_t gz[4000000];
    const uint64_t bytes = 200000000; /* most of a second of inflating */
    uint8_t *data = calloc(1, bytes), head[HEAD];
    memcpy(data, &bytes, 8);
    file_put(gz, deflate_member(data, bytes, 1, gz, sizeof gz));
    free(data);
    for (int i = 0; i < 20; i++) {
        struct mr_files *files = mr_files_create();
        assert_int_equal(mr_files_add_gzip(files, path, head, HEAD, want_own, NULL), 0);
        mr_files_destroy(files);
    }
}

static int want_idx(void *user, const void *head, uint64_t *total)
{
    (void)user;
    const uint8_t *h = head;
    uint64_t n = 1;
    for (int d = 0; d < h[3]; d++)
        n *= (uint64_t)h[4 + 4 * d] << 24 | (uint64_t)h[5 + 4 * d] << 16 |
             (uint64_t)h[6 + 4 * d] << 8 | h[7 + 4 * d];
    *total = n + 4 + 4u * h[3];
    return 0;
}

static void real_files_inflate_as_zlib_does_it(void **state)
{
    (void)state;
    static const char *const names[] = {"train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        const char *root = getenv("MILLRACE_TEST_DATA");
        char name[512];
        snprintf(name, sizeof name, "%s/mnist/%s", root ? root : ".", names[i]);
        if (access(name, R_OK)) {
            print_message("SKIP %s: not there\n", name);
            continue;
        }
        uint8_t head[HEAD];
        struct mr_files *files = mr_files_create();
        assert_int_equal(mr_files_add_gzip(files, name, head, HEAD, want_idx, NULL), 0);
        const uint64_t bytes = mr_files_bytes(files, 0);
        uint8_t *data = malloc(bytes + 1);
        gzFile f = gzopen(name, "rb");
        assert_int_equal(gzread(f, data, (unsigned)bytes + 1), bytes);
        gzclose(f);
        views_equal(files, data, bytes);
        const void *view;
        assert_int_equal(mr_files_view(files, 0, 0, bytes, &view), 1);
        assert_memory_equal(view, data, bytes);
        mr_files_destroy(files);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_portions_and_members_inflate),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(every_flipped_bit_is_noticed_or_harmless),
        cmocka_unit_test(a_tail_is_skipped_with_a_warning),
        cmocka_unit_test(a_file_is_viewed_while_it_is_inflated),
        cmocka_unit_test(a_wrong_promise_is_an_error),
        cmocka_unit_test(damage_takes_what_follows_it),
        cmocka_unit_test(destroying_stops_the_inflating),
        cmocka_unit_test(real_files_inflate_as_zlib_does_it),
    };
    return cmocka_run_group_tests_name("gzip", tests, setup, teardown);
}
