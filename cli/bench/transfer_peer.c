/* The other device of bench transfer. */
#include "bench/transfer_work.h"

#include <string.h>

/* --peer, or another GPU. Returns what to open, or NULL: there is none. */
static const char *peer_name(const struct transfer *t, const struct mr_device_info *info,
                             char buf[32])
{
    if (t->o->peer)
        return t->o->peer;
    if (info->n_devices < 2)
        return NULL;
    snprintf(buf, 32, "cuda:%d", (info->ordinal + 1) % info->n_devices);
    return buf;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Directly: by NVLink, or by what is simulated. Else twice over the link, at best one way while the
 * other goes on. */
static double limit_of(const struct mr_device_info *one, const struct mr_device_info *other,
                       int direct)
{
    if (direct && one->peer_gb_per_s > 0 && other->peer_gb_per_s > 0)
        return smaller(one->peer_gb_per_s, other->peer_gb_per_s);
    return smaller(one->h2d_gb_per_s, other->d2h_gb_per_s);
}

static int fill_peer(struct transfer *t, uint64_t bytes)
{
    struct mr_stream *stream = NULL;
    int rc = transfer_block_make(&t->peer, t->peer_dev, TRANSFER_DEVICE, bytes);
    if (rc == 0)
        rc = mr_stream_create(t->peer_dev, "peer", &stream);
    if (rc == 0)
        rc = transfer_fill(t, stream, &t->peer, 3);
    mr_stream_destroy(stream);
    return rc;
}

int transfer_peer_open(struct transfer *t, uint64_t bytes, struct transfer_result *out)
{
    char buf[32];
    const struct mr_device_info *info = &out->before;
    struct mr_device_info peer = {.size = sizeof peer};
    const char *name = peer_name(t, info, buf);
    if (!name) {
        transfer_leave_out(out, "peer",
                           info->simulated ? "there is one device: give another by --peer sim"
                                           : "this process sees one GPU");
        return 0;
    }
    int rc = mr_device_open(name, &t->peer_dev);
    if (rc == 0)
        rc = mr_device_query(t->peer_dev, &peer);
    if (rc == 0 && peer.pci_id[0] && strcmp(peer.pci_id, info->pci_id) == 0)
        rc = mr_error_set(MR_EOPTION, "--peer %s: that is the device itself: name another", name);
    if (rc == 0)
        rc = out->direct = mr_device_reach(t->dev, t->peer_dev);
    if (rc >= 0)
        rc = fill_peer(t, bytes);
    if (rc == 0) {
        snprintf(out->peer, sizeof out->peer, "%s", peer.name);
        t->peer_gb_per_s = limit_of(info, &peer, out->direct);
    } else if (!t->o->peer) { /* no one asked for it */
        transfer_leave_out(out, "peer", mr_last_error());
        transfer_peer_close(t);
        rc = 0;
    }
    return rc;
}

void transfer_peer_close(struct transfer *t)
{
    transfer_block_drop(&t->peer);
    mr_device_close(t->peer_dev);
    t->peer_dev = NULL;
}
