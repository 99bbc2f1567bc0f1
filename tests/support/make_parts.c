/*
 * A recording of any size, for measuring: make_parts PARTS FILE [RECORDS]
 * Writes parts of a made-up training loop into folder PARTS (RECORDS of them, 10 million by
 * default: 40% kernels, 45% calls, 5% copies, 10% ranges; two processes), merges them into FILE,
 * loads it, and says how long each took.
 */
#include "parts_write.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

static double megabytes_peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: make_parts PARTS FILE [RECORDS]\n");
        return 2;
    }
    uint64_t n = argc > 3 ? strtoull(argv[3], NULL, 10) : 10000000;
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST) {
        perror(argv[1]);
        return 1;
    }
    if (parts_write(argv[1], 100, n / 40) || parts_write(argv[1], 101, n / 40))
        return 1;
    struct mr_merge_stats stats = {.size = sizeof stats};
    uint64_t t0 = mr_time_ns();
    if (mr_recording_merge(argv[1], argv[2], 1, &stats) < 0) {
        fprintf(stderr, "%s\n", mr_last_error());
        return 1;
    }
    uint64_t t1 = mr_time_ns();
    printf(
        "merged %llu records in %.2f s, %.0f MB at most; the file: %.1f MB, %.1f bytes a record\n",
        (unsigned long long)stats.n_records, (double)(t1 - t0) * 1e-9, megabytes_peak(),
        (double)stats.bytes * 1e-6, (double)stats.bytes / (double)stats.n_records);
    struct mr_recording *recording;
    if (mr_recording_open(argv[2], &recording) < 0 || mr_recording_load(recording) < 0) {
        fprintf(stderr, "%s\n", mr_last_error());
        return 1;
    }
    printf("loaded %llu device operations, %llu calls, %llu ranges in %.2f s, %.0f MB at most\n",
           (unsigned long long)recording->n_ops, (unsigned long long)recording->n_apis,
           (unsigned long long)recording->n_ranges, (double)(mr_time_ns() - t1) * 1e-9,
           megabytes_peak());
    mr_recording_close(recording);
    return 0;
}
