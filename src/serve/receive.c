/* Messages from the server become items; released items become messages. */
#include "serve/attached.h"

#include <errno.h>
#include <string.h>

void mr_receive_end(struct mr_attached *a, int code)
{
    if (a->over)
        return;
    a->over = true;
    if (code < 0)
        mr_error_keep(code, &a->end);
}

/* `n` numbers at a place in the note; none: place 0 where that is allowed. */
static bool has_numbers(uint64_t place, uint64_t n, bool may_lack, const struct mr_wire_batch *in)
{
    if (place == 0 && may_lack)
        return true;
    return place % sizeof(uint64_t) == 0 && place >= sizeof(struct mr_wire_note) &&
           place <= in->note_bytes && n <= (in->note_bytes - place) / sizeof(uint64_t);
}

static bool is_spec(const struct mr_spec *spec)
{
    return memchr(spec->name, 0, sizeof spec->name) && mr_dtype_size(spec->dtype) > 0 &&
           spec->rank >= 0 && spec->rank <= MR_MAX_RANK;
}

/* The places that a note names are in it, and in the slot. */
static bool check_note(const struct mr_attached *a, const struct mr_wire_note *note,
                       const struct mr_wire_batch *in)
{
    bool empty = note->n == 0;
    if (note->n >= in->note_bytes || note->n_fields != a->welcome.n_fields ||
        note->end > in->bytes || note->first > note->end ||
        !has_numbers(note->indices, note->n, empty, in) ||
        !has_numbers(note->positions, note->n, empty, in))
        return false;
    for (int f = 0; f < note->n_fields; f++) {
        const struct mr_wire_field *wf = &note->field[f];
        if (!is_spec(&wf->spec) || wf->place < note->first || wf->place > note->end ||
            wf->bytes > note->end - wf->place || !has_numbers(wf->offsets, note->n + 1, true, in) ||
            !has_numbers(wf->lengths, note->n, true, in))
            return false;
    }
    return true;
}

/* A batch that another version of the server described cannot come here: the mark differs. */
static int add_item(struct mr_attached *a, const struct mr_wire_batch *in)
{
    struct mr_item *item = mr_attached_item(a, in->number);
    const unsigned char *note;
    if (in->number != a->received || item->state != MR_ITEM_EMPTY ||
        in->note_bytes < sizeof *item->note || in->note_offset % sizeof(uint64_t))
        return mr_error_set(MR_EFORMAT, "%s: the server sent batch %llu: expected %llu", a->text,
                            (unsigned long long)in->number, (unsigned long long)a->received);
    int rc = mr_view_get(a, &a->notes, in->note, in->note_offset, in->note_bytes, false, &note);
    if (rc < 0)
        return rc;
    rc = mr_view_get(a, &a->slots, in->slot, in->offset, in->bytes, a->device != NULL, &item->host);
    if (rc < 0)
        return rc;
    item->number = in->number;
    item->note = (const struct mr_wire_note *)note;
    if (!check_note(a, item->note, in))
        return mr_error_set(MR_EFORMAT, "%s: batch %llu is not described as expected", a->text,
                            (unsigned long long)in->number);
    rc = a->device ? mr_transfer_copy(a, item) : 0;
    if (rc < 0)
        return rc;
    item->state = MR_ITEM_RECEIVED;
    a->received++;
    return 0;
}

static void handle(struct mr_attached *a, const union mr_wire *in, int64_t n)
{
    int rc;
    if (in->kind == MR_WIRE_BATCH && n == sizeof in->batch) {
        rc = add_item(a, &in->batch);
        if (rc < 0)
            mr_receive_end(a, rc);
    } else if ((in->kind == MR_WIRE_END || in->kind == MR_WIRE_FAILED) && n == sizeof in->end) {
        rc = in->end.code;
        if (rc < 0)
            mr_error_set(rc, "%s: %.*s", a->text, MR_ERROR_BYTES - 1, in->end.text);
        mr_receive_end(a, rc);
    } else {
        mr_receive_end(a, mr_error_set(MR_EFORMAT, "%s: a message that no server sends", a->text));
    }
}

/* For a device as many as are to be copied ahead; on the host there is nothing to do ahead. */
void mr_receive(struct mr_attached *a)
{
    uint64_t wanted = a->device ? a->prefetch : 1;
    while (!a->over && a->received - a->handed < wanted) {
        union mr_wire in;
        int64_t n = mr_wire_recv(a->fd, &in, NULL);
        if (n > 0) {
            handle(a, &in, n);
            continue;
        }
        if (n == -EAGAIN && !a->gone)
            return;
        mr_receive_end(a, mr_error_set(-EPIPE,
                                       "%s: the server, process %lld, ended before its loader did",
                                       a->text, (long long)a->server));
    }
}

static void give_back(struct mr_attached *a, struct mr_item *item)
{
    mr_transfer_give(a, item);
    item->state = MR_ITEM_EMPTY;
    a->n_due--;
}

/* If the server has ended there is no one to give them back to. */
void mr_receive_flush(struct mr_attached *a, bool waits)
{
    for (uint64_t i = 0; i <= a->welcome.ahead && a->n_due > 0; i++) {
        struct mr_item *item = &a->item[i];
        struct mr_wire_release out = {.kind = MR_WIRE_RELEASE, .number = item->number};
        if (item->state != MR_ITEM_RELEASED ||
            (item->buffer && !mr_transfer_is_copied(item, waits)))
            continue;
        int rc = mr_wire_send(a->fd, &out, sizeof out, -1);
        if (rc == -EAGAIN || rc == -ENOBUFS)
            return;
        give_back(a, item);
    }
}
