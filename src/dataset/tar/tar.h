/*
 * Tar archives as data sets: which shards a text names, where members lie in them, the index that is kept of that, and
 * which members make a sample.
 */
#ifndef MR_DATASET_TAR_TAR_H
#define MR_DATASET_TAR_TAR_H

#include "base/base.h"

#define MR_TAR_BLOCK       512u
#define MR_TAR_SMALL_BYTES 64u   /* the content of members up to this is kept in the index */
#define MR_TAR_NPY_BYTES   3072u /* so is the header of an npy member up to this */
#define MR_TAR_NONE        UINT32_MAX

/* A regular file in an archive. Written to index files as it stands. */
struct mr_tar_member {
    uint64_t offset, bytes; /* of its content */
    uint32_t name;          /* where its path begins in names */
    uint32_t
        small; /* where it begins in small: a u32 of how many bytes, and these; MR_TAR_NONE: not kept */
};

/* The members of an archive, in its order. */
struct mr_tar_index {
    struct mr_tar_member *member;
    char *names; /* paths, each ended by 0 */
    unsigned char *small;
    uint64_t n, names_bytes, small_bytes;
    uint64_t member_room, names_room, small_room;
    uint64_t sum; /* hash over all of it: for the fingerprint */
};
void mr_tar_index_free(struct mr_tar_index *index);
uint64_t mr_tar_index_sum(const struct mr_tar_index *index);

/* What an archive is read through. */
struct mr_tar_source {
    const char *name; /* for errors */
    uint64_t bytes;
    uint64_t
        chunk; /* bytes of one read, at least 4 KiB: more where a read's latency costs more than its bytes */
    int (*read)(void *user, uint64_t offset, void *buf, uint64_t bytes);
    void *user;
};

/*
 * Reads all headers, in one pass; contents are skipped. ustar, GNU's long names, pax headers, sizes in base 256.
 * Returns 0; MR_EFORMAT: no tar, a wrong checksum, an absolute path, "..", a link, a device; MR_ETRUNCATED,
 * MR_EUNSUPPORTED: sparse, volumes; MR_ELIMIT, -ENOMEM. Texts name the archive and the offset. On error out is empty.
 */
int mr_tar_scan(const struct mr_tar_source *source, struct mr_tar_index *out);

/* The bytes that the index keeps of a member; NULL: none. */
const unsigned char *mr_tar_small(const struct mr_tar_index *index, const struct mr_tar_member *m,
                                  uint32_t *out_bytes);

/* ---- the header fields (tar_header.c) ---- */

struct mr_tar_header {
    char type;
    uint64_t bytes;
    char name[260]; /* as the block has it: prefix and name */
};
/* Reads a block that is not all zeros. at: its offset, for errors. */
int mr_tar_header_parse(const char *archive, uint64_t at, const unsigned char block[MR_TAR_BLOCK],
                        struct mr_tar_header *out);

/* What pax records say; kept until the next member. */
struct mr_tar_pax {
    char *path; /* malloc'd; NULL: not said */
    bool has_bytes;
    uint64_t bytes;
};
int mr_tar_pax_parse(const char *archive, uint64_t at, const char *text, uint64_t n,
                     struct mr_tar_pax *out);

/* ---- shards by name (tar_names.c) ---- */

struct mr_tar_names {
    char **name;
    uint64_t n, room;
};
/* Does a name end as archives' do: .tar, .tar.gz, .tgz, .tar.zst? */
bool mr_tar_named(const char *name);
/* Expands "shards/{000..127}.tar", "{train,val}-{0..9}.tar", and lists "a.tar::b.tar"; and, by looking: a folder (one of a
 * store ends with '/') to the archives in it, "shards/train-*.tar" to those that match, both in the order of their names by
 * bytes. Returns 0, MR_EOPTION, MR_EFORMAT (none there), MR_ELIMIT, -ENOMEM, the error of listing. On error out is empty. */
int mr_tar_names_expand(const char *text, struct mr_tar_names *out);
void mr_tar_names_free(struct mr_tar_names *names);

/* ---- index files (tar_index.c) ---- */

enum mr_tar_keep { MR_TAR_KEEP_AUTO, MR_TAR_KEEP_BESIDE, MR_TAR_KEEP_CACHE, MR_TAR_KEEP_NONE };

/* What an index file must fit. */
struct mr_tar_identity {
    const char *path;
    uint64_t key; /* of a remote file: its URL's hash */
    uint64_t bytes;
    int64_t mtime_ns; /* 0: not known (a remote file) */
};
/* Is there a valid one? true with *out filled. Never an error: what does not fit is made anew. */
bool mr_tar_index_load(const struct mr_tar_identity *id, enum mr_tar_keep keep,
                       struct mr_tar_index *out);
