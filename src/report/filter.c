/* Windows of time and NVTX ranges that a report is limited to: events by when they begin, the
 * device's work by the call that launched it. */
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
    if (rc == 0 && f->n_spans > 0) {
        f->text = strdup(text);
        f->domain = domain ? strdup(domain) : NULL;
        rc = f->text && (f->domain || !domain) ? 0 : mr_error_nomem("a range", 0);
    }
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

/* ---- by launch ---- */

struct choice {
    struct mr_filter *filter;
    const struct mr_recording *rec;
};

bool mr_filter_names(const struct mr_filter *f, const struct mr_recording *rec,
                     const struct mr_rec_range *range)
{
    return strcmp(rec->strings[range->text], f->text) == 0 &&
           (!f->domain || strcmp(rec->strings[range->domain], f->domain) == 0);
}

static bool is_chosen(const void *user, const struct mr_rec_range *range)
{
    const struct choice *c = user;
    return mr_filter_names(c->filter, c->rec, range);
}

static int add_op(struct mr_row_set *sets, const struct mr_rec_op *op)
{
    struct mr_row_set *set = &sets[op->kind];
    if (op->detail == MR_NONE) /* a whole graph: in no table of these */
        return 0;
    if (mr_grow("operations", &set->rows, &set->capacity, set->n + 1, sizeof *set->rows) < 0)
        return -ENOMEM;
    set->rows[set->n++] = op->detail;
    return 0;
}

static int add_launched(void *user, uint32_t op, uint32_t range)
{
    struct choice *c = user;
    (void)range;
    return add_op(c->filter->launched, &c->rec->ops[op]);
}

static int by_row(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool has_row(const struct mr_row_set *set, int64_t row)
{
    uint32_t key = (uint32_t)row;
    return row >= 0 && row < UINT32_MAX && set->n > 0 &&
           bsearch(&key, set->rows, set->n, sizeof key, by_row);
}

static int find_launched(struct mr_filter *f, struct mr_recording *recording)
{
    uint64_t n_helped;
    int rc = mr_recording_load(recording);
    if (rc)
        return rc;
    struct choice choice = {f, recording};
    const struct mr_launched launched = {is_chosen, add_launched, &choice};
    rc = mr_launched_walk(recording, &launched, &n_helped);
    for (uint64_t i = 0; i < recording->n_ops && rc == 0; i++)
        if (recording->ops[i].api == MR_NONE)
            rc = add_op(f->alone, &recording->ops[i]);
    for (int k = 0; k < 3 && rc == 0; k++) {
        if (f->launched[k].n)
            qsort(f->launched[k].rows, f->launched[k].n, sizeof(uint32_t), by_row);
        if (f->alone[k].n)
            qsort(f->alone[k].rows, f->alone[k].n, sizeof(uint32_t), by_row);
    }
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
    f->by_launch = f->by_range && !opts->by_time;
    int rc = f->by_range ? find_ranges(f, recording, opts->range) : 0;
    if (rc == 0 && f->by_launch)
        rc = find_launched(f, recording);
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

bool mr_filter_takes_op(const struct mr_filter *f, enum mr_op_kind kind, int64_t row,
                        uint64_t start)
{
    if (!f->by_launch)
        return mr_filter_takes(f, start);
    return start >= f->from && start < f->to && has_row(&f->launched[kind], row);
}

void mr_filter_close(struct mr_filter *f)
{
    for (int k = 0; k < 3; k++) {
        free(f->launched[k].rows);
        free(f->alone[k].rows);
    }
    free(f->domain);
    free(f->text);
    free(f->spans);
    *f = (struct mr_filter){0};
}

int mr_report_op_kind(const char *table)
{
    static const char *const tables[] = {
        [MR_OP_KERNEL] = MR_TABLE_KERNEL, [MR_OP_COPY] = MR_TABLE_COPY, [MR_OP_SET] = MR_TABLE_SET};
    for (int kind = 0; kind < (int)MR_COUNT(tables); kind++)
        if (strcmp(table, tables[kind]) == 0)
            return kind;
    return MR_NO_OP;
}

void mr_left_out_add(struct mr_left_out *to, const struct mr_left_out *more)
{
    to->n_lost += more->n_lost;
    to->n_backward += more->n_backward;
    to->n_alone += more->n_alone;
    to->n_unsized += more->n_unsized;
}

bool mr_report_takes(const struct mr_filter *filter, struct mr_left_out *left, int kind,
                     int64_t row, int64_t start, int64_t end)
{
    if (start == 0 && end == 0) {
        left->n_lost++;
        return false;
    }
    if (start < 0)
        return false;
    if (kind == MR_NO_OP
            ? !mr_filter_takes(filter, (uint64_t)start)
            : !mr_filter_takes_op(filter, (enum mr_op_kind)kind, row, (uint64_t)start)) {
        left->n_alone += kind != MR_NO_OP && filter->by_launch && (uint64_t)start >= filter->from &&
                         (uint64_t)start < filter->to && has_row(&filter->alone[kind], row);
        return false;
    }
    if (end < start) {
        left->n_backward++;
        return false;
    }
    return true;
}
