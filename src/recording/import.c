/* Which tool wrote a file, and what all importers write. */
#include "recording/import.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first bytes of a regular file; 0: there are none. */
static size_t first_bytes(const char *path, unsigned char *buf, size_t cap)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
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
    unsigned char first[512];
    struct stat st;
    if ((mr_ends_in(path, ".nsys-rep") || mr_ends_in(path, ".qdrep")) && stat(path, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        int exported = mr_nsys_import(path, out);
        return exported < 0 ? exported : 1;
    }
    size_t n = first_bytes(path, first, sizeof first);
    bool gzip = n >= 2 && first[0] == 0x1f && first[1] == 0x8b;
    if (!gzip && !is_json(first, n))
        return 0;
    int rc = mr_kineto_import(path, out);
    return rc < 0 ? rc : 1;
}

int mr_import_note(struct mr_store *store, const char *name, const char *text)
{
    uint32_t names, number;
    int rc = mr_store_text(store, name, strlen(name), &names);
    if (rc < 0)
        return rc;
    rc = mr_store_text(store, text, strlen(text), &number);
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO MILLRACE_NOTES VALUES (0, ?, ?, 0)", "ii",
                        (int64_t)names, (int64_t)number);
}

/* The cores are those of the machine that ran the program, which this need not be. */
int mr_import_source(struct mr_store *store, const char *source)
{
    int rc = mr_store_run(store, "INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", "tt",
                          MR_IMPORT_SOURCE, source);
    return rc < 0 ? rc : mr_store_meta(store, "n_cores", 0);
}

void mr_import_process(struct mr_store *store, uint32_t pid)
{
    store->process = pid & 0xffffff;
}

int mr_import_process_row(struct mr_store *store, uint32_t pid, const char *name, uint64_t start_ns,
                          uint64_t end_ns)
{
    uint32_t command;
    int64_t global = (int64_t)((uint64_t)(pid & 0xffffff) << 24);
    int rc = mr_store_text(store, name, strlen(name), &command);
    if (rc < 0)
        return rc;
    rc = mr_store_run(store, "INSERT INTO PROCESSES VALUES (?, ?, ?)", "iit", global, (int64_t)pid,
                      name);
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO MILLRACE_PROCESSES VALUES (?, ?, 0, ?, 0, ?, ?, 1, ?)",
                        "iiiiii", global, (int64_t)pid, (int64_t)command,
                        mr_store_time(store, start_ns), mr_store_time(store, end_ns),
                        (int64_t)store->traced);
}
