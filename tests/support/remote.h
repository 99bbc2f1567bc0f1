/* What the tests of remote files share: a folder with known files, the fault server over it, files
 * read in several ways. */
#ifndef MR_TEST_REMOTE_H
#define MR_TEST_REMOTE_H

#include "samples.h"
#include "server.h"
#include "storage/storage.h"
#include <millrace/millrace.h>

static struct server server;

#define BIG_BYTES 3000017u
static uint8_t big[BIG_BYTES];

/* Set once for all: short waits, so that faults that last end soon. */
static inline void quick_options(uint32_t retries, const char *cache_dir, uint64_t limit)
{
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    opts.retries = retries;
    opts.connect_timeout_ms = 20000;
    opts.stall_timeout_ms =
        retries > 0 ? 4000 : 1000; /* the machine may be loaded; 0: a timeout is what is wanted */
    opts.cache_dir = cache_dir;
    opts.cache_limit = limit;
    test_works(mr_remote_opts_set(&opts));
}

static inline int remote_setup(void **state)
{
    if (test_dir_make(state))
        return -1;
    struct mr_files *files = mr_files_create();
    int rc = files ? mr_files_add_lazy(files, "http://127.0.0.1:1/x") : -1;
    mr_files_destroy(files);
    if (rc < 0) {
        print_message("SKIP remote files: %s\n", mr_last_error());
        return 1;
    }
    test_random_bytes(5000, big, sizeof big);
    test_write("big.bin", big, sizeof big);
    test_write("small.bin", big, 1000);
    test_write("empty.bin", big, 0);
    if (server_start(&server, "python3", TEST_SUPPORT "/fault_server.py", test_dir))
        return 0;
    print_message("SKIP remote files: python3 cannot run the server\n");
    return 1;
}

static inline int remote_teardown(void **state)
{
    if (server.port)
        server_stop(&server);
    return test_dir_drop(state);
}

/* http://127.0.0.1:PORT/path; good until the eighth call after this one. */
static inline const char *url(const char *path)
{
    static char urls[8][300];
    static int next;
    char *to = urls[next++ % 8];
    snprintf(to, sizeof urls[0], "http://127.0.0.1:%d/%s", server.port, path);
    return to;
}

static inline int add(struct mr_files *files, const char *name)
{
    int id = mr_files_add_lazy(files, name);
    test_works(id);
    return id;
}

/* A count of the server's. */
static inline long server_count(const char *name)
{
    struct mr_files *files = mr_files_create();
    void *text;
    uint64_t bytes;
    char copy[1024], key[64];
    test_works(mr_files_read_whole(files, add(files, url("log/log")), &text, &bytes));
    snprintf(copy, sizeof copy, "%.*s", (int)bytes, (char *)text);
    free(text);
    mr_files_destroy(files);
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(copy, key);
    assert_non_null(at);
    return strtol(at + strlen(key), NULL, 10);
}

/* One read through a reader of its own; bytes MR_WHOLE: all. [out] got: malloc'd. Returns its
 * status, with its error set. */
static inline int read_by_reader(const char *name, uint64_t at, uint64_t bytes, void **got,
                                 uint64_t *n)
{
    struct mr_files *files = mr_files_create();
    struct mr_storage *st = NULL;
    struct mr_reader *reader = NULL;
    struct mr_read read = {.file = add(files, name), .offset = at, .bytes = bytes}, *reads = &read;
    read.buf = bytes == MR_WHOLE ? NULL : malloc(bytes + 1);
    test_works(mr_storage_open(files, MR_STORAGE_AUTO, 4, 1, &st));
    test_works(mr_reader_open(st, &reader));
    mr_reader_submit(reader, &reads, 1);
    assert_int_equal(mr_reader_reap(reader, &reads, 1, 60000000000ull), 1);
    *n = bytes == MR_WHOLE ? read.done : bytes;
    *got = malloc(*n + 1);
    if (!read.status)
        memcpy(*got, read.view, *n);
    if (read.error)
        mr_error_put(read.error);
    free(read.error);
    read.error = NULL;
    mr_reader_recycle(reader, &read);
    mr_reader_close(reader);
    mr_storage_close(st);
    mr_files_destroy(files);
    free(read.buf);
    return read.status;
}

static inline void reads_well(const char *name, const uint8_t *want, uint64_t bytes)
{
    void *got;
    uint64_t n;
    test_works(read_by_reader(name, 0, MR_WHOLE, &got, &n));
    assert_int_equal(n, bytes);
    assert_memory_equal(got, want, bytes);
    free(got);
    uint64_t at = bytes / 3, some = bytes / 2;
    if (some == 0)
        return;
    test_works(read_by_reader(name, at, some, &got, &n));
    assert_memory_equal(got, want + at, some);
    free(got);
}

#endif
