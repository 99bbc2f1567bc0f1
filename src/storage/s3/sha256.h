/* SHA-256 (FIPS 180-4) and its HMAC (RFC 2104), for signatures of requests: no library that is
 * linked has them, and which one libcurl uses differs. */
#ifndef MR_STORAGE_S3_SHA256_H
#define MR_STORAGE_S3_SHA256_H

#include <stdint.h>
#include <stdlib.h>

#define MR_SHA256_BYTES 32
#define MR_SHA256_BLOCK 64

struct mr_sha256 {
    uint32_t h[8];
    uint64_t bytes; /* so far */
    uint8_t block[MR_SHA256_BLOCK];
};

void mr_sha256_begin(struct mr_sha256 *s);
void mr_sha256_add(struct mr_sha256 *s, const void *data, size_t bytes);
void mr_sha256_end(struct mr_sha256 *s, uint8_t out[MR_SHA256_BYTES]);
/* key: at most one block. */
void mr_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t out[MR_SHA256_BYTES]);
/* Lower-case digits. */
void mr_sha256_hex(const uint8_t sum[MR_SHA256_BYTES], char out[2 * MR_SHA256_BYTES + 1]);

#endif
