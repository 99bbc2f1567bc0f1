/* The trainer and its checkpoints, through public headers: what is saved and gone on from is what
 * was not interrupted. */
#include "unit.h"

#include <math.h>
#include <millrace/train.h>
#include <unistd.h>

#define must(call) assert_int_equal((call), 0)

static struct mr_device *device;
static struct mr_dataset *ds, *test_set;

static int open_all(void **state)
{
    (void)state;
    return mr_device_open("cpu", &device) ||
           mr_dataset_open("synthetic:n=200,shape=6x5,dtype=u8,classes=4", &ds) ||
           mr_dataset_open("synthetic:n=50,shape=6x5,dtype=u8,classes=4", &test_set);
}

static int close_all(void **state)
{
    (void)state;
    mr_dataset_close(ds);
    mr_dataset_close(test_set);
    mr_device_close(device);
    return 0;
}

static void defaults(struct mr_trainer_opts *o)
{
    mr_trainer_opts_init(o);
    o->model = "conv:4,relu,flatten,dropout:0.3,linear:4";
    o->classes = 4;
    o->batch_size = 16;
    o->epochs = 4;
    o->seed = 3;
    o->threads = 1;
    o->schedule = "plateau:0.5/patience=0";
}

static struct mr_trainer *make(const struct mr_trainer_opts *o)
{
    struct mr_trainer *t = NULL;
    int rc = mr_trainer_create(device, ds, test_set, o, &t);
    if (rc)
        print_error("%s\n", mr_last_error());
    must(rc);
    return t;
}

static void steps(struct mr_trainer *t, int n)
{
    int last;
    for (int i = 0; i < n; i++) {
        assert_int_equal(mr_trainer_step(t, &last), 1);
        if (last)
            must(mr_trainer_end_epoch(t, NULL));
    }
}

static void run(struct mr_trainer *t)
{
    int rc;
    while ((rc = mr_trainer_epoch(t, NULL)) > 0)
        ;
    must(rc);
}

static char *scratch(char path[64])
{
    snprintf(path, 64, "/tmp/millrace-trainer-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static struct mr_checkpoint *saved(struct mr_trainer *t)
{
    char path[64];
    struct mr_checkpoint *c = NULL;
    must(mr_trainer_save(t, scratch(path)));
    int rc = mr_checkpoint_open(path, &c);
    unlink(path);
    must(rc);
    return c;
}

/* Tensors, and every key that does not tell the time. */
static void same(const struct mr_checkpoint *a, const struct mr_checkpoint *b)
{
    static const char *const keys[] = {"model",          "data", "optimizer", "loader",
                                       "schedule_state", "step", "epoch_loss"};
    const struct mr_checkpoint_tensor *s;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_string_equal(mr_checkpoint_get(a, keys[i]), mr_checkpoint_get(b, keys[i]));
    for (uint32_t i = 0; (s = mr_checkpoint_tensor_get(a, i)); i++) {
        const struct mr_checkpoint_tensor *t = mr_checkpoint_tensor_find(b, s->name);
        assert_non_null(t);
        assert_int_equal(s->bytes, t->bytes);
        assert_memory_equal(s->data, t->data, s->bytes);
    }
    assert_non_null(mr_checkpoint_tensor_get(a, 0));
}

/* Cut after 5 steps, and every `stride` from there on. */
static void resumed_is_whole(const char *sampler, int stride)
{
    struct mr_trainer_opts o;
    defaults(&o);
    o.sampler = sampler;
    struct mr_trainer *whole = make(&o);
    run(whole);
    struct mr_checkpoint *want = saved(whole);
    for (int cut = 5; cut < 52; cut += stride) { /* 13 steps an epoch */
        o.resume = NULL;
        o.threads = 1;
        struct mr_trainer *first = make(&o);
        steps(first, cut);
        struct mr_checkpoint *c = saved(first);
        mr_trainer_destroy(first);
        o.resume = c;
        o.threads = 2;
        struct mr_trainer *second = make(&o);
        struct mr_trainer_info info = {.size = sizeof info};
        must(mr_trainer_query(second, &info));
        assert_int_equal(info.resumed_step, cut);
        run(second);
        struct mr_checkpoint *got = saved(second);
        same(want, got);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(mr_trainer_epoch_get(whole, i)->test_loss ==
                        mr_trainer_epoch_get(second, i)->test_loss);
        assert_null(mr_trainer_epoch_get(second, 4));
        mr_trainer_destroy(second);
        mr_checkpoint_close(c);
        mr_checkpoint_close(got);
    }
    mr_checkpoint_close(want);
    mr_trainer_destroy(whole);
}

static void test_resumed_is_whole(void **state)
{
    (void)state;
    resumed_is_whole(NULL, 20);
    resumed_is_whole("random:block=7,window=3", 30);
}

/* The bits of the first values of the first tensor after an epoch. */
static void train_an_epoch(struct mr_trainer_opts *o, uint32_t out[4])
{
    o->epochs = 1;
    struct mr_trainer *t = make(o);
    run(t);
    struct mr_checkpoint *c = saved(t);
    const struct mr_checkpoint_tensor *first = mr_checkpoint_tensor_get(c, 0);
    assert_non_null(first);
    assert_true(first->bytes >= 4 * sizeof *out);
    memcpy(out, first->data, 4 * sizeof *out);
    mr_checkpoint_close(c);
    mr_trainer_destroy(t);
}

/* Texts that name the same order give the same bits, others give others. */
static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *sampler;
        int shuffle, order;
    } runs[] = {{NULL, 1, 0},
                {"random", 0, 0},
                {NULL, 0, 1},
                {"sequential", 1, 1},
                {"random:block=8", 1, 2},
                {"random:block=8,window=16", 0, 2},
                {"random:block=8,window=2", 1, 3}};
    enum { N = sizeof runs / sizeof *runs };
    uint32_t values[N][4];
    for (int i = 0; i < N; i++) {
        struct mr_trainer_opts o;
        defaults(&o);
        o.sampler = runs[i].sampler;
        o.shuffle = runs[i].shuffle;
        train_an_epoch(&o, values[i]);
        for (int k = 0; k < i; k++)
            assert_int_equal(memcmp(values[i], values[k], sizeof *values) == 0,
                             runs[i].order == runs[k].order);
    }
}

