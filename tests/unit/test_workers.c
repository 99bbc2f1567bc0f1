/* Data sets whose samples other processes make: each sample once and with the same bits as by
 * threads, whatever happens to the processes. */
#include "worker_process.h"

#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#define N           2000
#define PATIENCE_NS 500000000ull /* with samples that hang; others get none where it is busy */
#define GRACE_NS    300000000ull /* workers that need longer to end are killed */

static struct run_config crew_config(void)
{
    struct run_config c = run_config(NULL);
    c.opts.collate = MR_COLLATE_RAGGED;
    return c;
}

static struct run run_workers(struct crew *crew, struct mr_workers_opts *o, struct run_config *c)
{
    must(mr_dataset_open_workers(o, &c->ds));
    struct run run = run_loader(c);
    uint64_t start = mr_time_ns();
    mr_dataset_close(c->ds);
    crew->close_ns = mr_time_ns() - start;
    assert_int_equal(atomic_exchange(&crew->closed, 0), 1);
    return run;
}

static struct run run_reference(struct run_config c, uint64_t n)
{
    struct behaviour *b = calloc(1, sizeof *b);
    c.opts.workers = 2;
    c.ds = open_reference(b, n);
    struct run run = run_loader(&c);
    mr_dataset_close(c.ds);
    free(b);
    return run;
}

static void nap(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}

/* A process that ended, even if it is a zombie of another one, or none. */
static bool is_gone(int64_t pid)
{
    char path[64], line[256] = "", *end;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    end = strrchr(line, ')');
    return !read || (end && (end[2] == 'Z' || end[2] == 'X'));
}

static void assert_all_gone(const struct crew *crew)
{
    for (int i = 0; i < atomic_load(&crew->b->started); i++)
        assert_true(is_gone(atomic_load(&crew->b->pid[i % MAX_STARTED])));
}

/* ---- samples ---- */

static void the_same_as_by_threads(void **state)
{
    (void)state;
    static const uint32_t workers[] = {1, 2, 5}, threads[] = {1, 0, 7}, batch[] = {1, 64, 250};
    for (int i = 0; i < 9; i++) {
        struct crew crew;
        struct run_config c = crew_config();
        crew_create(&crew);
        c.sampler = i % 2 ? "random" : "sequential";
        c.sampler_seed = (uint64_t)i;
        c.opts.seed = 77 + (uint64_t)i;
        c.opts.epochs = 2;
        c.opts.batch_size = batch[i % 3];
        c.device = i % 2 ? "sim" : "cpu";
        struct run want = run_reference(c, N);
        struct mr_workers_opts o = crew_opts(&crew, N, workers[i / 3]);
        c.opts.workers = threads[i % 3];
        struct run got = run_workers(&crew, &o, &c);
        if (got.rc != 0)
            fail_msg("case %d: %s", i, got.error);
        assert_same_rows(&want, &got);
        for (int k = 0; k < N; k++)
            assert_int_equal(atomic_load(&crew.b->made[k]), 2);
        assert_int_equal(atomic_load(&crew.b->started), workers[i / 3]);
        if (crew.close_ns < GRACE_NS)
            assert_int_equal(atomic_load(&crew.b->exits), atomic_load(&crew.b->inits));
        assert_all_gone(&crew);
        run_free(&want);
        run_free(&got);
        crew_destroy(&crew);
    }
}

/* How many samples a job has follows from the pace, which other threads change. */
static void at_an_uneven_pace(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    crew_create(&crew);
    c.opts.batch_size = 7;
    c.opts.workers = 16;
    c.opts.epochs = 4;
    struct run want = run_reference(c, N);
    crew.b->uneven_ns = 60000;
    struct mr_workers_opts o = crew_opts(&crew, N, 4);
    struct run got = run_workers(&crew, &o, &c);
    assert_same_rows(&want, &got);
    for (int k = 0; k < N; k++)
        assert_int_equal(atomic_load(&crew.b->made[k]), 4);
    run_free(&want);
    run_free(&got);
    crew_destroy(&crew);
}

static void forked_workers(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* no threads in a child of several threads */
#endif
    struct crew crew;
    struct run_config c = crew_config();
    crew_create(&crew);
    crew.forks = true;
    struct run want = run_reference(c, N);
    struct mr_workers_opts o = crew_opts(&crew, N, 3);
    struct run got = run_workers(&crew, &o, &c);
    assert_same_rows(&want, &got);
    run_free(&want);
    run_free(&got);
    crew_destroy(&crew);
}

