/* The source of an iterable data set: items read, shuffled, and handed to runs. */
#include "loader/source.h"

#include "loader/engine.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BAD_IN_A_ROW 10000 /* then it is the source that is bad */

struct list {
    struct mr_item *first, *last;
    uint64_t n;
};

struct mr_source {
    struct mr_loader *ld;
    const struct mr_iterable_ops *ops;
    uint64_t keep; /* items in the shuffle buffer; 0: none */

    pthread_mutex_t lock; /* all that follows. ring.lock may be taken under it */
    pthread_cond_t changed;
    uint32_t n_waiting, n_reading;
    uint64_t reading_ns; /* since when */
    bool stopped;

    /* The pass. */
    uint64_t epoch, start; /* start: positions before it are skipped */
    bool begun;            /* rewound */
    bool ended;            /* there are no more items */
    uint32_t n_ended;      /* unordered: workers that got MR_END */
    uint64_t n_read, n_drawn, n_bad_in_a_row;
    struct mr_item **buffer;
    uint64_t n_buffered;
    struct mr_item *own; /* this rank's of the latest group, which is not whole yet */
    struct list ready;

    /* Claims: the next run begins at this row of batch t. */
    uint64_t t, row, index, q; /* index: of the batch in its epoch; q: this rank's local position */
    uint64_t n_batches;        /* of this pass, so far */
    bool failed;               /* the last item in `ready` is the error that ends the run */
    bool over;

    struct mr_item *spare, *last_one; /* last_one: for an error without memory */
};

/* ---- items ---- */

static struct mr_item *take_spare(struct mr_source *s)
{
    struct mr_item *item = s->spare;
    if (item)
        s->spare = item->next;
    else
        item = calloc(1, sizeof *item);
    return item;
}

static void recycle(struct mr_source *s, struct mr_item *item)
{
    if (!item)
        return;
    free(item->error);
    item->error = NULL;
    item->status = 0;
    item->bytes = 0;
    item->fatal = false;
    item->next = s->spare;
    s->spare = item;
}

static void append(struct list *list, struct mr_item *item)
{
    item->next = NULL;
    *(list->first ? &list->last->next : &list->first) = item;
    list->last = item;
    list->n++;
}

static struct mr_item *pop(struct list *list)
{
    struct mr_item *item = list->first;
    if (!item)
        return NULL;
    list->first = item->next;
    list->n--;
    return item;
}

/* ---- the order ---- */

/* The next position's item. */
static void emit(struct mr_source *s, struct mr_item *item)
{
    const struct mr_loader_opts *o = &s->ld->opts;
    item->position = s->n_drawn++;
    if (item->position < s->start) {
        recycle(s, item);
        return;
    }
    uint64_t at = (item->position - s->start) % o->world;
    if (at == o->rank)
        s->own = item;
    else
        recycle(s, item);
    if (at + 1 < o->world || !s->own)
        return;
    append(&s->ready, s->own);
    s->own = NULL;
}

/* An element of the shuffle buffer, by its position's number alone. */
static void draw(struct mr_source *s)
{
    uint32_t x[4];
    mr_draw4(s->ld->opts.seed, MR_DRAW_BUFFER, s->epoch, s->n_drawn, 0, x);
    uint64_t at = (((uint64_t)x[0] << 32 | x[1]) >> 1) % s->n_buffered;
    struct mr_item *item = s->buffer[at];
    s->buffer[at] = s->buffer[--s->n_buffered];
    emit(s, item);
}

/* The text of the calling thread's error goes with the item. */
static void fail(struct mr_item *item, int rc, bool fatal)
{
    item->status = rc;
    item->fatal = fatal;
    free(item->error);
    item->error = strdup(mr_last_error());
}

/* The error that ends the run, as the last item. */
static void push_fatal(struct mr_source *s, struct mr_item *item, int rc)
{
    if (!item) {
        item = s->last_one;
        s->last_one = NULL;
    }
    fail(item, rc, true);
    while (s->n_buffered > 0)
        draw(s);
    item->index = s->n_read;
    item->position = s->n_drawn;
    append(&s->ready, item);
    s->failed = s->ended = true;
}

