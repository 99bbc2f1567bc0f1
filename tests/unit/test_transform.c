/* White-box. Transforms: against plain loops, against the ops one after another, and against
 * PyTorch. */
#include "transform/transform.h"
#include "unit.h"

#include <math.h>

struct transform_vector {
    const char *chain;
    enum mr_dtype dtype;
    int rank;
    uint64_t dim[MR_MAX_RANK];
    enum mr_dtype out_dtype;
    int out_rank;
    uint64_t out_dim[MR_MAX_RANK];
    const char *in, *out; /* hex */
    int ulps;
};
#include "transform_vectors.h"

#define MAX_BYTES (1 << 17)

static struct mr_transform *make(const char *text)
{
    struct mr_transform *chain = NULL;
    assert_int_equal(mr_transform_create(&chain), 0);
    if (mr_transform_add(chain, text))
        fail_msg("%s: %s", text, mr_last_error());
    return chain;
}

static struct mr_spec spec_of(enum mr_dtype dtype, int rank, uint64_t a, uint64_t b, uint64_t c)
{
    struct mr_spec spec = {.name = "image", .dtype = dtype, .rank = rank, .dim = {a, b, c}};
    return spec;
}

/* Applies a bound chain between buffers of exact size (AddressSanitizer sees a byte too many), at
 * odd addresses. */
static int apply_exact(const struct mr_transform *chain, const struct mr_spec *in_spec,
                       const uint64_t *dim, uint64_t index, const void *in, void *out,
                       uint64_t *out_dim)
{
    uint64_t in_bytes = mr_dtype_size(in_spec->dtype) * mr_dims_after(dim, in_spec->rank, -1),
             out_bytes;
    assert_int_equal(mr_spec_bytes(mr_transform_specs(chain), &out_bytes), 0);
    char *a = malloc(in_bytes + 1), *b = malloc(out_bytes + 1);
    uint64_t scratch_bytes = mr_transform_scratch_bytes(chain);
    void *scratch = scratch_bytes ? aligned_alloc(64, scratch_bytes) : NULL;
    memcpy(a + 1, in, in_bytes);
    int rc = mr_transform_apply(chain, 0, 5, 2, index, a + 1, dim, b + 1, out_dim, scratch);
    if (rc == 0)
        memcpy(out, b + 1,
               mr_dtype_size(mr_transform_specs(chain)->dtype) *
                   mr_dims_after(out_dim, mr_transform_specs(chain)->rank, -1));
    free(a);
    free(b);
    free(scratch);
    return rc;
}

static void run(const char *text, const struct mr_spec *spec, const void *in, void *out)
{
    struct mr_transform *chain = make(text);
    uint64_t out_dim[MR_MAX_RANK];
    if (mr_transform_bind(chain, spec, 1) ||
        apply_exact(chain, spec, spec->dim, 0, in, out, out_dim))
        fail_msg("%s: %s", text, mr_last_error());
    mr_transform_destroy(chain);
}

static double number_at(enum mr_dtype dtype, const void *p, uint64_t i)
{
    double value;
    char element[16];
    memcpy(element, (const char *)p + i * mr_dtype_size(dtype), mr_dtype_size(dtype));
    mr_load_f64(dtype)(element, &value, 1);
    return value;
}

/* Steps between two floats of a dtype; by the order of their bits. */
static double ulps_between(enum mr_dtype dtype, double a, double b)
{
    int digits = dtype == MR_F16 ? 10 : dtype == MR_BF16 ? 7 : dtype == MR_F32 ? 23 : 52;
    if (a == b)
        return 0;
    return fabs(a - b) / ldexp(1, ilogb(fmax(fabs(a), fabs(b))) - digits);
}

static unsigned from_hex(const char *text, unsigned char *out)
{
    unsigned n = 0, byte;
    for (; sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
        out[n] = (unsigned char)byte;
    return n;
}

static void check_vector(const struct transform_vector *v)
{
    static unsigned char in[MAX_BYTES], want[MAX_BYTES], got[MAX_BYTES];
    struct mr_spec spec = {.name = "image", .dtype = v->dtype, .rank = v->rank};
    memcpy(spec.dim, v->dim, sizeof spec.dim);
    unsigned in_bytes = from_hex(v->in, in), want_bytes = from_hex(v->out, want);
    uint64_t bytes, out_dim[MR_MAX_RANK];
    assert_int_equal(mr_spec_bytes(&spec, &bytes), 0);
    assert_int_equal(bytes, in_bytes);
    struct mr_transform *chain = make(v->chain);
    if (mr_transform_bind(chain, &spec, 1) ||
        apply_exact(chain, &spec, spec.dim, 0, in, got, out_dim))
        fail_msg("%s: %s", v->chain, mr_last_error());
    const struct mr_spec *out = mr_transform_specs(chain);
    assert_int_equal(out->dtype, v->out_dtype);
    assert_int_equal(out->rank, v->out_rank);
    for (int d = 0; d < out->rank; d++) {
        assert_int_equal(out->dim[d], v->out_dim[d]);
        assert_int_equal(out_dim[d], v->out_dim[d]);
    }
    if (v->ulps == 0 && memcmp(got, want, want_bytes) != 0)
        fail_msg("%s: differs from torch", v->chain);
    for (uint64_t i = 0; v->ulps && i < want_bytes / mr_dtype_size(out->dtype); i++) {
        double a = number_at(out->dtype, got, i), b = number_at(out->dtype, want, i);
        if (!(ulps_between(out->dtype, a, b) <= v->ulps))
            fail_msg("%s: element %llu: %.9g, torch %.9g", v->chain, (unsigned long long)i, a, b);
    }
    mr_transform_destroy(chain);
}

static void test_agrees_with_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(transform_vectors); i++)
        check_vector(&transform_vectors[i]);
}

