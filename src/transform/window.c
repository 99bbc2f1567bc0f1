/* Window stages: consecutive ops that cut or resize, combined into one cut and done in one pass. */
#include "transform/resample.h"

#include <math.h>
#include <string.h>

#define MAX_SIDE 65536 /* limit for pictures whose size the spec only guesses */

void mr_cut_all(uint64_t width, uint64_t height, struct mr_cut *out)
{
    *out = (struct mr_cut){.clip_w = width,
                           .clip_h = height,
                           .w = (double)width,
                           .h = (double)height,
                           .size_w = width,
                           .size_h = height,
                           .out_w = width,
                           .out_h = height};
}

/* all, then a step that cuts from what all gives. Only one of the two resamples. */
static void cut_then(struct mr_cut *all, const struct mr_cut *step)
{
    if (all->resamples) {
        all->x0 += step->clip_x;
        all->y0 += step->clip_y;
        all->out_w = step->out_w;
        all->out_h = step->out_h;
        return;
    }
    struct mr_cut was = *all;
    *all = *step;
    all->clip_x += was.clip_x;
    all->clip_y += was.clip_y;
}

static int cut_of(const struct mr_field_plan *plan, const struct mr_pass *stage,
                  const struct mr_at *at, uint64_t width, uint64_t height, struct mr_cut *out)
{
    mr_cut_all(width, height, out);
    for (uint32_t i = 0; i < stage->n_windows; i++) {
        const struct mr_op *op = plan->op[stage->first + i];
        struct mr_cut step;
        int rc = op->ops->window(op, at, out->out_w, out->out_h, &step);
        if (rc)
            return rc;
        cut_then(out, &step);
    }
    return 0;
}

static uint64_t side(const struct mr_spec *spec, int d)
{
    return spec->var_dims >> d & 1 ? MR_MAX(spec->dim[d], MAX_SIDE) : spec->dim[d];
}

uint64_t mr_window_work(const struct mr_op *first, const struct mr_op *last, bool resamples)
{
    if (!resamples)
        return 0;
    const struct mr_spec *in = &first->in, *out = &last->out;
    int h = first->image.h, w = first->image.w;
    uint32_t channels = (uint32_t)mr_dims_after(in->dim, in->rank, w);
    return mr_resample_work(in->dtype, channels, side(in, w), side(in, h), out->dim[w],
                            out->dim[h]);
}

static void copy_cut(const struct mr_cut *cut, const struct mr_source *src, unsigned char *out)
{
    uint64_t pixel = src->channels * mr_dtype_size(src->dtype), row = cut->out_w * pixel;
    for (uint64_t k = 0; k < src->images; k++) {
        const unsigned char *from = src->data + k * src->plane +
                                    (cut->clip_y + cut->y0 - src->y) * src->stride +
                                    (cut->clip_x + cut->x0 - src->x) * pixel;
        if (row == src->stride) {
            memcpy(out, from, cut->out_h * row);
            out += cut->out_h * row;
            continue;
        }
        for (uint64_t y = 0; y < cut->out_h; y++, from += src->stride, out += row)
            memcpy(out, from, row);
    }
}

static void source_of_picture(const struct mr_picture *p, struct mr_source *out)
{
    *out = (struct mr_source){.data = p->data,
                              .stride = p->stride,
                              .images = 1,
                              .x = p->x,
                              .y = p->y,
                              .width = p->width,
                              .height = p->height,
                              .scale_x = p->scale_x,
                              .scale_y = p->scale_y,
                              .dtype = MR_U8,
                              .channels = p->channels};
}

static void source_of_field(const struct mr_op *op, const void *in, const uint64_t *dim,
                            struct mr_source *out)
{
    struct mr_pixels p = mr_pixels_of(op, dim);
    *out = (struct mr_source){.data = in,
                              .stride = p.w * p.pixel,
                              .plane = p.h * p.w * p.pixel,
                              .images = p.outer,
                              .width = p.w,
                              .height = p.h,
                              .scale_x = 1,
                              .scale_y = 1,
                              .dtype = op->in.dtype,
                              .channels = (uint32_t)(p.pixel / mr_dtype_size(op->in.dtype))};
}

static bool holds(const struct mr_source *src, const struct mr_cut *cut)
{
    uint64_t x = cut->clip_x + cut->x0, y = cut->clip_y + cut->y0;
    return src->scale_x == 1 && src->scale_y == 1 && x >= src->x && y >= src->y &&
           x + cut->out_w <= src->x + src->width && y + cut->out_h <= src->y + src->height;
}

