/* What the files of `millrace doctor` share. */
#ifndef CLI_DOCTOR_DOCTOR_H
#define CLI_DOCTOR_DOCTOR_H

#include "cli.h"
#include <millrace/place.h>

struct doctor_disk {
    uint64_t bytes, ns;
    bool direct;    /* past the page cache */
    bool temporary; /* of a file that we wrote, and removed */
};

/* Measures large reads from a folder: of a big file in it, or of a temporary one of `bytes`.
 * Prints errors; returns an exit code. */
int doctor_measure_disk(const char *dir, uint64_t bytes, struct doctor_disk *out);

#define DOCTOR_MAX_GPUS      16
#define DOCTOR_MAX_PROCESSES 64

/* NVIDIA's Multi-Process Service, by which processes share a GPU at the same time. */
struct doctor_mps {
    char directory[256]; /* where its pipes are or would be */
    bool named;          /* by CUDA_MPS_PIPE_DIRECTORY */
    bool pipes,
        runs; /* the control daemon's pipe is there; and the daemon, as far as can be seen */
};

void doctor_look_at_mps(struct doctor_mps *out);
void doctor_mps_row(const struct doctor_mps *mps, struct cli_table *t);
void doctor_mps_json(const struct doctor_mps *mps, struct mr_json *json);

/* The distance, as the firmware tells it (10: the same node), from a memory node to the nearest
 * that has a processor which this process may run on. -1: unknown. */
int doctor_numa_distance(int node);
/* How many of this process's processors are on the node, and [out] all of them; -1: unknown. */
int doctor_near_processors(int node, int *all);

struct doctor_gpu {
    char name[16];
    struct mr_device_info info;
    int kernels; /* 1: ends of transform chains run on it */
    struct mr_device_process process[DOCTOR_MAX_PROCESSES]; /* others that compute on it */
    int n_processes;                                        /* -1: unknown */
    bool sees_self;    /* its pids are ours: this process was found among them and is left out */
    int numa_distance; /* from its node to our processors; -1: unknown */
    int near, of;      /* our processors on its node, -1: unknown; all of ours */
    char error[512];   /* "": info counts */
};

/* Opens each GPU once (which takes some of its memory meanwhile). Returns how many there are, at
 * most max. */
int doctor_look_at_gpus(struct doctor_gpu *out, int max);
void doctor_gpu_rows(const struct doctor_gpu *gpu, struct cli_table *t);
void doctor_gpu_json(const struct doctor_gpu *gpu, struct mr_json *json);

/* Notes a thing set wrong. */
typedef void doctor_find_fn(void *report, const char *remedy, const char *fmt, ...);
void doctor_judge_gpu(const struct doctor_gpu *gpu, const struct doctor_mps *mps,
                      doctor_find_fn *find, void *report);
void doctor_judge_mps(const struct doctor_mps *mps, doctor_find_fn *find, void *report);

struct doctor_library {
    bool found;
    char text[512]; /* its name and version, or why there is none */
};

struct doctor_ranks {
    struct mr_place place;
    struct doctor_library mpi, nccl;
};

void doctor_look_at_ranks(struct doctor_ranks *out, doctor_find_fn *find, void *report);
void doctor_ranks_rows(const struct doctor_ranks *r, struct cli_table *t);
void doctor_ranks_json(const struct doctor_ranks *r, struct mr_json *json);

#endif
