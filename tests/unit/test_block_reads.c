/* White-box. An order by blocks reads each block by one request, for every format, number of ranks
 * and cache, and its batches are those of local files. */
#include "remote.h"

#include "npy_write.h"
#include "run_loader.h"
#include "storage/ranges.h"
#include "tar_write.h"

#include <ftw.h>

enum { N = 700, BYTES = 4096, BLOCK = 16, WINDOW = 3, BLOCKS = (N + BLOCK - 1) / BLOCK };

static char cache_dir[300];

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* 0: no cache. */
static void begin(uint64_t cache)
{
    snprintf(cache_dir, sizeof cache_dir, "%s-cache", test_dir);
    nftw(cache_dir, drop, 16, FTW_PHYS | FTW_DEPTH);
    quick_options(3, cache ? cache_dir : NULL, cache);
}

static void write_records(const char *name, const void *head, size_t n_head)
{
    uint8_t *all = malloc(n_head + N * BYTES);
    assert_non_null(all);
    memcpy(all, head, n_head);
    memcpy(all + n_head, big, N * BYTES);
    test_write(name, all, n_head + N * BYTES);
    free(all);
}

static void write_tar(const char *name)
{
    struct tar_text t = {0};
    char member[32];
    for (uint32_t i = 0; i < N; i++) {
        snprintf(member, sizeof member, "%06u.x.npy", i);
        tar_add_npy(&t, member, "|u1", "False", "4096,", big + i * BYTES, BYTES);
        snprintf(member, sizeof member, "%06u.cls", i);
        tar_add_text(&t, member, i % 3 ? "1" : "2");
    }
    tar_end(&t);
    test_write(name, t.data, t.n);
    free(t.data);
}

static int setup(void **state)
{
    int rc = remote_setup(state);
    if (rc)
        return rc;
    char npy[NPY_HEAD_BYTES], shape[40];
    snprintf(shape, sizeof shape, "%d, %d", N, BYTES);
    write_records("x.raw", "", 0);
    write_records("x.npy", npy, npy_put(npy, "|u1", "False", shape));
    write_records("x-idx3-ubyte", "\0\0\x08\3\0\0\2\xbc\0\0\0\x40\0\0\0\x40", 16);
    write_tar("x.tar");
    return 0;
}

/* What is before and after the place of the file. */
static const char *const formats[][3] = {{"raw:", "x.raw", ",shape=4096,dtype=u8"},
                                         {"npy:", "x.npy", ""},
                                         {"idx:", "x-idx3-ubyte", ""},
                                         {"tar:", "x.tar", ",index=none"}};

static const char *uri_of(int format, const char *place)
{
    static char text[2][600];
    static int next;
    char *to = text[next++ % 2];
    snprintf(to, sizeof text[0], "%s%s%s", formats[format][0], place, formats[format][2]);
    return to;
}

static struct mr_dataset *open_remote(int format, const char *way)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", way, formats[format][1]);
    return test_open(uri_of(format, url(path)));
}

/* A run by blocks; few samples are read ahead, so that blocks come and go. */
static struct run_config by_blocks(struct mr_dataset *ds, uint32_t rank, uint32_t world)
{
    struct run_config c = run_config(NULL);
    static char sampler[64];
    snprintf(sampler, sizeof sampler, "random:block=%d,window=%d", BLOCK, WINDOW);
    c.ds = ds;
    c.sampler = sampler;
    c.sampler_seed = 5;
    c.opts.batch_size = 16;
    c.opts.epochs = 2;
    c.opts.read_ahead = 32;
    c.opts.prefetch = 2;
    c.opts.rank = rank;
    c.opts.world = world;
    c.opts.remainder = MR_REMAINDER_EXACT;
    return c;
}

/* Requests that a run takes, without opening the set. */
static long requests(const struct run_config *c, struct run *run)
{
    long before = server_count("requests");
    *run = run_loader(c);
    assert_int_equal(run->rc, c->stop_after ? 1 : 0);
    return server_count("requests") - before - 1; /* which was one, too */
}

static void assert_equal_runs(const struct run_config *c, const struct run *run, int format)
{
    struct run_config here = *c;
    here.ds = test_open(uri_of(format, test_path(formats[format][1])));
    here.opts.storage = MR_STORAGE_PREAD; /* valgrind knows nothing of io_uring's reads */
    struct run local = run_loader(&here);
    assert_same_rows(run, &local);
    run_free(&local);
    mr_dataset_close(here.ds);
}

