/* White-box. Decoding in processes behind a system call filter: the same samples, and what happens
 * to decoders that try something else, crash, are killed or lie. */
#include "picture_make.h"
#include "run_loader.h"
#include "samples.h"

#include "codec/image.h"
#include "dataset/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a data set whose decoder misbehaves ---- */

#define N           60
#define BYTES       16
#define IS_DUE(i)   ((i) % 10 == 3)
#define N_DUE       (N / 10)
#define SAMPLE_FILE "samples"

enum misdeed {
    NOTHING,
    OPEN,
    SOCKET,
    WRITE,
    FORK,
    EXEC_MEMORY,
    SIGNAL,
    PTRACE,
    CRASH,
    ABORT,
    LEAVE,
    FAIL,
    LACK_MEMORY,
    LACK_PROCESSES,
    ADVISE,
    OVERFLOW,
    N_MISDEEDS,
    READ = N_MISDEEDS, /* not bad: asks the opener for bytes */
    READ_ON,           /* again and again */
    ALLOCATE,          /* not bad either */
    UNPROTECT,         /* writes to memory that the opener shares with others */
};
static enum misdeed misdeed;
static uint64_t nap_ns;
static uint8_t *shared;

static void crash(void)
{
    volatile char *gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap((void *)gone, 4096);
    *gone = 1;
}

/* glibc's free() finds it, and says so. */
static void overflow(void)
{
    volatile char *volatile p = malloc(2000);
    free(malloc(10));
    for (int i = -8; i < 0; i++)
        p[i] = 'A';
    free((void *)p);
    abort(); /* other libraries may find nothing */
}

/* Makes the heap larger by far, and smaller. */
static void allocate(void)
{
    void *volatile p[64];
    for (int i = 0; i < 64; i++)
        p[i] = memset(malloc(100000), 1, 100000);
    for (int i = 63; i >= 0; i--)
        free(p[i]);
}

static void misbehave(struct mr_files *files)
{
    uint8_t bytes[BYTES];
    switch (misdeed) {
    case OPEN:
        close(open("/etc/passwd", O_RDONLY));
        return;
    case SOCKET:
        socket(AF_INET, SOCK_STREAM, 0);
        return;
    case WRITE:
        syscall(SYS_write, 2, "x", 1);
        return;
    case FORK:
        syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        return;
    case EXEC_MEMORY:
        (void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return;
    case SIGNAL:
        kill(getpid(), 0);
        return;
    case PTRACE:
        syscall(SYS_ptrace, 0, 0, 0, 0);
        return;
    case CRASH:
        crash();
        return;
    case ABORT:
        abort();
    case LEAVE:
        _exit(7);
    case UNPROTECT:
        if (mprotect(shared, 4096, PROT_READ | PROT_WRITE) == 0)
            shared[0] = 1;
        return;
    case ADVISE: /* a number that means nothing so far */
        madvise(bytes, sizeof bytes, 120);
        return;
    case OVERFLOW:
        overflow();
        return;
    case ALLOCATE:
        allocate();
        return;
    case READ_ON:
        while (mr_files_read(files, 0, 0, bytes, sizeof bytes) == 0)
            continue;
        return;
    case READ:
        test_works(mr_files_read(files, 0, 0, bytes, sizeof bytes));
        return;
    default:
        return;
    }
}

static int hostile_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                          struct mr_sample *out)
{
    struct timespec t = {0, (long)nap_ns};
    if (nap_ns)
        nanosleep(&t, NULL);
    if (IS_DUE(index))
        misbehave(ds->files);
    if (IS_DUE(index) && misdeed == FAIL)
        return mr_error_set(MR_EFORMAT, "sample %llu: \x1b[2J is damaged",
                            (unsigned long long)index);
    if (IS_DUE(index) && misdeed == LACK_MEMORY)
        return mr_error_set(-ENOMEM, "no memory in the decoder");
    if (IS_DUE(index) && misdeed == LACK_PROCESSES)
        return mr_error_set(-ECHILD, "no processes in the decoder");
    for (int i = 0; i < BYTES; i++)
        ((uint8_t *)out->field[0].room)[i] = (uint8_t)(((const uint8_t *)in[0].data)[i] + 1);
    out->field[0].data = out->field[0].room;
    return 0;
}