/* The memory grows by a loader's slots after they have it: they need a descriptor of it then. */
static void workers_that_close_the_descriptor(void **state)
{
    (void)state;
    for (int forks = 0; forks < 2; forks++) {
        struct crew crew;
        struct run_config c = crew_config();
#ifdef __SANITIZE_THREAD__
        if (forks) /* no threads in a child of several threads */
            continue;
#endif
        crew_create(&crew);
        crew.forks = forks;
        crew.b->closes_fd = 1;
        c.opts.batch_size = 250;
        struct run want = run_reference(c, N);
        struct mr_workers_opts o = crew_opts(&crew, N, 1);
        struct run got = run_workers(&crew, &o, &c);
        if (got.rc != 0)
            fail_msg("%s", got.error);
        assert_same_rows(&want, &got);
        assert_int_equal(atomic_load(&crew.b->started), 1);
        run_free(&want);
        run_free(&got);
        crew_destroy(&crew);
    }
}

static void on_one_processor(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    cpu_set_t before, one;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
        if (CPU_ISSET((size_t)cpu, &before)) {
            CPU_ZERO(&one);
            CPU_SET((size_t)cpu, &one);
        }
    crew_create(&crew);
    struct run want = run_reference(c, N);
    struct mr_workers_opts o = crew_opts(&crew, N, 3);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct run got = run_workers(&crew, &o, &c);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_same_rows(&want, &got);
    run_free(&want);
    run_free(&got);
    crew_destroy(&crew);
}

