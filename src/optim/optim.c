/* Making optimizers: groups, state, and what callers set and ask. */
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_GROUPS 4096
#define HUGE_PAGE  (2ull << 20)
#define NORM_PART  4096 /* elements; parts of a sum are a multiple of it */
#define NORM_PARTS 1024 /* of a group, at most */

int mr_optim_check_stream(const struct mr_optim *o, const struct mr_stream *stream,
                          const char *call)
{
    if (!o->host && (!stream || stream->dev != o->device))
        return mr_error_set(MR_EMISUSE, "%s: expected a stream of the optimizer's device", call);
    return 0;
}

static int check_group(const struct mr_optim_group *g, uint32_t i, uint64_t from, uint64_t n_params)
{
    if (g->begin < from || g->begin > n_params || g->n > n_params - g->begin || g->n < 1)
        return mr_error_set(MR_EOPTION,
                            "optimizer: group %u of %llu elements from %llu on: expected it behind "
                            "%llu and within %llu parameters",
                            i, (unsigned long long)g->n, (unsigned long long)g->begin,
                            (unsigned long long)from, (unsigned long long)n_params);
    return 0;
}

uint64_t mr_optim_norm_unit(uint64_t n_all)
{
    return mr_round_up(MR_MAX((n_all + NORM_PARTS - 1) / NORM_PARTS, 1), NORM_PART);
}

static void set_norms(struct mr_optim *o, struct mr_optim_part *p)
{
    const uint64_t n = p->end - p->begin;
    p->norm_part = mr_optim_norm_unit(n);
    p->n_norms = (uint32_t)((n + p->norm_part - 1) / p->norm_part);
    p->first_norm = o->n_norms;
    p->norm_begin = p->begin;
    p->norm_end = p->end;
    o->n_norms += p->n_norms;
}

/* Those that lie within the range, of the sums over all parameters. */
static void set_range_norms(struct mr_optim *o, struct mr_optim_part *p)
{
    const struct mr_optim_range *r = &o->range;
    const uint64_t unit = mr_optim_norm_unit(r->n_all), end = r->first + r->n;
    o->n_norms = (uint32_t)((r->n_all + unit - 1) / unit);
    p->norm_part = unit;
    p->first_norm = (uint32_t)((r->first + unit - 1) / unit);
    const uint32_t last = end == r->n_all ? o->n_norms : (uint32_t)(end / unit);
    p->n_norms = r->n && last > p->first_norm ? last - p->first_norm : 0;
    p->norm_begin = p->n_norms ? p->first_norm * unit - r->first : 0;
    p->norm_end = p->n_norms ? MR_MIN(p->norm_begin + p->n_norms * unit, r->n) : 0;
}

static int set_part(struct mr_optim *o, uint32_t i, const struct mr_optim_group *g)
{
    struct mr_optim_part *p = &o->parts[i];
    char who[48];
    int rc = 0;
    *p = (struct mr_optim_part){
        .begin = g->begin, .end = g->begin + g->n, .opts = o->opts, .state_of = {0, 1, 2}};
    snprintf(who, sizeof who, "%s, group %u: ", o->ops->name, i);
    if (g->options)
        rc = mr_optim_parse_more(o->ops, who, g->options, &p->opts);
    if (rc < 0)
        return rc;
    if (p->opts.clip_norm != o->opts.clip_norm || p->opts.accumulate != o->opts.accumulate ||
        p->opts.threads != o->opts.threads)
        return mr_error_set(
            MR_EOPTION, "%sclip_norm, accumulate and threads are for all groups, not for one", who);
    p->lr = p->opts.lr;
    p->update = o->ops->choose ? o->ops->choose(&p->opts, p->state_of) : o->ops->update;
    if (o->opts.clip_norm > 0 && o->range.n_all)
        set_range_norms(o, p);
    else if (o->opts.clip_norm > 0)
        set_norms(o, p);
    return 0;
}

