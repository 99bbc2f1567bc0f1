/* The inside of reading Kineto traces: what is known of a file after its first reading. */
#ifndef MR_RECORDING_KINETO_H
#define MR_RECORDING_KINETO_H

#include "recording/import.h"
#include "recording/json_stream.h"

/* What becomes of an event. */
enum mr_kineto_kind {
    MR_KINETO_KERNEL,
    MR_KINETO_COPY,
    MR_KINETO_SET,
    MR_KINETO_RUNTIME,
    MR_KINETO_DRIVER,
    MR_KINETO_SYNC,
    MR_KINETO_RANGE,
    MR_KINETO_OP,
    MR_KINETO_OVERHEAD,
    MR_KINETO_NAMES,     /* of processes and threads */
    MR_KINETO_REDUNDANT, /* flows, the GPU's copies of annotations, marks of the profiler itself */
    MR_KINETO_PYTHON,    /* python_function */
    MR_KINETO_MEMORY,    /* of PyTorch's allocator */
    MR_KINETO_CATEGORY,  /* from here on left out because they are not understood: an unknown one */
    MR_KINETO_PHASE,
    MR_KINETO_NO_TIME,
    MR_KINETO_NEGATIVE,
    MR_KINETO_NO_EVENT,
    MR_KINETO_N
};

struct mr_kineto_event {
    struct mr_json_text name, category, pid, tid, args;
    int64_t start_ns, end_ns;
    enum mr_kineto_kind kind;
};

struct mr_kineto_host { /* a process */
    char pid_text[32];
    uint32_t pid;
    uint64_t n_calls, n_ranges;
    int64_t first_ns, last_ns;
    char name[128];
};

/* Hashes, in buckets of those that begin with the same bits: all of them while the first reading
 * goes on, then those that came twice. */
#define MR_KINETO_BUCKET_BITS 8
struct mr_kineto_set {
    struct mr_kineto_bucket {
        uint64_t *hashes;
        size_t n, capacity;
    } bucket[1 << MR_KINETO_BUCKET_BITS];
    uint64_t n_too_many; /* how many repeated another */
};

/* The kernel's numbers of processes and threads end before this one. What a file calls otherwise
 * gets a number from here on. */
#define MR_KINETO_ODD     0x400000u

#define MR_KINETO_DEVICES 256
struct mr_kineto {
    const char *path;
    struct mr_store *store;
    struct mr_map pids; /* hash of a pid's text -> of hosts */
    struct mr_map tids; /* hash of a process and a tid's text -> the thread's number */
    uint32_t n_odd_tids;
    struct mr_kineto_host *hosts;
    uint64_t n_hosts, capacity;
    uint32_t main; /* of hosts: that of the device's work */
    uint64_t n[MR_KINETO_N];
    int64_t first_ns, first_empty_ns;           /* of all; of the device's without length */
    int64_t last_ns, base_ns, rank, world_size; /* the last two: -1: not known */
    bool device_used[MR_KINETO_DEVICES];
    char *devices, *damage; /* the text of deviceProperties; where the file is damaged */
    size_t devices_bytes;
    uint64_t n_too_large;
    struct mr_kineto_set events; /* by their text */
    struct mr_kineto_set calls;  /* by process and correlation id */
    uint32_t ops_domain;
    char *name; /* MR_KINETO_NAME bytes, for one event's */
};
#define MR_KINETO_NAME (1u << 16)

/* An event's parts and its kind. */
void mr_kineto_parse(struct mr_json_text text, struct mr_kineto_event *event);
/* The process of an event; MR_NONE: no memory. */
uint32_t mr_kineto_host(struct mr_kineto *k, struct mr_json_text pid);
uint32_t mr_kineto_device(const struct mr_kineto_event *event);
uint32_t mr_kineto_correlation(const struct mr_kineto_event *event); /* 0: none */
bool mr_kineto_of_device(enum mr_kineto_kind kind);

/* The first reading. */
int mr_kineto_survey(struct mr_kineto *k);
/* An event of the first reading: its text is kept in mind. 0 or -ENOMEM. */
int mr_kineto_note(struct mr_kineto *k, struct mr_json_text text);
/* The same of a call, by its process and correlation id. */
int mr_kineto_note_call(struct mr_kineto *k, uint32_t host, enum mr_kineto_kind kind,
                        uint32_t correlation);
/* After the first reading: what came twice. */
void mr_kineto_find_repeats(struct mr_kineto *k);
/* In the second one: whether an event of the same text was there already. */
bool mr_kineto_is_repeat(struct mr_kineto *k, struct mr_json_text text);
/* Whether several calls of a process have that id. */
bool mr_kineto_is_ambiguous(const struct mr_kineto *k, uint32_t host, uint32_t correlation);
void mr_kineto_free_set(struct mr_kineto_set *set);
/* An event of the second one. */
int mr_kineto_put(struct mr_kineto *k, const struct mr_kineto_event *event);
/* What deviceProperties says of the devices that have events. */
int mr_kineto_put_devices(struct mr_kineto *k);

#endif
