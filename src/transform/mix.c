/*
 * mixup and cutmix: mix rows of a batch with each other, and their labels in the same way.
 *
 * Zhang et al., mixup: Beyond Empirical Risk Minimization (ICLR 2018); Yun et al., CutMix (ICCV
 * 2019). Gamma variates: Marsaglia and Tsang, A simple method for generating gamma variables (ACM
 * TOMS 26(3), 2000).
 */
#include "transform/device_part.h"
#include "transform/transform.h"

#include <math.h>
#include <string.h>

struct mix_args {
    double alpha;
    int layout;
};

static const struct mr_option mix_options[] = {
    {.name = "alpha",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct mix_args, alpha),
     .initial = "1",
     .max = 1000,
     .help = "the part is drawn from Beta(alpha, alpha)"},
    {.name = "layout",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct mix_args, layout),
     .initial = "auto",
     .choices = mr_layout_choices,
     .help = "where height and width are"},
    {0},
};

static int mix_check(const struct mr_op *op)
{
    const struct mix_args *a = op->args;
    return a->alpha > 0 ? 0
                        : mr_op_error(op, MR_EOPTION, "expected %s(alpha), above 0", op->ops->name);
}

static bool is_float(enum mr_dtype d)
{
    return d == MR_F16 || d == MR_BF16 || d == MR_F32 || d == MR_F64;
}

static int mixup_infer(struct mr_op *op, struct mr_spec *spec)
{
    if (spec->var_dims || (!is_float(spec->dtype) && spec->dtype != MR_U8))
        return mr_op_misfit(op, spec, "needs floats or u8 of one shape, not");
    return 0;
}

static int cutmix_infer(struct mr_op *op, struct mr_spec *spec)
{
    int rc = mr_op_find_axes(op, spec, ((const struct mix_args *)op->args)->layout);
    return rc ? rc : mixup_infer(op, spec);
}

const struct mr_op_ops mr_op_mixup = {
    .name = "mixup",
    .arguments = "[alpha]",
    .summary = "mix each row of a batch, and its soft label, with another row",
    .options = mix_options,
    .positional = (const char *const[]){"alpha", NULL},
    .args_bytes = sizeof(struct mix_args),
    .check = mix_check,
    .infer = mixup_infer,
};

const struct mr_op_ops mr_op_cutmix = {
    .name = "cutmix",
    .arguments = "[alpha][,layout=]",
    .summary = "put a rectangle of another row of the batch into each, and mix their soft labels",
    .options = mix_options,
    .positional = (const char *const[]){"alpha", NULL},
    .args_bytes = sizeof(struct mix_args),
    .check = mix_check,
    .infer = cutmix_infer,
};

static int find_label(const struct mr_transform *chain, const struct mr_op *op, int *out)
{
    for (int f = 0; f < chain->n_fields; f++) {
        const struct mr_spec *spec = &chain->out[f];
        if (strcmp(spec->name, "label") != 0 || f == op->on)
            continue;
        *out = f;
        if (is_float(spec->dtype) && spec->rank == 1 && spec->var_dims == 0)
            return 0;
        return mr_op_misfit(op, spec,
                            "needs soft labels, a vector of floats: put label.one_hot(classes) "
                            "into the chain; it is");
    }
    return mr_op_error(op, MR_ESHAPE, "no field 'label' to mix with the pictures");
}

int mr_mix_bind(struct mr_transform *chain)
{
    chain->mix = NULL;
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        const struct mr_op *op = &chain->op[i];
        if (op->ops != &mr_op_mixup && op->ops != &mr_op_cutmix)
            continue;
        if (chain->mix)
            return mr_op_error(op, MR_ESHAPE, "a chain mixes once; '%s' comes before it",
                               chain->mix->text);
        if (op->on < 0 || op->on >= chain->n_fields)
            return mr_op_error(op, MR_ESHAPE, "mixes a field that a later op drops or takes");
        const struct mr_field_plan *plan = chain->plan[op->on];
        if (plan->op[plan->n_ops - 1] != op)
            return mr_op_error(op, MR_ESHAPE,
                               "works on whole batches: no op on its field may come after it");
        chain->mix = op;
        int rc = find_label(chain, op, &chain->mix_label);
        if (rc)
            return rc;
    }
    return 0;
}