static int set_parts(struct mr_optim *o, const struct mr_optim_group *groups, uint32_t n_groups)
{
    const struct mr_optim_group all = {.n = o->n};
    uint64_t from = 0;
    o->n_parts = n_groups ? n_groups : 1;
    o->parts = calloc(o->n_parts, sizeof *o->parts);
    if (!o->parts)
        return mr_error_nomem("optimizer's groups", o->n_parts * sizeof *o->parts);
    for (uint32_t i = 0; i < o->n_parts; i++) {
        const struct mr_optim_group *g = n_groups ? &groups[i] : &all;
        int rc = n_groups ? check_group(g, i, from, o->n) : 0;
        if (rc < 0)
            return rc;
        rc = set_part(o, i, g);
        if (rc < 0)
            return rc;
        from = g->begin + g->n;
    }
    return 0;
}

/* Zeros. Huge pages: a step goes through all of it, and would wait for the page tables. */
static int host_create(uint64_t bytes, void **out)
{
    void *p = NULL;
    uint64_t whole = mr_round_up(bytes, bytes < HUGE_PAGE ? 64 : HUGE_PAGE);
    if (posix_memalign(&p, bytes < HUGE_PAGE ? 64 : HUGE_PAGE, whole))
        return mr_error_nomem("optimizer's state", bytes);
    if (bytes >= HUGE_PAGE)
        (void)madvise(p, whole, MADV_HUGEPAGE); /* works without */
    memset(p, 0, whole);
    *out = p;
    return 0;
}

static int create(struct mr_optim *o, struct mr_stream *stream, uint64_t bytes, void **out)
{
    if (o->host)
        return host_create(bytes, out);
    int rc = mr_memory_acquire(o->device, MR_DEVICE, bytes, out);
    return rc < 0 ? rc : mr_memset_async(stream, *out, MR_DEVICE, 0, bytes);
}

static void destroy(struct mr_optim *o, void *p)
{
    if (o->host)
        free(p);
    else if (p)
        mr_memory_release(o->device, MR_DEVICE, p, NULL);
}

/* Into an array of the optimizer's: on devices by a copy that blocks. */
static int put(struct mr_optim *o, struct mr_stream *stream, void *to, const void *from,
               uint64_t bytes)
{
    if (!o->host)
        return mr_copy_async(stream, to, MR_DEVICE, from, MR_PAGEABLE, bytes);
    memcpy(to, from, bytes);
    return 0;
}

static int create_records(struct mr_optim *o, struct mr_stream *stream)
{
    uint64_t bytes = o->n_parts * sizeof *o->records;
    struct mr_optim_record *first = calloc(o->n_parts, sizeof *first);
    if (!first)
        return mr_error_nomem("optimizer's groups", bytes);
    for (uint32_t i = 0; i < o->n_parts; i++)
        first[i] = (struct mr_optim_record){.lr = o->parts[i].lr, .mu_product = 1};
    int rc = create(o, stream, bytes, (void **)&o->records);
    if (rc < 0)
        goto end;
    rc = put(o, stream, o->records, first, bytes);
    if (rc < 0)
        goto end;
    rc = create(o, stream, o->n_parts * sizeof *o->tickets, (void **)&o->tickets);
    if (rc < 0)
        goto end;
    if (o->n_norms)
        rc = create(o, stream, o->n_norms * sizeof *o->norms, (void **)&o->norms);
    if (rc < 0)
        goto end;
    if (!o->host)
        rc = mr_stream_synchronize(stream); /* before `first` is freed */
end:
    free(first);
    return rc;
}

static int fill_part(struct mr_optim *o, const struct mr_optim_part *p, struct mr_stream *stream)
{
    enum { CHUNK = 8192 };
    double buffer[CHUNK], value = p->opts.initial_accumulator_value;
    for (uint32_t k = 0; k < CHUNK; k++)
        if (o->dtype == MR_F64)
            buffer[k] = value;
        else
            ((float *)(void *)buffer)[k] = (float)value;
    for (uint64_t at = p->begin; at < p->end; at += CHUNK) {
        int rc = put(o, stream, (char *)o->array[0].data + at * mr_optim_size(o), buffer,
                     MR_MIN(p->end - at, (uint64_t)CHUNK) * mr_optim_size(o));
        if (rc < 0)
            return rc;
    }
    return o->host ? 0 : mr_stream_synchronize(stream);
}

