/* Iterable sets: order, epochs' ends, shuffle buffer, resuming, ranks, bad samples, sources that
 * block or end oddly. */
#include "run_loader.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* A source of n samples, which checks that it is called as promised. */
struct source {
    uint64_t n;         /* of a pass; UINT64_MAX: it never ends */
    uint64_t at, epoch; /* the next sample */
    uint64_t bad_every; /* samples with at % bad_every == 3 are bad; 0: none */
    int bad_in;         /* which callback finds that: */
    _Atomic int calls, rewinds, inside, ended, closed, stops, blocked;
    uint64_t block_at;     /* read blocks there until stop */
    int rewind_fails;      /* at this epoch */
    int returns;           /* of read at sample 5 */
    _Atomic uint64_t next; /* unordered: shared */
    _Atomic bool stop;
    uint64_t buffer[2];
};

enum { IN_READ, IN_DECODE };

static int source_rewind(void *user, uint64_t epoch)
{
    struct source *s = user;
    assert_int_equal(s->inside, 0);
    if (s->rewind_fails && (uint64_t)s->rewind_fails == epoch)
        return mr_error_set(-EIO, "the tape is torn");
    s->at = 0;
    s->next = 0;
    s->epoch = epoch;
    s->ended = 0;
    s->rewinds++;
    return 0;
}

static int torn(uint64_t i)
{
    return mr_error_set(MR_EFORMAT, "record %llu is torn", (unsigned long long)i);
}

static bool is_bad(const struct source *s, uint64_t i, int in)
{
    return s->bad_every && s->bad_in == in && i % s->bad_every == 3 % s->bad_every;
}

/* Takes the next sample's number. */
static int step(struct source *s, const struct mr_sample_context *c, uint64_t *out)
{
    assert_int_equal(atomic_fetch_add(&s->inside, 1), 0);
    s->calls++;
    int rc = 0;
    assert_int_equal(s->ended, 0); /* not called again after its end */
    if (s->block_at && s->at == s->block_at) {
        s->blocked = 1;
        while (!s->stop)
            usleep(100);
        rc = -EINTR;
    } else if (s->at == s->n) {
        s->ended = 1;
        rc = MR_END;
    } else {
        assert_int_equal(c->index, s->at);
        assert_int_equal(c->position, s->at);
        assert_int_equal(c->epoch, s->epoch);
        *out = s->at++;
        if (s->returns && *out == 5)
            rc = s->returns;
        else if (is_bad(s, *out, IN_READ))
            rc = torn(*out);
    }
    s->inside--;
    return rc;
}

static void write_sample(uint64_t i, uint64_t epoch, void *const row[],
                         uint64_t (*dim)[MR_MAX_RANK])
{
    uint64_t *key = row[0], *x = row[1];
    key[0] = i;
    key[1] = epoch;
    dim[1][0] = i % 5;
    for (uint64_t k = 0; k < i % 5; k++)
        x[k] = i * k;
}

static int source_read(void *user, const struct mr_sample_context *c, void *const row[],
                       uint64_t (*dim)[MR_MAX_RANK])
{
    uint64_t i = 0;
    int rc = step(user, c, &i);
    if (rc == 0)
        write_sample(i, c->epoch, row, dim);
    return rc;
}

static int source_read_bytes(void *user, const struct mr_sample_context *c, struct mr_bytes *out)
{
    struct source *s = user;
    int rc = step(s, c, &s->buffer[0]);
    s->buffer[1] = c->epoch;
    *out = (struct mr_bytes){s->buffer, sizeof s->buffer};
    return rc;
}

static int source_decode(void *user, const struct mr_sample_context *c, const struct mr_bytes *in,
                         void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct source *s = user;
    uint64_t key[2];
    assert_int_equal(in->n, sizeof key);
    memcpy(key, in->data, sizeof key);
    assert_int_equal(key[0], c->index);
    assert_int_equal(key[1], c->epoch);
    if (is_bad(s, key[0], IN_DECODE))
        return torn(key[0]);
    write_sample(key[0], key[1], row, dim);
    return 0;
}

static int read_unordered(void *user, const struct mr_sample_context *c, void *const row[],
                          uint64_t (*dim)[MR_MAX_RANK])
{
    struct source *s = user;
    uint64_t i = atomic_fetch_add(&s->next, 1);
    assert_int_equal(c->index, 0);
    if (i >= s->n)
        return MR_END;
    if (i % 17 == 0)
        usleep(200);
    write_sample(i, c->epoch, row, dim);
    return 0;
}

