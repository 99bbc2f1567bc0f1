/* What capabilities_data.c, capabilities_loop.c and bugs.c share: checks of the installed library,
 * each in a process of its own, so that one that crashes or hangs (SIGALRM) fails alone. A check
 * prints a line. */
#ifndef CHECKS_H
#define CHECKS_H

#include <millrace/millrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANGS_S 240 /* many times what a check takes on a busy machine */
#define N       100

struct check {
    const char *name;
    void (*run)(void);
};

/* Ends the check if the condition does not hold. */
#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("no: line %d: %s; last error: %s\n", __LINE__, #condition, mr_last_error());    \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define must(call) expect((call) >= 0)

/* Runs a function in a child, and says how that ended if not by exit. Returns wait()'s status. */
static inline int in_child(void (*run)(void))
{
    int status = 1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(HANGS_S);
        run();
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        printf("no: no child process\n");
    else if (WIFSIGNALED(status))
        printf("no: %s\n", WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
    return status;
}

/* Returns the number of checks that failed. */
static inline int run_checks(const struct check *checks, size_t n)
{
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        printf("%s: ", checks[i].name);
        failed += in_child(checks[i].run) != 0;
    }
    return failed;
}

/* ---- a run ---- */

typedef int get_fn(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);

static const struct mr_spec number = {.name = "x", .dtype = MR_U64};

/* A sample is its index. */
static inline int get_number(void *user, uint64_t index, void *const row[],
                             uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    memcpy(row[0], &index, sizeof index);
    return 0;
}

struct run {
    struct mr_dataset *ds;
    struct mr_sampler *sampler;
    struct mr_transform *chain;
    struct mr_device *device;
    struct mr_loader *loader;
    struct mr_loader_opts opts;
};

/* A run of batches of `batch` samples; its members may be changed before open_loader(). ds: NULL:
 * a callback set of N samples of one field. */
static inline struct run new_run(struct mr_dataset *ds, struct mr_spec field, get_fn *get,
                                 uint64_t batch)
{
    struct run r = {.ds = ds};
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "mine";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = field;
    o.get = get;
    if (!ds)
        must(mr_dataset_open_callback(&o, &r.ds));
    mr_loader_opts_init(&r.opts);
    r.opts.batch_size = batch;
    r.opts.workers = 3;
    return r;
}

static inline void open_loader(struct run *r)
{
    must(mr_loader_open(r->ds, r->sampler, r->chain, r->device, &r->opts, &r->loader));
}

/* Reads what is left; each sample of `number` must be its index. Returns how many. */
static inline uint64_t read_numbers(struct run *r)
{
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc;
    while ((rc = mr_loader_next(r->loader, NULL, &b)) > 0) {
        for (uint64_t i = 0; i < b.n; i++)
            expect(((const uint64_t *)b.field[0].host)[i] == b.indices[i]);
        n += b.n;
        must(mr_loader_release(r->loader, &b, NULL));
    }
    must(rc);
    return n;
}

static inline void close_run(struct run *r)
{
    mr_loader_close(r->loader);
    mr_transform_destroy(r->chain);
    mr_sampler_destroy(r->sampler);
    mr_dataset_close(r->ds);
    mr_device_close(r->device);
}

static inline struct run numbers(get_fn *get, uint64_t batch)
{
    return new_run(NULL, number, get, batch);
}

static inline struct mr_batch next(struct run *r)
{
    struct mr_batch b = {.size = sizeof b};
    expect(mr_loader_next(r->loader, NULL, &b) == 1);
    return b;
}

static inline int reverse(void *user, uint64_t epoch, uint64_t position, uint64_t count,
                          uint64_t *out)
{
    (void)user, (void)epoch;
    for (uint64_t i = 0; i < count; i++)
        out[i] = N - 1 - position - i;
    return 0;
}

static inline struct mr_sampler *reversed(const char *name)
{
    struct mr_sampler_opts o;
    struct mr_sampler *sampler;
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_CUSTOM;
    o.length = N;
    o.map = reverse;
    o.name = name;
    must(mr_sampler_create(&o, N, &sampler));
    return sampler;
}

#endif