#define SOME_CACHE (2ull << 20) /* less than the set has */

static void each_block_is_one_request(void **state)
{
    (void)state;
    for (int format = 0; format < (int)MR_COUNT(formats); format++) {
        for (uint32_t world = 1, rank = 0; world <= 4; world *= 2, rank = world - 1) {
            for (uint64_t cache = 0; cache <= SOME_CACHE; cache += SOME_CACHE) {
                struct run run;
                begin(cache);
                struct mr_dataset *ds = open_remote(format, "ok");
                struct run_config c = by_blocks(ds, rank, world);
                long n = requests(&c, &run);
                if (n > 2 * BLOCKS + 1) /* a cache asks once what the object is */
                    fail_msg("%s, rank %u of %u, cache %llu: %ld requests for %d blocks",
                             formats[format][0], rank, world, (unsigned long long)cache, n,
                             2 * BLOCKS);
                assert_true(cache || n >= BLOCKS);
                assert_equal_runs(&c, &run, format);
                run_free(&run);
                mr_dataset_close(ds);
            }
        }
    }
}

/* A resumed run reads the blocks of the windows from its position on. */
static void a_resumed_run_too(void **state)
{
    (void)state;
    for (uint64_t cache = 0; cache <= SOME_CACHE; cache += SOME_CACHE) {
        struct run first, rest;
        begin(cache);
        struct mr_dataset *ds = open_remote(0, "ok");
        struct run_config c = by_blocks(ds, 0, 1);
        c.opts.epochs = 1;
        c.stop_after = 25;
        requests(&c, &first);
        uint64_t windows = 25 * 16 / (BLOCK * WINDOW);
        c.stop_after = 0;
        c.opts.state = first.state;
        long n = requests(&c, &rest);
        assert_true(n <= BLOCKS - (long)windows * WINDOW + 1);
        assert_equal_runs(&c, &rest, 0);
        run_free(&first);
        run_free(&rest);
        mr_dataset_close(ds);
    }
}

/* A tar file whose index must be made first: a request for each MiB, not for each header. */
static void a_scan_reads_pieces(void **state)
{
    (void)state;
    struct run run;
    begin(SOME_CACHE);
    long before = server_count("requests");
    struct mr_dataset *ds = open_remote(3, "ok");
    long opening = server_count("requests") - before - 1;
    assert_true(opening <= 16); /* 4 MB; a few to look at it */
    struct run_config c = by_blocks(ds, 0, 1);
    assert_true(requests(&c, &run) <= 2 * BLOCKS + 1);
    run_free(&run);
    mr_dataset_close(ds);
}

/* Memory for no block, or for some: samples are read one by one, and are the same. */
static void little_memory_costs_requests_only(void **state)
{
    (void)state;
    struct run run;
    begin(0);
    struct mr_dataset *ds = open_remote(0, "ok");
    struct run_config c = by_blocks(ds, 0, 1);
    c.opts.epochs = 1;
    c.opts.max_memory = 700000;
    assert_true(requests(&c, &run) > N / 2); /* a few samples follow each other */
    assert_equal_runs(&c, &run, 0);
    run_free(&run);
    mr_dataset_close(ds);
}

/* Blocks of ranks: of more than 8 ranks, with any size of samples, each block is one request of one
 * rank, besides those that are cut; all ranks together have each sample once in an epoch. */
static void blocks_of_ranks_are_one_request_of_all(void **state)
{
    (void)state;
    enum { WORLD = 12 };
    char sampler[100];
    static uint8_t seen[2][N];
    memset(seen, 0, sizeof seen);
    long total = 0;
    begin(0);
    struct mr_dataset *ds = open_remote(0, "ok");
    snprintf(sampler, sizeof sampler, "random:block=%d,window=%d,nodes=%d,ranks=%d", BLOCK, WINDOW,
             WORLD, WORLD);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        struct run run;
        struct run_config c = by_blocks(ds, rank, WORLD);
        c.sampler = sampler;
        total += requests(&c, &run);
        for (uint64_t i = 0; i < run.n; i++)
            assert_int_equal(seen[run.row[i].epoch][run.row[i].index]++, 0);
        assert_equal_runs(&c, &run, 0);
        run_free(&run);
    }
    for (int i = 0; i < 2 * N; i++)
        assert_int_equal(seen[i / N][i % N], 1);
    assert_true(total <= 2 * (BLOCKS + WORLD - 1));
    mr_dataset_close(ds);
}

