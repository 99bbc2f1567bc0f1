/* What threads did, and who is to blame for a device's idle time. */
#include "recording/big.h"
#include "recording/look.h"

#include <errno.h>
#include <string.h>

int mr_os_waits(const char *name)
{
    static const char *const waits[] = {
        "poll",           "ppoll",          "select",     "pselect",   "epoll",
        "futex",          "sem_wait",       "sem_timed",  "sem_clock", "pthread_cond_w",
        "pthread_cond_t", "pthread_cond_c", "pthread_cl", "nanosleep", "clock_nanosl",
        "usleep",         "sleep",          "wait",       "recv",      "accept",
        "pthread_join",   "pthread_mu",     "mq_",        "io_uring",  "sigwait",
        "sched_yi",       "pthread_rw",     "pthread_ba"};
    static const char *const reads[] = {"read", "pread", "fread",  "fgets",
                                        "open", "mmap",  "munmap", "fsync"};
    for (size_t i = 0; i < MR_COUNT(waits); i++)
        if (strncmp(name, waits[i], strlen(waits[i])) == 0)
            return 1;
    for (size_t i = 0; i < MR_COUNT(reads); i++)
        if (strncmp(name, reads[i], strlen(reads[i])) == 0)
            return 2;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct mr_doing *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    if (x->what != y->what)
        return x->what > y->what
                   ? -1
                   : 1; /* the API call that is as long as its system call comes first */
    return (x->index > y->index) - (x->index < y->index);
}

/* Leaves the outermost: of a call inside another one the part that sticks out, if any. */
static uint64_t outermost(struct mr_doing *doing, uint64_t n)
{
    uint64_t kept = 0, until = 0;
    mr_big_sort(doing, n, sizeof *doing, by_start);
    for (uint64_t i = 0; i < n; i++) {
        struct mr_doing d = doing[i];
        d.start_ns = MR_MAX(d.start_ns, until);
        if (d.end_ns <= d.start_ns)
            continue;
        until = d.end_ns;
        doing[kept++] = d;
    }
    return kept;
}

static int make_doings(const struct mr_recording *rec, struct mr_thread_log *log)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < rec->n_apis; i++)
        n += rec->apis[i].thread == log->thread;
    for (uint64_t i = 0; i < rec->n_os; i++)
        n += rec->os[i].thread == log->thread;
    log->doing = mr_big_alloc("a thread's calls", n + 1, sizeof *log->doing);
    if (!log->doing)
        return -ENOMEM;
    n = 0;
    for (uint64_t i = 0; i < rec->n_apis; i++) {
        const struct mr_rec_api *api = &rec->apis[i];
        if (api->thread == log->thread)
            log->doing[n++] = (struct mr_doing){api->start_ns, api->end_ns, api->name, (uint32_t)i,
                                                MR_DOING_API,  api->class,  0};
    }
    for (uint64_t i = 0; i < rec->n_os; i++) {
        const struct mr_rec_os *os = &rec->os[i];
        if (os->thread == log->thread)
            log->doing[n++] = (struct mr_doing){
                os->start_ns,
                os->end_ns,
                os->name,
                (uint32_t)i,
                MR_DOING_OS,
                0,
                (uint8_t)mr_os_waits(os->name < rec->n_strings ? rec->strings[os->name] : "")};
    }
    if (n > 0)
        log->n_doings = outermost(log->doing, n);
    return 0;
}

static void add_scope(struct mr_thread_log *log, uint64_t start_ns, uint64_t end_ns, uint32_t text)
{
    if (end_ns > start_ns)
        log->scope[log->n_scopes++] = (struct mr_scope){start_ns, end_ns, text};
}

struct open_range {
    uint64_t end_ns;
    uint32_t text;
};

/* Ranges come sorted, outer before inner: a stack of those that are open. Each range makes at most
 * two scopes. */
static void flatten(const struct mr_recording *rec, struct mr_thread_log *log,
                    struct open_range *open)
{
    uint64_t n_open = 0, at = 0;
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->thread != log->thread || range->type != MR_RANGE_PUSH_POP ||
            range->end_ns <= range->start_ns)
            continue;
        while (n_open > 0 && open[n_open - 1].end_ns <= range->start_ns) {
            add_scope(log, at, open[n_open - 1].end_ns, open[n_open - 1].text);
            n_open--;
            at = MR_MAX(at, open[n_open].end_ns);
        }
        if (n_open > 0)
            add_scope(log, at, range->start_ns, open[n_open - 1].text);
        at = MR_MAX(at, range->start_ns);
        open[n_open++] = (struct open_range){range->end_ns, range->text};
    }
    while (n_open > 0) {
        add_scope(log, at, open[n_open - 1].end_ns, open[n_open - 1].text);
        n_open--;
        at = MR_MAX(at, open[n_open].end_ns);
    }
}

static int make_scopes(const struct mr_recording *rec, struct mr_thread_log *log)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < rec->n_ranges; i++)
        n += rec->ranges[i].thread == log->thread;
    struct open_range *open = mr_big_alloc("a thread's ranges", n + 1, sizeof *open);
    log->scope = open ? mr_big_alloc("a thread's ranges", 2 * n + 1, sizeof *log->scope) : NULL;
    if (!log->scope) {
        mr_big_free(open);
        return -ENOMEM;
    }
    flatten(rec, log, open);
    mr_big_free(open);
    return 0;
}

