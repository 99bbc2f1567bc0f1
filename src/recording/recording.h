/*
 * A recording in memory, as reports, advice and pictures read it.
 *
 * Two ways in: mr_recording_load() makes the arrays below (some 60 bytes an event), which analyses
 * need; reports that only add up stream rows out of the database (`db`) and never load, so that
 * 10^7 events need little memory.
 */
#ifndef MR_RECORDING_RECORDING_H
#define MR_RECORDING_RECORDING_H

#include "base/base.h"
#include "recording/part.h"
#include <millrace/profile.h>

struct sqlite3;

#define MR_NONE UINT32_MAX

enum mr_op_kind { MR_OP_KERNEL, MR_OP_COPY, MR_OP_SET };

/* Copies' kinds and kinds of memory as CUPTI numbers them (the loader adds back the 1 that the
 * export takes off memory). */
enum mr_copy_kind {
    MR_COPY_UNKNOWN,
    MR_COPY_H2D,
    MR_COPY_D2H,
    MR_COPY_H2A,
    MR_COPY_A2H,
    MR_COPY_A2A,
    MR_COPY_A2D,
    MR_COPY_D2A,
    MR_COPY_D2D,
    MR_COPY_H2H,
    MR_COPY_P2P
};
enum mr_mem_kind {
    MR_MEM_UNKNOWN,
    MR_MEM_PAGEABLE,
    MR_MEM_PINNED,
    MR_MEM_DEVICE,
    MR_MEM_ARRAY,
    MR_MEM_MANAGED,
    MR_MEM_DEVICE_STATIC,
    MR_MEM_MANAGED_STATIC
};

/* Something a device did. Sorted by start. Records without times (start == end == 0 there) are left
 * out and counted. */
struct mr_rec_op {
    uint64_t start_ns, end_ns;
    uint64_t bytes;  /* copies, sets; 0: of kernels, or not known */
    uint32_t name;   /* of strings: the kernel's short demangled name; 0 for others */
    uint32_t detail; /* row id in its table, for what is not here (grids, registers, ...) */
    uint32_t api;    /* of apis: the call that made it (runtime preferred over driver); MR_NONE */
    uint32_t context, stream;
    uint16_t process, device; /* of processes, of devices */
    /* enum mr_op_kind; a whole graph's launch is a kernel "CUDA graph" without detail */
    uint8_t kind;
    uint8_t copy_kind;   /* enum mr_copy_kind */
    uint8_t src, dst;    /* enum mr_mem_kind; a set's memory in dst */
    uint32_t graph_node; /* nonzero: of a graph's launch */
};

/* What a call is for. From its name, without cuda/cu and version suffixes: mr_call_class_of() is
 * one table. */
enum mr_call_class {
    MR_CALL_OTHER,
    MR_CALL_LAUNCH,       /* cudaLaunchKernel, cuLaunchKernel, ... */
    MR_CALL_GRAPH_LAUNCH, /* cudaGraphLaunch, cuGraphLaunch */
    MR_CALL_COPY,         /* memcpy of every sort */
    MR_CALL_SET,
    MR_CALL_SYNC,  /* device, stream, event synchronize: they block by name */
    MR_CALL_ALLOC, /* device memory: malloc, free, and their Async kin */
    /* cudaHostAlloc, cudaMallocHost, cudaHostRegister, cuMemHostAlloc, ..., and their frees */
    MR_CALL_PIN,
    MR_CALL_QUERY, /* event and stream query, get device, last error, attributes */
    MR_CALL_MODULE /* loading code */
};

struct mr_rec_api {
    uint64_t start_ns, end_ns;
    uint32_t name, correlation;
    uint32_t thread; /* of threads */
    uint16_t process;
    uint8_t class;  /* enum mr_call_class */
    uint8_t driver; /* 1: driver API, 0: runtime */
    int32_t result;
    uint32_t first_op, n_ops; /* what it made: n_ops entries of op_of_api from first_op on */
};

struct mr_rec_sync { /* CUPTI's own record of waiting, where there is one */
    uint64_t start_ns, end_ns;
    uint32_t type, stream, context, api; /* api: MR_NONE */
    uint16_t process;
};

