/* Sockets, and messages with descriptors and credentials. */
#include "serve/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG      64
#define LOCK_TRIES   100
#define LOCK_WAIT_NS 10000000

static int make_address(const char *text, struct sockaddr_un *out, socklen_t *bytes)
{
    size_t n = strlen(text);
    bool abstract = text[0] == '@';
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n < 1 + (size_t)abstract || n >= sizeof out->sun_path)
        return mr_error_set(MR_EOPTION,
                            "address '%s': expected a path or \"@name\" of at most %zu bytes", text,
                            sizeof out->sun_path - 1);
    memcpy(out->sun_path, text, n);
    if (abstract)
        out->sun_path[0] = '\0';
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    return 0;
}

static int make_socket(const char *address)
{
    int on = 1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return mr_error_errno(errno, "%s: socket", address);
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on); /* accepted ones inherit it */
    return fd;
}

int mr_wire_check(int fd, const char *call)
{
    int domain = 0, type = 0, on = 1;
    socklen_t n = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0)
        return mr_error_errno(errno, "%s: descriptor %d", call, fd);
    n = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0 || domain != AF_UNIX ||
        type != SOCK_SEQPACKET)
        return mr_error_set(MR_EOPTION,
                            "%s: descriptor %d: expected a Unix socket of type SOCK_SEQPACKET",
                            call, fd);
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    return 0;
}

int mr_wire_connect(const char *address)
{
    struct sockaddr_un to;
    socklen_t bytes = 0;
    int rc = make_address(address, &to, &bytes);
    if (rc < 0)
        return rc;
    int fd = make_socket(address);
    if (fd < 0)
        return fd;
    if (connect(fd, (const struct sockaddr *)&to, bytes) == 0)
        return fd;
    rc = mr_error_errno(errno, "%s: no server to attach to", address);
    close(fd);
    return rc;
}

/* A file that a server left which was killed. */
static bool is_stale(const char *address)
{
    struct stat st;
    if (address[0] == '@' || lstat(address, &st) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = mr_wire_connect(address);
    if (fd >= 0)
        close(fd);
    return fd == -ECONNREFUSED;
}

/* Servers that start at once in one folder do so one after the other. -1: not possible here. */
static int lock_folder(const char *address)
{
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    if (address[0] == '@')
        return -1;
    snprintf(folder, sizeof folder, "%s", address); /* one that is too long is refused later */
    char *end = strrchr(folder, '/');
    if (end)
        end[end == folder] = 0;
    int fd = open(end ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
    return fd;
}

static int listen_at(const char *address, struct mr_wire_file *file)
{
    struct sockaddr_un at;
    socklen_t bytes = 0;
    struct stat st;
    int rc = make_address(address, &at, &bytes);
    if (rc < 0)
        return rc;
    int fd = make_socket(address);
    if (fd < 0)
        return fd;
    if (fchmod(fd, 0600) < 0) /* the file that bind makes has this mode from the start */
        goto fail;
    if (bind(fd, (const struct sockaddr *)&at, bytes) < 0) {
        int why = errno;
        bool stale = why == EADDRINUSE && is_stale(address) && unlink(address) == 0;
        errno = why;
        if (!stale)
            goto fail;
        if (bind(fd, (const struct sockaddr *)&at, bytes) < 0)
            goto fail;
    }
    *file = (struct mr_wire_file){0};
    if (address[0] != '@' && lstat(address, &st) == 0)
        *file = (struct mr_wire_file){.dev = st.st_dev, .ino = st.st_ino};
    if (listen(fd, BACKLOG) < 0)
        goto fail;
    return fd;
fail:
    rc = mr_error_errno(errno, "%s: a server's socket", address);
    close(fd);
    return rc;
}

int mr_wire_listen(const char *address, struct mr_wire_file *file)
{
    int lock = lock_folder(address);
    int rc = listen_at(address, file);
    if (lock >= 0)
        close(lock);
    return rc;
}

void mr_wire_unlisten(int fd, const char *address, const struct mr_wire_file *file)
{
    struct stat st;
    shutdown(fd, SHUT_RDWR); /* children may have inherited it */
    close(fd);
    if (address[0] != '@' && lstat(address, &st) == 0 && st.st_dev == file->dev &&
        st.st_ino == file->ino)
        unlink(address);
}

bool mr_wire_is_ours(int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/* ---- messages ---- */

/* Room for one descriptor and one sender. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

static struct cmsghdr *add(struct msghdr *m, struct cmsghdr *at, int type, const void *data,
                           size_t n)
{
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(n);
    memcpy(CMSG_DATA(at), data, n);
    m->msg_controllen += CMSG_SPACE(n);
    return (struct cmsghdr *)((char *)at + CMSG_SPACE(n));
}

/* The kernel checks who the sender says that it is. */
int mr_wire_send(int to, const void *message, size_t bytes, int fd)
{
    union control control = {0};
    struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    uint32_t kind;
    ssize_t sent;
    memcpy(&kind, message, sizeof kind);
    if (kind == MR_WIRE_HELLO || kind == MR_WIRE_WELCOME) {
        m.msg_control = control.bytes;
        struct cmsghdr *next = add(&m, &control.align, SCM_CREDENTIALS, &self, sizeof self);
        if (fd >= 0)
            add(&m, next, SCM_RIGHTS, &fd, sizeof fd);
    }
    do
        sent = sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* The first one; the room of one may hold two. */
static void take_descriptors(const struct cmsghdr *at, struct mr_received *out)
{
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= at->cmsg_len; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
        if (out->fd < 0)
            out->fd = fd;
        else
            close(fd);
    }
}

static void read_control(struct msghdr *m, struct mr_received *out)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(m); at; at = CMSG_NXTHDR(m, at)) {
        if (at->cmsg_level != SOL_SOCKET)
            continue;
        if (at->cmsg_type == SCM_RIGHTS) {
            take_descriptors(at, out);
        } else if (at->cmsg_type == SCM_CREDENTIALS &&
                   at->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(at), sizeof sender);
            out->pid = sender.pid;
            out->uid = sender.uid;
        }
    }
}

/* After the other side's end a socket reports ECONNRESET once, and then what was sent before. */
int64_t mr_wire_recv(int from, union mr_wire *in, struct mr_received *out)
{
    union control control;
    struct iovec part = {.iov_base = in, .iov_len = sizeof *in};
    struct mr_received got;
    bool again = true;
    if (out)
        *out = (struct mr_received){.fd = -1, .uid = -1};
    for (;;) {
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
        memset(in, 0, sizeof *in);
        got = (struct mr_received){.fd = -1, .uid = -1};
        ssize_t n = recvmsg(from, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == ECONNRESET) {
            if (!again)
                return 0;
            again = false;
            continue;
        }
        if (n < 0)
            return -errno;
        read_control(&m, &got);
        if (out)
            *out = got;
        else if (got.fd >= 0)
            close(got.fd);
        return n;
    }
}

int mr_wire_watch(int64_t pid)
{
    return pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;
}

void mr_wire_fill_end(struct mr_wire_end *end, int code)
{
    *end = (struct mr_wire_end){
        .kind = code < 0 ? MR_WIRE_FAILED : MR_WIRE_END, .code = code, .mark = MR_SERVE_MARK};
    if (code < 0)
        snprintf(end->text, sizeof end->text, "%s", mr_last_error());
}