/* Elements of a dtype, wild and tame. */
static void fill(enum mr_dtype dtype, void *out, uint64_t n, uint32_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bits = test_u64(seed * 100003 + (uint32_t)i);
        double tame = (double)(bits % 4000) / 7 - 280;
        if (dtype == MR_BOOL)
            bits &= 1;
        if (bits >> 61 && dtype >= MR_F16) /* 7 of 8 floats: ordinary numbers */
            mr_element_from_double(dtype, tame, &bits);
        memcpy((char *)out + i * mr_dtype_size(dtype), &bits, mr_dtype_size(dtype));
    }
}

/* What a cast shall give, by long double (64-bit mantissa: holds every i64 and u64 exactly). */
static long double exact(enum mr_dtype dtype, const void *element)
{
    int64_t i;
    uint64_t u;
    memcpy(&i, element, mr_dtype_size(dtype) == 8 ? 8 : 0);
    u = (uint64_t)i;
    return dtype == MR_I64   ? (long double)i
           : dtype == MR_U64 ? (long double)u
                             : (long double)number_at(dtype, element, 0);
}

/* r is the float of `dtype` nearest to x, ties to even; tried with both neighbours. */
static void check_nearest(enum mr_dtype dtype, long double x, const void *element, const char *what)
{
    int bytes = (int)mr_dtype_size(dtype);
    uint64_t bits = 0;
    memcpy(&bits, element, (size_t)bytes);
    long double r = number_at(dtype, element, 0);
    if (isnan(x) || isinf(x)) {
        assert_true(isnan(x) ? isnan(r) : r == x);
        return;
    }
    /* past the largest: the spacing goes on as if the exponent did */
    int digits = dtype == MR_F16 ? 10 : dtype == MR_BF16 ? 7 : dtype == MR_F32 ? 23 : 52;
    int top = dtype == MR_F16 ? 16 : dtype == MR_F64 ? 1024 : 128;
    if (isinf(r)) {
        assert_true(fabsl(x) >= ldexpl(2 - ldexpl(1, -digits - 1), top - 1));
        return;
    }
    for (int step = -1; step <= 1; step += 2) {
        uint64_t neighbour_bits = bits + (uint64_t)step;
        if ((bits << 1 & (UINT64_MAX >> (64 - 8 * bytes))) == 0 && step < 0)
            continue; /* 0: its neighbours are the two least, of each sign */
        long double neighbour = number_at(dtype, &neighbour_bits, 0);
        if (isinf(neighbour))
            continue; /* r is the largest: seen above */
        long double here = fabsl(x - r), there = fabsl(x - neighbour);
        if (there < here || (there == here && (bits & 1)))
            fail_msg("%s: %Lg became %Lg, %Lg is nearer", what, x, r, neighbour);
    }
}

static void check_integer(enum mr_dtype dtype, long double x, const void *element, const char *what)
{
    int bits = 8 * (int)mr_dtype_size(dtype);
    bool is_signed = dtype == MR_I8 || dtype == MR_I16 || dtype == MR_I32 || dtype == MR_I64;
    long double lo = is_signed ? -ldexpl(1, bits - 1) : 0, hi = ldexpl(1, bits - is_signed) - 1;
    long double want = isnan(x) ? 0 : rintl(x);
    want = want < lo ? lo : want > hi ? hi : want;
    if (exact(dtype, element) != want)
        fail_msg("%s: %Lg became %Lg, expected %Lg", what, x, exact(dtype, element), want);
}

static void check_cast(enum mr_dtype from, enum mr_dtype to)
{
    enum { N = 300 };
    char in[N * 8], out[N * 8], text[32];
    struct mr_spec spec = spec_of(from, 1, N, 0, 0);
    fill(from, in, N, (uint32_t)(from * 16 + to));
    snprintf(text, sizeof text, "cast(%s)", mr_dtype_name(to));
    run(text, &spec, in, out);
    for (int i = 0; i < N; i++) {
        char what[40], *a = in + (size_t)i * mr_dtype_size(from),
                       *b = out + (size_t)i * mr_dtype_size(to);
        snprintf(what, sizeof what, "%s to %s", mr_dtype_name(from), mr_dtype_name(to));
        if (to == MR_BOOL)
            assert_int_equal(*b, exact(from, a) != 0);
        else if (to >= MR_F16)
            check_nearest(to, exact(from, a), b, what);
        else
            check_integer(to, exact(from, a), b, what);
    }
}

