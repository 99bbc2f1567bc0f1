/*
 * An NCCL that is not there: ranks are processes of one machine that share a file in /dev/shm, and
 * what they send goes through it when the fake driver's stream comes to it. Its declarations are
 * the library's own.
 *
 * NCCL_COMM_ID, of any text, gives all ranks the same id; without it an id is new. Environment:
 * FAKE_NCCL_FAIL_AT: of the calls that can fail, counted from 1; FAKE_NCCL_FAIL_WITH (5);
 * FAKE_NCCL_ASYNC: a result that ncclCommGetAsyncError() gives once the first sum was enqueued;
 * FAKE_NCCL_PROGRESS: calls return that they are in progress first; FAKE_NCCL_DUPLICATE: all ranks
 * have the same GPU, which is refused.
 */
#include "comm/nccl.h"
#include "fake_cuda.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FAKE_API                   __attribute__((visibility("default")))
#define X(type, symbol, arguments) FAKE_API type symbol arguments;
NCCL_CALLS(X)
#undef X

#define RANKS     8
#define BOX_BYTES 4096
#define MOST_OPS  16

struct box { /* from one rank to another */
    _Atomic uint32_t full, unused;
    unsigned char bytes[BOX_BYTES];
};

struct shared {
    _Atomic uint32_t joined;
    struct box box[RANKS][RANKS];
};

struct ncclComm {
    struct shared *shared;
    int rank, ranks, in_progress;
    atomic_bool aborted, summed;
    atomic_int running; /* operations in streams */
    struct ncclComm *next;
};

static struct ncclComm *aborted; /* they stay: streams may have operations that have not begun */

/* A transfer, on the way. */
struct part {
    char *data;
    uint64_t bytes, done;
    int peer, sends;
};

struct group {
    struct ncclComm *comm;
    int n;
    struct part part[MOST_OPS];
    /* of a collective, which is a group of its own: */
    enum { NONE, ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST } kind;
    void *to;
    const void *from;
    uint64_t count;
    int type, root;
};

static _Thread_local int depth;
static _Thread_local struct group open_group;
static _Thread_local struct CUstream_st *group_stream;
static atomic_int calls;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* Does this call fail? */
static int call(void)
{
    return atomic_fetch_add(&calls, 1) + 1 == number("FAKE_NCCL_FAIL_AT", 0)
               ? number("FAKE_NCCL_FAIL_WITH", 5)
               : NCCL_SUCCESS;
}

static size_t size_of(int type)
{
    return type == NCCL_INT8 ? 1 : type == NCCL_BFLOAT16 ? 2 : type == NCCL_FLOAT32 ? 4 : 8;
}

/* Returns whether something moved. */
static bool move(const struct group *g, struct part *p)
{
    struct shared *s = g->comm->shared;
    struct box *b = p->sends ? &s->box[g->comm->rank][p->peer] : &s->box[p->peer][g->comm->rank];
    uint64_t n = p->bytes - p->done < BOX_BYTES ? p->bytes - p->done : BOX_BYTES;
    if (n == 0 || atomic_load(&b->full) == (uint32_t)(p->sends != 0))
        return false;
    if (p->sends)
        memcpy(b->bytes, p->data + p->done, n);
    else
        memcpy(p->data + p->done, b->bytes, n);
    p->done += n;
    atomic_store(&b->full, p->sends != 0);
    return true;
}

static bool transfer(struct group *g)
{
    bool left = true;
    while (left && !atomic_load(&g->comm->aborted)) {
        bool moved = left = false;
        for (int i = 0; i < g->n; i++) {
            moved = move(g, &g->part[i]) || moved;
            left = left || g->part[i].done < g->part[i].bytes;
        }
        if (left && !moved)
            sched_yield();
    }
    return !left;
}

static void add(void *to, const void *from, uint64_t n, int type)
{
    for (uint64_t i = 0; i < n; i++)
        if (type == NCCL_FLOAT32)
            ((float *)to)[i] += ((const float *)from)[i];
        else if (type == NCCL_FLOAT64)
            ((double *)to)[i] += ((const double *)from)[i];
        else
            ((uint16_t *)to)[i] = mr_bf16_of_f32(mr_f32_of_bf16(((uint16_t *)to)[i]) +
                                                 mr_f32_of_bf16(((const uint16_t *)from)[i]));
}

