/*
 * JSON too large for memory: a file {"name": value, ..., "traceEvents": [value, ...], ...} or
 * [value, ...], plain or gzip, read value by value. Memory holds one value at a time.
 *
 * Values come as text: mr_json_next_member() walks an object without copying anything. Of text that
 * is no JSON it walks what it can; only the outermost brackets and quotes must match.
 */
#ifndef MR_RECORDING_JSON_STREAM_H
#define MR_RECORDING_JSON_STREAM_H

#include "base/base.h"

struct mr_json_text { /* a part of someone else's text */
    const char *at;
    size_t n;
};

struct mr_json_item {
    /* of the outermost object, with its quotes off; empty: the value is an element of the list */
    struct mr_json_text name;
    struct mr_json_text value;
};

struct mr_json_stream;

/* list: the member whose elements come one by one. Borrowed, as the path is. Returns 0, -errno. */
int mr_json_stream_open(const char *path, const char *list, struct mr_json_stream **out);
void mr_json_stream_close(struct mr_json_stream *stream);

/*
 * [out] item: when 1 is returned; valid until the next call. Values of more than 16 MiB are left
 * out and counted. 0: the end, or where the file is cut or damaged (mr_json_stream_damage()).
 * Returns -ENOMEM, -errno otherwise.
 */
int mr_json_stream_next(struct mr_json_stream *stream, struct mr_json_item *item);
/* NULL: the file ended where it should; else what was found instead, with the byte. */
const char *mr_json_stream_damage(const struct mr_json_stream *stream);
uint64_t mr_json_stream_too_large(const struct mr_json_stream *stream);

/* Takes the first member off the text of an object. [out] name: with its quotes off. false: there
 * is none, or the text is damaged. */
bool mr_json_next_member(struct mr_json_text *object, struct mr_json_text *name,
                         struct mr_json_text *value);
/* The value of a member; n is 0 where there is none. */
struct mr_json_text mr_json_member(struct mr_json_text object, const char *name);
bool mr_json_is(struct mr_json_text text, const char *what);

/*
 * Numbers, also within quotes. A decimal number times 10^shift as an integer, rounded, without a
 * detour by double. false: it is no number, or out of range.
 */
bool mr_json_scaled(struct mr_json_text text, int shift, int64_t *out);
/* The same, of hexadecimal numbers too; saturated. */
bool mr_json_u64(struct mr_json_text text, uint64_t *out);

/* A string's characters. [out] n: at most cap - 1; buf gets a NUL. Texts that are no strings come
 * as they are. */
const char *mr_json_string_of(struct mr_json_text text, char *buf, size_t cap, size_t *n);

#endif
