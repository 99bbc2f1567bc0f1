/*
 * nvtx_sum, nvtx_pushpop_sum, nvtx_startend_sum: durations of NVTX ranges by domain, text and
 * style. A range's text is a number of StringIds or stands in the row; its domain's name is the
 * text of the row of type 75 with this domain number of the same process.
 */
#include "recording/map.h"
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

enum { START_END, PUSH_POP, BOTH };

struct nvtx_kind {
    const char *title, *what;
    int styles;
};

struct worker {
    const struct mr_filter *filter;
    int styles; /* taken */
    struct mr_groups groups;
    struct mr_left_out left;
    uint64_t n_open;
    struct mr_texts texts;
};

#define INLINE (1ull << 63) /* of key.b: the number is one of the worker's texts */

/* start, end, eventType, textId, text, domainId, globalTid */
static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct worker *w = state;
    int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1);
    int type = sqlite3_column_int(stmt, 2);
    bool push = type == MR_RANGE_PUSH_POP || type == MR_RANGE_PUSH_POP_EXTENDED;
    if (!push && type != MR_RANGE_START_END && type != MR_RANGE_START_END_EXTENDED)
        return 0;
    if (w->styles != BOTH && w->styles != (push ? PUSH_POP : START_END))
        return 0;
    if (sqlite3_column_type(stmt, 1) == SQLITE_NULL) {
        w->n_open += start >= 0 && mr_filter_takes(w->filter, (uint64_t)start);
        return 0;
    }
    if (!mr_report_takes(w->filter, &w->left, MR_NO_OP, 0, start, end))
        return 0;
    const char *text = (const char *)sqlite3_column_text(stmt, 4);
    uint64_t number = (uint64_t)sqlite3_column_int64(stmt, 3) & ~INLINE;
    if (text) {
        uint32_t i;
        int rc = mr_texts_add(&w->texts, text, (size_t)sqlite3_column_bytes(stmt, 4), &i, NULL);
        if (rc)
            return rc;
        number = i | INLINE;
    }
    uint64_t domain = (uint32_t)sqlite3_column_int64(stmt, 5),
             process = (uint64_t)sqlite3_column_int64(stmt, 6) >> 24;
    struct mr_key key = {(process & 0x3fffffff) << 33 | domain << 1 | push, number};
    struct mr_series *series = mr_groups_at(&w->groups, key);
    return series ? mr_series_add(series, (uint64_t)end - (uint64_t)start) : -ENOMEM;
}

/* The name of a domain; "" for the default one. [out] must be freed; NULL: it failed, as the
 * recording knows. */
static char *domain_name(struct mr_recording *recording, struct sqlite3_stmt *find, uint64_t domain,
                         uint64_t process)
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

static int name_ranges(struct mr_named_list *list, struct worker *w, struct mr_names *names,
                       struct sqlite3_stmt *find)
{
    char *domain = NULL;
    uint64_t last = UINT64_MAX;
    int rc = 0;
    for (uint32_t i = 0; i < w->groups.map.n && rc == 0; i++) {
        struct mr_key key = w->groups.map.keys[i];
        if (!domain || last != key.a >> 1) {
            free(domain);
            domain = domain_name(names->recording, find, key.a >> 1 & UINT32_MAX, key.a >> 33);
            last = key.a >> 1;
        }
        const char *text =
            key.b & INLINE ? w->texts.text[key.b & ~INLINE] : mr_names_get(names, (int64_t)key.b);
        char *name = NULL;
        if (domain && asprintf(&name, "%s:%s", domain, text) < 0)
            name = NULL;
        rc = mr_named_add(list, name, key.a & 1 ? "PushPop" : "StartEnd", NULL,
                          &w->groups.series[i]);
    }
    free(domain);
    return rc;
}

static const char sql_of[] =
    "SELECT start, end, eventType, %s, %s, %s, globalTid FROM NVTX_EVENTS WHERE";

