/*
 * Convolutions of nets on GPUs, as products of patches. Rows of the patches' matrix are output
 * pixels; a row has k * k * in elements in order ky, kx, channel, and zeros up to a multiple of 8,
 * which tensor cores want. Filters are stored as PyTorch does (OIHW) and put into the same order
 * for the product; their gradients come back the other way.
 *
 * Large batches go in parts, so that the patches of one stay in the GPU's cache. Patches of a batch
 * that is one part are kept from the forward pass for the backward pass. The filters' gradient in
 * f32 needs no patches where the shape and the batch allow it: conv3.c.
 */
#include "nn/cuda/cuda.h"

#define PART_BYTES (96ull << 20)
#define KEEP_BYTES (64ull << 20) /* of one layer */
#define KEEP_ALL   (1ull << 30)

struct shape {
    uint32_t taps, patch, pixels; /* k * k; elements of a row; rows of a sample */
    uint64_t sample_bytes;        /* of patches */
    bool as_they_are;             /* x is the patches */
    bool filter_as_is;
};

static struct shape shape_of(const struct mr_nn_backend *b, const struct mr_nn_conv *c)
{
    struct shape s = {.taps = c->k * c->k, .pixels = c->out_h * c->out_w};
    uint32_t elements = s.taps * c->in;
    s.patch = (uint32_t)mr_round_up(elements, 8);
    s.sample_bytes = (uint64_t)s.pixels * s.patch * b->element;
    s.filter_as_is = s.patch == elements && (s.taps == 1 || c->in == 1);
    s.as_they_are = s.patch == elements && s.taps == 1 && c->stride == 1 && c->pad == 0;
    return s;
}

/* Samples of a part: places in it are then aligned to 16 bytes. */
static uint32_t part_of(const struct shape *s, uint32_t n)
{
    uint64_t most = PART_BYTES / s->sample_bytes / 8 * 8;
    return (uint32_t)MR_MIN(n, MR_MAX(most, 8));
}

struct mr_nn_div mr_nn_cuda_div_by(uint32_t d)
{
    uint32_t shift = 0;
    d = MR_MAX(d, 1);
    while (shift < 31 && 1u << shift < d)
        shift++;
    uint64_t rest = (1ull << shift) - d;
    return (struct mr_nn_div){.d = d, .mul = (uint32_t)((rest << 32) / d + 1), .shift = shift};
}

/* Makes shared scratch larger. */
static int grow(struct mr_nn_backend *b, void **p, uint64_t *have, uint64_t bytes)
{
    if (*have >= bytes)
        return 0;
    mr_nn_cuda_release(b, *p);
    *p = NULL;
    b->bytes -= *have;
    *have = 0;
    int rc = mr_nn_cuda_acquire(b, bytes, p);
    if (!rc)
        *have = bytes;
    return rc;
}

static int check(const struct mr_nn_conv *c, const struct shape *s)
{
    uint64_t part = part_of(s, c->n), in = (uint64_t)c->h * c->w * c->in;
    if ((uint64_t)c->k * c->k * c->in > INT32_MAX / 2 ||
        (uint64_t)c->out_h * c->out_w > INT32_MAX || (uint64_t)c->n * s->pixels > INT32_MAX ||
        part * s->pixels > INT32_MAX / s->patch || part > INT32_MAX / in)
        return mr_error_set(
            MR_ELIMIT,
            "net: a convolution of %ux%ux%u by %ux%u is too large for cuda at batches of %u", c->in,
            c->h, c->w, c->k, c->k, c->n);
    return 0;
}

