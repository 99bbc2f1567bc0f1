/* What all engines share. */
#include "comm/engine.h"
#include "device/device.h"
#include "kernels/sum/sum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MINUTE_NS   60000000000u
#define LEAST_NS    1000000u
#define MOST_NS     (1440 * MINUTE_NS)
#define CONFIG_MOST 65536u
#define TEXT_MOST   (1u << 20)

static const struct mr_comm_engine *const engines[] = {&mr_comm_mpi, &mr_comm_nccl, &mr_comm_alone};

void mr_comm_opts_fill(struct mr_comm_opts *opts, size_t size)
{
    const struct mr_comm_opts full = {
        .engine = "auto",
        .timeout_ns = 5 * MINUTE_NS,
        .place = {.size = sizeof(struct mr_place), .world = 1},
    };
    mr_opts_copy(opts, size, &full, sizeof full);
}

void mr_comm_add(void *x, const void *y, uint64_t n, enum mr_dtype dtype, enum mr_dtype wire)
{
    const struct mr_sum_add a = {.to = x,
                                 .from = y,
                                 .count = n,
                                 .dtype = dtype,
                                 .from_dtype = dtype,
                                 .round = wire != dtype};
    mr_sum_kernel[MR_SUM_KERNEL_add].run(&a);
}

static int find_engine(const char *name, const struct mr_comm_engine **out)
{
    for (size_t i = 0; i < MR_COUNT(engines); i++)
        if (strcmp(engines[i]->name, name) == 0) {
            *out = engines[i];
            return 0;
        }
    return mr_error_set(MR_EOPTION, "comm: engine %.40s: expected auto, mpi, nccl or alone", name);
}

static int choose(struct mr_comm *c)
{
    const char *name = c->opts.engine ? c->opts.engine : "auto";
    if (strcmp(name, "auto") == 0)
        name = c->opts.place.world > 1 ? "mpi" : "alone";
    return find_engine(name, &c->engine);
}

int mr_comm_find(const char *name)
{
    const struct mr_comm_engine *engine = NULL;
    if (!name)
        return mr_error_null("mr_comm_find", "an engine");
    int rc = find_engine(name, &engine);
    return rc < 0 || !engine->find ? rc : engine->find();
}

int mr_comm_library(const char *name, char *out, size_t cap)
{
    const struct mr_comm_engine *engine = NULL;
    if (!name || !out)
        return mr_error_null("mr_comm_library", "an engine and out");
    int rc = find_engine(name, &engine);
    if (rc < 0)
        return rc;
    if (!engine->library)
        return mr_error_set(MR_EUNSUPPORTED, "comm: engine %s has no library", name);
    return engine->library(out, cap);
}

static int check(const struct mr_comm_opts *o)
{
    const struct mr_place *p = &o->place;
    if (p->world < 1 || p->rank >= p->world)
        return mr_error_set(MR_EMISUSE, "comm: rank %u of %u: expected a rank below the world",
                            p->rank, p->world);
    if (o->timeout_ns < LEAST_NS || o->timeout_ns > MOST_NS)
        return mr_error_set(MR_EOPTION,
                            "comm: a time limit of %" PRIu64 " ns: expected 1 ms to 1 day",
                            o->timeout_ns);
    if (o->config && strlen(o->config) > CONFIG_MOST)
        return mr_error_set(MR_EOPTION, "comm: config of %zu bytes: expected at most %u",
                            strlen(o->config), CONFIG_MOST);
    return o->config ? mr_comm_check_config(o->config) : 0;
}

/* Before a call that other ranks make, too. peer: the only one; MR_COMM_ALL: a collective call. */
static int enter(struct mr_comm *c, const char *call, uint32_t peer)
{
    int rc = mr_process_check(&c->process, "this communicator");
    if (rc < 0)
        return rc;
    rc = mr_comm_check(c);
    if (rc < 0)
        return rc;
    c->call = call;
    c->call_ns = mr_time_ns();
    c->peer = peer;
    c->sequence += peer == MR_COMM_ALL;
    return 0;
}

/* After it: the first error stays. */
static int leave(struct mr_comm *c, int rc)
{
    if (rc < 0 && !c->failed) {
        c->failed = rc;
        mr_error_keep(rc, c->error);
    }
    return rc;
}

/* [out] texts: on the root, one allocation. After MR_EPEER nothing is freed: messages may still be
 * on their way. */
