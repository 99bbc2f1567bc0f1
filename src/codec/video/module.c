/*
 * The video module: libavformat reads through the library's storage, libavcodec decodes on the
 * calling thread, or NVDEC does in its place, and libswscale converts to RGB.
 */
#include "codec/video/nvdec.h"

#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define IO_BYTES 65536

/* ---- reading ---- */

static int io_read(void *opaque, uint8_t *buf, int size)
{
    struct mr_video *v = opaque;
    uint64_t n = v->source.bytes - v->at;
    if (n == 0)
        return AVERROR_EOF;
    n = n < (uint64_t)size ? n : (uint64_t)size;
    int rc = v->source.read(v->source.user, v->at, buf, n);
    if (rc < 0) {
        v->read_error = rc;
        return AVERROR(EIO);
    }
    v->at += n;
    return (int)n;
}

static int64_t io_seek(void *opaque, int64_t offset, int whence)
{
    struct mr_video *v = opaque;
    whence &= ~AVSEEK_FORCE;
    if (whence == AVSEEK_SIZE)
        return (int64_t)v->source.bytes;
    int64_t base = whence == SEEK_CUR   ? (int64_t)v->at
                   : whence == SEEK_END ? (int64_t)v->source.bytes
                                        : 0;
    int64_t to = base + offset;
    if (to < 0 || (uint64_t)to > v->source.bytes)
        return AVERROR(EINVAL);
    v->at = (uint64_t)to;
    return to;
}

static int open_format(struct mr_video *v)
{
    uint8_t *buffer = av_malloc(IO_BYTES);
    v->io = buffer ? avio_alloc_context(buffer, IO_BYTES, 0, v, io_read, NULL, io_seek) : NULL;
    v->format = v->io ? avformat_alloc_context() : NULL;
    if (!v->format) {
        if (!v->io)
            av_free(buffer);
        return video_error(v, AVERROR(ENOMEM), "open");
    }
    v->format->pb = v->io;
    v->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    /* frees the context when it fails */
    int rc = avformat_open_input(&v->format, NULL, NULL, NULL);
    if (rc < 0)
        return video_error(v, rc, "no video that libavformat knows");
    rc = avformat_find_stream_info(v->format, NULL);
    return rc < 0 ? video_error(v, rc, "its streams cannot be found") : 0;
}

/* ---- the stream ---- */

/* Quarter turns clockwise needed to display the picture. */
static int find_turns(const AVStream *stream)
{
    const uint8_t *matrix = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, NULL);
    double angle = matrix ? -av_display_rotation_get((const int32_t *)matrix) : 0;
    if (!isfinite(angle))
        return 0;
    int turns = (int)lround(angle / 90) % 4;
    return turns < 0 ? turns + 4 : turns;
}

static int open_decoder(struct mr_video *v, const AVCodec *codec)
{
    v->codec = avcodec_alloc_context3(codec);
    if (!v->codec)
        return video_error(v, AVERROR(ENOMEM), "decoder");
    int rc = avcodec_parameters_to_context(v->codec, v->stream->codecpar);
    v->codec->thread_count = 1; /* many videos are decoded at once, one per worker */
    v->codec->max_pixels = (int64_t)v->max_pixels;
    v->codec->pkt_timebase = v->stream->time_base;
    if (rc >= 0)
        rc = avcodec_open2(v->codec, codec, NULL);
    return rc < 0 ? video_error(v, rc, "its decoder does not open") : 0;
}

