/* Pictures that the device decodes, on a driver and an nvJPEG that are not there
 * (tests/support/fake_nvjpeg.c). */
#include "picture_make.h"
#include "pictures.h"
#include "run_loader.h"

#include "fake.h"
#include "fake_nvjpeg.h"
#include <sys/resource.h>
#include <sys/wait.h>

#define N          60
#define N_BASELINE 42 /* of these: not progressive, not CMYK */

static struct fake_nvjpeg *fake;

static void write_jpeg(const char *name, const struct picture_make *make, size_t cut)
{
    struct encoded e = jpeg_make(make);
    test_folders(name);
    test_write(name, e.data, e.bytes - cut);
    free(e.data);
}

/* Pictures of all kinds, those that nvJPEG does not take among them. Widths from 60 on. */
static int make_folders(void **state)
{
    char name[64];
    int rc = test_dir_make(state);
    for (uint32_t i = 0; i < N && rc == 0; i++) {
        int s = 1 + (int)(i % 2), components = i % 10 == 7 ? 1 : i % 10 == 9 ? 4 : 3;
        struct picture_make make = {.width = 60 + i * 5 % 97,
                                    .height = 50 + i * 11 % 83,
                                    .components = components,
                                    .h = {components == 3 ? s : 1, 1, 1, 1},
                                    .v = {components == 3 && i % 4 == 1 ? 2 : 1, 1, 1, 1},
                                    .orientation = (int)(i % 9),
                                    .progressive = i % 5 == 3,
                                    .restart_rows = i % 7 == 1,
                                    .wide_tables = i % 12 == 6};
        snprintf(name, sizeof name, "good/class%u/%03u.jpg", i % 3, i);
        write_jpeg(name, &make, 0);
        snprintf(name, sizeof name, "bad/class%u/%03u.jpg", i % 3, i);
        write_jpeg(name, &make, i % 6 == 2 ? 700 : 0);
    }
    fake_load();
    setenv("MILLRACE_NVJPEG", FAKE_NVJPEG, 1);
    void *library = dlopen(FAKE_NVJPEG, RTLD_NOW);
    fake = library ? dlsym(library, "fake_nvjpeg") : NULL;
    return rc == 0 && fake ? 0 : -1;
}

static const char *const chain = "random_resized_crop(24),hflip,cast(f32),scale(1/"
                                 "255),normalize([0.4,0.5,0.6],[0.2,0.3,0.2]),layout(nchw)";

static const char *folder(const char *name, const char *more)
{
    static char uri[400];
    snprintf(uri, sizeof uri, "folder:%s%s", test_path(name), more);
    return uri;
}

static struct run_config config(const char *uri, const char *device, double share)
{
    struct run_config c = run_config(uri);
    c.device = device;
    c.chain = chain;
    c.sampler = "random";
    c.opts.seed = 5;
    c.opts.epochs = 2;
    c.opts.batch_size = 7;
    c.opts.prefetch = 3;
    c.opts.gpu_decode = share;
    return c;
}

static void check_clean(void)
{
    if (fake_left())
        fail_msg("%s", fake_left());
    assert_int_equal(atomic_load(&fake->alive), 0);
    assert_int_equal(atomic_load(&fake->misuse), 0);
}

/* With decodes at full size on both sides, by one library, the kernel's windows are the host's bit
 * for bit. */
static void test_same_windows(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "random_resized_crop(24),hflip,cast(f32),normalize([0.4,0.5,0.6],[0.2,0.3,0.2]),layout("
        "nchw)",
        "resize(40),center_crop(32),cast(f32)",
        "random_resized_crop(70,filter=bicubic),cast(f16)",
        "random_crop(33,31),cast(f32)",
        "resize(30,90)",
        "center_crop(48),resize(20,20,filter=nearest),hflip(1),cast(f32)",
    };
    uint64_t hardware = fake->by_hardware;
    for (size_t k = 0; k < MR_COUNT(chains); k++) {
        struct run_config c =
            config(folder("good", k % 2 ? ",exact,ignore-orientation" : ",exact"), "cpu", 0);
        c.chain = chains[k];
        struct run cpu = run_loader(&c);
        c.device = "cuda";
        c.opts.gpu_decode = 1;
        c.opts.workers = 1 + k % 3;
        c.opts.streams = 1 + k % 2;
        c.hold = (uint32_t)k * 2;
        struct run gpu = run_loader(&c);
        if (cpu.rc != 0 || gpu.rc != 0)
            fail_msg("%s: %s %s", chains[k], cpu.error, gpu.error);
        for (uint64_t i = 0; i < cpu.n; i++)
            if (cpu.row[i].hash != gpu.row[i].hash)
                fail_msg("%s: row %llu, sample %llu, differs", chains[k], (unsigned long long)i,
                         (unsigned long long)cpu.row[i].index);
        assert_same_rows(&cpu, &gpu);
        assert_true(gpu.stats.gpu_decode == 1 && gpu.stats.gpu_refused == 0);
        assert_int_equal(gpu.stats.gpu_decoded, 2 * N_BASELINE);
        run_free(&cpu);
        run_free(&gpu);
    }
    assert_true(fake->by_hardware > hardware);
    assert_int_equal(fake->by_kernels, 0); /* they slow the chip's decoder down */
    atomic_store(&fake->no_hardware, 1);
    hardware = fake->by_hardware;
    struct run_config c = config(folder("good", ",exact"), "cuda", 1);
    struct run all = run_loader(&c);
    assert_true(all.rc == 0 && all.stats.gpu_decoded == 2 * N * 9 / 10); /* not CMYK */
    assert_int_equal(fake->by_hardware, hardware);
    assert_int_equal(fake->by_kernels, 2 * N * 9 / 10);
    atomic_store(&fake->no_hardware, 0);
    run_free(&all);
    check_clean();
}

