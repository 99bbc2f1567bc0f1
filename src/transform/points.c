/* Points in a picture, moved as its pixels are. */
#include "transform/transform.h"

#include <string.h>

static bool is_points(const struct mr_spec *spec)
{
    bool floats = spec->dtype == MR_F32 || spec->dtype == MR_F64;
    return strcmp(spec->name, "points") == 0 && floats && spec->rank >= 1 &&
           spec->dim[spec->rank - 1] == 2 && !(spec->var_dims >> (spec->rank - 1) & 1);
}

static bool moves(const struct mr_field_plan *plan)
{
    bool moved = false;
    for (uint32_t i = 0; i < plan->n_ops; i++)
        moved |= plan->op[i]->ops->map || plan->op[i]->ops->window;
    return moved;
}

/* The picture is "image", or else the first field whose pixels some op moves. */
static int find_picture(const struct mr_transform *chain, int points)
{
    int first = -1;
    for (int f = 0; f < chain->n_fields; f++) {
        if (f == points || chain->source[f] < 0 || !moves(chain->plan[f]))
            continue;
        if (strcmp(chain->in[f].name, "image") == 0)
            return f;
        first = first < 0 ? f : first;
    }
    return first;
}

/* Points cannot follow pixels that are moved on their way to no field of the output. */
static int check_moves(const struct mr_transform *chain)
{
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        const struct mr_op *op = &chain->op[i];
        bool seen = !op->ops->map && !op->ops->window;
        for (int f = 0; f < chain->n_fields && !seen; f++)
            for (uint32_t k = 0; k < chain->plan[f]->n_ops; k++)
                seen = seen || chain->plan[f]->op[k] == op;
        if (!seen)
            return mr_op_error(
                op, MR_ESHAPE,
                "moves pixels of a field that is dropped or taken later, and 'points' would "
                "not move with them");
    }
    return 0;
}

int mr_points_find(const struct mr_transform *chain, int *out, int *picture)
{
    for (int f = 0; f < chain->n_fields; f++) {
        if (!is_points(&chain->in[f]))
            continue;
        if (chain->source[f] < 0) /* an op over several fields made them */
            continue;
        int rc = check_moves(chain), p = find_picture(chain, f);
        if (rc < 0)
            return rc;
        if (p < 0)
            continue;
        *out = f;
        *picture = p;
        return 1;
    }
    return 0;
}

/* m becomes step after m. */
static void then(double m[6], const double step[6])
{
    double was[6];
    memcpy(was, m, sizeof was);
    for (int r = 0; r < 2; r++) {
        const double *s = step + 3 * r;
        m[3 * r] = s[0] * was[0] + s[1] * was[3];
        m[3 * r + 1] = s[0] * was[1] + s[1] * was[4];
        m[3 * r + 2] = s[0] * was[2] + s[1] * was[5] + s[2];
    }
}

/* Where an op's window puts pixels: the box's first pixel's edge becomes -0.5. */
static int window_map(const struct mr_op *op, const struct mr_at *at, uint64_t *dim, double m[6])
{
    struct mr_cut cut;
    int rc = op->ops->window(op, at, dim[op->image.w], dim[op->image.h], &cut);
    if (rc)
        return rc;
    m[0] = (double)cut.size_w / cut.w;
    m[2] = (0.5 - (double)cut.clip_x - cut.x) * m[0] - 0.5 - (double)cut.x0;
    m[4] = (double)cut.size_h / cut.h;
    m[5] = (0.5 - (double)cut.clip_y - cut.y) * m[4] - 0.5 - (double)cut.y0;
    dim[op->image.w] = cut.out_w;
    dim[op->image.h] = cut.out_h;
    return 0;
}

/* dim: the picture's before the op, and after it. */
static int step_of(const struct mr_op *op, const struct mr_at *at, uint64_t *dim, double m[6])
{
    uint64_t next[MR_MAX_RANK];
    memcpy(m, (const double[6]){1, 0, 0, 0, 1, 0}, 6 * sizeof *m);
    if (op->ops->window)
        return window_map(op, at, dim, m);
    if (op->ops->map)
        op->ops->map(op, at, dim[op->image.w], dim[op->image.h], m);
    if (!op->ops->shape)
        return 0;
    memcpy(next, dim, sizeof next);
    op->ops->shape(op, dim, next);
    memcpy(dim, next, sizeof next);
    return 0;
}

static int find_dims(const struct mr_transform *chain, const struct mr_at *at, uint64_t *dim)
{
    const struct mr_spec *spec = &chain->in[chain->pointed];
    memcpy(dim, at->dim ? at->dim : spec->dim, sizeof spec->dim);
    if (at->height > 0) {
        dim[0] = at->height;
        dim[1] = at->width;
    } else if (!at->dim && spec->var_dims) {
        return mr_error_set(MR_EMISUSE,
                            "transform: points move with the pixels of %s, whose "
                            "size is unknown",
                            spec->name);
    }
    return 0;
}

static int matrix_of(const struct mr_transform *chain, const struct mr_at *at, double m[6])
{
    const struct mr_field_plan *plan = chain->plan[chain->pointed];
    uint64_t dim[MR_MAX_RANK];
    int rc = find_dims(chain, at, dim);
    memcpy(m, (const double[6]){1, 0, 0, 0, 1, 0}, 6 * sizeof *m);
    for (uint32_t i = 0; i < plan->n_ops && !rc; i++) {
        double step[6];
        rc = step_of(plan->op[i], at, dim, step);
        if (!rc)
            then(m, step);
    }
    return rc;
}

int mr_points_move(const struct mr_transform *chain, const struct mr_at *at, const void *in,
                   uint64_t elements, void *out)
{
    enum mr_dtype dtype = chain->in[chain->points].dtype;
    double m[6], p[2];
    int rc = matrix_of(chain, at, m);
    size_t pair = 2 * mr_dtype_size(dtype);
    for (uint64_t i = 0; i < elements / 2 && !rc; i++) {
        mr_load_f64(dtype)((const char *)in + i * pair, p, 2);
        double moved[2] = {m[0] * p[0] + m[1] * p[1] + m[2], m[3] * p[0] + m[4] * p[1] + m[5]};
        mr_store_f64(dtype)(moved, (char *)out + i * pair, 2);
    }
    return rc;
}
