/*
 * By MPI: sums of which each rank gets a part, parts that all get, and messages between two ranks.
 *
 * In a world that is a power of two sums go by halves (mr_comm_half_of()), which is the tree; in
 * another one around a ring. Parts go around a ring in any world.
 */
#include "comm/mpi.h"
#include "kernels/sum/sum.h"

#include <inttypes.h>
#include <stdlib.h>

static struct mr_mpi_ranks *ranks(const struct mr_comm *c)
{
    return c->impl;
}

static int make_room(struct mr_mpi_ranks *r, uint64_t bytes)
{
    if (bytes <= r->room_bytes)
        return 0;
    void *room = realloc(r->room, bytes);
    if (!room)
        return mr_error_nomem("comm", bytes);
    r->room = room;
    r->room_bytes = bytes;
    return 0;
}

/* Bytes, at most what an int counts. */
static int exchange(struct mr_comm *c, const struct mr_mpi_swap *s, uint64_t give, uint64_t keep)
{
    const struct mr_mpi *m = &ranks(c)->mpi;
    mr_mpi_handle in = 0, out = 0;
    int code = 0;
    if (keep)
        code = m->Irecv(s->keep, (int)keep, m->byte, (int)s->from, MR_MPI_TAG_DATA, m->world, &in);
    if (code == 0 && give)
        code = m->Isend(s->give, (int)give, m->byte, (int)s->to, MR_MPI_TAG_DATA, m->world, &out);
    if (code != 0)
        return mr_mpi_failed(c, code, "MPI");
    int rc = keep ? mr_mpi_wait(c, 0, &in) : 0;
    return rc < 0 || !give ? rc : mr_mpi_wait(c, 0, &out);
}

/* The part of n elements that is in the chunk from `at` on. */
static uint64_t chunk(uint64_t n, uint64_t at)
{
    return at < n ? MR_MIN(n - at, MR_MPI_CHUNK) : 0;
}

static int add_chunk(struct mr_comm *c, const struct mr_mpi_swap *s, enum mr_dtype dtype,
                     enum mr_dtype wire)
{
    const bool low = wire != dtype;
    const uint64_t size = mr_dtype_size(wire);
    struct mr_mpi_swap moved = *s;
    moved.keep = ranks(c)->room;
    if (low) { /* behind what comes */
        moved.give = moved.keep + s->n_keep * size;
        const struct mr_sum_cast cast = {
            .to = moved.give, .from = s->give, .count = s->n_give, .to_dtype = MR_BF16};
        mr_sum_kernel[MR_SUM_KERNEL_cast].run(&cast);
    }
    int rc = exchange(c, &moved, s->n_give * size, s->n_keep * size);
    if (rc < 0)
        return rc;
    const struct mr_sum_add add = {.to = s->keep,
                                   .from = moved.keep,
                                   .count = s->n_keep,
                                   .dtype = dtype,
                                   .from_dtype = wire,
                                   .round = low};
    mr_sum_kernel[MR_SUM_KERNEL_add].run(&add);
    return 0;
}

int mr_mpi_swap_and_add(struct mr_comm *c, const struct mr_mpi_swap *swap, enum mr_dtype dtype,
                        enum mr_dtype wire)
{
    const uint64_t size = mr_dtype_size(dtype), n = MR_MAX(swap->n_give, swap->n_keep);
    int rc = make_room(ranks(c), (chunk(swap->n_keep, 0) + chunk(swap->n_give, 0)) * size);
    for (uint64_t at = 0; rc == 0 && at < n; at += MR_MPI_CHUNK) {
        const struct mr_mpi_swap part = {swap->to,
                                         swap->from,
                                         swap->give + at * size,
                                         swap->keep + at * size,
                                         chunk(swap->n_give, at),
                                         chunk(swap->n_keep, at)};
        rc = add_chunk(c, &part, dtype, wire);
    }
    return rc;
}

/* ---- parts ---- */

