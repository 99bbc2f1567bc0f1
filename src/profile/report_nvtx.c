/*
 * nvtx_sum: durations of NVTX ranges by domain, text and style. A range's text is a number of StringIds or stands in the row;
 * its domain's name is the text of the row of type 75 with this domain number of the same process.
 */
#include "profile/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

struct worker {
    const struct mr_filter *filter;
    struct mr_groups groups;
    struct mr_left_out left;
    uint64_t n_open;
    struct mr_keymap texts; /* of hashes: (hash, how many alike came before) */
    char **text;
    uint32_t text_capacity;
};

#define INLINE (1ull << 63) /* of key.b: the number is one of the worker's texts */

/* The worker's number of a text. MR_NONE: no memory. */
static uint32_t number_of(struct worker *w, const char *text)
{
    uint64_t hash = mr_hash(MR_HASH_START, text, strlen(text));
    for (uint64_t alike = 0;; alike++) {
        uint32_t before = w->texts.n, i = mr_keymap_put(&w->texts, (struct mr_key){hash, alike});
        if (i == MR_NONE || (i < before && strcmp(w->text[i], text) == 0))
            return i;
        if (i < before)
            continue;
        if (i >= w->text_capacity) {
            uint32_t capacity = w->text_capacity ? 2 * w->text_capacity : 64;
            char **grown = realloc(w->text, capacity * sizeof *grown);
            if (!grown)
                return MR_NONE;
            w->text = grown;
            w->text_capacity = capacity;
        }
        w->text[i] = strdup(text);
        return w->text[i] ? i : MR_NONE;
    }
}

/* start, end, eventType, textId, text, domainId, globalTid */
static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct worker *w = state;
    int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1);
    int type = sqlite3_column_int(stmt, 2);
    bool push = type == MR_RANGE_PUSH_POP || type == MR_RANGE_PUSH_POP_EXTENDED;
    if (!push && type != MR_RANGE_START_END && type != MR_RANGE_START_END_EXTENDED)
        return 0;
    if (sqlite3_column_type(stmt, 1) == SQLITE_NULL) {
        w->n_open += start >= 0 && mr_filter_takes(w->filter, (uint64_t)start);
        return 0;
    }
    if (!mr_report_takes(w->filter, &w->left, start, end))
        return 0;
    const char *text = (const char *)sqlite3_column_text(stmt, 4);
    uint64_t number = (uint64_t)sqlite3_column_int64(stmt, 3) & ~INLINE;
    if (text) {
        uint32_t i = number_of(w, text);
        if (i == MR_NONE)
            return mr_error_nomem("ranges", 0);
        number = i | INLINE;
    }
    uint64_t domain = (uint32_t)sqlite3_column_int64(stmt, 5), process = (uint64_t)sqlite3_column_int64(stmt, 6) >> 24;
    struct mr_key key = {(process & 0x3fffffff) << 33 | domain << 1 | push, number};
    struct mr_series *series = mr_groups_at(&w->groups, key);
    return series ? mr_series_add(series, (uint64_t)end - (uint64_t)start) : -ENOMEM;
}

struct range {
    char *name; /* "domain:text" */
    bool push;
    struct mr_series series;
};

struct list {
    struct range *items;
    uint64_t n, capacity;
};

/* The name of a domain; "" for the default one. [out] must be freed; NULL: it failed, as the recording knows. */
static char *domain_name(struct mr_recording *recording, struct sqlite3_stmt *find, uint64_t domain, uint64_t process)
{
    char *name = NULL;
    if (domain == 0 || !find)
        return strdup("");
    sqlite3_bind_int64(find, 1, (int64_t)domain);
    sqlite3_bind_int64(find, 2, (int64_t)process);
    int rc = mr_sql_text(recording, find, &name);
    if (rc < 0)
        mr_recording_fail(recording, rc);
    else if (!name && asprintf(&name, "domain %llu", (unsigned long long)domain) < 0)
        name = NULL;
    return name;
}

