/* White-box. SHA-256 and signatures of S3 requests: the values of FIPS 180, RFC 4231 and AWS's
 * documentation. test_s3 checks whole requests by a server's own computation. */
#include "unit.h"

#include "storage/s3/sha256.h"
#include "storage/s3/sign.h"

#include <errno.h>

static void assert_sum(const uint8_t sum[MR_SHA256_BYTES], const char *hex)
{
    char text[2 * MR_SHA256_BYTES + 1];
    mr_sha256_hex(sum, text);
    assert_string_equal(text, hex);
}

/* `times` copies, added in pieces of `piece` bytes. */
static void hash(const char *text, uint64_t times, size_t piece, uint8_t out[MR_SHA256_BYTES])
{
    struct mr_sha256 s;
    size_t n = strlen(text), bytes = n * times;
    char *all = malloc(bytes + 1);
    assert_non_null(all);
    for (uint64_t i = 0; i < times; i++)
        memcpy(all + i * n, text, n);
    mr_sha256_begin(&s);
    for (size_t at = 0; at < bytes; at += piece)
        mr_sha256_add(&s, all + at, MR_MIN(piece, bytes - at));
    mr_sha256_end(&s, out);
    free(all);
}

static void sums_are_known(void **state)
{
    (void)state;
    uint8_t sum[MR_SHA256_BYTES], other[MR_SHA256_BYTES];
    hash("", 0, 1, sum);
    assert_sum(sum, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash("abc", 1, 3, sum);
    assert_sum(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash("a", 1000000, 1000, sum);
    assert_sum(sum, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    for (uint64_t n = 50; n < 140; n++) { /* around the ends of blocks */
        hash("x", n, n, sum);
        hash("x", n, 7, other);
        assert_memory_equal(sum, other, sizeof sum);
    }
    mr_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, sum);
    assert_sum(sum, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

struct lines {
    char text[4096];
    int fail_at; /* 0: never */
};

static bool add(void *user, const char *line)
{
    struct lines *l = user;
    size_t at = strlen(l->text);
    snprintf(l->text + at, sizeof l->text - at, "%s\n", line);
    return !l->fail_at || --l->fail_at > 0;
}

static struct mr_s3_account example(void)
{
    return (struct mr_s3_account){.access = "AKIAIOSFODNN7EXAMPLE",
                                  .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                  .region = "us-east-1"};
}

#define EXAMPLE_TIME 1369353600 /* 24 May 2013, 0:00 UTC */

static void assert_signed(const struct mr_s3_account *a, const char *url, const char *signature)
{
    struct lines l = {0};
    char want[100];
    snprintf(want, sizeof want, "Signature=%s\n", signature);
    assert_int_equal(mr_s3_sign(a, "GET", url, EXAMPLE_TIME, add, &l), 0);
    assert_non_null(strstr(l.text, want));
    assert_non_null(strstr(l.text, "x-amz-date: 20130524T000000Z\n"));
}

static void signatures_are_known(void **state)
{
    (void)state;
    struct mr_s3_account a = example();
    assert_signed(&a, "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
                  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    assert_signed(&a, "https://examplebucket.s3.amazonaws.com/?lifecycle=",
                  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

/* Host as libcurl would write it; the path of a URL without one is "/". */
static void hosts_and_paths(void **state)
{
    (void)state;
    struct mr_s3_account a = example();
    static const struct {
        const char *url, *host;
    } cases[] = {
        {"https://h.example:443/b/k", "Host: h.example\n"},
        {"http://h.example:443/b/k", "Host: h.example:443\n"},
        {"http://user:pass@h.example:80/b/k", "Host: h.example\n"},
        {"http://[::1]:9000/b/k@c", "Host: [::1]:9000\n"},
        {"http://h.example?list-type=2", "Host: h.example\n"},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct lines l = {0};
        assert_int_equal(mr_s3_sign(&a, "HEAD", cases[i].url, EXAMPLE_TIME, add, &l), 0);
        assert_non_null(strstr(l.text, cases[i].host));
        assert_null(strstr(l.text, "pass"));
    }
}

/* The token is sent and signed; secrets of any length; lines that cannot be added. */
static void tokens_and_long_secrets(void **state)
{
    (void)state;
    struct mr_s3_account a = example();
    struct lines one = {0}, two = {0};
    assert_int_equal(mr_s3_sign(&a, "GET", "http://h/b", EXAMPLE_TIME, add, &one), 0);
    a.token = (char *)(uintptr_t) "TOKEN";
    assert_int_equal(mr_s3_sign(&a, "GET", "http://h/b", EXAMPLE_TIME, add, &two), 0);
    assert_non_null(strstr(two.text, "x-amz-security-token: TOKEN\n"));
    assert_non_null(strstr(two.text, "SignedHeaders=host;x-amz-content-sha256;x-amz-date;"
                                     "x-amz-security-token, "));
    assert_string_not_equal(strstr(one.text, "Signature="), strstr(two.text, "Signature="));
    for (size_t n = 56; n < sizeof a.secret; n += 103) {
        memset(a.secret, 's', n);
        a.secret[n] = 0;
        struct lines l = {0};
        assert_int_equal(mr_s3_sign(&a, "GET", "http://h/b", EXAMPLE_TIME, add, &l), 0);
    }
    for (int i = 1; i <= 5; i++) {
        struct lines l = {.fail_at = i};
        assert_int_equal(mr_s3_sign(&a, "GET", "http://h/b", EXAMPLE_TIME, add, &l), -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_known),
        cmocka_unit_test(signatures_are_known),
        cmocka_unit_test(hosts_and_paths),
        cmocka_unit_test(tokens_and_long_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