/* What goes to each rank and what comes from it: bytes of `from` at out, to `in` in the order of
 * ranks. */
static bool all_to_all(struct group *g, const char *out, uint64_t stride, char *in, uint64_t bytes)
{
    const int rank = g->comm->rank;
    memcpy(in + (size_t)rank * bytes, out + (size_t)rank * stride, bytes);
    g->n = 0;
    for (int r = 0; r < g->comm->ranks; r++)
        if (r != rank) {
            char *mine = (char *)(uintptr_t)out + (size_t)r * stride;
            g->part[g->n++] = (struct part){mine, bytes, 0, r, 1};
            g->part[g->n++] = (struct part){in + (size_t)r * bytes, bytes, 0, r, 0};
        }
    return transfer(g);
}

/* All send to all, and add in the order of ranks. Of a reduction to one rank the others' sums are
 * dropped. */
static void sum(struct group *g)
{
    const uint64_t bytes = g->count * size_of(g->type);
    char *all = calloc((size_t)g->comm->ranks, bytes);
    if (all_to_all(g, g->from, g->kind == REDUCE_SCATTER ? bytes : 0, all, bytes)) {
        for (int r = 1; r < g->comm->ranks; r++)
            add(all, all + (size_t)r * bytes, g->count, g->type);
        if (g->kind != REDUCE || g->root == g->comm->rank)
            memcpy(g->to, all, bytes);
    }
    free(all);
}

static void share(struct group *g)
{
    const uint64_t bytes = g->count * size_of(g->type);
    char *all = calloc((size_t)g->comm->ranks, bytes);
    if (all_to_all(g, g->from, 0, all, bytes)) {
        if (g->kind == ALL_GATHER)
            memcpy(g->to, all, (size_t)g->comm->ranks * bytes);
        else
            memcpy(g->to, all + (size_t)g->root * bytes, bytes);
    }
    free(all);
}

static void run_group(const void *args)
{
    struct group g = *(const struct group *)args;
    atomic_fetch_add(&g.comm->running, 1);
    if (g.kind == ALL_GATHER || g.kind == BROADCAST)
        share(&g);
    else if (g.kind != NONE)
        sum(&g);
    else
        transfer(&g);
    atomic_fetch_sub(&g.comm->running, 1);
}

static const struct mr_kernel group_kernel = {
    .name = "fake_nccl", .args_bytes = sizeof(struct group), .run = run_group};