static int name_ranges(struct list *list, struct worker *w, struct mr_names *names, struct sqlite3_stmt *find)
{
    char *domain = NULL;
    uint64_t last = UINT64_MAX, more = list->n + w->groups.map.n;
    struct range *items = realloc(list->items, (more + 1) * sizeof *items);
    int rc = 0;
    if (!items)
        return mr_error_nomem("ranges", more * sizeof *items);
    list->items = items;
    for (uint32_t i = 0; i < w->groups.map.n && rc == 0; i++) {
        struct mr_key key = w->groups.map.keys[i];
        if (!domain || last != key.a >> 1) {
            free(domain);
            domain = domain_name(names->recording, find, key.a >> 1 & UINT32_MAX, key.a >> 33);
            last = key.a >> 1;
        }
        const char *text = key.b & INLINE ? w->text[key.b & ~INLINE] : mr_names_get(names, (int64_t)key.b);
        char *name;
        if (!domain || asprintf(&name, "%s:%s", domain, text) < 0) {
            rc = mr_error_nomem("ranges", 0);
            break;
        }
        items[list->n++] = (struct range){name, key.a & 1, w->groups.series[i]};
        w->groups.series[i] = (struct mr_series){0};
    }
    free(domain);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->push != y->push ? (int)x->push - (int)y->push : strcmp(x->name, y->name);
}

static int unite(struct list *list)
{
    uint64_t n = 0;
    int rc = 0;
    if (list->n == 0)
        return 0;
    qsort(list->items, list->n, sizeof *list->items, by_name);
    for (uint64_t i = 1; i < list->n && rc == 0; i++) {
        struct range *kept = &list->items[n], *other = &list->items[i];
        if (by_name(kept, other) != 0) {
            if (++n != i) {
                list->items[n] = *other;
                *other = (struct range){0};
            }
            continue;
        }
        rc = mr_series_append(&kept->series, &other->series);
        mr_series_free(&other->series);
        free(other->name);
        other->name = NULL;
    }
    list->n = rc ? list->n : n + 1;
    return rc;
}

static const char sql_of[] = "SELECT start, end, eventType, %s, %s, %s, globalTid FROM NVTX_EVENTS WHERE";

static int read_ranges(struct mr_recording *recording, struct worker workers[MR_SCAN_THREADS], struct list *list)
{
    void *states[MR_SCAN_THREADS];
    char sql[256];
    struct mr_names names;
    struct sqlite3_stmt *find = NULL;
    bool domains = mr_recording_has(recording, "NVTX_EVENTS", "domainId");
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++)
        states[i] = &workers[i];
    /* older exports have the text in the row alone */
    snprintf(sql, sizeof sql, sql_of, mr_sql_column(recording, "NVTX_EVENTS", "textId", "0"),
             mr_sql_column(recording, "NVTX_EVENTS", "text", "NULL"),
             mr_sql_column(recording, "NVTX_EVENTS", "domainId", "0"));
    int rc = mr_names_open(&names, recording);
    if (rc == 0 && domains)
        rc = mr_sql_prepare(recording, &find,
                            "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = %s)) FROM NVTX_EVENTS"
                            " WHERE eventType = %d AND domainId = ?1 AND (globalTid >> 24) & 0x3fffffff = ?2",
                            mr_sql_column(recording, "NVTX_EVENTS", "textId", "NULL"), MR_RANGE_DOMAIN);
    if (rc == 0)
        rc = mr_scan(recording, "NVTX_EVENTS", sql, add_row, states);
    for (uint32_t i = 0; i < MR_SCAN_THREADS && rc == 0; i++)
        rc = name_ranges(list, &workers[i], &names, find);
    sqlite3_finalize(find);
    mr_names_close(&names);
    return rc ? rc : unite(list);
}