/* A batch's numbers, as many as are asked for. */
struct draws {
    const struct mr_mix_at *at;
    uint32_t place, n;
};

#define OF_BATCH (1u << 31) /* samples' draws have no such counter */

static void draw(struct draws *d, uint32_t out[4])
{
    mr_draw4(d->at->seed, MR_DRAW_TRANSFORM, d->at->batch, d->at->epoch,
             OF_BATCH | d->n++ << 8 | d->place, out);
}

static double gamma_of(struct draws *d, double alpha)
{
    uint32_t r[4];
    double boost = 1;
    if (alpha < 1) {
        draw(d, r);
        boost = pow(mr_unit_f64(r[0], r[1]), 1 / alpha);
        alpha += 1;
    }
    double e = alpha - 1.0 / 3, c = 1 / sqrt(9 * e);
    for (;;) {
        draw(d, r);
        double normal = sqrt(-2 * log(1 - mr_unit_f64(r[0], r[1]))) *
                        cos(2 * 3.14159265358979323846 * ((double)r[2] * 0x1p-32));
        double v = 1 + c * normal, u = ((double)r[3] + 0.5) * 0x1p-32;
        v = v * v * v;
        if (v > 0 && log(u) < 0.5 * normal * normal + e - e * v + e * log(v))
            return e * v * boost;
    }
}

static double beta_of(struct draws *d, double alpha)
{
    double x = gamma_of(d, alpha), y = gamma_of(d, alpha);
    return x + y > 0 ? x / (x + y) : 0.5;
}

#define BLOCK 512

/* a = a * part + b * (1 - part), in f64 for f64, else in f32; rounded once. */
static void mix_elements(enum mr_dtype dtype, unsigned char *a, const unsigned char *b, uint64_t n,
                         double part)
{
    size_t size = mr_dtype_size(dtype);
    for (uint64_t at = 0; at < n; at += BLOCK) {
        size_t now = (size_t)MR_MIN(n - at, BLOCK);
        if (dtype == MR_F64) {
            double x[BLOCK], y[BLOCK];
            memcpy(x, a + at * size, now * size);
            memcpy(y, b + at * size, now * size);
            for (size_t i = 0; i < now; i++)
                x[i] = x[i] * part + y[i] * (1 - part);
            memcpy(a + at * size, x, now * size);
            continue;
        }
        float x[BLOCK], y[BLOCK], p = (float)part, q = (float)(1 - part);
        mr_load_f32(dtype)(a + at * size, x, now);
        mr_load_f32(dtype)(b + at * size, y, now);
        for (size_t i = 0; i < now; i++)
            x[i] = x[i] * p + y[i] * q;
        mr_store_f32(dtype)(x, a + at * size, now);
    }
}

bool mr_mix_cuts(const struct mr_transform *chain, int field)
{
    return chain->mix && chain->mix->on == field && chain->mix->ops == &mr_op_cutmix;
}

bool mr_mix_adds(const struct mr_transform *chain, int field)
{
    return chain->mix &&
           (chain->mix->on == field ? !mr_mix_cuts(chain, field) : chain->mix_label == field);
}

static void choose_box(const struct mr_op *op, struct draws *d, struct mr_mixture *m)
{
    uint32_t r[4];
    draw(d, r);
    uint64_t h = op->in.dim[op->image.h], w = op->in.dim[op->image.w];
    double half = 0.5 * sqrt(1 - m->part);
    uint64_t half_h = (uint64_t)(half * (double)h), half_w = (uint64_t)(half * (double)w);
    uint64_t y = r[0] * h >> 32, x = r[1] * w >> 32;
    m->y0 = y - MR_MIN(y, half_h);
    m->x0 = x - MR_MIN(x, half_w);
    m->y1 = MR_MIN(y + half_h, h);
    m->x1 = MR_MIN(x + half_w, w);
    m->part = 1 - (double)((m->x1 - m->x0) * (m->y1 - m->y0)) / (double)(h * w);
}

