/* The state of a run: a few numbers as JSON. */
#include "loader/state.h"
#include "loader/engine.h"
#include "loader/unfinished.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Of an epoch; 0: not known. */
uint64_t mr_state_samples(const struct mr_loader *ld)
{
    return ld->ds->ops->iterable ? 0 : mr_sampler_length(ld->sampler);
}

/* The epoch and position behind batch t, which was found when it was made. */
static void place_found(const struct mr_plan *plan, uint64_t t, uint64_t *epoch, uint64_t *position)
{
    struct mr_plan_batch last;
    uint64_t total;
    if (mr_epochs_find(plan->starts, t, &last, &total) <= 0)
        return;
    uint64_t next = last.row0 / plan->batch_size - plan->shard.rank + plan->shard.world;
    *epoch = last.last ? last.epoch + 1 : last.epoch;
    *position = last.last ? 0 : next * plan->batch_size;
}

/* The epoch and global position where the first batch behind all begins. */
static void place_of(const struct mr_loader *ld, const struct mr_standing *s, uint64_t *epoch,
                     uint64_t *position)
{
    const struct mr_plan *plan = &ld->plan;
    uint64_t next = s->next;
    if (ld->source) {
        *epoch = s->epoch;
        *position = s->position;
        return;
    }
    *epoch = plan->first_epoch;
    *position = plan->first.start;
    if (next == plan->n_again)
        return;
    struct mr_plan_batch last;
    if (plan->finds) {
        place_found(plan, next - 1, epoch, position);
        return;
    }
    mr_plan_get(plan, next - 1, &last);
    *epoch = last.last ? last.epoch + 1 : last.epoch;
    *position = last.last ? 0 : last.shard->start + (last.row0 + last.rows) * last.shard->world;
}

/* The chain's text as a JSON string can hold it. A long one is cut, and has a hash at its end, as
 * has one with characters that JSON would escape. */
void mr_state_chain(const struct mr_loader *ld, char out[MR_STATE_CHAIN_BYTES])
{
    const char *text = ld->chain ? mr_transform_text(ld->chain) : "";
    size_t n = strlen(text), shown = MR_MIN(n, MR_STATE_CHAIN_SHOWN);
    bool whole = n == shown;
    for (size_t i = 0; i < shown; i++) {
        bool plain = text[i] >= ' ' && text[i] <= '~' && text[i] != '"' && text[i] != '\\';
        out[i] = plain ? text[i] : '?';
        whole = whole && plain;
    }
    out[shown] = '\0';
    if (!whole)
        snprintf(out + shown, MR_STATE_CHAIN_BYTES - shown, "... #%016" PRIx64,
                 mr_hash(MR_HASH_START, text, n));
    shown = strlen(out);
    if (ld->layout.by_user)
        mr_user_collate_text(ld, out + shown, MR_STATE_CHAIN_BYTES - shown);
}

/* A text that is written piece by piece; n: its length, also of what did not fit. */
struct text {
    char *buf;
    size_t cap, n;
};

static void append(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void append(struct text *t, const char *fmt, ...)
{
    va_list args;
    size_t at = MR_MIN(t->n, t->cap);
    va_start(args, fmt);
    int n = vsnprintf(t->buf + at, t->cap - at, fmt, args);
    va_end(args);
    t->n += (size_t)MR_MAX(n, 0);
}

static void append_unfinished(const struct mr_loader *ld, const struct mr_standing *s,
                              struct text *out)
{
    append(out, ", \"rank\": %u, \"unfinished\": [", ld->opts.rank);
    for (uint64_t i = 0; i < s->n; i++) {
        struct mr_plan_batch b;
        mr_plan_get(&ld->plan, s->unfinished[i], &b);
        append(out, "%s[%" PRIu64 ", %" PRIu64 "]", i ? ", " : "", b.epoch,
               b.shard->start + b.row0 * b.shard->world);
    }
    append(out, "]");
}

/* What decides the order of samples. */
const char *mr_state_order(const struct mr_loader *ld, char buf[MR_STATE_ORDER_BYTES])
{
    if (!ld->ds->ops->iterable)
        return mr_sampler_text(ld->sampler);
    snprintf(buf, MR_STATE_ORDER_BYTES, "iterable(shuffle_buffer=%" PRIu64 ")",
             ld->opts.shuffle_buffer);
    return buf;
}

static int write_state(const struct mr_loader *ld, const struct mr_standing *s, char *buf,
                       size_t cap)
{
    uint64_t epoch, position;
    char chain[MR_STATE_CHAIN_BYTES], order[MR_STATE_ORDER_BYTES];
    struct text out = {.buf = buf, .cap = cap};
    place_of(ld, s, &epoch, &position);
    mr_state_chain(ld, chain);
    append(&out,
           "{\"millrace_state\": %d, \"dataset\": \"%016" PRIx64
           "\", \"sampler\": \"%s\", \"chain\": \"%s\", \"seed\": \"%" PRIu64
           "\", \"samples\": %" PRIu64 ", \"epoch\": %" PRIu64 ", \"position\": %" PRIu64
           ", \"next_batch\": %" PRIu64 ", \"batch_size\": %" PRIu64
           ", \"world\": %u, \"bad_samples\": %" PRIu64,
           s->n > 0 ? MR_STATE_VERSION : MR_STATE_VERSION_IN_ORDER, mr_dataset_fingerprint(ld->ds),
           mr_state_order(ld, order), chain, ld->opts.seed, mr_state_samples(ld), epoch, position,
           position / ld->opts.world / ld->opts.batch_size, ld->opts.batch_size, ld->opts.world,
           ld->quarantine.n_bad_before + s->bad);
    if (s->n > 0)
        append_unfinished(ld, s, &out);
    append(&out, "}");
    if (out.n >= cap)
        return mr_error_set(MR_ELIMIT, "state: needs %zu bytes, the buffer has %zu", out.n + 1,
                            cap);
    return (int)out.n;
}

static int query_and_write(const struct mr_loader *ld, bool released, char *buf, size_t cap)
{
    struct mr_standing standing;
    int rc = mr_standing_query(ld, released, &standing);
    if (rc < 0)
        return rc;
    rc = write_state(ld, &standing, buf, cap);
    free(standing.unfinished);
    return rc;
}

int mr_loader_state(const struct mr_loader *ld, char *buf, size_t cap)
{
    if (!ld || !buf)
        return mr_error_null("mr_loader_state", "a loader and a buffer");
    return query_and_write(ld, false, buf, cap);
}

int mr_loader_state_released(const struct mr_loader *ld, char *buf, size_t cap)
{
    if (!ld || !buf)
        return mr_error_null("mr_loader_state_released", "a loader and a buffer");
    return query_and_write(ld, true, buf, cap);
}