/* Writes it, whole or not at all. AUTO: beside the archive, else in the cache directory, else not. Returns 0, or an error
 * for BESIDE and CACHE. */
int mr_tar_index_save(const struct mr_tar_identity *id, enum mr_tar_keep keep,
                      const struct mr_tar_index *index);
/* $XDG_CACHE_HOME/millrace or ~/.cache/millrace; made when `make`. Returns buf, or NULL when there is none. */
const char *mr_tar_cache_folder(char *buf, size_t cap, bool make);

/* ---- compressed archives (tar_inflate.c) ---- */

enum mr_tar_packing { MR_TAR_PLAIN, MR_TAR_GZIP, MR_TAR_ZSTD };
enum mr_tar_packing mr_tar_packing_of(const unsigned char *bytes,
                                      uint64_t n); /* 4 bytes are enough */

/* Inflated content: memory, or a temporary file without a name. */
struct mr_tar_inflated {
    unsigned char *data; /* malloc'd; NULL: in the file, or there is none */
    uint64_t bytes;
    int fd; /* -1: none */
};
/* What may still be taken, all archives of a data set together. */
struct mr_tar_budget {
    _Atomic int64_t memory; /* bytes; what goes beyond it goes to temporary files */
    _Atomic int64_t left;   /* bytes, of both */
    uint64_t total;         /* what left was to begin with */
    uint64_t
        packed; /* where total follows from the archives' own bytes: these; 0: it was asked for */
};
#define MR_TAR_UNPACKED_TIMES 20ull /* their packed bytes, where nothing else is asked for */
#define MR_TAR_UNPACKED_LEAST (1ull << 30)
/* Returns 0; MR_ELIMIT beyond the budget; or another error that names the archive. */
int mr_tar_inflate(const struct mr_tar_source *source, enum mr_tar_packing packing,
                   struct mr_tar_budget *budget, struct mr_tar_inflated *out);
void mr_tar_inflated_free(struct mr_tar_inflated *in);
/* A temporary file without a name, for reading and writing. archive: for errors. Returns its descriptor, or -errno. */
int mr_tar_spill_open(const char *archive);
/* Removes the named temporary files that killed runs of earlier versions left: our own, older than an hour, not open anywhere. */
void mr_tar_spill_sweep(void);

/* ---- samples (tar_group.c, tar_fields.c) ---- */

enum mr_tar_kind { MR_TAR_PICTURE, MR_TAR_LABEL, MR_TAR_NPY, MR_TAR_RAW };

#define MR_TAR_EXTENSIONS 8
struct mr_tar_field {
    char name[MR_NAME_BYTES];
    enum mr_tar_kind kind;
    int n_ext;
    char ext[MR_TAR_EXTENSIONS]
            [MR_NAME_BYTES]; /* small letters, without the first dot, the preferred first */
};

/* Where the extension of a member's path begins, behind the first dot of its base name; NULL: it belongs to no sample (no
 * dot, or one at the beginning, or a name like "__x__"). */
const char *mr_tar_extension(const char *path);
/* Reads "image:jpg;png,label:cls". Returns how many, or MR_EOPTION. */
int mr_tar_fields_parse(const char *text, struct mr_tar_field out[MR_MAX_FIELDS]);
/* Chooses fields from the extensions of a sample. Returns how many. */
int mr_tar_fields_choose(const char *const *ext, uint64_t n,
                         struct mr_tar_field out[MR_MAX_FIELDS]);
/* Whether a member of this extension is one of numbers. */
bool mr_tar_is_label(const char *ext);
/* Whether it is the one that becomes the field "label" unasked. */
bool mr_tar_is_cls(const char *ext);
/* Which of the field's extensions this is, from 0; -1: none. */
int mr_tar_field_rank(const struct mr_tar_field *field, const char *ext);

/* Which members make a sample. */
struct mr_tar_samples {
    uint64_t n, room;
    uint32_t *shard;  /* of each sample */
    uint32_t *first;  /* its first member: its key */
    uint32_t *member; /* n * n_fields, MR_TAR_NONE: it lacks it */
};
void mr_tar_samples_free(struct mr_tar_samples *s);
/* Appends the samples of one archive: [out] sample_of, malloc'd: of each member, counted from s->n as it was, MR_TAR_NONE
 * for none. */
int mr_tar_group(const char *archive, uint32_t shard, const struct mr_tar_index *index,
                 struct mr_tar_samples *s, uint32_t **sample_of);

#endif
