/*
 * Optimizers and learning rate schedules. They work on arrays that the caller owns, with or without
 * the nets of nn.h.
 *
 *     const struct mr_optim_group groups[] = {{0, n_weights, NULL},
 *                                             {n_weights, n_biases, "weight_decay=0"}};
 *     mr_optim_create(NULL, "adamw:lr=1e-3,clip_norm=1", MR_F32, n_weights + n_biases, groups, 2,
 *                     &optim);
 *     mr_schedule_parse("cosine:10", &schedule);
 *     for (step = 0; step < n_steps; step++) {
 *         compute_gradients(params, grads);
 *         mr_optim_follow(optim, schedule, step, epoch);
 *         mr_optim_step(optim, params, grads, NULL);
 *     }
 *
 * Names, options, defaults and arithmetic are those of PyTorch's torch.optim. docs/training.md
 * lists them with their formulas. NaN and infinity in a gradient reach the parameters, as in
 * PyTorch.
 *
 * All parameters are in one flat array, their gradients in another. The optimizer keeps its own
 * state. On the host (device NULL or "cpu") a step is done when mr_optim_step() returns, and its
 * result is the same for any number of threads. On "cuda" a step is enqueued to the caller's
 * stream; step numbers and learning rates are in device memory, so a graph that recorded a step can
 * be launched many times.
 *
 * Threads: an optimizer or a schedule belongs to one thread at a time. Use one stream for all calls
 * on an optimizer, or order them by events.
 * fork: a child has a copy of one that works on the host, and computes in one thread; it cannot use
 * those on other devices (device.h).
 */
#ifndef MILLRACE_OPTIM_H
#define MILLRACE_OPTIM_H

#include <millrace/device.h>
#include <millrace/options.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_optim;

/* ---- create ---- */

/* All options of an optimizer. Members that it does not use are 0. */
struct mr_optim_opts {
    size_t size; /* of this struct; set it before mr_optim_parse() */
    char name[16];
    double lr, weight_decay;
    double beta1, beta2, eps;
    double momentum, dampening;
    double rho, alpha, lr_decay, initial_accumulator_value, momentum_decay;
    int nesterov, centered, amsgrad, decoupled, maximize;
    double clip_norm, clip_value; /* 0: none */
    uint64_t accumulate;          /* calls per step, at least 1 */
    uint64_t threads;             /* 0: mr_cpu_count() */
};

/* A range of the parameters with its own options. */
struct mr_optim_group {
    uint64_t begin, n; /* in elements */
    /* What differs from the optimizer's options: "lr=0.01,weight_decay=0". NULL: nothing. Not
     * clip_norm, accumulate and threads, which are common to all groups. */
    const char *options;
};

/*
 * Creates an optimizer and its state.
 * device: where parameters and gradients are; it must outlive the optimizer. NULL: the host.
 * spec: "name" or "name:option=value,...". dtype: of the parameters, MR_F32 or MR_F64.
 * n_params: elements, at least 1. groups: at most 4,096, ascending, not overlapping; parameters in
 * no group are not changed. NULL and 0: one group with all parameters. Copied.
 * [out] out: on success; free it with mr_optim_destroy().
 * Returns 0, MR_EOPTION, MR_EMISUSE, MR_EUNSUPPORTED (the dtype; or "cuda" in a build without
 * nvcc), MR_ELIMIT, MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM, -errno.
 */
MR_API int mr_optim_create(struct mr_device *device, const char *spec, enum mr_dtype dtype,
                           uint64_t n_params, const struct mr_optim_group *groups,
                           uint32_t n_groups, struct mr_optim **out);

/* The same from the options that mr_optim_parse() read, which may have been changed since. */
MR_API int mr_optim_create_from(struct mr_device *device, const struct mr_optim_opts *opts,
                                enum mr_dtype dtype, uint64_t n_params,
                                const struct mr_optim_group *groups, uint32_t n_groups,
                                struct mr_optim **out);

/* Frees an optimizer. No step may be running on the device. NULL is allowed. */
MR_API void mr_optim_destroy(struct mr_optim *optim);

