/* Contact sheets: pictures of any type and layout, scaled into tiles. */
#include "inspect/sheet.h"

#include "inspect/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAP        4  /* pixels between tiles */
#define BACKGROUND 24 /* grey */

int sheet_create(struct sheet *sheet, uint32_t rows, uint32_t columns, uint32_t tile)
{
    *sheet = (struct sheet){.rows = rows, .columns = columns, .tile = tile};
    size_t bytes = (size_t)sheet_height(sheet) * sheet_width(sheet) * 3;
    sheet->rgb = malloc(bytes);
    if (!sheet->rgb)
        return cli_fail("out of memory (a sheet of %zu bytes)", bytes);
    memset(sheet->rgb, BACKGROUND, bytes);
    return CLI_OK;
}

void sheet_destroy(struct sheet *sheet)
{
    free(sheet->rgb);
    sheet->rgb = NULL;
}

uint32_t sheet_height(const struct sheet *sheet)
{
    return sheet->rows * (sheet->tile + GAP) + GAP;
}

uint32_t sheet_width(const struct sheet *sheet)
{
    return sheet->columns * (sheet->tile + GAP) + GAP;
}

/* A picture's values, whatever its type and layout. */
struct source {
    const unsigned char *data;
    enum mr_dtype dtype;
    uint64_t h, w, c;
    uint64_t row, column, channel; /* elements from one to the next */
    double low, gain;              /* (value - low) * gain is 0..255 */
};