static void test_casts_round_rightly(void **state)
{
    (void)state;
    for (int from = 0; from <= MR_F64; from++)
        for (int to = 0; to <= MR_F64; to++)
            check_cast((enum mr_dtype)from, (enum mr_dtype)to);
}

/* Numbers beside the halfway points of f16 and bf16, where rounding twice would show. */
static void test_casts_at_halfway_points(void **state)
{
    (void)state;
    for (uint32_t h = 1; h < 0x7c00; h += 7) {
        uint16_t bits = (uint16_t)h, above = (uint16_t)(h + 1);
        double a = number_at(MR_F16, &bits, 0), b = number_at(MR_F16, &above, 0),
               middle = (a + b) / 2;
        if (isinf(b))
            continue;
        double tries[3] = {middle, nextafter(middle, 0), nextafter(middle, 1e9)};
        uint16_t got[3];
        struct mr_spec spec = spec_of(MR_F64, 1, 3, 0, 0);
        run("cast(f16)", &spec, tries, got);
        assert_int_equal(got[0], h & 1 ? above : bits);
        assert_int_equal(got[1], bits);
        assert_int_equal(got[2], above);
    }
    int64_t big[2] = {(1ll << 62) + (1ll << 54) + 1, (1ll << 62) + (1ll << 54)};
    uint16_t got[2];
    struct mr_spec spec = spec_of(MR_I64, 1, 2, 0, 0);
    run("cast(bf16)", &spec, big, got);
    assert_int_equal(got[0], 0x5e81);
    assert_int_equal(got[1], 0x5e80);
}

static void test_every_half_survives(void **state)
{
    (void)state;
    static uint16_t halves[65536], back[65536];
    for (uint32_t i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    for (int k = 0; k < 2; k++) {
        struct mr_spec spec = spec_of(k ? MR_BF16 : MR_F16, 1, 65536, 0, 0);
        run(k ? "cast(f32),cast(bf16)" : "cast(f32),cast(f16)", &spec, halves, back);
        for (uint32_t i = 0; i < 65536; i++)
            if (!isnan(number_at(spec.dtype, halves, i)))
                assert_int_equal(back[i], i);
            else
                assert_true(isnan(number_at(spec.dtype, back, i)));
    }
}

/* A chain of random ops that fits most specs; text is cut where it does not. */
static void random_chain(uint32_t seed, char *text, size_t cap)
{
    static const char *const ops[] = {
        "cast(f32)",
        "cast(f64)",
        "cast(f16)",
        "cast(u8)",
        "cast(i64)",
        "cast(bf16)",
        "cast(f32)",
        "cast(f32)",
        "scale(1/255)",
        "scale(-3,0.1)",
        "normalize(0.1307,0.3081)",
        "normalize([0.4,0.5,0.6],[0.2,0.3,0.4],axis=0)",
        "normalize([0.4,0.5,0.6],0.25,axis=2)",
        "normalize([1,2,3],[4,5,6])",
        "crop(4,3)",
        "random_crop(5,4)",
        "pad(1,3)",
        "pad(0:1:2:3)",
        "hflip(0.5)",
        "layout(nchw)",
        "layout(nhwc)",
        "flatten",
        "hflip(1,layout=nhwc)",
        "scale(0.5)",
        "crop(3,3,layout=nchw)",
        "resize(5,7)",
        "resize(4,max=9)",
        "resize(9,6,bicubic)",
        "resize(7,7,nearest)",
        "center_crop(3)",
        "random_resized_crop(6)",
        "vflip",
        "color_jitter(0.5,0.5,0.5,0.5)",
        "to_gray(0.5)",
        "gaussian_blur(3)",
        "rotate(45,3)",
        "erase",
    };
    uint32_t n = 1 + (uint32_t)(test_u64(seed) % 7);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        size_t at = strlen(text);
        snprintf(text + at, cap - at, "%s%s", i ? "," : "",
                 ops[test_u64(seed + 1000003 * (i + 1)) % MR_COUNT(ops)]);
    }
}

static struct mr_spec random_spec(uint32_t seed)
{
    static const uint64_t sides[] = {3, 5, 6, 8, 17, 40};
    uint64_t r = test_u64(seed + 77);
    struct mr_spec spec =
        spec_of((enum mr_dtype)(r % (MR_F64 + 1)), 2 + (r >> 8) % 8 / 2 % 2, 0, 0, 0);
    for (int d = 0; d < spec.rank; d++)
        spec.dim[d] = sides[(r >> (16 + 8 * d)) % MR_COUNT(sides)];
    if (spec.rank == 3)
        spec.dim[r >> 60 & 2] = 3;
    if ((r >> 50) % 3 == 0)
        spec.var_dims = (uint32_t)(r >> 52 & 7 & ((1u << spec.rank) - 1));
    return spec;
}