static int read_ranges(struct mr_recording *recording, struct worker workers[MR_SCAN_THREADS],
                       struct mr_named_list *list)
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
        rc = mr_sql_prepare(
            recording, &find,
            "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = %s)) FROM NVTX_EVENTS"
            " WHERE eventType = %d AND domainId = ?1 AND (globalTid >> 24) & 0x3fffffff = ?2",
            mr_sql_column(recording, "NVTX_EVENTS", "textId", "NULL"), MR_RANGE_DOMAIN);
    if (rc == 0)
        rc = mr_scan(recording, "NVTX_EVENTS", sql, add_row, states);
    for (uint32_t i = 0; i < MR_SCAN_THREADS && rc == 0; i++)
        rc = name_ranges(list, &workers[i], &names, find);
    sqlite3_finalize(find);
    mr_names_close(&names);
    return rc ? rc : mr_named_unite(list);
}

static void note(struct mr_recording *recording, struct mr_table *table,
                 const struct worker *workers, const char *what, const struct mr_report_opts *opts)
{
    char missing[MR_MISSING_BYTES];
    struct mr_left_out left = {0};
    uint64_t n_open = 0;
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        mr_left_out_add(&left, &workers[i].left);
        n_open += workers[i].n_open;
    }
    mr_report_note(table, &left,
                   mr_report_missing(recording, "NVTX_EVENTS", what, "nvtx", opts, missing));
    if (n_open)
        mr_table_add_note(table, "%llu range%s never ended: left out", (unsigned long long)n_open,
                          n_open == 1 ? "" : "s");
}

static int make(struct mr_recording *recording, const struct nvtx_kind *kind,
                const struct mr_report_opts *opts, struct mr_table **out)
{
    struct mr_filter filter;
    struct worker workers[MR_SCAN_THREADS];
    struct mr_named_list list = {0};
    struct mr_table *table = NULL;
    const struct mr_named_heads heads = {"Instances", kind->styles == BOTH ? "Style" : NULL,
                                         "Range", false, NULL};
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++)
        workers[i] =
            (struct worker){.filter = &filter, .styles = kind->styles, .groups = {.n_series = 1}};
    if (mr_recording_has(recording, "NVTX_EVENTS", "end"))
        rc = read_ranges(recording, workers, &list);
    if (rc == 0 && !(table = mr_named_table(&list, kind->title, &heads)))
        rc = -ENOMEM;
    if (rc == 0) {
        note(recording, table, workers, kind->what, opts);
        rc = mr_report_finish(table, opts, "Total Time", out);
    }
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        mr_texts_free(&workers[i].texts);
        mr_groups_free(&workers[i].groups);
    }
    mr_named_free(&list);
    mr_filter_close(&filter);
    return rc;
}

#define NVTX(function, ...)                                                                        \
    static int function(struct mr_recording *recording, const struct mr_report_opts *opts,         \
                        struct mr_table **out)                                                     \
    {                                                                                              \
        const struct nvtx_kind kind = {__VA_ARGS__};                                               \
        return make(recording, &kind, opts, out);                                                  \
    }

NVTX(make_both, "NVTX ranges (nvtx_sum)", "NVTX ranges", BOTH)
NVTX(make_push_pop, "NVTX push/pop ranges (nvtx_pushpop_sum)", "NVTX push/pop ranges", PUSH_POP)
NVTX(make_start_end, "NVTX start/end ranges (nvtx_startend_sum)", "NVTX start/end ranges",
     START_END)

const struct mr_report_kind mr_report_nvtx_kinds[3] = {
    {"nvtx_sum", "NVTX ranges by domain and text", make_both, MR_REPORT_CALLS},
    {"nvtx_pushpop_sum", "NVTX ranges of threads (push and pop) by domain and text", make_push_pop,
     MR_REPORT_CALLS},
    {"nvtx_startend_sum", "NVTX ranges of processes (start and end) by domain and text",
     make_start_end, MR_REPORT_CALLS},
};
