/* Budgets: several loaders never have more workers at work than their budget allows, none of them
 * starves or stops the others, and the memory of all stays below one ceiling. */
#include "run_loader.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 300

/* A set whose samples count how many threads make one at the same time. */
struct counting {
    const char *name;
    uint32_t nap_us;
    _Atomic bool *block; /* NULL: none */
};

static _Atomic int n_inside, most_inside;

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct counting *set = user;
    int inside = atomic_fetch_add(&n_inside, 1) + 1, most = atomic_load(&most_inside);
    while (inside > most && !atomic_compare_exchange_weak(&most_inside, &most, inside))
        ;
    (void)dim;
    memset(row[0], (int)index, 64);
    if (set->nap_us)
        usleep(set->nap_us);
    while (set->block && atomic_load(set->block))
        usleep(200);
    atomic_fetch_sub(&n_inside, 1);
    return 0;
}

static struct mr_dataset *open_set(struct counting *set)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = set->name;
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {64}};
    o.get = get;
    o.user = set;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static struct mr_budget *make_budget(uint32_t workers, uint64_t max_memory)
{
    struct mr_budget_opts o;
    struct mr_budget *budget;
    mr_budget_opts_init(&o);
    o.workers = workers;
    o.max_memory = max_memory;
    must(mr_budget_create(&o, &budget));
    atomic_store(&most_inside, 0);
    return budget;
}

static struct mr_budget_info look(struct mr_budget *budget)
{
    struct mr_budget_info info = {.size = sizeof info};
    must(mr_budget_query(budget, &info));
    return info;
}

static int open_loader(struct mr_dataset *ds, struct mr_budget *budget, uint32_t workers,
                       struct mr_loader **out)
{
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.prefetch = 4;
    opts.workers = workers;
    opts.budget = budget;
    return mr_loader_open(ds, NULL, NULL, NULL, &opts, out);
}

/* One epoch's samples: each once, with its bytes. */
struct taken {
    struct mr_loader *ld;
    uint8_t seen[N];
    bool wrong;
};

static bool take(struct taken *t)
{
    struct mr_batch b = {.size = sizeof b};
    int rc = mr_loader_next(t->ld, NULL, &b);
    if (rc <= 0) {
        t->wrong |= rc < 0;
        return false;
    }
    for (uint64_t i = 0; i < b.n; i++) {
        t->wrong |= t->seen[b.indices[i]]++ != 0;
        t->wrong |= ((uint8_t *)b.field[0].data)[64 * i + 63] != (uint8_t)b.indices[i];
    }
    t->wrong |= mr_loader_release(t->ld, &b, NULL) < 0;
    return true;
}

static void *take_all(void *arg)
{
    while (take(arg))
        ;
    return NULL;
}

static void expect_all(const struct taken *t)
{
    assert_false(t->wrong);
    for (int i = 0; i < N; i++)
        assert_int_equal(t->seen[i], 1);
}

static void never_more_work_than_the_budget_has(void **state)
{
    (void)state;
    struct counting sets[] = {{.name = "one", .nap_us = 100}, {.name = "two", .nap_us = 200}};
    struct mr_dataset *ds[2] = {open_set(&sets[0]), open_set(&sets[1])};
    for (uint32_t workers = 1; workers <= 3; workers++) {
        struct mr_budget *budget = make_budget(workers, 0);
        struct taken t[2] = {0};
        pthread_t thread;
        for (int i = 0; i < 2; i++)
            must(open_loader(ds[i], budget, 4, &t[i].ld));
        assert_int_equal(look(budget).loaders, 2);
        if (workers % 2) { /* one consumer for both, or one each */
            while (take(&t[0]) | take(&t[1]))
                ;
        } else {
            assert_int_equal(pthread_create(&thread, NULL, take_all, &t[0]), 0);
            take_all(&t[1]);
            pthread_join(thread, NULL);
        }
        struct mr_loader_stats st = {.size = sizeof st};
        mr_loader_stats(t[0].ld, &st);
        assert_true(st.budget_wait_ns > 0);
        for (int i = 0; i < 2; i++) {
            expect_all(&t[i]);
            mr_loader_close(t[i].ld);
        }
        assert_int_equal(atomic_load(&most_inside), workers);
        assert_int_equal(look(budget).working, 0);
        assert_int_equal(look(budget).waiting, 0);
        mr_budget_destroy(budget);
    }
    for (int i = 0; i < 2; i++)
        mr_dataset_close(ds[i]);
}

/* The whole order, workers that read files, a device: the budget changes nothing of it. */
static void the_batches_are_the_same(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=999,shape=12,dtype=f32,delay=20us");
    c.sampler = "random";
    c.device = "sim";
    c.opts.workers = 3;
    c.opts.epochs = 2;
    struct run plain = run_loader(&c);
    struct mr_budget *budget = c.opts.budget = make_budget(1, 0);
    struct run run = run_loader(&c);
    assert_int_equal(plain.rc, 0);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, plain.n);
    assert_memory_equal(run.row, plain.row, run.n * sizeof *run.row);
    run_free(&run);
    run_free(&plain);
    mr_budget_destroy(budget);
}

