/* The core of data sets: opens a format, checks its result, and reads samples without an engine. */
#include "dataset/dataset.h"

#include "dataset/iterable.h"

#include <millrace/system.h>
#include <stddef.h>
#include <string.h>

#define MAX_SAMPLES (1ull << 62)

/* A caller compiled against an older header passes a struct shorter than the table's. */
void mr_dataset_opts_fill(const struct mr_dataset_ops *ops, void *opts, size_t size)
{
    _Alignas(max_align_t) unsigned char full[MR_MAX_OPTS_BYTES] = {0};
    if (ops->options)
        mr_options_init(
            ops->options,
            full); /* fails only if a default does not parse; a test checks all tables */
    mr_opts_copy(opts, size, full, ops->opts_size);
}

const char *mr_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

void mr_field_name(struct mr_spec *spec)
{
    strcpy(spec->name, spec->dtype == MR_U8 && spec->rank >= 2 ? "image" : "x");
}

int mr_shape_check(const struct mr_shape *shape, const char *who)
{
    if (shape->rank < 0 || shape->rank > MR_MAX_RANK)
        return mr_error_set(MR_EOPTION, "%s: shape of rank %d: expected 0..%d", who, shape->rank,
                            MR_MAX_RANK);
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] == 0)
            return mr_error_set(MR_EOPTION, "%s: shape: dimension %d is 0: expected 1 or more", who,
                                d);
    return 0;
}

static int check_name(const struct mr_dataset *ds, const char *who, int f)
{
    const char *name = ds->field[f].name;
    if (!name[0] || !memchr(name, 0, MR_NAME_BYTES))
        return mr_error_set(MR_EMISUSE, "%s: field %d: expected a name of 1..%d bytes", who, f,
                            MR_NAME_BYTES - 1);
    for (int g = 0; g < f; g++)
        if (strcmp(ds->field[g].name, name) == 0)
            return mr_error_set(MR_EMISUSE, "%s: fields %d and %d are both named '%s'", who, g, f,
                                name);
    return 0;
}

static int check_field(const struct mr_dataset *ds, const char *who, int f, uint64_t *total)
{
    const struct mr_spec *spec = &ds->field[f];
    int rc = check_name(ds, who, f);
    if (rc < 0)
        return rc;
    if (mr_dtype_size(spec->dtype) == 0)
        return mr_error_set(MR_EMISUSE, "%s: field '%s': %d is not a dtype", who, spec->name,
                            (int)spec->dtype);
    if (spec->rank < 0 || spec->rank > MR_MAX_RANK)
        return mr_error_set(MR_EMISUSE, "%s: field '%s': rank %d, expected 0..%d", who, spec->name,
                            spec->rank, MR_MAX_RANK);
    if (spec->var_dims >> spec->rank)
        return mr_error_set(MR_EMISUSE,
                            "%s: field '%s': var_dims 0x%x names a dimension past rank %d", who,
                            spec->name, spec->var_dims, spec->rank);
    if (spec->kind > MR_KIND_STRING || spec->reserved[0] || spec->reserved[1] || spec->reserved[2])
        return mr_error_set(MR_EMISUSE,
                            "%s: field '%s': kind is no enum mr_kind, or reserved is not 0: begin "
                            "with struct mr_spec x = {0}",
                            who, spec->name);
    if (!mr_spec_kind_fits(spec))
        return mr_error_set(MR_EMISUSE,
                            "%s: field '%s': kind is %s: expected dtype u8, rank 1 and var_dims 1, "
                            "not %s, %d and 0x%x",
                            who, spec->name, spec->kind == MR_KIND_STRING ? "STRING" : "BYTES",
                            mr_dtype_name(spec->dtype), spec->rank, spec->var_dims);
    for (int d = 0; d < spec->rank; d++)
        if (spec->dim[d] == 0)
            return mr_error_set(MR_EMISUSE, "%s: field '%s': dimension %d is 0", who, spec->name,
                                d);
    uint64_t bytes;
    rc = mr_spec_bytes(spec, &bytes);
    if (rc < 0)
        return rc;
    if (!mr_add(*total, bytes, total) || *total > 1ull << 62)
        return mr_error_set(MR_ELIMIT, "%s: a sample of more than 2^62 bytes", who);
    return 0;
}

