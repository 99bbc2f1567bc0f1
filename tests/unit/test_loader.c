/* White-box. The loader's promises: each sample once an epoch; the same bits for any workers,
 * prefetch, storage, ranks and resume. */
#include "run_loader.h"
#include "storage/storage.h"

#include <unistd.h>

#define SET   "synthetic:n=1003,shape=3x5,dtype=u8,classes=10"
#define CHAIN "random_crop(2,4),hflip(0.5),cast(f32),scale(1/255)"

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(11, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

static void each_sample_once_an_epoch(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct run_config c = run_config("synthetic:n=257,shape=7,dtype=i16");
        c.sampler = draw(2) ? "random" : "sequential";
        c.sampler_seed = draw(1000);
        c.opts.workers = 1 + draw(5);
        c.opts.prefetch = 1 + draw(6);
        c.opts.batch_size = 1 + draw(70);
        c.opts.epochs = 1 + draw(3);
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, 257 * c.opts.epochs);
        uint8_t seen[3][257] = {0};
        for (uint64_t i = 0; i < run.n; i++) {
            assert_int_equal(run.row[i].epoch, i / 257);
            assert_int_equal(run.row[i].position, i % 257);
            assert_int_equal(seen[run.row[i].epoch][run.row[i].index]++, 0);
        }
        run_free(&run);
    }
}

static struct run_config shuffled(void)
{
    struct run_config c = run_config(SET);
    c.sampler = "random";
    c.sampler_seed = 5;
    c.chain = CHAIN;
    c.opts.seed = 9;
    c.opts.epochs = 2;
    c.opts.batch_size = 32;
    return c;
}

static void same_bits_for_any_workers_and_prefetch(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    c.opts.workers = 1;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, 0);
    for (int round = 0; round < 12; round++) {
        c.opts.workers = 1 + draw(6);
        c.opts.prefetch = 1 + draw(8);
        c.device = draw(3) ? "cpu" : "sim:h2d=20,latency=1us";
        c.opts.pin = (int)draw(2);
        c.opts.blocking = draw(3) == 0;
        c.opts.streams = 1 + draw(4);
        c.hold = draw(2) ? draw(20) : 0;
        struct run other = run_loader(&c);
        assert_same_rows(&one, &other);
        run_free(&other);
    }
    run_free(&one);
}

static void the_seeds_select_order_and_augmentation(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    struct run a = run_loader(&c);
    c.opts.seed++;
    struct run b = run_loader(&c);
    c.sampler_seed++;
    struct run d = run_loader(&c);
    uint64_t same_order = 0, same_bits = 0, same_order_d = 0, same_epochs = 0;
    for (uint64_t i = 0; i < a.n; i++) {
        same_order += a.row[i].index == b.row[i].index;
        same_bits += a.row[i].hash == b.row[i].hash;
        same_order_d += a.row[i].index == d.row[i].index;
        same_epochs += a.row[i].index == a.row[(i + 1003) % a.n].index;
    }
    assert_int_equal(same_order, a.n);
    assert_true(same_bits < a.n / 2); /* 4 x 2 crops and flips: 1/16 would be alike by chance */
    assert_true(same_order_d < 20);
    assert_true(same_epochs < 20);
    run_free(&a);
    run_free(&b);
    run_free(&d);
}

/* Two ranks, interleaved row by row, are one process. */
static void ranks_share_one_order(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    c.dataset = "synthetic:n=1002,shape=3x5,dtype=u8,classes=10";
    struct run one = run_loader(&c), rank[3];
    for (uint32_t world = 2; world <= 3; world++) {
        c.opts.world = world;
        for (c.opts.rank = 0; c.opts.rank < world; c.opts.rank++)
            rank[c.opts.rank] = run_loader(&c);
        for (uint64_t i = 0; i < one.n; i++) {
            const struct row *r =
                &rank[i % 1002 % world].row[i / 1002 * (1002 / world) + i % 1002 / world];
            assert_int_equal(r->position, one.row[i].position);
            assert_int_equal(r->hash, one.row[i].hash);
        }
        for (uint32_t r = 0; r < world; r++)
            run_free(&rank[r]);
    }
    run_free(&one);
}

