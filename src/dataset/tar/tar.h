/*
 * Tar archives as data sets. Opening has four steps, one file each:
 *
 * names.c  expands the text of the user into shard names
 * shard.c  finds the size and compression of each shard, on a few threads, and gets an index:
 *          from an index file (index.c), or by a scan of the headers (scan.c, header.c), after
 *          unpacking if the archive is compressed (inflate.c, spill.c)
 * group.c  groups members with the same key into samples
 * fields.c chooses which extension becomes which field
 *
 * The index has offset, size and path of each member, and the contents of the smallest ones
 * (labels), so that reading a sample costs one read per large member and none for the rest.
 */
#ifndef MR_DATASET_TAR_TAR_H
#define MR_DATASET_TAR_TAR_H

#include "base/base.h"
#include "dataset/index_file.h"

#define MR_TAR_BLOCK       512u
#define MR_TAR_SMALL_BYTES 64u   /* members up to this size are kept in the index */
#define MR_TAR_NPY_BYTES   3072u /* headers of npy members up to this size, too */
#define MR_TAR_NONE        UINT32_MAX

/* A regular file in an archive. This is also the layout in index files. */
struct mr_tar_member {
    uint64_t offset, bytes; /* of its content */
    uint32_t name;          /* offset of its path in names */
    uint32_t small; /* offset in small of a u32 length and that many bytes; MR_TAR_NONE: not kept */
};

/* The members of an archive, in archive order. */
struct mr_tar_index {
    struct mr_tar_member *member;
    char *names; /* paths, each ended by 0 */
    unsigned char *small;
    uint64_t n, names_bytes, small_bytes;
    uint64_t member_room, names_room, small_room;
    uint64_t sum; /* hash over everything, for the fingerprint */
};
void mr_tar_index_free(struct mr_tar_index *index);
uint64_t mr_tar_index_sum(const struct mr_tar_index *index);
/* Bytes of memory that it takes. */
static inline uint64_t mr_tar_index_bytes(const struct mr_tar_index *x)
{
    return MR_MAX(x->member_room, x->n) * sizeof *x->member +
           MR_MAX(x->names_room, x->names_bytes) + MR_MAX(x->small_room, x->small_bytes);
}

/* How to read an archive. */
struct mr_tar_source {
    const char *name; /* for errors */
    uint64_t bytes;
    uint64_t chunk; /* bytes per read, at least 4 KiB; larger where latency dominates */
    int (*read)(void *user, uint64_t offset, void *buf, uint64_t bytes);
    void *user;
};

/*
 * Reads all headers, in one pass; contents are skipped. Supports ustar, GNU's long names, pax
 * headers, and sizes in base 256. Returns 0; MR_EFORMAT: not tar, wrong checksum, absolute path,
 * "..", link or device; MR_ETRUNCATED; MR_EUNSUPPORTED: sparse files, volumes; MR_ELIMIT; -ENOMEM.
 * Error texts name the archive and the offset. On error, out is empty.
 */
int mr_tar_scan(const struct mr_tar_source *source, struct mr_tar_index *out);

/* The bytes of a member that the index keeps; NULL if none. */
const unsigned char *mr_tar_small(const struct mr_tar_index *index, const struct mr_tar_member *m,
                                  uint32_t *out_bytes);

bool mr_tar_is_npy(const char *name);
/* How many bytes of an npy member the index keeps: preamble and header; 0: damaged, or too long.
 * front: its first n bytes, MR_NPY_PREAMBLE_BYTES or all. */
uint64_t mr_tar_npy_part(const char *name, const unsigned char *front, uint64_t n, uint64_t bytes);

/* ---- header fields (header.c) ---- */

struct mr_tar_header {
    char type;
    uint64_t bytes;
    char name[260]; /* from the block: prefix and name */
};
/* Parses a block that is not all zeros. at: its offset, for errors. */
int mr_tar_header_parse(const char *archive, uint64_t at, const unsigned char block[MR_TAR_BLOCK],
                        struct mr_tar_header *out);

/* The contents of pax records; kept until the next member. */
struct mr_tar_pax {
    char *path; /* malloc'd; NULL if not given */
    bool has_bytes;
    uint64_t bytes;
};
int mr_tar_pax_parse(const char *archive, uint64_t at, const char *text, uint64_t n,
                     struct mr_tar_pax *out);

