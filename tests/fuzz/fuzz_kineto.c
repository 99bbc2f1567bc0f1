/* Kineto traces: any JSON, whole or not, opens and loads as a recording, or is refused with a
 * reason. */
#include "recording_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sqlite3 *db = NULL;
    struct mr_recording *recording = NULL;
    write_file(data, size);
    int rc = mr_kineto_import(path, &db);
    if (rc < 0) {
        check(mr_last_error()[0] != 0);
        return 0;
    }
    sqlite3_close(db);
    rc = mr_recording_open(path, &recording);
    if (rc == 0) {
        check(mr_recording_load(recording) == 0);
        check_recording(recording);
        check(recording->n_lost_times == 0);
    }
    mr_recording_close(recording);
    return 0;
}
