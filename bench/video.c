/*
 * Clips a second from `video:` on one worker, beside libav alone on the same frames: opening each
 * file, seeking to the key frame before a clip unless decoding on gets there as soon, decoding.
 * "with RGB" also scales what a clip takes, as the module does. All in turn in one run; medians of
 * the rounds.
 * usage: video_limit ROUNDS FRAMES STRIDE CLIPS SIDE FOLDER
 */
#include "codec/video.h"
#include "dataset/dataset.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
#include <millrace/millrace.h>
#include <stdio.h>
#include <string.h>

#define MAX_FILES  1000
#define MAX_ROUNDS 51

struct bench {
    struct mr_dataset *ds;
    uint64_t frames, stride, clips, side, n_files;
    struct mr_video_index *index[MAX_FILES];
    uint8_t *rgb;
};

static void stop(const char *what)
{
    fprintf(stderr, "video_limit: %s: %s\n", what, mr_last_error());
    exit(1);
}

/* ---- libav alone ---- */

struct plain {
    AVFormatContext *format;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    struct SwsContext *scaler;
    int stream;
    int64_t at; /* of the frame that came last: its time, or where times tell nothing its number */
};

static void plain_open(struct plain *p, const char *path)
{
    const AVCodec *codec = NULL;
    *p = (struct plain){.at = INT64_MIN};
    if (avformat_open_input(&p->format, path, NULL, NULL) < 0 ||
        avformat_find_stream_info(p->format, NULL) < 0)
        stop(path);
    p->stream = av_find_best_stream(p->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    for (unsigned i = 0; i < p->format->nb_streams; i++)
        p->format->streams[i]->discard = (int)i == p->stream ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    p->codec = avcodec_alloc_context3(codec);
    avcodec_parameters_to_context(p->codec, p->format->streams[p->stream]->codecpar);
    p->codec->thread_count = 1;
    p->codec->pkt_timebase = p->format->streams[p->stream]->time_base;
    if (avcodec_open2(p->codec, codec, NULL) < 0)
        stop(path);
    p->packet = av_packet_alloc();
    p->frame = av_frame_alloc();
}

static void plain_close(struct plain *p)
{
    sws_freeContext(p->scaler);
    av_frame_free(&p->frame);
    av_packet_free(&p->packet);
    avcodec_free_context(&p->codec);
    avformat_close_input(&p->format);
}

static int plain_next(struct plain *p)
{
    int rc;
    while ((rc = avcodec_receive_frame(p->codec, p->frame)) == AVERROR(EAGAIN)) {
        do {
            av_packet_unref(p->packet);
            rc = av_read_frame(p->format, p->packet);
        } while (rc >= 0 && p->packet->stream_index != p->stream);
        avcodec_send_packet(p->codec, rc < 0 ? NULL : p->packet);
    }
    return rc;
}

static void plain_scale(struct plain *p, uint8_t *to, int side)
{
    const int stride[1] = {side * 3};
    const AVFrame *f = p->frame;
    p->scaler = sws_getCachedContext(
        p->scaler, f->width, f->height, (enum AVPixelFormat)f->format, side, side, AV_PIX_FMT_RGB24,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT, NULL, NULL, NULL);
    sws_scale(p->scaler, (const uint8_t *const *)f->data, f->linesize, 0, f->height, &to, stride);
}

/* Frame i's time, or its number. */
static int64_t time_of(const struct mr_video_index *index, uint64_t i)
{
    return index->exact ? index->frame[i].pts : (int64_t)i;
}

/* The frames from `first` on that a clip takes. */
static void plain_clip(const struct bench *b, struct plain *p, const struct mr_video_index *index,
                       uint64_t first, bool rgb)
{
    uint64_t key = index->exact ? first : 0;
    while (key > 0 && !index->frame[key].key)
        key--;
    if (p->at == INT64_MIN ? key > 0
                           : p->at >= time_of(index, first) || time_of(index, key) > p->at) {
        avcodec_flush_buffers(p->codec);
        av_seek_frame(p->format, p->stream, index->exact ? index->frame[key].pts : 0,
                      AVSEEK_FLAG_BACKWARD);
        p->at = INT64_MIN;
    }
    for (uint64_t i = 0; i < b->frames; i++) {
        uint64_t number = MR_MIN(first + i * b->stride, index->n - 1);
        while (p->at < time_of(index, number)) {
            if (plain_next(p) < 0) {
                p->at = INT64_MAX;
                return;
            }
            p->at = index->exact         ? p->frame->best_effort_timestamp
                    : p->at == INT64_MIN ? 0
                                         : p->at + 1;
        }
        if (rgb)
            plain_scale(p, b->rgb + i * b->side * b->side * 3, (int)b->side);
    }
}

static double run_plain(const struct bench *b, bool rgb)
{
    uint64_t start = mr_time_ns(), span = (b->frames - 1) * b->stride + 1;
    for (uint64_t f = 0; f < b->n_files; f++) {
        struct plain p;
        plain_open(&p, mr_files_name(b->ds->files, (int)f));
        uint64_t n = b->index[f]->n, places = n > span ? n - span + 1 : 1;
        for (uint64_t c = 0; c < b->clips; c++)
            plain_clip(b, &p, b->index[f],
                       b->clips > 1 ? (places - 1) * c / (b->clips - 1) : (places - 1) / 2, rgb);
        plain_close(&p);
    }
    return (double)mr_dataset_length(b->ds) / ((double)(mr_time_ns() - start) / 1e9);
}

/* ---- millrace ---- */

static double run_millrace(const struct bench *b)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch batch = {.size = sizeof batch};
    struct mr_sampler *order;
    mr_loader_opts_init(&opts);
    opts.workers = 1;
    opts.batch_size = 4;
    uint64_t start = mr_time_ns();
    if (mr_sampler_open("sequential", mr_dataset_length(b->ds), 0, &order) < 0 ||
        mr_loader_open(b->ds, order, NULL, NULL, &opts, &loader) < 0)
        stop("loader");
    int rc;
    while ((rc = mr_loader_next(loader, NULL, &batch)) > 0)
        mr_loader_release(loader, &batch, NULL);
    if (rc < 0)
        stop("loader");
    mr_loader_close(loader);
    mr_sampler_destroy(order);
    return (double)mr_dataset_length(b->ds) / ((double)(mr_time_ns() - start) / 1e9);
}

