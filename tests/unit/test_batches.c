/* Batch samplers: the loader gives the batches that they choose, each once, whatever the number of
 * workers and ranks, and after a resume. */
#include "run_loader.h"

#include <errno.h>
#include <millrace/callback.h>
#include <stdlib.h>
#include <unistd.h>

#define N       97
#define MAX     11
#define EPOCHS  3
#define BATCHES 40 /* of an epoch, at most */

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return h ^ h >> 32;
}

/* What the callbacks get wrong, and from which epoch on. */
struct wrong {
    uint64_t epoch;
    uint64_t n_batches;
    int returned;
    uint64_t index;
    uint32_t row;
};

struct order {
    uint64_t seed;
    const struct wrong *wrong;
};

static uint64_t n_batches(void *user, uint64_t epoch)
{
    const struct order *o = user;
    if (o->wrong && o->wrong->n_batches != 1 && epoch >= o->wrong->epoch)
        return o->wrong->n_batches;
    return 9 + mix(o->seed, epoch, 1) % (BATCHES - 9);
}

static int batch(void *user, uint64_t epoch, uint64_t b, uint64_t max, struct mr_batch_item *items)
{
    const struct order *o = user;
    int n = (int)(1 + mix(o->seed, epoch, b + 10) % max);
    assert_int_equal(max, MAX);
    for (int i = 0; i < n; i++)
        items[i].index = mix(o->seed ^ 77, epoch * BATCHES + b, (uint64_t)i) % N;
    if (o->wrong && epoch >= o->wrong->epoch && b >= 3) {
        items[n - 1].index += o->wrong->index;
        items[n - 1].row = o->wrong->row;
        return o->wrong->returned != 1 ? o->wrong->returned : n;
    }
    return n;
}

static struct mr_sampler *sampler_of(struct order *o)
{
    struct mr_sampler_opts so;
    struct mr_sampler *s;
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_BATCHES;
    so.n_batches = n_batches;
    so.batch = batch;
    so.max_batch = MAX;
    so.user = o;
    so.name = "mine";
    must(mr_sampler_create(&so, N, &s));
    return s;
}

/* Sample i is the number i, after a time that differs. user not NULL: every fifth is bad. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)dim;
    if (user && index % 5 == 1)
        return mr_error_set(MR_EFORMAT, "bad");
    if (index % 13 == 0)
        usleep(200);
    memcpy(row[0], &index, sizeof index);
    return 0;
}

static struct mr_dataset *dataset_of(void *user)
{
    struct mr_callback_opts co;
    struct mr_dataset *ds;
    mr_callback_opts_init(&co);
    co.name = "numbers";
    co.n = N;
    co.n_fields = 1;
    co.field[0] = (struct mr_spec){.name = "number", .dtype = MR_I64, .rank = 0};
    co.get = get;
    co.user = user;
    must(mr_dataset_open_callback(&co, &ds));
    return ds;
}

static struct mr_dataset *dataset(void)
{
    return dataset_of(NULL);
}

struct config {
    struct order order;
    uint32_t workers, world, prefetch;
    enum mr_remainder remainder;
    struct mr_device *device; /* NULL: "cpu" */
};

/* Worker 1 cannot start. */
static int enter(void *user, uint32_t worker, void **state)
{
    (void)user;
    (void)state;
    if (worker != 1)
        return 0;
    usleep(2000);
    return mr_error_set(-EIO, "no connection");
}

static int get_varying(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    dim[0][0] = 1 + index % 9;
    memset(row[0], (int)index, dim[0][0]);
    usleep(100);
    return 0;
}

static struct mr_loader *open_loader(const struct config *c, struct mr_dataset *ds,
                                     struct mr_sampler *s, uint32_t rank, const char *state)
{
    struct mr_loader_opts lo;
    struct mr_loader *ld;
    mr_loader_opts_init(&lo);
    lo.epochs = EPOCHS;
    lo.workers = c->workers;
    lo.prefetch = c->prefetch;
    lo.rank = rank;
    lo.world = c->world;
    lo.remainder = c->remainder;
    lo.state = state;
    must(mr_loader_open(ds, s, NULL, c->device, &lo, &ld));
    return ld;
}

typedef unsigned char seen_t[EPOCHS][BATCHES];