int mr_dataset_check(const struct mr_dataset *ds, const char *who)
{
    if (ds->n == 0)
        return mr_error_set(MR_EMISUSE, "%s: no samples: expected at least 1", who);
    if (ds->n > MAX_SAMPLES && !ds->ops->iterable)
        return mr_error_set(MR_ELIMIT, "%s: %llu samples: expected at most 2^62", who,
                            (unsigned long long)ds->n);
    if (ds->n_fields < 1 || ds->n_fields > MR_MAX_FIELDS)
        return mr_error_set(MR_EMISUSE, "%s: %d fields: expected 1..%d", who, ds->n_fields,
                            MR_MAX_FIELDS);
    uint64_t total = 0;
    for (int f = 0; f < ds->n_fields; f++) {
        int rc = check_field(ds, who, f, &total);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static uint64_t hash_u64(uint64_t h, uint64_t x)
{
    return mr_hash(h, &x, sizeof x);
}

/* What open() hashed adds what format name, length and fields don't cover. */
static uint64_t fingerprint(const struct mr_dataset *ds)
{
    uint64_t h = mr_hash(ds->fingerprint, ds->ops->name, strlen(ds->ops->name));
    h = hash_u64(h, ds->n);
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_spec *spec = &ds->field[f];
        h = mr_hash(h, spec->name, strlen(spec->name) + 1);
        h = hash_u64(h, (uint64_t)spec->dtype << 32 | spec->var_dims);
        h = hash_u64(h, (uint64_t)spec->rank);
        for (int d = 0; d < spec->rank; d++)
            h = hash_u64(h, spec->dim[d]);
    }
    return mr_mix64(h);
}

/* Hashes the front of each file, to tell data sets of the same shape apart. (The size of a .gz is
 * left out: it is not known until all of it is unpacked.) */
#define FRONT_BYTES 65536
static int hash_front(struct mr_dataset *ds, int id, unsigned char *front)
{
    uint64_t bytes = MR_MIN(mr_files_bytes(ds->files, id), FRONT_BYTES);
    int rc = mr_interrupt_check(mr_files_name(ds->files, id));
    if (rc < 0)
        return rc;
    rc = mr_files_read(ds->files, id, 0, front, bytes);
    if (rc < 0)
        return rc;
    ds->fingerprint = mr_hash(ds->fingerprint, front, bytes);
    return 0;
}

/* Lazy files are not read here: their data set hashes what it knows of them. */
static int hash_fronts(struct mr_dataset *ds)
{
    struct mr_files_kinds kinds;
    mr_files_count(ds->files, &kinds);
    int rc = 0, n = mr_files_length(ds->files);
    if (kinds.n_null > 0 || kinds.n_lazy == (uint32_t)n || ds->first_file == n)
        return 0;
    unsigned char *front = malloc(FRONT_BYTES);
    if (!front)
        return mr_error_nomem("fingerprint", FRONT_BYTES);
    for (int id = ds->first_file; id < n && rc == 0; id++)
        if (!mr_files_is_lazy(ds->files, id))
            rc = hash_front(ds, id, front);
    free(front);
    return rc;
}

static int finish(struct mr_dataset *ds)
{
    int rc = mr_dataset_check(ds, ds->ops->name);
    if (rc < 0)
        return rc;
    rc = mr_files_load_small(ds->files);
    if (rc < 0)
        return rc;
    rc = hash_fronts(ds);
    ds->fingerprint = fingerprint(ds);
    return rc;
}

/* Enum values that a struct can hold but a URI cannot. */
static int check_choices(const struct mr_dataset_ops *ops, const void *opts)
{
    for (const struct mr_option *o = ops->options; o && o->name; o++) {
        int value = 0, n = 0;
        if (o->type != MR_OPT_ENUM)
            continue;
        memcpy(&value, (const char *)opts + o->offset, sizeof value);
        while (o->choices[n])
            n++;
        if (value < 0 || value >= n)
            return mr_error_set(MR_EOPTION, "%s: %s=%d: expected 0 (%s) .. %d (%s)", ops->name,
                                o->name, value, o->choices[0], n - 1, o->choices[n - 1]);
    }
    return 0;
}

/* The caller's struct may be an older, shorter version: missing members get their defaults. */
static int copy_opts(const struct mr_dataset_ops *ops, const void *opts, void **out)
{
    char what[64];
    void *copy = malloc(ops->opts_size);
    if (!copy)
        return mr_error_nomem(ops->name, ops->opts_size);
    snprintf(what, sizeof what, "%s_opts", ops->name);
    mr_dataset_opts_fill(ops, copy, ops->opts_size);
    int rc = mr_opts_take(what, opts, copy, ops->opts_size);
    rc = rc < 0 ? rc : check_choices(ops, copy);
    if (rc < 0)
        free(copy);
    else
        *out = copy;
    return rc;
}

/* Replaces URLs that contain credentials by names, so that nothing derived from the options
 * contains a secret. */
static int hide_urls(struct mr_dataset *ds, void *opts)
{
    for (const struct mr_option *o = ds->ops->options; o && o->name && !ds->ops->many_urls; o++) {
        const char **text = (const char **)((char *)opts + o->offset);
        if (o->type != MR_OPT_STRING || !*text || ds->n_hidden == MR_MAX_HIDDEN)
            continue;
        int rc = mr_url_acquire(*text, text);
        if (rc < 0)
            return rc;
        if (rc > 0)
            ds->hidden[ds->n_hidden++] = *text;
    }
    return 0;
}

/* files: the file table of the mixture if this is a part of one, else NULL. */
static int make(const struct mr_dataset_ops *ops, const void *opts, struct mr_files *files,
                struct mr_dataset **out)
{
    void *copy = NULL;
    int rc = copy_opts(ops, opts, &copy);
    if (rc < 0)
        return rc;
    struct mr_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) {
        rc = mr_error_nomem(ops->name, sizeof *ds);
        goto free_copy;
    }
    ds->ops = ops;
    ds->picture = -1;
    ds->fingerprint = MR_HASH_START;
    ds->state = calloc(1, MR_MAX(ops->state_size, 1));
    ds->part = files != NULL;
    ds->files = files ? files : mr_files_create();
    ds->first_file = files ? mr_files_length(files) : 0;
    if (!ds->state || !ds->files) {
        rc = mr_error_nomem(ops->name, ops->state_size);
        goto free_ds;
    }
    mr_interruptible(1);
    rc = mr_interrupt_check(ops->name);
    if (rc < 0)
        goto end;
    rc = hide_urls(ds, copy);
    if (rc < 0)
        goto end;
    rc = ops->open(ds, copy);
    if (rc < 0)
        goto end;
    rc = finish(ds);
    if (rc < 0)
        goto end;
    mr_interruptible(0);
    free(copy);
    *out = ds;
    return 0;
end:
    mr_interruptible(0);
free_ds:
    mr_dataset_close(ds);
free_copy:
    free(copy);
    return rc;
}

