/* The consumer's side of the ring: takes batches in order, counts them, gives their slots back. */
#include "loader/engine.h"

#include <errno.h>
#include <string.h>

/* Ends the run with an error, which later calls return again. -ETIMEDOUT, of a sample, would say
 * that a batch is late, and callers would try again for ever. */
static int end_with(struct mr_loader *ld, int code)
{
    if (code == -ETIMEDOUT)
        code = -ETIME;
    mr_error_keep(code, &ld->handout.end_error);
    ld->handout.ended = code;
    return code;
}

/* The call comes back without a batch, and nothing else changes. */
static int late(struct mr_loader *ld, uint64_t entered, uint64_t until_ns)
{
    uint64_t now = mr_time_ns(), waited = now - entered;
    mr_count(&ld->stats.wait_ns, waited);
    ld->handout.waited_ns += waited;
    ld->handout.turn_ns = now;
    return mr_watch_late(ld, until_ns == 0 ? 0 : waited);
}

/* Waits for the next batch. Returns 1, 0: there is none, -ETIMEDOUT, or the error that ended the
 * run. */
static int wait_ready(struct mr_loader *ld, uint64_t entered, uint64_t until_ns)
{
    struct mr_handout *out = &ld->handout;
    uint64_t ready = mr_counted(&ld->ring.n_ready) - out->next_batch; /* in whatever order */
    if (!mr_ring_get_ready(&ld->ring, out->next_batch)) {
        mr_consumers_pause(&ld->consumers);
        mr_hold_wait_begin(ld);
        mr_ring_wait_ready(&ld->ring, out->next_batch, out->spare_processor, until_ns);
        mr_hold_wait_end(ld);
        mr_consumers_resume(&ld->consumers);
    }
    if (!atomic_load(&ld->ring.cancelled)) {
        if (!mr_ring_get_ready(&ld->ring, out->next_batch))
            return out->next_batch < mr_ring_total(&ld->ring) ? late(ld, entered, until_ns) : 0;
        mr_count(&ld->stats.ready_sum, ready);
        if (mr_trace_on())
            mr_trace_counter("ready batches", mr_time_ns(), (int64_t)ready);
        return 1;
    }
    return end_with(ld, mr_error_set(MR_ECANCELLED, atomic_load(&ld->gate.closing)
                                                        ? "the loader is being closed"
                                                        : "the loader was cancelled"));
}

/* Fields behind n_fields are not written: they would be most of the bytes. */
static void fill_batch(struct mr_loader *ld, struct mr_slot *slot, struct mr_batch *out)
{
    out->n = slot->size;
    out->epoch = slot->info.epoch;
    out->index = slot->info.index;
    out->last = slot->info.last;
    out->n_fields = mr_layout_n_out(&ld->layout);
    out->indices = slot->indices;
    out->positions = slot->positions;
    out->slot = slot;
    out->number = slot->ready_for;
    for (int f = 0; f < out->n_fields; f++) {
        struct mr_batch_field *bf = &out->field[f];
        bf->spec = slot->spec[f];
        bf->bytes = slot->bytes[f];
        bf->host = slot->host + slot->place[f];
        bf->data = (slot->device ? slot->device : slot->host) + slot->place[f];
        bf->offsets = bf->lengths = NULL;
        memset(bf->reserved, 0, sizeof bf->reserved);
        if (f >= mr_layout_first_added(&ld->layout))
            continue;
        const struct mr_field *fp = &ld->layout.field[f];
        if (fp->device_only || fp->direct)
            bf->host = NULL;
        if (fp->device_part)
            bf->data = slot->output + fp->out_offset;
        bf->offsets = fp->collate == MR_COLLATE_RAGGED ? slot->offsets[f] : NULL;
        bf->lengths = slot->lengths[f];
    }
}

