/* CRC-32C (Castagnoli), as TFRecord, iSCSI and ext4 have it: mr_crc32c() of system.h. */
#ifndef MR_BASE_CRC32C_H
#define MR_BASE_CRC32C_H

#include <millrace/system.h>
#include <stddef.h>
#include <stdint.h>

/* mr_crc32c() without the processor's instruction, for machines that lack it, and for tests. */
uint32_t mr_crc32c_plain(const void *data, size_t n);

/* TFRecord stores checksums masked, so that one over bytes that contain one is no special case. */
static inline uint32_t mr_crc32c_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

#endif
