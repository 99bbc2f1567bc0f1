/* Waiting for a limited time, and in an event loop: what is late, and when a descriptor is
 * readable. */
#include "run_loader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define HANGS_S 120 /* then it hangs: SIGALRM ends the process */
#define N       400

/* Samples that wait until the test lets them go on. */
struct gate {
    uint64_t at; /* this sample waits in the place `where` */
    enum { IN_GET, IN_OP, IN_MAP } where;
    sem_t entered, go;
};

static void pass(struct gate *g, int where, uint64_t index)
{
    if ((int)g->where != where || index != g->at)
        return;
    sem_post(&g->entered);
    sem_wait(&g->go);
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)dim;
    pass(user, IN_GET, index);
    *(uint64_t *)row[0] = index;
    return 0;
}

static int op(void *user, const struct mr_spec *in_spec, const void *in, const uint64_t *in_dim,
              const struct mr_spec *out_spec, void *out, uint64_t *out_dim,
              const uint32_t random[4])
{
    (void)in_spec, (void)in_dim, (void)out_spec, (void)out_dim, (void)random;
    memcpy(out, in, sizeof(uint64_t));
    pass(user, IN_OP, *(const uint64_t *)in);
    return 0;
}

/* The order is reversed: index and position differ. */
static int map(void *user, uint64_t epoch, uint64_t position, uint64_t count, uint64_t *out)
{
    (void)epoch;
    for (uint64_t i = 0; i < count; i++) {
        pass(user, IN_MAP, N - 1 - position - i);
        out[i] = N - 1 - position - i;
    }
    return 0;
}

struct fixture {
    struct gate gate;
    struct mr_dataset *ds;
    struct mr_sampler *sampler;
    struct mr_transform *chain;
    struct mr_loader *ld;
};

static void open_gated(struct fixture *f, struct mr_loader_opts *opts)
{
    struct mr_callback_opts o;
    struct mr_sampler_opts so;
    struct mr_transform_fn fn = {.size = sizeof fn, .name = "op", .apply = op, .user = &f->gate};
    sem_init(&f->gate.entered, 0, 0);
    sem_init(&f->gate.go, 0, 0);
    mr_callback_opts_init(&o);
    o.name = "gated";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get;
    o.user = &f->gate;
    must(mr_dataset_open_callback(&o, &f->ds));
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_CUSTOM;
    so.map = map;
    so.user = &f->gate;
    so.length = N;
    must(mr_sampler_create(&so, N, &f->sampler));
    must(mr_transform_create(&f->chain));
    must(mr_transform_add_fn(f->chain, &fn));
    must(mr_loader_open(f->ds, f->sampler, f->chain, NULL, opts, &f->ld));
}

static void close_gated(struct fixture *f)
{
    mr_loader_close(f->ld);
    mr_transform_destroy(f->chain);
    mr_sampler_destroy(f->sampler);
    mr_dataset_close(f->ds);
    sem_destroy(&f->gate.entered);
    sem_destroy(&f->gate.go);
}

/* Takes batches, checks that they go on where n is; returns what ends that. */
static int take(struct fixture *f, uint64_t timeout_ns, uint64_t *n)
{
    struct mr_batch b = {.size = sizeof b};
    int rc;
    while ((rc = mr_loader_next_for(f->ld, NULL, timeout_ns, &b)) > 0) {
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(((const uint64_t *)b.field[0].data)[i], N - 1 - *n - i);
        *n += b.n;
        must(mr_loader_release(f->ld, &b, NULL));
    }
    return rc;
}

