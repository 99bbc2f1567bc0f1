/* What sampled counters say of the steps. Exports of nsys have the same tables as recordings. */
#include "advice/rules.h"

#include <sqlite3.h>

/* Rows of the device whose samples are of the tensor pipe; "Tensor Active / FP16 Active" on some.
 * The export keeps the GPU's number in the low 8 bits. */
static const char query[] =
    "SELECT timestamp, value FROM GPU_METRICS g WHERE typeId & 255 = ?1 AND EXISTS (SELECT 1 FROM "
    "TARGET_INFO_GPU_METRICS t WHERE t.typeId = g.typeId AND t.metricId = g.metricId AND "
    "t.metricName LIKE 'Tensor Active%')";

static int add_samples(const struct mr_case *c, sqlite3_stmt *row, uint64_t *n, double *sum)
{
    const struct mr_recording *rec = c->look->rec;
    int step;
    while ((step = sqlite3_step(row)) == SQLITE_ROW) {
        int64_t time = sqlite3_column_int64(row, 0);
        if (time < 0 || !mr_case_in(c, (uint64_t)time))
            continue;
        *sum += sqlite3_column_double(row, 1);
        *n += 1;
    }
    return step == SQLITE_DONE ? 0 : mr_recording_error(rec->db, rec->path, "metrics");
}

int mr_case_tensor_active(const struct mr_case *c, double *out_percent)
{
    /* asks the database, and keeps what failed there */
    struct mr_recording *rec = (struct mr_recording *)(uintptr_t)c->look->rec;
    double sum = 0, compute = (double)mr_intervals_measure(&c->look->compute);
    sqlite3_stmt *row = NULL;
    uint64_t n = 0;
    if (!rec->db || compute <= 0 || !mr_recording_has(rec, "GPU_METRICS", "metricId") ||
        !mr_recording_has(rec, "TARGET_INFO_GPU_METRICS", "metricName"))
        return mr_recording_result(rec, 0);
    if (sqlite3_prepare_v2(rec->db, query, -1, &row, NULL) != SQLITE_OK)
        return mr_recording_error(rec->db, rec->path, "metrics");
    sqlite3_bind_int64(row, 1, mr_place_device_id(rec, &c->look->place) & 255);
    int rc = add_samples(c, row, &n, &sum);
    sqlite3_finalize(row);
    if (rc || n == 0)
        return rc;
    *out_percent = MR_MIN(sum / (double)n * (double)c->look->wall_ns / compute, 100.0);
    return 1;
}
