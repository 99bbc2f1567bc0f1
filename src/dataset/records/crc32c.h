/* CRC-32C (Castagnoli), as TFRecord, iSCSI and ext4 have it. */
#ifndef MR_DATASET_RECORDS_CRC32C_H
#define MR_DATASET_RECORDS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of n bytes. */
uint32_t mr_crc32c(const void *data, size_t n);
/* The same without the processor's instruction, for machines that lack it, and for tests. */
uint32_t mr_crc32c_plain(const void *data, size_t n);

/* TFRecord stores checksums masked, so that one over bytes that contain one is no special case. */
static inline uint32_t mr_crc32c_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

#endif