/* The batch is what the callback says; its number in the epoch is marked. */
static void check_batch(struct config *c, const struct mr_batch *b, seen_t seen)
{
    struct mr_batch_item items[MAX] = {{0}};
    uint64_t n = n_batches(&c->order, b->epoch), number = b->positions[0] / MAX;
    assert_true(number < n || c->remainder == MR_REMAINDER_PAD);
    assert_int_equal(b->n, batch(&c->order, b->epoch, number % n, MAX, items));
    const int64_t *value = b->field[0].host;
    for (uint64_t i = 0; i < b->n; i++) {
        assert_int_equal(b->indices[i], items[i].index);
        assert_int_equal(value[i], items[i].index);
        assert_int_equal(b->positions[i], number * MAX + i);
    }
    seen[b->epoch][number % n]++;
}

/* Takes at most `most` batches; writes the state behind them. Returns how many there were. */
static uint64_t take(struct config *c, uint32_t rank, const char *from, uint64_t most, seen_t seen,
                     char state[1024])
{
    struct mr_dataset *ds = dataset();
    struct mr_sampler *s = sampler_of(&c->order);
    struct mr_loader *ld = open_loader(c, ds, s, rank, from);
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc = 1;
    for (; n < most && (rc = mr_loader_next(ld, NULL, &b)) > 0; n++) {
        check_batch(c, &b, seen);
        must(mr_loader_release(ld, &b, NULL));
    }
    must(rc);
    if (rc == 0)
        assert_int_equal(mr_loader_next(ld, NULL, &b), 0);
    if (state)
        must(mr_loader_state(ld, state, 1024));
    mr_loader_close(ld);
    mr_sampler_destroy(s);
    mr_dataset_close(ds);
    return n;
}

static struct config random_config(uint64_t round)
{
    return (struct config){.order = {.seed = round},
                           .workers = 1 + (uint32_t)mix(round, 0, 1) % 4,
                           .prefetch = 1 + (uint32_t)mix(round, 0, 2) % 5,
                           .world = 1 + (uint32_t)mix(round, 0, 3) % 3,
                           .remainder = (enum mr_remainder)(mix(round, 0, 4) % 3)};
}

/* Ranks together gave every batch once; DROP leaves out the last few of an epoch, PAD repeats
 * some. */
static void check_seen(const struct config *c, seen_t seen)
{
    for (uint64_t e = 0; e < EPOCHS; e++) {
        struct order o = c->order;
        uint64_t n = n_batches(&o, e), rest = n % c->world, repeated = 0;
        for (uint64_t b = 0; b < n; b++) {
            bool dropped = c->remainder == MR_REMAINDER_DROP && b >= n - rest;
            if (dropped ? seen[e][b] != 0 : seen[e][b] < 1)
                fail_msg("epoch %d, batch %d of %d: seen %d times", (int)e, (int)b, (int)n,
                         seen[e][b]);
            repeated += seen[e][b] - !dropped;
        }
        assert_int_equal(repeated, c->remainder == MR_REMAINDER_PAD && rest ? c->world - rest : 0);
    }
}

static void every_batch_once(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 25; round++) {
        struct config c = random_config(round);
        seen_t seen = {{0}};
        for (uint32_t r = 0; r < c.world; r++)
            take(&c, r, NULL, UINT64_MAX, seen, NULL);
        check_seen(&c, seen);
    }
}

static void every_batch_once_on_a_device(void **state)
{
    (void)state;
    struct mr_device *dev;
    must(mr_device_open("sim:latency=1us", &dev));
    for (uint64_t round = 0; round < 8; round++) {
        struct config c = random_config(round + 60);
        seen_t seen = {{0}};
        c.device = dev;
        for (uint32_t r = 0; r < c.world; r++)
            take(&c, r, NULL, UINT64_MAX, seen, NULL);
        check_seen(&c, seen);
    }
    mr_device_close(dev);
}

