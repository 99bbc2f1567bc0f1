/*
 * Stacks of Python threads: exported functions that recorder/python/_millrace_stacks.py calls
 * through ctypes, from its own thread, which samples the others.
 *
 * A stack is a frame on top of another stack, so equal beginnings are kept once.
 */
#include "recorder/record.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#define MAX_STACKS (1u << 18) /* of a process; deeper ones then end where they are known */

/* The calling thread becomes the sampler: signals are not for it, and its own calls are not
 * recorded. Returns whether this process records stacks at some time. */
RECORD_EXPORT int mr_record_sampler(void);

/* Whether samples are wanted now; outside of a capture range they are not. */
RECORD_EXPORT int mr_record_samples_wanted(void);

/* The number of this frame on top of the stack `parent` (0: none); the same only if the caller
 * remembers it. Returns `parent` when there is no room for more. */
RECORD_EXPORT uint32_t mr_record_stack(uint32_t parent, const char *function, const char *file,
                                       uint32_t line);

/* A thread was in this stack from start to end (CLOCK_MONOTONIC), seen n times, of it cpu_ns on a
 * processor. */
RECORD_EXPORT void mr_record_sample(uint32_t tid, uint32_t stack, uint64_t start_ns,
                                    uint64_t end_ns, uint64_t cpu_ns, uint32_t n);

/* Why this process has no stacks: a warning. */
RECORD_EXPORT void mr_record_no_stacks(const char *why);

int mr_record_sampler(void)
{
    sigset_t all;
    if (!record_ever_wants(MR_TRACE_STACKS))
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "millrace-stacks");
    record_inside = true;
    return 1;
}

int mr_record_samples_wanted(void)
{
    bool inside = record_inside;
    record_inside = false;
    bool wanted = record_wants(MR_TRACE_STACKS);
    record_inside = inside;
    return wanted;
}

uint32_t mr_record_stack(uint32_t parent, const char *function, const char *file, uint32_t line)
{
    static uint32_t n, generation; /* the sampler's thread is the only one */
    if (!record_start())
        return 0;
    if (generation != record_generation())
        n = 0, generation = record_generation();
    if (n == MAX_STACKS) {
        record_note("warning", MAX_STACKS,
                    "more different Python stacks than are kept: the last ones are cut");
        n++;
    }
    if (n >= MAX_STACKS)
        return parent;
    struct mr_part_stack stack = {++n, parent, record_string(function), record_string(file), line};
    record_put(MR_PART_STACK, &stack);
    return stack.id;
}

void mr_record_sample(uint32_t tid, uint32_t stack, uint64_t start_ns, uint64_t end_ns,
                      uint64_t cpu_ns, uint32_t n)
{
    struct mr_part_sample sample = {start_ns, end_ns, cpu_ns, stack, tid, n, 0};
    record_put(MR_PART_SAMPLE, &sample);
}

void mr_record_no_stacks(const char *why)
{
    record_note("no_stacks", 0, why);
}
