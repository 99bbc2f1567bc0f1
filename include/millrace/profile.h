/*
 * Recordings: what a CUDA program did and when, and why it waited.
 *
 * `millrace profile` runs a program with a recorder inside and merges what its processes wrote into one SQLite file with the
 * table and column names of the Nsight Systems export (docs/recordings.md). Everything here reads such a file, ours or one
 * made by `nsys export --type sqlite`.
 *
 * Times are in ns of the recording's own clock, 0 at its start. Threads: a recording is used by one thread at a time.
 * Errors: MR_EFORMAT for what is no recording or a damaged one, MR_EUNSUPPORTED for a schema that is not known,
 * MR_EOPTION for unknown names, -errno from the system; mr_last_error() names the file and the reason.
 */
#ifndef MILLRACE_PROFILE_H
#define MILLRACE_PROFILE_H

#include <millrace/error.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_recording;

struct mr_merge_stats {
    uint64_t n_parts, n_processes, n_records;
    uint64_t n_dropped;         /* records that CUPTI dropped */
    uint64_t n_lost_timestamps; /* device records without times */
    uint64_t n_cut;             /* parts that end in the middle of a chunk: their process was killed */
    uint64_t bytes;             /* of the file written */
};

/*
 * Merges the parts in folder `parts` into the SQLite file `path`, made under a temporary name and renamed.
 * overwrite: 0: an existing file is -EEXIST. [out] out_stats: may be NULL.
 * Returns 0, also for a folder without parts: the recording then has empty tables, and a note that says why. MR_EFORMAT: a file
 * that ends in .part is none of ours; MR_ELIMIT: more of something than the file can number; -errno: the folder, the file or the
 * disk; -ENOMEM. After an error there is no file at `path`, or the one that was there before.
 */
MR_API int mr_recording_merge(const char *parts, const char *path, int overwrite, struct mr_merge_stats *out_stats);

/* Opens a recording. [out] out: written on success; close it with mr_recording_close(). */
MR_API int mr_recording_open(const char *path, struct mr_recording **out);
MR_API void mr_recording_close(struct mr_recording *recording);

/*
 * Tables: what reports are made of. A cell is empty, a text, an integer or a number; columns have a name as users of
 * `nsys stats` know it and a unit (MR_UNIT_*), so that a reader can scale times and sizes for people. Times that are moments have a name
 * that begins with Start or End.
 */
struct mr_table;

enum mr_unit {
    MR_UNIT_NONE, /* numbers that name something: streams, threads */
    MR_UNIT_NS,
    MR_UNIT_BYTES,
    MR_UNIT_BYTES_PER_S,
    MR_UNIT_PERCENT, /* 0..100 */
    MR_UNIT_COUNT    /* how many: with thousands marked for people */
};
enum mr_cell_type { MR_CELL_EMPTY, MR_CELL_TEXT, MR_CELL_INT, MR_CELL_REAL };

struct mr_column {
    const char *name; /* without its unit */
    enum mr_unit unit;
    enum mr_cell_type type;
};

struct mr_cell {
    enum mr_cell_type type;
    const char *text; /* borrowed from the table */
    int64_t integer;
    double real;
};

enum mr_table_format { MR_TABLE_TEXT, MR_TABLE_CSV, MR_TABLE_JSON };

MR_API const char *mr_table_title(const struct mr_table *table);
/* A sentence for the reader ("no kernels in this recording: ..."), or NULL. */
MR_API const char *mr_table_note(const struct mr_table *table);
MR_API uint32_t mr_table_columns(const struct mr_table *table);
MR_API uint64_t mr_table_rows(const struct mr_table *table);
MR_API const struct mr_column *mr_table_column(const struct mr_table *table, uint32_t column);
MR_API struct mr_cell mr_table_cell(const struct mr_table *table, uint64_t row, uint32_t column);
/* Writes a table to `to`: text for people (times and sizes with fitting units), CSV (RFC 4180, plain numbers, units in the
 * heads as nsys writes them: "Total Time (ns)"; sizes in MB, rates in MB/s), or a JSON array of objects (the same names). Returns 0 or -errno. */
MR_API int mr_table_write(const struct mr_table *table, enum mr_table_format format, FILE *to);
/* The text; long texts are cut in the middle to make lines of this many columns. 0: the terminal's, 120 where `to` is none;
 * UINT32_MAX: nothing is cut. */
MR_API int mr_table_write_text(const struct mr_table *table, uint32_t columns, FILE *to);
/* Puts the rows into another order; rows alike stay as they were, empty cells come last. column: as in its head, in any case,
 * with or without blanks and signs. MR_EOPTION: no such column; the error names those that there are. */
MR_API int mr_table_sort(struct mr_table *table, const char *column, int ascending);
/* Shows the first rows only. */
MR_API void mr_table_limit(struct mr_table *table, uint64_t rows);
MR_API void mr_table_destroy(struct mr_table *table);

