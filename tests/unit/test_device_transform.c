/* White-box. Ends of chains on the device: the same bits as on the host, fewer bytes copied, and
 * the host where it must. */
#include "run_loader.h"

#include "kernels/batch/batch.h"

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(29, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

#define ADD(...) at += (size_t)snprintf(text + at, bytes - at, __VA_ARGS__)

/* Ops that fit channels x height x width; hwc: how the dimensions stand. */
static void random_chain(char *text, size_t bytes, uint32_t channels)
{
    static const char *const casts[] = {"f32", "f32", "f16", "bf16", "f64", "i16", "u8"};
    size_t at = 0;
    bool hwc = false, is_float = false;
    uint32_t n_flips = 0;
    if (draw(3) == 0)
        ADD("random_crop(4,5,layout=nchw),");
    for (uint32_t k = 1 + draw(6); k > 0; k--)
        switch (draw(5)) {
        case 0:
            ADD("layout(%s),", hwc ? "nchw" : "nhwc");
            hwc = !hwc;
            break;
        case 1:
            if (n_flips++ < 2)
                ADD("hflip(%s,layout=%s),", draw(2) ? "0.5" : "1", hwc ? "nhwc" : "nchw");
            break;
        case 2:
            if (is_float)
                ADD("scale(1/%u,%s),", 1 + draw(255), draw(2) ? "0" : "-0.3");
            break;
        case 3:
            if (is_float && channels == 3 && draw(2))
                ADD("normalize([0.4,0.5,0.3],[0.2,0.3,0.1],axis=%d),", hwc ? 2 : 0);
            else if (is_float)
                ADD("normalize(0.1307,0.3081),");
            break;
        default:
            at += (size_t)snprintf(text + at, bytes - at, "cast(%s),", casts[draw(7)]);
            is_float = strstr(text + at - 5, "f") != NULL;
            break;
        }
    if (draw(4) == 0)
        ADD("flatten,");
    ADD("%scast(%s)", draw(2) ? "cast(f32),scale(1/255)," : "", casts[draw(4)]);
    if (draw(2))
        ADD(",label.one_hot(10,%s)", casts[draw(7)]);
}

static void random_chains_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"u8", "u8", "i8", "u16", "i16", "i32", "f32"};
    uint32_t n_device = 0, n_flips = 0;
    for (int round = 0; round < 250; round++) {
        char set[128], chain[512];
        uint32_t channels = draw(2) ? 3 : 1 + draw(4);
        snprintf(set, sizeof set, "synthetic:n=%u,shape=%ux%ux%u,dtype=%s,classes=10",
                 20 + draw(60), channels, 4 + draw(6), 5 + draw(30), dtypes[draw(7)]);
        random_chain(chain, sizeof chain, channels);
        struct run_config c = run_config(set);
        c.chain = chain;
        c.sampler = "random";
        c.opts.seed = draw(1000);
        c.opts.epochs = 1 + draw(2);
        c.opts.batch_size = 1 + draw(30);
        c.opts.prefetch = 1 + draw(4);
        struct run cpu = run_loader(&c);
        c.device = "sim:latency=1us";
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
        c.opts.workers = 1 + draw(4);
        c.opts.pin = draw(4) != 0;
        c.opts.blocking = draw(4) == 0;
        c.opts.streams = 1 + draw(5);
        struct run with = run_loader(&c);
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_OFF;
        struct run without = run_loader(&c);
        if (cpu.rc != 0 || with.rc != 0 || without.rc != 0)
            fail_msg("%s: %s: %s %s %s", set, chain, cpu.error, with.error, without.error);
        for (uint64_t i = 0; i < cpu.n; i++)
            if (cpu.row[i].hash != with.row[i].hash)
                fail_msg("%s: %s: row %llu differs; on the device: %s", set, chain,
                         (unsigned long long)i, with.stats.device_ops);
        assert_same_rows(&cpu, &with);
        assert_same_rows(&cpu, &without);
        assert_string_equal(without.stats.device_ops, "");
        n_device += with.stats.device_ops[0] != '\0';
        n_flips += strstr(with.stats.device_ops, "hflip") != NULL;
        if (with.stats.device_ops[0])
            assert_true(with.stats.copied_bytes <= without.stats.copied_bytes ||
                        strstr(with.stats.device_ops,
                               "hflip")); /* 256 bytes a batch say what is mirrored */
        run_free(&cpu);
        run_free(&with);
        run_free(&without);
    }
    assert_true(n_device > 60); /* else this test shows nothing */
    assert_true(n_flips > 8);
}

