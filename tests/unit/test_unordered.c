/* in_order = 0: each batch once and as in order, whatever is slow, held, bad or interrupted. */
#include "run_loader.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#define HANGS_S 120 /* then it hangs: SIGALRM ends the process */
#define STATE   8192
#define MOST    40 /* batches that are held */

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(31, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

static int by_place(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

static void sort_rows(struct run *run)
{
    if (run->n > 0)
        qsort(run->row, run->n, sizeof *run->row, by_place);
}

/* ---- random runs ---- */

/* Some samples take long, some are bad. */
struct rule {
    uint32_t slow_of, bad_of; /* one in so many; 0: none */
    uint32_t key;
};

static uint32_t keyed(const struct rule *rule, uint64_t index, uint32_t below)
{
    uint32_t out[4];
    mr_draw4(rule->key, MR_DRAW_VALUES, index, 0, 0, out);
    return out[0] % below;
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct rule *rule = user;
    if (rule->slow_of && keyed(rule, index, rule->slow_of) == 0)
        usleep(1000);
    if (rule->bad_of && keyed(rule, index + 1000000, rule->bad_of) == 0)
        return mr_error_set(MR_EFORMAT, "bad on purpose");
    uint16_t *x = row[0];
    dim[0][0] = 1 + index * 7 % 13;
    for (uint64_t i = 0; i < dim[0][0]; i++)
        x[i] = (uint16_t)(index * 31 + i);
    *(uint64_t *)row[1] = index;
    return 0;
}

static struct mr_dataset *open_sequences(struct rule *rule, uint64_t n)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "sequences";
    o.n = n;
    o.n_fields = 2;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_U16, .rank = 1, .var_dims = 1, .dim = {13}};
    o.field[1] = (struct mr_spec){.name = "y", .dtype = MR_U64};
    o.get = get;
    o.user = rule;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

struct setting {
    struct rule rule;
    struct mr_dataset *ds;
    struct mr_sampler *sampler;
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_loader_opts opts;
};

/* What decides on the batches. */
static void set_up(struct setting *s)
{
    *s = (struct setting){.rule = {.slow_of = draw(3) ? 20 + draw(100) : 0,
                                   .bad_of = draw(2) ? 5 + draw(40) : 0,
                                   .key = counter}};
    bool reads = draw(4) == 0;
    uint64_t n = 50 + draw(350);
    char uri[100];
    snprintf(uri, sizeof uri, "synthetic:n=%u,shape=5,dtype=u8,delay=50us", (unsigned)n);
    if (reads)
        must(mr_dataset_open(uri, &s->ds));
    else
        s->ds = open_sequences(&s->rule, n);
    must(mr_sampler_open(draw(2) ? "random" : "sequential", n, 5, &s->sampler));
    must(mr_device_open(draw(2) ? "cpu" : "sim:latency=1us", &s->dev));
    must(mr_stream_create(s->dev, "consumer", &s->stream));
    mr_loader_opts_init(&s->opts);
    s->opts.batch_size = 1 + draw(9);
    s->opts.epochs = 1 + draw(3);
    s->opts.collate = reads ? MR_COLLATE_STACK : MR_COLLATE_PAD + (int)draw(3);
    s->opts.bad = draw(2) ? MR_BAD_SKIP : MR_BAD_REPLACE;
    s->opts.world = 1 + draw(2);
    s->opts.rank = draw(s->opts.world);
    s->opts.drop_last = (int)draw(2);
    s->opts.remainder = (enum mr_remainder)draw(s->opts.drop_last ? 2 : 3);
}

/* What may change from run to run. */
static void vary(struct setting *s)
{
    s->opts.workers = 1 + draw(5);
    s->opts.prefetch = 1 + draw(8);
    s->opts.streams = 1 + draw(3);
}

static void tear_down(struct setting *s)
{
    mr_stream_destroy(s->stream);
    mr_device_close(s->dev);
    mr_sampler_destroy(s->sampler);
    mr_dataset_close(s->ds);
}

/* Epochs come one after the other, and `last` is on the last of each. */
struct epochs {
    uint64_t now, left; /* left: batches of this epoch; UINT64_MAX: not checked */
    bool begun, over;
};

static void check_epoch(struct epochs *e, const struct mr_batch *b)
{
    if (e->begun && e->over)
        assert_true(b->epoch > e->now);
    if (e->begun && !e->over)
        assert_true(b->epoch == e->now);
    *e = (struct epochs){.now = b->epoch, .begun = true, .over = b->last};
}

/* Takes at most n_most batches, holds up to `hold` of them in a random way, and adds what is
 * released to out; what is still held then is not. Writes the state. Returns whether the run is
 * over. */
static bool play(struct setting *s, uint64_t n_most, uint32_t hold, bool released, struct run *out,
                 char state[STATE])
{
    struct mr_loader *ld;
    static struct mr_batch held[MOST + 1];
    uint32_t n_held = 0;
    int rc = 1;
    struct epochs epochs = {0};
    must(mr_loader_open(s->ds, s->sampler, NULL, s->dev, &s->opts, &ld));
    for (uint64_t i = 0; i < n_most; i++) {
        struct mr_stream *stream = draw(2) ? s->stream : NULL;
        held[n_held].size = sizeof *held;
        rc = mr_loader_next(ld, stream, &held[n_held]);
        must(rc);
        if (rc == 0)
            break;
        if (s->rule.bad_of == 0) /* a batch without a good sample is not handed out */
            check_epoch(&epochs, &held[n_held]);
        n_held++;
        while (n_held > hold || (n_held > 0 && draw(3) == 0)) {
            uint32_t k = draw(n_held);
            run_take(out, s->dev, s->stream, &held[k]);
            must(mr_loader_release(ld, &held[k], s->stream));
            held[k] = held[--n_held];
        }
    }
    for (uint32_t k = 0; k < n_held && (!released || rc == 0); k++)
        run_take(out, s->dev, s->stream, &held[k]);
    int n =
        released ? mr_loader_state_released(ld, state, STATE) : mr_loader_state(ld, state, STATE);
    must(n);
    assert_int_equal(strlen(state), n);
    mr_loader_close(ld);
    return rc == 0;
}

static void check_same(struct run *plain, struct run *out)
{
    sort_rows(out);
    sort_rows(plain);
    assert_same_rows(plain, out);
    for (uint64_t i = 0; i < plain->n; i++)
        assert_int_equal(plain->row[i].batch, out->row[i].batch);
}

static void each_batch_once_and_as_in_order(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 25; round++) {
        struct setting s;
        struct run plain = {0}, out = {0};
        char text[STATE];
        set_up(&s);
        vary(&s);
        assert_true(play(&s, UINT64_MAX, 0, false, &plain, text));
        vary(&s);
        s.opts.in_order = 0;
        assert_true(play(&s, UINT64_MAX, draw(3) ? draw(6) : draw(MOST), false, &out, text));
        assert_null(strstr(text, "unfinished"));
        check_same(&plain, &out);
        run_free(&plain);
        run_free(&out);
        tear_down(&s);
    }
}

