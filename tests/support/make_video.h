/* Writes small videos with libavcodec's own encoders: frame i has its number in the brightness of
 * its four quarters. */
#ifndef MR_TEST_MAKE_VIDEO_H
#define MR_TEST_MAKE_VIDEO_H

#include <assert.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

struct test_video {
    const char *path, *format, *codec; /* "matroska", "mpeg4" */
    int width, height, n, gop, b_frames;
};

/* The brightness of quarter q of frame i: two bits of the number each, far apart. */
static inline int test_video_luma(int i, int q)
{
    return 40 + (i >> 2 * q & 3) * 55;
}

static inline void test_video_fill(AVFrame *f, int i)
{
    for (int y = 0; y < f->height; y++)
        for (int x = 0; x < f->width; x++)
            f->data[0][y * f->linesize[0] + x] =
                (uint8_t)test_video_luma(i, (y >= f->height / 2) * 2 + (x >= f->width / 2));
    for (int p = 1; p < 3; p++)
        for (int y = 0; y < f->height / 2; y++)
            memset(f->data[p] + y * f->linesize[p], 128, (size_t)f->width / 2);
}

static inline void test_video_drain(AVCodecContext *c, AVFormatContext *out, AVStream *s,
                                    AVPacket *packet)
{
    while (avcodec_receive_packet(c, packet) >= 0) {
        av_packet_rescale_ts(packet, c->time_base, s->time_base);
        packet->stream_index = s->index;
        assert_int_equal(av_interleaved_write_frame(out, packet), 0);
    }
}

static inline void test_video_write(const struct test_video *v)
{
    AVFormatContext *out = NULL;
    const AVCodec *codec = avcodec_find_encoder_by_name(v->codec);
    assert_non_null(codec);
    assert_true(avformat_alloc_output_context2(&out, NULL, v->format, v->path) >= 0);
    AVStream *s = avformat_new_stream(out, NULL);
    AVCodecContext *c = avcodec_alloc_context3(codec);
    c->width = v->width;
    c->height = v->height;
    c->time_base = (AVRational){1, 25};
    c->framerate = (AVRational){25, 1};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* since libavcodec 61.13 */
    c->pix_fmt = codec->pix_fmts ? codec->pix_fmts[0] : AV_PIX_FMT_YUV420P;
#pragma GCC diagnostic pop
    c->gop_size = v->gop;
    c->max_b_frames = v->b_frames;
    c->flags |= AV_CODEC_FLAG_QSCALE |
                (out->oformat->flags & AVFMT_GLOBALHEADER ? AV_CODEC_FLAG_GLOBAL_HEADER : 0);
    c->global_quality = FF_QP2LAMBDA * 2;
    c->thread_count = 1;
    assert_int_equal(avcodec_open2(c, codec, NULL), 0);
    assert_true(avcodec_parameters_from_context(s->codecpar, c) >= 0);
    s->time_base = c->time_base;
    s->avg_frame_rate = c->framerate;
    assert_true(avio_open(&out->pb, v->path, AVIO_FLAG_WRITE) >= 0);
    assert_true(avformat_write_header(out, NULL) >= 0);
    AVFrame *f = av_frame_alloc();
    AVPacket *packet = av_packet_alloc();
    f->format = c->pix_fmt;
    f->width = v->width;
    f->height = v->height;
    assert_int_equal(av_frame_get_buffer(f, 0), 0);
    for (int i = 0; i < v->n; i++) {
        assert_int_equal(av_frame_make_writable(f), 0);
        test_video_fill(f, i);
        f->pts = i;
        f->quality = c->global_quality;
        assert_int_equal(avcodec_send_frame(c, f), 0);
        test_video_drain(c, out, s, packet);
    }
    avcodec_send_frame(c, NULL);
    test_video_drain(c, out, s, packet);
    assert_int_equal(av_write_trailer(out), 0);
    avio_closep(&out->pb);
    av_frame_free(&f);
    av_packet_free(&packet);
    avcodec_free_context(&c);
    avformat_free_context(out);
}

#endif
