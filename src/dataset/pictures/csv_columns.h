/* The roles of the columns of a CSV file. */
#ifndef MR_DATASET_PICTURES_CSV_COLUMNS_H
#define MR_DATASET_PICTURES_CSV_COLUMNS_H

#include "dataset/pictures/csv.h"

/* Column numbers, from 0. */
struct mr_csv_columns {
    size_t n;
    struct mr_slice *name; /* n of them; NULL without a header */
    size_t path;
    size_t n_points, *points; /* x, y, x, y, ... */
    size_t n_labels, *labels;
    size_t n_texts, *texts;
    /* for labels=all: columns left out because their first cell is text */
    size_t n_text, first_text;
    bool text_labels; /* the only label is a class name */
};

/* Reads the header, if there is one, and the first record, and chooses columns. On success, csv
 * holds the first record. Returns 0, MR_EFORMAT, MR_EOPTION, MR_ELIMIT or -ENOMEM; call
 * mr_csv_columns_free() in any case. */
int mr_csv_columns_choose(struct mr_csv_columns *k, const struct mr_csv_opts *o,
                          struct mr_csv *csv);
void mr_csv_columns_free(struct mr_csv_columns *k);

/* "column 'age'", or "column 3" without a header. Returns buf. */
const char *mr_csv_column_name(const struct mr_csv_columns *k, size_t c, char *buf, size_t cap);

#endif