static void source_stop(void *user)
{
    struct source *s = user;
    s->stops++;
    s->stop = true;
}

static void source_close(void *user)
{
    ((struct source *)user)->closed++;
}

enum form { ROWS, BYTES };

static struct mr_iterable_opts source_opts(struct source *s, enum form form)
{
    struct mr_iterable_opts o;
    mr_iterable_opts_init(&o);
    o.name = "queue";
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "key", .dtype = MR_U64, .rank = 1, .dim = {2}};
    o.field[1] =
        (struct mr_spec){.name = "x", .dtype = MR_U64, .rank = 1, .var_dims = 1, .dim = {8}};
    o.read = form == ROWS ? source_read : NULL;
    o.read_bytes = form == BYTES ? source_read_bytes : NULL;
    o.decode = form == BYTES ? source_decode : NULL;
    o.rewind = source_rewind;
    o.stop = source_stop;
    o.close = source_close;
    o.user = s;
    return o;
}

static struct mr_dataset *source_open(struct source *s, enum form form)
{
    struct mr_iterable_opts o = source_opts(s, form);
    struct mr_dataset *ds;
    must(mr_dataset_open_iterable(&o, &ds));
    return ds;
}

static struct run_config config(struct mr_dataset *ds, uint32_t workers)
{
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.opts.workers = workers;
    c.opts.batch_size = 16;
    c.opts.collate = MR_COLLATE_RAGGED;
    return c;
}

/* Runs it and closes the data set. */
static struct run run_source(struct source *s, enum form form, const struct run_config *c)
{
    struct run_config mine = *c;
    mine.ds = source_open(s, form);
    struct run run = run_loader(&mine);
    mr_dataset_close(mine.ds);
    return run;
}

static void assert_fails(struct source s, enum form form, struct run_config c, int rc,
                         const char *text)
{
    struct run run = run_source(&s, form, &c);
    if (run.rc != rc || !strstr(run.error, text))
        fail_msg("%d: '%s': expected %d: '%s'", run.rc, run.error, rc, text);
    run_free(&run);
}

/* ---- order ---- */

static void samples_come_once_in_order(void **state)
{
    (void)state;
    const uint64_t lengths[] = {1, 15, 16, 17, 150};
    for (size_t l = 0; l < MR_COUNT(lengths); l++)
        for (int k = 0; k < 12; k++) {
            uint64_t n = lengths[l], batch = k % 2 ? 16 : 5;
            struct source s = {.n = n};
            struct run_config c = config(NULL, (uint32_t[]){1, 2, 7}[k % 3]);
            c.opts.batch_size = batch;
            c.opts.epochs = 3;
            c.opts.drop_last = k % 4 > 1 && n >= batch;
            uint64_t each = c.opts.drop_last ? n / batch * batch : n;
            struct run run = run_source(&s, k < 6 ? ROWS : BYTES, &c);
            assert_int_equal(run.rc, 0);
            assert_int_equal(run.n, 3 * each);
            assert_int_equal(run.batches, 3 * ((each + batch - 1) / batch));
            for (uint64_t i = 0; i < run.n; i++) {
                assert_int_equal(run.row[i].epoch, i / each);
                assert_int_equal(run.row[i].position, i % each);
                assert_int_equal(run.row[i].index, i % each);
                assert_int_equal(run.row[i].batch, i % each / batch);
            }
            assert_int_equal(s.rewinds, 3);
            assert_int_equal(s.calls, 3 * (n + 1));
            assert_int_equal(s.closed, 1);
            run_free(&run);
        }
}

