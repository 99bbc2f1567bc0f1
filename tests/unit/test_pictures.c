/* White-box. Pictures through the loader: windows asked for, sizes that nobody knows before,
 * points, heads and tails. */
#include "run_loader.h"

#include "dataset/dataset.h"
#include "transform/transform.h"

enum { N = 60, MOST = 90 };

struct fake_opts {
    size_t size;
    struct mr_picture_opts picture;
};

/* A data set of drawn pictures of all sizes, with the place of a point in each. */
static _Atomic uint64_t n_asked, n_whole;

static void size_of(uint64_t index, uint32_t *height, uint32_t *width)
{
    *height = 40 + (uint32_t)(mr_mix64(index) % (MOST - 40));
    *width = 40 + (uint32_t)(mr_mix64(index + 1000) % (MOST - 40));
}

static void draw_part(uint64_t index, struct mr_picture *p, uint8_t *out)
{
    for (uint32_t y = 0; y < p->height; y++)
        for (uint32_t x = 0; x < p->width; x++)
            for (uint32_t c = 0; c < 3; c++)
                out[y * p->stride + x * 3 + c] =
                    (uint8_t)((y + p->y) * 3 + (x + p->x) * 5 + c * 40 + index);
    p->data = out;
}

/* What a decoder does that knows how wide filters are. */
static int fake_get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    static _Thread_local uint8_t room[MOST * (MOST * 3 + 7)];
    uint32_t height, width;
    struct mr_window w;
    size_of(index, &height, &width);
    struct mr_picture p = {
        .width = width, .height = height, .channels = 3, .scale_x = 1, .scale_y = 1};
    p.full_width = width;
    p.full_height = height;
    assert_non_null(out->decoder);
    if (out->choose) {
        int rc = out->choose(out->choose_user, width, height, &w);
        if (rc < 0)
            return rc;
        uint32_t margin_x = 3 + (uint32_t)(3 * w.w / w.out_w),
                 margin_y = 3 + (uint32_t)(3 * w.h / w.out_h);
        p.x = (uint32_t)MR_MAX(w.x - margin_x, w.clip_x);
        p.y = (uint32_t)MR_MAX(w.y - margin_y, w.clip_y);
        p.width = (uint32_t)MR_MIN(w.x + w.w + margin_x, w.clip_x + w.clip_w) - p.x;
        p.height = (uint32_t)MR_MIN(w.y + w.h + margin_y, w.clip_y + w.clip_h) - p.y;
        atomic_fetch_add(&n_asked, (uint64_t)p.width * p.height);
    }
    atomic_fetch_add(&n_whole, (uint64_t)width * height);
    p.stride = (uint64_t)p.width * 3 + (out->choose ? 7 : 0);
    draw_part(index, &p, room);
    out->picture = p;
    out->field[ds->picture].data = p.data;
    out->field[ds->picture].dim[0] = p.height;
    out->field[ds->picture].dim[1] = p.width;
    float point[2] = {(float)width / 2 - 0.5f, (float)height / 2 - 0.5f}; /* the middle */
    memcpy(out->field[1].room, point, sizeof point);
    return 0;
}

static int fake_open(struct mr_dataset *ds, const void *opts)
{
    ds->n = N;
    ds->n_fields = 2;
    mr_picture_declare(ds, 0, &((const struct fake_opts *)opts)->picture);
    strcpy(ds->field[0].name, "image");
    ds->field[1] = (struct mr_spec){.name = "points", .dtype = MR_F32, .rank = 1, .dim = {2}};
    return 0;
}

static const struct mr_option no_options[] = {{0}};
static const struct mr_dataset_ops fake_ops = {
    .name = "fake",
    .summary = "drawn",
    .options = no_options,
    .opts_size = sizeof(struct fake_opts),
    .open = fake_open,
    .get = fake_get,
};

static struct mr_dataset *open_fake(uint64_t most)
{
    struct mr_dataset *ds = NULL;
    struct fake_opts opts = {.size = sizeof opts,
                             .picture = {.max_height = most, .max_width = most}};
    must(mr_dataset_make(&fake_ops, &opts, &ds));
    return ds;
}

