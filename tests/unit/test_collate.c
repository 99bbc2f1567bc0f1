/* Collation of samples whose shape varies: every value is where it should be, by each way, on the
 * host and through sim. */
#include "run_loader.h"

#include <math.h>

#define N    97
#define ROWS 9 /* bounds */
#define COLS 4

static uint64_t rows_of(uint64_t index)
{
    return index % (ROWS + 1);
}

static uint64_t cols_of(uint64_t index)
{
    return 1 + index / 3 % COLS;
}

static uint16_t value(uint64_t index, uint64_t r, uint64_t c)
{
    return (uint16_t)(1 + index * 64 + r * 8 + c);
}

static int vary_cols;

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    uint16_t *out = row[0];
    uint64_t rows = rows_of(index), cols = vary_cols ? cols_of(index) : COLS;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            *out++ = value(index, r, c);
    dim[0][0] = rows;
    dim[0][1] = cols;
    *(int32_t *)row[1] = (int32_t)index;
    return 0;
}

static struct mr_dataset *varying_set(void)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "varying";
    o.n = N;
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "x",
                                  .dtype = MR_U16,
                                  .rank = 2,
                                  .var_dims = vary_cols ? 3 : 1,
                                  .dim = {ROWS, COLS}};
    o.field[1] = (struct mr_spec){.name = "label", .dtype = MR_I32};
    o.get = get;
    struct mr_dataset *ds;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static void check_padded(const struct mr_batch *b, const uint16_t *x, bool fixed)
{
    uint64_t rows = fixed ? ROWS : 0, cols = fixed || !vary_cols ? COLS : 0;
    for (uint64_t i = 0; i < b->n; i++) {
        rows = MR_MAX(rows, rows_of(b->indices[i]));
        cols = vary_cols ? MR_MAX(cols, cols_of(b->indices[i])) : COLS;
    }
    const struct mr_spec *spec = &b->field[0].spec;
    assert_int_equal(spec->rank, 3);
    assert_int_equal(spec->dim[0], b->n);
    assert_int_equal(spec->dim[1], rows);
    assert_int_equal(spec->dim[2], cols);
    assert_int_equal(b->field[0].bytes, b->n * rows * cols * 2);
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t index = b->indices[i], have = vary_cols ? cols_of(index) : COLS;
        assert_int_equal(b->field[0].lengths[i], rows_of(index));
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < cols; c++)
                assert_int_equal(x[(i * rows + r) * cols + c],
                                 r < rows_of(index) && c < have ? value(index, r, c) : 7);
    }
}

static void check_ragged(const struct mr_batch *b, const uint16_t *x)
{
    const struct mr_batch_field *f = &b->field[0];
    uint64_t at = 0;
    for (uint64_t i = 0; i < b->n; i++) {
        assert_int_equal(f->offsets[i], at);
        for (uint64_t r = 0; r < rows_of(b->indices[i]); r++, at++)
            for (uint64_t c = 0; c < COLS; c++)
                assert_int_equal(x[at * COLS + c], value(b->indices[i], r, c));
    }
    assert_int_equal(f->offsets[b->n], at);
    assert_int_equal(f->spec.dim[0], at);
    assert_int_equal(f->bytes, at * COLS * 2);
}

