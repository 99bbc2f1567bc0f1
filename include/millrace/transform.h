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
 *                               first dimension for 3 dimensions, the last otherwise; negative: from the last); floats only
 *   layout(nchw|nhwc)           reorder 3 dimensions: HWC -> CHW or CHW -> HWC
 *   flatten                     to one dimension
 *   one_hot(classes[,dtype])    integer scalar -> vector of 0 and 1 (f32 by default); a label outside [0, classes) makes the
 *                               sample bad
 *   pad(n[,value]) pad(top:bottom:left:right[,value])   zeros, or value, around height and width
 *   crop(height,width[,top,left])  a fixed window, the centre by default (half a pixel is rounded to even, as torchvision
 *                               does)
 *   random_crop(height,width)   a window at a random place
 *   hflip(p)                    mirror left to right with probability p (0.5)
 *
 * Arguments may be named: normalize(mean=0.1307,std=0.3081). A number may be a quotient: 1/255.
 *
 * Height and width (pad, crop, random_crop, hflip) are the last two dimensions, but dimensions 0 and 1 of 3 when the last
 * is 1, 3 or 4 and the first is none of these (28x28x1, 224x224x3). layout=nchw given to the op always means the last two,
 * layout=nhwc the two before the last.
 *
 * Arithmetic is in the field's dtype, f16 and bf16 in f32 and rounded after each op; constants are rounded to the dtype
 * computed in, and 1 / std is the reciprocal of the rounded std. No products and sums are contracted, nothing is
 * reassociated: the result is the same, bit for bit, on every machine, and however ops are fused.
 *
 * A loader may run the end of a chain on a device that is not the host, where fewer bytes are copied then: cast, scale and
 * normalize from bool, u8, i8, u16 or i16 to f32, f16 or bf16, with layout, flatten and one hflip among them; one_hot. One
 * kernel does a field of a batch; its result is that of the host, bit for bit: f32 sums and products rounded each, f16 and
 * bf16 rounded to nearest even, and chains whose constants could overflow (infinities make NaNs, whose bits differ between
 * processors) stay on the host. So do samples of varying shape there.
 *
 * A dimension that varies from sample to sample stays so through cast, scale, normalize (but not as its axis), layout, pad
 * and hflip; flatten makes the one dimension vary; crop and random_crop fix it: a sample that is too small is bad.
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
