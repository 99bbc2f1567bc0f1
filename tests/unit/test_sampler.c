/* White-box. Samplers: properties of the orders they give. */
#include "base/base.h"
#include <millrace/sampler.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct mr_sampler *make(const struct mr_sampler_opts *opts, uint64_t n)
{
    struct mr_sampler *s = NULL;
    if (mr_sampler_create(opts, n, &s))
        fail_msg("mr_sampler_create: %s", mr_last_error());
    return s;
}

static struct mr_sampler_opts opts_of(enum mr_sampler_kind kind, uint64_t seed)
{
    struct mr_sampler_opts opts;
    mr_sampler_opts_init(&opts);
    opts.kind = kind;
    opts.seed = seed;
    return opts;
}

static void map_all(const struct mr_sampler *s, uint64_t epoch, uint64_t *out)
{
    assert_int_equal(mr_sampler_map(s, epoch, 0, mr_sampler_length(s), out), 0);
}

/* Any pieces, asked for in any order, are the pieces of the whole. */
static void check_pieces(const struct mr_sampler *s, uint64_t epoch)
{
    uint64_t n = mr_sampler_length(s), whole[600], piece[600];
    assert_true(n <= 600);
    map_all(s, epoch, whole);
    for (uint64_t k = 0; k < 50; k++) {
        uint64_t position = mr_mix64(k + 1) % n, count = mr_mix64(k + 77) % (n - position) + 1;
        assert_int_equal(mr_sampler_map(s, epoch, position, count, piece), 0);
        assert_memory_equal(piece, whole + position, count * sizeof *piece);
    }
    assert_int_equal(mr_sampler_map(s, epoch, n, 1, piece), MR_EMISUSE);
    assert_int_equal(mr_sampler_map(s, epoch, 1, UINT64_MAX, piece), MR_EMISUSE);
    assert_int_equal(mr_sampler_map(s, epoch, n, 0, piece), 0);
}

static void check_permutation(const uint64_t *index, uint64_t n, uint64_t of)
{
    unsigned char seen[600] = {0};
    for (uint64_t i = 0; i < n; i++) {
        assert_true(index[i] < of);
        assert_false(seen[index[i]]);
        seen[index[i]] = 1;
    }
}

static void test_sequential(void **state)
{
    (void)state;
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_SEQUENTIAL, 0);
    struct mr_sampler *s = make(&opts, 500);
    uint64_t index[500];
    map_all(s, 3, index);
    for (uint64_t i = 0; i < 500; i++)
        assert_int_equal(index[i], i);
    assert_true(mr_sampler_is_sequential(s));
    assert_string_equal(mr_sampler_text(s), "sequential");
    check_pieces(s, 0);
    mr_sampler_destroy(s);
}

static void test_random(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 64, 65, 599};
    for (size_t k = 0; k < MR_COUNT(sizes); k++) {
        struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, 7);
        struct mr_sampler *s = make(&opts, sizes[k]), *other;
        uint64_t a[600], b[600];
        map_all(s, 0, a);
        check_permutation(a, sizes[k], sizes[k]);
        check_pieces(s, 1);
        assert_string_equal(mr_sampler_text(s), "random(seed=7)");
        assert_false(mr_sampler_is_sequential(s));
        opts.seed = 8;
        other = make(&opts, sizes[k]);
        if (sizes[k] >= 64) {
            map_all(s, 1, b);
            assert_memory_not_equal(a, b, sizes[k] * sizeof *a);
            map_all(other, 0, b);
            assert_memory_not_equal(a, b, sizes[k] * sizeof *a);
        }
        mr_sampler_destroy(s);
        mr_sampler_destroy(other);
    }
}

/* Each sample comes first about equally often over the epochs: chi-squared against uniform. */
/* Of any size: each sample once; a window of positions has the samples of its blocks only. */
static void test_random_blocks(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 300; k++) {
        struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, k);
        uint64_t n = mr_mix64(k) % 600 + 1, order[600], other[600];
        opts.block = mr_mix64(k + 1000) % 40 + 1;
        opts.window = mr_mix64(k + 2000) % 12 + 1;
        uint64_t span = opts.block * opts.window, n_full = n / opts.block;
        struct mr_sampler *s = make(&opts, n);
        map_all(s, k % 3, order);
        check_permutation(order, n, n);
        check_pieces(s, k % 3);
        for (uint64_t start = 0; start < n; start += span) {
            unsigned char block[601] = {0};
            uint64_t n_blocks = 0, end = start + span < n ? start + span : n;
            for (uint64_t i = start; i < end; i++)
                n_blocks += !block[order[i] / opts.block]++;
            bool last = end == n;
            assert_int_equal(n_blocks, last ? (n + opts.block - 1) / opts.block - start / opts.block
                                            : opts.window);
            assert_true(last || !block[n_full]);
        }
        map_all(s, k % 3 + 1, other);
        assert_true(n < 20 || memcmp(order, other, n * sizeof *order) != 0);
        mr_sampler_destroy(s);
    }
}

