/* Nets over several devices, through public headers: the checkpoint of a split net is that of the
 * net on one device with as many leaves, bit for bit. */
#include "unit.h"

#include <millrace/train.h>
#include <string.h>
#include <unistd.h>

#define must(call) assert_int_equal((call), 0)

enum { STAGES = 3 };

/* 200 samples in batches of 16: the last one of an epoch is short. */
static struct mr_dataset *ds, *test_set;
static struct mr_device *cpu[STAGES], *sim[STAGES];

static int open_all(void **state)
{
    (void)state;
    for (int i = 0; i < STAGES; i++)
        if (mr_device_open("cpu", &cpu[i]) || mr_device_open("sim:latency=0", &sim[i]))
            return -1;
    return mr_dataset_open("synthetic:n=200,shape=8x9,dtype=u8,classes=4", &ds) ||
           mr_dataset_open("synthetic:n=50,shape=8x9,dtype=u8,classes=4", &test_set);
}

static int close_all(void **state)
{
    (void)state;
    mr_dataset_close(ds);
    mr_dataset_close(test_set);
    for (int i = 0; i < STAGES; i++) {
        mr_device_close(cpu[i]);
        mr_device_close(sim[i]);
    }
    return 0;
}

/* Everything that has a state: running statistics, dropout, residuals, activations that run with
 * the layer before them. */
#define MODEL                                                                                      \
    "conv:4,p=1,bias=0,batchnorm,relu,residual:{conv:4,p=1,bias=0,batchnorm,relu,conv:4,p=1,bias=" \
    "0,batchnorm},relu,dropout:0.2,2d,maxpool:2,flatten,linear:16,relu,dropout:0.3,linear:4"

static void defaults(struct mr_trainer_opts *o)
{
    mr_trainer_opts_init(o);
    o->model = MODEL;
    o->classes = 4;
    o->batch_size = 16;
    o->epochs = 2;
    o->seed = 3;
    o->threads = 1;
    o->schedule = "step:0.7";
}

static struct mr_trainer *make(struct mr_device *first, const struct mr_trainer_opts *o)
{
    struct mr_trainer *t = NULL;
    int rc = mr_trainer_create(first, ds, test_set, o, &t);
    if (rc)
        print_error("%s\n", mr_last_error());
    must(rc);
    return t;
}

static struct mr_checkpoint *saved(struct mr_trainer *t)
{
    char path[64] = "/tmp/millrace-split-XXXXXX";
    struct mr_checkpoint *c = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    int rc = mr_trainer_save(t, path);
    rc = rc < 0 ? rc : mr_checkpoint_open(path, &c);
    unlink(path);
    must(rc);
    return c;
}

/* Both ways: neither has a tensor that the other lacks. */
static void same(const struct mr_checkpoint *a, const struct mr_checkpoint *b)
{
    static const char *const keys[] = {"model", "data",       "optimizer",   "loader", "leaves",
                                       "step",  "epoch_loss", "epoch_right", "world",  "sample"};
    const struct mr_checkpoint_tensor *s, *t;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *x = mr_checkpoint_get(a, keys[i]), *y = mr_checkpoint_get(b, keys[i]);
        assert_string_equal(x ? x : "none", y ? y : "none");
    }
    for (uint32_t i = 0;; i++) { /* in the same order */
        s = mr_checkpoint_tensor_get(a, i);
        t = mr_checkpoint_tensor_get(b, i);
        if (!s || !t)
            break;
        assert_string_equal(s->name, t->name);
        assert_int_equal(s->bytes, t->bytes);
        assert_memory_equal(s->data, t->data, s->bytes);
    }
    assert_true(!s && !t && mr_checkpoint_tensor_get(a, 0));
}

static struct mr_checkpoint *run(struct mr_trainer *t)
{
    int rc;
    while ((rc = mr_trainer_epoch(t, NULL)) > 0)
        ;
    if (rc < 0)
        print_error("%s\n", mr_last_error());
    must(rc);
    return saved(t);
}

/* What the run said of its epochs. */
static void same_history(struct mr_trainer *a, struct mr_trainer *b)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct mr_train_epoch *x = mr_trainer_epoch_get(a, i),
                                    *y = mr_trainer_epoch_get(b, i);
        assert_true(x && y && x->loss == y->loss && x->test_loss == y->test_loss);
        assert_true(x->accuracy == y->accuracy && x->test_accuracy == y->test_accuracy);
    }
}

static void split(struct mr_trainer_opts *o, struct mr_device **devices, uint32_t n, uint32_t micro)
{
    o->devices = devices + 1;
    o->n_devices = n - 1;
    o->micro_batches = micro;
}

/* As o says: whole on one device, and in parts on several. */
static void compare_as(struct mr_trainer_opts o, struct mr_device **devices, uint32_t n)
{
    const uint32_t micro = o.leaves;
    struct mr_trainer *whole = make(cpu[0], &o), *parts;
    struct mr_checkpoint *want = run(whole), *got;
    split(&o, devices, n, micro);
    parts = make(devices[0], &o);
    got = run(parts);
    same(want, got);
    if (micro > 1) /* one pass alone has its loss in f64 */
        same_history(whole, parts);
    mr_checkpoint_close(want);
    mr_checkpoint_close(got);
    mr_trainer_destroy(whole);
    mr_trainer_destroy(parts);
}

