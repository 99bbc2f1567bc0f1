/* White-box. Remote files: right bytes from servers that are well, slow or odd; clear errors, and
 * an end, from those that are broken. */
#include "pictures.h"
#include "remote.h"

#include "base/base.h"
#include "storage/http/head.h"

static void right_bytes_from_good_and_odd_servers(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ok",       "nohead", "noetag",  "novalidator",
                                        "redirect", "s503-2", "s500-1",  "s429-1",
                                        "cut-2",    "more-1", "reset-2", "empty-2"};
    struct mr_remote_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    mr_remote_stats_query(&before);
    quick_options(4, NULL, 0);
    for (size_t i = 0; i < MR_COUNT(kinds); i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/big.bin", kinds[i]);
        reads_well(url(path), big, sizeof big);
    }
    reads_well(url("ok/small.bin"), big, 1000);
    reads_well(url("ok/empty.bin"), big, 0);
    mr_remote_stats_query(&after);
    assert_true(after.retries >= before.retries + 8);
    assert_true(after.bytes >= before.bytes + MR_COUNT(kinds) * (BIG_BYTES + BIG_BYTES / 2));
}

static void whole_files_need_neither_lengths_nor_ranges(void **state)
{
    (void)state;
    static const char *const kinds[] = {"chunked/big.bin", "norange/big.bin", "chunked/empty.bin"};
    quick_options(2, NULL, 0);
    for (size_t i = 0; i < MR_COUNT(kinds); i++) {
        void *got;
        uint64_t n;
        test_works(read_by_reader(url(kinds[i]), 0, MR_WHOLE, &got, &n));
        assert_int_equal(n, i == 2 ? 0 : BIG_BYTES);
        assert_memory_equal(got, big, n);
        free(got);
    }
}

/* Whole files whose first try breaks off in the middle, or behind the last byte. */
static void broken_tries_leave_no_trace(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool known, cached; /* their size beforehand; by the host */
    } cases[] = {{"cut-2/big.bin", true, false},           {"cut-2/big.bin", true, true},
                 {"cut-1/big.bin", false, true},           {"chunkcut-2/big.bin", true, false},
                 {"chunkcut-2/small.bin", true, true},     {"chunkall-2/big.bin", true, false},
                 {"chunkall-2/small.bin", true, true},     {"chunkall-1/small.bin", false, false},
                 {"cutchunked-1/small.bin", false, false}, {"cutchunked-1/small.bin", false, true},
                 {"cutchunked-1/big.bin", false, true}};
    quick_options(4, NULL, 0);
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_files *files = mr_files_create();
        struct mr_storage *st = NULL;
        struct mr_reader *reader = NULL;
        char path[80];
        uint64_t bytes, want = strstr(cases[i].path, "big") ? BIG_BYTES : 1000;
        snprintf(path, sizeof path, "%s?%zu", cases[i].path,
                 i); /* the server counts tries by address */
        struct mr_read read = {.file = add(files, url(path)), .bytes = MR_WHOLE}, *reads = &read;
        if (cases[i].known)
            test_works(mr_files_size(files, read.file, &bytes));
        if (cases[i].cached)
            test_works(mr_files_cache(files, 64 << 20));
        test_works(mr_storage_open(files, MR_STORAGE_AUTO, 4, 1, &st));
        test_works(mr_reader_open(st, &reader));
        mr_reader_submit(reader, &reads, 1);
        assert_int_equal(mr_reader_reap(reader, &reads, 1, 60000000000ull), 1);
        test_works(read.status);
        assert_int_equal(read.done, want);
        assert_memory_equal(read.view, big, want);
        mr_reader_recycle(reader, &read);
        mr_reader_close(reader);
        mr_storage_close(st);
        mr_files_destroy(files);
    }
}