static int open_codec(struct mr_video *v, uint64_t max_pixels)
{
    const AVCodec *codec = NULL;
    int at = av_find_best_stream(v->format, AVMEDIA_TYPE_VIDEO, -1, -1,
                                 v->gpu == MR_VIDEO_NO_GPU ? &codec : NULL, 0);
    if (at == AVERROR_DECODER_NOT_FOUND)
        return video_host->error(
            MR_EUNSUPPORTED, "%s: this libavcodec has no decoder for its video", v->source.name);
    if (at < 0)
        return video_host->error(MR_EFORMAT, "%s: no video in it", v->source.name);
    v->stream = v->format->streams[at];
    for (unsigned i = 0; i < v->format->nb_streams; i++)
        v->format->streams[i]->discard = (int)i == at ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    const AVCodecParameters *par = v->stream->codecpar;
    if (par->width <= 0 || par->height <= 0)
        return video_host->error(MR_EFORMAT, "%s: its video has no size", v->source.name);
    if ((uint64_t)par->width * (uint64_t)par->height > max_pixels)
        return video_host->error(
            MR_ELIMIT, "%s: frames of %d x %d pixels: expected at most %llu pixels", v->source.name,
            par->height, par->width, (unsigned long long)max_pixels);
    v->turns = find_turns(v->stream);
    v->max_pixels = max_pixels;
    return v->gpu == MR_VIDEO_NO_GPU ? open_decoder(v, codec) : nvdec_open(v);
}

static void video_close(struct mr_video *v)
{
    if (!v)
        return;
    sws_freeContext(v->scaler);
    av_frame_free(&v->frame);
    av_frame_free(&v->before);
    av_packet_free(&v->packet);
    av_bsf_free(&v->bsf);
    avcodec_free_context(&v->codec);
    avformat_close_input(&v->format);
    if (v->io)
        av_freep(&v->io->buffer);
    avio_context_free(&v->io);
    free(v->turned);
    free(v->name);
    free(v);
}

static int video_open(const struct mr_video_source *source, uint64_t max_pixels, int gpu,
                      struct mr_video **out)
{
    struct mr_video *v = calloc(1, sizeof *v);
    if (!v)
        return video_host->error(-ENOMEM, "%s: out of memory", source->name);
    v->source = *source;
    v->name = strdup(source->name);
    v->last = UINT64_MAX;
    v->gpu = gpu;
    v->frame = av_frame_alloc();
    v->before = av_frame_alloc();
    v->packet = av_packet_alloc();
    int rc;
    if (!v->name || !v->frame || !v->before || !v->packet) {
        rc = video_error(v, AVERROR(ENOMEM), "open");
        goto fail;
    }
    v->source.name = v->name;
    rc = open_format(v);
    if (rc < 0)
        goto fail;
    rc = open_codec(v, max_pixels);
    if (rc < 0)
        goto fail;
    *out = v;
    return 0;
fail:
    video_close(v);
    return rc;
}

static void video_info(const struct mr_video *v, struct mr_video_info *out)
{
    const AVCodecParameters *par = v->stream->codecpar;
    bool lies = v->turns % 2 == 1;
    AVRational rate = v->stream->avg_frame_rate;
    out->width = (uint32_t)(lies ? par->height : par->width);
    out->height = (uint32_t)(lies ? par->width : par->height);
    out->fps = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0;
}

/* ---- the module ---- */

static int frames(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                  uint32_t n, const struct mr_video_size *size, uint8_t *out)
{
    struct mr_video_size to = video_size(v, size);
    v->read_error = 0; /* clear the error of an older read */
    return v->gpu == MR_VIDEO_NO_GPU ? video_frames(v, index, number, n, &to, out)
                                     : nvdec_frames(v, index, number, n, &to, out);
}

static const struct mr_video_module module = {
    .version = MR_VIDEO_VERSION,
    .text = "libavcodec " AV_STRINGIFY(LIBAVCODEC_VERSION),
    .use_gpu = nvdec_use,
    .open = video_open,
    .close = video_close,
    .info = video_info,
    .make_index = video_make_index,
    .frames = frames,
};

__attribute__((visibility("default"))) mr_video_module_fn mr_video_module_get;

const struct mr_video_module *mr_video_module_get(uint32_t version,
                                                  const struct mr_video_host *host)
{
    if (version != MR_VIDEO_VERSION)
        return NULL;
    video_host = host;
    av_log_set_level(AV_LOG_QUIET); /* errors are in our error texts */
    return &module;
}
