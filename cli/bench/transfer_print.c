/* What bench transfer found, as text, JSON and charts. */
#include "bench/transfer.h"
#include "plot.h"

#include <stdlib.h>
#include <string.h>

static const char *const titles[] = {"Host to device", "Device to host",
                                     "Both ways at once (total)", "Within the device",
                                     "From the peer device"};

static const struct transfer_point *last_point(const struct transfer_series *s)
{
    return s->n ? &s->points[s->n - 1] : NULL;
}

/* The plain way to do it right: page-locked, asynchronous. */
static const struct transfer_series *plain(const struct transfer_result *r,
                                           enum transfer_direction d)
{
    for (int i = 0; i < r->n_series; i++)
        if (r->series[i].direction == d && r->series[i].memory == TRANSFER_PINNED &&
            r->series[i].way == TRANSFER_ASYNC)
            return &r->series[i];
    return NULL;
}

static double best(const struct transfer_series *s)
{
    double most = 0;
    for (int i = 0; i < s->n; i++)
        most = s->points[i].gb_per_s > most ? s->points[i].gb_per_s : most;
    return most;
}

static void print_direction(const struct transfer_result *r, const struct transfer_opts *o,
                            enum transfer_direction d)
{
    char line[1024] = "size", bytes[CLI_HUMAN];
    size_t used = strlen(line);
    const struct transfer_series *of[TRANSFER_MAX_SERIES];
    int n = 0;
    for (int i = 0; i < r->n_series; i++) {
        if (r->series[i].direction != d)
            continue;
        of[n++] = &r->series[i];
        used += (size_t)snprintf(line + used, sizeof line - used, "\t>%s", r->series[i].name);
    }
    if (n == 0)
        return;
    printf("\n%s, GB/s\n", titles[d]);
    struct cli_table *table = cli_table_create(line);
    uint64_t size = o->min_bytes;
    for (int i = 0; size <= o->max_bytes && i < TRANSFER_MAX_SIZES; i++, size *= 4) {
        used = (size_t)snprintf(line, sizeof line, "%s", cli_bytes(size, bytes));
        for (int k = 0; k < n; k++) {
            double v = i < of[k]->n ? of[k]->points[i].gb_per_s : -1;
            used += (size_t)snprintf(line + used, sizeof line - used,
                                     v < 0   ? "\t"
                                     : v < 1 ? "\t%.3f"
                                             : "\t%.2f",
                                     v);
        }
        cli_table_row(table, "%s", line);
    }
    cli_table_print(table, stdout, 2);
}

/* names: of the directions. */
static struct cli_table *make_fits(const struct transfer_result *r, const char *const *names)
{
    struct cli_table *table =
        cli_table_create("\t\t>latency\t>bandwidth\t>best\t>limit\t>of limit\t>variation, at most");
    for (int at = 0; at < r->n_series * TRANSFER_N_DIRECTIONS; at++) {
        const struct transfer_series *s = &r->series[at % r->n_series];
        if ((int)s->direction != at / r->n_series)
            continue;
        char latency[CLI_HUMAN] = "", fit[32] = "", limit[32] = "", part[32] = "";
        double variation = 0;
        for (int k = 0; k < s->n; k++)
            variation = s->points[k].variation > variation ? s->points[k].variation : variation;
        if (s->fitted) {
            cli_time((uint64_t)(s->latency_ns + 0.5), latency);
            snprintf(fit, sizeof fit, "%.2f GB/s", s->fit_gb_per_s);
        }
        if (s->limit_gb_per_s > 0) {
            snprintf(limit, sizeof limit, "%.2f GB/s", s->limit_gb_per_s);
            snprintf(part, sizeof part, "%.1f%%", 100 * best(s) / s->limit_gb_per_s);
        }
        cli_table_row(table, "%s\t%s\t%s\t%s\t%.2f GB/s\t%s\t%s\t%.1f%%", names[s->direction],
                      s->name, latency, fit, best(s), limit, part, 100 * variation);
    }
    return table;
}

static const char fits_title[] =
    "One copy takes latency + bytes / bandwidth, fitted; the best that was reached, and the limit";

