/* Opening and closing a loader: its parts one after the other. */
#include "device/host.h"
#include "loader/engine.h"
#include "loader/gather.h"
#include "loader/sandbox.h"
#include "loader/shared.h"
#include "transform/transform.h"

#include <millrace/system.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    if (!ld->backends.reads)
        kinds.n_path = kinds.n_null = kinds.n_remote = 0; /* all has been read when workers start */
    mr_interruptible(1);                                  /* it may read */
    int rc = mr_sizes_plan(ld, &kinds);
    mr_interruptible(0);
    if (rc < 0) {
        ld->caching = false; /* nothing to release */
        return rc;
    }
    if (ld->caching)
        rc = mr_files_cache(ld->ds->files, mr_sizes_cache_limit(ld, &kinds));
    if (rc < 0) {
        ld->caching = false;
        return rc;
    }
    if (ld->sizes.depth == 0)
        return 0;
    /* Workers that begin later share what those at the start have. */
    rc = mr_storage_open(ld->ds->files, other_storage(ld), ld->sizes.reader_depth * ld->workers.n,
                         ld->workers.n, &ld->storage);
    if (rc < 0 || ld->sizes.merged_bytes == 0)
        return rc;
    return mr_storage_keep_ranges(ld->storage, ld->sizes.merged_bytes);
}

static int open_device(struct mr_loader *ld, struct mr_device *device)
{
    if (!device) {
        int rc = mr_device_open("cpu", &ld->own_device);
        if (rc < 0)
            return rc;
    }
    ld->device = device ? device : ld->own_device;
    ld->device_info.size = sizeof ld->device_info;
    int rc = mr_device_query(ld->device, &ld->device_info);
    ld->ships = !ld->device_info.unified && !ld->opts.on_host;
    return rc;
}

/* A batch sampler says how large batches are. */
static int take_batches(struct mr_loader *ld)
{
    if (ld->opts.bad == MR_BAD_REPLACE)
        return mr_error_set(MR_EOPTION,
                            "bad=replace: with a batch sampler there is no next position whose "
                            "sample could replace a bad one: use fail or skip");
    ld->opts.batch_size = ld->sampler->max_batch;
    ld->layout.items = true;
    return 0;
}

static int open_order(struct mr_loader *ld, struct mr_sampler *sampler)
{
    ld->sampler = sampler;
    int rc = mr_source_check(ld);
    if (rc < 0)
        return rc;
    if (!sampler) {
        struct mr_sampler_opts so;
        mr_sampler_opts_init(&so);
        rc = mr_sampler_create(&so, ld->ds->n, &ld->own_sampler);
        if (rc < 0)
            return rc;
    }
    ld->sampler = sampler ? sampler : ld->own_sampler;
    if (ld->sampler->n_samples != ld->ds->n)
        return mr_error_set(
            MR_EOPTION, "the sampler was made for %llu samples, the data set has %llu",
            (unsigned long long)ld->sampler->n_samples, (unsigned long long)ld->ds->n);
    rc = ld->sampler->max_batch > 0 ? take_batches(ld) : 0;
    if (rc < 0)
        return rc;
    struct mr_state state = {0};
    rc = ld->opts.state ? mr_state_load(ld, ld->opts.state, &state) : 0;
    ld->opts.state = NULL; /* borrowed for this call only */
    ld->quarantine.n_bad_before = state.bad_samples;
    ld->handout.after_epoch = state.epoch;
    ld->handout.after_position = state.position;
    if (rc < 0)
        return rc;
    rc = ld->sampler->max_batch > 0
             ? mr_plan_init_batches(&ld->plan, &ld->opts, ld->sampler, state.epoch, state.position)
             : mr_plan_init(&ld->plan, &ld->opts, ld->sampler->length, state.epoch, state.position);
    if (rc < 0) {
        free(state.again);
        return rc;
    }
    mr_plan_add_again(&ld->plan, state.again, state.n_again);
    ld->handout.new_epoch = state.position == 0 && state.n_again == 0;
    mr_ring_end(&ld->ring, ld->plan.total);
    return mr_source_create(ld);
}

