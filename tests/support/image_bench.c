/*
 * Decode rates a second of CPU time: JPEGs of a list of paths on stdin, held in memory. whole: ours beside a plain libjpeg-turbo loop
 * with the same settings, rounds taken in turn; window: random resized crops to 224 x 224 (scale 0.08..1, ratio 3/4..4/3).
 * usage: image_bench ROUNDS
 */
#include "base/base.h"
#include "codec/image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
/* clang-format off */
#include <jpeglib.h>
/* clang-format on */

#define MOST   10000
#define TARGET 224

static struct {
    unsigned char *data;
    size_t bytes;
} file[MOST];
static int n_files;
static uint32_t draw_at;

static void file_add(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || n_files == MOST || fseek(f, 0, SEEK_END) != 0)
        exit(1);
    file[n_files].bytes = (size_t)ftell(f);
    rewind(f);
    file[n_files].data = malloc(file[n_files].bytes);
    if (!file[n_files].data || fread(file[n_files].data, 1, file[n_files].bytes, f) != file[n_files].bytes)
        exit(1);
    fclose(f);
    n_files++;
}

/* CPU time of this thread: others on the machine disturb it less than the clock on the wall. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double unit(void)
{
    uint32_t out[4];
    mr_draw4(1, MR_DRAW_VALUES, draw_at++, 0, 0, out);
    return mr_unit_f64(out[0], out[1]);
}

static int crop_any(void *user, uint32_t width, uint32_t height, struct mr_window *w)
{
    (void)user;
    *w = (struct mr_window){.w = width, .h = height, .out_w = TARGET, .out_h = TARGET};
    for (int i = 0; i < 10; i++) {
        double area = width * (double)height * (0.08 + 0.92 * unit()), ratio = exp((2 * unit() - 1) * log(4 / 3.));
        double a = round(sqrt(area * ratio)), b = round(sqrt(area / ratio));
        if (a > width || b > height)
            continue;
        w->w = a;
        w->h = b;
        w->x = floor(unit() * (width - a + 1));
        w->y = floor(unit() * (height - b + 1));
        break;
    }
    w->clip_x = (uint32_t)w->x;
    w->clip_y = (uint32_t)w->y;
    w->clip_w = (uint32_t)w->w;
    w->clip_h = (uint32_t)w->h;
    return 0;
}

static uint64_t ours(struct mr_decoder *d, mr_window_choice *choose)
{
    static const struct mr_image_opts opts = {.channels = 3};
    uint64_t start = cpu_ns();
    struct mr_picture p;
    for (int i = 0; i < n_files; i++)
        if (mr_image_decode(d, &opts, "file", file[i].data, file[i].bytes, choose, NULL, &p) != 0)
            fprintf(stderr, "%s\n", mr_last_error());
    return cpu_ns() - start;
}

static uint64_t plain(unsigned char **room, size_t *room_bytes)
{
    struct jpeg_decompress_struct z;
    struct jpeg_error_mgr errors;
    uint64_t start = cpu_ns();
    z.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&z);
    for (int i = 0; i < n_files; i++) {
        jpeg_mem_src(&z, file[i].data, file[i].bytes);
        jpeg_read_header(&z, TRUE);
        z.out_color_space = z.num_components == 4 ? JCS_CMYK : JCS_RGB;
        jpeg_start_decompress(&z);
        size_t row = (size_t)z.output_width * (unsigned)z.output_components, bytes = row * z.output_height;
        if (bytes > *room_bytes) {
            free(*room);
            *room = malloc(bytes);
            *room_bytes = *room ? bytes : 0;
        }
        while (*room && z.output_scanline < z.output_height) {
            JSAMPROW rows[16];
            for (unsigned k = 0; k < 16; k++)
                rows[k] = *room + MR_MIN(z.output_scanline + k, z.output_height - 1) * row;
            jpeg_read_scanlines(&z, rows, MR_MIN(16, z.output_height - z.output_scanline));
        }
        jpeg_finish_decompress(&z);
    }
    jpeg_destroy_decompress(&z);
    return cpu_ns() - start;
}

int main(int argc, char **argv)
{
    char path[4096];
    struct mr_decoder *d;
    unsigned char *room = NULL;
    size_t room_bytes = 0;
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    uint64_t best[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    while (fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = 0;
        file_add(path);
    }
    if (mr_decoder_create(&d) != 0)
        return 1;
    for (int i = 0; i < rounds; i++) {
        draw_at = 0;
        uint64_t t[3] = {ours(d, NULL), plain(&room, &room_bytes), ours(d, crop_any)};
        for (int k = 0; k < 3; k++)
            best[k] = MR_MIN(best[k], t[k]);
    }
    printf(
        "%d pictures, best of %d rounds: whole %.1f/s, plain libjpeg loop %.1f/s (ratio %.3f); crops to %d: %.1f/s\n",
        n_files, rounds, n_files * 1e9 / best[0], n_files * 1e9 / best[1], (double)best[1] / best[0], TARGET,
        n_files * 1e9 / best[2]);
    mr_decoder_destroy(d);
    free(room);
    for (int i = 0; i < n_files; i++)
        free(file[i].data);
    return 0;
}
