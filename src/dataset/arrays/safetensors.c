/* safetensors files: each chosen tensor is a field, its first dimension counts the samples. The
 * data set is one file, or the shards that an index file lists. */
#include "dataset/arrays/chosen.h"
#include "dataset/arrays/safetensors_head.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define INDEX_BYTES (64ull << 20) /* maximum size of model.safetensors.index.json */

struct state {
    struct mr_records field[MR_MAX_FIELDS];
};

/* ---- which tensors ---- */

/* 8-bit floats are available only as raw bytes, so the user must ask for them explicitly. */
static int check_dtype(const char *path, const struct mr_safetensor *t, int fp8)
{
    if (!t->foreign || fp8 == MR_FP8_U8)
        return 0;
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: tensor '%.100s' is %s: 8-bit floats are not supported: fp8=u8 gives "
                        "their bytes as u8; or leave it out by fields=[...]",
                        path, t->name, t->foreign);
}

static int add_tensor(struct mr_dataset *ds, const char *path, int file,
                      const struct mr_safetensor *t, int f)
{
    struct mr_spec *spec = &ds->field[f];
    if (t->rank == 0 || t->dim[0] == 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: tensor '%.100s' has no samples: leave it out by fields=[...]",
                            path, t->name);
    spec->dtype = t->dtype;
    spec->rank = t->rank - 1;
    memcpy(spec->dim, t->dim + 1, sizeof spec->dim - sizeof spec->dim[0]);
    mr_chosen_name(spec, t->name);
    uint64_t bytes = t->bytes / t->dim[0];
    if (bytes == 0)
        return mr_error_set(MR_EFORMAT, "%s: tensor '%.100s': its samples have no elements", path,
                            t->name);
    ((struct state *)ds->state)->field[f] =
        (struct mr_records){.file = file, .offset = t->offset, .stride = bytes, .bytes = bytes};
    if (ds->n && ds->n != t->dim[0])
        return mr_error_set(MR_EFORMAT,
                            "%s: tensor '%.100s' has a first dimension of %llu, those before %llu: "
                            "it counts the samples, so expected "
                            "the same; choose with fields=[NAME,...]",
                            path, t->name, (unsigned long long)t->dim[0],
                            (unsigned long long)ds->n);
    ds->n = t->dim[0];
    ds->n_fields++;
    return 0;
}

/* State while a data set is being opened. */
struct opening {
    struct mr_dataset *ds;
    struct mr_chosen chosen;
    int fp8; /* enum mr_fp8 */
};

/* Adds the chosen tensors of a file. only: the single tensor to take from a shard, as the index
 * says; NULL for all. */
static int add_tensors(struct opening *o, const char *path, int file,
                       const struct mr_safetensors *st, const char *only)
{
    bool found = false;
    int rc;
    for (int i = 0; i < st->n && !only; i++)
        mr_chosen_see(&o->chosen, st->tensor[i].name);
    rc = only ? 0 : mr_chosen_check_count(&o->chosen, path, "tensor");
    if (rc < 0)
        return rc;
    for (int i = 0; i < st->n; i++) {
        const struct mr_safetensor *t = &st->tensor[i];
        if (!mr_chosen_wants(&o->chosen, t->name) || (only && strcmp(only, t->name) != 0))
            continue;
        found = true;
        rc = check_dtype(path, t, o->fp8);
        if (rc < 0)
            return rc;
        int f = mr_chosen_take(&o->chosen, path, "tensor", t->name);
        if (f < 0)
            return f;
        rc = add_tensor(o->ds, path, file, t, f);
        if (rc < 0)
            return rc;
    }
    if (only && !found)
        return mr_error_set(MR_EFORMAT,
                            "%s: no tensor '%.100s', which its index says is in this file: get the "
                            "shard again, or the "
                            "index that belongs to it",
                            path, only);
    return 0;
}

static int add_file(struct opening *o, const char *path, const char *only)
{
    struct mr_safetensors st;
    int file = mr_files_add_path(o->ds->files, path);
    if (file < 0)
        return file;
    int rc = mr_safetensors_read(o->ds->files, file, path, &st);
    if (rc < 0)
        goto free_header;
    rc = add_tensors(o, path, file, &st, only);
free_header:
    mr_safetensors_free(&st);
    return rc;
}

/* ---- shards ---- */

static char *beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t front = slash ? (size_t)(slash - path) + 1 : 0, bytes = front + strlen(name) + 1;
    char *out = malloc(bytes);
    if (out)
        snprintf(out, bytes, "%.*s%s", (int)front, path, name);
    return out;
}

static int add_shard(struct opening *o, const char *index, const cJSON *entry)
{
    const char *name = cJSON_GetStringValue(entry);
    if (!name || !name[0] || strchr(name, '/'))
        return mr_error_set(MR_EFORMAT,
                            "%s: tensor '%.100s': its file must be beside the index, "
                            "found '%.100s'",
                            index, entry->string, name ? name : "(no text)");
    char *path = beside(index, name);
    if (!path)
        return mr_error_nomem(index, strlen(name));
    int rc = add_file(o, path, entry->string);
    free(path);
    return rc;
}

