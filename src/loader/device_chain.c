/* The parts of fields' chains that run on the device: which, where in a slot, their kernels. */
#include "loader/engine.h"
#include "transform/transform.h"

static int has_kernel(void *device, const char *kernel)
{
    return mr_device_has_kernel(device, kernel);
}

static bool wanted(const struct mr_loader *ld)
{
    if (ld->opts.device_transforms != MR_DEVICE_TRANSFORMS_AUTO)
        return ld->opts.device_transforms == MR_DEVICE_TRANSFORMS_ON;
    return !ld->device_info.simulated || ld->opts.cache == MR_CACHE_DEVICE;
}

int mr_device_chain_plan(struct mr_loader *ld, int f)
{
    struct mr_field *fp = &ld->layout.field[f];
    struct mr_device_part part;
    fp->out_bytes = fp->row_bytes;
    if (!ld->chain || !ld->ships || !wanted(ld) || fp->varies || fp->collated || fp->identity)
        return 0;
    int rc = mr_device_part_find(ld->chain, f, has_kernel, ld->device, &part);
    if (rc <= 0)
        return rc;
    fp->device_part = malloc(sizeof *fp->device_part);
    if (!fp->device_part)
        return mr_error_nomem("loader", sizeof *fp->device_part);
    *fp->device_part = part;
    fp->row_bytes = part.in_bytes;
    fp->identity = part.as_decoded;
    return 0;
}

int mr_device_chain_lay_out(struct mr_loader *ld, uint64_t *at)
{
    for (int f = 0; f < ld->layout.n_fields; f++) {
        struct mr_field *fp = &ld->layout.field[f];
        uint64_t bytes;
        if (fp->device_part && fp->device_part->mixes && !ld->layout.mixes) {
            ld->layout.mixes = true;
            ld->layout.partner_offset = *at;
            *at = mr_round_up(*at + ld->opts.batch_size * sizeof(uint32_t), 256);
        }
        if (fp->device_part && fp->device_part->flip) {
            ld->layout.flips = true;
            fp->flip_offset = *at;
            *at = mr_round_up(*at + ld->opts.batch_size, 256);
        }
        if (!fp->device_part)
            continue;
        fp->out_offset = ld->layout.output_bytes;
        if (!mr_mul(fp->out_bytes, ld->opts.batch_size, &bytes) ||
            !mr_add(ld->layout.output_bytes, bytes, &bytes) || bytes > 1ull << 62)
            return mr_error_set(MR_ELIMIT, "a batch of %llu samples is more than 2^62 bytes",
                                (unsigned long long)ld->opts.batch_size);
        ld->layout.output_bytes = mr_round_up(bytes, 256);
    }
    return 0;
}

int mr_device_chain_launch(struct mr_loader *ld, const struct mr_slot *slot,
                           struct mr_stream *stream)
{
    int rc = 0;
    for (int f = 0; f < ld->layout.n_fields && rc == 0; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        if (!fp->device_part || slot->size == 0)
            continue;
        struct mr_device_part part = *fp->device_part;
        void *in = slot->device + fp->offset, *out = slot->output + fp->out_offset;
        if (part.hot) {
            part.args.one_hot.in = in;
            part.args.one_hot.out = out;
            part.args.one_hot.rows = slot->size;
        } else {
            part.args.point.in = in;
            part.args.point.out = out;
            part.args.point.rows = slot->size;
            part.args.point.flip = part.flip ? slot->device + fp->flip_offset : NULL;
        }
        if (part.mixes)
            mr_mix_device_part(ld->chain, &slot->mixture, f,
                               (const uint32_t *)(slot->device + ld->layout.partner_offset), &part);
        rc = mr_launch(stream, part.kernel, &part.args, part.arg_bytes);
    }
    return rc;
}
