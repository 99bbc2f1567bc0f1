/* Futexes and memory for other processes. */
#include "base/futex.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int mr_futex_wait(_Atomic uint32_t *at, uint32_t seen, int64_t timeout_ns)
{
    struct timespec most = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    if (syscall(SYS_futex, at, FUTEX_WAIT, seen, timeout_ns < 0 ? NULL : &most, NULL, 0) == 0)
        return 0;
    return errno == EAGAIN ? 0 : -errno;
}

void mr_futex_wake(_Atomic uint32_t *at, int n)
{
    syscall(SYS_futex, at, FUTEX_WAKE, n, NULL, NULL, 0);
}

int mr_memfd_create(const char *what, uint64_t bytes)
{
    int fd = bytes <= INT64_MAX ? memfd_create("millrace", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    if (bytes > INT64_MAX)
        return mr_error_set(MR_ELIMIT, "%s: %llu bytes of shared memory", what,
                            (unsigned long long)bytes);
    if (fd < 0)
        return mr_error_errno(errno, "%s: shared memory (memfd_create)", what);
    if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
        int errnum = errno;
        close(fd);
        return mr_error_errno(errnum, "%s: %llu bytes of shared memory", what,
                              (unsigned long long)bytes);
    }
    return fd;
}

uint64_t mr_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

int mr_memfd_map(const char *what, int fd, uint64_t offset, uint64_t bytes, void **out)
{
    void *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    if (at == MAP_FAILED)
        return mr_error_errno(errno, "%s: cannot map %llu bytes of shared memory", what,
                              (unsigned long long)bytes);
    *out = at;
    return 0;
}
