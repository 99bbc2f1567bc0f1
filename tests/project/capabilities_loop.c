/* What the interface can do from the loop on: waiting, holding batches, errors, the ABI. A line for
 * each capability, as a program of a user's against the installed library; at the end what it
 * leaves out, and why. Built and run by capabilities.sh, with the headers' folder as argument. */
#define _GNU_SOURCE /* dlvsym */
#include "checks.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>

static const char *include;

/* ---- the loop ---- */

static sem_t entered, gate;

static int get_late(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    if (index == 0) {
        sem_post(&entered);
        sem_wait(&gate);
    }
    return get_number(user, index, row, dim);
}

static void timeout(void)
{
    struct mr_batch b = {.size = sizeof b};
    struct run r = numbers(get_late, 10);
    sem_init(&entered, 0, 0);
    sem_init(&gate, 0, 0);
    open_loader(&r);
    sem_wait(&entered);
    struct pollfd ready = {.fd = mr_loader_fd(r.loader), .events = POLLIN};
    expect(mr_loader_next_for(r.loader, NULL, 0, &b) == -ETIMEDOUT && poll(&ready, 1, 0) == 0);
    expect(mr_loader_next_for(r.loader, NULL, 50000000, &b) == -ETIMEDOUT);
    expect(strstr(mr_last_error(), "sample 0"));
    sem_post(&gate);
    expect(poll(&ready, 1, -1) == 1 && mr_loader_next_for(r.loader, NULL, UINT64_MAX, &b) == 1);
    must(mr_loader_release(r.loader, &b, NULL));
    expect(read_numbers(&r) == N - 10);
    close_run(&r);
    printf("yes: \"%s\"; the run goes on, and poll() reports the batch\n", mr_last_error());
}

static atomic_int taken[N];

/* Takes batches, and holds the latest one. */
static void *consume(void *loader)
{
    struct mr_batch b[2] = {{.size = sizeof *b}, {.size = sizeof *b}};
    for (uint64_t n = 0; mr_loader_next(loader, NULL, &b[n % 2]) > 0; n++) {
        atomic_fetch_add(&taken[b[n % 2].index], 1);
        if (n > 0)
            must(mr_loader_release(loader, &b[(n + 1) % 2], NULL));
    }
    return NULL;
}

static void consumers(void)
{
    struct run r = numbers(get_number, 1);
    pthread_t thread[4];
    for (r.opts.in_order = 0; r.opts.in_order < 2; r.opts.in_order++) {
        open_loader(&r);
        for (int i = 0; i < 4; i++)
            expect(pthread_create(&thread[i], NULL, consume, r.loader) == 0);
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
        for (int i = 0; i < N; i++)
            expect(atomic_load(&taken[i]) == r.opts.in_order + 1);
        mr_loader_close(r.loader);
    }
    r.loader = NULL;
    close_run(&r);
    printf("yes: 4 threads that hold a batch, each batch once, in order and as they complete\n");
}

static void dlpack(void)
{
    struct mr_dlpack *plain;
    struct mr_dlpack_versioned *tensor;
    struct run r = numbers(get_number, 10);
    open_loader(&r);
    struct mr_batch b = next(&r);
    must(mr_batch_to_dlpack(&b, 0, MR_DLPACK_DATA, NULL, &plain));
    must(mr_batch_to_dlpack_versioned(&b, 0, MR_DLPACK_DATA, NULL, &tensor));
    must(mr_loader_release(r.loader, &b, NULL));
    expect(read_numbers(&r) == N - 10);
    close_run(&r);
    expect(tensor->tensor.shape[0] == 10 && tensor->tensor.code == MR_DLPACK_UINT);
    for (uint64_t i = 0; i < 10; i++)
        expect(((const uint64_t *)tensor->tensor.data)[i] == i);
    plain->deleter(plain);
    tensor->deleter(tensor);
    printf("yes: tensors that outlive the loader, with and without a version\n");
}

