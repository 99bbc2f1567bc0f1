/* Decodes a clip by NVDEC: what the parser calls back, and what it is fed with. See nvdec.h. */
#include "codec/video/nvdec.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN         64 /* bytes of a row on the host */
#define MORE_SURFACES 4  /* than the stream needs, so that decoding and copying overlap */

struct nvdec_clip {
    struct mr_video *v;
    const struct mr_video_index *index;
    const uint64_t *number;
    uint32_t n, got; /* frames wanted, and written to out */
    struct mr_video_size to;
    uint8_t *out;
    uint64_t counted; /* frames shown since the front, for an index that is not exact */
    uint64_t sent;    /* largest number of a packet that was fed since the last seek */
    uint64_t shown;   /* number of the last frame shown, if `shows` */
    bool shows;
    bool flushing; /* what is shown belongs to no clip */
    bool missed;   /* a frame after the wanted one was shown */
    int rc;        /* of a callback; its error text is set */
};

static const struct {
    enum AVCodecID id;
    enum cuvid_codec codec;
    const char *filter; /* libav's, that makes packets what the parser reads */
    bool header;        /* the parser needs the file's header */
} codecs[] = {
    {AV_CODEC_ID_H264, CUVID_H264, "h264_mp4toannexb", true},
    {AV_CODEC_ID_HEVC, CUVID_HEVC, "hevc_mp4toannexb", true},
    {AV_CODEC_ID_MPEG4, CUVID_MPEG4, "mpeg4_unpack_bframes", true}, /* old AVIs pack them */
    {AV_CODEC_ID_MPEG2VIDEO, CUVID_MPEG2, "null", true},
    {AV_CODEC_ID_MPEG1VIDEO, CUVID_MPEG1, "null", true},
    {AV_CODEC_ID_VP8, CUVID_VP8, "null", false},
    {AV_CODEC_ID_VP9, CUVID_VP9, "null", false},
    {AV_CODEC_ID_AV1, CUVID_AV1, "null", false},
};

static int find_codec(const struct mr_video *v)
{
    for (size_t i = 0; i < MR_COUNT(codecs); i++)
        if (codecs[i].id == v->stream->codecpar->codec_id)
            return (int)i;
    return -1;
}

static int failed(struct nvdec *s, const char *call, int result)
{
    if (result != CUDA_OK && s->clip->rc == 0)
        s->clip->rc = nvdec_error(s->clip->v->source.name, call, result);
    return result != CUDA_OK;
}

/* Returns 0 or an error that names what this GPU lacks. */
static int check_caps(const struct mr_video *v, struct cuvid_caps *caps)
{
    const char *codec = avcodec_get_name(v->stream->codecpar->codec_id);
    int result = nv.cuvidGetDecoderCaps(caps);
    if (result != CUDA_OK)
        return nvdec_error(v->source.name, "cuvidGetDecoderCaps", result);
    if (!caps->supported || caps->chroma > CUVID_CHROMA_420)
        return video_host->error(MR_EUNSUPPORTED,
                                 "%s: this GPU does not decode %s with %u bits%s: try decoder=cpu",
                                 v->source.name, codec, caps->depth_minus8 + 8,
                                 caps->chroma > CUVID_CHROMA_420 ? " and this chroma" : "");
    return 0;
}

int nvdec_open(struct mr_video *v)
{
    const AVCodecParameters *par = v->stream->codecpar;
    int codec = find_codec(v);
    if (codec < 0)
        return video_host->error(MR_EUNSUPPORTED, "%s: no GPU decodes %s: try decoder=cpu",
                                 v->source.name, avcodec_get_name(par->codec_id));
    const AVBitStreamFilter *filter = av_bsf_get_by_name(codecs[codec].filter);
    if (!filter)
        return video_host->error(MR_EUNSUPPORTED, "%s: this libavcodec has no filter %s",
                                 v->source.name, codecs[codec].filter);
    int rc = av_bsf_alloc(filter, &v->bsf);
    if (rc >= 0)
        rc = avcodec_parameters_copy(v->bsf->par_in, par);
    if (rc >= 0) {
        v->bsf->time_base_in = v->stream->time_base;
        rc = av_bsf_init(v->bsf);
    }
    return rc < 0 ? video_error(v, rc, codecs[codec].filter) : 0;
}