/* Batches that were ready before the first one was handed out say nothing about the rate. */
static void count_warm(struct mr_loader *ld, const struct mr_slot *slot, uint64_t now)
{
    struct mr_handout *out = &ld->handout;
    if (!out->last_return_ns) {
        uint64_t ready = mr_counted(&ld->ring.n_ready);
        out->warm_from = ready > out->next_batch ? ready : 0;
    }
    if (out->warm_start_ns) {
        mr_count(&ld->stats.warm_samples, slot->size);
        atomic_store_explicit(&ld->stats.warm_ns, now - out->warm_start_ns, memory_order_relaxed);
    } else if (out->next_batch > out->warm_from) {
        out->warm_start_ns = now;
    }
}

static void count_batch(struct mr_loader *ld, const struct mr_slot *slot, uint64_t entered)
{
    uint64_t now = mr_time_ns();
    count_warm(ld, slot, now);
    if (ld->handout.last_return_ns) {
        mr_hist_add(&ld->stats.interval, now - ld->handout.last_return_ns);
        mr_count(&ld->stats.busy_ns, entered - ld->handout.last_return_ns - ld->handout.waited_ns);
    } else {
        atomic_store(&ld->stats.first_batch_ns, now - ld->stats.open_ns);
        atomic_store(&ld->stats.first_wait_ns, now - entered);
        mr_stats_started(ld);
    }
    ld->handout.last_return_ns = ld->handout.turn_ns = now;
    mr_count(&ld->stats.wait_ns, now - entered);
    mr_hist_add(&ld->stats.wait, now - entered + ld->handout.waited_ns);
    ld->handout.waited_ns = 0;
    mr_trace_span("wait: batch", entered, now, "batch", ld->handout.next_batch);
    mr_count(&ld->stats.batches, 1);
    mr_count(&ld->stats.samples, slot->size);
    for (int f = 0; f < mr_layout_n_out(&ld->layout); f++)
        mr_count(&ld->stats.bytes, slot->bytes[f]);
}

static const char *last_bad(const struct mr_loader *ld)
{
    const struct mr_quarantine *q = &ld->quarantine;
    return q->n_listed > 0 ? q->listed[q->n_listed - 1]->text : "(not listed)";
}

/* The same for a source, whose epochs may have no end: so many bad rows in a row, in batches with
 * no other ones. Also notes where the next batch begins. */
#define MAX_BAD_ROWS 10000
static int look_at_found(struct mr_loader *ld, struct mr_slot *slot)
{
    const struct mr_plan_batch *info = &slot->info;
    struct mr_handout *out = &ld->handout;
    slot->from_epoch = info->epoch;
    slot->from_position = info->shard->start + info->row0 * info->shard->world;
    out->after_epoch = info->epoch + info->last;
    out->after_position =
        info->last ? 0 : info->shard->start + (info->row0 + info->rows) * info->shard->world;
    out->n_empty = slot->size == 0 ? out->n_empty + info->rows : 0;
    if (out->n_empty < MAX_BAD_ROWS)
        return 0;
    return end_with(ld, mr_error_set(MR_EBADSAMPLES,
                                     "no good sample among the latest %llu of %s; the last: %s",
                                     (unsigned long long)out->n_empty, ld->ds->text, last_bad(ld)));
}

/*
 * Bad samples alone, epoch after epoch, would keep an endless run in mr_loader_next() for ever. A
 * rank's part of an epoch may have none but bad ones by chance: so many in a row as there are ranks
 * hardly have. Returns 0 or the error that ends the run.
 */
static int look_at_epoch(struct mr_loader *ld, struct mr_slot *slot)
{
    bool empty = slot->size == 0;
    if (ld->source)
        return look_at_found(ld, slot);
    bool first = ld->opts.in_order ? slot->info.index == 0 : ld->handout.new_epoch;
    ld->handout.empty_epoch = empty && (first || ld->handout.empty_epoch);
    ld->handout.new_epoch = slot->info.last;
    if (!empty)
        ld->handout.n_empty = 0;
    if (!ld->handout.empty_epoch || !slot->info.last ||
        ++ld->handout.n_empty < ld->plan.shard.world)
        return 0;
    return end_with(
        ld, mr_error_set(MR_EBADSAMPLES, "no good sample in a whole epoch of %llu; the last: %s",
                         (unsigned long long)mr_shard_length(&ld->plan.shard), last_bad(ld)));
}

