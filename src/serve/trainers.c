/* Trainers: attached, sent to, read from, dropped. */
#include "serve/server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS 5000000000ull
#define RETRY_NS 100000000ull

uint32_t mr_trainers_count(const struct mr_server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++)
        n += mr_trainer_is_attached(&s->trainer[i]);
    return n;
}

/* Tells a process why it cannot attach: this thread's error. */
static void refuse(int fd, int code)
{
    struct mr_wire_end end;
    mr_wire_fill_end(&end, code);
    mr_wire_send(fd, &end, sizeof end, -1);
}

void mr_trainers_add(struct mr_server *s, int fd, bool checked)
{
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        if (s->trainer[i].fd >= 0)
            continue;
        s->trainer[i] = (struct mr_trainer){
            .fd = fd, .watch = -1, .hello_ns = mr_time_ns() + HELLO_NS, .checked = checked};
        if (checked) /* its trainer may start much later */
            s->trainer[i].hello_ns = UINT64_MAX;
        return;
    }
    refuse(fd, mr_error_set(MR_ELIMIT, "the server has %d trainers already", MR_MAX_TRAINERS));
    close(fd);
}

/* Without descriptors a connection stays readable: look again later. */
void mr_trainers_accept(struct mr_server *s)
{
    for (;;) {
        int fd = accept4(s->listens, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN) {
            mr_log(MR_LOG_WARNING, "serving: a trainer cannot attach: %s", mr_strerror(-errno));
            s->listen_again_ns = mr_time_ns() + RETRY_NS;
        }
        if (fd < 0)
            return;
        if (mr_wire_is_ours(fd)) {
            mr_trainers_add(s, fd, false);
            continue;
        }
        refuse(fd, mr_error_set(-EACCES, "the server belongs to another user (%lld)",
                                (long long)geteuid()));
        close(fd);
    }
}

/* Who leaves is not waited for; who was killed may have left children with the socket. */
void mr_trainers_drop(struct mr_server *s, uint32_t i)
{
    struct mr_trainer *t = &s->trainer[i];
    bool attached = mr_trainer_is_attached(t);
    shutdown(t->fd, SHUT_RDWR);
    close(t->fd);
    if (t->watch >= 0)
        close(t->watch);
    t->fd = -1;
    if (!attached)
        return;
    mr_publish_drop(s, i);
    if (t->leaves)
        return;
    mr_log(MR_LOG_INFO, "serving: process %lld ended without detaching", (long long)t->pid);
    pthread_mutex_lock(&s->lock);
    s->info.dropped++;
    pthread_mutex_unlock(&s->lock);
}

uint64_t mr_trainers_drop_silent(struct mr_server *s)
{
    uint64_t now = mr_time_ns(), next = UINT64_MAX;
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        const struct mr_trainer *t = &s->trainer[i];
        if (t->fd < 0 || t->hello_ns == 0 || t->hello_ns == UINT64_MAX)
            continue;
        if (t->hello_ns <= now)
            mr_trainers_drop(s, i);
        else
            next = MR_MIN(next, t->hello_ns - now);
    }
    return next;
}

/* ---- sending ---- */

/* -EAGAIN: its socket is full. */
static int send_one(struct mr_server *s, uint32_t i, const void *message, size_t bytes, int fd)
{
    struct mr_trainer *t = &s->trainer[i];
    int rc = mr_wire_send(t->fd, message, bytes, fd);
    t->full = rc == -EAGAIN || rc == -ENOBUFS;
    return t->full ? -EAGAIN : rc;
}

static int send_batch(struct mr_server *s, uint32_t i)
{
    const struct mr_entry *e = mr_server_entry(s, s->trainer[i].next);
    struct mr_wire_batch batch = {
        .kind = MR_WIRE_BATCH,
        .slot = e->place.slot,
        .note = (uint32_t)(e - s->entry),
        .number = e->number,
        .offset = e->place.offset,
        .bytes = e->place.bytes,
        .note_offset = e->note.offset,
        .note_bytes = e->note.bytes,
    };
    return send_one(s, i, &batch, sizeof batch, -1);
}

