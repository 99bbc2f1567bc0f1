/* A loader's options: a table of defaults, ranges and help; structs of older callers. */
#include "loader/engine.h"

#include "base/options.h"

#include <string.h>

#define MAX_PREFETCH 1024
#define MAX_BATCH    (1u << 24)

/* The fraction follows the number, as in struct mr_limit. */
_Static_assert(offsetof(struct mr_loader_opts, max_bad_fraction) ==
                   offsetof(struct mr_loader_opts, max_bad) + offsetof(struct mr_limit, fraction),
               "max_bad is no limit");

/* By their enums. */
static const char *const remainders[] = {"drop", "pad", "exact", NULL};
static const char *const collates[] = {"stack", "pad", "fixed", "ragged", "pack", NULL};
static const char *const policies[] = {"fail", "skip", "replace", NULL};
static const char *const storages[] = {"auto", "uring", "pread", "gds", NULL};
static const char *const caches[] = {"none", "host", "device", NULL};
static const char *const places[] = {"off", "on", "auto", NULL};

#define OPT(option, letter, kind, member, heading, ...)                                            \
    {                                                                                              \
        .name = option, .key = letter, .type = MR_OPT_##kind,                                      \
        .offset = offsetof(struct mr_loader_opts, member), .group = heading, __VA_ARGS__           \
    }

static const char batches[] = "Batches", order[] = "Order", pipeline[] = "Pipeline",
                  device[] = "Device", bad[] = "Bad samples";

