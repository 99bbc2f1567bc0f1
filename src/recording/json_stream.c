/* Large JSON files, value by value. */
#include "recording/json_stream.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#define CHUNK      (1u << 18)
#define MOST_BYTES (16u << 20) /* of a value */

enum where { AT_START, IN_OBJECT, IN_LIST, IN_ARRAY, AT_END };

struct mr_json_stream {
    const char *path, *list;
    gzFile file;
    char *buf;
    uint64_t capacity;
    size_t at, end;     /* unread bytes of buf */
    uint64_t passed;    /* bytes before buf */
    size_t name, value; /* where the item's parts begin in buf; moved with it */
    enum where where;
    bool ended;
    uint64_t n_too_large;
    int rc;
    char damage[160];
};

static int read_failed(struct mr_json_stream *s)
{
    int code;
    const char *what = gzerror(s->file, &code);
    if (code == Z_ERRNO)
        return mr_error_errno(errno ? errno : EIO, "%s: cannot be read", s->path);
    if (code == Z_MEM_ERROR)
        return mr_error_nomem(s->path, CHUNK);
    /* damaged or cut: what came before it counts */
    const char *colon = strstr(what, ": ");
    snprintf(s->damage, sizeof s->damage, "the gzip data is damaged or cut near byte %llu (%.60s)",
             (unsigned long long)(s->passed + s->end), colon ? colon + 2 : what);
    return 0;
}

/* Bytes before `keep` are of no use any more. Returns 1 when there are more, 0 at the end. */
static int fill(struct mr_json_stream *s, size_t keep)
{
    if (s->ended || s->rc < 0)
        return s->rc;
    if (keep > 0) {
        memmove(s->buf, s->buf + keep, s->end - keep);
        s->passed += keep;
        s->at -= keep;
        s->end -= keep;
        s->name -= MR_MIN(s->name, keep);
        s->value -= MR_MIN(s->value, keep);
    }
    if (mr_grow(s->path, &s->buf, &s->capacity, s->end + CHUNK, 1) < 0)
        return s->rc = -ENOMEM;
    int n = gzread(s->file, s->buf + s->end, CHUNK);
    if (n < 0 && (s->rc = read_failed(s)) < 0)
        return s->rc;
    int code = Z_OK;
    if (n == 0) /* of a cut file zlib gives what there is, and tells afterwards */
        gzerror(s->file, &code);
    if (n == 0 && code == Z_BUF_ERROR)
        read_failed(s);
    s->ended = n <= 0;
    s->end += (size_t)MR_MAX(n, 0);
    return n > 0;
}

int mr_json_stream_open(const char *path, const char *list, struct mr_json_stream **out)
{
    struct mr_json_stream *s = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem(path, sizeof *s);
    s->path = path;
    s->list = list;
    errno = 0;
    s->file = gzopen(path, "rbe");
    if (!s->file) {
        int rc = errno ? mr_error_errno(errno, "%s: cannot be opened", path)
                       : mr_error_nomem(path, CHUNK);
        free(s);
        return rc;
    }
    gzbuffer(s->file, CHUNK);
    *out = s;
    return 0;
}

void mr_json_stream_close(struct mr_json_stream *s)
{
    if (!s)
        return;
    gzclose_r(s->file);
    free(s->buf);
    free(s);
}

const char *mr_json_stream_damage(const struct mr_json_stream *s)
{
    return s->damage[0] ? s->damage : NULL;
}

uint64_t mr_json_stream_too_large(const struct mr_json_stream *s)
{
    return s->n_too_large;
}

