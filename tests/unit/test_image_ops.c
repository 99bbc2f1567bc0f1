/* White-box. Ops on pictures: against torchvision, layouts against each other, points against
 * pixels. */
#include "transform/transform.h"
#include "unit.h"

#include <math.h>

struct image_vector {
    const char *chain;
    uint64_t index;
    enum mr_dtype dtype;
    uint64_t dim[3];
    double most;          /* how far a value may be from torchvision's */
    double percent;       /* how many may differ */
    const char *in, *out; /* hex */
};
#include "image_vectors.h"
#include "pillow_vectors.h"

enum { MAX_BYTES = 1 << 16 };

static struct mr_transform *make(const char *text, const struct mr_spec *fields, int n)
{
    struct mr_transform *chain = NULL;
    assert_int_equal(mr_transform_create(&chain), 0);
    if (mr_transform_add(chain, text) || mr_transform_bind(chain, fields, n))
        fail_msg("%s: %s", text, mr_last_error());
    return chain;
}

/* Between buffers of exact size, so that AddressSanitizer sees a byte too many. */
static void apply(const struct mr_transform *chain, const struct mr_spec *spec, int field,
                  uint64_t index, const void *in, void *out, uint64_t *out_dim)
{
    const struct mr_spec *made = &mr_transform_specs(chain)[field];
    uint64_t in_bytes, out_bytes;
    assert_int_equal(mr_spec_bytes(spec, &in_bytes), 0);
    assert_int_equal(mr_spec_bytes(made, &out_bytes), 0);
    char *a = malloc(in_bytes), *b = malloc(out_bytes);
    void *scratch = aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(chain) + 1, 64));
    memcpy(a, in, in_bytes);
    int rc = mr_transform_apply(chain, field, 5, 2, index, a, spec->dim, b, out_dim, scratch);
    if (rc)
        fail_msg("%s", mr_last_error());
    memcpy(out, b, out_bytes);
    free(a);
    free(b);
    free(scratch);
}

