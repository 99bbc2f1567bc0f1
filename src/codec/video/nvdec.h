/*
 * Decoding by NVDEC, the GPU's video decoder, with libnvcuvid called directly: libav's own cuvid
 * decoders make a new decoder after each seek, which takes longer than a clip.
 *
 * libavformat reads the file as it does for libavcodec. A thread borrows a decoder for one clip and
 * feeds it packets from the last key frame on; their timestamps are frame numbers, so the frames
 * that come back in display order name themselves. Only those that the clip wants are copied to the
 * host, scaled by the chip; libswscale makes them RGB. libswscale also crops, and scales what it
 * crops, because the chip cannot begin an area at any pixel. After the clip the decoder's stream is
 * ended, and the decoder is kept: making one takes 40 ms, destroying one 220.
 *
 * A GPU has NVDEC_MOST decoders in this process: the chip's engines are shared by them, and more
 * are slower. They stay until the process ends.
 */
#ifndef MR_CODEC_VIDEO_NVDEC_H
#define MR_CODEC_VIDEO_NVDEC_H

#include "codec/video/module.h"
#include "codec/video/nvcuvid.h"

#define NVDEC_MOST 8

/* What a decoder is made for, as far as the file's header tells. */
struct nvdec_key {
    int codec, pixels, width, height, to_w, to_h; /* to: 0: its own size */
};

struct nvdec_gpu;
struct nvdec_clip;

/* One parser and decoder, used by the thread that borrowed it. */
struct nvdec {
    struct nvdec_gpu *gpu;
    struct nvdec_key key;
    bool lent;
    uint64_t used_ns; /* when it was returned last; 0: never lent, or broken */
    struct CUstream_st *stream;
    void *parser, *decoder;     /* NULL: not made yet */
    int parser_codec;           /* key.codec that the parser was made for */
    struct cuvid_format format; /* that the decoder was made for, like the following */
    int surfaces, to_w, to_h;
    bool own;      /* nothing is scaled */
    uint8_t *host; /* a frame on the host */
    size_t host_bytes;
    struct nvdec_clip *clip; /* being decoded */
};

extern struct nv_calls nv;

/* The body of mr_video_module.use_gpu. */
int nvdec_use(int gpu);
/* Lends a decoder of v->gpu, with its context current; waits while all are lent. Returns 0,
 * MR_ECANCELLED, MR_EDEVICE or an error of the driver. */
int nvdec_acquire(const struct mr_video *v, const struct nvdec_key *key, struct nvdec **out);
/* broken: its state is unknown, it is destroyed. */
void nvdec_release(struct nvdec *s, bool broken);
/* Sets the error text for a call that failed, and returns the code. */
int nvdec_error(const char *name, const char *call, int result);

/* Checks the codec and prepares packets. Returns 0 or an error: the file is a bad sample. */
int nvdec_open(struct mr_video *v);
/* video_frames(); size: without zeros. */
int nvdec_frames(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                 uint32_t n, const struct mr_video_size *size, uint8_t *out);

#endif
