/* millrace bench hostmem: what page-locked memory costs, by the way in which it is made. */
#include "bench/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct options {
    struct cli_common common;
    char *device, *plot;
    uint64_t bytes, repeats;
};

#define MAX_REPEATS 100
#define OPT(...)    BENCH_OPTION(struct options, __VA_ARGS__)

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim, cpu: the device whose allocator locks pages"),
    OPT("bytes", MR_OPT_BYTES, bytes, .initial = "1GiB", .min = 4096, .max = 0x1p42,
        .unit = "bytes", .help = "Size of the memory"),
    BENCH_REPEATS_OPTION(struct options, "3", MAX_REPEATS),
    BENCH_PLOT_OPTION(struct options),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum way { PAGEABLE, POOL, DRIVER, LATER, COPIED, N_WAYS };

static const char *const names[N_WAYS] = {"not pinned", "pinned: pool", "pinned: driver",
                                          "pinned later", "pinned by copy"};
static const char *const keys[N_WAYS] = {"pageable", "pinned_pool", "pinned_driver", "pinned_later",
                                         "pinned_copy"};
static const char *const what[N_WAYS] = {
    "pages touched by one thread",
    "at allocation: touched by several threads near the device, then registered",
    "at allocation, by the driver's own allocator",
    "pages touched by one thread, then registered where they are",
    "pages touched by one thread, then copied into memory from the pool",
};

enum { NAME, KEY, TIME, VARIATION, LOCKING, OF_PAGEABLE, PEAK, OF_ASKED, KEPT, LOCKED, N_COLUMNS };

/* Times in s/GiB; bytes are this process's growth. */
static const struct bench_column columns[N_COLUMNS] = {
    [NAME] = {.head = "", .format = BENCH_TEXT},
    [KEY] = {.key = "way", .format = BENCH_TEXT},
    [TIME] = {">s/GiB", "s_per_gib", .digits = 3},
    [VARIATION] = {">variation", "variation", BENCH_SHARE},
    [LOCKING] = {">of that, locking", "lock_s_per_gib", .digits = 3},
    [OF_PAGEABLE] = {">of not pinned", .digits = 2, .suffix = "x"},
    [PEAK] = {">process's peak", "peak_bytes", BENCH_BYTES},
    [OF_ASKED] = {">of asked for", .digits = 2, .suffix = "x"},
    [KEPT] = {">kept", "resident_bytes", BENCH_BYTES},
    [LOCKED] = {">locked", "locked_bytes", BENCH_BYTES},
};

/* One thing made one way, and how to give it back. */
struct held {
    void *pages;
    uint64_t pages_bytes;
    void *pool, *driver;
    bool registered;
};

/* From /proc/self/status, in bytes; negative: not there. */
static double status_bytes(const char *name)
{
    char line[256];
    size_t n = strlen(name);
    double kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, n) == 0 && line[n] == ':')
            kib = strtod(line + n + 1, NULL);
    if (file)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

/* Sets the process's peak to what it has now. Returns whether the kernel let us. */
static bool reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, "5", 1) == 1;
    if (fd >= 0)
        close(fd);
    return ok;
}

static int touch_pages(struct held *h, uint64_t bytes)
{
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return mr_error_set(-ENOMEM, "the system refused %llu bytes: %s", (unsigned long long)bytes,
                            strerror(errno));
    h->pages = ptr;
    h->pages_bytes = bytes;
    return bench_fill(ptr, NULL, bytes);
}

/* [out] lock_ns: the part that locks, where it is a call of its own; else left alone. */
static int make(struct mr_device *dev, enum way way, uint64_t bytes, struct held *h,
                int64_t *lock_ns)
{
    int rc = way == PAGEABLE || way == LATER || way == COPIED ? touch_pages(h, bytes) : 0;
    uint64_t start = mr_time_ns();
    if (rc < 0 || way == PAGEABLE)
        return rc;
    if (way == DRIVER) {
        rc = mr_memory_make(dev, 0, bytes, &h->driver);
    } else if (way == LATER) {
        rc = mr_memory_register(dev, h->pages, bytes);
        h->registered = rc == 0;
        *lock_ns = (int64_t)(mr_time_ns() - start);
    } else {
        rc = bench_acquire(dev, MR_PINNED, bytes, &h->pool);
    }
    if (rc == 0 && way == COPIED) {
        rc = bench_fill(h->pool, h->pages, bytes);
        munmap(h->pages, h->pages_bytes);
        h->pages = NULL;
    }
    return rc;
}

static void drop(struct mr_device *dev, struct held *h)
{
    if (h->registered)
        mr_memory_unregister(dev, h->pages, h->pages_bytes);
    if (h->pages)
        munmap(h->pages, h->pages_bytes);
    if (h->pool)
        mr_memory_release(dev, MR_PINNED, h->pool, NULL);
    mr_memory_unmake(dev, h->driver);
    mr_memory_trim(dev);
}

/* Unknown where either value is. */
static double growth(double before, double after)
{
    return before < 0 || after < 0 ? NAN : after > before ? after - before : 0;
}

