/*
 * Videos by the real NVDEC, beside libavcodec on the host. MILLRACE_GPU_VIDEOS: a folder of videos,
 * of any codecs and sizes; without it, or without libnvcuvid, skipped.
 */
#include "gpu.h"

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES    16
#define STRIDE    4
#define SPAN      ((FRAMES - 1) * STRIDE + 1)
#define MAX_FILES 64

/* Ways to scale, and the largest mean difference of a frame from the host's. Scaled by the chip, a
 * frame may be nearer to a neighbour that hardly differs; its number is not judged. */
static const struct way {
    const char *options;
    int clips;
    bool chip;
    double most;
} ways[] = {
    {"", 1, false, .4},
    {",size=112x112", 3, true, 7},
    {",size=112x112,exact", 3, false, .4},
    {",size=96x131,crop", 1, false, .4},
    {",size=224x224,crop", 1, false, .4},
};

/* The largest difference of a pixel where the chip does not scale: only the inverse transforms of
 * MPEG-1, -2 and -4 may round otherwise. Files of these say so in their names. */
static int most_of(const char *name)
{
    const char *end = strrchr(name, '.');
    return strstr(name, "mpeg") || (end && strcmp(end, ".avi") == 0) ? 8 : 0;
}

static const char *folder;

/* What became of a file in one way. */
struct outcome {
    double mean, worst;
    int n, wrong, largest;
    int rc;
    char error[300];
};

struct job {
    char path[1000];
    pthread_t thread;
    struct outcome outcome[COUNT(ways)];
};

static struct mr_dataset *open_set(const char *path, const char *options, bool gpu, bool all,
                                   int clips)
{
    struct mr_dataset *ds;
    char uri[1600];
    snprintf(uri, sizeof uri, "video:%s%s,labels=none,at=uniform,clips=%d,frames=%d,stride=%d%s",
             path, options, clips, all ? SPAN : FRAMES, all ? 1 : STRIDE,
             gpu ? ",decoder=gpu" : "");
    must(mr_dataset_open(uri, &ds));
    return ds;
}

static double difference(const unsigned char *a, const unsigned char *b, uint64_t n, int *largest)
{
    uint64_t sum = 0;
    int most = 0;
    for (uint64_t i = 0; i < n; i++) {
        int d = abs(a[i] - b[i]);
        sum += (uint64_t)d;
        most = d > most ? d : most;
    }
    *largest = most > *largest ? most : *largest;
    return (double)sum / (double)n;
}

/* A frame is the right one if none of its neighbours is nearer. */
static void compare_clip(const unsigned char *host, const unsigned char *gpu, uint64_t bytes,
                         struct outcome *o)
{
    for (int i = 0; i < FRAMES; i++) {
        int at = i * STRIDE, unused = 0;
        const unsigned char *is = gpu + (uint64_t)i * bytes;
        double mean = difference(host + (uint64_t)at * bytes, is, bytes, &o->largest);
        bool wrong = false;
        for (int near = at - 1; near <= at + 1; near += 2)
            if (near >= 0 && near < SPAN)
                wrong |= difference(host + (uint64_t)near * bytes, is, bytes, &unused) < mean - .01;
        o->mean = (o->mean * o->n + mean) / (o->n + 1);
        o->worst = mean > o->worst ? mean : o->worst;
        o->wrong += wrong;
        o->n++;
    }
}

static void compare_file(const char *path, const struct way *way, struct outcome *o)
{
    struct mr_dataset *host = open_set(path, way->options, false, true, way->clips),
                      *gpu = open_set(path, way->options, true, false, way->clips);
    uint64_t all;
    must(mr_spec_bytes(mr_dataset_field(host, 0), &all));
    uint64_t bytes = all / SPAN;
    unsigned char *frames = malloc(all), *clip = malloc(bytes * FRAMES);
    check(frames && clip);
    for (int c = 0; c < way->clips; c++) {
        o->rc = mr_dataset_read(gpu, (uint64_t)c, (void *[]){clip}, NULL);
        if (o->rc < 0) {
            snprintf(o->error, sizeof o->error, "%s", mr_last_error());
            break;
        }
        must(mr_dataset_read(host, (uint64_t)c, (void *[]){frames}, NULL));
        compare_clip(frames, clip, bytes, o);
    }
    free(frames);
    free(clip);
    mr_dataset_close(host);
    mr_dataset_close(gpu);
}

static void *run_file(void *user)
{
    struct job *job = user;
    for (size_t w = 0; w < COUNT(ways); w++)
        compare_file(job->path, &ways[w], &job->outcome[w]);
    return NULL;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct job *)a)->path, ((const struct job *)b)->path);
}

static int list_files(struct job *job)
{
    DIR *dir = opendir(folder);
    int n = 0;
    check(dir);
    for (struct dirent *e; (e = readdir(dir)) && n < MAX_FILES;)
        if (e->d_name[0] != '.')
            snprintf(job[n++].path, sizeof job->path, "%s/%s", folder, e->d_name);
    closedir(dir);
    qsort(job, (size_t)n, sizeof *job, by_path);
    return n;
}

/* All files at once, each on a thread of its own, in several sizes: decoders are lent, waited for
 * and made again. */