static const struct mr_option table[] = {
    OPT("batch-size", 'b', UINT, batch_size, batches, .initial = "64", .min = 1, .max = MAX_BATCH,
        .unit = "samples", .help = "Samples in a batch"),
    OPT("collate", 0, ENUM, collate, batches, .initial = "stack", .choices = collates,
        .help =
            "How to batch samples of varying shape. pad: to the longest in the batch; fixed: "
            "to the data set's maximum; ragged: values end to end, with offsets; pack: values end "
            "to end in rows of --pack-length"),
    OPT("pad-value", 0, DOUBLE, pad_value, batches, .initial = "0", .help = "Value to pad with"),
    OPT("pad-values", 0, STRING, pad_values, batches, .meta = "FIELD=X,...",
        .help = "Values to pad single fields with: ids=0,labels=-100"),
    OPT("pad-to-multiple-of", 0, UINT, pad_to_multiple_of, batches, .initial = "1", .min = 1,
        .max = 1 << 24,
        .help = "With collate pad: round the padded length up to a multiple of this"),
    OPT("mask", 0, STRING, mask, batches, .meta = "FIELD,...",
        .help = "Add masks of these padded fields to batches; auto: of the first that varies"),
    OPT("cu-seqlens", 0, STRING, cu_seqlens, batches, .meta = "FIELD",
        .help = "Add this field's cumulative lengths to batches; auto: the first that varies"),
    OPT("pack-length", 0, UINT, pack_length, batches, .initial = "0", .max = INT32_MAX,
        .unit = "elements", .help = "With collate pack: length of a row"),
    OPT("drop-last", 0, FLAG, drop_last, batches,
        .help = "Drop an epoch's last batch if it is not full"),

    OPT("seed", 0, UINT, seed, order, .initial = "0", .help = "Seed of random transforms"),
    OPT("epochs", 'e', UINT, epochs, order, .initial = "1", .unit = "epochs",
        .help = "Passes over the data; 0: no limit"),
    OPT("rank", 0, UINT32, rank, order, .initial = "0", .max = 1 << 20,
        .help = "Number of this process, below --world"),
    OPT("world", 0, UINT32, world, order, .initial = "1", .min = 1, .max = 1 << 20,
        .unit = "processes",
        .help = "Number of processes that share the order: rank r takes positions r, r + world, "
                "..."),
    OPT("remainder", 0, ENUM, remainder, order, .initial = "drop", .choices = remainders,
        .help = "If --world does not divide the epoch: drop the rest, pad from the epoch's start, "
                "or exact: some ranks have one sample more"),
    OPT("in-order", 0, FLAG, in_order, order, .initial = "1",
        .help = "Hand batches out in order; without it as they complete, epoch after epoch: one "
                "slow sample does not hold up the others"),
    OPT("shuffle-buffer", 0, UINT, shuffle_buffer, order, .initial = "0", .max = 1 << 30,
        .unit = "samples",
        .help = "Shuffle an iterable data set (tar:-) through a buffer of this many samples; 0: "
                "their own order"),
    OPT("force-state", 0, FLAG, force_state, order,
        .help = "Accept a state that another sampler or transform chain made"),

    OPT("workers", 'w', UINT32, workers, pipeline, .initial = "0", .max = MR_MAX_WORKERS,
        .unit = "threads",
        .help = "Worker threads; 0: one per processor that this process may use"),
    OPT("prefetch", 'p', UINT32, prefetch, pipeline, .initial = "0", .max = MAX_PREFETCH,
        .unit = "batches",
        .help = "Batches to prepare ahead; 0: automatic, 4 to 64 depending on their size and on "
                "--world"),
    OPT("max-workers", 0, UINT32, max_workers, pipeline, .initial = "0", .max = MR_MAX_WORKERS,
        .unit = "threads", .help = "Most threads that --tune may use; 0: four for each processor"),
    OPT("max-prefetch", 0, UINT32, max_prefetch, pipeline, .initial = "0", .max = MAX_PREFETCH,
        .unit = "batches", .help = "Most batches ahead that --tune may use; 0: twice the default"),
    OPT("tune", 0, FLAG, tune, pipeline, .initial = "0",
        .help = "In the first seconds, find out how many workers and batches ahead serve best, of "
                "those that are not given"),
    OPT("storage", 0, ENUM, storage, pipeline, .initial = "auto", .choices = storages,
        .help = "How to read files; auto: io_uring if the kernel allows it, else pread; gds: "
                "plain samples directly into GPU memory with cuFile, everything else as auto"),
    OPT("direct", 0, FLAG, direct, pipeline,
        .help = "Bypass the page cache if the file system allows it"),
    OPT("cache", 0, ENUM, cache, pipeline, .initial = "none", .choices = caches,
        .help = "host: keep files in memory once read; device: keep all samples on the device and "
                "gather batches there"),
    OPT("read-ahead", 0, UINT, read_ahead, pipeline, .initial = "0", .max = 1 << 24,
        .unit = "samples", .help = "Samples to read ahead of decoding; 0: automatic"),
    OPT("queue-depth", 0, UINT32, queue_depth, pipeline, .initial = "0", .max = MR_MAX_DEPTH,
        .unit = "reads", .help = "Reads in flight, over all workers; 0: automatic"),
    OPT("max-memory", 0, BYTES, max_memory, pipeline, .initial = "0",
        .help = "Memory limit for batches, read buffers and cache, host plus device; 0: none"),

    OPT("pin", 0, FLAG, pin, device, .initial = "1",
        .help = "Use page-locked memory for batches; without it copies are slower"),
    OPT("near-workers", 0, UINT, near_workers, device, .initial = "512", .max = 512,
        .unit = "threads",
        .help = "On a host with several memory nodes: the most workers that run on the processors "
                "nearest the GPU, if there are so many; 0: all run anywhere"),
    OPT("on-host", 0, FLAG, on_host, device,
        .help = "Leave batches in page-locked host memory, for programs that copy themselves"),
    OPT("shared", 0, FLAG, shared, device,
        .help = "Put batches in memory that other processes can map, as mr_loader_serve() "
                "needs it, to see what that costs"),
    OPT("blocking", 0, FLAG, blocking, device,
        .help = "Make workers wait for each copy, to see what that costs"),
    OPT("streams", 0, UINT32, streams, device, .initial = "1", .min = 1, .max = MR_MAX_STREAMS,
        .unit = "streams", .help = "Copy streams, used in turn"),
    OPT("device-transforms", 0, ENUM, device_transforms, device, .initial = "auto",
        .choices = places,
        .help = "Run the end of a chain (cast, scale, normalize, layout, hflip, one_hot) on the "
                "device if that copies fewer bytes; the results are bit-identical. auto: on "
                "GPUs, not on sim, whose kernels run on this host"),
    OPT("gpu-decode", 0, SHARE, gpu_decode, device, .initial = "off",
        .help =
            "Decode JPEG on the GPU with nvJPEG: the share of the pictures, chosen by seed, "
            "epoch and index; the host decodes the rest, and what nvJPEG does not support. "
            "Pixels differ slightly from the host's. auto: each picture goes to whichever of GPU "
            "and host is free, so which of them differs from run to run"),

    OPT("bad", 0, ENUM, bad, bad, .initial = "fail", .choices = policies,
        .help = "On a sample that cannot be read or decoded: fail, skip it, or replace it by the "
                "next good one. Only the part of a picture that the crop needs is decoded: "
                "damage elsewhere goes unnoticed (inspect --scan N finds it)"),
    OPT("max-bad", 0, LIMIT, max_bad, bad, .initial = "any",
        .help = "Maximum number of bad samples: 10, or 1%"),
    OPT("sandbox", 0, FLAG, sandbox, bad, .initial = "0",
        .help = "Decode in processes, one per worker, that can open no files and no connections "
                "(seccomp), for data from sources that you do not trust: a decoder that crashes "
                "makes a bad sample. The same batches, more slowly"),
    {NULL},
};

