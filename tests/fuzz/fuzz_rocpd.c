/* rocpd databases: any bytes open and load as a recording, or are refused with a reason. */
#include "recording/import.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* SQLite wants a file with a real name, which a descriptor's is not. */
static char path[64];

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(path, sizeof(path), "%s/millrace-fuzz-rocpd-%d", folder, (int)getpid());
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

static void check_recording(const struct mr_recording *r)
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sqlite3 *db = NULL;
    struct mr_recording *recording = NULL;
    write_file(data, size);
    int rc = mr_rocpd_import(path, &db);
    if (rc < 0)
        check(mr_last_error()[0] != 0);
    check((rc == 1) == (db != NULL));
    if (rc != 1)
        return 0;
    sqlite3_close(db);
    rc = mr_recording_open(path, &recording);
    if (rc == 0) {
        check(mr_recording_load(recording) == 0);
        check_recording(recording);
    }
    mr_recording_close(recording);
    return 0;
}
