/* Slots that are as large as their batches: batches equal a collation computed here, for random
 * shapes, and memory follows the samples, not their bound. */
#include "run_loader.h"

#include <errno.h>

#define N     1500
#define ROWS  900 /* bounds */
#define COLS  3
#define SIDES 5
#define PAD_X 7
#define BATCH 40

static int both_vary; /* y's two dimensions, or the first alone */

static uint64_t hash_of(uint64_t index, uint64_t what)
{
    const uint64_t key[] = {index, what};
    return mr_hash(MR_HASH_START, key, sizeof key);
}

/* Mostly short; those at the end of the set are long: slots have to grow late, too. */
static uint64_t length_of(uint64_t index)
{
    uint64_t h = hash_of(index, 1);
    return index > N / 2 && h % 19 == 0 ? h % (ROWS + 1) : h % 12;
}

static uint64_t side_of(uint64_t index, int d)
{
    return d == 0 || both_vary ? hash_of(index, 2 + (uint64_t)d) % (SIDES + 1) : SIDES;
}

static bool is_bad(uint64_t index)
{
    return hash_of(index, 4) % 23 == 0;
}

static uint16_t x_of(uint64_t index, uint64_t r, uint64_t c)
{
    return (uint16_t)(1 + index * 131 + r * COLS + c);
}

static double y_of(uint64_t index, uint64_t r, uint64_t c)
{
    return (double)(1 + index) + (double)(r * SIDES + c) / 64;
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    uint16_t *x = row[0];
    double *y = row[1];
    if (user && is_bad(index))
        return -EIO;
    dim[0][0] = length_of(index);
    dim[0][1] = COLS;
    for (uint64_t r = 0; r < dim[0][0]; r++)
        for (uint64_t c = 0; c < COLS; c++)
            *x++ = x_of(index, r, c);
    dim[1][0] = side_of(index, 0);
    dim[1][1] = side_of(index, 1);
    for (uint64_t r = 0; r < dim[1][0]; r++)
        for (uint64_t c = 0; c < dim[1][1]; c++)
            *y++ = y_of(index, r, c);
    *(int32_t *)row[2] = (int32_t)index;
    return 0;
}

static struct mr_dataset *open_set(bool with_bad)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "shapes";
    o.n = N;
    o.n_fields = 3;
    o.field[0] = (struct mr_spec){
        .name = "x", .dtype = MR_U16, .rank = 2, .var_dims = 1, .dim = {ROWS, COLS}};
    o.field[1] = (struct mr_spec){.name = "y",
                                  .dtype = MR_F64,
                                  .rank = 2,
                                  .var_dims = both_vary ? 3 : 1,
                                  .dim = {SIDES, SIDES}};
    o.field[2] = (struct mr_spec){.name = "label", .dtype = MR_I32};
    o.get = get;
    o.user = with_bad ? &both_vary : NULL;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

/* Copies a field back and compares it with `want`. */
static void check_field(const struct mr_batch *b, int f, struct mr_stream *stream, const void *want,
                        uint64_t bytes)
{
    assert_int_equal(b->field[f].bytes, bytes);
    unsigned char *back = malloc(bytes + 1);
    must(mr_copy_async(stream, back, MR_PAGEABLE, b->field[f].data, MR_DEVICE, bytes));
    must(mr_stream_synchronize(stream));
    assert_memory_equal(back, want, bytes);
    assert_memory_equal(b->field[f].host, want, bytes);
    free(back);
}

