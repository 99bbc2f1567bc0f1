/* The recording is written while the program runs, by a thread of ours that gives way to it. */
#include "profile/profile.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS 100000000u
#define NICE    10

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool runs, stop;
    int rc;
    struct mr_merge *merge;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether to go on. */
static bool pause_step(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += STEP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&live.lock);
    while (!live.stop && pthread_cond_timedwait(&live.wake, &live.lock, &until) == 0)
        ;
    bool go_on = !live.stop;
    pthread_mutex_unlock(&live.lock);
    return go_on;
}

static void *write_rows(void *unused)
{
    (void)unused;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    while (live.rc == 0 && pause_step())
        live.rc = mr_merge_step(live.merge);
    if (live.rc) { /* its room on the disk is the program's */
        mr_merge_close(live.merge);
        live.merge = NULL;
    }
    return NULL;
}

static bool start_thread(void)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    bool made = pthread_cond_init(&live.wake, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    made = made && pthread_create(&live.thread, NULL, write_rows, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

void profile_live_start(const struct profile_run *run)
{
    if (mr_merge_open(run->parts, run->output, run->options->force, &live.merge) != 0)
        return;
    live.runs = start_thread();
    if (!live.runs) {
        mr_merge_close(live.merge);
        live.merge = NULL;
    }
}

int profile_live_finish(const struct profile_run *run, struct mr_merge_stats *out_stats)
{
    pthread_mutex_lock(&live.lock);
    live.stop = true;
    if (live.runs)
        pthread_cond_signal(&live.wake);
    pthread_mutex_unlock(&live.lock);
    if (live.runs)
        pthread_join(live.thread, NULL);
    live.runs = false;
    if (!live.merge)
        return mr_recording_merge(run->parts, run->output, run->options->force, out_stats);
    int rc = mr_merge_finish(live.merge, out_stats);
    mr_merge_close(live.merge);
    live.merge = NULL;
    return rc;
}
