/* White-box. Sequence ops against plain loops, fused and op by op: any dtype, rank and length. */
#include "transform/transform.h"
#include "unit.h"

#define BOUND     23
#define MAX_BYTES 8192

struct given {
    struct mr_spec spec;
    uint64_t dim[MR_MAX_RANK]; /* of the sample */
    unsigned char bytes[MAX_BYTES];
    uint64_t element; /* bytes of one element of the sequence */
};

struct made {
    int rc;
    struct mr_spec spec;
    uint64_t dim[MR_MAX_RANK];
    unsigned char bytes[MAX_BYTES];
};

/* A sequence of n <= BOUND elements, of varying length or not. */
static struct given given_of(enum mr_dtype dtype, int rank, uint64_t n, bool varies)
{
    struct given g = {.spec = {.name = "ids", .dtype = dtype, .rank = rank}};
    uint64_t shape[MR_MAX_RANK] = {n, 3, 2};
    memcpy(g.dim, shape, sizeof shape);
    memcpy(g.spec.dim, shape, sizeof shape);
    g.spec.dim[0] = varies ? BOUND : n;
    g.spec.var_dims = varies;
    g.element = mr_dims_after(g.dim, rank, 0) * mr_dtype_size(dtype);
    for (uint64_t i = 0; i < n * g.element; i++)
        g.bytes[i] = (unsigned char)test_u64((uint32_t)i);
    return g;
}

static struct mr_transform *make(const char *text)
{
    struct mr_transform *chain = NULL;
    assert_int_equal(mr_transform_create(&chain), 0);
    if (mr_transform_add(chain, text) < 0)
        fail_msg("%s: %s", text, mr_last_error());
    return chain;
}

static void apply(const char *text, const struct given *g, bool plain, uint64_t index,
                  struct made *out)
{
    struct mr_transform *chain = make(text);
    memset(out, 0xee, sizeof *out);
    out->rc = mr_transform_bind_as(chain, &g->spec, 1, plain);
    if (out->rc == 0) {
        /* buffers of exact size: AddressSanitizer sees a byte too many */
        uint64_t in_bytes = g->dim[0] * g->element, out_bytes, scratch_bytes;
        out->spec = mr_transform_specs(chain)[0];
        assert_int_equal(mr_spec_bytes(&out->spec, &out_bytes), 0);
        scratch_bytes = mr_transform_scratch_bytes(chain);
        char *in = malloc(in_bytes + 1), *to = malloc(out_bytes + 1);
        void *scratch = scratch_bytes ? aligned_alloc(64, scratch_bytes) : NULL;
        memcpy(in + 1, g->bytes, in_bytes);
        out->rc =
            mr_transform_apply(chain, 0, 7, 1, index, in + 1, g->dim, to + 1, out->dim, scratch);
        if (out->rc == 0)
            memcpy(out->bytes, to + 1,
                   mr_dims_after(out->dim, out->spec.rank, -1) * mr_dtype_size(out->spec.dtype));
        free(in);
        free(to);
        free(scratch);
    }
    mr_transform_destroy(chain);
}

static const enum mr_dtype dtypes[] = {MR_U8, MR_I16, MR_F32, MR_I64, MR_C128};

/* Calls check for each kind of sequence. */
static void each_given(void (*check)(const struct given *g))
{
    for (size_t d = 0; d < MR_COUNT(dtypes); d++)
        for (int rank = 1; rank <= 3; rank++)
            for (uint64_t n = 0; n <= BOUND; n += 1 + n / 3)
                for (int varies = 0; varies < 2; varies++) {
                    struct given g = given_of(dtypes[d], rank, n, varies);
                    check(&g);
                }
}

static void check_same(const struct made *m, const struct given *g, uint64_t n,
                       const unsigned char *want, const char *text)
{
    if (m->rc < 0)
        fail_msg("%s: %s", text, mr_last_error());
    assert_int_equal(m->dim[0], n);
    for (int d = 1; d < g->spec.rank; d++)
        assert_int_equal(m->dim[d], g->dim[d]);
    assert_int_equal(m->spec.dtype, g->spec.dtype);
    assert_true(n <= m->spec.dim[0]);
    if (!(m->spec.var_dims & 1))
        assert_int_equal(m->spec.dim[0], n);
    if (memcmp(m->bytes, want, n * g->element) != 0)
        fail_msg("%s: %s of %llu elements differs", text, mr_dtype_name(g->spec.dtype),
                 (unsigned long long)g->dim[0]);
}

static void check_truncate(const struct given *g)
{
    static const uint64_t lengths[] = {1, 5, 22, 23, 100};
    for (size_t i = 0; i < MR_COUNT(lengths); i++)
        for (int left = 0; left < 2; left++) {
            char text[64];
            struct made m;
            uint64_t n = g->dim[0], kept = MR_MIN(n, lengths[i]);
            snprintf(text, sizeof text, "truncate(%llu%s)", (unsigned long long)lengths[i],
                     left ? ",side=left" : "");
            apply(text, g, i % 2, i, &m);
            check_same(&m, g, kept, g->bytes + (left ? n - kept : 0) * g->element, text);
        }
}

static void test_truncate(void **state)
{
    (void)state;
    each_given(check_truncate);
}

/* What pad_to and shift put into new elements. */
static void fill(const struct given *g, double value, unsigned char *to, uint64_t n)
{
    size_t size = mr_dtype_size(g->spec.dtype);
    for (uint64_t i = 0; i < n * g->element; i += size)
        mr_element_from_double(g->spec.dtype, value, to + i);
}

