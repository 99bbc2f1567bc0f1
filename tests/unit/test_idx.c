/* MNIST's format: what is written is read back, whatever the type, rank and packing; what is wrong
 * is named. */
#include "samples.h"

#include <errno.h>
#include <pthread.h>

static const struct {
    uint8_t type;
    const char *dtype;
    size_t bytes;
} types[] = {{0x08, "u8", 1},  {0x09, "i8", 1},  {0x0B, "i16", 2},
             {0x0C, "i32", 4}, {0x0D, "f32", 4}, {0x0E, "f64", 8}};
#define N_TYPES (sizeof types / sizeof types[0])

static size_t put_head(uint8_t *out, uint8_t type, int rank, const uint32_t *dim)
{
    out[0] = out[1] = 0;
    out[2] = type;
    out[3] = (uint8_t)rank;
    for (int d = 0; d < rank; d++)
        for (int i = 0; i < 4; i++)
            out[4 + 4 * d + i] = (uint8_t)(dim[d] >> (24 - 8 * i));
    return 4 + 4 * (size_t)rank;
}

/* A file of zeros but for its header. extra: bytes more, or fewer, than the header promises. */
static const char *write_zeros(const char *name, uint8_t type, int rank, const uint32_t *dim,
                               long extra)
{
    static uint8_t file[1 << 16];
    memset(file, 0, sizeof file);
    size_t bytes = 1, head = put_head(file, type, rank, dim);
    for (int d = 0; d < rank; d++)
        bytes *= dim[d];
    return test_write(name, file, head + bytes + (size_t)extra);
}

static void expect_spec(const struct mr_dataset *ds, const char *dtype, int rank,
                        const uint32_t *dim)
{
    char want[256];
    int at = snprintf(want, sizeof want, "%s %s", rank == 1 ? "value" : "image", dtype);
    for (int d = 1; d < rank; d++)
        at += snprintf(want + at, sizeof want - (size_t)at, "%s%u%s", d == 1 ? "[" : ",", dim[d],
                       d == rank - 1 ? "]" : "");
    test_field_is(ds, 0, want);
}

static void round_trip(uint32_t seed)
{
    uint8_t file[36 + 8 * 6561];
    uint32_t dim[8];
    size_t type = seed % N_TYPES, elements = 1;
    int rank = 1 + (int)(seed / N_TYPES % 8);
    for (int d = 0; d < rank; d++) {
        dim[d] = 1 + (uint32_t)(test_random(seed * 16 + (uint32_t)d) % 3);
        elements *= dim[d];
    }
    size_t head = put_head(file, types[type].type, rank, dim), bytes = elements * types[type].bytes;
    test_random_bytes(seed << 12, file + head, bytes);
    const char *plain = test_write("plain", file, head + bytes),
               *gz = test_write_gz("packed", file, head + bytes);
    char uri[700];
    snprintf(uri, sizeof uri, "idx:%s", plain);
    struct mr_dataset *a = test_open(uri);
    snprintf(uri, sizeof uri, "idx:%s", gz);
    struct mr_dataset *b = test_open(uri);
    expect_spec(a, types[type].dtype, rank, dim);
    test_reverse(file + head, bytes, types[type].bytes);
    test_content(a, file + head, bytes);
    test_content(b, file + head, bytes);
    assert_int_equal(mr_dataset_fingerprint(a), mr_dataset_fingerprint(b));
    mr_dataset_close(a);
    mr_dataset_close(b);
}

static void types_and_ranks_round_trip(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 3 * N_TYPES * 8; seed++)
        round_trip(seed);
}

static int open_file(const char *path)
{
    char uri[700];
    snprintf(uri, sizeof uri, "idx:%s", path);
    return test_open_fails(uri);
}

