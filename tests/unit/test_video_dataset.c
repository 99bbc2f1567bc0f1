/* White-box. Clips of videos: which frames, the same whoever decodes them; labels; broken files;
 * the module that is not there. */
#include "run_loader.h"

#include "samples.h"

#if MILLRACE_HAVE_LIBAV
#include "codec/video.h"
#include "make_video.h"

#include <errno.h>
#include <sys/prctl.h>

#define W 64
#define H 48

static void make_folder(const char *name)
{
    assert_true(mkdir(test_path(name), 0777) == 0 || errno == EEXIST);
}

static const char *make(const char *name, int n, int gop, int b_frames)
{
    struct test_video v = {test_path(name), "matroska", "mpeg4", W, H, n, gop, b_frames};
    test_video_write(&v);
    return v.path;
}

/* Seven videos in two classes, one of them shorter than a clip, one of another size; in any case
 * one that is no video. */
static const char *made(char *buf, size_t cap, const char *options)
{
    static bool done;
    if (!done) {
        make_folder("clips");
        make_folder("clips/a");
        make_folder("clips/b");
        make("clips/a/0.mkv", 60, 12, 2);
        make("clips/a/1.mkv", 90, 30, 0);
        make("clips/a/2.mkv", 5, 5, 0);
        make("clips/b/3.mkv", 40, 1, 0);
        make("clips/b/4.mkv", 75, 25, 2);
        struct test_video v = {test_path("clips/b/5.avi"), "avi", "mpeg4", 96, 96, 50, 10, 0};
        test_video_write(&v);
        done = true;
    }
    snprintf(buf, cap, "video:%s%s", test_path("clips"), options);
    return buf;
}

