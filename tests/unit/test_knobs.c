/* Changing workers and batches ahead while a loader runs: the batches stay the same, bit for bit,
 * and neither number is exceeded. Tuning finds what a set with long waits, or a slow consumer,
 * needs. */
#include "run_loader.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#define N 400

struct set {
    uint32_t nap_us;
    uint64_t late; /* this sample waits until the consumer has waited for so long */
    uint32_t late_us;
    _Atomic uint64_t made, taken; /* samples; batches */
    _Atomic int inside, most;
    _Atomic uint64_t furthest; /* the highest index made; samples are made in their order */
};

/* Until no batch was taken for so long: the consumer has taken all that were ready. */
static void be_late(struct set *s)
{
    uint64_t before;
    do {
        before = atomic_load(&s->taken);
        usleep(s->late_us);
    } while (atomic_load(&s->taken) != before);
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    struct set *s = user;
    int inside = atomic_fetch_add(&s->inside, 1) + 1, most = atomic_load(&s->most);
    uint64_t furthest = atomic_load(&s->furthest);
    while (inside > most && !atomic_compare_exchange_weak(&s->most, &most, inside))
        ;
    while (index > furthest && !atomic_compare_exchange_weak(&s->furthest, &furthest, index))
        ;
    (void)dim;
    for (int i = 0; i < 16; i++)
        ((uint32_t *)row[0])[i] = (uint32_t)(index * 31 + (uint64_t)i);
    if (s->nap_us)
        usleep(s->nap_us);
    if (s->late_us && index == s->late)
        be_late(s);
    atomic_fetch_add(&s->made, 1);
    atomic_fetch_sub(&s->inside, 1);
    return 0;
}

static struct mr_dataset *open_set(struct set *s)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "numbers";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U32, .rank = 1, .dim = {16}};
    o.get = get;
    o.user = s;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static uint32_t draw(uint32_t *n, uint32_t below)
{
    uint32_t out[4];
    mr_draw4(3, MR_DRAW_VALUES, (*n)++, 0, 0, out);
    return out[0] % below;
}

static void set_knobs(struct mr_loader *ld, uint32_t workers, uint32_t prefetch)
{
    struct mr_loader_knobs k = {.size = sizeof k, .workers = workers, .prefetch = prefetch};
    must(mr_loader_set(ld, &k));
}

/* Reads a whole run, with other knobs every few batches if n is given; a hash of what came. */
static uint64_t read_all(struct mr_dataset *ds, const struct mr_loader_opts *opts,
                         struct mr_device *dev, uint32_t *n)
{
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    struct mr_sampler *order;
    uint64_t hash = MR_HASH_START, batches = 0;
    int rc;
    must(mr_sampler_open("random", N, 9, &order));
    must(mr_loader_open(ds, order, NULL, dev, opts, &ld));
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        hash = mr_hash(hash, b.field[0].data, b.field[0].bytes);
        hash = mr_hash(hash, b.indices, b.n * sizeof *b.indices);
        if (n && batches++ % 5 == 0)
            set_knobs(ld, 1 + draw(n, 7), opts->in_order ? 1 + draw(n, 9) : 0);
        must(mr_loader_release(ld, &b, NULL));
    }
    must(rc);
    mr_loader_close(ld);
    mr_sampler_destroy(order);
    return hash;
}

static void batches_stay_the_same(void **state)
{
    (void)state;
    uint32_t n = 0;
    struct set s = {0};
    struct mr_dataset *ds = open_set(&s);
    struct mr_device *sim;
    must(mr_device_open("sim:latency=1us", &sim));
    for (int round = 0; round < 12; round++) {
        struct mr_loader_opts o;
        mr_loader_opts_init(&o);
        o.batch_size = 1 + draw(&n, 20);
        o.epochs = 3;
        struct mr_device *dev = round % 3 ? NULL : sim;
        s.nap_us = round % 4 ? 0 : 30;
        uint64_t plain = read_all(ds, &o, dev, NULL);
        o.workers = 1 + draw(&n, 7);
        o.max_workers = 7;
        o.prefetch = 1 + draw(&n, 9);
        o.max_prefetch = 9;
        assert_true(read_all(ds, &o, dev, &n) == plain);
    }
    mr_device_close(sim);
    mr_dataset_close(ds);
}

