/* Lanes of events from a recording. */
#include "timeline/timeline.h"
#include "recording/comm.h"
#include "timeline/stacks.h"

#include <errno.h>
#include <string.h>

#define MAX_LEVELS 4096

const char *const mr_shape_names[MR_N_SHAPES] = {
    "kernel", "copy H2D", "copy D2H",  "copy D2D",        "copy",   "memset",
    "busy",   "launch",   "copy call", "synchronization", "memory", "call",
    "range",  "mark",     "OS call",   "communication"};

/* Names of what has none in the recording; they follow its strings. */
enum {
    NAME_H2D,
    NAME_D2H,
    NAME_D2D,
    NAME_COPY,
    NAME_SET,
    NAME_COMPUTE,
    NAME_COMM,
    NAME_BUSY,
    N_NAMES
};
static const char *const names[N_NAMES] = {"Memcpy H2D", "Memcpy D2H", "Memcpy D2D",    "Memcpy",
                                           "Memset",     "compute",    "communication", "GPU busy"};

const char *mr_timeline_name(const struct mr_timeline *tl, uint32_t name)
{
    return name < tl->rec->n_strings ? tl->rec->strings[name] : names[name - tl->rec->n_strings];
}

bool mr_timeline_shows(const struct mr_timeline *tl, uint64_t start_ns, uint64_t end_ns)
{
    return start_ns < tl->to_ns && (end_ns > tl->from_ns || start_ns >= tl->from_ns);
}

static int lane_add(struct mr_timeline *tl, const struct mr_lane *lane)
{
    uint64_t want = tl->n_lanes + 1ull;
    if (mr_grow("timeline: lanes", &tl->lanes, &tl->room_lanes, want, sizeof(*tl->lanes)) < 0)
        return -ENOMEM;
    tl->lanes[tl->n_lanes++] = *lane;
    return 0;
}

static uint64_t key_of(const struct mr_lane *lane)
{
    bool stream = lane->kind == MR_LANE_STREAM;
    uint64_t place = lane->kind == MR_LANE_ENGINE ? lane->device
                     : stream                     ? lane->stream
                                                  : lane->thread;
    uint64_t whose =
        stream
            ? mr_mix64((uint64_t)lane->process << 48 | (uint64_t)lane->device << 32 | lane->context)
            : lane->engine;
    return mr_mix64(whose * 8 + lane->kind) ^ place;
}

/* The lane like this one. NULL: no memory. */
static struct mr_lane *lane_get(struct mr_timeline *tl, const struct mr_lane *like)
{
    bool is_new;
    const uint32_t *index = mr_map_at(&tl->lane_of, key_of(like), tl->n_lanes, &is_new);
    if (!index || (is_new && lane_add(tl, like) < 0))
        return NULL;
    return &tl->lanes[*index];
}

static int event_add(struct mr_lane *lane, const struct mr_tl_event *event)
{
    uint64_t want = lane->n + 1;
    if (mr_grow("timeline: events", &lane->events, &lane->room, want, sizeof(*event)) < 0)
        return -ENOMEM;
    lane->events[lane->n++] = *event;
    return 0;
}

/* Joined with the engine's last event when they touch: what runs at once on several streams is busy
 * once. */
static int engine_add(struct mr_timeline *tl, uint16_t device, enum mr_engine engine,
                      const struct mr_tl_event *event)
{
    struct mr_lane *lane =
        lane_get(tl, &(struct mr_lane){.kind = MR_LANE_ENGINE, .device = device, .engine = engine});
    if (!lane)
        return -ENOMEM;
    struct mr_tl_event *last = lane->n ? &lane->events[lane->n - 1] : NULL;
    if (last && last->end_ns >= event->start_ns) {
        last->end_ns = MR_MAX(last->end_ns, event->end_ns);
        last->source++;
        if (!mr_add(last->bytes, event->bytes, &last->bytes))
            last->bytes = UINT64_MAX;
        return 0;
    }
    struct mr_tl_event joined = *event;
    joined.source = 1;
    if (engine == MR_ENGINE_ALL) {
        joined.shape = MR_SHAPE_BUSY;
        joined.name = tl->rec->n_strings + NAME_BUSY;
    } else if (engine == MR_ENGINE_COMPUTE) {
        joined.name = tl->rec->n_strings + NAME_COMPUTE;
    } else if (engine == MR_ENGINE_COMM) {
        joined.name = tl->rec->n_strings + NAME_COMM;
    }
    return event_add(lane, &joined);
}

