/* What the frame of the experiments writes: the table, the JSON object, the chart. */
#include "bench/frame.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *cell_text(const struct bench_column *c, double v, char buf[CLI_HUMAN])
{
    if (isnan(v))
        return "-";
    switch (c->format) {
    case BENCH_COUNT:
        return cli_count(v, buf);
    case BENCH_BYTES:
        return cli_bytes(v > 0 ? (uint64_t)v : 0, buf);
    case BENCH_RATE:
        return cli_rate(v, buf);
    case BENCH_SHARE:
        return cli_fixed(100 * v, c->digits ? c->digits : 1, "%", buf);
    default:
        return cli_fixed(v, c->digits, c->suffix ? c->suffix : "", buf);
    }
}

static bool is_shown(const struct bench_column *c, int part)
{
    return c->head && (!c->parts || c->parts >> part & 1);
}

static struct cli_table *create_table(const struct bench *b, int part)
{
    char heads[512];
    size_t used = 0;
    bool first = true;
    for (int c = 0; c < b->n_columns; c++) {
        if (!is_shown(&b->columns[c], part) || used >= sizeof heads)
            continue;
        used += (size_t)snprintf(heads + used, sizeof heads - used, "%s%s", first ? "" : "\t",
                                 b->columns[c].head);
        first = false;
    }
    return cli_table_create(heads);
}

static void add_row(const struct bench *b, struct cli_table *table, const struct bench_row *row)
{
    char line[1024], buf[CLI_HUMAN];
    size_t used = 0;
    bool first = true;
    for (int c = 0; c < b->n_columns; c++) {
        const struct bench_column *column = &b->columns[c];
        const char *text = column->format != BENCH_TEXT ? cell_text(column, row->v[c], buf)
                           : row->text[c]               ? row->text[c]
                                                        : "";
        if (!is_shown(column, row->part) || used >= sizeof line)
            continue;
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", first ? "" : "\t", text);
        first = false;
    }
    cli_table_row(table, "%s", line);
}

static bool is_empty(const struct bench *b, int part)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].part == part && !b->rows[i].left_out[0])
            return false;
    return true;
}

static void print_part(const struct bench *b, int part)
{
    if (b->interrupted && is_empty(b, part))
        return;
    struct cli_table *table = create_table(b, part);
    if (b->parts)
        printf("%s%s\n", part ? "\n" : "", b->parts[part]);
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].part == part && !b->rows[i].left_out[0])
            add_row(b, table, &b->rows[i]);
    cli_table_print(table, stdout, 2);
}

static int print_text(const struct bench *b)
{
    b->above(b);
    printf("\n");
    for (int part = 0; b->parts ? b->parts[part] != NULL : part == 0; part++)
        print_part(b, part);
    printf("\n");
    for (int i = 0; i < b->n_rows && !b->interrupted; i++)
        if (b->rows[i].left_out[0])
            printf("  %s left out: %s\n", b->rows[i].name, b->rows[i].left_out);
    if (b->below && !b->interrupted)
        b->below(b);
    if (b->verdict[0])
        printf("%s\n", b->verdict);
    return CLI_OK;
}

static void json_value(struct mr_json *json, const char *key, const struct bench_column *c,
                       double v, const char *text)
{
    if (c->format == BENCH_TEXT) {
        if (text || c->null)
            mr_json_string(json, key, text);
    } else if (isnan(v)) {
        if (c->null)
            mr_json_null(json, key);
    } else if (c->format == BENCH_FLAG) {
        mr_json_bool(json, key, v != 0);
    } else if ((c->format == BENCH_BYTES || c->format == BENCH_COUNT) && v >= 0 && v < 0x1p53 &&
               v == floor(v)) {
        mr_json_uint(json, key, (uint64_t)v);
    } else {
        mr_json_double(json, key, v);
    }
}

/* Members of one object, "busy_ms.h2d", "busy_ms.d2h", follow each other. */
static void json_row(const struct bench *b, struct mr_json *json, const struct bench_row *row)
{
    char open[64] = "";
    mr_json_object(json, NULL);
    for (int c = 0; c < b->n_columns; c++) {
        const char *key = b->columns[c].key, *dot = key ? strchr(key, '.') : NULL;
        size_t n = dot ? (size_t)(dot - key) : 0;
        if (!key)
            continue;
        if (open[0] && (strlen(open) != n || strncmp(open, key, n) != 0)) {
            mr_json_object_end(json);
            open[0] = 0;
        }
        if (n && !open[0]) {
            snprintf(open, sizeof open, "%.*s", (int)n, key);
            mr_json_object(json, open);
        }
        json_value(json, dot ? dot + 1 : key, &b->columns[c], row->v[c], row->text[c]);
    }
    if (open[0])
        mr_json_object_end(json);
    if (row->left_out[0])
        mr_json_string(json, "left_out", row->left_out);
    mr_json_object_end(json);
}