/*
 * Reads an optimizer's text.
 * [out] out: on success; no more than out->size bytes are written.
 * Returns 0, MR_EOPTION (the text names the option and lists the valid ones), MR_EMISUSE, -ENOMEM.
 */
MR_API int mr_optim_parse(const char *spec, struct mr_optim_opts *out);

/* Calls fn for each optimizer with its name, one line about it, and its option table, which is for
 * mr_options_help() and mr_options_man() only. Stops when fn returns nonzero, and returns that. */
MR_API int mr_optim_each(int (*fn)(void *user, const char *name, const char *summary,
                                   const struct mr_option *table),
                         void *user);

/* ---- step ---- */

/*
 * Does one step: changes parameters and state, not gradients. With accumulate=N every N-th call is
 * a step.
 * params, grads: n_params elements each, in the device's memory; faster there when aligned to 16
 * bytes. stream: of the device; NULL on the host. Before a step is recorded into a graph, push
 * learning rates with mr_optim_push().
 * Returns 0, MR_EMISUSE, MR_EDEVICE.
 */
MR_API int mr_optim_step(struct mr_optim *optim, void *params, const void *grads,
                         struct mr_stream *stream);

/* What else a step reads and writes. All pointers belong to the caller, are to memory of the
 * optimizer's device, and must stay valid while steps or graphs use them. */
struct mr_optim_extra {
    size_t size;              /* of this struct, set by mr_optim_extra_init() */
    enum mr_dtype grad_dtype; /* of the gradients: MR_F32, MR_F16, MR_BF16 for f32 parameters */
    /* n_params elements to which every step writes the new parameters, rounded to nearest even. The
     * parameters are then the "master weights". NULL: none. */
    void *copy;
    enum mr_dtype copy_dtype; /* MR_F16 or MR_BF16 */
    const float *grad_scale;  /* multiplies gradients first (1 / loss scale); NULL: 1 */
    /* If not 0, the step changes nothing and does not count: gradients overflowed. With accumulate
     * each call reads it, and one call that skips makes its step skip. NULL: never. */
    const uint32_t *skip;
};

/* Sets size and grad_dtype (the parameters' type), and the rest to none. C and C++ call
 * mr_optim_extra_init(); see millrace.h. */
MR_API void mr_optim_extra_fill(const struct mr_optim *optim, struct mr_optim_extra *extra,
                                size_t size);
static inline void mr_optim_extra_init(const struct mr_optim *optim, struct mr_optim_extra *extra)
{
    mr_optim_extra_fill(optim, extra, sizeof *extra);
}

/* Uses `extra` from the next step on. Returns 0, MR_EUNSUPPORTED (dtypes that do not fit together),
 * MR_EMISUSE (a wrong size). */
MR_API int mr_optim_attach(struct mr_optim *optim, const struct mr_optim_extra *extra);

/* ---- groups and learning rates ---- */

/* The number of groups. */
MR_API uint32_t mr_optim_n_groups(const struct mr_optim *optim);

/* A group's options. NULL: no such group. Owned by the optimizer. */
MR_API const struct mr_optim_opts *mr_optim_options(const struct mr_optim *optim, uint32_t group);

/* A group's learning rate as it was set last. NaN: no such group. */
MR_API double mr_optim_get_lr(const struct mr_optim *optim, uint32_t group);

/* Sets a group's learning rate from the next step on. group: UINT32_MAX: all. lr: 0 to 1e30.
 * Returns 0, MR_EMISUSE. */
MR_API int mr_optim_set_lr(struct mr_optim *optim, uint32_t group, double lr);

/* Enqueues the copy of changed learning rates to the device. Steps do it themselves; launches of a
 * recorded graph do not. Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_optim_push(struct mr_optim *optim, struct mr_stream *stream);

/*
 * Reads how many steps a group has done. Blocks until the stream's work is done.
 * [out] out_step, out_grad_norm: on success; NULL: not wanted. The norm is that of the last step
 * before clipping, 0 without clip_norm.
 * Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM.
 */
MR_API int mr_optim_query_step(struct mr_optim *optim, uint32_t group, struct mr_stream *stream,
                               uint64_t *out_step, double *out_grad_norm);

