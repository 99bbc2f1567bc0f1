/* SQLite's allocations and system calls go through the injector too: it is a shared library, whose
 * calls the linker cannot send there, but it takes functions for both. */
#include "inject.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRONT 16 /* the block's size stands before it */

static void *sq_malloc(int bytes)
{
    char *block = malloc((size_t)bytes + FRONT);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    return block + FRONT;
}

static void sq_free(void *p)
{
    if (p)
        free((char *)p - FRONT);
}

static int sq_size(void *p)
{
    int bytes = 0;
    if (p)
        memcpy(&bytes, (char *)p - FRONT, sizeof bytes);
    return bytes;
}

static void *sq_realloc(void *p, int bytes)
{
    char *block = realloc(p ? (char *)p - FRONT : NULL, (size_t)bytes + FRONT);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    return block + FRONT;
}

static int sq_roundup(int bytes)
{
    return (bytes + 7) & ~7;
}

static int sq_begin(void *unused)
{
    (void)unused;
    return SQLITE_OK;
}

static void sq_end(void *unused)
{
    (void)unused;
}

static int sys_open(const char *path, int flags, int mode)
{
    return open(path, flags, mode);
}

static int sys_fstat(int fd, struct stat *out)
{
    return fstat(fd, out);
}

static ssize_t sys_read(int fd, void *to, size_t bytes)
{
    return read(fd, to, bytes);
}

static ssize_t sys_pread(int fd, void *to, size_t bytes, off_t offset)
{
    return pread(fd, to, bytes, offset);
}

static ssize_t sys_pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    return fault_fails(FAULT_WRITE) ? -1 : pwrite(fd, from, bytes, offset);
}

/* Before SQLite is first used. */
static __attribute__((constructor)) void inject(void)
{
    static const sqlite3_mem_methods methods = {sq_malloc,  sq_free,  sq_realloc, sq_size,
                                                sq_roundup, sq_begin, sq_end,     NULL};
    const struct {
        const char *name;
        sqlite3_syscall_ptr call;
    } calls[] = {
        {"open", (sqlite3_syscall_ptr)sys_open},       {"fstat", (sqlite3_syscall_ptr)sys_fstat},
        {"read", (sqlite3_syscall_ptr)sys_read},       {"pread", (sqlite3_syscall_ptr)sys_pread},
        {"pread64", (sqlite3_syscall_ptr)sys_pread},   {"pwrite", (sqlite3_syscall_ptr)sys_pwrite},
        {"pwrite64", (sqlite3_syscall_ptr)sys_pwrite},
    };
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
        abort();
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    for (size_t i = 0; vfs && i < sizeof calls / sizeof calls[0]; i++)
        vfs->xSetSystemCall(vfs, calls[i].name, calls[i].call);
}
