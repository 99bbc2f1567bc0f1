/* Opening and closing a loader: checks, sizes, the memory sum, threads. */
#include "loader/loader.h"
#include "transform/transform.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#define MAX_WORKERS         512
#define MAX_PREFETCH        1024
#define MIN_PREFETCH        4
#define MAX_CHOSEN_PREFETCH 64
#define PREFETCH_BYTES      (4u << 20) /* for each worker */
#define MAX_BATCH           (1u << 24)
#define MAX_RUN_ROWS        32
#define RUN_BYTES           (32u << 10)  /* a run writes at least this much, so that claiming it costs little */
#define JOINED_READ_BYTES   (256u << 10) /* neighbouring samples in a sequential order are read together up to this */
#define READ_AHEAD_SAMPLES  1024
#define READ_AHEAD_BYTES    (64u << 20)
#define MOST_AHEAD_SAMPLES  65536        /* 50 ms at 1.3 million samples/s */
#define MOST_AHEAD_BYTES    (256u << 20) /* 50 ms at 5 GB/s */
#define FILE_DEPTH          256
#define MOST_FILE_DEPTH     4096
#define GDS_ALIGNMENT       4096         /* cuFile reads into such places without a detour */
#define GUESSED_FILE_BYTES  (128u << 10) /* when the first one cannot be looked at */
#define MAX_DEPTH           65536

