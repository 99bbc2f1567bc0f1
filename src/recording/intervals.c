/* Unions, intersections, differences and measures of sets of time. */
#include "recording/intervals.h"

#include "base/base.h"
#include "recording/big.h"

#include <string.h>

void mr_intervals_add(struct mr_intervals *list, uint64_t start_ns, uint64_t end_ns)
{
    if (end_ns <= start_ns || list->lost)
        return;
    if (mr_big_grow("intervals", &list->at, &list->capacity, list->n + 1, sizeof *list->at) < 0) {
        list->lost = true;
        return;
    }
    list->at[list->n++] = (struct mr_interval){start_ns, end_ns};
}

static int by_start(const void *a, const void *b)
{
    const struct mr_interval *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

void mr_intervals_unite(struct mr_intervals *list)
{
    size_t n = 0;
    if (list->n == 0)
        return;
    mr_big_sort(list->at, list->n, sizeof *list->at, by_start);
    for (size_t i = 1; i < list->n; i++) {
        if (list->at[i].start_ns <= list->at[n].end_ns)
            list->at[n].end_ns = MR_MAX(list->at[n].end_ns, list->at[i].end_ns);
        else
            list->at[++n] = list->at[i];
    }
    list->n = n + 1;
}

void mr_intervals_free(struct mr_intervals *list)
{
    mr_big_free(list->at);
    *list = (struct mr_intervals){0};
}

void mr_intervals_or(const struct mr_intervals *a, const struct mr_intervals *b,
                     struct mr_intervals *out)
{
    size_t i = 0, j = 0;
    while (i < a->n || j < b->n) {
        bool first = j == b->n || (i < a->n && a->at[i].start_ns <= b->at[j].start_ns);
        const struct mr_interval *x = first ? &a->at[i++] : &b->at[j++];
        mr_intervals_add(out, x->start_ns, x->end_ns);
    }
    mr_intervals_unite(out);
    out->lost |= a->lost | b->lost;
}

void mr_intervals_and(const struct mr_intervals *a, const struct mr_intervals *b,
                      struct mr_intervals *out)
{
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        const struct mr_interval *x = &a->at[i], *y = &b->at[j];
        mr_intervals_add(out, MR_MAX(x->start_ns, y->start_ns), MR_MIN(x->end_ns, y->end_ns));
        if (x->end_ns < y->end_ns)
            i++;
        else
            j++;
    }
    out->lost |= a->lost | b->lost;
}

void mr_intervals_without(const struct mr_intervals *a, const struct mr_intervals *b,
                          struct mr_intervals *out)
{
    for (size_t i = 0, j = 0; i < a->n; i++) {
        uint64_t at = a->at[i].start_ns, end = a->at[i].end_ns;
        while (j < b->n && b->at[j].end_ns <= at)
            j++;
        for (size_t k = j; k < b->n && b->at[k].start_ns < end; k++) {
            mr_intervals_add(out, at, b->at[k].start_ns);
            at = b->at[k].end_ns;
        }
        mr_intervals_add(out, at, end);
    }
    out->lost |= a->lost | b->lost;
}

uint64_t mr_intervals_measure(const struct mr_intervals *list)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < list->n; i++)
        sum += list->at[i].end_ns - list->at[i].start_ns;
    return sum;
}

uint64_t mr_intervals_common(const struct mr_intervals *a, const struct mr_intervals *b)
{
    uint64_t sum = 0;
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        const struct mr_interval *x = &a->at[i], *y = &b->at[j];
        uint64_t start = MR_MAX(x->start_ns, y->start_ns), end = MR_MIN(x->end_ns, y->end_ns);
        sum += end > start ? end - start : 0;
        if (x->end_ns < y->end_ns)
            i++;
        else
            j++;
    }
    return sum;
}

size_t mr_intervals_find(const struct mr_intervals *list, uint64_t time_ns)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (list->at[mid].end_ns > time_ns)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

uint64_t mr_intervals_within(const struct mr_intervals *list, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t sum = 0;
    for (size_t i = mr_intervals_find(list, from_ns); i < list->n && list->at[i].start_ns < to_ns;
         i++) {
        uint64_t start = MR_MAX(list->at[i].start_ns, from_ns),
                 end = MR_MIN(list->at[i].end_ns, to_ns);
        sum += end > start ? end - start : 0;
    }
    return sum;
}
