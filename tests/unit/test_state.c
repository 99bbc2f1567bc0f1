/* A saved state belongs to one sampler and one chain: others are refused unless forced. */
#include "run_loader.h"

#include <stdlib.h>

#define N 64

struct order {
    const char *name;
    uint64_t version, length;
    const char *op; /* of the caller's own, behind hflip(0.5); NULL: no chain */
    uint64_t op_version;
};

static const struct order same = {"balanced", 2, N, "noise", 3};

static int map(void *user, uint64_t epoch, uint64_t position, uint64_t count, uint64_t *out)
{
    (void)user;
    (void)epoch;
    for (uint64_t i = 0; i < count; i++)
        out[i] = (position + i) % N;
    return 0;
}

static int op(void *user, const struct mr_spec *in_spec, const void *in, const uint64_t *in_dim,
              const struct mr_spec *out_spec, void *out, uint64_t *out_dim,
              const uint32_t random[4])
{
    (void)user;
    (void)in_spec;
    (void)in_dim;
    (void)out_dim;
    (void)random;
    uint64_t bytes;
    must(mr_spec_bytes(out_spec, &bytes));
    memcpy(out, in, bytes);
    return 0;
}

static struct mr_sampler *sampler_of(const struct order *o)
{
    struct mr_sampler_opts so;
    struct mr_sampler *sampler;
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_CUSTOM;
    so.map = map;
    so.length = o->length;
    so.name = o->name;
    so.version = o->version;
    must(mr_sampler_create(&so, N, &sampler));
    return sampler;
}

static struct mr_transform *chain_of(const struct order *o)
{
    struct mr_transform *chain;
    if (!o->op)
        return NULL;
    const struct mr_transform_fn fn = {
        .size = sizeof fn, .name = o->op, .apply = op, .version = o->op_version};
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "hflip(0.5)"));
    must(mr_transform_add_fn(chain, &fn));
    return chain;
}

/* Takes a batch from `state` on. Returns the rc of open, and on 0 the state after that batch. */
static int resume(const struct order *o, const char *state, int force, char next[1024])
{
    struct mr_dataset *ds;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    struct mr_sampler *sampler = sampler_of(o);
    struct mr_transform *chain = chain_of(o);
    must(mr_dataset_open("synthetic:n=64,shape=2x3x3,dtype=u8", &ds));
    mr_loader_opts_init(&opts);
    opts.workers = 1;
    opts.batch_size = 5;
    opts.state = state;
    opts.force_state = force;
    int rc = mr_loader_open(ds, sampler, chain, NULL, &opts, &ld);
    if (rc == 0) {
        must(mr_loader_next(ld, NULL, &b));
        assert_int_equal(b.positions[0], state ? 5 : 0);
        must(mr_loader_release(ld, &b, NULL));
        must(mr_loader_state(ld, next, 1024));
    }
    mr_loader_close(ld);
    mr_dataset_close(ds);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    return rc;
}

static void another_sampler_or_chain_is_refused(void **state)
{
    (void)state;
    static char long_a[300], long_b[300];
    memset(long_a, 'x', sizeof long_a - 1);
    memcpy(long_b, long_a, sizeof long_a);
    long_b[sizeof long_b - 2] = 'y';
    const struct order orders[] = {
        same,
        {"reversed", 2, N, "noise", 3},
        {"balanced", 1, N, "noise", 3},
        {NULL, 2, N, "noise", 3},
        {NULL, 0, N, "noise", 3},
        {"balanced", 2, N, "noise", 4},
        {"balanced", 2, N, "noise", 0},
        {"balanced", 2, N, "blur", 3},
        {"balanced", 2, N, "no\"se", 3},
        {"balanced", 2, N, "no\\se", 3},
        {"balanced", 2, N, "no?se", 3},
        {"balanced", 2, N, "no\nse", 3},
        {"balanced", 2, N, long_a, 3},
        {"balanced", 2, N, long_b, 3},
        {"balanced", 2, N, NULL, 0},
    };
    for (size_t i = 0; i < MR_COUNT(orders); i++) {
        char from[1024], next[1024], forced[1024];
        assert_int_equal(resume(&orders[i], NULL, 0, from), 0);
        for (size_t k = 0; k < MR_COUNT(orders); k++) {
            int rc = resume(&orders[k], from, 0, next);
            if (rc != (i == k ? 0 : MR_ESTATE))
                fail_msg("state of %zu in %zu: %d", i, k, rc);
            assert_true(rc == 0 || strstr(mr_last_error(), "force-state"));
            assert_int_equal(resume(&orders[k], from, 1, forced), 0);
            assert_true(rc != 0 || strcmp(next, forced) == 0);
        }
    }
}

static void both_are_named(void **state)
{
    (void)state;
    char from[1024], next[1024];
    const struct order other_map = {"reversed", 0, N, "noise", 3},
                       other_op = {"balanced", 2, N, "blur", 0};
    assert_int_equal(resume(&same, NULL, 0, from), 0);
    assert_int_equal(resume(&other_map, from, 0, next), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "has custom(balanced,version=2,length=64,seed=0), "));
    assert_non_null(strstr(mr_last_error(), "this run has custom(reversed,length=64,seed=0)"));
    assert_int_equal(resume(&other_op, from, 0, next), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "has hflip(0.5),noise(version=3), "));
    assert_non_null(strstr(mr_last_error(), "this run has hflip(0.5),blur"));
}

