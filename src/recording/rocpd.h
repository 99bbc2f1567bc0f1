/*
 * The inside of reading rocpd, the SQLite database of rocprofv3 (ROCm 7; schema_version 3).
 *
 * Its tables are named "rocpd_kernel_dispatch" and so on with a suffix, "_" and the uuid of a
 * process; a merged file has a set of tables for each. Views without suffixes unite them, which are
 * not used: nothing of a file from anywhere is run. Two layouts have the same number of version:
 * times and places in the events' rows, or in rows of rocpd_timestamp and rocpd_track.
 */
#ifndef MR_RECORDING_ROCPD_H
#define MR_RECORDING_ROCPD_H

#include "recording/import.h"

#define MR_ROCPD_SUFFIX 80 /* bytes; of more the tables are not rocprofv3's */

struct mr_rocpd_set { /* tables with one suffix */
    char suffix[MR_ROCPD_SUFFIX];
    bool tracks;     /* the second layout */
    bool categories; /* have a table of their own, rocpd_info_category */
};

struct mr_rocpd_host { /* a process */
    uint32_t set, pid, ppid;
    uint64_t node; /* hash of its machine's id */
    char node_name[64];
    int64_t start_ns, end_ns, last_ns; /* <= 0: not known; of its last event */
    char *command;
    int64_t rank, world; /* -1: not known */
    struct mr_store_process *process;
};

struct mr_rocpd_agent {
    bool gpu;
    uint32_t device; /* among the machine's GPUs */
};

/* Rows that are left out. */
enum mr_rocpd_left {
    MR_ROCPD_NO_TIME,
    MR_ROCPD_NEGATIVE, /* times, or lengths */
    MR_ROCPD_SCRATCH,  /* memory without an address */
    MR_ROCPD_NO_RANGE, /* calls of roctx that are neither ranges nor marks */
    MR_ROCPD_N_LEFT
};

struct mr_rocpd {
    const char *path;
    struct sqlite3 *db;
    struct mr_store *store;
    struct mr_rocpd_set *sets;
    uint64_t n_sets, sets_capacity;
    struct mr_rocpd_host *hosts;
    uint64_t n_hosts, hosts_capacity;
    struct mr_rocpd_agent *agents;
    uint64_t n_agents, agents_capacity;
    struct mr_map host_of;  /* set and number of a process -> of hosts */
    struct mr_map agent_of; /* set and number -> of agents */
    struct mr_map tid_of;   /* set and number of a thread -> tid */
    struct mr_map parents;  /* host and a call below HIP's -> the call that made it */
    struct mr_map held;     /* process and address -> of agents, 1 up; 0: none */
    uint64_t node;          /* whose rows are written */
    uint64_t n[MR_ROCPD_N_LEFT], n_kernels, n_copies, n_calls;
    uint32_t rccl; /* name of the domain */
};

/* A row's common part. */
struct mr_rocpd_row {
    sqlite3_stmt *stmt;
    uint32_t set, host, tid, correlation;
    uint64_t start_ns, end_ns;
};
/* The columns that all of them begin with; a table's own come from the last on. */
enum {
    MR_ROCPD_START,
    MR_ROCPD_END,
    MR_ROCPD_PID,
    MR_ROCPD_TID,
    MR_ROCPD_STACK,
    MR_ROCPD_PARENT,
    MR_ROCPD_OWN
};

static inline uint64_t mr_rocpd_key(uint64_t of, int64_t id)
{
    return mr_mix64(mr_mix64(of + 1) ^ (uint64_t)id);
}

/* Prepares sql, in which "{s}" is the set's suffix and "{p}" the table of places. */
int mr_rocpd_prepare(struct mr_rocpd *k, const struct mr_rocpd_set *set, const char *sql,
                     sqlite3_stmt **out);
/* The next row. Returns 1, 0 at the end, or an error. */
int mr_rocpd_step(struct mr_rocpd *k, sqlite3_stmt *stmt);
/* The process that a set means by a number, a new one where its tables do not have it. MR_NONE: no
 * memory. */
uint32_t mr_rocpd_host(struct mr_rocpd *k, uint32_t set, int64_t id);

/* Which tables there are, and of which version and layout. */
int mr_rocpd_find_sets(struct mr_rocpd *k);
/* Processes, threads, agents of all sets. */
int mr_rocpd_read_places(struct mr_rocpd *k);
/* Writes the GPUs and the threads' names of a set: of the node at hand. */
int mr_rocpd_put_places(struct mr_rocpd *k, uint32_t set);
/* Writes the events of a set: of the node at hand. */
int mr_rocpd_put_set(struct mr_rocpd *k, uint32_t set);

#endif
