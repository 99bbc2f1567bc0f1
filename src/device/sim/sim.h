/*
 * The simulated accelerator: what its files share.
 *
 * Time. Every piece of work has a start and an end in model time (mr_time_ns clock): it starts when
 * the engine is free, the stream's earlier work is done and the caller has enqueued it, and takes
 * latency + bytes / rate. The engine's thread does the real work and then sleeps until the end, so
 * what the host sees is never earlier than the model. A thread that wakes late delays nothing that
 * follows: the next start is counted from the model's end. Only real work that takes longer than
 * the model moves the end.
 *
 * Order. Streams are lists; only the head of each can be taken, by the engine it names; an engine
 * takes the head that was enqueued first. Records and waits at a head cost nothing and are done by
 * whoever brings them there. A wait refers to the mark that the event had when the wait was
 * enqueued, so marks form no cycles and everything enqueued gets done. It may be a mark of another
 * simulated device: one lock guards them all, and order counts across them.
 */
#ifndef MR_DEVICE_SIM_SIM_H
#define MR_DEVICE_SIM_SIM_H

#include "device/graph.h"
#include "device/host.h"

enum sim_engine_kind { SIM_H2D, SIM_D2H, SIM_COMPUTE, SIM_N_ENGINES };

struct sim_options {
    double h2d, d2h, peer, pageable; /* GB/s */
    double tflops;
    uint64_t latency_ns, step_ns, memory_bytes;
};

struct sim_engine {
    struct mr_device *dev;
    enum sim_engine_kind kind;
    pthread_t thread;
    pthread_cond_t work; /* something changed: look for work again */
    uint64_t free_ns;    /* model time at which the last work ended */
};

/* A point in a stream. Lives as long as an event or a piece of work refers to it. */
struct sim_mark {
    struct sim_mark *next_spare;
    int n_users;
    bool passed;
    struct mr_device *dev; /* whose stream it is a point of */
    uint64_t time_ns;      /* once passed: model time */
};

/* CUPTI's numbers. */
enum sim_copy_kind {
    SIM_NO_COPY,
    SIM_COPY_H2D = 1,
    SIM_COPY_D2H = 2,
    SIM_COPY_D2D = 8,
    SIM_COPY_P2P = 10
};

/* What a recording says of a piece of work (rows.c). */
struct sim_row {
    uint32_t correlation; /* of the call that made it; 0: none is recorded */
    uint32_t graph, graph_node;
    enum sim_copy_kind copy;    /* of copies, as are kinds of memory: enum mr_memory */
    uint8_t src_kind, dst_kind; /* a set has the latter */
    bool later, more;           /* of a copy in pieces: not the first, not the last */
    bool staged_out;            /* mr_sim_rows_staged() puts it */
    uint64_t start_ns;          /* when the caller began to stage it; 0: the engine's */
    const char *kernel;         /* its name; NULL: a copy or a set */
    const struct sim_device *src_device, *dst_device; /* of a copy between devices */
};

enum sim_op_kind { SIM_WORK, SIM_RECORD, SIM_WAIT };

struct sim_op {
    struct sim_op *next;
    enum sim_op_kind kind;
    bool running, foreign;       /* foreign: SIM_WAIT for another device's mark */
    uint64_t order;              /* among all streams */
    uint64_t ready_ns;           /* when it was enqueued */
    struct sim_mark *mark;       /* SIM_RECORD, SIM_WAIT */
    enum sim_engine_kind engine; /* SIM_WORK, and below */
    uint64_t cost_ns;
    void *dst;
    const void *src; /* NULL: dst is set to `byte` */
    uint64_t bytes;  /* 0: nothing to copy */
    int byte;
    bool peer;                      /* the other end is another device's */
    volatile uint32_t *flag;        /* not NULL: the work lasts until that is not 0 */
    const volatile uint32_t *stop;  /* not NULL: it ends when that is not 0 */
    const struct mr_kernel *kernel; /* instead of a copy; NULL: none */
    struct sim_row row;
    _Alignas(16) unsigned char args[MR_KERNEL_ARGS];
};

struct sim_stream {
    struct mr_stream *stream;
    struct sim_stream *next;
    pthread_mutex_t submit; /* held by a call that enqueues, for all of a staged copy; before the
                               mr_sim_lock */
    /* Under mr_sim_lock. */
    struct sim_op *head, **tail;
    uint64_t n_enqueued, n_done;
    uint64_t end_ns; /* model time at which the last work ended */
    uint32_t number; /* of the device's, from 1 on; constant */
    /* Whose engine works on the head: of the copy's pieces so far, for its row. */
    uint64_t copy_start_ns, copied_bytes;
    /* Under submit. */
    struct mr_op_list recorded; /* struct sim_op; while the stream is being recorded */
    char *bounce;               /* SIM_N_BOUNCE chunks; NULL until the first staged copy */
};

struct sim_event {
    struct sim_mark *mark; /* NULL: never recorded; under mr_sim_lock */
};

struct sim_graph {
    struct mr_op_list ops; /* struct sim_op */
    struct sim_event last; /* the end of the last launch */
};

struct sim_block {
    struct sim_block *next;
    void *ptr;
    uint64_t bytes;
};

struct sim_device {
    struct sim_options opts;
    /* Under mr_sim_lock. */
    struct sim_device *next;
    pthread_cond_t done; /* a piece of work is done or a mark has passed */
    bool stop;
    uint32_t number;    /* that no other open one has; constant */
    uint32_t n_streams; /* so far */
    struct sim_stream *streams;
    struct sim_stream any; /* one of them: it only has waits for the others, and records */
    uint64_t next_order;
    struct sim_engine engine[SIM_N_ENGINES];
    struct sim_op *spare_ops; /* kept, so that steady state allocates nothing */
    struct sim_mark *spare_marks;
    struct sim_block *blocks; /* allocated device memory */
    uint64_t used_bytes;
};

