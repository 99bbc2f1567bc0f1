/*
 * Samples that worker processes make: a ready array is copied into each, after so many microseconds
 * of work. Samples a second by number of processes, and how long after a SIGKILL the next batch
 * comes.
 * usage: workers [BYTES] [WORK_US] [PROCESSES] [SECONDS] [BATCH] [THREADS]
 */
#include <millrace/millrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READY 64 /* arrays */

static struct {
    uint64_t bytes, work_ns;
    unsigned char *ready;
    int64_t pid[MR_MAX_WORKER_PROCESSES];
} my;

static int get_run(void *user, uint64_t n, const struct mr_sample_context c[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[])
{
    (void)user, (void)dim;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t until = my.work_ns ? mr_time_ns() + my.work_ns : 0;
        memcpy(row[i][0], my.ready + c[i].index % READY * my.bytes, my.bytes);
        *(uint64_t *)row[i][1] = c[i].index;
        while (until && mr_time_ns() < until)
            continue;
        rc[i] = 0;
    }
    return 0;
}

static int start(void *user, uint32_t worker, int fd, int64_t *out_pid)
{
    struct mr_worker_opts o;
    (void)user;
    pid_t pid = fork();
    if (pid == 0) {
        mr_worker_opts_init(&o);
        o.get_run = get_run;
        _exit(mr_worker_run(fd, &o) < 0);
    }
    my.pid[worker] = *out_pid = pid;
    return pid < 0 ? -1 : 0;
}

static int open_set(uint32_t processes, struct mr_dataset **out)
{
    struct mr_workers_opts o;
    mr_workers_opts_init(&o);
    o.name = "ready";
    o.n = 1 << 20;
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {my.bytes}};
    o.field[1] = (struct mr_spec){.name = "y", .dtype = MR_U64};
    o.workers = processes;
    o.start = start;
    return mr_dataset_open_workers(&o, out);
}

struct result {
    double rate, first_ms, after_kill_ms;
};

/* Batches for so long; after half of that a worker is killed. */
static int measure(struct mr_dataset *ds, const struct mr_loader_opts *o, double seconds,
                   struct result *out)
{
    struct mr_sampler *order;
    struct mr_loader *loader = NULL;
    struct mr_batch b = {.size = sizeof b};
    uint64_t samples = 0, start = mr_time_ns(), first = 0, now = start, before = start, killed = 0;
    int rc = mr_sampler_open("random", mr_dataset_length(ds), 1, &order);
    if (rc < 0)
        return rc;
    rc = mr_loader_open(ds, order, NULL, NULL, o, &loader);
    while (rc >= 0 && (rc = mr_loader_next(loader, NULL, &b)) > 0) {
        for (uint64_t i = 0; i < b.n; i++)
            if (((const uint64_t *)b.field[1].data)[i] != b.indices[i])
                return mr_error_set(-1, "a wrong row");
        samples += b.n;
        now = mr_time_ns();
        if (first == 0) {
            first = now;
            samples = 0;
        }
        if (killed)
            out->after_kill_ms = out->after_kill_ms > (double)(now - before) / 1e6
                                     ? out->after_kill_ms
                                     : (double)(now - before) / 1e6;
        before = now;
        mr_loader_release(loader, &b, NULL);
        if (!killed && (double)(now - first) > seconds * 1e9) {
            out->rate = (double)samples * 1e9 / (double)(now - first);
            kill((pid_t)my.pid[0], SIGKILL);
            killed = before = mr_time_ns();
        }
        if (killed && mr_time_ns() - killed > 300000000)
            break;
    }
    out->first_ms = (double)(first - start) / 1e6;
    mr_loader_close(loader);
    mr_sampler_destroy(order);
    return rc;
}

static double number(int argc, char **argv, int i, double otherwise)
{
    return argc > i ? atof(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    my.bytes = (uint64_t)number(argc, argv, 1, 3072);
    my.work_ns = (uint64_t)(number(argc, argv, 2, 0) * 1e3);
    uint32_t processes = (uint32_t)number(argc, argv, 3, 2);
    double seconds = number(argc, argv, 4, 2);
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.batch_size = (uint32_t)number(argc, argv, 5, 64);
    o.workers = (uint32_t)number(argc, argv, 6, 0);
    o.epochs = 1000000;
    my.ready = malloc(READY * my.bytes);
    if (!my.ready)
        return 1;
    memset(my.ready, 1, READY * my.bytes);
    struct mr_dataset *ds = NULL;
    struct result r = {0};
    int rc = open_set(processes, &ds);
    if (rc >= 0)
        rc = measure(ds, &o, seconds, &r);
    if (rc < 0) {
        fprintf(stderr, "%s\n", mr_last_error());
        return 1;
    }
    printf("%llu bytes, %.0f us, %u processes: %.0f samples/s, %.2f GB/s, first batch %.1f ms, "
           "longest gap after a kill %.1f ms\n",
           (unsigned long long)my.bytes, (double)my.work_ns / 1e3, processes, r.rate,
           r.rate * (double)my.bytes / 1e9, r.first_ms, r.after_kill_ms);
    mr_dataset_close(ds);
    free(my.ready);
    return 0;
}
