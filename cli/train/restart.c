/* Restarts by the launcher: torchrun and Slurm run a command again after a failure. It goes on from
 * the checkpoint, if that is the job's own. */
#include "train/train.h"

#include <cjson/cJSON.h>
#include <string.h>

bool train_restart_resumes(struct train_opts *o, const struct mr_place *place)
{
    if (place->restart_count == 0 || !o->checkpoint || o->resume)
        return false;
    if (o->force)
        cli_warn("restart %u starts over because of --force; --resume would continue the run",
                 place->restart_count);
    o->resume = !o->force;
    return o->resume;
}

/* The job that wrote it, of make_config(). "": it does not say. */
static void writer_of(const struct mr_checkpoint *from, char out[TRAIN_JOB])
{
    const char *config = mr_checkpoint_get(from, "config");
    cJSON *root = config ? cJSON_Parse(config) : NULL;
    const char *job = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "job"));
    snprintf(out, TRAIN_JOB, "%s", job ? job : "");
    cJSON_Delete(root);
}

int train_restart_check(const struct train_opts *o, const struct mr_checkpoint *from)
{
    static const char todo[] = "--resume goes on from it, --force starts over";
    char writer[TRAIN_JOB], own[TRAIN_JOB];
    int rc = mr_place_job(own, sizeof own);
    if (rc < 0)
        return cli_error(rc);
    writer_of(from, writer);
    if (!own[0])
        return cli_fail("%s: exists, and the launcher does not say which job it restarts (torchrun "
                        "takes --rdzv-id ID): %s",
                        o->checkpoint, todo);
    if (!writer[0])
        return cli_fail("%s: exists, and does not say which job wrote it: %s", o->checkpoint, todo);
    if (strcmp(writer, own) != 0)
        return cli_fail("%s: exists, and another job wrote it (%s; this is %s): %s", o->checkpoint,
                        writer, own, todo);
    return CLI_OK;
}