/* Slots and the events of their copies. All that are made now open. */
static int create_ring(struct mr_loader *ld)
{
    bool unified = ld->device_info.unified;
    ld->ring.device = ld->device;
    ld->ring.host_kind = unified || !ld->opts.pin ? MR_PAGEABLE : MR_PINNED;
    ld->past_caches = ld->ring.host_kind == MR_PINNED;
    int rc = mr_loader_share(ld);
    if (rc < 0)
        return rc;
    ld->ring.awaits_release = ld->backends.writes_device || ld->opts.on_host;
    ld->ring.n_places = ld->ring.n_slots;
    if (!ld->opts.in_order)
        ld->ring.n_places = MR_MAX(MR_PLACES_A_SLOT * ld->ring.n_slots, MR_MIN_PLACES);
    rc = mr_ring_create(&ld->ring, &ld->layout, ld->opts.batch_size, ld->ships);
    if (rc < 0)
        return rc;
    rc = mr_opening_create(ld);
    if (rc < 0)
        return rc;
    rc = mr_hold_create(ld);
    if (rc < 0)
        return rc;
    rc = unified ? 0 : mr_ship_create(ld);
    if (rc < 0)
        return rc;
    mr_knobs_start(ld);
    for (uint32_t i = 0; i < ld->ring.n_first; i++)
        if (ld->opts.in_order)
            mr_open_batch(ld, mr_ring_slot(&ld->ring, i), i);
        else
            mr_open_next(ld, mr_ring_slot(&ld->ring, i));
    return 0;
}

/* Before workers start, who inherit what this thread may use. */
static void find_near(struct mr_loader *ld)
{
    struct mr_workers *w = &ld->workers;
    const struct mr_device *dev = ld->device;
    if (ld->opts.near_workers == 0 || !dev->ops->near)
        return;
    const struct mr_host_near *near = dev->ops->near(dev);
    uint64_t n = (uint64_t)mr_host_near_cpus(near, &w->near);
    w->n_near = (uint32_t)MR_MIN(n, ld->opts.near_workers);
    if (w->n_near > 0)
        mr_log(MR_LOG_INFO, "%u of %u workers run on processors %.200s, of memory node %d, near %s",
               MR_MIN(w->n_near, w->n), w->n, near->cpus, near->node, ld->device_info.name);
}

static int start_workers(struct mr_loader *ld)
{
    find_near(ld);
    ld->workers.worker =
        aligned_alloc(_Alignof(struct mr_worker), ld->workers.n * sizeof *ld->workers.worker);
    if (!ld->workers.worker)
        return mr_error_nomem("workers", ld->workers.n * sizeof *ld->workers.worker);
    memset(ld->workers.worker, 0, ld->workers.n * sizeof *ld->workers.worker);
    for (uint32_t i = 0; i < ld->workers.n; i++) {
        int rc = mr_worker_init(&ld->workers.worker[i], ld, i);
        if (rc < 0)
            return rc;
    }
    for (; ld->workers.n_started < ld->workers.n; ld->workers.n_started++) {
        struct mr_worker *w = &ld->workers.worker[ld->workers.n_started];
        int rc = mr_thread_start(&w->thread, "mr-worker", mr_worker_main, w);
        if (rc < 0)
            return rc;
    }
    return 0;
}

#define LONG_NS 1000000000ull

/* Waits for a worker's end. Returns whether that takes so long that someone should be told. */
static bool join_soon(const struct mr_worker *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_NS / 1000000000;
    return pthread_timedjoin_np(w->thread, NULL, &until) != 0;
}

