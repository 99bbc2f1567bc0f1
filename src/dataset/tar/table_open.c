/* A table of shards as a data set. The fields are those of the first shard. */
#include "dataset/tar/table.h"

#include <stdio.h>
#include <string.h>

#define MAX_PARTS_SHOWN 64

static struct mr_tar_one one_of(const struct mr_dataset *ds, const struct mr_tar_held_shard *shard,
                                uint64_t sample)
{
    uint64_t k = sample - shard->first;
    return (struct mr_tar_one){.archive = shard->name,
                               .file = shard->file,
                               .index = &shard->index,
                               .first = shard->first_member[k],
                               .member = shard->member + k * (uint64_t)ds->n_fields};
}

/* ---- samples ---- */

/* [out] one: valid until release(shard). */
static int acquire(const struct mr_dataset *ds, uint64_t index,
                   const struct mr_tar_held_shard **shard, struct mr_tar_one *one)
{
    const struct mr_tar_state *st = ds->state;
    int rc = mr_tar_held_acquire(st->held, index, shard);
    if (rc >= 0)
        *one = one_of(ds, *shard, index);
    return rc;
}

static void release(const struct mr_dataset *ds, const struct mr_tar_held_shard *shard)
{
    const struct mr_tar_state *st = ds->state;
    mr_tar_held_release(st->held, shard);
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct mr_tar_held_shard *shard;
    struct mr_tar_one one;
    int rc = acquire(ds, index, &shard, &one);
    if (rc < 0)
        return rc;
    rc = mr_tar_locate_one(ds, &one, out);
    release(ds, shard);
    return rc;
}

static void expect(const struct mr_dataset *ds, uint64_t index)
{
    const struct mr_tar_state *st = ds->state;
    mr_tar_held_expect(st->held, index);
}

/* Of a shard whose index could not be read. */
static const char *name_of(const struct mr_dataset *ds, uint64_t index)
{
    const struct mr_tar_state *st = ds->state;
    return mr_tar_held_name(st->held, index);
}

static int check_bytes(const struct mr_dataset *ds, const struct mr_tar_one *one)
{
    const struct mr_tar_state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_tar_member *m = mr_tar_one_member(one, f);
        char name[MR_TAR_WHO_BYTES];
        if (m && st->field[f].kind == MR_TAR_RAW && m->bytes > ds->field[f].dim[0])
            return mr_error_set(MR_ELIMIT, "%s: %llu bytes: expected at most %llu: raise max-bytes",
                                mr_tar_who(one, m, name), (unsigned long long)m->bytes,
                                (unsigned long long)ds->field[f].dim[0]);
    }
    return 0;
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    const struct mr_tar_held_shard *shard;
    struct mr_tar_one one;
    int rc = acquire(ds, index, &shard, &one);
    if (rc < 0)
        return rc;
    rc = check_bytes(ds, &one);
    if (rc == 0)
        rc = mr_tar_decode_one(ds, &one, in, out);
    release(ds, shard);
    return rc;
}

static int get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned)
{
    const struct mr_tar_held_shard *shard;
    struct mr_tar_one one;
    int rc = acquire(ds, index, &shard, &one);
    if (rc < 0)
        return rc;
    rc = check_bytes(ds, &one);
    if (rc == 0)
        rc = mr_tar_get_field_one(ds, &one, f, out, owned);
    release(ds, shard);
    return rc;
}

/* ---- fields ---- */

/* The extensions of the first sample; and .cls if more than half of the shard's samples have it, as
 * when shards are opened one by one. */
