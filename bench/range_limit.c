/*
 * What a server of ranges gives to a client that only takes: CONNECTIONS sockets, each with one
 * request under way, for random ranges of BYTES, read and forgotten. The limit beside which
 * bench/remote.sh shows ours.
 *
 * usage: range_limit [ADDRESS:]PORT PATH FILE_BYTES BYTES CONNECTIONS THREADS SECONDS
 *        ADDRESS: IPv4, 127.0.0.1 by default. Prints "requests/s bytes/s CPU-ns/request"; the
 *        first quarter of the time, when connections are new, is not in the rates.
 */
#include "base/base.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_THREADS 64
#define ROOM        (256u << 10)

struct plan {
    struct sockaddr_in to;
    const char *path;
    uint64_t file_bytes, bytes, start_ns, end_ns;
    int connections;
};

struct client {
    const struct plan *plan;
    pthread_t thread;
    uint64_t requests, draw;
    int n, epoll;
    bool fine;
};

struct connection {
    int fd;
    bool connected, in_body;
    uint64_t left;
};

static bool ask(struct client *k, struct connection *c)
{
    const struct plan *p = k->plan;
    char text[1024];
    k->draw = k->draw * 6364136223846793005ull + 1442695040888963407ull;
    unsigned long long at = (k->draw >> 16) % (p->file_bytes - p->bytes + 1),
                       last = at + p->bytes - 1;
    int n = snprintf(text, sizeof text,
                     "GET /%s HTTP/1.1\r\nHost: localhost\r\nRange: bytes=%llu-%llu\r\n\r\n",
                     p->path, at, last);
    c->in_body = false;
    return n < (int)sizeof text && send(c->fd, text, (size_t)n, MSG_NOSIGNAL) == n;
}

/* Connects without waiting: with a round trip each, hundreds would take seconds. */
static bool dial(struct client *k, struct connection *c)
{
    struct epoll_event ev = {.events = EPOLLOUT, .data.ptr = c};
    const struct sockaddr *to = (const struct sockaddr *)&k->plan->to;
    c->connected = c->in_body = false;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return c->fd >= 0 && (connect(c->fd, to, sizeof k->plan->to) == 0 || errno == EINPROGRESS) &&
           epoll_ctl(k->epoll, EPOLL_CTL_ADD, c->fd, &ev) == 0;
}

static bool greet(struct client *k, struct connection *c)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    c->connected = true;
    return epoll_ctl(k->epoll, EPOLL_CTL_MOD, c->fd, &ev) == 0 && ask(k, c);
}

static bool take(struct client *k, struct connection *c, char *room)
{
    ssize_t n = recv(c->fd, room, ROOM - 1, 0);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0 && !c->in_body) { /* the server ends a connection after some requests */
        close(c->fd);
        return dial(k, c);
    }
    if (n <= 0)
        return false;
    uint64_t got = (uint64_t)n;
    if (!c->in_body) {
        room[n] = 0;
        char *body = strstr(room, "\r\n\r\n"); /* heads are sent in one piece */
        if (!body || strncmp(room, "HTTP/1.1 206", 12) != 0)
            return false;
        c->in_body = true;
        c->left = k->plan->bytes;
        got -= (uint64_t)(body + 4 - room);
    }
    c->left -= MR_MIN(got, c->left);
    if (c->left > 0)
        return true;
    if (mr_time_ns() >= k->plan->start_ns)
        k->requests++;
    return ask(k, c);
}

static void *run(void *arg)
{
    struct client *k = arg;
    struct epoll_event ev[256];
    k->epoll = epoll_create1(EPOLL_CLOEXEC);
    char *room = malloc(ROOM);
    struct connection *all = calloc((size_t)k->n, sizeof *all);
    k->fine = k->epoll >= 0 && room && all;
    for (int i = 0; k->fine && i < k->n; i++)
        k->fine = dial(k, &all[i]);
    while (k->fine && mr_time_ns() < k->plan->end_ns) {
        int n = epoll_wait(k->epoll, ev, 256, 100);
        for (int i = 0; i < n && k->fine; i++) {
            struct connection *c = ev[i].data.ptr;
            k->fine = c->connected ? take(k, c, room) : greet(k, c);
        }
    }
    free(all);
    free(room);
    return NULL;
}

static bool parse_place(const char *text, struct sockaddr_in *to)
{
    char address[64] = "127.0.0.1";
    const char *colon = strchr(text, ':');
    if (colon)
        snprintf(address, sizeof address, "%.*s", (int)(colon - text), text);
    to->sin_family = AF_INET;
    to->sin_port = htons((uint16_t)atoi(colon ? colon + 1 : text));
    return inet_pton(AF_INET, address, &to->sin_addr) == 1;
}

static double cpu_ns(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e9 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e3;
}

int main(int argc, char **argv)
{
    static struct client client[MAX_THREADS];
    if (argc != 8) {
        fprintf(stderr, "usage: range_limit [ADDRESS:]PORT PATH FILE_BYTES BYTES CONNECTIONS "
                        "THREADS SECONDS\n");
        return 2;
    }
    struct plan plan = {.path = argv[2],
                        .file_bytes = strtoull(argv[3], NULL, 10),
                        .bytes = strtoull(argv[4], NULL, 10),
                        .connections = atoi(argv[5])};
    int n = atoi(argv[6]);
    uint64_t start = mr_time_ns(), requests = 0;
    bool fine = parse_place(argv[1], &plan.to) && n > 0 && n <= MAX_THREADS && plan.bytes > 0 &&
                plan.bytes <= plan.file_bytes;
    plan.end_ns = start + (uint64_t)(atof(argv[7]) * 1e9);
    plan.start_ns = start + (plan.end_ns - start) / 4;
    for (int i = 0; fine && i < n; i++) {
        client[i] =
            (struct client){.plan = &plan, .draw = (uint64_t)i + 1, .n = plan.connections / n};
        fine = pthread_create(&client[i].thread, NULL, run, &client[i]) == 0;
    }
    for (int i = 0; fine && i < n; i++) {
        pthread_join(client[i].thread, NULL);
        fine = client[i].fine;
        requests += client[i].requests;
    }
    if (!fine) {
        fprintf(stderr, "range_limit: the server does not answer as it should\n");
        return 1;
    }
    double seconds = (double)(plan.end_ns - plan.start_ns) / 1e9;
    printf("%.0f %.0f %.0f\n", (double)requests / seconds,
           (double)(requests * plan.bytes) / seconds,
           cpu_ns() * 3 / 4 / (double)MR_MAX(requests, 1u));
    return 0;
}