static int hostile_locate(const struct mr_dataset *ds, uint64_t index,
                          struct mr_extent out[MR_MAX_EXTENTS])
{
    (void)ds;
    out[0] = (struct mr_extent){.field = -1, .offset = index * BYTES, .bytes = BYTES};
    return 1;
}

static int hostile_open(struct mr_dataset *ds, const void *opts)
{
    (void)opts;
    ds->n = N;
    ds->n_fields = 1;
    ds->field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {BYTES}};
    int id = mr_files_add_path(ds->files, test_path(SAMPLE_FILE));
    return id < 0 ? id : 0;
}

struct hostile_opts {
    size_t size;
};
static const struct mr_dataset_ops hostile = {.name = "hostile",
                                              .summary = "for this test",
                                              .isolates = true,
                                              .opts_size = sizeof(struct hostile_opts),
                                              .state_size = 1,
                                              .open = hostile_open,
                                              .locate = hostile_locate,
                                              .decode = hostile_decode};

static struct mr_dataset *open_hostile(void)
{
    static uint8_t bytes[N * BYTES];
    struct hostile_opts opts = {.size = sizeof opts};
    struct mr_dataset *ds = NULL;
    test_random_bytes(1, bytes, sizeof bytes);
    test_write(SAMPLE_FILE, bytes, sizeof bytes);
    test_works(mr_dataset_make(&hostile, &opts, &ds));
    return ds;
}

static struct run_config sandboxed(void)
{
    struct run_config c = run_config(NULL);
    c.opts.sandbox = 1;
    c.opts.batch_size = 8;
    return c;
}

/* ---- its processes ---- */

struct process {
    int pid, parent;
};

/* Those named mr-sandbox, but for zombies: the keeper's parent is the process that opened. */
static int find_processes(struct process *out, int most)
{
    DIR *proc = opendir("/proc");
    int n = 0;
    assert_non_null(proc);
    for (struct dirent *e; (e = readdir(proc));) {
        char path[300], line[400] = "";
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *file = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        if (!file)
            continue;
        bool read = fgets(line, sizeof line, file) != NULL;
        fclose(file);
        char state, *after = strstr(line, "(mr-sandbox) ");
        struct process p = {.pid = atoi(e->d_name)};
        if (read && after && sscanf(after, "(mr-sandbox) %c %d", &state, &p.parent) == 2 &&
            state != 'Z' && state != 'X' && n < most)
            out[n++] = p;
    }
    closedir(proc);
    return n;
}

static int keeper_of(int opener)
{
    struct process all[256];
    int n = find_processes(all, 256);
    for (int i = 0; i < n; i++)
        if (all[i].parent == opener)
            return all[i].pid;
    return 0;
}

static int decoders_of(int keeper, int *out, int most)
{
    struct process all[256];
    int n = find_processes(all, 256), found = 0;
    for (int i = 0; i < n; i++)
        if (all[i].parent == keeper && found < most)
            out[found++] = all[i].pid;
    return found;
}

static bool is_running(int pid)
{
    struct process all[256];
    int n = find_processes(all, 256);
    for (int i = 0; i < n; i++)
        if (all[i].pid == pid)
            return true;
    return false;
}

static void await_end(int pid)
{
    struct timespec t = {0, 10000000};
    for (int i = 0; i < 6000 && is_running(pid); i++)
        nanosleep(&t, NULL);
    assert_false(is_running(pid));
}

/* ---- tests ---- */

