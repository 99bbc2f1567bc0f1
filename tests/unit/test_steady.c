/*
 * Steady state allocates nothing: between batch 50 and batch 500 of each kind of loader no one in
 * this process calls malloc and its kin or mmap. Prints bytes allocated and CPU time a sample, as
 * information.
 *
 * The functions are this program's own here, in front of the C library's: every library's calls are
 * seen.
 */
#include "unit.h"
#include "whole.h"

#include <errno.h>
#include <millrace/millrace.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
int main(void)
{
    puts("SKIP test_steady: counting allocations wants the plain glibc, without a sanitizer's own "
         "malloc");
    return 77;
}
#else

static _Atomic bool counting;
static _Atomic uint64_t n_calls, n_bytes, n_maps;

static void count(_Atomic uint64_t *calls, size_t bytes)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed))
        return;
    atomic_fetch_add(calls, 1);
    atomic_fetch_add(&n_bytes, bytes);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    count(&n_calls, bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count(&n_calls, n * bytes);
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    count(&n_calls, bytes);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count(&n_calls, bytes);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    count(&n_calls, bytes);
    void *p = __libc_memalign(alignment, bytes);
    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    count(&n_maps, bytes);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd,
                           offset); /* sets errno as mmap does */
}

#define FROM       50
#define TO         500
#define QUEUED     96
#define BATCH      32
#define N_RECORDS  4096
#define FILE_BYTES (16 + N_RECORDS * 28 * 28)

/* Of one size of block: how many of each other size are in use at once would be a matter of
 * chance. */
static char dir[256];
static struct whole_opts whole = {.size = sizeof whole, .dir = dir, .n = 300, .most = 4000};

static char raw_uri[400], idx_uri[400];
static const uint64_t busy_ns = 20000000;

static uint64_t cpu_ns(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1000u;
}

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%d: %s", rc, mr_last_error());
}

static void next(struct mr_loader *ld, struct mr_stream *stream)
{
    struct mr_batch b = {.size = sizeof b};
    int rc = mr_loader_next(ld, stream, &b);
    must(rc);
    assert_int_equal(rc, 1);
    must(mr_loader_release(ld, &b, stream));
}

/* The simulated device keeps as many entries as were ever queued at once. The loader queues up to
 * 53 with these options, but on a slow machine not yet in the warm-up. One batch that keeps an
 * entry would not show, all that do would. */
static void fill_queue(struct mr_device *device, struct mr_stream *stream)
{
    struct mr_event *event = NULL;
    must(mr_event_create(device, 0, &event));
    must(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns));
    for (int i = 0; i < QUEUED; i++)
        must(mr_event_record(event, stream));
    must(mr_stream_synchronize(stream));
    mr_event_destroy(event);
}

static void check_steady(const char *name, struct mr_loader *ld, struct mr_stream *stream)
{
    /* Times at which all threads have started, and the stream's queue is as long as it can get. */
    for (int i = 0; i < FROM; i++) {
        if (i % 10 == 0) {
            usleep(10000);
            must(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns));
        }
        next(ld, stream);
    }
    n_calls = n_maps = n_bytes = 0;
    uint64_t start = cpu_ns();
    atomic_store(&counting, true);
    for (int i = FROM; i < TO; i++)
        next(ld, stream);
    atomic_store(&counting, false);
    double samples = (double)(TO - FROM) * BATCH;
    print_message(
        "%-28s %4llu allocations, %3llu maps, %6.1f bytes a sample, %6.2f us CPU a sample\n", name,
        (unsigned long long)n_calls, (unsigned long long)n_maps, (double)n_bytes / samples,
        (double)(cpu_ns() - start) / samples / 1000);
    assert_int_equal(n_calls, 0);
    assert_int_equal(n_maps, 0);
}

struct kind {
    const char *name, *dataset, *sampler, *chain, *device;
    struct mr_dataset *ds; /* instead of dataset */
    enum mr_storage_kind storage;
    enum mr_cache_kind cache;
    enum mr_collate collate;
};

static void run(const struct kind *k)
{
    struct mr_dataset *ds = k->ds;
    struct mr_sampler *sampler = NULL;
    struct mr_transform *chain = NULL;
    struct mr_device *device = NULL;
    struct mr_stream *stream = NULL;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    if (k->storage == MR_STORAGE_URING && mr_uring_why_not()) {
        print_message("SKIP %s: %s\n", k->name, mr_uring_why_not());
        mr_dataset_close(ds);
        return;
    }
    if (!ds)
        must(mr_dataset_open(k->dataset, &ds));
    must(mr_sampler_open(k->sampler, mr_dataset_length(ds), 1, &sampler));
    must(mr_transform_create(&chain));
    if (k->chain)
        must(mr_transform_add(chain, k->chain));
    must(mr_device_open(k->device ? k->device : "cpu", &device));
    must(mr_stream_create(device, "consumer", &stream));
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.epochs = 0;
    opts.workers = 2;
    opts.prefetch = 4;
    opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
    opts.storage = k->storage;
    opts.cache = k->cache;
    opts.collate = k->collate;
    must(mr_loader_open(ds, sampler, chain, device, &opts, &ld));
    fill_queue(device, stream);
    check_steady(k->name, ld, stream);
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(device);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
}

