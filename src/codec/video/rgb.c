/* Converts a decoded frame to RGB of the requested size: cropped, scaled and converted by
 * libswscale, then turned upright. */
#include "codec/video/module.h"

#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <stdlib.h>
#include <string.h>

/* The visible part of the frame: all of it, or the largest centred part with the output's aspect
 * ratio. */
struct part {
    int x, y, w, h;
};

static struct part choose_part(const AVFrame *f, uint32_t width, uint32_t height, bool crop)
{
    struct part p = {0, 0, f->width, f->height};
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get((enum AVPixelFormat)f->format);
    if (!crop || !d)
        return p;
    if ((uint64_t)f->width * height > (uint64_t)f->height * width)
        p.w = (int)((uint64_t)f->height * width / height);
    else
        p.h = (int)((uint64_t)f->width * height / width);
    p.w = p.w > 0 ? p.w : 1;
    p.h = p.h > 0 ? p.h : 1;
    /* aligned to a whole chroma sample */
    p.x = (f->width - p.w) / 2 >> d->log2_chroma_w << d->log2_chroma_w;
    p.y = (f->height - p.h) / 2 >> d->log2_chroma_h << d->log2_chroma_h;
    return p;
}

/* The planes of a frame, starting at column x and row y. */
static void shift_planes(const AVFrame *f, const struct part *p, const uint8_t *plane[4])
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

/* The parameters of a scaler. Colour matrix and range come from the file; if an HD file does not
 * specify them, BT.709. */
static struct video_scaling choose_scaling(const AVFrame *f, const struct part *p, uint32_t w,
                                           uint32_t h)
{
    return (struct video_scaling){
        .from_w = p->w,
        .from_h = p->h,
        .to_w = (int)w,
        .to_h = (int)h,
        .format = f->format,
        .space = f->colorspace != AVCOL_SPC_UNSPECIFIED ? (int)f->colorspace
                 : f->height >= 720                     ? SWS_CS_ITU709
                                                        : SWS_CS_ITU601,
        .full = f->color_range == AVCOL_RANGE_JPEG,
    };
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

int video_write_rgb(struct mr_video *v, const AVFrame *frame, const struct mr_video_size *size,
                    uint8_t *out)
{
    bool lies = v->turns % 2 == 1;
    uint32_t w = lies ? size->height : size->width, h = lies ? size->width : size->height;
    if (frame->width <= 0 || frame->height <= 0 ||
        (uint64_t)frame->width * (uint64_t)frame->height > v->max_pixels)
        return video_host->error(MR_ELIMIT, "%s: a frame of %d x %d pixels", v->source.name,
                                 frame->height, frame->width);
    struct part p = choose_part(frame, w, h, size->crop);
    int rc = room_for_turn(v, (uint64_t)w * h * 3);
    if (rc < 0)
        return rc;
    rc = need_scaler(v, choose_scaling(frame, &p, w, h));
    if (rc < 0)
        return rc;
    const uint8_t *plane[4];
    uint8_t *const to[4] = {v->turns ? v->turned : out};
    const int stride[4] = {(int)w * 3};
    shift_planes(frame, &p, plane);
    if (sws_scale(v->scaler, plane, frame->linesize, 0, p.h, to, stride) != (int)h)
        return video_host->error(MR_EFORMAT, "%s: a frame does not scale", v->source.name);
    if (v->turns)
        turn(v->turned, w, h, v->turns, out);
    return 0;
}