/* Gathered on the device: the same bits, for any order, and indices alone are copied. */
static void a_resident_set_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const chains[] = {NULL, "cast(f32),scale(1/255)",
                                         "hflip(0.5,layout=nchw),cast(f16),label.one_hot(10)",
                                         "label.one_hot(12,u8)"};
    for (uint32_t round = 0; round < 60; round++) {
        char set[128];
        snprintf(set, sizeof set, "synthetic:n=%u,shape=3x%ux%u,dtype=u8,classes=10",
                 30 + draw(200), 2 + draw(6), 2 + draw(9));
        struct run_config c = run_config(set);
        c.chain = chains[round % MR_COUNT(chains)];
        c.sampler = draw(4) ? "random" : "sequential";
        c.opts.seed = draw(1000);
        c.opts.epochs = 1 + draw(3);
        c.opts.batch_size = 1 + draw(40);
        c.opts.prefetch = 1 + draw(4);
        c.opts.world = 1 + draw(2);
        struct run cpu = run_loader(&c);
        c.device = "sim:latency=1us";
        c.opts.workers = 1 + draw(4);
        c.opts.streams = 1 + draw(3);
        c.opts.cache = MR_CACHE_DEVICE;
        c.hold = draw(2) ? draw(9) : 0;
        struct run sim = run_loader(&c);
        if (sim.rc < 0)
            fail_msg("%s: %s", set, sim.error);
        assert_same_rows(&cpu, &sim);
        assert_true(sim.stats.copied_bytes <= sim.n * 8 + sim.batches * 256);
        run_free(&cpu);
        run_free(&sim);
    }
}

static void a_set_that_cannot_be_resident_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *set, *chain, *device, *says;
        int code;
    } cases[] = {
        {"synthetic:n=100,shape=8,dtype=u8", NULL, "cpu", "no memory of its own", MR_EOPTION},
        {"synthetic:n=100,shape=3x8x8,dtype=u8", "random_crop(4,4),cast(f32)", "sim", "random_crop",
         MR_EOPTION},
        {"synthetic:n=100,shape=8,dtype=f32", "scale(2)", "sim", "scale", MR_EOPTION},
        {"synthetic:n=9000,shape=1024,dtype=u8", NULL, "sim:mem=4MiB", "9000 samples take 9216000",
         MR_EDEVICEMEM},
        {"synthetic:n=100,shape=8,dtype=u8,classes=10", "label.one_hot(3)", "sim", "expected 0..2",
         MR_EFORMAT},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct run_config c = run_config(cases[i].set);
        c.chain = cases[i].chain;
        c.device = cases[i].device;
        c.opts.cache = MR_CACHE_DEVICE;
        c.opts.prefetch = 2;
        struct run run = run_loader(&c);
        if (run.rc != cases[i].code || !strstr(run.error, cases[i].says))
            fail_msg("case %zu: %d: %s", i, run.rc, run.error);
        run_free(&run);
    }
}

#define MNIST_CHAIN "cast(f32),scale(1/255),normalize(0.1307,0.3081)"

static void bytes_shrink_to_a_quarter(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=2048,shape=28x28,dtype=u8");
    c.chain = MNIST_CHAIN;
    c.device = "sim";
    c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
    c.opts.prefetch = 4;
    struct run with = run_loader(&c);
    c.opts.device_transforms = MR_DEVICE_TRANSFORMS_OFF;
    struct run without = run_loader(&c);
    assert_string_equal(with.stats.device_ops + strlen(with.stats.device_ops) - 20,
                        "cast,scale,normalize");
    assert_int_equal(with.stats.copied_bytes, 2048 * 784);
    assert_int_equal(without.stats.copied_bytes, 4 * 2048 * 784);
    assert_int_equal(with.stats.bytes, without.stats.bytes); /* delivered */
    /* A slot has its input and its output on the device. */
    assert_int_equal(with.stats.device_bytes, 5 * 4 * 64 * 784);
    assert_int_equal(without.stats.device_bytes, 4 * 4 * 64 * 784);
    run_free(&with);
    run_free(&without);
}

