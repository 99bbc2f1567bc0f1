/* White-box. The table of files: what may be added, what is viewed, what is read. */
#include "storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/millrace-files-XXXXXX";

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static char *path_of(const char *name)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void file_write(const char *path, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++)
        putc((int)(i * 7 + i / 256) & 255, f);
    assert_int_equal(fclose(f), 0);
}

static void is_refused(struct mr_files *files, const char *path, int code, const char *what)
{
    assert_int_equal(mr_files_add_path(files, path), code);
    assert_non_null(strstr(mr_last_error(), path));
    assert_non_null(strstr(mr_last_error(), what));
}

static void only_regular_files_are_added(void **state)
{
    (void)state;
    struct mr_files *files = mr_files_create();
    struct mr_files_kinds kinds;
    is_refused(files, path_of("absent"), -ENOENT, "No such file");
    is_refused(files, dir, -EISDIR, "is a directory; expected a regular file");
    is_refused(files, "/dev/zero", MR_EUNSUPPORTED, "is a device");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    is_refused(files, path_of("pipe"), MR_EUNSUPPORTED, "is a pipe");
    unlink(path_of("pipe"));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path_of("socket"));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&name, sizeof name), 0);
    is_refused(files, path_of("socket"), -ENXIO, "is a socket");
    close(s);
    unlink(path_of("socket"));
    file_write(path_of("closed"), 10);
    chmod(path_of("closed"), 0);
    if (access(path_of("closed"), R_OK)) /* root may read it */
        is_refused(files, path_of("closed"), -EACCES, "Permission denied");
    unlink(path_of("closed"));
    mr_files_count(files, &kinds);
    assert_int_equal(kinds.n_path + kinds.n_memory + kinds.n_gzip + kinds.n_null, 0);
    mr_files_destroy(files);
}

static void descriptors(bool open[256])
{
    for (int fd = 0; fd < 256; fd++)
        open[fd] = fcntl(fd, F_GETFD) != -1;
}