/* Epochs that leave samples out, and a checkpoint of another order. */
static void test_order_refused(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    struct mr_trainer *t = NULL;
    char path[64], text[96];
    FILE *file = fopen(scratch(path), "w");
    assert_non_null(file);
    (void)fputs("0\n1\n2\n", file);
    (void)fclose(file);
    snprintf(text, sizeof text, "subset:%s,shuffle", path);
    defaults(&o);
    o.sampler = text;
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "each sample once"));
    unlink(path);
    o.sampler = "random:block=x";
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_EOPTION);
    o.sampler = "random:block=8";
    struct mr_trainer *other = make(&o);
    struct mr_checkpoint *c = saved(other);
    mr_trainer_destroy(other);
    o.sampler = NULL;
    o.resume = c;
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_ESTATE);
    assert_non_null(
        strstr(mr_last_error(), "order there 'random(seed=3,block=8,window=16)', here 'shuffled'"));
    assert_null(t);
    mr_checkpoint_close(c);
}

/* lr and clipping are the optimizer's: said apart or in its text, the parameters are the same. */
static void test_rate_and_clipping(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    defaults(&o);
    o.optimizer = "adam:lr=0.01,clip_norm=0.5,clip_value=0.25";
    struct mr_trainer *text = make(&o);
    o.optimizer = "adam";
    o.lr = 0.01;
    o.clip_norm = 0.5;
    o.clip_value = 0.25;
    struct mr_trainer *members = make(&o);
    steps(text, 20);
    steps(members, 20);
    struct mr_checkpoint *a = saved(text), *b = saved(members);
    assert_string_equal(mr_checkpoint_get(b, "optimizer"),
                        "adam:lr=0.01,clip_norm=0.5,clip_value=0.25");
    same(a, b);
    mr_checkpoint_close(a);
    mr_checkpoint_close(b);
    mr_trainer_destroy(text);
    mr_trainer_destroy(members);
}

static void test_refused(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    struct mr_trainer *t = NULL;
    struct mr_train_sums sums = {.size = sizeof sums};
    defaults(&o);
    struct mr_trainer *other = make(&o);
    struct mr_checkpoint *c = saved(other);
    must(mr_trainer_test(other, &sums));
    assert_int_equal(sums.n_samples, 50);
    mr_trainer_destroy(other);
    o.resume = c;
    o.seed = 4;
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_ESTATE);
    assert_non_null(strstr(mr_last_error(), "seed there '3', here '4'"));
    defaults(&o);
    o.loss = MR_NLL;
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "logsoftmax"));
    defaults(&o);
    o.size = 4;
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_EMISUSE);
    defaults(&o);
    o.lr = 1e31;
    assert_int_equal(mr_trainer_create(device, ds, test_set, &o, &t), MR_EOPTION);
    assert_null(t);
    o.lr = -1;
    assert_int_equal(mr_trainer_create(device, ds, NULL, &o, &t), 0);
    assert_int_equal(mr_trainer_test(t, &sums), MR_EMISUSE);
    assert_int_equal(mr_trainer_end_epoch(t, NULL), MR_EMISUSE);
    mr_trainer_destroy(t);
    mr_checkpoint_close(c);
}

