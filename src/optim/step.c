/* Steps: by kernels on devices, by a thread pool on the host. */
#include "optim/optim.h"

#include <string.h>

#define CHUNK 32768 /* elements that one thread takes at a time */

static int is_f64(const struct mr_optim *o)
{
    return o->dtype == MR_F64;
}

static struct mr_optim_hyper hyper_of(const struct mr_optim_opts *opts)
{
    return (struct mr_optim_hyper){
#define X(name) .name = opts->name,
        MR_OPTIM_HYPER(X)
#undef X
    };
}

static struct mr_optim_args args_of(const struct mr_optim *o, uint32_t i, void *params,
                                    const void *grads, enum mr_dtype grad_dtype)
{
    const struct mr_optim_part *p = &o->parts[i];
    bool sums =
        o->opts.accumulate > 1; /* scaled as they were added up, and skipped by the record */
    struct mr_optim_args a = {
        .params = params,
        .grads = grads,
        .copy = o->extra.copy,
        .record = &o->records[i],
        .ticket = &o->tickets[i],
        .norms = o->norms,
        .grad_scale = sums ? NULL : o->extra.grad_scale,
        .skip = sums ? NULL : o->extra.skip,
        .begin = p->begin,
        .end = p->end,
        .update = (int32_t)p->update,
        .grad_dtype = (int32_t)grad_dtype,
        .copy_dtype = (int32_t)o->extra.copy_dtype,
        .n_norms = o->n_norms,
        .decoupled = p->opts.decoupled != 0,
        .maximize = p->opts.maximize != 0,
        .hyper = hyper_of(&p->opts),
    };
    for (int k = 0; k < MR_OPTIM_STATES; k++)
        a.state[k] = o->array[p->state_of[k]].data;
    return a;
}

static struct mr_optim_norm_args norm_args_of(const struct mr_optim *o, uint32_t i,
                                              const void *grads, enum mr_dtype grad_dtype)
{
    const struct mr_optim_part *p = &o->parts[i];
    return (struct mr_optim_norm_args){
        .grads = grads,
        .out = o->norms + p->first_norm,
        .begin = p->norm_begin,
        .end = p->norm_end,
        .part = p->norm_part,
        .n_out = p->n_norms,
        .grad_dtype = (int32_t)grad_dtype,
    };
}

/* On the host, by the thread pool. */
struct host_work {
    const struct mr_optim_args *args;
    const struct mr_optim_scalars *scalars;
    const struct mr_optim_norm_args *norm;
    const struct mr_optim_add_args *add;
    int f64;
};

static void host_apply(void *user, uint64_t i, uint32_t who)
{
    (void)who;
    const struct host_work *w = user;
    uint64_t begin = w->args->begin + i * CHUNK;
    mr_optim_apply(w->args, w->scalars, w->f64, begin, MR_MIN(begin + CHUNK, w->args->end));
}

static void host_norm(void *user, uint64_t i, uint32_t who)
{
    (void)who;
    const struct host_work *w = user;
    w->norm->out[i] = mr_optim_norm_part(w->norm, (uint32_t)i);
}

static void host_add(void *user, uint64_t i, uint32_t who)
{
    (void)who;
    const struct host_work *w = user;
    mr_optim_add_range(w->add, w->f64, i * CHUNK, MR_MIN((i + 1) * CHUNK, w->add->n));
}

