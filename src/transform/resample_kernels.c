/*
 * The inner loops of resampling u8. A weight of 23 bits and a sign is split in two of 16, so that the processor's products
 * of 16-bit pairs can be used and the sum is still exact: sum(p * w) = 2048 * sum(p * high) + sum(p * low).
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

static void across_any(const struct mr_taps *taps, const uint8_t *in, uint8_t *out, uint32_t channels)
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
MR_CLONES static void down_any(const uint8_t *const *row, const int16_t *high, const int16_t *low, uint32_t n,
                               uint8_t *out, uint64_t at, uint64_t bytes)
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

/* 4 pixels of `channels` bytes -> pairs of neighbouring pixels' channels as 16-bit numbers: pixels 0 and 1 in the lower
 * lane, 2 and 3 in the upper. */
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
    return _mm256_permutevar8x32_epi32(_mm256_set1_epi64x(four), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

AVX2 static inline uint32_t finish_pixel(__m256i high, __m256i low)
{
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, 11), low);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_srai_epi32(_mm_add_epi32(s, _mm_set1_epi32(HALF)), 22);
    s = _mm_packs_epi32(s, s);
    return (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(s, s));
}

AVX2 static void across_avx2(const struct mr_taps *taps, const uint8_t *const in[4], uint8_t *const out[4],
                             uint32_t channels)
{
    __m256i mask = pair_mask(channels);
    for (uint64_t i = 0; i < taps->n; i++) {
        const int16_t *high = taps->high + i * taps->room, *low = taps->low + i * taps->room;
        uint64_t at = (uint64_t)taps->first[i] * channels;
        __m256i h[4], l[4];
        for (int r = 0; r < 4; r++)
            h[r] = l[r] = _mm256_setzero_si256();
        for (uint32_t t = 0; t < taps->count[i]; t += 4, at += 4 * (uint64_t)channels) {
            __m256i wh = spread_weights(high + t), wl = spread_weights(low + t);
            for (int r = 0; r < 4; r++) {
                __m128i bytes = _mm_loadu_si128((const __m128i *)(in[r] + at));
                __m256i p = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), mask);
                h[r] = _mm256_add_epi32(h[r], _mm256_madd_epi16(p, wh));
                l[r] = _mm256_add_epi32(l[r], _mm256_madd_epi16(p, wl));
            }
        }
        for (int r = 0; r < 4; r++) {
            uint32_t pixel = finish_pixel(h[r], l[r]);
            memcpy(out[r] + i * channels, &pixel, 4);
        }
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

/* 16 bytes of each row. */
AVX2 static inline __m128i down_sixteen(const uint8_t *const *row, const int16_t *high, const int16_t *low, uint32_t n,
                                        uint64_t at)
{
    __m256i h0 = _mm256_setzero_si256(), h1 = h0, l0 = h0, l1 = h0;
    for (uint32_t t = 0; t < n; t += 2) {
        __m128i a = _mm_loadu_si128((const __m128i *)(row[t] + at));
        __m128i b = _mm_loadu_si128((const __m128i *)(row[t + 1 < n ? t + 1 : t] + at));
        __m256i p0 = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
        __m256i p1 = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
        __m256i wh = weight_pair(high, t, n), wl = weight_pair(low, t, n);
        h0 = _mm256_add_epi32(h0, _mm256_madd_epi16(p0, wh));
        h1 = _mm256_add_epi32(h1, _mm256_madd_epi16(p1, wh));
        l0 = _mm256_add_epi32(l0, _mm256_madd_epi16(p0, wl));
        l1 = _mm256_add_epi32(l1, _mm256_madd_epi16(p1, wl));
    }
    __m256i words = _mm256_packs_epi32(finish_eight(h0, l0), finish_eight(h1, l1));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

AVX2 static void down_avx2(const uint8_t *const *row, const int16_t *high, const int16_t *low, uint32_t n, uint8_t *out,
                           uint64_t bytes)
{
    uint64_t at = 0;
    for (; at + 16 <= bytes; at += 16)
        _mm_storeu_si128((__m128i *)(out + at), down_sixteen(row, high, low, n, at));
    if (at < bytes) {
        uint8_t last[16];
        _mm_storeu_si128((__m128i *)last, down_sixteen(row, high, low, n, at));
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

void mr_resample_across(const struct mr_taps *taps, const uint8_t *const in[4], uint8_t *const out[4],
                        uint32_t channels)
{
    if (channels <= 4 && has_avx2()) {
        across_avx2(taps, in, out, channels);
        return;
    }
    for (int r = 0; r < 4; r++)
        across_any(taps, in[r], out[r], channels);
}

void mr_resample_down(const uint8_t *const *row, const int16_t *high, const int16_t *low, uint32_t n, uint8_t *out,
                      uint64_t bytes)
{
    if (has_avx2())
        down_avx2(row, high, low, n, out, bytes);
    else
        down_any(row, high, low, n, out, 0, bytes);
}