static struct run run_chain(struct mr_dataset *ds, const char *chain, uint32_t workers,
                            const char *device)
{
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.chain = chain;
    c.sampler = "random";
    c.device = device;
    c.opts.workers = workers;
    c.opts.device_transforms = MR_DEVICE_TRANSFORMS_ON;
    c.opts.epochs = 2;
    c.opts.seed = 11;
    c.opts.batch_size = 7;
    return run_loader(&c);
}

static const char *const chains[] = {
    "random_resized_crop(24),hflip,cast(f32),scale(1/"
    "255),normalize([0.4,0.5,0.6],[0.2,0.3,0.2]),layout(nchw)",
    "resize(40),center_crop(32),layout(nchw)",
    "random_crop(33,31),color_jitter(0.4,0.4,0.4,0.1),erase",
    "crop(20,20),points.scale(1/20)",
};

static void test_windows_give_what_whole_pictures_give(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_fake(0), *bounded = open_fake(MOST);
    for (size_t k = 0; k < MR_COUNT(chains); k++) {

        atomic_store(&n_asked, 0);
        atomic_store(&n_whole, 0);
        struct run one = run_chain(ds, chains[k], 1, "cpu");
        if (one.rc < 0)
            fail_msg("%s: %s", chains[k], one.error);
        assert_int_equal(one.n, 2 * N);
        assert_true(atomic_load(&n_asked) > 0 && atomic_load(&n_asked) < atomic_load(&n_whole));
        struct run three = run_chain(ds, chains[k], 3, "cpu"),
                   sim = run_chain(ds, chains[k], 2, "sim:latency=1us");
        assert_same_rows(&one, &three);
        assert_same_rows(&one, &sim);
        if (k == 0 && strcmp(sim.stats.device_ops, "image: hflip,cast,scale,normalize,layout") != 0)
            fail_msg("on the device: '%s'", sim.stats.device_ops);
        assert_true(k > 0 || sim.stats.copied_bytes < 2 * N * 24 * 24 * 3 * 2); /* u8, not f32 */
        run_free(&one);
        run_free(&three);
        run_free(&sim);
    }
    /* Draws are keyed by the op's place: a chain whose ops keep theirs. */
    struct run a = run_chain(bounded, "center_crop(25),hflip(1)", 2, "cpu");
    struct run b = run_chain(bounded, "hflip(0),center_crop(25),hflip(1)", 2, "cpu");
    assert_int_equal(a.rc, 0);
    assert_same_rows(&a, &b);
    run_free(&a);
    run_free(&b);
    mr_dataset_close(ds);
    mr_dataset_close(bounded);
}

static void test_unknown_sizes_are_refused(void **state)
{
    (void)state;
    static const char *const varying[] = {NULL, "cast(f32)", "hflip,random_resized_crop(20)",
                                          "resize(30)"};
    struct mr_dataset *ds = open_fake(0), *bounded = open_fake(MOST);
    for (size_t k = 0; k < MR_COUNT(varying); k++) {
        struct run_config c = run_config(NULL);
        c.ds = ds;
        c.chain = varying[k];
        c.opts.collate = MR_COLLATE_PAD;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, MR_ESHAPE);
        assert_non_null(strstr(run.error, "largest size is not known"));
        run_free(&run);
        c.ds = bounded;
        run = run_loader(&c);
        if (run.rc < 0)
            fail_msg("%s", run.error);
        assert_int_equal(run.n, N);
        run_free(&run);
    }
    mr_dataset_close(ds);
    mr_dataset_close(bounded);
}

static void test_small_pictures_are_bad_samples(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_fake(0);
    struct run_config c = run_config(NULL);
    uint64_t fit = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint32_t height, width;
        size_of(i, &height, &width);
        fit += height >= 60 && width >= 60;
    }
    c.ds = ds;
    c.chain = "crop(60,60)";
    c.opts.bad = MR_BAD_SKIP;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, fit);
    assert_true(fit > 0 && fit < N);
    run_free(&run);
    mr_dataset_close(ds);
}

