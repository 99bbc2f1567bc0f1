/*
 * Batches that outlive the loop: each field becomes a DLPack tensor, as PyTorch, JAX and NumPy take
 * them, the last 20 are kept, and the loader is closed before they are used.
 *
 *   cc dlpack.c $(pkg-config --cflags --libs millrace) -o dlpack && ./dlpack
 */
#include <millrace/dlpack.h>
#include <stdio.h>

#define KEPT 20

/* What a library does with a tensor: it reads it, and calls the deleter when it is done. */
static void consume(struct mr_dlpack_versioned *t)
{
    const float *x = (const float *)t->tensor.data;
    printf("%lld x %lld, the first is %g\n", (long long)t->tensor.shape[0],
           (long long)t->tensor.shape[1], (double)x[0]);
    t->deleter(t);
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    struct mr_batch batch = {.size = sizeof batch};
    struct mr_dlpack_versioned *kept[KEPT] = {NULL};
    uint64_t n = 0;
    int rc = mr_dataset_open("synthetic:n=10000,shape=16,dtype=f32", &ds);
    if (rc < 0)
        goto end;
    mr_loader_opts_init(&opts);
    opts.batch_size = 100;
    rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        goto end;
    while ((rc = mr_loader_next(loader, NULL, &batch)) > 0) {
        struct mr_dlpack_versioned **place = &kept[n++ % KEPT];
        if (*place)
            (*place)->deleter(*place);
        *place = NULL;
        rc = mr_batch_to_dlpack_versioned(&batch, 0, MR_DLPACK_DATA, NULL, place);
        mr_loader_release(loader, &batch, NULL); /* the tensor keeps the batch */
        if (rc < 0)
            break;
    }
end:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_loader_close(loader);
    for (uint64_t i = 0; i < KEPT; i++)
        if (kept[i])
            consume(kept[i]);
    mr_dataset_close(ds);
    return rc < 0;
}