/* ---- entries, one after the other (entry.c) ---- */

/* What is known before the next entry. */
struct mr_tar_entries {
    const char *archive;   /* for errors */
    struct mr_tar_pax pax; /* for the next member, GNU's long name too */
};
struct mr_tar_entry {
    struct mr_tar_header header;
    uint64_t bytes; /* of its content */
    bool extended;  /* its content describes the next member */
};
/* Parses a header, which is at byte `at`. */
int mr_tar_entry_parse(const struct mr_tar_entries *e, uint64_t at,
                       const unsigned char block[MR_TAR_BLOCK], struct mr_tar_entry *out);
/* Of an extended entry: gives memory for its content, and takes the content, which it frees. */
int mr_tar_extended_begin(const struct mr_tar_entries *e, uint64_t at,
                          const struct mr_tar_entry *entry, char **text);
int mr_tar_extended_end(struct mr_tar_entries *e, uint64_t at, const struct mr_tar_entry *entry,
                        char *text);
/* Of any other: checks its type and name. Returns 1 for a file, whose name is valid until
 * mr_tar_entry_end(), 0 for a folder or label, or an error. */
int mr_tar_entry_name(const struct mr_tar_entries *e, uint64_t at, const struct mr_tar_entry *entry,
                      const char **out);
void mr_tar_entry_end(struct mr_tar_entries *e); /* what described this member is forgotten */
/* Is there something that describes a member which has not come yet? */
bool mr_tar_entries_half(const struct mr_tar_entries *e);
/* Is this block, all zeros, the end of the archive? */
bool mr_tar_is_end(const unsigned char *block);

/* ---- shards by name (names.c) ---- */

/* Which files of a folder are shards of a format. */
struct mr_tar_naming {
    const char *format, *what; /* for errors: "tar", "archive (.tar)" */
    bool (*named)(const char *name);
};
extern const struct mr_tar_naming mr_tar_naming;

struct mr_tar_names {
    const struct mr_tar_naming *of;
    char **name;
    uint64_t n, room;
};
/* Returns whether a name ends in .tar, .tar.gz, .tgz or .tar.zst. */
bool mr_tar_named(const char *name);
/* Expands "shards/{000..127}.tar", "{train,val}-{0..9}.tar" and lists "a.tar::b.tar". With a
 * directory listing, also expands a folder (for remote stores: ends with '/') to the archives in
 * it, and "shards/train-*.tar" to those that match; both sorted by bytes. Returns 0, MR_EOPTION,
 * MR_EFORMAT (no archives), MR_ELIMIT, -ENOMEM or the listing's error. On error, out is empty. */
int mr_tar_names_expand(const struct mr_tar_naming *of, const char *text, struct mr_tar_names *out);
/* Takes the text as one name. Returns 0 or -ENOMEM. */
int mr_tar_names_one(const char *text, struct mr_tar_names *out);
void mr_tar_names_free(struct mr_tar_names *names);

/* ---- index files (index.c) ---- */

/* As mr_index_load(), mr_index_parse() and mr_index_save(). */
/* Returns true with *out filled if there is a valid index file. Never an error: an index that does
 * not match is rebuilt. */
bool mr_tar_index_load(const struct mr_index_identity *id, enum mr_index_keep keep,
                       struct mr_tar_index *out);
/* Takes an index from the bytes of an index file of an archive of this size, wherever that was when
 * the index was made. Returns false, with out empty, if it is none or does not fit. */
bool mr_tar_index_parse(const void *data, uint64_t bytes, uint64_t archive_bytes,
                        struct mr_tar_index *out);
/* Writes an index file atomically. AUTO: beside the archive, or else in the cache directory, or
 * else not at all. Returns 0, or an error for BESIDE and CACHE. */
int mr_tar_index_save(const struct mr_index_identity *id, enum mr_index_keep keep,
                      const struct mr_tar_index *index);

/* ---- compressed archives (inflate.c) ---- */

