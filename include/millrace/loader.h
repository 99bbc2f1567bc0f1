/*
 * The loader: reads, decodes, transforms and copies samples with worker threads, and hands out
 * batches in order, or as they complete.
 *
 *     struct mr_loader_opts opts;
 *     mr_loader_opts_init(&opts);
 *     opts.batch_size = 64;
 *     mr_loader_open(dataset, sampler, chain, device, &opts, &loader);
 *     struct mr_batch batch = {.size = sizeof batch};
 *     while ((rc = mr_loader_next(loader, stream, &batch)) > 0) {
 *         train_on(batch.field[0].data, batch.n);         // enqueued to stream
 *         mr_loader_release(loader, &batch, stream);      // does not wait either
 *     }
 *     mr_loader_close(loader);
 *
 * A position of an epoch holds the same sample with the same augmentations, bit for bit, for any
 * number of workers, any prefetch, storage and number of ranks, and after a resume. With the same
 * batch size and number of ranks, each batch is the same, too. Exceptions: mixup and cutmix depend
 * on the batch, and an iterable set may be unordered.
 *
 * Threads: all calls may be made from any thread, at the same time, but not during or after close.
 * Several threads may take batches: each batch goes to one of them, in order; to which one is not
 * determined. While one thread waits for a batch, the others wait for their turn in next and
 * next_for; no other call waits for it. close may also be called while threads wait. Callbacks (of
 * a data set, sampler or op) run on the loader's workers, which it waits for: there next, next_for,
 * fd and release of that loader fail with MR_EMISUSE, and close closes nothing.
 *
 * Signals: mr_loader_cancel() may be called in a signal handler. No other signal ends waiting, and
 * workers block all signals. examples/ctrl_c.c ends a run with Ctrl-C and saves its state.
 *
 * fork: the workers do not exist in a child. With an inherited loader next, next_for, fd and
 * release fail with MR_EMISUSE there, close and cancel do nothing, statistics are 0; state, bad and
 * the other queries answer as before the fork. A child opens loaders of its own.
 */
#ifndef MILLRACE_LOADER_H
#define MILLRACE_LOADER_H

#include <millrace/budget.h>
#include <millrace/collate.h>
#include <millrace/dataset.h>
#include <millrace/device.h>
#include <millrace/json.h>
#include <millrace/options.h>
#include <millrace/sampler.h>
#include <millrace/storage.h>
#include <millrace/transform.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_loader;

/* ---- options ---- */

/* How samples become a batch. Bytes and strings (enum mr_kind) are put end to end, with offsets,
 * whatever this says; nothing pads or packs them. */
enum mr_collate {
    MR_COLLATE_STACK, /* all samples have one shape; another shape is an error */
    MR_COLLATE_PAD,   /* variable dimensions are padded to the longest of the batch */
    MR_COLLATE_FIXED, /* variable dimensions are padded to their bound: one shape for all batches */
    MR_COLLATE_RAGGED, /* values are put end to end, with offsets */
    /* Samples end to end in rows of pack_length elements, padded at the end of a row. The batch
     * also has position_ids, segment_ids and cu_seqlens: docs/data.md. Samples go where the sampler
     * says (MR_SAMPLER_PACK), or in their order, each into the current row or a new one. */
    MR_COLLATE_PACK,
};

/* What happens when a sample cannot be read or decoded. */
enum mr_bad_policy {
    MR_BAD_FAIL, /* the run ends with the sample's error */
    MR_BAD_SKIP, /* its batch is smaller */
    /* The sample at the next position that decodes takes its place. Not with a batch sampler. */
    MR_BAD_REPLACE,
};

/* What happens when the number of ranks does not divide the epoch, or the epoch's batches if a
 * batch sampler chooses them. */
enum mr_remainder {
    MR_REMAINDER_DROP, /* each rank has floor(length / world) samples */
    MR_REMAINDER_PAD,  /* each rank has ceil(length / world): positions wrap to the epoch's start */
    /* Every sample once: for tests. The first length % world ranks have one sample more than the
     * others, and may have one batch more; a loop with a collective operation for each batch must
     * allow for that. length must be at least world. Not with drop_last. To resume, use the state
     * of rank 0, which is never ahead of the others. */
    MR_REMAINDER_EXACT,
};