/* The middle of a picture is the middle of its middle. */
static void test_points_come_along(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_fake(0);
    struct mr_transform *chain;
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&opts);
    opts.batch_size = N;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "resize(80,100),center_crop(50,60),hflip,vflip"));
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &ld));
    assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
    for (uint64_t r = 0; r < b.n; r++) {
        float point[2];
        memcpy(point, (const char *)b.field[1].data + r * sizeof point, sizeof point);
        assert_true(point[0] > 29.49f && point[0] < 29.51f && point[1] > 24.49f &&
                    point[1] < 24.51f);
    }
    must(mr_loader_release(ld, &b, NULL));
    mr_loader_close(ld);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
}

/* A real photo's whole pixels, what its window alone gives, and what a smaller decode gives. */
struct photo_call {
    const struct mr_transform *chain;
    struct mr_at at;
};

static int choose_for_photo(void *user, uint32_t width, uint32_t height, struct mr_window *out)
{
    const struct photo_call *call = user;
    return mr_transform_window(call->chain, 0, &call->at, width, height, out);
}

static void make_photo(struct mr_decoder *d, struct photo_call *call, bool windows, bool exact,
                       const void *bytes, uint64_t n, uint8_t *out)
{
    struct mr_image_opts opts = {.channels = 3, .exact = exact};
    struct mr_picture p;
    uint64_t out_dim[MR_MAX_RANK];
    void *scratch = aligned_alloc(64, mr_round_up(mr_transform_scratch_bytes(call->chain) + 1, 64));
    must(mr_image_decode(d, &opts, "photo", bytes, n, windows ? choose_for_photo : NULL, call, &p));
    uint64_t dim[MR_MAX_RANK] = {p.height, p.width, 3};
    struct mr_at at = call->at;
    at.picture = &p;
    must(mr_transform_apply_at(call->chain, 0, &at, p.data, dim, out, out_dim, scratch));
    free(scratch);
}

enum { SIZE = 160, PIXELS = SIZE * SIZE * 3 };

static void check_photo(const char *text, struct mr_decoder *d, const void *bytes, uint64_t n)
{
    static uint8_t whole[PIXELS], part[PIXELS], small[PIXELS];
    struct mr_spec spec = {
        .name = "image", .dtype = MR_U8, .rank = 3, .dim = {16384, 16384, 3}, .var_dims = 3};
    struct mr_transform *chain;
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, text));
    must(mr_transform_bind(chain, &spec, 1));
    for (uint64_t index = 0; index < 4; index++) {
        struct photo_call call = {chain, {.seed = 2, .index = index}};
        make_photo(d, &call, false, true, bytes, n, whole);
        make_photo(d, &call, true, true, bytes, n, part);
        make_photo(d, &call, true, false, bytes, n, small);
        assert_memory_equal(whole, part, PIXELS);
        uint64_t off = 0;
        for (int i = 0; i < PIXELS; i++)
            off += (uint64_t)abs(whole[i] - small[i]);
        if (off > 4 * PIXELS)
            fail_msg("%s: smaller decode: %g off in the mean", text, (double)off / PIXELS);
    }
    mr_transform_destroy(chain);
}

static void test_photos(void **state)
{
    (void)state;
    static const char *const names[] = {"n01440764_tench.JPEG", "n01494475_hammerhead.JPEG"};
    const char *data = getenv("MILLRACE_TEST_DATA");
    struct mr_decoder *d;
    must(mr_decoder_create(&d));
    for (size_t k = 0; k < MR_COUNT(names); k++) {
        char path[600];
        static unsigned char bytes[4 << 20];
        snprintf(path, sizeof path, "%s/imagenet-sample/%s", data ? data : ".", names[k]);
        FILE *f = fopen(path, "rb");
        if (!f || mr_image_why_not(MR_IMAGE_JPEG)) {
            printf("SKIP %s: no such photo, or no JPEG in this build\n", path);
            if (f)
                fclose(f);
            continue;
        }
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        check_photo("random_resized_crop(160)", d, bytes, n);
        check_photo("resize(180,filter=bicubic),center_crop(160)", d, bytes, n);
        check_photo("resize(180),random_crop(160,160)", d, bytes, n);
    }
    mr_decoder_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_give_what_whole_pictures_give),
        cmocka_unit_test(test_unknown_sizes_are_refused),
        cmocka_unit_test(test_small_pictures_are_bad_samples),
        cmocka_unit_test(test_points_come_along),
        cmocka_unit_test(test_photos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
