/* The critical path: a walk back from the end of the last step. path.h says from where to where. */
#include "recording/path.h"
#include "recording/big.h"
#include "recording/comm.h"

#include <errno.h>
#include <string.h>

#define START_NS  10000  /* an operation begins so soon after what it waited for */
#define FULL_NS   100000 /* a launch that takes so long waits for room in the queue */
#define NEAR      16     /* calls of the system between two of the device's API */
#define MOST_IDLE 4096   /* moves without progress: only broken times need so many */

/* Where in a thread's log, which is read backwards. */
struct cursor {
    uint64_t doing, scope; /* the first that ends at t or later */
};

struct walk {
    const struct mr_look *look;
    const struct mr_data_waits *data;
    const struct mr_streams *streams;
    int (*visit)(void *user, const struct mr_path_piece *piece);
    void *user;
    struct mr_path_piece last; /* not yet shown: what is alike joins it */
    struct cursor *cursors;    /* of look->logs */
    uint64_t *burst_ns;        /* of look->logs */
    signed char *comm;         /* of strings: -1 no, 1 yes, 0 not known yet */
    uint64_t t, from_ns;
    uint32_t log; /* of look->logs; n_logs: of a thread that is not known */
    uint32_t op;  /* of look->ops: its work up to t; MR_NONE: on the thread */
};

const char *mr_path_text(int class)
{
    return class < MR_N_IDLE       ? mr_idle_text((enum mr_idle_class) class)
           : class == MR_PATH_COPY ? "copies"
                                   : "compute";
}

const char *mr_path_name(const struct mr_recording *rec, const struct mr_path_piece *piece,
                         char *buf, size_t bytes)
{
    const struct mr_rec_op *op = piece->op < rec->n_ops ? &rec->ops[piece->op] : NULL;
    const char *name = mr_rec_text(rec, piece->name);
    if (op && piece->class == MR_IDLE_LAUNCH)
        snprintf(buf, bytes, "start of work");
    else if (op && op->kind == MR_OP_COPY)
        snprintf(buf, bytes, "copy %s", mr_copy_kind_text(op->copy_kind));
    else if (op && op->kind == MR_OP_SET)
        snprintf(buf, bytes, "memset");
    else if (op)
        snprintf(buf, bytes, "%s", mr_rec_text(rec, op->name));
    else if (piece->class == MR_IDLE_UNEXPLAINED)
        snprintf(buf, bytes, "not recorded");
    else
        snprintf(buf, bytes, "%s", *name ? name : "own code");
    return *buf ? buf : "(no name)";
}

/* ---- pieces, the last one first ---- */

static int show(struct walk *w)
{
    return w->last.end_ns > w->last.start_ns ? w->visit(w->user, &w->last) : 0;
}

/* What is before t becomes the piece [start_ns, t). */
static int put(struct walk *w, uint64_t start_ns, int class, uint32_t op, uint32_t name)
{
    struct mr_path_piece *last = &w->last;
    start_ns = MR_MAX(start_ns, w->from_ns);
    if (start_ns >= w->t)
        return 0;
    uint64_t end_ns = w->t;
    w->t = start_ns;
    if (last->end_ns > last->start_ns && op == MR_NONE && last->op == MR_NONE &&
        last->class == class && last->name == name && name == 0) {
        last->start_ns = start_ns;
        return 0;
    }
    int rc = show(w);
    *last = (struct mr_path_piece){start_ns, end_ns, op, name, (uint8_t) class};
    return rc;
}

static bool communicates(struct walk *w, uint32_t string)
{
    if (string == 0 || string >= w->look->rec->n_strings)
        return false;
    if (w->comm[string] == 0)
        w->comm[string] = mr_name_communicates(mr_rec_text(w->look->rec, string)) ? 1 : -1;
    return w->comm[string] > 0;
}

/* ---- on the device ---- */

static const struct mr_rec_op *op_at(const struct walk *w, uint32_t i)
{
    return &w->look->rec->ops[w->look->ops[i]];
}

static uint32_t log_of(const struct mr_look *look, uint32_t thread)
{
    uint32_t l = 0;
    while (l < look->n_logs && look->logs[l].thread != thread)
        l++;
    return l;
}

