/* Samples that are read straight into device memory: the same batches, whatever goes wrong on the
 * way. */
#include "npy_write.h"
#include "samples.h"

#include "fake.h"
#include "fake_cufile.h"
#include "run_loader.h"

#include <errno.h>
#include <sys/wait.h>

#define N         701
#define ROW_BYTES 2304
#define SHAPE     "16x48x3"

static fake_cufile_report_fn *cufile_report;
static fake_cufile_fail_fn *cufile_fail;
static fake_cufile_set_fn *cufile_set;
static uint8_t pixels[N * ROW_BYTES];
static const char *const devices[] = {"sim:latency=1us", "cuda"};
static const char *const sets[] = {"raw", "npy", "safetensors"};

static const char *uri_of(const char *set)
{
    static char uri[800];
    if (strcmp(set, "raw") == 0)
        snprintf(uri, sizeof uri, "raw:%s,shape=" SHAPE ",dtype=u8", test_path("x.raw"));
    else if (strcmp(set, "npy") == 0)
        snprintf(uri, sizeof uri, "npy:%s,labels=%s", test_path("x.npy"), test_path("y.npy"));
    else
        snprintf(uri, sizeof uri, "safetensors:%s", test_path("x.safetensors"));
    return uri;
}

static void write_two(const char *name, const void *head, size_t head_bytes, const void *body,
                      size_t body_bytes)
{
    FILE *f = fopen(test_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(head, 1, head_bytes, f), head_bytes);
    assert_int_equal(fwrite(body, 1, body_bytes, f), body_bytes);
    assert_int_equal(fclose(f), 0);
}

static void write_npy(const char *name, const char *descr, const char *shape, const void *body,
                      size_t bytes)
{
    char head[NPY_HEAD_BYTES];
    write_two(name, head, npy_put(head, descr, "False", shape), body, bytes);
}

static void write_sets(void)
{
    int64_t label[N];
    char head[400];
    test_random_bytes(7, pixels, sizeof pixels);
    for (int i = 0; i < N; i++)
        label[i] = i % 10;
    test_write("x.raw", pixels, sizeof pixels);
    write_npy("x.npy", "|u1", "701, 16, 48, 3", pixels, sizeof pixels);
    write_npy("y.npy", "<i8", "701,", label, sizeof label);
    int n =
        snprintf(head + 8, sizeof head - 8,
                 "{\"image\":{\"dtype\":\"U8\",\"shape\":[%d,16,48,3],\"data_offsets\":[%zu,%zu]},"
                 "\"label\":{\"dtype\":\"I64\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
                 N, sizeof label, sizeof label + sizeof pixels, N, sizeof label);
    for (int i = 0; i < 8; i++)
        head[i] = (char)((uint64_t)n >> 8 * i);
    static uint8_t body[sizeof label + sizeof pixels];
    memcpy(body, label, sizeof label);
    memcpy(body + sizeof label, pixels, sizeof pixels);
    write_two("x.safetensors", head, (size_t)n + 8, body, sizeof body);
}

static int make_all(void **state)
{
    if (test_dir_make(state) < 0)
        return -1;
    setenv("MILLRACE_CUFILE", FAKE_CUFILE, 1);
    fake_load();
    void *library = dlopen(FAKE_CUFILE, RTLD_NOW | RTLD_GLOBAL);
    assert_non_null(library);
    *(void **)(void *)&cufile_report = dlsym(library, "fake_cufile_report");
    *(void **)(void *)&cufile_fail = dlsym(library, "fake_cufile_fail");
    *(void **)(void *)&cufile_set = dlsym(library, "fake_cufile_set");
    write_sets();
    return 0;
}

