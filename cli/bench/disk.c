/* The file that bench disk reads: the user's, or a temporary one beside a data set. */
#include "bench/disk.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of all local files that samples are read from; 0: there are none. [out] folder: of the first. */
static uint64_t local_bytes(const struct mr_dataset *ds, char folder[PATH_MAX])
{
    uint64_t sum = 0;
    const char *name;
    for (uint64_t k = 0; (name = mr_dataset_source(ds, k)) != NULL; k++) {
        struct stat st;
        const char *slash = strrchr(name, '/');
        if (stat(name, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (sum == 0)
            snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - name) + 1 : 1,
                     slash ? name : ".");
        sum += (uint64_t)st.st_size;
    }
    return sum;
}

static int look_at(const char *dataset, char folder[PATH_MAX], uint64_t *sample_bytes)
{
    struct mr_dataset *ds = NULL;
    int rc = mr_dataset_open(dataset, &ds);
    if (rc == 0)
        rc = cli_need_length(&ds);
    if (rc < 0)
        return cli_error(rc);
    uint64_t sum = local_bytes(ds, folder), n = mr_dataset_length(ds);
    int code = sum ? CLI_OK
                   : cli_fail("%s: has no local files, so no disk limits it", mr_dataset_text(ds));
    mr_dataset_close(ds);
    if (code != CLI_OK)
        return code;
    *sample_bytes = (sum + n - 1) / n;
    if (*sample_bytes > DISK_MAX_READ)
        return cli_fail("its samples have %llu bytes on average: expected at most %d",
                        (unsigned long long)*sample_bytes, DISK_MAX_READ);
    return CLI_OK;
}

static int make_file(const char *folder, uint64_t bytes, struct disk_file *out)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return cli_fail("%s: cannot be opened as a folder: %s", folder, strerror(errno));
    int code =
        cli_scratch_open(dir, folder, bytes, "lower --bytes or choose another --path", &out->fd);
    close(dir);
    if (code == CLI_OK) {
        snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", out->fd);
        snprintf(out->shown, sizeof out->shown, "a temporary file in %.4000s", folder);
    }
    return code;
}

int disk_open(const struct disk_opts *o, const char *dataset, struct disk_file *out,
              uint64_t *out_sample_bytes)
{
    char folder[PATH_MAX] = ".";
    struct stat st = {0};
    int code = CLI_OK;
    if (dataset)
        code = look_at(dataset, folder, out_sample_bytes);
    if (code != CLI_OK)
        return code;
    const char *path = o->path ? o->path : folder;
    if (strstr(path, "://"))
        return cli_fail("%s: expected a local file or folder", path);
    if (stat(path, &st) != 0)
        return cli_fail("%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return cli_fail("%s: is no regular file: expected one, or a folder", path);
    if (S_ISREG(st.st_mode) && st.st_size == 0)
        return cli_fail("%s: is empty", path);
    if (S_ISDIR(st.st_mode))
        code = make_file(path, o->bytes, out);
    else
        snprintf(out->path, sizeof out->path, "%s", path);
    if (code != CLI_OK)
        return code;
    if (out->fd < 0)
        snprintf(out->shown, sizeof out->shown, "%s", path);
    if (stat(out->path, &st) != 0) {
        disk_close(out);
        return cli_fail("%s: %s", path, strerror(errno));
    }
    out->bytes = (uint64_t)st.st_size;
    return CLI_OK;
}

void disk_close(struct disk_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

bool disk_can_read_directly(const struct disk_file *file)
{
    struct mr_read_rate rate = {.size = sizeof rate};
    struct mr_read_rate_opts opts;
    mr_read_rate_opts_init(&opts);
    opts.path = file->path;
    opts.direct = 1;
    opts.cold = 0;
    opts.time_ns = 0;
    if (file->bytes > 0 && file->bytes < opts.piece_bytes)
        opts.piece_bytes = file->bytes;
    return mr_read_rate_measure(&opts, &rate) == 0 && rate.direct;
}
