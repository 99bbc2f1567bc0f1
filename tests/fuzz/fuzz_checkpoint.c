/*
 * Checkpoints of `millrace train`: any bytes are refused with a reason, or taken. What is taken, or would be if its checksum
 * were right, is written again and read back: the same keys and tensors.
 */
#include "memfile.h"

#include "../../cli/train/checkpoint.c"
#include "../../cli/train/checkpoint_read.c"

/* What the program gives them otherwise: a file in memory. */
static char *written;
static size_t n_written;
static FILE *out_file;

int cli_fail(const char *fmt, ...)
{
    (void)fmt;
    return CLI_FAILED;
}

int cli_error(int rc)
{
    (void)rc;
    return CLI_FAILED;
}

int cli_output_open(struct cli_output *out, const char *path, enum cli_kind kind, int force)
{
    (void)out, (void)path, (void)kind, (void)force;
    out_file = open_memstream(&written, &n_written);
    return out_file ? CLI_OK : CLI_FAILED;
}

int cli_output_write(struct cli_output *out, const void *data, size_t bytes)
{
    (void)out;
    return fwrite(data, 1, bytes, out_file) == bytes ? CLI_OK : CLI_FAILED;
}

int cli_output_sync(struct cli_output *out)
{
    (void)out;
    return CLI_OK;
}

int cli_output_commit(struct cli_output *out)
{
    (void)out;
    return fclose(out_file) == 0 ? CLI_OK : CLI_FAILED;
}

void cli_output_abort(struct cli_output *out)
{
    (void)out;
    fclose(out_file);
}

static void same(const struct checkpoint *a, const struct checkpoint *b)
{
    if (a->n_tensors != b->n_tensors)
        abort();
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const struct checkpoint_tensor *s = &a->tensor[i], *t = &b->tensor[i];
        if (strcmp(s->name, t->name) != 0 || s->dtype != t->dtype || s->rank != t->rank || s->bytes != t->bytes ||
            memcmp(s->dim, t->dim, sizeof s->dim) != 0 || (s->bytes && memcmp(s->data, t->data, s->bytes) != 0))
            abort();
    }
    for (uint32_t i = 0; i < b->n_keys; i++)
        if (strcmp(a->key[i].name, b->key[i].name) != 0 || strcmp(a->key[i].value, b->key[i].value) != 0)
            abort();
}

/* No memory and no room for one more key are no finds. */
static void write_and_read(struct checkpoint *c)
{
    char path[64];
    struct checkpoint *again = calloc(1, sizeof *again);
    if (!again || c->n_keys == CHECKPOINT_MAX_KEYS || checkpoint_write(c, "x") != CLI_OK) {
        free(again);
        return;
    }
    int fd = fuzz_file((const uint8_t *)written, n_written, path);
    if (fd >= 0 && checkpoint_read(again, path) != 0) {
        fprintf(stderr, "written, but not read back: %s\n", mr_last_error());
        abort();
    }
    if (fd >= 0) {
        same(c, again);
        close(fd);
    }
    checkpoint_free(again);
    free(again);
    free(written);
    written = NULL;
}

static void ask(const struct checkpoint *c)
{
    uint64_t u;
    double d;
    for (uint32_t i = 0; i < c->n_keys; i++) {
        int rc = checkpoint_get_uint(c, c->key[i].name, &u);
        if (rc != 0 && rc != MR_EFORMAT)
            abort();
        checkpoint_get_double(c, c->key[i].name, &d);
    }
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (!checkpoint_find(c, c->tensor[i].name))
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
    struct checkpoint *c = calloc(1, sizeof *c);
    if (fd >= 0 && c) {
        int rc = checkpoint_read(c, path);
        if (rc < 0 && !mr_last_error()[0])
            abort();
        ask(c);
        if (rc == 0 || is_checksum(path))
            write_and_read(c);
        checkpoint_free(c);
    }
    if (fd >= 0)
        close(fd);
    free(c);
    return 0;
}
