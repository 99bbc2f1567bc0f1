/* What the core build (-DMILLRACE_CORE=ON) has instead of zlib. */
#include "codec/codec.h"

struct mr_gunzip *mr_gunzip_create(const char *name)
{
    mr_error_set(MR_EUNSUPPORTED,
                 "%s: is a gzip file, and this build has no zlib: it was made with "
                 "MILLRACE_CORE=ON; unpack the file first",
                 name);
    return NULL;
}

/* Nothing was created, so nothing below is reached with a stream. */
void mr_gunzip_destroy(struct mr_gunzip *z)
{
    (void)z;
}

int mr_gunzip_step(struct mr_gunzip *z, struct mr_gunzip_io *io)
{
    (void)z;
    (void)io;
    return mr_error_set(MR_EUNSUPPORTED, "this build has no zlib");
}

int mr_gunzip_end(struct mr_gunzip *z)
{
    return mr_gunzip_step(z, NULL);
}

uint64_t mr_gunzip_made(const struct mr_gunzip *z)
{
    (void)z;
    return 0;
}

uint64_t mr_gunzip_most(uint64_t bytes)
{
    (void)bytes;
    return 0;
}
