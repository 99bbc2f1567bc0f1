/*
 * Communication between the processes of a job, and which of it belongs together.
 *
 * A place's communication is its kernels of NCCL and RCCL; where it has none, the ranges and calls
 * of MPI on its process's threads. Collectives come in the same order on each rank of one group, so
 * the i-th of one rank and that of another are one: but for how many of them each recording holds
 * at its beginning (mr_comm_match()).
 */
#ifndef MR_RECORDING_COMM_H
#define MR_RECORDING_COMM_H

#include "recording/look.h"

struct mr_comm {
    uint64_t start_ns, end_ns; /* it enters; it is done, on all ranks at about the same time */
    uint64_t call_ns;          /* it was given to the device; without a call it enters */
    uint64_t kind;             /* hash of its name */
    bool collective;           /* of a whole group: no send or receive */
};
struct mr_comms {
    struct mr_comm *at; /* by start */
    uint64_t n, capacity;
    bool ranges; /* of MPI's ranges, not of kernels */
};

/* Of NCCL, RCCL, MPI, c10d: a kernel's, a range's or a call's name. */
bool mr_name_communicates(const char *name);
/* One of them that a whole group takes part in. */
bool mr_name_is_collective(const char *name);

/* ops: of the place, by start. [out] out: empty before; free it with mr_comms_free(). */
int mr_comms_find(const struct mr_recording *rec, const struct mr_place *place, const uint32_t *ops,
                  uint64_t n_ops, struct mr_comms *out);
/* Leaves only collectives. */
void mr_comms_keep_collectives(struct mr_comms *comms);
void mr_comms_free(struct mr_comms *comms);

/* Two ranks' collectives side by side: a's number i + offset and b's number i are one. */
struct mr_comm_pair {
    int64_t offset;
    int64_t shift_ns;   /* median of a's end less b's: what b's clock lacks */
    uint64_t spread_ns; /* by which that changes from one to the next: the median */
    uint64_t n;         /* that both have; 0: none fits */
};
/* same_clock: the shift is known to be small. */
void mr_comm_match(const struct mr_comms *a, const struct mr_comms *b, bool same_clock,
                   struct mr_comm_pair *out);

#endif
