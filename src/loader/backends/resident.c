/*
 * A data set that is kept in device memory (cache=device). Opening the loader reads every sample
 * once, as decoded, through a loader of its own. Afterwards making a sample is writing its index;
 * only indices are shipped, and a kernel gathers the batch's rows, from which the chains' device
 * parts go on. So the whole chain has to run on the device, and nothing is left for the host to do.
 */
#include "loader/engine.h"

#include <string.h>

struct resident {
    unsigned char *at; /* on the device: every sample's rows, field by field */
    uint64_t bytes;
    uint64_t offset[MR_MAX_FIELDS]; /* of a field's rows, in_bytes apart */
    uint64_t index_offset; /* in a slot's halves, a u64 a row; nothing behind is in the host half */
};

static int check_field(const struct mr_loader *ld, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    bool host_mixes =
        ld->chain && !fp->device_part && (mr_mix_cuts(ld->chain, f) || mr_mix_adds(ld->chain, f));
    bool on_device = fp->device_part ? fp->device_part->whole : fp->identity;
    if (fp->varies || fp->in.var_dims || fp->collated)
        return mr_error_set(
            MR_ESHAPE,
            "cache device: %.*s: samples differ in shape, or are collated by a callback: use the "
            "cache host",
            MR_NAME_BYTES, fp->in.name);
    if (!on_device || host_mixes)
        return mr_error_set(MR_EOPTION,
                            "cache device: %.*s: not all of \"%s\" can run on the device (see "
                            "device_transforms): change the chain, or use the cache host",
                            MR_NAME_BYTES, fp->in.name, mr_transform_text(ld->chain));
    return 0;
}

static int check_device(const struct mr_loader *ld)
{
    if (ld->device_info.unified)
        return mr_error_set(MR_EOPTION,
                            "cache device: device %s has no memory of its own: use the cache host",
                            ld->device_info.name);
    if (ld->opts.on_host)
        return mr_error_set(MR_EOPTION, "cache device: on_host keeps batches in host memory: use "
                                        "the cache host");
    if (ld->layout.rearranged)
        return mr_error_set(MR_EOPTION,
                            "cache device: \"%s\" changes which fields there are: use the cache "
                            "host",
                            mr_transform_text(ld->chain));
    if (ld->ds->draws)
        return mr_error_set(
            MR_EOPTION, "cache device: %s: samples differ from epoch to epoch: they cannot be kept",
            ld->ds->ops->name);
    int has = mr_device_has_kernel(ld->device, "gather");
    if (has == 0)
        return mr_error_set(
            MR_EUNSUPPORTED,
            "cache device: this build has no kernels for device %s: use the cache host",
            ld->device_info.name);
    return MR_MIN(has, 0);
}

static int resident_plan(struct mr_backend *b)
{
    struct mr_loader *ld = b->ld;
    struct resident *r = b->state;
    if (ld->opts.cache != MR_CACHE_DEVICE)
        return 0;
    int rc = check_device(ld);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ld->layout.n_fields; f++) {
        struct mr_field *fp = &ld->layout.field[f];
        uint64_t bytes;
        rc = check_field(ld, f);
        if (rc < 0)
            return rc;
        fp->device_only = true;
        r->offset[f] = r->bytes;
        if (!mr_mul(fp->in_bytes, ld->ds->n, &bytes) || !mr_add(r->bytes, bytes, &bytes) ||
            bytes > 1ull << 62)
            return mr_error_set(MR_ELIMIT, "cache device: the data set has more than 2^62 bytes");
        r->bytes = mr_round_up(bytes, 256);
    }
    return 1;
}

static void resident_lay_out(struct mr_backend *b, uint64_t *at)
{
    struct resident *r = b->state;
    r->index_offset = *at;
    *at = mr_round_up(*at + b->ld->opts.batch_size * sizeof(uint64_t), 256);
    b->ld->layout.host_bytes = *at;
}

static void resident_bytes(const struct mr_backend *b, uint64_t n_slots, uint64_t *device,
                           uint64_t *host)
{
    (void)n_slots;
    (void)host;
    *device += ((const struct resident *)b->state)->bytes;
}

/* What the chain would refuse of a sample is refused now. */
static int check_labels(struct mr_loader *ld, const struct mr_batch *batch, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    int rc = 0;
    if (!fp->device_part || fp->device_part->as_decoded)
        return 0;
    for (uint64_t r = 0; r < batch->n && rc == 0; r++) {
        const char *in = (const char *)batch->field[f].host + r * fp->in_bytes;
        struct mr_at at = {.index = batch->indices[r]};
        uint64_t label;
        rc = mr_transform_apply_head(ld->chain, f, &at, in, fp->in.dim, &label, NULL);
    }
    return rc;
}