static int nothing_left(void **state)
{
    (void)state;
    struct fake_cufile_report r;
    cufile_report(&r);
    cufile_fail("", 0, 0, 0);
    cufile_set(0, 2);
    if (fake_left())
        fail_msg("%s", fake_left());
    if (r.misuse || r.handles || r.buffers || r.drivers)
        fail_msg("cuFile: misuse %llu (%s); left: %llu handles, %llu buffers, %llu drivers",
                 (unsigned long long)r.misuse, r.first_misuse, (unsigned long long)r.handles,
                 (unsigned long long)r.buffers, (unsigned long long)r.drivers);
    return 0;
}

static struct run_config config(const char *set, const char *device, const char *sampler)
{
    struct run_config c = run_config(uri_of(set));
    c.device = device;
    c.sampler = sampler;
    c.sampler_seed = 5;
    c.opts.batch_size = 48;
    c.opts.workers = 3;
    c.opts.storage = strcmp(device, "cpu") == 0 ? MR_STORAGE_PREAD : MR_STORAGE_GDS;
    return c;
}

static void is_used(const struct run *run, bool used)
{
    if ((strncmp(run->stats.gds, "not used", 8) != 0) != used ||
        (strcmp(run->stats.storage, "gds") == 0) != used)
        fail_msg("storage %s, gds: %s", run->stats.storage, run->stats.gds);
}

/* The same run on the host, by pread. */
static struct run reference(const struct run_config *c)
{
    struct run_config host = *c;
    host.device = "cpu";
    host.opts.storage = MR_STORAGE_PREAD;
    struct run run = run_loader(&host);
    return run;
}

static void compare_with(const struct run *want, const struct run_config *c, bool used)
{
    struct run got = run_loader(c);
    if (got.rc < 0)
        fail_msg("%s", got.error);
    assert_same_rows(want, &got);
    assert_int_equal(want->batches, got.batches);
    is_used(&got, used);
    run_free(&got);
}

static void compare(const struct run_config *c, bool used)
{
    struct run want = reference(c);
    compare_with(&want, c, used);
    run_free(&want);
}

static void same_batches(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * MR_COUNT(sets); i++) {
        struct run_config c = config(sets[i / 2], "sim", i & 1 ? "random" : "sequential");
        c.opts.epochs = 1 + (i == 1);
        struct run want = reference(&c);
        for (unsigned k = 0; k < 4; k++) {
            c.device = devices[k & 1];
            c.opts.prefetch = k & 2 ? 1 : 4;
            c.opts.workers = k == 3 ? 1 : 4;
            c.hold = k >= 2 ? 7 : 0;
            compare_with(&want, &c, true);
        }
        run_free(&want);
    }
}

static void ranks_share(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct run_config c = config(sets[i % 3], devices[i & 1], i & 2 ? "random" : "sequential");
        c.opts.world = 2;
        c.opts.rank = i >> 2 & 1;
        c.opts.remainder = MR_REMAINDER_PAD;
        compare(&c, true);
    }
}

static void resumes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct run_config c = config("npy", devices[i & 1], i & 2 ? "random" : "sequential");
        struct run whole = run_loader(&c);
        c.stop_after = 6;
        struct run front = run_loader(&c);
        c.stop_after = 0;
        c.opts.state = front.state;
        struct run back = run_loader(&c);
        assert_int_equal(front.n + back.n, whole.n);
        for (uint64_t k = 0; k < back.n; k++)
            assert_memory_equal(&back.row[k].hash, &whole.row[front.n + k].hash,
                                sizeof whole.row[0].hash);
        run_free(&whole);
        run_free(&front);
        run_free(&back);
    }
}

/* What the device does itself is no hindrance, what the host does is one. */
static void chains(void **state)
{
    (void)state;
    if (!MILLRACE_HAVE_CUDA_KERNELS) { /* no nvcc: chains stay on the host */
        print_message("SKIP chains: this build has no kernels for the device\n");
        return;
    }
    for (unsigned i = 0; i < 6; i++) {
        struct run_config c = config("npy", devices[i & 1], "random");
        c.chain = i < 4 ? "hflip(0.5),cast(f32),scale(1/255)" : "crop(12,40),cast(f32)";
        c.opts.device_transforms = i & 2 ? MR_DEVICE_TRANSFORMS_OFF : MR_DEVICE_TRANSFORMS_ON;
        compare(&c, i < 2);
    }
}

