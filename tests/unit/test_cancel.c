/* Cancelling and closing a loader at any moment: in a signal handler, while another thread waits,
 * in a callback. */
#include "run_loader.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define HANGS_S 120 /* then it hangs: SIGALRM ends the process */

static void on_signal(int number, void (*fn)(int))
{
    struct sigaction action = {.sa_handler = fn};
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static void nap(long ns)
{
    struct timespec ts = {0, ns};
    nanosleep(&ts, NULL);
}

/* ---- signals ---- */

static struct mr_loader *_Atomic current;
static atomic_int handled;

static void cancel_current(int number)
{
    (void)number;
    struct mr_loader *ld = atomic_load(&current);
    atomic_fetch_add(&handled, 1);
    if (ld)
        mr_loader_cancel(ld);
}

static void only_count(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

struct sender {
    pthread_t to;
    atomic_bool stop;
    long ns;
};

static void *send_signals(void *arg)
{
    struct sender *s = arg;
    for (uint32_t i = 0; !atomic_load(&s->stop); i++) {
        nap(s->ns + (long)(i * 7919 % 64) * 1000);
        pthread_kill(s->to, SIGUSR1);
    }
    return NULL;
}

/* The handler interrupts the consumer wherever it is: waiting, waking workers, releasing. */
static void a_handler_may_cancel_at_any_moment(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_loader_opts opts;
    struct sender sender = {.to = pthread_self(), .ns = 20000};
    pthread_t thread;
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    opts.prefetch = 1;
    opts.batch_size = 2;
    opts.epochs = 0;
    must(mr_dataset_open("synthetic:n=1000,shape=4", &ds));
    on_signal(SIGUSR1, cancel_current);
    alarm(HANGS_S);
    pthread_create(&thread, NULL, send_signals, &sender);
    for (int round = 0; round < 1000; round++) {
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        int rc;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        atomic_store(&current, ld);
        while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
            must(mr_loader_release(ld, &b, NULL));
        atomic_store(&current, NULL);
        assert_int_equal(rc, MR_ECANCELLED);
        mr_loader_close(ld);
    }
    atomic_store(&sender.stop, true);
    pthread_join(thread, NULL);
    alarm(0);
    mr_dataset_close(ds);
}

static int slow_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    nap(20000000);
    *(uint64_t *)row[0] = index;
    return 0;
}

static struct mr_dataset *open_callback(uint64_t n, void *user,
                                        int (*get)(void *, uint64_t, void *const[],
                                                   uint64_t (*)[MR_MAX_RANK]))
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.n = n;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get;
    o.user = user;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static void other_signals_do_not_end_waiting(void **state)
{
    (void)state;
    struct sender sender = {.to = pthread_self(), .ns = 100000};
    struct run_config c = run_config(NULL);
    pthread_t thread;
    c.ds = open_callback(40, NULL, slow_get);
    c.opts.batch_size = 4;
    on_signal(SIGUSR1, only_count);
    atomic_store(&handled, 0);
    alarm(HANGS_S);
    pthread_create(&thread, NULL, send_signals, &sender);
    struct run run = run_loader(&c);
    atomic_store(&sender.stop, true);
    pthread_join(thread, NULL);
    alarm(0);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 40);
    assert_true(atomic_load(&handled) > 10);
    run_free(&run);
    mr_dataset_close(c.ds);
}

/* ---- closing while another thread waits ---- */

struct blocked {
    sem_t entered, go;
    uint64_t at; /* this sample waits for `go` */
    struct mr_loader *ld;
    int rc;
};

static int blocked_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    struct blocked *b = user;
    (void)dim;
    if (index == b->at) {
        sem_post(&b->entered);
        sem_wait(&b->go);
    }
    *(uint64_t *)row[0] = index;
    return 0;
}

static void *consume(void *arg)
{
    struct blocked *b = arg;
    struct mr_batch batch = {.size = sizeof batch};
    while ((b->rc = mr_loader_next(b->ld, NULL, &batch)) > 0)
        mr_loader_release(b->ld, &batch, NULL);
    sem_post(&b->go); /* next is back, though the sample it waited for is not made */
    return NULL;
}

/* The sample that the consumer waits for is only made after next has returned: if close did not
 * wake the consumer, all would wait for each other. Nor can close free the loader before. */