static void push(struct mr_source *s, struct mr_item *item)
{
    item->index = s->n_read++;
    if (item->status < 0)
        fail(item, item->status, false);
    s->n_bad_in_a_row = item->status < 0 ? s->n_bad_in_a_row + 1 : 0;
    if (s->n_bad_in_a_row == MAX_BAD_IN_A_ROW) {
        char last[512];
        snprintf(last, sizeof last, "%s", mr_last_error());
        push_fatal(s, item,
                   mr_error_set(MR_EBADSAMPLES, "%d bad samples in a row; the last: %s",
                                MAX_BAD_IN_A_ROW, last));
    } else if (s->keep == 0) {
        emit(s, item);
    } else {
        s->buffer[s->n_buffered++] = item;
        if (s->n_buffered == s->keep)
            draw(s);
    }
}

/* ---- passes ---- */

static void begin_pass(struct mr_source *s, uint64_t epoch, uint64_t start)
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
        recycle(s, pop(&s->ready));
    s->over = s->failed || s->epoch + 1 == plan->epochs;
    if (s->over)
        mr_ring_end(&s->ld->ring, s->t);
    else
        begin_pass(s, s->epoch + 1, 0);
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
        push_fatal(s, item, rc);
        return;
    }
    recycle(s, item);
    end_pass(s);
}

/* The data set has no more items in this pass. item: a spare one. */
static void end_items(struct mr_source *s, struct mr_item *item)
{
    s->ended = true;
    while (s->n_buffered > 0)
        draw(s);
    recycle(s, s->own);
    s->own = NULL;
    if (s->n_batches == 0 && s->row == 0 && s->ready.n < least_rows(s))
        end_empty_pass(s, item);
    else
        recycle(s, item);
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
        recycle(s, item);
}

