/* What the figures of bench processes say: ratios, and from where on one way is better. */
#include "bench/processes_show.h"

#include <stdarg.h>
#include <string.h>

#define CLEARLY 1.1 /* better by less is called the same: runs differ by that */
#define SAME    1.5 /* of two ways that were measured one after the other, at each size */

static void say(struct processes *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct processes *p, const char *fmt, ...)
{
    va_list args;
    if (p->n_findings == BENCH_MAX_FINDINGS)
        return;
    va_start(args, fmt);
    vsnprintf(p->finding[p->n_findings++], PROCESSES_FINDING, fmt, args);
    va_end(args);
}

/* NULL: not measured. at: the batch or the chunk; 0: any. */
static const struct bench_row *find(const struct processes *p, const struct bench *b,
                                    enum processes_part part, bool python, int way, double at)
{
    for (int i = 0; i < b->n_rows; i++) {
        const struct processes_way *w = &p->way[i];
        const struct bench_row *row = &b->rows[i];
        double of = row->v[part == PART_PASS ? BATCH : CHUNK];
        if (w->part == part && w->python == python && w->way == way && !row->left_out[0] &&
            (at <= 0 || of == at))
            return row;
    }
    return NULL;
}

static double us(const struct bench_row *row)
{
    return row ? row->v[US] : NAN;
}

static const char *time_text(double us, char buf[CLI_HUMAN])
{
    return cli_time((uint64_t)(us * 1e3), buf);
}

/* ---- starts ---- */

static void say_starts(struct processes *p, const struct bench *b)
{
    char a[CLI_HUMAN], c[CLI_HUMAN], d[CLI_HUMAN];
    double v[START_SERVER + 1];
    for (int k = 0; k <= START_SERVER; k++)
        v[k] = us(find(p, b, PART_START, false, k, 0));
    if (isnan(v[START_THREAD]))
        return;
    if (!isnan(v[START_FORK]))
        say(p, "A thread ran after %s, a forked process after %s: %.1f times as long.",
            time_text(v[START_THREAD], a), time_text(v[START_FORK], c),
            v[START_FORK] / v[START_THREAD]);
    if (!isnan(v[START_FORK_FULL]) && !isnan(v[START_SERVER]))
        say(p,
            "fork copies the tables of the parent's pages: with %s in use it took %s. A fork "
            "server is a small process that forks instead, whatever its client holds: %s.",
            cli_bytes(p->opts->resident_bytes, d), time_text(v[START_FORK_FULL], a),
            time_text(v[START_SERVER], c));
    if (!isnan(v[START_SPAWN]))
        say(p,
            "A spawned program inherits nothing, and is loaded and linked again: %s, %.0f times as "
            "long as a thread.",
            time_text(v[START_SPAWN], a), v[START_SPAWN] / v[START_THREAD]);
}

static void say_python_starts(struct processes *p, const struct bench *b)
{
    char a[4][CLI_HUMAN];
    static const int ways[] = {START_THREAD, START_FORK, START_SERVER, START_SPAWN};
    for (int k = 0; k < 4; k++) {
        double v = us(find(p, b, PART_START, true, ways[k], 0));
        if (isnan(v))
            return;
        time_text(v, a[k]);
    }
    say(p,
        "%s: thread %s, fork %s, fork server %s, spawn %s. A spawned child is a new interpreter "
        "that imports its modules again; a fork server has imported them once.",
        p->python.version, a[0], a[1], a[2], a[3]);
}

/* ---- batches ---- */

/* `slow` of each size over `fast`. */
struct crossing {
    uint64_t from; /* the least batch from which on it is clearly more, at each larger size too */
    bool any;      /* it is at some size */
    double ratio;  /* at the largest that was measured; NaN: none was */
};

static struct crossing find_crossing(const struct processes *p, const struct bench *b, int fast,
                                     int slow)
{
    struct crossing c = {0, false, NAN};
    for (uint64_t at = p->opts->min_bytes; at <= p->opts->max_bytes; at *= 16) {
        double x = us(find(p, b, PART_PASS, false, slow, (double)at)) /
                   us(find(p, b, PART_PASS, false, fast, (double)at));
        if (isnan(x))
            continue;
        c.ratio = x;
        c.any = c.any || x >= CLEARLY;
        c.from = x < CLEARLY ? 0 : c.from ? c.from : at;
    }
    return c;
}

static void say_crossing(struct processes *p, const struct bench *b, int fast,
                         const char *fast_text, int slow, const char *slow_text)
{
    char a[CLI_HUMAN];
    struct crossing c = find_crossing(p, b, fast, slow);
    if (isnan(c.ratio))
        return;
    if (c.from > 0)
        say(p, "%s is faster than %s from batches of %s on; at the largest %.1f times.", fast_text,
            slow_text, cli_bytes(c.from, a), c.ratio);
    else
        say(p, "%s is faster than %s at %s.", fast_text, slow_text,
            c.any ? "smaller sizes only, not at the largest" : "no size");
}

