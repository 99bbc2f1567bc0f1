/* Videos by a library that plays NVDEC: a clip has the frames that libavcodec gives; decoders are
 * shared, up to their limit; a call that fails is reported, and the next clip is right. */
#include "run_loader.h"

#include "samples.h"

#if MILLRACE_HAVE_LIBAV
#include "fake_nvcuvid.h"
#include "make_video.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/wait.h>

#define W 64
#define H 48

static struct fake_nvcuvid *fake, *driver; /* libnvcuvid's calls, and libcuda's */

static void make(const char *name, const char *codec, int n, int gop, int b_frames)
{
    struct test_video v = {test_path(name), "matroska", codec, W, H, n, gop, b_frames};
    test_video_write(&v);
}

static const char *uri_of(char *buf, const char *options, bool gpu)
{
    snprintf(buf, 1000, "video:%.500s,labels=none%.300s%s", test_path("clips"), options,
             gpu ? ",decoder=gpu" : "");
    return buf;
}

static int make_files(void **state)
{
    if (test_dir_make(state) != 0)
        return -1;
    mkdir(test_path("clips"), 0777);
    make("clips/0.mkv", "mpeg4", 60, 12, 2);
    make("clips/1.mkv", "mpeg4", 90, 30, 0);
    make("clips/2.mkv", "mpeg4", 5, 5, 0);
    make("clips/3.mkv", "mpeg4", 200, 20, 2);
    return 0;
}

static int drop_files(void **state)
{
    static const char *const names[] = {"clips/0.mkv", "clips/1.mkv", "clips/2.mkv", "clips/3.mkv",
                                        "bad/0.mkv",   "bad/1.mkv",   "bad/2.mkv"};
    for (size_t i = 0; i < MR_COUNT(names); i++)
        unlink(test_path(names[i]));
    rmdir(test_path("clips"));
    rmdir(test_path("bad"));
    return test_dir_drop(state);
}

/* The number that a frame says: two bits a quarter. */
static int number_of(const uint8_t *rgb, int w, int h)
{
    int number = 0;
    for (int q = 0; q < 4; q++) {
        int green = rgb[((h / 4 + q / 2 * (h / 2)) * w + w / 4 + q % 2 * (w / 2)) * 3 + 1];
        number |= ((16 + green * 219 / 255 - 40 + 27) / 55) << 2 * q;
    }
    return number;
}

/* Every clip has the frames that libavcodec's has. */
static void expect_same(const char *options, int w, int h)
{
    char uri[1000];
    struct mr_dataset *host = test_open(uri_of(uri, options, false)),
                      *chip = test_open(uri_of(uri, options, true));
    uint64_t n = mr_dataset_length(host), frames = mr_dataset_field(host, 0)->dim[0];
    assert_int_equal(mr_dataset_length(chip), n);
    assert_true(mr_dataset_fingerprint(chip) != mr_dataset_fingerprint(host));
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *a = test_read(host, i), *b = test_read(chip, i);
        for (uint64_t f = 0; f < frames; f++) {
            uint64_t at = f * (uint64_t)w * (uint64_t)h * 3;
            if (number_of(a + at, w, h) != number_of(b + at, w, h))
                fail_msg("%s: sample %llu, frame %llu: %d, not %d", options, (unsigned long long)i,
                         (unsigned long long)f, number_of(b + at, w, h), number_of(a + at, w, h));
        }
        free(a);
        free(b);
    }
    mr_dataset_close(host);
    mr_dataset_close(chip);
}

static void clips_are_the_frames(void **state)
{
    (void)state;
    expect_same(",frames=4,stride=5,clips=3,at=uniform", W, H);
    expect_same(",frames=7,stride=1,clips=9,at=start", W, H);
    expect_same(",frames=3,stride=61,clips=2,at=start", W, H); /* key frames between them */
    expect_same(",frames=1,clips=40,at=uniform", W, H);
    expect_same(",frames=5,stride=3,clips=2,at=uniform,size=31x41", 41, 31);
    expect_same(",frames=5,stride=3,clips=2,at=uniform,size=48x64", W, H); /* nothing to scale */
    expect_same(",frames=5,stride=3,clips=2,at=uniform,size=31x41,exact", 41, 31);
    expect_same(",frames=5,stride=3,clips=2,at=uniform,size=30x60,crop", 60, 30);
    assert_true(atomic_load(&fake->decoders) <= 8 && atomic_load(&fake->made) >= 2);
}

