/* The data set that slows another one down: the samples are the same, and the time is there. */
#include "run_loader.h"

#include "npy_write.h"
#include "samples.h"

static void write_photo_like(const char *name, uint64_t n)
{
    char shape[40];
    unsigned char *all = malloc(n * 64 + NPY_HEAD_BYTES);
    assert_non_null(all);
    snprintf(shape, sizeof shape, "%llu, 64", (unsigned long long)n);
    size_t front = npy_put(all, "|u1", "False", shape);
    for (uint64_t i = 0; i < n * 64; i++)
        all[front + i] = (unsigned char)test_random((uint32_t)i);
    test_write(name, all, front + n * 64);
    free(all);
}

static struct run run_of(const char *uri, uint32_t workers)
{
    struct run_config c = run_config(uri);
    c.sampler = "random";
    c.opts.batch_size = 7;
    c.opts.workers = workers;
    return run_loader(&c);
}

/* Data sets whose bytes are fields as they are, that are decoded, that make their samples, in one
 * another. */
static void samples_are_those_of_the_other(void **state)
{
    (void)state;
    char npy[600], uri[2][1000];
    write_photo_like("rows.npy", 40);
    snprintf(npy, sizeof npy, "%s", test_path("rows.npy"));
    const char *const sets[] = {npy, "synthetic:n=40,shape=9,classes=3",
                                "synthetic:n=40,shape=4,delay=100us",
                                "slow:[synthetic:n=40,shape=5],delay=10us"};
    for (size_t i = 0; i < MR_COUNT(sets); i++) {
        snprintf(uri[0], sizeof uri[0], "slow:[%s],delay=50us,max-delay=2ms", sets[i]);
        snprintf(uri[1], sizeof uri[1], "slow:[%s],work=1us", sets[i]);
        struct run plain = run_of(sets[i], 1);
        for (int k = 0; k < 2; k++) {
            struct run slow = run_of(uri[k], 1 + (uint32_t)k * 2);
            assert_int_equal(plain.n, 40);
            assert_int_equal(slow.n, plain.n);
            assert_memory_equal(slow.row, plain.row, plain.n * sizeof *plain.row);
            free(slow.row);
        }
        free(plain.row);
    }
}

/* A sample of nine ranges has a tenth, the one that takes time, in a mixture as well. */
static void mixtures_have_room_for_it(void **state)
{
    (void)state;
    enum { FIELDS = 9, N = 20 };
    static char file[2000];
    char uri[1000];
    size_t at = 8;
    file[at++] = '{';
    for (int f = 0; f < FIELDS; f++)
        at += (size_t)snprintf(
            file + at, sizeof file - at,
            "%s\"f%d\":{\"dtype\":\"U8\",\"shape\":[%d,4],\"data_offsets\":[%d,%d]}", f ? "," : "",
            f, N, f * N * 4, (f + 1) * N * 4);
    file[at++] = '}';
    uint64_t head = at - 8;
    memcpy(file, &head, sizeof head);
    for (int i = 0; i < FIELDS * N * 4; i++)
        file[at++] = (char)i;
    test_write("nine.safetensors", file, at);
    snprintf(uri, sizeof uri, "mix:1*[slow:[%s],delay=10us]", test_path("nine.safetensors"));
    struct run slow = run_of(uri, 3);
    snprintf(uri, sizeof uri, "mix:1*[%s]", test_path("nine.safetensors"));
    struct run plain = run_of(uri, 1);
    assert_int_equal(slow.n, N);
    assert_int_equal(plain.n, N);
    assert_memory_equal(slow.row, plain.row, N * sizeof *plain.row);
    free(slow.row);
    free(plain.row);
}

/* A single sample, by one thread that waits for it. */
static void takes_its_time(void **state)
{
    (void)state;
    struct mr_dataset *ds = test_open("slow:[synthetic:n=8,shape=4],delay=3ms,max-delay=5ms");
    for (uint64_t i = 0; i < 8; i++) {
        float row[4];
        uint64_t begin = mr_time_ns();
        must(mr_dataset_read(ds, i, (void *const[]){row}, NULL));
        assert_true(mr_time_ns() - begin >= 3000000);
    }
    mr_dataset_close(ds);
    ds = test_open("slow:[synthetic:n=8,shape=4],work=3ms");
    float row[4];
    uint64_t begin = mr_thread_cpu_ns();
    must(mr_dataset_read(ds, 0, (void *const[]){row}, NULL));
    assert_true(mr_thread_cpu_ns() - begin >= 3000000);
    mr_dataset_close(ds);
}

/* As many fields as a data set may have leave no place for the latency. */
static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *text;
        int rc;
    } cases[] = {
        {"slow:", "slow:PATH", MR_EOPTION},
        {"slow:[]", "format", 0},
        {"slow:[synthetic:n=4],delay=2ms,max-delay=1ms", "at least delay (2000000ns)", MR_EOPTION},
        {"slow:/nowhere.npy,delay=1ms", "/nowhere.npy", 0},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_dataset *ds = NULL;
        int rc = mr_dataset_open(cases[i].uri, &ds);
        assert_true(cases[i].rc ? rc == cases[i].rc : rc < 0);
        assert_null(ds);
        if (!strstr(mr_last_error(), cases[i].text))
            fail_msg("%s: %s", cases[i].uri, mr_last_error());
    }
}

static void by_struct(void **state)
{
    (void)state;
    struct mr_slow_opts o;
    struct mr_dataset *ds = NULL, *other = test_open("synthetic:n=5,shape=3");
    mr_slow_opts_init(&o);
    o.dataset = "synthetic:n=5,shape=3";
    o.delay_ns = 1000;
    must(mr_dataset_open_slow(&o, &ds));
    assert_int_equal(mr_dataset_length(ds), 5);
    assert_string_equal(mr_dataset_format(ds), "slow");
    assert_true(mr_dataset_fingerprint(ds) != mr_dataset_fingerprint(other));
    mr_dataset_close(other);
    mr_dataset_close(ds);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_those_of_the_other),
        cmocka_unit_test(mixtures_have_room_for_it),
        cmocka_unit_test(takes_its_time),
        cmocka_unit_test(refusals),
        cmocka_unit_test(by_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
