/*
 * Two recordings in one picture: the second one's processes and devices follow the first one's, and
 * one clock is moved so that the first steps after warming up begin together.
 *
 * The joined recording exists in memory only. What pictures read of a database (the form of
 * launches, sampled metrics) is not in it.
 */
#include "timeline/timeline.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

enum { BEFORE, AFTER };

struct pair {
    struct mr_recording *rec[2];
    struct mr_tl_story story[2];
    uint64_t shift_ns[2];
    struct mr_recording joined;
    char **labels; /* texts made here; NULL-terminated */
    uint32_t n_labels;
};

/* ---- one array after the other ---- */

/* How far the numbers of the second recording's things move. */
struct moved {
    uint64_t shift_ns;
    uint32_t strings, apis, ops, threads, ranges, made;
    uint16_t processes, devices;
};

static uint32_t string_of(const struct moved *by, uint32_t string)
{
    return string ? string + by->strings : 0;
}

static uint32_t index_of(uint32_t index, uint32_t by)
{
    return index == MR_NONE ? MR_NONE : index + by;
}

static void move_ops(struct mr_rec_op *op, uint64_t n, const struct moved *by)
{
    for (uint64_t i = 0; i < n; i++) {
        op[i].start_ns += by->shift_ns;
        op[i].end_ns += by->shift_ns;
        op[i].name = string_of(by, op[i].name);
        op[i].detail = MR_NONE;
        op[i].api = index_of(op[i].api, by->apis);
        op[i].process = (uint16_t)(op[i].process + by->processes);
        op[i].device = (uint16_t)(op[i].device + by->devices);
    }
}

static void move_apis(struct mr_rec_api *api, uint64_t n, const struct moved *by)
{
    for (uint64_t i = 0; i < n; i++) {
        api[i].start_ns += by->shift_ns;
        api[i].end_ns += by->shift_ns;
        api[i].name = string_of(by, api[i].name);
        api[i].thread += by->threads;
        api[i].process = (uint16_t)(api[i].process + by->processes);
        api[i].first_op += by->made;
    }
}

static void move_ranges(struct mr_rec_range *range, uint64_t n, const struct moved *by)
{
    for (uint64_t i = 0; i < n; i++) {
        range[i].start_ns += by->shift_ns;
        range[i].end_ns += by->shift_ns;
        range[i].text = string_of(by, range[i].text);
        range[i].domain = string_of(by, range[i].domain);
        range[i].thread += by->threads;
        range[i].parent = index_of(range[i].parent, by->ranges);
    }
}

static void move_os(struct mr_rec_os *os, uint64_t n, const struct moved *by)
{
    for (uint64_t i = 0; i < n; i++) {
        os[i].start_ns += by->shift_ns;
        os[i].end_ns += by->shift_ns;
        os[i].name = string_of(by, os[i].name);
        os[i].thread += by->threads;
    }
}

static void move_threads(struct mr_rec_thread *thread, uint64_t n, const struct moved *by)
{
    for (uint64_t i = 0; i < n; i++) {
        thread[i].process = (uint16_t)(thread[i].process + by->processes);
        thread[i].name = string_of(by, thread[i].name);
    }
}

/* How many entries of op_of_api are in use. */
static uint64_t made_by_calls(const struct mr_recording *rec)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < rec->n_apis; i++)
        n = MR_MAX(n, (uint64_t)rec->apis[i].first_op + rec->apis[i].n_ops);
    return n;
}

/* Both arrays, and room for `more`. NULL: no memory. */
static void *append(const void *a, uint64_t n_a, const void *b, uint64_t n_b, uint64_t more,
                    size_t bytes)
{
    char *both = malloc((n_a + n_b + more + 1) * bytes);
    if (both && n_a > 0)
        memcpy(both, a, n_a * bytes);
    if (both && n_b > 0)
        memcpy(both + n_a * bytes, b, n_b * bytes);
    return both;
}

