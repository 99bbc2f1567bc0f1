/*
 * Handwritten-looking digits: the pen's path for each digit (a few ways to write some) is bent at
 * random, turned, slanted and scaled, drawn with a round pen of random width, and given noise.
 *
 * Sums, products and square roots only, all rounded by IEEE 754: the same pixels on every machine.
 */
#include "synth/synth.h"

#include <math.h>
#include <string.h>

#define MAX_POINTS 24
#define SUBDIVIDE  6 /* straight pieces of a curve between two points */

/* A pen-up is a point with x < 0. A point given twice is a corner; curves run smoothly through the
 * others. x to the right, y down, both 0..1. */
struct glyph {
    int digit, n;
    float p[MAX_POINTS][2];
};

#define UP                                                                                         \
    {                                                                                              \
        -1, 0                                                                                      \
    }
/* clang-format off */
static const struct glyph glyphs[] = {
    {0, 10, {{.52f, 0}, {.24f, .12f}, {.10f, .48f}, {.22f, .86f}, {.50f, 1}, {.80f, .86f},
             {.90f, .48f}, {.78f, .13f}, {.50f, 0}, {.40f, .03f}}},
    {0, 9, {{.62f, .03f}, {.30f, .10f}, {.12f, .50f}, {.26f, .90f}, {.52f, 1}, {.82f, .80f},
            {.86f, .40f}, {.70f, .06f}, {.44f, .04f}}},
    {1, 2, {{.54f, 0}, {.48f, 1}}},
    {1, 4, {{.28f, .24f}, {.54f, 0}, {.54f, 0}, {.52f, 1}}},
    {1, 7, {{.28f, .22f}, {.52f, 0}, {.52f, 0}, {.52f, 1}, UP, {.26f, 1}, {.80f, 1}}},
    {2, 8, {{.14f, .24f}, {.32f, .04f}, {.62f, .01f}, {.82f, .22f}, {.68f, .52f}, {.12f, .98f},
            {.12f, .98f}, {.92f, .97f}}},
    {2, 10, {{.16f, .20f}, {.40f, 0}, {.74f, .10f}, {.76f, .40f}, {.50f, .76f}, {.24f, .97f},
             {.10f, .88f}, {.26f, .76f}, {.58f, .92f}, {.92f, .94f}}},
    {3, 10, {{.16f, .12f}, {.46f, 0}, {.78f, .12f}, {.72f, .36f}, {.40f, .46f}, {.40f, .46f},
             {.80f, .58f}, {.86f, .82f}, {.52f, 1}, {.12f, .90f}}},
    {3, 10, {{.16f, .02f}, {.82f, .02f}, {.82f, .02f}, {.44f, .42f}, {.44f, .42f}, {.78f, .52f},
             {.86f, .76f}, {.66f, .97f}, {.36f, 1}, {.12f, .90f}}},
    {4, 8, {{.26f, 0}, {.14f, .58f}, {.14f, .58f}, {.90f, .56f}, UP, {.70f, .04f}, {.66f, .50f},
            {.64f, 1}}},
    {4, 6, {{.66f, 1}, {.66f, 0}, {.66f, 0}, {.08f, .68f}, {.08f, .68f}, {.94f, .68f}}},
    {5, 12, {{.84f, .01f}, {.28f, .02f}, {.28f, .02f}, {.22f, .44f}, {.22f, .44f}, {.50f, .36f},
             {.78f, .48f}, {.86f, .70f}, {.74f, .92f}, {.46f, 1}, {.24f, .97f}, {.10f, .88f}}},
    {6, 9, {{.72f, .01f}, {.40f, .20f}, {.18f, .55f}, {.20f, .86f}, {.48f, 1}, {.80f, .88f},
            {.80f, .64f}, {.52f, .52f}, {.20f, .70f}}},
    {6, 9, {{.46f, 0}, {.26f, .28f}, {.14f, .66f}, {.30f, .96f}, {.60f, .99f}, {.84f, .78f},
            {.68f, .56f}, {.36f, .60f}, {.18f, .78f}}},
    {7, 6, {{.10f, .04f}, {.88f, .02f}, {.88f, .02f}, {.62f, .46f}, {.46f, .76f}, {.38f, 1}}},
    {7, 9, {{.12f, .06f}, {.86f, .02f}, {.86f, .02f}, {.60f, .50f}, {.42f, 1}, UP, {.30f, .54f},
            {.56f, .51f}, {.80f, .48f}}},
    {8, 14, {{.74f, .10f}, {.50f, 0}, {.24f, .10f}, {.24f, .32f}, {.52f, .48f}, {.82f, .68f},
             {.80f, .92f}, {.50f, 1}, {.18f, .92f}, {.18f, .70f}, {.48f, .48f}, {.76f, .32f},
             {.78f, .16f}, {.66f, .03f}}},
    {9, 10, {{.80f, .22f}, {.62f, .02f}, {.30f, .05f}, {.14f, .28f}, {.28f, .50f}, {.60f, .46f},
             {.80f, .22f}, {.80f, .22f}, {.76f, .62f}, {.66f, 1}}},
    {9, 11, {{.80f, .24f}, {.60f, .01f}, {.28f, .06f}, {.16f, .32f}, {.36f, .52f}, {.66f, .42f},
             {.80f, .20f}, {.82f, .20f}, {.80f, .70f}, {.58f, .98f}, {.24f, .94f}}},
};
/* clang-format on */

