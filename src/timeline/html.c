/*
 * A recording as one HTML page: timeline.html with the style, the program and the data put in where
 * it says so.
 *
 * The data: a JSON object of names, rows and sums; and columns, one value an event, rows one after
 * the other: LEB128 numbers, deflated (zlib), base64. timeline.js reads them.
 */
#include "base/thread_pool.h"
#include "timeline/column.h"
#include "timeline/stacks.h"
#include "timeline/timeline.h"

#include <errno.h>
#include <millrace/text.h>
#include <millrace/version.h>
#include <string.h>

extern const unsigned char mr_timeline_page[], mr_timeline_style[], mr_timeline_script[];
extern const unsigned long mr_timeline_page_bytes, mr_timeline_style_bytes,
    mr_timeline_script_bytes;

static uint64_t zigzag(int64_t x)
{
    return (uint64_t)x << 1 ^ (x < 0 ? UINT64_MAX : 0);
}

/* ---- what is in the columns ---- */

struct page {
    FILE *file;
    const struct mr_timeline *tl;
    struct mr_tl_details *details;
    struct mr_texts names; /* that are used */
    uint32_t *name_of;     /* of each name of the timeline, its number there */
    uint32_t **in_rows;    /* of each lane: its events, level by level */
    uint32_t **row_of;     /* of each lane of calls: the place of each event among these */
    struct text *texts;    /* of the columns */
};

struct row { /* of one event, as columns see it */
    const struct mr_lane *lane;
    const struct mr_tl_event *event, *before; /* before: NULL at the beginning of a row */
    uint64_t index;
};

static uint64_t value_start(const struct page *page, const struct row *row)
{
    (void)page;
    return row->event->start_ns - (row->before ? row->before->start_ns : 0);
}

static uint64_t value_duration(const struct page *page, const struct row *row)
{
    (void)page;
    return row->event->end_ns - row->event->start_ns;
}

static uint64_t value_name(const struct page *page, const struct row *row)
{
    return page->name_of[row->event->name];
}

static uint64_t value_shape(const struct page *page, const struct row *row)
{
    (void)page;
    return row->event->shape;
}

static uint64_t value_bytes(const struct page *page, const struct row *row)
{
    (void)page;
    return row->event->bytes;
}

static uint64_t value_detail(const struct page *page, const struct row *row)
{
    return mr_tl_detail(page->details, row->lane, row->event);
}

/* The call of device work as a distance in events; 0: none (no event is its own call). */
static uint64_t value_link(const struct page *page, const struct row *row)
{
    const struct mr_timeline *tl = page->tl;
    if (row->lane->kind != MR_LANE_STREAM)
        return 0;
    uint32_t api = tl->rec->ops[row->event->source].api;
    const struct mr_lane *calls = mr_timeline_call_lane(tl, api);
    if (!calls)
        return 0;
    uint64_t call = calls->first + page->row_of[calls - tl->lanes][tl->event_of_api[api]];
    return zigzag((int64_t)(call - row->index));
}

/* Calls: the correlation; engines: how many operations. */
static uint64_t value_number(const struct page *page, const struct row *row)
{
    if (row->lane->kind == MR_LANE_CALLS)
        return page->tl->rec->apis[row->event->source].correlation;
    return row->lane->kind == MR_LANE_ENGINE ? row->event->source : 0;
}

/* Calls that failed. */
static uint64_t value_result(const struct page *page, const struct row *row)
{
    return row->lane->kind == MR_LANE_CALLS
               ? (uint32_t)page->tl->rec->apis[row->event->source].result
               : 0;
}

static const struct {
    const char *name;
    uint64_t (*value)(const struct page *page, const struct row *row);
} columns[] = {{"detail", value_detail}, {"start", value_start},   {"duration", value_duration},
               {"link", value_link},     {"number", value_number}, {"name", value_name},
               {"shape", value_shape},   {"bytes", value_bytes},   {"result", value_result}};
#define DETAIL 0 /* the details are read for it, too: it takes longest, and begins first */

static void put_column(const struct page *page, struct mr_tl_column *column,
                       uint64_t (*value)(const struct page *page, const struct row *row))
{
    const struct mr_timeline *tl = page->tl;
    for (uint32_t k = 0; k < tl->n_lanes; k++) {
        const struct mr_lane *lane = &tl->lanes[tl->order[k]];
        struct row row = {.lane = lane, .index = lane->first};
        for (uint64_t i = 0; i < lane->n; i++, row.index++) {
            row.event = &lane->events[page->in_rows[tl->order[k]][i]];
            if (row.before && row.before->level != row.event->level)
                row.before = NULL;
            mr_tl_column_put(column, value(page, &row));
            row.before = row.event;
        }
    }
}

