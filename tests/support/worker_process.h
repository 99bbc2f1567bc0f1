/* Worker processes for tests: the test program itself, run again with --worker. What they do with
 * which sample is in memory that they share with the test. */
#ifndef TEST_WORKER_PROCESS_H
#define TEST_WORKER_PROCESS_H

#include "run_loader.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/random.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_STARTED 1024

enum deed {
    NOTHING,
    DIE,
    DIE_ONCE,
    DIE_IN_RUN, /* when it is made with others, and then once more alone */
    EXIT_STATUS,
    HANG,
    HANG_ONCE,
    WAIT, /* until go is set */
    FAIL,
    LEAVE_UNSET,
    SHAPE
};

/* Shared by the test and its workers. */
struct behaviour {
    enum deed deed;
    uint64_t every, at; /* the deed is done with samples whose index % every == at; 0: with none */
    uint64_t work_ns;   /* busy for so long with each sample */
    uint64_t uneven_ns; /* and for 0 to 7 eighths of this, by its index */
    int fail_init, no_run, closes_fd;
    int code; /* of FAIL; 0: -EIO */
    _Atomic int deeds, inits, exits, started, go;
    _Atomic int64_t pid[MAX_STARTED];      /* of all that were started, in order */
    _Atomic uint64_t blocked[MAX_STARTED]; /* signals that they block in init, as bits */
    _Atomic uint32_t made[1 << 16];        /* how often, by index */
    _Atomic uint32_t turn[1 << 16];        /* which of all was made so, the last time; from 1 */
    _Atomic uint32_t n_turns;
};

struct crew {
    struct behaviour *b;
    int fd; /* its memory */
    bool forks;
    int fail_start_after; /* start fails from this call on; -1: never */
    int fail_starts;      /* so often; 0: always */
    int start_error;      /* with this; 0: with one after the other that may pass */
    _Atomic int starts, closed;
    uint64_t close_ns; /* what closing took */
};

#define X_BYTES 500

static inline bool is_due(const struct behaviour *b, uint64_t index)
{
    return b->every > 0 && index % b->every == b->at;
}

/* Of n samples that are made at a time. */
static inline int do_deed(struct behaviour *b, uint64_t index, uint64_t n)
{
    if (!is_due(b, index))
        return 0;
    if (b->deed == DIE_IN_RUN) {
        int before = n == 1;
        if (atomic_compare_exchange_strong(&b->deeds, &before, before + 1))
            kill(getpid(), SIGKILL);
        return 0;
    }
    int before = atomic_fetch_add(&b->deeds, 1);
    if (b->deed == DIE || (b->deed == DIE_ONCE && before == 0))
        kill(getpid(), SIGKILL);
    if (b->deed == EXIT_STATUS)
        _exit(3);
    if (b->deed == HANG || (b->deed == HANG_ONCE && before == 0))
        for (;;)
            pause();
    while (b->deed == WAIT && atomic_load(&b->go) == 0)
        sched_yield();
    return b->deed == FAIL
               ? mr_error_set(b->code ? b->code : -EIO, "disk %d is on fire", (int)(index % 7))
               : 0;
}

static inline void be_busy(uint64_t ns)
{
    uint64_t until = mr_time_ns() + ns;
    while (ns > 0 && mr_time_ns() < until)
        continue;
}

/* Two fields: what keys the sample; bytes drawn with that, as many as its index says. */
static inline int make_samples(void *user, uint64_t n, const struct mr_sample_context c[],
                               void *const (*row)[MR_MAX_FIELDS],
                               uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[])
{
    struct behaviour *b = user;
    for (uint64_t i = 0; i < n; i++) {
        struct mr_rng rng;
        uint64_t *key = row[i][0];
        unsigned char *x = row[i][1];
        if (b->deed == LEAVE_UNSET && is_due(b, c[i].index))
            continue;
        rc[i] = do_deed(b, c[i].index, n);
        if (rc[i] < 0)
            continue;
        mr_rng_init(&rng, c[i].seed, c[i].epoch, c[i].index, 0);
        key[0] = c[i].index;
        key[1] = c[i].epoch;
        key[2] = c[i].seed;
        key[3] = c[i].position;
        dim[i][1][0] = 1 + c[i].index % X_BYTES;
        for (uint64_t k = 0; k < dim[i][1][0]; k++)
            x[k] = (unsigned char)mr_rng_u32(&rng);
        if (b->deed == SHAPE && is_due(b, c[i].index))
            dim[i][1][0] = X_BYTES + 1;
        be_busy(b->work_ns + b->uneven_ns * (c[i].index / 32 % 8) / 8);
        atomic_fetch_add(&b->made[c[i].index % (1 << 16)], 1);
        atomic_store(&b->turn[c[i].index % (1 << 16)], atomic_fetch_add(&b->n_turns, 1) + 1);
    }
    return 0;
}

