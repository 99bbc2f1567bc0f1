/* Credentials in URLs and command lines. */
#include "base/secret.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- URLs ---- */

static const char *const schemes[] = {"http://", "https://", "s3://"};

/* Length of the scheme that begins here; 0 if none. */
static size_t scheme_at(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t bytes = strlen(schemes[i]);
        if (n >= bytes && strncasecmp(text, schemes[i], bytes) == 0)
            return bytes;
    }
    return 0;
}

static size_t up_to(const char *text, size_t from, size_t n, const char *set)
{
    while (from < n && !strchr(set, text[from]))
        from++;
    return from;
}

/* If what follows the host's ':' is not a port, it is a password that contains an unescaped '/',
 * '?' or '#'. */
static bool no_port(const char *text, size_t from, size_t to)
{
    const char *colon = memrchr(text + from, ':', to - from);
    if (!colon || text[to - 1] == ']')
        return false;
    for (const char *p = colon + 1; p < text + to; p++)
        if (*p < '0' || *p > '9')
            return true;
    return false;
}

bool mr_url_cut(const char *text, size_t n, struct mr_url *out)
{
    size_t user = scheme_at(text, n), end = up_to(text, user, n, "/?#");
    const char *at = user ? memrchr(text + user, '@', end - user) : NULL;
    if (user && !at && no_port(text, user, end))
        at = memrchr(text + user, '@', n - user);
    *out = (struct mr_url){.user = user, .host = at ? (size_t)(at + 1 - text) : user, .n = n};
    bool s3 = user > 0 && (text[0] == 's' || text[0] == 'S');
    out->tail = s3 ? n : up_to(text, out->host, n, "?#");
    return user > 0;
}

bool mr_url_secret(const struct mr_url *url)
{
    return url->host > url->user || url->tail < url->n;
}

size_t mr_url_write(const char *text, unsigned nth, char *buf, size_t cap)
{
    struct mr_url url;
    char number[16] = "";
    if (!mr_url_cut(text, strlen(text), &url))
        return (size_t)snprintf(buf, cap, "%s", text);
    bool user = url.host > url.user, tail = url.tail < url.n;
    if (nth > 1)
        snprintf(number, sizeof number, "%u", nth);
    return (size_t)snprintf(buf, cap, "%.*s%s%s%s%.*s%s%s", (int)url.user, text, user ? "***" : "",
                            user ? number : "", user ? "@" : "", (int)(url.tail - url.host),
                            text + url.host, tail ? "?..." : "", tail ? number : "");
}

const char *mr_url_show(const char *url, char *buf, size_t cap)
{
    mr_url_write(url, 1, buf, cap);
    return buf;
}

/* ---- names of secrets ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

static bool ends_in_word(const char *name, size_t n, const char *word)
{
    size_t bytes = strlen(word);
    if (n < bytes || strncasecmp(name + n - bytes, word, bytes) != 0)
        return false;
    return n == bytes || strchr("-_.", name[n - bytes - 1]);
}

/* Decided by the last word: --token and AWS_SESSION_TOKEN, but not --max-tokens or --token-file. */
static bool names_secret(const char *name, size_t n)
{
    static const char *const words[] = {
        "token",       "secret",        "password",      "passwd",      "passphrase", "credential",
        "credentials", "auth",          "apikey",        "api-key",     "api_key",    "access-key",
        "access_key",  "access-key-id", "signature",     "secret-key",  "secret_key", "secretkey",
        "private-key", "sig",           "access_key_id", "private_key", "cookie",     "pass",
        "accesskey",   "accesskeyid",   "authorization"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ends_in_word(name, n, words[i]))
            return true;
    return false;
}

/* ---- texts ---- */

struct mask {
    const char *text;
    size_t n, at; /* length of the text, and the position */
    char *to;
    size_t used, cap;
    bool after; /* the previous word was an option that names a secret */
};

static void put(struct mask *m, const char *text, size_t n)
{
    size_t room = m->cap - 1 - m->used;
    n = n < room ? n : room;
    memcpy(m->to + m->used, text, n);
    m->used += n;
}

/* The end of a value: of its argument if it began with that, else the next blank or quote. */
static size_t value_end(const struct mask *m, size_t from, bool whole)
{
    size_t end = from;
    const char *quote = !whole && from < m->n && (m->text[from] == '"' || m->text[from] == '\'')
                            ? m->text + from
                            : NULL;
    for (end += quote != NULL; end < m->n && m->text[end]; end++)
        if (quote ? m->text[end] == *quote : !whole && strchr(" \t\r\n\"'`;&|", m->text[end]))
            break;
    return end;
}

static void put_url(struct mask *m)
{
    size_t end = m->at;
    struct mr_url url;
    while (end < m->n && m->text[end] && !strchr(" \t\r\n\"'`<>|", m->text[end]))
        end++;
    mr_url_cut(m->text + m->at, end - m->at, &url);
    const char *from = m->text + m->at;
    put(m, from, url.user);
    if (url.host > url.user)
        put(m, "***@", 4);
    size_t inner = url.host; /* a URL in the path, as proxies have it, is masked separately */
    while (inner < url.tail && !scheme_at(from + inner, url.tail - inner))
        inner++;
    put(m, from + url.host, inner - url.host);
    if (inner < url.tail) {
        m->at += inner;
        return;
    }
    if (url.tail < url.n)
        put(m, "?...", 4);
    m->at = end;
}

/* NAME=VALUE, "NAME: VALUE" and --NAME VALUE. begins: at the start of its argument. */
static void put_name(struct mask *m, bool begins)
{
    size_t end = m->at;
    while (end < m->n && is_name(m->text[end]) && !scheme_at(m->text + end, m->n - end))
        end++; /* -ihttp://...: a URL may follow directly */
    bool secret = names_secret(m->text + m->at, end - m->at), option = m->text[m->at] == '-';
    char next = end < m->n ? m->text[end] : 0;
    put(m, m->text + m->at, end - m->at);
    m->at = end;
    if (secret && (next == '=' || next == ':') && end + 1 < m->n && m->text[end + 1]) {
        bool header = next == ':';
        size_t from = end + 1;
        while (header && from < m->n && m->text[from] == ' ')
            from++;
        put(m, m->text + end, from - end);
        put(m, "***", 3);
        m->at = value_end(m, from, begins || header);
    } else {
        m->after = secret && option && (next == 0 || next == ' ');
    }
}

/* Handles the start of a word. first: of its argument. */
static void put_word(struct mask *m, bool first)
{
    if (m->after && m->text[m->at] != '-') {
        put(m, "***", 3);
        m->at = value_end(m, m->at, first);
        m->after = false;
        return;
    }
    m->after = false;
    put_name(m, first);
}

size_t mr_secret_mask(const char *text, size_t n, char *buf, size_t cap)
{
    struct mask m = {.text = text, .n = n, .to = buf, .cap = cap};
    while (m.at < n) {
        char before = m.at ? text[m.at - 1] : 0;
        bool word = before == 0 || strchr(" \t\r\n\"'`;&|,(", before);
        if (scheme_at(text + m.at, n - m.at)) {
            put_url(&m);
        } else if (word && text[m.at] && text[m.at] != ' ' && (m.after || is_name(text[m.at]))) {
            size_t at = m.at;
            put_word(&m, before == 0);
            if (m.at == at)
                put(&m, text + m.at++, 1);
        } else {
            put(&m, text + m.at++, 1);
        }
    }
    buf[m.used] = 0;
    return m.used;
}
