/*
 * A data set that is kept in device memory: opening a loader reads every sample once, as decoded, through a loader of its
 * own; after that workers only ship indices, and a kernel gathers the batch's rows, from which the chains' ends start.
 */
#include "loader/loader.h"
#include "transform/transform.h"

#include <string.h>

static int check_field(const struct mr_loader *ld, int f)
{
    const struct mr_loader_field *fp = &ld->field[f];
    if (fp->varies || fp->in.var_dims)
        return mr_error_set(MR_ESHAPE, "cache device: %.*s: samples differ in shape: use the cache host", MR_NAME_BYTES,
                            fp->in.name);
    bool host_mixes = ld->chain && !fp->tail && (mr_mix_cuts(ld->chain, f) || mr_mix_adds(ld->chain, f));
    if ((fp->tail ? !fp->tail->whole : !fp->identity) || host_mixes)
        return mr_error_set(
            MR_EOPTION,
            "cache device: %.*s: not all of \"%s\" can run on the device (see device_transforms): change "
            "the chain, or use the cache host",
            MR_NAME_BYTES, fp->in.name, mr_transform_text(ld->chain));
    return 0;
}

int mr_resident_plan(struct mr_loader *ld)
{
    if (ld->device_info.unified)
        return mr_error_set(MR_EOPTION, "cache device: device %s has no memory of its own: use the cache host",
                            ld->device_info.name);
    if (ld->ds->draws)
        return mr_error_set(MR_EOPTION, "cache device: %s: samples differ from epoch to epoch: they cannot be kept",
                            ld->ds->ops->name);
    int has = mr_device_has_kernel(ld->device, "gather");
    if (has <= 0)
        return has < 0 ? has
                       : mr_error_set(MR_EUNSUPPORTED,
                                      "cache device: this build has no kernels for device %s: use the cache host",
                                      ld->device_info.name);
    for (int f = 0; f < ld->n_fields; f++) {
        struct mr_loader_field *fp = &ld->field[f];
        uint64_t bytes;
        int rc = check_field(ld, f);
        if (rc < 0)
            return rc;
        fp->cache_offset = ld->resident_bytes;
        if (!mr_mul(fp->in_bytes, ld->ds->n, &bytes) || !mr_add(ld->resident_bytes, bytes, &bytes) ||
            bytes > 1ull << 62)
            return mr_error_set(MR_ELIMIT, "cache device: the data set has more than 2^62 bytes");
        ld->resident_bytes = mr_round_up(bytes, 256);
    }
    return 0;
}

/* What the chain would refuse of a sample is refused now. */
static int check_labels(struct mr_loader *ld, const struct mr_batch *b, int f)
{
    const struct mr_loader_field *fp = &ld->field[f];
    int rc = 0;
    if (!fp->tail || fp->tail->as_decoded)
        return 0;
    for (uint64_t r = 0; r < b->size && rc == 0; r++) {
        uint64_t label;
        struct mr_at at = {.index = b->indices[r]};
        rc = mr_transform_apply_head(ld->chain, f, &at, (const char *)b->field[f].host + r * fp->in_bytes, fp->in.dim,
                                     &label, NULL);
    }
    return rc;
}

static int take_batch(struct mr_loader *ld, const struct mr_batch *b, struct mr_stream *stream)
{
    int rc = 0;
    for (int f = 0; f < ld->n_fields && rc == 0; f++) {
        const struct mr_loader_field *fp = &ld->field[f];
        unsigned char *to = ld->resident_at + fp->cache_offset + b->positions[0] * fp->in_bytes;
        rc = check_labels(ld, b, f);
        if (rc == 0)
            rc = mr_copy_async(stream, to, MR_DEVICE, b->field[f].data, MR_DEVICE, b->field[f].bytes);
    }
    return rc;
}

static int read_all(struct mr_loader *ld, struct mr_stream *stream)
{
    struct mr_loader_opts opts;
    struct mr_loader *reader = NULL;
    struct mr_batch b;
    mr_loader_opts_init(&opts);
    opts.batch_size = ld->opts.batch_size;
    opts.workers = ld->n_workers;
    opts.read_ahead = ld->opts.read_ahead;
    opts.queue_depth = ld->opts.queue_depth;
    opts.storage = ld->opts.storage == MR_STORAGE_GDS ? MR_STORAGE_AUTO : ld->opts.storage; /* labels are looked at */
    opts.prefetch = MR_MIN(ld->n_slots, 4);
    opts.pageable = ld->opts.pageable;
    int rc = mr_loader_open(ld->ds, NULL, NULL, ld->device, &opts, &reader);
    while (rc == 0 && (rc = mr_loader_next(reader, stream, &b)) > 0) {
        rc = take_batch(ld, &b, stream);
        int released = mr_loader_release(reader, &b, stream);
        rc = rc < 0 ? rc : released;
    }
    struct mr_error_kept kept; /* waiting for the copies must not lose the text */
    mr_error_keep(rc, &kept);
    int done = mr_stream_synchronize(stream);
    if (reader)
        mr_loader_close(reader);
    return rc < 0 ? mr_error_put(&kept) : done;
}

int mr_resident_fill(struct mr_loader *ld)
{
    struct mr_device_info now;
    struct mr_stream *stream = NULL;
    uint64_t slot = ld->slot_bytes + ld->output_bytes;
    int rc = mr_device_query(ld->device, &now);
    if (rc == 0 && now.free_bytes > 0 && ld->resident_bytes > now.free_bytes)
        rc = mr_error_set(
            MR_EDEVICEMEM,
            "cache device: %llu samples take %llu bytes, %llu of the device's memory are free beside %u slots "
            "x %llu: use the cache host",
            (unsigned long long)ld->ds->n, (unsigned long long)ld->resident_bytes, (unsigned long long)now.free_bytes,
            ld->n_slots, (unsigned long long)slot);
    if (rc == 0)
        rc = mr_memory_acquire(ld->device, MR_DEVICE, ld->resident_bytes, (void **)&ld->resident_at);
    if (rc == 0)
        rc = mr_stream_create(ld->device, "cache", &stream);
    if (rc == 0)
        rc = read_all(ld, stream);
    if (stream)
        mr_stream_destroy(stream);
    return rc;
}

void mr_resident_free(struct mr_loader *ld)
{
    if (ld->resident_at)
        mr_memory_release(ld->device, MR_DEVICE, ld->resident_at, NULL);
}

int mr_resident_gather(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream)
{
    int rc = 0;
    for (int f = 0; f < ld->n_fields && rc == 0 && ld->resident && slot->size > 0; f++) {
        const struct mr_loader_field *fp = &ld->field[f];
        struct mr_gather_args args = {.in = ld->resident_at + fp->cache_offset,
                                      .out = slot->device + fp->offset,
                                      .index = (const uint64_t *)(slot->device + ld->index_offset),
                                      .rows = slot->size,
                                      .in_rows = ld->ds->n,
                                      .row_bytes = fp->in_bytes};
        rc = mr_launch(stream, "gather", &args, sizeof args);
    }
    return rc;
}