/* Kernels have few names, each of which is looked at once. */
static enum mr_shape shape_of_kernel(struct mr_timeline *tl, uint32_t name)
{
    uint8_t *shape = &tl->kernel_shape[name];
    if (*shape == MR_N_SHAPES)
        *shape = mr_name_communicates(mr_rec_text(tl->rec, name)) ? MR_SHAPE_COMM : MR_SHAPE_KERNEL;
    return (enum mr_shape) * shape;
}

static enum mr_shape shape_of_op(struct mr_timeline *tl, const struct mr_rec_op *op)
{
    if (op->kind != MR_OP_COPY)
        return op->kind == MR_OP_KERNEL ? shape_of_kernel(tl, op->name) : MR_SHAPE_SET;
    switch (op->copy_kind) {
    case MR_COPY_H2D:
    case MR_COPY_H2A:
        return MR_SHAPE_H2D;
    case MR_COPY_D2H:
    case MR_COPY_A2H:
        return MR_SHAPE_D2H;
    case MR_COPY_D2D:
    case MR_COPY_A2A:
    case MR_COPY_A2D:
    case MR_COPY_D2A:
        return MR_SHAPE_D2D;
    default:
        return MR_SHAPE_COPY;
    }
}

static const struct {
    uint8_t engine, name;
} of_shape[] = {
    [MR_SHAPE_KERNEL] = {MR_ENGINE_COMPUTE, 0},     [MR_SHAPE_H2D] = {MR_ENGINE_H2D, NAME_H2D},
    [MR_SHAPE_D2H] = {MR_ENGINE_D2H, NAME_D2H},     [MR_SHAPE_D2D] = {MR_ENGINE_OTHER, NAME_D2D},
    [MR_SHAPE_COPY] = {MR_ENGINE_OTHER, NAME_COPY}, [MR_SHAPE_SET] = {MR_ENGINE_OTHER, NAME_SET},
    [MR_SHAPE_COMM] = {MR_ENGINE_COMM, 0},
};

static int op_add(struct mr_timeline *tl, uint32_t index)
{
    const struct mr_rec_op *op = &tl->rec->ops[index];
    if (!mr_timeline_shows(tl, op->start_ns, op->end_ns))
        return 0;
    enum mr_shape shape = shape_of_op(tl, op);
    struct mr_tl_event event = {
        .start_ns = op->start_ns,
        .end_ns = op->end_ns,
        .bytes = op->bytes,
        .source = index,
        .name = op->kind == MR_OP_KERNEL ? op->name : tl->rec->n_strings + of_shape[shape].name,
        .shape = (uint8_t)shape};
    struct mr_lane *lane = lane_get(tl, &(struct mr_lane){.kind = MR_LANE_STREAM,
                                                          .process = op->process,
                                                          .device = op->device,
                                                          .context = op->context,
                                                          .stream = op->stream});
    if (!lane || event_add(lane, &event) < 0)
        return -ENOMEM;
    int rc = engine_add(tl, op->device, MR_ENGINE_ALL, &event);
    return rc == 0 ? engine_add(tl, op->device, of_shape[shape].engine, &event) : rc;
}

static struct mr_lane *thread_lane(struct mr_timeline *tl, enum mr_lane_kind kind, uint32_t thread)
{
    return lane_get(tl, &(struct mr_lane){.kind = (uint8_t)kind,
                                          .process = tl->rec->threads[thread].process,
                                          .device = UINT16_MAX,
                                          .thread = thread});
}

