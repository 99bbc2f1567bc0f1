/* Which process an object belongs to: threads do not survive a fork, so most objects are of no use
 * in a child. */
#include "base/base.h"

#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t forks; /* between the first process that asked and this one */
static bool watched;

static void in_child(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch(void)
{
    watched = pthread_atfork(NULL, NULL, in_child) == 0;
}

void mr_process_note(struct mr_process *out)
{
    pthread_once(&once, watch);
    out->forks = atomic_load_explicit(&forks, memory_order_relaxed);
    out->pid = getpid();
}

bool mr_process_is(const struct mr_process *noted)
{
    if (!watched) /* no memory for the handler: ask the kernel */
        return getpid() == noted->pid;
    return atomic_load_explicit(&forks, memory_order_relaxed) == noted->forks;
}

int mr_process_check(const struct mr_process *noted, const char *what)
{
    if (mr_process_is(noted))
        return 0;
    return mr_error_set(MR_EMISUSE, "%s was opened by process %d: open one after the fork", what,
                        noted->pid);
}
