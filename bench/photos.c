/*
 * What libjpeg-turbo alone needs for photos held in memory: nothing is read, scheduled, normalized
 * or copied.
 *
 *   full    decodes of whole pictures with the settings that ours have, as `tjbench` measures them
 *   crops   the scaled and cropped decodes that random_resized_crop(224) asks for, and our resize
 *           to 224 x 224 u8
 *   decoder the same crops by mr_image_decode() and our resize: what our wrapper of the
 *           library costs
 *
 * Prints one line of JSON a case and number of threads: pictures a second of CPU time (of one
 * thread: per core) and of the clock.
 * usage: photos_limit SECONDS THREADS < LIST       LIST: a path a line; SECONDS: of each case
 */
#include "base/base.h"
#include "codec/image_codec.h"
#include "transform/resample.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
/* clang-format off */
#include <jpeglib.h>
/* clang-format on */

#define MOST      100000
#define TARGET    224
#define ROWS      16
#define STRING(x) #x
#define TEXT(x)   STRING(x)

static struct photo {
    unsigned char *data;
    size_t bytes;
} photo[MOST];
static uint32_t n_photos;
static struct mr_transform *chain;

/* One thread's. */
struct bench {
    pthread_t thread;
    const struct limit *limit;
    uint64_t seconds_ns, epoch, cpu_ns, wall_ns, pictures;
    struct jpeg_decompress_struct z; /* made once: the limit sets up no picture anew */
    struct jpeg_error_mgr errors;
    struct mr_decoder *decoder;
    unsigned char *room, *work, *out;
    size_t room_bytes;
};

struct limit {
    const char *name;
    int (*run)(struct bench *b, uint32_t i);
};

static void die(const char *what)
{
    fprintf(stderr, "photos_limit: %s\n", what);
    exit(1);
}

