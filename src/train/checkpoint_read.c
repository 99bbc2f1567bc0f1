/* Reading a checkpoint: what a safetensors file must hold beyond being one. */
#include "dataset/arrays/safetensors_head.h"
#include "train/checkpoint.h"

#include <errno.h>
#include <string.h>

static int bad(const struct mr_checkpoint *c, int code, const char *what)
{
    return mr_error_set(code, "%s: no checkpoint of this program: %s", c->path, what);
}

/* Names of ours are. */
static bool is_ascii(const char *name)
{
    while (*name && (unsigned char)*name < 0x80)
        name++;
    return !*name;
}

static int take_tensor(struct mr_checkpoint *c, const struct mr_safetensor *st, uint64_t data_at)
{
    char what[160];
    struct mr_checkpoint_tensor *t = &c->tensor[c->n_tensors];
    if (!is_ascii(st->name) || strlen(st->name) >= sizeof t->name ||
        c->n_tensors == MR_COUNT(c->tensor))
        return bad(c, MR_EFORMAT, "too many tensors, or one with a strange name");
    if ((st->dtype != MR_F32 && st->dtype != MR_F64) || st->rank > (int)MR_COUNT(t->dim)) {
        snprintf(what, sizeof what, "tensor %s: expected f32 or f64, of at most 4 dimensions",
                 st->name);
        return bad(c, MR_EFORMAT, what);
    }
    *t = (struct mr_checkpoint_tensor){.dtype = st->dtype,
                                       .rank = st->rank,
                                       .data = (const char *)c->data + (st->offset - data_at),
                                       .bytes = st->bytes};
    strcpy(t->name, st->name);
    memcpy(t->dim, st->dim, (size_t)st->rank * sizeof t->dim[0]);
    c->n_tensors++;
    return 0;
}

static int take_keys(struct mr_checkpoint *c, const struct mr_safetensors *st, char checksum[17])
{
    for (int i = 0; i < st->n_texts; i++) {
        const struct mr_safetensors_text *text = &st->text[i];
        if (!text->value || !is_ascii(text->key) || strlen(text->key) >= sizeof c->key[0].name)
            return bad(c, MR_EFORMAT, "its metadata are not text under short names");
        if (strcmp(text->key, "checksum") == 0) {
            snprintf(checksum, 17, "%.16s", text->value);
            continue;
        }
        int rc = mr_checkpoint_set(c, text->key, "%s", text->value);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_all(struct mr_checkpoint *c, const struct mr_safetensors *st)
{
    char checksum[17] = "", found[17];
    int rc = take_keys(c, st, checksum);
    if (rc < 0)
        return rc;
    if (!mr_checkpoint_get(c, "millrace"))
        return bad(c, MR_EFORMAT,
                   "a safetensors file that millrace train did not write (no key \"millrace\")");
    for (int i = 0; i < st->n; i++) {
        rc = take_tensor(c, &st->tensor[i], st->data_at);
        if (rc < 0)
            return rc;
    }
    rc = mr_checkpoint_hash(c, found);
    if (rc < 0)
        return rc;
    if (strcmp(checksum, found) != 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: damaged or changed: its checksum is %s, its contents give %s",
                            c->path, checksum[0] ? checksum : "missing", found);
    return 0;
}

static int read_file(struct mr_checkpoint *c, struct mr_files *files)
{
    struct mr_safetensors st = {0};
    int id = mr_files_add_path(files, c->path);
    if (id < 0)
        return id;
    uint64_t bytes;
    int rc = mr_safetensors_read(files, id, c->path, &st);
    if (rc < 0)
        goto end;
    bytes = mr_files_bytes(files, id) - st.data_at;
    c->data = malloc(bytes ? bytes : 1);
    rc = c->data ? mr_files_read(files, id, st.data_at, c->data, bytes)
                 : mr_error_nomem(c->path, bytes);
    if (rc < 0)
        goto end;
    rc = take_all(c, &st);
end:
    mr_safetensors_free(&st);
    return rc;
}

int mr_checkpoint_read(struct mr_checkpoint *c, const char *path)
{
    struct mr_files *files = mr_files_create();
    c->path = strdup(path);
    int rc = files && c->path ? read_file(c, files) : mr_error_nomem(path, strlen(path));
    mr_files_destroy(files);
    return rc;
}

int mr_checkpoint_open(const char *path, struct mr_checkpoint **out)
{
    if (!path || !out)
        return mr_error_set(MR_EMISUSE, "mr_checkpoint_open: path or out is NULL");
    struct mr_checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? mr_checkpoint_read(c, path) : mr_error_nomem(path, sizeof *c);
    if (rc < 0) {
        mr_checkpoint_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void mr_checkpoint_close(struct mr_checkpoint *c)
{
    if (c)
        mr_checkpoint_free(c);
    free(c);
}

const struct mr_checkpoint_tensor *mr_checkpoint_tensor_get(const struct mr_checkpoint *c,
                                                            uint32_t i)
{
    if (!c)
        return NULL;
    return i < c->n_tensors ? &c->tensor[i] : NULL;
}

const struct mr_checkpoint_tensor *mr_checkpoint_tensor_find(const struct mr_checkpoint *c,
                                                             const char *name)
{
    if (!c || !name)
        return NULL;
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (strcmp(c->tensor[i].name, name) == 0)
            return &c->tensor[i];
    return NULL;
}

const char *mr_checkpoint_get(const struct mr_checkpoint *c, const char *key)
{
    if (!c || !key)
        return NULL;
    for (uint32_t i = 0; i < c->n_keys; i++)
        if (strcmp(c->key[i].name, key) == 0)
            return c->key[i].value;
    return NULL;
}

static int no_number(const struct mr_checkpoint *c, const char *key, const char *text)
{
    return mr_error_set(MR_EFORMAT, "%s: key %s: expected a number, found %s", c->path, key,
                        text ? text : "nothing");
}

int mr_checkpoint_get_uint(const struct mr_checkpoint *c, const char *key, uint64_t *out)
{
    const char *text = mr_checkpoint_get(c, key);
    char *end = NULL;
    errno = 0;
    *out = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    return end && !*end && !errno ? 0 : no_number(c, key, text);
}

int mr_checkpoint_get_double(const struct mr_checkpoint *c, const char *key, double *out)
{
    const char *text = mr_checkpoint_get(c, key);
    char *end = NULL;
    *out = text ? strtod(text, &end) : 0;
    return end && end != text && !*end ? 0 : no_number(c, key, text);
}
