/*
 * How fast optimizer steps are beside what the memory can do: bytes that a step has to move (each
 * array read or written once) over the median time of a step. Prints one line of JSON a case:
 *
 *   bound_copy   b = a: 8 bytes an element; on GPUs the faster of a kernel and the driver's copy
 *   bound_triad  a = b + s c: 12 bytes an element (hosts)
 *   bound_axpy   a = a + s b: 12 bytes an element, nothing is written that was not read (hosts)
 *   bound_4r3w   three arrays, each plus s b: 28 bytes an element, Adam's reads and writes without
 *                its roots and quotients (hosts)
 *   each optimizer that is named
 *
 * usage: optim_step [cpu|cuda|cuda:N] [N_PARAMS] [SECONDS] [THREADS] [SPEC...]
 *        SECONDS: of each case
 */
#include <millrace/millrace.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST  4096  /* times of one case */
#define BATCH 10    /* steps timed together on a GPU */
#define CHUNK 32768 /* elements that a thread takes at a time on hosts, as in the library */

/* Several instruction sets, as the library's own kernels. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CLONES
#endif

static struct bench {
    struct mr_device *dev; /* NULL: the host */
    struct mr_stream *stream;
    struct mr_event *from, *to;
    const char *uri;
    uint64_t n;
    double seconds;
    uint32_t threads;
    float *p, *g, *c, *d; /* parameters, gradients, two more for the bounds; d: hosts */
} b;

static void check(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "optim_step: %s: %s\n", what, mr_last_error());
    exit(rc == MR_ENODEVICE ? 77 : 1);
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, by_size);
    return times[n / 2];
}

static void say(const char *name, double bytes_each, double ns, int n_times)
{
    printf("{\"case\": \"%s\", \"device\": \"%s\", \"n\": %llu, \"threads\": %u, \"bytes_each\": "
           "%g, \"ms\": %.4f, "
           "\"gb_per_s\": %.2f, \"times\": %d}\n",
           name, b.uri, (unsigned long long)b.n, b.threads, bytes_each, ns * 1e-6,
           bytes_each * (double)b.n / ns, n_times);
    fflush(stdout);
}

CLONES static void copy(float *restrict a, const float *restrict x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        a[i] = x[i];
}
CLONES static void triad(float *restrict a, const float *restrict x, const float *restrict y,
                         uint64_t n, float s)
{
    for (uint64_t i = 0; i < n; i++)
        a[i] = x[i] + s * y[i];
}
CLONES static void axpy(float *restrict a, const float *restrict x, uint64_t n, float s)
{
    for (uint64_t i = 0; i < n; i++)
        a[i] = a[i] + s * x[i];
}

CLONES static void axpy3(float *restrict a, float *restrict c, float *restrict d,
                         const float *restrict x, uint64_t n, float s)
{
    for (uint64_t i = 0; i < n; i++) {
        float add = s * x[i];
        a[i] = a[i] + add;
        c[i] = c[i] + add;
        d[i] = d[i] + add;
    }
}

/* What the threads of a bound share: each takes the next chunk, as steps of optimizers do. */
static struct bound {
    int kind; /* 0 copy, 1 triad, 2 axpy, 3 three of it */
    pthread_barrier_t gate;
    atomic_uint_least64_t next;
    bool stop; /* written before the gate, read behind it */
} bound;

static void run_chunks(void)
{
    for (uint64_t at; (at = atomic_fetch_add(&bound.next, CHUNK)) < b.n;) {
        uint64_t n = b.n - at < CHUNK ? b.n - at : CHUNK;
        if (bound.kind == 0)
            copy(b.c + at, b.p + at, n);
        else if (bound.kind == 1)
            triad(b.c + at, b.p + at, b.g + at, n, 1e-7f);
        else if (bound.kind == 2)
            axpy(b.c + at, b.g + at, n, 1e-7f);
        else
            axpy3(b.p + at, b.c + at, b.d + at, b.g + at, n, 1e-7f);
    }
}

static void *run_bound(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&bound.gate);
        if (bound.stop)
            return NULL;
        run_chunks();
        pthread_barrier_wait(&bound.gate);
    }
}

static void host_bound(int kind, const char *name, double bytes_each)
{
    static double times[MOST];
    pthread_t *thread = calloc(b.threads, sizeof *thread);
    int n_times = 0;
    bound.kind = kind;
    bound.stop = false;
    if (!thread || pthread_barrier_init(&bound.gate, NULL, b.threads))
        exit(1);
    for (uint32_t i = 1; i < b.threads; i++)
        if (pthread_create(&thread[i], NULL, run_bound, NULL))
            exit(1);
    for (uint64_t until = mr_time_ns() + (uint64_t)(b.seconds * 1e9);
         n_times < 3 || (n_times < MOST && mr_time_ns() < until); n_times++) {
        atomic_store(&bound.next, 0);
        pthread_barrier_wait(&bound.gate);
        uint64_t start = mr_time_ns();
        run_chunks();
        pthread_barrier_wait(&bound.gate);
        times[n_times] = (double)(mr_time_ns() - start);
    }
    bound.stop = true;
    pthread_barrier_wait(&bound.gate);
    for (uint32_t i = 1; i < b.threads; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&bound.gate);
    say(name, bytes_each, median(times, n_times), n_times);
    free(thread);
}

