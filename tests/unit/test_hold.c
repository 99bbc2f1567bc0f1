/* Batches that are held and released in any order by any thread: bytes stay, order stays, memory is
 * bounded. */
#include "run_loader.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS 3
#define MOST    64 /* batches held at a time */

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(23, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

/* ---- random patterns ---- */

/* Sequences of 1 to 29 numbers. */
static int get_sequence(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    uint16_t *x = row[0];
    dim[0][0] = 1 + index * 7 % 29;
    for (uint64_t i = 0; i < dim[0][0]; i++)
        x[i] = (uint16_t)(index * 31 + i);
    *(uint64_t *)row[1] = index;
    return 0;
}

static struct mr_dataset *open_sequences(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "sequences";
    o.n = 611;
    o.n_fields = 2;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_U16, .rank = 1, .var_dims = 1, .dim = {29}};
    o.field[1] = (struct mr_spec){.name = "y", .dtype = MR_U64};
    o.get = get_sequence;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

static void batches_init(struct mr_batch *batch, int n)
{
    for (int i = 0; i < n; i++)
        batch[i].size = sizeof *batch;
}

/* A batch, and the hash of what it was when it was handed out. */
struct kept {
    struct mr_batch b;
    uint64_t hash;
};

struct game {
    struct mr_loader *ld;
    struct mr_device *dev;
    struct mr_stream *stream;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct kept queue[MOST]; /* for the releasing threads */
    uint32_t n;
    bool over;
    _Atomic uint32_t n_torn, n_errors;
};

static uint64_t hash_of(struct run *out, struct mr_device *dev, struct mr_stream *stream,
                        const struct mr_batch *b)
{
    struct run run = {0};
    uint64_t hash = MR_HASH_START;
    run_take(&run, dev, stream, b);
    for (uint64_t i = 0; i < run.n; i++) {
        const struct row *row = &run.row[i];
        const uint64_t numbers[] = {row->position, row->index, row->length, row->hash};
        hash = mr_hash(hash, numbers, sizeof numbers);
        if (out) {
            out->row[out->n] = *row;
            out->n++;
        }
    }
    run_free(&run);
    return hash;
}

static void give_back(struct game *g, struct mr_stream *stream, struct kept *k)
{
    atomic_fetch_add(&g->n_torn, hash_of(NULL, g->dev, stream, &k->b) != k->hash);
    atomic_fetch_add(&g->n_errors, mr_loader_release(g->ld, &k->b, stream) != 0);
}

static void *release_some(void *user)
{
    struct game *g = user;
    struct mr_stream *stream;
    must(mr_stream_create(g->dev, "releaser", &stream));
    for (;;) {
        pthread_mutex_lock(&g->lock);
        while (g->n == 0 && !g->over)
            pthread_cond_wait(&g->filled, &g->lock);
        if (g->n == 0)
            break;
        struct kept k = g->queue[--g->n]; /* the latest first */
        pthread_mutex_unlock(&g->lock);
        give_back(g, stream, &k);
    }
    pthread_mutex_unlock(&g->lock);
    mr_stream_destroy(stream);
    return NULL;
}

static void hand_over(struct game *g, const struct kept *k)
{
    pthread_mutex_lock(&g->lock);
    bool fits = g->n < MOST;
    if (fits)
        g->queue[g->n++] = *k;
    pthread_cond_signal(&g->filled);
    pthread_mutex_unlock(&g->lock);
    struct kept own = *k;
    if (!fits)
        give_back(g, g->stream, &own);
}

/* Holds up to `most` batches; each step one is taken, and some are released here or elsewhere. */
static void play(struct game *g, uint32_t most, struct run *out)
{
    static struct kept held[MOST];
    uint32_t n = 0;
    int rc;
    struct mr_batch b = {.size = sizeof b};
    while ((rc = mr_loader_next(g->ld, g->stream, &b)) > 0) {
        held[n].b = b;
        held[n++].hash = hash_of(out, g->dev, g->stream, &b);
        while (n > most || (n > 0 && draw(3) == 0)) {
            uint32_t i = draw(2) ? 0 : draw(n);
            if (draw(2))
                hand_over(g, &held[i]);
            else
                give_back(g, g->stream, &held[i]);
            held[i] = held[--n];
        }
    }
    must(rc);
    while (n > 0)
        give_back(g, g->stream, &held[--n]);
}

static void play_threads(struct game *g, uint32_t most, struct run *out)
{
    pthread_t thread[THREADS];
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->filled, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, release_some, g), 0);
    play(g, most, out);
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_broadcast(&g->filled);
    pthread_mutex_unlock(&g->lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    pthread_cond_destroy(&g->filled);
    pthread_mutex_destroy(&g->lock);
}