/* Batches without their bad samples; one of bad samples alone is left out. */
static void bad_samples_are_skipped(void **state)
{
    (void)state;
    struct config c = {.order = {.seed = 21}, .workers = 3, .world = 1};
    struct mr_dataset *ds = dataset_of(&c);
    struct mr_sampler *s = sampler_of(&c.order);
    struct mr_loader_opts lo;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&lo);
    lo.workers = 3;
    lo.bad = MR_BAD_SKIP;
    must(mr_loader_open(ds, s, NULL, NULL, &lo, &ld));
    for (uint64_t k = 0, n = n_batches(&c.order, 0); k < n; k++) {
        struct mr_batch_item items[MAX] = {{0}};
        int got = batch(&c.order, 0, k, MAX, items), kept = 0;
        for (int i = 0; i < got; i++)
            if (items[i].index % 5 != 1)
                items[kept++].index = items[i].index;
        if (kept == 0)
            continue;
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        assert_true(b.index == k && b.n == (uint64_t)kept && b.last == (k + 1 == n));
        for (int i = 0; i < kept; i++)
            assert_int_equal(b.indices[i], items[i].index);
        must(mr_loader_release(ld, &b, NULL));
    }
    assert_int_equal(mr_loader_next(ld, NULL, &b), 0);
    mr_loader_close(ld);
    mr_sampler_destroy(s);
    mr_dataset_close(ds);
}

/* All ranks stop after as many batches, and another number of ranks goes on. */
static void a_resume_goes_on(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 25; round++) {
        struct config c = random_config(round + 100);
        c.remainder = MR_REMAINDER_DROP;
        c.world = 1 + (uint32_t)round % 2;
        seen_t seen = {{0}};
        char text[2][1024], after[1024];
        uint64_t most = mix(round, 5, 5) % 30;
        for (uint32_t r = 0; r < c.world; r++)
            take(&c, r, NULL, most, seen, text[r]);
        if (c.world == 2)
            assert_string_equal(text[0], text[1]);
        struct config later = c;
        later.workers = 1 + c.workers % 4;
        later.world = round % 3 ? 1 : c.world;
        for (uint32_t r = 0; r < later.world; r++)
            take(&later, r, text[0], UINT64_MAX, seen, after);
        for (uint64_t e = 0; e < EPOCHS; e++)
            for (uint64_t b = 0; b < BATCHES; b++)
                assert_true(seen[e][b] <= 1);
        if (c.world == 1)
            check_seen(&c, seen);
        assert_int_equal(take(&later, 0, after, UINT64_MAX, seen, NULL), 0); /* it is over */
    }
}

static int run(const struct wrong *wrong)
{
    struct config c = {.order = {.seed = 5, .wrong = wrong}, .workers = 3, .world = 1};
    struct mr_dataset *ds = dataset();
    struct mr_sampler *s = sampler_of(&c.order);
    struct mr_loader_opts lo;
    struct mr_loader *ld = NULL;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&lo);
    lo.epochs = EPOCHS;
    lo.workers = 3;
    lo.bad = MR_BAD_SKIP;
    int rc = mr_loader_open(ds, s, NULL, NULL, &lo, &ld);
    while (rc >= 0 && (rc = mr_loader_next(ld, NULL, &b)) > 0)
        must(mr_loader_release(ld, &b, NULL));
    if (rc < 0 && ld)
        assert_int_equal(mr_loader_next(ld, NULL, &b), rc); /* again */
    mr_loader_close(ld);
    mr_sampler_destroy(s);
    mr_dataset_close(ds);
    return rc;
}

static void wrong_callbacks_end_the_run(void **state)
{
    (void)state;
    const struct {
        struct wrong wrong;
        int rc;
        const char *text;
    } all[] = {
        {{0, 0, 1, 0, 0}, MR_ECALLBACK, "n_batches returned 0"},
        {{2, 0, 1, 0, 0}, MR_ECALLBACK, "n_batches returned 0 for epoch 2"},
        {{1, 1ull << 50, 1, 0, 0}, MR_ECALLBACK, "2^40"},
        {{1, (uint64_t)-EIO, 1, 0, 0}, -EIO, "batch sampler: epoch 1: Input/output error"},
        {{0, 1, 0, 0, 0}, MR_ECALLBACK, "returned 0 for batch 3 of epoch 0"},
        {{1, 1, MAX + 1, 0, 0}, MR_ECALLBACK, "expected 1..11 samples"},
        {{1, 1, -EIO, 0, 0}, -EIO, "batch sampler: batch 3 of epoch 1: Input/output error"},
        {{2, 1, 1, N, 0}, MR_EOPTION, "expected 0..96"},
        {{2, 1, 1, UINT64_MAX - N, 0}, MR_EOPTION, "expected 0..96"},
        {{0, 1, 1, 0, MAX}, MR_EOPTION, "row 11"},
    };
    assert_int_equal(run(NULL), 0);
    for (size_t i = 0; i < MR_COUNT(all); i++) {
        int rc = run(&all[i].wrong);
        if (rc != all[i].rc || !strstr(mr_last_error(), all[i].text))
            fail_msg("%zu: %d, %s", i, rc, mr_last_error());
    }
}

