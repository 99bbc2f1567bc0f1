/* Collation by a callback: it sees every good sample once, in order; what it makes arrives; what it
 * may not do ends the run; its name and version are in states. */
#include "run_loader.h"

#include <errno.h>

#define N     500
#define BOUND 30
#define BATCH 16
#define SIDE  4 /* of a sample's fixed field */

static uint64_t length_of(uint64_t index)
{
    return index * 7 % (BOUND + 1);
}

static bool is_bad(uint64_t index)
{
    return index % 11 == 5;
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    int32_t *ids = row[0];
    uint8_t *square = row[1];
    if (user && is_bad(index))
        return -EIO;
    dim[0][0] = length_of(index);
    for (uint64_t i = 0; i < dim[0][0]; i++)
        ids[i] = (int32_t)(index * 100 + i);
    for (int i = 0; i < SIDE * SIDE; i++)
        square[i] = (uint8_t)(index + (uint64_t)i);
    return 0;
}

static struct mr_dataset *open_set(bool with_bad)
{
    static int yes;
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "things";
    o.n = N;
    o.n_fields = 2;
    o.field[0] =
        (struct mr_spec){.name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {BOUND}};
    o.field[1] = (struct mr_spec){.name = "square", .dtype = MR_U8, .rank = 2, .dim = {SIDE, SIDE}};
    o.get = get;
    o.user = with_bad ? &yes : NULL;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

/* ---- a callback ---- */

enum { PAIRS, SQUARES, NUMBERS, N_OUT };

static enum { GOOD, FAILS, RETURNS_5, TOO_LONG, SHORT_FIXED } behaviour;
static bool changed; /* squares are upside down, by the chain */

/* Each element with its sample's index; squares in reverse order; what the context says. */
static int collate(void *user, const struct mr_collate_context *c, int n_in,
                   const struct mr_collate_in in[], struct mr_collate_out out[])
{
    int32_t(*pair)[2] = out[PAIRS].data;
    uint8_t *square = out[SQUARES].data;
    uint64_t *number = out[NUMBERS].data, n = 0;
    if (*(int *)user != 17 || n_in != 2 || c->size != sizeof *c)
        return mr_error_set(MR_ECALLBACK, "not called as promised");
    for (uint64_t i = 0; i < c->n; i++) {
        const int32_t *ids = in[0].row[i];
        for (uint64_t k = 0; k < in[0].dim[i][0]; k++, n++) {
            pair[n][0] = (int32_t)c->indices[i];
            pair[n][1] = ids[k];
        }
        memcpy(square + (c->n - 1 - i) * SIDE * SIDE, in[1].row[i], SIDE * SIDE);
        if (in[1].dim[i][0] != SIDE || in[1].dim[i][1] != SIDE)
            return -EINVAL;
    }
    out[PAIRS].dim[0] = n;
    out[SQUARES].dim[0] = c->n;
    number[0] = c->epoch;
    number[1] = c->batch;
    number[2] = c->positions[0];
    number[3] = c->seed;
    if (behaviour == TOO_LONG)
        out[PAIRS].dim[0] = BATCH * BOUND + 1;
    if (behaviour == SHORT_FIXED)
        out[NUMBERS].dim[0] = 3;
    if (behaviour == FAILS && c->batch == 3)
        return mr_error_set(-EDOM, "no good batch");
    return behaviour == RETURNS_5 ? 5 : 0;
}

static struct mr_collate_fn function(void)
{
    static int user = 17;
    struct mr_collate_fn fn;
    mr_collate_fn_init(&fn);
    fn.name = "pairs";
    fn.n_fields = N_OUT;
    fn.field[PAIRS] = (struct mr_spec){
        .name = "pairs", .dtype = MR_I32, .rank = 2, .var_dims = 1, .dim = {BATCH * BOUND, 2}};
    fn.field[SQUARES] = (struct mr_spec){
        .name = "squares", .dtype = MR_U8, .rank = 3, .var_dims = 1, .dim = {BATCH, SIDE, SIDE}};
    fn.field[NUMBERS] = (struct mr_spec){.name = "numbers", .dtype = MR_U64, .rank = 1, .dim = {4}};
    fn.collate = collate;
    fn.user = &user;
    return fn;
}

/* ---- what arrives ---- */

static void *fetch(const struct mr_batch *b, int f, struct mr_stream *stream)
{
    void *out = malloc(b->field[f].bytes + 1);
    must(mr_copy_async(stream, out, MR_PAGEABLE, b->field[f].data, MR_DEVICE, b->field[f].bytes));
    must(mr_stream_synchronize(stream));
    assert_memory_equal(out, b->field[f].host, b->field[f].bytes);
    return out;
}

static void check_batch(const struct mr_batch *b, struct mr_stream *stream)
{
    int32_t(*pair)[2] = fetch(b, PAIRS, stream);
    uint8_t *square = fetch(b, SQUARES, stream);
    uint64_t *number = fetch(b, NUMBERS, stream), n = 0;
    for (uint64_t i = 0; i < b->n; i++) {
        for (uint64_t k = 0; k < length_of(b->indices[i]); k++, n++) {
            assert_int_equal(pair[n][0], b->indices[i]);
            assert_int_equal(pair[n][1], b->indices[i] * 100 + k);
        }
        for (uint64_t k = 0; k < (uint64_t)SIDE * SIDE; k++) {
            uint64_t from = changed ? (SIDE - 1 - k / SIDE) * SIDE + k % SIDE : k;
            uint8_t value = (uint8_t)(b->indices[i] + from);
            assert_int_equal(square[(b->n - 1 - i) * SIDE * SIDE + k], value);
        }
    }
    assert_int_equal(b->n_fields, N_OUT);
    assert_int_equal(b->field[PAIRS].spec.dim[0], n);
    assert_int_equal(b->field[PAIRS].bytes, n * 8);
    assert_int_equal(b->field[SQUARES].spec.dim[0], b->n);
    assert_int_equal(number[0], b->epoch);
    assert_int_equal(number[1], b->index);
    assert_int_equal(number[2], b->positions[0]);
    assert_int_equal(number[3], 99);
    free(pair);
    free(square);
    free(number);
}

static void batches_are_the_callbacks(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:h2d=20,latency=1us"};
    for (int k = 0; k < 8; k++) {
        struct mr_collate_fn fn = function();
        struct mr_dataset *ds = open_set(k / 2 % 2);
        struct mr_transform *chain = NULL;
        struct mr_device *dev;
        struct mr_stream *stream;
        struct mr_loader *ld;
        struct mr_loader_opts o;
        struct mr_batch b = {.size = sizeof b};
        uint64_t next = 0;
        mr_loader_opts_init(&o);
        o.batch_size = BATCH;
        o.seed = 99;
        o.workers = 1 + (uint32_t)k;
        o.bad = MR_BAD_SKIP;
        o.collate_fn = &fn;
        changed = k / 4;
        must(mr_transform_create(&chain));
        if (changed)
            must(mr_transform_add(chain, "square.vflip(1)"));
        must(mr_device_open(devices[k % 2], &dev));
        must(mr_stream_create(dev, "consumer", &stream));
        must(mr_loader_open(ds, NULL, chain, dev, &o, &ld));
        assert_string_equal(mr_loader_field(ld, SQUARES)->name, "squares");
        assert_null(mr_loader_field(ld, N_OUT));
        int rc;
        while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
            check_batch(&b, stream);
            for (uint64_t i = 0; i < b.n; i++, next++) {
                while (k / 2 % 2 && is_bad(next))
                    next++;
                assert_int_equal(b.indices[i], next);
            }
            must(mr_loader_release(ld, &b, stream));
        }
        must(rc);
        assert_int_equal(next, N);
        mr_loader_close(ld);
        mr_stream_destroy(stream);
        mr_device_close(dev);
        mr_transform_destroy(chain);
        mr_dataset_close(ds);
    }
    changed = false;
}