/* When its call had given it to the device; 0: not known. */
static uint64_t given_ns(const struct walk *w, const struct mr_rec_op *op, uint32_t *out_log)
{
    const struct mr_recording *rec = w->look->rec;
    if (op->api >= rec->n_apis || rec->apis[op->api].start_ns > w->t)
        return 0;
    *out_log = log_of(w->look, rec->apis[op->api].thread);
    return *out_log < w->look->n_logs ? MR_MIN(rec->apis[op->api].end_ns, w->t) : 0;
}

/* What the operation waited for until t, when it began. */
static int before_start(struct walk *w, uint32_t i)
{
    uint32_t log = 0, before = w->streams->before[i], stream = w->streams->of[i];
    uint64_t given = given_ns(w, op_at(w, i), &log);
    uint64_t free_ns = before == MR_NONE ? 0 : MR_MIN(op_at(w, before)->end_ns, w->t);
    uint64_t ready = MR_MAX(given, free_ns);
    if (w->t > ready + START_NS) {
        uint32_t other = mr_streams_ended(w->look, w->streams, MR_NONE, stream,
                                          MR_MAX(ready, w->t - START_NS - 1), w->t);
        if (ready == 0 && other == MR_NONE)
            other = mr_streams_ended(w->look, w->streams, MR_NONE, MR_NONE, 0, w->t);
        if (other != MR_NONE) {
            before = other;
            given = 0;
            free_ns = op_at(w, other)->end_ns;
        }
    }
    w->op = given >= free_ns ? MR_NONE : before;
    w->log = log;
    bool known = given > 0 || w->look->has_calls;
    if (given == 0 && free_ns == 0)
        return put(w, 0, MR_IDLE_UNEXPLAINED, MR_NONE, 0);
    return put(w, MR_MAX(given, free_ns), known ? MR_IDLE_LAUNCH : MR_IDLE_UNEXPLAINED,
               known ? w->look->ops[i] : MR_NONE, 0);
}

static int step_device(struct walk *w)
{
    uint32_t i = w->op;
    const struct mr_rec_op *op = op_at(w, i);
    int class = !mr_op_computes(op) ? MR_PATH_COPY : MR_PATH_COMPUTE;
    if (op->kind == MR_OP_KERNEL && communicates(w, op->name))
        class = MR_IDLE_COMMUNICATION;
    int rc = put(w, op->start_ns, class, w->look->ops[i], 0);
    return rc || w->t <= w->from_ns ? rc : before_start(w, i);
}

/* ---- on a thread ---- */

/* Of the place, as a number of look->ops; MR_NONE: another place's. */
static uint32_t in_look(const struct mr_look *look, uint32_t op)
{
    uint64_t low = 0, high = look->n_ops;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (look->ops[mid] >= op)
            high = mid;
        else
            low = mid + 1;
    }
    return low < look->n_ops && look->ops[low] == op ? (uint32_t)low : MR_NONE;
}

static uint32_t last_op(const struct walk *w, const struct mr_rec_api *api)
{
    const struct mr_recording *rec = w->look->rec;
    return api->n_ops ? in_look(w->look, rec->op_of_api[api->first_op + api->n_ops - 1]) : MR_NONE;
}

/* The stream that a call waited for, where that was recorded; MR_NONE: any. */
static uint32_t synced_stream(const struct walk *w, const struct mr_rec_api *api)
{
    enum { STREAM_SYNCHRONIZE = 3 }; /* CUpti_ActivitySynchronizationType */
    const struct mr_recording *rec = w->look->rec;
    uint32_t index = (uint32_t)(api - rec->apis);
    uint64_t low = 0, high = rec->n_syncs;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (rec->syncs[mid].start_ns >= api->start_ns)
            high = mid;
        else
            low = mid + 1;
    }
    for (; low < rec->n_syncs && rec->syncs[low].start_ns <= api->end_ns; low++) {
        const struct mr_rec_sync *sync = &rec->syncs[low];
        if (sync->api != index || sync->type != STREAM_SYNCHRONIZE)
            continue;
        uint64_t key = (uint64_t)sync->context << 32 | sync->stream;
        for (uint32_t s = 0; s < w->streams->n; s++)
            if (w->streams->key[s] == key)
                return s;
    }
    return MR_NONE;
}