/* Where the ops at the end of a chain run, if the device has kernels for them and fewer bytes are
 * copied that way. The results are the same, bit for bit. */
enum mr_device_transforms {
    MR_DEVICE_TRANSFORMS_OFF, /* on the host */
    MR_DEVICE_TRANSFORMS_ON,  /* on the device */
    /* ON for devices with processors of their own and with MR_CACHE_DEVICE; OFF for "sim", whose
     * kernels the host's processors would run. */
    MR_DEVICE_TRANSFORMS_AUTO,
};

#define MR_GPU_DECODE_AUTO (-1.0)

struct mr_loader_opts {
    size_t size;         /* of this struct, set by mr_loader_opts_init() */
    uint64_t batch_size; /* samples; default 64. Not used with a batch sampler (sampler.h) */
    int drop_last;       /* 1: leave out an epoch's last batch if it is not full */
    uint64_t epochs;     /* 0: endless; default 1 */
    uint64_t seed;       /* of random transforms and callbacks; the sampler has its own */
    uint32_t rank;       /* this process among `world` processes; default 0 of 1 */
    uint32_t world;
    enum mr_remainder remainder; /* default DROP */
    uint32_t workers;     /* threads; 0 (default): mr_cpu_count(), or as many as the budget has */
    uint32_t prefetch;    /* batches prepared ahead; 0 (default): 4 to 64, by size and `world` */
    uint64_t read_ahead;  /* samples read ahead of decoding; 0 (default): automatic */
    uint32_t queue_depth; /* reads in flight, of all workers; 0 (default): automatic */
    /* Bytes of slots, read buffers, caches, and the indexes or row groups that the data set keeps;
     * 0 (default): no limit. Slots of held batches that had to be replaced count as well. Not
     * counted: names of files and classes, and what a callback allocates. */
    uint64_t max_memory;
    enum mr_storage_kind storage;
    /* MR_CACHE_DEVICE: opening the loader reads every sample once into device memory; after that
     * only indices are copied. All samples must be good and of one shape, and the whole chain must
     * run on the device. */
    enum mr_cache_kind cache;
    enum mr_collate collate;
    /* What PAD, FIXED and PACK fill with. Each field that varies must be able to hold it: integers
     * exactly, floating types rounded, but not to infinity or zero. */
    double pad_value;
    enum mr_bad_policy bad;  /* default FAIL */
    uint64_t max_bad;        /* SKIP, REPLACE: most bad samples; default: any */
    double max_bad_fraction; /* of the samples so far plus one batch; 0: any */
    int pin; /* 1 (default): slots in page-locked memory; 0: in pageable memory, for comparison */
    const char *state;                           /* from mr_loader_state(); NULL: from the start */
    enum mr_device_transforms device_transforms; /* default AUTO */
    int blocking;     /* 1: a worker waits for the copy that it enqueued, for comparison */
    uint32_t streams; /* streams that copies alternate on, 1 to 16; default 1 */
    int direct;       /* 1: read with O_DIRECT, past the page cache, where possible */
    /* The share of JPEG pictures that the device decodes (on "cuda" by nvJPEG): 0 (default) to 1,
     * or MR_GPU_DECODE_AUTO. Seed, epoch and sample index select them, so contents depend on the
     * share, but not on timing. With AUTO each picture goes to whichever of device and workers is
     * free: the fastest, but contents differ a little from run to run. The decoder has a thread of
     * its own that keeps a processor busy, so with workers = 0 there is one worker less. Opening
     * it takes most of a second; with AUTO the host decodes meanwhile. Needs RGB pictures, a chain
     * that begins with crops or resizes, all other ops on the device, and samples of one shape;
     * without these AUTO leaves decoding to the host, and a share fails with MR_EUNSUPPORTED or
     * MR_EOPTION. docs/data.md says how pixels differ. */
    double gpu_decode;
    /* 1: continues from the position of a state that another sampler or chain made. The data set,
     * seed and length of an epoch must still be the state's. */
    int force_state;
    /* PAD, FIXED, PACK: values for single fields, "ids=0,labels=-100"; the others take pad_value.
     * NULL: none. Read by mr_loader_open() and not kept. mr_loader_opts_parse() makes a copy, which
     * mr_options_free(mr_loader_options(), &opts) frees. */
    const char *pad_values;
    /* PAD: dimensions that vary are padded to the longest sample, rounded up to a multiple of this,
     * which may be above the field's bound. Default 1. */
    uint64_t pad_to_multiple_of;
    /* PAD, FIXED, PACK: fields that get a mask, "ids" or "ids,labels"; "auto": the first that
     * varies. A batch gets a field "ids_mask", bool [rows, padded length], 1 where there is data.
     * NULL (default): none. Borrowed as pad_values is. */
    const char *mask;
    /* PAD, FIXED, RAGGED: a field whose lengths are wanted on the device, or "auto". A batch gets a
     * field "cu_seqlens", i32 [samples + 1]: where each sample begins if all are put end to end,
     * and the end. NULL (default): none. Borrowed likewise. */
    const char *cu_seqlens;
    /* PACK: elements of a row, 1 to 2^31 - 1. 0 (default): what the packing sampler makes. */
    uint64_t pack_length;
    /* Threads and memory shared with other loaders (budget.h); NULL (default): its own. */
    struct mr_budget *budget;
    /* A callback that makes a batch from its samples (collate.h); read by mr_loader_open() and not
     * kept. NULL (default): none. collate is then STACK. */
    const struct mr_collate_fn *collate_fn;
    /* 1 (default): batches are handed out in order. 0: as they complete, so that a sample that
     * takes long delays its own batch only. Not with batch samplers and iterable sets. See
     * mr_loader_next(). */
    int in_order;
    /* Of an iterable data set (iterable.h): samples in the shuffle buffer. Each batch takes samples
     * from it at random, and the next ones of the source take their places. 0 (default): the
     * source's order. Part of the state. The buffer holds decoded samples or, if the source has
     * read_bytes, their bytes, which max_memory does not count. */
    uint64_t shuffle_buffer;
    /* 1: batches stay in the host half of their slots, page-locked for the device, and are not
     * copied: for programs that copy themselves. `data` is then `host`. Release a batch with the
     * stream of that copy, or with mr_stream_any(): its memory is used again once the copy has
     * passed. No op runs on the device. Not with MR_CACHE_DEVICE and MR_STORAGE_GDS. */
    int on_host;
    /* 1: the host halves of slots are in memory that other processes can map: for serve.h. */
    int shared;
    /* The largest values that mr_loader_set() may set: threads are started and slots made when the
     * loader opens, and `workers` and `prefetch` are the first values. 0 (default): no larger ones;
     * with tune, as large as could help. */
    uint32_t max_workers, max_prefetch;
    /* 1: for the first seconds the loader tries other numbers of workers and batches ahead, and
     * keeps what serves the consumer best: see mr_loader_tuning(). Only those of the two that are 0
     * in these options. Contents and order of batches do not depend on it. Not with in_order = 0
     * and unordered iterable sets. */
    int tune;
    /* On a host with several NUMA nodes: the most workers that are bound to processors of the GPU's
     * node, as far as the thread that opens the loader may use them; at most one worker for each of
     * these processors. The other workers run anywhere. 0: none is bound. Default: 512, which is
     * all. Slots are on that node in either case (docs/data.md, `pinned`). Your callbacks run on
     * these workers, and threads that they start inherit the binding, even those of a pool
     * (OpenMP, OpenCV) that the whole process uses later. Start such pools first, or set 0. */
    uint64_t near_workers;
    /* 1: samples are decoded in processes, one for each worker, that can open no files and no
     * connections (seccomp): for data from sources that you do not trust. 0 (default): in worker
     * threads. A decoder that crashes or runs out of memory makes a bad sample. Batches are the
     * same. Not with data sets whose samples your own code or another library makes, "synthetic"
     * and tables of shards, gpu_decode and MR_CACHE_DEVICE. Needs Linux 5.3, x86-64 or arm64, and
     * seccomp: else mr_loader_open() returns MR_EUNSUPPORTED or -errno.
     * mr_loader_open() forks the processes: handlers of pthread_atfork() run. They are children of
     * one child of this process, which a wait() for any child may see: wait for yours by process
     * ID. Open the loader before other threads start, if you can: a fork copies the locks that they
     * hold. The loader tries again for about a minute, then returns -ETIMEDOUT. On Linux up to
     * about 5.10, open it before other loaders: there a page-locked page of theirs that is written
     * after the fork moves, and the device reads the old one. */
    int sandbox;
};

