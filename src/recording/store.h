/* The inside of a store: the tables of a recording's database, and what one being written keeps. */
#ifndef MR_RECORDING_STORE_H
#define MR_RECORDING_STORE_H

#include "recording/map.h"
#include "recording/recording.h"
#include <sqlite3.h>

#define MR_STORE_SCHEMA 1

/* Where a column's value comes from. */
enum mr_store_from {
    FROM_NOTHING, /* NULL: the column is there for the readers of the export */
    FROM_ZERO,    /* NOT NULL in the export, and nothing known */
    FROM_UINT,    /* an unsigned field of `bytes` bytes at `offset` */
    FROM_UINT_OR_NULL,
    FROM_BYTES, /* NULL where all bits are set: not known */
    FROM_INT,   /* signed */
    FROM_START, /* the record's times, the origin taken off */
    FROM_END,   /* */
    FROM_PID,   /* the process, packed as the export does */
    FROM_TID,   /* a thread's number, packed with the process */
    FROM_TID_OR_NULL,
    FROM_NAME,         /* number of a text */
    FROM_TEXT,         /* a range's own text, if it came with one; else NULL */
    FROM_NAME_OR_TEXT, /* NULL if it did, else the number */
    FROM_END_TID,      /* NULL for what ends on the thread that it began on */
    FROM_DEMANGLED,
    FROM_SHORT,
    FROM_MEMORY_KIND,    /* CUPTI's kind of memory minus 1 */
    FROM_OPERATION,      /* CUPTI's memory operation minus 1 */
    FROM_CLASS,          /* of events: a runtime or a driver call */
    FROM_CONSTANT,       /* `offset` itself */
    FROM_CONTEXT_DEVICE, /* the device of the context whose number is in the field */
    FROM_OVERHEAD,       /* the name of an overhead's kind */
    FROM_PAYLOAD_INT,    /* a range's payload when its type is `bytes` */
    FROM_PAYLOAD_REAL,
};

/* How a record carries its times. */
enum mr_store_times {
    TIMES_NONE,
    TIMES_POINT,
    TIMES_SPAN,
    TIMES_OPEN /* an end of 0: still open */,
    TIMES_DEVICE /* 0, 0: lost */
};

struct mr_store_column {
    const char *name, *type;
    uint8_t from, bytes;
    uint16_t offset;
};

struct mr_store_table {
    const char *name;
    uint8_t record; /* enum mr_part_type whose records go in; MR_PART_NONE: no record's own */
    uint8_t times;
    const struct mr_store_column *columns; /* up to one without a name */
    /* The first of the last columns, which few records fill: each is added when one does, with
     * those before it, the rest at the end. SQLite then stores nothing of them in the rows before,
     * where a NULL takes a byte. */
    const char *seldom;
};
extern const struct mr_store_table mr_store_tables[];
extern const uint32_t mr_store_n_tables;

/* SQL: what is made beside the tables of records, and when all records are in. */
extern const char *const mr_store_more_tables;
extern const char *const mr_store_enums;
extern const char *const mr_store_indexes[];
extern const uint32_t mr_store_n_indexes;

struct mr_store_name {           /* beside each text */
    uint32_t demangled, shorter; /* numbers of texts; MR_NONE: not looked at yet */
};

/* Its rows are written when the store is finished: records of many may come by turns. */
struct mr_store_process {
    struct mr_part_header header;
    uint64_t number; /* with the pid: globalTid without the thread */
    uint32_t times;  /* that its pid came before */
    uint32_t command, executable;
    bool has_exit;
    uint64_t end_ns, exit_ns;
    struct mr_map contexts; /* context -> device */
    struct mr_map gpus;     /* its number of a device -> the device's row */
};

/* A table, and rows that wait until there are enough for one statement. */
struct mr_store_batch {
    const struct mr_store_table *table; /* NULL: records of this type have none of their own */
    const struct mr_store_column
        *seldom;               /* the first column that it does not have yet, or the end */
    sqlite3_stmt *one, *many;  /* many: NULL before it is wanted */
    uint32_t n, most;          /* rows that wait; of `many` */
    struct mr_store_row *rows; /* store_rows.c */
    char *records, *texts;
    uint64_t texts_used, texts_room;
};

struct mr_store {
    char *path;
    struct mr_output *output;
    const char *temporary; /* the output's unfinished file */
    char *unnamed;         /* what a file without a name was called when it was opened */
    bool overwrite;
    sqlite3 *db;
    struct mr_store_batch batch[MR_N_PART_TYPES]; /* of the tables of records */
    sqlite3_stmt *insert_string, *insert_counter, *insert_metric;
    struct mr_texts texts;
    struct mr_store_name *names;
    uint32_t n_names;
    void *demangler; /* libstdc++ or NULL */
    char *(*demangle)(const char *mangled, char *buffer, size_t *bytes, int *status);

