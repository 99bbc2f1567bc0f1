/* Which columns of a CSV file are what. */
#ifndef MR_DATASET_PICTURES_CSV_COLUMNS_H
#define MR_DATASET_PICTURES_CSV_COLUMNS_H

#include "dataset/pictures/csv.h"

/* Numbers of columns, from 0. */
struct mr_csv_columns {
    size_t n;
    struct mr_slice *name; /* n of them; NULL without a header */
    size_t path;
    size_t n_points, *points; /* x, y, x, y, ... */
    size_t n_labels, *labels;
    size_t n_text, first_text; /* of labels=all: columns left out, as their first cell is text */
    bool text_labels;          /* the one label is a class's name */
};

/* Reads the header, when there is one, and the first record, and chooses. On success the csv holds the first record.
 * Returns 0, MR_EFORMAT, MR_EOPTION, MR_ELIMIT, -ENOMEM; mr_csv_columns_free() in any case. */
int mr_csv_columns_choose(struct mr_csv_columns *k, const struct mr_csv_opts *o,
                          struct mr_csv *csv);
void mr_csv_columns_free(struct mr_csv_columns *k);

/* "column 'age'", or "column 3" without a header. Returns buf. */
const char *mr_csv_column_name(const struct mr_csv_columns *k, size_t c, char *buf, size_t cap);

#endif
