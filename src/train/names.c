/* The names of classes: a net knows numbers, and two data sets may number the same names
 * differently. */
#include "train/checkpoint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <millrace/dataset.h>
#include <stdlib.h>
#include <string.h>

/* An array of strings and nulls. */
static bool is_list(const cJSON *list)
{
    const cJSON *item;
    bool ok = cJSON_IsArray(list);
    cJSON_ArrayForEach(item, list) ok = ok && (cJSON_IsString(item) || cJSON_IsNull(item));
    return ok;
}

int mr_class_names_parse(const char *text, const char *of, char ***names, uint32_t *n)
{
    const cJSON *item;
    cJSON *list = text ? cJSON_Parse(text) : NULL;
    bool fits = !text || is_list(list);
    uint32_t most = fits ? (uint32_t)cJSON_GetArraySize(list) : 0;
    *n = 0;
    *names = fits ? calloc((size_t)most + 1, sizeof **names) : NULL;
    bool ok = *names != NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (!ok)
            break;
        if (cJSON_IsString(item))
            ok = ((*names)[*n] = strdup(item->valuestring)) != NULL;
        *n += 1;
    }
    cJSON_Delete(list);
    if (!fits)
        return mr_error_set(MR_EFORMAT,
                            "%s: key class_names: expected a JSON array of strings, found %.40s",
                            of, text);
    return ok ? 0 : mr_error_set(-ENOMEM, "%s: no memory for the names of classes", of);
}

void mr_class_names_destroy(char **names, uint32_t n)
{
    for (uint32_t k = 0; names && k < n; k++)
        free(names[k]);
    free(names);
}

int mr_checkpoint_class_names(const struct mr_checkpoint *c, const struct mr_dataset *ds,
                              char ***names, uint32_t *n)
{
    if (!c || !names || !n)
        return mr_error_null("mr_checkpoint_class_names",
                             "a checkpoint and places for the results");
    const char *saved = mr_checkpoint_get(c, "class_names");
    char *own = NULL;
    *names = NULL;
    *n = 0;
    int rc = saved || !ds ? 0 : mr_dataset_class_names(ds, &own);
    if (rc < 0)
        return rc;
    rc = mr_class_names_parse(saved ? saved : own, saved || !ds ? c->path : mr_dataset_text(ds),
                              names, n);
    free(own);
    return rc;
}

int mr_class_names_check(const struct mr_dataset *ds, char *const *names, uint32_t n,
                         const char *of)
{
    char *text, **here = NULL;
    uint32_t n_here = 0;
    /* By way of JSON, like the names to compare with: invalid UTF-8 is replaced in both. */
    int rc = mr_dataset_class_names(ds, &text);
    if (rc < 0)
        return rc;
    rc = mr_class_names_parse(text, mr_dataset_text(ds), &here, &n_here);
    if (rc < 0)
        goto end;
    for (uint32_t k = 0; k < n && k < n_here; k++)
        if (names[k] && here[k] && strcmp(names[k], here[k]) != 0) {
            rc = mr_error_set(MR_ESTATE, "%s: its class %u is '%.60s', that of %s '%.60s'",
                              mr_dataset_text(ds), k, here[k], of, names[k]);
            break;
        }
end:
    mr_class_names_destroy(here, n_here);
    free(text);
    return rc;
}