static int send_to(struct mr_server *s, uint32_t i)
{
    struct mr_trainer *t = &s->trainer[i];
    for (; t->next < s->next; t->next++) {
        int rc = send_batch(s, i);
        if (rc < 0)
            return rc;
    }
    if (!s->ended || t->told)
        return 0;
    int rc = send_one(s, i, &s->end, sizeof s->end, -1);
    t->told = rc == 0;
    return rc;
}

void mr_trainers_send(struct mr_server *s)
{
    for (uint32_t i = 0; i < MR_MAX_TRAINERS; i++) {
        struct mr_trainer *t = &s->trainer[i];
        if (!mr_trainer_is_attached(t) || t->full)
            continue;
        int rc = send_to(s, i);
        if (rc == 0 || rc == -EAGAIN)
            continue;
        mr_trainers_read(s, i); /* it may have said that it leaves */
        if (t->fd >= 0)
            mr_trainers_drop(s, i);
    }
}

/* ---- reading ---- */

static int welcome(struct mr_server *s, uint32_t i, bool writes)
{
    const struct mr_spec *spec;
    struct mr_wire_welcome w = {.kind = MR_WIRE_WELCOME,
                                .mark = MR_SERVE_MARK,
                                .batches = mr_loader_batches(s->ld),
                                .samples = mr_loader_samples(s->ld),
                                .ahead = s->ahead,
                                .missed = s->next};
    while ((spec = mr_loader_field(s->ld, w.n_fields)) && w.n_fields < MR_MAX_FIELDS)
        w.field[w.n_fields++] = *spec;
    int fd = writes || s->read_only < 0 ? mr_shared_memory_fd(s->memory) : s->read_only;
    return send_one(s, i, &w, sizeof w, fd);
}

static int check_hello(const struct mr_trainer *t, const union mr_wire *in,
                       const struct mr_received *got)
{
    if (in->hello.mark != MR_SERVE_MARK)
        return mr_error_set(MR_EFORMAT, "the server has another version of libmillrace");
    if (!t->checked && got->uid != (int64_t)geteuid() && got->uid != 0)
        return mr_error_set(-EACCES, "the server belongs to another user (%lld)",
                            (long long)geteuid());
    return 0;
}

/* From the next batch on. */
static bool attach(struct mr_server *s, uint32_t i, const union mr_wire *in,
                   const struct mr_received *got)
{
    struct mr_trainer *t = &s->trainer[i];
    int rc = check_hello(t, in, got);
    if (rc < 0) {
        refuse(t->fd, rc);
        return false;
    }
    t->watch = mr_wire_watch(got->pid);
    if (t->watch < 0 && got->pid > 0 && errno != ENOSYS && errno != EPERM) {
        refuse(t->fd,
               mr_error_errno(errno, "the server cannot watch process %lld", (long long)got->pid));
        return false;
    }
    if (welcome(s, i, in->hello.writes) < 0)
        return false;
    t->pid = got->pid;
    t->next = t->oldest = s->next;
    t->hello_ns = 0;
    pthread_mutex_lock(&s->lock);
    s->info.attached++;
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* false: drop it. */
static bool handle(struct mr_server *s, uint32_t i, const union mr_wire *in, int64_t n,
                   const struct mr_received *got)
{
    struct mr_trainer *t = &s->trainer[i];
    bool attached = t->hello_ns == 0;
    if (!attached)
        return in->kind == MR_WIRE_HELLO && n == sizeof in->hello && attach(s, i, in, got);
    if (n != sizeof in->release)
        return false;
    if (in->kind == MR_WIRE_LEAVE)
        t->leaves = true;
    else if (in->kind != MR_WIRE_RELEASE || !mr_publish_release(s, i, in->release.number))
        return false;
    return true;
}

void mr_trainers_read(struct mr_server *s, uint32_t i)
{
    struct mr_trainer *t = &s->trainer[i];
    while (t->fd >= 0) {
        union mr_wire in;
        struct mr_received got = {.fd = -1};
        int64_t n = mr_wire_recv(t->fd, &in, &got);
        if (n == -EAGAIN)
            return;
        if (got.fd >= 0) /* nobody asked for one */
            close(got.fd);
        if (n <= 0 || !handle(s, i, &in, n, &got))
            mr_trainers_drop(s, i);
    }
}
