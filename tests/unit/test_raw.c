/* Fixed records: any dtype, shape, start and spacing reads back; what does not divide is named. */
#include "samples.h"

#include <errno.h>

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const struct mr_spec *spec;
    uint8_t file[40000], *want = malloc(sizeof file);
    assert_non_null(want);
    for (uint32_t seed = 0; seed < 300; seed++) {
        uint64_t r = test_random(seed);
        struct mr_raw_opts opts;
        mr_raw_opts_init(&opts);
        opts.dtype = (int)(r % MR_N_DTYPES);
        opts.shape.rank = 1 + (int)((r >> 8) % 4);
        uint64_t bytes = mr_dtype_size((enum mr_dtype)opts.dtype), n = 1 + (r >> 16) % 5;
        for (int d = 0; d < opts.shape.rank; d++)
            bytes *= opts.shape.dim[d] = 1 + (r >> (24 + 4 * d)) % 3;
        opts.skip_bytes = (r >> 48) % 100;
        opts.record_bytes = r >> 63 ? bytes + (r >> 56) % 64 : 0;
        uint64_t stride = opts.record_bytes ? opts.record_bytes : bytes;
        test_random_bytes(seed << 12, file, opts.skip_bytes + n * stride);
        for (uint64_t i = 0; i < n; i++)
            memcpy(want + i * bytes, file + opts.skip_bytes + i * stride, bytes);
        opts.path = test_write("r.bin", file, opts.skip_bytes + n * stride);
        struct mr_dataset *ds;
        test_works(mr_dataset_open_raw(&opts, &ds));
        spec = mr_dataset_field(ds, 0);
        assert_int_equal(spec->rank, opts.shape.rank);
        assert_memory_equal(spec->dim, opts.shape.dim, (size_t)spec->rank * sizeof spec->dim[0]);
        test_content(ds, want, n * bytes);
        mr_dataset_close(ds);
    }
    free(want);
}

static int open_raw(const char *options)
{
    char uri[800];
    snprintf(uri, sizeof uri, "raw:%s%s", test_path("r.bin"), options);
    return test_open_fails(uri);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    static const uint8_t zeros[1037];
    const char *path = test_write("r.bin", zeros, sizeof zeros);
    test_fails(open_raw(",shape=10x10"), MR_ETRUNCATED, path,
               ": 10 records of 100 bytes and 37 bytes left over", "file has 1037 bytes");
    test_fails(open_raw(",shape=10x10,skip=36"), MR_ETRUNCATED,
               "10 records of 100 bytes and 1 bytes", "of which 36 are skipped");
    test_fails(open_raw(",shape=10x10,skip=1038"), MR_ETRUNCATED, path,
               "skip=1038 bytes, file has 1037");
    test_fails(open_raw(",shape=10x10,skip=1037"), MR_ETRUNCATED, path, "no records");
    test_fails(open_raw(",shape=10x10,record=99"), MR_EOPTION, path,
               "record=99: expected at least the 100 bytes");
    test_fails(open_raw(""), MR_EOPTION, path, "no shape");
    test_fails(open_raw(",shape=4294967296x4294967296x4294967296"), MR_ELIMIT, "2^62");
    test_fails(open_raw(",shape=3x0"), MR_EOPTION, path, "shape: dimension 1 is 0");
    test_fails(open_raw(",shape=3,dtype=f31"), MR_EOPTION, "f31");
    test_fails(open_raw(",shape=3,stride=4"), MR_EOPTION, "stride");
    test_write("r.bin", "", 0);
    test_fails(open_raw(",shape=3"), MR_ETRUNCATED, path,
               "no records: expected at least one of 3 bytes, file has 0");
    test_fails(test_open_fails("raw:/nowhere/x.bin,shape=3"), -ENOENT, "/nowhere/x.bin");
    char uri[700];
    snprintf(uri, sizeof uri, "raw:%s,shape=3", test_dir);
    test_fails(test_open_fails(uri), -EISDIR, test_dir);
}

static void structs_are_checked(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_raw_opts opts;
    mr_raw_opts_init(&opts);
    test_fails(mr_dataset_open_raw(&opts, &ds), MR_EOPTION, "no path");
    opts.path = test_write("r.bin", "abc", 3);
    opts.shape.rank = MR_MAX_RANK + 1;
    test_fails(mr_dataset_open_raw(&opts, &ds), MR_EOPTION, "shape of rank 9: expected 0..8");
    opts.shape.rank = 1;
    test_fails(mr_dataset_open_raw(&opts, &ds), MR_EOPTION, "dimension 0 is 0");
    opts.shape.dim[0] = 1;
    opts.dtype = 99;
    test_fails(mr_dataset_open_raw(&opts, &ds), MR_EOPTION, "dtype: 99");
    opts.dtype = MR_U8;
    opts.size = sizeof opts + 8;
    test_fails(mr_dataset_open_raw(&opts, &ds), MR_EMISUSE, "mr_raw_opts_init");
    opts.size = 0;
    test_fails(mr_dataset_open_raw(&opts, &ds), MR_EMISUSE, "mr_raw_opts_init");
    opts.size = offsetof(struct mr_raw_opts,
                         skip_bytes); /* an older struct: what it lacks takes the defaults */
    opts.skip_bytes = 77;
    test_works(mr_dataset_open_raw(&opts, &ds));
    assert_int_equal(mr_dataset_length(ds), 3);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(structs_are_checked),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
