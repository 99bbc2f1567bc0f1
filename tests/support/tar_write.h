/* Tar archives written byte by byte, right or wrong as a test wants them. */
#ifndef MR_TEST_TAR_WRITE_H
#define MR_TEST_TAR_WRITE_H

#include "npy_write.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tar_text {
    unsigned char *data;
    size_t n, room;
};

static inline void tar_put(struct tar_text *t, const void *bytes, size_t n)
{
    if (t->n + n > t->room) {
        t->room = (t->n + n) * 2;
        t->data = realloc(t->data, t->room);
        if (!t->data)
            abort();
    }
    if (bytes)
        memcpy(t->data + t->n, bytes, n);
    else
        memset(t->data + t->n, 0, n);
    t->n += n;
}

/* Sums the header at `at` anew. */
static inline void tar_sum(struct tar_text *t, size_t at)
{
    unsigned sum = 0;
    char text[16];
    memset(t->data + at + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += t->data[at + (size_t)i];
    snprintf(text, sizeof text, "%06o", sum);
    memcpy(t->data + at + 148, text, 7);
}

/* A header, and where it begins. */
static inline size_t tar_head(struct tar_text *t, const char *name, uint64_t bytes, char type)
{
    char h[513] = "";
    size_t at = t->n, n = strlen(name);
    memcpy(h, name, n < 100 ? n : 100);
    snprintf(h + 100, 9, "%07o", 0644);
    snprintf(h + 108, 9, "%07o", 0);
    snprintf(h + 116, 9, "%07o", 0);
    if (bytes < 1ull << 33) {
        snprintf(h + 124, 13, "%011llo", (unsigned long long)bytes);
    } else {
        h[124] = (char)0x80;
        for (int i = 0; i < 8; i++)
            h[135 - i] = (char)(bytes >> 8 * i);
    }
    snprintf(h + 136, 13, "%011o", 0);
    h[156] = type;
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    tar_put(t, h, 512);
    tar_sum(t, at);
    return at;
}

static inline void tar_pad(struct tar_text *t)
{
    tar_put(t, NULL, (512 - t->n % 512) % 512);
}

/* A file, and where its header begins. */
static inline size_t tar_add(struct tar_text *t, const char *name, const void *bytes, size_t n)
{
    size_t at = tar_head(t, name, n, '0');
    tar_put(t, bytes, n);
    tar_pad(t);
    return at;
}

static inline size_t tar_add_text(struct tar_text *t, const char *name, const char *text)
{
    return tar_add(t, name, text, strlen(text));
}

static inline void tar_end(struct tar_text *t)
{
    tar_put(t, NULL, 1024);
}

/* An npy file; the strings are those of npy_put(). */
static inline void tar_add_npy(struct tar_text *t, const char *name, const char *descr,
                               const char *order, const char *shape, const void *bytes, size_t n)
{
    unsigned char *all = malloc(NPY_HEAD_BYTES + n);
    if (!all)
        abort();
    size_t head = npy_put(all, descr, order, shape);
    memcpy(all + head, bytes, n);
    tar_add(t, name, all, head + n);
    free(all);
}

static inline void tar_free(struct tar_text *t)
{
    free(t->data);
    *t = (struct tar_text){0};
}

#endif