const struct mr_option *mr_loader_options(void)
{
    return table;
}

/* Cannot fail: no row has a string as default, and tests parse each default. */
void mr_loader_opts_fill(struct mr_loader_opts *opts, size_t size)
{
    struct mr_loader_opts full = {0};
    mr_options_init(table, &full);
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int check_opts(const struct mr_loader_opts *o)
{
    int rc = mr_options_check(table, o);
    if (rc < 0)
        return rc;
    if (o->rank >= o->world)
        return mr_error_set(MR_EOPTION, "rank %u: expected 0..%u", o->rank, o->world - 1);
    if (o->drop_last && o->remainder == MR_REMAINDER_EXACT)
        return mr_error_set(MR_EOPTION, "drop_last leaves samples out, which remainder=exact says "
                                        "not to do: choose one of them");
    if (o->max_workers && o->max_workers < o->workers)
        return mr_error_set(MR_EOPTION, "max_workers %u: expected at least workers, %u",
                            o->max_workers, o->workers);
    if (o->max_prefetch && o->max_prefetch < o->prefetch)
        return mr_error_set(MR_EOPTION, "max_prefetch %u: expected at least prefetch, %u",
                            o->max_prefetch, o->prefetch);
    if (o->sandbox && o->gpu_decode != 0)
        return mr_error_set(MR_EOPTION, "sandbox: nvJPEG decodes in this process: expected "
                                        "gpu_decode=off");
    if (o->sandbox && o->cache == MR_CACHE_DEVICE)
        return mr_error_set(MR_EOPTION, "sandbox: not with cache=device, which decodes all samples "
                                        "when the loader opens");
    if (o->tune && !o->in_order)
        return mr_error_set(MR_EOPTION, "tune: expected batches in order, not in_order = 0");
    return 0;
}

static int take_opts(const struct mr_loader_opts *opts, struct mr_loader_opts *out)
{
    mr_loader_opts_init(out);
    if (!opts)
        return 0;
    if (opts->size < offsetof(struct mr_loader_opts, drop_last) || opts->size > sizeof *opts)
        return mr_error_set(
            MR_EMISUSE,
            "mr_loader_opts: size is %zu, expected at most %zu: fill it with mr_loader_opts_init()",
            opts->size, sizeof *opts);
    memcpy(out, opts, opts->size);
    out->size = sizeof *out;
    return 0;
}

int mr_loader_opts_read(const struct mr_loader_opts *opts, struct mr_loader_opts *out)
{
    int rc = take_opts(opts, out);
    return rc < 0 ? rc : check_opts(out);
}

/* Options behind the end of an older caller's struct do not exist for it. */
static void table_of(size_t size, struct mr_option out[MR_COUNT(table)])
{
    size_t n = 0;
    for (const struct mr_option *o = table; o->name; o++)
        if (o->offset + mr_option_bytes(o->type) <= size)
            out[n++] = *o;
    out[n] = (struct mr_option){0};
}

/* Strings are borrowed in the caller's struct, but parsing replaces those that it owns: it is to
 * find none. */
static void take_strings(const struct mr_option *known, struct mr_loader_opts *opts, char **out)
{
    for (; known->name; known++) {
        char **member = (char **)(void *)((char *)opts + known->offset);
        if (known->type != MR_OPT_STRING)
            continue;
        *out++ = *member;
        *member = NULL;
    }
}

static void keep_strings(const struct mr_option *known, struct mr_loader_opts *opts, char **have)
{
    for (; known->name; known++) {
        char **member = (char **)(void *)((char *)opts + known->offset);
        if (known->type != MR_OPT_STRING)
            continue;
        *member = *member ? *member : *have;
        have++;
    }
}

int mr_loader_opts_parse(const char *text, struct mr_loader_opts *opts)
{
    struct mr_option known[MR_COUNT(table)];
    struct mr_loader_opts full;
    char *strings[MR_COUNT(table)] = {0};
    if (!text || !opts)
        return mr_error_set(MR_EMISUSE, "mr_loader_opts_parse: text or opts is NULL");
    int rc = take_opts(opts, &full);
    if (rc < 0)
        return rc;
    table_of(opts->size, known);
    take_strings(known, &full, strings);
    rc = mr_options_parse(known, &full, "loader:", text, NULL);
    if (rc < 0) {
        mr_options_free(known, &full);
        return rc;
    }
    keep_strings(known, &full, strings);
    full.size = opts->size;
    memcpy(opts, &full, opts->size);
    return 0;
}
