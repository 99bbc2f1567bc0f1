/*
 * The host's way: bytes that the storage has read, decoded and transformed by a worker, straight
 * into the row of the host half. One copy ships all fields. Takes every sample that no other
 * backend takes.
 */
#include "loader/backends/host.h"
#include "base/copy.h"
#include "loader/engine.h"
#include "loader/get.h"
#include "loader/sandbox.h"

#include <string.h>

/* A failed read of more than this extent: the bytes around it must not decide about it, as what is
 * read together depends on the workers. */
static int read_alone(struct mr_loader *ld, const struct mr_run_sample *s, int e, const void **out)
{
    const struct mr_extent *at = &s->extent[e].at;
    unsigned char *to = (unsigned char *)s->extent[e].read->buf + s->extent[e].skip;
    int rc = mr_files_read(ld->ds->files, at->file, at->offset, to, at->bytes);
    *out = rc == 0 ? to : NULL;
    return rc;
}

/* Where an extent's bytes are (NULL when it has none), or the error of its read. */
static int extent_bytes(struct mr_loader *ld, const struct mr_run_sample *s, int e,
                        struct mr_bytes *out)
{
    const struct mr_read *r = s->extent[e].read;
    *out = (struct mr_bytes){s->extent[e].view, s->extent[e].at.bytes};
    if (out->data || !r)
        return 0;
    if (r->status == 0 && r->bytes == MR_WHOLE) {
        *out = (struct mr_bytes){r->view, r->done};
        return 0;
    }
    if (r->status == 0) {
        out->data = r->view ? (const unsigned char *)r->view + s->extent[e].skip : NULL;
        return 0;
    }
    if (r->bytes != MR_WHOLE && r->want > s->extent[e].at.bytes)
        return read_alone(ld, s, e, &out->data);
    if (r->error)
        return mr_error_put(r->error);
    return mr_error_set(r->status, "read failed: %s", mr_strerror(r->status));
}

int mr_host_window(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    const struct mr_decoding *d = user;
    return mr_transform_window(d->ld->chain, d->ld->picture_track, &d->at, width, height, out);
}

/* Where decode writes: the row itself, or the worker's memory when a chain follows. */
static void prepare(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                    struct mr_decoding *d)
{
    struct mr_loader *ld = w->ld;
    void *to[MR_MAX_FIELDS];
    for (int f = 0; f < ld->layout.n_decoded; f++) {
        int g = ld->layout.decoded[f].row_of;
        to[f] = g >= 0 ? mr_field_row(&ld->layout.field[g], row->slot, row->at) : w->decoded[f];
    }
    d->ld = ld;
    d->at = (struct mr_at){.seed = ld->opts.seed, .epoch = row->epoch, .index = s->index};
    mr_sample_init(ld->ds, to, &d->sample);
    d->sample.index = s->index;
    d->sample.epoch = row->epoch;
    d->sample.seed = ld->opts.seed;
    d->sample.position = s->position;
    d->sample.worker = w->id;
    d->sample.worker_state = w->state;
    d->sample.decoder = w->decoder;
    d->sample.choose = ld->picture_track >= 0 ? mr_host_window : NULL;
    d->sample.choose_user = d;
}

/* Extents that are fields as they are need no decode, if all of them are. */
static int decode(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                  struct mr_sample *out)
{
    struct mr_loader *ld = w->ld;
    struct mr_bytes in[MR_MAX_EXTENTS];
    for (int e = 0, most = mr_extents_most(ld->ds); e < most; e++)
        in[e] = (struct mr_bytes){NULL, 0};
    bool as_is = true;
    for (int e = 0; e < s->n_extents; e++) {
        s->failed_extent = e;
        int rc = extent_bytes(ld, s, e, &in[e]), f = s->extent[e].at.field;
        if (rc < 0)
            return rc;
        as_is = as_is && f >= 0;
        if (f >= 0)
            out->field[f].data = in[e].data;
    }
    s->failed_extent = 0;
    if (ld->sandbox && !(as_is && s->n_extents > 0))
        return mr_sandbox_decode(w, s, row->epoch, in, out);
    if (s->n_extents == 0)
        return mr_get_sample(w, row, s, out);
    return as_is ? 0 : ld->ds->ops->decode(ld->ds, s->index, in, out);
}