/* Initial values of Adagrad's sums, one per group. */
static int fill_sums(struct mr_optim *o, struct mr_stream *stream)
{
    for (uint32_t i = 0; i < o->n_parts; i++) {
        const struct mr_optim_part *p = &o->parts[i];
        int rc = p->opts.initial_accumulator_value == 0 ? 0 : fill_part(o, p, stream);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int create_arrays(struct mr_optim *o, struct mr_stream *stream)
{
    int rc = create_records(o, stream);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < o->n_parts; i++)
        for (int k = 0; k < mr_optim_n_states(o->parts[i].update); k++) {
            int which = o->parts[i].state_of[k];
            o->array[which].name = o->ops->state[which];
        }
    if (o->opts.accumulate > 1)
        o->array[MR_OPTIM_STATES].name = "accumulated";
    for (int k = 0; k <= MR_OPTIM_STATES; k++) {
        if (!o->array[k].name)
            continue;
        rc = create(o, stream, MR_MAX(o->n, 1) * mr_optim_size(o), &o->array[k].data);
        if (rc < 0)
            return rc;
    }
    return fill_sums(o, stream);
}

static int create_memory(struct mr_optim *o)
{
    struct mr_stream *stream = NULL;
    int rc = o->host ? 0 : mr_stream_create(o->device, "optim", &stream);
    if (rc < 0)
        return rc;
    rc = create_arrays(o, stream);
    if (rc < 0)
        goto end;
    if (stream)
        rc = mr_stream_synchronize(stream);
end:
    mr_stream_destroy(stream);
    return rc;
}

static int set_device(struct mr_optim *o, struct mr_device *device)
{
    struct mr_device_info info = {.size = sizeof info};
    o->host = true;
    if (!device)
        return 0;
    int rc = mr_device_query(device, &info);
    if (rc < 0)
        return rc;
    o->device = device;
    o->host = info.unified;
    rc = mr_device_load_kernels(device, &mr_optim_module);
    if (rc == MR_EUNSUPPORTED)
        return mr_error_set(MR_EUNSUPPORTED,
                            "optimizer: %s has no kernels for it: this build was made without "
                            "nvcc, or not for this GPU",
                            info.name);
    return rc;
}

/* What parsing would not have given. */
static int check_opts(const struct mr_optim_ops *ops, const struct mr_optim_opts *o)
{
    const double rates[] = {o->lr, o->weight_decay, o->clip_norm, o->clip_value, o->eps};
    for (size_t i = 0; i < MR_COUNT(rates); i++)
        if (!(rates[i] >= 0 && rates[i] <= MR_OPTIM_MOST))
            return mr_error_set(
                MR_EOPTION, "optimizer %s: lr, weight_decay, clipping or eps of %g: expected 0..%g",
                o->name, rates[i], MR_OPTIM_MOST);
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1) || o->accumulate < 1)
        return mr_error_set(MR_EOPTION,
                            "optimizer %s: betas of %g/%g, accumulate of %llu: expected 0 to below "
                            "1, and 1 or more",
                            o->name, o->beta1, o->beta2, (unsigned long long)o->accumulate);
    return ops->check ? ops->check(o) : 0;
}

static int check_create(const void *spec, enum mr_dtype dtype, uint64_t n_params,
                        const struct mr_optim_group *groups, uint32_t n_groups,
                        struct mr_optim **out)
{
    if (!spec || !out || (n_groups && !groups))
        return mr_error_set(MR_EMISUSE, "mr_optim_create: spec, out or groups is NULL");
    if (dtype != MR_F32 && dtype != MR_F64)
        return mr_error_set(MR_EUNSUPPORTED, "optimizer: parameters of %s: expected f32 or f64",
                            mr_dtype_name(dtype));
    if (n_params < 1 || n_params > 1ull << 48)
        return mr_error_set(MR_ELIMIT, "optimizer: %llu parameters: expected 1..2^48",
                            (unsigned long long)n_params);
    if (n_groups > MAX_GROUPS)
        return mr_error_set(MR_ELIMIT, "optimizer: %u groups: expected at most %d", n_groups,
                            MAX_GROUPS);
    return 0;
}

