/* What a forked child can do with what it inherits: each call works or says why not; none hangs. */
#include "run_loader.h"

#include <millrace/dlpack.h>
#include <millrace/storage.h>
#include <millrace/trace.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#ifdef __SANITIZE_THREAD__ /* which refuses threads in a child of several threads */
#define THREADS 0
/* Nor can a child join a thread of its parent. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}
#else
#define THREADS 1
#endif
/*
 * SIGALRM ends a child that hangs. The AddressSanitizer of gcc 12 has locks that a fork copies as
 * they are: a child hangs when another thread was allocating. A fault of ours would hang in each
 * try.
 */
#ifdef __SANITIZE_ADDRESS__
#define TRIES   4
#define HANGS_S 20
#define FORKS   5
#else
#define TRIES   1
#define HANGS_S 60
#define FORKS   60
#endif

/* Runs fn in a child; what it returns must be 0: the first line that failed else. */
static void in_child(int (*fn)(void *), void *arg)
{
    int status = 0;
    fflush(NULL);
    for (int i = 0; i < TRIES; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(HANGS_S);
            _exit(fn(arg));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM)
            break;
    }
    if (WIFSIGNALED(status))
        fail_msg("the child was ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        fail_msg("child: line %d (modulo 256) failed", WEXITSTATUS(status));
}

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #condition, mr_last_error());                \
            return __LINE__ % 255 + 1;                                                             \
        }                                                                                          \
    } while (0)

/* ---- loaders ---- */

struct inherited {
    struct mr_dataset *ds;
    struct mr_device *device;
    struct mr_loader *ld;
    struct mr_batch batch; /* held */
    int parent;
};

static bool refused(const struct inherited *in, int rc)
{
    char pid[32];
    snprintf(pid, sizeof pid, "process %d", in->parent);
    return rc == MR_EMISUSE && strstr(mr_last_error(), pid);
}

static int drain(struct mr_dataset *ds, struct mr_device *device, uint64_t *n)
{
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    int rc = mr_loader_open(ds, NULL, NULL, device, &opts, &ld);
    if (rc < 0)
        return rc;
    *n = 0;
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        *n += b.n;
        mr_loader_release(ld, &b, NULL);
    }
    mr_loader_close(ld);
    return rc;
}

static int use_inherited_loader(void *arg)
{
    struct inherited *in = arg;
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_batch b = {.size = sizeof b};
    char state[1024];
    uint64_t n;
    expect(refused(in, mr_loader_next(in->ld, NULL, &b)));
    expect(refused(in, mr_loader_next(in->ld, NULL, &b)));
    expect(refused(in, mr_loader_release(in->ld, &in->batch, NULL)));
    expect(mr_loader_state(in->ld, state, sizeof state) > 0);
    expect(mr_loader_batches(in->ld) == 100);
    mr_loader_stats(in->ld, &st);
    expect(st.samples == 0 && strstr(st.reason, "process"));
    mr_loader_cancel(in->ld);
    mr_loader_close(in->ld);
    if (THREADS)
        expect(drain(in->ds, NULL, &n) == 0 && n == 1000); /* a loader of its own works */
    return 0;
}

static void an_inherited_loader_says_so(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct inherited in = {.parent = getpid(), .batch.size = sizeof in.batch};
        struct mr_loader_opts opts;
        struct mr_batch b = {.size = sizeof b};
        uint64_t n = 10;
        mr_loader_opts_init(&opts);
        opts.workers = 1 + (uint32_t)round % 4;
        opts.batch_size = 10;
        must(mr_dataset_open("synthetic:n=1000,shape=16,work=5us", &in.ds));
        must(mr_device_open(round % 2 ? "cpu" : "sim", &in.device));
        must(mr_loader_open(in.ds, NULL, NULL, in.device, &opts, &in.ld));
        assert_int_equal(mr_loader_next(in.ld, NULL, &in.batch), 1);
        in_child(use_inherited_loader, &in);
        must(mr_loader_release(in.ld, &in.batch, NULL));
        while (mr_loader_next(in.ld, NULL, &b) > 0) { /* the parent goes on */
            n += b.n;
            must(mr_loader_release(in.ld, &b, NULL));
        }
        assert_int_equal(n, 1000);
        mr_loader_close(in.ld);
        mr_device_close(in.device);
        mr_dataset_close(in.ds);
    }
}

/* ---- the simulated device ---- */