#define APPEND(field, count)                                                                       \
    (out->field = append(a->field, a->count, b->field, b->count, 0, sizeof *out->field),           \
     out->count = a->count + b->count)

static void move_side(struct mr_recording *out, int side, const struct mr_recording *rec,
                      const struct moved *by)
{
    bool second = side == AFTER;
    move_ops(out->ops + by->ops, rec->n_ops, by);
    move_apis(out->apis + by->apis, rec->n_apis, by);
    move_ranges(out->ranges + by->ranges, rec->n_ranges, by);
    move_os(out->os + (second ? out->n_os - rec->n_os : 0), rec->n_os, by);
    move_threads(out->threads + by->threads, rec->n_threads, by);
    uint64_t n_made = second ? made_by_calls(rec) : 0;
    for (uint64_t i = 0; i < n_made; i++)
        out->op_of_api[by->made + i] += by->ops;
}

static int check_room(const struct mr_recording *a, const struct mr_recording *b)
{
    uint64_t most = MR_NONE - 1u;
    if (a->n_ops + b->n_ops < most && a->n_apis + b->n_apis < most &&
        a->n_ranges + b->n_ranges < most && a->n_os + b->n_os < most &&
        (uint64_t)a->n_strings + b->n_strings < most / 2 &&
        (uint64_t)a->n_threads + b->n_threads < most &&
        a->n_processes + b->n_processes < UINT16_MAX && a->n_devices + b->n_devices < UINT16_MAX)
        return 0;
    return mr_error_set(MR_ELIMIT, "%s and %s have too many events or names for one picture",
                        a->path, b->path);
}

static int join_arrays(struct pair *pair)
{
    const struct mr_recording *a = pair->rec[BEFORE], *b = pair->rec[AFTER];
    struct mr_recording *out = &pair->joined;
    uint64_t n_made = made_by_calls(a);
    int rc = check_room(a, b);
    if (rc < 0)
        return rc;
    APPEND(ops, n_ops);
    APPEND(apis, n_apis);
    APPEND(ranges, n_ranges);
    APPEND(os, n_os);
    APPEND(threads, n_threads);
    APPEND(processes, n_processes);
    APPEND(devices, n_devices);
    out->op_of_api =
        append(a->op_of_api, n_made, b->op_of_api, made_by_calls(b), 0, sizeof *out->op_of_api);
    out->strings = append(a->strings, a->n_strings, b->strings, b->n_strings,
                          out->n_processes + out->n_devices, sizeof *out->strings);
    out->n_strings = a->n_strings + b->n_strings;
    if (!out->ops || !out->apis || !out->ranges || !out->os || !out->threads || !out->processes ||
        !out->devices || !out->op_of_api || !out->strings)
        return mr_error_nomem("timeline: two recordings", out->n_ops * sizeof *out->ops);
    move_side(out, BEFORE, a, &(struct moved){.shift_ns = pair->shift_ns[BEFORE]});
    move_side(out, AFTER, b,
              &(struct moved){.shift_ns = pair->shift_ns[AFTER],
                              .strings = a->n_strings,
                              .apis = (uint32_t)a->n_apis,
                              .ops = (uint32_t)a->n_ops,
                              .threads = a->n_threads,
                              .ranges = (uint32_t)a->n_ranges,
                              .made = (uint32_t)n_made,
                              .processes = (uint16_t)a->n_processes,
                              .devices = (uint16_t)a->n_devices});
    return 0;
}

/* ---- who is who ---- */

/* "A: python3": adds it to the joined texts. */
static int label(struct pair *pair, int side, uint32_t name, uint32_t *out_name)
{
    const struct mr_recording *rec = pair->rec[side];
    struct mr_recording *out = &pair->joined;
    const char *text = name < rec->n_strings ? rec->strings[name] : "", *slash = strrchr(text, '/');
    char *made;
    text = slash ? slash + 1 : text;
    if (asprintf(&made, "%c%s%s", 'A' + side, *text ? ": " : "", text) < 0)
        return mr_error_nomem("timeline: two recordings", strlen(text));
    pair->labels[pair->n_labels++] = made;
    *out_name = out->n_strings;
    out->strings[out->n_strings++] = made;
    return 0;
}

