/*
 * Who comes last. Each step has one rank that waited least in the sum. A rank is named where that
 * is the same one nearly always; rules of thumb, whose limits are constants here:
 *
 * - n steps of chance give each of N ranks a share of 1/N, give or take 1/sqrt(n), so a share must
 *   be 0.2 above both together. With two ranks that is 0.7 at least.
 * - A burst, such as a checkpoint that one rank writes, is no straggler: a rank must be the most
 *   frequent last one in two of three blocks of 32 steps.
 * - What costs little is not worth a word.
 */
#include "base/base.h"
#include <millrace/straggler.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORLD_MOST  (1u << 20)
#define STEPS_LEAST 20 /* fewer say nothing */
#define BLOCK       32
#define BLOCK_LEAST 8    /* steps of the last block, to count */
#define MARGIN      0.2  /* share above chance */
#define SHARE_MOST  0.9  /* that is asked for */
#define COST_LEAST  0.05 /* of a step */

struct late {
    struct mr_rank_step sum;             /* over all steps */
    uint64_t last, block_last, blocks;   /* in all; in this block; blocks in which it led */
    double cost;                         /* over the steps in which it was last, as below */
    struct mr_rank_step own, others_sum; /* others_sum: of all other ranks */
};

struct mr_step_log {
    uint32_t world, n_block; /* n_block: steps of the block so far */
    uint64_t steps, n_blocks;
    double *waits;
    struct late *rank;
};

int mr_step_log_create(uint32_t world, struct mr_step_log **out)
{
    if (!out || world < 1 || world > WORLD_MOST)
        return mr_error_set(MR_EMISUSE, "mr_step_log_create: expected 1 to %u ranks, and out",
                            WORLD_MOST);
    struct mr_step_log *log = calloc(1, sizeof *log);
    if (!log)
        return mr_error_nomem("step log", sizeof *log);
    log->world = world;
    log->waits = malloc(world * sizeof *log->waits);
    log->rank = calloc(world, sizeof *log->rank);
    if (!log->waits || !log->rank) {
        mr_step_log_destroy(log);
        return mr_error_nomem("step log", world * sizeof *log->rank);
    }
    *out = log;
    return 0;
}