/* The columns' texts, each made by one thread: compressing is most of the work. */
struct text {
    struct mr_tl_text text;
    struct mr_error_kept failed; /* code 0: it did not */
};

struct making {
    struct page *page;
    struct text *texts; /* of `columns` */
};

static int make_text(struct page *page, size_t i, struct text *out)
{
    struct mr_tl_column *column;
    int rc = i == DETAIL ? mr_tl_details_create(page->tl, &page->details) : 0;
    if (rc < 0)
        return rc;
    rc = mr_tl_column_begin(&out->text, columns[i].name, &column);
    if (rc < 0)
        return rc;
    put_column(page, column, columns[i].value);
    return mr_tl_column_end(column);
}

static void make_one(void *user, uint64_t i, uint32_t who)
{
    const struct making *making = user;
    int rc = make_text(making->page, i, &making->texts[i]);
    (void)who;
    if (rc < 0)
        mr_error_keep(rc, &making->texts[i].failed);
}

#define THREADS    4
#define FEW_EVENTS 20000 /* with fewer, threads don't pay */

/* The threads are a matter of speed: without them the caller makes all. */
static int make_texts(struct page *page, struct text *texts)
{
    struct mr_thread_pool *pool = NULL;
    if (page->tl->n_events > FEW_EVENTS)
        (void)mr_thread_pool_create(THREADS, "mr-page", 0, &pool);
    mr_thread_pool_run(pool, make_one, &(struct making){page, texts}, MR_COUNT(columns));
    mr_thread_pool_destroy(pool);
    for (size_t i = 0; i < MR_COUNT(columns); i++)
        if (texts[i].failed.code)
            return mr_error_put(&texts[i].failed);
    return 0;
}

/* Counters as (time, value) numbers; values are scaled to millionths of the counter's largest. */
#define MAX_POINTS 20000

static uint64_t scaled(const struct mr_tl_counter *counter, double value)
{
    return value > 0 && counter->most > 0 ? (uint64_t)(value / counter->most * 1e6 + 0.5) : 0;
}

/* With several samples to a point, it is their mean; of memory, whose peak counts, the most. */
static void put_points(const struct mr_tl_counter *counter, struct mr_tl_column *column)
{
    uint64_t each = counter->n / MAX_POINTS + 1, last = 0;
    for (uint64_t i = 0; i < counter->n; i += each) {
        double sum = 0, most = 0;
        uint64_t n = MR_MIN(each, counter->n - i);
        for (uint64_t j = 0; j < n; j++) {
            sum += counter->points[i + j].value;
            most = MR_MAX(most, counter->points[i + j].value);
        }
        double value = counter->unit == MR_UNIT_BYTES ? most : sum / (double)n;
        mr_tl_column_put(column, counter->points[i].time_ns - last);
        mr_tl_column_put(column, scaled(counter, value));
        last = counter->points[i].time_ns;
    }
}

static int put_counter(struct page *page, const struct mr_tl_counter *counter, uint32_t k)
{
    struct mr_tl_text text = {0};
    struct mr_tl_column *column;
    char name[32];
    snprintf(name, sizeof(name), "counter-%u", k);
    int rc = mr_tl_column_begin(&text, name, &column);
    if (rc == 0) {
        put_points(counter, column);
        rc = mr_tl_column_end(column);
        fwrite(text.bytes, 1, text.n, page->file);
    }
    free(text.bytes);
    return rc;
}

static int put_counters(struct page *page)
{
    const struct mr_timeline *tl = page->tl;
    int rc = 0;
    for (uint32_t k = 0; k < tl->n_counters && rc == 0; k++)
        if (!tl->counters[k].binned) /* the page counts these at each zoom anew */
            rc = put_counter(page, &tl->counters[k], k);
    return rc;
}