int mr_dataset_make(const struct mr_dataset_ops *ops, const void *opts, struct mr_dataset **out)
{
    if (!opts || !out)
        return mr_error_null("mr_dataset_open_*", "options and a place for the result");
    return make(ops, opts, NULL, out);
}

int mr_dataset_open_part(const char *uri, struct mr_files *files, struct mr_dataset **out)
{
    const struct mr_dataset_ops *ops;
    void *opts;
    int rc = mr_uri_parse(uri, &ops, &opts);
    if (rc < 0)
        return rc;
    rc = make(ops, opts, files, out);
    mr_uri_free(ops, opts);
    return rc;
}

int mr_dataset_open(const char *uri, struct mr_dataset **out)
{
    if (!uri || !out)
        return mr_error_null("mr_dataset_open", "a URI and a place for the result");
    return mr_dataset_open_part(uri, NULL, out);
}

bool mr_dataset_decodes(const struct mr_dataset *ds)
{
    return ds->picture >= 0 || ds->wants_decoder;
}

bool mr_dataset_isolates(const struct mr_dataset *ds)
{
    return ds->ops->isolates && !ds->foreign;
}

uint64_t mr_dataset_memory(const struct mr_dataset *ds, uint32_t workers)
{
    return ds->ops->memory ? ds->ops->memory(ds, workers) : 0;
}