int mr_host_decode(struct mr_worker *w, const struct mr_row *row, struct mr_run_sample *s,
                   struct mr_bytes *stored, struct mr_decoding *out)
{
    /* Threads that wait for decoders of a sandbox would look as if decoding blocked. */
    bool measure = row->timed && w->measure && !w->ld->sandbox;
    struct mr_blocked begin;
    prepare(w, row, s, out);
    if (measure)
        mr_blocked_begin(&begin);
    out->start_ns = row->timed ? mr_time_ns() : 0;
    out->decoded_ns = 0;
    out->sample.stored = stored;
    int rc = decode(w, row, s, &out->sample);
    if (!row->timed)
        return rc;
    out->decoded_ns = mr_time_ns();
    if (measure && rc == 0)
        mr_blocked_end(&begin, out->decoded_ns - out->start_ns,
                       s->n_extents == 0 ? w->get.n_made : 1, &w->blocked);
    if (s->n_extents == 0 && w->get.n_made > 1) /* its share of the time of all */
        out->start_ns = out->decoded_ns - (out->decoded_ns - out->start_ns) / w->get.n_made;
    return rc;
}

/* What the transforms are to know of a sample besides the bytes of one of its fields. */
static struct mr_at place_of(const struct mr_decoding *d, int source)
{
    const struct mr_loader *ld = d->ld;
    const struct mr_sample *in = &d->sample;
    struct mr_at here = d->at;
    int picture = ld->ds->picture, pointed = ld->chain->pointed >= 0
                                                 ? ld->chain->source[ld->chain->pointed]
                                                 : MR_MAX(picture, 0);
    here.dim = in->field[pointed].dim;
    if (picture < 0 || in->picture.full_width == 0)
        return here;
    if (ld->picture_track >= 0 && source == picture && in->picture.data)
        here.picture = &in->picture;
    if (pointed != picture)
        return here;
    here.height = in->picture.full_height;
    here.width = in->picture.full_width;
    return here;
}

/* Puts a row that the chain did not write itself where it belongs. */
static int put_row(struct mr_loader *ld, int f, const struct mr_row *row, const void *data,
                   const uint64_t *dim)
{
    const struct mr_field *fp = &ld->layout.field[f];
    if (fp->collated)
        return mr_collate_keep(ld, row->slot, row->at, f, data, dim);
    unsigned char *to = mr_field_row(fp, row->slot, row->at);
    if (fp->varies) /* FIXED: padded to the bound */
        mr_place(&fp->out, data, dim, to, fp->out.dim, fp->fill);
    else if (data != to)
        mr_copy_row(ld->past_caches, to, data, fp->row_bytes);
    return 0;
}

/* What a field is made from. */
static struct mr_given given(const struct mr_worker *w, int f, const struct mr_decoding *d)
{
    int source = w->ld->layout.field[f].source;
    if (source < 0)
        return mr_transform_given(w->ld->chain, f, NULL, w->scratch);
    return (struct mr_given){d->sample.field[source].data, d->sample.field[source].dim};
}

/* The ops over several fields. Of a picture that is decoded in part they see the whole's size. */
static int begin(struct mr_worker *w, const struct mr_decoding *d)
{
    const struct mr_loader *ld = w->ld;
    const struct mr_sample *s = &d->sample;
    struct mr_given in[MR_MAX_FIELDS];
    struct mr_at at = place_of(d, ld->ds->picture);
    uint64_t whole[MR_MAX_RANK] = {s->picture.full_height, s->picture.full_width,
                                   s->picture.channels};
    for (int f = 0; f < ld->layout.n_decoded; f++)
        in[f] = (struct mr_given){s->field[f].data,
                                  at.picture && f == ld->ds->picture ? whole : s->field[f].dim};
    mr_watch_task(&w->watch, MR_TASK_TRANSFORM);
    return mr_transform_begin(ld->chain, &at, ld->ds->picture, in, w->scratch);
}

/* The chain's part for workers: all of it, or what precedes the device's part. */
static int transform(struct mr_worker *w, int f, const struct mr_decoding *d,
                     const struct mr_row *row, uint64_t *out_dim)
{
    const struct mr_loader *ld = w->ld;
    const struct mr_field *fp = &ld->layout.field[f];
    struct mr_given in = given(w, f, d);
    struct mr_at at = place_of(d, fp->source);
    memcpy(out_dim, fp->out.dim, sizeof fp->out.dim);
    mr_watch_task(&w->watch, MR_TASK_TRANSFORM);
    if (fp->device_part)
        return mr_transform_apply_head(ld->chain, f, &at, in.data, in.dim,
                                       mr_field_row(fp, row->slot, row->at), w->scratch);
    bool aside = fp->varies || fp->collated;
    unsigned char *to = aside ? w->row_buffer : mr_field_row(fp, row->slot, row->at);
    int rc = mr_transform_apply_at(ld->chain, f, &at, in.data, in.dim, to, out_dim, w->scratch);
    return rc == 0 && aside ? put_row(w->ld, f, row, to, out_dim) : rc;
}

/* Is the data of this field there until the data set is closed? Then it is copied once, into the
 * batch. A user's collation may want rows that are aligned. */
