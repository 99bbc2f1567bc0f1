/* PNG by libspng, always the whole picture. */
#include "codec/image_codec.h"

#include <errno.h>
#include <spng.h>

#define SIDE        0x7fffffff /* PNG's own limit */
#define CHUNK_BYTES (64u << 20)
/* limit for texts, profiles and similar chunks, which we don't use */
#define CACHE_BYTES (64u << 20)

static int png_error(const char *name, int code)
{
    switch (code) {
    case SPNG_IO_EOF:
    case SPNG_EIO:
    case SPNG_EOF:
    case SPNG_EIDAT_TOO_SHORT:
        return mr_error_set(MR_ETRUNCATED, "%s: truncated: the PNG data end early (%s)", name,
                            spng_strerror(code));
    case SPNG_EMEM:
        return mr_error_nomem(name, 0);
    case SPNG_ECHUNK_LIMITS:
        return mr_error_set(MR_ELIMIT, "%s: PNG: more than %u MiB of texts, profiles and the like",
                            name, CACHE_BYTES >> 20);
    default:
        return mr_error_set(MR_EFORMAT, "%s: PNG: %s", name, spng_strerror(code));
    }
}

/* [out] ctx: free it on success. Returns 0 or an error. */
static int open_png(const char *name, const unsigned char *bytes, uint64_t n, spng_ctx **ctx,
                    struct mr_image_info *info)
{
    static const int channels[7] = {[0] = 1, [2] = 3, [3] = 3, [4] = 2, [6] = 4};
    struct spng_ihdr head;
    struct spng_exif exif;
    spng_ctx *c = spng_ctx_new(0);
    if (!c)
        return mr_error_nomem(name, 0);
    int rc = spng_set_image_limits(c, SIDE, SIDE);
    if (rc)
        goto fail;
    rc = spng_set_chunk_limits(c, CHUNK_BYTES, CACHE_BYTES);
    if (rc)
        goto fail;
    rc = spng_set_png_buffer(c, bytes, n);
    if (rc)
        goto fail;
    rc = spng_get_ihdr(c, &head);
    if (rc)
        goto fail;
    rc = spng_decode_chunks(c); /* the chunks before the pixels */
    if (rc)
        goto fail;
    int orientation =
        spng_get_exif(c, &exif) == 0 ? mr_exif_orientation((void *)exif.data, exif.length) : 1;
    bool swap = mr_turn_of(orientation).swap;
    *info = (struct mr_image_info){.format = MR_IMAGE_PNG,
                                   .width = swap ? head.height : head.width,
                                   .height = swap ? head.width : head.height,
                                   .orientation = orientation,
                                   .channels = channels[head.color_type],
                                   .bits = head.bit_depth};
    *ctx = c;
    return 0;
fail:
    spng_ctx_free(c);
    return png_error(name, rc);
}

/* [out] p: RGB, or RGBA if alpha is needed. */
static int decode_pixels(const struct mr_image_call *call, spng_ctx *c,
                         const struct mr_image_info *info, struct mr_picture *p)
{
    struct spng_trns trns;
    struct mr_room *room = &call->decoder->pixels;
    bool alpha = info->channels == 2 || info->channels == 4 || spng_get_trns(c, &trns) == 0;
    bool rgba = call->opts->channels == 4 || (alpha && call->opts->alpha != MR_ALPHA_DROP);
    int format = rgba ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8;
    size_t bytes;
    int rc = spng_decoded_image_size(c, format, &bytes);
    if (rc)
        return png_error(call->name, rc);
    rc = mr_room_need(room, bytes, call->name);
    if (rc < 0)
        return rc;
    rc = spng_decode_image(c, room->data, bytes, format, rgba ? SPNG_DECODE_TRNS : 0);
    if (rc)
        return png_error(call->name, rc);
    rc = spng_decode_chunks(c);
    if (rc)
        return png_error(call->name, rc);
    bool swap = mr_turn_of(info->orientation).swap;
    *p = (struct mr_picture){.data = room->data,
                             .width = swap ? info->height : info->width,
                             .height = swap ? info->width : info->height,
                             .channels = rgba ? 4 : 3};
    p->stride = (uint64_t)p->width * p->channels;
    mr_pixels_reduce(p, room->data, call->opts);
    return 0;
}

static int decode_opened(const struct mr_image_call *call, spng_ctx *c, struct mr_image_info *info,
                         struct mr_picture *p)
{
    struct mr_window w;
    if (call->opts->ignore_orientation && mr_turn_of(info->orientation).swap)
        *info = (struct mr_image_info){info->format,   info->height, info->width, 1,
                                       info->channels, info->bits};
    if (call->opts->ignore_orientation)
        info->orientation = 1;
    int rc = mr_image_check_size(call, info->width, info->height);
    if (rc < 0)
        return rc;
    rc = mr_image_window(call, info->width, info->height, &w);
    if (rc != 0)
        return rc;
    rc = decode_pixels(call, c, info, p);
    if (rc < 0)
        return rc;
    rc = mr_picture_turn(call, mr_turn_of(info->orientation), p);
    if (rc < 0)
        return rc;
    p->scale_x = p->scale_y = 1;
    p->full_width = info->width;
    p->full_height = info->height;
    return 0;
}

static int decode(const struct mr_image_call *call, struct mr_picture *out)
{
    struct mr_image_info info = {0};
    struct mr_picture p = {0};
    spng_ctx *c = NULL;
    int rc = open_png(call->name, call->bytes, call->n, &c, &info);
    if (rc < 0)
        return rc;
    rc = decode_opened(call, c, &info, &p);
    spng_ctx_free(c);
    if (rc != 0)
        return rc;
    *out = p;
    return 0;
}

static int probe(const char *name, const unsigned char *bytes, uint64_t n,
                 struct mr_image_info *out)
{
    spng_ctx *c = NULL;
    int rc = open_png(name, bytes, n, &c, out);
    if (rc < 0)
        return rc;
    spng_ctx_free(c);
    return 0;
}

const struct mr_image_codec mr_png_codec = {.probe = probe, .decode = decode};