static void the_same_samples(void **state)
{
    (void)state;
    misdeed = NOTHING;
    struct run_config plain = sandboxed();
    plain.opts.sandbox = 0;
    plain.opts.epochs = 2;
    plain.sampler = "random";
    plain.ds = open_hostile();
    struct run want = run_loader(&plain);
    assert_int_equal(want.rc, 0);
    for (uint32_t workers = 1; workers <= 5; workers += 2) {
        struct run_config c = plain;
        c.opts.sandbox = 1;
        c.opts.workers = workers;
        struct run got = run_loader(&c);
        assert_int_equal(got.rc, 0);
        assert_same_rows(&want, &got);
        run_free(&got);
    }
    assert_int_equal(keeper_of(getpid()), 0);
    run_free(&want);
    mr_dataset_close(plain.ds);
}

/* What the report of a bad sample says. */
static const char *const words[N_MISDEEDS][2] = {
    [OPEN] = {"forbids", "(openat)"},
    [SOCKET] = {"forbids", "(socket)"},
    [WRITE] = {"forbids", "(write)"},
    [FORK] = {"forbids", "was killed"},
    [EXEC_MEMORY] = {"forbids", "(mmap)"},
    [SIGNAL] = {"forbids", "(kill)"},
    [PTRACE] = {"forbids", "(ptrace)"},
    [CRASH] = {"signal 11", "SIGSEGV"},
    [ABORT] = {"signal 6", "SIGABRT"},
    [LEAVE] = {"ended with", "status 7"},
    [FAIL] = {"is damaged", "?[2J"},
    [LACK_MEMORY] = {"no memory", "in the decoder"},
    [LACK_PROCESSES] = {"no processes", "in the decoder"},
    [ADVISE] = {"forbids", "(madvise)"},
#ifdef __GLIBC__
    [OVERFLOW] = {"crashed", "damaged memory"},
#else
    [OVERFLOW] = {"decoder", "killed"},
#endif
};

static void assert_bad(const struct mr_loader *ld)
{
    struct mr_bad_sample bad = {.size = sizeof bad};
    for (uint64_t i = 0; i < N_DUE; i++) {
        assert_int_equal(mr_loader_bad(ld, i, &bad), 1);
        assert_true(IS_DUE(bad.index));
        assert_string_equal(bad.file, test_path(SAMPLE_FILE));
        assert_int_equal(bad.offset, bad.index * BYTES);
        for (int k = 0; k < 2; k++)
            if (!strstr(bad.reason, words[misdeed][k]))
                fail_msg("misdeed %d: '%s' is not in '%s'", (int)misdeed, words[misdeed][k],
                         bad.reason);
    }
    assert_int_equal(mr_loader_bad(ld, N_DUE, &bad), 0);
}

/* Each misdeed makes its samples bad, and no others; the run goes on to its end. */
static void misdeeds_are_bad_samples(void **state)
{
    (void)state;
    for (misdeed = OPEN; misdeed < N_MISDEEDS; misdeed++) {
        if (misdeed == OVERFLOW && getenv("SANITIZED")) /* the sanitizer's heap has other reports */
            continue;
        struct run_config c = sandboxed();
        struct mr_loader *ld = NULL;
        struct mr_batch batch = {.size = sizeof batch};
        uint64_t n = 0;
        c.opts.bad = MR_BAD_SKIP;
        c.opts.workers = 2;
        struct mr_dataset *ds = open_hostile();
        test_works(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
        int rc;
        while ((rc = mr_loader_next(ld, NULL, &batch)) > 0) {
            const uint8_t *x = batch.field[0].host;
            for (uint64_t i = 0; i < batch.n; i++) {
                uint8_t want[BYTES];
                void *row[] = {want};
                if (IS_DUE(batch.indices[i]))
                    fail_msg("misdeed %d: sample %d is good", (int)misdeed, (int)batch.indices[i]);
                test_works(mr_dataset_read(ds, batch.indices[i], row, NULL));
                assert_memory_equal(x + i * BYTES, want, BYTES);
            }
            n += batch.n;
            test_works(mr_loader_release(ld, &batch, NULL));
        }
        test_works(rc);
        assert_int_equal(n, N - N_DUE);
        assert_bad(ld);
        mr_loader_close(ld);
        mr_dataset_close(ds);
    }
}

/* By default a bad sample ends the run, with an error that says what its decoder did. */
static void a_misdeed_fails_the_run(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    misdeed = SOCKET;
    c.ds = open_hostile();
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EFORMAT);
    assert_non_null(strstr(run.error, test_path(SAMPLE_FILE)));
    assert_non_null(strstr(run.error, "(socket)"));
    run_free(&run);
    mr_dataset_close(c.ds);
}

