/* The source of an iterable data set: items read, and handed to runs. */
#include "loader/source_private.h"

/* ---- passes ---- */

void mr_source_begin_pass(struct mr_source *s, uint64_t epoch, uint64_t start)
{
    s->epoch = epoch;
    s->start = start;
    s->begun = s->ended = false;
    s->n_ended = 0;
    s->n_read = s->n_drawn = s->n_batches = s->q = s->row = s->index = 0;
}

/* All batches of the pass have been claimed. */
static void end_pass(struct mr_source *s)
{
    const struct mr_plan *plan = &s->ld->plan;
    while (s->ready.n > 0)
        mr_source_recycle(s, mr_source_pop(s));
    s->over = s->failed || s->epoch + 1 == plan->epochs;
    if (s->over)
        mr_ring_end(&s->ld->ring, s->t);
    else
        mr_source_begin_pass(s, s->epoch + 1, 0);
    pthread_cond_broadcast(&s->changed);
}

/* Rows that a batch needs to exist. */
static uint64_t least_rows(const struct mr_source *s)
{
    return s->ld->plan.drop_last ? s->ld->plan.batch_size : 1;
}

/* The pass had too few samples for a batch. A resumed one may have: those before were enough. */
static void end_empty_pass(struct mr_source *s, struct mr_item *item)
{
    const struct mr_loader *ld = s->ld;
    unsigned long long n = s->n_read;
    int rc = 0;
    if (s->n_drawn < s->start)
        rc = mr_error_set(MR_ESTATE,
                          "%s: epoch %llu ended after %llu samples, but the state was made at "
                          "position %llu: the source does not give the same samples again",
                          ld->ds->text, (unsigned long long)s->epoch, n,
                          (unsigned long long)s->start);
    else if (s->start == 0)
        rc = mr_error_set(MR_EBADSAMPLES,
                          "%s: epoch %llu has %llu samples, which gives each of %u ranks no %s of "
                          "%llu",
                          ld->ds->text, (unsigned long long)s->epoch, n, ld->opts.world,
                          ld->plan.drop_last ? "full batch" : "batch",
                          (unsigned long long)ld->plan.batch_size);
    if (rc < 0) {
        mr_source_push_error(s, item, rc);
        return;
    }
    mr_source_recycle(s, item);
    end_pass(s);
}

/* The data set has no more items in this pass. item: a spare one. */
static void end_items(struct mr_source *s, struct mr_item *item)
{
    s->ended = true;
    mr_source_drain(s);
    mr_source_recycle(s, s->own);
    s->own = NULL;
    if (s->n_batches == 0 && s->row == 0 && s->ready.n < least_rows(s))
        end_empty_pass(s, item);
    else
        mr_source_recycle(s, item);
    pthread_cond_broadcast(&s->changed);
}

/* ---- reading ---- */

/* May this worker read? */
static bool may_read(const struct mr_source *s, const struct mr_worker *w)
{
    if (s->ended || (s->n_reading > 0 && (!s->begun || !s->ld->ds->unordered)))
        return false;
    return !s->ld->ds->unordered || w->ended_pass != s->epoch + 1;
}

static struct mr_sample_context context_of(const struct mr_source *s, const struct mr_worker *w)
{
    uint64_t number = s->ld->ds->unordered ? 0 : s->n_read;
    return (struct mr_sample_context){.size = sizeof(struct mr_sample_context),
                                      .index = number,
                                      .epoch = s->epoch,
                                      .seed = s->ld->opts.seed,
                                      .position = number,
                                      .worker = w->id,
                                      .worker_state = w->state};
}

static void take_end(struct mr_source *s, struct mr_worker *w, struct mr_item *item)
{
    w->ended_pass = s->epoch + 1;
    s->n_ended++;
    if (!s->ld->ds->unordered || s->n_ended == s->ld->workers.n)
        end_items(s, item);
    else
        mr_source_recycle(s, item);
}

/* Reads one item, or begins the pass. [lock, which is released meanwhile] */
static void read_one(struct mr_source *s, struct mr_worker *w)
{
    const struct mr_dataset *ds = s->ld->ds;
    struct mr_sample_context context = context_of(s, w);
    struct mr_item *item = mr_source_spare(s);
    bool begin = !s->begun;
    s->reading_ns = mr_time_ns();
    s->n_reading++;
    pthread_mutex_unlock(&s->lock);
    int rc = item ? 0 : mr_error_nomem("sample", sizeof *item);
    if (rc == 0 && w->entered.code < 0)
        rc = mr_error_put(&w->entered);
    if (rc == 0)
        rc = begin ? s->ops->rewind(ds, context.epoch) : s->ops->next(ds, &context, item);
    pthread_mutex_lock(&s->lock);
    s->n_reading--;
    if (s->stopped || s->ended) {
        mr_source_recycle(s, item);
    } else if (rc == MR_END && !begin) {
        take_end(s, w, item);
    } else if (rc < 0) {
        mr_source_push_error(s, item, rc);
    } else if (begin) {
        s->begun = true;
        mr_source_recycle(s, item);
        pthread_cond_broadcast(&s->changed); /* others may read now */
    } else {
        mr_source_push(s, item);
    }
}

