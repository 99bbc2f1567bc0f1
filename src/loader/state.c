/* The state of a run: a few numbers as JSON. Loading checks that they belong to this data set and
 * order. */
#include "loader/engine.h"
#include "loader/unfinished.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STATE_VERSION          2 /* of states that list unfinished batches: 0.1 would lose these */
#define STATE_VERSION_IN_ORDER 1
#define CHAIN_SHOWN            160 /* bytes of a chain's text */
#define CHAIN_BYTES            (CHAIN_SHOWN + 160)
#define ORDER_BYTES            64

/* Of an epoch; 0: not known. */
static uint64_t samples_of(const struct mr_loader *ld)
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
static void chain_text(const struct mr_loader *ld, char out[CHAIN_BYTES])
{
    const char *text = ld->chain ? mr_transform_text(ld->chain) : "";
    size_t n = strlen(text), shown = MR_MIN(n, CHAIN_SHOWN);
    bool whole = n == shown;
    for (size_t i = 0; i < shown; i++) {
        bool plain = text[i] >= ' ' && text[i] <= '~' && text[i] != '"' && text[i] != '\\';
        out[i] = plain ? text[i] : '?';
        whole = whole && plain;
    }
    out[shown] = '\0';
    if (!whole)
        snprintf(out + shown, CHAIN_BYTES - shown, "... #%016" PRIx64,
                 mr_hash(MR_HASH_START, text, n));
    shown = strlen(out);
    if (ld->layout.by_user)
        mr_user_collate_text(ld, out + shown, CHAIN_BYTES - shown);
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
static const char *order_text(const struct mr_loader *ld, char buf[ORDER_BYTES])
{
    if (!ld->ds->ops->iterable)
        return mr_sampler_text(ld->sampler);
    snprintf(buf, ORDER_BYTES, "iterable(shuffle_buffer=%" PRIu64 ")", ld->opts.shuffle_buffer);
    return buf;
}

static int write_state(const struct mr_loader *ld, const struct mr_standing *s, char *buf,
                       size_t cap)
{
    uint64_t epoch, position;
    char chain[CHAIN_BYTES], order[ORDER_BYTES];
    struct text out = {.buf = buf, .cap = cap};
    place_of(ld, s, &epoch, &position);
    chain_text(ld, chain);
    append(&out,
           "{\"millrace_state\": %d, \"dataset\": \"%016" PRIx64
           "\", \"sampler\": \"%s\", \"chain\": \"%s\", \"seed\": \"%" PRIu64
           "\", \"samples\": %" PRIu64 ", \"epoch\": %" PRIu64 ", \"position\": %" PRIu64
           ", \"next_batch\": %" PRIu64 ", \"batch_size\": %" PRIu64
           ", \"world\": %u, \"bad_samples\": %" PRIu64,
           s->n > 0 ? STATE_VERSION : STATE_VERSION_IN_ORDER, mr_dataset_fingerprint(ld->ds),
           order_text(ld, order), chain, ld->opts.seed, samples_of(ld), epoch, position,
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

/* A whole number below 2^53 that JSON can hold exactly. */
static int get_count(const cJSON *root, const char *name, uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(v >= 0 && v < 0x1p53) || floor(v) != v)
        return mr_error_set(MR_ESTATE,
                            "state: \"%s\" is missing or not a whole number from 0 to 2^53", name);
    *out = (uint64_t)v;
    return 0;
}

static int check_text(const cJSON *root, const char *name, const char *what, const char *have,
                      const char *advice)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    if (!cJSON_IsString(item))
        return mr_error_set(MR_ESTATE, "state: \"%s\" is missing or not a string", name);
    if (strcmp(item->valuestring, have) != 0)
        return mr_error_set(
            MR_ESTATE, "state: made with another %s: the state has %.200s, this run has %s%s", what,
            item->valuestring[0] ? item->valuestring : "none", have[0] ? have : "none", advice);
    return 0;
}

/* What decides which samples come next, and what becomes of them. States of 0.1 have no chain. */
static int check_order(const struct mr_loader *ld, const cJSON *root)
{
    static const char advice[] = ": use the same, or force-state";
    char order[ORDER_BYTES];
    if (ld->opts.force_state)
        return 0;
    int rc = check_text(root, "sampler", "sampler", order_text(ld, order), advice);
    if (rc < 0)
        return rc;
    if (ld->sampler->unnamed)
        mr_log(MR_LOG_WARNING,
               "state: %s may be another order than the state's: opts.name tells "
               "samplers apart",
               mr_sampler_text(ld->sampler));
    if (!cJSON_HasObjectItem(root, "chain"))
        return 0;
    char chain[CHAIN_BYTES];
    chain_text(ld, chain);
    return check_text(root, "chain", "transform chain", chain, advice);
}

static int check_identity(const struct mr_loader *ld, const cJSON *root)
{
    char fingerprint[32], seed[32];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, mr_dataset_fingerprint(ld->ds));
    snprintf(seed, sizeof seed, "%" PRIu64, ld->opts.seed);
    uint64_t version = 0;
    int rc = get_count(root, "millrace_state", &version);
    if (rc < 0)
        return rc;
    if (version != STATE_VERSION && version != STATE_VERSION_IN_ORDER)
        return mr_error_set(MR_ESTATE,
                            "state: version %" PRIu64 ", this library reads versions %d and %d",
                            version, STATE_VERSION_IN_ORDER, STATE_VERSION);
    rc = check_text(root, "dataset", "data set (fingerprint)", fingerprint, "");
    if (rc < 0)
        return rc;
    rc = check_order(ld, root);
    return rc < 0 ? rc : check_text(root, "seed", "seed", seed, "");
}

static int read_place(const struct mr_loader *ld, const cJSON *root, struct mr_state *out)
{
    uint64_t length = samples_of(ld), samples = 0;
    int rc = get_count(root, "samples", &samples);
    if (rc < 0)
        return rc;
    if (samples != length)
        return mr_error_set(MR_ESTATE,
                            "state: an epoch has %" PRIu64 " samples there, %" PRIu64 " here",
                            samples, length);
    rc = get_count(root, "epoch", &out->epoch);
    if (rc < 0)
        return rc;
    rc = get_count(root, "position", &out->position);
    if (rc < 0)
        return rc;
    rc = get_count(root, "bad_samples", &out->bad_samples);
    if (rc < 0)
        return rc;
    bool any = ld->sampler->max_batch > 0 || ld->ds->ops->iterable; /* see mr_epochs_create() */
    if (out->position <= length || any)
        return 0;
    return mr_error_set(MR_ESTATE,
                        "state: position %" PRIu64 " is past the epoch's %" PRIu64 " samples",
                        out->position, length);
}

int mr_state_load(const struct mr_loader *ld, const char *text, struct mr_state *out)
{
    const char *end = text;
    cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
    if (!root)
        return mr_error_set(MR_ESTATE, "state: not JSON at byte %td: '%.20s'", end ? end - text : 0,
                            end ? end : "");
    struct mr_state state = {0};
    int rc = cJSON_IsObject(root) ? 0 : mr_error_set(MR_ESTATE, "state: not a JSON object");
    if (rc < 0)
        goto end;
    rc = check_identity(ld, root);
    if (rc < 0)
        goto end;
    rc = read_place(ld, root, &state);
    if (rc < 0)
        goto end;
    rc = mr_unfinished_read(ld, root, &state);
    if (rc < 0)
        goto end;
    *out = state;
end:
    cJSON_Delete(root);
    return rc;
}
