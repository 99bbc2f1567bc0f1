/* Windows of time and NVTX ranges that a report is limited to. */
#include "report/report.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

static int by_start(const void *a, const void *b)
{
    const struct mr_span *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void unite(struct mr_filter *f)
{
    uint64_t n = 0;
    if (f->n_spans == 0)
        return;
    qsort(f->spans, f->n_spans, sizeof *f->spans, by_start);
    for (uint64_t i = 1; i < f->n_spans; i++) {
        if (f->spans[i].start <= f->spans[n].end)
            f->spans[n].end = MR_MAX(f->spans[n].end, f->spans[i].end);
        else
            f->spans[++n] = f->spans[i];
    }
    f->n_spans = n + 1;
}

static int add_span(struct mr_filter *f, uint64_t *capacity, struct mr_span span)
{
    if (mr_grow("ranges", &f->spans, capacity, f->n_spans + 1, sizeof *f->spans) < 0)
        return -ENOMEM;
    f->spans[f->n_spans++] = span;
    return 0;
}

/* Ranges by the text alone; of a domain by the rows that name it, whose number is a process's
 * own. */
static const char *const domain_sql = " AND EXISTS (SELECT 1 FROM NVTX_EVENTS d LEFT JOIN "
                                      "StringIds t ON t.id = d.textId WHERE d.eventType = ?3"
                                      " AND d.domainId = n.domainId AND d.globalTid >> 24 = "
                                      "n.globalTid >> 24 AND coalesce(d.text, t.value) = ?2)";

static int read_spans(struct mr_filter *f, struct mr_recording *recording, const char *domain,
                      const char *text)
{
    struct sqlite3_stmt *stmt = NULL;
    uint64_t capacity = 0;
    int rc = mr_sql_prepare(
        recording, &stmt,
        "SELECT n.start, n.end FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
        " WHERE n.eventType IN (%d, %d, %d, %d) AND coalesce(n.text, s.value) = ?1%s",
        MR_RANGE_PUSH_POP, MR_RANGE_START_END, MR_RANGE_PUSH_POP_EXTENDED,
        MR_RANGE_START_END_EXTENDED, domain ? domain_sql : "");
    if (rc == 0) {
        sqlite3_bind_text(stmt, 1, text, -1, SQLITE_TRANSIENT);
        if (domain) {
            sqlite3_bind_text(stmt, 2, domain, -1, SQLITE_TRANSIENT);
            sqlite3_bind_int(stmt, 3, MR_RANGE_DOMAIN);
        }
    }
    while (rc == 0 && (rc = mr_sql_step(recording, stmt)) == 1) {
        uint64_t start = (uint64_t)sqlite3_column_int64(stmt, 0);
        bool open = sqlite3_column_type(stmt, 1) == SQLITE_NULL;
        uint64_t end = open ? UINT64_MAX : (uint64_t)sqlite3_column_int64(stmt, 1);
        rc = end > start ? add_span(f, &capacity, (struct mr_span){start, end}) : 0;
    }
    sqlite3_finalize(stmt);
    return rc;
}

/* "DOMAIN@NAME" with the first '@', else "NAME@DOMAIN" with the last, as profile's --capture-range
 * has it. */
static int read_spans_of_domain(struct mr_filter *f, struct mr_recording *recording,
                                const char *range, const char *at, bool domain_first)
{
    const char *behind = at + 1;
    char *before = strndup(range, (size_t)(at - range));
    if (!before)
        return mr_error_nomem("a range", 0);
    const char *domain = domain_first ? before : behind, *name = domain_first ? behind : before;
    int rc = read_spans(f, recording, *domain ? domain : NULL, name);
    free(before);
    return rc;
}

static int find_ranges(struct mr_filter *f, struct mr_recording *recording, const char *range)
{
    if (!mr_recording_has(recording, "NVTX_EVENTS", "textId") ||
        !mr_recording_has(recording, "StringIds", "value"))
        return mr_error_set(MR_EOPTION,
                            "range \"%s\": %s has no NVTX ranges; --trace nvtx records them", range,
                            recording->path);
    const char *at = strchr(range, '@');
    int rc = read_spans(f, recording, NULL, range);
    if (rc == 0 && f->n_spans == 0 && at)
        rc = read_spans_of_domain(f, recording, range, at, true);
    if (rc == 0 && f->n_spans == 0 && at)
        rc = read_spans_of_domain(f, recording, range, strrchr(range, '@'), false);
    if (rc == 0 && f->n_spans == 0)
        rc = mr_error_set(
            MR_EOPTION,
            "range \"%s\": %s has no NVTX range of this name; the report nvtx_sum lists them",
            range, recording->path);
    return rc;
}

int mr_filter_open(struct mr_filter *f, struct mr_recording *recording,
                   const struct mr_report_opts *opts)
{
    *f = (struct mr_filter){.from = opts->from_ns, .to = opts->to_ns ? opts->to_ns : UINT64_MAX};
    if (opts->to_ns && opts->to_ns <= opts->from_ns)
        return mr_error_set(MR_EOPTION,
                            "a window from %.9g to %.9g s is empty: it ends before it begins",
                            (double)opts->from_ns * 1e-9, (double)opts->to_ns * 1e-9);
    f->by_range = opts->range != NULL;
    int rc = f->by_range ? find_ranges(f, recording, opts->range) : 0;
    if (rc)
        mr_filter_close(f);
    else
        unite(f);
    return rc;
}

bool mr_filter_takes(const struct mr_filter *f, uint64_t start)
{
    if (start < f->from || start >= f->to)
        return false;
    if (!f->by_range)
        return true;
    uint64_t low = 0, high = f->n_spans; /* the first span that begins after start */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (f->spans[middle].start <= start)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && start < f->spans[low - 1].end;
}

void mr_filter_close(struct mr_filter *f)
{
    free(f->spans);
    *f = (struct mr_filter){0};
}

void mr_left_out_add(struct mr_left_out *to, const struct mr_left_out *more)
{
    to->n_lost += more->n_lost;
    to->n_backward += more->n_backward;
}

bool mr_report_takes(const struct mr_filter *filter, struct mr_left_out *left, int64_t start,
                     int64_t end)
{
    if (start == 0 && end == 0) {
        left->n_lost++;
        return false;
    }
    if (start < 0 || !mr_filter_takes(filter, (uint64_t)start))
        return false;
    if (end < start) {
        left->n_backward++;
        return false;
    }
    return true;
}
