/*
 * Tables of shards: names, sizes and numbers of samples of many archives in one file (NAME.shards),
 * so that a data set of any number of shards is opened without opening its shards.
 *
 * table.c        reads a table: a binary search in its top, then one read of a group of shards
 * table_write.c  writes one
 * table_index.c  indexes archives, and adds them to a table
 * held.c         indexes of the shards in use, which are read when a sample of theirs is wanted
 * table_open.c   the data set
 *
 * The file: a head, groups of MR_TAR_TABLE_GROUP shards, and the top, which has the first sample
 * and the offset of each group. A process keeps the top (16 bytes a group) and the latest groups;
 * the rest is in the page cache, once a machine. Files are read, not mapped: one that is cut off is
 * an error then, not a SIGBUS. Head, top and each group have a checksum.
 */
#ifndef MR_DATASET_TAR_TABLE_H
#define MR_DATASET_TAR_TABLE_H

#include "dataset/tar/state.h"

#define MR_TAR_TABLE_GROUP   512u
#define MR_TAR_TABLE_NAME    4096u /* bytes of a name, with the 0 */
#define MR_TAR_TABLE_MAGIC   "MRSHARDS"
#define MR_TAR_TABLE_VERSION 1u
#define MR_TAR_TABLE_ORDER   0x01020304u  /* this machine's byte order */
#define MR_TAR_TABLE_MOST    (1ull << 30) /* shards */

struct mr_tar_table_head {
    char magic[8];
    uint32_t version, order;
    uint64_t n_shards, n_samples;
    uint64_t bytes;  /* of the file */
    uint64_t top_at; /* the top: n_groups + 1 entries, the last one for the end */
    uint64_t top_sum;
    uint64_t groups_sum; /* over the sums of all groups, for the fingerprint */
    uint64_t head_sum;   /* of the head up to here */
};
struct mr_tar_table_top {
    uint64_t first; /* sample of the group */
    uint64_t at;    /* of the group in the file */
};
/* Then n shards, then their names, each ended by 0. */
struct mr_tar_table_group {
    uint64_t sum; /* of the rest of the group */
    uint32_t n, names_bytes;
};
struct mr_tar_table_shard {
    uint64_t bytes;
    uint32_t samples;
    uint32_t name; /* offset in the group's names */
};

uint64_t mr_tar_table_sum(const void *data, uint64_t bytes);
/* May a table have this name? Not if it leads out of the table's folder. */
bool mr_tar_table_name_fits(const char *name);
/* Does this path or URL end in .shards? */
bool mr_tar_table_named(const char *path);

/* A shard, copied from the table. */
struct mr_tar_table_entry {
    uint64_t number, first, bytes;
    uint32_t samples;
    char name[MR_TAR_TABLE_NAME];
};

struct mr_tar_table;
/* file: a lazy file of the table of files. Reads head and top. Errors name the file; MR_EFORMAT,
 * MR_ETRUNCATED, MR_EUNSUPPORTED: another version or byte order. */
int mr_tar_table_open(struct mr_files *files, int file, struct mr_tar_table **out);
void mr_tar_table_close(struct mr_tar_table *table);
const struct mr_tar_table_head *mr_tar_table_get_head(const struct mr_tar_table *table);
const char *mr_tar_table_name(const struct mr_tar_table *table); /* without credentials */
/* Bytes of memory of its top. */
uint64_t mr_tar_table_top_bytes(const struct mr_tar_table *table);
/* The shard with this sample, or with this number. Any thread. */
int mr_tar_table_find(struct mr_tar_table *table, uint64_t sample, struct mr_tar_table_entry *out);
/* The number of the shard with this sample, if it is known without reading; else UINT64_MAX. */
uint64_t mr_tar_table_peek(struct mr_tar_table *table, uint64_t sample);
int mr_tar_table_get(struct mr_tar_table *table, uint64_t number, struct mr_tar_table_entry *out);

/* ---- indexes of shards in use ---- */

struct mr_tar_held;
/* An index that is in use until it is released. */
struct mr_tar_held_shard {
    const char *name; /* without credentials */
    int file;
    uint64_t first, bytes; /* of the table */
    uint32_t samples;
    struct mr_tar_index index;
    uint32_t *first_member, *member; /* of each sample: as in struct mr_tar_samples */
};
/* folder: where shards are, "" or ending with '/'. */
int mr_tar_held_create(struct mr_dataset *ds, const struct mr_tar_opts *o,
                       struct mr_tar_table *table, const char *folder, struct mr_tar_held **out);
void mr_tar_held_destroy(struct mr_tar_held *held);
/* The limit of the indexes that are kept. */
uint64_t mr_tar_held_limit(const struct mr_tar_held *held);
/* Of the sample's shard. Blocks while its index is read. */
int mr_tar_held_acquire(struct mr_tar_held *held, uint64_t sample,
                        const struct mr_tar_held_shard **out);
void mr_tar_held_release(struct mr_tar_held *held, const struct mr_tar_held_shard *shard);
/* The name of the sample's shard, without credentials; NULL: that part of the table is not in
 * memory. Stays until the data set is closed. */
const char *mr_tar_held_name(struct mr_tar_held *held, uint64_t sample);
/* The sample's shard will be acquired soon: begins to read its index, if it is remote. */
void mr_tar_held_expect(struct mr_tar_held *held, uint64_t sample);
/* Of a shard that was acquired before the fields were known: the sample of each member, and then
 * the members of each. */
const uint32_t *mr_tar_held_samples(const struct mr_tar_held_shard *shard);
int mr_tar_held_fill(struct mr_tar_held *held, const struct mr_tar_held_shard *shard);

#endif
