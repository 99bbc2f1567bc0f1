/* The order of a step's passes, by --pipeline. */
#include "train/pipeline.h"

/* The j-th pass of stage s. Returns whether it is a forward one; [out] i: of which micro-batch. */
static bool pass_of(const struct mr_trainer *t, uint32_t s, uint32_t j, uint32_t *i)
{
    const uint32_t m = t->n_leaves,
                   ahead = MR_MIN(m, t->pipeline->of - 1 - mr_train_stage_number(t, s));
    if (t->opts.pipeline == MR_PIPELINE_GPIPE) {
        *i = j % m;
        return j < m;
    }
    if (j < ahead) {
        *i = j;
        return true;
    }
    const uint32_t k = j - ahead;
    if (k >= 2 * (m - ahead)) {
        *i = k - (m - ahead);
        return false;
    }
    *i = k % 2 ? k / 2 : ahead + k / 2;
    return k % 2 == 0;
}

static bool is_ready(const struct mr_train_passes *ps, uint32_t s, bool forward, uint32_t i)
{
    if (forward)
        return s == 0 || ps->n[s - 1][0] > i;
    return mr_train_is_last_stage(ps->t, s) || ps->n[s + 1][1] > i;
}

/* This rank's stage. */
static int run_own(struct mr_train_passes *ps)
{
    uint32_t i;
    for (uint32_t j = 0; j < 2 * ps->t->n_leaves; j++) {
        const bool is_forward = pass_of(ps->t, 0, j, &i);
        const uint32_t a = mr_train_tree_order(i, ps->p->leaves.mine);
        int rc = mr_train_hop_before(ps, &is_forward, i % ps->p->n_slots,
                                     mr_train_rows_of(&ps->p->leaves, ps->part, a));
        if (rc < 0)
            return rc;
        rc = is_forward ? mr_train_forward(ps, 0, i) : mr_train_backward(ps, 0, i);
        if (rc < 0)
            return rc;
    }
    return mr_train_hop_before(ps, NULL, 0, 0);
}

/* The next pass of stage s, if all that it waits for is enqueued. Returns 1, 0 or an error. */
static int run_next(struct mr_train_passes *ps, uint32_t s)
{
    const uint32_t j = ps->n[s][0] + ps->n[s][1];
    uint32_t i;
    if (j == 2 * ps->t->n_leaves)
        return 0;
    const bool is_forward = pass_of(ps->t, s, j, &i);
    if (!is_ready(ps, s, is_forward, i))
        return 0;
    int rc = is_forward ? mr_train_forward(ps, s, i) : mr_train_backward(ps, s, i);
    if (rc < 0)
        return rc;
    ps->n[s][!is_forward]++;
    return 1;
}

int mr_train_run_passes(struct mr_train_passes *ps)
{
    if (ps->p->comm)
        return run_own(ps);
    uint32_t left = ps->t->n_stages * 2 * ps->t->n_leaves;
    while (left)
        for (uint32_t s = 0; s < ps->t->n_stages; s++) {
            int ran = run_next(ps, s);
            if (ran < 0)
                return ran;
            left -= (uint32_t)ran;
        }
    return 0;
}
