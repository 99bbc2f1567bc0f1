/* Files that appear whole or not at all: what others see at each moment, what killed writers leave,
 * who may replace what. */
#include "samples.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/millrace.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/millrace-output-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/out", folder);
    return 0;
}

static int remove_folder(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -r '%s'", folder);
    return system(line);
}

static const char *part(int number)
{
    static char name[128];
    snprintf(name, sizeof name, "%s.part-%06d", path, number);
    return name;
}

static void put(const char *file, const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void holds(const char *file, const char *text)
{
    char got[64] = "";
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    assert_string_equal(got, text);
}

static void add(const struct mr_output *output, const char *text)
{
    assert_int_equal(write(mr_output_get_fd(output), text, strlen(text)), strlen(text));
}

static void appears_whole_or_not_at_all(void **state)
{
    struct mr_output *output;
    struct stat st;
    (void)state;
    mode_t before = umask(027);
    assert_int_equal(mr_output_open(path, &output), 0);
    umask(before);
    add(output, "new");
    assert_int_equal(access(path, F_OK), -1);
    assert_string_equal(mr_output_get_name(output), part(0));
    assert_int_equal(mr_output_commit(output, 0), 0);
    mr_output_close(output);
    holds(path, "new");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(mr_output_open(path, &output), 0);
    add(output, "half");
    mr_output_close(output);
    holds(path, "new");
    assert_int_equal(access(part(0), F_OK), -1);
    assert_int_equal(unlink(path), 0);
}

static void replaces_only_when_asked(void **state)
{
    struct mr_output *output;
    (void)state;
    for (int replace = 0; replace < 2; replace++) {
        assert_int_equal(mr_output_open(path, &output), 0);
        put(path, "came meanwhile");
        add(output, "ours");
        assert_int_equal(mr_output_commit(output, replace), replace ? 0 : -EEXIST);
        mr_output_close(output);
        holds(path, replace ? "ours" : "came meanwhile");
        assert_int_equal(access(part(0), F_OK), -1);
    }
    assert_int_equal(unlink(path), 0);
}

/* In another process; it is killed when the caller closes the pipe's end that is returned. */
static pid_t start_writer(void)
{
    int ready[2];
    char byte;
    struct mr_output *output;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ready[0]);
        if (mr_output_open(path, &output) == 0 && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void kill_writer(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void removes_what_killed_writers_left(void **state)
{
    struct mr_output *output;
    char other[128], target[96];
    (void)state;
    pid_t first = start_writer(), second = start_writer(), third = start_writer();
    snprintf(other, sizeof other, "%s.part-notes1", path);
    snprintf(target, sizeof target, "%s/target", folder);
    put(other, "notes");
    put(target, "target");
    assert_int_equal(symlink(target, part(3)), 0);
    kill_writer(first);
    kill_writer(third);
    assert_int_equal(access(part(0), F_OK), 0);
    assert_int_equal(mr_output_open(path, &output), 0);
    assert_string_equal(mr_output_get_name(output), part(0));
    assert_int_equal(access(part(1), F_OK), 0); /* its writer lives */
    assert_int_equal(access(part(2), F_OK), -1);
    holds(other, "notes");
    holds(target, "target");
    holds(part(3), "target");
    mr_output_close(output);
    kill_writer(second);
    assert_int_equal(mr_output_open(path, &output), 0);
    assert_int_equal(access(part(1), F_OK), -1);
    mr_output_close(output);
    assert_int_equal(unlink(part(3)), 0);
}

static void errors_name_the_file(void **state)
{
    struct mr_output *output = NULL;
    char nowhere[128];
    (void)state;
    snprintf(nowhere, sizeof nowhere, "%s/no/file", folder);
    test_fails(mr_output_open(nowhere, &output), -ENOENT, nowhere, "cannot be made");
    assert_null(output);
    snprintf(nowhere, sizeof nowhere, "%s/dir", folder);
    assert_int_equal(mkdir(nowhere, 0777), 0);
    assert_int_equal(mr_output_open(nowhere, &output), 0);
    test_fails(mr_output_commit(output, 1), -EISDIR, nowhere, "put in place");
    mr_output_close(output);
    mr_output_close(NULL);
}

/* No two writers share an unfinished file, and each one's is whole. */
static void many_writers_at_a_time(void **state)
{
    pid_t pid[8];
    (void)state;
    for (int i = 0; i < 8; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] > 0)
            continue;
        char text[8];
        snprintf(text, sizeof text, "%d%d%d%d", i, i, i, i);
        for (int n = 0; n < 100; n++) {
            struct mr_output *output;
            if (mr_output_open(path, &output) < 0)
                _exit(1);
            if (write(mr_output_get_fd(output), text, 4) != 4 || mr_output_commit(output, 1) < 0)
                _exit(2);
            mr_output_close(output);
        }
        _exit(0);
    }
    for (int i = 0; i < 8; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    char got[8] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got, f), 4);
    fclose(f);
    assert_true(got[0] == got[1] && got[1] == got[2] && got[2] == got[3]);
    for (int i = 0; i < 16; i++)
        assert_int_equal(access(part(i), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appears_whole_or_not_at_all),
        cmocka_unit_test(replaces_only_when_asked),
        cmocka_unit_test(removes_what_killed_writers_left),
        cmocka_unit_test(errors_name_the_file),
        cmocka_unit_test(many_writers_at_a_time),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