void mr_step_log_destroy(struct mr_step_log *log)
{
    if (!log)
        return;
    free(log->waits);
    free(log->rank);
    free(log);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The upper one of two, so that of two ranks it is what the other waited. */
static double median_wait(struct mr_step_log *log, const struct mr_rank_step *steps)
{
    for (uint32_t r = 0; r < log->world; r++)
        log->waits[r] = fmax(steps[r].sum_ns, 0);
    qsort(log->waits, log->world, sizeof *log->waits, compare);
    return log->waits[log->world / 2];
}

/* The rank that was last in most of the block's steps, and clearly so; NULL: none. */
static struct late *leader(const struct mr_step_log *log)
{
    struct late *first = &log->rank[0];
    for (uint32_t r = 1; r < log->world; r++)
        if (log->rank[r].block_last > first->block_last)
            first = &log->rank[r];
    const double asked = (1.0 / log->world + MARGIN) * log->n_block;
    return (double)first->block_last >= asked ? first : NULL;
}

static void end_block(struct mr_step_log *log)
{
    struct late *first = leader(log);
    if (first)
        first->blocks++;
    log->n_blocks++;
    log->n_block = 0;
    for (uint32_t r = 0; r < log->world; r++)
        log->rank[r].block_last = 0;
}

static void add_step(struct mr_rank_step *to, const struct mr_rank_step *step)
{
    to->data_ns += fmax(step->data_ns, 0);
    to->compute_ns += fmax(step->compute_ns, 0);
    to->sum_ns += fmax(step->sum_ns, 0);
}

int mr_step_log_add(struct mr_step_log *log, const struct mr_rank_step *steps)
{
    if (!log || !steps)
        return mr_error_set(MR_EMISUSE, "mr_step_log_add: log or steps is NULL");
    struct mr_rank_step all = {0};
    uint32_t last = 0;
    for (uint32_t r = 0; r < log->world; r++) {
        if (!isfinite(steps[r].data_ns + steps[r].compute_ns + steps[r].sum_ns))
            return mr_error_set(MR_EMISUSE, "mr_step_log_add: rank %u: a time is not finite", r);
        add_step(&all, &steps[r]);
        if (steps[r].sum_ns < steps[last].sum_ns)
            last = r;
    }
    for (uint32_t r = 0; r < log->world; r++)
        add_step(&log->rank[r].sum, &steps[r]);
    struct late *l = &log->rank[last];
    l->last++;
    l->block_last++;
    l->cost += median_wait(log, steps) - fmax(steps[last].sum_ns, 0);
    add_step(&l->own, &steps[last]);
    l->others_sum.data_ns += all.data_ns - fmax(steps[last].data_ns, 0);
    l->others_sum.compute_ns += all.compute_ns - fmax(steps[last].compute_ns, 0);
    log->steps++;
    if (++log->n_block == BLOCK)
        end_block(log);
    return 0;
}

/* Blocks in which the rank led, and of how many; the last, unfinished one counts if it is long. */
static bool leads_mostly(const struct mr_step_log *log, const struct late *l)
{
    uint64_t led = l->blocks, of = log->n_blocks;
    if (log->n_block >= BLOCK_LEAST) {
        led += leader(log) == l;
        of++;
    }
    return 3 * led >= 2 * of;
}

static double mean_step(const struct mr_step_log *log)
{
    double ns = 0;
    for (uint32_t r = 0; r < log->world; r++) {
        const struct mr_rank_step *s = &log->rank[r].sum;
        ns += s->data_ns + s->compute_ns + s->sum_ns;
    }
    return log->steps ? ns / (double)log->steps / log->world : 0;
}

/* NULL: none is worth being named. */
static const struct late *find(const struct mr_step_log *log, double step_ns)
{
    const struct late *l = &log->rank[0];
    const double n = (double)log->steps;
    if (log->world < 2 || log->steps < STEPS_LEAST)
        return NULL;
    for (uint32_t r = 1; r < log->world; r++)
        if (log->rank[r].last > l->last)
            l = &log->rank[r];
    double asked = fmin(1.0 / log->world + MARGIN + 1 / sqrt(n), SHARE_MOST);
    if ((double)l->last < asked * n || l->cost < COST_LEAST * step_ns * n || !leads_mostly(log, l))
        return NULL;
    return l;
}

int mr_step_log_query(const struct mr_step_log *log, struct mr_straggler *out)
{
    if (!log)
        return mr_error_set(MR_EMISUSE, "mr_step_log_query: log is NULL");
    struct mr_straggler s = {
        .steps = log->steps, .step_ns = mean_step(log), .rank = MR_NO_RANK, .cause = MR_LATE_NONE};
    const struct late *l = find(log, s.step_ns);
    if (l) {
        const double n = (double)l->last, others = n * (log->world - 1);
        s.rank = (uint32_t)(l - log->rank);
        s.last_share = n / (double)log->steps;
        s.cost_ns = l->cost / n;
        s.data_ns = l->own.data_ns / n;
        s.compute_ns = l->own.compute_ns / n;
        s.others_data_ns = l->others_sum.data_ns / others;
        s.others_compute_ns = l->others_sum.compute_ns / others;
        bool data = s.data_ns - s.others_data_ns > s.compute_ns - s.others_compute_ns;
        s.cause = data ? MR_LATE_DATA : MR_LATE_COMPUTE;
    }
    return mr_info_give("straggler", out, &s, sizeof s);
}

int mr_step_log_get(const struct mr_step_log *log, uint32_t rank, struct mr_rank_sums *out)
{
    if (!log || rank >= log->world)
        return mr_error_set(MR_EMISUSE, "mr_step_log_get: expected a log, and a rank in its world");
    const struct late *l = &log->rank[rank];
    const struct mr_rank_sums s = {
        .data_ns = l->sum.data_ns,
        .compute_ns = l->sum.compute_ns,
        .sum_ns = l->sum.sum_ns,
        .last = l->last,
        .cost_ns = l->cost,
    };
    return mr_info_give("rank_sums", out, &s, sizeof s);
}