static void last_batches_are_known(void **state)
{
    (void)state;
    for (int drop = 0; drop < 2; drop++)
        for (uint64_t n = 8; n < 26; n++) {
            struct source s = {.n = n};
            struct mr_dataset *ds = source_open(&s, ROWS);
            struct run_config c = config(ds, 2);
            c.opts.batch_size = 8;
            c.opts.epochs = 2;
            c.opts.drop_last = drop;
            uint64_t batches = drop ? n / 8 : (n + 7) / 8, seen = 0;
            struct mr_loader *ld;
            struct mr_batch b = {.size = sizeof b};
            must(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
            assert_true(mr_loader_batches(ld) == MR_UNKNOWN);
            assert_true(mr_loader_samples(ld) == MR_UNKNOWN);
            while (mr_loader_next(ld, NULL, &b) > 0) {
                assert_int_equal(b.last, b.index + 1 == batches);
                assert_int_equal(b.n, MR_MIN(8, n - b.index * 8));
                must(mr_loader_release(ld, &b, NULL));
                seen++;
            }
            assert_int_equal(seen, 2 * batches);
            mr_loader_close(ld);
            mr_dataset_close(ds);
        }
}

static void rows_and_workers_make_no_difference(void **state)
{
    (void)state;
    struct run first = {0};
    for (int k = 0; k < 6; k++) {
        struct source s = {.n = 300};
        struct run_config c = config(NULL, (uint32_t[]){1, 2, 8}[k % 3]);
        c.opts.shuffle_buffer = 40;
        c.opts.epochs = 2;
        struct run run = run_source(&s, k < 3 ? ROWS : BYTES, &c);
        assert_int_equal(run.rc, 0);
        if (k == 0)
            first = run;
        else
            assert_same_rows(&first, &run);
        if (k > 0)
            run_free(&run);
    }
    run_free(&first);
}

/* ---- the shuffle buffer ---- */

static void a_buffer_shuffles(void **state)
{
    (void)state;
    const uint64_t keep[] = {1, 2, 50, 299, 300, 1000};
    for (size_t k = 0; k < MR_COUNT(keep); k++) {
        struct source s = {.n = 300};
        struct run_config c = config(NULL, 2);
        c.opts.shuffle_buffer = keep[k];
        c.opts.epochs = 2;
        struct run run = run_source(&s, BYTES, &c);
        uint64_t moved = 0, same = 0;
        bool seen[2][300] = {{false}};
        assert_int_equal(run.n, 600);
        for (uint64_t i = 0; i < 600; i++) {
            const struct row *row = &run.row[i];
            assert_false(seen[row->epoch][row->index]);
            seen[row->epoch][row->index] = true;
            assert_int_equal(row->position, i % 300);
            assert_true(row->index < row->position + keep[k]); /* it looks no further ahead */
            moved += row->index != row->position;
            same += i >= 300 && row->index == run.row[i - 300].index;
        }
        assert_true(keep[k] == 1 ? moved == 0 : moved > 100);
        assert_true(keep[k] < 50 || same < 60);
        run_free(&run);
    }
}

/* ---- resuming ---- */

static void resuming_goes_on_where_it_was(void **state)
{
    (void)state;
    for (int k = 0; k < 24; k++) {
        uint64_t stop = 1 + (uint64_t)k * 7 % 24;
        struct source s = {.n = 200, .bad_every = k % 3 == 2 ? 7 : 0, .bad_in = k % 2};
        struct run_config c = config(NULL, 1 + k % 3);
        c.opts.shuffle_buffer = k % 2 ? 30 : 0;
        c.opts.drop_last = k % 5 == 1;
        c.opts.epochs = 2;
        c.opts.bad = MR_BAD_SKIP;
        struct run whole = run_source(&s, BYTES, &c);
        assert_int_equal(whole.rc, 0);
        c.stop_after = stop;
        struct run front = run_source(&s, BYTES, &c);
        c.stop_after = 0;
        c.opts.state = front.state;
        c.opts.workers = 1 + (k + 1) % 3;
        struct run back = run_source(&s, BYTES, &c);
        assert_true(back.rc >= 0);
        assert_int_equal(front.n + back.n, whole.n);
        for (uint64_t i = 0; i < back.n; i++) {
            const struct row *a = &whole.row[front.n + i], *b = &back.row[i];
            assert_int_equal(a->epoch, b->epoch);
            assert_int_equal(a->position, b->position);
            assert_int_equal(a->index, b->index);
            assert_int_equal(a->hash, b->hash);
            assert_int_equal(a->batch, b->batch);
        }
        run_free(&whole);
        run_free(&front);
        run_free(&back);
    }
}

static void states_must_fit(void **state)
{
    (void)state;
    struct source s = {.n = 200};
    struct run_config c = config(NULL, 2);
    c.stop_after = 5;
    struct run front = run_source(&s, BYTES, &c);
    c.stop_after = 0;
    c.opts.state = front.state;
    c.opts.shuffle_buffer = 10;
    struct mr_dataset *ds = source_open(&s, BYTES);
    struct mr_loader *ld;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "shuffle_buffer=0"));
    mr_dataset_close(ds);
    c.opts.shuffle_buffer = 0;
    s.n = 50; /* less than before */
    assert_fails(s, BYTES, c, MR_ESTATE, "queue: epoch 0 ended after 50 samples");
    run_free(&front);
}

