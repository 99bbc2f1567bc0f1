/* White-box. mixup and cutmix: what comes of a batch's rows and labels, and that it is the same
 * whoever works on it. */
#include "run_loader.h"

#include "kernels/batch/batch.h"
#include "transform/transform.h"

#include <math.h>

enum { N = 37, H = 8, W = 10, CLASSES = 40, BATCH = 12 };

/* Sample i is i + 1 everywhere, its label i. */
static float pictures[N][H][W];
static int64_t labels[N];

static struct mr_dataset *open_rows(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_array_opts o;
    mr_array_opts_init(&o);
    o.n = N;
    o.n_fields = 2;
    o.field[0] = (struct mr_spec){.name = "image", .dtype = MR_F32, .rank = 2, .dim = {H, W}};
    o.field[1] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    o.data[0] = pictures;
    o.data[1] = labels;
    for (int i = 0; i < N; i++) {
        labels[i] = i;
        for (int k = 0; k < H * W; k++)
            pictures[i][k / W][k % W] = (float)(i + 1);
    }
    must(mr_dataset_open_array(&o, &ds));
    return ds;
}

/* Every row is a mixture of its own sample and one other, by the parts that the label says; all
 * rows give once. */
static void check_batch(const struct mr_batch *b, bool cuts, double *sum)
{
    const float *soft = b->field[1].data, *image = b->field[0].data;
    int given[CLASSES] = {0};
    for (uint64_t r = 0; r < b->n; r++, soft += CLASSES, image += H * W) {
        int own = (int)b->indices[r], other = -1;
        double total = 0, mean = 0, part = (double)soft[own];
        for (int c = 0; c < CLASSES; c++) {
            total += (double)soft[c];
            if (soft[c] > 0 && c != own) {
                assert_int_equal(other, -1);
                other = c;
            }
        }
        assert_true(fabs(total - 1) < 1e-6);
        for (int k = 0; k < H * W; k++) {
            mean += (double)image[k] / (H * W);
            assert_true(!cuts || image[k] == (float)(own + 1) || image[k] == (float)(other + 1));
            assert_true(cuts || fabs((double)(image[k] - image[0])) < 1e-6);
        }
        assert_true(fabs(mean - (part * (own + 1) + (1 - part) * (other + 1))) < 1e-4);
        given[other < 0 ? own : other]++;
        *sum += part / N;
    }
    for (uint64_t r = 0; r < b->n; r++)
        assert_int_equal(given[b->indices[r]], 1);
}

static void run_and_check(const char *text, bool cuts, double *sum)
{
    struct mr_dataset *ds = open_rows();
    struct mr_transform *chain;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.epochs = 60;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, text));
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &ld));
    while (mr_loader_next(ld, NULL, &b) > 0) {
        if (b.n > 1)
            check_batch(&b, cuts, sum);
        must(mr_loader_release(ld, &b, NULL));
    }
    mr_loader_close(ld);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
}

static void test_rows_are_mixed(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        bool cuts;
    } tries[] = {{"label.one_hot(40),mixup(0.4)", false},
                 {"mixup(3),label.one_hot(40)", false},
                 {"label.one_hot(40),cutmix", true},
                 {"hflip,scale(1),label.one_hot(40),cutmix(0.2)", true}};
    for (size_t k = 0; k < MR_COUNT(tries); k++) {
        double sum = 0;
        run_and_check(tries[k].chain, tries[k].cuts, &sum);
        assert_true(tries[k].cuts ||
                    (sum > 60 * 0.38 && sum < 60 * 0.62)); /* Beta(a, a): 1/2 in the mean */
    }
}

static void test_workers_and_devices_do_not_matter(void **state)
{
    (void)state;
    static const char *const chains[] = {"cast(f32),scale(1/255),label.one_hot(10),mixup(0.2)",
                                         "label.one_hot(10,f16),cutmix",
                                         "cast(f16),label.one_hot(10,bf16),mixup"};
    for (size_t k = 0; k < MR_COUNT(chains); k++) {
        struct run_config c = run_config("synthetic:n=101,shape=3x9x7,dtype=u8,classes=10");
        c.chain = chains[k];
        c.sampler = "random";
        c.opts.epochs = 2;
        c.opts.batch_size = 16;
        c.opts.seed = 6;
        c.opts.workers = 1;
        struct run one = run_loader(&c);
        if (one.rc < 0)
            fail_msg("%s", one.error);
        c.opts.workers = 3;
        struct run three = run_loader(&c);
        c.device = "sim:latency=1us";
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
        struct run sim = run_loader(&c);
        c.device = "cpu";
        c.opts.seed = 7;
        struct run other = run_loader(&c);
        assert_same_rows(&one, &three);
        assert_same_rows(&one, &sim);
        uint64_t same = 0;
        for (uint64_t i = 0; i < one.n; i++)
            same += one.row[i].hash == other.row[i].hash;
        assert_true(same < one.n / 2);
        run_free(&one);
        run_free(&three);
        run_free(&sim);
        run_free(&other);
    }
}