/* How many ops of the chain fit, when not all do. */
static bool bind_both(struct mr_transform *fast, struct mr_transform *plain,
                      const struct mr_spec *spec)
{
    int a = mr_transform_bind(fast, spec, 1), b = mr_transform_bind_as(plain, spec, 1, true);
    assert_int_equal(a, b);
    return a == 0;
}

static bool compare_chain(const char *text, struct mr_spec spec, uint32_t seed)
{
    static char in[MAX_BYTES], a[MAX_BYTES], b[MAX_BYTES];
    struct mr_transform *fast = make(text), *plain = make(text);
    bool bound = bind_both(fast, plain, &spec);
    for (uint64_t k = 0; bound && k < 3; k++) {
        uint64_t dim[MR_MAX_RANK], dim_a[MR_MAX_RANK] = {0}, dim_b[MR_MAX_RANK] = {0};
        memcpy(dim, spec.dim, sizeof dim);
        for (int d = 0; d < spec.rank; d++)
            if (spec.var_dims >> d & 1)
                dim[d] = test_u64(seed + (uint32_t)k * 31 + (uint32_t)d) % (spec.dim[d] + 1);
        fill(spec.dtype, in, mr_dims_after(dim, spec.rank, -1), seed);
        int rc_a = apply_exact(fast, &spec, dim, k, in, a, dim_a);
        int rc_b = apply_exact(plain, &spec, dim, k, in, b, dim_b);
        const struct mr_spec *out = mr_transform_specs(fast);
        uint64_t bytes = mr_dims_after(dim_a, out->rank, -1) * mr_dtype_size(out->dtype);
        assert_true(bytes <= MAX_BYTES);
        if (rc_a != rc_b ||
            (rc_a == 0 &&
             (memcmp(dim_a, dim_b, sizeof *dim_a * (size_t)out->rank) || memcmp(a, b, bytes))))
            fail_msg("seed %u: '%s' is not what its ops do one after another", seed, text);
    }
    mr_transform_destroy(fast);
    mr_transform_destroy(plain);
    return bound;
}

static bool compare_with_plain(uint32_t seed)
{
    char text[512];
    random_chain(seed, text, sizeof text);
    return compare_chain(text, random_spec(seed), seed);
}

/* Pixels to planes in one stage, with a mirror, longer and shorter than its blocks, of sizes that
 * vary and that do not. */
static void test_planes_are_bit_equal_to_plain(void **state)
{
    static const char *const begins[] = {"", "hflip(1),", "hflip,", "vflip,", "hflip(1),hflip(1),"};
    static const char *const middles[] = {
        "cast(f32)",
        "cast(f16)",
        "cast(i32)",
        "cast(f64),scale(1/255)",
        "cast(f32),scale(1/255,0.5),normalize([1,2,3],[4,5,6])",
        "cast(f32),scale(1/255),normalize([1,2,3],[4,5,6]),cast(bf16)",
        "cast(f32),normalize(3,4),scale(2,1),scale(3,1),scale(0.1)",
    };
    static const char *const ends[] = {",layout(nchw)", ",layout(nchw),flatten",
                                       ",layout(nchw),hflip(1)", ",layout(nhwc)"};
    static const uint64_t sizes[][2] = {{1, 1}, {3, 5}, {7, 224}, {2, 1030}, {40, 64}, {1, 2049}};
    (void)state;
    uint32_t seed = 0;
    for (size_t b = 0; b < MR_COUNT(begins); b++)
        for (size_t m = 0; m < MR_COUNT(middles); m++)
            for (size_t e = 0; e < MR_COUNT(ends); e++)
                for (size_t k = 0; k < 2 * MR_COUNT(sizes); k++) {
                    char text[512];
                    struct mr_spec spec = spec_of(MR_U8, 3, sizes[k / 2][0], sizes[k / 2][1], 3);
                    spec.var_dims = k % 2 ? 3 : 0;
                    snprintf(text, sizeof text, "%s%s%s", begins[b], middles[m], ends[e]);
                    assert_true(compare_chain(text, spec, seed++));
                }
}

static void test_fused_is_bit_equal_to_plain(void **state)
{
    (void)state;
    unsigned bound = 0;
    for (uint32_t seed = 0; seed < 6000; seed++)
        bound += compare_with_plain(seed);
    assert_true(bound > 600); /* else the chains test too little */
}