/* A thread in a callback can only be waited for. The log says which, once. */
static void join_workers(struct mr_loader *ld)
{
    bool told = false;
    for (uint32_t i = 0; i < ld->workers.n_started; i++) {
        const struct mr_worker *w = &ld->workers.worker[i];
        if (!told && !join_soon(w))
            continue;
        if (!told)
            mr_watch_closing(ld, w);
        told = true;
        pthread_join(w->thread, NULL);
    }
}

static void stop_workers(struct mr_loader *ld)
{
    mr_ring_stop(&ld->ring);
    mr_knobs_stop(ld);
    mr_source_stop(ld);
    mr_budget_stop(&ld->share);
    join_workers(ld);
    for (uint32_t i = 0; ld->workers.worker && i < ld->workers.n; i++)
        if (ld->workers.worker[i].ld)
            mr_worker_free(&ld->workers.worker[i]);
    free(ld->workers.worker);
}

static void free_parts(struct mr_loader *ld)
{
    struct mr_error_kept kept; /* closing after a failed open must not lose its text */
    mr_error_keep(0, &kept);
    stop_workers(ld);
    mr_sandbox_close(ld);
    mr_source_destroy(ld);
    mr_leases_detach(ld);
    mr_ship_wait(ld);
    mr_backends_close(ld);
    mr_bad_free(ld);
    mr_ship_destroy(ld);
    mr_leases_close(ld);
    mr_opening_destroy(ld);
    mr_ring_destroy(&ld->ring);
    mr_hold_destroy(ld);
    if (ld->storage)
        mr_storage_close(ld->storage);
    if (ld->caching)
        mr_files_uncache(ld->ds->files);
    if (ld->chain_acquired)
        mr_transform_release(ld->chain);
    if (ld->own_sampler)
        mr_sampler_destroy(ld->own_sampler);
    if (ld->own_device)
        mr_device_close(ld->own_device);
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(ld->layout.field[f].device_part);
    mr_shared_memory_release(ld->own_shared);
    mr_plan_end(&ld->plan);
    pthread_mutex_destroy(&ld->late.lock);
    mr_gate_destroy(&ld->gate);
    mr_consumers_destroy(&ld->consumers);
    mr_knobs_destroy(&ld->knobs);
    mr_budget_leave(&ld->share);
    free(ld);
    mr_error_put(&kept);
}

static uint32_t count_workers(const struct mr_loader *ld)
{
    uint32_t cpus = (uint32_t)MR_MIN(mr_cpu_count(), MR_MAX_WORKERS);
    if (ld->opts.workers > 0)
        return ld->opts.workers;
    if (ld->ds->makers > 0) /* one waits for rows while the other hands out what comes next */
        cpus = MR_MIN(2 * ld->ds->makers, MR_MAX_WORKERS);
    return ld->share.budget ? mr_budget_workers(&ld->share, MR_MAX_WORKERS) : cpus;
}

/* Threads that only hand out what processes make: each that sleeps has to be woken. */
#define MAKERS_A_THREAD 8
static void use_few_workers(struct mr_loader *ld)
{
    uint32_t enough = MR_MAX((ld->ds->makers + MAKERS_A_THREAD - 1) / MAKERS_A_THREAD, 2);
    ld->workers.n = MR_MIN(ld->workers.n, enough);
    atomic_store(&ld->workers.n_active, ld->workers.n);
}

