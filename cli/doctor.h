/* What the files of `millrace doctor` share. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli.h"

struct doctor_disk {
    uint64_t bytes, ns;
    bool direct;    /* past the page cache */
    bool temporary; /* of a file that we wrote, and removed */
};

/* How fast large reads from files in a folder are: of a big file that lies there, or of a temporary one of `bytes`.
 * Prints errors; returns an exit code. */
int doctor_measure_disk(const char *dir, uint64_t bytes, struct doctor_disk *out);

#define DOCTOR_MAX_GPUS 16

struct doctor_gpu {
    char name[16];
    struct mr_device_info info;
    int kernels;     /* 1: ends of transform chains run on it */
    char error[512]; /* "": info counts */
};

/* Opens each GPU once (which takes some of its memory meanwhile). Returns how many there are, at most max. */
int doctor_look_at_gpus(struct doctor_gpu *out, int max);
void doctor_gpu_rows(const struct doctor_gpu *gpu, struct cli_table *t);
void doctor_gpu_json(const struct doctor_gpu *gpu, struct mr_json *json);

/* Notes a thing set wrong. */
typedef void doctor_find_fn(void *report, const char *remedy, const char *fmt, ...);
void doctor_judge_gpu(const struct doctor_gpu *gpu, doctor_find_fn *find, void *report);

#endif