static bool channels(uint64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

/* One of a clip's frames. */
static struct mr_spec frame_of(const struct mr_spec *spec)
{
    struct mr_spec frame = *spec;
    frame.rank = spec->rank - 1;
    memmove(frame.dim, spec->dim + 1, sizeof frame.dim - sizeof frame.dim[0]);
    return frame;
}

bool sheet_is_clip(const struct mr_spec *spec)
{
    struct mr_spec frame = frame_of(spec);
    return spec->rank == 4 && sheet_drawable(&frame);
}

bool sheet_drawable(const struct mr_spec *spec)
{
    if (spec->dtype == MR_C64 || spec->dtype == MR_C128)
        return false;
    if (spec->rank == 4)
        return sheet_is_clip(spec);
    return spec->rank == 2 ||
           (spec->rank == 3 && (channels(spec->dim[0]) || channels(spec->dim[2])));
}

static void set_layout(struct source *s, const struct mr_spec *spec, const uint64_t *dim)
{
    bool last = spec->rank == 3 && channels(dim[2]);
    s->c = spec->rank == 2 ? 1 : last ? dim[2] : dim[0];
    const uint64_t *size = spec->rank == 2 || last ? dim : dim + 1;
    s->h = size[0];
    s->w = size[1];
    s->row = s->w * (last ? s->c : 1);
    s->column = last ? s->c : 1;
    s->channel = last ? 1 : s->h * s->w;
}

static double element(const struct source *s, uint64_t i)
{
    return inspect_value(s->dtype, s->data + i * mr_dtype_size(s->dtype));
}

static void set_range(struct source *s)
{
    double low = INFINITY, high = -INFINITY;
    for (uint64_t i = 0; s->dtype != MR_U8 && i < s->h * s->w * s->c; i++) {
        double v = element(s, i);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    bool plain = s->dtype == MR_U8 || (low >= 0 && high <= 255);
    s->low = plain ? 0 : low;
    high = !plain ? high : s->dtype != MR_U8 && high <= 1 ? 1 : 255;
    s->gain = high > s->low ? 255 / (high - s->low) : 0;
}

/* Mean of the source pixels that an output pixel covers: [y0, y1) x [x0, x1). */
static unsigned char mean(const struct source *s, uint64_t y0, uint64_t y1, uint64_t x0,
                          uint64_t x1, uint64_t c)
{
    double sum = 0;
    for (uint64_t y = y0; y < y1; y++)
        for (uint64_t x = x0; x < x1; x++)
            sum += element(s, y * s->row + x * s->column + c * s->channel);
    double v = (sum / (double)((y1 - y0) * (x1 - x0)) - s->low) * s->gain;
    return v >= 255 ? 255 : v > 0 ? (unsigned char)lround(v) : 0;
}

/* Where a picture's drawing stands: h x w pixels of the sheet from `at`. */
struct place {
    unsigned char *at;
    size_t stride;
    uint64_t h, w;
};

static void draw_pixels(const struct source *s, const struct place *p)
{
    for (uint64_t y = 0; y < p->h; y++)
        for (uint64_t x = 0; x < p->w; x++) {
            uint64_t y0 = y * s->h / p->h, x0 = x * s->w / p->w;
            uint64_t y1 = (y + 1) * s->h / p->h, x1 = (x + 1) * s->w / p->w;
            y1 = y1 > y0 ? y1 : y0 + 1;
            x1 = x1 > x0 ? x1 : x0 + 1;
            for (uint64_t c = 0; c < 3; c++)
                p->at[y * p->stride + x * 3 + c] = mean(s, y0, y1, x0, x1, s->c < 3 ? 0 : c);
        }
}

/* A green cross on black, so that it is seen on anything. Points outside the picture are not
 * drawn. */
static void draw_cross(const struct place *p, int arm, double x, double y)
{
    for (int dy = -arm - 1; dy <= arm + 1; dy++)
        for (int dx = -arm - 1; dx <= arm + 1; dx++) {
            bool green = (dx == 0 && abs(dy) <= arm) || (dy == 0 && abs(dx) <= arm);
            bool black = abs(dx) <= 1 || abs(dy) <= 1;
            double fx = floor(x) + dx, fy = floor(y) + dy;
            if (!black || !(fx >= 0 && fy >= 0 && fx < (double)p->w && fy < (double)p->h))
                continue;
            unsigned char *to = p->at + (size_t)fy * p->stride + (size_t)fx * 3;
            if (green)
                memcpy(to, "\x20\xff\x20", 3);
            else if (memcmp(to, "\x20\xff\x20", 3) != 0)
                memset(to, 0, 3);
        }
}

void sheet_draw(struct sheet *sheet, uint32_t at, const struct mr_spec *spec, const uint64_t *dim,
                const void *data, const float *points, uint64_t n_points)
{
    struct source s = {.data = data, .dtype = spec->dtype};
    struct place p = {.stride = (size_t)sheet_width(sheet) * 3};
    set_layout(&s, spec, dim);
    if (s.h == 0 || s.w == 0)
        return;
    set_range(&s);
    uint64_t longest = s.h > s.w ? s.h : s.w;
    double scale = (double)sheet->tile / (double)longest;
    scale = scale >= 1 ? floor(scale) : scale;
    p.h = (uint64_t)((double)s.h * scale + 0.5);
    p.w = (uint64_t)((double)s.w * scale + 0.5);
    p.h = p.h ? p.h : 1;
    p.w = p.w ? p.w : 1;
    size_t top = GAP + at / sheet->columns * (size_t)(sheet->tile + GAP) + (sheet->tile - p.h) / 2;
    size_t left = GAP + at % sheet->columns * (size_t)(sheet->tile + GAP) + (sheet->tile - p.w) / 2;
    p.at = sheet->rgb + top * p.stride + left * 3;
    draw_pixels(&s, &p);
    for (uint64_t i = 0; i < n_points; i++)
        draw_cross(&p, sheet->tile < 200 ? 1 : (int)sheet->tile / 100,
                   ((double)points[2 * i] + 0.5) * (double)p.w / (double)s.w,
                   ((double)points[2 * i + 1] + 0.5) * (double)p.h / (double)s.h);
}

void sheet_draw_strip(struct sheet *sheet, uint32_t row, const struct mr_spec *spec,
                      const uint64_t *dim, const void *data)
{
    struct mr_spec frame = frame_of(spec);
    uint64_t n = dim[0] < sheet->columns ? dim[0] : sheet->columns,
             bytes = mr_dtype_size(spec->dtype);
    for (int d = 1; d < spec->rank; d++)
        bytes *= dim[d];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = n > 1 ? i * (dim[0] - 1) / (n - 1) : 0;
        sheet_draw(sheet, row * sheet->columns + (uint32_t)i, &frame, dim + 1,
                   (const char *)data + at * bytes, NULL, 0);
    }
}
