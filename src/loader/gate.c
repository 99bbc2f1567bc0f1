/* Who may call a loader, and closing it while others are in a call. */
#include "loader/engine.h"

static _Thread_local const struct mr_loader *works_for;

void mr_gate_worker(const struct mr_loader *ld)
{
    works_for = ld;
}

void mr_gate_init(struct mr_gate *gate)
{
    mr_process_note(&gate->process);
    atomic_store(&gate->n_inside, 1);
    sem_init(&gate->empty, 0, 0); /* cannot fail with these arguments */
}

void mr_gate_destroy(struct mr_gate *gate)
{
    sem_destroy(&gate->empty);
}

static int check_caller(const struct mr_loader *ld, const char *call)
{
    if (!ld)
        return mr_error_null(call, "a loader");
    int rc = mr_process_check(&ld->gate.process, "this loader");
    if (rc < 0)
        return rc;
    if (works_for == ld)
        return mr_error_set(MR_EMISUSE,
                            "%s: called from a callback of this loader, which waits for the "
                            "callback: call it from another thread",
                            call);
    return 0;
}

int mr_gate_enter(struct mr_loader *ld, const char *call)
{
    int rc = check_caller(ld, call);
    if (rc < 0)
        return rc;
    atomic_fetch_add(&ld->gate.n_inside, 1);
    if (!atomic_load(&ld->gate.closing))
        return 0;
    mr_gate_leave(ld);
    return mr_error_set(MR_ECANCELLED, "%s: the loader is being closed", call);
}

void mr_gate_leave(struct mr_loader *ld)
{
    if (atomic_fetch_sub(&ld->gate.n_inside, 1) == 1)
        sem_post(&ld->gate.empty);
}

int mr_gate_close(struct mr_loader *ld)
{
    int rc = check_caller(ld, "mr_loader_close");
    if (rc < 0)
        return rc;
    atomic_store(&ld->gate.closing, true);
    mr_ring_cancel(&ld->ring);
    mr_gate_leave(ld);                    /* the loader's own: the last one out posts */
    while (sem_wait(&ld->gate.empty) < 0) /* a signal was handled */
        ;
    return 0;
}
