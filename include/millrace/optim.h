/*
 * Optimizers and learning rate schedules, usable on their own: a step changes arrays that the caller owns.
 *
 * An optimizer is written "adamw:lr=1e-3,betas=0.9/0.999,weight_decay=0.01". Options, defaults and arithmetic are those of
 * PyTorch's torch.optim; an unknown option is an error that lists those there are. Below, w is a parameter, g its gradient,
 * t the step's number from 1, and all arrays start at 0. Batch, stochastic and mini-batch gradient descent differ in
 * how many samples made g, which is the caller's business.
 *
 *   sgd:lr=1e-3,momentum=0,dampening=0,nesterov    w -= lr g; with momentum as below
 *                (Robbins, Monro: A stochastic approximation method, 1951)
 *   momentum:lr=1e-3,momentum=0.9,dampening=0      b = momentum b + (1 - dampening) g (first step: b = g); w -= lr b
 *                (Polyak: Some methods of speeding up the convergence of iteration methods, 1964)
 *   nesterov:lr=1e-3,momentum=0.9                  b = momentum b + g; w -= lr (g + momentum b)
 *                (Nesterov 1983, as in Sutskever et al.: On the importance of initialization and momentum, ICML 2013)
 *   adagrad:lr=0.01,lr_decay=0,eps=1e-10,initial_accumulator_value=0
 *                s += g^2; w -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)
 *                (Duchi, Hazan, Singer: Adaptive subgradient methods, JMLR 2011)
 *   adadelta:lr=1,rho=0.9,eps=1e-6                 s = rho s + (1 - rho) g^2; d = sqrt(a + eps) / sqrt(s + eps) g;
 *                a = rho a + (1 - rho) d^2; w -= lr d              (Zeiler: ADADELTA, arXiv:1212.5701)
 *   rmsprop:lr=0.01,alpha=0.99,eps=1e-8,momentum=0,centered
 *                s = alpha s + (1 - alpha) g^2; centered: a = alpha a + (1 - alpha) g, v = s - a^2, else v = s;
 *                u = g / (sqrt(v) + eps); with momentum b = momentum b + u, w -= lr b, else w -= lr u
 *                (Tieleman, Hinton: Lecture 6.5, 2012; centered: Graves, arXiv:1308.0850)
 *   adam:lr=1e-3,betas=0.9/0.999,eps=1e-8,amsgrad  m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
 *                w -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)      (Kingma, Ba: Adam, arXiv:1412.6980)
 *   adamw        adam with weight_decay=0.01, decoupled   (Loshchilov, Hutter: Decoupled weight decay, arXiv:1711.05101)
 *   amsgrad      adam with the greatest v so far in v's place   (Reddi, Kale, Kumar: On the convergence of Adam, ICLR 2018)
 *   adamax:lr=2e-3,betas=0.9/0.999,eps=1e-8        m as adam; u = max(b2 u, |g| + eps); w -= lr / (1 - b1^t) m / u
 *                (Kingma, Ba, section 7.1)
 *   nadam:lr=2e-3,betas=0.9/0.999,eps=1e-8,momentum_decay=4e-3
 *                m, v as adam; u(t) = b1 (1 - 0.96^(t momentum_decay) / 2); P(t) = u(1) .. u(t); with d = sqrt(v / (1 - b2^t)) + eps
 *                w -= lr (1 - u(t)) / (1 - P(t)) g / d + lr u(t + 1) / (1 - P(t + 1)) m / d      (Dozat, ICLR workshop 2016)
 *   radam:lr=1e-3,betas=0.9/0.999,eps=1e-8         m, v as adam; r = 2 / (1 - b2) - 1; r(t) = r - 2 t b2^t / (1 - b2^t);
 *                r(t) > 5: w -= lr m / (1 - b1^t) sqrt(1 - b2^t) / (sqrt(v) + eps)
 *                              sqrt((r(t) - 4) (r(t) - 2) r / ((r - 4) (r - 2) r(t))), else w -= lr m / (1 - b1^t)
 *                (Liu et al.: On the variance of the adaptive learning rate, arXiv:1908.03265)
 *   lion:lr=1e-4,betas=0.9/0.99                    w -= lr sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g
 *                (Chen et al.: Symbolic discovery of optimization algorithms, arXiv:2302.06675)
 *
 * All of them take
 *   weight_decay=0      coupled: g + weight_decay w is the gradient; decoupled: w *= 1 - lr weight_decay first
 *   decoupled           which of the two; lion's and adamw's is on
 *   maximize            the gradient's sign is changed first
 *   clip_norm=0         gradients of all groups are multiplied by min(1, clip_norm / (norm + 1e-6)), as clip_grad_norm_ does
 *   clip_value=0        then each is cut to -clip_value .. clip_value; 0: neither
 *   accumulate=1        one step every so many calls, with the mean of their gradients
 *   threads=0           on the host; 0: mr_cpu_count(). Results are equal bit by bit for every number of threads
 *
 * NaN and infinity in a gradient go into the parameters as they do in PyTorch.
 *
 * Devices. All parameters lie in one flat array, and so do their gradients; each array of the optimizer's own state is as long.
 * On the host (device NULL or "cpu") a step is done when mr_optim_step() returns. On "cuda" a step is one kernel a group in the
 * stream given (clipping by norm: one more a group before them; accumulating: one a call); "sim" does the same slowly. Learning rates and step numbers lie in
 * device memory, and the kernel itself counts: so a graph that recorded a step is launched again and again, and counts on, with
 * the learning rates that mr_optim_push() last put there.
 *
 * Threads: an optimizer or schedule belongs to one thread at a time. Calls on a device use the caller's stream only; use one
 * stream for all, or order them by events.
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

/* All that an optimizer's text says. Members that it does not use are 0. */
struct mr_optim_opts {
    size_t size;
    char name[16];
    double lr, weight_decay;
    double beta1, beta2, eps;
    double momentum, dampening;
    double rho, alpha, lr_decay, initial_accumulator_value, momentum_decay;
    int nesterov, centered, amsgrad, decoupled, maximize;
    double clip_norm, clip_value; /* 0: none */
    uint64_t accumulate;          /* calls a step; >= 1 */
    uint64_t threads;             /* 0: mr_cpu_count() */
};

