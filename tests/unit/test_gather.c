/* White-box: rows that are made field by field are those that are made one by one (gather.h). */
#include "run_loader.h"

#include "base/base.h"
#include "loader/gather.h"
#include <stdlib.h>
#include <zlib.h>

#define N 103

static struct mr_dataset *open_arrays(void)
{
    static float x[N][19];
    static uint8_t z[N][6][5][3];
    static int64_t y[N];
    struct mr_dataset *ds;
    struct mr_array_opts o;
    mr_array_opts_init(&o);
    o.n = N;
    o.n_fields = 3;
    o.field[0] = (struct mr_spec){.name = "z", .dtype = MR_U8, .rank = 3, .dim = {6, 5, 3}};
    o.field[1] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {19}};
    o.field[2] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    for (uint64_t i = 0; i < N; i++) {
        uint64_t h = mr_mix64(i + 1);
        y[i] = (int64_t)(i % 10);
        for (int k = 0; k < 19; k++)
            x[i][k] = (float)(h % 1000) + (float)k;
        for (int k = 0; k < 90; k++)
            z[i][k / 15][k / 3 % 5][k % 3] = (uint8_t)(h >> k % 56);
    }
    o.data[0] = z;
    o.data[1] = x;
    o.data[2] = y;
    must(mr_dataset_open_array(&o, &ds));
    return ds;
}

/* Whether a loader makes its rows field by field. */
static bool gathers(struct mr_dataset *ds, const char *text)
{
    struct mr_sampler *sampler;
    struct mr_transform *chain;
    struct mr_device *dev;
    struct mr_loader *ld;
    must(mr_sampler_open("sequential", N, 0, &sampler));
    must(mr_transform_create(&chain));
    if (text)
        must(mr_transform_add(chain, text));
    must(mr_device_open("cpu", &dev));
    must(mr_loader_open(ds, sampler, text ? chain : NULL, dev, NULL, &ld));
    bool it_does = mr_gather_plan(ld);
    mr_loader_close(ld);
    mr_device_close(dev);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    return it_does;
}

/* While a trace runs, samples are made one by one. */
static struct run one_by_one(const struct run_config *c)
{
    must(mr_trace_start(64));
    struct run run = run_loader(c);
    must(mr_trace_stop(NULL, NULL));
    return run;
}

static void compare(const struct run_config *c)
{
    struct run together = run_loader(c), alone = one_by_one(c);
    assert_int_equal(together.rc, alone.rc);
    assert_string_equal(together.error, alone.error);
    assert_int_equal(together.stats.bad_samples, alone.stats.bad_samples);
    assert_same_rows(&together, &alone);
    run_free(&together);
    run_free(&alone);
}

/* Drawn numbers, several fields, fields left out and copied, samples that a chain refuses. */
static void rows_are_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool gathers;
    } chains[] = {{NULL, true},
                  {"cast(f32),scale(1/255)", true},
                  {"hflip,random_crop(4,4),cast(f16)", true},
                  {"x.normalize(2,3),label.one_hot(10)", true},
                  {"x.drop,copy(w),w.vflip", true},
                  {"label.one_hot(5)", true},
                  {"cast(f32),label.one_hot(10),mixup(0.4)", false}};
    static const enum mr_bad_policy policies[] = {MR_BAD_FAIL, MR_BAD_SKIP, MR_BAD_REPLACE};
    struct mr_dataset *ds = open_arrays();
    for (size_t k = 0; k < MR_COUNT(chains); k++) {
        assert_int_equal(gathers(ds, chains[k].text), chains[k].gathers);
        for (uint32_t workers = 1; workers <= 3; workers += 2)
            for (size_t p = 0; p < MR_COUNT(policies); p++)
                for (uint32_t batch = 4; batch <= 64; batch *= 16) {
                    struct run_config c = run_config(NULL);
                    c.ds = ds;
                    c.sampler = "random";
                    c.chain = chains[k].text;
                    c.opts.workers = workers;
                    c.opts.batch_size = batch;
                    c.opts.bad = policies[p];
                    c.opts.epochs = 2;
                    compare(&c);
                }
    }
    mr_dataset_close(ds);
}

/* Of a compressed file, whose records are in memory once it is unpacked. */
static void rows_of_a_compressed_file_are_the_same(void **state)
{
    (void)state;
    static unsigned char idx[16 + N * 20] = {0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, 4, 0, 0, 0, 5};
    char path[] = "/tmp/millrace-gather-XXXXXX.gz", dataset[64];
    struct mr_dataset *ds;
    for (size_t i = 16; i < sizeof idx; i++)
        idx[i] = (unsigned char)mr_mix64(i);
    int fd = mkstemps(path, 3);
    assert_true(fd >= 0);
    gzFile file = gzdopen(fd, "wb");
    assert_int_equal(gzwrite(file, idx, sizeof idx), sizeof idx);
    assert_int_equal(gzclose(file), Z_OK);
    snprintf(dataset, sizeof dataset, "idx:%s,labels=none", path);
    must(mr_dataset_open(dataset, &ds));
    assert_true(gathers(ds, "hflip,cast(f32)"));
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.sampler = "random";
    c.chain = "hflip,cast(f32)";
    c.opts.workers = 3;
    compare(&c);
    mr_dataset_close(ds);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_same),
        cmocka_unit_test(rows_of_a_compressed_file_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