static void test_misfits_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *chain, *says;
    } misfits[] = {{"mixup", "label.one_hot(classes)"},
                   {"label.one_hot(10,u8),mixup", "label.one_hot(classes)"},
                   {"label.one_hot(10),cast(i32),mixup", "needs floats or u8"},
                   {"label.one_hot(10),mixup,cast(f32)", "no op on its field may come after"},
                   {"label.one_hot(10),mixup,cutmix", "no op on its field may come after"},
                   {"label.one_hot(10),label.mixup", "no field 'label'"}};
    struct mr_spec specs[2] = {{.name = "image", .dtype = MR_U8, .rank = 2, .dim = {4, 4}},
                               {.name = "label", .dtype = MR_I64}};
    for (size_t k = 0; k < MR_COUNT(misfits); k++) {
        struct mr_transform *chain;
        must(mr_transform_create(&chain));
        must(mr_transform_add(chain, misfits[k].chain));
        assert_int_equal(mr_transform_bind(chain, specs, 2), MR_ESHAPE);
        if (!strstr(mr_last_error(), misfits[k].says))
            fail_msg("%s: %s", misfits[k].chain, mr_last_error());
        assert_int_equal(mr_transform_add(chain, "mixup(0)"), MR_EOPTION);
        mr_transform_destroy(chain);
    }
}

static uint32_t counter;
static uint32_t pick(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(31, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

/* Chains whose ends the device can do, or cannot, of pictures of channels x height x width; labels
 * of 10 classes. */
static void random_mix(char *text, size_t bytes, uint32_t classes)
{
    static const char *const fronts[] = {"", "hflip(0.5,layout=nchw),",
                                         "random_crop(4,5,layout=nchw),"};
    static const char *const casts[] = {"cast(f32)",
                                        "cast(f16)",
                                        "cast(bf16)",
                                        "cast(f64)",
                                        "cast(f32),scale(1/255)",
                                        "cast(f32),scale(1/255,-0.5),cast(f16)",
                                        "cast(f32),scale(1/99),cast(bf16)"};
    static const char *const ends[] = {"", "", "layout(nhwc),",
                                       "normalize([0.4,0.5,0.3],[0.2,0.3,0.1],axis=0),"};
    static const char *const soft[] = {"f32", "f16", "bf16", "f64", "u8"};
    static const char *const mixes[] = {"mixup", "mixup(0.2)", "mixup(8)", "cutmix", "cutmix(0.3)"};
    uint32_t end = pick(MR_COUNT(ends)), type = pick(MR_COUNT(soft));
    const char *mix = mixes[pick(MR_COUNT(mixes))];
    const char *layout = mix[0] != 'c' ? ""
                         : end == 2    ? mix[6] ? ",layout=nhwc" : "(layout=nhwc"
                                       : "";
    size_t length = strlen(mix) - (layout[0] == ',');
    snprintf(text, bytes, "%s%s,%slabel.one_hot(%u,%s)%s,%.*s%s%s", fronts[pick(MR_COUNT(fronts))],
             casts[pick(MR_COUNT(casts))], ends[end], classes, soft[type],
             type == 4 ? ",label.cast(f32)" : "", (int)length, mix, layout, layout[0] ? ")" : "");
}

static void set_random_run(struct run_config *c)
{
    c->sampler = pick(4) ? "random" : "sequential";
    c->opts.seed = pick(1000);
    c->opts.epochs = 1 + pick(2);
    c->opts.batch_size =
        1 + pick(30); /* the last batch of an epoch is a part of one, at times of one row */
    c->opts.prefetch = 1 + pick(4);
    c->opts.drop_last = pick(5) == 0;
}

static void set_random_device(struct run_config *c)
{
    c->device = "sim:latency=1us";
    c->opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
    c->opts.workers = 1 + pick(4);
    c->opts.streams = 1 + pick(4);
    c->opts.pin = pick(4) != 0;
    c->opts.blocking = pick(4) == 0;
}

static void the_device_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"u8", "u8", "u8", "i8", "i16", "u16", "f32"};
    static const enum mr_bad_policy policies[] = {MR_BAD_FAIL, MR_BAD_SKIP, MR_BAD_REPLACE};
    uint32_t n_mixups = 0, n_cutmixes = 0, n_labels_alone = 0, n_bad = 0, n_flips = 0;
    for (int round = 0; round < 150; round++) {
        char set[128], chain[256];
        snprintf(set, sizeof set, "synthetic:n=%u,shape=3x%ux%u,dtype=%s,classes=10", 31 + pick(60),
                 4 + pick(6), 5 + pick(30), dtypes[pick(7)]);
        bool bad = pick(3) == 0;
        random_mix(chain, sizeof chain, bad ? 8 : 10);
        struct run_config c = run_config(set);
        c.chain = chain;
        c.opts.bad = bad ? policies[1 + pick(2)] : MR_BAD_FAIL;
        set_random_run(&c);
        struct run cpu = run_loader(&c);
        set_random_device(&c);
        struct run with = run_loader(&c);
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_OFF;
        struct run without = run_loader(&c);
        if (cpu.rc != 0 || with.rc != 0 || without.rc != 0)
            fail_msg("%s: %s: %s %s %s", set, chain, cpu.error, with.error, without.error);
        const char *ops = with.stats.device_ops;
        for (uint64_t i = 0; i < cpu.n; i++)
            if (cpu.row[i].hash != with.row[i].hash)
                fail_msg("%s: %s: row %llu differs; on the device: %s", set, chain,
                         (unsigned long long)i, ops);
        assert_same_rows(&cpu, &with);
        assert_same_rows(&cpu, &without);
        assert_string_equal(without.stats.device_ops, "");
        bool image = ops[0] && strncmp(ops, "label", 5) != 0;
        n_mixups += image && strstr(ops, "mixup");
        n_cutmixes += image && strstr(ops, "cutmix");
        n_flips += strstr(ops, "hflip") != NULL;
        n_labels_alone += !image && strstr(ops, "label: ");
        n_bad += with.stats.bad_samples > 0 && image;
        run_free(&cpu);
        run_free(&with);
        run_free(&without);
    }
    if (n_mixups < 30 || n_cutmixes < 20 || n_labels_alone < 10 || n_bad < 10 || n_flips < 10)
        fail_msg("%u %u %u %u %u: this shows too little", n_mixups, n_cutmixes, n_labels_alone,
                 n_bad, n_flips);
}

