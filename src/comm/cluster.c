/*
 * N ranks in lock step, step by step. State of a rank: when its loader is free. Of all: when each
 * of the last `prefetch` steps ended, which is when their slots became free.
 */
#include "base/base.h"
#include <millrace/cluster.h>
#include <millrace/random.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST    (1u << 20)
#define PREFETCH_MOST 1024u
#define STEPS_MOST    1000000u
#define SIGMA_MOST    3.0
#define WARM          200 /* steps before those that count: rings fill, loaders get into step */

void mr_cluster_opts_fill(struct mr_cluster_opts *opts, size_t size)
{
    const struct mr_cluster_opts full = {.ranks = 1,
                                         .per_node = 8,
                                         .prefetch = 4,
                                         .bucket_bytes = 25 << 20,
                                         .backward_share = 2.0 / 3,
                                         .steps = 1000};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int check(const struct mr_cluster_opts *o)
{
    const struct {
        const char *name;
        double value, least, most;
    } all[] = {
        {"ranks", o->ranks, 1, RANKS_MOST},
        {"per_node", o->per_node, 1, RANKS_MOST},
        {"step_ns", o->step_ns, 0, 1e15},
        {"step_sigma", o->step_sigma, 0, SIGMA_MOST},
        {"make_ns", o->make_ns, 0, 1e15},
        {"make_sigma", o->make_sigma, 0, SIGMA_MOST},
        {"prefetch", o->prefetch, 1, PREFETCH_MOST},
        {"batch_bytes", o->batch_bytes, 0, 1e18},
        {"store_bytes_per_s", o->store_bytes_per_s, 0, 1e18},
        {"grad_bytes", o->grad_bytes, 0, 1e18},
        {"node_alpha_ns", o->node_alpha_ns, 0, 1e15},
        {"net_alpha_ns", o->net_alpha_ns, 0, 1e15},
        {"node_bytes_per_s", o->node_bytes_per_s, 0, 1e18},
        {"net_bytes_per_s", o->net_bytes_per_s, 0, 1e18},
        {"bucket_bytes", o->bucket_bytes, 1, 1e18},
        {"backward_share", o->backward_share, 0, 1},
        {"steps", o->steps, 1, STEPS_MOST},
    };
    for (size_t i = 0; i < MR_COUNT(all); i++)
        if (!(all[i].value >= all[i].least && all[i].value <= all[i].most))
            return mr_error_set(MR_EOPTION, "cluster: %s = %g: expected %g to %g", all[i].name,
                                all[i].value, all[i].least, all[i].most);
    return 0;
}

/* All-reduce by a ring within a machine, and a tree of machines for the smallest ones. */
static double sum_of(const struct mr_cluster_opts *o, double bytes)
{
    const uint32_t n = o->ranks, nodes = (n + o->per_node - 1) / o->per_node;
    double alpha = o->node_alpha_ns, rate = o->node_bytes_per_s;
    if (n == 1 || bytes <= 0)
        return 0;
    if (nodes > 1) {
        alpha += o->net_alpha_ns * ceil(log2(nodes));
        if (o->net_bytes_per_s > 0)
            rate = rate > 0 ? fmin(rate, o->net_bytes_per_s) : o->net_bytes_per_s;
    }
    return alpha + (rate > 0 ? bytes * 2 * (n - 1) / n / rate * 1e9 : 0);
}

/* What of the sums is left when the backward pass ends: buckets become ready evenly during it, and
 * are added up one after the other. */
static double exposed(const struct mr_cluster_opts *o, double *whole)
{
    const double backward = o->step_ns * o->backward_share;
    const double buckets = fmax(ceil(o->grad_bytes / o->bucket_bytes), 1);
    const double one = sum_of(o, o->grad_bytes / buckets);
    *whole = one * buckets;
    /* From the k-th bucket on without a pause: the end is the latest of these. */
    const double from_first = backward / buckets + *whole, from_last = backward + one;
    return fmax(fmax(from_first, from_last) - backward, 0);
}

/* Of a lognormal distribution with this mean. */
static double draw(struct mr_rng *rng, double mean, double sigma)
{
    return sigma > 0 ? mean * exp(sigma * mr_rng_normal(rng) - sigma * sigma / 2) : mean;
}

struct sim {
    const struct mr_cluster_opts *o;
    uint32_t ranks;
    double store_ns;         /* that the store needs for a batch */
    double *free, *ends;     /* by rank; by step, modulo prefetch */
    double store, now;       /* when the store is free; when the last step ended */
    double data, spread, at; /* sums; where counting began */
    struct mr_rng rng;
};

/* The store has no work before the first rank asks. Where others ask later, it serves what was
 * asked for ahead. */
static double first_start(const struct sim *s, double slot_ns)
{
    double first = s->free[0];
    for (uint32_t r = 1; r < s->ranks; r++)
        first = fmin(first, s->free[r]);
    return fmax(first, slot_ns);
}

/* When the rank's batch is ready. slot_ns: since when its slot is free. */
static double make(struct sim *s, uint32_t r, double slot_ns)
{
    const double start = fmax(s->free[r], slot_ns);
    double ready = start + draw(&s->rng, s->o->make_ns, s->o->make_sigma);
    if (s->store_ns > 0) {
        s->store += s->store_ns;
        ready = fmax(ready, fmax(s->store, start + s->store_ns));
    }
    s->free[r] = ready;
    return ready;
}

static void run_step(struct sim *s, uint64_t i, double sum_ns)
{
    const struct mr_cluster_opts *o = s->o;
    const double slot_ns = s->ends[i % o->prefetch];
    double begin = s->now, end = begin;
    if (s->store_ns > 0)
        s->store = fmax(s->store, first_start(s, slot_ns));
    for (uint32_t k = 0; k < s->ranks; k++) {
        const uint32_t r = (uint32_t)((k + i) % s->ranks); /* nobody is always first at the store */
        const double from = fmax(s->now, make(s, r, slot_ns));
        begin = fmax(begin, from);
        end = fmax(end, from + draw(&s->rng, o->step_ns, o->step_sigma));
    }
    const double waited = fmin(begin - s->now, fmax(end - s->now - o->step_ns, 0));
    s->data += waited;
    s->spread += end - s->now - o->step_ns - waited; /* below 0 where all were fast */
    s->now = end + sum_ns;
    s->ends[i % o->prefetch] = s->now;
}

static int simulate(const struct mr_cluster_opts *o, uint32_t ranks, double sum_ns, double cap,
                    struct mr_cluster_step *out)
{
    struct sim s = {.o = o, .ranks = ranks, .store_ns = cap > 0 ? o->batch_bytes / cap * 1e9 : 0};
    mr_rng_init(&s.rng, o->seed, 0, ranks, 0);
    s.free = calloc(ranks, sizeof *s.free);
    s.ends = calloc(o->prefetch, sizeof *s.ends);
    if (!s.free || !s.ends) {
        free(s.free);
        free(s.ends);
        return mr_error_nomem("cluster", ranks * sizeof *s.free);
    }
    const uint64_t warm = WARM + o->prefetch;
    for (uint64_t i = 0; i < warm + o->steps; i++) {
        if (i == warm) {
            s.at = s.now;
            s.data = s.spread = 0;
        }
        run_step(&s, i, sum_ns);
    }
    /* Without a sigma it is rounding. Steps of one rank, drawn, may have a mean below what they are
     * drawn around: that is no gain, and not in the step either. */
    const double spread = o->step_sigma > 0 ? s.spread / o->steps : 0;
    out->step_ns = (s.now - s.at) / o->steps - fmin(spread, 0);
    out->data_ns = s.data / o->steps;
    out->spread_ns = fmax(spread, 0);
    free(s.free);
    free(s.ends);
    return 0;
}

int mr_cluster_predict(const struct mr_cluster_opts *opts, struct mr_cluster_step *out)
{
    struct mr_cluster_opts o;
    struct mr_cluster_step alone = {.size = sizeof alone}, all = {.size = sizeof all};
    if (!opts || !out)
        return mr_error_set(MR_EMISUSE, "mr_cluster_predict: opts or out is NULL");
    mr_cluster_opts_init(&o);
    int rc = mr_opts_take("cluster_opts", opts, &o, sizeof o);
    if (rc < 0)
        return rc;
    rc = check(&o);
    if (rc < 0)
        return rc;
    rc = simulate(&o, 1, 0, 0, &alone);
    if (rc < 0)
        return rc;
    all.sum_ns = exposed(&o, &all.whole_sum_ns);
    rc = simulate(&o, o.ranks, all.sum_ns, o.store_bytes_per_s, &all);
    if (rc < 0)
        return rc;
    all.compute_ns = o.step_ns;
    all.alone_ns = alone.step_ns;
    all.efficiency = all.step_ns > 0 ? alone.step_ns / all.step_ns : 1;
    all.store_bytes_per_s = all.step_ns > 0 ? o.ranks * o.batch_bytes / all.step_ns * 1e9 : 0;
    return mr_info_give("cluster_step", out, &all, sizeof all);
}