/* Reads "name" or "name:option=value,...". [out] out: on success, all of it but size, which the caller has set: no more than
 * that is written. Returns 0, MR_EOPTION (names the option and lists those there are), MR_EMISUSE, -ENOMEM. */
MR_API int mr_optim_parse(const char *spec, struct mr_optim_opts *out);

/* Calls fn for each optimizer: its name, one line, its option table (for mr_options_help() and mr_options_man() alone). Stops
 * when fn returns nonzero, and returns that. */
MR_API int mr_optim_each(int (*fn)(void *user, const char *name, const char *summary, const struct mr_option *table),
                         void *user);

/* A range of the parameters with options of its own. */
struct mr_optim_group {
    uint64_t begin, n;   /* elements */
    const char *options; /* "lr=0.01,weight_decay=0": what differs from the optimizer's; NULL: nothing. Not clip_norm,
                            accumulate and threads, which are for all */
};

/*
 * Makes an optimizer and its state.
 * device: where parameters and gradients are; NULL: the host. It outlives the optimizer.
 * spec: as mr_optim_parse() reads it. dtype: of the parameters: MR_F32 or MR_F64.
 * n_params: elements, >= 1. groups: in ascending order, without overlap; what is in none of them is left alone. NULL and
 * 0: one group of all. At most 4,096. Copied.
 * [out] out: on success; mr_optim_destroy() frees it.
 * Returns 0, MR_EOPTION, MR_EMISUSE, MR_EUNSUPPORTED (a dtype, or a device without the kernels: "cuda" in a build without
 * nvcc), MR_ELIMIT, MR_EDEVICE, MR_EDEVICEMEM, -ENOMEM, -errno.
 */
MR_API int mr_optim_create(struct mr_device *device, const char *spec, enum mr_dtype dtype, uint64_t n_params,
                           const struct mr_optim_group *groups, uint32_t n_groups, struct mr_optim **out);
/* The same from what mr_optim_parse() read, perhaps changed since. */
MR_API int mr_optim_create_from(struct mr_device *device, const struct mr_optim_opts *opts, enum mr_dtype dtype,
                                uint64_t n_params, const struct mr_optim_group *groups, uint32_t n_groups,
                                struct mr_optim **out);
/* No step may be under way on the device. NULL is allowed. */
MR_API void mr_optim_destroy(struct mr_optim *optim);

/* What else a step reads and writes. All pointers are the caller's, lie where the parameters do, and stay valid as long as steps
 * (and graphs of them) use them. */
