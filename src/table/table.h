/* Tables of results: rows with named columns that have types and units, built row by row (table.c),
 * sorted and looked up by name (table_sort.c), and written for people (table_text.c: aligned, with
 * fitting units, cut to the terminal's width) or for programs (table_machine.c: CSV and JSON, in
 * the unit that the header names; table_markdown.c).
 *
 * Cells are stored by column and texts once each, so that a table of millions of rows, such as the
 * events of a trace, fits in memory. Errors while adding cells are remembered in the table and
 * reported when it is written, so that callers need not check each cell. */
#ifndef MR_TABLE_TABLE_H
#define MR_TABLE_TABLE_H

#include "recording/recording.h"
#include <millrace/text.h>

/*
 * A column's cells: 4 bytes each until a value needs 8. Integers and reals are stored directly,
 * texts as indices into the table's list. Empty cells are bits of a bitmap that is allocated with
 * the first of them.
 */
struct mr_table_store {
    struct mr_column head;
    void *cells; /* int32_t, or int64_t if wide; or double */
    uint8_t *empty;
    bool wide;
};

struct mr_table {
    char *title, *note;
    struct mr_table_store *columns;
    uint32_t n_columns, at; /* at: the next cell of the last row */
    uint64_t n_rows, n_shown, capacity;
    uint32_t *order; /* sorted row numbers; NULL if not sorted */
    bool failed;     /* memory ran out */
    enum mr_time_unit time_unit;

    /* Texts, each once: an open-addressing hash table of indices into `texts` plus 1. */
    const char **texts;
    uint64_t texts_capacity;
    uint32_t n_texts, *buckets, n_buckets;
    struct mr_table_chunk *chunks; /* the memory of the texts */
};

/* "Total Time (ns)": malloc'd by asprintf; NULL if out of memory. */
char *mr_table_head(const struct mr_column *column, enum mr_time_unit unit);
/* The value for programs: in the unit of the column's header. */
double mr_table_machine(const struct mr_column *column, enum mr_time_unit unit, double value);
/* The value for people: "12.35 ms". Returns its length. Not for texts. */
int mr_table_human(const struct mr_column *column, enum mr_time_unit unit,
                   const struct mr_cell *cell, char buf[MR_TEXT_CELL]);
/* The text of a cell, in buf unless it is one. */
const char *mr_table_cell_text(const struct mr_table *table, uint64_t row, uint32_t c,
                               char buf[MR_TEXT_CELL]);
/* Finds a column by name: "total-time" is "Total Time". Returns UINT32_MAX if there is none. [out]
 * near, may be NULL: the most similar column. */
uint32_t mr_table_find(const struct mr_table *table, const char *name);

int mr_table_write_csv(const struct mr_table *table, FILE *to);
int mr_table_write_json(const struct mr_table *table, FILE *to);
int mr_table_write_markdown(const struct mr_table *table, FILE *to);

#endif
