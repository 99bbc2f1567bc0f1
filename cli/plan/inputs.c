/* What was measured: the JSON of feed, train and bench comm, then options, which go first. */
#include "plan/plan.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST  (16 << 20)
#define P95        1.6449 /* standard deviations above the mean */
#define LEAST_LONG 1e6    /* bytes of a sum that shows the bandwidth */
#define EXPECTED   "expected what millrace feed, train or bench comm prints with --json"

static cJSON *load(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        cli_fail("%s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = malloc(FILE_MOST);
    size_t n = text ? fread(text, 1, FILE_MOST - 1, file) : 0;
    fclose(file);
    cJSON *root = NULL;
    if (text) {
        text[n] = 0;
        root = cJSON_Parse(text);
    }
    free(text);
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        cli_fail("%s: " EXPECTED, path);
        return NULL;
    }
    return root;
}

/* path: "config.resolved.prefetch". NaN: no such number. */
static double number(const cJSON *at, const char *path)
{
    char key[64];
    while (at && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        at = cJSON_GetObjectItemCaseSensitive(at, key);
        path += n + (path[n] == '.');
    }
    return at && cJSON_IsNumber(at) && isfinite(at->valuedouble) ? at->valuedouble : NAN;
}

static bool is(const cJSON *root, const char *key, const char *text)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(root, key);
    return cJSON_IsString(v) && strcmp(v->valuestring, text) == 0;
}

static int missing(const char *path, const char *what)
{
    return cli_fail("%s: %s: expected the whole object of a run that was not interrupted", path,
                    what);
}

/* Samples of a rank's batch; two files must agree. */
static int take_batch(struct plan_input *in, const char *path, double samples)
{
    const double before = in->samples;
    in->samples = samples;
    if (before > 0 && fabs(before - samples) > 0.02 * samples)
        return cli_fail("%s: a rank's batch has %.0f samples, in the other file %.0f: measure both "
                        "with the same --batch-size",
                        path, samples, before);
    return CLI_OK;
}

static int take_feed(struct plan_input *in, const char *path, const cJSON *root)
{
    const double batches = number(root, "batches"), samples = number(root, "samples");
    double rate = number(root, "warm_samples_per_s");
    const double p50 = number(root, "batch_interval.p50_ms");
    const double p95 = number(root, "batch_interval.p95_ms");
    const double prefetch = number(root, "config.resolved.prefetch");
    const double batch = number(root, "config.batch_size"); /* an epoch's last one may be short */
    if (!(rate > 0))
        rate = number(root, "samples_per_s");
    if (!(batches > 0) || !(samples > 0) || !(rate > 0))
        return missing(path, "no batches");
    int code = take_batch(in, path, batches > 1 && batch > 0 ? batch : samples / batches);
    if (code != CLI_OK)
        return code;
    in->model.make_ns = in->samples / rate * 1e9;
    if (p50 > 0 && p95 > p50)
        in->model.make_sigma = fmin(log(p95 / p50) / P95, 3);
    in->model.batch_bytes = fmax(number(root, "read_bytes"), 0) / samples * in->samples;
    const double requests = number(root, "remote.requests"); /* a read may share one with others */
    in->requests = fmax(requests > 0 ? requests : number(root, "reads"), 0) / samples * in->samples;
    if (prefetch >= 1 && prefetch <= 1024)
        in->model.prefetch = (uint32_t)prefetch;
    if (is(root, "bottleneck", "consumer"))
        in->slow_feed = path;
    return CLI_OK;
}

static const cJSON *member(const cJSON *of, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(of, name);
}

/* The first rank's without its sums, or of one process all its steps. What a rank with a GPU calls
 * computing is the time in which it enqueues. */
static double step_seconds(const cJSON *root)
{
    const cJSON *ranks = member(member(root, "ranks"), "ranks");
    const bool host = is(member(member(root, "config"), "resolved"), "device", "cpu");
    const double n = number(root, "ranks.steps");
    const double s = number(cJSON_GetArrayItem(ranks, 0), "compute_seconds") / n;
    return host && n > 0 && s > 0 ? s : number(root, "times.steps") / number(root, "steps");
}

