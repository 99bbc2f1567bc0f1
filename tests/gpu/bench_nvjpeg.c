/*
 * What the device's JPEG decoder does alone: the JPEGs of a list of paths, held in memory, to RGB
 * in device memory. nvJPEG called directly, the pictures as they come and the largest first, beside
 * our own path, by batch size and threads; what a call takes, how much of it on the processor, and
 * how long its end is waited for. All is open and warm before the time counts.
 *
 * usage: bench_nvjpeg SECONDS < PATHS
 */
#include "codec/image.h"
#include "device/cuda/cuda.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST      4096
#define BATCH     256
#define THREADS   4
#define OUT_BYTES (512ull << 20) /* a thread's; more pictures than fit begin again */
#define WARM      2              /* calls */

enum way { AS_THEY_COME, BY_SIZE, OURS };

static struct {
#define X(symbol, arguments) int(*symbol) arguments;
    NVJPEG_REQUIRED(X)
#undef X
} nv;

static struct mr_jpeg file[MOST];
static uint32_t n_files;
static struct mr_device *dev;
static atomic_bool stop;
static pthread_barrier_t open_now;

struct lane {
    enum way way;
    uint32_t batch, id;
    pthread_t thread;
    int rc;
    uint64_t n_calls, refused, call_ns, cpu_ns, wait_ns;
    struct mr_jpeg_unit *unit;
    struct nvjpegHandle *handle;
    struct nvjpegJpegState *state;
    struct mr_stream *stream;
    unsigned char *out;
    struct mr_jpeg picture[BATCH];
};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, mr_last_error());
    return 1;
}

static bool file_add(const char *path)
{
    struct mr_image_info info;
    FILE *f = fopen(path, "rb");
    size_t cap = 4 << 20;
    unsigned char *data = f ? malloc(cap) : NULL;
    size_t bytes = data ? fread(data, 1, cap, f) : 0;
    if (f)
        fclose(f);
    if (bytes == 0 || bytes == cap || n_files == MOST ||
        mr_image_probe(path, data, bytes, &info) < 0 || !info.plain) {
        free(data);
        return false;
    }
    bool swap = info.orientation >= 5;
    file[n_files++] = (struct mr_jpeg){.bytes = data,
                                       .n_bytes = bytes,
                                       .width = swap ? info.height : info.width,
                                       .height = swap ? info.width : info.height};
    return true;
}

static bool find_library(void)
{
    const char *path = getenv("MILLRACE_NVJPEG");
    void *library = dlopen(path ? path : "libnvjpeg.so.13", RTLD_NOW | RTLD_LOCAL);
#define X(symbol, arguments)                                                                       \
    *(void **)(void *)&nv.symbol = library ? dlsym(library, #symbol) : NULL;                       \
    if (!nv.symbol)                                                                                \
        return false;
    NVJPEG_REQUIRED(X)
#undef X
    return true;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_lane(struct lane *l)
{
    int rc = mr_stream_create(dev, "jpeg", &l->stream);
    if (rc == 0)
        rc = mr_memory_acquire(dev, MR_DEVICE, OUT_BYTES, (void **)&l->out);
    if (rc < 0 || l->way == OURS)
        return rc < 0 ? rc : mr_jpeg_open(dev, &l->unit);
    rc = mr_cuda_enter(dev->state);
    if (rc < 0)
        return rc;
    int status = nv.nvjpegCreateEx(NVJPEG_BACKEND_HARDWARE, NULL, NULL, 0, &l->handle);
    if (status == 0)
        status = nv.nvjpegJpegStateCreate(l->handle, &l->state);
    if (status == 0)
        status = nv.nvjpegDecodeBatchedInitialize(l->handle, l->state, (int)l->batch, 1,
                                                  NVJPEG_OUTPUT_RGBI);
    return status ? mr_error_set(MR_EDEVICE, "the chip's decoder: nvjpegStatus_t %d", status) : 0;
}

static void close_lane(struct lane *l)
{
    if (l->stream)
        mr_stream_synchronize(l->stream);
    if (l->state)
        nv.nvjpegJpegStateDestroy(l->state);
    if (l->handle)
        nv.nvjpegDestroy(l->handle);
    mr_jpeg_close(l->unit);
    if (l->out)
        mr_memory_release(dev, MR_DEVICE, l->out, NULL);
    if (l->stream)
        mr_stream_destroy(l->stream);
}

static int larger_first(const void *a, const void *b)
{
    const struct mr_jpeg *x = a, *y = b;
    return (x->n_bytes < y->n_bytes) - (x->n_bytes > y->n_bytes);
}

static void choose(struct lane *l, uint32_t *next)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < l->batch; i++) {
        struct mr_jpeg *p = &l->picture[i];
        *p = file[(*next)++ % n_files];
        uint64_t bytes = mr_round_up((uint64_t)p->width * p->height * 3, 256);
        at = at + bytes > OUT_BYTES ? 0 : at;
        p->to = l->out + at;
        at += bytes;
    }
    if (l->way == BY_SIZE)
        qsort(l->picture, l->batch, sizeof *l->picture, larger_first);
}

static int decode_directly(struct lane *l)
{
    const unsigned char *data[BATCH];
    size_t bytes[BATCH];
    struct nvjpeg_image to[BATCH];
    const struct cuda_stream *s = l->stream->state;
    for (uint32_t i = 0; i < l->batch; i++) {
        data[i] = l->picture[i].bytes;
        bytes[i] = l->picture[i].n_bytes;
        to[i] = (struct nvjpeg_image){{l->picture[i].to}, {(size_t)l->picture[i].width * 3}};
    }
    int status = nv.nvjpegDecodeBatched(l->handle, l->state, data, bytes, to, s->handle);
    return status ? mr_error_set(MR_EDEVICE, "nvjpegDecodeBatched: nvjpegStatus_t %d", status) : 0;
}

