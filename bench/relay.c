/*
 * A link between two network namespaces with a round trip and a rate, for bench/stores.sh: forwards
 * IP packets between a tun device here and one in the namespace of another process. Each packet
 * leaves when the link is free, and arrives half of the round trip later.
 *
 * The devices take packets of up to 64 KiB that the kernel would cut for the wire (GSO), and pass
 * them on as they are. So TCP sees a link with packets of 1,500 bytes, its slow start included, and
 * a packet here costs little. The rate is of these bytes: headers of cut packets are not in it.
 *
 * usage: relay PID ROUND_TRIP_MS MB_PER_S      MB_PER_S 0: as fast as this program is
 *        devices "relay", 10.91.0.1 here and 10.91.0.2 there; prints "READY", ends with its input,
 *        then prints "bytes there, bytes here, packets dropped"
 * Needs /dev/net/tun and CAP_NET_ADMIN in both namespaces, which `unshare -rn` gives.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PACKET_BYTES (68u << 10) /* a GSO packet with its headers */
#define QUEUE_BYTES  (256u << 20)
#define MOST_WAIT_NS 100000000ull /* for the link: what would wait longer is dropped */
#define LINE         64

/* Packets on their way, in the order in which they came: the first one is always due first. */
struct packet {
    uint64_t due_ns;
    uint32_t bytes, room; /* room: up to the next packet */
    uint8_t data[];
};

struct direction {
    int from, to;
    uint64_t delay_ns, free_ns; /* free: when the link has sent all before */
    double ns_per_byte;
    uint8_t *queue;
    size_t first, end, used; /* a ring of packets */
    _Atomic uint64_t bytes, dropped;
    pthread_t thread;
};

static int tun_open(const char *address)
{
    char command[160];
    struct ifreq ifr = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "relay");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) {
        perror("relay: /dev/net/tun");
        return -1;
    }
    snprintf(command, sizeof command,
             "ip addr add %s/24 dev relay && ip link set relay txqueuelen 10000 up && "
             "ip link set lo up",
             address);
    return system(command) == 0 ? fd : -1; /* NOLINT(cert-env33-c): constant words */
}

static bool enter(const char *pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool fine = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (!fine)
        fprintf(stderr, "relay: %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return fine;
}

/* Room for the largest packet at the end of the queue; NULL: it is full. */
static struct packet *room(struct direction *d)
{
    size_t need = sizeof(struct packet) + PACKET_BYTES;
    if (QUEUE_BYTES - d->used < 2 * need)
        return NULL;
    if (QUEUE_BYTES - d->end < need) { /* the ring's end: an empty packet fills it */
        struct packet *fill = (struct packet *)(d->queue + d->end);
        if (QUEUE_BYTES - d->end >= sizeof *fill)
            *fill = (struct packet){.room = (uint32_t)(QUEUE_BYTES - d->end)};
        d->used += QUEUE_BYTES - d->end;
        d->end = 0;
        if (QUEUE_BYTES - d->used < 2 * need)
            return NULL;
    }
    return (struct packet *)(d->queue + d->end);
}

static bool take(struct direction *d)
{
    struct packet *p = room(d);
    if (!p)
        return false;
    ssize_t n = read(d->from, p->data, PACKET_BYTES);
    if (n <= 0)
        return false;
    uint64_t now = mr_time_ns(), start = MR_MAX(now, d->free_ns);
    if (start - now > MOST_WAIT_NS) {
        atomic_fetch_add(&d->dropped, 1);
        return true;
    }
    d->free_ns = start + (uint64_t)((double)n * d->ns_per_byte);
    p->due_ns = d->free_ns + d->delay_ns;
    p->bytes = (uint32_t)n;
    p->room = (uint32_t)((sizeof *p + (size_t)n + LINE - 1) / LINE * LINE);
    d->end += p->room;
    d->used += p->room;
    return true;
}

/* Returns how many ns the next packet is away; UINT64_MAX: there is none. */
static uint64_t give_due(struct direction *d)
{
    while (d->used > 0) {
        const struct packet *p = (const struct packet *)(d->queue + d->first);
        size_t left = QUEUE_BYTES - d->first, room_bytes = left < sizeof *p ? left : p->room;
        if (left >= sizeof *p && p->bytes > 0) {
            uint64_t now = mr_time_ns();
            if (p->due_ns > now)
                return p->due_ns - now;
            if (write(d->to, p->data, p->bytes) == (ssize_t)p->bytes)
                atomic_fetch_add(&d->bytes, p->bytes);
            else
                atomic_fetch_add(&d->dropped, 1);
        }
        d->used -= room_bytes;
        d->first = (d->first + room_bytes) % QUEUE_BYTES;
    }
    return UINT64_MAX;
}

static void *forward(void *arg)
{
    struct direction *d = arg;
    for (;;) {
        uint64_t wait_ns = give_due(d);
        struct timespec ts = {.tv_sec = (time_t)(wait_ns / 1000000000),
                              .tv_nsec = (long)(wait_ns % 1000000000)};
        struct pollfd fd = {.fd = d->from, .events = POLLIN};
        if (ppoll(&fd, 1, wait_ns == UINT64_MAX ? NULL : &ts, NULL) < 0 && errno != EINTR)
            return NULL;
        for (int i = 0; i < 16 && take(d); i++)
            ;
    }
}

static bool start(struct direction *d, int from, int to, double round_trip_ms, double mb_per_s)
{
    *d = (struct direction){.from = from,
                            .to = to,
                            .delay_ns = (uint64_t)(round_trip_ms * 5e5),
                            .ns_per_byte = mb_per_s > 0 ? 1e3 / mb_per_s : 0,
                            .queue = aligned_alloc(LINE, QUEUE_BYTES)};
    return d->queue && pthread_create(&d->thread, NULL, forward, d) == 0;
}

int main(int argc, char **argv)
{
    static struct direction there, back;
    if (argc != 4) {
        fprintf(stderr, "usage: relay PID ROUND_TRIP_MS MB_PER_S\n");
        return 2;
    }
    int here = tun_open("10.91.0.1"),
        other = here >= 0 && enter(argv[1]) ? tun_open("10.91.0.2") : -1;
    if (other < 0 || !start(&there, here, other, atof(argv[2]), atof(argv[3])) ||
        !start(&back, other, here, atof(argv[2]), atof(argv[3])))
        return 1;
    printf("READY\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    printf("%llu %llu %llu\n", (unsigned long long)there.bytes, (unsigned long long)back.bytes,
           (unsigned long long)(there.dropped + back.dropped));
    return 0;
}
