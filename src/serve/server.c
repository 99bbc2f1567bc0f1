/* A server: opening, closing, and its thread. */
#include "serve/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the thread ---- */

/* Where each of them is among those that poll() looks at. */
struct polled {
    struct pollfd fd[3 + 2 * MR_MAX_TRAINERS];
    uint32_t trainer[3 + 2 * MR_MAX_TRAINERS];
    nfds_t n;
};

enum { WAKE = UINT32_MAX, LISTENS = UINT32_MAX - 1, LOADER = UINT32_MAX - 2 };

static void look_at(struct polled *p, int fd, short events, uint32_t who)
{
    if (fd < 0)
        return;
    p->trainer[p->n] = who;
    p->fd[p->n++] = (struct pollfd){.fd = fd, .events = events};
}

static void choose(struct mr_server *s, struct polled *p)
{
    p->n = 0;
    look_at(p, s->wake, POLLIN, WAKE);
    if (s->listen_again_ns == 0)
        look_at(p, s->listens, POLLIN, LISTENS);
    if (mr_publish_may(s))
        look_at(p, mr_loader_fd(s->ld), POLLIN, LOADER);
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        const struct mr_trainer *t = &s->trainer[i];
        if (t->fd < 0)
            continue;
        look_at(p, t->fd, (short)(t->full ? POLLIN | POLLOUT : POLLIN), i);
        look_at(p, t->watch, POLLIN, i);
    }
}

static void take_added(struct mr_server *s)
{
    int fd[MR_MAX_TRAINERS], n;
    uint64_t count;
    (void)!read(s->wake, &count, sizeof count);
    pthread_mutex_lock(&s->lock);
    n = s->n_added;
    memcpy(fd, s->added, sizeof fd);
    s->n_added = 0;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n; i++)
        mr_trainers_add(s, fd[i], true);
}

/* Reads before it drops: what a process sent before its end counts. */
static void look_at_trainer(struct mr_server *s, uint32_t i, const struct pollfd *fd)
{
    struct mr_trainer *t = &s->trainer[i];
    if (t->fd == fd->fd) {
        if (fd->revents & POLLOUT)
            t->full = false;
        if (fd->revents & ~POLLOUT)
            mr_trainers_read(s, i);
    } else if (t->fd >= 0 && t->watch == fd->fd) {
        mr_trainers_read(s, i);
        if (t->fd >= 0)
            mr_trainers_drop(s, i);
    }
}

static int choose_timeout(struct mr_server *s)
{
    uint64_t now = mr_time_ns(), ns = mr_trainers_drop_silent(s);
    if (s->listen_again_ns > 0 && s->listen_again_ns <= now)
        s->listen_again_ns = 0;
    if (s->listen_again_ns > 0)
        ns = MR_MIN(ns, s->listen_again_ns - now);
    return ns == UINT64_MAX ? -1 : (int)(ns / 1000000 + 1);
}

/* A place is not used again for another trainer before its turn: mr_trainers_add() comes last. */
static void wait_and_look(struct mr_server *s, struct polled *p)
{
    bool woken = false, accepts = false;
    int timeout = choose_timeout(s);
    choose(s, p);
    if (poll(p->fd, p->n, timeout) <= 0)
        return;
    for (nfds_t i = 0; i < p->n; i++) {
        if (p->fd[i].revents == 0)
            continue;
        if (p->trainer[i] == WAKE)
            woken = true;
        else if (p->trainer[i] == LISTENS)
            accepts = true;
        else if (p->trainer[i] != LOADER)
            look_at_trainer(s, p->trainer[i], &p->fd[i]);
    }
    if (woken)
        take_added(s);
    if (accepts && s->listens >= 0)
        mr_trainers_accept(s);
}

/* All that was handed out has been released, and all know that there is no more. */
static bool is_over(struct mr_server *s)
{
    if (atomic_load(&s->cancelled)) {
        if (s->end.code == 0 && s->base < s->next)
            s->ended = false; /* the end that was found is not reached */
        mr_publish_end(s, mr_error_set(MR_ECANCELLED, "the server was cancelled"));
        return true;
    }
    if (!s->ended || s->base < s->next)
        return false;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++)
        if (mr_trainer_is_attached(&s->trainer[i]) && !s->trainer[i].told)
            return false;
    return true;
}