/* The options are already set. */
static int open_optim(struct mr_optim *o, struct mr_device *device,
                      const struct mr_optim_group *groups, uint32_t n_groups)
{
    mr_optim_extra_init(o, &o->extra);
    int rc = set_device(o, device);
    if (rc < 0)
        return rc;
    rc = set_parts(o, groups, n_groups);
    if (rc < 0)
        return rc;
    rc = create_memory(o);
    if (rc < 0 || !o->host)
        return rc;
    uint64_t threads = o->opts.threads ? o->opts.threads : (uint64_t)mr_cpu_count();
    return mr_thread_pool_create((uint32_t)MR_MIN(threads, mr_optim_most_tasks(o)), "optim", 0,
                                 &o->pool);
}

/* spec: NULL: from opts. range: of one of several; NULL: all of n_params. */
static int create_optim(struct mr_device *device, const char *spec,
                        const struct mr_optim_opts *opts, enum mr_dtype dtype, uint64_t n_params,
                        const struct mr_optim_range *range, const struct mr_optim_group *groups,
                        uint32_t n_groups, struct mr_optim **out)
{
    struct mr_optim *o = calloc(1, sizeof *o);
    if (!o)
        return mr_error_nomem("optimizer", sizeof *o);
    o->dtype = dtype;
    o->n = n_params;
    if (range)
        o->range = *range;
    int rc = mr_optim_parse_spec(spec ? spec : opts->name, &o->ops, &o->opts);
    if (rc < 0)
        goto fail;
    if (!spec) {
        o->opts = *opts;
        rc = check_opts(o->ops, opts);
    }
    if (rc < 0)
        goto fail;
    rc = open_optim(o, device, groups, n_groups);
    if (rc < 0)
        goto fail;
    *out = o;
    return 0;
fail:
    mr_optim_destroy(o);
    return rc;
}

int mr_optim_create(struct mr_device *device, const char *spec, enum mr_dtype dtype,
                    uint64_t n_params, const struct mr_optim_group *groups, uint32_t n_groups,
                    struct mr_optim **out)
{
    int rc = check_create(spec, dtype, n_params, groups, n_groups, out);
    return rc < 0 ? rc
                  : create_optim(device, spec, NULL, dtype, n_params, NULL, groups, n_groups, out);
}

int mr_optim_create_from(struct mr_device *device, const struct mr_optim_opts *opts,
                         enum mr_dtype dtype, uint64_t n_params,
                         const struct mr_optim_group *groups, uint32_t n_groups,
                         struct mr_optim **out)
{
    int rc = check_create(opts, dtype, n_params, groups, n_groups, out);
    if (rc < 0)
        return rc;
    if (opts->size != sizeof *opts || !memchr(opts->name, 0, sizeof opts->name))
        return mr_error_set(
            MR_EMISUSE,
            "mr_optim_create_from: expected opts as mr_optim_parse() filled them, of %zu bytes",
            sizeof *opts);
    return create_optim(device, NULL, opts, dtype, n_params, NULL, groups, n_groups, out);
}

int mr_optim_create_range(struct mr_device *device, const struct mr_optim_opts *opts,
                          enum mr_dtype dtype, const struct mr_optim_range *range,
                          struct mr_optim **out)
{
    int rc = check_create(opts, dtype, range->n_all, NULL, 0, out);
    return rc < 0 ? rc : create_optim(device, NULL, opts, dtype, range->n, range, NULL, 0, out);
}

