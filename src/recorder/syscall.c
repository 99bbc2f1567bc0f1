/*
 * System calls without the C library. Its syscall() is one of the calls that this library wraps and
 * records (os/wait.c), so the recorder's own calls must not pass there.
 */
#include "recorder/private.h"

#include <errno.h>
#include <stdarg.h>

#if defined(__x86_64__)
static long call_kernel(long number, const long *a)
{
    long result;
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long call_kernel(long number, const long *a)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a[0], x1 __asm__("x1") = a[1],
                     x2 __asm__("x2") = a[2];
    register long x3 __asm__("x3") = a[3], x4 __asm__("x4") = a[4], x5 __asm__("x5") = a[5];
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#include <dlfcn.h>
#include <string.h>

static long (*next)(long number, ...); /* the C library's own, which our wrapper hides */

__attribute__((constructor(101))) static void find_next(void)
{
    void *symbol = dlsym(RTLD_NEXT, "syscall");
    memcpy(&next, &symbol, sizeof next);
}

static long call_kernel(long number, const long *a)
{
    long result = next ? next(number, a[0], a[1], a[2], a[3], a[4], a[5]) : -ENOSYS;
    return next && result == -1 ? -errno : result;
}
#endif

/* Six arguments are read whatever the number, as in the C library; a sanitizer would object. */
__attribute__((no_sanitize("address"))) long record_syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    long result = call_kernel(number, a);
    if (result >= 0 || result <= -4096)
        return result;
    errno = (int)-result;
    return -1;
}
