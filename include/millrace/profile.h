/*
 * Recordings of CUDA programs: what the program did and when, and why it waited.
 *
 * `millrace profile` runs a program with a recorder inside it and merges what its processes wrote
 * into one SQLite file. The file has the tables and columns of the Nsight Systems export
 * (docs/recordings.md). All calls here read such a file, also one made by `nsys export --type
 * sqlite`, Kineto traces of torch.profiler (.json, .json.gz) and rocpd databases of rocprofv3.
 *
 *     struct mr_recording *recording;
 *     struct mr_table *table;
 *     mr_recording_open("report1.sqlite", &recording);
 *     mr_report_make(recording, "cuda_gpu_kern_sum", NULL, &table);
 *     mr_table_write(table, MR_TABLE_TEXT, stdout);
 *     mr_table_destroy(table);
 *     mr_recording_close(recording);
 *
 * Times are in nanoseconds of the recording's clock, which is 0 at its start.
 *
 * Threads: a recording and what is made from it belong to one thread at a time. All calls on a
 * recording block. fork: a child must not use a recording that it inherits; tables it may.
 * Errors: MR_EFORMAT (not a recording, or damaged), MR_EUNSUPPORTED (an unknown schema), MR_EOPTION
 * (an unknown name), MR_EMISUSE (a wrong opts.size), -ENOMEM, -errno. mr_last_error() names the
 * file and the reason.
 */
#ifndef MILLRACE_PROFILE_H
#define MILLRACE_PROFILE_H

#include <millrace/error.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- recordings ---- */

struct mr_recording;

/*
 * Opens a recording.
 * path: a recording of ours, an export of Nsight Systems, a Kineto trace, a rocpd database
 * (schema_version 3) or, where nsys is on PATH, a .nsys-rep file. The latter three are turned into
 * a temporary database in TMPDIR (else /var/tmp), which takes time. What is left out of a trace is
 * a warning (mr_log_set()).
 * [out] out: on success; close it with mr_recording_close(). Returns 0 or an error as above.
 */
MR_API int mr_recording_open(const char *path, struct mr_recording **out);
MR_API void mr_recording_close(struct mr_recording *recording);

/* What is looked at of recordings; all that is given must hold. */
struct mr_recording_opts {
    size_t size; /* of this struct, set by mr_recording_opts_init() */
    int64_t
        rank;    /* of the job, as the recording or the report rank_breakdown numbers it; -1: all */
    int64_t pid; /* a process, with those that it started and that use no device; -1: all */
    int64_t device; /* its number; of processes that use several, the work on this one; -1: all */
};

/* Sets opts to the defaults. C and C++ call mr_recording_opts_init(); see millrace.h. */
MR_API void mr_recording_opts_fill(struct mr_recording_opts *opts, size_t size);
static inline void mr_recording_opts_init(struct mr_recording_opts *opts)
{
    mr_recording_opts_fill(opts, sizeof *opts);
}

/*
 * Opens the recordings of one job as one: a file of each rank, or of each host.
 * paths: n files as mr_recording_open() reads them, or one folder, whose files that end in .sqlite,
 * .sqlite3, .db, .json, .json.gz or .nsys-rep are taken, but for x.nsys-rep beside x.sqlite, .db
 * files that are no rocpd databases, and .json files that are no traces (a warning). One file is
 * opened as it is, unless a part is chosen.
 * Several become a temporary database. Their clocks are aligned by the time of day of their starts,
 * then by the ends of collectives. opts: NULL: everything.
 * [out] out: on success; close it with mr_recording_close(). Returns 0 or an error as above;
 * MR_EFORMAT: the recordings are not of one run of one job (a rank twice, other numbers of ranks,
 * other times, collectives that do not match); MR_EOPTION: no such rank, process or device, a
 * folder without recordings, or a file given twice.
 */
MR_API int mr_recording_open_job(const char *const *paths, uint32_t n,
                                 const struct mr_recording_opts *opts, struct mr_recording **out);

struct mr_merge_stats {
    size_t size; /* of this struct, set by the caller */
    uint64_t n_parts, n_processes, n_records;
    uint64_t n_dropped;         /* records that CUPTI dropped */
    uint64_t n_lost_timestamps; /* device records without timestamps */
    uint64_t n_cut;             /* parts that end within a chunk: their process was killed */
    uint64_t bytes;             /* of the file written */
};

