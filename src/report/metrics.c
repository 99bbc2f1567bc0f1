/* gpu_metrics_sum: what the samples of each device's counters were, of those that fall into the
 * window. */
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>

#define TABLE "GPU_METRICS"
#define NAMES "TARGET_INFO_GPU_METRICS"

struct sum {
    uint64_t n;
    double total, least, most;
};

struct sums {
    struct mr_keymap map; /* typeId, metricId */
    struct sum *items;
    uint64_t room;
};

static struct sum *sum_at(struct sums *sums, struct mr_key key)
{
    uint32_t i = mr_keymap_put(&sums->map, key);
    if (i == MR_NONE)
        return NULL;
    if (i >= sums->room) {
        uint64_t before = sums->room;
        if (mr_grow("metrics", &sums->items, &sums->room, i + 1ull, sizeof *sums->items) < 0)
            return NULL;
        for (uint64_t k = before; k < sums->room; k++)
            sums->items[k] = (struct sum){.least = INFINITY, .most = -INFINITY};
    }
    return &sums->items[i];
}

static void add(struct sum *sum, uint64_t n, double total, double least, double most)
{
    sum->n += n;
    sum->total += total;
    sum->least = least < sum->least ? least : sum->least;
    sum->most = most > sum->most ? most : sum->most;
}

struct worker {
    const struct mr_filter *filter;
    struct sums sums;
};

/* timestamp, typeId, metricId, value */
static int add_row(void *state, struct sqlite3_stmt *stmt)
{
    struct worker *w = state;
    int64_t time = sqlite3_column_int64(stmt, 0);
    double value = sqlite3_column_double(stmt, 3);
    if (time < 0 || !mr_filter_takes(w->filter, (uint64_t)time))
        return 0;
    struct mr_key key = {(uint64_t)sqlite3_column_int64(stmt, 1),
                         (uint64_t)sqlite3_column_int64(stmt, 2)};
    struct sum *sum = sum_at(&w->sums, key);
    if (!sum)
        return -ENOMEM;
    add(sum, 1, value, value, value);
    return 0;
}

static void sums_free(struct sums *sums)
{
    mr_keymap_free(&sums->map);
    free(sums->items);
    *sums = (struct sums){0};
}

static int add_up(struct mr_recording *recording, const struct mr_filter *filter, struct sums *out)
{
    struct worker workers[MR_SCAN_THREADS];
    void *states[MR_SCAN_THREADS];
    if (!mr_recording_has(recording, TABLE, "timestamp") ||
        !mr_recording_has(recording, TABLE, "metricId"))
        return 0;
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        workers[i] = (struct worker){.filter = filter};
        states[i] = &workers[i];
    }
    int rc =
        mr_scan(recording, TABLE, "SELECT timestamp, typeId, metricId, value FROM " TABLE " WHERE",
                add_row, states);
    for (uint32_t i = 0; i < MR_SCAN_THREADS; i++) {
        struct sums *from = &workers[i].sums;
        for (uint32_t k = 0; k < from->map.n && rc == 0; k++) {
            struct sum *sum = sum_at(out, from->map.keys[k]);
            if (sum)
                add(sum, from->items[k].n, from->items[k].total, from->items[k].least,
                    from->items[k].most);
            else
                rc = mr_error_nomem("metrics", 0);
        }
        sums_free(from);
    }
    return rc;
}

/* The export keeps the GPU's number in the low 8 bits, and more above them. */
static int put_rows(struct mr_recording *recording, const struct sums *sums, struct mr_table *table)
{
    struct sqlite3_stmt *find = NULL;
    int rc = 0;
    if (mr_recording_has(recording, NAMES, "metricName"))
        rc = mr_sql_prepare(recording, &find,
                            "SELECT metricName FROM " NAMES " WHERE typeId = ?1 AND metricId = ?2");
    for (uint32_t i = 0; i < sums->map.n && rc == 0; i++) {
        const struct sum *sum = &sums->items[i];
        char *name = NULL;
        if (find) {
            sqlite3_bind_int64(find, 1, (int64_t)sums->map.keys[i].a);
            sqlite3_bind_int64(find, 2, (int64_t)sums->map.keys[i].b);
            rc = mr_sql_text(recording, find, &name);
        }
        if (rc == 0) {
            mr_table_row(table);
            mr_table_int(table, (int64_t)(sums->map.keys[i].a & 0xff));
            mr_table_text(table, name ? name : "(no name)");
            mr_table_int(table, (int64_t)sum->n);
            mr_table_real(table, sum->total / (double)sum->n);
            mr_table_real(table, sum->least);
            mr_table_real(table, sum->most);
        }
        free(name);
    }
    sqlite3_finalize(find);
    return rc;
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    static const struct mr_column columns[] = {
        {"Device", MR_UNIT_NONE, MR_CELL_INT},   {"Metric", MR_UNIT_NONE, MR_CELL_TEXT},
        {"Samples", MR_UNIT_COUNT, MR_CELL_INT}, {"Avg", MR_UNIT_NONE, MR_CELL_REAL},
        {"Min", MR_UNIT_NONE, MR_CELL_REAL},     {"Max", MR_UNIT_NONE, MR_CELL_REAL},
    };
    struct mr_filter filter;
    struct sums sums = {0};
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table =
        mr_table_create("GPU metrics (gpu_metrics_sum)", columns, MR_COUNT(columns));
    rc = table ? add_up(recording, &filter, &sums) : mr_error_nomem("a table", 0);
    if (rc == 0)
        rc = put_rows(recording, &sums, table);
    if (rc == 0 && sums.map.n == 0 && recording->source)
        mr_table_set_note(table, "this %s records no GPU metrics", recording->source);
    else if (rc == 0 && sums.map.n == 0)
        mr_table_set_note(table,
                          "no GPU metrics %s; millrace profile --gpu-metrics records them, where "
                          "the driver permits it",
                          opts->from_ns || opts->to_ns || opts->range ? "in this window"
                                                                      : "in this recording");
    sums_free(&sums);
    mr_filter_close(&filter);
    if (rc == 0)
        return mr_report_finish(table, opts, "-Metric", out);
    mr_table_destroy(table);
    return rc;
}

const struct mr_report_kind mr_report_metrics = {"gpu_metrics_sum",
                                                 "Samples of the GPU's counters by metric", make};