/* A decoder that something else killed, the system for want of memory, is no sample's fault: its
 * sample is made by the next one. Between two kills all samples of the first are done. */
static void decoders_that_are_killed_are_replaced(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    struct mr_loader *ld = NULL;
    struct mr_batch batch = {.size = sizeof batch};
    int pid[8], kills = 0, rc;
    uint64_t n = 0, batches = 0;
    misdeed = NOTHING;
    nap_ns = 500000;
    c.opts.workers = 2;
    c.opts.epochs = 6;
    c.opts.batch_size = 4;
    c.opts.prefetch = 2;
    struct mr_dataset *ds = open_hostile();
    test_works(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    while ((rc = mr_loader_next(ld, NULL, &batch)) > 0) {
        n += batch.n;
        test_works(mr_loader_release(ld, &batch, NULL));
        if (batches++ % 8 != 0)
            continue;
        int found = decoders_of(keeper_of(getpid()), pid, 8);
        for (int i = 0; i < found; i++, kills++)
            assert_int_equal(kill(pid[i], SIGKILL), 0);
    }
    test_works(rc);
    assert_int_equal(n, 6 * N);
    assert_true(kills > 0);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    nap_ns = 0;
}

/* What a decoder asks for is read by this function, in the opener: the first time it kills the
 * decoder, and returns when the keeper has started another. */
static int kill_the_asker(void *user, const struct mr_file_request *request, void *out)
{
    int *kills = user, keeper = keeper_of(getpid()), pid[8];
    memset(out, 0, request->bytes);
    if ((*kills)++ > 0)
        return 0;
    assert_int_equal(decoders_of(keeper, pid, 8), 1);
    int killed = pid[0];
    assert_int_equal(kill(killed, SIGKILL), 0);
    while (decoders_of(keeper, pid, 8) != 1 || pid[0] == killed)
        sched_yield();
    return 0;
}

static void a_decoder_may_end_while_its_bytes_are_read(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    int kills = 0;
    misdeed = READ;
    c.opts.workers = 1;
    c.ds = open_hostile();
    mr_files_ask(c.ds->files, kill_the_asker, &kills);
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, N);
    assert_int_equal(kills, N_DUE + 1);
    run_free(&run);
    mr_dataset_close(c.ds);
}