/*
 * Merges the parts in a folder into a recording.
 * parts: the folder. path: the SQLite file, written under a temporary name and renamed. overwrite:
 * 0: an existing file is -EEXIST. [out] out_stats: on success, all but size; may be NULL.
 * Returns 0, also for a folder without parts (the tables are empty and a note says why); MR_EFORMAT
 * (a file that ends in .part is not a part), MR_ELIMIT (more of something than the file can
 * number), -ENOMEM, -errno. After an error `path` is as it was before.
 */
MR_API int mr_recording_merge(const char *parts, const char *path, int overwrite,
                              struct mr_merge_stats *out_stats);

/*
 * The same while the parts' processes run, so that little is left to do when they have ended:
 *
 *     struct mr_merge *merge;
 *     mr_merge_open(parts, "report1.sqlite", 0, &merge);
 *     while (the program runs)
 *         mr_merge_step(merge); // ten times a second, say
 *     mr_merge_finish(merge, NULL);
 *     mr_merge_close(merge);
 *
 * A merge belongs to one thread at a time, and not to a forked child. After an error of a step,
 * close it: mr_recording_merge() of the same folder begins anew, when the processes have ended.
 * After mr_merge_finish(), whatever it returned but MR_EMISUSE, only mr_merge_close() is allowed;
 * the other calls, and those with NULL for the merge, return MR_EMISUSE.
 */
struct mr_merge;

/*
 * parts, path, overwrite: as for mr_recording_merge(). The file is made under its temporary name at
 * once. [out] out: on success; end it with mr_merge_close().
 * Returns 0, -EEXIST, -ENOMEM, -errno.
 */
MR_API int mr_merge_open(const char *parts, const char *path, int overwrite, struct mr_merge **out);

/*
 * Writes rows of what the parts got since the last step. Without a file "begin" in the folder,
 * which says when the program was started (two decimal numbers: ns of CLOCK_MONOTONIC and of
 * CLOCK_REALTIME), there is nothing to count times from, and all is left to mr_merge_finish().
 * Returns 0; -ENOSPC, also when less than 512 MiB are left on the parts' disk, which the program
 * may need; MR_EFORMAT, MR_ELIMIT, -ENOMEM, -errno, MR_EMISUSE.
 */
MR_API int mr_merge_step(struct mr_merge *merge);

/*
 * Writes what is left and renames the file. Call it once, when the processes have ended. [out]
 * out_stats: as for mr_recording_merge(). Returns as that, and MR_EMISUSE.
 */
MR_API int mr_merge_finish(struct mr_merge *merge, struct mr_merge_stats *out_stats);

/* Ends a merge; the file is removed unless it was finished. NULL is allowed. */
MR_API void mr_merge_close(struct mr_merge *merge);

/* ---- reports ---- */

/* The result of a report; see "tables" below. */
struct mr_table;

struct mr_report_opts {
    size_t size;       /* of this struct, set by mr_report_opts_init() */
    uint64_t limit;    /* most rows; 0: all */
    const char *sort;  /* a column, "-NAME" for ascending order; NULL: the report's own order */
    uint64_t from_ns;  /* only what begins in [from_ns, to_ns) */
    uint64_t to_ns;    /* 0: the end of the recording */
    const char *range; /* only within NVTX ranges NAME, DOMAIN@NAME or NAME@DOMAIN; NULL: all */
    const char *step;  /* step_breakdown: the NVTX range of a step; NULL: detected */
    double link_gbps;  /* the link's rate in GB/s; 0: that of the recording's fastest copy */
    /* 1: range selects the device's work, too, by when it ran; 0: by the call that launched it */
    int by_time;
    int kernel_names;   /* enum mr_kernel_names; ":base" or ":mangled" after a report's name */
    const char *loader; /* idle_breakdown: the NVTX range of waiting for data; NULL: known names */
};

/* How kernels are called in reports that name them. */
enum mr_kernel_names {
    MR_KERNELS_DEMANGLED, /* with template arguments and parameters */
    MR_KERNELS_BASE,      /* "gemm" */
    MR_KERNELS_MANGLED
};

/* Sets opts to the defaults. C and C++ call mr_report_opts_init(); see millrace.h. */
MR_API void mr_report_opts_fill(struct mr_report_opts *opts, size_t size);
static inline void mr_report_opts_init(struct mr_report_opts *opts)
{
    mr_report_opts_fill(opts, sizeof *opts);
}

