/* The page of bench optimizers: three charts a net, a fourth with a sweep, and a table. */
#include "bench/optimizers.h"
#include "plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANELS = 4 }; /* of a net, at most */

static const char how_to_read[] =
    "<p class=\"note\">Last loss: the mean training loss of the last fortieth of the steps. "
    "Effective step: the "
    "root of the mean square by which one step changes a parameter. Steps and seconds are those "
    "after which a test first found the accuracy, tests left out; medians over the seeds; -: at "
    "least half of them never did.</p>\n";

static void put_row(FILE *out, const struct optim_curve *c, bool tests)
{
    char loss[64], accuracy[64], steps[CLI_HUMAN], seconds[CLI_HUMAN], ms[CLI_HUMAN];
    const char *why = optim_why(c);
    fputs("<tr><td class=\"text\">", out);
    mr_text_write_xml(c->text, out);
    fprintf(out, "</td><td>%.3g</td><td>%s</td><td%s>%s</td><td>%s</td><td>%s</td><td>%s</td>",
            c->lr, optim_text(&c->loss, 1, 4, "", loss),
            c->mark == OPTIM_BEST ? " class=\"best\"" : "",
            tests ? optim_text(&c->accuracy, 100, 2, "%", accuracy) : "-",
            bench_fixed(isinf(c->steps_to_target) ? NAN : c->steps_to_target, 0, "", steps),
            bench_fixed(isinf(c->seconds_to_target) ? NAN : c->seconds_to_target, 2, "", seconds),
            bench_fixed(c->ms_a_step, 3, "", ms));
    fputs("<td class=\"text\">", out);
    mr_text_write_xml(why[0] ? why : optim_mark_text(c->mark), out);
    fputs("</td></tr>\n", out);
}

static void put_table(FILE *out, const struct optim_bench *b, const struct optim_net *net)
{
    double target = 100 * b->opts->target;
    fputs("<h2>", out);
    mr_text_write_xml(net->model, out);
    fprintf(out,
            "</h2>\n<div class=\"table\"><table>\n<tr><th "
            "class=\"text\">optimizer</th><th>lr</th><th>last loss</th><th>test "
            "accuracy</th><th>steps to %.4g%%</th><th>s to %.4g%%</th><th>ms a step</th><th></th>"
            "</tr>\n",
            target, target);
    for (int k = 0; k < net->n; k++)
        put_row(out, &net->curve[k], b->data.test != NULL);
    fputs("</table></div>\n", out);
}

static const char explain[] =
    "Each optimizer trains the same net from the same parameters on the same batches. Watch the "
    "loss "
    "fall and the test accuracy rise, by steps. A learning rate that suits one does not suit "
    "another, "
    "so compare each at its own best (--lr-sweep), over several seeds (--seeds).";

static char *html_below(const struct optim_bench *b)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fputs(how_to_read, out);
    if (b->opts->seeds > 1)
        fprintf(out, "<p class=\"note\">+-: standard deviation over %" PRIu64 " seeds.</p>\n",
                b->opts->seeds);
    if (b->opts->seeds >= OPTIM_MARK_SEEDS)
        fputs("<p class=\"note\">Best is marked only if it is ahead of all others by more than "
              "both deviations "
              "together.</p>\n",
              out);
    else
        fprintf(out,
                "<p class=\"note\">Less than %d seeds: differences may be chance, so none is "
                "marked best.</p>\n",
                OPTIM_MARK_SEEDS);
    if (b->n_factors)
        fprintf(out,
                "<p class=\"note\">Each learning rate was chosen by the %s, in one run with seed "
                "%" PRIu64 ", which is not among those reported.</p>\n",
                b->data.test ? "test set" : "training loss", optim_sweep_seed(b->opts));
    for (int i = 0; i < b->n_nets; i++)
        put_table(out, b, &b->net[i]);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

struct page {
    struct plot_panel panel[PANELS * OPTIM_MAX_NETS];
    char title[PANELS * OPTIM_MAX_NETS][96];
    struct plot_series series[PANELS * OPTIM_MAX_NETS][OPTIM_MAX];
    double score[OPTIM_MAX_NETS][OPTIM_MAX][OPTIM_MAX_RATES]; /* as drawn */
    int n;
};

/* The next panel, without series. */
static struct plot_series *add(struct page *page, const struct optim_net *net, const char *title,
                               struct plot_panel panel)
{
    int k = page->n++;
    snprintf(page->title[k], sizeof page->title[k], "%.60s: %s", net->model, title);
    panel.title = page->title[k];
    panel.series = page->series[k];
    panel.n_series = net->n;
    page->panel[k] = panel;
    return page->series[k];
}

