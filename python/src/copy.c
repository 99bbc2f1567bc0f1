/*
 * Copies of a worker's rows.
 *
 * The memory of a row was usually written last by another worker, on another core. An ordinary
 * store first fetches the cache line from there. A streaming store does not, and leaves the
 * worker's cache to its samples. This pays off for rows that a copy engine reads. A program that
 * reads them itself loses: they come from memory instead of another core's cache. src/base/copy.c
 * does the same for the loader's own rows; this module sees public headers only.
 */
#include "view.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LEAST = 1024 /* bytes; shorter rows gain nothing */ };

static int streams;

void core_copy_stream(int on)
{
    streams = on;
}

#ifdef __SSE2__
static size_t stream(char *to, const char *from, size_t n)
{
    size_t at = -(uintptr_t)to & 63;
    memcpy(to, from, at);
    for (; at + 64 <= n; at += 64)
        for (size_t i = at; i < at + 64; i += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    return at;
}

void core_copy_fence(void)
{
    if (streams)
        _mm_sfence();
}
#else
static size_t stream(char *to, const char *from, size_t n)
{
    (void)to, (void)from, (void)n;
    return 0;
}

void core_copy_fence(void)
{
}
#endif

void core_copy(void *to, const void *from, size_t n)
{
    size_t at = streams && n >= LEAST ? stream(to, from, n) : 0;
    memcpy((char *)to + at, (const char *)from + at, n - at);
}