/* The name of the i-th report; NULL after the last. [out] out_help: one line about it; may be NULL.
 * Both are constant. */
MR_API const char *mr_report_name(uint32_t i, const char **out_help);

/* Whether mr_report_make() takes this name, arguments included. Returns 0 or MR_EOPTION. */
MR_API int mr_report_check(const char *name);

/* Makes a report. name: as mr_report_name() has it; for reports that name kernels also with ":base"
 * or ":mangled" behind, which sets opts' kernel_names. opts: NULL: the defaults. [out] out: on
 * success; free it with mr_table_destroy().
 * Returns 0 or an error as above; MR_EOPTION: no such report or column. */
MR_API int mr_report_make(struct mr_recording *recording, const char *name,
                          const struct mr_report_opts *opts, struct mr_table **out);

/*
 * Compares two recordings: one row per kernel, kind of copy, memset, API call and NVTX range. Rows
 * whose total time changed by more than threshold_percent come first. A change below 0.1% of its
 * category's time never counts.
 * [out] out_changed: rows that got slower by more than the threshold. [out] out: on success; free
 * it with mr_table_destroy(). Returns 0 or an error as above.
 */
MR_API int mr_report_diff(struct mr_recording *before, struct mr_recording *after,
                          double threshold_percent, uint64_t *out_changed, struct mr_table **out);

/*
 * The same of some reports' rows only.
 * reports: names, separated by commas, of cuda_gpu_kern_sum, cuda_gpu_mem_time_sum, cuda_gpu_sum,
 * cuda_api_sum and nvtx_sum; "all" or NULL: all rows. MR_EOPTION: another name.
 */
MR_API int mr_report_diff_rows(struct mr_recording *before, struct mr_recording *after,
                               const char *reports, double threshold_percent, uint64_t *out_changed,
                               struct mr_table **out);

/* ---- tables ---- */

enum mr_unit {
    MR_UNIT_NONE, /* identifiers, such as of streams and threads */
    MR_UNIT_NS,
    MR_UNIT_BYTES,
    MR_UNIT_BYTES_PER_S,
    MR_UNIT_PERCENT, /* 0 to 100 */
    MR_UNIT_COUNT
};
enum mr_cell_type { MR_CELL_EMPTY, MR_CELL_TEXT, MR_CELL_INT, MR_CELL_REAL };

/* A column. Names are those of `nsys stats`, without the unit. Points in time have names that begin
 * with Start or End. */
struct mr_column {
    const char *name;
    enum mr_unit unit;
    enum mr_cell_type type;
};

struct mr_cell {
    enum mr_cell_type type;
    const char *text; /* owned by the table */
    int64_t integer;
    double real;
};

enum mr_table_format { MR_TABLE_TEXT, MR_TABLE_CSV, MR_TABLE_JSON, MR_TABLE_MARKDOWN };

/* The unit of durations and points in time. AUTO: in texts one that fits each value, elsewhere
 * ns. */
enum mr_time_unit { MR_TIME_AUTO, MR_TIME_NS, MR_TIME_US, MR_TIME_MS, MR_TIME_S };

/* The contents of a table. All texts are owned by the table. The note is a sentence such as "no
 * kernels in this recording: ...", or NULL. */
MR_API const char *mr_table_title(const struct mr_table *table);
MR_API const char *mr_table_note(const struct mr_table *table);
MR_API uint32_t mr_table_columns(const struct mr_table *table);
MR_API uint64_t mr_table_rows(const struct mr_table *table);
MR_API const struct mr_column *mr_table_column(const struct mr_table *table, uint32_t column);
MR_API struct mr_cell mr_table_cell(const struct mr_table *table, uint64_t row, uint32_t column);

/*
 * Writes a table: as text, with times and sizes in suitable units; as CSV (RFC 4180), with plain
 * numbers and nsys's column heads ("Total Time (ns)"; sizes in MB, rates in MB/s); as a JSON
 * array of objects with the same names; or as a Markdown table with the texts' values, below its
 * title. Returns 0 or -errno.
 */
MR_API int mr_table_write(const struct mr_table *table, enum mr_table_format format, FILE *to);

/* Writes a table as text, with long cells shortened in the middle.
 * columns: the line length; 0: the terminal's, or 120 if `to` is no terminal; UINT32_MAX: no limit.
 * Returns 0 or -errno. */
