/*
 * A recording at a glance: one picture 1200 pixels wide with a lane for each engine of a device,
 * the ranges and calls of the threads that had the most to do, and where steps begin.
 */
#include "recording/look.h"
#include "timeline/draw.h"

#include <math.h>
#include <millrace/text.h>
#include <string.h>

enum {
    MARGIN = 20,
    LEFT = 218,
    VERDICT = 72,
    LINES = 17,
    LANE = 26,
    THREAD_ROW = 18,
    GROUP = 30,
    AXIS = 30,
    LEGEND = 30,
    MAX_THREADS = 4,
    MAX_DEPTH = 3,
    MAX_STREAMS = 6
};
#define MAX_NAMES 64
#define WIDE      (MR_OVERVIEW_W - LEFT - MARGIN)

#define TEXT      0x1d2733
#define SOFT      0x4a5663 /* texts have a contrast of 4.5 at least */
#define FAINT     0x5f6b78
#define LINE      0xe3e7ec
#define PANEL     0xf4f6f8
#define STEP      0xc2410c

/* As in timeline.js. */
static const uint32_t colours[MR_N_SHAPES] = {
    0x4b7fb3, 0x4f9d69, 0xdd8b3a, 0xa076b0, 0x9a7b62, 0x8b97a3, 0x5d7890, 0x86abcf,
    0x8fc3a0, 0x4fa9a6, 0xc694bd, 0xb3bdc8, 0x9aa7e0, 0x6b78c4, 0xcdb57c, 0xb5651d};
static const uint32_t range_colours[] = {0x9aa7e0, 0x8fc1cf, 0xc7a6d8, 0xd9a8c8,
                                         0xb3b8f0, 0xa3cfe0, 0xd6bde8, 0xaab4c8};
/* Of the bar's parts; idle time of a class has the colour of the events that it is in. */
static const uint32_t share_colours[MR_N_SHARES] = {0x4b7fb3, 0xb5651d, 0x8a9a2f,
                                                    0x7a5ea8, 0xd0473f, 0xc3cad1};
static const uint32_t idle_colours[MR_N_IDLE] = {
    [MR_IDLE_COMMUNICATION] = 0xb5651d,
    [MR_IDLE_SYNC] = 0x4fa9a6,
    [MR_IDLE_COPY] = 0x8fc3a0,
    [MR_IDLE_SETUP] = 0xc694bd,
    [MR_IDLE_LAUNCH] = 0x86abcf,
    [MR_IDLE_SWITCH] = 0x55606b,
    [MR_IDLE_OS] = 0xcdb57c,
    [MR_IDLE_HOST] = 0xc9a7a0,
    [MR_IDLE_UNEXPLAINED] = 0xc3cad1,
};
const char *const mr_share_names[MR_N_SHARES] = {"compute",         "communication",  "copies",
                                                 "other processes", "waits for data", "idle"};

struct overview {
    const struct mr_timeline *tl;
    FILE *file; /* NULL: only the height is asked for */
    double y;
    double top;   /* of the lanes: below the head */
    double scale; /* pixels a ns */
    bool events;  /* of the lanes: the second time; the first time their grounds and names */
    uint64_t
        ranges[MAX_NAMES]; /* hashes of ranges' names, as they came: they take colours in turn */
    uint32_t n_ranges;
    double busy[WIDE];     /* of the row that is drawn: each column's share of time ... */
    uint32_t colour[WIDE]; /* ... and colour */
};

static void rect(struct overview *o, double x, double y, double w, double h, uint32_t colour)
{
    if (o->file)
        mr_svg_rect(o->file, x, y, w, h, colour);
}

static void text(struct overview *o, double x, double y, enum mr_anchor anchor, bool bold, int size,
                 uint32_t colour, const char *what)
{
    if (o->file)
        mr_svg_text(o->file, x, y, anchor, bold, size, colour, what);
}

static double x_of(const struct overview *o, uint64_t time_ns)
{
    double x = ((double)time_ns - (double)o->tl->from_ns) * o->scale;
    return x < 0 ? 0 : x > WIDE ? WIDE : x;
}

/* Toward the white of the ground. */
static uint32_t faded(uint32_t colour, double strength)
{
    uint32_t out = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        double part = colour >> shift & 255;
        out |= (uint32_t)lround(255 - (255 - part) * strength) << shift;
    }
    return out;
}

/* As much of a text as fits, with a mark where it was cut. out: 256 bytes; empty when nothing
 * fits. */
