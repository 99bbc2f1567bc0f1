/*
 * White-box. A server and trainers that say anything: the input is a list of messages, each with
 * which of two trainers sends it. Sound trainers beside them get every batch in order, the server
 * ends when it is closed, and nothing is left of it.
 */
#include "memfile.h"
#include "serve/wire.h"

#include <errno.h>
#include <millrace/device.h>
#include <poll.h>
#include <sys/socket.h>

#define BATCHES 4
#define WAIT_MS 5000

struct service {
    struct mr_dataset *ds;
    struct mr_device *device;
    struct mr_loader *ld;
    struct mr_server *server;
    int trainer[2]; /* our ends of their sockets */
};

static void start(struct service *s)
{
    struct mr_loader_opts opts;
    struct mr_serve_opts serve;
    mr_loader_opts_init(&opts);
    mr_serve_opts_init(&serve);
    opts.batch_size = 2;
    opts.workers = 1;
    opts.shared = 1;
    opts.epochs = 1;
    serve.ahead = 1;
    if (mr_dataset_open("synthetic:n=8,shape=4", &s->ds) < 0 ||
        mr_device_open("cpu", &s->device) < 0 ||
        mr_loader_open(s->ds, NULL, NULL, s->device, &opts, &s->ld) < 0 ||
        mr_loader_serve(s->ld, &serve, &s->server) < 0)
        abort();
}

static void end(struct service *s)
{
    for (int i = 0; i < 2; i++)
        if (s->trainer[i] >= 0)
            close(s->trainer[i]);
    mr_server_close(s->server);
    mr_loader_close(s->ld);
    mr_device_close(s->device);
    mr_dataset_close(s->ds);
}

/* Returns this process's end, which does not block. */
static int connect_to(struct service *s)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        abort();
    if (mr_server_add(s->server, ends[1]) < 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    return ends[0];
}

/* What has come, thrown away. */
static void drain(int fd)
{
    union mr_wire in;
    struct mr_received got = {.fd = -1};
    while (mr_wire_recv(fd, &in, &got) > 0)
        if (got.fd >= 0)
            close(got.fd);
}

/* One message. Returns how many bytes of the input it took. */
static size_t say(struct service *s, const uint8_t *data, size_t size)
{
    struct mr_wire_hello hello = {
        .kind = MR_WIRE_HELLO, .writes = data[0] >> 7, .mark = MR_SERVE_MARK};
    struct mr_wire_release release = {.kind = MR_WIRE_RELEASE, .number = data[1]};
    int *fd = &s->trainer[data[0] & 1];
    size_t n = 0;
    if (*fd < 0)
        *fd = connect_to(s);
    if (*fd < 0)
        return 2;
    switch (data[0] >> 1 & 7) {
    case 0:
        mr_wire_send(*fd, &hello, sizeof hello, -1);
        break;
    case 1:
        mr_wire_send(*fd, &release, sizeof release, -1);
        break;
    case 2:
        release.kind = MR_WIRE_LEAVE;
        mr_wire_send(*fd, &release, sizeof release, -1);
        break;
    case 3:
        close(*fd);
        *fd = -1;
        break;
    case 4:
        drain(*fd);
        break;
    case 5:
        poll(&(struct pollfd){.fd = *fd, .events = POLLIN}, 1, data[1] % 4);
        break;
    default: /* any bytes, perhaps with a descriptor */
        n = data[1] < size - 2 ? data[1] : size - 2;
        if (n >= sizeof(uint32_t))
            mr_wire_send(*fd, data + 2, n, data[0] & 16 ? *fd : -1);
    }
    return 2 + n;
}

static int64_t receive(int fd, union mr_wire *in, struct mr_received *got)
{
    int64_t n = mr_wire_recv(fd, in, got);
    for (int waited = 0; n == -EAGAIN && waited < WAIT_MS; waited += 100) {
        poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 100);
        n = mr_wire_recv(fd, in, got);
    }
    return n;
}

/* A trainer that does what it should, until the end. */
static void train(struct service *s)
{
    struct mr_wire_hello hello = {.kind = MR_WIRE_HELLO, .mark = MR_SERVE_MARK};
    struct mr_received got;
    union mr_wire in;
    uint64_t next = 0;
    bool ends = false;
    int fd = connect_to(s);
    if (fd < 0)
        return; /* all was handed out */
    mr_wire_send(fd, &hello, sizeof hello, -1);
    int64_t n = receive(fd, &in, &got);
    if (n == sizeof in.welcome && in.kind == MR_WIRE_WELCOME) {
        next = in.welcome.missed;
        close(got.fd);
        while (!ends && (n = receive(fd, &in, NULL)) > 0) {
            struct mr_wire_release release = {.kind = MR_WIRE_RELEASE, .number = in.batch.number};
            ends = in.kind == MR_WIRE_END && n == sizeof in.end && in.end.code == 0;
            if (!ends && (in.kind != MR_WIRE_BATCH || in.batch.number != next++))
                abort();
            if (!ends)
                mr_wire_send(fd, &release, sizeof release, -1);
        }
        if (!ends || next != BATCHES)
            abort();
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct service s = {.trainer = {-1, -1}};
    start(&s);
    while (size >= 2) {
        size_t n = say(&s, data, size);
        data += n;
        size -= n;
    }
    for (int i = 0; i < 2; i++) { /* they hold batches for ever */
        if (s.trainer[i] >= 0)
            close(s.trainer[i]);
        s.trainer[i] = -1;
    }
    train(&s);
    end(&s);
    return 0;
}
