/* The header of a safetensors file: its length in 8 bytes, then a JSON object of tensors; the
 * tensors' bytes follow. */
#include "dataset/arrays/safetensors_head.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <string.h>

/* the format allows 100 MB, but a parsed header takes many times its size */
#define MAX_HEADER (64ull << 20)

static const struct {
    const char *name;
    enum mr_dtype dtype;
    bool foreign; /* 8-bit floats: only raw bytes */
} dtypes[] = {
    {"BOOL", MR_BOOL, false},     {"U8", MR_U8, false},     {"I8", MR_I8, false},
    {"U16", MR_U16, false},       {"I16", MR_I16, false},   {"F16", MR_F16, false},
    {"BF16", MR_BF16, false},     {"U32", MR_U32, false},   {"I32", MR_I32, false},
    {"F32", MR_F32, false},       {"U64", MR_U64, false},   {"I64", MR_I64, false},
    {"F64", MR_F64, false},       {"C64", MR_C64, false},   {"F8_E4M3", MR_U8, true},
    {"F8_E5M2", MR_U8, true},     {"F8_E8M0", MR_U8, true}, {"F8_E4M3FNUZ", MR_U8, true},
    {"F8_E5M2FNUZ", MR_U8, true},
};

static int bad(const char *path, const char *name, const char *what)
{
    return mr_error_set(MR_EFORMAT, "%s: tensor '%.100s': %s", path, name, what);
}

/* Reads an integer that a double holds exactly. */
static bool get_whole(const cJSON *item, uint64_t *out)
{
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(v >= 0 && v <= 0x1p53) || v != floor(v))
        return false;
    *out = (uint64_t)v;
    return true;
}

static int get_dtype(const char *path, const cJSON *item, struct mr_safetensor *out)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    if (!cJSON_IsString(text))
        return bad(path, out->name, "no dtype");
    for (size_t i = 0; i < MR_COUNT(dtypes); i++)
        if (strcmp(dtypes[i].name, text->valuestring) == 0) {
            out->dtype = dtypes[i].dtype;
            out->foreign = dtypes[i].foreign ? dtypes[i].name : NULL;
            return 0;
        }
    return mr_error_set(MR_EUNSUPPORTED, "%s: tensor '%.100s': unknown dtype '%.20s'", path,
                        out->name, text->valuestring);
}

static int get_shape(const char *path, const cJSON *item, struct mr_safetensor *out,
                     uint64_t *bytes)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape"), *d;
    if (!cJSON_IsArray(shape))
        return bad(path, out->name, "no shape");
    *bytes = mr_dtype_size(out->dtype);
    cJSON_ArrayForEach(d, shape)
    {
        if (out->rank == MR_MAX_RANK)
            return mr_error_set(MR_EUNSUPPORTED, "%s: tensor '%.100s': more than %d dimensions",
                                path, out->name, MR_MAX_RANK);
        if (!get_whole(d, &out->dim[out->rank]) || !mr_mul(*bytes, out->dim[out->rank], bytes))
            return bad(path, out->name, "its shape is not a list of valid sizes");
        out->rank++;
    }
    return 0;
}

static int get_range(const char *path, const cJSON *item, struct mr_safetensor *out, uint64_t bytes,
                     uint64_t data_bytes)
{
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    uint64_t end;
    if (cJSON_GetArraySize(range) != 2 || !get_whole(cJSON_GetArrayItem(range, 0), &out->offset) ||
        !get_whole(cJSON_GetArrayItem(range, 1), &end) || end < out->offset)
        return bad(path, out->name, "data_offsets are not a range");
    out->bytes = end - out->offset;
    if (end > data_bytes)
        return mr_error_set(
            MR_ETRUNCATED,
            "%s: truncated: tensor '%.100s' ends at byte %llu of the data, file has %llu", path,
            out->name, (unsigned long long)end, (unsigned long long)data_bytes);
    if (out->bytes != bytes)
        return mr_error_set(
            MR_EFORMAT,
            "%s: tensor '%.100s': its shape and dtype take %llu bytes, its range has %llu", path,
            out->name, (unsigned long long)bytes, (unsigned long long)out->bytes);
    return 0;
}

static int get_tensor(const char *path, const cJSON *item, uint64_t data_at, uint64_t data_bytes,
                      struct mr_safetensor *out)
{
    uint64_t bytes = 0;
    out->name = strdup(item->string);
    if (!out->name)
        return mr_error_nomem(path, strlen(item->string) + 1);
    if (!cJSON_IsObject(item))
        return bad(path, out->name, "is not an object");
    int rc = get_dtype(path, item, out);
    if (rc < 0)
        return rc;
    rc = get_shape(path, item, out, &bytes);
    if (rc < 0)
        return rc;
    rc = get_range(path, item, out, bytes, data_bytes);
    if (rc < 0)
        return rc;
    out->offset += data_at;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct mr_safetensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct mr_safetensor *const *)a)->name,
                  (*(const struct mr_safetensor *const *)b)->name);
}

/* The format forbids gaps and overlaps, so the tensors must cover all bytes after the header. */
static int check_cover(const char *path, const struct mr_safetensors *st, uint64_t data_at,
                       uint64_t data_bytes)
{
    uint64_t at = data_at;
    for (int i = 0; i < st->n; i++) {
        if (st->tensor[i].offset != at)
            return bad(path, st->tensor[i].name,
                       "its bytes do not begin where the previous "
                       "tensor ends");
        at += st->tensor[i].bytes;
    }
    if (at - data_at != data_bytes)
        return mr_error_set(MR_EFORMAT,
                            "%s: tensors take %llu bytes, file has %llu after its "
                            "header",
                            path, (unsigned long long)(at - data_at),
                            (unsigned long long)data_bytes);
    return 0;
}

