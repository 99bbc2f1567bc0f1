#include "sweep.h"

#include "files.h"
#include "paths.h"

#include <millrace/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define USUAL_RUNS 6 /* of a job, a kind and a mode */
#elif defined __SANITIZE_ADDRESS__
#define USUAL_RUNS 12
#else
#define USUAL_RUNS 45
#endif
#define RUN_SECONDS 60 /* a hang, whatever else the machine does */
#define STALE       "an error from before"
#if defined(__SANITIZE_THREAD__)
#define OWN_THREADS 2 /* with the sanitizer's */
#else
#define OWN_THREADS 1
#endif

static char now_running[256];

const char *sweep_now(void)
{
    return now_running;
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    static const char text[] = "HANGS: ";
    if (write(2, text, sizeof text - 1) > 0 && write(2, now_running, strlen(now_running)) > 0 &&
        write(2, "\n", 1) > 0)
        abort();
    abort();
}

void outcome_add(struct outcome *out, const void *data, uint64_t bytes)
{
    const unsigned char *p = data;
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, bytes - i < 8 ? bytes - i : 8);
        out->hash = (out->hash ^ word) * 0x9e3779b97f4a7c15ull;
        out->hash ^= out->hash >> 29;
    }
}

static void run(const struct sweep *sweep, struct outcome *out)
{
    *out = (struct outcome){.hash = 0xcbf29ce484222325ull};
    mr_error_set(-1, STALE);
    alarm(RUN_SECONDS);
    sweep->run(sweep->job, out);
    alarm(0);
    out->rc = out->rc < 0 ? out->rc : 0;
}

/* What must be the same before and after each run. */
struct holdings {
    uint64_t blocks;
    int fds, threads, files;
};

static struct holdings holdings(int threads)
{
    return (struct holdings){fault_live_blocks(), open_fds(), threads_once_there_are(threads),
                             files_count("")};
}

static void check_holdings(const struct holdings *was)
{
    struct holdings is = holdings(was->threads);
    if (is.blocks != was->blocks)
        die("%s: %lld blocks leaked", now_running, (long long)(is.blocks - was->blocks));
    if (is.fds != was->fds)
        die("%s: %d descriptors open, %d before", now_running, is.fds, was->fds);
    if (is.threads != was->threads)
        die("%s: %d threads, %d before", now_running, is.threads, was->threads);
    if (is.files != was->files)
        die("%s: %d files in the folder, %d before", now_running, is.files, was->files);
}

static void check_outcome(const struct sweep *sweep, enum fault_kind kind,
                          const struct outcome *out, const struct outcome *want)
{
    if (out->rc < 0) {
        if (!out->error[0] || strstr(out->error, STALE))
            die("%s: error %d with the text '%s'", now_running, out->rc, out->error);
        if (!strncmp(mr_strerror(out->rc), "unknown", 7))
            die("%s: unknown code %d: %s", now_running, out->rc, out->error);
        return;
    }
    if (want->rc < 0)
        die("%s: succeeds, without the failure it ends with: %s", now_running, want->error);
    if (out->hash == want->hash && out->samples == want->samples)
        return;
    if (!sweep->may_differ || !sweep->may_differ(sweep->job, kind, out, want))
        die("%s: succeeds with another result (%llu samples, %llu bad; %llu, %llu)", now_running,
            (unsigned long long)out->samples, (unsigned long long)out->n_bad,
            (unsigned long long)want->samples, (unsigned long long)want->n_bad);
}

static void name_run(const struct sweep *sweep, enum fault_kind kind, uint64_t n, bool on)
{
    snprintf(now_running, sizeof now_running, "%s %s %llu%s", fault_name(kind), sweep->name,
             (unsigned long long)n, on ? " on" : "");
}

/* Returns 1 when the run failed. */
static int run_failing(const struct sweep *sweep, enum fault_kind kind, uint64_t n, bool on,
                       const struct outcome *want, const struct holdings *was)
{
    struct outcome out;
    name_run(sweep, kind, n, on);
    if (sweep->before)
        sweep->before(sweep->job);
    fault_arm(kind, n, on);
    run(sweep, &out);
    fault_disarm();
    check_outcome(sweep, kind, &out, want);
    check_holdings(was);
    return out.rc < 0;
}

/* The first run warms up what is made once and kept; the second is the measure. */
static void run_whole(const struct sweep *sweep, enum fault_kind kind, struct outcome *want,
                      struct holdings *was)
{
    name_run(sweep, kind, 0, false);
    if (sweep->before)
        sweep->before(sweep->job);
    run(sweep, want);
    *was = holdings(OWN_THREADS);
    if (sweep->before)
        sweep->before(sweep->job);
    fault_arm(kind, 0, false);
    paths_note((int)kind);
    run(sweep, want);
    paths_note(-1);
    paths_choose();
    if ((want->rc < 0) != sweep->fails)
        die("%s: %d: %s", now_running, want->rc, want->error);
    check_holdings(was);
}

void sweep_run(const struct sweep *sweep, enum fault_kind kind)
{
    struct outcome want;
    struct holdings was;
    static bool paths_opened;
    signal(SIGALRM, on_alarm);
    if (!paths_opened)
        paths_open(NULL);
    paths_opened = true;
    run_whole(sweep, kind, &want, &was);
    uint64_t most = most_runs(sweep->fewer ? USUAL_RUNS / 3 : USUAL_RUNS),
             count = fault_calls(kind), stride = 1 + count / most;
    uint64_t n_runs = 0, n_failed = 0;
    char part[128];
    if (sweep->only) {
        run_failing(sweep, kind, sweep->only, sweep->only_on, &want, &was);
        return;
    }
    for (int on = 0; on < 2;
         on++) { /* the first calls one by one: that is where things are opened */
        uint64_t last = on && sweep->not_on && count > 1 ? 1 : count;
        snprintf(part, sizeof part, "%s %s%s", fault_name(kind), sweep->name, on ? " on" : "");
        if (part_passed(part))
            continue;
        for (uint64_t n = 1; n <= last; n = paths_next(n + (n < most / 3 ? 1 : stride)), n_runs++)
            n_failed += (uint64_t)run_failing(sweep, kind, n, on, &want, &was);
        part_pass(part);
    }
    printf("%-8s %-22s %5llu calls, %4llu runs, %4llu ended with an error\n", fault_name(kind),
           sweep->name, (unsigned long long)count, (unsigned long long)n_runs,
           (unsigned long long)n_failed);
}
