/* What came of all ranks, for people and as JSON. */
#include "ranks/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *ns_text(double ns, char *buf)
{
    return cli_time((uint64_t)(ns + 0.5), buf);
}

static double others(const struct ranks_all *all, uint32_t rank, int stage)
{
    double sum = 0;
    for (uint32_t r = 0; r < all->world; r++)
        sum += r == rank ? 0 : all->rank[r].share[stage];
    return sum / (all->world - 1);
}

/* Of its workers: what they do more of than the others' do. */
static void put_workers(FILE *to, const struct ranks_all *all, uint32_t rank)
{
    const struct ranks_fact *f = &all->rank[rank];
    int top = 0;
    double rate = 0;
    char a[CLI_HUMAN], b[CLI_HUMAN];
    for (int s = 1; s < MR_N_STAGES; s++)
        if (s != MR_STAGE_SLOT &&
            f->share[s] - others(all, rank, s) > f->share[top] - others(all, rank, top))
            top = s;
    if (f->share[top] - others(all, rank, top) < 0.05)
        return; /* they do alike */
    for (uint32_t r = 0; r < all->world; r++)
        rate += r == rank ? 0 : all->rank[r].read_bytes_per_s / (all->world - 1);
    fprintf(to, "; %s took %.0f%% of its workers' time, %.0f%% of the others'",
            mr_stage_name((enum mr_stage)top), 100 * f->share[top], 100 * others(all, rank, top));
    if (top == MR_STAGE_READ && f->read_bytes_per_s > 0 && rate > 0)
        fprintf(to, "; it read %s, the others %s", cli_rate(f->read_bytes_per_s, a),
                cli_rate(rate, b));
}

static void put_straggler(FILE *to, const struct ranks_all *all, const struct mr_straggler *s)
{
    char n[CLI_HUMAN], cost[CLI_HUMAN], own[CLI_HUMAN], other[CLI_HUMAN], host[CLI_CLEAN];
    const bool data = s->cause == MR_LATE_DATA;
    fprintf(to, "rank %u (%s) came last in %.0f%% of %s steps and %s the others %s each: ", s->rank,
            cli_clean(all->rank[s->rank].host, host), 100 * s->last_share,
            cli_count((double)s->steps, n), all->lockstep ? "cost" : "would cost",
            ns_text(s->cost_ns, cost));
    fprintf(to, "it %s %s in a step, the others %s", data ? "waited for data" : "computed",
            ns_text(data ? s->data_ns : s->compute_ns, own),
            ns_text(data ? s->others_data_ns : s->others_compute_ns, other));
    if (data)
        put_workers(to, all, s->rank);
}

char *ranks_all_sentence(const struct ranks_all *all)
{
    struct mr_straggler s = {.size = sizeof s};
    char *text = NULL, n[CLI_HUMAN];
    size_t bytes;
    FILE *to = all->log && ranks_all_find(all, &s) == 0 ? open_memstream(&text, &bytes) : NULL;
    if (!to)
        return NULL;
    if (s.rank != MR_NO_RANK)
        put_straggler(to, all, &s);
    else if (all->world == 1)
        fprintf(to, "one rank: there is no other to wait for");
    else if (all->lockstep && !all->sums)
        fprintf(to,
                "the ranks are stages of a net, and what a stage waits for is not timed: no rank "
                "is named");
    else
        fprintf(to, "no rank held the others up in %s steps", cli_count((double)s.steps, n));
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

void ranks_all_print(const struct ranks_all *all, FILE *out)
{
    struct mr_straggler s = {.size = sizeof s};
    char host[CLI_CLEAN];
    ranks_all_find(all, &s);
    const double n = s.steps ? 1e-6 / (double)s.steps : 0, last = s.steps ? 100 : 0;
    struct cli_table *table =
        cli_table_create(all->lockstep ? "rank\thost\t>data wait, ms\t>compute, ms\t>in sums, "
                                         "ms\t>came last\tloader's bottleneck"
                                       : "rank\thost\t>data wait, ms\t>compute, ms\t>ahead of the "
                                         "slowest, ms\t>came last\tloader's bottleneck");
    for (uint32_t r = 0; r < all->world; r++) {
        struct mr_rank_sums sums = {.size = sizeof sums};
        mr_step_log_get(all->log, r, &sums);
        cli_table_row(table, "%u\t%s\t%.3f\t%.3f\t%.3f\t%.1f%%\t%s", r,
                      cli_clean(all->rank[r].host, host), sums.data_ns * n, sums.compute_ns * n,
                      sums.sum_ns * n, last * (double)sums.last / (double)(s.steps ? s.steps : 1),
                      all->rank[r].bottleneck);
    }
    cli_table_print(table, out, 0);
    char *sentence = ranks_all_sentence(all);
    if (sentence)
        fprintf(out, "%s\n", mr_text_printable(sentence));
    free(sentence);
}

static void json_straggler(const struct mr_straggler *s, struct mr_json *json)
{
    if (s->rank == MR_NO_RANK) {
        mr_json_null(json, "straggler");
        return;
    }
    mr_json_object(json, "straggler");
    mr_json_uint(json, "rank", s->rank);
    mr_json_string(json, "cause", s->cause == MR_LATE_DATA ? "data" : "compute");
    mr_json_double(json, "came_last", s->last_share);
    mr_json_double(json, "cost_ms", s->cost_ns * 1e-6);
    mr_json_double(json, "data_ms", s->data_ns * 1e-6);
    mr_json_double(json, "others_data_ms", s->others_data_ns * 1e-6);
    mr_json_double(json, "compute_ms", s->compute_ns * 1e-6);
    mr_json_double(json, "others_compute_ms", s->others_compute_ns * 1e-6);
    mr_json_object_end(json);
}

void ranks_all_json(const struct ranks_all *all, struct mr_json *json)
{
    struct mr_straggler s = {.size = sizeof s, .rank = MR_NO_RANK};
    char *sentence = ranks_all_sentence(all);
    if (all->log)
        ranks_all_find(all, &s);
    mr_json_uint(json, "steps", s.steps);
    mr_json_double(json, "step_ms", s.step_ns * 1e-6);
    mr_json_array(json, "ranks");
    for (uint32_t r = 0; all->log && r < all->world; r++) {
        struct mr_rank_sums sums = {.size = sizeof sums};
        mr_step_log_get(all->log, r, &sums);
        mr_json_object(json, NULL);
        mr_json_uint(json, "rank", r);
        mr_json_string(json, "host", all->rank[r].host);
        mr_json_double(json, "data_seconds", sums.data_ns * 1e-9);
        mr_json_double(json, "compute_seconds", sums.compute_ns * 1e-9);
        mr_json_double(json, "sum_seconds", sums.sum_ns * 1e-9);
        mr_json_uint(json, "came_last", sums.last);
        mr_json_string(json, "bottleneck", all->rank[r].bottleneck);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    json_straggler(&s, json);
    mr_json_string(json, "sentence", sentence);
    free(sentence);
}
