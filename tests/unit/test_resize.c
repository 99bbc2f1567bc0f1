/* White-box. Resampling and windows: against Pillow, whole pictures against parts of them, and by
 * properties. */
#include "transform/resample.h"
#include "unit.h"

#include <math.h>

struct resize_vector {
    uint64_t height, width;
    uint32_t channels;
    double box[4];
    uint64_t out_h, out_w;
    int filter;
    uint32_t sum;
    const char *out; /* hex; empty: too large, its sum alone */
};
#include "resize_vectors.h"

/* The same as in make_resize_vectors.py. */
static void draw(uint8_t *out, uint64_t height, uint64_t width, uint32_t channels)
{
    for (uint32_t i = 0; i < height * width * channels; i++) {
        uint32_t y = i / (uint32_t)(width * channels), x = i / channels % (uint32_t)width;
        uint32_t noise = i * 2654435761u >> 27;
        out[i] = (uint8_t)(x * 3 + y * 5 + noise * (x / 8 % 2) * 7);
    }
}

static uint32_t sum_of(const uint8_t *p, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += p[i] * (i * 2654435761u % 65521);
    return (uint32_t)sum;
}

static void check_vector(const struct resize_vector *v)
{
    uint64_t n = v->height * v->width * v->channels, n_out = v->out_h * v->out_w * v->channels;
    uint8_t *in = malloc(n), *out = malloc(n_out);
    draw(in, v->height, v->width, v->channels);
    struct mr_cut cut;
    mr_cut_all(v->width, v->height, &cut);
    cut.x = v->box[0];
    cut.y = v->box[1];
    cut.w = v->box[2] - v->box[0];
    cut.h = v->box[3] - v->box[1];
    cut.size_w = cut.out_w = v->out_w;
    cut.size_h = cut.out_h = v->out_h;
    cut.filter = v->filter;
    struct mr_source src = {.data = in,
                            .stride = v->width * v->channels,
                            .images = 1,
                            .width = v->width,
                            .height = v->height,
                            .scale_x = 1,
                            .scale_y = 1,
                            .dtype = MR_U8,
                            .channels = v->channels};
    void *work = aligned_alloc(
        64, mr_resample_work(MR_U8, v->channels, v->width, v->height, v->out_w, v->out_h));
    mr_resample(&cut, &src, out, work);
    for (uint64_t i = 0; i < n_out && v->out[0]; i++) {
        unsigned want;
        assert_int_equal(sscanf(v->out + 2 * i, "%2x", &want), 1);
        if (out[i] != want)
            fail_msg("%llux%llux%u to %llux%llu, filter %d: byte %llu: %u, Pillow %u",
                     (unsigned long long)v->height, (unsigned long long)v->width, v->channels,
                     (unsigned long long)v->out_h, (unsigned long long)v->out_w, v->filter,
                     (unsigned long long)i, out[i], want);
    }
    assert_int_equal(sum_of(out, n_out), v->sum);
    free(in);
    free(out);
    free(work);
}

static void test_u8_is_pillows_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(resize_vectors); i++)
        check_vector(&resize_vectors[i]);
}

static struct mr_transform *make(const char *text, const struct mr_spec *fields, int n)
{
    struct mr_transform *chain = NULL;
    assert_int_equal(mr_transform_create(&chain), 0);
    if (mr_transform_add(chain, text) || mr_transform_bind(chain, fields, n))
        fail_msg("%s: %s", text, mr_last_error());
    return chain;
}

static void *scratch_of(const struct mr_transform *chain)
{
    return aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(chain) + 1, 64));
}

enum { SIDE_H = 61, SIDE_W = 83, MAX_OUT = 64 * 64 * 3 };

static const struct mr_spec picture_spec = {
    .name = "image", .dtype = MR_U8, .rank = 3, .dim = {128, 128, 3}, .var_dims = 3};

/* What a decoder that heeds the window would hand over: the window's pixels and what filters need
 * around them. */
