/* What a run may write to, and how: files appear whole or not at all. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* ---- the rule ---- */

static int cannot_make(const char *path, int errnum)
{
    return cli_fail("%s: cannot be made: %s", path, strerror(errnum));
}

/* Files are made under another name in the same folder. */
static int check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int errnum = !folder ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return errnum ? cannot_make(path, errnum) : CLI_OK;
}

static int refuse(const char *path, enum cli_kind kind, int force)
{
    const char *what = kind == CLI_RECORDING ? "--force-overwrite" : "--force";
    if (!cli_kind_recognised(kind))
        return cli_fail("%s: exists; %s replaces it", path, what);
    if (force == CLI_NO_FORCE)
        return cli_fail("%s: exists and is not a %s of millrace: name another file", path,
                        cli_kind_name(kind));
    return cli_fail("%s: exists and is not a %s of millrace: name another file; %s replaces it",
                    path, cli_kind_name(kind), what);
}

/* [out] file: zeroes where there is none. */
static int look(const char *path, enum cli_kind kind, int force, struct stat *file)
{
    struct stat link;
    *file = (struct stat){0};
    if (lstat(path, &link) != 0)
        return errno == ENOENT ? check_folder(path) : cannot_make(path, errno);
    if (stat(path, file) != 0)
        return cli_fail("%s: is a dangling symbolic link: %s", path, strerror(errno));
    if (kind == CLI_PICTURE && !S_ISREG(file->st_mode) && !S_ISDIR(file->st_mode))
        return CLI_OK;
    if (!S_ISREG(file->st_mode))
        return cli_fail("%s: exists and is not a regular file", path);
    if (cli_input_is(file))
        return cli_fail("%s: this run reads it: write to another file", path);
    if (force != 1 && cli_kind_of(kind, path) == CLI_FOREIGN)
        return refuse(path, kind, force);
    return kind == CLI_LOG ? CLI_OK : check_folder(path);
}

int cli_output_check(const char *path, enum cli_kind kind, int force)
{
    struct stat file;
    return path ? look(path, kind, force, &file) : CLI_OK;
}

int cli_output_claim(const char *path, enum cli_kind kind, int force)
{
    static char *claimed[16]; /* more outputs than a command has options for */
    static size_t n;
    struct stat file;
    int code = path ? look(path, kind, force, &file) : CLI_OK;
    if (!path || code != CLI_OK || (file.st_mode && !S_ISREG(file.st_mode)))
        return code;
    for (size_t i = 0; i < n; i++)
        if (strcmp(claimed[i], path) == 0)
            return cli_fail("%s: is given for two outputs", path);
    if (n < CLI_COUNT(claimed) && (claimed[n] = strdup(path)))
        n++;
    return file.st_mode ? cli_input_claim(path, &file) : CLI_OK;
}

int cli_output_remove(const char *path, enum cli_kind kind, int force)
{
    struct stat file;
    if (lstat(path, &file) != 0 && errno == ENOENT)
        return CLI_OK;
    int code = look(path, kind, force, &file);
    if (code != CLI_OK || (force != 1 && cli_kind_of(kind, path) != CLI_OURS))
        return code;
    return unlink(path) == 0 ? CLI_OK
                             : cli_fail("%s: cannot be removed: %s", path, strerror(errno));
}

/* ---- writing ---- */

/* The stream closes its descriptor; the other holds the lock until the file has its name. */
static bool open_stream(struct cli_output *out, bool gz)
{
    int fd = fcntl(mr_output_get_fd(out->whole), F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (gz)
        out->gz = gzdopen(fd, "wb6");
    else
        out->file = fdopen(fd, "wb");
    if (!out->gz && !out->file)
        close(fd);
    return out->gz || out->file;
}

static int open_output(struct cli_output *out, const char *path, enum cli_kind kind, int force,
                       bool gz)
{
    *out = (struct cli_output){.replace = force == 1 || cli_kind_recognised(kind)};
    if (cli_output_check(path, kind, force) != CLI_OK)
        return CLI_FAILED;
    out->path = strdup(path);
    if (!out->path)
        return cli_fail("out of memory");
    int rc = mr_output_open(path, &out->whole);
    if (rc < 0) {
        cli_output_abort(out);
        return cli_error(rc);
    }
    if (open_stream(out, gz))
        return CLI_OK;
    int errnum = errno;
    cli_output_abort(out);
    return cannot_make(path, errnum ? errnum : ENOMEM);
}

int cli_output_open(struct cli_output *out, const char *path, enum cli_kind kind, int force)
{
    return open_output(out, path, kind, force, false);
}

int cli_output_open_gz(struct cli_output *out, const char *path, enum cli_kind kind, int force)
{
    return open_output(out, path, kind, force, true);
}

int cli_output_write(struct cli_output *out, const void *data, size_t bytes)
{
    const char *p = data;
    bool ok = !out->file || fwrite(p, 1, bytes, out->file) == bytes;
    for (size_t at = 0; out->gz && ok && at < bytes;) {
        unsigned part = bytes - at > 1 << 24 ? 1 << 24 : (unsigned)(bytes - at);
        ok = gzwrite(out->gz, p + at, part) == (int)part;
        at += part;
    }
    return ok ? CLI_OK : cli_fail("%s: cannot be written: %s", out->path, strerror(errno));
}

int cli_output_finish(struct cli_output *out)
{
    int rc = 0;
    errno = 0;
    if (out->gz)
        rc = gzclose(out->gz);
    if (out->file) {
        int failed = ferror(out->file); /* of writes past cli_output_write() */
        rc = fclose(out->file) | failed;
    }
    out->gz = out->file = NULL;
    return rc ? cli_fail("%s: cannot be written: %s", out->path, strerror(errno ? errno : EIO))
              : CLI_OK;
}

int cli_output_commit(struct cli_output *out)
{
    int code = cli_output_finish(out);
    int rc = code == CLI_OK ? mr_output_commit(out->whole, out->replace) : 0;
    if (rc < 0)
        code = cli_error(rc);
    cli_output_abort(out);
    return code;
}

void cli_output_abort(struct cli_output *out)
{
    if (out->gz)
        gzclose(out->gz);
    if (out->file)
        fclose(out->file);
    mr_output_close(out->whole);
    free(out->path);
    *out = (struct cli_output){0};
}