static void sizes_are_exact(void **state)
{
    (void)state;
    const uint32_t dim[] = {10, 28, 28};
    test_fails(open_file(write_zeros("short", 8, 3, dim, -1)), MR_ETRUNCATED, test_path("short"),
               ": truncated: header promises 7856 bytes, file has 7855");
    test_fails(open_file(write_zeros("long", 8, 3, dim, 1)), MR_EFORMAT, test_path("long"),
               ": oversized: header promises 7856 bytes, file has 7857");
    test_fails(open_file(test_write("empty", "", 0)), MR_ETRUNCATED, "empty: truncated",
               "file has 0");
    test_fails(open_file(test_write("tiny", "\0\0\x08\x03\0\0", 6)), MR_ETRUNCATED,
               "a header of rank 3 has 16 bytes", "file has 6");
}

static void headers_are_checked(void **state)
{
    (void)state;
    const uint32_t zero[] = {0, 28, 28}, flat[] = {1, 0, 28}, negative[] = {1, 0xffffffffu, 28};
    uint32_t huge[8] = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
    uint8_t head[36];
    test_fails(open_file(write_zeros("h", 8, 3, zero, 0)), MR_EFORMAT,
               "/h: dimension 0 is 0: expected 1..");
    test_fails(open_file(write_zeros("h", 8, 3, flat, 0)), MR_EFORMAT,
               "/h: dimension 1 is 0: expected 1..");
    test_fails(open_file(test_write("h", head, put_head(head, 8, 3, negative))), MR_EFORMAT,
               "dimension 1 is -1");
    test_fails(open_file(test_write("h", head, put_head(head, 8, 4, huge))), MR_EFORMAT,
               "/h: the header's dimensions overflow");
    test_fails(open_file(test_write("h", "\0\0\x0a\x01\0\0\0\1a", 9)), MR_EFORMAT,
               "not an IDX file", "found 00 00 0a 01");
    test_fails(open_file(test_write("h", "PK\3\4....", 8)), MR_EFORMAT, "not an IDX file",
               "found 50 4b 03 04");
    test_fails(open_file(test_write("h", "\0\0\x08\0....", 8)), MR_EFORMAT,
               "rank 0: expected 1..8");
    test_fails(open_file(test_write("h", "\0\0\x08\x09....", 8)), MR_EFORMAT,
               "rank 9: expected 1..8");
    test_fails(open_file(test_path("missing")), -ENOENT, test_path("missing"), "No such file");
}

static void gzip_is_checked(void **state)
{
    (void)state;
    const uint32_t dim[] = {10, 28, 28}, bomb[] = {0x7fffffff, 28, 28};
    uint8_t file[8000] = {0};
    put_head(file, 8, 3, dim);
    test_random_bytes(1, file + 16, 7840);
    test_fails(open_file(test_write_gz("g", file, 7855)), MR_ETRUNCATED,
               "/g: ", "promises 7856 bytes", "7855");
    test_fails(open_file(test_write_gz("g", file, 7857)), MR_EFORMAT,
               "/g: ", "promises 7856 bytes");
    put_head(file, 8, 3, bomb);
    test_fails(open_file(test_write_gz("g", file, 7856)), MR_EFORMAT, "/g: ", "at most");
    struct stat st;
    test_write_gz("g", file, 7856);
    assert_int_equal(stat(test_path("g"), &st), 0);
    assert_int_equal(truncate(test_path("g"), st.st_size / 2), 0);
    put_head(file, 8, 3, dim);
    test_write_gz("g", file, 7856);
    assert_int_equal(truncate(test_path("g"), 4000), 0);
    test_fails(open_file(test_path("g")), MR_ETRUNCATED, "/g: ");
}

static void write_pair(const char *images, const char *labels, uint32_t n_images, uint32_t n_labels)
{
    const uint32_t i[] = {n_images, 2, 2}, l[] = {n_labels};
    write_zeros(images, 8, 3, i, 0);
    write_zeros(labels, 8, 1, l, 0);
}