static const char *fitted(const char *what, double room, char *out)
{
    int most = (int)(room / MR_LETTER_W), n = 0;
    size_t at = 0;
    *out = 0;
    while (what[at] && n < most && at < 240) {
        at++;
        while ((what[at] & 0xc0) == 0x80)
            at++;
        n++;
    }
    if (what[at] && most < 5)
        return out;
    snprintf(out, 256, "%.*s", (int)at, what);
    if (what[at] && n >= 2 && at >= 2 && (what[at - 1] & 0x80) == 0 && (what[at - 2] & 0x80) == 0)
        memcpy(out + at - 2, "..", 2);
    return out;
}

static uint32_t colour_of(struct overview *o, const struct mr_tl_event *event)
{
    if (event->shape != MR_SHAPE_RANGE)
        return colours[event->shape];
    const char *name = mr_timeline_name(o->tl, event->name);
    size_t n = strlen(name);
    while (n && ((name[n - 1] >= '0' && name[n - 1] <= '9') || name[n - 1] == ' '))
        n--;
    uint64_t hash = mr_hash(MR_HASH_START, name, n);
    uint32_t i = 0;
    while (i < o->n_ranges && o->ranges[i] != hash)
        i++;
    if (i == o->n_ranges && i < MAX_NAMES)
        o->ranges[o->n_ranges++] = hash;
    return range_colours[i % MR_COUNT(range_colours)];
}

static void put_columns(struct overview *o, double y, double h)
{
    for (int i = 0; i < WIDE;) {
        double strength = o->busy[i] > 0 ? 0.35 + 0.65 * ceil(MR_MIN(o->busy[i], 1) * 8) / 8 : 0;
        uint32_t colour = faded(o->colour[i], strength);
        int first = i;
        for (; i < WIDE; i++) {
            double here = o->busy[i] > 0 ? 0.35 + 0.65 * ceil(MR_MIN(o->busy[i], 1) * 8) / 8 : 0;
            if (here != strength || (here > 0 && o->colour[i] != o->colour[first]))
                break;
        }
        if (strength > 0)
            rect(o, LEFT + first, y, i - first, h, colour);
    }
}

/* Adds an event that is narrow to the columns it touches. */
static void add_columns(struct overview *o, double x0, double x1, uint32_t colour)
{
    int last = (int)MR_MIN(x1, WIDE - 1.0);
    for (int i = (int)x0; i <= last && i < WIDE; i++) {
        double part = MR_MIN(x1, i + 1.0) - MR_MAX(x0, (double)i);
        if (part > o->busy[i] || o->busy[i] == 0)
            o->colour[i] = colour;
        o->busy[i] += MR_MAX(part, 0.02);
    }
}

static void draw_level(struct overview *o, const struct mr_lane *lane, uint16_t level, double y,
                       double h)
{
    memset(o->busy, 0, sizeof(o->busy));
    for (uint64_t i = 0; i < lane->n; i++) {
        const struct mr_tl_event *event = &lane->events[i];
        double x0 = x_of(o, event->start_ns), x1 = x_of(o, event->end_ns);
        if (event->level == level && x1 - x0 < 3)
            add_columns(o, x0, x1, colour_of(o, event));
    }
    put_columns(o, y, h);
    for (uint64_t i = 0; i < lane->n; i++) {
        const struct mr_tl_event *event = &lane->events[i];
        double x0 = x_of(o, event->start_ns), x1 = x_of(o, event->end_ns);
        if (event->level != level || x1 - x0 < 3)
            continue;
        rect(o, LEFT + x0, y, x1 - x0 - 0.6, h, colour_of(o, event));
        char label[256];
        const char *name = lane->kind == MR_LANE_ENGINE ? "" : mr_timeline_name(o->tl, event->name);
        if (*fitted(name, x1 - x0 - 8, label))
            text(o, LEFT + x0 + 4, y + h / 2, MR_LEFT, false, 11,
                 lane->kind == MR_LANE_STREAM ? 0xffffff : TEXT, label);
    }
}

static void draw_label(struct overview *o, double y, const char *label, double share)
{
    char part[16], cut[256];
    text(o, MARGIN + 8, y, MR_LEFT, false, 12, SOFT, fitted(label, LEFT - MARGIN - 70, cut));
    if (share < 0)
        return;
    if (share > 0 && share < 0.0005)
        snprintf(part, sizeof(part), "<0.1%%");
    else
        snprintf(part, sizeof(part), share >= 0.0995 ? "%.0f%%" : "%.1f%%", share * 100);
    text(o, LEFT - 10, y, MR_RIGHT, true, 12, TEXT, part);
}

