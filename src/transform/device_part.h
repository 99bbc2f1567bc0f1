/*
 * The part of a field's chain that runs on the device: what the loader needs of it.
 *
 * It is a run of ops at the end of the chain that one kernel does for the whole batch, from fewer
 * bytes than come out: cast, scale, normalize from bool, u8, i8, u16 or i16 to f32, f16 or bf16,
 * with layout, flatten and one hflip among them; or one_hot. The ops before it, the head, stay with
 * the workers. Device parts give the bits that the host's ops give.
 *
 * mixup and cutmix end the device parts of the fields that they mix: the kernel computes a row and
 * its partner's and writes their mixture, so no memory is needed for rows that are not yet mixed. A
 * mixed field without a device part is mixed by the host.
 */
#ifndef MR_TRANSFORM_DEVICE_PART_H
#define MR_TRANSFORM_DEVICE_PART_H

#include "base/base.h"
#include "kernels/batch/batch.h"
#include <millrace/transform.h>

struct mr_op;

struct mr_device_part {
    const char *kernel; /* "pointwise", "one_hot", "pointwise_mix", "one_hot_mix" */
    size_t arg_bytes;
    union {
        struct mr_point_args point; /* in, out, flip and rows are the loader's to set */
        struct mr_one_hot_args one_hot;
        struct mr_point_mix_args point_mix; /* begins with the above */
        struct mr_one_hot_mix_args one_hot_mix;
    } args;
    struct mr_spec in; /* of one sample, as the head leaves it: fixed */
    uint64_t in_bytes, out_bytes;
    const struct mr_op *flip; /* the device part's hflip; NULL: none */
    bool hot;                 /* one_hot, else pointwise */
    bool mixes;
    bool as_decoded; /* the head does nothing */
    bool whole;      /* the head moves nothing: at most it checks a label */
    char text[96];   /* "cast,scale,normalize" */
};

/* What mixup or cutmix do to one batch: a ring through its rows, the part of each that stays, the
 * rectangle that does not. */
struct mr_mixture {
    uint64_t rows, key, epoch;
    double part;
    uint64_t x0, x1, y0, y1; /* cutmix */
};

/*
 * Looks for the device part of a field of a bound chain that ships the fewest bytes, and plans the
 * head. has: 1 when the device has the kernel, 0 when not, or an error. Until the chain is bound
 * again, mr_transform_apply_head() may be called for the field; mr_transform_apply() does the whole
 * chain as before. [out] out: on 1. Returns 1, 0: none saves bytes; -ENOMEM, or the error of has.
 */
int mr_device_part_find(struct mr_transform *chain, int field,
                        int (*has)(void *user, const char *kernel), void *user,
                        struct mr_device_part *out);

/* mr_transform_apply() for the head; the result has the shape of the device part's `in`. What the
 * part would refuse is refused here: a label that one_hot has no class for. */
struct mr_at;
int mr_transform_apply_head(const struct mr_transform *chain, int field, const struct mr_at *at,
                            const void *in, const uint64_t *in_dim, void *out, void *scratch);

/* The partner of each row of the batch. */
void mr_mix_partners(const struct mr_mixture *m, uint32_t *partner);
/* Sets the parameters of a device part that mixes, for one batch. partner: in device memory. */
void mr_mix_device_part(const struct mr_transform *chain, const struct mr_mixture *m, int field,
                        const uint32_t *partner, struct mr_device_part *part);

/* Returns whether the device part's hflip mirrors this sample. */
bool mr_device_part_flips(const struct mr_device_part *part, uint64_t seed, uint64_t epoch,
                          uint64_t index);

#endif
