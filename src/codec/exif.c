/* Reads the only EXIF tag we use: the orientation. */
#include "codec/image_codec.h"

#define ORIENTATION 0x0112 /* its tag */
#define BYTE        1
#define SHORT       3
#define LONG        4

struct tiff {
    const unsigned char *data;
    uint64_t n;
    bool big_endian;
};

/* An integer of 1, 2 or 4 bytes; the caller has checked the bounds. */
static uint32_t number(const struct tiff *t, uint64_t at, unsigned bytes)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint32_t)t->data[at + i] << 8 * (t->big_endian ? bytes - 1 - i : i);
    return value;
}

/* An entry has tag u16, type u16, count u32, then the value, left-aligned in 4 bytes. */
static int entry_orientation(const struct tiff *t, uint64_t at)
{
    uint32_t type = number(t, at + 2, 2), value;
    if (type == BYTE)
        value = number(t, at + 8, 1);
    else if (type == SHORT)
        value = number(t, at + 8, 2);
    else if (type == LONG)
        value = number(t, at + 8, 4);
    else
        return 1;
    return value >= 1 && value <= 8 ? (int)value : 1;
}

int mr_exif_orientation(const unsigned char *tiff, uint64_t n)
{
    if (n < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M'))
        return 1;
    struct tiff t = {tiff, n, tiff[0] == 'M'};
    uint64_t ifd = number(&t, 4, 4);
    if (number(&t, 2, 2) != 42 || ifd + 2 > n)
        return 1;
    uint64_t entries = number(&t, ifd, 2);
    for (uint64_t i = 0, at = ifd + 2; i < entries && at + 12 <= n; i++, at += 12)
        if (number(&t, at, 2) == ORIENTATION)
            return entry_orientation(&t, at);
    return 1;
}