static void compare(struct mr_device **devices, uint32_t n, const char *where, uint32_t micro,
                    enum mr_pipeline pipeline)
{
    struct mr_trainer_opts o;
    defaults(&o);
    o.leaves = micro;
    o.split = where;
    o.pipeline = pipeline;
    compare_as(o, devices, n);
}

static void split_is_whole_on_cpu(void **state)
{
    (void)state;
    compare(cpu, 2, "fc1", 4, MR_PIPELINE_1F1B);
    compare(cpu, 2, "auto", 4, MR_PIPELINE_GPIPE);
    compare(cpu, 3, "conv2,fc1", 2, MR_PIPELINE_1F1B); /* fewer than stages */
    compare(cpu, 3, "auto", 8, MR_PIPELINE_1F1B);
    compare(cpu, 2, "fc2", 16, MR_PIPELINE_GPIPE); /* of the short batch some have no sample */
    compare(cpu, 2, "fc1", 1, MR_PIPELINE_1F1B);   /* split alone */
}

static void split_is_whole_on_sim(void **state)
{
    (void)state;
    compare(sim, 2, "conv2", 4, MR_PIPELINE_1F1B);
    compare(sim, 3, "auto", 4, MR_PIPELINE_GPIPE);
    compare(sim, 1, "auto", 2, MR_PIPELINE_1F1B);
}

/* The norm is one of all stages' gradients, to the bit: of nets that are within one of its sums of
 * squares, and of one whose borders are anywhere in several. */
static void split_clips_as_whole(void **state)
{
    (void)state;
    static const struct {
        const char *model, *where;
        uint32_t n;
    } cases[] = {{MODEL, "conv2,fc1", 3},
                 {MODEL, "fc2", 2},
                 {"flatten,linear:300,relu,linear:50,tanh,linear:4", "fc2", 2},
                 {"flatten,linear:300,relu,linear:50,tanh,linear:4", "fc2,fc3", 3},
                 {"flatten,linear:56,relu,linear:72,tanh,linear:4", "fc2,fc3", 3}};
    static const char *const optimizers[] = {"adam", "sgd:momentum=0.9,accumulate=3"};
    struct mr_trainer_opts o;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        defaults(&o);
        o.model = cases[i].model;
        o.split = cases[i].where;
        o.optimizer = optimizers[i % 2];
        o.leaves = 4;
        o.clip_norm = 0.03;
        compare_as(o, cpu, cases[i].n);
        compare_as(o, sim, cases[i].n);
    }
}

/* A clipped run is another one than one that is not. */
static void clipping_is_felt(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    void *params[2];
    for (int i = 0; i < 2; i++) {
        int last;
        defaults(&o);
        o.optimizer = "sgd";
        split(&o, cpu, 2, 4);
        o.split = "fc1";
        o.clip_norm = i ? 0.01 : 0;
        struct mr_trainer *t = make(cpu[0], &o);
        assert_int_equal(mr_trainer_step(t, &last), 1);
        struct mr_net *net = mr_trainer_get_stage(t, 1);
        const uint64_t bytes = mr_net_n_params(net) * sizeof(float);
        void *at;
        mr_net_flat(net, &at, NULL, NULL);
        params[i] = malloc(bytes);
        memcpy(params[i], at, bytes);
        if (i)
            assert_memory_not_equal(params[0], params[1], bytes);
        mr_trainer_destroy(t);
    }
    free(params[0]);
    free(params[1]);
}

/* Stages keep activations of as many micro-batches as they have to. */
static void memory_is_of_all_stages(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    uint64_t bytes[2][STAGES] = {{0}};
    for (int gpipe = 0; gpipe < 2; gpipe++) {
        defaults(&o);
        split(&o, cpu, 2, 8);
        o.split = "fc1";
        o.pipeline = gpipe ? MR_PIPELINE_GPIPE : MR_PIPELINE_1F1B;
        struct mr_trainer *t = make(cpu[0], &o);
        for (uint32_t s = 0; s < STAGES; s++)
            bytes[gpipe][s] = mr_trainer_stage_memory(t, s);
        assert_true(bytes[gpipe][0] > mr_net_memory(mr_trainer_get_stage(t, 0)));
        mr_trainer_destroy(t);
    }
    for (int s = 0; s < 2; s++) /* of 8, not of 2 */
        assert_true(bytes[0][s] > 0 && bytes[1][s] == 4 * bytes[0][s]);
    assert_true(bytes[0][2] == 0 && mr_trainer_stage_memory(NULL, 0) == 0);
    defaults(&o);
    struct mr_trainer *t = make(cpu[0], &o);
    assert_true(mr_trainer_stage_memory(t, 0) == mr_net_memory(mr_trainer_get_net(t)));
    mr_trainer_destroy(t);
}

