/* Small charts of paths on J = 100 x^2 + y^2, as HTML. */
#include "bench/surface.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 300, HEIGHT = 250, CONTOURS = 6, DOTS = 40 }; /* dots: the start is one of them */

/* The part of the plane that a chart shows. Points far beyond it are moved nearer, so that
 * numbers stay short; the lines to them still leave the chart on the right side. */
#define MAX_X 1.6
#define MIN_Y (-5.0)
#define MAX_Y 11.0

static double at_x(double x)
{
    return (fmax(-9, fmin(9, x)) + MAX_X) / (2 * MAX_X) * WIDTH;
}

static double at_y(double y)
{
    return (MAX_Y - fmax(-50, fmin(50, y))) / (MAX_Y - MIN_Y) * HEIGHT;
}

/* Each ellipse is at a quarter of the height of the one around it. */
static void contours(FILE *out)
{
    double j = 100 * SURFACE_START_X * SURFACE_START_X + SURFACE_START_Y * SURFACE_START_Y;
    for (int i = 0; i < CONTOURS; i++) {
        fprintf(out,
                "<ellipse cx=\"%.1f\" cy=\"%.1f\" rx=\"%.1f\" ry=\"%.1f\" fill=\"none\" "
                "stroke=\"#bbb\"/>\n",
                at_x(0), at_y(0), at_x(sqrt(j / 100)) - at_x(0), at_y(0) - at_y(sqrt(j)));
        j /= 4;
    }
}

static void points(FILE *out, const struct surface_path *p)
{
    int n = p->diverged && p->n > DOTS ? DOTS : p->n;
    fputs("<polyline fill=\"none\" stroke=\"#0072b2\" points=\"", out);
    for (int i = 0; i < n && isfinite(p->x[i]) && isfinite(p->y[i]); i++)
        fprintf(out, "%.1f,%.1f ", at_x(p->x[i]), at_y(p->y[i]));
    fputs("\"/>\n", out);
    for (int i = 0; i < n && i < DOTS && isfinite(p->x[i]) && isfinite(p->y[i]); i++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"#d55e00\"/>\n", at_x(p->x[i]),
                at_y(p->y[i]), i ? "1.8" : "4");
}

static void chart(FILE *out, const struct surface_path *p)
{
    char outcome[SURFACE_TEXT];
    fputs("<figure><figcaption><b>", out);
    mr_text_write_xml(p->optimizer, out);
    fprintf(out, "</b><br/>%s</figcaption>\n", surface_outcome(p, outcome));
    fprintf(out, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", WIDTH, HEIGHT, WIDTH,
            HEIGHT);
    fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"#fafafa\"/>\n", WIDTH, HEIGHT);
    contours(out);
    points(out, p);
    fputs("</svg></figure>\n", out);
}

char *surface_draw(const struct surface_path *paths, int n)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out,
            "<p class=\"note\">The first %d steps of each path (%d if it "
            "diverges), from the large dot at (%g, %g). x is "
            "across, from -%g to %g; y is upward, from %g to %g. Lines are contours of J = 100 "
            "x\302\262 + y\302\262, each at a quarter of the height of the next. Small dots are "
            "the first %d steps.</p>\n<section>\n",
            (int)SURFACE_DRAWN, DOTS - 1, SURFACE_START_X, SURFACE_START_Y, MAX_X, MAX_X, MIN_Y,
            MAX_Y, DOTS - 1);
    for (int i = 0; i < n; i++)
        chart(out, &paths[i]);
    fputs("</section>\n", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
