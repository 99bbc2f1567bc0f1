/* The profiled program, from its start to its end, with its terminal, its signals and its exit
 * status left as they are. */
#include "profile/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS 1000000000ull /* for processes that outlive the program and are about to end */

enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127, BY_SIGNAL = 128 };

static volatile sig_atomic_t child, interrupts;

/* What the terminal sends reaches the program by itself; what was sent to us alone is for it
 * too. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)context;
    int saved = errno;
    bool to_us = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL;
    interrupts++;
    if (to_us && child > 0)
        kill((pid_t)child, number);
    errno = saved;
}

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/* SIGPIPE is ignored from now on: the recording is written even if our standard error is closed
 * (| head). */
static void catch_signals(struct sigaction *before)
{
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &before[CLI_COUNT(passed)]);
    for (size_t i = 0; i < CLI_COUNT(passed); i++) {
        sigaction(passed[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* as under nohup */
            sigaction(passed[i], &action, NULL);
    }
}

/* In the program; here SIGPIPE stays ignored. */
static void restore_pipe(const struct sigaction *before)
{
    sigaction(SIGPIPE, &before[CLI_COUNT(passed)], NULL);
}

static void restore_signals(const struct sigaction *before)
{
    for (size_t i = 0; i < CLI_COUNT(passed); i++)
        sigaction(passed[i], &before[i], NULL);
}

static void become(const struct profile_run *run, int tell, const struct sigaction *before,
                   const sigset_t *mask)
{
    restore_signals(before);
    restore_pipe(before);
    signal(SIGXFSZ, SIG_DFL); /* which main ignores */
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(run->command[0], run->command);
    int error = errno;
    (void)!write(tell, &error, sizeof error);
    _exit(error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
}

/* 0 when the program runs, else the reason why not. */
static int start(const struct profile_run *run, const struct sigaction *before)
{
    int ends[2], error = 0;
    sigset_t all, mask;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &mask); /* a signal between fork and exec would be lost */
    pid_t pid = fork();
    if (pid == 0)
        become(run, ends[1], before, &mask);
    child = pid;
    error = pid < 0 ? errno : 0;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    close(ends[1]);
    while (pid > 0 && read(ends[0], &error, sizeof error) < 0 && errno == EINTR)
        ;
    close(ends[0]);
    if (error && pid > 0)
        waitpid(pid, NULL, 0);
    return error;
}

static int status_of(int status)
{
    return WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Children of ours, which all orphans of the program become. */
static int n_children(void)
{
    char path[64];
    int n = 0;
    long pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    while (fscanf(file, "%ld", &pid) == 1)
        n++;
    fclose(file);
    return n;
}

/* Until none is left, the grace is over (wait for the program alone) or the user has enough. */
static void wait_for_rest(struct profile_run *run)
{
    uint64_t begin = mr_time_ns();
    sig_atomic_t before = interrupts;
    bool told = false;
    run->n_running = 0;
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid > 0 || (pid < 0 && errno == EINTR))
            continue;
        if (pid < 0)
            return;
        bool all = run->options->wait == PROFILE_WAIT_ALL;
        if (interrupts != before || (!all && mr_time_ns() - begin > GRACE_NS))
            break;
        if (all && !told && mr_time_ns() - begin > GRACE_NS) {
            cli_warn("the program has ended; waiting for the processes that it started (--wait "
                     "primary would not)");
            told = true;
        }
        usleep(5000);
    }
    run->n_running = n_children();
}

int profile_child(struct profile_run *run)
{
    struct sigaction before[CLI_COUNT(passed) + 1]; /* and SIGPIPE's */
    int status = 0, error;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    fflush(NULL);
    run->begin_ns = mr_time_ns();
    /* SIGPIPE, too: the recording is written even if our standard error is closed. */
    catch_signals(before);
    error = start(run, before);
    if (error) {
        restore_signals(before);
        run->exit_status = error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
        cli_fail("%s: %s", run->command[0], error == ENOENT ? "no such program" : strerror(error));
        return CLI_FAILED;
    }
    profile_live_start(run);
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) != (pid_t)child;)
        if (pid < 0 && errno != EINTR)
            break;
    child = 0;
    run->exit_status = status_of(status);
    run->end_ns = mr_time_ns();
    wait_for_rest(run);
    restore_signals(before);
    return CLI_OK;
}