static uint64_t from_hex(const char *text, unsigned char *out)
{
    uint64_t n = 0;
    unsigned byte;
    for (; sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
        out[n] = (unsigned char)byte;
    return n;
}

static double value_at(enum mr_dtype dtype, const unsigned char *p, uint64_t i)
{
    float f;
    memcpy(&f, p + (dtype == MR_F32 ? 4 * i : 0), 4);
    return dtype == MR_U8 ? p[i] : (double)f;
}

static void compare(const struct image_vector *v, const unsigned char *got,
                    const unsigned char *want, uint64_t n)
{
    uint64_t different = 0;
    for (uint64_t i = 0; i < n; i++) {
        double a = value_at(v->dtype, got, i), b = value_at(v->dtype, want, i);
        different += a != b;
        if (!(fabs(a - b) <= v->most))
            fail_msg("%s, sample %d: element %d: %g, torchvision %g", v->chain, (int)v->index,
                     (int)i, a, b);
    }
    if ((double)different * 100 > v->percent * (double)n)
        fail_msg("%s, sample %d: %d of %d elements differ from torchvision's", v->chain,
                 (int)v->index, (int)different, (int)n);
}

/* [c, h, w] to [h, w, c], or back. */
static void turn(const unsigned char *in, unsigned char *out, uint64_t channels, uint64_t pixels,
                 size_t size, bool back)
{
    for (uint64_t c = 0; c < channels; c++)
        for (uint64_t i = 0; i < pixels; i++)
            memcpy(out + (back ? c * pixels + i : i * channels + c) * size,
                   in + (back ? i * channels + c : c * pixels + i) * size, size);
}

static void agree(const struct image_vector *vectors, size_t n_vectors)
{
    static unsigned char in[MAX_BYTES], want[MAX_BYTES], got[MAX_BYTES], turned[MAX_BYTES],
        again[MAX_BYTES];
    for (size_t k = 0; k < n_vectors; k++) {
        const struct image_vector *v = &vectors[k];
        size_t size = mr_dtype_size(v->dtype);
        struct mr_spec spec = {.name = "image", .dtype = v->dtype, .rank = 3}, nhwc = spec;
        memcpy(spec.dim, v->dim, sizeof v->dim);
        memcpy(nhwc.dim, (uint64_t[]){v->dim[1], v->dim[2], v->dim[0]}, sizeof v->dim);
        from_hex(v->in, in);
        uint64_t n = from_hex(v->out, want) / size, dim[MR_MAX_RANK];
        struct mr_transform *chain = make(v->chain, &spec, 1), *other = make(v->chain, &nhwc, 1);
        apply(chain, &spec, 0, v->index, in, got, dim);
        assert_int_equal(dim[0] * dim[1] * dim[2], n);
        compare(v, got, want, n);
        turn(in, turned, v->dim[0], v->dim[1] * v->dim[2], size, false);
        apply(other, &nhwc, 0, v->index, turned, again, dim);
        turn(again, turned, dim[2], dim[0] * dim[1], size, true);
        assert_memory_equal(turned, got, n * size);
        mr_transform_destroy(chain);
        mr_transform_destroy(other);
    }
}

static void test_agrees_with_torchvision(void **state)
{
    (void)state;
    agree(image_vectors, MR_COUNT(image_vectors));
}

static void test_agrees_with_pillow(void **state)
{
    (void)state;
    agree(pillow_vectors, MR_COUNT(pillow_vectors));
}

/* A clip is changed as its frames are, each in the same way. */
static void test_clips_are_their_frames(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "random_resized_crop(9)", "hflip",      "vflip",    "color_jitter(0.4,0.4,0.4,0.1)",
        "gaussian_blur(3)",       "rotate(30)", "erase(1)", "to_gray(0.5)",
        "pad(2),crop(9,9)"};
    enum { T = 3, H = 12, W = 14, FRAME = H * W * 3 };
    static unsigned char in[T * FRAME], whole[MAX_BYTES], one[MAX_BYTES];
    struct mr_spec clip = {.name = "image", .dtype = MR_U8, .rank = 4, .dim = {T, H, W, 3}},
                   frame = clip;
    frame.rank = 3;
    memcpy(frame.dim, clip.dim + 1, 3 * sizeof *frame.dim);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)test_u64((uint32_t)i);
    for (size_t k = 0; k < MR_COUNT(chains); k++) {
        struct mr_transform *a = make(chains[k], &clip, 1), *b = make(chains[k], &frame, 1);
        uint64_t dim[MR_MAX_RANK], dim_b[MR_MAX_RANK];
        for (uint64_t index = 0; index < 4; index++) {
            apply(a, &clip, 0, index, in, whole, dim);
            for (int t = 0; t < T; t++) {
                apply(b, &frame, 0, index, in + t * FRAME, one, dim_b);
                assert_memory_equal(dim + 1, dim_b, 3 * sizeof *dim);
                uint64_t bytes = dim_b[0] * dim_b[1] * dim_b[2];
                assert_memory_equal(whole + (uint64_t)t * bytes, one, bytes);
            }
        }
        mr_transform_destroy(a);
        mr_transform_destroy(b);
    }
}

/* Where the light is, by its centre of mass. */
static bool find_light(const float *image, const uint64_t *dim, double out[2])
{
    double sum = 0, x = 0, y = 0;
    for (uint64_t i = 0; i < dim[0] * dim[1]; i++) {
        uint64_t row = i / dim[1], column = i % dim[1];
        sum += (double)image[i];
        x += (double)column * (double)image[i];
        y += (double)row * (double)image[i];
    }
    out[0] = x / sum;
    out[1] = y / sum;
    return sum > 0;
}

static const char *const moving_chains[] = {
    "hflip",
    "vflip",
    "rotate(40)",
    "pad(3:4:5:6)",
    "resize(90,50)",
    "resize(33)",
    "random_resized_crop(64,0.5,1)",
    "crop(50,50)",
    "random_crop(52,50)",
    "resize(80),center_crop(70)",
    "hflip,rotate(20),pad(4),random_resized_crop(70,0.6,1),vflip,layout(nchw)",
};

