/* Fixed-size records in files: their location, and byte swapping where the file's byte order is not
 * native. */
#include "dataset/dataset.h"

#include <string.h>

/* One loop per width, with memcpy of a constant size: handles unaligned data, and compilers
 * vectorise it. */
#define SWAP_LOOP(type, builtin)                                                                   \
    for (uint64_t i = 0; i < count; i++) {                                                         \
        type x;                                                                                    \
        memcpy(&x, (const char *)src + i * sizeof x, sizeof x);                                    \
        x = builtin(x);                                                                            \
        memcpy((char *)dst + i * sizeof x, &x, sizeof x);                                          \
    }

MR_CLONES void mr_swap_copy(void *dst, const void *src, uint64_t count, uint32_t width)
{
    switch (width) {
    case 2:
        SWAP_LOOP(uint16_t, __builtin_bswap16)
        break;
    case 4:
        SWAP_LOOP(uint32_t, __builtin_bswap32)
        break;
    default:
        SWAP_LOOP(uint64_t, __builtin_bswap64)
        break;
    }
}

int mr_records_locate(const struct mr_records *records, int n, uint64_t index,
                      struct mr_extent out[MR_MAX_EXTENTS])
{
    for (int f = 0; f < n; f++)
        out[f] = (struct mr_extent){
            .file = records[f].file,
            .field = records[f].swap ? -1 : f,
            .offset = records[f].offset + index * records[f].stride,
            .bytes = records[f].bytes,
        };
    return n;
}

bool mr_records_view(const struct mr_dataset *ds, const struct mr_records *records, uint32_t n,
                     const uint64_t index[], const void *out[])
{
    bool got = true;
    for (uint32_t i = 0; i < n && got; i++)
        got = mr_files_view(ds->files, records->file, records->offset + index[i] * records->stride,
                            records->bytes, &out[i]) == 1;
    return got;
}

int mr_records_decode(const struct mr_records *records, int n, const struct mr_bytes in[],
                      struct mr_sample *out)
{
    for (int f = 0; f < n; f++) {
        if (records[f].swap) {
            mr_swap_copy(out->field[f].room, in[f].data, records[f].bytes / records[f].swap,
                         records[f].swap);
            out->field[f].data = out->field[f].room;
        } else if (in[f].data) {
            out->field[f].data = in[f].data;
        }
    }
    return 0;
}
