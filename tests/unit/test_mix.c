/* mixup and cutmix: what comes of a batch's rows and labels, and that it is the same whoever works on it. */
#include "run_loader.h"

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

/* Every row is a mixture of its own sample and one other, by the parts that the label says; all rows give once. */
static void check_batch(const struct mr_batch *b, bool cuts, double *sum)
{
    const float *soft = b->field[1].data, *image = b->field[0].data;
    int given[CLASSES] = {0};
    for (uint64_t r = 0; r < b->size; r++, soft += CLASSES, image += H * W) {
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
    for (uint64_t r = 0; r < b->size; r++)
        assert_int_equal(given[b->indices[r]], 1);
}

static void run_and_check(const char *text, bool cuts, double *sum)
{
    struct mr_dataset *ds = open_rows();
    struct mr_transform *chain;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_batch b;
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.epochs = 60;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, text));
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &ld));
    while (mr_loader_next(ld, NULL, &b) > 0) {
        if (b.size > 1)
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
        assert_true(tries[k].cuts || (sum > 60 * 0.38 && sum < 60 * 0.62)); /* Beta(a, a): 1/2 in the mean */
    }
}

static void test_workers_and_devices_do_not_matter(void **state)
{
    (void)state;
    static const char *const chains[] = {"cast(f32),scale(1/255),label.one_hot(10),mixup(0.2)",
                                         "label.one_hot(10,f16),cutmix", "cast(f16),label.one_hot(10,bf16),mixup"};
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
                   {"label.one_hot(10),cast(i32),mixup", "wants floats or u8"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_mixed),
        cmocka_unit_test(test_workers_and_devices_do_not_matter),
        cmocka_unit_test(test_misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
