/*
 * Arrow tables: columns of the C data interface as fields.
 *
 * A foreign program made the structs, so nothing in them is used before it is checked: type.c turns
 * each column's schema into a spec, check.c finds the buffers of each chunk's columns and checks
 * them against the type. What remains for a sample is arithmetic on checked numbers (arrow.c).
 * Buffers have no sizes in this interface; they alone are trusted.
 */
#ifndef MR_DATASET_ARROW_ARROW_H
#define MR_DATASET_ARROW_ARROW_H

#include "dataset/dataset.h"
#include <millrace/arrow.h>

enum mr_arrow_layout { MR_ARROW_PLAIN, MR_ARROW_BITS, MR_ARROW_TEXT32, MR_ARROW_TEXT64 };

/* The type of a column. */
struct mr_arrow_type {
    enum mr_arrow_layout layout;
    int depth;      /* levels of fixed-size lists: their sizes are spec.dim[0 .. depth - 1] */
    uint64_t count; /* elements of a row; of a text: 1 */
    uint64_t leaf;  /* elements in one of the innermost array: N of "w:N", else 1 */
    uint64_t width; /* bytes of an element; of bits and texts: 1 */
};

/* The buffers of one column in one chunk. Row i has elements first + i * count and following. */
struct mr_arrow_part {
    const uint8_t *values;
    const void *offsets; /* of texts */
    uint64_t first;
};

/* Fills type, and the dtype, shape, kind and name of spec, by a column's schema. name: of the data
 * set. Returns 0, MR_EUNSUPPORTED, MR_EFORMAT, MR_EMISUSE, MR_ELIMIT. */
int mr_arrow_type_read(const char *name, const struct ArrowSchema *schema,
                       struct mr_arrow_type *type, struct mr_spec *spec);

/* Checks a chunk's own struct (not its columns). columns: how many it must have. row: the data
 * set's row that it begins at, for errors. Returns 0, MR_EMISUSE, MR_EFORMAT. */
int mr_arrow_chunk_check(const char *name, const struct ArrowArray *chunk, int columns,
                         uint64_t row);

/* Checks a column of a checked chunk and finds its buffers. row: the data set's row that the chunk
 * begins at, for errors. Raises spec->dim[0] of a text to the longest. Returns 0, MR_EFORMAT,
 * MR_EMISUSE (released). */
int mr_arrow_part_read(const char *name, const struct ArrowArray *chunk, int column, uint64_t row,
                       const struct mr_arrow_type *type, struct mr_spec *spec,
                       struct mr_arrow_part *out);

/* Where text i of a part begins in its values. */
int64_t mr_arrow_offset(const struct mr_arrow_part *p, enum mr_arrow_layout layout, uint64_t i);

#endif
