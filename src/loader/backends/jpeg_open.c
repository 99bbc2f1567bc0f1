/* Opening the decoding of pictures on the device: whether it can be done, and its memory. */
#include "loader/backends/jpeg.h"
#include "loader/engine.h"

#include <stdio.h>
#include <string.h>

#define LEAST_SCRATCH (24ull << 20)
#define MOST_SCRATCH  (384ull << 20)
#define MEAN_PICTURE  (1ull << 20) /* bytes of a decoded one: 590 x 590 */
#define MOST_PIXELS   (16ull << 20)
#define AHEAD_OF_ROWS 8 /* most of the rows that are under way are the workers' to finish */
#define HALVES        2 /* of the scratch, and of the windows */
#define ROWS_BYTES    (HALVES * MR_JPEG_CHUNK * sizeof(struct mr_resample_row))

/* NULL: it can; else why not. */
static const char *why_not(struct mr_loader *ld, int f)
{
    const struct mr_field *fp = f >= 0 ? &ld->layout.field[f] : NULL;
    if (!fp)
        return "the data set has no pictures";
    if (ld->device_info.unified || !ld->device->ops->jpeg_open)
        return "the device decodes no JPEG: cuda does, by nvJPEG";
    if (ld->opts.on_host)
        return "on_host keeps batches in host memory";
    if (ld->ds->ops->iterable)
        return "an iterable data set cannot give a picture again that the device refuses";
    if (ld->opts.cache == MR_CACHE_DEVICE)
        return "the cache device keeps samples as decoded";
    if (ld->ds->image.channels != 3)
        return "the data set's pictures are not rgb: see color";
    if (ld->chain && mr_transform_begins(ld->chain))
        return "the chain compares sizes of fields";
    if (ld->layout.rearranged)
        return "the chain changes which fields there are";
    if (fp->collated)
        return "the host collates pictures";
    if (!ld->chain || ld->chain->mix || fp->varies ||
        !mr_transform_is_window(ld->chain, f, fp->device_part != NULL))
        return "the picture's chain must begin with crops or resizes to one size, and all else "
               "in it run on the device (see device_transforms): "
               "random_resized_crop(224),hflip,cast(f32),normalize(...)";
    const uint64_t *dim = fp->device_part ? fp->device_part->in.dim : fp->out.dim;
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

static int refuse(struct mr_backend *b, const char *why)
{
    if (b->ld->opts.gpu_decode != MR_GPU_DECODE_AUTO)
        return mr_error_set(MR_EUNSUPPORTED, "gpu_decode: %s", why);
    snprintf(b->note, sizeof b->note, "%s", why);
    return 0;
}

static int find_decoder(struct mr_backend *b)
{
    int rc = mr_jpeg_find(b->ld->device);
    if (rc != MR_EUNSUPPORTED || b->ld->opts.gpu_decode != MR_GPU_DECODE_AUTO)
        return rc < 0 ? rc : 1;
    snprintf(b->note, sizeof b->note, "%s", mr_last_error());
    return 0;
}

/* Can the device decode pictures of this data set and chain, as opts.gpu_decode asks? */
int mr_jpeg_plan(struct mr_backend *b)
{
    struct mr_loader *ld = b->ld;
    struct mr_jpeg_state *g = b->state;
    int f = ld->ds->picture;
    if (ld->opts.gpu_decode == 0)
        return 0;
    const char *no = why_not(ld, f);
    int has = no ? 0 : find_kernels(ld);
    if (has < 0)
        return has;
    if (!no && !has)
        no = "this build's kernels do not run on the device";
    if (no)
        return refuse(b, no);
    const struct mr_field *fp = &ld->layout.field[f];
    const uint64_t *dim = fp->device_part ? fp->device_part->in.dim : fp->out.dim;
    uint64_t most = MR_MAX(LEAST_SCRATCH, MR_MIN(MOST_SCRATCH, ld->opts.batch_size * MEAN_PICTURE));
    g->field = f;
    g->automatic = ld->opts.gpu_decode == MR_GPU_DECODE_AUTO;
    g->fraction = MR_MAX(ld->opts.gpu_decode, 0);
    g->below = (uint64_t)(g->fraction * 0x1p32);
    g->row_bytes = fp->row_bytes;
    g->scratch_bytes = most;
    g->most_pixels = MR_MIN(MOST_PIXELS, most / 4);
    g->out_h = (uint32_t)dim[0];
    g->out_w = (uint32_t)dim[1];
    int rc = find_decoder(b);
    ld->layout.field[f].device_only |= rc == 1;
    /* The engine's thread needs a processor: if it has to share one the device waits for it. */
    if (rc == 1 && ld->opts.workers == 0 && !ld->opts.budget && ld->workers.n > 2)
        mr_knobs_spare_one(ld);
    return rc;
}

static uint64_t slot_rows_bytes(const struct mr_backend *b)
{
    const struct mr_jpeg_state *g = b->state;
    return mr_round_up(b->ld->opts.batch_size * g->row_bytes, 256);
}

void mr_jpeg_bytes(const struct mr_backend *b, uint64_t n_slots, uint64_t *device, uint64_t *host)
{
    const struct mr_jpeg_state *g = b->state;
    uint64_t batch = b->ld->opts.batch_size;
    *device += slot_rows_bytes(b) * n_slots + HALVES * g->scratch_bytes + ROWS_BYTES;
    *host += n_slots * batch * b->ld->sizes.sample_bytes; /* compressed pictures that wait */
}

static int open_memory(const struct mr_backend *b, struct mr_jpeg_engine *e)
{
    struct mr_device *device = b->ld->device;
    const struct mr_jpeg_state *g = b->state;
    int rc = mr_stream_create(device, "jpeg", &e->stream);
    if (rc < 0)
        return rc;
    rc = mr_stream_create(device, "jpeg windows", &e->resampling);
    if (rc < 0)
        return rc;
    rc = mr_event_create(device, 0, &e->through);
    for (int half = 0; half < HALVES && rc == 0; half++)
        rc = mr_event_create(device, 0, &e->done[half]);
    if (rc < 0)
        return rc;
    rc = mr_memory_acquire(device, MR_PINNED, ROWS_BYTES, (void **)&e->rows);
    if (rc < 0)
        return rc;
    rc = mr_memory_acquire(device, MR_DEVICE, ROWS_BYTES, (void **)&e->rows_on_device);
    if (rc < 0)
        return rc;
    return mr_memory_acquire(device, MR_DEVICE, HALVES * g->scratch_bytes, (void **)&e->scratch);
}

void mr_jpeg_close_all(struct mr_backend *b)
{
    struct mr_device *device = b->ld->device;
    struct mr_jpeg_engine *e = &((struct mr_jpeg_state *)b->state)->engine;
    if (e->rows)
        mr_memory_release(device, MR_PINNED, e->rows, NULL);
    if (e->rows_on_device)
        mr_memory_release(device, MR_DEVICE, e->rows_on_device, NULL);
    if (e->scratch)
        mr_memory_release(device, MR_DEVICE, e->scratch, NULL);
    for (int half = 0; half < HALVES; half++)
        if (e->done[half])
            mr_event_destroy(e->done[half]);
    if (e->through)
        mr_event_destroy(e->through);
    if (e->resampling)
        mr_stream_destroy(e->resampling);
    if (e->stream)
        mr_stream_destroy(e->stream);
}

/* With AUTO the host decodes until the decoder is open. */
int mr_jpeg_open_all(struct mr_backend *b)
{
    struct mr_jpeg_state *g = b->state;
    int rc = open_memory(b, &g->engine);
    if (rc < 0)
        return rc;
    uint64_t rows = b->ld->ring.n_slots * b->ld->opts.batch_size;
    g->ahead = (uint32_t)MR_MAX(1, MR_MIN(MR_JPEG_AHEAD, rows / AHEAD_OF_ROWS));
    rc = mr_jpeg_engine_start(b);
    return rc < 0 || g->automatic ? rc : mr_jpeg_engine_wait(&g->engine);
}

int mr_jpeg_slot_open(struct mr_backend *b, struct mr_slot *slot, void *own)
{
    (void)slot;
    struct mr_jpeg_slot *s = own;
    uint64_t batch = b->ld->opts.batch_size;
    s->t = UINT64_MAX;
    s->kept = calloc(batch, sizeof *s->kept);
    if (!s->kept)
        return mr_error_nomem("batch slot", batch * sizeof *s->kept);
    int rc = mr_event_create(b->ld->device, 0, &s->done);
    return rc < 0
               ? rc
               : mr_memory_acquire(b->ld->device, MR_DEVICE, slot_rows_bytes(b), (void **)&s->rows);
}

void mr_jpeg_slot_close(struct mr_backend *b, void *own)
{
    struct mr_jpeg_slot *s = own;
    for (uint64_t row = 0; s->kept && row < b->ld->opts.batch_size; row++)
        free(s->kept[row].bytes);
    free(s->kept);
    mr_event_destroy(s->done);
    mr_memory_release(b->ld->device, MR_DEVICE, s->rows, NULL);
}
