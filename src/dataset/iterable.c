/* Iterable sets made of a user's callbacks. */
#include "dataset/iterable.h"

#include "dataset/user.h"
#include <millrace/iterable.h>
#include <string.h>

#define MAX_BYTES (1ull << 40) /* of a sample */

/* An item of read() holds the fields' rows, each at row_at[f], and their dimensions at dims_at if
 * any varies; one of read_bytes() the bytes. */
struct state {
    struct mr_user user; /* first */
    int (*read)(void *user, const struct mr_sample_context *context, void *const row[],
                uint64_t (*dim)[MR_MAX_RANK]);
    int (*read_bytes)(void *user, const struct mr_sample_context *context, struct mr_bytes *out);
    int (*decode)(void *user, const struct mr_sample_context *context, const struct mr_bytes *in,
                  void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    int (*rewind)(void *user, uint64_t epoch);
    void (*stop)(void *user);
    uint64_t row_at[MR_MAX_FIELDS], dims_at, item_bytes;
    bool varies;
};

/* ---- opening ---- */

static int check(const struct mr_iterable_opts *o, const char *name)
{
    if (!o->read == !o->read_bytes)
        return mr_error_set(MR_EMISUSE, "%s: %s: expected read, or read_bytes and decode", name,
                            o->read ? "both read and read_bytes" : "neither read nor read_bytes");
    if (!o->read_bytes != !o->decode)
        return mr_error_set(MR_EMISUSE, "%s: %s", name,
                            o->decode ? "decode without read_bytes: it gets its bytes from there"
                                      : "read_bytes without decode, which makes samples of them");
    return 0;
}

static int lay_out(struct mr_dataset *ds, struct state *st)
{
    uint64_t at = 0;
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t bytes;
        int rc = mr_spec_bytes(&ds->field[f], &bytes);
        if (rc < 0)
            return rc;
        st->row_at[f] = at;
        st->varies |= ds->field[f].var_dims != 0;
        at += mr_round_up(bytes, MR_CACHE_LINE); /* all together < 2^62: mr_dataset_check() */
    }
    st->dims_at = at;
    if (st->varies)
        at += (uint64_t)ds->n_fields * MR_MAX_RANK * sizeof(uint64_t);
    st->item_bytes = MR_MAX(at, 1);
    return 0;
}

static int open_iterable(struct mr_dataset *ds, const void *options)
{
    const struct mr_iterable_opts *o = options;
    struct state *st = ds->state;
    ds->n = MR_UNKNOWN;
    ds->n_fields = o->n_fields;
    memcpy(ds->field, o->field, sizeof ds->field);
    ds->draws = true;
    ds->unordered = o->unordered != 0;
    struct mr_user user = {.user = o->user, .init = o->init, .exit = o->exit, .close = o->close};
    int rc = mr_user_open(ds, &user, o->name, o->version);
    if (rc < 0)
        return rc;
    rc = check(o, st->user.name);
    if (rc < 0)
        return rc;
    rc = lay_out(ds, st);
    if (rc < 0)
        return rc;
    st->read = o->read;
    st->read_bytes = o->read_bytes;
    st->decode = o->decode;
    st->rewind = o->rewind;
    st->stop = o->stop;
    ds->item_bytes = o->read ? st->item_bytes : 0;
    if (!o->rewind)
        snprintf(ds->once, sizeof ds->once, "%.60s has no rewind callback", st->user.name);
    return 0;
}

/* ---- reading ---- */

static int rewind_pass(const struct mr_dataset *ds, uint64_t epoch)
{
    const struct state *st = ds->state;
    char call[48];
    if (!st->rewind)
        return 0;
    snprintf(call, sizeof call, "rewind to epoch %llu", (unsigned long long)epoch);
    uint64_t errors = mr_error_count();
    return mr_user_result(ds, 0, call, st->rewind(st->user.user, epoch), 0, errors);
}