static void run_collate(struct mr_dataset *ds, const char *device, enum mr_collate collate)
{
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.collate = collate;
    opts.pad_value = 7;
    opts.workers = 3;
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_loader *ld;
    must(mr_device_open(device, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    must(mr_loader_open(ds, NULL, NULL, dev, &opts, &ld));
    struct mr_batch b = {.size = sizeof b};
    uint64_t seen = 0;
    while (mr_loader_next(ld, stream, &b) > 0) {
        uint16_t *x = calloc(10 * ROWS * COLS, 2);
        int32_t labels[10];
        must(mr_copy_async(stream, x, MR_PAGEABLE, b.field[0].data, MR_DEVICE, b.field[0].bytes));
        must(mr_copy_async(stream, labels, MR_PAGEABLE, b.field[1].data, MR_DEVICE,
                           b.field[1].bytes));
        must(mr_stream_synchronize(stream));
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(labels[i], seen++);
        if (collate == MR_COLLATE_RAGGED)
            check_ragged(&b, x);
        else
            check_padded(&b, x, collate == MR_COLLATE_FIXED);
        free(x);
        must(mr_loader_release(ld, &b, stream));
    }
    assert_int_equal(seen, N);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

static void values_are_where_they_should_be(void **state)
{
    (void)state;
    for (vary_cols = 0; vary_cols < 2; vary_cols++) {
        struct mr_dataset *ds = varying_set();
        for (int collate = MR_COLLATE_PAD; collate <= MR_COLLATE_RAGGED - vary_cols; collate++) {
            run_collate(ds, "cpu", (enum mr_collate)collate);
            run_collate(ds, "sim:h2d=20,latency=1us", (enum mr_collate)collate);
        }
        mr_dataset_close(ds);
    }
    vary_cols = 0;
}

static void refused_at_open(void **state)
{
    (void)state;
    struct mr_dataset *ds = varying_set();
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    struct mr_loader *ld;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_ESHAPE);
    assert_non_null(strstr(mr_last_error(), "x u16[<=9,4]"));
    mr_dataset_close(ds);
    vary_cols = 1;
    ds = varying_set();
    opts.collate = MR_COLLATE_RAGGED;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_ESHAPE);
    assert_non_null(strstr(mr_last_error(), "first dimension alone"));
    mr_dataset_close(ds);
    vary_cols = 0;
}

/* The padding element in every dtype: to integers rounded and saturated. */
static void elements_of_every_dtype(void **state)
{
    (void)state;
    const struct {
        enum mr_dtype dtype;
        double value;
        uint64_t bits;
    } cases[] = {
        {MR_BOOL, 3, 1},
        {MR_U8, 300, 255},
        {MR_U8, -4, 0},
        {MR_I8, -200, 0x80},
        {MR_U16, 2.5, 2},
        {MR_I16, -1, 0xffff},
        {MR_I32, 1e20, 0x7fffffff},
        {MR_U64, 1e30, UINT64_MAX},
        {MR_I64, -1e30, 1ull << 63},
        {MR_F16, 1, 0x3c00},
        {MR_F16, 65519, 0x7bff},
        {MR_F16, 65520, 0x7c00},
        {MR_F16, 0x1p-24, 1},
        {MR_F16, 0x1p-25, 0},
        {MR_F16, -2, 0xc000},
        {MR_BF16, 1, 0x3f80},
        {MR_BF16, 1.00390625, 0x3f80},
        {MR_F32, 0.5, 0x3f000000},
        {MR_F64, 0.5, 0x3fe0000000000000ull},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bits = 0;
        mr_element_from_double(cases[i].dtype, cases[i].value, &bits);
        assert_int_equal(bits, cases[i].bits);
    }
}

static int get_zeros(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)index;
    memset(row[0], 0, *(const size_t *)user);
    dim[0][0] = 4;
    return 0;
}

/* At open: MR_EOPTION if a field of `dtype` cannot hold the value, unless it pads nothing. */
static int open_padded(enum mr_dtype dtype, double value, enum mr_collate collate, bool varies)
{
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_loader *ld = NULL;
    mr_callback_opts_init(&o);
    o.n = 1;
    o.n_fields = 1;
    o.field[0] =
        (struct mr_spec){.name = "ids", .dtype = dtype, .rank = 1, .var_dims = varies, .dim = {4}};
    size_t bytes = 4 * mr_dtype_size(dtype);
    o.get = get_zeros;
    o.user = &bytes;
    must(mr_dataset_open_callback(&o, &ds));
    mr_loader_opts_init(&opts);
    opts.collate = collate;
    opts.pad_value = value;
    opts.workers = 1;
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return rc;
}