int mr_nn_cuda_plan_conv(struct mr_nn_backend *b, const struct mr_nn_conv *c)
{
    struct shape s = shape_of(b, c);
    struct mr_nn_cuda_conv *slot;
    uint64_t part = part_of(&s, c->n) * s.sample_bytes;
    bool keep = !s.as_they_are && !mr_nn_cuda_is_thin(c) && part_of(&s, c->n) == c->n &&
                part <= KEEP_BYTES && b->kept_bytes + part <= KEEP_ALL;
    int rc = check(c, &s);
    if (!rc)
        rc = mr_grow("net", &b->conv, &b->room_convs, b->n_convs + 1ull, sizeof *b->conv);
    if (rc)
        return rc;
    slot = &b->conv[b->n_convs++];
    *slot = (struct mr_nn_cuda_conv){.shape = *c};
    if (!s.filter_as_is)
        rc = mr_nn_cuda_acquire(b, (uint64_t)c->out * s.patch * b->element, &slot->filter);
    if (!rc && !s.filter_as_is)
        rc = grow(b, &b->dfilter, &b->dfilter_bytes, (uint64_t)c->out * s.patch * sizeof(float));
    if (!rc && keep) {
        rc = mr_nn_cuda_acquire(b, part, &slot->cols);
        b->kept_bytes += part;
    }
    if (!rc && !s.as_they_are)
        rc = grow(b, &b->scratch, &b->scratch_bytes, part);
    return rc;
}

void mr_nn_cuda_conv_close(struct mr_nn_backend *b)
{
    for (uint32_t i = 0; i < b->n_convs; i++) {
        mr_nn_cuda_release(b, b->conv[i].filter);
        mr_nn_cuda_release(b, b->conv[i].cols);
    }
    mr_nn_cuda_release(b, b->scratch);
    mr_nn_cuda_release(b, b->dfilter);
    free(b->conv);
}

static bool fits(const struct mr_nn_conv *a, const struct mr_nn_conv *b)
{
    return a->in == b->in && a->h == b->h && a->w == b->w && a->out == b->out && a->k == b->k &&
           a->stride == b->stride && a->pad == b->pad && b->n <= a->n;
}

/* The convolution with these weights, or the first one of its shape that is not claimed yet. */
static struct mr_nn_cuda_conv *find(struct mr_nn_backend *b, const struct mr_nn_conv *c,
                                    const void *w)
{
    for (uint32_t i = 0; i < b->n_convs; i++)
        if (b->conv[i].w == w && fits(&b->conv[i].shape, c))
            return &b->conv[i];
    for (uint32_t i = 0; i < b->n_convs; i++)
        if (!b->conv[i].w && fits(&b->conv[i].shape, c)) {
            b->conv[i].w = w;
            return &b->conv[i];
        }
    mr_error_set(MR_EMISUSE, "net: a convolution that was not planned");
    return NULL;
}

/* Sizes in units of 16 bytes where channels are whole ones. */
static struct mr_nn_gpu_cols cols_of(const struct mr_nn_backend *b, const struct mr_nn_conv *c,
                                     const struct shape *s)
{
    bool wide = c->in * b->element % 16 == 0;
    uint32_t unit = wide ? (uint32_t)(16 / b->element) : 1, channels = c->in / unit,
             patch = s->patch / unit;
    return (struct mr_nn_gpu_cols){.h = c->h,
                                   .w = c->w,
                                   .k = c->k,
                                   .pad = c->pad,
                                   .stride = c->stride,
                                   .out_h = c->out_h,
                                   .out_w = c->out_w,
                                   .channels = channels,
                                   .patch = patch,
                                   .by_patch = mr_nn_cuda_div_by(patch),
                                   .by_channels = mr_nn_cuda_div_by(channels),
                                   .by_k = mr_nn_cuda_div_by(c->k),
                                   .by_out_w = mr_nn_cuda_div_by(c->out_w),
                                   .by_out_h = mr_nn_cuda_div_by(c->out_h),
                                   .by_w = mr_nn_cuda_div_by(c->w),
                                   .by_h = mr_nn_cuda_div_by(c->h),
                                   .by_stride = mr_nn_cuda_div_by(c->stride),
                                   .wide = wide};
}

static int im2col(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                  uint32_t n, const void *x, void *cols)
{
    struct mr_nn_gpu_cols a = cols_of(b, c, s);
    a.x = x;
    a.out = cols;
    a.count = n * s->pixels * a.patch;
    return mr_nn_cuda_launch(b, MR_NN_GPU_im2col, mr_nn_cuda_blocks(a.count), 1, &a);
}

