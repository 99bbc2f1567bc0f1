/* Batches between the loader and the trainers. */
#include "serve/server.h"

#include <errno.h>
#include <string.h>

/* ---- notes ---- */

struct writer {
    struct mr_wire_note *note;
    uint64_t at;
};

static uint64_t count_offsets(const struct mr_batch *b, int f)
{
    return b->field[f].offsets ? b->n + 1 : 0;
}

static uint64_t count_lengths(const struct mr_batch *b, int f)
{
    return b->field[f].lengths ? b->n : 0;
}

static uint64_t note_bytes(const struct mr_batch *b)
{
    uint64_t n = 2 * b->n;
    for (int f = 0; f < b->n_fields; f++)
        n += count_offsets(b, f) + count_lengths(b, f);
    return sizeof(struct mr_wire_note) + n * sizeof(uint64_t);
}

static uint64_t write_numbers(struct writer *w, const uint64_t *numbers, uint64_t n)
{
    uint64_t at = w->at;
    if (n == 0)
        return 0;
    memcpy((unsigned char *)w->note + at, numbers, n * sizeof *numbers);
    w->at += n * sizeof *numbers;
    return at;
}

static void write_note(struct mr_wire_note *note, const struct mr_batch *b, const void *host)
{
    struct writer w = {note, sizeof *note};
    *note = (struct mr_wire_note){.n = b->n,
                                  .epoch = b->epoch,
                                  .index = b->index,
                                  .last = b->last,
                                  .n_fields = b->n_fields,
                                  .first = UINT64_MAX};
    note->indices = write_numbers(&w, b->indices, b->n);
    note->positions = write_numbers(&w, b->positions, b->n);
    for (int f = 0; f < b->n_fields; f++) {
        const struct mr_batch_field *bf = &b->field[f];
        uint64_t place = (uint64_t)((const unsigned char *)bf->host - (const unsigned char *)host);
        note->field[f] = (struct mr_wire_field){
            .spec = bf->spec,
            .place = place,
            .bytes = bf->bytes,
            .offsets = write_numbers(&w, bf->offsets, count_offsets(b, f)),
            .lengths = write_numbers(&w, bf->lengths, count_lengths(b, f)),
        };
        note->first = MR_MIN(note->first, place);
        note->end = MR_MAX(note->end, place + bf->bytes);
    }
}

/* An entry keeps its note's memory for the next batch. */
static int make_note(struct mr_server *s, struct mr_entry *e, const struct mr_batch *b)
{
    uint64_t bytes = note_bytes(b);
    if (e->note.bytes < bytes) {
        struct mr_shared_block more;
        int rc = mr_shared_block_create(s->memory, bytes + bytes / 2, &more);
        if (rc < 0)
            return rc;
        mr_shared_block_destroy(s->memory, &e->note);
        e->note = more;
    }
    write_note((struct mr_wire_note *)e->note.data, b, e->place.host);
    return 0;
}

/* ---- entries ---- */

static void give_back(struct mr_server *s, void *slot, uint64_t number)
{
    struct mr_batch b = {.size = sizeof b, .slot = slot, .number = number};
    if (mr_loader_release(s->ld, &b, NULL) < 0)
        mr_log(MR_LOG_WARNING, "serving: a batch could not be released: %s", mr_last_error());
    s->starved = false;
}

/* Its batch is given back if none holds it. */
static void let_go(struct mr_server *s, struct mr_entry *e, uint64_t holders)
{
    e->holders &= ~holders;
    if (e->holders == 0)
        give_back(s, e->slot, e->batch_number);
    while (s->base < s->next && mr_server_entry(s, s->base)->holders == 0)
        s->base++;
}

bool mr_publish_release(struct mr_server *s, uint32_t i, uint64_t number)
{
    struct mr_entry *e = mr_server_entry(s, number);
    if (number < s->base || number >= s->trainer[i].next || e->number != number ||
        !(e->holders & 1ull << i))
        return false;
    let_go(s, e, 1ull << i);
    return true;
}

void mr_publish_drop(struct mr_server *s, uint32_t i)
{
    for (uint64_t number = s->base; number < s->next; number++) {
        struct mr_entry *e = mr_server_entry(s, number);
        if (e->holders & 1ull << i)
            let_go(s, e, 1ull << i);
    }
}

/* ---- taking batches ---- */

uint64_t mr_publish_oldest(struct mr_server *s, uint32_t i)
{
    uint64_t number = MR_MAX(s->trainer[i].oldest, s->base);
    while (number < s->next && !(mr_server_entry(s, number)->holders & 1ull << i))
        number++;
    s->trainer[i].oldest = number;
    return number;
}

bool mr_publish_may(struct mr_server *s)
{
    uint32_t n = mr_trainers_count(s);
    s->started = s->started || n >= s->wait_for;
    if (s->ended || !s->started || n == 0)
        return false;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        if (mr_trainer_is_attached(&s->trainer[i]) && s->next - mr_publish_oldest(s, i) > s->ahead)
            return false;
    }
    return !s->starved;
}

static int publish(struct mr_server *s, const struct mr_batch *b)
{
    struct mr_entry *e = mr_server_entry(s, s->next);
    int rc = mr_batch_find(b, &e->place);
    if (rc < 0)
        return rc;
    rc = make_note(s, e, b);
    if (rc < 0)
        return rc;
    e->number = s->next;
    e->slot = b->slot;
    e->batch_number = b->number;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++)
        if (mr_trainer_is_attached(&s->trainer[i]))
            e->holders |= 1ull << i;
    s->next++;
    return 0;
}

/* Returns whether there may be more. */
static bool take(struct mr_server *s)
{
    struct mr_batch b = {.size = sizeof b};
    int rc = mr_loader_next_for(s->ld, NULL, 0, &b);
    if (rc == -ETIMEDOUT)
        return false;
    if (rc == MR_ELIMIT && s->base < s->next) {
        s->starved = true;
        return false;
    }
    if (rc <= 0) {
        mr_publish_end(s, rc);
        return false;
    }
    rc = publish(s, &b);
    if (rc == 0)
        return true;
    mr_publish_end(s, rc);
    give_back(s, b.slot, b.number);
    return false;
}

void mr_publish(struct mr_server *s)
{
    while (mr_publish_may(s) && take(s))
        ;
    if (s->started && !s->ended && mr_loader_is_over(s->ld)) /* that needs no trainer */
        take(s);
}

void mr_publish_end(struct mr_server *s, int code)
{
    if (s->ended)
        return;
    s->ended = true;
    mr_wire_fill_end(&s->end, code);
    if (s->listens >= 0)
        mr_wire_unlisten(s->listens, s->address, &s->file);
    s->listens = -1;
}

void mr_publish_close(struct mr_server *s)
{
    for (uint64_t i = 0; s->entry && i <= s->ahead; i++) {
        struct mr_entry *e = &s->entry[i];
        if (e->holders) {
            mr_batch_keep(e->slot);
            mr_shared_block_leave(s->memory, &e->note);
        } else {
            mr_shared_block_destroy(s->memory, &e->note);
        }
    }
    free(s->entry);
}
