/* What --tune has found: printed, and kept for later runs. */
#include "feed/feed.h"

#include <stdio.h>

void feed_json_tuning(struct mr_json *json, const struct feed *feed)
{
    const struct mr_loader_tuning *t = &feed->result.tuning;
    if (!feed->opts->loader.tune) {
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

void feed_print_tuning(const struct feed *feed)
{
    const struct mr_loader_tuning *t = &feed->result.tuning;
    if (!feed->opts->loader.tune)
        return;
    printf("tuning: %s (%u setting%s compared in %.1f s%s)\n", t->reason, t->n_tried,
           cli_s(t->n_tried), t->seconds, t->done ? "" : ", not finished");
    printf("options: --workers %u --prefetch %u\n", t->workers, t->prefetch);
}

int feed_save_tuning(const struct feed *feed)
{
    const struct mr_loader_tuning *t = &feed->result.tuning;
    struct cli_output out;
    char text[96];
    int n = snprintf(text, sizeof text, "--workers %u --prefetch %u\n", t->workers, t->prefetch);
    int rc = cli_output_open(&out, feed->opts->save, CLI_TUNED, feed->opts->force);
    if (rc == CLI_OK)
        rc = cli_output_write(&out, text, (size_t)n);
    if (rc == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return rc;
}