/* A drawn spot ends where the point ends. */
static void test_points_follow_pixels(void **state)
{
    (void)state;
    enum { H = 60, W = 68 };
    static float in[H * W], out[120 * 120];
    struct mr_spec specs[2] = {{.name = "image", .dtype = MR_F32, .rank = 3, .dim = {H, W, 1}},
                               {.name = "points", .dtype = MR_F32, .rank = 2, .dim = {2, 2}}};
    for (size_t k = 0; k < MR_COUNT(moving_chains); k++) {
        struct mr_transform *chain = make(moving_chains[k], specs, 2);
        assert_false(mr_transform_is_identity(chain, 1));
        for (uint64_t index = 0; index < 12; index++) {
            float point[4] = {30.25f + (float)(index % 4), 27.75f + (float)(index % 3), NAN, 1},
                  moved[4];
            uint64_t dim[MR_MAX_RANK], points_dim[MR_MAX_RANK];
            for (int i = 0; i < H * W; i++) {
                int row = i / W, column = i % W;
                float dx = (float)column - point[0], dy = (float)row - point[1];
                in[i] = expf(-(dx * dx + dy * dy) / 8);
            }
            apply(chain, &specs[0], 0, index, in, out, dim);
            apply(chain, &specs[1], 1, index, point, moved, points_dim);
            if (dim[0] == 1) /* layout(nchw) */
                memmove(dim, dim + 1, 2 * sizeof *dim);
            double light[2];
            bool inside = moved[0] > 10 && moved[1] > 10 && moved[0] < (float)dim[1] - 11 &&
                          moved[1] < (float)dim[0] - 11;
            assert_true(find_light(out, dim, light) || !inside);
            if (inside && (fabs(light[0] - (double)moved[0]) > 0.15 ||
                           fabs(light[1] - (double)moved[1]) > 0.15))
                fail_msg("%s: the spot is at %g, %g, the point at %g, %g", moving_chains[k],
                         light[0], light[1], (double)moved[0], (double)moved[1]);
            assert_true(isnan(moved[2]));
        }
        mr_transform_destroy(chain);
    }
}

/* The picture may stand anywhere among the fields, and so may the points. */
static void test_points_follow_the_picture(void **state)
{
    (void)state;
    const struct mr_spec image = {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {40, 50, 3}};
    const struct mr_spec depth = {.name = "depth", .dtype = MR_U8, .rank = 3, .dim = {40, 50, 3}};
    const struct mr_spec points = {.name = "points", .dtype = MR_F64, .rank = 1, .dim = {2}};
    const struct mr_spec label = {.name = "label", .dtype = MR_I64};
    const struct mr_spec orders[][3] = {
        {label, image, points}, {points, label, image}, {depth, points, image}};
    const int at[] = {2, 0, 1};
    for (size_t i = 0; i < MR_COUNT(orders); i++) {
        struct mr_transform *chain =
            make(i == 2 ? "hflip(1),image.resize(20,100)" : "image.resize(20,100)", orders[i], 3);
        double in[2] = {24.5, 19.5}, out[2];
        uint64_t dim[MR_MAX_RANK];
        apply(chain, &orders[i][at[i]], at[i], 0, in, out, dim);
        assert_true(fabs(out[0] - 49.5) < 1e-9 && fabs(out[1] - 9.5) < 1e-9);
        mr_transform_destroy(chain);
    }
    struct mr_transform *chain = make("hflip(1)", (const struct mr_spec[]){depth, points}, 2);
    double in[2] = {0, 3}, out[2];
    uint64_t dim[MR_MAX_RANK];
    apply(chain, &points, 1, 0, in, out, dim);
    assert_true(out[0] == 49 && out[1] == 3);
    mr_transform_destroy(chain);
}

static void test_points_have_ops_of_their_own(void **state)
{
    (void)state;
    struct mr_spec specs[2] = {{.name = "image", .dtype = MR_U8, .rank = 3, .dim = {40, 50, 3}},
                               {.name = "points", .dtype = MR_F64, .rank = 1, .dim = {2}}};
    struct mr_transform *chain =
        make("resize(20,100),points.scale(1/100),points.cast(f32)", specs, 2);
    double in[2] = {24.5, 19.5};
    float out[2];
    uint64_t dim[MR_MAX_RANK];
    apply(chain, &specs[1], 1, 0, in, out, dim);
    assert_true(fabsf(out[0] - 0.495f) < 1e-6f && fabsf(out[1] - 0.095f) < 1e-6f);
    mr_transform_destroy(chain);
    chain = make("cast(f32)", specs, 2);
    assert_true(mr_transform_is_identity(chain, 1));
    mr_transform_destroy(chain);
}

static void test_chances(void **state)
{
    (void)state;
    static const char *const chains[] = {"vflip(0.25)", "to_gray(0.25)", "erase(0.25,value=9)"};
    unsigned char in[6 * 6 * 3], out[6 * 6 * 3];
    struct mr_spec spec = {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {6, 6, 3}};
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(test_u64((uint32_t)i) | 16);
    for (size_t k = 0; k < MR_COUNT(chains); k++) {
        struct mr_transform *chain = make(chains[k], &spec, 1);
        int changed = 0;
        for (uint64_t index = 0; index < 1000; index++) {
            uint64_t dim[MR_MAX_RANK];
            apply(chain, &spec, 0, index, in, out, dim);
            changed += memcmp(in, out, sizeof in) != 0;
        }
        assert_in_range(changed, 190, 310);
        mr_transform_destroy(chain);
    }
}