static void check_game(const struct run_config *c, const struct run *plain, uint32_t most)
{
    struct game g = {0};
    struct run run = {.row = calloc(plain->n, sizeof(struct row))};
    must(mr_device_open(c->device, &g.dev));
    must(mr_stream_create(g.dev, "consumer", &g.stream));
    must(mr_loader_open(c->ds, NULL, NULL, g.dev, &c->opts, &g.ld));
    play_threads(&g, most, &run);
    mr_loader_close(g.ld);
    mr_stream_destroy(g.stream);
    mr_device_close(g.dev);
    assert_same_rows(plain, &run);
    assert_int_equal(atomic_load(&g.n_torn), 0);
    assert_int_equal(atomic_load(&g.n_errors), 0);
    run_free(&run);
}

static const struct {
    const char *dataset, *device; /* dataset NULL: sequences */
    enum mr_collate collate;
    enum mr_cache_kind cache;
} kinds[] = {
    {"synthetic:n=1003,shape=3x5,dtype=u8,classes=10", "cpu", MR_COLLATE_STACK, MR_CACHE_NONE},
    {"synthetic:n=1003,shape=3x5,dtype=u8,classes=10", "sim:latency=1us", MR_COLLATE_STACK,
     MR_CACHE_NONE},
    {"synthetic:n=611,shape=9,dtype=u8", "sim:latency=1us", MR_COLLATE_STACK, MR_CACHE_DEVICE},
    {NULL, "cpu", MR_COLLATE_PAD, MR_CACHE_NONE},
    {NULL, "cpu", MR_COLLATE_FIXED, MR_CACHE_NONE},
    {NULL, "cpu", MR_COLLATE_RAGGED, MR_CACHE_NONE},
    {NULL, "sim:latency=1us", MR_COLLATE_RAGGED, MR_CACHE_NONE},
};

static void bytes_and_order_stay(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 10 * MR_COUNT(kinds); round++) {
        uint32_t k = round % MR_COUNT(kinds);
        struct run_config c = run_config(NULL);
        c.ds = NULL;
        if (kinds[k].dataset)
            must(mr_dataset_open(kinds[k].dataset, &c.ds));
        else
            c.ds = open_sequences();
        c.device = kinds[k].device;
        c.opts.collate = kinds[k].collate;
        c.opts.cache = kinds[k].cache;
        c.opts.batch_size = 1 + draw(40);
        c.opts.epochs = 1 + draw(3);
        struct run plain = run_loader(&c);
        if (plain.rc < 0)
            fail_msg("kind %u: %s", k, plain.error);
        c.opts.workers = 1 + draw(4);
        c.opts.prefetch = 1 + draw(6);
        c.opts.streams = 1 + draw(3);
        check_game(&c, &plain, draw(3) ? draw(12) : draw(MOST - 1));
        run_free(&plain);
        mr_dataset_close(c.ds);
    }
}

/* ---- memory ---- */

struct box {
    struct mr_dataset *ds;
    struct mr_device *dev;
    struct mr_loader *ld;
    struct mr_loader_opts opts;
};

static void open_box(struct box *box, const char *device, uint32_t prefetch, uint64_t max_memory)
{
    must(mr_dataset_open("synthetic:n=2000,shape=1000,dtype=u8", &box->ds));
    must(mr_device_open(device, &box->dev));
    mr_loader_opts_init(&box->opts);
    box->opts.batch_size = 10;
    box->opts.prefetch = prefetch;
    box->opts.workers = 2;
    box->opts.max_memory = max_memory;
    must(mr_loader_open(box->ds, NULL, NULL, box->dev, &box->opts, &box->ld));
}

