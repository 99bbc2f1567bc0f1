/* SHA-256 and HMAC. A few hundred bytes a request: speed does not matter. */
#include "storage/s3/sha256.h"

#include <string.h>

#define LENGTH_AT (MR_SHA256_BLOCK - 8) /* where the last block has the message's length */

/* The fractional parts of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void expand(const uint8_t block[MR_SHA256_BLOCK], uint32_t w[64])
{
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3,
                 b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
}

static void add_block(uint32_t h[8], const uint8_t block[MR_SHA256_BLOCK])
{
    uint32_t w[64], v[8];
    expand(block, w);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25),
                 choice = (v[4] & v[5]) ^ (~v[4] & v[6]), one = v[7] + s1 + choice + k[i] + w[i],
                 s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22),
                 majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + s0 + majority;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

void mr_sha256_begin(struct mr_sha256 *s)
{
    *s = (struct mr_sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                  0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void mr_sha256_add(struct mr_sha256 *s, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t at = s->bytes % MR_SHA256_BLOCK, n = MR_SHA256_BLOCK - at;
        n = n < bytes ? n : bytes;
        memcpy(s->block + at, from, n);
        s->bytes += n;
        from += n;
        bytes -= n;
        if (at + n == MR_SHA256_BLOCK)
            add_block(s->h, s->block);
    }
}

void mr_sha256_end(struct mr_sha256 *s, uint8_t out[MR_SHA256_BYTES])
{
    static const uint8_t pad[MR_SHA256_BLOCK] = {0x80};
    uint64_t bits = s->bytes * 8;
    size_t at = s->bytes % MR_SHA256_BLOCK;
    mr_sha256_add(s, pad, at < LENGTH_AT ? LENGTH_AT - at : MR_SHA256_BLOCK + LENGTH_AT - at);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    mr_sha256_add(s, length, sizeof length);
    for (int i = 0; i < MR_SHA256_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void mr_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t out[MR_SHA256_BYTES])
{
    uint8_t pad[MR_SHA256_BLOCK] = {0};
    struct mr_sha256 s;
    memcpy(pad, key, key_bytes);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36;
    mr_sha256_begin(&s);
    mr_sha256_add(&s, pad, sizeof pad);
    mr_sha256_add(&s, data, bytes);
    mr_sha256_end(&s, out);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    mr_sha256_begin(&s);
    mr_sha256_add(&s, pad, sizeof pad);
    mr_sha256_add(&s, out, MR_SHA256_BYTES);
    mr_sha256_end(&s, out);
    explicit_bzero(pad, sizeof pad);
    explicit_bzero(&s, sizeof s);
}

void mr_sha256_hex(const uint8_t sum[MR_SHA256_BYTES], char out[2 * MR_SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < MR_SHA256_BYTES; i++) {
        out[2 * i] = digits[sum[i] >> 4];
        out[2 * i + 1] = digits[sum[i] & 15];
    }
    out[2 * MR_SHA256_BYTES] = 0;
}