/* On a device that the host's own processors play, they had better not do it in line with the
 * copies. */
static void auto_leaves_the_work_with_who_has_the_processors(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=640,shape=28x28,dtype=u8");
    c.chain = MNIST_CHAIN;
    c.device = "sim";
    assert_int_equal(c.opts.device_transforms, MR_DEVICE_TRANSFORMS_AUTO);
    struct run sim = run_loader(&c);
    c.opts.cache = MR_CACHE_DEVICE; /* there are no host ops then */
    struct run resident = run_loader(&c);
    c.opts.cache = MR_CACHE_NONE;
    c.device = "cpu";
    c.opts.device_transforms =
        MR_DEVICE_TRANSFORMS_ON; /* where there is one memory, no bytes can be saved */
    struct run cpu = run_loader(&c);
    assert_string_equal(sim.stats.device_ops, "");
    assert_string_equal(cpu.stats.device_ops, "");
    assert_non_null(strstr(resident.stats.device_ops, "cast,scale,normalize"));
    assert_same_rows(&cpu, &sim);
    assert_same_rows(&cpu, &resident);
    c.opts.device_transforms = 3;
    struct run wrong = run_loader(&c);
    assert_int_equal(wrong.rc, MR_EOPTION);
    assert_non_null(strstr(wrong.error, "device_transforms 3: expected off, on or auto"));
    run_free(&wrong);
    run_free(&cpu);
    run_free(&resident);
    run_free(&sim);
}

/* What no kernel does, or what would ship more, stays with the host. */
static void the_host_serves_otherwise(void **state)
{
    (void)state;
    static const char *const chains[][2] = {
        {"u8", "cast(f64)"},
        {"u8", "cast(i16)"},
        {"u8", "hflip"},
        {"f32", "scale(2)"},
        {"i32", "cast(f32),scale(2)"},
        {"u8", "cast(f32),scale(1e39)"},       /* infinities: their NaNs differ */
        {"u8", "cast(f32),scale(3),cast(u8)"}, /* as many bytes */
        {"u8", "cast(f32),normalize([1,2,3,4],[1,2,3,4],axis=2),hflip(1,layout="
               "nchw)"},                /* channels that are mirrored */
        {"u8", "cast(f16),scale(0.5)"}, /* rounded twice */
    };
    for (size_t i = 0; i < MR_COUNT(chains); i++) {
        char set[96];
        snprintf(set, sizeof set, "synthetic:n=100,shape=2x5x4,dtype=%s", chains[i][0]);
        struct run_config c = run_config(set);
        c.chain = chains[i][1];
        struct run cpu = run_loader(&c);
        c.device = "sim";
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
        struct run sim = run_loader(&c);
        assert_int_equal(sim.rc, 0);
        if (sim.stats.device_ops[0])
            fail_msg("%s of %s: on the device: %s", chains[i][1], chains[i][0],
                     sim.stats.device_ops);
        assert_same_rows(&cpu, &sim);
        run_free(&cpu);
        run_free(&sim);
    }
}

/* Labels that have no class are bad samples, as on the host; what takes their place is mirrored as
 * it should be. */
static void bad_samples_are_the_same(void **state)
{
    (void)state;
    static const enum mr_bad_policy policies[] = {MR_BAD_FAIL, MR_BAD_SKIP, MR_BAD_REPLACE};
    for (size_t i = 0; i < MR_COUNT(policies); i++) {
        struct run_config c = run_config("synthetic:n=300,shape=3x5x7,dtype=u8,classes=10");
        c.chain = "hflip(0.5,layout=nchw),cast(f16),label.one_hot(8)";
        c.sampler = "random";
        c.opts.bad = policies[i];
        struct run cpu = run_loader(&c);
        c.device = "sim";
        c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
        struct run sim = run_loader(&c);
        assert_non_null(strstr(sim.stats.device_ops, "one_hot"));
        assert_non_null(strstr(sim.stats.device_ops, "hflip"));
        assert_int_equal(cpu.rc, sim.rc);
        assert_string_equal(cpu.error, sim.error);
        assert_int_equal(cpu.stats.bad_samples, sim.stats.bad_samples);
        assert_true(policies[i] == MR_BAD_FAIL ? cpu.rc < 0 : cpu.stats.bad_samples > 10);
        assert_same_rows(&cpu, &sim);
        run_free(&cpu);
        run_free(&sim);
    }
}

