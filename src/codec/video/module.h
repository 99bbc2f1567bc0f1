/* Shared by the module's files. */
#ifndef MR_CODEC_VIDEO_MODULE_H
#define MR_CODEC_VIDEO_MODULE_H

#include "codec/video.h"

#include <errno.h>
#include <libavcodec/avcodec.h>
#include <libavcodec/bsf.h>
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
    AVCodecContext *codec; /* NULL: a GPU decodes */
    int gpu;               /* MR_VIDEO_NO_GPU: none */
    AVBSFContext *bsf;     /* GPU: makes packets what its parser reads */
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
/* The number of the frame with this timestamp; UINT64_MAX if none. */
uint64_t video_number_of(const struct mr_video_index *index, int64_t pts);
uint64_t video_key_before(const struct mr_video_index *index, uint64_t number);
/* Moves to a key frame, or to the front if that fails or the index is not exact. Returns 0 or an
 * error. */
int video_seek(struct mr_video *v, const struct mr_video_index *index, uint64_t key);
/* Reads the stream's next packet into v->packet. Returns 1, 0 at the end, or an error. */
int video_next_packet(struct mr_video *v);
/* a file may announce up to this many frames at its end that can't be decoded: the last decoded one
 * replaces them */
#define VIDEO_MISSING 8
/* Frame `number`, or the file's last one if `number` is one of those. */
uint64_t video_wanted(const struct mr_video *v, uint64_t number);
/* The size with its zeros replaced. */
struct mr_video_size video_size(const struct mr_video *v, const struct mr_video_size *size);
/* mr_video_module.frames by libavcodec; size: without zeros. */
int video_frames(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                 uint32_t n, const struct mr_video_size *size, uint8_t *out);

/* The visible part of a frame: all of it, or the largest centred part with the output's aspect
 * ratio. */
struct video_part {
    int x, y, w, h;
};
/* shift_x, shift_y: log2 of the chroma's subsampling; x and y begin a chroma sample. */
struct video_part video_choose_part(int frame_w, int frame_h, int shift_x, int shift_y,
                                    const struct mr_video_size *size, bool crop);
/* The colour matrix: the file's; if it does not specify one, BT.709 for HD. height: of the file's
 * frames. */
int video_colour_space(enum AVColorSpace space, int height);
/* Converts planes to RGB and turns it upright. */
int video_convert(struct mr_video *v, const uint8_t *const plane[4], const int stride[4],
                  struct video_scaling how, uint8_t *out);
/* The size before the picture is turned upright. */
struct mr_video_size video_unturned(const struct mr_video *v, const struct mr_video_size *size);
/* Writes the decoded frame as RGB in this size, which must not be 0. */
int video_write_rgb(struct mr_video *v, const AVFrame *frame, const struct mr_video_size *size,
                    uint8_t *out);

#endif
