/*
 * White-box. Pictures: what a window gets equals the same place of the whole decode, in every
 * layout of JPEG, at every scale and orientation; formats, options, limits and damage.
 */
#include "codec/image.h"
#include "picture_make.h"
#include "unit.h"

#include <errno.h>
#include <math.h>

static struct mr_decoder *decoder, *other;

static int setup(void **state)
{
    (void)state;
    return mr_decoder_create(&decoder) || mr_decoder_create(&other);
}

static int teardown(void **state)
{
    (void)state;
    mr_decoder_destroy(decoder);
    mr_decoder_destroy(other);
    return 0;
}

struct wish {
    struct mr_window w;
    uint32_t width, height;
    int asked, rc;
};

static int wish_tell(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    struct wish *wish = user;
    wish->asked++;
    wish->width = width;
    wish->height = height;
    *out = wish->w;
    return wish->rc;
}

static const struct mr_image_opts rgb = {.channels = 3}, exact = {.channels = 3, .exact = true};

static void decode_whole(struct mr_decoder *d, const struct mr_image_opts *opts,
                         const struct encoded *e, struct mr_picture *out)
{
    int rc = mr_image_decode(d, opts, "whole", e->data, e->bytes, NULL, NULL, out);
    if (rc)
        print_error("%s\n", mr_last_error());
    assert_int_equal(rc, 0);
}

/* Every pixel of `part` is that of `whole`, which begins at 0, 0. */
static void assert_part(const struct mr_picture *part, const struct mr_picture *whole)
{
    assert_int_equal(part->channels, whole->channels);
    assert_true(part->x + part->width <= whole->width && part->y + part->height <= whole->height);
    for (uint32_t y = 0; y < part->height; y++) {
        const uint8_t *a = part->data + y * part->stride;
        const uint8_t *b =
            whole->data + (y + part->y) * whole->stride + (uint64_t)part->x * whole->channels;
        for (uint32_t i = 0; i < part->width * part->channels; i++)
            if (a[i] != b[i])
                fail_msg(
                    "pixel %u, %u of %u x %u at %u, %u (of %u x %u, scale %g): %u, expected %u",
                    i / part->channels, y, part->width, part->height, part->x, part->y,
                    whole->width, whole->height, part->scale_x, a[i], b[i]);
    }
}

/* The decoded part holds the window's box; at least the output's size unless that is larger than
 * the box. */
static void assert_covers(const struct mr_picture *p, const struct mr_window *w)
{
    assert_true(p->x <= w->x * p->scale_x && p->y <= w->y * p->scale_y);
    assert_true(p->x + p->width >= (w->x + w->w) * p->scale_x - 1e-9);
    assert_true(p->y + p->height >= (w->y + w->h) * p->scale_y - 1e-9);
    assert_true(p->scale_x == 1 || w->w * p->scale_x >= w->out_w);
    assert_true(p->scale_y == 1 || w->h * p->scale_y >= w->out_h);
}

/* A box anywhere, its clip around it, an output of up to 1.5 times its size; sometimes whole
 * pixels, not resampled. */
static struct mr_window window_any(uint32_t seed, uint32_t width, uint32_t height)
{
    uint32_t r[8];
    for (uint32_t i = 0; i < 8; i++)
        r[i] = (uint32_t)test_u64(seed * 8 + i);
    struct mr_window w = {.clip_x = r[0] % width, .clip_y = r[1] % height};
    w.clip_w = 1 + r[2] % (width - w.clip_x);
    w.clip_h = 1 + r[3] % (height - w.clip_y);
    w.w = MR_MAX(1, w.clip_w * (r[4] % 100 + 1) / 100);
    w.h = MR_MAX(1, w.clip_h * (r[5] % 100 + 1) / 100);
    w.x = w.clip_x + floor((w.clip_w - w.w) * mr_unit_f32(r[6]));
    w.y = w.clip_y + floor((w.clip_h - w.h) * mr_unit_f32(r[7]));
    w.out_w = (uint32_t)w.w;
    w.out_h = (uint32_t)w.h;
    if (seed % 4 == 0)
        return w;
    w.out_w = 1 + r[6] % (uint32_t)(w.w * 3 / 2 + 1);
    w.out_h = 1 + r[7] % (uint32_t)(w.h * 3 / 2 + 1);
    if (w.w > 2 && w.h > 2) {
        w.x += 0.25;
        w.w -= 0.75;
        w.h -= 0.5;
    }
    return w;
}

