/*
 * Data sets over Arrow tables.
 *
 * Any producer of the Arrow C data interface will do: pyarrow, DuckDB, Polars, nanoarrow. It is an
 * ABI of three structs, so neither side links the other:
 * https://arrow.apache.org/docs/format/CDataInterface.html
 *
 * A table may be given as arrays (mr_dataset_open_arrow()), as a stream that is read to its end
 * (mr_dataset_open_arrow_stream()), or as groups of rows that are loaded when they are needed, such
 * as the row groups of Parquet files (mr_dataset_open_arrow_groups()).
 *
 * A row is a sample and a column is a field:
 *
 * - bool, int8 to int64, uint8 to uint64, half, float and double: tensors of rank 0.
 * - Fixed-size lists of these, of one to eight levels: tensors of that shape. Fixed-size binary:
 *   u8.
 * - Lists and large lists of numbers: tensors of rank 1, whose length varies if those of the rows
 *   do. Not in groups.
 * - utf8, large utf8 and utf8 view: strings. binary, large binary and binary view: bytes, or
 *   pictures (struct mr_arrow_column).
 * - Dictionaries of any of these but lists: their values.
 *
 * A name of MR_NAME_BYTES or more is cut at a character's boundary to fit a field's name. If two
 * fields then have one name, "~" and the column's number replace the end of the second one.
 *
 * Threads: as dataset.h. fork: a child may read tables, not groups, and must not close them.
 */
#ifndef MILLRACE_ARROW_H
#define MILLRACE_ARROW_H

#include <millrace/dataset.h>
#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE           2
#define ARROW_FLAG_MAP_KEYS_SORTED    4

/* Defined by Arrow: the type of a column or of a table. */
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

/* Defined by Arrow: the values of a column, or of some rows of a table. */
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

/* Defined by Arrow: a table whose chunks come one after the other. The functions return 0 or an
 * errno. */
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif

/* A column to read. Passed in arrays, so its layout is fixed. */
struct mr_arrow_column {
    /* Its name; "image.bytes": the member `bytes` of the struct column `image`, unless a column has
     * the whole text as its name. */
    const char *path;
    const char *name; /* of the field; NULL: path */
    uint64_t picture; /* 1: a binary column of encoded pictures (JPEG, PNG, WebP). At most one */
    uint64_t reserved[5]; /* 0; the struct has 64 bytes for good */
};

/* A table, and what to read of it. */
struct mr_arrow_opts {
    size_t size;                /* of this struct, set by mr_arrow_opts_init() */
    const char *name;           /* in errors and the fingerprint; copied; NULL: "arrow" */
    struct ArrowSchema *schema; /* a struct ("+s") */
    struct ArrowArray *chunk;   /* n_chunks arrays of that schema, one after the other */
    uint64_t n_chunks;
    /* The columns to read, 1 to MR_MAX_FIELDS, in the order of the fields; copied. NULL: all. */
    const struct mr_arrow_column *column;
    uint64_t n_columns;
    /* The rows to read: sample i is row row[i]; copied. NULL: all, in their order. */
    const uint64_t *row;
    uint64_t n_rows;
    struct mr_picture_opts picture; /* how pictures are decoded */
};
MR_API void mr_arrow_opts_fill(struct mr_arrow_opts *opts, size_t size);
static inline void mr_arrow_opts_init(struct mr_arrow_opts *opts)
{
    mr_arrow_opts_fill(opts, sizeof *opts);
}

/*
 * Opens a data set over a table. Values are read where they are. On success the schema and the
 * chunks are moved: their release is NULL afterwards, and the library releases them when the data
 * set is closed. On failure they remain the caller's.
 *
 * Lengths, offsets, counts of buffers and children, nulls, text offsets and indices of dictionaries
 * are checked here, in the columns that are read. The interface does not give the sizes of most
 * buffers, so those are trusted.
 * The fingerprint covers the name, the fields, and the first and last 16 samples.
 * Returns 0, MR_EMISUSE (a released struct at any level; no schema or chunks; two fields of one
 * name; no such column or row), MR_EFORMAT (what the interface does not allow; lists of 0 elements;
 * no rows; a null: the text has column and row), MR_EUNSUPPORTED (a type: the text has column and
 * format), MR_ELIMIT (0 or more than MR_MAX_FIELDS columns; a column without a name; sizes),
 * -ENOMEM.
 */
MR_API int mr_dataset_open_arrow(const struct mr_arrow_opts *opts, struct mr_dataset **out);

/*
 * Opens a data set over all chunks of a stream, which is read to its end here. Blocks as the
 * stream does.
 * opts: schema and chunk must be NULL. stream: is always released, also on failure; its release is
 * then NULL. Its chunks stay in memory until the data set is closed.
 * Returns as mr_dataset_open_arrow(); or what the stream returned, as -errno, with its text.
 */
MR_API int mr_dataset_open_arrow_stream(const struct mr_arrow_opts *opts,
                                        struct ArrowArrayStream *stream, struct mr_dataset **out);

/* Groups of rows that are loaded when they are needed. */
struct mr_arrow_groups {
    size_t size; /* of this struct, set by mr_arrow_groups_init() */
    uint64_t n_groups;
    const uint64_t *rows; /* of each group; copied */
    /*
     * Loads a group: an array of opts' schema with the group's number of rows. Several threads
     * call it at once, for different groups. [out] out: on success; the library releases it.
     * Returns 0, -errno or MR_E* (mr_error_set()): the group's samples are then bad.
     */
    int (*load)(void *user, uint64_t group, struct ArrowArray *out);
    void (*close)(
        void *user); /* called when the data set is closed, not if opening fails. Or NULL */
    void *user;
    uint64_t version;    /* in the fingerprint: change it when the rows change */
    uint64_t keep;       /* groups kept in memory, beside one in use by each worker; default 4 */
    uint64_t text_bytes; /* the most of a text; a longer one is a bad sample. Default 1 MiB */
    /* Memory of the largest group, about: max_memory of a loader counts it for each one that is
     * kept or in use. 0 (default): unknown, not counted. */
    uint64_t group_bytes;
};
MR_API void mr_arrow_groups_fill(struct mr_arrow_groups *groups, size_t size);
static inline void mr_arrow_groups_init(struct mr_arrow_groups *groups)
{
    mr_arrow_groups_fill(groups, sizeof *groups);
}

/*
 * Opens a data set over groups of rows. The `keep` groups that were used last stay in memory. An
 * order that reads each group's rows at about the same time (sequential, or MR_SAMPLER_RANDOM with
 * `block`) loads each one about once an epoch; others need as many kept as there are groups.
 *
 * opts: its schema is moved on success, and remains the caller's on failure; chunk and row must be
 * NULL. A group is checked when it is loaded. If it is malformed, or has a null in a column that
 * is read, its samples are bad; the text has the column and the row.
 * mr_dataset_read_stored() is MR_EUNSUPPORTED for pictures. The fingerprint covers name, version,
 * fields and the groups' numbers of rows.
 * Returns as mr_dataset_open_arrow(); MR_EMISUSE: no groups, no load, or rows are given.
 */
MR_API int mr_dataset_open_arrow_groups(const struct mr_arrow_opts *opts,
                                        const struct mr_arrow_groups *groups,
                                        struct mr_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
