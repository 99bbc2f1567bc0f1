/* The tables of a comparison. */
#include "compare/compare.h"
#include "table/table.h"

#include <inttypes.h>
#include <string.h>

/* ---- where a step's time goes ---- */

static const struct mr_column step_columns[] = {
    {"Part", MR_UNIT_NONE, MR_CELL_TEXT},       {"Before", MR_UNIT_NS, MR_CELL_REAL},
    {"After", MR_UNIT_NS, MR_CELL_REAL},        {"Change Time", MR_UNIT_NS, MR_CELL_REAL},
    {"Change", MR_UNIT_PERCENT, MR_CELL_REAL},  {"Verdict", MR_UNIT_NONE, MR_CELL_TEXT},
    {"P", MR_UNIT_PERCENT, MR_CELL_REAL},       {"StdDev Before", MR_UNIT_NS, MR_CELL_REAL},
    {"StdDev After", MR_UNIT_NS, MR_CELL_REAL}, {"Med Before", MR_UNIT_NS, MR_CELL_REAL},
    {"Med After", MR_UNIT_NS, MR_CELL_REAL},
};

static const char *verdict_of(int i, enum mr_change change)
{
    bool step = i == MR_OF_STEP;
    switch (change) {
    case MR_CHANGE_NONE:
        return "same";
    case MR_CHANGE_SLOWER:
        return step ? "slower" : "more";
    case MR_CHANGE_FASTER:
        return step ? "faster" : "less";
    default:
        return "cannot tell";
    }
}

static void put_part(struct mr_table *table, int i, const struct mr_part_change *part)
{
    double change = part->mean[1] - part->mean[0];
    mr_table_row(table);
    mr_table_text(table, mr_of_step_text(i));
    mr_table_real(table, part->mean[0]);
    mr_table_real(table, part->mean[1]);
    mr_table_real(table, change);
    if (part->mean[0] > 0)
        mr_table_real(table, 100 * change / part->mean[0]);
    else
        mr_table_empty(table);
    mr_table_text(table, verdict_of(i, part->change));
    if (part->noise.known)
        mr_table_real(table, 100 * part->noise.p);
    else
        mr_table_empty(table);
    mr_table_real(table, part->deviation[0]);
    mr_table_real(table, part->deviation[1]);
    mr_table_real(table, part->median[0]);
    mr_table_real(table, part->median[1]);
}

static void note_steps(const struct mr_compared *c, struct mr_table *table)
{
    const struct mr_measured *a = &c->measured[0], *b = &c->measured[1];
    const struct mr_noise *noise = &c->part[MR_OF_STEP].noise;
    if (a->n == 0 || b->n == 0) {
        mr_table_set_note(table, "no steps were found in %s: --step names the NVTX range of a step",
                          c->rec[a->n > 0]->path);
        return;
    }
    mr_table_set_note(table,
                      "Means of %" PRIu64 " and %" PRIu64
                      " steps after warming up, %s%s%s. Compute, copies and communication exposed, "
                      "other processes and idle add up to the step; data wait is waiting for the "
                      "loader and exposed copies to the device",
                      a->n, b->n, a->how, strcmp(a->how, b->how) ? "; after: " : "",
                      strcmp(a->how, b->how) ? b->how : "");
    if (noise->known)
        mr_table_add_note(table,
                          "P: permutation tests of the means and ranks of %" PRIu64 " and %" PRIu64
                          " blocks of %" PRIu64 " and %" PRIu64
                          " steps (Chung, Romano 2013), two-sided. A change is one of at least "
                          "%g%%, of a part also %g%% of the step, with a P of at most %g%%",
                          noise->n_blocks[0], noise->n_blocks[1], noise->block[0], noise->block[1],
                          c->least_percent, 100 * MR_LEAST_OF_STEP, 100 * MR_NOISE_RATE);
}

int mr_compared_steps(const struct mr_compared *c, struct mr_table **out)
{
    struct mr_table *table = mr_table_create("A step's time, before and after (steps)",
                                             step_columns, MR_COUNT(step_columns));
    if (!table)
        return mr_error_nomem("a comparison", sizeof step_columns);
    for (int i = 0; i < MR_N_OF_STEP && c->measured[0].n > 0 && c->measured[1].n > 0; i++) {
        const struct mr_part_change *part = &c->part[i];
        if (part->mean[0] > 0 || part->mean[1] > 0 || i == MR_OF_IDLE)
            put_part(table, i, part);
    }
    note_steps(c, table);
    return mr_table_finish(table, out);
}

/* ---- copies by kind of memory ---- */