static int check_names(const char *path, const struct mr_safetensors *st)
{
    const struct mr_safetensor **sorted = malloc(sizeof(void *) * (size_t)MR_MAX(st->n, 1));
    int rc = 0;
    if (!sorted)
        return mr_error_nomem(path, sizeof(void *) * (uint64_t)st->n);
    for (int i = 0; i < st->n; i++)
        sorted[i] = &st->tensor[i];
    qsort(sorted, (size_t)st->n, sizeof(void *), by_name);
    for (int i = 1; i < st->n && rc == 0; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = bad(path, sorted[i]->name, "appears twice");
    free(sorted);
    return rc;
}

static int get_texts(const char *path, const cJSON *metadata, struct mr_safetensors *out)
{
    const cJSON *item;
    int most = cJSON_GetArraySize(metadata);
    if (!cJSON_IsObject(metadata) || most == 0)
        return 0;
    out->text = calloc((size_t)most, sizeof *out->text);
    if (!out->text)
        return mr_error_nomem(path, (uint64_t)most * sizeof *out->text);
    cJSON_ArrayForEach(item, metadata)
    {
        struct mr_safetensors_text *text = &out->text[out->n_texts++];
        const char *value = cJSON_GetStringValue(item);
        text->key = strdup(item->string);
        text->value = value ? strdup(value) : NULL;
        if (!text->key || (value && !text->value))
            return mr_error_nomem(path, strlen(item->string));
    }
    return 0;
}

static int get_all(const char *path, const cJSON *root, uint64_t data_at, uint64_t data_bytes,
                   struct mr_safetensors *out)
{
    const cJSON *item;
    int rc = 0, most = cJSON_GetArraySize(root);
    out->tensor = calloc((size_t)MR_MAX(most, 1), sizeof *out->tensor);
    if (!out->tensor)
        return mr_error_nomem(path, (uint64_t)most * sizeof *out->tensor);
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, "__metadata__") == 0)
            continue;
        rc = get_tensor(path, item, data_at, data_bytes, &out->tensor[out->n++]);
        if (rc < 0)
            return rc;
    }
    rc = get_texts(path, cJSON_GetObjectItemCaseSensitive(root, "__metadata__"), out);
    if (rc < 0)
        return rc;
    out->data_at = data_at;
    qsort(out->tensor, (size_t)out->n, sizeof *out->tensor, by_offset);
    rc = check_cover(path, out, data_at, data_bytes);
    if (rc < 0)
        return rc;
    return check_names(path, out);
}

static int header_bytes(struct mr_files *files, int id, const char *path, uint64_t *out)
{
    uint64_t size = mr_files_bytes(files, id);
    uint8_t raw[8];
    if (size < sizeof raw)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: truncated: a safetensors file begins with 8 bytes, file has %llu",
                            path, (unsigned long long)size);
    int rc = mr_files_read(files, id, 0, raw, sizeof raw);
    if (rc < 0)
        return rc;
    *out = 0;
    for (int i = 7; i >= 0; i--)
        *out = *out << 8 | raw[i];
    if (*out > MAX_HEADER || *out < 2)
        return mr_error_set(MR_EFORMAT,
                            "%s: not a safetensors file: a header of %llu bytes, "
                            "expected 2..%llu",
                            path, (unsigned long long)*out, MAX_HEADER);
    if (*out > size - sizeof raw)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: truncated: its header takes %llu bytes, file has %llu after its "
                            "length",
                            path, (unsigned long long)*out,
                            (unsigned long long)(size - sizeof raw));
    return 0;
}

int mr_safetensors_read(struct mr_files *files, int id, const char *path,
                        struct mr_safetensors *out)
{
    uint64_t bytes = 0;
    *out = (struct mr_safetensors){0};
    int rc = header_bytes(files, id, path, &bytes);
    if (rc < 0)
        return rc;
    char *text = malloc(bytes + 1);
    cJSON *root = NULL;
    if (!text)
        return mr_error_nomem(path, bytes);
    rc = mr_files_read(files, id, 8, text, bytes);
    if (rc < 0)
        goto free_text;
    text[bytes] = 0;
    root = strlen(text) == bytes ? cJSON_ParseWithLengthOpts(text, bytes + 1, NULL, 1) : NULL;
    if (!cJSON_IsObject(root)) {
        rc = mr_error_set(MR_EFORMAT, "%s: not a safetensors file: its header is not a JSON object",
                          path);
        goto free_text;
    }
    rc = get_all(path, root, 8 + bytes, mr_files_bytes(files, id) - 8 - bytes, out);
free_text:
    cJSON_Delete(root);
    free(text);
    return rc;
}

void mr_safetensors_free(struct mr_safetensors *st)
{
    for (int i = 0; i < st->n; i++)
        free(st->tensor[i].name);
    for (int i = 0; i < st->n_texts; i++) {
        free(st->text[i].key);
        free(st->text[i].value);
    }
    free(st->tensor);
    free(st->text);
    *st = (struct mr_safetensors){0};
}