/* ---- ranks ---- */

static void ranks_share_the_source(void **state)
{
    (void)state;
    for (uint64_t n = 96; n < 101; n++)
        for (int way = 0; way < 3; way++) {
            bool drop = way == 1, exact = way == 2;
            bool seen[2][101] = {{false}};
            uint64_t total = 0;
            for (uint32_t rank = 0; rank < 3; rank++) {
                struct source s = {.n = n};
                struct run_config c = config(NULL, 2);
                c.opts.rank = rank;
                c.opts.world = 3;
                c.opts.epochs = 2;
                c.opts.shuffle_buffer = 20;
                c.opts.drop_last = drop;
                c.opts.remainder = exact ? MR_REMAINDER_EXACT : MR_REMAINDER_DROP;
                struct run run = run_source(&s, ROWS, &c);
                assert_int_equal(run.rc, 0);
                uint64_t mine = n / 3 + (exact && rank < n % 3);
                assert_int_equal(run.n, 2 * (drop ? n / 3 / 16 * 16 : mine));
                for (uint64_t i = 0; i < run.n; i++) {
                    assert_int_equal(run.row[i].position % 3, rank);
                    assert_false(seen[run.row[i].epoch][run.row[i].index]);
                    seen[run.row[i].epoch][run.row[i].index] = true;
                }
                total += run.n;
                run_free(&run);
            }
            assert_int_equal(total, exact ? 2 * n : 6 * (drop ? n / 3 / 16 * 16 : n / 3));
        }
}

/* ---- unordered ---- */

static void workers_read_at_once(void **state)
{
    (void)state;
    struct source s = {.n = 700};
    struct mr_iterable_opts o = source_opts(&s, ROWS);
    o.read = read_unordered;
    o.unordered = 1;
    struct mr_dataset *ds;
    must(mr_dataset_open_iterable(&o, &ds));
    struct run_config c = config(ds, 4);
    c.opts.epochs = 3;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 3 * 700);
    bool seen[3][700] = {{false}};
    for (uint64_t i = 0; i < run.n; i++) { /* numbers in the order in which they came */
        assert_false(seen[run.row[i].epoch][run.row[i].index]);
        seen[run.row[i].epoch][run.row[i].index] = true;
    }
    c.opts.state = run.state;
    struct mr_loader *ld;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_ESTATE);
    c.opts.state = NULL;
    c.opts.world = 2;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_EOPTION);
    run_free(&run);
    mr_dataset_close(ds);
}

/* Of each worker's own source, how many samples it gave in this pass. */
struct own_sources {
    _Atomic uint64_t given[64];
};

static int rewind_slowly(void *user, uint64_t epoch)
{
    struct own_sources *own = user;
    (void)epoch;
    for (size_t i = 0; i < MR_COUNT(own->given); i++)
        own->given[i] = 0;
    usleep(2000); /* the other workers come meanwhile */
    return 0;
}

/* Worker w has w % 3 + 1 samples. */
static int read_own(void *user, const struct mr_sample_context *c, void *const row[],
                    uint64_t (*dim)[MR_MAX_RANK])
{
    struct own_sources *own = user;
    uint64_t i = atomic_fetch_add(&own->given[c->worker], 1);
    if (i >= c->worker % 3 + 1)
        return MR_END;
    write_sample(c->worker * 10 + i, c->epoch, row, dim);
    return 0;
}

/* Passes that are shorter than a run: all workers have to read, or none ends. */
static void short_sources_of_all_workers(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 6; workers++) {
        struct own_sources own = {{0}};
        struct mr_iterable_opts o = source_opts(NULL, ROWS);
        struct mr_dataset *ds;
        o.user = &own;
        o.read = read_own;
        o.rewind = rewind_slowly;
        o.stop = NULL;
        o.close = NULL;
        o.unordered = 1;
        must(mr_dataset_open_iterable(&o, &ds));
        struct run_config c = config(ds, workers);
        c.opts.epochs = 20;
        struct run run = run_loader(&c);
        uint64_t n = 0;
        for (uint32_t w = 0; w < workers; w++)
            n += w % 3 + 1;
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, 20 * n);
        run_free(&run);
        mr_dataset_close(ds);
    }
}

/* ---- bad samples ---- */