int mr_window_run(const struct mr_field_plan *plan, const struct mr_pass *stage,
                  const struct mr_at *at, const struct mr_picture *picture, const void *in,
                  void *out, uint64_t *dim, void *work)
{
    const struct mr_op *first = plan->op[stage->first],
                       *last = plan->op[stage->first + stage->n_windows - 1];
    struct mr_source src;
    struct mr_cut cut;
    int h = first->image.h, w = first->image.w;
    uint64_t width = picture ? picture->full_width : dim[w],
             height = picture ? picture->full_height : dim[h];
    int rc = cut_of(plan, stage, at, width, height, &cut);
    if (rc)
        return rc;
    if (picture)
        source_of_picture(picture, &src);
    else
        source_of_field(first, in, dim, &src);
    if (src.width > side(&first->in, w) || src.height > side(&first->in, h) ||
        cut.out_w > last->out.dim[w] || cut.out_h > last->out.dim[h])
        return mr_op_error(
            first, MR_ELIMIT,
            "a picture of %llu x %llu pixels: expected at most %llu x %llu, and a result of "
            "%llu x %llu (height x width)",
            (unsigned long long)height, (unsigned long long)width,
            (unsigned long long)side(&first->in, h), (unsigned long long)side(&first->in, w),
            (unsigned long long)last->out.dim[h], (unsigned long long)last->out.dim[w]);
    if (!cut.resamples && holds(&src, &cut))
        copy_cut(&cut, &src, out);
    else if (!stage->resamples)
        return mr_op_error(first, MR_EMISUSE,
                           "the decoded pixels of the picture do not match "
                           "its window");
    else if (src.images > 0 && src.channels > 0)
        mr_resample(&cut, &src, out, work);
    dim[h] = cut.out_h;
    dim[w] = cut.out_w;
    for (uint32_t i = stage->n_windows; i < stage->n_ops; i++) { /* flatten */
        const struct mr_op *op = plan->op[stage->first + i];
        uint64_t next[MR_MAX_RANK];
        memcpy(next, dim, sizeof next);
        if (op->ops->shape)
            op->ops->shape(op, dim, next);
        memcpy(dim, next, sizeof next);
    }
    return 0;
}

/* Rounding may move the end of a sum of fractions past the clip's end: clamp it. */
static double within(double from, double size, double end)
{
    while (from + size > end)
        size = nextafter(MR_MIN(size, end - from), 0);
    return size;
}

bool mr_transform_has_window(const struct mr_transform *chain, int field)
{
    if (!chain->bound || field < 0 || field >= chain->n_tracks)
        return false;
    const struct mr_field_plan *plan = chain->plan[field];
    const struct mr_spec *in = &chain->in[field];
    return plan->n_stages > 0 && plan->stage[0].n_windows > 0 && plan->op[0]->image.h == 0 &&
           plan->op[0]->image.w == 1 && in->rank == 3 && in->dtype == MR_U8;
}

int mr_transform_window(const struct mr_transform *chain, int field, const struct mr_at *at,
                        uint32_t width, uint32_t height, struct mr_window *out)
{
    const struct mr_field_plan *plan = chain->plan[field];
    struct mr_cut cut;
    int rc = cut_of(plan, &plan->stage[0], at, width, height, &cut);
    if (rc)
        return rc;
    double scale_x = cut.w / (double)cut.size_w, scale_y = cut.h / (double)cut.size_h;
    *out = (struct mr_window){.x = (double)cut.clip_x + cut.x + (double)cut.x0 * scale_x,
                              .y = (double)cut.clip_y + cut.y + (double)cut.y0 * scale_y,
                              .w = (double)cut.out_w * scale_x,
                              .h = (double)cut.out_h * scale_y,
                              .clip_x = (uint32_t)cut.clip_x,
                              .clip_y = (uint32_t)cut.clip_y,
                              .clip_w = (uint32_t)cut.clip_w,
                              .clip_h = (uint32_t)cut.clip_h,
                              .out_w = (uint32_t)cut.out_w,
                              .out_h = (uint32_t)cut.out_h,
                              .filter = cut.filter};
    out->w = within(out->x, out->w, (double)(cut.clip_x + cut.clip_w));
    out->h = within(out->y, out->h, (double)(cut.clip_y + cut.clip_h));
    return 0;
}

bool mr_transform_is_window(const struct mr_transform *chain, int field, bool head)
{
    const struct mr_field_plan *plan = head ? chain->head[field] : chain->plan[field];
    return mr_transform_has_window(chain, field) && plan->n_stages == 1 &&
           plan->stage[0].n_ops == plan->n_ops && plan->stage[0].n_windows == plan->n_ops;
}

int mr_transform_cut(const struct mr_transform *chain, int field, const struct mr_at *at,
                     uint32_t width, uint32_t height, struct mr_cut *out)
{
    const struct mr_field_plan *plan = chain->plan[field];
    return cut_of(plan, &plan->stage[0], at, width, height, out);
}
