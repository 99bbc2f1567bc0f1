/* Reading CSV: records of cells (RFC 4180), and cells as numbers. */
#ifndef MR_DATASET_PICTURES_CSV_H
#define MR_DATASET_PICTURES_CSV_H

#include "dataset/pictures/photos.h"

#define MR_CSV_MAX_COLUMNS 65536

/* A CSV text while it is read. The caller sets path, at, end and delimiter, and line to 1. Quoted
 * cells are changed in place. */
struct mr_csv {
    const char *path; /* for errors */
    char *at;         /* unread text; *end must be writable: it is set to NUL */
    const char *end;
    char delimiter;
    uint64_t line;        /* line number of `at` */
    uint64_t record_line; /* line number where the record begins */
    struct mr_slice *cell;
    size_t n;
    uint64_t room; /* capacity of cell */
};

/* Reads the next record that is not blank into cell[0..n); the cells stay valid as long as the
 * text. Returns 1, 0 at the end, MR_EFORMAT, MR_ELIMIT or -ENOMEM. */
int mr_csv_next(struct mr_csv *csv);
void mr_csv_free(struct mr_csv *csv); /* frees the cells, not the text */

/* The most frequent delimiter outside quotes in the first line: ',' ';' tab or '|'; comma if it has
 * none. */
char mr_csv_delimiter(const char *text, const char *end);

enum mr_csv_number { MR_CSV_TEXT, MR_CSV_FINITE, MR_CSV_NOT_FINITE, MR_CSV_EMPTY };

/* Classifies a cell. [out] value: set for FINITE and NOT_FINITE (nan, inf, too large). Blanks
 * around it are skipped; hexadecimal is text. Correctly rounded, as strtod() in the C locale. */
enum mr_csv_number mr_csv_number(struct mr_slice cell, double *value);

#endif
