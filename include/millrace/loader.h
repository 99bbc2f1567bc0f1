/*
 * The loader: runs sampler -> read -> decode -> transform -> batch slot -> device with worker threads, and hands batches to
 * one consumer in order.
 *
 *     struct mr_loader_opts opts;
 *     mr_loader_opts_init(&opts);
 *     opts.batch_size = 64;
 *     mr_loader_open(dataset, sampler, chain, device, &opts, &loader);
 *     while ((rc = mr_loader_next(loader, stream, &batch)) > 0) {
 *         train_on(batch.field[0].data, batch.size);      // enqueued to stream
 *         mr_loader_release(loader, &batch, stream);      // does not wait either
 *     }
 *
 * Each position of an epoch holds the same sample with the same augmentations, bit for bit, for any number of workers, any
 * prefetch and storage, any world size, and after a resume; for the same batch size and world, so does each batch.
 *
 * Threads: next, release, state and close belong to one consumer thread; cancel and stats may be called from any.
 */
#ifndef MILLRACE_LOADER_H
#define MILLRACE_LOADER_H

#include <millrace/dataset.h>
#include <millrace/device.h>
#include <millrace/json.h>
#include <millrace/sampler.h>
#include <millrace/storage.h>
#include <millrace/transform.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_loader;

enum mr_collate {
    MR_COLLATE_STACK,  /* all samples have one shape (an error otherwise) */
    MR_COLLATE_PAD,    /* variable dimensions padded to the longest of the batch */
    MR_COLLATE_FIXED,  /* variable dimensions padded to their bound: every batch has one shape */
    MR_COLLATE_RAGGED, /* values end to end, and offsets */
};

/* MR_BAD_SKIP: an epoch of bad samples alone ends the run with MR_EBADSAMPLES. With several ranks it takes as many epochs in a row
 * as there are ranks, of whose samples this rank got bad ones alone. */
enum mr_bad_policy {
    MR_BAD_FAIL,    /* the first bad sample ends the run with its error */
    MR_BAD_SKIP,    /* its batch is smaller */
    MR_BAD_REPLACE, /* the sample at the next position that decodes takes its place */
};

enum mr_remainder {
    MR_REMAINDER_DROP, /* ranks see floor(length / world) samples each */
    MR_REMAINDER_PAD,  /* ceil(length / world): positions wrap to the epoch's start */
};

/* Where the end of a field's chain runs, if that ships fewer bytes and the device has the kernels; the bits are the same. */
enum mr_device_transforms {
    MR_DEVICE_TRANSFORMS_OFF, /* all ops on the host */
    MR_DEVICE_TRANSFORMS_ON,  /* on the device */
    MR_DEVICE_TRANSFORMS_AUTO, /* on a device with processors of its own; on the host when that plays the device ("sim"), since
                                  its own cores would do the work either way, in line with the copies. The cache DEVICE
                                  means ON. */
};

#define MR_GPU_DECODE_AUTO (-1.0)