/* The plain path against float arithmetic written out. */
static void test_arithmetic_is_what_the_header_says(void **state)
{
    (void)state;
    enum { N = 3 * 67 };
    float in[N], got[N];
    uint8_t bytes[N];
    struct mr_spec spec = spec_of(MR_F32, 3, 67, 1, 3), u8 = spec;
    u8.dtype = MR_U8;
    fill(MR_F32, in, N, 4);
    fill(MR_U8, bytes, N, 5);
    const float third = 1.0f / 3, mean[3] = {0.485f, 0.456f, 0.406f},
                std[3] = {0.229f, 0.224f, 0.225f};
    run("scale(1/3,-0.1),normalize([0.485,0.456,0.406],[0.229,0.224,0.225],axis=-1)", &spec, in,
        got);
    for (int i = 0; i < N; i++) {
        volatile float x = in[i] * third;
        x = x + -0.1f;
        x = x - mean[i % 3];
        x = x * (1.0f / std[i % 3]);
        assert_true(isnan(x) ? isnan(got[i]) : got[i] == x);
    }
    run("cast(f32),scale(1/255),normalize(0.1307,0.3081)", &u8, bytes, got);
    for (int i = 0; i < N; i++) {
        volatile float x = (float)bytes[i] * (1.0f / 255);
        x = x - 0.1307f;
        assert_true(got[i] == x * (1.0f / 0.3081f));
    }
    float zero[1] = {-0.0f};
    spec = spec_of(MR_F32, 1, 1, 0, 0);
    run("scale(2)", &spec, zero, got);
    assert_true(signbit(got[0])); /* no offset: nothing is added, not even 0 */
}

/* Geometry by coordinates: each pixel says where it comes from. */
static void test_random_ops(void **state)
{
    (void)state;
    struct mr_spec spec = spec_of(MR_U16, 3, 2, 9, 12);
    uint16_t in[2 * 9 * 12], out[2 * 5 * 7], again[2 * 5 * 7];
    for (int i = 0; i < 2 * 9 * 12; i++)
        in[i] = (uint16_t)i;
    struct mr_transform *chain = make("random_crop(5,7)"), *flip = make("hflip(0.25)");
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_int_equal(mr_transform_bind(flip, &spec, 1), 0);
    unsigned place[5][6] = {{0}}, flips = 0;
    for (uint64_t index = 0; index < 6000; index++) {
        uint64_t dim[MR_MAX_RANK];
        assert_int_equal(apply_exact(chain, &spec, spec.dim, index, in, out, dim), 0);
        unsigned top = out[0] / 12, left = out[0] % 12;
        assert_true(top <= 4 && left <= 5);
        place[top][left]++;
        for (unsigned c = 0; c < 2; c++)
            for (unsigned y = 0; y < 5; y++)
                for (unsigned x = 0; x < 7; x++)
                    assert_int_equal(out[(c * 5 + y) * 7 + x], (c * 9 + y + top) * 12 + x + left);
        assert_int_equal(apply_exact(chain, &spec, spec.dim, index, in, again, dim), 0);
        assert_memory_equal(out, again, sizeof out);
        uint16_t mirrored[2 * 9 * 12];
        assert_int_equal(apply_exact(flip, &spec, spec.dim, index, in, mirrored, dim), 0);
        flips += mirrored[0] == 11;
        for (unsigned i = 0; i < MR_COUNT(mirrored); i++)
            assert_int_equal(mirrored[i], mirrored[0] ? in[i / 12 * 12 + 11 - i % 12] : in[i]);
    }
    for (unsigned t = 0; t < 5; t++)
        for (unsigned l = 0; l < 6; l++)
            assert_in_range(place[t][l], 130, 270); /* 200 expected, 5 standard deviations */
    assert_in_range(flips, 1330, 1670);
    mr_transform_destroy(chain);
    mr_transform_destroy(flip);
}

/* Two equal random ops of one chain draw apart, and so do epochs. */
static void test_draws_are_keyed(void **state)
{
    (void)state;
    struct mr_spec spec = spec_of(MR_U8, 2, 1, 2, 0);
    struct mr_transform *chain = make("hflip,hflip");
    uint8_t in[2] = {1, 2}, out[2], scratch[64] __attribute__((aligned(64)));
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    unsigned changed = 0, by_epoch = 0, by_seed = 0;
    for (uint64_t index = 0; index < 1000; index++) {
        uint64_t dim[MR_MAX_RANK];
        uint8_t first[3];
        for (uint64_t k = 0; k < 3; k++) {
            assert_int_equal(mr_transform_apply(chain, 0, k == 2, k == 1, index, in, spec.dim, out,
                                                dim, scratch),
                             0);
            first[k] = out[0];
        }
        changed += first[0] != 1;
        by_epoch += first[0] != first[1];
        by_seed += first[0] != first[2];
    }
    assert_in_range(changed, 400, 600);
    assert_in_range(by_epoch, 400, 600);
    assert_in_range(by_seed, 400, 600);
    mr_transform_destroy(chain);
}

