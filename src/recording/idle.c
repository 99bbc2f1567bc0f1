/* Why a device idles: each piece of idle time gets the first class that holds (idle.h). */
#include "recording/idle.h"
#include "recording/big.h"
#include "recording/comm.h"
#include "recording/overlap.h"

#include <errno.h>
#include <string.h>

#define RESTART_NS   100000   /* after a call that held the thread: the queue is refilled */
#define BURST_NS     100000   /* shorter pauses between launches never end a burst */
#define BURST_PAUSES 10       /* median pauses that do */
#define BURST_SHARE  20       /* of a step: a pause of a 20th always does */
#define NO_STEP_NS   10000000 /* the longest pause without steps */

const char *mr_idle_text(enum mr_idle_class class)
{
    static const char *const text[] = {
        [MR_IDLE_LOADER] = "waiting for the loader",
        [MR_IDLE_COMMUNICATION] = "communication",
        [MR_IDLE_SYNC] = "read-back or synchronization",
        [MR_IDLE_COPY] = "copy calls",
        [MR_IDLE_SETUP] = "allocation and loading of code",
        [MR_IDLE_LAUNCH] = "launch overhead",
        [MR_IDLE_SWITCH] = "switch between processes",
        [MR_IDLE_OS] = "operating system",
        [MR_IDLE_HOST] = "host code",
        [MR_IDLE_UNEXPLAINED] = "unexplained",
    };
    return text[class];
}

enum mr_idle_class mr_idle_most(const uint64_t ns[MR_N_IDLE])
{
    enum mr_idle_class most = 0;
    for (int i = 1; i < MR_N_IDLE; i++)
        if (ns[i] > ns[most])
            most = (enum mr_idle_class)i;
    return most;
}

/* ---- bursts ---- */

