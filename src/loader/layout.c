/* What each field is, which part of its chain runs where, and where it is in a slot. */
#include "loader/engine.h"

#define MIN_PREFETCH        4
#define MAX_CHOSEN_PREFETCH 64
#define PREFETCH_BYTES      (4u << 20) /* for each worker */
#define DIRECT_ALIGNMENT    4096       /* cuFile reads into such places without a detour */

static int check_collate(const struct mr_loader *ld, const struct mr_field *fp)
{
    char text[160];
    mr_spec_format(&fp->out, text, sizeof text);
    if (fp->varies && ld->opts.collate == MR_COLLATE_STACK)
        return mr_error_set(
            MR_ESHAPE,
            "%s: samples differ in shape: make them one size by a transform (pictures: "
            "resize(224,224), random_resized_crop(224), or resize(256),center_crop(224)), "
            "or collate by pad, fixed or ragged",
            text);
    if (fp->varies && ld->opts.collate == MR_COLLATE_RAGGED && fp->out.var_dims != 1)
        return mr_error_set(MR_ESHAPE,
                            "%s: ragged collation needs the first dimension alone to vary", text);
    if (fp->out.rank == MR_MAX_RANK)
        return mr_error_set(MR_ESHAPE, "%s: a batch of it would have more than %d dimensions", text,
                            MR_MAX_RANK);
    return 0;
}

/* The value to pad with becomes an element as it is, or the loader does not open. */
static int check_padding(const struct mr_loader *ld, const struct mr_field *fp)
{
    enum mr_collate collate = ld->opts.collate;
    enum mr_dtype dtype = fp->out.dtype;
    if (!fp->varies || (collate != MR_COLLATE_PAD && collate != MR_COLLATE_FIXED) ||
        mr_element_holds(dtype, ld->opts.pad_value))
        return 0;
    char text[160];
    mr_spec_format(&fp->out, text, sizeof text);
    return mr_error_set(MR_EOPTION,
                        "%s: pad_value is %.17g: expected a number that %s can hold; choose "
                        "another, or cast the field",
                        text, ld->opts.pad_value, mr_dtype_name(dtype));
}

/* How much of a picture is decoded. Rows of a batch need a size: of pictures whose size nobody knows
 * the chain has to give one. */
static int plan_picture(struct mr_loader *ld)
{
    int f = ld->ds->picture, t = -1;
    int n = f >= 0 && ld->chain ? mr_transform_tracks(ld->chain, f, &t) : f >= 0;
    ld->skips_pictures = f >= 0 && n == 0;
    ld->picture_track = n == 1 && ld->chain && mr_transform_has_window(ld->chain, t) ? t : -1;
    if (n == 0 || ld->ds->picture_bounded ||
        (ld->picture_track >= 0 && ld->chain->out[t].var_dims == 0))
        return 0;
    return mr_error_set(MR_ESHAPE,
                        "%s: the pictures' largest size is not known: begin the transforms of it "
                        "with a resize or crop to one size (resize(256,256), or "
                        "resize(256),center_crop(224), or random_resized_crop(224)), or give the "
                        "data set max-height and max-width and collate by pad",
                        ld->ds->field[f].name);
}

/* What field f is, and what workers and the device do to it. */
static int plan_field(struct mr_loader *ld, int f)
{
    struct mr_field *fp = &ld->layout.field[f];
    fp->source = ld->chain ? mr_transform_source(ld->chain, f) : f;
    fp->in = ld->ds->field[fp->source];
    fp->out = ld->chain ? mr_transform_specs(ld->chain)[f] : fp->in;
    fp->identity = !ld->chain || mr_transform_is_identity(ld->chain, f);
    fp->varies = fp->out.var_dims != 0;
    ld->layout.varies |= fp->varies;
    int rc = mr_spec_bytes(&fp->in, &fp->in_bytes);
    if (rc < 0)
        return rc;
    rc = mr_spec_bytes(&fp->out, &fp->row_bytes);
    if (rc < 0)
        return rc;
    rc = check_collate(ld, fp);
    if (rc < 0)
        return rc;
    rc = check_padding(ld, fp);
    return rc < 0 ? rc : mr_device_chain_plan(ld, f);
}

