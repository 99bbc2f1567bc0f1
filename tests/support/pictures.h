/* What the tests of picture data sets share: folders with small PNGs of known content; what a data
 * set says of a sample. */
#ifndef MR_TEST_PICTURES_H
#define MR_TEST_PICTURES_H

#include "dataset/pictures/photos.h"
#include "samples.h"

/* Removes what stands below test_dir/name. */
static inline void test_tree_clear(const char *name)
{
    nftw(test_path(name), test_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes the folders that a path below test_dir lies in. */
static inline void test_folders(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s", test_path(name));
    for (char *slash = strchr(path + strlen(test_dir) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

static inline const char *test_touch(const char *name)
{
    test_folders(name);
    return test_write(name, "x", 1);
}

static inline uint8_t *test_chunk(uint8_t *to, const char *type, const uint8_t *data, uint32_t n)
{
    uint32_t crc;
    for (int i = 0; i < 4; i++)
        *to++ = (uint8_t)(n >> (24 - 8 * i));
    memcpy(to, type, 4);
    if (n > 0)
        memcpy(to + 4, data, n);
    crc = (uint32_t)crc32(0, to, n + 4);
    to += n + 4;
    for (int i = 0; i < 4; i++)
        *to++ = (uint8_t)(crc >> (24 - 8 * i));
    return to;
}

/* What the red, green and blue of a test picture are at row y, column x. */
static inline uint8_t test_pixel(unsigned key, unsigned y, unsigned x, unsigned c)
{
    return (uint8_t)(key * 37 + y * 11 + x * 5 + c * 71);
}

/* An RGB PNG of height x width, at most 64 each, whose pixels tell its key. */
static inline const char *test_png(const char *name, unsigned key, unsigned height, unsigned width)
{
    uint8_t raw[64 * (1 + 64 * 3)], packed[2 * sizeof raw], file[3 * sizeof raw], *to = file;
    uint8_t head[13] = {0, 0, 0, (uint8_t)width, 0, 0, 0, (uint8_t)height, 8, 2, 0, 0, 0};
    size_t n = 0;
    assert_true(height <= 64 && width <= 64);
    for (unsigned y = 0; y < height; y++) {
        raw[n++] = 0;
        for (unsigned i = 0; i < width * 3; i++)
            raw[n++] = test_pixel(key, y, i / 3, i % 3);
    }
    uLongf packed_bytes = sizeof packed;
    assert_int_equal(compress(packed, &packed_bytes, raw, n), Z_OK);
    memcpy(to, "\x89PNG\r\n\x1a\n", 8);
    to = test_chunk(to + 8, "IHDR", head, 13);
    to = test_chunk(to, "IDAT", packed, (uint32_t)packed_bytes);
    to = test_chunk(to, "IEND", NULL, 0);
    test_folders(name);
    return test_write(name, file, (size_t)(to - file));
}

/* False, after saying so, when this build decodes no PNG. */
static inline bool test_decodes_png(void)
{
    const char *why = mr_image_why_not(MR_IMAGE_PNG);
    if (why)
        print_message("SKIP decoding PNG: %s\n", why);
    return !why;
}

/* The file of sample i, below test_dir. */
static inline const char *test_name_of(const struct mr_dataset *ds, uint64_t i)
{
    struct mr_extent extent[MR_MAX_EXTENTS];
    assert_int_equal(ds->ops->locate(ds, i, extent), 1);
    assert_int_equal(extent[0].field, -1);
    assert_true(extent[0].bytes == MR_WHOLE);
    const char *name = mr_files_name(ds->files, extent[0].file);
    size_t n = strlen(test_dir);
    return strncmp(name, test_dir, n) == 0 ? name + n + 1 : name;
}

/* What stands in memory beside sample i's picture, of the field of this name. */
static inline const void *test_row(const struct mr_dataset *ds, const char *field, uint64_t i)
{
    const struct mr_photos *p = ds->state;
    for (int f = 1; f < ds->n_fields; f++)
        if (strcmp(ds->field[f].name, field) == 0)
            return (const char *)p->field[f].rows + i * p->field[f].bytes;
    fail_msg("no field %s", field);
    return NULL;
}

static inline int64_t test_label(const struct mr_dataset *ds, uint64_t i)
{
    int64_t label;
    memcpy(&label, test_row(ds, "label", i), sizeof label);
    return label;
}

#endif