/* Events level by level: a stable counting sort, so that each row stays sorted by start. */
static int order_lane(struct page *page, uint32_t k)
{
    const struct mr_lane *lane = &page->tl->lanes[k];
    uint64_t *at = calloc(lane->n_levels + 2u, sizeof(*at));
    page->in_rows[k] = malloc((lane->n + 1) * sizeof(**page->in_rows));
    page->row_of[k] =
        lane->kind == MR_LANE_CALLS ? malloc((lane->n + 1) * sizeof(**page->row_of)) : NULL;
    bool there = at && page->in_rows[k] && (page->row_of[k] || lane->kind != MR_LANE_CALLS);
    for (uint64_t i = 0; there && i < lane->n; i++)
        at[lane->events[i].level + 1]++;
    for (uint32_t i = 0; there && i < lane->n_levels; i++)
        at[i + 1] += at[i];
    for (uint64_t i = 0; there && i < lane->n; i++) {
        uint64_t to = at[lane->events[i].level]++;
        page->in_rows[k][to] = (uint32_t)i;
        if (page->row_of[k])
            page->row_of[k][i] = (uint32_t)to;
    }
    free(at);
    return there ? 0 : mr_error_nomem("timeline: rows", lane->n * 8);
}

static int take_names(struct page *page)
{
    const struct mr_timeline *tl = page->tl;
    int rc = mr_texts_init(&page->names);
    for (uint32_t k = 0; k < tl->n_lanes && rc == 0; k++) {
        for (uint64_t i = 0; i < tl->lanes[k].n && rc == 0; i++) {
            uint32_t name = tl->lanes[k].events[i].name;
            if (page->name_of[name])
                continue;
            const char *text = mr_timeline_name(tl, name);
            rc = mr_texts_add(&page->names, text, strlen(text), &page->name_of[name], NULL);
        }
    }
    return rc;
}

/* ---- the JSON object ---- */

static void put_texts(struct mr_json *json, const char *key, const struct mr_texts *texts,
                      uint32_t first)
{
    mr_json_array(json, key);
    for (uint32_t i = first; i < texts->n; i++)
        mr_json_string(json, NULL, texts->text[i]);
    mr_json_array_end(json);
}