static int api_add(struct mr_timeline *tl, uint32_t index)
{
    static const uint8_t shapes[] = {
        [MR_CALL_OTHER] = MR_SHAPE_CALL,          [MR_CALL_LAUNCH] = MR_SHAPE_LAUNCH,
        [MR_CALL_GRAPH_LAUNCH] = MR_SHAPE_LAUNCH, [MR_CALL_COPY] = MR_SHAPE_CALL_COPY,
        [MR_CALL_SET] = MR_SHAPE_CALL_COPY,       [MR_CALL_SYNC] = MR_SHAPE_SYNC,
        [MR_CALL_ALLOC] = MR_SHAPE_ALLOC,         [MR_CALL_PIN] = MR_SHAPE_ALLOC,
        [MR_CALL_QUERY] = MR_SHAPE_CALL,          [MR_CALL_MODULE] = MR_SHAPE_CALL};
    const struct mr_rec_api *api = &tl->rec->apis[index];
    tl->event_of_api[index] = MR_NONE;
    if (!mr_timeline_shows(tl, api->start_ns, api->end_ns))
        return 0;
    struct mr_lane *lane = thread_lane(tl, MR_LANE_CALLS, api->thread);
    if (!lane)
        return -ENOMEM;
    tl->event_of_api[index] = (uint32_t)lane->n;
    return event_add(lane, &(struct mr_tl_event){.start_ns = api->start_ns,
                                                 .end_ns = api->end_ns,
                                                 .source = index,
                                                 .name = api->name,
                                                 .shape = shapes[api->class]});
}

static int range_add(struct mr_timeline *tl, uint32_t index)
{
    const struct mr_rec_range *range = &tl->rec->ranges[index];
    if (!mr_timeline_shows(tl, range->start_ns, range->end_ns))
        return 0;
    struct mr_lane *lane = thread_lane(tl, MR_LANE_RANGES, range->thread);
    if (!lane)
        return -ENOMEM;
    return event_add(lane,
                     &(struct mr_tl_event){.start_ns = range->start_ns,
                                           .end_ns = range->end_ns,
                                           .source = index,
                                           .name = range->text,
                                           .shape = range->type == MR_RANGE_MARK ? MR_SHAPE_MARK
                                                                                 : MR_SHAPE_RANGE});
}

static int os_add(struct mr_timeline *tl, uint32_t index)
{
    const struct mr_rec_os *os = &tl->rec->os[index];
    if (!mr_timeline_shows(tl, os->start_ns, os->end_ns))
        return 0;
    struct mr_lane *lane = thread_lane(tl, MR_LANE_OS, os->thread);
    if (!lane)
        return -ENOMEM;
    return event_add(lane, &(struct mr_tl_event){.start_ns = os->start_ns,
                                                 .end_ns = os->end_ns,
                                                 .bytes = os->bytes,
                                                 .source = index,
                                                 .name = os->name,
                                                 .shape = MR_SHAPE_OS});
}

static int add_all(struct mr_timeline *tl, uint64_t n,
                   int (*add)(struct mr_timeline *tl, uint32_t index))
{
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = add(tl, i);
    return rc;
}

/*
 * The first level that is free when an event starts. Outer ranges start first (or sort first), so
 * that what is inside comes below. When there are too many at once the last level would overlap:
 * those are left out and counted.
 */
