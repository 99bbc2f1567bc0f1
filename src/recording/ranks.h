/*
 * The ranks of a job: every (process, device) pair, how its time splits, and for which one the
 * others wait.
 *
 * All-reduce makes the steps of all ranks equally long, so their lengths do not tell who is slow.
 * A rank waits in a collective from its own entry until the last one has entered. In each step the
 * rank that waits least is the one that the others wait for; its cost is what the median rank waits
 * more. Devices that are starved of launches wait for all of what they could have idled, whoever is
 * a little behind: where the programs of the others run ahead, gain_ns says what that rank costs
 * the job. Its cause is the class of its own time, from the end of one step's last collective to
 * the next one's, in which it has most more than the others.
 */
#ifndef MR_RECORDING_RANKS_H
#define MR_RECORDING_RANKS_H

#include "recording/comm.h"
#include "recording/idle.h"

/* Idle time's classes, and what else makes a rank late. */
enum { MR_CAUSE_COMPUTE = MR_N_IDLE, MR_CAUSE_COPY, MR_N_CAUSES };
/* "waiting for the loader", "compute", ... */
const char *mr_cause_text(int cause);

struct mr_rank {
    struct mr_place place;
    uint32_t rank; /* MR_NONE: it takes part in no communication */
    bool named;    /* the recording says so; else numbered by device and process */
    bool matched;  /* its collectives are known to be those of the others */
    /* of the whole recording; united: total = hidden under kernels + exposed; wait: for others */
    uint64_t n_comms, comm_ns, exposed_ns, wait_ns;
    /* of its steps after warming up; compute without communication that is exposed */
    uint64_t n_steps, wall_ns, idle_ns, step_exposed_ns, step_wait_ns, ns[MR_N_CAUSES];
    uint64_t n_last, cost_ns; /* steps in which the others waited for it, and how long */
    /* Of the job's steps: those that its program began before the device had ended the one before,
     * and what it takes for itself: its launching thread without waits for the device; its work. */
    uint64_t n_ahead, host_ns, work_ns;
};

struct mr_rank_step {
    uint64_t start_ns, end_ns;
    uint64_t first;   /* of its collectives, by the number of the rank that all are matched with */
    uint32_t last;    /* of ranks: the one that waited least; MR_NONE: nobody waits to speak of */
    int cause;        /* -1: not to be seen in its time */
    uint64_t cost_ns; /* what the median rank waited more */
    int64_t more_ns;  /* of the cause: the last one's time less the others' mean */
};

struct mr_ranks {
    struct mr_rank *at; /* by rank, then device and process */
    uint32_t n, n_matched;
    struct mr_rank_step *steps;
    uint64_t n_steps;
    uint32_t world; /* as recorded; 0: not known */
    uint32_t slow;  /* of at: who the others wait for; MR_NONE: nobody */
    int cause;      /* of MR_N_CAUSES: why; -1: its own time does not tell */
    double more_ns; /* of the cause, a step */
    /* Of a step, if `slow` were as fast as the others, which would then take as long as they do for
     * themselves; -1: not known, since their programs do not run ahead of their devices. */
    double gain_ns;
    /* Named ranks that do not communicate (a loader's): nobody waits, and `slow` is the one whose
     * mean step is longest beyond noise; n_steps is 0. */
    bool apart;
    double slow_step_ns, next_step_ns; /* where slow is set: its mean step, the next rank's */
    char why[240]; /* why nobody can be named, as a sentence; "": that could be seen */
};

/* step: as in mr_look_make(); places without the range have steps of their own. [out] out: free it
 * with mr_ranks_free(). Returns 0, MR_EOPTION (no place has the range) or -ENOMEM. */
int mr_ranks_find(const struct mr_recording *rec, const char *step, struct mr_ranks *out);
/* Puts the place to look at first: that of the rank that the others wait for; the one with the most
 * work may be the one that waits, in kernels. [out] out, returns: as mr_ranks_find(). */
int mr_ranks_find_first(const struct mr_recording *rec, const char *step, struct mr_place *places,
                        uint32_t n, struct mr_ranks *out);
/* "; if it were as fast as they are, ..." where that is much less than what the others wait; else
 * "". */
void mr_ranks_gain_text(const struct mr_ranks *ranks, char *out, size_t bytes);
void mr_ranks_free(struct mr_ranks *ranks);

#endif