static void sizes_and_blocking_reads(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ok", "nohead", "redirect", "noetag"};
    quick_options(2, NULL, 0);
    for (size_t i = 0; i < MR_COUNT(kinds); i++) {
        char path[64];
        uint64_t bytes;
        void *all;
        snprintf(path, sizeof path, "%s/big.bin", kinds[i]);
        struct mr_files *files = mr_files_create();
        int id = add(files, url(path));
        test_works(mr_files_size(files, id, &bytes));
        assert_int_equal(bytes, BIG_BYTES);
        for (uint32_t r = 0; r < 20; r++) {
            uint8_t got[5000];
            uint64_t at = test_random(r) % (BIG_BYTES - 5000), n = 1 + test_random(r + 100) % 5000;
            test_works(mr_files_read(files, id, at, got, n));
            assert_memory_equal(got, big + at, n);
        }
        test_works(mr_files_read_whole(files, id, &all, &bytes));
        assert_memory_equal(all, big, bytes);
        free(all);
        mr_files_destroy(files);
    }
}

/* Twenty ranges one after the other are one connection's. */
static void connections_are_kept(void **state)
{
    (void)state;
    quick_options(2, NULL, 0);
    struct mr_files *files = mr_files_create();
    uint64_t bytes;
    int id = add(files, url("ok/big.bin"));
    test_works(mr_files_size(files, id, &bytes));
    long before = server_count("connections");
    for (uint32_t r = 0; r < 20; r++) {
        uint8_t got[100];
        test_works(mr_files_read(files, id, r * 1000, got, 100));
    }
    assert_true(server_count("connections") - before <= 2);
    mr_files_destroy(files);
}

/* Each with what its error must hold, besides the URL. */
static const struct {
    const char *kind;
    int code, range_code; /* of a whole read, of a range */
    const char *text;
} broken[] = {
    {"s404", -ENOENT, -ENOENT, "404 Not Found: no such object: check the name"},
    {"s410", -ENOENT, -ENOENT, "410 Gone"},
    {"s403", -EACCES, -EACCES, "403 Forbidden"},
    {"s401", -EACCES, -EACCES, "401 Unauthorized"},
    {"s400", -EIO, -EIO, "400 Bad Request"},
    {"s416", MR_ETRUNCATED, MR_ETRUNCATED, "416 Range Not Satisfiable"},
    {"s503", -EBUSY, -EBUSY,
     "503 Service Unavailable: SlowDown: told to: the server is overloaded"},
    {"s500", -EIO, -EIO, "tries: 2"},
    {"s502", -EIO, -EIO, "502 Bad Gateway"},
    {"cut", MR_ETRUNCATED, MR_ETRUNCATED, "fewer bytes than it had announced"},
    {"more", MR_ETRUNCATED, MR_EFORMAT, ""},
    {"wrongrange", 1, MR_EFORMAT, "another range than was asked for"},
    {"badrange", 1, MR_EFORMAT, "makes no sense: Content-Range"},
    {"short", MR_EFORMAT, MR_EFORMAT, ""},
    {"norange", 1, MR_EUNSUPPORTED, "the server ignores Range"},
    {"empty", -ECONNRESET, -ECONNRESET, "closed the connection without an answer"},
    {"reset", -ECONNRESET, -ECONNRESET, "the connection broke"},
    {"hang", -ETIMEDOUT, -ETIMEDOUT, "too slow or does not answer"},
    {"drip", -ETIMEDOUT, 1, "too slow or does not answer"},
    {"garbage", MR_EFORMAT, MR_EFORMAT, ""},
    {"loop", -ELOOP, -ELOOP, "in a circle"},
    {"away", MR_EUNSUPPORTED, MR_EUNSUPPORTED, "redirected to something that is not http"},
};

static void a_server_that_hangs_once(void **state)
{
    (void)state;
    quick_options(1, NULL, 0);
    void *got;
    uint64_t n;
    test_works(read_by_reader(url("hang-1/small.bin"), 0, MR_WHOLE, &got, &n));
    assert_int_equal(n, 1000);
    free(got);
}

static void broken_servers_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_COUNT(broken); i++) {
        quick_options(broken[i].code != -ETIMEDOUT, NULL, 0);
        char path[64];
        void *got;
        uint64_t n;
        snprintf(path, sizeof path, "%s/big.bin", broken[i].kind);
        if (broken[i].code != 1) {
            test_fails(read_by_reader(url(path), 0, MR_WHOLE, &got, &n), broken[i].code, path,
                       broken[i].text);
            free(got);
        }
        if (broken[i].range_code != 1) {
            test_fails(read_by_reader(url(path), 1000, 2000, &got, &n), broken[i].range_code, path,
                       broken[i].text);
            free(got);
        }
    }
}

