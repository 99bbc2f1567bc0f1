/* White-box. Error texts of each thread, codes, and the log. */
#include "base/base.h"
#include "unit.h"

#include <errno.h>

static void every_code_has_a_text(void **state)
{
    (void)state;
#define X(name, code, text)                                                                        \
    assert_string_equal(mr_strerror(name), text);                                                  \
    assert_int_equal(name, code);
    MR_ERRORS(X)
#undef X
    assert_string_equal(mr_strerror(-ENOENT), strerror(ENOENT));
    assert_string_equal(mr_strerror(0), "success");
    static const int odd[] = {1, 12345, -9999, -20000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < MR_COUNT(odd); i++)
        assert_non_null(mr_strerror(odd[i]));
}

static void set_returns_its_code_and_cuts_long_texts(void **state)
{
    (void)state;
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(mr_error_set(MR_EFORMAT, "%s: %d", "file", 7), MR_EFORMAT);
    assert_string_equal(mr_last_error(), "file: 7");
    assert_int_equal(mr_error_set(-EIO, "%s", longer), -EIO);
    assert_int_equal(strlen(mr_last_error()), 1023);
    assert_int_equal(mr_error_errno(ENOENT, "open %s", "x"), -ENOENT);
    assert_string_equal(mr_last_error(), "open x: No such file or directory");
    assert_int_equal(mr_error_nomem("buffer", 77), -ENOMEM);
    assert_string_equal(mr_last_error(), "buffer: out of memory (77 bytes asked for)");
}

/* A text may be built from the last one. */
static void the_last_text_may_be_an_argument(void **state)
{
    (void)state;
    mr_error_set(-EIO, "inner");
    mr_error_set(-EIO, "outer: %s", mr_last_error());
    assert_string_equal(mr_last_error(), "outer: inner");
}

static void *fail_elsewhere(void *kept)
{
    if (mr_last_error()[0])
        return kept; /* another thread's text must not show here */
    mr_error_keep(mr_error_set(MR_ETRUNCATED, "elsewhere"), kept);
    return NULL;
}

static void threads_have_their_own_and_can_hand_it_on(void **state)
{
    (void)state;
    struct mr_error_kept kept;
    pthread_t thread;
    void *result;
    mr_error_set(-EIO, "here");
    assert_int_equal(mr_thread_start(&thread, "a thread with a long name", fail_elsewhere, &kept),
                     0);
    pthread_join(thread, &result);
    assert_null(result);
    assert_string_equal(mr_last_error(), "here");
    assert_int_equal(mr_error_put(&kept), MR_ETRUNCATED);
    assert_string_equal(mr_last_error(), "elsewhere");
}

static char logged[256];
static int n_logged;

static void take(void *user, enum mr_log_level level, const char *text)
{
    assert_ptr_equal(user, logged);
    assert_int_equal(level, MR_LOG_WARNING);
    snprintf(logged, sizeof logged, "%s", text);
    n_logged++;
}

static void the_log_goes_where_it_is_sent(void **state)
{
    (void)state;
    mr_log(MR_LOG_WARNING, "nobody listens");
    mr_log_set(take, logged);
    mr_log(MR_LOG_WARNING, "%d%%", 50);
    mr_log_set(NULL, NULL);
    mr_log(MR_LOG_WARNING, "nobody listens again");
    assert_int_equal(n_logged, 1);
    assert_string_equal(logged, "50%");
}

static void sums_and_products_tell_overflow(void **state)
{
    (void)state;
    uint64_t out = 5;
    assert_false(mr_add(UINT64_MAX, 1, &out));
    assert_false(mr_mul(1ull << 32, 1ull << 32, &out));
    assert_int_equal(out, 5);
    assert_true(mr_add(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
    assert_true(mr_mul(1ull << 32, (1ull << 32) - 1, &out) && out == UINT64_MAX - UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_text),
        cmocka_unit_test(set_returns_its_code_and_cuts_long_texts),
        cmocka_unit_test(the_last_text_may_be_an_argument),
        cmocka_unit_test(threads_have_their_own_and_can_hand_it_on),
        cmocka_unit_test(the_log_goes_where_it_is_sent),
        cmocka_unit_test(sums_and_products_tell_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