static void check_x(const struct mr_batch *b, enum mr_collate collate, struct mr_stream *stream)
{
    uint64_t longest = collate == MR_COLLATE_FIXED ? ROWS : 0, total = 0;
    bool ragged = collate == MR_COLLATE_RAGGED;
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t length = length_of(b->indices[i]);
        assert_int_equal(b->field[0].lengths[i], length);
        longest = MR_MAX(longest, length);
        if (ragged)
            assert_int_equal(b->field[0].offsets[i], total);
        total += length;
    }
    uint64_t n = (ragged ? total : b->n * longest) * COLS, at = 0;
    uint16_t *want = malloc(n * sizeof *want + 1);
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t length = length_of(b->indices[i]);
        for (uint64_t r = 0; r < (ragged ? length : longest); r++)
            for (uint64_t c = 0; c < COLS; c++)
                want[at++] = r < length ? x_of(b->indices[i], r, c) : PAD_X;
    }
    assert_int_equal(b->field[0].spec.dim[0], ragged ? total : b->n);
    assert_int_equal(b->field[0].spec.dim[1], ragged ? COLS : longest);
    check_field(b, 0, stream, want, n * sizeof *want);
    free(want);
}

static void check_y(const struct mr_batch *b, enum mr_collate collate, struct mr_stream *stream)
{
    uint64_t most[2] = {0, 0}, at = 0;
    for (uint64_t i = 0; i < b->n; i++)
        for (int d = 0; d < 2; d++)
            most[d] = MR_MAX(most[d], side_of(b->indices[i], d));
    if (collate == MR_COLLATE_FIXED)
        most[0] = most[1] = SIDES;
    double *want = malloc((b->n + 1) * SIDES * SIDES * sizeof *want);
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t rows = side_of(b->indices[i], 0), cols = side_of(b->indices[i], 1);
        for (uint64_t r = 0; r < (collate == MR_COLLATE_RAGGED ? rows : most[0]); r++)
            for (uint64_t c = 0; c < most[1]; c++)
                want[at++] = r < rows && c < cols ? y_of(b->indices[i], r, c) : PAD_X;
    }
    check_field(b, 1, stream, want, at * sizeof *want);
    free(want);
}

/* The samples that come next, without bad ones. */
static void check_order(const struct mr_batch *b, bool skip, uint64_t *next, struct mr_stream *s)
{
    int32_t want[BATCH];
    for (uint64_t i = 0; i < b->n; i++, ++*next) {
        while (skip && is_bad(*next))
            ++*next;
        assert_int_equal(b->indices[i], *next);
        want[i] = (int32_t)*next;
    }
    check_field(b, 2, s, want, b->n * sizeof *want);
}

struct setting {
    const char *device;
    enum mr_collate collate;
    bool skip;
    uint32_t workers, hold;
};