/* ---- both ---- */

static int read_path(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    FILE *f = user;
    return fseek(f, (long)offset, SEEK_SET) == 0 && fread(buf, 1, bytes, f) == bytes
               ? 0
               : mr_error_set(-5, "read");
}

static struct mr_video_index *index_of(const struct mr_video_module *module, const char *path)
{
    FILE *f = fopen(path, "rb");
    struct mr_video *video;
    struct mr_video_index *index;
    if (!f)
        stop(path);
    fseek(f, 0, SEEK_END);
    struct mr_video_source source = {path, (uint64_t)ftell(f), read_path, f};
    if (module->open(&source, 100000000, MR_VIDEO_NO_GPU, &video) < 0 ||
        module->make_index(video, &index) < 0)
        stop(path);
    module->close(video);
    fclose(f);
    return index;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: video_limit ROUNDS FRAMES STRIDE CLIPS SIDE FOLDER\n");
        return 2;
    }
    double rate[4][MAX_ROUNDS];
    int rounds = MR_MIN(atoi(argv[1]), MAX_ROUNDS);
    struct bench b = {.frames = strtoull(argv[2], NULL, 10),
                      .stride = strtoull(argv[3], NULL, 10),
                      .clips = strtoull(argv[4], NULL, 10),
                      .side = strtoull(argv[5], NULL, 10)};
    struct mr_video_opts opts;
    const struct mr_video_module *module;
    mr_video_opts_init(&opts);
    opts.path = argv[6];
    opts.frames = b.frames;
    opts.stride = b.stride;
    opts.clips = b.clips;
    opts.at = MR_VIDEO_UNIFORM;
    opts.labels = MR_FOLDER_PLAIN;
    opts.shape = (struct mr_shape){2, {b.side, b.side}};
    if (mr_dataset_open_video(&opts, &b.ds) < 0 || mr_video_module(&module) < 0)
        stop(argv[6]);
    av_log_set_level(AV_LOG_QUIET);
    b.n_files = MR_MIN(mr_dataset_length(b.ds) / b.clips, MAX_FILES);
    b.rgb = malloc(b.frames * b.side * b.side * 3 + 64);
    for (uint64_t f = 0; f < b.n_files; f++)
        b.index[f] = index_of(module, mr_files_name(b.ds->files, (int)f));
    run_millrace(&b); /* finds the frames */
    for (int r = 0; r < rounds; r++) {
        rate[0][r] = run_plain(&b, false);
        rate[1][r] = run_plain(&b, true);
        rate[2][r] = run_millrace(&b);
        rate[3][r] = rate[2][r] / rate[1][r];
    }
    double decode = median(rate[0], rounds), rgb = median(rate[1], rounds),
           ours = median(rate[2], rounds);
    printf("%llu clips of %llu frames to %llu x %llu, one thread, clips/s:\n",
           (unsigned long long)mr_dataset_length(b.ds), (unsigned long long)b.frames,
           (unsigned long long)b.side, (unsigned long long)b.side);
    printf("  libav decode alone          %8.1f\n", decode);
    printf("  libav decode and RGB        %8.1f\n", rgb);
    printf(
        "  millrace video:, one worker %8.1f   %.0f%% of decode alone, %.0f%% of decode and RGB\n",
        ours, 100 * ours / decode, 100 * median(rate[3], rounds));
    return 0;
}