/* Where each field of the data set is decoded. */
static int plan_decoded(struct mr_loader *ld)
{
    struct mr_layout *layout = &ld->layout;
    for (int f = 0; f < layout->n_decoded; f++) {
        layout->decoded[f].row_of = -1;
        int rc = mr_spec_bytes(&ld->ds->field[f], &layout->decoded[f].bytes);
        if (rc < 0)
            return rc;
    }
    layout->rearranged = layout->n_fields != layout->n_decoded;
    for (int f = 0; f < layout->n_fields; f++) {
        const struct mr_field *fp = &layout->field[f];
        layout->rearranged |= fp->source != f;
        if (fp->identity && !fp->varies && layout->decoded[fp->source].row_of < 0)
            layout->decoded[fp->source].row_of = f;
    }
    return 0;
}

int mr_fields_plan(struct mr_loader *ld)
{
    ld->layout.n_fields = ld->layout.n_decoded = ld->ds->n_fields;
    if (ld->chain) {
        int rc = mr_transform_acquire(ld->chain, ld->ds->field, ld->layout.n_decoded);
        if (rc < 0)
            return rc;
        ld->chain_acquired = true;
        ld->layout.n_fields = mr_transform_fields(ld->chain);
    }
    for (int f = 0; f < ld->layout.n_fields; f++) {
        int rc = plan_field(ld, f);
        if (rc < 0)
            return rc;
    }
    if (ld->chain)
        ld->layout.scratch_bytes = mr_transform_scratch_bytes(ld->chain);
    int rc = plan_decoded(ld);
    return rc < 0 ? rc : plan_picture(ld);
}

/* The field that comes next in a slot: direct ones last, each kind smallest first. */
static int next_field(const struct mr_loader *ld, const bool placed[])
{
    int next = -1;
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f],
                              *best = next >= 0 ? &ld->layout.field[next] : NULL;
        if (!placed[f] && (!best || fp->direct < best->direct ||
                           (fp->direct == best->direct && fp->row_bytes < best->row_bytes)))
            next = f;
    }
    return next;
}

int mr_layout_make(struct mr_loader *ld)
{
    bool placed[MR_MAX_FIELDS] = {false};
    uint64_t at = 0;
    int rc = mr_device_chain_lay_out(ld, &at);
    if (rc < 0)
        return rc;
    mr_backends_lay_out(ld, &at);
    for (int k = 0; k < ld->layout.n_fields; k++) {
        int f = next_field(ld, placed);
        struct mr_field *fp = &ld->layout.field[f];
        uint64_t bytes, alignment = ld->backends.writes_device ? DIRECT_ALIGNMENT : 256;
        fp->offset = at = mr_round_up(at, fp->direct ? alignment : 256);
        placed[f] = true;
        if (!mr_mul(fp->row_bytes, ld->opts.batch_size, &bytes) || !mr_add(at, bytes, &at) ||
            at > 1ull << 62)
            return mr_error_set(MR_ELIMIT, "a batch of %llu samples is more than 2^62 bytes",
                                (unsigned long long)ld->opts.batch_size);
        at = mr_round_up(at, alignment);
    }
    ld->layout.slot_bytes = MR_MAX(at, 256);
    if (ld->layout.host_bytes == 0)
        ld->layout.host_bytes = ld->layout.slot_bytes;
    /* Small batches come in larger numbers, so that threads hand over many at a time. */
    uint64_t fit = (uint64_t)PREFETCH_BYTES * ld->workers.n / ld->layout.slot_bytes;
    uint64_t least = MR_MAX(MIN_PREFETCH, MR_MIN(ld->workers.n / 2, 8));
    uint64_t chosen = MR_MAX(least, MR_MIN(fit, MAX_CHOSEN_PREFETCH));
    ld->ring.n_slots = ld->opts.prefetch ? ld->opts.prefetch : (uint32_t)chosen;
    uint64_t ring;
    if (!mr_mul(ld->layout.slot_bytes + ld->layout.output_bytes, ld->ring.n_slots, &ring) ||
        ring > 1ull << 62)
        return mr_error_set(MR_ELIMIT, "%u batches of %llu bytes are more than 2^62 bytes",
                            ld->ring.n_slots, (unsigned long long)ld->layout.slot_bytes);
    return 0;
}
