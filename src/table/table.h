/* What the tables' files share: where cells are kept, and how they are written for people and for programs. */
#ifndef MR_TABLE_TABLE_H
#define MR_TABLE_TABLE_H

#include "recording/recording.h"
#include <millrace/text.h>

/*
 * A column's cells: 4 bytes each until a value needs 8, so that traces of millions of rows fit. Integers and reals as they
 * are, texts as numbers of the table's list. Empty cells are bits of a map that is made with the first of them.
 */
struct mr_table_store {
    struct mr_column head;
    void *cells; /* int32_t, or int64_t when wide; double */
    uint8_t *empty;
    bool wide;
};

struct mr_table {
    char *title, *note;
    struct mr_table_store *columns;
    uint32_t n_columns, at; /* at: the next cell of the last row */
    uint64_t n_rows, n_shown, capacity;
    uint32_t *order; /* rows as sorted; NULL: as they came */
    bool failed;     /* memory ran out */

    /* Texts, each once: an open hash table of numbers of `texts` plus 1. */
    const char **texts;
    uint64_t texts_capacity;
    uint32_t n_texts, *buckets, n_buckets;
    struct mr_table_chunk *chunks; /* where the texts lie */
};

/* "Total Time (ns)": malloc'd by asprintf; NULL without memory. */
char *mr_table_head(const struct mr_column *column);
/* What programs read: the number in its head's unit. */
double mr_table_machine(const struct mr_column *column, double value);
/* What people read: "12.35 ms". Returns its length. Texts are not for this. */
int mr_table_human(const struct mr_column *column, const struct mr_cell *cell,
                   char buf[MR_TEXT_CELL]);
/* "total-time" is the column "Total Time". UINT32_MAX: none; [out] near, may be NULL: what was meant. */
uint32_t mr_table_find(const struct mr_table *table, const char *name);

int mr_table_write_csv(const struct mr_table *table, FILE *to);
int mr_table_write_json(const struct mr_table *table, FILE *to);

#endif
