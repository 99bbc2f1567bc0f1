/* Removing what is being packed would lose it: does the data set read a file that --force takes away, by whatever name? */
#include "pack/pack.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct id {
    dev_t dev;
    ino_t ino;
};

struct ids {
    struct id *id;
    size_t n, room;
};

static int compare(const void *a, const void *b)
{
    const struct id *x = a, *y = b;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return (x->ino > y->ino) - (x->ino < y->ino);
}

static int add(struct ids *ids, const struct stat *file)
{
    if (ids->n == ids->room) {
        size_t room = ids->room ? 2 * ids->room : 64;
        struct id *grown = realloc(ids->id, room * sizeof *grown);
        if (!grown)
            return cli_fail("out of memory");
        ids->id = grown;
        ids->room = room;
    }
    ids->id[ids->n++] = (struct id){file->st_dev, file->st_ino};
    return CLI_OK;
}

static int collect(const struct pack_state *st, struct ids *ids)
{
    struct stat file;
    DIR *dir = opendir(st->dir);
    if (!dir)
        return cli_fail("%s: cannot be read: %s", st->dir, strerror(errno));
    int code = CLI_OK;
    for (struct dirent *e = readdir(dir); e && code == CLI_OK; e = readdir(dir))
        if (pack_names(e->d_name) && fstatat(st->lock, e->d_name, &file, 0) == 0)
            code = add(ids, &file);
    closedir(dir);
    return code;
}

static int look_for(const struct ids *ids, const struct mr_dataset *ds)
{
    const char *last = NULL;
    for (uint64_t i = 0, n = mr_dataset_length(ds); i < n; i++) {
        struct stat file;
        const char *path = mr_dataset_file(ds, i);
        if (!path || path == last || stat(path, &file) != 0)
            continue;
        last = path;
        struct id id = {file.st_dev, file.st_ino};
        if (bsearch(&id, ids->id, ids->n, sizeof id, compare))
            return cli_fail("%s: the data set reads it, and --force would remove it: want another folder", path);
    }
    return CLI_OK;
}

int pack_check_source(const struct pack_state *st, const struct mr_dataset *ds)
{
    struct ids ids = {NULL, 0, 0};
    int code = collect(st, &ids);
    if (code == CLI_OK && ids.n > 0) {
        qsort(ids.id, ids.n, sizeof *ids.id, compare);
        code = look_for(&ids, ds);
    }
    free(ids.id);
    return code;
}