/* Without the keeper nothing can be decoded: the run ends, even if bad samples are skipped. */
static void a_killed_keeper_ends_the_run(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    struct mr_loader *ld = NULL;
    struct mr_batch batch = {.size = sizeof batch};
    int rc, pid[8], keeper;
    misdeed = NOTHING;
    nap_ns = 500000;
    c.opts.epochs = 0;
    c.opts.bad = MR_BAD_SKIP;
    struct mr_dataset *ds = open_hostile();
    test_works(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    assert_int_equal(mr_loader_next(ld, NULL, &batch), 1);
    test_works(mr_loader_release(ld, &batch, NULL));
    keeper = keeper_of(getpid());
    int n = decoders_of(keeper, pid, 8);
    assert_int_equal(kill(keeper, SIGKILL), 0);
    while ((rc = mr_loader_next(ld, NULL, &batch)) > 0)
        test_works(mr_loader_release(ld, &batch, NULL));
    test_fails(rc, -ECHILD, "sandbox");
    mr_loader_close(ld);
    mr_dataset_close(ds);
    for (int i = 0; i < n; i++)
        await_end(pid[i]);
    nap_ns = 0;
}

/* However the process that opened the loader ends, its decoders do, too. */
static void processes_end_with_their_opener(void **state)
{
    (void)state;
    int ready[2], pid[8];
    char byte;
    misdeed = NOTHING;
    assert_int_equal(pipe(ready), 0);
    int child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct run_config c = sandboxed();
        struct mr_loader *ld = NULL;
        int rc = mr_loader_open(open_hostile(), NULL, NULL, NULL, &c.opts, &ld);
        if (rc < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    int keeper = keeper_of(child), n = decoders_of(keeper, pid, 8);
    assert_true(keeper > 0 && n > 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    await_end(keeper);
    for (int i = 0; i < n; i++)
        await_end(pid[i]);
    close(ready[0]);
}

/* The loader closes, although a decoder takes very long. */
static void closes_while_a_decoder_works(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    struct mr_loader *ld = NULL;
    misdeed = NOTHING;
    nap_ns = 999999999;
    c.opts.batch_size = N;
    struct mr_dataset *ds = open_hostile();
    test_works(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    mr_loader_close(ld);
    mr_dataset_close(ds);
    assert_int_equal(keeper_of(getpid()), 0);
    nap_ns = 0;
}

static int note_read(void *user, const struct mr_file_request *request, void *out)
{
    memset(out, 0, request->bytes);
    atomic_store((atomic_int *)user, 1);
    return 0;
}

/* And although a decoder asks for bytes without end. */
static void closes_while_a_decoder_reads_on(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    struct mr_loader *ld = NULL;
    atomic_int reads = 0;
    misdeed = READ_ON;
    struct mr_dataset *ds = open_hostile();
    mr_files_ask(ds->files, note_read, &reads);
    test_works(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    while (!atomic_load(&reads))
        sched_yield();
    mr_loader_close(ld);
    mr_dataset_close(ds);
    assert_int_equal(keeper_of(getpid()), 0);
}

static void *run_on_a_thread(void *run)
{
    struct run_config c = sandboxed();
    free(malloc(10)); /* this thread has its heap */
    misdeed = ALLOCATE;
    c.opts.workers = 1;
    c.ds = open_hostile();
    *(struct run *)run = run_loader(&c);
    mr_dataset_close(c.ds);
    return NULL;
}

static void *convert_times(void *stop)
{
    while (!atomic_load((atomic_int *)stop)) {
        time_t now = time(NULL);
        struct tm tm;
        struct timespec t = {0, 100000};
        localtime_r(&now, &tm);
        free(malloc(1000));
        nanosleep(&t, NULL);
    }
    return NULL;
}

/* Which thread opens a loader makes no difference, nor what others do. */
static void opens_on_any_thread(void **state)
{
    (void)state;
    struct run run;
    pthread_t opener, other[2];
    atomic_int stop = 0;
    for (int others = 0; others <= 2; others += 2) {
        for (int i = 0; i < others; i++)
            assert_int_equal(pthread_create(&other[i], NULL, convert_times, &stop), 0);
        assert_int_equal(pthread_create(&opener, NULL, run_on_a_thread, &run), 0);
        pthread_join(opener, NULL);
        atomic_store(&stop, 1);
        for (int i = 0; i < others; i++)
            pthread_join(other[i], NULL);
        assert_string_equal(run.error, "");
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, N);
        run_free(&run);
        atomic_store(&stop, 0);
    }
}

/* Memory that the opener shares, for reading, by a descriptor that could write. */
static void shared_memory_is_out_of_reach(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    int fd = memfd_create("shared", 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    misdeed = UNPROTECT;
    c.ds = open_hostile();
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0); /* it is not there: mprotect() fails */
    assert_int_equal(shared[0], 0);
    run_free(&run);
    mr_dataset_close(c.ds);
    munmap(shared, 4096);
    close(fd);
}

/* ---- processes that do not start ---- */

/* A fork may have a copy of a lock that another thread held. This stands for it: children of this
 * generation stop, or end, before they do anything. */
static int stops_at, ends_at; /* generation; 0: none */
static int generation;
static int stops; /* forks that are still to stop */

static void in_child(void)
{
    generation++;
    while (generation == stops_at && stops > 0)
        pause();
    if (generation == ends_at)
        _exit(9);
}

static void in_parent(void)
{
    stops -= stops > 0;
}

/* The next fork may be luckier. */
static void starts_again(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    misdeed = NOTHING;
    c.ds = open_hostile();
    stops_at = 1;
    stops = 1;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, N);
    run_free(&run);
    mr_dataset_close(c.ds);
    stops_at = 0;
    assert_int_equal(keeper_of(getpid()), 0);
}

static void opening_can_be_interrupted(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    struct mr_loader *ld = NULL;
    misdeed = NOTHING;
    struct mr_dataset *ds = open_hostile();
    stops_at = 1;
    stops = INT_MAX;
    mr_interrupt(1);
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld);
    test_fails(rc, MR_ECANCELLED, "interrupted");
    mr_interrupt(0);
    mr_dataset_close(ds);
    stops_at = stops = 0;
    assert_int_equal(keeper_of(getpid()), 0);
}

static void decoders_that_end_at_once_fail_the_open(void **state)
{
    (void)state;
    struct run_config c = sandboxed();
    struct mr_loader *ld = NULL;
    misdeed = NOTHING;
    struct mr_dataset *ds = open_hostile();
    ends_at = 2;
    test_fails(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_EUNSUPPORTED, "status 9");
    ends_at = 0;
    mr_dataset_close(ds);
}

static int callback_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    (void)index;
    (void)dim;
    *(uint8_t *)row[0] = 1;
    return 0;
}

static void refuses_what_it_cannot_confine(void **state)
{
    (void)state;
    struct mr_callback_opts o;
    struct run_config c = sandboxed();
    mr_callback_opts_init(&o);
    o.n = 4;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {1}};
    o.get = callback_get;
    test_works(mr_dataset_open_callback(&o, &c.ds));
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EUNSUPPORTED);
    assert_non_null(strstr(run.error, "can't be decoded in a sandbox"));
    run_free(&run);
    mr_dataset_close(c.ds);
    c.ds = open_hostile();
    c.opts.cache = MR_CACHE_DEVICE;
    run = run_loader(&c);
    assert_int_equal(run.rc, MR_EOPTION);
    run_free(&run);
    c.opts.cache = MR_CACHE_NONE;
    c.opts.gpu_decode = 0.5;
    run = run_loader(&c);
    assert_int_equal(run.rc, MR_EOPTION);
    run_free(&run);
    mr_dataset_close(c.ds);
}

