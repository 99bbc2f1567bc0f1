/*
 * Copies whose target a copy engine reads next.
 *
 * The memory of a row was written last by another worker, on another core: an ordinary store first
 * fetches the cache line from there. A streaming store does not, and a copy engine reads memory
 * faster than a core's cache. What a program reads itself is better left in the caches.
 */
#include "base/copy.h"

#define LEAST 1024 /* bytes; shorter rows gain nothing */

#ifdef __SSE2__
#include <emmintrin.h>

/* Whole cache lines. Returns where it ended. */
static uint64_t stream(unsigned char *to, const unsigned char *from, uint64_t n)
{
    uint64_t at = -(uintptr_t)to & (MR_CACHE_LINE - 1);
    memcpy(to, from, at);
    for (; at + MR_CACHE_LINE <= n; at += MR_CACHE_LINE)
        for (uint64_t i = at; i < at + MR_CACHE_LINE; i += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(to + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    return at;
}

void mr_copy_fence(void)
{
    _mm_sfence();
}
#else
static uint64_t stream(unsigned char *to, const unsigned char *from, uint64_t n)
{
    (void)to, (void)from, (void)n;
    return 0;
}

void mr_copy_fence(void)
{
}
#endif

void mr_copy_past_caches(void *to, const void *from, uint64_t n)
{
    uint64_t at = n >= LEAST ? stream(to, from, n) : 0;
    memcpy((unsigned char *)to + at, (const unsigned char *)from + at, n - at);
}