static void test_frames(struct mr_device *dev)
{
    static struct job job[MAX_FILES];
    int n = list_files(job), compared = 0, wrong = 0, failed = 0;
    bool close = true;
    (void)dev;
    for (int i = 0; i < n; i++)
        check(pthread_create(&job[i].thread, NULL, run_file, &job[i]) == 0);
    for (int i = 0; i < n; i++) {
        pthread_join(job[i].thread, NULL);
        for (size_t w = 0; w < COUNT(ways); w++) {
            const struct outcome *o = &job[i].outcome[w];
            const char *name = strrchr(job[i].path, '/') + 1;
            if (o->rc < 0) {
                printf("  %s: %s\n", name, o->error);
                failed += o->rc != MR_EUNSUPPORTED;
                break;
            }
            printf("  %-16s %-20s %2d frames: mean difference %6.3f, worst frame %6.3f, largest "
                   "%3d; nearer to a neighbour: %d\n",
                   name, ways[w].options[0] ? ways[w].options + 1 : "its own size", o->n, o->mean,
                   o->worst, o->largest, o->wrong);
            compared += o->n;
            wrong += ways[w].chip ? 0 : o->wrong;
            close &= o->worst <= ways[w].most && (ways[w].chip || o->largest <= most_of(name));
        }
    }
    fflush(stdout);
    check(compared > 0 && failed == 0 && wrong == 0 && close);
}

static struct mr_loader *open_loader(struct mr_device *dev, struct mr_dataset *ds, uint32_t workers)
{
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    mr_loader_opts_init(&opts);
    opts.batch_size = 4;
    opts.bad = MR_BAD_SKIP;
    opts.workers = workers;
    opts.seed = 3;
    must(mr_loader_open(ds, NULL, NULL, dev, &opts, &ld));
    return ld;
}

/* The bytes of `most` batches, or of all. */
static unsigned char *run_loader(struct mr_device *dev, struct mr_dataset *ds, uint32_t workers,
                                 int most, uint64_t *out_bytes)
{
    struct mr_loader *ld = open_loader(dev, ds, workers);
    struct mr_stream *stream = gpu_stream(dev, "consumer");
    struct mr_batch b = {.size = sizeof b};
    unsigned char *data = NULL;
    uint64_t bytes = 0;
    int rc = 1;
    for (int i = 0; i < most && (rc = mr_loader_next(ld, stream, &b)) > 0; i++) {
        data = realloc(data, bytes + b.field[0].bytes);
        check(data);
        must(mr_copy_async(stream, data + bytes, MR_PAGEABLE, b.field[0].data, MR_DEVICE,
                           b.field[0].bytes));
        must(mr_stream_synchronize(stream));
        bytes += b.field[0].bytes;
        must(mr_loader_release(ld, &b, stream));
    }
    must(rc);
    uint64_t start = mr_time_ns();
    mr_loader_close(ld);
    printf("  %u workers: %llu bytes, closed in %.0f ms\n", workers, (unsigned long long)bytes,
           (double)(mr_time_ns() - start) * 1e-6);
    mr_stream_destroy(stream);
    *out_bytes = bytes;
    return data;
}

/* More workers than decoders, files of several sizes and codecs in turn: the same bytes. */
static void test_loader(struct mr_device *dev)
{
    struct mr_dataset *ds;
    char uri[1200];
    uint64_t few_bytes, many_bytes, bytes;
    snprintf(uri, sizeof uri,
             "video:%s,labels=none,size=112x112,frames=4,stride=2,clips=6,decoder=gpu", folder);
    must(mr_dataset_open(uri, &ds));
    unsigned char *few = run_loader(dev, ds, 3, 1000, &few_bytes),
                  *many = run_loader(dev, ds, 24, 1000, &many_bytes);
    check(few_bytes > 0 && few_bytes == many_bytes && memcmp(few, many, few_bytes) == 0);
    free(few);
    free(many);
    free(run_loader(dev, ds, 24, 1, &bytes)); /* closed while threads wait for a decoder */
    mr_dataset_close(ds);
}

/* What cannot be says so. */
static void test_refusals(struct mr_device *dev)
{
    struct mr_loader_opts opts;
    struct mr_loader *ld;
    struct mr_dataset *ds;
    char uri[1200];
    snprintf(uri, sizeof uri, "video:%s,labels=none,size=112x112,decoder=gpu", folder);
    must(mr_dataset_open(uri, &ds));
    mr_loader_opts_init(&opts);
    opts.sandbox = 1;
    check(mr_loader_open(ds, NULL, NULL, dev, &opts, &ld) == MR_EOPTION);
    check(strstr(mr_last_error(), "decoder=cpu"));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct mr_dataset *own;
        _exit(mr_dataset_open(uri, &own) == MR_EDEVICE && strstr(mr_last_error(), "fork") ? 0 : 1);
    }
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    mr_dataset_close(ds);
    snprintf(uri, sizeof uri, "video:%s,labels=none,decoder=gpu,gpu=63", folder);
    check(mr_dataset_open(uri, &ds) == MR_ENODEVICE);
    printf("  %s\n", mr_last_error());
}

int main(void)
{
    static const struct gpu_test tests[] = {{"refusals", test_refusals},
                                            {"a loader's batches", test_loader},
                                            {"frames beside the host's", test_frames}};
    folder = getenv("MILLRACE_GPU_VIDEOS");
    if (!folder) {
        printf("SKIP: MILLRACE_GPU_VIDEOS is not set\n");
        return GPU_SKIP;
    }
    char uri[1200];
    struct mr_dataset *ds;
    snprintf(uri, sizeof uri, "video:%s,labels=none,size=16x16,decoder=gpu", folder);
    int rc = mr_dataset_open(uri, &ds);
    if (rc == MR_ENODEVICE || rc == MR_EUNSUPPORTED) {
        printf("SKIP: %s\n", mr_last_error());
        return GPU_SKIP;
    }
    must(rc);
    mr_dataset_close(ds);
    return gpu_main(tests, COUNT(tests));
}
