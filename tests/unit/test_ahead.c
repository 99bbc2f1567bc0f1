/* White-box. Read-ahead that nobody set grows until the latency of reads is hidden, within
 * max_memory, and no further than a link carries; what was set stays. */
#include "unit.h"

#include "loader/engine.h"
#include <millrace/dataset.h>
#include <millrace/error.h>
#include <millrace/loader.h>

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%d: %s", rc, mr_last_error());
}

/* Runs through the data set; [out] the statistics at the start and at the end. */
static void run(const char *uri, const struct mr_loader_opts *opts, struct mr_loader_stats st[2])
{
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc;
    must(mr_dataset_open(uri, &ds));
    must(mr_loader_open(ds, NULL, NULL, NULL, opts, &ld));
    st[0].size = st[1].size = sizeof st[0];
    mr_loader_stats(ld, &st[0]);
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        for (uint64_t i = 0; i < b.n; i++)
            assert_int_equal(((const uint64_t *)b.field[0].data)[i], b.indices[i]);
        n += b.n;
        must(mr_loader_release(ld, &b, NULL));
    }
    must(rc);
    assert_int_equal(n, mr_dataset_length(ds));
    mr_loader_stats(ld, &st[1]);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

#define SLOW "synthetic:n=30000,shape=,dtype=u64,values=index,delay=60ms"

static void it_grows_with_the_latency(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        struct mr_loader_opts opts;
        struct mr_loader_stats st[2];
        mr_loader_opts_init(&opts);
        opts.workers = workers;
        opts.prefetch = 4; /* little ahead at the start: any machine's pace is beyond it */
        run(SLOW, &opts, st);
        print_message("%u workers: ahead %llu -> %llu, latency %.1f ms\n", workers,
                      (unsigned long long)st[0].read_ahead, (unsigned long long)st[1].read_ahead,
                      (double)st[1].read_latency_ns / 1e6);
        assert_true(st[1].read_ahead >= 2 * st[0].read_ahead);
        assert_true(st[1].queue_depth >= st[1].read_ahead / 2);
        assert_true(st[1].read_latency_ns >= 60000000);
    }
}

static void what_was_set_stays(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    struct mr_loader_stats st[2];
    mr_loader_opts_init(&opts);
    opts.workers = 2;
    opts.read_ahead = 4096;
    opts.queue_depth = 3000;
    run(SLOW, &opts, st);
    assert_int_equal(st[0].read_ahead, 4096);
    assert_int_equal(st[1].read_ahead, 4096);
    assert_int_equal(st[1].queue_depth, 3000);
}

/* ---- a link ---- */

#define IN_FLIGHT 4096
#define WORKERS   2

/* Workers that read by a link of some reads a second, which come after a round trip. They make
 * samples faster than any link, so that they always wait for reads. */
struct link {
    struct mr_loader ld;
    struct mr_worker worker[WORKERS];
    double now_s, free_s; /* free: when the link has sent all before */
    double begun[IN_FLIGHT], due[IN_FLIGHT];
    int of[IN_FLIGHT]; /* which worker's */
    uint64_t n_begun, n_landed, n_of[WORKERS];
    double jitter; /* the link's rate varies by such a share, in parts of a period */
};

static struct link *link_make(double jitter)
{
    struct link *k = calloc(1, sizeof *k);
    assert_non_null(k);
    k->jitter = jitter;
    k->ld.sizes.remote = true;
    k->ld.workers.n = WORKERS;
    k->ld.workers.worker = k->worker;
    atomic_init(&k->ld.workers.n_active, WORKERS);
    k->ld.sizes.run_rows = 1;
    k->ld.sizes.sample_reads = 1;
    k->ld.sizes.start_depth = k->ld.sizes.start_runs = 64;
    k->ld.sizes.depth = k->ld.sizes.reader_depth = k->ld.sizes.runs_per_worker = IN_FLIGHT;
    for (uint32_t i = 0; i < WORKERS; i++) {
        k->worker[i].ld = &k->ld;
        k->worker[i].id = i;
        mr_ahead_init(&k->worker[i]);
    }
    return k;
}

static uint32_t depth_of(struct link *k)
{
    uint32_t n = 0;
    for (int i = 0; i < WORKERS; i++)
        n += atomic_load(&k->worker[i].ahead.depth);
    return n;
}

