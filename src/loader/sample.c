/* One sample: bytes -> decode -> chain -> row; and what happens to a bad one. */
#include "loader/engine.h"
#include "transform/transform.h"

#include <errno.h>
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
    return r->error ? mr_error_put(r->error)
                    : mr_error_set(r->status, "read failed: %s", mr_strerror(r->status));
}

static void rooms_of(struct mr_worker *w, unsigned char *const row[], void *rooms[])
{
    struct mr_loader *ld = w->ld;
    for (int f = 0; f < ld->layout.n_fields; f++)
        rooms[f] =
            ld->layout.field[f].identity && !ld->layout.field[f].varies ? row[f] : w->room[f];
}

/* A mr_window_choice: what the chain wants of a picture. */
struct wish {
    const struct mr_loader *ld;
    struct mr_at at;
};

static int choose_window(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    const struct wish *wish = user;
    return mr_transform_window(wish->ld->chain, wish->ld->ds->picture, &wish->at, width, height,
                               out);
}

/* stored: not NULL: pictures stay as they are, and where they are goes there. */
static int decode(struct mr_worker *w, struct mr_run_sample *s, unsigned char *const row[],
                  struct wish *wish, struct mr_bytes *stored, struct mr_sample *out)
{
    struct mr_loader *ld = w->ld;
    struct mr_bytes in[MR_MAX_EXTENTS] = {{NULL, 0}};
    int rc = 0;
    for (int e = 0; e < s->n_extents && rc == 0; e++) {
        s->failed_extent = e;
        rc = extent_bytes(ld, s, e, &in[e]);
    }
    if (rc < 0)
        return rc;
    s->failed_extent = 0;
    void *rooms[MR_MAX_FIELDS];
    rooms_of(w, row, rooms);
    mr_sample_init(ld->ds, rooms, out);
    out->index = s->index;
    out->epoch = wish->at.epoch;
    out->seed = ld->opts.seed;
    out->decoder = w->decoder;
    out->choose = ld->windows ? choose_window : NULL;
    out->choose_user = wish;
    out->stored = stored;
    if (s->n_extents == 0)
        return ld->ds->ops->get(ld->ds, s->index, out);
    bool as_is = true;
    for (int e = 0; e < s->n_extents; e++) {
        int f = s->extent[e].at.field;
        as_is = as_is && f >= 0;
        if (f >= 0)
            out->field[f].data = in[e].data;
    }
    return as_is ? 0 : ld->ds->ops->decode(ld->ds, s->index, in, out);
}

/* Puts a field of varying shape into its row: padded to the bound, or dense for collating. */
static void place_varying(struct mr_loader *ld, const struct mr_field *fp, const void *data,
                          const uint64_t *dim, unsigned char *row)
{
    bool pad = ld->opts.collate == MR_COLLATE_FIXED;
    unsigned char fill[16];
    mr_fill_element(fp->out.dtype, ld->opts.pad_value, fill);
    mr_place(&fp->out, data, dim, row, pad ? fp->out.dim : dim, fill);
}

/* What the transforms are to know of a sample besides its bytes. */
static struct mr_at place_of(const struct mr_loader *ld, const struct mr_at *at, int f,
                             const struct mr_sample *in)
{
    struct mr_at here = *at;
    int pointed =
        ld->chain && ld->chain->pointed >= 0 ? ld->chain->pointed : MR_MAX(ld->ds->picture, 0);
    here.dim = in->field[pointed].dim;
    if (ld->ds->picture < 0 || in->picture.full_width == 0)
        return here;
    here.picture = ld->windows && f == ld->ds->picture && in->picture.data ? &in->picture : NULL;
    if (pointed != ld->ds->picture)
        return here;
    here.height = in->picture.full_height;
    here.width = in->picture.full_width;
    return here;
}

/* What the device is to start from. */
static int write_head(struct mr_worker *w, int f, const struct mr_at *at,
                      const struct mr_sample *in, unsigned char *row)
{
    struct mr_loader *ld = w->ld;
    const struct mr_field *fp = &ld->layout.field[f];
    const void *data = in->field[f].data;
    if (!fp->identity)
        return mr_transform_apply_head(ld->chain, f, at, data, in->field[f].dim, row, w->scratch);
    if (data != row) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): make() has set
                        every field's row */
        memcpy(row, data, fp->row_bytes);
    return 0;
}

static int write_field(struct mr_worker *w, int f, const struct mr_at *at,
                       const struct mr_sample *in, unsigned char *row, uint64_t *out_dim)
{
    struct mr_loader *ld = w->ld;
    const struct mr_field *fp = &ld->layout.field[f];
    const void *data = in->field[f].data;
    if (fp->tail) {
        memcpy(out_dim, fp->out.dim, sizeof fp->out.dim);
        return write_head(w, f, at, in, row);
    }
    if (fp->identity) {
        memcpy(out_dim, in->field[f].dim, sizeof in->field[f].dim);
        if (fp->varies)
            place_varying(ld, fp, data, out_dim, row);
        else if (data !=
                 row) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): as above */
            memcpy(row, data, fp->row_bytes);
        return 0;
    }
    unsigned char *to = fp->varies ? w->place_room : row;
    memcpy(out_dim, fp->out.dim, sizeof fp->out.dim);
    int rc =
        mr_transform_apply_at(ld->chain, f, at, data, in->field[f].dim, to, out_dim, w->scratch);
    if (rc == 0 && fp->varies)
        place_varying(ld, fp, to, out_dim, row);
    return rc;
}

