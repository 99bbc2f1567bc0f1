/*
 * Any bytes as a picture of one format. The input's last byte chooses channels, alpha policy,
 * orientation and exactness, the six before it a window. Nothing may crash, leak or hang; all
 * pixels of a result are written, so that a second decode into dirty room makes the same; probe and
 * decode agree on the size.
 */
#ifndef MR_FUZZ_PICTURE_H
#define MR_FUZZ_PICTURE_H

#include "codec/image_codec.h"

#include <stdio.h>
#include <string.h>

#define TAIL   7
#define PIXELS (1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_wish {
    const uint8_t *tail;
    uint32_t width, height;
};

static inline int fuzz_window(void *user, uint32_t width, uint32_t height, struct mr_window *w)
{
    struct fuzz_wish *wish = user;
    const uint8_t *t = wish->tail;
    wish->width = width;
    wish->height = height;
    *w = (struct mr_window){
        .clip_w = width, .clip_h = height, .out_w = 1u + t[4], .out_h = 1u + t[5]};
    w->x = width * (t[0] / 256.);
    w->y = height * (t[1] / 256.);
    w->w = (width - w->x) * ((t[2] + 1) / 256.);
    w->h = (height - w->y) * ((t[3] + 1) / 256.);
    return 0;
}

static inline uint64_t fuzz_sum(const struct mr_picture *p)
{
    uint64_t h = mr_hash(MR_HASH_START, &p->width, sizeof p->width);
    for (uint32_t y = 0; y < p->height; y++)
        h = mr_hash(h, p->data + y * p->stride, (uint64_t)p->width * p->channels);
    return h;
}

static inline int fuzz_decode(struct mr_decoder *d, const struct mr_image_opts *opts,
                              const uint8_t *data, size_t size, const uint8_t *tail,
                              struct mr_picture *p)
{
    struct mr_image_info info;
    struct fuzz_wish wish = {.tail = tail};
    int rc = mr_image_decode(d, opts, "fuzz", data, size, tail ? fuzz_window : NULL, &wish, p);
    if (rc)
        return rc;
    if (mr_image_probe("fuzz", data, size, &info) != 0)
        abort();
    bool swap = opts->ignore_orientation && info.orientation > 4;
    if (p->full_width != (swap ? info.height : info.width) ||
        p->full_height != (swap ? info.width : info.height))
        abort();
    if (tail ? wish.width != p->full_width
             : p->width != p->full_width || p->height != p->full_height)
        abort();
    return 0;
}

static inline void fuzz_twice(const struct mr_image_opts *opts, const uint8_t *data, size_t size,
                              const uint8_t *tail)
{
    struct mr_decoder *d;
    struct mr_picture p;
    if (mr_decoder_create(&d) != 0)
        abort();
    int rc = fuzz_decode(d, opts, data, size, tail, &p);
    uint64_t sum = rc ? 0 : fuzz_sum(&p);
    if (d->pixels.data)
        memset(d->pixels.data, 0x55, d->pixels.bytes);
    if (d->turned.data)
        memset(d->turned.data, 0x55, d->turned.bytes);
    if (fuzz_decode(d, opts, data, size, tail, &p) != rc || (rc == 0 && fuzz_sum(&p) != sum))
        abort();
    mr_decoder_destroy(d);
}

static inline void fuzz_picture(enum mr_image_format format, const uint8_t *data, size_t size)
{
    static const int channels[] = {3, 3, 1, 4};
    if (size < TAIL || mr_image_sniff(data, size - TAIL) != format)
        return;
    size -= TAIL;
    unsigned bits = data[size + 6];
    struct mr_image_opts opts = {.channels = channels[bits & 3],
                                 .alpha = (int)(bits >> 2 & 3) % 3,
                                 .ignore_orientation = bits & 16,
                                 .exact = bits & 32,
                                 .max_pixels = PIXELS};
    uint8_t tail[TAIL], *copy = malloc(size ? size : 1); /* of its size, for AddressSanitizer */
    if (!copy)
        abort();
    memcpy(tail, data + size, TAIL);
    memcpy(copy, data, size);
    fuzz_twice(&opts, copy, size, bits & 64 ? tail : NULL);
    free(copy);
}

#endif