/* How long the link takes for the next read. Its rate is another one each 100 ms. */
static double one_read_s(const struct link *k, double rate)
{
    uint32_t out[4];
    mr_draw4(7, MR_DRAW_VALUES, (uint32_t)(k->now_s * 10), 0, 0, out);
    return (1 + k->jitter * (2 * (double)out[0] / UINT32_MAX - 1)) / rate;
}

static void begin_reads(struct link *k, double rate, double round_trip_s)
{
    for (int w = 0; w < WORKERS; w++)
        while (k->n_of[w] < atomic_load(&k->worker[w].ahead.depth)) {
            uint64_t i = k->n_begun++ % IN_FLIGHT;
            k->begun[i] = k->now_s;
            k->of[i] = w;
            k->n_of[w]++;
            k->free_s = MR_MAX(k->free_s, k->now_s + round_trip_s) + one_read_s(k, rate);
            k->due[i] = k->free_s;
        }
}

/* Returns reads a second. */
static double link_run(struct link *k, double seconds, double rate, double round_trip_s)
{
    double end_s = k->now_s + seconds;
    uint64_t before = k->n_landed;
    while (k->now_s < end_s) {
        begin_reads(k, rate, round_trip_s);
        uint64_t i = k->n_landed++ % IN_FLIGHT;
        struct mr_worker *w = &k->worker[k->of[i]];
        k->n_of[k->of[i]]--;
        k->now_s = MR_MAX(k->now_s, k->due[i]);
        w->n_samples++;
        mr_count(&w->made_ns, 1000);
        w->ahead.starved = true;
        mr_ahead_landed(w, 1, (uint64_t)((k->now_s - k->begun[i]) * 1e9),
                        (uint64_t)(k->now_s * 1e9) + 1);
    }
    return (double)(k->n_landed - before) / seconds;
}

/* Links that carry from 5 to 2,500 reads in a round trip: they are full, and never by more reads
 * than a few times what they carry, or what is read ahead at the start; also where their rate
 * varies by a fifth. */
static void it_fills_a_link_and_not_its_queue(void **state)
{
    (void)state;
    static const struct {
        double rate, round_trip_s;
    } links[] = {{250, 0.02},   {250, 0.05},   {1250, 0.02}, {1250, 0.05},
                 {12500, 0.02}, {12500, 0.05}, {50000, 0.05}};
    for (size_t i = 0; i < 2 * MR_COUNT(links); i++) {
        double rate = links[i / 2].rate, trip = links[i / 2].round_trip_s, carries = rate * trip;
        struct link *k = link_make(i % 2 ? 0.2 : 0);
        link_run(k, 4, rate, trip); /* of growth, and its trials */
        double got = link_run(k, 30, rate, trip);
        print_message("%.0f/s%s, %.0f ms: %.0f in flight carry it; %u in flight, %.1f%%\n", rate,
                      i % 2 ? " on average" : "", trip * 1e3, carries, depth_of(k),
                      100 * got / rate);
        assert_true(got >= (i % 2 ? 0.92 : 0.95) * rate);
        assert_true(depth_of(k) <= MR_MAX(4 * carries, 192));
        free(k);
    }
}

/* A link that becomes ten times slower: what is in flight falls again. */
static void it_falls_with_the_rate(void **state)
{
    (void)state;
    struct link *k = link_make(0);
    link_run(k, 10, 20000, 0.05);
    uint32_t most = depth_of(k);
    double rate = link_run(k, 120, 2000, 0.05);
    uint32_t depth = depth_of(k);
    print_message("20,000/s: %u in flight; 2,000/s: %u, %.0f/s\n", most, depth, rate);
    assert_true(most >= 900);
    assert_true(depth < most / 2);
    assert_true(rate >= 0.95 * 2000);
    free(k);
}

/* A worker has what the others have: none grows at their cost. */
static void workers_share_alike(void **state)
{
    (void)state;
    struct link *k = link_make(0.2);
    for (int i = 0; i < 40; i++) {
        link_run(k, 0.5, 1250, 0.02);
        assert_int_equal(atomic_load(&k->worker[0].ahead.depth),
                         atomic_load(&k->worker[1].ahead.depth));
    }
    free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_with_the_latency), cmocka_unit_test(what_was_set_stays),
        cmocka_unit_test(it_fills_a_link_and_not_its_queue),
        cmocka_unit_test(it_falls_with_the_rate), cmocka_unit_test(workers_share_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