static void bad_samples_are_skipped_or_end_the_run(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct source s = {.n = 200, .bad_every = 10, .bad_in = k % 2};
        struct run_config c = config(NULL, 1 + k / 2 * 3);
        assert_fails(s, BYTES, c, MR_EFORMAT, "queue: sample 3: record 3 is torn");
        c.opts.bad = MR_BAD_SKIP;
        struct run run = run_source(&s, BYTES, &c);
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, 180);
        assert_int_equal(run.stats.bad_samples, 20);
        for (uint64_t i = 0; i < run.n; i++)
            assert_int_not_equal(run.row[i].index % 10, 3);
        run_free(&run);
    }
}

static void a_source_of_bad_samples_alone_ends(void **state)
{
    (void)state;
    struct source s = {.n = UINT64_MAX, .bad_every = 1, .bad_in = IN_READ};
    struct run_config c = config(NULL, 2);
    c.opts.bad = MR_BAD_SKIP;
    assert_fails(s, BYTES, c, MR_EBADSAMPLES, "10000 bad samples in a row; the last: queue: ");
    s.bad_in = IN_DECODE;
    assert_fails(s, BYTES, c, MR_EBADSAMPLES, "no good sample among the latest 10000");
}

static void returns_are_checked(void **state)
{
    (void)state;
    struct run_config c = config(NULL, 2);
    struct source s = {.n = 100, .returns = 7};
    assert_fails(s, ROWS, c, MR_ECALLBACK, "queue: sample 5: read returned 7");
    s.returns = -123456789;
    assert_fails(s, BYTES, c, MR_ECALLBACK, "read_bytes returned -123456789");
    s = (struct source){.n = 100, .rewind_fails = 1};
    c.opts.epochs = 2;
    assert_fails(s, BYTES, c, -EIO, "the tape is torn");
    c.opts.bad = MR_BAD_SKIP; /* it is no sample's error */
    assert_fails(s, BYTES, c, -EIO, "the tape is torn");
}

static void too_few_samples_are_an_error(void **state)
{
    (void)state;
    struct run_config c = config(NULL, 3);
    struct source s = {.n = 0};
    assert_fails(s, ROWS, c, MR_EBADSAMPLES, "epoch 0 has 0 samples");
    s.n = 15;
    c.opts.drop_last = 1;
    assert_fails(s, ROWS, c, MR_EBADSAMPLES, "no full batch of 16");
    c.opts.drop_last = 0;
    s.n = 2;
    c.opts.world = 3;
    assert_fails(s, ROWS, c, MR_EBADSAMPLES, "each of 3 ranks no batch");
}

/* ---- sources that block ---- */

static void closing_stops_a_blocked_source(void **state)
{
    (void)state;
    struct source s = {.n = 100, .block_at = 40};
    struct mr_dataset *ds = source_open(&s, ROWS);
    struct run_config c = config(ds, 3);
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    must(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        must(mr_loader_release(ld, &b, NULL));
    }
    while (!s.blocked)
        usleep(100);
    assert_int_equal(mr_loader_next_for(ld, NULL, 20000000, &b), -ETIMEDOUT);
    assert_non_null(strstr(mr_last_error(), "the source has not given sample 40 for"));
    mr_loader_cancel(ld);
    assert_int_equal(mr_loader_next(ld, NULL, &b), MR_ECANCELLED);
    assert_int_equal(s.stops, 0);
    mr_loader_close(ld);
    assert_int_equal(s.stops, 1);
    mr_dataset_close(ds);
}

/* Two loaders, one permit: that of a worker whose source blocks is the other's. */
static void a_blocked_source_keeps_no_permit(void **state)
{
    (void)state;
    struct source blocks = {.n = 100, .block_at = 5}, goes_on = {.n = 300};
    struct mr_dataset *ds = source_open(&blocks, ROWS), *other = source_open(&goes_on, ROWS);
    struct run_config c = config(ds, 2);
    struct mr_budget_opts o;
    struct mr_loader *ld;
    mr_budget_opts_init(&o);
    o.workers = 1;
    must(mr_budget_create(&o, &c.opts.budget));
    must(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    while (!blocks.blocked)
        usleep(100);
    c.ds = other;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 300);
    run_free(&run);
    mr_loader_close(ld);
    mr_budget_destroy(c.opts.budget);
    mr_dataset_close(ds);
    mr_dataset_close(other);
}

/* ---- what cannot be ---- */

