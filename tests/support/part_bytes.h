/* A part in memory, record by record. */
#ifndef PART_BYTES_H
#define PART_BYTES_H

#include "recording_make.h"

#include <string.h>

struct bytes {
    char *data;
    size_t n, room;
};

static void add(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->room) {
        b->room = (b->n + n) * 2;
        b->data = realloc(b->data, b->room);
        assert_non_null(b->data);
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void add_header(struct bytes *b, uint32_t pid, uint64_t start_ns, uint32_t traced)
{
    struct mr_part_header header = {.version = MR_PART_VERSION,
                                    .header_bytes = sizeof(header),
                                    .pid = pid,
                                    .ppid = 1,
                                    .start_ns = start_ns,
                                    .start_unix_ns = MAKE_UNIX,
                                    .traced = traced};
    memcpy(header.magic, MR_PART_MAGIC, sizeof(header.magic));
    add(b, &header, sizeof(header));
}

/* record_bytes: 0 for records that each have a length of their own. */
static void add_chunk(struct bytes *b, enum mr_part_type type, size_t record_bytes, uint32_t n,
                      const void *records, size_t n_bytes)
{
    struct mr_part_chunk chunk = {MR_PART_CHUNK, (uint16_t)type, (uint16_t)record_bytes, n,
                                  (uint32_t)n_bytes};
    add(b, &chunk, sizeof(chunk));
    add(b, records, n_bytes);
}

/* Filled up to a multiple of 8. */
static void add_text(struct bytes *b, const char *text, uint32_t bytes)
{
    add(b, text, bytes);
    add(b, "\0\0\0\0\0\0\0", (8 - bytes % 8) % 8);
}

static void add_string(struct bytes *b, uint32_t id, const char *text)
{
    struct bytes records = {0};
    struct mr_part_string head = {id, (uint32_t)strlen(text)};
    add(&records, &head, sizeof(head));
    add_text(&records, text, head.bytes);
    add_chunk(b, MR_PART_STRING, 0, 1, records.data, records.n);
    free(records.data);
}

#endif