static void photo_add(const char *path)
{
    FILE *f = fopen(path, "rb");
    long bytes = 0;
    if (!f || n_photos == MOST || fseek(f, 0, SEEK_END) != 0 || (bytes = ftell(f)) <= 0)
        die(path);
    rewind(f);
    struct photo *p = &photo[n_photos++];
    p->bytes = (size_t)bytes;
    p->data = malloc(p->bytes);
    if (!p->data || fread(p->data, 1, p->bytes, f) != p->bytes)
        die(path);
    fclose(f);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int room_need(struct bench *b, size_t bytes)
{
    if (bytes <= b->room_bytes)
        return 0;
    free(b->room);
    b->room = malloc(bytes + MR_ROW_PAD);
    b->room_bytes = b->room ? bytes : 0;
    return b->room ? 0 : -1;
}

static void read_rows(struct jpeg_decompress_struct *z, unsigned char *to, size_t stride,
                      JDIMENSION end)
{
    while (z->output_scanline < end) {
        JSAMPROW rows[ROWS];
        JDIMENSION n = MR_MIN(ROWS, end - z->output_scanline);
        for (JDIMENSION k = 0; k < n; k++)
            rows[k] = to + k * stride;
        to += jpeg_read_scanlines(z, rows, n) * stride;
    }
}

static void open_photo(struct bench *b, uint32_t i)
{
    jpeg_mem_src(&b->z, photo[i].data, photo[i].bytes);
    jpeg_read_header(&b->z, TRUE);
    b->z.out_color_space = b->z.num_components == 4 ? JCS_CMYK : JCS_RGB;
    b->z.scale_denom = 8;
    b->z.scale_num = 8;
}

static int run_full(struct bench *b, uint32_t i)
{
    open_photo(b, i);
    jpeg_start_decompress(&b->z);
    size_t stride = (size_t)b->z.output_width * (unsigned)b->z.output_components;
    if (room_need(b, stride * b->z.output_height) < 0)
        return -1;
    read_rows(&b->z, b->room, stride, b->z.output_height);
    jpeg_finish_decompress(&b->z);
    return 0;
}

/* The window that photo i has in this epoch, as a loader over the same files would draw it. */
static int choose(void *at, uint32_t width, uint32_t height, struct mr_window *out)
{
    return mr_transform_window(chain, 0, at, width, height, out);
}

static int resize(struct bench *b, const struct mr_picture *p, const struct mr_window *w)
{
    struct mr_cut cut;
    struct mr_source src = {.data = p->data,
                            .stride = p->stride,
                            .images = 1,
                            .x = p->x,
                            .y = p->y,
                            .width = p->width,
                            .height = p->height,
                            .scale_x = p->scale_x,
                            .scale_y = p->scale_y,
                            .dtype = MR_U8,
                            .channels = p->channels};
    mr_cut_all(p->full_width, p->full_height, &cut);
    cut.clip_x = w->clip_x;
    cut.clip_y = w->clip_y;
    cut.clip_w = w->clip_w;
    cut.clip_h = w->clip_h;
    cut.w = w->clip_w;
    cut.h = w->clip_h;
    cut.size_w = cut.size_h = cut.out_w = cut.out_h = TARGET;
    cut.filter = w->filter;
    mr_resample(&cut, &src, b->out, b->work);
    return 0;
}

/* As src/codec/jpeg.c chooses: the library is to be asked for the same. */
static unsigned eighths_of(const struct mr_window *w)
{
    for (unsigned s = 1; s <= 4; s++)
        if (w->w * s >= 8. * w->out_w && w->h * s >= 8. * w->out_h)
            return s;
    return 8;
}

static int run_crops(struct bench *b, uint32_t i)
{
    struct mr_at at = {.epoch = b->epoch, .index = i};
    struct mr_window w;
    struct jpeg_decompress_struct *z = &b->z;
    open_photo(b, i);
    if (choose(&at, z->image_width, z->image_height, &w) < 0)
        return -1;
    unsigned eighths = eighths_of(&w);
    struct mr_region r = mr_image_region(&w, eighths, z->image_width, z->image_height);
    z->scale_num = eighths;
    jpeg_start_decompress(z);
    JDIMENSION begin = r.x0 > 2 ? r.x0 - 2 : 0, width = MR_MIN(r.x1 + 2, z->output_width) - begin;
    jpeg_crop_scanline(z, &begin, &width);
    JDIMENSION y = r.y0 ? jpeg_skip_scanlines(z, r.y0) : 0;
    size_t pixel = (unsigned)z->output_components, stride = z->output_width * pixel;
    if (room_need(b, stride * (r.y1 - y)) < 0)
        return -1;
    read_rows(z, b->room, stride, r.y1);
    struct mr_picture p = {.data = b->room + (r.x0 - begin) * pixel,
                           .stride = stride,
                           .width = r.x1 - r.x0,
                           .height = r.y1 - r.y0,
                           .channels = (uint32_t)pixel,
                           .x = r.x0,
                           .y = r.y0,
                           .scale_x = eighths / 8.,
                           .scale_y = eighths / 8.,
                           .full_width = z->image_width,
                           .full_height = z->image_height};
    jpeg_abort_decompress(z);
    return resize(b, &p, &w);
}

static int run_decoder(struct bench *b, uint32_t i)
{
    static const struct mr_image_opts opts = {.channels = 3};
    struct mr_at at = {.epoch = b->epoch, .index = i};
    struct mr_window w;
    struct mr_picture p;
    int rc =
        mr_image_decode(b->decoder, &opts, "photo", photo[i].data, photo[i].bytes, choose, &at, &p);
    if (rc == 0)
        rc = choose(&at, p.full_width, p.full_height, &w);
    return rc < 0 ? rc : resize(b, &p, &w);
}

static void *bench_main(void *user)
{
    struct bench *b = user;
    uint64_t wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (; b->wall_ns < b->seconds_ns; b->epoch++)
        for (uint32_t i = 0; i < n_photos && b->wall_ns < b->seconds_ns; i++) {
            if (b->limit->run(b, i) < 0)
                die(mr_last_error());
            b->pictures++;
            b->wall_ns = clock_ns(CLOCK_MONOTONIC) - wall;
        }
    b->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return NULL;
}

static void bench_open(struct bench *b, const struct limit *limit, uint64_t seconds_ns, uint32_t id)
{
    *b = (struct bench){.limit = limit, .seconds_ns = seconds_ns, .epoch = id};
    b->z.err = jpeg_std_error(&b->errors);
    jpeg_create_decompress(&b->z);
    b->work = aligned_alloc(MR_CACHE_LINE,
                            mr_round_up(mr_transform_scratch_bytes(chain) + 1, MR_CACHE_LINE));
    b->out = malloc(TARGET * TARGET * 4);
    if (!b->work || !b->out || mr_decoder_create(&b->decoder) < 0)
        die("no memory");
}

static void bench_close(struct bench *b)
{
    jpeg_destroy_decompress(&b->z);
    mr_decoder_destroy(b->decoder);
    free(b->room);
    free(b->work);
    free(b->out);
}

static void measure(const struct limit *limit, uint64_t seconds_ns, uint32_t n_threads)
{
    struct bench *b = calloc(n_threads, sizeof *b);
    double cpu_rate = 0, wall_rate = 0;
    if (!b)
        die("no memory");
    for (uint32_t t = 0; t < n_threads; t++) {
        bench_open(&b[t], limit, seconds_ns, t);
        if (pthread_create(&b[t].thread, NULL, bench_main, &b[t]))
            die("no thread");
    }
    for (uint32_t t = 0; t < n_threads; t++) {
        pthread_join(b[t].thread, NULL);
        cpu_rate += (double)b[t].pictures * 1e9 / (double)b[t].cpu_ns / n_threads;
        wall_rate += (double)b[t].pictures * 1e9 / (double)b[t].wall_ns;
        bench_close(&b[t]);
    }
    printf("{\"case\": \"%s\", \"threads\": %u, \"per_core\": %.1f, \"per_s\": %.1f}\n",
           limit->name, n_threads, cpu_rate, wall_rate);
    free(b);
}

int main(int argc, char **argv)
{
    static const struct limit limits[] = {
        {"full", run_full}, {"crops", run_crops}, {"decoder", run_decoder}};
    struct mr_spec spec = {
        .name = "image", .dtype = MR_U8, .rank = 3, .dim = {16384, 16384, 3}, .var_dims = 3};
    char path[4096];
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    uint32_t n_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    while (fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = 0;
        photo_add(path);
    }
    if (n_photos == 0 || n_threads == 0)
        die("want SECONDS THREADS and paths of photos on standard input");
    if (mr_transform_create(&chain) < 0 ||
        mr_transform_add(chain, "random_resized_crop(" TEXT(TARGET) ")") < 0 ||
        mr_transform_bind(chain, &spec, 1) < 0)
        die(mr_last_error());
    for (size_t k = 0; k < MR_COUNT(limits); k++)
        measure(&limits[k], (uint64_t)(seconds * 1e9), n_threads);
    mr_transform_destroy(chain);
    for (uint32_t i = 0; i < n_photos; i++)
        free(photo[i].data);
    return 0;
}
