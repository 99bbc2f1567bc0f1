/* Counters: what of the link and the device was used, over time; and samples that the recording
 * has. */
#include "timeline/timeline.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#define BINS   10000
#define MIN_NS 10000 /* of a bin: rates of less say nothing */

struct bins {
    uint64_t from_ns, width_ns, n;
    double *amount;
};

/* Spreads what an event moved evenly over its time. */
static void spread(const struct bins *bins, const struct mr_timeline *tl,
                   const struct mr_tl_event *event, double amount)
{
    uint64_t start = MR_MAX(event->start_ns, tl->from_ns), end = MR_MIN(event->end_ns, tl->to_ns);
    double whole = (double)(event->end_ns - event->start_ns);
    for (uint64_t at = start; at < end;) {
        uint64_t bin = (at - bins->from_ns) / bins->width_ns;
        uint64_t until = MR_MIN(end, bins->from_ns + (bin + 1) * bins->width_ns);
        bins->amount[bin] += amount * (double)(until - at) / whole;
        at = until;
    }
}

/* Values that repeat are not written again: a counter holds until its next point. */
static int put_bins(struct mr_tl_counter *counter, const struct bins *bins, uint64_t to_ns,
                    double scale)
{
    int rc = 0;
    for (uint64_t i = 0; i < bins->n && rc == 0; i++) {
        double value = bins->amount[i] * scale;
        if (i == 0 || value != bins->amount[i - 1] * scale)
            rc = mr_timeline_point(counter, bins->from_ns + i * bins->width_ns, value);
    }
    return rc == 0 ? mr_timeline_point(counter, to_ns, 0) : rc;
}

/* Bytes come from the streams' own events: an engine's may stand for several. */
static int count_engine(struct mr_timeline *tl, const struct mr_lane *engine, const char *name,
                        const struct bins *bins)
{
    bool busy = engine->engine == MR_ENGINE_ALL;
    struct mr_tl_counter *counter = mr_timeline_counter(tl);
    if (!counter)
        return -ENOMEM;
    snprintf(counter->name, sizeof(counter->name), "%s", name);
    counter->device = engine->device;
    counter->binned = true;
    counter->unit = busy ? MR_UNIT_PERCENT : MR_UNIT_BYTES_PER_S;
    memset(bins->amount, 0, bins->n * sizeof(*bins->amount));
    for (uint64_t i = 0; i < engine->n; i++) {
        const struct mr_tl_event *event = &engine->events[i];
        spread(bins, tl, event,
               busy ? (double)(event->end_ns - event->start_ns) : (double)event->bytes);
    }
    return put_bins(counter, bins, bins->from_ns + bins->n * bins->width_ns,
                    (busy ? 100.0 : 1e9) / (double)bins->width_ns);
}

/* From the first to the last work of any device: outside there is nothing to count. */
static void find_work(const struct mr_timeline *tl, uint64_t *out_from_ns, uint64_t *out_to_ns)
{
    uint64_t from = tl->to_ns, to = tl->from_ns;
    for (uint32_t i = 0; i < tl->n_lanes; i++) {
        const struct mr_lane *lane = &tl->lanes[i];
        if (lane->kind != MR_LANE_ENGINE || lane->n == 0)
            continue;
        from = MR_MIN(from, lane->events[0].start_ns);
        to = MR_MAX(to, lane->events[lane->n - 1].end_ns);
    }
    *out_from_ns = MR_MAX(from, tl->from_ns);
    *out_to_ns = MR_MAX(MR_MIN(to, tl->to_ns), *out_from_ns + 1);
}