static void note_slowest(struct mr_server *s, struct mr_server_info *info)
{
    uint64_t oldest = s->next;
    info->slowest = 0;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        const struct mr_trainer *t = &s->trainer[i];
        if (!mr_trainer_is_attached(t) || mr_publish_oldest(s, i) >= oldest)
            continue;
        oldest = t->oldest;
        info->slowest = t->pid;
    }
    info->behind = s->next - oldest;
}

static void update_info(struct mr_server *s)
{
    uint64_t held = 0;
    for (uint64_t number = s->base; number < s->next; number++)
        held += mr_server_entry(s, number)->holders != 0;
    pthread_mutex_lock(&s->lock);
    s->info.trainers = mr_trainers_count(s);
    s->info.batches = s->next;
    s->info.held = held;
    note_slowest(s, &s->info);
    pthread_mutex_unlock(&s->lock);
}

/* Trainers go on with what they were sent. */
static void finish(struct mr_server *s)
{
    mr_trainers_send(s);
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        struct mr_trainer *t = &s->trainer[i];
        if (t->fd < 0)
            continue;
        shutdown(t->fd, SHUT_RDWR); /* children may have inherited it */
        close(t->fd);
        if (t->watch >= 0)
            close(t->watch);
        t->fd = -1;
    }
    pthread_mutex_lock(&s->lock);
    s->info.trainers = 0;
    s->done = true;
    s->code = s->end.code;
    s->error.code = s->end.code;
    memcpy(s->error.text, s->end.text, sizeof s->error.text);
    while (s->n_added > 0)
        close(s->added[--s->n_added]);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *server_main(void *arg)
{
    struct mr_server *s = arg;
    struct polled p;
    for (;;) {
        mr_publish(s);
        mr_trainers_send(s);
        update_info(s);
        if (is_over(s))
            break;
        wait_and_look(s, &p);
    }
    finish(s);
    return NULL;
}

/* ---- opening ---- */

void mr_serve_opts_fill(struct mr_serve_opts *opts, size_t size)
{
    const struct mr_serve_opts full = {.size = sizeof full, .ahead = -1, .wait_for = 1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int read_opts(const struct mr_serve_opts *opts, struct mr_loader *ld, struct mr_server *s)
{
    struct mr_serve_opts o;
    struct mr_loader_stats stats = {.size = sizeof stats};
    mr_serve_opts_init(&o);
    int rc = opts ? mr_opts_take("serve_opts", opts, &o, sizeof o) : 0;
    if (rc < 0)
        return rc;
    if (o.ahead < -1 || o.ahead > MR_MAX_AHEAD)
        return mr_error_set(MR_EOPTION, "ahead: %lld: expected -1..%d batches", (long long)o.ahead,
                            MR_MAX_AHEAD);
    if (o.wait_for > MR_MAX_TRAINERS)
        return mr_error_set(MR_EOPTION, "wait_for: %u: expected 0..%d trainers", o.wait_for,
                            MR_MAX_TRAINERS);
    rc = mr_loader_stats(ld, &stats);
    if (rc < 0)
        return rc;
    s->ahead = o.ahead >= 0 ? (uint64_t)o.ahead : stats.prefetch / 2;
    s->wait_for = MR_MAX(o.wait_for, 1);
    if (o.address) {
        s->address = strdup(o.address);
        if (!s->address)
            return mr_error_nomem("mr_loader_serve", strlen(o.address));
    }
    return 0;
}

/* The parts, all but the thread. free_parts() undoes what there is. */
static int open_parts(struct mr_server *s)
{
    char path[64];
    int rc = mr_loader_shared(s->ld, &s->memory);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "/proc/self/fd/%d", mr_shared_memory_fd(s->memory));
    s->read_only = open(path, O_RDONLY | O_CLOEXEC);
    s->entry = calloc(s->ahead + 1, sizeof *s->entry);
    if (!s->entry)
        return mr_error_nomem("mr_loader_serve", (s->ahead + 1) * sizeof *s->entry);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0)
        return mr_error_errno(errno, "mr_loader_serve: eventfd");
    rc = mr_loader_fd(s->ld);
    if (rc < 0)
        return rc;
    if (s->address) {
        s->listens = mr_wire_listen(s->address, &s->file);
        if (s->listens < 0)
            return s->listens;
    }
    return mr_thread_start(&s->thread, "mr-server", server_main, s);
}

