/* Small pictures of every kind, by the encoders of the libraries that decode them. Noise over
 * slopes. */
#ifndef MR_TEST_PICTURE_MAKE_H
#define MR_TEST_PICTURE_MAKE_H

#include "../unit/unit.h"

#include "base/base.h"

#include <stdio.h>
/* clang-format off */
#include <jpeglib.h>
/* clang-format on */
#include <spng.h>
#include <webp/encode.h>

struct encoded {
    uint8_t *data; /* to be freed */
    size_t bytes;
};

struct picture_make {
    uint32_t width, height;
    int components;    /* JPEG: 1, 3, 4; others: 3, 4 */
    int h[4], v[4];    /* JPEG: sampling factors */
    int orientation;   /* 0: no EXIF */
    int scans;         /* JPEG: progressive, this many */
    bool motorola;     /* the EXIF's byte order */
    bool progressive;  /* JPEG */
    bool restart_rows; /* JPEG: a restart marker each row of MCUs */
    bool abbreviated;  /* JPEG: without its tables */
    bool wide_tables;  /* JPEG: quantization tables of 16 bits */
    bool lossless;     /* WebP */
};

static inline uint8_t *pixels_make(uint32_t width, uint32_t height, int components)
{
    uint8_t *data = malloc((size_t)width * height * (size_t)components);
    assert_non_null(data);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (int c = 0; c < components; c++) {
                uint64_t noise = mr_mix64((uint64_t)y << 32 | x << 2 | (unsigned)c) & 127;
                data[(y * width + x) * (unsigned)components + (unsigned)c] =
                    (uint8_t)(noise + (x * (3 + (unsigned)c) + y * (7 - (unsigned)c)) % 256 / 2);
            }
    return data;
}

/* "Exif\0\0" and a TIFF structure of one directory: some other tag, then the orientation. */
#define EXIF_BYTES (6 + 8 + 2 + 2 * 12 + 4)
static inline void exif_make(int orientation, bool motorola, uint8_t out[EXIF_BYTES])
{
    static const uint8_t intel[EXIF_BYTES] = {'E', 'x', 'i', 'f', 0,    0, 'I', 'I', 42, 0, 8, 0,
                                              0,   0,   2,   0,   0x0e, 1, 2,   0,   1,  0, 0, 0,
                                              0,   0,   0,   0,   0x12, 1, 3,   0,   1,  0, 0, 0};
    static const uint8_t other[EXIF_BYTES] = {'E', 'x', 'i', 'f', 0, 0,    'M', 'M', 0, 42, 0, 0,
                                              0,   8,   0,   2,   1, 0x0e, 0,   2,   0, 0,  0, 1,
                                              0,   0,   0,   0,   1, 0x12, 0,   3,   0, 0,  0, 1};
    memcpy(out, motorola ? other : intel, EXIF_BYTES);
    out[motorola ? 37 : 36] = (uint8_t)orientation;
}

/* A legal progression of n scans of the one component: each coefficient by itself, two of its bits
 * later. */
static inline void scans_make(jpeg_scan_info *scan, int n)
{
    for (int i = 0; i < n; i++) {
        int pass = i / 64, k = i % 64;
        scan[i] = (jpeg_scan_info){
            .comps_in_scan = 1, .Ss = k, .Se = k, .Ah = pass ? 3 - pass : 0, .Al = 2 - pass};
    }
}

static inline struct encoded jpeg_make(const struct picture_make *make)
{
    static const J_COLOR_SPACE spaces[5] = {[1] = JCS_GRAYSCALE, [3] = JCS_RGB, [4] = JCS_CMYK};
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[192];
    struct encoded e = {0};
    unsigned long bytes = 0;
    z.err = jpeg_std_error(&errors);
    jpeg_create_compress(&z);
    jpeg_mem_dest(&z, &e.data, &bytes);
    z.image_width = make->width;
    z.image_height = make->height;
    z.input_components = make->components;
    z.in_color_space = spaces[make->components];
    jpeg_set_defaults(&z);
    jpeg_set_quality(&z, make->wide_tables ? 2 : 90, !make->wide_tables);
    for (int i = 0; i < make->components; i++) {
        z.comp_info[i].h_samp_factor = make->h[i];
        z.comp_info[i].v_samp_factor = make->v[i];
    }
    if (make->progressive)
        jpeg_simple_progression(&z);
    if (make->scans) {
        scans_make(scans, make->scans);
        z.scan_info = scans;
        z.num_scans = make->scans;
    }
    z.restart_in_rows = make->restart_rows;
    jpeg_suppress_tables(&z, make->abbreviated);
    jpeg_start_compress(&z, !make->abbreviated);
    if (make->orientation) {
        uint8_t exif[EXIF_BYTES];
        exif_make(make->orientation, make->motorola, exif);
        jpeg_write_marker(&z, JPEG_APP0 + 1, exif, EXIF_BYTES);
    }
    uint8_t *pixels = pixels_make(make->width, make->height, make->components);
    for (uint32_t y = 0; y < make->height; y++) {
        JSAMPROW row = pixels + (size_t)y * make->width * (unsigned)make->components;
        jpeg_write_scanlines(&z, &row, 1);
    }
    jpeg_finish_compress(&z);
    jpeg_destroy_compress(&z);
    free(pixels);
    e.bytes = bytes;
    return e;
}

