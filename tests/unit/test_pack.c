/* White-box (mr_mix64). The packing sampler: every element of every document once in each epoch,
 * in rows that hold it, and the same rows whoever asks, in whatever order. */
#include "base/base.h"
#include <millrace/millrace.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N       500
#define LONGEST 90
#define ITEMS   4096

struct set {
    struct mr_sampler_opts opts;
    uint32_t length[N];
    struct mr_sampler *s;
};

static void open_set(struct set *set, uint64_t seed, uint32_t row_length, uint32_t rows)
{
    mr_sampler_opts_init(&set->opts);
    for (uint64_t i = 0; i < N; i++)
        set->length[i] = (uint32_t)(mr_mix64(i + seed * N) % (LONGEST + 1)); /* some are empty */
    set->opts.kind = MR_SAMPLER_PACK;
    set->opts.seed = seed;
    set->opts.lengths = set->length;
    set->opts.n_lengths = N;
    set->opts.row_length = row_length;
    set->opts.rows = rows;
    set->opts.window = seed % 2 ? 1 + mr_mix64(seed) % 300 : 0;
    set->opts.max_per_row = seed % 3 ? 0 : 1 + (uint32_t)(mr_mix64(seed + 9) % 5);
    set->opts.truncate = seed % 5 == 4;
}

static void create(struct set *set)
{
    if (mr_sampler_create(&set->opts, N, &set->s) < 0)
        fail_msg("%s", mr_last_error());
    assert_true(mr_sampler_max_batch(set->s) <= ITEMS);
}

/* Rows of a batch: none is overfull, none is missing. Returns how many there are. */
static uint64_t check_rows(const struct set *set, const struct mr_batch_item *items, int n)
{
    uint64_t rows = 0, filled[64] = {0}, docs[64] = {0};
    for (int i = 0; i < n; i++) {
        const struct mr_batch_item *item = &items[i];
        assert_true(item->row < set->opts.rows && item->count > 0);
        assert_true(i == 0 || item->row >= items[i - 1].row);
        filled[item->row] += item->count;
        docs[item->row]++;
        rows = item->row + 1;
    }
    for (uint64_t r = 0; r < rows; r++) {
        assert_true(filled[r] >= 1 && filled[r] <= set->opts.row_length);
        assert_true(!set->opts.max_per_row || docs[r] <= set->opts.max_per_row);
    }
    return rows;
}

/* One epoch. Returns its rows; *used: elements in them. */
static uint64_t check_epoch(const struct set *set, uint64_t epoch, uint64_t *used)
{
    static unsigned char seen[N][LONGEST];
    struct mr_batch_item items[ITEMS];
    uint64_t n, rows = 0;
    memset(seen, 0, sizeof seen);
    *used = 0;
    assert_int_equal(mr_sampler_batches(set->s, epoch, &n), 0);
    for (uint64_t b = 0; b < n; b++) {
        int got = mr_sampler_batch(set->s, epoch, b, items, ITEMS);
        assert_true(got >= 1 && (uint64_t)got <= mr_sampler_max_batch(set->s));
        uint64_t here = check_rows(set, items, got);
        assert_true(here == set->opts.rows || b + 1 == n);
        rows += here;
        for (int i = 0; i < got; i++) {
            const struct mr_batch_item *item = &items[i];
            assert_true(item->index < N && item->from + item->count <= set->length[item->index]);
            for (uint32_t k = 0; k < item->count; k++)
                assert_int_equal(seen[item->index][item->from + k]++, 0);
            *used += item->count;
        }
    }
    for (uint64_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < set->length[i]; k++)
            assert_int_equal(seen[i][k], !set->opts.truncate || k < set->opts.row_length);
    return rows;
}

static void every_element_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct set set;
        uint64_t used;
        double fill;
        open_set(&set, seed, 20 + (uint32_t)(mr_mix64(seed) % 150), 1 + (uint32_t)(seed % 7));
        create(&set);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t rows = check_epoch(&set, epoch, &used);
            double expected = (double)used / (double)(rows * set.opts.row_length);
            assert_int_equal(mr_sampler_efficiency(set.s, epoch, &fill), 0);
            assert_true(fill > expected - 1e-9 && fill < expected + 1e-9);
        }
        mr_sampler_destroy(set.s);
    }
}

/* Rows of one document each would be half empty. */
static void rows_are_full(void **state)
{
    (void)state;
    struct set set;
    uint64_t used;
    double fill;
    open_set(&set, 1, 128, 4);
    set.opts.window = 0;
    create(&set);
    check_epoch(&set, 0, &used);
    assert_int_equal(mr_sampler_efficiency(set.s, 0, &fill), 0);
    assert_true(fill > 0.97);
    mr_sampler_destroy(set.s);
}