static void loaders_that_nobody_reads_stop_no_one(void **state)
{
    (void)state;
    struct counting set = {.name = "set"};
    struct mr_dataset *ds = open_set(&set);
    struct mr_budget *budget = make_budget(1, 0);
    struct mr_loader *idle[3];
    struct taken t = {0}, late = {0};
    for (int i = 0; i < 3; i++)
        must(open_loader(ds, budget, 2, &idle[i]));
    must(open_loader(ds, budget, 0, &t.ld));
    take_all(&t);
    expect_all(&t);
    late.ld = idle[1];
    take_all(&late);
    expect_all(&late);
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(t.ld, &st);
    assert_int_equal(st.workers, 1); /* as many as the budget has */
    for (int i = 0; i < 3; i++)
        mr_loader_close(idle[i]);
    mr_loader_close(t.ld);
    mr_budget_destroy(budget);
    mr_dataset_close(ds);
}

static void *cancel_soon(void *ld)
{
    usleep(20000);
    mr_loader_cancel(ld);
    return NULL;
}

/* One loader's callback has the only permit and keeps it: the other one can be asked, cancelled and
 * closed. */
static void waiting_workers_can_be_stopped(void **state)
{
    (void)state;
    _Atomic bool block = true;
    struct counting blocked = {.name = "blocked", .block = &block}, other = {.name = "other"};
    struct mr_dataset *ds[2] = {open_set(&blocked), open_set(&other)};
    struct mr_budget *budget = make_budget(1, 0);
    struct taken t = {0};
    struct mr_loader *waits;
    struct mr_batch b = {.size = sizeof b};
    pthread_t thread;
    must(open_loader(ds[0], budget, 1, &t.ld));
    while (atomic_load(&n_inside) == 0)
        usleep(100);
    must(open_loader(ds[1], budget, 3, &waits));
    while (look(budget).waiting < 3)
        usleep(100);
    assert_int_equal(mr_loader_next_for(waits, NULL, 1000000, &b), -ETIMEDOUT);
    if (!strstr(mr_last_error(), "its budget"))
        fail_msg("%s", mr_last_error());
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, waits), 0);
    assert_int_equal(mr_loader_next(waits, NULL, &b), MR_ECANCELLED);
    pthread_join(thread, NULL);
    mr_loader_close(waits);
    assert_int_equal(look(budget).waiting, 0);
    assert_int_equal(look(budget).loaders, 1);
    mr_budget_destroy(budget); /* the loader that is open keeps it */
    atomic_store(&block, false);
    take_all(&t);
    expect_all(&t);
    mr_loader_close(t.ld);
    for (int i = 0; i < 2; i++)
        mr_dataset_close(ds[i]);
}

/* ---- memory ---- */

static void the_ceiling_is_one_sum(void **state)
{
    (void)state;
    struct counting sets[] = {{.name = "train"}, {.name = "validate"}};
    struct mr_dataset *ds[2] = {open_set(&sets[0]), open_set(&sets[1])};
    struct mr_budget *budget = make_budget(2, 1 << 30);
    struct mr_loader *ld, *second;
    must(open_loader(ds[0], budget, 2, &ld));
    uint64_t one = look(budget).bytes;
    assert_true(one > 0);
    mr_loader_close(ld);
    assert_int_equal(look(budget).bytes, 0);
    mr_budget_destroy(budget);

    budget = make_budget(2, 2 * one - 1);
    must(open_loader(ds[0], budget, 2, &ld));
    assert_int_equal(open_loader(ds[1], budget, 2, &second), MR_ELIMIT);
    const char *text = mr_last_error();
    char needs[64], has[64];
    snprintf(needs, sizeof needs, "validate needs %llu", (unsigned long long)one);
    snprintf(has, sizeof has, "train %llu", (unsigned long long)one);
    if (!strstr(text, needs) || !strstr(text, has))
        fail_msg("%s", text);
    assert_int_equal(look(budget).loaders, 1);
    assert_int_equal(look(budget).bytes, one);
    struct mr_loader_opts opts; /* automatic numbers give way */
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.workers = 2;
    opts.budget = budget;
    must(mr_loader_open(ds[1], NULL, NULL, NULL, &opts, &second));
    assert_true(look(budget).bytes <= 2 * one - 1);
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(second, &st);
    assert_in_range(st.prefetch, 2, 3);
    mr_loader_close(ld);
    mr_loader_close(second); /* closing gives its part back */
    must(open_loader(ds[0], budget, 2, &ld));
    mr_loader_close(ld);
    mr_budget_destroy(budget);
    for (int i = 0; i < 2; i++)
        mr_dataset_close(ds[i]);
}