/* Each part needs those before it. free_parts() undoes what there is. */
static int open_parts(struct mr_loader *ld, struct mr_sampler *sampler, struct mr_device *device)
{
    int rc = mr_ring_init(&ld->ring);
    if (rc < 0)
        return rc;
    rc = mr_budget_join(ld->opts.budget, &ld->share, mr_dataset_text(ld->ds));
    if (rc < 0)
        return rc;
    ld->workers.n = mr_knobs_most_workers(ld, count_workers(ld));
    ld->handout.spare_processor =
        (int64_t)mr_budget_workers(&ld->share, mr_knobs_workers(ld)) < mr_cpu_count();
    rc = open_device(ld, device);
    if (rc < 0)
        return rc;
    rc = mr_leases_create(ld);
    if (rc < 0)
        return rc;
    rc = ld->opts.collate_fn ? mr_user_collate_plan(ld) : 0;
    if (rc < 0)
        return rc;
    rc = open_order(ld, sampler);
    if (rc < 0)
        return rc;
    rc = mr_fields_plan(ld);
    if (rc < 0)
        return rc;
    rc = mr_backends_plan(ld);
    if (rc < 0)
        return rc;
    rc = mr_layout_make(ld);
    if (rc < 0)
        return rc;
    rc = ld->opts.sandbox ? mr_sandbox_open(ld) : 0;
    if (rc < 0)
        return rc;
    ld->gets_runs = mr_get_plan(ld);
    ld->posts = mr_posted_plan(ld);
    if (ld->posts)
        use_few_workers(ld);
    rc = open_storage(ld);
    if (rc < 0)
        return rc;
    rc = create_ring(ld);
    if (rc < 0)
        return rc;
    ld->gathers = mr_gather_plan(ld);
    rc = mr_backends_open(ld);
    return rc < 0 ? rc : start_workers(ld);
}

int mr_loader_open(struct mr_dataset *ds, struct mr_sampler *sampler, struct mr_transform *chain,
                   struct mr_device *device, const struct mr_loader_opts *opts,
                   struct mr_loader **out)
{
    if (!ds || !out)
        return mr_error_null("mr_loader_open", "a data set and a place for the result");
    uint64_t start = mr_time_ns();
    struct mr_loader_opts full;
    int rc = mr_loader_opts_read(opts, &full);
    if (rc < 0)
        return rc;
    struct mr_loader *ld = aligned_alloc(_Alignof(struct mr_loader), sizeof *ld);
    if (!ld)
        return mr_error_nomem("loader", sizeof *ld);
    memset(ld, 0, sizeof *ld);
    ld->opts = full;
    ld->ds = ds;
    ld->chain = chain;
    ld->stats.open_ns = start;
    pthread_mutex_init(&ld->ship.lock, NULL);
    mr_knobs_init(&ld->knobs);
    pthread_mutex_init(&ld->late.lock, NULL);
    mr_gate_init(&ld->gate);
    rc = mr_consumers_init(&ld->consumers);
    if (rc == 0)
        rc = open_parts(ld, sampler, device);
    if (rc < 0) {
        free_parts(ld);
        return rc;
    }
    *out = ld;
    return 0;
}

void mr_loader_close(struct mr_loader *ld)
{
    if (!ld || !mr_process_is(&ld->gate.process)) /* a forked child: nothing here is its own */
        return;
    if (mr_gate_close(ld) < 0)
        mr_log(MR_LOG_WARNING, "mr_loader_close: nothing was closed: %s", mr_last_error());
    else
        free_parts(ld);
}

uint64_t mr_loader_batches(const struct mr_loader *ld)
{
    if (!ld)
        return 0;
    return ld->plan.n_batches;
}

uint64_t mr_loader_samples(const struct mr_loader *ld)
{
    if (!ld)
        return 0;
    if (ld->source)
        return MR_UNKNOWN;
    uint64_t rows = mr_shard_length(&ld->plan.shard);
    if (ld->plan.finds)
        return 0;
    return ld->plan.drop_last ? rows / ld->plan.batch_size * ld->plan.batch_size : rows;
}

const struct mr_spec *mr_loader_field(const struct mr_loader *ld, int field)
{
    if (!ld)
        return NULL;
    const struct mr_layout *layout = &ld->layout;
    int added = mr_layout_first_added(layout);
    if (field < 0 || field >= mr_layout_n_out(layout))
        return NULL;
    return field < added ? &layout->field[field].out : &layout->added[field - added].spec;
}
