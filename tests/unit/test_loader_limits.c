/* What a review of the loader found once, and must not come back. */
#include "run_loader.h"

#include <unistd.h>

static struct mr_dataset *open_set(const char *uri)
{
    struct mr_dataset *ds;
    must(mr_dataset_open(uri, &ds));
    return ds;
}

/* A batch kept while others go round stops nothing. */
static void a_held_batch_stops_nothing(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_set("synthetic:n=100,shape=4");
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 10;
    opts.prefetch = 3;
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    struct mr_batch kept = {.size = sizeof kept}, b = {.size = sizeof b},
                    copy = {.size = sizeof copy};
    assert_int_equal(mr_loader_next(ld, NULL, &kept), 1);
    for (uint64_t i = 1; i < 6; i++) {
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        assert_int_equal(b.index, i);
        must(mr_loader_release(ld, &b, NULL));
    }
    assert_int_equal(kept.indices[9], 9);
    copy = kept;
    must(mr_loader_release(ld, &kept, NULL));
    assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
    assert_int_equal(b.index, 6);
    /* An old copy of a batch cannot release the slot's newer one. */
    assert_int_equal(mr_loader_release(ld, &copy, NULL), MR_EMISUSE);
    must(mr_loader_release(ld, &b, NULL));
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void a_chain_serves_one_loader(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_set("synthetic:n=100,shape=4,dtype=u8");
    struct mr_transform *chain;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "cast(f32)"));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    struct mr_loader *a, *b;
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &a));
    assert_int_equal(mr_loader_open(ds, NULL, chain, NULL, &opts, &b), MR_EMISUSE);
    assert_int_equal(mr_transform_add(chain, "scale(2)"), MR_EMISUSE);
    mr_loader_close(a);
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &b));
    mr_loader_close(b);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
}

/* 100,000 samples in one batch, half of them bad: seconds if it is not quadratic, which the test's
 * time limit tells. */
static void skip_in_a_large_batch(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=100000,shape=1,classes=10");
    c.chain = "label.one_hot(5)";
    c.opts.bad = MR_BAD_SKIP;
    c.opts.batch_size = 100000;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_true(run.n > 40000 && run.n < 60000);
    for (uint64_t i = 1; i < run.n; i++)
        assert_true(run.row[i].position > run.row[i - 1].position);
    run_free(&run);
}

static int every_hundredth(void *user, uint64_t index, void *const row[],
                           uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    *(uint8_t *)row[0] = 1;
    return index % 100 == 7 ? mr_error_set(MR_EFORMAT, "bad on purpose") : 0;
}

/* A limit as a fraction holds for a resumed run as for a whole one; what was not handed out is not
 * counted twice. */
static void limits_after_a_resume(void **state)
{
    (void)state;
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "some bad";
    o.n = 10000;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8};
    o.get = every_hundredth;
    struct run_config c = run_config(NULL);
    must(mr_dataset_open_callback(&o, &c.ds));
    c.opts.bad = MR_BAD_SKIP;
    c.opts.max_bad_fraction = 0.03;
    c.stop_after = 120;
    struct run first = run_loader(&c);
    c.stop_after = 0;
    c.opts.state = first.state;
    struct run rest = run_loader(&c);
    assert_int_equal(rest.rc, 0);
    assert_int_equal(first.n + rest.n, 9900);
    c.opts.state = NULL;
    c.opts.max_bad_fraction = 0;
    c.opts.max_bad = 10;
    struct run ended = run_loader(&c);
    assert_int_equal(ended.rc, MR_EBADSAMPLES);
    char state_then[1024];
    memcpy(state_then, ended.state, sizeof state_then);
    c.opts.state = state_then;
    struct run again = run_loader(&c);
    assert_int_equal(again.rc, MR_EBADSAMPLES);
    assert_string_equal(again.state, state_then);
    c.opts.max_bad = 100;
    struct run enough = run_loader(&c);
    assert_int_equal(enough.rc, 0);
    struct run *all[] = {&first, &rest, &ended, &again, &enough};
    for (int i = 0; i < 5; i++)
        run_free(all[i]);
    mr_dataset_close(c.ds);
}

/* 4 MiB in a file of its own, in samples of 1 KiB. [out] path: a template for mkstemp(). */
static struct mr_dataset *open_zeros(char *path)
{
    char uri[96];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4 << 20), 0);
    close(fd);
    snprintf(uri, sizeof uri, "raw:%s,shape=1024,dtype=u8", path);
    return open_set(uri);
}