/* The node of each sample in an epoch, each sample once. Returns how many samples each node has. */
static void nodes_of(const struct mr_sampler *s, const struct mr_sampler_opts *o, uint64_t epoch,
                     uint32_t *node)
{
    static uint64_t order[700];
    uint64_t n = mr_sampler_length(s);
    map_all(s, epoch, order);
    check_permutation(order, n, n);
    check_pieces(s, epoch);
    for (uint64_t p = 0; p < n; p++)
        node[order[p]] = (uint32_t)(p % o->ranks * o->nodes / o->ranks);
}

/* Worlds 1 to 16, nodes 1 to 4 and as many as ranks, sizes that nothing divides: each sample once;
 * each of them on the node that had it in the first epoch; a node's windows have few blocks. */
static void test_blocks_belong_to_nodes(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 600; k++) {
        struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, k);
        uint64_t n = mr_mix64(k) % 600 + 1;
        static uint32_t first[700], again[700];
        opts.block = mr_mix64(k + 1000) % 40 + 1;
        opts.window = mr_mix64(k + 2000) % 6 + 1;
        opts.ranks = k % 16 + 1;
        opts.nodes = k % 5 == 4 ? opts.ranks : (uint32_t)(mr_mix64(k + 3000) % 4 + 1);
        opts.nodes = opts.nodes < opts.ranks ? opts.nodes : opts.ranks;
        struct mr_sampler *s = make(&opts, n);
        nodes_of(s, &opts, 0, first);
        for (uint64_t epoch = 1; epoch < 4; epoch++) {
            nodes_of(s, &opts, epoch, again);
            assert_true(opts.nodes == 1 || memcmp(first, again, n * sizeof *first) == 0);
        }
        uint64_t n_cut = 0;
        for (uint64_t b = 0; b < n; b += opts.block) {
            bool cut = false;
            for (uint64_t i = b; i < b + opts.block && i < n; i++)
                cut = cut || first[i] != first[b];
            n_cut += cut;
        }
        assert_true(opts.nodes == 1 || n_cut <= opts.nodes - 1);
        mr_sampler_destroy(s);
    }
}

/* Within a node the order is one by blocks: a window of its positions has the samples of at most
 * `window` full blocks, besides what was cut. Another epoch has another order, another seed too,
 * but the same homes. */
static void test_orders_of_nodes(void **state)
{
    (void)state;
    static uint64_t order[6000], next[6000], other[6000];
    static uint32_t home[6000], home_of_other[6000];
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, 5);
    opts.block = 20;
    opts.window = 3;
    opts.nodes = 4;
    opts.ranks = 8;
    struct mr_sampler *s = make(&opts, 6000);
    map_all(s, 0, order);
    map_all(s, 1, next);
    opts.seed = 6;
    struct mr_sampler *t = make(&opts, 6000);
    map_all(t, 0, other);
    uint64_t same = 0, apart = 0;
    for (uint64_t p = 0; p < 6000; p++) {
        same += order[p] == next[p];
        home[order[p]] = (uint32_t)(p % 8 / 2);
        home_of_other[other[p]] = (uint32_t)(p % 8 / 2);
    }
    assert_memory_equal(home, home_of_other, sizeof home);
    assert_true(same < 60);
    for (uint64_t node = 0; node < 4; node++) {
        for (uint64_t w = 0; w < 1500 / 60; w++) { /* 6000 / 4 positions of each node */
            unsigned char seen[300] = {0};
            uint64_t blocks = 0;
            for (uint64_t x = w * 60; x < w * 60 + 60; x++) {
                uint64_t p = x / 2 * 8 + node * 2 + x % 2;
                blocks += !seen[order[p] / 20]++;
            }
            assert_int_equal(blocks, 3);
        }
        for (uint64_t i = 1; i < 6000; i++)
            apart += home[i] == node && home[i - 1] != node;
    }
    assert_true(apart > 100); /* homes are scattered over the data set */
    mr_sampler_destroy(s);
    mr_sampler_destroy(t);
}