static uint64_t extensions(const struct mr_tar_held_shard *shard, const uint32_t *sample_of,
                           const char *ext[MAX_PARTS_SHOWN])
{
    const struct mr_tar_index *x = &shard->index;
    const char *label = NULL;
    uint64_t n = 0, have = 0;
    bool has_label = false;
    for (uint64_t m = 0; m < x->n; m++) {
        const char *one =
            sample_of[m] == MR_TAR_NONE ? NULL : mr_tar_extension(x->names + x->member[m].name);
        if (one && sample_of[m] == 0 && n + 1 < MAX_PARTS_SHOWN) {
            ext[n++] = one;
            has_label = has_label || mr_tar_is_label(one);
        }
        if (one && mr_tar_is_cls(one)) {
            label = one;
            have++;
        }
    }
    if (!has_label && have > shard->samples - have)
        ext[n++] = label;
    return n;
}

/* The shard's first sample with field f. Returns false if none has it. */
static bool first_with(const struct mr_dataset *ds, const struct mr_tar_held_shard *shard, int f,
                       struct mr_tar_one *out)
{
    for (uint64_t k = 0; k < shard->samples; k++) {
        *out = one_of(ds, shard, shard->first + k);
        if (mr_tar_one_member(out, f))
            return true;
    }
    return false;
}

/* All of one length in the first shard: so are all others. Else as many as max-bytes says. */
static void spec_of_bytes(struct mr_dataset *ds, const struct mr_tar_opts *o,
                          const struct mr_tar_held_shard *shard, int f)
{
    struct mr_spec *spec = &ds->field[f];
    uint64_t most = 0, least = UINT64_MAX;
    for (uint64_t k = 0; k < shard->samples; k++) {
        const struct mr_tar_one one = one_of(ds, shard, shard->first + k);
        const struct mr_tar_member *m = mr_tar_one_member(&one, f);
        most = m ? MR_MAX(most, m->bytes) : most;
        least = m ? MR_MIN(least, m->bytes) : least;
    }
    bool fixed = most == least && most > 0;
    spec->dtype = MR_U8;
    spec->rank = 1;
    spec->dim[0] = fixed ? most : MR_MAX(o->max_bytes, 1);
    spec->var_dims = !fixed;
}

static int open_field(struct mr_dataset *ds, const struct mr_tar_opts *o,
                      const struct mr_tar_held_shard *shard, int f)
{
    struct mr_tar_state *st = ds->state;
    struct mr_tar_one one;
    if (!first_with(ds, shard, f, &one))
        return mr_error_set(MR_EFORMAT,
                            "%s: no sample has a member '.%s' for the field '%s': change fields=",
                            shard->name, st->field[f].ext[0], st->field[f].name);
    if (st->field[f].kind == MR_TAR_RAW)
        spec_of_bytes(ds, o, shard, f);
    ds->fingerprint = mr_hash(ds->fingerprint, st->field[f].ext, sizeof st->field[f].ext);
    return mr_tar_spec_open(ds, o, f, &one);
}

static int open_fields(struct mr_dataset *ds, const struct mr_tar_opts *o,
                       const struct mr_tar_held_shard *shard)
{
    struct mr_tar_state *st = ds->state;
    const char *ext[MAX_PARTS_SHOWN];
    uint64_t n = extensions(shard, mr_tar_held_samples(shard), ext);
    int rc = mr_tar_fields_open(ds, o, shard->name, ext, n);
    if (rc < 0)
        return rc;
    ds->n_fields = rc;
    rc = mr_tar_held_fill(st->held, shard);
    for (int f = 0; f < ds->n_fields && rc == 0; f++)
        rc = open_field(ds, o, shard, f);
    return rc;
}

/* ---- opening ---- */

static const struct mr_dataset_ops table_ops;

/* What the table's names are below: base, or where the table is. malloc'd. */
static int folder_of(const char *path, const char *base, char **out)
{
    const char *from = base ? base : path;
    size_t n = strlen(from);
    if (mr_store_is_remote(from) && from[strcspn(from, "?#")])
        return mr_error_set(MR_EOPTION,
                            base ? "%s: base: expected a folder's URL, without a query"
                                 : "%s: a URL with a query does not say where the shards are: "
                                   "give base=",
                            from);
    while (!base && n > 0 && from[n - 1] != '/')
        n--;
    bool slash = n > 0 && from[n - 1] == '/';
    if (asprintf(out, "%s%.*s%s", n == 0 ? "./" : "", (int)n, from, n == 0 || slash ? "" : "/") < 0)
        return mr_error_nomem("tar", n);
    return 0;
}