/* Two loaders of one cached data set need its memory once; chosen numbers give way to the
 * ceiling. */
static void one_cache_for_two_loaders(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-test-XXXXXX";
    struct mr_dataset *ds = open_zeros(path);
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.cache = MR_CACHE_HOST;
    opts.max_memory = 6 << 20;
    for (int i = 0; i < 2; i++) {
        struct mr_loader *ld;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        struct mr_batch b = {.size = sizeof b};
        while (mr_loader_next(ld, NULL, &b) > 0)
            must(mr_loader_release(ld, &b, NULL));
        mr_loader_close(ld);
    }
    mr_dataset_close(ds);
    unlink(path);
}

/* A budget reserves the cache and the slots that a loader begins with: those that further batches
 * ahead may need leave the cache alone. */
static void a_cache_in_a_budget(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-test-XXXXXX";
    struct mr_dataset *ds = open_zeros(path);
    struct mr_budget_opts budget_opts;
    struct mr_budget *budget;
    mr_budget_opts_init(&budget_opts);
    budget_opts.workers = 2;
    budget_opts.max_memory = 64 << 20;
    must(mr_budget_create(&budget_opts, &budget));
    for (uint32_t world = 1; world <= 2; world++) {
        struct mr_loader_opts opts;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        mr_loader_opts_init(&opts);
        opts.cache = MR_CACHE_HOST;
        opts.budget = budget;
        opts.world = world;
        opts.prefetch = 4;
        opts.max_prefetch = 64;
        opts.batch_size = 128;
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        int rc;
        while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
            must(mr_loader_release(ld, &b, NULL));
        must(rc);
        mr_loader_close(ld);
    }
    mr_budget_destroy(budget);
    mr_dataset_close(ds);
    unlink(path);
}

/* What the sum of a refused ceiling has for the indexes of a data set. */
static uint64_t refused_indexes(const char *uri, uint32_t workers)
{
    static const char part[] = "indexes or row groups of the data set ";
    struct mr_dataset *ds = open_set(uri);
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    mr_loader_opts_init(&opts);
    opts.max_memory = 1;
    opts.workers = workers;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_ELIMIT);
    const char *at = strstr(mr_last_error(), part);
    assert_non_null(at);
    mr_dataset_close(ds);
    return strtoull(at + strlen(part), NULL, 10);
}

/* Records without bytes: a length of 0, its checksum, and that of nothing. */
static void write_records(const char *path, int n)
{
    const unsigned char length[8] = {0};
    uint32_t sum = mr_crc32c(length, sizeof length), nothing = 0xa282ead8u;
    sum = (sum >> 15 | sum << 17) + 0xa282ead8u;
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fwrite(length, 1, sizeof length, file), sizeof length);
        assert_int_equal(fwrite(&sum, 1, sizeof sum, file), sizeof sum);
        assert_int_equal(fwrite(&nothing, 1, sizeof nothing, file), sizeof nothing);
    }
    assert_int_equal(fclose(file), 0);
}

/* A ceiling counts the index of a data set, 8 bytes a record here, for each part of a mixture,
 * whatever the number of workers. */
static void ceiling_counts_indexes(void **state)
{
    char path[] = "/tmp/millrace-test-XXXXXX", uri[160], mix[512];
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(uri, sizeof uri, "tfrecord:%s,index=none,features=none", path);
    snprintf(mix, sizeof mix, "mix:1*[%s],1*[%s]", uri, uri);
    write_records(path, 100);
    uint64_t few = refused_indexes(uri, 1);
    assert_true(few >= 100 * 8 && few < 100 * 8 + 4096);
    assert_int_equal(refused_indexes(mix, 1), 2 * few);
    write_records(path, 5100);
    assert_int_equal(refused_indexes(uri, 1), few + UINT64_C(5000) * 8);
    assert_int_equal(refused_indexes(uri, 4), few + UINT64_C(5000) * 8);
    assert_int_equal(refused_indexes("synthetic:n=100", 1), 0);
    unlink(path);
}

static uint64_t anonymous_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "RssAnon: %llu kB", &kib) != 1)
        ;
    fclose(f);
    return kib << 10;
}

/* Reads ahead touch no more memory than the statistics say: not, in time, all that they might grow
 * to. */