static void memory(void **state)
{
    (void)state;
    static float data[1000][256];
    struct mr_array_opts o;
    mr_array_opts_init(&o);
    o.n = 1000;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {256}};
    o.data[0] = data;
    for (int on_sim = 0; on_sim < 2; on_sim++) {
        struct kind k = {.name = on_sim ? "array, shuffled, sim" : "array, shuffled",
                         .sampler = "random"};
        k.device = on_sim ? "sim:h2d=50,latency=1us" : NULL;
        must(mr_dataset_open_array(&o, &k.ds));
        run(&k);
    }
}

static void files(void **state)
{
    (void)state;
    const struct kind kinds[] = {
        {"raw, pread, shuffled", raw_uri, "random", .storage = MR_STORAGE_PREAD},
        {"raw, pread, sequential", raw_uri, "sequential", .storage = MR_STORAGE_PREAD},
        {"raw, uring, shuffled", raw_uri, "random", .storage = MR_STORAGE_URING},
        {"raw, uring, sequential", raw_uri, "sequential", .storage = MR_STORAGE_URING},
        {"raw, uring, shuffled, sim", raw_uri, "random", NULL, "sim", .storage = MR_STORAGE_URING},
        {"raw, pread, shuffled, cache", raw_uri, "random", .storage = MR_STORAGE_PREAD,
         .cache = MR_CACHE_HOST},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        run(&kinds[i]);
}

static void images(void **state)
{
    (void)state;
    const char *chain = "cast(f32),scale(1/255),normalize(0.1307,0.3081)";
    run(&(struct kind){"idx, normalised", idx_uri, "random", chain});
    run(&(struct kind){"idx, normalised, sim", idx_uri, "random", chain, "sim"});
    run(&(struct kind){"idx, augmented", idx_uri, "random", "pad(2),random_crop(28,28),hflip"});
}

static void varying(void **state)
{
    (void)state;
    const char *uri = "synthetic:n=3000,shape=64x4,dtype=f32,classes=10,min_length=5";
    run(&(struct kind){"synthetic, padded", uri, "random", .collate = MR_COLLATE_PAD});
    run(&(struct kind){"synthetic, ragged, sim", uri, "random", NULL, "sim",
                       .collate = MR_COLLATE_RAGGED});
    run(&(struct kind){"synthetic, delay", "synthetic:n=3000,shape=64,delay=200us", "random"});
}

static void whole_files(void **state)
{
    (void)state;
    const struct kind kinds[] = {
        {"whole files, pread, shuffled", .storage = MR_STORAGE_PREAD},
        {"whole files, uring, shuffled", .storage = MR_STORAGE_URING},
        {"whole files, pread, cache", .storage = MR_STORAGE_PREAD, .cache = MR_CACHE_HOST},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct kind k = kinds[i];
        k.sampler = "random";
        must(mr_dataset_make(&whole_ops, &whole, &k.ds));
        run(&k);
    }
}

static int write_files(void **state)
{
    (void)state;
    static unsigned char bytes[FILE_BYTES] = {0, 0,  8, 3, 0, 0, N_RECORDS >> 8, 0, 0, 0,
                                              0, 28, 0, 0, 0, 28};
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/millrace-steady-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    char path[300];
    snprintf(path, sizeof path, "%s/images-idx3-ubyte", dir);
    for (size_t i = 16; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 5);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, sizeof bytes, f) != sizeof bytes || fclose(f))
        return -1;
    if (whole_write(&whole))
        return -1;
    snprintf(idx_uri, sizeof idx_uri, "idx:%s", path);
    snprintf(raw_uri, sizeof raw_uri, "raw:%s,shape=28x28,dtype=u8,skip=16", path);
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    whole_remove(&whole);
    unlink(strchr(idx_uri, ':') + 1);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory), cmocka_unit_test(files),
                                       cmocka_unit_test(whole_files), cmocka_unit_test(images),
                                       cmocka_unit_test(varying)};
    return cmocka_run_group_tests(tests, write_files, drop_files);
}
#endif
