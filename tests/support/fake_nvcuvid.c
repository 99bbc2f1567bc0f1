/* Misuse ends the process: decoders that two threads use, contexts that are not current, frames
 * that stay mapped. Built twice: as libcuda.so.1 and as libnvcuvid.so.1. */
#include "fake_nvcuvid.h"

#include "codec/video/nvcuvid.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API                  __attribute__((visibility("default")))
#define DELAY                3               /* frames that wait for earlier ones */
#define HELD                 (2 * DELAY + 2) /* so many decodes later a surface is free again */
#define SURFACES             16
#define W                    64
#define H                    48

/* So the definitions cannot differ from what the module calls. */
#define X(symbol, arguments) API int symbol arguments;
NV_CUDA(X)
NV_CUVID(X)
#undef X

extern API struct fake_nvcuvid fake_nvcuvid;
struct fake_nvcuvid fake_nvcuvid;

struct cuvid_picture {
    int at;
    long long number;
};

struct parser {
    struct cuvid_parser how;
    atomic_flag busy;
    bool begun;
    int n, next, at[DELAY + 1]; /* frames held */
    long long number[DELAY + 1];
};

struct decoder {
    struct cuvid_create how;
    atomic_flag busy;
    long long number[SURFACES];
    unsigned char *mapped;
};

static bool fails(void)
{
    return atomic_fetch_add(&fake_nvcuvid.calls, 1) + 1 == atomic_load(&fake_nvcuvid.fail_at);
}

#ifdef FAKE_NVCUVID
static void misuse(const char *what)
{
    fprintf(stderr, "fake_nvcuvid: misuse: %s\n", what);
    abort();
}

static void enter(atomic_flag *busy)
{
    if (atomic_flag_test_and_set(busy))
        misuse("used by two threads");
}

int cuvidGetDecoderCaps(struct cuvid_caps *caps)
{
    caps->supported = caps->codec == CUVID_MPEG4;
    caps->min_width = caps->min_height = 16;
    caps->max_width = caps->max_height = 4096;
    return fails() ? 1 : 0;
}

int cuvidCreateDecoder(void **out, struct cuvid_create *how)
{
    if (fails())
        return 2;
    if (how->n_surfaces > SURFACES || how->target_width % 2 || how->target_height % 2)
        misuse("cuvidCreateDecoder");
    struct decoder *d = calloc(1, sizeof *d);
    d->how = *how;
    *out = d;
    fake_nvcuvid.made++;
    uint64_t alive = atomic_fetch_add(&fake_nvcuvid.decoders, 1) + 1,
             most = atomic_load(&fake_nvcuvid.most);
    while (most < alive && !atomic_compare_exchange_weak(&fake_nvcuvid.most, &most, alive))
        ;
    return 0;
}

int cuvidDestroyDecoder(void *decoder)
{
    struct decoder *d = decoder;
    enter(&d->busy);
    if (d->mapped)
        misuse("a frame is mapped");
    fake_nvcuvid.decoders--;
    free(d);
    return 0;
}

int cuvidDecodePicture(void *decoder, struct cuvid_picture *picture)
{
    struct decoder *d = decoder;
    if (fails())
        return 1;
    enter(&d->busy);
    d->number[picture->at] = picture->number;
    atomic_flag_clear(&d->busy);
    return 0;
}

/* The frame as make_video.h draws it. */
int cuvidMapVideoFrame64(void *decoder, int picture, unsigned long long *out, unsigned *pitch,
                         struct cuvid_map *how)
{
    struct decoder *d = decoder;
    if (!how->stream)
        misuse("no stream");
    if (fails())
        return 999;
    enter(&d->busy);
    if (d->mapped)
        misuse("mapped twice");
    size_t w = d->how.target_width, h = d->how.target_height;
    *pitch = (unsigned)w + 64;
    d->mapped = malloc(*pitch * h * 3 / 2);
    memset(d->mapped, 128, *pitch * h * 3 / 2);
    for (size_t y = 0; y < h; y++)
        for (size_t x = 0; x < w; x++) {
            int q = (y >= h / 2) * 2 + (x >= w / 2);
            d->mapped[y * *pitch + x] =
                (unsigned char)(40 + (d->number[picture] >> 2 * q & 3) * 55);
        }
    fake_nvcuvid.mapped++;
    *out = (unsigned long long)(uintptr_t)d->mapped;
    atomic_flag_clear(&d->busy);
    return 0;
}