/* Interrupted and resumed at random, in order or not; the last leg goes to the end. */
static void interrupted_runs_lose_nothing(void **state)
{
    (void)state;
    uint32_t n_lists = 0;
    for (uint32_t round = 0; round < 25; round++) {
        struct setting s;
        struct run plain = {0}, out = {0};
        char text[STATE], from[STATE];
        set_up(&s);
        vary(&s);
        assert_true(play(&s, UINT64_MAX, 0, false, &plain, text));
        s.opts.state = NULL;
        for (bool over = false; !over;) {
            bool released = draw(2);
            vary(&s);
            /* In order, batches that were released behind one that is held are made again. */
            s.opts.in_order = released ? 0 : (int)draw(2);
            over = play(&s, draw(4) ? draw(40) : UINT64_MAX, draw(12), released, &out, text);
            n_lists += strstr(text, "unfinished") != NULL;
            memcpy(from, text, STATE);
            s.opts.state = from;
        }
        check_same(&plain, &out);
        run_free(&plain);
        run_free(&out);
        tear_down(&s);
    }
    assert_true(n_lists > 8); /* else this tests nothing */
}

/* ---- one sample stops ---- */

struct block {
    sem_t go;
    _Atomic uint64_t at; /* this sample waits, once */
};

static int get_blocking(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    struct block *block = user;
    (void)dim;
    if (atomic_compare_exchange_strong(&block->at, &(uint64_t){index}, UINT64_MAX))
        sem_wait(&block->go);
    *(uint64_t *)row[0] = index;
    return 0;
}