static void run_setting(const struct setting *s)
{
    struct mr_dataset *ds = open_set(s->skip);
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_loader *ld;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.collate = s->collate;
    opts.pad_value = PAD_X;
    opts.workers = s->workers;
    opts.bad = s->skip ? MR_BAD_SKIP : MR_BAD_FAIL;
    must(mr_device_open(s->device, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    must(mr_loader_open(ds, NULL, NULL, dev, &opts, &ld));
    struct mr_batch held[8] = {{0}};
    for (int i = 0; i < 8; i++)
        held[i].size = sizeof held[i];
    uint64_t next = 0;
    uint32_t n = 0;
    int rc = 1;
    while (rc > 0 || n > 0) {
        rc = rc > 0 ? mr_loader_next(ld, stream, &held[n]) : rc;
        must(rc);
        n += rc > 0;
        if (rc > 0 && n <= s->hold)
            continue;
        if (n == 0)
            break;
        check_order(&held[0], s->skip, &next, stream);
        check_x(&held[0], s->collate, stream);
        check_y(&held[0], s->collate, stream);
        must(mr_loader_release(ld, &held[0], stream));
        memmove(&held[0], &held[1], --n * sizeof *held);
    }
    while (s->skip && next < N && is_bad(next))
        next++;
    assert_int_equal(next, N);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_dataset_close(ds);
}

static void batches_equal_the_reference(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:h2d=20,latency=1us"};
    for (int k = 0; k < 48; k++) {
        struct setting s = {.device = devices[k % 2],
                            .collate = (enum mr_collate)(MR_COLLATE_PAD + k / 2 % 3),
                            .skip = k / 6 % 2,
                            .workers = 1 + (uint32_t)k / 12,
                            .hold = k / 24 * 5};
        both_vary = s.collate != MR_COLLATE_RAGGED && k / 12 % 2;
        run_setting(&s);
    }
}

/* ---- memory ---- */

#define BOUND 131072
static uint64_t shortest = 100, span = 100;

static int get_tokens(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    int32_t *ids = row[0];
    dim[0][0] = shortest + hash_of(index, 5) % span;
    for (uint64_t i = 0; i < dim[0][0]; i++)
        ids[i] = (int32_t)(index + i);
    return 0;
}

static struct run read_tokens(const char *device, enum mr_collate collate, uint64_t max_memory,
                              struct mr_budget *budget)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "tokens";
    o.n = 2000;
    o.n_fields = 1;
    o.field[0] =
        (struct mr_spec){.name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {BOUND}};
    o.get = get_tokens;
    struct run_config c = run_config(NULL);
    c.device = device;
    c.opts.collate = collate;
    c.opts.max_memory = max_memory;
    c.opts.budget = budget;
    c.opts.workers = 2;
    c.hold = 1;
    must(mr_dataset_open_callback(&o, &c.ds));
    struct run run = run_loader(&c);
    mr_dataset_close(c.ds);
    return run;
}

static uint64_t sum_of(const struct mr_loader_stats *st)
{
    return st->pageable_bytes + st->pinned_bytes + st->device_bytes;
}

static void memory_follows_the_samples(void **state)
{
    (void)state;
    for (int collate = MR_COLLATE_PAD; collate <= MR_COLLATE_RAGGED; collate += 2) {
        struct run run = read_tokens("sim:h2d=20,latency=1us", (enum mr_collate)collate, 0, NULL);
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.n, 2000);
        print_message("pageable %llu, pinned %llu, device %llu bytes\n",
                      (unsigned long long)run.stats.pageable_bytes,
                      (unsigned long long)run.stats.pinned_bytes,
                      (unsigned long long)run.stats.device_bytes);
        assert_true(sum_of(&run.stats) < 2u << 20);
        run_free(&run);
    }
}

static struct run read_in_budget(const char *device, uint64_t max_memory)
{
    struct mr_budget_opts o;
    struct mr_budget *budget;
    mr_budget_opts_init(&o);
    o.max_memory = max_memory;
    must(mr_budget_create(&o, &budget));
    struct run run = read_tokens(device, MR_COLLATE_RAGGED, 0, budget);
    mr_budget_destroy(budget);
    return run;
}

/* What slots grow to counts: with less than it takes the run ends, with that much it does not. */
static void growth_counts_against_the_ceiling(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:h2d=20,latency=1us"};
    shortest = 3000;
    for (int d = 0; d < 2; d++) {
        struct run free_run = read_tokens(devices[d], MR_COLLATE_RAGGED, 0, NULL);
        assert_int_equal(free_run.rc, 0);
        uint64_t need = sum_of(&free_run.stats);
        struct run all = read_tokens(devices[d], MR_COLLATE_RAGGED, need + need / 4, NULL);
        assert_int_equal(all.rc, 0);
        assert_same_rows(&free_run, &all);
        assert_true(sum_of(&all.stats) <= need + need / 4);
        struct run less = read_tokens(devices[d], MR_COLLATE_RAGGED, need / 2, NULL);
        assert_int_equal(less.rc, MR_ELIMIT);
        assert_non_null(strstr(less.error, "max_memory"));
        assert_non_null(strstr(less.error, "slots grown by"));
        assert_true(sum_of(&less.stats) <= need / 2);
        run_free(&less);
        less = read_in_budget(devices[d], need / 2);
        assert_int_equal(less.rc, MR_ELIMIT);
        assert_non_null(strstr(less.error, "budget: max_memory"));
        assert_non_null(strstr(less.error, "its slots grow"));
        run_free(&less);
        less = read_in_budget(devices[d], need + need / 4);
        assert_int_equal(less.rc, 0);
        run_free(&less);
        run_free(&all);
        run_free(&free_run);
    }
    shortest = 100;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_equal_the_reference),
        cmocka_unit_test(memory_follows_the_samples),
        cmocka_unit_test(growth_counts_against_the_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
