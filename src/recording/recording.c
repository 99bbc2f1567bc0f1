/* Opening a recording: ours, an export, or a trace that is imported. */
#include "recording/recording.h"
#include "recording/import.h"

#include <errno.h>
#include <sqlite3.h>
#include <unistd.h>

int mr_recording_open(const char *path, struct mr_recording **out)
{
    struct sqlite3 *db = NULL;
    if (!path || !out)
        return mr_error_null("mr_recording_open", "a path and a place for the result");
    if (access(path, R_OK) != 0)
        return mr_error_errno(errno, "%s: cannot be read", path);
    int rc = mr_import(path, &db);
    if (rc < 0) {
        sqlite3_close(db);
        return rc;
    }
    if (rc == 1)
        return mr_recording_wrap(path, db, true, out);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        rc = mr_recording_error(db, path, "cannot be opened");
        sqlite3_close(db);
        return rc;
    }
    return mr_recording_wrap(path, db, false, out);
}
