/* Sums by name: rows added up in groups by every thread, then names, each with its series, and
 * their table. */
#include "report/report.h"

#include <errno.h>
#include <string.h>

int mr_groups_scan(struct mr_recording *recording, const char *table, const char *sql,
                   int (*row)(void *worker, struct sqlite3_stmt *stmt), const struct mr_adder *like,
                   struct mr_adder *out)
{
    struct mr_adder workers[MR_SCAN_THREADS];
    void *states[MR_SCAN_THREADS];
    *out = *like;
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        workers[i] = *like;
        states[i] = &workers[i];
    }
    int rc = mr_scan(recording, table, sql, row, states);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        mr_left_out_add(&out->left, &workers[i].left);
        out->n_alone += workers[i].n_alone;
        if (rc == 0)
            rc = mr_groups_merge(&out->groups, &workers[i].groups);
        mr_groups_free(&workers[i].groups);
    }
    if (rc)
        mr_groups_free(&out->groups);
    return rc;
}

int mr_named_add(struct mr_named_list *list, char *name, const char *tag, const char *tag2,
                 struct mr_series *series)
{
    if (!name)
        return mr_error_nomem("names", 0);
    if (mr_grow("names", &list->items, &list->capacity, list->n + 1, sizeof *list->items) < 0) {
        free(name);
        return -ENOMEM;
    }
    list->items[list->n++] = (struct mr_named){name, tag, tag2, *series};
    *series = (struct mr_series){0};
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct mr_named *x = a, *y = b;
    int order = x->tag == y->tag ? 0 : strcmp(x->tag, y->tag);
    if (order == 0 && x->tag2 != y->tag2)
        order = strcmp(x->tag2, y->tag2);
    return order ? order : strcmp(x->name, y->name);
}

int mr_named_unite(struct mr_named_list *list)
{
    uint64_t n = 0;
    int rc = 0;
    if (list->n == 0)
        return 0;
    qsort(list->items, list->n, sizeof *list->items, by_name);
    for (uint64_t i = 1; i < list->n && rc == 0; i++) {
        struct mr_named *kept = &list->items[n], *other = &list->items[i];
        if (by_name(kept, other) != 0) {
            if (++n != i) {
                list->items[n] = *other;
                *other = (struct mr_named){0};
            }
            continue;
        }
        rc = mr_series_append(&kept->series, &other->series);
        mr_series_free(&other->series);
        free(other->name);
        other->name = NULL;
    }
    if (rc == 0)
        list->n = n + 1;
    return rc;
}

void mr_named_free(struct mr_named_list *list)
{
    for (uint64_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
        mr_series_free(&list->items[i].series);
    }
    free(list->items);
    *list = (struct mr_named_list){0};
}

static void put_row(struct mr_table *table, const struct mr_named_heads *heads,
                    const struct mr_series_stats *s, double all, const struct mr_named *item)
{
    mr_table_row(table);
    if (!heads->sizes)
        mr_table_real(table, all > 0 ? 100 * s->total / all : 0);
    mr_table_real(table, s->total);
    mr_table_int(table, (int64_t)s->n);
    mr_table_real(table, s->average);
    mr_table_real(table, s->median);
    mr_table_int(table, (int64_t)s->min);
    mr_table_int(table, (int64_t)s->max);
    mr_table_real(table, s->deviation);
    if (heads->tag)
        mr_table_text(table, item->tag);
    if (heads->tag2)
        mr_table_text(table, item->tag2);
    mr_table_text(table, item->name);
}

static struct mr_table *create(const char *title, const struct mr_named_heads *heads)
{
    enum mr_unit unit = heads->sizes ? MR_UNIT_BYTES : MR_UNIT_NS;
    const struct mr_column columns[] = {
        {"Time", MR_UNIT_PERCENT, MR_CELL_REAL},
        {heads->sizes ? "Total" : "Total Time", unit, MR_CELL_INT},
        {heads->count, MR_UNIT_COUNT, MR_CELL_INT},
        {"Avg", unit, MR_CELL_REAL},
        {"Med", unit, MR_CELL_REAL},
        {"Min", unit, MR_CELL_INT},
        {"Max", unit, MR_CELL_INT},
        {"StdDev", unit, MR_CELL_REAL},
        {heads->tag, MR_UNIT_NONE, MR_CELL_TEXT},
        {heads->tag2, MR_UNIT_NONE, MR_CELL_TEXT},
        {heads->name, MR_UNIT_NONE, MR_CELL_TEXT},
    };
    struct mr_column used[MR_COUNT(columns)];
    uint32_t n = 0;
    for (uint32_t i = 0; i < MR_COUNT(columns); i++)
        if (columns[i].name && !(i == 0 && heads->sizes))
            used[n++] = columns[i];
    return mr_table_create(title, used, n);
}

struct mr_table *mr_named_table(struct mr_named_list *list, const char *title,
                                const struct mr_named_heads *heads)
{
    struct mr_table *table = create(title, heads);
    struct mr_series_stats *stats = malloc((list->n + 1) * sizeof *stats);
    double all = 0;
    if (!table || !stats) {
        mr_table_destroy(table);
        free(stats);
        mr_error_nomem("a table", list->n * sizeof *stats);
        return NULL;
    }
    for (uint64_t i = 0; i < list->n; i++) {
        mr_series_stats(&list->items[i].series, &stats[i]);
        mr_series_free(&list->items[i].series);
        all += stats[i].total;
    }
    for (uint64_t i = 0; i < list->n; i++)
        put_row(table, heads, &stats[i], all, &list->items[i]);
    free(stats);
    return table;
}
