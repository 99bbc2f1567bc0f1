/* A worker process: takes jobs, makes their samples, and ends with its parent. */
#include "dataset/workers/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOT_MADE      1 /* what rc[] is preset to */
#define SPINS         300
#define CHECK_NS      200000000 /* is the parent alive? Where no thread can watch it. */
#define START_WAIT_NS 500000

struct child {
    int fd;
    struct mr_shared_head *head;
    uint64_t bytes;
    const struct mr_worker_opts *opts;
    uint32_t id;
    void *state;
    int parent; /* pidfd */
    bool spins;
};

/* ---- the parent ---- */

static bool parent_ended(const struct child *c)
{
    struct pollfd p = {.fd = c->parent, .events = POLLIN};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static void *watch_parent(void *arg)
{
    struct pollfd p = {.fd = (int)(intptr_t)arg, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        continue;
    if (p.revents & POLLIN)
        kill(getpid(), SIGKILL);
    return NULL;
}

/* The watching thread handles no signals: those are for the user's code. */
static void start_watching(const struct child *c)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = mr_thread_start(&thread, "mr-parent", watch_parent, (void *)(intptr_t)c->parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_detach(thread);
}

/* ---- attaching ---- */

static int not_ours(int fd)
{
    return mr_error_set(MR_EFORMAT,
                        "mr_worker_run: descriptor %d is not what mr_workers_opts.start got from "
                        "this version of the library",
                        fd);
}

static int map(struct child *c, int fd)
{
    struct stat st;
    void *at = NULL;
    c->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* the user's code may close its own */
    if (c->fd < 0 || fstat(c->fd, &st) < 0)
        return mr_error_errno(errno, "mr_worker_run: descriptor %d", fd);
    if (st.st_size < (off_t)sizeof *c->head)
        return not_ours(fd);
    int rc = mr_memfd_map("mr_worker_run", c->fd, 0, (uint64_t)st.st_size, &at);
    if (rc < 0)
        return rc;
    c->head = at;
    c->bytes = (uint64_t)st.st_size;
    return c->head->mark == MR_WORKERS_MARK && c->head->bytes <= c->bytes ? 0 : not_ours(fd);
}

/* The parent writes the number of a process that start has returned into its place: which one this
 * is. 0: it ended before. */
static int find_place(struct child *c)
{
    int64_t pid = getpid();
    while (!atomic_load(&c->head->closed) && !parent_ended(c)) {
        uint32_t seen = atomic_load(&c->head->work);
        for (uint32_t i = 0; i < c->head->n_workers; i++)
            if (atomic_load(&c->head->worker[i].pid) == pid) {
                c->id = i;
                return 1;
            }
        mr_futex_wait(&c->head->work, seen, START_WAIT_NS);
    }
    return 0;
}

/* ---- signals ---- */

#define N_SIGNALS 64

uint64_t mr_signals_blocked(void)
{
    sigset_t now;
    uint64_t bits = 0;
    sigemptyset(&now);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int s = 1; s <= N_SIGNALS; s++)
        bits |= sigismember(&now, s) == 1 ? 1ull << (s - 1) : 0;
    return bits;
}

void mr_signals_block(uint64_t bits)
{
    sigset_t set;
    sigemptyset(&set);
    for (int s = 1; s <= N_SIGNALS; s++)
        if (bits >> (s - 1) & 1)
            sigaddset(&set, s); /* the C library keeps some to itself: it refuses these */
    pthread_sigmask(SIG_SETMASK, &set, NULL);
}

static void set_signals(const struct child *c)
{
    struct mr_shared_worker *w = &c->head->worker[c->id];
    if (atomic_load(&w->n_started) == 1)
        atomic_store(&w->blocked, mr_signals_blocked());
    else
        mr_signals_block(atomic_load(&w->blocked));
}

/* ---- jobs ---- */

static struct mr_shared_job *job_of(const struct child *c, uint32_t i)
{
    return mr_shared_job(c->head, c->head->jobs_at, c->head->job_bytes, i);
}

/* The earliest urgent job without an owner; head->n_jobs: none. */
static uint32_t find_urgent(const struct child *c)
{
    struct mr_shared_head *h = c->head;
    uint32_t first = h->n_jobs;
    for (uint32_t w = 0; w < (h->n_jobs + 63) / 64; w++)
        for (uint64_t left = atomic_load(&h->urgent[w]); left; left &= left - 1) {
            uint32_t i = 64 * w + (uint32_t)__builtin_ctzll(left);
            struct mr_shared_job *job = job_of(c, i);
            if (atomic_load(&job->owner) == MR_JOB_NO_OWNER &&
                (first == h->n_jobs ||
                 atomic_load(&job->due) < atomic_load(&job_of(c, first)->due)))
                first = i;
        }
    return first;
}

static void move_front(struct mr_shared_head *h, uint64_t to)
{
    uint64_t at = atomic_load(&h->front);
    while (at < to && !atomic_compare_exchange_weak(&h->front, &at, to))
        ;
}

/* The oldest job without an owner; head->n_jobs: none. A place in the queue whose job has another
 * order belongs to one that was taken, and has been posted again. */
static uint32_t find_queued(const struct child *c)
{
    struct mr_shared_head *h = c->head;
    uint64_t front = atomic_load(&h->front), end = atomic_load(&h->n_queued);
    for (uint64_t at = front; at < end; at++) {
        uint32_t i = atomic_load(&h->queue[at % MR_JOB_QUEUE]);
        struct mr_shared_job *job = job_of(c, i);
        if (atomic_load(&job->owner) != MR_JOB_NO_OWNER || atomic_load(&job->order) != at)
            continue;
        if (at > front)
            move_front(h, at);
        return i;
    }
    move_front(h, end);
    return h->n_jobs;
}

/* An urgent one before those of its own run and of later ones. */
static uint32_t find_job(const struct child *c)
{
    const uint32_t none = c->head->n_jobs;
    uint32_t urgent = find_urgent(c), queued = none;
    if (urgent == none || atomic_load(&job_of(c, urgent)->due) > 0)
        queued = find_queued(c);
    if (urgent == none || queued == none)
        return urgent == none ? queued : urgent;
    bool earlier = atomic_load(&job_of(c, urgent)->due) <= atomic_load(&job_of(c, queued)->due);
    return earlier ? urgent : queued;
}

/* Takes a job. NULL: there is none. */
static struct mr_shared_job *take(struct child *c)
{
    struct mr_shared_head *h = c->head;
    for (uint32_t i; (i = find_job(c)) < h->n_jobs;) {
        struct mr_shared_job *job = job_of(c, i);
        uint32_t none = MR_JOB_NO_OWNER;
        if (!atomic_compare_exchange_strong(&job->owner, &none, c->id + 1))
            continue;
        uint64_t order = atomic_load(&job->order), bit = 1ull << i % 64;
        if (order != MR_URGENT && order == atomic_load(&h->front))
            move_front(h, order + 1);
        if (atomic_load(&h->urgent[i / 64]) & bit)
            atomic_fetch_and(&h->urgent[i / 64], ~bit);
        atomic_store(&job->start_ns, mr_time_ns());
        return job;
    }
    return NULL;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void sleep_for_work(struct child *c)
{
    struct mr_shared_head *h = c->head;
    _Atomic uint64_t *word = &h->asleep[c->id / 64];
    uint64_t bit = 1ull << c->id % 64;
    uint32_t seen = atomic_load(&h->work);
    for (int i = 0; c->spins && i < SPINS; i++) {
        if (atomic_load_explicit(&h->work, memory_order_relaxed) != seen)
            return;
        pause_briefly();
    }
    atomic_fetch_or(word, bit);
    if (find_job(c) == h->n_jobs && !atomic_load(&h->closed))
        mr_futex_wait(&h->work, seen, CHECK_NS);
    atomic_fetch_and(word, ~bit);
}

/* The memory has grown by the slots of a loader: maps all of it again. job: at its new address. */
static int grow(struct child *c, struct mr_shared_job **job)
{
    struct stat st;
    uint64_t at = (uint64_t)((unsigned char *)*job - (unsigned char *)c->head);
    if (fstat(c->fd, &st) < 0)
        return mr_error_errno(errno, "mr_worker_run: descriptor %d", c->fd);
    void *moved = mremap(c->head, c->bytes, (size_t)st.st_size, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED)
        return mr_error_errno(errno, "mr_worker_run: cannot map %lld bytes of shared memory",
                              (long long)st.st_size);
    c->head = moved;
    c->bytes = (uint64_t)st.st_size;
    *job = (struct mr_shared_job *)((unsigned char *)moved + at);
    return 0;
}

static int cover(struct child *c, struct mr_shared_job **job)
{
    uint64_t last = 0, n_fields = (uint64_t)c->head->n_fields;
    const uint64_t *at = mr_shared_places(*job, n_fields, 0);
    for (uint64_t i = 0; i < (*job)->n * n_fields; i++)
        last = MR_MAX(last, at[i] + c->head->row_bytes);
    return last <= c->bytes ? 0 : grow(c, job);
}

/* What the callback gets. */
struct call {
    struct mr_sample_context context[MR_JOB_ROWS];
    void *row[MR_JOB_ROWS][MR_MAX_FIELDS];
    uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK];
    int rc[MR_JOB_ROWS];
};

static void prepare(const struct child *c, struct mr_shared_job *job, struct call *call)
{
    struct mr_shared_head *h = c->head;
    for (uint32_t i = 0; i < job->n; i++) {
        const uint64_t *at = mr_shared_places(job, (uint64_t)h->n_fields, i);
        call->context[i] = (struct mr_sample_context){.size = sizeof call->context[i],
                                                      .index = job->row[i].index,
                                                      .epoch = job->row[i].epoch,
                                                      .seed = job->row[i].seed,
                                                      .position = job->row[i].position,
                                                      .worker = c->id,
                                                      .worker_state = c->state};
        call->rc[i] = NOT_MADE;
        for (int f = 0; f < h->n_fields; f++)
            call->row[i][f] = (unsigned char *)h + at[f];
    }
}

/* The dimensions that the callback finds; once for all jobs, since keep_dims() sets them again. */
static void set_dims(const struct child *c, uint64_t dim[][MR_MAX_RANK])
{
    for (int f = 0; f < c->head->n_fields; f++)
        memcpy(dim[f], c->head->field[f].dim, sizeof dim[f]);
}

/* Passes on a sample's dimensions if they are not the fields' own, which the parent knows. */
static void keep_dims(const struct child *c, struct mr_shared_job *job, uint32_t i,
                      uint64_t dim[][MR_MAX_RANK])
{
    const struct mr_shared_head *h = c->head;
    bool same = true;
    for (int f = 0; f < h->n_fields && same; f++)
        same = memcmp(dim[f], h->field[f].dim, sizeof dim[f]) == 0;
    job->result[i].has_dims = !same;
    if (same)
        return;
    uint64_t n_fields = (uint64_t)h->n_fields;
    memcpy(mr_shared_dims(job, n_fields, i), dim, n_fields * sizeof dim[0]);
    set_dims(c, dim);
}

static void keep_text(struct mr_shared_job *job, uint32_t i, uint64_t errors)
{
    job->result[i].has_text = mr_error_count() != errors && mr_last_error()[0];
    if (job->result[i].has_text)
        snprintf(job->text[i], sizeof job->text[i], "%s", mr_last_error());
}

static int ask(const struct child *c, struct call *call, uint32_t from, uint32_t n)
{
    return c->opts->get_run(c->opts->user, n, &call->context[from],
                            (void *const(*)[MR_MAX_FIELDS]) & call->row[from], &call->dim[from],
                            &call->rc[from]);
}

/* Of several, one that failed is asked for alone: then the last error's text is its own. */
static void make(const struct child *c, struct mr_shared_job *job, struct call *call)
{
    uint64_t errors = mr_error_count();
    int all = ask(c, call, 0, job->n);
    for (uint32_t i = 0; i < job->n; i++) {
        job->result[i].has_text = 0;
        if (all == 0 && call->rc[i] < 0 && job->n > 1) {
            call->rc[i] = NOT_MADE;
            errors = mr_error_count();
            int one = ask(c, call, i, 1);
            call->rc[i] = one == 0 ? call->rc[i] : one;
        }
        job->result[i].rc = all == 0 ? call->rc[i] : all;
        if (job->result[i].rc != 0)
            keep_text(job, i, errors);
        keep_dims(c, job, i, call->dim[i]);
    }
}

static void finish(const struct child *c, struct mr_shared_job *job)
{
    atomic_fetch_add(&c->head->worker[c->id].n_made, job->n);
    job->took_ns = mr_time_ns() - atomic_load(&job->start_ns);
    atomic_store(&job->state, MR_JOB_DONE);
    if (atomic_load(&job->waiting))
        mr_futex_wake(&job->state, 1);
}

/* Its samples cannot be made here. */
static void refuse(const struct child *c, struct mr_shared_job *job, int rc, uint64_t errors)
{
    for (uint32_t i = 0; i < job->n; i++) {
        job->result[i].rc = rc;
        keep_text(job, i, errors);
    }
    finish(c, job);
}

/* Until the parent is done or gone. */
static int work(struct child *c, struct call *call)
{
    while (!atomic_load(&c->head->closed) && !parent_ended(c)) {
        struct mr_shared_job *job;
        while (!atomic_load(&c->head->closed) && (job = take(c))) {
            uint64_t errors = mr_error_count();
            int rc = cover(c, &job);
            if (rc < 0) {
                refuse(c, job, rc, errors);
                return rc;
            }
            prepare(c, job, call);
            make(c, job, call);
            finish(c, job);
        }
        sleep_for_work(c);
    }
    return 0;
}

/* ---- running ---- */

static int enter(struct child *c)
{
    uint64_t errors = mr_error_count();
    int rc = c->opts->init ? c->opts->init(c->opts->user, c->id, &c->state) : 0;
    struct mr_shared_worker *w = &c->head->worker[c->id];
    if (rc == 0) {
        atomic_store(&w->ready, 1);
        return 0;
    }
    rc = rc < 0 ? rc : MR_ECALLBACK;
    if (mr_error_count() == errors)
        mr_error_set(rc, "init: %s", mr_strerror(rc));
    snprintf(w->text, sizeof w->text, "%s", mr_last_error());
    atomic_store(&w->code, rc);
    return rc;
}

static int run(struct child *c)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return mr_error_nomem("mr_worker_run", sizeof *call);
    call->dim = calloc(MR_JOB_ROWS, sizeof *call->dim);
    for (uint32_t i = 0; i < MR_JOB_ROWS && call->dim; i++)
        set_dims(c, call->dim[i]);
    int rc = call->dim ? enter(c) : mr_error_nomem("mr_worker_run", sizeof *call->dim);
    if (rc == 0) {
        rc = work(c, call);
        if (c->opts->exit)
            c->opts->exit(c->opts->user, c->id, c->state);
    }
    free(call->dim);
    free(call);
    return rc;
}

