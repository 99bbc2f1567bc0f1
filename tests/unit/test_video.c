/* White-box. The video module: a frame is the same however it is reached, whatever the file; what
 * is broken is named. */
#include "codec/video.h"
#include "samples.h"

#if MILLRACE_HAVE_LIBAV
#include "make_video.h"

static const struct mr_video_module *module;

struct file {
    FILE *f;
};

static int read_file(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    FILE *f = ((struct file *)user)->f;
    return fseek(f, (long)offset, SEEK_SET) == 0 && fread(buf, 1, bytes, f) == bytes
               ? 0
               : mr_error_set(-5, "read");
}

static int open_video(struct file *file, const char *path, struct mr_video **out)
{
    file->f = fopen(path, "rb");
    assert_non_null(file->f);
    fseek(file->f, 0, SEEK_END);
    struct mr_video_source source = {path, (uint64_t)ftell(file->f), read_file, file};
    return module->open(&source, 100000000, MR_VIDEO_NO_GPU, out);
}

/* The brightness in the middle of a quarter of an RGB frame. */
static int luma_at(const uint8_t *rgb, int w, int h, int q)
{
    const uint8_t *p = rgb + ((h / 4 + q / 2 * (h / 2)) * w + w / 4 + q % 2 * (w / 2)) * 3;
    return p[1];
}

/* full: JPEG's range of brightness, not television's. */
static void expect_number(const uint8_t *rgb, int w, int h, int i, bool full)
{
    for (int q = 0; q < 4; q++) {
        int luma = test_video_luma(i, q), want = full ? luma : (luma - 16) * 255 / 219;
        assert_in_range(luma_at(rgb, w, h, q) + 1000, want + 1000 - 12, want + 1000 + 12);
    }
}

static void frames_are_numbered(void **state)
{
    (void)state;
    static const struct test_video kinds[] = {
        {NULL, "matroska", "mpeg4", 64, 48, 90, 12, 2},
        {NULL, "avi", "mpeg4", 64, 48, 70, 10, 0},
        {NULL, "mp4", "mpeg4", 64, 48, 50, 7, 2},
        {NULL, "matroska", "ffv1", 32, 32, 40, 1, 0},
        {NULL, "mov", "mjpeg", 48, 32, 30, 1, 0},
        {NULL, "avi", "mpeg2video", 64, 64, 60, 15, 2},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct test_video v = kinds[k];
        struct file file;
        struct mr_video *video;
        struct mr_video_index *index;
        struct mr_video_info info;
        v.path = test_path("made.video");
        test_video_write(&v);
        test_works(open_video(&file, v.path, &video));
        module->info(video, &info);
        assert_int_equal(info.width, v.width);
        assert_int_equal(info.height, v.height);
        assert_true(info.fps > 24.9 && info.fps < 25.1);
        test_works(module->make_index(video, &index));
        assert_int_equal(index->n, v.n);
        uint8_t *rgb = malloc((size_t)v.width * (size_t)v.height * 3);
        struct mr_video_size size = {0};
        for (uint32_t r = 0; r < 60; r++) {
            uint64_t number = test_random(r + (uint32_t)k * 100) % index->n;
            test_works(module->frames(video, index, &number, 1, &size, rgb));
            expect_number(rgb, v.width, v.height, (int)number, strcmp(v.codec, "mjpeg") == 0);
        }
        free(rgb);
        free(index);
        module->close(video);
        fclose(file.f);
    }
}

/* Files that others made: every frame by jumping about is the frame that going straight through
 * gives. */