static int set_levels(struct mr_timeline *tl, struct mr_lane *lane)
{
    uint64_t *free_at = calloc(MAX_LEVELS, sizeof(*free_at)), kept = 0;
    if (!free_at)
        return mr_error_nomem("timeline: levels", MAX_LEVELS * sizeof(*free_at));
    for (uint64_t i = 0; i < lane->n; i++) {
        struct mr_tl_event *event = &lane->events[i];
        uint16_t level = 0;
        while (level < lane->n_levels && free_at[level] > event->start_ns)
            level++;
        if (level == MAX_LEVELS) {
            tl->n_hidden++;
            if (lane->kind == MR_LANE_CALLS)
                tl->event_of_api[event->source] = MR_NONE;
            continue;
        }
        lane->n_levels = MR_MAX(lane->n_levels, (uint16_t)(level + 1));
        free_at[level] = event->end_ns;
        event->level = level;
        if (lane->kind == MR_LANE_CALLS)
            tl->event_of_api[event->source] = (uint32_t)kept;
        lane->events[kept++] = *event;
    }
    lane->n = kept;
    free(free_at);
    return 0;
}

static void add_up(struct mr_timeline *tl, struct mr_lane *lane)
{
    for (uint64_t i = 0; i < lane->n; i++) {
        const struct mr_tl_event *event = &lane->events[i];
        uint64_t start = MR_MAX(event->start_ns, tl->from_ns),
                 end = MR_MIN(event->end_ns, tl->to_ns);
        if (lane->kind == MR_LANE_ENGINE) {
            lane->busy_ns += end > start ? end - start : 0;
            continue;
        }
        tl->count[event->shape]++;
        if (lane->kind == MR_LANE_STREAM)
            tl->bytes[event->shape] += event->bytes;
    }
}

/* Devices first, then threads by what they do; of a thread its ranges, calls and OS calls together,
 * a process's first thread before others. */
static int compare_lanes(const void *a, const void *b, void *arg)
{
    const struct mr_timeline *tl = arg;
    const struct mr_lane *x = &tl->lanes[*(const uint32_t *)a],
                         *y = &tl->lanes[*(const uint32_t *)b];
    uint64_t keys[2][6];
    for (int i = 0; i < 2; i++) {
        const struct mr_lane *lane = i ? y : x;
        bool gpu = lane->kind <= MR_LANE_STREAM;
        const struct mr_rec_thread *thread = gpu ? NULL : &tl->rec->threads[lane->thread];
        keys[i][0] = !gpu;
        keys[i][1] = gpu ? 0 : tl->use[lane->thread];
        keys[i][2] = gpu ? lane->device : lane->process;
        keys[i][3] = gpu ? (uint64_t)lane->kind << 32 |
                               (lane->kind == MR_LANE_ENGINE ? lane->engine : lane->process)
                         : (uint64_t)(thread->tid != tl->rec->processes[thread->process].pid)
                                   << 32 |
                               lane->thread;
        keys[i][4] = gpu ? lane->context : lane->kind;
        keys[i][5] = lane->stream;
    }
    for (int k = 0; k < 6; k++)
        if (keys[0][k] != keys[1][k])
            return keys[0][k] < keys[1][k] ? -1 : 1;
    return 0;
}

static int order_lanes(struct mr_timeline *tl)
{
    tl->order = malloc((tl->n_lanes + 1) * sizeof(*tl->order));
    if (!tl->order)
        return mr_error_nomem("timeline: lanes", tl->n_lanes * sizeof(*tl->order));
    for (uint32_t i = 0; i < tl->n_lanes; i++)
        tl->order[i] = i;
    qsort_r(tl->order, tl->n_lanes, sizeof(*tl->order), compare_lanes, tl);
    uint64_t first = 0;
    for (uint32_t i = 0; i < tl->n_lanes; i++) {
        struct mr_lane *lane = &tl->lanes[tl->order[i]];
        lane->first = first;
        first += lane->n;
        if (lane->kind != MR_LANE_ENGINE)
            tl->n_events += lane->n;
    }
    return 0;
}

/* When the first event begins. A capture range (`profile -c`) may begin late: what is before it was
 * not recorded. */