/* Rates that failed are left out, as values below 0 are. */
static void add_sweep(struct page *page, const struct optim_bench *b, int i)
{
    const struct optim_net *net = &b->net[i];
    bool tests = b->data.test != NULL;
    struct plot_series *s =
        add(page, net, tests ? "test accuracy by learning rate" : "last loss by learning rate",
            (struct plot_panel){.x_label = "learning rate",
                                .y_label = tests ? "%" : "mean of a sample",
                                .log_x = true,
                                .log_y = !tests,
                                .percent = tests});
    for (int k = 0; k < net->n; k++) {
        const struct optim_curve *c = &net->curve[k];
        double *y = page->score[i][k];
        for (int r = 0; r < c->n_rates; r++)
            y[r] = isnan(c->score[r]) ? -1 : tests ? 100 * c->score[r] : -c->score[r];
        s[k] = (struct plot_series){c->text, c->rate, y, c->n_rates};
    }
}

static void add_net(struct page *page, const struct optim_bench *b, int i)
{
    const struct optim_net *net = &b->net[i];
    struct plot_series *loss =
        add(page, net, "training loss",
            (struct plot_panel){
                .x_label = "step", .y_label = "mean of a sample", .log_y = true, .whole_x = true});
    for (int k = 0; k < net->n; k++) {
        const struct optim_curve *c = &net->curve[k];
        loss[k] = (struct plot_series){c->text, c->mean_step, c->mean_loss, c->n_points};
    }
    struct plot_series *accuracy = add(
        page, net, "test accuracy",
        (struct plot_panel){.x_label = "step", .y_label = "%", .percent = true, .whole_x = true});
    for (int k = 0; k < net->n; k++) {
        const struct optim_curve *c = &net->curve[k];
        accuracy[k] =
            (struct plot_series){c->text, c->mean_test_step, c->mean_accuracy, c->n_tests};
    }
    if (!b->data.test) /* it would be empty */
        page->n--;
    struct plot_series *move = add(page, net, "effective step",
                                   (struct plot_panel){.x_label = "step",
                                                       .y_label = "RMS change of a parameter",
                                                       .log_y = true,
                                                       .whole_x = true});
    for (int k = 0; k < net->n; k++) {
        const struct optim_curve *c = &net->curve[k];
        move[k] = (struct plot_series){c->text, c->mean_step, c->mean_move, c->n_points};
    }
    if (b->n_factors)
        add_sweep(page, b, i);
}

/* Which optimizer is best for each net, where enough seeds say. */
static void say(const struct optim_bench *b, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < b->n_nets; i++) {
        const struct optim_net *net = &b->net[i];
        int top = -1, near = 0;
        for (int k = 0; k < net->n; k++) {
            near += net->curve[k].mark == OPTIM_AS_GOOD;
            if (net->curve[k].mark >= OPTIM_HIGHEST)
                top = k;
        }
        if (top < 0 || b->opts->seeds < OPTIM_MARK_SEEDS || used >= cap)
            continue;
        int n = snprintf(out + used, cap - used, "%sfor %.60s %.60s is %s", used ? "; " : "",
                         net->model, net->curve[top].text, near ? "highest" : "best");
        used += n > 0 ? (size_t)n : 0;
        if (near && used < cap)
            used += (size_t)snprintf(out + used, cap - used, ", %d other%s as good by the spread",
                                     near, near == 1 ? "" : "s");
    }
}

int optim_draw(const struct optim_bench *b)
{
    struct page *page = calloc(1, sizeof *page);
    char subtitle[240], verdict[768], *below = html_below(b);
    if (!page || !below) {
        free(page);
        free(below);
        return cli_fail("out of memory");
    }
    for (int i = 0; i < b->n_nets; i++)
        add_net(page, b, i);
    snprintf(subtitle, sizeof subtitle,
             "%.100s, batches of %" PRIu64 ", %" PRIu64 " steps, %" PRIu64 " seed%s, device %s",
             mr_dataset_text(b->data.pipe.ds), b->opts->loader.batch_size, b->iterations,
             b->opts->seeds, cli_s(b->opts->seeds), b->data.pipe.info.name);
    say(b, verdict, sizeof verdict);
    int code = plot_write(&(struct plot){"Optimizers", subtitle, page->panel, page->n, below, false,
                                         verdict, "optimizers", explain},
                          b->opts->plot);
    free(page);
    free(below);
    return code;
}
