/*
 * A batch that a callback makes: graphs of varying size become one graph, as graph networks take
 * them: the nodes of all, their edges with the numbers that nodes have in the batch, and the graph
 * of each node.
 *
 *   cc collate.c $(pkg-config --cflags --libs millrace) -o collate && ./collate
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>

#define N     100
#define NODES 12 /* of a graph, at most */
#define BATCH 8

/* A sample is a ring: its nodes' values, and an edge from each node to the next. */
enum { NODE, EDGE };

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    float *value = (float *)row[NODE];
    int32_t(*edge)[2] = (int32_t(*)[2])row[EDGE];
    uint64_t n = 3 + index % (NODES - 2);
    dim[NODE][0] = dim[EDGE][0] = n;
    for (uint64_t i = 0; i < n; i++) {
        value[i] = (float)index;
        edge[i][0] = (int32_t)i;
        edge[i][1] = (int32_t)((i + 1) % n);
    }
    return 0;
}

static int open_dataset(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "rings";
    o.n = N;
    o.n_fields = 2;
    o.field[NODE] =
        (struct mr_spec){.name = "node", .dtype = MR_F32, .rank = 1, .var_dims = 1, .dim = {NODES}};
    o.field[EDGE] = (struct mr_spec){
        .name = "edge", .dtype = MR_I32, .rank = 2, .var_dims = 1, .dim = {NODES, 2}};
    o.get = get;
    return mr_dataset_open_callback(&o, out);
}

/* The fields of a batch. They replace the data set's. */
enum { NODES_OUT, EDGES_OUT, GRAPH_OUT };

/* Makes a batch: on a worker, several at once for several batches. */
static int join_graphs(void *user, const struct mr_collate_context *context, int n_in,
                       const struct mr_collate_in in[], struct mr_collate_out out[])
{
    (void)user;
    (void)n_in;
    float *node = (float *)out[NODES_OUT].data;
    int32_t(*edge)[2] = (int32_t(*)[2])out[EDGES_OUT].data;
    int32_t *graph = (int32_t *)out[GRAPH_OUT].data;
    uint64_t nodes = 0, edges = 0;
    for (uint64_t i = 0; i < context->n; i++) {
        const float *value = (const float *)in[NODE].row[i];
        const int32_t(*pair)[2] = (const int32_t(*)[2])in[EDGE].row[i];
        for (uint64_t k = 0; k < in[EDGE].dim[i][0]; k++, edges++) {
            edge[edges][0] = (int32_t)nodes + pair[k][0];
            edge[edges][1] = (int32_t)nodes + pair[k][1];
        }
        for (uint64_t k = 0; k < in[NODE].dim[i][0]; k++, nodes++) {
            node[nodes] = value[k];
            graph[nodes] = (int32_t)i;
        }
    }
    out[NODES_OUT].dim[0] = out[GRAPH_OUT].dim[0] = nodes;
    out[EDGES_OUT].dim[0] = edges;
    return 0;
}

/* What the callback makes: declared with the largest shape, for which memory is reserved. */
static void describe(struct mr_collate_fn *fn)
{
    mr_collate_fn_init(fn);
    fn->name = "join_graphs"; /* in saved states, with the version */
    fn->version = 1;
    fn->n_fields = 3;
    fn->field[NODES_OUT] = (struct mr_spec){
        .name = "node", .dtype = MR_F32, .rank = 1, .var_dims = 1, .dim = {BATCH * NODES}};
    fn->field[EDGES_OUT] = (struct mr_spec){
        .name = "edge", .dtype = MR_I32, .rank = 2, .var_dims = 1, .dim = {BATCH * NODES, 2}};
    fn->field[GRAPH_OUT] = (struct mr_spec){
        .name = "graph", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {BATCH * NODES}};
    fn->collate = join_graphs;
}

/* Each edge of a batch joins nodes of one graph. */
static int check_edges(const struct mr_batch *b)
{
    const int32_t(*edge)[2] = (const int32_t(*)[2])b->field[EDGES_OUT].host;
    const int32_t *graph = (const int32_t *)b->field[GRAPH_OUT].host;
    for (uint64_t k = 0; k < b->field[EDGES_OUT].spec.dim[0]; k++)
        if (graph[edge[k][0]] != graph[edge[k][1]])
            return mr_error_set(MR_ECALLBACK, "batch %llu: edge %llu joins two graphs",
                                (unsigned long long)b->index, (unsigned long long)k);
    return 0;
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    struct mr_collate_fn fn;
    struct mr_batch b;
    b.size = sizeof b;
    int rc = open_dataset(&ds);
    if (rc < 0)
        goto done;
    describe(&fn);
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.collate_fn = &fn;
    rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        goto done;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        if (b.index < 4)
            printf("batch %llu: %llu graphs, %llu nodes, %llu edges\n", (unsigned long long)b.index,
                   (unsigned long long)b.n, (unsigned long long)b.field[NODES_OUT].spec.dim[0],
                   (unsigned long long)b.field[EDGES_OUT].spec.dim[0]);
        rc = check_edges(&b);
        mr_loader_release(loader, &b, NULL);
        if (rc < 0)
            break;
    }
done:
    if (rc < 0)
        fprintf(stderr, "collate: %s\n", mr_last_error());
    mr_loader_close(loader);
    mr_dataset_close(ds);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
