/* Several threads take batches from one loader: each batch goes to one of them, whatever they hold,
 * and whatever ends the run. */
#include "run_loader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#define HANGS_S 120 /* then it hangs: SIGALRM ends the process */
#define MOST    6   /* threads */
#define HELD    12  /* batches that one holds */

static uint32_t draw_of(uint32_t *counter, uint32_t key, uint32_t below)
{
    uint32_t out[4];
    mr_draw4(29, MR_DRAW_VALUES, (*counter)++, key, 0, out);
    return out[0] % below;
}

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    return draw_of(&counter, 0, below);
}

/* ---- random consumers ---- */

struct team;

struct consumer {
    struct team *team;
    pthread_t thread;
    uint32_t id, counter;
    struct mr_stream *stream;
    struct run run; /* what it has released */
    struct mr_batch held[HELD + 1];
    uint32_t n_held;
    int rc; /* the last mr_loader_next() */
    uint64_t n_errors;
};

struct team {
    struct mr_device *dev;
    struct mr_loader *ld;
    uint32_t n, most_held, round;
    uint64_t cancel_at;
    bool keeps; /* what is held at the end */
    _Atomic uint64_t n_taken;
    _Atomic bool over;
    struct consumer consumer[MOST];
};

static void release_one(struct consumer *c)
{
    uint32_t i = draw_of(&c->counter, c->id, c->n_held);
    run_take(&c->run, c->team->dev, c->stream, &c->held[i]);
    c->n_errors += mr_loader_release(c->team->ld, &c->held[i], c->stream) != 0;
    c->held[i] = c->held[--c->n_held];
}

static int take_one(struct consumer *c)
{
    static const uint64_t patience[] = {0, 20000, 300000, UINT64_MAX};
    struct mr_loader *ld = c->team->ld;
    struct mr_stream *stream = draw_of(&c->counter, c->id, 2) ? c->stream : NULL;
    struct mr_batch *b = &c->held[c->n_held];
    b->size = sizeof *b;
    if (draw_of(&c->counter, c->id, 2))
        return mr_loader_next(ld, stream, b);
    return mr_loader_next_for(ld, stream, patience[draw_of(&c->counter, c->id, 4)], b);
}

static void *consume(void *user)
{
    struct consumer *c = user;
    struct team *team = c->team;
    while ((c->rc = take_one(c)) > 0 || c->rc == -ETIMEDOUT) {
        if (c->rc == -ETIMEDOUT)
            continue;
        c->n_held++;
        if (atomic_fetch_add(&team->n_taken, 1) + 1 == team->cancel_at)
            mr_loader_cancel(team->ld);
        while (c->n_held > team->most_held || (c->n_held > 0 && draw_of(&c->counter, c->id, 3)))
            release_one(c);
    }
    while (c->n_held > 0 && !team->keeps)
        release_one(c);
    return NULL;
}

/* Asks all the time, as a checkpointing thread and an event loop would. */
static void *ask(void *user)
{
    struct team *team = user;
    char text[4096];
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_bad_sample bad = {.size = sizeof bad};
    uint64_t n_wrong = 0;
    while (!atomic_load(&team->over)) {
        n_wrong += mr_loader_state(team->ld, text, sizeof text) <= 0;
        n_wrong += mr_loader_state_released(team->ld, text, sizeof text) <= 0;
        n_wrong += mr_loader_bad(team->ld, 0, &bad) != 0;
        mr_loader_stats(team->ld, &st);
        struct pollfd p = {.fd = mr_loader_fd(team->ld), .events = POLLIN};
        n_wrong += p.fd < 0;
        poll(&p, 1, 1);
    }
    return (void *)(uintptr_t)n_wrong;
}

static void run_team(struct team *team, bool asks)
{
    pthread_t asker;
    void *n_wrong = NULL;
    for (uint32_t i = 0; i < team->n; i++) {
        struct consumer *c = &team->consumer[i];
        *c = (struct consumer){.team = team, .id = 1 + i + MOST * team->round};
        must(mr_stream_create(team->dev, "consumer", &c->stream));
    }
    if (asks)
        assert_int_equal(pthread_create(&asker, NULL, ask, team), 0);
    for (uint32_t i = 0; i < team->n; i++)
        assert_int_equal(
            pthread_create(&team->consumer[i].thread, NULL, consume, &team->consumer[i]), 0);
    for (uint32_t i = 0; i < team->n; i++)
        pthread_join(team->consumer[i].thread, NULL);
    atomic_store(&team->over, true);
    if (asks)
        pthread_join(asker, &n_wrong);
    assert_null(n_wrong);
}