/* force_state is for sampler and chain alone. */
static void force_does_not_accept_another_length(void **state)
{
    (void)state;
    char from[1024], next[1024];
    const struct order shorter = {"balanced", 2, N - 1, "noise", 3};
    assert_int_equal(resume(&same, NULL, 0, from), 0);
    assert_int_equal(resume(&shorter, from, 1, next), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "64 samples there, 63 here"));
}

static void states_without_a_chain_load(void **state)
{
    (void)state;
    const struct order unnamed = {NULL, 0, N, "noise", 3};
    char from[1024], old[1024], next[1024];
    assert_int_equal(resume(&unnamed, NULL, 0, from), 0);
    assert_non_null(strstr(from, "\"custom(length=64,seed=0)\"")); /* as 0.1 wrote it */
    char *chain = strstr(from, "\"chain\""), *seed = strstr(from, "\"seed\"");
    assert_true(chain && seed && chain < seed);
    snprintf(old, sizeof old, "%.*s%s", (int)(chain - from), from, seed);
    assert_int_equal(resume(&unnamed, old, 0, next), 0);
    snprintf(old, sizeof old, "%.*s\"chain\": 1, %s", (int)(chain - from), from, seed);
    assert_int_equal(resume(&unnamed, old, 0, next), MR_ESTATE);
}

static void names_of_samplers_are_checked(void **state)
{
    (void)state;
    char name[65];
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    const char *const bad[] = {"", "a\"b", "a\\b", "a\nb", "\xc3\xa4", name};
    struct mr_sampler_opts so;
    struct mr_sampler *s;
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_CUSTOM;
    so.map = map;
    so.length = N;
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        so.name = bad[i];
        assert_int_equal(mr_sampler_create(&so, N, &s), MR_EOPTION);
        assert_non_null(strstr(mr_last_error(), "opts.name"));
    }
    so.name = name + 1; /* the longest texts of all parts are whole */
    so.version = so.seed = UINT64_MAX;
    so.length = 1ull << 63;
    must(mr_sampler_create(&so, N, &s));
    assert_non_null(strstr(mr_sampler_text(s), ",seed=18446744073709551615)"));
    mr_sampler_destroy(s);
}

static void note_log(void *user, enum mr_log_level level, const char *text)
{
    int *n = user;
    if (level == MR_LOG_WARNING && strstr(text, "custom(length=64,seed=0) may be another order"))
        ++*n;
}

/* Two orders without a name have the same text: a warning says so where that can do harm. */
static void unnamed_samplers_are_warned_of(void **state)
{
    (void)state;
    char from[1024], next[1024];
    const struct order unnamed = {NULL, 0, N, NULL, 0}, version = {NULL, 1, N, NULL, 0};
    int n = 0;
    mr_log_set(note_log, &n);
    assert_int_equal(resume(&unnamed, NULL, 0, from), 0); /* no state, no harm */
    assert_int_equal(n, 0);
    assert_int_equal(resume(&unnamed, from, 0, next), 0);
    assert_int_equal(n, 1);
    assert_int_equal(resume(&unnamed, from, 1, next), 0); /* forced: the caller knows */
    assert_int_equal(resume(&version, NULL, 0, from), 0);
    assert_int_equal(resume(&version, from, 0, next), 0);
    assert_int_equal(n, 1);
    mr_log_set(NULL, NULL);
}

/* Structs of callers that do not know the new members. */
static void older_structs_work(void **state)
{
    (void)state;
    struct mr_sampler_opts so;
    struct mr_sampler *s;
    struct mr_transform *chain;
    struct mr_transform_fn fn = {.size = offsetof(struct mr_transform_fn, version),
                                 .name = "noise",
                                 .apply = op,
                                 .version = 9};
    mr_sampler_opts_init(&so);
    so.size = offsetof(struct mr_sampler_opts, name);
    so.kind = MR_SAMPLER_CUSTOM;
    so.map = map;
    so.length = N;
    so.name = "unknown";
    so.version = 9;
    must(mr_sampler_create(&so, N, &s));
    assert_string_equal(mr_sampler_text(s), "custom(length=64,seed=0)");
    must(mr_transform_create(&chain));
    must(mr_transform_add_fn(chain, &fn));
    assert_string_equal(mr_transform_text(chain), "noise");
    fn.size--;
    assert_int_equal(mr_transform_add_fn(chain, &fn), MR_EOPTION);
    mr_transform_destroy(chain);
    mr_sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_sampler_or_chain_is_refused),
        cmocka_unit_test(both_are_named),
        cmocka_unit_test(force_does_not_accept_another_length),
        cmocka_unit_test(states_without_a_chain_load),
        cmocka_unit_test(unnamed_samplers_are_warned_of),
        cmocka_unit_test(names_of_samplers_are_checked),
        cmocka_unit_test(older_structs_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
