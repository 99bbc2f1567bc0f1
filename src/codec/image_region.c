/* From the requested window to the pixels that must be decoded, in either orientation. */
#include "codec/image_codec.h"

#include <math.h>

/* radius of the widest filter, bicubic, in pixels of output or source, whichever are larger */
#define SUPPORT 2

int mr_image_check_size(const struct mr_image_call *call, uint32_t width, uint32_t height)
{
    uint64_t most = call->opts->max_pixels ? call->opts->max_pixels : MR_IMAGE_PIXELS;
    if ((uint64_t)width * height <= most)
        return 0;
    return mr_error_set(
        MR_ELIMIT,
        "%s: %u x %u pixels (width x height): more than the limit of %llu: raise max-pixels",
        call->name, width, height, (unsigned long long)most);
}

/* in pixels: boxes come from products such as 224 * (450 / 224.), which are not exact */
#define SLACK 1e-6

static bool window_fits(const struct mr_window *w, uint32_t width, uint32_t height)
{
    return w->w > 0 && w->h > 0 && w->out_w && w->out_h && w->clip_w && w->clip_h &&
           w->clip_x < width && w->clip_y < height && w->clip_w <= width - w->clip_x &&
           w->clip_h <= height - w->clip_y && w->x >= w->clip_x - SLACK &&
           w->y >= w->clip_y - SLACK && w->x + w->w <= (double)w->clip_x + w->clip_w + SLACK &&
           w->y + w->h <= (double)w->clip_y + w->clip_h + SLACK;
}

/* Removes rounding errors, so that later code may rely on the box being within its clip. */
static void settle(double *at, double *size, uint32_t clip, uint32_t clip_size)
{
    double end = MR_MIN(*at + *size, (double)clip + clip_size);
    *at = MR_MAX(*at, clip);
    if (*at + *size > end)
        *size = end - *at;
}

int mr_image_window(const struct mr_image_call *call, uint32_t width, uint32_t height,
                    struct mr_window *out)
{
    *out = (struct mr_window){.w = width,
                              .h = height,
                              .clip_w = width,
                              .clip_h = height,
                              .out_w = width,
                              .out_h = height};
    if (!call->choose)
        return 0;
    int rc = call->choose(call->user, width, height, out);
    if (rc < 0)
        return rc;
    if (!window_fits(out, width, height))
        return mr_error_set(MR_EMISUSE,
                            "%s: a window of %g x %g at %g, %g with clip %u x %u at %u, %u does "
                            "not lie in the picture's "
                            "%u x %u",
                            call->name, out->w, out->h, out->x, out->y, out->clip_w, out->clip_h,
                            out->clip_x, out->clip_y, width, height);
    settle(&out->x, &out->w, out->clip_x, out->clip_w);
    settle(&out->y, &out->h, out->clip_y, out->clip_h);
    return 0;
}

/* For one axis, converts box and clip in full pixels to decoded pixels [*a, *b). */
static void span(double begin, double size, uint32_t out, uint32_t clip, uint32_t clip_size,
                 unsigned eighths, uint32_t *a, uint32_t *b)
{
    double scale = eighths / 8., end = (begin + size) * scale, margin = 0;
    begin *= scale;
    if (eighths != 8 || size != out || begin != floor(begin))
        margin = SUPPORT * fmax(1, size * scale / out);
    uint64_t least = (uint64_t)clip * eighths / 8,
             most = (((uint64_t)clip + clip_size) * eighths + 7) / 8;
    *a = (uint32_t)fmax(floor(begin - margin), (double)least);
    *b = (uint32_t)fmin(ceil(end + margin), (double)most);
    if (*b <= *a) /* a box narrower than the rounding error */
        *b = *a + 1;
}

struct mr_region mr_image_region(const struct mr_window *w, unsigned eighths, uint32_t width,
                                 uint32_t height)
{
    struct mr_region r;
    span(w->x, w->w, w->out_w, w->clip_x, w->clip_w, eighths, &r.x0, &r.x1);
    span(w->y, w->h, w->out_h, w->clip_y, w->clip_h, eighths, &r.y0, &r.y1);
    uint32_t columns = (uint32_t)(((uint64_t)width * eighths + 7) / 8);
    uint32_t rows = (uint32_t)(((uint64_t)height * eighths + 7) / 8);
    r.x1 = MR_MIN(r.x1, columns);
    r.y1 = MR_MIN(r.y1, rows);
    r.x0 = MR_MIN(r.x0, r.x1 - 1);
    r.y0 = MR_MIN(r.y0, r.y1 - 1);
    return r;
}

struct mr_region mr_region_stored(struct mr_region r, struct mr_turn turn, uint32_t width,
                                  uint32_t height)
{
    if (turn.swap) {
        r = (struct mr_region){r.y0, r.x0, r.y1, r.x1};
        uint32_t w = width;
        width = height;
        height = w;
    }
    if (turn.flip_x)
        r = (struct mr_region){width - r.x1, r.y0, width - r.x0, r.y1};
    if (turn.flip_y)
        r = (struct mr_region){r.x0, height - r.y1, r.x1, height - r.y0};
    return r;
}