static int drop_all(void **state)
{
    static const char *const names[] = {
        "clips/a/0.mkv", "clips/a/1.mkv", "clips/a/2.mkv", "clips/b/3.mkv", "clips/b/4.mkv",
        "clips/b/5.avi", "bad/0.mkv",     "bad/1.mp4",     "bad/2.mkv",     "bad/3.mkv"};
    static const char *const folders[] = {"clips/a", "clips/b", "clips", "bad"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(test_path(names[i]));
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        rmdir(test_path(folders[i]));
    return test_dir_drop(state);
}

/* The number that a made frame says: two bits a quarter. */
static int number_of(const uint8_t *rgb, int w, int h)
{
    int number = 0;
    for (int q = 0; q < 4; q++) {
        int green = rgb[((h / 4 + q / 2 * (h / 2)) * w + w / 4 + q % 2 * (w / 2)) * 3 + 1];
        int luma = 16 + green * 219 / 255, best = 0;
        for (int v = 1; v < 4; v++)
            if (abs(test_video_luma(v, 0) - luma) < abs(test_video_luma(best, 0) - luma))
                best = v;
        number |= best << 2 * q;
    }
    return number;
}

static void expect_clip(const struct mr_dataset *ds, uint64_t index, int n, const int *want,
                        int64_t label)
{
    uint8_t *got = test_read(ds, index);
    int64_t is;
    for (int i = 0; i < n; i++)
        assert_int_equal(number_of(got + (size_t)i * H * W * 3, W, H), want[i]);
    if (label >= 0) {
        memcpy(&is, got + (size_t)n * H * W * 3, 8);
        assert_int_equal(is, label);
    }
    free(got);
}

static void clips_are_the_frames(void **state)
{
    (void)state;
    char uri[900];
    struct mr_dataset *ds =
        test_open(made(uri, sizeof uri, ",frames=4,stride=5,clips=3,at=uniform"));
    assert_string_equal(mr_dataset_format(ds), "video");
    assert_int_equal(mr_dataset_length(ds), 18);
    test_field_is(ds, 0, "video u8[4,48,64,3]");
    test_field_is(ds, 1, "label i64");
    assert_int_equal(mr_dataset_classes(ds), 2);
    assert_string_equal(mr_dataset_class_name(ds, 1), "b");
    assert_int_equal(mr_dataset_class_samples(ds, 1), 9);
    expect_clip(ds, 0, 4, (int[]){0, 5, 10, 15}, 0);
    expect_clip(ds, 1, 4, (int[]){22, 27, 32, 37}, 0);
    expect_clip(ds, 2, 4, (int[]){44, 49, 54, 59}, 0);
    expect_clip(ds, 6, 4, (int[]){0, 4, 4, 4}, 0); /* five frames */
    expect_clip(ds, 11, 4, (int[]){24, 29, 34, 39}, 1);
    expect_clip(ds, 17, 4, (int[]){34, 39, 44, 49}, 1); /* of another size: scaled */
    mr_dataset_close(ds);
    ds = test_open(made(uri, sizeof uri, ",frames=3,stride=2,clips=2,at=start,labels=none"));
    assert_int_equal(mr_dataset_fields(ds), 1);
    expect_clip(ds, 0, 3, (int[]){0, 2, 4}, -1);
    expect_clip(ds, 1, 3, (int[]){6, 8, 10}, -1);
    expect_clip(ds, 5, 3, (int[]){4, 4, 4}, -1);
    mr_dataset_close(ds);
    ds = test_open(made(uri, sizeof uri, ",frames=1,at=uniform,size=20x30,crop"));
    test_field_is(ds, 0, "video u8[1,20,30,3]");
    mr_dataset_close(ds);
}

static void paths_are_told(void **state)
{
    (void)state;
    char uri[900];
    made(uri, sizeof uri, "");
    struct mr_dataset *ds = test_open(test_path("clips"));
    assert_string_equal(mr_dataset_format(ds), "video");
    mr_dataset_close(ds);
    ds = test_open(test_path("clips/a/1.mkv"));
    assert_string_equal(mr_dataset_format(ds), "video");
    assert_int_equal(mr_dataset_length(ds), 1);
    assert_int_equal(mr_dataset_fields(ds), 1);
    mr_dataset_close(ds);
    test_fails(test_open_fails(made(uri, sizeof uri, ",size=3")), MR_EOPTION, "HEIGHTxWIDTH");
    test_fails(test_open_fails(made(uri, sizeof uri, ",frames=0")), MR_EOPTION, "frames");
    test_fails(test_open_fails(made(uri, sizeof uri, "/none")), -ENOENT, "clips/none");
    test_fails(test_open_fails(made(uri, sizeof uri, "/a/1.mkv,labels=folders")), MR_EOPTION,
               "labels=folders");
    test_fails(test_open_fails(made(uri, sizeof uri, "/a,max-pixels=100")), MR_ELIMIT,
               "at most 100 pixels");
}

/* Videos beside the folders of classes are no sample, and that is said. */
static void what_is_left_out_is_counted(void **state)
{
    (void)state;
    char uri[900];
    made(uri, sizeof uri, "");
    struct mr_dataset *ds = test_open(uri);
    assert_null(strstr(mr_dataset_text(ds), "left out"));
    mr_dataset_close(ds);
    const char *beside = test_write("clips/beside.mp4", "", 0);
    ds = test_open(uri);
    assert_int_equal(mr_dataset_length(ds), 6);
    assert_non_null(
        strstr(mr_dataset_text(ds), "6 videos, 2 classes (left out: 1 beside the classes)"));
    mr_dataset_close(ds);
    unlink(beside);
}

static struct run_config config(const char *uri)
{
    struct run_config c = run_config(uri);
    c.sampler = "random";
    c.opts.batch_size = 3;
    c.opts.epochs = 3;
    c.opts.workers = 1;
    c.opts.seed = 7;
    return c;
}

static void clips_are_the_same_for_any_workers(void **state)
{
    (void)state;
    static const char *const options[] = {",frames=5,stride=3,clips=2",
                                          ",frames=4,stride=7,clips=4,at=uniform"};
    char uri[900];
    for (size_t k = 0; k < 2; k++) {
        struct run_config c = config(made(uri, sizeof uri, options[k]));
        struct run one = run_loader(&c);
        assert_int_equal(one.rc, 0);
        assert_true(one.n >= 36);
        for (uint32_t workers = 2; workers <= 4; workers++) {
            c.opts.workers = workers;
            struct run many = run_loader(&c);
            assert_int_equal(many.rc, 0);
            assert_same_rows(&one, &many);
            run_free(&many);
        }
        run_free(&one);
    }
}

static uint64_t hash_of(const struct run *run, uint64_t epoch, uint64_t index)
{
    for (uint64_t i = 0; i < run->n; i++)
        if (run->row[i].epoch == epoch && run->row[i].index == index)
            return run->row[i].hash;
    fail_msg("sample %llu is not there", (unsigned long long)index);
    return 0;
}

static void random_places_are_the_seeds(void **state)
{
    (void)state;
    char uri[900];
    struct run_config c = config(made(uri, sizeof uri, ",frames=2,stride=2,clips=3"));
    struct run a = run_loader(&c), again = run_loader(&c);
    assert_same_rows(&a, &again);
    c.opts.seed = 8;
    struct run other = run_loader(&c);
    int epochs_differ = 0, seeds_differ = 0, clips_differ = 0;
    for (uint64_t i = 0; i < 18; i++) {
        epochs_differ += hash_of(&a, 0, i) != hash_of(&a, 1, i);
        seeds_differ += hash_of(&a, 0, i) != hash_of(&other, 0, i);
        clips_differ += hash_of(&a, 0, i) != hash_of(&a, 0, i / 3 * 3 + (i + 1) % 3);
    }
    assert_true(epochs_differ >= 12); /* of 18, 3 of them with three places only */
    assert_true(seeds_differ >= 12);
    assert_true(clips_differ >= 12);
    run_free(&a);
    run_free(&again);
    run_free(&other);
    /* A mixture that gives a clip twice in an epoch draws twice. */
    char mix[2000];
    snprintf(mix, sizeof mix, "mix:1*[%s],1*[%s],length=72", uri, uri);
    c.dataset = mix;
    c.opts.epochs = 1;
    a = run_loader(&c);
    assert_int_equal(a.rc, 0);
    epochs_differ = 0;
    for (uint64_t i = 0; i < 36; i++)
        epochs_differ += hash_of(&a, 0, i) != hash_of(&a, 0, i + 36);
    assert_true(epochs_differ >= 24);
    c.opts.workers = 3;
    other = run_loader(&c);
    assert_same_rows(&a, &other);
    run_free(&a);
    run_free(&other);
}

/* A file that is none, one cut off in the middle: bad samples, and the same ones for any
 * workers. */
static void broken_files_are_bad_samples(void **state)
{
    (void)state;
    char uri[900];
    make_folder("bad");
    make("bad/0.mkv", 30, 10, 0);
    make("bad/2.mkv", 60, 10, 0);
    make("bad/3.mkv", 60, 10, 0);
    test_write("bad/1.mp4", "no video at all", 15);
    assert_int_equal(truncate(test_path("bad/2.mkv"), 300), 0);
    snprintf(uri, sizeof uri, "video:%s,frames=2,clips=3,at=uniform", test_path("bad"));
    struct run_config c = config(uri);
    c.opts.epochs = 1;
    struct run run = run_loader(&c);
    assert_true(run.rc < 0);
    assert_non_null(strstr(run.error, "bad/"));
    run_free(&run);
    c.opts.bad = MR_BAD_SKIP;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, 0);
    assert_int_equal(one.n, 6);
    assert_int_equal(one.stats.bad_samples, 6);
    c.opts.workers = 3;
    struct run many = run_loader(&c);
    assert_same_rows(&one, &many);
    run_free(&one);
    run_free(&many);
}

