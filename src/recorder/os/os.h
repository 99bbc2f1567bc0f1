/*
 * Calls of the operating system, timed in the preloaded library. record_os_wrap*.c holds the
 * functions that take the C library's places; record_os.c what they share.
 *
 * A wrapper calls the C library's own function as it would have been called: errno, cancellation
 * and signals are as without us, and nothing of ours is held meanwhile, so a longjmp() or a
 * cancellation out of the call leaves nothing behind.
 */
#ifndef MR_RECORDER_OS_OS_H
#define MR_RECORDER_OS_OS_H

#include "recorder/private.h"

#include <errno.h>

/* symbol, the name that is recorded */
#define RECORD_OS_CALLS(X)                                                                         \
    X(read, "read")                                                                                \
    X(__read_chk, "read")                                                                          \
    X(pread, "pread")                                                                              \
    X(pread64, "pread64")                                                                          \
    X(__pread_chk, "pread")                                                                        \
    X(__pread64_chk, "pread64")                                                                    \
    X(readv, "readv")                                                                              \
    X(preadv, "preadv")                                                                            \
    X(preadv64, "preadv64")                                                                        \
    X(write, "write")                                                                              \
    X(pwrite, "pwrite")                                                                            \
    X(pwrite64, "pwrite64")                                                                        \
    X(writev, "writev")                                                                            \
    X(open, "open")                                                                                \
    X(open64, "open64")                                                                            \
    X(__open_2, "open")                                                                            \
    X(__open64_2, "open64")                                                                        \
    X(openat, "openat")                                                                            \
    X(openat64, "openat64")                                                                        \
    X(__openat_2, "openat")                                                                        \
    X(__openat64_2, "openat64")                                                                    \
    X(close, "close")                                                                              \
    X(fsync, "fsync")                                                                              \
    X(fdatasync, "fdatasync")                                                                      \
    X(mmap, "mmap")                                                                                \
    X(mmap64, "mmap64")                                                                            \
    X(munmap, "munmap")                                                                            \
    X(mlock, "mlock")                                                                              \
    X(munlock, "munlock")                                                                          \
    X(ioctl, "ioctl")                                                                              \
    X(fopen, "fopen")                                                                              \
    X(fopen64, "fopen64")                                                                          \
    X(fclose, "fclose")                                                                            \
    X(fread, "fread")                                                                              \
    X(fwrite, "fwrite")                                                                            \
    X(fflush, "fflush")                                                                            \
    X(poll, "poll")                                                                                \
    X(__poll_chk, "poll")                                                                          \
    X(ppoll, "ppoll")                                                                              \
    X(select, "select")                                                                            \
    X(pselect, "pselect")                                                                          \
    X(epoll_wait, "epoll_wait")                                                                    \
    X(epoll_pwait, "epoll_pwait")                                                                  \
    X(nanosleep, "nanosleep")                                                                      \
    X(clock_nanosleep, "clock_nanosleep")                                                          \
    X(usleep, "usleep")                                                                            \
    X(sleep, "sleep")                                                                              \
    X(waitpid, "waitpid")                                                                          \
    X(wait, "wait")                                                                                \
    X(wait3, "wait3")                                                                              \
    X(wait4, "wait4")                                                                              \
    X(waitid, "waitid")                                                                            \
    X(recv, "recv")                                                                                \
    X(__recv_chk, "recv")                                                                          \
    X(recvfrom, "recvfrom")                                                                        \
    X(recvmsg, "recvmsg")                                                                          \
    X(send, "send")                                                                                \
    X(sendto, "sendto")                                                                            \
    X(sendmsg, "sendmsg")                                                                          \
    X(sendfile, "sendfile")                                                                        \
    X(sendfile64, "sendfile64")                                                                    \
    X(accept, "accept")                                                                            \
    X(accept4, "accept4")                                                                          \
    X(connect, "connect")                                                                          \
    X(pthread_mutex_lock, "pthread_mutex_lock")                                                    \
    X(pthread_mutex_trylock, "pthread_mutex_trylock")                                              \
    X(pthread_rwlock_rdlock, "pthread_rwlock_rdlock")                                              \
    X(pthread_rwlock_tryrdlock, "pthread_rwlock_tryrdlock")                                        \
    X(pthread_rwlock_wrlock, "pthread_rwlock_wrlock")                                              \
    X(pthread_rwlock_trywrlock, "pthread_rwlock_trywrlock")                                        \
    X(pthread_cond_wait, "pthread_cond_wait")                                                      \
    X(pthread_cond_timedwait, "pthread_cond_timedwait")                                            \
    X(pthread_cond_clockwait, "pthread_cond_clockwait")                                            \
    X(pthread_join, "pthread_join")                                                                \
    X(pthread_barrier_wait, "pthread_barrier_wait")                                                \
    X(sem_wait, "sem_wait")                                                                        \
    X(sem_timedwait, "sem_timedwait")                                                              \
    X(sem_clockwait, "sem_clockwait")                                                              \
    X(syscall, "futex")

enum record_os_call {
#define X(symbol, name) OS_##symbol,
    RECORD_OS_CALLS(X)
#undef X
        N_OS_CALLS
};

typedef void record_os_function(void);
extern _Atomic(record_os_function *) record_os_next[N_OS_CALLS];
extern bool record_os_traced; /* constant once the library is loaded */

/* Looks the C library's function up; NULL: it has none, or this thread is within the lookup of
 * another. */
record_os_function *record_os_find(enum record_os_call call);

static inline record_os_function *record_os_real(enum record_os_call call)
{
    record_os_function *found = atomic_load_explicit(&record_os_next[call], memory_order_relaxed);
    return found ? found : record_os_find(call);
}

/* 0: this call is not timed. */
static inline uint64_t record_os_begin(void)
{
    return record_os_traced && record_wants(MR_TRACE_OSRT) ? record_now() : 0;
}

/* Records the call if it was long enough; keeps errno. */
void record_os_end(enum record_os_call call, uint64_t start_ns, int64_t result, int64_t bytes);

/* Before _exit(), which runs no destructors. */
void record_os_leave(void);

#endif
