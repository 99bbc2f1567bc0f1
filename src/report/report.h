/* What reports are made with: durations kept for exact medians, tables scanned by several threads,
 * names by number. */
#ifndef MR_REPORT_REPORT_H
#define MR_REPORT_REPORT_H

#include "recording/labels.h"
#include "recording/recording.h"

struct sqlite3_stmt;

/* Values of one name, 4 bytes each while they fit. Zeroed memory is an empty one. */
struct mr_series {
    void *values; /* uint32_t, or uint64_t when wide */
    uint64_t n, capacity;
    bool wide;
};
int mr_series_add(struct mr_series *series, uint64_t value);                    /* 0 or -ENOMEM */
int mr_series_append(struct mr_series *series, const struct mr_series *others); /* the same */
uint64_t mr_series_at(const struct mr_series *series, uint64_t i);
void mr_series_free(struct mr_series *series);

struct mr_series_stats {
    uint64_t n, min, max;
    double total; /* exact below 2^53 */
    double average, median, deviation /* of a sample: by n - 1 */;
};
/* Puts the values into another order. */
void mr_series_stats(struct mr_series *series, struct mr_series_stats *out);

/* Keys to numbers 0, 1, ... in the order that they came. Zeroed memory is an empty one. */
struct mr_key {
    uint64_t a, b;
};
struct mr_keymap {
    struct mr_key *keys;
    uint32_t *buckets;
    uint32_t n, capacity, n_buckets;
};
uint32_t mr_keymap_put(struct mr_keymap *map, struct mr_key key); /* MR_NONE: no memory */
uint32_t mr_keymap_get(const struct mr_keymap *map, struct mr_key key);
void mr_keymap_free(struct mr_keymap *map);

/* Groups of n_series series by key. */
struct mr_groups {
    struct mr_keymap map;
    struct mr_series *series; /* n_series for each key */
    uint32_t n_series, capacity;
};
struct mr_series *mr_groups_at(struct mr_groups *groups, struct mr_key key); /* NULL: no memory */
int mr_groups_merge(struct mr_groups *into, struct mr_groups *from); /* and empties `from` */
void mr_groups_free(struct mr_groups *groups);

/* The recording's StringIds as they are asked for. */
struct mr_names {
    struct mr_recording *recording;
    struct sqlite3_stmt *find;
    struct mr_keymap map;
    char **texts;
    uint64_t capacity;
};
int mr_names_open(struct mr_names *names, struct mr_recording *recording);
/* Never NULL: "" for a number that is not there, and when it cannot be read: then the recording
 * failed. */
const char *mr_names_get(struct mr_names *names, int64_t id);
void mr_names_close(struct mr_names *names);

/* Each operation of the device with each range that its call was made in (launched.c says which
 * that are); ops and ranges: indices of the loaded recording's. takes: NULL: every range. [out]
 * out_helped: operations that other threads launched than those of some of their ranges. */
struct mr_launched {
    bool (*takes)(const void *user, const struct mr_rec_range *range);
    int (*row)(void *user, uint32_t op, uint32_t range);
    void *user;
};
int mr_launched_walk(const struct mr_recording *rec, const struct mr_launched *launched,
                     uint64_t *out_helped);

/* Rows of a table by number; sorted. */
struct mr_row_set {
    uint32_t *rows;
    uint64_t n, capacity;
};

/* What a report takes of a recording: what begins in a window of time and inside of ranges; of the
 * device's work, unless by_time, what a call inside of these ranges launched, whenever it ran. */
struct mr_filter {
    struct mr_span {
        uint64_t start, end;
    } * spans; /* disjoint, sorted; of the database's clock */
    uint64_t n_spans, from, to;
    bool by_range, by_launch;
    char *domain, *text; /* of the ranges; domain NULL: any */
    /* by_launch: by enum mr_op_kind; alone: without a call, which may be of any range */
    struct mr_row_set launched[3], alone[3];
};
int mr_filter_open(struct mr_filter *filter, struct mr_recording *recording,
                   const struct mr_report_opts *opts);
bool mr_filter_takes(const struct mr_filter *filter, uint64_t start);
/* Whether the range is of those that were asked for; some were. */
bool mr_filter_names(const struct mr_filter *filter, const struct mr_recording *rec,
                     const struct mr_rec_range *range);
/* As mr_filter_takes() for an operation of the device: the row of its table. */
bool mr_filter_takes_op(const struct mr_filter *filter, enum mr_op_kind kind, int64_t row,
                        uint64_t start);
void mr_filter_close(struct mr_filter *filter);

/* What was left out of a sum, for its note. */
struct mr_left_out {
    uint64_t n_lost;     /* without times */
    uint64_t n_backward; /* that end before they begin */
    uint64_t n_alone;    /* whose call is not recorded, by launch */
    uint64_t n_unsized;  /* whose bytes are not known, by size */
};
void mr_left_out_add(struct mr_left_out *to, const struct mr_left_out *more);
/* Whether a record with these times counts; else counts it as left out, unless the filter does not
 * take it. kind: enum mr_op_kind with its row; MR_NO_OP: no work of the device. */