/* Without order there is none to compare: each sample once. */
static void unordered_batches_are_complete(void **state)
{
    (void)state;
    struct set s = {.nap_us = 20};
    struct mr_dataset *ds = open_set(&s);
    struct mr_loader_opts o;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    bool seen[N] = {false};
    uint32_t n = 500;
    mr_loader_opts_init(&o);
    o.in_order = 0;
    o.batch_size = 7;
    o.max_workers = 6;
    must(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld));
    for (int k = 0; mr_loader_next(ld, NULL, &b) > 0; k++) {
        for (uint64_t i = 0; i < b.n; i++) {
            assert_false(seen[b.indices[i]]);
            seen[b.indices[i]] = true;
        }
        set_knobs(ld, 1 + draw(&n, 6), 0);
        must(mr_loader_release(ld, &b, NULL));
    }
    for (int i = 0; i < N; i++)
        assert_true(seen[i]);
    struct mr_loader_knobs k = {.size = sizeof k, .prefetch = 1};
    assert_int_equal(mr_loader_set(ld, &k), MR_EUNSUPPORTED);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void take(struct mr_loader *ld, int n)
{
    struct mr_batch b = {.size = sizeof b};
    for (int i = 0; i < n; i++) {
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        must(mr_loader_release(ld, &b, NULL));
    }
}

/* Never more threads in get() than are set, once those that were there have left. */
static void workers_are_not_exceeded(void **state)
{
    (void)state;
    struct set s = {.nap_us = 300};
    struct mr_dataset *ds = open_set(&s);
    struct mr_loader_opts o;
    struct mr_loader *ld;
    mr_loader_opts_init(&o);
    o.epochs = 0;
    o.batch_size = 8;
    o.workers = 2;
    o.max_workers = 8;
    must(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld));
    take(ld, 10);
    assert_in_range(atomic_load(&s.most), 1, 2);
    set_knobs(ld, 8, 0);
    for (int i = 0; i < 200 && atomic_load(&s.most) < 3; i++)
        take(ld, 1);
    assert_in_range(atomic_load(&s.most), 3, 8);
    set_knobs(ld, 1, 0);
    take(ld, 100); /* more than were claimed by then */
    atomic_store(&s.most, 0);
    take(ld, 20);
    assert_int_equal(atomic_load(&s.most), 1);
    struct mr_loader_stats st = {.size = sizeof st};
    must(mr_loader_stats(ld, &st));
    assert_int_equal(st.workers, 1);
    set_knobs(ld, 5, 0);
    mr_loader_close(ld); /* while some sleep and some work */
    mr_dataset_close(ds);
}

/* Batch t + prefetch is not begun before batch t was handed out. */
static void batches_ahead_are_not_exceeded(void **state)
{
    (void)state;
    struct set s = {0};
    struct mr_dataset *ds = open_set(&s);
    struct mr_loader_opts o;
    struct mr_loader *ld;
    uint32_t n = 900;
    mr_loader_opts_init(&o);
    o.epochs = 1;
    o.batch_size = 4;
    o.workers = 3;
    o.prefetch = 2;
    o.max_prefetch = 12;
    must(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld));
    uint64_t end = 2, prefetch = 2;
    for (uint64_t taken = 1; taken < N / 4; taken++) {
        take(ld, 1);
        end = MR_MAX(end, taken + prefetch); /* a batch that was open before stays so */
        if (taken % 8 == 0) {
            prefetch = 1 + draw(&n, 12);
            set_knobs(ld, 0, (uint32_t)prefetch);
        }
        end = MR_MAX(end, taken + prefetch);
        if (taken % 3 == 0)
            usleep(500);
        assert_true(atomic_load(&s.furthest) / 4 < end);
    }
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static uint64_t slots_bytes(struct mr_loader *ld)
{
    struct mr_loader_stats st = {.size = sizeof st};
    must(mr_loader_stats(ld, &st));
    return st.pageable_bytes + st.pinned_bytes + st.device_bytes;
}

