/* The wrappers of calls that wait: for events, time, locks and threads. */
#undef _FORTIFY_SOURCE
#include "recorder/os/wrap.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t cap);

/* ---- events and time ---- */

RECORD_EXPORT int poll(struct pollfd *fds, nfds_t n,
                       int timeout_ms){WRAP(poll, int, (fds, n, timeout_ms), -1, 0)} RECORD_EXPORT
    int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t cap){
        WRAP(__poll_chk, int, (fds, n, timeout_ms, cap), -1, 0)} RECORD_EXPORT
    int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
              const sigset_t *signals){
        WRAP(ppoll, int, (fds, n, timeout, signals), -1, 0)} RECORD_EXPORT
    int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
               struct timeval *restrict timeout){
        WRAP(select, int, (n, in, out, except, timeout), -1, 0)} RECORD_EXPORT
    int pselect(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
                const struct timespec *restrict timeout, const sigset_t *restrict signals){
        WRAP(pselect, int, (n, in, out, except, timeout, signals), -1, 0)} RECORD_EXPORT
    int epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms){
        WRAP(epoll_wait, int, (fd, events, n, timeout_ms), -1, 0)} RECORD_EXPORT
    int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout_ms,
                    const sigset_t *signals){
        WRAP(epoll_pwait, int, (fd, events, n, timeout_ms, signals), -1, 0)} RECORD_EXPORT
    int nanosleep(const struct timespec *time,
                  struct timespec *rest){WRAP(nanosleep, int, (time, rest), -1, 0)} RECORD_EXPORT
    int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                        struct timespec *rest){
        WRAP(clock_nanosleep, int, (clock, flags, time, rest), ENOSYS, 0)} RECORD_EXPORT
    int usleep(useconds_t us){WRAP(usleep, int, (us), -1, 0)} RECORD_EXPORT
    unsigned sleep(unsigned seconds){WRAP(sleep, unsigned, (seconds), seconds, 0)}

/* ---- locks: one that is free is not waited for ---- */

/*
 * Whoever finds a lock taken waits, and is timed. EBUSY is the one answer of a try that the lock
 * itself does not give. Without the C library's functions (this thread is inside the lookup of the
 * first of them) nobody else runs yet.
 */
#define WRAP_LOCK(lock, try, arguments)                                                            \
    __typeof__(&lock) real = REAL(lock);                                                           \
    if (!real)                                                                                     \
        return 0;                                                                                  \
    if (!record_os_traced && !record_sampling)                                                     \
        return real arguments;                                                                     \
    __typeof__(&try) attempt = REAL(try);                                                          \
    int result = attempt ? attempt arguments : EBUSY;                                              \
    if (result != EBUSY)                                                                           \
        return result;                                                                             \
    uint64_t start_ns = record_os_begin();                                                         \
    uintptr_t outer = record_wait_enter(__builtin_frame_address(0));                               \
    result = real arguments;                                                                       \
    record_wait_leave(outer);                                                                      \
    if (start_ns)                                                                                  \
        record_os_end(OS_##lock, start_ns, result, 0);                                             \
    return result;

RECORD_EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex){
    WRAP_LOCK(pthread_mutex_lock, pthread_mutex_trylock, (mutex))} RECORD_EXPORT
    int pthread_rwlock_rdlock(pthread_rwlock_t *lock){
        WRAP_LOCK(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, (lock))} RECORD_EXPORT
    int pthread_rwlock_wrlock(pthread_rwlock_t *lock){
        WRAP_LOCK(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, (lock))}

/* ---- conditions, semaphores, threads ---- */

RECORD_EXPORT
    int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex){
        WRAP(pthread_cond_wait, int, (condition, mutex), ENOSYS, 0)} RECORD_EXPORT
    int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                               const struct timespec *restrict until){
        WRAP(pthread_cond_timedwait, int, (condition, mutex, until), ENOSYS, 0)} RECORD_EXPORT
    int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                               clockid_t clock, const struct timespec *restrict until){
        WRAP(pthread_cond_clockwait, int, (condition, mutex, clock, until), ENOSYS,
             0)} RECORD_EXPORT int pthread_join(pthread_t thread, void **out){
        WRAP(pthread_join, int, (thread, out), ENOSYS, 0)} RECORD_EXPORT
    int pthread_barrier_wait(pthread_barrier_t *barrier){
        WRAP(pthread_barrier_wait, int, (barrier), ENOSYS, 0)} RECORD_EXPORT
    int sem_wait(sem_t *semaphore){WRAP(sem_wait, int, (semaphore), -1, 0)} RECORD_EXPORT
    int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until){
        WRAP(sem_timedwait, int, (semaphore, until), -1, 0)} RECORD_EXPORT
    int sem_clockwait(sem_t *restrict semaphore, clockid_t clock,
                      const struct timespec *restrict until)
{
    WRAP(sem_clockwait, int, (semaphore, clock, until), -1, 0)
}

/* ---- futexes: Rust's and others' locks wait by them without the C library's functions ---- */

static bool waits(long number, long operation)
{
    if (number != SYS_futex)
        return false;
    operation &= FUTEX_CMD_MASK;
    return operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI;
}

/* Six arguments are read whatever the number: the C library's own function does so. */
RECORD_EXPORT long syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    __typeof__(&syscall) real = REAL(syscall);
    if (!real) /* within the lookup of the first function */
        return record_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    uint64_t start_ns = waits(number, a[1]) ? record_os_begin() : 0;
    uintptr_t outer = record_wait_enter(__builtin_frame_address(0));
    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    record_wait_leave(outer);
    if (start_ns)
        record_os_end(OS_syscall, start_ns, result, 0);
    return result;
}
