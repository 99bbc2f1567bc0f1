/* The loader's option table: defaults, ranges, text, structs of older callers. */
#include "unit.h"

#include <math.h>
#include <millrace/millrace.h>

/* One wrong value in a struct that is right otherwise: what opening the loader says of it. */
static const char *open_with(const struct mr_loader_opts *opts, int *rc)
{
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = NULL;
    assert_int_equal(mr_dataset_open("synthetic:n=10,shape=4", &ds), 0);
    *rc = mr_loader_open(ds, NULL, NULL, NULL, opts, &ld);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return mr_last_error();
}

static uint64_t n_choices(const struct mr_option *o)
{
    uint64_t n = 0;
    while (o->choices && o->choices[n])
        n++;
    return n;
}

static void set_number(const struct mr_option *o, struct mr_loader_opts *opts, uint64_t value)
{
    char *member = (char *)opts + o->offset;
    if (o->type == MR_OPT_UINT32)
        *(uint32_t *)(void *)member = (uint32_t)value;
    else if (o->type == MR_OPT_ENUM)
        *(int *)(void *)member = (int)value;
    else
        *(uint64_t *)(void *)member = value;
}

static uint64_t number(const struct mr_option *o, const struct mr_loader_opts *opts)
{
    const char *member = (const char *)opts + o->offset;
    if (o->type == MR_OPT_UINT32)
        return *(const uint32_t *)(const void *)member;
    if (o->type == MR_OPT_ENUM || o->type == MR_OPT_FLAG)
        return (uint64_t) * (const int *)(const void *)member;
    return *(const uint64_t *)(const void *)member;
}

static void rows_are_complete_and_apart(void **state)
{
    (void)state;
    for (const struct mr_option *o = mr_loader_options(); o->name; o++) {
        assert_non_null(o->help);
        assert_non_null(o->group);
        assert_true(o->offset >= sizeof(size_t) && o->offset < sizeof(struct mr_loader_opts));
        assert_true(o->type == MR_OPT_FLAG || o->type == MR_OPT_STRING || o->initial);
        for (const struct mr_option *p = mr_loader_options(); p < o; p++) {
            assert_int_not_equal(p->offset, o->offset);
            assert_true(!o->key || p->key != o->key);
            assert_string_not_equal(p->name, o->name);
        }
    }
}

/* What documentation promises, beside what the table gives. */
static void defaults_are_the_documented_ones(void **state)
{
    (void)state;
    struct mr_loader_opts o;
    memset(&o, 0xAB, sizeof o);
    mr_loader_opts_init(&o);
    assert_int_equal(o.size, sizeof o);
    assert_int_equal(o.batch_size, 64);
    assert_int_equal(o.epochs, 1);
    assert_int_equal(o.world, 1);
    assert_int_equal(o.streams, 1);
    assert_int_equal(o.pin, 1);
    assert_int_equal(o.device_transforms, MR_DEVICE_TRANSFORMS_AUTO);
    assert_true(o.max_bad == UINT64_MAX && o.max_bad_fraction == 0);
    assert_true(o.gpu_decode == 0 && o.pad_value == 0);
    assert_true(!o.state && !o.seed && !o.rank && !o.workers && !o.prefetch && !o.read_ahead);
    assert_true(!o.queue_depth && !o.max_memory && !o.drop_last && !o.blocking && !o.direct);
    assert_true(!o.storage && !o.cache && !o.collate && !o.bad && !o.remainder && !o.force_state);
    for (const struct mr_option *row = mr_loader_options(); row->name; row++) {
        char text[96];
        struct mr_loader_opts same = o;
        if (row->type == MR_OPT_STRING)
            continue;
        snprintf(text, sizeof text, "%s=%s", row->name, row->initial ? row->initial : "0");
        assert_int_equal(mr_loader_opts_parse(text, &same), 0);
        assert_memory_equal(&same, &o, sizeof o);
    }
}

/* Whatever is out of a row's range is refused in text and in the struct, and named. */
static void ranges_hold_for_text_and_struct(void **state)
{
    (void)state;
    int n = 0;
    for (const struct mr_option *o = mr_loader_options(); o->name; o++) {
        uint64_t over = o->type == MR_OPT_ENUM ? n_choices(o) : (uint64_t)o->max + 1;
        char text[96], name[64];
        int rc;
        if (o->type != MR_OPT_ENUM && o->max <= 0)
            continue;
        struct mr_loader_opts opts, before;
        mr_loader_opts_init(&opts);
        before = opts;
        snprintf(text, sizeof text, "%s=%llu", o->name, (unsigned long long)over);
        assert_int_equal(mr_loader_opts_parse(text, &opts), MR_EOPTION);
        assert_non_null(strstr(mr_last_error(), text));
        assert_memory_equal(&opts, &before, sizeof opts);
        set_number(o, &opts, over);
        snprintf(name, sizeof name, "%s %llu: expected", o->name, (unsigned long long)over);
        for (char *p = name; *p; p++)
            *p = *p == '-' ? '_' : *p;
        const char *error = open_with(&opts, &rc);
        assert_int_equal(rc, MR_EOPTION);
        if (!strstr(error, name))
            fail_msg("'%s' is not in '%s'", name, error);
        n++;
    }
    assert_true(n >= 14);
}

