/* White-box: what the backend of NVIDIA GPUs decides without one: which convolutions are computed
 * how. */
#include "unit.h"

#include "nn/cuda/cuda.h"

static uint32_t shares(enum mr_dtype dtype, int tf32, struct mr_nn_conv c)
{
    struct mr_nn_backend *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->dtype = dtype;
    b->tf32 = tf32;
    c.out_h = (c.h + 2 * c.pad - c.k) / c.stride + 1;
    c.out_w = (c.w + 2 * c.pad - c.k) / c.stride + 1;
    uint32_t n = mr_nn_cuda_conv3_shares(b, &c);
    free(b);
    return n;
}

/* mnist-cnn's second one, but for what a row says; 0: as there. */
struct row {
    uint32_t n, in, out, h, w, k, stride, pad, shares;
};

static struct mr_nn_conv conv_of(const struct row *r)
{
    return (struct mr_nn_conv){.n = r->n ? r->n : 1024,
                               .in = r->in ? r->in : 32,
                               .h = r->h ? r->h : 26,
                               .w = r->w ? r->w : 26,
                               .out = r->out ? r->out : 64,
                               .k = r->k ? r->k : 3,
                               .stride = r->stride ? r->stride : 1,
                               .pad = r->pad};
}

static void test_conv3_shares(void **state)
{
    static const struct row rows[] = {
        {.shares = 264},
        {.n = 200, .shares = 200},
        {.n = 132, .shares = 132},
        {.n = 131},
        {.in = 64, .shares = 132},
        {.in = 64, .n = 66, .shares = 66},
        {.in = 64, .n = 65},
        {.in = 64, .out = 128, .shares = 66},
        {.in = 512, .out = 512, .shares = 2},
        {.in = 32 * 264, .shares = 1},
        {.in = 32 * 265},
        {.in = 1u << 20, .out = 1u << 27}, /* 2^36 tiles */
        {.in = 16},
        {.in = 48},
        {.out = 32},
        {.out = 96},
        {.k = 1},
        {.k = 5},
        {.stride = 2, .w = 52},
        {.pad = 1, .shares = 264},
        {.pad = 2, .shares = 264},
        {.pad = 3},
        {.h = 3, .shares = 264},
        {.w = 17},
        {.w = 18, .shares = 264}, /* lines of 16 */
        {.w = 48, .shares = 264}, /* and of 46 */
        {.w = 49},
    };
    (void)state;
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        struct mr_nn_conv c = conv_of(&rows[i]);
        assert_int_equal(shares(MR_F32, 0, c), rows[i].shares);
        assert_int_equal(shares(MR_F32, 1, c), 0);
        assert_int_equal(shares(MR_BF16, 0, c), 0);
        assert_int_equal(shares(MR_F16, 0, c), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv3_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