static const struct mr_column copy_columns[] = {
    {"Operation", MR_UNIT_NONE, MR_CELL_TEXT},
    {"SrcMemKd", MR_UNIT_NONE, MR_CELL_TEXT},
    {"DstMemKd", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Count Before", MR_UNIT_COUNT, MR_CELL_INT},
    {"Count After", MR_UNIT_COUNT, MR_CELL_INT},
    {"Bytes Before", MR_UNIT_BYTES, MR_CELL_INT},
    {"Bytes After", MR_UNIT_BYTES, MR_CELL_INT},
    {"Time Before", MR_UNIT_NS, MR_CELL_INT},
    {"Time After", MR_UNIT_NS, MR_CELL_INT},
    {"Throughput Before", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
    {"Throughput After", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
};

static const struct mr_copies_of *find_copies(const struct mr_measured *measured,
                                              const struct mr_copies_of *like)
{
    for (uint32_t k = 0; k < measured->n_copies; k++) {
        const struct mr_copies_of *copies = &measured->copies[k];
        if (copies->kind == like->kind && copies->src == like->src && copies->dst == like->dst)
            return copies;
    }
    return NULL;
}

/* Of none: 0; of some whose size is not recorded: nothing. */
static void put_bytes(struct mr_table *table, const struct mr_copies_of *copies)
{
    if (copies->n > 0)
        mr_table_bytes(table, copies->bytes);
    else
        mr_table_int(table, 0);
}

static void put_rate(struct mr_table *table, const struct mr_copies_of *copies)
{
    if (copies->ns > 0 && copies->bytes > 0)
        mr_table_real(table, (double)copies->bytes * 1e9 / (double)copies->ns);
    else
        mr_table_empty(table);
}

static void put_copies(struct mr_table *table, const struct mr_copies_of *before,
                       const struct mr_copies_of *after)
{
    static const struct mr_copies_of none = {0};
    const struct mr_copies_of *like = before ? before : after;
    before = before ? before : &none;
    after = after ? after : &none;
    mr_table_row(table);
    mr_table_text(table, mr_copy_label(like->kind));
    mr_table_text(table, mr_memory_label((int64_t)like->src - 1));
    mr_table_text(table, mr_memory_label((int64_t)like->dst - 1));
    mr_table_int(table, (int64_t)before->n);
    mr_table_int(table, (int64_t)after->n);
    put_bytes(table, before);
    put_bytes(table, after);
    mr_table_int(table, (int64_t)before->ns);
    mr_table_int(table, (int64_t)after->ns);
    put_rate(table, before);
    put_rate(table, after);
}

int mr_compared_copies(const struct mr_compared *c, struct mr_table **out)
{
    const struct mr_measured *a = &c->measured[0], *b = &c->measured[1];
    struct mr_table *table = mr_table_create("Copies by kind of memory, before and after (copies)",
                                             copy_columns, MR_COUNT(copy_columns));
    if (!table)
        return mr_error_nomem("a comparison", sizeof copy_columns);
    for (uint32_t k = 0; k < a->n_copies; k++)
        put_copies(table, &a->copies[k], find_copies(b, &a->copies[k]));
    for (uint32_t k = 0; k < b->n_copies; k++)
        if (!find_copies(a, &b->copies[k]))
            put_copies(table, NULL, &b->copies[k]);
    if (a->n_copies == 0 && b->n_copies == 0)
        mr_table_set_note(table, "neither recording has copies");
    return mr_table_finish(table, out);
}

/* ---- the longest copy and its call ---- */

#define LOOKED_AT 256 /* of the longest operations: memsets and copies inside the device, too */

static const struct mr_column longest_columns[] = {
    {"Recording", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Start", MR_UNIT_NS, MR_CELL_INT},
    {"Duration", MR_UNIT_NS, MR_CELL_INT},
    {"Bytes", MR_UNIT_BYTES, MR_CELL_INT},
    {"Throughput", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
    {"Operation", MR_UNIT_NONE, MR_CELL_TEXT},
    {"SrcMemKd", MR_UNIT_NONE, MR_CELL_TEXT},
    {"DstMemKd", MR_UNIT_NONE, MR_CELL_TEXT},
    {"API Call", MR_UNIT_NONE, MR_CELL_TEXT},
    {"API Duration", MR_UNIT_NS, MR_CELL_INT},
    {"Host Blocked", MR_UNIT_NONE, MR_CELL_TEXT},
};

static void copy_cell(struct mr_table *to, struct mr_cell cell)
{
    if (cell.type == MR_CELL_TEXT)
        mr_table_text(to, cell.text);
    else if (cell.type == MR_CELL_INT)
        mr_table_int(to, cell.integer);
    else if (cell.type == MR_CELL_REAL)
        mr_table_real(to, cell.real);
    else
        mr_table_empty(to);
}

/* The longest copy between host and device; without one the longest of any. MR_NONE: none. */
static uint32_t longest_of(const struct mr_table *ops)
{
    uint32_t operation = mr_table_find(ops, "Operation"), any = MR_NONE;
    for (uint32_t i = 0; i < mr_table_rows(ops); i++) {
        const char *text = mr_table_cell(ops, i, operation).text;
        if (strcmp(text, "Host-to-Device") == 0 || strcmp(text, "Device-to-Host") == 0)
            return i;
        any = any == MR_NONE && strcmp(text, "memset") != 0 ? i : any;
    }
    return any;
}

static int put_longest(struct mr_table *table, struct mr_recording *rec, const char *which)
{
    struct mr_report_opts opts;
    struct mr_table *ops;
    mr_report_opts_init(&opts);
    opts.sort = "Duration";
    opts.limit = LOOKED_AT;
    int rc = mr_report_make(rec, "mem_ops", &opts, &ops);
    if (rc < 0)
        return rc;
    uint32_t at = longest_of(ops);
    mr_table_row(table);
    mr_table_text(table, which);
    for (uint32_t i = 1; i < MR_COUNT(longest_columns); i++)
        if (at == MR_NONE)
            mr_table_empty(table);
        else
            copy_cell(table, mr_table_cell(ops, at, mr_table_find(ops, longest_columns[i].name)));
    mr_table_destroy(ops);
    return 0;
}

int mr_compared_longest(const struct mr_compared *c, struct mr_table **out)
{
    struct mr_table *table =
        mr_table_create("The longest copy and its call, before and after (longest_copy)",
                        longest_columns, MR_COUNT(longest_columns));
    if (!table)
        return mr_error_nomem("a comparison", sizeof longest_columns);
    int rc = put_longest(table, c->rec[0], "before");
    if (rc == 0)
        rc = put_longest(table, c->rec[1], "after");
    if (rc < 0) {
        mr_table_destroy(table);
        return rc;
    }
    return mr_table_finish(table, out);
}

/* ---- findings ---- */

static const struct mr_column finding_columns[] = {
    {"Status", MR_UNIT_NONE, MR_CELL_TEXT},      {"Rule", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Saving Before", MR_UNIT_NS, MR_CELL_REAL}, {"Saving After", MR_UNIT_NS, MR_CELL_REAL},
    {"Finding", MR_UNIT_NONE, MR_CELL_TEXT},
};

static const struct mr_finding *find_rule(const struct mr_advice *advice, const char *rule)
{
    const struct mr_finding *finding = NULL;
    for (uint32_t i = 0; (finding = mr_advice_get(advice, i)); i++)
        if (strcmp(finding->rule, rule) == 0)
            break;
    return finding;
}

/* What became of the finding of a rule. NULL: it is in neither. */
static const char *status_of(const struct mr_compared *c, const char *rule)
{
    const struct mr_finding *before = find_rule(c->advice[0], rule),
                            *after = find_rule(c->advice[1], rule);
    bool was = before && before->verdict == MR_FOUND, is = after && after->verdict == MR_FOUND;
    if (was && !is)
        return after && after->verdict == MR_CANNOT_TELL ? "cannot tell" : "gone";
    return was ? "remaining" : is ? "new" : NULL;
}

static void put_saving(struct mr_table *table, const struct mr_finding *finding)
{
    if (finding && finding->verdict == MR_FOUND)
        mr_table_real(table, finding->saving_ms * 1e6);
    else
        mr_table_empty(table);
}

static void put_findings(const struct mr_compared *c, const struct mr_advice *from,
                         const char *status, struct mr_table *table)
{
    const struct mr_finding *finding;
    for (uint32_t i = 0; (finding = mr_advice_get(from, i)); i++) {
        const char *is = status_of(c, finding->rule);
        if (!is || strcmp(is, status) != 0)
            continue;
        mr_table_row(table);
        mr_table_text(table, status);
        mr_table_text(table, finding->rule);
        put_saving(table, find_rule(c->advice[0], finding->rule));
        put_saving(table, find_rule(c->advice[1], finding->rule));
        mr_table_text(table, finding->title);
    }
}

int mr_compared_findings(const struct mr_compared *c, struct mr_table **out)
{
    struct mr_table *table = mr_table_create("Findings of analyze, before and after (findings)",
                                             finding_columns, MR_COUNT(finding_columns));
    if (!table)
        return mr_error_nomem("a comparison", sizeof finding_columns);
    put_findings(c, c->advice[0], "gone", table);
    put_findings(c, c->advice[0], "cannot tell", table);
    put_findings(c, c->advice[1], "new", table);
    put_findings(c, c->advice[1], "remaining", table);
    if (mr_table_rows(table) == 0)
        mr_table_set_note(table, "nothing to fix was found in either recording");
    else
        mr_table_set_note(table, "Savings are of a step, or of the whole recording without steps. "
                                 "Cannot tell: found before, and the second recording cannot "
                                 "support a conclusion");
    return mr_table_finish(table, out);
}

struct mr_findings_change mr_compared_count(const struct mr_compared *c)
{
    struct mr_findings_change counted = {0};
    const struct mr_finding *finding;
    for (uint32_t i = 0; (finding = mr_advice_get(c->advice[0], i)); i++) {
        const char *status = status_of(c, finding->rule);
        counted.n_gone += status && strcmp(status, "gone") == 0;
        counted.n_new += status && strcmp(status, "new") == 0;
        counted.n_remaining += status && strcmp(status, "remaining") == 0;
    }
    return counted;
}
