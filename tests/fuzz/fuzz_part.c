/* Parts: any bytes are merged, or refused with a reason; what was merged opens and loads. */
#include "profile/part_read.h"
#include "profile/recording.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
        if (recording->ops[i].end_ns < recording->ops[i].start_ns || recording->ops[i].name >= recording->n_strings)
            abort();
    for (uint64_t i = 0; i < recording->n_ranges; i++)
        if (recording->ranges[i].parent != MR_NONE && recording->ranges[i].parent >= i)
            abort();
    mr_recording_close(recording);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0])
        make_folder();
    FILE *file = fopen(part, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    struct mr_merge_stats stats = {0};
    int rc = mr_recording_merge(folder, merged, 1, &stats);
    if (rc == 0)
        check_loaded();
    else if ((rc != MR_EFORMAT && rc != MR_EUNSUPPORTED && rc != MR_ELIMIT) || mr_last_error()[0] == 0)
        abort();
    /* no more records than there is room for, whatever a chunk says */
    if (stats.n_records * 4 > size)
        abort();
    return 0;
}