/* Reads one item, or begins the pass. [lock, which is released meanwhile] */
static void read_one(struct mr_source *s, struct mr_worker *w)
{
    const struct mr_dataset *ds = s->ld->ds;
    struct mr_sample_context context = context_of(s, w);
    struct mr_item *item = take_spare(s);
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
        recycle(s, item);
    } else if (rc == MR_END && !begin) {
        take_end(s, w, item);
    } else if (rc < 0) {
        push_fatal(s, item, rc);
    } else if (begin) {
        s->begun = true;
        recycle(s, item);
        pthread_cond_broadcast(&s->changed); /* others may read now */
    } else {
        push(s, item);
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
        set_sample(s->ld, &run->sample[i], pop(&s->ready), w);
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
        recycle(s, run->sample[i].item);
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

/* ---- opening and closing ---- */

/* Options that need to know how many samples there are, or to read one again. */
static int check_options(const struct mr_loader *ld)
{
    const struct mr_loader_opts *o = &ld->opts;
    const char *name = ld->ds->text;
    if (ld->sampler && !mr_sampler_is_sequential(ld->sampler))
        return mr_error_set(MR_EOPTION,
                            "%s: its length is not known, so there can be no sampler '%s': leave "
                            "it out, and set shuffle_buffer to shuffle",
                            name, mr_sampler_text(ld->sampler));
    if (o->bad == MR_BAD_REPLACE)
        return mr_error_set(MR_EOPTION,
                            "%s: bad=replace: an iterable data set has no other samples to put in "
                            "place of a bad one: use skip or fail",
                            name);
    if (o->remainder == MR_REMAINDER_PAD)
        return mr_error_set(MR_EOPTION,
                            "%s: remainder=pad: the samples at the start of an iterable data set "
                            "are gone when it ends: use drop",
                            name);
    if (o->cache == MR_CACHE_DEVICE)
        return mr_error_set(MR_EOPTION, "%s: cache=device: the length of the data set is not known",
                            name);
    if (ld->ds->unordered && o->world > 1)
        return mr_error_set(MR_EOPTION,
                            "%s: unordered: ranks would not agree who has which sample: divide the "
                            "samples in the source, and open each rank with world 1",
                            name);
    return 0;
}

/* Reading it again: an epoch after the first, or a resumed run. */
static int check_again(const struct mr_loader *ld)
{
    const struct mr_dataset *ds = ld->ds;
    if (ds->once[0] && ld->opts.epochs != 1)
        return mr_error_set(MR_EOPTION, "%s: %s, so epochs must be 1", ds->text, ds->once);
    if (!ld->opts.state)
        return 0;
    if (ds->once[0])
        return mr_error_set(MR_ESTATE, "%s: %s, so a run cannot be resumed from it", ds->text,
                            ds->once);
    return ds->unordered
               ? mr_error_set(MR_ESTATE, "%s: it is unordered, so a run cannot be resumed from it",
                              ds->text)
               : 0;
}

int mr_source_check(const struct mr_loader *ld)
{
    if (!ld->ds->ops->iterable)
        return ld->opts.shuffle_buffer == 0
                   ? 0
                   : mr_error_set(MR_EOPTION,
                                  "shuffle_buffer: %s can be read in any order: use a random "
                                  "sampler (it needs no memory)",
                                  ld->ds->text);
    int rc = check_options(ld);
    return rc < 0 ? rc : check_again(ld);
}

uint64_t mr_source_bytes(const struct mr_loader *ld)
{
    if (!ld->ds->ops->iterable)
        return 0;
    uint64_t batch = ld->opts.batch_size, n = ld->opts.shuffle_buffer + batch;
    n += ld->plan.drop_last ? batch : 0;
    n += ld->workers.n * ld->sizes.run_rows;
    return n * (sizeof(struct mr_item) + mr_round_up(ld->ds->item_bytes, MR_CACHE_LINE));
}

static void note_resume(const struct mr_source *s)
{
    if (s->start > 0)
        mr_log(MR_LOG_INFO,
               "%s: resuming at position %" PRIu64 " of epoch %" PRIu64 ": the %" PRIu64
               " samples before it are read and skipped",
               s->ld->ds->text, s->start, s->epoch, s->start);
}

/* The data set is this loader's until it is closed. */
static int take(struct mr_dataset *ds)
{
    if (atomic_exchange(&ds->in_use, true))
        return mr_error_set(MR_EMISUSE,
                            "%s: another loader reads it: an iterable data set serves one loader "
                            "at a time",
                            ds->text);
    if (!ds->once[0] || !ds->was_read)
        return 0;
    atomic_store(&ds->in_use, false);
    return mr_error_set(MR_EMISUSE, "%s: an earlier loader has read from it: %s", ds->text,
                        ds->once);
}

int mr_source_create(struct mr_loader *ld)
{
    int rc = ld->ds->ops->iterable ? take(ld->ds) : 0;
    if (rc < 0 || !ld->ds->ops->iterable)
        return rc;
    struct mr_source *s = calloc(1, sizeof *s);
    if (!s) {
        atomic_store(&ld->ds->in_use, false);
        return mr_error_nomem("source", sizeof *s);
    }
    s->ld = ld;
    s->ops = ld->ds->ops->iterable;
    s->keep = ld->opts.shuffle_buffer;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    begin_pass(s, ld->plan.first_epoch, ld->plan.first.start);
    s->over = ld->plan.total == 0;
    s->last_one = calloc(1, sizeof *s->last_one);
    ld->source = s;
    if (!s->last_one)
        return mr_error_nomem("source", sizeof *s->last_one);
    if (s->ops->resume)
        s->ops->resume(ld->ds);
    if (s->keep > 0) {
        s->buffer = calloc(s->keep, sizeof(struct mr_item *));
        if (!s->buffer)
            return mr_error_nomem("shuffle_buffer", s->keep * sizeof(struct mr_item *));
    }
    note_resume(s);
    return 0;
}

void mr_source_stop(struct mr_loader *ld)
{
    struct mr_source *s = ld->source;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->ops->stop)
        s->ops->stop(ld->ds);
}

static void destroy_list(struct mr_item *item)
{
    while (item) {
        struct mr_item *next = item->next;
        mr_item_destroy(item);
        item = next;
    }
}

void mr_source_destroy(struct mr_loader *ld)
{
    struct mr_source *s = ld->source;
    if (!s)
        return;
    for (uint64_t i = 0; i < s->n_buffered; i++)
        mr_item_destroy(s->buffer[i]);
    mr_item_destroy(s->own);
    mr_item_destroy(s->last_one);
    destroy_list(s->ready.first);
    destroy_list(s->spare);
    free(s->buffer);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    ld->ds->was_read |= s->begun;
    atomic_store(&ld->ds->in_use, false);
    free(s);
    ld->source = NULL;
}