/* Sets opts to the defaults. C and C++ call mr_loader_opts_init(); see millrace.h. */
MR_API void mr_loader_opts_fill(struct mr_loader_opts *opts, size_t size);
static inline void mr_loader_opts_init(struct mr_loader_opts *opts)
{
    mr_loader_opts_fill(opts, sizeof *opts);
}

/*
 * Returns the table of the loader's options, for struct mr_loader_opts; it is constant and belongs
 * to the library. It drives the defaults of mr_loader_opts_init(), the checks of mr_loader_open(),
 * and the options and help of commands. size and state have no row. Any thread.
 */
MR_API const struct mr_option *mr_loader_options(void);

/*
 * Sets options from text: "batch-size=256,workers=8,no-pin". Options that it does not name keep
 * their values.
 * text: names of mr_loader_options(); may be "". opts: set up with mr_loader_opts_init(); unchanged
 * on failure.
 * Returns 0, MR_EOPTION (the text names the option and what was expected), MR_EMISUSE, -ENOMEM.
 * Any thread.
 */
MR_API int mr_loader_opts_parse(const char *text, struct mr_loader_opts *opts);

/* ---- open and close ---- */

/*
 * Starts a loader.
 * ds, sampler, chain, device: borrowed; they must outlive the loader. sampler NULL: sequential.
 * chain NULL: no ops. device NULL: "cpu". The chain is bound by this call; it serves one loader at
 * a time and cannot change while it does. opts: set it up with mr_loader_opts_init(); NULL: all
 * defaults.
 * [out] out: on success; close it with mr_loader_close().
 * May block: on headers, with MR_CACHE_DEVICE on all samples, with gpu_decode > 0 on the
 * device's decoder.
 * Returns 0, MR_EOPTION, MR_EMISUSE, MR_ESHAPE, MR_ELIMIT (over max_memory or the
 * budget's; the text has the sum), MR_ESTATE (the state is of another data set, sampler, chain or
 * seed), MR_EUNSUPPORTED, MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM, -errno; with MR_CACHE_DEVICE also
 * the error of a bad sample.
 */
