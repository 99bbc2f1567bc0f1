/* The report overlap's rows. */
#include "recording/big.h"
#include "recording/overlap.h"
#include "report/report.h"

#include <inttypes.h>

enum side { H2D, D2H, D2D, COMPUTE, N_SIDES };
static const char *const sides[] = {"H2D", "D2H", "D2D", "compute"};

static const struct mr_column columns[] = {
    {"PID", MR_UNIT_NONE, MR_CELL_INT},
    {"Device", MR_UNIT_NONE, MR_CELL_INT},
    {"What", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Time", MR_UNIT_NS, MR_CELL_INT},
    {"Time Share", MR_UNIT_PERCENT, MR_CELL_REAL},
    {"Share Of", MR_UNIT_NONE, MR_CELL_TEXT},
    {"Count", MR_UNIT_COUNT, MR_CELL_INT},
    {"Bytes", MR_UNIT_BYTES, MR_CELL_INT},
};

struct sums {
    uint64_t n[N_SIDES], bytes[N_SIDES];
    uint64_t n_why[2][MR_N_OVERLAP], ns_why[2][MR_N_OVERLAP], bytes_why[2][MR_N_OVERLAP],
        copy_ns[2];
};

static int side_of(const struct mr_rec_op *op)
{
    if (op->kind != MR_OP_COPY)
        return COMPUTE;
    if (op->copy_kind == MR_COPY_H2D || op->copy_kind == MR_COPY_H2A)
        return H2D;
    if (op->copy_kind == MR_COPY_D2H || op->copy_kind == MR_COPY_A2H)
        return D2H;
    return mr_op_computes(op) ? D2D : N_SIDES;
}

static void row(struct mr_table *table, const struct mr_look *look, const char *what, uint64_t ns,
                uint64_t of_ns, const char *of, uint64_t n, uint64_t bytes)
{
    const struct mr_recording *rec = look->rec;
    mr_table_row(table);
    mr_table_int(table, look->place.process < rec->n_processes
                            ? rec->processes[look->place.process].pid
                            : 0);
    mr_table_int(table, mr_place_device_id(rec, &look->place));
    mr_table_text(table, what);
    mr_table_int(table, (int64_t)ns);
    mr_table_real(table, of_ns ? 100 * (double)ns / (double)of_ns : 0);
    mr_table_text(table, of);
    if (n == UINT64_MAX) {
        mr_table_empty(table);
        mr_table_empty(table);
        return;
    }
    mr_table_int(table, (int64_t)n);
    if (n > 0)
        mr_table_bytes(table, bytes);
    else
        mr_table_int(table, 0);
}

static void add_up(const struct mr_look *look, const struct mr_kernel_streams *streams,
                   const struct mr_filter *filter, struct sums *sums)
{
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        int side = side_of(op);
        if (side == N_SIDES || !mr_filter_takes(filter, op->start_ns))
            continue;
        sums->n[side]++;
        sums->bytes[side] += op->bytes;
        if (side > D2H)
            continue;
        enum mr_overlap_reason why = mr_overlap_why(look, streams, i);
        uint64_t ns = op->end_ns - op->start_ns,
                 hidden = mr_intervals_within(&look->compute, op->start_ns, op->end_ns);
        sums->copy_ns[side] += ns;
        sums->n_why[side][why]++;
        sums->bytes_why[side][why] += op->bytes;
        sums->ns_why[side][why] += why == MR_OVERLAPPED ? ns : ns - hidden;
    }
}

/* What the filter takes of the recording. */
static uint64_t window_ns(const struct mr_look *look, const struct mr_filter *filter,
                          bool *out_lost)
{
    struct mr_intervals taken = {0};
    for (uint64_t i = 0; i < filter->n_spans; i++)
        mr_intervals_add(&taken, MR_MAX(filter->spans[i].start, filter->from),
                         MR_MIN(filter->spans[i].end, filter->to));
    if (!filter->by_range)
        mr_intervals_add(&taken, filter->from, filter->to);
    mr_intervals_unite(&taken);
    uint64_t ns = mr_intervals_common(&look->in, &taken);
    *out_lost = taken.lost;
    mr_intervals_free(&taken);
    return ns;
}

