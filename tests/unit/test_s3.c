/* White-box. s3://: signed requests that a server of ours checks; lists in pages; data sets equal
 * to those on disk; and the same against a real S3 server, moto from PyPI, where pip can install
 * it. */
#include "npy_write.h"
#include "remote.h"

#include "base/base.h"
#include "storage/http/http.h"
#include "storage/s3/xml.h"

static void use_keys(const char *access, const char *secret, const char *token)
{
    static const char *const names[] = {
        "AWS_PROFILE",       "AWS_REGION",        "AWS_DEFAULT_REGION",   "AWS_ENDPOINT_URL_S3",
        "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"};
    for (size_t i = 0; i < MR_COUNT(names); i++)
        unsetenv(names[i]);
    unlink(test_path("credentials"));
    unlink(test_path("config"));
    setenv("AWS_SHARED_CREDENTIALS_FILE", test_path("credentials"), 1);
    setenv("AWS_CONFIG_FILE", test_path("config"), 1);
    setenv("AWS_ENDPOINT_URL", url(access ? "s3/" : "open"), 1);
    setenv("AWS_DEFAULT_REGION", "test-1", 1);
    if (access) {
        setenv("AWS_ACCESS_KEY_ID", access, 1);
        setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
    }
    if (token)
        setenv("AWS_SESSION_TOKEN", token, 1);
}

static const char *const odd_keys[] = {"plain.bin",
                                       "a b+c&d=e%41.bin",
                                       "\xc3\xa4/\xe2\x82\xac '(1)!*.bin",
                                       "deep/er/x~.bin",
                                       "one",
                                       "two",
                                       "three"};

static void make_bucket(const char *root)
{
    char path[800];
    for (size_t i = 0; i < MR_COUNT(odd_keys); i++) {
        snprintf(path, sizeof path, "%s/bucket/%s", root, odd_keys[i]);
        for (char *c = path + strlen(root) + 1; *c; c++)
            if (*c == '/') {
                *c = 0;
                mkdir(path, 0700);
                *c = '/';
            }
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fwrite(big + i, 1, 5000 + i, f);
        fclose(f);
    }
}

static void keys_of_any_characters_read_signed(void **state)
{
    (void)state;
    static const char *const tokens[] = {NULL, "tokenTEST"};
    for (size_t t = 0; t < 2; t++) {
        use_keys("AKTEST", "secretTEST", tokens[t]);
        for (size_t i = 0; i < MR_COUNT(odd_keys); i++) {
            char name[300];
            snprintf(name, sizeof name, "s3://bucket/%s", odd_keys[i]);
            reads_well(name, big + i, 5000 + i);
        }
    }
    use_keys(NULL, NULL, NULL);
    reads_well("s3://bucket/one", big + 4, 5004);
}

static void keys_come_from_files(void **state)
{
    (void)state;
    static const char credentials[] =
        "# ours\n[default]\naws_access_key_id = WRONG\naws_secret_access_key=wrong\n\n"
        "[ work ]\naws_access_key_id=AKTEST\naws_secret_access_key = secretTEST\n";
    char config[600];
    use_keys("AKTEST", "x", NULL);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_DEFAULT_REGION");
    setenv("AWS_PROFILE", "work", 1);
    snprintf(config, sizeof config,
             "[default]\nregion = nowhere-9\n[profile work]\ns3 =\n  region = "
             "below\nregion=test-1\nendpoint_url = %s\n",
             url("s3"));
    test_write("credentials", credentials, sizeof credentials - 1);
    test_write("config", config, strlen(config));
    reads_well("s3://bucket/two", big + 5, 5005);
}

static void refusals_say_why(void **state)
{
    (void)state;
    void *got;
    uint64_t n;
    quick_options(1, NULL, 0);
    use_keys("AKTEST", "wrong", NULL);
    test_fails(read_by_reader("s3://bucket/one", 0, MR_WHOLE, &got, &n), -EACCES, "s3://bucket/one",
               "403 Forbidden", "SignatureDoesNotMatch: the signature is wrong",
               "(the request was signed)");
    free(got);
    use_keys(NULL, NULL, NULL);
    setenv("AWS_ENDPOINT_URL", url("s3"), 1);
    test_fails(read_by_reader("s3://bucket/one", 0, 10, &got, &n), -EACCES, "AccessDenied",
               "no AWS keys were found");
    free(got);
    use_keys("AKTEST", "secretTEST", NULL);
    test_fails(read_by_reader("s3://bucket/none", 0, 10, &got, &n), -ENOENT, "NoSuchKey",
               "s3://bucket/none");
    free(got);
    test_fails(read_by_reader("s3:///none", 0, 10, &got, &n), MR_EOPTION, "no bucket");
    free(got);
}