/* A stream that the loader's events cannot order. */
static int check_stream(const struct mr_loader *ld, const struct mr_stream *stream,
                        const char *call)
{
    if (!stream || stream->dev == ld->device || ld->device_info.unified)
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "%s: stream \"%s\" belongs to another device than the loader's: expected "
                        "one made with the device that the loader was opened with",
                        call, stream->name);
}

/* A graph would read the batch each time it is launched, after the slot is used again. */
static int check_release(const struct mr_loader *ld, const struct mr_stream *stream)
{
    int rc = check_stream(ld, stream, "mr_loader_release");
    if (rc < 0 || !stream || ld->device_info.unified)
        return rc;
    rc = mr_stream_capturing(stream);
    if (rc <= 0)
        return rc;
    return mr_error_set(MR_EMISUSE,
                        "mr_loader_release: stream \"%s\" is being captured into a graph: end the "
                        "capture, launch the graph, and release the batch after that",
                        stream->name);
}

/* The batch of a ready slot becomes the consumer's. */
static int take(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream)
{
    int copied = 0;
    if (!stream && ld->ships) { /* this thread waits for the copy */
        mr_consumers_pause(&ld->consumers);
        copied = mr_ship_hand_out(ld, slot, NULL);
        mr_consumers_resume(&ld->consumers);
    }
    slot->bad_before = ld->quarantine.n_bad;
    int rc = mr_bad_take(ld, slot);
    if (rc < 0)
        return rc;
    slot->n_bad = ld->quarantine.n_bad - slot->bad_before;
    return stream ? mr_ship_hand_out(ld, slot, stream) : copied;
}

/* One more batch is handed out: that in this slot. */
static void note_taken(struct mr_loader *ld, struct mr_slot *slot)
{
    struct mr_handout *out = &ld->handout;
    out->next_batch++;
    out->frontier = MR_MAX(out->frontier, slot->ready_for + 1);
    if (!ld->opts.in_order)
        slot->info.last = mr_open_taken(ld, slot, out->next_batch);
    if (mr_knobs_taken(ld))
        mr_hold_note_opened(ld);
}

/* [consumers.lock] With several consumers the time before a turn is not counted: another one has
 * it. */
static int next(struct mr_loader *ld, struct mr_stream *stream, uint64_t entered, uint64_t until_ns,
                struct mr_batch *out)
{
    entered = MR_MAX(entered, ld->handout.turn_ns);
    for (;;) {
        if (ld->handout.ended < 0)
            return mr_error_put(&ld->handout.end_error);
        if (ld->handout.next_batch >= mr_ring_total(&ld->ring))
            return 0;
        int rc = mr_hold_make_room(ld, ld->handout.next_batch);
        if (rc < 0)
            return rc;
        rc = wait_ready(ld, entered, until_ns);
        if (rc <= 0)
            return rc;
        struct mr_slot *slot = mr_ring_get_ready(&ld->ring, ld->handout.next_batch);
        rc = take(ld, slot, stream);
        if (rc < 0)
            return end_with(ld, rc);
        note_taken(ld, slot);
        rc = look_at_epoch(ld, slot);
        if (slot->size == 0) { /* every sample was bad and skipped */
            mr_hold_reopen(ld, slot);
            if (rc < 0)
                return rc;
            continue;
        }
        count_batch(ld, slot, entered);
        mr_knobs_waited(ld, ld->handout.last_return_ns - entered);
        mr_tune_batch(ld, slot->size);
        fill_batch(ld, slot, out);
        mr_hold_begin(ld, slot);
        return 1;
    }
}