#define MR_NO_OP (-1)
bool mr_report_takes(const struct mr_filter *filter, struct mr_left_out *left, int kind,
                     int64_t row, int64_t start, int64_t end);
/* enum mr_op_kind of a table, or MR_NO_OP. */
int mr_report_op_kind(const char *table);

/*
 * Reads a table with every thread that this machine has for us, each with a connection of its own:
 * no order. sql: "SELECT ... FROM table WHERE ..." to which " rowid BETWEEN ?1 AND ?2" is added.
 * row: 0 or an error, set. states: one for each worker, used by one thread at a time.
 */
#define MR_SCAN_THREADS 4
int mr_scan(struct mr_recording *recording, const char *table, const char *sql,
            int (*row)(void *state, struct sqlite3_stmt *stmt),
            void *const states[MR_SCAN_THREADS]);

/* A worker that adds up series by a key of two numbers. */
struct mr_adder {
    const struct mr_filter *filter;
    const void *more; /* the report's own, for all workers */
    struct mr_groups groups;
    struct mr_left_out left;
    uint64_t n_alone; /* left out for want of another record */
};
/* mr_scan() with workers that begin as `like`; row's first argument is one. [out] out: what they
 * added up. On an error it is empty. */
int mr_groups_scan(struct mr_recording *recording, const char *table, const char *sql,
                   int (*row)(void *worker, struct sqlite3_stmt *stmt), const struct mr_adder *like,
                   struct mr_adder *out);

/* Series by name and tags (a category, a style, a grid and its blocks). Zeroed memory is an empty
 * list. */
struct mr_named_list {
    struct mr_named {
        char *name;
        const char *tag, *tag2; /* tag2: NULL: none */
        struct mr_series series;
    } * items;
    uint64_t n, capacity;
};
/* Takes the name, also on an error, and the series. NULL for a name: no memory, as its maker
 * found. */
int mr_named_add(struct mr_named_list *list, char *name, const char *tag, const char *tag2,
                 struct mr_series *series);
int mr_named_unite(struct mr_named_list *list); /* those alike become one; sorts by tags and name */
void mr_named_free(struct mr_named_list *list);

struct mr_named_heads {
    const char *count, *tag, *name; /* tag NULL: not shown */
    bool sizes;                     /* bytes, not durations */
    const char *tag2;               /* as tag */
};
/* A row for each name; takes the series. NULL: no memory, with the error set. */
struct mr_table *mr_named_table(struct mr_named_list *list, const char *title,
                                const struct mr_named_heads *heads);

/* SQL of the number of a kernel's name: enum mr_kernel_names, or the next best that there is. */
const char *mr_kernel_name_sql(struct mr_recording *recording, int names);

/* Kernels' grids and blocks by number, for several threads. Zeroed memory with a lock is empty. */
#define MR_SHAPE_COLUMNS "gridX, gridY, gridZ, blockX, blockY, blockZ"
struct mr_shapes {
    pthread_mutex_t lock;
    struct mr_keymap pairs, shapes; /* numbers of three pairs make a shape */
    struct mr_shape_text {
        char grid[40], block[40]; /* "  25    1    1", as nsys has it */
    } * texts;                    /* by mr_shapes_tell() */
};
/* The number of what stands in six columns; MR_NONE: no memory. */
uint32_t mr_shapes_put(struct mr_shapes *shapes, struct sqlite3_stmt *stmt, int column);
int mr_shapes_tell(struct mr_shapes *shapes); /* all texts, anew; 0 or -ENOMEM */
void mr_shapes_write(const uint32_t values[6], struct mr_shape_text *out);
void mr_shapes_free(struct mr_shapes *shapes);