/* The operation whose end, at t or before, let the call go on; MR_NONE: it waited for none. */
static uint32_t waited_for(const struct walk *w, const struct mr_doing *doing)
{
    const struct mr_recording *rec = w->look->rec;
    const struct mr_rec_api *api = &rec->apis[doing->index];
    uint32_t own = last_op(w, api), stream = own == MR_NONE ? MR_NONE : w->streams->of[own];
    uint64_t from = doing->start_ns;
    switch ((enum mr_call_class)doing->class) {
    case MR_CALL_SYNC:
        stream = synced_stream(w, api);
        break;
    case MR_CALL_COPY:
    case MR_CALL_SET:
        if (own == MR_NONE || !mr_api_holds(rec, api))
            return MR_NONE;
        break;
    case MR_CALL_ALLOC:
    case MR_CALL_PIN:
        if (!mr_api_holds(rec, api) || !strstr(mr_rec_text(rec, api->name), "Free"))
            return MR_NONE;
        stream = MR_NONE;
        break;
    case MR_CALL_LAUNCH:
    case MR_CALL_GRAPH_LAUNCH:
        if (own == MR_NONE || api->end_ns - api->start_ns < FULL_NS)
            return MR_NONE;
        break;
    default:
        return MR_NONE;
    }
    return mr_streams_ended(w->look, w->streams, stream, MR_NONE, from, w->t);
}

/* What a thread did until t: in a call, or after one. */
struct moment {
    uint64_t at; /* of doing: the call, or the next one */
    bool inside;
};

static struct moment moment_of(const struct walk *w, uint32_t l)
{
    const struct mr_thread_log *log = &w->look->logs[l];
    uint64_t *at = &w->cursors[l].doing;
    while (*at > 0 && log->doing[*at - 1].end_ns >= w->t)
        --*at;
    return (struct moment){*at, *at < log->n_doings && log->doing[*at].start_ns < w->t};
}

/* While the thread waits from `from_ns` on: the other thread that did something last;
 * n_logs: none. [out] at_ns: when it had done that: t, or where it began to wait itself. */
static uint32_t other_thread(const struct walk *w, uint64_t from_ns, uint64_t *at_ns)
{
    const struct mr_look *look = w->look;
    uint32_t most = look->n_logs;
    for (uint32_t l = 0; l < look->n_logs; l++) {
        const struct mr_thread_log *log = &look->logs[l];
        struct moment m = moment_of(w, l);
        bool waits = m.inside && log->doing[m.at].waits == 1;
        uint64_t end = waits ? log->doing[m.at].start_ns : w->t;
        if (!m.inside)
            end = m.at > 0 ? log->doing[m.at - 1].end_ns : 0;
        if (l == w->log || end <= from_ns)
            continue;
        from_ns = end;
        *at_ns = waits ? end : w->t;
        most = l;
    }
    return most;
}

/* The innermost range before t on the thread: its text, and since when. */
static uint32_t scope_before(const struct walk *w, uint64_t *from_ns)
{
    const struct mr_thread_log *log = &w->look->logs[w->log];
    uint64_t *at = &w->cursors[w->log].scope;
    while (*at > 0 && log->scope[*at - 1].end_ns >= w->t)
        --*at;
    bool inside = *at < log->n_scopes && log->scope[*at].start_ns < w->t;
    if (inside)
        *from_ns = MR_MAX(*from_ns, log->scope[*at].start_ns);
    else if (*at > 0)
        *from_ns = MR_MAX(*from_ns, log->scope[*at - 1].end_ns);
    return inside ? log->scope[*at].text : 0;
}

/* The name of a wait for data: its range, or the call of the system. */
static uint32_t wait_name(const struct walk *w)
{
    const struct mr_thread_log *log = &w->look->logs[w->log];
    uint64_t from_ns = 0;
    struct moment m = moment_of(w, w->log);
    uint32_t range = scope_before(w, &from_ns);
    return range ? range : m.inside ? log->doing[m.at].name : 0;
}

/* Own code before the call `next`: between two launches of a burst it is launch overhead. */
static enum mr_idle_class own_class(const struct walk *w, const struct mr_thread_log *log,
                                    uint64_t next)
{
    const struct mr_doing *after = NULL, *before = NULL;
    bool holds = false;
    if (!w->look->has_calls || (next == 0 && log->n_scopes == 0))
        return MR_IDLE_UNEXPLAINED;
    for (uint64_t i = next; !after && i < log->n_doings && i < next + NEAR; i++)
        after = log->doing[i].what == MR_DOING_API ? &log->doing[i] : NULL;
    for (uint64_t i = next; !before && i > 0 && i + NEAR > next; i--)
        before = log->doing[i - 1].what == MR_DOING_API ? &log->doing[i - 1] : NULL;
    if (!before || !after || after->class == MR_CALL_SYNC)
        return MR_IDLE_HOST;
    (void)mr_idle_of_call(w->look->rec, before->index, &holds);
    return !holds && after->start_ns - before->end_ns <= w->burst_ns[w->log] ? MR_IDLE_LAUNCH
                                                                             : MR_IDLE_HOST;
}

