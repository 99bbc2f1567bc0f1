/* A net in two stages on a real GPU, or on two where they are: the checkpoint's tensors are those
 * of the net on one device, with clip_norm and in each precision. */
#include "gpu.h"

#include <millrace/train.h>
#include <unistd.h>

static struct mr_dataset *ds;
static int no_library;

static struct mr_trainer *make(struct mr_device *dev, struct mr_device *const *more,
                               enum mr_precision precision)
{
    struct mr_trainer_opts o;
    struct mr_trainer *t = NULL;
    mr_trainer_opts_init(&o);
    o.model = "conv:16,p=1,relu,conv:32,p=1,relu,maxpool:2,flatten,linear:64,relu,linear:4";
    o.classes = 4;
    o.batch_size = 32;
    o.seed = 3;
    o.optimizer = "adamw";
    o.clip_norm = 0.1;
    o.precision = precision;
    o.leaves = 4;
    o.n_devices = more != NULL;
    o.devices = more;
    o.micro_batches = more ? 4 : 0;
    o.split = more ? "fc1" : "auto";
    int rc = mr_trainer_create(dev, ds, NULL, &o, &t);
    if (rc == MR_EUNSUPPORTED) {
        printf("  %s\n", mr_last_error());
        no_library = 1;
        return NULL;
    }
    must(rc);
    return t;
}

static struct mr_checkpoint *run(struct mr_trainer *t)
{
    char path[] = "/tmp/millrace-gpu-split-XXXXXX";
    struct mr_checkpoint *c = NULL;
    int last = 0, fd = mkstemp(path);
    check(fd >= 0);
    close(fd);
    for (int i = 0; i < 20; i++)
        must(mr_trainer_step(t, &last));
    must(mr_trainer_save(t, path));
    must(mr_checkpoint_open(path, &c));
    unlink(path);
    return c;
}

static void same(const struct mr_checkpoint *a, const struct mr_checkpoint *b)
{
    uint32_t i = 0;
    for (const struct mr_checkpoint_tensor *s; (s = mr_checkpoint_tensor_get(a, i)); i++) {
        const struct mr_checkpoint_tensor *t = mr_checkpoint_tensor_get(b, i);
        check(t && strcmp(s->name, t->name) == 0 && s->bytes == t->bytes);
        check(memcmp(s->data, t->data, s->bytes) == 0);
    }
    check(i > 0 && !mr_checkpoint_tensor_get(b, i));
    check(strcmp(mr_checkpoint_get(a, "loss_scale"), mr_checkpoint_get(b, "loss_scale")) == 0);
}

static void compare(struct mr_device *dev, enum mr_precision precision)
{
    struct mr_device_info info = {.size = sizeof info};
    struct mr_device *other = NULL;
    must(mr_device_query(dev, &info));
    must(mr_device_open(info.n_devices > 1 ? "cuda:1" : "cuda:0", &other));
    must(mr_dataset_open("synthetic:n=640,shape=16x16,dtype=u8,classes=4", &ds));
    struct mr_trainer *whole = make(dev, NULL, precision);
    if (whole) {
        struct mr_trainer *parts = make(dev, &other, precision);
        check(parts != NULL);
        struct mr_checkpoint *want = run(whole), *got = run(parts);
        same(want, got);
        mr_checkpoint_close(want);
        mr_checkpoint_close(got);
        mr_trainer_destroy(parts);
    }
    mr_trainer_destroy(whole);
    mr_dataset_close(ds);
    mr_device_close(other);
}

static void test_f32(struct mr_device *dev)
{
    compare(dev, MR_PRECISION_F32);
}

static void test_bf16(struct mr_device *dev)
{
    compare(dev, MR_PRECISION_BF16);
}

static void test_fp16(struct mr_device *dev)
{
    compare(dev, MR_PRECISION_FP16);
}

int main(void)
{
    static const struct gpu_test first[] = {{"f32", test_f32}};
    static const struct gpu_test tests[] = {{"bf16", test_bf16}, {"fp16", test_fp16}};
    int code = gpu_main(first, 1);
    if (code)
        return code;
    if (no_library) {
        printf("SKIP: no cuBLASLt, or no kernels\n");
        return GPU_SKIP;
    }
    return gpu_main(tests, COUNT(tests));
}
