/* Shared by the module's files. */
#ifndef MR_CODEC_VIDEO_MODULE_H
#define MR_CODEC_VIDEO_MODULE_H

#include "codec/video.h"

#include <errno.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
#include <stdbool.h>

struct video_scaling {
    int from_w, from_h, to_w, to_h, format, space, full;
};

struct mr_video {
    struct mr_video_source source;
    char *name;
    uint64_t at;    /* position of libav's next read */
    int read_error; /* of the source since it was opened; 0: none */
    AVIOContext *io;
    AVFormatContext *format;
    AVStream *stream;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    uint64_t max_pixels;
    int turns;          /* quarter turns clockwise for display */
    uint64_t next;      /* number of the frame that the decoder returns next, if `placed` */
    bool placed, ended; /* ended: no more packets */
    bool holds;         /* `frame` contains frame next - 1 */
    AVFrame *before;    /* the contents of `frame` before the decoder was asked for the next one */
    uint64_t last;      /* number of the last frame that can be decoded; UINT64_MAX: unknown */
    struct SwsContext *scaler;
    struct video_scaling scaling; /* the parameters it was made for */
    uint8_t *turned;              /* buffer for one frame before it is turned */
    uint64_t turned_bytes;
};

extern const struct mr_video_host *video_host;

/* Sets the error text for libav's code `av` and returns our code for it. */
int video_error(const struct mr_video *v, int av, const char *what);

int video_make_index(struct mr_video *v, struct mr_video_index **out);
int video_frames(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                 uint32_t n, const struct mr_video_size *size, uint8_t *out);

/* Writes the decoded frame as RGB in this size, which must not be 0. */
int video_write_rgb(struct mr_video *v, const AVFrame *frame, const struct mr_video_size *size,
                    uint8_t *out);

#endif
