/* The inside of loading a recording: from rows of either schema to arrays. */
#ifndef MR_RECORDING_LOAD_H
#define MR_RECORDING_LOAD_H

#include "recording/map.h"
#include "recording/recording.h"
#include <sqlite3.h>

/* What mr_recording_open() makes: the texts behind `strings` lie beside it. */
struct mr_recording_whole {
    struct mr_recording recording;
    struct mr_texts texts;
};

struct mr_load {
    struct mr_recording *recording;
    struct mr_texts *texts;
    struct mr_map strings;   /* an id of StringIds -> number of the text */
    struct mr_map processes; /* globalTid >> 24 -> of processes */
    struct mr_map threads;   /* globalTid -> of threads */
    struct mr_map devices;   /* process or pid, and its number of a device -> of devices */
    struct mr_map gpus;      /* id of TARGET_INFO_GPU -> of devices */
    struct mr_map domains;   /* process << 32 | domain's id (both folded) -> number of the text */
    uint8_t *classes;        /* of texts that are calls' names: enum mr_call_class + 1 */
    uint32_t n_classes;
    uint32_t unknown; /* the text "?" */
    uint64_t ops_capacity, apis_capacity, syncs_capacity, ranges_capacity, os_capacity,
        threads_capacity, processes_capacity, devices_capacity, notes_capacity;
    const char *table;  /* that is being read */
    uint64_t rows_most; /* that a table of a file of this size can have */
};

#define MR_LOAD_COLUMNS 16

/* A table, or some of its rows, and the function that takes a row. */
struct mr_load_source {
    const char *table;
    int (*row)(struct mr_load *load, sqlite3_stmt *values); /* returns 0 or an error */
    /* NULL at the end. A column that the table lacks reads as NULL; "rowid" is the row's number. */
    const char *columns[MR_LOAD_COLUMNS];
};

/* Reads the rows of n sources in their order, up to the first error. A missing table has no
 * rows. */
int mr_load_sources(struct mr_load *load, const struct mr_load_source *sources, size_t n);

/* Numbers out of foreign rows: never negative, and as large as fits. */
uint64_t mr_load_u64(sqlite3_stmt *values, int column);
uint32_t mr_load_u32(sqlite3_stmt *values, int column);
/* [out] start, end: the end not before the start. */
void mr_load_span(sqlite3_stmt *values, int start, int end, uint64_t *out_start, uint64_t *out_end);

/* Lookups of what events name; each makes what it does not find. Return 0 or -ENOMEM. */
int mr_load_text(struct mr_load *load, sqlite3_stmt *values, int column, uint32_t *out);
int mr_load_process(struct mr_load *load, int64_t global, uint16_t *out);
int mr_load_thread(struct mr_load *load, int64_t global, uint32_t *out);
int mr_load_device(struct mr_load *load, int64_t global_pid, uint32_t id, uint16_t *out);

/* Room for one more item of `bytes` in an array of n. Returns 0 or -ENOMEM with the error set. */
int mr_load_grow(struct mr_load *load, void *array, uint64_t n, uint64_t *capacity, size_t bytes);

/* Tables of who and where, then of events, then what follows from all of them. */
int mr_load_names(struct mr_load *load);
int mr_load_events(struct mr_load *load);
int mr_load_join(struct mr_load *load);

#endif
