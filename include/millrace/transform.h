/*
 * Transforms: what happens to a sample between decoding and its row of the batch.
 *
 * A chain is a list of ops, written "cast(f32),scale(1/255),normalize(0.1307,0.3081)". Each op works on one field: the
 * first by default ("image"), "label" for one_hot; another is named in front: "label.cast(i64)". Shapes and dtypes are
 * inferred and checked when the chain is bound to a data set's fields.
 *
 * Random ops draw from Philox keyed by (seed, epoch, sample index, op's place in the chain): the same sample in the same
 * epoch is changed in the same way whoever works on it.
 *
 *   cast(dtype)                 convert, rounding once. To floats: to nearest even. To integers: to nearest even, saturated,
 *                               NaN -> 0. To bool: x != 0. Not from or to complex
 *   scale(factor[,offset])      x * factor + offset, rounded after each; floats only. An offset of 0 adds nothing
 *   normalize(mean,std)         (x - mean) * (1 / std); one number each, or one a channel [a,b,c] with axis= (default: the
 *                               first of 3 dimensions when it is as long as the lists, else the last; negative: from the
 *                               last); floats only
 *   layout(nchw|nhwc)           reorder 3 dimensions: HWC -> CHW or CHW -> HWC
 *   flatten                     to one dimension
 *   one_hot(classes[,dtype])    integer scalar -> vector of 0 and 1 (f32 by default); a label outside [0, classes) makes the
 *                               sample bad
 *   pad(n[,value]) pad(top:bottom:left:right[,value])   zeros, or value, around height and width
 *   crop(height,width[,top,left])  a fixed window, the centre by default (half a pixel is rounded to even, as torchvision
 *                               does)
 *   random_crop(height,width)   a window at a random place
 *   center_crop(size) center_crop(height,width)   the middle; half a pixel as for crop
 *   resize(size) resize(height,width)   [,filter=bilinear|bicubic|nearest][,max=]   one number: the shorter side becomes it,
 *                               the longer one is cut down to a whole number, and max bounds it (as torchvision's Resize)
 *   random_resized_crop(size[,scale_min,scale_max,ratio_min,ratio_max][,filter][,width=])   a part of the area between
 *                               scale_min (0.08) and scale_max (1) times the whole, width / height between ratio_min (3/4) and
 *                               ratio_max (4/3), resized to size x size; ten tries, then the middle (as torchvision's)
 *   hflip(p) vflip(p)           mirror left to right, top to bottom, with probability p (0.5)
 *   rotate(degrees[,fill])      by a random angle of up to degrees either way, about the middle, bilinear, same size; what lies
 *                               outside is fill (0). Within 1 of torchvision's for u8, 1e-4 for floats of 0..1
 *   color_jitter(brightness[,contrast,saturation,hue])   each a random factor of 1 - x .. 1 + x, hue a turn of -x .. x
 *                               (0..0.5), in random order; three channels of u8 or f32 (0..1). As torchvision's on tensors: u8 is
 *                               cut down after each; within 1 a step
 *   to_gray(p)                  three equal channels of ITU-R 601 luma with probability p (1); u8 is cut down
 *   gaussian_blur(kernel[,sigma_min,sigma_max])   kernel odd, sigma random in 0.1..2, edges mirrored; sums in f32, within 1 of
 *                               torchvision's for u8
 *   erase(p,scale_min,scale_max,ratio_min,ratio_max,value)   with probability p (0.5) fills a rectangle of 0.02..0.33 of the
 *                               area, height / width 0.3..3.3, with value (0) (Zhong et al., Random Erasing, AAAI 2020)
 *
 *   mixup(alpha) cutmix(alpha)  at the end of the first field's ops: each row of a batch is mixed with another row, one ring
 *                               through all of them by a keyed order; its part is drawn once a batch from Beta(alpha, alpha) (1),
 *                               keyed by seed, epoch and the batch's place. mixup: x * part + other * (1 - part) on floats or u8;
 *                               cutmix: a rectangle of the other. "label" is mixed by the same parts and has to be a vector of
 *                               floats: label.one_hot(classes). They do nothing to single samples: a loader does them, over the
 *                               rows that a batch delivers (Zhang et al., ICLR 2018; Yun et al., ICCV 2019)
 *
 * Arguments may be named: normalize(mean=0.1307,std=0.3081). A number may be a quotient: 1/255.
 *
 * Height and width are the last two dimensions, but of 3 or 4 the two before the last when the last is 1, 3 or 4 and the one
 * before height is none of these (28x28x1, 224x224x3, clips of 16x224x224x3). layout=nchw given to the op always means the
 * last two, layout=nhwc the two before the last. The frames of a clip are all changed in the same way.
 *
 * Resampling is antialiased: where the result is smaller, bilinear (a triangle) and bicubic (Keys, a = -0.5) are as wide as its
 * pixels. u8 gives the bytes of Pillow's resize, rounded after each of the two passes, across first (versions of Pillow that go
 * down first where that is cheaper differ by 1 in 3% of a photo's bytes, bicubic by up to 8). Other dtypes are summed in f64 and
 * rounded once. nearest takes the pixel that the middle of the result's lies in.
 *
 * Ops that cut or resize and follow each other (crop, center_crop, random_crop, with one resize or random_resized_crop among
 * them) are one pass. At the front of a chain on compressed pictures they also say how much is decoded, and JPEG is then
 * decoded at the smallest of the sizes 1/8 .. 8/8 that is enough, which changes the pixels a little: see the data set's `exact`.
 *
 * Points: a field named "points" (f32 or f64, last dimension 2: x, y in pixels, (0, 0) the middle of the first pixel) is moved as
 * the pixels of the picture ("image", or else the first field whose pixels are moved) are by crops, resizes, flips, rotate and pad, before ops of its own. Points may leave the picture.
 * A caller's own ops are taken to move none.
 *
 * Arithmetic is in the field's dtype, f16 and bf16 in f32 and rounded after each op; constants are rounded to the dtype
 * computed in, and 1 / std is the reciprocal of the rounded std. No products and sums are contracted, nothing is
 * reassociated: the result is the same, bit for bit, on every machine, and however ops are fused.
 *
 * A loader may run the end of a chain on a device that is not the host, where fewer bytes are copied then: cast, scale and
 * normalize from bool, u8, i8, u16 or i16 to f32, f16 or bf16, with layout, flatten and one hflip among them; one_hot. One
 * kernel does a field of a batch; its result is that of the host, bit for bit: f32 sums and products rounded each, f16 and
 * bf16 rounded to nearest even, and chains whose constants could overflow (infinities make NaNs, whose bits differ between
 * processors) stay on the host. So do samples of varying shape there. mixup and cutmix are part of that kernel, for each of the
 * two fields that has such an end; rows that are not yet mixed take no memory, and a number a row is all that is copied for it.
 *
 * A dimension that varies from sample to sample stays so through cast, scale, normalize (but not as its axis), layout, pad
 * and flips; flatten makes the one dimension vary; crops and resizes to one size fix it: a sample that is too small for a
 * crop is bad. resize(size) of varying pictures gives varying ones, with a bound that is large unless max is given.
 *
 * Threads: a bound chain is constant and may be applied from several threads, each with its own scratch.
 */