static void check_pad_to(const struct given *g)
{
    for (int left = 0; left < 2; left++) {
        unsigned char want[MAX_BYTES];
        struct made m;
        uint64_t n = g->dim[0], more = BOUND + 2 - n;
        fill(g, 7, want, BOUND + 2);
        memcpy(want + (left ? more : 0) * g->element, g->bytes, n * g->element);
        apply(left ? "pad_to(25,7,side=left)" : "pad_to(25,7)", g, left, 0, &m);
        check_same(&m, g, BOUND + 2, want, "pad_to");
        assert_int_equal(m.spec.var_dims, 0);
    }
}

static void test_pad_to(void **state)
{
    (void)state;
    each_given(check_pad_to);
}

static void check_shift(const struct given *g)
{
    static const int64_t by[] = {0, 1, -1, 4, -4, 23, -1000};
    for (size_t i = 0; i < MR_COUNT(by); i++) {
        unsigned char want[MAX_BYTES];
        char text[64];
        struct made m;
        int64_t n = (int64_t)g->dim[0];
        fill(g, 3, want, g->dim[0]);
        for (int64_t k = 0; k < n; k++)
            if (k + by[i] >= 0 && k + by[i] < n)
                memcpy(want + (uint64_t)k * g->element,
                       g->bytes + (uint64_t)(k + by[i]) * g->element, g->element);
        snprintf(text, sizeof text, "shift(%lld,3)", (long long)by[i]);
        apply(text, g, i % 2, 0, &m);
        check_same(&m, g, g->dim[0], want, text);
        assert_int_equal(m.spec.var_dims, g->spec.var_dims);
    }
}

static void test_shift(void **state)
{
    (void)state;
    each_given(check_shift);
}

/* Every window is one of the sample's, in its order; every place occurs. */
static void test_random_span(void **state)
{
    (void)state;
    struct given g = given_of(MR_I16, 2, 9, true);
    uint32_t seen = 0;
    for (uint64_t index = 0; index < 200; index++) {
        struct made m, again;
        apply("random_span(5)", &g, false, index, &m);
        apply("random_span(5)", &g, true, index, &again);
        assert_int_equal(m.rc, 0);
        uint64_t at = 0;
        while (at <= 4 && memcmp(m.bytes, g.bytes + at * g.element, 5 * g.element) != 0)
            at++;
        assert_true(at <= 4);
        seen |= 1u << at;
        check_same(&m, &g, 5, g.bytes + at * g.element, "random_span");
        check_same(&again, &g, 5, m.bytes, "random_span, op by op");
    }
    assert_int_equal(seen, 31);
    struct made m;
    g = given_of(MR_I16, 2, 4, true);
    apply("random_span(5)", &g, false, 0, &m);
    check_same(&m, &g, 4, g.bytes, "a short sample");
}

/* Fused with their neighbours as one after the other. */
static void test_with_other_ops(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "truncate(9),cast(f32),scale(0.5),pad_to(12,-1),shift(2)",
        "cast(f64),random_span(6),normalize(3,2),flatten",
        "shift(-3,1),pad_to(30),cast(i32),truncate(8,side=left),flatten",
    };
    for (size_t i = 0; i < MR_COUNT(chains); i++)
        for (uint64_t n = 6; n <= BOUND; n++)
            for (int varies = 0; varies < 2; varies++) {
                struct given g = given_of(MR_U8, 2, n, varies);
                struct made a, b;
                apply(chains[i], &g, false, n, &a);
                apply(chains[i], &g, true, n, &b);
                if (a.rc < 0)
                    fail_msg("%s: %s", chains[i], mr_last_error());
                assert_memory_equal(&a, &b, sizeof a);
            }
}

static void refuses(const char *text, const struct given *g, int code, const char *says)
{
    struct made m;
    apply(text, g, false, 0, &m);
    assert_int_equal(m.rc, code);
    if (!strstr(mr_last_error(), says))
        fail_msg("%s: says '%s', not '%s'", text, mr_last_error(), says);
}

static void test_refuses(void **state)
{
    (void)state;
    struct mr_transform *chain = make("");
    assert_int_equal(mr_transform_add(chain, "truncate"), MR_EOPTION);
    assert_int_equal(mr_transform_add(chain, "pad_to(0)"), MR_EOPTION);
    assert_int_equal(mr_transform_add(chain, "random_span(-1)"), MR_EOPTION);
    assert_int_equal(mr_transform_add(chain, "shift(1.5)"), MR_EOPTION);
    assert_int_equal(mr_transform_add(chain, "truncate(3,side=up)"), MR_EOPTION);
    mr_transform_destroy(chain);
    struct given g = given_of(MR_U8, 1, 9, false), scalar = given_of(MR_U8, 0, 0, false);
    refuses("pad_to(20,-100)", &g, MR_EOPTION, "that u8 can hold");
    refuses("shift(1,256)", &g, MR_EOPTION, "that u8 can hold");
    refuses("pad_to(8)", &g, MR_ESHAPE, "is shorter than ids u8[9]");
    refuses("random_span(10)", &g, MR_ESHAPE, "does not fit ids u8[9]");
    refuses("truncate(3)", &scalar, MR_ESHAPE, "needs a first dimension");
    refuses("pad_to(3)", &scalar, MR_ESHAPE, "needs a first dimension");
    refuses("shift", &scalar, MR_ESHAPE, "needs a first dimension");
    g = given_of(MR_U8, 1, 9, true);
    refuses("pad_to(8)", &g, MR_ESHAPE, "9 elements: put truncate(8)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncate),       cmocka_unit_test(test_pad_to),
        cmocka_unit_test(test_shift),          cmocka_unit_test(test_random_span),
        cmocka_unit_test(test_with_other_ops), cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
