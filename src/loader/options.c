/* A loader's options: defaults, ranges, and structs of older callers. */
#include "loader/engine.h"

#include <string.h>

#define MAX_PREFETCH 1024
#define MAX_BATCH    (1u << 24)

void mr_loader_opts_fill(struct mr_loader_opts *opts, size_t size)
{
    const struct mr_loader_opts full = {.batch_size = 64,
                                        .epochs = 1,
                                        .world = 1,
                                        .max_bad = UINT64_MAX,
                                        .device_transforms = MR_DEVICE_TRANSFORMS_AUTO,
                                        .streams = 1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int check_opts(const struct mr_loader_opts *o)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } ranges[] = {
        {"batch_size", o->batch_size, 1, MAX_BATCH},
        {"workers", o->workers, 0, MR_MAX_WORKERS},
        {"prefetch", o->prefetch, 0, MAX_PREFETCH},
        {"world", o->world, 1, 1u << 20},
        {"rank", o->rank, 0, o->world ? o->world - 1 : 0},
        {"queue_depth", o->queue_depth, 0, MR_MAX_DEPTH},
        {"read_ahead", o->read_ahead, 0, 1u << 24},
        {"collate", (uint64_t)o->collate, 0, MR_COLLATE_RAGGED},
        {"bad", (uint64_t)o->bad, 0, MR_BAD_REPLACE},
        {"storage", (uint64_t)o->storage, 0, MR_STORAGE_GDS},
        {"cache", (uint64_t)o->cache, 0, MR_CACHE_DEVICE},
        {"remainder", (uint64_t)o->remainder, 0, MR_REMAINDER_PAD},
        {"streams", o->streams, 1, MR_MAX_STREAMS},
        {"device_transforms", (uint64_t)o->device_transforms, 0, MR_DEVICE_TRANSFORMS_AUTO},
    };
    for (size_t i = 0; i < MR_COUNT(ranges); i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return mr_error_set(MR_EOPTION, "%s %llu: expected %llu..%llu", ranges[i].name,
                                (unsigned long long)ranges[i].value,
                                (unsigned long long)ranges[i].min,
                                (unsigned long long)ranges[i].max);
    if (!(o->gpu_decode >= 0 && o->gpu_decode <= 1) && o->gpu_decode != MR_GPU_DECODE_AUTO)
        return mr_error_set(MR_EOPTION,
                            "gpu_decode %g: expected a fraction, 0..1, or MR_GPU_DECODE_AUTO",
                            o->gpu_decode);
    if (!(o->max_bad_fraction >= 0 && o->max_bad_fraction <= 1))
        return mr_error_set(MR_EOPTION, "max_bad_fraction %g: expected 0..1", o->max_bad_fraction);
    return 0;
}

int mr_loader_opts_read(const struct mr_loader_opts *opts, struct mr_loader_opts *out)
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
    return check_opts(out);
}