/* ---- pictures ---- */

static void write_picture(const char *name, struct encoded e)
{
    test_write(name, e.data, e.bytes);
    free(e.data);
}

static const char *write_pictures(void)
{
    mkdir(test_path("pictures"), 0777);
    for (int o = 0; o < 8; o++) {
        struct picture_make m = {.width = 90 + 7 * (uint32_t)o,
                                 .height = 61,
                                 .components = 3,
                                 .h = {2, 1, 1},
                                 .v = {2, 1, 1},
                                 .orientation = o + 1};
        char name[64];
        snprintf(name, sizeof name, "pictures/%d.jpg", o);
        write_picture(name, jpeg_make(&m));
        m.components = o % 2 ? 3 : 4;
        snprintf(name, sizeof name, "pictures/%d.png", o);
        write_picture(name, png_make(&m));
        snprintf(name, sizeof name, "pictures/%d.webp", o);
        write_picture(name, webp_make(&m));
    }
    test_write("pictures/bad.png", "\x89PNG\r\n\x1a\n", 8);
    return test_path("pictures");
}

/* All formats, upright and turned, whole and by windows, at scales; a damaged one, too. */
static void pictures_are_the_same(void **state)
{
    (void)state;
    static const char *const chains[] = {"resize(24,24)", "random_resized_crop(20)",
                                         "crop(40,30),cast(f32)", "resize(61),center_crop(50,50)",
                                         "random_crop(33,44),hflip(0.5)"};
    char uri[400];
    snprintf(uri, sizeof uri, "folder:%s,labels=none", write_pictures());
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        struct run_config c = run_config(uri);
        c.chain = chains[i];
        c.opts.bad = MR_BAD_SKIP;
        c.opts.epochs = 2;
        struct run want = run_loader(&c);
        assert_int_equal(want.rc, 0);
        assert_int_equal(want.n, 2 * 24);
        c.opts.sandbox = 1;
        struct run got = run_loader(&c);
        assert_int_equal(got.rc, 0);
        assert_same_rows(&want, &got);
        run_free(&want);
        run_free(&got);
    }
    struct run_config c = run_config(uri); /* without a chain: whole pictures, of any size */
    c.opts.bad = MR_BAD_SKIP;
    c.opts.collate = MR_COLLATE_PAD;
    c.opts.batch_size = 1;
    struct run want = run_loader(&c);
    c.opts.sandbox = 1;
    struct run got = run_loader(&c);
    assert_int_equal(got.rc, want.rc);
    assert_string_equal(got.error, want.error);
    assert_same_rows(&want, &got);
    run_free(&want);
    run_free(&got);
}

