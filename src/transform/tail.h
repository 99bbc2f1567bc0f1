/*
 * The end of a field's chain, done on the device: what the loader needs of it.
 *
 * A tail is a run of ops at the end of the chain that one kernel does for the whole batch, from fewer bytes than come out:
 * cast, scale, normalize from bool, u8, i8, u16 or i16 to f32, f16 or bf16, with layout, flatten and one hflip among them;
 * or one_hot. The ops before it, the head, stay with the workers. Tails give the bits that the host's ops give.
 */
#ifndef MR_TRANSFORM_TAIL_H
#define MR_TRANSFORM_TAIL_H

#include "base/base.h"
#include "device/kernels.h"
#include <millrace/transform.h>

struct mr_op;

struct mr_chain_tail {
    const char *kernel; /* "pointwise", "one_hot" */
    size_t arg_bytes;
    union {
        struct mr_point_args point; /* in, out, flip and rows are the loader's to set */
        struct mr_one_hot_args one_hot;
    } args;
    struct mr_spec in; /* of one sample, as the head leaves it: fixed */
    uint64_t in_bytes, out_bytes;
    const struct mr_op *flip; /* the tail's hflip; NULL: none */
    bool as_decoded;          /* the head does nothing */
    bool whole;               /* the head moves nothing: at most it checks a label */
    char text[96];            /* "cast,scale,normalize" */
};

/*
 * Looks for the tail of a field of a bound chain that ships the fewest bytes, and plans the head. has: 1 when the device has the
 * kernel, 0 when not, or an error. Until the chain is bound again, mr_transform_apply_head() may be called for the field; mr_transform_apply()
 * does the whole chain as before. [out] out: on 1. Returns 1, 0: no tail saves bytes; -ENOMEM, or the
 * error of has.
 */
int mr_tail_find(struct mr_transform *chain, int field, int (*has)(void *user, const char *kernel), void *user,
                 struct mr_chain_tail *out);

/* mr_transform_apply() for the head; the result has the shape of the tail's `in`. What the tail would refuse is refused
 * here: a label that one_hot has no class for. */
struct mr_at;
int mr_transform_apply_head(const struct mr_transform *chain, int field, const struct mr_at *at, const void *in,
                            const uint64_t *in_dim, void *out, void *scratch);

/* Does the tail's hflip mirror this sample? */
bool mr_tail_flips(const struct mr_chain_tail *tail, uint64_t seed, uint64_t epoch, uint64_t index);

#endif
