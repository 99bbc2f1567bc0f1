/*
 * What all pictures of a recording are made from: lanes of events, and counters.
 *
 * A lane is a thread's ranges, its calls or its OS calls, a stream, or an engine of a device (the
 * union of what ran there). Its events are sorted by start. Events of one level of a lane never
 * overlap: a picture that draws each level as a row of its own hides nothing.
 */
#ifndef MR_TIMELINE_TIMELINE_H
#define MR_TIMELINE_TIMELINE_H

#include "recording/idle.h"
#include "recording/look.h"
#include "recording/map.h"
#include "recording/recording.h"

#include <millrace/json.h>

enum mr_lane_kind { MR_LANE_ENGINE, MR_LANE_STREAM, MR_LANE_RANGES, MR_LANE_CALLS, MR_LANE_OS };

/* In the order of a device's lanes. */
enum mr_engine {
    MR_ENGINE_ALL,
    MR_ENGINE_H2D,
    MR_ENGINE_COMPUTE,
    MR_ENGINE_D2H,
    MR_ENGINE_OTHER,
    MR_ENGINE_COMM, /* between ranks; none of it is compute */
    MR_N_ENGINES
};

/* What an event is, for its colour. timeline.js has the same list. */
enum mr_shape {
    MR_SHAPE_KERNEL,
    MR_SHAPE_H2D,
    MR_SHAPE_D2H,
    MR_SHAPE_D2D,
    MR_SHAPE_COPY,
    MR_SHAPE_SET,
    MR_SHAPE_BUSY,
    MR_SHAPE_LAUNCH,
    MR_SHAPE_CALL_COPY,
    MR_SHAPE_SYNC,
    MR_SHAPE_ALLOC,
    MR_SHAPE_CALL,
    MR_SHAPE_RANGE,
    MR_SHAPE_MARK,
    MR_SHAPE_OS,
    MR_SHAPE_COMM, /* a kernel of NCCL or RCCL */
    MR_N_SHAPES
};
extern const char *const mr_shape_names[MR_N_SHAPES];

struct mr_tl_event {
    uint64_t start_ns, end_ns, bytes;
    uint32_t name;   /* mr_timeline_name() */
    uint32_t source; /* of the recording's ops, apis, ranges or os; engines: how many operations */
    uint16_t level;
    uint8_t shape;
};

struct mr_lane {
    uint8_t kind;             /* enum mr_lane_kind */
    uint8_t engine;           /* enum mr_engine */
    uint16_t process, device; /* a device's lanes have a device, a thread's a thread */
    uint32_t thread, context, stream;
    uint16_t n_levels;
    struct mr_tl_event *events;
    uint64_t n, room;
    uint64_t first;   /* of this lane's events among all */
    uint64_t busy_ns; /* engines: in [from, to) */
};

struct mr_tl_point {
    uint64_t time_ns;
    double value;
};

struct mr_tl_counter {
    char name[96];
    uint16_t device; /* UINT16_MAX: of no device */
    uint8_t unit;    /* enum mr_unit */
    struct mr_tl_point *points;
    uint64_t n, room;
    double most;
    bool binned; /* made of the picture's own events */
};

/* Shares of the steps' time (of all the time that was looked at, without steps). */
enum mr_tl_share {
    MR_SHARE_COMPUTE,
    MR_SHARE_COMM, /* communication that no compute hides */
    MR_SHARE_COPY,
    MR_SHARE_OTHERS, /* other processes on the device */
    MR_SHARE_LOADER,
    MR_SHARE_IDLE,
    MR_N_SHARES
};
extern const char *const mr_share_names[MR_N_SHARES];

struct mr_tl_story {
    struct mr_steps steps;     /* of the device with the most to do */
    double part[MR_N_SHARES];  /* 0 all: kernels were not recorded */
    uint64_t n_steps, wall_ns; /* that the shares are of, without those that warm up */
    uint64_t from_ns, to_ns;   /* where these are; 0, 0: nowhere */
    char verdict[2048];        /* what millrace analyze says first; "": no device work */
    bool data_bound;           /* it says so */
    double idle[MR_N_IDLE];    /* what MR_SHARE_IDLE consists of; all 0: not known */
    struct mr_advice *advice;
};
/* story.c. Free with mr_timeline_story_free() in any case. */
int mr_timeline_story(struct mr_recording *rec, struct mr_tl_story *out);
void mr_timeline_story_free(struct mr_tl_story *story);

/* In the order of the rows. */
enum mr_thread_use { MR_THREAD_LAUNCHES, MR_THREAD_WORKS, MR_THREAD_WAITS };