/* Each part of a mixture has a limit of its own. */
static void mixtures_have_limits(void **state)
{
    (void)state;
    const char *folder = write_pictures();
    char uri[900];
    snprintf(uri, sizeof uri,
             "mix:1*[folder:%s,labels=none,max-pixels=7000],1*[folder:%s,labels=none]", folder,
             folder);
    struct run_config c = run_config(uri);
    c.chain = "resize(24,24)";
    c.opts.bad = MR_BAD_SKIP;
    struct run want = run_loader(&c);
    assert_int_equal(want.rc, 0);
    assert_true(want.n > 24 && want.n < 48); /* some of the first part are too large */
    c.opts.sandbox = 1;
    struct run got = run_loader(&c);
    assert_int_equal(got.rc, 0);
    assert_same_rows(&want, &got);
    run_free(&want);
    run_free(&got);
}

/* ---- pictures of a decoder that lies ---- */

static struct mr_window chosen;
static int choose(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    (void)user;
    (void)width;
    (void)height;
    *out = chosen;
    return 0;
}

static struct mr_window random_window(uint32_t i, uint32_t width, uint32_t height)
{
    struct mr_window w = {0};
    w.clip_x = (uint32_t)(test_u64(i) % width);
    w.clip_y = (uint32_t)(test_u64(i + 1) % height);
    w.clip_w = 1 + (uint32_t)(test_u64(i + 2) % (width - w.clip_x));
    w.clip_h = 1 + (uint32_t)(test_u64(i + 3) % (height - w.clip_y));
    w.x = w.clip_x;
    w.y = w.clip_y;
    w.w = w.clip_w;
    w.h = w.clip_h;
    w.out_w = 1 + (uint32_t)(test_u64(i + 4) % (2 * w.clip_w));
    w.out_h = 1 + (uint32_t)(test_u64(i + 5) % (2 * w.clip_h));
    w.filter = 1;
    return w;
}

/* What any decoder returns passes. Of changed values those fail that name pixels which are not
 * there, or lack some that are read. */
