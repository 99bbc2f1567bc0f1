/*
 * NCCL by dlopen. nccl.c is the engine, nccl_parts.c is for parts of arrays and for messages
 * between two ranks, nccl_open.c finds the library, spreads the id and joins the
 * ranks, nccl_watch.c ends what lasts too long, store.c speaks to torchrun's store.
 *
 * The declarations are the library's own, of 2.14 and later; the tests' library is made of them.
 */
#ifndef MR_COMM_NCCL_H
#define MR_COMM_NCCL_H

#include "comm/engine.h"

struct ncclComm;
struct CUstream_st;

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_INT8 = 0, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0 };

struct nccl_id {
    char bytes[128];
};

/* As of 2.14: later versions take it by its size and version. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION 21400u

#define NCCL_CALLS(X)                                                                              \
    X(int, ncclGetVersion, (int *version))                                                         \
    X(int, ncclGetUniqueId, (struct nccl_id * id))                                                 \
    X(int, ncclCommInitRankConfig,                                                                 \
      (struct ncclComm * *comm, int n_ranks, struct nccl_id id, int rank,                          \
       struct nccl_config *config))                                                                \
    X(int, ncclCommGetAsyncError, (struct ncclComm * comm, int *error))                            \
    X(int, ncclCommAbort, (struct ncclComm * comm))                                                \
    X(int, ncclCommFinalize, (struct ncclComm * comm))                                             \
    X(int, ncclCommDestroy, (struct ncclComm * comm))                                              \
    X(int, ncclGroupStart, (void))                                                                 \
    X(int, ncclGroupEnd, (void))                                                                   \
    X(int, ncclAllReduce,                                                                          \
      (const void *in, void *out, size_t n, int type, int op, struct ncclComm *comm,               \
       struct CUstream_st *stream))                                                                \
    X(int, ncclReduceScatter,                                                                      \
      (const void *in, void *out, size_t n, int type, int op, struct ncclComm *comm,               \
       struct CUstream_st *stream))                                                                \
    X(int, ncclReduce,                                                                             \
      (const void *in, void *out, size_t n, int type, int op, int root, struct ncclComm *comm,     \
       struct CUstream_st *stream))                                                                \
    X(int, ncclAllGather,                                                                          \
      (const void *in, void *out, size_t n, int type, struct ncclComm *comm,                       \
       struct CUstream_st *stream))                                                                \
    X(int, ncclBroadcast,                                                                          \
      (const void *in, void *out, size_t n, int type, int root, struct ncclComm *comm,             \
       struct CUstream_st *stream))                                                                \
    X(int, ncclSend,                                                                               \
      (const void *data, size_t n, int type, int peer, struct ncclComm *comm,                      \
       struct CUstream_st *stream))                                                                \
    X(int, ncclRecv,                                                                               \
      (void *data, size_t n, int type, int peer, struct ncclComm *comm,                            \
       struct CUstream_st *stream))                                                                \
    X(const char *, ncclGetErrorString, (int error))                                               \
    X(const char *, ncclGetLastError, (struct ncclComm * comm))

struct mr_nccl_table {
#define X(type, symbol, arguments) type(*symbol) arguments;
    NCCL_CALLS(X)
#undef X
};

/* What lasts too long is ended by a thread. */
struct mr_nccl_watch {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct mr_event *event[2]; /* [0]: of what is waited for; [1]: of what came behind it */
    bool due[2], stop, started;
    uint64_t since_ns; /* when [0] became the one that is waited for */
    bool aborting, aborted;
    char failure[512]; /* "": none */
    char named[1024];  /* the same with the ranks that did not come; "": not known */
    uint32_t speaker;
};

