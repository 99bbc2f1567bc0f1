/*
 * Random samples by weight.
 *
 * With replacement: an alias table (Vose, IEEE Trans. Softw. Eng. 17(9), 1991); position p of epoch
 * e is one Philox draw, so there is no state. Without replacement: each sample gets the key
 * -log(u)/w, and the epoch is the samples with the smallest keys in ascending order (Efraimidis and
 * Spirakis, Inf. Process. Lett. 97(5), 2006); this order is computed when an epoch is first used.
 */
#include "sampler/kept.h"
#include "sampler/sampler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct alias {
    /* probability of this sample when its column is drawn; otherwise it is the other one */
    double keep;
    uint64_t other;
};

/* Two consecutive epochs are in use while a loader crosses from one to the next. */
#define EPOCHS_KEPT 2

struct weighted {
    struct alias *alias; /* with replacement */
    uint64_t columns;
    double *weight; /* without */
    uint64_t n_weights;
    uint64_t n_positive;
    struct mr_kept orders; /* of epochs: arrays of length indices */
};

static int check_weights(const struct mr_sampler *s, const struct mr_sampler_opts *opts,
                         uint64_t *n_positive)
{
    if (!opts->weights || opts->n_weights != s->n_samples)
        return mr_error_set(
            MR_EOPTION, "weighted sampler: %llu weights for %llu samples: expected one a sample",
            (unsigned long long)(opts->weights ? opts->n_weights : 0),
            (unsigned long long)s->n_samples);
    *n_positive = 0;
    for (uint64_t i = 0; i < opts->n_weights; i++) {
        double w = opts->weights[i];
        if (!isfinite(w) || w < 0)
            return mr_error_set(MR_EOPTION,
                                "weighted sampler: weight %g (number %llu): expected finite, >= 0",
                                w, (unsigned long long)(i + 1));
        *n_positive += w > 0;
    }
    if (*n_positive == 0)
        return mr_error_set(MR_EOPTION,
                            "weighted sampler: all %llu weights are 0: expected one above 0",
                            (unsigned long long)opts->n_weights);
    return 0;
}

/*
 * Vose's construction. scaled[i] = weight / mean weight; columns below 1 are filled up from ones
 * above. Because of rounding some columns are left at the end: their keep is 1. With very many
 * samples one of weight 0 could be among them; it must never be drawn, so its column goes to
 * `heaviest`.
 */
static void build_alias(struct weighted *w, const double *weight, double *scaled, uint64_t *work)
{
    uint64_t n = w->columns, n_small = 0, n_large = 0, heaviest = 0;
    for (uint64_t i = 1; i < n; i++)
        if (weight[i] > weight[heaviest])
            heaviest = i;
    double sum = 0; /* of weights divided by the largest: cannot overflow */
    for (uint64_t i = 0; i < n; i++)
        sum += weight[i] / weight[heaviest];
    for (uint64_t i = 0; i < n; i++) {
        scaled[i] = weight[i] / weight[heaviest] * ((double)n / sum);
        w->alias[i] = (struct alias){weight[i] > 0 ? 1 : 0, heaviest};
        /* small ones are stored from the front, large ones from the back */
        if (scaled[i] < 1)
            work[n_small++] = i;
        else
            work[n - ++n_large] = i;
    }
    while (n_small > 0 && n_large > 0) {
        uint64_t small = work[--n_small], large = work[n - n_large];
        w->alias[small] = (struct alias){scaled[small], large};
        scaled[large] -= 1 - scaled[small];
        if (scaled[large] < 1) {
            n_large--;
            work[n_small++] = large;
        }
    }
}

static int open_alias(struct weighted *w, const struct mr_sampler_opts *opts)
{
    uint64_t n = opts->n_weights, bytes;
    if (!mr_mul(n, sizeof *w->alias, &bytes))
        return mr_error_nomem("weighted sampler", UINT64_MAX);
    w->columns = n;
    w->alias = malloc(bytes);
    double *scaled = malloc(n * sizeof *scaled);
    uint64_t *work = malloc(n * sizeof *work);
    int rc = 0;
    if (w->alias && scaled && work)
        build_alias(w, opts->weights, scaled, work);
    else
        rc = mr_error_nomem("weighted sampler", bytes);
    free(scaled);
    free(work);
    return rc;
}

static int open_orders(struct weighted *w, const struct mr_sampler_opts *opts)
{
    uint64_t bytes;
    if (!mr_mul(opts->n_weights, 16, &bytes)) /* also bounds the memory for the keys of one epoch */
        return mr_error_nomem("weighted sampler", UINT64_MAX);
    w->n_weights = opts->n_weights;
    w->weight = malloc(opts->n_weights * sizeof *w->weight);
    if (!w->weight)
        return mr_error_nomem("weighted sampler", opts->n_weights * sizeof *w->weight);
    memcpy(w->weight, opts->weights, opts->n_weights * sizeof *w->weight);
    mr_kept_init(&w->orders, EPOCHS_KEPT, free);
    return 0;
}

