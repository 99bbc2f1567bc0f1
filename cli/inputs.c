/* What a run reads, and what it is going to replace: no file is both, whatever its names. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

struct id {
    dev_t dev;
    ino_t ino;
    char *path; /* of outputs; NULL: of inputs */
};

struct ids {
    struct id *id;
    uint64_t n, room;
};

static struct ids inputs, outputs; /* of this process; outputs that exist */

static int compare(const void *a, const void *b)
{
    const struct id *x = a, *y = b;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return (x->ino > y->ino) - (x->ino < y->ino);
}

static const struct id *find(const struct ids *ids, const struct stat *file)
{
    const struct id want = {.dev = file->st_dev, .ino = file->st_ino};
    return ids->n ? bsearch(&want, ids->id, ids->n, sizeof want, compare) : NULL;
}

static int add(struct ids *ids, const struct stat *file, char *path)
{
    int rc = mr_grow("the list of files", &ids->id, &ids->room, ids->n + 1, sizeof *ids->id);
    if (rc < 0)
        return cli_error(rc);
    size_t at = ids->n;
    const struct id id = {file->st_dev, file->st_ino, path};
    while (at > 0 && compare(&ids->id[at - 1], &id) > 0)
        at--;
    memmove(&ids->id[at + 1], &ids->id[at], (ids->n - at) * sizeof id);
    ids->id[at] = id;
    ids->n++;
    return CLI_OK;
}

bool cli_input_is(const struct stat *file)
{
    return find(&inputs, file) != NULL;
}

int cli_input_claim(const char *path, const struct stat *file)
{
    const struct id *same = find(&outputs, file);
    if (same)
        return cli_fail("%s: another output of this run, %s, is the same file", path, same->path);
    char *copy = strdup(path);
    if (!copy || add(&outputs, file, copy) != CLI_OK) {
        free(copy);
        return copy ? CLI_FAILED : cli_fail("out of memory");
    }
    return CLI_OK;
}

static int check(const char *path, const struct stat *file)
{
    const struct id *output = find(&outputs, file);
    if (!output)
        return CLI_OK;
    if (strcmp(output->path, path) == 0)
        return cli_fail("%s: this run reads it: write to another file", path);
    return cli_fail("%s: this run reads it as %s: write to another file", output->path, path);
}

int cli_input_add(const char *path)
{
    struct stat file;
    if (!path || stat(path, &file) != 0 || !S_ISREG(file.st_mode) || cli_input_is(&file))
        return CLI_OK;
    int code = check(path, &file);
    return code == CLI_OK ? add(&inputs, &file, NULL) : code;
}

#define SEPARATORS ",:=*[]"
#define MOST_PARTS                                                                                 \
    32 /* of a text; names may have separators in them, so that each run of parts is looked for */

int cli_input_text(const char *text)
{
    const char *at[MOST_PARTS + 1];
    int n = 0, code = CLI_OK;
    if (!text)
        return CLI_OK;
    for (const char *p = text; n < MOST_PARTS; p += strcspn(p, SEPARATORS) + 1) {
        at[n++] = p;
        if (!p[strcspn(p, SEPARATORS)])
            break;
    }
    for (int i = 0; i < n; i++)
        for (int k = i; k < n && code == CLI_OK; k++) {
            char *name = strndup(at[i], (size_t)(at[k] - at[i]) + strcspn(at[k], SEPARATORS));
            code = name ? cli_input_add(name) : cli_fail("out of memory");
            free(name);
        }
    return code;
}

/* A million files are looked at only where there is an output that one of them could be. */
int cli_input_dataset(const char *uri, const struct mr_dataset *ds)
{
    int code = ds ? cli_input_text(uri) : CLI_OK;
    const char *path = NULL;
    for (uint64_t k = 0; ds && outputs.n && code == CLI_OK && (path = mr_dataset_source(ds, k));
         k++) {
        struct stat file;
        if (stat(path, &file) == 0)
            code = check(path, &file);
    }
    return code;
}