void mr_loader_opts_fill(struct mr_loader_opts *opts, size_t size)
{
    const struct mr_loader_opts full = {.batch_size = 64,
                                        .epochs = 1,
                                        .world = 1,
                                        .max_bad = UINT64_MAX,
                                        .device_transforms = MR_DEVICE_TRANSFORMS_AUTO,
                                        .streams = 1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

/* The caller's struct may be of an older, shorter version: what it lacks takes the defaults. */
static int complete_opts(const struct mr_loader_opts *opts, struct mr_loader_opts *out)
{
    mr_loader_opts_init(out);
    if (opts->size < offsetof(struct mr_loader_opts, drop_last) || opts->size > sizeof *opts)
        return mr_error_set(MR_EMISUSE,
                            "mr_loader_opts: size is %zu, want at most %zu: fill it with mr_loader_opts_init()",
                            opts->size, sizeof *opts);
    memcpy(out, opts, opts->size);
    out->size = sizeof *out;
    return 0;
}

static int check_opts(const struct mr_loader_opts *o)
{
    if (o->size != sizeof *o)
        return mr_error_set(MR_EMISUSE, "mr_loader_opts: size is %zu, want %zu: fill it with mr_loader_opts_init()",
                            o->size, sizeof *o);
    const struct {
        const char *name;
        uint64_t value, min, max;
    } ranges[] = {
        {"batch_size", o->batch_size, 1, MAX_BATCH},
        {"workers", o->workers, 0, MAX_WORKERS},
        {"prefetch", o->prefetch, 0, MAX_PREFETCH},
        {"world", o->world, 1, 1u << 20},
        {"rank", o->rank, 0, o->world ? o->world - 1 : 0},
        {"queue_depth", o->queue_depth, 0, MAX_DEPTH},
        {"read_ahead", o->read_ahead, 0, 1u << 24},
        {"collate", (uint64_t)o->collate, 0, MR_COLLATE_RAGGED},
        {"bad", (uint64_t)o->bad, 0, MR_BAD_REPLACE},
        {"storage", (uint64_t)o->storage, 0, MR_STORAGE_GDS},
        {"cache", (uint64_t)o->cache, 0, MR_CACHE_DEVICE},
        {"remainder", (uint64_t)o->remainder, 0, MR_REMAINDER_PAD},
        {"streams", o->streams, 1, MR_MAX_STREAMS},
        {"device_transforms", (uint64_t)o->device_transforms, 0, MR_DEVICE_TRANSFORMS_AUTO},
    };
    for (size_t i = 0; i < MR_COUNT(ranges); i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return mr_error_set(MR_EOPTION, "%s %llu: want %llu..%llu", ranges[i].name,
                                (unsigned long long)ranges[i].value, (unsigned long long)ranges[i].min,
                                (unsigned long long)ranges[i].max);
    if (!(o->gpu_decode >= 0 && o->gpu_decode <= 1) && o->gpu_decode != MR_GPU_DECODE_AUTO)
        return mr_error_set(MR_EOPTION, "gpu_decode %g: want a fraction, 0..1, or MR_GPU_DECODE_AUTO", o->gpu_decode);
    if (!(o->max_bad_fraction >= 0 && o->max_bad_fraction <= 1))
        return mr_error_set(MR_EOPTION, "max_bad_fraction %g: want 0..1", o->max_bad_fraction);
    return 0;
}

static int check_collate(const struct mr_loader *ld, const struct mr_loader_field *fp)
{
    char text[160];
    mr_spec_format(&fp->out, text, sizeof text);
    if (fp->varies && ld->opts.collate == MR_COLLATE_STACK)
        return mr_error_set(MR_ESHAPE,
                            "%s: samples differ in shape: make them one size by a transform (pictures: "
                            "resize(224,224), random_resized_crop(224), or resize(256),center_crop(224)), "
                            "or collate by pad, fixed or ragged",
                            text);
    if (fp->varies && ld->opts.collate == MR_COLLATE_RAGGED && fp->out.var_dims != 1)
        return mr_error_set(MR_ESHAPE, "%s: ragged collation wants the first dimension alone to vary", text);
    if (fp->out.rank == MR_MAX_RANK)
        return mr_error_set(MR_ESHAPE, "%s: a batch of it would have more than %d dimensions", text, MR_MAX_RANK);
    return 0;
}

/* The field that lies next in a slot: those of gds last, each kind smallest first. */
static int next_field(const struct mr_loader *ld, const bool placed[])
{
    int next = -1;
    for (int f = 0; f < ld->n_fields; f++) {
        const struct mr_loader_field *fp = &ld->field[f], *best = next >= 0 ? &ld->field[next] : NULL;
        if (!placed[f] && (!best || fp->gds < best->gds || (fp->gds == best->gds && fp->row_bytes < best->row_bytes)))
            next = f;
    }
    return next;
}

/* Fields lie in a slot smallest first (ship.c copies up to the last byte used). */
static int lay_out_slot(struct mr_loader *ld)
{
    bool placed[MR_MAX_FIELDS] = {false};
    uint64_t at = 0;
    int rc = mr_tails_lay_out(ld, &at);
    if (rc < 0)
        return rc;
    if (ld->gpu)
        mr_gpu_lay_out(ld, &at);
    if (ld->resident) {
        ld->index_offset = at;
        at = mr_round_up(at + ld->opts.batch_size * sizeof(uint64_t), 256);
    }
    uint64_t front = at;
    for (int k = 0; k < ld->n_fields; k++) {
        int f = next_field(ld, placed);
        struct mr_loader_field *fp = &ld->field[f];
        uint64_t bytes, alignment = ld->gds ? GDS_ALIGNMENT : 256;
        fp->offset = at = mr_round_up(at, fp->gds ? alignment : 256);
        placed[f] = true;
        if (!mr_mul(fp->row_bytes, ld->opts.batch_size, &bytes) || !mr_add(at, bytes, &at) || at > 1ull << 62)
            return mr_error_set(MR_ELIMIT, "a batch of %llu samples is more than 2^62 bytes",
                                (unsigned long long)ld->opts.batch_size);
        at = mr_round_up(at, alignment);
    }
    ld->slot_bytes = MR_MAX(at, 256);
    ld->host_bytes = ld->resident ? front : ld->slot_bytes;
    /* Small batches come in larger numbers, so that threads hand over many at a time. */
    uint64_t fit = (uint64_t)PREFETCH_BYTES * ld->n_workers / ld->slot_bytes;
    uint64_t least = MR_MAX(MIN_PREFETCH, MR_MIN(ld->n_workers / 2, 8));
    uint64_t chosen = MR_MAX(least, MR_MIN(fit, MAX_CHOSEN_PREFETCH));
    ld->n_slots = ld->opts.prefetch ? ld->opts.prefetch : (uint32_t)chosen;
    uint64_t ring;
    if (!mr_mul(ld->slot_bytes + ld->output_bytes, ld->n_slots, &ring) || ring > 1ull << 62)
        return mr_error_set(MR_ELIMIT, "%u batches of %llu bytes are more than 2^62 bytes", ld->n_slots,
                            (unsigned long long)ld->slot_bytes);
    return 0;
}

/* Rows of a batch need a size: of pictures whose size nobody knows the chain has to give one. */
static int check_picture(const struct mr_loader *ld)
{
    int f = ld->ds->picture;
    if (f < 0 || ld->ds->picture_bounded || (ld->windows && !ld->field[f].varies))
        return 0;
    return mr_error_set(
        MR_ESHAPE,
        "%s: the pictures' largest size is not known: begin the transforms of it with a resize or crop "
        "to one size (resize(256,256), or resize(256),center_crop(224), or random_resized_crop(224)), or "
        "give the data set max-height and max-width and collate by pad",
        ld->field[f].in.name);
}

static int plan_fields(struct mr_loader *ld)
{
    ld->n_fields = ld->ds->n_fields;
    int rc = ld->chain ? mr_transform_hold(ld->chain, ld->ds->field, ld->n_fields) : 0;
    ld->holds_chain = ld->chain && rc == 0;
    for (int f = 0; f < ld->n_fields && rc == 0; f++) {
        struct mr_loader_field *fp = &ld->field[f];
        fp->in = ld->ds->field[f];
        fp->out = ld->chain ? mr_transform_specs(ld->chain)[f] : fp->in;
        fp->identity = !ld->chain || mr_transform_is_identity(ld->chain, f);
        fp->varies = fp->out.var_dims != 0;
        ld->varies |= fp->varies;
        rc = mr_spec_bytes(&fp->in, &fp->in_bytes);
        if (rc == 0)
            rc = mr_spec_bytes(&fp->out, &fp->row_bytes);
        if (rc == 0)
            rc = check_collate(ld, fp);
        if (rc == 0)
            rc = mr_tails_plan(ld, f);
    }
    ld->windows = ld->chain && rc == 0 && ld->ds->picture >= 0 && mr_transform_has_window(ld->chain, ld->ds->picture);
    if (rc == 0)
        rc = check_picture(ld);
    ld->scratch_bytes = ld->chain && rc == 0 ? mr_transform_scratch_bytes(ld->chain) : 0;
    ld->resident = ld->opts.cache == MR_CACHE_DEVICE;
    if (rc == 0 && ld->resident)
        rc = mr_resident_plan(ld);
    if (rc == 0)
        rc = mr_gpu_plan(ld);
    if (rc == 0)
        rc = mr_gds_plan(ld);
    return rc == 0 ? lay_out_slot(ld) : rc;
}

/* Of a file that is read whole, its size now. One that is missing is the sample's error, later. */
static uint64_t measure_whole(struct mr_loader *ld, int file)
{
    uint64_t bytes;
    bool known = mr_files_size(ld->ds->files, file, &bytes) == 0 && bytes <= MR_WHOLE_LIMIT;
    bytes = mr_round_up(known ? bytes : GUESSED_FILE_BYTES, MR_CACHE_LINE);
    ld->whole_bytes += bytes;
    ld->n_whole++;
    return bytes;
}

/* Bytes that the first sample's extents take: what read-ahead is sized by. */
static int measure_sample(struct mr_loader *ld)
{
    if (!ld->ds->ops->locate)
        return 0;
    struct mr_extent at[MR_MAX_EXTENTS];
    int n = ld->ds->ops->locate(ld->ds, 0, at);
    bool direct = n > 0 && ld->gds && mr_gds_takes(ld, at, n);
    for (int e = 0; e < n; e++) {
        if (direct && (ld->field[at[e].field].gds || mr_files_fd(ld->ds->files, at[e].file) < 0))
            continue;
        ld->sample_reads++;
        uint64_t bytes = at[e].bytes == MR_WHOLE ? measure_whole(ld, at[e].file) : at[e].bytes;
        ld->sample_bytes += mr_round_up(bytes, MR_CACHE_LINE);
    }
    return MR_MIN(n, 0);
}

/* Lazy files: each read in flight has a descriptor, and they are not all for us. */
static uint32_t most_descriptors(const struct mr_files_kinds *kinds)
{
    struct rlimit most;
    if (kinds->n_lazy == 0 || getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur == RLIM_INFINITY)
        return MAX_DEPTH;
    return (uint32_t)MR_MIN(most.rlim_cur / 2, MAX_DEPTH);
}

/* How many runs a worker keeps in flight, and how deep the queue is: at the start, and at most once latencies are known. */
static void plan_ahead(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    const struct mr_loader_opts *o = &ld->opts;
    bool files = kinds->n_path + kinds->n_remote > 0;
    uint64_t each = MR_MAX(ld->sample_bytes, 1), least = ld->run_rows * ld->n_workers;
    uint64_t start = MR_MAX(READ_AHEAD_SAMPLES, 2 * ld->n_slots * o->batch_size);
    if (files)
        start = MR_MAX(MR_MIN(start, READ_AHEAD_BYTES / each), least);
    uint64_t most = MR_MAX(MR_MIN(MOST_AHEAD_SAMPLES, MOST_AHEAD_BYTES / each), start);
    if (o->read_ahead)
        start = most = o->read_ahead;
    ld->runs_per_worker = MR_MAX(1, most / ld->n_workers / ld->run_rows);
    ld->start_runs = MR_MAX(1, start / ld->n_workers / ld->run_rows);
    uint32_t bound = MR_MIN(most_descriptors(kinds), files ? MOST_FILE_DEPTH : MAX_DEPTH);
    uint64_t per_sample = (uint64_t)MR_MAX(ld->sample_reads, 1);
    ld->depth = o->queue_depth ? o->queue_depth : (uint32_t)MR_MIN(bound, most * per_sample);
    ld->start_depth =
        o->queue_depth ? o->queue_depth : (uint32_t)MR_MIN(MR_MIN(files ? FILE_DEPTH : MAX_DEPTH, bound), start);
    ld->depth = MR_MAX(ld->depth, ld->n_workers); /* a worker without a read in flight could not go on */
    ld->start_depth = MR_MIN(MR_MAX(ld->start_depth, ld->n_workers), ld->depth);
}

/* How many samples a run has. */
static void plan_runs(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    const struct mr_loader_opts *o = &ld->opts;
    bool reads = kinds->n_path + kinds->n_null + kinds->n_remote > 0;
    uint64_t share = (o->batch_size + 4ull * ld->n_workers - 1) / (4ull * ld->n_workers);
    uint64_t worthwhile = RUN_BYTES * o->batch_size / ld->slot_bytes;
    uint64_t most = MR_MIN((o->batch_size + ld->n_workers - 1) / ld->n_workers, MAX_RUN_ROWS);
    ld->run_rows = MR_MAX(1, MR_MIN(MR_MAX(share, worthwhile), most));
    if (reads && ld->n_whole == 0 && mr_sampler_is_sequential(ld->sampler) && ld->opts.world == 1) {
        uint64_t joined = JOINED_READ_BYTES / MR_MAX(ld->sample_bytes, 1);
        uint64_t whole = (o->batch_size + ld->n_workers - 1) / ld->n_workers;
        ld->run_rows = MR_MIN(MR_MAX(ld->run_rows, joined), MR_MIN(whole, 4096));
    }
    ld->runs_per_batch = (o->batch_size + ld->run_rows - 1) / ld->run_rows;
    ld->runs_per_worker = ld->start_runs = 1;
    if (reads)
        plan_ahead(ld, kinds);
    if (ld->gds && ld->sample_reads == 0) /* nothing is read ahead of its slot */
        ld->runs_per_worker = ld->start_runs = 1;
}

/* What a loader will hold, by part. */
struct memory_sum {
    uint64_t slot, device, reads, cache, files, rooms, total;
};

static struct memory_sum sum_memory(const struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    struct memory_sum m = {.slot = ld->host_bytes, .files = kinds->memory_bytes};
    m.device = ld->device_info.unified ? 0 : ld->slot_bytes + ld->output_bytes;
    uint64_t ahead = ld->n_workers * ld->runs_per_worker * ld->run_rows;
    m.reads = ahead * ((ld->depth ? ld->sample_bytes : 0) + mr_run_row_bytes(ld));
    m.cache = ld->caching ? kinds->path_bytes - kinds->cached_bytes : 0;
    m.cache += ld->resident_bytes;
    m.rooms = mr_worker_room_bytes(ld) * ld->n_workers;
    m.cache += mr_gpu_device_bytes(ld);
    if (ld->gpu) /* compressed pictures that wait for the device */
        m.reads += ld->n_slots * ld->opts.batch_size * ld->sample_bytes;
    m.total = (m.slot + m.device) * ld->n_slots + m.reads + m.cache + m.rooms + m.files;
    return m;
}

/* The sum against the ceiling: refused now, not half-way through an epoch. Numbers that were chosen here give way first. */
static int check_memory(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    struct memory_sum m = sum_memory(ld, kinds);
    uint64_t most = ld->opts.max_memory;
    while (most && m.total > most) {
        if (ld->opts.read_ahead == 0 && ld->runs_per_worker > 1 && m.reads > m.slot)
            ld->runs_per_worker /= 2;
        else if (ld->opts.prefetch == 0 && ld->n_slots > 2)
            ld->n_slots /= 2;
        else
            return mr_error_set(MR_ELIMIT,
                                "max_memory %llu bytes: needs %llu: %u slots x (host %llu + device %llu) + reads ahead "
                                "%llu + cache %llu + files "
                                "held in memory %llu + workers' own %llu; lower batch_size, prefetch, read_ahead or "
                                "workers, or leave out the "
                                "cache",
                                (unsigned long long)most, (unsigned long long)m.total, ld->n_slots,
                                (unsigned long long)m.slot, (unsigned long long)m.device, (unsigned long long)m.reads,
                                (unsigned long long)m.cache, (unsigned long long)m.files, (unsigned long long)m.rooms);
        m = sum_memory(ld, kinds);
    }
    return 0;
}

/* What the ceiling leaves to the host cache; 0: there is no ceiling. Files of unknown size are not in the sum: without this
 * they would take the ceiling once more. */
static uint64_t room_for_cache(const struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    uint64_t others = sum_memory(ld, kinds).total - kinds->path_bytes; /* what is cached already counts in neither */
    return ld->opts.max_memory ? MR_MAX(ld->opts.max_memory - others, 1) : 0;
}

/* What reads all that gds does not. */
static int other_storage(const struct mr_loader *ld)
{
    int kind = ld->opts.storage == MR_STORAGE_GDS ? MR_STORAGE_AUTO : (int)ld->opts.storage;
    return kind | (ld->opts.direct ? MR_STORAGE_DIRECT : 0);
}

static int open_storage(struct mr_loader *ld)
{
    struct mr_files_kinds kinds;
    mr_files_count(ld->ds->files, &kinds);
    if (!ld->ds->ops->locate) /* it reads by itself */
        kinds.n_path = kinds.n_null = kinds.n_remote = 0;
    ld->caching = ld->opts.cache == MR_CACHE_HOST && kinds.n_path + kinds.n_remote > 0;
    if (ld->resident)
        kinds.n_path = kinds.n_null = kinds.n_remote = 0; /* all has been read when workers start */
    int rc = ld->resident ? 0 : measure_sample(ld);
    if (rc < 0)
        return rc;
    plan_runs(ld, &kinds);
    rc = check_memory(ld, &kinds);
    ld->start_runs = MR_MIN(ld->start_runs, ld->runs_per_worker);
    if (rc == 0 && ld->caching) {
        rc = mr_files_cache(ld->ds->files, room_for_cache(ld, &kinds));
        ld->caching = rc == 0;
    }
    if (rc == 0 && ld->depth > 0)
        rc = mr_storage_open(ld->ds->files, other_storage(ld), ld->depth, ld->n_workers, &ld->storage);
    return rc;
}

static int open_device(struct mr_loader *ld, struct mr_device *device)
{
    if (!device) {
        int rc = mr_device_open("cpu", &ld->own_device);
        if (rc < 0)
            return rc;
    }
    ld->device = device ? device : ld->own_device;
    return mr_device_query(ld->device, &ld->device_info);
}

static int open_order(struct mr_loader *ld, struct mr_sampler *sampler)
{
    if (!sampler) {
        struct mr_sampler_opts so;
        mr_sampler_opts_init(&so);
        int rc = mr_sampler_create(&so, ld->ds->n, &ld->own_sampler);
        if (rc < 0)
            return rc;
    }
    ld->sampler = sampler ? sampler : ld->own_sampler;
    if (ld->sampler->n_samples != ld->ds->n)
        return mr_error_set(MR_EOPTION, "the sampler was made for %llu samples, the data set has %llu",
                            (unsigned long long)ld->sampler->n_samples, (unsigned long long)ld->ds->n);
    struct mr_state state = {0};
    int rc = ld->opts.state ? mr_state_load(ld, ld->opts.state, &state) : 0;
    ld->opts.state = NULL; /* borrowed for this call only */
    ld->n_bad_before = state.bad_samples;
    return rc == 0 ? mr_plan_init(&ld->plan, &ld->opts, ld->sampler->length, state.epoch, state.position) : rc;
}

static int init_locks(struct mr_loader *ld)
{
    pthread_mutex_init(&ld->lock, NULL);
    pthread_mutex_init(&ld->ship_lock, NULL);
    int rc = mr_cond_init(&ld->slot_opened);
    return rc == 0 ? mr_cond_init(&ld->batch_ready) : rc;
}

static int start_workers(struct mr_loader *ld)
{
    ld->worker = aligned_alloc(_Alignof(struct mr_worker), ld->n_workers * sizeof *ld->worker);
    if (!ld->worker)
        return mr_error_nomem("workers", ld->n_workers * sizeof *ld->worker);
    memset(ld->worker, 0, ld->n_workers * sizeof *ld->worker);
    int rc = 0;
    for (uint32_t i = 0; i < ld->n_workers && rc == 0; i++)
        rc = mr_worker_init(&ld->worker[i], ld, i);
    for (; ld->n_started < ld->n_workers && rc == 0; ld->n_started += rc == 0)
        rc =
            mr_thread_start(&ld->worker[ld->n_started].thread, "mr-worker", mr_worker_main, &ld->worker[ld->n_started]);
    return rc;
}

int mr_loader_open(struct mr_dataset *ds, struct mr_sampler *sampler, struct mr_transform *chain,
                   struct mr_device *device, const struct mr_loader_opts *opts, struct mr_loader **out)
{
    uint64_t start = mr_time_ns();
    struct mr_loader_opts full;
    int rc = complete_opts(opts, &full);
    if (rc == 0)
        rc = check_opts(&full);
    if (rc < 0)
        return rc;
    struct mr_loader *ld = aligned_alloc(_Alignof(struct mr_loader), sizeof *ld);
    if (!ld)
        return mr_error_nomem("loader", sizeof *ld);
    memset(ld, 0, sizeof *ld);
    ld->opts = full;
    ld->ds = ds;
    ld->chain = chain;
    ld->open_ns = start;
    ld->n_workers = full.workers ? full.workers : (uint32_t)MR_MIN(mr_cpu_count(), MAX_WORKERS);
    ld->spare_processor = (int64_t)ld->n_workers < mr_cpu_count();
    rc = init_locks(ld);
    if (rc == 0)
        rc = open_device(ld, device);
    if (rc == 0)
        rc = open_order(ld, sampler);
    if (rc == 0)
        rc = plan_fields(ld);
    if (rc == 0)
        rc = open_storage(ld);
    if (rc == 0)
        rc = mr_ring_create(ld);
    if (rc == 0 && ld->gpu)
        rc = mr_gpu_open(ld);
    if (rc == 0)
        mr_gds_memory(ld);
    if (rc == 0 && ld->resident)
        rc = mr_resident_fill(ld);
    if (rc == 0)
        rc = start_workers(ld);
    if (rc < 0) {
        mr_loader_close(ld);
        return rc;
    }
    *out = ld;
    return 0;
}

static void stop_workers(struct mr_loader *ld)
{
    pthread_mutex_lock(&ld->lock);
    atomic_store(&ld->stop, true);
    pthread_cond_broadcast(&ld->slot_opened);
    pthread_mutex_unlock(&ld->lock);
    for (uint32_t i = 0; i < ld->n_started; i++)
        pthread_join(ld->worker[i].thread, NULL);
    for (uint32_t i = 0; ld->worker && i < ld->n_workers; i++)
        if (ld->worker[i].ld)
            mr_worker_free(&ld->worker[i]);
    free(ld->worker);
}

void mr_loader_close(struct mr_loader *ld)
{
    if (!ld)
        return;
    struct mr_error_kept kept; /* closing after a failed open must not lose its text */
    mr_error_keep(0, &kept);
    stop_workers(ld);
    mr_gds_free(ld);
    if (ld->slot)
        mr_ring_destroy(ld);
    mr_gpu_close(ld);
    free(ld->gpu);
    mr_resident_free(ld);
    if (ld->storage)
        mr_storage_close(ld->storage);
    if (ld->caching)
        mr_files_uncache(ld->ds->files);
    if (ld->holds_chain)
        mr_transform_let_go(ld->chain);
    if (ld->own_sampler)
        mr_sampler_destroy(ld->own_sampler);
    if (ld->own_device)
        mr_device_close(ld->own_device);
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(ld->field[f].tail);
    pthread_cond_destroy(&ld->slot_opened);
    pthread_cond_destroy(&ld->batch_ready);
    pthread_mutex_destroy(&ld->lock);
    pthread_mutex_destroy(&ld->ship_lock);
    free(ld);
    mr_error_put(&kept);
}

uint64_t mr_loader_batches(const struct mr_loader *ld)
{
    return ld->plan.n_batches;
}

uint64_t mr_loader_samples(const struct mr_loader *ld)
{
    uint64_t rows = mr_shard_length(&ld->plan.shard);
    return ld->plan.drop_last ? rows / ld->plan.batch_size * ld->plan.batch_size : rows;
}

const struct mr_spec *mr_loader_field(const struct mr_loader *ld, int field)
{
    return field >= 0 && field < ld->n_fields ? &ld->field[field].out : NULL;
}