static void free_parts(struct mr_server *s)
{
    if (s->listens >= 0)
        mr_wire_unlisten(s->listens, s->address, &s->file);
    if (s->wake >= 0)
        close(s->wake);
    if (s->read_only >= 0)
        close(s->read_only);
    mr_publish_close(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->address);
    free(s);
}

int mr_loader_serve(struct mr_loader *ld, const struct mr_serve_opts *opts, struct mr_server **out)
{
    struct mr_error_kept kept;
    if (!ld || !out)
        return mr_error_null("mr_loader_serve", "a loader and a place for the result");
    struct mr_server *s = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem("mr_loader_serve", sizeof *s);
    s->ld = ld;
    s->wake = s->listens = s->read_only = -1;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++)
        s->trainer[i].fd = -1;
    mr_process_note(&s->process);
    pthread_mutex_init(&s->lock, NULL);
    mr_cond_init(&s->changed);
    int rc = read_opts(opts, ld, s);
    if (rc == 0)
        rc = open_parts(s);
    if (rc == 0) {
        *out = s;
        return 0;
    }
    mr_error_keep(rc, &kept);
    free_parts(s);
    return mr_error_put(&kept);
}

/* ---- calls ---- */

static int check(const struct mr_server *s, const char *call)
{
    return s ? mr_process_check(&s->process, "this server") : mr_error_null(call, "a server");
}

static void wake(const struct mr_server *s)
{
    int before = errno;
    (void)!write(s->wake, &(uint64_t){1}, sizeof(uint64_t));
    errno = before;
}

int mr_server_add(struct mr_server *s, int fd)
{
    int rc = check(s, "mr_server_add");
    if (rc < 0)
        return rc;
    rc = mr_wire_check(fd, "mr_server_add");
    if (rc < 0)
        return rc;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pthread_mutex_lock(&s->lock); /* behind it the server may have closed it */
    bool done = s->done, full = s->n_added == MR_MAX_TRAINERS;
    if (!done && !full)
        s->added[s->n_added++] = fd;
    pthread_mutex_unlock(&s->lock);
    if (done)
        return mr_error_set(MR_EMISUSE, "mr_server_add: the server has ended");
    if (full)
        return mr_error_set(MR_ELIMIT, "mr_server_add: %d trainers wait to be added already",
                            MR_MAX_TRAINERS);
    wake(s);
    return 0;
}

int mr_server_wait(struct mr_server *s, int64_t timeout_ns)
{
    int rc = check(s, "mr_server_wait");
    if (rc < 0)
        return rc;
    uint64_t until_ns = 0;
    bool limited = timeout_ns >= 0 && mr_add(mr_time_ns(), (uint64_t)timeout_ns, &until_ns);
    pthread_mutex_lock(&s->lock);
    while (!s->done && !(limited && mr_time_ns() >= until_ns)) {
        if (limited)
            mr_cond_wait_until(&s->changed, &s->lock, until_ns);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    bool done = s->done;
    pthread_mutex_unlock(&s->lock);
    if (!done)
        return mr_error_set(-ETIMEDOUT, "the server has batches to hand out");
    return s->code < 0 ? mr_error_put(&s->error) : 0;
}

int mr_server_query(struct mr_server *s, struct mr_server_info *out)
{
    int rc = check(s, "mr_server_query");
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&s->lock);
    struct mr_server_info info = s->info;
    pthread_mutex_unlock(&s->lock);
    info.size = sizeof info;
    info.ahead = s->ahead;
    return mr_info_give("server_info", out, &info, sizeof info);
}

void mr_server_cancel(struct mr_server *s)
{
    if (!s || !mr_process_is(&s->process))
        return;
    atomic_store(&s->cancelled, true);
    wake(s);
}

void mr_server_close(struct mr_server *s)
{
    if (!s || !mr_process_is(&s->process))
        return;
    mr_server_cancel(s);
    pthread_join(s->thread, NULL);
    free_parts(s);
}