MR_API int mr_table_write_text(const struct mr_table *table, uint32_t columns, FILE *to);

/*
 * Sorts the rows. Equal rows keep their order; empty cells come last.
 * column: a column's name; case, spaces and punctuation do not matter.
 * Returns 0, -ENOMEM, or MR_EOPTION for an unknown column (the text lists the valid ones).
 */
MR_API int mr_table_sort(struct mr_table *table, const char *column, int ascending);

/* Writes times in this unit from now on. Returns 0, or MR_EOPTION: no such unit. */
MR_API int mr_table_set_time_unit(struct mr_table *table, enum mr_time_unit unit);

/* Keeps only the first rows. */
MR_API void mr_table_limit(struct mr_table *table, uint64_t rows);

/* Frees a table. NULL is allowed. */
MR_API void mr_table_destroy(struct mr_table *table);

/* ---- advice ---- */

/* What a rule concluded. */
enum mr_verdict {
    MR_FINE,       /* there is nothing to fix */
    MR_FOUND,      /* there is something to fix */
    MR_CANNOT_TELL /* the data cannot support a conclusion */
};

struct mr_finding {
    const char *rule;  /* "pageable_copies" */
    const char *title; /* one line */
    enum mr_verdict verdict;
    const char *why;    /* the computation and its threshold, or why there is no conclusion */
    const char *advice; /* what to do, in the framework's terms; NULL for MR_FINE */
    /* predicted, per step or for the whole recording (per_step); 0 of one that is found: it
     * explains, and its time is in other findings' savings */
    double saving_ms;
    double saving_percent;     /* of the same */
    int per_step;              /* 1: saving_ms is per step */
    double confidence;         /* 0 to 1 */
    struct mr_table *evidence; /* the rows behind it, owned by the advice; NULL: none */
};

struct mr_advice;

struct mr_advice_opts {
    size_t size;       /* of this struct, set by mr_advice_opts_init() */
    const char *step;  /* as in mr_report_opts */
    const char *range; /* the NVTX range of data loading; NULL: known names are tried */
    double link_gbps;  /* in GB/s; 0: the fastest large pinned copy, or the device's PCIe by name */
    uint32_t n_cores;  /* of the recorded machine; 0: as recorded */
};

/* Sets opts to the defaults. C and C++ call mr_advice_opts_init(); see millrace.h. */
MR_API void mr_advice_opts_fill(struct mr_advice_opts *opts, size_t size);
static inline void mr_advice_opts_init(struct mr_advice_opts *opts)
{
    mr_advice_opts_fill(opts, sizeof *opts);
}

/*
 * Runs all rules on the process and device with the most work.
 * opts: NULL: the defaults. [out] out: on success; free it with mr_advice_destroy(). It does not
 * need the recording any more.
 * Returns 0, also for a recording without device work, in which no rule can conclude anything; or
 * an error as above; MR_EOPTION: no such range.
 */
MR_API int mr_analyze(struct mr_recording *recording, const struct mr_advice_opts *opts,
                      struct mr_advice **out);

/* One line that answers "is it data-bound?" with numbers. Owned by the advice. */
MR_API const char *mr_advice_summary(const struct mr_advice *advice);

/* The number of findings, and the i-th of them (NULL: no such). First are those to fix, by saving
 * times confidence; then those without a conclusion; then what is fine. Owned by the advice. */
MR_API uint32_t mr_advice_count(const struct mr_advice *advice);
MR_API const struct mr_finding *mr_advice_get(const struct mr_advice *advice, uint32_t i);

/* Frees the advice and its findings. NULL is allowed. */
MR_API void mr_advice_destroy(struct mr_advice *advice);

/* ---- before and after ---- */

/* What became of something from one recording to the next. */
enum mr_change {
    MR_CHANGE_NONE,   /* within noise, or less than the least change that counts */
    MR_CHANGE_SLOWER, /* beyond noise */
    MR_CHANGE_FASTER,
    MR_CHANGE_CANNOT_TELL /* no steps, or too few for any difference to be beyond noise */
};

struct mr_step_change {
    size_t size;                /* of this struct, set by the caller */
    enum mr_change change;      /* of the mean step */
    uint64_t n_before, n_after; /* steps after warming up */
    double before_ns, after_ns; /* the mean step; 0: no steps */
    double p;                   /* of the test of noise, 0 to 1 */
};