static void test_nodes_refusals(void **state)
{
    (void)state;
    static const char *const bad[] = {"random:nodes=2,ranks=4", "random:block=4,nodes=2",
                                      "random:block=4,ranks=2", "random:block=4,nodes=5,ranks=4",
                                      "random:block=4,nodes=2,ranks=1048577"};
    struct mr_sampler *s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mr_sampler_open(bad[i], 100, 1, &s), MR_EOPTION);
    assert_int_equal(mr_sampler_open("random:block=4,window=2,nodes=2,ranks=6", 100, 1, &s), 0);
    assert_string_equal(mr_sampler_text(s), "random(seed=1,block=4,window=2,nodes=2,ranks=6)");
    mr_sampler_destroy(s);
    assert_int_equal(mr_sampler_open("random:block=4,window=2,nodes=1,ranks=6", 100, 1, &s), 0);
    assert_string_equal(mr_sampler_text(s), "random(seed=1,block=4,window=2)");
    mr_sampler_destroy(s);
}

/* All blocks, and all places within them, are as likely to be the first. */
static void test_random_blocks_are_spread(void **state)
{
    (void)state;
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, 5);
    uint64_t first, count[100] = {0};
    opts.block = 5;
    opts.window = 4;
    struct mr_sampler *s = make(&opts, 100);
    for (uint64_t epoch = 0; epoch < 100000; epoch++) {
        assert_int_equal(mr_sampler_map(s, epoch, 0, 1, &first), 0);
        count[first]++;
    }
    for (int i = 0; i < 100; i++) /* 1,000 each, with a deviation of 31 */
        assert_true(count[i] > 840 && count[i] < 1160);
    mr_sampler_destroy(s);
}

static void test_random_epochs_are_spread(void **state)
{
    (void)state;
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, 1);
    struct mr_sampler *s = make(&opts, 50);
    double count[50] = {0}, chi2 = 0;
    for (uint64_t epoch = 0; epoch < 20000; epoch++) {
        uint64_t first;
        assert_int_equal(mr_sampler_map(s, epoch, 0, 1, &first), 0);
        count[first]++;
    }
    for (int i = 0; i < 50; i++)
        chi2 += (count[i] - 400) * (count[i] - 400) / 400;
    assert_true(chi2 <
                49 + 5 * sqrt(2 * 49)); /* mean + 5 standard deviations; the draws are fixed */
    mr_sampler_destroy(s);
}

static void test_subset(void **state)
{
    (void)state;
    uint64_t indices[300], got[600];
    for (uint64_t i = 0; i < 300; i++)
        indices[i] = 599 - 2 * i;
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_SUBSET, 7);
    opts.indices = indices;
    opts.n_indices = 300;
    struct mr_sampler *s = make(&opts, 600);
    map_all(s, 5, got);
    assert_memory_equal(got, indices, sizeof indices);
    opts.shuffle = 1;
    struct mr_sampler *shuffled = make(&opts, 600);
    map_all(shuffled, 5, got);
    check_permutation(got, 300, 600);
    assert_memory_not_equal(got, indices, sizeof indices);
    for (int i = 0; i < 300; i++)
        assert_true(got[i] % 2 == 1);
    check_pieces(shuffled, 2);
    assert_string_not_equal(mr_sampler_text(s), mr_sampler_text(shuffled));
    indices[17]++; /* was copied: the sampler does not change; one made now has another text */
    opts.shuffle = 0;
    struct mr_sampler *other = make(&opts, 600);
    map_all(s, 0, got);
    assert_int_equal(got[17], indices[17] - 1);
    assert_string_not_equal(mr_sampler_text(s), mr_sampler_text(other));
    mr_sampler_destroy(s);
    mr_sampler_destroy(shuffled);
    mr_sampler_destroy(other);
    indices[17] = 600;
    assert_int_equal(mr_sampler_create(&opts, 600, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "index 600 (number 18 of 300): expected 0..599"));
    opts.n_indices = 0;
    assert_int_equal(mr_sampler_create(&opts, 600, &s), MR_EOPTION);
}

