/* The loader into a real GPU: what arrives there is, byte for byte, what the CPU device hands
 * out. */
#include "gpu.h"

#include <stdbool.h>
#include <unistd.h>

#define N_SAMPLES LESS(20000)
#define SIDE      28

static char images[256], labels[256];

/* A set in MNIST's format: images of 28 x 28 bytes that look like strokes on black, and labels. */
static void write_set(void)
{
    static const unsigned char image_head[16] = {
        0, 0, 8, 3, 0, 0, N_SAMPLES >> 8, N_SAMPLES & 255, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static const unsigned char label_head[8] = {0, 0, 8, 1, 0, 0, N_SAMPLES >> 8, N_SAMPLES & 255};
    unsigned char row[SIDE * SIDE];
    const char *folder = getenv("TMPDIR");
    snprintf(images, sizeof images, "%s/mr-gpu-%d-images-idx3-ubyte", folder ? folder : "/tmp",
             (int)getpid());
    snprintf(labels, sizeof labels, "%s/mr-gpu-%d-labels-idx1-ubyte", folder ? folder : "/tmp",
             (int)getpid());
    FILE *image_file = fopen(images, "wb"), *label_file = fopen(labels, "wb");
    check(image_file && label_file);
    check(fwrite(image_head, 1, 16, image_file) == 16 && fwrite(label_head, 1, 8, label_file) == 8);
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        gpu_fill(row, sizeof row, i);
        for (size_t k = 0; k < sizeof row; k++)
            row[k] = row[k] < 200 ? 0 : row[k];
        unsigned char label = (unsigned char)(i % 10);
        check(fwrite(row, 1, sizeof row, image_file) == sizeof row &&
              fwrite(&label, 1, 1, label_file) == 1);
    }
    check(fclose(image_file) == 0 && fclose(label_file) == 0);
}

static void remove_set(void)
{
    remove(images);
    remove(labels);
}

struct job {
    const char *device, *chain;
    uint64_t batch_size;
    uint32_t workers, prefetch;
    bool pageable, own_stream, busy;
};

static uint64_t hash_bytes(uint64_t h, const unsigned char *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        h = (h ^ data[i]) * 0x100000001b3ull;
    return h;
}

/* Takes a batch back to the host and into the hash. */
static uint64_t take_batch(uint64_t h, const struct mr_batch *b, const struct mr_device_info *info,
                           struct mr_stream *stream, unsigned char *host)
{
    for (int f = 0; f < b->n_fields; f++) {
        const void *data = b->field[f].data;
        if (!info->unified) {
            must(mr_copy_async(stream, host, MR_PINNED, data, MR_DEVICE, b->field[f].bytes));
            must(mr_stream_synchronize(stream));
            data = host;
        }
        h = hash_bytes(h, data, b->field[f].bytes);
    }
    return hash_bytes(h, (const unsigned char *)b->indices, b->n * sizeof *b->indices);
}

static uint64_t digest(const struct job *job)
{
    struct mr_idx_opts idx;
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_transform *chain = NULL;
    struct mr_device *dev = NULL;
    struct mr_device_info info = {.size = sizeof info};
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    uint64_t h = 0xcbf29ce484222325ull, rows = 0;
    int rc;
    mr_idx_opts_init(&idx);
    idx.path = images;
    idx.labels = labels;
    must(mr_dataset_open_idx(&idx, &ds));
    must(mr_sampler_open("random", N_SAMPLES, 11, &sampler));
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, job->chain));
    must(mr_device_open(job->device, &dev));
    must(mr_device_query(dev, &info));
    struct mr_stream *stream = gpu_stream(dev, "consumer");
    unsigned char *host = gpu_take(dev, MR_PINNED, job->batch_size * SIDE * SIDE * 4);
    mr_loader_opts_init(&opts);
    opts.batch_size = job->batch_size;
    opts.workers = job->workers;
    opts.prefetch = job->prefetch;
    opts.pin = !job->pageable;
    opts.epochs = 2;
    opts.seed = 5;
    must(mr_loader_open(ds, sampler, chain, dev, &opts, &ld));
    while ((rc = mr_loader_next(ld, job->own_stream ? stream : NULL, &b)) > 0) {
        if (job->busy)
            gpu_busy(stream, 200000);
        h = take_batch(h, &b, &info, stream, host);
        rows += b.n;
        must(mr_loader_release(ld, &b, job->own_stream ? stream : NULL));
    }
    must(rc);
    check(rows == 2 * N_SAMPLES);
    mr_loader_close(ld);
    mr_memory_release(dev, MR_PINNED, host, NULL);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return h;
}

