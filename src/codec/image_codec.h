/* The formats of pictures: one file and one line in image.c's table each. */
#ifndef MR_CODEC_IMAGE_CODEC_H
#define MR_CODEC_IMAGE_CODEC_H

#include "codec/image.h"

/* Room that grows and is used again. */
struct mr_room {
    unsigned char *data;
    uint64_t bytes;
};
/* Makes room for at least this much; what was there is lost. Returns 0, -ENOMEM. */
int mr_room_need(struct mr_room *room, uint64_t bytes, const char *name);

/* What a thread keeps open from one sample to the next. */
struct mr_kept {
    const void *owner;
    uint64_t key;
    void *thing; /* NULL: free */
    void (*close)(void *thing);
    uint64_t used; /* the latest has the largest */
};

/* The libraries' handles are made anew for each picture: what they would keep of the one before could show in the next. */
struct mr_decoder {
    struct mr_room pixels, turned; /* as decoded; after orientation or another change */
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

/* Those that this build has libraries for. */
extern const struct mr_image_codec mr_jpeg_codec, mr_png_codec, mr_webp_codec;

/* The orientation that a TIFF structure (what follows "Exif\0\0") asks for: 1..8, 1 when it is none or damaged. */
int mr_exif_orientation(const unsigned char *tiff, uint64_t n);

/* How stored pixels become upright ones: upright = stored, columns and rows reversed, then rows made columns. */
struct mr_turn {
    bool flip_x, flip_y, swap;
};
struct mr_turn mr_turn_of(int orientation);

/* Pixels [x0, x1) x [y0, y1) of a decoded picture. */
struct mr_region {
    uint32_t x0, y0, x1, y1;
};

/* Refuses a picture of more pixels than the options allow: 0, MR_ELIMIT. */
int mr_image_check_size(const struct mr_image_call *call, uint32_t width, uint32_t height);
/* Asks for the window of an upright picture; without a choice it is all of it. Returns 0, MR_EMISUSE, choose's error. */
int mr_image_window(const struct mr_image_call *call, uint32_t width, uint32_t height,
                    struct mr_window *out);
/* What a window needs of an upright picture decoded at eighths / 8: the box and what filters look at around it. */
struct mr_region mr_image_region(const struct mr_window *w, unsigned eighths, uint32_t width,
                                 uint32_t height);
/* The same region before the turn; width and height: of the upright decoded picture. */
struct mr_region mr_region_stored(struct mr_region r, struct mr_turn turn, uint32_t width,
                                  uint32_t height);

/* Turns a decoded region upright: data, stride, width and height of *p. Nothing to do: the pixels stay where they are. */
int mr_picture_turn(const struct mr_image_call *call, struct mr_turn turn, struct mr_picture *p);

/* Rows of RGBA to 1 or 3 channels by the alpha policy, or of RGB to gray; in place, as rows that follow each other. */
void mr_pixels_reduce(struct mr_picture *p, unsigned char *data, const struct mr_image_opts *opts);
/* ITU-R 601 luma as Pillow has it. */
static inline unsigned char mr_luma(unsigned r, unsigned g, unsigned b)
{
    return (unsigned char)((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

#endif