MR_API int mr_loader_open(struct mr_dataset *ds, struct mr_sampler *sampler,
                          struct mr_transform *chain, struct mr_device *device,
                          const struct mr_loader_opts *opts, struct mr_loader **out);

/*
 * Stops the workers and frees everything, at any moment. Batches not yet released become invalid;
 * the memory of those that have DLPack tensors (dlpack.h) stays until these end.
 * Blocks until reads and callbacks in progress have ended; after a second the log names the worker
 * that it waits for and what that one does. If other threads are waiting in mr_loader_next(), their
 * calls return MR_ECANCELLED and close waits for them to return. Those threads must not use the
 * loader again. In a callback of this loader it closes nothing: the log and mr_last_error() say so.
 * NULL is allowed.
 */
MR_API void mr_loader_close(struct mr_loader *loader);

/* ---- batches ---- */

struct mr_batch_field {
    /* Of the whole batch: the batch dimension is first; with RAGGED and a variable dimension, the
     * total length of the values is first. */
    struct mr_spec spec;
    void *data;       /* on the loader's device; on "cpu" in host memory */
    const void *host; /* the same bytes in host memory; NULL: they were made on the device */
    uint64_t bytes;
    /* RAGGED, variable dimensions, and texts: n + 1 offsets, in elements of the first dimension. In
     * host memory. Else NULL. */
    const uint64_t *offsets;
    /* Fields that vary: the first dimension of each sample; with PACK, of the part of it that is in
     * the batch. In host memory. Else NULL. */
    const uint64_t *lengths;
    uint64_t reserved[11]; /* 0; the struct has 256 bytes for good */
};

