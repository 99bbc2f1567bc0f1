/*
 * The thread that watches worker processes: it sees one end (pidfd), takes back its jobs, and
 * starts another one in its place. It also kills those that take too long.
 */
#include "dataset/workers/workers.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#define MAX_EARLY   4            /* then a worker is given up */
#define RETRY_NS    25000000ull  /* after a process that ended before it made a sample; doubled */
#define MAX_SHORT   8            /* then too, if none runs; about 6 s */
#define GRACE_NS    300000000ull /* for processes to end by themselves */
#define KILLED_NS   5000000000ull
#define MAX_TICK_NS 100000000ull
#define MIN_TICK_NS 1000000ull

/* ---- starting ---- */

static int start_process(struct mr_process_pool *p, uint32_t i)
{
    struct mr_worker_process *w = &p->worker[i];
    struct mr_shared_worker *shared = &p->head->worker[i];
    int64_t pid = 0;
    uint64_t errors = mr_error_count();
    atomic_store(&shared->ready, 0);
    atomic_store(&shared->n_made, 0);
    atomic_store(&shared->code, 0);
    atomic_fetch_add(&shared->n_started, 1);
    int rc = p->start(p->user.user, i, mr_shared_memory_fd(p->memory), &pid);
    if (rc == 0 && (pid <= 0 || pid > INT_MAX))
        rc = mr_error_set(MR_ECALLBACK, "start set pid %lld", (long long)pid);
    if (rc < 0)
        return mr_callback_error(p->user.name, "start", rc, 0, errors);
    w->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (w->pidfd < 0) {
        rc = mr_error_errno(errno, "%s: worker %u, process %lld: pidfd_open", p->user.name, i,
                            (long long)pid);
        if (rc != -ESRCH) {
            kill((pid_t)pid, SIGKILL);
            waitpid((pid_t)pid, NULL, 0);
        }
        return rc;
    }
    w->pid = pid;
    w->timeout = false;
    w->retry_ns = 0;
    atomic_store(&shared->pid, pid);
    atomic_fetch_add(&p->head->work, 1);
    mr_futex_wake(&p->head->work, INT_MAX); /* it may wait for its number */
    return 0;
}

/* ---- deaths ---- */

/* Leaves a child as a zombie: see reap(). */
static struct mr_death how_it_ended(const struct mr_worker_process *w)
{
    struct mr_death d = {.pid = w->pid, .status = -1, .timeout = w->timeout};
    siginfo_t info = {0};
    if (waitid((idtype_t)P_PIDFD, (id_t)w->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        info.si_pid == 0)
        return d; /* not our child */
    if (info.si_code == CLD_EXITED)
        d.status = info.si_status;
    else
        d.signal = info.si_status;
    return d;
}

/* Whoever waits for a job of this worker sees what came of it. Returns whether it had one to make.
 */
static bool release_jobs(struct mr_process_pool *p, uint32_t i, const struct mr_death *death)
{
    bool had = false;
    for (uint32_t j = 0; j < p->n_jobs; j++) {
        struct mr_shared_job *job = mr_process_pool_job(p, j);
        uint32_t posted = MR_JOB_POSTED;
        /* The state first: an owner that is i + 1 after that was it before the worker died. */
        uint32_t state = atomic_load(&job->state);
        if (atomic_load(&job->owner) != i + 1)
            continue;
        if (state == MR_JOB_POSTED) {
            had = true;
            p->death[j] = *death;
            atomic_compare_exchange_strong(&job->state, &posted, MR_JOB_LOST);
        }
    }
    for (uint32_t j = 0; j < p->n_jobs; j++) /* who waits for one may have lost another */
        mr_futex_wake(&mr_process_pool_job(p, j)->state, INT_MAX);
    atomic_fetch_and(&p->head->asleep[i / 64], ~(1ull << i % 64));
    atomic_fetch_add(&p->head->work, 1);
    mr_futex_wake(&p->head->work, INT_MAX); /* it may have been woken for a job just then */
    return had;
}

static const char *end_text(const struct mr_death *d, char *buf, size_t cap)
{
    if (d->signal)
        snprintf(buf, cap, "was killed by signal %d", d->signal);
    else if (d->status >= 0)
        snprintf(buf, cap, "exited with status %d", d->status);
    else
        snprintf(buf, cap, "ended");
    return buf;
}

/* Why a worker made no sample. Sets the error. */
static int early_error(const struct mr_process_pool *p, uint32_t i, const struct mr_death *d)
{
    struct mr_shared_worker *shared = &p->head->worker[i];
    int code = atomic_load(&shared->code);
    char how[64];
    if (code < 0)
        return mr_error_set(code, "%s: init of worker %u: %.*s", p->user.name, i,
                            MR_ERROR_BYTES - 1, shared->text);
    return mr_error_set(MR_ECALLBACK, "%s: worker %u, process %lld, %s before it made a sample%s",
                        p->user.name, i, (long long)d->pid, end_text(d, how, sizeof how),
                        atomic_load(&shared->ready) ? ": its init had succeeded"
                                                    : ": expected it to call mr_worker_run()");
}

static bool none_left(const struct mr_process_pool *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->worker[i].pidfd >= 0 || p->worker[i].retry_ns > 0)
            return false;
    return true;
}

