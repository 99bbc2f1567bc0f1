/* A pipeline's stages: opened and closed. */
#include "train/stages.h"

#include "device/device.h"

#include <inttypes.h>

#define MICRO_MOST 1024

struct mr_train_leaves *mr_train_parts(const struct mr_trainer *t)
{
    return t->pipeline ? &t->pipeline->leaves : t->leaves;
}

static int check(const struct mr_trainer *t, uint32_t micro)
{
    const struct mr_trainer_opts *o = &t->opts;
    if (o->n_devices >= MR_TRAIN_STAGES || (o->n_devices && !o->devices))
        return mr_error_set(MR_EOPTION, "trainer: a net over %u devices: expected at most %d",
                            o->n_devices + 1, MR_TRAIN_STAGES);
    if (o->split_ranks && (o->n_devices || o->shard_optimizer))
        return mr_error_set(MR_EOPTION,
                            "trainer: ranks as stages with %s: expected one device for each rank, "
                            "which has its stage's state alone",
                            o->n_devices ? "several devices" : "an optimizer in parts");
    if (o->comm && !o->split_ranks)
        return mr_error_set(
            MR_EUNSUPPORTED,
            "trainer: a net over several devices can't train on several ranks: give each "
            "rank one device (or a stage), or run one process");
    if (!mr_comm_is_power_of_two(micro) || micro > MICRO_MOST)
        return mr_error_set(MR_EOPTION, "trainer: %u micro-batches: expected a power of two, 1..%d",
                            micro, MICRO_MOST);
    if (o->leaves && o->leaves != micro)
        return mr_error_set(
            MR_EOPTION,
            "trainer: %u leaves and %u micro-batches: micro-batches are the leaves; give "
            "one of them, or equal numbers",
            o->leaves, micro);
    if (o->batch_size % micro)
        return mr_error_set(MR_EOPTION,
                            "trainer: a batch of %" PRIu64 " samples in %u micro-batches: expected "
                            "a batch size that %u divides",
                            o->batch_size, micro, micro);
    if ((uint32_t)o->pipeline > MR_PIPELINE_GPIPE)
        return mr_error_set(MR_EOPTION, "trainer: pipeline %d: no such", (int)o->pipeline);
    return 0;
}

/* Are all devices of one kind? */
static int take_devices(struct mr_trainer *t)
{
    for (uint32_t i = 0; i < t->opts.n_devices; i++) {
        struct mr_device *dev = t->opts.devices[i];
        int rc = mr_device_reach(t->dev, dev);
        if (rc < 0)
            return rc;
        t->stage[i + 1].dev = dev;
    }
    t->n_stages = t->opts.n_devices + 1;
    return 0;
}

/* Ranks as stages; one rank alone has the whole net. */
static int take_ranks(const struct mr_trainer *t, struct mr_train_pipeline *p)
{
    struct mr_comm_stats stats = {.size = sizeof stats, .world = 1};
    int rc = t->opts.comm ? mr_comm_stats(t->opts.comm, &stats) : 0;
    if (rc < 0)
        return rc;
    if (stats.world > MR_TRAIN_STAGES)
        return mr_error_set(MR_EOPTION, "trainer: %u ranks as stages: expected at most %d",
                            stats.world, MR_TRAIN_STAGES);
    p->of = stats.world;
    p->at = stats.rank;
    if (stats.world > 1)
        p->comm = p->leaves.comm = t->opts.comm;
    return 0;
}

