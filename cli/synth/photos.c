/* Writes a generated folder of pictures: a class a sub-folder, PNG files of many sizes, and a CSV
 * file of points in them. */
#include "png.h"
#include "synth/synth.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define N_POINTS 4 /* the centre and three corners */
#define TAU      6.2831853f

/* A picture: a polygon of 3 + class % 6 corners on a background that changes from one colour to
 * another. */
struct photo {
    uint32_t h, w;
    int corners;
    float x, y, radius, turn;
    float back[2][3], fill[3];
    float point[N_POINTS][2];
};

static float unit(uint32_t r)
{
    return (float)(r >> 8) * 0x1p-24f;
}

static void plan_photo(const struct synth_options *o, uint64_t index, struct photo *p)
{
    uint32_t a[4], b[4], c[4], d[4];
    synth_draw(o->seed, SYNTH_PHOTOS, index, 0, a);
    synth_draw(o->seed, SYNTH_PHOTOS, index, 1, b);
    synth_draw(o->seed, SYNTH_PHOTOS, index, 2, c);
    synth_draw(o->seed, SYNTH_PHOTOS, index, 3, d);
    p->h = (uint32_t)((float)o->side * (0.75f + unit(a[0]) / 2));
    p->w = (uint32_t)((float)o->side * (0.75f + unit(a[1])));
    p->corners = 3 + (int)(index % o->classes % 6);
    float shorter = (float)(p->h < p->w ? p->h : p->w);
    p->radius = shorter * (0.15f + 0.2f * unit(a[2]));
    p->turn = TAU * unit(a[3]);
    p->x = p->radius + unit(b[0]) * ((float)p->w - 2 * p->radius);
    p->y = p->radius + unit(b[1]) * ((float)p->h - 2 * p->radius);
    for (int k = 0; k < 3; k++) {
        p->back[0][k] = 160 * unit(c[k]);
        p->back[1][k] = 160 * unit(d[k]);
        p->fill[k] = 120 + 135 * unit((k ? b[k + 1] : c[3]) ^ d[3]);
    }
    p->point[0][0] = p->x;
    p->point[0][1] = p->y;
    for (int i = 1; i < N_POINTS; i++) {
        float angle = p->turn + TAU * (float)(i - 1) / (float)p->corners;
        p->point[i][0] = p->x + p->radius * cosf(angle);
        p->point[i][1] = p->y + p->radius * sinf(angle);
    }
}

/* 0 outside, 1 inside, between at the edge. */
static float inside(const struct photo *p, float x, float y)
{
    float wedge = TAU / (float)p->corners, angle = atan2f(y - p->y, x - p->x) - p->turn;
    float off = angle - wedge * floorf(angle / wedge) - wedge / 2;
    /* As hypotf() computes it, whose symbol of glibc 2.35 would keep the program from older ones. */
    double dx = x - p->x, dy = y - p->y;
    float edge = p->radius * cosf(wedge / 2) - (float)sqrt(dx * dx + dy * dy) * cosf(off);
    return fminf(1, fmaxf(0, edge + 0.5f));
}

static void paint(const struct photo *p, unsigned char *rgb)
{
    for (uint32_t y = 0; y < p->h; y++)
        for (uint32_t x = 0; x < p->w; x++, rgb += 3) {
            float t = (float)(x + y) / (float)(p->w + p->h), in = inside(p, (float)x, (float)y);
            for (int k = 0; k < 3; k++) {
                float back = p->back[0][k] * (1 - t) + p->back[1][k] * t;
                rgb[k] = (unsigned char)(back * (1 - in) + p->fill[k] * in + 0.5f);
            }
        }
}

static int make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? CLI_OK
               : cli_fail("%s: cannot be made: %s", path, strerror(errno));
}

static int write_line(struct cli_output *csv, const char *name, const struct photo *p)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s", name);
    for (int i = 0; i < N_POINTS; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, ",%.2f,%.2f", (double)p->point[i][0],
                      (double)p->point[i][1]);
    line[n++] = '\n';
    return cli_output_write(csv, line, (size_t)n);
}

static int write_photo(const struct synth_options *o, const char *dir, uint64_t index,
                       unsigned char *rgb, struct cli_output *csv)
{
    char path[PATH_MAX], name[80];
    struct photo p;
    uint64_t class = index % o->classes;
    plan_photo(o, index, &p);
    paint(&p, rgb);
    snprintf(name, sizeof name, "class-%03llu", (unsigned long long)class);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int code = index < o->classes ? make_folder(path) : CLI_OK;
    snprintf(name, sizeof name, "class-%03llu/%06llu.png", (unsigned long long)class,
             (unsigned long long)index);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (code == CLI_OK)
        code = cli_png_write(path, o->force, rgb, p.h, p.w);
    return code == CLI_OK ? write_line(csv, name, &p) : code;
}

int synth_write_photos(const struct synth_options *o, const char *dir)
{
    static const char head[] =
        "image_name,part_0_x,part_0_y,part_1_x,part_1_y,part_2_x,part_2_y,part_3_x,part_3_y\n";
    char path[PATH_MAX];
    struct cli_output csv = {0};
    struct cli_progress progress;
    if (o->classes == 0 || o->classes > 1000)
        return cli_misuse("--classes %llu: photos need 1..1000", (unsigned long long)o->classes);
    snprintf(path, sizeof path, "%s/points.csv", dir);
    unsigned char *rgb = malloc(o->side * o->side * 3 * 9 / 4);
    if (!rgb)
        return cli_fail("out of memory");
    int code = make_folder(dir);
    if (code == CLI_OK)
        code = cli_output_open(&csv, path, CLI_DATA, o->force);
    if (code == CLI_OK)
        code = cli_output_write(&csv, head, sizeof head - 1);
    cli_progress_begin(&progress, "drawing pictures", o->n, "pictures");
    for (uint64_t i = 0; code == CLI_OK && i < o->n; i++) {
        code = write_photo(o, dir, i, rgb, &csv);
        cli_progress_update(&progress, i);
        if (code == CLI_OK && cli_interrupted())
            code = cli_fail("interrupted; %llu pictures were written", (unsigned long long)i + 1);
    }
    cli_progress_end(&progress);
    if (code == CLI_OK)
        code = cli_output_commit(&csv);
    cli_output_abort(&csv);
    free(rgb);
    return code;
}
