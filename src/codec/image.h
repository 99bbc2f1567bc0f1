/*
 * Still pictures: compressed bytes in, pixels out. JPEG by libjpeg-turbo, PNG by libspng, WebP by
 * libwebp. The format is detected from the bytes, not from the file name.
 *
 * All coordinates refer to the upright picture, after its EXIF orientation was applied, unless opts
 * disable that. Pixels are rows of `channels` interleaved u8 (HWC).
 *
 * Each worker thread owns a mr_decoder, which keeps its buffers from one picture to the next. A
 * caller that needs only part of a picture passes a mr_window_choice: it is called with the
 * picture's size after the header was parsed and returns the window; the decoder then skips rows
 * and columns outside it and picks a smaller scale if the output is small enough. Resampling to the
 * output size is left to the transforms.
 */
#ifndef MR_CODEC_IMAGE_H
#define MR_CODEC_IMAGE_H

#include "base/base.h"

enum mr_image_format {
    MR_IMAGE_UNKNOWN,
    MR_IMAGE_JPEG,
    MR_IMAGE_PNG,
    MR_IMAGE_WEBP,
    MR_N_IMAGE_FORMATS
};

struct mr_image_info {
    enum mr_image_format format;
    uint32_t width, height; /* upright */
    int orientation;        /* EXIF's 1..8; 1 if missing or invalid */
    int channels,
        /* as stored: 1 gray, 2 gray+alpha, 3 colour (or palette), 4 colour+alpha or CMYK; 1..16 */
        bits;
    /* a JPEG that device decoders accept: gray or YCbCr, 8 bits, Huffman, usual sampling */
    bool plain;
};

enum mr_alpha {
    MR_ALPHA_DROP,  /* keep the stored colours and drop alpha, as Pillow's convert("RGB") */
    MR_ALPHA_BLACK, /* blend over black */
    MR_ALPHA_WHITE, /* blend over white */
};

#define MR_IMAGE_PIXELS 100000000ull

struct mr_image_opts {
    int channels; /* 3: RGB, 1: gray (ITU-R 601 luma), 4: RGBA (255 if the picture has no alpha) */
    int alpha;    /* enum mr_alpha, used for 1 and 3 channels */
    bool ignore_orientation;
    bool exact; /* never decode at a smaller scale: the pixels are those of a full decode */
    uint64_t max_pixels; /* of the whole picture; 0: MR_IMAGE_PIXELS */
};

/*
 * A region of a picture and its output size: the combined effect of resize, crop and similar ops.
 * Output pixel (i, j) covers [x + i * w / out_w, x + (i + 1) * w / out_w) of the source
 * horizontally, and likewise vertically. Filters only read pixels within clip.
 */
struct mr_window {
    double x, y, w, h;                       /* the box that becomes the output */
    uint32_t clip_x, clip_y, clip_w, clip_h; /* contains the box */
    uint32_t out_w, out_h; /* if equal to w and h, and x and y are integers, nothing is resampled */
    int filter;            /* enum mr_filter, for the transforms */
};

/*
 * Decoded pixels: the whole picture, or what a window needs of it, at full size or smaller. Decoded
 * column i covers [(x + i) / scale_x, (x + i + 1) / scale_x) of the full picture.
 */
struct mr_picture {
    const uint8_t *data; /* stride bytes between rows */
    uint64_t stride;
    uint32_t width, height, channels; /* of the decoded region */
    uint32_t x, y;                    /* its first column and row, in decoded pixels */
    double scale_x,
        /* 1: full size; otherwise exact eighths: with an odd size, the last column and row cover
         * less of the picture than a full decoded pixel */
        scale_y;
    uint32_t full_width, full_height; /* of the whole picture */
};

/* Gets the upright picture's size and chooses a window. Returns 0 with *out set, or an error: then
 * the picture is not decoded and the decode call returns that error. */
typedef int mr_window_choice(void *user, uint32_t width, uint32_t height, struct mr_window *out);

/* The formats this build cannot read, and what to install; NULL if it reads all. */
const char *mr_image_lacks(void);

