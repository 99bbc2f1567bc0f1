/* Leases of the Python module, without Python: batches that are used in streams after their loader
 * was closed. On the simulated device. And its devices in forked children. */
#include "run_loader.h"

#include "lease.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH  8
#define SAMPLE 512
#define BYTES  (BATCH * SAMPLE)
#define MS     1000000ull

_Thread_local int core_source_thread;

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    memset(row[0], (int)(1 + index / BATCH % 250), SAMPLE);
    return 0;
}

struct box {
    struct core_device *device;
    struct mr_device *dev;
    struct mr_dataset *ds;
    struct core_engine *engine;
    struct mr_stream *stream[2];
    struct mr_event *end[2];
    void *far;
};

static int open_box(void **state)
{
    static struct box box;
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    memset(&box, 0, sizeof box);
    must(core_device_get("sim", &box.device));
    box.dev = core_device_of(box.device);
    mr_callback_opts_init(&o);
    o.name = "numbers";
    o.n = BATCH * 100;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {SAMPLE}};
    o.get = get;
    must(mr_dataset_open_callback(&o, &box.ds));
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.prefetch = 2;
    opts.workers = 2;
    must(mr_loader_open(box.ds, NULL, NULL, box.dev, &opts, &ld));
    box.engine = core_engine_create(ld, core_device_share(box.device));
    assert_non_null(box.engine);
    for (int i = 0; i < 2; i++) {
        must(mr_stream_create(box.dev, "own", &box.stream[i]));
        must(mr_event_create(box.dev, 0, &box.end[i]));
    }
    must(mr_memory_acquire(box.dev, MR_DEVICE, BYTES, &box.far));
    *state = &box;
    return 0;
}

static int close_box(void **state)
{
    struct box *box = *state;
    core_engine_put(box->engine);
    for (int i = 0; i < 2; i++) {
        mr_event_destroy(box->end[i]);
        mr_stream_destroy(box->stream[i]);
    }
    mr_memory_release(box->dev, MR_DEVICE, box->far, NULL);
    mr_dataset_close(box->ds);
    core_device_put(box->device);
    return 0;
}

static struct core_lease *next(struct box *box)
{
    struct mr_batch batch = {.size = sizeof batch};
    struct mr_loader *ld = core_engine_enter(box->engine);
    assert_int_equal(mr_loader_next(ld, NULL, &batch), 1);
    core_engine_leave(box->engine);
    struct core_lease *lease = core_lease_create(box->engine, &batch, NULL);
    assert_non_null(lease);
    return lease;
}

/* The batch is copied in one of the streams, after some other work there. */
static void use_late(struct box *box, struct core_lease *lease, int i)
{
    uint64_t busy_ns = 20 * MS;
    must(mr_launch(box->stream[i], "busy", &busy_ns, sizeof busy_ns));
    must(mr_copy_async(box->stream[i], box->far, MR_DEVICE, lease->batch.field[0].host, MR_PINNED,
                       BYTES));
    must(mr_event_record(box->end[i], box->stream[i]));
    core_lease_use(lease, box->stream[i]);
}

/* The memory is given back behind the streams that used it, before and after the close. */
static void uses_after_the_close_are_waited_for(void **state)
{
    struct box *box = *state;
    struct core_lease *lease[4] = {next(box), next(box), next(box), next(box)};
    core_lease_use(lease[1], box->stream[1]);
    core_engine_close(box->engine);
    for (int i = 0; i < 4; i++)
        assert_int_equal(*(const unsigned char *)lease[i]->batch.field[0].host, 1 + i);
    for (int i = 0; i < 3; i++) {
        bool first = i != 2, second = i > 0;
        if (second)
            use_late(box, lease[i], 1);
        if (first)
            use_late(box, lease[i], 0);
        core_lease_put(lease[i]);
        for (int k = 0; k < 2; k++)
            if (k == 0 ? first : second)
                assert_int_equal(mr_event_query(box->end[k]), 1);
    }
    core_lease_put(lease[3]);
}

/* While a stream is captured nothing can be waited for: it is kept until that ends. */
static void kept_during_a_capture(void **state)
{
    struct box *box = *state;
    struct core_lease *lease = next(box);
    core_engine_close(box->engine);
    const unsigned char *host = lease->batch.field[0].host;
    struct mr_memory_counters before = {.size = sizeof before}, after = before;
    must(mr_memory_query(box->dev, MR_PINNED, &before));
    must(mr_device_capture_begin(box->dev));
    use_late(box, lease, 0);
    core_lease_put(lease);
    must(mr_memory_query(box->dev, MR_PINNED, &after));
    assert_int_equal(after.requested_bytes, before.requested_bytes);
    assert_int_equal(*host, 1);
    must(mr_device_capture_end(box->dev));
    assert_int_equal(mr_event_query(box->end[0]), 1);
    must(mr_memory_query(box->dev, MR_PINNED, &after));
    assert_true(after.requested_bytes < before.requested_bytes);
}

/* ---- devices and forks ---- */

static struct {
    atomic_bool on;
    sem_t entered, leave;
} blocks;

int __real_mr_device_open(const char *uri, struct mr_device **out);
int __wrap_mr_device_open(const char *uri, struct mr_device **out);
int __wrap_mr_device_open(const char *uri, struct mr_device **out)
{
    if (atomic_exchange(&blocks.on, false)) {
        sem_post(&blocks.entered);
        sem_wait(&blocks.leave);
    }
    return __real_mr_device_open(uri, out);
}

static void *open_device(void *arg)
{
    must(core_device_get("cpu", arg));
    return NULL;
}

/* Another thread is opening a device, and holds the lock of all. */
static void a_child_opens_devices(void **state)
{
    (void)state;
    struct core_device *mine, *theirs = NULL, *own;
    pthread_t thread;
    int status = -1;
    must(core_device_get("sim", &mine));
    sem_init(&blocks.entered, 0, 0);
    sem_init(&blocks.leave, 0, 0);
    atomic_store(&blocks.on, true);
    assert_int_equal(pthread_create(&thread, NULL, open_device, &theirs), 0);
    sem_wait(&blocks.entered);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        core_device_put(mine); /* the parent's: nothing happens */
        int rc = core_device_get("cpu", &own);
        core_device_put(own);
        _exit(rc == 0 && own != theirs ? 0 : 1);
    }
    sem_post(&blocks.leave);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    pthread_join(thread, NULL);
    core_device_put(theirs);
    core_device_put(mine);
    assert_int_equal(status, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_box, close_box)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(uses_after_the_close_are_waited_for),
        TEST(kept_during_a_capture),
        cmocka_unit_test(a_child_opens_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
