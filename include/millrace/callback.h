/*
 * Data sets of your own, in code of your own.
 *
 * A located set says which bytes of which files a sample consists of, and how they become tensors.
 * The library reads them, as it does for its own formats: io_uring, O_DIRECT, HTTP and S3, caches,
 * read-ahead and GPUDirect Storage work alike. examples/megatron.c is one.
 *
 * A callback set makes whole samples in your code, which reads what it needs itself.
 * examples/own_dataset.c is one.
 *
 * docs/own_data.md is the guide to both.
 *
 * Threads: unless a callback says otherwise, several threads call it at once. fork: see dataset.h.
 *
 * C++: an exception that leaves a callback ends the program. millrace::guard<get> wraps `get`: it
 * turns exceptions into MR_ECALLBACK, with what() as the text.
 */
#ifndef MILLRACE_CALLBACK_H
#define MILLRACE_CALLBACK_H

#include <millrace/error.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_dataset;

/* The context's `worker` when no loader is involved: see mr_dataset_read(). */
#define MR_NO_WORKER UINT32_MAX

/*
 * The context in which a sample is made. Random choices keyed by seed, epoch and index
 * (mr_rng_init(), random.h) are the same whatever the number of workers, and after a resume.
 */
struct mr_sample_context {
    size_t size;          /* of this struct */
    uint64_t index;       /* the sample */
    uint64_t epoch;       /* from 0 */
    uint64_t seed;        /* mr_loader_opts.seed */
    uint64_t position;    /* in the epoch's order; of a replacement: the bad sample's */
    uint32_t worker;      /* 0 to workers - 1, or MR_NO_WORKER */
    void *worker_state;   /* set by init; NULL without init */
    uint64_t reserved[9]; /* 0; the struct has 128 bytes for good */
};

/*
 * Callbacks return 0 or a count on success, and -errno or MR_E* on failure: the sample is then bad,
 * and the loader does what its policy says. Call mr_error_set() for the text; the library puts the
 * data set's name and the sample before it.
 *
 * Both kinds of data sets have these members:
 *
 * init    Called on each worker's thread before its first sample. [out] state: for the context.
 *         A negative return ends the run. mr_dataset_read() and the like call init and exit around
 *         each sample, with MR_NO_WORKER. NULL: none.
 * exit    Called on the same thread after its last sample, if init succeeded. NULL: none.
 * close   Called when the data set is closed, after its files. It is not called if opening fails.
 *         NULL: none.
 */

