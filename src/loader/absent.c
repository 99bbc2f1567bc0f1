/* What the core build (-DMILLRACE_CORE=ON) has instead of state_read.c: states are written only. */
#include "loader/engine.h"

int mr_state_load(const struct mr_loader *ld, const char *text, struct mr_state *out)
{
    (void)ld;
    (void)text;
    (void)out;
    return mr_error_set(MR_EUNSUPPORTED, "state: this build has no cJSON, which reads states: it "
                                         "was made with MILLRACE_CORE=ON");
}
