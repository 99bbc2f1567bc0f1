/* Pictures of decoders that are not trusted. */
#include "codec/image_codec.h"

/* One axis has the decoded pixels [first, end) of all there are. */
static bool has_span(uint32_t at, uint32_t n, uint32_t first, uint32_t end, uint32_t full,
                     unsigned eighths)
{
    uint64_t all = ((uint64_t)full * eighths + 7) / 8;
    return n > 0 && at <= first && (uint64_t)at + n >= end && (uint64_t)at + n <= all;
}

static unsigned eighths_of(double scale)
{
    for (unsigned e = 1; e <= 8; e++)
        if (scale == e / 8.)
            return e;
    return 0;
}

static bool fits(const struct mr_picture *p, uint64_t bytes)
{
    uint64_t row = (uint64_t)p->width * p->channels, all;
    return p->stride == row && mr_mul(row, p->height, &all) && all <= bytes;
}

int mr_picture_check(const struct mr_image_opts *opts, const char *name, mr_window_choice *choose,
                     void *user, const struct mr_picture *p, uint64_t bytes)
{
    const struct mr_image_call call = {.opts = opts, .name = name, .choose = choose, .user = user};
    unsigned x = eighths_of(p->scale_x), y = eighths_of(p->scale_y);
    struct mr_window window;
    bool right = p->full_width > 0 && p->full_height > 0 && x > 0 && y > 0 &&
                 p->channels == (uint32_t)opts->channels;
    int rc = right ? mr_image_check_size(&call, p->full_width, p->full_height) : 0;
    if (rc < 0)
        return rc;
    rc = right ? mr_image_window(&call, p->full_width, p->full_height, &window) : 0;
    if (rc < 0)
        return rc;
    if (right) {
        struct mr_region across = mr_image_region(&window, x, p->full_width, p->full_height),
                         down = mr_image_region(&window, y, p->full_width, p->full_height);
        right = has_span(p->x, p->width, across.x0, across.x1, p->full_width, x) &&
                has_span(p->y, p->height, down.y0, down.y1, p->full_height, y) && fits(p, bytes);
    }
    return right ? 0
                 : mr_error_set(MR_EFORMAT,
                                "%s: the decoder returned other pixels than it was "
                                "asked for",
                                name);
}
