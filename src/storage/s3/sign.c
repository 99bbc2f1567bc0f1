/*
 * AWS Signature Version 4 of a request without a body. libcurl has it, too
 * (CURLOPT_AWS_SIGV4), but each of its versions in use signs something wrongly: 7.88 does not sort
 * the query nor sign the body's hash, 8.14 takes "%2B" in a query for a space and refuses a path
 * with dots.
 */
#include "storage/s3/sign.h"
#include "storage/s3/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* SHA-256 of "" */
#define HEX   (2 * MR_SHA256_BYTES + 1)

/* Pieces of a URL. */
struct parts {
    const char *host, *path, *query;
    size_t n_host, n_path;
};

/* "https://user@host:443/path?query": host without the port that is the scheme's own, as libcurl
 * writes it. */
static void split(const char *url, struct parts *out)
{
    const char *host = strstr(url, "://"), *at;
    bool tls = strncmp(url, "https:", 6) == 0;
    host = host ? host + 3 : url;
    size_t n = strcspn(host, "/?");
    at = memrchr(host, '@', n);
    out->path = host + n;
    if (at) {
        n -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    const char *port = tls ? ":443" : ":80";
    size_t n_port = strlen(port);
    if (n > n_port && strncmp(host + n - n_port, port, n_port) == 0)
        n -= n_port;
    out->host = host;
    out->n_host = n;
    out->n_path = strcspn(out->path, "?");
    out->query = out->path[out->n_path] ? out->path + out->n_path + 1 : "";
}

static void add_text(struct mr_sha256 *s, const char *text)
{
    mr_sha256_add(s, text, strlen(text));
}

static const char *signed_names(const struct mr_s3_account *a)
{
    return a->token ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                    : "host;x-amz-content-sha256;x-amz-date";
}

/* The hash of the request in its canonical form. */
static void hash_request(const struct mr_s3_account *a, const char *method, const struct parts *p,
                         const char *date, char out[HEX])
{
    struct mr_sha256 s;
    uint8_t sum[MR_SHA256_BYTES];
    mr_sha256_begin(&s);
    add_text(&s, method);
    add_text(&s, "\n");
    mr_sha256_add(&s, p->n_path ? p->path : "/", p->n_path ? p->n_path : 1);
    add_text(&s, "\n");
    add_text(&s, p->query);
    add_text(&s, "\nhost:");
    mr_sha256_add(&s, p->host, p->n_host);
    add_text(&s, "\nx-amz-content-sha256:" EMPTY "\nx-amz-date:");
    add_text(&s, date);
    if (a->token) {
        add_text(&s, "\nx-amz-security-token:");
        add_text(&s, a->token);
    }
    add_text(&s, "\n\n");
    add_text(&s, signed_names(a));
    add_text(&s, "\n" EMPTY);
    mr_sha256_end(&s, sum);
    mr_sha256_hex(sum, out);
}

static void extend(uint8_t key[MR_SHA256_BYTES], const char *text)
{
    mr_hmac_sha256(key, MR_SHA256_BYTES, text, strlen(text), key);
}

/* date: "20130524T000000Z"; day: its first 8 characters. */
static void sign_hash(const struct mr_s3_account *a, const char *date, const char *day,
                      const char *hash, char out[HEX])
{
    uint8_t key[MR_SHA256_BYTES], whole[MR_SHA256_BYTES];
    struct mr_sha256 s;
    char text[256], first[sizeof a->secret + 4];
    int n = snprintf(first, sizeof first, "AWS4%s", a->secret);
    if (n > MR_SHA256_BLOCK) { /* as HMAC wants it */
        mr_sha256_begin(&s);
        mr_sha256_add(&s, first, (size_t)n);
        mr_sha256_end(&s, whole);
        mr_hmac_sha256(whole, sizeof whole, day, strlen(day), key);
    } else {
        mr_hmac_sha256(first, (size_t)n, day, strlen(day), key);
    }
    extend(key, a->region);
    extend(key, "s3");
    extend(key, "aws4_request");
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date, day,
             a->region, hash);
    extend(key, text);
    mr_sha256_hex(key, out);
    explicit_bzero(first, sizeof first);
    explicit_bzero(whole, sizeof whole);
}

int mr_s3_sign(const struct mr_s3_account *a, const char *method, const char *url, time_t now,
               bool (*add)(void *user, const char *line), void *user)
{
    struct parts p;
    struct tm tm;
    char date[32], day[16], hash[HEX], signature[HEX], line[1024];
    char *token = NULL;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &tm);
    strftime(day, sizeof day, "%Y%m%d", &tm);
    split(url, &p);
    hash_request(a, method, &p, date, hash);
    sign_hash(a, date, day, hash, signature);
    snprintf(line, sizeof line, "Host: %.*s", (int)p.n_host, p.host);
    bool ok = add(user, line) && add(user, "x-amz-content-sha256: " EMPTY);
    snprintf(line, sizeof line, "x-amz-date: %s", date);
    ok = ok && add(user, line);
    snprintf(line, sizeof line,
             "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request, "
             "SignedHeaders=%s, Signature=%s",
             a->access, day, a->region, signed_names(a), signature);
    ok = ok && add(user, line);
    if (ok && a->token) {
        ok = asprintf(&token, "x-amz-security-token: %s", a->token) >= 0 && add(user, token);
        if (token)
            explicit_bzero(token, strlen(token));
        free(token);
    }
    return ok ? 0 : -ENOMEM;
}
