/* millrace doctor: what this machine has, what limits it, and what is set wrong. */
#include "doctor/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define MAX_FINDINGS 16
#define MAX_DEVICES  16

struct options {
    struct cli_common common;
    char *path;
    int disk;
    uint64_t disk_bytes;
};

#define AT(member) offsetof(struct options, member)
static const struct mr_option table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), ".", .meta = "DIR",
     .help = "Folder whose disk is measured"},
    {"disk", 0, MR_OPT_FLAG, AT(disk), "1", .help = "Measure the disk"},
    {"disk-bytes", 0, MR_OPT_BYTES, AT(disk_bytes), "256MiB", 0x1p23, 0x1p36,
     .help = "Size of the temporary file; if DIR has a file this large, that file is read instead"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

struct device {
    char name[32], summary[128], why_not[192];
    bool usable;
};

struct finding {
    char problem[256], remedy[256];
};

struct report {
    const struct options *o;
    struct mr_cpu_info cpu;
    int threads;
    struct mr_host_memory_info memory;
    const char *uring;
    struct device device[MAX_DEVICES];
    int n_devices;
    struct doctor_gpu gpu[DOCTOR_MAX_GPUS];
    int n_gpus;
    struct doctor_mps mps;
    struct doctor_ranks ranks;
    struct doctor_disk disk;
    struct utsname kernel;
    struct finding finding[MAX_FINDINGS];
    int n_findings;
};

static void find(void *report, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void find(void *report, const char *remedy, const char *fmt, ...)
{
    struct report *r = report;
    va_list args;
    if (r->n_findings == MAX_FINDINGS)
        return;
    struct finding *f = &r->finding[r->n_findings++];
    va_start(args, fmt);
    vsnprintf(f->problem, sizeof f->problem, fmt, args);
    va_end(args);
    snprintf(f->remedy, sizeof f->remedy, "%s", remedy);
}

static int add_device(void *user, const char *name, const char *summary, const char *why_not)
{
    struct report *r = user;
    if (r->n_devices == MAX_DEVICES)
        return 0;
    struct device *d = &r->device[r->n_devices++];
    snprintf(d->name, sizeof d->name, "%s", name);
    snprintf(d->summary, sizeof d->summary, "%s", summary);
    snprintf(d->why_not, sizeof d->why_not, "%s", why_not ? why_not : "");
    d->usable = !why_not;
    return 0;
}

static void look_at_devices(struct report *r)
{
    mr_device_each(add_device, r);
    for (int i = 0; i < r->n_devices; i++)
        if (r->device[i].usable && strcmp(r->device[i].name, "cuda") == 0)
            r->n_gpus = doctor_look_at_gpus(r->gpu, DOCTOR_MAX_GPUS);
}

/* A number that the kernel shows in a file; -1 when there is none. */
static long kernel_number(const char *path)
{
    long value = -1;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%ld", &value) != 1)
        value = -1;
    if (file)
        fclose(file);
    return value;
}

static void judge_processors(struct report *r)
{
    char remedy[256];
    const struct mr_cpu_info *cpu = &r->cpu;
    if (cpu->affinity < cpu->online) {
        snprintf(remedy, sizeof remedy, "taskset -cp 0-%d $$", cpu->online - 1);
        find(r, remedy, "this process may run on %d of %d processors", cpu->affinity, cpu->online);
    }
    if (cpu->quota > 0 && cpu->quota < cpu->affinity)
        find(r,
             "raise the container's CPU limit (docker run --cpus, Kubernetes resources.limits.cpu)",
             "the control group allows the time of %.3g processors of %d", cpu->quota,
             cpu->affinity);
}

static void judge_memory(struct report *r)
{
    char bytes[CLI_HUMAN];
    const struct mr_host_memory_info *m = &r->memory;
    if (m->lock_limit_bytes < 1ull << 30)
        find(r, "ulimit -l unlimited (as root; in a container: docker run --ulimit memlock=-1)",
             "only %s may be page-locked: batches beyond that go through a staging copy",
             cli_bytes(m->lock_limit_bytes, bytes));
    if (strcmp(m->transparent_huge, "never") == 0)
        find(r, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)",
             "transparent huge pages are off: large buffers cost more page faults");
    if (m->available_bytes < 1ull << 30)
        find(r, "close programs that use it, or feed with --max-memory",
             "only %s of memory are available", cli_bytes(m->available_bytes, bytes));
}

static void judge_uring(struct report *r)
{
    if (!r->uring)
        return;
    const char *remedy = "in a container: docker run --security-opt seccomp=unconfined, or a "
                         "profile that allows io_uring";
    if (kernel_number("/proc/sys/kernel/io_uring_disabled") > 0)
        remedy = "sysctl -w kernel.io_uring_disabled=0 (as root)";
    else if (strstr(r->uring, "built"))
        remedy = "install liburing's headers and build again";
    find(r, remedy, "io_uring is not usable (%s): reads use a pool of threads", r->uring);
}

static int examine(const struct options *o, struct report *r)
{
    r->o = o;
    r->cpu.size = sizeof r->cpu;
    r->memory.size = sizeof r->memory;
    mr_cpu_query(&r->cpu);
    r->threads = mr_cpu_count();
    mr_host_memory_query(&r->memory);
    r->uring = mr_uring_why_not();
    uname(&r->kernel);
    look_at_devices(r);
    doctor_look_at_mps(&r->mps);
    judge_processors(r);
    judge_memory(r);
    judge_uring(r);
    for (int i = 0; i < r->n_gpus; i++)
        doctor_judge_gpu(&r->gpu[i], &r->mps, find, r);
    doctor_judge_mps(&r->mps, find, r);
    doctor_look_at_ranks(&r->ranks, find, r);
    if (!o->disk)
        return CLI_OK;
    cli_catch_interrupts();
    int code = doctor_measure_disk(o->path, o->disk_bytes, &r->disk);
    if (code == CLI_OK && !r->disk.direct)
        cli_warn("%s: the file system does not support direct reads; the rate may be the page "
                 "cache's",
                 o->path);
    return code;
}

static const char *limit(uint64_t bytes, char *buf)
{
    return bytes == UINT64_MAX ? "none" : cli_bytes(bytes, buf);
}

static int print_text(const struct report *r)
{
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN];
    const struct mr_host_memory_info *m = &r->memory;
    struct cli_table *t = cli_table_create(NULL);
    cli_table_row(t, "system\t%s %s, millrace %s", r->kernel.sysname, r->kernel.release,
                  mr_version());
    cli_table_row(t, "processor\t%s", r->cpu.model[0] ? r->cpu.model : r->kernel.machine);
    snprintf(a, sizeof a, "%.3g processors", r->cpu.quota);
    cli_table_row(t, "processors\t%d on line, %d for this process, quota %s: %d worker threads",
                  r->cpu.online, r->cpu.affinity, r->cpu.quota > 0 ? a : "none", r->threads);
    cli_table_row(t, "memory\t%s, %s available", cli_bytes(m->total_bytes, a),
                  cli_bytes(m->available_bytes, b));
    cli_table_row(t, "lock limit\t%s", limit(m->lock_limit_bytes, a));
    cli_table_row(t, "pages\t%s; huge: %s, %llu free; transparent huge pages: %s",
                  cli_bytes(m->page_bytes, a),
                  m->huge_page_bytes ? cli_bytes(m->huge_page_bytes, b) : "unknown",
                  (unsigned long long)m->huge_pages_free,
                  m->transparent_huge[0] ? m->transparent_huge : "unknown");
    cli_table_row(t, "io_uring\t%s%s", r->uring ? "not usable: " : "usable",
                  r->uring ? r->uring : "");
    if (r->o->disk)
        cli_table_row(t, "disk\t%s: reads %s (%s in %s, %s, %s)", r->o->path,
                      cli_rate((double)r->disk.bytes / ((double)r->disk.ns * 1e-9 + 1e-9), a),
                      cli_bytes(r->disk.bytes, b), cli_time(r->disk.ns, c),
                      r->disk.direct ? "direct" : "through the page cache",
                      r->disk.temporary ? "temporary file" : "an existing file");
    for (int i = 0; i < r->n_devices; i++)
        cli_table_row(t, "device %s\t%s%s", r->device[i].name,
                      r->device[i].usable ? "usable: " : "not usable: ",
                      r->device[i].usable ? r->device[i].summary : r->device[i].why_not);
    for (int i = 0; i < r->n_gpus; i++)
        doctor_gpu_rows(&r->gpu[i], t);
    if (r->n_gpus > 0)
        doctor_mps_row(&r->mps, t);
    doctor_ranks_rows(&r->ranks, t);
    int code = cli_table_print(t, stdout, 0);
    for (int i = 0; i < r->n_findings; i++)
        printf("%s! %s\n  fix: %s\n", i == 0 ? "\n" : "", r->finding[i].problem,
               r->finding[i].remedy);
    if (r->n_findings == 0)
        printf("\nNothing is set wrong.\n");
    return code;
}