static void count_close(void *user)
{
    ++*(uint64_t *)user;
}

static void options_are_checked(void **state)
{
    (void)state;
    struct order o = {.seed = 1};
    struct mr_sampler *s = sampler_of(&o), *none = NULL;
    struct mr_batch_item items[MAX];
    struct mr_sampler_opts so;
    struct mr_loader_opts lo;
    struct mr_loader *ld;
    struct mr_dataset *ds = dataset();
    uint64_t n;
    assert_string_equal(mr_sampler_text(s), "batches(mine,max=11,seed=0)");
    assert_int_equal(mr_sampler_map(s, 0, 0, 1, &n), MR_EMISUSE);
    must(mr_sampler_batches(s, 0, &n));
    assert_int_equal(n, n_batches(&o, 0));
    assert_int_equal(mr_sampler_batch(s, 0, n, items, MAX), MR_EMISUSE);
    assert_int_equal(mr_sampler_batch(s, 0, 0, items, MAX - 1), MR_EMISUSE);
    assert_true(mr_sampler_batch(s, 0, 0, items, MAX) > 0);
    mr_loader_opts_init(&lo);
    lo.bad = MR_BAD_REPLACE;
    assert_int_equal(mr_loader_open(ds, s, NULL, NULL, &lo, &ld), MR_EOPTION);
    lo.bad = MR_BAD_FAIL;
    lo.world = BATCHES;
    assert_int_equal(mr_loader_open(ds, s, NULL, NULL, &lo, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "pad the remainder"));
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_BATCHES;
    assert_int_equal(mr_sampler_create(&so, N, &none), MR_EOPTION);
    so.n_batches = n_batches;
    assert_int_equal(mr_sampler_create(&so, N, &none), MR_EOPTION);
    so.batch = batch;
    assert_int_equal(mr_sampler_create(&so, N, &none), MR_EOPTION);
    so.max_batch = (1u << 24) + 1;
    so.close = count_close;
    so.user = &n;
    n = 0;
    assert_int_equal(mr_sampler_create(&so, N, &none), MR_EOPTION);
    mr_sampler_destroy(s);
    assert_int_equal(n, 0); /* close is for samplers that were made */
    so.max_batch = MAX;
    must(mr_sampler_create(&so, N, &none));
    mr_sampler_destroy(none);
    assert_int_equal(n, 1);
    mr_dataset_close(ds);
}

/* Rows of one worker's runs are missing: those of the others are not collated around them. */
static void a_worker_without_its_state_ends_the_run(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 5; round++) {
        struct order order = {.seed = round};
        struct mr_callback_opts co;
        struct mr_loader_opts lo;
        struct mr_dataset *ds;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        struct mr_sampler *s = sampler_of(&order);
        int rc;
        mr_callback_opts_init(&co);
        co.name = "varying";
        co.n = N;
        co.n_fields = 1;
        co.field[0] =
            (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {9}, .var_dims = 1};
        co.get = get_varying;
        co.init = enter;
        must(mr_dataset_open_callback(&co, &ds));
        mr_loader_opts_init(&lo);
        lo.workers = 3;
        lo.epochs = 0;
        lo.collate = MR_COLLATE_PAD;
        must(mr_loader_open(ds, s, NULL, NULL, &lo, &ld));
        while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
            must(mr_loader_release(ld, &b, NULL));
        assert_int_equal(rc, -EIO);
        assert_non_null(strstr(mr_last_error(), "no connection"));
        mr_loader_close(ld);
        mr_sampler_destroy(s);
        mr_dataset_close(ds);
    }
}