static uint64_t chunks(uint64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

uint64_t mr_optim_most_tasks(const struct mr_optim *o)
{
    uint64_t most = o->opts.accumulate > 1 ? chunks(o->n) : 1;
    for (uint32_t i = 0; i < o->n_parts; i++)
        most =
            MR_MAX(most, MR_MAX(chunks(o->parts[i].end - o->parts[i].begin), o->parts[i].n_norms));
    return most;
}

static void host_step(struct mr_optim *o, void *params, const void *grads, enum mr_dtype grad_dtype)
{
    struct mr_optim_scalars scalars;
    double squares = mr_optim_sum(o->norms, o->n_norms);
    for (uint32_t i = 0; i < o->n_parts; i++) {
        struct mr_optim_args args = args_of(o, i, params, grads, grad_dtype);
        struct host_work w = {.args = &args, .scalars = &scalars, .f64 = is_f64(o)};
        if (mr_optim_prepare(&args, squares, &scalars)) {
            mr_thread_pool_run(o->pool, host_apply, &w, chunks(args.end - args.begin));
            mr_optim_finish(&args, &scalars);
        }
        o->records[i].pending = 0;
    }
}

static int launch_step(struct mr_optim *o, void *params, const void *grads,
                       enum mr_dtype grad_dtype, struct mr_stream *stream)
{
    for (uint32_t i = 0; i < o->n_parts; i++) {
        struct mr_optim_args args = args_of(o, i, params, grads, grad_dtype);
        const struct mr_kernel *kernel = mr_optim_kernel(o->parts[i].update, is_f64(o));
        int rc = mr_launch_kernel(stream, kernel, &args, NULL);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool recording(const struct mr_stream *stream)
{
    return stream && atomic_load(&((struct mr_stream *)(uintptr_t)stream)->recording);
}

/* Graphs of "cpu" are recorded launches too; what is not recorded is done by the thread pool. */
static bool by_launch(const struct mr_optim *o, const struct mr_stream *stream)
{
    return !o->host || recording(stream);
}

static int accumulate(struct mr_optim *o, const void *grads, struct mr_stream *stream)
{
    const struct mr_optim_add_args add = {
        .grads = grads,
        .sum = o->array[MR_OPTIM_STATES].data,
        .records = o->records,
        .grad_scale = o->extra.grad_scale,
        .skip = o->extra.skip,
        .n = o->n,
        .factor = 1 / (double)o->opts.accumulate,
        .pending = (double)o->pending + 1,
        .grad_dtype = (int32_t)o->extra.grad_dtype,
        .n_records = o->n_parts,
        .first = o->pending == 0,
    };
    if (by_launch(o, stream)) {
        int rc = mr_launch_kernel(stream, mr_optim_add_kernel[is_f64(o)], &add, NULL);
        if (rc < 0)
            return rc;
    } else {
        struct host_work w = {.add = &add, .f64 = is_f64(o)};
        mr_thread_pool_run(o->pool, host_add, &w, chunks(add.n));
        for (uint32_t i = 0; i < o->n_parts; i++)
            o->records[i].pending = mr_optim_pending(&add, o->records[i].pending);
    }
    o->pending++;
    return 0;
}

int mr_optim_push(struct mr_optim *optim, struct mr_stream *stream)
{
    if (!optim)
        return mr_error_null("mr_optim_push", "an optimizer");
    int rc = optim->dirty ? mr_optim_check_stream(optim, stream, "mr_optim_push") : 0;
    if (rc < 0 || !optim->dirty)
        return rc;
    if (recording(stream))
        return mr_error_set(
            MR_EMISUSE,
            "optimizer: learning rates were set and not pushed: a graph would keep them: call "
            "mr_optim_push() before mr_graph_begin()");
    for (uint32_t at = 0; at < optim->n_parts; at += MR_OPTIM_SET) {
        struct mr_optim_set_args set = {.records = optim->records + at,
                                        .n = MR_MIN(optim->n_parts - at, (uint32_t)MR_OPTIM_SET)};
        for (uint32_t i = 0; i < set.n; i++)
            set.lr[i] = optim->parts[at + i].lr;
        rc = mr_launch_kernel(stream, mr_optim_set_kernel, &set, NULL);
        if (rc < 0)
            return rc;
    }
    optim->dirty = false;
    return 0;
}

static int run_norm(struct mr_optim *o, const struct mr_optim_norm_args *norm,
                    struct mr_stream *stream)
{
    struct host_work w = {.norm = norm};
    if (norm->n_out == 0)
        return 0;
    if (by_launch(o, stream))
        return mr_launch_kernel(stream, mr_optim_norm_kernel[is_f64(o)], norm, NULL);
    mr_thread_pool_run(o->pool, host_norm, &w, norm->n_out);
    return 0;
}

int mr_optim_own_norms(struct mr_optim *o, const struct mr_optim_grads *grads,
                       struct mr_stream *stream)
{
    int rc = 0;
    for (uint32_t i = 0; i < o->n_parts && o->n_norms > 0 && rc >= 0; i++) {
        struct mr_optim_norm_args norm = norm_args_of(o, i, grads->data, grads->dtype);
        rc = run_norm(o, &norm, stream);
    }
    return rc;
}

int mr_optim_norm_one(struct mr_optim *o, uint32_t k, const struct mr_optim_grads *grads,
                      uint64_t n, struct mr_stream *stream)
{
    struct mr_optim_norm_args norm = norm_args_of(o, 0, grads->data, grads->dtype);
    norm.out = o->norms + k;
    norm.n_out = 1;
    norm.begin = 0;
    norm.end = n;
    return run_norm(o, &norm, stream);
}

int mr_optim_begin_step(struct mr_optim *o, struct mr_optim_grads *grads, struct mr_stream *stream)
{
    int rc = mr_optim_push(o, stream);
    if (rc < 0)
        return rc;
    if (o->opts.accumulate > 1) {
        rc = accumulate(o, grads->data, stream);
        if (rc < 0 || o->pending < o->opts.accumulate)
            return rc;
        o->pending = 0;
        grads->data = o->array[MR_OPTIM_STATES].data;
        grads->dtype = o->dtype;
    }
    return 1;
}

int mr_optim_end_step(struct mr_optim *o, void *params, const struct mr_optim_grads *grads,
                      struct mr_stream *stream)
{
    if (by_launch(o, stream))
        return launch_step(o, params, grads->data, grads->dtype, stream);
    host_step(o, params, grads->data, grads->dtype);
    return 0;
}

int mr_optim_step(struct mr_optim *optim, void *params, const void *grads, struct mr_stream *stream)
{
    if (!optim)
        return mr_error_null("mr_optim_step", "an optimizer");
    struct mr_optim_grads of = {grads, optim->extra.grad_dtype};
    if (!params || !grads)
        return mr_error_set(MR_EMISUSE, "mr_optim_step: params or grads is NULL");
    int rc = mr_optim_check_stream(optim, stream, "mr_optim_step");
    if (rc < 0)
        return rc;
    rc = mr_optim_begin_step(optim, &of, stream);
    if (rc <= 0)
        return rc;
    rc = mr_optim_own_norms(optim, &of, stream);
    return rc < 0 ? rc : mr_optim_end_step(optim, params, &of, stream);
}
