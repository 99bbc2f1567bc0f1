/*
 * Your own CUDA kernel on your own stream, fed by a loader. The host never waits in the loop: the
 * stream waits for each batch's copy, and the batch's memory is used again once the stream has
 * passed its release.
 *
 *   nvcc own_kernel.cu $(pkg-config --cflags --libs millrace) -o own_kernel && ./own_kernel
 */
#include <cuda_runtime.h>
#include <millrace/millrace.h>
#include <stdio.h>

static __global__ void add_up(const float *x, unsigned long long n, double *sum)
{
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    double mine = 0;
    for (; at < n; at += (unsigned long long)gridDim.x * blockDim.x)
        mine += (double)x[at];
    atomicAdd(sum, mine);
}

/* Returns 0 or a negative error. [out] out: the sum of all values. */
static int run(struct mr_device *device, struct mr_dataset *ds, cudaStream_t mine, double *out)
{
    struct mr_stream *stream = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    struct mr_batch batch = {.size = sizeof batch};
    double *sum = NULL;
    mr_loader_opts_init(&opts);
    opts.batch_size = 256;
    int rc = mr_stream_wrap(device, mine, &stream);
    if (rc < 0)
        goto done;
    rc = mr_loader_open(ds, NULL, NULL, device, &opts, &loader);
    if (rc < 0)
        goto done;
    if (cudaMalloc(&sum, sizeof *sum) || cudaMemsetAsync(sum, 0, sizeof *sum, mine)) {
        rc = mr_error_set(MR_EDEVICEMEM, "no device memory for the sum");
        goto done;
    }
    while ((rc = mr_loader_next(loader, stream, &batch)) > 0) {
        add_up<<<64, 256, 0, mine>>>((const float *)batch.field[0].data, batch.field[0].bytes / 4,
                                     sum);
        rc = mr_loader_release(loader, &batch, stream);
        if (rc < 0)
            break;
    }
    if (rc >= 0 && (cudaMemcpyAsync(out, sum, sizeof *out, cudaMemcpyDeviceToHost, mine) ||
                    cudaStreamSynchronize(mine)))
        rc = mr_error_set(MR_EDEVICE, "%s", cudaGetErrorString(cudaGetLastError()));
done:
    mr_loader_close(loader); /* before the stream: it waits for the last release */
    mr_stream_destroy(stream);
    cudaFree(sum);
    return rc;
}

int main(int argc, char **argv)
{
    struct mr_device *device = NULL;
    struct mr_dataset *ds = NULL;
    cudaStream_t mine = NULL;
    double sum = 0;
    int rc = mr_device_open("cuda", &device);
    if (rc < 0)
        goto done;
    rc = mr_dataset_open(argc > 1 ? argv[1] : "synthetic:n=100000,shape=1024,dtype=f32", &ds);
    if (rc < 0)
        goto done;
    if (cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking)) {
        rc = mr_error_set(MR_EDEVICE, "%s", cudaGetErrorString(cudaGetLastError()));
        goto done;
    }
    rc = run(device, ds, mine, &sum);
    if (rc >= 0)
        printf("sum of %llu samples: %.3f\n", (unsigned long long)mr_dataset_length(ds), sum);
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    if (mine)
        cudaStreamDestroy(mine);
    mr_dataset_close(ds);
    mr_device_close(device);
    return rc < 0;
}
