/* Charts as SVG. */
#include "plot.h"
#include "cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    PANEL_W = 560,
    PANEL_H = 380,
    LEFT = 74,
    RIGHT = 30,
    TOP = 44,
    BOTTOM = 58,
    HEAD = 64,
    LEGEND_LINE = 20
};
enum { MOST_MARKS = 24 }; /* points of a line that are marked one by one */
#define MAX_NAMES 24

/* Okabe and Ito's colours, which colour-blind readers tell apart; the second round of them is
 * dashed. */
static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#d55e00",
                                      "#cc79a7", "#56b4e9", "#444444"};

struct writer {
    struct cli_output file;
    int code;
    const char *names[MAX_NAMES];
    int n_names;
};

struct axes {
    const struct plot_panel *panel;
    double left, top, width, height, x0, x1, y0,
        y1; /* ranges: logarithms where the axis is logarithmic */
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (w->code == CLI_OK && n > 0)
        w->code =
            cli_output_write(&w->file, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

static void put_xml(struct writer *w, const char *text)
{
    if (w->code == CLI_OK)
        mr_text_write_xml(text, w->file.file);
}

/* style: more attributes. */
static void put_text(struct writer *w, double x, double y, const char *style, const char *text)
{
    put(w, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    put_xml(w, text);
    put(w, "</text>\n");
}

static int name_index(struct writer *w, const char *name)
{
    if (!name)
        return 0;
    for (int i = 0; i < w->n_names; i++)
        if (strcmp(w->names[i], name) == 0)
            return i;
    if (w->n_names == MAX_NAMES)
        return MAX_NAMES - 1;
    w->names[w->n_names] = name;
    return w->n_names++;
}

static const char *colour_of(int index)
{
    return colours[(size_t)index % CLI_COUNT(colours)];
}

static const char *dash_of(int index)
{
    static const char *const dashes[] = {"", " stroke-dasharray=\"6 3\"",
                                         " stroke-dasharray=\"2 3\"", ""};
    return dashes[(size_t)index / CLI_COUNT(colours) % CLI_COUNT(dashes)];
}

static double scaled(double v, bool log)
{
    return log ? log10(v) : v;
}

/* Percent: by what is missing to 100, so that 99 and 99.5 lie as far apart as 80 and 90. */
static double percent_y(double v)
{
    return -log10(fmax(100 - v, 0.01));
}

static double scaled_y(const struct plot_panel *p, double v)
{
    return p->percent ? percent_y(v) : scaled(v, p->log_y);
}

static double at_x(const struct axes *a, double x)
{
    return a->left + (scaled(x, a->panel->log_x) - a->x0) / (a->x1 - a->x0) * a->width;
}

static double at_y(const struct axes *a, double y)
{
    return a->top + a->height - (scaled_y(a->panel, y) - a->y0) / (a->y1 - a->y0) * a->height;
}

static bool shown(const struct plot_panel *p, const struct plot_series *s, int i)
{
    return s->y[i] > 0 || (s->y[i] == 0 && !p->log_y);
}

static const double percents[] = {0, 50, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99};

/* The ticks of a short logarithmic axis: 1, 2 and 5 times powers of ten. The nearest to v that is
 * not above it, or not below. */
static double tick_near(double v, bool below)
{
    static const double ticks[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(v) + 1e-9)), m = v / power;
    int i = 0;
    while (i < 3 && (below ? ticks[i + 1] <= m * (1 + 1e-9) : ticks[i] < m * (1 - 1e-9)))
        i++;
    return power * ticks[i];
}

static bool is_short(double low, double high)
{
    return log10(high / low) < 2.2;
}

static void range_y(struct axes *a, double low, double high)
{
    const struct plot_panel *p = a->panel;
    if (p->percent) {
        size_t i = 0, k = CLI_COUNT(percents) - 1;
        while (i + 2 < CLI_COUNT(percents) && percents[i + 1] <= low)
            i++;
        while (k > i + 1 && percents[k - 1] >= high)
            k--;
        a->y0 = percent_y(percents[i]);
        a->y1 = percent_y(percents[k]);
    } else if (p->log_y && is_short(low, high)) {
        a->y0 = log10(tick_near(low, true));
        a->y1 = fmax(log10(tick_near(high * 1.02, false)), a->y0 + 0.3);
    } else {
        a->y0 = p->log_y ? floor(log10(low)) : 0;
        a->y1 = p->log_y ? fmax(ceil(log10(high * 1.05)), a->y0 + 1) : high * 1.12;
    }
}

static void find_ranges(struct axes *a)
{
    const struct plot_panel *p = a->panel;
    double low = 1e300, high = p->limit.name ? p->limit.y : 0, x0 = 1e300, x1 = 0;
    for (int k = 0; k < p->n_series; k++) {
        const struct plot_series *s = &p->series[k];
        for (int i = 0; i < s->n; i++) {
            x0 = s->x ? fmin(x0, s->x[i]) : 0;
            x1 = s->x ? fmax(x1, s->x[i]) : s->n;
            if (!shown(p, s, i))
                continue;
            low = fmin(low, s->y[i]);
            high = fmax(high, s->y[i]);
        }
    }
    if (high <= 0)
        high = 1;
    if (low > high)
        low = high;
    if (x1 <= x0)
        x1 = x0 = x1 > 0 ? x1 : 1, x0 /= 2;
    if (p->whole_x && x0 < x1 / 4)
        x0 = 0;
    range_y(a, low, high);
    a->x0 = scaled(x0, p->log_x);
    a->x1 = scaled(x1, p->log_x);
}

/* 1, 2 or 5 times a power of ten, for about five steps. */
static double nice_step(double range)
{
    double raw = range / 5, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

/* "20k", "1.5M" from ten thousand on. out: CLI_HUMAN bytes. */
static void number(double v, int digits, char *out)
{
    int behind;
    const char *suffix = v < 1e4 ? "" : mr_text_scale(MR_TEXT_COUNT, digits, &v, &behind);
    snprintf(out, CLI_HUMAN, "%.*g%s", digits, v, suffix);
}

static void y_tick(struct writer *w, const struct axes *a, double v)
{
    char label[CLI_HUMAN];
    double y = at_y(a, v);
    number(v, 6, label);
    put(w, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e2e2e2\"/>\n", a->left,
        a->left + a->width, y, y);
    put_text(w, a->left - 6, y + 4, "text-anchor=\"end\"", label);
}

static void x_tick(struct writer *w, const struct axes *a, double v)
{
    char label[CLI_HUMAN];
    double x = at_x(a, v);
    snprintf(label, sizeof label, "%.6g", v);
    if (a->panel->x_ticks == PLOT_BYTES) {
        int behind;
        const char *unit = mr_text_scale(MR_TEXT_BYTES, 4, &v, &behind);
        snprintf(label, sizeof label, "%.4g %s", v, unit);
    }
    put(w, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e2e2e2\"/>\n", x, x,
        a->top, a->top + a->height);
    put_text(w, x, a->top + a->height + 17, "text-anchor=\"middle\"", label);
}

enum { LABEL_LINES = 3, LABEL_MOST = 12, LABEL_LEAST = 9 }; /* of fonts, in pixels */
#define LETTER 0.58 /* of a font's size: a letter's mean width */

/* A line of at most `most` bytes, if words allow that. Returns its bytes. */
static size_t line_of(const char *text, size_t most)
{
    size_t n = strlen(text);
    if (n <= most)
        return n;
    n = most;
    while (n > 0 && text[n] != ' ')
        n--;
    return n > 0 ? n : strcspn(text, " ");
}

static const char *next_line(const char *text, size_t n)
{
    return text + n + (text[n] == ' ');
}

static bool label_fits(const char *text, size_t most)
{
    for (int line = 0; line < LABEL_LINES && *text; line++) {
        size_t n = line_of(text, most);
        if (n > most)
            return false;
        text = next_line(text, n);
    }
    return *text == 0;
}

static size_t letters_in(double room, int size)
{
    return (size_t)fmax((room - 6) / (LETTER * size), 4);
}

/* The largest font in which the labels of all groups of bars stay apart; else the smallest. */
static int label_size(const struct plot_panel *p, double room)
{
    int size = LABEL_MOST;
    for (int i = 0; i < p->series[0].n; i++)
        while (size > LABEL_LEAST && !label_fits(p->categories[i], letters_in(room, size)))
            size--;
    return size;
}

/* Below a group of bars. What does not fit the smallest font is cut. */
static void put_category(struct writer *w, double x, double y, double room, int size,
                         const char *text)
{
    char style[64];
    size_t most = letters_in(room, size);
    snprintf(style, sizeof style, "text-anchor=\"middle\" font-size=\"%d\"", size);
    for (int line = 0; *text && line < LABEL_LINES; line++) {
        char part[96];
        size_t n = line_of(text, most), shown_bytes = n < most ? n : most;
        bool cut = n > most || (line == LABEL_LINES - 1 && text[n]);
        while (n > most && ((unsigned char)text[shown_bytes] & 0xc0) == 0x80) /* within a letter */
            shown_bytes--;
        snprintf(part, sizeof part, "%.*s%s", (int)shown_bytes, text, cut ? "..." : "");
        put_text(w, x, y + 13 * line, style, part);
        text = next_line(text, n);
    }
}

static void draw_x_ticks(struct writer *w, const struct axes *a)
{
    const struct plot_panel *p = a->panel;
    double slot = p->n_series ? a->width / p->series[0].n : 0;
    if (p->categories) {
        int size = label_size(p, slot);
        for (int i = 0; i < p->series[0].n; i++)
            put_category(w, a->left + slot * (i + 0.5), a->top + a->height + 17, slot, size,
                         p->categories[i]);
    } else if (p->log_x) {
        double base = p->x_ticks == PLOT_DECIMAL ? 10 : 2, x1 = pow(10, a->x1) * 1.001;
        double all = floor((a->x1 - a->x0) / log10(base)), each = pow(base, fmax(1, ceil(all / 7)));
        double v = pow(base, ceil(a->x0 / log10(base) - 1e-9));
        while (v <= x1) {
            x_tick(w, a, v);
            v *= each;
        }
    } else {
        double step = nice_step(a->x1 - a->x0);
        step = p->whole_x ? fmax(step, 1) : step;
        int first = (int)ceil(a->x0 / step), last = (int)floor(a->x1 * 1.0001 / step);
        for (int i = first; i <= last; i++)
            x_tick(w, a, i * step);
    }
}

static void draw_axes(struct writer *w, const struct axes *a)
{
    const struct plot_panel *p = a->panel;
    char turned[96];
    double middle = a->top + a->height / 2, step = nice_step(a->y1);
    if (p->percent) {
        for (size_t i = 0; i < CLI_COUNT(percents); i++)
            if (percent_y(percents[i]) > a->y0 - 1e-9 && percent_y(percents[i]) < a->y1 + 1e-9)
                y_tick(w, a, percents[i]);
    } else if (p->log_y) {
        double base[] = {1, 2, 5};
        bool all = a->y1 - a->y0 < 2.5;
        for (int e = (int)floor(a->y0); e <= (int)ceil(a->y1); e++)
            for (size_t i = 0; i < (all ? CLI_COUNT(base) : 1); i++)
                if (e + log10(base[i]) > a->y0 - 1e-9 && e + log10(base[i]) < a->y1 + 1e-9)
                    y_tick(w, a, base[i] * pow(10, e));
    } else {
        for (int i = 0; i <= (int)(a->y1 / step + 1e-9); i++)
            y_tick(w, a, i * step);
    }
    draw_x_ticks(w, a);
    put(w,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
        "stroke=\"#888\"/>\n",
        a->left, a->top, a->width, a->height);
    put_text(w, a->left, a->top - 10, "font-weight=\"bold\" font-size=\"14\"", p->title);
    put_text(w, a->left + a->width / 2, a->top + a->height + 38, "text-anchor=\"middle\"",
             p->x_label);
    snprintf(turned, sizeof turned, "text-anchor=\"middle\" transform=\"rotate(-90 %.1f %.1f)\"",
             a->left - 56, middle);
    put_text(w, a->left - 56, middle, turned, p->y_label);
}

static void draw_limit(struct writer *w, const struct axes *a)
{
    const struct plot_limit *limit = &a->panel->limit;
    if (!limit->name || limit->y <= 0)
        return;
    double y = at_y(a, limit->y);
    put(w,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#c00\" "
        "stroke-dasharray=\"8 4\"/>\n",
        a->left, a->left + a->width, y, y);
    char label[96], value[CLI_HUMAN];
    number(limit->y, 4, value);
    snprintf(label, sizeof label, "- - %s: %s %s", limit->name, value, a->panel->y_label);
    put_text(w, a->left + a->width, a->top - 10, "text-anchor=\"end\" fill=\"#c00\"", label);
}

static void draw_line(struct writer *w, const struct axes *a, const struct plot_series *s)
{
    int index = name_index(w, s->name);
    put(w, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\"%s points=\"", colour_of(index),
        dash_of(index));
    for (int i = 0; i < s->n; i++)
        if (shown(a->panel, s, i))
            put(w, "%.1f,%.1f ", at_x(a, s->x[i]), at_y(a, s->y[i]));
    put(w, "\"><title>");
    put_xml(w, s->name ? s->name : a->panel->title);
    put(w, "</title></polyline>\n");
    for (int i = 0; i < s->n && s->n <= MOST_MARKS; i++)
        if (shown(a->panel, s, i))
            put(w, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", at_x(a, s->x[i]),
                at_y(a, s->y[i]), colour_of(index));
}

/* The k-th of the bars of each category. */
static void draw_bars(struct writer *w, const struct axes *a, const struct plot_series *s, int k)
{
    int index = name_index(w, s->name);
    double slot = a->width / s->n, bar = slot * 0.8 / a->panel->n_series;
    for (int i = 0; i < s->n; i++) {
        if (!shown(a->panel, s, i))
            continue;
        double x = a->left + slot * i + slot * 0.1 + bar * k, y = at_y(a, s->y[i]);
        put(w, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
            bar * 0.94, a->top + a->height - y, colour_of(index));
    }
}

/* Their values, above them, readable also where the limit's line is. */
static void draw_values(struct writer *w, const struct axes *a, const struct plot_series *s, int k)
{
    char label[CLI_HUMAN], style[128];
    double slot = a->width / s->n, bar = slot * 0.8 / a->panel->n_series;
    for (int i = 0; i < s->n; i++) {
        if (!shown(a->panel, s, i))
            continue;
        if (s->y[i] < 1000)
            snprintf(label, sizeof label, "%.3g", s->y[i]);
        else
            cli_count(s->y[i], label);
        snprintf(style, sizeof style,
                 "text-anchor=\"middle\" font-size=\"%.3g\" paint-order=\"stroke\" "
                 "stroke=\"#fff\" stroke-width=\"3\"",
                 fmin(fmax(bar / (LETTER * (double)strlen(label)), 8), 11));
        put_text(w, a->left + slot * i + slot * 0.1 + bar * (k + 0.5), at_y(a, s->y[i]) - 4, style,
                 label);
    }
}

static void draw_panel(struct writer *w, const struct plot_panel *p, double left, double top)
{
    struct axes a = {.panel = p,
                     .left = left + LEFT,
                     .top = top + TOP,
                     .width = PANEL_W - LEFT - RIGHT,
                     .height = PANEL_H - TOP - BOTTOM};
    find_ranges(&a);
    draw_axes(w, &a);
    for (int k = 0; k < p->n_series; k++) {
        if (p->categories)
            draw_bars(w, &a, &p->series[k], k);
        else
            draw_line(w, &a, &p->series[k]);
    }
    draw_limit(w, &a);
    for (int k = 0; p->categories && k < p->n_series; k++)
        draw_values(w, &a, &p->series[k], k);
}

/* Of an entry, by the longest name. */
static int legend_width(const struct writer *w)
{
    size_t most = 0;
    for (int i = 0; i < w->n_names; i++)
        most = strlen(w->names[i]) > most ? strlen(w->names[i]) : most;
    return 56 + 7 * (int)(most < 70 ? most : 70);
}

static void draw_legend(struct writer *w, int per_line, double top)
{
    for (int i = 0; i < w->n_names; i++) {
        int line = i / per_line;
        double x = LEFT + i % per_line * (double)legend_width(w), y = top + line * LEGEND_LINE;
        put(w,
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke-width=\"4\" "
            "stroke=\"%s\"%s/>\n",
            x, x + 26, y - 4, y - 4, colour_of(i), dash_of(i));
        put_text(w, x + 32, y, "", w->names[i]);
    }
}

static void begin_svg(struct writer *w, int width, int height)
{
    put(w,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n",
        width, height, width, height);
}

static void name_all(struct writer *w, const struct plot *plot)
{
    for (int i = 0; i < plot->n_panels; i++)
        for (int k = 0; k < plot->panels[i].n_series; k++)
            if (plot->panels[i].series[k].n > 0)
                name_index(w, plot->panels[i].series[k].name);
}

/* A page has a picture for each panel, which flow and shrink with the window. */
static void draw_flowing(struct writer *w, const struct plot *plot)
{
    name_all(w, plot);
    put(w, "<p class=\"legend\">\n");
    for (int i = 0; i < w->n_names; i++) {
        put(w, "<span><i style=\"border-top:4px %s %s\"></i> ",
            (size_t)i < CLI_COUNT(colours) ? "solid" : "dashed", colour_of(i));
        put_xml(w, w->names[i]);
        put(w, "</span>\n");
    }
    put(w, "</p>\n<div class=\"panels\">\n");
    for (int i = 0; i < plot->n_panels; i++) {
        begin_svg(w, PANEL_W, PANEL_H);
        draw_panel(w, &plot->panels[i], 0, 0);
        put(w, "</svg>\n");
    }
    put(w, "</div>\n");
}

static void draw(struct writer *w, const struct plot *plot)
{
    int columns = plot->n_panels > 1 ? 2 : 1, rows = (plot->n_panels + columns - 1) / columns,
        width = columns * PANEL_W;
    name_all(w, plot);
    int fit = (width - LEFT) / legend_width(w), per_line = fit > 1 ? fit : 1,
        top = HEAD + (w->n_names + per_line - 1) / per_line * LEGEND_LINE,
        height = top + rows * PANEL_H + 16;
    begin_svg(w, width, height);
    put(w, "<!-- " CLI_CHART_MARK " -->\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width,
        height);
    put_text(w, LEFT, 28, "font-size=\"18\" font-weight=\"bold\"", plot->title);
    put_text(w, LEFT, 48, "fill=\"#555\"", plot->subtitle);
    for (int i = 0; i < plot->n_panels; i++) {
        int row = i / columns;
        draw_panel(w, &plot->panels[i], i % columns * PANEL_W, top + row * PANEL_H);
    }
    draw_legend(w, per_line, HEAD + 12);
    put(w, "</svg>\n");
}

int plot_check_name(const char *path)
{
    if (path && !cli_ends_in(path, ".svg") && !cli_ends_in(path, ".html"))
        return cli_misuse("--plot %s: expected a name that ends in .svg or .html", path);
    return CLI_OK;
}

int plot_check(const char *path)
{
    int code = plot_check_name(path);
    return code == CLI_OK ? cli_output_check(path, CLI_CHART, CLI_NO_FORCE) : code;
}

int plot_write(const struct plot *plot, const char *path)
{
    struct writer w = {.code = plot_check_name(path)};
    bool html = cli_ends_in(path, ".html");
    if (w.code != CLI_OK)
        return w.code;
    w.code = cli_output_open(&w.file, path, CLI_CHART, plot->force ? 1 : CLI_NO_FORCE);
    if (w.code != CLI_OK)
        return w.code;
    if (html) {
        plot_page_head(plot, w.file.file);
        draw_flowing(&w, plot);
    } else {
        draw(&w, plot);
    }
    if (html && plot->below && w.code == CLI_OK)
        w.code = cli_output_write(&w.file, plot->below, strlen(plot->below));
    if (html && w.code == CLI_OK)
        plot_page_below(plot, w.file.file);
    if (html)
        put(&w, "</body></html>\n");
    if (w.code == CLI_OK)
        w.code = cli_output_commit(&w.file);
    else
        cli_output_abort(&w.file);
    return w.code;
}