static int collect(struct mr_comm *c, const char *mine, uint32_t root, char ***texts)
{
    c->mine_bytes = strlen(mine) + 1;
    c->most_bytes = 0;
    uint64_t *each = calloc(c->world, sizeof *each);
    char *padded = NULL, *all = NULL;
    int rc = each ? c->engine->gather(c, &c->mine_bytes, sizeof c->mine_bytes, root, each)
                  : mr_error_nomem("comm", c->world * sizeof *each);
    if (rc < 0)
        goto end;
    for (uint32_t r = 0; r < c->world; r++)
        c->most_bytes = MR_MAX(c->most_bytes, each[r]);
    rc = c->engine->spread(c, &c->most_bytes, sizeof c->most_bytes, root);
    if (rc < 0)
        goto end;
    const uint64_t most = c->most_bytes, slot = sizeof(char *) + most;
    padded = calloc(1, most);
    if (c->rank == root)
        all = malloc(c->world * slot);
    if (!padded || (c->rank == root && !all)) {
        rc = mr_error_nomem("comm", c->world * most);
        goto end;
    }
    memcpy(padded, mine, c->mine_bytes);
    char *at = all ? all + c->world * sizeof(char *) : NULL;
    rc = c->engine->gather(c, padded, most, root, at);
    if (rc < 0 || !all)
        goto end;
    *texts = (char **)(void *)all;
    for (uint32_t r = 0; r < c->world; r++)
        (*texts)[r] = at + r * most;
    all = NULL;
end:
    if (rc == MR_EPEER) {
        c->left[0] = each;
        c->left[1] = padded;
        c->left[2] = all;
        return rc;
    }
    free(each);
    free(padded);
    free(all);
    return rc;
}

/* Rank 0's look at what all ranks sent. */
static void judge(struct mr_comm *c, char *const *texts)
{
    char *refusals = mr_comm_refusals(texts, c->world);
    char *differ = refusals && refusals[0] ? NULL : mr_comm_differences(texts, c->world);
    const char *text = !refusals ? NULL : differ ? differ : refusals;
    if (!text)
        snprintf(c->verdict, sizeof c->verdict, "no memory to compare configurations");
    else if (text[0])
        snprintf(c->verdict, sizeof c->verdict, "%s%s",
                 text == differ ? "the ranks' configurations differ: " : "", text);
    free(refusals);
    free(differ);
}

/* All ranks come to the same end. A configuration has no line without a name: that is a refusal. */
static int compare_configs(struct mr_comm *c)
{
    char **texts = NULL, *refusal = NULL;
    const char *mine = c->opts.config ? c->opts.config : "";
    if (c->opts.refusal && asprintf(&refusal, "=%s", c->opts.refusal) < 0)
        return mr_error_nomem("comm", strlen(c->opts.refusal));
    int rc = collect(c, refusal ? refusal : mine, 0, &texts);
    free(refusal);
    if (rc < 0)
        return rc;
    if (texts)
        judge(c, texts);
    free(texts);
    rc = c->engine->spread(c, c->verdict, sizeof c->verdict, 0);
    if (rc < 0 || !c->verdict[0])
        return rc;
    return mr_error_set(MR_EOPTION, "comm: %s", c->verdict);
}

int mr_comm_open(const struct mr_comm_opts *opts, struct mr_comm **out)
{
    if (!opts || !out)
        return mr_error_set(MR_EMISUSE, "mr_comm_open: opts or out is NULL");
    struct mr_comm *c = calloc(1, sizeof *c);
    if (!c)
        return mr_error_nomem("comm", sizeof *c);
    mr_comm_opts_init(&c->opts);
    int rc = mr_opts_take("comm_opts", opts, &c->opts, sizeof c->opts);
    if (rc < 0)
        goto fail;
    rc = check(&c->opts);
    if (rc < 0)
        goto fail;
    rc = choose(c);
    if (rc < 0)
        goto fail;
    c->error = calloc(1, sizeof *c->error);
    if (!c->error) {
        rc = mr_error_nomem("comm", sizeof *c->error);
        goto fail;
    }
    c->rank = c->opts.place.rank;
    c->world = c->opts.place.world;
    c->peer = MR_COMM_ALL;
    mr_process_note(&c->process);
    c->call = "open";
    c->call_ns = mr_time_ns();
    rc = leave(c, c->engine->open(c)); /* if it failed, close does not wait for the others again */
    if (rc < 0)
        goto fail;
    rc = compare_configs(c);
    if (rc != MR_EOPTION) /* that all ranks have alike, and leave together */
        leave(c, rc);
    if (rc < 0)
        goto fail;
    c->opts.config = c->opts.engine = c->opts.refusal = NULL;
    *out = c;
    return 0;
fail:
    mr_comm_close(c);
    return rc;
}