static int one_call(struct lane *l, uint32_t *next)
{
    choose(l, next);
    uint64_t start = mr_time_ns(), cpu = cpu_ns();
    int rc = l->way == OURS ? mr_jpeg_decode(l->unit, l->stream, l->picture, l->batch)
                            : decode_directly(l);
    uint64_t end = mr_time_ns();
    l->call_ns += end - start;
    l->cpu_ns += cpu_ns() - cpu;
    rc = rc < 0 ? rc : mr_stream_synchronize(l->stream);
    l->wait_ns += mr_time_ns() - end;
    for (uint32_t i = 0; i < l->batch; i++)
        l->refused += l->picture[i].refused;
    l->n_calls++;
    return rc;
}

static void *lane_main(void *lane)
{
    struct lane *l = lane;
    uint32_t next = l->id * 37;
    l->rc = open_lane(l);
    for (int i = 0; i < WARM && l->rc == 0; i++)
        l->rc = one_call(l, &next);
    l->n_calls = l->refused = l->call_ns = l->cpu_ns = l->wait_ns = 0;
    pthread_barrier_wait(&open_now);
    while (l->rc == 0 && !atomic_load(&stop))
        l->rc = one_call(l, &next);
    pthread_barrier_wait(&open_now);
    if (l->rc < 0)
        fail("decoding");
    close_lane(l);
    return NULL;
}

static int measure(enum way way, uint32_t batch, uint32_t threads, double seconds)
{
    static const char *const names[] = {"nvJPEG alone, as they come", "nvJPEG alone, by size",
                                        "ours"};
    static struct lane lane[THREADS];
    struct lane sum = {.n_calls = 0};
    int rc = 0;
    memset(lane, 0, sizeof lane);
    atomic_store(&stop, false);
    pthread_barrier_init(&open_now, NULL, threads + 1);
    for (uint32_t i = 0; i < threads; i++) {
        lane[i].way = way;
        lane[i].batch = batch;
        lane[i].id = i;
        if (pthread_create(&lane[i].thread, NULL, lane_main, &lane[i]) != 0)
            exit(1);
    }
    pthread_barrier_wait(&open_now);
    uint64_t start = mr_time_ns();
    nanosleep(
        &(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)},
        NULL);
    atomic_store(&stop, true);
    pthread_barrier_wait(&open_now);
    double s = (double)(mr_time_ns() - start) / 1e9;
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(lane[i].thread, NULL);
        rc = lane[i].rc < 0 ? lane[i].rc : rc;
        sum.n_calls += lane[i].n_calls;
        sum.refused += lane[i].refused;
        sum.call_ns += lane[i].call_ns;
        sum.cpu_ns += lane[i].cpu_ns;
        sum.wait_ns += lane[i].wait_ns;
    }
    pthread_barrier_destroy(&open_now);
    double calls = (double)MR_MAX(sum.n_calls, 1) * 1e6;
    printf("%-28s batch %3u, %u thread%s %6.0f pictures/s; a call %5.1f ms, %5.1f of it on the "
           "processor, its end %4.1f ms later; refused %llu\n",
           names[way], batch, threads, threads == 1 ? ": " : "s:", (double)sum.n_calls * batch / s,
           (double)sum.call_ns / calls, (double)sum.cpu_ns / calls, (double)sum.wait_ns / calls,
           (unsigned long long)sum.refused);
    return rc;
}

/* How long opening takes, and the question whether it takes a picture; leaves out the others. */
static int ask_headers(void)
{
    struct mr_jpeg_unit *unit = NULL;
    uint64_t start = mr_time_ns();
    uint32_t n = 0, n_asked = n_files;
    int rc = mr_jpeg_open(dev, &unit);
    if (rc < 0)
        return rc;
    printf("opening: %.0f ms\n", (double)(mr_time_ns() - start) / 1e6);
    start = mr_time_ns();
    for (uint32_t i = 0; i < n_asked; i++)
        if (mr_jpeg_takes(unit, &file[i]))
            file[n++] = file[i];
    printf("asking whether it takes a picture: %.1f us; %u of %u taken\n",
           (double)(mr_time_ns() - start) / 1e3 / n_asked, n, n_asked);
    n_files = n;
    mr_jpeg_close(unit);
    return n > 0 ? 0 : mr_error_set(MR_EUNSUPPORTED, "the decoder takes none of these pictures");
}

static int measure_all(double seconds)
{
    static const struct {
        uint32_t batch, threads;
    } cases[] = {{256, 1}, {128, 1}, {64, 1}, {32, 1}, {16, 1}, {256, 2}, {256, 4}, {64, 4}};
    int rc = ask_headers();
    for (size_t i = 0; i < MR_COUNT(cases) && rc == 0; i++)
        for (int way = AS_THEY_COME; way <= OURS && rc == 0; way++)
            rc = measure(way, cases[i].batch, cases[i].threads, seconds);
    return rc;
}

int main(int n_args, char **args)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        file_add(line);
    }
    if (n_files == 0) {
        fprintf(stderr,
                "usage: bench_nvjpeg SECONDS < PATHS: no JPEG that can be decoded among them\n");
        return 2;
    }
    int rc = find_library() ? mr_device_open("cuda", &dev)
                            : mr_error_set(MR_ENODEVICE, "no libnvjpeg.so.13: see MILLRACE_NVJPEG");
    if (rc < 0)
        return fail("cuda") == 1 && rc == MR_ENODEVICE ? 77 : 1;
    rc = measure_all(n_args > 1 ? atof(args[1]) : 1);
    if (rc < 0)
        fail("cuda");
    mr_device_close(dev);
    return rc < 0;
}
