/* A plan as a table with sentences, as JSON, and as a chart. */
#include "plan/plan.h"
#include "plot.h"

#include <math.h>
#include <stdlib.h>

static double share(double part, const struct mr_cluster_step *s)
{
    return s->step_ns > 0 ? 100 * part / s->step_ns : 0;
}

static void put_reason(FILE *to, const struct plan *p, const struct plan_row *r)
{
    const struct mr_cluster_step *s = &r->step;
    const double store = p->in.model.store_bytes_per_s;
    char a[CLI_HUMAN], b[CLI_HUMAN];
    if (s->efficiency > 0.98)
        fprintf(to, "Almost nothing is lost.");
    else if (s->data_ns >= s->spread_ns && s->data_ns >= s->sum_ns) {
        if (store > 0 && s->store_bytes_per_s > 0.97 * store)
            fprintf(to,
                    "The store is the limit: it gives %s, and the ranks could use %s. A cache on "
                    "the nodes, smaller samples or a faster store help.",
                    cli_rate(store, a),
                    cli_rate(r->ranks * p->in.model.batch_bytes / s->alone_ns * 1e9, b));
        else
            fprintf(to,
                    "Most is lost by batches that are late on one rank, for which all others "
                    "wait. More --prefetch than %u helps if batches are late now and then, faster "
                    "loaders if they are too slow on average.",
                    p->in.model.prefetch);
    } else if (s->spread_ns >= s->sum_ns)
        fprintf(to, "Most is lost because ranks do not compute equally fast in each step.");
    else
        fprintf(to, "Most is lost in sums. --wire bf16, larger batches, or links of a higher "
                    "bandwidth help.");
}