static void held_batches_count(void **state)
{
    (void)state;
    struct counting set = {.name = "set"};
    struct mr_dataset *ds = open_set(&set);
    struct mr_budget *budget = make_budget(2, 100000);
    struct mr_loader *ld, *other;
    struct mr_batch held[N / 10] = {{0}};
    for (int i = 0; i < N / 10; i++)
        held[i].size = sizeof held[i];
    int n = 0, rc;
    for (int i = 0; i < N / 10; i++)
        held[i].size = sizeof held[i];
    must(open_loader(ds, budget, 2, &ld));
    must(open_loader(ds, budget, 2, &other));
    uint64_t before = look(budget).bytes;
    mr_loader_close(other);
    other = NULL;
    assert_true(before < 100000);
    struct mr_budget *tight = make_budget(2, before); /* 4 slots and their like are left */
    mr_loader_close(ld);
    must(open_loader(ds, tight, 2, &ld));
    while ((rc = mr_loader_next(ld, NULL, &held[n])) > 0)
        n++;
    assert_int_equal(rc, MR_ELIMIT);
    assert_non_null(strstr(mr_last_error(), "budget"));
    assert_true(n > 4 && n < N / 10);
    assert_true(look(tight).bytes > before / 2 && look(tight).bytes <= before);
    while (n > 0)
        must(mr_loader_release(ld, &held[--n], NULL));
    assert_int_equal(mr_loader_next(ld, NULL, &held[0]), 1);
    mr_loader_close(ld);
    assert_int_equal(look(tight).bytes, 0);
    mr_budget_destroy(tight);
    mr_budget_destroy(budget);
    mr_dataset_close(ds);
}

static atomic_bool may_grow;

/* The first sample is short, the others are long: slots grow. */
static int get_sequence(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    while (!atomic_load(&may_grow))
        usleep(100);
    dim[0][0] = index == 0 ? 1 : 4000;
    memset(row[0], (int)index, dim[0][0]);
    return 0;
}

static int drain(struct mr_dataset *ds, struct mr_budget *budget, uint64_t *at_open,
                 uint64_t *after)
{
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    int rc;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.prefetch = 4;
    opts.workers = 2;
    opts.collate = MR_COLLATE_PAD;
    opts.budget = budget;
    atomic_store(&may_grow, false);
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    *at_open = look(budget).bytes;
    atomic_store(&may_grow, true);
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
        must(mr_loader_release(ld, &b, NULL));
    *after = look(budget).bytes;
    mr_loader_close(ld);
    return rc;
}

static void slots_that_grow_count(void **state)
{
    (void)state;
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    uint64_t at_open, after, limit, end;
    mr_callback_opts_init(&o);
    o.name = "sequences";
    o.n = N;
    o.n_fields = 1;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .var_dims = 1, .dim = {100000}};
    o.get = get_sequence;
    must(mr_dataset_open_callback(&o, &ds));
    struct mr_budget *budget = make_budget(2, 0);
    assert_int_equal(drain(ds, budget, &at_open, &after), 0);
    assert_true(after > at_open);
    assert_int_equal(look(budget).bytes, 0);
    mr_budget_destroy(budget);
    limit = at_open + (after - at_open) / 4;
    budget = make_budget(2, limit);
    assert_int_equal(drain(ds, budget, &at_open, &end), MR_ELIMIT);
    if (!strstr(mr_last_error(), "budget"))
        fail_msg("%s", mr_last_error());
    assert_true(end <= limit);
    assert_int_equal(look(budget).bytes, 0);
    mr_budget_destroy(budget);
    mr_dataset_close(ds);
}

/* ---- misuse ---- */

static void a_child_cannot_use_it(void **state)
{
    (void)state;
    struct counting set = {.name = "set"};
    struct mr_dataset *ds = open_set(&set);
    struct mr_budget *budget = make_budget(1, 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct mr_loader *ld;
        struct mr_budget_info info = {.size = sizeof info};
        alarm(60);
        bool refused = open_loader(ds, budget, 1, &ld) == MR_EMISUSE &&
                       strstr(mr_last_error(), "budget") &&
                       mr_budget_query(budget, &info) == MR_EMISUSE;
        mr_budget_destroy(budget);
        _exit(!refused);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    mr_budget_destroy(budget);
    mr_dataset_close(ds);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    struct mr_budget_opts o;
    struct mr_budget *budget = NULL;
    mr_budget_opts_init(&o);
    o.workers = 513;
    assert_int_equal(mr_budget_create(&o, &budget), MR_EOPTION);
    assert_null(budget);
    must(mr_budget_create(NULL, &budget));
    assert_int_equal(look(budget).workers, mr_cpu_count());
    struct mr_budget_info info = {0};
    assert_int_equal(mr_budget_query(budget, &info), MR_EMISUSE);
    mr_budget_destroy(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_more_work_than_the_budget_has),
        cmocka_unit_test(the_batches_are_the_same),
        cmocka_unit_test(loaders_that_nobody_reads_stop_no_one),
        cmocka_unit_test(waiting_workers_can_be_stopped),
        cmocka_unit_test(the_ceiling_is_one_sum),
        cmocka_unit_test(held_batches_count),
        cmocka_unit_test(slots_that_grow_count),
        cmocka_unit_test(a_child_cannot_use_it),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