static void close_box(struct box *box)
{
    mr_loader_close(box->ld);
    mr_device_close(box->dev);
    mr_dataset_close(box->ds);
}

static uint64_t memory_of(const struct box *box)
{
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(box->ld, &st);
    return st.pageable_bytes + st.pinned_bytes + st.device_bytes;
}

static const char *const devices[] = {"cpu", "sim:latency=1us"};

/* Who holds at most half of the slots takes no more memory; holding more takes as much as that,
 * once. */
static void memory_follows_what_is_held(void **state)
{
    (void)state;
    for (size_t d = 0; d < MR_COUNT(devices); d++) {
        struct box box;
        struct mr_batch held[MOST];
        batches_init(held, MOST);
        open_box(&box, devices[d], 8, 0);
        uint64_t before = memory_of(&box);
        for (uint32_t most = 1; most <= 32; most *= 2) {
            uint32_t first = 0, n = 0;
            for (uint32_t i = 0; i < 30 + most; i++) {
                assert_int_equal(mr_loader_next(box.ld, NULL, &held[n++ % MOST]), 1);
                if (n - first > most - 1)
                    must(mr_loader_release(box.ld, &held[first++ % MOST], NULL));
            }
            while (first < n)
                must(mr_loader_release(box.ld, &held[first++ % MOST], NULL));
            uint64_t bytes = memory_of(&box) - before, slot = before / 8;
            if (most <= 4)
                assert_int_equal(bytes, 0);
            else
                assert_in_range(bytes, 1, most * slot);
            mr_loader_close(box.ld);
            must(mr_loader_open(box.ds, NULL, NULL, box.dev, &box.opts, &box.ld));
        }
        close_box(&box);
    }
}

static void *release_one(void *user)
{
    void **what = user;
    usleep(1000);
    return (void *)(intptr_t)mr_loader_release(what[0], what[1], NULL);
}

/* The error says how many are held. Whichever batch is released then, the run goes on. */
static void everything_held_is_an_error_that_ends_nothing(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 12; round++) {
        struct box box;
        struct mr_batch held[MOST];
        batches_init(held, MOST);
        bool done[MOST] = {false};
        uint32_t n = 0, prefetch = 1 + draw(5);
        open_box(&box, devices[round % 2], prefetch, 0);
        uint64_t all = memory_of(&box);
        close_box(&box);
        open_box(&box, devices[round % 2], prefetch, all + 60000 * (1 + round % 2));
        int rc = 1;
        while (n < MOST) {
            rc = mr_loader_next(box.ld, NULL, &held[n]);
            if (rc != 1)
                break;
            assert_int_equal(held[n].index, n);
            n++;
        }
        assert_in_range(n, prefetch + 1, 30);
        char says[80];
        snprintf(says, sizeof says, "the program holds %u batches", n);
        for (int again = 0; again < 3; again++) {
            assert_int_equal(mr_loader_next(box.ld, NULL, &held[n]), MR_ELIMIT);
            assert_non_null(strstr(mr_last_error(), says));
            assert_non_null(strstr(mr_last_error(), "max_memory"));
        }
        for (; n < 20 + prefetch; n++) {
            uint32_t i = draw(n);
            while (done[i])
                i = (i + 1) % n;
            void *what[] = {box.ld, &held[i]};
            pthread_t thread;
            void *rc_there;
            assert_int_equal(pthread_create(&thread, NULL, release_one, what), 0);
            pthread_join(thread, &rc_there);
            assert_int_equal((intptr_t)rc_there, 0);
            done[i] = true;
            if (mr_loader_next(box.ld, NULL, &held[n]) != 1)
                fail_msg("after releasing %u of %u: %s", i, n, mr_last_error());
            assert_int_equal(held[n].index, n);
        }
        assert_in_range(memory_of(&box), all, all + 120000);
        for (uint32_t i = 0; i < n; i++)
            if (!done[i])
                must(mr_loader_release(box.ld, &held[i], NULL));
        while ((rc = mr_loader_next(box.ld, NULL, &held[0])) == 1) {
            assert_int_equal(held[0].index, n++);
            must(mr_loader_release(box.ld, &held[0], NULL));
        }
        assert_int_equal(rc, 0);
        assert_int_equal(n, 200);
        close_box(&box);
    }
}