static int col2im(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                  uint32_t n, const void *cols, void *dx)
{
    struct mr_nn_gpu_cols a = cols_of(b, c, s);
    a.x = cols;
    a.out = dx;
    a.count = n * c->h * c->w * a.channels;
    return mr_nn_cuda_launch(b, MR_NN_GPU_col2im, mr_nn_cuda_blocks(a.count), 1, &a);
}

static int order_filter(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                        const void *w, void *to)
{
    struct mr_nn_gpu_filter a = {
        .x = w, .out = to, .n = c->out, .in = c->in, .kk = s->taps, .patch = s->patch};
    return mr_nn_cuda_launch(b, MR_NN_GPU_filter, mr_nn_cuda_blocks((uint64_t)c->out * s->patch), 1,
                             &a);
}

int mr_nn_cuda_conv_forward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                            const void *w, const void *bias, void *y)
{
    struct mr_nn_cuda_conv *slot = find(b, c, w);
    struct shape s = shape_of(b, c);
    if (!slot)
        return MR_EMISUSE;
    if (mr_nn_cuda_is_thin(c))
        return mr_nn_cuda_thin_forward(b, c, x, w, bias, y);
    int rc = slot->filter ? order_filter(b, c, &s, w, slot->filter) : 0;
    uint32_t part = part_of(&s, c->n);
    void *cols = slot->cols ? slot->cols : b->scratch;
    for (uint32_t at = 0; at < c->n && !rc; at += part) {
        uint32_t n = MR_MIN(part, c->n - at);
        const char *in = (const char *)x + (uint64_t)at * c->h * c->w * c->in * b->element;
        if (!s.as_they_are)
            rc = im2col(b, c, &s, n, in, cols);
        struct mr_nn_product p = {.tb = 1,
                                  .m = n * s.pixels,
                                  .n = c->out,
                                  .k = s.patch,
                                  .lda = s.patch,
                                  .ldb = s.patch,
                                  .ldd = c->out,
                                  .act = c->act,
                                  .a = s.as_they_are ? (const void *)in : cols,
                                  .b = slot->filter ? slot->filter : w,
                                  .bias = bias,
                                  .d = (char *)y + (uint64_t)at * s.pixels * c->out * b->element};
        if (!rc)
            rc = mr_nn_cuda_product(b, &p);
    }
    return rc;
}

/* The patches' gradients of a part; they are dx where x is the patches. */
static int part_to_patches(struct mr_nn_backend *b, const struct mr_nn_conv *c,
                           const struct shape *s, uint32_t n, const void *filter, const void *dy,
                           void *dx)
{
    struct mr_nn_product p = {.m = n * s->pixels,
                              .n = s->patch,
                              .k = c->out,
                              .lda = c->out,
                              .ldb = s->patch,
                              .ldd = s->patch,
                              .a = dy,
                              .b = filter,
                              .d = s->as_they_are ? dx : b->scratch};
    return mr_nn_cuda_product(b, &p);
}

/* ... and each pixel's added up. */
static int patches_to_x(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                        uint32_t n, void *dx)
{
    return s->as_they_are ? 0 : col2im(b, c, s, n, b->scratch, dx);
}

static int all_to_x(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                    const void *filter, const void *dy, void *dx)
{
    uint64_t in_bytes = (uint64_t)c->h * c->w * c->in * b->element,
             out_bytes = (uint64_t)s->pixels * c->out * b->element;
    uint32_t part = part_of(s, c->n);
    int rc = 0;
    for (uint32_t at = 0; at < c->n && !rc; at += part) {
        uint32_t n = MR_MIN(part, c->n - at);
        char *to = (char *)dx + at * in_bytes;
        rc = part_to_patches(b, c, s, n, filter, (const char *)dy + at * out_bytes, to);
        if (!rc)
            rc = patches_to_x(b, c, s, n, to);
    }
    return rc;
}