static void a_late_sample_is_named(void **state)
{
    (void)state;
    static const char *const doing[] = {"has been in the data set's get callback for",
                                        "has been transforming it for",
                                        "asks the sampler and the data set for its samples"};
    alarm(HANGS_S);
    for (int round = 0; round < 18; round++) {
        struct fixture f = {.gate = {.at = (uint64_t)round * 21 + 7}};
        struct mr_loader_opts opts;
        char sample[96];
        uint64_t n = 0;
        int rc;
        f.gate.where = round % 3;
        mr_loader_opts_init(&opts);
        opts.workers = 1 + (uint32_t)round % 4;
        opts.batch_size = 16;
        opts.prefetch = N / 16;
        open_gated(&f, &opts);
        sem_wait(&f.gate.entered);
        uint64_t position = N - 1 - f.gate.at, start = mr_time_ns();
        do /* the others may need more than the time to come to the batch */
            rc = take(&f, 3000000, &n);
        while (rc == -ETIMEDOUT && n < position / 16 * 16);
        rc = take(&f, 30000000, &n);
        assert_int_equal(rc, -ETIMEDOUT);
        assert_true(mr_time_ns() - start >= 30000000);
        assert_int_equal(n, position / 16 * 16);
        snprintf(sample, sizeof sample, "gated: sample %d (epoch 0, position %d) is late",
                 (int)f.gate.at, (int)position);
        if (!strstr(mr_last_error(), doing[f.gate.where]) ||
            !strstr(mr_last_error(), f.gate.where == IN_MAP ? "is not ready after" : sample) ||
            !strstr(mr_last_error(), "worker "))
            fail_msg("%d: %s", round, mr_last_error());
        sem_post(&f.gate.go);
        sem_post(&f.gate.go); /* the text, too, asks the sampler */
        assert_int_equal(take(&f, UINT64_MAX, &n), 0);
        assert_int_equal(n, N);
        close_gated(&f);
    }
    alarm(0);
}

static void a_late_read_is_named(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    alarm(HANGS_S);
    must(mr_dataset_open("synthetic:n=100,shape=4,delay=1h", &ds));
    mr_loader_opts_init(&opts);
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    do
        assert_int_equal(mr_loader_next_for(ld, NULL, 30000000, &b), -ETIMEDOUT);
    while (!strstr(mr_last_error(), "sample ")); /* no worker has begun */
    if (!strstr(mr_last_error(), "has been waiting for its bytes for"))
        fail_msg("%s", mr_last_error());
    mr_loader_close(ld);
    mr_dataset_close(ds);
    alarm(0);
}

/* With timeout 0 the call never waits, also when a batch can never come; it delivers what
 * mr_loader_next() does. */
static void no_time_at_all_is_enough(void **state)
{
    (void)state;
    struct fixture f = {.gate = {.at = 100}};
    struct mr_loader_opts opts;
    uint64_t n = 0, timeouts = 0;
    alarm(HANGS_S);
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    opts.batch_size = 16;
    opts.prefetch = 1;
    open_gated(&f, &opts);
    while (n < (N - 1 - 100) / 16 * 16)
        assert_int_equal(take(&f, 0, &n), -ETIMEDOUT);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(take(&f, 0, &n), -ETIMEDOUT);
    sem_post(&f.gate.go);
    while (take(&f, 0, &n) == -ETIMEDOUT)
        timeouts++;
    assert_int_equal(n, N);
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(f.ld, &st);
    assert_int_equal(st.batches, N / 16);
    assert_true(st.consumer_wait_ns + st.consumer_busy_ns <= st.elapsed_ns);
    close_gated(&f);
    alarm(0);
}

struct told {
    struct gate *gate;
    char text[512];
};

/* The gate opens when the log has the line: without it, closing would never end. */
static void open_when_told(void *user, enum mr_log_level level, const char *text)
{
    struct told *told = user;
    if (level != MR_LOG_WARNING || !strstr(text, "mr_loader_close"))
        return;
    snprintf(told->text, sizeof told->text, "%s", text);
    sem_post(&told->gate->go);
}