static bool stays(const struct mr_worker *w, int source, const void *data)
{
    const struct mr_dataset *ds = w->ld->ds;
    return ds->lasting && source >= 0 && source != ds->picture && data != w->decoded[source] &&
           !w->ld->layout.by_user;
}

/* [out] out_dim: the row's shape, if some field varies. */
static int write_field(struct mr_worker *w, int f, const struct mr_decoding *d,
                       const struct mr_row *row, uint64_t *out_dim)
{
    const struct mr_field *fp = &w->ld->layout.field[f];
    if (!fp->identity)
        return transform(w, f, d, row, out_dim);
    struct mr_given in = given(w, f, d);
    if (w->ld->layout.varies)
        memcpy(out_dim, in.dim, MR_MAX_RANK * sizeof *out_dim);
    if (fp->collated && stays(w, fp->source, in.data)) {
        *mr_slot_kept(row->slot, row->at, f) = in.data;
        return 0;
    }
    return put_row(w->ld, f, row, in.data, in.dim);
}

/* Short spans are left out of the trace: the run's span holds them. */
#define TRACE_SAMPLE_NS 2000
static void count_timed(struct mr_worker *w, const struct mr_decoding *d)
{
    uint64_t end = mr_time_ns(), index = d->at.index;
    mr_count(&w->timed_decode_ns, d->decoded_ns - d->start_ns);
    mr_count(&w->timed_transform_ns, end - d->decoded_ns);
    if (end - d->start_ns < TRACE_SAMPLE_NS)
        return;
    mr_trace_span("decode", d->start_ns, d->decoded_ns, "sample", index);
    mr_trace_span("transform", d->decoded_ns, end, "sample", index);
}

int mr_host_write(struct mr_worker *w, const struct mr_row *row, struct mr_decoding *d,
                  uint32_t skip)
{
    const struct mr_layout *layout = &w->ld->layout;
    struct mr_slot *slot = row->slot;
    int begun = w->ld->chain && mr_transform_begins(w->ld->chain) ? begin(w, d) : 0;
    if (begun < 0)
        return begun;
    for (int f = 0; f < layout->n_fields; f++) {
        uint64_t dim[MR_MAX_RANK];
        if (skip >> f & 1)
            continue;
        int rc = write_field(w, f, d, row, dim);
        if (rc < 0)
            return rc;
        if (slot->dims)
            memcpy(mr_slot_dims(slot, row->at, f), dim, sizeof dim);
    }
    if (row->timed)
        count_timed(w, d);
    return 0;
}

static int host_plan(struct mr_backend *b)
{
    (void)b;
    return 1;
}

static int host_make(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                     struct mr_run_sample *s)
{
    struct mr_decoding d;
    struct mr_bytes unused;
    int rc = mr_host_decode(w, row, s, b->ld->skips_pictures ? &unused : NULL, &d);
    if (rc < 0)
        return rc;
    rc = mr_host_write(w, row, &d, 0);
    return rc < 0 ? rc : 1;
}

static void host_move(struct mr_backend *b, struct mr_slot *slot, uint64_t to, uint64_t from)
{
    for (int f = 0; f < b->ld->layout.n_fields; f++) {
        const struct mr_field *fp = &b->ld->layout.field[f];
        if (!fp->collated)
            memcpy(mr_field_row(fp, slot, to), mr_field_row(fp, slot, from), fp->row_bytes);
    }
}

/* Bytes of the slot that hold something: fields are in it smallest first, so that the last one's
 * unused end is not copied; direct ones are behind all others, and so are collated ones. */
static uint64_t used_bytes(const struct mr_loader *ld, const struct mr_slot *slot)
{
    uint64_t used = ld->layout.collates ? slot->end : 0;
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const struct mr_field *fp = &ld->layout.field[f];
        uint64_t bytes = fp->device_part ? slot->size * fp->row_bytes : slot->bytes[f];
        if (!fp->direct && !fp->collated)
            used = MR_MAX(used, fp->offset + bytes);
        if (fp->device_part && fp->device_part->flip)
            used = MR_MAX(used, fp->flip_offset + slot->size);
    }
    return used;
}

static int host_enqueue(struct mr_backend *b, struct mr_slot *slot, struct mr_stream *stream,
                        uint64_t *copied)
{
    uint64_t bytes = used_bytes(b->ld, slot);
    *copied += bytes;
    if (bytes == 0)
        return 0;
    return mr_copy_async(stream, slot->device, MR_DEVICE, slot->host, b->ld->ring.host_kind, bytes);
}

const struct mr_row_backend mr_row_host = {
    .name = "host",
    .reads = true,
    .plan = host_plan,
    .make = host_make,
    .move = host_move,
    .enqueue = host_enqueue,
};