#ifndef MILLRACE_TRANSFORM_H
#define MILLRACE_TRANSFORM_H

#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_transform;

/* [out] out: an empty chain. Returns 0, -ENOMEM. */
MR_API int mr_transform_create(struct mr_transform **out);
MR_API void mr_transform_destroy(struct mr_transform *chain);

/* Appends the ops of a text, all or none; the chain is then to be bound again. At most 64 ops.
 * Returns 0, MR_EOPTION (names the op, its place and the argument), MR_ELIMIT, -ENOMEM. */
MR_API int mr_transform_add(struct mr_transform *chain, const char *text);

/* A caller's own op. */
struct mr_transform_fn {
    size_t size;       /* of this struct */
    const char *name;  /* copied */
    const char *field; /* NULL: the first; copied */
    /* Changes the spec from what comes in to what goes out. Returns 0 or mr_error_set(MR_ESHAPE, ...). */
    int (*infer)(void *user, struct mr_spec *spec);
    /* Writes the result for one sample. Called from several threads. random: 4 numbers keyed to this sample and op; draw
     * more with mr_philox. in_dim, out_dim: the sample's shape; out_dim preset to the inferred spec's. Returns 0 or a
     * negative error: the sample is then bad. */
    int (*apply)(void *user, const struct mr_spec *in_spec, const void *in, const uint64_t *in_dim,
                 const struct mr_spec *out_spec, void *out, uint64_t *out_dim, const uint32_t random[4]);
    void *user;
};
MR_API int mr_transform_add_fn(struct mr_transform *chain, const struct mr_transform_fn *fn);

/*
 * Infers and checks all shapes for samples of these fields, and plans the work. May be called again for other fields,
 * while no loader uses the chain (MR_EMISUSE).
 * Returns 0, or MR_ESHAPE with an error that names the op and both shapes.
 */
MR_API int mr_transform_bind(struct mr_transform *chain, const struct mr_spec *fields, int n_fields);

/* The specs that come out of a bound chain, as many as went in. */
MR_API const struct mr_spec *mr_transform_specs(const struct mr_transform *chain);

/* 1 when the bound chain leaves this field as it is. */
MR_API int mr_transform_is_identity(const struct mr_transform *chain, int field);

/* Bytes of scratch that one thread needs for a bound chain. */
MR_API uint64_t mr_transform_scratch_bytes(const struct mr_transform *chain);

/*
 * Applies a bound chain to one field of one sample.
 * in: the field as decoded, in_dim its shape. out: room for the output spec's bytes, in another place than in; neither
 * needs to be aligned. scratch: mr_transform_scratch_bytes(), aligned to 64, NULL if that is 0. [out] out_dim: the
 * result's shape.
 * Returns 0, or a negative error: the sample is bad.
 */
MR_API int mr_transform_apply(const struct mr_transform *chain, int field, uint64_t seed, uint64_t epoch,
                              uint64_t index, const void *in, const uint64_t *in_dim, void *out, uint64_t *out_dim,
                              void *scratch);

/* The chain as text that mr_transform_add() reads (a caller's own op stands there by its name, which it does not read);
 * owned by the chain, valid until it changes. */
MR_API const char *mr_transform_text(const struct mr_transform *chain);

/* Calls fn for each op known: name, arguments, one line about it. */
MR_API int mr_transform_each(int (*fn)(void *user, const char *name, const char *arguments, const char *summary),
                             void *user);

#ifdef __cplusplus
}
#endif
#endif