/* A run resumed from the state goes on with the oldest batch that was held. */
static void held_batches_are_made_again(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 40; round++) {
        struct box box;
        struct mr_batch held[MOST], b = {.size = sizeof b};
        batches_init(held, MOST);
        bool done[MOST] = {false};
        char text[1024], next_text[1024];
        uint32_t n = draw(30), first = 0;
        open_box(&box, "cpu", 1 + draw(5), 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(mr_loader_next(box.ld, NULL, &held[i]), 1);
            for (uint32_t k = 0; k <= i; k++)
                if (!done[k] && draw(4) == 0) {
                    must(mr_loader_release(box.ld, &held[k], NULL));
                    done[k] = true;
                }
        }
        while (first < n && done[first])
            first++;
        must(mr_loader_state_released(box.ld, text, sizeof text));
        must(mr_loader_state(box.ld, next_text, sizeof next_text));
        assert_int_equal(strcmp(text, next_text) == 0, first == n);
        mr_loader_close(box.ld);
        box.opts.state = text;
        must(mr_loader_open(box.ds, NULL, NULL, box.dev, &box.opts, &box.ld));
        assert_int_equal(mr_loader_next(box.ld, NULL, &b), 1);
        assert_int_equal(b.index, first);
        close_box(&box);
    }
}

/* Bad samples before the state's place count once. */
static int get_bad(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    (void)dim;
    *(uint64_t *)row[0] = index;
    return index % 7 == 3 ? mr_error_set(MR_EFORMAT, "bad") : 0;
}

static void bad_samples_of_held_batches_count_later(void **state)
{
    (void)state;
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct mr_batch held[10];
    batches_init(held, 10);
    char text[1024];
    mr_callback_opts_init(&o);
    o.name = "bad";
    o.n = 100;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get_bad;
    must(mr_dataset_open_callback(&o, &ds));
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.bad = MR_BAD_SKIP;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    for (int i = 0; i < 5; i++)
        assert_int_equal(mr_loader_next(ld, NULL, &held[i]), 1);
    must(mr_loader_release(ld, &held[0], NULL));
    must(mr_loader_release(ld, &held[1], NULL));
    must(mr_loader_release(ld, &held[4], NULL));
    must(mr_loader_state_released(ld, text, sizeof text));
    assert_non_null(strstr(text, "\"position\": 20,"));
    assert_non_null(strstr(text, "\"bad_samples\": 3}")); /* 3, 10 and 17 */
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void a_released_batch_is_not_held(void **state)
{
    (void)state;
    struct box box;
    struct mr_batch held[MOST], copy;
    batches_init(held, MOST);
    open_box(&box, "cpu", 2, 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(mr_loader_next(box.ld, NULL, &held[i]), 1);
    copy = held[3];
    for (int i = 0; i < 20; i++)
        must(mr_loader_release(box.ld, &held[i], NULL));
    assert_int_equal(mr_loader_release(box.ld, &copy, NULL), MR_EMISUSE);
    assert_int_equal(mr_loader_release(box.ld, &held[5], NULL), MR_EMISUSE);
    close_box(&box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_order_stay),
        cmocka_unit_test(memory_follows_what_is_held),
        cmocka_unit_test(everything_held_is_an_error_that_ends_nothing),
        cmocka_unit_test(held_batches_are_made_again),
        cmocka_unit_test(bad_samples_of_held_batches_count_later),
        cmocka_unit_test(a_released_batch_is_not_held),
    };
    return cmocka_run_group_tests_name("hold", tests, NULL, NULL);
}
