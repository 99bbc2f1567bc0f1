/* Opening the decoding of pictures on the device: whether it can be, its memory, and which share of
 * the pictures it gets. */
#include "loader/engine.h"

#include <stdio.h>
#include <string.h>

#define LEAST_SCRATCH (24ull << 20)
#define MOST_SCRATCH  (512ull << 20)
#define MEAN_PICTURE  (3ull << 19) /* bytes of a decoded one: 700 x 700 */
#define MOST_PIXELS   (16ull << 20)
#define TRY_PICTURES  128 /* to choose the share by */
#define TRY_ON_HOST   16
#define TRY_ROUNDS    3
#define SHARES        32

/* NULL: it can; else why not. */
static const char *why_not(struct mr_loader *ld, int f)
{
    const struct mr_field *fp = f >= 0 ? &ld->layout.field[f] : NULL;
    if (!fp)
        return "the data set has no pictures";
    if (ld->device_info.unified || !ld->device->ops->jpeg_open)
        return "the device decodes no JPEG: cuda does, by nvJPEG";
    if (ld->opts.cache == MR_CACHE_DEVICE)
        return "the cache device keeps samples as decoded";
    if (ld->ds->image.channels != 3)
        return "the data set's pictures are not rgb: see color";
    if (!ld->chain || ld->chain->mix || fp->varies ||
        !mr_transform_is_window(ld->chain, f, fp->tail != NULL))
        return "the picture's chain must begin with crops or resizes to one size, and all else in "
               "it run on the "
               "device (see device_transforms): "
               "random_resized_crop(224),hflip,cast(f32),normalize(...)";
    const uint64_t *dim = fp->tail ? fp->tail->in.dim : fp->out.dim;
    if (dim[0] > UINT16_MAX || dim[1] > UINT16_MAX)
        return "the chain's pictures are larger than 65535 pixels a side";
    return NULL;
}

static int find_kernels(struct mr_loader *ld)
{
    int resample = mr_device_has_kernel(ld->device, "resample"),
        gather = mr_device_has_kernel(ld->device, "gather");
    return resample < 0 ? resample : gather < 0 ? gather : resample && gather;
}

static int refuse(struct mr_loader *ld, const char *why)
{
    if (ld->opts.gpu_decode != MR_GPU_DECODE_AUTO)
        return mr_error_set(MR_EUNSUPPORTED, "gpu_decode: %s", why);
    snprintf(ld->gpu_why_not, sizeof ld->gpu_why_not, "%s", why);
    return 0;
}

int mr_gpu_plan(struct mr_loader *ld)
{
    int f = ld->ds->picture;
    if (ld->opts.gpu_decode == 0)
        return 0;
    const char *no = why_not(ld, f);
    int there = no ? 0 : find_kernels(ld);
    if (there < 0)
        return there;
    if (!no && !there)
        no = "this build's kernels do not run on the device";
    if (no)
        return refuse(ld, no);
    struct mr_gpu_decode *g = ld->gpu = calloc(1, sizeof *g);
    if (!g)
        return mr_error_nomem("loader", sizeof *g);
    const struct mr_field *fp = &ld->layout.field[f];
    const uint64_t *dim = fp->tail ? fp->tail->in.dim : fp->out.dim;
    uint64_t most = MR_MAX(LEAST_SCRATCH, MR_MIN(MOST_SCRATCH, ld->opts.batch_size * MEAN_PICTURE));
    g->field = f;
    g->fraction = MR_MAX(ld->opts.gpu_decode, 0);
    g->below = (uint64_t)(g->fraction * 0x1p32);
    g->row_bytes = fp->row_bytes;
    g->scratch_bytes = most;
    g->most_pixels = MR_MIN(MOST_PIXELS, most / 4);
    g->out_h = (uint32_t)dim[0];
    g->out_w = (uint32_t)dim[1];
    int rc = 0;
    for (int i = 0; i < MR_GPU_LANES && rc == 0; i++)
        rc = mr_jpeg_open(ld->device, &g->lane[i].unit);
    if (rc != MR_EUNSUPPORTED || ld->opts.gpu_decode != MR_GPU_DECODE_AUTO)
        return rc;
    snprintf(ld->gpu_why_not, sizeof ld->gpu_why_not, "%s", mr_last_error());
    free(g);
    ld->gpu = NULL;
    return 0;
}

void mr_gpu_lay_out(struct mr_loader *ld, uint64_t *at)
{
    ld->gpu->from_offset = *at;
    *at = mr_round_up(*at + ld->opts.batch_size * sizeof(uint64_t), 256);
}

static uint64_t slot_rows_bytes(const struct mr_loader *ld)
{
    return mr_round_up(ld->opts.batch_size * ld->gpu->row_bytes, 256);
}

uint64_t mr_gpu_device_bytes(const struct mr_loader *ld)
{
    if (!ld->gpu)
        return 0;
    uint64_t lane = ld->gpu->scratch_bytes + ld->opts.batch_size * sizeof(struct mr_resample_row);
    return slot_rows_bytes(ld) * ld->ring.n_slots + lane * MR_GPU_LANES;
}