/* Short spans are left out of the trace: the run's span holds them. */
#define TRACE_SAMPLE_NS 2000
static void count_timed(struct mr_worker *w, uint64_t start, uint64_t decoded, uint64_t end,
                        uint64_t index)
{
    mr_count(&w->timed_decode_ns, decoded - start);
    mr_count(&w->timed_transform_ns, end - decoded);
    if (end - start < TRACE_SAMPLE_NS)
        return;
    mr_trace_span("decode", start, decoded, "sample", index);
    mr_trace_span("transform", decoded, end, "sample", index);
}

/* All that the device needs of a sample which it has. */
static void say_which(struct mr_loader *ld, struct mr_slot *slot, uint32_t row, uint64_t epoch,
                      uint64_t index)
{
    memcpy(slot->host + ld->index_offset + row * sizeof index, &index, sizeof index);
    for (int f = 0; f < ld->layout.n_fields; f++)
        if (ld->layout.field[f].tail && ld->layout.field[f].tail->flip)
            slot->host[ld->layout.field[f].flip_offset + row] =
                mr_tail_flips(ld->layout.field[f].tail, ld->opts.seed, epoch, index);
}

/* The device's part, as far as it is to do with this sample: then its picture is not decoded here.
 * Returns 1, 0: the host decodes; or an error. */
static int leave_to_device(struct mr_worker *w, struct mr_gpu_sample *to, struct mr_run_sample *s,
                           unsigned char *const row[], struct wish *wish, struct mr_sample *out)
{
    struct mr_bytes stored = {NULL, 0};
    if (w->on_host || !mr_gpu_wants(w->ld, wish->at.epoch, s->index))
        return 0;
    int rc = decode(w, s, row, wish, &stored, out);
    return rc == 0 && stored.data ? mr_gpu_take(w->ld, to, &wish->at, &stored, &out->picture) : rc;
}

/* Decodes and transforms one sample, whose bytes are there, into row `row` of a slot. timed: take
 * the two apart. */
static int make(struct mr_worker *w, struct mr_slot *slot, uint32_t row, uint64_t epoch,
                struct mr_run_sample *s, bool timed)
{
    struct mr_loader *ld = w->ld;
    if (ld->resident) {
        say_which(ld, slot, row, epoch, s->index);
        return 0;
    }
    unsigned char *to[MR_MAX_FIELDS] = {NULL};
    for (int f = 0; f < ld->layout.n_fields; f++)
        to[f] = slot->host + ld->layout.field[f].offset + row * ld->layout.field[f].row_bytes;
    struct mr_sample sample;
    uint64_t t0 = timed ? mr_time_ns() : 0;
    struct wish wish = {ld, {.seed = ld->opts.seed, .epoch = epoch, .index = s->index}};
    struct mr_gpu_sample *gpu = slot->gpu ? &slot->gpu[row] : NULL;
    int rc = gpu ? leave_to_device(w, gpu, s, to, &wish, &sample) : 0;
    bool away = rc == 1;
    if (rc == 0)
        rc = decode(w, s, to, &wish, NULL, &sample);
    rc = MR_MIN(rc, 0);
    uint64_t t1 = timed ? mr_time_ns() : 0;
    if (slot->from_host)
        slot->from_host[row] = !s->direct;
    for (int f = 0; f < ld->layout.n_fields && rc == 0; f++) {
        uint64_t dim[MR_MAX_RANK] = {0};
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): mr_sample_init() has set every
         * field's data */
        struct mr_at at = place_of(ld, &wish.at, f, &sample);
        if (away && f == ld->ds->picture)
            memcpy(dim, ld->layout.field[f].out.dim, sizeof dim);
        else if (!s->direct || !ld->layout.field[f].direct) /* else its bytes are in their row */
            rc = write_field(w, f, &at, &sample, to[f], dim);
        if (rc == 0 && ld->layout.field[f].tail && ld->layout.field[f].tail->flip)
            slot->host[ld->layout.field[f].flip_offset + row] =
                mr_tail_flips(ld->layout.field[f].tail, ld->opts.seed, epoch, s->index);
        if (rc == 0 && slot->dims)
            memcpy(slot->dims +
                       ((uint64_t)row * (uint64_t)ld->layout.n_fields + (uint64_t)f) * MR_MAX_RANK,
                   dim, sizeof dim);
    }
    if (gpu)
        gpu->used = away && rc == 0;
    if (timed)
        count_timed(w, t0, t1, mr_time_ns(), s->index);
    return rc;
}

/* Reads the sample at index on this thread into memory of its own: the rare way, for replacements.
 * owned: zeroed; the caller frees what it holds afterwards. */