void mr_optim_destroy(struct mr_optim *optim)
{
    if (!optim)
        return;
    mr_thread_pool_destroy(optim->pool);
    for (int k = 0; k <= MR_OPTIM_STATES; k++)
        destroy(optim, optim->array[k].data);
    destroy(optim, optim->records);
    destroy(optim, optim->tickets);
    destroy(optim, optim->norms);
    free(optim->parts);
    free(optim);
}

void mr_optim_extra_fill(const struct mr_optim *optim, struct mr_optim_extra *extra, size_t size)
{
    if (!optim)
        return;
    const struct mr_optim_extra full = {.grad_dtype = optim->dtype, .copy_dtype = MR_BF16};
    mr_opts_copy(extra, size, &full, sizeof full);
}

int mr_optim_attach(struct mr_optim *optim, const struct mr_optim_extra *extra)
{
    if (!optim)
        return mr_error_null("mr_optim_attach", "an optimizer");
    struct mr_optim_extra full;
    mr_optim_extra_init(optim, &full);
    if (!extra)
        return mr_error_set(MR_EMISUSE, "mr_optim_attach: extra is NULL");
    int rc = mr_opts_take("optim_extra", extra, &full, sizeof full);
    if (rc < 0)
        return rc;
    bool half = full.grad_dtype == MR_F16 || full.grad_dtype == MR_BF16;
    if (full.grad_dtype != optim->dtype && !(half && optim->dtype == MR_F32))
        return mr_error_set(MR_EUNSUPPORTED,
                            "optimizer: gradients of %s for parameters of %s: expected the same%s",
                            mr_dtype_name(full.grad_dtype), mr_dtype_name(optim->dtype),
                            optim->dtype == MR_F32 ? ", f16 or bf16" : "");
    if (full.copy &&
        (optim->dtype != MR_F32 || (full.copy_dtype != MR_F16 && full.copy_dtype != MR_BF16)))
        return mr_error_set(
            MR_EUNSUPPORTED,
            "optimizer: a copy in %s of parameters of %s: expected f16 or bf16, of f32",
            mr_dtype_name(full.copy_dtype), mr_dtype_name(optim->dtype));
    optim->extra = full;
    return 0;
}

uint32_t mr_optim_n_groups(const struct mr_optim *optim)
{
    if (!optim)
        return 0;
    return optim->n_parts;
}

const struct mr_optim_opts *mr_optim_options(const struct mr_optim *optim, uint32_t group)
{
    if (!optim)
        return NULL;
    return group < optim->n_parts ? &optim->parts[group].opts : NULL;
}

double mr_optim_get_lr(const struct mr_optim *optim, uint32_t group)
{
    if (!optim)
        return NAN;
    return group < optim->n_parts ? optim->parts[group].lr : NAN;
}

int mr_optim_set_lr(struct mr_optim *optim, uint32_t group, double lr)
{
    if (!optim)
        return mr_error_null("mr_optim_set_lr", "an optimizer");
    if (!(lr >= 0 && lr <= MR_OPTIM_MOST) || (group >= optim->n_parts && group != UINT32_MAX))
        return mr_error_set(
            MR_EMISUSE,
            "mr_optim_set_lr: group %u, rate %g: expected one of %u groups and a rate of 0..%g",
            group, lr, optim->n_parts, MR_OPTIM_MOST);
    for (uint32_t i = 0; i < optim->n_parts; i++) {
        if ((group != UINT32_MAX && i != group) || optim->parts[i].lr == lr)
            continue;
        optim->parts[i].lr = lr;
        if (optim->host)
            optim->records[i].lr = lr;
        else
            optim->dirty = true;
    }
    return 0;
}

int mr_optim_follow(struct mr_optim *optim, const struct mr_schedule *schedule, uint64_t step,
                    uint64_t epoch)
{
    if (!optim || !schedule)
        return mr_error_null("mr_optim_follow", "an optimizer and a schedule");
    for (uint32_t i = 0; i < optim->n_parts; i++) {
        double lr = mr_schedule_lr(schedule, optim->parts[i].opts.lr, step, epoch);
        int rc = mr_optim_set_lr(optim, i, lr);
        if (rc < 0)
            return rc;
    }
    return 0;
}