static void fractions_are_checked(void **state)
{
    (void)state;
    static const double bad[] = {-0.5, 1.5, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mr_loader_opts opts;
        int rc;
        mr_loader_opts_init(&opts);
        opts.gpu_decode = bad[i];
        assert_non_null(strstr(open_with(&opts, &rc), "gpu_decode "));
        assert_int_equal(rc, MR_EOPTION);
        opts.gpu_decode = 0;
        opts.max_bad_fraction = bad[i];
        assert_non_null(strstr(open_with(&opts, &rc), "max_bad fraction "));
        assert_int_equal(rc, MR_EOPTION);
    }
}

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* Any list of options gives the struct that setting the members gives. */
static void text_sets_what_it_names(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct mr_loader_opts opts, want;
        char text[1024] = "";
        size_t at = 0;
        mr_loader_opts_init(&opts);
        want = opts;
        for (const struct mr_option *o = mr_loader_options(); o->name; o++) {
            uint64_t most = o->type == MR_OPT_ENUM   ? n_choices(o)
                            : o->type == MR_OPT_FLAG ? 2
                            : o->max > 0             ? (uint64_t)o->max
                                                     : 1000;
            bool whole = o->type != MR_OPT_DOUBLE && o->type != MR_OPT_SHARE &&
                         o->type != MR_OPT_LIMIT && o->type != MR_OPT_STRING;
            uint64_t value = draw(most);
            if (!whole || draw(2) || (double)value < o->min)
                continue;
            const char *comma = at ? "," : "";
            at += (size_t)(o->type == MR_OPT_ENUM
                               ? snprintf(text + at, sizeof text - at, "%s%s=%s", comma, o->name,
                                          o->choices[value])
                               : snprintf(text + at, sizeof text - at, "%s%s=%llu", comma, o->name,
                                          (unsigned long long)value));
            if (o->type == MR_OPT_FLAG)
                *(int *)(void *)((char *)&want + o->offset) = (int)value;
            else
                set_number(o, &want, value);
        }
        assert_int_equal(mr_loader_opts_parse(text, &opts), 0);
        for (const struct mr_option *o = mr_loader_options(); o->name; o++)
            if (number(o, &opts) != number(o, &want))
                fail_msg("%s of '%s'", o->name, text);
        assert_memory_equal(&opts, &want, sizeof opts);
    }
}

/* A program compiled when the struct ended at `end`: nothing behind it exists or changes. */
static void older_structs_end_earlier(void **state)
{
    (void)state;
    size_t end = offsetof(struct mr_loader_opts, streams);
    unsigned char guard[sizeof(struct mr_loader_opts)];
    struct mr_loader_opts opts;
    memset(&opts, 0xAB, sizeof opts);
    memset(guard, 0xAB, sizeof guard);
    mr_loader_opts_fill(&opts, end);
    assert_int_equal(mr_loader_opts_parse("workers=3,blocking,bad=skip", &opts), 0);
    assert_int_equal(opts.size, end);
    assert_int_equal(opts.workers, 3);
    assert_int_equal(opts.blocking, 1);
    assert_int_equal(opts.bad, MR_BAD_SKIP);
    assert_int_equal(mr_loader_opts_parse("workers=4,gpu-decode=on", &opts), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "gpu-decode: no such option"));
    assert_int_equal(opts.workers, 3);
    assert_memory_equal((char *)&opts + end, guard, sizeof opts - end);
}

static void misuse_is_an_error(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    assert_int_equal(mr_loader_opts_parse(NULL, &opts), MR_EMISUSE);
    assert_int_equal(mr_loader_opts_parse("workers=1", NULL), MR_EMISUSE);
    opts.size = sizeof opts + 8;
    assert_int_equal(mr_loader_opts_parse("workers=1", &opts), MR_EMISUSE);
    assert_int_equal(opts.workers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete_and_apart),
        cmocka_unit_test(defaults_are_the_documented_ones),
        cmocka_unit_test(ranges_hold_for_text_and_struct),
        cmocka_unit_test(fractions_are_checked),
        cmocka_unit_test(text_sets_what_it_names),
        cmocka_unit_test(older_structs_end_earlier),
        cmocka_unit_test(misuse_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
