/* Reads a trace as it was written, field by field, and checks that it is whole. */
#ifndef TEST_READ_TRACE_H
#define TEST_READ_TRACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a reader of the protobuf wire format ---- */

struct field {
    uint32_t number, type;
    uint64_t value;       /* types 0 and 1 */
    const uint8_t *bytes; /* type 2, `value` of them */
};

struct cursor {
    const uint8_t *at, *end;
};

static inline uint64_t read_varint(struct cursor *c)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_true(c->at < c->end);
        x |= (uint64_t)(*c->at & 127) << shift;
        if (!(*c->at++ & 128))
            return x;
    }
    fail_msg("varint too long");
    return 0;
}

static inline bool read_field(struct cursor *c, struct field *out)
{
    if (c->at == c->end)
        return false;
    uint64_t tag = read_varint(c);
    out->number = (uint32_t)(tag >> 3);
    out->type = tag & 7;
    assert_true(out->type <= 2);
    out->bytes = NULL;
    if (out->type == 1) { /* 64 bits */
        assert_true(c->end - c->at >= 8);
        out->value = 0;
        for (int i = 0; i < 8; i++)
            out->value |= (uint64_t)*c->at++ << 8 * i;
        return true;
    }
    out->value = read_varint(c);
    if (out->type == 2) {
        assert_true(out->value <= (uint64_t)(c->end - c->at));
        out->bytes = c->at;
        c->at += out->value;
    }
    return true;
}

static inline struct cursor inside(const struct field *f)
{
    assert_int_equal(f->type, 2);
    return (struct cursor){f->bytes, f->bytes + f->value};
}

/* The field of a message, or false. */
static inline bool find(struct cursor c, uint32_t number, struct field *out)
{
    while (read_field(&c, out)) {
        if (out->number == number)
            return true;
    }
    return false;
}

static inline uint64_t number_of(struct cursor c, uint32_t number, uint64_t absent)
{
    struct field f;
    return find(c, number, &f) ? f.value : absent;
}

static inline void text_of(struct cursor c, uint32_t number, char out[64])
{
    struct field f;
    *out = 0;
    if (find(c, number, &f))
        snprintf(out, 64, "%.*s", (int)f.value, (const char *)f.bytes);
}

/* ---- the trace, decoded ---- */

#define MAX_TRACKS                                                                                 \
    4096 /* test_start_and_stop: threads come and go as fast as the machine lets them */
#define MAX_EVENTS 200000

struct track {
    uint64_t uuid, last_ns;
    char name[64];
    bool thread, counter;
    int depth, n_spans;
};

struct event {
    int track, type, depth;
    uint64_t time_ns, arg;
    char name[64], arg_name[64];
};

static struct {
    int n_tracks, n_events, n_clocks;
    bool process;
    uint64_t primary_clock;
    struct track track[MAX_TRACKS];
    struct event event[MAX_EVENTS];
} trace;

static inline void decode_track(struct cursor c)
{
    struct field f;
    assert_true(trace.n_tracks < MAX_TRACKS);
    struct track *t = &trace.track[trace.n_tracks];
    memset(t, 0, sizeof *t);
    t->uuid = number_of(c, 1, 0);
    assert_true(t->uuid != 0);
    for (int i = 0; i < trace.n_tracks; i++)
        assert_true(trace.track[i].uuid != t->uuid);
    if (find(c, 3, &f)) {
        assert_int_equal(number_of(inside(&f), 1, 0), getpid());
        trace.process = true;
        return;
    }
    assert_int_equal(number_of(c, 5, 0), 1); /* the process is the parent */
    text_of(c, 2, t->name);
    if (find(c, 4, &f)) {
        t->thread = true;
        assert_int_equal(number_of(inside(&f), 1, 0), getpid());
        assert_true(number_of(inside(&f), 2, 0) > 0);
        text_of(inside(&f), 5, t->name);
    }
    t->counter = find(c, 8, &f);
    trace.n_tracks++;
}

static inline void decode_event(struct cursor c, uint64_t time_ns)
{
    struct field f;
    assert_true(trace.n_events < MAX_EVENTS);
    struct event *e = &trace.event[trace.n_events++];
    memset(e, 0, sizeof *e);
    e->time_ns = time_ns;
    e->type = (int)number_of(c, 9, 0);
    uint64_t uuid = number_of(c, 11, 0);
    while (e->track < trace.n_tracks && trace.track[e->track].uuid != uuid)
        e->track++;
    assert_true(e->track < trace.n_tracks); /* described before it is used */
    struct track *t = &trace.track[e->track];
    assert_true(time_ns >= t->last_ns);
    t->last_ns = time_ns;
    text_of(c, 23, e->name);
    if (find(c, 4, &f)) {
        text_of(inside(&f), 10, e->arg_name);
        e->arg = number_of(inside(&f), 3, 0);
    }
    if (e->type == 4) {
        assert_true(t->counter);
        e->arg = number_of(c, 30, 12345);
        return;
    }
    assert_false(t->counter);
    assert_true(e->type == 1 || e->type == 2);
    if (e->type == 1) {
        assert_true(e->name[0]);
        e->depth = t->depth++;
        t->n_spans++;
    } else {
        e->depth = --t->depth;
        assert_true(t->depth >= 0);
    }
}

static inline void decode_packet(struct cursor c, bool first)
{
    struct field f;
    assert_int_equal(number_of(c, 10, 0), 1);             /* trusted_packet_sequence_id */
    assert_int_equal(number_of(c, 13, 0), first ? 1 : 2); /* sequence_flags */
    if (find(c, 6, &f)) {
        struct cursor in = inside(&f);
        struct field clock;
        trace.primary_clock = number_of(in, 2, 0);
        while (read_field(&in, &clock))
            trace.n_clocks += clock.number == 1;
    } else if (find(c, 60, &f)) {
        decode_track(inside(&f));
    } else if (find(c, 11, &f)) {
        assert_int_equal(number_of(c, 58, 0), 3); /* timestamp_clock_id: monotonic */
        decode_event(inside(&f), number_of(c, 8, 0));
    } else {
        fail_msg("a packet of another kind");
    }
}

static inline void decode(const char *path)
{
    static uint8_t bytes[4 << 20];
    memset(&trace, 0, sizeof trace);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    assert_true(n > 0 && n < sizeof bytes);
    fclose(file);
    struct cursor c = {bytes, bytes + n};
    struct field f;
    for (bool first = true; read_field(&c, &f); first = false) {
        assert_int_equal(f.number, 1);
        decode_packet(inside(&f), first);
    }
    assert_true(trace.process);
    assert_int_equal(trace.primary_clock, 3);
    assert_true(trace.n_clocks >= 2);
    for (int i = 0; i < trace.n_tracks; i++)
        assert_int_equal(trace.track[i].depth, 0); /* every begin has its end */
}

static inline const struct track *track_named(const char *name)
{
    for (int i = 0; i < trace.n_tracks; i++) {
        if (!strcmp(trace.track[i].name, name))
            return &trace.track[i];
    }
    fail_msg("no track \"%s\"", name);
    return NULL;
}

/* The k-th event of a track. */
static inline const struct event *nth(const struct track *t, int k)
{
    for (int i = 0; i < trace.n_events; i++) {
        if (trace.event[i].track == (int)(t - trace.track) && !k--)
            return &trace.event[i];
    }
    fail_msg("%s: too few events", t->name);
    return NULL;
}

#endif