struct mr_nccl {
    struct mr_nccl_table nccl;
    struct ncclComm *comm;        /* NULL: none, or aborted */
    struct mr_comm *control;      /* by MPI, for all but sums of device memory; NULL: none */
    pthread_mutex_t control_lock; /* the watch's thread calls it, too */
    struct mr_device *device;
    struct mr_stream *stream; /* of sums of host memory */
    char node[64];
    void *room,
        *host; /* device memory: what a peer sent, and what is sent as bf16; of host memory */
    uint64_t room_bytes, host_bytes;
    void *old[48]; /* smaller rooms, which graphs may still use; each is half of the next or less */
    uint32_t n_old;
    struct mr_nccl_watch watch;
};

/* The control communicator, locked, or NULL; done: with what a call of it returned. */
struct mr_comm *mr_nccl_control(struct mr_comm *c);
int mr_nccl_control_done(struct mr_comm *c, int rc);

static inline struct mr_nccl *mr_nccl_of(const struct mr_comm *c)
{
    return c->impl;
}

/* The error of a call, with rank, device, call and NCCL's own words. */
int mr_nccl_failed(struct mr_comm *c, const char *call, int result);
/* Waits until a call that is in progress has ended, at most the time limit. Returns 0, MR_EPEER. */
int mr_nccl_settle(struct mr_comm *c, const char *call, int result);

/* nccl.c, for nccl_parts.c. What a peer sends, or is sent as bf16, has room for so many bytes. */
int mr_nccl_make_room(struct mr_comm *c, uint64_t bytes);
int mr_nccl_cast(struct mr_stream *stream, void *to, const void *from, uint64_t n,
                 enum mr_dtype to_dtype);
int mr_nccl_type(enum mr_dtype dtype);
struct CUstream_st *mr_nccl_stream(const struct mr_stream *stream);
/* What goes to a peer and comes from it; 0 elements: nothing does. */
struct mr_nccl_swap {
    int to, from, type;
    const void *give;
    void *keep;
    uint64_t n_give, n_keep;
};
int mr_nccl_swap(struct mr_comm *c, const struct mr_nccl_swap *swap, struct mr_stream *stream);
/* Host memory without MPI: through a buffer of so many bytes on the device, and the engine's own
 * stream. */
int mr_nccl_take_host(struct mr_comm *c, uint64_t bytes);
int mr_nccl_wait_own(struct mr_comm *c);

/* nccl_parts.c. As struct mr_comm_engine says. */
int mr_nccl_scatter(struct mr_comm *c, void *data, const struct mr_comm_parts *p);
int mr_nccl_scatter_device(struct mr_comm *c, void *data, const struct mr_comm_parts *p,
                           struct mr_stream *stream);
int mr_nccl_share(struct mr_comm *c, void *data, const struct mr_comm_parts *p);
int mr_nccl_share_device(struct mr_comm *c, void *data, const struct mr_comm_parts *p,
                         struct mr_stream *stream);
int mr_nccl_pass(struct mr_comm *c, const struct mr_comm_message *message);
int mr_nccl_pass_device(struct mr_comm *c, const struct mr_comm_message *message,
                        struct mr_stream *stream);

/* nccl_open.c */
int mr_nccl_join(struct mr_comm *c);
int mr_nccl_find(void);
int mr_nccl_library(char *out, size_t cap);

/* nccl_watch.c */
int mr_nccl_watch_start(struct mr_comm *c);
void mr_nccl_watch_stop(struct mr_comm *c);
/* The work that the stream has by now must end within the time limit. */
int mr_nccl_watch(struct mr_comm *c, struct mr_stream *stream);
/* Returns 0, or MR_EPEER where the watch ended the communicator. */
int mr_nccl_check(struct mr_comm *c);
void mr_nccl_abort(struct mr_comm *c);

/* store.c: torchrun's store of keys and values (MASTER_ADDR, MASTER_PORT). Rank 0 sets `value`, the
 * others get it. until_ns: mr_time_ns(). Returns 0, MR_EPEER (no store, or no answer in time),
 * MR_EFORMAT (an answer that is none of it). */
int mr_store_spread(const char *key, void *value, size_t bytes, bool sets, uint64_t until_ns);

#endif
