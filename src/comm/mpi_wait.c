/*
 * Waiting with a time limit, and the roll call after it.
 *
 * A rank that waits too long tells all others that it is here, and counts for a moment who answers.
 * Those that wait in a collective call hear it and do the same, so all that are alive come to the
 * same list of those that are missing: ranks that stand still, died, or do something else. What
 * these did last the next rank knows: each rank tells it whenever it begins something else.
 */
#include "comm/mpi.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROLL_CALL_NS 1500000000u
#define SPINS        400   /* before sleeping between looks */
#define NAP_NS       50000 /* then */
#define MOST_TOLD    3     /* missing ranks */

static struct mr_mpi_ranks *ranks(const struct mr_comm *c)
{
    return c->impl;
}

int mr_mpi_failed(struct mr_comm *c, int code, const char *call)
{
    char text[8192] = "";
    int bytes = 0;
    ranks(c)->mpi.Error_string(code, text, &bytes);
    text[strcspn(text, "\n")] = '\0';
    c->speaker = c->rank; /* the others may not have it */
    return mr_error_set(MR_EPEER, "comm: %s %" PRIu64 ": %s: %.300s", c->call, c->sequence, call,
                        text);
}

/* Is it done? A slot that is not open counts as done. */
static bool is_done(struct mr_mpi_ranks *r, struct mr_mpi_slot *slot)
{
    int done = 0;
    if (!slot->open)
        return true;
    if (r->mpi.Test(&slot->request, &done, r->mpi.status_ignore) != 0)
        return false;
    slot->open = !done;
    return done != 0;
}

static void receive(struct mr_mpi_ranks *r, struct mr_mpi_slot *slot, void *into, size_t bytes,
                    int from, int tag)
{
    slot->request = 0;
    slot->open =
        r->mpi.Irecv(into, (int)bytes, r->mpi.byte, from, tag, r->mpi.world, &slot->request) == 0;
}

static void listen_phase(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    receive(r, &r->phase_in, &r->heard, sizeof r->heard, (int)((c->rank + c->world - 1) % c->world),
            MR_MPI_TAG_PHASE);
}

static void listen_here(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    receive(r, &r->here_in, &r->here, sizeof r->here, r->mpi.any_source, MR_MPI_TAG_HERE);
}

int mr_mpi_listen(struct mr_comm *c)
{
    if (c->world < 2)
        return 0;
    listen_phase(c);
    listen_here(c);
    return ranks(c)->phase_in.open && ranks(c)->here_in.open
               ? 0
               : mr_error_set(MR_EPEER, "comm: MPI_Irecv failed");
}

bool mr_mpi_deaf(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    struct mr_mpi_slot *const slots[] = {&r->phase_in, &r->here_in};
    for (size_t i = 0; i < MR_COUNT(slots); i++) {
        if (!slots[i]->open)
            continue;
        r->mpi.Cancel(&slots[i]->request);
        for (int k = 0; k < 1000 && !is_done(r, slots[i]); k++)
            sched_yield();
    }
    return !r->phase_in.open && !r->here_in.open && is_done(r, &r->phase_out);
}

void mr_mpi_poll_phases(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    while (r->phase_in.open && is_done(r, &r->phase_in)) {
        r->before = r->heard;
        r->before_ns = mr_time_ns();
        listen_phase(c);
    }
    if (!r->next[0] || !is_done(r, &r->phase_out))
        return;
    memcpy(r->said.what, r->next, sizeof r->said.what);
    r->next[0] = '\0';
    r->phase_out.request = 0;
    r->phase_out.open =
        r->mpi.Isend(&r->said, (int)sizeof r->said, r->mpi.byte, (int)((c->rank + 1) % c->world),
                     MR_MPI_TAG_PHASE, r->mpi.world, &r->phase_out.request) == 0;
}

/* Takes one answer. Returns whether there was one. */
static bool hear(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    if (!r->here_in.open || !is_done(r, &r->here_in))
        return false;
    if (r->here.rank < c->world) {
        r->answers[r->here.rank] = r->here;
        r->answered[r->here.rank] = true;
    }
    listen_here(c);
    return true;
}

static void tell_all(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    struct mr_mpi_here *mine = &r->answers[c->rank];
    *mine = (struct mr_mpi_here){.rank = c->rank,
                                 .peer = c->peer,
                                 .sequence = c->sequence,
                                 .before_age_ns =
                                     r->before_ns ? mr_time_ns() - r->before_ns : UINT64_MAX,
                                 .before = r->before};
    r->answered[c->rank] = true;
    mr_mpi_handle ignored;
    for (uint32_t to = 0; to < c->world; to++)
        if (to != c->rank) /* small: MPI has a copy; nobody waits for these requests */
            r->mpi.Isend(mine, (int)sizeof *mine, r->mpi.byte, (int)to, MR_MPI_TAG_HERE,
                         r->mpi.world, &ignored);
}

