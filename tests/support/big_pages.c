/*
 * Preloaded: a kernel with pages of 64 KiB, as arm64 may have, on one with smaller ones. Calls of
 * the program see what such a kernel does: offsets and addresses that are not multiples of a page
 * are refused, and lengths are rounded up to whole pages. The C library's own calls do not come
 * here.
 */
#undef _FILE_OFFSET_BITS /* mmap and mmap64 are two functions here */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 65536ul

static uintptr_t whole(uintptr_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

/* The kernel itself refuses an address that is not even a multiple of its pages. */
static void *judged(const void *at)
{
    return (void *)((uintptr_t)at | ((uintptr_t)at % PAGE != 0));
}

long sysconf(int name)
{
    long (*real)(int);
    void *found = dlsym(RTLD_NEXT, "sysconf");
    memcpy(&real, &found, sizeof real);
    return name == _SC_PAGESIZE ? (long)PAGE : real(name);
}

int getpagesize(void)
{
    return (int)PAGE;
}

/* Free addresses that begin with a page. What is reserved too much is given back. */
static char *reserve(size_t n)
{
    char *all = (char *)syscall(SYS_mmap, NULL, n + PAGE, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    if (all == MAP_FAILED)
        return all;
    char *from = (char *)whole((uintptr_t)all);
    if (from > all)
        syscall(SYS_munmap, all, from - all);
    if (from < all + PAGE)
        syscall(SYS_munmap, from + n, all + PAGE - from);
    return from;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    bool fixed = flags & MAP_FIXED;
    offset |= offset % (off_t)PAGE != 0; /* as in judged() */
    if (!fixed)
        at = reserve(whole(n));
    if (at == MAP_FAILED)
        return at;
    void *made =
        (void *)syscall(SYS_mmap, judged(at), whole(n), protection, flags | MAP_FIXED, fd, offset);
    int errnum = errno;
    if (made == MAP_FAILED && !fixed)
        syscall(SYS_munmap, at, whole(n));
    errno = errnum;
    return made;
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return mmap(at, n, protection, flags, fd, offset);
}

int munmap(void *at, size_t n)
{
    return (int)syscall(SYS_munmap, judged(at), whole(n));
}

int mprotect(void *at, size_t n, int protection)
{
    return (int)syscall(SYS_mprotect, judged(at), whole(n), protection);
}

int madvise(void *at, size_t n, int advice)
{
    return (int)syscall(SYS_madvise, judged(at), whole(n), advice);
}

void *mremap(void *at, size_t before, size_t after, int flags, ...)
{
    void *to = flags & MREMAP_MAYMOVE ? reserve(whole(after)) : MAP_FAILED;
    if (to != MAP_FAILED)
        flags |= MREMAP_FIXED;
    return (void *)syscall(SYS_mremap, judged(at), whole(before), whole(after), flags, to);
}
