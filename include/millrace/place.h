/*
 * The place of this process among those that a launcher started: its rank, and how many there are.
 *
 *     struct mr_place place = {.size = sizeof place};
 *     if (mr_place_query(&place) < 0)
 *         return fail(mr_last_error());
 *     opts.rank = place.rank; // of mr_loader_opts: 0 of 1 where no launcher is recognized
 *     opts.world = place.world;
 *
 * Both are read from the environment. Launchers are tried in this order, since an inner one sets
 * its variables beside those that it inherited:
 *
 *   launcher    recognized by            rank and world
 *   torchrun    TORCHELASTIC_RUN_ID      RANK, WORLD_SIZE
 *   openmpi     OMPI_COMM_WORLD_RANK     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *   pmi         PMI_RANK                 PMI_RANK, PMI_SIZE (MPICH, Intel MPI, srun --mpi=pmi2)
 *   slurm       SLURM_STEP_ID            SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS
 *   env         RANK and WORLD_SIZE      RANK, WORLD_SIZE
 *
 * A Slurm batch script has SLURM_PROCID and SLURM_NTASKS but no SLURM_STEP_ID: a program that it
 * starts without srun is alone. RANK without WORLD_SIZE, or the reverse, is ignored outside of
 * torchrun: both are common names. An empty variable counts as not set.
 *
 * Threads: any, but not while another thread changes the environment. fork: a child has the
 * environment of its parent, and with it the parent's place.
 */
#ifndef MILLRACE_PLACE_H
#define MILLRACE_PLACE_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_place {
    size_t size;            /* of this struct, set by the caller */
    uint32_t rank;          /* from 0, below world */
    uint32_t world;         /* processes, at least 1 */
    uint32_t local_rank;    /* among the processes of this machine; 0 if local_world is 0 */
    uint32_t local_world;   /* processes on this machine; 0: unknown */
    uint32_t restart_count; /* how often the launcher started them again; 0: never, or unknown */
    char launcher[16];      /* "torchrun", "openmpi", "pmi", "slurm", "env"; "": none, 0 of 1 */
};

/*
 * Reads the place of this process from its environment. Nothing in the library calls it by itself.
 * [out] out: on success; not written beyond out->size.
 * Returns 0, MR_EOPTION (a launcher's variable is missing or not a number, or variables contradict
 * each other), MR_EMISUSE (out is NULL, or out->size is 0 or larger than the library knows). Does
 * not block.
 */
MR_API int mr_place_query(struct mr_place *out);

/*
 * Names the job that this process belongs to: a text that stays the same when the launcher restarts
 * the job's processes, and that another job does not have. "slurm 1234": SLURM_JOB_ID.
 * "torchrun ID": TORCHELASTIC_RUN_ID, which --rdzv-id sets; give no two jobs the same. Without it
 * "torchrun none_RANDOM", as in TORCHELASTIC_ERROR_FILE, which differs between machines. Other
 * launchers restart nothing.
 * [out] out: cap bytes, on success; "": no launcher, or it names no job.
 * Returns 0, MR_EOPTION (as mr_place_query()), MR_ELIMIT (cap is too small), MR_EMISUSE (NULL, or
 * cap is 0). Does not block.
 */
MR_API int mr_place_job(char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