static void closing_ends_a_wait_of_another_thread(void **state)
{
    (void)state;
    alarm(HANGS_S);
    for (uint64_t at = 0; at < 20; at++) {
        struct blocked b = {.at = 8 * at};
        struct mr_loader_opts opts;
        pthread_t thread;
        sem_init(&b.entered, 0, 0);
        sem_init(&b.go, 0, 0);
        struct mr_dataset *ds = open_callback(1000, &b, blocked_get);
        mr_loader_opts_init(&opts);
        opts.workers = 1 + at % 3;
        opts.prefetch = 1;
        opts.batch_size = 8;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &b.ld));
        pthread_create(&thread, NULL, consume, &b);
        sem_wait(&b.entered);
        nap((long)at * 50000); /* before, while or after the consumer begins to wait */
        mr_loader_close(b.ld);
        pthread_join(thread, NULL);
        assert_int_equal(b.rc, MR_ECANCELLED);
        mr_dataset_close(ds);
        sem_destroy(&b.entered);
        sem_destroy(&b.go);
    }
    alarm(0);
}

/* ---- calls from callbacks ---- */

struct caller {
    struct mr_loader *_Atomic ld;
    atomic_int n_wrong, n_called, n_logged;
};

static void call_all(struct caller *c)
{
    struct mr_loader *ld = atomic_load(&c->ld);
    struct mr_batch b = {.size = sizeof b};
    if (!ld)
        return;
    bool right = mr_loader_next(ld, NULL, &b) == MR_EMISUSE && strstr(mr_last_error(), "callback");
    right &= mr_loader_release(ld, &b, NULL) == MR_EMISUSE;
    mr_loader_close(ld);
    atomic_fetch_add(&c->n_wrong, !right);
    atomic_fetch_add(&c->n_called, 1);
}

static int calling_get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)dim;
    call_all(user);
    *(uint64_t *)row[0] = index;
    return 0;
}

static int calling_map(void *user, uint64_t epoch, uint64_t position, uint64_t count, uint64_t *out)
{
    (void)epoch;
    call_all(user);
    for (uint64_t i = 0; i < count; i++)
        out[i] = position + i;
    return 0;
}

static int calling_op(void *user, const struct mr_spec *in_spec, const void *in,
                      const uint64_t *in_dim, const struct mr_spec *out_spec, void *out,
                      uint64_t *out_dim, const uint32_t random[4])
{
    (void)in_spec, (void)in_dim, (void)out_spec, (void)out_dim, (void)random;
    call_all(user);
    memcpy(out, in, sizeof(uint64_t));
    return 0;
}

static void note_log(void *user, enum mr_log_level level, const char *text)
{
    struct caller *c = user;
    if (level == MR_LOG_WARNING && strstr(text, "mr_loader_close"))
        atomic_fetch_add(&c->n_logged, 1);
}

/* Each call is refused, close with a line in the log; the run goes on and delivers everything. */
static void callbacks_cannot_wait_for_themselves(void **state)
{
    (void)state;
    struct caller c = {0};
    struct mr_sampler_opts so;
    struct mr_loader_opts opts;
    struct mr_sampler *sampler;
    struct mr_transform *chain;
    struct mr_transform_fn fn = {
        .size = sizeof fn, .name = "calls", .apply = calling_op, .user = &c};
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader *ld;
    uint64_t n = 0;
    int rc;
    alarm(HANGS_S);
    struct mr_dataset *ds = open_callback(2000, &c, calling_get);
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_CUSTOM;
    so.map = calling_map;
    so.user = &c;
    so.length = 2000;
    must(mr_sampler_create(&so, 2000, &sampler));
    must(mr_transform_create(&chain));
    must(mr_transform_add_fn(chain, &fn));
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    opts.prefetch = 2;
    opts.batch_size = 4;
    must(mr_loader_open(ds, sampler, chain, NULL, &opts, &ld));
    mr_log_set(note_log, &c);
    atomic_store(&c.ld, ld);
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(((const uint64_t *)b.field[0].data)[i], n + i);
        n += b.n;
        must(mr_loader_release(ld, &b, NULL));
    }
    assert_int_equal(rc, 0);
    assert_int_equal(n, 2000);
    mr_loader_close(ld);
    alarm(0);
    mr_log_set(NULL, NULL);
    assert_true(atomic_load(&c.n_called) > 2000);
    assert_int_equal(atomic_load(&c.n_wrong), 0);
    assert_int_equal(atomic_load(&c.n_logged), atomic_load(&c.n_called));
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_may_cancel_at_any_moment),
        cmocka_unit_test(other_signals_do_not_end_waiting),
        cmocka_unit_test(closing_ends_a_wait_of_another_thread),
        cmocka_unit_test(callbacks_cannot_wait_for_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
