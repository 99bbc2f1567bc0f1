/* Attaching to a server and detaching. */
#include "serve/attached.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_NS    10000000000
#define RETRY_NS     20000000
#define MAX_PREFETCH 64

void mr_attach_opts_fill(struct mr_attach_opts *opts, size_t size)
{
    const struct mr_attach_opts full = {.size = sizeof full, .prefetch = 2, .fd = -1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int read_opts(const char *address, const struct mr_attach_opts *opts,
                     struct mr_attach_opts *o)
{
    mr_attach_opts_init(o);
    int rc = opts ? mr_opts_take("attach_opts", opts, o, sizeof *o) : 0;
    if (rc < 0)
        return rc;
    if ((address == NULL) == (o->fd < 0))
        return mr_error_set(MR_EMISUSE, "mr_loader_attach: expected an address, or opts.fd");
    if (o->prefetch < 1 || o->prefetch > MAX_PREFETCH)
        return mr_error_set(MR_EOPTION, "prefetch: %u: expected 1..%d batches", o->prefetch,
                            MAX_PREFETCH);
    return 0;
}

/* ---- connecting ---- */

static uint64_t limit(int64_t timeout_ns)
{
    uint64_t until;
    if (timeout_ns < 0 || !mr_add(mr_time_ns(), (uint64_t)timeout_ns, &until))
        return UINT64_MAX;
    return until;
}

static int connect_until(const char *address, uint64_t until_ns)
{
    for (;;) {
        int fd = mr_wire_connect(address);
        bool later = fd == -ENOENT || fd == -ECONNREFUSED || fd == -EAGAIN;
        if (fd == -EPROTOTYPE)
            return mr_error_set(MR_EFORMAT, "%s: the socket is not a server's", address);
        if (!later || mr_time_ns() >= until_ns)
            return fd;
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
}

static int open_socket(struct mr_attached *a, const char *address, int fd, uint64_t until_ns)
{
    if (address) {
        snprintf(a->text, sizeof a->text, "%s", address);
        a->fd = connect_until(address, until_ns);
        return a->fd < 0 ? a->fd : 0;
    }
    snprintf(a->text, sizeof a->text, "descriptor %d", fd);
    int rc = mr_wire_check(fd, "mr_loader_attach");
    if (rc < 0)
        return rc;
    a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return a->fd < 0 ? mr_error_errno(errno, "mr_loader_attach: descriptor %d", fd) : 0;
}

static int wait_for_answer(const struct mr_attached *a, uint64_t until_ns, union mr_wire *in,
                           struct mr_received *got, int64_t *n)
{
    for (;;) {
        uint64_t now = mr_time_ns();
        *n = mr_wire_recv(a->fd, in, got);
        if (*n != -EAGAIN)
            return 0;
        if (now >= until_ns)
            return mr_error_set(-ETIMEDOUT, "%s: the server does not answer", a->text);
        struct pollfd fd = {.fd = a->fd, .events = POLLIN};
        poll(&fd, 1, (int)MR_MIN((until_ns - now) / 1000000 + 1, 1000000u));
    }
}

/* What the server said first. */
static int read_answer(struct mr_attached *a, const union mr_wire *in, int64_t n,
                       const struct mr_received *got)
{
    if (n == 0 || n == -ECONNRESET)
        return mr_error_set(-EPIPE, "%s: the server ended before it answered", a->text);
    if (n < 0)
        return mr_error_errno((int)-n, "%s: the server's answer", a->text);
    if (n == sizeof in->end && in->kind == MR_WIRE_FAILED && in->end.mark == MR_SERVE_MARK &&
        in->end.code < 0)
        return mr_error_set(in->end.code, "%s: %.*s", a->text, MR_ERROR_BYTES - 1, in->end.text);
    if (n != sizeof in->welcome || in->kind != MR_WIRE_WELCOME ||
        in->welcome.mark != MR_SERVE_MARK || got->fd < 0 || in->welcome.ahead > MR_MAX_AHEAD ||
        in->welcome.n_fields < 1 || in->welcome.n_fields > MR_MAX_FIELDS)
        return mr_error_set(MR_EFORMAT, "%s: no server, or one of another version of libmillrace",
                            a->text);
    a->welcome = in->welcome;
    a->server = got->pid;
    a->watch = mr_wire_watch(got->pid);
    a->received = a->handed = in->welcome.missed;
    return 0;
}

static int say_hello(struct mr_attached *a, uint64_t until_ns)
{
    struct mr_wire_hello hello = {
        .kind = MR_WIRE_HELLO, .writes = a->device != NULL, .mark = MR_SERVE_MARK};
    union mr_wire in;
    struct mr_received got = {.fd = -1};
    memset(&in, 0, sizeof in);
    int64_t n = mr_wire_send(a->fd, &hello, sizeof hello, -1);
    if (n == 0) {
        int rc = wait_for_answer(a, until_ns, &in, &got, &n);
        if (rc < 0)
            return rc;
    } else if (n == -EPIPE || n == -ECONNRESET) {
        n = mr_wire_recv(a->fd, &in, &got); /* it may have said why */
    }
    a->memory = got.fd;
    return read_answer(a, &in, n, &got);
}

/* ---- the object ---- */

static int open_device(struct mr_attached *a, struct mr_device *device)
{
    struct mr_device_info info = {.size = sizeof info};
    if (!device)
        return 0;
    int rc = mr_device_query(device, &info);
    if (rc < 0 || info.unified)
        return rc;
    a->device = device;
    return mr_transfer_open(a);
}

/* free_all() undoes what there is. */
static int open_parts(struct mr_attached *a, const char *address, const struct mr_attach_opts *o)
{
    uint64_t until_ns = limit(o->timeout_ns);
    int rc = open_device(a, o->device);
    if (rc < 0)
        return rc;
    rc = open_socket(a, address, o->fd, until_ns);
    if (rc < 0)
        return rc;
    rc = say_hello(a, MR_MAX(until_ns, limit(ANSWER_NS)));
    if (rc < 0)
        return rc;
    a->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->wake < 0)
        return mr_error_errno(errno, "mr_loader_attach: eventfd");
    a->item = calloc(a->welcome.ahead + 1, sizeof *a->item);
    return a->item ? 0
                   : mr_error_nomem("mr_loader_attach", (a->welcome.ahead + 1) * sizeof *a->item);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Says good-bye once nothing here reads the server's slots any more. */
static void hang_up(const struct mr_attached *a)
{
    struct mr_wire_release leave = {.kind = MR_WIRE_LEAVE};
    if (a->fd < 0)
        return;
    mr_wire_send(a->fd, &leave, sizeof leave, -1);
    shutdown(a->fd, SHUT_RDWR); /* children may have inherited it */
}

static void free_all(struct mr_attached *a)
{
    if (mr_process_is(&a->process)) {
        mr_transfer_close(a);
        hang_up(a);
        pthread_mutex_destroy(&a->lock);
    }
    mr_views_close(a, &a->slots);
    mr_views_close(a, &a->notes);
    close_fd(a->fd);
    close_fd(a->memory);
    close_fd(a->watch);
    close_fd(a->wake);
    free(a->item);
    free(a);
}

int mr_loader_attach(const char *address, const struct mr_attach_opts *opts,
                     struct mr_attached **out)
{
    struct mr_attach_opts o;
    struct mr_error_kept kept;
    if (!out)
        return mr_error_null("mr_loader_attach", "a place for the result");
    int rc = read_opts(address, opts, &o);
    if (rc < 0)
        return rc;
    struct mr_attached *a = calloc(1, sizeof *a);
    if (!a)
        return mr_error_nomem("mr_loader_attach", sizeof *a);
    a->fd = a->memory = a->watch = a->wake = -1;
    a->prefetch = o.prefetch;
    mr_process_note(&a->process);
    pthread_mutex_init(&a->lock, NULL);
    rc = open_parts(a, address, &o);
    if (rc == 0) {
        *out = a;
        return 0;
    }
    mr_error_keep(rc, &kept);
    free_all(a);
    return mr_error_put(&kept);
}

void mr_attached_close(struct mr_attached *a)
{
    if (a)
        free_all(a);
}

void mr_attached_cancel(struct mr_attached *a)
{
    if (!a || !mr_process_is(&a->process))
        return;
    atomic_store(&a->cancelled, true);
    mr_attached_wake(a);
}

const struct mr_spec *mr_attached_field(const struct mr_attached *a, int field)
{
    return a && field >= 0 && field < a->welcome.n_fields ? &a->welcome.field[field] : NULL;
}

int mr_attached_query(const struct mr_attached *a, struct mr_attached_info *out)
{
    if (!a)
        return mr_error_null("mr_attached_query", "an attached loader");
    int rc = mr_process_check(&a->process, "this attached loader");
    if (rc < 0)
        return rc;
    struct mr_attached_info info = {
        .size = sizeof info,
        .batches = a->welcome.batches,
        .samples = a->welcome.samples,
        .ahead = a->welcome.ahead,
        .missed = a->welcome.missed,
        .taken = atomic_load(&a->taken),
        .wait_ns = atomic_load(&a->wait_ns),
        .server = a->server,
        .n_fields = a->welcome.n_fields,
    };
    return mr_info_give("attached_info", out, &info, sizeof info);
}
