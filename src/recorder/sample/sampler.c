/* The sampler's thread: it looks at all others, and adds up how long each was in which stack. */
#include "recorder/sample/sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_NS 250000000ull /* of a record: a killed process loses at most this much more */
#define UNHEARD    5 /* rounds in which a thread that runs did not answer: it blocks the signal */

static struct {
    struct record_lock lock; /* held while it looks */
    bool over, asks;
    uint64_t period_ns;
    unsigned round;
} sampler;

static unsigned char copy[SAMPLE_COPY];

/* ---- what was seen ---- */

static void end(struct sample_slot *slot)
{
    struct mr_part_sample sample = {slot->start_ns,
                                    slot->end_ns,
                                    slot->cpu_ns,
                                    slot->stack,
                                    atomic_load(&slot->tid),
                                    slot->n,
                                    0};
    if (slot->n && slot->stack)
        record_put(MR_PART_SAMPLE, &sample);
    slot->start_ns = slot->end_ns;
    slot->n = 0;
    slot->cpu_ns = 0;
}

/* The time since the last look is this stack's; of that before the first one nothing is known. */
static void saw(struct sample_slot *slot, uint32_t stack, uint64_t now_ns, uint64_t cpu)
{
    if (!slot->is_known) {
        slot->is_known = true;
        slot->stack = stack;
        slot->start_ns = slot->end_ns = now_ns;
        slot->last_cpu = cpu;
        return;
    }
    if (now_ns <= slot->end_ns)
        return;
    if (slot->stack != stack || now_ns - slot->start_ns > LONGEST_NS) {
        end(slot);
        slot->stack = stack;
    }
    slot->n++;
    slot->cpu_ns += cpu - slot->last_cpu;
    slot->end_ns = now_ns;
    slot->last_cpu = cpu;
}

/* ---- a thread ---- */

/* The clock's number is made of the thread's, as the kernel does. */
static bool cpu_of(uint32_t tid, uint64_t *out)
{
    struct timespec now;
    clockid_t clock = (clockid_t)(~tid << 3 | 6);
    if (record_syscall(SYS_clock_gettime, (long)clock, &now) != 0)
        return false;
    *out = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return true;
}