#define N_WEIGHTS 40

static void fill_weights(double *w)
{
    for (int i = 0; i < N_WEIGHTS; i++)
        w[i] =
            i % 5 == 0 ? 0 : (double)(mr_mix64((uint64_t)i + 9) % 1000) / 100 + (i == 7 ? 60 : 0);
}

static void test_weighted_frequencies(void **state)
{
    (void)state;
    double w[N_WEIGHTS], count[N_WEIGHTS] = {0}, sum = 0, chi2 = 0;
    fill_weights(w);
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_WEIGHTED, 3);
    opts.weights = w;
    opts.n_weights = N_WEIGHTS;
    opts.n_draws = 500;
    struct mr_sampler *s = make(&opts, N_WEIGHTS);
    for (uint64_t epoch = 0; epoch < 400; epoch++) {
        uint64_t index[500];
        map_all(s, epoch, index);
        for (int i = 0; i < 500; i++)
            count[index[i]]++;
    }
    check_pieces(s, 9);
    for (int i = 0; i < N_WEIGHTS; i++)
        sum += w[i];
    int classes = 0;
    for (int i = 0; i < N_WEIGHTS; i++) {
        double expected = w[i] / sum * 500 * 400;
        if (w[i] > 0)
            chi2 += (count[i] - expected) * (count[i] - expected) / expected, classes++;
        else
            assert_true(count[i] == 0);
    }
    assert_true(chi2 < classes - 1 + 5 * sqrt(2.0 * (classes - 1)));
    mr_sampler_destroy(s);
}

/* Weight 0 is never drawn: awkward weights and tame ones. */
static void test_weighted_never_draws_zero(void **state)
{
    (void)state;
    const double awkward[] = {0, 1e308, 1e-308, 4.9e-324, 0.1, 0.3, 1.0 / 3, 1e17};
    for (uint64_t k = 0; k < 300; k++) {
        double w[33];
        for (uint64_t i = 0; i < 33; i++)
            w[i] = k % 2 ? awkward[mr_mix64(k * 1000 + i) % (2 + k % 7)]
                         : (double)(1 + mr_mix64(k * 1000 + i) % 1000) / 3e3;
        if (k % 2)
            w[k % 33] = 1e308;
        else
            w[0] = 0; /* among tame ones */
        struct mr_sampler_opts opts = opts_of(MR_SAMPLER_WEIGHTED, k);
        opts.weights = w;
        opts.n_weights = 33;
        opts.n_draws = 600;
        struct mr_sampler *s = make(&opts, 33);
        uint64_t index[600];
        map_all(s, k, index);
        for (int i = 0; i < 600; i++)
            assert_true(index[i] < 33 && w[index[i]] > 0);
        mr_sampler_destroy(s);
    }
}

static void test_weighted_without_replacement(void **state)
{
    (void)state;
    double w[N_WEIGHTS], first[N_WEIGHTS] = {0}, sum = 0, chi2 = 0;
    fill_weights(w);
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_WEIGHTED, 3);
    opts.weights = w;
    opts.n_weights = N_WEIGHTS;
    opts.replacement = 0;
    struct mr_sampler *s = make(&opts, N_WEIGHTS);
    uint64_t n = mr_sampler_length(s);
    assert_int_equal(n, N_WEIGHTS - N_WEIGHTS / 5);
    for (uint64_t epoch = 0; epoch < 8000; epoch++) {
        uint64_t index[N_WEIGHTS];
        map_all(s, epoch, index);
        check_permutation(index, n, N_WEIGHTS);
        for (uint64_t i = 0; i < n; i++)
            assert_true(w[index[i]] > 0);
        first[index[0]]++; /* the first one is drawn with probability w / sum */
    }
    check_pieces(s, 4);
    for (int i = 0; i < N_WEIGHTS; i++)
        sum += w[i];
    for (int i = 0; i < N_WEIGHTS; i++)
        if (w[i] > 0)
            chi2 += pow(first[i] - w[i] / sum * 8000, 2) / (w[i] / sum * 8000);
    assert_true(chi2 < (double)(n - 1) + 5 * sqrt(2.0 * (double)(n - 1)));
    mr_sampler_destroy(s);
    opts.n_draws = n + 1;
    assert_int_equal(mr_sampler_create(&opts, N_WEIGHTS, &s), MR_EOPTION);
}