/* Which pictures go where does not depend on timing; other shares are other pictures. */
static void test_share(void **state)
{
    (void)state;
    struct run_config c = config(folder("good", ""), "cuda", 0.5);
    struct run first = run_loader(&c);
    assert_int_equal(first.rc, 0);
    assert_true(first.stats.gpu_decoded > N / 2 && first.stats.gpu_decoded < 3 * N / 2);
    for (uint32_t workers = 1; workers <= 4; workers += 3) {
        c.opts.workers = workers;
        c.opts.prefetch = 1 + workers;
        struct run again = run_loader(&c);
        assert_same_rows(&first, &again);
        assert_int_equal(first.stats.gpu_decoded, again.stats.gpu_decoded);
        run_free(&again);
    }
    c.opts.gpu_decode = 0.25;
    struct run fewer = run_loader(&c);
    assert_true(fewer.stats.gpu_decoded < first.stats.gpu_decoded && fewer.stats.gpu_decoded > 0);
    run_free(&fewer);
    c.opts.gpu_decode = 0;
    struct run none = run_loader(&c);
    uint64_t same = 0;
    for (uint64_t i = 0; i < none.n; i++)
        same += none.row[i].hash == first.row[i].hash;
    assert_true(same > N / 2 && same < none.n); /* the others are decoded at another scale */
    assert_int_equal(none.stats.gpu_decoded, 0);
    run_free(&none);
    run_free(&first);
    check_clean();
}

/* What only decoding finds: the host makes these rows, and the policy hears of what it cannot
 * decode either. */
static void test_refused_and_bad(void **state)
{
    (void)state;
    static const enum mr_bad_policy policies[] = {MR_BAD_SKIP, MR_BAD_REPLACE, MR_BAD_FAIL};
    for (uint32_t k = 0; k < 2 * MR_COUNT(policies); k++) {
        struct run_config c =
            config(folder(k < MR_COUNT(policies) ? "bad" : "good", ",exact"), "cpu", 0);
        c.opts.bad = policies[k % MR_COUNT(policies)];
        struct run cpu = run_loader(&c);
        c.device = "cuda";
        c.opts.gpu_decode = 1;
        atomic_store(&fake->refuse_width, 60 + 5 * 5);
        struct run gpu = run_loader(&c);
        atomic_store(&fake->refuse_width, 0);
        assert_int_equal(cpu.rc, gpu.rc);
        assert_string_equal(cpu.error, gpu.error);
        assert_same_rows(&cpu, &gpu);
        assert_int_equal(cpu.stats.bad_samples, gpu.stats.bad_samples);
        if (k >= MR_COUNT(policies))
            assert_true(gpu.stats.gpu_refused > 0 && gpu.rc == 0);
        run_free(&cpu);
        run_free(&gpu);
    }
    assert_true(fake->failed > 0);
    check_clean();
}

/* A batch whose pictures do not fit into the scratch is decoded in parts: a half of 36 MiB holds 15
 * of these, and the third part is put where the first one was. */