struct inherited_device {
    struct inherited in;
    struct mr_stream *stream;
    struct mr_event *event;
    void *host, *device;
};

static int use_inherited_device(void *arg)
{
    struct inherited_device *d = arg;
    struct inherited *in = &d->in;
    struct mr_device_info info = {.size = sizeof info};
    struct mr_stream *stream;
    struct mr_event *event;
    struct mr_graph *graph;
    uint64_t ns = 1, n;
    void *p;
    expect(refused(in, mr_device_query(in->device, &info)));
    expect(refused(in, mr_stream_create(in->device, "s", &stream)));
    expect(refused(in, mr_event_create(in->device, 0, &event)));
    expect(refused(in, mr_memory_acquire(in->device, MR_DEVICE, 64, &p)));
    expect(refused(in, mr_copy_async(d->stream, d->device, MR_DEVICE, d->host, MR_PINNED, 64)));
    expect(refused(in, mr_memset_async(d->stream, d->device, MR_DEVICE, 0, 64)));
    expect(refused(in, mr_launch(d->stream, "busy", &ns, sizeof ns)));
    expect(refused(in, mr_device_has_kernel(in->device, "busy")));
    expect(refused(in, mr_event_record(d->event, d->stream)));
    expect(refused(in, mr_event_query(d->event)));
    expect(refused(in, mr_event_synchronize(d->event)));
    expect(refused(in, mr_stream_wait(d->stream, d->event)));
    expect(refused(in, mr_stream_synchronize(d->stream)));
    expect(refused(in, mr_graph_begin(d->stream)));
    expect(refused(in, mr_graph_end(d->stream, &graph)));
    expect(refused(in, drain(in->ds, in->device, &n)));
    mr_memory_trim(in->device);
    mr_memory_release(in->device, MR_DEVICE, d->device, NULL);
    mr_event_destroy(d->event);
    mr_stream_destroy(d->stream);
    mr_device_close(in->device);
    struct mr_device *own;
    if (!THREADS)
        return 0;
    expect(mr_device_open("sim", &own) == 0);
    expect(drain(in->ds, own, &n) == 0 && n == 1000);
    mr_device_close(own);
    return 0;
}

static void an_inherited_simulated_device_says_so(void **state)
{
    (void)state;
    struct inherited_device d = {.in = {.parent = getpid()}};
    must(mr_dataset_open("synthetic:n=1000,shape=16", &d.in.ds));
    must(mr_device_open("sim:latency=1us", &d.in.device));
    must(mr_stream_create(d.in.device, "s", &d.stream));
    must(mr_event_create(d.in.device, 0, &d.event));
    must(mr_memory_acquire(d.in.device, MR_PINNED, 64, &d.host));
    must(mr_memory_acquire(d.in.device, MR_DEVICE, 64, &d.device));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < round; i++) /* the fork finds the engines at work */
            must(mr_copy_async(d.stream, d.device, MR_DEVICE, d.host, MR_PINNED, 64));
        must(mr_event_record(d.event, d.stream));
        in_child(use_inherited_device, &d);
    }
    must(mr_stream_synchronize(d.stream));
    mr_memory_release(d.in.device, MR_DEVICE, d.device, NULL);
    mr_memory_release(d.in.device, MR_PINNED, d.host, NULL);
    mr_event_destroy(d.event);
    mr_stream_destroy(d.stream);
    mr_device_close(d.in.device);
    mr_dataset_close(d.in.ds);
}

/* ---- data sets of compressed files ---- */

#define N_IMAGES 200000u
#define SIDE     28u

/* An IDX file of images, compressed: large enough that inflating takes a while. */
static void write_gzip(const char *path)
{
    static unsigned char row[SIDE * SIDE];
    const unsigned char head[] = {0,
                                  0,
                                  8,
                                  3,
                                  N_IMAGES >> 24,
                                  N_IMAGES >> 16 & 255,
                                  N_IMAGES >> 8 & 255,
                                  N_IMAGES & 255,
                                  0,
                                  0,
                                  0,
                                  SIDE,
                                  0,
                                  0,
                                  0,
                                  SIDE};
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, head, sizeof head), sizeof head);
    for (uint32_t i = 0; i < N_IMAGES; i++) {
        for (uint32_t k = 0; k < sizeof row; k += 8)
            row[k] = (unsigned char)(i * 31 + k);
        assert_int_equal(gzwrite(file, row, sizeof row), sizeof row);
    }
    assert_int_equal(gzclose(file), Z_OK);
}