struct mr_rec_range {          /* NVTX; sorted by start, outer before inner */
    uint64_t start_ns, end_ns; /* open ranges end with the recording */
    uint32_t text, domain;     /* of strings; domain 0: default */
    uint32_t thread;           /* of threads */
    uint16_t type;             /* enum mr_part_range_type */
    uint16_t depth;            /* on its thread: 0 is outermost */
    uint32_t parent;           /* of ranges; MR_NONE */
    uint8_t open;              /* it never ended */
};

struct mr_rec_os {
    uint64_t start_ns, end_ns;
    uint32_t name, thread;
    uint64_t bytes;
};

struct mr_rec_thread {
    uint16_t process;
    uint32_t tid;
    uint32_t name; /* of strings; 0: none */
};

struct mr_rec_process {
    uint64_t number;        /* globalPid >> 24 */
    uint32_t pid, ppid;     /* ppid 0: not known */
    uint32_t name, command; /* of strings */
    uint64_t start_ns, end_ns;
    uint32_t file;    /* of a job's recording: the one it comes from, from 1 on; 0: this one */
    uint32_t host;    /* of a job's recording: the first file of its machine; 0: this one */
    uint32_t n_cores; /* of that one's machine; 0: not known */
    uint8_t killed;   /* 1: no orderly end was recorded; 2: not known */
};

struct mr_rec_device {
    uint32_t id, name;
    uint32_t major, minor, n_sms, n_copy_engines;
    uint64_t memory_bytes, memory_bandwidth;
};

/* part.h says which there are; nsys' DIAGNOSTIC_EVENT come as "warning". process: MR_NONE: of the
 * whole recording. */
struct mr_rec_note {
    uint32_t name, text, process;
    int64_t value;
};

struct mr_recording {
    char *path;
    struct sqlite3 *db;
    bool unnamed; /* the database has no name: no other connection can be opened */
    /* NULL: recorded by millrace or Nsight Systems; else what it was made from, as "Kineto
     * trace" */
    char *source;
    bool ours; /* written by millrace: has our own tables */
    bool loaded;
    uint64_t origin_ns;          /* what was taken off all times */
    uint64_t end_ns;             /* of the last event; the recording is [0, end_ns) */
    uint32_t traced;             /* enum mr_part_trace bits; of an export: what tables are there */
    uint32_t n_cores;            /* 0: not known */
    struct mr_error_kept failed; /* the first failure of what cannot return one; code 0: none */

    const char **strings; /* strings[0] is "" */
    uint32_t n_strings;
    struct mr_rec_op *ops;
    uint64_t n_ops, n_lost_times, n_no_length,
        n_dropped;           /* no length: their end is not after their start */
    struct mr_rec_api *apis; /* sorted by start */
    uint64_t n_apis;
    uint32_t *op_of_api; /* indices of ops, a call's together */
    struct mr_rec_sync *syncs;
    uint64_t n_syncs;
    struct mr_rec_range *ranges;
    uint64_t n_ranges, n_unbalanced;
    struct mr_rec_os *os;
    uint64_t n_os;
    struct mr_rec_thread *threads;
    uint32_t n_threads;
    struct mr_rec_process *processes;
    uint32_t n_processes;
    struct mr_rec_device *devices;
    uint32_t n_devices;
    struct mr_rec_note *notes;
    uint32_t n_notes;
};

/* A text by its number; "": there is none. */
static inline const char *mr_rec_text(const struct mr_recording *rec, uint32_t string)
{
    return string < rec->n_strings && rec->strings[string] ? rec->strings[string] : "";
}

/* The process that started this one; MR_NONE: it is not here. Other files of a job may be of other
 * hosts, with the same pids. */
uint32_t mr_rec_parent(const struct mr_recording *rec, uint32_t process);

/* A recording of an open database, which it closes, also on an error. made: by us, and it has no
 * name. path: what it is called in errors. */
int mr_recording_wrap(const char *path, struct sqlite3 *db, bool made, struct mr_recording **out);

/* Fills the arrays; does nothing the second time. */
int mr_recording_load(struct mr_recording *recording);

/* For each connection: a file from anywhere is read, and nothing in it is run. Whether that could
 * be set. */
bool mr_recording_guard(struct sqlite3 *db);

/* Sets the error of a sqlite call that failed on a connection of the file `path`. Returns it. */
int mr_recording_error(struct sqlite3 *db, const char *path, const char *what);
/* Keeps the error that is set, code rc, for those who look at things that cannot fail; the first
 * one stays. */