static void stop_and_resume_is_one_run(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    struct run whole = run_loader(&c);
    for (int round = 0; round < 20; round++) {
        c.stop_after = 1 + draw((uint32_t)whole.batches);
        c.opts.state = NULL;
        struct run first = run_loader(&c);
        c.stop_after = 0;
        c.opts.state = first.state;
        c.opts.workers = 1 + draw(4);
        struct run rest = run_loader(&c);
        assert_int_equal(rest.rc, 0);
        assert_int_equal(first.n + rest.n, whole.n);
        for (uint64_t i = 0; i < whole.n; i++) {
            const struct row *r = i < first.n ? &first.row[i] : &rest.row[i - first.n];
            assert_int_equal(r->epoch, whole.row[i].epoch);
            assert_int_equal(r->position, whole.row[i].position);
            assert_int_equal(r->hash, whole.row[i].hash);
            assert_int_equal(r->batch, whole.row[i].batch);
        }
        run_free(&first);
        run_free(&rest);
    }
    run_free(&whole);
}

/* Two ranks stop together; one process goes on: together they saw the epoch once. */
static void resume_with_another_world(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    c.opts.epochs = 1;
    struct run whole = run_loader(&c);
    c.opts.world = 2;
    c.stop_after = 5;
    struct run a = run_loader(&c);
    c.opts.rank = 1;
    struct run b = run_loader(&c);
    assert_string_equal(a.state, b.state);
    c.opts.rank = 0;
    c.opts.world = 1;
    c.stop_after = 0;
    c.opts.state = a.state;
    struct run rest = run_loader(&c);
    assert_int_equal(a.n + b.n + rest.n, whole.n);
    for (uint64_t i = 0; i < whole.n; i++) {
        const struct row *r = i >= 320 ? &rest.row[i - 320] : i % 2 ? &b.row[i / 2] : &a.row[i / 2];
        assert_int_equal(r->position, i);
        assert_int_equal(r->hash, whole.row[i].hash);
    }
    run_free(&whole);
    run_free(&a);
    run_free(&b);
    run_free(&rest);
}

/* What comes out is what the plain path makes: one sample at a time, read, then transformed. */
static void equals_the_plain_path(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    struct run run = run_loader(&c);
    struct mr_dataset *ds;
    struct mr_transform *chain;
    must(mr_dataset_open(SET, &ds));
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, CHAIN));
    const struct mr_spec specs[] = {*mr_dataset_field(ds, 0), *mr_dataset_field(ds, 1)};
    must(mr_transform_bind(chain, specs, 2));
    void *scratch = aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(chain) + 1, 64));
    for (uint64_t i = 0; i < run.n; i++) {
        unsigned char image[15];
        int64_t label;
        float out[8];
        uint64_t dim[MR_MAX_RANK];
        must(mr_dataset_read(ds, run.row[i].index, (void *const[]){image, &label}, NULL));
        must(mr_transform_apply(chain, 0, 9, run.row[i].epoch, run.row[i].index, image,
                                specs[0].dim, out, dim, scratch));
        uint64_t hash = mr_hash(mr_hash(MR_HASH_START, out, sizeof out), &label, sizeof label);
        assert_int_equal(hash, run.row[i].hash);
    }
    free(scratch);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
    run_free(&run);
}

/* A file read through every storage, cache and order gives what the array in memory gives. */
static void storages_agree(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-test-XXXXXX", uri[96];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unsigned char *bytes = malloc(3000 * 100);
    for (int i = 0; i < 3000 * 100; i++)
        bytes[i] = (unsigned char)mr_mix64((uint64_t)i);
    assert_int_equal(write(fd, bytes, 3000 * 100), 3000 * 100);
    close(fd);
    snprintf(uri, sizeof uri, "raw:%s,shape=100,dtype=u8", path);
    struct run_config c = run_config(uri);
    c.opts.epochs = 2;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        c.sampler = shuffle ? "random" : "sequential";
        for (int kind = 0; kind < 6; kind++) {
            c.opts.storage = kind % 2 || mr_uring_why_not() ? MR_STORAGE_PREAD : MR_STORAGE_URING;
            c.opts.cache = kind >= 4 ? MR_CACHE_HOST : MR_CACHE_NONE;
            c.chain = kind >= 2 ? "cast(f32)" : NULL;
            c.opts.read_ahead = draw(2) ? 1 + draw(200) : 0;
            c.opts.queue_depth = draw(2) ? 1 + draw(20) : 0;
            struct run run = run_loader(&c);
            assert_int_equal(run.rc, 0);
            assert_int_equal(run.n, 6000);
            for (uint64_t i = 0; i < run.n; i++) {
                float want[100];
                const unsigned char *row = bytes + run.row[i].index * 100;
                for (int k = 0; k < 100; k++)
                    want[k] = row[k];
                uint64_t hash =
                    c.chain ? mr_hash(MR_HASH_START, want, 400) : mr_hash(MR_HASH_START, row, 100);
                assert_int_equal(run.row[i].hash, hash);
            }
            run_free(&run);
        }
    }
    free(bytes);
    unlink(path);
}