static void test_ends(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    struct mr_trainer_info info = {.size = sizeof info};
    struct mr_train_epoch e = {.size = sizeof e};
    int last;
    defaults(&o);
    o.max_steps = 20;
    struct mr_trainer *t = make(&o);
    assert_int_equal(mr_trainer_unfinished(t, 0, &e), 0);
    assert_int_equal(mr_trainer_epoch(t, &e), 1);
    assert_int_equal(e.steps, 13);
    steps(t, 6);
    must(mr_trainer_query(t, &info));
    assert_int_equal(info.end, MR_TRAINER_EPOCHS);
    steps(t, 1); /* said at once: the caller may want to save */
    must(mr_trainer_query(t, &info));
    assert_int_equal(info.end, MR_TRAINER_STEPS);
    assert_int_equal(mr_trainer_epoch(t, &e), 0);
    assert_int_equal(mr_trainer_step(t, &last), 0);
    must(mr_trainer_query(t, &info));
    assert_int_equal(info.end, MR_TRAINER_STEPS);
    assert_int_equal(info.step, 20);
    assert_int_equal(mr_trainer_unfinished(t, 1, &e), 1);
    assert_int_equal(e.epoch, 2);
    assert_int_equal(e.steps, 20);
    assert_true(e.loss > 0 && e.test_loss > 0 && info.n_epochs == 1);
    mr_trainer_destroy(t);
    defaults(&o);
    o.target = 0.01; /* any net */
    t = make(&o);
    run(t);
    must(mr_trainer_query(t, &info));
    assert_int_equal(info.end, MR_TRAINER_TARGET);
    assert_int_equal(info.n_epochs, 1);
    assert_false(isnan(info.seconds_to_target));
    mr_trainer_destroy(t);
}

/* The net of a checkpoint gives what the trainer's gives. */
static void test_net_of_checkpoint(void **state)
{
    (void)state;
    struct mr_trainer_opts o;
    struct mr_checkpoint_info info = {.size = sizeof info};
    struct mr_net *net = NULL;
    const void *outputs;
    float want[4];
    uint8_t sample[30] = {1, 2, 3};
    const struct mr_net_batch batch = {
        .size = sizeof batch, .input = sample, .input_dtype = MR_U8, .n = 1};
    defaults(&o);
    o.transform = "";
    struct mr_trainer *t = make(&o);
    steps(t, 10);
    must(mr_net_eval(mr_trainer_get_net(t), &batch, &outputs, NULL));
    memcpy(want, outputs, sizeof want);
    struct mr_checkpoint *c = saved(t);
    must(mr_checkpoint_query(c, &info));
    assert_int_equal(info.classes, 4);
    assert_int_equal(info.step, 10);
    assert_string_equal(info.sample, "1x6x5 nchw");
    must(mr_checkpoint_net_create(c, device, 1, 1, &net));
    must(mr_net_eval(net, &batch, &outputs, NULL));
    assert_memory_equal(outputs, want, sizeof want);
    mr_net_destroy(net);
    mr_checkpoint_close(c);
    mr_trainer_destroy(t);
}

static void put_file(const char *path, uint64_t length, const char *head, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    fwrite(head, 1, bytes, file);
    must(fclose(file));
    if (length > bytes) /* a hole */
        must(truncate(path, (off_t)(8 + length)));
}

static void refused(uint64_t length, const char *head, int code, const char *why)
{
    char path[64];
    struct mr_checkpoint *c = NULL;
    put_file(scratch(path), length, head, strlen(head));
    int rc = mr_checkpoint_open(path, &c);
    unlink(path);
    assert_int_equal(rc, code);
    assert_null(c);
    if (!strstr(mr_last_error(), why))
        fail_msg("%s: expected '%s' in it", mr_last_error(), why);
}

/* One parser reads data sets and checkpoints: a header of more than 64 MiB is neither. */
static void test_bad_files(void **state)
{
    (void)state;
    char path[64];
    struct mr_dataset *none = NULL;
    char uri[96];
    const char *head = "{\"__metadata__\":{\"millrace\":\"1\"},\"a\":{\"dtype\":\"F16\",\"shape\":["
                       "0],\"data_offsets\":[0,0]}}";
    refused(strlen(head), head, MR_EFORMAT, "f32 or f64");
    refused(2, "{}", MR_EFORMAT, "did not write");
    refused((64u << 20) + 1, "{}", MR_EFORMAT, "expected 2..67108864");
    refused(1u << 20, "{\"a\"", MR_EFORMAT, "JSON");
    put_file(scratch(path), (64u << 20) + 1, "{}", 2);
    snprintf(uri, sizeof uri, "safetensors:%s", path);
    int rc = mr_dataset_open(uri, &none);
    unlink(path);
    assert_int_equal(rc, MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "expected 2..67108864"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed_is_whole),
        cmocka_unit_test(test_rate_and_clipping),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_refused),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_net_of_checkpoint),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
