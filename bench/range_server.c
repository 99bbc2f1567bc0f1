/*
 * A server of ranges for bench/remote.sh: each answer leaves LATENCY_MS after its request came,
 * however many wait at the same time, and its bytes go from the page cache to the socket by
 * sendfile. GET and HEAD, one Range, keep-alive; nothing else. What is not there is looked for by
 * its last part at the top: so one file has as many URLs as bench/shards.py wants.
 *
 * usage: range_server ROOT LATENCY_MS THREADS
 *        prints "PORT n", serves until its standard input ends
 */
#include "base/base.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_THREADS 64
#define HEAD_BYTES  4096
#define EVENTS      256

struct connection {
    /* Of those whose answers are due later: all wait equally long, so first in, first out. */
    struct connection *next;
    int fd, file; /* file: what is being sent; -1: nothing */
    bool waits;   /* for its answer's time */
    uint64_t due_ns;
    off_t at;
    uint64_t left;
    size_t n_in, n_out, sent; /* of the request's head, of the answer's */
    char in[HEAD_BYTES], out[512];
};

struct server {
    int root, listener, epoll;
    uint64_t latency_ns;
    struct connection *first, *last;
    pthread_t thread;
};

static void drop(struct connection *c)
{
    if (c->file >= 0)
        close(c->file);
    close(c->fd);
    free(c);
}

/* ---- requests ---- */

/* The value of a header in a head that ends with an empty line; NULL: it has none. */
static const char *header(const char *head, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':')
            return line + 3 + n + strspn(line + 3 + n, " ");
    return NULL;
}

static void answer_nothing(struct connection *c, const char *status)
{
    c->n_out = (size_t)snprintf(
        c->out, sizeof c->out, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
        status);
}

/* A range of a file: the answer's head, and what is to be sent behind it. */
static void answer_part(struct connection *c, const struct stat *st, const char *range, bool body)
{
    unsigned long long from = 0, last = (unsigned long long)st->st_size - 1;
    int n = range ? sscanf(range, "bytes=%llu-%llu", &from, &last) : 0;
    last = MR_MIN(last, (unsigned long long)st->st_size - 1);
    if ((range && n < 1) || from > last || st->st_size == 0) {
        answer_nothing(c, "416 Range Not Satisfiable");
        return;
    }
    char part[100] = "";
    if (range)
        snprintf(part, sizeof part, "Content-Range: bytes %llu-%llu/%llu\r\n", from, last,
                 (unsigned long long)st->st_size);
    c->n_out = (size_t)snprintf(
        c->out, sizeof c->out,
        "HTTP/1.1 %s\r\n%sContent-Length: %llu\r\nETag: \"%llx-%llx\"\r\nAccept-Ranges: "
        "bytes\r\nConnection: keep-alive\r\n\r\n",
        range ? "206 Partial Content" : "200 OK", part, last - from + 1,
        (unsigned long long)st->st_size, (unsigned long long)st->st_mtim.tv_sec);
    c->at = (off_t)from;
    c->left = body ? last - from + 1 : 0;
}

static void answer(struct server *s, struct connection *c)
{
    char method[8] = "", path[1024] = "";
    struct stat st;
    c->sent = 0;
    c->left = 0;
    if (sscanf(c->in, "%7s /%1023s", method, path) != 2 || strstr(path, "..")) {
        answer_nothing(c, "400 Bad Request");
        return;
    }
    c->file = openat(s->root, path, O_RDONLY | O_CLOEXEC);
    if (c->file < 0 && strrchr(path, '/'))
        c->file = openat(s->root, strrchr(path, '/') + 1, O_RDONLY | O_CLOEXEC);
    if (c->file < 0 || fstat(c->file, &st) || !S_ISREG(st.st_mode))
        answer_nothing(c, "404 Not Found");
    else
        answer_part(c, &st, header(c->in, "Range"), strcmp(method, "HEAD") != 0);
}

/* ---- sockets ---- */

static bool watch(struct server *s, struct connection *c, uint32_t events)
{
    struct epoll_event ev = {.events = events | EPOLLONESHOT, .data.ptr = c};
    return epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &ev) == 0;
}