static struct mr_dataset *open_blocking(struct block *block, uint64_t n)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    sem_init(&block->go, 0, 0);
    mr_callback_opts_init(&o);
    o.name = "blocks";
    o.n = n;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get_blocking;
    o.user = block;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

/* All other batches of the epoch come, as far as there are places; then the text names the sample.
 * The next epoch's wait for it. */
static void one_sample_stops_its_batch_only(void **state)
{
    (void)state;
    for (uint64_t n_batches = 40; n_batches <= 400; n_batches += 360) {
        struct block block = {.at = 7};
        struct mr_loader_opts opts;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        struct epochs epochs = {0};
        bool got[400] = {false};
        uint64_t before = MR_MIN(n_batches - 1, 256), n = 0;
        struct mr_dataset *ds = open_blocking(&block, 4 * n_batches);
        mr_loader_opts_init(&opts);
        opts.batch_size = 4;
        opts.workers = 3;
        opts.prefetch = 3;
        opts.epochs = 2;
        opts.in_order = 0;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        for (; n < before; n++) {
            assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
            assert_int_equal(b.epoch, 0);
            assert_int_not_equal(b.index, 1);
            assert_false(b.last);
            got[b.index] = true;
            must(mr_loader_release(ld, &b, NULL));
        }
        assert_int_equal(mr_loader_next_for(ld, NULL, 0, &b), -ETIMEDOUT);
        assert_int_equal(mr_loader_next_for(ld, NULL, 20000000, &b), -ETIMEDOUT);
        assert_non_null(strstr(mr_last_error(), "sample 7 (epoch 0, position 7)"));
        sem_post(&block.go);
        for (; n < 2 * n_batches; n++) {
            assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
            check_epoch(&epochs, &b);
            assert_int_equal(b.last, (n + 1) % n_batches == 0);
            assert_false(b.epoch == 0 && got[b.index]);
            must(mr_loader_release(ld, &b, NULL));
        }
        assert_int_equal(mr_loader_next(ld, NULL, &b), 0);
        mr_loader_close(ld);
        mr_dataset_close(ds);
    }
}

/* The error says how many are held; whichever is released, the run goes on. */
static void everything_held_is_an_error_that_ends_nothing(void **state)
{
    (void)state;
    for (uint32_t prefetch = 1; prefetch < 6; prefetch++) {
        struct mr_dataset *ds;
        struct mr_loader *ld;
        struct mr_loader_opts opts;
        struct mr_loader_stats st = {.size = sizeof st};
        struct mr_batch held[MOST], b = {.size = sizeof b};
        uint32_t n = 0;
        int rc;
        must(mr_dataset_open("synthetic:n=400,shape=1000,dtype=u8", &ds));
        mr_loader_opts_init(&opts);
        opts.batch_size = 10;
        opts.prefetch = prefetch;
        opts.workers = 2;
        opts.in_order = 0;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        mr_loader_stats(ld, &st);
        mr_loader_close(ld);
        opts.max_memory = st.pageable_bytes + 60000;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        for (uint32_t k = 0; k < MOST; k++)
            held[k].size = sizeof *held;
        while ((rc = mr_loader_next(ld, NULL, &held[n])) == 1)
            n++;
        assert_int_equal(rc, MR_ELIMIT);
        assert_in_range(n, prefetch + 1, prefetch + 20);
        assert_non_null(strstr(mr_last_error(), "the program holds"));
        for (uint32_t i = n; i < 40; i++) {
            mr_loader_release(ld, &held[draw(n)], NULL); /* which may have been released before */
            uint32_t k = 0;
            while (k < n && held[k].slot)
                k++;
            if (k == n)
                break;
            assert_int_equal(mr_loader_next(ld, NULL, &held[k]), 1);
        }
        for (uint32_t k = 0; k < n; k++)
            if (held[k].slot)
                must(mr_loader_release(ld, &held[k], NULL));
        while ((rc = mr_loader_next(ld, NULL, &b)) == 1)
            must(mr_loader_release(ld, &b, NULL));
        assert_int_equal(rc, 0);
        mr_loader_stats(ld, &st);
        assert_int_equal(st.samples, 400);
        mr_loader_close(ld);
        mr_dataset_close(ds);
    }
}