enum mr_tar_packing { MR_TAR_PLAIN, MR_TAR_GZIP, MR_TAR_ZSTD };
enum mr_tar_packing mr_tar_packing_of(const unsigned char *bytes,
                                      uint64_t n); /* 4 bytes are enough */

/* Unpacked content: in memory, or in an unnamed temporary file. */
struct mr_tar_inflated {
    unsigned char *data; /* malloc'd; NULL if it is in the file or there is no content */
    uint64_t bytes;
    int fd; /* -1: none */
};
/* What all archives of a data set together may still use. */
struct mr_tar_budget {
    _Atomic int64_t memory; /* bytes of memory; anything beyond goes to temporary files */
    _Atomic int64_t left;   /* bytes of memory and files together */
    uint64_t total;         /* initial value of left */
    /* the archives' packed size if total was derived from it; 0 if the user set a limit */
    uint64_t packed;
};
#define MR_TAR_UNPACKED_TIMES 20ull /* default limit, as a multiple of the packed size */
#define MR_TAR_UNPACKED_LEAST (1ull << 30)
/* Returns 0, MR_ELIMIT beyond the budget, or another error that names the archive. */
int mr_tar_inflate(const struct mr_tar_source *source, enum mr_tar_packing packing,
                   struct mr_tar_budget *budget, struct mr_tar_inflated *out);
void mr_tar_inflated_free(struct mr_tar_inflated *in);
/* Reads unpacked content, as a source of scans. name: of the archive, for errors. Both stay while
 * it is used. */
struct mr_tar_unpacked {
    const struct mr_tar_inflated *in;
    const char *name;
};
struct mr_tar_source mr_tar_unpacked_source(struct mr_tar_unpacked *from);
/* Creates an unnamed temporary file for reading and writing. archive: for errors. Returns its
 * descriptor or -errno. */
int mr_tar_spill_open(const char *archive);
/* Removes named temporary files that killed processes of earlier versions left: our own, older than
 * an hour, not open anywhere. */
void mr_tar_spill_sweep(void);

/* ---- samples (group.c, fields.c) ---- */

enum mr_tar_kind { MR_TAR_PICTURE, MR_TAR_LABEL, MR_TAR_NPY, MR_TAR_RAW };

#define MR_TAR_EXTENSIONS 8
struct mr_tar_field {
    char name[MR_NAME_BYTES];
    enum mr_tar_kind kind;
    int n_ext;
    /* lower case, without the leading dot; the preferred one first */
    char ext[MR_TAR_EXTENSIONS][MR_NAME_BYTES];
};

/* The extension of a member's path, after the first dot of its base name; NULL if it belongs to no
 * sample (no dot, a leading dot, or a name like "__x__"). */
const char *mr_tar_extension(const char *path);
/* Parses "image:jpg;png,label:cls". Returns the number of fields, or MR_EOPTION. */
int mr_tar_fields_parse(const char *text, struct mr_tar_field out[MR_MAX_FIELDS]);
/* Chooses fields from the extensions of a sample. Returns the number of fields. */
int mr_tar_fields_choose(const char *const *ext, uint64_t n,
                         struct mr_tar_field out[MR_MAX_FIELDS]);
/* What a field of bytes is if it is a text. */
enum mr_kind mr_tar_text_kind(const struct mr_tar_field *field);
/* Returns whether members of this extension contain an integer label. */
bool mr_tar_is_label(const char *ext);
/* Returns whether this extension becomes the field "label" by default. */
bool mr_tar_is_cls(const char *ext);
/* The index of ext in the field's list of extensions, or -1. */
int mr_tar_field_rank(const struct mr_tar_field *field, const char *ext);

/* The members of each sample. */
struct mr_tar_samples {
    uint64_t n, room;
    uint32_t *shard;  /* of each sample */
    uint32_t *first;  /* its first member, which has its key */
    uint32_t *member; /* n * n_fields; MR_TAR_NONE: missing */
};
void mr_tar_samples_free(struct mr_tar_samples *s);
/* Appends the samples of one archive. [out] sample_of, malloc'd: the sample of each member, counted
 * from the previous s->n, or MR_TAR_NONE. */
int mr_tar_group(const char *archive, uint32_t shard, const struct mr_tar_index *index,
                 struct mr_tar_samples *s, uint32_t **sample_of);

#endif
