/*
 * The server: one thread that takes batches from the loader and says to every trainer where they
 * are.
 *
 *   server.c    opening, closing, the thread's loop
 *   publish.c   batches: taken from the loader, described, given back
 *   trainers.c  trainers: attached, sent to, read from, dropped
 *
 * The thread sleeps in poll() for the loader's descriptor, the sockets, and the trainers' ends. No
 * state is shared with a trainer but the bytes of batches: which batches it holds is a bit in each
 * entry here. So a trainer can be killed at any instruction.
 *
 * Batches are numbered as they are handed out. Entry number % (ahead + 1) has a batch: none is
 * handed out while a trainer has an older one than that.
 */
#ifndef MR_SERVE_SERVER_H
#define MR_SERVE_SERVER_H

#include "loader/shared.h"
#include "serve/wire.h"

_Static_assert(MR_MAX_TRAINERS <= 64, "holders is a bit for each");

struct mr_trainer {
    int fd; /* -1: this place is free */
    int watch;
    int64_t pid;
    uint64_t hello_ns; /* when it must have said hello; 0: it has, and is attached */
    uint64_t next;     /* the number of the batch that it is sent next */
    uint64_t oldest;   /* none before this one is unreleased */
    bool full;         /* its socket takes no more for now */
    bool told;         /* the end */
    bool leaves;       /* it said so */
    bool checked;      /* who it is has been seen to, by who gave us its socket */
};

struct mr_entry {
    uint64_t number;
    uint64_t holders; /* a bit for each trainer; 0: the entry is free */
    void *slot;       /* of struct mr_batch, as is: */
    uint64_t batch_number;
    struct mr_batch_place place;
    struct mr_shared_block note;
};

struct mr_server {
    struct mr_process process;
    struct mr_loader *ld;
    struct mr_shared_memory *memory;
    char *address; /* NULL: none */
    uint64_t ahead;
    uint32_t wait_for;
    int wake;      /* eventfd: cancelled, or added to */
    int read_only; /* the memory's file, opened once more; -1: not possible here */
    pthread_t thread;
    _Atomic bool cancelled;

    /* The thread's. */
    int listens; /* -1: not, or not any more */
    struct mr_wire_file file;
    uint64_t listen_again_ns; /* no descriptors were left; 0: go on */
    struct mr_trainer trainer[MR_MAX_TRAINERS];
    struct mr_entry *entry; /* ahead + 1 */
    uint64_t next, base;    /* numbers: of the next batch; no entry before this one is used */
    bool started;           /* wait_for trainers have been there */
    bool starved;           /* the loader has no memory for another batch until one is released */
    bool ended;             /* nothing more comes */
    struct mr_wire_end end; /* what trainers are told then */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool done;
    int code; /* of done */
    struct mr_error_kept error;
    int added[MR_MAX_TRAINERS], n_added;
    struct mr_server_info info;
};

/* ---- publish.c ---- */
/* May a batch be taken now? Else the loader's descriptor is not looked at. */
bool mr_publish_may(struct mr_server *s);
/* Takes all that may be taken, and is ready. */
void mr_publish(struct mr_server *s);
/* The oldest batch that a trainer has not released; the next one if it has released all. */
uint64_t mr_publish_oldest(struct mr_server *s, uint32_t trainer);
/* A trainer holds the batch no longer. false: it did not. */
bool mr_publish_release(struct mr_server *s, uint32_t trainer, uint64_t number);
/* None of them. */
void mr_publish_drop(struct mr_server *s, uint32_t trainer);
/* Nothing more comes: after the last batch, or with this thread's error. */
void mr_publish_end(struct mr_server *s, int code);
/* Leaves what trainers hold, and frees the rest. */
void mr_publish_close(struct mr_server *s);

static inline struct mr_entry *mr_server_entry(const struct mr_server *s, uint64_t number)
{
    return &s->entry[number % (s->ahead + 1)];
}

/* ---- trainers.c ---- */
static inline bool mr_trainer_is_attached(const struct mr_trainer *t)
{
    return t->fd >= 0 && t->hello_ns == 0;
}
uint32_t mr_trainers_count(const struct mr_server *s); /* attached */
/* fd: a connected socket. checked: see struct mr_trainer. */
void mr_trainers_add(struct mr_server *s, int fd, bool checked);
void mr_trainers_accept(struct mr_server *s);
/* Sends batches and the end to those whose sockets take them. */
void mr_trainers_send(struct mr_server *s);
/* Reads all that has come. */
void mr_trainers_read(struct mr_server *s, uint32_t i);
void mr_trainers_drop(struct mr_server *s, uint32_t i);
/* Drops those that connected and said nothing. Returns how long until the next of them, in
 * nanoseconds; UINT64_MAX: there is none. */
uint64_t mr_trainers_drop_silent(struct mr_server *s);

#endif
