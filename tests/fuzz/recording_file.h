/* For fuzzers of recordings: bytes as a file, and whether what other tools made is sound. */
#ifndef MR_FUZZ_RECORDING_FILE_H
#define MR_FUZZ_RECORDING_FILE_H

#include "recording/import.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void remove_file(void)
{
    unlink(path);
}

/* zlib and SQLite open files by their names, and want real ones. */
static void write_file(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(path, sizeof(path), "%s/millrace-fuzz-recording-%d", folder, (int)getpid());
        setenv("TMPDIR", folder, 1);
        atexit(remove_file);
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void check(int ok)
{
    if (!ok)
        abort();
}

static inline void check_recording(const struct mr_recording *r)
{
    for (uint64_t i = 0; i < r->n_ops; i++) {
        const struct mr_rec_op *op = &r->ops[i];
        check(op->start_ns <= op->end_ns && op->end_ns <= r->end_ns);
        check(op->name < r->n_strings && op->process < r->n_processes && op->device < r->n_devices);
    }
    for (uint64_t i = 0; i < r->n_apis; i++)
        check(r->apis[i].name < r->n_strings && r->apis[i].thread < r->n_threads);
    for (uint64_t i = 0; i < r->n_ranges; i++)
        check(r->ranges[i].text < r->n_strings && !r->ranges[i].open);
}

#endif