/* The rows of what ran and of what ran together. */
static int union_rows(const struct mr_look *look, const struct mr_filter *filter,
                      const struct sums *sums, struct mr_table *table)
{
    /* kernels and sets alone: a copy inside the device is a side of its own here */
    struct mr_intervals of[N_SIDES] = {{0}};
    bool lost = false, all = !filter->by_range && filter->from == 0 && filter->to == UINT64_MAX;
    uint64_t window = window_ns(look, filter, &lost), ns[N_SIDES];
    char what[64];
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        int side = side_of(op);
        if (side < N_SIDES && mr_filter_takes(filter, op->start_ns))
            mr_intervals_add(&of[side], op->start_ns, op->end_ns);
    }
    for (int a = 0; a < N_SIDES; a++) {
        mr_intervals_unite(&of[a]);
        lost |= of[a].lost;
        ns[a] = mr_intervals_measure(&of[a]);
        row(table, look, sides[a], ns[a], window, all ? "work span" : "window", sums->n[a],
            sums->bytes[a]);
    }
    for (int a = 0; a < N_SIDES; a++)
        for (int b = a + 1; b < N_SIDES; b++) {
            snprintf(what, sizeof what, "%s with %s", sides[a], sides[b]);
            row(table, look, what, mr_intervals_common(&of[a], &of[b]), ns[a], sides[a], UINT64_MAX,
                0);
        }
    for (int a = 0; a < N_SIDES; a++)
        mr_intervals_free(&of[a]);
    return lost ? mr_error_nomem("intervals", look->n_ops * sizeof(struct mr_interval)) : 0;
}

static void reason_rows(const struct mr_look *look, const struct sums *sums, struct mr_table *table)
{
    char what[96];
    for (int side = H2D; side <= D2H; side++)
        for (int why = 0; why < MR_N_OVERLAP; why++) {
            if (sums->n_why[side][why] == 0)
                continue;
            snprintf(what, sizeof what, "%s copies%s: %s", sides[side],
                     why == MR_OVERLAPPED ? "" : " exposed",
                     mr_overlap_text((enum mr_overlap_reason)why));
            row(table, look, what, sums->ns_why[side][why], sums->copy_ns[side],
                side == H2D ? "H2D copies" : "D2H copies", sums->n_why[side][why],
                sums->bytes_why[side][why]);
        }
}

static int place_rows(const struct mr_recording *rec, const struct mr_place *place,
                      const struct mr_filter *filter, struct mr_table *table)
{
    struct mr_look look;
    struct mr_kernel_streams streams = {0};
    struct sums sums = {{0}};
    int rc = mr_look_whole(rec, place, &look);
    if (rc)
        return rc;
    rc = mr_kernel_streams_make(&look, &streams);
    if (!rc) {
        add_up(&look, &streams, filter, &sums);
        rc = union_rows(&look, filter, &sums, table);
        reason_rows(&look, &sums, table);
    }
    mr_big_free(streams.key);
    mr_look_free(&look);
    return rc;
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct mr_place *places = NULL;
    struct mr_filter filter;
    uint32_t n_places = 0;
    uint64_t n_kernels = 0;
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table =
        mr_table_create("Copies and compute at once (overlap)", columns, MR_COUNT(columns));
    rc = table ? mr_recording_load(recording) : mr_error_nomem("a report", sizeof columns);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    for (uint32_t i = 0; !rc && i < n_places; i++) {
        rc = place_rows(recording, &places[i], &filter, table);
        n_kernels += places[i].n_kernels;
    }
    if (!rc) {
        mr_table_set_note(table,
                          "%sTimes are unions; a pair's share is of the first. Copies exposed: the "
                          "part of each that no compute "
                          "hides, added up, with one reason each: the first that holds of pageable "
                          "memory, a synchronizing call, a "
                          "stream that runs kernels, the engine of its direction busy, kernels "
                          "that waited for it, nothing queued.",
                          n_places == 0 ? "This recording has no device work. "
                          : n_kernels == 0
                              ? "No kernels were recorded: it is unknown what copies overlapped "
                                "with. "
                              : "");
    }
    free(places);
    mr_filter_close(&filter);
    if (rc) {
        mr_table_destroy(table);
        return rc;
    }
    return mr_report_finish(table, opts, NULL, out);
}

const struct mr_report_kind mr_report_overlap = {
    "overlap",
    "Copies and compute as unions of time, pairwise overlap, and why copies did not overlap",
    make,
};
