/* The reports critical_path and critical_path_steps: what decided when the steps ended. */
#include "recording/path.h"
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

#define NAMES 5 /* of each class: the longest together */

static const struct mr_column columns[] = {
    {"PID", MR_UNIT_NONE, MR_CELL_INT},        {"Device", MR_UNIT_NONE, MR_CELL_INT},
    {"Class", MR_UNIT_NONE, MR_CELL_TEXT},     {"Name", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Mean a Step", MR_UNIT_NS, MR_CELL_REAL}, {"Of Step", MR_UNIT_PERCENT, MR_CELL_REAL},
    {"Total", MR_UNIT_NS, MR_CELL_INT},        {"Longest", MR_UNIT_NS, MR_CELL_INT},
    {"Count", MR_UNIT_COUNT, MR_CELL_INT}};

/* Pieces of one class and name. */
struct part {
    uint64_t ns, longest_ns, n;
    char *name;
    uint8_t class;
};

struct parts {
    struct part *at;
    uint64_t n, capacity;
};

static void free_parts(struct parts *parts)
{
    for (uint64_t i = 0; i < parts->n; i++)
        free(parts->at[i].name);
    free(parts->at);
    *parts = (struct parts){0};
}

/* What is alike comes together: by what a piece is called. */
static int by_name(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->class != y->class ? (x->class > y->class) - (x->class < y->class)
                                : strcmp(x->name, y->name);
}

static int by_time(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns) : by_name(a, b);
}

static struct part *part_of(struct parts *parts, struct mr_keymap *map, uint64_t key, uint8_t class)
{
    uint32_t at = mr_keymap_put(map, (struct mr_key){key, class});
    if (at == MR_NONE)
        return NULL;
    if (at >= parts->n) {
        if (mr_grow("a path's parts", &parts->at, &parts->capacity, at + 1ull, sizeof *parts->at) <
            0)
            return NULL;
        parts->at[parts->n++] = (struct part){.class = class};
    }
    return &parts->at[at];
}

/* Of one name to the same part: a kernel's and a call's are texts, a copy's its direction. */
static uint64_t key_of(const struct mr_recording *rec, const struct mr_path_piece *p)
{
    const struct mr_rec_op *op = p->op < rec->n_ops ? &rec->ops[p->op] : NULL;
    if (!op)
        return p->name;
    if (p->class == MR_IDLE_LAUNCH)
        return 1ull << 40;
    return op->kind == MR_OP_KERNEL ? 2ull << 40 | op->name
                                    : 3ull << 40 | (uint64_t)op->kind << 8 | op->copy_kind;
}

static int add_piece(const struct mr_recording *rec, const struct mr_path_piece *p, uint64_t ns,
                     struct parts *parts, struct mr_keymap *map)
{
    char name[256];
    struct part *part = part_of(parts, map, key_of(rec, p), p->class);
    if (!part)
        return mr_error_nomem("a path's parts", parts->n * sizeof *part);
    part->ns += ns;
    part->n++;
    part->longest_ns = MR_MAX(part->longest_ns, ns);
    if (!part->name)
        part->name = strdup(mr_path_name(rec, p, name, sizeof name));
    return part->name ? 0 : mr_error_nomem("a name", sizeof name);
}

static int add_step(const struct mr_look *look, const struct mr_path *path,
                    const struct mr_interval *step, struct parts *parts, struct mr_keymap *map)
{
    int rc = 0;
    for (uint64_t i = mr_path_at(path, step->start_ns);
         !rc && i < path->n && path->at[i].start_ns < step->end_ns; i++) {
        const struct mr_path_piece *p = &path->at[i];
        rc = add_piece(look->rec, p,
                       MR_MIN(p->end_ns, step->end_ns) - MR_MAX(p->start_ns, step->start_ns), parts,
                       map);
    }
    return rc;
}

static void unite(struct parts *parts)
{
    uint64_t kept = 0;
    if (parts->n > 1)
        qsort(parts->at, parts->n, sizeof *parts->at, by_name);
    for (uint64_t i = 0; i < parts->n; i++) {
        struct part *last = kept > 0 ? &parts->at[kept - 1] : NULL, *p = &parts->at[i];
        if (!last || by_name(last, p) != 0) {
            parts->at[kept++] = *p;
            continue;
        }
        last->ns += p->ns;
        last->n += p->n;
        last->longest_ns = MR_MAX(last->longest_ns, p->longest_ns);
        free(p->name);
    }
    parts->n = kept;
    if (kept > 1)
        qsort(parts->at, kept, sizeof *parts->at, by_time);
}

/* ---- rows ---- */