static void hold(const uint8_t *all, const struct mr_window *w, uint8_t *room,
                 struct mr_picture *out)
{
    double reach_x = 2 * fmax(w->w / w->out_w, 1) + 1, reach_y = 2 * fmax(w->h / w->out_h, 1) + 1;
    uint32_t x0 = (uint32_t)fmax(floor(w->x - reach_x), w->clip_x),
             y0 = (uint32_t)fmax(floor(w->y - reach_y), w->clip_y);
    uint32_t x1 = (uint32_t)fmin(ceil(w->x + w->w + reach_x), w->clip_x + w->clip_w);
    uint32_t y1 = (uint32_t)fmin(ceil(w->y + w->h + reach_y), w->clip_y + w->clip_h);
    *out = (struct mr_picture){.data = room,
                               .stride = (x1 - x0) * 3 + 5,
                               .width = x1 - x0,
                               .height = y1 - y0,
                               .channels = 3,
                               .x = x0,
                               .y = y0,
                               .scale_x = 1,
                               .scale_y = 1,
                               .full_width = SIDE_W,
                               .full_height = SIDE_H};
    for (uint32_t y = y0; y < y1; y++)
        memcpy(room + (y - y0) * out->stride, all + (y * (size_t)SIDE_W + x0) * 3, (x1 - x0) * 3);
}

static const char *const window_chains[] = {
    "random_resized_crop(24)",
    "random_resized_crop(24,filter=bicubic),hflip,cast(f32),scale(1/255)",
    "random_resized_crop(40,0.01,0.1,filter=nearest)",
    "resize(40),center_crop(32)",
    "resize(20,filter=bicubic),random_crop(16,12),crop(8,8)",
    "crop(50,60),resize(21,33)",
    "random_crop(50,60),crop(40,40,3,7),resize(30,max=30),random_crop(9,9),layout(nchw)",
    "crop(13,17)",
};

/* The chain from a part that was decoded, from the whole picture, and op by op. */
static void test_parts_give_what_wholes_give(void **state)
{
    (void)state;
    static uint8_t all[SIDE_H * SIDE_W * 3], room[SIDE_H * SIDE_W * 3 + SIDE_H * 5];
    static uint8_t a[MAX_OUT * 4], b[MAX_OUT * 4], c[MAX_OUT * 4];
    draw(all, SIDE_H, SIDE_W, 3);
    for (size_t k = 0; k < MR_COUNT(window_chains); k++) {
        struct mr_transform *chain = make(window_chains[k], &picture_spec, 1);
        struct mr_transform *plain = make(window_chains[k], &picture_spec, 1);
        assert_int_equal(mr_transform_bind_as(plain, &picture_spec, 1, true), 0);
        assert_true(mr_transform_has_window(chain, 0));
        void *scratch = scratch_of(chain), *other = scratch_of(plain);
        for (uint64_t index = 0; index < 40; index++) {
            struct mr_at at = {.seed = 3, .epoch = 1, .index = index};
            uint64_t dim[MR_MAX_RANK] = {SIDE_H, SIDE_W, 3}, dim_a[MR_MAX_RANK], dim_b[MR_MAX_RANK];
            struct mr_window w;
            struct mr_picture p;
            assert_int_equal(mr_transform_apply_at(chain, 0, &at, all, dim, a, dim_a, scratch), 0);
            assert_int_equal(mr_transform_apply_at(plain, 0, &at, all, dim, b, dim_b, other), 0);
            assert_memory_equal(dim_a, dim_b, 3 * sizeof *dim_a);
            uint64_t bytes =
                mr_dims_after(dim_a, 3, -1) * mr_dtype_size(mr_transform_specs(chain)->dtype);
            assert_memory_equal(a, b, bytes);
            assert_int_equal(mr_transform_window(chain, 0, &at, SIDE_W, SIDE_H, &w), 0);
            assert_true(w.x >= w.clip_x && w.x + w.w <= w.clip_x + w.clip_w &&
                        w.y + w.h <= w.clip_y + w.clip_h);
            assert_true(w.clip_x + w.clip_w <= SIDE_W && w.clip_y + w.clip_h <= SIDE_H);
            hold(all, &w, room, &p);
            at.picture = &p;
            uint64_t held[MR_MAX_RANK] = {p.height, p.width, 3};
            assert_int_equal(mr_transform_apply_at(chain, 0, &at, p.data, held, c, dim_b, scratch),
                             0);
            assert_memory_equal(dim_a, dim_b, 3 * sizeof *dim_a);
            assert_memory_equal(a, c, bytes);
        }
        free(scratch);
        free(other);
        mr_transform_destroy(chain);
        mr_transform_destroy(plain);
    }
}

/* Half-size pixels, made by averaging, resampled to the window give about what the full ones
 * give. */