/* Only labels are copied. */
static void copies_the_rest(void **state)
{
    (void)state;
    for (size_t d = 0; d < MR_COUNT(devices); d++)
        for (size_t s = 0; s < MR_COUNT(sets); s++) {
            struct run_config c = config(sets[s], devices[d], "sequential");
            struct run run = run_loader(&c);
            assert_int_equal(run.rc, 0);
            assert_int_equal(run.stats.copied_bytes, s == 0 ? 0 : N * sizeof(int64_t));
            assert_true(run.stats.read_bytes >= N * ROW_BYTES);
            if (s == 0) /* neighbours are read together */
                assert_true(run.stats.reads < N / 8);
            run_free(&run);
        }
}

/* Batches are looked at late, by work that was only enqueued when they were released: nothing may
 * have overwritten them. */
static void slow_consumer(const char *device, uint32_t prefetch)
{
    struct mr_device *dev = NULL;
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = NULL;
    struct mr_stream *stream = NULL;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    unsigned char *all = NULL;
    uint64_t at = 0, step_ns = 300000, calls[2] = {0}, blocking[2] = {0};
    int rc;
    must(mr_dataset_open(uri_of("raw"), &ds));
    must(mr_device_open(device, &dev));
    must(mr_stream_create(dev, "consumer", &stream));
    must(mr_memory_acquire(dev, MR_PINNED, sizeof pixels, (void **)&all));
    mr_loader_opts_init(&opts);
    opts.batch_size = 16;
    opts.workers = 3;
    opts.prefetch = prefetch;
    opts.storage = MR_STORAGE_GDS;
    must(mr_loader_open(ds, NULL, NULL, dev, &opts, &ld));
    fake_thread(&calls[0], &blocking[0]);
    while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
        assert_null(b.field[0].host);
        must(mr_launch(stream, "busy", &step_ns, sizeof step_ns));
        must(mr_copy_async(stream, all + at, MR_PINNED, b.field[0].data, MR_DEVICE,
                           b.field[0].bytes));
        at += b.field[0].bytes;
        must(mr_loader_release(ld, &b, stream));
    }
    fake_thread(&calls[1], &blocking[1]);
    assert_int_equal(rc, 0);
    assert_int_equal(blocking[0], blocking[1]); /* the consumer's thread waits for nothing */
    must(mr_stream_synchronize(stream));
    assert_int_equal(at, sizeof pixels);
    assert_memory_equal(all, pixels, sizeof pixels);
    mr_loader_close(ld);
    mr_memory_release(dev, MR_PINNED, all, NULL);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_dataset_close(ds);
}

static void nothing_is_overwritten(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        slow_consumer(devices[i & 1], i & 2 ? 1 : 3);
}

/* Rows past the end of a file that shrank are bad ones, by the policy, as they are when the host
 * reads them. */
static void file_that_shrank(void **state)
{
    (void)state;
    static const enum mr_bad_policy policies[] = {MR_BAD_FAIL, MR_BAD_SKIP, MR_BAD_REPLACE};
    for (unsigned i = 0; i < 6; i++) {
        test_write("short.raw", pixels, sizeof pixels);
        struct run_config c =
            config("raw", devices[i & 1], (i ^ i >> 1) & 1 ? "random" : "sequential");
        char uri[800];
        snprintf(uri, sizeof uri, "raw:%s,shape=" SHAPE ",dtype=u8", test_path("short.raw"));
        must(mr_dataset_open(uri, &c.ds));
        assert_int_equal(truncate(test_path("short.raw"), 650 * ROW_BYTES + 100), 0);
        c.opts.bad = policies[i / 2];
        c.opts.workers = 1 + i % 4;
        struct run want = reference(&c), got = run_loader(&c);
        assert_int_equal(want.rc, got.rc);
        assert_int_equal(got.rc, c.opts.bad == MR_BAD_FAIL ? MR_ETRUNCATED : 0);
        assert_string_equal(want.error, got.error);
        assert_same_rows(&want, &got);
        assert_int_equal(want.stats.bad_samples, got.stats.bad_samples);
        assert_int_equal(got.stats.bad_samples, c.opts.bad == MR_BAD_FAIL ? 0 : N - 650);
        is_used(&got, true);
        run_free(&want);
        run_free(&got);
        mr_dataset_close(c.ds);
    }
}

