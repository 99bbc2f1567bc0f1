/* White-box. Synthetic samples: the same bytes for the same (seed, index), distributed as they
 * should be, in time and in bounds. */
#include "base/base.h"
#include "samples.h"

#include <math.h>
#include <time.h>

static char uri[256];
#define open_f(...) (snprintf(uri, sizeof uri, __VA_ARGS__), test_open(uri))

static void defaults_are_documented_ones(void **state)
{
    (void)state;
    struct mr_dataset *ds = test_open("synthetic:");
    assert_int_equal(mr_dataset_length(ds), 1000000);
    test_field_is(ds, 0, "x f32[1024]");
    assert_string_equal(mr_dataset_text(ds), "synthetic: 1000000 samples of x f32[1024]");
    mr_dataset_close(ds);
}

/* Whatever the size, dtype and seed: read twice, or from a second data set, or as the front of a
 * longer sample. */
static void samples_depend_on_seed_and_index_alone(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < 15 * 40; t++) {
        const char *dtype = mr_dtype_name((enum mr_dtype)(t % MR_N_DTYPES));
        uint64_t r = test_random(t), index = r >> 2, shape = 1 + r % 300,
                 seed = test_random(t + 10000);
        struct mr_dataset *a =
            open_f("synthetic:n=4611686018427387904,shape=%llu,dtype=%s,seed=%llu",
                   (unsigned long long)shape, dtype, (unsigned long long)seed);
        struct mr_dataset *b =
            open_f("synthetic:n=4611686018427387904,shape=%llu,dtype=%s,seed=%llu",
                   (unsigned long long)shape + 100, dtype, (unsigned long long)seed);
        uint8_t *first = test_read(a, index), *again = test_read(a, index),
                *longer = test_read(b, index);
        assert_memory_equal(first, again, test_field_bytes(a, 0));
        assert_memory_equal(first, longer, test_field_bytes(a, 0));
        free(again);
        again = test_read(a, (index + 1) % (1ull << 62));
        assert_true(test_field_bytes(a, 0) < 16 ||
                    memcmp(first, again, test_field_bytes(a, 0)) != 0);
        free(first);
        free(again);
        free(longer);
        mr_dataset_close(a);
        mr_dataset_close(b);
    }
}

/* u32 samples are the stream itself: groups of 16 blocks, first the first outputs of all, then the
 * second, ... Their key and the counter's upper half are drawn from (seed, index). */
static void words_are_philox(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct mr_dataset *ds = test_open("synthetic:n=10,shape=1000,dtype=u32,seed=5");
    uint32_t words[N], d[4];
    test_works(mr_dataset_read(ds, 3, (void *[]){words}, NULL));
    mr_draw4(5, MR_DRAW_VALUES, 3, 0, 0, d);
    for (uint32_t w = 0; w < N; w++) {
        const uint32_t counter[4] = {w / 64 * 16 + w % 16, 0, d[2], d[3]};
        uint32_t out[4];
        mr_philox(counter, d, out);
        assert_int_equal(words[w], out[w % 64 / 16]);
    }
    mr_dataset_close(ds);
}

static void uniform_floats_fill_the_interval(void **state)
{
    (void)state;
    enum { N = 200, SHAPE = 1000 };
    static const char *const types[] = {"f32", "f64"};
    for (int t = 0; t < 2; t++) {
        struct mr_dataset *ds = open_f("synthetic:n=%d,shape=%d,dtype=%s", N, SHAPE, types[t]);
        uint32_t bin[64] = {0};
        for (uint64_t i = 0; i < N; i++) {
            uint8_t *sample = test_read(ds, i);
            for (size_t k = 0; k < SHAPE; k++) {
                double x = t ? ((double *)sample)[k] : ((float *)sample)[k];
                assert_true(x >= 0 && x < 1);
                bin[(int)(x * 64)]++;
            }
            free(sample);
        }
        double chi = 0, want = (double)N * SHAPE / 64;
        for (int b = 0; b < 64; b++)
            chi += (bin[b] - want) * (bin[b] - want) / want;
        assert_true(
            chi <
            120); /* 63 degrees of freedom: above this once in 10^5 seeds; the seed is fixed */
        mr_dataset_close(ds);
    }
}

static double f16_value(uint16_t h)
{
    int e = h >> 10 & 31;
    double m = h & 1023, x = e ? ldexp(1 + m / 1024, e - 15) : ldexp(m, -24);
    return h >> 15 ? -x : x;
}

static double bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static double value_at(const uint8_t *sample, const char *dtype, size_t k)
{
    if (strcmp(dtype, "f16") == 0)
        return f16_value(((const uint16_t *)sample)[k]);
    if (strcmp(dtype, "bf16") == 0)
        return bf16_value(((const uint16_t *)sample)[k]);
    return strcmp(dtype, "f32") == 0 ? ((const float *)sample)[k] : ((const double *)sample)[k];
}

