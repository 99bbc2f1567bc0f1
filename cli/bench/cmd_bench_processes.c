/* millrace bench processes: what threads and processes cost to start, to pass batches between, and
 * to share out work to. */
#include "bench/processes_show.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPT(...) BENCH_OPTION(struct processes_opts, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("starts", MR_OPT_UINT, starts, .initial = "20", .min = 1, .max = 10000, .unit = "starts",
        .help = "Starts in each measurement"),
    OPT("resident", MR_OPT_BYTES, resident_bytes, .initial = "256MiB", .min = 4096, .max = 0x1p42,
        .unit = "bytes", .help = "Memory in use by a process that forks"),
    OPT("min", MR_OPT_BYTES, min_bytes, .initial = "4KiB", .min = 16, .max = 1 << 30,
        .unit = "bytes", .help = "The smallest batch"),
    OPT("max", MR_OPT_BYTES, max_bytes, .initial = "16MiB", .min = 16, .max = 1 << 30,
        .unit = "bytes", .help = "The largest batch: each is 16 times the one before"),
    OPT("time", MR_OPT_DURATION, time_ns, .initial = "100ms", .min = 1e6, .max = 3600e9,
        .unit = "s", .help = "Duration of a measurement of batches, after a quarter to warm up"),
    OPT("items", MR_OPT_UINT, items, .initial = "4096", .min = 1, .max = 1e8, .unit = "items",
        .help = "Items that are mapped"),
    OPT("item", MR_OPT_DURATION, item_ns, .initial = "5us", .min = 100, .max = 10e9, .unit = "us",
        .help = "Arithmetic for each item, by this processor"),
    OPT("chunks", MR_OPT_STRING, chunks, .initial = "1,16,256", .meta = "LIST",
        .help = "Items in a message to a worker, separated by commas"),
    OPT("workers", MR_OPT_UINT, workers, .key = 'w', .initial = "0", .max = 512, .unit = "workers",
        .help = "Of a pool; 0: one per processor that this process may use"),
    OPT("python", MR_OPT_STRING, python, .initial = "python3", .meta = "PROGRAM",
        .help = "A Python to measure the same in; none: no Python"),
    BENCH_REPEATS_OPTION(struct processes_opts, "5", BENCH_MAX_ROUNDS),
    BENCH_PLOT_OPTION(struct processes_opts),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const struct processes_way ways[] = {
    {PART_START, START_THREAD, false, "thread", "thread", "shares all memory"},
    {PART_START, START_FORK, false, "fork", "fork",
     "a copy of this process; pages are copied when written"},
    {PART_START, START_FORK_FULL, false, "fork_resident", "fork, full",
     "the same with the memory of --resident in use"},
    {PART_START, START_SERVER, false, "forkserver", "fork server",
     "a small process, started early, forks on request"},
    {PART_START, START_SPAWN, false, "spawn", "spawn",
     "a new process that runs this program (posix_spawn)"},
    {PART_START, START_THREAD, true, "thread", "Python: thread", NULL},
    {PART_START, START_FORK, true, "fork", "Python: fork", NULL},
    {PART_START, START_SERVER, true, "forkserver", "Python: forkserver", NULL},
    {PART_START, START_SPAWN, true, "spawn", "Python: spawn", NULL},
    {PART_PASS, PASS_PICKLE, false, "pickle", "serialised, pipe",
     "copied into a message, through a pipe, and out of the message: four copies"},
    {PART_PASS, PASS_PIPE, false, "pipe", "pipe",
     "written from and read into the batch's own memory: two copies"},
    {PART_PASS, PASS_COPY, false, "copy", "shared memory, copy",
     "one copy, into memory (memfd) that both processes map"},
    {PART_PASS, PASS_HANDLE, false, "handle", "shared memory, handle",
     "written in that memory; a handle (64 bits) passes through a ring"},
    {PART_PASS, PASS_POINTER, false, "pointer", "pointer", "the same ring between threads"},
    {PART_PASS, PASS_PICKLE, true, "pickle", "Python: pickle, pipe",
     "multiprocessing.Pipe: send() and recv() of a bytearray"},
    {PART_PASS, PASS_HANDLE, true, "handle", "Python: shared, handle",
     "slots of an mmap.mmap; their numbers pass through a Pipe"},
    {PART_MAP, MAP_SERIAL, false, "serial", "serial", "by this thread"},
    {PART_MAP, MAP_THREADS, false, "threads", "threads", "take chunks from a counter"},
    {PART_MAP, MAP_PROCESSES, false, "processes", "processes",
     "are sent chunks, and send their results, through sockets"},
    {PART_MAP, MAP_SERIAL, true, "serial", "Python: serial", "list(map(work, items))"},
    {PART_MAP, MAP_THREADS, true, "threads", "Python: threads", "multiprocessing.pool.ThreadPool"},
    {PART_MAP, MAP_PROCESSES, true, "processes", "Python: processes", "multiprocessing.Pool"},
};

