/* Reports of steps: what they do for each device of each process. */
#include "recording/look.h"
#include "report/report.h"

int mr_report_looks(struct mr_recording *recording, const struct mr_place *places,
                    uint32_t n_places, const char *step, bool warm,
                    int (*add)(const struct mr_look *look, void *user), void *user)
{
    struct mr_error_kept unnamed = {0};
    uint32_t n_named = 0;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < n_places; i++) {
        struct mr_look look;
        rc = mr_look_make(recording, &places[i], step, warm, &look);
        if (rc == MR_EOPTION) { /* one that has the range is enough */
            if (!unnamed.code)
                mr_error_keep(rc, &unnamed);
            rc = 0;
            continue;
        }
        if (rc)
            break;
        n_named++;
        rc = add(&look, user);
        mr_look_free(&look);
    }
    return !rc && n_named == 0 && unnamed.code ? mr_error_put(&unnamed) : rc;
}