/* Moments and the distribution function at many points against erfc(), with bounds for 10^6 draws
 * (5 deviations). */
static void normal_floats_are_normal(void **state)
{
    (void)state;
    enum { N = 1000, SHAPE = 1000, POINTS = 33 };
    static const char *const types[] = {"f16", "bf16", "f32", "f64"};
    for (int t = 0; t < 4; t++) {
        struct mr_dataset *ds =
            open_f("synthetic:n=%d,shape=%d,dtype=%s,values=normal", N, SHAPE, types[t]);
        uint64_t below[POINTS] = {0};
        double sum = 0, squares = 0,
               slack = t < 2 ? 4e-3 : 0; /* rounding moves narrow types across the points */
        for (uint64_t i = 0; i < N; i++) {
            uint8_t *sample = test_read(ds, i);
            for (size_t k = 0; k < SHAPE; k++) {
                double x = value_at(sample, types[t], k);
                sum += x;
                squares += x * x;
                for (int p = 0; p < POINTS; p++)
                    below[p] += x < (p - 16) * 0.25 + 0.0078125;
            }
            free(sample);
        }
        assert_true(fabs(sum / 1e6) < 5e-3);
        assert_true(fabs(squares / 1e6 - 1) < 1e-2);
        for (int p = 0; p < POINTS; p++) {
            double want = 0.5 * erfc(-((p - 16) * 0.25 + 0.0078125) / sqrt(2));
            assert_true(fabs((double)below[p] / 1e6 - want) <
                        5 * sqrt(want * (1 - want) / 1e6) + 1e-6 + slack);
        }
        mr_dataset_close(ds);
    }
}

static void narrow_floats_stay_below_one(void **state)
{
    (void)state;
    static const char *const types[] = {"f16", "bf16"};
    for (int t = 0; t < 2; t++) {
        struct mr_dataset *ds = open_f("synthetic:n=1,shape=100000,dtype=%s", types[t]);
        uint8_t *sample = test_read(ds, 0);
        double most = 0, sum = 0;
        for (size_t k = 0; k < 100000; k++) {
            double x = value_at(sample, types[t], k);
            most = x > most ? x : most;
            sum += x;
            assert_true(x >= 0 && x < 1);
        }
        assert_true(most > 0.99);
        assert_true(fabs(sum / 1e5 - 0.5) < 0.01);
        free(sample);
        mr_dataset_close(ds);
    }
}

/* Every byte value comes, as often as the others; bools are 0 or 1. */
static void integers_use_their_whole_range(void **state)
{
    (void)state;
    struct mr_dataset *ds = test_open("synthetic:n=1,shape=256000,dtype=i8");
    uint32_t count[256] = {0};
    uint8_t *sample = test_read(ds, 0);
    for (size_t k = 0; k < 256000; k++)
        count[sample[k]]++;
    double chi = 0;
    for (int b = 0; b < 256; b++)
        chi += (count[b] - 1000.0) * (count[b] - 1000.0) / 1000;
    assert_true(chi < 360); /* 255 degrees of freedom: above this once in 10^5 */
    free(sample);
    mr_dataset_close(ds);
    ds = test_open("synthetic:n=1,shape=100000,dtype=bool");
    sample = test_read(ds, 0);
    uint32_t ones = 0;
    for (size_t k = 0; k < 100000; k++) {
        assert_true(sample[k] <= 1);
        ones += sample[k];
    }
    assert_in_range(ones, 49000, 51000);
    free(sample);
    mr_dataset_close(ds);
}

static void index_and_zero_values(void **state)
{
    (void)state;
    const uint64_t index = 0x123456789abcull;
    struct mr_dataset *ds = test_open("synthetic:n=1e15,shape=3,dtype=i64,values=index");
    int64_t wide[3];
    test_works(mr_dataset_read(ds, index, (void *[]){wide}, NULL));
    for (int i = 0; i < 3; i++)
        assert_int_equal(wide[i], index);
    mr_dataset_close(ds);
    ds = test_open("synthetic:n=1e15,shape=3,dtype=u16,values=index");
    uint16_t narrow[3];
    test_works(mr_dataset_read(ds, index, (void *[]){narrow}, NULL));
    assert_int_equal(narrow[2], 0x9abc);
    mr_dataset_close(ds);
    ds = test_open("synthetic:n=100000,shape=1,dtype=f16,values=index");
    for (uint64_t i = 0; i < 65520;
         i += 7) { /* what rounds to nearest even below infinity: within half a step */
        uint16_t h;
        test_works(mr_dataset_read(ds, i, (void *[]){&h}, NULL));
        double step = i < 2048 ? 1 : ldexp(1, (int)log2((double)i) - 10);
        assert_true(fabs(f16_value(h) - (double)i) <= step / 2);
        assert_true(i > 2048 || f16_value(h) == (double)i);
    }
    mr_dataset_close(ds);
    ds = test_open("synthetic:n=9,shape=3,dtype=c128,values=zero");
    uint8_t *sample = test_read(ds, 8), zeros[48] = {0};
    assert_memory_equal(sample, zeros, 48);
    free(sample);
    mr_dataset_close(ds);
}