static int enqueue(struct CUstream_st *stream, const struct group *g)
{
    fake_cuda_enqueue_fn *fn =
        (fake_cuda_enqueue_fn *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_cuda_enqueue");
    atomic_store(&g->comm->summed, true);
    if (!fn || fn(stream, &group_kernel, g))
        return 1;
    g->comm->in_progress = getenv("FAKE_NCCL_PROGRESS") != NULL;
    return g->comm->in_progress ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
}

int ncclGetVersion(int *version)
{
    *version = 22803;
    return NCCL_SUCCESS;
}

int ncclGetUniqueId(struct nccl_id *id)
{
    const char *text = getenv("NCCL_COMM_ID");
    int result = call();
    memset(id, 0, sizeof *id);
    if (text)
        snprintf(id->bytes, sizeof id->bytes, "%.100s", text);
    else
        snprintf(id->bytes, sizeof id->bytes, "%d-%lld", (int)getpid(), (long long)time(NULL));
    return result;
}

static struct shared *map(const char *id)
{
    char path[200];
    snprintf(path, sizeof path, "/dev/shm/fake-nccl-%.120s", id);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0)
        return NULL;
    void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

int ncclCommInitRankConfig(struct ncclComm **out, int n_ranks, struct nccl_id id, int rank,
                           struct nccl_config *config)
{
    int result = call();
    if (result != NCCL_SUCCESS)
        return result;
    if (config->magic != NCCL_CONFIG_MAGIC || config->blocking || n_ranks > RANKS)
        return 4;
    struct ncclComm *c = calloc(1, sizeof *c);
    c->shared = c ? map(id.bytes) : NULL;
    if (!c || !c->shared) {
        free(c);
        return 2;
    }
    c->rank = rank;
    c->ranks = n_ranks;
    atomic_fetch_add(&c->shared->joined, 1);
    *out = c;
    return NCCL_IN_PROGRESS;
}

int ncclCommGetAsyncError(struct ncclComm *c, int *error)
{
    *error = NCCL_SUCCESS;
    if (atomic_load(&c->shared->joined) < (uint32_t)c->ranks)
        *error = NCCL_IN_PROGRESS;
    else if (getenv("FAKE_NCCL_DUPLICATE"))
        *error = 5;
    else if (atomic_load(&c->summed))
        *error = number("FAKE_NCCL_ASYNC", NCCL_SUCCESS);
    return NCCL_SUCCESS;
}

static int drop(struct ncclComm *c)
{
    while (atomic_load(&c->running))
        sched_yield();
    munmap(c->shared, sizeof *c->shared);
    free(c);
    return NCCL_SUCCESS;
}

int ncclCommAbort(struct ncclComm *c)
{
    c->next = aborted;
    aborted = c;
    atomic_store(&c->aborted, true);
    return NCCL_SUCCESS;
}

int ncclCommFinalize(struct ncclComm *c)
{
    (void)c;
    return call();
}

int ncclCommDestroy(struct ncclComm *c)
{
    return drop(c);
}

int ncclGroupStart(void)
{
    int result = call();
    if (result == NCCL_SUCCESS && depth++ == 0)
        open_group.n = 0;
    return result;
}

int ncclGroupEnd(void)
{
    int result = call();
    struct group g = open_group;
    if (--depth > 0 || g.n == 0 || result != NCCL_SUCCESS)
        return result;
    g.kind = NONE;
    return enqueue(group_stream, &g);
}

static int part(struct part p, struct ncclComm *comm, struct CUstream_st *stream)
{
    int result = call();
    if (result != NCCL_SUCCESS)
        return result;
    if (depth == 0) {
        struct group g = {.comm = comm, .n = 1, .part = {p}};
        return enqueue(stream, &g);
    }
    open_group.comm = comm;
    open_group.part[open_group.n++] = p;
    group_stream = stream;
    return NCCL_SUCCESS;
}

int ncclSend(const void *data, size_t n, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    return part((struct part){(char *)(uintptr_t)data, n * size_of(type), 0, peer, 1}, comm,
                stream);
}

int ncclRecv(void *data, size_t n, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    return part((struct part){data, n * size_of(type), 0, peer, 0}, comm, stream);
}

/* In a group they are enqueued at once: all ranks call them in the same order. */
static int collective(struct group g, int op, struct CUstream_st *stream)
{
    int result = call();
    if (result != NCCL_SUCCESS)
        return result;
    return op == NCCL_SUM ? enqueue(stream, &g) : 4;
}

int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    return collective(
        (struct group){
            .comm = comm, .kind = ALL_REDUCE, .to = out, .from = in, .count = n, .type = type},
        op, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, struct ncclComm *comm,
                      struct CUstream_st *stream)
{
    return collective(
        (struct group){
            .comm = comm, .kind = REDUCE_SCATTER, .to = out, .from = in, .count = n, .type = type},
        op, stream);
}

int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root,
               struct ncclComm *comm, struct CUstream_st *stream)
{
    return collective((struct group){.comm = comm,
                                     .kind = REDUCE,
                                     .to = out,
                                     .from = in,
                                     .count = n,
                                     .type = type,
                                     .root = root},
                      op, stream);
}

int ncclAllGather(const void *in, void *out, size_t n, int type, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    return collective(
        (struct group){
            .comm = comm, .kind = ALL_GATHER, .to = out, .from = in, .count = n, .type = type},
        NCCL_SUM, stream);
}

int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    return collective((struct group){.comm = comm,
                                     .kind = BROADCAST,
                                     .to = out,
                                     .from = in,
                                     .count = n,
                                     .type = type,
                                     .root = root},
                      NCCL_SUM, stream);
}

const char *ncclGetErrorString(int error)
{
    return error == 5 ? "invalid usage" : error == 6 ? "remote process exited" : "an error";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return getenv("FAKE_NCCL_DUPLICATE") ? "Duplicate GPU detected : rank 0 and rank 1" : "";
}