/* By hand: 6, 5, 4, 3, 2 into rows of 10: 6 4, 5 3 2. */
static void best_fit_decreasing(void **state)
{
    (void)state;
    const uint32_t length[] = {2, 6, 3, 5, 4};
    struct mr_sampler_opts o;
    struct mr_sampler *s;
    struct mr_batch_item items[8];
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_PACK;
    o.lengths = length;
    o.n_lengths = 5;
    o.row_length = 10;
    o.rows = 2;
    assert_int_equal(mr_sampler_create(&o, 5, &s), 0);
    assert_int_equal(mr_sampler_batch(s, 0, 0, items, 8), 5);
    uint32_t of[5];
    for (int i = 0; i < 5; i++)
        of[items[i].index] = items[i].row;
    assert_true(of[1] == of[4] && of[3] == of[2] && of[3] == of[0] && of[1] != of[0]);
    mr_sampler_destroy(s);
}

static void *ask(void *set)
{
    struct mr_batch_item items[ITEMS];
    for (uint64_t k = 0; k < 80; k++)
        assert_true(mr_sampler_batch(((struct set *)set)->s, k % 3, k * 7 % 30, items, ITEMS) > 0);
    return NULL;
}

/* More epochs and windows than are kept, from several threads; then all is as before. */
static void threads_share_tables(void **state)
{
    (void)state;
    struct set set;
    pthread_t thread[4];
    uint64_t used;
    open_set(&set, 2, 64, 5);
    set.opts.window = 20;
    create(&set);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &set), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    check_epoch(&set, 1, &used);
    mr_sampler_destroy(set.s);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct set set;
    open_set(&set, 2, 64, 5);
    struct mr_sampler_opts o = set.opts;
    struct mr_sampler *s = NULL;
    o.row_length = 0;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o = set.opts;
    o.rows = 0;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o = set.opts;
    o.n_lengths = 3;
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    o = set.opts;
    memset(set.length, 0, sizeof set.length);
    assert_int_equal(mr_sampler_create(&o, N, &s), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "empty"));
    set.length[7] = UINT32_MAX; /* many rows, but one at a time */
    o.row_length = 1u << 30;
    o.rows = 3;
    assert_int_equal(mr_sampler_create(&o, N, &s), 0);
    uint64_t n;
    assert_int_equal(mr_sampler_batches(s, 0, &n), 0);
    assert_int_equal(n, 2);
    mr_sampler_destroy(s);
}

/* Token k of document i is i * 1000 + k. user: lengths. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    int32_t *token = row[0];
    dim[0][0] = ((const uint32_t *)user)[index];
    for (uint64_t k = 0; k < dim[0][0]; k++)
        token[k] = (int32_t)(index * 1000 + k);
    return 0;
}

static struct mr_dataset *documents(uint32_t *length)
{
    struct mr_callback_opts co;
    struct mr_dataset *ds = NULL;
    mr_callback_opts_init(&co);
    co.name = "documents";
    co.n = N;
    co.n_fields = 1;
    co.field[0] = (struct mr_spec){
        .name = "ids", .dtype = MR_I32, .rank = 1, .dim = {LONGEST}, .var_dims = 1};
    co.get = get;
    co.user = length;
    assert_int_equal(mr_dataset_open_callback(&co, &ds), 0);
    return ds;
}

/* A row of length n: documents one after the other; marks what is seen. */
static void check_row(const int32_t *ids, const int32_t *positions, const int32_t *segments,
                      uint64_t n, unsigned char seen[N][LONGEST])
{
    for (uint64_t k = 0; k < n; k++) {
        if (segments[k] == 0) {
            assert_int_equal(ids[k], -1);
            continue;
        }
        bool begins = k == 0 || segments[k] != segments[k - 1];
        assert_int_equal(positions[k], ids[k] % 1000); /* of a part: in the document */
        assert_true(begins || ids[k] == ids[k - 1] + 1);
        assert_int_equal(seen[ids[k] / 1000][ids[k] % 1000]++, 0);
    }
}

static const struct mr_batch_field *field(const struct mr_batch *b, const char *name)
{
    for (int f = 0; f < b->n_fields; f++)
        if (strcmp(b->field[f].spec.name, name) == 0)
            return &b->field[f];
    fail_msg("no field %s", name);
    return NULL;
}

static int run(struct mr_dataset *ds, struct mr_sampler *s, uint32_t rows,
               unsigned char seen[N][LONGEST])
{
    struct mr_loader_opts lo;
    struct mr_loader *ld = NULL;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&lo);
    lo.workers = 3;
    lo.collate = MR_COLLATE_PACK;
    lo.pad_value = -1;
    lo.pack_length = mr_sampler_text(s)[0] == 'p' ? 0 : 64;
    int rc = mr_loader_open(ds, s, NULL, NULL, &lo, &ld);
    while (rc >= 0 && (rc = mr_loader_next(ld, NULL, &b)) > 0) {
        const struct mr_batch_field *ids = field(&b, "ids");
        uint64_t n = ids->spec.dim[1];
        assert_true(ids->spec.dim[0] == rows || b.last || rows == 0);
        for (uint64_t r = 0; r < ids->spec.dim[0]; r++)
            check_row((const int32_t *)ids->host + r * n,
                      (const int32_t *)field(&b, "position_ids")->host + r * n,
                      (const int32_t *)field(&b, "segment_ids")->host + r * n, n, seen);
        assert_int_equal(mr_loader_release(ld, &b, NULL), 0);
    }
    mr_loader_close(ld);
    return rc;
}

