/* `millrace profile`: what its files share. */
#ifndef CLI_PROFILE_PROFILE_H
#define CLI_PROFILE_PROFILE_H

#include "cli.h"

#include <millrace/profile.h>
#include <sys/types.h>

struct profile_options {
    struct cli_common common;
    char *trace, *capture_range, *output, *merge;
    int capture_range_end, force, stats, gpu_metrics, keep_parts, wait, graph_trace, api;
    int python_ranges, python_sampling, sample;
    uint64_t sampling_hz;
    uint64_t duration_ns, delay_ns, osrt_threshold_ns, flush_ns, metrics_hz, python_hz;
};

enum { PROFILE_WAIT_PRIMARY, PROFILE_WAIT_ALL };
enum { PROFILE_RANGES_ON, PROFILE_RANGES_OFF };
enum { PROFILE_SAMPLE_NONE, PROFILE_SAMPLE_TREE };

#define PROFILE_NOTES 32

struct profile_run {
    const struct profile_options *options;
    char **command; /* NULL-terminated */
    uint32_t traced;
    char output[4096], parts[4200], module[4200];
    uint32_t rank, world; /* by the launcher; world 0: this process is alone */
    uint64_t begin_ns, end_ns;
    int exit_status; /* of the program, as a shell says it */
    int n_running;   /* of the program's processes when we stopped waiting; -1: not known */
    char *notes[PROFILE_NOTES];
    int n_notes;
    int running;        /* the lock on the parts, for as long as we run */
    bool metrics_tried; /* some process had a GPU of which to sample metrics */
};

/* profile_setup.c: each returns an exit code after a message */
int profile_traces(const char *text, uint32_t *out_bits);
int profile_find_module(char *path, size_t bytes);
int profile_find_output(struct profile_run *run);
int profile_make_parts(struct profile_run *run);
void profile_read_notes(struct profile_run *run);
void profile_remove_parts(struct profile_run *run);
void profile_unmark_parts(struct profile_run *run); /* they are kept, and not by accident */

/* rank.c: fills rank and world. */
void profile_find_rank(struct profile_run *run);
/* Sets the output to this name: %r is the rank, %p this process, %h the host, %% a percent sign;
 * without %r and %p the rank comes before the ending. False: too long. */
bool profile_name_rank(struct profile_run *run, const char *named);

/* Sets the environment of the program, in this process. */
int profile_environment(struct profile_run *run);

/* live.c: starts a thread that writes the recording while the program runs. If it fails, the finish
 * merges all parts. Do not fork while it runs. */
void profile_live_start(const struct profile_run *run);
/* Returns as mr_recording_merge(). */
int profile_live_finish(const struct profile_run *run, struct mr_merge_stats *out_stats);

/* profile_child.c: runs the program to its end; the run's exit_status, times and n_running are
 * filled. */
int profile_child(struct profile_run *run);

#endif