static struct mr_table *fill(struct list *list)
{
    static const struct mr_column columns[] = {
        {"Time", MR_UNIT_PERCENT, MR_CELL_REAL},   {"Total Time", MR_UNIT_NS, MR_CELL_INT},
        {"Instances", MR_UNIT_COUNT, MR_CELL_INT}, {"Avg", MR_UNIT_NS, MR_CELL_REAL},
        {"Med", MR_UNIT_NS, MR_CELL_REAL},         {"Min", MR_UNIT_NS, MR_CELL_INT},
        {"Max", MR_UNIT_NS, MR_CELL_INT},          {"StdDev", MR_UNIT_NS, MR_CELL_REAL},
        {"Style", MR_UNIT_NONE, MR_CELL_TEXT},     {"Range", MR_UNIT_NONE, MR_CELL_TEXT},
    };
    struct mr_table *table = mr_table_create("NVTX ranges (nvtx_sum)", columns, MR_COUNT(columns));
    double all = 0;
    if (!table)
        return NULL;
    for (uint64_t i = 0; i < list->n; i++)
        for (uint64_t k = 0; k < list->items[i].series.n; k++)
            all += (double)mr_series_at(&list->items[i].series, k);
    for (uint64_t i = 0; i < list->n; i++) {
        struct mr_series_stats s;
        mr_series_stats(&list->items[i].series, &s);
        mr_series_free(&list->items[i].series);
        mr_table_row(table);
        mr_table_real(table, all > 0 ? 100 * s.total / all : 0);
        mr_table_real(table, s.total);
        mr_table_int(table, (int64_t)s.n);
        mr_table_real(table, s.average);
        mr_table_real(table, s.median);
        mr_table_int(table, (int64_t)s.min);
        mr_table_int(table, (int64_t)s.max);
        mr_table_real(table, s.deviation);
        mr_table_text(table, list->items[i].push ? "PushPop" : "StartEnd");
        mr_table_text(table, list->items[i].name);
    }
    return table;
}

static void note(struct mr_recording *recording, struct mr_table *table, const struct worker *workers,
                 const struct mr_report_opts *opts)
{
    char missing[MR_MISSING_BYTES];
    struct mr_left_out left = {0};
    uint64_t n_open = 0;
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        left.n_lost += workers[i].left.n_lost;
        left.n_backward += workers[i].left.n_backward;
        n_open += workers[i].n_open;
    }
    mr_report_note(table, &left, mr_report_missing(recording, "NVTX_EVENTS", "NVTX ranges", "nvtx", opts, missing));
    if (n_open) {
        const char *before = mr_table_note(table);
        char *kept = before ? strdup(before) : NULL;
        mr_table_set_note(table, "%s%s%llu range%s never ended: left out", kept ? kept : "", kept ? "; " : "",
                          (unsigned long long)n_open, n_open == 1 ? "" : "s");
        free(kept);
    }
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts, struct mr_table **out)
{
    struct mr_filter filter;
    struct worker workers[MR_SCAN_THREADS];
    struct list list = {0};
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++)
        workers[i] = (struct worker){.filter = &filter, .groups = {.n_series = 1}};
    if (mr_recording_has(recording, "NVTX_EVENTS", "end"))
        rc = read_ranges(recording, workers, &list);
    struct mr_table *table = rc ? NULL : fill(&list);
    if (table)
        note(recording, table, workers, opts);
    if (rc == 0)
        rc = mr_report_finish(table, opts, "Total Time", out);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        for (uint32_t k = 0; k < MR_MIN(workers[i].texts.n, workers[i].text_capacity); k++)
            free(workers[i].text[k]);
        free(workers[i].text);
        mr_keymap_free(&workers[i].texts);
        mr_groups_free(&workers[i].groups);
    }
    for (uint64_t i = 0; i < list.n; i++) {
        free(list.items[i].name);
        mr_series_free(&list.items[i].series);
    }
    free(list.items);
    mr_filter_close(&filter);
    return rc;
}

const struct mr_report_kind mr_report_nvtx_sum = {"nvtx_sum", "NVTX ranges by domain and text", make};