void mr_mix_choose(const struct mr_transform *chain, const struct mr_mix_at *at, uint64_t rows,
                   struct mr_mixture *out)
{
    const struct mr_op *op = chain->mix;
    struct draws d = {at, op->place, 0};
    *out = (struct mr_mixture){.rows = rows, .part = 1, .epoch = at->epoch};
    out->key = mr_mix64(at->seed ^ mr_mix64(at->batch + 0x6d6978));
    if (rows < 2)
        return;
    out->part = beta_of(&d, ((const struct mix_args *)op->args)->alpha);
    if (op->ops == &mr_op_cutmix)
        choose_box(op, &d, out);
}

/* One ring through all rows: the row at place i is the partner of the one before. */
static uint64_t at_place(const struct mr_mixture *m, uint64_t i)
{
    return mr_permute(i < m->rows ? i : 0, m->rows, m->key, m->epoch);
}

void mr_mix_partners(const struct mr_mixture *m, uint32_t *partner)
{
    for (uint64_t i = 0, row = m->rows ? at_place(m, 0) : 0; i < m->rows; i++) {
        uint64_t next = at_place(m, i + 1);
        partner[row] = (uint32_t)next;
        row = next;
    }
}

static void cut_row(const struct mr_op *op, const struct mr_mixture *m, unsigned char *a,
                    const unsigned char *b)
{
    struct mr_pixels p = mr_pixels_of(op, op->in.dim);
    for (uint64_t o = 0; o < p.outer; o++)
        for (uint64_t y = m->y0; y < m->y1; y++) {
            uint64_t at = ((o * p.h + y) * p.w + m->x0) * p.pixel;
            memcpy(a + at, b + at, (m->x1 - m->x0) * p.pixel);
        }
}

void mr_mix_rows(const struct mr_transform *chain, const struct mr_mixture *m, int field,
                 unsigned char *base, uint64_t row_bytes, unsigned char *room)
{
    const struct mr_spec *spec = &chain->out[field];
    if (m->rows < 2)
        return;
    uint64_t first = at_place(m, 0), to = first,
             elements = mr_dims_after(spec->dim, spec->rank, -1);
    /* the last row uses the original first row */
    memcpy(room, base + first * row_bytes, row_bytes);
    for (uint64_t i = 0; i < m->rows; i++) {
        uint64_t from = at_place(m, i + 1);
        const unsigned char *other = i + 1 < m->rows ? base + from * row_bytes : room;
        if (mr_mix_cuts(chain, field))
            cut_row(chain->mix, m, base + to * row_bytes, other);
        else
            mix_elements(spec->dtype, base + to * row_bytes, other, elements, m->part);
        to = from;
    }
}

/* What an element of a one_hot becomes: neither row's class, its own row's, its partner's, both. */
static void mix_hot(enum mr_dtype dtype, const uint32_t one[2], double part, uint32_t value[4][2])
{
    static const uint32_t zero[2];
    for (int k = 0; k < 4; k++) {
        memcpy(value[k], k & 1 ? one : zero, sizeof value[k]);
        mix_elements(dtype, (unsigned char *)value[k], (const unsigned char *)(k & 2 ? one : zero),
                     1, part);
    }
}

static struct mr_mix_how how_of(const struct mr_transform *chain, const struct mr_mixture *m,
                                int field)
{
    struct mr_mix_how how = {.part = (float)m->part, .rest = (float)(1 - m->part)};
    if (!mr_mix_cuts(chain, field))
        return how;
    const struct mr_op *op = chain->mix;
    struct mr_pixels p = mr_pixels_of(op, op->in.dim);
    how.cuts = 1;
    how.height = (uint32_t)p.h;
    how.width = (uint32_t)p.w;
    how.pixel = (uint32_t)(p.pixel / mr_dtype_size(op->in.dtype));
    how.x0 = (uint32_t)m->x0;
    how.x1 = (uint32_t)m->x1;
    how.y0 = (uint32_t)m->y0;
    how.y1 = (uint32_t)m->y1;
    return how;
}

void mr_mix_device_part(const struct mr_transform *chain, const struct mr_mixture *m, int field,
                        const uint32_t *partner, struct mr_device_part *part)
{
    if (part->hot) {
        struct mr_one_hot_mix_args *a = &part->args.one_hot_mix;
        a->partner = partner;
        mix_hot(chain->out[field].dtype, a->hot.value, m->part, a->value);
        return;
    }
    part->args.point_mix.mix = how_of(chain, m, field);
    part->args.point_mix.mix.partner = partner;
}
