/*
 * Arrays that analyses make of a recording's events, which may not fit in memory together.
 *
 * Until all of them have MR_BIG_MEMORY bytes they come from malloc(). Larger ones after that are
 * mappings of unnamed temporary files in TMPDIR or /var/tmp, whose pages the system can write out
 * and drop. While there are such mappings, a thread drops their pages from the process whenever
 * MR_BIG_RESIDENT bytes are resident, so that an analysis of any size stays within a few hundred
 * MiB. Where no temporary file can be made, the array comes from malloc().
 *
 *     uint32_t *list = mr_big_alloc("a list", n, sizeof *list);
 *     ...
 *     mr_big_free(list);
 *
 * Never pass such an array to free() or realloc(). Threads: all calls, from any thread; an array
 * belongs to one thread at a time.
 */
#ifndef MR_RECORDING_BIG_H
#define MR_RECORDING_BIG_H

#include <stddef.h>
#include <stdint.h>

#define MR_BIG_MEMORY   (320ull << 20)
#define MR_BIG_RESIDENT (160ull << 20)
#define MR_BIG_LEAST    (1ull << 20) /* smaller arrays stay in memory */

/* n elements of `size` bytes, all 0; n may be 0. what: for the error. Returns NULL: -ENOMEM, with
 * the error set. */
void *mr_big_alloc(const char *what, uint64_t n, size_t size);
/* As mr_grow(), of an array that is NULL or of mr_big_alloc() or mr_big_grow(): room for `want`
 * elements. New ones are not set. Returns 0 or -ENOMEM, with the error set; the array stays. */
int mr_big_grow(const char *what, void *array, uint64_t *room, uint64_t want, size_t size);
void mr_big_free(void *array);

/* Sorts as qsort() does, but stable and without memory of its own beyond a big array; quick where
 * much is sorted already. items: any memory. */
void mr_big_sort(void *items, uint64_t n, size_t size, int (*compare)(const void *, const void *));

/* For tests: other limits; 0: the usual ones. Only while there are no big arrays. */
void mr_big_limit(uint64_t memory, uint64_t resident, uint64_t least);
/* Bytes of temporary files that are mapped now. */
uint64_t mr_big_mapped(void);

#endif
