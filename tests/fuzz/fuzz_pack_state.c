/*
 * White-box. The state of an unfinished pack: a part of the program, included whole. Whatever the
 * file says, the shards that are kept are there, follow each other, and hold no more samples than
 * the pack has.
 */
#include "pack/state.c"

#include <stdarg.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SAMPLES 10
#define SHARDS  3
#define WHAT    "millrace pack 1: source 0123456789abcdef samples 10\n"

/* ---- what the rest of the program would do ---- */

static bool failed;

int cli_fail(const char *fmt, ...)
{
    if (!fmt[0])
        abort();
    failed = true;
    return CLI_FAILED;
}

int cli_error(int rc)
{
    return cli_fail("%d", rc);
}

int cli_lock_take(int fd, bool shared, int wait_ms)
{
    (void)fd, (void)shared, (void)wait_ms;
    return 0;
}

int cli_lock_file(struct cli_lock *lock, const char *path)
{
    (void)lock, (void)path;
    return CLI_OK;
}

void cli_lock_release(struct cli_lock *lock)
{
    (void)lock;
}

int cli_input_claim(const char *path, const struct stat *file)
{
    (void)path, (void)file;
    return CLI_OK;
}

int cli_input_dataset(const char *uri, const struct mr_dataset *ds)
{
    (void)uri, (void)ds;
    return CLI_OK;
}

int cli_output_open(struct cli_output *out, const char *path, enum cli_kind kind, int force)
{
    (void)out, (void)path, (void)kind, (void)force;
    return CLI_FAILED;
}

int cli_output_write(struct cli_output *out, const void *data, size_t bytes)
{
    (void)out, (void)data, (void)bytes;
    return CLI_FAILED;
}

int cli_output_commit(struct cli_output *out)
{
    (void)out;
    return CLI_FAILED;
}

void cli_output_abort(struct cli_output *out)
{
    (void)out;
}

/* ---- the target ---- */

static char dir[] = "/tmp/millrace-fuzz.XXXXXX";

static void remove_folder(void)
{
    char path[128];
    for (int i = 0; i < SHARDS; i++) {
        snprintf(path, sizeof path, "%s/shard-%06d.tar", dir, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/" SUMS, dir);
    unlink(path);
    rmdir(dir);
}

/* Shards of 0, 1024 and 2048 bytes, and a file of sums. */
static int make_folder(void)
{
    char path[128];
    if (!mkdtemp(dir))
        abort();
    atexit(remove_folder);
    for (int i = 0; i <= SHARDS; i++) {
        snprintf(path, sizeof path, i < SHARDS ? "%s/shard-%06d.tar" : "%s/" SUMS, dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, 1024 * i) < 0)
            abort();
        close(fd);
    }
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void check(const struct pack_state *st)
{
    uint64_t next = st->first;
    for (uint64_t i = 0; i < st->n; i++) {
        const struct pack_done *d = &st->shard[i];
        if (i >= SHARDS || d->number != i || d->bytes != 1024 * i || d->first != next ||
            d->n > st->end - next || d->skipped > st->end - next - d->n)
            abort();
        next += d->n + d->skipped;
    }
}

/* The first byte says whether the state's first line is put in front, as it should be. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int folder = -1;
    static const struct pack_format format = {.name = "tar", .end = ".tar"};
    struct pack_state st = {
        .dir = dir, .format = &format, .end = SAMPLES, .what = WHAT, .mine = CLI_LOCK_NONE};
    char *text;
    size_t head, bytes;
    if (size == 0)
        return 0;
    if (folder < 0)
        folder = make_folder();
    head = data[0] & 1 ? strlen(WHAT) : 0;
    bytes = head + size - 1;
    text = malloc(bytes + 1);
    if (!text)
        return 0;
    memcpy(text, WHAT, head);
    memcpy(text + head, data + 1, size - 1);
    FILE *file = bytes > 0 ? fmemopen(text, bytes, "r") : NULL;
    if (file) {
        st.lock = folder;
        failed = false;
        int code = read_state(&st, file, "pack.state");
        if (code != CLI_OK && !failed)
            abort();
        if (code == CLI_OK)
            check(&st);
        fclose(file);
    }
    free(st.shard);
    free(text);
    return 0;
}
