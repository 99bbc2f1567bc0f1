/* Where a net is cut into stages. */
#include "train/stages.h"

#include <string.h>

/* The whole net, as it would be on the first device. */
struct plan {
    const struct mr_net *net;
    uint32_t n_stages;
    uint64_t ns[MR_NN_MAX_NODES]; /* or anything that a node's time grows with */
};

static uint32_t find_layer(const struct mr_net *net, const char *name, size_t bytes)
{
    uint32_t i = 0;
    while (i < net->n_nodes &&
           (strlen(net->layer[i].name) != bytes || memcmp(net->layer[i].name, name, bytes) != 0))
        i++;
    return i;
}

/* Do nodes begin .. end - 1 have parameters? */
static bool has_weights(const struct mr_net *net, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++)
        if (net->node[i].weight != MR_NN_NONE)
            return true;
    return false;
}

/* With parameters in the stages before it and behind it. */
static bool can_begin(const struct mr_net *net, uint32_t node)
{
    return mr_net_can_cut(net, node) && has_weights(net, 0, node) &&
           has_weights(net, node, net->n_nodes);
}

/* Lists the layers that can begin a stage; of those with one name only the first can be given. */
static int bad_layer(const struct mr_net *net, const char *why, const char *name, size_t bytes)
{
    char text[64], found[512] = "";
    size_t used = 0;
    snprintf(text, sizeof text, "%.*s", (int)MR_MIN(bytes, 40), name);
    for (uint32_t i = 1; i < net->n_nodes && used < sizeof found - 32; i++) {
        const char *layer = net->layer[i].name;
        if (can_begin(net, i) && find_layer(net, layer, strlen(layer)) == i)
            used += (size_t)snprintf(found + used, sizeof found - used, "%s%s", used ? ", " : "",
                                     layer);
    }
    if (used == 0)
        return mr_error_set(MR_EOPTION,
                            "split: %s '%s'; the net can't be cut into stages that have parameters "
                            "each",
                            why, text);
    return mr_error_set(MR_EOPTION, "split: %s '%s'; a stage can begin with %s%s", why, text, found,
                        used < sizeof found - 32 ? "" : ", ...");
}

/* The node of the layer that begins stage k. */
static int by_name(const struct plan *p, const char *text, const char *name, uint32_t k,
                   uint32_t *first)
{
    const size_t bytes = strcspn(name, ",");
    first[k] = find_layer(p->net, name, bytes);
    if (first[k] == p->net->n_nodes)
        return bad_layer(p->net, "the net has no layer", name, bytes);
    if (first[k] && !can_begin(p->net, first[k]))
        return bad_layer(p->net, "no stage can begin with layer", name, bytes);
    if (first[k] > first[k - 1])
        return 0;
    return mr_error_set(
        MR_EOPTION, "split %s: expected layers in the net's order, none of them the first", text);
}

/* "conv3,fc1": a layer for each stage but the first. */
static int by_names(const struct plan *p, const char *text, uint32_t *first)
{
    uint32_t given = 1;
    for (const char *comma = text; (comma = strchr(comma, ',')) != NULL; comma++)
        given++;
    if (given != p->n_stages - 1)
        return mr_error_set(MR_EOPTION,
                            "split %s: %u layer%s for %u devices: expected the first layer of each "
                            "stage but the first",
                            text, given, given == 1 ? "" : "s", p->n_stages);
    const char *name = text;
    for (uint32_t k = 1; k < p->n_stages; k++) {
        int rc = by_name(p, text, name, k, first);
        if (rc < 0)
            return rc;
        name += strcspn(name, ",") + 1; /* behind the last one it is not read */
    }
    return 0;
}

/* The stages of least longest time that end before node `end`: best[k][end] for k + 1 of them. */
static int by_time(const struct plan *p, uint32_t *first)
{
    enum { NODES = MR_NN_MAX_NODES + 1 };
    uint64_t before[NODES] = {0}, best[MR_TRAIN_STAGES][NODES];
    uint32_t from[MR_TRAIN_STAGES][NODES], weights[NODES] = {0};
    const uint32_t n = p->net->n_nodes;
    memset(best, 0xff, sizeof best);
    memset(from, 0, sizeof from);
    for (uint32_t i = 0; i < n; i++) {
        before[i + 1] = before[i] + p->ns[i];
        weights[i + 1] = weights[i] + (p->net->node[i].weight != MR_NN_NONE);
    }
    for (uint32_t end = 1; end <= n; end++)
        if (weights[end])
            best[0][end] = before[end];
    for (uint32_t k = 1; k < p->n_stages; k++)
        for (uint32_t at = 1; at < n; at++) {
            if (best[k - 1][at] == UINT64_MAX || !mr_net_can_cut(p->net, at))
                continue;
            for (uint32_t end = at + 1; end <= n; end++) {
                uint64_t longest = MR_MAX(best[k - 1][at], before[end] - before[at]);
                if (weights[end] == weights[at] || longest >= best[k][end])
                    continue;
                best[k][end] = longest;
                from[k][end] = at;
            }
        }
    if (best[p->n_stages - 1][n] == UINT64_MAX)
        return mr_error_set(MR_EOPTION,
                            "split: the net can't be cut into %u stages that have parameters each; "
                            "residuals and layers that run as one stay together",
                            p->n_stages);
    for (uint32_t k = p->n_stages - 1, end = n; k > 0; k--)
        end = first[k] = from[k][end];
    return 0;
}

/* Of a net that does not fit into one device, only the products are known. */
static int measure(const struct mr_trainer *t, const struct mr_net_opts *no, struct plan *p)
{
    struct mr_net *whole = NULL;
    const struct mr_net_part all = {0, 0};
    const bool measures = !t->pipeline->comm; /* ranks would not come to the same */
    int rc = measures ? mr_net_create_part(t->dev, no, &all, false, &whole) : MR_EDEVICEMEM;
    if (rc == MR_EDEVICEMEM) {
        for (uint32_t i = 0; i < p->net->n_nodes; i++)
            p->ns[i] = p->net->layer[i].flops;
        return 0;
    }
    if (rc < 0)
        return rc;
    rc = mr_net_warm_up(whole, t->stream);
    if (rc >= 0)
        rc = mr_net_time(whole, p->ns);
    mr_net_destroy(whole);
    return rc;
}

int mr_train_split(const struct mr_trainer *t, const struct mr_net_opts *no, uint32_t *first)
{
    const struct mr_net_part all = {0, 0};
    struct plan p = {.n_stages = t->pipeline->of};
    struct mr_net *net = NULL;
    int rc = mr_net_create_part(t->dev, no, &all, true, &net);
    if (rc < 0)
        return rc;
    p.net = net;
    first[0] = 0;
    first[p.n_stages] = net->n_nodes;
    if (p.n_stages == 1)
        goto end;
    if (strcmp(t->opts.split, "auto") != 0) {
        rc = by_names(&p, t->opts.split, first);
        goto end;
    }
    rc = measure(t, no, &p);
    if (rc < 0)
        goto end;
    rc = by_time(&p, first);
end:
    mr_net_destroy(net);
    return rc;
}
