/* Writing a checkpoint: 8 bytes of the header's length, the header as JSON, the tensors end to end. */
#include "train/checkpoint.h"
#include "train/checkpoint_hash.h"

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

int checkpoint_hash(const struct checkpoint *c, char out[17])
{
    XXH3_state_t *state = hash_begin();
    if (!state)
        return mr_error_set(-ENOMEM, "checkpoint: no memory for a hash");
    for (uint32_t i = 0; i < c->n_keys; i++) {
        hash_text(state, c->key[i].name);
        hash_text(state, c->key[i].value);
    }
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensor[i];
        uint64_t head[6] = {(uint64_t)t->dtype, (uint64_t)t->rank, t->dim[0], t->dim[1], t->dim[2], t->dim[3]};
        hash_text(state, t->name);
        XXH3_64bits_update(state, head, sizeof head);
        XXH3_64bits_update(state, t->data, t->bytes);
    }
    snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    return 0;
}

int checkpoint_add(struct checkpoint *c, const char *name, enum mr_dtype dtype, int rank, const uint64_t *dim,
                   const void *data)
{
    if (c->n_tensors == CHECKPOINT_MAX_TENSORS)
        return mr_error_set(MR_ELIMIT, "checkpoint: more than %d tensors", CHECKPOINT_MAX_TENSORS);
    struct checkpoint_tensor *t = &c->tensor[c->n_tensors++];
    *t = (struct checkpoint_tensor){.dtype = dtype, .rank = rank, .data = data, .bytes = mr_dtype_size(dtype)};
    snprintf(t->name, sizeof t->name, "%s", name);
    for (int d = 0; d < rank; d++) {
        t->dim[d] = dim[d];
        t->bytes *= dim[d];
    }
    return 0;
}

/* The text as it comes back from a file: bytes that are no UTF-8 are replaced. malloc'd; NULL: no memory. */
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

bool checkpoint_is(const struct checkpoint *c, const char *key, const char *text)
{
    const char *have = checkpoint_get(c, key);
    char *want = have ? as_read(text) : NULL;
    bool same = want && strcmp(have, want) == 0;
    free(want);
    return same;
}

int checkpoint_set(struct checkpoint *c, const char *key, const char *fmt, ...)
{
    if (c->n_keys == CHECKPOINT_MAX_KEYS)
        return mr_error_set(MR_ELIMIT, "checkpoint: more than %d keys", CHECKPOINT_MAX_KEYS);
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
    struct checkpoint_key *k = &c->key[c->n_keys++];
    snprintf(k->name, sizeof k->name, "%s", key);
    k->value = kept;
    return 0;
}

static void json_tensor(struct mr_json *json, const struct checkpoint_tensor *t, uint64_t *at)
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

static int write_head(struct cli_output *out, const struct checkpoint *c, struct mr_json *json)
{
    static const char blanks[8] = "        ";
    const char *text;
    uint64_t at = 0;
    mr_json_object(json, NULL);
    mr_json_object(json, "__metadata__");
    for (uint32_t i = 0; i < c->n_keys; i++)
        mr_json_string(json, c->key[i].name, c->key[i].value);
    mr_json_object_end(json);
    for (uint32_t i = 0; i < c->n_tensors; i++)
        json_tensor(json, &c->tensor[i], &at);
    mr_json_object_end(json);
    int64_t bytes = mr_json_finish(json, &text);
    if (bytes < 0)
        return cli_error((int)bytes);
    uint64_t padded = ((uint64_t)bytes + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(padded >> 8 * i);
    int code = cli_output_write(out, length, sizeof length);
    if (code == CLI_OK)
        code = cli_output_write(out, text, (size_t)bytes);
    return code == CLI_OK ? cli_output_write(out, blanks, (size_t)(padded - (uint64_t)bytes)) : code;
}

static int write_all(struct cli_output *out, const struct checkpoint *c)
{
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return cli_fail("out of memory");
    int code = write_head(out, c, json);
    mr_json_destroy(json);
    for (uint32_t i = 0; i < c->n_tensors && code == CLI_OK; i++)
        code = cli_output_write(out, c->tensor[i].data, (size_t)c->tensor[i].bytes);
    return code == CLI_OK ? cli_output_sync(out) : code;
}

int checkpoint_write(struct checkpoint *c, const char *path)
{
    struct cli_output out;
    char hash[17];
    int rc = checkpoint_hash(c, hash);
    if (rc == 0)
        rc = checkpoint_set(c, "checksum", "%s", hash);
    if (rc < 0)
        return cli_error(rc);
    int code = cli_output_open(&out, path, CLI_CHECKPOINT, 1);
    if (code != CLI_OK)
        return code;
    code = write_all(&out, c);
    if (code == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return code;
}

void checkpoint_free(struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_keys; i++)
        free(c->key[i].value);
    free(c->file);
    free(c->path);
    *c = (struct checkpoint){0};
}