static void test_scaled_pictures(void **state)
{
    (void)state;
    enum { H = 96, W = 128 };
    static uint8_t all[H * W * 3], half[H / 2 * W / 2 * 3], a[MAX_OUT], b[MAX_OUT];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++)
                all[(y * W + x) * 3 + c] =
                    (uint8_t)(128 + 60 * sin(x / 17.0 + c) + 50 * cos(y / 23.0));
    for (int y = 0; y < H / 2; y++)
        for (int x = 0; x < W / 2; x++)
            for (int c = 0; c < 3; c++) {
                const uint8_t *p = all + (2 * y * W + 2 * x) * 3 + c;
                half[(y * (W / 2) + x) * 3 + c] =
                    (uint8_t)((p[0] + p[3] + p[W * 3] + p[W * 3 + 3] + 2) / 4);
            }
    struct mr_picture p = {half, W / 2 * 3, W / 2, H / 2, 3, 0, 0, 0.5, 0.5, W, H};
    struct mr_transform *chain = make("random_resized_crop(16,0.3,1)", &picture_spec, 1);
    void *scratch = scratch_of(chain);
    for (uint64_t index = 0; index < 50; index++) {
        struct mr_at at = {.seed = 9, .index = index};
        uint64_t dim[MR_MAX_RANK] = {H, W, 3}, out_dim[MR_MAX_RANK],
                 held[MR_MAX_RANK] = {H / 2, W / 2, 3};
        assert_int_equal(mr_transform_apply_at(chain, 0, &at, all, dim, a, out_dim, scratch), 0);
        at.picture = &p;
        assert_int_equal(mr_transform_apply_at(chain, 0, &at, half, held, b, out_dim, scratch), 0);
        for (int i = 0; i < 16 * 16 * 3; i++)
            assert_in_range(abs(a[i] - b[i]), 0, 4);
    }
    free(scratch);
    mr_transform_destroy(chain);
}

/* A flat picture stays flat, a constant number that is no integer too, in every dtype and
 * layout. */
static void test_flat_stays_flat(void **state)
{
    (void)state;
    static const enum mr_dtype dtypes[] = {MR_U8, MR_I16, MR_F16, MR_F32, MR_F64, MR_U16, MR_I64};
    static const char *const chains[] = {"resize(7,29)", "resize(31,5,bicubic)",
                                         "resize(9,9,nearest)", "resize(3)"};
    static unsigned char in[4 * 23 * 17 * 3 * 8], out[4 * 31 * 31 * 3 * 8];
    for (size_t k = 0; k < MR_COUNT(dtypes) * MR_COUNT(chains) * 4; k++) {
        enum mr_dtype dtype = dtypes[k / 4 % MR_COUNT(dtypes)];
        struct mr_spec spec = {
            .name = "image", .dtype = dtype, .rank = 3 + (int)(k / 2 % 2), .dim = {4, 4, 4, 4}};
        uint64_t *dim = spec.dim + (spec.rank - 3);
        memcpy(dim, k % 2 ? (uint64_t[]){3, 23, 17} : (uint64_t[]){23, 17, 3}, 3 * sizeof *dim);
        size_t size = mr_dtype_size(dtype);
        for (uint64_t i = 0; i < mr_dims_after(spec.dim, spec.rank, -1); i++)
            mr_element_from_double(dtype, 77.25, in + i * size);
        struct mr_transform *chain = make(chains[k / 4 / MR_COUNT(dtypes)], &spec, 1);
        void *scratch = scratch_of(chain);
        uint64_t out_dim[MR_MAX_RANK];
        assert_int_equal(mr_transform_apply(chain, 0, 0, 0, 0, in, spec.dim, out, out_dim, scratch),
                         0);
        for (uint64_t i = 0; i < mr_dims_after(out_dim, spec.rank, -1); i++) {
            double value;
            memcpy(in, out + i * size, size); /* aligned */
            mr_load_f64(dtype)(in, &value, 1);
            assert_true(fabs(value - (dtype >= MR_F16 ? 77.25 : 77)) < 1e-4);
            mr_element_from_double(dtype, 77.25, in);
        }
        assert_int_equal(out_dim[spec.rank - 1 - (k % 2 == 0)],
                         mr_transform_specs(chain)->dim[spec.rank - 1 - (k % 2 == 0)]);
        free(scratch);
        mr_transform_destroy(chain);
    }
}

