/* The report queue_depth: how many launches are queued ahead of the device, by stream. */
#include "recording/queue.h"
#include "report/report.h"

static const struct mr_column columns[] = {{"PID", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Device", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Context", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Strm", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Launches", MR_UNIT_COUNT, MR_CELL_INT},
                                           {"Min", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Med", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Max", MR_UNIT_NONE, MR_CELL_INT},
                                           {"Found Empty", MR_UNIT_PERCENT, MR_CELL_REAL},
                                           {"Time Empty", MR_UNIT_PERCENT, MR_CELL_REAL},
                                           {"Time Waiting", MR_UNIT_NS, MR_CELL_INT}};

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

static void put_row(struct mr_table *table, const struct mr_look *look,
                    const struct mr_streams *streams, uint32_t stream, const struct mr_queue *queue)
{
    const struct mr_recording *rec = look->rec;
    uint16_t p = look->place.process;
    mr_table_row(table);
    mr_table_int(table, p < rec->n_processes ? rec->processes[p].pid : 0);
    mr_table_int(table, mr_place_device_id(rec, &look->place));
    mr_table_int(table, (int64_t)(streams->key[stream] >> 32));
    mr_table_int(table, (int64_t)(streams->key[stream] & UINT32_MAX));
    mr_table_int(table, (int64_t)queue->n);
    mr_table_int(table, (int64_t)queue->min);
    mr_table_int(table, (int64_t)queue->median);
    mr_table_int(table, (int64_t)queue->max);
    mr_table_real(table, percent(queue->n_empty, queue->n));
    mr_table_real(table, 100 - percent(queue->waiting_ns, look->wall_ns));
    mr_table_int(table, (int64_t)queue->waiting_ns);
}

static int add_place(const struct mr_look *look, void *user)
{
    struct mr_table *table = user;
    struct mr_streams streams;
    struct mr_intervals waiting = {0};
    struct mr_queue *queues = NULL;
    bool first = mr_table_rows(table) == 0;
    int rc = mr_streams_make(look, &streams);
    if (rc)
        return rc;
    rc = mr_queues_find(look, &streams, &queues, &waiting);
    for (uint32_t s = 0; !rc && s < streams.n; s++)
        if (queues[s].n > 0)
            put_row(table, look, &streams, s, &queues[s]);
    if (!rc && first)
        mr_table_set_note(table,
                          "The queue of device %u was empty %.0f%% of the time: nothing waited "
                          "behind running work",
                          mr_place_device_id(look->rec, &look->place),
                          100 - percent(mr_intervals_measure(&waiting), look->wall_ns));
    free(queues);
    mr_intervals_free(&waiting);
    mr_streams_free(&streams);
    return rc;
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct mr_place *places = NULL;
    uint32_t n_places = 0;
    struct mr_table *table = mr_table_create("Launches queued ahead of the device (queue_depth)",
                                             columns, MR_COUNT(columns));
    int rc = table ? mr_recording_load(recording) : mr_error_nomem("a report", sizeof columns);
    rc = rc ? rc : mr_places_find(recording, &places, &n_places);
    rc =
        rc ? rc : mr_report_looks(recording, places, n_places, opts->step, false, add_place, table);
    if (!rc && mr_table_rows(table) == 0)
        mr_table_set_note(table, n_places ? "no launches were recorded in the steps"
                                          : "This recording has no device work.");
    free(places);
    if (!rc)
        return mr_report_finish(table, opts, NULL, out);
    mr_table_destroy(table);
    return rc;
}

const struct mr_report_kind mr_report_queue_depth = {
    "queue_depth", "How many launches are queued ahead of the device, by stream", make, 0};
