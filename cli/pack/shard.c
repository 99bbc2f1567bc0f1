/* Files of packed samples. */
#define XXH_INLINE_ALL
#include "pack/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BUFFER_BYTES (1u << 20)

static int cannot_write(const struct pack_shard *s, int errnum)
{
    return cli_fail("%s: cannot be written: %s%s", s->out.path, strerror(errnum ? errnum : EIO),
                    s->alone ? "" : "; finished shards are kept: run again to resume");
}

int pack_shard_open(struct pack_shard *s, const struct pack_format *format, const char *path,
                    int force)
{
    *s = (struct pack_shard){.format = format, .hash = XXH64_createState()};
    if (!s->hash)
        return cli_fail("out of memory");
    int code = cli_output_open(&s->out, path, CLI_DATA, force);
    if (code != CLI_OK) {
        pack_shard_abort(s);
        return code;
    }
    XXH64_reset(s->hash, 0);
    setvbuf(s->out.file, NULL, _IOFBF, BUFFER_BYTES); /* a failure leaves a smaller buffer */
    return CLI_OK;
}

bool pack_put(struct pack_shard *s, const void *bytes, size_t n)
{
    XXH64_update(s->hash, bytes, n);
    s->bytes += n;
    return fwrite(bytes, 1, n, s->out.file) == n;
}

int pack_shard_add(struct pack_shard *s, const char *key, const struct pack_sample *sample)
{
    errno = 0;
    if (!s->format->add(s, key, sample))
        return cannot_write(s, errno);
    s->n++;
    return CLI_OK;
}

/* Opening it makes the index, and shows that what was written can be read. */
static int make_index(const struct pack_format *format, const char *path)
{
    struct mr_dataset *ds = NULL;
    int rc = format->open(path, &ds);
    if (rc < 0)
        return cli_error(rc);
    mr_dataset_close(ds);
    return CLI_OK;
}

int pack_shard_finish(struct pack_shard *s)
{
    errno = 0;
    if ((s->format->finish && !s->format->finish(s)) || fflush(s->out.file) != 0 ||
        fsync(fileno(s->out.file)) != 0)
        return cannot_write(s, errno);
    s->sum = XXH64_digest(s->hash);
    char *path = strdup(s->out.path);
    int code = path ? cli_output_commit(&s->out) : cli_fail("out of memory");
    if (code == CLI_OK)
        code = make_index(s->format, path);
    free(path);
    return code;
}

void pack_shard_abort(struct pack_shard *s)
{
    cli_output_abort(&s->out);
    if (s->hash)
        XXH64_freeState(s->hash);
    *s = (struct pack_shard){0};
}