/* ---- refused ---- */

static struct run run_with(const struct mr_collate_fn *fn, const char *state)
{
    struct run_config c = run_config(NULL);
    c.ds = open_set(false);
    c.opts.batch_size = BATCH;
    c.opts.seed = 99;
    c.opts.collate_fn = fn;
    c.opts.state = state;
    c.stop_after = 5;
    struct run run = run_loader(&c);
    mr_dataset_close(c.ds);
    return run;
}

static void garbage_ends_the_run(void **state)
{
    (void)state;
    static const struct {
        int behaviour, rc;
        const char *text;
    } cases[] = {
        {FAILS, -EDOM, "pairs: batch 3 of epoch 0: no good batch"},
        {RETURNS_5, MR_ECALLBACK, "collate returned 5"},
        {TOO_LONG, MR_ECALLBACK, "field 'pairs': dimension 0 is 481: expected at most 480"},
        {SHORT_FIXED, MR_ECALLBACK, "field 'numbers': dimension 0 is 3: expected 4"},
    };
    struct mr_collate_fn fn = function();
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        behaviour = cases[i].behaviour;
        struct run run = run_with(&fn, NULL);
        assert_int_equal(run.rc, cases[i].rc);
        if (!strstr(run.error, cases[i].text))
            fail_msg("'%s' is not in '%s'", cases[i].text, run.error);
        run_free(&run);
    }
    behaviour = GOOD;
}

