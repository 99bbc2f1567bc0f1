/* The two kinds of XML in S3's responses. */
#include "storage/s3/xml.h"
#include "storage/http/http.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 8192 /* keys have 1,024 bytes at most, which %XX makes three times as long */
#define MAX_DEPTH  16

struct parse {
    XML_Parser parser;
    struct mr_s3_page *page; /* NULL: an error */
    int depth;
    bool is_list, bad; /* root seen; a text too long, elements too deep */
    char text[TEXT_BYTES];
    size_t n;
    bool in_contents, in_prefixes, has_key, has_size;
    char key[TEXT_BYTES];
    uint64_t bytes;
    char *error; /* "Code: Message" */
    size_t error_cap;
};

static void stop(struct parse *p)
{
    p->bad = true;
    XML_StopParser(p->parser, XML_FALSE);
}

static const char *local(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon ? colon + 1 : name;
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct parse *p = user;
    (void)attributes;
    name = local(name);
    p->n = 0;
    if (p->depth++ == 0)
        p->is_list = strcmp(name, "ListBucketResult") == 0;
    if (p->depth > MAX_DEPTH)
        stop(p);
    if (p->depth != 2)
        return;
    p->in_contents = strcmp(name, "Contents") == 0;
    p->in_prefixes = strcmp(name, "CommonPrefixes") == 0;
    p->has_key = p->has_size = false;
}

static void XMLCALL on_text(void *user, const XML_Char *text, int n)
{
    struct parse *p = user;
    if (p->n + (size_t)n >= sizeof p->text) {
        stop(p);
        return;
    }
    memcpy(p->text + p->n, text, (size_t)n);
    p->n += (size_t)n;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* %XX and '+' to bytes. false: a %00, or half a %XX. */
static bool decode(const char *from, char *to)
{
    for (; *from; from++) {
        int c = *from == '+' ? ' ' : (unsigned char)*from;
        if (*from == '%') {
            int high = hex(from[1]), low = high < 0 ? -1 : hex(from[2]);
            c = low < 0 ? 0 : high << 4 | low;
            from += 2;
            if (c == 0)
                return false;
        }
        *to++ = (char)c;
    }
    *to = 0;
    return true;
}

static bool number(const char *text, uint64_t *out)
{
    uint64_t n = 0;
    for (const char *c = text; *c; c++)
        if (*c < '0' || *c > '9' || !mr_mul(n, 10, &n) || !mr_add(n, (uint64_t)(*c - '0'), &n))
            return false;
    *out = n;
    return text[0] != 0;
}

static void entry(struct parse *p)
{
    struct mr_s3_page *page = p->page;
    if (!p->has_key || page->stopped)
        return;
    page->stopped =
        page->fn(page->user, p->key, p->in_prefixes, p->has_size ? p->bytes : UINT64_MAX);
    if (page->stopped)
        XML_StopParser(p->parser, XML_FALSE);
}

static void on_list_end(struct parse *p, const char *name)
{
    struct mr_s3_page *page = p->page;
    if (p->depth == 3 &&
        ((p->in_contents && !strcmp(name, "Key")) || (p->in_prefixes && !strcmp(name, "Prefix")))) {
        p->has_key = decode(p->text, p->key);
        if (!p->has_key)
            stop(p);
    } else if (p->depth == 3 && p->in_contents && strcmp(name, "Size") == 0) {
        p->has_size = number(p->text, &p->bytes);
    } else if (p->depth == 2 && strcmp(name, "IsTruncated") == 0) {
        page->truncated = strcmp(p->text, "true") == 0;
    } else if (p->depth == 2 && strcmp(name, "NextContinuationToken") == 0) {
        free(page->next);
        page->next = strdup(p->text);
        if (!page->next)
            stop(p);
    } else if (p->depth == 2 && (p->in_contents || p->in_prefixes)) {
        entry(p);
    }
}

static void on_error_end(struct parse *p, const char *name)
{
    size_t have = strlen(p->error);
    if (p->depth == 2 && (strcmp(name, "Code") == 0 || strcmp(name, "Message") == 0) && p->text[0])
        snprintf(p->error + have, p->error_cap - have, "%s%.180s", have ? ": " : "", p->text);
}

static void XMLCALL on_end(void *user, const XML_Char *name)
{
    struct parse *p = user;
    p->text[p->n] = 0;
    name = local(name);
    if (p->page)
        on_list_end(p, name);
    else
        on_error_end(p, name);
    p->n = 0;
    p->depth--;
}

/* S3 does not use entities. Parsing stops at a declaration, since entities could expand without
 * limit. */
static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int own)
{
    (void)name, (void)system, (void)public, (void)own;
    stop(user);
}

/* Parses into p. [out] why: the parser's error; NULL: none. Returns 0 or -ENOMEM. */
static int run(struct parse *p, const char *xml, size_t bytes, const char **why)
{
    p->parser = XML_ParserCreate(NULL);
    if (!p->parser)
        return mr_error_nomem("XML parser", 0);
    XML_SetUserData(p->parser, p);
    XML_SetElementHandler(p->parser, on_start, on_end);
    XML_SetCharacterDataHandler(p->parser, on_text);
    XML_SetStartDoctypeDeclHandler(p->parser, on_doctype);
    *why = NULL;
    if (bytes > INT32_MAX || XML_Parse(p->parser, xml, (int)bytes, 1) != XML_STATUS_OK)
        *why = XML_ErrorString(XML_GetErrorCode(p->parser));
    XML_ParserFree(p->parser);
    return 0;
}

int mr_s3_page_parse(const char *place, const char *xml, size_t bytes, struct mr_s3_page *page)
{
    const char *why;
    struct parse *p = calloc(1, sizeof *p);
    if (!p)
        return mr_error_nomem("list of objects", sizeof *p);
    p->page = page;
    int rc = run(p, xml, bytes, &why);
    if (rc < 0)
        goto end;
    if (!page->stopped && (why || p->bad || !p->is_list))
        rc = mr_error_set(MR_EFORMAT, "%s: the server's list of objects makes no sense: %s", place,
                          !p->is_list ? "not a ListBucketResult: is this endpoint S3?"
                          : why       ? why
                                      : "damaged");
end:
    free(p);
    return rc;
}

void mr_s3_error_text(const char *body, size_t bytes, char *out, size_t cap)
{
    const char *why;
    out[0] = 0;
    struct parse *p = bytes && body[0] == '<' ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return;
    p->error = out;
    p->error_cap = cap;
    run(p, body, bytes, &why); /* often cut off; uses what was received */
    free(p);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
}