static int by_place(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* All that the team released, in the order of positions. */
static struct run together(struct team *team)
{
    struct run all = {0};
    for (uint32_t i = 0; i < team->n; i++)
        all.n += team->consumer[i].run.n;
    all.row = calloc(all.n + 1, sizeof *all.row);
    all.n = 0;
    for (uint32_t i = 0; i < team->n; i++) {
        struct consumer *c = &team->consumer[i];
        assert_int_equal(c->n_errors, 0);
        for (uint64_t r = 0; r < c->run.n; r++)
            all.row[all.n++] = c->run.row[r];
        run_free(&c->run);
        mr_stream_destroy(c->stream);
    }
    qsort(all.row, all.n, sizeof *all.row, by_place);
    return all;
}

static struct run_config random_config(void)
{
    static const char *const sets[] = {"synthetic:n=1003,shape=3x5,dtype=u8,classes=10",
                                       "synthetic:n=1003,shape=7,dtype=f32,delay=20us"};
    struct run_config c = run_config(NULL);
    must(mr_dataset_open(sets[draw(2)], &c.ds));
    c.device = draw(2) ? "cpu" : "sim:latency=1us";
    c.opts.batch_size = 1 + draw(12);
    c.opts.epochs = 1 + draw(2);
    c.opts.workers = 1 + draw(3);
    c.opts.prefetch = 1 + draw(6);
    return c;
}

static void each_batch_goes_to_one_thread(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 8; round++) {
        struct run_config c = random_config();
        struct run plain = run_loader(&c);
        struct team team = {.n = 2 + draw(MOST - 1), .most_held = draw(HELD), .round = round};
        c.opts.in_order = (int)draw(2);
        must(mr_device_open(c.device, &team.dev));
        must(mr_loader_open(c.ds, NULL, NULL, team.dev, &c.opts, &team.ld));
        run_team(&team, draw(2));
        for (uint32_t i = 0; i < team.n; i++)
            assert_int_equal(team.consumer[i].rc, 0);
        mr_loader_close(team.ld);
        struct run all = together(&team);
        assert_same_rows(&plain, &all);
        run_free(&all);
        run_free(&plain);
        mr_device_close(team.dev);
        mr_dataset_close(c.ds);
    }
}

/* What was released before the state's place, and what a run resumed from it makes, is all. In
 * order, some of what was released behind that place is made again. */
static void check_resumed(struct run_config *c, struct run *plain, const struct run *released,
                          const char *text)
{
    c->opts.state = text;
    struct run rest = run_loader(c);
    assert_int_equal(rest.rc, 0);
    assert_in_range(rest.n, 0, plain->n);
    uint64_t first = plain->n - rest.n;
    assert_true(c->opts.in_order ? released->n >= first : released->n == first);
    for (uint64_t i = 1; i < released->n; i++) /* none twice */
        assert_true(by_place(&released->row[i - 1], &released->row[i]) < 0);
    struct run all = {.n = plain->n, .row = calloc(plain->n, sizeof *all.row)};
    memcpy(all.row, released->row, first * sizeof *all.row);
    memcpy(all.row + first, rest.row, rest.n * sizeof *all.row);
    qsort(all.row, all.n, sizeof *all.row, by_place);
    assert_same_rows(plain, &all);
    run_free(&all);
    run_free(&rest);
}

/* Some thread cancels the run. All end, and the state of what was released loses nothing. */
static void a_cancelled_run_goes_on(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 8; round++) {
        char text[2048];
        struct run_config c = random_config();
        struct run plain = run_loader(&c);
        struct team team = {.n = 2 + draw(MOST - 1),
                            .most_held = draw(HELD),
                            .round = 100 + round,
                            .keeps = true,
                            .cancel_at = 1 + draw(60)};
        c.opts.in_order = (int)draw(2);
        must(mr_device_open(c.device, &team.dev));
        must(mr_loader_open(c.ds, NULL, NULL, team.dev, &c.opts, &team.ld));
        run_team(&team, draw(2));
        for (uint32_t i = 0; i < team.n; i++)
            assert_int_equal(team.consumer[i].rc, MR_ECANCELLED);
        assert_true(
            mr_loader_next(team.ld, NULL, &(struct mr_batch){.size = sizeof(struct mr_batch)}) ==
            MR_ECANCELLED);
        must(mr_loader_state_released(team.ld, text, sizeof text));
        mr_loader_close(team.ld);
        struct run all = together(&team);
        check_resumed(&c, &plain, &all, text);
        run_free(&all);
        run_free(&plain);
        mr_device_close(team.dev);
        mr_dataset_close(c.ds);
    }
}

