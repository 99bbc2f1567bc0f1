/*
 * Iterable data sets: samples that come one after the other, from a socket, a queue, a generator
 * or a pipe, whose number is not known before the last one has come.
 *
 * The same loader reads them, but without a sampler: mr_loader_opts.shuffle_buffer shuffles.
 * mr_dataset_length() and mr_loader_batches() are MR_UNKNOWN, and mr_dataset_read() fails.
 * examples/iterable.c is one; docs/own_data.md is the guide. "tar:-" is one, too: see
 * mr_tar_opts.stream.
 *
 * Threads and fork: see dataset.h; each callback says which threads call it.
 */
#ifndef MILLRACE_ITERABLE_H
#define MILLRACE_ITERABLE_H

#include <millrace/callback.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An iterable set. Set either read, or read_bytes and decode. The rules for callbacks of
 * callback.h hold: what they return, init, exit and close, C++.
 *
 * context->index is the sample's number in the source, from 0. context->position is the same in
 * read and read_bytes, and in decode its place after shuffling. With `unordered` both are 0 in read
 * and read_bytes, as samples are numbered once they have been read.
 */
struct mr_iterable_opts {
    size_t size;      /* of this struct, set by mr_iterable_opts_init() */
    const char *name; /* in errors, statistics and the fingerprint; copied */
    uint64_t version; /* in the fingerprint: change it when the content changes */
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* variable dimensions are allowed */
    /*
     * Makes the next sample. row, dim: as in mr_callback_opts.get. Returns 0; MR_END: there are no
     * more, see rewind; or another negative error: this sample is bad, and there may be more (after
     * 10,000 bad ones in a row the run fails). Called by one worker at a time, in order.
     */
    int (*read)(void *user, const struct mr_sample_context *context, void *const row[],
                uint64_t (*dim)[MR_MAX_RANK]);
    /*
     * Reads the next sample's bytes, for sources whose samples take time to decode. [out] out:
     * copied before the next call of any callback on this thread. Else like read.
     */
    int (*read_bytes)(void *user, const struct mr_sample_context *context, struct mr_bytes *out);
    /* Makes a sample from these bytes: on all workers at once, in any order. Returns 0, or a
     * negative error: the sample is bad. */
    int (*decode)(void *user, const struct mr_sample_context *context, const struct mr_bytes *in,
                  void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    /*
     * Begins the pass over the samples that is this epoch: the next sample is its first one. Called
     * before the first sample, too, and while no read is running. If the source gives the same
     * samples in the same order again, a run can be resumed: the samples before its position are
     * read and skipped. Returns 0, or a negative error, which ends the run. NULL: the source can
     * be read once, so more than one epoch, resuming and a second loader are refused.
     */
    int (*rewind)(void *user, uint64_t epoch);
    /* Makes a read that blocks return soon, with any error: the loader is being closed. Called on
     * the thread that closes it, perhaps while read or rewind runs; a later rewind ends this state.
     * NULL: closing waits for read. */
    void (*stop)(void *user);
    int (*init)(void *user, uint32_t worker, void **state);
    void (*exit)(void *user, uint32_t worker, void *state);
    void (*close)(void *user);
    void *user;
    /*
     * 1: every worker calls read or read_bytes at once, each with its worker_state, and the pass
     * ends when each worker has got MR_END. Samples then come in whatever order they are ready: a
     * run cannot be reproduced or resumed, and world must be 1, so with several ranks the source
     * divides the samples itself.
     */
    int unordered;
};
MR_API void mr_iterable_opts_fill(struct mr_iterable_opts *opts, size_t size);
static inline void mr_iterable_opts_init(struct mr_iterable_opts *opts)
{
    mr_iterable_opts_fill(opts, sizeof *opts);
}

/*
 * Opens an iterable set. It reads nothing; the loader does. One loader at a time uses it.
 * Errors as mr_dataset_open().
 */
MR_API int mr_dataset_open_iterable(const struct mr_iterable_opts *opts, struct mr_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