static const char *const titles[] = {
    "Start: until it reports by a pipe that it runs, and until it has ended",
    "Batches: from a producer that has them ready to a consumer that reads every byte",
    "Map: time per item, with a pool that is already running", NULL};
static const char *const parts[] = {"start", "pass", "map"};

#define IN(part) (1u << (part))

static const struct bench_column columns[PROCESSES_N_COLUMNS] = {
    [PART] = {.key = "experiment", .format = BENCH_TEXT},
    [WAY] = {.head = "", .format = BENCH_TEXT},
    [KEY] = {.key = "way", .format = BENCH_TEXT},
    [LANGUAGE] = {.key = "language", .format = BENCH_TEXT},
    [BATCH] = {">batch", "batch_bytes", BENCH_BYTES, .parts = IN(PART_PASS)},
    [WORKERS] = {">workers", "workers", BENCH_COUNT, .parts = IN(PART_MAP)},
    [CHUNK] = {">chunk", "chunk_items", BENCH_COUNT, .parts = IN(PART_MAP)},
    [US] = {">us", "us", .digits = 2},
    [VARIATION] = {">variation", "variation", BENCH_SHARE},
    [ENDED] = {">ended us", "ended_us", .digits = 2, .parts = IN(PART_START)},
    [RATE] = {">rate", "bytes_per_s", BENCH_RATE, .parts = IN(PART_PASS)},
    [CPU] = {">CPU us", "cpu_us", .digits = 2},
    [OF_THREAD] = {">of a thread", "of_thread", .digits = 1, .suffix = "x",
                   .parts = IN(PART_START)},
    [OF_POINTER] = {">of pointer", "of_pointer", .digits = 2, .suffix = "x",
                    .parts = IN(PART_PASS)},
    [SPEED_UP] = {">speed-up", "speed_up", .digits = 2, .suffix = "x", .parts = IN(PART_MAP)},
    [N] = {.key = "n", .format = BENCH_COUNT},
    [BYTES] = {.key = "bytes", .format = BENCH_BYTES},
};

static const char *const unnamed[] = {NULL};
static const char *const pass_lines[] = {
    "serialised, pipe",       "pipe",    "shared memory, copy",
    "shared memory, handle",  "pointer", "Python: pickle, pipe",
    "Python: shared, handle", NULL};
static const char *const map_lines[] = {"threads", "processes", "Python: threads",
                                        "Python: processes", NULL};

static struct bench_panel panels[] = {
    {"Start", "", "us until it runs", -1, {US}, 1, .series = unnamed},
    {"Batches",
     "bytes",
     "us a batch",
     BATCH,
     {US},
     7,
     .log_x = true,
     .log_y = true,
     .ticks = PLOT_BYTES,
     .series = pass_lines},
    {"Map",
     "items a message",
     "times as fast as serial",
     CHUNK,
     {SPEED_UP},
     4,
     .limit = {"serial", 1},
     .log_x = true,
     .ticks = PLOT_BINARY,
     .series = map_lines},
};

/* ---- rows ---- */