static void with_few_descriptors(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    struct rlimit before, few;
    crew_create(&crew);
    struct run want = run_reference(c, N);
    struct mr_workers_opts o = crew_opts(&crew, N, 8);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct run got = run_workers(&crew, &o, &c);
    assert_same_rows(&want, &got);
    /* More processes than there can be descriptors. */
    o = crew_opts(&crew, N, 100);
    struct mr_dataset *ds;
    assert_int_equal(mr_dataset_open_workers(&o, &ds), -EMFILE);
    assert_non_null(strstr(mr_last_error(), "pidfd_open"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_all_gone(&crew);
    run_free(&want);
    run_free(&got);
    crew_destroy(&crew);
}

static void read_without_a_loader(void **state)
{
    (void)state;
    struct crew crew;
    crew_create(&crew);
    struct behaviour *b = calloc(1, sizeof *b);
    struct mr_workers_opts o = crew_opts(&crew, N, 2);
    struct mr_dataset *ds = NULL, *reference = open_reference(b, N);
    must(mr_dataset_open_workers(&o, &ds));
    for (uint64_t i = 0; i < 50; i++) {
        unsigned char mine[2][X_BYTES] = {{0}}, want[2][X_BYTES] = {{0}};
        uint64_t dim[2][MR_MAX_FIELDS][MR_MAX_RANK];
        void *mine_at[] = {mine[0], mine[1]}, *want_at[] = {want[0], want[1]};
        must(mr_dataset_read(ds, i * 37 % N, mine_at, dim[0]));
        must(mr_dataset_read(reference, i * 37 % N, want_at, dim[1]));
        assert_memory_equal(mine, want, sizeof mine);
        assert_int_equal(dim[0][1][0], dim[1][1][0]);
    }
    mr_dataset_close(reference);
    mr_dataset_close(ds);
    free(b);
    crew_destroy(&crew);
}

/* ---- deaths ---- */

struct killer {
    struct crew *crew;
    _Atomic bool stop;
    int kills, most;
    int signal;
    uint32_t seed;
    uint64_t open_ns; /* when the first worker was started */
};

/* A worker that is killed four times in a row before its first sample is given up. Under a
 * sanitizer or an emulator one takes a hundred times as long to start: the pauses follow that. */
static uint64_t longest_pause(const struct killer *k)
{
    while (atomic_load(&k->crew->b->inits) == 0 && !atomic_load(&k->stop))
        nap(100000);
    uint64_t ns = 2 * (mr_time_ns() - k->open_ns);
    return ns < 4000000 ? 4000000 : ns > 150000000 ? 150000000 : ns;
}

/* Kills a random worker that lives, now and then. */
static void *kill_some(void *arg)
{
    struct killer *k = arg;
    uint64_t pause_ns = longest_pause(k);
    for (uint32_t i = 0; k->kills < k->most && !atomic_load(&k->stop); i++) {
        uint64_t started = (uint64_t)atomic_load(&k->crew->b->started);
        nap(test_u64(k->seed + 2 * i) % pause_ns);
        uint64_t newest = test_u64(k->seed + 2 * i + 1) % (started < 16 ? started : 16);
        int64_t pid = atomic_load(&k->crew->b->pid[(started - 1 - newest) % MAX_STARTED]);
        if (is_gone(pid) || kill((pid_t)pid, k->signal) < 0)
            continue;
        k->kills++;
        if (k->signal != SIGSTOP)
            continue;
        nap(20000000);
        kill((pid_t)pid, SIGCONT);
    }
    return NULL;
}

static void run_killed(int signal, int kills, uint32_t seed)
{
    struct crew crew;
    struct run_config c = crew_config();
    struct mr_dataset *ds = NULL;
    pthread_t thread;
    crew_create(&crew);
    c.opts.epochs = 1000;
    c.opts.batch_size = 50;
    c.stop_after = 40;
    c.opts.seed = seed;
    c.sampler = "random";
    struct run want = run_reference(c, N);
    struct killer k = {
        .crew = &crew, .most = kills, .signal = signal, .seed = seed, .open_ns = mr_time_ns()};
    struct mr_workers_opts o = crew_opts(&crew, N, 4);
    o.max_deaths = 1000;
    crew.b->work_ns = 20000;
    must(mr_dataset_open_workers(&o, &ds));
    c.ds = ds;
    assert_int_equal(pthread_create(&thread, NULL, kill_some, &k), 0);
    do {
        struct run got = run_loader(&c);
        if (got.rc < 0) {
            atomic_store(&k.stop, true);
            pthread_join(thread, NULL);
            fail_msg("%s", got.error);
        }
        assert_same_rows(&want, &got);
        run_free(&got);
    } while (k.most > 0 && pthread_tryjoin_np(thread, NULL) != 0);
    assert_int_equal(k.kills, kills);
    mr_dataset_close(ds);
    assert_all_gone(&crew);
    run_free(&want);
    crew_destroy(&crew);
}

static void killed_a_hundred_times(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 4; seed++)
        run_killed(SIGKILL, 25, 1000 * seed);
}

static void stopped_and_continued(void **state)
{
    (void)state;
    run_killed(SIGSTOP, 10, 5);
}

static struct run run_with_deed(struct crew *crew, enum deed deed, struct mr_workers_opts *o)
{
    struct run_config c = crew_config();
    crew->b->deed = deed;
    crew->b->every = 500;
    crew->b->at = 123;
    c.opts.bad = MR_BAD_SKIP;
    c.opts.max_bad = 100;
    return run_workers(crew, o, &c);
}

/* All samples but those of the deed, with the right bits. */
static void assert_others(const struct run *got, uint64_t bad)
{
    struct run_config c = crew_config();
    struct run want = run_reference(c, N);
    uint64_t k = 0;
    assert_int_equal(got->n, N - bad);
    for (uint64_t i = 0; i < want.n; i++) {
        if (bad > 0 && want.row[i].index % 500 == 123)
            continue;
        assert_int_equal(got->row[k].index, want.row[i].index);
        assert_int_equal(got->row[k++].hash, want.row[i].hash);
    }
    run_free(&want);
}

static void a_sample_that_kills_is_bad(void **state)
{
    (void)state;
    static const struct {
        enum deed deed;
        uint64_t timeout_ns;
        const char *text;
        int deeds; /* by samples made alone; and at most one in a run for each; 0: not counted */
        int rc;
    } cases[] = {
        {DIE, 0, "killed by signal 9 (SIGKILL), perhaps out of memory", 8, MR_ECALLBACK},
        {EXIT_STATUS, 0, "exited with status 3", 8, MR_ECALLBACK},
        {HANG, PATIENCE_NS, "took longer than the timeout of 0.5 s", 8, MR_ECALLBACK},
        {FAIL, 0, "disk 4 is on fire", 0, -EIO},
        {LEAVE_UNSET, 0, "did not set rc", 0, MR_ECALLBACK},
        {SHAPE, 0, "dimension 0 is 501", 4, MR_ECALLBACK},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct crew crew;
        crew_create(&crew);
        struct mr_workers_opts o = crew_opts(&crew, N, 3);
        o.timeout_ns = cases[i].timeout_ns;
        struct run skipped = run_with_deed(&crew, cases[i].deed, &o);
        if (skipped.rc != 0)
            fail_msg("case %zu: %s", i, skipped.error);
        assert_others(&skipped, 4);
        if (cases[i].deeds > 0)
            assert_in_range(atomic_load(&crew.b->deeds), cases[i].deeds, cases[i].deeds + 4);
        struct run_config c = crew_config();
        struct run failed = run_workers(&crew, &o, &c);
        assert_int_equal(failed.rc, cases[i].rc);
        if (!strstr(failed.error, cases[i].text) || !strstr(failed.error, "sample 123"))
            fail_msg("case %zu: %s", i, failed.error);
        assert_all_gone(&crew);
        run_free(&skipped);
        run_free(&failed);
        crew_destroy(&crew);
    }
}

static void a_death_costs_nothing_but_time(void **state)
{
    (void)state;
    static const enum deed deeds[] = {DIE_ONCE, HANG_ONCE};
    for (size_t i = 0; i < MR_COUNT(deeds); i++) {
        struct crew crew;
        crew_create(&crew);
        struct mr_workers_opts o = crew_opts(&crew, N, 2);
        o.timeout_ns = PATIENCE_NS;
        struct run got = run_with_deed(&crew, deeds[i], &o);
        assert_int_equal(got.rc, 0);
        assert_others(&got, 0);
        assert_int_equal(atomic_load(&crew.b->started), 3);
        run_free(&got);
        crew_destroy(&crew);
    }
}

/* A worker is killed while it makes several samples, another one while it makes one of them. */
static void two_deaths_that_no_sample_caused(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 2);
    crew.b->deed = DIE_IN_RUN;
    crew.b->every = N;
    crew.b->at = N / 2;
    c.opts.epochs = 20; /* several are made at a time once it is known that they take little */
    struct run got = run_workers(&crew, &o, &c);
    if (got.rc != 0)
        fail_msg("%s", got.error);
    assert_int_equal(got.n, 20 * N);
    assert_int_equal(atomic_load(&crew.b->deeds), 2);
    assert_int_equal(atomic_load(&crew.b->started), 4);
    run_free(&got);
    crew_destroy(&crew);
}

