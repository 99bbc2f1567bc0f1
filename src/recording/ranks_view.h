/* The inside of looking at ranks: what is known of one of them. */
#ifndef MR_RECORDING_RANKS_VIEW_H
#define MR_RECORDING_RANKS_VIEW_H

#include "recording/ranks.h"

/* What is known of a rank while it is looked at. */
struct mr_rank_view {
    struct mr_look look;
    struct mr_data_waits data;
    struct mr_idle idle;
    struct mr_intervals exposed; /* communication, in the steps */
    /* of the whole recording, for the device may be behind the program's steps: without
     * communication; what no compute hides */
    struct mr_intervals work, copies;
    struct mr_intervals blocked; /* the process waits for the device in a call */
    struct mr_comms comms;       /* collectives */
    int64_t offset;              /* of its collectives to the first rank's */
    bool made;
};

/* Fills all of it but the offset, and of the rank what follows from itself alone. */
int mr_rank_view_make(const struct mr_recording *rec, struct mr_rank *r, const char *step,
                      struct mr_rank_view *v);
void mr_rank_view_free(struct mr_rank_view *v);
/* A rank's time between two collectives, by cause. */
void mr_rank_view_split(const struct mr_rank_view *v, uint64_t from_ns, uint64_t to_ns,
                        uint64_t ns[MR_N_CAUSES]);
/* A step of the job, from its first collective's call to the next step's: what the rank took for
 * itself. */
void mr_rank_view_pace(const struct mr_rank_view *v, struct mr_rank *r,
                       const struct mr_rank_step *step, uint64_t call_ns, uint64_t next_call_ns);
/* Ranks without communication: ranks->apart, and the slowest, if one is (ranks_alone.c). */
void mr_ranks_find_slowest(struct mr_ranks *ranks, const struct mr_rank_view *views);

#endif