static int count_engines(struct mr_timeline *tl)
{
    uint64_t from, to;
    find_work(tl, &from, &to);
    static const char *const names[] = {
        [MR_ENGINE_ALL] = "GPU busy", [MR_ENGINE_H2D] = "H2D rate", [MR_ENGINE_D2H] = "D2H rate"};
    struct bins bins = {.from_ns = from, .width_ns = MIN_NS};
    for (uint64_t k = 0; (to - from) / bins.width_ns >= BINS; k++)
        bins.width_ns = bins.width_ns / (k % 3 == 1 ? 2 : 1) * (k % 3 == 1 ? 5 : 2);
    bins.n = (to - from) / bins.width_ns + 1;
    bins.amount = malloc(bins.n * sizeof(*bins.amount));
    if (!bins.amount)
        return mr_error_nomem("timeline: counters", bins.n * sizeof(*bins.amount));
    int rc = 0;
    for (uint32_t i = 0; i < tl->n_lanes && rc == 0; i++) {
        const struct mr_lane *lane = &tl->lanes[tl->order[i]];
        if (lane->kind == MR_LANE_ENGINE && lane->engine < MR_COUNT(names) && names[lane->engine])
            rc = count_engine(tl, lane, names[lane->engine], &bins);
    }
    free(bins.amount);
    return rc;
}

/* One more point of the metric that the row names, which begins when the metric's number is another
 * than the last row's. */
static int metric_row(struct mr_timeline *tl, sqlite3_stmt *row, int64_t last[2])
{
    int64_t time = sqlite3_column_int64(row, 0), type = sqlite3_column_int64(row, 1),
            metric = sqlite3_column_int64(row, 2);
    const char *name = (const char *)sqlite3_column_text(row, 4);
    if (!name && sqlite3_column_type(row, 4) == SQLITE_TEXT)
        return mr_error_nomem(tl->rec->path, 0);
    if (time < 0 || !mr_timeline_shows(tl, (uint64_t)time, (uint64_t)time))
        return 0;
    struct mr_tl_counter *counter = tl->n_counters ? &tl->counters[tl->n_counters - 1] : NULL;
    if (!counter || type != last[0] || metric != last[1]) {
        counter = mr_timeline_counter(tl);
        if (!counter)
            return -ENOMEM;
        uint32_t id =
            (uint32_t)(type &
                       0xff); /* the export keeps the GPU's number there, and more above it */
        for (uint32_t i = 0; i < tl->rec->n_devices && type >= 0; i++)
            if (tl->rec->devices[i].id == id)
                counter->device = (uint16_t)i;
        snprintf(counter->name, sizeof(counter->name), "%s", name && *name ? name : "metric");
        counter->unit = strchr(counter->name, '%') ? MR_UNIT_PERCENT : MR_UNIT_NONE;
        last[0] = type;
        last[1] = metric;
    }
    return mr_timeline_point(counter, (uint64_t)time, sqlite3_column_double(row, 3));
}

static int read_metrics(struct mr_timeline *tl, const char *sql)
{
    sqlite3_stmt *row;
    int code = sqlite3_prepare_v2(tl->rec->db, sql, -1, &row, NULL);
    if (code == SQLITE_ERROR)
        return 0; /* the export of another version: its other tables are what counts */
    if (code != SQLITE_OK)
        return mr_recording_error(tl->rec->db, tl->rec->path, "metrics");
    int64_t last[2] = {INT64_MIN, INT64_MIN};
    int rc = 0, step;
    while ((step = sqlite3_step(row)) == SQLITE_ROW && rc == 0)
        rc = metric_row(tl, row, last);
    if (rc == 0 && step != SQLITE_DONE)
        rc = mr_recording_error(tl->rec->db, tl->rec->path, "metrics");
    sqlite3_finalize(row);
    return rc;
}

int mr_timeline_count(struct mr_timeline *tl)
{
    int rc = count_engines(tl);
    if (rc == 0 && mr_recording_has(tl->rec, "GPU_METRICS", "metricId") &&
        mr_recording_has(tl->rec, "TARGET_INFO_GPU_METRICS", "metricName"))
        rc = read_metrics(
            tl, "SELECT timestamp, typeId, metricId, value, (SELECT metricName FROM "
                "TARGET_INFO_GPU_METRICS t"
                " WHERE t.typeId = g.typeId AND t.metricId = g.metricId) FROM GPU_METRICS g"
                " ORDER BY typeId, metricId, timestamp");
    if (rc == 0 && mr_recording_has(tl->rec, "MILLRACE_COUNTERS", "nameId"))
        rc = read_metrics(
            tl,
            "SELECT timestamp, -1 - globalPid, nameId, c.value, s.value FROM MILLRACE_COUNTERS c"
            " LEFT JOIN StringIds s ON s.id = nameId ORDER BY globalPid, nameId, timestamp");
    return rc;
}