/* ---- lists ---- */

struct seen {
    char text[2000];
    int stop_after;
};

static int note(void *user, const char *name, bool folder, uint64_t bytes)
{
    struct seen *s = user;
    size_t at = strlen(s->text);
    snprintf(s->text + at, sizeof s->text - at, "%s%s %lld\n", name, folder ? "/" : "",
             bytes == UINT64_MAX ? -1ll : (long long)bytes);
    return s->stop_after > 0 && --s->stop_after == 0 ? 7 : 0;
}

static void lists_come_whole_page_by_page(void **state)
{
    (void)state;
    use_keys("AKTEST", "secretTEST", NULL);
    struct seen s = {0};
    test_works(mr_store_list("s3://bucket", note, &s));
    assert_string_equal(
        s.text, "a b+c&d=e%41.bin 5001\ndeep/ -1\none 5004\nplain.bin 5000\nthree 5006\ntwo 5005\n"
                "\xc3\xa4/ -1\n");
    s = (struct seen){0};
    test_works(mr_store_list("s3://bucket/deep/er/", note, &s));
    assert_string_equal(s.text, "x~.bin 5003\n");
    s = (struct seen){.stop_after = 5};
    assert_int_equal(mr_store_list("s3://bucket/", note, &s), 7);
    test_fails(mr_store_list("s3://bucket/nothing/", note, &s), MR_EOPTION, "nothing is there");
}

static void lists_that_make_no_sense(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{}",
        "<html></html>",
        "<ListBucketResult><Contents>",
        "<ListBucketResult><Contents><Key>a%0</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a%00</Key></Contents></ListBucketResult>",
        "<!DOCTYPE x [<!ENTITY a "
        "'aaaa'>]><ListBucketResult><Contents><Key>&a;</Key></Contents></ListBucketResult>",
    };
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        struct seen s = {0};
        struct mr_s3_page page = {.fn = note, .user = &s};
        test_fails(mr_s3_page_parse("s3://x/", bad[i], strlen(bad[i]), &page), MR_EFORMAT,
                   "s3://x/", "makes no sense");
        assert_string_equal(s.text, "");
        free(page.next);
    }
}

static int pass(void *user, const char *name, bool folder, uint64_t bytes)
{
    (void)user, (void)name, (void)folder, (void)bytes;
    return 0;
}

static void lists_without_end_end(void **state)
{
    (void)state;
    static const char *const stuck[] = {"same", "back", "swap"};
    char place[64];
    use_keys(NULL, NULL, NULL);
    for (size_t i = 0; i < MR_COUNT(stuck); i++) {
        snprintf(place, sizeof place, "s3://endless-%s/", stuck[i]);
        test_fails(mr_store_list(place, pass, NULL), MR_EFORMAT, place, "in the order of names");
    }
    test_fails(mr_store_list("s3://endless-empty", pass, NULL), MR_EFORMAT,
               "1000 pages in a row are empty");
    setenv("MILLRACE_LIST_LIMIT", "1MiB", 1);
    test_fails(mr_store_list("s3://endless-grow", pass, NULL), MR_ELIMIT,
               "more than the 1048576 bytes", "MILLRACE_LIST_LIMIT");
    setenv("MILLRACE_LIST_LIMIT", "much", 1);
    test_fails(mr_store_list("s3://bucket", pass, NULL), MR_EOPTION, "MILLRACE_LIST_LIMIT");
    unsetenv("MILLRACE_LIST_LIMIT");
    test_works(mr_store_list("s3://bucket", pass, NULL));
}

/* ---- data sets ---- */

static void must_equal(const char *uri, const char *local)
{
    struct mr_dataset *a = test_open(local), *b = test_open(uri);
    assert_int_equal(mr_dataset_length(a), mr_dataset_length(b));
    assert_int_equal(mr_dataset_fingerprint(a), mr_dataset_fingerprint(b));
    const struct mr_spec *spec = mr_dataset_field(a, 0);
    uint64_t bytes;
    test_works(mr_spec_bytes(spec, &bytes));
    uint8_t *x = calloc(1, bytes), *y = calloc(1, bytes); /* samples may be smaller */
    for (uint64_t i = 0; i < mr_dataset_length(a); i += 1 + mr_dataset_length(a) / 20) {
        void *px[MR_MAX_FIELDS] = {x}, *py[MR_MAX_FIELDS] = {y};
        test_works(mr_dataset_read(a, i, px, NULL));
        test_works(mr_dataset_read(b, i, py, NULL));
        assert_memory_equal(x, y, bytes);
    }
    free(x);
    free(y);
    mr_dataset_close(a);
    mr_dataset_close(b);
}

