/* How far a recording can be believed: clocks that fit, steps enough and alike. */
#include "advice/rules.h"
#include "recording/big.h"
#include "recording/map.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SLACK_NS    1000  /* by which clocks of host and device may differ */
#define EARLY_SOME  0.001 /* of the operations, that begin before their calls: doubtful */
#define EARLY_MANY  0.1   /* of the operations, or of steps without work: nothing can be said */
#define STEPS_FULL  10    /* fewer make a verdict less sure */
#define STEPS_FIRST 0.5   /* of none */
#define SPREAD_MOST 0.5   /* the most that an uncertain mean takes off */

/* Operations that begin before the calls that gave them to the device. */
static void find_early(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    uint64_t n = 0, n_early = 0;
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->api >= look->rec->n_apis)
            continue;
        n++;
        n_early += op->start_ns + SLACK_NS < look->rec->apis[op->api].start_ns;
    }
    c->trust.early = n > 0 ? (double)n_early / (double)n : 0;
}

/* Steps that gave the device work while it had none at all in them. */
static int find_empty(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    uint64_t n_empty = 0;
    if (look->n_steps == 0)
        return 0;
    struct mr_intervals steps = {look->steps.at + look->n_warm, look->n_steps, 0, false};
    bool *gives = calloc(look->n_steps, sizeof *gives);
    if (!gives)
        return mr_error_nomem("steps", look->n_steps);
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
        if (op->api >= look->rec->n_apis)
            continue;
        uint64_t at_ns = look->rec->apis[op->api].start_ns;
        size_t step = mr_intervals_find(&steps, at_ns);
        if (step < steps.n && steps.at[step].start_ns <= at_ns)
            gives[step] = true;
    }
    for (size_t i = 0; i < steps.n; i++)
        n_empty += gives[i] &&
                   mr_intervals_within(&look->busy, steps.at[i].start_ns, steps.at[i].end_ns) == 0;
    c->trust.empty = (double)n_empty / (double)look->n_steps;
    free(gives);
    return 0;
}

/* ---- waits that return too early ---- */

struct late {
    struct mr_case *c;
    struct mr_map at; /* a thread's stream -> of ends */
    uint64_t *ends;   /* the last end of what the thread gave to it */
    uint64_t n, capacity, n_waits, n_late;
    bool several, one_stream; /* devices of the process; all its work is in one stream */
};

static uint64_t *end_of(struct late *late, uint32_t thread, uint64_t stream)
{
    uint64_t key = mr_mix64((uint64_t)thread << 34 ^ stream);
    bool is_new;
    const uint32_t *at = mr_map_at(&late->at, key, (uint32_t)late->n, &is_new);
    if (!at)
        return NULL;
    if (is_new) {
        if (mr_grow("waits", &late->ends, &late->capacity, late->n + 1, sizeof *late->ends) < 0)
            return NULL;
        late->ends[late->n++] = 0;
    }
    return &late->ends[*at];
}

#define ALL_STREAMS (1ull << 33)

static int late_given(struct late *late, const struct mr_rec_api *api)
{
    const struct mr_look *look = late->c->look;
    for (uint32_t i = 0; i < api->n_ops; i++) {
        const struct mr_rec_op *op = &look->rec->ops[look->rec->op_of_api[api->first_op + i]];
        const uint64_t streams[] = {op->stream, ALL_STREAMS};
        for (size_t k = 0; k < MR_COUNT(streams) && op->device == look->place.device; k++) {
            uint64_t *end = end_of(late, api->thread, streams[k]);
            if (!end)
                return -ENOMEM;
            *end = MR_MAX(*end, op->end_ns);
        }
    }
    return 0;
}

enum { SYNC_STREAM = 3, SYNC_CONTEXT = 4 };

/* Which of the thread's streams a call waits for; UINT64_MAX: none, or not known. */
static uint64_t waits_for(const struct late *late, const struct mr_rec_api *api,
                          const struct mr_rec_sync *sync)
{
    const char *name = mr_rec_text(late->c->look->rec, api->name);
    if (sync)
        return sync->type == SYNC_CONTEXT  ? ALL_STREAMS
               : sync->type == SYNC_STREAM ? sync->stream
                                           : UINT64_MAX;
    bool all = strstr(name, "DeviceSynchronize") || strstr(name, "CtxSynchronize") ||
               (late->one_stream && strstr(name, "StreamSynchronize"));
    return all ? ALL_STREAMS : UINT64_MAX;
}

static int late_waited(struct late *late, const struct mr_rec_api *api, uint64_t stream)
{
    uint64_t *end = end_of(late, api->thread, stream);
    if (!end)
        return -ENOMEM;
    late->n_waits += *end > 0;
    late->n_late += *end > api->end_ns + SLACK_NS;
    *end = 0;
    return 0;
}