static void test_digests(struct mr_device *dev)
{
    (void)dev;
    static const char *const chains[] = {"cast(f32),scale(1/255),normalize(0.1307,0.3081)",
                                         "random_crop(24,24),hflip(0.5)"};
    write_set();
    for (size_t i = 0; i < COUNT(chains); i++) {
        struct job cpu = {.device = "cpu", .chain = chains[i], .batch_size = 64, .workers = 2};
        uint64_t want = digest(&cpu);
        for (unsigned c = 0; c < 8; c++) {
            struct job gpu = {.device = c & 4 ? "cuda:0,pinned=alloc" : "cuda",
                              .chain = chains[i],
                              .batch_size = 64,
                              .workers = c % 3 * 3 + 1,
                              .prefetch = c & 1 ? 1 : 5,
                              .pageable = (c & 2) != 0,
                              .own_stream = c != 3,
                              .busy = c == 5};
            uint64_t got = digest(&gpu);
            if (got != want)
                printf("  case %u: %016llx on the GPU, %016llx on the CPU\n", c,
                       (unsigned long long)got, (unsigned long long)want);
            check(got == want);
        }
    }
    remove_set();
}

/* In-memory samples as fast as they go: the rate is printed, and copies lie under the consumer's
 * kernels. */
static void test_overlap_under_load(struct mr_device *dev)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    struct mr_loader_stats stats = {.size = sizeof stats};
    struct mr_batch b = {.size = sizeof b};
    uint64_t samples = 0, start = 0;
    int rc;
    must(mr_dataset_open("synthetic:n=200000,shape=1024,dtype=u8", &ds));
    must(mr_sampler_open("random", 200000, 3, &sampler));
    struct mr_stream *stream = gpu_stream(dev, "consumer");
    mr_loader_opts_init(&opts);
    opts.batch_size = 1024;
    must(mr_loader_open(ds, sampler, NULL, dev, &opts, &ld));
    while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
        start = start ? start : mr_time_ns();
        samples += b.n;
        gpu_busy(stream, 500000);
        must(mr_loader_release(ld, &b, stream));
    }
    must(rc);
    must(mr_stream_synchronize(stream));
    mr_loader_stats(ld, &stats);
    printf("  %.2f M samples/s of 1 KiB; over %llu batches %.2f ms of copies, %.2f ms of them "
           "under kernels\n",
           (double)samples / (double)(mr_time_ns() - start) * 1e3,
           (unsigned long long)stats.timed_batches, (double)stats.timed_copy_ns * 1e-6,
           (double)stats.timed_both_ns * 1e-6);
    check(samples == 200000 && stats.timed_batches > 50 && stats.timed_both_ns > 0);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
}

/* Slots that do not fit the GPU: the error says what was asked and which option to lower, and
 * nothing is left. */
static void test_too_large(struct mr_device *dev)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    struct mr_memory_counters count = {.size = sizeof count};
    mr_memory_set_limit(dev, 64 << 20);
    must(mr_dataset_open("synthetic:n=4096,shape=1024x1024,dtype=u8", &ds));
    must(mr_sampler_open("sequential", 4096, 0, &sampler));
    mr_loader_opts_init(&opts);
    opts.batch_size = 256;
    check(mr_loader_open(ds, sampler, NULL, dev, &opts, &ld) < 0);
    printf("  %s\n", mr_last_error());
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        mr_memory_query(dev, (enum mr_memory)kind, &count);
        check(count.requested_bytes == 0);
    }
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"digests", test_digests},
        {"overlap under load", test_overlap_under_load},
        {"too large", test_too_large},
    };
    return gpu_main(tests, COUNT(tests));
}
