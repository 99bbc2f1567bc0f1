/* Pictures of any format: which it is, and the decoder's room. */
#include "codec/image_codec.h"

#include <errno.h>

static const struct mr_image_codec *const codecs[] = {
#if MILLRACE_HAVE_JPEG
    &mr_jpeg_codec,
#endif
#if MILLRACE_HAVE_PNG
    &mr_png_codec,
#endif
#if MILLRACE_HAVE_WEBP
    &mr_webp_codec,
#endif
    NULL,
};

static const char *const names[MR_N_IMAGE_FORMATS] = {"unknown", "jpeg", "png", "webp"};

int mr_room_need(struct mr_room *room, uint64_t bytes, const char *name)
{
    if (bytes <= room->bytes)
        return 0;
    free(room->data);
    room->bytes = 0;
    room->data = bytes < SIZE_MAX / 2 ? aligned_alloc(MR_CACHE_LINE, mr_round_up(bytes, MR_CACHE_LINE)) : NULL;
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

void mr_decoder_destroy(struct mr_decoder *d)
{
    if (!d)
        return;
    for (const struct mr_image_codec *const *c = codecs; *c; c++)
        if ((*c)->close && d->state[(*c)->format])
            (*c)->close(d->state[(*c)->format]);
    free(d->pixels.data);
    free(d->turned.data);
    free(d);
}

static const struct mr_image_codec *find(const void *bytes, uint64_t n)
{
    for (const struct mr_image_codec *const *c = codecs; *c; c++)
        if ((*c)->sniff(bytes, n))
            return *c;
    return NULL;
}

enum mr_image_format mr_image_sniff(const void *bytes, uint64_t n)
{
    const struct mr_image_codec *c = find(bytes, n);
    return c ? c->format : MR_IMAGE_UNKNOWN;
}

const char *mr_image_format_name(enum mr_image_format format)
{
    return (unsigned)format < MR_N_IMAGE_FORMATS ? names[format] : names[0];
}

const char *mr_image_why_not(enum mr_image_format format)
{
    for (const struct mr_image_codec *const *c = codecs; *c; c++)
        if ((*c)->format == format)
            return NULL;
    return "this build was made without the library that decodes it";
}

static int unknown(const char *name, uint64_t n)
{
    return mr_error_set(MR_EFORMAT, "%s: %llu bytes that are no picture: want JPEG, PNG or WebP", name,
                        (unsigned long long)n);
}

int mr_image_probe(const char *name, const void *bytes, uint64_t n, struct mr_image_info *out)
{
    const struct mr_image_codec *c = find(bytes, n);
    return c ? c->probe(name, bytes, n, out) : unknown(name, n);
}

int mr_image_decode(struct mr_decoder *d, const struct mr_image_opts *opts, const char *name, const void *bytes,
                    uint64_t n, mr_window_choice *choose, void *user, struct mr_picture *out)
{
    const struct mr_image_codec *c = find(bytes, n);
    struct mr_image_call call = {d, opts, name, bytes, n, choose, user};
    return c ? c->decode(&call, out) : unknown(name, n);
}
