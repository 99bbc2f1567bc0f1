/* Writing a checkpoint: 8 bytes of the header's length, the header as JSON, the tensors end to
 * end. */
#include "train/checkpoint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static XXH3_state_t *hash_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state)
        XXH3_64bits_reset(state);
    return state;
}

static void hash_text(XXH3_state_t *state, const char *text)
{
    XXH3_64bits_update(state, text, strlen(text) + 1);
}

int mr_checkpoint_hash(const struct mr_checkpoint *c, char out[17])
{
    XXH3_state_t *state = hash_begin();
    if (!state)
        return mr_error_set(-ENOMEM, "checkpoint: no memory for a hash");
    for (uint32_t i = 0; i < c->n_keys; i++) {
        hash_text(state, c->key[i].name);
        hash_text(state, c->key[i].value);
    }
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const struct mr_checkpoint_tensor *t = &c->tensor[i];
        uint64_t head[6] = {(uint64_t)t->dtype, (uint64_t)t->rank, t->dim[0],
                            t->dim[1],          t->dim[2],         t->dim[3]};
        hash_text(state, t->name);
        XXH3_64bits_update(state, head, sizeof head);
        XXH3_64bits_update(state, t->data, t->bytes);
    }
    snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    return 0;
}

int mr_checkpoint_add(struct mr_checkpoint *c, const char *name, enum mr_dtype dtype, int rank,
                      const uint64_t *dim, const void *data)
{
    if (c->n_tensors == MR_CHECKPOINT_TENSORS)
        return mr_error_set(MR_ELIMIT, "checkpoint: more than %d tensors", MR_CHECKPOINT_TENSORS);
    struct mr_checkpoint_tensor *t = &c->tensor[c->n_tensors++];
    *t = (struct mr_checkpoint_tensor){
        .dtype = dtype, .rank = rank, .data = data, .bytes = mr_dtype_size(dtype)};
    snprintf(t->name, sizeof t->name, "%s", name);
    for (int d = 0; d < rank; d++) {
        t->dim[d] = dim[d];
        t->bytes *= dim[d];
    }
    return 0;
}

/* The text as it comes back from a file: bytes that are no UTF-8 are replaced. malloc'd; NULL: no
 * memory. */
static char *as_read(const char *text)
{
    const char *written;
    char *out = NULL;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return NULL;
    mr_json_string(json, NULL, text);
    cJSON *item = mr_json_finish(json, &written) > 0 ? cJSON_Parse(written) : NULL;
    const char *value = cJSON_GetStringValue(item);
    if (value)
        out = strdup(value);
    cJSON_Delete(item);
    mr_json_destroy(json);
    return out;
}

bool mr_checkpoint_is(const struct mr_checkpoint *c, const char *key, const char *text)
{
    const char *have = mr_checkpoint_get(c, key);
    char *want = have ? as_read(text) : NULL;
    bool same = want && strcmp(have, want) == 0;
    free(want);
    return same;
}

int mr_checkpoint_set(struct mr_checkpoint *c, const char *key, const char *fmt, ...)
{
    if (c->n_keys == MR_CHECKPOINT_KEYS)
        return mr_error_set(MR_ELIMIT, "checkpoint: more than %d keys", MR_CHECKPOINT_KEYS);
    va_list args;
    char *value;
    va_start(args, fmt);
    int n = vasprintf(&value, fmt, args);
    va_end(args);
    char *kept = n < 0 ? NULL : as_read(value);
    if (n >= 0)
        free(value);
    if (!kept)
        return mr_error_set(-ENOMEM, "checkpoint: no memory for %s", key);
    struct mr_checkpoint_key *k = &c->key[c->n_keys++];
    snprintf(k->name, sizeof k->name, "%s", key);
    k->value = kept;
    return 0;
}

static void json_tensor(struct mr_json *json, const struct mr_checkpoint_tensor *t, uint64_t *at)
{
    mr_json_object(json, t->name);
    mr_json_string(json, "dtype", t->dtype == MR_F64 ? "F64" : "F32");
    mr_json_array(json, "shape");
    for (int d = 0; d < t->rank; d++)
        mr_json_uint(json, NULL, t->dim[d]);
    mr_json_array_end(json);
    mr_json_array(json, "data_offsets");
    mr_json_uint(json, NULL, *at);
    mr_json_uint(json, NULL, *at += t->bytes);
    mr_json_array_end(json);
    mr_json_object_end(json);
}

static int put(FILE *file, const void *data, uint64_t bytes)
{
    return fwrite(data, 1, (size_t)bytes, file) == bytes ? 0 : errno ? errno : EIO;
}

static int head_text(const struct mr_checkpoint *c, struct mr_json *json, const char **text,
                     uint64_t *bytes)
{
    uint64_t at = 0;
    mr_json_object(json, NULL);
    mr_json_object(json, "__metadata__");
    for (uint32_t i = 0; i < c->n_keys; i++)
        mr_json_string(json, c->key[i].name, c->key[i].value);
    mr_json_object_end(json);
    for (uint32_t i = 0; i < c->n_tensors; i++)
        json_tensor(json, &c->tensor[i], &at);
    mr_json_object_end(json);
    int64_t n = mr_json_finish(json, text);
    *bytes = n < 0 ? 0 : (uint64_t)n;
    return n < 0 ? (int)n : 0;
}

static int write_head(FILE *file, const struct mr_checkpoint *c)
{
    static const char blanks[8] = "        ";
    const char *text;
    uint64_t bytes;
    unsigned char length[8];
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return mr_error_nomem("checkpoint", 0);
    uint64_t padded;
    int bad = head_text(c, json, &text, &bytes);
    if (bad)
        goto end;
    padded = mr_round_up(bytes, 8);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(padded >> 8 * i);
    bad = put(file, length, sizeof length);
    if (bad)
        goto end;
    bad = put(file, text, bytes);
    if (bad)
        goto end;
    bad = put(file, blanks, padded - bytes);
end:
    mr_json_destroy(json);
    return bad;
}

int mr_checkpoint_put(struct mr_checkpoint *c, FILE *file)
{
    char hash[17];
    int rc = mr_checkpoint_hash(c, hash);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_set(c, "checksum", "%s", hash);
    if (rc < 0)
        return rc;
    errno = 0;
    int bad = write_head(file, c);
    if (bad)
        return bad;
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        bad = put(file, c->tensor[i].data, c->tensor[i].bytes);
        if (bad)
            return bad;
    }
    return 0;
}

static int put_into(FILE *file, void *arg)
{
    return mr_checkpoint_put(arg, file);
}

int mr_checkpoint_write(struct mr_checkpoint *c, const char *path)
{
    return mr_file_write(path, "checkpoint", put_into, c);
}

void mr_checkpoint_free(struct mr_checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_keys; i++)
        free(c->key[i].value);
    free(c->data);
    free(c->path);
    *c = (struct mr_checkpoint){0};
}