/* A batch. All that it points to belongs to the loader and is valid until the batch is released. */
struct mr_batch {
    size_t size;    /* of this struct, set by the caller before the first mr_loader_next() */
    uint64_t n;     /* samples */
    uint64_t epoch; /* from 0 */
    uint64_t index; /* of this batch in its epoch, from 0 */
    int last;       /* 1: all others of its epoch have been handed out */
    int n_fields;
    const uint64_t *indices; /* each sample's index in the data set */
    /* Each sample's global position in the epoch; padding wraps. With a batch sampler: the
     * number of the batch in the epoch, all ranks together, times max_batch, plus the sample's
     * place in it. */
    const uint64_t *positions;
    void *slot;                                 /* private */
    uint64_t number;                            /* private */
    struct mr_batch_field field[MR_MAX_FIELDS]; /* the first n_fields are set */
};

/*
 * Waits for the next batch.
 * stream: work enqueued to it after this call sees the batch's bytes; the host does not wait for
 * the copy. It is of the loader's device, your own by mr_stream_wrap(). NULL: the call returns when
 * the bytes have arrived.
 * [out] out: on 1, all but size; valid until mr_loader_release(). Any number of batches may be
 * held. If you hold a batch while more than prefetch / 2 later ones are returned, the loader
 * allocates an extra slot, within max_memory. It is reused once a held batch is released. With
 * tune, max_prefetch or several ranks, which begin with fewer slots than they may use, a batch that
 * is held during the next call takes one. The struct may be copied; release one of the copies.
 * Returns 1, or 0 after the last epoch, or the error that ended the run, again on later calls: the
 * error of a sample or a callback, MR_EBADSAMPLES, MR_ECANCELLED, MR_EDEVICE, MR_ESTATE (a source
 * gave other samples than before the resume), -ENOMEM or MR_ELIMIT (a slot got no memory, or may
 * not have more: mr_memory_set_limit(), a budget). Two errors don't end the run: MR_EMISUSE (a
 * wrong out->size, or a stream of another device), and MR_ELIMIT because held batches leave no
 * memory for the next one (the text has their number): release some and call again. If you hold
 * none, MR_ELIMIT ended the run.
 *
 * With opts.in_order = 0 the next batch is the one that has been ready for longest. A sample that
 * takes long then delays its own batch only, until workers are 16 * prefetch batches ahead of it
 * (but at least 256), or each of the `prefetch` batches in progress has such a sample. Each batch
 * has the contents that it has in order; b.index says which one it is. Epochs are not mixed: those
 * of the next epoch wait until all of an epoch have been handed out, the one with last = 1 at the
 * end. The order of batches, and with it which sample exceeds max_bad, depends on timing.
 *
 * A run fails with MR_EBADSAMPLES when max_bad or max_bad_fraction is exceeded, or after `world`
 * consecutive epochs in which every sample that this rank received was bad (iterable sets: 10,000
 * samples in a row).
 */
MR_API int mr_loader_next(struct mr_loader *loader, struct mr_stream *stream, struct mr_batch *out);

/*
 * Waits for the next batch, but not longer than timeout_ns.
 * timeout_ns: 0: does not wait; UINT64_MAX: waits like mr_loader_next(). With stream NULL the call
 * also waits for the batch's copy, which the timeout does not limit.
 * [out] out: on 1. Returns what mr_loader_next() returns, or -ETIMEDOUT, which ends nothing: the
 * next call goes on waiting. (A sample's own -ETIMEDOUT, of a server that does not answer, ends a
 * run as -ETIME.) mr_last_error() then names the sample that is late, its file or data
 * set, the worker that has it, and what that worker has been doing for how long. With timeout_ns 0
 * it names the batch only.
 */