static int step_call(struct walk *w, const struct mr_doing *doing, uint64_t floor_ns)
{
    uint64_t from = MR_MAX(doing->start_ns, floor_ns);
    bool holds;
    if (doing->what == MR_DOING_OS) {
        uint32_t other = doing->waits == 1 ? other_thread(w, from, &from) : w->look->n_logs;
        if (other < w->look->n_logs)
            w->log = other;
        return put(w, from, communicates(w, doing->name) ? MR_IDLE_COMMUNICATION : MR_IDLE_OS,
                   MR_NONE, doing->name);
    }
    int class = (int)mr_idle_of_call(w->look->rec, doing->index, &holds);
    uint32_t op = waited_for(w, doing);
    uint64_t ended = op == MR_NONE ? 0 : op_at(w, op)->end_ns;
    if (op == MR_NONE || ended < from)
        return put(w, from, class, MR_NONE, doing->name);
    w->op = op;
    return put(w, ended, class, MR_NONE, doing->name);
}

static int step_thread(struct walk *w)
{
    const struct mr_intervals *waits = &w->data->at;
    uint64_t floor_ns = w->from_ns;
    if (w->log >= w->look->n_logs) {
        uint32_t op = mr_streams_ended(w->look, w->streams, MR_NONE, MR_NONE, 0, w->t);
        w->op = op;
        return put(w, op == MR_NONE ? 0 : op_at(w, op)->end_ns, MR_IDLE_UNEXPLAINED, MR_NONE, 0);
    }
    const struct mr_thread_log *log = &w->look->logs[w->log];
    if (log->thread == w->look->place.thread) {
        size_t i = mr_intervals_find(waits, w->t - 1);
        if (i < waits->n && waits->at[i].start_ns < w->t)
            return put(w, waits->at[i].start_ns, MR_IDLE_LOADER, MR_NONE, wait_name(w));
        if (i > 0)
            floor_ns = MR_MAX(floor_ns, waits->at[i - 1].end_ns);
    }
    struct moment m = moment_of(w, w->log);
    if (m.inside)
        return step_call(w, &log->doing[m.at], floor_ns);
    if (m.at > 0)
        floor_ns = MR_MAX(floor_ns, log->doing[m.at - 1].end_ns);
    if (!w->look->has_os && w->t > floor_ns + w->burst_ns[w->log]) {
        uint64_t at_ns;
        uint32_t other = other_thread(w, floor_ns, &at_ns);
        if (other < w->look->n_logs) {
            w->log = other;
            return 0;
        }
    }
    uint32_t name = scope_before(w, &floor_ns);
    int class = communicates(w, name) ? MR_IDLE_COMMUNICATION : (int)own_class(w, log, m.at);
    return put(w, floor_ns, class, MR_NONE, class == MR_IDLE_UNEXPLAINED ? 0 : name);
}

/* ---- the whole ---- */

/* The thread that marks steps; where the device's work does, or nothing, the work. */
static void begin(struct walk *w)
{
    const struct mr_look *look = w->look;
    w->t = look->in.at[look->in.n - 1].end_ns;
    w->from_ns = look->in.at[0].start_ns;
    w->op = MR_NONE;
    w->log = look->place.thread == MR_NONE ? look->n_logs : 0;
    if (look->steps.n > 0 && look->steps.method != MR_STEPS_PERIOD)
        return;
    uint32_t op = mr_streams_ended(look, w->streams, MR_NONE, MR_NONE, 0, w->t);
    uint64_t next = mr_look_op_from(look, w->t);
    if (op != MR_NONE && op_at(w, op)->end_ns == w->t)
        w->op = op;
    else if (next < look->n_ops && op_at(w, (uint32_t)next)->start_ns == w->t)
        w->op = (uint32_t)next;
}

static int follow(struct walk *w)
{
    uint32_t still = 0;
    int rc = 0;
    while (!rc && w->t > w->from_ns) {
        uint64_t t = w->t;
        rc = w->op == MR_NONE ? step_thread(w) : step_device(w);
        still = w->t == t ? still + 1 : 0;
        if (!rc && still > MOST_IDLE)
            rc = put(w, w->t - 1, MR_IDLE_UNEXPLAINED, MR_NONE, 0);
    }
    return rc;
}