static int read_rows(const struct mr_dataset *ds, const struct mr_sample_context *context,
                     struct mr_item *item)
{
    const struct state *st = ds->state;
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], errors = mr_error_count();
    int rc = mr_item_reserve(item, st->item_bytes);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ds->n_fields; f++) {
        row[f] = item->data + st->row_at[f];
        memcpy(dim[f], ds->field[f].dim, sizeof dim[f]);
    }
    rc = st->read(st->user.user, context, row, dim);
    if (rc == MR_END)
        return rc;
    item->bytes = st->item_bytes;
    item->status = mr_user_result(ds, context->index, "read", rc, 0, errors);
    if (item->status < 0)
        return 0;
    item->status = mr_user_check_dims(ds, context->index, dim);
    if (st->varies)
        memcpy(item->data + st->dims_at, dim, (size_t)ds->n_fields * sizeof dim[0]);
    return 0;
}

static int read_bytes(const struct mr_dataset *ds, const struct mr_sample_context *context,
                      struct mr_item *item)
{
    const struct state *st = ds->state;
    struct mr_bytes in = {NULL, 0};
    uint64_t errors = mr_error_count();
    int rc = st->read_bytes(st->user.user, context, &in);
    if (rc == MR_END)
        return rc;
    item->status = mr_user_result(ds, context->index, "read_bytes", rc, 0, errors);
    if (item->status == 0 && in.n > 0 && (!in.data || in.n > MAX_BYTES))
        item->status = mr_error_set(
            MR_ECALLBACK, "%s: sample %llu: read_bytes gave %llu bytes at %s", st->user.name,
            (unsigned long long)context->index, (unsigned long long)in.n,
            in.data ? "once: expected at most 2^40" : "NULL");
    if (item->status < 0)
        return 0;
    rc = mr_item_reserve(item, MR_MAX(in.n, 1));
    if (rc < 0)
        return rc;
    if (in.n > 0)
        memcpy(item->data, in.data, in.n);
    item->bytes = in.n;
    return 0;
}

static int next(const struct mr_dataset *ds, const struct mr_sample_context *context,
                struct mr_item *item)
{
    const struct state *st = ds->state;
    return st->read ? read_rows(ds, context, item) : read_bytes(ds, context, item);
}

static void stop(const struct mr_dataset *ds)
{
    const struct state *st = ds->state;
    if (st->stop)
        st->stop(st->user.user);
}

/* ---- making ---- */

static int from_rows(const struct mr_dataset *ds, const unsigned char *data, struct mr_sample *out)
{
    const struct state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++) {
        out->field[f].data = data + st->row_at[f];
        if (st->varies)
            memcpy(out->field[f].dim, data + st->dims_at + (size_t)f * sizeof out->field[f].dim,
                   sizeof out->field[f].dim);
    }
    return 0;
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    const struct state *st = ds->state;
    if (st->read)
        return from_rows(ds, in[0].data, out);
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], errors = mr_error_count();
    mr_user_rows(ds, out, row, dim);
    struct mr_sample_context context = mr_user_context(out, index);
    int rc = st->decode(st->user.user, &context, in, row, dim);
    rc = mr_user_result(ds, index, "decode", rc, 0, errors);
    return rc < 0 ? rc : mr_user_take_dims(ds, index, dim, out);
}

static const struct mr_iterable_ops iterable = {.rewind = rewind_pass, .next = next, .stop = stop};

const struct mr_dataset_ops mr_dataset_iterable = {
    .name = "iterable",
    .summary = "a user's own source of samples, of unknown length",
    .opts_size = sizeof(struct mr_iterable_opts),
    .state_size = sizeof(struct state),
    .open = open_iterable,
    .close = mr_user_close,
    .enter = mr_user_enter,
    .leave = mr_user_leave,
    .decode = decode,
    .iterable = &iterable,
};

void mr_iterable_opts_fill(struct mr_iterable_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_iterable, opts, size);
}

int mr_dataset_open_iterable(const struct mr_iterable_opts *opts, struct mr_dataset **out)
{
    return mr_user_make(&mr_dataset_iterable, opts, out);
}
