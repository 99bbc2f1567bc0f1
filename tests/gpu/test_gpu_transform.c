/* Ends of chains on a real GPU: bit for bit what the CPU device hands out, and fewer bytes
 * copied. */
#include "gpu.h"

#include <stdbool.h>

struct job {
    const char *set, *chain;
    uint64_t batch_size;
    bool on_host, resident;
    uint64_t epochs; /* 0: 1 */
};

static uint64_t hash_bytes(uint64_t h, const unsigned char *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        h = (h ^ data[i]) * 0x100000001b3ull;
    return h;
}

static uint64_t take_batch(uint64_t h, const struct mr_batch *b, bool unified,
                           struct mr_stream *stream)
{
    for (int f = 0; f < b->n_fields; f++) {
        unsigned char *host = unified ? NULL : malloc(b->field[f].bytes);
        check(unified || host);
        if (!unified) {
            must(mr_copy_async(stream, host, MR_PAGEABLE, b->field[f].data, MR_DEVICE,
                               b->field[f].bytes));
            must(mr_stream_synchronize(stream));
        }
        h = hash_bytes(h, unified ? b->field[f].data : host, b->field[f].bytes);
        free(host);
    }
    return h;
}

static uint64_t digest(struct mr_device *dev, const struct job *job, struct mr_loader_stats *stats)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_transform *chain = NULL;
    struct mr_device_info info = {.size = sizeof info};
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    uint64_t h = 0xcbf29ce484222325ull;
    int rc;
    must(mr_dataset_open(job->set, &ds));
    must(mr_sampler_open("random", mr_dataset_length(ds), 11, &sampler));
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, job->chain));
    must(mr_device_query(dev, &info));
    struct mr_stream *stream = gpu_stream(dev, "consumer");
    mr_loader_opts_init(&opts);
    opts.batch_size = job->batch_size;
    opts.seed = 5;
    opts.device_transforms = job->on_host ? MR_DEVICE_TRANSFORMS_OFF : MR_DEVICE_TRANSFORMS_ON;
    opts.cache = job->resident ? MR_CACHE_DEVICE : MR_CACHE_NONE;
    opts.epochs = job->epochs ? job->epochs : 1;
    must(mr_loader_open(ds, sampler, chain, dev, &opts, &ld));
    while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
        h = take_batch(h, &b, info.unified != 0, stream);
        must(mr_loader_release(ld, &b, stream));
    }
    must(rc);
    stats->size = sizeof *stats;
    mr_loader_stats(ld, stats);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return h;
}

static const char *const chains[] = {
    "cast(f32)",
    "cast(f32),scale(1/255),normalize(0.1307,0.3081)",
    "cast(f16)",
    "cast(f32),scale(1/255,-0.1),cast(f16)",
    "cast(f32),scale(1/3),normalize(0.7,0.3),cast(bf16)",
    "layout(nhwc),cast(f32),scale(1/255)",
    "hflip(0.5,layout=nchw),cast(f32),scale(1/255)",
    "cast(f32),normalize([120,110,100],[60,61,62],axis=0)",
    "random_crop(12,13,layout=nchw),hflip(0.5,layout=nchw),cast(f32),normalize([1,2,3],[4,5,6],"
    "axis=0),layout(nhwc)",
    "layout(nhwc),hflip(0.5,layout=nhwc),cast(f32),scale(1/"
    "255),normalize([0.4,1,2],[3,4,5],axis=2),cast(f16)",
    "cast(f32),scale(1/7),scale(1/11,0.3),normalize(0.3,0.7),scale(1.7),flatten",
};
static const char *const labels[] = {"", ",label.one_hot(10)", ",label.one_hot(11,f16)",
                                     ",label.one_hot(10,u8)", ",label.one_hot(10,f64)"};
static const char *const dtypes[] = {"u8", "i8", "u16", "i16"};
static const char *const shapes[] = {"3x16x20", "3x13x17"}; /* by four, and not */

static void test_same_bits(struct mr_device *dev)
{
    struct mr_device *cpu = NULL;
    char set[128], chain[512];
    unsigned n = 0, n_device = 0;
    must(mr_device_open("cpu", &cpu));
    for (size_t c = 0; c < COUNT(chains); c++)
        for (size_t d = 0; d < COUNT(dtypes); d++)
            for (size_t s = 0; s < COUNT(shapes); s++) {
                struct mr_loader_stats stats = {.size = sizeof stats};
                snprintf(set, sizeof set, "synthetic:n=333,shape=%s,dtype=%s,classes=10", shapes[s],
                         dtypes[d]);
                snprintf(chain, sizeof chain, "%s%s", chains[c], labels[n % COUNT(labels)]);
                struct job job = {.set = set, .chain = chain, .batch_size = 1 + 37 * (n++ % 5)};
                uint64_t want = digest(cpu, &job, &stats), got = digest(dev, &job, &stats);
                n_device += stats.device_ops[0] != '\0';
                if (got != want)
                    printf("  %s: %s, batches of %llu: differs; on the GPU: %s\n", set, chain,
                           (unsigned long long)job.batch_size, stats.device_ops);
                check(got == want);
            }
    printf("  %u chains, %u of them with an end on the GPU\n", n, n_device);
    check(n_device == 0 || n_device > n / 2);
    check((n_device > 0) == (mr_device_has_kernel(dev, "pointwise") == 1));
    mr_device_close(cpu);
}