static void says(const struct run *run, const char *text)
{
    if (!strstr(run->stats.gds, text))
        fail_msg("\"%s\" is not in \"%s\"", text, run->stats.gds);
}

/* cuFile that cannot be had: the usual way, and one line that says why. */
static void falls_back(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int code;
        const char *text;
    } faults[] = {
        {"cuFileDriverOpen", 5001, "CU_FILE_DRIVER_NOT_INITIALIZED"},
        {"cuFileDriverOpen", 22, "Invalid argument"},
        {"cuFileHandleRegister", 5008, "CU_FILE_IO_NOT_SUPPORTED"},
    };
    for (size_t i = 0; i < MR_COUNT(faults); i++) {
        struct run_config c = config("safetensors", "cuda", "random");
        struct run want = reference(&c);
        cufile_fail(faults[i].call, 1, 1, faults[i].code);
        struct run got = run_loader(&c);
        assert_int_equal(got.rc, 0);
        assert_same_rows(&want, &got);
        is_used(&got, false);
        says(&got, faults[i].call);
        says(&got, faults[i].text);
        run_free(&want);
        run_free(&got);
        nothing_left(state);
    }
}

/* What is asked for besides, or what the data set is, can stand against it. */
static void says_why_not(void **state)
{
    (void)state;
    struct run_config c = config("raw", "cpu", "random");
    c.opts.storage = MR_STORAGE_GDS;
    struct run run = run_loader(&c);
    says(&run, "no memory of its own");
    run_free(&run);
    c = config("raw", "cuda", "random");
    c.opts.cache = MR_CACHE_HOST;
    run = run_loader(&c);
    says(&run, "a cache is wanted");
    run_free(&run);
    c.opts.cache = MR_CACHE_DEVICE; /* gathers by a kernel */
    run = run_loader(&c);
    assert_int_equal(run.rc, MILLRACE_HAVE_CUDA_KERNELS ? 0 : MR_EUNSUPPORTED);
    if (MILLRACE_HAVE_CUDA_KERNELS)
        says(&run, "a cache is wanted");
    run_free(&run);
    c.opts.cache = MR_CACHE_NONE;
    c.dataset = "synthetic:n=100,shape=2000,dtype=u8";
    run = run_loader(&c);
    says(&run, "not plain ranges of files");
    run_free(&run);
    c = config("raw", "cuda", "random");
    c.opts.storage = MR_STORAGE_AUTO;
    run = run_loader(&c);
    assert_string_equal(run.stats.gds, "");
    run_free(&run);
}

static void tells_the_mode(void **state)
{
    (void)state;
    for (unsigned nvfs = 0; nvfs < 3; nvfs += 2) {
        struct run_config c = config("raw", "cuda", "sequential");
        cufile_set(0, nvfs);
        struct run run = run_loader(&c);
        assert_int_equal(strstr(run.stats.gds, "compatibility mode") != NULL, nvfs == 0);
        says(&run, "image: cuFile");
        run_free(&run);
    }
}