static void draw_group(struct overview *o, const struct mr_lane *lane)
{
    char name[256], cut[256];
    mr_lane_group(o->tl, lane, name, sizeof(name));
    if (o->events) { /* over the lines of steps */
        fitted(name, MR_OVERVIEW_W - 2 * MARGIN, cut);
        rect(o, MARGIN, o->y + 9, (double)strlen(cut) * MR_LETTER_W + 4, 17, 0xffffff);
        text(o, MARGIN, o->y + GROUP / 2.0 + 3, MR_LEFT, true, 12, TEXT, cut);
    }
    o->y += GROUP;
}

static void draw_lane(struct overview *o, const struct mr_lane *lane)
{
    char label[128];
    bool engine = lane->kind == MR_LANE_ENGINE;
    int height = engine ? LANE : THREAD_ROW, depth = MR_MIN(lane->n_levels, engine ? 1 : MAX_DEPTH);
    double wide = (double)(o->tl->to_ns - o->tl->from_ns);
    mr_lane_label(o->tl, lane, label, sizeof(label));
    if (!o->events) {
        draw_label(o, o->y + height / 2.0, label, engine ? (double)lane->busy_ns / wide : -1);
        rect(o, LEFT, o->y + 1, WIDE, height * depth - 2, PANEL);
    }
    for (int level = 0; level < depth; level++) {
        if (o->file && o->events)
            draw_level(o, lane, (uint16_t)level, o->y + 2, height - 4);
        o->y += height;
    }
    o->y += 3;
}

/* The threads with the most events, in the order of the lanes; not those with next to none. */
static bool is_shown(const struct mr_timeline *tl, const struct mr_lane *lane)
{
    uint64_t mine = 0, most = 0;
    uint32_t ahead = 0;
    uint32_t before = MR_NONE;
    for (uint32_t i = 0; i < tl->n_lanes; i++)
        if (tl->lanes[i].kind >= MR_LANE_RANGES && tl->lanes[i].thread == lane->thread)
            mine += tl->lanes[i].n;
    for (uint32_t i = 0; i < tl->n_lanes; i++) {
        const struct mr_lane *first = &tl->lanes[tl->order[i]];
        if (first->kind < MR_LANE_RANGES || first->thread == before ||
            first->thread == lane->thread)
            continue;
        before = first->thread;
        uint64_t n = 0;
        for (uint32_t k = i; k < tl->n_lanes && tl->lanes[tl->order[k]].thread == before; k++)
            n += tl->lanes[tl->order[k]].n;
        ahead += n > mine || (n == mine && first->thread < lane->thread);
        most = MR_MAX(most, n);
    }
    return ahead < MAX_THREADS && mine >= most / 100;
}

static void draw_lanes(struct overview *o)
{
    const struct mr_timeline *tl = o->tl;
    const struct mr_lane *last = NULL;
    uint32_t streams = 0;
    for (uint32_t i = 0; i < tl->n_lanes; i++) {
        const struct mr_lane *lane = &tl->lanes[tl->order[i]];
        bool gpu = lane->kind <= MR_LANE_STREAM;
        if (lane->kind == MR_LANE_STREAM ? streams >= MAX_STREAMS : !gpu && !is_shown(tl, lane))
            continue;
        bool same = last && gpu == (last->kind <= MR_LANE_STREAM) &&
                    (gpu ? last->device == lane->device : last->thread == lane->thread);
        if (!same) {
            draw_group(o, lane);
            streams = 0;
        }
        streams += lane->kind == MR_LANE_STREAM;
        draw_lane(o, lane);
        last = lane;
    }
}