struct compressed {
    struct mr_dataset *ds;
    char path[64];
    int parent;
    bool finished;
};

/* It reads everything, or a sentence says which process was inflating. */
static int use_inherited_gzip(void *arg)
{
    struct compressed *c = arg;
    struct inherited in = {.parent = c->parent};
    struct mr_dataset *own;
    unsigned char image[SIDE * SIDE];
    uint64_t n = 0;
    int rc = THREADS ? drain(c->ds, NULL, &n) : 0;
    expect(!THREADS || (rc == 0 && n == N_IMAGES) || (!c->finished && refused(&in, rc)));
    rc = mr_dataset_read(c->ds, N_IMAGES - 1, (void *[]){image}, NULL);
    expect(rc == 0 || (!c->finished && refused(&in, rc)));
    mr_dataset_close(c->ds);
    if (!THREADS)
        return 0;
    expect(mr_dataset_open(c->path, &own) == 0);
    expect(drain(own, NULL, &n) == 0 && n == N_IMAGES);
    mr_dataset_close(own);
    return 0;
}

static void a_set_that_is_being_inflated_says_so(void **state)
{
    (void)state;
    struct compressed c = {.parent = getpid()};
    unsigned char image[SIDE * SIDE];
    char file[] = "/tmp/millrace-fork-XXXXXX.gz";
    int fd = mkstemps(file, 3);
    assert_true(fd >= 0);
    close(fd);
    snprintf(c.path, sizeof c.path, "idx:%s,labels=none", file);
    write_gzip(file);
    must(mr_dataset_open(c.path, &c.ds));
    in_child(use_inherited_gzip, &c);
    must(mr_dataset_read(c.ds, N_IMAGES - 1, (void *[]){image}, NULL));
    c.finished = true;
    in_child(use_inherited_gzip, &c);
    mr_dataset_close(c.ds);
    unlink(file);
}

/* ---- what other threads may hold at the fork ---- */

static int end_tensor(void *tensor)
{
    struct mr_dlpack *t = tensor;
    t->deleter(t);
    return 0;
}

struct tensor_of {
    struct mr_batch *batch; /* held */
    int parent;
};

static int make_tensor(void *arg)
{
    struct tensor_of *of = arg;
    struct inherited in = {.parent = of->parent};
    struct mr_dlpack *t;
    expect(refused(&in, mr_batch_to_dlpack(of->batch, 0, MR_DLPACK_HOST, NULL, &t)));
    return 0;
}

/* Workers and copies are at the loader's locks all the time: a child that takes one may hang. */
static void tensors_end_in_a_child(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_dataset *ds;
    struct mr_device *device;
    mr_loader_opts_init(&opts);
    opts.batch_size = 1;
    opts.prefetch = 4;
    opts.workers = 4;
    opts.epochs = 0;
    must(mr_device_open("sim", &device));
    must(mr_dataset_open("synthetic:n=1000,shape=1,values=zero", &ds));
    must(mr_loader_open(ds, NULL, NULL, device, &opts, &ld));
    for (int round = 0; round < FORKS; round++) {
        struct mr_batch b = {.size = sizeof b};
        struct mr_stream *stream = round % 2 ? mr_stream_any(device) : NULL;
        struct mr_dlpack *t;
        for (int i = 0; i < 20; i++) {
            assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
            must(mr_loader_release(ld, &b, NULL));
        }
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        must(mr_batch_to_dlpack(&b, 0, MR_DLPACK_HOST, stream, &t));
        in_child(end_tensor, t);
        if (round == 0)
            in_child(make_tensor, &(struct tensor_of){&b, getpid()});
        must(mr_loader_release(ld, &b, NULL));
        t->deleter(t);
    }
    mr_loader_close(ld);
    mr_dataset_close(ds);
    mr_device_close(device);
}

static sem_t logging, go_on;
static bool blocks; /* the log function */

static void log_slowly(void *user, enum mr_log_level level, const char *text)
{
    (void)level, (void)text;
    ++*(atomic_int *)user;
    if (!blocks)
        return;
    sem_post(&logging);
    sem_wait(&go_on);
}

static int take_in_order(void *user, uint64_t epoch, uint64_t position, uint64_t count,
                         uint64_t *out_indices)
{
    (void)user, (void)epoch;
    for (uint64_t i = 0; i < count; i++)
        out_indices[i] = position + i;
    return 0;
}

