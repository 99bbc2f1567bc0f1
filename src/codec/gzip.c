/* Gzip by zlib's streaming inflate. */
#include "codec/codec.h"

#include <errno.h>
#include <limits.h>
#include <zlib.h>

#define RATIO 1032 /* zlib's manual: 2 bits produce at most 258 bytes */

enum state { BETWEEN, INSIDE, TRAILING };

struct mr_gunzip {
    z_stream zs;
    enum state state;
    uint8_t magic[2]; /* the first bytes of the next member, as far as seen */
    unsigned n_magic, members;
    bool odd_tail; /* already warned about */
    uint8_t none;  /* target when there is no output buffer */
    uint64_t taken, made;
    const char *name;
};

struct mr_gunzip *mr_gunzip_create(const char *name)
{
    struct mr_gunzip *z = calloc(1, sizeof *z);
    if (!z || inflateInit2(&z->zs, 15 + 16) != Z_OK) {
        free(z);
        mr_error_nomem(name, sizeof *z + 48 * 1024);
        return NULL;
    }
    z->name = name;
    return z;
}

void mr_gunzip_destroy(struct mr_gunzip *z)
{
    if (!z)
        return;
    inflateEnd(&z->zs);
    free(z);
}

static int damaged(const struct mr_gunzip *z, const char *what)
{
    return mr_error_set(MR_EFORMAT, "%s: damaged gzip data near byte %llu (inflated byte %llu): %s",
                        z->name, (unsigned long long)z->taken, (unsigned long long)z->made, what);
}

/* Calls zlib once with the given input and output; counts the bytes of both. */
static int inflate_part(struct mr_gunzip *z, const uint8_t *in, size_t n_in,
                        struct mr_gunzip_io *io, size_t *used)
{
    z->zs.next_in = (Bytef *)in;
    z->zs.avail_in = (uInt)MR_MIN(n_in, UINT_MAX);
    z->zs.next_out = io->out;
    z->zs.avail_out = (uInt)MR_MIN(io->n_out, UINT_MAX);
    int rc = inflate(&z->zs, Z_NO_FLUSH);
    *used = (size_t)(z->zs.next_in - in);
    size_t made = (size_t)(z->zs.next_out - io->out);
    z->taken += *used;
    z->made += made;
    io->out += made;
    io->n_out -= made;
    switch (rc) {
    case Z_STREAM_END:
        z->state = BETWEEN;
        z->n_magic = 0;
        z->members++;
        return inflateReset(&z->zs) == Z_OK ? 0 : damaged(z, "zlib refuses to go on");
    case Z_OK:
    case Z_BUF_ERROR: /* no progress without more input or output space */
        return 0;
    case Z_MEM_ERROR:
        return mr_error_nomem(z->name, 48 * 1024);
    case Z_NEED_DICT:
        return damaged(z, "a preset dictionary is asked for");
    default:
        return damaged(z, z->zs.msg ? z->zs.msg : "not deflate data");
    }
}

static int take_inside(struct mr_gunzip *z, struct mr_gunzip_io *io)
{
    size_t used;
    int rc = inflate_part(z, io->in, io->n_in, io, &used);
    io->in += used;
    io->n_in -= used;
    return rc;
}

static void skip_tail(struct mr_gunzip *z, struct mr_gunzip_io *io)
{
    for (; io->n_in; io->in++, io->n_in--, z->taken++) {
        if (!*io->in || z->odd_tail)
            continue;
        z->odd_tail = true;
        mr_log(MR_LOG_WARNING,
               "%s: what follows the gzip data at byte %llu is no gzip data; ignored", z->name,
               (unsigned long long)z->taken);
    }
}

/* Not a member's magic: an error at the start of the file, else trailing data. */
static int begin_tail(struct mr_gunzip *z)
{
    if (!z->members)
        return mr_error_set(
            MR_EFORMAT, "%s: not a gzip file: expected to begin with bytes 1f 8b, found %02x %02x",
            z->name, z->magic[0], z->magic[1]);
    struct mr_gunzip_io seen = {.in = z->magic, .n_in = z->n_magic};
    z->state = TRAILING;
    skip_tail(z, &seen);
    return 0;
}

static int take_between(struct mr_gunzip *z, struct mr_gunzip_io *io)
{
    while (z->n_magic < 2 && io->n_in) {
        z->magic[z->n_magic++] = *io->in++;
        io->n_in--;
    }
    if (z->n_magic < 2)
        return 0;
    if (z->magic[0] != 0x1f || z->magic[1] != 0x8b)
        return begin_tail(z);
    z->state = INSIDE;
    size_t used;
    return inflate_part(z, z->magic, 2, io, &used);
}

int mr_gunzip_step(struct mr_gunzip *z, struct mr_gunzip_io *io)
{
    int rc = 0;
    if (!io->out) /* zlib requires a pointer even for zero bytes */
        io->out = &z->none;
    for (;;) {
        size_t in = io->n_in, out = io->n_out;
        enum state state = z->state;
        if (state == BETWEEN)
            rc = take_between(z, io);
        else if (state == INSIDE)
            rc = take_inside(z, io);
        else
            skip_tail(z, io);
        if (rc || (in == io->n_in && out == io->n_out && state == z->state))
            break;
    }
    if (io->out == &z->none)
        io->out = NULL;
    return rc;
}

int mr_gunzip_end(struct mr_gunzip *z)
{
    if (!z->members && z->state == BETWEEN)
        return mr_error_set(MR_ETRUNCATED, "%s: not a gzip file: it has %u bytes", z->name,
                            z->n_magic);
    if (z->state == INSIDE)
        return mr_error_set(
            MR_ETRUNCATED,
            "%s: truncated: the gzip data ends within a member, at byte %llu (%llu inflated)",
            z->name, (unsigned long long)z->taken, (unsigned long long)z->made);
    if (z->state == BETWEEN && z->n_magic) {
        z->n_magic = MR_MIN(z->n_magic, 1u);
        return begin_tail(z);
    }
    return 0;
}

uint64_t mr_gunzip_made(const struct mr_gunzip *z)
{
    return z->made;
}

uint64_t mr_gunzip_most(uint64_t bytes)
{
    uint64_t most;
    return mr_mul(bytes, RATIO, &most) ? most : UINT64_MAX;
}
