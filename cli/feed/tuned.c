/* What --tune has found, kept for later runs. */
#include "feed/feed.h"

#include <stdio.h>

const struct mr_loader_tuning *feed_tuning(const struct feed *feed)
{
    return feed->opts->loader.tune ? &feed->result.tuning : NULL;
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