static void options_that_need_a_length_are_refused(void **state)
{
    (void)state;
    struct source s = {.n = 100};
    struct mr_dataset *ds = source_open(&s, ROWS);
    struct mr_sampler *sampler;
    assert_true(mr_dataset_length(ds) == MR_UNKNOWN);
    assert_int_equal(mr_sampler_open("random", mr_dataset_length(ds), 1, &sampler), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "shuffle_buffer"));
    must(mr_sampler_open("random", 100, 1, &sampler));
    const struct {
        const char *opts, *text;
    } refused[] = {{"bad=replace", "bad=replace"},
                   {"remainder=pad", "remainder=pad"},
                   {"cache=device", "cache=device"},
                   {"no-in-order", "iterable"}};
    struct mr_loader *ld;
    for (size_t i = 0; i < MR_COUNT(refused); i++) {
        struct run_config c = config(ds, 2);
        must(mr_loader_opts_parse(refused[i].opts, &c.opts));
        assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_EOPTION);
        assert_non_null(strstr(mr_last_error(), refused[i].text));
    }
    struct run_config c = config(ds, 2);
    assert_int_equal(mr_loader_open(ds, sampler, NULL, NULL, &c.opts, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "shuffle_buffer"));
    uint64_t key[2], x[8];
    assert_int_equal(mr_dataset_read(ds, 0, (void *[]){key, x}, NULL), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "cannot be read by index"));
    assert_int_equal(mr_dataset_read_field(ds, 0, 0, key, NULL), MR_EMISUSE);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    must(mr_dataset_open("synthetic:n=100,shape=4", &ds));
    c.opts.collate = MR_COLLATE_STACK;
    c.opts.shuffle_buffer = 10;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "random sampler"));
    mr_dataset_close(ds);
}

static void what_is_read_once_is_read_once(void **state)
{
    (void)state;
    struct source s = {.n = 100};
    struct mr_iterable_opts o = source_opts(&s, ROWS);
    o.rewind = NULL;
    struct mr_dataset *ds;
    must(mr_dataset_open_iterable(&o, &ds));
    struct run_config c = config(ds, 2);
    struct mr_loader *ld, *other;
    c.opts.epochs = 2;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "has no rewind callback"));
    c.opts.epochs = 1;
    must(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &other), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "one loader at a time"));
    struct mr_batch b = {.size = sizeof b};
    assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
    char text[1024];
    must(mr_loader_state(ld, text, sizeof text));
    mr_loader_close(ld);
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &other), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "an earlier loader"));
    mr_dataset_close(ds);
    must(mr_dataset_open_iterable(&o, &ds));
    c.opts.state = text;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &other), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "so a run cannot be resumed from it"));
    mr_dataset_close(ds);
}

static void callbacks_are_checked(void **state)
{
    (void)state;
    struct source s = {.n = 1};
    struct mr_dataset *ds;
    struct mr_iterable_opts o = source_opts(&s, ROWS);
    o.read_bytes = source_read_bytes;
    assert_int_equal(mr_dataset_open_iterable(&o, &ds), MR_EMISUSE);
    o.read = NULL;
    assert_int_equal(mr_dataset_open_iterable(&o, &ds), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "read_bytes without decode"));
    o.read_bytes = NULL;
    assert_int_equal(mr_dataset_open_iterable(&o, &ds), MR_EMISUSE);
    o.read = source_read;
    o.decode = source_decode;
    assert_int_equal(mr_dataset_open_iterable(&o, &ds), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "decode without read_bytes"));
    assert_int_equal(s.closed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_once_in_order),
        cmocka_unit_test(last_batches_are_known),
        cmocka_unit_test(rows_and_workers_make_no_difference),
        cmocka_unit_test(a_buffer_shuffles),
        cmocka_unit_test(resuming_goes_on_where_it_was),
        cmocka_unit_test(states_must_fit),
        cmocka_unit_test(ranks_share_the_source),
        cmocka_unit_test(workers_read_at_once),
        cmocka_unit_test(short_sources_of_all_workers),
        cmocka_unit_test(bad_samples_are_skipped_or_end_the_run),
        cmocka_unit_test(a_source_of_bad_samples_alone_ends),
        cmocka_unit_test(returns_are_checked),
        cmocka_unit_test(too_few_samples_are_an_error),
        cmocka_unit_test(closing_stops_a_blocked_source),
        cmocka_unit_test(a_blocked_source_keeps_no_permit),
        cmocka_unit_test(options_that_need_a_length_are_refused),
        cmocka_unit_test(what_is_read_once_is_read_once),
        cmocka_unit_test(callbacks_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
