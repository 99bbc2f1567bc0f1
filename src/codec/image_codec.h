/* The formats of pictures: one file and one line in image.c's array each. */
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

struct mr_image_codec;

struct mr_decoder {
    struct mr_room pixels, turned;   /* as decoded; after orientation or another change */
    void *state[MR_N_IMAGE_FORMATS]; /* a codec's own, made at its first picture, closed by its `close` */
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
    enum mr_image_format format;
    const char *name;
    bool (*sniff)(const unsigned char *bytes, uint64_t n);
    int (*probe)(const char *name, const unsigned char *bytes, uint64_t n, struct mr_image_info *out);
    int (*decode)(const struct mr_image_call *call, struct mr_picture *out);
    void (*close)(void *state); /* NULL: decode keeps none */
};

#endif