struct mr_loader_opts {
    size_t size;          /* of this struct: set by mr_loader_opts_init() */
    uint64_t batch_size;  /* samples; default 64 */
    int drop_last;        /* leave out the epoch's last batch when it is not full */
    uint64_t epochs;      /* 0: endless; default 1 */
    uint64_t seed;        /* of random transforms; a sampler has its own */
    uint32_t rank, world; /* this process among the ranks; default 0 of 1 */
    enum mr_remainder remainder;
    uint32_t workers;     /* threads; 0: mr_cpu_count() */
    uint32_t prefetch;    /* batches made ahead: slots in the ring; 0: chosen, 4 to 64 by their size */
    uint64_t read_ahead;  /* samples whose reads are in flight or done ahead of decoding; 0: chosen */
    uint32_t queue_depth; /* reads in flight at most, all workers together (one a worker at least); 0: chosen */
    uint64_t max_memory;  /* bytes of all slots, read buffers and caches, host and device; 0: no ceiling */
    enum mr_storage_kind storage;
    /* DEVICE: opening reads every sample once, through the workers, into device memory; from then on only indices are copied.
     * Wants samples of one shape, all good, and a chain that runs on the device as a whole (see device_transforms). */
    enum mr_cache_kind cache;
    enum mr_collate collate;
    double pad_value; /* for padding */
    enum mr_bad_policy bad;
    uint64_t max_bad;        /* bad samples allowed (SKIP, REPLACE); default: no limit */
    double max_bad_fraction; /* of the samples delivered so far plus one batch; 0: not used */
    int pageable;            /* 1: slots in pageable memory (to show the mistake) */
    const char *state;       /* JSON from mr_loader_state(), to go on from there; NULL: start at epoch 0 */
    enum mr_device_transforms device_transforms; /* default MR_DEVICE_TRANSFORMS_AUTO */
    int blocking;     /* 1: the worker that ships a batch waits for its copy (to show the mistake) */
    uint32_t streams; /* streams that copies take turns on, 1..16; default 1 */
    int direct;       /* 1: files are read past the page cache (O_DIRECT), where their file system can */
    /*
     * The share of JPEG pictures that the device decodes (cuda: by nvJPEG), 0 (default) to 1, or MR_GPU_DECODE_AUTO. A draw
     * by seed, epoch and sample index says which, so that a batch's content depends on the share, but not on workers or
     * timing. Pictures that nvJPEG does not take (not gray or YCbCr of 8 bits, Huffman, usual sampling; over 1 MiB, or many
     * pixels; shrunk to less than 1/31, bicubic 1/15) the host decodes. Both resample alike; but the host decodes to the
     * smallest of 1/8, 1/4, 3/8, 1/2 that will do, and nvJPEG's inverse transform and chroma upsampling round otherwise:
     * measured on an H200, 320 photos cropped and resized to 224: a channel of a pixel differs by 0.07 of 255 in the mean (the
     * worst picture's mean 1.3) where the host decodes at full size (the data set's option exact), and by 0.26 (3.2) where it
     * does not; at sharp edges by up to 56.
     *
     * Wants a chain that begins with windows (crops, resize, random_resized_crop), the rest of which, if any, runs on the
     * device, colour rgb, and samples of one shape. Opening fails with MR_EUNSUPPORTED or MR_EOPTION where that is not so;
     * AUTO then leaves all to the host. AUTO decodes some of the first pictures both ways, while opening, and chooses the
     * share by the rates, in 32nds: another run, or machine, may choose another one. See stats.
     */
    double gpu_decode;
};

MR_API void mr_loader_opts_fill(struct mr_loader_opts *opts, size_t size);
static inline void mr_loader_opts_init(struct mr_loader_opts *opts)
{
    mr_loader_opts_fill(opts, sizeof *opts);
}

/*
 * Starts a loader. The data set, sampler, chain and device are borrowed and must outlive it; sampler NULL: sequential;
 * chain NULL: none (it is bound by this call, may not change
 * while the loader lives, and serves one loader at a time); device NULL: cpu.
 * [out] out: on success. Returns 0, MR_EOPTION, MR_ESHAPE, MR_ELIMIT (the text shows the sum), MR_ESTATE, -ENOMEM, -errno;
 * with MR_CACHE_DEVICE also MR_EUNSUPPORTED, MR_EDEVICEMEM (the text shows the sum), the error of a bad sample.
 */
MR_API int mr_loader_open(struct mr_dataset *ds, struct mr_sampler *sampler, struct mr_transform *chain,
                          struct mr_device *device, const struct mr_loader_opts *opts, struct mr_loader **out);

/* Stops the workers and frees everything, at any moment; batches not yet released become invalid. Blocks until reads in
 * flight have ended. NULL is allowed. */
MR_API void mr_loader_close(struct mr_loader *loader);

