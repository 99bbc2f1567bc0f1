/* The source of an iterable data set: items, and the order in which they come out. */
#include "loader/source_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BAD_IN_A_ROW 10000 /* then it is the source that is bad */

struct mr_item *mr_source_spare(struct mr_source *s)
{
    struct mr_item *item = s->spare;
    if (item)
        s->spare = item->next;
    else
        item = calloc(1, sizeof *item);
    return item;
}

void mr_source_recycle(struct mr_source *s, struct mr_item *item)
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

static void append(struct mr_item_list *list, struct mr_item *item)
{
    item->next = NULL;
    *(list->first ? &list->last->next : &list->first) = item;
    list->last = item;
    list->n++;
}

struct mr_item *mr_source_pop(struct mr_source *s)
{
    struct mr_item_list *list = &s->ready;
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
        mr_source_recycle(s, item);
        return;
    }
    uint64_t at = (item->position - s->start) % o->world;
    if (at == o->rank)
        s->own = item;
    else
        mr_source_recycle(s, item);
    bool shared_out = at + 1 == o->world || o->remainder == MR_REMAINDER_EXACT;
    if (!shared_out || !s->own)
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

void mr_source_drain(struct mr_source *s)
{
    while (s->n_buffered > 0)
        draw(s);
}

/* The text of the calling thread's error goes with the item. */
static void fail(struct mr_item *item, int rc, bool fatal)
{
    item->status = rc;
    item->fatal = fatal;
    free(item->error);
    item->error = strdup(mr_last_error());
}

void mr_source_push_error(struct mr_source *s, struct mr_item *item, int rc)
{
    if (!item) {
        item = s->last_one;
        s->last_one = NULL;
    }
    fail(item, rc, true);
    mr_source_drain(s);
    item->index = s->n_read;
    item->position = s->n_drawn;
    append(&s->ready, item);
    s->failed = s->ended = true;
}

void mr_source_push(struct mr_source *s, struct mr_item *item)
{
    item->index = s->n_read++;
    if (item->status < 0)
        fail(item, item->status, false);
    s->n_bad_in_a_row = item->status < 0 ? s->n_bad_in_a_row + 1 : 0;
    if (s->n_bad_in_a_row == MAX_BAD_IN_A_ROW) {
        char last[512];
        snprintf(last, sizeof last, "%s", mr_last_error());
        mr_source_push_error(s, item,
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