static int scatter_by_halves(struct mr_comm *c, char *data, const struct mr_comm_parts *p)
{
    const uint64_t size = mr_dtype_size(p->dtype);
    for (uint32_t h = c->world / 2; h >= 1; h /= 2) {
        const struct mr_comm_half half = mr_comm_half_of(c, p, h);
        const struct mr_mpi_swap swap = {
            half.partner, half.partner, data + half.give * size, data + half.keep * size,
            half.n_give,  half.n_keep};
        int rc = mr_mpi_swap_and_add(c, &swap, p->dtype, p->wire);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What goes to the next rank, and comes from the one before: the parts of `give` and `keep`. */
static struct mr_mpi_swap ring(const struct mr_comm *c, char *data, const struct mr_comm_parts *p,
                               uint32_t give, uint32_t keep)
{
    const uint64_t size = mr_dtype_size(p->dtype);
    return (struct mr_mpi_swap){(c->rank + 1) % c->world,     (c->rank + c->world - 1) % c->world,
                                data + p->first[give] * size, data + p->first[keep] * size,
                                mr_comm_part_length(p, give), mr_comm_part_length(p, keep)};
}

/* The rank `back` before this one. */
static uint32_t before(const struct mr_comm *c, uint32_t back)
{
    return (c->rank + 2 * c->world - back) % c->world;
}

int mr_mpi_scatter(struct mr_comm *c, void *data, const struct mr_comm_parts *p)
{
    if (mr_comm_is_power_of_two(c->world))
        return scatter_by_halves(c, data, p);
    for (uint32_t step = 1; step < c->world; step++) {
        const struct mr_mpi_swap swap = ring(c, data, p, before(c, step), before(c, step + 1));
        int rc = mr_mpi_swap_and_add(c, &swap, p->dtype, p->wire);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_mpi_share(struct mr_comm *c, void *data, const struct mr_comm_parts *p)
{
    const uint64_t size = mr_dtype_size(p->dtype);
    for (uint32_t step = 0; step + 1 < c->world; step++) {
        const struct mr_mpi_swap swap = ring(c, data, p, before(c, step), before(c, step + 1));
        const uint64_t n = MR_MAX(swap.n_give, swap.n_keep);
        for (uint64_t at = 0; at < n; at += MR_MPI_CHUNK) {
            struct mr_mpi_swap part = swap;
            part.give += at * size;
            part.keep += at * size;
            int rc =
                exchange(c, &part, chunk(swap.n_give, at) * size, chunk(swap.n_keep, at) * size);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* ---- from one rank to another ---- */

#define MESSAGE_MOST (1ull << 30) /* bytes of one MPI message */

static uint64_t piece(uint64_t bytes, uint64_t at)
{
    return MR_MIN(bytes - at, MESSAGE_MOST);
}

/* What goes: its length, and the pieces behind it. None waits for what comes: the other rank may
 * need them first. */
static int begin_out(struct mr_comm *c, const struct mr_comm_message *m, mr_mpi_handle *requests)
{
    const struct mr_mpi *mpi = &ranks(c)->mpi;
    uint64_t *length = &ranks(c)->length[0];
    *length = m->out_bytes;
    int code = mpi->Isend(length, sizeof *length, mpi->byte, (int)m->to, MR_MPI_TAG_LENGTH,
                          mpi->world, requests++);
    for (uint64_t at = 0; code == 0 && at < m->out_bytes; at += MESSAGE_MOST)
        code = mpi->Isend((const char *)m->out + at, (int)piece(m->out_bytes, at), mpi->byte,
                          (int)m->to, MR_MPI_TAG_MESSAGE, mpi->world, requests++);
    return code == 0 ? 0 : mr_mpi_failed(c, code, "MPI");
}

static int receive(struct mr_comm *c, const struct mr_comm_message *m, void *to, uint64_t bytes,
                   int tag)
{
    const struct mr_mpi *mpi = &ranks(c)->mpi;
    mr_mpi_handle request = 0;
    int code = mpi->Irecv(to, (int)bytes, mpi->byte, (int)m->from, tag, mpi->world, &request);
    return mr_mpi_wait(c, code, &request);
}

static int receive_all(struct mr_comm *c, const struct mr_comm_message *m)
{
    uint64_t *length = &ranks(c)->length[1];
    c->peer = m->from;
    int rc = receive(c, m, length, sizeof *length, MR_MPI_TAG_LENGTH);
    if (rc < 0)
        return rc;
    if (*length != m->in_bytes) {
        c->speaker = c->rank; /* the other rank does not have it */
        return mr_error_set(MR_EPEER,
                            "comm: rank %u sends %" PRIu64 " bytes to rank %u, which expects "
                            "%" PRIu64,
                            m->from, *length, c->rank, m->in_bytes);
    }
    for (uint64_t at = 0; rc == 0 && at < m->in_bytes; at += MESSAGE_MOST)
        rc = receive(c, m, (char *)m->in + at, piece(m->in_bytes, at), MR_MPI_TAG_MESSAGE);
    return rc;
}

int mr_mpi_pass(struct mr_comm *c, const struct mr_comm_message *m)
{
    const uint64_t n = m->out_bytes ? 1 + (m->out_bytes + MESSAGE_MOST - 1) / MESSAGE_MOST : 0;
    mr_mpi_handle *out = calloc(n + 1, sizeof *out);
    if (!out)
        return mr_error_nomem("comm", (n + 1) * sizeof *out);
    int rc = n ? begin_out(c, m, out) : 0;
    if (rc == 0 && m->in_bytes)
        rc = receive_all(c, m);
    c->peer = n ? m->to : c->peer;
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = mr_mpi_wait(c, 0, &out[i]);
    free(out); /* handles alone: MPI has the requests */
    return rc;
}
