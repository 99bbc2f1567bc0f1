/*
 * Video: decodes frames of a file by number, with libav in a module of its own
 * (libmillrace-video.so) that is loaded when the first video is opened: so neither this library nor
 * programs that link it depend on libav. Frames can also be decoded by a GPU's decoder, NVDEC.
 *
 * Frames are numbered in display order, from 0. A frame's pixels don't depend on how it was
 * reached, by seeking or by decoding from the front.
 */
#ifndef MR_CODEC_VIDEO_H
#define MR_CODEC_VIDEO_H

#include "base/base.h"

#define MR_VIDEO_VERSION 2 /* version of the interface between library and module */

/* Where bytes come from. read: [offset, offset + bytes) is within the file; returns 0 or an
 * error. */
struct mr_video_source {
    const char *name; /* for errors; must stay valid */
    uint64_t bytes;
    int (*read)(void *user, uint64_t offset, void *buf, uint64_t bytes);
    void *user;
};

struct mr_video_info {
    uint32_t width, height; /* as displayed: after the file's rotation */
    double fps;             /* 0 if unknown */
};

/* The frames of a file: constant once made, shared by all threads that open the file. */
struct mr_video_frame {
    int64_t pts; /* in the stream's time base */
    bool key;    /* a key frame: decoding can start here */
};
struct mr_video_index {
    uint64_t n;
    /* timestamps are unique, so seeking works; otherwise decoding always starts at the front */
    bool exact;
    struct mr_video_frame frame[];
};

/* The output size of frames, which are RGB, u8, height x width x 3: the picture is stretched, or
 * first cropped to the output's aspect ratio. */
struct mr_video_size {
    uint32_t width, height; /* 0: the video's size */
    bool crop;              /* crop the centre instead of stretching */
    bool exact;             /* libswscale scales, not the GPU */
};

#define MR_VIDEO_NO_GPU (-1)

struct mr_video; /* defined by the module: one thread's view of one file */

struct mr_video_module {
    uint32_t version;
    const char *text; /* "libavcodec 59.37.100" */
    /* Makes a GPU usable for open(): its number as CUDA counts them. Returns 0, MR_ENODEVICE with
     * what is missing, or MR_EDEVICE in a process that was forked after CUDA was initialised. */
    int (*use_gpu)(int gpu);
    /* max_pixels: limit per frame. gpu: a number that use_gpu() had; MR_VIDEO_NO_GPU: libavcodec
     * decodes. Returns 0 or an error with its text set. */
    int (*open)(const struct mr_video_source *source, uint64_t max_pixels, int gpu,
                struct mr_video **out);
    void (*close)(struct mr_video *v);
    void (*info)(const struct mr_video *v, struct mr_video_info *out);
    /* Reads all packets of the file once, without decoding. [out] out: malloc'd; the caller frees
     * it. */
    int (*make_index)(struct mr_video *v, struct mr_video_index **out);
    /* Decodes frames number[0 .. n - 1], ascending, each below index->n, to out, one after the
     * other. On a GPU it waits while all of its decoders are in use; MR_EDEVICE and MR_EDEVICEMEM
     * are no fault of the file. */
    int (*frames)(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                  uint32_t n, const struct mr_video_size *size, uint8_t *out);
};

/* What the module gets from the library: functions to call. */
struct mr_video_host {
    int (*error)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
    int (*interrupt_check)(const char *what); /* see base.h */
};

/* The module's only symbol: "mr_video_module_get". Returns NULL if it was built for another
 * version. */
typedef const struct mr_video_module *mr_video_module_fn(uint32_t version,
                                                         const struct mr_video_host *host);

/*
 * Gets the module, loaded at the first call from MILLRACE_VIDEO_MODULE (a path) if set, else from
 * the folder of this library or its sub-folder millrace/. [out] out. Returns 0, or MR_EUNSUPPORTED
 * with the places searched and what is missing. Any thread.
 */
int mr_video_module(const struct mr_video_module **out);
/* Why video is not available and what to install; NULL if it is. Loads the module when first
 * called. */
const char *mr_video_lacks(void);

#endif
