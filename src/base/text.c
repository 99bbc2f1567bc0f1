/* Text, and numbers in the C locale: the program may have set a locale with a decimal comma. */
#include "base/base.h"

#include "base/secret.h"
#include <locale.h>
#include <millrace/text.h>
#include <stdio.h>
#include <string.h>

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double mr_text_to_f64(const char *text, char **end)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale ? strtod_l(text, end, c_locale) : strtod(text, end);
}

const char *mr_f64_to_text(double value, char buf[32])
{
    pthread_once(&c_locale_once, make_c_locale);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    if (before)
        uselocale(before);
    return buf;
}

bool mr_ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

uint32_t mr_text_code(const char *text, size_t *bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80   ? 1
               : p[0] < 0xC2 ? 0
               : p[0] < 0xE0 ? 2
               : p[0] < 0xF0 ? 3
               : p[0] < 0xF5 ? 4
                             : 0;
    uint32_t code = n == 1 ? p[0] : n ? p[0] & (0x7Fu >> n) : 0;
    *bytes = 1;
    if (n == 0)
        return MR_NOT_UTF8;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) /* also stops at the terminating NUL */
            return MR_NOT_UTF8;
        code = code << 6 | (p[i] & 0x3Fu);
    }
    if (code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        return MR_NOT_UTF8;
    *bytes = n;
    return code;
}

bool mr_text_plain(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7F && code < 0xA0) || code == MR_NOT_UTF8;
    bool direction = code == 0x61C || code == 0x200E || code == 0x200F ||
                     (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return !control && !direction;
}

char *mr_text_printable(char *text)
{
    if (!text)
        return NULL;
    char *to = text;
    size_t bytes;
    for (const char *from = text; *from; from += bytes) {
        bool plain = mr_text_plain(mr_text_code(from, &bytes)) || *from == '\t';
        if (plain)
            memmove(to, from, bytes);
        else
            *to = '?';
        to += plain ? bytes : 1;
    }
    *to = 0;
    return text;
}

/* XML has no form for control characters, escaped or not. */
static const char *as_xml(const char *text, size_t *bytes)
{
    uint32_t code = mr_text_code(text, bytes);
    switch (code) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    default:
        return code < 32 || code == MR_NOT_UTF8 ? "?" : NULL;
    }
}

void mr_text_write_xml(const char *text, FILE *to)
{
    for (size_t bytes; text && to && *text; text += bytes) {
        const char *as = as_xml(text, &bytes);
        if (as)
            fputs(as, to);
        else
            fwrite(text, 1, bytes, to);
    }
}

const char *mr_text_hide(const char *text, char *buf, size_t cap)
{
    if (!buf || cap == 0)
        return "";
    if (!text)
        text = "";
    mr_secret_mask(text, strlen(text), buf, cap);
    return buf;
}