static void *cancel_soon(void *loader)
{
    usleep(20000);
    mr_loader_cancel(loader);
    return NULL;
}

struct gate {
    _Atomic bool closing;
    _Atomic uint32_t calls;
};

static int get_slowly(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    struct gate *g = user;
    (void)dim;
    if (atomic_fetch_add(&g->calls, 1) == 0) {
        while (!atomic_load(&g->closing))
            usleep(1000);
        usleep(500000); /* close has begun */
    }
    usleep(10000);
    *(uint64_t *)row[0] = index;
    return 0;
}

/* Closing waits for the samples being made, not for all that their workers have claimed. */
static void close_between_slow_samples(void **state)
{
    (void)state;
    struct gate gate = {.closing = false};
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_loader *ld;
    mr_callback_opts_init(&o);
    o.name = "slow";
    o.n = 1024;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    o.get = get_slowly;
    o.user = &gate;
    must(mr_dataset_open_callback(&o, &ds));
    mr_loader_opts_init(&opts);
    opts.workers = 1;
    opts.batch_size = 1024;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    while (atomic_load(&gate.calls) == 0)
        usleep(1000);
    atomic_store(&gate.closing, true);
    mr_loader_close(ld);
    assert_true(atomic_load(&gate.calls) < 20);
    mr_dataset_close(ds);
}

static void cancel_and_close_at_any_moment(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    must(mr_dataset_open("synthetic:n=100000,shape=64,delay=1ms", &ds));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.epochs = 0;
    for (int round = 0; round < 20; round++) {
        opts.workers = 1 + draw(4);
        struct mr_loader *ld;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        struct mr_batch b = {.size = sizeof b};
        for (uint32_t i = draw(4); i > 0; i--)
            assert_int_equal(mr_loader_next(ld, NULL, &b), 1); /* held on purpose: at most 3 of 4 */
        mr_loader_close(ld);
    }
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, ld), 0);
    struct mr_batch b = {.size = sizeof b};
    int rc;
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
        must(mr_loader_release(ld, &b, NULL));
    assert_int_equal(rc, MR_ECANCELLED);
    assert_int_equal(mr_loader_next(ld, NULL, &b), MR_ECANCELLED);
    pthread_join(thread, NULL);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void misuse_is_told(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    must(mr_dataset_open("synthetic:n=100,shape=4", &ds));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.prefetch = 2;
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    struct mr_batch a = {.size = sizeof a}, b = {.size = sizeof b}, c = {.size = sizeof c};
    assert_int_equal(mr_loader_next(ld, NULL, &a), 1);
    assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
    /* Released out of order, the next batches still come in order. */
    must(mr_loader_release(ld, &b, NULL));
    must(mr_loader_release(ld, &a, NULL));
    assert_int_equal(mr_loader_release(ld, &a, NULL), MR_EMISUSE);
    assert_int_equal(mr_loader_next(ld, NULL, &c), 1);
    assert_int_equal(c.index, 2);
    mr_loader_close(ld);
    opts.workers = 100000;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "workers 100000: expected 0..512"));
    opts.workers = 1;
    opts.max_memory = 100;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_ELIMIT);
    assert_non_null(strstr(mr_last_error(), "2 slots x"));
    mr_dataset_close(ds);
}