int cuvidUnmapVideoFrame64(void *decoder, unsigned long long frame)
{
    struct decoder *d = decoder;
    if ((uintptr_t)d->mapped != (uintptr_t)frame)
        misuse("not mapped");
    free(d->mapped);
    d->mapped = NULL;
    return fails() ? 1 : 0;
}

int cuvidCreateVideoParser(void **out, struct cuvid_parser *how)
{
    if (fails())
        return 2;
    struct parser *p = calloc(1, sizeof *p);
    p->how = *how;
    *out = p;
    return 0;
}

int cuvidDestroyVideoParser(void *parser)
{
    struct parser *p = parser;
    enter(&p->busy);
    free(p);
    return 0;
}

static int show_first(struct parser *p)
{
    int first = 0;
    for (int i = 1; i < p->n; i++)
        if (p->number[i] < p->number[first])
            first = i;
    struct cuvid_shown shown = {
        .picture = p->at[first], .progressive = 1, .timestamp = p->number[first]};
    p->n--;
    p->at[first] = p->at[p->n];
    p->number[first] = p->number[p->n];
    return p->how.on_display(p->how.user, &shown);
}

static int begin(struct parser *p)
{
    struct cuvid_format format = {.codec = p->how.codec,
                                  .progressive = 1,
                                  .min_surfaces = HELD,
                                  .coded_width = W,
                                  .coded_height = H,
                                  .display = {0, 0, W, H},
                                  .chroma = CUVID_CHROMA_420};
    p->begun = true;
    return p->how.on_sequence(p->how.user, &format);
}

static int parse(struct parser *p, struct cuvid_packet *packet)
{
    while (packet->flags & CUVID_END_OF_STREAM && p->n > 0)
        if (!show_first(p))
            return 999;
    if (packet->flags & CUVID_END_OF_STREAM)
        p->begun = false;
    if (!(packet->flags & CUVID_END_OF_PICTURE))
        return 0;
    if (!p->begun && !begin(p))
        return 999;
    struct cuvid_picture picture = {p->next++ % HELD, packet->timestamp};
    if (!p->how.on_decode(p->how.user, &picture))
        return 999;
    p->at[p->n] = picture.at;
    p->number[p->n++] = picture.number;
    return p->n <= DELAY || show_first(p) ? 0 : 999;
}

int cuvidParseVideoData(void *parser, struct cuvid_packet *packet)
{
    struct parser *p = parser;
    if (fails())
        return 1;
    enter(&p->busy);
    int result = parse(p, packet);
    atomic_flag_clear(&p->busy);
    return result;
}
#else
static _Thread_local int current;

int cuInit(unsigned flags)
{
    return fails() ? 1 : (int)flags;
}

int cuDeviceGetCount(int *out)
{
    *out = 1;
    return fails() ? 1 : 0;
}

int cuDeviceGet(int *out, int number)
{
    *out = number;
    return fails() ? 1 : 0;
}

int cuDevicePrimaryCtxRetain(struct CUctx_st **out, int device)
{
    static int context;
    *out = (struct CUctx_st *)(void *)&context;
    return fails() ? 2 : device;
}

int cuCtxPushCurrent_v2(struct CUctx_st *context)
{
    if (fails())
        return 1;
    current += context != NULL;
    return 0;
}

int cuCtxPopCurrent_v2(struct CUctx_st **out)
{
    *out = NULL;
    if (--current < 0)
        abort();
    return fails() ? 1 : 0;
}

int cuStreamCreate(struct CUstream_st **out, unsigned flags)
{
    static int stream;
    *out = (struct CUstream_st *)(void *)&stream;
    return flags == 1 && current > 0 && !fails() ? 0 : 201;
}

int cuStreamSynchronize(struct CUstream_st *stream)
{
    return stream && current > 0 && !fails() ? 0 : 201;
}

int cuMemcpy2DAsync_v2(const struct cuda_copy_2d *copy, struct CUstream_st *stream)
{
    if (!stream || current < 1 || copy->from_kind != 2 || copy->to_kind != 1 || fails())
        return 1;
    for (size_t y = 0; y < copy->rows; y++)
        memcpy((char *)copy->to_host + y * copy->to_pitch,
               (const char *)(uintptr_t)copy->from_device + y * copy->from_pitch, copy->row_bytes);
    return 0;
}

int cuGetErrorName(int result, const char **out)
{
    *out = "CUDA_ERROR_PLAYED";
    return result == 0;
}
#endif
