/* What --tune has found, as text and as JSON. */
#include "pipeline.h"

#include <stdio.h>

void cli_tuning_json(struct mr_json *json, const struct mr_loader_tuning *t)
{
    if (!t) {
        mr_json_null(json, "tuning");
        return;
    }
    mr_json_object(json, "tuning");
    mr_json_bool(json, "done", t->done);
    mr_json_uint(json, "workers", t->workers);
    mr_json_uint(json, "prefetch", t->prefetch);
    mr_json_uint(json, "first_workers", t->first_workers);
    mr_json_uint(json, "first_prefetch", t->first_prefetch);
    mr_json_uint(json, "tried", t->n_tried);
    mr_json_double(json, "samples_per_s", t->rate);
    mr_json_double(json, "first_samples_per_s", t->first_rate);
    mr_json_double(json, "seconds", t->seconds);
    mr_json_string(json, "reason", t->reason);
    mr_json_object_end(json);
}

void cli_tuning_print(const struct mr_loader_tuning *t)
{
    if (!t)
        return;
    printf("tuning: %s (%u setting%s compared in %.1f s%s)\n", t->reason, t->n_tried,
           cli_s(t->n_tried), t->seconds, t->done ? "" : ", not finished");
    printf("options: --workers %u --prefetch %u\n", t->workers, t->prefetch);
}
