/*
 * Index files: where the parts of a large file are, kept from one opening to the next, as FILE.idx
 * beside it or in a cache directory under a name derived from its path. What an index has is the
 * format's: three arrays of bytes, of which the first has units of one size.
 */
#ifndef MR_DATASET_INDEX_FILE_H
#define MR_DATASET_INDEX_FILE_H

#include "base/base.h"

enum mr_index_keep {
    MR_INDEX_KEEP_AUTO,
    MR_INDEX_KEEP_BESIDE,
    MR_INDEX_KEEP_CACHE,
    MR_INDEX_KEEP_NONE
};

/* What an index file must match. */
struct mr_index_identity {
    const char *path;
    uint64_t key; /* for a remote file: hash of its URL */
    uint64_t bytes;
    int64_t mtime_ns; /* 0 if unknown (remote files) */
};

#define MR_INDEX_PARTS 3
struct mr_index_body {
    void *part[MR_INDEX_PARTS];
    uint64_t bytes[MR_INDEX_PARTS];
};
void mr_index_body_free(struct mr_index_body *body);
/* A hash over all parts. */
uint64_t mr_index_sum(const struct mr_index_body *body);

/* The indexes of one format. */
struct mr_index_kind {
    char magic[8];
    uint64_t unit; /* bytes of a unit of the first part */
    uint64_t most; /* there are fewer units than this */
    /* Returns whether all that the parts say is within the file: a checksum that is right does not
     * exclude a forged index. */
    bool (*sound)(const struct mr_index_body *body, uint64_t file_bytes);
};

/* Returns true with *out filled if there is a valid index file. Never an error: an index that does
 * not match is rebuilt. The parts are malloc'd. */
bool mr_index_load(const struct mr_index_kind *kind, const struct mr_index_identity *id,
                   enum mr_index_keep keep, struct mr_index_body *out);
/* Takes an index from the bytes of an index file of a file of this size, wherever that was when the
 * index was made. Returns false if it is none or does not fit. */
bool mr_index_parse(const struct mr_index_kind *kind, const void *data, uint64_t bytes,
                    uint64_t file_bytes, struct mr_index_body *out);
/* Writes an index file atomically. AUTO: beside the file, or else in the cache directory, or else
 * not at all. Returns 0, or an error for BESIDE and CACHE. */
int mr_index_save(const struct mr_index_kind *kind, const struct mr_index_identity *id,
                  enum mr_index_keep keep, const struct mr_index_body *body);
/* $XDG_CACHE_HOME/millrace or ~/.cache/millrace; created if `make` is set. Returns buf, or NULL if
 * there is none. */
const char *mr_index_cache_folder(char *buf, size_t cap, bool make);

#endif
