/* Located sets: a user's code says where samples are and how their bytes become tensors. */
#include "dataset/user.h"

#include <string.h>

#define MAX_SAMPLE_BYTES (1ull << 30) /* of ranges, by default */

struct state {
    struct mr_user user; /* first */
    int (*locate)(void *user, uint64_t index, struct mr_range range[], int max);
    int (*decode)(void *user, const struct mr_sample_context *context, const struct mr_bytes in[],
                  int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    uint64_t n_files, max_bytes;
    uint64_t field_bytes[MR_MAX_FIELDS]; /* without decode */
    int nothing;                         /* the file of ranges of 0 bytes */
};

static int check(const struct mr_located_opts *o, const char *name)
{
    if (!o->locate)
        return mr_error_set(MR_EMISUSE, "%s: no locate function", name);
    if (o->n_files < 1 || o->n_files > INT32_MAX / 4 || !o->file)
        return mr_error_set(MR_EMISUSE, "%s: %llu files: expected 1 or more, and their paths", name,
                            (unsigned long long)o->n_files);
    for (uint64_t k = 0; k < o->n_files; k++)
        if (!o->file[k] || !o->file[k][0])
            return mr_error_set(MR_EMISUSE, "%s: file %llu: expected a path or a URL", name,
                                (unsigned long long)k);
    for (int f = 0; !o->decode && f < o->n_fields; f++)
        if (o->field[f].var_dims)
            return mr_error_set(MR_EMISUSE,
                                "%s: field '%.*s': variable dimensions: expected fixed ones, or a "
                                "decode function that sets them",
                                name, MR_NAME_BYTES, o->field[f].name);
    return 0;
}

static int add_files(struct mr_dataset *ds, const struct mr_located_opts *o)
{
    struct state *st = ds->state;
    for (uint64_t k = 0; k < o->n_files; k++) {
        int id = mr_files_add_path(ds->files, o->file[k]);
        if (id < 0)
            return id;
        uint64_t bytes = mr_files_bytes(ds->files, id);
        ds->fingerprint = mr_hash(ds->fingerprint, &bytes, sizeof bytes);
    }
    st->n_files = o->n_files;
    st->nothing = mr_files_add_memory(ds->files, "empty range", NULL, 0, false);
    return MR_MIN(st->nothing, 0);
}

static int open_located(struct mr_dataset *ds, const void *options)
{
    const struct mr_located_opts *o = options;
    struct state *st = ds->state;
    ds->n = o->n;
    ds->n_fields = o->n_fields;
    memcpy(ds->field, o->field, sizeof ds->field);
    ds->draws = o->changes != 0;
    struct mr_user user = {.user = o->user, .init = o->init, .exit = o->exit, .close = o->close};
    int rc = mr_user_open(ds, &user, o->name, o->version);
    if (rc < 0)
        return rc;
    rc = check(o, st->user.name);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ds->n_fields; f++) {
        rc = mr_spec_bytes(&ds->field[f], &st->field_bytes[f]);
        if (rc < 0)
            return rc;
    }
    st->locate = o->locate;
    st->decode = o->decode;
    st->max_bytes = o->max_sample_bytes ? o->max_sample_bytes : MAX_SAMPLE_BYTES;
    return add_files(ds, o);
}

/* Sets the error of range r. */
static int refuse(const struct mr_dataset *ds, uint64_t index, int r, const struct mr_range *range,
                  const char *what, uint64_t number)
{
    const struct state *st = ds->state;
    bool known = range->file < st->n_files;
    return mr_error_set(MR_ECALLBACK,
                        "%s: sample %llu: range %d: file %llu%s%s%s, offset %llu, %llu bytes: %s "
                        "%llu",
                        st->user.name, (unsigned long long)index, r,
                        (unsigned long long)range->file, known ? " (" : "",
                        known ? mr_files_name(ds->files, (int)range->file) : "", known ? ")" : "",
                        (unsigned long long)range->offset, (unsigned long long)range->bytes, what,
                        (unsigned long long)number);
}

static int check_range(const struct mr_dataset *ds, uint64_t index, int r,
                       const struct mr_range *range, uint64_t *total)
{
    const struct state *st = ds->state;
    uint64_t end;
    if (range->file >= st->n_files)
        return refuse(ds, index, r, range, "expected a file below", st->n_files);
    uint64_t bytes = mr_files_bytes(ds->files, (int)range->file);
    if (!mr_add(range->offset, range->bytes, &end) || end > bytes)
        return refuse(ds, index, r, range, "the range ends beyond the file, which has", bytes);
    if (!st->decode && range->bytes != st->field_bytes[r])
        return refuse(ds, index, r, range, "without decode, expected the bytes of a tensor,",
                      st->field_bytes[r]);
    if (!mr_add(*total, range->bytes, total) || *total > st->max_bytes)
        return refuse(ds, index, r, range, "all ranges exceed max_sample_bytes,", st->max_bytes);
    return 0;
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct state *st = ds->state;
    struct mr_range range[MR_MAX_EXTENTS];
    uint64_t errors = mr_error_count(), total = 0;
    int most = mr_extents_most(ds);
    memset(range, 0, (size_t)most * sizeof range[0]);
    int n = st->locate(st->user.user, index, range, most);
    n = mr_user_result(ds, index, "locate", n, most, errors);
    if (n < 0)
        return n;
    if (n == 0 || (!st->decode && n != ds->n_fields))
        return mr_error_set(
            MR_ECALLBACK, "%s: sample %llu: locate returned %d ranges: expected %s%d",
            st->user.name, (unsigned long long)index, n,
            st->decode ? "1 to " : "one for each field, ", st->decode ? most : ds->n_fields);
    for (int r = 0; r < n; r++) {
        int rc = check_range(ds, index, r, &range[r], &total);
        if (rc < 0)
            return rc;
        bool empty = range[r].bytes == 0;
        out[r] = (struct mr_extent){.file = empty ? st->nothing : (int)range[r].file,
                                    .field = st->decode ? -1 : r,
                                    .offset = empty ? 0 : range[r].offset,
                                    .bytes = range[r].bytes};
    }
    return n;
}

/* Every range has bytes: those of an empty one are in memory. */
static int count(const struct mr_dataset *ds, const struct mr_bytes in[])
{
    int n = 0, most = mr_extents_most(ds);
    while (n < most && in[n].data)
        n++;
    return n;
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    const struct state *st = ds->state;
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], errors = mr_error_count();
    mr_user_rows(ds, out, row, dim);
    struct mr_sample_context context = mr_user_context(out, index);
    int rc = st->decode(st->user.user, &context, in, count(ds, in), row, dim);
    rc = mr_user_result(ds, index, "decode", rc, 0, errors);
    if (rc < 0)
        return rc;
    return mr_user_take_dims(ds, index, dim, out);
}

const struct mr_dataset_ops mr_dataset_located = {
    .name = "located",
    .summary = "a user's own format",
    .opts_size = sizeof(struct mr_located_opts),
    .state_size = sizeof(struct state),
    .open = open_located,
    .close = mr_user_close,
    .enter = mr_user_enter,
    .leave = mr_user_leave,
    .locate = locate,
    .decode = decode,
};

void mr_located_opts_fill(struct mr_located_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_located, opts, size);
}

int mr_dataset_open_located(const struct mr_located_opts *opts, struct mr_dataset **out)
{
    return mr_user_make(&mr_dataset_located, opts, out);
}