static int attach(struct child *c, int fd)
{
    int rc = map(c, fd);
    if (rc < 0 || !c->head)
        return rc;
    c->parent = (int)syscall(SYS_pidfd_open, (pid_t)c->head->parent, 0);
    if (c->parent < 0 && errno == ESRCH)
        return 0; /* it has ended */
    if (c->parent < 0)
        return mr_error_errno(errno, "mr_worker_run: pidfd_open(%lld)", (long long)c->head->parent);
    c->spins = mr_cpu_count() > 1;
    return find_place(c);
}

void mr_worker_opts_fill(struct mr_worker_opts *opts, size_t size)
{
    struct mr_worker_opts full = {.size = sizeof full};
    mr_opts_copy(opts, size, &full, sizeof full);
}

int mr_worker_run(int fd, const struct mr_worker_opts *opts)
{
    struct mr_worker_opts o = {.size = sizeof o};
    struct child c = {.opts = &o, .fd = -1, .parent = -1};
    if (!opts)
        return mr_error_null("mr_worker_run", "options");
    int rc = mr_opts_take("worker_opts", opts, &o, sizeof o);
    if (rc < 0)
        return rc;
    if (!o.get_run)
        return mr_error_set(MR_EMISUSE, "mr_worker_run: no get_run function");
    rc = attach(&c, fd);
    if (rc > 0) {
        set_signals(&c);
        start_watching(&c);
        rc = run(&c);
        c.parent = -1; /* the thread's, until the process ends */
    }
    if (c.parent >= 0)
        close(c.parent);
    if (c.fd >= 0)
        close(c.fd);
    if (c.head)
        munmap(c.head, c.bytes);
    return rc;
}
