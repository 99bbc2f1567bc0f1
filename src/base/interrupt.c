/* Requests to cancel operations that have no handle. */
#include "base/base.h"

#include <millrace/system.h>

static _Atomic int requested; /* lock-free: set in signal handlers */
static _Thread_local int depth;
static _Thread_local const _Atomic bool *own; /* the flag that ends this thread's operations */

void mr_interrupt(int on)
{
    atomic_store(&requested, on);
}

void mr_interruptible(int on)
{
    depth += on ? 1 : -(depth > 0);
}

struct mr_interrupt_flags mr_interrupt_flags(void)
{
    return (struct mr_interrupt_flags){depth > 0 ? &requested : NULL, own};
}

bool mr_interrupt_is_set(const struct mr_interrupt_flags *flags)
{
    return (flags->all && atomic_load_explicit(flags->all, memory_order_relaxed) != 0) ||
           (flags->own && atomic_load_explicit(flags->own, memory_order_relaxed));
}

const _Atomic bool *mr_interruptible_by(const _Atomic bool *flag)
{
    const _Atomic bool *before = own;
    own = flag;
    return before;
}

bool mr_interrupted(void)
{
    struct mr_interrupt_flags flags = mr_interrupt_flags();
    return mr_interrupt_is_set(&flags);
}

int mr_interrupt_check(const char *what)
{
    return mr_interrupted()
               ? mr_error_set(MR_ECANCELLED, "%s: interrupted while it was opened or read", what)
               : 0;
}