/* Prepares a statement of the recording. Returns 0 or an error that names the file. */
int mr_sql_prepare(struct mr_recording *recording, struct sqlite3_stmt **out, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
/* 1: a row, 0: no more, else an error. */
int mr_sql_step(struct mr_recording *recording, struct sqlite3_stmt *stmt);
/* Steps once and resets. [out] out: the first column's text, to be freed; NULL: no row, or NULL
 * there. */
int mr_sql_text(struct mr_recording *recording, struct sqlite3_stmt *stmt, char **out);
/* The column, or the text `otherwise` where this schema has none. */
const char *mr_sql_column(struct mr_recording *recording, const char *table, const char *column,
                          const char *otherwise);

/*
 * API calls by process and correlation, the runtime's preferred over the driver's. Kept are those
 * of some classes, or those that are wanted; then the synchronising ones of all threads are kept
 * too. 32 bytes a call.
 */
struct mr_call {
    uint64_t start, end;
    uint32_t correlation;
    uint32_t thread; /* of threads */
    uint32_t name;   /* of StringIds */
    bool driver, sync;
};
struct mr_sync {
    uint64_t start, end;
    _Atomic uint64_t last_launch; /* of its thread, since the synchronisation before it; 0: none */
    uint32_t thread;
};
struct mr_calls {
    struct mr_call *calls;
    uint64_t n, capacity;
    uint32_t *buckets; /* numbers of calls, plus 1 */
    uint64_t n_buckets;
    struct mr_keymap threads; /* globalTid */
    struct mr_sync *syncs;    /* by thread and start */
    uint64_t n_syncs, syncs_capacity;
};
/* wanted: (process, correlation); NULL: what `classes`, bits of enum mr_call_class, names. */
int mr_calls_load(struct mr_calls *calls, struct mr_recording *recording, uint32_t classes,
                  const struct mr_keymap *wanted);
/* NULL: none. process: globalPid >> 24, as globalTid >> 24. */
const struct mr_call *mr_calls_find(const struct mr_calls *calls, uint64_t process,
                                    uint32_t correlation);
uint64_t mr_calls_thread(const struct mr_calls *calls, const struct mr_call *call); /* globalTid */
/* The first synchronisation of the thread that begins at or after a time; NULL: none. */
struct mr_sync *mr_calls_next_sync(const struct mr_calls *calls, uint32_t thread, uint64_t start);
/* Fills last_launch of the synchronisations: one more pass over the table. */
int mr_calls_mark_launches(struct mr_calls *calls, struct mr_recording *recording);
void mr_calls_free(struct mr_calls *calls);

/* Calls `add` for each place, with its steps; one of them must have the range `step`. warm: as
 * in mr_look_make(). Returns 0, MR_EOPTION: none has it, or the first error. */
struct mr_look;
struct mr_place;
int mr_report_looks(struct mr_recording *recording, const struct mr_place *places,
                    uint32_t n_places, const char *step, bool warm,
                    int (*add)(const struct mr_look *look, void *user), void *user);

/* Sorts and cuts as the options say and hands over; own_sort: the report's order, "-NAME"
 * ascending; NULL: as it is. */
int mr_report_finish(struct mr_table *table, const struct mr_report_opts *opts,
                     const char *own_sort, struct mr_table **out);
/* The part of a note that tells what was left out. */
void mr_report_note(struct mr_table *table, const struct mr_left_out *left, const char *missing);
/* "no kernels in this recording; --trace cuda records them". Returns buf. */
#define MR_MISSING_BYTES 256
const char *mr_report_missing(struct mr_recording *recording, const char *table, const char *what,
                              const char *trace, const struct mr_report_opts *opts,
                              char buf[MR_MISSING_BYTES]);

/* "CUPTI_ACTIVITY_KIND_" and what follows it. */
#define MR_TABLE_KERNEL  "CUPTI_ACTIVITY_KIND_KERNEL"
#define MR_TABLE_COPY    "CUPTI_ACTIVITY_KIND_MEMCPY"
#define MR_TABLE_SET     "CUPTI_ACTIVITY_KIND_MEMSET"
#define MR_TABLE_RUNTIME "CUPTI_ACTIVITY_KIND_RUNTIME"

/* Rows one by one in a thread: of traces. What SQL can leave out it does: records without times,
 * the window, and past the limit when the order is by start or duration. */
struct mr_rows {
    struct mr_recording *recording;
    const struct mr_filter *filter;
    struct sqlite3_stmt *stmt;
    struct mr_left_out *left;
    int64_t start, end; /* of the current row: its columns 0 and 1 */
    int kind;           /* of the table: enum mr_op_kind or MR_NO_OP */
};
/* columns: SQL after "start, end, ". Adds to left what has no times. A table that is not there has
 * no rows. */
int mr_rows_open(struct mr_rows *rows, struct mr_recording *recording, const char *table,
                 const char *columns, const struct mr_filter *filter,
                 const struct mr_report_opts *opts, struct mr_left_out *left);
int mr_rows_next(struct mr_rows *rows); /* 1, 0 or an error */
void mr_rows_close(struct mr_rows *rows);

/* Names of threads by globalTid. */
struct mr_labels {
    struct mr_keymap threads;
    int64_t *thread_names;
    uint64_t capacity;
};
int mr_labels_open(struct mr_labels *labels, struct mr_recording *recording);
/* "" for none */
const char *mr_labels_thread(const struct mr_labels *labels, struct mr_names *names,
                             int64_t global_tid);
void mr_labels_close(struct mr_labels *labels);

/* For the comparison of recordings: sums of time by category and name. */
struct mr_sum {
    char *name;
    const char *category;
    uint64_t n;
    double total;
};
int mr_report_sums(struct mr_recording *recording, struct mr_sum **out, uint64_t *out_n);

extern const struct mr_report_kind mr_report_sum_kinds[], mr_report_trace_kinds[];
extern const uint32_t mr_report_n_sum_kinds, mr_report_n_trace_kinds;
extern const struct mr_report_kind mr_report_nvtx_kinds[3], mr_report_pushpop_trace,
    mr_report_proj_kinds[2], mr_report_exec_kinds[2], mr_report_um_sum, mr_report_mem_ops,
    mr_report_metrics, mr_report_stacks, mr_report_stacks_func;

#endif
