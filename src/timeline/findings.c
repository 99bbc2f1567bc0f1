/* What is known of a recording, for the page: where its steps and their time are, and what the
 * advice found. A finding's evidence has rows with a place in time, or a name to look for. */
#include "table/table.h"
#include "timeline/timeline.h"

static void put_cell(const struct mr_table *table, uint64_t r, uint32_t c, struct mr_json *json)
{
    struct mr_cell cell = mr_table_cell(table, r, c);
    char text[MR_TEXT_CELL] = "";
    if (cell.type == MR_CELL_TEXT) {
        mr_json_string(json, NULL, cell.text);
        return;
    }
    if (cell.type != MR_CELL_EMPTY)
        mr_table_human(mr_table_column(table, c), MR_TIME_AUTO, &cell, text);
    mr_json_string(json, NULL, text);
}

static void put_place(const struct mr_table *table, uint64_t r, const char *key, const char *name,
                      struct mr_json *json)
{
    uint32_t column = mr_table_find(table, name);
    if (column == UINT32_MAX)
        return;
    struct mr_cell cell = mr_table_cell(table, r, column);
    if (cell.type == MR_CELL_INT && cell.integer >= 0)
        mr_json_uint(json, key, (uint64_t)cell.integer);
    else if (cell.type == MR_CELL_TEXT)
        mr_json_string(json, key, cell.text);
}

static void put_evidence(const struct mr_table *table, struct mr_json *json)
{
    uint32_t n_columns = table ? mr_table_columns(table) : 0;
    uint64_t n_rows = table ? mr_table_rows(table) : 0;
    mr_json_array(json, "heads");
    for (uint32_t c = 0; c < n_columns; c++)
        mr_json_string(json, NULL, mr_table_column(table, c)->name);
    mr_json_array_end(json);
    mr_json_array(json, "rows");
    for (uint64_t r = 0; r < n_rows; r++) {
        mr_json_object(json, NULL);
        put_place(table, r, "start", "Start", json);
        put_place(table, r, "duration", "Duration", json);
        put_place(table, r, "name", "Name", json);
        mr_json_array(json, "cells");
        for (uint32_t c = 0; c < n_columns; c++)
            put_cell(table, r, c, json);
        mr_json_array_end(json);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

static void put_findings(const struct mr_tl_story *story, struct mr_json *json)
{
    static const char *const verdicts[] = {
        [MR_FINE] = "fine", [MR_FOUND] = "found", [MR_CANNOT_TELL] = "cannot tell"};
    mr_json_array(json, "findings");
    for (uint32_t i = 0; story->advice && i < mr_advice_count(story->advice); i++) {
        const struct mr_finding *f = mr_advice_get(story->advice, i);
        mr_json_object(json, NULL);
        mr_json_string(json, "rule", f->rule);
        mr_json_string(json, "title", f->title);
        mr_json_string(json, "verdict", verdicts[f->verdict]);
        mr_json_string(json, "why", f->why);
        mr_json_string(json, "advice", f->advice ? f->advice : "");
        mr_json_double(json, "ms", f->saving_ms);
        mr_json_double(json, "percent", f->saving_percent);
        mr_json_bool(json, "step", f->per_step);
        mr_json_double(json, "confidence", f->confidence);
        put_evidence(f->evidence, json);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

/* Starts of steps: differences; at most MAX_MARKS, evenly left out. */
#define MAX_MARKS 20000

void mr_timeline_put_story(const struct mr_timeline *tl, struct mr_json *json)
{
    static const char *const parts[] = {"compute", "communication", "copy",
                                        "others",  "loader",        "idle"};
    const struct mr_tl_story *story = tl->story;
    uint64_t each = story->steps.n / MAX_MARKS + 1, last = 0;
    mr_json_object(json, "story");
    mr_json_string(json, "verdict", story->verdict);
    mr_json_bool(json, "data_bound", story->data_bound);
    mr_json_uint(json, "steps", story->n_steps);
    mr_json_uint(json, "wall", story->wall_ns);
    mr_json_uint(json, "from", MR_MAX(story->from_ns, tl->from_ns));
    mr_json_uint(json, "to", MR_MIN(story->to_ns, tl->to_ns));
    for (int i = 0; i < MR_N_SHARES; i++)
        mr_json_double(json, parts[i], story->part[i]);
    mr_json_array(json, "idle_classes");
    for (int i = 0; i < MR_N_IDLE; i++) {
        if (story->idle[i] <= 0)
            continue;
        mr_json_object(json, NULL);
        mr_json_string(json, "name", mr_idle_text((enum mr_idle_class)i));
        mr_json_double(json, "share", story->idle[i]);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_array(json, "marks");
    for (uint64_t i = 0; i < story->steps.n; i += each) {
        mr_json_uint(json, NULL, story->steps.at[i].start_ns - last);
        last = story->steps.at[i].start_ns;
    }
    mr_json_array_end(json);
    mr_json_object_end(json);
    put_findings(story, json);
}