/* A state of other batches is refused; forced, a place that is no batch's start is refused. */
static void states_know_max_batch(void **state)
{
    (void)state;
    struct config c = {.order = {.seed = 3}, .workers = 2, .world = 1, .prefetch = 2};
    struct mr_sampler_opts so;
    struct mr_sampler *other;
    struct mr_loader_opts lo;
    struct mr_loader *ld = NULL;
    struct mr_dataset *ds = dataset();
    seen_t seen = {{0}};
    char text[1024];
    take(&c, 0, NULL, 4, seen, text);
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_BATCHES;
    so.n_batches = n_batches;
    so.batch = batch;
    so.max_batch = MAX + 2;
    so.user = &c.order;
    so.name = "mine";
    must(mr_sampler_create(&so, N, &other));
    mr_loader_opts_init(&lo);
    lo.state = text;
    assert_int_equal(mr_loader_open(ds, other, NULL, NULL, &lo, &ld), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "force-state"));
    lo.force_state = 1;
    assert_int_equal(mr_loader_open(ds, other, NULL, NULL, &lo, &ld), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "not the start of a batch"));
    mr_sampler_destroy(other);
    mr_dataset_close(ds);
}

/* Samples that are read: read-ahead runs before slots open, and neighbours are read together. */
static void reads_are_of_the_chosen_samples(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-batches-XXXXXX", uri[100];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t row[512] = {i};
        row[511] = ~i;
        assert_int_equal(write(fd, row, sizeof row), sizeof row);
    }
    close(fd);
    snprintf(uri, sizeof uri, "raw:%s,shape=512,dtype=i64", path);
    for (uint64_t round = 0; round < 6; round++) {
        struct config c = random_config(round + 40);
        struct mr_dataset *ds;
        struct mr_sampler *s = sampler_of(&c.order);
        struct mr_batch b = {.size = sizeof b};
        struct mr_batch_item items[MAX] = {{0}};
        uint64_t n = 0;
        int rc;
        c.world = 1;
        must(mr_dataset_open(uri, &ds));
        struct mr_loader *ld = open_loader(&c, ds, s, 0, NULL);
        for (; (rc = mr_loader_next(ld, NULL, &b)) > 0; n++) {
            assert_int_equal(b.n, batch(&c.order, b.epoch, b.index, MAX, items));
            for (uint64_t i = 0; i < b.n; i++) {
                const uint64_t *row = (const uint64_t *)b.field[0].data + i * 512;
                assert_true(row[0] == items[i].index && row[511] == ~items[i].index);
            }
            must(mr_loader_release(ld, &b, NULL));
        }
        must(rc);
        for (uint64_t e = 0; e < EPOCHS; e++)
            n -= n_batches(&c.order, e);
        assert_int_equal(n, 0);
        mr_loader_close(ld);
        mr_sampler_destroy(s);
        mr_dataset_close(ds);
    }
    unlink(path);
}

/* The state in the middle of a run does not wait for the sampler, and held batches count. */
static void held_batches_are_made_again(void **state)
{
    (void)state;
    struct config c = {.order = {.seed = 8}, .workers = 2, .world = 1, .prefetch = 4};
    struct mr_dataset *ds = dataset();
    struct mr_sampler *s = sampler_of(&c.order);
    struct mr_loader *ld = open_loader(&c, ds, s, 0, NULL);
    struct mr_batch b[3] = {{.size = sizeof *b}, {.size = sizeof *b}, {.size = sizeof *b}};
    char text[1024];
    seen_t seen = {{0}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(mr_loader_next(ld, NULL, &b[i]), 1);
    check_batch(&c, &b[0], seen);
    must(mr_loader_release(ld, &b[0], NULL));
    must(mr_loader_release(ld, &b[2], NULL));
    must(mr_loader_state_released(ld, text, sizeof text));
    must(mr_loader_release(ld, &b[1], NULL));
    mr_loader_close(ld);
    mr_sampler_destroy(s);
    mr_dataset_close(ds);
    take(&c, 0, text, UINT64_MAX, seen, NULL);
    check_seen(&c, seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_batch_once),
        cmocka_unit_test(every_batch_once_on_a_device),
        cmocka_unit_test(bad_samples_are_skipped),
        cmocka_unit_test(a_resume_goes_on),
        cmocka_unit_test(wrong_callbacks_end_the_run),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_worker_without_its_state_ends_the_run),
        cmocka_unit_test(states_know_max_batch),
        cmocka_unit_test(reads_are_of_the_chosen_samples),
        cmocka_unit_test(held_batches_are_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