static void descriptors_are_closed_on_exec_and_do_not_leak(void **state)
{
    (void)state;
    bool before[256], during[256], after[256];
    int n = 0;
    file_write(path_of("a"), 10);
    descriptors(before);
    struct mr_files *files = mr_files_create();
    for (int i = 0; i < 20; i++)
        assert_int_equal(mr_files_add_path(files, path_of("a")), i);
    assert_true(mr_files_add_path(files, dir) < 0);
    descriptors(during);
    for (int fd = 0; fd < 256; fd++)
        n += during[fd] && !before[fd] && fcntl(fd, F_GETFD) & FD_CLOEXEC &&
             !(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(n, 20);
    mr_files_destroy(files);
    descriptors(after);
    assert_memory_equal(before, after, sizeof before);
    unlink(path_of("a"));
}

/* A path file, read: every range of it, and an error for every other. */
static void reads_give_the_range(void **state)
{
    (void)state;
    enum { N = 40 };
    uint8_t buf[N + 3];
    file_write(path_of("a"), N);
    struct mr_files *files = mr_files_create();
    assert_int_equal(mr_files_add_path(files, path_of("a")), 0);
    for (uint64_t from = 0; from <= N + 2; from++)
        for (uint64_t n = 0; n <= N + 2; n++) {
            int rc = mr_files_read(files, 0, from, buf, n);
            assert_int_equal(rc, from + n <= N ? 0 : MR_ETRUNCATED);
            for (uint64_t i = 0; !rc && i < n; i++)
                assert_int_equal(buf[i], (uint8_t)((from + i) * 7));
        }
    assert_non_null(
        strstr(mr_last_error(), "/a: 42 bytes at offset 42 were asked for, the file has 40"));
    assert_int_equal(mr_files_read(files, 0, 10, buf, UINT64_MAX - 5), MR_ETRUNCATED);
    assert_int_equal(truncate(path_of("a"), 20), 0);
    assert_int_equal(mr_files_read(files, 0, 10, buf, 20), MR_ETRUNCATED);
    assert_non_null(strstr(
        mr_last_error(),
        "/a: shrank while it was read: expected 20 bytes at offset 10, the file now ends at 20"));
    mr_files_destroy(files);
    unlink(path_of("a"));
}

static void memory_is_viewed_in_place(void **state)
{
    (void)state;
    static char text[] = "0123456789";
    struct mr_files *files = mr_files_create();
    assert_int_equal(mr_files_add_memory(files, "text", text, 10, false), 0);
    assert_int_equal(mr_files_add_memory(files, "none", NULL, 0, true), 1);
    assert_int_equal(mr_files_add_memory(files, "own", calloc(1, 33), 33, true), 2);
    assert_string_equal(mr_files_name(files, 0), "text");
    for (uint64_t from = 0; from <= 12; from++)
        for (uint64_t n = 0; n <= 12; n++) {
            const void *view = NULL;
            int rc = mr_files_view(files, 0, from, n, &view);
            assert_int_equal(rc, from + n <= 10 ? 1 : MR_ETRUNCATED);
            assert_ptr_equal(view, rc == 1 ? text + from : NULL);
        }
    const void *view;
    assert_int_equal(mr_files_view(files, 1, 0, 0, &view), 1);
    assert_int_equal(mr_files_view(files, 0, UINT64_MAX, 2, &view), MR_ETRUNCATED);
    struct mr_files_kinds kinds;
    mr_files_count(files, &kinds);
    assert_int_equal(kinds.n_memory, 3);
    assert_int_equal(kinds.memory_bytes, 33); /* borrowed memory does not count */
    mr_files_destroy(files);
}

static void small_files_become_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 1 << 20, (1 << 20) + 1};
    struct mr_files *files = mr_files_create();
    struct mr_files_kinds kinds;
    for (int i = 0; i < 4; i++) {
        file_write(path_of("a"), sizes[i]);
        assert_int_equal(mr_files_add_path(files, path_of("a")), i);
        unlink(path_of("a"));
    }
    assert_int_equal(mr_files_load_small(files), 0);
    mr_files_count(files, &kinds);
    assert_int_equal(kinds.n_memory, 3);
    assert_int_equal(kinds.n_path, 1);
    assert_int_equal(kinds.path_bytes, (1 << 20) + 1);
    assert_int_equal(kinds.memory_bytes, (1 << 20) + 1);
    for (int i = 0; i < 4; i++) {
        const void *view;
        assert_int_equal(mr_files_view(files, i, 0, sizes[i], &view), i < 3);
        for (size_t k = 0; i < 3 && k < sizes[i]; k++)
            if (((const uint8_t *)view)[k] != (uint8_t)(k * 7 + k / 256))
                fail();
    }
    mr_files_destroy(files);
}

static void null_files_deliver_nothing_after_their_delay(void **state)
{
    (void)state;
    uint8_t buf[100];
    const void *view;
    memset(buf, 9, sizeof buf);
    struct mr_files *files = mr_files_create();
    assert_int_equal(mr_files_add_null(files, "null", 100, 3000000), 0);
    assert_int_equal(mr_files_view(files, 0, 0, 100, &view), 0);
    uint64_t before = mr_time_ns();
    assert_int_equal(mr_files_read(files, 0, 0, buf, 100), 0);
    assert_true(mr_time_ns() - before >= 3000000);
    for (size_t i = 0; i < sizeof buf; i++)
        assert_int_equal(buf[i], 9);
    assert_int_equal(mr_files_read(files, 0, 1, buf, 100), MR_ETRUNCATED);
    mr_files_destroy(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_regular_files_are_added),
        cmocka_unit_test(descriptors_are_closed_on_exec_and_do_not_leak),
        cmocka_unit_test(reads_give_the_range),
        cmocka_unit_test(memory_is_viewed_in_place),
        cmocka_unit_test(small_files_become_memory),
        cmocka_unit_test(null_files_deliver_nothing_after_their_delay),
    };
    return cmocka_run_group_tests_name("files", tests, setup, teardown);
}
