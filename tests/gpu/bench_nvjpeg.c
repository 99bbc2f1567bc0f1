/*
 * What the device's decoder does alone: the JPEGs of a list of paths, held in memory, in batches of
 * 256 to RGB in device memory. usage: bench_nvjpeg SECONDS < PATHS
 */
#include "codec/image.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#define BATCH   256
#define MOST    4096
#define THREADS 8

static struct {
    unsigned char *data;
    size_t bytes;
    struct mr_image_info info;
} file[MOST];
static uint32_t n_files;
static _Atomic uint64_t decoded, refused, stop_ns;

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, mr_last_error());
    return 1;
}

static bool file_add(const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t cap = 4 << 20;
    unsigned char *data = f ? malloc(cap) : NULL;
    size_t bytes = data ? fread(data, 1, cap, f) : 0;
    if (f)
        fclose(f);
    if (bytes == 0 || bytes == cap || n_files == MOST ||
        mr_image_probe(path, data, bytes, &file[n_files].info) < 0 || !file[n_files].info.plain) {
        free(data);
        return false;
    }
    file[n_files].data = data;
    file[n_files++].bytes = bytes;
    return true;
}

struct lane {
    struct mr_device *dev;
    pthread_t thread;
    int rc;
};

static int work(struct lane *l)
{
    struct mr_jpeg_unit *unit = NULL;
    struct mr_stream *stream = NULL;
    static _Atomic uint32_t next;
    struct mr_jpeg picture[BATCH];
    unsigned char *out = NULL;
    uint64_t room = 0;
    for (uint32_t i = 0; i < n_files; i++)
        room = MR_MAX(room, (uint64_t)file[i].info.width * file[i].info.height * 3 + 256);
    int rc = mr_jpeg_open(l->dev, &unit);
    if (rc == 0)
        rc = mr_stream_create(l->dev, "jpeg", &stream);
    if (rc == 0)
        rc = mr_memory_acquire(l->dev, MR_DEVICE, room * BATCH, (void **)&out);
    while (rc == 0 && mr_time_ns() < stop_ns) {
        uint64_t bad = 0;
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t k = atomic_fetch_add(&next, 1) % n_files;
            const struct mr_image_info *info = &file[k].info;
            bool swap = info->orientation >= 5;
            picture[i] = (struct mr_jpeg){.bytes = file[k].data,
                                          .n_bytes = file[k].bytes,
                                          .width = swap ? info->height : info->width,
                                          .height = swap ? info->width : info->height,
                                          .to = out + i * room};
        }
        rc = mr_jpeg_decode(unit, stream, picture, BATCH);
        if (rc == 0)
            rc = mr_stream_synchronize(stream);
        for (uint32_t i = 0; i < BATCH; i++)
            bad += picture[i].refused;
        atomic_fetch_add(&decoded, BATCH - bad);
        atomic_fetch_add(&refused, bad);
    }
    if (out)
        mr_memory_release(l->dev, MR_DEVICE, out, NULL);
    mr_jpeg_close(unit);
    if (stream)
        mr_stream_destroy(stream);
    return rc;
}

static void *lane_main(void *lane)
{
    struct lane *l = lane;
    l->rc = work(l);
    if (l->rc < 0)
        fail("decoding");
    return NULL;
}

/* A warm round, then a timed one. */
static int measure(struct mr_device *dev, int threads, double seconds)
{
    for (int round = 0; round < 2; round++) {
        struct lane lane[THREADS] = {{.dev = dev}};
        atomic_store(&decoded, 0);
        uint64_t start = mr_time_ns();
        atomic_store(&stop_ns, start + (uint64_t)((round ? seconds : 0.5) * 1e9));
        int started = 0;
        for (int i = 0; i < threads; i++) {
            lane[i].dev = dev;
            if (pthread_create(&lane[i].thread, NULL, lane_main, &lane[i]) != 0)
                break;
            started++;
        }
        for (int i = 0; i < started; i++)
            pthread_join(lane[i].thread, NULL);
        double s = (double)(mr_time_ns() - start) / 1e9;
        for (int i = 0; i < started; i++)
            if (lane[i].rc < 0)
                return 1;
        if (round)
            printf("nvJPEG alone, batches of %d, %d thread%s: %.0f pictures/s (%llu refused)\n",
                   BATCH, threads, threads == 1 ? "" : "s", (double)decoded / s,
                   (unsigned long long)refused);
    }
    return 0;
}

int main(int n_args, char **args)
{
    char line[4096];
    struct mr_device *dev = NULL;
    double seconds = n_args > 1 ? atof(args[1]) : 3;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        file_add(line);
    }
    if (n_files == 0) {
        fprintf(stderr,
                "usage: bench_nvjpeg SECONDS < PATHS: no JPEG that can be decoded among them\n");
        return 2;
    }
    int rc = mr_device_open("cuda", &dev);
    if (rc < 0)
        return fail("cuda") == 1 && rc == MR_ENODEVICE ? 77 : 1;
    int failed = measure(dev, 1, seconds) || measure(dev, 2, seconds) || measure(dev, 4, seconds);
    mr_device_close(dev);
    for (uint32_t i = 0; i < n_files; i++)
        free(file[i].data);
    return failed;
}
