/*
 * A budget: worker threads and memory that several loaders share, such as those of training and of
 * validation.
 *
 *     struct mr_budget_opts budget_opts;
 *     struct mr_budget *budget;
 *     mr_budget_opts_init(&budget_opts);
 *     budget_opts.workers = 8;
 *     budget_opts.max_memory = 4ull << 30;
 *     mr_budget_create(&budget_opts, &budget);
 *     opts.budget = budget; // of mr_loader_opts, for each of the loaders
 *
 * Workers: each loader has worker threads of its own, but at most `workers` of all of them work at
 * the same time; the others sleep. A worker that waits, for a read or for a free slot, lets another
 * one work, and so does one that has worked for a millisecond while others wait. Workers are served
 * in the order in which they asked, so no loader starves, and a loader whose batches are not taken
 * costs the others nothing. A callback (of a data set, sampler, op or collation) counts as work
 * even while it sleeps, so it must not wait for another loader of the same budget. Not limited:
 * init and exit hooks, samples made on the consumer's thread (replacements of bad ones), and
 * reading from an iterable set (iterable.h), which may block; decoding its samples is.
 *
 * Memory: what a loader will need is computed when it opens, as for mr_loader_opts.max_memory, and
 * the sum over all open loaders stays within the ceiling. Opening a loader that exceeds it fails
 * with MR_ELIMIT after numbers that were left automatic have been lowered. Slots that replace those
 * of held batches count as well, and so does what slots grow by. Closing a loader gives its part
 * back. Loaders that cache files of one data set count them once each. Files whose size is not
 * known at open are cached only within the loader's own max_memory, which then counts as a whole.
 *
 * What a loader delivers does not depend on its budget.
 *
 * Threads: every function may be called from any thread.
 * fork: a child cannot use an inherited budget: opening a loader with it fails with MR_EMISUSE.
 */
#ifndef MILLRACE_BUDGET_H
#define MILLRACE_BUDGET_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_budget;

struct mr_budget_opts {
    size_t size;         /* of this struct, set by mr_budget_opts_init() */
    uint32_t workers;    /* threads that work at once, 1 to 512; 0 (default): mr_cpu_count() */
    uint64_t max_memory; /* bytes of all loaders together; 0 (default): no limit */
};

/* Sets opts to the defaults. C and C++ call mr_budget_opts_init(); see millrace.h. */
MR_API void mr_budget_opts_fill(struct mr_budget_opts *opts, size_t size);
static inline void mr_budget_opts_init(struct mr_budget_opts *opts)
{
    mr_budget_opts_fill(opts, sizeof *opts);
}

/*
 * Creates a budget.
 * opts: set up with mr_budget_opts_init(); NULL: all defaults. [out] out: on success; give it to
 * loaders as mr_loader_opts.budget, and free it with mr_budget_destroy().
 * Returns 0, MR_EOPTION, MR_EMISUSE (a wrong opts.size), -ENOMEM.
 */
MR_API int mr_budget_create(const struct mr_budget_opts *opts, struct mr_budget **out);

/* Frees a budget. Loaders that use it go on; its memory is freed when the last of them is closed.
 * No loader can be opened with it any more. NULL is allowed. */
MR_API void mr_budget_destroy(struct mr_budget *budget);

struct mr_budget_info {
    size_t size;      /* of this struct, set by the caller */
    uint32_t workers; /* that may work at once */
    uint32_t working; /* that do now */
    uint32_t waiting; /* until others let them work */
    uint32_t loaders; /* that are open */
    uint64_t max_memory;
    uint64_t bytes; /* what the open loaders count for */
};

/* Describes a budget now. [out] out: on success; not written beyond out->size. Returns 0,
 * MR_EMISUSE (NULL, or out->size is 0 or larger than the library knows). */
MR_API int mr_budget_query(struct mr_budget *budget, struct mr_budget_info *out);

#ifdef __cplusplus
}
#endif
#endif