/* One thread's decoder: library handles and pixel buffers, which grow as needed and are reused. */
struct mr_decoder;
int mr_decoder_create(struct mr_decoder **out); /* 0 or -ENOMEM */
void mr_decoder_destroy(struct mr_decoder *d);
/* Decodes a picture of one pixel. On arm64 libjpeg-turbo 2.1 reads /proc/cpuinfo at its first
 * picture: a thread that cannot open files later calls this first. */
void mr_decoder_warm(struct mr_decoder *d);

/* Objects that are expensive to open, kept by a thread from one sample to the next: the few most
 * recently used, of any owner. */
#define MR_DECODER_KEPT 4
/* Returns NULL if it is not kept (any more). owner: a data set, which must outlive the decoder. */
void *mr_decoder_find(struct mr_decoder *d, const void *owner, uint64_t key);
/* Takes ownership of `thing`, and closes the least recently used one if the table is full. */
void mr_decoder_keep(struct mr_decoder *d, const void *owner, uint64_t key, void *thing,
                     void (*close)(void *thing));
/* Closes it, if it is kept. */
void mr_decoder_drop(struct mr_decoder *d, const void *owner, uint64_t key);

/* Detects the format by the first bytes; 12 are enough. */
enum mr_image_format mr_image_sniff(const void *bytes, uint64_t n);
const char *mr_image_format_name(enum mr_image_format format); /* "jpeg", ... */
/* NULL if this build can decode the format; else the reason. */
const char *mr_image_why_not(enum mr_image_format format);

/* Reads the header of a picture. name: of the file, for errors. Returns 0, MR_EFORMAT,
 * MR_ETRUNCATED or MR_EUNSUPPORTED. */
int mr_image_probe(const char *name, const void *bytes, uint64_t n, struct mr_image_info *out);

/*
 * Decodes a picture. choose: NULL, or called once, after the header. Then only the rows and columns
 * that its window needs are decoded (JPEG, WebP; PNG is always decoded whole), plus the margin that
 * a bicubic filter reads around the box, at the smallest scale that is at least the output's size,
 * unless opts->exact (JPEG: 1, 2, 3, 4 or 8 eighths; others: 1). The pixels are identical to those
 * of a decode of the whole picture at that scale.
 *
 * JPEG: damaged data that libjpeg-turbo accepts with a warning counts as a picture, as with Pillow:
 * bad codes, lost restart markers, junk between markers. If data end before the last row is
 * complete, the file is truncated; the end marker may be missing. With a window, data after its
 * last row are not read, so damage there is not detected. CMYK is assumed to be inverted, as Adobe
 * writes it; gray of a colour picture is its Y; at most 100 scans are accepted.
 * PNG: 16 bits are cut to the upper 8; checksums are verified, also after the pixels. WebP: still
 * pictures only. Colour profiles and gamma are ignored. The orientation comes from EXIF (PNG: only
 * if it precedes the pixels).
 *
 * [out] out: the pixels belong to the decoder and stay valid until its next call; without choose,
 * rows are contiguous (stride == width * channels).
 * Returns 0; MR_EFORMAT; MR_ETRUNCATED (also if the pixels end early); MR_EUNSUPPORTED; MR_ELIMIT
 * (max_pixels, scans, text chunks); MR_EMISUSE (a window outside the picture); -ENOMEM; or choose's
 * error. The same bytes always give the same result.
 */
int mr_image_decode(struct mr_decoder *d, const struct mr_image_opts *opts, const char *name,
                    const void *bytes, uint64_t n, mr_window_choice *choose, void *user,
                    struct mr_picture *out);

/*
 * Checks a picture that another process decoded, and that is not trusted: that it has the pixels
 * which mr_image_decode() with these arguments would have returned, in contiguous rows.
 * picture: a private copy; its data is not looked at. bytes: how many it may have.
 * Returns 0, MR_EFORMAT, MR_ELIMIT or choose's error.
 */
int mr_picture_check(const struct mr_image_opts *opts, const char *name, mr_window_choice *choose,
                     void *user, const struct mr_picture *picture, uint64_t bytes);

#endif
