/* Runs, how far ahead is read, and the sum of all memory against the ceiling (max_memory). */
#include "loader/engine.h"

#include <stdio.h>
#include <sys/resource.h>

#define MAX_RUN_ROWS       32
#define MAX_MADE_ROWS      128 /* by processes: each run wakes a thread and a process */
#define MAX_PLACED_ROWS    512 /* if they write into the slots themselves: no thread copies */
#define RUN_BYTES          (32u << 10)  /* a run writes at least this: claiming it costs little */
#define JOINED_READ_BYTES  (256u << 10) /* neighbours in sequential order are read together */
#define READ_AHEAD_SAMPLES 1024
#define READ_AHEAD_BYTES   (64u << 20)
#define MOST_AHEAD_SAMPLES 65536        /* 50 ms at 1.3 million samples/s */
#define MOST_AHEAD_BYTES   (256u << 20) /* 50 ms at 5 GB/s */
#define FILE_DEPTH         256
#define REMOTE_DEPTH       64 /* at the start: more than a slow link carries only fill its queue */
#define REMOTE_BYTES       (4u << 20) /* at the start: more overflows a slow link's queue */
#define REMOTE_LEAST       16
#define MOST_FILE_DEPTH    4096
#define MOST_HELD          4 /* times what is used at once: by workers that have not begun, too */
#define LEAST_MERGED_BYTES (4u << 20)   /* for ranges of blocks: with less there are none */
#define GUESSED_FILE_BYTES (128u << 10) /* of a first file that cannot be looked at */

/* Of a file that is read whole, its size now. One that is missing is the sample's error, later. */
static uint64_t measure_whole(struct mr_loader *ld, int file)
{
    uint64_t bytes;
    bool known = mr_files_size(ld->ds->files, file, &bytes) == 0 && bytes <= MR_WHOLE_LIMIT;
    bytes = mr_round_up(known ? bytes : GUESSED_FILE_BYTES, MR_CACHE_LINE);
    ld->sizes.whole_bytes += bytes;
    ld->sizes.n_whole++;
    return bytes;
}

/* The first sample that can be located: those before it are bad ones, which the policy decides
 * about when it is their turn. [out] index, at. Returns how many extents it has, or the error. */
#define FIRST_TRIES 64
static int locate_first(const struct mr_loader *ld, uint64_t *index,
                        struct mr_extent at[MR_MAX_EXTENTS])
{
    int n = 0;
    for (*index = 0; *index < MR_MIN(ld->ds->n, FIRST_TRIES); ++*index) {
        n = ld->ds->ops->locate(ld->ds, *index, at);
        if (n >= 0)
            break;
    }
    if (n < 0) { /* none of them: the first one's error */
        *index = 0;
        n = ld->ds->ops->locate(ld->ds, 0, at);
    }
    return n;
}

/* Bytes that the first sample's extents take: what read-ahead is sized by. */
static int measure_sample(struct mr_loader *ld)
{
    if (!ld->ds->ops->locate)
        return 0;
    struct mr_extent at[MR_MAX_EXTENTS];
    uint64_t index;
    int n = locate_first(ld, &index, at);
    int maker = n > 0 ? mr_backends_choose(ld, 0, 0, index, at, n) : 0;
    bool direct = ld->backends.used[maker]->ops->writes_device;
    for (int e = 0; e < n; e++) {
        if (direct &&
            (ld->layout.field[at[e].field].direct || mr_files_fd(ld->ds->files, at[e].file) < 0))
            continue;
        ld->sizes.sample_reads++;
        uint64_t bytes = at[e].bytes == MR_WHOLE ? measure_whole(ld, at[e].file) : at[e].bytes;
        ld->sizes.sample_bytes += mr_round_up(bytes, MR_CACHE_LINE);
    }
    return MR_MIN(n, 0);
}

/* Lazy files: each read in flight has a descriptor, and they are not all for us. */
static uint32_t most_descriptors(const struct mr_files_kinds *kinds)
{
    struct rlimit most;
    if (kinds->n_lazy == 0 || getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur == RLIM_INFINITY)
        return MR_MAX_DEPTH;
    return (uint32_t)MR_MIN(most.rlim_cur / 2, MR_MAX_DEPTH);
}

/* How many runs a worker keeps in flight, and how deep the queue is: at the start, and at most once
 * latencies are known. */
