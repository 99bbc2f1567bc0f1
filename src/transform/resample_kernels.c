/*
 * The inner loops of resampling u8. A weight of 23 bits and a sign is split into two of 16, so that
 * the processor's products of 16-bit pairs can be used and the sum is still exact: sum(p * w) =
 * 2048 * sum(p * high) + sum(p * low).
 */
#include "transform/resample.h"

#include <string.h>

#define HALF (1 << 21)

static uint8_t clip(int32_t sum)
{
    sum >>= 22;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static int32_t weight(const int16_t *high, const int16_t *low, uint32_t t)
{
    return high[t] * 2048 + low[t];
}

static void across_any(const struct mr_taps *taps, const uint8_t *in, uint8_t *out,
                       uint32_t channels)
{
    for (uint64_t i = 0; i < taps->n; i++) {
        const int16_t *high = taps->high + i * taps->room, *low = taps->low + i * taps->room;
        const uint8_t *from = in + (uint64_t)taps->first[i] * channels;
        for (uint32_t c = 0; c < channels; c++) {
            int32_t sum = HALF;
            for (uint32_t t = 0; t < taps->count[i]; t++)
                sum += from[t * channels + c] * weight(high, low, t);
            out[i * channels + c] = clip(sum);
        }
    }
}

#define DOWN_BLOCK 512
MR_CLONES static void down_any(const uint8_t *const *row, const int16_t *high, const int16_t *low,
                               uint32_t n, uint8_t *out, uint64_t at, uint64_t bytes)
{
    int32_t sum[DOWN_BLOCK];
    for (; at < bytes; at += DOWN_BLOCK) {
        size_t now = (size_t)MR_MIN(bytes - at, DOWN_BLOCK);
        for (size_t i = 0; i < now; i++)
            sum[i] = HALF;
        for (uint32_t t = 0; t < n; t++) {
            const uint8_t *restrict p = row[t] + at;
            int32_t w = weight(high, low, t);
            for (size_t i = 0; i < now; i++)
                sum[i] += p[i] * w;
        }
        for (size_t i = 0; i < now; i++)
            out[at + i] = clip(sum[i]);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* 4 pixels of `channels` bytes -> pairs of neighbouring pixels' channels as 16-bit numbers: pixels
 * 0 and 1 in the lower lane, 2 and 3 in the upper. */
AVX2 static __m256i pair_mask(uint32_t channels)
{
    int8_t mask[32];
    for (uint32_t k = 0; k < 32; k++) {
        uint32_t lane = k / 16, c = k % 16 / 4, second = k % 4 / 2;
        bool used = c < channels && k % 2 == 0;
        mask[k] = (int8_t)(used ? (2 * lane + second) * channels + c : 0x80);
    }
    return _mm256_loadu_si256((const __m256i *)mask);
}

/* Weights 0 and 1 four times, 2 and 3 four times. */
AVX2 static inline __m256i spread_weights(const int16_t *w)
{
    int64_t four;
    memcpy(&four, w, sizeof four);
    return _mm256_permutevar8x32_epi32(_mm256_set1_epi64x(four),
                                       _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* One pixel of each of 4 rows: sums over two lanes, added, rounded and packed for all rows
 * together. */
AVX2 static inline void finish_four(const __m256i high[4], const __m256i low[4],
                                    uint8_t *const out[4], uint64_t at)
{
    __m256i s[4];
    for (int r = 0; r < 4; r++)
        s[r] = _mm256_add_epi32(_mm256_slli_epi32(high[r], 11), low[r]);
    __m256i a = _mm256_add_epi32(_mm256_permute2x128_si256(s[0], s[1], 0x20),
                                 _mm256_permute2x128_si256(s[0], s[1], 0x31));
    __m256i b = _mm256_add_epi32(_mm256_permute2x128_si256(s[2], s[3], 0x20),
                                 _mm256_permute2x128_si256(s[2], s[3], 0x31));
    __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(a, 22), _mm256_srai_epi32(b, 22));
    /* rows 0 and 2 in the lower lane, 1 and 3 in the upper */
    __m256i bytes = _mm256_packus_epi16(words, words);
    uint64_t even = (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(bytes));
    uint64_t odd = (uint64_t)_mm_cvtsi128_si64(_mm256_extracti128_si256(bytes, 1));
    uint32_t pixel[4] = {(uint32_t)even, (uint32_t)odd, (uint32_t)(even >> 32),
                         (uint32_t)(odd >> 32)};
    for (int r = 0; r < 4; r++)
        memcpy(out[r] + at, &pixel[r], 4);
}

AVX2 static void across_avx2(const struct mr_taps *taps, const uint8_t *const in[4],
                             uint8_t *const out[4], uint32_t channels)
{
    __m256i mask = pair_mask(channels),
            half = _mm256_setr_epi32(HALF, HALF, HALF, HALF, 0, 0, 0, 0);
    for (uint64_t i = 0; i < taps->n; i++) {
        const int16_t *high = taps->high + i * taps->room, *low = taps->low + i * taps->room;
        uint64_t at = (uint64_t)taps->first[i] * channels;
        __m256i h[4], l[4];
        for (int r = 0; r < 4; r++) {
            h[r] = _mm256_setzero_si256();
            l[r] = half;
        }
        for (uint32_t t = 0; t < taps->count[i]; t += 4, at += 4 * (uint64_t)channels) {
            __m256i wh = spread_weights(high + t), wl = spread_weights(low + t);
            for (int r = 0; r < 4; r++) {
                __m128i bytes = _mm_loadu_si128((const __m128i *)(in[r] + at));
                __m256i p = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), mask);
                h[r] = _mm256_add_epi32(h[r], _mm256_madd_epi16(p, wh));
                l[r] = _mm256_add_epi32(l[r], _mm256_madd_epi16(p, wl));
            }
        }
        finish_four(h, l, out, i * channels);
    }
}

AVX2 static inline __m256i finish_eight(__m256i high, __m256i low)
{
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, 11), low);
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), 22);
}