/* Windows of one picture: each is the same place of the decode of everything at the same scale. */
static void check_windows(const struct encoded *e, uint32_t width, uint32_t height, int n)
{
    for (int i = 0; i < n; i++) {
        struct wish wish = {.w = window_any((uint32_t)i, width, height)}, all = {0};
        struct mr_picture part, whole;
        const struct mr_image_opts *opts = i % 5 == 0 ? &exact : &rgb;
        int rc = mr_image_decode(decoder, opts, "part", e->data, e->bytes, wish_tell, &wish, &part);
        if (rc)
            print_error("%s\n", mr_last_error());
        assert_int_equal(rc, 0);
        assert_int_equal(wish.asked, 1);
        assert_int_equal(wish.width, width);
        assert_int_equal(wish.height, height);
        assert_int_equal(part.full_width, width);
        assert_int_equal(part.full_height, height);
        assert_true(part.scale_x == part.scale_y && (part.scale_x == 1 || opts == &rgb));
        assert_covers(&part, &wish.w);
        /* asked for all of it at a size that makes this scale the smallest that serves */
        all.w = (struct mr_window){.w = width, .h = height, .clip_w = width, .clip_h = height};
        all.w.out_w = (uint32_t)MR_MAX(1, floor(width * part.scale_x));
        all.w.out_h = (uint32_t)MR_MAX(1, floor(height * part.scale_y));
        rc = mr_image_decode(other, part.scale_x == 1 ? &exact : &rgb, "all", e->data, e->bytes,
                             wish_tell, &all, &whole);
        assert_int_equal(rc, 0);
        if (whole.scale_x != part.scale_x) /* a tiny picture: a smaller scale serves as well */
            continue;
        assert_int_equal(whole.width, ceil(width * whole.scale_x));
        assert_int_equal(whole.height, ceil(height * whole.scale_y));
        assert_part(&part, &whole);
    }
}

static void jpeg_windows_in_every_layout(void **state)
{
    (void)state;
    static const struct picture_make layouts[] = {
        {.components = 3, .h = {1, 1, 1}, .v = {1, 1, 1}},
        {.components = 3, .h = {2, 1, 1}, .v = {1, 1, 1}},
        {.components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}},
        {.components = 3, .h = {1, 1, 1}, .v = {2, 1, 1}},
        {.components = 3, .h = {4, 1, 1}, .v = {1, 1, 1}},
        {.components = 3, .h = {4, 1, 1}, .v = {2, 1, 1}},
        {.components = 3, .h = {2, 2, 1}, .v = {2, 1, 2}},
        {.components = 3, .h = {1, 2, 2}, .v = {1, 2, 2}},
        {.components = 3, .h = {3, 1, 1}, .v = {1, 1, 1}},
        {.components = 1, .h = {1}, .v = {1}},
        {.components = 1, .h = {2}, .v = {2}},
        {.components = 4, .h = {1, 1, 1, 1}, .v = {1, 1, 1, 1}},
        {.components = 4, .h = {2, 1, 1, 2}, .v = {2, 1, 1, 2}},
    };
    static const uint32_t sizes[][2] = {{211, 157}, {160, 96}, {17, 33}, {7, 5}, {1, 1}};
    for (size_t l = 0; l < MR_COUNT(layouts); l++)
        for (size_t s = 0; s < MR_COUNT(sizes); s++)
            for (int kind = 0; kind < 3; kind++) {
                struct picture_make make = layouts[l];
                make.width = sizes[s][0];
                make.height = sizes[s][1];
                make.progressive = kind == 1;
                make.restart_rows = kind == 2;
                struct encoded e = jpeg_make(&make);
                check_windows(&e, make.width, make.height, s < 2 ? 40 : 10);
                free(e.data);
            }
}

static void jpeg_windows_in_every_orientation(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{211, 157}, {160, 96}, {164, 97}};
    for (int orientation = 1; orientation <= 8; orientation++)
        for (size_t s = 0; s < MR_COUNT(sizes); s++) {
            struct picture_make make = {.width = sizes[s][0],
                                        .height = sizes[s][1],
                                        .components = 3,
                                        .h = {2, 1, 1},
                                        .v = {2, 1, 1},
                                        .orientation = orientation,
                                        .motorola = s == 1};
            struct encoded e = jpeg_make(&make);
            bool swap = orientation > 4;
            check_windows(&e, swap ? make.height : make.width, swap ? make.width : make.height, 60);
            free(e.data);
        }
}