void synth_draw(uint64_t seed, uint32_t stream, uint64_t sample, uint32_t draw, uint32_t out[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)sample, (uint32_t)(sample >> 32), draw, stream};
    mr_philox(counter, key, out);
}

/* Random numbers of one sample, one after the other. */
struct dice {
    uint64_t seed, sample;
    uint32_t stream, next, left;
    uint32_t value[4];
};

static uint32_t roll(struct dice *d)
{
    if (d->left == 0) {
        synth_draw(d->seed, d->stream, d->sample, d->next++, d->value);
        d->left = 4;
    }
    return d->value[--d->left];
}

/* Uniform in [-1, 1). */
static float swing(struct dice *d)
{
    return (float)(roll(d) >> 8) * 0x1p-23f - 1;
}

/* Nearly normal (0, 1): the sum of four bytes. */
static float normal(struct dice *d)
{
    uint32_t r = roll(d);
    float sum = (float)((r & 255) + (r >> 8 & 255) + (r >> 16 & 255) + (r >> 24));
    return (sum - 510) * (1 / 147.8f);
}

struct canvas {
    float *distance2; /* squared distance to the pen's path, in pixels, for each pixel; capped */
    int size;
    float reach; /* pixels that the pen touches */
};

static void draw_line(const struct canvas *c, const float a[2], const float b[2])
{
    float dx = b[0] - a[0], dy = b[1] - a[1], length2 = dx * dx + dy * dy;
    int x0 = (int)fmaxf(0, floorf(fminf(a[0], b[0]) - c->reach)),
        y0 = (int)fmaxf(0, floorf(fminf(a[1], b[1]) - c->reach));
    int x1 = (int)fminf((float)c->size - 1, ceilf(fmaxf(a[0], b[0]) + c->reach));
    int y1 = (int)fminf((float)c->size - 1, ceilf(fmaxf(a[1], b[1]) + c->reach));
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            float px = (float)x - a[0], py = (float)y - a[1];
            float t = length2 > 0 ? (px * dx + py * dy) / length2 : 0;
            t = fminf(1, fmaxf(0, t));
            float ex = px - t * dx, ey = py - t * dy, d2 = ex * ex + ey * ey;
            float *at = &c->distance2[y * c->size + x];
            *at = fminf(*at, d2);
        }
}