static int read_index(const char *path, char **out)
{
    struct mr_files *files = mr_files_create();
    char *text = NULL;
    uint64_t bytes;
    if (!files)
        return mr_error_nomem(path, 0);
    int rc, id = mr_files_add_path(files, path);
    if (id < 0) {
        rc = id;
        goto fail;
    }
    bytes = mr_files_bytes(files, id);
    if (bytes > INDEX_BYTES) {
        rc = mr_error_set(MR_ELIMIT, "%s: %llu bytes: expected an index of at most %llu", path,
                          (unsigned long long)bytes, INDEX_BYTES);
        goto fail;
    }
    text = malloc(bytes + 1);
    if (!text) {
        rc = mr_error_nomem(path, bytes);
        goto fail;
    }
    rc = mr_files_read(files, id, 0, text, bytes);
    if (rc < 0)
        goto fail;
    mr_files_destroy(files);
    text[bytes] = 0;
    *out = text;
    return 0;
fail:
    mr_files_destroy(files);
    free(text);
    return rc;
}

/* "weight_map": tensor -> file. */
static int add_sharded(struct opening *o, const char *path)
{
    char *text = NULL;
    int rc = read_index(path, &text);
    if (rc < 0)
        return rc;
    cJSON *root = cJSON_ParseWithOpts(text, NULL, 1);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map"), *entry;
    if (!cJSON_IsObject(map)) {
        rc = mr_error_set(MR_EFORMAT,
                          "%s: not an index of safetensors: expected a JSON object with "
                          "\"weight_map\"",
                          path);
        goto free_text;
    }
    cJSON_ArrayForEach(entry, map) mr_chosen_see(&o->chosen, entry->string);
    rc = mr_chosen_check_count(&o->chosen, path, "tensor");
    if (rc < 0)
        goto free_text;
    cJSON_ArrayForEach(entry, map)
    {
        if (!mr_chosen_wants(&o->chosen, entry->string))
            continue;
        rc = add_shard(o, path, entry);
        if (rc < 0)
            goto free_text;
    }
free_text:
    cJSON_Delete(root);
    free(text);
    return rc;
}

/* ---- opening ---- */

static int open_safetensors(struct mr_dataset *ds, const void *options)
{
    const struct mr_safetensors_opts *opts = options;
    if (!opts->path || !opts->path[0])
        return mr_error_set(MR_EOPTION, "safetensors: no path: expected safetensors:FILE");
    struct opening o = {.ds = ds, .fp8 = opts->fp8};
    int rc = mr_chosen_parse(opts->path, opts->fields, &o.chosen);
    if (rc < 0)
        goto free_chosen;
    rc = mr_ends_in(opts->path, ".json") ? add_sharded(&o, opts->path)
                                         : add_file(&o, opts->path, NULL);
    if (rc < 0)
        goto free_chosen;
    rc = mr_chosen_check(&o.chosen, opts->path, "tensor");
    if (rc < 0)
        goto free_chosen;
    snprintf(ds->text, sizeof ds->text, "safetensors: %.80s, %d tensor%s", mr_base_name(opts->path),
             ds->n_fields, ds->n_fields == 1 ? "" : "s");
free_chosen:
    mr_chosen_free(&o.chosen);
    return rc;
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    return mr_records_locate(((const struct state *)ds->state)->field, ds->n_fields, index, out);
}

static bool sniff(const char *path)
{
    return mr_ends_in(path, ".safetensors") || mr_ends_in(path, ".safetensors.index.json");
}

#define AT(member) offsetof(struct mr_safetensors_opts, member)
static const char *const fp8_choices[] = {"refuse", "u8", NULL};
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILE",
     .help = "A .safetensors file, or the .safetensors.index.json of several"},
    {"fields", 0, MR_OPT_STRING, AT(fields), .meta = "[NAME,...]",
     .help = "The tensors to use as fields, in this order; default: all"},
    {"fp8", 0, MR_OPT_ENUM, AT(fp8), .initial = "refuse", .choices = fp8_choices,
     .help = "8-bit floats (F8_E4M3, ...) are not supported: refuse them, or read their bytes as "
             "u8"},
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_safetensors = {
    .name = "safetensors",
    .isolates = true,
    .summary = "tensors whose first dimension counts samples, one file or shards",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_safetensors_opts),
    .state_size = sizeof(struct state),
    .sniff = sniff,
    .open = open_safetensors,
    .locate = locate,
};

void mr_safetensors_opts_fill(struct mr_safetensors_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_safetensors, opts, size);
}

int mr_dataset_open_safetensors(const struct mr_safetensors_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_safetensors, opts, out);
}