static void a_resident_set_is_mixed_too(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "cast(f32),scale(1/255),label.one_hot(10),mixup(0.2)",
        "hflip(0.5,layout=nchw),cast(f16),label.one_hot(10,f16),cutmix",
        "label.one_hot(10),mixup"}; /* u8: mixed by the host, which has no rows */
    for (uint32_t round = 0; round < 24; round++) {
        char set[128];
        snprintf(set, sizeof set, "synthetic:n=%u,shape=3x%ux%u,dtype=u8,classes=10",
                 30 + pick(100), 2 + pick(6), 2 + pick(9));
        struct run_config c = run_config(set);
        c.chain = chains[round % MR_COUNT(chains)];
        set_random_run(&c);
        struct run cpu = run_loader(&c);
        set_random_device(&c);
        c.opts.cache = MR_CACHE_DEVICE;
        struct run sim = run_loader(&c);
        if (round % MR_COUNT(chains) == 2) {
            assert_int_equal(sim.rc, MR_EOPTION);
            assert_non_null(strstr(
                sim.error, "image: not all of \"label.one_hot(10),mixup\" can run on the device"));
        } else {
            if (sim.rc < 0)
                fail_msg("%s: %s", set, sim.error);
            assert_same_rows(&cpu, &sim);
        }
        run_free(&cpu);
        run_free(&sim);
    }
}

/* A number a row is shipped, and nothing is kept twice. */
static void mixing_takes_four_bytes_a_row(void **state)
{
    (void)state;
    static const char *const chains[] = {"cast(f32),label.one_hot(10)",
                                         "cast(f32),label.one_hot(10),mixup"};
    uint64_t copied[2], device[2];
    for (int k = 0; k < 2; k++) {
        struct run_config c = run_config("synthetic:n=1024,shape=1x16x16,dtype=u8,classes=10");
        c.chain = chains[k];
        c.device = "sim";
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
        c.opts.batch_size = 64;
        c.opts.prefetch = 4;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, 0);
        assert_string_equal(run.stats.device_ops, k ? "image: cast,mixup; label: one_hot,mixup"
                                                    : "image: cast; label: one_hot");
        copied[k] = run.stats.copied_bytes;
        device[k] = run.stats.device_bytes;
        run_free(&run);
    }
    assert_int_equal(copied[1] - copied[0], 4 * 1024);
    assert_int_equal(device[1] - device[0], 4 * 4 * 64);
}