MR_API int mr_loader_next_for(struct mr_loader *loader, struct mr_stream *stream,
                              uint64_t timeout_ns, struct mr_batch *out);

/*
 * A file descriptor that poll() and epoll report as readable (POLLIN) while the next batch is ready
 * or the run has ended, for event loops. The first call makes it; a loader without one does no work
 * for it.
 *
 * It is level-triggered: mr_loader_next() and mr_loader_next_for() update it before they return.
 * Call mr_loader_next_for() with timeout 0 when it is readable. That call may still return
 * -ETIMEDOUT: if all samples of a batch were skipped, if another thread took the batch, or after a
 * wake-up that came late. After the last batch, an error, or mr_loader_cancel() it stays readable.
 * Statistics count time in poll() as the consumer's. Returns the descriptor, -errno, MR_EMISUSE.
 * Owned by the loader, open until mr_loader_close(); do not read, write or close it.
 */
MR_API int mr_loader_fd(struct mr_loader *loader);

/*
 * Returns a batch to the loader. Does not block. Any thread, in any order.
 * stream: the stream to which all work that reads the batch has been enqueued; mr_stream_any() if
 * there are several, or if copies from the batch's host memory may be among it. NULL: that work is
 * done. Not while the stream is being captured into a graph, since captured work has not been
 * enqueued yet: release the batch after the graph's launch.
 * Returns 0, MR_EDEVICE, MR_EMISUSE: the batch was released before, or (it stays held) the stream
 * is of another device or being captured.
 */
MR_API int mr_loader_release(struct mr_loader *loader, struct mr_batch *batch,
                             struct mr_stream *stream);

/*
 * Finds a sample's text in a batch: of a field of bytes or strings (enum mr_kind).
 * batch: held. field: 0 to n_fields - 1. i: of the batch's samples, 0 to n - 1.
 * [out] n_bytes: of the text; it may have bytes 0, and none is added at its end.
 * Returns the first byte, in host memory whatever the device is, valid until the batch is released;
 * of an empty text some address. NULL, and n_bytes 0: no such field or sample, or the field is of
 * numbers; mr_last_error() says which. Does not block. Any thread.
 */
MR_API const char *mr_batch_text(const struct mr_batch *batch, int field, uint64_t i,
                                 uint64_t *n_bytes);

/* ---- changing a running loader ---- */

struct mr_loader_knobs {
    size_t size;       /* of this struct, set by the caller */
    uint32_t workers;  /* threads that make samples, 1 to max_workers; 0: as before */
    uint32_t prefetch; /* batches prepared ahead, 1 to max_prefetch; 0: as before */
};

/*
 * Changes how many workers make samples and how many batches are prepared ahead, while the loader
 * runs. Takes effect at the next sample that a worker claims and the next batch that is handed out.
 * The order, and what a batch contains, does not change.
 * Returns 0; MR_EOPTION, nothing changed: above what the loader was opened with (workers and
 * prefetch, or max_workers and max_prefetch); MR_EUNSUPPORTED: prefetch with in_order = 0, workers
 * of an unordered iterable data set; MR_EMISUSE. Does not wait. Any thread.
 */
MR_API int mr_loader_set(struct mr_loader *loader, const struct mr_loader_knobs *knobs);

/* What opts.tune has found. */
struct mr_loader_tuning {
    size_t size;                            /* of this struct, set by the caller */
    int done;                               /* 1: it has ended; 0: it still tries */
    uint32_t workers, prefetch;             /* now */
    uint32_t first_workers, first_prefetch; /* when the loader opened */
    uint32_t n_tried;                       /* settings that it compared with another one */
    double rate, first_rate; /* samples/s with either, compared in turn; 0: unknown */
    double seconds;          /* since the first batch */
    char reason[320];        /* what it chose and why, in sentences */
};