struct crossing {
    const struct mr_sampler *s;
    uint64_t (*expected)[200];
    uint64_t seed;
    int failed;
};

static void *cross(void *arg)
{
    struct crossing *c = arg;
    for (uint64_t k = 0; k < 400; k++) {
        uint64_t epoch = k / 100 + mr_mix64(c->seed * 1000 + k) % 3, index[200];
        uint64_t position = mr_mix64(k) % 200;
        int rc = mr_sampler_map(c->s, epoch, position, 200 - position, index);
        c->failed |= rc || memcmp(index, c->expected[epoch] + position,
                                  (200 - position) * sizeof *index) != 0;
    }
    return NULL;
}

/* More epochs in use at once than are kept: slower, never wrong. */
static void test_weighted_epochs_from_many_threads(void **state)
{
    (void)state;
    double w[200];
    uint64_t expected[7][200];
    for (int i = 0; i < 200; i++)
        w[i] = 1 + i % 13;
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_WEIGHTED, 11);
    opts.weights = w;
    opts.n_weights = 200;
    opts.replacement = 0;
    for (uint64_t epoch = 0; epoch < 7; epoch++) {
        struct mr_sampler *s = make(&opts, 200);
        map_all(s, epoch, expected[epoch]);
        mr_sampler_destroy(s);
    }
    struct mr_sampler *s = make(&opts, 200);
    pthread_t thread[4];
    struct crossing crossing[4];
    for (uint64_t i = 0; i < 4; i++) {
        crossing[i] = (struct crossing){s, expected, i, 0};
        assert_int_equal(mr_thread_start(&thread[i], "cross", cross, &crossing[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_false(crossing[i].failed);
    }
    mr_sampler_destroy(s);
}

static void test_weighted_refusals(void **state)
{
    (void)state;
    struct mr_sampler *s;
    double w[3] = {0, 0, 0};
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_WEIGHTED, 0);
    opts.weights = w;
    opts.n_weights = 3;
    assert_int_equal(mr_sampler_create(&opts, 3, &s), MR_EOPTION);
    w[1] = -1;
    assert_int_equal(mr_sampler_create(&opts, 3, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "weight -1 (number 2)"));
    w[1] = NAN;
    assert_int_equal(mr_sampler_create(&opts, 3, &s), MR_EOPTION);
    w[1] = 1;
    assert_int_equal(mr_sampler_create(&opts, 4, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "3 weights for 4 samples"));
}

static int backwards(void *user, uint64_t epoch, uint64_t position, uint64_t count, uint64_t *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = 9 - (position + i);
    return epoch == 2 ? mr_error_set(-5, "%s", (const char *)user) : 0;
}

static void test_custom(void **state)
{
    (void)state;
    uint64_t index[10];
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_CUSTOM, 0);
    opts.map = backwards;
    opts.user = (void *)"epoch two";
    opts.length = 10;
    struct mr_sampler *s = make(&opts, 10);
    map_all(s, 0, index);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(index[i], 9 - i);
    assert_int_equal(mr_sampler_map(s, 2, 0, 1, index), -5);
    assert_string_equal(mr_last_error(), "custom sampler: position 0 of epoch 2: epoch two");
    mr_sampler_destroy(s);
    s = make(&opts, 9); /* index 9 is then out of range */
    assert_int_equal(mr_sampler_map(s, 0, 0, 3, index), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "index 9 at position 0"));
    mr_sampler_destroy(s);
    opts.map = NULL;
    assert_int_equal(mr_sampler_create(&opts, 9, &s), MR_EOPTION);
}

static void count_close(void *user)
{
    ++*(int *)user;
}

/* A callback's memory is freed once, by the sampler that got it. */
static void test_close(void **state)
{
    (void)state;
    int n = 0;
    struct mr_sampler *s = NULL;
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_CUSTOM, 0);
    opts.user = &n;
    opts.close = count_close;
    opts.length = 10;
    assert_int_equal(mr_sampler_create(&opts, 10, &s), MR_EOPTION); /* no map */
    opts.map = backwards;
    opts.name = "not\nprintable";
    assert_int_equal(mr_sampler_create(&opts, 10, &s), MR_EOPTION);
    assert_int_equal(n, 0);
    opts.name = "backwards";
    s = make(&opts, 10);
    assert_int_equal(n, 0);
    mr_sampler_destroy(s);
    assert_int_equal(n, 1);
    opts.size = offsetof(struct mr_sampler_opts, close); /* a caller that does not know it */
    s = make(&opts, 10);
    mr_sampler_destroy(s);
    assert_int_equal(n, 1);
}