static void labels_cover_the_classes(void **state)
{
    (void)state;
    struct mr_dataset *ds = test_open("synthetic:n=100000,shape=1,classes=10,values=zero");
    uint32_t count[10] = {0};
    test_field_is(ds, 1, "label i64");
    for (uint64_t i = 0; i < 100000; i++) {
        float x;
        int64_t label;
        test_works(mr_dataset_read(ds, i, (void *[]){&x, &label}, NULL));
        assert_true(label >= 0 && label < 10);
        count[label]++;
    }
    for (int c = 0; c < 10; c++)
        assert_in_range(count[c], 9500, 10500);
    mr_dataset_close(ds);
}

static void lengths_vary_within_bounds(void **state)
{
    (void)state;
    struct mr_dataset *ds = test_open("synthetic:n=5000,shape=12x3,min_length=5,dtype=u8");
    uint32_t count[13] = {0};
    test_field_is(ds, 0, "image u8[<=12,3]");
    for (uint64_t i = 0; i < 5000; i++) {
        uint8_t row[36 + 1];
        uint64_t dim[1][MR_MAX_RANK];
        memset(row, 0xA5, sizeof row);
        test_works(mr_dataset_read(ds, i, (void *[]){row}, dim));
        assert_in_range(dim[0][0], 5, 12);
        assert_int_equal(dim[0][1], 3);
        assert_int_equal(row[36], 0xA5);
        count[dim[0][0]]++;
    }
    for (int l = 5; l <= 12; l++)
        assert_in_range(count[l], 500, 750);
    mr_dataset_close(ds);
}

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Lower bounds only: a busy machine makes neither shorter. */
static void work_burns_and_delay_waits(void **state)
{
    (void)state;
    uint8_t *sample, *other;
    struct mr_dataset *work = test_open("synthetic:n=10,shape=4,work=2ms"),
                      *plain = test_open("synthetic:n=10,shape=4");
    uint64_t begin = thread_ns();
    sample = test_read(work, 1);
    assert_true(thread_ns() - begin >= 2000000);
    other = test_read(plain, 1);
    assert_memory_equal(sample, other, 16);
    free(sample);
    struct mr_dataset *delay = test_open("synthetic:n=10,shape=4,delay=30ms");
    uint64_t cpu = thread_ns();
    begin = mr_time_ns();
    sample = test_read(delay, 1);
    assert_true(mr_time_ns() - begin >= 30000000);
    assert_true(thread_ns() - cpu < 30000000);
    assert_memory_equal(sample, other, 16);
    assert_int_equal(mr_dataset_fingerprint(delay), mr_dataset_fingerprint(plain));
    free(sample);
    free(other);
    mr_dataset_close(work);
    mr_dataset_close(plain);
    mr_dataset_close(delay);
}

static void options_are_checked(void **state)
{
    (void)state;
    test_fails(test_open_fails("synthetic:n=0"), MR_EOPTION, "n=0");
    test_fails(test_open_fails("synthetic:dtype=u8,values=normal"), MR_EOPTION,
               "expected a float dtype, found u8");
    test_fails(test_open_fails("synthetic:shape=3,min_length=4"), MR_EOPTION,
               "min_length=4: expected at most", "(3)");
    test_fails(test_open_fails("synthetic:values=gauss"), MR_EOPTION, "values", "gauss", "normal");
    test_fails(test_open_fails("synthetic:delya=2ms"), MR_EOPTION, "delya", "delay");
    test_fails(test_open_fails("synthetic:shape=4294967296x4294967296"), MR_ELIMIT, "2^62");
    test_fails(test_open_fails("synthetic:classes=9223372036854775808"), MR_EOPTION,
               "classes=9223372036854775808");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_documented_ones),
        cmocka_unit_test(samples_depend_on_seed_and_index_alone),
        cmocka_unit_test(words_are_philox),
        cmocka_unit_test(uniform_floats_fill_the_interval),
        cmocka_unit_test(normal_floats_are_normal),
        cmocka_unit_test(narrow_floats_stay_below_one),
        cmocka_unit_test(integers_use_their_whole_range),
        cmocka_unit_test(index_and_zero_values),
        cmocka_unit_test(labels_cover_the_classes),
        cmocka_unit_test(lengths_vary_within_bounds),
        cmocka_unit_test(work_burns_and_delay_waits),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