static void test_rotate_fills(void **state)
{
    (void)state;
    unsigned char in[9 * 11], out[9 * 11];
    struct mr_spec spec = {.name = "image", .dtype = MR_U8, .rank = 2, .dim = {9, 11}};
    struct mr_transform *same = make("rotate(180,200)", &spec, 1),
                        *other = make("rotate(180,50)", &spec, 1);
    uint64_t dim[MR_MAX_RANK];
    memset(in, 200, sizeof in);
    apply(same, &spec, 0, 1, in, out, dim);
    assert_memory_equal(in, out, sizeof in);
    apply(other, &spec, 0, 1, in, out, dim);
    assert_true(out[0] == 50 && out[sizeof out / 2] == 200);
    mr_transform_destroy(same);
    mr_transform_destroy(other);
}

static void test_misfits_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "gaussian_blur(4)", "gaussian_blur",      "gaussian_blur(3,0,1)",
        "rotate(200)",      "color_jitter(-1)",   "color_jitter(hue=0.6)",
        "erase(2)",         "erase(scale_min=0)", "vflip(1.5)",
        "rotate(2:1)",      "color_jitter(2:1)",  "color_jitter(hue=-0.6:0)",
        "rotate(1:2:3)",    "to_gray(like=me)",   "resize(9,order=down)"};
    static const struct {
        const char *chain;
        struct mr_spec spec;
    } misfits[] = {
        {"color_jitter(1)", {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {8, 8, 1}}},
        {"to_gray", {.name = "image", .dtype = MR_F64, .rank = 3, .dim = {8, 8, 3}}},
        {"rotate(9)", {.name = "image", .dtype = MR_I64, .rank = 3, .dim = {8, 8, 3}}},
        {"vflip", {.name = "image", .dtype = MR_U8, .rank = 1, .dim = {8}}},
        {"to_gray(like=pillow)", {.name = "image", .dtype = MR_F32, .rank = 3, .dim = {8, 8, 3}}},
        {"rotate(9,like=pillow)", {.name = "image", .dtype = MR_F32, .rank = 3, .dim = {8, 8, 3}}},
    };
    struct mr_transform *chain;
    assert_int_equal(mr_transform_create(&chain), 0);
    for (size_t i = 0; i < MR_COUNT(texts); i++)
        if (mr_transform_add(chain, texts[i]) != MR_EOPTION)
            fail_msg("%s was taken", texts[i]);
    mr_transform_destroy(chain);
    for (size_t i = 0; i < MR_COUNT(misfits); i++) {
        assert_int_equal(mr_transform_create(&chain), 0);
        assert_int_equal(mr_transform_add(chain, misfits[i].chain), 0);
        assert_int_equal(mr_transform_bind(chain, &misfits[i].spec, 1), MR_ESHAPE);
        mr_transform_destroy(chain);
    }
    struct mr_spec spec = {
        .name = "image", .dtype = MR_U8, .rank = 3, .dim = {8, 8, 3}, .var_dims = 3};
    chain = make("gaussian_blur(5)", &spec, 1);
    unsigned char in[8 * 8 * 3] = {0}, out[8 * 8 * 3];
    uint64_t dim[MR_MAX_RANK] = {2, 8, 3}, out_dim[MR_MAX_RANK];
    void *scratch = aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(chain), 64));
    assert_int_equal(mr_transform_apply(chain, 0, 0, 0, 0, in, dim, out, out_dim, scratch),
                     MR_ESHAPE);
    dim[0] = 3;
    assert_int_equal(mr_transform_apply(chain, 0, 0, 0, 0, in, dim, out, out_dim, scratch), 0);
    free(scratch);
    mr_transform_destroy(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_torchvision),
        cmocka_unit_test(test_agrees_with_pillow),
        cmocka_unit_test(test_clips_are_their_frames),
        cmocka_unit_test(test_points_follow_pixels),
        cmocka_unit_test(test_points_follow_the_picture),
        cmocka_unit_test(test_points_have_ops_of_their_own),
        cmocka_unit_test(test_chances),
        cmocka_unit_test(test_rotate_fills),
        cmocka_unit_test(test_misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
