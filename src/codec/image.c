/* Pictures of any format: detects the format, and owns the decoder's buffers. */
#include "codec/image_codec.h"

#include <errno.h>
#include <string.h>

#if MILLRACE_HAVE_JPEG
#define JPEG &mr_jpeg_codec
#else
#define JPEG NULL
#endif
#if MILLRACE_HAVE_PNG
#define PNG &mr_png_codec
#else
#define PNG NULL
#endif
#if MILLRACE_HAVE_WEBP
#define WEBP &mr_webp_codec
#else
#define WEBP NULL
#endif

static const struct format {
    const char *name, *why_not; /* why_not: set if this build has no codec */
    const struct mr_image_codec *codec;
} formats[MR_N_IMAGE_FORMATS] = {
    [MR_IMAGE_UNKNOWN] = {"unknown", "not a picture: expected JPEG, PNG or WebP", NULL},
    [MR_IMAGE_JPEG] = {"jpeg", "built without libjpeg-turbo: install libjpeg-dev and build again",
                       JPEG},
    [MR_IMAGE_PNG] = {"png", "built without libspng: install libspng-dev and build again", PNG},
    [MR_IMAGE_WEBP] = {"webp", "built without libwebp: install libwebp-dev and build again", WEBP},
};

const char *mr_image_lacks(void)
{
    const char *why = NULL;
    for (int f = MR_IMAGE_UNKNOWN + 1; f < MR_N_IMAGE_FORMATS; f++) {
        if (formats[f].codec)
            continue;
        if (why)
            return "built for only some pictures: install libjpeg-dev, libspng-dev and libwebp-dev "
                   "and build again";
        why = formats[f].why_not;
    }
    return why;
}

int mr_room_need(struct mr_room *room, uint64_t bytes, const char *name)
{
    if (bytes <= room->bytes)
        return 0;
    free(room->data);
    room->bytes = 0;
    room->data = bytes < SIZE_MAX / 2
                     ? aligned_alloc(MR_CACHE_LINE, mr_round_up(bytes, MR_CACHE_LINE))
                     : NULL;
    if (!room->data)
        return mr_error_nomem(name, bytes);
    room->bytes = bytes;
    return 0;
}

int mr_decoder_create(struct mr_decoder **out)
{
    struct mr_decoder *d = calloc(1, sizeof *d);
    if (!d)
        return mr_error_nomem("decoder", sizeof *d);
    *out = d;
    return 0;
}

void mr_decoder_warm(struct mr_decoder *d)
{
    /* a JPEG: 64 factors, the header, a table of codes for either kind of value, and the pixel */
    static const unsigned char pixel[] = {
        0xff, 0xd8, 0xff, 0xdb, 0x00, 0x43, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc0, 0x00, 0x0b,
        0x08, 0x00, 0x01, 0x00, 0x01, 0x01, 0x01, 0x11, 0x00, 0xff, 0xc4, 0x00, 0x14, 0x00, 0x01,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0xff, 0xc4, 0x00, 0x14, 0x10, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xda, 0x00, 0x08, 0x01, 0x01, 0x00,
        0x00, 0x3f, 0x00, 0x3f, 0xff, 0xd9,
    };
    const struct mr_image_opts opts = {.channels = 1};
    struct mr_picture picture;
    (void)mr_image_decode(d, &opts, "one pixel", pixel, sizeof pixel, NULL, NULL, &picture);
}

static void empty(struct mr_kept *k)
{
    if (k->thing)
        k->close(k->thing);
    *k = (struct mr_kept){0};
}

static struct mr_kept *find_kept(struct mr_decoder *d, const void *owner, uint64_t key)
{
    for (size_t i = 0; i < MR_COUNT(d->kept); i++)
        if (d->kept[i].thing && d->kept[i].owner == owner && d->kept[i].key == key)
            return &d->kept[i];
    return NULL;
}

void *mr_decoder_find(struct mr_decoder *d, const void *owner, uint64_t key)
{
    struct mr_kept *k = find_kept(d, owner, key);
    if (!k)
        return NULL;
    k->used = ++d->uses;
    return k->thing;
}

void mr_decoder_keep(struct mr_decoder *d, const void *owner, uint64_t key, void *thing,
                     void (*close)(void *thing))
{
    struct mr_kept *oldest = &d->kept[0];
    for (size_t i = 1; i < MR_COUNT(d->kept); i++)
        if (d->kept[i].used < oldest->used)
            oldest = &d->kept[i];
    empty(oldest);
    *oldest = (struct mr_kept){owner, key, thing, close, ++d->uses};
}

void mr_decoder_drop(struct mr_decoder *d, const void *owner, uint64_t key)
{
    struct mr_kept *k = find_kept(d, owner, key);
    if (k)
        empty(k);
}

void mr_decoder_destroy(struct mr_decoder *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < MR_COUNT(d->kept); i++)
        empty(&d->kept[i]);
    free(d->pixels.data);
    free(d->turned.data);
    free(d);
}

enum mr_image_format mr_image_sniff(const void *bytes, uint64_t n)
{
    const unsigned char *b = bytes;
    if (n >= 3 && !memcmp(b, "\xff\xd8\xff", 3))
        return MR_IMAGE_JPEG;
    if (n >= 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8))
        return MR_IMAGE_PNG;
    if (n >= 12 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4))
        return MR_IMAGE_WEBP;
    return MR_IMAGE_UNKNOWN;
}

static const struct format *format_get(enum mr_image_format format)
{
    return &formats[(unsigned)format < MR_N_IMAGE_FORMATS ? format : MR_IMAGE_UNKNOWN];
}

const char *mr_image_format_name(enum mr_image_format format)
{
    return format_get(format)->name;
}

const char *mr_image_why_not(enum mr_image_format format)
{
    return format_get(format)->codec ? NULL : format_get(format)->why_not;
}

/* Finds the codec for the bytes. Returns 0, or the error if they can't be decoded. */
static int find(const char *name, const void *bytes, uint64_t n, const struct mr_image_codec **out)
{
    enum mr_image_format format = mr_image_sniff(bytes, n);
    *out = formats[format].codec;
    if (*out)
        return 0;
    if (format == MR_IMAGE_UNKNOWN)
        return mr_error_set(MR_EFORMAT, "%s: %llu bytes that are %s", name, (unsigned long long)n,
                            formats[format].why_not);
    return mr_error_set(MR_EUNSUPPORTED, "%s: a %s picture: %s", name, formats[format].name,
                        formats[format].why_not);
}

int mr_image_probe(const char *name, const void *bytes, uint64_t n, struct mr_image_info *out)
{
    const struct mr_image_codec *codec;
    int rc = find(name, bytes, n, &codec);
    return rc < 0 ? rc : codec->probe(name, bytes, n, out);
}

int mr_image_decode(struct mr_decoder *d, const struct mr_image_opts *opts, const char *name,
                    const void *bytes, uint64_t n, mr_window_choice *choose, void *user,
                    struct mr_picture *out)
{
    const struct mr_image_codec *codec;
    struct mr_image_call call = {d, opts, name, bytes, n, choose, user};
    int rc = find(name, bytes, n, &codec);
    return rc < 0 ? rc : codec->decode(&call, out);
}