/* To be freed; NULL: no memory. */
static char *sentences(const struct plan *p)
{
    const struct plan_row *r = &p->row[p->n - 1];
    const struct mr_cluster_step *s = &r->step;
    char step[CLI_HUMAN], alone[CLI_HUMAN], n[CLI_HUMAN], time[CLI_HUMAN], *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    fprintf(to, "With %s rank%s a step takes %s, with one %s: an efficiency of %.1f%%. ",
            cli_count(r->ranks, n), cli_s(r->ranks), cli_time((uint64_t)s->step_ns, step),
            cli_time((uint64_t)s->alone_ns, alone), 100 * s->efficiency);
    fprintf(to, "Waiting for data takes %.1f%% of it, sums that are not hidden %.1f%%. ",
            share(s->data_ns, s), share(s->sum_ns, s));
    put_reason(to, p, r);
    if (!isnan(r->epoch_s))
        fprintf(to, " An epoch takes %s and costs %.2f for the ranks and %.2f for requests.",
                cli_time((uint64_t)fmin(r->epoch_s * 1e9, 1e19), time), r->rent, r->request_cost);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

static void put_row(struct cli_table *table, const struct plan_row *r)
{
    const struct mr_cluster_step *s = &r->step;
    char n[CLI_HUMAN], rate[CLI_HUMAN], store[CLI_HUMAN], epoch[CLI_HUMAN] = "",
                                                          cost[2 * CLI_HUMAN] = "";
    if (!isnan(r->epoch_s)) {
        cli_time((uint64_t)fmin(r->epoch_s * 1e9, 1e19), epoch);
        const double all = r->rent + r->request_cost;
        snprintf(cost, sizeof cost, "%.*f", all < 100 ? 2 : 0, all);
    }
    cli_table_row(
        table, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f%%\t%s\t%s\t%s\t%s", cli_count(r->ranks, n),
        s->step_ns * 1e-6, s->data_ns * 1e-6, s->spread_ns * 1e-6, s->sum_ns * 1e-6,
        100 * s->efficiency, r->samples_per_s > 0 ? cli_count(r->samples_per_s, rate) : "",
        s->store_bytes_per_s > 0 ? cli_rate(s->store_bytes_per_s, store) : "", epoch, cost);
}

int plan_print(const struct plan *p)
{
    struct cli_table *table = cli_table_create(
        p->in.epoch ? ">ranks\t>step, ms\t>data, ms\t>spread, ms\t>sums, ms\t>efficiency\t"
                      ">samples/s\t>from the store\t>epoch\t>cost"
                    : ">ranks\t>step, ms\t>data, ms\t>spread, ms\t>sums, ms\t>efficiency\t"
                      ">samples/s\t>from the store");
    for (int i = 0; i < p->n; i++)
        put_row(table, &p->row[i]);
    int code = cli_table_print(table, stdout, 0);
    char *text = sentences(p);
    if (text) {
        printf("\n");
        cli_paragraphs(stdout, text, 0);
    }
    free(text);
    if (code == CLI_OK && p->opts->plot)
        printf("\nchart: %s\n", p->opts->plot);
    return code;
}

static void json_model(const struct plan_input *in, struct mr_json *json)
{
    const struct mr_cluster_opts *m = &in->model;
    mr_json_object(json, "model");
    mr_json_double(json, "step_ms", m->step_ns * 1e-6);
    mr_json_double(json, "step_sigma", m->step_sigma);
    mr_json_double(json, "make_ms", m->make_ns * 1e-6);
    mr_json_double(json, "make_sigma", m->make_sigma);
    mr_json_uint(json, "prefetch", m->prefetch);
    mr_json_double(json, "samples", in->samples);
    mr_json_double(json, "batch_bytes", m->batch_bytes);
    mr_json_double(json, "requests", in->requests);
    mr_json_double(json, "grad_bytes", m->grad_bytes);
    mr_json_double(json, "backward_share", m->backward_share);
    mr_json_double(json, "node_bytes_per_s", m->node_bytes_per_s);
    mr_json_double(json, "net_bytes_per_s", m->net_bytes_per_s);
    mr_json_double(json, "node_alpha_us", m->node_alpha_ns / 1e3);
    mr_json_double(json, "net_alpha_us", m->net_alpha_ns / 1e3);
    mr_json_object_end(json);
}

static void json_row(const struct plan *p, const struct plan_row *r, struct mr_json *json)
{
    const struct mr_cluster_step *s = &r->step;
    mr_json_object(json, NULL);
    mr_json_uint(json, "ranks", r->ranks);
    mr_json_double(json, "step_ms", s->step_ns * 1e-6);
    mr_json_double(json, "compute_ms", s->compute_ns * 1e-6);
    mr_json_double(json, "data_ms", s->data_ns * 1e-6);
    mr_json_double(json, "spread_ms", s->spread_ns * 1e-6);
    mr_json_double(json, "sum_ms", s->sum_ns * 1e-6);
    mr_json_double(json, "whole_sum_ms", s->whole_sum_ns * 1e-6);
    mr_json_double(json, "alone_ms", s->alone_ns * 1e-6);
    mr_json_double(json, "efficiency", s->efficiency);
    mr_json_double(json, "samples_per_s", r->samples_per_s);
    mr_json_double(json, "store_gb_per_s", s->store_bytes_per_s * 1e-9);
    if (p->in.epoch) {
        mr_json_double(json, "epoch_seconds", r->epoch_s);
        mr_json_double(json, "rent", r->rent);
        mr_json_double(json, "requests", r->requests);
        mr_json_double(json, "request_cost", r->request_cost);
    }
    mr_json_object_end(json);
}

int plan_json(const struct plan *p)
{
    struct mr_json *json = cli_json_begin("plan");
    if (!json)
        return CLI_FAILED;
    json_model(&p->in, json);
    mr_json_array(json, "rows");
    for (int i = 0; i < p->n; i++)
        json_row(p, &p->row[i], json);
    mr_json_array_end(json);
    char *text = sentences(p);
    mr_json_string(json, "sentences", text);
    free(text);
    return cli_json_end_config(json, plan_options, p->opts);
}

int plan_draw(const struct plan *p)
{
    enum { EFFICIENCY, DATA, SPREAD, SUMS, N };
    double x[PLAN_MOST], y[N][PLAN_MOST];
    for (int i = 0; i < p->n; i++) {
        const struct mr_cluster_step *s = &p->row[i].step;
        x[i] = p->row[i].ranks;
        y[EFFICIENCY][i] = 100 * s->efficiency;
        y[DATA][i] = share(s->data_ns, s);
        y[SPREAD][i] = share(s->spread_ns, s);
        y[SUMS][i] = share(s->sum_ns, s);
    }
    const struct plot_series one = {"efficiency", x, y[EFFICIENCY], p->n};
    const struct plot_series parts[] = {{"waiting for data", x, y[DATA], p->n},
                                        {"unequal steps", x, y[SPREAD], p->n},
                                        {"sums", x, y[SUMS], p->n}};
    const struct plot_panel panels[] = {{.title = "Efficiency",
                                         .x_label = "ranks",
                                         .y_label = "% of one rank's rate",
                                         .series = &one,
                                         .n_series = 1,
                                         .log_x = true,
                                         .x_ticks = PLOT_BINARY},
                                        {.title = "What is lost",
                                         .x_label = "ranks",
                                         .y_label = "% of a step",
                                         .series = parts,
                                         .n_series = 3,
                                         .log_x = true,
                                         .x_ticks = PLOT_BINARY}};
    char *text = sentences(p);
    const struct plot plot = {.title = "millrace plan",
                              .subtitle = "simulated ranks in lock step",
                              .panels = panels,
                              .n_panels = 2,
                              .verdict = text,
                              .force = p->opts->force};
    int code = plot_write(&plot, p->opts->plot);
    free(text);
    return code;
}