/* Where a stored pixel of a w x h picture comes to lie: EXIF's words on row 0 and column 0. */
static void upright_of(int orientation, uint32_t w, uint32_t h, uint32_t x, uint32_t y, uint32_t *u,
                       uint32_t *v)
{
    uint32_t right = w - 1 - x, bottom = h - 1 - y;
    const uint32_t places[9][2] = {
        [1] = {x, y}, [2] = {right, y},  [3] = {right, bottom}, [4] = {x, bottom},
        [5] = {y, x}, [6] = {bottom, x}, [7] = {bottom, right}, [8] = {y, right}};
    *u = places[orientation][0];
    *v = places[orientation][1];
}

static void orientation_turns(void **state)
{
    (void)state;
    static const struct mr_image_opts stored_opts = {.channels = 3, .ignore_orientation = true};
    for (int format = MR_IMAGE_JPEG; format < MR_N_IMAGE_FORMATS; format++)
        for (int orientation = 1; orientation <= 8; orientation++) {
            struct picture_make make = {
                .width = 37, .height = 21, .components = 3, .h = {1, 1, 1}, .v = {1, 1, 1}};
            make.orientation = orientation;
            struct encoded e = format == MR_IMAGE_JPEG  ? jpeg_make(&make)
                               : format == MR_IMAGE_PNG ? png_make(&make)
                                                        : webp_make(&make);
            struct mr_picture stored, upright;
            struct mr_image_info info;
            decode_whole(decoder, &stored_opts, &e, &stored);
            decode_whole(other, &rgb, &e, &upright);
            assert_int_equal(mr_image_probe("p", e.data, e.bytes, &info), 0);
            assert_int_equal(info.format, format);
            assert_int_equal(info.orientation, orientation);
            assert_int_equal(info.width, upright.width);
            assert_int_equal(info.height, upright.height);
            assert_int_equal(upright.stride, upright.width * 3);
            for (uint32_t y = 0; y < stored.height; y++)
                for (uint32_t x = 0; x < stored.width; x++) {
                    uint32_t u, v;
                    upright_of(orientation, stored.width, stored.height, x, y, &u, &v);
                    assert_memory_equal(stored.data + y * stored.stride + x * 3,
                                        upright.data + v * upright.stride + u * 3, 3);
                }
            free(e.data);
        }
}

static void webp_windows(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct picture_make make = {
            .width = 161, .height = 97, .components = kind & 1 ? 4 : 3, .lossless = kind & 2};
        make.orientation = kind == 3 ? 6 : kind == 2 ? 3 : 1;
        struct encoded e = webp_make(&make);
        bool swap = make.orientation == 6;
        check_windows(&e, swap ? make.height : make.width, swap ? make.width : make.height, 80);
        free(e.data);
    }
}

/* A truncated picture is an error at every length up to its last row's data (JPEG), its end's
 * marker (progressive) or its last chunk's name (PNG). */
static void truncated(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        struct picture_make make = {
            .width = 40, .height = 24, .components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}};
        make.progressive = kind == 1;
        make.lossless = kind == 4;
        struct encoded e = kind < 2    ? jpeg_make(&make)
                           : kind == 2 ? png_make(&make)
                                       : webp_make(&make);
        size_t whole = kind == 0   ? e.bytes - 40
                       : kind == 1 ? e.bytes - 2
                       : kind == 2 ? e.bytes - 5
                                   : e.bytes - 1;
        for (size_t n = 0; n <= whole; n++) {
            uint8_t *cut = malloc(n ? n : 1); /* of its size, for AddressSanitizer */
            struct mr_picture p = {0};
            memcpy(cut, e.data, n);
            int rc = mr_image_decode(decoder, &rgb, "cut", cut, n, NULL, NULL, &p);
            if (rc != MR_ETRUNCATED && !(n < 12 && rc == MR_EFORMAT))
                fail_msg("kind %d cut to %zu of %zu: %d %s", kind, n, e.bytes, rc,
                         rc ? mr_last_error() : "");
            assert_null(p.data);
            free(cut);
        }
        free(e.data);
    }
}

/* The same bytes, the same result, whatever was decoded before: no tables, no errors stay. */
static void a_decoder_remembers_nothing(void **state)
{
    (void)state;
    struct picture_make make = {
        .width = 40, .height = 30, .components = 3, .h = {1, 1, 1}, .v = {1, 1, 1}};
    struct encoded good = jpeg_make(&make);
    make.abbreviated = true;
    struct encoded no_tables = jpeg_make(&make);
    struct mr_picture p;
    int fresh =
        mr_image_decode(decoder, &rgb, "a", no_tables.data, no_tables.bytes, NULL, NULL, &p);
    assert_int_equal(fresh, MR_EFORMAT);
    decode_whole(decoder, &rgb, &good, &p);
    assert_int_equal(
        mr_image_decode(decoder, &rgb, "a", no_tables.data, no_tables.bytes, NULL, NULL, &p),
        fresh);
    decode_whole(decoder, &rgb, &good, &p);
    free(good.data);
    free(no_tables.data);
}

