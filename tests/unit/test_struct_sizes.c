/* White-box: mr_info_give(). Structs of a wrong size are refused in one way by every call that
 * takes or fills one, and a program that was compiled with an older, shorter struct is served. */
#include "base/base.h"
#include "unit.h"

#include <millrace/millrace.h>
#include <sys/stat.h>
#include <unistd.h>

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
    struct mr_arrow_groups groups;
    mr_arrow_groups_init(&groups);
    REFUSES(report, mr_report_make(rec, "mem_ops", opts, &table));
    REFUSES(advice, mr_analyze(rec, opts, &advice));
    REFUSES(timeline, mr_timeline_write(rec, "/nowhere/x", MR_TIMELINE_SVG, opts));
    REFUSES(sampler, mr_sampler_create(opts, 5, &sampler));
    REFUSES(budget, mr_budget_create(opts, &budget));
    assert_null(budget);
    REFUSES(remote, mr_remote_opts_set(opts));
    REFUSES(array, mr_dataset_open_array(opts, &ds));
    REFUSES(arrow, mr_dataset_open_arrow(opts, &ds));
    REFUSES(arrow, mr_dataset_open_arrow_groups(opts, &groups, &ds));
    REFUSES(callback, mr_dataset_open_callback(opts, &ds));
    REFUSES(idx, mr_dataset_open_idx(opts, &ds));
    REFUSES(raw, mr_dataset_open_raw(opts, &ds));
    REFUSES(csv, mr_dataset_open_csv(opts, &ds));
    REFUSES(tar, mr_dataset_open_tar(opts, &ds));
    REFUSES(tfrecord, mr_dataset_open_tfrecord(opts, &ds));
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
        assert_int_equal(!strstr(mr_last_error(), "older than the program's headers"),
                         wrong[i] < sizeof full);
    }
    assert_int_equal(mr_info_give("info", NULL, &full, sizeof full), MR_EMISUSE);
}

/* CALL fills *out. With a wrong size it says so, and writes nothing. For a program that was
 * compiled when the struct ended before `member`, it writes nothing from there on. */