static void nap(uint64_t ns)
{
    const struct timespec t = {0, (long)ns};
    nanosleep(&t, NULL);
}

static void tell_missing(const struct mr_comm *c, FILE *to, uint32_t missing)
{
    const struct mr_mpi_ranks *r = ranks(c);
    const uint32_t after = (missing + 1) % c->world;
    const struct mr_mpi_here *witness = r->answered[after] ? &r->answers[after] : NULL;
    fprintf(to, "rank %u (%s) did not come", missing, r->node[missing]);
    if (!witness || witness->before_age_ns == UINT64_MAX)
        fprintf(to, "; what it did last is not known");
    else
        fprintf(to, "; last report, %.1f s ago: %s", (double)witness->before_age_ns * 1e-9,
                witness->before.what);
}

/* Does one that answered wait for this rank? In a collective call it waits for all. */
static bool is_awaited(const struct mr_comm *c, uint32_t rank)
{
    const struct mr_mpi_ranks *r = ranks(c);
    for (uint32_t i = 0; i < c->world; i++)
        if (r->answered[i] && (r->answers[i].peer == MR_COMM_ALL || r->answers[i].peer == rank))
            return true;
    return false;
}

/* All that somebody waits for answered: which are in another call, or came late? */
static void tell_late(const struct mr_comm *c, FILE *to, bool called)
{
    const struct mr_mpi_ranks *r = ranks(c);
    uint32_t n = 0;
    if (c->peer != MR_COMM_ALL) {
        fprintf(to, "rank %u (%s) is there, but in another call", c->peer, r->node[c->peer]);
        return;
    }
    for (uint32_t i = 0; i < c->world; i++)
        if (r->answered[i] && r->answers[i].sequence != c->sequence && n++ < MOST_TOLD)
            fprintf(to, "%srank %u (%s) is in call %" PRIu64, n > 1 ? "; " : "", i, r->node[i],
                    r->answers[i].sequence);
    if (n == 0)
        fputs(called ? "other ranks gave up waiting before this one came"
                     : "all ranks came in the end: the time limit is short, or messages are lost",
              to);
}

/* The list of those that are missing, as the error. */
static int say_missing(struct mr_comm *c, double seconds, bool called)
{
    const struct mr_mpi_ranks *r = ranks(c);
    char *text = NULL;
    size_t bytes;
    uint32_t n = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return mr_error_set(MR_EPEER, "comm: a rank did not come within the time limit");
    c->speaker = UINT32_MAX;
    for (uint32_t i = 0; i < c->world; i++) {
        if (r->answered[i]) {
            c->speaker = MR_MIN(c->speaker, i);
            continue;
        }
        if (!is_awaited(c, i) || n++ >= MOST_TOLD)
            continue;
        if (n > 1)
            fputs("; ", to);
        tell_missing(c, to, i);
    }
    if (n == 0)
        tell_late(c, to, called);
    if (n > MOST_TOLD)
        fprintf(to, "; %u ranks in all", n);
    fclose(to);
    char call[64];
    if (c->peer == MR_COMM_ALL)
        snprintf(call, sizeof call, "%s (call %" PRIu64 ")", c->call, c->sequence);
    else
        snprintf(call, sizeof call, "%s with rank %u", c->call, c->peer);
    int rc = mr_error_set(MR_EPEER, "comm: %s did not end in %.1f s: %s", call, seconds,
                          text ? text : "");
    free(text);
    return rc;
}

/* called: another rank's time limit passed, not this one's. */
static int roll_call(struct mr_comm *c, bool called)
{
    struct mr_mpi_ranks *r = ranks(c);
    double seconds = (double)(mr_time_ns() - c->call_ns) * 1e-9;
    const uint64_t until = mr_time_ns() + ROLL_CALL_NS;
    mr_mpi_poll_phases(c);
    tell_all(c);
    while (mr_time_ns() < until) {
        uint32_t n = 0;
        while (hear(c))
            ;
        for (uint32_t i = 0; i < c->world; i++)
            n += r->answered[i];
        if (n == c->world)
            break;
        nap(NAP_NS);
    }
    return say_missing(c, seconds, called);
}

int mr_mpi_wait(struct mr_comm *c, int code, mr_mpi_handle *request)
{
    struct mr_mpi_ranks *r = ranks(c);
    int done = 0;
    if (code != 0)
        return mr_mpi_failed(c, code, "MPI");
    for (uint64_t i = 0; !done; i++) {
        code = r->mpi.Test(request, &done, r->mpi.status_ignore);
        if (code != 0)
            return mr_mpi_failed(c, code, "MPI_Test");
        if (done)
            break;
        if (i < SPINS) {
            sched_yield();
            continue;
        }
        mr_mpi_poll_phases(c);
        bool called = hear(c);
        if (called || mr_time_ns() - c->call_ns > c->opts.timeout_ns)
            return roll_call(c, called);
        nap(NAP_NS);
    }
    return 0;
}
