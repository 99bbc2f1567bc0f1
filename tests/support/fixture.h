/* Recordings of real programs in tests/data, as they are or changed by SQL. */
#ifndef MR_TEST_FIXTURE_H
#define MR_TEST_FIXTURE_H

#include "recording_make.h"

#include <sqlite3.h>
#include <zlib.h>

/* Unpacks tests/data/NAME.sqlite.gz to path, runs the statements on it (NULL: none), loads it. */
static inline struct mr_recording *fixture(const char *path, const char *name, const char *sql)
{
    char from_path[512], buffer[65536], *error = NULL;
    sqlite3 *db = NULL;
    snprintf(from_path, sizeof from_path, "%s/%s.sqlite.gz", TEST_RECORDINGS, name);
    gzFile from = gzopen(from_path, "rb");
    FILE *to = fopen(path, "wb");
    assert_true(from && to);
    for (int n; (n = gzread(from, buffer, sizeof buffer)) > 0;)
        assert_int_equal(fwrite(buffer, 1, (size_t)n, to), n);
    gzclose(from);
    fclose(to);
    if (sql) {
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
            fail_msg("%s", error);
        sqlite3_close(db);
    }
    return make_load(path);
}

#endif