/* More threads than decoders, and two sizes of the pictures. */
static void workers_wait_for_a_decoder(void **state)
{
    (void)state;
    char whole[1000], cut[1000], uri[2100];
    uri_of(whole, ",frames=2,stride=7,clips=12,size=32x32", true);
    uri_of(cut, ",frames=2,stride=7,clips=12,size=32x32,exact", true);
    snprintf(uri, sizeof uri, "mix:0.5*[%s],0.5*[%s]", whole, cut);
    struct run_config c = run_config(uri);
    c.opts.batch_size = 4;
    c.opts.epochs = 3;
    c.opts.workers = 1;
    struct run one = run_loader(&c);
    c.opts.workers = 24;
    struct run many = run_loader(&c);
    assert_same_rows(&one, &many);
    run_free(&one);
    run_free(&many);
    c.stop_after = 1; /* closed while others wait */
    struct run few = run_loader(&c);
    run_free(&few);
    assert_true(atomic_load(&fake->most) <= 8);
}

/* Any call of a clip fails once: the clip is an error, and the next one right. Returns how many
 * calls made it one. */
static uint64_t fail_in_turn(struct fake_nvcuvid *of, struct mr_dataset *ds)
{
    uint64_t bytes = 3 * W * H * 3, failed = 0;
    uint8_t *right = test_read(ds, 0), *row = malloc(bytes);
    for (uint64_t at = 1;; at++) {
        uint64_t calls = atomic_load(&of->calls);
        atomic_store(&of->fail_at, calls + at);
        int rc = mr_dataset_read(ds, 0, (void *[]){row}, NULL);
        bool reached = atomic_load(&of->calls) >= calls + at;
        atomic_store(&of->fail_at, 0);
        if (!reached)
            break;
        failed += rc < 0;
        if (rc < 0)
            assert_non_null(strstr(mr_last_error(), "CUDA_ERROR_PLAYED"));
        test_works(mr_dataset_read(ds, 0, (void *[]){row}, NULL));
        assert_memory_equal(row, right, bytes);
    }
    free(right);
    free(row);
    return failed;
}

static void failures_are_told(void **state)
{
    (void)state;
    char uri[1000];
    struct mr_dataset *ds = test_open(uri_of(uri, ",frames=3,stride=4,clips=1,at=start", true));
    assert_true(fail_in_turn(fake, ds) > 10);
    assert_int_equal(fail_in_turn(driver, ds), 1 + 3 * 3); /* of a frame: two copies, waiting */
    mr_dataset_close(ds);
}

/* In a child, since a process looks for a GPU once. Exits with 0 if the call was not reached. */
static void start_and_fail(const char *uri, uint64_t at)
{
    struct mr_dataset *ds;
    uint8_t row[3 * W * H * 3];
    int rc, tries = 0;
    atomic_store(&driver->fail_at, at);
    do {
        rc = mr_dataset_open(uri, &ds);
        if (rc == 0) {
            rc = mr_dataset_read(ds, 0, (void *[]){row}, NULL);
            mr_dataset_close(ds);
        }
        if (rc < 0 && !strstr(mr_last_error(), "CUDA_ERROR_PLAYED"))
            _exit(100);
        tries++;
    } while (rc < 0 && rc != MR_ENODEVICE && tries < 3);
    bool reached = atomic_load(&driver->calls) >= at;
    _exit(rc < 0 && rc != MR_ENODEVICE ? 101 : !reached ? 0 : rc < 0 ? 1 : tries);
}

/* The driver's calls fail in turn from the first one on: there is no GPU, or the next clip is
 * right. */
static void a_start_may_fail(void **state)
{
    (void)state;
    char uri[1000];
    int none = 0, again = 0, status = 1;
    uri_of(uri, ",frames=3,stride=4,clips=1,at=start", true);
    for (uint64_t at = 1; status != 0; at++) {
        pid_t child = fork();
        assert_true(child >= 0 && at < 40);
        if (child == 0)
            start_and_fail(uri, at);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 3);
        none += at <= 2 && WEXITSTATUS(status) == 1;
        again += WEXITSTATUS(status) == 2;
    }
    assert_int_equal(none, 2);   /* cuInit(), cuDeviceGetCount() */
    assert_int_equal(again, 13); /* device, context, pushing it, stream; of 3 frames */
}

/* Without libnvcuvid: the error names the file and what to do. */
static int expect_no_cuvid(const char *uri)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(uri, &ds);
    const char *text = rc < 0 ? mr_last_error() : "";
    fprintf(stderr, "%s\n", text);
    return rc == MR_ENODEVICE && strstr(text, "decoder=gpu: not usable here: ") &&
                   strstr(text, "libnvcuvid.so.1") && strstr(text, "compute,utility,video")
               ? 0
               : 1;
}