AVX2 static inline __m256i weight_pair(const int16_t *w, uint32_t t, uint32_t n)
{
    uint32_t second = t + 1 < n ? (uint16_t)w[t + 1] : 0;
    return _mm256_set1_epi32((int32_t)(second << 16 | (uint16_t)w[t]));
}

/* 16 bytes of a pair of rows, weighted. */
AVX2 static inline void add_pair(const uint8_t *first, const uint8_t *second, __m256i wh,
                                 __m256i wl, __m256i h[2], __m256i l[2])
{
    __m128i a = _mm_loadu_si128((const __m128i *)first),
            b = _mm_loadu_si128((const __m128i *)second);
    __m256i p0 = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
            p1 = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
    h[0] = _mm256_add_epi32(h[0], _mm256_madd_epi16(p0, wh));
    h[1] = _mm256_add_epi32(h[1], _mm256_madd_epi16(p1, wh));
    l[0] = _mm256_add_epi32(l[0], _mm256_madd_epi16(p0, wl));
    l[1] = _mm256_add_epi32(l[1], _mm256_madd_epi16(p1, wl));
}

AVX2 static inline __m128i finish_sixteen(const __m256i h[2], const __m256i l[2])
{
    __m256i words = _mm256_packs_epi32(finish_eight(h[0], l[0]), finish_eight(h[1], l[1]));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* 32 bytes of each row, so that weights are set up half as often. */
AVX2 static inline void down_block(const uint8_t *const *row, const int16_t *high,
                                   const int16_t *low, uint32_t n, uint64_t at, uint8_t *out)
{
    __m256i zero = _mm256_setzero_si256();
    __m256i h0[2] = {zero, zero}, h1[2] = {zero, zero}, l0[2] = {zero, zero}, l1[2] = {zero, zero};
    for (uint32_t t = 0; t < n; t += 2) {
        const uint8_t *a = row[t] + at, *b = row[t + 1 < n ? t + 1 : t] + at;
        __m256i wh = weight_pair(high, t, n), wl = weight_pair(low, t, n);
        add_pair(a, b, wh, wl, h0, l0);
        add_pair(a + 16, b + 16, wh, wl, h1, l1);
    }
    _mm_storeu_si128((__m128i *)out, finish_sixteen(h0, l0));
    _mm_storeu_si128((__m128i *)(out + 16), finish_sixteen(h1, l1));
}

AVX2 static void down_avx2(const uint8_t *const *row, const int16_t *high, const int16_t *low,
                           uint32_t n, uint8_t *out, uint64_t bytes)
{
    uint64_t at = 0;
    for (; at + 32 <= bytes; at += 32)
        down_block(row, high, low, n, at, out + at);
    if (at < bytes) {
        uint8_t last[32];
        down_block(row, high, low, n, at, last);
        memcpy(out + at, last, bytes - at);
    }
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
static bool has_avx2(void)
{
    return false;
}
#define across_avx2(taps, in, out, channels)     ((void)(in))
#define down_avx2(row, high, low, n, out, bytes) ((void)(row))
#endif

void mr_resample_across(const struct mr_taps *taps, const uint8_t *const in[4],
                        uint8_t *const out[4], uint32_t channels)
{
    if (channels <= 4 && has_avx2()) {
        across_avx2(taps, in, out, channels);
        return;
    }
    for (int r = 0; r < 4; r++)
        across_any(taps, in[r], out[r], channels);
}

void mr_resample_down(const uint8_t *const *row, const int16_t *high, const int16_t *low,
                      uint32_t n, uint8_t *out, uint64_t bytes)
{
    if (has_avx2())
        down_avx2(row, high, low, n, out, bytes);
    else
        down_any(row, high, low, n, out, 0, bytes);
}