void mr_comm_close(struct mr_comm *c)
{
    if (!c)
        return;
    struct mr_error_kept kept;
    mr_error_keep(0, &kept);
    c->call = "close";
    c->call_ns = mr_time_ns();
    c->peer = MR_COMM_ALL;
    c->sequence++;
    bool over = true;
    if (c->engine && mr_process_is(&c->process))
        over = c->engine->close(c, c->failed == 0);
    mr_error_put(&kept);
    free(c->error);
    if (!over)
        return;
    mr_comm_stage_free(c);
    for (size_t i = 0; i < MR_COUNT(c->left); i++)
        free(c->left[i]);
    free(c);
}

/* types: of call's elements and wire, and an order that fits the world. */
static int check_types(const struct mr_comm *c, const char *call, const struct mr_comm_array *a)
{
    if (a->dtype != MR_F32 && a->dtype != MR_F64)
        return mr_error_set(MR_EMISUSE, "%s: elements of %s: expected f32 or f64", call,
                            mr_dtype_name(a->dtype));
    if (a->wire != a->dtype && (a->wire != MR_BF16 || a->dtype != MR_F32))
        return mr_error_set(MR_EMISUSE, "%s: %s as %s: expected the same, or f32 as bf16", call,
                            mr_dtype_name(a->dtype), mr_dtype_name(a->wire));
    if (a->order == MR_SUM_TREE && !mr_comm_is_power_of_two(c->world))
        return mr_error_set(MR_EMISUSE, "%s: %u ranks: expected a power of two for a sum by a tree",
                            call, c->world);
    return 0;
}

static int check_sum(const struct mr_comm *c, const void *in, const void *out,
                     const struct mr_comm_array *a)
{
    if (!c || (a->n && (!in || !out)))
        return mr_error_null("mr_comm_sum", "a communicator, in and out");
    return check_types(c, "mr_comm_sum", a);
}

/* A stream that is recorded, where only the host moves bytes. */
static int check_stream(const struct mr_comm *c, const char *call, const struct mr_stream *stream)
{
    if (!stream || c->engine->sum_device || !atomic_load(&stream->recording))
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "%s: stream \"%s\" is being recorded into a graph, where engine %s has no "
                        "sums",
                        call, stream->name, c->engine->name);
}

static int check_parts(const struct mr_comm *c, const char *call, const void *data,
                       const uint64_t *first)
{
    if (!c || !first || (!data && first[0] < first[c->world]))
        return mr_error_null(call, "a communicator, data and the parts");
    for (uint32_t r = 0; r < c->world; r++)
        if (first[r] > first[r + 1])
            return mr_error_set(MR_EMISUSE,
                                "%s: the part of rank %u from element %" PRIu64 " to %" PRIu64
                                ": expected numbers that ascend",
                                call, r, first[r], first[r + 1]);
    return 0;
}

int mr_comm_place(const void *in, void *out, const struct mr_comm_array *a,
                  struct mr_stream *stream)
{
    uint64_t bytes = a->n * mr_dtype_size(a->dtype);
    return in != out && bytes ? mr_copy_async(stream, out, MR_DEVICE, in, MR_DEVICE, bytes) : 0;
}

static int sum(struct mr_comm *c, const void *in, void *out, const struct mr_comm_array *a,
               struct mr_stream *stream)
{
    uint64_t bytes = a->n * mr_dtype_size(a->dtype);
    if (a->n == 0 && !stream)
        return c->engine->sum(c, out, a);
    if (!stream) {
        if (in != out)
            memcpy(out, in, bytes);
        return c->engine->sum(c, out, a);
    }
    if (c->engine->sum_device)
        return c->engine->sum_device(c, in, out, a, stream);
    int rc = mr_comm_place(in, out, a, stream);
    return rc < 0 ? rc : mr_comm_stage_sum(c, out, a, stream);
}

/* Staged calls begin when the stream's earlier work is done: they set call_ns then. */
static void take_time(struct mr_comm *c, uint64_t start)
{
    c->ns += mr_time_ns() - MR_MAX(start, c->call_ns);
}

