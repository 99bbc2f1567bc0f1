/*
 * Checkpoints of `millrace train`: any bytes are refused with a reason, or taken. What is taken, or
 * would be if its checksum were right, is written again and read back: the same keys and tensors.
 */
#include "memfile.h"
#include "train/checkpoint.h"

static void same(const struct mr_checkpoint *a, const struct mr_checkpoint *b)
{
    if (a->n_tensors != b->n_tensors)
        abort();
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const struct mr_checkpoint_tensor *s = &a->tensor[i], *t = &b->tensor[i];
        if (strcmp(s->name, t->name) != 0 || s->dtype != t->dtype || s->rank != t->rank ||
            s->bytes != t->bytes || memcmp(s->dim, t->dim, sizeof s->dim) != 0 ||
            (s->bytes && memcmp(s->data, t->data, s->bytes) != 0))
            abort();
    }
    for (uint32_t i = 0; i < b->n_keys; i++)
        if (strcmp(a->key[i].name, b->key[i].name) != 0 ||
            strcmp(a->key[i].value, b->key[i].value) != 0)
            abort();
}

/* No memory and no room for one more key are no finds. */
static void write_and_read(struct mr_checkpoint *c)
{
    char path[64], *written = NULL;
    size_t bytes = 0;
    struct mr_checkpoint *again = calloc(1, sizeof *again);
    FILE *file = open_memstream(&written, &bytes);
    if (!again || !file || c->n_keys == MR_CHECKPOINT_KEYS || mr_checkpoint_put(c, file) != 0) {
        if (file)
            fclose(file);
        free(written);
        free(again);
        return;
    }
    fclose(file);
    int fd = fuzz_file((const uint8_t *)written, bytes, path);
    if (fd >= 0 && mr_checkpoint_read(again, path) != 0) {
        fprintf(stderr, "written, but not read back: %s\n", mr_last_error());
        abort();
    }
    if (fd >= 0) {
        same(c, again);
        close(fd);
    }
    mr_checkpoint_free(again);
    free(again);
    free(written);
}

static void ask(const struct mr_checkpoint *c)
{
    uint64_t u;
    double d;
    for (uint32_t i = 0; i < c->n_keys; i++) {
        int rc = mr_checkpoint_get_uint(c, c->key[i].name, &u);
        if (rc != 0 && rc != MR_EFORMAT)
            abort();
        mr_checkpoint_get_double(c, c->key[i].name, &d);
    }
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (!mr_checkpoint_tensor_find(c, c->tensor[i].name))
            abort();
}

/* Was the checksum all that was wrong? */
static bool is_checksum(const char *path)
{
    char start[128];
    int n = snprintf(start, sizeof start, "%s: damaged or changed: ", path);
    return strncmp(mr_last_error(), start, (size_t)n) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = fuzz_file(data, size, path);
    struct mr_checkpoint *c = calloc(1, sizeof *c);
    if (fd >= 0 && c) {
        int rc = mr_checkpoint_read(c, path);
        if (rc < 0 && !mr_last_error()[0])
            abort();
        ask(c);
        if (rc == 0 || is_checksum(path))
            write_and_read(c);
        mr_checkpoint_free(c);
    }
    if (fd >= 0)
        close(fd);
    free(c);
    return 0;
}
