/* White-box. Credentials: what is shown of URLs and command lines, and what a name that hides some
 * stands for. */
#include "base/secret.h"
#include "storage/storage.h"
#include "unit.h"

#include <millrace/text.h>
#include <string.h>

static void urls_are_shown_without_secrets(void **state)
{
    (void)state;
    static const struct {
        const char *url, *shown;
    } cases[] = {
        {"http://u:p@h/a/x.npy?sig=S#f", "http://***@h/a/x.npy?..."},
        {"https://u@h:80/x", "https://***@h:80/x"},
        {"http://h/x#f", "http://h/x?..."},
        {"HTTP://u:p@h", "HTTP://***@h"},
        {"http://u:p@w@[::1]:8/x", "http://***@[::1]:8/x"},
        {"http://u:p/w?x#y@h/x", "http://***@h/x"}, /* a password that should have been encoded */
        {"http://h:80/x@2.png", "http://h:80/x@2.png"},
        {"s3://k:s@bucket/key?a#b", "s3://***@bucket/key?a#b"},
        {"s3://bucket/who?@home", "s3://bucket/who?@home"},
        {"/data/what?.npy", "/data/what?.npy"},
        {"a@b:c?d#e", "a@b:c?d#e"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char shown[100], again[100];
        assert_string_equal(mr_url_show(cases[i].url, shown, sizeof shown), cases[i].shown);
        assert_string_equal(mr_url_show(shown, again, sizeof again), shown);
    }
}

static void command_lines_lose_secrets(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"feed tar:http://u:p@h/s.tar?sig=S -e 1", "feed tar:http://***@h/s.tar?... -e 1"},
        {"sh -c \"curl 'http://u:p@h/x' && A_TOKEN=b c\"",
         "sh -c \"curl 'http://***@h/x' && A_TOKEN=*** c\""},
        {"x AWS_SECRET_ACCESS_KEY=a --n 3", "x AWS_SECRET_ACCESS_KEY=*** --n 3"},
        {"x --token abc --lr 0.1", "x --token *** --lr 0.1"},
        {"x --api-key=abc y", "x --api-key=*** y"},
        {"x --max-tokens 5 --token-file f --tokenizer=g token",
         "x --max-tokens 5 --token-file f --tokenizer=g token"},
        {"x --token --next 1", "x --token --next 1"},
        {"-H 'Authorization: Bearer a b'", "-H 'Authorization: ***"},
        {"npy:what?.npy,labels=y@z.npy", "npy:what?.npy,labels=y@z.npy"},
        {"password=", "password="},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char shown[200];
        assert_string_equal(mr_text_hide(cases[i].text, shown, sizeof shown), cases[i].shown);
    }
    static const char args[] = "x\0--password\0a b\0K_TOKEN=a b\0y";
    char shown[64];
    assert_int_equal(mr_secret_mask(args, sizeof args, shown, sizeof shown), 31);
    assert_memory_equal(shown, "x\0--password\0***\0K_TOKEN=***\0y", 31);
}

/* Of any bytes: no more than the room, ended, and hiding what is hidden changes nothing. */
static void masking_is_bounded(void **state)
{
    (void)state;
    static const char *const parts[] = {"http://", "u:p@", "h/x", "?", "TOKEN", "=",
                                        ":",       " ",    "\"",  "-", "s3://", "\xff"};
    for (uint32_t i = 0; i < 20000; i++) {
        char text[200] = "", shown[400], cut[41];
        for (uint32_t k = 0; k < 12; k++)
            strcat(text, parts[test_u64(i * 12 + k) % (sizeof parts / sizeof *parts)]);
        mr_text_hide(text, shown, sizeof shown);
        memset(cut, 'x', sizeof cut);
        size_t room = 1 + test_u64(i) % 40;
        mr_text_hide(text, cut, room);
        assert_true(strlen(cut) < room && cut[room] == 'x');
        assert_memory_equal(cut, shown, strlen(cut));
        assert_null(strstr(shown, "http://u:p@"));
        assert_null(strstr(shown, "s3://u:p@"));
    }
}