int mr_comm_sum(struct mr_comm *c, const void *in, void *out, uint64_t n, enum mr_dtype dtype,
                enum mr_dtype wire, enum mr_sum_order order, struct mr_stream *stream)
{
    const struct mr_comm_array a = {n, dtype, wire, order};
    int rc = check_sum(c, in, out, &a);
    if (rc < 0)
        return rc;
    rc = check_stream(c, "mr_comm_sum", stream);
    if (rc < 0)
        return rc;
    rc = enter(c, "sum", MR_COMM_ALL);
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns();
    rc = sum(c, in, out, &a, stream);
    c->sums++;
    c->bytes += n * mr_dtype_size(wire);
    take_time(c, start);
    return leave(c, rc);
}

/* ---- parts of sums ---- */

struct mr_comm_half mr_comm_half_of(const struct mr_comm *c, const struct mr_comm_parts *p,
                                    uint32_t h)
{
    const uint32_t low = c->rank & ~(2 * h - 1), mine = low + (c->rank & h),
                   other = low + (~c->rank & h);
    return (struct mr_comm_half){.partner = c->rank ^ h,
                                 .keep = p->first[mine],
                                 .n_keep = p->first[mine + h] - p->first[mine],
                                 .give = p->first[other],
                                 .n_give = p->first[other + h] - p->first[other]};
}

int mr_comm_shift_parts(const struct mr_comm *c, const struct mr_comm_parts *p,
                        struct mr_comm_parts *out)
{
    uint64_t *first = malloc((c->world + 1ull) * sizeof *first);
    if (!first)
        return mr_error_nomem("comm", (c->world + 1ull) * sizeof *first);
    for (uint32_t r = 0; r <= c->world; r++)
        first[r] = p->first[r] - p->first[0];
    *out = *p;
    out->first = first;
    return 0;
}

int mr_comm_sum_scatter(struct mr_comm *c, void *data, const uint64_t *first, enum mr_dtype dtype,
                        enum mr_dtype wire, enum mr_sum_order order, struct mr_stream *stream)
{
    const char *call = "mr_comm_sum_scatter";
    const struct mr_comm_parts p = {first, dtype, wire, order};
    int rc = check_parts(c, call, data, first);
    if (rc < 0)
        return rc;
    const struct mr_comm_array a = {first[c->world] - first[0], dtype, wire, order};
    rc = check_types(c, call, &a);
    if (rc < 0)
        return rc;
    rc = check_stream(c, call, stream);
    if (rc < 0)
        return rc;
    rc = enter(c, "sum_scatter", MR_COMM_ALL);
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns();
    if (!stream)
        rc = c->engine->scatter(c, data, &p);
    else if (c->engine->sum_device)
        rc = c->engine->scatter_device(c, data, &p, stream);
    else
        rc = mr_comm_stage_scatter(c, data, &p, stream);
    c->sums++;
    c->bytes += a.n * mr_dtype_size(wire);
    take_time(c, start);
    return leave(c, rc);
}

int mr_comm_gather(struct mr_comm *c, void *data, const uint64_t *first, enum mr_dtype dtype,
                   struct mr_stream *stream)
{
    const char *call = "mr_comm_gather";
    const struct mr_comm_parts p = {first, dtype, dtype, MR_SUM_FAST};
    int rc = check_parts(c, call, data, first);
    if (rc < 0)
        return rc;
    if (mr_dtype_size(dtype) == 0)
        return mr_error_set(MR_EMISUSE, "%s: elements of type %d: no such", call, (int)dtype);
    rc = check_stream(c, call, stream);
    if (rc < 0)
        return rc;
    rc = enter(c, "gather", MR_COMM_ALL);
    if (rc < 0)
        return rc;
    uint64_t start = mr_time_ns();
    if (!stream)
        rc = c->engine->share(c, data, &p);
    else if (c->engine->sum_device)
        rc = c->engine->share_device(c, data, &p, stream);
    else
        rc = mr_comm_stage_share(c, data, &p, stream);
    take_time(c, start);
    return leave(c, rc);
}

/* ---- from one rank to another ---- */

static int check_peer(const struct mr_comm *c, const char *call, uint32_t peer)
{
    if (peer < c->world && peer != c->rank)
        return 0;
    return mr_error_set(MR_EMISUSE, "%s: rank %u: expected another one of %u ranks than %u", call,
                        peer, c->world, c->rank);
}

static int pass(struct mr_comm *c, const char *call, const struct mr_comm_message *m,
                struct mr_stream *stream)
{
    int rc = check_stream(c, call, stream);
    if (rc < 0)
        return rc;
    if (m->out_bytes == 0 && m->in_bytes == 0)
        return mr_comm_check(c);
    rc = enter(c, call + strlen("mr_comm_"), m->in_bytes ? m->from : m->to);
    if (rc < 0)
        return rc;
    if (!stream)
        rc = c->engine->pass(c, m);
    else if (c->engine->sum_device)
        rc = c->engine->pass_device(c, m, stream);
    else
        rc = mr_comm_stage_pass(c, m, stream);
    if (rc == 0)
        c->peer = MR_COMM_ALL;
    return leave(c, rc);
}

