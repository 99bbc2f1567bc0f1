/*
 * Sampled stacks of all threads of the process: `millrace profile --sample process-tree`.
 *
 * A thread of ours looks at the others at a fixed rate. Of one that waits it reads the stack from
 * outside, so no call is interrupted: the wrapper of the call that it is in (recorder/os) has
 * published its frame, or the kernel says in /proc/self/task/TID/syscall where it stands. One that
 * runs is sent SIGURG, which programs may get at any time and which does nothing by default, so it
 * is harmless when it comes late, as after an exec(); its handler copies registers and stack. One
 * whose CPU clock stands still has not moved. The sampler then goes from frame to frame in the copy
 * (unwind.h), and records each stack as modules and addresses, which get names when the recording
 * is made. All memory that another thread may release is read by process_vm_readv().
 */
#ifndef MR_RECORDER_SAMPLE_SAMPLE_H
#define MR_RECORDER_SAMPLE_SAMPLE_H

#include "recorder/private.h"
#include "recorder/sample/unwind.h"

#define SAMPLE_COPY (64 * 1024) /* of a stack, from its innermost byte on */

enum { SAMPLE_IDLE, SAMPLE_ASKED, SAMPLE_ANSWERED };

/* A thread. */
struct sample_slot {
    atomic_uint tid;                   /* 0: free */
    _Atomic(uintptr_t) frame;          /* of the wrapper that it is in; 0: in none */
    atomic_uint state;                 /* ASKED by the sampler, ANSWERED by the signal's handler */
    unsigned char *copy;               /* SAMPLE_COPY bytes, from the first question on */
    struct unwind_registers registers; /* the answer, with the stack that `copy` holds */
    size_t bytes;
    /* what follows is the sampler's */
    unsigned round; /* in which it was last there */
    bool is_ours, is_known, waits;
    unsigned n_named; /* how often its name was looked at */
    uint32_t n_unanswered;
    uint64_t asked_ns, asked_cpu;
    uint32_t stack, n; /* its present stack, seen n times */
    uint64_t start_ns, end_ns, cpu_ns, last_cpu;
};

/* ---- slots.c ---- */

extern bool record_sampling; /* constant once the library is loaded, or set before threads are */

/* The thread's, or a new one; NULL: there are too many. */
struct sample_slot *sample_slot_of(uint32_t tid);
/* i counts up from 0; NULL: no more. It may be a free one. */
struct sample_slot *sample_slot_at(unsigned i);
void sample_slot_free(struct sample_slot *slot);
void sample_slots_forked(void);

/* Takes SIGURG; false: not possible. */
bool sample_signal_take(void);
bool sample_signal_is_ours(void);
/* Asks a running thread; false: it can't be. */
bool sample_ask(struct sample_slot *slot);

/* Copies memory of this process that may not be there; the bytes up to the first that is not. */
size_t sample_read(uint64_t at, void *to, size_t bytes);

/* The thread is about to wait in a wrapper with this frame address. Returns what to give to
 * record_wait_leave(). */
uintptr_t record_wait_begin(void *frame);
void record_wait_end(uintptr_t before);

static inline uintptr_t record_wait_enter(void *frame)
{
    return record_sampling ? record_wait_begin(frame) : 0;
}

static inline void record_wait_leave(uintptr_t before)
{
    if (record_sampling)
        record_wait_end(before);
}

/* ---- modules.c: the sampler's thread alone ---- */

struct sample_module {
    struct unwind_module elf;
    char *path;
    char build_id[41];
    uint64_t device, inode;
    bool has_elf;
};

/* The module whose code stands at this address of the process; NULL: none, as of code that was
 * made at run time. [out] address: as the module's symbols count. */
const struct sample_module *sample_module_at(uint64_t at, uint64_t *address);
void sample_modules_forked(void);

/* ---- walk.c: the sampler's thread alone ---- */

/* The number of the stack, as parts have it; 0: it can't be told. caller: registers are those of a
 * frame that has called, not the innermost one's. */
uint32_t sample_walk(const struct unwind_stack *stack, struct unwind_registers registers,
                     bool caller);
/* A stack that is only a name. */
uint32_t sample_named(const char *name);
void sample_walk_forked(void);

#endif