/* Why a result may be low. Each finding is given to fn. */
static void explain(const struct transfer_result *r, void (*fn)(void *user, const char *text),
                    void *user)
{
    const struct mr_device_info *at = &r->after;
    char text[400];
    bool low = false;
    for (int d = TRANSFER_H2D; d <= TRANSFER_BOTH; d++) {
        const struct transfer_series *s = plain(r, (enum transfer_direction)d);
        if (!s || s->limit_gb_per_s <= 0 || best(s) >= 0.9 * s->limit_gb_per_s)
            continue;
        low = true;
        snprintf(text, sizeof text,
                 "%s: page-locked copies reach %.0f%% of the limit of %.2f GB/s%s", titles[d],
                 100 * best(s) / s->limit_gb_per_s, s->limit_gb_per_s,
                 last_point(s) && last_point(s)->bytes < (16u << 20)
                     ? "; copies of 16 MiB and more were not measured"
                     : "");
        fn(user, text);
    }
    if (!low)
        return;
    if (at->link_generation &&
        (at->link_generation < at->link_generation_max || at->link_width < at->link_width_max)) {
        snprintf(text, sizeof text,
                 "the link ran at generation %d x%d under load and can do %d x%d: trained down "
                 "(power saving, the slot, a "
                 "riser or dirty contacts; nvidia-smi -q -d PERFORMANCE,PCIE)",
                 at->link_generation, at->link_width, at->link_generation_max, at->link_width_max);
        fn(user, text);
    }
    if (at->pci_id[0] && at->numa_node < 0)
        fn(user, "which memory node is nearest the GPU is unknown here (a virtual machine, or one "
                 "node): memory on a far "
                 "node is slower; an IOMMU that translates is another cause that cannot be seen "
                 "from here");
    if (!at->pci_id[0])
        fn(user, "this device is simulated: the rest is the time that this host's memory takes to "
                 "move the bytes, and "
                 "latency");
}

static void print_note(void *user, const char *text)
{
    (void)user;
    cli_paragraphs(stdout, text, 2);
}

/* The fastest page-locked copies in each direction. */
static void say_best(const struct transfer_result *r, char *out, size_t cap)
{
    out[0] = 0;
    for (int d = TRANSFER_H2D; d <= TRANSFER_BOTH; d++) {
        const struct transfer_series *s = plain(r, (enum transfer_direction)d);
        size_t used = strlen(out);
        if (!s)
            continue;
        int n = snprintf(out + used, cap - used, "%s%s: %.2f GB/s from page-locked memory",
                         used ? "; " : "", titles[d], best(s));
        if (n > 0 && s->limit_gb_per_s > 0 && used + (size_t)n < cap)
            snprintf(out + used + n, cap - used - (size_t)n, ", %.0f%% of the limit",
                     100 * best(s) / s->limit_gb_per_s);
    }
}

static int print_text(const struct transfer_result *r, const struct transfer_opts *o)
{
    const struct mr_device_info *at = &r->after;
    char verdict[320];
    say_best(r, verdict, sizeof verdict);
    printf("%s%s%s", at->name, at->model[0] ? ": " : "", at->model);
    if (at->link_generation_max)
        printf("; PCIe generation %d x%d (at most %d x%d)", at->link_generation, at->link_width,
               at->link_generation_max, at->link_width_max);
    if (at->h2d_gb_per_s > 0)
        printf("; limit %.2f GB/s to the device, %.2f GB/s back", at->h2d_gb_per_s,
               at->d2h_gb_per_s);
    if (r->peer[0])
        printf("; peer %s, %s", r->peer,
               r->direct ? "reached directly" : "through the host's memory");
    printf("\nmedians of %llu; copies wait behind a kernel until all are submitted, and the "
           "device's clock times them; "
           "pageable\nand blocking copies cannot wait so: the host's clock times them, submitting "
           "included. The bytes "
           "were "
           "checked.\n",
           (unsigned long long)o->repeats);
    for (int d = 0; d < TRANSFER_N_DIRECTIONS; d++)
        print_direction(r, o, (enum transfer_direction)d);
    printf("\n%s\n", fits_title);
    cli_table_print(make_fits(r, transfer_directions), stdout, 2);
    const struct transfer_series *both = plain(r, TRANSFER_BOTH);
    if (both && both->n)
        printf(
            "\n  both at once: %.2f GB/s to the device and %.2f GB/s back in the largest copies\n",
            last_point(both)->each_gb_per_s[0], last_point(both)->each_gb_per_s[1]);
    printf("\n");
    explain(r, print_note, NULL);
    if (r->left_out[0])
        printf("  left out: %s\n", r->left_out);
    if (r->interrupted)
        printf("Interrupted: these are the measurements until then; no chart was written.\n");
    else if (verdict[0])
        printf("%s\n", verdict);
    return CLI_OK;
}

static void json_point(struct mr_json *json, const struct transfer_series *s,
                       const struct transfer_point *p)
{
    mr_json_object(json, NULL);
    mr_json_uint(json, "bytes", p->bytes);
    mr_json_uint(json, "copies", p->copies);
    mr_json_double(json, "gb_per_s", p->gb_per_s);
    if (s->direction == TRANSFER_BOTH) {
        mr_json_double(json, "h2d_gb_per_s", p->each_gb_per_s[0]);
        mr_json_double(json, "d2h_gb_per_s", p->each_gb_per_s[1]);
    }
    mr_json_double(json, "variation", p->variation);
    if (s->limit_gb_per_s > 0)
        mr_json_double(json, "of_limit", p->gb_per_s / s->limit_gb_per_s);
    mr_json_object_end(json);
}