/* false: the connection has ended. */
static bool send_some(struct server *s, struct connection *c)
{
    while (c->sent < c->n_out) {
        ssize_t n = send(c->fd, c->out + c->sent, c->n_out - c->sent,
                         MSG_NOSIGNAL | (c->left ? MSG_MORE : 0));
        if (n < 0)
            return errno == EAGAIN && watch(s, c, EPOLLOUT);
        c->sent += (size_t)n;
    }
    while (c->left > 0) {
        ssize_t n = sendfile(c->fd, c->file, &c->at, MR_MIN(c->left, 1ull << 30));
        if (n < 0 && errno == EAGAIN)
            return watch(s, c, EPOLLOUT);
        if (n <= 0)
            return false;
        c->left -= (uint64_t)n;
    }
    if (c->file >= 0)
        close(c->file);
    c->file = -1;
    c->n_in = 0;
    return watch(s, c, EPOLLIN);
}

static bool receive(struct server *s, struct connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->n_in, sizeof c->in - 1 - c->n_in, 0);
    if (n <= 0)
        return n < 0 && errno == EAGAIN && watch(s, c, EPOLLIN);
    c->n_in += (size_t)n;
    c->in[c->n_in] = 0;
    if (!strstr(c->in, "\r\n\r\n"))
        return c->n_in < sizeof c->in - 1 && watch(s, c, EPOLLIN);
    answer(s, c);
    c->due_ns = mr_time_ns() + s->latency_ns;
    c->next = NULL;
    c->waits = true;
    if (s->first)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    return true;
}

static void take_connections(struct server *s)
{
    int fd;
    while ((fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = c};
        int on = 1;
        if (c) {
            *c = (struct connection){.fd = fd, .file = -1};
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
        if (c && epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) == 0)
            continue; /* NOLINT(clang-analyzer-unix.Malloc): the epoll has it */
        close(fd);
        free(c);
    }
}

/* Sends what is due. Returns how many ms the next one is away; -1: there is none. */
static int send_due(struct server *s)
{
    uint64_t now = mr_time_ns();
    while (s->first && s->first->due_ns <= now) {
        struct connection *c = s->first;
        s->first = c->next;
        c->waits = false;
        if (!send_some(s, c))
            drop(c);
    }
    return s->first ? (int)((s->first->due_ns - now) / 1000000 + 1) : -1;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    struct epoll_event ev[EVENTS];
    for (;;) {
        int n = epoll_wait(s->epoll, ev, EVENTS, send_due(s));
        for (int i = 0; i < n; i++) {
            struct connection *c = ev[i].data.ptr;
            if (!c)
                take_connections(s);
            else if (!c->waits && /* else it hung up: found when its answer is sent */
                     !(c->n_out > c->sent || c->left ? send_some(s, c) : receive(s, c)))
                drop(c);
        }
    }
    return NULL;
}

/* All threads listen at one port: the kernel deals connections out among them. */
static bool start(struct server *s, int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t size = sizeof at;
    int on = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN};
    if (s->listener < 0 || s->epoll < 0 ||
        setsockopt(s->listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) ||
        bind(s->listener, (struct sockaddr *)&at, sizeof at) || listen(s->listener, 4096) ||
        getsockname(s->listener, (struct sockaddr *)&at, &size) ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &ev))
        return false;
    *port = ntohs(at.sin_port);
    return pthread_create(&s->thread, NULL, serve, s) == 0;
}

int main(int argc, char **argv)
{
    static struct server servers[MAX_THREADS];
    int n = argc == 4 ? atoi(argv[3]) : 0, port = 0;
    int root = n > 0 && n <= MAX_THREADS ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        fprintf(stderr, "usage: range_server ROOT LATENCY_MS THREADS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* sendfile knows no MSG_NOSIGNAL */
    for (int i = 0; i < n; i++) {
        servers[i].root = root;
        servers[i].latency_ns = (uint64_t)(atof(argv[2]) * 1e6);
        if (!start(&servers[i], &port)) {
            perror("range_server");
            return 1;
        }
    }
    printf("PORT %d\n", port);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
