/* The overview as pixels, and these as PNG by libspng. */
#include "timeline/draw.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#if MILLRACE_HAVE_PNG
#include <spng.h>

struct pixels {
    struct mr_canvas canvas; /* first */
    uint32_t height;
    uint8_t *rgb;
};

/* share: of the colour, the rest stays what it was. */
static void blend(struct pixels *p, int x, int y, uint32_t colour, double share)
{
    if (x < 0 || y < 0 || x >= MR_OVERVIEW_W || y >= (int)p->height)
        return;
    uint8_t *at = p->rgb + ((size_t)y * MR_OVERVIEW_W + (size_t)x) * 3;
    for (int c = 0; c < 3; c++) {
        double want = colour >> (16 - 8 * c) & 255;
        at[c] = (uint8_t)lround(at[c] + (want - at[c]) * share);
    }
}

static void put_rect(struct mr_canvas *canvas, double x, double y, double w, double h, uint32_t colour)
{
    struct pixels *p = (struct pixels *)canvas;
    for (int row = (int)floor(y); row < y + h; row++) {
        double tall = MR_MIN(row + 1.0, y + h) - MR_MAX((double)row, y);
        for (int column = (int)floor(x); column < x + w; column++) {
            double wide = MR_MIN(column + 1.0, x + w) - MR_MAX((double)column, x);
            blend(p, column, row, colour, tall * wide);
        }
    }
}

/* The letter that comes next, and [out] how many bytes it has. Those that are not there are '?'. */
static uint32_t letter_of(const char *text, int *out_bytes)
{
    static const char *const more[] = {"\xc2\xb7", "\xc2\xb5", "\xc3\x97"};
    unsigned char c = (unsigned char)*text;
    *out_bytes = 1;
    if (c < 128)
        return c >= 32 && c < 127 ? c - 32u : '?' - 32u;
    while ((text[*out_bytes] & 0xc0) == 0x80)
        ++*out_bytes;
    for (uint32_t i = 0; i < MR_COUNT(more); i++)
        if (!strncmp(text, more[i], 2))
            return 95 + i;
    return '?' - 32u;
}

static void put_letter(struct pixels *p, int x, int y, const uint8_t rows[MR_LETTER_H], uint32_t colour, double scale)
{
    for (int row = 0; row < (int)(MR_LETTER_H * scale); row++)
        for (int column = 0; column < (int)(MR_LETTER_W * scale); column++)
            if (rows[(int)(row / scale)] >> (MR_LETTER_W - 1 - (int)(column / scale)) & 1)
                blend(p, x + column, y + row, colour, 1);
}

static void put_text(struct mr_canvas *canvas, double x, double y, enum mr_anchor anchor, bool bold, int size,
                     uint32_t colour, const char *text)
{
    struct pixels *p = (struct pixels *)canvas;
    int bytes, n = 0, scale = size > 20 ? 2 : 1;
    for (const char *at = text; *at; at += bytes, n++)
        letter_of(at, &bytes);
    double wide = (double)n * MR_LETTER_W * scale;
    int left = (int)lround(anchor == MR_LEFT ? x : anchor == MR_MIDDLE ? x - wide / 2 : x - wide);
    int top = (int)lround(y - MR_LETTER_H * scale / 2.0);
    for (const char *at = text; *at; at += bytes, left += MR_LETTER_W * scale) {
        uint32_t letter = letter_of(at, &bytes);
        put_letter(p, left, top, mr_letters[bold][letter], colour, scale);
    }
}

static int stream_write(spng_ctx *ctx, void *user, void *bytes, size_t n)
{
    (void)ctx;
    return fwrite(bytes, 1, n, user) == n ? 0 : SPNG_IO_ERROR;
}

static int encode(FILE *file, const struct pixels *p)
{
    struct spng_ihdr head = {
        .width = MR_OVERVIEW_W, .height = p->height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!ctx)
        return mr_error_nomem("timeline: PNG", 0);
    int bad = spng_set_png_stream(ctx, stream_write, file);
    if (!bad)
        bad = spng_set_ihdr(ctx, &head);
    if (!bad)
        bad = spng_encode_image(ctx, p->rgb, (size_t)p->height * MR_OVERVIEW_W * 3, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    spng_ctx_free(ctx);
    if (!bad)
        return 0;
    return bad == SPNG_IO_ERROR && errno ? errno : mr_error_set(-EIO, "timeline: PNG: %s", spng_strerror(bad));
}

int mr_timeline_png(FILE *file, const struct mr_timeline *tl)
{
    struct pixels p = {.canvas = {.rect = put_rect, .text = put_text}, .height = mr_overview_height(tl)};
    size_t bytes = (size_t)p.height * MR_OVERVIEW_W * 3;
    p.rgb = malloc(bytes);
    if (!p.rgb)
        return mr_error_nomem("timeline: pixels", bytes);
    memset(p.rgb, 255, bytes);
    int rc = mr_overview_draw(tl, &p.canvas);
    if (rc == 0)
        rc = encode(file, &p);
    free(p.rgb);
    return rc;
}
#else
int mr_timeline_png(FILE *file, const struct mr_timeline *tl)
{
    (void)file;
    (void)tl;
    return mr_error_set(MR_EUNSUPPORTED, "PNG pictures cannot be written: built without libspng "
                                         "(install libspng-dev, or write .svg)");
}
#endif
