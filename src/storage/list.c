/* Listing a directory, or a place that a URL names. */
#include "storage/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Folder or file? false: neither. A dangling link counts as a file; reading it reports the
 * error. */
static bool what_is(DIR *dir, const struct dirent *entry, bool *folder)
{
    struct stat st;
    *folder = entry->d_type == DT_DIR;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return *folder || entry->d_type == DT_REG;
    if (fstatat(dirfd(dir), entry->d_name, &st, 0))
        return true;
    *folder = S_ISDIR(st.st_mode);
    return *folder || S_ISREG(st.st_mode);
}

static int list_entries(DIR *dir, const char *place,
                        int (*fn)(void *user, const char *name, bool folder, uint64_t bytes),
                        void *user)
{
    for (;;) {
        int rc = mr_interrupt_check(place);
        if (rc < 0)
            return rc;
        errno = 0;
        const struct dirent *entry = readdir(dir);
        bool folder;
        if (!entry)
            return errno ? mr_error_errno(errno, "%s: cannot be listed to its end", place) : 0;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            !what_is(dir, entry, &folder))
            continue;
        rc = fn(user, entry->d_name, folder, UINT64_MAX);
        if (rc) /* nonzero, not only negative: the caller's way to stop */
            return rc;
    }
}

static int list_directory(const char *place,
                          int (*fn)(void *user, const char *name, bool folder, uint64_t bytes),
                          void *user)
{
    DIR *dir = opendir(place);
    if (!dir)
        return mr_error_errno(errno, "%s: cannot be listed", place);
    int rc = list_entries(dir, place, fn, user);
    closedir(dir);
    return rc;
}

int mr_store_list(const char *place,
                  int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user)
{
    const struct mr_remote_ops *remote = mr_remote_of(place);
    if (!remote && mr_store_is_remote(place))
        return mr_error_set(MR_EUNSUPPORTED, "%s: cannot be listed here: built without libcurl",
                            place);
    if (!remote)
        return list_directory(place, fn, user);
    const char *why = remote->why_not ? remote->why_not() : NULL;
    if (why)
        return mr_error_set(MR_EUNSUPPORTED, "%s: cannot be listed here: %s", place, why);
    if (!remote->list)
        return mr_error_set(MR_EUNSUPPORTED, "%s: this kind of place has no listing", place);
    return remote->list(place, fn, user);
}
