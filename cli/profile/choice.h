/* Recordings as the commands that read them take them: files of one job, or a part of them. */
#ifndef CLI_PROFILE_CHOICE_H
#define CLI_PROFILE_CHOICE_H

#include "cli.h"

struct profile_choice {
    int64_t rank, pid, device;
};

/* For the option table of a `struct options` with a member `choice`. */
#define PROFILE_CHOICE(name_, member_, help_)                                                      \
    {                                                                                              \
        .name = name_, .type = MR_OPT_INT, .offset = offsetof(struct options, choice.member_),     \
        .initial = "-1", .min = -1, .max = 4294967294.0, .meta = "N", .help = help_,               \
        .group = "What is looked at"                                                               \
    }
#define PROFILE_CHOICE_OPTIONS                                                                     \
    PROFILE_CHOICE("rank", rank,                                                                   \
                   "Only this rank of a job, as the report rank_breakdown numbers them; the "      \
                   "others are left out, so waiting for them is not known; -1: all"),              \
        PROFILE_CHOICE("pid", pid,                                                                 \
                       "Only this process and those of its own that use no device; -1: all"),      \
        PROFILE_CHOICE("device", device, "Only what ran on this device; -1: all")

/* Opens files or a folder of one job. Returns 0 or an error as mr_recording_open_job(). */
int profile_open(char *const *paths, int n, const struct profile_choice *choice,
                 struct mr_recording **out);

#endif
