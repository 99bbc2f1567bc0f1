/* Opening what a command was given: a recording, several of one job, a folder of them. */
#include "profile/choice.h"

#include <millrace/profile.h>

int profile_open(char *const *paths, int n, const struct profile_choice *choice,
                 struct mr_recording **out)
{
    struct mr_recording_opts opts;
    mr_recording_opts_init(&opts);
    opts.rank = choice->rank;
    opts.pid = choice->pid;
    opts.device = choice->device;
    return mr_recording_open_job((const char *const *)paths, (uint32_t)n, &opts, out);
}