static int open_lane(struct mr_loader *ld, struct mr_gpu_lane *lane)
{
    uint64_t batch = ld->opts.batch_size, bytes = batch * sizeof *lane->rows;
    pthread_mutex_init(&lane->lock, NULL);
    lane->locked = true;
    lane->picture = calloc(batch, sizeof *lane->picture);
    lane->row = calloc(batch, sizeof *lane->row);
    if (!lane->picture || !lane->row)
        return mr_error_nomem("pictures for the device", batch * sizeof *lane->picture);
    int rc = mr_stream_create(ld->device, "jpeg", &lane->stream);
    if (rc == 0)
        rc = mr_event_create(ld->device, 0, &lane->done);
    if (rc == 0)
        rc = mr_memory_acquire(ld->device, MR_PINNED, bytes, (void **)&lane->rows);
    if (rc == 0)
        rc = mr_memory_acquire(ld->device, MR_DEVICE, bytes, (void **)&lane->rows_on_device);
    return rc == 0 ? mr_memory_acquire(ld->device, MR_DEVICE, ld->gpu->scratch_bytes,
                                       (void **)&lane->scratch)
                   : rc;
}

static void close_lane(struct mr_loader *ld, struct mr_gpu_lane *lane)
{
    if (lane->recorded)
        mr_event_synchronize(lane->done);
    mr_jpeg_close(lane->unit);
    if (lane->rows)
        mr_memory_release(ld->device, MR_PINNED, lane->rows, NULL);
    if (lane->rows_on_device)
        mr_memory_release(ld->device, MR_DEVICE, lane->rows_on_device, NULL);
    if (lane->scratch)
        mr_memory_release(ld->device, MR_DEVICE, lane->scratch, NULL);
    if (lane->done)
        mr_event_destroy(lane->done);
    if (lane->stream)
        mr_stream_destroy(lane->stream);
    free(lane->picture);
    free(lane->row);
    if (lane->locked)
        pthread_mutex_destroy(&lane->lock);
    *lane = (struct mr_gpu_lane){.unit = NULL};
}

void mr_gpu_close(struct mr_loader *ld)
{
    struct mr_gpu_decode *g = ld->gpu;
    if (!g)
        return;
    for (int i = 0; i < MR_GPU_LANES; i++)
        close_lane(ld, &g->lane[i]);
    for (uint32_t i = 0; ld->ring.slot && i < ld->ring.n_slots; i++) {
        struct mr_slot *slot = &ld->ring.slot[i];
        for (uint64_t row = 0; slot->gpu && row < ld->opts.batch_size; row++)
            free(slot->gpu[row].bytes);
        free(slot->gpu);
        if (slot->gpu_done)
            mr_event_destroy(slot->gpu_done);
    }
    if (g->rows)
        mr_memory_release(ld->device, MR_DEVICE, g->rows, NULL);
    g->rows = NULL;
}

static int open_slots(struct mr_loader *ld)
{
    struct mr_gpu_decode *g = ld->gpu;
    uint64_t bytes = slot_rows_bytes(ld);
    int rc = mr_memory_acquire(ld->device, MR_DEVICE, bytes * ld->ring.n_slots, (void **)&g->rows);
    for (uint32_t i = 0; i < ld->ring.n_slots && rc == 0; i++) {
        struct mr_slot *slot = &ld->ring.slot[i];
        slot->gpu_rows = g->rows + i * bytes;
        slot->gpu = calloc(ld->opts.batch_size, sizeof *slot->gpu);
        rc = slot->gpu ? mr_event_create(ld->device, 0, &slot->gpu_done)
                       : mr_error_nomem("batch slot", ld->opts.batch_size * sizeof *slot->gpu);
    }
    return rc;
}

/* ---- choosing the share ---- */

struct trial {
    struct mr_sample sample;
    void *owned[MR_MAX_EXTENTS], *room[MR_MAX_FIELDS], *scratch;
    struct mr_decoder *decoder;
    struct mr_gpu_sample *gpu; /* n of them */
    uint64_t *from, n, n_host, host_ns;
};

struct trial_wish {
    const struct mr_loader *ld;
    struct mr_at at;
};

static int choose_window(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    const struct trial_wish *wish = user;
    return mr_transform_window(wish->ld->chain, wish->ld->ds->picture, &wish->at, width, height,
                               out);
}

