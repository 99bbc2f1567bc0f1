/*
 * Data sets whose samples other processes make.
 *
 * A callback set (callback.h) runs your code on the loader's threads. Where that code holds a lock
 * of its own, as an interpreter does, leaks, or may crash, run it in worker processes instead:
 *
 *     static int start(void *user, uint32_t worker, int fd, int64_t *out_pid)
 *     {
 *         pid_t pid = fork();
 *         if (pid == 0)
 *             _exit(mr_worker_run(fd, user) < 0);
 *         *out_pid = pid;
 *         return pid < 0 ? -errno : 0;
 *     }
 *
 *     struct mr_workers_opts opts;
 *     mr_workers_opts_init(&opts);
 *     opts.n = 60000; ...                            // as for a callback set
 *     opts.start = start;
 *     opts.user = &worker_opts;                      // a struct mr_worker_opts
 *     mr_dataset_open_workers(&opts, &dataset);
 *
 * Processes share memory (a memfd: /dev/shm is not needed). A worker claims up to 128 neighbouring
 * samples at a time and writes their fields there; nothing is serialized. Order, resuming,
 * transforms, bad samples and statistics are the loader's, as for every data set.
 *
 * A worker may be killed at any instruction. The samples that it had claimed are made again by
 * another one, and a new process takes its place. If it died while making several samples, each of
 * them is then made alone, to find the one that kills workers: that sample is bad, and the loader's
 * policy for bad samples decides. Workers end when the data set is closed,
 * and when the process that opened it ends, for whatever reason.
 *
 * Linux 5.3 or later (pidfd_open). Threads: see dataset.h. fork: the data set belongs to the
 * process that opened it; a forked child may close it, which only frees the child's memory.
 */
#ifndef MILLRACE_WORKERS_H
#define MILLRACE_WORKERS_H

#include <millrace/callback.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_WORKER_PROCESSES 256

/* A worker set: what its samples are, and how its processes start. */
struct mr_workers_opts {
    size_t size;      /* of this struct, set by mr_workers_opts_init() */
    const char *name; /* in errors, statistics and the fingerprint; copied */
    uint64_t version; /* in the fingerprint: change it when the content changes */
    uint64_t n;       /* samples */
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* variable dimensions are allowed */
    uint32_t workers; /* processes, at most MR_MAX_WORKER_PROCESSES; 0: mr_cpu_count() */
    /* A worker that takes longer for the samples that it claimed is killed, as if it had died. 0:
     * no limit. */
    uint64_t timeout_ns;
    /* A sample is bad once so many workers died while making it and no other. 0: 2, the
     * minimum. */
    uint32_t max_deaths;
    int changes; /* as in mr_callback_opts */
    /*
     * Starts a process that calls mr_worker_run(fd, ...). worker: 0 to workers - 1. fd: closed on
     * exec: clear FD_CLOEXEC in the child if it execs, or send it by SCM_RIGHTS. [out] out_pid: of
     * that process, as this process sees it; it must not have been waited for. Returns 0 or a
     * negative error. Called by mr_dataset_open_workers(), and later on a thread of the library
     * for each worker that died. The library waits for workers that are children of this process.
     * That thread blocks most signals: mr_worker_run() lets a process that it started block those
     * that the process before it blocked when it called mr_worker_run().
     */
    int (*start)(void *user, uint32_t worker, int fd, int64_t *out_pid);
    /* Called when the data set is closed, after the last worker has ended; not if opening fails.
     * NULL: none. */
    void (*close)(void *user);
    void *user;
};
MR_API void mr_workers_opts_fill(struct mr_workers_opts *opts, size_t size);
static inline void mr_workers_opts_init(struct mr_workers_opts *opts)
{
    mr_workers_opts_fill(opts, sizeof *opts);
}

/*
 * Opens a data set and starts its workers; does not wait until they run.
 * Threads of a loader only hand out work then and wait. Rows of one size in shared slots need few:
 * one for eight processes and at least two, or as many as mr_loader_opts.workers if that is fewer.
 * Else mr_loader_opts.workers = 0 means two for each process.
 * Errors as mr_dataset_open(); MR_EMISUSE: no start; MR_EOPTION: too many workers; -errno: no
 * memfd, no pidfd, no thread; what start returned.
 * A worker that ends four times in a row before it has made a sample, and not because of one (see
 * max_deaths), is not started again. Without any worker all samples fail with MR_ECALLBACK and the
 * reason: the end of the process, or the text of the error of its init. -EAGAIN, -EMFILE, -ENFILE
 * and -ENOMEM of start are no fault of the program: it is called again, at longer and longer
 * intervals, for ever while other workers run, else for about 6 seconds. Then all samples fail with
 * that error.
 */
MR_API int mr_dataset_open_workers(const struct mr_workers_opts *opts, struct mr_dataset **out);

/* What a worker process does. The rules for callbacks of callback.h hold. */
struct mr_worker_opts {
    size_t size; /* of this struct, set by mr_worker_opts_init() */
    /* As in mr_callback_opts. Called by one thread. The context's worker is the process's number.
     */
    int (*get_run)(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[]);
    /* Called before the first sample; [out] state: for the context. NULL: none. */
    int (*init)(void *user, uint32_t worker, void **state);
    /* Called after the last sample, if init succeeded, but not if the worker is killed. NULL: none.
     */
    void (*exit)(void *user, uint32_t worker, void *state);
    void *user;
};
MR_API void mr_worker_opts_fill(struct mr_worker_opts *opts, size_t size);
static inline void mr_worker_opts_init(struct mr_worker_opts *opts)
{
    mr_worker_opts_fill(opts, sizeof *opts);
}

/*
 * Makes samples until the data set is closed. Call it once, in the process that start made. fd: as
 * start got it. It is duplicated: it stays the caller's, who may close it as soon as init is
 * called. So may a forked child, in which it has the parent's number.
 * If the process that opened the data set ends, this one is ended by SIGKILL at once, also within
 * get_run, if a thread for that can be started; else between two calls of get_run.
 * Returns 0; MR_EMISUSE: no get_run; MR_EFORMAT: fd is not from start, or another version of the
 * library made it; -errno; what init returned.
 */
MR_API int mr_worker_run(int fd, const struct mr_worker_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