static void states_are_checked(void **state)
{
    (void)state;
    struct run_config c = shuffled();
    c.stop_after = 3;
    struct run run = run_loader(&c);
    c.stop_after = 1;
    const struct {
        const char *text, *want;
    } bad[] = {
        {"", "not JSON"},
        {"[1]", "not a JSON object"},
        {"{\"millrace_state\": 99}", "version 99"},
        {"{\"millrace_state\": 1}", "\"dataset\" is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        c.opts.state = bad[i].text;
        struct run other = run_loader(&c);
        assert_int_equal(other.rc, MR_ESTATE);
        assert_non_null(strstr(other.error, bad[i].want));
        run_free(&other);
    }
    c.opts.state = run.state;
    c.dataset = "synthetic:n=1004,shape=3x5,dtype=u8,classes=10";
    struct run other = run_loader(&c);
    assert_int_equal(other.rc, MR_ESTATE);
    assert_non_null(strstr(other.error, "fingerprint"));
    c.dataset = SET;
    c.sampler = "sequential";
    other = run_loader(&c);
    assert_int_equal(other.rc, MR_ESTATE);
    assert_non_null(strstr(other.error, "the state has random"));
    assert_non_null(strstr(other.error, "this run has sequential"));
    run_free(&run);
    run_free(&other);
}

static void statistics_add_up(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    must(mr_dataset_open("synthetic:n=500,shape=16,work=200us", &ds));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 50;
    opts.workers = 2;
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    struct mr_batch b = {.size = sizeof b};
    while (mr_loader_next(ld, NULL, &b) > 0)
        must(mr_loader_release(ld, &b, NULL));
    struct mr_loader_stats st = {.size = sizeof st};
    mr_loader_stats(ld, &st);
    assert_int_equal(st.samples, 500);
    assert_int_equal(st.batches, 10);
    assert_int_equal(st.bytes, 500 * 16 * 4);
    assert_true(st.first_batch_ns > 0 && st.first_batch_ns <= st.elapsed_ns);
    assert_true(st.stage_ns[MR_STAGE_DECODE] >=
                90000000); /* 500 x 200 us of work, less the clock's grain */
    uint64_t sum = 0;
    for (int s = 0; s < MR_N_STAGES; s++)
        sum += st.stage_ns[s];
    assert_true(sum <= st.worker_ns + st.worker_ns / 10);
    assert_string_equal(st.bottleneck, "decode");
    assert_int_equal(st.wait.n, 10);
    assert_true(st.wait.p50_ns <= st.wait.p95_ns && st.wait.p95_ns <= st.wait.max_ns);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

/* Batches that were ready before the first was handed out are not in the steady rate. */
static void the_steady_rate_leaves_out_ready_batches(void **state)
{
    (void)state;
    for (int batches = 1; batches <= 12; batches++) {
        struct mr_dataset *ds;
        char uri[64];
        snprintf(uri, sizeof uri, "synthetic:n=%d,shape=4", 10 * batches);
        must(mr_dataset_open(uri, &ds));
        struct mr_loader_opts opts;
        mr_loader_opts_init(&opts);
        opts.batch_size = 10;
        opts.prefetch = 4;
        struct mr_loader *ld;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        struct mr_loader_stats st = {.size = sizeof st};
        do
            mr_loader_stats(ld, &st);
        while (st.make.n < (uint64_t)MR_MIN(batches, 4) && usleep(1000) == 0);
        struct mr_batch b = {.size = sizeof b};
        while (mr_loader_next(ld, NULL, &b) > 0)
            must(mr_loader_release(ld, &b, NULL));
        mr_loader_stats(ld, &st);
        int expected = MR_MAX(batches - 5, 0); /* the fifth begins it */
        assert_int_equal(st.warm_samples, 10 * expected);
        assert_int_equal(st.warm_ns > 0, expected > 0);
        mr_loader_close(ld);
        mr_dataset_close(ds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_once_an_epoch),
        cmocka_unit_test(same_bits_for_any_workers_and_prefetch),
        cmocka_unit_test(the_seeds_select_order_and_augmentation),
        cmocka_unit_test(ranks_share_one_order),
        cmocka_unit_test(stop_and_resume_is_one_run),
        cmocka_unit_test(resume_with_another_world),
        cmocka_unit_test(equals_the_plain_path),
        cmocka_unit_test(storages_agree),
        cmocka_unit_test(close_between_slow_samples),
        cmocka_unit_test(cancel_and_close_at_any_moment),
        cmocka_unit_test(misuse_is_told),
        cmocka_unit_test(states_are_checked),
        cmocka_unit_test(statistics_add_up),
        cmocka_unit_test(the_steady_rate_leaves_out_ready_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