#define FILLS(name, member, CALL)                                                                  \
    do {                                                                                           \
        union {                                                                                    \
            struct mr_##name info;                                                                 \
            unsigned char byte[sizeof(struct mr_##name)];                                          \
        } box;                                                                                     \
        struct mr_##name *out = &box.info;                                                         \
        const size_t end = offsetof(struct mr_##name, member);                                     \
        const size_t sizes[] = {0, sizeof(size_t) - 1, sizeof box + 1, SIZE_MAX, end};             \
        for (size_t i = 0; i < MR_COUNT(sizes); i++) {                                             \
            const bool right = sizes[i] == end;                                                    \
            memset(&box, 0xa5, sizeof box);                                                        \
            out->size = sizes[i];                                                                  \
            int rc = (CALL);                                                                       \
            if (right ? rc < 0 : rc != MR_EMISUSE)                                                 \
                fail_msg("mr_" #name ", size %zu: %d, %s", sizes[i], rc, mr_last_error());         \
            if (!right)                                                                            \
                assert_non_null(strstr(mr_last_error(), "struct mr_" #name " x = {.size"));        \
            assert_true(out->size == sizes[i]);                                                    \
            assert_int_equal(                                                                      \
                count_bytes(box.byte, sizeof(size_t), end, 0xa5) == end - sizeof(size_t), !right); \
            assert_int_equal(count_bytes(box.byte, end, sizeof box, 0xa5), sizeof box - end);      \
        }                                                                                          \
    } while (0)

static size_t count_bytes(const unsigned char *at, size_t from, size_t to, unsigned char value)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        n += at[i] == value;
    return n;
}

static void filled(void **state)
{
    (void)state;
    char folder[] = "/tmp/mr_sizes_XXXXXX", merged[64];
    struct mr_device *dev;
    assert_int_equal(mr_device_open("sim", &dev), 0);
    FILLS(cpu_info, quota, mr_cpu_query(out));
    FILLS(host_memory_info, resident_bytes, mr_host_memory_query(out));
    FILLS(remote_stats, cache_errors, mr_remote_stats_query(out));
    FILLS(place, launcher, mr_place_query(out));
    FILLS(device_info, peer_gb_per_s, mr_device_query(dev, out));
    FILLS(memory_counters, hits, mr_memory_query(dev, MR_PINNED, out));
    assert_non_null(mkdtemp(folder));
    snprintf(merged, sizeof merged, "%s/merged.sqlite", folder);
    FILLS(merge_stats, bytes, mr_recording_merge(folder, merged, 0, out));
    unlink(merged);
    rmdir(folder);
    mr_device_close(dev);
}

static int get_bad(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)row, (void)dim;
    return index == 3 ? mr_error_set(MR_ECALLBACK, "no such sample") : 0;
}

static void filled_by_loaders(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct mr_callback_opts set;
    struct mr_loader_opts opts;
    mr_callback_opts_init(&set);
    set.name = "set";
    set.n = 8;
    set.n_fields = 1;
    set.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8};
    set.get = get_bad;
    assert_int_equal(mr_dataset_open_callback(&set, &ds), 0);
    mr_loader_opts_init(&opts);
    opts.bad = MR_BAD_SKIP;
    assert_int_equal(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), 0);
    struct mr_batch b = {0};
    const size_t wrong[] = {0, 8, sizeof b - 1, sizeof b + 1, SIZE_MAX};
    for (size_t i = 0; i < MR_COUNT(wrong); i++) {
        b.size = wrong[i];
        assert_int_equal(mr_loader_next(ld, NULL, &b), MR_EMISUSE);
        assert_non_null(strstr(mr_last_error(), "struct mr_batch x = {.size = sizeof x}"));
        assert_int_equal(mr_loader_next_for(ld, NULL, 0, &b), MR_EMISUSE);
        assert_null(b.slot);
    }
    b.size = sizeof b;
    assert_int_equal(mr_loader_next(ld, NULL, &b), 1); /* it ended nothing */
    assert_int_equal(b.n, 7);
    FILLS(loader_stats, bottleneck, mr_loader_stats(ld, out)); /* 208 bytes behind it */
    FILLS(bad_sample, reason, mr_loader_bad(ld, 0, out));
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void filled_by_trainers(void **state)
{
    (void)state;
    struct mr_device *dev;
    struct mr_dataset *ds;
    struct mr_trainer *t;
    struct mr_trainer_opts opts;
    int last;
    assert_int_equal(mr_device_open("cpu", &dev), 0);
    assert_int_equal(mr_dataset_open("synthetic:n=64,shape=2x2,dtype=u8,classes=4", &ds), 0);
    mr_trainer_opts_init(&opts);
    opts.model = "flatten,linear:4";
    opts.classes = 4;
    opts.batch_size = 16;
    opts.threads = 1;
    assert_int_equal(mr_trainer_create(dev, ds, ds, &opts, &t), 0);
    assert_int_equal(mr_trainer_window_begin(t), 0);
    assert_int_equal(mr_trainer_step(t, &last), 1);
    FILLS(trainer_info, seconds, mr_trainer_query(t, out));
    FILLS(trainer_times, saving, mr_trainer_query_times(t, out));
    FILLS(train_sums, n_samples, mr_trainer_sums(t, out));
    FILLS(train_sums, n_samples, mr_trainer_test(t, out));
    FILLS(train_window, seconds, mr_trainer_window_end(t, out));
    FILLS(train_epoch, waited, mr_trainer_unfinished(t, 0, out));
    FILLS(net_totals, n_not_finite, mr_net_query_totals(mr_trainer_get_net(t), NULL, out));
    FILLS(train_epoch, waited, mr_trainer_end_epoch(t, out));
    FILLS(train_epoch, waited, mr_trainer_epoch(t, out));
    struct mr_net_batch b = {.input = &last};
    assert_int_equal(mr_net_train(mr_trainer_get_net(t), &b, NULL), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "struct mr_net_batch x = {.size"));
    assert_int_equal(mr_net_train(mr_trainer_get_net(t), NULL, NULL), MR_EMISUSE);
    assert_int_equal(mr_net_eval(mr_trainer_get_net(t), NULL, NULL, NULL), MR_EMISUSE);
    mr_trainer_destroy(t);
    mr_dataset_close(ds);
    mr_device_close(dev);
}

/* Structs in arrays have these sizes for good; see millrace.h. */
_Static_assert(sizeof(struct mr_spec) == 128 && sizeof(struct mr_batch_field) == 256 &&
                   sizeof(struct mr_sample_context) == 128 && sizeof(struct mr_range) == 24 &&
                   sizeof(struct mr_bytes) == 16 && sizeof(struct mr_stored) == 80 &&
                   sizeof(struct mr_copy) == 32 && sizeof(struct mr_device_process) == 16 &&
                   sizeof(struct mr_optim_group) == 24 && sizeof(struct mr_text_column) == 16 &&
                   sizeof(struct mr_picture_opts) == 72 && sizeof(struct mr_percentiles) == 40,
               "a struct without a size changed");

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(options_with_devices),
        cmocka_unit_test(infos),
        cmocka_unit_test(filled),
        cmocka_unit_test(filled_by_loaders),
        cmocka_unit_test(filled_by_trainers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
