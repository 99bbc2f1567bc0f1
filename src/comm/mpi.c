/* The engine on MPI. */
#include "comm/mpi.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool used; /* MPI starts once in a process */

static struct mr_mpi_ranks *ranks(const struct mr_comm *c)
{
    return c->impl;
}

static int send_block(struct mr_comm *c, const void *data, uint64_t bytes, uint32_t to)
{
    const struct mr_mpi *m = &ranks(c)->mpi;
    mr_mpi_handle request = 0;
    int code = m->Isend(data, (int)bytes, m->byte, (int)to, MR_MPI_TAG_BLOCK, m->world, &request);
    return mr_mpi_wait(c, code, &request);
}

static int receive_block(struct mr_comm *c, void *data, uint64_t bytes, uint32_t from)
{
    const struct mr_mpi *m = &ranks(c)->mpi;
    mr_mpi_handle request = 0;
    int code = m->Irecv(data, (int)bytes, m->byte, (int)from, MR_MPI_TAG_BLOCK, m->world, &request);
    return mr_mpi_wait(c, code, &request);
}

static int gather(struct mr_comm *c, const void *mine, uint64_t bytes, uint32_t root, void *all)
{
    if (c->rank != root)
        return send_block(c, mine, bytes, root);
    memcpy((char *)all + root * bytes, mine, bytes);
    for (uint32_t r = 0; r < c->world; r++) {
        int rc = r == root ? 0 : receive_block(c, (char *)all + r * bytes, bytes, r);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int spread(struct mr_comm *c, void *data, uint64_t bytes, uint32_t root)
{
    if (c->rank != root)
        return receive_block(c, data, bytes, root);
    for (uint32_t r = 0; r < c->world; r++) {
        int rc = r == root ? 0 : send_block(c, data, bytes, r);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A library that was not started by this launcher says that it is alone. */
static int check_world(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    const char *launcher = c->opts.place.launcher;
    int rank = 0, world = 0;
    r->mpi.Comm_rank(r->mpi.world, &rank);
    r->mpi.Comm_size(r->mpi.world, &world);
    mr_mpi_version(&r->mpi, c->library, sizeof c->library);
    if (rank == (int)c->rank && world == (int)c->world)
        return 0;
    return mr_error_set(
        MR_EUNSUPPORTED,
        "comm: %s says rank %u of %u, %s (%s) says %d of %d: start it with mpirun or srun of that "
        "MPI, or name the launcher's MPI library in MILLRACE_MPI",
        launcher[0] ? launcher : "the caller", c->rank, c->world, c->library, r->mpi.name, rank,
        world);
}

static int take_memory(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    r->node = calloc(c->world, sizeof *r->node);
    r->answers = calloc(c->world, sizeof *r->answers);
    r->answered = calloc(c->world, sizeof *r->answered);
    return r->node && r->answers && r->answered ? 0 : mr_error_nomem("comm", 0);
}

static int exchange_names(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = ranks(c);
    gethostname(r->mine, sizeof r->mine - 1);
    for (uint32_t i = 0; i < c->world; i++)
        snprintf(r->node[i], sizeof r->node[i], "node unknown");
    int rc = mr_mpi_listen(c);
    if (rc < 0)
        return rc;
    rc = gather(c, r->mine, sizeof r->mine, 0, r->node);
    return rc < 0 ? rc : spread(c, r->node, c->world * sizeof r->mine, 0);
}

static int open_mpi(struct mr_comm *c)
{
    struct mr_mpi_ranks *r = c->impl = calloc(1, sizeof *r);
    if (!r)
        return mr_error_nomem("comm", sizeof *r);
    int rc = mr_mpi_load(&r->mpi, c->opts.place.launcher);
    if (rc < 0)
        return rc;
    if (atomic_exchange(&used, true))
        return mr_error_set(MR_EMISUSE, "comm: MPI was used by this process before: expected one "
                                        "communicator a process");
    rc = mr_mpi_start(&r->mpi, c->opts.timeout_ns, &r->ours);
    if (rc < 0) /* MPI may be half started: it is left alone */
        return rc;
    rc = check_world(c);
    if (rc < 0)
        return rc;
    r->mpi.Comm_set_errhandler(r->mpi.world, r->mpi.errors_return);
    rc = take_memory(c);
    return rc < 0 ? rc : exchange_names(c);
}

static int reduce(struct mr_comm *c, void *data, uint64_t n, enum mr_dtype dtype)
{
    const struct mr_mpi *m = &ranks(c)->mpi;
    for (uint64_t at = 0; at < n; at += MR_MPI_CHUNK) {
        mr_mpi_handle request = 0;
        int code = m->Iallreduce(m->in_place, (char *)data + at * mr_dtype_size(dtype),
                                 (int)MR_MIN(n - at, MR_MPI_CHUNK),
                                 dtype == MR_F32 ? m->f32 : m->f64, m->op_sum, m->world, &request);
        int rc = mr_mpi_wait(c, code, &request);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Recursive doubling: the tree of mr_sum_order, on every rank. */
static int tree(struct mr_comm *c, char *data, const struct mr_comm_array *a)
{
    int rc = 0;
    for (uint32_t h = c->world / 2; rc == 0 && h >= 1; h /= 2) {
        const struct mr_mpi_swap whole = {c->rank ^ h, c->rank ^ h, data, data, a->n, a->n};
        rc = mr_mpi_swap_and_add(c, &whole, a->dtype, a->wire);
    }
    return rc;
}

static int sum(struct mr_comm *c, void *data, const struct mr_comm_array *a)
{
    if (a->order == MR_SUM_TREE)
        return tree(c, data, a);
    if (a->wire == a->dtype)
        return reduce(c, data, a->n, a->dtype);
    if (mr_comm_is_power_of_two(c->world)) /* MPI does not know bf16 */
        return tree(c, data, a);
    return mr_error_set(MR_EUNSUPPORTED,
                        "comm: bf16 on the wire by MPI, %u ranks: expected a power of two",
                        c->world);
}

static void phase(struct mr_comm *c, const char *what)
{
    struct mr_mpi_ranks *r = ranks(c);
    if (c->world < 2)
        return;
    snprintf(r->next, sizeof r->next, "%s", what);
    mr_mpi_poll_phases(c);
}

/* All come first: those that do not must not keep the others in MPI_Finalize(). Returns whether no
 * request is open. */
static bool leave(struct mr_comm *c, bool clean)
{
    struct mr_mpi_ranks *r = ranks(c);
    if (!r->answered) /* nothing was sent yet */
        return true;
    if (!clean || reduce(c, &r->zero, 1, MR_F64) < 0)
        return false;
    bool over = mr_mpi_deaf(c);
    if (!r->ours)
        return over;
    r->mpi.Finalize();
    return true;
}

static bool close_mpi(struct mr_comm *c, bool clean)
{
    struct mr_mpi_ranks *r = ranks(c);
    if (!r)
        return true;
    if (!leave(c, clean)) /* the memory is left: MPI may still read and write it */
        return false;
    free(r->node);
    free(r->answers);
    free(r->answered);
    free(r->room);
    free(r);
    c->impl = NULL;
    return true;
}

static void end(struct mr_comm *c, int status)
{
    ranks(c)->mpi.Abort(ranks(c)->mpi.world, status);
    _exit(status);
}

const struct mr_comm_engine mr_comm_mpi = {
    .name = "mpi",
    .library = mr_mpi_library,
    .open = open_mpi,
    .close = close_mpi,
    .sum = sum,
    .scatter = mr_mpi_scatter,
    .share = mr_mpi_share,
    .pass = mr_mpi_pass,
    .gather = gather,
    .spread = spread,
    .phase = phase,
    .abort = end,
};