void mr_recording_fail(struct mr_recording *recording, int rc);
/* What a call ends with: the failure that was kept, which is gone then, or rc. */
int mr_recording_result(struct mr_recording *recording, int rc);

/* Whether the database has this table and, unless NULL, column. When that cannot be read: false,
 * and the recording failed. */
bool mr_recording_has(struct mr_recording *recording, const char *table, const char *column);

/* What to do so that waiting for data can be seen, in words of the tool that recorded. */
const char *mr_recording_more(const struct mr_recording *recording);

/* "cudaMemcpyAsync_v3020", "hipMemcpyAsync" -> MR_CALL_COPY. */
enum mr_call_class mr_call_class_of(const char *name);

/* A copy or memset and its call. */
struct mr_copy_call {
    const char *name;    /* of the call */
    bool host, pageable; /* memory of the host, pageable memory at either end */
    uint64_t bytes, call_start_ns, call_end_ns, start_ns, end_ns;
};
/* Whether the thread was held in the call until the copy was done, or all of it staged. */
bool mr_copy_call_holds(const struct mr_copy_call *copy);
/* Whether a call held its thread: for the device, or for what takes its time by nature. */
bool mr_api_holds(const struct mr_recording *recording, const struct mr_rec_api *api);
/* Whether a call copied from a device. */
bool mr_api_reads_back(const struct mr_recording *recording, const struct mr_rec_api *api);

/* Tables: made by reports. */
struct mr_table *mr_table_create(const char *title, const struct mr_column *columns,
                                 uint32_t n_columns);
/* Adds an empty row, then cells of it from the left; texts are copied. A table that ran out of
 * memory remembers: mr_table_finish() returns -ENOMEM and destroys it, else 0. */
void mr_table_row(struct mr_table *table);
void mr_table_text(struct mr_table *table, const char *text);
void mr_table_int(struct mr_table *table, int64_t value);
void mr_table_real(struct mr_table *table, double value);
void mr_table_empty(struct mr_table *table);
/* Of copies and memsets: 0 is not known, and an empty cell. */
void mr_table_bytes(struct mr_table *table, uint64_t bytes);
void mr_table_set_note(struct mr_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* After the existing note. */
void mr_table_add_note(struct mr_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int mr_table_finish(struct mr_table *table, struct mr_table **out);

/* A report; the const array is in report.c. */
enum mr_report_has {
    MR_REPORT_OPS = 1,     /* work of the device, which --range takes by its launch */
    MR_REPORT_CALLS = 2,   /* calls and ranges, which it takes by their time */
    MR_REPORT_KERNELS = 4, /* names of kernels: takes ":base" and ":mangled" */
};
struct mr_report_kind {
    const char *name, *help;
    int (*make)(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out);
    uint32_t has; /* enum mr_report_has; 0: it looks at steps, or at the whole */
};

/* reports that live in files of their own */
extern const struct mr_report_kind mr_report_step_breakdown; /* steps_report.c */
extern const struct mr_report_kind mr_report_idle_breakdown; /* idle_report.c */
extern const struct mr_report_kind mr_report_path_kinds[2];  /* path_report.c */
extern const struct mr_report_kind mr_report_queue_depth;    /* queue_report.c */
extern const struct mr_report_kind mr_report_overlap;        /* overlap_report.c */
extern const struct mr_report_kind mr_report_rank_kinds[3];  /* ranks_report.c */

/*
 * Writing a database (merge.c, and tests that need a recording): begins with mr_store_create(),
 * then the parts' records one by one in any order (strings as texts, times absolute), then
 * mr_store_finish(), which makes indexes and renames.
 */
struct mr_store;
int mr_store_create(const char *path, bool overwrite, struct mr_store **out);
/* Starts a process: records that follow are its own. */
int mr_store_process(struct mr_store *store, const struct mr_part_header *header);
/* The number of a text in this store, for the name fields of records; the same for the same text. 0
 * on error or for NULL. */
uint32_t mr_store_string(struct mr_store *store, const char *text, size_t bytes);
/* record: the struct of this type, its name fields already the store's numbers. */
int mr_store_put(struct mr_store *store, enum mr_part_type type, const void *record);
int mr_store_finish(struct mr_store *store);
void mr_store_abandon(struct mr_store *store);

#endif
