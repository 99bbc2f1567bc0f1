/* Reading a checkpoint. Nothing in the file is trusted before it was held against the file's size. */
#include "train/checkpoint.h"
#include "train/checkpoint_hash.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEAD_MAX (64u << 20)
#define EXACT    9007199254740992.0 /* 2^53: whole numbers that JSON's doubles hold */

static int bad(const struct checkpoint *c, int code, const char *what)
{
    return mr_error_set(code, "%s: no checkpoint of this program: %s", c->path, what);
}

static int read_file(struct checkpoint *c, unsigned char **out, uint64_t *out_bytes)
{
    struct stat st;
    FILE *file = fopen(c->path, "rb");
    if (!file)
        return mr_error_set(-errno, "%s: %s", c->path, strerror(errno));
    int rc = fstat(fileno(file), &st) == 0 ? 0 : mr_error_set(-errno, "%s: %s", c->path, strerror(errno));
    if (rc == 0 && (!S_ISREG(st.st_mode) || st.st_size < 10))
        rc = bad(c, MR_ETRUNCATED, "want a regular file of at least 10 bytes");
    unsigned char *bytes = rc == 0 ? malloc((size_t)st.st_size) : NULL;
    if (rc == 0 && !bytes)
        rc = mr_error_set(-ENOMEM, "%s: no memory for %jd bytes", c->path, (intmax_t)st.st_size);
    if (rc == 0 && fread(bytes, 1, (size_t)st.st_size, file) != (size_t)st.st_size)
        rc = mr_error_set(-EIO, "%s: could not be read", c->path);
    fclose(file);
    if (rc < 0) {
        free(bytes);
        return rc;
    }
    *out = bytes;
    *out_bytes = (uint64_t)st.st_size;
    return 0;
}

static bool whole(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= EXACT) ||
        floor(item->valuedouble) != item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

/* Names of ours are. */
static bool is_ascii(const char *name)
{
    while (*name && (unsigned char)*name < 0x80)
        name++;
    return !*name;
}

static bool tensor_shape(const cJSON *shape, struct checkpoint_tensor *t, uint64_t *out_bytes)
{
    const cJSON *item;
    uint64_t bytes = mr_dtype_size(t->dtype);
    if (!cJSON_IsArray(shape))
        return false;
    cJSON_ArrayForEach(item, shape)
    {
        if (t->rank == 4 || !whole(item, &t->dim[t->rank]) || __builtin_mul_overflow(bytes, t->dim[t->rank], &bytes))
            return false;
        t->rank++;
    }
    *out_bytes = bytes;
    return true;
}

/* at: where the tensors before it end; tensors lie end to end. */
static int read_tensor(struct checkpoint *c, const cJSON *item, const unsigned char *data, uint64_t bytes, uint64_t *at)
{
    struct checkpoint_tensor t = {0};
    char what[160];
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    uint64_t begin, end, want;
    if (!is_ascii(item->string) || strlen(item->string) >= sizeof t.name || c->n_tensors == CHECKPOINT_MAX_TENSORS)
        return bad(c, MR_EFORMAT, "too many tensors, or one with a strange name");
    strcpy(t.name, item->string);
    bool known = cJSON_IsString(dtype) && (!strcmp(dtype->valuestring, "F32") || !strcmp(dtype->valuestring, "F64"));
    t.dtype = known && dtype->valuestring[1] == '6' ? MR_F64 : MR_F32;
    bool fits = known && tensor_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), &t, &want) &&
                cJSON_GetArraySize(offsets) == 2 && whole(cJSON_GetArrayItem(offsets, 0), &begin) &&
                whole(cJSON_GetArrayItem(offsets, 1), &end);
    if (!fits || begin != *at || end < begin || end - begin != want) {
        snprintf(what, sizeof what, "tensor %s: its type, shape and place in the file do not go together", t.name);
        return bad(c, MR_EFORMAT, what);
    }
    if (end > bytes) {
        snprintf(what, sizeof what, "truncated: tensor %s ends at %" PRIu64 " of the data, the file has %" PRIu64,
                 t.name, end, bytes);
        return bad(c, MR_ETRUNCATED, what);
    }
    t.data = data + begin;
    t.bytes = want;
    c->tensor[c->n_tensors++] = t;
    *at = end;
    return 0;
}

