/* White-box. mr_grow(): what was there stays, rooms grow by a factor, what no memory holds is an
 * error. */
#include "base/base.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void elements_stay(void **state)
{
    (void)state;
    uint32_t *items = NULL;
    uint64_t room = 0, moves = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t before = room;
        assert_int_equal(mr_grow("numbers", &items, &room, i + 1ull, sizeof *items), 0);
        assert_true(room > i);
        moves += room != before;
        items[i] = i;
    }
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(items[i], i);
    assert_true(moves < 25); /* log 1,563 to the base of 1.5: 19 */
    assert_true(room < 150000);
    free(items);
}

static void one_step_may_be_large(void **state)
{
    (void)state;
    char *bytes = NULL;
    uint64_t room = 0;
    assert_int_equal(mr_grow("bytes", &bytes, &room, 0, 1), 0);
    assert_null(bytes);
    assert_int_equal(mr_grow("bytes", &bytes, &room, 70000, 1), 0);
    assert_int_equal(room, 70000);
    memset(bytes, 1, 70000);
    free(bytes);
}

/* The array and its room stay as they were, so that the caller can free it. */
static void too_much_is_an_error(void **state)
{
    (void)state;
    static const uint64_t wants[] = {UINT64_MAX, UINT64_MAX / 8 + 2, INT64_MAX / 8 + 1ull};
    double *items = NULL, *kept;
    uint64_t room = 0;
    assert_int_equal(mr_grow("numbers", &items, &room, 3, sizeof *items), 0);
    kept = items;
    uint64_t before = room;
    for (size_t i = 0; i < MR_COUNT(wants); i++) {
        assert_int_equal(mr_grow("numbers", &items, &room, wants[i], sizeof *items), -ENOMEM);
        assert_non_null(strstr(mr_last_error(), "numbers: out of memory"));
        assert_ptr_equal(items, kept);
        assert_int_equal(room, before);
    }
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_stay),
        cmocka_unit_test(one_step_may_be_large),
        cmocka_unit_test(too_much_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