/* A loader that may prepare more batches takes no memory for them until it does. */
static void slots_are_made_when_needed(void **state)
{
    (void)state;
    struct set s = {0};
    struct mr_dataset *ds = open_set(&s);
    struct mr_device *sim;
    struct mr_loader_opts o;
    struct mr_loader *few, *ld;
    must(mr_device_open("sim:latency=1us", &sim));
    mr_loader_opts_init(&o);
    o.epochs = 0;
    o.batch_size = 4;
    o.workers = 2;
    o.prefetch = 3; /* as many slots as 2 ahead, and one that the program has */
    must(mr_loader_open(ds, NULL, NULL, sim, &o, &few));
    uint64_t want = slots_bytes(few);
    mr_loader_close(few);
    o.prefetch = 2;
    o.max_prefetch = 12;
    must(mr_loader_open(ds, NULL, NULL, sim, &o, &ld));
    assert_int_equal(slots_bytes(ld), want);
    take(ld, 50);
    assert_int_equal(slots_bytes(ld), want);
    set_knobs(ld, 0, 12);
    assert_true(slots_bytes(ld) > want);
    take(ld, 50);
    uint64_t most = slots_bytes(ld);
    set_knobs(ld, 0, 1);
    take(ld, 50);
    set_knobs(ld, 0, 12);
    take(ld, 50);
    assert_int_equal(slots_bytes(ld), most); /* they are used again */
    mr_loader_close(ld);
    mr_device_close(sim);
    mr_dataset_close(ds);
}

static void wrong_knobs_change_nothing(void **state)
{
    (void)state;
    struct set s = {0};
    struct mr_dataset *ds = open_set(&s);
    struct mr_loader_opts o;
    struct mr_loader *ld;
    mr_loader_opts_init(&o);
    o.workers = 2;
    o.prefetch = 3;
    must(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld));
    struct mr_loader_knobs k = {.size = sizeof k, .workers = 1, .prefetch = 4};
    assert_int_equal(mr_loader_set(ld, &k), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "prefetch 4: expected 1..3"));
    k = (struct mr_loader_knobs){.size = sizeof k, .workers = 3, .prefetch = 1};
    assert_int_equal(mr_loader_set(ld, &k), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "3 workers: expected 1..2"));
    k.size = 3;
    assert_int_equal(mr_loader_set(ld, &k), MR_EMISUSE);
    assert_int_equal(mr_loader_set(ld, NULL), MR_EMISUSE);
    assert_int_equal(mr_loader_set(NULL, &k), MR_EMISUSE);
    struct mr_loader_stats st = {.size = sizeof st};
    must(mr_loader_stats(ld, &st));
    assert_true(st.workers == 2 && st.prefetch == 3);
    struct mr_loader_tuning t = {.size = sizeof t};
    assert_int_equal(mr_loader_tuning(ld, &t), MR_EMISUSE);
    mr_loader_close(ld);
    o.max_workers = 1;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld), MR_EOPTION);
    o.max_workers = 0;
    o.max_prefetch = 2;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld), MR_EOPTION);
    o.max_prefetch = 0;
    o.tune = 1;
    o.in_order = 0;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld), MR_EOPTION);
    mr_dataset_close(ds);
}

/* Runs until tuning has ended. Each batch takes the consumer use_us. */
static struct mr_loader_tuning tune(struct set *s, struct mr_loader_opts *o, uint32_t use_us)
{
    struct mr_dataset *ds = open_set(s);
    struct mr_loader_tuning t = {.size = sizeof t};
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    o->epochs = 0;
    o->tune = 1;
    must(mr_loader_open(ds, NULL, NULL, NULL, o, &ld));
    for (;;) {
        must(mr_loader_tuning(ld, &t));
        if (t.done)
            break;
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(((const uint32_t *)b.field[0].data)[16 * i], b.indices[i] * 31);
        if (use_us)
            usleep(use_us);
        must(mr_loader_release(ld, &b, NULL));
    }
    struct mr_loader_stats st = {.size = sizeof st};
    must(mr_loader_stats(ld, &st));
    assert_true(st.workers == t.workers && st.prefetch == t.prefetch);
    const char *first = strstr(t.reason, " x the "); /* the text and the struct have one rate */
    assert_true(!first || fabs(strtod(first + 7, NULL) - t.first_rate) <= 0.51);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return t;
}

