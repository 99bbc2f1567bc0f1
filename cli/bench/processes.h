/* What bench processes measures: processes_*.c do it, cmd_bench_processes.c shows it. */
#ifndef CLI_BENCH_PROCESSES_H
#define CLI_BENCH_PROCESSES_H

#include "cli.h"

#include <stdatomic.h>
#include <sys/types.h>

struct processes_opts {
    struct cli_common common;
    char *python, *chunks, *plot;
    uint64_t starts, resident_bytes, min_bytes, max_bytes, time_ns, items, item_ns, workers,
        repeats;
};

enum processes_start { START_THREAD, START_FORK, START_FORK_FULL, START_SPAWN, START_SERVER };
enum processes_pass { PASS_PICKLE, PASS_PIPE, PASS_COPY, PASS_HANDLE, PASS_POINTER };
enum processes_map { MAP_SERIAL, MAP_THREADS, MAP_PROCESSES };

#define PROCESSES_MAX_CHUNKS 8
#define PROCESSES_MAX_CHUNK  4096 /* items, of 8 bytes each, in a message */

/* One measurement. NaN: unknown. */
struct processes_result {
    double us;       /* of a start, a batch, an item: wall time */
    double ended_us; /* of a start: until it has ended and was waited for */
    double cpu_us;   /* of all threads and processes that took part */
    uint64_t n;      /* starts, batches, items */
    uint64_t bytes;  /* of all batches */
};

/* ---- processes_child.c ---- */

/* fork(), where the child dies with its parent and leaves interrupts to it. The child calls main
 * and ends with what it returns. Returns its id, or -errno. */
pid_t processes_fork(int (*main)(void *user), void *user);

/* CPU time of a process that runs, 0: this one. NaN: unknown. */
double processes_cpu_us(pid_t pid);

/* Reads or writes all of it. Returns 0; -EPIPE at an end, or -errno. */
int processes_read(int fd, void *to, uint64_t n);
int processes_write(int fd, const void *from, uint64_t n);

/* Ends a child by closing *fd, unless it is negative, and waits for it. */
void processes_end(pid_t pid, int *fd);

/* ---- what is measured; functions return 0 or the library's error ---- */

/* A process that forks on request, made while this one is small. */
struct processes_server {
    pid_t pid;
    int fd, report; /* to ask it; where its children tell that they run */
};

int processes_server_open(struct processes_server *server);
void processes_server_close(struct processes_server *server);

/* One start to warm up, then the median of opts->starts. */
int processes_start(const struct processes_opts *opts, struct processes_server *server,
                    enum processes_start way, struct processes_result *out);

/* Passes batches of `bytes` for opts->time_ns, after a quarter of it to warm up. Every batch is
 * checked. */
int processes_pass(const struct processes_opts *opts, enum processes_pass way, uint64_t bytes,
                   struct processes_result *out);

/* How often an item's work is repeated, so that it takes item_ns. */
uint64_t processes_rounds(uint64_t item_ns);

/* Maps opts->items once to warm up and once to measure, in messages of `chunk` items. Every result
 * is checked. */
int processes_map(const struct processes_opts *opts, enum processes_map way, uint64_t rounds,
                  uint64_t chunk, struct processes_result *out);
/* By an item's number. */
uint64_t processes_work(uint64_t item, uint64_t rounds);

/* processes_python.c: the same in the language that most pipelines are written in, by
 * processes.py. */
struct processes_python {
    const char *name; /* of its program */
    pid_t pid;        /* 0: there is none */
    int fd;
    char version[64];
    char why_not[256]; /* "": there is one, or none was asked for */
};

int processes_python_open(const struct processes_opts *opts, struct processes_python *python);
void processes_python_close(struct processes_python *python);
/* Asks for "start fork 5": a line of processes.py's. */
int processes_python_ask(struct processes_python *python, struct processes_result *out,
                         const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