/* libav runs in processes that can open no file: each asks for the bytes that it wants. */
static void clips_are_the_same_in_a_sandbox(void **state)
{
    (void)state;
    if (prctl(PR_GET_SECCOMP) < 0) {
        print_message("SKIP clips_are_the_same_in_a_sandbox: no system call filters here\n");
        skip();
    }
    char uri[900], bad[900], mix[2000];
    made(uri, sizeof uri, ",frames=2,stride=2,clips=3");
    make_folder("bad");
    make("bad/0.mkv", 30, 10, 0);
    make("bad/2.mkv", 60, 10, 0);
    test_write("bad/1.mp4", "no video at all", 15);
    assert_int_equal(truncate(test_path("bad/2.mkv"), 300), 0);
    snprintf(bad, sizeof bad, "video:%s,frames=2,clips=3,at=uniform", test_path("bad"));
    snprintf(mix, sizeof mix, "mix:1*[%s],1*[%s],length=72", uri, uri);
    const char *const sets[] = {uri, bad, mix};
    for (int i = 0; i < 3; i++) {
        struct run_config c = config(sets[i]);
        c.opts.bad = MR_BAD_SKIP;
        struct run want = run_loader(&c);
        assert_int_equal(want.rc, 0);
        assert_true(want.n > 0);
        for (c.opts.workers = 1; c.opts.workers <= 3; c.opts.workers += 2) {
            c.opts.sandbox = 1;
            struct run got = run_loader(&c);
            assert_int_equal(got.rc, 0);
            assert_same_rows(&want, &got);
            assert_int_equal(got.stats.bad_samples, want.stats.bad_samples);
            run_free(&got);
        }
        run_free(&want);
    }
}

