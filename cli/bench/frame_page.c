/* The page, or the picture, of the frame of the experiments: charts, and the tables below them. */
#include "bench/frame.h"

#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

static void put_cell(FILE *out, const char *element, bool is_text, const char *text)
{
    fprintf(out, "<%s%s>", element, is_text ? " class=\"text\"" : "");
    mr_text_write_xml(text, out);
    fprintf(out, "</%s>", element);
}

static void put_row(FILE *out, const struct bench *b, const struct bench_row *row)
{
    char buf[CLI_HUMAN];
    fputs("<tr>", out);
    for (int c = 0; c < b->n_columns; c++) {
        const struct bench_column *column = &b->columns[c];
        if (!bench_is_shown(column, row->part))
            continue;
        bool is_text = column->format == BENCH_TEXT;
        put_cell(out, "td", is_text && column->head[0] != '>',
                 !is_text       ? bench_cell(column, row->v[c], buf)
                 : row->text[c] ? row->text[c]
                                : "");
    }
    fputs("</tr>\n", out);
}

static void put_table(FILE *out, const struct bench *b, int part)
{
    if (b->parts)
        put_cell(out, "h2", false, b->parts[part]);
    fputs("\n<div class=\"table\"><table>\n<tr>", out);
    for (int c = 0; c < b->n_columns; c++) {
        const struct bench_column *column = &b->columns[c];
        if (bench_is_shown(column, part))
            put_cell(out, "th", column->head[0] != '>', column->head + (column->head[0] == '>'));
    }
    fputs("</tr>\n", out);
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].part == part && !b->rows[i].left_out[0])
            put_row(out, b, &b->rows[i]);
    fputs("</table></div>\n", out);
}

static void put_findings(FILE *out, const struct bench *b)
{
    fputs("<ul>\n", out);
    for (int i = 0; i < b->n_findings; i++) {
        fputs("<li>", out);
        mr_text_write_xml(b->finding[i], out);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

/* NULL: out of memory. */
static char *make_tables(const struct bench *b)
{
    char *text = NULL, names[BENCH_LEFT_OUT];
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    if (b->n_findings > 0)
        put_findings(out, b);
    for (int part = 0; b->parts ? b->parts[part] != NULL : part == 0; part++)
        if (!bench_is_empty(b, part))
            put_table(out, b, part);
    for (int i = 0; i < b->n_rows; i++)
        if (bench_left_out(b, i, names, sizeof names)) {
            fputs("<p class=\"note\">Left out: ", out);
            mr_text_write_xml(names, out);
            fputs(": ", out);
            mr_text_write_xml(b->rows[i].left_out, out);
            fputs("</p>\n", out);
        }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- charts ---- */

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

/* What bounds the series is the same in all rows of one x, of which the first is taken. */
static struct plot_series bound_of(const struct bench *b, int p, double *x, double *y)
{
    const struct bench_panel *panel = &b->panels[p];
    const char *head = b->columns[panel->bound].head;
    int n = 0;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        double at = row->v[panel->x], bound = row->v[panel->bound];
        if (!is_drawn(b, p, row) || isnan(bound) || (n > 0 && at <= x[n - 1]))
            continue;
        x[n] = at;
        y[n++] = bound;
    }
    return (struct plot_series){head[0] == '>' ? head + 1 : head, x, y, n};
}

/* bars: room for the rows' names for each panel. */
static int draw(const struct bench *b, double *points, const char **bars, const char *tables)
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
        if (panel->bound > 0) {
            series[p][n++] = bound_of(b, p, points, points + b->n_rows);
            points += 2 * b->n_rows;
        }
        panels[p] = (struct plot_panel){panel->title,   panel->x_label,
                                        panel->y_label, panel->x < 0 ? bars : NULL,
                                        series[p],      n,
                                        panel->limit,   panel->log_x,
                                        panel->log_y,   panel->ticks,
                                        false,          panel->whole_x};
    }
    snprintf(device, sizeof device, "%s %s", b->info.name, b->info.model);
    return plot_write(&(struct plot){.title = b->chart,
                                     .explain = b->explain,
                                     .below = tables,
                                     .subtitle = b->subtitle[0] ? b->subtitle : device,
                                     .panels = panels,
                                     .n_panels = b->n_panels,
                                     .verdict = b->verdict,
                                     .learn = b->learn},
                      b->plot);
}

int bench_draw(const struct bench *b)
{
    size_t n = (size_t)b->n_rows;
    double *points = calloc(2 * n * BENCH_MAX_PANELS * BENCH_MAX_SERIES, sizeof *points);
    const char **bars = calloc(n * BENCH_MAX_PANELS + 1, sizeof *bars);
    char *tables = make_tables(b);
    int code = points && bars && tables ? draw(b, points, bars, tables) : cli_fail("out of memory");
    free(points);
    free(bars);
    free(tables);
    return code;
}