static void test_parts(void **state)
{
    (void)state;
    struct picture_make make = {.width = 1000, .components = 1, .h = {1}, .v = {1}};
    for (int i = 0; i < 36; i++) {
        char name[64];
        struct encoded e = {.data = NULL};
        make.height = 810 + (uint32_t)i / 12;
        e = jpeg_make(&make);
        for (int stop = i + 12; i < stop; i++) {
            snprintf(name, sizeof name, "large/a/%02d.jpg", i);
            test_folders(name);
            test_write(name, e.data, e.bytes);
        }
        i--;
        free(e.data);
    }
    struct run_config c = config(folder("large", ",exact"), "cpu", 0);
    c.chain = "resize(200,300)";
    c.opts.batch_size = 36;
    c.opts.epochs = 1;
    struct run cpu = run_loader(&c);
    c.device = "cuda";
    c.opts.gpu_decode = 1;
    struct run gpu = run_loader(&c);
    assert_int_equal(gpu.rc, 0);
    assert_same_rows(&cpu, &gpu);
    assert_int_equal(gpu.stats.gpu_decoded, 36);
    run_free(&cpu);
    run_free(&gpu);
    check_clean();
}

/* With `exact` both decoders make the same pixels here: so any share of the engine's gives the
 * CPU's batches, and nothing is lost between the two. */
static void test_auto(void **state)
{
    (void)state;
    struct run_config c = config(folder("good", ",exact"), "cpu", 0);
    c.opts.epochs = 4;
    struct run cpu = run_loader(&c);
    c.device = "cuda";
    c.opts.gpu_decode = MR_GPU_DECODE_AUTO;
    for (int k = 0; k < 6; k++) {
        c.opts.workers = 1 + (uint32_t)k;
        c.opts.prefetch = k == 3 ? 1 : 3;
        c.hold = k == 4 ? 2 : 0;
        atomic_store(&fake->slow_open_ms, k == 1 ? 20 : 0);
        atomic_store(&fake->slow_decode_ms, k == 2 ? 2 : 0);
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, 0);
        assert_same_rows(&cpu, &run);
        assert_true(run.stats.gpu_decode >= 0 && run.stats.gpu_decode <= 1);
        assert_true(run.stats.gpu_decoded <= 4ull * N_BASELINE && !run.stats.gpu_why_not[0]);
        if (run.stats.gpu_decoded > 0)
            assert_true(run.stats.gpu_decode_rate > 0 && run.stats.gpu_decode > 0);
        run_free(&run);
    }
    atomic_store(&fake->slow_open_ms, 0);
    atomic_store(&fake->slow_decode_ms, 0);
    run_free(&cpu);
    check_clean();
}

/* While the decoder opens, and if it cannot be opened, the host decodes; a loader may be closed
 * before it is open. With a share it has to open. */
static void test_auto_begins(void **state)
{
    (void)state;
    struct run_config c = config(folder("good", ",exact"), "cuda", MR_GPU_DECODE_AUTO);
    c.opts.epochs = 1;
    atomic_store(&fake->slow_open_ms, 300);
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, N);
    run_free(&run);
    atomic_store(&fake->slow_open_ms, 0);
    atomic_store(&fake->no_hardware, 2);
    struct run without = run_loader(&c);
    assert_int_equal(without.rc, 0);
    assert_int_equal(without.n, N);
    assert_int_equal(without.stats.gpu_decoded, 0);
    run_free(&without);
    c.opts.gpu_decode = 1;
    struct run given = run_loader(&c);
    assert_int_equal(given.rc, MR_EDEVICE);
    assert_non_null(strstr(given.error, "nvjpegCreateEx"));
    run_free(&given);
    atomic_store(&fake->no_hardware, 0);
    check_clean();
}

/* Decoders hinder each other: those of two loaders take turns. */
static void *run_beside(void *config)
{
    struct run run = run_loader(config);
    int rc = run.rc;
    run_free(&run);
    return (void *)(intptr_t)rc;
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    static char uri[400];
    snprintf(uri, sizeof uri, "%s", folder("good", ",exact"));
    struct run_config c = config(uri, "cuda", 1), other = c;
    pthread_t thread;
    void *rc = NULL;
    uint64_t before = fake->at_once;
    atomic_store(&fake->slow_decode_ms, 1);
    assert_int_equal(pthread_create(&thread, NULL, run_beside, &other), 0);
    struct run run = run_loader(&c);
    pthread_join(thread, &rc);
    atomic_store(&fake->slow_decode_ms, 0);
    assert_int_equal(run.rc, 0);
    assert_null(rc);
    assert_int_equal(fake->at_once, before);
    run_free(&run);
    check_clean();
}