/*
 * Reads the progress and the result of tuning. Each setting alternates with the best one so far, in
 * windows of a third of a second and at least 3 batches. A larger setting is kept if it is 2%
 * faster and the difference is more than windows of one setting vary. Then the smallest number of
 * workers that is less than 1% slower is chosen. Tuning ends after about 10 seconds at the latest.
 * Only the consumer's rate counts: one that never waits has nothing to gain, and needs few workers.
 * [out] out: on success, all but size. Returns 0; MR_EMISUSE: NULL, a wrong size, or a loader
 * opened without tune. Any thread.
 */
MR_API int mr_loader_tuning(struct mr_loader *loader, struct mr_loader_tuning *out);

/* Makes mr_loader_next() return MR_ECANCELLED soon, in all threads that wait there and from now on.
 * Any thread; async-signal-safe. */
MR_API void mr_loader_cancel(struct mr_loader *loader);

/* The number of batches, and of samples, in one epoch of this rank; MR_UNKNOWN (iterable.h) if the
 * data set's length is not known. With a batch sampler: of batches in the run's first epoch, which
 * may differ from later ones; 0 samples, since they are not known. */
MR_API uint64_t mr_loader_batches(const struct mr_loader *loader);
MR_API uint64_t mr_loader_samples(const struct mr_loader *loader);

/* The spec of a field of one sample as it leaves the chain, or of a field that collation adds
 * (without the batch dimension). NULL: no such field. */
MR_API const struct mr_spec *mr_loader_field(const struct mr_loader *loader, int field);

/* ---- state and bad samples ---- */

/*
 * Writes the state after the last batch that mr_loader_next() returned, in whichever thread: a
 * small JSON object with the data set's fingerprint, sampler, chain, seed, epoch and position.
 * Takes microseconds, and does not wait for a thread that waits for a batch. To resume, give it to
 * mr_loader_open() as opts.state; number of workers, batch size, ranks and all options that do not
 * change the order may differ.
 *
 * With in_order = 0 the state continues after the highest-numbered batch returned. It lists the
 * batches before that one that were not returned: at most `prefetch`, and what is left of such a
 * list of an earlier run. A resumed run makes these first, in order or not. If there are any, batch
 * size, ranks and this process' rank must be the same, so each rank loads its own state.
 *
 * [out] buf: cap bytes; 1,024 are enough, and 40 more for each batch in the list.
 * Returns the text's length, or MR_ELIMIT if cap is too small (the text says how much is needed);
 * -ENOMEM.
 */
MR_API int mr_loader_state(const struct mr_loader *loader, char *buf, size_t cap);

/*
 * Writes the state before the oldest batch that is still held, or after the last one if none is. A
 * resumed run repeats that batch and every later one, also those that were released. With
 * in_order = 0 held batches are in the list instead, and nothing else is repeated. Else like
 * mr_loader_state().
 */
MR_API int mr_loader_state_released(const struct mr_loader *loader, char *buf, size_t cap);

/* A bad sample: which, where, why. The strings live as long as the loader. */
struct mr_bad_sample {
    size_t size; /* of this struct, set by the caller */
    uint64_t index, epoch, position;
    const char *file; /* or the data set's name */
    uint64_t offset;  /* in the file, in bytes */
    const char *reason;
};

/* Returns 1 and the i-th bad sample in delivery order, 0 if there are fewer, or MR_EMISUSE (a
 * wrong out->size). The first 100,000 are kept. [out] out: on 1, all but size. */
MR_API int mr_loader_bad(const struct mr_loader *loader, uint64_t i, struct mr_bad_sample *out);

/* ---- statistics ---- */

enum mr_stage {
    MR_STAGE_READ, /* waiting for storage, or copying out of it */
    MR_STAGE_DECODE,
    MR_STAGE_TRANSFORM, /* running the chain and writing the row */
    MR_STAGE_COLLATE,   /* padding, compacting, enqueueing the copy */
    MR_STAGE_SLOT,      /* waiting for a free slot: the consumer is slower */
    MR_N_STAGES
};

/* The name of a stage: "read", "decode". Constant. */
MR_API const char *mr_stage_name(enum mr_stage stage);

/* A member of mr_loader_stats, so its layout is fixed. */
struct mr_percentiles {
    uint64_t n, p50_ns, p95_ns, p99_ns, max_ns;
};