/* Floats of whole numbers come near the bytes that u8 gives: they differ by its two roundings. */
static void test_floats_are_near_bytes(void **state)
{
    (void)state;
    static uint8_t in[SIDE_H * SIDE_W * 3], out[MAX_OUT];
    static float in_f[SIDE_H * SIDE_W * 3], out_f[MAX_OUT];
    draw(in, SIDE_H, SIDE_W, 3);
    for (size_t i = 0; i < MR_COUNT(in); i++)
        in_f[i] = in[i];
    struct mr_spec spec = {.name = "image", .dtype = MR_U8, .rank = 3, .dim = {SIDE_H, SIDE_W, 3}},
                   f = spec;
    f.dtype = MR_F32;
    struct mr_transform *a = make("resize(24,40)", &spec, 1), *b = make("resize(24,40)", &f, 1);
    void *scratch_a = scratch_of(a), *scratch_b = scratch_of(b);
    uint64_t dim[MR_MAX_RANK];
    assert_int_equal(mr_transform_apply(a, 0, 0, 0, 0, in, spec.dim, out, dim, scratch_a), 0);
    assert_int_equal(mr_transform_apply(b, 0, 0, 0, 0, in_f, spec.dim, out_f, dim, scratch_b), 0);
    for (int i = 0; i < 24 * 40 * 3; i++)
        assert_true(fabsf((float)out[i] - out_f[i]) <= 1.01f);
    free(scratch_a);
    free(scratch_b);
    mr_transform_destroy(a);
    mr_transform_destroy(b);
}

/* Areas and shapes of random_resized_crop lie in their ranges and use them. */
static void test_random_parts(void **state)
{
    (void)state;
    struct mr_transform *chain = make("random_resized_crop(32,0.2,0.6,0.8,1.25)", &picture_spec, 1);
    double least = 1, most = 0, flat = 9, tall = 0;
    for (uint64_t index = 0; index < 2000; index++) {
        struct mr_at at = {.seed = 1, .index = index};
        struct mr_window w;
        assert_int_equal(mr_transform_window(chain, 0, &at, 100, 90, &w), 0);
        double area = w.w * w.h / 9000, ratio = w.w / w.h;
        assert_true(area > 0.19 && area < 0.62 && ratio > 0.76 && ratio < 1.3);
        assert_true(w.x + w.w <= 100 && w.y + w.h <= 90);
        least = fmin(least, area);
        most = fmax(most, area);
        flat = fmin(flat, ratio);
        tall = fmax(tall, ratio);
    }
    assert_true(least < 0.21 && most > 0.59 && flat < 0.82 && tall > 1.22);
    struct mr_window w;
    struct mr_at at = {.index = 4};
    assert_int_equal(mr_transform_window(chain, 0, &at, 1000, 10, &w),
                     0); /* no part fits: the middle */
    assert_true(w.h == 10 && w.w == 12 && w.x == 494);
    mr_transform_destroy(chain);
}

static void test_bad_sizes_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"resize",
                                        "resize(0)",
                                        "resize(4,5,max=9)",
                                        "resize(9,max=4)",
                                        "resize(4,filter=lanczos)",
                                        "random_resized_crop",
                                        "random_resized_crop(8,0.5,0.4)",
                                        "random_resized_crop(8,0,1)",
                                        "random_resized_crop(8,ratio_min=2,ratio_max=1)",
                                        "center_crop",
                                        "center_crop(0)"};
    struct mr_transform *chain;
    assert_int_equal(mr_transform_create(&chain), 0);
    for (size_t i = 0; i < MR_COUNT(texts); i++)
        if (mr_transform_add(chain, texts[i]) != MR_EOPTION)
            fail_msg("%s was taken", texts[i]);
    assert_int_equal(mr_transform_add(chain, "random_resized_crop(8)"), 0);
    assert_int_equal(mr_transform_bind(chain, &picture_spec, 1), 0);
    struct mr_at at = {.index = 1};
    uint64_t dim[MR_MAX_RANK] = {0, 4, 3}, out_dim[MR_MAX_RANK];
    void *scratch = scratch_of(chain);
    unsigned char out[8 * 8 * 3];
    assert_int_equal(mr_transform_apply_at(chain, 0, &at, out, dim, out, out_dim, scratch),
                     MR_ESHAPE);
    free(scratch);
    mr_transform_destroy(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u8_is_pillows_bit_for_bit),
        cmocka_unit_test(test_parts_give_what_wholes_give),
        cmocka_unit_test(test_scaled_pictures),
        cmocka_unit_test(test_flat_stays_flat),
        cmocka_unit_test(test_floats_are_near_bytes),
        cmocka_unit_test(test_random_parts),
        cmocka_unit_test(test_bad_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
