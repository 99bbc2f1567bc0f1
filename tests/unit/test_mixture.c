/* Mixtures: whose turn it is, that nothing is left out, and that parts must agree. */
#include "run_loader.h"

#include <errno.h>
#include <math.h>

#include "npy_write.h"
#include "samples.h"

/* Sources that say in field 0 which sample they are: an npy file each of i64 values base + 0, 1,
 * ... */
static const char *write_source(const char *name, int64_t base, uint64_t n)
{
    char shape[40];
    int64_t *values = malloc(n * sizeof *values + NPY_HEAD_BYTES);
    assert_non_null(values);
    snprintf(shape, sizeof shape, "%llu,", (unsigned long long)n);
    size_t front = npy_put(values, "<i8", "False", shape);
    for (uint64_t i = 0; i < n; i++)
        memcpy((char *)values + front + i * 8, &(int64_t){base + (int64_t)i}, 8);
    const char *path = test_write(name, values, front + n * 8);
    free(values);
    return path;
}

static int64_t value(const struct mr_dataset *ds, uint64_t i)
{
    uint8_t *bytes = test_read(ds, i);
    int64_t v;
    memcpy(&v, bytes, 8);
    free(bytes);
    return v;
}

#define SOURCE 1000000

static const char *uri_of(char *buf, size_t cap, const char *const *weights, int k)
{
    size_t at = (size_t)snprintf(buf, cap, "mix:");
    for (int i = 0; i < k; i++) {
        char name[32];
        snprintf(name, sizeof name, "s%d.npy", i);
        at += (size_t)snprintf(buf + at, cap - at, "%s%s*%s", i ? "," : "", weights[i],
                               test_path(name));
    }
    return buf;
}

static void shares_hold_in_every_prefix(void **state)
{
    (void)state;
    static const struct {
        const char *weight[6];
        double w[6];
        uint64_t n[6];
        int k;
    } cases[] = {
        {{"0.7", "0.3"}, {.7, .3}, {70, 30}, 2},
        {{"7", "3"}, {.7, .3}, {5, 90}, 2},
        {{"1", "1", "1"}, {1 / 3., 1 / 3., 1 / 3.}, {11, 12, 13}, 3},
        {{"0.5", "0.25", "0.125", "0.125"}, {.5, .25, .125, .125}, {40, 20, 3, 17}, 4},
        {{".11", ".12", ".13", ".14", ".2", ".3"},
         {.11, .12, .13, .14, .2, .3},
         {9, 8, 7, 6, 5, 40},
         6},
        {{"0.001", "0.999"}, {.001, .999}, {2, 50}, 2},
        {{"3"}, {1}, {4}, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char uri[2000], name[32];
        uint64_t count[6] = {0};
        bool seen[6][100] = {{false}};
        for (int i = 0; i < cases[c].k; i++) {
            snprintf(name, sizeof name, "s%d.npy", i);
            write_source(name, (int64_t)i * SOURCE, cases[c].n[i]);
        }
        struct mr_dataset *ds = test_open(uri_of(uri, sizeof uri, cases[c].weight, cases[c].k));
        uint64_t n = mr_dataset_length(ds), last_new = 0;
        for (uint64_t i = 0; i < n; i++) {
            int64_t v = value(ds, i);
            uint64_t k = (uint64_t)v / SOURCE, j = (uint64_t)v % SOURCE;
            assert_true(k < (uint64_t)cases[c].k);
            assert_int_equal(j,
                             count[k] % cases[c].n[k]); /* one after the other, round and round */
            last_new = seen[k][j] ? last_new : i;
            seen[k][j] = true;
            count[k]++;
            for (int s = 0; s < cases[c].k; s++)
                assert_true(fabs((double)count[s] - (double)(i + 1) * cases[c].w[s]) < 1 + 1e-6);
        }
        assert_int_equal(last_new + 1, n); /* the length is the smallest that shows all */
        for (int s = 0; s < cases[c].k; s++)
            assert_true(count[s] >= cases[c].n[s]);
        mr_dataset_close(ds);
    }
}

static void any_weights(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 40; r++) {
        char uri[2000], text[8][16];
        const char *weights[8];
        double w[8], sum = 0;
        uint64_t count[8] = {0};
        int k = 2 + (int)(test_random(r) % 7);
        for (int i = 0; i < k; i++) {
            char name[32];
            uint64_t weight = 1 + test_random(1000 + r * 10 + (uint32_t)i) % 500;
            snprintf(text[i], sizeof text[i], "%llu.%llu", (unsigned long long)weight / 100,
                     (unsigned long long)weight / 10 % 10);
            if (weight < 10)
                strcpy(text[i], "0.1");
            snprintf(name, sizeof name, "s%d.npy", i);
            write_source(name, (int64_t)i * SOURCE, 3);
            weights[i] = text[i];
            sum += w[i] = strtod(text[i], NULL);
        }
        uri_of(uri, sizeof uri, weights, k);
        strcat(uri, ",length=400");
        struct mr_dataset *ds = test_open(uri);
        assert_int_equal(mr_dataset_length(ds), 400);
        for (uint64_t i = 0; i < 400; i++) {
            count[value(ds, i) / SOURCE]++;
            for (int s = 0; s < k; s++)
                assert_true(fabs((double)count[s] - (double)(i + 1) * w[s] / sum) < 1 + 1e-6);
        }
        mr_dataset_close(ds);
    }
}

