/* The picture formats: each is one file and one line in image.c's table. */
#ifndef MR_CODEC_IMAGE_CODEC_H
#define MR_CODEC_IMAGE_CODEC_H

#include "codec/image.h"

/* A buffer that grows and is reused. */
struct mr_room {
    unsigned char *data;
    uint64_t bytes;
};
/* Ensures a capacity of at least `bytes`; the contents are lost. Returns 0 or -ENOMEM. */
int mr_room_need(struct mr_room *room, uint64_t bytes, const char *name);

/* An object that a thread keeps open from one sample to the next. */
struct mr_kept {
    const void *owner;
    uint64_t key;
    void *thing; /* NULL: unused entry */
    void (*close)(void *thing);
    uint64_t used; /* time of last use; the largest is the latest */
};

/* The libraries' handles are created for each picture: state kept from one picture could affect the
 * next. */
struct mr_decoder {
    /* decoded pixels; the result of orientation or another conversion */
    struct mr_room pixels, turned;
    struct mr_kept kept[MR_DECODER_KEPT];
    uint64_t uses;
};

/* One call of mr_image_decode(). */
struct mr_image_call {
    struct mr_decoder *decoder;
    const struct mr_image_opts *opts;
    const char *name;
    const unsigned char *bytes;
    uint64_t n;
    mr_window_choice *choose;
    void *user;
};

struct mr_image_codec {
    int (*probe)(const char *name, const unsigned char *bytes, uint64_t n,
                 struct mr_image_info *out);
    int (*decode)(const struct mr_image_call *call, struct mr_picture *out);
};

/* The codecs whose libraries this build has. */
extern const struct mr_image_codec mr_jpeg_codec, mr_png_codec, mr_webp_codec;

/* Reads the orientation from a TIFF structure (the bytes after "Exif\0\0"): 1..8; 1 if it is
 * missing or damaged. */
int mr_exif_orientation(const unsigned char *tiff, uint64_t n);

/* The transformation from stored to upright pixels: reverse columns, reverse rows, then swap rows
 * and columns. */
struct mr_turn {
    bool flip_x, flip_y, swap;
};
struct mr_turn mr_turn_of(int orientation);

/* Pixels [x0, x1) x [y0, y1) of a decoded picture. */
struct mr_region {
    uint32_t x0, y0, x1, y1;
};

/* Refuses a picture with more pixels than the options allow. Returns 0 or MR_ELIMIT. */
int mr_image_check_size(const struct mr_image_call *call, uint32_t width, uint32_t height);
/* Gets the window of an upright picture from `choose`; without one, the whole picture. Returns 0,
 * MR_EMISUSE or choose's error. */
int mr_image_window(const struct mr_image_call *call, uint32_t width, uint32_t height,
                    struct mr_window *out);
/* The region that a window needs of an upright picture decoded at eighths / 8: the box and the
 * margin that filters read. */
struct mr_region mr_image_region(const struct mr_window *w, unsigned eighths, uint32_t width,
                                 uint32_t height);
/* The region in stored orientation; width and height: of the upright decoded picture. */
struct mr_region mr_region_stored(struct mr_region r, struct mr_turn turn, uint32_t width,
                                  uint32_t height);

/* Turns a decoded region upright: updates data, stride, width and height of *p. If nothing is to be
 * done the pixels are not copied. */
int mr_picture_turn(const struct mr_image_call *call, struct mr_turn turn, struct mr_picture *p);

/* Converts RGBA to 1 or 3 channels by the alpha policy, or RGB to gray; in place, with contiguous
 * rows. */
void mr_pixels_reduce(struct mr_picture *p, unsigned char *data, const struct mr_image_opts *opts);
/* ITU-R 601 luma, computed as Pillow does. */
static inline unsigned char mr_luma(unsigned r, unsigned g, unsigned b)
{
    return (unsigned char)((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

#endif
