/*
 * What a server of ranges gives to a client that only takes: CONNECTIONS sockets, each with one
 * request under way, for random ranges of BYTES, read and forgotten. The limit beside which
 * bench/remote.sh shows ours.
 *
 * usage: range_limit PORT PATH FILE_BYTES BYTES CONNECTIONS THREADS SECONDS
 *        prints "requests/s bytes/s"
 */
#include "base/base.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_THREADS 64
#define ROOM        (256u << 10)

struct plan {
    int port;
    const char *path;
    uint64_t file_bytes, bytes, end_ns;
    int connections;
};

struct client {
    const struct plan *plan;
    pthread_t thread;
    uint64_t requests, draw;
    int n;
    bool fine;
};

struct connection {
    int fd;
    bool in_body;
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

static bool take(struct client *k, struct connection *c, char *room)
{
    ssize_t n = recv(c->fd, room, ROOM - 1, 0);
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
    k->requests++;
    return ask(k, c);
}

static bool connect_all(struct client *k, int epoll, struct connection *all)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)k->plan->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < k->n; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &all[i]};
        all[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (all[i].fd < 0 || connect(all[i].fd, (struct sockaddr *)&to, sizeof to) ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &ev) || !ask(k, &all[i]))
            return false;
    }
    return true;
}

static void *run(void *arg)
{
    struct client *k = arg;
    struct epoll_event ev[256];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    char *room = malloc(ROOM);
    struct connection *all = calloc((size_t)k->n, sizeof *all);
    k->fine = epoll >= 0 && room && all && connect_all(k, epoll, all);
    k->requests = 0;
    while (k->fine && mr_time_ns() < k->plan->end_ns) {
        int n = epoll_wait(epoll, ev, 256, 100);
        for (int i = 0; i < n && k->fine; i++)
            k->fine = take(k, ev[i].data.ptr, room);
    }
    free(all);
    free(room);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct client client[MAX_THREADS];
    if (argc != 8) {
        fprintf(stderr,
                "usage: range_limit PORT PATH FILE_BYTES BYTES CONNECTIONS THREADS SECONDS\n");
        return 2;
    }
    struct plan plan = {.port = atoi(argv[1]),
                        .path = argv[2],
                        .file_bytes = strtoull(argv[3], NULL, 10),
                        .bytes = strtoull(argv[4], NULL, 10),
                        .connections = atoi(argv[5])};
    int n = atoi(argv[6]);
    uint64_t start = mr_time_ns(), requests = 0;
    bool fine = n > 0 && n <= MAX_THREADS && plan.bytes > 0 && plan.bytes <= plan.file_bytes;
    plan.end_ns = start + (uint64_t)(atof(argv[7]) * 1e9);
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
    double seconds = (double)(mr_time_ns() - start) / 1e9;
    printf("%.0f %.0f\n", (double)requests / seconds, (double)(requests * plan.bytes) / seconds);
    return 0;
}