static void json_machine(struct mr_json *json, const struct report *r)
{
    const struct mr_host_memory_info *m = &r->memory;
    mr_json_object(json, "cpu");
    mr_json_string(json, "model", r->cpu.model);
    mr_json_int(json, "online", r->cpu.online);
    mr_json_int(json, "affinity", r->cpu.affinity);
    if (r->cpu.quota > 0)
        mr_json_double(json, "quota", r->cpu.quota);
    else
        mr_json_null(json, "quota");
    mr_json_int(json, "threads", r->threads);
    mr_json_object_end(json);
    mr_json_object(json, "memory");
    mr_json_uint(json, "total_bytes", m->total_bytes);
    mr_json_uint(json, "available_bytes", m->available_bytes);
    if (m->lock_limit_bytes == UINT64_MAX)
        mr_json_null(json, "lock_limit_bytes");
    else
        mr_json_uint(json, "lock_limit_bytes", m->lock_limit_bytes);
    mr_json_uint(json, "page_bytes", m->page_bytes);
    mr_json_uint(json, "huge_page_bytes", m->huge_page_bytes);
    mr_json_uint(json, "huge_pages_free", m->huge_pages_free);
    mr_json_string(json, "transparent_huge", m->transparent_huge);
    mr_json_object_end(json);
    mr_json_object(json, "io_uring");
    mr_json_bool(json, "usable", !r->uring);
    mr_json_string(json, "reason", r->uring);
    mr_json_object_end(json);
}

