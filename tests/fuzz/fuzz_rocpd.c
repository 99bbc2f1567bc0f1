/* rocpd databases: any bytes open and load as a recording, or are refused with a reason. */
#include "recording_file.h"

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