/* A callback that blocks holds up closing: the log says which worker is in which callback. */
static void closing_names_a_callback_that_blocks(void **state)
{
    (void)state;
    static const char *const doing[] = {"which has been in the data set's get callback for",
                                        "which has been transforming it for"};
    alarm(HANGS_S);
    for (int where = IN_GET; where <= IN_OP; where++) {
        struct fixture f = {.gate = {.at = 7, .where = where}};
        struct told told = {.gate = &f.gate};
        struct mr_loader_opts opts;
        mr_loader_opts_init(&opts);
        opts.workers = 3;
        opts.batch_size = 16;
        opts.prefetch = N / 16;
        open_gated(&f, &opts);
        sem_wait(&f.gate.entered);
        mr_log_set(open_when_told, &told);
        close_gated(&f);
        mr_log_set(NULL, NULL);
        if (!strstr(told.text, doing[where]) || !strstr(told.text, "gated"))
            fail_msg("%s", told.text);
    }
    alarm(0);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, timeout_ms);
    while (n < 0 && errno == EINTR);
    assert_true(n >= 0);
    return n > 0;
}

/* An event loop that only calls when the descriptor is readable gets everything; nothing waits in
 * the loader. */
static void a_descriptor_says_when_a_batch_is_ready(void **state)
{
    (void)state;
    alarm(HANGS_S);
    for (uint32_t round = 0; round < 24; round++) {
        struct run_config c = run_config("synthetic:n=301,shape=3,work=20us");
        struct mr_dataset *ds;
        struct mr_device *device;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        uint64_t n = 0;
        int rc = 1, fd = -1;
        c.opts.workers = 1 + round % 3;
        c.opts.prefetch = 1 + round % 4;
        c.opts.batch_size = 1 + round % 7;
        must(mr_dataset_open(c.dataset, &ds));
        must(mr_device_open(round % 2 ? "cpu" : "sim:latency=1us", &device));
        must(mr_loader_open(ds, NULL, NULL, device, &c.opts, &ld));
        for (uint32_t i = 0; i < round; i++) /* some without it */
            if (mr_loader_next(ld, NULL, &b) > 0) {
                n += b.n;
                must(mr_loader_release(ld, &b, NULL));
            }
        must(fd = mr_loader_fd(ld));
        assert_int_equal(mr_loader_fd(ld), fd);
        while (rc != 0) {
            assert_true(readable(fd, -1));
            rc = mr_loader_next_for(ld, NULL, 0, &b);
            if (rc == -ETIMEDOUT)
                continue;
            must(rc);
            n += rc > 0 ? b.n : 0;
            if (rc > 0)
                must(mr_loader_release(ld, &b, NULL));
        }
        assert_int_equal(n, 301);
        assert_true(readable(fd, 0)); /* and stays so */
        mr_loader_close(ld);
        mr_device_close(device);
        mr_dataset_close(ds);
    }
    alarm(0);
}

static void it_is_not_readable_before(void **state)
{
    (void)state;
    struct fixture f = {.gate = {.at = 100}};
    struct mr_loader_opts opts;
    uint64_t n = 0;
    alarm(HANGS_S);
    mr_loader_opts_init(&opts);
    opts.batch_size = 16;
    open_gated(&f, &opts);
    int fd = mr_loader_fd(f.ld);
    while (n < (N - 1 - 100) / 16 * 16)
        assert_int_equal(take(&f, 1000000, &n), -ETIMEDOUT);
    while (readable(fd, 20)) /* a wake-up of an earlier batch may be late */
        assert_int_equal(take(&f, 0, &n), -ETIMEDOUT);
    mr_loader_cancel(f.ld);
    assert_true(readable(fd, -1));
    assert_int_equal(take(&f, 0, &n), MR_ECANCELLED);
    assert_true(readable(fd, 0));
    sem_post(&f.gate.go);
    close_gated(&f);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_sample_is_named),
        cmocka_unit_test(a_late_read_is_named),
        cmocka_unit_test(no_time_at_all_is_enough),
        cmocka_unit_test(closing_names_a_callback_that_blocks),
        cmocka_unit_test(a_descriptor_says_when_a_batch_is_ready),
        cmocka_unit_test(it_is_not_readable_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
