/*
 * CRC-32C. The instruction of x86 (SSE 4.2) takes 8 bytes a cycle but its result comes three cycles
 * later, so three blocks are summed at once; the sum of a block is then moved behind the next one's
 * by a table, since a CRC is linear. Other processors use 8 tables of 256 entries.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* bits reversed */
#define BLOCK      1024u       /* bytes of each of the three */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t table[8][256];  /* [k]: a byte with k bytes of 0 behind it */
static uint32_t behind[4][256]; /* [k]: byte k of a sum with BLOCK bytes of 0 behind it */

static uint32_t zero_behind(uint32_t crc)
{
    return table[0][crc & 0xff] ^ crc >> 8;
}

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        table[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++)
            table[k][i] = zero_behind(table[k - 1][i]);
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i << 8 * k;
            for (unsigned b = 0; b < BLOCK; b++)
                crc = zero_behind(crc);
            behind[k][i] = crc;
        }
}

static uint32_t add_plain(uint32_t crc, const unsigned char *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff] ^ table[5][crc >> 16 & 0xff] ^
              table[4][crc >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^
              table[0][p[7]];
    }
    for (; n > 0; p++, n--)
        crc = table[0][(crc ^ *p) & 0xff] ^ crc >> 8;
    return crc;
}

uint32_t mr_crc32c_plain(const void *data, size_t n)
{
    pthread_once(&once, make_tables);
    return ~add_plain(~0u, data, n);
}

#if defined(__x86_64__)
#include <immintrin.h>

static uint32_t move_behind(uint32_t crc)
{
    return behind[0][crc & 0xff] ^ behind[1][crc >> 8 & 0xff] ^ behind[2][crc >> 16 & 0xff] ^
           behind[3][crc >> 24];
}

static uint64_t load(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

__attribute__((target("sse4.2"))) static uint32_t add_fast(uint32_t crc, const unsigned char *p,
                                                           size_t n)
{
    uint64_t a = crc;
    while (n >= 3 * BLOCK) {
        uint64_t b = 0, c = 0;
        for (size_t i = 0; i < BLOCK; i += 8) {
            a = _mm_crc32_u64(a, load(p + i));
            b = _mm_crc32_u64(b, load(p + BLOCK + i));
            c = _mm_crc32_u64(c, load(p + 2 * (size_t)BLOCK + i));
        }
        a = move_behind((uint32_t)a) ^ b;
        a = move_behind((uint32_t)a) ^ c;
        p += 3 * (size_t)BLOCK;
        n -= 3 * (size_t)BLOCK;
    }
    for (; n >= 8; p += 8, n -= 8)
        a = _mm_crc32_u64(a, load(p));
    for (; n > 0; p++, n--)
        a = _mm_crc32_u8((uint32_t)a, *p);
    return (uint32_t)a;
}

static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

static uint32_t add_fast(uint32_t crc, const unsigned char *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        crc = __crc32cd(crc, word);
    }
    for (; n > 0; p++, n--)
        crc = __crc32cb(crc, *p);
    return crc;
}

static bool has_instruction(void)
{
    return true;
}
#else
static uint32_t add_fast(uint32_t crc, const unsigned char *p, size_t n)
{
    return add_plain(crc, p, n);
}

static bool has_instruction(void)
{
    return false;
}
#endif

uint32_t mr_crc32c(const void *data, size_t n)
{
    pthread_once(&once, make_tables);
    return ~(has_instruction() ? add_fast : add_plain)(~0u, data, data ? n : 0);
}
