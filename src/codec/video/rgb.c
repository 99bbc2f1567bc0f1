/* Converts a decoded frame to RGB of the requested size: cropped, scaled and converted by
 * libswscale, then turned upright. */
#include "codec/video/module.h"

#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <stdlib.h>
#include <string.h>

struct video_part video_choose_part(int frame_w, int frame_h, int shift_x, int shift_y,
                                    const struct mr_video_size *size, bool crop)
{
    struct video_part p = {0, 0, frame_w, frame_h};
    if (!crop)
        return p;
    if ((uint64_t)frame_w * size->height > (uint64_t)frame_h * size->width)
        p.w = (int)((uint64_t)frame_h * size->width / size->height);
    else
        p.h = (int)((uint64_t)frame_w * size->height / size->width);
    p.w = p.w > 0 ? p.w : 1;
    p.h = p.h > 0 ? p.h : 1;
    /* aligned to a whole chroma sample */
    p.x = (frame_w - p.w) / 2 >> shift_x << shift_x;
    p.y = (frame_h - p.h) / 2 >> shift_y << shift_y;
    return p;
}

/* The planes of a frame, starting at column x and row y. */
static void shift_planes(const AVFrame *f, const struct video_part *p, const uint8_t *plane[4])
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get((enum AVPixelFormat)f->format);
    int step[4], component[4];
    av_image_fill_max_pixsteps(step, component, d);
    for (int i = 0; i < 4; i++) {
        bool chroma = (i == 1 || i == 2) && !(d->flags & AV_PIX_FMT_FLAG_RGB);
        int x = chroma ? p->x >> d->log2_chroma_w : p->x,
            y = chroma ? p->y >> d->log2_chroma_h : p->y;
        bool moves = f->data[i] && !(i == 1 && d->flags & AV_PIX_FMT_FLAG_PAL);
        plane[i] = moves ? f->data[i] + (ptrdiff_t)y * f->linesize[i] + (ptrdiff_t)x * step[i]
                         : f->data[i];
    }
}

int video_colour_space(enum AVColorSpace space, int height)
{
    return space != AVCOL_SPC_UNSPECIFIED ? (int)space
           : height >= 720                ? SWS_CS_ITU709
                                          : SWS_CS_ITU601;
}

/* Creates the scaler again if its parameters changed. */
static int need_scaler(struct mr_video *v, struct video_scaling to)
{
    if (v->scaler && memcmp(&v->scaling, &to, sizeof to) == 0)
        return 0;
    sws_freeContext(v->scaler);
    v->scaling = to;
    v->scaler = sws_getContext(
        to.from_w, to.from_h, (enum AVPixelFormat)to.format, to.to_w, to.to_h, AV_PIX_FMT_RGB24,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT, NULL, NULL, NULL);
    if (v->scaler &&
        sws_setColorspaceDetails(v->scaler, sws_getCoefficients(to.space), to.full,
                                 sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16) >= 0)
        return 0;
    const char *name = av_get_pix_fmt_name((enum AVPixelFormat)to.format);
    return video_host->error(MR_EUNSUPPORTED, "%s: libswscale makes no RGB of its pixels (%s)",
                             v->source.name, name ? name : "unknown");
}

/* Rotates w x h pixels of 3 bytes clockwise by quarter turns, into `to`. */
static void turn(const uint8_t *from, uint32_t w, uint32_t h, int turns, uint8_t *to)
{
    for (uint32_t y = 0; y < h; y++)
        for (uint32_t x = 0; x < w; x++, from += 3) {
            uint64_t at = turns == 1   ? (uint64_t)x * h + (h - 1 - y)
                          : turns == 2 ? (uint64_t)(h - 1 - y) * w + (w - 1 - x)
                                       : (uint64_t)(w - 1 - x) * h + y;
            memcpy(to + at * 3, from, 3);
        }
}

static int room_for_turn(struct mr_video *v, uint64_t bytes)
{
    if (v->turns == 0 || bytes <= v->turned_bytes)
        return 0;
    free(v->turned);
    v->turned = malloc(bytes);
    v->turned_bytes = v->turned ? bytes : 0;
    return v->turned ? 0 : video_error(v, AVERROR(ENOMEM), "room to turn a frame");
}

struct mr_video_size video_unturned(const struct mr_video *v, const struct mr_video_size *size)
{
    bool lies = v->turns % 2 == 1;
    return (struct mr_video_size){lies ? size->height : size->width,
                                  lies ? size->width : size->height, size->crop, size->exact};
}

int video_convert(struct mr_video *v, const uint8_t *const plane[4], const int stride[4],
                  struct video_scaling how, uint8_t *out)
{
    int rc = room_for_turn(v, (uint64_t)how.to_w * (uint64_t)how.to_h * 3);
    if (rc < 0)
        return rc;
    rc = need_scaler(v, how);
    if (rc < 0)
        return rc;
    uint8_t *const to[4] = {v->turns ? v->turned : out};
    const int to_stride[4] = {how.to_w * 3};
    if (sws_scale(v->scaler, plane, stride, 0, how.from_h, to, to_stride) != how.to_h)
        return video_host->error(MR_EFORMAT, "%s: a frame does not scale", v->source.name);
    if (v->turns)
        turn(v->turned, (uint32_t)how.to_w, (uint32_t)how.to_h, v->turns, out);
    return 0;
}

int video_write_rgb(struct mr_video *v, const AVFrame *frame, const struct mr_video_size *size,
                    uint8_t *out)
{
    struct mr_video_size to = video_unturned(v, size);
    if (frame->width <= 0 || frame->height <= 0 ||
        (uint64_t)frame->width * (uint64_t)frame->height > v->max_pixels)
        return video_host->error(MR_ELIMIT, "%s: a frame of %d x %d pixels", v->source.name,
                                 frame->height, frame->width);
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get((enum AVPixelFormat)frame->format);
    struct video_part p = video_choose_part(frame->width, frame->height, d ? d->log2_chroma_w : 0,
                                            d ? d->log2_chroma_h : 0, &to, d && size->crop);
    struct video_scaling how = {
        .from_w = p.w,
        .from_h = p.h,
        .to_w = (int)to.width,
        .to_h = (int)to.height,
        .format = frame->format,
        .space = video_colour_space(frame->colorspace, frame->height),
        .full = frame->color_range == AVCOL_RANGE_JPEG,
    };
    const uint8_t *plane[4];
    shift_planes(frame, &p, plane);
    return video_convert(v, plane, frame->linesize, how, out);
}
