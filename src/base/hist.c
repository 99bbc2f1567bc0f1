/* Histogram of durations. Value v < 16 has bucket v; above, 16 buckets per octave, by the four bits
 * after the leading one. */
#include "base/base.h"

static unsigned bucket_of(uint64_t v)
{
    if (v < 16)
        return (unsigned)v;
    unsigned octave = 63 - (unsigned)__builtin_clzll(v);
    return (octave - 3) * 16 + (unsigned)(v >> (octave - 4) & 15);
}

static uint64_t upper_edge(unsigned bucket)
{
    if (bucket < 16)
        return bucket;
    unsigned octave = bucket / 16 + 3, sub = bucket % 16;
    uint64_t width = 1ull << (octave - 4);
    return (16 + (uint64_t)sub) * width + (width - 1);
}

/* There is one writer, so plain loads and stores suffice. max is stored first: a reader that sees
 * the bucket also sees its max. */
void mr_hist_add(struct mr_hist *h, uint64_t ns)
{
    if (ns > atomic_load_explicit(&h->max, memory_order_relaxed))
        atomic_store_explicit(&h->max, ns, memory_order_relaxed);
    _Atomic uint64_t *bucket = &h->bucket[bucket_of(ns)];
    atomic_store_explicit(bucket, atomic_load_explicit(bucket, memory_order_relaxed) + 1,
                          memory_order_release);
    atomic_store_explicit(&h->n, atomic_load_explicit(&h->n, memory_order_relaxed) + 1,
                          memory_order_release);
}

uint64_t mr_hist_quantile(const struct mr_hist *h, double q)
{
    uint64_t n = atomic_load_explicit(&h->n, memory_order_acquire);
    if (n == 0)
        return 0;
    double want = q * (double)n;
    uint64_t rank = want <= 1           ? 1
                    : want >= (double)n ? n
                                        : (uint64_t)want + ((double)(uint64_t)want < want);
    uint64_t seen = 0;
    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        seen += atomic_load_explicit(&h->bucket[i], memory_order_acquire);
        if (seen >= rank) {
            uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);
            return MR_MIN(upper_edge(i), max);
        }
    }
    return atomic_load_explicit(&h->max, memory_order_relaxed);
}