static int weighted_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct weighted *w = s->state;
    int rc = check_weights(s, opts, &w->n_positive);
    if (rc)
        return rc;
    s->length = opts->n_draws ? opts->n_draws : opts->replacement ? s->n_samples : w->n_positive;
    if (s->length > 1ull << 63)
        return mr_error_set(MR_EOPTION, "weighted sampler: %llu draws: expected at most 2^63",
                            (unsigned long long)s->length);
    if (!opts->replacement && s->length > w->n_positive)
        return mr_error_set(
            MR_EOPTION,
            "weighted sampler: %llu draws without replacement from %llu samples of weight above 0",
            (unsigned long long)s->length, (unsigned long long)w->n_positive);
    rc = opts->replacement ? open_alias(w, opts) : open_orders(w, opts);
    if (rc)
        return rc;
    snprintf(s->text, sizeof s->text,
             "weighted(n=%llu,hash=%016llx,replacement=%d,draws=%llu,seed=%llu)",
             (unsigned long long)opts->n_weights,
             (unsigned long long)mr_words_hash(opts->weights, opts->n_weights),
             opts->replacement != 0, (unsigned long long)s->length, (unsigned long long)s->seed);
    return 0;
}

static void weighted_close(struct mr_sampler *s)
{
    struct weighted *w = s->state;
    mr_kept_end(&w->orders);
    free(w->weight);
    free(w->alias);
}

static void map_alias(const struct mr_sampler *s, const struct weighted *w, uint64_t epoch,
                      uint64_t position, uint64_t count, uint64_t *out)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t r[4];
        mr_draw4(s->seed, MR_DRAW_WEIGHTED, position + i, epoch, 0, r);
        uint64_t column =
            (uint64_t)((unsigned __int128)((uint64_t)r[0] << 32 | r[1]) * w->columns >> 64);
        const struct alias *a = &w->alias[column];
        out[i] = mr_unit_f64(r[2], r[3]) < a->keep ? column : a->other;
    }
}

/*
 * -log(u), u in (0, 1]. libm is not used: its last bit differs between machines (variants with
 * FMA), and the order of an epoch must not. u = m * 2^e with m in [1/sqrt 2, sqrt 2]; log m = 2
 * atanh(s), s = (m - 1) / (m + 1), |s| < 0.172: the first omitted term of the series is below
 * 2^-60.
 */
static double neg_log(double u)
{
    int e;
    double m = frexp(u, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int k = 23; k > 0; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return -(2 * s * sum + e * 0.69314718055994531);
}

struct key {
    double key;
    uint64_t index;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int build_order(const void *sampler, uint64_t epoch, uint64_t part, void **out)
{
    const struct mr_sampler *s = sampler;
    const struct weighted *w = s->state;
    struct key *keys = malloc(w->n_positive * sizeof *keys);
    uint64_t *order = malloc(s->length * sizeof *order);
    (void)part;
    if (!keys || !order) {
        free(keys);
        free(order);
        return mr_error_nomem("weighted sampler", w->n_positive * sizeof *keys);
    }
    uint64_t n = 0;
    for (uint64_t i = 0; i < w->n_weights; i++) {
        if (!(w->weight[i] > 0))
            continue;
        uint32_t r[4];
        mr_draw4(s->seed, MR_DRAW_WEIGHTED, i, epoch, 1, r);
        keys[n++] = (struct key){neg_log(1 - mr_unit_f64(r[0], r[1])) / w->weight[i], i};
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (uint64_t i = 0; i < s->length; i++)
        order[i] = keys[i].index;
    free(keys);
    *out = order;
    return 0;
}

static int weighted_map(const struct mr_sampler *s, uint64_t epoch, uint64_t position,
                        uint64_t count, uint64_t *out)
{
    struct weighted *w = s->state;
    if (w->alias) {
        map_alias(s, w, epoch, position, count, out);
        return 0;
    }
    struct mr_kept_table *kept;
    int rc = mr_kept_acquire(&w->orders, epoch, 0, build_order, s, &kept);
    if (rc < 0)
        return rc;
    memcpy(out, (const uint64_t *)kept->table + position, count * sizeof *out);
    mr_kept_release(&w->orders, kept);
    return 0;
}

const struct mr_sampler_ops mr_sampler_weighted = {
    .name = "weighted",
    .state_size = sizeof(struct weighted),
    .open = weighted_open,
    .close = weighted_close,
    .map = weighted_map,
};