static int read_keys(struct checkpoint *c, const cJSON *keys, char checksum[17])
{
    const cJSON *item;
    cJSON_ArrayForEach(item, keys)
    {
        if (!item->string || !cJSON_IsString(item) || !is_ascii(item->string) ||
            strlen(item->string) >= sizeof c->key[0].name)
            return bad(c, MR_EFORMAT, "its metadata are not text under short names");
        if (strcmp(item->string, "checksum") == 0) {
            snprintf(checksum, 17, "%.16s", item->valuestring);
            continue;
        }
        int rc = checkpoint_set(c, item->string, "%s", item->valuestring);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_root(struct checkpoint *c, const cJSON *root, const unsigned char *data, uint64_t bytes)
{
    char checksum[17] = "", found[17];
    const cJSON *item;
    uint64_t at = 0;
    int rc = read_keys(c, cJSON_GetObjectItemCaseSensitive(root, "__metadata__"), checksum);
    if (rc == 0 && !checkpoint_get(c, "millrace"))
        return bad(c, MR_EFORMAT, "a safetensors file that millrace train did not write (no key \"millrace\")");
    cJSON_ArrayForEach(item, root)
    {
        if (rc == 0 && item->string && strcmp(item->string, "__metadata__") != 0)
            rc = read_tensor(c, item, data, bytes, &at);
    }
    if (rc == 0 && at != bytes)
        rc = bad(c, MR_EFORMAT, "there are bytes behind the last tensor");
    if (rc == 0)
        rc = checkpoint_hash(c, found);
    if (rc == 0 && strcmp(checksum, found) != 0)
        rc = mr_error_set(MR_EFORMAT, "%s: damaged or changed: its checksum is %s, its contents give %s", c->path,
                          checksum[0] ? checksum : "missing", found);
    return rc;
}

int checkpoint_read(struct checkpoint *c, const char *path)
{
    unsigned char *file = NULL;
    uint64_t bytes = 0, head = 0;
    *c = (struct checkpoint){.path = strdup(path)};
    if (!c->path)
        return mr_error_set(-ENOMEM, "%s: no memory", path);
    int rc = read_file(c, &file, &bytes);
    if (rc < 0)
        return rc;
    c->file = file;
    for (int i = 0; i < 8; i++)
        head |= (uint64_t)file[i] << 8 * i;
    if (head > HEAD_MAX || file[8] != '{')
        return bad(c, MR_EFORMAT, "not a safetensors file");
    if (head > bytes - 8)
        return bad(c, MR_ETRUNCATED, "truncated within its header");
    cJSON *root = cJSON_ParseWithLength((const char *)file + 8, (size_t)head);
    rc = cJSON_IsObject(root) ? read_root(c, root, file + 8 + head, bytes - 8 - head)
                              : bad(c, MR_EFORMAT, "its header is not JSON");
    cJSON_Delete(root);
    return rc;
}

const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (strcmp(c->tensor[i].name, name) == 0)
            return &c->tensor[i];
    return NULL;
}

const char *checkpoint_get(const struct checkpoint *c, const char *key)
{
    for (uint32_t i = 0; i < c->n_keys; i++)
        if (strcmp(c->key[i].name, key) == 0)
            return c->key[i].value;
    return NULL;
}

static int no_number(const struct checkpoint *c, const char *key, const char *text)
{
    return mr_error_set(MR_EFORMAT, "%s: key %s: want a number, found %s", c->path, key, text ? text : "nothing");
}

int checkpoint_get_uint(const struct checkpoint *c, const char *key, uint64_t *out)
{
    const char *text = checkpoint_get(c, key);
    char *end = NULL;
    errno = 0;
    *out = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    return end && !*end && !errno ? 0 : no_number(c, key, text);
}

int checkpoint_get_double(const struct checkpoint *c, const char *key, double *out)
{
    const char *text = checkpoint_get(c, key);
    char *end = NULL;
    *out = text ? strtod(text, &end) : 0;
    return end && end != text && !*end ? 0 : no_number(c, key, text);
}