struct mr_optim_extra {
    size_t size;
    enum mr_dtype grad_dtype; /* of the gradients: MR_F32, MR_F16 or MR_BF16 for f32 parameters */
    void *copy; /* n_params elements that every step sets to the new parameters, rounded to nearest even: then the
                                 parameters are the "master weights". NULL: none */
    enum mr_dtype copy_dtype; /* MR_F16 or MR_BF16 */
    const float *grad_scale;  /* gradients are multiplied by it before all else (1 / loss scale); NULL: not */
    /* When it is not 0 there, the step changes nothing and is not counted: gradients overflowed. With accumulate each call reads
     * scale and skip, and a step that one of its calls would skip is skipped. NULL: never */
    const uint32_t *skip;
};
/* Sets size and grad_dtype (that of the parameters), all else to nothing. */
MR_API void mr_optim_extra_fill(const struct mr_optim *optim, struct mr_optim_extra *extra, size_t size);
static inline void mr_optim_extra_init(const struct mr_optim *optim, struct mr_optim_extra *extra)
{
    mr_optim_extra_fill(optim, extra, sizeof *extra);
}
/* From the next step on. Returns 0, MR_EUNSUPPORTED for dtypes that do not go together, MR_EMISUSE for a wrong size. */
MR_API int mr_optim_attach(struct mr_optim *optim, const struct mr_optim_extra *extra);

/*
 * One step: parameters and state change, gradients do not.
 * params, grads: n_params elements each, in device memory on devices that have some; aligned to 16 bytes they are faster there.
 * stream: of the device; NULL on the host.
 * While the stream is being recorded into a graph, learning rates must have been pushed before.
 * Returns 0, MR_EMISUSE, MR_EDEVICE.
 */
MR_API int mr_optim_step(struct mr_optim *optim, void *params, const void *grads, struct mr_stream *stream);

MR_API uint32_t mr_optim_n_groups(const struct mr_optim *optim);
MR_API const struct mr_optim_opts *mr_optim_options(const struct mr_optim *optim, uint32_t group); /* NULL: no such */

/* A group's learning rate as it was set last. NaN for a group that is not there. */
MR_API double mr_optim_get_lr(const struct mr_optim *optim, uint32_t group);
/* From the next step on. group: UINT32_MAX: all. lr: 0..1e30. Returns 0, MR_EMISUSE. */
MR_API int mr_optim_set_lr(struct mr_optim *optim, uint32_t group, double lr);
/* Enqueues what mr_optim_set_lr() changed, a kernel each 64 groups, if anything; steps do so too, replayed graphs do not.
 * Returns 0, MR_EMISUSE, MR_EDEVICE. */
MR_API int mr_optim_push(struct mr_optim *optim, struct mr_stream *stream);

/* What the group's steps left. Blocks until the stream's work is done. [out] each: on success; NULL: not wanted.
 * grad_norm: that of the last step, before clipping; 0 without clip_norm. Returns 0, MR_EMISUSE, MR_EDEVICE, -ENOMEM. */
MR_API int mr_optim_get_step(struct mr_optim *optim, uint32_t group, struct mr_stream *stream, uint64_t *out_step,
                             double *out_grad_norm);

/*
 * The state as named flat arrays, for checkpoints: n_params elements of the parameters' dtype each ("exp_avg", ... as PyTorch names
 * them; "accumulated" with accumulate), and "groups", f64: five numbers a group: learning rate, steps done, NAdam's
 * product, norm, and pending calls. An optimizer of the same text, dtype, size and groups that is given them goes on as the first
 * would have.
 */
MR_API uint32_t mr_optim_state_count(const struct mr_optim *optim);
MR_API const char *mr_optim_state_name(const struct mr_optim *optim, uint32_t i); /* NULL: no such */
/* Where it is: host memory, or the device's. [out] out_dtype, out_n: elements. NULL: no such. "groups" is up to date on the
 * host only; mr_optim_state_read() always is. */
MR_API void *mr_optim_state_data(const struct mr_optim *optim, uint32_t i, enum mr_dtype *out_dtype, uint64_t *out_n);
/* Copies it to and from host memory of `bytes`, which must be its size. Blocks until the stream's work and that are done. Give back all
 * of them, or nothing is promised. Returns 0, MR_EMISUSE, MR_ESTATE (another size, or numbers that no steps leave), MR_EDEVICE. */
