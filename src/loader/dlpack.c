/* Batches as DLPack tensors: a lease each. */
#include "loader/engine.h"

#include <errno.h>
#include <millrace/dlpack.h>
#include <stdlib.h>
#include <string.h>

/* One allocation for each tensor, whose manager it is. */
struct made {
    struct mr_lease lease;
    struct mr_deferred later;
    int64_t shape[MR_MAX_RANK + 1], strides[MR_MAX_RANK + 1];
    union {
        struct mr_dlpack plain;
        struct mr_dlpack_versioned versioned;
    } as;
};

/* What a tensor shows. */
struct view {
    void *data;
    struct mr_spec spec;
    bool on_device, read_only;
};

static int refuse(const struct mr_batch_field *bf, const char *why)
{
    return mr_error_set(MR_EUNSUPPORTED, "%.*s: %s", MR_NAME_BYTES, bf->spec.name, why);
}

static int look_at_part(const struct mr_batch *batch, const struct mr_batch_field *bf,
                        enum mr_dlpack_part part, struct view *out)
{
    *out = (struct view){.spec = bf->spec, .read_only = part != MR_DLPACK_DATA};
    bool numbers = part == MR_DLPACK_OFFSETS || part == MR_DLPACK_LENGTHS;
    if (numbers) {
        uint64_t n = batch->n + (part == MR_DLPACK_OFFSETS);
        const uint64_t *at = part == MR_DLPACK_OFFSETS ? bf->offsets : bf->lengths;
        if (!at)
            return refuse(bf, "no offsets or lengths: they are of fields whose samples vary, "
                              "offsets with ragged collation only");
        out->spec = (struct mr_spec){.dtype = MR_I64, .rank = 1, .dim = {n}};
        memcpy(&out->data, &at, sizeof at);
        return 0;
    }
    if (part != MR_DLPACK_DATA && part != MR_DLPACK_HOST)
        return mr_error_set(MR_EMISUSE, "DLPack: expected a part of a field, found %d", (int)part);
    if (part == MR_DLPACK_HOST && !bf->host)
        return refuse(bf, "not in host memory: it was made on the device");
    out->data = bf->data;
    if (part == MR_DLPACK_HOST)
        memcpy(&out->data, &bf->host, sizeof bf->host);
    out->on_device = part == MR_DLPACK_DATA && bf->data != bf->host;
    return 0;
}

static uint8_t code_of(enum mr_dtype dtype)
{
    switch (dtype) {
    case MR_BOOL:
        return MR_DLPACK_BOOL;
    case MR_U8:
    case MR_U16:
    case MR_U32:
    case MR_U64:
        return MR_DLPACK_UINT;
    case MR_F16:
    case MR_F32:
    case MR_F64:
        return MR_DLPACK_FLOAT;
    case MR_BF16:
        return MR_DLPACK_BFLOAT;
    case MR_C64:
    case MR_C128:
        return MR_DLPACK_COMPLEX;
    default:
        return MR_DLPACK_INT;
    }
}

static void fill_tensor(struct made *m, const struct view *v, const struct mr_device_info *device,
                        struct mr_dlpack_tensor *out)
{
    bool cuda = v->on_device && !device->simulated;
    int64_t stride = 1;
    for (int32_t d = v->spec.rank - 1; d >= 0; d--) {
        m->shape[d] = (int64_t)v->spec.dim[d];
        m->strides[d] = stride;
        stride *= m->shape[d];
    }
    *out = (struct mr_dlpack_tensor){.data = v->data,
                                     .device_type = cuda ? MR_DLPACK_CUDA : MR_DLPACK_CPU,
                                     .device_id = cuda ? device->ordinal : 0,
                                     .ndim = v->spec.rank,
                                     .code = code_of(v->spec.dtype),
                                     .bits = (uint8_t)(8 * mr_dtype_size(v->spec.dtype)),
                                     .lanes = 1,
                                     .shape = m->shape,
                                     .strides = m->strides};
}

static void end(struct made *m)
{
    if (mr_lease_end(&m->lease, &m->later))
        free(m);
}

static void end_later(struct mr_deferred *later)
{
    end((struct made *)((char *)later - offsetof(struct made, later)));
}

static int make(const struct mr_batch *batch, int field, enum mr_dlpack_part part,
                struct mr_stream *stream, struct view *view, struct made **out)
{
    if (field < 0 || field >= batch->n_fields)
        return mr_error_set(MR_EMISUSE, "DLPack: expected a field from 0 to %d, found %d",
                            batch->n_fields - 1, field);
    int rc = look_at_part(batch, &batch->field[field], part, view);
    if (rc < 0)
        return rc;
    struct made *m = calloc(1, sizeof *m);
    if (!m)
        return mr_error_nomem("DLPack tensor", sizeof *m);
    m->later.run = end_later;
    rc = mr_lease_begin(batch, stream, part == MR_DLPACK_HOST, &m->lease);
    if (rc < 0)
        free(m);
    else
        *out = m;
    return rc;
}

static void delete_plain(struct mr_dlpack *self)
{
    end(self->manager);
}

static void delete_versioned(struct mr_dlpack_versioned *self)
{
    end(self->manager);
}

int mr_batch_to_dlpack(const struct mr_batch *batch, int field, enum mr_dlpack_part part,
                       struct mr_stream *stream, struct mr_dlpack **out)
{
    struct view view;
    struct made *m;
    if (!batch || !out)
        return mr_error_null("mr_batch_to_dlpack", "a batch and a place for the tensor");
    int rc = make(batch, field, part, stream, &view, &m);
    if (rc < 0)
        return rc;
    m->as.plain = (struct mr_dlpack){.manager = m, .deleter = delete_plain};
    fill_tensor(m, &view, &m->lease.all->info, &m->as.plain.tensor);
    *out = &m->as.plain;
    return 0;
}

int mr_batch_to_dlpack_versioned(const struct mr_batch *batch, int field, enum mr_dlpack_part part,
                                 struct mr_stream *stream, struct mr_dlpack_versioned **out)
{
    struct view view;
    struct made *m;
    if (!batch || !out)
        return mr_error_null("mr_batch_to_dlpack_versioned", "a batch and a place for the tensor");
    int rc = make(batch, field, part, stream, &view, &m);
    if (rc < 0)
        return rc;
    m->as.versioned =
        (struct mr_dlpack_versioned){.major = 1,
                                     .manager = m,
                                     .deleter = delete_versioned,
                                     .flags = view.read_only ? MR_DLPACK_READ_ONLY : 0};
    fill_tensor(m, &view, &m->lease.all->info, &m->as.versioned.tensor);
    *out = &m->as.versioned;
    return 0;
}