static void jumps_equal_straight(void **state)
{
    (void)state;
    static const char *const names[] = {
        "torchvision/v_SoccerJuggling_g23_c01.avi",
        "torchvision/RATRACE_wave_f_nm_np1_fr_goo_37.avi",
        "torchvision/R6llTwEh07w.mp4",
        "torchcodec/nasa_13013.mp4",
        "torchcodec/h264_10bits.mp4",
        "torchcodec/h265_video.mp4",
        "torchcodec/av1_video.mkv",
        "decord/flipping_a_pancake.mkv",
        "decord/video_90.mov",
        "decord/unordered.mov",
    };
    int found = 0;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        char name[200];
        snprintf(name, sizeof name, "video/%s", names[k]);
        const char *path = test_data(name);
        if (!path)
            continue;
        struct file file;
        struct mr_video *video;
        struct mr_video_index *index;
        test_works(open_video(&file, path, &video));
        test_works(module->make_index(video, &index));
        struct mr_video_size size = {32, 24, true};
        const size_t bytes = 32 * 24 * 3;
        uint64_t n = index->n < 120 ? index->n : 120, *number = calloc(n, sizeof *number);
        uint8_t *all = malloc(n * bytes), one[32 * 24 * 3];
        for (uint64_t i = 0; i < n; i++)
            number[i] = i;
        test_works(module->frames(video, index, number, (uint32_t)n, &size, all));
        for (uint32_t r = 0; r < 12; r++) {
            uint64_t i = test_random(r + 7) % n;
            test_works(module->frames(video, index, &i, 1, &size, one));
            if (memcmp(one, all + i * bytes, bytes) != 0)
                fail_msg("%s: frame %llu of %llu differs", names[k], (unsigned long long)i,
                         (unsigned long long)n);
        }
        free(all);
        free(number);
        free(index);
        module->close(video);
        fclose(file.f);
        found++;
    }
    if (!found)
        skip();
}

static void what_is_broken_is_named(void **state)
{
    (void)state;
    struct file file;
    struct mr_video *video;
    const char *path = test_write("text.mp4", "this is no video at all, only text", 34);
    test_fails(open_video(&file, path, &video), MR_EFORMAT, path);
    fclose(file.f);
    struct test_video v = {test_path("whole.mkv"), "matroska", "mpeg4", 64, 48, 60, 12, 0};
    test_video_write(&v);
    struct mr_video_source source = {"huge", 0, read_file, &file};
    file.f = fopen(v.path, "rb");
    fseek(file.f, 0, SEEK_END);
    source.bytes = (uint64_t)ftell(file.f);
    test_fails(module->open(&source, 100, MR_VIDEO_NO_GPU, &video), MR_ELIMIT,
               "huge: frames of 48 x 64 pixels");
    /* Cut anywhere: an error or fewer frames, never a crash. */
    for (uint32_t r = 0; r < 30; r++) {
        struct mr_video_index *index = NULL;
        source.bytes = 1 + test_random(r) % (uint64_t)ftell(file.f);
        fseek(file.f, 0, SEEK_END);
        if (module->open(&source, 100000000, MR_VIDEO_NO_GPU, &video) < 0)
            continue;
        if (module->make_index(video, &index) == 0) {
            uint8_t rgb[16 * 16 * 3];
            struct mr_video_size size = {16, 16, false};
            uint64_t last = index->n - 1;
            int rc = module->frames(video, index, &last, 1, &size, rgb);
            assert_true(rc == 0 || mr_last_error()[0]);
        }
        free(index);
        module->close(video);
    }
    fclose(file.f);
    path = test_data("video/decord/corrupted.mp4");
    if (!path)
        return;
    int rc = open_video(&file, path, &video);
    struct mr_video_index *index = NULL;
    if (rc == 0 && (rc = module->make_index(video, &index)) == 0) {
        uint8_t rgb[16 * 16 * 3];
        struct mr_video_size size = {16, 16, false};
        uint64_t last = index->n - 1;
        rc = module->frames(video, index, &last, 1, &size, rgb);
    }
    test_fails(rc, MR_EFORMAT, "corrupted.mp4");
    free(index);
    module->close(video);
    fclose(file.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_numbered),
        cmocka_unit_test(jumps_equal_straight),
        cmocka_unit_test(what_is_broken_is_named),
    };
    if (mr_video_module(&module) < 0) {
        print_error("%s\n", mr_last_error());
        return 1;
    }
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
#else
int main(void)
{
    print_message("SKIP test_video: this build has no libav\n");
    return 77;
}
#endif