/* Resuming by a sampler without a name logs a warning. */
static void *log_something(void *unused)
{
    (void)unused;
    struct mr_sampler_opts so;
    struct mr_sampler *sampler;
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_loader *ld;
    char state[1024];
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_CUSTOM;
    so.map = take_in_order;
    so.length = 10;
    must(mr_sampler_create(&so, 10, &sampler));
    must(mr_dataset_open("synthetic:n=10,shape=1", &ds));
    mr_loader_opts_init(&opts);
    must(mr_loader_open(ds, sampler, NULL, NULL, &opts, &ld));
    must(mr_loader_state(ld, state, sizeof state));
    mr_loader_close(ld);
    opts.state = state;
    must(mr_loader_open(ds, sampler, NULL, NULL, &opts, &ld));
    mr_loader_close(ld);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return NULL;
}

static int log_in_child(void *n)
{
    blocks = false;
    int before = atomic_load((atomic_int *)n);
    if (THREADS)
        log_something(NULL);
    expect(!THREADS || atomic_load((atomic_int *)n) == before + 1);
    return 0;
}

static void a_child_logs_while_its_parent_does(void **state)
{
    (void)state;
    atomic_int n = 0;
    pthread_t thread;
    sem_init(&logging, 0, 0);
    sem_init(&go_on, 0, 0);
    blocks = true;
    mr_log_set(log_slowly, &n);
    assert_int_equal(pthread_create(&thread, NULL, log_something, NULL), 0);
    sem_wait(&logging); /* that thread is in the log function now */
    in_child(log_in_child, &n);
    sem_post(&go_on);
    pthread_join(thread, NULL);
    mr_log_set(NULL, NULL);
    assert_int_equal(n, 1);
}

static atomic_bool tracing;

/* What all reading of remote files shares: settings, and the names of URLs with credentials. */
static void use_settings(void)
{
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    must(mr_remote_opts_set(&opts));
}

static void use_names(void)
{
    struct mr_dataset *ds;
    assert_int_equal(mr_dataset_open("tar:http://a:secret@host/x.tar,index=no", &ds), MR_EOPTION);
}

static atomic_bool end;

static void *use_all_the_time(void *fn)
{
    while (!atomic_load(&end))
        (*(void (**)(void))fn)();
    return NULL;
}

static int use_both(void *unused)
{
    (void)unused;
    use_settings();
    use_names();
    return 0;
}

static void a_child_uses_settings_while_its_parent_does(void **state)
{
    static void (*fn[])(void) = {use_settings, use_names};
    pthread_t thread[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_all_the_time, &fn[i]), 0);
    for (int round = 0; round < 2 * FORKS; round++)
        in_child(use_both, NULL);
    atomic_store(&end, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

static void *trace_spans(void *unused)
{
    (void)unused;
    while (atomic_load(&tracing))
        mr_trace_span("test", 1, 2, NULL, 0);
    return NULL;
}

static int trace_in_child(void *unused)
{
    (void)unused;
    uint64_t lost;
    expect(!mr_trace_on());
    mr_trace_span("test", 1, 2, NULL, 0);
    expect(mr_trace_stop(NULL, &lost) == MR_EMISUSE); /* the parent's is not the child's */
    expect(mr_trace_start(0) == 0);
    mr_trace_span("test", 1, 2, NULL, 0);
    expect(mr_trace_stop(NULL, &lost) == 0 && lost == 0);
    return 0;
}

static void a_trace_is_its_process_s(void **state)
{
    (void)state;
    uint64_t lost;
    pthread_t thread;
    atomic_store(&tracing, true);
    must(mr_trace_start(16));
    assert_int_equal(pthread_create(&thread, NULL, trace_spans, NULL), 0);
    for (int i = 0; i < 20; i++) {
        if (i % 2) /* with and without a ring of this thread */
            mr_trace_span("test", 1, 2, NULL, 0);
        in_child(trace_in_child, NULL);
    }
    atomic_store(&tracing, false);
    pthread_join(thread, NULL);
    must(mr_trace_stop(NULL, &lost));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_inherited_loader_says_so),
        cmocka_unit_test(an_inherited_simulated_device_says_so),
        cmocka_unit_test(a_set_that_is_being_inflated_says_so),
        cmocka_unit_test(tensors_end_in_a_child),
        cmocka_unit_test(a_child_logs_while_its_parent_does),
        cmocka_unit_test(a_child_uses_settings_while_its_parent_does),
        cmocka_unit_test(a_trace_is_its_process_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
