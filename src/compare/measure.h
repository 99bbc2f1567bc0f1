/*
 * What of a recording is compared: where each step's time goes, and copies by kind of memory, of
 * the place with the most work.
 */
#ifndef MR_COMPARE_MEASURE_H
#define MR_COMPARE_MEASURE_H

#include "advice/rules.h"

enum mr_part_of_step {
    MR_OF_STEP,
    MR_OF_COMPUTE,
    MR_OF_COPY,          /* no compute hides it */
    MR_OF_COMMUNICATION, /* no other compute hides it */
    MR_OF_OTHERS,        /* other processes on the device */
    MR_OF_DATA,          /* waiting for the loader, and copies to the device that nothing hides */
    MR_OF_IDLE,
    MR_OF_CLASS, /* the first of MR_N_IDLE */
    MR_N_OF_STEP = MR_OF_CLASS + MR_N_IDLE
};
/* "step", "compute", "waiting for the loader", ... */
const char *mr_of_step_text(int part);

struct mr_copies_of {
    uint8_t kind, src, dst; /* enum mr_copy_kind, enum mr_mem_kind */
    uint64_t n, bytes, ns;
};

#define MR_KINDS_OF_COPY 64

struct mr_measured {
    uint64_t n;                                   /* steps after warming up */
    double *ns;                                   /* by part, then by step */
    bool has_work;                                /* the device did something */
    char how[320];                                /* of steps */
    struct mr_copies_of copies[MR_KINDS_OF_COPY]; /* of the whole recording */
    uint32_t n_copies;
};

/* A viewer of the case that analysis judges: each recording is looked at once. measured: a zeroed
 * struct mr_measured; free it with mr_measured_free(), also after an error. Returns 0 or -ENOMEM.
 */
int mr_measure(const struct mr_case *c, void *measured);
void mr_measured_free(struct mr_measured *measured);

/* A part's times by step. */
static inline const double *mr_measured_part(const struct mr_measured *measured, int part)
{
    return measured->ns + (uint64_t)part * measured->n;
}

#endif
