/*
 * Jobs of several ranks, by a simulation of data parallel training: in each step a rank loads,
 * computes, then enters an all-reduce that ends when the last one has entered it, and some
 * microseconds later on each rank.
 *
 *     struct job job = job_plain(4);
 *     job.load_ns[2] = 3000000; // rank 2 loads for 3 ms a step
 *     job_record(&job, path);   // all ranks in one recording
 *     job_record_rank(&job, 2, path, 5000000, true); // one of them, its clock 5 ms ahead
 */
#ifndef MR_TEST_JOB_MAKE_H
#define MR_TEST_JOB_MAKE_H

#include "recording_make.h"

#define JOB_RANKS 8
#define JOB_STEPS 60

struct job {
    uint32_t n_ranks, n_steps, seed;
    uint64_t load_ns[JOB_RANKS], compute_ns[JOB_RANKS], host_ns[JOB_RANKS];
    uint64_t jitter_ns;            /* most that compute takes longer, by chance */
    uint32_t n_lost[JOB_RANKS];    /* steps whose collectives are not in the recording, at first */
    uint32_t every;                /* load_ns in one of so many steps only; 0: in all */
    bool mpi;                      /* ranges of MPI instead of NCCL's kernels */
    uint64_t waited_ns[JOB_RANKS]; /* out: in the collectives that every rank recorded */
    uint64_t comm_ns[JOB_RANKS];   /* out: of those that it recorded */
};

static inline struct job job_plain(uint32_t n_ranks)
{
    struct job job = {.n_ranks = n_ranks, .n_steps = 24, .jitter_ns = 20000};
    for (uint32_t r = 0; r < JOB_RANKS; r++) {
        job.load_ns[r] = 100000;
        job.compute_ns[r] = 1000000;
    }
    return job;
}

static inline uint64_t job_chance(const struct job *job, uint32_t step, uint32_t rank,
                                  uint64_t most)
{
    return most ? test_u64((job->seed * JOB_STEPS + step) * JOB_RANKS + rank) % most : 0;
}

/* A rank's step from `at` to its entry into the collective, which is returned; make NULL: only
 * reckoned. */
static inline uint64_t job_step(const struct job *job, struct make *m, uint32_t rank, uint32_t step,
                                uint64_t at)
{
    uint64_t load = job->every && step % job->every ? 100000 : job->load_ns[rank];
    uint64_t loaded = at + load, begin = loaded + job->host_ns[rank] + 10000;
    uint64_t end = begin + job->compute_ns[rank] + job_chance(job, step, rank, job->jitter_ns);
    if (m) {
        make_range(m, "load", at, loaded);
        make_kernel_of(m, make_call(m, "cudaLaunchKernel_v7000", begin - 6000, begin - 3000), 7,
                       "gemm", begin, end);
    }
    return end;
}

/* Writes rank `only`, or all (MR_NONE). */
static inline void job_write(struct job *job, const char *path, uint32_t only, uint64_t shift,
                             bool named)
{
    struct make m = {.context = 1};
    uint64_t at[JOB_RANKS], entry[JOB_STEPS][JOB_RANKS], from[JOB_STEPS][JOB_RANKS],
        last[JOB_STEPS];
    uint32_t n_lost = 0;
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        at[r] = 1000000;
        n_lost = MR_MAX(n_lost, job->n_lost[r]);
        job->waited_ns[r] = job->comm_ns[r] = 0;
    }
    for (uint32_t s = 0; s < job->n_steps; s++) {
        last[s] = 0;
        for (uint32_t r = 0; r < job->n_ranks; r++) {
            from[s][r] = at[r];
            entry[s][r] = job_step(job, NULL, r, s, at[r]);
            last[s] = MR_MAX(last[s], entry[s][r]);
        }
        for (uint32_t r = 0; r < job->n_ranks; r++) {
            at[r] = last[s] + 50000 + r * 1000;
            job->waited_ns[r] += s >= n_lost ? last[s] - entry[s][r] : 0;
            job->comm_ns[r] += s >= job->n_lost[r] ? at[r] - entry[s][r] : 0;
        }
    }
    if (mr_store_create(path, true, &m.store) < 0)
        fail_msg("%s", mr_last_error());
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        if (only != MR_NONE && only != r)
            continue;
        make_process(&m, 100 + r, "python3 train.py");
        m.device = r;
        make_device(&m, r, "Some GPU");
        if (named) {
            make_put(&m, MR_PART_NOTE,
                     &(struct mr_part_note){.value = r, .name = make_name(&m, "rank")});
            make_put(
                &m, MR_PART_NOTE,
                &(struct mr_part_note){.value = job->n_ranks, .name = make_name(&m, "world_size")});
        }
        for (uint32_t s = 0; s < job->n_steps; s++) {
            uint64_t enter = entry[s][r] + shift, end = last[s] + 50000 + r * 1000 + shift;
            make_range(&m, "step", from[s][r] + shift, end);
            (void)job_step(job, &m, r, s, from[s][r] + shift);
            if (s >= job->n_lost[r] && job->mpi)
                make_range(&m, "MPI_Allreduce", enter, end);
            else if (s >= job->n_lost[r])
                make_kernel_of(
                    &m, make_call(&m, "cudaLaunchKernelExC_v11060", enter - 6000, enter - 3000), 17,
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", enter, end);
        }
    }
    make_end(&m);
}

static inline void job_record(struct job *job, const char *path)
{
    job_write(job, path, MR_NONE, 0, false);
}

/* named: the recording says which rank it is. */
static inline void job_record_rank(struct job *job, uint32_t rank, const char *path, uint64_t shift,
                                   bool named)
{
    job_write(job, path, rank, shift, named);
}

#endif
