/*
 * From decoded pixels to planes in one pass: [hflip,] cast, scale and normalize of u8 HWC with
 * three channels, then layout(nchw), form one stage. As separate stages they would write and read
 * the wide elements twice more than necessary.
 */
#include "transform/transform.h"

#include <string.h>

#define CHANNELS 3
#define BLOCK    1024 /* pixels that stay in the first-level cache between the steps */

static bool is_pointwise(const struct mr_field_plan *plan, const struct mr_pass *stage)
{
    const struct mr_pointwise *p = stage->point;
    if (!p || p->from != MR_U8 || p->compute == MR_N_DTYPES || !(p->channels == 1 || p->axis == 2))
        return false;
    for (uint32_t i = 0; i < stage->n_ops; i++)
        if (!plan->op[stage->first + i]->ops->fuse) /* flatten */
            return false;
    const struct mr_spec *in = &plan->op[stage->first]->in;
    return in->rank == 3 && in->dim[2] == CHANNELS && !(in->var_dims & 1u << 2);
}

static bool is_to_planes(const struct mr_field_plan *plan, const struct mr_pass *stage)
{
    const struct mr_op *op = plan->op[stage->first];
    return op->ops == &mr_op_layout && stage->mover == 0 && mr_layout_source(op, 0) == 2;
}

static bool is_flip(const struct mr_field_plan *plan, const struct mr_pass *stage)
{
    const struct mr_op *op = plan->op[stage->first];
    return stage->n_ops == 1 && op->ops == &mr_op_hflip && op->image.h == 0 && op->image.w == 1;
}

static void drop(struct mr_field_plan *plan, uint32_t k)
{
    plan->n_stages--;
    memmove(&plan->stage[k], &plan->stage[k + 1], (plan->n_stages - k) * sizeof *plan->stage);
}

void mr_planar_join(struct mr_field_plan *plan)
{
    for (uint32_t k = 0; k + 1 < plan->n_stages; k++) {
        struct mr_pass *stage = &plan->stage[k];
        if (!is_pointwise(plan, stage) || !is_to_planes(plan, stage + 1))
            continue;
        stage->planar = true;
        stage->n_ops += stage[1].n_ops;
        drop(plan, k + 1);
        if (k > 0 && is_flip(plan, stage - 1)) {
            stage->flip = plan->op[stage[-1].first];
            stage->first--;
            stage->n_ops++;
            drop(plan, k - 1);
        }
        return;
    }
}

/* Writes n <= BLOCK consecutive pixels to their positions in each plane. */
static void block_run(const struct mr_pointwise *p, bool mirrors, const unsigned char *in,
                      unsigned char *out, uint64_t plane, size_t n)
{
    uint8_t line[CHANNELS * BLOCK], mirrored[BLOCK];
    mr_split_u8(in, line, n);
    for (uint32_t c = 0; c < CHANNELS; c++) {
        const uint8_t *from = line + c * n;
        if (mirrors) {
            mr_mirror_u8(from, mirrored, n);
            from = mirrored;
        }
        mr_pointwise_run_channel(p, p->channels == 1 ? 0 : c, from, out + c * plane, n);
    }
}

void mr_planar_run(const struct mr_pass *stage, const struct mr_at *at, const uint64_t *dim,
                   const void *in, void *out)
{
    uint64_t height = dim[0], width = dim[1], element = mr_dtype_size(stage->point->to);
    uint64_t plane = height * width * element;
    uint32_t random[4];
    bool mirrors = false;
    if (stage->flip) {
        mr_op_draw(stage->flip, at, 0, random);
        mirrors = mr_hflip_mirrors(stage->flip, random);
    }
    if (!mirrors) { /* rows follow each other on both sides */
        width *= height;
        height = 1;
    }
    for (uint64_t y = 0; y < height; y++)
        for (uint64_t x = 0, n; x < width; x += n) {
            n = MR_MIN(width - x, BLOCK);
            uint64_t to = y * width + (mirrors ? width - x - n : x);
            block_run(stage->point, mirrors, (const unsigned char *)in + (y * width + x) * CHANNELS,
                      (unsigned char *)out + to * element, plane, (size_t)n);
        }
}
