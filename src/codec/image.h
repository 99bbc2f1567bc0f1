/*
 * Still pictures: compressed bytes in, pixels out. JPEG by libjpeg-turbo, PNG by libspng, WebP by libwebp; which one, the
 * bytes say, not the file's name.
 *
 * All coordinates are of the upright picture: after its EXIF orientation has been applied, unless opts say not to.
 * Pixels are rows of `channels` interleaved u8 (HWC).
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
    int orientation;        /* EXIF's 1..8; 1 when it says nothing, or nothing valid */
    int channels,
        bits; /* as stored: 1 gray, 2 gray+alpha, 3 colour (or palette), 4 colour+alpha or CMYK; 1..16 */
    bool
        plain; /* a JPEG of gray or YCbCr, 8 bits, Huffman, usual sampling: what decoders of devices take */
};

enum mr_alpha {
    MR_ALPHA_DROP, /* the colours as they are stored under it, as Pillow's convert("RGB") has them */
    MR_ALPHA_BLACK, /* over black */
    MR_ALPHA_WHITE, /* over white */
};

struct mr_image_opts {
    int channels; /* 3: RGB, 1: gray (ITU-R 601 luma), 4: RGBA (255 where there is none) */
    int alpha;    /* enum mr_alpha, for 1 and 3 channels */
    bool ignore_orientation;
    bool exact; /* never a scaled decode: the pixels of a full decode, of the region asked for */
    uint64_t max_pixels; /* of the whole picture; 0: 100,000,000 */
};

/*
 * A part of a picture, and the size it is to become: what resize, crop and their kin come to. Output pixel (i, j) covers
 * [x + i * w / out_w, x + (i + 1) * w / out_w) of the source across, likewise down; a filter looks at pixels within clip
 * only.
 */
struct mr_window {
    double x, y, w, h;                       /* the box that becomes the output */
    uint32_t clip_x, clip_y, clip_w, clip_h; /* holds the box */
    uint32_t out_w, out_h; /* equal to w and h, and x and y whole: nothing is resampled */
    int filter;            /* the transform room's */
};

/*
 * Pixels that were decoded: all of a picture, or what a window needs of it, at full size or smaller. Decoded column i covers
 * [(x + i) / scale_x, (x + i + 1) / scale_x) of the full picture.
 */
struct mr_picture {
    const uint8_t *data; /* stride bytes from row to row */
    uint64_t stride;
    uint32_t width, height, channels; /* of what is decoded */
    uint32_t x, y;                    /* its first column and row, in decoded pixels */
    double scale_x,
        scale_y; /* 1: full size; else eighths, exactly: of an odd size, the last column and row cover
                                       * less of the picture than they stand for */
    uint32_t full_width, full_height; /* of the whole picture */
};

/* Said the upright picture's size, chooses what is wanted of it. Returns 0 with *out set, or an error: the picture is not
 * decoded, and its decode returns that. */
typedef int mr_window_choice(void *user, uint32_t width, uint32_t height, struct mr_window *out);

/* Which pictures this build cannot read, with what to install; NULL: it reads them all. */
const char *mr_image_lacks(void);

/* One thread's decoder: library handles and room for pixels, which grows to what it meets and is used again. */
struct mr_decoder;
int mr_decoder_create(struct mr_decoder **out); /* 0, -ENOMEM */
void mr_decoder_destroy(struct mr_decoder *d);

/* Things that are dear to open and that a thread keeps from one sample to the next: the latest few, whoever they belong to. */
#define MR_DECODER_KEPT 4
/* NULL: not kept, or not any more. owner: a data set, which outlives the decoder. */
void *mr_decoder_find(struct mr_decoder *d, const void *owner, uint64_t key);
/* Takes it over, and closes the one that was not used for longest. */
void mr_decoder_keep(struct mr_decoder *d, const void *owner, uint64_t key, void *thing,
                     void (*close)(void *thing));
void mr_decoder_drop(struct mr_decoder *d, const void *owner,
                     uint64_t key); /* closes it, if it is kept */

/* The format by the first bytes; 12 are enough. */
enum mr_image_format mr_image_sniff(const void *bytes, uint64_t n);
const char *mr_image_format_name(enum mr_image_format format); /* "jpeg", ... */
/* NULL when such pictures can be decoded in this build; else why not. */
const char *mr_image_why_not(enum mr_image_format format);

/* Reads what stands before the pixels. name: of the file, for errors. Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED. */
int mr_image_probe(const char *name, const void *bytes, uint64_t n, struct mr_image_info *out);

/*
 * Decodes. choose: NULL, or asked once, after the header: then only the rows and columns that its window needs are decoded
 * (JPEG, WebP; PNG always as a whole), with what a bicubic filter looks at around the box, and by the smallest scale that is
 * at least the output's size, unless opts->exact (JPEG: 1, 2, 3, 4 or 8 eighths; others: 1). The pixels are those of a
 * decode of the whole picture at that scale, byte for byte.
 *
 * JPEG: what libjpeg-turbo makes of damaged data with a warning is a picture, as with Pillow: bad codes, lost restart markers,
 * junk between markers. Data that end before the last row is complete are truncated; the end's marker may be missing. With a
 * window, what follows its last row is not looked at, so that damage there goes unseen. CMYK is taken to be inverted, as
 * Adobe writes it; gray of a colour picture is its Y; at most 100 scans.
 * PNG: 16 bits are cut to their upper 8; checksums are verified, also of what follows the pixels. WebP: still pictures only.
 * Colour profiles and gamma are ignored. The orientation is EXIF's (PNG: when it stands before the pixels).
 *
 * [out] out: the pixels are the decoder's and stay until its next call; without choose their rows follow each other
 * (stride == width * channels).
 * Returns 0; MR_EFORMAT, MR_ETRUNCATED (also when the pixels end early), MR_EUNSUPPORTED, MR_ELIMIT (max_pixels, scans,
 * texts beside the pixels), MR_EMISUSE (a window that is not within the picture), -ENOMEM, or choose's error. The same bytes always give the same result.
 */
int mr_image_decode(struct mr_decoder *d, const struct mr_image_opts *opts, const char *name,
                    const void *bytes, uint64_t n, mr_window_choice *choose, void *user,
                    struct mr_picture *out);

#endif