static void write_npy(const char *name, uint32_t n)
{
    char shape[40];
    uint8_t *file = malloc(NPY_HEAD_BYTES + n * 10u);
    assert_non_null(file);
    snprintf(shape, sizeof shape, "%u, 10", n);
    size_t head = npy_put(file, "|u1", "False", shape);
    memcpy(file + head, big, n * 10u);
    test_write(name, file, head + n * 10u);
    free(file);
}

static void data_sets_by_url_equal_those_on_disk(void **state)
{
    (void)state;
    use_keys("AKTEST", "secretTEST", NULL);
    quick_options(3, NULL, 0);
    char local[700], remote[700];
    snprintf(local, sizeof local, "raw:%s,shape=10x10", test_path("bucket/plain.bin"));
    must_equal("raw:s3://bucket/plain.bin,shape=10x10", local);
    test_write("records.bin", big, 11 * 1000 + 3);
    snprintf(local, sizeof local, "raw:%s,dtype=u16,shape=2x2,skip=3,record=11",
             test_path("records.bin"));
    snprintf(remote, sizeof remote, "raw:%s,dtype=u16,shape=2x2,skip=3,record=11",
             url("ok/records.bin"));
    must_equal(remote, local);
    snprintf(
        local, sizeof local,
        "cd '%s/bucket' && mkdir -p sh && tar cf sh/b.tar plain.bin && tar cf sh/a.tar plain.bin",
        test_dir);
    assert_int_equal(system(local), 0); /* NOLINT(cert-env33-c) */
    snprintf(local, sizeof local, "tar:%s,index=none,fields=[x:bin]", test_path("bucket/sh"));
    static const char *const shards[] = {"sh", "sh/", "sh/?.tar"};
    for (size_t i = 0; i < MR_COUNT(shards); i++) {
        snprintf(remote, sizeof remote, "tar:s3://bucket/%s,index=none,fields=[x:bin]", shards[i]);
        must_equal(remote, local);
    }
    test_fails(test_open_fails("tar:s3://bucket/absent"), -ENOENT, "s3://bucket/absent");
    write_npy("n.npy", 20000);
    must_equal(url("ok/n.npy"), test_path("n.npy"));
    char uri[400];
    snprintf(uri, sizeof uri, "npy:%s", url("redirect/n.npy?a=1,2"));
    must_equal(uri, test_path("n.npy"));
}

/* ---- a real server ---- */

static int count_all(void *user, const char *name, bool folder, uint64_t bytes)
{
    uint64_t *sum = user;
    (void)folder;
    assert_int_equal(bytes, 1000 + strtoul(name, NULL, 10));
    *sum += 1;
    return 0;
}

/* In a build folder that lasts, so that it is installed once. */
static void a_real_server_lists_and_reads(void **state)
{
    (void)state;
    struct server moto;
    char python[600];
    snprintf(python, sizeof python, "%s/bin/python", TEST_S3_SERVER);
    if (access(TEST_S3_SERVER "/ready", F_OK) ||
        !server_start(&moto, python, TEST_SUPPORT "/s3_server.py", test_dir)) {
        print_message(
            "SKIP a real S3 server: pip could not install moto[s3] (test setup.s3_server)\n");
        return;
    }
    char endpoint[64];
    use_keys("AKREAL", "secretREAL", NULL);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", moto.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_DEFAULT_REGION", "us-east-1", 1);
    uint64_t n = 0;
    test_works(mr_store_list("s3://photos/p/", count_all, &n));
    assert_int_equal(n, 1203);
    for (uint32_t i = 0; i < 1203; i += 401) {
        char name[64];
        snprintf(name, sizeof name, "s3://photos/p/%04u.bin", i);
        reads_well(name, big, 1000 + i);
    }
    char local[700];
    test_write("0000.bin", big, 1000);
    snprintf(local, sizeof local, "raw:%s,shape=10", test_path("0000.bin"));
    must_equal("raw:s3://photos/p/0000.bin,shape=10", local);
    server_stop(&moto);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_make_no_sense),
        cmocka_unit_test(keys_of_any_characters_read_signed),
        cmocka_unit_test(keys_come_from_files),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(lists_come_whole_page_by_page),
        cmocka_unit_test(lists_without_end_end),
        cmocka_unit_test(data_sets_by_url_equal_those_on_disk),
        cmocka_unit_test(a_real_server_lists_and_reads),
    };
    void *state = NULL;
    int skip = remote_setup(&state);
    if (!skip)
        make_bucket(test_dir);
    quick_options(3, NULL, 0);
    int rc = skip ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s/bucket'", test_dir);
    if (!skip && system(command)) /* NOLINT(cert-env33-c) */
        rc = 1;
    remote_teardown(&state);
    return skip < 0 ? 1 : rc;
}