/* Enqueues the work BATCH times between two events; the first round is not counted. */
static void device_time(void (*once)(void *user), void *user, const char *name, double bytes_each)
{
    static double times[MOST];
    int n_times = -1;
    for (uint64_t until = mr_time_ns() + (uint64_t)(b.seconds * 1e9);
         n_times < 3 || (n_times < MOST && mr_time_ns() < until); n_times++) {
        int64_t ns = 0;
        check(mr_event_record(b.from, b.stream), "event");
        for (int i = 0; i < BATCH; i++)
            once(user);
        check(mr_event_record(b.to, b.stream), "event");
        check(mr_stream_synchronize(b.stream), name);
        check(mr_event_elapsed(b.from, b.to, &ns), "event");
        if (n_times >= 0)
            times[n_times] = (double)ns / BATCH;
    }
    say(name, bytes_each, median(times, n_times), n_times);
}

static void kernel_copy(void *user)
{
    const struct mr_kernel_copy args = {b.c, b.p, b.n * sizeof *b.p};
    (void)user;
    check(mr_launch(b.stream, "copy", &args, sizeof args), "copy");
}

static void driver_copy(void *user)
{
    (void)user;
    check(mr_copy_async(b.stream, b.c, MR_DEVICE, b.p, MR_DEVICE, b.n * sizeof *b.p), "copy");
}

static void one_step(void *user)
{
    check(mr_optim_step(user, b.p, b.g, b.stream), "step");
}

/* Parameters read and written, gradients read, state read and written. */
static double bytes_of(const struct mr_optim *o)
{
    return 4 * (3 + 2.0 * (mr_optim_state_count(o) - 1));
}

static void run_spec(const char *spec)
{
    static double times[MOST];
    char full[256];
    struct mr_optim *o = NULL;
    int n_times = -1;
    snprintf(full, sizeof full, "%s%cthreads=%u", spec, strchr(spec, ':') ? ',' : ':', b.threads);
    check(mr_optim_create(b.dev, full, MR_F32, b.n, NULL, 0, &o), spec);
    if (b.dev) {
        device_time(one_step, o, spec, bytes_of(o));
        mr_optim_destroy(o);
        return;
    }
    for (uint64_t until = mr_time_ns() + (uint64_t)(b.seconds * 1e9);
         n_times < 3 || (n_times < MOST && mr_time_ns() < until); n_times++) {
        uint64_t start = mr_time_ns();
        one_step(o);
        if (n_times >= 0)
            times[n_times] = (double)(mr_time_ns() - start);
    }
    say(spec, bytes_of(o), median(times, n_times), n_times);
    mr_optim_destroy(o);
}

/* Small parameters and gradients, so that nothing becomes infinite or subnormal. */
static void fill(float *out, uint32_t seed)
{
    for (uint64_t i = 0; i < b.n; i++)
        out[i] = (float)((i * 2654435761u + seed) >> 8 & 0xffff) / 65536 - 0.45f;
}

static void open_arrays(void)
{
    float **const to[] = {&b.p, &b.g, &b.c, &b.d};
    uint64_t bytes = b.n * sizeof(float);
    struct mr_device *host = NULL;
    float *filled = NULL;
    check(mr_device_open("cpu", &host), "cpu"); /* huge pages; it stays open until the end */
    check(mr_memory_acquire(host, MR_PAGEABLE, bytes, (void **)&filled), "memory");
    for (uint32_t i = 0; i < (b.dev ? 3 : 4); i++) {
        if (!b.dev) {
            check(mr_memory_acquire(host, MR_PAGEABLE, bytes, (void **)to[i]), "memory");
            fill(*to[i], i);
            continue;
        }
        check(mr_memory_acquire(b.dev, MR_DEVICE, bytes, (void **)to[i]), "memory");
        fill(filled, i);
        check(mr_copy_async(b.stream, *to[i], MR_DEVICE, filled, MR_PAGEABLE, bytes), "copy");
    }
    mr_memory_release(host, MR_PAGEABLE, filled, NULL);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"sgd:lr=1e-5", "momentum:lr=1e-5", "adam:lr=1e-5",
                                        "adamw:lr=1e-5", "lion:lr=1e-6"};
    b.uri = argc > 1 ? argv[1] : "cpu";
    b.n = argc > 2 ? (uint64_t)strtod(argv[2], NULL) : 10000000;
    b.seconds = argc > 3 ? strtod(argv[3], NULL) : 1;
    b.threads = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    b.threads = b.threads ? b.threads : (uint32_t)mr_cpu_count();
    if (b.n < 1 || !(b.seconds > 0)) {
        fprintf(stderr,
                "usage: optim_step [cpu|cuda|cuda:N] [N_PARAMS] [SECONDS] [THREADS] [SPEC...]\n");
        return 1;
    }
    if (strcmp(b.uri, "cpu") != 0) {
        check(mr_device_open(b.uri, &b.dev), b.uri);
        check(mr_stream_create(b.dev, "bench", &b.stream), "stream");
        check(mr_event_create(b.dev, 1, &b.from), "event");
        check(mr_event_create(b.dev, 1, &b.to), "event");
    }
    open_arrays();
    if (b.dev) {
        device_time(kernel_copy, NULL, "bound_copy", 8);
        device_time(driver_copy, NULL, "bound_copy", 8);
    } else {
        host_bound(0, "bound_copy", 8);
        host_bound(1, "bound_triad", 12);
        host_bound(2, "bound_axpy", 12);
        host_bound(3, "bound_4r3w", 28);
    }
    for (int i = 5; i < argc; i++)
        run_spec(argv[i]);
    for (size_t i = 0; argc <= 5 && i < sizeof usual / sizeof usual[0]; i++)
        run_spec(usual[i]);
    return 0;
}