/* Which line of its panel; -1: none. */
static int line_of(const struct processes_way *w)
{
    if (w->part == PART_START)
        return w->python ? -1 : 0;
    if (w->part == PART_PASS)
        return !w->python ? w->way : w->way == PASS_PICKLE ? 5 : 6;
    return w->way == MAP_SERIAL ? -1 : w->way - MAP_THREADS + (w->python ? 2 : 0);
}

static uint64_t n_batches(const struct processes_opts *o)
{
    uint64_t n = 0;
    for (uint64_t at = o->min_bytes; at <= o->max_bytes; at *= 16)
        n++;
    return n;
}

static uint64_t n_rows_of(const struct processes *p, const struct processes_way *w)
{
    if (w->python && p->python.pid == 0)
        return 0;
    return w->part == PART_PASS                          ? n_batches(p->opts)
           : w->part == PART_MAP && w->way != MAP_SERIAL ? (uint64_t)p->n_chunks
                                                         : 1;
}

static void set_row(const struct processes *p, struct bench_row *row, const struct processes_way *w,
                    uint64_t i)
{
    row->part = (int)w->part;
    row->series = line_of(w);
    row->name = row->text[WAY] = w->name;
    row->text[PART] = parts[w->part];
    row->text[KEY] = w->key;
    row->text[LANGUAGE] = w->python ? "Python" : "C";
    if (w->part == PART_PASS)
        row->v[BATCH] = (double)(p->opts->min_bytes << 4 * i);
    if (w->part == PART_MAP && w->way != MAP_SERIAL) {
        row->v[WORKERS] = (double)p->opts->workers;
        row->v[CHUNK] = (double)p->chunk[i];
    }
}

static int make_rows(struct bench *b)
{
    struct processes *p = b->user;
    uint64_t n = 0;
    for (size_t k = 0; k < CLI_COUNT(ways); k++)
        n += n_rows_of(p, &ways[k]);
    p->way = calloc(n, sizeof *p->way);
    int rc = p->way ? bench_rows(b, (int)n) : mr_error_set(-ENOMEM, "no memory for the rows");
    struct bench_row *row = b->rows;
    for (size_t k = 0; k < CLI_COUNT(ways) && rc == 0; k++)
        for (uint64_t i = 0; i < n_rows_of(p, &ways[k]); i++, row++) {
            p->way[row - b->rows] = ways[k];
            set_row(p, row, &ways[k], i);
        }
    return rc;
}

/* The server first: what forks early stays small. */
static int open_all(struct bench *b)
{
    struct processes *p = b->user;
    int rc = processes_server_open(&p->server);
    if (rc == 0)
        rc = processes_python_open(p->opts, &p->python);
    p->rounds = processes_rounds(p->opts->item_ns);
    panels[PART_PASS].n = p->python.pid ? 7 : 5;
    panels[PART_MAP].n = p->python.pid ? 4 : 2;
    return rc < 0 ? rc : make_rows(b);
}

static void close_all(struct bench *b)
{
    struct processes *p = b->user;
    processes_python_close(&p->python);
    processes_server_close(&p->server);
    free(p->way);
}

/* ---- measuring ---- */

static int ask_python(struct processes *p, const struct processes_way *w, const double *v,
                      struct processes_result *out)
{
    const struct processes_opts *o = p->opts;
    if (w->part == PART_START)
        return processes_python_ask(&p->python, out, "start %s %llu", w->key,
                                    (unsigned long long)o->starts);
    if (w->part == PART_PASS)
        return processes_python_ask(&p->python, out, "pass %s %.0f %.6f", w->key, v[BATCH],
                                    1e-9 * (double)o->time_ns);
    return processes_python_ask(&p->python, out, "map %s %llu %llu %llu %.0f", w->key,
                                (unsigned long long)o->items, (unsigned long long)o->item_ns,
                                (unsigned long long)o->workers, isnan(v[CHUNK]) ? 1 : v[CHUNK]);
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    struct processes *p = b->user;
    const struct processes_way *w = &p->way[row - b->rows];
    struct processes_result r = {0};
    int rc = w->python ? ask_python(p, w, v, &r)
             : w->part == PART_START
                 ? processes_start(p->opts, &p->server, (enum processes_start)w->way, &r)
             : w->part == PART_PASS
                 ? processes_pass(p->opts, (enum processes_pass)w->way, (uint64_t)v[BATCH], &r)
                 : processes_map(p->opts, (enum processes_map)w->way, p->rounds,
                                 isnan(v[CHUNK]) ? p->opts->items : (uint64_t)v[CHUNK], &r);
    if (rc < 0)
        return rc;
    v[US] = r.us;
    v[CPU] = r.cpu_us;
    v[N] = (double)r.n;
    v[ENDED] = w->part == PART_START ? r.ended_us : NAN;
    v[BYTES] = w->part == PART_PASS ? (double)r.bytes : NAN;
    return 0;
}