static int take_train(struct plan_input *in, const char *path, const cJSON *root)
{
    const double seconds = step_seconds(root), params = number(root, "parameters");
    const double batch = number(root, "config.batch_size"), world = number(root, "world");
    const double prefetch = number(root, "config.resolved.prefetch");
    if (!(seconds > 0) || !(params > 0) || !(batch > 0) || !(world > 0))
        return missing(path, "no steps");
    in->model.step_ns = seconds * 1e9;
    in->model.grad_bytes = 4 * params;
    int code = take_batch(in, path, batch / world);
    if (code != CLI_OK)
        return code;
    if (prefetch >= 1 && prefetch <= 1024)
        in->model.prefetch = (uint32_t)prefetch;
    /* By MPI the sum begins when the backward pass has ended. */
    if (is(root, "engine", "mpi"))
        in->model.backward_share = 0;
    return CLI_OK;
}

/* The smallest and the largest sum of one kind, in bytes. */
struct curve {
    double least, least_us, most, most_rate;
};

static void read_curve(const cJSON *root, const char *order, const char *way, struct curve *out)
{
    const cJSON *row;
    *out = (struct curve){.least = INFINITY};
    cJSON_ArrayForEach(row, member(root, "sums"))
    {
        const double bytes = number(row, "bytes"), us = number(row, "time_us");
        const double rate = number(row, "bus_bytes_per_s");
        if (!is(row, "order", order) || !is(row, "way", way) || !(us > 0) || !(rate > 0))
            continue;
        if (bytes < out->least) {
            out->least = bytes;
            out->least_us = us;
        }
        if (bytes > out->most) {
            out->most = bytes;
            out->most_rate = rate;
        }
    }
}

/* As train sums by default: in the engine's order, from a graph if there is one. */
static int take_comm(struct plan_input *in, const struct plan_opts *o, const char *path,
                     const cJSON *root)
{
    static const char *const kinds[][2] = {
        {"fast", "graph"}, {"fast", "launched"}, {"tree", "graph"}, {"tree", "launched"}};
    const double world = number(root, "world");
    double local = number(root, "local_world");
    struct curve c = {0};
    for (size_t k = 0; k < CLI_COUNT(kinds) && !(c.most > 0); k++)
        read_curve(root, kinds[k][0], kinds[k][1], &c);
    if (!(c.most > 0) || !(world >= 2))
        return missing(path, "no sums");
    if (c.most < LEAST_LONG)
        return cli_fail("%s: the largest sum has %.0f bytes, which says nothing of the bandwidth: "
                        "measure with --max-bytes of 1 MiB or more",
                        path, c.most);
    if (!(local > 0))
        local = fmin(world, (double)o->per_node);
    if (local >= world) {
        in->model.node_alpha_ns = c.least_us * 1e3;
        in->model.node_bytes_per_s = c.most_rate;
        return CLI_OK;
    }
    in->net_sum_ns = c.least_us * 1e3;
    in->net_nodes = ceil(world / local);
    in->net_local = local;
    in->model.net_bytes_per_s = c.most_rate;
    return CLI_OK;
}

/* As the model adds it up: within machines, and for each doubling of their number. */
static void split_alpha(struct plan_input *in)
{
    const double within = in->net_local > 1 ? in->model.node_alpha_ns : 0;
    if (in->net_sum_ns > 0)
        in->model.net_alpha_ns = fmax(in->net_sum_ns - within, 0) / ceil(log2(in->net_nodes));
}

static int take_file(struct plan_input *in, const struct plan_opts *o, const char *path)
{
    cJSON *root = load(path);
    if (!root)
        return CLI_FAILED;
    bool feed = is(root, "command", "feed") || is(root, "command", "tune");
    int code = feed                                ? take_feed(in, path, root)
               : is(root, "command", "train")      ? take_train(in, path, root)
               : is(root, "command", "bench comm") ? take_comm(in, o, path, root)
                                                   : cli_fail("%s: " EXPECTED, path);
    cJSON_Delete(root);
    return code;
}

