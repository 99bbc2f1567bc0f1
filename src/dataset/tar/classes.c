/* Class names beside shards: the file that `millrace pack` writes for data sets whose labels have
 * names. */
#include "dataset/pictures/photos.h"
#include "dataset/tar/state.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads an array of strings; NULL on any error. */
static cJSON *read_names(const char *path)
{
    char *text = NULL;
    uint64_t n = 0, skip = 0;
    if (access(path, R_OK) != 0)
        return NULL;
    if (mr_photos_read_text(path, &text, &n, &skip) < 0) {
        mr_log(MR_LOG_WARNING, "%s: classes have no names: %s", path, mr_last_error());
        return NULL;
    }
    cJSON *root = cJSON_ParseWithOpts(text + skip, NULL, 1);
    const cJSON *item;
    bool good = cJSON_IsArray(root) && cJSON_GetArraySize(root) > 0;
    cJSON_ArrayForEach(item, root) good = good && cJSON_IsString(item);
    free(text);
    if (good)
        return root;
    mr_log(MR_LOG_WARNING, "%s: classes have no names: expected a JSON array of texts", path);
    cJSON_Delete(root);
    return NULL;
}

static int label_field(const struct mr_dataset *ds)
{
    const struct mr_tar_state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++)
        if (st->field[f].kind == MR_TAR_LABEL && strcmp(ds->field[f].name, "label") == 0)
            return f;
    return -1;
}

/* Counts the samples of each class. Returns false if a label is not in the list. Unreadable labels
 * are ignored: they make their samples bad later. */
static bool count(struct mr_dataset *ds, int f)
{
    struct mr_tar_state *st = ds->state;
    for (uint64_t i = 0; i < ds->n; i++) {
        const struct mr_tar_one one = mr_tar_one_of(ds, i);
        const struct mr_tar_member *m = mr_tar_one_member(&one, f);
        int64_t label;
        if (!m || mr_tar_label(&one, m, &label) < 0)
            continue;
        if (label < 0 || (uint64_t)label >= ds->n_classes)
            return false;
        st->class[label].n++;
    }
    return true;
}

static int fill(struct mr_dataset *ds, const char *path, int f)
{
    struct mr_tar_state *st = ds->state;
    const cJSON *item;
    uint64_t n = (uint64_t)cJSON_GetArraySize(st->class_names), k = 0;
    st->class = calloc(n, sizeof *st->class);
    if (!st->class)
        return mr_error_nomem(path, n * sizeof *st->class);
    cJSON_ArrayForEach(item, st->class_names) st->class[k++].name = item->valuestring;
    ds->class = st->class;
    ds->n_classes = n;
    if (count(ds, f))
        return 0;
    mr_log(MR_LOG_WARNING, "%s: has %llu names, and labels go further: classes have no names", path,
           (unsigned long long)n);
    ds->class = NULL;
    ds->n_classes = 0;
    return 0;
}

int mr_tar_classes_open(struct mr_dataset *ds)
{
    struct mr_tar_state *st = ds->state;
    const char *shard = st->shard[0].name, *slash = strrchr(shard, '/');
    int f = label_field(ds);
    char *path = NULL;
    if (f < 0 || mr_store_is_remote(shard))
        return 0;
    if (asprintf(&path, "%.*s" MR_TAR_CLASSES, slash ? (int)(slash - shard) + 1 : 0, shard) < 0)
        return mr_error_nomem(shard, strlen(shard));
    st->class_names = read_names(path);
    int rc = st->class_names ? fill(ds, path, f) : 0;
    free(path);
    return rc;
}