/* Hides what a URL's name must not show, until the data set is closed. */
static int hide(struct mr_dataset *ds, const char **text)
{
    int rc = *text ? mr_url_acquire(*text, text) : 0;
    if (rc > 0)
        ds->hidden[ds->n_hidden++] = *text;
    return MR_MIN(rc, 0);
}

static int open_table(struct mr_dataset *ds, const char *path)
{
    struct mr_tar_state *st = ds->state;
    static const char byte[1] = "";
    int file = mr_files_add_lazy(ds->files, path);
    if (file < 0)
        return file;
    int rc = mr_tar_table_open(ds->files, file, &st->table);
    if (rc < 0)
        return rc;
    rc = st->nothing = mr_files_add_memory(ds->files, "tar", (void *)byte, sizeof byte, false);
    return MR_MIN(rc, 0);
}

int mr_tar_open_table(struct mr_dataset *ds, const struct mr_tar_opts *o)
{
    struct mr_tar_state *st = ds->state;
    const char *path = o->path, *base = o->base;
    char *folder = NULL;
    int rc;
    if ((rc = hide(ds, &path)) < 0 || (rc = hide(ds, &base)) < 0)
        return rc;
    if (o->stream)
        return mr_error_set(MR_EOPTION,
                            "%s: a table of shards is not read as a stream: leave out "
                            "stream",
                            path);
    if ((rc = folder_of(path, base, &folder)) < 0)
        return rc;
    if ((rc = open_table(ds, path)) < 0)
        goto free_folder;
    if ((rc = mr_tar_held_create(ds, o, st->table, folder, &st->held)) < 0)
        goto free_folder;
    const struct mr_tar_table_head *head = mr_tar_table_get_head(st->table);
    ds->n = head->n_samples;
    if ((rc = mr_tar_held_acquire(st->held, 0, &st->first_shard)) < 0)
        goto free_folder;
    ds->fingerprint = mr_hash(ds->fingerprint, &head->groups_sum, sizeof head->groups_sum);
    if ((rc = open_fields(ds, o, st->first_shard)) < 0)
        goto free_folder;
    snprintf(ds->text, sizeof ds->text, "tar: %llu shards of %.80s",
             (unsigned long long)head->n_shards, mr_base_name(path));
    ds->first_file = mr_files_length(ds->files);
    ds->ops = &table_ops;
free_folder:
    free(folder);
    return rc;
}

void mr_tar_close_table(struct mr_dataset *ds)
{
    struct mr_tar_state *st = ds->state;
    if (st->first_shard)
        mr_tar_held_release(st->held, st->first_shard);
    mr_tar_held_destroy(st->held);
    mr_tar_table_close(st->table);
}

static void close_table(struct mr_dataset *ds)
{
    mr_dataset_tar.close(ds);
}

#define ENTRY_BYTES 128u /* of a member in an index: its place, its name, a small content */

/* Of the indexes: all of them, or as many as are kept. */
static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    const struct mr_tar_state *st = ds->state;
    uint64_t each = (uint64_t)ds->n_fields * ENTRY_BYTES, all;
    (void)workers;
    if (!mr_mul(ds->n, each, &all))
        all = UINT64_MAX;
    return mr_tar_table_top_bytes(st->table) + MR_MIN(all, mr_tar_held_limit(st->held));
}

static const struct mr_dataset_ops table_ops = {
    .name = "tar",
    .summary = "tar archives in a table of shards",
    .opts_size = sizeof(struct mr_tar_opts),
    .state_size = sizeof(struct mr_tar_state),
    .many_urls = true,
    .close = close_table,
    .locate = locate,
    .expect = expect,
    .decode = decode,
    .get_field = get_field,
    .file = name_of,
    .memory = memory,
};