/* Files, memory, simulated reads and made samples, in one. */
static const char *all_kinds(char *buf, size_t cap)
{
    write_source("f.npy", 0, 37);
    snprintf(buf, cap,
             "mix:0.4*%s,0.3*[synthetic:n=20,shape=,dtype=i64,values=index],0.2*[synthetic:n=9,"
             "shape=,dtype=i64,"
             "values=index,delay=1ms],1*[mix:2*%s,1*[npy:%s,labels=none]]",
             test_path("f.npy"), test_path("f.npy"), test_path("f.npy"));
    return buf;
}

static void runs_are_equal(void **state)
{
    (void)state;
    char uri[2000];
    struct run_config c = run_config(all_kinds(uri, sizeof uri));
    c.sampler = "random";
    c.opts.batch_size = 7;
    c.opts.epochs = 2;
    c.opts.workers = 1;
    struct run one = run_loader(&c);
    assert_int_equal(one.rc, 0);
    for (uint32_t workers = 2; workers <= 5; workers++) {
        c.opts.workers = workers;
        struct run many = run_loader(&c);
        assert_int_equal(many.rc, 0);
        assert_same_rows(&one, &many);
        run_free(&many);
    }
    c.stop_after = 5;
    struct run first = run_loader(&c), rest;
    c.stop_after = 0;
    c.opts.state = first.state;
    rest = run_loader(&c);
    assert_int_equal(first.n + rest.n, one.n);
    for (uint64_t i = 0; i < rest.n; i++) {
        assert_int_equal(rest.row[i].hash, one.row[first.n + i].hash);
        assert_int_equal(rest.row[i].index, one.row[first.n + i].index);
    }
    run_free(&first);
    run_free(&rest);
    run_free(&one);
}

static void parts_must_agree(void **state)
{
    (void)state;
    char uri[2000];
    write_source("a.npy", 0, 5);
    const char *a = test_path("a.npy");
#define FAILS(code, format, ...)                                                                   \
    do {                                                                                           \
        snprintf(uri, sizeof uri, format, a);                                                      \
        test_fails(test_open_fails(uri), code, __VA_ARGS__);                                       \
    } while (0)
    FAILS(MR_EFORMAT, "mix:1*%s,1*[synthetic:n=3,shape=2,dtype=i64]", "part 2", "x i64[2]",
          "x i64");
    FAILS(MR_EFORMAT, "mix:1*%s,1*[synthetic:n=3,shape=,dtype=f32]", "part 2", "f32");
    FAILS(MR_EFORMAT, "mix:1*%s,1*[synthetic:n=3,shape=,dtype=i64,classes=2]", "part 2",
          "x i64, label i64", "part 1");
    FAILS(MR_EOPTION, "mix:%s", "WEIGHT*URI");
    FAILS(MR_EOPTION, "mix:0*%s", "weight '0'");
    FAILS(MR_EOPTION, "mix:0.0000001*%s", "6 digits");
    FAILS(MR_EOPTION, "mix:1.2.3*%s", "weight '1.2.3'");
    FAILS(MR_EOPTION, "mix:1*%s,lenth=3", "lenth", "length");
    FAILS(-ENOENT, "mix:1*%s.not", "a.npy.not");
#undef FAILS
    snprintf(uri, sizeof uri, "mix:999.983*%s,999.961*%s", a, a);
    test_fails(test_open_fails(uri), MR_ELIMIT, "repeat after 1999944 samples");
    snprintf(uri, sizeof uri,
             "mix:1*[mix:1*[mix:1*[mix:1*[mix:1*[mix:1*[mix:1*[mix:1*[mix:1*[%s]]]]]]]]]", a);
    test_fails(test_open_fails(uri), MR_ELIMIT, "8 brackets");
    test_fails(test_open_fails("mix:"), MR_EOPTION, "no path");
}

