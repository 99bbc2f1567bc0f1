/* A column of a page. */
#include "timeline/column.h"
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define OUT_BYTES 49152 /* a multiple of 3: base64 has no padding inside */
#define IN_BYTES  65536

struct mr_tl_column {
    struct mr_tl_text *text;
    z_stream z;
    size_t n_in;
    unsigned char in[IN_BYTES], out[OUT_BYTES];
};

static void put(struct mr_tl_text *text, const char *bytes, size_t n)
{
    if (text->failed == 0)
        text->failed = mr_grow("timeline: column", &text->bytes, &text->room, text->n + n, 1);
    if (text->failed < 0)
        return;
    memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
}

static void put_base64(struct mr_tl_text *to, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t x = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                     (left > 2 ? bytes[i + 2] : 0);
        char text[4] = {digits[x >> 18], digits[x >> 12 & 63], left > 1 ? digits[x >> 6 & 63] : '=',
                        left > 2 ? digits[x & 63] : '='};
        put(to, text, sizeof(text));
    }
}

static void column_flush(struct mr_tl_column *c, int how)
{
    c->z.next_in = c->in;
    c->z.avail_in = (uInt)c->n_in;
    int done;
    do {
        done = deflate(&c->z, how);
        if (c->z.avail_out == 0 || (how == Z_FINISH && done == Z_STREAM_END)) {
            put_base64(c->text, c->out, OUT_BYTES - c->z.avail_out);
            c->z.next_out = c->out;
            c->z.avail_out = OUT_BYTES;
        }
    } while (how == Z_FINISH ? done == Z_OK || done == Z_BUF_ERROR : c->z.avail_in > 0);
    c->n_in = 0;
}

void mr_tl_column_put(struct mr_tl_column *c, uint64_t x)
{
    if (c->n_in + 10 > IN_BYTES)
        column_flush(c, Z_NO_FLUSH);
    for (; x >= 128; x >>= 7)
        c->in[c->n_in++] = (unsigned char)(x | 128);
    c->in[c->n_in++] = (unsigned char)x;
}

int mr_tl_column_begin(struct mr_tl_text *text, const char *name, struct mr_tl_column **out)
{
    char head[96];
    struct mr_tl_column *c = malloc(sizeof(*c));
    if (!c)
        return mr_error_nomem("timeline: column", sizeof(*c));
    c->text = text;
    c->z = (z_stream){0};
    c->n_in = 0;
    if (deflateInit(&c->z, 6) != Z_OK) {
        free(c);
        return mr_error_nomem("timeline: zlib", sizeof(c->z));
    }
    c->z.next_out = c->out;
    c->z.avail_out = OUT_BYTES;
    put(text, head,
        (size_t)snprintf(head, sizeof(head), "<script type=\"text/plain\" id=\"data-%.48s\">",
                         name));
    *out = c;
    return 0;
}

int mr_tl_column_end(struct mr_tl_column *c)
{
    static const char end[] = "</script>\n";
    column_flush(c, Z_FINISH);
    deflateEnd(&c->z);
    put(c->text, end, sizeof(end) - 1);
    int rc = c->text->failed;
    free(c);
    return rc;
}
