/* Files that appear whole or not at all. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* mkstemp makes files for the owner alone; what we write is as public as the user's umask says. */
static void open_to_umask(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
}

/* Files are made under another name in the same folder. */
static int check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int errnum = !folder ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return errnum ? cli_fail("%s: cannot be made: %s", path, strerror(errnum)) : CLI_OK;
}

int cli_output_check(const char *path)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (!there && errno == ENOENT)
        return check_folder(path);
    if (!there || S_ISREG(st.st_mode))
        return CLI_OK;
    return cli_fail("%s: is there and no regular file: want a file's name, which is written beside it and renamed",
                    path);
}

int cli_output_open(struct cli_output *out, const char *path, bool force, bool gz)
{
    *out = (struct cli_output){0};
    if (cli_output_check(path) != CLI_OK)
        return CLI_FAILED;
    if (!force && access(path, F_OK) == 0)
        return cli_fail("%s: is there already; --force replaces it", path);
    out->path = strdup(path);
    if (!out->path || asprintf(&out->temporary, "%s" CLI_UNFINISHED "XXXXXX", path) < 0) {
        out->temporary = NULL;
        cli_output_abort(out);
        return cli_fail("out of memory");
    }
    int fd = mkostemp(out->temporary, O_CLOEXEC);
    if (fd < 0) {
        int errnum = errno;
        free(out->temporary);
        out->temporary = NULL;
        cli_output_abort(out);
        return cli_fail("%s: cannot be made: %s", path, strerror(errnum));
    }
    open_to_umask(fd);
    if (gz)
        out->gz = gzdopen(fd, "wb6");
    else
        out->file = fdopen(fd, "wb");
    if (out->gz || out->file)
        return CLI_OK;
    close(fd);
    cli_output_abort(out);
    return cli_fail("out of memory");
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
    if (out->file)
        rc = fclose(out->file);
    out->gz = out->file = NULL;
    return rc ? cli_fail("%s: cannot be written: %s", out->path, strerror(errno ? errno : EIO)) : CLI_OK;
}

int cli_output_sync(struct cli_output *out)
{
    if (fflush(out->file) == 0 && fsync(fileno(out->file)) == 0)
        return CLI_OK;
    return cli_fail("%s: cannot be written: %s", out->path, strerror(errno));
}

int cli_output_commit(struct cli_output *out)
{
    int code = cli_output_finish(out);
    if (code == CLI_OK && rename(out->temporary, out->path) != 0)
        code = cli_fail("%s: cannot be named so: %s", out->path, strerror(errno));
    if (code == CLI_OK) {
        free(out->temporary);
        out->temporary = NULL;
    }
    cli_output_abort(out);
    return code;
}

void cli_output_abort(struct cli_output *out)
{
    if (out->gz)
        gzclose(out->gz);
    if (out->file)
        fclose(out->file);
    if (out->temporary)
        unlink(out->temporary);
    free(out->temporary);
    free(out->path);
    *out = (struct cli_output){0};
}
