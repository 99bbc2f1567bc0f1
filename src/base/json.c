/* A JSON writer. The first error is kept; later calls have no effect. */
#include "base/base.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <millrace/json.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 128

struct mr_json {
    char *text;
    size_t bytes;
    uint64_t cap;
    int indent, depth;
    int error;
    bool done;            /* the outermost value is complete */
    bool filled;          /* the innermost container has members */
    char kind[MAX_DEPTH]; /* '{' or '[' of each open container */
};

struct mr_json *mr_json_create(int indent)
{
    struct mr_json *json = calloc(1, sizeof *json);
    if (!json)
        mr_error_nomem("JSON writer", sizeof *json);
    else
        json->indent = indent;
    return json;
}

void mr_json_destroy(struct mr_json *json)
{
    if (json)
        free(json->text);
    free(json);
}

static void put(struct mr_json *json, const char *text, size_t bytes)
{
    if (json->error)
        return;
    if (mr_grow("JSON", &json->text, &json->cap, json->bytes + bytes + 1, 1) < 0) {
        json->error = -ENOMEM;
        return;
    }
    memcpy(json->text + json->bytes, text, bytes);
    json->bytes += bytes;
    json->text[json->bytes] = 0;
}

static void put_line(struct mr_json *json)
{
    if (json->indent <= 0)
        return;
    put(json, "\n", 1);
    for (int i = 0; i < json->depth * json->indent; i++)
        put(json, " ", 1);
}

/* Characters that a terminal would interpret are escaped by number; all are below U+10000. */
static void put_escaped(struct mr_json *json, uint32_t code)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = code && code < 0x80 ? strchr(from, (int)code) : NULL;
    char text[16];
    if (at)
        snprintf(text, sizeof text, "\\%c", to[at - from]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    put(json, text, strlen(text));
}

static void put_string(struct mr_json *json, const char *value)
{
    size_t n;
    put(json, "\"", 1);
    for (const char *p = value; *p; p += n) {
        uint32_t code = mr_text_code(p, &n);
        if (code == MR_NOT_UTF8)
            put(json, "\xEF\xBF\xBD", 3); /* U+FFFD */
        else if (code == '"' || code == '\\' || !mr_text_plain(code))
            put_escaped(json, code);
        else
            put(json, p, n);
    }
    put(json, "\"", 1);
}

/* Writes comma, line break and key before a value. Returns false if no value is allowed here. */
static bool begin(struct mr_json *json, const char *key)
{
    if (!json || json->error)
        return false;
    bool in_object = json->depth > 0 && json->kind[json->depth - 1] == '{';
    if (json->done || in_object != (key != NULL)) {
        json->error = MR_EMISUSE;
        return false;
    }
    if (json->filled)
        put(json, json->indent > 0 ? "," : ", ", json->indent > 0 ? 1 : 2);
    if (json->depth > 0)
        put_line(json);
    if (key) {
        put_string(json, key);
        put(json, ": ", 2);
    }
    return true;
}

static void value(struct mr_json *json, const char *key, const char *text)
{
    if (!begin(json, key))
        return;
    put(json, text, strlen(text));
    json->filled = true;
    json->done = json->depth == 0;
}

static void open_container(struct mr_json *json, const char *key, char kind)
{
    if (!begin(json, key))
        return;
    if (json->depth == MAX_DEPTH) {
        json->error = MR_EMISUSE;
        return;
    }
    put(json, &kind, 1);
    json->kind[json->depth++] = kind;
    json->filled = false;
}

static void close_container(struct mr_json *json, char kind)
{
    if (!json || json->error)
        return;
    if (json->depth == 0 || json->kind[json->depth - 1] != kind) {
        json->error = MR_EMISUSE;
        return;
    }
    json->depth--;
    if (json->filled)
        put_line(json);
    put(json, kind == '{' ? "}" : "]", 1);
    json->filled = true;
    json->done = json->depth == 0;
}

void mr_json_object(struct mr_json *json, const char *key)
{
    open_container(json, key, '{');
}

void mr_json_object_end(struct mr_json *json)
{
    close_container(json, '{');
}

void mr_json_array(struct mr_json *json, const char *key)
{
    open_container(json, key, '[');
}

void mr_json_array_end(struct mr_json *json)
{
    close_container(json, '[');
}

void mr_json_string(struct mr_json *json, const char *key, const char *text)
{
    if (!text) {
        value(json, key, "null");
        return;
    }
    if (!begin(json, key))
        return;
    put_string(json, text);
    json->filled = true;
    json->done = json->depth == 0;
}

void mr_json_int(struct mr_json *json, const char *key, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    value(json, key, text);
}

void mr_json_uint(struct mr_json *json, const char *key, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    value(json, key, text);
}

void mr_json_double(struct mr_json *json, const char *key, double number)
{
    char text[32];
    value(json, key, isfinite(number) ? mr_f64_to_text(number, text) : "null");
}

void mr_json_bool(struct mr_json *json, const char *key, int truth)
{
    value(json, key, truth ? "true" : "false");
}

void mr_json_null(struct mr_json *json, const char *key)
{
    value(json, key, "null");
}

int64_t mr_json_finish(struct mr_json *json, const char **text)
{
    if (!text)
        return mr_error_null("mr_json_finish", "a place for the text");
    if (!json || json->error == -ENOMEM)
        return mr_error_set(-ENOMEM, "JSON text: out of memory");
    if (json->error || !json->done)
        return mr_error_set(
            MR_EMISUSE, "JSON text: %s",
            json->error
                ? "a call that does not fit: a key where none may be or none where one must, "
                  "an end of the wrong kind, or nested too deeply"
                : "finished before the outermost value was");
    *text = json->text;
    return (int64_t)json->bytes;
}