struct report {
    const struct mr_filter *filter;
    const char *loader;
    struct mr_table *table;
    bool has_note;    /* the first place's */
    uint32_t n_loads; /* places whose process has the loader's range */
    struct mr_error_kept unknown;
};

static void place_cells(struct mr_table *table, const struct mr_look *look)
{
    const struct mr_recording *rec = look->rec;
    uint16_t p = look->place.process;
    mr_table_row(table);
    mr_table_int(table, p < rec->n_processes ? rec->processes[p].pid : 0);
    mr_table_int(table, mr_place_device_id(rec, &look->place));
}

static void put_row(struct mr_table *table, const struct mr_look *look, const struct part *part,
                    uint64_t n_steps, uint64_t wall_ns)
{
    place_cells(table, look);
    mr_table_text(table, mr_path_text(part->class));
    mr_table_text(table, part->name);
    mr_table_real(table, (double)part->ns / (double)n_steps);
    mr_table_real(table, wall_ns ? 100 * (double)part->ns / (double)wall_ns : 0);
    mr_table_int(table, (int64_t)part->ns);
    mr_table_int(table, (int64_t)part->longest_ns);
    mr_table_int(table, (int64_t)part->n);
}

static int by_sum(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns) : x->class - y->class;
}

/* Each class, that with the most time first, and below it its longest names. */
static void put_rows(struct mr_table *table, const struct mr_look *look, const struct parts *parts,
                     uint64_t n_steps)
{
    char all[] = "all";
    struct part sums[MR_N_PATH] = {{0}};
    uint64_t wall_ns = 0;
    for (int c = 0; c < MR_N_PATH; c++)
        sums[c] = (struct part){.name = all, .class = (uint8_t)c};
    for (uint64_t i = 0; i < parts->n; i++) {
        struct part *sum = &sums[parts->at[i].class];
        sum->ns += parts->at[i].ns;
        sum->n += parts->at[i].n;
        sum->longest_ns = MR_MAX(sum->longest_ns, parts->at[i].longest_ns);
        wall_ns += parts->at[i].ns;
    }
    qsort(sums, MR_N_PATH, sizeof *sums, by_sum);
    for (int c = 0; c < MR_N_PATH && sums[c].ns > 0; c++) {
        put_row(table, look, &sums[c], n_steps, wall_ns);
        for (uint64_t i = 0, k = 0; i < parts->n && k < NAMES; i++)
            if (parts->at[i].class == sums[c].class && ++k)
                put_row(table, look, &parts->at[i], n_steps, wall_ns);
    }
}

static void add_note(struct report *report, const struct mr_look *look, const struct mr_path *path)
{
    uint64_t ns[MR_N_PATH] = {0}, wall = look->wall_ns ? look->wall_ns : 1;
    for (uint64_t i = 0; i < look->in.n; i++)
        mr_path_add_up(path, look->in.at[i].start_ns, look->in.at[i].end_ns, ns);
    if (report->has_note)
        return;
    report->has_note = true;
    mr_table_set_note(report->table,
                      "%" PRIu64 " steps%s, %s. The device is busy %.0f%% of the time; its work on "
                      "the path is %.0f%%",
                      look->n_steps, look->n_warm ? " after warming up" : "", look->steps.how,
                      100 * (double)mr_intervals_measure(&look->busy) / (double)wall,
                      100 * (double)(ns[MR_PATH_COMPUTE] + ns[MR_PATH_COPY]) / (double)wall);
    if (mr_path_behind_ns(look) > look->wall_ns / 10)
        mr_table_add_note(report->table, "the device falls behind its launches: the steps are as "
                                         "long as the host takes");
    if (!look->has_calls)
        mr_table_add_note(report->table, "no calls of this process were recorded: only the order "
                                         "of the device's work is known");
}

static int sum_rows(struct report *report, const struct mr_look *look, const struct mr_path *path)
{
    struct parts parts = {0};
    struct mr_keymap map = {0};
    uint64_t n = 0;
    int rc = 0;
    for (uint64_t i = look->n_warm; !rc && i < look->steps.n; i++)
        if (mr_filter_takes(report->filter, look->steps.at[i].start_ns) && ++n)
            rc = add_step(look, path, &look->steps.at[i], &parts, &map);
    for (uint64_t i = 0; !rc && look->steps.n == 0 && i < look->in.n; i++, n++)
        rc = add_step(look, path, &look->in.at[i], &parts, &map);
    if (!rc) {
        unite(&parts);
        put_rows(report->table, look, &parts, n ? n : 1);
    }
    free_parts(&parts);
    mr_keymap_free(&map);
    return rc;
}