static inline struct encoded png_encode(const struct spng_ihdr *head,
                                        const struct spng_plte *palette, int orientation,
                                        const void *pixels, size_t bytes)
{
    spng_ctx *c = spng_ctx_new(SPNG_CTX_ENCODER);
    uint8_t exif[EXIF_BYTES];
    struct encoded e;
    int rc;
    assert_non_null(c);
    assert_int_equal(spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1), 0);
    assert_int_equal(spng_set_ihdr(c, (struct spng_ihdr *)head), 0);
    if (palette)
        assert_int_equal(spng_set_plte(c, (struct spng_plte *)palette), 0);
    if (orientation) {
        exif_make(orientation, false, exif);
        struct spng_exif chunk = {.length = EXIF_BYTES - 6, .data = (char *)exif + 6};
        assert_int_equal(spng_set_exif(c, &chunk), 0);
    }
    assert_int_equal(spng_encode_image(c, pixels, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
    e.data = spng_get_png_buffer(c, &e.bytes, &rc);
    assert_non_null(e.data);
    spng_ctx_free(c);
    return e;
}

static inline struct encoded png_make(const struct picture_make *make)
{
    uint8_t *pixels = pixels_make(make->width, make->height, make->components);
    struct spng_ihdr head = {.width = make->width,
                             .height = make->height,
                             .bit_depth = 8,
                             .color_type = make->components == 4 ? SPNG_COLOR_TYPE_TRUECOLOR_ALPHA
                                                                 : SPNG_COLOR_TYPE_TRUECOLOR};
    struct encoded e = png_encode(&head, NULL, make->orientation, pixels,
                                  (size_t)make->width * make->height * (unsigned)make->components);
    free(pixels);
    return e;
}

/* Any colour type and depth. [out] want: the RGB that it stands for. */
static inline struct encoded png_depth_make(int type, int bits, uint32_t width, uint32_t height,
                                            bool interlaced, uint8_t *want)
{
    static const int samples[7] = {[0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4};
    struct spng_ihdr head = {.width = width,
                             .height = height,
                             .bit_depth = (uint8_t)bits,
                             .color_type = (uint8_t)type,
                             .interlace_method = interlaced};
    struct spng_plte palette = {.n_entries = 256};
    size_t row = (width * (unsigned)(samples[type] * bits) + 7) / 8;
    uint8_t *pixels = calloc(height, row);
    assert_non_null(pixels);
    for (int i = 0; i < 256; i++)
        palette.entries[i] = (struct spng_plte_entry){
            .red = (uint8_t)i, .green = (uint8_t)(i * 3), .blue = (uint8_t)~i};
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            unsigned value[4], most = (1u << bits) - 1;
            for (int c = 0; c < samples[type]; c++) {
                unsigned i = x * (unsigned)samples[type] + (unsigned)c;
                value[c] = (unsigned)mr_mix64(y << 10 | i) & most;
                if (bits == 16)
                    memcpy(pixels + y * row + 2 * i, &(uint16_t){(uint16_t)value[c]}, 2);
                else
                    pixels[y * row + i * (unsigned)bits / 8] |=
                        (uint8_t)(value[c] << (8 - (unsigned)bits - i * (unsigned)bits % 8));
                value[c] = bits == 16 ? value[c] >> 8 : value[c] * 255 / most;
            }
            uint8_t *rgb = want + (y * width + x) * 3;
            struct spng_plte_entry entry = palette.entries[value[0]];
            if (type == 3)
                memcpy(rgb, (uint8_t[3]){entry.red, entry.green, entry.blue}, 3);
            for (int c = 0; c < 3 && type != 3; c++)
                rgb[c] = (uint8_t)value[samples[type] < 3 ? 0 : c];
        }
    struct encoded e = png_encode(&head, type == 3 ? &palette : NULL, 0, pixels, row * height);
    free(pixels);
    return e;
}

/* Puts a simple WebP file into the extended container, which EXIF wants. */
static inline void webp_add_exif(struct encoded *e, const struct picture_make *make, bool alpha)
{
    size_t chunk = e->bytes - 12, bytes = 12 + 18 + chunk + 8 + EXIF_BYTES;
    uint8_t *out = calloc(1, bytes), *at = out;
    assert_non_null(out);
    assert_true(EXIF_BYTES % 2 == 0);
    memcpy(at, "RIFF\0\0\0\0WEBPVP8X\x0a\0\0", 20);
    memcpy(at + 4, &(uint32_t){(uint32_t)bytes - 8}, 4);
    at[20] = (uint8_t)(8 | (alpha ? 16 : 0));
    memcpy(at + 24, &(uint32_t){make->width - 1}, 3);
    memcpy(at + 27, &(uint32_t){make->height - 1}, 3);
    memcpy(at + 30, e->data + 12, chunk);
    at += 30 + chunk;
    memcpy(at, "EXIF", 4);
    memcpy(at + 4, &(uint32_t){EXIF_BYTES}, 4);
    exif_make(make->orientation, make->motorola, at + 8);
    free(e->data);
    *e = (struct encoded){out, bytes};
}

static inline struct encoded webp_make(const struct picture_make *make)
{
    int w = (int)make->width, h = (int)make->height, stride = w * make->components;
    uint8_t *pixels = pixels_make(make->width, make->height, make->components), *data = NULL;
    struct encoded e;
    if (make->components == 4)
        e.bytes = make->lossless ? WebPEncodeLosslessRGBA(pixels, w, h, stride, &data)
                                 : WebPEncodeRGBA(pixels, w, h, stride, 80, &data);
    else
        e.bytes = make->lossless ? WebPEncodeLosslessRGB(pixels, w, h, stride, &data)
                                 : WebPEncodeRGB(pixels, w, h, stride, 80, &data);
    assert_true(e.bytes > 0);
    e.data = malloc(e.bytes);
    assert_non_null(e.data);
    memcpy(e.data, data, e.bytes);
    WebPFree(data);
    free(pixels);
    /* lossy with alpha comes in the extended container already */
    if (make->orientation && (make->lossless || make->components == 3))
        webp_add_exif(&e, make, make->components == 4);
    return e;
}

#endif
