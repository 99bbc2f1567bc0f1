/*
 * Video: frames by their number out of a file, by libav in a module of its own (libmillrace-video.so), which is loaded when the
 * first video is opened: neither this library nor what links it drags libav along.
 *
 * Frames are numbered in the order they are shown, from 0. A frame is the same, bit for bit, however it was reached.
 */
#ifndef MR_CODEC_VIDEO_H
#define MR_CODEC_VIDEO_H

#include "base/base.h"

#define MR_VIDEO_VERSION 1 /* of the contract between library and module */

/* Where the bytes come from. read: [offset, offset + bytes) lies within the file; returns 0 or an error. */
struct mr_video_source {
    const char *name; /* for errors; kept */
    uint64_t bytes;
    int (*read)(void *user, uint64_t offset, void *buf, uint64_t bytes);
    void *user;
};

struct mr_video_info {
    uint32_t width, height; /* as shown: turned by the file's rotation */
    double fps;             /* 0: not known */
};

/* Where the frames of one file lie: constant once made, shared by all threads that open the file. */
struct mr_video_frame {
    int64_t pts; /* in the stream's time base */
    bool key;    /* decoding can begin here */
};
struct mr_video_index {
    uint64_t n;
    bool
        exact; /* times tell frames apart, so that seeking finds them; else decoding always begins at the front */
    struct mr_video_frame frame[];
};

/* How frames come out: RGB, u8, height x width x 3, the picture stretched to the size or cut to its shape first. */
struct mr_video_size {
    uint32_t width, height; /* 0: the video's own */
    bool crop;              /* cut the middle, so that nothing is stretched */
};

struct mr_video; /* the module's: one thread's view of one file */

struct mr_video_module {
    uint32_t version;
    const char *text; /* "libavcodec 59.37.100" */
    /* max_pixels: of a frame. Returns 0 or an error, whose text is set. */
    int (*open)(const struct mr_video_source *source, uint64_t max_pixels, struct mr_video **out);
    void (*close)(struct mr_video *v);
    void (*info)(const struct mr_video *v, struct mr_video_info *out);
    /* Goes through the whole file once, without decoding. [out] out: malloc'd, for the caller to free(). */
    int (*make_index)(struct mr_video *v, struct mr_video_index **out);
    /* Decodes frames number[0 .. n - 1], ascending, below index->n, into out, one after the other. */
    int (*frames)(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                  uint32_t n, const struct mr_video_size *size, uint8_t *out);
};

/* What a module is told: functions of the library that loads it. */
struct mr_video_host {
    int (*error)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
};

/* The module's one symbol: "mr_video_module_get". NULL: made for another version. */
typedef const struct mr_video_module *mr_video_module_fn(uint32_t version,
                                                         const struct mr_video_host *host);

/*
 * The module, loaded at the first call: from MILLRACE_VIDEO_MODULE (a path) if set, else from the folder of this library and
 * its sub-folder millrace/. [out] out. Returns 0, or MR_EUNSUPPORTED that says where it was looked for and what is missing. Any thread.
 */
int mr_video_module(const struct mr_video_module **out);
/* Why there is no video here, with what to install; NULL: there is. Loads the module when first called. */
const char *mr_video_lacks(void);

#endif