/* By tries: an error that comes before the wait has one. */
static void waits_that_the_server_asks_for_end_with_the_stall_timeout(void **state)
{
    (void)state;
    static const char *const kinds[] = {"later", "latermore", "laterdate", "laterold", "latestold"};
    struct mr_remote_opts opts;
    void *got;
    uint64_t n;
    quick_options(5, NULL, 0);
    for (size_t i = 0; i < MR_COUNT(kinds); i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/small.bin", kinds[i]);
        test_fails(read_by_reader(url(path), 0, 100, &got, &n), -EBUSY, path,
                   "tries: 1; the server asks to wait");
        assert_non_null(
            strstr(mr_last_error(), "but only 4 s are left of the stall timeout of 4 s"));
        free(got);
    }
    reads_well(url("past-2/small.bin"), big, 1000);
    mr_remote_opts_init(&opts);
    opts.retries = 5;
    opts.stall_timeout_ms = 1000;
    test_works(mr_remote_opts_set(&opts));
    /* 1 s each time: the second one is too much. */
    test_fails(read_by_reader(url("s429/small.bin"), 0, 100, &got, &n), -EBUSY,
               "tries: 2; the server asks to wait 1 s");
    free(got);
}

static void nobody_there_and_no_such_host(void **state)
{
    (void)state;
    void *got;
    uint64_t n;
    quick_options(1, NULL, 0);
    test_fails(read_by_reader("http://user:secret@127.0.0.1:1/x?key=hidden", 0, MR_WHOLE, &got, &n),
               -ECONNREFUSED, "http://***@127.0.0.1:1/x?...", "is the server up");
    assert_null(strstr(mr_last_error(), "secret"));
    assert_null(strstr(mr_last_error(), "hidden"));
    free(got);
    /* Longer than a label may be: nobody asks a name server, which might be slow or know every
     * name. */
    static const char nowhere[] =
        "http://no-such-host-0123456789012345678901234567890123456789012345678901234567890/x";
    test_fails(read_by_reader(nowhere, 0, 10, &got, &n), -EHOSTUNREACH, "no-such-host",
               "check the host's name");
    free(got);
}

static void past_the_end_is_said(void **state)
{
    (void)state;
    void *got;
    uint64_t n;
    quick_options(1, NULL, 0);
    test_fails(read_by_reader(url("ok/big.bin"), BIG_BYTES - 10, 20, &got, &n), MR_ETRUNCATED,
               "20 bytes at offset", "the object has 3000017");
    free(got);
    test_fails(read_by_reader(url("ok/big.bin"), BIG_BYTES + 10, 20, &got, &n), MR_ETRUNCATED,
               "shorter");
    free(got);
}

/* The object is another one from the third request on: with ETags, dates alone, sizes alone. */
static void changes_in_mid_run_are_errors(void **state)
{
    (void)state;
    quick_options(2, NULL, 0);
    struct mr_files *files = mr_files_create();
    uint8_t got[100];
    int id = add(files, url("change-2/big.bin"));
    test_works(mr_files_read(files, id, 0, got, 100));
    test_works(mr_files_read(files, id, 100, got, 100));
    test_fails(mr_files_read(files, id, 200, got, 100), -ESTALE, "change-2/big.bin",
               "changed while it was in use");
    mr_files_destroy(files);

    files = mr_files_create();
    id = add(files, url("grow-1/small.bin"));
    test_works(mr_files_read(files, id, 0, got, 100));
    test_fails(mr_files_read(files, id, 100, got, 100), -ESTALE, "its size was 1004, is 1000");
    mr_files_destroy(files);
}