/* ---- all wait ---- */

struct block {
    sem_t entered, go;
};

/* The second batch stops here until `go` was posted once for each thread. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    struct block *block = user;
    (void)dim;
    if (index == 17) {
        sem_post(&block->entered);
        for (uint32_t i = 0; i < MOST; i++)
            sem_wait(&block->go);
    }
    *(uint64_t *)row[0] = index;
    return 0;
}

struct waiter {
    pthread_t thread;
    struct mr_loader *ld;
    sem_t *go;
    int rc;
};

static void *wait_for_one(void *user)
{
    struct waiter *w = user;
    struct mr_batch b = {.size = sizeof b};
    w->rc = mr_loader_next(w->ld, NULL, &b);
    sem_post(w->go); /* the batch was not made, or all threads were let go */
    return NULL;
}

struct scene {
    struct block block;
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct waiter waiter[MOST];
};

/* One batch is taken, MOST threads wait for the next one. */
static void set_scene(struct scene *s)
{
    struct mr_callback_opts o;
    struct mr_loader_opts lo;
    struct mr_batch b = {.size = sizeof b};
    sem_init(&s->block.entered, 0, 0);
    sem_init(&s->block.go, 0, 0);
    mr_callback_opts_init(&o);
    o.name = "blocks";
    o.n = 100;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get;
    o.user = &s->block;
    must(mr_dataset_open_callback(&o, &s->ds));
    mr_loader_opts_init(&lo);
    lo.batch_size = 10;
    lo.workers = 1;
    lo.prefetch = 2;
    must(mr_loader_open(s->ds, NULL, NULL, NULL, &lo, &s->ld));
    assert_int_equal(mr_loader_next(s->ld, NULL, &b), 1);
    must(mr_loader_release(s->ld, &b, NULL));
    sem_wait(&s->block.entered);
    for (uint32_t i = 0; i < MOST; i++) {
        s->waiter[i] = (struct waiter){.ld = s->ld, .go = &s->block.go};
        assert_int_equal(pthread_create(&s->waiter[i].thread, NULL, wait_for_one, &s->waiter[i]),
                         0);
    }
    usleep(2000); /* most of them wait by now */
}

static void join_all(struct scene *s, int rc)
{
    for (uint32_t i = 0; i < MOST; i++) {
        pthread_join(s->waiter[i].thread, NULL);
        assert_int_equal(s->waiter[i].rc, rc);
    }
}

/* None of these waits for the threads that wait. */
static void others_can_ask_while_all_wait(void **state)
{
    (void)state;
    struct scene s;
    struct mr_batch b = {.size = sizeof b};
    struct mr_bad_sample bad = {.size = sizeof bad};
    struct mr_loader_stats st = {.size = sizeof st};
    char text[1024];
    set_scene(&s);
    must(mr_loader_state(s.ld, text, sizeof text));
    assert_non_null(strstr(text, "\"position\": 10"));
    must(mr_loader_state_released(s.ld, text, sizeof text));
    assert_int_equal(mr_loader_bad(s.ld, 0, &bad), 0);
    mr_loader_stats(s.ld, &st);
    struct pollfd p = {.fd = mr_loader_fd(s.ld), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(mr_loader_next_for(s.ld, NULL, 0, &b), -ETIMEDOUT);
    assert_non_null(strstr(mr_last_error(), "batch 1 of epoch 0 is not ready"));
    assert_int_equal(mr_loader_next_for(s.ld, NULL, 2000000, &b), -ETIMEDOUT);
    assert_non_null(strstr(mr_last_error(), "sample 17 "));
    for (uint32_t i = 0; i < MOST; i++)
        sem_post(&s.block.go);
    join_all(&s, 1);
    assert_int_equal(poll(&p, 1, HANGS_S * 500), 1); /* all are held: another slot is used */
    mr_loader_close(s.ld);
    mr_dataset_close(s.ds);
}

/* The batch that all wait for is only made once they are back: if one were not woken, or close did
 * not wait for them, this would hang. */
static void ending_the_run_wakes_all(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        struct scene s;
        set_scene(&s);
        if (closes)
            mr_loader_close(s.ld);
        else
            mr_loader_cancel(s.ld);
        join_all(&s, MR_ECANCELLED);
        if (!closes)
            mr_loader_close(s.ld);
        mr_dataset_close(s.ds);
    }
}

int main(void)
{
    alarm(HANGS_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_batch_goes_to_one_thread),
        cmocka_unit_test(a_cancelled_run_goes_on),
        cmocka_unit_test(others_can_ask_while_all_wait),
        cmocka_unit_test(ending_the_run_wakes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
