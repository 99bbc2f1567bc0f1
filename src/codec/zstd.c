/* Zstandard by libzstd's streaming decoder. */
#include "codec/codec.h"

#include <errno.h>

#if MILLRACE_HAVE_ZSTD
#include <zstd.h>

struct mr_unzstd {
    ZSTD_DStream *stream;
    const char *name;
    uint64_t taken, made;
    bool open; /* within a frame */
};

struct mr_unzstd *mr_unzstd_create(const char *name)
{
    struct mr_unzstd *z = calloc(1, sizeof *z);
    if (z)
        z->stream = ZSTD_createDStream();
    if (!z || !z->stream) {
        free(z);
        mr_error_nomem(name, sizeof *z);
        return NULL;
    }
    z->name = name;
    z->open = true;
    return z;
}

void mr_unzstd_destroy(struct mr_unzstd *z)
{
    if (!z)
        return;
    ZSTD_freeDStream(z->stream);
    free(z);
}

int mr_unzstd_step(struct mr_unzstd *z, struct mr_gunzip_io *io)
{
    ZSTD_inBuffer in = {io->in, io->n_in, 0};
    ZSTD_outBuffer out = {io->out, io->n_out, 0};
    size_t rc = 0;
    for (;;) {
        size_t in_was = in.pos, out_was = out.pos;
        rc = ZSTD_decompressStream(z->stream, &out, &in);
        if (ZSTD_isError(rc))
            break;
        z->open = rc != 0;
        if (in.pos == in_was && out.pos == out_was)
            break;
        if (rc == 0 && in.pos == in.size)
            break;
    }
    z->taken += in.pos;
    z->made += out.pos;
    if (ZSTD_isError(rc))
        return mr_error_set(
            MR_EFORMAT, "%s: damaged zstd data near byte %llu (unpacked byte %llu): %s", z->name,
            (unsigned long long)z->taken, (unsigned long long)z->made, ZSTD_getErrorName(rc));
    io->in += in.pos;
    io->n_in -= in.pos;
    io->out += out.pos;
    io->n_out -= out.pos;
    return 0;
}

int mr_unzstd_end(struct mr_unzstd *z)
{
    if (!z->open)
        return 0;
    return mr_error_set(
        MR_ETRUNCATED,
        "%s: truncated: the zstd data ends within a frame, at byte %llu (%llu unpacked)", z->name,
        (unsigned long long)z->taken, (unsigned long long)z->made);
}

#else

struct mr_unzstd *mr_unzstd_create(const char *name)
{
    mr_error_set(
        MR_EUNSUPPORTED,
        "%s: is zstd data, and this build was made without libzstd: install libzstd-dev and "
        "build again, or unpack it first",
        name);
    return NULL;
}

void mr_unzstd_destroy(struct mr_unzstd *z)
{
    (void)z;
}

int mr_unzstd_step(struct mr_unzstd *z, struct mr_gunzip_io *io)
{
    (void)z;
    (void)io;
    return mr_error_set(MR_EUNSUPPORTED, "no libzstd in this build");
}

int mr_unzstd_end(struct mr_unzstd *z)
{
    (void)z;
    return 0;
}

#endif