uint64_t mr_timeline_first_ns(const struct mr_recording *rec)
{
    uint64_t first = rec->end_ns;
    for (uint64_t i = 0; i < rec->n_ops; i++)
        first = MR_MIN(first, rec->ops[i].start_ns);
    for (uint64_t i = 0; i < rec->n_ranges; i++)
        first = MR_MIN(first, rec->ranges[i].start_ns);
    for (uint64_t i = 0; i < rec->n_apis; i++)
        first = MR_MIN(first, rec->apis[i].start_ns);
    for (uint64_t i = 0; i < rec->n_os; i++)
        first = MR_MIN(first, rec->os[i].start_ns);
    return first;
}

static int set_window(struct mr_timeline *tl, const struct mr_timeline_opts *opts)
{
    const struct mr_recording *rec = tl->rec;
    tl->from_ns = opts->from_ns ? opts->from_ns : mr_timeline_first_ns(rec);
    tl->to_ns = opts->to_ns ? MR_MIN(opts->to_ns, rec->end_ns + 1) : rec->end_ns + 1;
    if (opts->from_ns > rec->end_ns)
        return mr_error_set(MR_EOPTION, "%s: from %.6f s: the recording ends at %.6f s", rec->path,
                            (double)opts->from_ns / 1e9, (double)rec->end_ns / 1e9);
    if (tl->from_ns >= tl->to_ns)
        return mr_error_set(MR_EOPTION,
                            "%s: from %.6f s to %.6f s: it has no events between them; it lasts "
                            "%.6f s",
                            rec->path, (double)opts->from_ns / 1e9,
                            (double)(opts->to_ns ? opts->to_ns : rec->end_ns) / 1e9,
                            (double)rec->end_ns / 1e9);
    tl->title = opts->title;
    for (uint32_t i = 0; i < rec->n_processes && !tl->title; i++) {
        const char *command = rec->strings[rec->processes[i].command],
                   *name = rec->strings[rec->processes[i].name];
        tl->title = *command ? command : *name ? name : NULL;
    }
    const char *slash = strrchr(rec->path, '/');
    if (!tl->title)
        tl->title = slash ? slash + 1 : rec->path;
    return 0;
}

int mr_timeline_make(struct mr_recording *rec, const struct mr_timeline_opts *opts,
                     struct mr_timeline *out)
{
    *out = (struct mr_timeline){.rec = rec};
    int rc = mr_recording_load(rec);
    if (rc == 0)
        rc = set_window(out, opts);
    if (rc < 0)
        return rc;
    out->event_of_api = malloc((rec->n_apis + 1) * sizeof(*out->event_of_api));
    if (!out->event_of_api)
        return mr_error_nomem("timeline: calls", rec->n_apis * sizeof(*out->event_of_api));
    out->kernel_shape = malloc(rec->n_strings + 1ull);
    if (!out->kernel_shape)
        return mr_error_nomem("timeline: names of kernels", rec->n_strings);
    memset(out->kernel_shape, MR_N_SHAPES, rec->n_strings);
    rc = add_all(out, rec->n_ops, op_add);
    if (rc == 0)
        rc = add_all(out, rec->n_ranges, range_add);
    if (rc == 0)
        rc = add_all(out, rec->n_apis, api_add);
    if (rc == 0)
        rc = add_all(out, rec->n_os, os_add);
    for (uint32_t i = 0; i < out->n_lanes && rc == 0; i++) {
        rc = set_levels(out, &out->lanes[i]);
        add_up(out, &out->lanes[i]);
    }
    if (rc == 0)
        rc = mr_timeline_look_at_threads(out);
    if (rc == 0)
        rc = order_lanes(out);
    if (rc == 0)
        rc = mr_timeline_count(out);
    return rc == 0 ? mr_timeline_count_memory(out) : rc;
}

void mr_timeline_free(struct mr_timeline *tl)
{
    for (uint32_t i = 0; i < tl->n_lanes; i++)
        free(tl->lanes[i].events);
    for (uint32_t i = 0; i < tl->n_counters; i++)
        free(tl->counters[i].points);
    free(tl->counters);
    free(tl->lanes);
    free(tl->order);
    free(tl->use);
    free(tl->kernel_shape);
    free(tl->event_of_api);
    mr_map_free(&tl->lane_of);
    *tl = (struct mr_timeline){0};
}

