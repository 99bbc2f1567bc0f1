/*
 * Trains a small net on MNIST, saves it, and goes on from the checkpoint.
 *
 *     cc train_mnist.c $(pkg-config --cflags --libs millrace-train) && ./a.out mnist
 *
 * The folder holds MNIST's four files, or those of `millrace synth digits mnist`.
 */
#include <millrace/train.h>
#include <stdio.h>

#define CHECKPOINT "train_mnist.safetensors"

static int train(struct mr_device *device, struct mr_dataset *ds, struct mr_dataset *test,
                 uint64_t epochs, const struct mr_checkpoint *resume)
{
    struct mr_trainer_opts opts;
    struct mr_trainer *trainer;
    struct mr_train_epoch e = {.size = sizeof e};
    mr_trainer_opts_init(&opts);
    opts.model = "mlp:64r";
    opts.classes = 10;
    opts.transform = "cast(f32),scale(1/255),normalize(0.1307,0.3081)";
    opts.epochs = epochs;
    opts.resume = resume;
    int rc = mr_trainer_create(device, ds, test, &opts, &trainer);
    if (rc < 0)
        return rc;
    while ((rc = mr_trainer_epoch(trainer, &e)) > 0)
        printf("epoch %llu: loss %.4f, test accuracy %.1f%%\n", (unsigned long long)e.epoch, e.loss,
               100 * e.test_accuracy);
    if (rc == 0)
        rc = mr_trainer_save(trainer, CHECKPOINT);
    mr_trainer_destroy(trainer);
    return rc;
}

int main(int argc, char **argv)
{
    struct mr_device *device = NULL;
    struct mr_dataset *ds = NULL, *test = NULL;
    struct mr_checkpoint *checkpoint = NULL;
    char text[4096];
    const char *folder = argc > 1 ? argv[1] : "mnist";
    int rc = mr_device_open("auto", &device);
    if (rc == 0)
        rc = mr_dataset_open(folder, &ds);
    snprintf(text, sizeof text, "%s,split=test", folder);
    if (rc == 0)
        rc = mr_dataset_open(text, &test);
    if (rc == 0)
        rc = train(device, ds, test, 2, NULL);
    if (rc == 0) /* another program could do this: the file is all it needs */
        rc = mr_checkpoint_open(CHECKPOINT, &checkpoint);
    if (rc == 0)
        rc = train(device, ds, test, 3, checkpoint);
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_checkpoint_close(checkpoint);
    if (test)
        mr_dataset_close(test);
    if (ds)
        mr_dataset_close(ds);
    if (device)
        mr_device_close(device);
    return rc < 0;
}