int mr_comm_send(struct mr_comm *c, const void *data, uint64_t bytes, uint32_t to,
                 struct mr_stream *stream)
{
    const struct mr_comm_message m = {.out = data, .out_bytes = bytes, .to = to};
    if (!c || (bytes && !data))
        return mr_error_null("mr_comm_send", "a communicator and data");
    int rc = check_peer(c, "mr_comm_send", to);
    return rc < 0 ? rc : pass(c, "mr_comm_send", &m, stream);
}

int mr_comm_recv(struct mr_comm *c, void *data, uint64_t bytes, uint32_t from,
                 struct mr_stream *stream)
{
    const struct mr_comm_message m = {.in = data, .in_bytes = bytes, .from = from};
    if (!c || (bytes && !data))
        return mr_error_null("mr_comm_recv", "a communicator and data");
    int rc = check_peer(c, "mr_comm_recv", from);
    return rc < 0 ? rc : pass(c, "mr_comm_recv", &m, stream);
}

int mr_comm_send_recv(struct mr_comm *c, const void *out, uint64_t out_bytes, uint32_t to, void *in,
                      uint64_t in_bytes, uint32_t from, struct mr_stream *stream)
{
    const char *call = "mr_comm_send_recv";
    const struct mr_comm_message m = {out, in, out_bytes, in_bytes, to, from};
    if (!c || (out_bytes && !out) || (in_bytes && !in))
        return mr_error_null(call, "a communicator, out and in");
    int rc = out_bytes ? check_peer(c, call, to) : 0;
    if (rc < 0)
        return rc;
    rc = in_bytes ? check_peer(c, call, from) : 0;
    return rc < 0 ? rc : pass(c, call, &m, stream);
}

/* ---- the rest ---- */

int mr_comm_collect(struct mr_comm *c, const char *mine, uint32_t root, char ***texts)
{
    if (!c || !mine || !texts || root >= c->world || strlen(mine) > TEXT_MOST)
        return mr_error_set(MR_EMISUSE, "mr_comm_collect: expected a communicator, a text of at "
                                        "most 1 MiB, a root among the ranks, and texts");
    *texts = NULL;
    int rc = enter(c, "collect", MR_COMM_ALL);
    return rc < 0 ? rc : leave(c, collect(c, mine, root, texts));
}

void mr_comm_phase(struct mr_comm *c, const char *what)
{
    if (c && what && !c->failed && mr_process_is(&c->process))
        c->engine->phase(c, what);
}

int mr_comm_check(struct mr_comm *c)
{
    if (!c)
        return mr_error_set(MR_EMISUSE, "mr_comm_check: comm is NULL");
    if (c->failed)
        return mr_error_put(c->error);
    return c->engine->check ? leave(c, c->engine->check(c)) : 0;
}

int mr_comm_watch(struct mr_comm *c, struct mr_stream *stream)
{
    if (!c || !stream)
        return mr_error_set(MR_EMISUSE, "mr_comm_watch: comm or stream is NULL");
    return c->engine->watch ? c->engine->watch(c, stream) : 0;
}

int mr_comm_stats(const struct mr_comm *c, struct mr_comm_stats *out)
{
    if (!c)
        return mr_error_set(MR_EMISUSE, "mr_comm_stats: comm is NULL");
    struct mr_comm_stats full = {.rank = c->rank,
                                 .world = c->world,
                                 .sums = c->sums,
                                 .bytes = c->bytes,
                                 .seconds = (double)c->ns * 1e-9,
                                 .speaker = c->speaker,
                                 .graphs = c->engine->sum_device != NULL};
    snprintf(full.engine, sizeof full.engine, "%s", c->engine->name);
    snprintf(full.library, sizeof full.library, "%s", c->library);
    return mr_info_give("comm_stats", out, &full, sizeof full);
}

void mr_comm_abort(struct mr_comm *c, int status)
{
    if (!c)
        exit(status);
    fflush(NULL);
    /* Launchers lose what they have not passed on when a rank aborts. */
    const struct timespec t = {c->rank != c->speaker, 300000000};
    if (c->world > 1)
        nanosleep(&t, NULL);
    c->engine->abort(c, status);
}