/* What each dtype's own arithmetic says of a value, by its limits in C. */
static bool fits(enum mr_dtype dtype, double v)
{
    static const struct {
        double least, end;
    } range[MR_N_DTYPES] = {
        [MR_BOOL] = {0, 2},
        [MR_U8] = {0, 256},
        [MR_I8] = {-128, 128},
        [MR_U16] = {0, 65536},
        [MR_I16] = {-32768, 32768},
        [MR_U32] = {0, 4294967296.0},
        [MR_I32] = {-2147483648.0, 2147483648.0},
        [MR_U64] = {0, 18446744073709551616.0},
        [MR_I64] = {-9223372036854775808.0, 9223372036854775808.0},
    };
    double over = dtype == MR_F16                      ? 65520
                  : dtype == MR_BF16                   ? 0x1.ffp127
                  : dtype == MR_F32 || dtype == MR_C64 ? 0x1.ffffffp127
                                                       : HUGE_VAL,
           tiny = dtype == MR_F16                      ? 0x1p-25
                  : dtype == MR_BF16                   ? 0x1p-134
                  : dtype == MR_F32 || dtype == MR_C64 ? 0x1p-150
                                                       : 0;
    if (range[dtype].end > 0)
        return v >= range[dtype].least && v < range[dtype].end && v == trunc(v);
    return isnan(v) || isinf(v) || v == 0 || (fabs(v) < over && fabs(v) > tiny);
}

static void padding_that_a_field_cannot_hold(void **state)
{
    (void)state;
    static const double values[] = {
        0,
        -0.0,
        1,
        2,
        -1,
        0.5,
        -100,
        127,
        128,
        -128,
        -129,
        255,
        256,
        300,
        32767,
        32768,
        -32768,
        -32769,
        65519,
        65520,
        65535,
        65536,
        -65520,
        2147483647,
        0x1p31,
        -0x1p31,
        -0x1p31 - 1,
        0x1p32 - 1,
        0x1p32,
        0x1p63,
        -0x1p63,
        -0x1p64,
        0x1p64,
        1e30,
        0x1p-25,
        0x1p-24,
        0x1p-134,
        0x1p-133,
        0x1p-150,
        0x1p-149,
        0x1.feffp127,
        0x1.ffp127,
        0x1.fffffep127,
        0x1.ffffffp127,
        1e300,
        1e-300,
        HUGE_VAL,
        -HUGE_VAL,
        NAN,
    };
    for (int d = 0; d < MR_N_DTYPES; d++) {
        enum mr_dtype dtype = (enum mr_dtype)d;
        int refused = 0;
        for (size_t i = 0; i < MR_COUNT(values); i++) {
            char say[64];
            int rc = open_padded(dtype, values[i], MR_COLLATE_PAD, true);
            snprintf(say, sizeof say, "pad_value is %.17g", values[i]);
            if (rc != (fits(dtype, values[i]) ? 0 : MR_EOPTION))
                fail_msg("%s, %.17g: %d", mr_dtype_name(dtype), values[i], rc);
            if (rc == 0)
                continue;
            refused++;
            assert_non_null(strstr(mr_last_error(), "ids "));
            assert_non_null(strstr(mr_last_error(), mr_dtype_name(dtype)));
            assert_non_null(strstr(mr_last_error(), say));
            assert_int_equal(open_padded(dtype, values[i], MR_COLLATE_FIXED, true), rc);
            assert_int_equal(open_padded(dtype, values[i], MR_COLLATE_RAGGED, true), 0);
            assert_int_equal(open_padded(dtype, values[i], MR_COLLATE_PAD, false), 0);
        }
        assert_true(refused > 0 || dtype == MR_F64 || dtype == MR_C128);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_where_they_should_be),
        cmocka_unit_test(refused_at_open),
        cmocka_unit_test(elements_of_every_dtype),
        cmocka_unit_test(padding_that_a_field_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