static int keep_batch(struct mr_backend *b, const struct mr_batch *batch, struct mr_stream *stream)
{
    const struct resident *r = b->state;
    for (int f = 0; f < b->ld->layout.n_fields; f++) {
        const struct mr_field *fp = &b->ld->layout.field[f];
        unsigned char *to = r->at + r->offset[f] + batch->positions[0] * fp->in_bytes;
        int rc = check_labels(b->ld, batch, f);
        if (rc < 0)
            return rc;
        rc = mr_copy_async(stream, to, MR_DEVICE, batch->field[f].data, MR_DEVICE,
                           batch->field[f].bytes);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The samples as decoded, in the data set's order. */
static int open_reader(const struct mr_loader *ld, struct mr_loader **out)
{
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = ld->opts.batch_size;
    opts.workers = ld->workers.n;
    opts.read_ahead = ld->opts.read_ahead;
    opts.queue_depth = ld->opts.queue_depth;
    /* Labels are looked at: they must pass through the host. */
    opts.storage = ld->opts.storage == MR_STORAGE_GDS ? MR_STORAGE_AUTO : ld->opts.storage;
    opts.prefetch = MR_MIN(ld->ring.n_slots, 4);
    opts.pin = ld->opts.pin;
    opts.budget = ld->share.budget;
    return mr_loader_open(ld->ds, NULL, NULL, ld->device, &opts, out);
}

static int read_all(struct mr_backend *b, struct mr_stream *stream)
{
    struct mr_loader *reader = NULL;
    struct mr_batch batch = {.size = sizeof batch};
    int rc = open_reader(b->ld, &reader);
    while (rc == 0 && (rc = mr_loader_next(reader, stream, &batch)) > 0) {
        rc = keep_batch(b, &batch, stream);
        int released = mr_loader_release(reader, &batch, stream);
        rc = rc < 0 ? rc : released;
    }
    struct mr_error_kept kept; /* waiting for the copies must not lose the text */
    mr_error_keep(rc, &kept);
    int done = mr_stream_synchronize(stream);
    if (reader)
        mr_loader_close(reader);
    return rc < 0 ? mr_error_put(&kept) : done;
}

static int resident_open(struct mr_backend *b)
{
    struct mr_loader *ld = b->ld;
    struct resident *r = b->state;
    struct mr_device_info now = {.size = sizeof now};
    struct mr_stream *stream = NULL;
    int rc = mr_device_query(ld->device, &now);
    if (rc < 0)
        return rc;
    if (now.free_bytes > 0 && r->bytes > now.free_bytes)
        return mr_error_set(
            MR_EDEVICEMEM,
            "cache device: %llu samples take %llu bytes, %llu of the device's memory are free "
            "beside %u slots x %llu: use the cache host",
            (unsigned long long)ld->ds->n, (unsigned long long)r->bytes,
            (unsigned long long)now.free_bytes, ld->ring.n_slots,
            (unsigned long long)(ld->layout.slot_bytes + ld->layout.output_bytes));
    rc = mr_memory_acquire(ld->device, MR_DEVICE, r->bytes, (void **)&r->at);
    if (rc < 0)
        return rc;
    rc = mr_stream_create(ld->device, "cache", &stream);
    if (rc < 0)
        return rc;
    rc = read_all(b, stream);
    mr_stream_destroy(stream);
    return rc;
}

static int resident_make(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                         struct mr_run_sample *s)
{
    (void)w;
    const struct resident *r = b->state;
    memcpy(row->slot->host + r->index_offset + row->at * sizeof s->index, &s->index,
           sizeof s->index);
    return 1;
}

static int resident_enqueue(struct mr_backend *b, struct mr_slot *slot, struct mr_stream *stream,
                            uint64_t *copied)
{
    const struct resident *r = b->state;
    const struct mr_layout *layout = &b->ld->layout;
    uint64_t bytes = r->index_offset + slot->size * sizeof(uint64_t);
    int rc = bytes > 0 ? mr_copy_async(stream, slot->device, MR_DEVICE, slot->host,
                                       b->ld->ring.host_kind, bytes)
                       : 0;
    *copied += bytes;
    for (int f = 0; f < layout->n_fields && rc == 0 && slot->size > 0; f++) {
        const struct mr_field *fp = &layout->field[f];
        struct mr_gather_args args = {.in = r->at + r->offset[f],
                                      .out = slot->device + fp->offset,
                                      .index = (const uint64_t *)(slot->device + r->index_offset),
                                      .rows = slot->size,
                                      .in_rows = b->ld->ds->n,
                                      .row_bytes = fp->in_bytes};
        rc = mr_launch(stream, "gather", &args, sizeof args);
    }
    return rc;
}

static void resident_close(struct mr_backend *b)
{
    const struct resident *r = b->state;
    if (r->at)
        mr_memory_release(b->ld->device, MR_DEVICE, r->at, NULL);
}

const struct mr_row_backend mr_row_resident = {
    .name = "resident",
    .state_size = sizeof(struct resident),
    .plan = resident_plan,
    .lay_out = resident_lay_out,
    .bytes = resident_bytes,
    .open = resident_open,
    .make = resident_make,
    .enqueue = resident_enqueue,
    .close = resident_close,
};
