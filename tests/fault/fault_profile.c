/*
 * Recordings and optimizers through the public API, with the nth call of one kind failing, SQLite's
 * own included: each run ends with the same result as without the failure, or with a clean error.
 *
 *     fault_profile KIND [JOB [N [on]]]      one kind; one job; one n, to look into a failure
 */
#include "files.h"
#include "sweep.h"

#include "loop_sim.h"
#include "parts_write.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/millrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct job {
    const char *name;
    int (*run)(const char *of, struct outcome *out);
    const char *of; /* a file, a report, an optimizer, ... */
    bool opened;    /* runs with before.sqlite open, and closes it */
};

/* Opening one makes some 2700 allocations, most of SQLite: it fails in some jobs, and is done
 * before the others begin. */
static struct mr_recording *opened;

static int add_table(struct outcome *out, const struct mr_table *table)
{
    static const enum mr_table_format formats[] = {MR_TABLE_TEXT, MR_TABLE_CSV, MR_TABLE_JSON};
    static char text[1 << 20];
    int rc = 0;
    for (size_t i = 0; i < MR_COUNT(formats) && rc == 0; i++) {
        FILE *to = fmemopen(text, sizeof text, "w");
        if (!to)
            return mr_error_errno(errno, "fmemopen");
        rc = mr_table_write(table, formats[i], to);
        long bytes = ftell(to);
        int closed = fclose(to);
        if (rc == 0 && closed)
            rc = mr_error_errno(errno, "fclose");
        if (rc == 0)
            outcome_add(out, text, (uint64_t)bytes);
    }
    out->samples += mr_table_rows(table);
    return rc;
}

/* Past the injector. */
static void add_file(struct outcome *out, const char *path)
{
    static char data[4 << 20];
    size_t n = 0;
    long got = -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n < sizeof data &&
           (got = syscall(SYS_read, fd, data + n, sizeof data - n)) > 0)
        n += (size_t)got;
    if (fd < 0 || got != 0 || n == 0)
        die("%s: %s cannot be read", sweep_now(), path);
    close(fd);
    outcome_add(out, data, n);
}

static int merge(const char *of, struct outcome *out)
{
    (void)of;
    struct mr_merge_stats stats = {.size = sizeof stats};
    const char *path = files_path("merged.sqlite");
    int rc = mr_recording_merge(files_path("parts"), path, 0, &stats);
    if (rc == 0) {
        add_file(out, path);
        out->samples = stats.n_records;
    } else if (access(path, F_OK) == 0) {
        die("%s: the merging failed, yet its file is there", sweep_now());
    }
    unlink(path);
    return rc;
}

static int report(const char *name, struct outcome *out)
{
    struct mr_report_opts opts;
    struct mr_table *table;
    mr_report_opts_init(&opts);
    int rc = mr_report_make(opened, name, &opts, &table);
    if (rc == 0) {
        rc = add_table(out, table);
        mr_table_destroy(table);
    }
    mr_recording_close(opened);
    return rc;
}

/* What `millrace report --range --sort` does. */
static int report_of_range(const char *name, struct outcome *out)
{
    struct mr_recording *recording;
    struct mr_report_opts opts;
    struct mr_table *table;
    int rc = mr_recording_open(files_path("before.sqlite"), &recording);
    if (rc < 0)
        return rc;
    mr_report_opts_init(&opts);
    opts.range = "step";
    opts.sort = "-total time";
    opts.limit = 3;
    rc = mr_report_make(recording, name, &opts, &table);
    if (rc == 0) {
        rc = add_table(out, table);
        mr_table_destroy(table);
    }
    mr_recording_close(recording);
    return rc;
}

static int diff(const char *of, struct outcome *out)
{
    struct mr_recording *after = NULL;
    struct mr_table *table;
    int rc = mr_recording_open(files_path(of), &after);
    if (rc == 0)
        rc = mr_report_diff(opened, after, 10, &out->n_bad, &table);
    if (rc == 0) {
        rc = add_table(out, table);
        mr_table_destroy(table);
    }
    mr_recording_close(opened);
    mr_recording_close(after);
    return rc;
}

static int add_advice(struct outcome *out, const struct mr_advice *advice)
{
    int rc = 0;
    outcome_add(out, mr_advice_summary(advice), strlen(mr_advice_summary(advice)));
    for (uint32_t i = 0; rc == 0 && i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        outcome_add(out, f->rule, strlen(f->rule));
        outcome_add(out, &f->verdict, sizeof f->verdict);
        outcome_add(out, &f->saving_ms, sizeof f->saving_ms);
        outcome_add(out, f->why ? f->why : "", f->why ? strlen(f->why) : 0);
        if (f->evidence)
            rc = add_table(out, f->evidence);
    }
    return rc;
}