/* A worker that takes the place of one that died blocks the signals that the first one did, not
 * those that the library's thread does. */
static void the_same_signals_are_blocked(void **state)
{
    (void)state;
    struct crew crew;
    sigset_t usual, more;
    sigemptyset(&more);
    sigaddset(&more, SIGUSR2);
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &more, &usual), 0);
    uint64_t want = blocked_signals();
    struct run got = run_with_deed(&crew, DIE_ONCE, &o);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &usual, NULL), 0);
    assert_int_equal(got.rc, 0);
    assert_int_equal(atomic_load(&crew.b->inits), 2);
    assert_int_equal(atomic_load(&crew.b->blocked[0]), want);
    assert_int_equal(atomic_load(&crew.b->blocked[1]), want);
    run_free(&got);
    crew_destroy(&crew);
}

static void replaced(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 2);
    crew.b->deed = DIE;
    crew.b->every = 500;
    crew.b->at = 123;
    c.opts.bad = MR_BAD_REPLACE;
    c.opts.max_bad = 100;
    struct run got = run_workers(&crew, &o, &c);
    assert_int_equal(got.n, N);
    assert_int_equal(got.row[123].index, 124);
    run_free(&got);
    crew_destroy(&crew);
}

/* ---- workers that do not come up ---- */

static void a_crew_that_never_works(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct crew crew;
        struct run_config c = crew_config();
        crew_create(&crew);
        struct mr_workers_opts o = crew_opts(&crew, N, 2);
        crew.b->fail_init = i == 0;
        crew.b->no_run = i == 1;
        struct run got = run_workers(&crew, &o, &c);
        assert_int_equal(got.rc, i == 0 ? -ECONNREFUSED : MR_ECALLBACK);
        const char *text = i == 0 ? "no database for worker" : "exited with status 7 before it";
        if (!strstr(got.error, text))
            fail_msg("%s", got.error);
        assert_int_equal(atomic_load(&crew.b->started), i == 0 ? 2 : 8);
        run_free(&got);
        crew_destroy(&crew);
    }
}