/* ---- runs ---- */

static uint64_t span_of(const struct mr_source *s)
{
    return MR_MIN(s->ld->sizes.run_rows, s->ld->plan.batch_size - s->row);
}

/* Are there the items of a run, and is it known whether the batch is the last one? */
static bool is_ready(const struct mr_source *s)
{
    uint64_t span = span_of(s), batch = s->ld->plan.batch_size, n = s->ready.n;
    if (s->ended || !s->ld->plan.drop_last)
        return s->ended ? n > 0 : n > span;
    if (s->row + span == batch)
        return n >= span + batch;
    return n >= (s->row == 0 ? batch : span);
}

static void set_sample(struct mr_loader *ld, struct mr_run_sample *to, struct mr_item *item,
                       const struct mr_worker *w)
{
    bool failed = item->status == 0 && w->entered.code < 0;
    to->item = item;
    to->index = item->index;
    to->position = item->position;
    to->done = false;
    to->status = failed ? w->entered.code : item->status;
    to->maker = (uint8_t)mr_backends_choose(ld, 0, 0, item->index, NULL, 0);
    to->failed_extent = 0;
    to->n_extents = 1;
    to->extent[0].at = (struct mr_extent){.file = -1, .field = -1, .bytes = item->bytes};
    to->extent[0].view = item->data;
    to->extent[0].read = NULL;
    to->extent[0].on_device = false;
}

/* Is the run that ends with this row the last one of its epoch? */
static bool is_last(const struct mr_source *s, uint64_t row)
{
    if (!s->ended)
        return false;
    if (s->failed || !s->ld->plan.drop_last)
        return s->ready.n == 0;
    return row == s->ld->plan.batch_size && s->ready.n < s->ld->plan.batch_size;
}

static void take_run(struct mr_source *s, struct mr_worker *w, struct mr_run *run)
{
    struct mr_plan *plan = &s->ld->plan;
    uint64_t n = MR_MIN(span_of(s), s->ready.n);
    bool first = s->epoch == plan->first_epoch;
    run->t = s->t;
    run->row0 = (uint32_t)s->row;
    run->n = (uint32_t)n;
    run->n_done = run->n_reads = run->n_landed = run->n_submitted = 0;
    run->error.code = 0;
    run->info = (struct mr_plan_batch){.epoch = s->epoch,
                                       .index = s->index + (first ? plan->first_index : 0),
                                       .row0 = s->q - s->row,
                                       .shard = first ? &plan->first : &plan->shard};
    if (w->entered.code < 0)
        run->error = w->entered;
    for (uint64_t i = 0; i < n; i++)
        set_sample(s->ld, &run->sample[i], mr_source_pop(s), w);
    run->last = is_last(s, s->row + n);
    run->n_left = (uint32_t)(run->last ? plan->batch_size - s->row : n);
    s->q += n;
    s->row += n;
    if (s->row < plan->batch_size && !run->last)
        return;
    s->t++;
    s->index++;
    s->n_batches++;
    s->row = 0;
    if (run->last)
        end_pass(s);
}

bool mr_source_claim(struct mr_worker *w, struct mr_run *run)
{
    struct mr_source *s = w->ld->source;
    bool claimed = false;
    pthread_mutex_lock(&s->lock);
    while (!s->stopped && !s->over && !claimed) {
        if (is_ready(s)) {
            take_run(s, w, run);
            claimed = true;
        } else if (may_read(s, w)) {
            read_one(s, w);
        } else {
            s->n_waiting++;
            pthread_cond_wait(&s->changed, &s->lock);
            s->n_waiting--;
        }
    }
    if (s->n_waiting > 0)
        pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return claimed;
}

void mr_source_release(struct mr_loader *ld, struct mr_run *run)
{
    struct mr_source *s = ld->source;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < run->n; i++) {
        mr_source_recycle(s, run->sample[i].item);
        run->sample[i].item = NULL;
    }
    pthread_mutex_unlock(&s->lock);
}

int mr_source_error(const struct mr_run_sample *s)
{
    return mr_error_set(s->status, "%s",
                        s->item->error ? s->item->error : mr_strerror(s->item->status));
}

bool mr_source_reading(const struct mr_loader *ld, uint64_t *index, uint64_t *since_ns)
{
    struct mr_source *s = ld->source;
    pthread_mutex_lock(&s->lock);
    bool reading = s->n_reading > 0;
    *index = s->n_read;
    *since_ns = s->reading_ns;
    pthread_mutex_unlock(&s->lock);
    return reading;
}