/* What the descriptor of mr_loader_fd(), if there is one, says from now on: with `rc` the call
 * returns. Who waits for it makes no call: if the next batch's slot is held, this is the time to
 * put another one in its place. An error of that is the next call's, but told once. */
static void update_fd(struct mr_loader *ld, int rc)
{
    uint64_t t = ld->handout.next_batch;
    bool over = ld->handout.ended < 0;
    if (rc >= 0 && !over && t < mr_ring_total(&ld->ring) && mr_ring_is_polled(&ld->ring))
        over = mr_hold_make_room(ld, t) < 0;
    mr_ring_poll(&ld->ring, t, over);
}

static int next_in_turn(struct mr_loader *ld, struct mr_stream *stream, uint64_t timeout_ns,
                        struct mr_batch *out)
{
    uint64_t now = mr_time_ns(), until_ns = 0;
    int rc;
    if (timeout_ns > 0 && !mr_add(now, timeout_ns, &until_ns))
        until_ns = MR_FOREVER;
    if (mr_consumers_begin(&ld->consumers, until_ns)) {
        rc = next(ld, stream, now, until_ns, out);
        update_fd(ld, rc);
    } else {
        rc = mr_watch_late(ld, until_ns == 0 ? 0 : mr_time_ns() - now);
    }
    mr_consumers_end(&ld->consumers);
    return rc;
}

/* No batch has ever been shorter. */
static int check_batch(const struct mr_batch *out)
{
    if (out && out->size == sizeof *out)
        return 0;
    return mr_info_check_least("batch", out, sizeof *out, sizeof *out);
}

static int enter_next(struct mr_loader *ld, const char *call, struct mr_stream *stream,
                      uint64_t timeout_ns, struct mr_batch *out)
{
    int rc = mr_gate_enter(ld, call);
    if (rc < 0)
        return rc;
    rc = check_batch(out);
    if (rc < 0)
        goto end;
    rc = check_stream(ld, stream, call);
    if (rc >= 0 && stream && mr_stream_is_any(stream))
        rc = mr_stream_check(stream, call);
    if (rc < 0)
        goto end;
    rc = next_in_turn(ld, stream, timeout_ns, out);
end:
    mr_gate_leave(ld);
    return rc;
}

int mr_loader_next(struct mr_loader *ld, struct mr_stream *stream, struct mr_batch *out)
{
    return enter_next(ld, "mr_loader_next", stream, MR_FOREVER, out);
}

int mr_loader_next_for(struct mr_loader *ld, struct mr_stream *stream, uint64_t timeout_ns,
                       struct mr_batch *out)
{
    return enter_next(ld, "mr_loader_next_for", stream, timeout_ns, out);
}

int mr_loader_fd(struct mr_loader *ld)
{
    int rc = mr_gate_enter(ld, "mr_loader_fd");
    if (rc < 0)
        return rc;
    mr_consumers_lock(ld);
    rc = mr_ring_fd(&ld->ring);
    update_fd(ld, 0);
    mr_consumers_unlock(ld);
    mr_gate_leave(ld);
    return rc;
}

static int release(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *stream)
{
    if (!batch)
        return mr_error_null("mr_loader_release", "a batch");
    int rc = check_release(ld, stream);
    return rc < 0 ? rc : mr_hold_release(ld, batch, stream);
}

int mr_loader_release(struct mr_loader *ld, struct mr_batch *batch, struct mr_stream *stream)
{
    int rc = mr_gate_enter(ld, "mr_loader_release");
    if (rc < 0)
        return rc;
    rc = release(ld, batch, stream);
    mr_gate_leave(ld);
    return rc;
}

void mr_loader_cancel(struct mr_loader *ld)
{
    if (ld && mr_process_is(&ld->gate.process))
        mr_ring_cancel(&ld->ring);
}