/* Another number of ranks that goes on in the order of 16: it reads from 16 windows in turn, and
 * still each block, besides those that are cut between nodes, by one request. */
static void one_rank_in_the_order_of_many(void **state)
{
    (void)state;
    enum { SMALL = 256, ALL = N * BYTES / SMALL, OF_SMALL = ALL / 32, NODES = 16 };
    char uri[600];
    struct run run;
    begin(0);
    snprintf(uri, sizeof uri, "raw:%s,shape=%d,dtype=u8", url("ok/x.raw"), SMALL);
    struct mr_dataset *ds = test_open(uri);
    struct run_config c = by_blocks(ds, 0, 1);
    c.sampler = "random:block=32,window=8,nodes=16,ranks=16";
    c.opts.epochs = 1;
    long n = requests(&c, &run);
    assert_int_equal(run.n, ALL);
    if (n > OF_SMALL + NODES - 1)
        fail_msg("%ld requests for %d blocks", n, OF_SMALL);
    run_free(&run);
    mr_dataset_close(ds);
}

/* What a node has cached in the first epoch is all that it reads in later ones. */
static void caches_of_nodes_serve_later_epochs(void **state)
{
    (void)state;
    char sampler[100];
    long n[2];
    for (uint32_t nodes = 0; nodes < 5; nodes += 4) {
        for (int epochs = 1; epochs <= 3; epochs += 2) {
            struct run run;
            begin(16ull << 20);
            struct mr_dataset *ds = open_remote(0, "ok");
            struct run_config c = by_blocks(ds, 2, 4);
            snprintf(sampler, sizeof sampler, "random:block=%d,window=%d,nodes=%u,ranks=%u", BLOCK,
                     WINDOW, nodes, nodes);
            c.sampler = sampler;
            c.opts.epochs = (uint64_t)epochs;
            n[epochs / 2] = requests(&c, &run);
            run_free(&run);
            mr_dataset_close(ds);
        }
        if (nodes > 0)
            assert_true(n[0] <= BLOCKS / 4 + 3);
        if (n[1] >= 2 * n[0]) /* without a cache it is three times */
            fail_msg("%u nodes: %ld requests in one epoch, %ld in three", nodes, n[0], n[1]);
    }
}

