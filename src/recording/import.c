/* Which tool wrote a file. */
#include "recording/import.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first bytes of a regular file; 0: there are none. */
static size_t first_bytes(const char *path, unsigned char *buf, size_t cap, bool *empty)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    *empty = st.st_size == 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : pread(fd, buf, cap, 0);
    if (fd >= 0)
        close(fd);
    return n < 0 ? 0 : (size_t)n;
}

static bool is_json(const unsigned char *at, size_t n)
{
    size_t i = n >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < n && isspace(at[i]))
        i++;
    return i < n && (at[i] == '{' || at[i] == '[');
}

int mr_import(const char *path, struct sqlite3 **out)
{
    static const char sqlite[16] = "SQLite format 3";
    unsigned char first[512];
    struct stat st;
    if ((mr_ends_in(path, ".nsys-rep") || mr_ends_in(path, ".qdrep")) && stat(path, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        int exported = mr_nsys_import(path, out);
        return exported < 0 ? exported : 1;
    }
    bool empty = false;
    size_t n = first_bytes(path, first, sizeof first, &empty);
    if (empty) /* to SQLite it is a database without tables */
        return mr_error_set(MR_EFORMAT, "%s: is empty: expected a recording or a trace", path);
    if (n >= sizeof sqlite && memcmp(first, sqlite, sizeof sqlite) == 0)
        return mr_rocpd_import(path, out);
    bool gzip = n >= 2 && first[0] == 0x1f && first[1] == 0x8b;
    if (!gzip && !is_json(first, n))
        return 0;
    int rc = mr_kineto_import(path, out);
    return rc < 0 ? rc : 1;
}