int mr_train_pipeline_open(struct mr_trainer *t)
{
    struct mr_trainer_opts *o = &t->opts;
    if (o->n_devices == 0 && o->micro_batches == 0 && !o->split_ranks)
        return 0;
    uint32_t micro = o->micro_batches ? o->micro_batches : o->leaves ? o->leaves : 1;
    int rc = check(t, micro);
    if (rc < 0)
        return rc;
    rc = take_devices(t);
    if (rc < 0)
        return rc;
    struct mr_train_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return mr_error_nomem("trainer", sizeof *p);
    t->pipeline = p;
    p->leaves = (struct mr_train_leaves){.world = 1, .n = micro, .mine = micro, .device = true};
    p->of = t->n_stages;
    rc = o->split_ranks ? take_ranks(t, p) : 0;
    if (rc < 0)
        return rc;
    p->n_slots = o->pipeline == MR_PIPELINE_GPIPE ? micro : MR_MIN(micro, p->of);
    p->run_step = UINT64_MAX;
    t->n_leaves = micro;
    o->leaves = micro; /* as checkpoints of an unsplit net say it */
    return 0;
}

static int make_events(struct mr_device *dev, struct mr_event **const events[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = mr_event_create(dev, 0, events[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int open_slot(struct mr_trainer *t, uint32_t s, uint32_t k)
{
    struct mr_train_slot *slot = &t->pipeline->stage[s].slot[k];
    struct mr_event **const events[] = {&slot->there, &slot->back, &slot->value, &slot->grad};
    int rc = make_events(t->stage[s].dev, events, MR_COUNT(events));
    if (rc < 0)
        return rc;
    if (k == 0)
        slot->net = t->stage[s].net;
    else
        rc = mr_net_share(t->stage[s].net, &slot->net);
    if (rc < 0 || t->info.unified)
        return rc;
    return mr_net_warm_up(slot->net, t->stage[s].stream); /* as the trainer of a whole net does */
}

static int acquire(struct mr_device *dev, uint64_t bytes, void *out)
{
    return mr_memory_acquire(dev, MR_DEVICE, MR_MAX(bytes, 1), out);
}

static int take_memory(struct mr_trainer *t, uint32_t s)
{
    struct mr_train_pipe *p = &t->pipeline->stage[s];
    struct mr_device *dev = t->stage[s].dev;
    const struct mr_sum_run first = {.totals = {.first_not_finite = UINT64_MAX}};
    uint32_t levels = 2;
    for (uint32_t k = t->n_leaves; k > 1; k /= 2)
        levels++;
    p->n_params = mr_net_n_params(t->stage[s].net);
    mr_net_buffers(t->stage[s].net, NULL, &p->n_buffers);
    p->length = p->n_params + p->n_buffers + MR_SUM_TOTALS;
    int rc = acquire(dev, levels * p->length * sizeof(float), &p->vector);
    if (rc < 0)
        return rc;
    rc = acquire(dev, p->n_buffers * sizeof(float), &p->buffers);
    if (rc < 0)
        return rc;
    rc = acquire(dev, sizeof *p->run, &p->run);
    if (rc < 0)
        return rc;
    rc = acquire(dev, t->pipeline->of * sizeof *p->overflow, &p->overflow);
    if (rc < 0)
        return rc;
    rc = mr_copy_async(t->stage[s].stream, p->run, MR_DEVICE, &first, MR_PAGEABLE, sizeof first);
    return rc < 0 ? rc : mr_stream_synchronize(t->stage[s].stream);
}

static int open_stage(struct mr_trainer *t, const struct mr_net_opts *no, uint32_t s,
                      const struct mr_net_part *part)
{
    struct mr_train_stage *stage = &t->stage[s];
    struct mr_train_pipe *p = &t->pipeline->stage[s];
    struct mr_event **const events[] = {&p->done, &p->sums, &p->sent};
    int rc = s ? mr_stream_create(stage->dev, "train", &stage->stream) : 0;
    if (rc < 0)
        return rc;
    rc = mr_stream_create(stage->dev, "send", &p->send);
    if (rc < 0)
        return rc;
    rc = make_events(stage->dev, events, MR_COUNT(events));
    if (rc < 0)
        return rc;
    rc = mr_device_load_kernels(stage->dev, &mr_sum_module);
    if (rc < 0)
        return rc;
    rc = mr_net_create_part(stage->dev, no, part, false, &stage->net);
    if (rc < 0)
        return rc;
    rc = take_memory(t, s);
    if (rc < 0)
        return rc;
    p->slot = calloc(t->pipeline->n_slots, sizeof *p->slot);
    if (!p->slot)
        return mr_error_nomem("trainer", t->pipeline->n_slots * sizeof *p->slot);
    for (uint32_t k = 0; k < t->pipeline->n_slots; k++) {
        rc = open_slot(t, s, k);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_train_pipeline_nets(struct mr_trainer *t, const struct mr_net_opts *no)
{
    uint32_t first[MR_TRAIN_STAGES + 1];
    struct mr_train_pipeline *p = t->pipeline;
    int rc = mr_train_split(t, no, first);
    for (uint32_t i = 0; i < p->of && p->comm && rc >= 0; i++) {
        const struct mr_net_part part = {first[i], first[i + 1]};
        rc = mr_net_create_part(t->dev, no, &part, true, &p->plan[i]);
    }
    for (uint32_t s = 0; s < t->n_stages && rc >= 0; s++) {
        const uint32_t i = mr_train_stage_number(t, s);
        const struct mr_net_part part = {first[i], first[i + 1]};
        rc = open_stage(t, no, s, &part);
    }
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < p->of; i++)
        p->param[i + 1] = p->param[i] + mr_net_n_params(p->comm ? p->plan[i] : t->stage[i].net);
    p->leaves.tests = malloc(4ull * p->leaves.mine * sizeof *p->leaves.tests);
    if (!p->leaves.tests)
        return mr_error_nomem("trainer", 4ull * p->leaves.mine * sizeof *p->leaves.tests);
    struct mr_event **const events[] = {&p->packed, &p->labelled};
    rc = make_events(t->dev, events, MR_COUNT(events));
    if (rc < 0)
        return rc;
    return acquire(t->stage[t->n_stages - 1].dev, p->leaves.n * sizeof(float), &p->share);
}

static void close_slot(struct mr_train_slot *slot, bool own)
{
    struct mr_event *const events[] = {slot->there, slot->back, slot->value, slot->grad};
    for (size_t i = 0; i < MR_COUNT(events); i++)
        mr_event_destroy(events[i]);
    if (own)
        mr_net_destroy(slot->net);
}

static void close_stage(struct mr_trainer *t, uint32_t s)
{
    struct mr_train_pipe *p = &t->pipeline->stage[s];
    struct mr_event *const events[] = {p->done, p->sums, p->sent};
    void *const memory[] = {p->vector, p->buffers, p->run, p->overflow, p->piece};
    for (uint32_t k = 0; p->slot && k < t->pipeline->n_slots; k++)
        close_slot(&p->slot[k], k > 0);
    free(p->slot);
    for (size_t i = 0; i < MR_COUNT(events); i++)
        mr_event_destroy(events[i]);
    for (size_t i = 0; i < MR_COUNT(memory); i++)
        mr_memory_release(t->stage[s].dev, MR_DEVICE, memory[i], NULL);
    mr_stream_destroy(p->send);
}

int mr_train_pipeline_optim(struct mr_trainer *t, const struct mr_optim_opts *opts, uint32_t s)
{
    struct mr_train_pipe *p = &t->pipeline->stage[s];
    const uint64_t *param = t->pipeline->param + mr_train_stage_number(t, s);
    const struct mr_optim_range range = {t->pipeline->param[t->pipeline->of], param[0],
                                         param[1] - param[0]};
    int rc = mr_optim_create_range(t->stage[s].dev, opts, MR_F32, &range, &t->stage[s].optim);
    if (rc < 0 || opts->clip_norm == 0 || t->pipeline->of == 1)
        return rc;
    return acquire(t->stage[s].dev, mr_optim_norm_unit(range.n_all) * sizeof *p->piece, &p->piece);
}

uint64_t mr_trainer_stage_memory(const struct mr_trainer *t, uint32_t stage)
{
    if (!t || stage >= MR_TRAIN_STAGES)
        return 0;
    const uint32_t s = stage - (t->pipeline ? t->pipeline->at : 0); /* in this process */
    if (s >= t->n_stages)
        return 0;
    if (!t->pipeline)
        return mr_net_memory(t->stage[s].net);
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < t->pipeline->n_slots; k++)
        bytes += mr_net_memory(t->pipeline->stage[s].slot[k].net);
    return bytes;
}

void mr_train_pipeline_destroy(struct mr_trainer *t)
{
    struct mr_train_pipeline *p = t->pipeline;
    if (!p)
        return;
    struct mr_device *last = t->stage[t->n_stages - 1].dev;
    for (uint32_t s = 0; s < t->n_stages; s++) { /* what one sends, another reads */
        if (t->stage[s].stream)
            mr_stream_synchronize(t->stage[s].stream);
        if (p->stage[s].send)
            mr_stream_synchronize(p->stage[s].send);
    }
    for (uint32_t s = 0; s < t->n_stages; s++)
        close_stage(t, s);
    for (uint32_t i = 0; i < p->of && p->comm; i++)
        mr_net_destroy(p->plan[i]);
    mr_event_destroy(p->packed);
    mr_event_destroy(p->labelled);
    mr_memory_release(t->dev, MR_DEVICE, p->input, NULL);
    mr_memory_release(t->dev, MR_DEVICE, p->labels, NULL);
    mr_memory_release(last, MR_DEVICE, p->last_labels, NULL);
    mr_memory_release(last, MR_DEVICE, p->share, NULL);
    if (!p->comm || mr_comm_check(p->comm) != MR_EPEER) /* else they may be in use: comm.h */
        free(p->leaves.tests);
    free(p);
}

const uint32_t *mr_train_pipeline_bad_loss(const struct mr_trainer *t, uint32_t stage)
{
    if (!t->pipeline)
        return NULL;
    const struct mr_sum_run *run = t->pipeline->stage[stage].run;
    return (const uint32_t *)(const void *)&run->totals.n_not_finite;
}

bool mr_train_has_last_stage(const struct mr_trainer *t)
{
    return mr_train_is_last_stage(t, t->n_stages - 1);
}

/* On GPUs all ranks look at the same steps, and so end at the same one. */
void mr_train_pipeline_hear(struct mr_trainer *t)
{
    t->stopping = t->stopping || t->pipeline->stop_heard;
}

void mr_train_pipeline_find_bad(struct mr_trainer *t)
{
    for (uint32_t s = 0; s < t->n_stages; s++)
        for (uint32_t k = 0; k < t->pipeline->n_slots; k++) {
            struct mr_net *net = t->pipeline->stage[s].slot[k].net;
            int layer = net->last_n ? mr_net_find_bad(net, t->stage[s].stream, &t->bad_what) : -1;
            if (layer >= 0) {
                t->bad_layer = mr_net_layer_get(net, (uint32_t)layer);
                return;
            }
        }
}

struct mr_net *mr_train_net_of(const struct mr_trainer *t, uint32_t stage)
{
    const struct mr_train_pipeline *p = t->pipeline;
    if (stage >= (p ? p->of : t->n_stages))
        return NULL;
    if (!p || !p->comm)
        return t->stage[stage].net;
    return stage == p->at ? t->stage[0].net : p->plan[stage];
}

uint32_t mr_train_n_stages(const struct mr_trainer *t)
{
    return t->pipeline ? t->pipeline->of : t->n_stages;
}

struct mr_train_collection mr_train_collection_of(const struct mr_trainer *t)
{
    const struct mr_train_pipeline *p = t->pipeline;
    if (t->shard)
        return (struct mr_train_collection){t->shard->comm, t->shard->rank, t->shard->world,
                                            t->shard->first};
    return p && p->comm ? (struct mr_train_collection){p->comm, p->at, p->of, p->param}
                        : (struct mr_train_collection){0};
}