/* A callback set. Set exactly one of get, get_ctx and get_run. */
struct mr_callback_opts {
    size_t size;      /* of this struct, set by mr_callback_opts_init() */
    const char *name; /* in errors, statistics and the fingerprint; copied */
    uint64_t n;       /* samples */
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* variable dimensions are allowed */
    /*
     * Makes sample `index`. row[f] has space for field f's bytes, with variable dimensions at their
     * bound. dim[f] is preset to the spec's shape; lower the dimensions that vary.
     */
    int (*get)(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    void (*close)(void *user);
    void *user;
    uint64_t version; /* in the fingerprint: change it when the content changes */
    /* Like get, with a context. */
    int (*get_ctx)(void *user, const struct mr_sample_context *context, void *const row[],
                   uint64_t (*dim)[MR_MAX_RANK]);
    /*
     * Makes several samples in one call, for stores with batched reads: n >= 1 neighbours of one
     * batch, at most 32. Sample i is context[i], its fields are row[i] and dim[i]. Set rc[i] to
     * 0, or to the error that makes the sample bad; a sample whose rc is left unset is bad. A bad
     * sample is asked for once more, alone, so that its text is known. Returns 0; a negative error
     * makes all n samples bad.
     */
    int (*get_run)(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[]);
    int (*init)(void *user, uint32_t worker, void **state);
    void (*exit)(void *user, uint32_t worker, void *state);
    /* 1: samples depend on epoch, seed or position, so decoded samples cannot be cached. */
    int changes;
};
MR_API void mr_callback_opts_fill(struct mr_callback_opts *opts, size_t size);
static inline void mr_callback_opts_init(struct mr_callback_opts *opts)
{
    mr_callback_opts_fill(opts, sizeof *opts);
}

/* Opens a callback set. Errors as mr_dataset_open(). */
MR_API int mr_dataset_open_callback(const struct mr_callback_opts *opts, struct mr_dataset **out);

#define MR_MAX_RANGES 8 /* byte ranges of a sample with no more fields than this */

/* Bytes of a file of a located set. Passed in arrays, so its layout is fixed. */
struct mr_range {
    uint64_t file; /* its number in mr_located_opts.file */
    uint64_t offset, bytes;
};

/* Bytes in memory. Passed in arrays, so its layout is fixed. */
struct mr_bytes {
    const void *data;
    uint64_t n;
};

/* A located set. */
struct mr_located_opts {
    size_t size;      /* of this struct, set by mr_located_opts_init() */
    const char *name; /* in errors, statistics and the fingerprint; copied */
    uint64_t version; /* in the fingerprint: change it when the meaning of the bytes changes */
    uint64_t n;       /* samples */
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* variable dimensions are allowed if there is a decode */
    uint64_t n_files;                    /* 1 or more; they stay open: see `ulimit -n` */
    const char *const *file;             /* their paths or URLs (http, https, s3); copied */
    /*
     * Says where sample `index` is. The same index must always give the same ranges. range: space
     * for `max` ranges: n_fields, or MR_MAX_RANGES if that is more. Returns how many there are, 1
     * to max. Without decode, there is one range for each field, in order, of its mr_spec_bytes().
     */
    int (*locate)(void *user, uint64_t index, struct mr_range range[], int max);
    /*
     * Makes the tensors of a sample. in[r] has the bytes of range r, in locate's order; they are
     * not aligned. row, dim: as in mr_callback_opts.get. NULL: the bytes are the tensors, in this
     * machine's byte order; only then can they go straight to their place (O_DIRECT, GPUDirect).
     */
    int (*decode)(void *user, const struct mr_sample_context *context, const struct mr_bytes in[],
                  int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    int (*init)(void *user, uint32_t worker, void **state);
    void (*exit)(void *user, uint32_t worker, void *state);
    void (*close)(void *user);
    void *user;
    int changes;               /* as in mr_callback_opts */
    uint64_t max_sample_bytes; /* a sample whose ranges are longer in all is bad; default 1 GiB */
};
MR_API void mr_located_opts_fill(struct mr_located_opts *opts, size_t size);
static inline void mr_located_opts_init(struct mr_located_opts *opts)
{
    mr_located_opts_fill(opts, sizeof *opts);
}

/*
 * Opens a located set. Its fingerprint covers name, version, fields, and the sizes and first 64 KiB
 * of the files, but not their names.
 * Errors as mr_dataset_open(). Samples are bad with MR_ECALLBACK if a callback returns what it may
 * not, such as a range beyond the end of its file.
 */
MR_API int mr_dataset_open_located(const struct mr_located_opts *opts, struct mr_dataset **out);

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && __cplusplus >= 201703L && defined(__cpp_exceptions)
extern "C++" {
#include <exception>

namespace millrace
{

template <auto fn> struct guarded;

template <class R, class... Args, R (*fn)(Args...)> struct guarded<fn> {
    static R call(Args... args) noexcept
    try {
        return fn(args...);
    } catch (const std::exception &e) {
        return static_cast<R>(mr_error_set(MR_ECALLBACK, "%s", e.what()));
    } catch (...) {
        return static_cast<R>(mr_error_set(MR_ECALLBACK, "an exception that is no std::exception"));
    }
};

/* Wraps a callback that returns int, or uint64_t as mr_sampler_opts.n_batches does (C++17). If it
 * throws, the wrapper returns MR_ECALLBACK: opts.get = millrace::guard<get>; */
template <auto fn> inline constexpr auto guard = &guarded<fn>::call;

} // namespace millrace
}
#endif
#endif
