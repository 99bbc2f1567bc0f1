/*
 * Parts: any bytes are read, and merged, or refused with a reason; what was merged opens and loads.
 * A database costs a hundred times what reading costs: the fuzzer makes one for one input in N_READ
 * only, the replay for each.
 */
#include "recording/part_read.h"
#include "recording/recording.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_READ 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static uint64_t one_in = 1;
static char folder[64], part[96], merged[96];

static void remove_folder(void)
{
    unlink(part);
    unlink(merged);
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "%s/millrace-fuzz-part-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        abort();
    snprintf(part, sizeof(part), "%s/1.part", folder);
    snprintf(merged, sizeof(merged), "%s/out", folder);
    atexit(remove_folder);
}

static void check_loaded(void)
{
    struct mr_recording *recording;
    if (mr_recording_open(merged, &recording) < 0 || mr_recording_load(recording) < 0)
        abort();
    for (uint64_t i = 0; i < recording->n_ops; i++)
        if (recording->ops[i].end_ns < recording->ops[i].start_ns ||
            recording->ops[i].name >= recording->n_strings)
            abort();
    for (uint64_t i = 0; i < recording->n_ranges; i++)
        if (recording->ranges[i].parent != MR_NONE && recording->ranges[i].parent >= i)
            abort();
    mr_recording_close(recording);
}

static void check_refused(int rc)
{
    if ((rc != MR_EFORMAT && rc != MR_EUNSUPPORTED && rc != MR_ELIMIT) || mr_last_error()[0] == 0)
        abort();
}

static int read_one(struct mr_part_reader *reader, enum mr_part_type type)
{
    static char text[MR_PART_TEXT_BYTES];
    struct mr_part_record record;
    struct mr_part_range range;
    uint32_t id;
    size_t bytes;
    if (type == MR_PART_STRING)
        return mr_part_string(reader, &id, text, &bytes);
    if (type == MR_PART_RANGE_TEXT)
        return mr_part_range_text(reader, &range, text, &bytes);
    return mr_part_record(reader, &record);
}

/* [out] n: of its records and strings. Returns 1, 0 or what refused it. */
static int read_chunks(struct mr_part_reader *reader, uint64_t *n)
{
    enum mr_part_type type;
    int rc;
    while ((rc = mr_part_next(reader, &type)) == 1) {
        while ((rc = read_one(reader, type)) == 1)
            ++*n;
        if (rc < 0)
            return rc;
    }
    return rc;
}

static void check_read(size_t size)
{
    struct mr_part_reader *reader;
    uint64_t n = 0;
    int rc = mr_part_open(part, &reader);
    if (rc == 1)
        rc = read_chunks(reader, &n);
    if (rc < 0)
        check_refused(rc);
    if (n * 4 > size)
        abort();
    mr_part_close(reader);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    one_in = N_READ;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0])
        make_folder();
    FILE *file = fopen(part, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    check_read(size);
    if (mr_hash(0, data, size) % one_in)
        return 0;
    struct mr_merge_stats stats = {.size = sizeof stats};
    int rc = mr_recording_merge(folder, merged, 1, &stats);
    if (rc == 0)
        check_loaded();
    else
        check_refused(rc);
    /* no more records than there is room for, whatever a chunk says */
    if (stats.n_records * 4 > size)
        abort();
    return 0;
}
