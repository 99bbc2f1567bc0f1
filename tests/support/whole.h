/*
 * A folder of files of many sizes and a shard, and a data set over them as photos and archives are
 * read: of sample i the whole of file i, whose size nobody knows before, and record i of the shard,
 * all of them lazy.
 *
 * Its fields: "sum", u64[2]: the file's bytes and their hash; "record": the shard's bytes as they
 * are.
 */
#ifndef MR_TEST_WHOLE_H
#define MR_TEST_WHOLE_H

#include "dataset/dataset.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WHOLE_RECORD 64

struct whole_opts {
    size_t size;
    const char *dir;
    uint64_t n, most; /* files 0..n-1 of 0..most bytes */
};

static inline uint64_t whole_size(uint64_t i, uint64_t most)
{
    return i % 7 == 3 ? 0 : i % 7 == 5 ? most : mr_mix64(i) % (most + 1);
}

static inline uint8_t whole_byte(uint64_t i, uint64_t at)
{
    return (uint8_t)(mr_mix64(i << 32 ^ at >> 6) >> (at % 8));
}

static inline const char *whole_path(const struct whole_opts *o, uint64_t i, char out[512])
{
    if (i == o->n)
        snprintf(out, 512, "%s/shard", o->dir);
    else
        snprintf(out, 512, "%s/file-%llu", o->dir, (unsigned long long)i);
    return out;
}

/* File n is the shard. */
static inline int whole_write(const struct whole_opts *o)
{
    char path[512];
    for (uint64_t i = 0; i <= o->n; i++) {
        FILE *f = fopen(whole_path(o, i, path), "wb");
        uint64_t bytes = i == o->n ? o->n * WHOLE_RECORD : whole_size(i, o->most);
        for (uint64_t at = 0; f && at < bytes; at++)
            putc(whole_byte(i, at), f);
        if (!f || fclose(f))
            return -1;
    }
    return 0;
}

static inline void whole_remove(const struct whole_opts *o)
{
    char path[512];
    for (uint64_t i = 0; i <= o->n; i++)
        unlink(whole_path(o, i, path));
}

static inline void whole_sum(const void *data, uint64_t bytes, uint64_t out[2])
{
    out[0] = bytes;
    out[1] = mr_hash(MR_HASH_START, data, bytes);
}

/* What sample i's fields are to be. */
static inline void whole_want(const struct whole_opts *o, uint64_t i, uint8_t *room,
                              uint64_t sum[2], uint8_t record[WHOLE_RECORD])
{
    uint64_t bytes = whole_size(i, o->most);
    for (uint64_t at = 0; at < bytes; at++)
        room[at] = whole_byte(i, at);
    whole_sum(room, bytes, sum);
    for (uint64_t at = 0; at < WHOLE_RECORD; at++)
        record[at] = whole_byte(o->n, i * WHOLE_RECORD + at);
}

static inline int whole_open(struct mr_dataset *ds, const void *opts)
{
    const struct whole_opts *o = opts;
    char path[512];
    ds->n = o->n;
    ds->n_fields = 2;
    ds->field[0] = (struct mr_spec){.name = "sum", .dtype = MR_U64, .rank = 1, .dim = {2}};
    ds->field[1] =
        (struct mr_spec){.name = "record", .dtype = MR_U8, .rank = 1, .dim = {WHOLE_RECORD}};
    int rc = 0;
    for (uint64_t i = 0; i <= o->n && rc >= 0; i++)
        rc = mr_files_add_lazy(ds->files, whole_path(o, i, path));
    return MR_MIN(rc, 0);
}

static inline int whole_locate(const struct mr_dataset *ds, uint64_t i,
                               struct mr_extent out[MR_MAX_EXTENTS])
{
    out[0] = (struct mr_extent){.file = (int)i, .field = -1, .bytes = MR_WHOLE};
    out[1] = (struct mr_extent){
        .file = (int)ds->n, .field = 1, .offset = i * WHOLE_RECORD, .bytes = WHOLE_RECORD};
    return 2;
}

static inline int whole_decode(const struct mr_dataset *ds, uint64_t i, const struct mr_bytes in[],
                               struct mr_sample *out)
{
    (void)ds;
    (void)i;
    whole_sum(in[0].data, in[0].n, out->field[0].room);
    out->field[0].data = out->field[0].room;
    out->field[1].data = in[1].data;
    return 0;
}

static const struct mr_dataset_ops whole_ops = {
    .name = "whole",
    .summary = "whole files",
    .opts_size = sizeof(struct whole_opts),
    .open = whole_open,
    .locate = whole_locate,
    .decode = whole_decode,
};

#endif