static size_t read_file(uint32_t tid, const char *name, char *to, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/%s", tid, name);
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    long n = record_syscall(SYS_read, fd, to, bytes - 1);
    record_syscall(SYS_close, fd);
    to[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* In a wrapper: its frame stands where it says as long as it is the same one. */
static uint32_t stack_in_wrapper(struct sample_slot *slot, uintptr_t frame)
{
    struct unwind_stack stack = {frame, copy, sample_read(frame, copy, sizeof copy)};
    struct unwind_registers registers = {.known = 1u << UNWIND_RBP | 1u << UNWIND_RSP |
                                                  1u << UNWIND_RIP};
    if (stack.bytes < 16 || atomic_load_explicit(&slot->frame, memory_order_acquire) != frame)
        return 0;
    memcpy(&registers.value[UNWIND_RBP], copy, 8);
    memcpy(&registers.value[UNWIND_RIP], copy + 8, 8);
    registers.value[UNWIND_RSP] = frame + 16;
    return sample_walk(&stack, registers, true);
}

/* Waiting elsewhere: the kernel says where. [out] runs: it does not wait. */
static uint32_t stack_in_system(uint32_t tid, uint64_t cpu, bool *runs)
{
    char text[256];
    long number;
    uint64_t after;
    struct unwind_registers registers = {.known = 1u << UNWIND_RSP | 1u << UNWIND_RIP};
    *runs = true;
    if (!read_file(tid, "syscall", text, sizeof text))
        return 0;
    char *rsp = strrchr(text, ' '), *number_end;
    if (!rsp)
        return 0; /* "running" */
    char *rip = rsp;
    *rip = 0;
    rsp = strrchr(text, ' ');
    number = strtol(text, &number_end, 0);
    if (!rsp || number_end == text || number < 0)
        return 0; /* it waits for a page: its handler runs when that is there */
    registers.value[UNWIND_RSP] = strtoull(rsp + 1, NULL, 0);
    registers.value[UNWIND_RIP] = strtoull(rip + 1, NULL, 0);
    struct unwind_stack stack = {registers.value[UNWIND_RSP], copy,
                                 sample_read(registers.value[UNWIND_RSP], copy, sizeof copy)};
    if (!cpu_of(tid, &after) || after != cpu)
        return 0; /* it moved meanwhile */
    *runs = false;
    return sample_walk(&stack, registers, false);
}

static void ask(struct sample_slot *slot, uint64_t now_ns, uint64_t cpu)
{
    if (atomic_load(&slot->state) == SAMPLE_ASKED) {
        if (++slot->n_unanswered > UNHEARD && cpu != slot->last_cpu)
            saw(slot, sample_named("[signals blocked]"), now_ns, cpu);
        return;
    }
    slot->asked_ns = now_ns;
    slot->asked_cpu = cpu;
    if (sampler.asks)
        sample_ask(slot);
}

static void take_answer(struct sample_slot *slot)
{
    if (atomic_load_explicit(&slot->state, memory_order_acquire) != SAMPLE_ANSWERED)
        return;
    struct unwind_stack stack = {slot->registers.value[UNWIND_RSP], slot->copy, slot->bytes};
    saw(slot, sample_walk(&stack, slot->registers, false), slot->asked_ns, slot->asked_cpu);
    slot->n_unanswered = 0;
    atomic_store_explicit(&slot->state, SAMPLE_IDLE, memory_order_release);
}

static void look_at(struct sample_slot *slot, uint32_t tid)
{
    uint64_t cpu, now_ns = record_now();
    bool runs = false;
    take_answer(slot);
    if (!cpu_of(tid, &cpu))
        return;
    if (slot->is_known && slot->waits && cpu == slot->last_cpu) {
        saw(slot, slot->stack, now_ns, cpu);
        return;
    }
    uintptr_t frame = atomic_load_explicit(&slot->frame, memory_order_acquire);
    uint32_t stack = frame ? stack_in_wrapper(slot, frame) : stack_in_system(tid, cpu, &runs);
    slot->waits = !runs && stack;
    if (slot->waits)
        saw(slot, stack, now_ns, cpu);
    else
        ask(slot, now_ns, cpu);
}

/* ---- all threads ---- */

/* Ours have names of their own. */
static bool is_ours(uint32_t tid)
{
    char name[32];
    return read_file(tid, "comm", name, sizeof name) && strncmp(name, "millrace-", 9) == 0;
}

static void look_at_number(uint32_t tid)
{
    struct sample_slot *slot = tid ? sample_slot_of(tid) : NULL;
    if (!slot)
        return;
    if (!slot->is_ours && slot->n_named < 2) { /* it may just be about to take its name */
        slot->is_ours = is_ours(tid);
        slot->n_named++;
    }
    slot->round = sampler.round;
    if (!slot->is_ours)
        look_at(slot, tid);
}

/* Of threads that ended, or of all: of the former some rounds late. */
static void end_spans(bool all)
{
    struct sample_slot *slot;
    for (unsigned i = 0; (slot = sample_slot_at(i)); i++) {
        uint32_t tid = atomic_load(&slot->tid);
        uint64_t cpu;
        if (tid && !slot->round && !cpu_of(tid, &cpu)) /* it ended before it was looked at */
            sample_slot_free(slot);
        if (!tid || !slot->round || (slot->round == sampler.round && !all))
            continue;
        end(slot);
        if (slot->round != sampler.round)
            sample_slot_free(slot);
        else
            slot->is_known = slot->waits = false;
    }
}

static void look(void)
{
    struct {
        uint64_t inode;
        int64_t offset;
        unsigned short bytes;
        unsigned char type;
        char name[];
    } * entry;
    static char entries[8192] __attribute__((aligned(8)));
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, "/proc/self/task",
                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    sampler.round += 1 + (sampler.round == UINT32_MAX); /* 0: never */
    sampler.asks = sample_signal_is_ours();
    for (long n; (n = record_syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;)
        for (long at = 0; at < n; at += entry->bytes) {
            entry = (void *)(entries + at);
            look_at_number((uint32_t)strtoul(entry->name, NULL, 10));
        }
    record_syscall(SYS_close, fd);
    if (sampler.round % 16 == 0)
        end_spans(false);
}

static bool wanted(void)
{
    record_inside = false;
    bool is = record_wants(MR_TRACE_C_STACKS);
    record_inside = true;
    return is;
}

/* At even distances; after a look that took longer, at once. */
static uint64_t sleep_until(uint64_t next_ns)
{
    struct timespec until = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
    while (record_syscall(SYS_clock_nanosleep, (long)CLOCK_MONOTONIC, (long)TIMER_ABSTIME, &until,
                          0L) != 0 &&
           errno == EINTR)
        ;
    uint64_t now = record_now();
    return (next_ns > now ? next_ns : now) + sampler.period_ns;
}

static void *sample_on(void *unused)
{
    (void)unused;
    record_inside = true;
    prctl(PR_SET_NAME, "millrace-sample");
    prctl(PR_SET_TIMERSLACK, 1000ul);
    for (uint64_t next_ns = record_now() + sampler.period_ns;;) {
        next_ns = sleep_until(next_ns);
        record_lock(&sampler.lock);
        if (sampler.over) {
            record_unlock(&sampler.lock);
            return NULL;
        }
        if (wanted())
            look();
        else
            end_spans(true);
        record_unlock(&sampler.lock);
    }
}

static void finish(void)
{
    record_lock(&sampler.lock);
    if (!sampler.over)
        end_spans(true);
    sampler.over = true;
    record_unlock(&sampler.lock);
}

static void begin(void)
{
    if (!sample_signal_take())
        record_note("warning", 0, "running threads have no C stacks: SIGURG is not free");
    if (!record_spawn(sample_on))
        record_note("no_stacks", 0, "no thread could be started that samples");
}

/* Runs after the handler of record.c, which was registered before. */
static void forked(void)
{
    memset(&sampler.lock, 0, sizeof sampler.lock);
    sampler.over = false;
    sample_slots_forked();
    sample_modules_forked();
    sample_walk_forked();
    begin();
}

#ifdef __x86_64__ /* whose registers slots.c reads */
#define SAMPLES 1
#else
#define SAMPLES 0
#endif

/* Runs after that of record.c: the linker keeps the order of the files. */
__attribute__((constructor)) static void loaded(void)
{
    const char *hz = getenv("MILLRACE_RECORD_SAMPLE_HZ");
    uint64_t rate = hz ? strtoull(hz, NULL, 10) : 0;
    if (!rate || !(record_config.traced & MR_TRACE_C_STACKS))
        return;
    if (!SAMPLES) {
        record_note("no_stacks", 0, "C stacks are sampled on x86-64 only");
        return;
    }
    bool inside = record_inside;
    record_inside = true;
    sampler.period_ns = 1000000000ull / rate;
    record_sampling = true;
    record_on_finish(finish);
    pthread_atfork(NULL, NULL, forked);
    begin();
    record_inside = inside;
}