int mr_thread_log_make(const struct mr_recording *rec, uint32_t thread, struct mr_thread_log *out)
{
    *out = (struct mr_thread_log){.thread = thread};
    int rc = make_doings(rec, out);
    return rc ? rc : make_scopes(rec, out);
}

void mr_thread_log_free(struct mr_thread_log *log)
{
    mr_big_free(log->doing);
    mr_big_free(log->scope);
    *log = (struct mr_thread_log){0};
}

/* ---- blame ---- */

uint64_t mr_doing_at(const struct mr_thread_log *log, uint64_t time_ns)
{
    uint64_t low = 0, high = log->n_doings;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (log->doing[mid].end_ns > time_ns)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static uint64_t scope_at(const struct mr_thread_log *log, uint64_t time_ns)
{
    uint64_t low = 0, high = log->n_scopes;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (log->scope[mid].end_ns > time_ns)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

uint64_t mr_look_op_from(const struct mr_look *look, uint64_t time_ns)
{
    uint64_t low = 0, high = look->n_ops;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (look->rec->ops[look->ops[mid]].start_ns >= time_ns)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* The thread whose operation is the first to begin at or after time_ns; the driving one when there
 * is none. */
static const struct mr_thread_log *ender(const struct mr_look *look, uint64_t time_ns)
{
    const struct mr_recording *rec = look->rec;
    uint64_t low = mr_look_op_from(look, time_ns);
    if (low == look->n_ops || rec->ops[look->ops[low]].api >= rec->n_apis)
        return &look->logs[0];
    uint32_t thread = rec->apis[rec->ops[look->ops[low]].api].thread;
    for (uint32_t i = 0; i < look->n_logs; i++)
        if (look->logs[i].thread == thread)
            return &look->logs[i];
    return &look->logs[0];
}

static bool put(struct mr_blames *out, struct mr_blame piece)
{
    if (piece.end_ns <= piece.start_ns)
        return true;
    if (mr_big_grow("pieces of time", &out->at, &out->capacity, out->n + 1, sizeof *out->at) < 0)
        return false;
    out->at[out->n++] = piece;
    return true;
}

/* Cuts a piece where the innermost range changes. */
static bool put_scopes(const struct mr_thread_log *log, struct mr_blame piece,
                       struct mr_blames *out)
{
    uint64_t end_ns = piece.end_ns;
    for (uint64_t s = scope_at(log, piece.start_ns); piece.start_ns < end_ns; s++) {
        bool there = s < log->n_scopes && log->scope[s].start_ns < end_ns;
        if (there && log->scope[s].start_ns > piece.start_ns) {
            piece.range = 0;
            piece.end_ns = log->scope[s].start_ns;
            if (!put(out, piece))
                return false;
            piece.start_ns = piece.end_ns;
        }
        piece.range = there ? log->scope[s].text : 0;
        piece.end_ns = there ? MR_MIN(end_ns, log->scope[s].end_ns) : end_ns;
        if (!put(out, piece))
            return false;
        piece.start_ns = piece.end_ns;
    }
    return true;
}

/* Walks what one thread did in [from, to). other: asked instead where this one only waits in the
 * system. */
static bool walk(const struct mr_thread_log *log, const struct mr_thread_log *other, uint64_t from,
                 uint64_t to, struct mr_blames *out)
{
    for (uint64_t d = mr_doing_at(log, from); from < to; d++) {
        bool there = d < log->n_doings && log->doing[d].start_ns < to;
        uint64_t start = there ? MR_MAX(log->doing[d].start_ns, from) : to;
        if (start > from &&
            !put_scopes(
                log, (struct mr_blame){from, start, log->thread, 0, 0, 0, MR_DOING_OWN, 0, 0}, out))
            return false;
        if (!there)
            return true;
        const struct mr_doing *doing = &log->doing[d];
        from = MR_MIN(doing->end_ns, to);
        struct mr_blame piece = {start,        from,        log->thread,  0,           doing->name,
                                 doing->index, doing->what, doing->class, doing->waits};
        if (doing->waits == 1 && other ? !walk(other, NULL, start, from, out)
                                       : !put_scopes(log, piece, out))
            return false;
    }
    return true;
}

int mr_blame_idle(const struct mr_look *look, uint64_t from_ns, uint64_t to_ns,
                  struct mr_blames *out)
{
    if (to_ns <= from_ns)
        return 0;
    if (look->n_logs == 0)
        return put(out, (struct mr_blame){from_ns, to_ns, MR_NONE, 0, 0, 0, MR_DOING_OWN, 0, 0})
                   ? 0
                   : mr_error_nomem("idle times", sizeof(struct mr_blame));
    const struct mr_thread_log *log = ender(look, to_ns);
    if (!walk(log, log == &look->logs[0] ? NULL : &look->logs[0], from_ns, to_ns, out))
        return mr_error_nomem("idle times", out->capacity * 2 * sizeof *out->at);
    return 0;
}