static void json_disk(struct mr_json *json, const struct report *r)
{
    if (!r->o->disk) {
        mr_json_null(json, "disk");
        return;
    }
    mr_json_object(json, "disk");
    mr_json_string(json, "path", r->o->path);
    mr_json_uint(json, "bytes", r->disk.bytes);
    mr_json_double(json, "seconds", (double)r->disk.ns * 1e-9);
    mr_json_double(json, "gb_per_s", r->disk.ns ? (double)r->disk.bytes / (double)r->disk.ns : 0);
    mr_json_bool(json, "direct", r->disk.direct);
    mr_json_bool(json, "temporary_file", r->disk.temporary);
    mr_json_object_end(json);
}

static int print_json(const struct report *r)
{
    struct mr_json *json = cli_json_begin("doctor");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "kernel", r->kernel.release);
    json_machine(json, r);
    json_disk(json, r);
    mr_json_array(json, "devices");
    for (int i = 0; i < r->n_devices; i++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", r->device[i].name);
        mr_json_string(json, "summary", r->device[i].summary);
        mr_json_bool(json, "usable", r->device[i].usable);
        mr_json_string(json, "reason", r->device[i].usable ? NULL : r->device[i].why_not);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_array(json, "gpus");
    for (int i = 0; i < r->n_gpus; i++)
        doctor_gpu_json(&r->gpu[i], json);
    mr_json_array_end(json);
    doctor_mps_json(&r->mps, json);
    doctor_ranks_json(&r->ranks, json);
    mr_json_array(json, "findings");
    for (int i = 0; i < r->n_findings; i++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "problem", r->finding[i].problem);
        mr_json_string(json, "remedy", r->finding[i].remedy);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end(json);
}

static int run(void *options, int n_args, char **args)
{
    (void)n_args, (void)args;
    struct report *r = calloc(1, sizeof *r);
    if (!r)
        return cli_fail("out of memory");
    int code = examine(options, r);
    if (code == CLI_OK)
        code = ((const struct options *)options)->common.json ? print_json(r) : print_text(r);
    free(r);
    return code;
}

static const struct cli_note json[] = {
    {"kernel", "The kernel's release"},
    {"cpu", "model, online, affinity (processors in this process's mask), quota (of the control "
            "group, in processors; null: "
            "none), threads (what the three allow)"},
    {"memory", "total_bytes (the machine's, or the control group's limit), available_bytes, "
               "lock_limit_bytes (null: none), "
               "page_bytes, huge_page_bytes, huge_pages_free, transparent_huge"},
    {"io_uring", "usable, and the reason why not"},
    {"disk", "path, bytes, seconds, gb_per_s, direct (false: the page cache may have helped), "
             "temporary_file; null with "
             "--no-disk"},
    {"devices", "For each kind of device name, summary, usable, and the reason why not"},
    {"gpus",
     "For each GPU name, error (null: none), model, uuid, pci_id, driver, driver_api (13000: "
     "CUDA 13.0), compute_capability (90: 9.0), memory_bytes, free_bytes, bar1_bytes, "
     "copy_engines, numa_node (-1: unknown), link_generation, link_width, link_generation_max, "
     "link_width_max (0: unknown; an idle link is trained down), link_gb_per_s (estimated from "
     "the most, one way), numa_distance (from its memory node to the nearest processor of this "
     "process; 10: the same node, null: unknown), near_processors (that this process may use on "
     "that node: workers run on them unless they are all; null: unknown), context_bytes (what "
     "opening it takes; 0: "
     "unknown), peer_gb_per_s (all its NVLinks, one way), processes (others that use it: pid, "
     "bytes; null: unknown), device_transforms (whether this build's kernels run on it)"},
    {"mps", "NVIDIA's Multi-Process Service: running, pipes (its control pipe exists), directory"},
    {"ranks",
     "launcher (null: none), rank, world, local_rank, local_world (0: unknown); mpi and nccl: "
     "library (name and version; null: none), and the reason why there is none"},
    {"findings", "For each thing set wrong the problem and its remedy"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace doctor --path /data", "With the read rate of the disk that holds /data"},
    {"millrace doctor --no-disk --json", "For scripts, and for bug reports"},
    {NULL},
};

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "Show what this machine has, what limits it, and what is set wrong",
    .synopsis = "[options]",
    .text =
        "Shows processors, memory, limits, io_uring, devices and the read rate of a disk as this "
        "process sees them: affinity mask and control groups count. Then it lists what is set "
        "wrong, and how to fix it.\n\n"
        "The disk is measured by large reads that bypass the page cache, from a big file in the "
        "folder, or from an unnamed temporary file that disappears when the command ends.",
    .options = table,
    .options_bytes = sizeof(struct options),
    .min_args = 0,
    .max_args = 0,
    .json = json,
    .examples = examples,
    .run = run,
};
