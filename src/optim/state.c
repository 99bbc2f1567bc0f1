/* An optimizer's state as named flat arrays. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

#define RECORD_NUMBERS (sizeof(struct mr_optim_record) / sizeof(double))

/* The i-th existing array; MR_OPTIM_STATES + 1: the records; -1: no such array. */
static int nth(const struct mr_optim *o, uint32_t i)
{
    for (int k = 0; k <= MR_OPTIM_STATES; k++)
        if (o->array[k].data && i-- == 0)
            return k;
    return i == 0 ? MR_OPTIM_STATES + 1 : -1;
}

uint32_t mr_optim_state_count(const struct mr_optim *optim)
{
    if (!optim)
        return 0;
    uint32_t n = 1;
    for (int k = 0; k <= MR_OPTIM_STATES; k++)
        n += optim->array[k].data != NULL;
    return n;
}

const char *mr_optim_state_name(const struct mr_optim *optim, uint32_t i)
{
    if (!optim)
        return NULL;
    int k = nth(optim, i);
    return k < 0 ? NULL : k <= MR_OPTIM_STATES ? optim->array[k].name : "groups";
}

void *mr_optim_state_data(const struct mr_optim *optim, uint32_t i, enum mr_dtype *out_dtype,
                          uint64_t *out_n)
{
    if (!optim || !out_dtype || !out_n)
        return NULL;
    int k = nth(optim, i);
    if (k < 0)
        return NULL;
    bool records = k > MR_OPTIM_STATES;
    *out_dtype = records ? MR_F64 : optim->dtype;
    *out_n = records ? optim->n_parts * RECORD_NUMBERS : optim->n;
    return records ? (void *)optim->records : optim->array[k].data;
}

bool mr_optim_state_is_per_param(const struct mr_optim *o, uint32_t i)
{
    int k = nth(o, i);
    return k >= 0 && k <= MR_OPTIM_STATES;
}

uint64_t mr_optim_state_bytes(const struct mr_optim *o)
{
    uint64_t bytes = o->n_parts * sizeof *o->records;
    for (int k = 0; k <= MR_OPTIM_STATES; k++)
        bytes += o->array[k].data ? o->n * mr_optim_size(o) : 0;
    return bytes;
}

static int find(struct mr_optim *o, const char *call, uint32_t i, uint64_t bytes,
                struct mr_stream *stream, void **out)
{
    enum mr_dtype dtype;
    uint64_t n;
    void *data = mr_optim_state_data(o, i, &dtype, &n);
    if (!data)
        return mr_error_set(MR_EMISUSE, "%s: state %u: there are %u", call, i,
                            mr_optim_state_count(o));
    if (bytes != n * mr_dtype_size(dtype))
        return mr_error_set(MR_ESTATE, "%s: \"%s\" has %llu bytes: expected %llu elements of %s",
                            call, mr_optim_state_name(o, i), (unsigned long long)bytes,
                            (unsigned long long)n, mr_dtype_name(dtype));
    *out = data;
    return mr_optim_check_stream(o, stream, call);
}

/* After all work that is already in the stream. */
static int copy_out(struct mr_optim *o, void *to, const void *from, uint64_t bytes,
                    struct mr_stream *stream)
{
    if (o->host || bytes == 0) {
        memcpy(to, from, bytes);
        return 0;
    }
    int rc = mr_copy_async(stream, to, MR_PAGEABLE, from, MR_DEVICE, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(stream);
}

static int copy_in(struct mr_optim *o, void *to, const void *from, uint64_t bytes,
                   struct mr_stream *stream)
{
    if (o->host || bytes == 0) {
        memcpy(to, from, bytes);
        return 0;
    }
    int rc = mr_copy_async(stream, to, MR_DEVICE, from, MR_PAGEABLE, bytes);
    return rc < 0 ? rc : mr_stream_synchronize(stream);
}

int mr_optim_state_read(struct mr_optim *optim, uint32_t i, void *out, uint64_t bytes,
                        struct mr_stream *stream)
{
    if (!optim || !out)
        return mr_error_null("mr_optim_state_read", "an optimizer and a place for the array");
    void *data = NULL;
    int rc = find(optim, "mr_optim_state_read", i, bytes, stream, &data);
    if (rc < 0)
        return rc;
    if (data == (void *)optim->records)
        rc = mr_optim_push(optim, stream);
    if (rc < 0)
        return rc;
    return copy_out(optim, out, data, bytes, stream);
}

static bool is_count(double v)
{
    return v >= 0 && v <= 0x1p53 && v == floor(v);
}

static int check_records(const struct mr_optim *o, const struct mr_optim_record *r)
{
    for (uint32_t i = 0; i < o->n_parts; i++) {
        bool product = r[i].mu_product >= 0 && r[i].mu_product <= 1;
        bool pending = is_count(fabs(r[i].pending)) &&
                       fabs(r[i].pending) < (double)o->opts.accumulate &&
                       r[i].pending == r[0].pending;
        if (!(r[i].lr >= 0 && r[i].lr <= MR_OPTIM_MOST) || !is_count(r[i].step) || !product ||
            !pending)
            return mr_error_set(
                MR_ESTATE,
                "mr_optim_state_write: group %u: rate %g, step %g, product %g, pending %g: no such "
                "state is saved by an optimizer of these options",
                i, r[i].lr, r[i].step, r[i].mu_product, r[i].pending);
    }
    return 0;
}

static int write_records(struct mr_optim *o, const void *data, uint64_t bytes,
                         struct mr_stream *stream)
{
    struct mr_optim_record *r = malloc(bytes);
    if (!r)
        return mr_error_nomem("optimizer's groups", bytes);
    memcpy(r, data, bytes);
    int rc = check_records(o, r);
    if (rc < 0)
        goto end;
    rc = copy_in(o, o->records, r, bytes, stream);
    if (rc < 0)
        goto end;
    for (uint32_t i = 0; i < o->n_parts; i++)
        o->parts[i].lr = r[i].lr;
    o->pending = (uint64_t)fabs(r[0].pending);
    o->dirty = false;
end:
    free(r);
    return rc;
}

int mr_optim_state_write(struct mr_optim *optim, uint32_t i, const void *data, uint64_t bytes,
                         struct mr_stream *stream)
{
    if (!optim || !data)
        return mr_error_null("mr_optim_state_write", "an optimizer and an array");
    void *to = NULL;
    int rc = find(optim, "mr_optim_state_write", i, bytes, stream, &to);
    if (rc < 0)
        return rc;
    if (to == (void *)optim->records)
        return write_records(optim, data, bytes, stream);
    return copy_in(optim, to, data, bytes, stream);
}

int mr_optim_query_step(struct mr_optim *optim, uint32_t group, struct mr_stream *stream,
                        uint64_t *out_step, double *out_grad_norm)
{
    if (!optim)
        return mr_error_null("mr_optim_query_step", "an optimizer");
    struct mr_optim_record r = {0};
    if (group >= optim->n_parts)
        return mr_error_set(MR_EMISUSE, "mr_optim_query_step: group %u of %u", group,
                            optim->n_parts);
    int rc = mr_optim_check_stream(optim, stream, "mr_optim_query_step");
    if (rc < 0)
        return rc;
    rc = copy_out(optim, &r, &optim->records[group], sizeof r, stream);
    if (rc < 0)
        return rc;
    if (out_step)
        *out_step = (uint64_t)r.step;
    if (out_grad_norm)
        *out_grad_norm = r.grad_norm;
    return 0;
}