/* What a worker would do of the picture. A bad one counts for nothing. */
static void try_on_host(struct mr_loader *ld, struct trial *t, struct trial_wish *wish,
                        const struct mr_bytes *in)
{
    struct mr_picture picture;
    const struct mr_gpu_decode *g = ld->gpu;
    uint64_t dim[MR_MAX_RANK] = {g->out_h, g->out_w, 3}, start = mr_time_ns();
    int rc = mr_image_decode(t->decoder, &ld->ds->image, "", in->data, in->n, choose_window, wish,
                             &picture);
    if (rc < 0)
        return;
    wish->at.picture = &picture;
    uint64_t in_dim[MR_MAX_RANK] = {picture.height, picture.width, 3};
    void *row = ld->ring.slot[0].host + ld->layout.field[g->field].offset; /* no worker runs yet */
    rc = ld->layout.field[g->field].tail
             ? mr_transform_apply_head(ld->chain, g->field, &wish->at, picture.data, in_dim, row,
                                       t->scratch)
             : mr_transform_apply_at(ld->chain, g->field, &wish->at, picture.data, in_dim, row, dim,
                                     t->scratch);
    wish->at.picture = NULL;
    t->host_ns += mr_time_ns() - start;
    t->n_host += rc == 0;
}

static void try_one(struct mr_loader *ld, struct trial *t, uint64_t i)
{
    struct mr_bytes stored = {NULL, 0};
    struct mr_picture out;
    uint64_t index;
    if (mr_sampler_map(ld->sampler, 0, i, 1, &index) < 0)
        return;
    struct trial_wish wish = {ld, {.seed = ld->opts.seed, .index = index}};
    mr_sample_init(ld->ds, t->room, &t->sample);
    t->sample.seed = ld->opts.seed;
    t->sample.stored = &stored;
    if (mr_sample_read(ld->ds, index, &t->sample, t->owned) == 0 && stored.data) {
        t->gpu[i].used = mr_gpu_take(ld, &t->gpu[i], &wish.at, &stored, &out) == 1;
        if (t->n_host < TRY_ON_HOST)
            try_on_host(ld, t, &wish, &stored);
    }
    for (int e = 0; e < MR_MAX_EXTENTS; e++) {
        free(t->owned[e]);
        t->owned[e] = NULL;
    }
}

/* The shortest of a few rounds. Returns 0 or an error. */
static int try_on_device(struct mr_loader *ld, struct trial *t, double *out_rate)
{
    struct mr_gpu_lane *lane = &ld->gpu->lane[0];
    uint64_t best = UINT64_MAX;
    uint32_t done = 0;
    int rc = 0;
    for (int round = 0; round < TRY_ROUNDS && rc == 0; round++) {
        uint64_t start = mr_time_ns();
        for (uint64_t i = 0; i < t->n; i++)
            t->from[i] = UINT64_MAX;
        rc = mr_gpu_decode_rows(ld, lane, t->gpu, t->n, ld->ring.slot[0].gpu_rows, t->from, &done);
        if (rc == 0)
            rc = mr_event_synchronize(lane->done);
        best = MR_MIN(best, mr_time_ns() - start);
    }
    *out_rate = rc == 0 ? done * 1e9 / (double)MR_MAX(best, 1) : 0;
    return rc;
}

static int trial_begin(struct mr_loader *ld, struct trial *t)
{
    t->n = MR_MIN(MR_MIN(ld->opts.batch_size, TRY_PICTURES), ld->sampler->length);
    t->gpu = calloc(t->n, sizeof *t->gpu);
    t->from = calloc(t->n, sizeof *t->from);
    t->scratch =
        aligned_alloc(MR_CACHE_LINE, mr_round_up(ld->layout.scratch_bytes + 1, MR_CACHE_LINE));
    bool got = t->gpu && t->from && t->scratch;
    for (int f = 0; f < ld->layout.n_fields && got; f++)
        if (f != ld->gpu->field)
            got =
                (t->room[f] = aligned_alloc(
                     MR_CACHE_LINE, mr_round_up(ld->layout.field[f].in_bytes + 1, MR_CACHE_LINE)));
    return got ? mr_decoder_create(&t->decoder)
               : mr_error_nomem("trial of decoders", t->n * sizeof *t->gpu);
}

static void trial_end(struct trial *t)
{
    for (uint64_t i = 0; t->gpu && i < t->n; i++)
        free(t->gpu[i].bytes);
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(t->room[f]);
    free(t->gpu);
    free(t->from);
    free(t->scratch);
    mr_decoder_destroy(t->decoder);
}

static int choose_share(struct mr_loader *ld)
{
    struct mr_gpu_decode *g = ld->gpu;
    struct trial t = {.n = 0};
    int rc = trial_begin(ld, &t);
    for (uint64_t i = 0; i < t.n && rc == 0; i++)
        try_one(ld, &t, i);
    if (rc == 0)
        rc = try_on_device(ld, &t, &g->gpu_rate);
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

int mr_gpu_open(struct mr_loader *ld)
{
    int rc = 0;
    for (int i = 0; i < MR_GPU_LANES && rc == 0; i++)
        rc = open_lane(ld, &ld->gpu->lane[i]);
    if (rc == 0)
        rc = open_slots(ld);
    return rc == 0 && ld->opts.gpu_decode == MR_GPU_DECODE_AUTO ? choose_share(ld) : rc;
}