static void plan_ahead(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    const struct mr_loader_opts *o = &ld->opts;
    bool files = kinds->n_path + kinds->n_remote > 0;
    uint64_t each = MR_MAX(ld->sizes.sample_bytes, 1);
    uint32_t n = mr_knobs_workers(ld); /* those that begin; more of them have less each */
    uint64_t least = ld->sizes.run_rows * n;
    uint64_t start = MR_MAX(READ_AHEAD_SAMPLES, 2 * ld->ring.n_slots * o->batch_size);
    if (files)
        start = MR_MAX(MR_MIN(start, READ_AHEAD_BYTES / each), least);
    uint64_t most = MR_MAX(MR_MIN(MOST_AHEAD_SAMPLES, MOST_AHEAD_BYTES / each), start);
    uint64_t held = MOST_HELD * MR_MAX(most, o->read_ahead);
    if (o->read_ahead)
        start = most = o->read_ahead;
    ld->sizes.runs = MR_MAX(1, most / ld->sizes.run_rows);
    ld->sizes.runs_per_worker =
        MR_MAX(1, MR_MIN(most / n, held / ld->workers.n) / ld->sizes.run_rows);
    ld->sizes.start_runs = MR_MAX(1, start / n / ld->sizes.run_rows);
    ld->sizes.remote = kinds->n_remote > 0;
    uint64_t remote = MR_MIN(MR_MAX(REMOTE_BYTES / each, REMOTE_LEAST), REMOTE_DEPTH);
    uint32_t first = ld->sizes.remote ? (uint32_t)remote : files ? FILE_DEPTH : MR_MAX_DEPTH;
    uint32_t bound = MR_MIN(most_descriptors(kinds), files ? MOST_FILE_DEPTH : MR_MAX_DEPTH);
    uint64_t per_sample = (uint64_t)MR_MAX(ld->sizes.sample_reads, 1);
    ld->sizes.depth = o->queue_depth ? o->queue_depth : (uint32_t)MR_MIN(bound, most * per_sample);
    ld->sizes.start_depth =
        o->queue_depth ? o->queue_depth : (uint32_t)MR_MIN(MR_MIN(first, bound), start);
    /* A worker without a read in flight could not go on. */
    ld->sizes.depth = MR_MAX(ld->sizes.depth, n);
    ld->sizes.start_depth = MR_MIN(MR_MAX(ld->sizes.start_depth, n), ld->sizes.depth);
    uint64_t reads = MOST_HELD * (uint64_t)MR_MAX(ld->sizes.depth, MOST_FILE_DEPTH);
    ld->sizes.reader_depth =
        (uint32_t)MR_MAX(1, MR_MIN(ld->sizes.depth / n, reads / ld->workers.n));
}

/* How many samples a run has. */
static void plan_runs(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    const struct mr_loader_opts *o = &ld->opts;
    bool reads = kinds->n_path + kinds->n_null + kinds->n_remote > 0;
    uint64_t share = (o->batch_size + 4ull * ld->workers.n - 1) / (4ull * ld->workers.n);
    uint64_t worthwhile = RUN_BYTES * o->batch_size / ld->layout.bound_bytes;
    uint64_t most = MR_MIN((o->batch_size + ld->workers.n - 1) / ld->workers.n, MAX_RUN_ROWS);
    if (ld->ds->makers > 0) /* the data set divides a run among them */
        share = most = MR_MIN(o->batch_size, ld->posts ? MAX_PLACED_ROWS : MAX_MADE_ROWS);
    ld->sizes.run_rows = MR_MAX(1, MR_MIN(MR_MAX(share, worthwhile), most));
    if (reads && ld->sizes.n_whole == 0 && mr_sampler_is_sequential(ld->sampler) &&
        ld->opts.world == 1) {
        uint64_t joined = JOINED_READ_BYTES / MR_MAX(ld->sizes.sample_bytes, 1);
        uint64_t whole = (o->batch_size + ld->workers.n - 1) / ld->workers.n;
        ld->sizes.run_rows = MR_MIN(MR_MAX(ld->sizes.run_rows, joined), MR_MIN(whole, 4096));
    }
    ld->sizes.runs_per_batch = (o->batch_size + ld->sizes.run_rows - 1) / ld->sizes.run_rows;
    ld->sizes.runs_per_worker = ld->sizes.start_runs = ld->sizes.reader_depth = 1;
    if (ld->posts) /* all that slots are open for */
        ld->sizes.runs_per_worker = ld->sizes.start_runs =
            (ld->ring.n_slots * ld->sizes.runs_per_batch + ld->workers.n - 1) / ld->workers.n;
    ld->sizes.runs = ld->workers.n * ld->sizes.runs_per_worker;
    if (reads)
        plan_ahead(ld, kinds);
    if (ld->backends.writes_device &&
        ld->sizes.sample_reads == 0) /* nothing is read ahead of its slot */
        ld->sizes.runs_per_worker = ld->sizes.start_runs = 1;
}

