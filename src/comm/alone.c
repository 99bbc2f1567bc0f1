/* One rank: sums are what they were. */
#include "comm/engine.h"

#include <stdlib.h>
#include <string.h>

static int open_alone(struct mr_comm *c)
{
    if (c->opts.place.world > 1)
        return mr_error_set(MR_EMISUSE, "comm: engine alone: rank %u of %u: expected 0 of 1",
                            c->opts.place.rank, c->opts.place.world);
    return 0;
}

static bool close_alone(struct mr_comm *c, bool clean)
{
    (void)c;
    (void)clean;
    return true;
}

static int sum(struct mr_comm *c, void *data, const struct mr_comm_array *array)
{
    (void)c;
    (void)data;
    (void)array;
    return 0;
}

static int sum_device(struct mr_comm *c, const void *in, void *data,
                      const struct mr_comm_array *array, struct mr_stream *stream)
{
    (void)c;
    return mr_comm_place(in, data, array, stream);
}

/* One part is all of it. */
static int nothing(struct mr_comm *c, void *data, const struct mr_comm_parts *parts)
{
    (void)c;
    (void)data;
    (void)parts;
    return 0;
}

static int nothing_on_device(struct mr_comm *c, void *data, const struct mr_comm_parts *parts,
                             struct mr_stream *stream)
{
    (void)stream;
    return nothing(c, data, parts);
}

static int gather(struct mr_comm *c, const void *mine, uint64_t bytes, uint32_t root, void *all)
{
    (void)c;
    (void)root;
    if (bytes)
        memcpy(all, mine, bytes);
    return 0;
}

static int spread(struct mr_comm *c, void *data, uint64_t bytes, uint32_t root)
{
    (void)c;
    (void)data;
    (void)bytes;
    (void)root;
    return 0;
}

static void phase(struct mr_comm *c, const char *what)
{
    (void)c;
    (void)what;
}

static void end(struct mr_comm *c, int status)
{
    (void)c;
    exit(status);
}

const struct mr_comm_engine mr_comm_alone = {
    .name = "alone",
    .open = open_alone,
    .close = close_alone,
    .sum = sum,
    .sum_device = sum_device,
    .scatter = nothing,
    .scatter_device = nothing_on_device,
    .share = nothing,
    .share_device = nothing_on_device,
    .gather = gather,
    .spread = spread,
    .phase = phase,
    .abort = end,
};