/* Of varying shapes the larger bound holds. */
static void bounds_are_joined(void **state)
{
    (void)state;
    struct run_config c = run_config("mix:1*[synthetic:n=6,shape=9x2,dtype=u8,min-length=3],"
                                     "2*[synthetic:n=6,shape=4x2,dtype=u8,min-length=1]");
    struct mr_dataset *ds = test_open(c.dataset);
    test_field_is(ds, 0, "image u8[<=9,2]");
    assert_int_equal(mr_dataset_length(ds), 17);
    mr_dataset_close(ds);
    c.opts.collate = MR_COLLATE_PAD;
    c.opts.batch_size = 4;
    struct run a = run_loader(&c);
    assert_int_equal(a.rc, 0);
    c.opts.workers = 4;
    struct run b = run_loader(&c);
    assert_same_rows(&a, &b);
    for (uint64_t i = 0; i < a.n; i++)
        assert_true(a.row[i].length >= 1 && a.row[i].length <= 9);
    run_free(&a);
    run_free(&b);
}

/* Another order, weight or part is another data set: a saved state does not fit it. */
static void fingerprints_differ(void **state)
{
    (void)state;
    char uri[6][700];
    uint64_t print[6];
    write_source("a.npy", 0, 5);
    write_source("b.npy", 50, 5);
    const char *a = test_path("a.npy"), *b = test_path("b.npy");
    snprintf(uri[0], sizeof uri[0], "mix:1*%s,1*%s", a, b);
    snprintf(uri[1], sizeof uri[1], "mix:1*%s,1*%s", b, a);
    snprintf(uri[2], sizeof uri[2], "mix:1*%s,2*%s,length=10", a, b);
    snprintf(uri[3], sizeof uri[3], "mix:2*%s,1*%s,length=10", a, b);
    snprintf(uri[4], sizeof uri[4], "mix:1*%s,1*%s,length=11", a, b);
    snprintf(uri[5], sizeof uri[5], "mix:1*%s,1*%s", a, a);
    for (int i = 0; i < 6; i++) {
        struct mr_dataset *ds = test_open(uri[i]);
        print[i] = mr_dataset_fingerprint(ds);
        mr_dataset_close(ds);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(print[i], print[j]);
    }
}

/* Pictures, their labels' names and all. */
static void real_photos(void **state)
{
    (void)state;
    const char *root = test_data("imagenet-sample");
    if (!root)
        skip();
    char uri[3000];
    snprintf(uri, sizeof uri, "mix:0.6*[folder:%s,labels=none],0.4*[folder:%s,labels=none]", root,
             root);
    struct run_config c = run_config(uri);
    c.chain = "random_resized_crop(24),hflip(0.5)";
    c.opts.batch_size = 8;
    c.stop_after = 6;
    c.opts.workers = 1;
    c.opts.bad = MR_BAD_REPLACE;
    struct run one = run_loader(&c);
    assert_true(one.rc >= 0);
    c.opts.workers = 3;
    struct run many = run_loader(&c);
    assert_same_rows(&one, &many);
    run_free(&one);
    run_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_hold_in_every_prefix),
        cmocka_unit_test(any_weights),
        cmocka_unit_test(runs_are_equal),
        cmocka_unit_test(parts_must_agree),
        cmocka_unit_test(bounds_are_joined),
        cmocka_unit_test(fingerprints_differ),
        cmocka_unit_test(real_photos),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