/* What a loader will hold, by part. */
struct memory_sum {
    uint64_t slot, device, grown, reads, cache, files, set, workers, total;
};

/* n_slots: slots that there are or shall be. */
static struct memory_sum sum_memory(const struct mr_loader *ld, const struct mr_files_kinds *kinds,
                                    uint64_t n_slots)
{
    const struct mr_grown *grown = &ld->grown;
    struct memory_sum m = {.slot = ld->layout.host_bytes + ld->layout.rows_bytes,
                           .files = kinds->memory_bytes,
                           .set = mr_dataset_memory(ld->ds, ld->workers.n)};
    m.grown = mr_counted(&grown->host_bytes) + mr_counted(&grown->device_bytes) +
              mr_counted(&grown->rows_bytes);
    m.device = ld->ships ? ld->layout.slot_bytes + ld->layout.output_bytes : 0;
    uint64_t ahead = ld->workers.n * ld->sizes.runs_per_worker * ld->sizes.run_rows;
    m.reads = ahead * ((ld->sizes.depth ? ld->sizes.sample_bytes : 0) + mr_run_row_bytes(ld));
    m.cache = ld->caching ? kinds->path_bytes - kinds->cached_bytes : 0;
    m.workers = mr_worker_bytes(ld) * ld->workers.n;
    uint64_t device, host;
    mr_backends_bytes(ld, n_slots, &device, &host);
    m.cache += device;
    m.reads += host + mr_source_bytes(ld) + ld->sizes.merged_bytes;
    m.reads += ld->sizes.merged_bytes > 0 ? mr_merge_bytes(ld) : 0;
    m.total = (m.slot + m.device) * n_slots + m.grown + m.reads + m.cache + m.workers + m.files;
    m.total += MR_MIN(m.set, UINT64_MAX - m.total);
    return m;
}

/* What is reserved in the budget, where slots that grow are counted apart. Files of unknown size
 * may fill the cache up to its own ceiling. */
static uint64_t claimed(const struct mr_loader *ld, const struct mr_files_kinds *kinds,
                        const struct memory_sum *m)
{
    uint64_t total = m->total - m->grown;
    return ld->caching && kinds->n_lazy > 0 ? MR_MAX(total, ld->opts.max_memory) : total;
}

static int over_ceiling(struct mr_loader *ld, const struct memory_sum *m, uint64_t claim)
{
    char parts[320];
    snprintf(parts, sizeof parts,
             "%u slots x (host %llu + device %llu) + reads ahead %llu + cache %llu + files held in "
             "memory %llu + indexes or row groups of the data set %llu + workers' own %llu",
             ld->ring.n_slots, (unsigned long long)m->slot, (unsigned long long)m->device,
             (unsigned long long)m->reads, (unsigned long long)m->cache,
             (unsigned long long)m->files, (unsigned long long)m->set,
             (unsigned long long)m->workers);
    if (ld->opts.max_memory == 0 || m->total <= ld->opts.max_memory)
        return mr_budget_over(&ld->share, claim, parts);
    const char *help = m->files > ld->opts.max_memory
                           ? "packed files are held in memory unpacked: unpack them on disk"
                       : m->set > ld->opts.max_memory
                           ? "the data set alone keeps more: read a part of it, or lower its "
                             "memory option"
                           : "lower batch_size, prefetch, read_ahead or workers, or leave out the "
                             "cache";
    return mr_error_set(MR_ELIMIT, "max_memory %llu bytes: needs %llu: %s; %s",
                        (unsigned long long)ld->opts.max_memory, (unsigned long long)m->total,
                        parts, help);
}

