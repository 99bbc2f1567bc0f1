/* What each field is, which part of its chain runs where, and where it is in a slot. */
#include "loader/engine.h"
#include "loader/slots.h"

#define MIN_PREFETCH        4
#define MAX_CHOSEN_PREFETCH 64
#define RANKS_BYTES         (1ull << 30) /* of the slots that many ranks want */
#define PREFETCH_BYTES      (4u << 20)   /* for each worker */
#define DIRECT_ALIGNMENT    4096         /* cuFile reads into such places without a detour */
#define GUESSED_ROW         1024         /* bytes of a varying row, before one has been made */
#define GUESSED_PICTURE     (224 * 224 * 3)

/* What makes samples of a field one size. */
static const char *size_advice(const struct mr_spec *spec)
{
    if (spec->rank > 1)
        return "pictures: resize(224,224), random_resized_crop(224), or "
               "resize(256),center_crop(224)";
    return spec->dtype == MR_U8 ? "sequences: truncate(512),pad_to(512)), let it be a text (tar: "
                                  "the option text; data of your own: mr_spec.kind"
                                : "sequences: truncate(512),pad_to(512)";
}

static int check_collate(const struct mr_field *fp)
{
    char text[160];
    mr_spec_format(&fp->out, text, sizeof text);
    if (fp->varies && fp->collate == MR_COLLATE_STACK)
        return mr_error_set(
            MR_ESHAPE,
            "%s: samples differ in shape: make them one size by a transform (%s), or collate by "
            "pad, fixed, ragged or pack",
            text, size_advice(&fp->out));
    bool first = fp->collate == MR_COLLATE_RAGGED || fp->collate == MR_COLLATE_PACK;
    if (fp->varies && first && fp->out.var_dims != 1)
        return mr_error_set(MR_ESHAPE, "%s: %s collation needs the first dimension alone to vary",
                            text, fp->collate == MR_COLLATE_PACK ? "pack" : "ragged");
    if (fp->out.rank == MR_MAX_RANK)
        return mr_error_set(MR_ESHAPE, "%s: a batch of it would have more than %d dimensions", text,
                            MR_MAX_RANK);
    return 0;
}

/* How much of a picture is decoded. Rows of a batch need a size: of pictures whose size nobody
 * knows the chain has to give one. */
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

/* Texts have nothing to be padded with, and what packs rows is not about them. */
static enum mr_collate field_collate(const struct mr_loader *ld, const struct mr_spec *spec)
{
    bool end_to_end = ld->layout.by_user || spec->kind != MR_KIND_TENSOR;
    return end_to_end ? MR_COLLATE_RAGGED : ld->opts.collate;
}

/* What field f is, and what workers and the device do to it. */
static int plan_field(struct mr_loader *ld, int f)
{
    struct mr_field *fp = &ld->layout.field[f];
    fp->source = ld->chain ? mr_transform_source(ld->chain, f) : f;
    fp->in = fp->source >= 0 ? ld->ds->field[fp->source] : ld->chain->in[f];
    fp->out = ld->chain ? mr_transform_specs(ld->chain)[f] : fp->in;
    fp->identity = !ld->chain || mr_transform_is_identity(ld->chain, f);
    fp->varies = fp->out.var_dims != 0;
    fp->collate = field_collate(ld, &fp->out);
    fp->collated = (fp->varies && fp->collate != MR_COLLATE_FIXED) || ld->layout.by_user;
    ld->layout.varies |= fp->varies;
    ld->layout.collates |= fp->collated;
    int rc = mr_spec_bytes(&fp->in, &fp->in_bytes);
    if (rc < 0)
        return rc;
    rc = mr_spec_bytes(&fp->out, &fp->row_bytes);
    if (rc < 0)
        return rc;
    rc = ld->layout.by_user ? 0 : check_collate(fp);
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
        if (fp->source >= 0 && mr_field_in_row(fp) && layout->decoded[fp->source].row_of < 0)
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
    int rc = mr_pack_check(ld);
    if (rc < 0)
        return rc;
    rc = mr_padding_plan(ld);
    if (rc < 0)
        return rc;
    rc = mr_added_plan(ld);
    if (rc < 0)
        return rc;
    if (ld->chain)
        ld->layout.scratch_bytes = mr_transform_scratch_bytes(ld->chain);
    rc = plan_decoded(ld);
    return rc < 0 ? rc : plan_picture(ld);
}

/* The field that comes next in a slot: direct ones last, each kind smallest first. */
static int next_field(const struct mr_loader *ld, const bool placed[])
{
    int next = -1;
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f],
                              *best = next >= 0 ? &ld->layout.field[next] : NULL;
        if (!placed[f] && !fp->collated &&
            (!best || fp->direct < best->direct ||
             (fp->direct == best->direct && fp->row_bytes < best->row_bytes)))
            next = f;
    }
    return next;
}

static int too_large(const struct mr_loader *ld)
{
    return mr_error_set(MR_ELIMIT, "a batch of %llu samples is more than 2^62 bytes",
                        (unsigned long long)ld->opts.batch_size);
}

/* What a row of a collated field may take: what the first sample's does, if that is known without
 * reading it. */