MR_API int mr_optim_state_read(struct mr_optim *optim, uint32_t i, void *out, uint64_t bytes, struct mr_stream *stream);
MR_API int mr_optim_state_write(struct mr_optim *optim, uint32_t i, const void *data, uint64_t bytes,
                                struct mr_stream *stream);

/*
 * Schedules: a learning rate for each step or epoch, from a base rate. Written as kind:value/value/option=value:
 *
 *   constant                              the base rate
 *   step:GAMMA[/EVERY]                    base GAMMA^floor(t / EVERY); EVERY 1. PyTorch's StepLR
 *   multistep:GAMMA/T1:T2:...             base GAMMA^(how many of T1, T2, ... are reached). MultiStepLR
 *   exponential:GAMMA                     base GAMMA^t. ExponentialLR
 *   linear:END/T                          from base to base END in T, then stays. LinearLR(1, END, T)
 *   cosine:T[/min=0]                      min + (base - min) (1 + cos(pi t / T)) / 2, from T on min. CosineAnnealingLR
 *   cosine:T/restarts[/mult=1][/min=0]    the same again and again, each period mult times as long (a whole number).
 *                                         CosineAnnealingWarmRestarts; Loshchilov, Hutter: SGDR, arXiv:1608.03983
 *   onecycle:T[/pct=0.3][/div=25][/final_div=1e4][/linear][/three_phase]
 *                                         from base / div up to base and down to base / div / final_div at t = T - 1, by cosines, or
 *                                         straight lines. OneCycleLR without its momentum; base is its max_lr; Smith,
 *                                         Topin: Super-convergence, arXiv:1708.07120
 *   plateau:[FACTOR][/patience=10][/threshold=1e-4][/absolute][/max][/cooldown=0][/min=0][/eps=1e-8]
 *                                         times FACTOR (0.1) when what mr_schedule_observe() was told has not got better for more than
 *                                         `patience` tellings. ReduceLROnPlateau
 *   warmup:N[/start=0.01],KIND:...        in N from start times to once what the other says. SequentialLR of LinearLR(start, 1, N)
 *
 * t counts epochs for step, multistep, exponential, linear and cosine, and iterations for warmup and onecycle; /per=iteration or
 * /per=epoch says otherwise (constant and plateau take none). After a warm-up that counts the same thing t starts at 0; when
 * the two count different things t is what it is, and the warm-up is a factor.
 */
struct mr_schedule;

/* Returns 0, MR_EOPTION, -ENOMEM. [out] out: on success; mr_schedule_destroy() frees it. */
MR_API int mr_schedule_parse(const char *text, struct mr_schedule **out);
MR_API void mr_schedule_destroy(struct mr_schedule *schedule);

/* The rate of iteration `step` of all (from 0) in epoch `epoch` (from 0). Pure, but that plateau depends on what was observed. */
MR_API double mr_schedule_lr(const struct mr_schedule *schedule, double base_lr, uint64_t step, uint64_t epoch);

/* Tells a plateau schedule the metric of an epoch (NaN is no improvement); others do nothing. */
MR_API void mr_schedule_observe(struct mr_schedule *schedule, double metric);
/* 1: a plateau with `max`, to be told a metric of which more is better (accuracy, not loss); else 0. */
MR_API int mr_schedule_wants_more(const struct mr_schedule *schedule);

/* What a schedule remembers; for checkpoints. */
#define MR_SCHEDULE_STATE 4
MR_API void mr_schedule_save(const struct mr_schedule *schedule, double out[MR_SCHEDULE_STATE]);
/* Returns 0, or MR_ESTATE for numbers that no schedule saved. */
MR_API int mr_schedule_restore(struct mr_schedule *schedule, const double state[MR_SCHEDULE_STATE]);

/* Sets every group's rate to the schedule's, from the rate that the group's options say. Returns 0, or MR_EMISUSE
 * for a rate above 1e30, to which exponential schedules may grow: that group's and later ones' stay as they were. */
MR_API int mr_optim_follow(struct mr_optim *optim, const struct mr_schedule *schedule, uint64_t step, uint64_t epoch);

/* Calls fn for each kind of schedule: name, arguments, one line. */
MR_API int mr_schedule_each(int (*fn)(void *user, const char *name, const char *arguments, const char *summary),
                            void *user);

#ifdef __cplusplus
}
#endif
#endif
