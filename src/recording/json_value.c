/* Values of large JSON files: numbers that keep all their digits, and strings. */
#include "recording/json_stream.h"

#include <ctype.h>
#include <string.h>

static struct mr_json_text without_quotes(struct mr_json_text text)
{
    if (text.n >= 2 && text.at[0] == '"')
        return (struct mr_json_text){text.at + 1, text.n - 2};
    return text;
}

struct decimal {
    uint64_t digits;
    int exponent; /* digits * 10^exponent */
    bool negative;
};

/* An exponent of four digits is as good as any larger one. */
static bool read_exponent(const char *at, size_t n, int *exponent)
{
    int value = 0;
    bool negative = n > 0 && *at == '-';
    size_t i = n > 0 && (*at == '-' || *at == '+') ? 1 : 0;
    if (i == n)
        return false;
    for (; i < n; i++) {
        if (!isdigit((unsigned char)at[i]))
            return false;
        value = MR_MIN(value * 10 + (at[i] - '0'), 9999);
    }
    *exponent += negative ? -value : value;
    return true;
}

static bool read_decimal(struct mr_json_text text, struct decimal *d)
{
    size_t i = 0;
    bool any = false, fraction = false;
    *d = (struct decimal){0};
    if (i < text.n && text.at[i] == '-') {
        d->negative = true;
        i++;
    }
    for (; i < text.n; i++) {
        char c = text.at[i];
        if (c == '.' && !fraction) {
            fraction = true;
        } else if (isdigit((unsigned char)c)) {
            any = true;
            bool fits = d->digits < UINT64_MAX / 10 - 9;
            if (fits)
                d->digits = d->digits * 10 + (uint64_t)(c - '0');
            d->exponent += fits ? -(int)fraction : (int)!fraction;
            if (d->exponent > 9999 || d->exponent < -9999)
                return false;
        } else {
            break;
        }
    }
    if (i == text.n || !any)
        return any;
    if (text.at[i] != 'e' && text.at[i] != 'E')
        return false;
    return read_exponent(text.at + i + 1, text.n - i - 1, &d->exponent);
}

bool mr_json_scaled(struct mr_json_text text, int shift, int64_t *out)
{
    struct decimal d;
    if (!read_decimal(without_quotes(text), &d))
        return false;
    d.exponent += shift;
    for (; d.exponent > 0 && d.digits > 0; d.exponent--)
        if (!mr_mul(d.digits, 10, &d.digits))
            return false;
    for (; d.exponent < -1 && d.digits > 0; d.exponent++)
        d.digits /= 10;
    if (d.exponent == -1)
        d.digits = d.digits / 10 + (d.digits % 10 >= 5);
    if (d.digits > (uint64_t)INT64_MAX)
        return false;
    *out = d.negative ? -(int64_t)d.digits : (int64_t)d.digits;
    return true;
}

static bool read_hex(struct mr_json_text text, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 2; i < text.n; i++) {
        if (!isxdigit((unsigned char)text.at[i]) || value >> 60)
            return false;
        char c = (char)tolower((unsigned char)text.at[i]);
        value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *out = value;
    return text.n > 2;
}

bool mr_json_u64(struct mr_json_text text, uint64_t *out)
{
    int64_t value;
    text = without_quotes(text);
    if (text.n > 2 && text.at[0] == '0' && (text.at[1] == 'x' || text.at[1] == 'X'))
        return read_hex(text, out);
    if (!mr_json_scaled(text, 0, &value) || value < 0)
        return false;
    *out = (uint64_t)value;
    return true;
}

static int hex_digits(const char *at, size_t left)
{
    int value = 0;
    if (left < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)at[i]))
            return -1;
        char c = (char)tolower((unsigned char)at[i]);
        value = value << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

/* At most 3 bytes; halves of surrogate pairs become "?". */
static size_t put_utf8(char *out, int c)
{
    if (c < 0x80) {
        out[0] = (char)(c ? c : '?');
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c >= 0xd800 && c < 0xe000) {
        out[0] = '?';
        return 1;
    }
    out[0] = (char)(0xe0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 0x3f));
    out[2] = (char)(0x80 | (c & 0x3f));
    return 3;
}

/* The character after a backslash at at[0]. [out] used: bytes of the text. Returns bytes put. */
static size_t unescape(const char *at, size_t left, char *out, size_t *used)
{
    static const char plain[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    *used = 1;
    const char *found = left > 0 && at[0] ? strchr(plain, at[0]) : NULL;
    if (found) {
        out[0] = means[found - plain];
        return 1;
    }
    int c = left > 0 && at[0] == 'u' ? hex_digits(at + 1, left - 1) : -1;
    if (c < 0) {
        out[0] = '?';
        return 1;
    }
    *used = 5;
    return put_utf8(out, c);
}

const char *mr_json_string_of(struct mr_json_text text, char *buf, size_t cap, size_t *n)
{
    text = without_quotes(text);
    size_t put = 0;
    for (size_t i = 0; i < text.n && put + 4 < cap;) {
        size_t used = 0;
        if (text.at[i] == '\\') {
            put += unescape(text.at + i + 1, text.n - i - 1, buf + put, &used);
            i += 1 + used;
        } else {
            buf[put++] = text.at[i++];
        }
    }
    buf[put] = 0;
    *n = put;
    return buf;
}
