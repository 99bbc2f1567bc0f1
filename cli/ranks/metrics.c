/*
 * OpenMetrics text for dashboards. Readers of Prometheus' older text format, such as the textfile
 * collector of its node_exporter, take it as well: to them "# UNIT" and "# EOF" are comments.
 */
#include "ranks/ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static void put_label(FILE *to, const char *text)
{
    for (; *text; text++)
        if (*text == '\\' || *text == '"')
            fprintf(to, "\\%c", *text);
        else
            fputc((unsigned char)*text < 32 ? '?' : *text, to);
}

static void head(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP millrace_%s %s\n# TYPE millrace_%s %s\n", name, help, name, type);
}

enum { DATA, COMPUTE, SUM, LAST };

static void put_ranks(FILE *to, const struct ranks_all *all, int what, const char *name,
                      const char *help)
{
    head(to, name, "counter", help);
    for (uint32_t r = 0; r < all->world; r++) {
        struct mr_rank_sums s = {.size = sizeof s};
        mr_step_log_get(all->log, r, &s);
        const double values[] = {s.data_ns * 1e-9, s.compute_ns * 1e-9, s.sum_ns * 1e-9,
                                 (double)s.last};
        fprintf(to, "millrace_%s_total{rank=\"%u\",host=\"", name, r);
        put_label(to, all->rank[r].host);
        fprintf(to, "\"} %.9g\n", values[what]);
    }
}

static void put_all(FILE *to, const struct ranks_all *all)
{
    struct mr_straggler s = {.size = sizeof s};
    ranks_all_find(all, &s);
    head(to, "ranks", "gauge", "Processes that train together.");
    fprintf(to, "millrace_ranks %u\n", all->world);
    head(to, "steps", "counter", "Steps that were looked at.");
    fprintf(to, "millrace_steps_total %" PRIu64 "\n", s.steps);
    head(to, "step_seconds", "gauge", "Mean length of a step.");
    fprintf(to, "millrace_step_seconds %.9g\n", s.step_ns * 1e-9);
    put_ranks(to, all, DATA, "rank_data_wait_seconds", "Time a rank waited for batches.");
    put_ranks(to, all, COMPUTE, "rank_compute_seconds", "Time a rank computed.");
    put_ranks(to, all, SUM, "rank_sum_seconds", "Time a rank was in sums over the ranks.");
    put_ranks(to, all, LAST, "rank_last_steps", "Steps in which a rank came last to the sum.");
    head(to, "straggler_cost_seconds", "gauge",
         "What the others wait for the rank that holds them up, in a step; none: no rank does.");
    if (s.rank != MR_NO_RANK) {
        fprintf(to, "millrace_straggler_cost_seconds{rank=\"%u\",host=\"", s.rank);
        put_label(to, all->rank[s.rank].host);
        fprintf(to, "\",cause=\"%s\"} %.9g\n", s.cause == MR_LATE_DATA ? "data" : "compute",
                s.cost_ns * 1e-9);
    }
    fputs("# EOF\n", to);
}

int ranks_metrics_write(const struct ranks_all *all, const char *path)
{
    struct mr_output *out = NULL;
    int rc = mr_output_open(path, &out);
    if (rc < 0)
        return rc;
    int fd = dup(mr_output_get_fd(out));
    FILE *to = fd < 0 ? NULL : fdopen(fd, "w");
    if (!to) {
        rc = mr_error_set(-errno, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        goto end;
    }
    put_all(to, all);
    bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed)
        rc = mr_error_set(-EIO, "%s: could not be written", path);
    if (rc == 0)
        rc = mr_output_commit(out, 1);
end:
    mr_output_close(out);
    return rc;
}