/* Reads that bring less than asked for go on; memory that cannot be registered only costs time. */
static void short_reads(void **state)
{
    (void)state;
    struct run_config c = config("npy", "cuda", "sequential");
    cufile_set(1000, 2);
    compare(&c, true);
    cufile_set(0, 2);
    cufile_fail("cuFileBufRegister", 1, 0, 5016);
    struct run want = reference(&c), got = run_loader(&c);
    assert_same_rows(&want, &got);
    says(&got, "CU_FILE_INVALID_MAPPING_SIZE");
    is_used(&got, true);
    run_free(&want);
    run_free(&got);
}

/* An error of a read that several samples share is asked about again for each; one that stays is
 * the sample's. */
static void errors_of_reads(void **state)
{
    (void)state;
    struct run_config c = config("raw", "cuda", "sequential");
    c.opts.bad = MR_BAD_SKIP;
    struct run want = reference(&c);
    cufile_fail("cuFileRead", 5, 0, -EIO);
    struct run got = run_loader(&c);
    assert_int_equal(got.rc, 0);
    assert_same_rows(&want, &got);
    run_free(&got);
    c.opts.workers = 1;
    cufile_fail("cuFileRead", 5, 1, -EIO); /* and its first sample */
    got = run_loader(&c);
    assert_int_equal(got.rc, 0);
    assert_int_equal(got.stats.bad_samples, 1);
    assert_int_equal(got.n, want.n - 1);
    for (uint64_t i = 0, k = 0; i < got.n;
         i++, k++) { /* the rows behind it moved up, bytes and all */
        k += got.row[i].index != want.row[k].index;
        assert_int_equal(got.row[i].index, want.row[k].index);
        assert_int_equal(got.row[i].hash, want.row[k].hash);
    }
    run_free(&got);
    c.opts.bad = MR_BAD_REPLACE;
    cufile_fail("cuFileRead", 5, 1, -EIO);
    got = run_loader(&c);
    assert_int_equal(got.rc, 0);
    assert_int_equal(got.n, want.n);
    assert_int_equal(got.stats.copied_bytes, ROW_BYTES); /* the replacement */
    run_free(&got);
    cufile_fail("cuFileRead", 3, 0, 5011); /* says nothing about a sample */
    got = run_loader(&c);
    assert_int_equal(got.rc, MR_EDEVICE);
    assert_non_null(strstr(got.error, "cuFileRead"));
    assert_non_null(strstr(got.error, "CU_FILE_CUDA_DRIVER_ERROR"));
    run_free(&got);
    run_free(&want);
}

/* First, and in a child: what is found once is kept. */
static void without_the_library(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("MILLRACE_CUFILE", test_dir, 1); /* a folder without it */
        struct run_config c = config("npy", "cuda", "random");
        struct run run = run_loader(&c);
        bool good = run.rc == 0 && run.n == N && strstr(run.stats.gds, "not used") &&
                    strstr(run.stats.gds, "MILLRACE_CUFILE") &&
                    strstr(run.stats.gds, "libcufile.so.0");
        if (!good)
            fprintf(stderr, "%d, %llu rows: %s\n", run.rc, (unsigned long long)run.n,
                    run.stats.gds);
        run_free(&run);
        _exit(!good);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(without_the_library, nothing_left),
        cmocka_unit_test_teardown(same_batches, nothing_left),
        cmocka_unit_test_teardown(ranks_share, nothing_left),
        cmocka_unit_test_teardown(resumes, nothing_left),
        cmocka_unit_test_teardown(chains, nothing_left),
        cmocka_unit_test_teardown(copies_the_rest, nothing_left),
        cmocka_unit_test_teardown(nothing_is_overwritten, nothing_left),
        cmocka_unit_test_teardown(file_that_shrank, nothing_left),
        cmocka_unit_test_teardown(falls_back, nothing_left),
        cmocka_unit_test_teardown(says_why_not, nothing_left),
        cmocka_unit_test_teardown(tells_the_mode, nothing_left),
        cmocka_unit_test_teardown(short_reads, nothing_left),
        cmocka_unit_test_teardown(errors_of_reads, nothing_left),
    };
    return cmocka_run_group_tests(tests, make_all, test_dir_drop);
}
