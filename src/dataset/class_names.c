/* What a data set calls its classes. */
#include "dataset/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <millrace/json.h>
#include <string.h>

int mr_dataset_class_names(const struct mr_dataset *ds, char **out)
{
    const char *text;
    if (!ds || !out)
        return mr_error_null("mr_dataset_class_names", "a data set and a place for the text");
    uint64_t n = mr_dataset_classes(ds);
    *out = NULL;
    if (n == 0)
        return 0;
    struct mr_json *json = mr_json_create(0);
    if (json) {
        mr_json_array(json, NULL);
        for (uint64_t k = 0; k < n; k++)
            mr_json_string(json, NULL, mr_dataset_class_name(ds, k));
        mr_json_array_end(json);
        if (mr_json_finish(json, &text) > 0)
            *out = strdup(text);
    }
    mr_json_destroy(json);
    return *out ? 0 : mr_error_set(-ENOMEM, "no memory for the names of %" PRIu64 " classes", n);
}