static void a_checkpoint_goes_on_split_or_whole(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    int last;
    defaults(&o);
    o.leaves = 4;
    struct mr_trainer *whole = make(cpu[0], &o);
    struct mr_checkpoint *want = run(whole), *from, *got;
    mr_trainer_destroy(whole);
    for (int split_first = 0; split_first < 2; split_first++) {
        defaults(&o);
        o.leaves = 4;
        if (split_first)
            split(&o, cpu, 2, 4);
        struct mr_trainer *first = make(cpu[0], &o);
        for (int i = 0; i < 7; i++)
            assert_int_equal(mr_trainer_step(first, &last), 1);
        from = saved(first);
        mr_trainer_destroy(first);
        defaults(&o);
        o.leaves = 4;
        o.resume = from;
        if (!split_first)
            split(&o, cpu, 3, 4);
        struct mr_trainer *second = make(cpu[0], &o);
        got = run(second);
        same(want, got);
        mr_trainer_destroy(second);
        mr_checkpoint_close(from);
        mr_checkpoint_close(got);
    }
    mr_checkpoint_close(want);
}

static void refused(const struct mr_trainer_opts *o, int want, const char *text)
{
    struct mr_trainer *t = NULL;
    assert_int_equal(mr_trainer_create(cpu[0], ds, test_set, o, &t), want);
    if (!strstr(mr_last_error(), text))
        print_error("expected \"%s\" in \"%s\"\n", text, mr_last_error());
    assert_non_null(strstr(mr_last_error(), text));
}

static void misuse_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *where, *text;
        uint32_t stages;
    } cuts[] = {{"conv3", "no stage can begin with layer 'conv3'; a stage can begin with", 2},
                {"conv9", "no layer 'conv9'; a stage can begin with", 2},
                {"fc1,conv2", "in the net's order", 3},
                {"conv1", "none of them the first", 2},
                {"fc1", "1 layer for 3 devices", 3},
                {"conv2,fc1", "2 layers for 2 devices", 2},
                {"", "no layer ''", 2}};
    struct mr_trainer_opts o;
    struct mr_device *many[9];
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        defaults(&o);
        split(&o, cpu, cuts[i].stages, 2);
        o.split = cuts[i].where;
        refused(&o, MR_EOPTION, cuts[i].text);
    }
    defaults(&o);
    split(&o, cpu, 2, 3);
    refused(&o, MR_EOPTION, "3 micro-batches: expected a power of two");
    split(&o, cpu, 2, 32);
    refused(&o, MR_EOPTION, "a batch of 16 samples in 32 micro-batches");
    split(&o, cpu, 2, 2);
    o.leaves = 4;
    refused(&o, MR_EOPTION, "4 leaves and 2 micro-batches");
    o.leaves = 0;
    o.precision = MR_PRECISION_FP16;
    refused(&o, MR_EUNSUPPORTED, "f16 needs a GPU");
    o.precision = MR_PRECISION_F32;
    o.devices = sim;
    refused(&o, MR_EUNSUPPORTED, "no copies between devices cpu and sim");
    for (int i = 0; i < 9; i++)
        many[i] = cpu[1];
    split(&o, many, 9, 2);
    refused(&o, MR_EOPTION, "over 9 devices: expected at most 8");
    split(&o, cpu, 3, 2);
    o.model = "flatten,linear:4";
    refused(&o, MR_EOPTION, "can't be cut into 3 stages");
}

/* Found where it happened, in the second stage. */
static void a_bad_loss_names_its_layer(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    int last, rc = 1;
    defaults(&o);
    split(&o, cpu, 2, 2);
    o.split = "fc1";
    o.optimizer = "sgd";
    o.lr = 1e30;
    struct mr_trainer *t = make(cpu[0], &o);
    for (int i = 0; i < 12 && rc == 1; i++)
        rc = mr_trainer_step(t, &last);
    assert_int_equal(rc, MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "first in layer "));
    mr_trainer_destroy(t);
}

static void stages_are_seen(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    defaults(&o);
    split(&o, cpu, 2, 2);
    o.split = "fc1";
    struct mr_trainer *t = make(cpu[0], &o);
    assert_ptr_equal(mr_trainer_get_stage(t, 0), mr_trainer_get_net(t));
    assert_string_equal(mr_net_layer_get(mr_trainer_get_stage(t, 1), 0)->name, "fc1");
    assert_string_equal(mr_net_param_get(mr_trainer_get_stage(t, 1), 0)->name, "fc1.weight");
    assert_null(mr_trainer_get_stage(t, 2));
    assert_null(mr_trainer_get_stage(NULL, 0));
    mr_trainer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_is_whole_on_cpu),
        cmocka_unit_test(split_is_whole_on_sim),
        cmocka_unit_test(split_clips_as_whole),
        cmocka_unit_test(clipping_is_felt),
        cmocka_unit_test(memory_is_of_all_stages),
        cmocka_unit_test(a_checkpoint_goes_on_split_or_whole),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_bad_loss_names_its_layer),
        cmocka_unit_test(stages_are_seen),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