void mr_dataset_close(struct mr_dataset *ds)
{
    if (!ds)
        return;
    if (ds->files && !ds->part)
        mr_files_destroy(ds->files);
    if (ds->state && ds->ops->close)
        ds->ops->close(ds);
    for (int i = 0; i < ds->n_hidden; i++)
        mr_url_release(ds->hidden[i]);
    free(ds->state);
    free(ds);
}

uint64_t mr_dataset_length(const struct mr_dataset *ds)
{
    if (!ds)
        return 0;
    return ds->n;
}

int mr_dataset_fields(const struct mr_dataset *ds)
{
    if (!ds)
        return 0;
    return ds->n_fields;
}

const struct mr_spec *mr_dataset_field(const struct mr_dataset *ds, int field)
{
    if (!ds)
        return NULL;
    return field >= 0 && field < ds->n_fields ? &ds->field[field] : NULL;
}

const char *mr_dataset_format(const struct mr_dataset *ds)
{
    if (!ds)
        return NULL;
    return ds->ops->name;
}

const char *mr_dataset_text(const struct mr_dataset *ds)
{
    if (!ds)
        return NULL;
    return ds->text;
}

uint64_t mr_dataset_classes(const struct mr_dataset *ds)
{
    if (!ds)
        return 0;
    return ds->n_classes;
}

const char *mr_dataset_class_name(const struct mr_dataset *ds, uint64_t k)
{
    if (!ds)
        return NULL;
    return k < ds->n_classes ? ds->class[k].name : NULL;
}

uint64_t mr_dataset_class_samples(const struct mr_dataset *ds, uint64_t k)
{
    if (!ds)
        return 0;
    return k < ds->n_classes ? ds->class[k].n : 0;
}

uint64_t mr_dataset_fingerprint(const struct mr_dataset *ds)
{
    if (!ds)
        return 0;
    return ds->fingerprint;
}

void mr_sample_init(const struct mr_dataset *ds, void *const rooms[], struct mr_sample *out)
{
    out->index = out->epoch = out->seed = out->position = 0;
    out->worker = MR_NO_WORKER;
    out->worker_state = NULL;
    out->decoder = NULL;
    out->choose = NULL;
    out->choose_user = NULL;
    out->picture.data = NULL;
    out->stored = NULL;
    for (int f = 0; f < ds->n_fields; f++) {
        out->field[f].room = rooms[f];
        out->field[f].data = rooms[f];
        memcpy(out->field[f].dim, ds->field[f].dim, sizeof out->field[f].dim);
    }
}

int mr_extent_fetch(const struct mr_dataset *ds, const struct mr_extent *at, struct mr_bytes *out,
                    void **owned)
{
    int rc = mr_extent_view(ds, at, out);
    if (rc != 0)
        return MR_MIN(rc, 0);
    if (at->bytes == MR_WHOLE) {
        rc = mr_files_read_whole(ds->files, at->file, owned, &out->n);
        out->data = *owned;
        return rc;
    }
    *owned = malloc(MR_MAX(at->bytes, 1));
    if (!*owned)
        return mr_error_nomem(mr_files_name(ds->files, at->file), at->bytes);
    out->data = *owned;
    return mr_files_read(ds->files, at->file, at->offset, *owned, at->bytes);
}

static int read_located(const struct mr_dataset *ds, uint64_t index, struct mr_sample *sample,
                        void *owned[MR_MAX_EXTENTS])
{
    struct mr_extent extent[MR_MAX_EXTENTS];
    struct mr_bytes in[MR_MAX_EXTENTS] = {{NULL, 0}};
    int n = ds->ops->locate(ds, index, extent);
    bool decode = false;
    if (n == 0)
        return ds->ops->get(ds, index, sample);
    for (int e = 0; e < n; e++) {
        int rc = mr_extent_fetch(ds, &extent[e], &in[e], &owned[e]);
        if (rc < 0)
            return rc;
        if (extent[e].field >= 0)
            sample->field[extent[e].field].data = in[e].data;
        else
            decode = true;
    }
    if (n < 0 || !decode)
        return MR_MIN(n, 0);
    return ds->ops->decode(ds, index, in, sample);
}

