/* The files that feed leaves: the quarantine list and the state. Whole or not at all. */
#include "feed/feed.h"

#include <string.h>

int feed_write_quarantine(const struct feed *feed)
{
    struct cli_output out;
    struct mr_bad_sample bad = {.size = sizeof bad};
    if (!mr_loader_bad(feed->pipe.loader, 0,
                       &bad)) /* no file says so; a list of a run before would say otherwise */
        return cli_output_remove(feed->opts->quarantine, CLI_QUARANTINE, feed->opts->force);
    int rc = cli_output_open(&out, feed->opts->quarantine, CLI_QUARANTINE, feed->opts->force);
    for (uint64_t i = 0; rc == CLI_OK && mr_loader_bad(feed->pipe.loader, i, &bad); i++) {
        const char *text = NULL;
        struct mr_json *json = mr_json_create(0);
        if (!json) {
            rc = cli_fail("quarantine: no memory");
            break;
        }
        mr_json_object(json, NULL);
        mr_json_string(json, "file", bad.file);
        mr_json_uint(json, "offset", bad.offset);
        mr_json_uint(json, "index", bad.index);
        mr_json_uint(json, "epoch", bad.epoch);
        mr_json_uint(json, "position", bad.position);
        mr_json_string(json, "reason", bad.reason);
        mr_json_object_end(json);
        int64_t n = mr_json_finish(json, &text);
        rc = n < 0 ? cli_error((int)n) : cli_output_write(&out, text, (size_t)n);
        if (rc == CLI_OK)
            rc = cli_output_write(&out, "\n", 1);
        mr_json_destroy(json);
    }
    if (rc == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return rc;
}

int feed_write_state(const struct feed *feed)
{
    struct cli_output out;
    int rc = cli_output_open(&out, feed->opts->state_out, CLI_STATE, feed->opts->force);
    if (rc == CLI_OK)
        rc = cli_output_write(&out, feed->result.state, strlen(feed->result.state));
    if (rc == CLI_OK)
        rc = cli_output_write(&out, "\n", 1);
    if (rc == CLI_OK)
        return cli_output_commit(&out);
    cli_output_abort(&out);
    return rc;
}

/* A loop of runs may go on from a state and replace it: it has been read by then. */
static bool same_state(const struct feed_opts *opts)
{
    struct stat in, out;
    return opts->state_in && opts->state_out && stat(opts->state_in, &in) == 0 &&
           stat(opts->state_out, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino;
}

int feed_check_files(const struct feed_opts *opts)
{
    int code = same_state(opts) ? CLI_OK : cli_input_add(opts->state_in);
    if (code == CLI_OK)
        code = cli_input_text(opts->sampler);
    if (code == CLI_OK)
        code = cli_output_claim(opts->trace, CLI_TRACE, opts->force);
    if (code == CLI_OK)
        code = cli_output_claim(opts->state_out, CLI_STATE, opts->force);
    if (code == CLI_OK && opts->save && !opts->loader.tune)
        code = cli_misuse("--save %s: there is nothing to save without --tune", opts->save);
    if (code == CLI_OK)
        code = cli_output_claim(opts->save, CLI_TUNED, opts->force);
    const struct ranks_own own = {.rank = opts->loader.rank, .world = opts->loader.world};
    if (code == CLI_OK && opts->report_dir)
        code = ranks_dir_check(opts->report_dir, &own, opts->force);
    return code == CLI_OK ? cli_output_claim(opts->quarantine, CLI_QUARANTINE, opts->force) : code;
}
