/* WebP by libwebp: decodes only what a window needs, at full size. */
#include "codec/image_codec.h"

#include <errno.h>
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

#define EDGE 2 /* at the edges of a crop, chroma would be interpolated without its neighbours */

static int webp_error(const char *name, VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_OK:
        return 0;
    case VP8_STATUS_OUT_OF_MEMORY:
        return mr_error_nomem(name, 0);
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return mr_error_set(MR_ETRUNCATED, "%s: truncated: the WebP data end early", name);
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return mr_error_set(MR_EUNSUPPORTED, "%s: WebP: a feature that this libwebp does not know",
                            name);
    default:
        return mr_error_set(MR_EFORMAT, "%s: WebP: damaged (libwebp's status %d)", name, code);
    }
}

/* EXIF is a separate chunk, usually after the pixels. */
static int orientation_of(const unsigned char *bytes, uint64_t n)
{
    WebPData data = {bytes, n};
    WebPChunkIterator chunk;
    int orientation = 1;
    if (n < 21 || memcmp(bytes + 12, "VP8X", 4) != 0 || !(bytes[20] & EXIF_FLAG))
        return orientation;
    WebPDemuxer *demuxer = WebPDemux(&data);
    if (!demuxer)
        return orientation;
    if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
        size_t skip = chunk.chunk.size >= 6 && !memcmp(chunk.chunk.bytes, "Exif\0", 6) ? 6 : 0;
        orientation = mr_exif_orientation(chunk.chunk.bytes + skip, chunk.chunk.size - skip);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    WebPDemuxDelete(demuxer);
    return orientation;
}

static int probe(const char *name, const unsigned char *bytes, uint64_t n,
                 struct mr_image_info *out)
{
    WebPBitstreamFeatures f;
    int rc = webp_error(name, WebPGetFeatures(bytes, n, &f));
    if (rc < 0)
        return rc;
    if (f.has_animation)
        return mr_error_set(MR_EUNSUPPORTED, "%s: an animated WebP: expected a still picture",
                            name);
    int orientation = orientation_of(bytes, n);
    bool swap = mr_turn_of(orientation).swap;
    *out = (struct mr_image_info){.format = MR_IMAGE_WEBP,
                                  .width = (uint32_t)(swap ? f.height : f.width),
                                  .height = (uint32_t)(swap ? f.width : f.height),
                                  .orientation = orientation,
                                  .channels = f.has_alpha ? 4 : 3,
                                  .bits = 8};
    return 0;
}

/* The crop that contains r and its edges, from even coordinates. */
static struct mr_region widen(struct mr_region r, uint32_t width, uint32_t height)
{
    r.x0 = (r.x0 > EDGE ? r.x0 - EDGE : 0) & ~1u;
    r.y0 = (r.y0 > EDGE ? r.y0 - EDGE : 0) & ~1u;
    r.x1 = MR_MIN(r.x1 + EDGE, width);
    r.y1 = MR_MIN(r.y1 + EDGE, height);
    return r;
}

/* [out] p: the region of the stored picture, as RGB, or RGBA if alpha is needed, converted to the
 * requested channels. */
static int decode_pixels(const struct mr_image_call *call, struct mr_region r,
                         struct mr_region crop, bool rgba, struct mr_picture *p)
{
    struct mr_room *room = &call->decoder->pixels;
    WebPDecoderConfig config;
    uint64_t pixel = rgba ? 4 : 3, stride = (crop.x1 - crop.x0) * pixel, bytes;
    if (!mr_mul(stride, crop.y1 - crop.y0, &bytes) || !WebPInitDecoderConfig(&config))
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: WebP: this libwebp is of another version than its headers",
                            call->name);
    int rc = mr_room_need(room, bytes, call->name);
    if (rc < 0)
        return rc;
    config.options.use_cropping = 1;
    config.options.crop_left = (int)crop.x0;
    config.options.crop_top = (int)crop.y0;
    config.options.crop_width = (int)(crop.x1 - crop.x0);
    config.options.crop_height = (int)(crop.y1 - crop.y0);
    config.output.colorspace = rgba ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA =
        (struct WebPRGBABuffer){.rgba = room->data, .stride = (int)stride, .size = bytes};
    rc = webp_error(call->name, WebPDecode(call->bytes, call->n, &config));
    WebPFreeDecBuffer(&config.output);
    if (rc < 0)
        return rc;
    *p = (struct mr_picture){.data =
                                 room->data + (r.y0 - crop.y0) * stride + (r.x0 - crop.x0) * pixel,
                             .stride = stride,
                             .width = r.x1 - r.x0,
                             .height = r.y1 - r.y0,
                             .channels = (uint32_t)pixel};
    mr_pixels_reduce(p, room->data, call->opts);
    return 0;
}

static int decode(const struct mr_image_call *call, struct mr_picture *out)
{
    struct mr_image_info info;
    struct mr_window w;
    struct mr_picture p;
    int rc = probe(call->name, call->bytes, call->n, &info);
    if (rc < 0)
        return rc;
    struct mr_turn turn = mr_turn_of(info.orientation);
    uint32_t stored_width = turn.swap ? info.height : info.width,
             stored_height = turn.swap ? info.width : info.height;
    if (call->opts->ignore_orientation) {
        turn = mr_turn_of(1);
        info.width = stored_width;
        info.height = stored_height;
    }
    rc = mr_image_check_size(call, info.width, info.height);
    if (rc < 0)
        return rc;
    rc = mr_image_window(call, info.width, info.height, &w);
    if (rc != 0)
        return rc;
    struct mr_region upright = mr_image_region(&w, 8, info.width, info.height);
    struct mr_region r = mr_region_stored(upright, turn, info.width, info.height);
    bool rgba =
        call->opts->channels == 4 || (info.channels == 4 && call->opts->alpha != MR_ALPHA_DROP);
    rc = decode_pixels(call, r, widen(r, stored_width, stored_height), rgba, &p);
    if (rc < 0)
        return rc;
    rc = mr_picture_turn(call, turn, &p);
    if (rc < 0)
        return rc;
    p.x = upright.x0;
    p.y = upright.y0;
    p.scale_x = p.scale_y = 1;
    p.full_width = info.width;
    p.full_height = info.height;
    *out = p;
    return 0;
}

const struct mr_image_codec mr_webp_codec = {.probe = probe, .decode = decode};
