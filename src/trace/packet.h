/*
 * Encodes packets of Perfetto's protobuf format by hand: we need only a few dozen of its fields.
 * Field numbers are from protos/perfetto/trace/trace.proto and the files that it imports.
 */
#ifndef MR_TRACE_PACKET_H
#define MR_TRACE_PACKET_H

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAME      255
#define MESSAGE_BYTES 1024 /* enough for a packet with two names and a dozen numbers */
#define SEQUENCE      1

/* Field numbers of messages, and values of enums. */
enum { TRACE_PACKET = 1 };
enum {
    PACKET_CLOCK_SNAPSHOT = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_INTERNED_DATA = 12,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_CLOCK_ID = 58,
    PACKET_TRACK_DESCRIPTOR = 60
};
enum { SNAPSHOT_CLOCKS = 1, SNAPSHOT_PRIMARY = 2, CLOCK_FIELD_ID = 1, CLOCK_FIELD_TIMESTAMP = 2 };
enum { CLOCK_ID_REALTIME = 1, CLOCK_ID_MONOTONIC = 3, CLOCK_ID_BOOTTIME = 6 };
enum {
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT_UUID = 5,
    TRACK_COUNTER = 8,
    TRACK_ORDERING = 11,
    TRACK_RANK = 12
};
enum { ORDERING_EXPLICIT = 3 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum {
    EVENT_CATEGORY_IIDS = 3,
    EVENT_DEBUG_ANNOTATIONS = 4,
    EVENT_TYPE = 9,
    EVENT_NAME_IID = 10,
    EVENT_TRACK_UUID = 11,
    EVENT_NAME = 23,
    EVENT_COUNTER_VALUE = 30,
    EVENT_DOUBLE_COUNTER_VALUE = 44,
    EVENT_FLOW_IDS = 47
};
enum { TYPE_SLICE_BEGIN = 1, TYPE_SLICE_END = 2, TYPE_COUNTER = 4 };
enum {
    ANNOTATION_NAME_IID = 1,
    ANNOTATION_UINT_VALUE = 3,
    ANNOTATION_DOUBLE_VALUE = 5,
    ANNOTATION_NAME = 10,
    ANNOTATION_STRING_IID = 17
};
enum {
    INTERNED_CATEGORIES = 1,
    INTERNED_NAMES = 2,
    INTERNED_ANNOTATION_NAMES = 3,
    INTERNED_ANNOTATION_STRINGS = 29
};
enum { INTERNED_IID = 1, INTERNED_TEXT = 2 };
enum { COUNTER_UNIT = 3, COUNTER_UNIT_NAME = 6, UNIT_BYTES = 3 };
enum { INCREMENTAL_STATE_CLEARED = 1, NEEDS_INCREMENTAL_STATE = 2 };

struct message {
    size_t n;
    uint8_t bytes[MESSAGE_BYTES];
};

static inline void put_varint(struct message *m, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        m->bytes[m->n++] = (uint8_t)(x | 128);
    m->bytes[m->n++] = (uint8_t)x;
}

static inline void put_uint(struct message *m, uint32_t field, uint64_t x)
{
    put_varint(m, field << 3 | 0);
    put_varint(m, x);
}

/* The 64-bit wire type: flow ids, doubles. */
static inline void put_fixed64(struct message *m, uint32_t field, uint64_t x)
{
    put_varint(m, field << 3 | 1);
    for (int i = 0; i < 8; i++)
        m->bytes[m->n++] = (uint8_t)(x >> 8 * i);
}

static inline void put_double(struct message *m, uint32_t field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_fixed64(m, field, bits);
}

static inline void put_bytes(struct message *m, uint32_t field, const void *bytes, size_t n)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static inline void put_string(struct message *m, uint32_t field, const char *text)
{
    size_t n = strlen(text);
    put_bytes(m, field, text, MR_MIN(n, (size_t)MAX_NAME));
}

static inline void put_message(struct message *m, uint32_t field, const struct message *inner)
{
    put_bytes(m, field, inner->bytes, inner->n);
}

struct writer {
    FILE *file;
    bool cleared; /* the sequence's first packet was written */
    int errnum;   /* of the first write that failed */
};

static inline void write_packet(struct writer *w, struct message *packet)
{
    put_uint(packet, PACKET_SEQUENCE_ID, SEQUENCE);
    put_uint(packet, PACKET_SEQUENCE_FLAGS,
             w->cleared ? NEEDS_INCREMENTAL_STATE : INCREMENTAL_STATE_CLEARED);
    w->cleared = true;
    struct message head = {.n = 0};
    put_varint(&head, TRACE_PACKET << 3 | 2);
    put_varint(&head, packet->n);
    if (w->errnum)
        return;
    if (fwrite(head.bytes, 1, head.n, w->file) < head.n ||
        fwrite(packet->bytes, 1, packet->n, w->file) < packet->n)
        w->errnum = errno ? errno : EIO;
}

#endif
