/* The rows of bench processes, and what they say. */
#ifndef CLI_BENCH_PROCESSES_SHOW_H
#define CLI_BENCH_PROCESSES_SHOW_H

#include "bench/frame.h"
#include "bench/processes.h"

enum processes_part { PART_START, PART_PASS, PART_MAP };

enum processes_column {
    PART,
    WAY,
    KEY,
    LANGUAGE,
    BATCH,
    WORKERS,
    CHUNK,
    US,
    VARIATION,
    ENDED,
    RATE,
    CPU,
    OF_THREAD,
    OF_POINTER,
    SPEED_UP,
    N,
    BYTES,
    PROCESSES_N_COLUMNS
};

/* A row's way: processes_start, _pass or _map, by its part. */
struct processes_way {
    enum processes_part part;
    int way;
    bool python;
    const char *key, *name, *what;
};

#define PROCESSES_FINDING 480

struct processes {
    struct processes_opts *opts;
    uint64_t chunk[PROCESSES_MAX_CHUNKS];
    int n_chunks;
    uint64_t rounds; /* of an item's work */
    struct processes_server server;
    struct processes_python python;
    struct processes_way *way; /* of each row */
    char finding[BENCH_MAX_FINDINGS][PROCESSES_FINDING];
    int n_findings;
};

/* processes_say.c: from the medians, in words. */
void processes_say(struct processes *p, const struct bench *b);

#endif