/* ---- what the parser calls ---- */

static int shown_width(const struct cuvid_format *f)
{
    return f->display.right - f->display.left;
}

static int shown_height(const struct cuvid_format *f)
{
    return f->display.bottom - f->display.top;
}

/* The area shown, e.g. 1080 of 1088 lines. */
static int check_area(const struct nvdec_clip *c, const struct cuvid_format *f)
{
    int w = shown_width(f), h = shown_height(f);
    if (w <= 0 || h <= 0 || f->display.right > SHRT_MAX || f->display.bottom > SHRT_MAX ||
        (uint64_t)w * (uint64_t)h > c->v->max_pixels)
        return video_host->error(MR_ELIMIT, "%s: a frame of %d x %d pixels", c->v->source.name, h,
                                 w);
    return 0;
}

/* The chip's sizes are even. */
static int target(int wanted, int shown)
{
    return ((wanted ? wanted : shown) + 1) & ~1;
}

static bool fits(const struct nvdec *s, const struct cuvid_format *f)
{
    const struct cuvid_format *is = &s->format;
    return s->decoder && f->codec == is->codec && f->coded_width == is->coded_width &&
           f->coded_height == is->coded_height && f->chroma == is->chroma &&
           f->luma_depth_minus8 == is->luma_depth_minus8 && f->min_surfaces <= s->surfaces &&
           memcmp(&f->display, &is->display, sizeof f->display) == 0 &&
           s->own == (s->key.to_w == 0) && s->to_w == target(s->key.to_w, shown_width(f)) &&
           s->to_h == target(s->key.to_h, shown_height(f));
}

static int make_decoder(struct nvdec *s, const struct cuvid_format *f)
{
    const struct mr_video *v = s->clip->v;
    struct cuvid_caps caps = {
        .codec = f->codec, .chroma = f->chroma, .depth_minus8 = f->luma_depth_minus8};
    int rc = check_caps(v, &caps);
    if (rc < 0)
        return rc;
    if (f->coded_width < caps.min_width || f->coded_width > caps.max_width ||
        f->coded_height < caps.min_height || f->coded_height > caps.max_height)
        return video_host->error(
            MR_EUNSUPPORTED,
            "%s: %u x %u pixels: this GPU decodes %u x %u to %u x %u: try decoder=cpu",
            v->source.name, f->coded_height, f->coded_width, caps.min_height, caps.min_width,
            caps.max_height, caps.max_width);
    s->format = *f;
    s->surfaces = f->min_surfaces + MORE_SURFACES;
    s->own = s->key.to_w == 0;
    s->to_w = target(s->key.to_w, shown_width(f));
    s->to_h = target(s->key.to_h, shown_height(f));
    struct cuvid_area area = {(int16_t)f->display.left, (int16_t)f->display.top,
                              (int16_t)f->display.right, (int16_t)f->display.bottom};
    if (s->own) { /* so that nothing is scaled */
        area.right = (int16_t)MR_MIN(area.left + s->to_w, (int)f->coded_width);
        area.bottom = (int16_t)MR_MIN(area.top + s->to_h, (int)f->coded_height);
    }
    struct cuvid_create how = {
        .width = f->coded_width,
        .height = f->coded_height,
        .max_width = f->coded_width,
        .max_height = f->coded_height,
        .n_surfaces = (unsigned long)s->surfaces,
        .codec = f->codec,
        .chroma = f->chroma,
        .flags = CUVID_PREFER_CUVID,
        .depth_minus8 = f->luma_depth_minus8,
        .display = area,
        .output_format = f->luma_depth_minus8 ? CUVID_P016 : CUVID_NV12,
        .target_width = (unsigned long)s->to_w,
        .target_height = (unsigned long)s->to_h,
        .n_output_surfaces = 2,
    };
    int result = nv.cuvidCreateDecoder(&s->decoder, &how);
    if (result == CUDA_OK)
        return 0;
    s->decoder = NULL;
    return nvdec_error(v->source.name, "cuvidCreateDecoder", result);
}

