#include "files.h"
#include "npy_write.h"
#include "record_write.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

char files_dir[256];

void die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

uint64_t most_runs(uint64_t usual)
{
    const char *text = getenv("MILLRACE_FAULT_RUNS");
    uint64_t runs = text ? strtoull(text, NULL, 10) : usual;
    if (runs == 0)
        die("MILLRACE_FAULT_RUNS=%s: expected a number of at least 1", text);
    return runs;
}

static double part_began;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool part_passed(const char *part)
{
    const char *path = getenv("MILLRACE_FAULT_DONE");
    FILE *file = path ? fopen(path, "r") : NULL; /* not there: none passed */
    char line[256];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\t\n")] = 0;
        found = strcmp(line, part) == 0;
    }
    if (file)
        fclose(file);
    part_began = seconds();
    return found;
}

void part_pass(const char *part)
{
    const char *path = getenv("MILLRACE_FAULT_DONE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (path &&
        (!file || fprintf(file, "%s\t%.2f\n", part, seconds() - part_began) < 0 || fclose(file)))
        die("%s: cannot be written", path);
}

const char *files_path(const char *name)
{
    static char paths[16][512];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", files_dir, name);
    return path;
}

static void write_plain(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(files_path(name), "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        die("%s: cannot be written", files_path(name));
}

static void write_gz(const char *name, const void *data, size_t bytes)
{
    gzFile f = gzopen(files_path(name), "wb1");
    if (!f || gzfwrite(data, 1, bytes, f) != bytes || gzclose(f) != Z_OK)
        die("%s: cannot be written", files_path(name));
}

static void be32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void write_idx(const unsigned char *pixels)
{
    static unsigned char images[16 + N_SAMPLES * SIDE * SIDE] = {0, 0, 8, 3},
                                                        labels[8 + N_SAMPLES] = {0, 0, 8, 1};
    be32(images + 4, N_SAMPLES);
    be32(images + 8, SIDE);
    be32(images + 12, SIDE);
    memcpy(images + 16, pixels, N_SAMPLES * SIDE * SIDE);
    be32(labels + 4, N_SAMPLES);
    for (int i = 0; i < N_SAMPLES; i++)
        labels[8 + i] = (unsigned char)(i % 10);
    write_plain("t-images-idx3-ubyte", images, sizeof images);
    write_plain("t-labels-idx1-ubyte", labels, sizeof labels);
    write_gz("z-images-idx3-ubyte.gz", images, sizeof images);
    write_gz("z-labels-idx1-ubyte.gz", labels, sizeof labels);
}

/* Long enough to be inflated by a thread. */
static void write_large_gz(void)
{
    const uint32_t n = 4096;
    const size_t bytes = 16 + (size_t)n * SIDE * SIDE;
    unsigned char *images = calloc(1, bytes);
    if (!images)
        die("out of memory");
    memcpy(images, (unsigned char[]){0, 0, 8, 3}, 4);
    be32(images + 4, n);
    be32(images + 8, SIDE);
    be32(images + 12, SIDE);
    for (size_t i = 16; i < bytes; i++)
        images[i] = (unsigned char)(i * i >> 7);
    write_gz("large-idx3-ubyte.gz", images, bytes);
    free(images);
}

static void write_records(void)
{
    static unsigned char file[NPY_HEAD_BYTES + N_SAMPLES * RECORD];
    char shape[40];
    snprintf(shape, sizeof shape, "%d, 64, 256", N_SAMPLES);
    size_t head = npy_put(file, "|u1", "False", shape), bytes = head + N_SAMPLES * RECORD;
    for (size_t i = head; i < bytes; i++)
        file[i] = (unsigned char)(i * 2654435761u >> 11);
    write_plain("x.npy", file, bytes);
    write_plain("x.bin", file + head, bytes - head);
}

static void write_examples(void)
{
    struct bytes file = {0};
    for (int64_t i = 0; i < N_SAMPLES; i++) {
        struct bytes map = {0};
        const float x[40] = {(float)i, 0.5F};
        put_feature(&map, "label", ints_of(&i, 1, 1));
        put_feature(&map, "x", floats_of(x, 40, 1));
        put_example(&file, map);
    }
    write_plain("x.tfrecord", file.data, file.n);
    write_gz("x.tfrecord.gz", file.data, file.n);
    free_bytes(&file);
}

static void write_numbers(const char *name, int n, int step)
{
    char text[16 * N_SAMPLES];
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d\n", i * step + 1);
    write_plain(name, text, at);
}

void files_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(files_dir, sizeof files_dir, "%s/millrace-fault-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(files_dir))
        die("%s: cannot be made", files_dir);
    static unsigned char pixels[N_SAMPLES * SIDE * SIDE];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (unsigned char)(i * 2654435761u >> 11);
    write_idx(pixels);
    write_large_gz();
    write_records();
    write_examples();
    write_plain("gone.txt", "gone-a.jpg\ngone-b.jpg\ngone-c.jpg\n", 33);
    write_numbers("subset.txt", N_SAMPLES / 3, 2);
    write_numbers("weights.txt", N_SAMPLES, 1);
}

void files_forget(const char *name)
{
    int fd = open(files_path(name), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

int files_count(const char *prefix)
{
    int n = 0;
    DIR *d = opendir(files_dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return n;
}

void files_drop(void)
{
    DIR *d = opendir(files_dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.')
            unlink(files_path(e->d_name));
    if (d)
        closedir(d);
    rmdir(files_dir);
}

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

int open_fds(void)
{
    return entries("/proc/self/fd");
}

int threads_once_there_are(int want)
{
    int n = entries("/proc/self/task") - 2;
    for (int i = 0; i < 20000 && n > want;
         i++) { /* the kernel's own, of rings, end when they get to it */
        usleep(1000);
        n = entries("/proc/self/task") - 2;
    }
    return n;
}