const struct mr_lane *mr_timeline_call_lane(const struct mr_timeline *tl, uint32_t api)
{
    if (api == MR_NONE || tl->event_of_api[api] == MR_NONE)
        return NULL;
    struct mr_lane like = {.kind = MR_LANE_CALLS, .thread = tl->rec->apis[api].thread};
    const uint32_t *index = mr_map_find(&tl->lane_of, key_of(&like));
    return index ? &tl->lanes[*index] : NULL;
}

const struct mr_lane *mr_timeline_engine(const struct mr_timeline *tl, uint16_t device,
                                         enum mr_engine engine)
{
    struct mr_lane like = {.kind = MR_LANE_ENGINE, .device = device, .engine = (uint8_t)engine};
    const uint32_t *index = mr_map_find(&tl->lane_of, key_of(&like));
    return index ? &tl->lanes[*index] : NULL;
}

void mr_timeline_opts_fill(struct mr_timeline_opts *opts, size_t size)
{
    const struct mr_timeline_opts full = {0};
    mr_opts_copy(opts, size, &full, sizeof(full));
}

struct job {
    const struct mr_timeline *tl;
    int (*write)(FILE *file, const struct mr_timeline *tl);
};

static int job_run(FILE *file, void *arg)
{
    struct job *job = arg;
    return job->write(file, job->tl);
}

int mr_timeline_put(struct mr_recording *rec, const struct mr_tl_story *story, const char *path,
                    enum mr_timeline_format format, const struct mr_timeline_opts *opts)
{
    static int (*const writers[])(FILE * file, const struct mr_timeline *tl) = {
        [MR_TIMELINE_PERFETTO] = mr_timeline_perfetto,
        [MR_TIMELINE_HTML] = mr_timeline_html,
        [MR_TIMELINE_SVG] = mr_timeline_svg,
        [MR_TIMELINE_FOLDED] = mr_timeline_folded};
    uint64_t n_samples = 0;
    if ((size_t)format >= MR_COUNT(writers))
        return mr_error_set(MR_EOPTION, "timeline: %d: no such format", (int)format);
    struct mr_timeline tl = {0};
    struct mr_timeline_opts all = *opts;
    if (format == MR_TIMELINE_SVG && !all.whole && all.from_ns == 0 && all.to_ns == 0) {
        all.from_ns = story->from_ns;
        all.to_ns = story->to_ns;
    }
    int rc = mr_recording_result(rec, mr_timeline_make(rec, &all, &tl));
    bool told = format == MR_TIMELINE_SVG || format == MR_TIMELINE_HTML;
    tl.story = told ? story : NULL;
    tl.out_samples = &n_samples;
    tl.samples_from_ns = all.from_ns;
    if (rc == 0)
        rc = mr_file_write(path, "picture", job_run, &(struct job){&tl, writers[format]});
    if (rc == 0 && all.out_events)
        *all.out_events = format == MR_TIMELINE_FOLDED ? n_samples : tl.n_events;
    mr_timeline_free(&tl);
    return rc;
}

int mr_timeline_write(struct mr_recording *recording, const char *path,
                      enum mr_timeline_format format, const struct mr_timeline_opts *opts)
{
    struct mr_timeline_opts all;
    struct mr_tl_story story = {0};
    mr_timeline_opts_init(&all);
    int rc = mr_opts_take("timeline_opts", opts, &all, sizeof(all));
    if (rc < 0)
        return rc;
    if (!recording || !path)
        return mr_error_null("mr_timeline_write", "a recording and a path");
    bool told = format == MR_TIMELINE_SVG || format == MR_TIMELINE_HTML;
    rc = told ? mr_timeline_story(recording, &story) : 0;
    rc = rc < 0 ? mr_recording_result(recording, rc)
                : mr_timeline_put(recording, &story, path, format, &all);
    mr_timeline_story_free(&story);
    return rc;
}