/* Called when the stream's format is known or changes: the decoder is kept if it fits. */
static int on_sequence(void *user, struct cuvid_format *f)
{
    struct nvdec *s = user;
    int rc = check_area(s->clip, f);
    if (rc < 0)
        goto fail;
    if (fits(s, f))
        return s->surfaces;
    if (s->decoder)
        nv.cuvidDestroyDecoder(s->decoder);
    s->decoder = NULL;
    rc = make_decoder(s, f);
    if (rc < 0)
        goto fail;
    return s->surfaces;
fail:
    s->clip->rc = rc;
    return 0;
}

static int on_decode(void *user, struct cuvid_picture *picture)
{
    struct nvdec *s = user;
    return s->decoder &&
           !failed(s, "cuvidDecodePicture", nv.cuvidDecodePicture(s->decoder, picture));
}

/* Of a row of luma, or of chroma. */
static size_t frame_bytes(const struct nvdec *s)
{
    return (size_t)s->to_w * (s->format.luma_depth_minus8 ? 2 : 1);
}

static int copy_planes(struct nvdec *s, unsigned long long frame, unsigned pitch, size_t row)
{
    struct cuda_copy_2d copy = {.from_kind = 2,
                                .from_device = frame,
                                .from_pitch = pitch,
                                .to_kind = 1,
                                .to_host = s->host,
                                .to_pitch = row,
                                .row_bytes = frame_bytes(s),
                                .rows = (size_t)s->to_h};
    int result = nv.cuMemcpy2DAsync_v2(&copy, s->stream);
    if (result != CUDA_OK)
        return result;
    copy.from_device = frame + (unsigned long long)pitch * (unsigned)s->to_h;
    copy.to_host = s->host + row * (size_t)s->to_h;
    copy.rows = (size_t)s->to_h / 2;
    result = nv.cuMemcpy2DAsync_v2(&copy, s->stream);
    int done = nv.cuStreamSynchronize(s->stream); /* of the first copy, if the second one fails */
    return result != CUDA_OK ? result : done;
}

/* Copies a frame to s->host. */
static int take_frame(struct nvdec *s, const struct cuvid_shown *shown, size_t row)
{
    size_t bytes = row * (size_t)s->to_h * 3 / 2 + ALIGN; /* libswscale reads past the end */
    if (bytes > s->host_bytes) {
        free(s->host);
        s->host = malloc(bytes);
        s->host_bytes = s->host ? bytes : 0;
        if (!s->host)
            return video_error(s->clip->v, AVERROR(ENOMEM), "frame");
    }
    struct cuvid_map how = {.progressive = shown->progressive,
                            .top_field_first = shown->top_field_first,
                            .unpaired_field = shown->repeat_first_field < 0,
                            .stream = s->stream};
    unsigned long long frame = 0;
    unsigned pitch = 0;
    if (failed(s, "cuvidMapVideoFrame",
               nv.cuvidMapVideoFrame64(s->decoder, shown->picture, &frame, &pitch, &how)))
        return s->clip->rc;
    failed(s, "copy of a frame", copy_planes(s, frame, pitch, row));
    failed(s, "cuvidUnmapVideoFrame", nv.cuvidUnmapVideoFrame64(s->decoder, frame));
    return s->clip->rc;
}

/* Writes the frame in s->host as the clip's next. */
static int write_frame(struct nvdec *s, size_t row)
{
    struct nvdec_clip *c = s->clip;
    const AVCodecParameters *par = c->v->stream->codecpar;
    struct mr_video_size to = video_unturned(c->v, &c->to);
    int depth = s->format.luma_depth_minus8, w = s->to_w, h = s->to_h;
    bool own = s->key.to_w == 0;
    if (own) { /* not the column and line that make it even */
        w = shown_width(&s->format);
        h = shown_height(&s->format);
    }
    struct video_part p = video_choose_part(w, h, 1, 1, &to, to.crop && own);
    const struct video_scaling how = {
        .from_w = p.w,
        .from_h = p.h,
        .to_w = (int)to.width,
        .to_h = (int)to.height,
        .format = depth == 0   ? AV_PIX_FMT_NV12
                  : depth == 2 ? AV_PIX_FMT_P010
                               : AV_PIX_FMT_P016,
        .space = video_colour_space(par->color_space, par->height),
        .full = par->color_range == AVCOL_RANGE_JPEG,
    };
    size_t x = (size_t)p.x * (depth ? 2 : 1), y = (size_t)p.y;
    const uint8_t *const plane[4] = {s->host + y * row + x,
                                     s->host + ((size_t)s->to_h + y / 2) * row + x};
    const int stride[4] = {(int)row, (int)row};
    return video_convert(c->v, plane, stride, how,
                         c->out + (uint64_t)c->got * c->to.width * c->to.height * 3);
}

