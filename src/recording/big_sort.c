/* Sorting in runs, which are merged in pairs: all memory is read and written from front to back. */
#include "recording/big.h"

#include "base/base.h"

#include <string.h>

struct order {
    size_t size;
    int (*compare)(const void *, const void *);
};

/* Where the ascending run that begins at `from` ends. */
static uint64_t run_end(const struct order *by, const char *items, uint64_t from, uint64_t n)
{
    while (++from < n && by->compare(items + (from - 1) * by->size, items + from * by->size) <= 0)
        continue;
    return MR_MIN(from, n);
}

/* Merges runs in pairs into `to`; returns how many are left. */
static uint64_t merge_pairs(const struct order *by, const char *items, char *to, uint64_t n)
{
    uint64_t n_runs = 0;
    for (uint64_t begin = 0; begin < n; n_runs++) {
        uint64_t x = begin, middle = run_end(by, items, begin, n);
        uint64_t y = middle, end = middle < n ? run_end(by, items, middle, n) : n;
        for (; begin < end; begin++) {
            bool first = y == end || (x < middle &&
                                      by->compare(items + x * by->size, items + y * by->size) <= 0);
            memcpy(to + begin * by->size, items + (first ? x++ : y++) * by->size, by->size);
        }
    }
    return n_runs;
}

void mr_big_sort(void *items, uint64_t n, size_t size, int (*compare)(const void *, const void *))
{
    const struct order by = {size, compare};
    if (n < 2 || run_end(&by, items, 0, n) == n)
        return;
    char *spare = mr_big_alloc("sorting", n, size), *from = items, *to = spare;
    if (!spare) {
        qsort(items, n, size, compare);
        return;
    }
    for (uint64_t n_runs = 2; n_runs > 1;) {
        n_runs = merge_pairs(&by, from, to, n);
        char *held = from;
        from = to;
        to = held;
    }
    if (from != items)
        memcpy(items, from, n * size);
    mr_big_free(spare);
}