static void say_batches(struct processes *p, const struct bench *b)
{
    char a[CLI_HUMAN];
    double most = 0;
    say_crossing(p, b, PASS_HANDLE, "By handle", PASS_PICKLE, "serialised through a pipe");
    say_crossing(p, b, PASS_HANDLE, "By handle", PASS_COPY, "by copy into shared memory");
    say_crossing(p, b, PASS_COPY, "By copy into shared memory", PASS_PIPE,
                 "unserialised through "
                 "a pipe");
    for (uint64_t at = p->opts->min_bytes; at <= p->opts->max_bytes; at *= 16) {
        double x = us(find(p, b, PART_PASS, false, PASS_HANDLE, (double)at)) /
                   us(find(p, b, PART_PASS, false, PASS_POINTER, (double)at));
        most = fmax(most, fmax(x, 1 / x));
    }
    if (most > 0)
        say(p,
            "By handle between processes and by pointer between threads differ by a factor of %.1f "
            "at most%s.",
            most,
            most < SAME ? ": with shared memory a process costs time to start, not time per batch"
                        : "");
    const struct bench_row *pickle =
        find(p, b, PART_PASS, true, PASS_PICKLE, (double)p->opts->max_bytes);
    const struct bench_row *shared =
        find(p, b, PART_PASS, true, PASS_HANDLE, (double)p->opts->max_bytes);
    if (pickle && shared)
        say(p,
            "%s, batches of %s: pickled through a pipe they take %.1f times as long as by the "
            "number of a slot in memory that both processes map.",
            p->python.version, cli_bytes(p->opts->max_bytes, a), us(pickle) / us(shared));
}

/* ---- maps ---- */

/* The least chunk with a speed-up; NULL: none. */
static const struct bench_row *faster_from(const struct processes *p, const struct bench *b,
                                           bool python, int way)
{
    const struct bench_row *least = NULL;
    for (int i = 0; i < p->n_chunks; i++) {
        const struct bench_row *row = find(p, b, PART_MAP, python, way, (double)p->chunk[i]);
        if (row && row->v[SPEED_UP] >= CLEARLY && (!least || row->v[CHUNK] < least->v[CHUNK]))
            least = row;
    }
    return least;
}

static const struct bench_row *best(const struct processes *p, const struct bench *b, bool python,
                                    int way)
{
    const struct bench_row *most = NULL;
    for (int i = 0; i < p->n_chunks; i++) {
        const struct bench_row *row = find(p, b, PART_MAP, python, way, (double)p->chunk[i]);
        if (row && (!most || row->v[SPEED_UP] > most->v[SPEED_UP]))
            most = row;
    }
    return most;
}

static void say_map(struct processes *p, const struct bench *b, bool python, int way,
                    const char *who)
{
    const struct bench_row *from = faster_from(p, b, python, way), *most = best(p, b, python, way);
    if (from)
        say(p,
            "%s beat this thread alone from chunks of %.0f on (%.2f times as fast); the best "
            "is %.2f times, with chunks of %.0f.",
            who, from->v[CHUNK], from->v[SPEED_UP], most->v[SPEED_UP], most->v[CHUNK]);
    else if (most)
        say(p, "%s beat this thread alone with no size of chunks: %.2f times as fast at best.", who,
            most->v[SPEED_UP]);
}

/* Why they are no faster: threads in C of the same run tell a busy machine from a lock. */
static const char *why_concurrent(const struct processes *p, const struct bench *b)
{
    const struct bench_row *in_c = best(p, b, false, MAP_THREADS);
    if (p->opts->workers < 2)
        return "With one worker nothing runs in parallel.";
    if (!in_c || in_c->v[SPEED_UP] < CLEARLY)
        return "Threads in C were no faster either: there is one processor, or all are busy.";
    return "They are concurrent, but not parallel: the interpreter's lock lets one run Python at a "
           "time.";
}

/* Whether threads run in parallel the interpreter says: noise of a busy machine looks so, too. */
static const char *why_faster(const struct processes *p)
{
    return strstr(p->python.version, "free-threaded")
               ? "This interpreter lets several run Python at a time."
               : "The interpreter's lock lets one run Python at a time: what was faster is noise "
                 "of "
                 "a busy machine; more --repeats show it.";
}

static void say_python_threads(struct processes *p, const struct bench *b)
{
    const struct bench_row *most = best(p, b, true, MAP_THREADS);
    if (!most)
        return;
    say(p, "%s, pool of threads: %.2f times as fast as one thread. %s", p->python.version,
        most->v[SPEED_UP], most->v[SPEED_UP] >= CLEARLY ? why_faster(p) : why_concurrent(p, b));
}

void processes_say(struct processes *p, const struct bench *b)
{
    char who[128];
    say_starts(p, b);
    say_python_starts(p, b);
    say_batches(p, b);
    say_map(p, b, false, MAP_THREADS, "Threads");
    say_map(p, b, false, MAP_PROCESSES, "Processes");
    say_python_threads(p, b);
    snprintf(who, sizeof who, "%s, processes", p->python.version);
    say_map(p, b, true, MAP_PROCESSES, who);
}
