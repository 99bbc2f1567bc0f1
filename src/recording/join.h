/*
 * Recordings of one job into one: the inside.
 *
 *     files -> mr_join_facts() of each -> mr_join_align() -> mr_join_copy() of each -> a database
 *
 * The database is temporary and has no name, as those of imports. Times of each file are moved so
 * that all are of one clock: by the time of day of its start, then by the ends of collectives,
 * which are the same on all ranks. Processes, texts and devices are renumbered.
 */
#ifndef MR_RECORDING_JOIN_H
#define MR_RECORDING_JOIN_H

#include "recording/comm.h"
#include "recording/ranks.h"
#include "recording/store.h"

struct mr_join_file {
    const char *path;
    struct mr_recording *recording;
    struct mr_comms comms; /* collectives of the place that has most */
    uint32_t *ranks;       /* of its processes, as recorded */
    uint32_t n_ranks, world;
    uint64_t unix_ns;    /* time of day of its 0; 0: not known */
    uint64_t end_ns;     /* of its last event */
    int64_t shift_ns;    /* what is added to its times */
    bool aligned;        /* by collectives */
    struct mr_map texts; /* its numbers of texts -> the store's */
    struct mr_map gpus;  /* its rows of devices -> the joined ones */
};

/* What is left out; keep: which process (globalPid >> 24), device's row of it and whose counters
 * stay. NULL: all. */
struct mr_join_filter {
    bool (*keeps_process)(const void *state, uint64_t process);
    bool (*keeps_device)(const void *state, uint64_t process, uint32_t device);
    bool (*keeps_gpu)(const void *state, uint32_t device);
    const void *state;
};

struct mr_join {
    struct mr_store *store;
    struct mr_map processes; /* file and globalPid >> 24 -> number of the process, above its pid */
    struct mr_map uuids;     /* hash -> gpu */
    struct mr_map taken;     /* gpu */
    struct mr_map declared;  /* process and its device's number */
};

/* What of processes stays. */
struct mr_join_choice {
    const struct mr_recording *rec;
    struct mr_rank *ranks; /* all places */
    uint32_t n_ranks;
    bool *chosen; /* of ranks */
    bool *keeps;  /* of processes */
};

/* Reads what aligning needs. */
int mr_join_facts(struct mr_join_file *file);
void mr_join_file_free(struct mr_join_file *file);
/* Fills shift_ns and aligned of all; MR_EFORMAT: they are not of one job. */
int mr_join_align(struct mr_join_file *files, uint32_t n);
/* Aligns the files, whose facts are read, and joins them. name: of the job, for errors. */
int mr_join_files(struct mr_join_file *files, uint32_t n, const char *name,
                  struct mr_recording **out);
/* The same of files that are aligned. choice: NULL: all of them. */
int mr_join_write(struct mr_join_file *files, uint32_t n, const char *name,
                  const struct mr_join_choice *choice, struct mr_recording **out);
/* The number of a file's process in the store: its pid below, above it how many processes have that
 * pid before it. Returns 0 or -ENOMEM. */
int mr_join_process(struct mr_join *join, uint32_t index, uint64_t process, uint64_t *out);
/* Adds a file's rows to the store. index: of the file. */
int mr_join_copy(struct mr_join *join, struct mr_join_file *file, uint32_t index,
                 const struct mr_join_filter *filter);

#endif
