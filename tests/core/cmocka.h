/*
 * As much of cmocka as the unit tests of the core build use: cmocka itself is installed for glibc
 * only. A failed check ends the program with status 1; skip() ends its test.
 */
#ifndef TEST_CORE_CMOCKA_H
#define TEST_CORE_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state), (*teardown)(void **state);
};

static jmp_buf core_skipped;

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f, NULL, NULL                                                                          \
    }
#define cmocka_unit_test_setup_teardown(f, up, down)                                               \
    {                                                                                              \
#f, f, up, down                                                                            \
    }
#define cmocka_run_group_tests(tests, up, down)                                                    \
    core_run(tests, sizeof(tests) / sizeof *(tests), up, down)

#define print_message(...) fprintf(stderr, __VA_ARGS__)
#define print_error(...)   fprintf(stderr, __VA_ARGS__)
#define skip()             longjmp(core_skipped, 1)
#define fail_msg(...)                                                                              \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__),                 \
     fputc('\n', stderr), exit(1))
#define core_check(ok, text)   ((ok) ? (void)0 : fail_msg("%s", text))

#define NUMBER(x)              ((long long)(x))

#define assert_true(x)         core_check(x, #x)
#define assert_false(x)        core_check(!(x), "not: " #x)
#define assert_null(x)         core_check((x) == NULL, #x " is NULL")
#define assert_non_null(x)     core_check((x) != NULL, #x " is not NULL")
#define assert_ptr_equal(a, b) core_check((const void *)(a) == (const void *)(b), #a " is " #b)
#define assert_ptr_not_equal(a, b)                                                                 \
    core_check((const void *)(a) != (const void *)(b), #a " is not " #b)
#define assert_int_equal(a, b)           core_equal(__FILE__, __LINE__, #a, NUMBER(a), NUMBER(b))
#define assert_int_not_equal(a, b)       core_check(NUMBER(a) != NUMBER(b), #a " is not " #b)
#define assert_in_range(x, low, high)    core_range(__FILE__, __LINE__, x, low, high)
#define assert_memory_equal(a, b, n)     core_check(!memcmp(a, b, n), #a " has the bytes of " #b)
#define assert_memory_not_equal(a, b, n) core_check(memcmp(a, b, n), #a " has other bytes than " #b)
#define assert_string_equal(a, b)        core_text(__FILE__, __LINE__, a, b)
#define assert_string_not_equal(a, b)    core_check(strcmp(a, b), #a " is not " #b)

#define _fail(file, line)                core_equal(file, line, "failed", 1, 0)
#define _assert_int_equal(a, b, file, line)                                                        \
    core_equal(file, line, "a number", (long long)(a), (long long)(b))

static inline void core_equal(const char *file, int line, const char *what, long long a,
                              long long b)
{
    if (a == b)
        return;
    fprintf(stderr, "%s:%d: %s: %lld, expected %lld\n", file, line, what, a, b);
    exit(1);
}

static inline void core_range(const char *file, int line, uint64_t x, uint64_t low, uint64_t high)
{
    if (x >= low && x <= high)
        return;
    fprintf(stderr, "%s:%d: %llu, expected %llu to %llu\n", file, line, (unsigned long long)x,
            (unsigned long long)low, (unsigned long long)high);
    exit(1);
}

static inline void core_text(const char *file, int line, const char *a, const char *b)
{
    if (strcmp(a, b) == 0)
        return;
    fprintf(stderr, "%s:%d: \"%s\", expected \"%s\"\n", file, line, a, b);
    exit(1);
}

static inline int core_run(const struct CMUnitTest *test, size_t n, int (*up)(void **),
                           int (*down)(void **))
{
    void *group = NULL;
    if (up && up(&group))
        fail_msg("the group's setup failed");
    for (volatile size_t i = 0; i < n; i++) {
        void *state = group;
        fprintf(stderr, "%s\n", test[i].name);
        if (test[i].setup && test[i].setup(&state))
            fail_msg("the setup failed");
        if (setjmp(core_skipped) == 0)
            test[i].test(&state);
        else
            fprintf(stderr, "%s: skipped\n", test[i].name);
        if (test[i].teardown && test[i].teardown(&state))
            fail_msg("the teardown failed");
    }
    return down ? down(&group) : 0;
}

#endif