static int begin_logs(struct walk *w, const uint64_t *burst_ns)
{
    const struct mr_look *look = w->look;
    int rc = 0;
    for (uint32_t l = 0; !rc && l < look->n_logs; l++) {
        w->cursors[l] = (struct cursor){look->logs[l].n_doings, look->logs[l].n_scopes};
        if (burst_ns)
            w->burst_ns[l] = burst_ns[l];
        else
            rc = mr_burst_find(look, &look->logs[l], &w->burst_ns[l]);
    }
    return rc;
}

int mr_path_walk(const struct mr_look *look, const struct mr_streams *streams,
                 const struct mr_data_waits *data, const uint64_t *burst_ns,
                 int (*visit)(void *user, const struct mr_path_piece *piece), void *user)
{
    struct walk w = {.look = look, .data = data, .streams = streams, .visit = visit, .user = user};
    int rc = 0;
    if (look->in.n == 0)
        return 0;
    w.burst_ns = calloc((size_t)look->n_logs + 1, sizeof *w.burst_ns);
    w.cursors = calloc((size_t)look->n_logs + 1, sizeof *w.cursors);
    w.comm = calloc((size_t)look->rec->n_strings + 1, sizeof *w.comm);
    if (!w.burst_ns || !w.cursors || !w.comm) {
        rc = mr_error_nomem("a path", look->rec->n_strings);
        goto end;
    }
    rc = begin_logs(&w, burst_ns);
    if (rc)
        goto end;
    begin(&w);
    rc = follow(&w);
    rc = rc ? rc : show(&w);
end:
    free(w.burst_ns);
    free(w.cursors);
    free(w.comm);
    return rc;
}

/* ---- as a list ---- */

static int keep(void *user, const struct mr_path_piece *piece)
{
    struct mr_path *out = user;
    if (mr_big_grow("a path", &out->at, &out->capacity, out->n + 1, sizeof *out->at) < 0)
        return -ENOMEM;
    out->at[out->n++] = *piece;
    return 0;
}

static void turn(struct mr_path *path)
{
    for (uint64_t i = 0, k = path->n; i + 1 < k; i++) {
        struct mr_path_piece first = path->at[i];
        path->at[i] = path->at[--k];
        path->at[k] = first;
    }
}

int mr_path_find(const struct mr_look *look, const struct mr_data_waits *data, struct mr_path *out)
{
    struct mr_streams streams;
    *out = (struct mr_path){0};
    int rc = mr_streams_make(look, &streams);
    if (rc)
        return rc;
    rc = mr_path_walk(look, &streams, data, NULL, keep, out);
    turn(out);
    mr_streams_free(&streams);
    if (rc)
        mr_path_free(out);
    return rc;
}

/* How long the device has yet to do at a time, of what it was given by then. */
static uint64_t backlog_ns(const struct mr_look *look, uint64_t time_ns)
{
    const struct mr_recording *rec = look->rec;
    uint64_t end_ns = time_ns;
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[look->ops[i]];
        if (op->end_ns > end_ns && op->api < rec->n_apis && rec->apis[op->api].start_ns < time_ns)
            end_ns = op->end_ns;
    }
    return end_ns - time_ns;
}

uint64_t mr_path_behind_ns(const struct mr_look *look)
{
    if (look->in.n == 0)
        return 0;
    uint64_t before = backlog_ns(look, look->in.at[0].start_ns),
             after = backlog_ns(look, look->in.at[look->in.n - 1].end_ns);
    return after > before ? after - before : 0;
}

void mr_path_free(struct mr_path *path)
{
    mr_big_free(path->at);
    *path = (struct mr_path){0};
}

uint64_t mr_path_at(const struct mr_path *path, uint64_t time_ns)
{
    uint64_t low = 0, high = path->n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (path->at[mid].end_ns > time_ns)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

void mr_path_add_up(const struct mr_path *path, uint64_t from_ns, uint64_t to_ns,
                    uint64_t ns[MR_N_PATH])
{
    for (uint64_t i = mr_path_at(path, from_ns); i < path->n && path->at[i].start_ns < to_ns; i++) {
        const struct mr_path_piece *p = &path->at[i];
        ns[p->class] += MR_MIN(p->end_ns, to_ns) - MR_MAX(p->start_ns, from_ns);
    }
}