static char folder[] = "/tmp/millrace-sampler-XXXXXX", file_path[64];

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(file_path);
    return rmdir(folder);
}

static void write_file(const void *data, size_t bytes)
{
    snprintf(file_path, sizeof file_path, "%s/file", folder);
    FILE *f = fopen(file_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static int open_file(const char *kind, const char *options, struct mr_sampler **out)
{
    char text[128];
    snprintf(text, sizeof text, "%s:%s%s", kind, file_path, options);
    return mr_sampler_open(text, 10, 7, out);
}

static void test_text_files(void **state)
{
    (void)state;
    struct mr_sampler *s;
    uint64_t index[10];
    const char good[] = "# the ones\n3\n\n  1 # first\r\n9";
    write_file(good, sizeof good - 1);
    assert_int_equal(open_file("subset", "", &s), 0);
    assert_int_equal(mr_sampler_length(s), 3);
    map_all(s, 0, index);
    assert_memory_equal(index, ((uint64_t[]){3, 1, 9}), 3 * sizeof *index);
    mr_sampler_destroy(s);
    assert_int_equal(open_file("subset", ",shuffle", &s), 0);
    assert_non_null(strstr(mr_sampler_text(s), "shuffle=1,seed=7"));
    mr_sampler_destroy(s);

    const char *bad[] = {"1\n2\nx\n", "1\n2\n-3\n", "1\n2\n3.5\n", "1\n2\n99999999999999999999\n"};
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        write_file(bad[i], strlen(bad[i]));
        assert_int_equal(open_file("subset", "", &s), MR_EFORMAT);
        assert_non_null(strstr(mr_last_error(), ":3: '"));
    }
    write_file("10", 2);
    assert_int_equal(open_file("subset", "", &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), file_path));

    const char weights[] = "1\n0\n0.5\n0\n0\n0\n0\n0\n0\n1e-3\n";
    write_file(weights, sizeof weights - 1);
    assert_int_equal(open_file("weighted", ",n=1000", &s), 0);
    assert_int_equal(mr_sampler_length(s), 1000);
    mr_sampler_destroy(s);
    assert_int_equal(open_file("weighted", ",replacement=0", &s), 0);
    assert_int_equal(mr_sampler_length(s), 3);
    mr_sampler_destroy(s);
    unlink(file_path);
    assert_int_equal(open_file("weighted", "", &s), -2);
}

static size_t npy(char *to, const char *dict, const void *data, size_t bytes)
{
    size_t n = strlen(dict);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (char)n;
    to[9] = 0;
    memcpy(to + 10, dict, n);
    memcpy(to + 10 + n, data, bytes);
    return 10 + n + bytes;
}

static void test_npy_files(void **state)
{
    (void)state;
    struct mr_sampler *s;
    uint64_t index[10];
    char file[300];
    const int16_t shorts[3] = {4, 0, 8};
    size_t n = npy(file, "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }\n", shorts,
                   sizeof shorts);
    write_file(file, n);
    assert_int_equal(open_file("subset", "", &s), 0);
    map_all(s, 0, index);
    assert_memory_equal(index, ((uint64_t[]){4, 0, 8}), 3 * sizeof *index);
    mr_sampler_destroy(s);
    for (size_t cut = 0; cut < n; cut++) { /* every truncation is an error, not a crash */
        write_file(file, cut);
        assert_true(open_file("subset", "", &s) < 0);
    }
    const unsigned char big_f8[8] = {0x40, 0x08}; /* 3.0 */
    write_file(file,
               npy(file, "{'descr': '>f8', 'fortran_order': False, 'shape': (1,)}", big_f8, 8));
    assert_int_equal(open_file("subset", "", &s), 0);
    map_all(s, 0, index);
    assert_int_equal(index[0], 3);
    mr_sampler_destroy(s);
    const uint16_t halves[10] = {0x3c00, 0x3800, 0x0001}; /* 1, 0.5, the least */
    n = npy(file, "{'descr': '<f2', 'fortran_order': False, 'shape': (10,)}", halves,
            sizeof halves);
    write_file(file, n);
    assert_int_equal(open_file("weighted", ",replacement=0", &s), 0);
    assert_int_equal(mr_sampler_length(s), 3);
    mr_sampler_destroy(s);
    const char *bad[] = {
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}",
        "{'descr': '<f8', 'shap': (1,)}",
    };
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        write_file(file, npy(file, bad[i], big_f8, 8));
        int rc = open_file("subset", "", &s);
        assert_true(rc == MR_EFORMAT || rc == MR_ETRUNCATED);
    }
    unlink(file_path);
}