/* It is not started again, for the reason that is this thread's error. */
static void give_up(struct mr_process_pool *p, uint32_t i, int rc)
{
    p->worker[i].retry_ns = 0;
    if (rc != MR_ECANCELLED)
        mr_log(MR_LOG_WARNING, "%s: going on without worker %u: %s", p->user.name, i,
               mr_last_error());
    if (!none_left(p))
        return;
    mr_error_keep(rc, &p->broken_by);
    atomic_store(&p->broken, true);
    for (uint32_t j = 0; j < p->n_jobs; j++)
        mr_futex_wake(&mr_process_pool_job(p, j)->state, INT_MAX);
}

/* A worker could not be started or ended at once, for the reason that is this thread's error. */
static void fail_early(struct mr_process_pool *p, uint32_t i, int rc, bool final)
{
    struct mr_worker_process *w = &p->worker[i];
    w->n_early++;
    w->retry_ns = mr_time_ns() + (w->n_early == 1 ? 0 : RETRY_NS << w->n_early);
    if (final || w->n_early >= MAX_EARLY)
        give_up(p, i, rc);
}

static uint32_t count_running(const struct mr_process_pool *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n += p->worker[i].pidfd >= 0;
    return n;
}

/* The system lacks processes, descriptors or memory, which is not the worker's fault: as long as
 * others run, it can wait. */
static void wait_for_more(struct mr_process_pool *p, uint32_t i, int rc)
{
    struct mr_worker_process *w = &p->worker[i];
    w->n_short = MR_MIN(w->n_short + 1, MAX_SHORT);
    w->retry_ns = mr_time_ns() + (RETRY_NS << w->n_short);
    if (w->n_short < MAX_SHORT || count_running(p) > 0)
        return;
    mr_error_set(rc, "%s (%s, %d times in a row)", mr_last_error(), mr_strerror(rc), MAX_SHORT);
    give_up(p, i, rc);
}

static bool is_shortage(int rc)
{
    return rc == -EAGAIN || rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
}

static void restart(struct mr_process_pool *p, uint32_t i)
{
    int rc = start_process(p, i);
    if (rc == 0)
        p->worker[i].n_short = 0;
    else if (is_shortage(rc))
        wait_for_more(p, i, rc);
    else
        fail_early(p, i, rc, rc == MR_ECANCELLED);
}

/* Only after its successor was started: who starts it may ask, too, how this one ended. */
static void reap(int pidfd)
{
    siginfo_t info;
    waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG);
    close(pidfd);
}

static void replace(struct mr_process_pool *p, uint32_t i, const struct mr_death *death,
                    bool had_job)
{
    struct mr_worker_process *w = &p->worker[i];
    struct mr_shared_worker *shared = &p->head->worker[i];
    bool has_made = atomic_load(&shared->n_made) > 0;
    if (has_made)
        w->n_early = 0;
    if (has_made || had_job) /* max_deaths ends what the samples of a job do */
        restart(p, i);
    else
        fail_early(p, i, early_error(p, i, death), atomic_load(&shared->code) < 0);
}

static void bury(struct mr_process_pool *p, uint32_t i)
{
    struct mr_worker_process *w = &p->worker[i];
    struct mr_death death = how_it_ended(w);
    int pidfd = w->pidfd;
    w->pidfd = -1;
    atomic_store(&p->head->worker[i].pid, 0);
    bool had_job = release_jobs(p, i, &death);
    if (!atomic_load(&p->closing))
        replace(p, i, &death, had_job);
    reap(pidfd);
}

/* ---- time ---- */

static void kill_process(struct mr_worker_process *w)
{
    syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0);
}

