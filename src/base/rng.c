/* Streams of keyed random numbers for callbacks. */
#include "base/base.h"

#include <millrace/random.h>
#include <string.h>

static void set_key(struct mr_rng *rng, uint64_t key)
{
    *rng = (struct mr_rng){.key = {(uint32_t)key, (uint32_t)(key >> 32)}};
}

/* The sample and the block's number are the counter, so no two samples of a key share a block. */
void mr_rng_init(struct mr_rng *rng, uint64_t seed, uint64_t epoch, uint64_t sample,
                 uint64_t stream)
{
    if (!rng)
        return;
    uint64_t key = mr_mix64(seed + 0x9E3779B97F4A7C15ull * MR_DRAW_USER);
    key = mr_mix64(key + epoch * 0xD1B54A32D192ED03ull);
    set_key(rng, mr_mix64(key + stream * 0x9E3779B97F4A7C15ull));
    rng->counter[2] = (uint32_t)sample;
    rng->counter[3] = (uint32_t)(sample >> 32);
}

void mr_rng_init_op(struct mr_rng *rng, const uint32_t random[4])
{
    if (!rng || !random)
        return;
    set_key(rng, (uint64_t)random[1] << 32 | random[0]);
    rng->counter[2] = random[2];
    rng->counter[3] = random[3];
}

uint32_t mr_rng_u32(struct mr_rng *rng)
{
    if (!rng)
        return 0;
    if (rng->n_words == 0) {
        mr_philox(rng->counter, rng->key, rng->word);
        rng->counter[1] += ++rng->counter[0] == 0;
        rng->n_words = 4;
    }
    return rng->word[4 - rng->n_words--];
}

uint64_t mr_rng_u64(struct mr_rng *rng)
{
    uint64_t high = mr_rng_u32(rng);
    return high << 32 | mr_rng_u32(rng);
}

double mr_rng_uniform(struct mr_rng *rng)
{
    uint32_t high = mr_rng_u32(rng);
    return mr_unit_f64(high, mr_rng_u32(rng));
}

/* Lemire: Fast random integer generation in an interval (ACM TOMACS 29(1), 2019). */
uint64_t mr_rng_below(struct mr_rng *rng, uint64_t n)
{
    if (!rng || n == 0)
        return 0;
    unsigned __int128 product = (unsigned __int128)mr_rng_u64(rng) * n;
    uint64_t least = (0 - n) % n;
    while ((uint64_t)product < least)
        product = (unsigned __int128)mr_rng_u64(rng) * n;
    return (uint64_t)(product >> 64);
}

/* ln x for 0 < x < 1, to 1e-14. libm is not used: its last bit differs between machines. */
static double natural_log(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int e = (int)(u >> 52) - 1022;
    u = (u & 0xfffffffffffffull) | 1022ull << 52; /* m in [0.5, 1) */
    double m;
    memcpy(&m, &u, sizeof m);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int k = 19; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum + e * 0.69314718055994531;
}

/* Horner's method; n coefficients, highest power first. */
static double polynomial(const double *c, int n, double x)
{
    double sum = c[0];
    for (int i = 1; i < n; i++)
        sum = sum * x + c[i];
    return sum;
}

/* The inverse of the normal distribution function, with a relative error of 1.2e-9 (P. J. Acklam's
 * rational approximation). */
double mr_normal_quantile(double p)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01, 1};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00, 1};
    double tail = p < 0.5 ? p : 1 - p;
    if (tail >= 0.02425) {
        double q = p - 0.5;
        return q * polynomial(a, 6, q * q) / polynomial(b, 6, q * q);
    }
    double q = __builtin_sqrt(-2 * natural_log(tail));
    double x = polynomial(c, 6, q) / polynomial(d, 5, q);
    return p < 0.5 ? x : -x;
}

double mr_rng_normal(struct mr_rng *rng)
{
    return mr_normal_quantile(((double)mr_rng_u32(rng) + 0.5) * 0x1p-32);
}