    struct mr_store_process *now;        /* whose records come; NULL: none yet */
    struct mr_store_process **processes; /* in the order of their beginnings */
    uint64_t n_processes, processes_capacity;
    bool has_origin;
    uint64_t origin_ns, origin_unix_ns, end_ns;
    struct mr_map pids;     /* how often a pid came */
    struct mr_map declared; /* domains and categories that have their event */
    struct mr_map devices;  /* hash of a device -> its row */
    const char *text;       /* that came with the range that is being put; NULL: it has a number */
    size_t text_bytes;
    struct mr_symbols *symbols; /* of modules; NULL: none were asked for */
    uint32_t *seen; /* inline texts: of each place the last one's mark; NULL: none came */
    uint32_t traced;
    uint64_t n_records, n_lost_timestamps, n_backwards, n_dropped;
    uint64_t n_again; /* stacks whose number came before: left out */
};

/* A store in a temporary file (TMPDIR, else /var/tmp) that has no name. path: what is read, for
 * errors. */
int mr_store_create_unnamed(const char *path, struct mr_store **out);
/* As mr_store_finish(). [out] out: on success the database; for the caller to close. */
int mr_store_finish_unnamed(struct mr_store *store, struct sqlite3 **out);

/* Adds the table's seldom columns to this one, NULL: all, if they are not there. */
int mr_store_widen(struct mr_store *store, enum mr_part_type type, const char *last);

/* A row of the table of its type, which is put at once or later; before the store is read,
 * mr_store_flush(). */
int mr_store_put_row(struct mr_store *store, enum mr_part_type type, const void *record);
int mr_store_flush(struct mr_store *store, enum mr_part_type type);
int mr_store_flush_all(struct mr_store *store);
/* For the columns that the table has now; nothing waits. */
int mr_store_batch_prepare(struct mr_store *store, struct mr_store_batch *batch);
void mr_store_batch_close(struct mr_store_batch *batch);

/* Does the range end on another thread than it began on, as far as one knows? A pop ends its
 * thread's own. */
bool mr_store_ends_elsewhere(const struct mr_part_range *range);

/* The rows of all processes, in the order of their starts. */
int mr_store_processes_put(struct mr_store *store);
void mr_store_processes_free(struct mr_store *store);

/* Records that follow are this process's, which mr_store_process() began. */
void mr_store_select(struct mr_store *store, struct mr_store_process *process);

/* A range whose text came with it: it stands in the row, or is numbered when it came before. */
int mr_store_put_range(struct mr_store *store, const struct mr_part_range *range, const char *text,
                       size_t bytes);

/* The number of a text, which gets its row when it is new. Returns 0 or an error. */
int mr_store_text(struct mr_store *store, const char *text, size_t bytes, uint32_t *out);
/* Numbers of a kernel's demangled and short names. */
int mr_store_kernel_names(struct mr_store *store, uint32_t name, struct mr_store_name *out);
/* The last identifier of a demangled name, without template arguments and parameters: a part of
 * text. */
const char *mr_short_name(const char *text, size_t bytes, size_t *out_bytes);
/* Sets the error of a failed sqlite call on this store: full disks and I/O errors name the file. */
int mr_store_error(struct mr_store *store, const char *what);
int mr_store_exec(struct mr_store *store, const char *sql);
/* A statement that is used again and again. */
int mr_store_prepare(struct mr_store *store, const char *sql, sqlite3_stmt **out);
/* Runs a bound statement that returns no rows and readies it for the next values. */
int mr_store_step(struct mr_store *store, sqlite3_stmt *statement);
/* Prepares and runs a statement of arguments: 'i' int64_t, 't' text or NULL, 'n' nothing. */
int mr_store_run(struct mr_store *store, const char *sql, const char *types, ...);
/* A row of MILLRACE_META. */
int mr_store_meta(struct mr_store *store, const char *name, int64_t value);
/* A thread's number, packed with its process's as the export does. */
static inline int64_t mr_store_thread(uint64_t process, uint64_t tid)
{
    return (int64_t)(process << 24 | (tid & 0xffffff));
}
/* ns after the origin; before it: 0, counted. */
int64_t mr_store_time(struct mr_store *store, uint64_t time_ns);

/* Sets the moment that becomes 0; before any record. Without it that is the first process's
 * start. */
void mr_store_origin(struct mr_store *store, uint64_t origin_ns, uint64_t origin_unix_ns);

#endif