static void libnvcuvid_may_be_missing(void **state)
{
    (void)state;
    char uri[1000], command[2600], self[600];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    mkdir(test_path("empty"), 0777);
    test_write("empty/libnvcuvid.so.1", "no library", 10); /* else this machine's is found */
    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' '%s' --no-cuvid '%s'",
             test_path("empty"), self, uri_of(uri, ",frames=2", true));
    assert_int_equal(system(command), 0);
    unlink(test_path("empty/libnvcuvid.so.1"));
    rmdir(test_path("empty"));
}

/* A codec that the chip lacks, and no video, are bad samples. */
static void what_it_lacks_is_a_bad_sample(void **state)
{
    (void)state;
    char uri[1000];
    mkdir(test_path("bad"), 0777);
    make("bad/0.mkv", "mpeg2video", 20, 5, 0);
    make("bad/1.mkv", "ffv1", 20, 1, 0);
    make("bad/2.mkv", "mpeg4", 20, 5, 0);
    snprintf(uri, sizeof uri, "video:%s,labels=none,frames=2,decoder=gpu", test_path("bad"));
    struct mr_dataset *ds = test_open(uri);
    uint8_t row[2 * W * H * 3];
    test_fails(mr_dataset_read(ds, 0, (void *[]){row}, NULL), MR_EUNSUPPORTED,
               "0.mkv: this GPU does not decode mpeg2video with 8 bit");
    test_fails(mr_dataset_read(ds, 1, (void *[]){row}, NULL), MR_EUNSUPPORTED,
               "1.mkv: no GPU decodes ffv1: try decoder=cpu");
    test_works(mr_dataset_read(ds, 2, (void *[]){row}, NULL));
    mr_dataset_close(ds);
    snprintf(uri, sizeof uri, "video:%s,labels=none,frames=2,decoder=gpu,gpu=1", test_path("bad"));
    test_fails(test_open_fails(uri), MR_ENODEVICE, "gpu=1: expected 0..0");
    struct mr_video_opts opts;
    mr_video_opts_init(&opts);
    opts.path = test_path("bad");
    opts.decoder = MR_VIDEO_GPU;
    opts.gpu = UINT32_MAX;
    test_fails(mr_dataset_open_video(&opts, &ds), MR_EOPTION, "gpu=4294967295: expected");
}

static void other_processes_are_refused(void **state)
{
    (void)state;
    char uri[1000];
    struct mr_loader *ld;
    struct mr_loader_opts opts;
    struct mr_dataset *ds = test_open(uri_of(uri, ",frames=2", true));
    mr_loader_opts_init(&opts);
    opts.sandbox = 1;
    test_fails(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld), MR_EOPTION,
               "sandbox: NVDEC decodes in this process: expected decoder=cpu");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint8_t row[2 * W * H * 3];
        int rc = mr_dataset_read(ds, 0, (void *[]){row}, NULL);
        struct mr_dataset *own;
        bool told = rc == MR_EDEVICE && strstr(mr_last_error(), "before this process was forked");
        _exit(told && mr_dataset_open(uri, &own) == MR_EDEVICE ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    mr_dataset_close(ds);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_may_fail), /* before a GPU is used here */
        cmocka_unit_test(clips_are_the_frames),
        cmocka_unit_test(failures_are_told),
        cmocka_unit_test(libnvcuvid_may_be_missing),
        cmocka_unit_test(what_it_lacks_is_a_bad_sample),
        cmocka_unit_test(other_processes_are_refused),
        cmocka_unit_test(workers_wait_for_a_decoder),
    };
    const char *given = getenv("MILLRACE_VIDEO_MODULE");
    /* found by their sonames from here on */
    void *cuda = dlopen(FAKE_NVDEC_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (argc == 3 && strcmp(argv[1], "--no-cuvid") == 0)
        return expect_no_cuvid(argv[2]);
    void *cuvid = dlopen(FAKE_NVCUVID, RTLD_NOW | RTLD_LOCAL);
    fake = cuvid ? dlsym(cuvid, "fake_nvcuvid") : NULL;
    driver = cuda ? dlsym(cuda, "fake_nvcuvid") : NULL;
    if (!driver || !fake || !given || !given[0]) {
        printf("SKIP: run it by ctest, which sets MILLRACE_VIDEO_MODULE\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
#else
int main(void)
{
    print_message("SKIP test_nvdec: this build has no libav\n");
    return 77;
}
#endif
