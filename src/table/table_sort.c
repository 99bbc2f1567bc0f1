/* Sorts tables, and finds columns by the names that users type. */
#include "table/table.h"

#include <millrace/options.h>

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* A column's value mapped to an integer of the same order; then the row's old position, which makes
 * the sort stable. */
struct item {
    int64_t key;
    uint32_t row, place;
};

struct text_item {
    const char *text;
    uint32_t number;
};

static int by_key(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct text_item *)a)->text, ((const struct text_item *)b)->text);
}

/* Maps doubles to integers of the same order: the sign bit inverted, negative numbers bitwise
 * inverted. */
static int64_t ordered(double value)
{
    int64_t bits;
    value = value == 0 ? 0 : value;
    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

/* The alphabetical rank of each text, by its number, malloc'd. NULL if out of memory. */
static uint32_t *rank_texts(const struct mr_table *table)
{
    uint32_t *rank = malloc((table->n_texts + 1ull) * sizeof *rank);
    struct text_item *items = malloc((table->n_texts + 1ull) * sizeof *items);
    for (uint32_t i = 0; rank && items && i < table->n_texts; i++)
        items[i] = (struct text_item){table->texts[i], i};
    if (rank && items) {
        qsort(items, table->n_texts, sizeof *items, by_text);
        for (uint32_t i = 0; i < table->n_texts; i++)
            rank[items[i].number] = i;
        free(items);
        return rank;
    }
    free(rank);
    free(items);
    return NULL;
}

/* Empty cells come last in either order. */
static int64_t key_of(const struct mr_table_store *column, const uint32_t *rank, uint32_t row,
                      bool ascending)
{
    if (column->empty && column->empty[row / 8] >> (row % 8) & 1)
        return INT64_MAX;
    int64_t key;
    if (column->head.type == MR_CELL_REAL)
        key = ordered(((const double *)column->cells)[row]);
    else
        key = column->wide ? ((const int64_t *)column->cells)[row]
                           : ((const int32_t *)column->cells)[row];
    if (rank)
        key = rank[key];
    return ascending ? key : ~key;
}

static bool same_letter(const char **name, const char **typed)
{
    while (**name && !isalnum((unsigned char)**name))
        (*name)++;
    while (**typed && !isalnum((unsigned char)**typed))
        (*typed)++;
    return tolower((unsigned char)**name) == tolower((unsigned char)**typed);
}

/* How much of the name was typed: 2 all, 1 a prefix, 0 something else. Ignores case, blanks and
 * punctuation. */
static int match(const char *name, const char *typed)
{
    while (same_letter(&name, &typed)) {
        if (!*name)
            return 2;
        name++;
        typed++;
    }
    return *typed == 0 ? 1 : 0;
}

uint32_t mr_table_find(const struct mr_table *table, const char *name)
{
    uint32_t found = UINT32_MAX, n = 0;
    for (uint32_t c = 0; c < table->n_columns; c++) {
        int how = match(table->columns[c].head.name, name);
        if (how == 2)
            return c;
        if (how == 1 && n++ == 0)
            found = c;
    }
    return n == 1 && *name ? found : UINT32_MAX;
}

/* The column that was probably meant; NULL if none is similar. Ignores case. */
static const char *near_column(const struct mr_table *table, const char *typed)
{
    char *lower = strdup(typed), **names = calloc(table->n_columns + 1ull, sizeof *names);
    const char *near = NULL, *found = NULL;
    bool ok = lower && names;
    for (char *c = lower; ok && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    for (uint32_t i = 0; i < table->n_columns && ok; i++) {
        names[i] = strdup(table->columns[i].head.name);
        ok = names[i] != NULL;
        for (char *c = names[i]; ok && *c; c++)
            *c = *c == ' ' ? '-' : (char)tolower((unsigned char)*c);
    }
    near = ok ? mr_nearest(lower, (const char *const *)names) : NULL;
    for (uint32_t i = 0; names && i < table->n_columns; i++) {
        if (near && near == names[i])
            found = table->columns[i].head.name;
        free(names[i]);
    }
    free(names);
    free(lower);
    return found;
}

static int no_such_column(const struct mr_table *table, const char *name)
{
    char list[512] = "";
    size_t used = 0;
    for (uint32_t c = 0; c < table->n_columns; c++) {
        int n = snprintf(list + used, sizeof list - used, "%s%s", c ? ", " : "",
                         table->columns[c].head.name);
        used = MR_MIN(used + (size_t)MR_MAX(n, 0), sizeof list - 1);
    }
    const char *near = near_column(table, name);
    return mr_error_set(MR_EOPTION, "%s: no column \"%s\"%s%s%s; there are: %s", table->title, name,
                        near ? "; did you mean \"" : "", near ? near : "", near ? "\"" : "", list);
}

int mr_table_sort(struct mr_table *table, const char *column, int ascending)
{
    if (!table || !column)
        return mr_error_null("mr_table_sort", "a table and a column");
    uint32_t c = mr_table_find(table, column);
    if (table->failed)
        return 0;
    if (c == UINT32_MAX)
        return no_such_column(table, column);
    uint64_t n = table->n_rows;
    bool texts = table->columns[c].head.type == MR_CELL_TEXT;
    uint32_t *rank = texts ? rank_texts(table) : NULL;
    struct item *items = malloc((n + 1) * sizeof *items);
    uint32_t *order = malloc((n + 1) * sizeof *order);
    if (!items || !order || (texts && !rank)) {
        free(rank);
        free(items);
        free(order);
        return mr_error_nomem("sorting a table", n * sizeof *items);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = table->order ? table->order[i] : i;
        items[i] = (struct item){key_of(&table->columns[c], rank, row, ascending), row, i};
    }
    qsort(items, n, sizeof *items, by_key);
    for (uint64_t i = 0; i < n; i++)
        order[i] = items[i].row;
    free(table->order);
    table->order = order;
    free(rank);
    free(items);
    return 0;
}