static int part_to_w(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                     uint32_t n, const void *cols, const void *dy, void *dw, int accumulate)
{
    struct mr_nn_product p = {.ta = 1,
                              .m = c->out,
                              .n = s->patch,
                              .k = n * s->pixels,
                              .lda = c->out,
                              .ldb = s->patch,
                              .ldd = s->patch,
                              .d_f32 = 1,
                              .accumulate = accumulate,
                              .a = dy,
                              .b = cols,
                              .d = dw};
    return mr_nn_cuda_product(b, &p);
}

/* From the patches that forward kept, from patches that are made again, or without any. */
static int all_to_w(struct mr_nn_backend *b, const struct mr_nn_conv *c, const struct shape *s,
                    const struct mr_nn_cuda_conv *slot, const void *x, const void *dy, void *dw,
                    int accumulate)
{
    uint64_t in_bytes = (uint64_t)c->h * c->w * c->in * b->element,
             out_bytes = (uint64_t)s->pixels * c->out * b->element;
    uint32_t part = part_of(s, c->n);
    void *to = slot->filter ? b->dfilter : dw;
    int rc = 0;
    if (mr_nn_cuda_conv3_shares(b, c))
        return mr_nn_cuda_conv3_dw(b, c, x, dy, dw, accumulate);
    for (uint32_t at = 0; at < c->n && !rc; at += part) {
        uint32_t n = MR_MIN(part, c->n - at);
        const void *in = (const char *)x + at * in_bytes;
        const void *cols = s->as_they_are ? in : slot->cols ? slot->cols : b->scratch;
        if (cols == b->scratch)
            rc = im2col(b, c, s, n, in, b->scratch);
        if (!rc)
            rc = part_to_w(b, c, s, n, cols, (const char *)dy + at * out_bytes, to,
                           at > 0 || (accumulate && !slot->filter));
    }
    if (rc || !slot->filter)
        return rc;
    struct mr_nn_gpu_filter a = {.x = b->dfilter,
                                 .out = dw,
                                 .n = c->out,
                                 .in = c->in,
                                 .kk = s->taps,
                                 .patch = s->patch,
                                 .accumulate = accumulate};
    return mr_nn_cuda_launch(b, MR_NN_GPU_unfilter,
                             mr_nn_cuda_blocks((uint64_t)c->out * c->in * s->taps), 1, &a);
}

int mr_nn_cuda_conv_backward(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                             const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                             int accumulate)
{
    struct mr_nn_cuda_conv *slot = find(b, c, w);
    struct shape s = shape_of(b, c);
    if (!slot)
        return MR_EMISUSE;
    if (mr_nn_cuda_is_thin(c) && !dx)
        return mr_nn_cuda_thin_backward(b, c, x, y, dy, dw, db, accumulate);
    const void *filter = slot->filter ? slot->filter : w;
    bool beside = dx && (s.as_they_are ||
                         slot->cols); /* dw and dx share no scratch then; dw's is all beside */
    bool whole = beside && part_of(&s, c->n) == c->n;
    int rc = mr_nn_cuda_undo(b, c->act, NULL, c->n * s.pixels, c->out, y, dy, db, accumulate);
    if (!rc && mr_nn_cuda_is_thin(c)) /* forward had no use for it */
        rc = order_filter(b, c, &s, w, slot->filter);
    if (!rc && whole) /* first: others wait for it, and two products at once wait for each other */
        rc = part_to_patches(b, c, &s, c->n, filter, dy, dx);
    if (!rc)
        rc = beside ? mr_nn_cuda_aside(b) : mr_nn_cuda_join(b);
    if (!rc)
        rc = all_to_w(b, c, &s, slot, x, dy, dw, accumulate);
    mr_nn_cuda_back(b);
    if (rc || !dx)
        return rc;
    return whole ? patches_to_x(b, c, &s, c->n, dx) : all_to_x(b, c, &s, filter, dy, dx);
}