static void json_note(void *user, const char *text)
{
    mr_json_string(user, NULL, text);
}

static int print_json(const struct transfer_result *r)
{
    struct mr_json *json = cli_json_begin("bench transfer");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "device", r->after.name);
    mr_json_string(json, "model", r->after.model);
    mr_json_object(json, "link");
    mr_json_double(json, "h2d_limit_gb_per_s", r->after.h2d_gb_per_s);
    mr_json_double(json, "d2h_limit_gb_per_s", r->after.d2h_gb_per_s);
    mr_json_int(json, "generation", r->after.link_generation);
    mr_json_int(json, "width", r->after.link_width);
    mr_json_int(json, "generation_max", r->after.link_generation_max);
    mr_json_int(json, "width_max", r->after.link_width_max);
    mr_json_int(json, "numa_node", r->after.numa_node);
    mr_json_object_end(json);
    mr_json_string(json, "peer", r->peer[0] ? r->peer : NULL);
    mr_json_bool(json, "peer_direct", r->peer[0] && r->direct);
    mr_json_array(json, "series");
    for (int i = 0; i < r->n_series; i++) {
        const struct transfer_series *s = &r->series[i];
        mr_json_object(json, NULL);
        mr_json_string(json, "direction", transfer_directions[s->direction]);
        mr_json_string(json, "memory", transfer_memories[s->memory]);
        mr_json_string(json, "way", transfer_ways[s->way]);
        mr_json_string(json, "clock", s->host_timed ? "host" : "device");
        mr_json_double(json, "limit_gb_per_s", s->limit_gb_per_s);
        if (s->fitted) {
            mr_json_double(json, "fit_latency_ns", s->latency_ns);
            mr_json_double(json, "fit_gb_per_s", s->fit_gb_per_s);
        }
        mr_json_array(json, "points");
        for (int k = 0; k < s->n; k++)
            json_point(json, s, &s->points[k]);
        mr_json_array_end(json);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_array(json, "notes");
    explain(r, json_note, json);
    if (r->left_out[0])
        mr_json_string(json, NULL, r->left_out);
    mr_json_array_end(json);
    if (r->interrupted)
        mr_json_bool(json, "interrupted", true);
    return cli_json_end(json);
}

int transfer_print(const struct transfer_result *r, const struct transfer_opts *o)
{
    return cli.json ? print_json(r) : print_text(r, o);
}

static const char about[] =
    "A copy takes a latency, whatever its size, and then its bytes at the rate of the link. So "
    "small "
    "copies are slow, and many of them in one call or graph are faster. GPUs copy pageable memory "
    "by way of a page-locked buffer of the driver's, which takes longer and holds the host.";

/* NULL: out of memory. */
static char *html_fits(const struct transfer_result *r)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "<h2>%s</h2>\n", fits_title);
    int code = cli_table_html(make_fits(r, titles), out);
    if (fclose(out) == 0 && code == CLI_OK)
        return text;
    free(text);
    return NULL;
}

int transfer_plot(const struct transfer_result *r, const char *path)
{
    double x[TRANSFER_MAX_SERIES][TRANSFER_MAX_SIZES], y[TRANSFER_MAX_SERIES][TRANSFER_MAX_SIZES];
    struct plot_series series[TRANSFER_MAX_SERIES];
    struct plot_panel panels[TRANSFER_N_DIRECTIONS];
    char subtitle[160], verdict[320], *below = html_fits(r);
    int n = 0, n_panels = 0;
    if (!below)
        return cli_fail("out of memory");
    for (int d = 0; d < TRANSFER_N_DIRECTIONS; d++) {
        struct plot_panel p = {titles[d], "size of a copy", "GB/s", NULL, &series[n], 0, {0}, true,
                               true,      PLOT_BYTES};
        for (int i = 0; i < r->n_series; i++) {
            const struct transfer_series *s = &r->series[i];
            if ((int)s->direction != d)
                continue;
            for (int k = 0; k < s->n; k++) {
                x[n][k] = (double)s->points[k].bytes;
                y[n][k] = s->points[k].gb_per_s;
            }
            if (s->limit_gb_per_s > p.limit.y)
                p.limit = (struct plot_limit){"limit of the link", s->limit_gb_per_s};
            series[n] = (struct plot_series){s->name, x[n], y[n], s->n};
            n++;
            p.n_series++;
        }
        if (p.n_series)
            panels[n_panels++] = p;
    }
    snprintf(subtitle, sizeof subtitle, "%s %s", r->after.name, r->after.model);
    say_best(r, verdict, sizeof verdict);
    int code = plot_write(&(struct plot){"Copies between host and device", subtitle, panels,
                                         n_panels, below, false, verdict, "pinned", about},
                          path);
    free(below);
    return code;
}
