/* What this process did, step by step. */
#include "ranks/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ranks_own_open(struct ranks_own *own)
{
    own->step = calloc(RANKS_KEPT, sizeof *own->step);
    return own->step ? 0 : mr_error_set(-ENOMEM, "ranks: no memory for %d steps", RANKS_KEPT);
}

void ranks_own_close(struct ranks_own *own)
{
    free(own->step);
    own->step = NULL;
}

void ranks_own_add(struct ranks_own *own, const struct mr_rank_step *step)
{
    own->step[own->n++ % RANKS_KEPT] = *step;
}

static void put_loader(struct mr_json *json, const struct mr_loader_stats *st)
{
    const double seconds = (double)st->elapsed_ns * 1e-9;
    mr_json_string(json, "bottleneck", st->bottleneck);
    mr_json_double(json, "read_bytes_per_s", seconds > 0 ? (double)st->read_bytes / seconds : 0);
    mr_json_array(json, "stages");
    for (int s = 0; s < MR_N_STAGES; s++)
        mr_json_double(json, NULL,
                       st->worker_ns ? (double)st->stage_ns[s] / (double)st->worker_ns : 0);
    mr_json_array_end(json);
}

/* Whole microseconds keep texts short. */
static void put_steps(struct mr_json *json, const struct ranks_own *own, uint64_t from)
{
    mr_json_uint(json, "first", from);
    mr_json_array(json, "steps_us");
    for (uint64_t i = from; i < own->n; i++) {
        const struct mr_rank_step *s = &own->step[i % RANKS_KEPT];
        const double ns[] = {s->data_ns, s->compute_ns, s->sum_ns};
        for (size_t k = 0; k < CLI_COUNT(ns); k++)
            mr_json_uint(json, NULL, (uint64_t)(ns[k] / 1000 + 0.5));
    }
    mr_json_array_end(json);
}

char *ranks_own_text(struct ranks_own *own, const struct mr_loader_stats *stats, bool fresh)
{
    char host[RANKS_HOST] = "", *text = NULL;
    const char *written;
    const uint64_t kept = own->n > RANKS_KEPT ? own->n - RANKS_KEPT : 0;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return NULL;
    gethostname(host, sizeof host - 1);
    mr_json_object(json, NULL);
    mr_json_uint(json, "millrace_rank", own->rank);
    mr_json_uint(json, "world", own->world);
    mr_json_string(json, "command", own->command);
    mr_json_string(json, "host", host);
    mr_json_bool(json, "sums", own->sums);
    mr_json_bool(json, "lockstep", own->lockstep);
    put_loader(json, stats);
    put_steps(json, own, fresh && own->sent > kept ? own->sent : kept);
    mr_json_object_end(json);
    if (fresh)
        own->sent = own->n;
    if (mr_json_finish(json, &written) > 0)
        text = strdup(written);
    mr_json_destroy(json);
    return text;
}

static char *path_of(const char *dir, const struct ranks_own *own)
{
    char *path;
    return asprintf(&path, "%s/rank-%05u.json", dir, own->rank) < 0 ? NULL : path;
}

int ranks_dir_check(const char *dir, const struct ranks_own *own, int force)
{
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return cli_fail("--report-dir %s: cannot be made: %s", dir, strerror(errno));
    char *path = path_of(dir, own);
    int code = path ? cli_output_claim(path, CLI_RANK, force) : cli_fail("out of memory");
    free(path);
    return code;
}

int ranks_dir_write(const char *dir, struct ranks_own *own, const struct mr_loader_stats *stats,
                    int force)
{
    struct cli_output out = {0};
    char *path = path_of(dir, own), *text = ranks_own_text(own, stats, false);
    if (!path || !text) {
        free(path);
        free(text);
        return cli_fail("out of memory");
    }
    int code = cli_output_open(&out, path, CLI_RANK, force);
    if (code == CLI_OK)
        code = cli_output_write(&out, text, strlen(text));
    if (code == CLI_OK)
        code = cli_output_write(&out, "\n", 1);
    if (code == CLI_OK)
        code = cli_output_commit(&out);
    else
        cli_output_abort(&out);
    free(path);
    free(text);
    return code;
}
