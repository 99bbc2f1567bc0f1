/* White-box: mr_info_give(). Structs of a wrong size are refused in one way by every call that
 * takes one. */
#include "base/base.h"
#include "unit.h"

#include <millrace/millrace.h>

/* CALL with opts->size in turn 0, 7 and one more than the library knows, then with a right one. */
#define REFUSES(name, CALL)                                                                        \
    do {                                                                                           \
        struct mr_##name##_opts all, *opts = &all;                                                 \
        const size_t wrong[] = {0, sizeof(size_t) - 1, sizeof all + 1, SIZE_MAX};                  \
        mr_##name##_opts_init(opts);                                                               \
        for (size_t i = 0; i < MR_COUNT(wrong); i++) {                                             \
            opts->size = wrong[i];                                                                 \
            mr_error_set(MR_EFORMAT, "nothing");                                                   \
            assert_int_equal(CALL, MR_EMISUSE);                                                    \
            assert_non_null(strstr(mr_last_error(), "mr_" #name "_opts_init()"));                  \
        }                                                                                          \
    } while (0)

static void options(void **state)
{
    (void)state;
    struct mr_recording *rec = NULL;
    struct mr_table *table = NULL;
    struct mr_advice *advice = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_budget *budget = NULL;
    struct mr_dataset *ds = NULL;
    REFUSES(report, mr_report_make(rec, "mem_ops", opts, &table));
    REFUSES(advice, mr_analyze(rec, opts, &advice));
    REFUSES(timeline, mr_timeline_write(rec, "/nowhere/x", MR_TIMELINE_SVG, opts));
    REFUSES(sampler, mr_sampler_create(opts, 5, &sampler));
    REFUSES(budget, mr_budget_create(opts, &budget));
    assert_null(budget);
    REFUSES(remote, mr_remote_opts_set(opts));
    REFUSES(array, mr_dataset_open_array(opts, &ds));
    REFUSES(callback, mr_dataset_open_callback(opts, &ds));
    REFUSES(idx, mr_dataset_open_idx(opts, &ds));
    REFUSES(raw, mr_dataset_open_raw(opts, &ds));
    REFUSES(csv, mr_dataset_open_csv(opts, &ds));
    REFUSES(tar, mr_dataset_open_tar(opts, &ds));
    REFUSES(mix, mr_dataset_open_mix(opts, &ds));
    assert_null(table);
    assert_null(advice);
    assert_null(sampler);
    assert_null(ds);
}

static void options_with_devices(void **state)
{
    (void)state;
    struct mr_device *dev;
    struct mr_dataset *ds;
    struct mr_net *net = NULL;
    struct mr_trainer *trainer = NULL;
    struct mr_loader *ld = NULL;
    assert_int_equal(mr_device_open("cpu", &dev), 0);
    assert_int_equal(mr_dataset_open("synthetic:n=8,shape=4", &ds), 0);
    REFUSES(net, mr_net_create(dev, opts, &net));
    REFUSES(trainer, mr_trainer_create(dev, ds, NULL, opts, &trainer));
    REFUSES(loader, mr_loader_open(ds, NULL, NULL, dev, opts, &ld));
    assert_null(net);
    assert_null(trainer);
    assert_null(ld);
    mr_dataset_close(ds);
    mr_device_close(dev);
}

struct mr_info {
    size_t size;
    uint64_t a, b;
};

/* A caller that knows less gets less, and nothing behind its struct changes. */
static void infos(void **state)
{
    (void)state;
    const struct mr_info full = {sizeof full, 1, 2};
    struct mr_info out = {offsetof(struct mr_info, b), 7, 8};
    assert_int_equal(mr_info_give("info", &out, &full, sizeof full), 0);
    assert_true(out.size == offsetof(struct mr_info, b) && out.a == 1 && out.b == 8);
    const size_t wrong[] = {0, sizeof(size_t) - 1, sizeof full + 1, SIZE_MAX};
    for (size_t i = 0; i < MR_COUNT(wrong); i++) {
        struct mr_info other = {wrong[i], 7, 8};
        assert_int_equal(mr_info_give("info", &other, &full, sizeof full), MR_EMISUSE);
        assert_true(other.size == wrong[i] && other.a == 7 && other.b == 8);
    }
    assert_int_equal(mr_info_give("info", NULL, &full, sizeof full), MR_EMISUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(options_with_devices),
        cmocka_unit_test(infos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