/* [out] sync_of: of the calls: the recorder's own record of a wait. Not where several devices are
 * used: a wait for all is one for the thread's current device, which is not known. */
static void find_waits(struct late *late, uint32_t *sync_of)
{
    const struct mr_look *look = late->c->look;
    const struct mr_recording *rec = look->rec;
    uint32_t stream = MR_NONE;
    late->one_stream = true;
    for (uint64_t i = 0; i < rec->n_ops; i++) {
        if (rec->ops[i].process != look->place.process)
            continue;
        late->several = late->several || rec->ops[i].device != look->place.device;
        late->one_stream = late->one_stream && (stream == MR_NONE || stream == rec->ops[i].stream);
        stream = rec->ops[i].stream;
    }
    for (uint64_t i = 0; i < rec->n_apis; i++)
        sync_of[i] = MR_NONE;
    for (uint64_t i = 0; i < rec->n_syncs; i++)
        if (rec->syncs[i].api < rec->n_apis)
            sync_of[rec->syncs[i].api] = (uint32_t)i;
}

/* A thread that waited for a stream, or for all, does not go on while what it gave to it runs. */
static int find_late(struct mr_case *c)
{
    const struct mr_recording *rec = c->look->rec;
    struct late late = {.c = c};
    uint32_t *sync_of = mr_big_alloc("waits", rec->n_apis + 1, sizeof *sync_of);
    int rc = 0;
    if (!sync_of)
        return -ENOMEM;
    find_waits(&late, sync_of);
    for (uint64_t i = 0; i < rec->n_apis && rc == 0 && !late.several; i++) {
        const struct mr_rec_api *api = &rec->apis[i];
        if (api->process != c->look->place.process)
            continue;
        rc = late_given(&late, api);
        uint64_t stream =
            waits_for(&late, api, sync_of[i] == MR_NONE ? NULL : &rec->syncs[sync_of[i]]);
        if (rc == 0 && stream != UINT64_MAX)
            rc = late_waited(&late, api, stream);
    }
    c->trust.late = late.n_waits > 0 ? (double)late.n_late / (double)late.n_waits : 0;
    mr_map_free(&late.at);
    free(late.ends);
    mr_big_free(sync_of);
    return rc;
}

/* By how many steps there are, and by how well they tell the mean: its standard error. */
static void weigh_steps(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    double n = (double)look->n_steps, mean = (double)look->wall_ns / MR_MAX(n, 1.0), squares = 0;
    c->trust.steps = 1;
    if (look->n_steps == 0 || mean <= 0)
        return;
    for (uint64_t i = look->n_warm; i < look->steps.n; i++) {
        double off = (double)(look->steps.at[i].end_ns - look->steps.at[i].start_ns) - mean;
        squares += off * off;
    }
    double spread = n > 1 ? sqrt(squares / (n - 1)) / mean : 1;
    c->trust.error = spread / sqrt(n);
    c->trust.steps = (1 - MR_MIN(c->trust.error, SPREAD_MOST)) *
                     (n < STEPS_FULL ? STEPS_FIRST + (1 - STEPS_FIRST) * n / STEPS_FULL : 1);
}

int mr_trust_find(struct mr_case *c)
{
    find_early(c);
    weigh_steps(c);
    int rc = find_late(c);
    return rc ? rc : find_empty(c);
}

double mr_trust_factor(const struct mr_case *c)
{
    bool clocks =
        c->trust.early > EARLY_SOME || c->trust.empty > EARLY_SOME || c->trust.late > EARLY_SOME;
    return c->trust.steps * (mr_trust_none(c) ? 0.1 : clocks ? 0.5 : 1);
}

bool mr_trust_none(const struct mr_case *c)
{
    return c->trust.early > EARLY_MANY || c->trust.empty > EARLY_MANY || c->trust.late > EARLY_MANY;
}

size_t mr_trust_tell(const struct mr_case *c, char *out, size_t cap)
{
    const struct mr_trust *t = &c->trust;
    int n = 0;
    out[0] = 0;
    if (t->early > EARLY_SOME)
        n = snprintf(out, cap,
                     "%.1f%% of the device's operations begin before the calls that gave them to "
                     "it: the clocks of host and device do not fit",
                     100 * t->early);
    else if (t->empty > EARLY_SOME)
        n = snprintf(out, cap,
                     "%.0f%% of the steps gave the device work, but hold none of it: the clocks of "
                     "host and device do not fit, or work is missing",
                     100 * t->empty);
    else if (t->late > EARLY_SOME)
        n = snprintf(out, cap,
                     "%.1f%% of the waits for the device return before the work that they wait for "
                     "ends: the clocks of host and device do not fit",
                     100 * t->late);
    return n > 0 ? (size_t)n : 0;
}