/* ---- state, for checkpoints ---- */

/*
 * The state is a list of named flat arrays: those of the optimizer, with PyTorch's names
 * ("exp_avg"), n_params elements of the parameters' dtype each; "accumulated" with accumulate; and
 * "groups", f64, five numbers per group: learning rate, steps, NAdam's product, norm, pending
 * calls. Restored into an optimizer of the same text, dtype, size and groups, it continues as the
 * first would have. Restore every array; a partial restore leaves the optimizer undefined.
 */
MR_API uint32_t mr_optim_state_count(const struct mr_optim *optim);

/* The name of the i-th array. NULL: no such array. */
MR_API const char *mr_optim_state_name(const struct mr_optim *optim, uint32_t i);

/*
 * The i-th array in place, in host or device memory. NULL: no such array. "groups" is current on
 * the host only; use mr_optim_state_read() for it.
 * [out] out_dtype, out_n: type and number of its elements.
 */
MR_API void *mr_optim_state_data(const struct mr_optim *optim, uint32_t i, enum mr_dtype *out_dtype,
                                 uint64_t *out_n);

/*
 * Copy the i-th array to host memory, and from it. Both block until the stream's work and the copy
 * are done. bytes: the array's size.
 * Return 0, MR_EMISUSE, MR_ESTATE (a wrong size, or numbers that no steps produce), MR_EDEVICE.
 */
MR_API int mr_optim_state_read(struct mr_optim *optim, uint32_t i, void *out, uint64_t bytes,
                               struct mr_stream *stream);
MR_API int mr_optim_state_write(struct mr_optim *optim, uint32_t i, const void *data,
                                uint64_t bytes, struct mr_stream *stream);

/* ---- schedules ---- */

/* A schedule computes a learning rate for each step or epoch from a base rate. docs/training.md
 * lists the kinds and their text. */
struct mr_schedule;

/* Creates a schedule from text: "cosine:10", "warmup:500,step:0.7". [out] out: on success; free it
 * with mr_schedule_destroy(). Returns 0, MR_EOPTION, -ENOMEM. */
MR_API int mr_schedule_parse(const char *text, struct mr_schedule **out);

/* Frees a schedule. NULL is allowed. */
MR_API void mr_schedule_destroy(struct mr_schedule *schedule);

/*
 * Sets every group's learning rate to the schedule's. The base rate is the one in the group's
 * options.
 * step: of all steps, from 0. epoch: from 0.
 * Returns 0, or MR_EMISUSE for a rate above 1e30, which exponential schedules can reach: the rates
 * of that group and of later ones are not changed.
 */
MR_API int mr_optim_follow(struct mr_optim *optim, const struct mr_schedule *schedule,
                           uint64_t step, uint64_t epoch);

/* The learning rate at a step (of all steps, from 0) in an epoch (from 0). Pure, except that
 * plateau depends on what was observed. */
MR_API double mr_schedule_lr(const struct mr_schedule *schedule, double base_lr, uint64_t step,
                             uint64_t epoch);

/* Gives a plateau schedule the metric of an epoch; NaN is no improvement. Others ignore it. */
MR_API void mr_schedule_observe(struct mr_schedule *schedule, double metric);

/* 1 for a plateau schedule that expects a metric to grow (accuracy, not loss), else 0. */
MR_API int mr_schedule_wants_more(const struct mr_schedule *schedule);

#define MR_SCHEDULE_STATE 4

/* Saves what a schedule remembers, for checkpoints. [out] out: always written. */
MR_API void mr_schedule_save(const struct mr_schedule *schedule, double out[MR_SCHEDULE_STATE]);

/* Restores it. Returns 0, or MR_ESTATE for numbers that no schedule saved. */
MR_API int mr_schedule_restore(struct mr_schedule *schedule, const double state[MR_SCHEDULE_STATE]);

/* Calls fn for each kind of schedule with its name, its arguments and one line about it. Stops when
 * fn returns nonzero, and returns that. */
MR_API int mr_schedule_each(int (*fn)(void *user, const char *name, const char *arguments,
                                      const char *summary),
                            void *user);

#ifdef __cplusplus
}
#endif
#endif