static int on_display(void *user, struct cuvid_shown *shown)
{
    struct nvdec *s = user;
    struct nvdec_clip *c = s->clip;
    if (!shown || c->flushing || c->got == c->n || c->missed)
        return 1;
    if (c->index->exact && (shown->timestamp < 0 || (uint64_t)shown->timestamp >= c->index->n))
        return 1; /* a packet that the index does not have: it is not displayed */
    c->shown = c->index->exact ? (uint64_t)shown->timestamp : c->counted++;
    c->shows = true;
    uint64_t want = video_wanted(c->v, c->number[c->got]);
    c->missed = c->shown > want;
    if (c->shown != want)
        return 1;
    size_t row = mr_round_up(frame_bytes(s), ALIGN);
    int rc = take_frame(s, shown, row);
    if (rc == 0)
        rc = write_frame(s, row);
    if (rc < 0) {
        c->rc = rc;
        return 0;
    }
    c->got++;
    return 1;
}

/* ---- feeding ---- */

static int need_parser(struct nvdec *s, int codec)
{
    const struct mr_video *v = s->clip->v;
    if (s->parser)
        return 0;
    struct cuvid_caps caps = {.codec = (int)codecs[codec].codec, .chroma = CUVID_CHROMA_420};
    int rc = check_caps(v, &caps);
    if (rc < 0)
        return rc;
    struct cuvid_parser how = {.codec = (int)codecs[codec].codec,
                               .max_surfaces = 1, /* on_sequence() says how many */
                               .max_display_delay = 1,
                               .user = s,
                               .on_sequence = on_sequence,
                               .on_decode = on_decode,
                               .on_display = on_display};
    int result = nv.cuvidCreateVideoParser(&s->parser, &how);
    s->parser_codec = codec;
    if (result == CUDA_OK)
        return 0;
    s->parser = NULL;
    return nvdec_error(v->source.name, "cuvidCreateVideoParser", result);
}

static int feed(struct nvdec *s, const uint8_t *data, int bytes, long long number, unsigned flags)
{
    struct cuvid_packet packet = {flags, (unsigned long)bytes, data, number};
    failed(s, "cuvidParseVideoData", nv.cuvidParseVideoData(s->parser, &packet));
    return s->clip->rc;
}

/* Ends the stream: the decoder returns what it holds, and begins at a key frame next. */
static int flush(struct nvdec *s, bool drop)
{
    s->clip->flushing = drop;
    int rc = feed(s, NULL, 0, 0, CUVID_END_OF_STREAM);
    s->clip->flushing = false;
    return rc;
}

/* Seeks to key frame `key`, or to the front, and feeds the file's header. */
static int start_at(struct nvdec *s, uint64_t key)
{
    struct nvdec_clip *c = s->clip;
    AVBSFContext *bsf = c->v->bsf;
    av_bsf_flush(bsf);
    c->counted = c->sent = 0;
    c->shows = c->missed = false;
    int rc = video_seek(c->v, c->index, key);
    if (rc < 0)
        return rc;
    if (!codecs[find_codec(c->v)].header || bsf->par_out->extradata_size <= 0)
        return 0;
    return feed(s, bsf->par_out->extradata, bsf->par_out->extradata_size, -1, 0);
}

/* Feeds the next packet. Returns 1, 0 at the end of the file, or an error. */
static int feed_packet(struct nvdec *s)
{
    struct nvdec_clip *c = s->clip;
    AVPacket *packet = c->v->packet;
    int rc = video_next_packet(c->v);
    if (rc <= 0)
        return c->v->read_error < 0 ? c->v->read_error : rc;
    rc = av_bsf_send_packet(c->v->bsf, packet);
    while (rc >= 0 && (rc = av_bsf_receive_packet(c->v->bsf, packet)) >= 0) {
        uint64_t is = video_number_of(c->index, packet->pts);
        if (is != UINT64_MAX)
            c->sent = MR_MAX(c->sent, is);
        rc = feed(s, packet->data, packet->size, is == UINT64_MAX ? -1 : (long long)is,
                  CUVID_TIMESTAMP | CUVID_END_OF_PICTURE);
        av_packet_unref(packet);
        if (rc < 0)
            return rc;
    }
    return rc == AVERROR(EAGAIN) || rc == AVERROR_EOF
               ? 1
               : video_error(c->v, rc, "a packet is malformed");
}