static bool launches(const struct mr_doing *doing)
{
    return doing->what == MR_DOING_API &&
           (doing->class == MR_CALL_LAUNCH || doing->class == MR_CALL_GRAPH_LAUNCH);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Pauses between two calls that end a burst of launches: ten median ones of the thread, between
 * 100 us and 5% of a step. */
int mr_burst_find(const struct mr_look *look, const struct mr_thread_log *log, uint64_t *out_ns)
{
    uint64_t n = 0, longest = NO_STEP_NS,
             *pause = mr_big_alloc("pauses", log->n_doings + 1, sizeof *pause);
    const struct mr_doing *last = NULL;
    if (look->n_steps > 0)
        longest = MR_MAX(look->wall_ns / look->n_steps / BURST_SHARE, (uint64_t)BURST_NS);
    if (!pause)
        return -ENOMEM;
    for (uint64_t i = 0; i < log->n_doings; i++) {
        if (!launches(&log->doing[i]))
            continue;
        if (last)
            pause[n++] = log->doing[i].start_ns - last->end_ns;
        last = &log->doing[i];
    }
    mr_big_sort(pause, n, sizeof *pause, by_number);
    uint64_t usual = n > 0 ? pause[n / 2] * BURST_PAUSES : 0;
    mr_big_free(pause);
    *out_ns = MR_MIN(MR_MAX(usual, (uint64_t)BURST_NS), longest);
    return 0;
}

/* ---- sorting ---- */

struct thread_facts {
    uint64_t burst_ns, first_ns, last_ns; /* what is recorded of it lies between these */
    /* The last time asked for, and the API calls around it: what a later one begins with. */
    uint64_t at, before, next; /* before: index + 1; 0: none */
};

struct sort {
    const struct mr_look *look;
    const struct mr_data_waits *data;
    struct thread_facts *facts; /* of look->logs */
    signed char *comm;          /* of strings: -1 no, 1 yes, 0 not known yet */
    struct mr_blames blames;
    struct mr_idle *out;
    /* of the gap at hand */
    uint64_t given_ns;        /* from here on the next operation was the device's */
    enum mr_idle_class given; /* what that time is */
    uint32_t held;            /* of apis: the call whose restart it is; MR_NONE */
    uint64_t left_ns;         /* of the restart */
    enum mr_idle_class held_class;
};

static int put(struct sort *s, uint64_t start_ns, uint64_t end_ns, enum mr_idle_class class,
               uint32_t call, bool after)
{
    struct mr_idle *out = s->out;
    if (end_ns <= start_ns)
        return 0;
    if (mr_big_grow("idle times", &out->at, &out->capacity, out->n + 1, sizeof *out->at) < 0)
        return -ENOMEM;
    out->at[out->n++] = (struct mr_idle_piece){start_ns, end_ns, call, (uint8_t) class, after};
    return 0;
}

static bool communicates(struct sort *s, uint32_t string)
{
    const struct mr_recording *rec = s->look->rec;
    if (string == 0 || string >= rec->n_strings || !rec->strings[string])
        return false;
    if (s->comm[string] == 0)
        s->comm[string] = mr_name_communicates(rec->strings[string]) ? 1 : -1;
    return s->comm[string] > 0;
}

enum mr_idle_class mr_idle_of_call(const struct mr_recording *rec, uint32_t index, bool *out_holds)
{
    const struct mr_rec_api *api = &rec->apis[index];
    bool holds = mr_api_holds(rec, api);
    *out_holds = holds;
    switch ((enum mr_call_class)api->class) {
    case MR_CALL_SYNC:
        return MR_IDLE_SYNC;
    case MR_CALL_COPY:
        return holds && mr_api_reads_back(rec, api) ? MR_IDLE_SYNC : MR_IDLE_COPY;
    case MR_CALL_SET:
        return MR_IDLE_COPY;
    case MR_CALL_ALLOC:
    case MR_CALL_PIN:
    case MR_CALL_MODULE:
        return MR_IDLE_SETUP;
    default:
        return MR_IDLE_LAUNCH;
    }
}

/* The API calls around a time in a thread's own code: both there, and the pause not too long. */
static bool in_burst(const struct sort *s, uint32_t l, uint64_t time_ns)
{
    const struct mr_thread_log *log = &s->look->logs[l];
    struct thread_facts *f = &s->facts[l];
    uint64_t limit = f->burst_ns, at = mr_doing_at(log, time_ns);
    if (at < f->at)
        f->before = f->next = 0;
    f->at = at;
    for (; f->next < log->n_doings && (f->next < at || log->doing[f->next].what != MR_DOING_API);
         f->next++)
        if (log->doing[f->next].what == MR_DOING_API)
            f->before = f->next + 1;
    uint64_t next = f->next, before = f->before;
    if (next == log->n_doings || before == 0)
        return false;
    bool holds;
    (void)mr_idle_of_call(s->look->rec, log->doing[before - 1].index, &holds);
    return !holds && log->doing[next].class != MR_CALL_SYNC &&
           log->doing[next].start_ns - log->doing[before - 1].end_ns <= limit;
}

static uint32_t log_of(const struct mr_look *look, uint32_t thread)
{
    uint32_t l = 0;
    while (l < look->n_logs && look->logs[l].thread != thread)
        l++;
    return l;
}

static enum mr_idle_class own_class(const struct sort *s, const struct mr_blame *b, uint64_t at_ns)
{
    uint32_t l = log_of(s->look, b->thread);
    if (!s->look->has_calls || l == s->look->n_logs || at_ns < s->facts[l].first_ns ||
        at_ns >= s->facts[l].last_ns)
        return MR_IDLE_UNEXPLAINED;
    return in_burst(s, l, at_ns) ? MR_IDLE_LAUNCH : MR_IDLE_HOST;
}

/* A shorter call after one that held, such as a wait for what is done, changes nothing. */
static void hold(struct sort *s, uint32_t index, enum mr_idle_class class)
{
    const struct mr_rec_api *call = &s->look->rec->apis[index];
    uint64_t busy_ns = call->end_ns - call->start_ns -
                       mr_intervals_within(&s->look->idle, call->start_ns, call->end_ns);
    uint64_t own_ns = MR_MIN(busy_ns, (uint64_t)RESTART_NS);
    if (s->held != MR_NONE && own_ns <= s->left_ns)
        return;
    s->held = index;
    s->held_class = class;
    s->left_ns = own_ns;
}

/* A piece in which nothing is waited for and the thread does one thing. */
static int put_done(struct sort *s, const struct mr_blame *b, uint64_t start_ns, uint64_t end_ns)
{
    bool api = b->what == MR_DOING_API, holds = false;
    enum mr_idle_class class = MR_IDLE_OS;
    if (communicates(s, b->range) || (b->what != MR_DOING_OWN && communicates(s, b->name)))
        return put(s, start_ns, end_ns, MR_IDLE_COMMUNICATION, MR_NONE, false);
    if (api)
        class = mr_idle_of_call(s->look->rec, b->index, &holds);
    else if (b->what == MR_DOING_OWN)
        class = own_class(s, b, start_ns);
    bool restart = s->held != MR_NONE && !holds && class != MR_IDLE_OS;
    uint64_t until = restart ? start_ns + MR_MIN(s->left_ns, end_ns - start_ns) : start_ns;
    s->left_ns -= until - start_ns;
    int rc = put(s, start_ns, until, s->held_class, s->held, true);
    bool given = end_ns > until && until >= s->given_ns;
    if (!rc)
        rc = put(s, until, end_ns, given ? s->given : class, given || !api ? MR_NONE : b->index,
                 false);
    if (holds && !given)
        hold(s, b->index, class);
    return rc;
}

/* Cuts where waits for data begin and end, and where the next operation became the device's. */
static int put_piece(struct sort *s, const struct mr_blame *b)
{
    const struct mr_intervals *waits = &s->data->at;
    size_t w = mr_intervals_find(waits, b->start_ns);
    int rc = 0;
    for (uint64_t at = b->start_ns, end; rc == 0 && at < b->end_ns; at = end) {
        bool inside = w < waits->n && waits->at[w].start_ns <= at;
        end = b->end_ns;
        if (w < waits->n)
            end = MR_MIN(end, inside ? waits->at[w].end_ns : waits->at[w].start_ns);
        if (inside) {
            s->held = MR_NONE;
            rc = put(s, at, end, MR_IDLE_LOADER, MR_NONE, false);
            w += end == waits->at[w].end_ns;
            continue;
        }
        if (at < s->given_ns)
            end = MR_MIN(end, s->given_ns);
        rc = put_done(s, b, at, end);
    }
    return rc;
}

/* From when on the operation that ends the gap was given to the device: it was idle for reasons of
 * its own. */
static void find_given(struct sort *s, const struct mr_interval *gap)
{
    const struct mr_look *look = s->look;
    uint64_t at = mr_look_op_from(look, gap->end_ns);
    const struct mr_rec_op *op = at < look->n_ops ? &look->rec->ops[look->ops[at]] : NULL;
    s->held = MR_NONE;
    s->given = MR_IDLE_LAUNCH;
    s->given_ns = gap->end_ns;
    if (!op || op->api >= look->rec->n_apis)
        return;
    s->given_ns = MR_MIN(MR_MAX(look->rec->apis[op->api].end_ns, gap->start_ns), gap->end_ns);
    const struct mr_intervals *others = &look->others;
    size_t o = gap->start_ns > 0 ? mr_intervals_find(others, gap->start_ns - 1) : others->n;
    if (o < others->n && others->at[o].end_ns == gap->start_ns)
        s->given = MR_IDLE_SWITCH;
}

static int sort_gap(struct sort *s, const struct mr_interval *gap)
{
    s->blames.n = 0;
    int rc = mr_blame_idle(s->look, gap->start_ns, gap->end_ns, &s->blames);
    find_given(s, gap);
    for (uint64_t i = 0; rc == 0 && i < s->blames.n; i++)
        rc = put_piece(s, &s->blames.at[i]);
    return rc;
}

static int learn_thread(const struct mr_look *look, const struct mr_thread_log *log,
                        struct thread_facts *out)
{
    uint64_t n = log->n_doings, k = log->n_scopes;
    *out = (struct thread_facts){.first_ns = UINT64_MAX};
    if (n > 0) {
        out->first_ns = log->doing[0].start_ns;
        out->last_ns = log->doing[n - 1].end_ns;
    }
    if (k > 0) {
        out->first_ns = MR_MIN(out->first_ns, log->scope[0].start_ns);
        out->last_ns = MR_MAX(out->last_ns, log->scope[k - 1].end_ns);
    }
    return mr_burst_find(look, log, &out->burst_ns);
}

int mr_idle_sort(const struct mr_look *look, const struct mr_data_waits *data, struct mr_idle *out)
{
    struct sort s = {.look = look, .data = data, .out = out};
    int rc = 0;
    *out = (struct mr_idle){0};
    s.facts = calloc((size_t)look->n_logs + 1, sizeof *s.facts);
    s.comm = calloc((size_t)look->rec->n_strings + 1, sizeof *s.comm);
    out->burst_ns = calloc((size_t)look->n_logs + 1, sizeof *out->burst_ns);
    if (!s.facts || !s.comm || !out->burst_ns) {
        rc = mr_error_nomem("idle times", look->rec->n_strings);
        goto end;
    }
    for (uint32_t l = 0; rc == 0 && l < look->n_logs; l++) {
        rc = learn_thread(look, &look->logs[l], &s.facts[l]);
        out->burst_ns[l] = s.facts[l].burst_ns;
    }
    for (size_t i = 0; rc == 0 && i < look->idle.n; i++)
        rc = sort_gap(&s, &look->idle.at[i]);
end:
    free(s.facts);
    free(s.comm);
    mr_big_free(s.blames.at);
    if (rc)
        mr_idle_free(out);
    return rc;
}

void mr_idle_free(struct mr_idle *idle)
{
    mr_big_free(idle->at);
    free(idle->burst_ns);
    *idle = (struct mr_idle){0};
}

void mr_idle_add_up(const struct mr_idle *idle, uint64_t from_ns, uint64_t to_ns,
                    uint64_t ns[MR_N_IDLE])
{
    uint64_t low = 0, high = idle->n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (idle->at[mid].end_ns > from_ns)
            high = mid;
        else
            low = mid + 1;
    }
    for (; low < idle->n && idle->at[low].start_ns < to_ns; low++) {
        const struct mr_idle_piece *p = &idle->at[low];
        ns[p->class] += MR_MIN(p->end_ns, to_ns) - MR_MAX(p->start_ns, from_ns);
    }
}

/* ---- communication ---- */

int mr_comm_exposed(const struct mr_look *look, struct mr_intervals *out)
{
    const struct mr_recording *rec = look->rec;
    struct mr_intervals comm = {0}, other = {0}, alone = {0};
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[look->ops[i]];
        if (!mr_op_computes(op))
            continue;
        bool is = op->kind == MR_OP_KERNEL && op->name < rec->n_strings && rec->strings[op->name] &&
                  mr_name_communicates(rec->strings[op->name]);
        mr_intervals_add(is ? &comm : &other, op->start_ns, op->end_ns);
    }
    mr_intervals_unite(&comm);
    mr_intervals_unite(&other);
    mr_intervals_without(&comm, &other, &alone);
    mr_intervals_and(&alone, &look->in, out);
    mr_intervals_free(&comm);
    mr_intervals_free(&other);
    mr_intervals_free(&alone);
    return out->lost ? mr_error_nomem("intervals", look->n_ops * sizeof(struct mr_interval)) : 0;
}
