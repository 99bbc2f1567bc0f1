/* White-box. A loader whose processes want more cores than the machine has, and ones that do
 * not. */
#include "recording_make.h"

#include "advice/rules.h"
#include <unistd.h>

#define PATH      "test_cores.sqlite"
#define MS        1000000ull
#define STEPS     20
#define N_WORKERS 6

/* The device waits 8 of 10 ms for the loader, whose workers wait wait_ns of each 10 ms. */
static struct mr_recording *record(uint64_t wait_ns)
{
    struct make m;
    make_begin(&m, PATH);
    for (uint64_t i = 0; i < STEPS; i++) {
        uint64_t at = 10 * MS + i * 10 * MS;
        make_range(&m, "data", at, at + 8 * MS);
        make_os(&m, "poll", at, at + 8 * MS, 0);
        make_kernel(&m, 7, "k", at + 8 * MS + 100000, at + 10 * MS);
    }
    for (uint32_t w = 0; w < N_WORKERS; w++) {
        make_process(&m, 200 + w, "python3 train.py");
        for (uint64_t i = 0; i < STEPS + 2; i++) {
            uint64_t at = i * 10 * MS;
            make_os(&m, "read", at, at + MS / 10, 4096);
            make_os(&m, "futex", at + MS, at + MS + wait_ns, 0);
            make_os(&m, "futex", at + MS + wait_ns / 4, at + MS + wait_ns / 2, 0); /* inside */
        }
    }
    make_end(&m);
    return make_load(PATH);
}

static void advise(uint64_t wait_ns, uint32_t n_cores, char out[1000])
{
    struct mr_recording *rec = record(wait_ns);
    struct mr_advice *advice = NULL;
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.n_cores = n_cores;
    assert_int_equal(mr_analyze(rec, &opts, &advice), 0);
    assert_string_equal(mr_advice_get(advice, 0)->rule, "data_starvation");
    snprintf(out, 1000, "%s", mr_advice_get(advice, 0)->advice);
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
}

/* Six workers that compute nine of ten ms, and the main thread two: 5.6 cores. */
static void crowded(void **state)
{
    (void)state;
    char text[1000];
    advise(MS, 4, text);
    assert_non_null(strstr(text, "want 5.6 cores at once and the machine has 4: workers wait"));
    assert_null(strstr(text, "cores only"));
}

/* The counter-cases: as many cores as are wanted; workers that wait themselves, for a disk. */
static void not_crowded(void **state)
{
    (void)state;
    char text[1000];
    advise(MS, 6, text);
    assert_null(strstr(text, "cores at once"));
    advise(8 * MS, 4, text);
    assert_null(strstr(text, "cores at once"));
    assert_non_null(strstr(text, "workers would keep up"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowded),
        cmocka_unit_test(not_crowded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