static void start_fails(void **state)
{
    (void)state;
    struct crew crew;
    struct mr_dataset *ds = NULL;
    crew_create(&crew);
    for (int after = 0; after < 3; after++) {
        struct mr_workers_opts o = crew_opts(&crew, N, 3);
        crew.starts = 0;
        crew.fail_start_after = after;
        crew.start_error = -EAGAIN;
        assert_int_equal(mr_dataset_open_workers(&o, &ds), -EAGAIN);
        assert_non_null(strstr(mr_last_error(), "no more processes today"));
        assert_int_equal(crew.closed, 0);
        assert_all_gone(&crew);
    }
    /* Those that died are not replaced, until none is left. */
    struct mr_workers_opts o = crew_opts(&crew, N, 3);
    crew.starts = 0;
    crew.fail_start_after = 3;
    crew.start_error = -EPERM;
    struct run got = run_with_deed(&crew, DIE_ONCE, &o);
    assert_int_equal(got.rc, 0);
    assert_others(&got, 0);
    run_free(&got);
    crew.starts = 0;
    got = run_with_deed(&crew, DIE, &o);
    assert_int_equal(got.rc, MR_EBADSAMPLES);
    run_free(&got);
    crew_destroy(&crew);
}

/* Nobody asks for a sample: each worker has been in init, and then waits. */
static void workers_that_die_idle(void **state)
{
    (void)state;
    struct crew crew;
    struct mr_dataset *ds = NULL;
    unsigned char x[X_BYTES];
    uint64_t key[4], dim[MR_MAX_FIELDS][MR_MAX_RANK];
    void *at[] = {key, x};
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 1);
    must(mr_dataset_open_workers(&o, &ds));
    for (int i = 0; i < 4; i++) {
        while (atomic_load(&crew.b->inits) <= i || atomic_load(&crew.b->started) <= i)
            nap(1000000);
        kill((pid_t)atomic_load(&crew.b->pid[i]), SIGKILL);
    }
    assert_int_equal(mr_dataset_read(ds, 1, at, dim), MR_ECALLBACK);
    assert_non_null(strstr(mr_last_error(), "was killed by signal 9 before it made a sample"));
    assert_int_equal(atomic_load(&crew.b->started), 4);
    mr_dataset_close(ds);
    crew_destroy(&crew);
}

/* What the system lacks for some time is no fault of the program. */
static void shortages_pass(void **state)
{
    (void)state;
    struct crew crew;
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 1);
    crew.fail_start_after = 1;
    crew.fail_starts = 5;
    struct run got = run_with_deed(&crew, DIE_ONCE, &o);
    if (got.rc != 0)
        fail_msg("%s", got.error);
    assert_others(&got, 0);
    assert_int_equal(atomic_load(&crew.starts), 7);
    run_free(&got);
    crew_destroy(&crew);
}

static void a_shortage_that_does_not_pass(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 1);
    crew.b->deed = DIE_ONCE;
    crew.b->every = N;
    crew.fail_start_after = 1;
    crew.start_error = -EMFILE;
    struct run got = run_workers(&crew, &o, &c);
    assert_int_equal(got.rc, -EMFILE);
    if (!strstr(got.error, "no more processes today") || !strstr(got.error, mr_strerror(-EMFILE)))
        fail_msg("%s", got.error);
    run_free(&got);
    crew_destroy(&crew);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct crew crew;
    struct mr_dataset *ds = NULL;
    struct mr_worker_opts w;
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, MR_MAX_WORKER_PROCESSES + 1);
    assert_int_equal(mr_dataset_open_workers(&o, &ds), MR_EOPTION);
    o = crew_opts(&crew, N, 1);
    o.start = NULL;
    assert_int_equal(mr_dataset_open_workers(&o, &ds), MR_EMISUSE);
    o = crew_opts(&crew, N, 1);
    o.size = 3;
    assert_int_equal(mr_dataset_open_workers(&o, &ds), MR_EMISUSE);
    assert_int_equal(mr_dataset_open_workers(NULL, &ds), MR_EMISUSE);
    mr_worker_opts_init(&w);
    assert_int_equal(mr_worker_run(crew.fd, &w), MR_EMISUSE);
    assert_int_equal(mr_worker_run(crew.fd, NULL), MR_EMISUSE);
    w.get_run = make_samples;
    assert_int_equal(mr_worker_run(crew.fd, &w), MR_EFORMAT);
    assert_int_equal(mr_worker_run(-1, &w), -EBADF);
    crew_destroy(&crew);
}