/* Bit s - 1: signal s. */
static inline uint64_t blocked_signals(void)
{
    uint64_t bits = 0;
    sigset_t set;
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, NULL, &set);
    for (int s = 1; s <= 64; s++)
        bits |= (uint64_t)(sigismember(&set, s) == 1) << (s - 1);
    return bits;
}

static inline int init_worker(void *user, uint32_t worker, void **state)
{
    struct behaviour *b = user;
    *state = b;
    if (b->closes_fd)
        close(b->closes_fd);
    atomic_store(&b->blocked[atomic_fetch_add(&b->inits, 1) % MAX_STARTED], blocked_signals());
    return b->fail_init ? mr_error_set(-ECONNREFUSED, "no database for worker %u", worker) : 0;
}

static inline void exit_worker(void *user, uint32_t worker, void *state)
{
    (void)worker;
    (void)state;
    atomic_fetch_add(&((struct behaviour *)user)->exits, 1);
}

static inline int run_worker(int fd, struct behaviour *b)
{
    struct mr_worker_opts opts;
    mr_worker_opts_init(&opts);
    opts.get_run = make_samples;
    opts.init = init_worker;
    opts.exit = exit_worker;
    opts.user = b;
    if (b->no_run)
        return 7;
    if (b->closes_fd)
        b->closes_fd = fd;
    return mr_worker_run(fd, &opts) < 0 ? 1 : 0;
}

static inline struct behaviour *map_behaviour(int fd)
{
    void *at = mmap(NULL, sizeof(struct behaviour), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Call it first in main(): it is a worker if the arguments say so, and does not return then. */
static inline void maybe_worker(int argc, char **argv)
{
    if (argc != 4 || strcmp(argv[1], "--worker") != 0)
        return;
    struct behaviour *b = map_behaviour(atoi(argv[3]));
    exit(b ? run_worker(atoi(argv[2]), b) : 99);
}

static inline int fail_start(const struct crew *crew, int n)
{
    static const int passing[] = {-EAGAIN, -EMFILE, -ENFILE, -ENOMEM};
    return mr_error_set(crew->start_error ? crew->start_error : passing[n % 4],
                        "no more processes today");
}

static inline int start_worker(void *user, uint32_t worker, int fd, int64_t *out_pid)
{
    struct crew *crew = user;
    char one[16], two[16];
    (void)worker;
    int n = atomic_fetch_add(&crew->starts, 1);
    if (crew->fail_start_after >= 0 && n >= crew->fail_start_after &&
        (crew->fail_starts == 0 || n < crew->fail_start_after + crew->fail_starts))
        return fail_start(crew, n);
    snprintf(one, sizeof one, "%d", fd);
    snprintf(two, sizeof two, "%d", crew->fd);
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0 && crew->forks)
        _exit(run_worker(fd, crew->b));
    if (pid == 0) {
        fcntl(fd, F_SETFD, 0);
        fcntl(crew->fd, F_SETFD, 0);
        execl("/proc/self/exe", "worker", "--worker", one, two, (char *)NULL);
        _exit(98);
    }
    n = atomic_fetch_add(&crew->b->started, 1);
    atomic_store(&crew->b->pid[n % MAX_STARTED], pid);
    *out_pid = pid;
    return 0;
}

static inline void close_crew(void *user)
{
    atomic_fetch_add(&((struct crew *)user)->closed, 1);
}

static inline void crew_create(struct crew *crew)
{
    memset(crew, 0, sizeof *crew);
    crew->fail_start_after = -1;
    crew->fd = memfd_create("behaviour", MFD_CLOEXEC);
    assert_true(crew->fd >= 0);
    assert_int_equal(ftruncate(crew->fd, sizeof *crew->b), 0);
    crew->b = map_behaviour(crew->fd);
    assert_non_null(crew->b);
}

static inline void crew_destroy(struct crew *crew)
{
    munmap(crew->b, sizeof *crew->b);
    close(crew->fd);
}

static inline void sample_fields(int *n_fields, struct mr_spec field[])
{
    *n_fields = 2;
    field[0] = (struct mr_spec){.name = "key", .dtype = MR_U64, .rank = 1, .dim = {4}};
    field[1] =
        (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {X_BYTES}, .var_dims = 1};
}

static inline struct mr_workers_opts crew_opts(struct crew *crew, uint64_t n, uint32_t workers)
{
    struct mr_workers_opts o;
    mr_workers_opts_init(&o);
    o.name = "crew";
    o.n = n;
    sample_fields(&o.n_fields, o.field);
    o.workers = workers;
    o.changes = 1;
    o.start = start_worker;
    o.close = close_crew;
    o.user = crew;
    return o;
}

/* The same samples made by threads. */
static inline struct mr_dataset *open_reference(struct behaviour *b, uint64_t n)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds = NULL;
    mr_callback_opts_init(&o);
    o.name = "crew";
    o.n = n;
    sample_fields(&o.n_fields, o.field);
    o.changes = 1;
    o.get_run = make_samples;
    o.user = b;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

#endif