static int fetch_now(struct mr_loader *ld, uint64_t index, struct mr_run_sample *s,
                     void *owned[MR_MAX_EXTENTS])
{
    s->index = index;
    s->n_extents = 0;
    if (!ld->ds->ops->locate)
        return 0;
    struct mr_extent at[MR_MAX_EXTENTS];
    int n = ld->ds->ops->locate(ld->ds, index, at), rc = MR_MIN(n, 0);
    for (int e = 0; e < n && rc == 0; e++) {
        struct mr_bytes bytes;
        rc = mr_extent_fetch(ld->ds, &at[e], &bytes, &owned[e]);
        at[e].bytes = bytes.n;
        s->extent[e].at = at[e];
        s->extent[e].view = bytes.data;
    }
    s->n_extents = MR_MAX(n, 0);
    return rc;
}

/* Says nothing about the sample: another try would find it good. */
static bool machine_lacks(int rc)
{
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/*
 * Puts the sample of the next position that decodes in place of a bad one: positions p + 1, p + 2,
 * ... of the same epoch's order, wrapping round. A function of p alone, so every run chooses the
 * same.
 */
#define MAX_REPLACE_TRIES 1000
static int replace(struct mr_worker *w, struct mr_run *run, uint32_t i)
{
    struct mr_loader *ld = w->ld;
    uint64_t length = ld->plan.length, p = run->sample[i].position % length;
    uint64_t tries = MR_MIN(length - 1, MAX_REPLACE_TRIES);
    for (uint64_t k = 1; k <= tries && !atomic_load_explicit(&ld->ring.stop, memory_order_relaxed);
         k++) {
        struct mr_run_sample s = {.position = run->sample[i].position};
        void *owned[MR_MAX_EXTENTS] = {NULL};
        uint64_t index;
        int rc = mr_sampler_map(ld->sampler, run->info.epoch, (p + k) % length, 1, &index);
        if (rc == 0)
            rc = fetch_now(ld, index, &s, owned);
        if (rc == 0)
            rc =
                make(w, mr_ring_slot(&ld->ring, run->t), run->row0 + i, run->info.epoch, &s, false);
        for (int e = 0; e < MR_MAX_EXTENTS; e++)
            free(owned[e]);
        if (machine_lacks(rc))
            return rc;
        if (rc == 0) {
            mr_ring_slot(&ld->ring, run->t)->indices[run->row0 + i] = index;
            return 0;
        }
    }
    return mr_error_set(
        MR_EBADSAMPLES,
        "no sample decodes at the %llu positions after position %llu: nothing can replace it",
        (unsigned long long)tries, (unsigned long long)p);
}

/* Notes a sample that could not be made, and puts another in its place where the policy says so. */
static void give_up(struct mr_worker *w, struct mr_run *run, uint32_t i, int rc, bool device_failed)
{
    struct mr_loader *ld = w->ld;
    struct mr_run_sample *s = &run->sample[i];
    uint32_t row = run->row0 + i;
    bool fatal = run->error.code < 0 || machine_lacks(rc) || device_failed;
    mr_bad_add(ld, run->t, row, s, run->info.epoch, rc, fatal);
    if (ld->opts.bad == MR_BAD_REPLACE && !fatal) {
        rc = replace(w, run, i);
        if (rc < 0)
            mr_bad_add(ld, run->t, row, s, run->info.epoch, rc, true);
    }
}

void mr_sample_make(struct mr_worker *w, struct mr_run *run, uint32_t i, bool timed)
{
    struct mr_run_sample *s = &run->sample[i];
    struct mr_slot *slot = mr_ring_slot(&w->ld->ring, run->t);
    uint32_t row = run->row0 + i;
    slot->indices[row] = s->index;
    slot->positions[row] = s->position;
    if (slot->gpu)
        slot->gpu[row].used = false;
    int rc = s->status < 0 ? mr_run_error(w, run, i) : s->direct ? mr_gds_read(w, run, i) : 0;
    bool device_failed = rc == MR_EDEVICE;
    if (rc == 0)
        rc = make(w, slot, row, run->info.epoch, s, timed);
    if (rc < 0)
        give_up(w, run, i, rc, device_failed);
}

void mr_sample_make_again(struct mr_worker *w, uint64_t t, uint32_t row)
{
    struct mr_slot *slot = mr_ring_slot(&w->ld->ring, t);
    struct mr_run_sample s = {.position = slot->positions[row]};
    struct mr_run run = {.t = t, .info = slot->info, .row0 = row, .n = 1, .sample = &s};
    void *owned[MR_MAX_EXTENTS] = {NULL};
    w->on_host = true;
    int rc = fetch_now(w->ld, slot->indices[row], &s, owned);
    if (rc == 0)
        rc = make(w, slot, row, slot->info.epoch, &s, false);
    if (rc < 0)
        give_up(w, &run, 0, rc, false);
    w->on_host = false;
    for (int e = 0; e < MR_MAX_EXTENTS; e++)
        free(owned[e]);
}