/* Copies frames that are wanted again. */
static void repeat(struct nvdec_clip *c)
{
    uint64_t bytes = (uint64_t)c->to.width * c->to.height * 3;
    while (c->got > 0 && c->got < c->n &&
           video_wanted(c->v, c->number[c->got]) == video_wanted(c->v, c->number[c->got - 1])) {
        memcpy(c->out + c->got * bytes, c->out + (c->got - 1) * bytes, bytes);
        c->got++;
    }
}

/* Is there a key frame ahead from which the next frame is nearer? */
static bool jumps(const struct nvdec_clip *c)
{
    return c->index->exact &&
           video_key_before(c->index, video_wanted(c->v, c->number[c->got])) > c->sent;
}

/* Decodes from where it is. Returns 1 if there is reason to seek, 0 at the end of the file or of
 * the clip, or an error. */
static int decode(struct nvdec *s)
{
    struct nvdec_clip *c = s->clip;
    uint32_t got = c->got;
    while (c->got < c->n && !c->missed) {
        int rc = feed_packet(s);
        if (rc == 0)
            rc = flush(s, false);
        else if (rc > 0 && c->got == got)
            continue;
        if (rc < 0)
            return rc;
        repeat(c);
        if (rc == 0 || c->got == c->n)
            return 0;
        if (jumps(c))
            return 1;
        got = c->got;
    }
    return 0;
}

/* Called when the file ended: the last frame may replace the wanted one. */
static bool take_last(const struct nvdec_clip *c)
{
    uint64_t want = c->number[c->got];
    if (!c->shows || c->missed || c->v->last != UINT64_MAX || want <= c->shown ||
        want - c->shown > VIDEO_MISSING)
        return false;
    c->v->last = c->shown;
    return true;
}

static int decode_clip(struct nvdec *s)
{
    struct nvdec_clip *c = s->clip;
    bool from_front = false;
    while (c->got < c->n) {
        uint32_t got = c->got;
        uint64_t want = video_wanted(c->v, c->number[got]);
        int rc = start_at(s, from_front ? 0 : video_key_before(c->index, want));
        if (rc == 0)
            rc = decode(s);
        int rc_flush = flush(s, true);
        if (rc < 0 || rc_flush < 0)
            return rc < 0 ? rc : rc_flush;
        bool progress = c->got > got;
        if (c->got < c->n && rc == 0 && take_last(c)) {
            repeat(c);
            progress = true;
        }
        if (!progress && from_front)
            return video_host->error(
                MR_ETRUNCATED, "%s: frame %llu of %llu does not come out of the GPU's decoder",
                c->v->source.name, (unsigned long long)want, (unsigned long long)c->index->n);
        from_front = !progress;
    }
    return 0;
}

int nvdec_frames(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                 uint32_t n, const struct mr_video_size *size, uint8_t *out)
{
    const AVCodecParameters *par = v->stream->codecpar;
    int codec = find_codec(v);
    struct mr_video_size to = video_unturned(v, size);
    /* also if nothing is to be scaled: an odd size would be, to the even one of the chip */
    bool own = size->exact || size->crop ||
               (to.width == (uint32_t)par->width && to.height == (uint32_t)par->height);
    struct nvdec_clip clip = {
        .v = v, .index = index, .number = number, .n = n, .to = *size, .out = out};
    struct nvdec_key key = {.codec = codec,
                            .pixels = par->format,
                            .width = par->width,
                            .height = par->height,
                            .to_w = own ? 0 : (int)to.width,
                            .to_h = own ? 0 : (int)to.height};
    struct nvdec *s;
    int rc = nvdec_acquire(v, &key, &s);
    if (rc < 0)
        return rc;
    s->clip = &clip;
    rc = need_parser(s, codec);
    if (rc == 0)
        rc = decode_clip(s);
    nvdec_release(s, clip.rc < 0);
    return rc;
}
