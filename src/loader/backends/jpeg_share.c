/*
 * Which share of the pictures the device decodes, if that is to be chosen: a few are decoded by
 * both sides when the loader opens, and the share is that of the device's rate in the sum of both.
 */
#include "codec/image_codec.h"
#include "loader/backends/jpeg.h"
#include "loader/engine.h"

#define TRY_PICTURES 128 /* to choose the share by */
#define TRY_ON_HOST  16
#define TRY_ROUNDS   3
#define SHARES       32

struct trial {
    struct mr_sample sample;
    void *owned[MR_MAX_EXTENTS], *decoded[MR_MAX_FIELDS], *scratch;
    struct mr_decoder *decoder;
    struct mr_kept_picture *kept; /* n of them */
    uint64_t *from, n, n_host, host_ns;
};

struct trial_window {
    const struct mr_loader *ld;
    struct mr_at at;
};

static int choose_window(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    const struct trial_window *window = user;
    return mr_transform_window(window->ld->chain, window->ld->ds->picture, &window->at, width,
                               height, out);
}

/* What a worker would do of the picture. A bad one counts for nothing. */
static void try_on_host(struct mr_backend *b, struct trial *t, struct trial_window *window,
                        const struct mr_bytes *in)
{
    struct mr_picture picture;
    struct mr_loader *ld = b->ld;
    const struct mr_jpeg_state *g = b->state;
    uint64_t dim[MR_MAX_RANK] = {g->out_h, g->out_w, 3}, start = mr_time_ns();
    int rc = mr_image_decode(t->decoder, &ld->ds->image, "", in->data, in->n, choose_window, window,
                             &picture);
    if (rc < 0)
        return;
    window->at.picture = &picture;
    uint64_t in_dim[MR_MAX_RANK] = {picture.height, picture.width, 3};
    void *row = mr_ring_slot(&ld->ring, 0)->host +
                ld->layout.field[g->field].offset; /* no worker runs yet */
    rc = ld->layout.field[g->field].device_part
             ? mr_transform_apply_head(ld->chain, g->field, &window->at, picture.data, in_dim, row,
                                       t->scratch)
             : mr_transform_apply_at(ld->chain, g->field, &window->at, picture.data, in_dim, row,
                                     dim, t->scratch);
    window->at.picture = NULL;
    t->host_ns += mr_time_ns() - start;
    t->n_host += rc == 0;
}

static void try_one(struct mr_backend *b, struct trial *t, uint64_t i)
{
    struct mr_loader *ld = b->ld;
    struct mr_bytes stored = {NULL, 0};
    struct mr_picture out;
    uint64_t index = i; /* if a batch sampler chooses */
    if (!ld->plan.finds && mr_sampler_map(ld->sampler, 0, i, 1, &index) < 0)
        return;
    struct trial_window window = {ld, {.seed = ld->opts.seed, .index = index}};
    mr_sample_init(ld->ds, t->decoded, &t->sample);
    t->sample.seed = ld->opts.seed;
    t->sample.stored = &stored;
    if (mr_sample_read(ld->ds, index, &t->sample, t->owned) == 0 && stored.data) {
        t->kept[i].used = mr_jpeg_keep(b, &t->kept[i], &window.at, &stored, &out) == 1;
        if (t->n_host < TRY_ON_HOST)
            try_on_host(b, t, &window, &stored);
    }
    for (int e = 0; e < MR_MAX_EXTENTS; e++) {
        free(t->owned[e]);
        t->owned[e] = NULL;
    }
}

/* The shortest of a few rounds. Returns 0 or an error. */
static int try_on_device(struct mr_backend *b, struct trial *t, double *out_rate)
{
    struct mr_jpeg_state *g = b->state;
    struct mr_jpeg_context *c = &g->context[0];
    const struct mr_jpeg_slot *own = mr_backend_own(b, mr_ring_slot(&b->ld->ring, 0));
    uint64_t best = UINT64_MAX;
    uint32_t done = 0;
    int rc = 0;
    for (int round = 0; round < TRY_ROUNDS && rc == 0; round++) {
        uint64_t start = mr_time_ns();
        for (uint64_t i = 0; i < t->n; i++)
            t->from[i] = UINT64_MAX;
        rc = mr_jpeg_decode_rows(b, c, t->kept, t->n, own->rows, t->from, &done);
        if (rc == 0)
            rc = mr_event_synchronize(c->done);
        best = MR_MIN(best, mr_time_ns() - start);
    }
    *out_rate = rc == 0 ? done * 1e9 / (double)MR_MAX(best, 1) : 0;
    return rc;
}

static int trial_begin(struct mr_backend *b, struct trial *t)
{
    const struct mr_loader *ld = b->ld;
    const struct mr_jpeg_state *g = b->state;
    t->n = MR_MIN(MR_MIN(ld->opts.batch_size, TRY_PICTURES), ld->sampler->length);
    t->kept = calloc(t->n, sizeof *t->kept);
    t->from = calloc(t->n, sizeof *t->from);
    t->scratch =
        aligned_alloc(MR_CACHE_LINE, mr_round_up(ld->layout.scratch_bytes + 1, MR_CACHE_LINE));
    bool got = t->kept && t->from && t->scratch;
    for (int f = 0; f < ld->layout.n_fields && got; f++) {
        uint64_t bytes = mr_round_up(ld->layout.field[f].in_bytes + 1, MR_CACHE_LINE);
        if (f == g->field)
            continue;
        t->decoded[f] = aligned_alloc(MR_CACHE_LINE, bytes);
        got = t->decoded[f];
    }
    return got ? mr_decoder_create(&t->decoder)
               : mr_error_nomem("trial of decoders", t->n * sizeof *t->kept);
}

static void trial_end(struct trial *t)
{
    for (uint64_t i = 0; t->kept && i < t->n; i++)
        free(t->kept[i].bytes);
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(t->decoded[f]);
    free(t->kept);
    free(t->from);
    free(t->scratch);
    mr_decoder_destroy(t->decoder);
}

int mr_jpeg_choose_share(struct mr_backend *b)
{
    struct mr_loader *ld = b->ld;
    struct mr_jpeg_state *g = b->state;
    struct trial t = {.n = 0};
    int rc = trial_begin(b, &t);
    for (uint64_t i = 0; i < t.n && rc == 0; i++)
        try_one(b, &t, i);
    if (rc == 0)
        rc = try_on_device(b, &t, &g->gpu_rate);
    int64_t threads = MR_MIN((int64_t)ld->workers.n, mr_cpu_count());
    if (t.host_ns > 0)
        g->cpu_rate = (double)t.n_host * 1e9 / (double)t.host_ns * (double)threads;
    trial_end(&t);
    if (rc < 0 || g->gpu_rate == 0)
        return rc;
    g->fraction = (double)(int)(g->gpu_rate / (g->gpu_rate + g->cpu_rate) * SHARES + 0.5) / SHARES;
    g->below = (uint64_t)(g->fraction * 0x1p32);
    return 0;
}