struct mr_batch_field {
    struct mr_spec spec; /* of the whole batch: batch dimension first (RAGGED: values' total length first) */
    void *data;          /* on the loader's device (host memory on "cpu") */
    const void
        *host; /* the same bytes in host memory, until the batch is released; NULL where they never were there (the
                            device made them) */
    uint64_t bytes;
    const uint64_t *offsets; /* RAGGED with variable dimensions: size + 1 offsets in elements of the first dimension, in
                                host memory; else NULL */
    const uint64_t *lengths; /* fields that vary: the first dimension of each sample, in host memory; else NULL */
};

struct mr_batch {
    uint64_t size;  /* samples in it */
    uint64_t epoch; /* from 0 */
    uint64_t index; /* within the epoch, from 0 */
    int last;       /* 1: the epoch's last */
    int n_fields;
    struct mr_batch_field field[MR_MAX_FIELDS];
    const uint64_t *indices; /* each sample's index in the data set */
    const uint64_t
        *positions;  /* each sample's global position in the epoch; with MR_REMAINDER_PAD, those past its end wrap */
    void *slot;      /* private */
    uint64_t number; /* private */
};

/*
 * Waits for the next batch. Work enqueued to `stream` after this call sees the batch's bytes; the host does not wait for
 * the copy. stream NULL: the host waits until the bytes are there.
 * [out] out: on 1; valid until released. Several batches may be held, up to prefetch - 1 without stopping the workers; each
 * keeps its slot, and the batch that comes `prefetch` later needs that slot.
 * Returns 1, 0 when all epochs are done, or the error that ended the run (the same again on later calls):
 * of a worker's sample, MR_EBADSAMPLES, MR_ECANCELLED, MR_EDEVICE. MR_EMISUSE, which ends nothing, when the next batch needs
 * the slot of one that is held.
 */
MR_API int mr_loader_next(struct mr_loader *loader, struct mr_stream *stream, struct mr_batch *out);

/* Gives a batch back after the work that reads it has been enqueued to `stream`; NULL: it has been done. */
MR_API int mr_loader_release(struct mr_loader *loader, struct mr_batch *batch, struct mr_stream *stream);

/* Makes the current or next mr_loader_next() return MR_ECANCELLED soon. Any thread. */
MR_API void mr_loader_cancel(struct mr_loader *loader);

/* Batches of one epoch of this rank, and samples. */
MR_API uint64_t mr_loader_batches(const struct mr_loader *loader);
MR_API uint64_t mr_loader_samples(const struct mr_loader *loader);

/* The spec of field f of one sample as it comes out; NULL for a field that is not there. */
MR_API const struct mr_spec *mr_loader_field(const struct mr_loader *loader, int field);

/*
 * Writes the state after the last batch that mr_loader_next() gave out: a small JSON object (version, fingerprint, sampler,
 * seed, epoch, position in the global order, world, bad samples). Costs microseconds.
 * buf: cap bytes; 1,024 are enough. Returns the text's length, or MR_ELIMIT when cap is too small.
 */
MR_API int mr_loader_state(const struct mr_loader *loader, char *buf, size_t cap);

/* One bad sample: which, where, why. The strings live as long as the loader. */
struct mr_bad_sample {
    uint64_t index, epoch, position;
    const char *file; /* or the data set's name */
    uint64_t offset;  /* in it, bytes */
    const char *reason;
};
/* The i-th bad sample met, in delivery order (the first 100,000 are kept); 1 and [out] out, or 0 when there are fewer. Consumer thread. */
MR_API int mr_loader_bad(const struct mr_loader *loader, uint64_t i, struct mr_bad_sample *out);

enum mr_stage {
    MR_STAGE_READ, /* waiting for storage, or copying out of it */
    MR_STAGE_DECODE,
    MR_STAGE_TRANSFORM, /* the chain and writing the row */
    MR_STAGE_COLLATE,   /* padding, compacting, enqueueing the copy */
    MR_STAGE_SLOT,      /* waiting for a free slot: the consumer is slower */
    MR_N_STAGES
};
MR_API const char *mr_stage_name(enum mr_stage stage);