struct mr_compare_opts {
    size_t size;          /* of this struct, set by mr_compare_opts_init() */
    const char *step;     /* as in mr_report_opts */
    double least_percent; /* changes below it are none: runs of one program differ by that much */
};

/* Sets opts to the defaults: least_percent 1. C and C++ call mr_compare_opts_init(); see
 * millrace.h. */
MR_API void mr_compare_opts_fill(struct mr_compare_opts *opts, size_t size);
static inline void mr_compare_opts_init(struct mr_compare_opts *opts)
{
    mr_compare_opts_fill(opts, sizeof *opts);
}

struct mr_comparison;

/*
 * Compares the steps of two recordings: of each, the process and device with the most work.
 * The mean step changed if a permutation test of blocks of steps gives a p of at most 1%, and if
 * the change is least_percent or more: of pairs without a difference, at most 1% are called
 * different (docs/profiling.md).
 * opts: NULL: the defaults. [out] out: on success; free it with mr_comparison_destroy(). It does
 * not need the recordings any more.
 * Returns 0, also for recordings without steps (MR_CHANGE_CANNOT_TELL); or an error as above;
 * MR_EOPTION: no such range, or a least_percent below 0.
 */
MR_API int mr_compare(struct mr_recording *before, struct mr_recording *after,
                      const struct mr_compare_opts *opts, struct mr_comparison **out);

/* The mean step. [out] out: all but size. Returns 0, or MR_EMISUSE for a wrong out->size. */
MR_API int mr_comparison_step(const struct mr_comparison *comparison, struct mr_step_change *out);

/* One line: the step, and what changed most. Owned by the comparison. */
MR_API const char *mr_comparison_summary(const struct mr_comparison *comparison);

/*
 * The i-th table; NULL after the last. [out] out_name: "steps" (where a step's time goes, with the
 * same test for each part), "copies" (by direction and kind of memory), "longest_copy" (one row for
 * each recording) or "findings" (gone, new, remaining); may be NULL. Both are owned by the
 * comparison.
 */
MR_API struct mr_table *mr_comparison_table(const struct mr_comparison *comparison, uint32_t i,
                                            const char **out_name);

/* Frees a comparison and its tables. NULL is allowed. */
MR_API void mr_comparison_destroy(struct mr_comparison *comparison);

/* ---- timelines ---- */

enum mr_timeline_format {
    MR_TIMELINE_PERFETTO, /* a trace for ui.perfetto.dev */
    MR_TIMELINE_HTML,     /* an interactive page that needs no network */
    MR_TIMELINE_SVG,
    /* sampled stacks as text for flame graph tools: frames with ';' between, a space, samples */
    MR_TIMELINE_FOLDED
};

struct mr_timeline_opts {
    size_t size;             /* of this struct, set by mr_timeline_opts_init() */
    uint64_t from_ns, to_ns; /* 0, 0: everything */
    const char *title;       /* NULL: the recorded command */
    uint64_t *out_events;    /* [out] on success: events drawn, or samples; may be NULL */
    int whole;               /* SVG: 1: the whole recording, not only its steps */
};

/* Sets opts to the defaults. C and C++ call mr_timeline_opts_init(); see millrace.h. */
MR_API void mr_timeline_opts_fill(struct mr_timeline_opts *opts, size_t size);
static inline void mr_timeline_opts_init(struct mr_timeline_opts *opts)
{
    mr_timeline_opts_fill(opts, sizeof *opts);
}

/* Draws a recording. path: written under a temporary name and renamed. opts: NULL: the defaults.
 * Returns 0 or an error as above. */
MR_API int mr_timeline_write(struct mr_recording *recording, const char *path,
                             enum mr_timeline_format format, const struct mr_timeline_opts *opts);

/*
 * Draws two recordings in one picture: the processes and devices of `before` are marked A, those of
 * `after` B. The clock of one is moved so that their first steps after warming up begin together
 * (without steps their first device work); opts.from_ns and to_ns are of the moved clock. Forms of
 * launches, sampled metrics and memory are not shown.
 * opts: NULL: the defaults. Returns 0 or an error as above; MR_ELIMIT: too many events.
 */
MR_API int mr_timeline_write_pair(struct mr_recording *before, struct mr_recording *after,
                                  const char *path, enum mr_timeline_format format,
                                  const struct mr_timeline_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
