/* Tar shards (ustar). */
#define XXH_INLINE_ALL
#include "pack/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK        512u
#define BUFFER_BYTES (1u << 20)

static int cannot_write(const struct pack_shard *s, int errnum)
{
    return cli_fail("%s: cannot be written: %s; finished shards are kept: run again to resume",
                    s->out.path, strerror(errnum ? errnum : EIO));
}

int pack_shard_open(struct pack_shard *s, const char *dir, const char *part, uint64_t number,
                    uint64_t first)
{
    char *path = NULL;
    *s = (struct pack_shard){.number = number, .first = first, .hash = XXH64_createState()};
    if (asprintf(&path, "%s/shard%s-%06llu.tar", dir, part, (unsigned long long)number) < 0)
        path = NULL;
    int code =
        s->hash && path ? cli_output_open(&s->out, path, CLI_DATA, 1) : cli_fail("out of memory");
    free(path);
    if (!s->hash || code != CLI_OK) {
        pack_shard_abort(s);
        return code;
    }
    XXH64_reset(s->hash, 0);
    setvbuf(s->out.file, NULL, _IOFBF, BUFFER_BYTES); /* a failure leaves a smaller buffer */
    return CLI_OK;
}

static bool put(struct pack_shard *s, const void *bytes, size_t n)
{
    XXH64_update(s->hash, bytes, n);
    s->bytes += n;
    return fwrite(bytes, 1, n, s->out.file) == n;
}

static bool pad(struct pack_shard *s)
{
    static const char zeros[BLOCK];
    size_t n = (BLOCK - s->bytes % BLOCK) % BLOCK;
    return put(s, zeros, n);
}

static void put_size(char *to, uint64_t bytes)
{
    if (bytes < 1ull << 33) {
        snprintf(to, 12, "%011llo", (unsigned long long)bytes);
        return;
    }
    to[0] = (char)0x80; /* base 256 */
    for (int i = 0; i < 8; i++)
        to[11 - i] = (char)(bytes >> 8 * i);
}

/* No times, no owners: the same samples make the same archives. */
static bool put_header(struct pack_shard *s, const char *key, const struct pack_member *m)
{
    char h[BLOCK] = "";
    unsigned sum = 0;
    snprintf(h, 100, "%s.%s", key, m->ext);
    memcpy(h + 100, "0000644", 8);
    memcpy(h + 108, "0000000", 8);
    memcpy(h + 116, "0000000", 8);
    put_size(h + 124, m->bytes);
    memcpy(h + 136, "00000000000", 12);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257, "ustar", 6);
    h[263] = h[264] = '0';
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum & 0777777);
    h[155] = ' ';
    return put(s, h, BLOCK);
}

uint64_t pack_sample_bytes(const struct pack_sample *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++)
        bytes += BLOCK + (s->member[i].bytes + BLOCK - 1) / BLOCK * BLOCK;
    return bytes;
}

int pack_shard_add(struct pack_shard *s, const char *key, const struct pack_sample *sample)
{
    errno = 0;
    for (int i = 0; i < sample->n; i++) {
        const struct pack_member *m = &sample->member[i];
        if (!put_header(s, key, m) || !put(s, m->data, m->bytes) || !pad(s))
            return cannot_write(s, errno);
    }
    s->n++;
    return CLI_OK;
}

/* Opening it makes the index, and shows that what was written can be read. */
static int make_index(const char *path)
{
    struct mr_tar_opts opts;
    struct mr_dataset *ds = NULL;
    mr_tar_opts_init(&opts);
    opts.path = path;
    opts.index = MR_TAR_INDEX_BESIDE;
    int rc = mr_dataset_open_tar(&opts, &ds);
    if (rc < 0)
        return cli_error(rc);
    mr_dataset_close(ds);
    return CLI_OK;
}

int pack_shard_finish(struct pack_shard *s)
{
    static const char zeros[2 * BLOCK];
    errno = 0;
    if (!put(s, zeros, sizeof zeros) || fflush(s->out.file) != 0 || fsync(fileno(s->out.file)) != 0)
        return cannot_write(s, errno);
    s->sum = XXH64_digest(s->hash);
    char *path = strdup(s->out.path);
    int code = path ? cli_output_commit(&s->out) : cli_fail("out of memory");
    if (code == CLI_OK)
        code = make_index(path);
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
