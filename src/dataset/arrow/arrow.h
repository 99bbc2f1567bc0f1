/*
 * Arrow tables: columns of the C data interface as fields.
 *
 * A foreign program made the structs, so nothing in them is used before it is checked: type.c turns
 * each column's schema into a spec, fields.c does so for the columns that are wanted, check.c finds
 * the buffers of each chunk's columns and checks them against the type. What remains for a sample
 * is arithmetic on checked numbers (value.c). Most buffers have no sizes in this interface; they
 * alone are trusted.
 *
 * arrow.c has tables in memory; stream.c reads a stream into one; groups.c has chunks that are
 * loaded when they are needed, and a cache of them.
 */
#ifndef MR_DATASET_ARROW_ARROW_H
#define MR_DATASET_ARROW_ARROW_H

#include "dataset/dataset.h"
#include <millrace/arrow.h>

/* RUN32, RUN64: values end to end with offsets: texts, and lists of numbers. */
enum mr_arrow_layout {
    MR_ARROW_PLAIN,
    MR_ARROW_BITS,
    MR_ARROW_RUN32,
    MR_ARROW_RUN64,
    MR_ARROW_VIEW
};

/* The type of a column. */
struct mr_arrow_type {
    enum mr_arrow_layout layout;
    int column, member; /* of the table; of a struct column, else -1 */
    int64_t n_members;
    int depth;      /* levels of fixed-size lists: their sizes are spec.dim[0 .. depth - 1] */
    uint64_t count; /* elements of a row; of layouts whose rows vary: 1 */
    uint64_t leaf;  /* elements in one of the innermost array: N of "w:N", else 1 */
    uint64_t width; /* bytes of an element; of bits and texts: 1 */
    bool list;      /* RUN32, RUN64: the values are a child's */
    bool picture;
    char key; /* the format of a dictionary's indices; 0: no dictionary. layout is its values' */
};

/* The buffers of one column in one chunk. Row i has elements first + i * count and following. */
struct mr_arrow_part {
    const uint8_t *values;
    const void *offsets;       /* RUN32, RUN64 */
    const void *const *pieces; /* VIEW: the buffers of long texts */
    uint64_t first;
    const uint8_t *keys; /* of a dictionary: row i has the value number keys[first_key + i] */
    uint64_t first_key;
};

/* The least and the most elements of a row, where rows vary. */
struct mr_arrow_range {
    uint64_t least, most;
};

/* The chunk of a row: the first that ends behind it. end: of each of the n chunks, the row after
 * its last one. */
static inline uint64_t mr_arrow_chunk_of(const uint64_t *end, uint64_t n, uint64_t row)
{
    uint64_t low = 0, high = n - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (end[middle] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* A chunk's first row. */
static inline uint64_t mr_arrow_begin_of(const uint64_t *end, uint64_t chunk)
{
    return chunk > 0 ? end[chunk - 1] : 0;
}

/* The fields that are read, and what they are called in errors. */
struct mr_arrow_fields {
    char *name; /* the data set's */
    int n;
    int64_t n_columns; /* of the table */
    struct mr_arrow_type type[MR_MAX_FIELDS];
    struct mr_arrow_range range[MR_MAX_FIELDS];
};

/* Chooses the columns of a table: fills fields, and ds->n_fields, field and picture. What was
 * filled is freed by mr_arrow_fields_close(), also after an error.
 * Returns 0, MR_EUNSUPPORTED, MR_EFORMAT, MR_EMISUSE, MR_ELIMIT, -ENOMEM. */
int mr_arrow_fields_open(struct mr_dataset *ds, const struct mr_arrow_opts *o,
                         struct mr_arrow_fields *fields);
void mr_arrow_fields_close(struct mr_arrow_fields *fields);

/* Fills type, and the dtype, shape and kind of spec, by a column's schema. name: of the data set.
 * column: in errors. Returns 0, MR_EUNSUPPORTED, MR_EFORMAT, MR_EMISUSE, MR_ELIMIT. */
int mr_arrow_type_read(const char *name, const char *column, const struct ArrowSchema *schema,
                       struct mr_arrow_type *type, struct mr_spec *spec);

/* Checks a chunk, and finds the buffers of its fields. row: the data set's row that it begins at,
 * for errors. part: fields->n of them. Widens range[] by the rows' sizes where they vary.
 * Returns 0, MR_EFORMAT, MR_EMISUSE. */
int mr_arrow_chunk_read(const struct mr_arrow_fields *fields, const struct mr_spec field[],
                        const struct ArrowArray *chunk, uint64_t row, struct mr_arrow_range range[],
                        struct mr_arrow_part part[]);

/* Where run i of a part begins in its values. */
int64_t mr_arrow_offset(const struct mr_arrow_part *p, enum mr_arrow_layout layout, uint64_t i);
/* Index i of a dictionary; negative: malformed. format: of the type. */
int64_t mr_arrow_key(const uint8_t *keys, char format, uint64_t i);

/* The bytes of row i where they are. Not for bits. */
struct mr_bytes mr_arrow_value(const struct mr_arrow_type *type, const struct mr_arrow_part *p,
                               uint64_t i);
/* Brings what row i's copy begins with near the cache: its key, offset, view or bytes. */
void mr_arrow_prefetch(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i);
/* Copies row i of a column of one size. */
void mr_arrow_copy(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i,
                   unsigned char *to);
/* Adds row i to a hash. */
uint64_t mr_arrow_hash(uint64_t hash, const struct mr_arrow_type *type,
                       const struct mr_arrow_part *p, uint64_t i);
/*
 * Makes a sample of row i of a chunk. row: in the table, for errors. copy: whether the bytes are
 * copied, as the chunk may go before the sample is used.
 * Returns 0, MR_ELIMIT (a text is longer than the field), MR_EUNSUPPORTED, or a decoder's error.
 */
int mr_arrow_sample(const struct mr_dataset *ds, const struct mr_arrow_fields *fields,
                    const struct mr_arrow_part part[], uint64_t i, uint64_t row, bool copy,
                    struct mr_sample *out);

#endif