/* The decoder waits when its thread waits for a processor: workers must not come first. */
static void test_comes_first(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct run_config c = config(folder("good", ""), "cuda", k ? MR_GPU_DECODE_AUTO : 1);
        c.opts.workers = 3;
        c.opts.epochs = k ? 30 : 2;
        int own = getpriority(PRIO_PROCESS, 0);
        atomic_store(&fake->nice_of_headers, own);
        atomic_store(&fake->nice_of_decodes, own);
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, 0);
        if (run.stats.gpu_decoded > 0)
            assert_true(atomic_load(&fake->nice_of_decodes) < atomic_load(&fake->nice_of_headers));
        assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
        run_free(&run);
    }
    check_clean();
}

/* What it does not go with: an error that says so, and with auto the host does all. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *more, *chain, *device, *says;
    } cases[] = {
        {"", "resize(20,20)", "cpu", "decodes no JPEG"},
        {"", "resize(20,20)", "sim", "decodes no JPEG"},
        {",color=gray", "resize(20,20)", "cuda", "not rgb"},
        {"", "resize(20,20),color_jitter(0.4,0.4,0.4,0.1)", "cuda", "must begin with crops"},
    };
    for (size_t k = 0; k < MR_COUNT(cases); k++) {
        struct run_config c = config(folder("good", cases[k].more), cases[k].device, 1);
        c.chain = cases[k].chain;
        c.opts.epochs = 1;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, MR_EUNSUPPORTED);
        if (!strstr(run.error, cases[k].says))
            fail_msg("%s: expected \"%s\"", run.error, cases[k].says);
        c.opts.gpu_decode = MR_GPU_DECODE_AUTO;
        struct run automatic = run_loader(&c);
        assert_int_equal(automatic.rc, 0);
        assert_non_null(strstr(automatic.stats.gpu_why_not, cases[k].says));
        assert_int_equal(automatic.stats.gpu_decoded, 0);
        run_free(&automatic);
    }
    struct run_config c = config(folder("good", ""), "cuda", 1.5);
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EOPTION);
    check_clean();
}

/* No nvJPEG here. In a child: the library is looked for once. */
static void test_no_library(void **state)
{
    (void)state;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("MILLRACE_NVJPEG", "/nowhere/libnvjpeg.so", 1);
        fake_load();
        struct run_config c = config(folder("good", ""), "cuda", 1);
        struct run run = run_loader(&c);
        bool clear = run.rc == MR_EUNSUPPORTED &&
                     strstr(run.error, "needs nvJPEG: MILLRACE_NVJPEG: /nowhere");
        c.opts.gpu_decode = MR_GPU_DECODE_AUTO;
        run = run_loader(&c);
        _exit(!clear                                                          ? 1
              : run.rc != 0 || !strstr(run.stats.gpu_why_not, "needs nvJPEG") ? 2
              : fake_left()                                                   ? 3
                                                                              : 0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Each call in turn: an error that names nvJPEG, or a run like any other; nothing is left. */
static void test_faults(void **state)
{
    (void)state;
    static const int codes[] = {6, 5, 3}; /* execution failed, out of memory, bad JPEG */
    struct run_config c = config(folder("good", ",exact"), "cuda", 1);
    c.opts.epochs = 1;
    c.opts.batch_size = 30;
    c.opts.prefetch = 1;
    struct run good = run_loader(&c);
    for (size_t k = 0; k < MR_COUNT(codes); k++) {
        uint64_t n_errors = 0, at = 1;
        for (bool hit = true; hit; at += k == 0 ? 1 : 3) {
            atomic_store(&fake->calls, 0);
            atomic_store(&fake->fail_with, codes[k]);
            atomic_store(&fake->fail_at, at);
            struct run run = run_loader(&c);
            hit = atomic_load(&fake->calls) >= at;
            atomic_store(&fake->fail_at, 0);
            if (run.rc < 0 && (run.rc != MR_EDEVICE || !strstr(run.error, "nvjpeg")))
                fail_msg("call %llu failing with %d: %d %s", (unsigned long long)at, codes[k],
                         run.rc, run.error);
            if (run.rc == 0)
                assert_same_rows(&good, &run);
            n_errors += run.rc < 0;
            run_free(&run);
            check_clean();
        }
        assert_true(at > 18 && (k > 0 || n_errors >= 2)); /* of these 18 open the decoder */
    }
    run_free(&good);
}

int main(void)
{
    if (!MILLRACE_HAVE_CUDA_KERNELS) {
        print_message("SKIP test_gpu_decode: this build has no kernels for the device (no nvcc): "
                      "windows are not "
                      "resampled there\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_library), /* first: its child must find that nobody has looked */
        cmocka_unit_test(test_same_windows),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_refused_and_bad),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_auto_begins),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_comes_first),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("gpu_decode", tests, make_folders, test_dir_drop);
}
