/*
 * Reports of Nsight Systems: its own program exports them, where there is one.
 *
 * Its files need names, so a signal that ends this process would leave them. A process of its own
 * therefore holds the other end of a socket: when that closes, whatever the reason, it ends nsys if
 * that still runs, and removes the files.
 */
#include "recording/import.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct export
{
    const char *path;
    char folder[4096];              /* of our own, for the two files */
    char database[4200], log[4200]; /* what the program makes, and what it says */
    char more[3][4224];             /* that SQLite may make beside it */
    int guard;                      /* our end of the socket; -1: none */
    pid_t guardian;
};

static void guard_start(struct export *e);

static int folder_make(struct export *e)
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || !temporary[0])
        temporary = "/var/tmp";
    int n = snprintf(e->folder, sizeof e->folder, "%s/millrace-nsys-XXXXXX", temporary);
    if (n >= (int)sizeof e->folder)
        return mr_error_errno(ENAMETOOLONG, "%s: TMPDIR", e->path);
    if (!mkdtemp(e->folder))
        return mr_error_errno(errno,
                              "%s: exporting it needs a temporary file in %s (set TMPDIR to "
                              "another folder)",
                              e->path, temporary);
    snprintf(e->database, sizeof e->database, "%s/export.sqlite", e->folder);
    snprintf(e->log, sizeof e->log, "%s/log", e->folder);
    static const char *const more[] = {"-journal", "-wal", "-shm"};
    for (size_t i = 0; i < MR_COUNT(more); i++)
        snprintf(e->more[i], sizeof e->more[i], "%s%s", e->database, more[i]);
    guard_start(e);
    return 0;
}

/* Only calls that a child of a process with threads may make. */
static void folder_remove(const struct export *e)
{
    unlink(e->database);
    for (size_t i = 0; i < MR_COUNT(e->more); i++)
        unlink(e->more[i]);
    unlink(e->log);
    rmdir(e->folder);
}

#define TRIES 250 /* of 20 ms: a killed nsys may still be ending */

static void guard(const struct export *e, int from)
{
    pid_t group = 0, heard;
    while (read(from, &heard, sizeof heard) == (ssize_t)sizeof heard)
        group = heard; /* 0: it has ended */
    if (group > 0)
        kill(-group, SIGKILL);
    folder_remove(e);
    for (int i = 0; i < TRIES && group > 0 && access(e->folder, F_OK) == 0; i++) {
        usleep(20000);
        folder_remove(e);
    }
    _exit(0);
}

/* The signals that end us are not for it. Without it the files are removed all the same, but by a
 * process that lives. */
static void guard_start(struct export *e)
{
    int ends[2];
    e->guard = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        close(ends[1]);
        for (int fd = 0; fd < 3; fd++) /* whoever reads our output waits for its end */
            if (fd != ends[0])
                close(fd);
        guard(e, ends[0]);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return;
    }
    e->guard = ends[1];
    e->guardian = pid;
}

static void guard_tell(const struct export *e, pid_t group)
{
    if (e->guard >= 0) /* where it was killed, the files stay: nothing else depends on it */
        send(e->guard, &group, sizeof group, MSG_NOSIGNAL);
}

static void guard_end(const struct export *e)
{
    if (e->guard < 0) {
        folder_remove(e);
        return;
    }
    close(e->guard);
    folder_remove(e);
    while (waitpid(e->guardian, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* The last line that says something. */
static void last_line(const struct export *e, char *out, size_t cap)
{
    char line[400];
    FILE *file = fopen(e->log, "re");
    snprintf(out, cap, "it said nothing");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if (line[strspn(line, " \t")])
            snprintf(out, cap, "%s", line);
    }
    if (file)
        fclose(file);
}

/* posix_spawnp() cannot tell where vfork() is fork(), as under qemu-user: a child ends with 127. */
static bool was_missing(const struct export *e, int status)
{
    struct stat log;
    return WIFEXITED(status) && WEXITSTATUS(status) == 127 &&
           (stat(e->log, &log) != 0 || log.st_size == 0);
}

/* Returns the program's status as waitpid() gives it, or -errno. */
static int run(const struct export *e)
{
    char source[4200]; /* no option, whatever its name */
    snprintf(source, sizeof source, "%s%s", e->path[0] == '-' ? "./" : "", e->path);
    /* posix_spawnp() does not change them */
    char *const args[] = {"nsys",
                          "export",
                          "--type",
                          "sqlite",
                          "--force-overwrite",
                          "true",
                          "--output",
                          (char *)e->database,
                          source,
                          NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t group;
    pid_t pid;
    int status, rc = posix_spawn_file_actions_init(&files);
    if (rc != 0)
        return -rc;
    rc = posix_spawnattr_init(&group);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&files);
        return -rc;
    }
    rc = posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP); /* for it and its children */
    rc = rc ? rc : posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc
            : posix_spawn_file_actions_addopen(&files, 1, e->log, O_WRONLY | O_CREAT | O_APPEND,
                                               0600);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, 1, 2);
    rc = rc ? rc : posix_spawnp(&pid, "nsys", &files, &group, args, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&group);
    if (rc != 0)
        return -rc;
    guard_tell(e, pid);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    guard_tell(e, 0);
    return was_missing(e, status) ? -ENOENT : status;
}

static int export_file(const struct export *e)
{
    char said[400];
    int status = run(e);
    if (status == -ENOENT)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: is a report of Nsight Systems, and its program nsys, which "
                            "exports it, is not on PATH: run `nsys export --type sqlite` where it "
                            "is installed",
                            e->path);
    if (status < 0)
        return mr_error_errno(-status, "%s: nsys export cannot be run", e->path);
    if (status == 0 && access(e->database, R_OK) == 0)
        return 0;
    last_line(e, said, sizeof said);
    return mr_error_set(MR_EFORMAT, "%s: `nsys export --type sqlite` failed (%s %d): %s", e->path,
                        WIFSIGNALED(status) ? "signal" : "exit status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), said);
}

/* The file has no name once it is open. */
int mr_nsys_import(const char *path, struct sqlite3 **out)
{
    struct export e = {.path = path};
    int rc = folder_make(&e);
    if (rc < 0)
        return rc;
    rc = export_file(&e);
    if (rc < 0)
        goto end;
    if (sqlite3_open_v2(e.database, out, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        rc = mr_error_set(MR_EFORMAT, "%s: its export cannot be opened: sqlite: %s", path,
                          sqlite3_errmsg(*out));
        sqlite3_close(*out);
        *out = NULL;
    }
end:
    guard_end(&e);
    return rc;
}