static void test_one_hot(void **state)
{
    (void)state;
    struct mr_spec fields[2] = {spec_of(MR_U8, 2, 2, 2, 0), {.name = "label", .dtype = MR_I16}};
    struct mr_transform *chain = make("one_hot(10),flatten,label.cast(u8)");
    assert_int_equal(mr_transform_bind(chain, fields, 2), 0);
    const struct mr_spec *out = mr_transform_specs(chain);
    assert_int_equal(out[0].rank, 1);
    assert_int_equal(out[1].dtype, MR_U8);
    assert_int_equal(out[1].dim[0], 10);
    void *scratch = aligned_alloc(64, mr_transform_scratch_bytes(chain));
    for (int16_t label = -2; label < 13; label++) {
        uint8_t got[10], want[10] = {0};
        uint64_t dim[MR_MAX_RANK] = {0};
        int rc = mr_transform_apply(chain, 1, 0, 0, 0, &label, fields[1].dim, got, dim, scratch);
        if (label < 0 || label > 9) {
            char text[64];
            snprintf(text, sizeof text, "transform 1: one_hot(10): label %d: expected 0..9", label);
            assert_int_equal(rc, MR_EFORMAT);
            assert_string_equal(mr_last_error(), text);
            continue;
        }
        want[label] = 1;
        assert_int_equal(rc, 0);
        assert_memory_equal(got, want, sizeof got);
        assert_int_equal(dim[0], 10);
    }
    free(scratch);
    mr_transform_destroy(chain);
}

static void test_variable_shapes(void **state)
{
    (void)state;
    struct mr_spec spec = spec_of(MR_U8, 2, 8, 8, 0);
    spec.var_dims = 3;
    struct mr_transform *chain = make("pad(1),crop(4,4)");
    uint8_t in[64], out[16];
    uint64_t dim[MR_MAX_RANK] = {0}, small[MR_MAX_RANK] = {1, 8}, fits[MR_MAX_RANK] = {2, 2},
             large[MR_MAX_RANK] = {9, 2};
    memset(in, 7, sizeof in);
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_int_equal(mr_transform_specs(chain)->var_dims, 0);
    assert_int_equal(apply_exact(chain, &spec, fits, 0, in, out, dim), 0);
    const uint8_t want[16] = {0, 0, 0, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0, 0, 0, 0};
    assert_memory_equal(out, want, sizeof want);
    assert_int_equal(dim[0], 4);
    assert_int_equal(apply_exact(chain, &spec, small, 0, in, out, dim), MR_ESHAPE);
    assert_string_equal(mr_last_error(),
                        "transform 2: crop(4,4): does not fit a sample of height 3 and width 10");
    void *scratch = aligned_alloc(64, mr_transform_scratch_bytes(chain));
    assert_int_equal(mr_transform_apply(chain, 0, 0, 0, 0, in, large, out, dim, scratch),
                     MR_ESHAPE);
    free(scratch);
    mr_transform_destroy(chain);
    chain = make("flatten,cast(f32)");
    float got[64];
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_int_equal(mr_transform_specs(chain)->var_dims, 1);
    assert_int_equal(mr_transform_specs(chain)->dim[0], 64);
    assert_int_equal(mr_transform_scratch_bytes(chain), 0); /* one pass */
    assert_int_equal(apply_exact(chain, &spec, fits, 0, in, got, dim), 0);
    assert_int_equal(dim[0], 4);
    assert_true(got[3] == 7);
    mr_transform_destroy(chain);
}

/* Channels in front of a dimension that varies: how many elements one has follows from the
 * sample. */
static void test_channels_of_variable_shapes(void **state)
{
    (void)state;
    struct mr_spec spec = spec_of(MR_F32, 3, 3, 20, 4);
    spec.var_dims = 2;
    struct mr_transform *chain = make("scale(2),normalize([1,2,3],[1,2,4]),flatten");
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_int_equal(mr_transform_scratch_bytes(chain), 0);
    for (uint64_t h = 0; h <= 20; h += 2) {
        float in[3 * 20 * 4], out[3 * 20 * 4];
        uint64_t shape[MR_MAX_RANK] = {3, h, 4}, dim[MR_MAX_RANK];
        for (int i = 0; i < 240; i++)
            in[i] = (float)i;
        assert_int_equal(apply_exact(chain, &spec, shape, 0, in, out, dim), 0);
        assert_int_equal(dim[0], 12 * h);
        for (uint64_t i = 0; i < 12 * h; i++) {
            uint64_t c = i / (4 * h);
            assert_true(out[i] == ((float)i * 2 - (float)(c + 1)) / (float)(1 << c));
        }
    }
    mr_transform_destroy(chain);
}

static void test_common_chains_take_one_pass(void **state)
{
    (void)state;
    const char *one[] = {"cast(f32),scale(1/255),normalize(0.1307,0.3081)",
                         "cast(f32),scale(1/255),normalize(0.1307,0.3081),flatten",
                         "flatten,cast(f32),scale(1/255)",
                         "cast(f32),scale(1/255),cast(f16)",
                         "crop(20,20)",
                         "hflip"};
    struct mr_spec spec = spec_of(MR_U8, 2, 28, 28, 0);
    for (size_t i = 0; i < MR_COUNT(one); i++) {
        struct mr_transform *chain = make(one[i]);
        assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
        assert_int_equal(mr_transform_scratch_bytes(chain), 0);
        assert_false(mr_transform_is_identity(chain, 0));
        mr_transform_destroy(chain);
    }
    struct mr_transform *chain = make("");
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_true(mr_transform_is_identity(chain, 0));
    uint8_t in[784], out[784];
    uint64_t dim[MR_MAX_RANK];
    fill(MR_U8, in, 784, 1);
    assert_int_equal(apply_exact(chain, &spec, spec.dim, 0, in, out, dim), 0);
    assert_memory_equal(in, out, 784);
    mr_transform_destroy(chain);
}

