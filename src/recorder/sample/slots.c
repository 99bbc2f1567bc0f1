/* The threads' slots, the signal that asks running threads, and what wrappers publish. */
#include "recorder/sample/sample.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>

#define N_SLOTS  1024u
#define N_PROBES 64u
#define PAGE     4096u

bool record_sampling;

static struct sample_slot slots[N_SLOTS];
static _Thread_local struct sample_slot *mine;
static _Thread_local uint32_t mine_generation;

struct sample_slot *sample_slot_of(uint32_t tid)
{
    struct sample_slot *empty = NULL;
    for (unsigned i = 0; i < N_PROBES; i++) {
        struct sample_slot *slot = &slots[(tid + i) % N_SLOTS];
        uint32_t owner = atomic_load_explicit(&slot->tid, memory_order_acquire);
        if (owner == tid)
            return slot;
        if (!owner && !empty)
            empty = slot;
    }
    unsigned none = 0;
    if (!empty)
        return NULL;
    /* Two that take it at once: the other one has no slot this time. */
    return atomic_compare_exchange_strong(&empty->tid, &none, tid) ? empty : NULL;
}

struct sample_slot *sample_slot_at(unsigned i)
{
    return i < N_SLOTS ? &slots[i] : NULL;
}

void sample_slot_free(struct sample_slot *slot)
{
    unsigned char *copy = slot->copy;
    uint32_t tid = atomic_load(&slot->tid);
    atomic_store(&slot->frame, 0);
    atomic_store(&slot->state, SAMPLE_IDLE);
    memset((char *)slot + offsetof(struct sample_slot, copy), 0,
           sizeof *slot - offsetof(struct sample_slot, copy));
    slot->copy = copy;
    atomic_compare_exchange_strong(&slot->tid, &tid, 0);
}

void sample_slots_forked(void)
{
    memset(slots, 0, sizeof slots);
    mine = NULL;
}

/* ---- memory ---- */

/* A piece a page: what comes before the first that is not there has been copied. */
size_t sample_read(uint64_t at, void *to, size_t bytes)
{
    struct iovec local = {to, bytes}, remote[SAMPLE_COPY / PAGE + 1];
    unsigned long n = 0;
    int saved = errno;
    for (size_t done = 0; done < bytes && n < sizeof remote / sizeof *remote; n++) {
        size_t piece = PAGE - (at + done) % PAGE;
        piece = piece < bytes - done ? piece : bytes - done;
        remote[n] = (struct iovec){(void *)(uintptr_t)(at + done), piece};
        done += piece;
    }
    long copied = record_syscall(SYS_process_vm_readv, (long)record_syscall(SYS_getpid), &local,
                                 1ul, remote, n, 0ul);
    errno = saved;
    return copied > 0 ? (size_t)copied : 0;
}

/* ---- the signal ---- */

#ifdef __x86_64__
static void keep_registers(struct sample_slot *slot, const ucontext_t *context)
{
    static const struct {
        uint8_t ours, theirs;
    } all[] = {{UNWIND_RBX, REG_RBX},
               {UNWIND_RBP, REG_RBP},
               {UNWIND_RSP, REG_RSP},
               {UNWIND_R12, REG_R12},
               {UNWIND_R12 + 1, REG_R13},
               {UNWIND_R12 + 2, REG_R14},
               {UNWIND_R12 + 3, REG_R15},
               {UNWIND_RIP, REG_RIP},
               {0, REG_RAX},
               {1, REG_RDX},
               {2, REG_RCX},
               {4, REG_RSI},
               {5, REG_RDI},
               {8, REG_R8},
               {9, REG_R9},
               {10, REG_R10},
               {11, REG_R11}};
    slot->registers.known = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        slot->registers.value[all[i].ours] = (uint64_t)context->uc_mcontext.gregs[all[i].theirs];
        slot->registers.known |= 1u << all[i].ours;
    }
}
#else
static void keep_registers(struct sample_slot *slot, const ucontext_t *context)
{
    (void)context;
    slot->registers.known = 0;
}
#endif

static bool is_slot(const void *at)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)slots;
    return offset < sizeof slots && offset % sizeof *slots == 0;
}

/* Those that others send are for nobody, as without us. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    struct sample_slot *slot = info->si_value.sival_ptr;
    int saved = errno;
    if (info->si_code != SI_QUEUE || !is_slot(slot) ||
        atomic_load_explicit(&slot->state, memory_order_acquire) != SAMPLE_ASKED ||
        atomic_load(&slot->tid) != (uint32_t)record_syscall(SYS_gettid))
        return;
    keep_registers(slot, context);
    slot->bytes = sample_read(slot->registers.value[UNWIND_RSP], slot->copy, SAMPLE_COPY);
    atomic_store_explicit(&slot->state, SAMPLE_ANSWERED, memory_order_release);
    errno = saved;
}

/* The C library's own: a sanitizer's would put handlers off. */
static int real_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "sigaction");
        memcpy(&real, &found, sizeof real);
    }
    return real ? real(number, action, before) : -1;
}

bool sample_signal_take(void)
{
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK},
                     before;
    sigemptyset(&action.sa_mask);
    if (real_sigaction(SIGURG, NULL, &before) != 0)
        return false;
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        return sample_signal_is_ours();
    return real_sigaction(SIGURG, &action, NULL) == 0;
}

bool sample_signal_is_ours(void)
{
    struct sigaction now;
    return real_sigaction(SIGURG, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
           now.sa_sigaction == on_signal;
}

bool sample_ask(struct sample_slot *slot)
{
    siginfo_t info = {0};
    long pid = record_syscall(SYS_getpid);
    if (!slot->copy && !(slot->copy = record_map(SAMPLE_COPY)))
        return false;
    info.si_signo = SIGURG;
    info.si_code = SI_QUEUE;
    info.si_pid = (pid_t)pid;
    info.si_value.sival_ptr = slot;
    atomic_store_explicit(&slot->state, SAMPLE_ASKED, memory_order_release);
    if (record_syscall(SYS_rt_tgsigqueueinfo, pid, (long)atomic_load(&slot->tid), (long)SIGURG,
                       &info) == 0)
        return true;
    atomic_store(&slot->state, SAMPLE_IDLE);
    return false;
}

/* ---- what wrappers publish ---- */

uintptr_t record_wait_begin(void *frame)
{
    uint32_t generation = record_generation() + 1;
    if (record_inside)
        return 0;
    if (!mine || mine_generation != generation) {
        mine = sample_slot_of(record_tid());
        mine_generation = generation;
    }
    return mine ? atomic_exchange_explicit(&mine->frame, (uintptr_t)frame, memory_order_release)
                : 0;
}

void record_wait_end(uintptr_t before)
{
    if (mine && !record_inside)
        atomic_store_explicit(&mine->frame, before, memory_order_release);
}
