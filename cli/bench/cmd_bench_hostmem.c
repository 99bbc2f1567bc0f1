/* millrace bench hostmem: what page-locked memory costs, by the way in which it is made. */
#include "bench/bench.h"
#include "bench/stats.h"
#include "plot.h"

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
#define OPT(option, kind, member, ...)                                                                                 \
    {                                                                                                                  \
        .name = option, .type = kind, .offset = offsetof(struct options, member), __VA_ARGS__                          \
    }

static const struct mr_option options[] = {
    OPT("device", MR_OPT_STRING, device, .key = 'd', .initial = "auto", .meta = "DEVICE",
        .help = "cuda, cuda:1, sim, cpu: who locks"),
    OPT("bytes", MR_OPT_BYTES, bytes, .initial = "1GiB", .min = 4096, .max = 0x1p42, .unit = "bytes",
        .help = "How much memory"),
    OPT("repeats", MR_OPT_UINT, repeats, .initial = "3", .min = 1, .max = MAX_REPEATS, .unit = "repeats",
        .help = "How often each way is measured; medians are printed"),
    OPT("plot", MR_OPT_STRING, plot, .meta = "FILE", .help = "Draw a chart: FILE.svg or FILE.html"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

enum way { PAGEABLE, POOL, DRIVER, LATER, COPIED, N_WAYS };

static const char *const names[N_WAYS] = {"not pinned", "pinned: pool", "pinned: driver", "pinned later",
                                          "pinned by copy"};
static const char *const keys[N_WAYS] = {"pageable", "pinned_pool", "pinned_driver", "pinned_later", "pinned_copy"};
static const char *const what[N_WAYS] = {
    "pages touched by one thread",
    "at allocation: touched by several threads near the device, then registered",
    "at allocation, by the driver's own allocator",
    "pages touched by one thread, then registered where they are",
    "pages touched by one thread, then copied into memory from the pool",
};

struct result {
    bool there;
    double ms, lock_ms, variation; /* to make usable; of that, to lock (negative: cannot be told apart) */
    double peak_bytes;             /* growth of the process's peak; negative: unknown */
    double system_bytes;           /* less memory available in the whole system while it is held */
    uint64_t locked_bytes;
    char why_not[300];
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
        return mr_error_set(-ENOMEM, "the system refused %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
    h->pages = ptr;
    h->pages_bytes = bytes;
    memset(ptr, 1, bytes);
    return 0;
}

/* [out] lock_ns: the part that locks, where it is a call of its own; else left alone. */
static int make(struct mr_device *dev, enum way way, uint64_t bytes, struct held *h, int64_t *lock_ns)
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
        rc = mr_memory_acquire(dev, MR_PINNED, bytes, &h->pool);
    }
    if (rc == 0 && way == COPIED) {
        memcpy(h->pool, h->pages, bytes);
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

static int measure_once(struct mr_device *dev, enum way way, uint64_t bytes, struct result *r, double *ms,
                        double *lock_ms)
{
    struct held held = {0};
    struct mr_host_memory_info before, during;
    struct mr_memory_counters count;
    int64_t lock_ns = -1;
    bool peak_known = reset_peak();
    double resident = status_bytes("VmRSS");
    mr_host_memory_query(&before);
    uint64_t start = mr_time_ns();
    int rc = make(dev, way, bytes, &held, &lock_ns);
    *ms = (double)(mr_time_ns() - start) * 1e-6;
    *lock_ms = lock_ns < 0 ? -1 : (double)lock_ns * 1e-6;
    mr_host_memory_query(&during);
    mr_memory_query(dev, MR_PINNED, &count);
    r->peak_bytes = peak_known ? status_bytes("VmHWM") - resident : -1;
    r->system_bytes = (double)before.available_bytes - (double)during.available_bytes;
    r->locked_bytes = way == PAGEABLE ? 0 : held.pool ? count.locked_bytes : bytes;
    drop(dev, &held);
    return rc;
}

/* A way that the device does not have, or the system's limit refuses, is left out. */
static int measure(struct mr_device *dev, enum way way, const struct options *o, struct result *r)
{
    double ms[MAX_REPEATS], lock_ms[MAX_REPEATS];
    for (uint64_t k = 0; k < o->repeats; k++) {
        int rc = cli_interrupted() ? mr_error_set(MR_ECANCELLED, "interrupted")
                                   : measure_once(dev, way, o->bytes, r, &ms[k], &lock_ms[k]);
        if (rc == MR_EUNSUPPORTED || rc == MR_ELIMIT)
            snprintf(r->why_not, sizeof r->why_not, "%s", mr_last_error());
        if (rc < 0)
            return rc == MR_EUNSUPPORTED || rc == MR_ELIMIT ? 0 : rc;
    }
    r->there = true;
    r->variation = stats_variation(ms, (int)o->repeats);
    r->ms = bench_median(ms, o->repeats);
    r->lock_ms = bench_median(lock_ms, o->repeats);
    return 0;
}

static double seconds_per_gib(double ms, uint64_t bytes)
{
    return ms * 1e-3 / ((double)bytes / 0x1p30);
}

static int print_text(const struct result *r, const struct mr_device_info *info, const struct options *o)
{
    char bytes[CLI_HUMAN];
    printf("%s%s%s: %s of host memory, ready for use; medians of %llu\n\n", info->name, info->model[0] ? ": " : "",
           info->model, cli_bytes(o->bytes, bytes), (unsigned long long)o->repeats);
    struct cli_table *table =
        cli_table_create("\t>s/GiB\t>variation\t>of that, locking\t>of not pinned\t>process's peak\t"
                         ">of asked for\t>taken from the system\t>locked");
    for (int i = 0; i < N_WAYS; i++) {
        char peak[CLI_HUMAN] = "unknown", taken[CLI_HUMAN], locked[CLI_HUMAN], lock[32] = "", part[32] = "";
        if (!r[i].there)
            continue;
        if (r[i].lock_ms >= 0)
            snprintf(lock, sizeof lock, "%.3f", seconds_per_gib(r[i].lock_ms, o->bytes));
        if (r[i].peak_bytes >= 0) {
            cli_bytes((uint64_t)r[i].peak_bytes, peak);
            snprintf(part, sizeof part, "%.2fx", r[i].peak_bytes / (double)o->bytes);
        }
        cli_table_row(table, "%s\t%.3f\t%.1f%%\t%s\t%.2fx\t%s\t%s\t%s\t%s", names[i],
                      seconds_per_gib(r[i].ms, o->bytes), 100 * r[i].variation, lock, r[i].ms / r[PAGEABLE].ms, peak,
                      part, cli_bytes(r[i].system_bytes > 0 ? (uint64_t)r[i].system_bytes : 0, taken),
                      cli_bytes(r[i].locked_bytes, locked));
    }
    cli_table_print(table, stdout, 2);
    printf("\nlimits: as much memory as was asked for (%s), in the time that touching its pages takes (%.3f s/GiB)\n\n",
           bytes, seconds_per_gib(r[PAGEABLE].ms, o->bytes));
    for (int i = 0; i < N_WAYS; i++) {
        if (r[i].there)
            printf("  %-15s %s\n", names[i], what[i]);
        else
            printf("  %-15s left out: %s\n", names[i], r[i].why_not);
    }
    return CLI_OK;
}

static int print_json(const struct result *r, const struct mr_device_info *info, const struct options *o)
{
    struct mr_json *json = cli_json_begin("bench hostmem");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", info->name);
    mr_json_string(json, "model", info->model);
    mr_json_array(json, "ways");
    for (int i = 0; i < N_WAYS; i++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "way", keys[i]);
        if (!r[i].there) {
            mr_json_string(json, "left_out", r[i].why_not);
            mr_json_object_end(json);
            continue;
        }
        mr_json_double(json, "s_per_gib", seconds_per_gib(r[i].ms, o->bytes));
        mr_json_double(json, "variation", r[i].variation);
        if (r[i].lock_ms >= 0)
            mr_json_double(json, "lock_s_per_gib", seconds_per_gib(r[i].lock_ms, o->bytes));
        if (r[i].peak_bytes >= 0)
            mr_json_double(json, "peak_bytes", r[i].peak_bytes);
        mr_json_double(json, "system_bytes", r[i].system_bytes);
        mr_json_uint(json, "locked_bytes", r[i].locked_bytes);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end_config(json, options, o);
}

static int plot(const struct result *r, const struct mr_device_info *info, const struct options *o)
{
    double time[N_WAYS], peak[N_WAYS], taken[N_WAYS];
    const char *labels[N_WAYS];
    char subtitle[160];
    int n = 0;
    for (int i = 0; i < N_WAYS; i++) {
        if (!r[i].there)
            continue;
        time[n] = seconds_per_gib(r[i].ms, o->bytes);
        peak[n] = r[i].peak_bytes / 0x1p20;
        taken[n] = r[i].system_bytes / 0x1p20;
        labels[n++] = names[i];
    }
    struct plot_series times = {"time to make", NULL, time, n};
    struct plot_series memory[] = {{"process's peak", NULL, peak, n}, {"taken from the system", NULL, taken, n}};
    struct plot_panel panels[] = {
        {"Time", "", "s/GiB", labels, &times, 1, {"touching", time[0]}, false, false, 0},
        {"Memory", "", "MiB", labels, memory, 2, {"asked for", (double)o->bytes / 0x1p20}, false, false, 0},
    };
    snprintf(subtitle, sizeof subtitle, "%s %s", info->name, info->model);
    return plot_write(&(struct plot){"What page-locked memory costs", subtitle, panels, 2}, o->plot);
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct options *o = values;
    struct mr_device *dev = NULL;
    struct mr_device_info info = {0};
    struct result r[N_WAYS] = {{0}};
    int code = plot_check(o->plot), rc = 0;
    if (code == CLI_OK)
        code = bench_open(o->device, false, &dev, &info);
    if (code != CLI_OK)
        return code;
    o->bytes = (o->bytes + 4095) / 4096 * 4096;
    for (int i = 0; i < N_WAYS && rc == 0; i++)
        rc = measure(dev, (enum way)i, o, &r[i]);
    if (rc < 0)
        code = cli_error(rc);
    if (code == CLI_OK && o->plot)
        code = plot(r, &info, o);
    if (code == CLI_OK)
        code = cli.json ? print_json(r, &info, o) : print_text(r, &info, o);
    mr_device_close(dev);
    return code;
}

static const struct cli_note json_notes[] = {
    {"device, model", "what was measured"},
    {"ways",
     "for each: way (pageable, pinned_pool, pinned_driver, pinned_later, pinned_copy), or left_out with the reason"},
    {"ways.s_per_gib, ways.variation, ways.lock_s_per_gib",
     "time until it can be used (median), its standard deviation over mean, and the part that locks where it is a call "
     "of "
     "its own"},
    {"ways.peak_bytes, ways.system_bytes, ways.locked_bytes",
     "growth of the process's peak (absent where the kernel does not tell; drivers' own memory is not always counted), "
     "memory less available in the system while it is held, and how much is locked"},
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
    .text =
        "Makes memory ready for use in five ways: not locked; locked when it is made, by our pool or by the driver's "
        "allocator; locked later where it lies; and copied into locked memory, which holds both at once. Pages are "
        "touched in each, so that they are there.",
    .options = options,
    .options_bytes = sizeof(struct options),
    .json = json_notes,
    .examples = examples,
    .run = run,
};
