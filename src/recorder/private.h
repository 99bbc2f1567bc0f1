/*
 * What the files of the recorder's core share.
 *
 * Locks are words of our own on futexes: the wrappers of pthread functions in this library may not
 * be entered from here, and a forked child can make them new. Order: record.start, then
 * record.drain, then one of strings, threads, pool.
 */
#ifndef MR_RECORDER_PRIVATE_H
#define MR_RECORDER_PRIVATE_H

#include "recorder/record.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

struct record_lock {
    atomic_uint word; /* 0: free, 1: taken, 2: taken and waited for */
};
void record_lock(struct record_lock *lock);
void record_unlock(struct record_lock *lock);
/* Waits while *word == value, at most this long; 0: for ever. */
void record_wait(atomic_uint *word, unsigned value, uint64_t ns);
void record_wake(atomic_uint *word);
/* Waits until *stage is so, for at most this long; who sets it wakes `wake` after. Whether it
 * is. */
bool record_wait_for(atomic_uint *stage, unsigned until, atomic_uint *wake, uint64_t ns);

/* As syscall(), but never recorded. */
long record_syscall(long number, ...);

/* Memory straight from the kernel, zeroed: malloc may be the program's own and call what we
 * wrap. */
void *record_map(size_t bytes);
void record_unmap(void *memory, size_t bytes);
/* Maps the beginning of a file, shared with other processes; NULL: not possible. */
void *record_map_file(int fd, size_t bytes);

/*
 * A thread's records: a chain of blocks, each filled by its thread and emptied by whoever holds
 * record.drain. In a block a record stands behind a word that says its type and bytes.
 */
#define RECORD_BLOCK (64 * 1024)
struct record_block {
    atomic_uint used;                    /* bytes of data, published by the thread */
    unsigned taken;                      /* bytes of data, by the drainer */
    _Atomic(struct record_block *) next; /* set when this one is full */
    char data[RECORD_BLOCK - 16];
};
_Static_assert(sizeof(struct record_block) == RECORD_BLOCK, "a block is whole pages");

struct record_item {
    uint32_t type, bytes;
};

struct record_thread {
    struct record_thread *next;
    struct record_block *first; /* the drainer's end */
    struct record_block *last;  /* the thread's */
    uint32_t tid;
    uint32_t name; /* the kernel's, when it ended; 0: not asked */
    atomic_bool ended;
};

/* Gives every record of every thread's chain; with record.drain held. */
void record_chains_take(void (*take)(enum mr_part_type type, const void *record, uint32_t bytes));

enum record_state { RECORD_IDLE, RECORD_ON, RECORD_OFF };

struct record_config {
    const char *folder;
    uint32_t traced;
    bool profiler_range; /* cudaProfilerApi */
    const char *nvtx_range;
    bool repeat;
    uint64_t begin_ns, delay_ns, duration_ns;
    uint32_t flush_ms;
    int64_t rank, world; /* of the job; -1: none */
};
extern struct record_config record_config; /* constant once the library is loaded */

/* rank.c. [out] both, or -1: the environment names none. */
void record_rank_find(int64_t *out_rank, int64_t *out_world);

/* Everything that a forked child creates again. */
struct record_core {
    atomic_uint state, generation;
    struct record_lock start, drain, threads_lock, pool_lock;
    struct record_thread *threads;
    struct record_block *pool; /* free blocks, chained by next */
    unsigned n_pool;
    atomic_uint n_blocks;        /* in use */
    atomic_uint wake;            /* counts up when the writer has reason to look */
    atomic_uint_fast64_t n_lost; /* records for which there was no room */
    /* the module was loaded, or the process forked off: before all that it records; 0: not told */
    uint64_t begin_ns;
    pid_t pid;
    int fd;
    dev_t dev;
    ino_t ino;
    off_t size; /* of what was written whole */
    char path[4096];
};
extern struct record_core record_core;

/* Counts records that there was no room for. */
void record_lose(uint32_t n);

/* capture.c */
void record_capture_init(void);
bool record_capture_is_limited(void);
bool record_capture_is_on(void);
void record_capture_poll(void); /* tells the listener */
void record_capture_forked(void);

/* record_strings.c: texts that are not in the part yet, as records of strings, a piece at a time;
 * 0: none is left. */
size_t record_strings_take(char *to, size_t bytes, uint32_t *out_n);
bool record_strings_busy(void); /* this thread adds one */
void record_strings_forked(void);

/* record_part.c: all with record.drain held */
int record_part_create(void);
void record_part_write(enum mr_part_type type, uint16_t record_bytes, uint32_t n,
                       const void *records, size_t bytes);
void record_part_close(void);
void record_part_forked(void);

/* record_writer.c */
void record_writer_start(void);
bool record_spawn(void *(*work)(void *)); /* a detached thread of ours; whether there is one */
void record_drain(void);                  /* with record.drain held */
void record_tell_names(void);             /* of the process's threads; with record.drain held */
void record_tell_name_of(uint32_t tid,
                         uint32_t name); /* of a thread that ended; with record.drain held */
void record_names_forked(void);

#endif