/* ---- states ---- */

static const char state_of[] =
    "{\"millrace_state\": 2, \"dataset\": \"%s\", \"sampler\": \"%s\", \"chain\": \"\", \"seed\": "
    "\"0\", \"samples\": 100, \"epoch\": 1, \"position\": 40, \"next_batch\": 4, \"batch_size\": "
    "10, \"world\": 1, \"bad_samples\": 0, \"rank\": 0, \"unfinished\": %s}";

/* Cuts the value of a text member out of a state. */
static void member(const char *state, const char *name, char *out, size_t cap)
{
    char start[40];
    snprintf(start, sizeof start, "\"%s\": \"", name);
    const char *at = strstr(state, start);
    assert_non_null(at);
    at += strlen(start);
    snprintf(out, cap, "%.*s", (int)strcspn(at, "\""), at);
}

static void bad_lists_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *list, *says;
        uint64_t batch_size;
        uint32_t world, rank;
    } cases[] = {
        {"[[1, 10], [1, 30]]", NULL, 10, 1, 0},
        {"[[0, 90], [1, 30]]", NULL, 10, 1, 0},
        {"[]", NULL, 20, 2, 1},
        {"[[1, 10]]", "batch_size 10, this run has 20", 20, 1, 0},
        {"[[1, 10]]", "world 1, this run has 2", 10, 2, 0},
        {"[[1, 40]]", "not [epoch, position]", 10, 1, 0},
        {"[[2, 0]]", "not [epoch, position]", 10, 1, 0},
        {"[[0, 100]]", "not [epoch, position]", 10, 1, 0},
        {"[[1, -1]]", "not [epoch, position]", 10, 1, 0},
        {"[[1, 0.5]]", "not [epoch, position]", 10, 1, 0},
        {"[[1]]", "not [epoch, position]", 10, 1, 0},
        {"[7]", "not [epoch, position]", 10, 1, 0},
        {"[[1, 10], [1, 10]]", "overlap", 10, 1, 0},
        {"[[1, 15], [1, 10]]", "overlap", 10, 1, 0},
    };
    struct mr_dataset *ds;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    char text[STATE], fingerprint[40], sampler[200];
    must(mr_dataset_open("synthetic:n=100,shape=4,dtype=u8", &ds));
    mr_loader_opts_init(&opts);
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    must(mr_loader_state(ld, text, sizeof text));
    mr_loader_close(ld);
    member(text, "dataset", fingerprint, sizeof fingerprint);
    member(text, "sampler", sampler, sizeof sampler);
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        mr_loader_opts_init(&opts);
        opts.batch_size = cases[i].batch_size;
        opts.world = cases[i].world;
        opts.rank = cases[i].rank;
        opts.epochs = 2;
        snprintf(text, sizeof text, state_of, fingerprint, sampler, cases[i].list);
        opts.state = text;
        int rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld);
        if (!cases[i].says) {
            must(rc);
            mr_loader_close(ld);
            continue;
        }
        assert_int_equal(rc, MR_ESTATE);
        if (!strstr(mr_last_error(), cases[i].says))
            fail_msg("case %zu: %s", i, mr_last_error());
    }
    mr_dataset_close(ds);
}

int main(void)
{
    alarm(HANGS_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_batch_once_and_as_in_order),
        cmocka_unit_test(interrupted_runs_lose_nothing),
        cmocka_unit_test(one_sample_stops_its_batch_only),
        cmocka_unit_test(everything_held_is_an_error_that_ends_nothing),
        cmocka_unit_test(bad_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