/* Guards what says so above, of all devices: streams wait for events of other ones. Nothing is
 * locked under it. */
extern pthread_mutex_t mr_sim_lock;

/* Starts and ends the engines. start: 0 or negative with nothing left running. */
int mr_sim_engines_start(struct mr_device *dev);
void mr_sim_engines_stop(struct mr_device *dev);

/* stream.c: the hooks of streams, events and launches. */
int mr_sim_stream_open(struct mr_stream *stream);
void mr_sim_stream_close(struct mr_stream *stream);
int mr_sim_stream_synchronize(struct mr_stream *stream);
int mr_sim_event_open(struct mr_event *event);
void mr_sim_event_close(struct mr_event *event);
int mr_sim_event_record(struct mr_event *event, struct mr_stream *stream);
int mr_sim_event_record_any(struct mr_event *event);
int mr_sim_event_wait(struct mr_stream *stream, struct mr_event *event);
int mr_sim_event_query(struct mr_event *event);
int mr_sim_event_synchronize(struct mr_event *event);
int mr_sim_event_elapsed(struct mr_event *start, struct mr_event *end, int64_t *out_ns);

/* A piece of work for an engine, before it is enqueued. */
struct sim_work {
    enum sim_engine_kind engine;
    uint64_t ready_ns, cost_ns;
    void *dst;
    const void *src; /* NULL: dst is set to `byte` */
    uint64_t bytes;
    int byte;
    bool peer;                      /* the other end is another device's */
    volatile uint32_t *flag;        /* not NULL: the work lasts until that is not 0 */
    const volatile uint32_t *stop;  /* not NULL: it ends when that is not 0 */
    const struct mr_kernel *kernel; /* instead of a copy; NULL: none */
    const void *args;               /* the kernel's: copied */
    struct sim_row row;
};

/* Enqueues, with the stream's `submit` held. [out] out_ticket: what mr_sim_wait_done() takes; may
 * be NULL. */
int mr_sim_enqueue(struct mr_stream *stream, const struct sim_work *work, uint64_t *out_ticket);

/* Enqueues copies of recorded operations behind `last`, which moves to their end; all or nothing.
 * correlation: of their launch. Returns 0, -ENOMEM. */
int mr_sim_enqueue_all(struct mr_stream *stream, const struct sim_op *ops, uint64_t n,
                       uint32_t correlation, struct sim_event *last);
void mr_sim_forget(struct mr_device *dev, struct sim_event *event);

/* Blocks until the stream's work up to the ticket is done. */
void mr_sim_wait_done(struct mr_stream *stream, uint64_t ticket);
/* The ticket of the last work enqueued. */
uint64_t mr_sim_last_ticket(struct mr_stream *stream);

/* ---- rows.c ---- */

/* A call of the host's, from its begin to its end. */
struct sim_call {
    const char *name; /* NULL: nobody records */
    uint64_t start_ns;
    uint32_t correlation;
};
struct sim_call mr_sim_call_begin(const char *name);
void mr_sim_call_end(const struct sim_call *call);

/* The lowest number for devices. */
uint32_t mr_sim_rows_first(void);
/* Tells of a device or stream that was opened. */
void mr_sim_rows_device(struct mr_device *dev);
void mr_sim_rows_stream(const struct sim_device *sim, const struct sim_stream *s);
/* A staged copy from the device, its last piece in the caller's memory; with `submit` held. */
void mr_sim_rows_staged(const struct sim_stream *s, const struct sim_row *row, uint64_t end_ns);
/* Work that an engine has done. Returns whether devices are recorded in this process. */
bool mr_sim_rows_work(struct sim_stream *s, const struct sim_op *op, uint64_t start_ns,
                      uint64_t end_ns);

/* sim_copy.c */
/* A device that is there faults on such a range; here it would go unseen. what: "destination".
 * Returns 0, MR_EDEVICE. */
int mr_sim_check_range(struct mr_device *dev, const char *what, const void *ptr, uint64_t bytes);
/* Is the pointer within device memory? Takes the lock. */
bool mr_sim_on_device(struct sim_device *sim, const void *ptr);
int mr_sim_copy_async(struct mr_stream *stream, void *dst, enum mr_memory dst_kind, const void *src,
                      enum mr_memory src_kind, uint64_t bytes);
/* sim_graph.c */
int mr_sim_graph_begin(struct mr_stream *stream);
int mr_sim_graph_end(struct mr_stream *stream, struct mr_graph *graph);
int mr_sim_graph_launch(struct mr_graph *graph, struct mr_stream *stream);
void mr_sim_graph_close(struct mr_graph *graph);

/* file.c: hooks. */
int mr_sim_files_open(struct mr_device *dev, char *note, size_t note_bytes);
void mr_sim_files_close(struct mr_device *dev);
int mr_sim_file_open(struct mr_device *dev, int fd, const char *name, void **out);
void mr_sim_file_close(struct mr_device *dev, void *file);
int mr_sim_file_register(struct mr_device *dev, void *memory, uint64_t bytes);
void mr_sim_file_unregister(struct mr_device *dev, void *memory);
int64_t mr_sim_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                         uint64_t at, uint64_t bytes);

/* sim_peer.c */
int mr_sim_reach(struct mr_device *one, struct mr_device *other);
int mr_sim_copy_peer(struct mr_stream *stream, void *dst, struct mr_device *dst_device,
                     const void *src, struct mr_device *src_device, uint64_t bytes);
int mr_sim_memset_async(struct mr_stream *stream, void *dst, enum mr_memory kind, int byte,
                        uint64_t bytes);

#endif