static void limits_and_refusals(void **state)
{
    (void)state;
    for (int format = MR_IMAGE_JPEG; format < MR_N_IMAGE_FORMATS; format++) {
        struct picture_make make = {
            .width = 40, .height = 30, .components = 3, .h = {1, 1, 1}, .v = {1, 1, 1}};
        struct encoded e = format == MR_IMAGE_JPEG  ? jpeg_make(&make)
                           : format == MR_IMAGE_PNG ? png_make(&make)
                                                    : webp_make(&make);
        struct mr_image_opts opts = {.channels = 3, .max_pixels = 1199};
        struct mr_picture p;
        assert_int_equal(mr_image_sniff(e.data, 12), format);
        assert_null(mr_image_why_not(format));
        assert_int_equal(mr_image_decode(decoder, &opts, "big", e.data, e.bytes, NULL, NULL, &p),
                         MR_ELIMIT);
        assert_non_null(strstr(mr_last_error(), "40 x 30"));
        opts.max_pixels = 1200;
        assert_int_equal(mr_image_decode(decoder, &opts, "fits", e.data, e.bytes, NULL, NULL, &p),
                         0);
        struct wish no = {.rc = MR_ESHAPE};
        assert_int_equal(mr_image_decode(decoder, &opts, "no", e.data, e.bytes, wish_tell, &no, &p),
                         MR_ESHAPE);
        struct wish nonsense = {
            .w = {.x = 20, .w = 21, .h = 30, .clip_w = 40, .clip_h = 30, .out_w = 1, .out_h = 1}};
        assert_int_equal(
            mr_image_decode(decoder, &opts, "no", e.data, e.bytes, wish_tell, &nonsense, &p),
            MR_EMISUSE);
        nonsense.w.x = NAN;
        assert_int_equal(
            mr_image_decode(decoder, &opts, "no", e.data, e.bytes, wish_tell, &nonsense, &p),
            MR_EMISUSE);
        free(e.data);
    }
    struct mr_picture p;
    assert_int_equal(mr_image_decode(decoder, &rgb, "text", "not a picture", 13, NULL, NULL, &p),
                     MR_EFORMAT);
    assert_int_equal(mr_image_decode(decoder, &rgb, "none", "", 0, NULL, NULL, &p), MR_EFORMAT);
    assert_string_equal(mr_image_format_name(MR_IMAGE_WEBP), "webp");
}

/* The kth value of a picture's first row, by channel count and alpha policy. */
static void channels_and_alpha(void **state)
{
    (void)state;
    static const int grounds[] = {
        [MR_ALPHA_DROP] = -1, [MR_ALPHA_BLACK] = 0, [MR_ALPHA_WHITE] = 255};
    for (int format = MR_IMAGE_PNG; format < MR_N_IMAGE_FORMATS; format++) {
        struct picture_make make = {.width = 40, .height = 30, .components = 4, .lossless = true};
        struct encoded e = format == MR_IMAGE_PNG ? png_make(&make) : webp_make(&make);
        struct mr_image_opts all = {.channels = 4};
        struct mr_picture raw, p;
        decode_whole(other, &all, &e, &raw);
        assert_int_equal(raw.channels, 4);
        for (int alpha = 0; alpha <= MR_ALPHA_WHITE; alpha++)
            for (int channels = 1; channels <= 3; channels += 2) {
                struct mr_image_opts opts = {.channels = channels, .alpha = alpha};
                decode_whole(decoder, &opts, &e, &p);
                assert_int_equal(p.channels, channels);
                assert_int_equal(p.stride, p.width * p.channels);
                for (uint32_t i = 0; i < p.width * p.height; i++) {
                    double c[3], a = raw.data[i * 4 + 3] / 255.;
                    for (int k = 0; k < 3; k++)
                        c[k] = grounds[alpha] < 0
                                   ? raw.data[i * 4 + k]
                                   : raw.data[i * 4 + k] * a + grounds[alpha] * (1 - a);
                    double luma = .299 * c[0] + .587 * c[1] + .114 * c[2];
                    for (int k = 0; k < channels; k++) {
                        double off = fabs(p.data[i * channels + k] - (channels == 1 ? luma : c[k]));
                        assert_true(off <= 1.51);
                    }
                }
            }
        free(e.data);
    }
}

