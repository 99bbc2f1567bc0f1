/* Element types and specs. */
#include "unit.h"

#include <millrace/tensor.h>

static void names_round_trip(void **state)
{
    (void)state;
    for (int d = 0; d < MR_N_DTYPES; d++) {
        enum mr_dtype got = MR_N_DTYPES;
        assert_int_equal(mr_dtype_parse(mr_dtype_name((enum mr_dtype)d), &got), 0);
        assert_int_equal(got, d);
        assert_true(mr_dtype_size((enum mr_dtype)d) > 0);
    }
    enum mr_dtype got = MR_U8;
    assert_int_equal(mr_dtype_parse("float32", &got), 0);
    assert_int_equal(got, MR_F32);
    assert_int_equal(mr_dtype_parse("f33", &got), MR_EOPTION);
    assert_int_equal(mr_dtype_parse("", &got), MR_EOPTION);
    assert_int_equal(got, MR_F32);
    assert_int_equal(mr_dtype_size((enum mr_dtype)99), 0);
    assert_string_equal(mr_dtype_name((enum mr_dtype) - 1), "?");
}

static void bytes_are_the_product(void **state)
{
    (void)state;
    uint64_t bytes = 1;
    struct mr_spec spec = {.name = "image", .dtype = MR_F32, .rank = 3, .dim = {3, 224, 224}};
    assert_int_equal(mr_spec_bytes(&spec, &bytes), 0);
    assert_int_equal(bytes, 3 * 224 * 224 * 4);
    spec.rank = 0;
    assert_int_equal(mr_spec_bytes(&spec, &bytes), 0);
    assert_int_equal(bytes, 4);
    spec = (struct mr_spec){.dtype = MR_U8, .rank = 2, .dim = {1ull << 31, 1ull << 31}};
    assert_int_equal(mr_spec_bytes(&spec, &bytes), 0);
    assert_true(bytes == 1ull << 62);
    spec.dim[1]++;
    assert_int_equal(mr_spec_bytes(&spec, &bytes), MR_ELIMIT);
    spec = (struct mr_spec){.dtype = MR_F64, .rank = 4, .dim = {1ull << 40, 1ull << 40, 0, 1}};
    assert_int_equal(mr_spec_bytes(&spec, &bytes),
                     MR_ELIMIT); /* the order of dimensions does not hide an overflow */
    assert_true(bytes == 1ull << 62);
}

static void formats(void **state)
{
    (void)state;
    char text[64];
    struct mr_spec spec = {.name = "image", .dtype = MR_U8, .rank = 2, .dim = {28, 28}};
    assert_string_equal(mr_spec_format(&spec, text, sizeof text), "image u8[28,28]");
    spec.var_dims = 2;
    assert_string_equal(mr_spec_format(&spec, text, sizeof text), "image u8[28,<=28]");
    assert_string_equal(mr_spec_format(&spec, text, 8), "image u");
    spec = (struct mr_spec){.dtype = MR_I64};
    assert_string_equal(mr_spec_format(&spec, text, sizeof text), "i64");
    /* the longest there can be fits */
    spec = (struct mr_spec){.dtype = MR_C128, .rank = MR_MAX_RANK, .var_dims = 255};
    memset(spec.name, 'n', sizeof spec.name - 1);
    for (int d = 0; d < MR_MAX_RANK; d++)
        spec.dim[d] = UINT64_MAX;
    char longest[512];
    assert_true(strlen(mr_spec_format(&spec, longest, sizeof longest)) > 8 * 22);
    assert_string_equal(strrchr(longest, ','), ",<=18446744073709551615]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_round_trip),
        cmocka_unit_test(bytes_are_the_product),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