static void test_hwc_is_seen_by_its_shape(void **state)
{
    (void)state;
    const struct {
        uint64_t dim[3];
        const char *op;
        uint64_t out[3];
    } cases[] = {
        {{28, 30, 3}, "crop(4,5)", {4, 5, 3}},
        {{28, 30, 1}, "crop(4,5)", {4, 5, 1}},
        {{3, 28, 30}, "crop(4,5)", {3, 4, 5}},
        {{1, 28, 30}, "crop(4,5)", {1, 4, 5}},
        {{3, 28, 4}, "crop(4,3)", {3, 4, 3}},
        {{8, 28, 30}, "crop(4,5)", {8, 4, 5}},
        {{28, 30, 3}, "crop(4,2,layout=nchw)", {28, 4, 2}},
        {{28, 30, 8}, "crop(4,5,layout=nhwc)", {4, 5, 8}},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_spec spec = spec_of(MR_U8, 3, cases[i].dim[0], cases[i].dim[1], cases[i].dim[2]);
        struct mr_transform *chain = make(cases[i].op);
        assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
        assert_memory_equal(mr_transform_specs(chain)->dim, cases[i].out, sizeof cases[i].out);
        mr_transform_destroy(chain);
    }
}

static void test_shape_errors_name_op_and_shape(void **state)
{
    (void)state;
    const struct {
        const char *chain, *error;
    } cases[] = {
        {"cast(f32),scale(2),crop(32,32)",
         "transform 3: crop(32,32): does not fit image f32[28,28]"},
        {"scale(2)",
         "transform 1: scale(2): floats only; put cast(f32) before it for image u8[28,28]"},
        {"flatten,hflip", "transform 2: hflip: no height and width in image u8[784]"},
        {"layout(nchw)", "transform 1: layout(nchw): needs 3 dimensions, not image u8[28,28]"},
        {"one_hot(10)", "transform 1: one_hot(10): no field 'label'; there are: image"},
        {"image.one_hot(10)", "transform 1: one_hot(10): needs one integer, not image u8[28,28]"},
        {"cast(f32),normalize([1,2],3)",
         "transform 2: normalize([1,2],3): the axis and the numbers given differ in "
         "length; name another with axis= for image f32[28,28]"},
    };
    struct mr_spec spec = spec_of(MR_U8, 2, 28, 28, 0);
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_transform *chain = make(cases[i].chain);
        assert_int_equal(mr_transform_bind(chain, &spec, 1), MR_ESHAPE);
        assert_string_equal(mr_last_error(), cases[i].error);
        uint8_t buf[1];
        uint64_t dim[MR_MAX_RANK];
        assert_int_equal(mr_transform_apply(chain, 0, 0, 0, 0, buf, spec.dim, buf, dim, NULL),
                         MR_EMISUSE);
        mr_transform_destroy(chain);
    }
}

static void test_bad_texts(void **state)
{
    (void)state;
    const char *bad[] = {
        "cast",
        "cast()",
        "cast(f33)",
        "cast(c64)",
        "cast(f32",
        "cast(f32))",
        "cast f32",
        ",",

        ",cast(f32)",
        "scale",
        "scale(x)",
        "scale(1,2,3)",
        "scale(1/0)",
        "scale(nan)",
        "normalize(1)",
        "normalize(1,0)",
        "normalize(1,-1)",
        "normalize([1,2],[1,2,3])",
        "layout",
        "layout(auto)",
        "layout(chw)",
        "flatten(1)",
        "one_hot",
        "one_hot(0)",
        "pad",
        "pad(-1)",
        "pad(1:2)",
        "pad(1.5)",
        "crop(3)",
        "crop(0,3)",
        "crop(3,3,-1)",
        "random_crop(3,3,1,1)",
        "hflip(2)",
        "hflip(-0.1)",
        "blur(3)",
        "label.",
        ".cast(f32)x",
        "cast(f32)cast(u8)",
        "cast(dtype=f32,dtype2=u8)",
        "(",
        ")",
        "[",
    };
    struct mr_transform *chain = make("cast(f32)");
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        int rc = mr_transform_add(chain, bad[i]);
        if (rc != MR_EOPTION)
            fail_msg("'%s': %d", bad[i], rc);
        if (strncmp(mr_last_error(), "transform 2: ", 13) != 0)
            fail_msg("'%s': %s", bad[i], mr_last_error());
        assert_string_equal(mr_transform_text(chain), "cast(f32)");
    }
    assert_int_equal(mr_transform_add(chain, "flatten,cast(f33)"),
                     MR_EOPTION); /* the place is the op's */
    assert_int_equal(strncmp(mr_last_error(), "transform 3: cast: ", 19), 0);
    assert_int_equal(mr_transform_add(chain, "flatten,"), MR_EOPTION);
    assert_string_equal(mr_transform_text(chain), "cast(f32)");
    mr_transform_destroy(chain);
}