/* The limits of npy data sets hold for files of numbers, too: one parser reads both. */
static void test_npy_limits(void **state)
{
    (void)state;
    const char *dict = "{'descr': '<u1', 'fortran_order': False, 'shape': (1,)}";
    struct mr_sampler *s;
    size_t header = 1u << 17, n = 12 + header + 1;
    char *file = calloc(1, n), small[200];
    memcpy(file, "\x93NUMPY\2\0\0\0\2", 12); /* version 2: a header of 2^17 bytes */
    memset(file + 12, ' ', header);
    memcpy(file + 12, dict, strlen(dict));
    write_file(file, n);
    assert_int_equal(open_file("subset", "", &s), MR_ELIMIT);
    assert_non_null(strstr(mr_last_error(), "at most 65536"));
    n = npy(small, dict, "", 1);
    small[7] = 1;
    write_file(small, n);
    assert_int_equal(open_file("subset", "", &s), MR_EUNSUPPORTED);
    assert_non_null(strstr(mr_last_error(), "npy version 1.1"));
    n = npy(small, "{'descr': '<m8', 'fortran_order': False, 'shape': (1,)}", "1234567", 8);
    write_file(small, n);
    assert_int_equal(open_file("subset", "", &s), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "integers or floats"));
    free(file);
    unlink(file_path);
}

static void test_text_forms(void **state)
{
    (void)state;
    struct mr_sampler *s;
    assert_int_equal(mr_sampler_open("random", 100, 42, &s), 0);
    assert_string_equal(mr_sampler_text(s), "random(seed=42)");
    mr_sampler_destroy(s);
    assert_int_equal(mr_sampler_open("random:block=10", 100, 42, &s), 0);
    assert_string_equal(mr_sampler_text(s), "random(seed=42,block=10,window=16)");
    mr_sampler_destroy(s);
    assert_int_equal(mr_sampler_open("random:block=10,window=2", 100, 42, &s), 0);
    assert_string_equal(mr_sampler_text(s), "random(seed=42,block=10,window=2)");
    mr_sampler_destroy(s);
    assert_int_equal(mr_sampler_open("sequential", 100, 42, &s), 0);
    mr_sampler_destroy(s);
    const char *bad[] = {"",
                         "rand",
                         "subset",
                         "subset:",
                         "subset:,shuffle",
                         "random,x=1",
                         "sequential:f",
                         "random:window=3",
                         "random:block=-1",
                         "random:block=9223372036854775808,window=4"};
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        assert_int_equal(mr_sampler_open(bad[i], 100, 42, &s), MR_EOPTION);
    struct mr_sampler_opts opts = opts_of(MR_SAMPLER_RANDOM, 0);
    assert_int_equal(mr_sampler_create(&opts, 0, &s), MR_EOPTION);
    opts.size = 0;
    assert_int_equal(mr_sampler_create(&opts, 5, &s), MR_EMISUSE);
    opts = opts_of((enum mr_sampler_kind)17, 0);
    assert_int_equal(mr_sampler_create(&opts, 5, &s), MR_EOPTION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_blocks_belong_to_nodes),
        cmocka_unit_test(test_orders_of_nodes),
        cmocka_unit_test(test_nodes_refusals),
        cmocka_unit_test(test_random_blocks_are_spread),
        cmocka_unit_test(test_random_epochs_are_spread),
        cmocka_unit_test(test_subset),
        cmocka_unit_test(test_weighted_frequencies),
        cmocka_unit_test(test_weighted_never_draws_zero),
        cmocka_unit_test(test_weighted_without_replacement),
        cmocka_unit_test(test_weighted_epochs_from_many_threads),
        cmocka_unit_test(test_weighted_refusals),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_text_files),
        cmocka_unit_test(test_npy_files),
        cmocka_unit_test(test_npy_limits),
        cmocka_unit_test(test_text_forms),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
