/*
 * Random pieces of a file or URL, so many at a time, by the reader that a loader's worker has:
 * bench/stores.sh shows it beside range_limit, which reads and forgets.
 *
 * usage: store_read PATH_OR_URL BYTES DEPTH SECONDS
 *        prints "reads/s bytes/s CPU-ns/read p50-us p99-us"; the first quarter of the time, when
 *        connections are new, is not in the rates
 */
#include "base/base.h"
#include "storage/storage.h"

#include <millrace/storage.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define MAX_DEPTH 1024
#define MAX_TIMES (1u << 20)

struct piece {
    struct mr_read read;
    uint64_t began_ns;
};

struct run {
    struct mr_reader *reader;
    int file;
    uint64_t file_bytes, bytes, draw;
    uint64_t start_ns, end_ns; /* what ends between these is counted */
    uint64_t n, *times;
};

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double cpu_ns(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e9 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e3;
}

static void submit(struct run *k, struct piece *p)
{
    struct mr_read *read = &p->read;
    void *buf = read->buf;
    k->draw = k->draw * 6364136223846793005ull + 1442695040888963407ull;
    *read = (struct mr_read){.file = k->file,
                             .offset = (k->draw >> 16) % (k->file_bytes - k->bytes + 1),
                             .bytes = k->bytes,
                             .buf = buf,
                             .user = p};
    p->began_ns = mr_time_ns();
    mr_reader_submit(k->reader, &read, 1);
}

static int finish(struct run *k, const struct mr_read *read)
{
    const struct piece *p = read->user;
    if (read->status) {
        if (read->error)
            mr_error_put(read->error);
        return read->status;
    }
    uint64_t now = mr_time_ns();
    if (now >= k->start_ns && now < k->end_ns)
        k->times[k->n++ % MAX_TIMES] = now - p->began_ns;
    return 0;
}

/* What is under way at the end is waited for. */
static int turn(struct run *k, struct piece *pieces, uint32_t depth)
{
    struct mr_read *done[256];
    uint32_t busy = depth;
    for (uint32_t i = 0; i < depth; i++)
        submit(k, &pieces[i]);
    while (busy > 0) {
        uint32_t n = mr_reader_reap(k->reader, done, 256, 1000000000);
        bool more = mr_time_ns() < k->end_ns;
        for (uint32_t i = 0; i < n; i++) {
            int rc = finish(k, done[i]);
            if (rc)
                return rc;
            if (more)
                submit(k, done[i]->user);
            else
                busy--;
        }
    }
    return 0;
}

static int measure(const char *name, uint64_t bytes, uint32_t depth, double seconds)
{
    struct mr_files *files = mr_files_create();
    struct mr_storage *storage = NULL;
    static struct piece pieces[MAX_DEPTH];
    struct run k = {.bytes = bytes, .draw = 1, .times = calloc(MAX_TIMES, sizeof *k.times)};
    int rc;
    if (!files || !k.times)
        return mr_error_nomem("store_read", 0);
    k.file = rc = mr_files_add_lazy(files, name);
    if (rc < 0 || (rc = mr_files_size(files, k.file, &k.file_bytes)) < 0 ||
        (rc = mr_storage_open(files, MR_STORAGE_AUTO, depth, 1, &storage)) < 0 ||
        (rc = mr_reader_open(storage, &k.reader)) < 0)
        return rc;
    for (uint32_t i = 0; i < depth; i++)
        pieces[i].read.buf = malloc(bytes);
    double cpu = cpu_ns();
    uint64_t now = mr_time_ns(), all_ns = (uint64_t)(seconds * 1e9);
    k.start_ns = now + all_ns / 4;
    k.end_ns = now + all_ns;
    rc = turn(&k, pieces, depth);
    if (rc < 0)
        return rc;
    double spent = (double)(k.end_ns - k.start_ns) / 1e9, n = (double)MR_MAX(k.n, 1u);
    size_t kept = MR_MIN(k.n, MAX_TIMES);
    qsort(k.times, kept, sizeof *k.times, compare);
    printf("%.1f %.0f %.0f %.0f %.0f\n", n / spent, n * (double)bytes / spent,
           (cpu_ns() - cpu) * 3 / 4 / n, (double)k.times[kept / 2] / 1e3,
           (double)k.times[kept * 99 / 100] / 1e3);
    mr_reader_close(k.reader);
    mr_storage_close(storage);
    mr_files_destroy(files);
    return 0;
}

int main(int argc, char **argv)
{
    int depth = argc == 5 ? atoi(argv[3]) : 0;
    if (depth < 1 || depth > MAX_DEPTH || strtoull(argv[2], NULL, 10) < 1) {
        fprintf(stderr, "usage: store_read PATH_OR_URL BYTES DEPTH SECONDS\n");
        return 2;
    }
    int rc = measure(argv[1], strtoull(argv[2], NULL, 10), (uint32_t)depth, atof(argv[4]));
    if (rc < 0)
        fprintf(stderr, "store_read: %s\n", mr_last_error());
    return rc < 0;
}