static void kill_slow(struct mr_process_pool *p, uint64_t now)
{
    for (uint32_t j = 0; j < p->n_jobs; j++) {
        struct mr_shared_job *job = mr_process_pool_job(p, j);
        uint64_t start = atomic_load(&job->start_ns);
        uint32_t owner = atomic_load(&job->owner);
        if (owner == MR_JOB_NO_OWNER || owner > p->n || p->worker[owner - 1].pidfd < 0 ||
            start == 0 || now < start || now - start < p->timeout_ns ||
            atomic_load(&job->state) != MR_JOB_POSTED || atomic_load(&job->owner) != owner)
            continue;
        p->worker[owner - 1].timeout = true;
        kill_process(&p->worker[owner - 1]);
    }
}

/* How long to sleep, in milliseconds. */
static int next_tick(const struct mr_process_pool *p, uint64_t now)
{
    uint64_t ns = UINT64_MAX;
    if (p->timeout_ns > 0)
        ns = MR_MAX(MR_MIN(p->timeout_ns / 8, MAX_TICK_NS), MIN_TICK_NS);
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t at = p->worker[i].retry_ns;
        if (at > 0)
            ns = MR_MIN(ns, at > now ? at - now + MIN_TICK_NS : MIN_TICK_NS);
    }
    return ns == UINT64_MAX ? -1 : (int)(ns / 1000000);
}

/* Waits for an end, the time or, if it listens, for the request to close, which stays readable.
 * Buries who ended. */
static void watch(struct mr_process_pool *p, bool listens, int timeout_ms)
{
    struct pollfd fd[MR_MAX_WORKER_PROCESSES + 1];
    uint32_t worker[MR_MAX_WORKER_PROCESSES], n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->worker[i].pidfd >= 0) {
            worker[n] = i;
            fd[n++] = (struct pollfd){.fd = p->worker[i].pidfd, .events = POLLIN};
        }
    fd[n] = (struct pollfd){.fd = p->wake, .events = POLLIN};
    if (poll(fd, listens ? n + 1 : n, timeout_ms) <= 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (fd[i].revents)
            bury(p, worker[i]);
}

/* They see `closed` once they have finished their samples, and are killed if that takes long. */
static void end_all(struct mr_process_pool *p)
{
    uint64_t start = mr_time_ns();
    bool killed = false;
    atomic_store(&p->head->closed, 1);
    atomic_fetch_add(&p->head->work, 1);
    mr_futex_wake(&p->head->work, INT_MAX);
    while (count_running(p) > 0) {
        uint64_t now = mr_time_ns();
        if (now - start > KILLED_NS)
            break; /* in the kernel: not even a signal ends them now */
        if (!killed && now - start > GRACE_NS) {
            killed = true;
            for (uint32_t i = 0; i < p->n; i++)
                if (p->worker[i].pidfd >= 0)
                    kill_process(&p->worker[i]);
        }
        watch(p, false, 20);
    }
    for (uint32_t i = 0; i < p->n; i++)
        if (p->worker[i].pidfd >= 0)
            close(p->worker[i].pidfd);
}

static void *monitor_main(void *arg)
{
    struct mr_process_pool *p = arg;
    while (!atomic_load(&p->closing)) {
        uint64_t now = mr_time_ns();
        for (uint32_t i = 0; i < p->n; i++)
            if (p->worker[i].retry_ns > 0 && p->worker[i].retry_ns <= now)
                restart(p, i);
        if (p->timeout_ns > 0)
            kill_slow(p, now);
        watch(p, true, next_tick(p, now));
    }
    end_all(p);
    return NULL;
}

/* ---- opening and closing ---- */

static int start_all(struct mr_process_pool *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        int rc = start_process(p, i);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_monitor_open(struct mr_process_pool *p)
{
    struct mr_error_kept kept;
    p->wake = eventfd(0, EFD_CLOEXEC);
    if (p->wake < 0)
        return mr_error_errno(errno, "%s: eventfd", p->user.name);
    int rc = start_all(p);
    if (rc == 0)
        rc = mr_thread_start(&p->monitor, "mr-workers", monitor_main, p);
    if (rc == 0) {
        p->has_monitor = true;
        return 0;
    }
    mr_error_keep(rc, &kept);
    atomic_store(&p->closing, true);
    end_all(p);
    close(p->wake);
    return mr_error_put(&kept);
}

void mr_monitor_close(struct mr_process_pool *p)
{
    uint64_t one = 1;
    atomic_store(&p->closing, true);
    if (write(p->wake, &one, sizeof one) < 0) /* an eventfd at its start: there is room */
        mr_log(MR_LOG_WARNING, "%s: eventfd: %s", p->user.name, mr_strerror(-errno));
    pthread_join(p->monitor, NULL);
    close(p->wake);
}
