/*
 * JPEG by the real nvJPEG, beside the host's decodes. MILLRACE_GPU_PHOTOS: a data set of photos
 * (folder:DIR); without it, or without nvJPEG, skipped.
 */
#include "gpu.h"

#include <stdbool.h>

struct kept {
    unsigned char *data; /* rows of one size, in the epoch's order */
    uint64_t n, row_bytes;
    struct mr_loader_stats stats;
    int rc;
};

static const char *photos;

static void keep_batch(struct kept *k, const struct mr_batch *b, struct mr_stream *stream)
{
    k->row_bytes = b->field[0].bytes / b->n;
    k->data = realloc(k->data, (k->n + b->n) * k->row_bytes);
    check(k->data);
    must(mr_copy_async(stream, k->data + k->n * k->row_bytes, MR_PAGEABLE, b->field[0].data,
                       MR_DEVICE, b->field[0].bytes));
    must(mr_stream_synchronize(stream));
    k->n += b->n;
}

static struct kept run(struct mr_device *dev, const char *more, const char *text, double share,
                       uint32_t workers)
{
    struct kept k = {0};
    struct mr_dataset *ds = NULL;
    struct mr_transform *chain = NULL;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    char uri[1000];
    snprintf(uri, sizeof uri, "%s%s", photos, more);
    must(mr_dataset_open(uri, &ds));
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, text));
    struct mr_stream *stream = gpu_stream(dev, "consumer");
    mr_loader_opts_init(&opts);
    opts.batch_size = 48;
    opts.bad = MR_BAD_SKIP;
    opts.workers = workers;
    opts.seed = 3;
    opts.gpu_decode = share;
    k.rc = mr_loader_open(ds, NULL, chain, dev, &opts, &ld);
    if (k.rc == MR_EUNSUPPORTED) {
        printf("SKIP: %s\n", mr_last_error());
        exit(GPU_SKIP);
    }
    must(k.rc);
    for (uint64_t i = 0; i < 20 && (k.rc = mr_loader_next(ld, stream, &b)) > 0; i++) {
        keep_batch(&k, &b, stream);
        must(mr_loader_release(ld, &b, stream));
    }
    must(k.rc);
    k.stats.size = sizeof k.stats;
    mr_loader_stats(ld, &k.stats);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
    return k;
}

/* Pixels against the host's, decoded at full size and as small as will do. */
static void test_difference(struct mr_device *dev)
{
    static const char *const more[] = {",exact", ""};
    static const double most_mean[] = {2, 6};
    for (int i = 0; i < 2; i++) {
        struct kept host = run(dev, more[i], "resize(224,224)", 0, 0),
                    gpu = run(dev, more[i], "resize(224,224)", 1, 0);
        check(host.n == gpu.n && host.row_bytes == gpu.row_bytes && gpu.stats.gpu_decoded > 0);
        uint64_t sum = 0, histogram[256] = {0}, total = host.n * host.row_bytes, over = 0;
        double worst = 0;
        for (uint64_t r = 0; r < host.n; r++) {
            uint64_t row = 0;
            for (uint64_t k = 0; k < host.row_bytes; k++) {
                int d = abs(host.data[r * host.row_bytes + k] - gpu.data[r * host.row_bytes + k]);
                row += (uint64_t)d;
                histogram[d]++;
            }
            sum += row;
            worst = (double)row / (double)host.row_bytes > worst
                        ? (double)row / (double)host.row_bytes
                        : worst;
        }
        int most = 255;
        while (most > 0 && histogram[most] == 0)
            most--;
        for (int d = 9; d < 256; d++)
            over += histogram[d];
        double mean = (double)sum / (double)total;
        printf("  host%s beside nvJPEG, %llu pictures, %llu of them by nvJPEG, %llu refused: mean "
               "difference %.3f, worst "
               "picture's %.3f, maximum %d, over 8: %.4f%%\n",
               more[i], (unsigned long long)host.n, (unsigned long long)gpu.stats.gpu_decoded,
               (unsigned long long)gpu.stats.gpu_refused, mean, worst, most,
               100. * (double)over / (double)total);
        check(mean < most_mean[i]);
        free(host.data);
        free(gpu.data);
    }
}

/* The same share is the same content, whoever makes it. */
static void test_same_again(struct mr_device *dev)
{
    const char *chain = "random_resized_crop(224),hflip,cast(f32),normalize([0.485,0.456,0.406],[0."
                        "229,0.224,0.225])";
    struct kept one = run(dev, "", chain, 0.5, 2), other = run(dev, "", chain, 0.5, 7);
    check(one.n == other.n && one.row_bytes == other.row_bytes && one.stats.gpu_decoded > 0);
    check(memcmp(one.data, other.data, one.n * one.row_bytes) == 0);
    printf("  %llu pictures twice, %llu of them made by nvJPEG: the same bits\n",
           (unsigned long long)one.n, (unsigned long long)one.stats.gpu_decoded);
    free(one.data);
    free(other.data);
}

int main(void)
{
    static const struct gpu_test tests[] = {{"difference from the host's decodes", test_difference},
                                            {"the same again", test_same_again}};
    photos = getenv("MILLRACE_GPU_PHOTOS");
    if (!photos) {
        printf("SKIP: MILLRACE_GPU_PHOTOS is not set\n");
        return GPU_SKIP;
    }
    return gpu_main(tests, COUNT(tests));
}