static void put_lanes(const struct page *page, struct mr_json *json)
{
    static const char *const kinds[] = {"engine", "stream", "ranges", "calls", "os"};
    const struct mr_timeline *tl = page->tl;
    char text[256];
    mr_json_array(json, "lanes");
    for (uint32_t k = 0; k < tl->n_lanes; k++) {
        const struct mr_lane *lane = &tl->lanes[tl->order[k]];
        mr_json_object(json, NULL);
        mr_json_string(json, "kind", kinds[lane->kind]);
        mr_lane_group(tl, lane, text, sizeof(text));
        mr_json_string(json, "group", text);
        mr_lane_label(tl, lane, text, sizeof(text));
        mr_json_string(json, "label", text);
        mr_json_string(json, "role", mr_timeline_role(tl, lane));
        if (lane->kind >= MR_LANE_RANGES)
            mr_json_bool(json, "waits", tl->use[lane->thread] == MR_THREAD_WAITS);
        if (lane->kind <= MR_LANE_STREAM)
            mr_json_uint(json, "device", lane->device);
        if (lane->kind == MR_LANE_ENGINE) {
            mr_json_uint(json, "engine", lane->engine);
            mr_json_uint(json, "busy", lane->busy_ns);
        }
        mr_json_array(json, "levels");
        uint64_t n = 0;
        const uint32_t *rows = page->in_rows[tl->order[k]];
        for (uint64_t i = 0; i < lane->n; i++) {
            n++;
            if (i + 1 == lane->n ||
                lane->events[rows[i]].level != lane->events[rows[i + 1]].level) {
                mr_json_uint(json, NULL, n);
                n = 0;
            }
        }
        mr_json_array_end(json);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

static void put_sums(const struct page *page, struct mr_json *json)
{
    static const char *const units[] = {"", "ns", "bytes", "bytes/s", "%", ""};
    const struct mr_timeline *tl = page->tl;
    mr_json_array(json, "shapes");
    for (int i = 0; i < MR_N_SHAPES; i++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", mr_shape_names[i]);
        mr_json_uint(json, "count", tl->count[i]);
        mr_json_uint(json, "bytes", tl->bytes[i]);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_array(json, "counters");
    for (uint32_t i = 0; i < tl->n_counters; i++) {
        const struct mr_tl_counter *counter = &tl->counters[i];
        if (counter->binned)
            continue;
        mr_json_object(json, NULL);
        mr_json_uint(json, "column", i);
        mr_json_string(json, "name", counter->name);
        mr_json_int(json, "device", counter->device == UINT16_MAX ? -1 : counter->device);
        mr_json_string(json, "unit", units[counter->unit]);
        mr_json_double(json, "most", counter->most);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

static int put_object(struct page *page)
{
    const struct mr_timeline *tl = page->tl;
    struct mr_texts notes = {0};
    struct mr_json *json = mr_json_create(0);
    int rc = json ? mr_timeline_notes(tl, &notes) : mr_error_nomem("timeline: JSON", 0);
    if (rc == 0) {
        mr_json_object(json, NULL);
        mr_json_string(json, "title", tl->title);
        mr_json_string(json, "version", mr_version());
        mr_json_uint(json, "from", tl->from_ns);
        mr_json_uint(json, "to",
                     tl->to_ns - (tl->to_ns > tl->rec->end_ns && tl->rec->end_ns > tl->from_ns));
        mr_json_uint(json, "events", tl->n_events);
        mr_timeline_put_story(tl, json);
        put_texts(json, "notes", &notes, 1);
        put_lanes(page, json);
        put_sums(page, json);
        put_texts(json, "names", &page->names, 0);
        put_texts(json, "details", mr_tl_detail_texts(page->details), 0);
        mr_json_object_end(json);
        const char *text = NULL;
        int64_t n = mr_json_finish(json, &text);
        rc = n < 0 ? (int)n : 0;
        fputs("<script type=\"application/json\" id=\"about\">", page->file);
        for (int64_t i = 0; i < n; i++) { /* "</script>" in a name would end it */
            if (text[i] == '<')
                fputs("\\u003c", page->file);
            else
                putc(text[i], page->file);
        }
        fputs("</script>\n", page->file);
    }
    mr_texts_free(&notes);
    mr_json_destroy(json);
    return rc;
}

static int put_data(struct page *page)
{
    int rc = put_object(page);
    for (size_t i = 0; i < MR_COUNT(columns); i++)
        fwrite(page->texts[i].text.bytes, 1, page->texts[i].text.n, page->file);
    return rc == 0 ? put_counters(page) : rc;
}

/* The page, with what its places "{{style}}", ... ask for. */
static int put_page(struct page *page)
{
    const char *at = (const char *)mr_timeline_page, *end = at + mr_timeline_page_bytes;
    int rc = 0;
    while (at < end && rc == 0) {
        const char *place = memmem(at, (size_t)(end - at), "{{", 2);
        const char *close = place ? memmem(place, (size_t)(end - place), "}}", 2) : NULL;
        fwrite(at, 1, (size_t)((close ? place : end) - at), page->file);
        if (!close)
            break;
        if (!strncmp(place, "{{title", 7))
            mr_text_write_xml(page->tl->title, page->file);
        else if (!strncmp(place, "{{style", 7))
            fwrite(mr_timeline_style, 1, mr_timeline_style_bytes, page->file);
        else if (!strncmp(place, "{{script", 8))
            fwrite(mr_timeline_script, 1, mr_timeline_script_bytes, page->file);
        else if (!strncmp(place, "{{flame", 7))
            rc = mr_timeline_flame_put(page->file, page->tl);
        else
            rc = put_data(page);
        at = close + 2;
    }
    return rc;
}

static int page_fill(struct page *page)
{
    const struct mr_timeline *tl = page->tl;
    page->name_of = calloc((size_t)tl->rec->n_strings + 64, sizeof(*page->name_of));
    page->in_rows = calloc(tl->n_lanes + 1u, sizeof(*page->in_rows));
    page->row_of = calloc(tl->n_lanes + 1u, sizeof(*page->row_of));
    page->texts = calloc(MR_COUNT(columns), sizeof(*page->texts));
    if (!page->name_of || !page->in_rows || !page->row_of || !page->texts)
        return mr_error_nomem("timeline: page", MR_COUNT(columns) * sizeof(*page->texts));
    int rc = take_names(page);
    for (uint32_t k = 0; k < tl->n_lanes && rc == 0; k++)
        rc = order_lane(page, k);
    if (rc == 0)
        rc = make_texts(page, page->texts);
    return rc == 0 ? put_page(page) : rc;
}

int mr_timeline_html(FILE *file, const struct mr_timeline *tl)
{
    struct page page = {.file = file, .tl = tl};
    int rc = page_fill(&page);
    for (uint32_t k = 0; k < tl->n_lanes; k++) {
        free(page.in_rows ? page.in_rows[k] : NULL);
        free(page.row_of ? page.row_of[k] : NULL);
    }
    free(page.in_rows);
    free(page.row_of);
    free(page.name_of);
    for (size_t i = 0; page.texts && i < MR_COUNT(columns); i++)
        free(page.texts[i].text.bytes);
    free(page.texts);
    mr_texts_free(&page.names);
    mr_tl_details_destroy(page.details);
    return rc;
}