/* The same world goes on where it was; another one is refused, unless the order is kept. */
static void runs_of_nodes_resume(void **state)
{
    (void)state;
    char sampler[100], other[100];
    begin(0);
    struct mr_dataset *ds = test_open(uri_of(0, test_path("x.raw")));
    snprintf(sampler, sizeof sampler, "random:block=%d,window=%d,nodes=2,ranks=4", BLOCK, WINDOW);
    snprintf(other, sizeof other, "random:block=%d,window=%d,nodes=2,ranks=6", BLOCK, WINDOW);
    struct run_config c = by_blocks(ds, 1, 4);
    c.sampler = sampler;
    struct run whole = run_loader(&c);
    c.stop_after = 5;
    struct run first = run_loader(&c), rest;
    c.stop_after = 0;
    c.opts.state = first.state;
    rest = run_loader(&c);
    assert_int_equal(first.n + rest.n, whole.n);
    for (uint64_t i = 0; i < rest.n; i++)
        assert_int_equal(rest.row[i].index, whole.row[first.n + i].index);
    run_free(&rest);
    c.sampler = other;
    c.opts.world = 6;
    rest = run_loader(&c);
    assert_int_equal(rest.rc, MR_ESTATE);
    assert_non_null(strstr(rest.error, "keep the state's"));
    run_free(&rest);
    /* nodes and ranks are not to blame for another seed */
    struct run_config seeded = c;
    seeded.sampler = sampler;
    seeded.sampler_seed++;
    rest = run_loader(&seeded);
    assert_int_equal(rest.rc, MR_ESTATE);
    assert_null(strstr(rest.error, "keep the state's"));
    run_free(&rest);
    /* in the old order with 6 ranks: all of them together have what is left, once */
    static uint8_t seen[N];
    memset(seen, 0, sizeof seen);
    struct run_config all = by_blocks(ds, 0, 1);
    all.sampler = sampler;
    all.opts.epochs = 1;
    all.opts.batch_size = 4 * 16;
    all.stop_after = 5;
    struct run before = run_loader(&all);
    for (uint64_t i = 0; i < before.n; i++)
        seen[before.row[i].index]++;
    c.sampler = sampler;
    c.opts.epochs = 1;
    for (uint32_t rank = 0; rank < 6; rank++) {
        c.opts.rank = rank;
        rest = run_loader(&c);
        assert_int_equal(rest.rc, 0);
        for (uint64_t i = 0; i < rest.n; i++)
            seen[rest.row[i].index]++;
        run_free(&rest);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    run_free(&before);
    run_free(&whole);
    run_free(&first);
    mr_dataset_close(ds);
}

/* A server that refuses long ranges: their samples are read one by one. */
static void what_a_range_cannot_have_is_read_alone(void **state)
{
    (void)state;
    begin(0);
    struct mr_dataset *ds = open_remote(0, "large");
    struct run_config c = by_blocks(ds, 0, 1);
    c.opts.epochs = 1;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_equal_runs(&c, &run, 0);
    run_free(&run);
    mr_dataset_close(ds);
}

/* ---- the table ---- */

static uint32_t n_ended;

static void count_end(struct mr_read *read)
{
    (void)read;
    n_ended++;
}

static enum mr_range_claim claim(struct mr_ranges *ranges, struct mr_read *read, uint64_t range,
                                 uint64_t turn, struct mr_file_range **out)
{
    static uint8_t to[10];
    *read = (struct mr_read){.range_at = range, .range_bytes = 100, .turn = turn};
    read->at = range + 5;
    read->want = 10;
    read->to = to;
    return mr_ranges_claim(ranges, read, out);
}

static void ranges_stay_within_their_limit(void **state)
{
    (void)state;
    struct mr_read read[4];
    struct mr_file_range *range[2], *none;
    struct mr_ranges *ranges = mr_ranges_create(200);
    assert_non_null(ranges);
    assert_int_equal(claim(ranges, &read[0], 0, 1, &range[0]), MR_RANGE_FETCH);
    assert_int_equal(claim(ranges, &read[1], 0, 1, &none), MR_RANGE_WAITS);
    assert_int_equal(claim(ranges, &read[2], 100, 2, &range[1]), MR_RANGE_FETCH);
    assert_int_equal(claim(ranges, &read[3], 200, 3, &none), MR_RANGE_ALONE); /* both are loading */
    assert_true(read[1].shared && !read[0].shared && !read[3].shared);
    memset(range[0]->data, 7, 100);
    mr_ranges_fetched(ranges, range[0], 0, count_end);
    assert_int_equal(n_ended, 2);
    assert_int_equal(*(uint8_t *)read[0].to, 7);
    assert_int_equal(claim(ranges, &read[3], 0, 1, &none), MR_RANGE_COPIED);
    assert_int_equal(claim(ranges, &read[3], 200, 1, &none), MR_RANGE_ALONE); /* wanted this turn */
    mr_ranges_fetched(ranges, range[1], -EIO, count_end);
    assert_int_equal(read[2].status, -EIO);
    assert_int_equal(read[2].want, 100);
    assert_int_equal(claim(ranges, &read[2], 100, 2, &none), MR_RANGE_ALONE); /* it failed */
    assert_int_equal(claim(ranges, &read[2], 100, 3, &range[1]), MR_RANGE_FETCH);
    assert_int_equal(claim(ranges, &read[3], 200, 3, &range[0]), MR_RANGE_FETCH); /* of turn 1 */
    mr_ranges_fetched(ranges, range[0], 0, count_end);
    mr_ranges_fetched(ranges, range[1], 0, count_end);
    read[0] = (struct mr_read){.at = 95, .want = 10, .range_at = 0, .range_bytes = 100};
    assert_int_equal(mr_ranges_claim(ranges, &read[0], &none), MR_RANGE_ALONE); /* beyond it */
    mr_ranges_destroy(ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_is_one_request),
        cmocka_unit_test(a_resumed_run_too),
        cmocka_unit_test(a_scan_reads_pieces),
        cmocka_unit_test(little_memory_costs_requests_only),
        cmocka_unit_test(blocks_of_ranks_are_one_request_of_all),
        cmocka_unit_test(one_rank_in_the_order_of_many),
        cmocka_unit_test(caches_of_nodes_serve_later_epochs),
        cmocka_unit_test(runs_of_nodes_resume),
        cmocka_unit_test(what_a_range_cannot_have_is_read_alone),
        cmocka_unit_test(ranges_stay_within_their_limit),
    };
    return cmocka_run_group_tests(tests, setup, remote_teardown);
}