static void expect(const char *name, const char *url)
{
    char *got = mr_url_reveal(name);
    assert_string_equal(got, url);
    free(got);
}

static void names_stand_for_their_urls(void **state)
{
    (void)state;
    const char *a = NULL, *b = NULL, *c = NULL, *again = NULL, *plain = "/what?.npy";
    assert_int_equal(mr_url_acquire("http://u:p@h/d/x?s=1", &a), 1);
    assert_int_equal(mr_url_acquire("http://u:p@h/d/x?s=2", &b), 1);
    assert_int_equal(mr_url_acquire("http://v:q@h/d/z", &c), 1);
    assert_int_equal(mr_url_acquire("http://u:p@h/d/x?s=1", &again), 1);
    assert_int_equal(mr_url_acquire("/what?.npy", &plain), 0);
    assert_string_equal(plain, "/what?.npy");
    assert_string_equal(a, "http://***@h/d/x?...");
    assert_string_equal(again, a);
    assert_string_not_equal(a, b);
    expect(a, "http://u:p@h/d/x?s=1");
    expect(b, "http://u:p@h/d/x?s=2");
    expect(c, "http://v:q@h/d/z");
    expect("http://***@h/d/a.png", "http://u:p@h/d/a.png");       /* built below a root */
    expect("http://***@evil/d/a.png", "http://***@evil/d/a.png"); /* another host gets nothing */
    expect("http://***@h.evil/a.png", "http://***@h.evil/a.png");
    expect("https://***@h/d/a.png", "https://***@h/d/a.png");
    mr_url_release(again);
    expect(a, "http://u:p@h/d/x?s=1");
    char name[64];
    snprintf(name, sizeof name, "%s", a);
    mr_url_release(a);
    mr_url_release(b);
    mr_url_release(c);
    expect(name, name);
}

static uint64_t hash(const char *url)
{
    return mr_url_hash(7, url, strlen(url));
}

/* What signs a URL is no part of what it names; all else is, as before there was a difference. */
static void signatures_are_no_identity(void **state)
{
    (void)state;
    static const char plain[] = "http://h/get?file=a&b=c";
    assert_true(hash(plain) == mr_hash(7, plain, strlen(plain)));
    assert_true(hash("http://u:p@h/x.tar?X-Amz-Date=1&X-Amz-Signature=2") ==
                hash("http://h/x.tar"));
    assert_true(hash("http://h/x.tar?sig=2&se=4") == hash("http://h/x.tar"));
    assert_true(hash("http://h/get?sig=1&file=a") == hash("http://h/get?file=a&sig=2"));
    assert_true(hash("http://h/get?file=a") != hash("http://h/get?file=b"));
    assert_true(hash("s3://b/x?sig=1") != hash("s3://b/x"));
}

/* Files keep the URL apart from the name; a path stays a path. */
static void files_are_named_without_secrets(void **state)
{
    (void)state;
    struct mr_files *files = mr_files_create();
    int id = mr_files_add_lazy(files, "http://u:p@127.0.0.1:1/x.npy?sig=S");
    if (id == MR_EUNSUPPORTED) { /* built without libcurl */
        assert_null(strstr(mr_last_error(), "sig=S"));
        mr_files_destroy(files);
        skip();
    }
    assert_int_equal(id, 0);
    assert_int_equal(mr_files_add_lazy(files, "/tmp/x.npy?sig=S"), 1);
    assert_string_equal(mr_files_name(files, 0), "http://***@127.0.0.1:1/x.npy?...");
    assert_string_equal(mr_files_url(files, 0), "http://u:p@127.0.0.1:1/x.npy?sig=S");
    assert_string_equal(mr_files_name(files, 1), "/tmp/x.npy?sig=S");
    assert_string_equal(mr_files_url(files, 1), "/tmp/x.npy?sig=S");
    mr_files_destroy(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_shown_without_secrets),
        cmocka_unit_test(command_lines_lose_secrets),
        cmocka_unit_test(masking_is_bounded),
        cmocka_unit_test(names_stand_for_their_urls),
        cmocka_unit_test(signatures_are_no_identity),
        cmocka_unit_test(files_are_named_without_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
