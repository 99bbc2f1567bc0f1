/*
 * Data sets over Arrow tables in memory.
 *
 * Any producer of the Arrow C data interface will do: pyarrow, DuckDB, Polars, nanoarrow. It is an
 * ABI of two structs, so neither side links the other:
 * https://arrow.apache.org/docs/format/CDataInterface.html
 *
 * A row is a sample and a column is a field. Arrow's bool, int8 to int64, uint8 to uint64, half,
 * float and double become tensors of rank 0; fixed-size lists of these (of one to eight levels)
 * become tensors of that shape; fixed-size binary is u8; utf8 and large_utf8 become strings; binary
 * and large_binary become bytes.
 *
 * Threads: as dataset.h. fork: a child may read the data set, and must not close it.
 */
#ifndef MILLRACE_ARROW_H
#define MILLRACE_ARROW_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_dataset;

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

/* A table in memory. */
struct mr_arrow_opts {
    size_t size;                /* of this struct, set by mr_arrow_opts_init() */
    const char *name;           /* in errors and the fingerprint; copied; NULL: "arrow" */
    struct ArrowSchema *schema; /* a struct ("+s") with 1 to MR_MAX_FIELDS columns */
    struct ArrowArray *chunk;   /* n_chunks arrays of that schema, one after the other */
    uint64_t n_chunks;
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
 * Lengths, offsets, counts of buffers and children, nulls and text offsets are checked here. The
 * interface does not give the sizes of buffers, so those are trusted.
 * The fingerprint covers the name, the fields, and the first and last 16 rows.
 * Returns 0, MR_EMISUSE (a released struct at any level; no schema or chunks; two columns of one
 * name), MR_EFORMAT (what the interface does not allow; lists of 0 elements; no rows; a null: the
 * text has column and row), MR_EUNSUPPORTED (a type: the text has column and format), MR_ELIMIT (0
 * or more than MR_MAX_FIELDS columns; a column's name that is empty or has MR_NAME_BYTES or more;
 * sizes), -ENOMEM.
 */
MR_API int mr_dataset_open_arrow(const struct mr_arrow_opts *opts, struct mr_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