/* Device memory of both kinds counts against the ceiling. */
static void outputs_count_as_memory(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=512,shape=28x28,dtype=u8");
    c.chain = MNIST_CHAIN;
    c.device = "sim";
    c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
    c.opts.prefetch = 4;
    c.opts.max_memory = 4 * 64 * 784 * 5; /* without the host's half */
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_ELIMIT);
    assert_non_null(strstr(run.error, "device 250880")); /* 64 * 784 * 5 */
    run_free(&run);
}

/* A chain belongs to its caller: what it computes does not depend on a loader that has split it. */
static void the_chain_stays_whole(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_transform *chain;
    struct mr_device *dev;
    struct mr_loader *ld;
    struct mr_loader_opts opts;
    uint8_t in[4] = {0, 1, 2, 255};
    uint64_t dim[MR_MAX_RANK] = {4};
    float out[4];
    must(mr_dataset_open("synthetic:n=100,shape=4,dtype=u8", &ds));
    must(mr_device_open("sim", &dev));
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "cast(f32),scale(0.5)"));
    mr_loader_opts_init(&opts);
    opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
    must(mr_loader_open(ds, NULL, chain, dev, &opts, &ld));
    must(mr_transform_apply(chain, 0, 0, 0, 0, in, dim, out, dim, NULL));
    for (int i = 0; i < 4; i++)
        assert_true(out[i] == 0.5f * (float)in[i]);
    mr_loader_close(ld);
    mr_transform_destroy(chain);
    mr_device_close(dev);
    mr_dataset_close(ds);
}

static void kernels_refuse_wrong_arguments(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim"};
    uint8_t in[4] = {1, 2, 3, 4};
    float out[4];
    for (size_t i = 0; i < MR_COUNT(devices); i++) {
        struct mr_device *dev;
        struct mr_stream *stream;
        must(mr_device_open(devices[i], &dev));
        must(mr_stream_create(dev, "s", &stream));
        struct mr_point_args a = {.in = in,
                                  .out = out,
                                  .rows = 1,
                                  .elements = 4,
                                  .from = MR_U8,
                                  .to = MR_F32,
                                  .n_dims = 1,
                                  .dim = {4},
                                  .stride = {1},
                                  .channels = 1,
                                  .channel_inner = 1};
        assert_int_equal(mr_launch(stream, "pointwise", &a, sizeof a - 1), MR_EMISUSE);
        assert_int_equal(mr_launch(stream, "no such", &a, sizeof a), MR_EUNSUPPORTED);
        int rc = mr_launch(stream, "pointwise", &a, sizeof a);
        assert_int_equal(rc, i == 0 ? 0 : MR_EDEVICE); /* sim: host memory is not the device's */
        a.to = MR_I32;
        assert_int_equal(mr_launch(stream, "pointwise", &a, sizeof a), MR_EMISUSE);
        a.to = MR_F32;
        a.stride[0] = 2;
        assert_int_equal(mr_launch(stream, "pointwise", &a, sizeof a), MR_EMISUSE);
        assert_int_equal(mr_device_has_kernel(dev, "pointwise"), 1);
        assert_int_equal(mr_device_has_kernel(dev, "no such"), 0);
        assert_int_equal(mr_device_has_kernel(dev, "busy"), 1);
        assert_int_equal(mr_device_has_kernel(dev, "wait"),
                         i != 0); /* of those, cpu has "busy" only */
        mr_stream_destroy(stream);
        mr_device_close(dev);
    }
    assert_true(out[0] == 1 && out[3] == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_chains_give_the_same_bits),
        cmocka_unit_test(bytes_shrink_to_a_quarter),
        cmocka_unit_test(auto_leaves_the_work_with_who_has_the_processors),
        cmocka_unit_test(the_host_serves_otherwise),
        cmocka_unit_test(bad_samples_are_the_same),
        cmocka_unit_test(outputs_count_as_memory),
        cmocka_unit_test(the_chain_stays_whole),
        cmocka_unit_test(kernels_refuse_wrong_arguments),
        cmocka_unit_test(a_resident_set_gives_the_same_bits),
        cmocka_unit_test(a_set_that_cannot_be_resident_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