static double seconds_per_gib(uint64_t ns, uint64_t bytes)
{
    return (double)ns * 1e-9 / ((double)bytes / 0x1p30);
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    const struct options *o = b->values;
    enum way way = (enum way)(row - b->rows);
    struct held held = {0};
    struct mr_memory_counters count = {.size = sizeof count};
    int64_t lock_ns = -1;
    bool peak_known = reset_peak();
    double resident = status_bytes("VmRSS");
    uint64_t start = mr_time_ns();
    int rc = make(b->dev, way, o->bytes, &held, &lock_ns);
    v[TIME] = seconds_per_gib(mr_time_ns() - start, o->bytes);
    v[LOCKING] = lock_ns < 0 ? NAN : seconds_per_gib((uint64_t)lock_ns, o->bytes);
    v[PEAK] = peak_known ? growth(resident, status_bytes("VmHWM")) : NAN;
    v[KEPT] = growth(resident, status_bytes("VmRSS"));
    mr_memory_query(b->dev, MR_PINNED, &count);
    v[LOCKED] = (double)(way == PAGEABLE ? 0 : held.pool ? count.locked_bytes : o->bytes);
    drop(b->dev, &held);
    return rc;
}

static void above(const struct bench *b)
{
    const struct options *o = b->values;
    char bytes[CLI_HUMAN];
    bench_print_device(b);
    printf(": %s of host memory, ready for use; medians of %llu\n", cli_bytes(o->bytes, bytes),
           (unsigned long long)o->repeats);
}

static void below(const struct bench *b)
{
    const struct options *o = b->values;
    char bytes[CLI_HUMAN];
    for (int i = 0; i < N_WAYS; i++)
        if (!b->rows[i].left_out[0])
            printf("  %-15s %s\n", names[i], what[i]);
    printf(
        "\nlimits: as much memory as was asked for (%s), in the time that touching its pages takes "
        "(%.3f s/GiB)\n",
        cli_bytes(o->bytes, bytes), b->rows[PAGEABLE].v[TIME]);
}

static struct bench_panel panels[] = {{"Time", "", "s/GiB", -1, {TIME}, 1},
                                      {"Memory", "", "MiB", -1, {PEAK, KEPT}, 2, .unit = 0x1p20}};

static void conclude(struct bench *b)
{
    const struct options *o = b->values;
    for (int i = 0; i < N_WAYS; i++) {
        double *v = b->rows[i].v;
        v[OF_PAGEABLE] = v[TIME] / b->rows[PAGEABLE].v[TIME];
        v[OF_ASKED] = v[PEAK] / (double)o->bytes;
    }
    const double *pool = b->rows[POOL].v, *copy = b->rows[COPIED].v;
    if (!isnan(pool[OF_PAGEABLE]) && !isnan(copy[OF_PAGEABLE]))
        snprintf(b->verdict, sizeof b->verdict,
                 "page-locked by the pool: %.2fx the time of ordinary memory; by a copy: %.2fx the "
                 "time and, while it is made, %.2fx the memory that was asked for",
                 pool[OF_PAGEABLE], copy[OF_PAGEABLE], copy[OF_ASKED]);
    panels[0].limit = (struct plot_limit){"touching", b->rows[PAGEABLE].v[TIME]};
    panels[1].limit = (struct plot_limit){"asked for", (double)o->bytes / 0x1p20};
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct options *o = values;
    o->bytes = (o->bytes + 4095) / 4096 * 4096;
    return bench_run(
        &(struct bench){.command = &cli_bench_hostmem,
                        .values = o,
                        .device = o->device,
                        .plot = o->plot,
                        .columns = columns,
                        .n_columns = N_COLUMNS,
                        .n_rows = N_WAYS,
                        .names = names,
                        .keys = keys,
                        .rows_key = "ways",
                        .repeats = o->repeats,
                        .varies = TIME,
                        .variation = VARIATION,
                        .explain = "GPUs copy from page-locked memory at the full rate of the "
                                   "link, since the system cannot move its pages. Locking them "
                                   "takes time, once. Memory that is copied into a page-locked "
                                   "block is there twice; registering it in place needs no copy.",
                        .chart = "What page-locked memory costs",
                        .panels = panels,
                        .n_panels = CLI_COUNT(panels),
                        .measure = measure,
                        .conclude = conclude,
                        .above = above,
                        .below = below,
                        .learn = "pinned"});
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"ways", "for each: way (pageable, pinned_pool, pinned_driver, pinned_later, pinned_copy), or "
             "left_out with the reason"},
    {"ways.s_per_gib, ways.variation, ways.lock_s_per_gib",
     "time until it can be used (median), its standard deviation over mean, and the part spent on "
     "locking, if that is a call of its own"},
    {"ways.peak_bytes, ways.resident_bytes, ways.locked_bytes",
     "growth of the process's peak, its growth while the memory is held (each absent if the "
     "kernel does not report it; memory of drivers is not always counted), and bytes locked; "
     "medians"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace bench hostmem --device cuda --plot hostmem.svg", "1 GiB, every way that a GPU has"},
    {"millrace bench hostmem --device sim --bytes 64MiB --json", "by mlock, for a script"},
    {NULL, NULL},
};

const struct cli_command cli_bench_hostmem = {
    .name = "bench hostmem",
    .summary = "Measure what page-locked host memory costs, in time and in peak memory",
    .synopsis = "[options]",
    .text = "Allocates host memory in five ways: pageable; page-locked by the pool or by the "
            "driver's allocator; page-locked after it was allocated; and copied into page-locked "
            "memory, which needs both at once. Pages are touched, so that they are resident. All "
            "figures are medians over --repeats and are those of this process: the time, the peak "
            "during allocation, and what stays allocated.",
    .options = options,
    .options_bytes = sizeof(struct options),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