/* "45GB/s": bytes a second. */
static int parse_rate(const char *option, const char *text, size_t n, double *out)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    char word[64], *end;
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    double v = strtod(word, &end), unit = 1;
    for (size_t i = 0; i < CLI_COUNT(units); i++) {
        if (end != word && strcmp(end, units[i]) == 0 && v > 0 && v * unit < 1e18) {
            *out = v * unit;
            return CLI_OK;
        }
        unit *= 1000;
    }
    return cli_misuse("%s: %s: expected a rate, such as 45GB/s", option, word);
}

/* "8us/25us": within a machine, between machines; one for both. */
static int parse_alpha(const char *text, size_t n, struct mr_cluster_opts *m)
{
    char word[64];
    uint64_t node, net;
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    char *slash = strchr(word, '/');
    if (slash)
        *slash++ = 0;
    if (mr_duration_parse(word, "us", &node) < 0 ||
        mr_duration_parse(slash ? slash : word, "us", &net) < 0)
        return cli_misuse("--link alpha: expected one or two times, such as 8us/25us");
    m->node_alpha_ns = (double)node;
    m->net_alpha_ns = (double)net;
    return CLI_OK;
}

static int parse_link(const char *text, struct mr_cluster_opts *m)
{
    int code = CLI_OK;
    while (text && *text && code == CLI_OK) {
        size_t n = strcspn(text, ",");
        if (strncmp(text, "node=", 5) == 0)
            code = parse_rate("--link node", text + 5, n - 5, &m->node_bytes_per_s);
        else if (strncmp(text, "net=", 4) == 0)
            code = parse_rate("--link net", text + 4, n - 4, &m->net_bytes_per_s);
        else if (strncmp(text, "alpha=", 6) == 0)
            code = parse_alpha(text + 6, n - 6, m);
        else
            code = cli_misuse("--link %s: expected node=RATE, net=RATE, alpha=TIME/TIME", text);
        text += n + (text[n] == ',');
    }
    return code;
}

static void take_options(struct plan_input *in, const struct plan_opts *o)
{
    struct mr_cluster_opts *m = &in->model;
    m->per_node = (uint32_t)o->per_node;
    m->prefetch = o->prefetch ? (uint32_t)o->prefetch : m->prefetch;
    m->step_ns = o->step_ns ? (double)o->step_ns : m->step_ns;
    m->make_ns = o->make_ns ? (double)o->make_ns : m->make_ns;
    m->make_sigma = o->make_sigma >= 0 ? o->make_sigma : m->make_sigma;
    m->step_sigma = o->step_sigma;
    m->batch_bytes = o->batch_bytes >= 0 ? o->batch_bytes : m->batch_bytes;
    m->grad_bytes = o->params ? 4 * (double)o->params : m->grad_bytes;
    if (o->wire)
        m->grad_bytes /= 2;
    if (!o->overlap)
        m->backward_share = 0;
    if (m->backward_share == 0) /* then buckets hide nothing */
        m->bucket_bytes = 1e18;
    in->samples = o->batch ? (double)o->batch : in->samples;
    in->requests = o->requests >= 0 ? o->requests * in->samples : in->requests;
    in->epoch = o->samples;
}

int plan_read(struct plan_input *in, const struct plan_opts *o, int n, char **files)
{
    int code = CLI_OK;
    *in = (struct plan_input){0};
    mr_cluster_opts_init(&in->model);
    for (int i = 0; i < n && code == CLI_OK; i++)
        code = take_file(in, o, files[i]);
    split_alpha(in);
    if (code == CLI_OK)
        code = parse_link(o->link, &in->model);
    if (code == CLI_OK && o->store)
        code = parse_rate("--store", o->store, strlen(o->store), &in->model.store_bytes_per_s);
    if (code != CLI_OK)
        return code;
    take_options(in, o);
    if (in->model.step_ns + in->model.make_ns <= 0)
        return cli_misuse("expected what feed or train printed with --json, or --step and --make");
    return CLI_OK;
}