static void pictures_are_checked(void **state)
{
    (void)state;
    struct mr_decoder *d = NULL;
    struct mr_image_opts opts = {.channels = 3};
    struct picture_make m = {
        .width = 101, .height = 67, .components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}};
    struct encoded e[] = {jpeg_make(&m), png_make(&m), webp_make(&m)};
    test_works(mr_decoder_create(&d));
    for (uint32_t i = 0; i < 900; i++) {
        struct mr_picture p = {0}, lie;
        chosen = random_window(10 * i, m.width, m.height);
        test_works(mr_image_decode(d, &opts, "x", e[i % 3].data, e[i % 3].bytes, choose, NULL, &p));
        p.stride = p.width * 3ull; /* as decoders in a sandbox answer */
        uint64_t bytes = p.height * p.stride;
        test_works(mr_picture_check(&opts, "x", choose, NULL, &p, bytes));
        assert_int_equal(mr_picture_check(&opts, "x", choose, NULL, &p, bytes - 1), MR_EFORMAT);
#define REFUSED(change)                                                                            \
    lie = p;                                                                                       \
    change;                                                                                        \
    assert_true(mr_picture_check(&opts, "x", choose, NULL, &lie, bytes) < 0)
        REFUSED(lie.width = 0);
        REFUSED(lie.height = 0);
        REFUSED(lie.width += 200);
        REFUSED(lie.height = UINT32_MAX);
        REFUSED(lie.x = UINT32_MAX);
        REFUSED(lie.y += 200);
        REFUSED(lie.channels = 4);
        REFUSED(lie.stride = p.width * 3ull - 1);
        REFUSED(lie.stride = UINT64_MAX);
        REFUSED(lie.scale_x = 0);
        REFUSED(lie.scale_y = 1e300);
        REFUSED(lie.scale_x = 0.3);
        REFUSED(lie.full_width = 0);
        REFUSED(lie.full_height = UINT32_MAX);
    }
    mr_decoder_destroy(d);
    for (int i = 0; i < 3; i++)
        free(e[i].data);
}

/* Reads that a decoder asks for are checked. */
static void requests_are_checked(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_hostile();
    uint8_t buf[64];
    struct mr_file_request good = {.file = 0, .offset = 8, .bytes = 64}, r;
    test_works(mr_files_answer(ds->files, &good, buf, sizeof buf));
#define WRONG(change)                                                                              \
    r = good;                                                                                      \
    change;                                                                                        \
    assert_true(mr_files_answer(ds->files, &r, buf, sizeof buf) < 0)
    WRONG(r.file = -1);
    WRONG(r.file = 1);
    WRONG(r.file = INT32_MAX);
    WRONG(r.bytes = 65);
    WRONG(r.bytes = UINT64_MAX);
    WRONG(r.offset = UINT64_MAX);
    WRONG(r.offset = N * BYTES - 63);
    WRONG(r.kind = 99);
    WRONG(r.kind = -1);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_samples),
        cmocka_unit_test(misdeeds_are_bad_samples),
        cmocka_unit_test(a_misdeed_fails_the_run),
        cmocka_unit_test(decoders_that_are_killed_are_replaced),
        cmocka_unit_test(a_decoder_may_end_while_its_bytes_are_read),
        cmocka_unit_test(a_killed_keeper_ends_the_run),
        cmocka_unit_test(processes_end_with_their_opener),
        cmocka_unit_test(closes_while_a_decoder_works),
        cmocka_unit_test(closes_while_a_decoder_reads_on),
        cmocka_unit_test(opens_on_any_thread),
        cmocka_unit_test(shared_memory_is_out_of_reach),
        cmocka_unit_test(starts_again),
        cmocka_unit_test(opening_can_be_interrupted),
        cmocka_unit_test(decoders_that_end_at_once_fail_the_open),
        cmocka_unit_test(refuses_what_it_cannot_confine),
        cmocka_unit_test(pictures_are_the_same),
        cmocka_unit_test(mixtures_have_limits),
        cmocka_unit_test(pictures_are_checked),
        cmocka_unit_test(requests_are_checked),
    };
    if (prctl(PR_GET_SECCOMP) < 0) {
        print_message("SKIP test_sandbox: no system call filters here: PR_GET_SECCOMP: %s\n",
                      strerror(errno));
        return 77;
    }
    if (pthread_atfork(NULL, in_parent, in_child) != 0)
        return 1;
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
