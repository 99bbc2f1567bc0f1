/*
 * torchrun's store, which its ranks share: keys and values over TCP. Its protocol is PyTorch's own
 * (TCPStore of 2.2 and later): one byte for the request, texts with their length in 8 bytes before
 * them, all in the machine's byte order. A request is one send(): the server reads it as one.
 */
#include "comm/nccl.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { VALIDATE = 0, SET = 1, GET = 3, WAIT = 6 };
#define MAGIC 0x3C85F7CEu

struct request {
    char bytes[512];
    size_t used;
};

static void put(struct request *r, const void *data, size_t bytes)
{
    memcpy(r->bytes + r->used, data, bytes);
    r->used += bytes;
}

static void put_text(struct request *r, const void *data, uint64_t bytes)
{
    put(r, &bytes, sizeof bytes);
    put(r, data, bytes);
}

static struct request begin(uint8_t what)
{
    struct request r = {.used = 0};
    put(&r, &what, 1);
    return r;
}

static int no_answer(const char *what)
{
    return mr_error_set(MR_EPEER,
                        "comm: torchrun's store at %.100s:%.10s: %s: not all ranks came, or it "
                        "speaks another protocol; NCCL_COMM_ID=host:port does without it",
                        getenv("MASTER_ADDR"), getenv("MASTER_PORT"), what);
}

static int take(int fd, void *to, size_t bytes, uint64_t until_ns)
{
    for (size_t got = 0; got < bytes;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = mr_time_ns();
        int ms = now < until_ns ? (int)MR_MIN((until_ns - now) / 1000000 + 1, 1u << 30) : 0;
        int ready = poll(&p, 1, ms);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return no_answer("no answer in time");
        ssize_t n = recv(fd, (char *)to + got, bytes - got, 0);
        if (n <= 0)
            return no_answer("it closed the connection");
        got += (size_t)n;
    }
    return 0;
}

static int give(int fd, const struct request *r)
{
    return send(fd, r->bytes, r->used, MSG_NOSIGNAL) == (ssize_t)r->used
               ? 0
               : no_answer("it takes no request");
}

static int connect_once(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* The store may start behind this process. Returns a descriptor or an error. */
static int connect_until(uint64_t until_ns)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timespec nap = {0, 50000000};
    if (!host || !port)
        return mr_error_set(MR_EPEER, "comm: torchrun's store: MASTER_ADDR or MASTER_PORT is not "
                                      "set");
    do {
        struct addrinfo *all = NULL;
        if (getaddrinfo(host, port, &hints, &all) == 0) {
            int fd = connect_once(all);
            freeaddrinfo(all);
            if (fd >= 0)
                return fd;
        }
        nanosleep(&nap, NULL);
    } while (mr_time_ns() < until_ns);
    return no_answer("no connection");
}

static int get(int fd, const char *key, void *value, uint64_t bytes, uint64_t until_ns)
{
    uint64_t one = 1, n = 0;
    uint8_t answer;
    struct request wait = begin(WAIT), fetch = begin(GET);
    put(&wait, &one, sizeof one);
    put_text(&wait, key, strlen(key));
    put_text(&fetch, key, strlen(key));
    int rc = give(fd, &wait);
    if (rc < 0)
        return rc;
    rc = take(fd, &answer, 1, until_ns);
    if (rc < 0)
        return rc;
    rc = give(fd, &fetch);
    if (rc < 0)
        return rc;
    rc = take(fd, &n, sizeof n, until_ns);
    if (rc < 0)
        return rc;
    if (n != bytes)
        return mr_error_set(MR_EFORMAT,
                            "comm: torchrun's store: %.100s has %llu bytes: expected %llu", key,
                            (unsigned long long)n, (unsigned long long)bytes);
    return take(fd, value, bytes, until_ns);
}

int mr_store_spread(const char *key, void *value, size_t bytes, bool sets, uint64_t until_ns)
{
    const uint32_t magic = MAGIC;
    struct request validate = begin(VALIDATE), set = begin(SET);
    int fd = connect_until(until_ns);
    if (fd < 0)
        return fd;
    put(&validate, &magic, sizeof magic);
    int rc = give(fd, &validate);
    if (rc == 0 && sets) {
        put_text(&set, key, strlen(key));
        put_text(&set, value, bytes);
        rc = give(fd, &set);
    }
    if (rc == 0) /* rank 0, too: its value has arrived, then */
        rc = get(fd, key, value, bytes, until_ns);
    close(fd);
    return rc;
}
