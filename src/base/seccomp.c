/* The system call filter of processes that only compute. */
#include "base/seccomp.h"

#include "base/base.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE

/* One instruction each. The low half of an argument: both processors are little-endian. */
#define AT(member)               offsetof(struct seccomp_data, member)
#define LOAD(member)             BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(member))
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), yes, no)
#define IF_BITS(bits, yes, no)   BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(bits), yes, no)
#define IF_LEAST(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(value), yes, no)
#define KEEP_BITS(bits)          BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)(bits))
#define ALLOW                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define REFUSE                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
#define KILL                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

#define HARDWARE_ADVICE          100 /* MADV_HWPOISON and such: root may take memory from all */

#define ALLOW_CALL(name)         IF_EQUAL(SYS_##name, 0, 1), ALLOW

static _Atomic int32_t *noted;

/* Only the first refused call gets here: the handler is gone by then (SA_RESETHAND). */
static void note_refused(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    atomic_store(noted, info->si_syscall + 1);
    syscall(SYS_ptrace, 0, 0, 0, 0); /* SIGSYS is blocked here: this one kills */
}

static int install_handler(_Atomic int32_t *refused)
{
    struct sigaction action = {.sa_sigaction = note_refused, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    sigset_t set;
    noted = refused;
    sigemptyset(&action.sa_mask);
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    if (sigaction(SIGSYS, &action, NULL) < 0 || sigprocmask(SIG_UNBLOCK, &set, NULL) < 0)
        return -errno;
    return 0;
}

int mr_seccomp_enter(_Atomic int32_t *refused)
{
    const struct sock_filter filter[] = {
        LOAD(arch), IF_EQUAL(ARCHITECTURE, 1, 0), KILL, LOAD(nr),
        /* memory, never executable */
        ALLOW_CALL(munmap), ALLOW_CALL(mremap), ALLOW_CALL(brk), IF_EQUAL(SYS_madvise, 0, 4),
        LOAD(args[2]), IF_LEAST(HARDWARE_ADVICE, 0, 1), REFUSE, ALLOW, IF_EQUAL(SYS_mprotect, 0, 4),
        LOAD(args[2]), IF_BITS(PROT_EXEC, 0, 1), REFUSE, ALLOW, IF_EQUAL(SYS_mmap, 0, 6),
        LOAD(args[2]), IF_BITS(PROT_EXEC, 2, 0), LOAD(args[3]), IF_BITS(MAP_ANONYMOUS, 1, 0),
        REFUSE, ALLOW,
        /* waiting and waking */
        IF_EQUAL(SYS_futex, 0, 7), LOAD(args[1]), KEEP_BITS(FUTEX_CMD_MASK),
        IF_EQUAL(FUTEX_WAIT, 3, 0), IF_EQUAL(FUTEX_WAKE, 2, 0), IF_EQUAL(FUTEX_WAIT_BITSET, 1, 0),
        REFUSE, ALLOW, ALLOW_CALL(sched_yield), ALLOW_CALL(nanosleep), ALLOW_CALL(clock_nanosleep),
        ALLOW_CALL(restart_syscall),
        /* what the C library asks for by itself */
        ALLOW_CALL(clock_gettime), ALLOW_CALL(gettimeofday), ALLOW_CALL(getpid), ALLOW_CALL(gettid),
        ALLOW_CALL(getcpu), ALLOW_CALL(sched_getaffinity), ALLOW_CALL(getrandom),
        ALLOW_CALL(sysinfo), ALLOW_CALL(sigaltstack), ALLOW_CALL(rt_sigaction),
        ALLOW_CALL(rt_sigprocmask), ALLOW_CALL(rt_sigreturn),
        /* the end: exit, and abort(), which signals this process */
        ALLOW_CALL(exit), ALLOW_CALL(exit_group), IF_EQUAL(SYS_tgkill, 0, 4), LOAD(args[0]),
        IF_EQUAL(getpid(), 1, 0), REFUSE, ALLOW, REFUSE};
    const struct sock_fprog program = {.len = MR_COUNT(filter),
                                       .filter = (struct sock_filter *)filter};
    int rc = install_handler(refused);
    if (rc < 0)
        return mr_error_errno(-rc, "seccomp: SIGSYS");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
        return mr_error_errno(errno, "seccomp: this kernel takes no system call filter");
    return 0;
}

#else

int mr_seccomp_enter(_Atomic int32_t *refused)
{
    (void)refused;
    return mr_error_set(MR_EUNSUPPORTED,
                        "seccomp: there is a filter for x86-64 and arm64, not for this processor");
}

#endif
