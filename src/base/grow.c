/* Arrays that grow. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 256

int mr_grow(const char *what, void *array, uint64_t *room, uint64_t want, size_t size)
{
    if (!what || !array || !room || size == 0)
        return mr_error_null("mr_grow", "a name, an array, its capacity and the size of elements");
    if (want <= *room)
        return 0;
    /* Grow by half: an array of n elements is moved O(log n) times, and at most a third of it is
     * unused. */
    uint64_t more = MR_MAX(want, FIRST_BYTES / size), half = 0, bytes = UINT64_MAX;
    if (mr_add(*room, *room / 2, &half))
        more = MR_MAX(more, half);
    if (!mr_mul(more, size, &bytes) || bytes > PTRDIFF_MAX)
        return mr_error_nomem(what, bytes);
    void *items;
    memcpy(&items, array, sizeof items); /* array points to a pointer of any type */
    void *grown = realloc(items, bytes);
    if (!grown)
        return mr_error_nomem(what, bytes);
    memcpy(array, &grown, sizeof grown);
    *room = more;
    /* cppcheck-suppress memleak ; stored through array */
    return 0;
}