/* The library that scales may write past what it is asked for: not past our rows. */
static void nothing_is_written_behind_a_clip(void **state)
{
    (void)state;
    char uri[900], options[80];
    for (int r = 0; r < 60; r++) {
        int h = 1 + (int)(test_random((uint32_t)r) % 70),
            w = r < 40 ? 9 + r : 1 + (int)(test_random((uint32_t)r + 99) % 150);
        snprintf(options, sizeof options, ",frames=1,labels=none,size=%dx%d%s", h, w,
                 r % 2 ? ",crop" : "");
        struct mr_dataset *ds = test_open(made(uri, sizeof uri, options));
        size_t bytes = (size_t)h * (size_t)w * 3;
        uint8_t *room = malloc(bytes + 64);
        for (uint64_t i = 0; i < 6; i += 5) {
            memset(room + bytes, 0xa5, 64);
            test_works(mr_dataset_read(ds, i, (void *[]){room}, NULL));
            for (int k = 0; k < 64; k++)
                assert_int_equal(room[bytes + (size_t)k], 0xa5);
        }
        free(room);
        mr_dataset_close(ds);
    }
}

static void the_module_may_be_missing(void **state)
{
    (void)state;
    char uri[900], command[2000], self[600];
    made(uri, sizeof uri, "");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    snprintf(command, sizeof command,
             "MILLRACE_VIDEO_MODULE=/nowhere/module.so '%s' --missing '%s'", self, uri);
    assert_int_equal(system(command), 0);
}

static int expect_missing(const char *uri)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(uri, &ds);
    return rc == MR_EUNSUPPORTED && strstr(mr_last_error(), "libmillrace-video.so") &&
                   strstr(mr_last_error(), "/nowhere/module.so")
               ? 0
               : 1;
}

/* Without a GPU's decoder the data set does not open, and says what is missing: no clip is decoded
 * by other means than asked for. */
static void a_gpu_has_to_be_there(void **state)
{
    (void)state;
    char uri[900], command[2000], self[600];
    made(uri, sizeof uri, ",decoder=cpu");
    struct mr_dataset *ds = test_open(uri);
    uint64_t plain = mr_dataset_fingerprint(ds);
    mr_dataset_close(ds);
    made(uri, sizeof uri, "");
    ds = test_open(uri);
    assert_int_equal(mr_dataset_fingerprint(ds), plain);
    mr_dataset_close(ds);
    made(uri, sizeof uri, ",decoder=nvdec");
    test_fails(test_open_fails(uri), MR_EOPTION, "decoder");
    made(uri, sizeof uri, ",decoder=gpu,gpu=64");
    test_fails(test_open_fails(uri), MR_EOPTION, "gpu");
    made(uri, sizeof uri, ",decoder=gpu");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    /* a libnvcuvid.so.1 that is none: neither this machine's nor an emulated driver's is found */
    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' '%s' --no-gpu '%s'", test_path("empty"),
             self, uri);
    make_folder("empty");
    test_write("empty/libnvcuvid.so.1", "no library", 10);
    test_write("empty/libcuda.so.1", "no library", 10);
    assert_int_equal(system(command), 0);
    unlink(test_path("empty/libnvcuvid.so.1"));
    unlink(test_path("empty/libcuda.so.1"));
    rmdir(test_path("empty"));
}

