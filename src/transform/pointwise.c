/* The fused pass over elements that replaces any run of cast, scale and normalize. */
#include "transform/transform.h"

#include <string.h>

void mr_pointwise_start(struct mr_pointwise *p, enum mr_dtype from)
{
    *p = (struct mr_pointwise){.from = from, .compute = MR_N_DTYPES, .to = from, .channels = 1};
}

/* Elements that stay in the first-level cache between passes. */
#define BLOCK        1024

/* For a few channels, the constants are unrolled into a cycle, so that one loop covers many
 * elements. */
#define SHORT_INNER  128
#define CYCLE_WANTED 512

static int make_cycle(struct mr_pointwise *p)
{
    uint64_t period = p->inner * p->channels, length = mr_round_up(CYCLE_WANTED, period);
    p->cycle = malloc(p->n_pairs * 2 * length * sizeof(float));
    if (!p->cycle)
        return mr_error_nomem("transform", p->n_pairs * 2 * length * sizeof(float));
    p->cycle_length = length;
    for (uint64_t k = 0; k < p->n_pairs * 2; k++)
        for (uint64_t i = 0; i < length; i++)
            p->cycle[k * length + i] = p->c.f32[i / p->inner % p->channels][k / 2][k % 2];
    return 0;
}

int mr_pointwise_finish(struct mr_pointwise *p)
{
    if (!p->load && p->from != p->compute && p->compute != MR_N_DTYPES)
        p->load = p->compute == MR_F32 ? mr_load_f32(p->from) : mr_load_f64(p->from);
    if (p->to != p->compute && p->compute != MR_N_DTYPES)
        p->store = p->compute == MR_F32 ? mr_store_f32(p->to) : mr_store_f64(p->to);
    bool brief = p->inner > 0 && p->inner < SHORT_INNER && p->inner * p->channels <= BLOCK;
    if (p->channels > 1 && p->compute == MR_F32 && brief)
        return make_cycle(p);
    return 0;
}

static void apply_pairs(const struct mr_pointwise *p, uint32_t channel, uint32_t first, void *x,
                        size_t n)
{
    for (uint32_t k = first; k < p->n_pairs; k++)
        if (p->compute == MR_F64)
            mr_pair_f64(x, n, p->c.f64[channel][k]);
        else
            mr_pair_f32(x, n, p->c.f32[channel][k]);
}

/* n elements of one channel: to x, which holds the computing dtype. */
static void load_and_apply(const struct mr_pointwise *p, uint32_t channel, const void *in, void *x,
                           size_t n)
{
    uint32_t fused = MR_MIN(p->n_pairs, MR_FUSED_PAIRS);
    mr_pairs_f32 *kernel = p->compute == MR_F32 ? mr_pairs_load_f32(p->from, fused) : NULL;
    if (kernel)
        kernel(in, x, n, p->c.f32[channel][0]);
    else if (p->load)
        p->load(in, x, n);
    else
        memcpy(x, in, n * mr_dtype_size(p->from));
    apply_pairs(p, channel, kernel ? fused : 0, x, n);
}

/* The same where the constants cycle; in stands at the start of a cycle; n <= cycle_length. */
static void load_and_cycle(const struct mr_pointwise *p, const void *in, float *x, size_t n)
{
    uint32_t fused = MR_MIN(p->n_pairs, MR_FUSED_PAIRS);
    mr_cycle_f32 *kernel = mr_cycle_load_f32(p->from, fused);
    if (kernel)
        kernel(in, x, n, p->cycle, p->cycle_length);
    else if (p->load)
        p->load(in, x, n);
    else
        memcpy(x, in, n * sizeof *x);
    for (uint32_t k = kernel ? fused : 0; k < p->n_pairs; k++)
        mr_pair_cycle_f32(x, n, p->cycle + 2 * k * p->cycle_length,
                          p->cycle + (2 * k + 1) * p->cycle_length);
}

/* One pass over n elements in pieces of `piece`. cycle: the constants cycle; otherwise they are
 * those of one channel. */
static void run_range(const struct mr_pointwise *p, bool cycle, uint32_t channel, const void *in,
                      void *out, uint64_t n, uint64_t piece)
{
    double block[BLOCK]; /* aligned for both computing dtypes */
    const char *from = in;
    char *to = out;
    size_t from_bytes = mr_dtype_size(p->from), to_bytes = mr_dtype_size(p->to);
    for (uint64_t at = 0; at < n; at += piece) {
        size_t now = (size_t)MR_MIN(n - at, piece);
        void *x = p->store ? (void *)block : to + at * to_bytes;
        if (cycle)
            load_and_cycle(p, from + at * from_bytes, x, now);
        else
            load_and_apply(p, channel, from + at * from_bytes, x, now);
        if (p->store)
            p->store(x, to + at * to_bytes, now);
    }
}

/* One pass without blocks where no second one follows over the same elements. */
static bool single(const struct mr_pointwise *p)
{
    return !p->store && (p->n_pairs == 0 || (p->n_pairs <= MR_FUSED_PAIRS && p->compute == MR_F32 &&
                                             (p->from == MR_U8 || p->from == MR_F32)));
}

void mr_pointwise_run_channel(const struct mr_pointwise *p, uint32_t channel, const void *in,
                              void *out, uint64_t n)
{
    run_range(p, false, channel, in, out, n, single(p) ? UINT64_MAX : BLOCK);
}

void mr_pointwise_run(const struct mr_pointwise *p, uint64_t inner, const void *in, void *out,
                      uint64_t n)
{
    uint64_t piece = single(p) ? UINT64_MAX : BLOCK;
    if (p->direct)
        p->direct(in, out, n);
    else if (p->compute == MR_N_DTYPES)
        memcpy(out, in, n * mr_dtype_size(p->to));
    else if (p->channels == 1)
        run_range(p, false, 0, in, out, n, piece);
    else if (p->cycle)
        run_range(p, true, 0, in, out, n, p->cycle_length);
    else
        for (uint64_t at = 0, c = 0; at < n && inner > 0; at += inner, c = (c + 1) % p->channels)
            run_range(p, false, (uint32_t)c, (const char *)in + at * mr_dtype_size(p->from),
                      (char *)out + at * mr_dtype_size(p->to), MR_MIN(inner, n - at), piece);
}
