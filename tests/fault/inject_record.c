/*
 * The recorder's own injector, in a build of the recorder: RECORD_FAULT=kind:nth[:on] makes its nth
 * call of a kind fail, and with `on` all later ones. The first failure makes the file that
 * RECORD_FAULT_TOLD names.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    const char *kind, *told;
    uint64_t nth;
    bool on;
    _Atomic uint64_t n;
} fault;

long __real_record_syscall(long number, ...);

/* Before the recorder's own constructors. */
static __attribute__((constructor(101))) void arm(void)
{
    static char kind[16];
    const char *text = getenv("RECORD_FAULT"), *colon = text ? strchr(text, ':') : NULL;
    if (!colon || (size_t)(colon - text) >= sizeof kind)
        return;
    memcpy(kind, text, (size_t)(colon - text));
    fault.nth = strtoull(colon + 1, NULL, 10);
    fault.on = strstr(colon + 1, ":on") != NULL;
    fault.told = getenv("RECORD_FAULT_TOLD");
    fault.kind = kind;
}

static bool fails(const char *kind, int errnum)
{
    if (!fault.kind || strcmp(fault.kind, kind) != 0)
        return false;
    uint64_t n = atomic_fetch_add(&fault.n, 1) + 1;
    if (fault.on ? n < fault.nth : n != fault.nth)
        return false;
    if (fault.told) {
        int fd = (int)__real_record_syscall(SYS_openat, AT_FDCWD, fault.told,
                                            O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0)
            __real_record_syscall(SYS_close, fd);
    }
    errno = errnum;
    return true;
}

#define WRAP(type, name, parameters)                                                               \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters

/* Six arguments are read whatever the number, of the caller's stack where there are fewer, as the C
 * library's own does. */
long __wrap_record_syscall(long number, ...);
__attribute__((no_sanitize("address"))) long __wrap_record_syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    bool fail = (number == SYS_mmap && fails("memory", ENOMEM)) ||
                (number == SYS_openat && fails("open", EMFILE)) ||
                (number == SYS_read && fails("read", EIO)) ||
                ((number == SYS_writev || number == SYS_write) && fails("write", ENOSPC));
    return fail ? -1 : __real_record_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

WRAP(void *, mmap, (void *at, size_t bytes, int protection, int flags, int fd, off_t offset))
{
    return fails("memory", ENOMEM) ? MAP_FAILED
                                   : __real_mmap(at, bytes, protection, flags, fd, offset);
}

WRAP(char *, strdup, (const char *text))
{
    return fails("memory", ENOMEM) ? NULL : __real_strdup(text);
}

WRAP(int, fstat, (int fd, struct stat *out))
{
    return fails("stat", EIO) ? -1 : __real_fstat(fd, out);
}

WRAP(int, ftruncate, (int fd, off_t bytes))
{
    return fails("stat", EIO) ? -1 : __real_ftruncate(fd, bytes);
}

WRAP(DIR *, opendir, (const char *path))
{
    return fails("open", EMFILE) ? NULL : __real_opendir(path);
}

WRAP(void *, dlopen, (const char *path, int flags))
{
    return fails("load", ENOENT) ? NULL : __real_dlopen(path, flags);
}

WRAP(int, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg))
{
    return fails("thread", EAGAIN) ? EAGAIN : __real_pthread_create(out, attributes, fn, arg);
}

WRAP(int, pthread_key_create, (pthread_key_t * out, void (*destroy)(void *)))
{
    return fails("thread", EAGAIN) ? EAGAIN : __real_pthread_key_create(out, destroy);
}
