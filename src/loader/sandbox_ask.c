/* A worker thread's side: asking its decoder for a sample, and waiting for the answer. */
#include "loader/sandbox_private.h"

#include <string.h>
#include <sys/mman.h>

#define STOP_NS 1000000000 /* how long a sample may take once the loader stops */

/* What a large sample left is given back to the system. */
static void give_back(struct mr_sandbox *b, uint32_t i)
{
    if (b->large[i])
        madvise(b->memory + i * b->bytes + b->fields_at, b->bytes - b->fields_at, MADV_REMOVE);
    b->large[i] = false;
}

static int put_request(struct mr_worker *w, const struct mr_run_sample *s, uint64_t epoch,
                       const struct mr_bytes in[])
{
    struct mr_sandbox *b = w->ld->sandbox;
    struct mr_sandbox_call *call = mr_sandbox_call_of(b, w->id);
    uint64_t at = 0;
    call->index = s->index;
    call->epoch = epoch;
    call->position = s->position;
    call->n_in = (uint32_t)s->n_extents;
    atomic_store(&call->refused, 0);
    for (int e = 0; e < s->n_extents; e++) {
        call->in[e].n = in[e].n;
        call->in[e].at = at;
        call->in[e].has = in[e].data && s->extent[e].at.field < 0;
        if (!call->in[e].has)
            continue;
        if (in[e].n > b->in_bytes - at)
            return mr_error_set(MR_ELIMIT,
                                "%s: sample %llu: more than the %llu bytes that a "
                                "sandbox takes",
                                mr_sandbox_name_of(w->ld, s), (unsigned long long)s->index,
                                (unsigned long long)b->in_bytes);
        memcpy((unsigned char *)call + b->in_at + at, in[e].data, in[e].n);
        at = MR_MIN(mr_round_up(at + in[e].n, MR_CACHE_LINE), b->in_bytes);
    }
    b->large[w->id] = at > MR_SANDBOX_LARGE;
    return 0;
}

/* The decoder wants bytes of a file. It could change what it asks for meanwhile: a copy is used. If
 * it ends during the read, the keeper has set MR_SANDBOX_DIED, which stays. */
static void read_for_it(struct mr_worker *w, struct mr_sandbox_call *call)
{
    struct mr_sandbox *b = w->ld->sandbox;
    struct mr_file_request request;
    uint32_t reading = MR_SANDBOX_READING;
    mr_sandbox_copy(&request, &call->request, sizeof request);
    b->large[w->id] |= request.bytes > MR_SANDBOX_LARGE;
    int rc =
        mr_files_answer(w->ld->ds->files, &request, (unsigned char *)call + b->in_at, b->in_bytes);
    if (rc < 0)
        snprintf(call->text, sizeof call->text, "%s", mr_last_error());
    call->request_rc = rc;
    if (atomic_compare_exchange_strong(&call->state, &reading, MR_SANDBOX_READ))
        mr_futex_wake(&call->state, 1);
}

static bool is_awaited(uint32_t state)
{
    return state == MR_SANDBOX_ASKED || state == MR_SANDBOX_READ;
}

struct watch {
    uint64_t looked_ns, stopped_ns; /* 0: the loader does not close */
};

/* Ten times a second, whatever the decoder does: is the keeper alive, and the answer wanted? */
static int look(const struct mr_worker *w, struct watch *watch)
{
    uint64_t now = mr_time_ns();
    if (now - watch->looked_ns < MR_SANDBOX_LOOK_NS)
        return 0;
    watch->looked_ns = now;
    if (mr_sandbox_keeper_ended(w->ld->sandbox))
        return mr_sandbox_gone_error(w->ld->sandbox, MR_SANDBOX_GONE,
                                     "sandbox: its processes were killed, perhaps out of memory");
    if (!atomic_load_explicit(&w->ld->ring.stop, memory_order_relaxed))
        return 0;
    watch->stopped_ns = watch->stopped_ns ? watch->stopped_ns : now;
    return now - watch->stopped_ns > STOP_NS
               ? mr_error_set(MR_ECANCELLED, "sandbox: the loader closes")
               : 0;
}

/* Waits for what the decoder does next. Returns its state or an error. */
static int await(const struct mr_worker *w, struct mr_sandbox_call *call, struct watch *watch)
{
    uint32_t state = atomic_load(&call->state);
    for (int i = 0; i < MR_SANDBOX_SPINS && is_awaited(state); i++)
        state = atomic_load_explicit(&call->state, memory_order_acquire);
    for (; is_awaited(state); state = atomic_load(&call->state)) {
        mr_futex_wait(&call->state, state, MR_SANDBOX_LOOK_NS);
        int rc = look(w, watch);
        if (rc < 0)
            return rc;
    }
    return state <= MR_SANDBOX_DIED ? (int)state : MR_SANDBOX_IDLE;
}

/* Has the sample of the request made. Returns MR_SANDBOX_ANSWERED, MR_SANDBOX_DIED or an error. */
static int ask(struct mr_worker *w, struct mr_sandbox_call *call)
{
    struct watch watch = {mr_time_ns(), 0};
    int state;
    mr_sandbox_set_state(call, MR_SANDBOX_ASKED);
    while ((state = await(w, call, &watch)) == MR_SANDBOX_READING) {
        int rc = look(w, &watch);
        if (rc < 0)
            return rc;
        read_for_it(w, call);
    }
    if (state < 0 || state == MR_SANDBOX_ANSWERED || state == MR_SANDBOX_DIED)
        return state;
    return mr_error_set(MR_EFORMAT, "sandbox: the decoder damaged what it shares");
}

int mr_sandbox_decode(struct mr_worker *w, const struct mr_run_sample *s, uint64_t epoch,
                      const struct mr_bytes in[], struct mr_sample *out)
{
    struct mr_sandbox *b = w->ld->sandbox;
    struct mr_sandbox_call *call = mr_sandbox_call_of(b, w->id);
    int state = MR_SANDBOX_DIED;
    w->get.n_made = 1;
    give_back(b, w->id);
    for (int i = 0; i < MR_SANDBOX_TRIES && state == MR_SANDBOX_DIED; i++) {
        int rc = put_request(w, s, epoch, in);
        state = rc < 0 ? rc : ask(w, call);
    }
    if (state < 0)
        return state;
    if (state == MR_SANDBOX_DIED)
        return mr_sandbox_death_error(w, s, call);
    int rc;
    mr_sandbox_copy(&rc, &call->rc, sizeof rc);
    return rc < 0 ? mr_sandbox_answered_error(call, rc, mr_sandbox_name_of(w->ld, s))
                  : mr_sandbox_take_answer(w, s, call, out);
}