/* Added to the second one's processes and threads where both have the same: Perfetto takes those of
 * one number as one. */
#define OTHER_NUMBERS 10000000u

static void part_numbers(struct pair *pair)
{
    const struct mr_recording *a = pair->rec[BEFORE];
    struct mr_recording *out = &pair->joined;
    bool same = false;
    for (uint32_t i = 0; i < a->n_processes && !same; i++)
        for (uint32_t k = a->n_processes; k < out->n_processes && !same; k++)
            same = out->processes[i].pid == out->processes[k].pid;
    for (uint32_t k = a->n_processes; k < out->n_processes && same; k++)
        out->processes[k].pid += OTHER_NUMBERS;
    for (uint32_t k = a->n_threads; k < out->n_threads && same; k++)
        out->threads[k].tid += OTHER_NUMBERS;
}

static int label_all(struct pair *pair)
{
    struct mr_recording *out = &pair->joined;
    uint32_t first = pair->rec[BEFORE]->n_processes, n_devices = pair->rec[BEFORE]->n_devices;
    pair->labels = calloc(out->n_processes + out->n_devices + 1, sizeof(char *));
    if (!pair->labels)
        return mr_error_nomem("timeline: two recordings", out->n_processes);
    for (uint32_t i = 0; i < out->n_processes; i++) {
        struct mr_rec_process *p = &out->processes[i];
        int rc = label(pair, i >= first, p->name, &p->name);
        if (rc < 0)
            return rc;
        p->command = 0;
        p->start_ns += pair->shift_ns[i >= first];
        p->end_ns += p->end_ns ? pair->shift_ns[i >= first] : 0;
    }
    for (uint32_t i = 0; i < out->n_devices; i++) {
        int rc = label(pair, i >= n_devices, out->devices[i].name, &out->devices[i].name);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int join(struct pair *pair)
{
    const struct mr_recording *a = pair->rec[BEFORE], *b = pair->rec[AFTER];
    struct mr_recording *out = &pair->joined;
    *out = (struct mr_recording){
        .path = b->path,
        .unnamed = true,
        .loaded = true,
        .end_ns = MR_MAX(a->end_ns + pair->shift_ns[BEFORE], b->end_ns + pair->shift_ns[AFTER]),
        .n_lost_times = a->n_lost_times + b->n_lost_times,
        .n_no_length = a->n_no_length + b->n_no_length,
        .n_dropped = a->n_dropped + b->n_dropped,
        .n_unbalanced = a->n_unbalanced + b->n_unbalanced};
    int rc = join_arrays(pair);
    if (rc < 0)
        return rc;
    part_numbers(pair);
    rc = label_all(pair);
    if (rc < 0)
        return rc;
    if (sqlite3_open(":memory:", &out->db) != SQLITE_OK)
        return mr_recording_error(out->db, out->path, "an empty database");
    return 0;
}

/* ---- one clock, one story ---- */

/* When the first step after warming up begins; without steps the first device work, range or call.
 */
static uint64_t begin_of(const struct mr_recording *rec, const struct mr_tl_story *story)
{
    uint64_t first = UINT64_MAX;
    if (story->steps.n > 0)
        return story->steps.at[mr_steps_warm(&story->steps)].start_ns;
    for (uint64_t i = 0; i < rec->n_ops; i++)
        first = MR_MIN(first, rec->ops[i].start_ns);
    if (rec->n_ops == 0 && rec->n_ranges > 0)
        first = rec->ranges[0].start_ns;
    return first == UINT64_MAX ? 0 : first;
}

static int make_clock(struct pair *pair)
{
    uint64_t begin[2];
    for (int i = 0; i < 2; i++) {
        int rc = mr_timeline_story(pair->rec[i], &pair->story[i]);
        if (rc < 0)
            return rc;
        begin[i] = begin_of(pair->rec[i], &pair->story[i]);
    }
    for (int i = 0; i < 2; i++)
        pair->shift_ns[i] = MR_MAX(begin[0], begin[1]) - begin[i];
    return 0;
}

/* Marks are of A's steps. */
static int tell(struct pair *pair, struct mr_tl_story *out)
{
    struct mr_comparison *made;
    struct mr_tl_story *a = &pair->story[BEFORE], *b = &pair->story[AFTER];
    int rc = mr_compare(pair->rec[BEFORE], pair->rec[AFTER], NULL, &made);
    if (rc < 0)
        return rc;
    bool steps = a->steps.n > 0 && b->steps.n > 0;
    snprintf(out->verdict, sizeof out->verdict, "A: %.300s, B: %.300s; %s begin together. %s",
             pair->rec[BEFORE]->path, pair->rec[AFTER]->path,
             steps ? "their first steps after warming up" : "their first steps, or device work,",
             mr_comparison_summary(made));
    mr_comparison_destroy(made);
    for (int i = 0; i < 2; i++) {
        const struct mr_tl_story *from = &pair->story[i];
        if (from->from_ns >= from->to_ns)
            continue;
        uint64_t begin = from->from_ns + pair->shift_ns[i], end = from->to_ns + pair->shift_ns[i];
        out->from_ns = out->to_ns ? MR_MIN(out->from_ns, begin) : begin;
        out->to_ns = MR_MAX(out->to_ns, end);
    }
    out->to_ns = MR_MIN(out->to_ns, pair->joined.end_ns + 1);
    out->steps = a->steps; /* now this one's */
    a->steps = (struct mr_steps){0};
    for (uint64_t i = 0; i < out->steps.n; i++) {
        out->steps.at[i].start_ns += pair->shift_ns[BEFORE];
        out->steps.at[i].end_ns += pair->shift_ns[BEFORE];
    }
    return 0;
}

static void pair_free(struct pair *pair)
{
    struct mr_recording *out = &pair->joined;
    sqlite3_close(out->db);
    for (uint32_t i = 0; i < pair->n_labels; i++)
        free(pair->labels[i]);
    free(pair->labels);
    free(out->strings);
    free(out->ops);
    free(out->apis);
    free(out->op_of_api);
    free(out->ranges);
    free(out->os);
    free(out->threads);
    free(out->processes);
    free(out->devices);
    for (int i = 0; i < 2; i++)
        mr_timeline_story_free(&pair->story[i]);
}

int mr_timeline_write_pair(struct mr_recording *before, struct mr_recording *after,
                           const char *path, enum mr_timeline_format format,
                           const struct mr_timeline_opts *opts)
{
    if (!before || !after || !path)
        return mr_error_null("mr_timeline_write_pair", "two recordings and a path");
    struct pair pair = {.rec = {before, after}};
    struct mr_tl_story story = {0};
    struct mr_timeline_opts all;
    mr_timeline_opts_init(&all);
    int rc = mr_opts_take("timeline_opts", opts, &all, sizeof all);
    if (rc < 0)
        return rc;
    if (format == MR_TIMELINE_FOLDED)
        return mr_error_set(MR_EOPTION,
                            "%s: folded lines cannot show two recordings: expected "
                            "HTML, SVG or Perfetto",
                            path);
    all.title = all.title ? all.title : "Before (A) and after (B)";
    rc = make_clock(&pair);
    if (rc < 0)
        goto end;
    rc = join(&pair);
    if (rc < 0)
        goto end;
    rc = tell(&pair, &story);
    if (rc < 0)
        goto end;
    rc = mr_timeline_put(&pair.joined, &story, path, format, &all);
end:
    mr_timeline_story_free(&story);
    pair_free(&pair);
    return rc;
}