static int damaged(struct mr_json_stream *s, const char *expected)
{
    s->where = AT_END;
    if (s->rc < 0 || s->damage[0])
        return s->rc;
    unsigned long long byte = s->passed + s->at;
    if (s->at >= s->end)
        snprintf(s->damage, sizeof s->damage, "the file is cut after byte %llu: expected %s", byte,
                 expected);
    else
        snprintf(s->damage, sizeof s->damage, "damaged at byte %llu: expected %s", byte, expected);
    return 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The next character that is no space; 0: there is none. */
static char peek(struct mr_json_stream *s, size_t keep)
{
    bool held = keep < s->at; /* there is a name before the spaces */
    for (;;) {
        while (s->at < s->end && is_space(s->buf[s->at]))
            s->at++;
        if (s->at < s->end)
            return s->buf[s->at];
        uint64_t before = s->passed;
        if ((held && s->at - keep > MOST_BYTES) || fill(s, held ? keep : s->at) <= 0)
            return 0;
        keep -= MR_MIN(keep, (size_t)(s->passed - before));
    }
}

/* How far a value has been looked at. */
struct scan {
    uint32_t depth;
    bool in_string, escaped, done;
};

/* Within a string, up to its end; or within brackets, up to the next bracket or string. */
static size_t skip_plain(const struct scan *scan, const char *text, size_t i, size_t n)
{
    if (scan->in_string)
        while (i < n && text[i] != '"' && text[i] != '\\')
            i++;
    else if (scan->depth > 0) /* the brackets differ in the bits of 0x26; Y, y, _ come along */
        while (i < n && text[i] != '"' && ((text[i] | 0x26) != ('{' | 0x26)))
            i++;
    return i;
}

/* Past the value's end, or past the last byte of what is there. */
static size_t scan_on(struct scan *scan, const char *text, size_t i, size_t n)
{
    for (; i < n && !scan->done; i++) {
        if (scan->escaped) {
            scan->escaped = false;
            continue;
        }
        i = skip_plain(scan, text, i, n);
        if (i == n)
            break;
        char c = text[i];
        if (scan->in_string) {
            scan->escaped = c == '\\';
            scan->in_string = scan->escaped;
            scan->done = !scan->in_string && scan->depth == 0;
        } else if (c == '"') {
            scan->in_string = true;
        } else if (c == '{' || c == '[') {
            scan->depth++;
        } else if (c == '}' || c == ']') {
            if (scan->depth == 0) {
                scan->done = true;
                return i;
            }
            scan->done = --scan->depth == 0;
        } else if (scan->depth == 0 && (c == ',' || is_space(c))) {
            scan->done = true;
            return i;
        }
    }
    return i;
}

/* Passes over the value at s->at, which is no space. Returns 1, 0 where the file ends within it, 2
 * when it was too large to be kept. */
static int pass_value(struct mr_json_stream *s, size_t keep)
{
    struct scan scan = {0};
    bool kept = true;
    for (;;) {
        s->at = scan_on(&scan, s->buf, s->at, s->end);
        if (scan.done)
            return kept ? 1 : 2;
        kept = kept && s->at - keep <= MOST_BYTES;
        uint64_t before = s->passed;
        if (fill(s, kept ? keep : s->at) <= 0)
            return 0;
        keep -= MR_MIN(keep, (size_t)(s->passed - before));
    }
}

static struct mr_json_text part(const struct mr_json_stream *s, size_t from, size_t to)
{
    return (struct mr_json_text){s->buf + from, to - from};
}

/* The value at s->at as an item whose name, if any, begins at `keep`. Returns 1; 0: damaged; 2: it
 * was too large. */
static int take_value(struct mr_json_stream *s, size_t keep, struct mr_json_text *out)
{
    s->value = s->at;
    int rc = pass_value(s, keep);
    if (rc == 0)
        return damaged(s, "the rest of a value");
    if (rc == 2) {
        s->n_too_large++;
        return 2;
    }
    *out = part(s, s->value, s->at);
    return 1;
}

/* Returns 1 with an item, 2 with none yet, 0 at the end. */
static int next_element(struct mr_json_stream *s, struct mr_json_item *item)
{
    char c = peek(s, s->at);
    if (c == ',') {
        s->at++;
        return 2;
    }
    if (c == ']') {
        s->at++;
        s->where = s->where == IN_LIST ? IN_OBJECT : AT_END;
        return 2;
    }
    if (c == 0 || c == '}')
        return damaged(s, "an event or ]");
    item->name = (struct mr_json_text){NULL, 0};
    return take_value(s, s->at, &item->value);
}

static int next_member(struct mr_json_stream *s, struct mr_json_item *item)
{
    char c = peek(s, s->at);
    if (c == ',') {
        s->at++;
        return 2;
    }
    if (c == '}') {
        s->at++;
        s->where = AT_END;
        return 0;
    }
    if (c != '"')
        return damaged(s, "a name or }");
    s->name = s->at;
    if (pass_value(s, s->name) != 1)
        return damaged(s, "the rest of a name");
    size_t bytes = s->at - s->name;
    if (peek(s, s->name) != ':')
        return damaged(s, ":");
    s->at++;
    c = peek(s, s->name);
    if (c == '[' && bytes == strlen(s->list) + 2 &&
        memcmp(s->buf + s->name + 1, s->list, bytes - 2) == 0) {
        s->at++;
        s->where = IN_LIST;
        return 2;
    }
    if (c == 0 || c == ',' || c == '}')
        return damaged(s, "a value");
    int rc = take_value(s, s->name, &item->value);
    if (rc == 1)
        item->name = part(s, s->name + 1, s->name + bytes - 1);
    return rc;
}

static int start(struct mr_json_stream *s)
{
    char c = peek(s, 0);
    if (s->end - s->at >= 3 && memcmp(s->buf + s->at, "\xef\xbb\xbf", 3) == 0) {
        s->at += 3;
        c = peek(s, 0);
    }
    if (c != '{' && c != '[')
        return damaged(s, "{ or [");
    s->at++;
    s->where = c == '{' ? IN_OBJECT : IN_ARRAY;
    return 2;
}

int mr_json_stream_next(struct mr_json_stream *s, struct mr_json_item *item)
{
    int rc = 2;
    while (rc == 2) {
        switch (s->where) {
        case AT_START:
            rc = start(s);
            break;
        case IN_OBJECT:
            rc = next_member(s, item);
            break;
        case IN_LIST:
        case IN_ARRAY:
            rc = next_element(s, item);
            break;
        default:
            rc = 0;
        }
    }
    return s->rc < 0 ? s->rc : rc;
}

/* ---- values ---- */

static void skip_spaces(struct mr_json_text *text)
{
    while (text->n > 0 && is_space(*text->at)) {
        text->at++;
        text->n--;
    }
}

static bool take(struct mr_json_text *from, struct mr_json_text *value)
{
    struct scan scan = {0};
    size_t n = scan_on(&scan, from->at, 0, from->n);
    if (!scan.done || n == 0)
        return false;
    *value = (struct mr_json_text){from->at, n};
    from->at += n;
    from->n -= n;
    return true;
}

bool mr_json_next_member(struct mr_json_text *object, struct mr_json_text *name,
                         struct mr_json_text *value)
{
    skip_spaces(object);
    if (object->n > 0 && (*object->at == '{' || *object->at == ',')) {
        object->at++;
        object->n--;
        skip_spaces(object);
    }
    if (object->n == 0 || *object->at != '"' || !take(object, name))
        return false;
    name->at++;
    name->n -= 2;
    skip_spaces(object);
    if (object->n == 0 || *object->at != ':')
        return false;
    object->at++;
    object->n--;
    skip_spaces(object);
    return object->n > 0 && take(object, value);
}

bool mr_json_is(struct mr_json_text text, const char *what)
{
    size_t n = strlen(what);
    return text.n == n && memcmp(text.at, what, n) == 0;
}

struct mr_json_text mr_json_member(struct mr_json_text object, const char *name)
{
    struct mr_json_text key, value;
    if (object.n == 0 || *object.at != '{')
        return (struct mr_json_text){NULL, 0};
    while (mr_json_next_member(&object, &key, &value))
        if (mr_json_is(key, name))
            return value;
    return (struct mr_json_text){NULL, 0};
}