/* In the budget; slots that are made later are reserved then. */
static bool reserve_first(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    struct memory_sum m = sum_memory(ld, kinds, mr_knobs_first_slots(ld));
    return mr_budget_reserve(&ld->share, claimed(ld, kinds, &m));
}

/* The sum against the ceilings, its own and the budget's: refused now, not half-way through an
 * epoch. Numbers that were chosen here give way first. */
static int check_memory(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    struct memory_sum m = sum_memory(ld, kinds, ld->ring.n_slots);
    uint64_t most = ld->opts.max_memory;
    while ((most && m.total > most) || !reserve_first(ld, kinds)) {
        if (ld->knobs.grows && ld->opts.max_prefetch == 0 &&
            ld->ring.n_slots > ld->knobs.first_prefetch)
            ld->ring.n_slots = ld->knobs.first_prefetch;
        else if (ld->sizes.merged_bytes > 0)
            ld->sizes.merged_bytes =
                ld->sizes.merged_bytes < LEAST_MERGED_BYTES ? 0 : ld->sizes.merged_bytes / 4 * 3;
        else if (ld->opts.read_ahead == 0 && ld->sizes.runs_per_worker > 1 && m.reads > m.slot)
            ld->sizes.runs_per_worker /= 2;
        else if (ld->opts.prefetch == 0 && ld->ring.n_slots > 2)
            ld->ring.n_slots /= 2;
        else
            return over_ceiling(ld, &m, claimed(ld, kinds, &m));
        m = sum_memory(ld, kinds, ld->ring.n_slots);
    }
    return 0;
}

int mr_sizes_plan(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    int rc = ld->backends.reads ? measure_sample(ld) : 0;
    if (rc < 0)
        return rc;
    plan_runs(ld, kinds);
    mr_merge_plan(ld, kinds);
    rc = check_memory(ld, kinds);
    uint64_t n = ld->ring.n_first = mr_knobs_first_slots(ld);
    ld->grown.planned_bytes = sum_memory(ld, kinds, n).total;
    ld->grown.slot_bytes = sum_memory(ld, kinds, n + 1).total - ld->grown.planned_bytes;
    ld->sizes.start_runs = MR_MIN(ld->sizes.start_runs, ld->sizes.runs_per_worker);
    ld->sizes.runs = MR_MIN(ld->sizes.runs, ld->sizes.runs_per_worker * ld->workers.n);
    return rc;
}

int mr_sizes_check_slot(struct mr_loader *ld)
{
    struct mr_files_kinds kinds;
    mr_files_count(ld->ds->files, &kinds);
    uint64_t n = atomic_load(&ld->ring.n_all) + 1ull;
    struct memory_sum m = sum_memory(ld, &kinds, n);
    uint64_t claim = claimed(ld, &kinds, &m);
    char parts[64];
    snprintf(parts, sizeof parts, "%llu slots and all else", (unsigned long long)n);
    if (ld->opts.max_memory && m.total > ld->opts.max_memory)
        return mr_error_set(MR_ELIMIT, "max_memory %llu bytes: %s need %llu",
                            (unsigned long long)ld->opts.max_memory, parts,
                            (unsigned long long)m.total);
    return mr_budget_reserve(&ld->share, claim) ? 0 : mr_budget_over(&ld->share, claim, parts);
}

/* Less than is reserved always fits. */
void mr_sizes_drop_slot(struct mr_loader *ld)
{
    struct mr_files_kinds kinds;
    mr_files_count(ld->ds->files, &kinds);
    struct memory_sum m = sum_memory(ld, &kinds, atomic_load(&ld->ring.n_all));
    (void)mr_budget_reserve(&ld->share, claimed(ld, &kinds, &m));
}

/* Without a ceiling of its own, a loader in a budget caches what it has reserved. */
uint64_t mr_sizes_cache_limit(const struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    uint64_t n = ld->opts.max_memory ? ld->ring.n_slots : ld->ring.n_first;
    uint64_t others = sum_memory(ld, kinds, n).total -
                      kinds->path_bytes; /* what is cached already counts in neither */
    uint64_t most = ld->opts.max_memory ? ld->opts.max_memory : mr_budget_reserved(&ld->share);
    return most ? MR_MAX(most - MR_MIN(others, most), 1) : 0;
}