/* The loader puts documents where the sampler says: every token once, in rows of one length. */
static void the_loader_packs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        static unsigned char seen[N][LONGEST];
        struct set set;
        memset(seen, 0, sizeof seen);
        open_set(&set, seed, 20 + (uint32_t)(mr_mix64(seed) % 150), 1 + (uint32_t)(seed % 7));
        create(&set);
        struct mr_dataset *ds = documents(set.length);
        if (run(ds, set.s, set.opts.rows, seen) < 0)
            fail_msg("%s", mr_last_error());
        for (uint64_t i = 0; i < N; i++)
            for (uint32_t k = 0; k < set.length[i]; k++)
                assert_int_equal(seen[i][k], !set.opts.truncate || k < set.opts.row_length);
        mr_dataset_close(ds);
        mr_sampler_destroy(set.s);
    }
}

static void lengths_must_be_true(void **state)
{
    (void)state;
    static unsigned char seen[N][LONGEST];
    struct set set;
    struct mr_loader_opts lo;
    struct mr_loader *ld = NULL;
    open_set(&set, 1, 64, 3);
    create(&set);
    struct mr_dataset *ds = documents(set.length);
    mr_loader_opts_init(&lo);
    lo.collate = MR_COLLATE_PAD;
    assert_int_equal(mr_loader_open(ds, set.s, NULL, NULL, &lo, &ld), MR_EOPTION);
    lo.collate = MR_COLLATE_PACK;
    lo.pack_length = 63;
    assert_int_equal(mr_loader_open(ds, set.s, NULL, NULL, &lo, &ld), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "64"));
    for (uint64_t i = 0; i < N; i++)
        set.length[i] /= 2;
    assert_int_equal(run(ds, set.s, 3, seen), MR_ESHAPE);
    assert_non_null(strstr(mr_last_error(), "the sampler wants"));
    mr_dataset_close(ds);
    mr_sampler_destroy(set.s);
}

/* Two documents a row, each in halves; user: what is wrong. */
enum { RIGHT, BACKWARDS, OVERFULL, PLAIN };

static uint64_t ten_batches(void *user, uint64_t epoch)
{
    (void)user;
    (void)epoch;
    return 10;
}

static int halves(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                  struct mr_batch_item *items)
{
    int wrong = *(const int *)user;
    (void)epoch;
    (void)max;
    for (uint32_t i = 0; i < 8; i++)
        items[i] = (struct mr_batch_item){.index = batch * 4 + i / 2,
                                          .row = wrong == BACKWARDS ? 1 - i / 4 : i / 4,
                                          .from = i % 2 * 10,
                                          .count = wrong == OVERFULL ? 20 : 10};
    for (uint32_t i = 0; wrong == PLAIN && i < 8; i++)
        items[i] = (struct mr_batch_item){.index = batch * 8 + i};
    return 8;
}

static void callbacks_may_pack(void **state)
{
    (void)state;
    static unsigned char seen[N][LONGEST];
    uint32_t length[N];
    for (uint64_t i = 0; i < N; i++)
        length[i] = 30;
    struct mr_dataset *ds = documents(length);
    for (int wrong = RIGHT; wrong <= PLAIN; wrong++) {
        struct mr_sampler_opts o;
        struct mr_sampler *s;
        memset(seen, 0, sizeof seen);
        mr_sampler_opts_init(&o);
        o.kind = MR_SAMPLER_BATCHES;
        o.n_batches = ten_batches;
        o.batch = halves;
        o.max_batch = 8;
        o.user = &wrong;
        assert_int_equal(mr_sampler_create(&o, N, &s), 0);
        bool good = wrong == RIGHT || wrong == PLAIN;
        assert_int_equal(run(ds, s, wrong == PLAIN ? 4 : 2, seen), good ? 0 : MR_ESHAPE);
        for (uint64_t i = 0; good && i < (wrong == PLAIN ? 80 : 40); i++)
            for (uint32_t k = 0; k < 30; k++)
                assert_int_equal(seen[i][k], wrong == PLAIN || k < 20);
        mr_sampler_destroy(s);
    }
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_once),   cmocka_unit_test(rows_are_full),
        cmocka_unit_test(best_fit_decreasing),  cmocka_unit_test(threads_share_tables),
        cmocka_unit_test(options_are_checked),  cmocka_unit_test(the_loader_packs),
        cmocka_unit_test(lengths_must_be_true), cmocka_unit_test(callbacks_may_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