static int analyze(const char *file, struct outcome *out)
{
    struct mr_recording *recording;
    struct mr_advice_opts opts;
    struct mr_advice *advice;
    int rc = mr_recording_open(files_path(file), &recording);
    if (rc < 0)
        return rc;
    mr_advice_opts_init(&opts);
    opts.n_cores = 8;
    rc = mr_analyze(recording, &opts, &advice);
    if (rc == 0) {
        rc = add_advice(out, advice);
        mr_advice_destroy(advice);
    }
    mr_recording_close(recording);
    return rc;
}

static int timeline(const char *of, struct outcome *out)
{
    enum mr_timeline_format format = strcmp(of, "perfetto") == 0 ? MR_TIMELINE_PERFETTO
                                     : strcmp(of, "html") == 0   ? MR_TIMELINE_HTML
                                                                 : MR_TIMELINE_SVG;
    const char *path = files_path("picture");
    struct mr_timeline_opts opts;
    mr_timeline_opts_init(&opts);
    opts.title = "a loop";
    int rc = mr_timeline_write(opened, path, format, &opts);
    if (rc == 0)
        add_file(out, path);
    else if (access(path, F_OK) == 0)
        die("%s: the picture failed, yet its file is there", sweep_now());
    unlink(path);
    mr_recording_close(opened);
    return rc;
}

/* ---- optimizers ---- */

#define N_PARAMS 40000 /* more than one thread's share */
static float params[N_PARAMS], grads[N_PARAMS];

static int go_on(struct mr_optim *optim, struct mr_schedule *schedule, struct outcome *out)
{
    static double state[N_PARAMS];
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < 3; i++) {
        rc = mr_optim_follow(optim, schedule, i, 0);
        if (rc == 0)
            rc = mr_optim_step(optim, params, grads, NULL);
    }
    for (uint32_t i = 0; rc == 0 && i < mr_optim_state_count(optim); i++) {
        enum mr_dtype dtype;
        uint64_t n;
        if (!mr_optim_state_data(optim, i, &dtype, &n))
            die("%s: no state %u", sweep_now(), i);
        n *= mr_dtype_size(dtype);
        rc = mr_optim_state_read(optim, i, state, n, NULL);
        if (rc == 0)
            rc = mr_optim_state_write(optim, i, state, n, NULL);
        if (rc == 0)
            outcome_add(out, state, n);
    }
    outcome_add(out, params, sizeof params);
    return rc;
}

static int optim(const char *spec, struct outcome *out)
{
    static const char schedule_text[] = "warmup:2,cosine:10/per=iteration";
    const struct mr_optim_group groups[] = {{0, 10000, "lr=0.01"},
                                            {10000, 30000, "weight_decay=0.1"}};
    struct mr_optim *optim = NULL;
    struct mr_schedule *schedule = NULL;
    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = (float)(i % 17) * 0.1f;
        grads[i] = (float)(i % 13 - 6) * 0.01f;
    }
    int rc = mr_schedule_parse(schedule_text, &schedule);
    if (rc == 0)
        rc = mr_optim_create(NULL, spec, MR_F32, N_PARAMS, groups, 2, &optim);
    if (rc == 0)
        rc = go_on(optim, schedule, out);
    mr_optim_destroy(optim);
    mr_schedule_destroy(schedule);
    return rc;
}

static int optim_sim(const char *spec, struct outcome *out)
{
    struct mr_device *device;
    struct mr_stream *stream = NULL;
    struct mr_optim *optim = NULL;
    void *memory[2] = {NULL, NULL};
    int rc = mr_device_open("sim:h2d=50,latency=1us", &device);
    if (rc < 0)
        return rc;
    rc = mr_stream_create(device, "train", &stream);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = mr_memory_acquire(device, MR_DEVICE, sizeof params, &memory[i]);
    if (rc == 0)
        rc = mr_optim_create(device, spec, MR_F32, N_PARAMS, NULL, 0, &optim);
    if (rc == 0)
        rc = mr_copy_async(stream, memory[0], MR_DEVICE, params, MR_PAGEABLE, sizeof params);
    if (rc == 0)
        rc = mr_copy_async(stream, memory[1], MR_DEVICE, grads, MR_PAGEABLE, sizeof grads);
    if (rc == 0)
        rc = mr_optim_step(optim, memory[0], memory[1], stream);
    uint64_t step;
    double norm;
    if (rc == 0)
        rc = mr_optim_query_step(optim, 0, stream, &step, &norm);
    if (rc == 0) {
        outcome_add(out, &norm, sizeof norm);
        out->samples = step;
    }
    if (stream)
        mr_stream_synchronize(stream);
    mr_optim_destroy(optim);
    for (int i = 0; i < 2; i++)
        mr_memory_release(device, MR_DEVICE, memory[i], NULL);
    if (stream)
        mr_stream_destroy(stream);
    mr_device_close(device);
    return rc;
}

