/* The optimizer's state in parts: see shard.h. */
#include "train/shard.h"

#include <errno.h>
#include <stdlib.h>

/* Each rank has a whole number of the sums of squares; the first has most. */
static void cut(struct mr_train_shard *s)
{
    const uint64_t unit = mr_optim_norm_unit(s->n), units = (s->n + unit - 1) / unit;
    for (uint32_t r = 0; r <= s->world; r++) {
        s->norm[r] = (units * r + s->world - 1) / s->world;
        s->first[r] = MR_MIN(s->norm[r] * unit, s->n);
    }
}

int mr_train_shard_open(struct mr_comm *comm, uint64_t n, struct mr_train_shard **out)
{
    struct mr_comm_stats stats = {.size = sizeof stats};
    int rc = mr_comm_stats(comm, &stats);
    if (rc < 0)
        return rc;
    struct mr_train_shard *s = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem("trainer", sizeof *s);
    *s = (struct mr_train_shard){.comm = comm, .rank = stats.rank, .world = stats.world, .n = n};
    s->first = calloc(3 * (s->world + 1ull), sizeof *s->first);
    if (!s->first) {
        mr_train_shard_close(s);
        return mr_error_nomem("trainer", 3 * (stats.world + 1ull) * sizeof(uint64_t));
    }
    s->norm = s->first + s->world + 1;
    s->part = s->norm + s->world + 1;
    cut(s);
    *out = s;
    return 0;
}

void mr_train_shard_close(struct mr_train_shard *s)
{
    if (!s)
        return;
    free(s->first);
    free(s);
}

int mr_train_shard_optim(const struct mr_train_shard *s, struct mr_device *device,
                         const struct mr_optim_opts *opts, struct mr_optim **out)
{
    const uint64_t first = mr_train_shard_first(s);
    const struct mr_optim_range own = {s->n, first, s->first[s->rank + 1] - first};
    return mr_optim_create_range(device, opts, MR_F32, &own, out);
}

int mr_train_shard_sum(struct mr_train_shard *s, float *vector, struct mr_train_range range,
                       enum mr_dtype wire, enum mr_sum_order order, struct mr_stream *stream)
{
    for (uint32_t r = 0; r <= s->world; r++)
        s->part[r] = MR_MIN(MR_MAX(s->first[r], range.first), range.end);
    return mr_comm_sum_scatter(s->comm, vector, s->part, MR_F32, wire, order, stream);
}

int mr_train_shard_step(struct mr_train_shard *s, struct mr_optim *optim, float *params,
                        const float *grads, bool unified, struct mr_stream *stream)
{
    const uint64_t first = mr_train_shard_first(s);
    struct mr_stream *comm_stream = unified ? NULL : stream;
    struct mr_optim_grads own = {grads + first, MR_F32};
    int rc = mr_optim_begin_step(optim, &own, stream);
    if (rc <= 0)
        return rc;
    rc = mr_optim_own_norms(optim, &own, stream);
    if (rc < 0)
        return rc;
    if (optim->n_norms)
        rc = mr_comm_gather(s->comm, optim->norms, s->norm, MR_F64, comm_stream);
    if (rc < 0)
        return rc;
    rc = mr_optim_end_step(optim, params + first, &own, stream);
    if (rc < 0)
        return rc;
    return mr_comm_gather(s->comm, params, s->first, MR_F32, comm_stream);
}

/* Rank 0's. */
static int receive(const struct mr_train_collection *c, struct mr_optim *optim, uint32_t i,
                   char *all, struct mr_stream *stream)
{
    const uint64_t size = mr_optim_size(optim);
    int rc = mr_optim_state_read(optim, i, all, c->first[1] * size, stream);
    for (uint32_t r = 1; r < c->world && rc >= 0; r++)
        rc = mr_comm_recv(c->comm, all + c->first[r] * size, (c->first[r + 1] - c->first[r]) * size,
                          r, NULL);
    return rc;
}

int mr_train_collect(const struct mr_train_collection *c, struct mr_optim *optim, uint32_t i,
                     void *all, struct mr_stream *stream)
{
    const uint64_t bytes = (c->first[c->rank + 1] - c->first[c->rank]) * mr_optim_size(optim);
    if (c->rank == 0)
        return receive(c, optim, i, all, stream);
    char *own = malloc(MR_MAX(bytes, 1));
    if (!own)
        return mr_error_nomem("checkpoint", bytes);
    int rc = mr_optim_state_read(optim, i, own, bytes, stream);
    if (rc >= 0)
        rc = mr_comm_send(c->comm, own, bytes, 0, NULL);
    if (rc != MR_EPEER) /* else it may be in use: comm.h */
        free(own);
    return rc;
}