static void expect_refused(const struct mr_collate_fn *fn, enum mr_collate way, const char *text)
{
    struct mr_dataset *ds = open_set(false);
    struct mr_loader_opts o;
    struct mr_loader *ld = NULL;
    mr_loader_opts_init(&o);
    o.collate = way;
    o.collate_fn = fn;
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &o, &ld);
    if (rc >= 0 || !strstr(mr_last_error(), text))
        fail_msg("%d: '%s' is not in '%s'", rc, text, mr_last_error());
    mr_dataset_close(ds);
}

static void what_is_refused_at_open(void **state)
{
    (void)state;
    const struct mr_collate_fn good = function();
    struct mr_collate_fn fn = good;
    expect_refused(&fn, MR_COLLATE_PAD, "expected stack");
    fn.name = NULL;
    expect_refused(&fn, MR_COLLATE_STACK, "name: expected");
    fn.name = "a\"b";
    expect_refused(&fn, MR_COLLATE_STACK, "name: expected");
    fn = good;
    fn.collate = NULL;
    expect_refused(&fn, MR_COLLATE_STACK, "collate is NULL");
    fn = good;
    fn.n_fields = 0;
    expect_refused(&fn, MR_COLLATE_STACK, "n_fields 0");
    fn = good;
    fn.field[1] = fn.field[0];
    expect_refused(&fn, MR_COLLATE_STACK, "field 1: expected a name of its own");
    fn = good;
    fn.field[0].dim[0] = 1ull << 62;
    expect_refused(&fn, MR_COLLATE_STACK, "");
    fn = good;
    fn.size = 4096;
    expect_refused(&fn, MR_COLLATE_STACK, "collate_fn");
}

static void states_know_the_callback(void **state)
{
    (void)state;
    struct mr_collate_fn fn = function();
    fn.version = 2;
    struct run first = run_with(&fn, NULL);
    assert_non_null(strstr(first.state, "collate(pairs,version=2)"));
    struct run again = run_with(&fn, first.state);
    assert_int_equal(again.row[0].position, first.n);
    fn.version = 3;
    struct run other = run_with(&fn, first.state);
    assert_int_equal(other.rc, MR_ESTATE);
    assert_non_null(strstr(other.error, "version=2"));
    run_free(&first);
    run_free(&again);
    run_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_the_callbacks),
        cmocka_unit_test(garbage_ends_the_run),
        cmocka_unit_test(what_is_refused_at_open),
        cmocka_unit_test(states_know_the_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
