/* Packed archives: temporary files that outlive no process, what earlier versions left, ceilings,
 * and requests to stop. */
#include "run_loader.h"
#include "samples.h"
#include "tar_write.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <utime.h>

#define SPILLS ",memory=64KiB"

/* n samples of 64 KiB of noise; returns the path of the archive, packed. */
static const char *write_packed(const char *name, int n)
{
    static uint8_t content[65536];
    struct tar_text t = {0};
    for (int i = 0; i < n; i++) {
        char member[32];
        snprintf(member, sizeof member, "%06d.bin", i);
        test_random_bytes((uint32_t)i * 100000, content, sizeof content);
        tar_add(&t, member, content, sizeof content);
    }
    tar_end(&t);
    static char path[600];
    snprintf(path, sizeof path, "%s", test_write_gz(name, t.data, t.n));
    tar_free(&t);
    return path;
}

static const char *uri(const char *path, const char *options)
{
    static char text[2048];
    snprintf(text, sizeof text, "tar:%s%s", path, options);
    return text;
}

/* A folder below test_dir that a variable names. */
static const char *folder_for(const char *variable, const char *name)
{
    const char *path = test_path(name);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    assert_int_equal(setenv(variable, path, 1), 0);
    return path;
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int forget_folders(void **state)
{
    (void)state;
    unsetenv("TMPDIR");
    unsetenv("XDG_CACHE_HOME");
    mr_interrupt(0);
    mr_log_set(NULL, NULL);
    return 0;
}

/* The signal of a file that grows too large ends the child while it unpacks. */
static void killed_while_it_unpacks(void **state)
{
    (void)state;
    const char *path = write_packed("killed.tar.gz", 8),
               *cache = folder_for("XDG_CACHE_HOME", "killed");
    pid_t child = fork();
    if (child == 0) {
        struct mr_dataset *ds;
        struct rlimit small = {200000, 200000};
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_FSIZE, &small);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        _exit(mr_dataset_open(uri(path, SPILLS), &ds) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGXFSZ);
    const char *folder = test_path("killed/millrace");
    assert_int_equal(entries(cache), 1);
    assert_int_equal(entries(folder), 0);
}

static void has_no_name_and_is_read(void **state)
{
    (void)state;
    char tmp[600], cache[600];
    const char *path = write_packed("read.tar.gz", 20);
    snprintf(tmp, sizeof tmp, "%s", folder_for("TMPDIR", "tmp"));
    snprintf(cache, sizeof cache, "%s", folder_for("XDG_CACHE_HOME", "unused"));
    struct run_config c = run_config(NULL);
    struct run got[3];
    for (int i = 0; i < 3; i++) { /* in memory, spilled, spilled and read directly */
        c.ds = test_open(uri(path, i == 0 ? "" : SPILLS));
        assert_non_null(
            strstr(mr_dataset_text(c.ds), i == 0 ? "0 in temporary files" : "0 bytes in memory"));
        assert_int_equal(entries(tmp), 0);
        assert_int_equal(entries(cache), 0);
        assert_string_equal(mr_dataset_file(c.ds, 0), path);
        c.opts.batch_size = 4;
        c.opts.direct = i == 2;
        got[i] = run_loader(&c);
        assert_int_equal(got[i].rc, 0);
        assert_int_equal(got[i].n, 20);
        mr_dataset_close(c.ds);
    }
    for (uint64_t k = 0; k < 20; k++) {
        assert_int_equal(got[0].row[k].hash, got[1].row[k].hash);
        assert_int_equal(got[0].row[k].hash, got[2].row[k].hash);
    }
    for (int i = 0; i < 3; i++)
        free(got[i].row);
    assert_int_equal(setenv("TMPDIR", test_path("nowhere"), 1), 0);
    test_fails(test_open_fails(uri(path, SPILLS)), -ENOENT, "read.tar.gz", "/nowhere", "TMPDIR");
}

static void plant(const char *name, time_t age)
{
    const char *path = test_write(name, "left", 4);
    struct utimbuf then = {time(NULL) - age, time(NULL) - age};
    assert_int_equal(utime(path, &then), 0);
}

/* Only what is surely a leftover goes. */
static void leftovers_are_removed(void **state)
{
    (void)state;
    const char *path = write_packed("sweep.tar.gz", 4);
    folder_for("XDG_CACHE_HOME", "old");
    assert_int_equal(mkdir(test_path("old/millrace"), 0700), 0);
    plant("old/millrace/unpacked.aB3xYz", 7200);
    plant("old/millrace/unpacked.fresh0", 60);
    plant("old/millrace/unpacked.inuse0", 7200);
    plant("old/millrace/unpacked.toolong", 7200);
    plant("old/millrace/unpacked.no-not", 7200);
    plant("old/millrace/mine.aB3xYz", 7200);
    assert_int_equal(symlink("mine.aB3xYz", test_path("old/millrace/unpacked.symlnk")), 0);
    int writer = open(test_path("old/millrace/unpacked.inuse0"), O_WRONLY | O_CLOEXEC);
    assert_true(writer >= 0);
    mr_dataset_close(test_open(uri(path, "")));
    assert_int_equal(access(test_path("old/millrace/unpacked.aB3xYz"), F_OK), -1);
    assert_int_equal(entries(test_path("old/millrace")), 6);
    close(writer);
    mr_dataset_close(test_open(uri(path, "")));
    assert_int_equal(access(test_path("old/millrace/unpacked.inuse0"), F_OK), -1);
    assert_int_equal(entries(test_path("old/millrace")), 5);
}

/* The ceiling is of all archives together, in memory and in files, to the byte. */
static void what_is_unpacked_is_limited(void **state)
{
    (void)state;
    char one[600], both[1300], options[64];
    snprintf(one, sizeof one, "%s", write_packed("one.tar.gz", 4));
    snprintf(both, sizeof both, "%s::%s", one, write_packed("two.tar.gz", 4));
    folder_for("TMPDIR", "tmp");
    const uint64_t bytes = 4 * (512 + 65536) + 1024;
    for (int spill = 0; spill < 2; spill++) {
        const char *how = spill ? SPILLS : "";
        snprintf(options, sizeof options, ",unpacked=%llu%s", (unsigned long long)bytes, how);
        mr_dataset_close(test_open(uri(one, options)));
        test_fails(test_open_fails(uri(both, options)), MR_ELIMIT, ".tar.gz", "unpacked=BYTES");
        snprintf(options, sizeof options, ",unpacked=%llu%s", (unsigned long long)bytes - 1, how);
        test_fails(test_open_fails(uri(one, options)), MR_ELIMIT, "one.tar.gz", "unpacked=BYTES");
        snprintf(options, sizeof options, ",unpacked=%llu%s", (unsigned long long)bytes * 2, how);
        mr_dataset_close(test_open(uri(both, options)));
    }
    assert_int_equal(entries(test_path("tmp")), 0);
}

/* 1.1 GiB of zeros in 1.1 MB. */
static void bombs_are_refused(void **state)
{
    (void)state;
    const size_t part = 16 << 20;
    struct tar_text t = {0};
    tar_head(&t, "0.bin", 70 * part, '0');
    const char *path = test_write_gz("bomb.tar.gz", t.data, t.n);
    tar_free(&t);
    uint8_t *zeros = calloc(1, part);
    gzFile f = gzopen(path, "ab1");
    assert_non_null(f);
    assert_int_equal(gzfwrite(zeros, 1, part, f), part);
    assert_int_equal(gzclose(f), Z_OK);
    free(zeros);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    char *packed = malloc((size_t)st.st_size);
    FILE *file = fopen(path, "rb+");
    assert_int_equal(fread(packed, 1, (size_t)st.st_size, file), st.st_size);
    size_t head = 10; /* where the second gzip member begins */
    while (memcmp(packed + head, "\x1f\x8b\x08", 3) != 0)
        head++;
    for (int i = 1; i < 70; i++)
        fwrite(packed + head, 1, (size_t)st.st_size - head, file);
    fclose(file);
    free(packed);
    folder_for("TMPDIR", "tmp");
    test_fails(test_open_fails(uri(path, SPILLS)), MR_ELIMIT, "bomb.tar.gz",
               "more than 1073741824 bytes", "20 times", "unpacked=BYTES");
}

static void interrupt_at_sweep(void *user, enum mr_log_level level, const char *text)
{
    (void)level;
    if (strstr(text, "unpacked.000000")) {
        (*(int *)user)++;
        mr_interrupt(1);
    }
}

/* Leftovers are removed just before an archive is unpacked: a place where the request surely comes
 * in mid-opening. */
static void unpacking_is_interrupted(void **state)
{
    (void)state;
    int n = 0;
    const char *path = write_packed("stop.tar.gz", 4);
    folder_for("XDG_CACHE_HOME", "stop");
    assert_int_equal(mkdir(test_path("stop/millrace"), 0700), 0);
    plant("stop/millrace/unpacked.000000", 7200);
    mr_log_set(interrupt_at_sweep, &n);
    test_fails(test_open_fails(uri(path, SPILLS)), MR_ECANCELLED, "stop.tar.gz", "interrupted");
    assert_int_equal(n, 1);
    assert_int_equal(entries(test_path("stop/millrace")), 0);
    mr_interrupt(0);
    mr_dataset_close(test_open(uri(path, SPILLS)));
}

/* Every format heeds it; what is open can be closed, and its loader goes on. */
static void opening_is_interrupted(void **state)
{
    (void)state;
    const char *const uris[] = {
        "synthetic:n=10,shape=4",         "npy:x.npy", "csv:x.csv", "folder:.", "tar:a.tar",
        "mix:0.5*npy:x.npy,0.5*npy:y.npy"};
    struct run_config c = run_config(NULL);
    c.ds = test_open("synthetic:n=100,shape=4");
    float row[4];
    assert_int_equal(mr_dataset_read(c.ds, 0, (void *const[]){row}, NULL), 0);
    mr_interrupt(1);
    for (size_t i = 0; i < sizeof uris / sizeof uris[0]; i++)
        test_fails(test_open_fails(uris[i]), MR_ECANCELLED, "interrupted");
    assert_int_equal(mr_dataset_read(c.ds, 0, (void *const[]){row}, NULL), MR_ECANCELLED);
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 100);
    free(run.row);
    mr_interrupt(0);
    assert_int_equal(mr_dataset_read(c.ds, 0, (void *const[]){row}, NULL), 0);
    mr_dataset_close(c.ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(killed_while_it_unpacks, forget_folders),
        cmocka_unit_test_teardown(has_no_name_and_is_read, forget_folders),
        cmocka_unit_test_teardown(leftovers_are_removed, forget_folders),
        cmocka_unit_test_teardown(what_is_unpacked_is_limited, forget_folders),
        cmocka_unit_test_teardown(bombs_are_refused, forget_folders),
        cmocka_unit_test_teardown(unpacking_is_interrupted, forget_folders),
        cmocka_unit_test_teardown(opening_is_interrupted, forget_folders),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
