/* Reading CSV: records of cells (RFC 4180), and cells as numbers. */
#ifndef MR_DATASET_PICTURES_CSV_H
#define MR_DATASET_PICTURES_CSV_H

#include "dataset/pictures/photos.h"

#define MR_CSV_MAX_COLUMNS 65536

/* A text being read. The caller sets path, at, end and delimiter, and line to 1; quoted cells are changed in place. */
struct mr_csv {
    const char *path; /* for errors */
    char *at;         /* what is not read yet; *end can be written: a NUL stands there */
    const char *end;
    char delimiter;
    uint64_t line;        /* that `at` is in */
    uint64_t record_line; /* that the record begins in */
    struct mr_slice *cell;
    size_t n;
    uint64_t room; /* of cells */
};

/* Reads the next record that is not blank into cell[0..n); the cells stay valid as long as the text.
 * Returns 1, 0 at the end, MR_EFORMAT, MR_ELIMIT, -ENOMEM. */
int mr_csv_next(struct mr_csv *csv);
void mr_csv_free(struct mr_csv *csv); /* the cells, not the text */

/* The delimiter that the first line has most of, outside of quotes: ',' ';' tab or '|'; a comma when it has none. */
char mr_csv_delimiter(const char *text, const char *end);

enum mr_csv_number { MR_CSV_TEXT, MR_CSV_FINITE, MR_CSV_NOT_FINITE, MR_CSV_EMPTY };

/* What a cell is; [out] value: of FINITE and NOT_FINITE ones (nan, inf, too large). Blanks around are skipped; hexadecimal is text.
 * Rounded once, as strtod() does in the C locale. */
enum mr_csv_number mr_csv_number(struct mr_slice cell, double *value);

#endif