static void what_is_touched_is_what_is_said(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they keep memory of their own, as large */
#endif
    char path[] = "/tmp/millrace-test-XXXXXX", uri[96];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1500ll << 18), 0); /* holes */
    close(fd);
    snprintf(uri, sizeof uri, "raw:%s,shape=512x512,dtype=u8", path);
    struct mr_dataset *ds = open_set(uri);
    struct mr_sampler *order;
    struct mr_transform *chain; /* so that reads do not go straight into their rows */
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "vflip(1)"));
    must(mr_sampler_open("random", 1500, 1, &order));
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 4;
    opts.prefetch = 2;
    opts.workers = 1;
    uint64_t before = anonymous_bytes(), touched = 0;
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    must(mr_loader_open(ds, order, chain, NULL, &opts, &ld));
    while (mr_loader_next(ld, NULL, &b) > 0) {
        uint64_t now = b.index % 50 == 49 ? anonymous_bytes() : 0;
        touched = MR_MAX(touched, now > before ? now - before
                                               : 0); /* what was there before may go to the swap */
        must(mr_loader_release(ld, &b, NULL));
    }
    mr_loader_stats(ld, &st);
    assert_in_range(touched, 1, st.pageable_bytes + st.pinned_bytes + (16 << 20));
    mr_loader_close(ld);
    mr_transform_destroy(chain);
    mr_sampler_destroy(order);
    mr_dataset_close(ds);
    unlink(path);
}

/* Two samples of 1 MiB a batch on a simulated device: each slot has page-locked memory of its own.
 * At most n_held of them have any. [out] n: batches that came and were right. Returns what ended
 * the run. */
#define SLOT_BYTES (2u << 20)
static int run_large(const struct mr_loader_opts *opts, uint32_t n_held, uint64_t *n)
{
    struct mr_dataset *ds = open_set("synthetic:n=40,shape=1048576,dtype=u8,values=index");
    struct mr_device *dev;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    int rc;
    must(mr_device_open("sim:h2d=1000", &dev));
    mr_memory_set_limit(dev, (uint64_t)(opts->prefetch + n_held) * SLOT_BYTES);
    must(mr_loader_open(ds, NULL, NULL, dev, opts, &ld));
    for (*n = 0; (rc = mr_loader_next(ld, NULL, &b)) > 0; ++*n) {
        assert_int_equal(b.n, 2);
        for (uint64_t r = 0; r < 2; r++) {
            const uint8_t *row = (const uint8_t *)b.field[0].data + r * (SLOT_BYTES / 2);
            assert_true(!opts->in_order || b.indices[r] == 2 * *n + r);
            assert_int_equal(row[0], b.indices[r]);
            assert_int_equal(row[SLOT_BYTES / 2 - 1], b.indices[r]);
        }
        must(mr_loader_release(ld, &b, NULL));
    }
    if (rc < 0)
        assert_int_equal(mr_loader_next(ld, NULL, &b), rc); /* and stays */
    mr_loader_close(ld);
    mr_device_close(dev);
    mr_dataset_close(ds);
    return rc;
}

/* Slots get page-locked memory one after the other. Who lacks it gets the reason, not a wait. */
static void large_slots_get_memory_when_used(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    uint64_t n;
    mr_loader_opts_init(&opts);
    opts.batch_size = 2;
    for (opts.workers = 1; opts.workers <= 3; opts.workers += 2)
        for (opts.prefetch = 1; opts.prefetch <= 4; opts.prefetch++)
            for (opts.in_order = 0; opts.in_order <= 1; opts.in_order++) {
                assert_int_equal(run_large(&opts, opts.prefetch, &n), 0);
                assert_int_equal(n, 20);
                if (opts.prefetch == 1)
                    continue;
                assert_int_equal(run_large(&opts, opts.prefetch - 1, &n), MR_ELIMIT);
                assert_true(strstr(mr_last_error(), "over the limit"));
                assert_true(!opts.in_order || n == opts.prefetch - 1);
            }
}

static void closing_does_not_wait_for_latency(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_set("synthetic:n=1000,shape=4,delay=5h");
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    struct mr_loader *ld;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    usleep(20000);
    mr_loader_close(ld); /* the test's time limit is shorter than the delay */
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_batch_stops_nothing),
        cmocka_unit_test(a_chain_serves_one_loader),
        cmocka_unit_test(skip_in_a_large_batch),
        cmocka_unit_test(limits_after_a_resume),
        cmocka_unit_test(one_cache_for_two_loaders),
        cmocka_unit_test(a_cache_in_a_budget),
        cmocka_unit_test(ceiling_counts_indexes),
        cmocka_unit_test(what_is_touched_is_what_is_said),
        cmocka_unit_test(large_slots_get_memory_when_used),
        cmocka_unit_test(closing_does_not_wait_for_latency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