static void test_text_reads_back(void **state)
{
    (void)state;
    struct mr_transform
        *a = make(" cast( f32 ) , label.one_hot(10,dtype=u8),pad(1:2:3:4, value=2) ,hflip"),
        *b;
    assert_int_equal(mr_transform_add(a, "flatten"), 0);
    b = make(mr_transform_text(a));
    assert_string_equal(mr_transform_text(a), mr_transform_text(b));
    assert_int_equal(b->n_ops, 5);
    assert_int_equal(mr_transform_add(a, "  "), 0);
    assert_int_equal(a->n_ops, 5);
    for (int i = 0; i < MR_MAX_OPS - 5; i++)
        assert_int_equal(mr_transform_add(a, "flatten"), 0);
    assert_int_equal(mr_transform_add(a, "flatten"), MR_ELIMIT);
    mr_transform_destroy(a);
    mr_transform_destroy(b);
}

static int keep_first(void *user, struct mr_spec *spec)
{
    if (spec->rank < 1)
        return mr_error_set(MR_ESHAPE, "keep_first: no dimension");
    spec->dim[0] = *(uint64_t *)user;
    return 0;
}

static int copy_first(void *user, const struct mr_spec *in_spec, const void *in,
                      const uint64_t *in_dim, const struct mr_spec *out_spec, void *out,
                      uint64_t *out_dim, const uint32_t random[4])
{
    (void)user;
    (void)in_dim;
    assert_true(random[0] | random[1] | random[2] | random[3]);
    memcpy(out, in, out_spec->dim[0] * mr_dtype_size(in_spec->dtype));
    return out_dim[0] == 3 ? 0 : mr_error_set(-5, "not three");
}

static void test_callers_own_op(void **state)
{
    (void)state;
    uint64_t keep = 3;
    struct mr_transform_fn fn = {.size = sizeof fn,
                                 .name = "first",
                                 .infer = keep_first,
                                 .apply = copy_first,
                                 .user = &keep};
    struct mr_transform *chain = make("cast(f32)");
    assert_int_equal(mr_transform_add_fn(chain, &fn), 0);
    assert_int_equal(mr_transform_add(chain, "scale(2)"), 0);
    assert_string_equal(mr_transform_text(chain), "cast(f32),first,scale(2)");
    struct mr_spec spec = spec_of(MR_U8, 1, 5, 0, 0);
    uint8_t in[5] = {1, 2, 3, 4, 5};
    float out[3];
    uint64_t dim[MR_MAX_RANK];
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_int_equal(apply_exact(chain, &spec, spec.dim, 0, in, out, dim), 0);
    assert_int_equal(dim[0], 3);
    assert_true(out[0] == 2 && out[2] == 6);
    keep = 4;
    assert_int_equal(mr_transform_bind(chain, &spec, 1), 0);
    assert_int_equal(apply_exact(chain, &spec, spec.dim, 0, in, out, dim), -5);
    spec.rank = 0;
    assert_int_equal(mr_transform_bind(chain, &spec, 1), MR_ESHAPE);
    fn.apply = NULL;
    assert_int_equal(mr_transform_add_fn(chain, &fn), MR_EOPTION);
    mr_transform_destroy(chain);
}

static int count_op(void *user, const char *name, const char *arguments, const char *summary)
{
    assert_true(name[0] && arguments && summary[0]);
    return ++*(int *)user == 100;
}

static void test_ops_are_listed(void **state)
{
    (void)state;
    int n = 0;
    assert_int_equal(mr_transform_each(count_op, &n), 0);
    assert_int_equal(n, 29);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_torch),
        cmocka_unit_test(test_casts_round_rightly),
        cmocka_unit_test(test_casts_at_halfway_points),
        cmocka_unit_test(test_every_half_survives),
        cmocka_unit_test(test_fused_is_bit_equal_to_plain),
        cmocka_unit_test(test_planes_are_bit_equal_to_plain),
        cmocka_unit_test(test_arithmetic_is_what_the_header_says),
        cmocka_unit_test(test_random_ops),
        cmocka_unit_test(test_draws_are_keyed),
        cmocka_unit_test(test_one_hot),
        cmocka_unit_test(test_variable_shapes),
        cmocka_unit_test(test_channels_of_variable_shapes),
        cmocka_unit_test(test_common_chains_take_one_pass),
        cmocka_unit_test(test_hwc_is_seen_by_its_shape),
        cmocka_unit_test(test_shape_errors_name_op_and_shape),
        cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_text_reads_back),
        cmocka_unit_test(test_callers_own_op),
        cmocka_unit_test(test_ops_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