static double nice_step(double range)
{
    double raw = range / 8, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

static void draw_axis(struct overview *o, double bottom)
{
    double from = (double)o->tl->from_ns, to = (double)o->tl->to_ns, step = nice_step(to - from);
    double shown = step * 10; /* so that steps have at most two digits before the point */
    int unused;
    const char *unit = mr_text_scale(MR_TEXT_NS_MICRO, 9, &shown, &unused);
    double each = step * 10 / shown;
    int digits = (int)MR_MAX(0, MR_MIN(6, -floor(log10(step / each) + 1e-9)));
    for (int64_t i = (int64_t)ceil(from / step), last = (int64_t)floor(to / step); i <= last; i++) {
        double t = (double)i * step;
        char label[64];
        double x = LEFT + (t - from) * o->scale;
        rect(o, x, o->top, 1, bottom - o->top, LINE);
        snprintf(label, sizeof(label), "%.*f %s", digits, t / each, unit);
        if (x < MR_OVERVIEW_W - MARGIN - 20)
            text(o, x, bottom + 14, x < LEFT + 20 ? MR_LEFT : MR_MIDDLE, false, 11, SOFT, label);
    }
}

/* Marks where steps begin; a tick above the lanes, and a line through them while they are not too
 * many. */
static void draw_steps(struct overview *o, double bottom)
{
    const struct mr_steps *steps = &o->tl->story->steps;
    double last = -100;
    bool lines = steps->n <= WIDE / 24;
    for (uint64_t i = 0; i < steps->n; i++) {
        if (!mr_timeline_shows(o->tl, steps->at[i].start_ns, steps->at[i].start_ns))
            continue;
        double x = x_of(o, steps->at[i].start_ns);
        if (x - last < 3)
            continue;
        last = x;
        rect(o, LEFT + x, o->top - 8, 1.4, 7, STEP);
        if (lines)
            rect(o, LEFT + x, o->top, 1, bottom - o->top, faded(STEP, 0.3));
    }
    if (steps->n)
        text(o, LEFT - 10, o->top - 5, MR_RIGHT, false, 12, STEP, "steps begin");
}

struct bar {
    double x, y;           /* of the next part */
    double name_x, name_y; /* of its name below */
};

static void draw_part(struct overview *o, struct bar *bar, const char *name, double share,
                      uint32_t colour)
{
    char label[96];
    double wide = share * WIDE;
    if (share < 0.0005)
        return;
    rect(o, LEFT + bar->x, bar->y, wide, 12, colour);
    bar->x += wide;
    snprintf(label, sizeof(label), "%s %.*f%%", name, share < 0.0995, 100 * share);
    double room = 30 + (double)strlen(label) * MR_LETTER_W * 0.9;
    if (bar->name_x + room > WIDE + 20 && bar->name_x > 0) {
        bar->name_x = 0;
        bar->name_y += LINES;
    }
    rect(o, LEFT + bar->name_x, bar->name_y - 5, 10, 10, colour);
    text(o, LEFT + bar->name_x + 15, bar->name_y, MR_LEFT, false, 11, SOFT, label);
    bar->name_x += room;
}

/* A bar of where a step's time goes, and the names of all its parts. Returns its height. */
static double draw_parts(struct overview *o, double y)
{
    const struct mr_tl_story *story = o->tl->story;
    char label[96], mean[MR_TEXT_NUMBER];
    struct bar bar = {.y = y, .name_y = y + 24};
    bool classes = false;
    if (story->wall_ns == 0)
        return 0;
    mr_text_number((double)story->wall_ns / (double)MR_MAX(story->n_steps, 1), MR_TEXT_NS_MICRO,
                   mean);
    if (story->n_steps)
        snprintf(label, sizeof(label), "%llu steps of %s", (unsigned long long)story->n_steps,
                 mean);
    else
        snprintf(label, sizeof(label), "of %s", mean);
    text(o, LEFT - 10, y + 6, MR_RIGHT, true, 12, TEXT, label);
    for (int i = 0; i < MR_N_IDLE; i++)
        classes |= story->idle[i] > 0;
    for (int i = 0; i < MR_N_SHARES; i++)
        if (i != MR_SHARE_IDLE || !classes)
            draw_part(o, &bar, mr_share_names[i], story->part[i], share_colours[i]);
    for (int i = 0; i < MR_N_IDLE; i++) {
        snprintf(label, sizeof(label), "idle: %s", mr_idle_text((enum mr_idle_class)i));
        draw_part(o, &bar, label, story->idle[i], idle_colours[i]);
    }
    return bar.name_y - y;
}

/* The length of a text's first line, cut at a blank where there is one. */
static size_t line_length(const char *what)
{
    size_t most = (MR_OVERVIEW_W - 2 * MARGIN) / MR_LETTER_W, n = strlen(what);
    if (n <= most)
        return n;
    for (n = most; n > most / 2 && what[n] != ' ';)
        n--;
    return n;
}

/* The whole text, in as many lines as it needs; returns how many. */
static uint32_t draw_lines(struct overview *o, double y, uint32_t colour, const char *what)
{
    uint32_t n_lines = 0;
    char line[256];
    while (*what) {
        size_t n = line_length(what);
        snprintf(line, sizeof line, "%.*s", (int)n, what);
        text(o, MARGIN, y + LINES * n_lines++, MR_LEFT, false, 12, colour, line);
        what += n + (what[n] == ' ');
    }
    return n_lines;
}

static void draw_head(struct overview *o)
{
    const struct mr_timeline *tl = o->tl;
    char line[512], a[MR_TEXT_NUMBER], b[MR_TEXT_NUMBER], c[MR_TEXT_NUMBER], cut[256];
    text(o, MARGIN, 26, MR_LEFT, true, 16, TEXT,
         fitted(tl->title, (MR_OVERVIEW_W - 2.0 * MARGIN) / 1.35, cut));
    uint64_t shown_ns = MR_MIN(tl->to_ns, tl->rec->end_ns) - MR_MIN(tl->from_ns, tl->rec->end_ns);
    int n =
        snprintf(line, sizeof(line), "%s", mr_text_number((double)shown_ns, MR_TEXT_NS_MICRO, a));
    uint64_t recorded_ns = tl->rec->end_ns - mr_timeline_first_ns(tl->rec);
    if (shown_ns < recorded_ns)
        n += snprintf(line + n, sizeof(line) - (size_t)n, " of %s recorded",
                      mr_text_number((double)recorded_ns, MR_TEXT_NS_MICRO, b));
    uint32_t devices = 0;
    for (uint32_t i = 0; i < tl->n_lanes; i++)
        devices += tl->lanes[i].kind == MR_LANE_ENGINE && tl->lanes[i].engine == MR_ENGINE_ALL;
    for (uint32_t i = 0; i < tl->n_lanes && devices == 1; i++)
        if (tl->lanes[i].kind == MR_LANE_ENGINE && tl->lanes[i].engine == MR_ENGINE_ALL)
            n += snprintf(line + n, sizeof(line) - (size_t)n, "  \xc2\xb7  GPU busy %.1f%%",
                          100.0 * (double)tl->lanes[i].busy_ns / (double)(tl->to_ns - tl->from_ns));
    snprintf(line + n, sizeof(line) - (size_t)n,
             "  \xc2\xb7  %llu kernels  \xc2\xb7  H2D %s in %llu copies  \xc2\xb7  D2H %s in %llu "
             "copies%s",
             (unsigned long long)(tl->count[MR_SHAPE_KERNEL] + tl->count[MR_SHAPE_COMM]),
             mr_text_number((double)tl->bytes[MR_SHAPE_H2D], MR_TEXT_BYTES, b),
             (unsigned long long)tl->count[MR_SHAPE_H2D],
             mr_text_number((double)tl->bytes[MR_SHAPE_D2H], MR_TEXT_BYTES, c),
             (unsigned long long)tl->count[MR_SHAPE_D2H],
             tl->rec->n_dropped ? "  \xc2\xb7  records were dropped" : "");
    text(o, MARGIN, 50, MR_LEFT, false, 12, SOFT, line);
    uint32_t n_lines =
        draw_lines(o, VERDICT, tl->story->data_bound ? STEP : TEXT, tl->story->verdict);
    double parts = VERDICT + LINES * MR_MAX(n_lines, 2);
    double tall = draw_parts(o, parts);
    o->top = parts + MR_MAX(tall, 24) + 32;
}

static void draw_legend(struct overview *o, double y)
{
    double x = LEFT;
    for (int i = 0; i < MR_N_SHAPES; i++) {
        if (!o->tl->count[i])
            continue;
        double wide = 28 + (double)strlen(mr_shape_names[i]) * MR_LETTER_W;
        if (x + wide > MR_OVERVIEW_W - MARGIN)
            return;
        rect(o, x, y - 5, 10, 10, colours[i]);
        text(o, x + 15, y, MR_LEFT, false, 11, SOFT, mr_shape_names[i]);
        x += wide;
    }
}

uint32_t mr_overview_height(const struct mr_timeline *tl)
{
    struct overview o = {.tl = tl};
    draw_head(&o);
    o.y = o.top;
    draw_lanes(&o);
    return (uint32_t)o.y + AXIS + LEGEND + 8;
}

int mr_overview_draw(const struct mr_timeline *tl, FILE *file)
{
    struct overview *o = calloc(1, sizeof(*o));
    if (!o)
        return mr_error_nomem("timeline: overview", sizeof(*o));
    *o = (struct overview){
        .tl = tl, .file = file, .scale = WIDE / (double)(tl->to_ns - tl->from_ns)};
    uint32_t height = mr_overview_height(tl);
    double bottom = height - AXIS - LEGEND - 8;
    rect(o, 0, 0, MR_OVERVIEW_W, height, 0xffffff);
    draw_head(o);
    o->y = o->top;
    draw_lanes(o);
    draw_axis(o, bottom); /* lines lie on the grounds and under the events */
    draw_steps(o, bottom);
    o->y = o->top;
    o->events = true;
    draw_lanes(o);
    draw_legend(o, bottom + AXIS + 10);
    if (tl->n_lanes == 0)
        text(o, MR_OVERVIEW_W / 2.0, o->top + 10, MR_MIDDLE, false, 12, FAINT,
             "No events in this recording");
    free(o);
    return 0;
}