static void labels_are_found_and_checked(void **state)
{
    (void)state;
    char uri[2000];
    write_pair("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5, 5);
    struct mr_dataset *ds = test_open(test_path("train-images-idx3-ubyte"));
    test_field_is(ds, 0, "image u8[2,2]");
    test_field_is(ds, 1, "label u8");
    assert_string_equal(mr_dataset_text(ds),
                        "idx: train-images-idx3-ubyte + train-labels-idx1-ubyte");
    mr_dataset_close(ds);

    snprintf(uri, sizeof uri, "%s,labels=none", test_path("train-images-idx3-ubyte"));
    ds = test_open(uri);
    assert_int_equal(mr_dataset_fields(ds), 1);
    mr_dataset_close(ds);

    write_pair("train-images-idx3-ubyte", "other", 5, 4);
    snprintf(uri, sizeof uri, "idx:%s,labels=%s", test_path("train-images-idx3-ubyte"),
             test_path("other"));
    test_fails(test_open_fails(uri), MR_EFORMAT, test_path("train-images-idx3-ubyte"),
               " has 5 images", test_path("other"), " has 4 labels");
    snprintf(uri, sizeof uri, "idx:%s,labels=%s", test_path("other"),
             test_path("train-images-idx3-ubyte"));
    test_fails(test_open_fails(uri), MR_EFORMAT, test_path("train-images-idx3-ubyte"),
               "labels of rank 3: expected rank 1");
    snprintf(uri, sizeof uri, "idx:%s,labels=%s", test_path("other"), test_path("nowhere"));
    test_fails(test_open_fails(uri), -ENOENT, test_path("nowhere"));
}

static void folders_are_searched(void **state)
{
    (void)state;
    char uri[700];
    test_dir_clear();
    test_fails(open_file(test_dir), -ENOENT, test_dir,
               "looked for train-images-idx3-ubyte, train-images-idx3-ubyte.gz, ",
               "train-images.idx3-ubyte, train-images.idx3-ubyte.gz");
    write_pair("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte", 3, 3);
    snprintf(uri, sizeof uri, "%s,split=test", test_dir);
    struct mr_dataset *ds = test_open(uri);
    assert_int_equal(mr_dataset_length(ds), 3);
    assert_string_equal(mr_dataset_text(ds),
                        "idx: t10k-images.idx3-ubyte + t10k-labels.idx1-ubyte (test)");
    mr_dataset_close(ds);
    test_fails(open_file(test_dir), -ENOENT, "no images", "train-images-idx3-ubyte");
    assert_int_equal(unlink(test_path("t10k-labels.idx1-ubyte")), 0);
    test_fails(test_open_fails(uri), -ENOENT, "no labels",
               "t10k-labels-idx1-ubyte, t10k-labels-idx1-ubyte.gz");
    snprintf(uri, sizeof uri, "%s,split=valid", test_dir);
    test_fails(test_open_fails(uri), MR_EOPTION, "split", "valid");
    struct mr_idx_opts opts;
    mr_idx_opts_init(&opts);
    opts.path = test_dir;
    opts.split = 2;
    test_fails(mr_dataset_open_idx(&opts, &ds), MR_EOPTION, "split=2");
}

static void a_file_that_shrinks_is_told(void **state)
{
    (void)state;
    const uint32_t n = 3 << 20;
    uint8_t *file = calloc(1, 8 + n), byte;
    assert_non_null(file);
    size_t head = put_head(file, 8, 1, &n);
    test_write("shrinks", file, head + n);
    free(file);
    char uri[700];
    snprintf(uri, sizeof uri, "idx:%s", test_path("shrinks"));
    struct mr_dataset *ds = test_open(uri);
    assert_int_equal(truncate(test_path("shrinks"), 1 << 20), 0);
    test_works(mr_dataset_read(ds, 5, (void *[]){&byte}, NULL));
    test_fails(mr_dataset_read(ds, n - 1, (void *[]){&byte}, NULL), MR_ETRUNCATED,
               test_path("shrinks"), "1048576");
    mr_dataset_close(ds);
}

#define N_RACERS 4
#define RACE_N   (20u << 10)

struct racer {
    pthread_t thread;
    const struct mr_dataset *ds;
    const uint8_t *want;
    uint32_t id, wrong;
};

/* Half of them from the end, which is not there yet. */
static void *race(void *arg)
{
    struct racer *r = arg;
    uint8_t row[256];
    for (uint32_t k = r->id / 2; k < RACE_N; k += N_RACERS / 2) {
        uint32_t i = r->id % 2 ? k : RACE_N - 1 - k;
        r->wrong += mr_dataset_read(r->ds, i, (void *[]){row}, NULL) < 0 ||
                    memcmp(row, r->want + 256 * i, 256) != 0;
    }
    return NULL;
}

static void threads_read_while_gzip_is_inflated(void **state)
{
    (void)state;
    const uint32_t dim[] = {RACE_N, 16, 16};
    uint8_t *file = malloc(16 + 256 * RACE_N);
    struct racer racer[N_RACERS];
    assert_non_null(file);
    put_head(file, 8, 3, dim);
    for (uint32_t i = 0; i < 256 * RACE_N; i++)
        file[16 + i] = (uint8_t)(i * i >> 9);
    char uri[700];
    snprintf(uri, sizeof uri, "idx:%s", test_write_gz("race", file, 16 + 256 * RACE_N));
    struct mr_dataset *ds = test_open(uri);
    for (uint32_t t = 0; t < N_RACERS; t++) {
        racer[t] = (struct racer){.ds = ds, .want = file + 16, .id = t};
        assert_int_equal(pthread_create(&racer[t].thread, NULL, race, &racer[t]), 0);
    }
    for (uint32_t t = 0; t < N_RACERS; t++) {
        assert_int_equal(pthread_join(racer[t].thread, NULL), 0);
        assert_int_equal(racer[t].wrong, 0);
    }
    mr_dataset_close(ds);
    ds = test_open(uri); /* and closing while it is still at it */
    mr_dataset_close(ds);
    free(file);
}

/* Facts about MNIST: sizes, the first labels, the sum of the training set's pixels (their published
 * mean, 0.1307). */
static void mnist_is_read(void **state)
{
    (void)state;
    static const uint8_t first[] = {5, 0, 4, 1, 9, 2, 1, 3, 1, 4};
    uint8_t sample[785];
    uint64_t sum = 0;
    const char *dir = test_data("mnist");
    if (!dir)
        skip();
    struct mr_dataset *ds = test_open(dir);
    assert_int_equal(mr_dataset_length(ds), 60000);
    test_field_is(ds, 0, "image u8[28,28]");
    test_field_is(ds, 1, "label u8");
    assert_string_equal(mr_dataset_text(ds),
                        "idx: train-images-idx3-ubyte.gz + train-labels-idx1-ubyte.gz (train)");
    for (uint64_t i = 0; i < 60000; i++) {
        test_works(mr_dataset_read(ds, i, (void *[]){sample, sample + 784}, NULL));
        for (int p = 0; p < 784; p++)
            sum += sample[p];
        assert_true(sample[784] < 10);
        if (i < sizeof first)
            assert_int_equal(sample[784], first[i]);
    }
    assert_int_equal(sum, 1567298545);
    test_fails(mr_dataset_read(ds, 60000, (void *[]){sample, sample + 784}, NULL), MR_EMISUSE,
               "60000", "0..59999");
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_ranks_round_trip),
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(gzip_is_checked),
        cmocka_unit_test(labels_are_found_and_checked),
        cmocka_unit_test(folders_are_searched),
        cmocka_unit_test(a_file_that_shrinks_is_told),
        cmocka_unit_test(threads_read_while_gzip_is_inflated),
        cmocka_unit_test(mnist_is_read),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