/* What a row is compared with: a thread, a pointer, the serial map. */
static double base_us(const struct bench *b, const struct processes_way *w, double batch)
{
    const struct processes *p = b->user;
    for (int i = 0; i < b->n_rows; i++) {
        const struct processes_way *of = &p->way[i];
        bool same = of->part == w->part && (of->python == w->python || w->part == PART_PASS);
        int base = w->part == PART_START  ? (int)START_THREAD
                   : w->part == PART_PASS ? (int)PASS_POINTER
                                          : (int)MAP_SERIAL;
        if (same && of->way == base && (w->part != PART_PASS || b->rows[i].v[BATCH] == batch))
            return b->rows[i].v[US];
    }
    return NAN;
}

static void conclude(struct bench *b)
{
    struct processes *p = b->user;
    for (int i = 0; i < b->n_rows; i++) {
        double *v = b->rows[i].v, base = base_us(b, &p->way[i], v[BATCH]);
        v[p->way[i].part == PART_START ? OF_THREAD : OF_POINTER] = v[US] / base;
        if (p->way[i].part == PART_PASS)
            v[RATE] = 1e6 * v[BATCH] / v[US];
        if (p->way[i].part != PART_MAP)
            continue;
        v[OF_POINTER] = NAN;
        v[SPEED_UP] = base / v[US];
    }
    processes_say(p, b);
    b->n_findings = p->n_findings;
    for (int i = 0; i < p->n_findings; i++)
        b->finding[i] = p->finding[i];
}

/* ---- showing ---- */

static void above(const struct bench *b)
{
    const struct processes *p = b->user;
    char item[CLI_HUMAN];
    printf("%llu processors, %s; items of %s; medians of %llu\n",
           (unsigned long long)mr_cpu_count(), p->python.pid ? p->python.version : "no Python",
           cli_time(p->opts->item_ns, item), (unsigned long long)p->opts->repeats);
    if (p->python.why_not[0])
        printf("without Python: %s\n", p->python.why_not);
}

static void below(const struct bench *b)
{
    const struct processes *p = b->user;
    for (size_t k = 0; k < CLI_COUNT(ways); k++)
        if (ways[k].what && n_rows_of(p, &ways[k]) > 0)
            printf("  %-22s  %s\n", ways[k].name, ways[k].what);
    printf("\nWhat this run says:\n");
    for (int i = 0; i < p->n_findings; i++)
        cli_paragraphs(stdout, p->finding[i], 2);
    printf("\n");
    cli_paragraphs(stdout,
                   "us: wall time of one. CPU us: of all threads and processes that took part; "
                   "more than the wall time where several ran at once. In C every batch is summed, "
                   "in Python it is searched for a byte that is not there. Findings call a "
                   "difference of less than 10% none.",
                   2);
}

static void json(const struct bench *b, struct mr_json *json)
{
    const struct processes *p = b->user;
    mr_json_uint(json, "processors", (uint64_t)mr_cpu_count());
    mr_json_string(json, "python", p->python.pid ? p->python.version : NULL);
    if (p->python.why_not[0])
        mr_json_string(json, "python_why_not", p->python.why_not);
    mr_json_uint(json, "item_rounds", p->rounds);
    mr_json_array(json, "findings");
    for (int i = 0; i < p->n_findings; i++)
        mr_json_string(json, NULL, p->finding[i]);
    mr_json_array_end(json);
}