#define N_READS 400
static void many_reads_in_flight(void **state)
{
    (void)state;
    quick_options(4, NULL, 0);
    struct mr_files *files = mr_files_create();
    struct mr_storage *st;
    struct mr_reader *reader;
    static struct mr_read read[N_READS];
    static uint8_t bufs[N_READS][3000];
    int ids[2] = {add(files, url("gather/big.bin")), add(files, url("s503-40/big.bin"))};
    test_works(mr_storage_open(files, MR_STORAGE_AUTO, 64, 1, &st));
    test_works(mr_reader_open(st, &reader));
    uint32_t started = 0, ended = 0;
    while (ended < N_READS) {
        for (; started < N_READS && mr_reader_space(reader); started++) {
            struct mr_read *one = &read[started];
            *one = (struct mr_read){.file = ids[started % 2],
                                    .offset = test_random(started) % (BIG_BYTES - 3000),
                                    .bytes = 1 + test_random(started + 1000) % 3000,
                                    .buf = bufs[started]};
            mr_reader_submit(reader, &one, 1);
        }
        struct mr_read *out[16];
        ended += mr_reader_reap(reader, out, MR_COUNT(out), 60000000000ull);
    }
    for (uint32_t i = 0; i < N_READS; i++) {
        if (read[i].error)
            mr_error_put(read[i].error);
        test_works(read[i].status);
        assert_memory_equal(bufs[i], big + read[i].offset, read[i].bytes);
    }
    mr_reader_close(reader);
    mr_storage_close(st);
    mr_files_destroy(files);
    assert_true(server_count("most_at_once") >= 10);
}

static void closing_does_not_wait_for_a_server_that_hangs(void **state)
{
    (void)state;
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    test_works(mr_remote_opts_set(&opts));
    struct mr_files *files = mr_files_create();
    struct mr_storage *st;
    struct mr_reader *reader;
    struct mr_read read = {.file = add(files, url("hang/big.bin")), .bytes = 10, .buf = big},
                   *reads = &read;
    test_works(mr_storage_open(files, MR_STORAGE_AUTO, 4, 1, &st));
    test_works(mr_reader_open(st, &reader));
    mr_reader_submit(reader, &reads, 1);
    usleep(100000);
    uint64_t before = mr_time_ns();
    mr_reader_close(reader);
    assert_true(mr_time_ns() - before <
                10000000000ull); /* the server keeps it for 20 s, the stall timeout is 30 */
    mr_storage_close(st);
    mr_files_destroy(files);
}

/* Names are those of files, whatever characters they have; a URL that is given whole is one
 * already. */
static void names_in_lists_become_urls(void **state)
{
    (void)state;
    static const char *const names[] = {"odd/a b.jpg", "odd/c#d?e&f=g+h.jpg", "odd/100%41.jpg",
                                        "odd/\xc3\xbc;[x]'.jpg", "odd/plain-1_2~3.jpg"};
    const char *ok = url("ok/odd/100%2541.jpg");
    char text[1000] = "", uri[400];
    test_folders("odd/");
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        test_write(names[i], big + i, 1000 + i);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", names[i]);
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n%s?key=a%%20b\n", ok,
             url("ok/odd/a b.jpg"));
    test_write("list.txt", text, strlen(text));
    for (int from_there = 0; from_there < 2; from_there++) {
        if (from_there)
            snprintf(uri, sizeof uri, "list:%s", url("ok/list.txt"));
        else
            snprintf(uri, sizeof uri, "list:%s,root=%s", test_path("list.txt"), url("ok/"));
        struct mr_dataset *ds = test_open(uri);
        assert_int_equal(mr_dataset_length(ds), MR_COUNT(names) + 2);
        for (size_t i = 0; i < MR_COUNT(names); i++)
            reads_well(test_name_of(ds, i), big + i, 1000 + i);
        assert_string_equal(test_name_of(ds, MR_COUNT(names)), ok);
        reads_well(test_name_of(ds, MR_COUNT(names)), big + 2, 1002);
        reads_well(test_name_of(ds, MR_COUNT(names) + 1), big, 1000);
        assert_non_null(strstr(test_name_of(ds, MR_COUNT(names) + 1), "ok/odd/a%20b.jpg?..."));
        mr_dataset_close(ds);
    }
}

static void http_has_no_listing(void **state)
{
    (void)state;
    test_fails(mr_store_list(url("ok/"), NULL, NULL), MR_EUNSUPPORTED,
               "HTTP knows no listing of folders");
}

static struct mr_http_head parse(const char *text)
{
    struct mr_http_head head = {0};
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        mr_http_head_line(&head, line, n);
        line += n + (line[n] == '\n');
    }
    return head;
}

