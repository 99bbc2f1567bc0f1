/*
 * The smallest complete program: shuffled, normalized batches from a folder with MNIST's four
 * files.
 *
 *   cc feed_mnist.c $(pkg-config --cflags --libs millrace) -o feed_mnist && ./feed_mnist mnist/
 */
#include <millrace/millrace.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *order = NULL;
    struct mr_transform *chain = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    struct mr_batch batch = {.size = sizeof batch};
    mr_loader_opts_init(&opts);
    opts.batch_size = 64;
    opts.epochs = 3;

    int rc = mr_dataset_open(argc > 1 ? argv[1] : "mnist/", &ds);
    if (rc < 0)
        goto done;
    rc = mr_sampler_open("random", mr_dataset_length(ds), 1, &order);
    if (rc < 0)
        goto done;
    rc = mr_transform_create(&chain);
    if (rc < 0)
        goto done;
    rc = mr_transform_add(chain, "cast(f32),scale(1/255),normalize(0.1307,0.3081)");
    if (rc < 0)
        goto done;
    rc = mr_loader_open(ds, order, chain, NULL, &opts, &loader);
    if (rc < 0)
        goto done;

    while ((rc = mr_loader_next(loader, NULL, &batch)) > 0) {
        /* Train here. field[0].data: float[n][28][28]; field[1].data: uint8_t[n]. */
        if (batch.last)
            printf("epoch %llu: %llu batches\n", (unsigned long long)batch.epoch,
                   (unsigned long long)batch.index + 1);
        rc = mr_loader_release(loader, &batch, NULL);
        if (rc < 0)
            break;
    }
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_loader_close(loader);
    mr_transform_destroy(chain);
    mr_sampler_destroy(order);
    mr_dataset_close(ds);
    return rc < 0;
}