int mr_sample_read(const struct mr_dataset *ds, uint64_t index, struct mr_sample *sample,
                   void *owned[MR_MAX_EXTENTS])
{
    int rc = mr_dataset_check_random(ds);
    if (rc < 0)
        return rc;
    if (index >= ds->n)
        return mr_error_set(MR_EMISUSE, "%s: sample %llu: expected 0..%llu", ds->ops->name,
                            (unsigned long long)index, (unsigned long long)ds->n - 1);
    sample->index = sample->position = index;
    rc = ds->ops->enter ? ds->ops->enter(ds, sample->worker, &sample->worker_state) : 0;
    if (rc < 0)
        return rc;
    rc = ds->ops->locate ? read_located(ds, index, sample, owned) : ds->ops->get(ds, index, sample);
    if (ds->ops->leave) {
        struct mr_error_kept kept;
        mr_error_keep(rc, &kept);
        ds->ops->leave(ds, sample->worker, sample->worker_state);
        mr_error_put(&kept);
    }
    return rc;
}

static void copy_out(const struct mr_dataset *ds, const struct mr_sample *sample, void *const row[],
                     uint64_t (*dim)[MR_MAX_RANK])
{
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t bytes = mr_dtype_size(ds->field[f].dtype);
        for (int d = 0; d < ds->field[f].rank; d++)
            bytes *= sample->field[f].dim[d];
        const void *from = sample->field[f].data;
        if (from && row && row[f] && from != row[f] && bytes > 0)
            memcpy(row[f], from, bytes);
        if (dim)
            memcpy(dim[f], sample->field[f].dim, sizeof dim[f]);
    }
}

/* Where decoding writes: the caller's rows; for those it does not ask for memory of our own, which
 * a picture does not need. [out] spare: all of that. */
static int make_rows(const struct mr_dataset *ds, void *const row[], void *to[MR_MAX_FIELDS],
                     void **spare)
{
    uint64_t bytes[MR_MAX_FIELDS] = {0}, sum = 0;
    for (int f = 0; f < ds->n_fields; f++) {
        to[f] = row ? row[f] : NULL;
        if (to[f] || f == ds->picture)
            continue;
        int rc = mr_spec_bytes(&ds->field[f], &bytes[f]); /* together at most 2^62 */
        if (rc < 0)
            return rc;
        bytes[f] = mr_round_up(bytes[f], MR_CACHE_LINE);
        sum += bytes[f];
    }
    if (sum == 0)
        return 0;
    *spare = malloc(sum);
    if (!*spare)
        return mr_error_nomem(ds->text, sum);
    unsigned char *at = *spare;
    for (int f = 0; f < ds->n_fields; at += bytes[f++])
        if (bytes[f] > 0)
            to[f] = at;
    return 0;
}

int mr_dataset_read(const struct mr_dataset *ds, uint64_t index, void *const row[],
                    uint64_t (*dim)[MR_MAX_RANK])
{
    struct mr_sample sample;
    struct mr_bytes skipped = {NULL, 0};
    void *owned[MR_MAX_EXTENTS] = {NULL}, *to[MR_MAX_FIELDS] = {NULL}, *spare = NULL;
    if (!ds)
        return mr_error_null("mr_dataset_read", "a data set");
    int rc = make_rows(ds, row, to, &spare);
    if (rc < 0)
        return rc;
    mr_sample_init(ds, to, &sample);
    if (ds->picture >= 0 && !to[ds->picture]) /* it is not decoded */
        sample.stored = &skipped;
    mr_interruptible(1);
    rc = mr_interrupt_check(ds->text);
    if (rc < 0)
        goto end;
    rc = mr_dataset_decodes(ds) ? mr_decoder_create(&sample.decoder) : 0;
    if (rc < 0)
        goto end;
    rc = mr_sample_read(ds, index, &sample, owned);
    if (rc < 0)
        goto end;
    copy_out(ds, &sample, row, dim);
end:
    mr_interruptible(0);
    for (int e = 0; e < MR_MAX_EXTENTS; e++)
        free(owned[e]);
    free(spare);
    mr_decoder_destroy(sample.decoder);
    return MR_MIN(rc, 0);
}