static int print_json(const struct bench *b)
{
    struct mr_json *json = cli_json_begin(b->command->name);
    if (!json)
        return CLI_FAILED;
    if (b->info.name[0]) {
        mr_json_string(json, "device", b->info.name);
        mr_json_string(json, "model", b->info.model);
    }
    mr_json_array(json, b->rows_key);
    for (int i = 0; i < b->n_rows; i++)
        json_row(b, json, &b->rows[i]);
    mr_json_array_end(json);
    if (b->interrupted)
        mr_json_bool(json, "interrupted", true);
    if (b->json)
        b->json(b, json);
    return cli_json_end_config(json, b->command->options, b->values);
}

static bool is_drawn(const struct bench *b, int p, const struct bench_row *row)
{
    return !row->left_out[0] && (!b->parts || row->part == p);
}

/* NULL: each line is a column. */
static const char *const *names_of(const struct bench *b, int p)
{
    return b->panels[p].series ? b->panels[p].series : b->series;
}

/* The points of one series of a panel: those of a column, or of the rows that belong to the
 * line. */
static struct plot_series points_of(const struct bench *b, int p, int k, double *x, double *y)
{
    const struct bench_panel *panel = &b->panels[p];
    const char *const *names = names_of(b, p);
    int n = 0, column = names ? panel->y[0] : panel->y[k];
    const char *name = names ? names[k] : panel->n > 1 ? b->columns[column].head : NULL;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (!is_drawn(b, p, row) || (names && row->series != k))
            continue;
        x[n] = panel->x < 0 ? 0 : row->v[panel->x];
        y[n++] = isnan(row->v[column]) ? -1 : row->v[column] / (panel->unit > 0 ? panel->unit : 1);
    }
    return (struct plot_series){name && name[0] == '>' ? name + 1 : name, panel->x < 0 ? NULL : x,
                                y, n};
}

/* bars: room for the rows' names for each panel. */
static int draw(const struct bench *b, double *points, const char **bars)
{
    struct plot_series series[BENCH_MAX_PANELS][BENCH_MAX_SERIES];
    struct plot_panel panels[BENCH_MAX_PANELS];
    char device[160];
    for (int p = 0; p < b->n_panels; p++, bars += b->n_rows) {
        const struct bench_panel *panel = &b->panels[p];
        int n = panel->n;
        for (int i = 0, k = 0; i < b->n_rows; i++)
            if (is_drawn(b, p, &b->rows[i]))
                bars[k++] = b->rows[i].name;
        for (int k = 0; k < n; k++, points += 2 * b->n_rows)
            series[p][k] = points_of(b, p, k, points, points + b->n_rows);
        panels[p] = (struct plot_panel){panel->title,   panel->x_label,
                                        panel->y_label, panel->x < 0 ? bars : NULL,
                                        series[p],      n,
                                        panel->limit,   panel->log_x,
                                        panel->log_y,   panel->ticks,
                                        false,          panel->whole_x};
    }
    snprintf(device, sizeof device, "%s %s", b->info.name, b->info.model);
    return plot_write(&(struct plot){.title = b->chart,
                                     .subtitle = b->subtitle[0] ? b->subtitle : device,
                                     .panels = panels,
                                     .n_panels = b->n_panels,
                                     .verdict = b->verdict,
                                     .learn = b->learn},
                      b->plot);
}

int bench_show(const struct bench *b)
{
    int code = CLI_OK;
    if (b->plot) {
        size_t n = (size_t)b->n_rows;
        double *points = calloc(2 * n * BENCH_MAX_PANELS * BENCH_MAX_SERIES, sizeof *points);
        const char **bars = calloc(n * BENCH_MAX_PANELS + 1, sizeof *bars);
        code = points && bars ? draw(b, points, bars) : cli_fail("out of memory");
        free(points);
        free(bars);
    }
    return code != CLI_OK ? code : cli.json ? print_json(b) : print_text(b);
}

void bench_print_device(const struct bench *b)
{
    printf("%s%s%s", b->info.name, b->info.model[0] ? ": " : "", b->info.model);
}