/* Rows mixed with each other: batches of one row, whole ones, and a part of one at the end. */
static void test_mixes(struct mr_device *dev)
{
    static const char *const mixes[] = {
        "cast(f32),scale(1/255),label.one_hot(10),mixup(0.2)",
        "cast(f32),scale(1/3),normalize(0.7,0.3),cast(bf16),label.one_hot(10,bf16),mixup",
        "hflip(0.5,layout=nchw),cast(f32),scale(1/255),cast(f16),label.one_hot(11,f16),mixup(2)",
        "cast(f32),normalize([120,110,100],[60,61,62],axis=0),label.one_hot(10,f64),cutmix",
        "hflip(0.5,layout=nchw),cast(f16),label.one_hot(10,u8),label.cast(f32),cutmix(0.3)",
        "layout(nhwc),cast(f32),scale(1/255),label.one_hot(10),cutmix(1,layout=nhwc)",
        "cast(bf16),label.one_hot(10),cutmix",
    };
    struct mr_device *cpu = NULL;
    char set[128];
    unsigned n = 0, n_mixed = 0;
    must(mr_device_open("cpu", &cpu));
    for (size_t c = 0; c < COUNT(mixes); c++)
        for (size_t d = 0; d < COUNT(dtypes); d++)
            for (size_t s = 0; s < COUNT(shapes); s++) {
                struct mr_loader_stats stats = {.size = sizeof stats};
                snprintf(set, sizeof set, "synthetic:n=333,shape=%s,dtype=%s,classes=10", shapes[s],
                         dtypes[d]);
                struct job job = {.set = set, .chain = mixes[c], .batch_size = 1 + 37 * (n++ % 5)};
                uint64_t want = digest(cpu, &job, &stats);
                job.resident = n % 3 == 0 && !strstr(mixes[c], "label.cast") &&
                               !strcmp(dtypes[d], "u8") && mr_device_has_kernel(dev, "gather") == 1;
                uint64_t got = digest(dev, &job, &stats);
                n_mixed += stats.device_ops[0] && strncmp(stats.device_ops, "label", 5) != 0;
                if (got != want)
                    printf("  %s: %s, batches of %llu: differs; on the GPU: %s\n", set, mixes[c],
                           (unsigned long long)job.batch_size, stats.device_ops);
                check(got == want);
            }
    printf("  %u chains that mix, %u of them on the GPU\n", n, n_mixed);
    check((n_mixed > n / 2) == (mr_device_has_kernel(dev, "pointwise_mix") == 1));
    mr_device_close(cpu);
}

/* MNIST's chain: a quarter of the bytes; the rates are printed. */
static void test_fewer_bytes(struct mr_device *dev)
{
    struct mr_loader_stats with = {.size = sizeof with}, without = {.size = sizeof without};
    struct job job = {
        .set = "synthetic:n=60000,shape=28x28,dtype=u8", .chain = chains[1], .batch_size = 512};
    if (mr_device_has_kernel(dev, "pointwise") != 1) {
        printf("  this build has no kernels for this GPU: the host does all\n");
        return;
    }
    uint64_t one = digest(dev, &job, &with);
    job.on_host = true;
    uint64_t two = digest(dev, &job, &without);
    check(one == two);
    printf("  on the GPU: %llu bytes copied in %.2f ms (kernels included); on the host: %llu in "
           "%.2f ms\n",
           (unsigned long long)with.copied_bytes, (double)with.copy_ns * 1e-6,
           (unsigned long long)without.copied_bytes, (double)without.copy_ns * 1e-6);
    check(4 * with.copied_bytes == without.copied_bytes && with.bytes == without.bytes);
}

/* A set that lies in the GPU's memory: rows of lengths that are copied by 16 bytes, by 4 and by
 * 1. */
static void test_resident(struct mr_device *dev)
{
    static const char *const set_shapes[] = {"3x16x20", "3x4x5", "3x13x17"};
    char set[128];
    if (mr_device_has_kernel(dev, "gather") != 1) {
        printf("  this build has no kernels for this GPU\n");
        return;
    }
    struct mr_device *cpu = NULL;
    must(mr_device_open("cpu", &cpu));
    for (size_t i = 0; i < COUNT(set_shapes); i++) {
        struct mr_loader_stats stats = {.size = sizeof stats};
        snprintf(set, sizeof set, "synthetic:n=5000,shape=%s,dtype=u8,classes=10", set_shapes[i]);
        struct job job = {.set = set,
                          .chain =
                              "hflip(0.5,layout=nchw),cast(f32),scale(1/255),label.one_hot(10)",
                          .batch_size = 1 + 131 * i,
                          .epochs = 3};
        struct job thrice = job;
        thrice.resident = true;
        uint64_t got = digest(dev, &thrice, &stats);
        check(stats.copied_bytes < 3 * 5000 * 9 + stats.batches * 512);
        printf("  %s: %.2f M samples/s\n", set,
               (double)stats.samples / ((double)(stats.elapsed_ns - stats.first_batch_ns) * 1e-3));
        check(got == digest(cpu, &job, &stats));
    }
    mr_device_close(cpu);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        {"same bits", test_same_bits},
        {"mixes", test_mixes},
        {"fewer bytes", test_fewer_bytes},
        {"resident", test_resident},
    };
    return gpu_main(tests, COUNT(tests));
}