/* Without a GPU: "sim" has streams of its own, and says that it has no others. */
static void streams(void)
{
    struct mr_stream *stream = NULL;
    struct run r = numbers(get_number, 10);
    int cuda = mr_device_open("cuda", &r.device) == 0;
    if (!cuda)
        must(mr_device_open("sim", &r.device));
    int rc = mr_stream_wrap(r.device, NULL, &stream); /* CUDA's default stream */
    expect(rc == (cuda ? 0 : MR_EUNSUPPORTED));
    if (!cuda)
        must(mr_stream_create(r.device, "mine", &stream));
    open_loader(&r);
    for (int n = 0; n < N; n += 10) {
        struct mr_batch b = {.size = sizeof b};
        expect(mr_loader_next(r.loader, stream, &b) == 1);
        must(mr_loader_release(r.loader, &b, stream));
    }
    must(mr_stream_synchronize(stream));
    mr_stream_destroy(stream);
    close_run(&r);
    printf("%s: examples/own_kernel.cu\n",
           cuda ? "yes" : "not run, no GPU here (the simulated device's own streams work)");
}

static int get_bad(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    if (index % 10 == 3)
        return mr_error_set(MR_EFORMAT, "%d is torn", (int)index);
    return get_number(user, index, row, dim);
}

static void bad_samples(void)
{
    struct mr_bad_sample bad = {.size = sizeof bad};
    struct run r = numbers(get_bad, 10);
    r.opts.bad = MR_BAD_SKIP;
    open_loader(&r);
    struct mr_batch b = next(&r);
    expect(b.n == 9 && mr_loader_bad(r.loader, 0, &bad) == 1 && bad.index == 3);
    expect(mr_loader_bad(r.loader, 1, &bad) == 0); /* that of the next batch comes with it */
    must(mr_loader_release(r.loader, &b, NULL));
    expect(read_numbers(&r) == N - 10 - 9);
    printf("yes: mr_loader_bad() after each batch: \"%s\"\n", bad.reason);
    close_run(&r);
}

/* ---- the library ---- */

static void count_log(void *user, enum mr_log_level level, const char *text)
{
    if (level == MR_LOG_WARNING && strstr(text, "sampler"))
        ++*(int *)user;
}

/* An order without a name can't be checked when a run resumes: the log says so. */
static void logging(void)
{
    char state[1024];
    int n = 0;
    struct run r = numbers(get_number, 10);
    r.sampler = reversed(NULL);
    open_loader(&r);
    must(mr_loader_state(r.loader, state, sizeof state));
    mr_loader_close(r.loader);
    mr_log_set(count_log, &n);
    r.opts.state = state;
    open_loader(&r);
    expect(n == 1);
    mr_log_set(NULL, NULL);
    close_run(&r);
    printf("yes: mr_log_set(), for the whole process\n");
}

static void abi(void)
{
    struct mr_loader_stats st = {.size = offsetof(struct mr_loader_stats, bottleneck)};
    struct mr_loader *refused;
    struct run r = numbers(get_number, 10);
    char version[32];
    snprintf(version, sizeof version, "MILLRACE_%d", MR_VERSION_MAJOR);
    expect(dlvsym(RTLD_DEFAULT, "mr_loader_open", version));
    r.opts.size = offsetof(struct mr_loader_opts, storage); /* an older program's */
    open_loader(&r);
    st.bottleneck[0] = 'x';
    must(mr_loader_stats(r.loader, &st));
    expect(st.workers == 3 && st.bottleneck[0] == 'x'); /* not written behind its end */
    expect(read_numbers(&r) == N);
    r.opts.size = sizeof r.opts + 8; /* a newer one's */
    expect(mr_loader_open(r.ds, NULL, NULL, NULL, &r.opts, &refused) == MR_EMISUSE);
    close_run(&r);
    printf("yes: symbols of version %s, sizes in structs that go in and come out\n", version);
}

static void statements(void)
{
    expect(chdir(include) == 0);
    expect(system("test \"$(grep -L Threads *.h)\" = millrace.h") == 0);
    expect(system("test -z \"$(grep -L fork *.h)\"") == 0);
    expect(system("grep -q async-signal-safe loader.h") == 0);
    printf("yes: threads and fork in each header, signal handlers in loader.h\n");
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"timeout on next", timeout},  {"DLPack export", dlpack},
        {"consumer streams", streams}, {"multiple consumers", consumers},
        {"bad samples", bad_samples},  {"logging hook", logging},
        {"ABI versioning", abi},       {"thread-safety statements", statements},
    };
    include = argc > 1 ? argv[1] : "/usr/include/millrace";
    int failed = run_checks(checks, sizeof checks / sizeof *checks);
    puts("user memory, for batches: no: a copy may read a slot after its release; DLPack instead\n"
         "callback for bad samples: no: mr_loader_bad() tells the same after each batch\n"
         "allocator hook: no: slots are mapped and pinned, not malloc'd; max_memory limits them");
    return failed;
}
