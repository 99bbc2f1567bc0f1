/* Colours as Pillow computes them; see color.h. */
#include "transform/color.h"

#include <math.h>

void mr_pillow_gray(size_t n, float x[3][MR_COLOR_BLOCK], float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)x[0][i], g = (uint32_t)x[1][i], b = (uint32_t)x[2][i];
        out[i] = (float)((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
    }
}

void mr_pillow_blend(size_t n, float factor, const float *other, float x[3][MR_COLOR_BLOCK])
{
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < n; i++)
            x[k][i] = other[i] + factor * (x[k][i] - other[i]);
}

struct hsv {
    uint8_t h, s, v;
};

static struct hsv to_hsv(float r, float g, float b)
{
    float most = fmaxf(r, fmaxf(g, b)), range = most - fminf(r, fminf(g, b));
    if (range == 0)
        return (struct hsv){0, 0, (uint8_t)most};
    float s = range / most, rc = (most - r) / range, gc = (most - g) / range,
          bc = (most - b) / range, h;
    if (most == r)
        h = bc - gc;
    else if (most == g)
        h = (float)(2.0 + (double)rc - (double)bc);
    else
        h = (float)(4.0 + (double)gc - (double)rc);
    h = (float)fmod((double)h / 6.0 + 1.0, 1.0);
    return (struct hsv){(uint8_t)((double)h * 255.0), (uint8_t)((double)s * 255.0), (uint8_t)most};
}

static void from_hsv(struct hsv c, float *r, float *g, float *b)
{
    double v = c.v, turns = c.h * 6 / 255.0;
    int sector = (int)floor(turns);
    float s = (float)(c.s / 255.0), f = (float)(turns - sector), sf = s * f;
    float p = (float)round(v * (1 - (double)s)), q = (float)round(v * (1 - (double)sf)),
          t = (float)round(v * (1 - (double)s * (1 - (double)f))), w = (float)v;
    const float table[6][3] = {{w, t, p}, {q, w, p}, {p, w, t}, {p, q, w}, {t, p, w}, {w, p, q}};
    *r = table[sector % 6][0];
    *g = table[sector % 6][1];
    *b = table[sector % 6][2];
}

void mr_pillow_turn_hues(size_t n, double turn, float x[3][MR_COLOR_BLOCK])
{
    int by = (int)(turn * 255); /* torchvision's, towards 0 */
    for (size_t i = 0; i < n; i++) {
        struct hsv c = to_hsv(x[0][i], x[1][i], x[2][i]);
        c.h = (uint8_t)(c.h + by);
        from_hsv(c, &x[0][i], &x[1][i], &x[2][i]);
    }
}