/* Infinities make NaNs when they are mixed: f16's are not for the device, but where they are only
 * moved. */
static void what_may_overflow_stays_with_the_host(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        bool image;
    } tries[] = {{"cast(f32),scale(1000),cast(f16),label.one_hot(10),mixup", false},
                 {"cast(f32),scale(1000),cast(f16),label.one_hot(10),cutmix", true},
                 {"cast(f32),scale(256),cast(f16),label.one_hot(10),mixup", true},
                 {"cast(f32),scale(1000),cast(bf16),label.one_hot(10),mixup", true}};
    for (size_t k = 0; k < MR_COUNT(tries); k++) {
        struct run_config c = run_config("synthetic:n=100,shape=2x5x4,dtype=u8,classes=10");
        c.chain = tries[k].chain;
        struct run cpu = run_loader(&c);
        c.device = "sim";
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
        struct run sim = run_loader(&c);
        assert_same_rows(&cpu, &sim);
        assert_int_equal(strstr(sim.stats.device_ops, "image: ") != NULL, tries[k].image);
        assert_non_null(strstr(sim.stats.device_ops, "label: one_hot"));
        run_free(&cpu);
        run_free(&sim);
    }
}

static void kernels_refuse_wrong_arguments(void **state)
{
    (void)state;
    struct mr_device *dev;
    struct mr_stream *stream;
    uint8_t in[8] = {1, 2, 3, 4, 11, 12, 13, 14}, labels_in[2] = {0, 2};
    uint32_t partner[2] = {1, 0};
    float out[8];
    uint32_t hot[6];
    must(mr_device_open("cpu", &dev));
    must(mr_stream_create(dev, "s", &stream));
    struct mr_point_mix_args a = {.point = {.in = in,
                                            .out = out,
                                            .rows = 2,
                                            .elements = 4,
                                            .from = MR_U8,
                                            .to = MR_F32,
                                            .n_dims = 1,
                                            .dim = {4},
                                            .stride = {1},
                                            .flip_dim = -1,
                                            .channels = 1,
                                            .channel_inner = 1},
                                  .mix = {.partner = partner, .part = 0.75f, .rest = 0.25f}};
    must(mr_launch(stream, "pointwise_mix", &a, sizeof a));
    assert_true(out[0] == 3.5f && out[4] == 8.5f);
    partner[1] = 2; /* there is no such row */
    must(mr_launch(stream, "pointwise_mix", &a, sizeof a));
    assert_true(out[0] == 3.5f && out[4] == 11);
    a.mix.cuts = 1;
    assert_int_equal(mr_launch(stream, "pointwise_mix", &a, sizeof a),
                     MR_EMISUSE); /* no rectangle */
    a.mix.height = a.mix.width = 2;
    a.mix.pixel = a.mix.x1 = 1;
    a.mix.y1 = 2;
    must(mr_launch(stream, "pointwise_mix", &a, sizeof a));
    assert_true(out[0] == 11 && out[1] == 2 && out[2] == 13 && out[3] == 4);
    a.mix.y1 = 3;
    assert_int_equal(mr_launch(stream, "pointwise_mix", &a, sizeof a), MR_EMISUSE);
    a.mix = (struct mr_mix_how){.part = 1};
    assert_int_equal(mr_launch(stream, "pointwise_mix", &a, sizeof a), MR_EMISUSE);
    struct mr_one_hot_mix_args h = {.hot = {.in = labels_in,
                                            .out = hot,
                                            .rows = 2,
                                            .classes = 3,
                                            .label_bytes = 1,
                                            .element_bytes = 4},
                                    .partner = partner,
                                    .value = {{5}, {6}, {7}, {8}}};
    must(mr_launch(stream, "one_hot_mix", &h, sizeof h));
    static const uint32_t want[6] = {6, 5, 7, 5, 5, 8};
    assert_memory_equal(hot, want, sizeof want);
    h.partner = NULL;
    assert_int_equal(mr_launch(stream, "one_hot_mix", &h, sizeof h), MR_EMISUSE);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_mixed),
        cmocka_unit_test(test_workers_and_devices_do_not_matter),
        cmocka_unit_test(test_misfits_are_refused),
        cmocka_unit_test(the_device_gives_the_same_bits),
        cmocka_unit_test(a_resident_set_is_mixed_too),
        cmocka_unit_test(mixing_takes_four_bytes_a_row),
        cmocka_unit_test(what_may_overflow_stays_with_the_host),
        cmocka_unit_test(kernels_refuse_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