static int step_rows(struct report *report, const struct mr_look *look, const struct mr_path *path)
{
    for (uint64_t i = look->n_warm; i < look->steps.n; i++) {
        const struct mr_interval *step = &look->steps.at[i];
        uint64_t ns[MR_N_PATH] = {0};
        if (!mr_filter_takes(report->filter, step->start_ns))
            continue;
        mr_path_add_up(path, step->start_ns, step->end_ns, ns);
        place_cells(report->table, look);
        mr_table_int(report->table, (int64_t)i);
        mr_table_int(report->table, (int64_t)step->start_ns);
        mr_table_int(report->table, (int64_t)(step->end_ns - step->start_ns));
        for (int c = 0; c < MR_N_PATH; c++)
            mr_table_int(report->table, (int64_t)ns[(c + MR_N_IDLE) % MR_N_PATH]);
    }
    return 0;
}

/* ---- the reports ---- */

static int find_waits(struct report *report, const struct mr_look *look, struct mr_data_waits *data)
{
    int rc = mr_data_waits_find(look, report->loader, data);
    if (rc == MR_EOPTION && report->loader) { /* one that has the range is enough */
        if (!report->unknown.code)
            mr_error_keep(rc, &report->unknown);
        return mr_data_waits_find(look, NULL, data);
    }
    report->n_loads += !rc;
    return rc;
}

static int add_place(const struct mr_look *look, struct report *report,
                     int (*rows)(struct report *, const struct mr_look *, const struct mr_path *))
{
    struct mr_data_waits data = {0};
    struct mr_path path = {0};
    int rc = find_waits(report, look, &data);
    rc = rc ? rc : mr_path_find(look, &data, &path);
    rc = rc ? rc : rows(report, look, &path);
    if (!rc)
        add_note(report, look, &path);
    mr_data_waits_free(&data);
    mr_path_free(&path);
    return rc;
}

static int add_sums(const struct mr_look *look, void *user)
{
    return add_place(look, user, sum_rows);
}

static int add_steps(const struct mr_look *look, void *user)
{
    return add_place(look, user, step_rows);
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table *table, int (*add)(const struct mr_look *, void *),
                struct mr_table **out)
{
    struct mr_place *places = NULL;
    struct mr_filter filter;
    uint32_t n_places = 0;
    if (!table)
        return mr_error_nomem("a report", sizeof columns);
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc) {
        mr_table_destroy(table);
        return rc;
    }
    struct report report = {.filter = &filter, .loader = opts->loader, .table = table};
    rc = mr_recording_load(recording);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    rc = rc ? rc : mr_report_looks(recording, places, n_places, opts->step, false, add, &report);
    if (!rc && report.n_loads == 0 && report.unknown.code)
        rc = mr_error_put(&report.unknown);
    if (!rc && n_places == 0)
        mr_table_set_note(table, "This recording has no device work: there is no path.");
    free(places);
    mr_filter_close(&filter);
    if (!rc)
        return mr_report_finish(table, opts, NULL, out);
    mr_table_destroy(table);
    return rc;
}

static int make_sums(struct mr_recording *recording, const struct mr_report_opts *opts,
                     struct mr_table **out)
{
    struct mr_table *table =
        mr_table_create("Critical path (critical_path)", columns, MR_COUNT(columns));
    return make(recording, opts, table, add_sums, out);
}

static int make_steps(struct mr_recording *recording, const struct mr_report_opts *opts,
                      struct mr_table **out)
{
    struct mr_column heads[5 + MR_N_PATH] = {{"PID", MR_UNIT_NONE, MR_CELL_INT},
                                             {"Device", MR_UNIT_NONE, MR_CELL_INT},
                                             {"Step", MR_UNIT_NONE, MR_CELL_INT},
                                             {"Start", MR_UNIT_NS, MR_CELL_INT},
                                             {"Duration", MR_UNIT_NS, MR_CELL_INT}};
    for (int c = 0; c < MR_N_PATH; c++)
        heads[5 + c] =
            (struct mr_column){mr_path_text((c + MR_N_IDLE) % MR_N_PATH), MR_UNIT_NS, MR_CELL_INT};
    struct mr_table *table =
        mr_table_create("Critical path by step (critical_path_steps)", heads, MR_COUNT(heads));
    return make(recording, opts, table, add_steps, out);
}

const struct mr_report_kind mr_report_path_kinds[2] = {
    {"critical_path", "What decides when a step ends: work and waits on the critical path",
     make_sums, 0},
    {"critical_path_steps", "The critical path of each step by class", make_steps, 0},
};
