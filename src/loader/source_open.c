/* The source of an iterable data set: what it does not allow, opening and closing. */
#include "loader/source_private.h"

#include <inttypes.h>
#include <stdlib.h>

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
                            "are gone when it ends: use drop or exact",
                            name);
    if (o->cache == MR_CACHE_DEVICE)
        return mr_error_set(MR_EOPTION, "%s: cache=device: the length of the data set is not known",
                            name);
    if (ld->ds->unordered && (o->tune || o->max_workers > o->workers))
        return mr_error_set(MR_EOPTION,
                            "%s: unordered: each worker reads a part of it, so their number cannot "
                            "change: leave out tune and max_workers",
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
    mr_source_begin_pass(s, ld->plan.first_epoch, ld->plan.first.start);
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