/* A Catmull-Rom curve through p[0..n). */
static void draw_curve(const struct canvas *c, float (*p)[2], int n)
{
    for (int i = 0; i + 1 < n; i++) {
        const float *p0 = p[i > 0 ? i - 1 : 0], *p1 = p[i], *p2 = p[i + 1],
                    *p3 = p[i + 2 < n ? i + 2 : n - 1];
        float from[2] = {p1[0], p1[1]}, to[2];
        for (int k = 1; k <= SUBDIVIDE; k++) {
            float t = (float)k / SUBDIVIDE, t2 = t * t, t3 = t2 * t;
            for (int d = 0; d < 2; d++)
                to[d] = 0.5f * (2 * p1[d] + (p2[d] - p0[d]) * t +
                                (2 * p0[d] - 5 * p1[d] + 4 * p2[d] - p3[d]) * t2 +
                                (3 * p1[d] - p0[d] - 3 * p2[d] + p3[d]) * t3);
            draw_line(c, from, to);
            from[0] = to[0];
            from[1] = to[1];
        }
    }
}

/* Bends the path and maps it to pixels. */
static void distort(const struct glyph *g, struct dice *d, float size, float (*out)[2])
{
    float angle = 0.21f * swing(d),
          slant = 0.12f + 0.22f * swing(d); /* most hands slant to the right */
    float high = size * (0.67f + 0.09f * swing(d)), wide = high * (0.70f + 0.14f * swing(d));
    float cx = 0.5f * (size - 1) + 0.06f * size * swing(d),
          cy = 0.5f * (size - 1) + 0.05f * size * swing(d);
    float a2 = angle * angle, sine = angle * (1 - a2 / 6), cosine = 1 - a2 / 2 + a2 * a2 / 24;
    float bend = 0.07f * swing(d), bulge = 0.07f * swing(d);
    for (int i = 0; i < g->n; i++) {
        bool again = i > 0 && g->p[i][0] == g->p[i - 1][0] && g->p[i][1] == g->p[i - 1][1];
        float jx = 0.035f * swing(d), jy = 0.035f * swing(d);
        if (again) { /* a corner stays one */
            out[i][0] = out[i - 1][0];
            out[i][1] = out[i - 1][1];
            continue;
        }
        float u = g->p[i][0] - 0.5f, v = g->p[i][1] - 0.5f;
        float x = (u + jx + bend * (1 - 4 * v * v)) * wide,
              y = (v + jy + bulge * (1 - 4 * u * u)) * high;
        x -= slant * y;
        out[i][0] = cx + cosine * x - sine * y;
        out[i][1] = cy + sine * x + cosine * y;
    }
}

int synth_digit(const struct synth_options *o, uint32_t stream, uint64_t index, float *scratch,
                unsigned char *pixels)
{
    struct dice d = {.seed = o->seed, .sample = index, .stream = stream};
    int size = (int)o->size, label = (int)(((uint64_t)roll(&d) * 10) >> 32);
    const struct glyph *ways[4] = {&glyphs[0]};
    uint32_t n_ways = 0;
    for (size_t i = 0; i < CLI_COUNT(glyphs); i++)
        if (glyphs[i].digit == label)
            ways[n_ways++] = &glyphs[i];
    const struct glyph *g = ways[((uint64_t)roll(&d) * n_ways) >> 32];
    float path[MAX_POINTS][2],
        pen = (float)size / 28 * (1.25f + 0.45f * swing(&d)); /* half its width */
    float ink = 0.92f + 0.08f * swing(&d), soft = 0.5f + 0.15f * (float)size / 28;
    distort(g, &d, (float)size, path);
    struct canvas c = {scratch, size, pen + soft + 1};
    for (int i = 0; i < size * size; i++)
        scratch[i] = 1e6f;
    for (int from = 0, to; from < g->n; from = to + 1) {
        for (to = from; to < g->n && g->p[to][0] >= 0; to++)
            ;
        draw_curve(&c, path + from, to - from);
    }
    for (int i = 0; i < size * size; i++) {
        float cover = (pen + soft - sqrtf(scratch[i])) / (2 * soft);
        float value =
            fminf(1, fmaxf(0, cover)) * ink + (o->noise > 0 ? (float)o->noise * normal(&d) : 0);
        pixels[i] = (unsigned char)(fminf(1, fmaxf(0, value)) * 255 + 0.5f);
    }
    return label;
}
