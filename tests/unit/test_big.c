/* White-box. Arrays of events in files instead of memory: they hold what is put there, and an
 * analysis that has all of its arrays in files says the same, to the letter. */
#include "fixture.h"

#include "advice/rules.h"
#include "recording/big.h"
#include "table/table.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PATH "test_big.sqlite"
#define PAGE 4096

static void in_files(void)
{
    mr_big_limit(1, 1, PAGE); /* the watch drops pages all the time */
}

static void usual(void)
{
    assert_int_equal(mr_big_mapped(), 0);
    mr_big_limit(0, 0, 0);
}

static void test_grow(void **state)
{
    uint64_t *at = NULL, room = 0, n = 600000;
    (void)state;
    in_files();
    for (uint64_t i = 0; i < n; i++) { /* from memory to a file, which grows */
        assert_int_equal(mr_big_grow("test", &at, &room, i + 1, sizeof *at), 0);
        at[i] = mr_mix64(i);
    }
    assert_in_range(mr_big_mapped(), n * sizeof *at, 2 * n * sizeof *at);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(at[i], mr_mix64(i));
    unsigned char *zero = mr_big_alloc("test", n, 1), *small = mr_big_alloc("test", 0, 8);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(zero[i], 0);
    assert_non_null(small);
    mr_big_free(at);
    mr_big_free(zero);
    mr_big_free(small);
    mr_big_free(NULL);
    usual();
}

/* Where no file can be made, or none of the size, the array is in memory. */
static void test_no_file(void **state)
{
    (void)state;
    in_files();
    setenv("TMPDIR", "/nowhere", 1);
    unsigned char *at = mr_big_alloc("test", 10 * PAGE, 1);
    assert_non_null(at);
    assert_int_equal(mr_big_mapped(), 0);
    memset(at, 1, 10 * PAGE);
    mr_big_free(at);
    unsetenv("TMPDIR");
    assert_null(mr_big_alloc("test", UINT64_MAX / 2, 8));
    usual();
}

struct item {
    uint32_t key, number;
};

static int by_key(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static void check_sorted(uint64_t n, uint32_t n_keys, uint64_t shuffled)
{
    struct item *at = mr_big_alloc("test", n, sizeof *at);
    uint64_t sum = 0;
    assert_non_null(at);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t draw = mr_mix64(i * 7 + n);
        at[i] = (struct item){draw % 100 < shuffled ? (uint32_t)(draw >> 32) % n_keys
                                                    : (uint32_t)(i * n_keys / n),
                              (uint32_t)i};
        sum += mr_mix64((uint64_t)at[i].key << 32 | at[i].number);
    }
    mr_big_sort(at, n, sizeof *at, by_key);
    for (uint64_t i = 0; i < n; i++) {
        sum -= mr_mix64((uint64_t)at[i].key << 32 | at[i].number);
        if (i > 0 && (at[i].key < at[i - 1].key ||
                      (at[i].key == at[i - 1].key && at[i].number < at[i - 1].number)))
            fail_msg("%" PRIu64 " of %" PRIu64 " is out of order", i, n);
    }
    assert_int_equal(sum, 0); /* the same items */
    mr_big_free(at);
}

static void test_sort(void **state)
{
    static const uint64_t lengths[] = {0, 1, 2, 3, 1000, 40001};
    (void)state;
    for (int file = 0; file < 2; file++) {
        if (file)
            in_files();
        for (size_t l = 0; l < MR_COUNT(lengths); l++)
            for (uint64_t shuffled = 0; shuffled <= 100; shuffled += 50) {
                check_sorted(lengths[l], 3, shuffled);
                check_sorted(lengths[l], UINT32_MAX, shuffled);
            }
        usual();
    }
}

static char *advice_of(const char *name)
{
    struct mr_recording *rec = fixture(PATH, name, NULL);
    struct mr_advice *advice = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    fprintf(to, "%s\n", mr_advice_summary(advice));
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        fprintf(to, "%s %d %.17g %.17g %s %s\n", f->title, f->verdict, f->saving_ms, f->confidence,
                f->why, f->advice ? f->advice : "");
        if (f->evidence)
            mr_table_write_csv(f->evidence, to);
    }
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    fclose(to);
    return text;
}

static void test_same_advice(void **state)
{
    static const char *const names[] = {"mnist_w0", "mnist_w2", "mnist_w2pin", "cupy"};
    (void)state;
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        char *memory = advice_of(names[i]);
        in_files();
        char *file = advice_of(names[i]);
        usual();
        assert_true(strlen(memory) > 1000);
        assert_string_equal(memory, file);
        free(memory);
        free(file);
    }
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_same_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