/* Returns how many numbers there are; 0: it is no list of them. */
static int parse_chunks(const char *at, uint64_t *chunk)
{
    for (int n = 0; n < PROCESSES_MAX_CHUNKS; n++) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || v < 1 || v > PROCESSES_MAX_CHUNK || (*end && *end != ','))
            break;
        chunk[n] = v;
        if (!*end)
            return n + 1;
        at = end + 1;
    }
    return 0;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct processes_opts *o = values;
    struct processes p = {.opts = o, .server = {0, -1, -1}, .python = {.fd = -1}};
    p.n_chunks = parse_chunks(o->chunks, p.chunk);
    if (p.n_chunks == 0)
        return cli_misuse("--chunks %s: expected at most %d numbers of 1..%d with commas between",
                          o->chunks, PROCESSES_MAX_CHUNKS, PROCESSES_MAX_CHUNK);
    if (o->min_bytes > o->max_bytes)
        return cli_misuse("--min: expected at most --max, %llu bytes",
                          (unsigned long long)o->max_bytes);
    o->min_bytes = (o->min_bytes + 7) / 8 * 8;
    if (o->workers == 0)
        o->workers = (uint64_t)mr_cpu_count();
    return bench_run(
        &(struct bench){.command = &cli_bench_processes,
                        .values = o,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = PROCESSES_N_COLUMNS,
                        .rows_key = "cells",
                        .parts = titles,
                        .repeats = o->repeats,
                        .varies = US,
                        .variation = VARIATION,
                        .explain = "Loaders in Python use processes, since threads of one "
                                   "process take turns. What that costs: starting them, handing "
                                   "a batch over, and mapping a function over items in messages. "
                                   "A thread hands over a pointer, whatever the batch's size.",
                        .chart = "Threads and processes",
                        .subtitle = "starts, batches passed, a pool's map",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .user = &p,
                        .open = open_all,
                        .close = close_all,
                        .measure = measure,
                        .conclude = conclude,
                        .json = json,
                        .above = above,
                        .below = below,
                        .learn = "processes"});
}

static const struct cli_note json_notes[] = {
    {"processors, python", "that this process may use; Python's version, null without one"},
    {"item_rounds", "steps of arithmetic in the work of an item, in C"},
    {"cells", "for each: experiment (start, pass, map), way, language (C, Python)"},
    {"cells.us, cells.cpu_us, cells.variation",
     "wall time of a start, a batch, an item (median); CPU time of all that took part; standard "
     "deviation over mean of the wall time"},
    {"cells.n", "starts, batches, items in a measurement"},
    {"cells.ended_us, cells.of_thread", "of starts: until it has ended; times a thread"},
    {"cells.batch_bytes, cells.bytes, cells.bytes_per_s, cells.of_pointer",
     "of batches: of one, of all, the rate, times the way by pointer"},
    {"cells.workers, cells.chunk_items, cells.speed_up",
     "of maps: the pool's, items in a message, times as fast as the serial one"},
    {"findings", "what the figures say, as sentences"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench processes --plot processes.svg", "all of it; takes about half a minute"},
    {"millrace bench processes --python none --max 64KiB --time 20ms --repeats 1 --json",
     "a short run for a script"},
    {NULL, NULL},
};

const struct cli_command cli_bench_processes = {
    .name = "bench processes",
    .summary = "Measure threads and processes: starts, passing batches, a pool's map",
    .synopsis = "[options]",
    .text =
        "Three experiments, in C and, where there is one, in Python. How long a start takes: of a "
        "thread; of a process by fork, by a server that forks, by spawning a program. What it "
        "costs to pass a batch to another process: serialised through a pipe, by copy into shared "
        "memory, by handle of shared memory; and by pointer to another thread. How much "
        "faster a pool of threads or processes maps a function over items, by the number of items "
        "in a message. Every batch and every result is checked. The tables are followed by what "
        "the figures of this run say: ratios, and the size from which one way is better.",
    .options = options,
    .options_bytes = sizeof(struct processes_opts),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