static uint64_t guess_row(const struct mr_loader *ld, int f)
{
    const struct mr_field *fp = &ld->layout.field[f];
    struct mr_extent at[MR_MAX_EXTENTS];
    uint64_t guess =
        fp->source >= 0 && fp->source == ld->ds->picture ? GUESSED_PICTURE : GUESSED_ROW;
    if (!fp->varies)
        return fp->row_bytes;
    int n = ld->ds->ops->locate && fp->identity ? ld->ds->ops->locate(ld->ds, 0, at) : 0;
    for (int e = 0; e < n; e++)
        if (fp->source >= 0 && at[e].field == fp->source && at[e].bytes != MR_WHOLE)
            guess = at[e].bytes;
    return MR_MIN(guess, fp->row_bytes);
}

/* What fields of a callback take at most: their sizes are at most 2^62 each. */
static uint64_t user_bytes(const struct mr_layout *layout)
{
    uint64_t sum = 0;
    for (int k = 0; k < layout->n_added; k++)
        if (!mr_add(sum, mr_round_up(layout->added[k].most_bytes, 256), &sum))
            return UINT64_MAX;
    return sum;
}

/* Collated fields: behind all others there is space for what a batch of them may take. */
static int lay_out_collated(struct mr_loader *ld)
{
    struct mr_layout *layout = &ld->layout;
    uint64_t guess = 0, bound = 0;
    for (int f = 0; f < layout->n_fields; f++) {
        const struct mr_field *fp = &layout->field[f];
        uint64_t row = fp->collated ? mr_round_up(guess_row(ld, f), 16) : 0, bytes;
        if (!fp->collated)
            continue;
        guess += mr_round_up(row * ld->opts.batch_size, 256);
        if (!mr_mul(fp->row_bytes, ld->opts.batch_size, &bytes) || !mr_add(bound, bytes, &bound) ||
            bound > 1ull << 62)
            return too_large(ld);
    }
    layout->rows_bytes = guess;
    for (int k = 0; k < layout->n_added; k++) /* it grows if that is too little */
        guess += mr_round_up((ld->opts.batch_size + 1) * 4, 256);
    if (layout->by_user)
        guess = bound = user_bytes(layout);
    if (guess > 1ull << 62)
        return too_large(ld);
    layout->bound_bytes = layout->slot_bytes + bound;
    layout->slot_bytes += guess;
    return 0;
}

/* Fields of one size. */
static int lay_out_fixed(struct mr_loader *ld)
{
    bool placed[MR_MAX_FIELDS] = {false};
    uint64_t at = 0;
    int f, rc = mr_device_chain_lay_out(ld, &at);
    if (rc < 0)
        return rc;
    mr_backends_lay_out(ld, &at);
    while ((f = next_field(ld, placed)) >= 0) {
        struct mr_field *fp = &ld->layout.field[f];
        uint64_t bytes, alignment = ld->backends.writes_device ? DIRECT_ALIGNMENT : 256;
        fp->offset = at = mr_round_up(at, fp->direct ? alignment : 256);
        placed[f] = true;
        if (!mr_mul(fp->row_bytes, ld->opts.batch_size, &bytes) || !mr_add(at, bytes, &at) ||
            at > 1ull << 62)
            return too_large(ld);
        at = mr_round_up(at, alignment);
    }
    ld->layout.fixed_bytes = mr_round_up(at, 256);
    ld->layout.slot_bytes = MR_MAX(ld->layout.fixed_bytes, 256);
    return 0;
}

/* Batches to prepare ahead where the option leaves it open. Small batches come in larger numbers,
 * so that threads hand over many at a time; ranks in lock step want more of any size. */
static uint32_t choose_prefetch(struct mr_loader *ld)
{
    uint64_t workers = mr_knobs_workers(ld);
    uint64_t fit = PREFETCH_BYTES * workers / ld->layout.bound_bytes;
    uint64_t least = MR_MAX(MIN_PREFETCH, MR_MIN(workers / 2, 8));
    uint64_t ranks = MR_MIN(mr_slots_for_ranks(ld->opts.world, MR_SLOTS_SPREAD),
                            RANKS_BYTES / ld->layout.bound_bytes);
    uint64_t chosen = MR_MAX(least, MR_MIN(fit, MAX_CHOSEN_PREFETCH));
    chosen <<= ld->backends.deep && chosen < MAX_CHOSEN_PREFETCH;
    return (uint32_t)MR_MAX(chosen, ranks);
}

int mr_layout_make(struct mr_loader *ld)
{
    int rc = lay_out_fixed(ld);
    if (rc < 0)
        return rc;
    rc = lay_out_collated(ld);
    if (rc < 0)
        return rc;
    if (ld->layout.host_bytes == 0)
        ld->layout.host_bytes = ld->layout.slot_bytes;
    uint32_t first = ld->opts.prefetch ? ld->opts.prefetch : choose_prefetch(ld);
    ld->ring.n_slots = mr_knobs_most_prefetch(ld, first);
    uint64_t ring;
    if (!mr_mul(ld->layout.slot_bytes + ld->layout.output_bytes, ld->ring.n_slots, &ring) ||
        ring > 1ull << 62)
        return mr_error_set(MR_ELIMIT, "%u batches of %llu bytes are more than 2^62 bytes",
                            ld->ring.n_slots, (unsigned long long)ld->layout.slot_bytes);
    return 0;
}
