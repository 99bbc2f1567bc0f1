/* Converts decoded pixels to the requested form: upright, alpha blended or dropped, gray. */
#include "codec/image_codec.h"

#include <string.h>

struct mr_turn mr_turn_of(int orientation)
{
    static const struct mr_turn turns[9] = {
        [2] = {.flip_x = true},
        [3] = {.flip_x = true, .flip_y = true},
        [4] = {.flip_y = true},
        [5] = {.swap = true},
        [6] = {.flip_y = true, .swap = true},
        [7] = {.flip_x = true, .flip_y = true, .swap = true},
        [8] = {.flip_x = true, .swap = true},
    };
    return turns[orientation >= 1 && orientation <= 8 ? orientation : 0];
}

/* One output row: n pixels, read from `from` at a distance of `step` bytes. */
static void gather(unsigned char *to, const unsigned char *from, ptrdiff_t step, uint32_t n,
                   unsigned channels)
{
    switch (channels) {
    case 1:
        for (uint32_t i = 0; i < n; i++, from += step)
            *to++ = *from;
        return;
    case 3:
        for (uint32_t i = 0; i < n; i++, from += step, to += 3) {
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
        }
        return;
    default:
        for (uint32_t i = 0; i < n; i++, from += step, to += channels)
            memcpy(to, from, channels);
    }
}

int mr_picture_turn(const struct mr_image_call *call, struct mr_turn turn, struct mr_picture *p)
{
    if (!turn.flip_x && !turn.flip_y && !turn.swap)
        return 0;
    uint32_t width = turn.swap ? p->height : p->width, height = turn.swap ? p->width : p->height;
    uint64_t stride = (uint64_t)width * p->channels, bytes;
    if (!mr_mul(stride, height, &bytes))
        return mr_error_nomem(call->name, UINT64_MAX);
    struct mr_room *room = &call->decoder->turned;
    int rc = mr_room_need(room, bytes, call->name);
    if (rc < 0)
        return rc;
    ptrdiff_t right = turn.flip_x ? -(ptrdiff_t)p->channels : (ptrdiff_t)p->channels;
    ptrdiff_t down = turn.flip_y ? -(ptrdiff_t)p->stride : (ptrdiff_t)p->stride;
    const unsigned char *from = p->data;
    if (turn.flip_x)
        from += (uint64_t)(p->width - 1) * p->channels;
    if (turn.flip_y)
        from += (uint64_t)(p->height - 1) * p->stride;
    for (uint32_t y = 0; y < height; y++)
        gather(room->data + y * stride, from + (ptrdiff_t)y * (turn.swap ? right : down),
               turn.swap ? down : right, width, p->channels);
    p->data = room->data;
    p->stride = stride;
    p->width = width;
    p->height = height;
    return 0;
}

/* a * b / 255, rounded as Pillow does. */
static unsigned part(unsigned a, unsigned b)
{
    unsigned x = a * b + 128;
    return ((x >> 8) + x) >> 8;
}

/* Converts n pixels of 3 or 4 channels to fewer. ground: gray level to blend over, or -1 to drop
 * alpha. */
static void reduce_row(unsigned char *to, int n_to, const unsigned char *from, int n_from,
                       uint32_t n, int ground)
{
    for (uint32_t i = 0; i < n; i++, from += n_from, to += n_to) {
        unsigned c[3] = {from[0], from[1], from[2]};
        if (n_from == 4 && ground >= 0)
            for (int k = 0; k < 3; k++)
                c[k] = part(c[k], from[3]) + part((unsigned)ground, 255u - from[3]);
        if (n_to == 1) {
            *to = mr_luma(c[0], c[1], c[2]);
        } else {
            to[0] = (unsigned char)c[0];
            to[1] = (unsigned char)c[1];
            to[2] = (unsigned char)c[2];
        }
    }
}

void mr_pixels_reduce(struct mr_picture *p, unsigned char *data, const struct mr_image_opts *opts)
{
    static const int grounds[] = {
        [MR_ALPHA_DROP] = -1, [MR_ALPHA_BLACK] = 0, [MR_ALPHA_WHITE] = 255};
    if ((int)p->channels == opts->channels)
        return;
    uint64_t stride = (uint64_t)p->width * (unsigned)opts->channels;
    for (uint32_t y = 0; y < p->height; y++)
        reduce_row(data + y * stride, opts->channels, p->data + y * p->stride, (int)p->channels,
                   p->width, grounds[opts->alpha]);
    p->data = data;
    p->stride = stride;
    p->channels = (uint32_t)opts->channels;
}
