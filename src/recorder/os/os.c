/* What the wrappers of OS calls share: the C library's functions, the threshold, the record. */
#include "recorder/os/os.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEFAULT_NS 1000
/* The driver makes thousands of short ones at its start. */
#define IOCTL_NS   20000

_Atomic(record_os_function *) record_os_next[N_OS_CALLS];
bool record_os_traced;

static uint64_t shortest_ns = DEFAULT_NS;
static pid_t own_pid; /* not that of a vfork()ed child, which runs in our memory */
static _Thread_local bool finding;

static const char *const symbols[N_OS_CALLS] = {
#define X(symbol, name) [OS_##symbol] = #symbol,
    RECORD_OS_CALLS(X)
#undef X
};

static const char *const names[N_OS_CALLS] = {
#define X(symbol, name) [OS_##symbol] = name,
    RECORD_OS_CALLS(X)
#undef X
};

/* Of functions with two versions dlsym() gives the older one, for condition variables that have
 * another layout. */
static void *look_up(enum record_os_call call)
{
    void *symbol = NULL;
#ifdef __x86_64__
    if (call == OS_pthread_cond_wait || call == OS_pthread_cond_timedwait)
        symbol = dlvsym(RTLD_NEXT, symbols[call], "GLIBC_2.3.2");
#endif
    return symbol ? symbol : dlsym(RTLD_NEXT, symbols[call]);
}

record_os_function *record_os_find(enum record_os_call call)
{
    record_os_function *function = NULL;
    if (finding)
        return NULL;
    int saved = errno;
    finding = true;
    void *symbol = look_up(call);
    finding = false;
    errno = saved;
    memcpy(&function, &symbol, sizeof function);
    atomic_store_explicit(&record_os_next[call], function, memory_order_relaxed);
    return function;
}

void record_os_end(enum record_os_call call, uint64_t start_ns, int64_t result, int64_t bytes)
{
    int saved = errno;
    uint64_t now = record_now();
    if (now - start_ns >= (call == OS_ioctl && shortest_ns < IOCTL_NS ? IOCTL_NS : shortest_ns) &&
        !record_is_busy() && (pid_t)record_syscall(SYS_getpid) == own_pid) {
        struct mr_part_os record = {.start_ns = start_ns,
                                    .end_ns = now,
                                    .result = result,
                                    .bytes = bytes > 0 ? (uint64_t)bytes : 0,
                                    .name = record_string(names[call]),
                                    .tid = record_tid()};
        record_put(MR_PART_OS, &record);
    }
    errno = saved;
}

/* The parent's pages are not the child's: of a vfork()ed child nothing is written. */
void record_os_leave(void)
{
    if (!record_is_busy() && (pid_t)record_syscall(SYS_getpid) == own_pid)
        record_finish_at_once();
}

static void forked(void)
{
    own_pid = (pid_t)record_syscall(SYS_getpid);
}

/* All are looked up now: dlsym() may not be called in a signal handler. Those that an older C
 * library lacks stay NULL. */
__attribute__((constructor)) static void loaded(void)
{
    const char *folder = getenv("MILLRACE_RECORD_DIR"), *traced = getenv("MILLRACE_RECORD_TRACE");
    const char *shortest = getenv("MILLRACE_RECORD_OSRT_NS");
    for (unsigned i = 0; i < N_OS_CALLS; i++)
        record_os_find(i);
    if (!folder || folder[0] != '/' || !traced ||
        !(strtoul(traced, NULL, 10) & (MR_TRACE_OSRT | MR_TRACE_C_STACKS)))
        return;
    if (shortest && shortest[0])
        shortest_ns = strtoull(shortest, NULL, 10);
    own_pid = (pid_t)record_syscall(SYS_getpid);
    pthread_atfork(NULL, NULL, forked);
    record_os_traced = strtoul(traced, NULL, 10) & MR_TRACE_OSRT;
}
