/* TFRecord files and tf.train.Examples written byte by byte, valid or not as a test wants them. */
#ifndef MR_TEST_RECORD_WRITE_H
#define MR_TEST_RECORD_WRITE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    uint8_t *data;
    size_t n, room;
};

static inline void put_bytes(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->room) {
        b->room = (b->n + n) * 2;
        b->data = realloc(b->data, b->room);
        if (!b->data)
            abort();
    }
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void free_bytes(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

/* Bit by bit: not the library's way. */
static inline uint32_t record_crc(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static inline uint32_t record_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static inline void put_number(struct bytes *b, uint64_t x, int bytes)
{
    for (int k = 0; k < bytes; k++) {
        uint8_t byte = (uint8_t)(x >> 8 * k);
        put_bytes(b, &byte, 1);
    }
}

static inline void put_record(struct bytes *b, const void *data, size_t n)
{
    size_t at = b->n;
    put_number(b, n, 8);
    put_number(b, record_mask(record_crc(b->data + at, 8)), 4);
    put_bytes(b, data, n);
    put_number(b, record_mask(record_crc(data, n)), 4);
}

/* ---- protobuf ---- */

static inline void put_varint(struct bytes *b, uint64_t x)
{
    do {
        uint8_t byte = (uint8_t)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
        put_bytes(b, &byte, 1);
        x >>= 7;
    } while (x);
}

/* A field of a message: its content has n bytes. */
static inline void put_field(struct bytes *b, uint32_t number, const void *content, size_t n)
{
    put_varint(b, number << 3 | 2);
    put_varint(b, n);
    put_bytes(b, content, n);
}

/* Makes a message of what is in `content`, and frees that. */
static inline struct bytes wrap(uint32_t number, struct bytes content)
{
    struct bytes out = {0};
    put_field(&out, number, content.data, content.n);
    free_bytes(&content);
    return out;
}

static inline struct bytes ints_of(const int64_t *x, size_t n, int packed)
{
    struct bytes list = {0}, all = {0};
    for (size_t i = 0; i < n; i++) {
        if (!packed)
            put_varint(&list, 1 << 3);
        put_varint(&list, (uint64_t)x[i]);
    }
    if (!packed)
        return wrap(3, list);
    put_field(&all, 1, list.data, list.n);
    free_bytes(&list);
    return wrap(3, all);
}

static inline struct bytes floats_of(const float *x, size_t n, int packed)
{
    struct bytes list = {0};
    if (packed)
        put_field(&list, 1, x, n * sizeof *x);
    for (size_t i = 0; i < n && !packed; i++) {
        put_varint(&list, 1 << 3 | 5);
        put_bytes(&list, &x[i], sizeof x[i]);
    }
    return wrap(2, list);
}

static inline struct bytes text_of(const void *text, size_t n)
{
    struct bytes list = {0};
    put_field(&list, 1, text, n);
    return wrap(1, list);
}

/* Adds an entry of a map; frees the feature. */
static inline void put_feature(struct bytes *map, const char *name, struct bytes feature)
{
    struct bytes entry = {0};
    put_field(&entry, 1, name, strlen(name));
    put_field(&entry, 2, feature.data, feature.n);
    put_field(map, 1, entry.data, entry.n);
    free_bytes(&entry);
    free_bytes(&feature);
}

/* Adds a record whose features are in `map`, and frees them. */
static inline void put_example(struct bytes *file, struct bytes map)
{
    struct bytes example = wrap(1, map);
    put_record(file, example.data, example.n);
    free_bytes(&example);
}

#endif