/* ---- the parent ---- */

/* Opens a crew, uses it, and waits to be killed. */
static void be_parent(struct crew *crew, enum deed deed)
{
    struct mr_dataset *ds = NULL;
    unsigned char x[X_BYTES];
    uint64_t key[4], dim[MR_MAX_FIELDS][MR_MAX_RANK];
    void *at[] = {key, x};
    struct mr_workers_opts o = crew_opts(crew, N, 3);
    crew->b->deed = deed;
    crew->b->every = 1;
    if (mr_dataset_open_workers(&o, &ds) < 0)
        _exit(1);
    mr_dataset_read(ds, 1, at, dim); /* with HANG it does not come back */
    crew->b->no_run = 2;
    for (;;)
        pause();
}

static void workers_end_with_their_parent(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* no threads in a child of several threads */
#endif
    static const enum deed deeds[] = {NOTHING, HANG};
    for (size_t i = 0; i < MR_COUNT(deeds); i++) {
        struct crew crew;
        crew_create(&crew);
        fflush(NULL);
        pid_t parent = fork();
        assert_true(parent >= 0);
        if (parent == 0)
            be_parent(&crew, deeds[i]);
        while (deeds[i] == HANG ? atomic_load(&crew.b->deeds) == 0
                                : *(volatile int *)&crew.b->no_run != 2)
            nap(1000000);
        kill(parent, SIGKILL);
        assert_int_equal(waitpid(parent, NULL, 0), parent);
        for (int k = 0; k < 3; k++)
            while (!is_gone(atomic_load(&crew.b->pid[k])))
                nap(1000000);
        crew_destroy(&crew);
    }
}

static void a_forked_child_may_close(void **state)
{
    (void)state;
    struct crew crew;
    struct run_config c = crew_config();
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 2);
    must(mr_dataset_open_workers(&o, &c.ds));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char x[X_BYTES];
        uint64_t key[4], dim[MR_MAX_FIELDS][MR_MAX_RANK];
        void *at[] = {key, x};
        int rc = mr_dataset_read(c.ds, 1, at, dim);
        mr_dataset_close(c.ds);
        _exit(rc == MR_EMISUSE && crew.closed == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    struct run got = run_loader(&c);
    assert_int_equal(got.n, N);
    mr_dataset_close(c.ds);
    run_free(&got);
    crew_destroy(&crew);
}

/* A worker that does not come back is killed when the data set is closed. */
static void closing_does_not_wait(void **state)
{
    (void)state;
    struct crew crew;
    struct mr_dataset *ds = NULL;
    crew_create(&crew);
    struct mr_workers_opts o = crew_opts(&crew, N, 2);
    must(mr_dataset_open_workers(&o, &ds));
    while (atomic_load(&crew.b->inits) < 2)
        nap(1000000);
    for (int i = 0; i < 2; i++)
        kill((pid_t)atomic_load(&crew.b->pid[i]), SIGSTOP);
    mr_dataset_close(ds);
    assert_all_gone(&crew);
    crew_destroy(&crew);
}

int main(int argc, char **argv)
{
    maybe_worker(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_by_threads),
        cmocka_unit_test(at_an_uneven_pace),
        cmocka_unit_test(forked_workers),
        cmocka_unit_test(workers_that_close_the_descriptor),
        cmocka_unit_test(on_one_processor),
        cmocka_unit_test(with_few_descriptors),
        cmocka_unit_test(read_without_a_loader),
        cmocka_unit_test(killed_a_hundred_times),
        cmocka_unit_test(stopped_and_continued),
        cmocka_unit_test(a_sample_that_kills_is_bad),
        cmocka_unit_test(a_death_costs_nothing_but_time),
        cmocka_unit_test(two_deaths_that_no_sample_caused),
        cmocka_unit_test(the_same_signals_are_blocked),
        cmocka_unit_test(replaced),
        cmocka_unit_test(a_crew_that_never_works),
        cmocka_unit_test(start_fails),
        cmocka_unit_test(workers_that_die_idle),
        cmocka_unit_test(shortages_pass),
        cmocka_unit_test(a_shortage_that_does_not_pass),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(workers_end_with_their_parent),
        cmocka_unit_test(a_forked_child_may_close),
        cmocka_unit_test(closing_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