static int expect_no_gpu(const char *uri)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(uri, &ds);
    const char *text = rc < 0 ? mr_last_error() : "";
    return rc == MR_ENODEVICE && strstr(text, "decoder=gpu: not usable here: ") &&
                   strstr(text, "libcuda.so.1") && strstr(text, "NVIDIA's driver")
               ? 0
               : 1;
}

/* Of a damaged file it is the same clips that are bad, and the same pixels in the others, in
 * whatever order. */
static void damage_is_the_same_for_any_workers(void **state)
{
    (void)state;
    const char *path = test_data("video/decord/corrupted.mp4");
    if (!path)
        skip();
    char uri[900];
    snprintf(uri, sizeof uri, "video:%s,frames=3,stride=2,clips=24,size=30x40,at=uniform", path);
    struct run_config c = config(uri);
    c.opts.bad = MR_BAD_SKIP;
    c.opts.epochs = 1;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, 0);
    assert_int_equal(one.n + one.stats.bad_samples, 24);
    c.sampler = "sequential";
    struct run straight = run_loader(&c);
    assert_int_equal(one.n, straight.n);
    for (uint64_t i = 0; i < one.n; i++)
        assert_int_equal(one.row[i].hash, hash_of(&straight, 0, one.row[i].index));
    run_free(&one);
    run_free(&straight);
}

static void real_videos(void **state)
{
    (void)state;
    const char *root = test_data("video");
    if (!root)
        skip();
    char uri[900];
    snprintf(uri, sizeof uri, "video:%s,frames=4,size=60x80", root);
    struct run_config c = config(uri);
    c.opts.bad = MR_BAD_SKIP;
    c.opts.epochs = 1;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, 0);
    assert_true(one.n >= 15);
    print_message("%llu clips, %llu bad\n", (unsigned long long)one.n,
                  (unsigned long long)one.stats.bad_samples);
    c.opts.workers = 3;
    struct run many = run_loader(&c);
    assert_same_rows(&one, &many);
    assert_int_equal(one.stats.bad_samples, many.stats.bad_samples);
    run_free(&one);
    run_free(&many);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clips_are_the_frames),
        cmocka_unit_test(paths_are_told),
        cmocka_unit_test(what_is_left_out_is_counted),
        cmocka_unit_test(clips_are_the_same_for_any_workers),
        cmocka_unit_test(random_places_are_the_seeds),
        cmocka_unit_test(broken_files_are_bad_samples),
        cmocka_unit_test(clips_are_the_same_in_a_sandbox),
        cmocka_unit_test(nothing_is_written_behind_a_clip),
        cmocka_unit_test(the_module_may_be_missing),
        cmocka_unit_test(a_gpu_has_to_be_there),
        cmocka_unit_test(damage_is_the_same_for_any_workers),
        cmocka_unit_test(real_videos),
    };
    if (argc == 3 && strcmp(argv[1], "--missing") == 0)
        return expect_missing(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--no-gpu") == 0)
        return expect_no_gpu(argv[2]);
    const struct mr_video_module *module;
    const char *given = getenv("MILLRACE_VIDEO_MODULE");
    if (!(given && given[0]) &&
        mr_video_module(&module) < 0) { /* run by hand; one that is given has to work */
        printf("SKIP: set MILLRACE_VIDEO_MODULE to build/PRESET/libmillrace-video.so, as ctest "
               "does\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, test_dir_make, drop_all);
}

#else

static void without_the_module(void **state)
{
    (void)state;
    test_fails(test_open_fails(test_write("a.mp4", "", 0)), MR_EUNSUPPORTED,
               "libmillrace-video.so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_the_module)};
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}

#endif