struct mr_timeline {
    struct mr_recording *rec;
    const char *title;
    const struct mr_tl_story *story; /* NULL: none is told */
    uint64_t from_ns, to_ns;
    uint64_t samples_from_ns; /* of stacks: also those before the first event */
    struct mr_lane *lanes;
    uint32_t n_lanes;
    uint64_t room_lanes; /* of lanes and lane_order */
    uint32_t *order;     /* lanes as they are shown */
    struct mr_map lane_of;
    uint8_t *use;           /* of threads: enum mr_thread_use */
    uint8_t *kernel_shape;  /* of strings, as kernels; MR_N_SHAPES: not looked at yet */
    uint32_t *event_of_api; /* its number in its lane; MR_NONE: outside of the picture */
    uint64_t n_events;      /* without engines', which are made of others */
    uint64_t n_hidden;      /* too many at once to show */
    uint64_t *out_samples;  /* folded: how often stacks were sampled */
    struct mr_tl_counter *counters;
    uint32_t n_counters;
    uint64_t bytes[MR_N_SHAPES], count[MR_N_SHAPES];
};

/* Loads the recording and makes the lanes. opts: as for mr_timeline_write(). Free with
 * mr_timeline_free() in any case. */
int mr_timeline_make(struct mr_recording *rec, const struct mr_timeline_opts *opts,
                     struct mr_timeline *out);
void mr_timeline_free(struct mr_timeline *tl);

/* What is recorded begins here, and ends at rec->end_ns. */
uint64_t mr_timeline_first_ns(const struct mr_recording *rec);

/* counters.c: rates of copies, the device's busy share, the recording's own metrics. */
int mr_timeline_count(struct mr_timeline *tl);
int mr_timeline_count_memory(struct mr_timeline *tl); /* memory.c */
/* A new counter; NULL: no memory. Points come by time. */
struct mr_tl_counter *mr_timeline_counter(struct mr_timeline *tl);
int mr_timeline_point(struct mr_tl_counter *counter, uint64_t time_ns, double value);

/* threads.c: fills tl->use. The role, for people: "launches work", "waits"; "": none. */
int mr_timeline_look_at_threads(struct mr_timeline *tl);
const char *mr_timeline_role(const struct mr_timeline *tl, const struct mr_lane *lane);

/* findings.c: the members "story" and "findings". */
void mr_timeline_put_story(const struct mr_timeline *tl, struct mr_json *json);

const char *mr_timeline_name(const struct mr_timeline *tl, uint32_t name);
/* "H2D copies", "stream 7", "CUDA calls", ...; the group: "GPU 0: NVIDIA H200", "python3 (100):
 * thread 101 loader". */
void mr_lane_label(const struct mr_timeline *tl, const struct mr_lane *lane, char *out,
                   size_t bytes);
void mr_lane_group(const struct mr_timeline *tl, const struct mr_lane *lane, char *out,
                   size_t bytes);
/* The lane that has a call's event. NULL: outside of the picture. */
const struct mr_lane *mr_timeline_call_lane(const struct mr_timeline *tl, uint32_t api);
/* A device's engine; NULL when nothing ran on it. */
const struct mr_lane *mr_timeline_engine(const struct mr_timeline *tl, uint16_t device,
                                         enum mr_engine engine);
bool mr_timeline_shows(const struct mr_timeline *tl, uint64_t start_ns, uint64_t end_ns);

/* What a lane's event is beside its name: "pageable to device", "grid 128 x 1 x 1, ...". "":
 * nothing. */
struct mr_tl_details;
int mr_tl_details_create(const struct mr_timeline *tl, struct mr_tl_details **out);
void mr_tl_details_destroy(struct mr_tl_details *details);
/* Numbers of texts; 0: none. */
uint32_t mr_tl_detail(const struct mr_tl_details *details, const struct mr_lane *lane,
                      const struct mr_tl_event *event);
const struct mr_texts *mr_tl_detail_texts(const struct mr_tl_details *details);

/* Lines for people on what is missing or odd. Texts are freed by mr_texts_free(); number 0 is no
 * line. */
int mr_timeline_notes(const struct mr_timeline *tl, struct mr_texts *out);

/* Writes a picture that says so. story: of Perfetto traces it isn't read. opts: all of it. */
int mr_timeline_put(struct mr_recording *rec, const struct mr_tl_story *story, const char *path,
                    enum mr_timeline_format format, const struct mr_timeline_opts *opts);

/* One writer each: called with the file open; 0, an errno or an error. */
int mr_timeline_perfetto(FILE *file, const struct mr_timeline *tl);
int mr_timeline_html(FILE *file, const struct mr_timeline *tl);
int mr_timeline_svg(FILE *file, const struct mr_timeline *tl);

#endif