/* Each as small as it can be: a sweep takes as long as a job's calls times its length. */
static const struct job jobs[] = {
    {"merge", merge, NULL, false},
    {"report of a range", report_of_range, "cuda_api_sum", false},
    {"diff", diff, "after.sqlite", true},
    {"analyze", analyze, "after.sqlite", false},
    {"analyze ranges", analyze, "ranges.sqlite", false},
    {"analyze calls", analyze, "calls.sqlite", false},
    {"perfetto", timeline, "perfetto", true},
    {"html", timeline, "html", true},
    {"svg", timeline, "svg", true},
    {"sgd", optim, "sgd", false},
    {"adamw", optim, "adamw:threads=3,clip_norm=1", false},
    {"rmsprop", optim, "rmsprop:centered,momentum=0.9,threads=2", false},
    {"amsgrad", optim, "adam:amsgrad,accumulate=2,threads=2", false},
    {"optim-sim", optim_sim, "adamw:clip_norm=1", false},
};

static void open_before(const void *of)
{
    const struct job *job = of;
    if (job->opened && mr_recording_open(files_path("before.sqlite"), &opened))
        die("%s: %s", sweep_now(), mr_last_error());
}

static void run_job(const void *of, struct outcome *out)
{
    const struct job *job = of;
    out->rc = job->run(job->of, out);
    if (out->rc < 0)
        snprintf(out->error, sizeof out->error, "%s", mr_last_error());
}

/* No device: a loader that is known by its ranges, or by its calls only. */
static void make_host(const char *file, bool ranges)
{
    struct make m;
    make_begin(&m, files_path(file));
    for (uint64_t i = 0; i < 12; i++) {
        uint64_t at = 1000000 + i * 1000000;
        if (ranges)
            make_range(&m, "load", at, at + 600000);
        make_os(&m, "read", at, at + 600000, 4096);
        make_range(&m, "forward", at + 600000, at + 900000);
    }
    make_end(&m);
}

static void make_recordings(void)
{
    struct loop l = loop_plain();
    l.n_steps = 12;
    l.n_kernels = 4;
    l.kernel_ns *= 5;
    mr_recording_close(loop_record(files_path("before.sqlite"), &l, NULL));
    l.pageable = l.sync_each = true;
    l.copy_stream = false;
    l.n_workers = 2;
    l.load_ns = 12000000;
    mr_recording_close(loop_record(files_path("after.sqlite"), &l, NULL));
    make_host("ranges.sqlite", true);
    make_host("calls.sqlite", false);
    if (mkdir(files_path("parts"), 0777) || parts_write(files_path("parts"), 100, 4) ||
        parts_write(files_path("parts"), 101, 3) || truncate(files_path("parts/101-1.part"), 900))
        die("the parts cannot be made");
}

static void drop_parts(void)
{
    unlink(files_path("parts/100-1.part"));
    unlink(files_path("parts/101-1.part"));
    rmdir(files_path("parts"));
}

/* Returns 1 where it is the job that was asked for. */
static unsigned sweep(const struct job *job, enum fault_kind kind, int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[2], job->name))
        return 0;
    sweep_run(&(struct sweep){.name = job->name,
                              .job = job,
                              .before = open_before,
                              .run = run_job,
                              .fewer = job->run == report,
                              .only = argc > 3 ? strtoull(argv[3], NULL, 10) : 0,
                              .only_on = argc > 4},
              kind);
    return 1;
}

int main(int argc, char **argv)
{
    char name[64];
    struct job report_job = {name, report, NULL, true};
    if (argc < 2)
        die("usage: fault_profile KIND [JOB [N [on]]]");
    setvbuf(stdout, NULL, _IOLBF, 0);
    files_make();
    atexit(files_drop);
    atexit(drop_parts);
    make_recordings();
    unsigned n_run = 0;
    for (int kind = 0; kind < N_FAULT_KINDS; kind++) {
        if (strcmp(fault_name((enum fault_kind)kind), argv[1]))
            continue;
        for (size_t j = 0; j < MR_COUNT(jobs); j++)
            n_run += sweep(&jobs[j], (enum fault_kind)kind, argc, argv);
        for (uint32_t i = 0; (report_job.of = mr_report_name(i, NULL)); i++) {
            snprintf(name, sizeof name, "report %s", report_job.of);
            n_run += sweep(&report_job, (enum fault_kind)kind, argc, argv);
        }
    }
    if (n_run == 0)
        die("no such kind of fault, or no such job: %s", argv[argc > 2 ? 2 : 1]);
    return 0;
}