/* Samples that sleep for 2 ms: twice the threads are twice the rate, up to the most. Where other
 * programs take the processors, that shows in one of several runs. */
static void waits_need_more_workers(void **state)
{
    (void)state;
    struct set s = {.nap_us = 2000};
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.batch_size = 16;
    o.max_workers = 16;
    bool more = false;
    for (int run = 0; run < 10 && !more; run++) {
        struct mr_loader_tuning t = tune(&s, &o, 0);
        assert_true(t.workers <= 16);
        assert_non_null(strstr(t.reason, "workers"));
        more = t.workers >= MR_MIN(4, 2 * t.first_workers) &&
               (t.first_workers >= 8 || t.rate > 1.5 * t.first_rate);
    }
    assert_true(more);
}

/* A consumer that takes 3 ms for a batch that takes microseconds: fewer workers, never more. What
 * was given stays. */
static void slow_consumers_need_few(void **state)
{
    (void)state;
    struct set s = {0};
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.batch_size = 4;
    o.prefetch = 3;
    struct mr_loader_tuning t = tune(&s, &o, 3000);
    assert_true(t.workers <= t.first_workers && t.prefetch == 3);
    o.workers = 2;
    t = tune(&s, &o, 3000);
    assert_true(t.workers == 2 && t.prefetch == 3);
}

/* The first call finds all ready: the batch of the last sample is so a moment after it. */
static void wait_until_full(struct set *s, uint64_t samples)
{
    while (atomic_load(&s->made) < samples)
        usleep(100);
    usleep(50000);
}

/* How many batches are ahead at the beginning and at the end of a rank's run. */
static void ahead_of_rank(uint32_t world, uint32_t prefetch, uint64_t max_memory, uint32_t late_us,
                          uint32_t out[2])
{
    struct set s = {.late = 300, .late_us = late_us};
    struct mr_dataset *ds = open_set(&s);
    struct mr_loader_opts opts;
    struct mr_loader_stats stats = {.size = sizeof stats};
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader *ld;
    int rc;
    mr_loader_opts_init(&opts);
    opts.world = world;
    opts.batch_size = 2;
    opts.workers = 2;
    opts.prefetch = prefetch;
    opts.max_memory = max_memory;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    must(mr_loader_stats(ld, &stats));
    out[0] = stats.prefetch;
    wait_until_full(&s, MR_MIN(out[0] * opts.batch_size, N / world));
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        atomic_fetch_add(&s.taken, 1);
        must(mr_loader_release(ld, &b, NULL));
    }
    assert_int_equal(rc, 0);
    must(mr_loader_stats(ld, &stats));
    out[1] = stats.prefetch;
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

/* A batch that is late though all were ready: ranks prepare more ahead from then on; not one rank
 * alone, nor if the option says how many. */
static void ranks_want_more_when_one_is_late(void **state)
{
    (void)state;
    uint32_t n[2];
    ahead_of_rank(2, 0, 0, 600000, n);
    assert_true(n[0] >= 4 && n[1] > n[0] && n[1] <= 2 * n[0]);
    ahead_of_rank(1, 0, 0, 600000, n);
    assert_int_equal(n[1], n[0]);
    ahead_of_rank(2, 8, 0, 600000, n);
    assert_true(n[0] == 8 && n[1] == 8);
    ahead_of_rank(2, 0, 24000, 600000, n); /* spare slots give way before other memory does */
    assert_true(n[1] == n[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_stay_the_same),
        cmocka_unit_test(unordered_batches_are_complete),
        cmocka_unit_test(workers_are_not_exceeded),
        cmocka_unit_test(batches_ahead_are_not_exceeded),
        cmocka_unit_test(slots_are_made_when_needed),
        cmocka_unit_test(wrong_knobs_change_nothing),
        cmocka_unit_test(waits_need_more_workers),
        cmocka_unit_test(slow_consumers_need_few),
        cmocka_unit_test(ranks_want_more_when_one_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