struct mr_loader_stats {
    size_t size;                      /* of this struct, set by the caller */
    uint64_t samples, batches, bytes; /* delivered */
    uint64_t bad_samples;
    uint64_t read_bytes, reads; /* from storage */
    uint64_t elapsed_ns;        /* since open */
    uint64_t first_batch_ns;    /* from open to the first batch; 0: none yet */
    uint32_t workers, prefetch;

    /* Current values: those left automatic grow until latency is hidden. */
    uint32_t queue_depth;
    char gds[256];              /* MR_STORAGE_GDS: which fields and how, or why none; else "" */
    const char *direct_refused; /* direct: a file whose file system refused it; NULL: none */
    uint64_t read_ahead;
    uint64_t read_latency_ns; /* the shortest of recent reads; 0: not measured */
    char storage[16]; /* "uring", "pread", "gds", "memory", "null" (simulated latency), "none" */

    uint64_t stage_ns[MR_N_STAGES]; /* sums over all workers */
    uint64_t worker_ns;             /* lifetime of all workers, without budget_wait_ns */
    uint64_t consumer_wait_ns;      /* a thread was waiting in mr_loader_next() */
    uint64_t consumer_busy_ns;      /* none was, between the first and the last batch */

    /* The steady rate: samples and time from the first batch on or, if more batches were ready
     * then, from the one behind these, which itself is not counted. 0: no batch came after it. */
    uint64_t warm_samples, warm_ns;

    /* Copies to the device and the transforms behind them. Estimated from the batches that were
     * timed, if not all were. */
    uint64_t copy_ns;
    uint64_t copied_bytes; /* to the device */

    double gpu_decode; /* the share of pictures that the device should decode; AUTO: has decoded */
    uint64_t gpu_decoded;   /* pictures that it decoded */
    uint64_t gpu_refused;   /* pictures that it refused and the host decoded */
    double cpu_decode_rate; /* AUTO: pictures/s that workers decode beside the device; else 0 */
    double gpu_decode_rate; /* AUTO: pictures/s of the device, while it decodes; else 0 */
    char gpu_why_not[256];  /* AUTO: why the device decodes none; else "" */
    char device_ops[192];   /* ops on the device: "image: cast,scale; label: one_hot"; "": none */

    /* The latest timed batches, at most 4,096, by the device's events: time in copies, time in the
     * consumer's work (in its stream, from mr_loader_next() to release), and time in which both
     * ran. Batches 0.3 ms or more apart are all timed, and so are all while a trace runs. Faster
     * batches are sampled in bursts of max(64, 4 * prefetch), which keeps overhead to a few
     * percent; the first `prefetch` batches of a burst are not counted. */
    uint64_t timed_batches, timed_copy_ns, timed_use_ns, timed_both_ns;

    /* Since open: batches whose use by the consumer was timed, and the sum of these times. */
    uint64_t used_batches, used_ns;
    double ready_mean; /* batches that were ready when mr_loader_next() was called */
    double reads_in_flight_mean;
    struct mr_percentiles interval; /* from one mr_loader_next() returning to the next */
    struct mr_percentiles wait;     /* in mr_loader_next() */
    struct mr_percentiles make;     /* from the first claim of a batch until it is ready */

    /* Memory of slots, reads ahead and worker buffers. Decoders' memory, which depends on the
     * pictures, is not included. */
    uint64_t pageable_bytes, pinned_bytes, device_bytes;
    uint64_t cache_bytes; /* files in host memory, shared by the loaders of a data set */

    /* "consumer", "read", "decode", "transform", "collate", "copy", "prefetch", "budget" or
     * "none". */
    char bottleneck[16];
    char reason[192]; /* why, in one sentence with numbers */

    uint64_t budget_wait_ns; /* workers waited for others of their budget; in no stage */
};

/* Reads the statistics so far. [out] out: on success, all but size. Returns 0, MR_EMISUSE
 * (NULL, or a wrong size). Any thread. */
MR_API int mr_loader_stats(struct mr_loader *loader, struct mr_loader_stats *out);

#ifdef __cplusplus
}
#endif
#endif