struct mr_report_opts {
    size_t size;
    uint64_t limit;    /* rows at most; 0: all */
    const char *sort;  /* a column of the report, "duration" ...; "-NAME" ascending; NULL: the report's own order */
    uint64_t from_ns;  /* only what begins in [from_ns, to_ns) */
    uint64_t to_ns;    /* 0: the end of the recording */
    const char *range; /* only inside NVTX ranges "NAME", "DOMAIN@NAME" or "NAME@DOMAIN"; NULL: everything */
    const char *step;  /* the NVTX range that is a step, for step_breakdown; NULL: found */
    double link_gbps;  /* the link's measured rate for fractions of it, GB/s; 0: the fastest copy's of the recording */
};
MR_API void mr_report_opts_fill(struct mr_report_opts *opts, size_t size);
static inline void mr_report_opts_init(struct mr_report_opts *opts)
{
    mr_report_opts_fill(opts, sizeof *opts);
}

/* The i-th report there is: its name and, [out] when not NULL, what it tells. NULL after the last. */
MR_API const char *mr_report_name(uint32_t i, const char **out_help);

/* Makes a report. [out] out: written on success; mr_table_destroy() it. MR_EOPTION: no such report or column. */
MR_API int mr_report_make(struct mr_recording *recording, const char *name, const struct mr_report_opts *opts,
                          struct mr_table **out);

/*
 * Compares two recordings: a row for each kernel, kind of copy, memset, API call and NVTX range (what of them changed by more than
 * threshold_percent in total time comes first; a change below 0.1% of its category's time never counts). [out] out_changed: rows
 * beyond the threshold that got slower.
 */
MR_API int mr_report_diff(struct mr_recording *before, struct mr_recording *after, double threshold_percent,
                          uint64_t *out_changed, struct mr_table **out);

/* Advice: rules, each with what it computed, from which rows, and what mending it would save. */
enum mr_verdict { MR_FINE, MR_FOUND, MR_CANNOT_TELL };

struct mr_finding {
    const char *rule;  /* "pageable_copies" */
    const char *title; /* one line */
    enum mr_verdict verdict;
    const char *why;           /* MR_FOUND: what was computed and its threshold; MR_CANNOT_TELL: because ... */
    const char *advice;        /* what to do, with the framework's names; NULL when fine */
    double saving_ms;          /* predicted, a step where steps were found (per_step), else of the whole recording */
    double saving_percent;     /* of the same */
    int per_step;              /* 1: saving_ms is a step's */
    double confidence;         /* 0..1 */
    struct mr_table *evidence; /* rows, owned by the advice; NULL: none */
};

struct mr_advice;
struct mr_advice_opts {
    size_t size;
    const char *step;  /* as in mr_report_opts */
    const char *range; /* the NVTX range of loading data; NULL: known names (DataLoader.__next__, "data", ...) */
    double link_gbps;  /* 0: the recording's own fastest large pinned copy, or the device's PCIe by name */
    uint32_t n_cores;  /* of the machine recorded on, for the suggested workers; 0: as recorded, else unknown */
};
MR_API void mr_advice_opts_fill(struct mr_advice_opts *opts, size_t size);
static inline void mr_advice_opts_init(struct mr_advice_opts *opts)
{
    mr_advice_opts_fill(opts, sizeof *opts);
}
/*
 * Looks at the process and device with the most work. opts: NULL: defaults. [out] out: written on success; mr_advice_destroy() it.
 * What the accessors below return belongs to the advice, which needs the recording no more. A recording that has no work of a device
 * is no error: then no rule can tell. MR_EOPTION: no range is called as opts say, or opts of another size; else as of the recording.
 */
MR_API int mr_analyze(struct mr_recording *recording, const struct mr_advice_opts *opts, struct mr_advice **out);
/* One line that answers "am I data-bound?" with its figures. */
MR_API const char *mr_advice_summary(const struct mr_advice *advice);
/* Findings, the largest saving times its confidence first, then those that cannot tell, then what is fine. */
MR_API uint32_t mr_advice_count(const struct mr_advice *advice);
MR_API const struct mr_finding *mr_advice_get(const struct mr_advice *advice, uint32_t i);
MR_API void mr_advice_destroy(struct mr_advice *advice);

/* Pictures. */
enum mr_timeline_format { MR_TIMELINE_PERFETTO, MR_TIMELINE_HTML, MR_TIMELINE_SVG };
struct mr_timeline_opts {
    size_t size;
    uint64_t from_ns, to_ns; /* 0, 0: everything */
    const char *title;       /* NULL: the recorded command */
    uint64_t *out_events;    /* [out] when not NULL, on success: how many events are in the picture */
    int whole;               /* svg with 0, 0: everything, not only the steps (or what devices did) */
};
MR_API void mr_timeline_opts_fill(struct mr_timeline_opts *opts, size_t size);
static inline void mr_timeline_opts_init(struct mr_timeline_opts *opts)
{
    mr_timeline_opts_fill(opts, sizeof *opts);
}
/* Writes the picture under a temporary name, then renames it. */
MR_API int mr_timeline_write(struct mr_recording *recording, const char *path, enum mr_timeline_format format,
                             const struct mr_timeline_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