struct mr_percentiles {
    uint64_t n, p50_ns, p95_ns, p99_ns, max_ns;
};

struct mr_loader_stats {
    uint64_t samples, batches, bytes; /* delivered */
    uint64_t bad_samples;
    uint64_t read_bytes, reads; /* from storage */
    uint64_t elapsed_ns;        /* since open */
    uint64_t first_batch_ns;    /* from open to the first batch handed out; 0: none yet */
    uint32_t workers, prefetch;
    /* As they stand now: what was not asked for grows until latency is hidden. */
    uint32_t queue_depth;
    char gds[256];              /* with MR_STORAGE_GDS: the fields that it reads and how, or why none; else "" */
    const char *direct_refused; /* with direct, a file whose file system refused it; NULL: none */
    uint64_t read_ahead, read_latency_ns; /* latency: the shortest of the latest reads; 0: not measured */
    char storage[16];                     /* "uring", "pread", "gds", "memory", "null" (simulated latency), "none" */
    uint64_t stage_ns[MR_N_STAGES];       /* all workers together */
    uint64_t worker_ns;                   /* all workers' lifetime together */
    uint64_t consumer_wait_ns;            /* in mr_loader_next() */
    uint64_t consumer_busy_ns;            /* between batches */
    uint64_t
        copy_ns; /* of copies to the device and the transforms behind them, where they can be timed; where not all are,
                         reckoned from those that are */
    uint64_t copied_bytes;             /* to the device; 0 where nothing is copied */
    double gpu_decode;                 /* the share of pictures meant for the device's decoder, as given or chosen */
    uint64_t gpu_decoded, gpu_refused; /* pictures that it decoded; that it did not take after all, and the host did */
    double cpu_decode_rate,
        gpu_decode_rate;   /* pictures/s that AUTO found, all workers together and the device; else 0 */
    char gpu_why_not[256]; /* AUTO: why the device decodes none; "": it does, or was not asked to */
    char device_ops[192];  /* "image: cast,scale,normalize; label: one_hot": run on the device; "": none */
    /* Over the latest timed batches (at most 4,096), from the device's events: time copying, time in the consumer's work
     * on a batch (from its stream's passing mr_loader_next() to release), and time that both ran at once. All batches are
     * timed that are 0.3 ms or more apart, and all while a trace runs; of quicker ones bursts of neighbours (at least 64
     * batches, four times `prefetch`), so seldom that timing costs a few percent. A burst's first `prefetch` batches are not
     * counted themselves: copies lie under the use of batches before them, which were not timed. */
    uint64_t timed_batches, timed_copy_ns, timed_use_ns, timed_both_ns;
    uint64_t used_batches,
        used_ns;       /* since open: batches whose use was timed, and their uses' sum: differences tell of a while */
    double ready_mean; /* batches ready when mr_loader_next() was called, mean */
    double reads_in_flight_mean;
    struct mr_percentiles interval;                      /* from one batch handed out to the next */
    struct mr_percentiles wait;                          /* of mr_loader_next() */
    struct mr_percentiles make;                          /* from a batch's first claim to ready */
    uint64_t pageable_bytes, pinned_bytes, device_bytes; /* held for slots, reads ahead and workers' rooms; not
                                                            decoders', which are as large as the pictures that come */
    uint64_t cache_bytes; /* of files that are in memory: inflated, loaded, cached; shared by a data set's loaders */
    char bottleneck[16];  /* "consumer", "read", "decode", "transform", "collate", "copy", "prefetch", or
                                         "none" */
    char reason[192];     /* one sentence with the figures behind it */
};
MR_API void mr_loader_stats(struct mr_loader *loader, struct mr_loader_stats *out);

#ifdef __cplusplus
}
#endif
#endif
