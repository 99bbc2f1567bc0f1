/* What --tune has found, as text and as JSON. */
#include "pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

void cli_tuning_json(struct mr_json *json, const struct mr_loader_tuning *t,
                     const struct mr_loader_stats *st)
{
    if (!t) {
        mr_json_null(json, "tuning");
        return;
    }
    mr_json_object(json, "tuning");
    mr_json_bool(json, "done", t->done);
    mr_json_uint(json, "workers", t->workers);
    mr_json_uint(json, "prefetch", t->prefetch);
    mr_json_uint(json, "read_ahead", st->read_ahead);
    mr_json_uint(json, "queue_depth", st->queue_depth);
    mr_json_double(json, "gpu_decode", st->gpu_decode);
    mr_json_uint(json, "first_workers", t->first_workers);
    mr_json_uint(json, "first_prefetch", t->first_prefetch);
    mr_json_uint(json, "tried", t->n_tried);
    mr_json_double(json, "samples_per_s", t->rate);
    mr_json_double(json, "first_samples_per_s", t->first_rate);
    mr_json_double(json, "seconds", t->seconds);
    mr_json_string(json, "reason", t->reason);
    mr_json_object_end(json);
}

/* Both follow the storage's latency and rate while the loader runs, and nvJPEG's share the rates of
 * the GPU and of the processors. */
static void print_own(const struct mr_loader_stats *st)
{
    char ahead[CLI_HUMAN], reads[CLI_HUMAN];
    if (st->queue_depth > 0)
        printf("automatic: %s samples read ahead, %s reads in flight\n",
               cli_count((double)st->read_ahead, ahead), cli_count((double)st->queue_depth, reads));
    if (st->gpu_decode_rate > 0)
        printf("automatic: %.0f%% of the pictures decoded on the GPU\n", 100 * st->gpu_decode);
}

void cli_tuning_print(const struct mr_loader_tuning *t, const struct mr_loader_stats *st)
{
    if (!t)
        return;
    printf("tuning: %s (%u setting%s compared in %.1f s%s)\n", t->reason, t->n_tried,
           cli_s(t->n_tried), t->seconds, t->done ? "" : ", not finished");
    print_own(st);
    printf("options: --workers %u --prefetch %u\n", t->workers, t->prefetch);
}

int cli_limit_cpus(uint64_t n)
{
    cpu_set_t mine, kept;
    uint64_t found = 0;
    if (n == 0)
        return 0;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return mr_error_set(-errno, "--max-cpus: %s", strerror(errno));
    CPU_ZERO(&kept);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < n; cpu++)
        if (CPU_ISSET(cpu, &mine)) {
            CPU_SET(cpu, &kept);
            found++;
        }
    if (sched_setaffinity(0, sizeof kept, &kept) != 0)
        return mr_error_set(-errno, "--max-cpus %" PRIu64 ": %s", n, strerror(errno));
    return 0;
}