/* Gray of a colour JPEG is its Y; RGBA of one is opaque; CMYK makes colours of every kind. */
static void jpeg_channels(void **state)
{
    (void)state;
    for (int components = 1; components <= 4; components++) {
        if (components == 2)
            continue;
        struct picture_make make = {.width = 40,
                                    .height = 30,
                                    .components = components,
                                    .h = {1, 1, 1, 1},
                                    .v = {1, 1, 1, 1}};
        struct encoded e = jpeg_make(&make);
        struct mr_image_opts gray = {.channels = 1}, rgba = {.channels = 4};
        struct mr_picture a, b;
        decode_whole(decoder, &rgb, &e, &a);
        decode_whole(other, &rgba, &e, &b);
        for (uint32_t i = 0; i < a.width * a.height; i++) {
            assert_memory_equal(a.data + i * 3, b.data + i * 4, 3);
            assert_int_equal(b.data[i * 4 + 3], 255);
        }
        decode_whole(other, &gray, &e, &b);
        for (uint32_t i = 0; i < a.width * a.height; i++) {
            double luma =
                .299 * a.data[i * 3] + .587 * a.data[i * 3 + 1] + .114 * a.data[i * 3 + 2];
            /* clipping at the gamut's edge moves the sum, so that only most of the pixels are
             * near */
            if (components != 3)
                assert_true(fabs(luma - b.data[i]) <= 1);
        }
        free(e.data);
    }
}

/* 16 bits give their upper 8; gray and palettes of few bits are widened. */
static void png_depths(void **state)
{
    (void)state;
    static const int kinds[][2] = {{0, 1},  {0, 2}, {0, 4}, {0, 8},  {0, 16}, {2, 8},
                                   {2, 16}, {3, 8}, {4, 8}, {4, 16}, {6, 8},  {6, 16}};
    for (size_t k = 0; k < MR_COUNT(kinds); k++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            uint8_t want[24 * 16 * 3];
            struct encoded e = png_depth_make(kinds[k][0], kinds[k][1], 24, 16, interlaced, want);
            struct mr_picture p;
            struct mr_image_info info;
            decode_whole(decoder, &rgb, &e, &p);
            assert_memory_equal(p.data, want, sizeof want);
            assert_int_equal(mr_image_probe("p", e.data, e.bytes, &info), 0);
            assert_int_equal(info.bits, kinds[k][1]);
            e.data[e.bytes / 2] ^= 1; /* amid the pixels' chunk: its checksum is wrong */
            int rc = mr_image_decode(decoder, &rgb, "crc", e.data, e.bytes, NULL, NULL, &p);
            assert_true(rc == MR_EFORMAT || rc == MR_ETRUNCATED);
            free(e.data);
        }
}

static void too_many_scans(void **state)
{
    (void)state;
    struct picture_make make = {
        .width = 16, .height = 16, .components = 1, .h = {1}, .v = {1}, .scans = 100};
    struct encoded e = jpeg_make(&make);
    struct mr_picture p;
    decode_whole(decoder, &rgb, &e, &p);
    free(e.data);
    make.scans = 130;
    e = jpeg_make(&make);
    assert_int_equal(mr_image_decode(decoder, &rgb, "scans", e.data, e.bytes, NULL, NULL, &p),
                     MR_ELIMIT);
    assert_non_null(strstr(mr_last_error(), "scans"));
    free(e.data);
}

/* Its picture is a good one: otherwise the library would not get as far as its decoder. */
static void warming_is_a_decode(void **state)
{
    (void)state;
    uint64_t errors = mr_error_count();
    mr_decoder_warm(other);
    if (mr_error_count() != errors)
        fail_msg("%s", mr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpeg_windows_in_every_layout),
        cmocka_unit_test(jpeg_windows_in_every_orientation),
        cmocka_unit_test(orientation_turns),
        cmocka_unit_test(webp_windows),
        cmocka_unit_test(truncated),
        cmocka_unit_test(warming_is_a_decode),
        cmocka_unit_test(a_decoder_remembers_nothing),
        cmocka_unit_test(limits_and_refusals),
        cmocka_unit_test(channels_and_alpha),
        cmocka_unit_test(jpeg_channels),
        cmocka_unit_test(png_depths),
        cmocka_unit_test(too_many_scans),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