static void heads_say_what_they_say(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "bytes 5-3/10",
        "bytes 0-9/9",
        "bytes 0-9",
        "bytes -1-3/10",
        "bytes 0-18446744073709551615/*",
        "items 0-1/2",
        "bytes */*",
        "bytes0-1/2",
        "",
        "bytes 0-9/99999999999999999999",
    };
    struct mr_http_head h = parse(
        "HTTP/1.1 302 Found\r\nETag: \"old\"\r\n\r\nHTTP/2 206\r\ncontent-range:bytes 0-9/*\r\n"
        "ETAG:  \"a b\" \r\nRetry-After: 7\r\nLast-Modified: now\r\n\r\n");
    assert_int_equal(h.status, 206);
    assert_true(h.has_range && h.has_part && !h.has_total && !h.has_length && h.over && !h.bad);
    assert_int_equal(h.last, 9);
    assert_string_equal(h.etag, "\"a b\"");
    assert_int_equal(h.retry_after_s, 7);
    assert_int_equal(mr_http_retry_after(&h, 1000), 7);
    static const char *const dates[] = {"Sun, 06 Nov 1994 08:50:14 GMT",
                                        "Sunday, 06-Nov-94 08:50:14 GMT",
                                        "Sun Nov  6 08:50:14 1994"};
    static const char *const no_dates[] = {"Sun, 06 Nov 1994",
                                           "Sun, 06 Nvo 1994 08:50:14 GMT",
                                           "Sun Nov  6 08:50:14 1994x",
                                           "7x",
                                           "-7",
                                           "",
                                           "anFeb"};
    char text[128];
    for (size_t i = 0; i < MR_COUNT(dates); i++) {
        snprintf(text, sizeof text, "HTTP/1.1 503 x\nRetry-After: %s\nDate: %s\n", dates[i],
                 "Sun, 06 Nov 1994 08:49:37 GMT");
        h = parse(text);
        assert_int_equal(mr_http_retry_after(&h, 0), 37);
        snprintf(text, sizeof text, "HTTP/1.1 503 x\nRetry-After: %s\n", dates[i]);
        h = parse(text);
        assert_int_equal(mr_http_retry_after(&h, 784111777), 37);
        assert_int_equal(mr_http_retry_after(&h, 784111877), 0);
    }
    for (size_t i = 0; i < MR_COUNT(no_dates); i++) {
        snprintf(text, sizeof text, "HTTP/1.1 503 x\nRetry-After: %s\n", no_dates[i]);
        h = parse(text);
        assert_int_equal(mr_http_retry_after(&h, 0), 0);
    }
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        snprintf(text, sizeof text, "HTTP/1.1 206 x\nContent-Range: %s\n", bad[i]);
        assert_string_equal(parse(text).bad, "Content-Range");
    }
    assert_true(parse("HTTP/1.1 200 x\nContent-Length: 5\nContent-Length: 6\n").twice);
    assert_non_null(parse("HTTP/1.1 200 x\nContent-Length: 5x\n").bad);
    assert_non_null(parse("HTTP/1.1 999 x\n").bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_say_what_they_say),
        cmocka_unit_test(right_bytes_from_good_and_odd_servers),
        cmocka_unit_test(whole_files_need_neither_lengths_nor_ranges),
        cmocka_unit_test(broken_tries_leave_no_trace),
        cmocka_unit_test(sizes_and_blocking_reads),
        cmocka_unit_test(connections_are_kept),
        cmocka_unit_test(a_server_that_hangs_once),
        cmocka_unit_test(broken_servers_are_named),
        cmocka_unit_test(waits_that_the_server_asks_for_end_with_the_stall_timeout),
        cmocka_unit_test(nobody_there_and_no_such_host),
        cmocka_unit_test(past_the_end_is_said),
        cmocka_unit_test(changes_in_mid_run_are_errors),
        cmocka_unit_test(many_reads_in_flight),
        cmocka_unit_test(closing_does_not_wait_for_a_server_that_hangs),
        cmocka_unit_test(names_in_lists_become_urls),
        cmocka_unit_test(http_has_no_listing),
    };
    void *state = NULL;
    int skip = remote_setup(&state);
    int rc = skip ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
    remote_teardown(&state);
    return skip < 0 ? 1 : rc;
}
